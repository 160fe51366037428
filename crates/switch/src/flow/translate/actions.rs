//! Execution of individual actions during a translation.

use super::{Action, Field, Flow, MAX_STACK, Op, Origin, Reason, Run, TCI, ToController, Trace, port};
use crate::flow::numbers::{eth_type, reason};
use crate::flow::{Instructions, Prerequisite, SubField};
use packet::{FlowKey, PortId, ethertype};

const TAG: u128 = 0x1000;
use crate::flow::{BEYOND_WORDS, CONNECTION_WORDS, PBB_TAG, STAGES};

/// Words of a flow that hold L3 and L4 fields. Pushing an MPLS label hides these fields, and popping the last label
/// reveals them.
const L3: std::ops::Range<usize> = STAGES[1]..CONNECTION_WORDS.start;
/// Words of a flow that hold MPLS labels and the 802.1ah service tag.
const LABELS: std::ops::Range<usize> = BEYOND_WORDS[0]..STAGES[1];
/// Index of the first bit of the outer MPLS label in a flow.
const LABEL: usize = Field::MplsLabel.octet() * 8;

/// Returns the OpenFlow port number in a subfield. A 16-bit value is an OpenFlow 1.0 port number. Reserved OpenFlow 1.0
/// port numbers from 0xfff8 on are converted to 32 bits.
pub(super) fn port_of(value: u128, part: &SubField) -> u128 {
    if part.bits <= 16 && value >= 0xfff8 { value | 0xffff_0000 } else { value }
}

/// Returns the TTL of the IP header after the MPLS label of a frame with one label. Returns `None` if there is no such
/// header.
fn ttl_behind_label(frame: &[u8]) -> Option<u8> {
    let mut key = FlowKey::ZERO;
    let layers = FlowKey::extract(frame, frame.len(), PortId(0), &mut key).ok()?;
    let ip = frame.get(layers.l2_len() + 4..)?;
    let place = if *ip.first()? >> 4 == 6 { 7 } else { 8 };
    ip.get(place).copied()
}

