//! Ingress stage with which a worker applies a filter to received packets.

use engine::{Arrivals, IngressStage, Verdicts};
use packet::DropReason;
use port::{Flags, FrameMemory, Packet};
use xdp::filter::{Frame, Judged, Look, Moment, WorkerFilter};

/// Ingress stage that applies a filter to the packets of a port.
#[derive(Debug)]
pub struct Stage(pub(super) WorkerFilter);

impl IngressStage for Stage {
    fn run(&self, arrivals: &mut Arrivals<'_>, verdicts: &mut Verdicts) {
        let memory = arrivals.memory;
        let look =
            Look { now: Moment(arrivals.now_ns), worker: arrivals.worker.index(), dry: arrivals.dry_run };
        for (packet, verdict) in arrivals.packets.iter().zip(verdicts) {
            let rest = |offset: usize, piece: &mut [u8]| copy_from(packet, memory, offset, piece);
            let is_uncut = packet.flags().contains(Flags::SEGMENT);
            let frame = Frame { head: packet.head(memory), length: packet.len(), is_uncut, rest: &rest };
            *verdict = match self.0.judge(&frame, look) {
                Judged::On => None,
                Judged::Drop(_) => Some(DropReason::FilterDropped),
                Judged::Limit(_) => Some(DropReason::FilterLimited),
            };
        }
    }
}

/// Copies a packet's bytes from `offset` on into `piece`, across all frames of the packet. Returns false if
/// the packet is too short.
fn copy_from(packet: &Packet, memory: &FrameMemory, offset: usize, piece: &mut [u8]) -> bool {
    let (mut skip, mut filled) = (offset, 0);
    for part in packet.parts(memory) {
        let here = part.get(skip..).unwrap_or_default();
        skip = skip.saturating_sub(part.len());
        for (to, from) in piece.iter_mut().skip(filled).zip(here) {
            *to = *from;
            filled += 1;
        }
        if filled == piece.len() {
            return true;
        }
    }
    false
}

