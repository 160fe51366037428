//! Packet-outs in the slow path: a budget of them in each round, beside the packets of unknown flows.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use switch::flow::{Asked as Question, DecidedPacket, PacketOut, Pipeline, Translated};

use super::Decider;
use crate::flows::{Answer, Compiled, FlowBridge};
use crate::packet_outs::{Outgoing, Queued};
use crate::worker::monotonic;

/// Packet-outs that the slow path decides in one round, of all bridges and sessions together: as many as upcalls of one port.
const BUDGET: usize = super::TURN;
/// Nanoseconds after which the slow path ends a round of packet-outs early. A packet-out may go through thousands of rules.
const BUDGET_NS: u64 = 1_000_000;
/// Answers that the first worker may have before it when a packet-out is decided. Each packet-out in the ring holds a frame.
const QUEUED: usize = 256;

impl Decider {
    /// Decides packet-outs within the budget of a round: bridges take turns, and within a bridge its sessions. Returns whether any was
    /// decided.
    pub(super) fn packet_outs(&mut self, now: u64) -> bool {
        let mut bridges: Vec<Arc<FlowBridge>> =
            self.bridges().into_values().filter(|bridge| bridge.tables.has_packet_outs()).collect();
        if bridges.is_empty() {
            return false;
        }
        self.packet_out_rounds = self.packet_out_rounds.wrapping_add(1);
        let first = self.packet_out_rounds % bridges.len();
        bridges.rotate_left(first);
        let begin = monotonic().ns;
        let mut left = BUDGET;
        loop {
            let mut any = false;
            for bridge in &bridges {
                if left == 0 || !self.takes_packet_outs() || monotonic().ns - begin > BUDGET_NS {
                    return left < BUDGET;
                }
                // Where a control thread holds the tables for long, other bridges' packets go on.
                let Some(pipeline) = bridge.tables.lock_for_packets() else { continue };
                let Some(Queued { packet, reservation }) = bridge.tables.next_packet_out() else { continue };
                self.packet_out(bridge, pipeline, packet, now);
                drop(reservation);
                (left, any) = (left - 1, true);
            }
            if !any {
                return left < BUDGET;
            }
        }
    }

    /// Whether the slow path goes on and the first worker, which sends packet-outs, has room for one more.
    fn takes_packet_outs(&self) -> bool {
        !self.knobs.stop.load(Ordering::Acquire)
            && self.backlog[0].is_empty()
            && self.workers[0].answers.len() < QUEUED
    }

    fn packet_out(
        &mut self,
        bridge: &Arc<FlowBridge>,
        mut pipeline: MutexGuard<'_, Pipeline>,
        out: Outgoing,
        now: u64,
    ) {
        let (packet, fate) = match out {
            Outgoing::Asked(packet) => {
                let Some(fate) = decide(&pipeline, &packet) else { return };
                (*packet, fate)
            }
            Outgoing::Decided(decided) => {
                let DecidedPacket { packet, fate } = *decided;
                (packet, fate)
            }
        };
        // Counted at a port of the bridge, where none is named.
        let ports = pipeline.ports();
        let from = ports.get(&packet.in_port).or_else(|| ports.values().next()).map(|port| port.id);
        let meters = self.meters_of(bridge, &fate.program.ops, &mut pipeline);
        self.effects(&mut pipeline, &fate, &packet.frame, now);
        let events = pipeline.take_events();
        drop(pipeline);
        bridge.tables.publish(events);
        let compiled = Compiled::new(fate.program, fate.dropped, meters);
        let Some(from) = from else { return };
        if compiled.program.is_drop() {
            return;
        }
        let Ok(mut sent) = self.pool.alloc_copy(&packet.frame) else { return };
        sent.set_arrival(from);
        let answer = Answer::Release {
            bridge: Arc::clone(bridge),
            port: from,
            packet: sent,
            key: None,
            compiled: Arc::new(compiled),
        };
        self.answer(0, answer);
    }
}

/// What becomes of a packet as the rules are now; `None`: it is no frame.
fn decide(pipeline: &Pipeline, packet: &PacketOut) -> Option<Translated> {
    let flow = pipeline.read_packet_out(packet).ok()?;
    let asked = Question { flow: &flow, frame: Some(&packet.frame), trace: false };
    Some(match &packet.resumes {
        Some(left) => pipeline.resume(asked, left),
        None => pipeline.packet_out(asked, &packet.actions),
    })
}
