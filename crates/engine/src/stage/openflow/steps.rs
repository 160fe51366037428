//! Executes the operations of a megaflow one by one, for actions that have no fast path.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use conn::nat::translate::Checksum;
use conn::track::CtState;
use packet::record::{Recorder, Step, TagChange};
use packet::{DropReason, FlowKey, L3Kind, PortId};
use port::{Flags, FrameMemory, Packet, offload};
use switch::flow::{ConnectionFields, Field, Flow, Frame, Op, SetBits, TrackStep, rewrite};

use super::normal::normal;
use crate::connections::{self, Passing, milliseconds};
use crate::flows::{Compiled, Departure, FlowBridge, Metered};
use crate::stage::flow_cache::Recirculated;
use crate::stage::output;
use crate::stage::path_context::Context;

/// The operations of a megaflow, and the bridge that executes their `NORMAL` actions.
pub(super) struct Steps<'a> {
    pub bridge: &'a Arc<FlowBridge>,
    pub compiled: &'a Compiled,
}

impl Steps<'_> {
    /// Executes the operations of the megaflow on a packet. Returns the packet if no operation has transmitted or
    /// dropped it.
    pub fn run<R: Recorder>(
        &self,
        packet: Packet,
        connection: ConnectionFields,
        context: &mut Context<'_, '_, R>,
    ) -> Option<Packet> {
        self.run_list(0..self.compiled.program.ops.len(), packet, connection, context)
    }

    /// Executes the operations of a list: of the whole program or of a clone. The function calls itself for a clone
    /// that other operations follow. Clones are nested at most [`switch::flow::MAX_CLONES`] deep.
    fn run_list<R: Recorder>(
        &self,
        list: Range<usize>,
        packet: Packet,
        connection: ConnectionFields,
        context: &mut Context<'_, '_, R>,
    ) -> Option<Packet> {
        let (mut at, mut end) = (list.start, list.end);
        let (mut packet, mut connection) = (packet, connection);
        while at < end {
            #[cfg(test)]
            tests::count_step();
            let departure = self.compiled.departures[at];
            match &self.compiled.program.ops[at] {
                op @ (Op::Output(_) | Op::Normal | Op::Recirculate(_)) => {
                    if departure == Departure::Last {
                        self.leave(op, packet, &connection, context);
                        return None;
                    }
                    if let Some(copy) = copy(&packet, context) {
                        self.leave(op, copy, &connection, context);
                    }
                }
                Op::Clone(n) => {
                    let body = at + 1..(at + 1 + usize::from(*n)).min(end);
                    if departure == Departure::Last {
                        // No later operation uses the packet.
                        (at, end) = (body.start, body.end);
                        continue;
                    }
                    at = body.end;
                    // The copy was transmitted or dropped by its operations, unless a meter stopped the copy or its
                    // operations ended first.
                    if departure == Departure::Copy
                        && let Some(copy) = copy(&packet, context)
                        && let Some(copy) = self.run_list(body.clone(), copy, connection, context)
                    {
                        let ops = &self.compiled.program.ops[body];
                        if ops.iter().any(|op| matches!(op, Op::Track(_))) {
                            // The copy was made for the connection tracker.
                            context.worker.pool.free(copy);
                            continue;
                        }
                        context.worker.drop(copy, context.port, self.compiled.dropped);
                    }
                    continue;
                }
                Op::Meter(id) => {
                    let verdict =
                        self.compiled.meter(*id).map(|meter| meter.pass(packet.len(), context.now.ns));
                    match verdict {
                        Some(Metered::Drops) if !R::DRY => {
                            context.recorder.step(0, Step::Dropped(DropReason::MeterDrop));
                            context.worker.drop(packet, context.port, DropReason::MeterDrop);
                            return None;
                        }
                        Some(Metered::Remarks(raise)) => {
                            remark(&mut packet, context.worker.pool.memory(), raise)
                        }
                        _ => {}
                    }
                }
                Op::Track(step) => connection = self.track(step, &mut packet, &connection, context),
                Op::ClearTrack => connection = ConnectionFields::default(),
                op => {
                    let memory = context.worker.pool.memory();
                    if let Err(reason) = rewrite(&mut Whole { packet: &mut packet, memory }, op) {
                        context.recorder.step(0, Step::Dropped(reason));
                        context.worker.drop(packet, context.port, reason);
                        return None;
                    }
                }
            }
            at += 1;
        }
        Some(packet)
    }

    fn leave<R: Recorder>(
        &self,
        op: &Op,
        packet: Packet,
        connection: &ConnectionFields,
        context: &mut Context<'_, '_, R>,
    ) {
        match op {
            Op::Output(out) => {
                context.recorder.step(0, Step::Output { port: *out, tag: TagChange::Keep });
                output::send(context, *out, packet);
            }
            Op::Recirculate(to) => context.worker.recirculated.push_back(Recirculated {
                bridge: Arc::clone(self.bridge),
                to: Arc::clone(to),
                packet,
                connection: *connection,
            }),
            _ => normal(self.bridge, context, packet),
        }
    }

    /// Sends a packet through the connection tracker. Returns its connection fields.
    fn track<R: Recorder>(
        &self,
        step: &TrackStep,
        packet: &mut Packet,
        connection: &ConnectionFields,
        context: &mut Context<'_, '_, R>,
    ) -> ConnectionFields {
        let memory = context.worker.pool.memory();
        let mut key = FlowKey::ZERO;
        let len = packet.len();
        let Ok(layers) = FlowKey::extract(packet.head(memory), len, PortId(0), &mut key) else {
            return ConnectionFields::default();
        };
        let is_ipv6 = key.l3_kind() == L3Kind::Ipv6;
        let Some(l3) = layers.l3().filter(|_| is_ipv6 || key.l3_kind() == L3Kind::Ipv4) else {
            return ConnectionFields::default();
        };
        offload::mark_bare_checksum(packet, memory, &layers, &key);
        let is_open = packet.flags().contains(Flags::PARTIAL_CHECKSUM);
        // The checksums were checked when the packet was tracked before. NAT and set-field actions keep them correct.
        let before = CtState(connection.state);
        let was_sound = before.has(CtState::TRACKED) && !before.has(CtState::INVALID);
        let is_whole = packet.segments() == 1;
        let whole = &mut context.worker.whole;
        if !is_whole {
            whole.resize(len, 0);
            packet.copy_to(memory, whole);
        }
        let ip = if is_whole { packet.head_mut(memory) } else { whole.as_mut_slice() };
        let ip = ip.get_mut(l3..).unwrap_or_default();
        let passing = Passing {
            is_sound: is_open || was_sound || connections::is_sound(ip, is_ipv6),
            ip,
            is_ipv6,
            checksum: if is_open { Checksum::Partial } else { Checksum::Complete },
            fields: *connection,
            now: milliseconds(context.now),
            is_dry: R::DRY,
        };
        let passed = self.bridge.connections.pass(passing, step);
        if !is_whole && step.nat.is_some() {
            // Only headers change, and they are in the first segment.
            let head = packet.head_mut(memory);
            if let Some(changed) = whole.get(..head.len()) {
                head.copy_from_slice(changed);
            }
        }
        passed
    }
}

/// Copies the packet. Counts a drop and returns `None` if the packet cannot be copied.
fn copy<R>(packet: &Packet, context: &mut Context<'_, '_, R>) -> Option<Packet> {
    let port = context.port;
    context.worker.counters.port(port).copies.add(1);
    let copied = output::copy(packet, context.worker);
    copied.map_err(|reason| context.worker.counters.port(port).drop_n(reason, 1)).ok()
}

/// Raises the drop precedence in the DSCP field of an IP packet by `raise` steps (RFC 2597).
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

/// Adapter that implements the [`Frame`] trait for a packet of the engine, which may span several frames.
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
