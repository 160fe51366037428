//! Tuple space explosion attack (L. Csikor et al., "Tuple Space Explosion: A Denial-of-Service Attack Against a
//! Software Packet Classifier", CoNEXT 2019). The attack's packets differ from the rules of an access list in one bit
//! of the source address, of the source port and of the destination port, in all combinations of bit positions. Each
//! combination requires a megaflow mask of its own. A lookup that finds no megaflow probes all masks.
//!
//! Two identical switches with the same victims run in turns of 20 ms on one core, and only one of the switches is
//! attacked. The scenario compares the victims' packet rates of both switches. Worker and slow path of a switch share
//! the core, so work of the slow path for the attacker reduces the victims' rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use packet::{PortId, QueueId, WorkerId};
use port::{Batch, Capabilities, Exported, FramePool, Queue, QueueStatus};
use switch::flow::{Field, Match, Mod};
use sync::cpu::{tsc, tsc_hz};

use crate::bench::circuit::{Headers, Writes, circuit, scattered};
use crate::bench::figures::{Figures, Row};
use crate::bench::generator::FRAME;
use crate::bench::rules::{Switch, drops, ip, leads, sends};
use crate::bench::{BenchError, Options};
use crate::engine::owned;

/// L4 destination port that the access list of the scenario accepts.
const SERVICE: u16 = 80;
const FRIEND: u32 = 0x0a00_0001;
const FRIENDS_PORT: u16 = 12_345;
/// Rate of the attack in packets per second. The rate is fifteen times the rate of the attack in the CoNEXT 2019 paper
/// (0.7 Mbit/s).
const RATE: u64 = 10_000;
/// Number of connections of the victims (the senders of legitimate traffic). There are more connections than entries in
/// the exact-match cache, so most packets are looked up with the megaflow masks.
const CONNECTIONS: u64 = 65_536;
const FRAMES: usize = 1024;
const TURN: Duration = Duration::from_millis(20);

fn rules() -> Vec<Mod> {
    let udp = ip().with(Field::IpProto, 17);
    let from = |port: u32| Match::ANY.with(Field::InPort, u128::from(port));
    vec![
        leads(0, 40, udp.with(Field::UdpDst, u128::from(SERVICE)), 1),
        leads(0, 30, ip().with(Field::Ipv4Src, u128::from(FRIEND)), 1),
        leads(0, 20, udp.with(Field::UdpSrc, u128::from(FRIENDS_PORT)), 1),
        drops(0, 0, Match::ANY),
        sends(1, 1, from(1), 2),
        sends(1, 1, from(2), 1),
        sends(1, 1, from(3), 2),
    ]
}

/// Returns the headers of attack packet number `number`. The source address and both L4 ports each
/// differ in one bit from the address and ports of the access list.
fn attacks(number: u64) -> Headers {
    let number = scattered(number).to_le_bytes();
    let [address, from, to] = [number[0] % 32, number[1] % 16, number[2] % 16];
    let addresses = [FRIEND ^ 1 << address, 0x0a00_0002];
    Headers { hosts: [9, 1], addresses, protocol: 17, ports: [FRIENDS_PORT ^ 1 << from, SERVICE ^ 1 << to] }
}

/// Returns a function that writes the packets of the victims (legitimate senders) on side `side` (0 or 1). All these
/// packets match the rule that accepts the destination port `SERVICE`.
fn victims(side: u32) -> Writes {
    let mut number = 0;
    Box::new(move |frame| {
        number += 1;
        let own = scattered(number % CONNECTIONS).to_le_bytes();
        let addresses = [0x0a01_0000 | u32::from(own[0]) << 8 | u32::from(own[1]), 0x0a00_0002];
        let ports = [32_768 + u16::from(own[2]) * 16, SERVICE];
        Headers { hosts: [1 + side, 2 - side], addresses, protocol: 17, ports }.write(frame);
    })
}

/// A queue that receives attack packets at the attack rate.
struct Attacker {
    next: u64,
    due: u64,
    sent: Arc<AtomicU64>,
}

impl Queue for Attacker {
    fn receive(&mut self, pool: &mut FramePool, out: &mut Batch) -> usize {
        let (now, before, every) = (tsc(), out.len(), tsc_hz() / RATE);
        // Packets that were due while the other switch had the core are not sent later.
        self.due = self.due.max(now.saturating_sub(32 * every));
        while self.due <= now && out.len() < 32 {
            let Some(mut packet) = pool.alloc() else { break };
            if !packet.set_len(pool.memory(), FRAME) {
                pool.free(packet);
                break;
            }
            attacks(self.next).write(packet.head_mut(pool.memory()));
            out.push(packet);
            self.next += 1;
            self.due += every;
        }
        let n = out.len() - before;
        self.sent.fetch_add(n as u64, Ordering::Relaxed);
        n
    }

    fn transmit(&mut self, pool: &mut FramePool, batch: &mut Batch) -> usize {
        let n = batch.len();
        batch.drain(..).for_each(|packet| pool.free(packet));
        n
    }