impl<'p> Run<'p> {
    /// Executes a list of actions in order.
    pub(super) fn list(&mut self, actions: &[Action]) {
        for (place, action) in actions.iter().enumerate() {
            if self.stopped || self.exits || self.ends || !self.works() {
                return;
            }
            if self.asked.trace {
                let did = Box::new(action.clone());
                let before = self.doing.replace(did.clone());
                self.tell(Trace::Did { depth: self.depth, action: did });
                self.act(action);
                self.doing = before;
            } else {
                self.act(action);
            }
            if self.waits.is_some() {
                if self.is_recording() {
                    self.leave(Instructions::apply(actions[place + 1..].to_vec()));
                }
                return;
            }
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Output { port, max_len } => self.output(*port, *max_len),
            Action::OutputReg { source, max_len } => self.output_reg(source, *max_len),
            Action::Controller { max_len, id, reason, userdata, pause, .. } => {
                self.controller(*max_len, *id, *reason, userdata, *pause)
            }
            Action::Enqueue { port, queue } => {
                let before = self.queue.replace(*queue);
                self.output(*port, 0);
                self.queue = before;
            }
            Action::SetQueue(queue) => self.queue = Some(*queue),
            Action::PopQueue => self.queue = None,
            Action::Note(_) | Action::Conjunction(_) => {}
            Action::Group(id) => self.group(*id),
            Action::Meter(id) => {
                self.commit();
                self.push(Op::Meter(*id));
            }
            Action::Set { field, value, mask, .. } => self.set(*field, *value, *mask),
            Action::Move { from, to } => {
                if self.meets(from.field.prerequisite()) && self.meets(to.field.prerequisite()) {
                    let value = self.part(from);
                    self.put(to, value);
                }
            }
            Action::Push(part) => self.push_on_stack(part),
            Action::Pop(part) => match self.stack.pop() {
                Some((value, _)) => self.put(part, value),
                None => self.note("the stack is empty"),
            },
            Action::PushVlan(tpid) => self.push_vlan(*tpid),
            Action::PopVlan => self.pop_vlan(),
            Action::SetVlanVid(vid) => self.set_vlan(Field::VlanVid, u128::from(*vid) | TAG, TAG | 0xfff),
            Action::SetVlanPcp(pcp) => self.set_vlan(Field::VlanPcp, u128::from(*pcp), 7),
            Action::PushMpls(eth_type) => self.push_mpls(*eth_type),
            Action::PopMpls(eth_type) => {
                if self.meets(Prerequisite::Mpls) {
                    self.depend_on(Field::MplsBos);
                    self.commit();
                    self.push(Op::PopMpls(*eth_type));
                    self.opaque = true;
                }
            }
            Action::PushPbb(eth_type) => self.push_pbb(*eth_type),
            Action::PopPbb => {
                if self.meets(Prerequisite::Pbb) {
                    self.commit();
                    self.push(Op::PopPbb);
                    self.opaque = true;
                }
            }
            Action::SetMplsTtl(ttl) => self.set(Field::MplsTtl, u128::from(*ttl), 0xff),
            Action::DecMplsTtl => self.dec_ttl(Field::MplsTtl, &[0]),
            Action::SetTtl(ttl) => self.set(Field::NwTtl, u128::from(*ttl), 0xff),
            Action::DecTtl(controllers) => self.dec_ttl(Field::NwTtl, controllers),
            Action::CopyTtlOut | Action::CopyTtlIn => self.copy_ttl(matches!(action, Action::CopyTtlOut)),
            Action::Resubmit { port, table } => self.resubmit(*port, *table),
            Action::Learn(learn) => self.learn(learn),
            // For the copy, the pipeline ends here with its action set, as in Open vSwitch.
            Action::Clone(actions) => self.on_copy(|run| {
                run.list(actions);
                run.finish_action_set();
            }),
            Action::Multipath { fields, basis, mode, max_link, argument, to } => {
                if self.works_for(super::choose::work_of(*mode, usize::from(*max_link) + 1)) {
                    let hash = self.hash_fields(*fields, *basis);
                    let link = super::choose::multipath(*mode, hash, u32::from(*max_link) + 1, *argument);
                    self.put(to, u128::from(link));
                }
            }
            Action::Bundle { fields, basis, mode, ports, to } => {
                self.bundle(*fields, *basis, *mode, ports, to.as_ref())
            }
            Action::CheckPktLarger { len, to } => {
                // The length of a packet is not part of its key.
                self.out.is_own = true;
                let is_larger = self.asked.frame.is_some_and(|frame| frame.len() > usize::from(*len));
                self.put(to, u128::from(is_larger));
            }
            Action::FinTimeout { idle, hard } => {
                if self.meets(Prerequisite::Tcp) && self.ask(Field::TcpFlags) & 5 != 0 {
                    self.out.fin.extend(self.rule.map(|rule| (rule, *idle, *hard)));
                }
            }
            Action::Ct(ct) => self.ct(ct),
            Action::CtClear => self.ct_clear(),
            Action::Exit => self.exits = true,
        }
    }

    fn output_reg(&mut self, source: &SubField, max_len: u16) {
        let to = port_of(self.part(source), source);
        match u32::try_from(to) {
            Ok(to) => self.output(to, max_len),
            Err(_) => self.note("the field names no port"),
        }
    }

    fn controller(&mut self, max_len: u16, id: u16, reason: u8, userdata: &[u8], pauses: bool) {
        let reason = match reason {
            reason::NO_MATCH => Reason::NoMatch,
            reason::INVALID_TTL => Reason::InvalidTtl,
            reason::ACTION_SET => Reason::ActionSet,
            reason::GROUP => Reason::Group,
            reason::PACKET_OUT => Reason::PacketOut,
            _ => Reason::Action,
        };
        // A controller that resumes the packet needs all of it.
        let max_len = if pauses { u16::MAX } else { max_len };
        if self.send_to_controller(max_len, id, reason, userdata) && pauses {
            self.wait();
        } else if pauses {
            self.stopped = true;
        }
    }

