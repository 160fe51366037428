//! Forwarding of frames with a group destination: the part of IGMP and MLD snooping (RFC 4541) that workers execute,
//! and the conversion of `Flood` and `Group` decisions into output ports.
//!
//! Workers only read the [`crate::Groups`] of their bridge. They send copies of reports and queries to the
//! [`crate::Snooper`], which builds the next table of groups.

use std::net::IpAddr;

use packet::igmp::kind as igmp;
use packet::ipv6_ext::is_extension;
use packet::mld::kind as mld;
use packet::record::{FloodClass, NoRecord, Recorder, Step, TagChange};
use packet::{DropReason, FlowKey, L3Kind, Layers, PortId, ethertype, ip_proto};

use crate::bridge::Bridge;
use crate::decision::{Decision, TagForm};
use crate::groups::Family;
use crate::member::Member;

/// IP protocol number of Protocol Independent Multicast (RFC 7761). PIM hello messages show the ports of multicast
/// routers.
pub(crate) const PIM: u8 = 103;

/// The kind of a multicast control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    /// A report or leave. The message is forwarded to router ports only, because other hosts that
    /// receive a report suppress their own reports.
    Report,
    /// A query, which is flooded to all ports.
    Query,
    /// A frame that may hold a report or query but cannot be examined. The frame is dropped: a host that accepts a
    /// report from the frame suppresses its own report, and the bridge then restricts the group without that host.
    Unreadable,
}

impl Bridge {
    /// Returns the decision for a frame whose destination is a group address outside 01:80:c2:00:00:00 to 0f.
    #[inline(never)]
    pub(crate) fn multicast(&self, key: &FlowKey, layers: &Layers, vid: u16, form: TagForm) -> Decision {
        let is_broadcast = key.eth_dst().is_broadcast();
        let class = if is_broadcast { FloodClass::Broadcast } else { FloodClass::Multicast };
        let flood = |punt| Decision::Flood { vid, class, form, punt };
        if !self.view.snooping {
            return flood(false);
        }
        let control = control(key, layers, form);
        if control == Some(Control::Unreadable) || is_broadcast && control.is_some() {
            return Decision::Drop(DropReason::MulticastControlBad);
        }
        if is_broadcast || layers.l3().is_none() || has_other_vlan(key, form) {
            return flood(false);
        }
        let group = match key.l3_kind() {
            L3Kind::Ipv4 => IpAddr::V4(key.ipv4_dst()),
            L3Kind::Ipv6 => IpAddr::V6(key.ipv6_dst()),
            L3Kind::Arp | L3Kind::None => return flood(false),
        };
        match control {
            Some(Control::Query) => return flood(true),
            Some(Control::Report) => {
                let list = self.groups.routers(vid, Family::of(group));
                return Decision::Group { list, vid, form, punt: true };
            }
            Some(Control::Unreadable) | None => {}
        }
        if key.proto() == PIM && is_all_pim_routers(group) {
            return flood(true);
        }
        if !is_prunable(group) {
            return flood(false);
        }
        match self.groups.find(vid, group) {
            Some(list) => Decision::Group { list, vid, form, punt: false },
            None => flood(false),
        }
    }

    /// Calls `each` with every output port of a `Flood` or `Group` decision, in ascending order, and the
    /// change of the outer tag for the port. `each` is not called for other decisions.
    #[inline]
    pub fn flood(&self, in_port: PortId, decision: &Decision, each: impl FnMut(PortId, TagChange)) {
        self.flood_recorded(in_port, decision, 0, &mut NoRecord, each);
    }

    /// Calls `each` like [`Bridge::flood`]. Also records, for packet tracing, each output of the frame with the index
    /// `index`, and each excluded member with the reason for its exclusion. A frame without outputs is recorded as
    /// dropped.
    pub fn flood_recorded<R: Recorder>(
        &self,
        in_port: PortId,
        decision: &Decision,
        index: usize,
        recorder: &mut R,
        mut each: impl FnMut(PortId, TagChange),
    ) {
        let Some(spread) = Spread::of(self, in_port, decision) else { return };
        let mut outputs = 0;
        let mut visit = |member: &Member| match spread.to(member) {
            Ok(tag) => {
                if R::ACTIVE {
                    recorder.step(index, Step::Output { port: member.port, tag });
                    outputs += 1;
                }
                each(member.port, tag);
            }
            Err(reason) if R::ACTIVE => recorder.step(index, Step::NotTo { port: member.port, reason }),
            Err(_) => {}
        };
        match decision {
            // A recorder gets a step for every member. The data path visits only members of the VLAN or
            // group.
            _ if R::ACTIVE => self.view.members.iter().for_each(visit),
            Decision::Group { list, .. } => {
                self.groups.ports(*list).iter().filter_map(|&port| self.view.member(port)).for_each(visit);
            }
            _ => self.view.carriers(spread.vid).for_each(&mut visit),
        }
        if R::ACTIVE && outputs == 0 {
            recorder.step(index, Step::Dropped(DropReason::NoMember));
        }
    }
}

/// The properties of a flooded or multicast frame that decide which members transmit it.
struct Spread<'a> {
    in_port: PortId,
    from_protected: bool,
    vid: u16,
    form: TagForm,
    /// Whether the destination is unknown, so that members with disabled flooding are excluded.
    unknown: bool,
    /// Ports of the group. The value is `None` if the frame is not restricted to the ports of a group.
    only: Option<&'a [PortId]>,
}