impl Stage {
    /// Returns the name of the filter rule that would drop a frame. Changes no counter and no rate limit.
    pub fn ends_at(&self, frame: &[u8]) -> Option<&str> {
        let look = Look { now: Moment::now(), worker: 0, dry: true };
        let (Judged::Drop(rule) | Judged::Limit(rule)) = self.0.judge(&Frame::whole(frame), look) else {
            return None;
        };
        self.0.rules().get(rule).map(|rule| rule.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use engine::{Engine, EngineConfig, Function, PollMode, PortView};
    use packet::net::{RateUnit, SourceBits};
    use packet::{PortId, QueueId, WorkerId, spec};
    use port::ring::{self, RingQueue};
    use port::{Batch, Depot, FramePool, HugePages, MemoryConfig, Queue};
    use xdp::filter::{Action, Compiled, Match, Rate, Rule, RuleCounters, RuleSet, Tally};

    use super::*;

    fn memory() -> Arc<Depot> {
        let config = MemoryConfig { frames: 1024, frame_size: 2048, huge_pages: HugePages::Off };
        Depot::new(Arc::new(FrameMemory::new(config).unwrap()))
    }

    /// Returns a filter rule that matches UDP packets to the destination port `port`.
    fn rule(name: &str, port: u16, action: Action) -> Rule {
        let matches = Match { protocols: vec![17], destination_ports: vec![port..=port], ..Match::default() };
        Rule { name: name.to_owned(), priority: 0, matches, action, dry_run: false, expires: None }
    }

    /// Returns the number of frames that have arrived at `far`, the other end of a pair of ring queues.
    fn arrived(far: &mut RingQueue, pool: &mut FramePool) -> usize {
        let (mut batch, mut count) = (Batch::new(), 0);
        while far.receive(pool, &mut batch) > 0 {
            for packet in batch.drain(..) {
                pool.free(packet);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn what_comes_by_a_ring_is_dropped_limited_and_counted() {
        // The limit allows two packets of each source, and its bucket does not refill during the test.
        let rate = Rate { unit: RateUnit::Packets, amount: 1, per: Duration::from_secs(3600), burst: 2 };
        let each = Action::RateLimit { rate, per_source: Some(SourceBits { ipv4: 32, ipv6: 64 }) };
        let rules = vec![rule("telnet", 23, Action::Drop), rule("each", 53, each)];
        let compiled = Arc::new(Compiled::new(&RuleSet { rules, ..RuleSet::default() }).unwrap());
        let mut tally = Tally::default();
        let stage: Arc<dyn IngressStage> =
            Arc::new(Stage(WorkerFilter::new(&compiled, &mut tally, None).unwrap()));
        let depot = memory();
        let config = EngineConfig { mode: PollMode::Busy, ..EngineConfig::default() };
        let (engine, mut workers) = Engine::prepare(&config, Arc::clone(&depot)).unwrap();
        let (mut worker, mut pool) = (workers.pop().unwrap(), depot.pool());
        let mut far = Vec::new();
        for port in [PortId(0), PortId(1)] {
            let (near, end) = ring::pair(64);
            engine.add_queue(WorkerId(0), port, QueueId(0), Box::new(near)).unwrap();
            far.push(end);
            worker.round_with_commands();
            let mut view = PortView::new(Function::CrossConnect(PortId(1 - port.0)), WorkerId(0));
            view.own = (port == PortId(0)).then(|| Arc::clone(&stage));
            worker.while_offline(|| engine.update(move |all| all.set_port(port, Some(view))));
        }
        let mut batch = Batch::new();
        for (source, port) in [(1, 23), (1, 53), (1, 53), (1, 53), (2, 53), (2, 9)] {
            let frame = spec::parse(&format!("ip_src=192.0.2.{source},udp,dst_port={port}")).unwrap();
            batch.push(pool.alloc_copy(&frame).unwrap());
        }
        assert_eq!(far[0].transmit(&mut pool, &mut batch), 6);
        worker.round();
        assert_eq!(arrived(&mut far[1], &mut pool), 4);
        let drops = engine.port_totals(PortId(0)).drops;
        let of = |reason: DropReason| drops[reason.index()];
        assert_eq!((of(DropReason::FilterDropped), of(DropReason::FilterLimited)), (1, 1));
        let counted = |rule: RuleCounters| (rule.name, rule.packets, rule.acted);
        let counted: Vec<_> = tally.counters().into_iter().map(counted).collect();
        let wanted = [("(unreadable)", 0, 0), ("each", 4, 1), ("telnet", 1, 1)];
        assert_eq!(counted, wanted.map(|(name, packets, acted)| (name.to_owned(), packets, acted)));
        // The other direction has no filter.
        let frame = spec::parse("ip_src=192.0.2.1,udp,dst_port=23").unwrap();
        batch.push(pool.alloc_copy(&frame).unwrap());
        assert_eq!(far[1].transmit(&mut pool, &mut batch), 1);
        worker.round();
        assert_eq!(arrived(&mut far[0], &mut pool), 1);
    }

    #[test]
    fn bytes_are_found_over_all_frames_of_a_packet() {
        let mut pool = memory().pool();
        let bytes: Vec<u8> = (0..5_000_u16).map(|at| at.to_be_bytes()[1]).collect();
        let packet = pool.alloc_copy(&bytes).unwrap();
        assert!(packet.segments() > 1);
        let first = packet.head(pool.memory()).len();
        for offset in [0, first - 4, first, 2 * first - 1, 4_992] {
            let mut piece = [0; 8];
            assert!(copy_from(&packet, pool.memory(), offset, &mut piece), "{offset}");
            assert_eq!(piece, bytes[offset..offset + 8], "{offset}");
        }
        assert!(!copy_from(&packet, pool.memory(), 4_993, &mut [0; 8]));
        assert!(!copy_from(&packet, pool.memory(), 9_000, &mut [0; 8]));
        pool.free(packet);
    }
}
