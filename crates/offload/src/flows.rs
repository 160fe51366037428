//! Offload of megaflows of OpenFlow bridges to the XDP hook. The module translates the cached actions of a megaflow to
//! a hook action, and manages the slot of the flow in the hook's flow table.

use std::io;

use packet::{FlowKey, PortId, ip_proto};
use switch::flow::{Field, Flow, Op, Program, SetBits};
use xdp::flows::{Bits, FlowAction, FlowCounts, FlowTable, FlowWriter, Refused};
use zerocopy::IntoBytes;

use crate::grace::Grace;

/// Range of octets in a flow key that contain the TCI of the outer VLAN tag.
const TCI: std::ops::Range<usize> = 4..6;
/// Range of octets in a flow key that contain the EtherType.
const ETH_TYPE: std::ops::Range<usize> = 20..22;
/// Index of the octet in a flow key that contains the IP protocol number.
const PROTO: usize = 22;
/// Bit in the first octet of the outer TCI that states that a VLAN tag is present.
const PRESENT: u8 = 0x10;

/// The megaflows in the hook's flow table. Only the slow path uses this value.
#[derive(Debug)]
pub struct FlowOffload {
    writer: FlowWriter,
    grace: Grace,
    /// Grace period in progress for new masks: the number of the grace period, and the number of masks that were
    /// written before the grace period began. After the grace period, flows can use these masks.
    masks: Option<(u64, u64)>,
}

impl FlowOffload {
    /// Creates the offload for a flow table and removes all flows from the table. The table must be new, or its
    /// previous writer must have waited for a grace period. `passed` is called after the end of each grace period.
    ///
    /// # Errors
    /// Returns an error if the thread that waits for grace periods cannot be started.
    pub fn new(table: &FlowTable, passed: impl Fn() + Send + 'static) -> io::Result<FlowOffload> {
        Ok(FlowOffload { writer: FlowWriter::new(table), grace: Grace::new(passed)?, masks: None })
    }

    /// Installs a flow in the hook. The flow applies to packets that are received on the ingress port of `key` and
    /// equal `key` in the bits of `mask`. Returns the slot of the flow. Returns `None` if the hook cannot execute the
    /// actions, its table is full, or the mask is new. A new mask becomes usable after a grace period. If a flow is
    /// refused although its ingress port uses less of the table than other ports do, flows of the other ports are
    /// displaced ([`FlowOffload::is_displaced`]).
    pub fn install(&mut self, key: &FlowKey, mask: &FlowKey, program: &Program) -> Option<u32> {
        let table = self.writer.table();
        let action = action(program, key, mask).filter(|_| table.is_served(key.in_port().0))?;
        if action.normal && !table.asks_stations(key.in_port().0) {
            return None;
        }
        if action.port.is_some_and(|out| table.reached(out).is_none()) {
            return None;
        }
        if let Some((_, written)) = self.masks.take_if(|(number, _)| self.grace.has_passed(*number)) {
            self.writer.settle(written);
        }
        match self.writer.insert(key.words(), mask.words(), &action) {
            Ok(slot) => Some(slot),
            Err(Refused::Soon) => {
                if self.masks.is_none() {
                    self.masks = Some((self.grace.begin(), self.writer.written()));
                }
                None
            }
            Err(Refused::Full | Refused::Masks) => None,
        }
    }

    /// Returns whether the flow in a slot must be removed in favour of a port that uses less of the table. See
    /// [`FlowWriter::is_displaced`].
    #[must_use]
    pub fn is_displaced(&self, slot: u32) -> bool {
        self.writer.is_displaced(slot)
    }

    /// Removes the flow in a slot. See [`FlowWriter::remove`].
    pub fn remove(&mut self, slot: u32) {
        self.writer.remove(slot);
    }

    /// Returns the packet count and the byte count of the flow in a slot since its installation, and the time of
    /// its last use.
    #[must_use]
    pub fn counts(&self, slot: u32) -> FlowCounts {
        self.writer.counts(slot)
    }

    /// Makes the slot of a removed flow available for reuse. The caller has waited for a grace period since the
    /// removal.
    pub fn release(&mut self, slot: u32) {
        self.writer.release(slot);
    }

