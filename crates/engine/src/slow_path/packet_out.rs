//! Processing of packet-outs in the slow path. Each round has a budget for packet-outs in addition to the
//! budget for upcalls.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use switch::flow::{DecidedPacket, Op, PacketOut, Pipeline, Translated, TranslationInput};

use super::SlowPath;
use super::teaching::Source;
use crate::clock::monotonic;
use crate::flows::{CacheCommand, Compiled, FlowBridge, UpcallPorts};
use crate::packet_outs::{Outgoing, Queued};

/// Maximum number of packet-outs that one round processes, for all bridges and sessions together. The number
/// equals the maximum number of upcalls of one port in a round.
const BUDGET: usize = super::TURN;
/// Time in nanoseconds after which a round processes no more packet-outs. The limit is needed because one
/// packet-out may match thousands of rules.
const BUDGET_NS: u64 = 1_000_000;
/// Number of unread messages in the ring to the first worker above which no packet-out is processed. The limit exists
/// because each packet-out in the ring holds a frame.
const QUEUED: usize = 256;

impl SlowPath {
    /// Processes packet-outs within the budget of a round. The bridges take turns, and the sessions of a
    /// bridge take turns. Returns whether any packet-out was processed.
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
                // If a control thread holds the tables for long, other bridges' packet-outs continue.
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

    /// Returns whether another packet-out can be processed. The slow path must not be stopping, and
    /// the ring to the first worker, which transmits packet-outs, must have space.
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
        let (packet, mut translated) = match out {
            Outgoing::Asked(packet) => {
                let Some(translated) = decide(&pipeline, &packet) else { return };
                (*packet, translated)
            }
            Outgoing::Decided(decided) => {
                let DecidedPacket { packet, translated } = *decided;
                (packet, translated)
            }
        };
        // A packet-out without an ingress port is counted at the bridge's first port.
        let ports = pipeline.ports();
        let from = ports.get(&packet.in_port).or_else(|| ports.values().next()).map(|port| port.id);
        let meters = self.meters_of(bridge, &translated.program.ops, &mut pipeline);
        let source = (bridge.tables.number(), Source::PacketOut);
        self.effects(&mut pipeline, source, &translated, &packet.frame, now);
        bridge.tables.unlock_for_packets(pipeline);
        if let Some(from) = from {
            let ports = UpcallPorts { ingress: from, port: from };
            self.prepare_tracking(bridge, ports, &mut translated);
        }
        let compiled = Compiled::new(translated.program, translated.dropped, meters);
        let Some(from) = from else { return };
        let needs_worker = |op: &Op| op.is_output() || matches!(op, Op::Track(_));
        if !compiled.program.ops.iter().any(needs_worker) {
            return;
        }
        let mut sent = match self.pool.alloc_copy(&packet.frame) {
            Ok(sent) => sent,
            Err(reason) => {
                // Counted like a packet-out that a worker drops: as a copy, and as dropped.
                let counters = self.counters.port(from);
                counters.copies.add(1);
                return counters.drop_n(reason, 1);
            }
        };
        sent.set_arrival(from);
        let answer = CacheCommand::Release {
            bridge: Arc::clone(bridge),
            port: from,
            packet: sent,
            key: None,
            compiled: Arc::new(compiled),
            connection: None,
        };
        self.answer(0, answer);
    }
}

/// Translates the actions of a packet-out into datapath actions, according to the bridge's current rules. Returns
/// `None` if the packet is not a valid frame.
fn decide(pipeline: &Pipeline, packet: &PacketOut) -> Option<Translated> {
    let flow = pipeline.read_packet_out(packet).ok()?;
    let asked = TranslationInput { flow: &flow, frame: Some(&packet.frame), trace: false };
    Some(match &packet.resumes {
        Some(left) => pipeline.resume(asked, left),
        None => pipeline.packet_out(asked, &packet.actions),
    })
}
