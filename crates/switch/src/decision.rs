//! What the bridge decides about one frame: a plain value of 8 bytes that the engine executes.
//!
//! A decision speaks of port numbers of the [`crate::Bridge`] that made it and is meant for the same burst.

use packet::record::{FloodClass, TagChange};
use packet::{DropReason, PortId};

/// How a frame's VLAN stands in the frame itself, on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TagForm {
    /// No 802.1Q tag.
    #[default]
    Untagged,
    /// An 802.1Q tag that names no VLAN (VID 0), only a priority.
    Priority,
    /// An 802.1Q tag with the VLAN's identifier.
    Tagged,
    /// Not looked at: the port is transparent.
    Opaque,
}

impl TagForm {
    /// What is to be done to the outer tag of a frame of VLAN `vid` that leaves with (`tagged`) or without a tag.
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

/// What becomes of a frame.
///
/// `punt` asks for a copy to the [`crate::Snooper`], besides the forwarding. `Flood` and `Group` name their ports
/// through [`crate::Bridge::flood`]; where that names none, the frame ends as [`DropReason::NoMember`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// To one port.
    Forward {
        /// The port.
        port: PortId,
        /// Change of the outer tag.
        tag: TagChange,
    },
    /// To every other member of the VLAN.
    Flood {
        /// VLAN, 0 on transparent ports.
        vid: u16,
        /// Why.
        class: FloodClass,
        /// Tag on arrival.
        form: TagForm,
        /// Whether the snooper gets a copy.
        punt: bool,
    },
    /// To the listeners and multicast routers of a snooped group, or (reports) to the routers only.
    Group {
        /// Number of the port list in the bridge's [`crate::Groups`].
        list: u16,
        /// VLAN, 0 on transparent ports.
        vid: u16,
        /// Tag on arrival.
        form: TagForm,
        /// Whether the snooper gets a copy.
        punt: bool,
    },
    /// Nowhere.
    Drop(DropReason),
}

const _: () = assert!(size_of::<Decision>() == 8);

impl Decision {
    /// Whether the snooper gets a copy.
    #[inline]
    pub const fn punts(&self) -> bool {
        matches!(self, Decision::Flood { punt: true, .. } | Decision::Group { punt: true, .. })
    }
}

impl Default for Decision {
    /// What an engine's array holds before the first burst.
    fn default() -> Self {
        Decision::Drop(DropReason::NoRoom)
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