    fn push_on_stack(&mut self, part: &SubField) {
        let value = self.part(part);
        if self.stack.len() < MAX_STACK {
            self.stack.push((value, part.bits));
        } else {
            self.note("the stack is full");
            self.stopped = true;
        }
    }

    /// Returns the value of a subfield, and adds its bits to the mask of the result.
    pub(super) fn part(&mut self, part: &SubField) -> u128 {
        self.see_through();
        let mut bits = Flow::ZERO;
        part.want(&mut bits);
        self.depend(&bits);
        part.get(&self.flow)
    }

    /// Sets a subfield of the packet.
    pub(super) fn put(&mut self, part: &SubField, value: u128) {
        self.set(part.field, value << part.first, part.mask());
    }

    fn set(&mut self, field: Field, value: u128, mask: u128) {
        if matches!(field, Field::VlanVid | Field::VlanTci) {
            let is_tagged = self.ask(Field::VlanTci) & TAG != 0;
            // Setting or clearing the "tag present" bit adds or removes a tag, as in Open vSwitch.
            match (is_tagged, mask & TAG != 0, value & TAG != 0) {
                (false, true, true) => self.push_vlan(ethertype::VLAN),
                (true, true, false) => return self.pop_vlan(),
                (false, _, _) => return,
                (true, _, _) => {}
            }
        }
        if self.meets(field.prerequisite()) {
            self.write(field, value, mask);
        }
    }

    fn set_vlan(&mut self, field: Field, value: u128, mask: u128) {
        if self.ask(Field::VlanTci) & TAG == 0 {
            self.push_vlan(ethertype::VLAN);
        }
        self.write(field, value, mask);
    }

    fn push_vlan(&mut self, tpid: u16) {
        self.see_through();
        // The new tag is a copy of the outer one, if there is one (OpenFlow 1.3, 5.12).
        let outer = self.ask(Field::VlanTci) | TAG;
        let mut inner = Flow::ZERO;
        inner.set_bits((TCI + 2) * 8, 16, TAG);
        self.depend(&inner);
        if self.flow.bits((TCI + 2) * 8, 16) & TAG != 0 {
            self.note("the packet has two tags already, and takes no third");
            self.stopped = true;
            return;
        }
        self.commit();
        self.push(Op::PushVlan(tpid, u16::try_from(outer).unwrap_or_default()));
        let inner = self.flow.bits(TCI * 8, 16);
        let made = self.made.bits(TCI * 8, 16);
        self.flow.set_bits((TCI + 2) * 8, 16, inner);
        self.made.set_bits((TCI + 2) * 8, 16, made);
        self.flow.set_bits(TCI * 8, 16, outer);
        self.made.set_bits(TCI * 8, 16, u128::MAX);
        self.tags = [Origin::Made, self.tags[0]];
    }

    fn pop_vlan(&mut self) {
        if self.ask(Field::VlanTci) & TAG == 0 {
            return;
        }
        self.commit();
        self.push(Op::PopVlan);
        let (inner, made) = (self.flow.bits((TCI + 2) * 8, 16), self.made.bits((TCI + 2) * 8, 16));
        self.flow.set_bits(TCI * 8, 16, inner);
        self.made.set_bits(TCI * 8, 16, made);
        self.flow.set_bits((TCI + 2) * 8, 16, 0);
        self.made.set_bits((TCI + 2) * 8, 16, u128::MAX);
        self.tags = [self.tags[1], Origin::Made];
    }

