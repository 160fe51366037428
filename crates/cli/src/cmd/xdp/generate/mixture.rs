//! Frames of several lengths or over IPv6. The BPF program that generates frames
//! (`bpf/livegen.bpf.c`) cannot make such frames. This module builds the frames, and the generator
//! sends them repeatedly.
//!
//! The lengths follow each other in rounds. A round contains each length as often as its weight states. Rounds are
//! repeated until every flow has had each position of the round once. Each flow then has the same mixture of
//! lengths. The number of frames is the sum of the weights times the number of flows.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::MacAddr;
use packet::build::PacketBuilder;
use xdp::Error;
use xdp::live::{Protocol, Traffic, scattered};

use crate::args::Lengths;
use crate::failure::Failure;

/// Maximum number of stored frames (of a capture file, or of several lengths) that are sent repeatedly.
pub(super) const FRAMES_MAX: u32 = 1 << 16;

/// Minimum Ethernet frame length in bytes without the frame check sequence.
const SHORTEST: u16 = 60;
const LONGEST: u16 = 1514;

impl Lengths {
    /// Returns the frame length if the command line requests only one. Returns `None` for several lengths.
    pub fn one(&self) -> Option<u16> {
        match self {
            Lengths::Shortest => Some(SHORTEST),
            Lengths::Imix => None,
            Lengths::Listed(list) => match list[..] {
                [(length, _)] => Some(length),
                _ => None,
            },
        }
    }
}

/// Source and destination address of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ends {
    /// IPv4 source and destination address.
    V4(Ipv4Addr, Ipv4Addr),
    /// IPv6 source and destination address.
    V6(Ipv6Addr, Ipv6Addr),
}

impl Ends {
    /// Returns the given addresses as a pair. An absent address is replaced by the default address of the
    /// other address's family. If both are absent, the family is IPv4.
    ///
    /// # Errors
    /// Returns an error if the addresses belong to different families.
    pub fn new(source: Option<IpAddr>, destination: Option<IpAddr>) -> Result<Ends, Failure> {
        let (source4, destination4) = (Ipv4Addr::new(10, 0, 1, 2), Ipv4Addr::new(10, 0, 2, 2));
        let host6 = |network| Ipv6Addr::new(0x2001, 0xdb8, network, 0, 0, 0, 0, 2);
        match (source, destination) {
            (None, None) => Ok(Ends::V4(source4, destination4)),
            (Some(IpAddr::V4(source)), None) => Ok(Ends::V4(source, destination4)),
            (None, Some(IpAddr::V4(destination))) => Ok(Ends::V4(source4, destination)),
            (Some(IpAddr::V4(source)), Some(IpAddr::V4(destination))) => Ok(Ends::V4(source, destination)),
            (Some(IpAddr::V6(source)), None) => Ok(Ends::V6(source, host6(2))),
            (None, Some(IpAddr::V6(destination))) => Ok(Ends::V6(host6(1), destination)),
            (Some(IpAddr::V6(source)), Some(IpAddr::V6(destination))) => Ok(Ends::V6(source, destination)),
            (Some(source), Some(destination)) => {
                let object = format!("source {source} and destination {destination}");
                let fix = "give two IPv4 or two IPv6 addresses";
                Err(Failure::new(object, "one is IPv4, the other IPv6", fix))
            }
        }
    }
}

/// Description of generated frames of several lengths, or over IPv6.
#[derive(Debug)]
pub struct Mixture<'a> {
    /// Settings of the generator. The frame length and the addresses in the settings are not used here.
    pub traffic: &'a Traffic,
    /// Frame lengths in the order of the command line.
    pub lengths: &'a Lengths,
    /// Source and destination address of the first flow.
    pub ends: Ends,
}