    fn kick(&mut self, _pool: &mut FramePool) {}

    fn has_pending(&mut self) -> bool {
        self.due <= tsc()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { max_segments: 1, max_frame: 1518, ..Capabilities::default() }
    }

    fn status(&self) -> QueueStatus {
        QueueStatus { kind: "generator", ..QueueStatus::default() }
    }

    fn close(self: Box<Self>, _pool: &mut FramePool) {}

    fn export(self: Box<Self>, pool: &mut FramePool) -> Exported {
        self.close(pool);
        Exported::Closed
    }
}

/// Creates a switch with the access list. The first two ports of the switch receive the victims' packets.
fn victim(name: &'static str) -> Result<Switch, BenchError> {
    let mut switch = Switch::new(name, 3, 200_000)?;
    switch.modify(&rules());
    let open = Arc::new(AtomicBool::new(true));
    let [a, b] = circuit(&mut switch.pool, FRAMES, [victims(0), victims(1)], &open);
    switch.plug(0, Box::new(a));
    switch.plug(1, Box::new(b));
    Ok(switch)
}

/// Returns two totals of a switch: the number of victim packets forwarded so far, and the number of megaflow masks that
/// lookups for all packets have probed.
fn counts(switch: &Switch) -> (u64, u64) {
    let sent = |port| switch.engine.port_totals(PortId(port)).tx_packets;
    (sent(0) + sent(1), switch.worker.flows_view().counters.probes)
}

/// Runs the switch for one turn (`TURN`). Returns the turn's duration in seconds, the number of victim packets
/// forwarded, and the number of megaflow masks probed.
fn turn(switch: &mut Switch) -> (f64, u64, u64) {
    let (begin, before) = (Instant::now(), counts(switch));
    while begin.elapsed() < TURN {
        for _ in 0..16 {
            switch.turn();
        }
    }
    let (seconds, after) = (begin.elapsed().as_secs_f64(), counts(switch));
    (seconds, after.0 - before.0, after.1 - before.1)
}

fn attacked(name: &'static str, row: &'static str, port: u16, options: &Options) -> Result<Row, BenchError> {
    let (mut quiet, mut victim) = (victim(name)?, victim(name)?);
    let sent = Arc::new(AtomicU64::new(0));
    let attacker = Attacker { next: 0, due: tsc(), sent: Arc::clone(&sent) };
    victim.worker.add(owned(WorkerId(0), PortId(port), QueueId(1), Box::new(attacker)));
    let slow_path = victim.slow_path.as_ref().map(crate::SlowPath::view).ok_or(BenchError::Nothing(name))?;
    let begin = Instant::now();
    // The warm-up lasts until the attack has reached its full effect.
    while begin.elapsed() < Duration::from_secs_f64(options.seconds / 4.0) {
        turn(&mut quiet);
        turn(&mut victim);
    }
    let (began, mut sums) = (Instant::now(), [(0.0, 0, 0); 2]);
    let before = sent.load(Ordering::Relaxed);
    while began.elapsed() < Duration::from_secs_f64(options.seconds) {
        for (switch, sum) in [&mut quiet, &mut victim].into_iter().zip(&mut sums) {
            let (seconds, packets, probes) = turn(switch);
            *sum = (sum.0 + seconds, sum.1 + packets, sum.2 + probes);
        }
    }
    let attack = sent.load(Ordering::Relaxed) - before;
    let [without, with] = sums;
    let mpps = |(seconds, packets, _): (f64, u64, u64)| packets as f64 / seconds / 1e6;
    if without.1 == 0 || with.1 == 0 || attack == 0 {
        return Err(BenchError::Nothing(name));
    }
    let view = victim.worker.flows_view();
    let figures = vec![
        ("rate_kept", mpps(with) / mpps(without)),
        ("mpps_quiet", mpps(without)),
        ("mpps_attacked", mpps(with)),
        ("attack_packets_per_second", attack as f64 / with.0),
        ("tuples_per_packet_quiet", without.2 as f64 / without.1 as f64),
        ("tuples_per_packet_attacked", with.2 as f64 / with.1 as f64),
        ("masks", view.masks as f64),
        ("flows", view.flows as f64),
        ("flows_narrowed", slow_path.narrowed.load(Ordering::Relaxed) as f64),
        ("upcalls", victim.tables.upcalls() as f64),
    ];
    Ok(Row { name: row, figures })
}

/// Measures the victims' packet rate during the attack in two cases: the attack packets arrive on a port of their own,
/// or on a port that victims also use.
pub(super) fn tuple_explosion(name: &'static str, options: &Options) -> Result<Figures, BenchError> {
    let rows = [("by a port of its own", 2), ("by the victims' port", 0)];
    let rows = rows.map(|(row, port)| attacked(name, row, port, options));
    Ok(Figures { scenario: name, rows: rows.into_iter().collect::<Result<_, _>>()? })
}
