//! Executes the operations of a megaflow one by one, for actions that have no fast path.

use std::sync::Arc;

use packet::record::{Recorder, Step, TagChange};
use packet::{DropReason, FlowKey, PortId};
use port::{Flags, FrameMemory, Packet};
use switch::Now;
use switch::flow::{Field, Flow, Frame, Op, SetBits, rewrite};

use super::normal::normal;
use crate::flows::{Compiled, FlowBridge, Metered};
use crate::stage::transmit::Egress;
use crate::stage::{WorkerContext, execute};
use crate::state::Forwarding;

/// Context that the execution of a megaflow's operations needs.
pub(super) struct Steps<'a> {
    pub forwarding: &'a Forwarding,
    pub port: PortId,
    pub bridge: &'a Arc<FlowBridge>,
    pub compiled: &'a Compiled,
    pub now: Now,
}

impl Steps<'_> {
    /// Executes operations on a packet. Returns the packet if no operation has transmitted or dropped it.
    pub fn run<R: Recorder>(
        &self,
        ops: &[Op],
        packet: Packet,
        egress: &mut Egress<'_>,
        context: &mut WorkerContext,
        recorder: &mut R,
    ) -> Option<Packet> {
        let last = last_leaving(ops);
        let mut packet = packet;
        let mut at = 0;
        while at < ops.len() {
            match &ops[at] {
                Op::Output(_) | Op::Normal => {
                    if Some(at) == last {
                        self.leave(&ops[at], packet, egress, context, recorder);
                        return None;
                    }
                    self.copy(&packet, context, |copy, context| {
                        self.leave(&ops[at], copy, egress, context, recorder)
                    });
                }
                Op::Clone(n) => {
                    let body = body(ops, at);
                    if Some(at) == last {
                        // No later operation uses the packet.
                        return self.run(body, packet, egress, context, recorder);
                    }
                    if last_leaving(body).is_some() {
                        self.copy(&packet, context, |copy, context| {
                            // The copy has left, unless a meter or the end of its operations stopped it.
                            if let Some(copy) = self.run(body, copy, egress, context, recorder) {
                                context.drop(copy, self.port, self.compiled.dropped);
                            }
                        });
                    }
                    at += usize::from(*n);
                }
                Op::Meter(id) => {
                    let verdict = self.compiled.meter(*id).map(|meter| meter.pass(packet.len(), self.now.ns));
                    match verdict {
                        Some(Metered::Drops) if !R::DRY => {
                            recorder.step(0, Step::Dropped(DropReason::MeterDrop));
                            context.drop(packet, self.port, DropReason::MeterDrop);
                            return None;
                        }
                        Some(Metered::Remarks(raise)) => remark(&mut packet, context.pool.memory(), raise),
                        _ => {}
                    }
                }
                op => {
                    let memory = context.pool.memory();
                    if let Err(reason) = rewrite(&mut Whole { packet: &mut packet, memory }, op) {
                        recorder.step(0, Step::Dropped(reason));
                        context.drop(packet, self.port, reason);
                        return None;
                    }
                }
            }
            at += 1;
        }
        Some(packet)
    }

    /// Copies the packet and calls `does` with the copy. Does nothing if the packet cannot be copied.
    fn copy(
        &self,
        packet: &Packet,
        context: &mut WorkerContext,
        does: impl FnOnce(Packet, &mut WorkerContext),
    ) {
        context.counters.port(self.port).copies.add(1);
        match execute::copy(packet, context) {
            Ok(copy) => does(copy, context),
            Err(reason) => context.counters.port(self.port).drop_n(reason, 1),
        }
    }

    fn leave<R: Recorder>(
        &self,
        op: &Op,
        packet: Packet,
        egress: &mut Egress<'_>,
        context: &mut WorkerContext,
        recorder: &mut R,
    ) {
        if let Op::Output(out) = op {
            recorder.step(0, Step::Output { port: *out, tag: TagChange::Keep });
            execute::send(self.forwarding, self.port, *out, packet, egress, context, recorder);
        } else {
            normal(self.forwarding, self.port, self.bridge, packet, self.now, egress, context, recorder);
        }
    }
}

/// Returns the operations that the `Clone` operation at index `at` applies to its copy.
fn body(ops: &[Op], at: usize) -> &[Op] {
    match ops.get(at) {
        Some(Op::Clone(n)) => &ops[at + 1..(at + 1 + usize::from(*n)).min(ops.len())],
        _ => &[],
    }
}

/// Returns the index of the last operation that outputs the packet or a copy of it. Returns `None` if there
/// is no such operation.
fn last_leaving(ops: &[Op]) -> Option<usize> {
    let (mut at, mut last) = (0, None);
    while at < ops.len() {
        match &ops[at] {
            Op::Output(_) | Op::Normal => last = Some(at),
            Op::Clone(n) => {
                if last_leaving(body(ops, at)).is_some() {
                    last = Some(at);
                }
                at += usize::from(*n);
            }
            _ => {}
        }
        at += 1;
    }
    last
}

/// Raises the drop precedence in the DSCP of an IP packet by `raise` (RFC 2597).
fn remark(packet: &mut Packet, memory: &FrameMemory, raise: u8) {
    let mut key = FlowKey::ZERO;
    let len = packet.len();
    if FlowKey::extract(packet.head(memory), len, PortId(0), &mut key).is_err() {
        return;
    }
    let dscp = key.tos() >> 2;
    // Assured forwarding has classes 1 to 4 and drop precedences 1 to 3.
    let (class, precedence) = (dscp >> 3, dscp >> 1 & 3);
    if dscp & 1 != 0 || !(1..=4).contains(&class) || precedence == 0 {
        return;
    }
    let raised = class << 3 | (precedence + raise).min(3) << 1;
    let (mut value, mut mask) = (Flow::ZERO, Flow::ZERO);
    value.set(Field::IpDscp, u128::from(raised));
    mask.want(Field::IpDscp);
    let _ = rewrite(&mut Whole { packet, memory }, &Op::Set(Box::new(SetBits { value, mask })));
}

/// A packet of the engine, in the form of the [`Frame`] trait.
struct Whole<'a> {
    packet: &'a mut Packet,
    memory: &'a FrameMemory,
}

impl Frame for Whole<'_> {
    fn head(&mut self) -> &mut [u8] {
        self.packet.head_mut(self.memory)
    }

    fn total(&self) -> usize {
        self.packet.len()
    }

    fn prepend(&mut self, n: u16) -> bool {
        self.packet.prepend(n)
    }

    fn trim(&mut self, n: u16) -> bool {
        self.packet.trim_front(n)
    }

    fn is_open(&self) -> bool {
        self.packet.flags().contains(Flags::PARTIAL_CHECKSUM)
    }
}
