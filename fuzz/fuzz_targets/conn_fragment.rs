//! The reassembler of fragments, with IPv4 and IPv6 packets of any bytes.
//!
//! The input is a row of records: a byte of flags, the length of the start of a packet in one byte, and the start of
//! the packet. Zeros fill the packet to the length that its header states. The flags contain the share key, the time
//! since the last packet, and whether expired datagrams are removed.

#![no_main]

use conn::fragment::{Fragment, Options, Outcome, Reassembler, Returned, Sizes};
use conn::tuple::{Address, TupleHash};
use libfuzzer_sys::fuzz_target;
use packet::ipv4::Ipv4;
use packet::ipv6::Ipv6;

/// A reassembler, and the number of returns of each packet. The packets are numbers.
struct Tested<A> {
    reassembler: Reassembler<A, usize>,
    returns: Vec<u8>,
}

impl<A: Address> Tested<A> {
    fn new(options: Options) -> Tested<A> {
        let sizes = Sizes { datagrams: 6, fragments: 10, fragments_per_datagram: 4, refused: 2 };
        let options = Options { min_fragment: 400, ..options };
        Tested { reassembler: Reassembler::new(sizes, options, TupleHash::new()), returns: Vec::new() }
    }

    fn receive(&mut self, fragment: &Fragment<A>, flags: u8, now: u32) {
        let (reassembler, returns) = (&mut self.reassembler, &mut self.returns);
        let number = returns.len();
        returns.push(0);
        let mut count = |returned: Returned<usize>| returns[returned.packet] += 1;
        let outcome = reassembler.receive(fragment, number, u32::from(flags & 7), now, &mut count);
        if flags & 8 != 0 {
            reassembler.expire(now, 2, &mut count);
        }
        assert!(outcome == Outcome::Held || returns[number] == 1);
        self.check();
    }

    /// Checks that each packet has returned at most once, that the others are held, and that the limits are obeyed.
    fn check(&self) {
        let (reassembler, sizes) = (&self.reassembler, self.reassembler.sizes());
        assert!(self.returns.iter().all(|returns| *returns <= 1));
        let held = self.returns.iter().filter(|returns| **returns == 0).count();
        assert_eq!(reassembler.held() as usize, held);
        assert!(reassembler.held() <= sizes.fragments && reassembler.incomplete() <= sizes.datagrams);
        assert!(
            reassembler.refused_datagrams() <= sizes.refused
                && reassembler.incomplete() <= reassembler.held()
        );
        let counts = reassembler.counts();
        let left = counts.accepted - counts.completed - counts.expired - counts.purged - counts.discarded;
        assert_eq!(left, u64::from(reassembler.held()));
    }

    fn finish(mut self) {
        let (reassembler, returns) = (&mut self.reassembler, &mut self.returns);
        reassembler.flush(u32::MAX, |returned| returns[returned.packet] += 1);
        self.check();
        assert_eq!(self.reassembler.held(), 0);
    }
}

/// Returns the packet that begins with these bytes, filled with zeros to the length that its header states.
fn filled(start: &[u8]) -> Vec<u8> {
    let field = |at| match start.get(at..) {
        Some([a, b, ..]) => usize::from(u16::from_be_bytes([*a, *b])),
        _ => 0,
    };
    let len = match start.first().map(|byte| byte >> 4) {
        Some(4) => field(2),
        Some(6) => field(4) + 40,
        _ => 0,
    };
    let mut packet = start.to_vec();
    packet.resize(len.max(start.len()), 0);
    packet
}

fuzz_target!(|bytes: &[u8]| {
    let (mut four, mut six) = (Tested::new(Options::ipv4()), Tested::new(Options::ipv6()));
    let (mut now, mut rest) = (u32::MAX - 20_000, bytes);
    while let [flags, len, records @ ..] = rest {
        let (start, after) = records.split_at(records.len().min(usize::from(*len)));
        rest = after;
        now = now.wrapping_add(u32::from(flags >> 4) * 500);
        let packet = filled(start);
        if let Ok(packet) = Ipv4::parse(&packet)
            && let Some(fragment) = Fragment::of_ipv4(&packet, 0)
        {
            four.receive(&fragment, *flags, now);
        } else if let Ok(packet) = Ipv6::parse(&packet)
            && let Some(fragment) = Fragment::of_ipv6(&packet, 0)
        {
            six.receive(&fragment, *flags, now);
        }
    }
    four.finish();
    six.finish();
});