    /// Begins a grace period, which ends when all XDP programs that run now have ended. Returns the number of the grace
    /// period.
    pub fn begin_grace(&mut self) -> u64 {
        self.grace.begin()
    }

    /// Returns whether the grace period with this number has ended.
    #[must_use]
    pub fn has_passed(&self, number: u64) -> bool {
        self.grace.has_passed(number)
    }
}

/// Returns the hook action that executes the actions in `program` for packets that equal `key` in the bits of
/// `mask`. Returns `None` if only workers can execute these actions.
#[must_use]
pub fn action(program: &Program, key: &FlowKey, mask: &FlowKey) -> Option<FlowAction> {
    if program.is_normal() {
        return Some(FlowAction { normal: true, ..FlowAction::default() });
    }
    let flow = Known { key: key.words().as_bytes(), mask: mask.words().as_bytes() };
    let mut made = Made { action: FlowAction::default(), tag: Tag::AsItCame, has_set_ip: false };
    for op in &program.ops {
        // The hook cannot execute operations after the output.
        if made.action.port.is_some() {
            return None;
        }
        match op {
            Op::Output(port) if *port == key.in_port() => return None,
            Op::Output(PortId(port)) => made.action.port = Some(*port),
            Op::Set(bits) => made.set(bits, &flow)?,
            Op::PushVlan(tpid, tci) => made.push(*tpid, *tci)?,
            Op::PopVlan => made.pop(&flow)?,
            Op::Queue(_) => {}
            Op::Normal
            | Op::PushMpls(..)
            | Op::PopMpls(_)
            | Op::CopyTtlIn(_)
            | Op::PushPbb(..)
            | Op::PopPbb
            | Op::Meter(_)
            | Op::Clone(_)
            | Op::Track(_)
            | Op::ClearTrack
            | Op::Recirculate(_) => return None,
        }
    }
    if made.has_set_ip && made.may_be_reserved() {
        return None;
    }
    // Changes to a packet that is dropped have no effect.
    Some(if made.action.port.is_some() { made.action } else { FlowAction::default() })
}

/// Fields that have a fixed value in all packets of a flow: the bits of `key` that `mask` contains.
struct Known<'a> {
    key: &'a [u8],
    mask: &'a [u8],
}

impl Known<'_> {
    fn has_tag(&self) -> bool {
        self.mask[TCI.start] & self.key[TCI.start] & PRESENT != 0
    }

    /// Returns the EtherType and the IP protocol number of the flow. Each value is `None` if the mask does not contain
    /// all bits of its field.
    fn is(&self) -> (Option<u16>, Option<u8>) {
        let eth_type = u16::from_be_bytes([self.key[ETH_TYPE.start], self.key[ETH_TYPE.start + 1]]);
        let is_known = self.mask[ETH_TYPE] == [0xff, 0xff];
        (is_known.then_some(eth_type), (self.mask[PROTO] == 0xff).then_some(self.key[PROTO]))
    }
}

/// Origin of the outermost VLAN tag of a packet during the translation of actions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    AsItCame,
    Gone,
    Ours,
}

/// The hook action for a flow, as far as the flow's actions have been translated.
struct Made {
    action: FlowAction,
    tag: Tag,
    /// Whether an action has already set IP addresses, L4 ports, TOS or TTL. A second such action would update the
    /// checksums twice.
    has_set_ip: bool,
}

impl Made {
    /// Returns whether an action may set the reserved VLAN identifier 4095 in a tag. The parser does not
    /// parse packets with this identifier.
    fn may_be_reserved(&self) -> bool {
        let Bits { value, mask } = self.action.tci;
        let (value, mask) = (u16::from_be_bytes(value), u16::from_be_bytes(mask));
        let all = |tci: u16| tci & 0xfff == 0xfff;
        mask & 0xfff != 0 && all(value | !mask) || self.action.push.is_some_and(|(_, tci)| all(tci))
    }