impl<'a> Spread<'a> {
    fn of(bridge: &'a Bridge, in_port: PortId, decision: &Decision) -> Option<Spread<'a>> {
        let (vid, form, unknown, only) = match *decision {
            Decision::Flood { vid, class, form, .. } => (vid, form, class == FloodClass::Unknown, None),
            Decision::Group { list, vid, form, .. } => (vid, form, false, Some(bridge.groups.ports(list))),
            Decision::Forward { .. } | Decision::Drop(_) => return None,
        };
        let from_protected = bridge.view.member(in_port).is_some_and(|member| member.protected);
        Some(Spread { in_port, from_protected, vid, form, unknown, only })
    }

    /// Returns the change of the outer tag for output on the port of this member, or the reason why the port is
    /// excluded.
    #[inline]
    fn to(&self, member: &Member) -> Result<TagChange, DropReason> {
        if member.port == self.in_port {
            return Err(DropReason::SamePort);
        }
        let tagged = member.egress(self.vid).ok_or(DropReason::NoMember)?;
        if self.only.is_some_and(|ports| ports.binary_search(&member.port).is_err()) {
            return Err(DropReason::NoMember);
        }
        if self.from_protected && member.protected {
            return Err(DropReason::ProtectedPort);
        }
        if self.unknown && !member.flood {
            return Err(DropReason::FloodDisabled);
        }
        Ok(self.form.change(self.vid, tagged))
    }
}

/// Classifies IGMP and MLD messages by type. Returns `None` for messages of other types, which are forwarded
/// as data (RFC 4541 section 2.1.1, item 5), and for all other frames.
///
/// Messages of an inner network (stacked tags) are data: their senders and listeners are hosts of the inner network.
/// The groups of the bridge are groups of the outer VLAN.
fn control(key: &FlowKey, layers: &Layers, form: TagForm) -> Option<Control> {
    if has_other_vlan(key, form) {
        return None;
    }
    if layers.l3().is_none() {
        // Hosts remove any number of priority tags. [`FlowKey::extract`] reads two tags.
        let has_third_tag = matches!(key.eth_type(), ethertype::VLAN | ethertype::SERVICE_VLAN);
        return has_third_tag.then_some(Control::Unreadable);
    }
    // No host sends IGMP or MLD in fragments. The second fragment of a message does not show the type.
    let is_readable = layers.l4().is_some() && !layers.is_fragment();
    // The flow key holds the type of the message in place of the source port.
    let message = u8::try_from(key.src_port()).ok();
    match (key.l3_kind(), key.proto()) {
        (L3Kind::Ipv4, ip_proto::IGMP) | (L3Kind::Ipv6, ip_proto::ICMPV6) if !is_readable => {
            Some(Control::Unreadable)
        }
        (L3Kind::Ipv4, ip_proto::IGMP) => match message? {
            igmp::QUERY => Some(Control::Query),
            igmp::REPORT_V1 | igmp::REPORT_V2 | igmp::LEAVE | igmp::REPORT_V3 => Some(Control::Report),
            _ => None,
        },
        (L3Kind::Ipv6, ip_proto::ICMPV6) => match message? {
            mld::QUERY => Some(Control::Query),
            mld::REPORT | mld::DONE | mld::REPORT_V2 => Some(Control::Report),
            _ => None,
        },
        // Parsing stopped at an extension header, and MLD may follow. A host accepts no MLD behind AH without a
        // security association, and fragments of OSPFv3 with AH are not MLD.
        (L3Kind::Ipv6, next_header) if is_extension(next_header) && next_header != ip_proto::AH => {
            Some(Control::Unreadable)
        }
        _ => None,
    }
}

/// Returns whether the frame carries a tag that names a VLAN, apart from the tag that assigned the frame to its VLAN.
/// Such a frame belongs to an inner network (stacked tags), and the hosts of the VLAN do not accept its content.
fn has_other_vlan(key: &FlowKey, form: TagForm) -> bool {
    let names_vlan = |tci: u16| tci & 0xfff != 0;
    let is_outer_other = match form {
        TagForm::Tagged | TagForm::Priority => false,
        TagForm::Untagged | TagForm::Opaque => names_vlan(key.outer_tci()),
    };
    is_outer_other || names_vlan(key.inner_tci())
}

fn is_all_pim_routers(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(v4) => v4.octets() == [224, 0, 0, 13],
        IpAddr::V6(v6) => v6.segments() == [0xff02, 0, 0, 0, 0, 0, 0, 0xd],
    }
}

/// Returns whether the bridge may restrict frames of a multicast group to its listeners. All other groups are flooded:
/// hosts need not send reports for groups in 224.0.0.0/24 (RFC 4541 section 2.1.2, item 2), and neighbour discovery
/// needs IPv6 groups of link-local or smaller scope (section 3).
pub(crate) fn is_prunable(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(v4) => v4.is_multicast() && v4.octets()[..3] != [224, 0, 0],
        IpAddr::V6(v6) => v6.is_multicast() && v6.octets()[1] & 0xf > 2,
    }
}