    fn push_mpls(&mut self, eth_type: u16) {
        let entry = if self.meets(Prerequisite::Mpls) {
            let label = self.ask(Field::MplsLabel) << 12 | self.ask(Field::MplsTc) << 9;
            label | self.ask(Field::MplsTtl)
        } else if self.meets(Prerequisite::Ip) {
            // As in Open vSwitch: label 0 (2 for IPv6), the lowest three bits of the DSCP, bottom of stack,
            // and the packet's TTL, or 64 if that is zero.
            let label: u128 = if self.flow.get(Field::EthType) == eth_type::IPV6 { 2 } else { 0 };
            let ttl = match self.ask(Field::NwTtl) {
                0 => 64,
                ttl => ttl,
            };
            label << 12 | (self.ask(Field::IpDscp) & 7) << 9 | 1 << 8 | ttl
        } else {
            1 << 8 | 64
        };
        let is_labelled = matches!(self.flow.get(Field::EthType), eth_type::MPLS | eth_type::MPLS_MULTICAST);
        if is_labelled {
            self.depend_on(Field::MplsBos);
        }
        let below = self.flow.bits(LABEL, 32);
        self.commit();
        self.push(Op::PushMpls(eth_type, u32::try_from(entry).unwrap_or_default()));
        // Lower labels and all headers after them are hidden.
        self.flow.0[LABELS].fill(0);
        self.flow.0[L3].fill(0);
        self.flow.set(Field::IpProto, 0);
        self.flow.set(Field::IpFrag, 0);
        self.flow.set(Field::EthType, u128::from(eth_type));
        self.flow.set_bits(LABEL, 32, entry);
        if is_labelled {
            // The previous outer label is the second one now.
            self.flow.set_bits(LABEL + 32, 32, below);
        }
        self.made.0[LABELS.start..L3.end].fill(u64::MAX);
        for field in [Field::EthType, Field::IpProto, Field::IpFrag] {
            self.made.want(field);
        }
    }

    fn push_pbb(&mut self, eth_type: u16) {
        // The service identifier of an existing header is kept. Otherwise the tag carries only the priority
        // of the VLAN tag.
        let tag = if self.meets(Prerequisite::Pbb) {
            self.ask(Field::PbbIsid)
        } else {
            self.ask(Field::VlanTci) >> 13 << 29
        };
        self.commit();
        self.push(Op::PushPbb(eth_type, u32::try_from(tag).unwrap_or_default()));
        self.flow.set_bits(TCI * 8, 32, 0);
        self.made.set_bits(TCI * 8, 32, u128::MAX);
        self.tags = [Origin::Made; 2];
        self.flow.0[LABELS].fill(0);
        self.flow.0[L3].fill(0);
        self.flow.set(Field::IpProto, 0);
        self.flow.set(Field::IpFrag, 0);
        self.flow.set(Field::EthType, u128::from(eth_type));
        self.flow.set_bits(PBB_TAG * 8, 32, tag);
        self.made.0[LABELS.start..L3.end].fill(u64::MAX);
        for field in [Field::EthType, Field::IpProto, Field::IpFrag] {
            self.made.want(field);
        }
    }

    fn dec_ttl(&mut self, field: Field, controllers: &[u16]) {
        if !self.meets(field.prerequisite()) {
            return;
        }
        let ttl = self.ask(field);
        if ttl > 1 {
            return self.write(field, ttl - 1, 0xff);
        }
        for controller in controllers {
            // If one copy is refused, all later copies are refused too.
            if !self.works() || !self.send_to_controller(0xffff, *controller, Reason::InvalidTtl, &[]) {
                break;
            }
        }
        self.note("its TTL is spent");
        self.ends = true;
        self.action_set.clear();
    }

    fn copy_ttl(&mut self, out: bool) {
        if !self.meets(Prerequisite::Mpls) {
            return;
        }
        // First bit of the second label's TTL.
        let inner = LABEL + 32 + 24;
        let is_last = self.ask(Field::MplsBos) == 1;
        match (out, is_last) {
            (true, false) => {
                let mut bits = Flow::ZERO;
                bits.set_bits(inner, 8, 0xff);
                self.depend(&bits);
                let ttl = self.flow.bits(inner, 8);
                self.write(Field::MplsTtl, ttl, 0xff);
            }
            (false, false) => {
                let ttl = self.ask(Field::MplsTtl);
                self.flow.set_bits(inner, 8, ttl);
                self.made.set_bits(inner, 8, 0xff);
                self.dirty.set_bits(inner, 8, 0xff);
            }
            (true, true) => {
                // The IP header after the last label is not part of the key.
                self.out.is_own = true;
                self.commit();
                if let Some(ttl) = self.frame_now().and_then(ttl_behind_label) {
                    self.write(Field::MplsTtl, u128::from(ttl), 0xff);
                }
            }
            (false, true) => {
                let ttl = self.ask(Field::MplsTtl);
                self.commit();
                self.push(Op::CopyTtlIn(u8::try_from(ttl).unwrap_or_default()));
            }
        }
    }