impl Mixture<'_> {
    /// Builds all frames of the sequence that the generator sends repeatedly.
    ///
    /// # Errors
    /// [`Error::Generator`] if a value is out of range.
    pub fn frames(&self) -> Result<Vec<Vec<u8>>, Error> {
        let shares = self.shares()?;
        let frames = shares.iter().map(|(_, weight)| u64::from(*weight)).sum::<u64>();
        let frames = frames.saturating_mul(u64::from(self.traffic.flows));
        let wrong = Error::Generator {
            field: "number of frames (sum of weights, times flows)",
            value: frames,
            allowed: "give smaller weights or fewer flows, 65536 frames at most",
        };
        let count = u32::try_from(frames).ok().filter(|count| *count <= FRAMES_MAX).ok_or(wrong)?;
        let round = round(&shares);
        // After this many frames, round and flows both start from the beginning. The flow is then shifted by
        // one, so that each position of the round belongs to the next flow.
        let places = u32::try_from(round.len()).unwrap_or(u32::MAX);
        let together = count / common(places, self.traffic.flows);
        let flow = |number: u32| (number + number / together) % self.traffic.flows;
        let lengths = round.iter().cycle();
        Ok((0..count).zip(lengths).map(|(number, length)| self.frame(*length, flow(number))).collect())
    }

    /// Returns the total length in bytes of a frame's Ethernet, IP and transport headers.
    fn headers(&self) -> u16 {
        let tag = if self.traffic.vlan.is_some() { 4 } else { 0 };
        let network = if matches!(self.ends, Ends::V4(..)) { 20 } else { 40 };
        let transport = if self.traffic.protocol == Protocol::Tcp { 20 } else { 8 };
        14 + tag + network + transport
    }

    /// Returns the frame lengths with their weights, divided by the weights' greatest common divisor. Returns an
    /// error if a length is not allowed.
    fn shares(&self) -> Result<Vec<(u16, u32)>, Error> {
        let shortest = self.headers().max(SHORTEST);
        let mut shares = match self.lengths {
            Lengths::Shortest => vec![(shortest, 1)],
            Lengths::Imix => vec![(shortest, 7), (590, 4), (LONGEST, 1)],
            Lengths::Listed(shares) => shares.clone(),
        };
        for (length, _) in &shares {
            Traffic { length: *length, ..self.traffic.clone() }.check()?;
            if *length < shortest {
                return Err(Error::Generator {
                    field: "length",
                    value: u64::from(*length),
                    allowed: "over IPv6 give at least 62 bytes with UDP, 74 with TCP, and 4 more with a tag",
                });
            }
        }
        let by = shares.iter().fold(0, |by, (_, weight)| common(*weight, by)).max(1);
        shares.iter_mut().for_each(|(_, weight)| *weight /= by);
        Ok(shares)
    }

    /// Builds one frame. The frame equals the frame that the BPF program of the generator makes, except that all
    /// checksums are valid.
    fn frame(&self, length: u16, flow: u32) -> Vec<u8> {
        let traffic = self.traffic;
        let mac = |[a, b, rest @ ..]: [u8; 6], varies| {
            let flow = if varies { flow } else { 0 };
            let [c, d, e, f] = u32::from_be_bytes(rest).wrapping_add(flow).to_be_bytes();
            MacAddr([a, b, c, d, e, f])
        };
        let source = mac(traffic.source_mac, traffic.vary.source_mac);
        let destination = mac(traffic.destination_mac, traffic.vary.destination_mac);
        let link = PacketBuilder::eth(source, destination);
        let link = traffic.vlan.map_or(link, |vid| link.vlan(vid));
        let (from, to) = self.ports(flow);
        let payload = vec![0; usize::from(length.saturating_sub(self.headers()))];
        match (self.ends_of(flow), traffic.protocol) {
            (Ends::V4(a, b), Protocol::Udp) => link.ipv4(a, b).udp(from, to).payload(&payload).build(),
            (Ends::V4(a, b), Protocol::Tcp) => link.ipv4(a, b).tcp(from, to).payload(&payload).build(),
            (Ends::V6(a, b), Protocol::Udp) => link.ipv6(a, b).udp(from, to).payload(&payload).build(),
            (Ends::V6(a, b), Protocol::Tcp) => link.ipv6(a, b).tcp(from, to).payload(&payload).build(),
        }
    }

    /// Returns the source and destination port of a flow, computed as in `bpf/livegen.bpf.c`.
    fn ports(&self, flow: u32) -> (u16, u16) {
        let flow = if self.traffic.vary.ports { flow } else { 0 };
        let (low, high) = (u16::try_from(flow & 0x3fff), u16::try_from(flow >> 14));
        (1024 + low.unwrap_or(0), self.traffic.destination_port.wrapping_add(high.unwrap_or(0)))
    }

    /// Returns the source and destination address of a flow, computed as in `bpf/livegen.bpf.c`. If IPv6
    /// sources vary, the source addresses differ only in their second 32 bits, which are pseudo-random.
    fn ends_of(&self, flow: u32) -> Ends {
        let vary = self.traffic.vary;
        let further = if vary.destination { flow } else { 0 };
        match self.ends {
            Ends::V4(source, destination) => {
                let source = if vary.source { scattered(flow) } else { source };
                Ends::V4(source, Ipv4Addr::from_bits(destination.to_bits().wrapping_add(further)))
            }
            Ends::V6(source, destination) => {
                let anywhere = u128::from(scattered(flow).to_bits()) << 64;
                let kept = source.to_bits() & !(u128::from(u32::MAX) << 64);
                let source = if vary.source { Ipv6Addr::from_bits(kept | anywhere) } else { source };
                Ends::V6(source, Ipv6Addr::from_bits(destination.to_bits().wrapping_add(u128::from(further))))
            }
        }
    }
}

