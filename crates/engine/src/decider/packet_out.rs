//! Packet-outs in the slow path: a budget of them in each round, beside the packets of unknown flows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use packet::{FlowKey, PortId};
use switch::flow::{Asked as Question, Beyond, Flow, PacketOut};

use super::Decider;
use crate::flows::{Answer, FlowBridge};
use crate::packet_outs::Queued;
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
                let Some(Queued { packet, reservation }) = bridge.tables.next_packet_out() else { continue };
                self.packet_out(bridge, *packet, now);
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

    fn packet_out(&mut self, bridge: &Arc<FlowBridge>, out: PacketOut, now: u64) {
        let mut key = FlowKey::ZERO;
        let Ok(layers) = FlowKey::extract(&out.frame, out.frame.len(), PortId(0), &mut key) else { return };
        let beyond = Beyond::extract(&out.frame, &key, &layers);
        let mut flow = Flow::new(&key, &beyond, out.in_port);
        for word in 0..flow.0.len() {
            flow.0[word] = flow.0[word] & !out.metadata.mask.0[word] | out.metadata.value.0[word];
        }
        let (fate, from, events) = {
            let mut pipeline = bridge.tables.lock_for_packets();
            let asked = Question { flow: &flow, frame: Some(&out.frame), trace: false };
            let fate = match &out.resumes {
                Some(left) => pipeline.resume(asked, left),
                None => pipeline.packet_out(asked, &out.actions),
            };
            let from = pipeline.ports().get(&out.in_port).map(|port| port.id);
            self.effects(&mut pipeline, &fate, &out.frame, now);
            (fate, from, pipeline.take_events())
        };
        bridge.tables.publish(events);
        let compiled = self.compile(bridge, &fate);
        // Counted at a port of the bridge, where none is named.
        let any = || bridge.tables.lock_for_packets().ports().values().next().map(|port| port.id);
        let Some(from) = from.or_else(any) else { return };
        if compiled.program.is_drop() {
            return;
        }
        let Ok(mut packet) = self.pool.alloc_copy(&out.frame) else { return };
        packet.set_arrival(from);
        let answer = Answer::Release {
            bridge: Arc::clone(bridge),
            port: from,
            packet,
            key: None,
            compiled: Arc::new(compiled),
        };
        self.answer(0, answer);
    }
}
