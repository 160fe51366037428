//! Scenario of one hypervisor host with many tenants. The traffic mix follows the proportions in the NSDI 2015 paper
//! about Open vSwitch, which were measured on a thousand hypervisors. A few virtual machines cause most of the traffic,
//! most connections are short, and some tenants have access lists of ports or of prefixes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use switch::flow::{Field, FlowMod, Instructions, Match, Mod, port};

use crate::bench::circuit::{Headers, Writes, circuit, scattered};
use crate::bench::figures::Figures;
use crate::bench::rules::{Switch, leads, mac_number, sends};
use crate::bench::{BenchError, Options};

const TENANTS: u32 = 64;
/// Number of virtual machines that a tenant has on each of the two sides.
const HOSTS: u32 = 8;
/// Number of connections that each side has open at a time.
const OPEN: usize = 256;
/// L4 destination ports that the tenants' access lists of ports accept.
const SERVICES: [u16; 8] = [22, 53, 80, 443, 3306, 5432, 6379, 8080];
/// Number of /24 prefixes that the tenants' access lists of prefixes accept.
const PREFIXES: u32 = 200;

/// Returns the host number of virtual machine `number` of a tenant on side `side` (0 or 1).
fn host(tenant: u32, side: u32, number: u32) -> u32 {
    (tenant * 2 + side) * HOSTS + number
}

/// Returns whether a tenant has an access list of ports. Every fourth tenant has such a list, and every eighth tenant
/// has an access list of prefixes.
fn has_ports(tenant: u32) -> bool {
    tenant % 4 == 1
}

fn has_prefixes(tenant: u32) -> bool {
    tenant % 8 == 2
}

/// Returns the address of external network number `number`. Access lists of prefixes accept these networks.
fn outside(number: u32) -> u32 {
    let random = scattered(u64::from(number)).to_le_bytes();
    u32::from_be_bytes([20 + random[0] % 150, random[1], random[2], 0])
}

/// Returns the rules of three tables. The first table determines the tenant of a packet, the second contains
/// the tenants' access lists, and the third selects the output port for the destination.
fn rules() -> Vec<Mod> {
    let mut rules = Vec::new();
    let of = |tenant: u32| Match::ANY.with(Field::Metadata, u128::from(tenant) + 1);
    for tenant in 0..TENANTS {
        for (side, number) in (0..2).flat_map(|side| (0..HOSTS).map(move |number| (side, number))) {
            let own = mac_number(host(tenant, side, number));
            let metadata = Some((u64::from(tenant) + 1, u64::MAX));
            let instructions = Instructions { metadata, goto: Some(1), ..Instructions::default() };
            let from = Match::ANY.with(Field::InPort, u128::from(side) + 1).with(Field::EthSrc, own);
            rules.push(Mod::Flow(Box::new(FlowMod::add(0, 10, from, instructions))));
            rules.push(sends(2, 10, of(tenant).with(Field::EthDst, own), side + 1));
        }
        let tcp = of(tenant).with(Field::EthType, 0x0800).with(Field::IpProto, 6);
        if has_ports(tenant) {
            for service in SERVICES {
                let (mut there, mut back) = (tcp, tcp);
                there.put(Field::TcpDst, u128::from(service), 0xffff);
                back.put(Field::TcpSrc, u128::from(service), 0xffff);
                rules.extend([leads(1, 20, there, 2), leads(1, 20, back, 2)]);
            }
            // The packets are sent back and not dropped, because the number of frames is fixed.
            rules.push(sends(1, 10, tcp, port::IN_PORT));
        } else if has_prefixes(tenant) {
            for number in 0..PREFIXES {
                let (mut there, mut back) = (tcp, tcp);
                let address = u128::from(outside(number));
                there.put(Field::Ipv4Dst, address, 0xffff_ff00);
                back.put(Field::Ipv4Src, address, 0xffff_ff00);
                rules.extend([leads(1, 20, there, 2), leads(1, 20, back, 2)]);
            }
            for field in [Field::Ipv4Src, Field::Ipv4Dst] {
                let mut inside = tcp;
                inside.put(field, 0x0a00_0000, 0xff00_0000);
                rules.push(leads(1, 5, inside, 2));
            }
        }
    }
    rules.push(leads(1, 1, Match::ANY, 2));
    rules
}

/// State of a connection for one of its sides: the headers of the side's packets and the number of packets still to
/// send.
#[derive(Clone, Copy)]
struct Connection {
    headers: Headers,
    left: u32,
}

/// Generator of the packets that one side sends, with the connections that this side has open.
struct Side {
    side: u32,
    state: u64,
    open: Vec<Connection>,
}

impl Side {
    fn new(side: u32) -> Side {
        let mut own = Side { side, state: u64::from(side) << 40, open: Vec::new() };
        own.open = (0..OPEN).map(|_| own.connection()).collect();
        own
    }

