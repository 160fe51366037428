//! Benchmark of the bridge's forwarding stage in nanoseconds per frame: `cargo bench -p switch`.
//!
//! Bursts of 256 frames arrive on four access ports. The keys are rewritten before each burst, outside the
//! measured time, so that they are in the first-level cache as the parser leaves them. The median burst of
//! each sample counts, which excludes bursts that are preempted on a shared machine. Throughput is in frames.

#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use packet::record::NoRecord;
use packet::{FlowKey, Layers, MacAddr, PortId, VlanId};
use switch::{Bridge, BridgeConfig, BridgePortConfig, Decision, Now, Scratch, VlanMode};
use sync::cpu;
use sync::mac_table::{Inserted, MacTable};

const BURST: usize = 256;
const PORTS: u64 = 4;

fn bridge(hosts: u64) -> Bridge {
    let vlan = VlanId::MIN;
    let ports = (0..4).map(|port| BridgePortConfig::new(PortId(port), VlanMode::Access(vlan))).collect();
    let mac_limit = u32::try_from(hosts * 2).unwrap_or(u32::MAX);
    let bridge = Bridge::new(&BridgeConfig { ports, mac_limit, ..BridgeConfig::default() }, 0x1234_5678);
    let mut worker = Worker::new();
    for host in 0..hosts {
        worker.keys[0] = key(host, host + 1);
        worker.forward(&bridge, 1);
    }
    assert_eq!(u64::from(bridge.tables().len()), hosts);
    bridge
}

fn mac(host: u64) -> MacAddr {
    MacAddr::from_u64(0x0200_0000_0000 | host)
}

/// Returns the flow key of a frame from host `from` to host `to`. Host `n` is on port `n % 4`.
fn key(from: u64, to: u64) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortId(u16::try_from(from % PORTS).unwrap_or(0)));
    key.set_eth_src(mac(from));
    key.set_eth_dst(mac(to));
    key
}

struct Worker {
    keys: [FlowKey; BURST],
    layers: [Layers; BURST],
    out: [Decision; BURST],
    scratch: Scratch,
    random: u64,
}

impl Worker {
    fn new() -> Worker {
        Worker {
            keys: [FlowKey::ZERO; BURST],
            layers: [Layers::default(); BURST],
            out: [Decision::default(); BURST],
            scratch: Scratch::new(),
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    fn next(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % below
    }

    /// Fills a burst with the keys of frames that arrive on one port. The sources are random hosts on this port, and
    /// the destinations are random hosts on other ports.
    fn fill(&mut self, hosts: u64) {
        let port = self.next(PORTS);
        for at in 0..BURST {
            let from = self.next(hosts) / PORTS * PORTS + port;
            let to = self.next(hosts / PORTS) * PORTS + (port + 1 + self.next(PORTS - 1)) % PORTS;
            self.keys[at] = key(from, to);
        }
    }

    fn forward(&mut self, bridge: &Bridge, frames: usize) {
        let now = Now::from_secs(100);
        let (keys, layers) = (&self.keys[..frames], &self.layers[..frames]);
        bridge.forward(keys, layers, now, &mut self.scratch, &mut self.out[..frames], &mut NoRecord);
    }
}

/// Runs `work` on each of `bursts` bursts, which are filled before the time measurement. Returns the median time of a
/// burst, multiplied by `bursts`.
fn median_burst(bursts: u64, worker: &mut Worker, hosts: u64, mut work: impl FnMut(&mut Worker)) -> Duration {
    let mut ticks: Vec<u64> = Vec::new();
    for _ in 0..bursts {
        worker.fill(hosts);
        let start = cpu::tsc();
        work(worker);
        ticks.push(cpu::tsc() - start);
    }
    let middle = ticks.len() / 2;
    let median = *ticks.select_nth_unstable(middle).1;
    Duration::from_secs(1).mul_f64(median as f64 * bursts as f64 / cpu::tsc_hz() as f64)
}

/// Measures the minimum work of a bridge, two look-ups per frame, as a reference for the machine's current
/// speed.
fn lookups_alone(c: &mut Criterion) {
    let mut group = group(c, "lookups alone");
    for hosts in [64, 100_000] {
        let table = MacTable::with_capacity(usize::try_from(hosts * 2).unwrap_or(0), 77);
        (0..hosts).for_each(|host| assert_eq!(table.insert(mac(host).as_u64(), 1, 100), Inserted::New));
        let mut worker = Worker::new();
        group.bench_function(format!("{hosts} hosts"), |b| {
            b.iter_custom(|bursts| {
                median_burst(bursts, &mut worker, hosts, |worker| {
                    let of = |key: &FlowKey| [key.eth_src().as_u64(), key.eth_dst().as_u64()];
                    let places = worker.keys.each_ref().map(|key| of(key).map(|key| table.prefetch(key)));
                    let found = |(key, places): (&FlowKey, &[_; 2])| {
                        let [src, dst] = of(key);
                        let hits = [table.lookup_at(places[0], src), table.lookup_at(places[1], dst)];
                        hits.into_iter().flatten().map(|hit| hit.value).sum::<u32>()
                    };
                    let sum: u32 = worker.keys.iter().zip(&places).map(found).sum();
                    assert_eq!(sum, 512);
                })
            });
        });
    }
    group.finish();
}

fn group<'c>(c: &'c mut Criterion, name: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Elements(BURST as u64)).sample_size(20);
    group.measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    group
}

fn forward(c: &mut Criterion) {
    let mut group = group(c, "forward");
    for hosts in [64, 4096, 100_000] {
        let bridge = bridge(hosts);
        let mut worker = Worker::new();
        group.bench_function(format!("{hosts} hosts"), |b| {
            b.iter_custom(|bursts| {
                let time = median_burst(bursts, &mut worker, hosts, |worker| worker.forward(&bridge, BURST));
                assert!(worker.out.iter().all(|out| matches!(out, Decision::Forward { .. })));
                time
            });
        });
    }
    group.finish();
}

criterion_group!(benches, lookups_alone, forward);
criterion_main!(benches);