    fn pop(&mut self, flow: &Known<'_>) -> Option<()> {
        match self.tag {
            Tag::AsItCame if flow.has_tag() => (self.action.pop, self.tag) = (true, Tag::Gone),
            Tag::Ours => {
                // The tag that the program pushed is removed again.
                self.action.push = None;
                self.tag = if self.action.pop { Tag::Gone } else { Tag::AsItCame };
            }
            _ => return None,
        }
        Some(())
    }

    fn push(&mut self, tpid: u16, tci: u16) -> Option<()> {
        if self.tag == Tag::Ours {
            return None;
        }
        self.action.push = Some((tpid, tci & !packet::flow_key::TAG_PRESENT));
        self.tag = Tag::Ours;
        Some(())
    }

    /// Adds the values and the masks of a set-field action to the hook action. The hook action changes a packet in the
    /// same way as `switch::flow::rewrite`. Octet offsets are offsets in a [`Flow`]. Returns `None` if the hook cannot
    /// execute the action.
    fn set(&mut self, bits: &SetBits, flow: &Known<'_>) -> Option<()> {
        let (value, mask) = (bits.value.0.as_bytes(), bits.mask.0.as_bytes());
        let is_zero = |octets: std::ops::Range<usize>| mask[octets].iter().all(|octet| *octet == 0);
        // Fields that the hook cannot set: inner tag, EtherType, protocol or ARP operation, MPLS labels and
        // PBB tags, flow label, ND, ARP, TCP flags.
        let (src, dst, ports) =
            (Field::Ipv6Src.octets(16), Field::Ipv6Dst.octets(16), Field::TcpSrc.octets(4));
        let (tci, ethernet) = (Field::VlanTci.octets(2), Field::EthDst.octets(12));
        let (tos, ttl) = (Field::IpDscp.octets(1), Field::NwTtl.octets(1));
        let others =
            [tci.end..ethernet.start, ethernet.end..src.start, dst.end..ports.start, ports.end..tos.start];
        if !others.into_iter().all(is_zero) {
            return None;
        }
        merge(&mut self.action.ethernet, &value[ethernet.clone()], &mask[ethernet]);
        match self.tag {
            Tag::AsItCame => merge(&mut self.action.tci, &value[tci.clone()], &mask[tci]),
            Tag::Gone => {}
            Tag::Ours => {
                if let Some((_, pushed)) = &mut self.action.push {
                    let half = |octets: &[u8]| u16::from_be_bytes([octets[tci.start], octets[tci.start + 1]]);
                    let changed = half(mask) & !packet::flow_key::TAG_PRESENT;
                    *pushed = *pushed & !changed | half(value) & changed;
                }
            }
        }
        if is_zero(src.start..Flow::ZERO.0.len() * 8) {
            return Some(());
        }
        let (eth_type, proto) = flow.is();
        let is_v4 = match eth_type {
            Some(0x0800) => true,
            Some(0x86dd) => false,
            _ => return None,
        };
        let has_ports = !is_zero(ports.clone());
        let knows_ports = proto.is_some_and(|proto| [ip_proto::TCP, ip_proto::UDP].contains(&proto));
        let behind_v4 = [src.start + 4..src.end, dst.start + 4..dst.end];
        if self.has_set_ip || has_ports && !knows_ports || is_v4 && !behind_v4.into_iter().all(is_zero) {
            return None;
        }
        self.has_set_ip = true;
        merge(&mut self.action.source, &value[src.clone()], &mask[src]);
        merge(&mut self.action.destination, &value[dst.clone()], &mask[dst]);
        merge(&mut self.action.ports, &value[ports.clone()], &mask[ports]);
        merge(&mut self.action.tos, &value[tos.clone()], &mask[tos]);
        merge(&mut self.action.ttl, &value[ttl.clone()], &mask[ttl]);
        Some(())
    }
}

/// Adds the bits of a set-field action to the bits of earlier set-field actions. Where both set a bit, the later value
/// replaces the earlier value.
fn merge<const N: usize>(into: &mut Bits<N>, value: &[u8], mask: &[u8]) {
    let Bits { value: own, mask: own_mask } = into;
    for ((own, own_mask), (value, mask)) in own.iter_mut().zip(own_mask).zip(value.iter().zip(mask)) {
        *own = *own & !mask | value & mask;
        *own_mask |= mask;
    }
}