    pub(super) fn resubmit(&mut self, port: Option<u32>, table: Option<u8>) {
        let to = table.unwrap_or(self.table);
        // A look-up in a later table cannot be a loop (as in Open vSwitch).
        let deepens = u32::from(to <= self.table);
        (self.depth, self.recursion) = (self.depth + 1, self.recursion + deepens);
        let port = port.filter(|port| *port != super::port::IN_PORT);
        self.table(to, port, true);
        (self.depth, self.recursion) = (self.depth - 1, self.recursion - deepens);
        self.ends = false;
    }

    pub(super) fn output(&mut self, to: u32, max_len: u16) {
        let in_port = u32::try_from(self.flow.get(Field::InPort)).unwrap_or(port::ANY);
        match to {
            port::IN_PORT => self.send(in_port),
            port::TABLE => {
                if self.from_controller {
                    self.table(0, None, false);
                    self.finish_action_set();
                }
            }
            // The bridge learns nothing from a packet-out with an ingress port that does not exist, and floods the
            // packet.
            port::NORMAL if self.from_controller && !self.pipeline.ports.contains_key(&in_port) => {
                self.output(port::FLOOD, 0);
            }
            port::NORMAL => {
                self.commit();
                self.name_queue();
                self.push(Op::Normal);
            }
            port::FLOOD | port::ALL => {
                let pipeline = self.pipeline;
                for (number, other) in &pipeline.ports {
                    if *number != in_port && other.forwards && (to == port::ALL || other.floods) {
                        self.send(*number);
                    }
                }
            }
            port::CONTROLLER => {
                let reason = if self.in_bucket {
                    Reason::Group
                } else if self.in_action_set {
                    Reason::ActionSet
                } else if self.from_controller {
                    Reason::PacketOut
                } else if self.is_miss {
                    Reason::MissRule
                } else {
                    Reason::Action
                };
                self.send_to_controller(max_len, 0, reason, &[]);
            }
            port::ANY | port::UNSET => {}
            to if to == in_port => {
                self.note("not back by the port of arrival, unless `in_port` is asked for")
            }
            to => self.send(to),
        }
    }

    fn send(&mut self, number: u32) {
        let Some(to) = self.pipeline.ports.get(&number) else {
            return self.note("there is no such port");
        };
        if !to.forwards {
            return self.note("the port takes no packets");
        }
        if !to.live {
            self.out.dropped = packet::DropReason::PortDown;
            return self.note("the port is down");
        }
        self.commit();
        self.name_queue();
        self.push(Op::Output(to.id));
    }

    /// Adds a copy of the packet for a controller to the result. Returns false if there are too many copies, or if
    /// computing the frame would exceed the work limit of the packet.
    pub(super) fn send_to_controller(
        &mut self,
        max_len: u16,
        controller: u16,
        reason: Reason,
        userdata: &[u8],
    ) -> bool {
        self.commit();
        if self.out.to_controller.len() >= super::MAX_TOLD {
            self.note("too many copies for controllers");
            return false;
        }
        let mut flow = self.flow;
        if flow.get(Field::ActsetOutput) == u128::from(port::UNSET) {
            flow.set(Field::ActsetOutput, 0);
        }
        let frame = self.frame_now().map(<[u8]>::to_vec);
        if frame.is_none() && self.asked.frame.is_some() {
            return false;
        }
        self.out.to_controller.push(ToController {
            reason,
            table: self.table,
            cookie: self.cookie,
            max_len,
            controller,
            userdata: userdata.to_vec(),
            flow,
            frame,
            continuation: None,
        });
        true
    }
}