    fn random(&mut self) -> u64 {
        self.state += 1;
        scattered(self.state)
    }

    #[allow(clippy::cast_possible_truncation, reason = "a number below `end` fits")]
    fn below(&mut self, end: u32) -> u32 {
        (self.random() % u64::from(end)) as u32
    }

    /// Returns a random number less than `end`. Small numbers are more frequent, approximately by Zipf's law.
    fn ranked(&mut self, end: u32) -> u32 {
        let (first, second) = (self.below(end) + 1, self.below(end) + 1);
        let share = u64::from(first) * u64::from(second) / u64::from(end);
        u32::try_from(share).unwrap_or(0).min(end - 1)
    }

    /// Returns a random length for a connection, in packets. Half of the connections have up to 8 packets,
    /// and one in a thousand has thousands of packets (Pareto distribution with exponent 1.1).
    fn length(&mut self) -> u32 {
        let uniform = (self.random() >> 11) as f64 / (1_u64 << 53) as f64;
        let length = 4.0 / (1.0 - uniform).powf(1.0 / 1.1);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped before")]
        let length = length.clamp(4.0, 20_000.0) as u32;
        length
    }

    fn connection(&mut self) -> Connection {
        let tenant = self.ranked(TENANTS);
        let (from, to) = (self.below(HOSTS), self.below(HOSTS));
        let hosts = [host(tenant, self.side, from), host(tenant, 1 - self.side, to)];
        let inside = hosts.map(|host| 0x0a00_0001 + host);
        // A third of the connections are with external addresses, which are reached through a gateway. The gateway is
        // one of the hosts.
        let addresses = match self.below(6) {
            0 => [outside(self.ranked(PREFIXES)) + 1 + self.below(254), inside[1]],
            1 => [inside[0], outside(self.ranked(PREFIXES)) + 1 + self.below(254)],
            _ => inside,
        };
        let client = 32_768 + u16::try_from(self.below(28_000)).unwrap_or(0);
        // One in fifty connections tries an arbitrary port, which access lists reject in most cases.
        let services = u32::try_from(SERVICES.len()).unwrap_or(1);
        let service = match self.below(50) {
            0 => u16::try_from(self.below(65_536)).unwrap_or(0),
            _ => SERVICES[self.ranked(services) as usize],
        };
        let ports = if self.below(2) == 0 { [client, service] } else { [service, client] };
        Connection { headers: Headers { hosts, addresses, protocol: 6, ports }, left: self.length() }
    }

    fn write(&mut self, frame: &mut [u8]) {
        let at = self.below(u32::try_from(OPEN).unwrap_or(1)) as usize;
        let own = &mut self.open[at];
        own.headers.write(frame);
        own.left -= 1;
        if own.left == 0 {
            self.open[at] = self.connection();
        }
    }
}

/// Measures the hit rates of the flow caches for the traffic of one hypervisor host.
pub(super) fn production(name: &'static str, options: &Options) -> Result<Figures, BenchError> {
    let mut switch = Switch::new(name, 2, 200_000)?;
    switch.modify(&rules());
    let open = Arc::new(AtomicBool::new(true));
    let (mut a, mut b) = (Side::new(0), Side::new(1));
    let writers: [Writes; 2] = [Box::new(move |frame| a.write(frame)), Box::new(move |frame| b.write(frame))];
    let [a, b] = circuit(&mut switch.pool, 2048, writers, &open);
    switch.plug(0, Box::new(a));
    switch.plug(1, Box::new(b));
    let (begin, mut packets) = (Instant::now(), 0_usize);
    let mut quarter = None;
    while begin.elapsed() < Duration::from_secs_f64(options.seconds) {
        for _ in 0..16 {
            packets += switch.turn();
        }
        if quarter.is_none() && begin.elapsed().as_secs_f64() > options.seconds / 4.0 {
            quarter = Some((packets, switch.tables.upcalls()));
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let view = switch.worker.flows_view();
    let counters = view.counters;
    let all = (counters.exact + counters.wildcard + counters.misses) as f64;
    let (early, asked) = quarter.unwrap_or_default();
    if all == 0.0 || early == 0 {
        return Err(BenchError::Nothing(name));
    }
    let hits = (counters.exact + counters.wildcard) as f64;
    Ok(Figures::one(
        name,
        vec![
            ("hit_rate", hits / all),
            ("hit_rate_first_quarter", 1.0 - asked as f64 / early as f64),
            ("exact_hit_rate", counters.exact as f64 / all),
            ("tuples_per_packet", counters.probes as f64 / all),
            ("flows", view.flows as f64),
            ("masks", view.masks as f64),
            ("upcalls", switch.tables.upcalls() as f64),
            ("rules", switch.tables.lock().rule_count() as f64),
            ("mpps", packets as f64 / seconds / 1e6),
            ("packets", all),
            ("loss", switch.lost() as f64),
        ],
    ))
}
