//! The forwarding decision of the bridge for one frame: a plain value of 8 bytes that the engine executes.
//!
//! Port numbers in a decision are the port numbers of the [`crate::Bridge`] that made the decision.
//! A decision is valid only for the burst of frames for which it was made.

use packet::record::{FloodClass, TagChange};
use packet::{DropReason, PortId};

/// Form of the VLAN tag of a frame on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TagForm {
    /// The frame had no 802.1Q tag.
    #[default]
    Untagged,
    /// The frame had an 802.1Q priority tag (VID 0), which assigns it to no VLAN.
    Priority,
    /// The frame had an 802.1Q tag with the VLAN's identifier.
    Tagged,
    /// The port is transparent and the tag was not examined.
    Opaque,
}

impl TagForm {
    /// Returns the change of the outer tag for a frame of VLAN `vid` that is transmitted with a tag
    /// (`tagged` is true) or without a tag.
    #[inline]
    pub(crate) fn change(self, vid: u16, tagged: bool) -> TagChange {
        match (self, tagged) {
            (TagForm::Opaque, _) | (TagForm::Untagged, false) | (TagForm::Tagged, true) => TagChange::Keep,
            (TagForm::Untagged, true) => TagChange::Push(vid),
            (TagForm::Priority, true) => TagChange::Set(vid),
            (TagForm::Priority | TagForm::Tagged, false) => TagChange::Pop,
        }
    }
}

/// The forwarding decision for one frame.
///
/// `punt` requests a copy for the [`crate::Snooper`] (IGMP and MLD snooping) in addition to the
/// forwarding of the frame. [`crate::Bridge::flood`] lists the output ports of `Flood` and `Group`.
/// If the list is empty, the frame is dropped with [`DropReason::NoMember`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Forwards the frame to one port.
    Forward {
        /// Port that the frame is forwarded to.
        port: PortId,
        /// Change of the outer VLAN tag on output.
        tag: TagChange,
    },
    /// Floods the frame to every other member of the VLAN.
    Flood {
        /// Identifier of the frame's VLAN. The value is 0 on transparent ports.
        vid: u16,
        /// Reason for the flood (broadcast, multicast or unknown unicast), which also selects the storm limit.
        class: FloodClass,
        /// Form of the frame's VLAN tag on arrival.
        form: TagForm,
        /// Whether the snooper gets a copy of the frame.
        punt: bool,
    },
    /// Forwards the frame to the listeners and multicast routers of a snooped group. Membership reports are
    /// forwarded to the multicast routers only.
    Group {
        /// Index of the port list in the bridge's [`crate::Groups`].
        list: u16,
        /// Identifier of the frame's VLAN. The value is 0 on transparent ports.
        vid: u16,
        /// Form of the frame's VLAN tag on arrival.
        form: TagForm,
        /// Whether the snooper gets a copy of the frame.
        punt: bool,
    },
    /// Drops the frame.
    Drop(DropReason),
}

const _: () = assert!(size_of::<Decision>() == 8);

impl Decision {
    /// Returns whether the decision requests a copy of the frame for the snooper.
    #[inline]
    pub const fn punts(&self) -> bool {
        matches!(self, Decision::Flood { punt: true, .. } | Decision::Group { punt: true, .. })
    }
}

impl Default for Decision {
    /// Returns a drop decision, with which an engine initializes its array of decisions.
    fn default() -> Self {
        Decision::Drop(DropReason::NoFunction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_change_as_ingress_and_egress_demand() {
        use TagForm::{Opaque, Priority, Tagged, Untagged};
        let table = [
            (Untagged, false, TagChange::Keep),
            (Untagged, true, TagChange::Push(7)),
            (Priority, false, TagChange::Pop),
            (Priority, true, TagChange::Set(7)),
            (Tagged, false, TagChange::Pop),
            (Tagged, true, TagChange::Keep),
            (Opaque, false, TagChange::Keep),
            (Opaque, true, TagChange::Keep),
        ];
        for (form, tagged, change) in table {
            assert_eq!(form.change(7, tagged), change, "{form:?} {tagged}");
        }
    }
}