/// Returns the order of the frame lengths in one round. The number of occurrences of each length is its weight. The
/// lengths are evenly distributed: each position gets the length whose number of occurrences so far is furthest below
/// its share.
fn round(shares: &[(u16, u32)]) -> Vec<u16> {
    let places: i64 = shares.iter().map(|(_, weight)| i64::from(*weight)).sum();
    let mut behind = vec![0; shares.len()];
    let next = |_| {
        for (behind, (_, weight)) in behind.iter_mut().zip(shares) {
            *behind += i64::from(*weight);
        }
        // The first of equals is chosen.
        let (behind, (length, _)) = behind.iter_mut().zip(shares).min_by_key(|(behind, _)| -**behind)?;
        *behind -= places;
        Some(*length)
    };
    (0..places).map_while(next).collect()
}

/// Returns the greatest common divisor of two numbers (Euclid's algorithm).
fn common(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use packet::{FlowKey, PortId, checksum, ip_proto};
    use xdp::live::{Order, Vary};

    use super::*;

    const V4: Ends = Ends::V4(Ipv4Addr::new(10, 0, 1, 2), Ipv4Addr::new(10, 0, 2, 2));
    const V6: Ends = Ends::V6(
        Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2),
        Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2),
    );

    fn built(traffic: &Traffic, lengths: &Lengths, ends: Ends) -> Result<Vec<Vec<u8>>, Error> {
        Mixture { traffic, lengths, ends }.frames()
    }

    fn key(frame: &[u8]) -> FlowKey {
        let mut key = FlowKey::default();
        FlowKey::extract(frame, frame.len(), PortId(0), &mut key).unwrap();
        key
    }

    #[test]
    fn lengths_are_interleaved_evenly() {
        let round = round(&[(60, 7), (590, 4), (1514, 1)]);
        assert_eq!(round, [60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60]);
    }

    #[test]
    fn every_flow_has_the_whole_mixture() {
        for (lengths, flows, ends) in [
            (Lengths::Imix, 16, V4),
            (Lengths::Imix, 1, V6),
            (Lengths::Listed(vec![(100, 30), (200, 10), (300, 20)]), 4, V4),
            (Lengths::Listed(vec![(100, 1), (1514, 4)]), 8, V6),
        ] {
            let vary = Vary { ports: true, ..Vary::default() };
            let traffic = Traffic { flows, vary, ..Traffic::to(1) };
            let frames = built(&traffic, &lengths, ends).unwrap();
            let mut of_flow: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
            for frame in &frames {
                of_flow.entry(key(frame).src_port()).or_default().push(frame.len());
            }
            assert_eq!(of_flow.len(), usize::try_from(flows).unwrap());
            let expected = match &lengths {
                Lengths::Imix if ends == V4 => [vec![60; 7], vec![590; 4], vec![1514]].concat(),
                Lengths::Imix => [vec![62; 7], vec![590; 4], vec![1514]].concat(),
                Lengths::Listed(list) if list.len() == 3 => vec![100, 100, 100, 200, 300, 300],
                _ => vec![100, 1514, 1514, 1514, 1514],
            };
            for (flow, mut lengths) in of_flow {
                lengths.sort_unstable();
                assert_eq!(lengths, expected, "flow {flow}");
            }
            // The lengths repeat every round, whatever the flows are.
            let places = expected.len();
            assert!((places..frames.len()).all(|at| frames[at].len() == frames[at - places].len()));
        }
    }

    #[test]
    fn flows_differ_where_they_should_and_checksums_are_valid() {
        let all =
            Vary { ports: true, source_mac: true, destination_mac: true, destination: true, source: true };
        for (ends, protocol, vlan) in [
            (V4, Protocol::Udp, None),
            (V4, Protocol::Tcp, Some(7)),
            (V6, Protocol::Udp, Some(7)),
            (V6, Protocol::Tcp, None),
        ] {
            let traffic = Traffic { flows: 8, vary: all, protocol, vlan, ..Traffic::to(1) };
            let frames = built(&traffic, &Lengths::Listed(vec![(100, 1), (1001, 1)]), ends).unwrap();
            assert_eq!(frames.len(), 16);
            let keys: Vec<FlowKey> = frames.iter().map(|frame| key(frame)).collect();
            let distinct =
                |field: &dyn Fn(&FlowKey) -> String| keys.iter().map(field).collect::<BTreeSet<_>>().len();
            assert_eq!(distinct(&|key| key.eth_src().to_string()), 8);
            assert_eq!(distinct(&|key| key.eth_dst().to_string()), 8);
            assert_eq!(distinct(&|key| key.src_port().to_string()), 8);
            for key in &keys {
                assert_eq!(key.outer_vid().map(|vid| vid.get()), vlan);
                assert_eq!((key.dst_port(), key.ttl()), (9, 64));
            }
            let at = 14 + if vlan.is_some() { 4 } else { 0 };
            match ends {
                Ends::V4(..) => {
                    assert_eq!(distinct(&|key| key.ipv4_src().to_string()), 8);
                    assert_eq!(distinct(&|key| key.ipv4_dst().to_string()), 8);
                    assert!(frames.iter().all(|frame| checksum::ipv4_header(&frame[at..at + 20]) == 0));
                }
                Ends::V6(..) => {
                    assert_eq!(distinct(&|key| key.ipv6_src().to_string()), 8);
                    assert_eq!(distinct(&|key| key.ipv6_dst().to_string()), 8);
                    assert!(keys.iter().all(|key| key.ipv6_src().segments()[..2] == [0x2001, 0xdb8]));
                }
            }
            for (frame, key) in frames.iter().zip(&keys) {
                assert_eq!(l4_sum(&frame[at..], key), 0xffff, "{frame:02x?}");
            }
            // Without varying fields, all frames of one length are equal.
            let alike = Traffic { vary: Vary::default(), ..traffic };
            let frames = built(&alike, &Lengths::Listed(vec![(100, 1)]), ends).unwrap();
            assert_eq!(frames.iter().collect::<BTreeSet<_>>().len(), 1);
        }
    }

    /// Returns the one's complement sum of pseudo-header, transport header and payload for the Internet checksum,
    /// which is 0xffff for a valid packet.
    fn l4_sum(packet: &[u8], key: &FlowKey) -> u16 {
        let (header, pseudo): (usize, _) = if packet[0] >> 4 == 4 {
            let length = u16::try_from(packet.len() - 20).unwrap();
            (20, checksum::l4_pseudo_v4(key.ipv4_src(), key.ipv4_dst(), key.proto(), length))
        } else {
            let length = u32::try_from(packet.len() - 40).unwrap();
            (40, checksum::l4_pseudo_v6(key.ipv6_src(), key.ipv6_dst(), key.proto(), length))
        };
        assert!(matches!(key.proto(), ip_proto::TCP | ip_proto::UDP));
        checksum::fold(pseudo + checksum::sum(&packet[header..]))
    }

    #[test]
    fn the_shortest_frame_holds_its_headers() {
        let of = |ends, protocol, vlan| {
            let traffic = Traffic { protocol, vlan, ..Traffic::to(1) };
            built(&traffic, &Lengths::Shortest, ends).unwrap()[0].len()
        };
        assert_eq!(of(V4, Protocol::Tcp, Some(5)), 60);
        assert_eq!(of(V6, Protocol::Udp, None), 62);
        assert_eq!(of(V6, Protocol::Tcp, Some(5)), 78);
    }

    #[test]
    fn out_of_range_is_refused_by_name() {
        let good = Traffic::to(1);
        let refused = |traffic: &Traffic, lengths: Vec<(u16, u32)>, ends| {
            built(traffic, &Lengths::Listed(lengths), ends).unwrap_err().to_string()
        };
        assert!(refused(&good, vec![(60, 1)], V6).contains("length is 60; over IPv6 give at least 62"));
        assert!(refused(&good, vec![(100, 1), (1515, 1)], V4).contains("length is 1515"));
        let many = Traffic { flows: 8192, ..good.clone() };
        assert!(
            refused(&many, vec![(60, 7), (590, 4), (1514, 1)], V4).contains("is 98304; give smaller weights")
        );
        assert!(refused(&good, vec![(60, u32::MAX), (61, 1)], V4).contains("is 4294967296"));
        // The number of frames is limited after the weights are in lowest terms.
        assert_eq!(built(&good, &Lengths::Listed(vec![(60, 1 << 20), (61, 1 << 20)]), V4).unwrap().len(), 2);
        for traffic in [
            Traffic { flows: 3, ..good.clone() },
            Traffic { vlan: Some(4095), ..good.clone() },
            Traffic { order: Order::Random(0), ..good.clone() },
            Traffic { rate: Some(0), ..good },
        ] {
            assert!(built(&traffic, &Lengths::Imix, V6).is_err(), "{traffic:?}");
        }
    }

    #[test]
    fn both_ends_are_of_one_family() {
        let (four, six) = ("10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        assert_eq!(Ends::new(None, None).unwrap(), V4);
        assert!(matches!(Ends::new(Some(six), None), Ok(Ends::V6(..))));
        assert!(matches!(Ends::new(None, Some(four)), Ok(Ends::V4(..))));
        let refused = Ends::new(Some(four), Some(six)).unwrap_err().to_string();
        assert!(refused.contains("10.0.0.1") && refused.contains("2001:db8::1"), "{refused}");
    }
}
