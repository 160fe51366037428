//! Packets for UDP and TCP services of a kernel, preceded by tags, options, extension headers and fragment headers with
//! which a sender may try to hide the contents from a filter. The kernel delivers most of these packets.

use std::net::{Ipv4Addr, Ipv6Addr};

pub const NEAR4: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);
pub const FAR4: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
pub const NEAR6: Ipv6Addr = Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, 2);
pub const FAR6: Ipv6Addr = Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, 1);

const UDP: u8 = 17;
const TCP: u8 = 6;

/// A generator of pseudo-random numbers (xorshift64*). Generators with equal seeds return equal sequences.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).unwrap() % bound
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// A UDP datagram or TCP SYN to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub v6: bool,
    pub tcp: bool,
    pub port: u16,
    /// Number of the segment. The payload contains the number, and the source port is derived from the number.
    pub number: u16,
}

fn sum(bytes: &[u8], first: u32) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])));
    let mut sum: u32 = words.fold(first, u32::wrapping_add);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

impl Segment {
    fn protocol(self) -> u8 {
        if self.tcp { TCP } else { UDP }
    }

    fn addresses(self) -> Vec<u8> {
        match self.v6 {
            true => [FAR6.octets(), NEAR6.octets()].concat(),
            false => [FAR4.octets(), NEAR4.octets()].concat(),
        }
    }

    /// Returns the transport header and the payload of a datagram or a SYN. `padding` is the number of bytes that are
    /// added to the payload of a datagram.
    fn transport(self, padding: usize) -> Vec<u8> {
        // Client ports, which do not include the ports of services.
        let from = 1024 + self.number % 60_000;
        let mut bytes = [from.to_be_bytes(), self.port.to_be_bytes()].concat();
        let at = if self.tcp {
            bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0x20, 0, 0, 0, 0, 0]);
            16
        } else {
            let length = u16::try_from(10 + padding).unwrap();
            bytes.extend(length.to_be_bytes());
            bytes.extend([0, 0]);
            bytes.extend(self.number.to_be_bytes());
            bytes.resize(10 + padding, 0);
            6
        };
        let pseudo = u32::try_from(bytes.len()).unwrap() + u32::from(self.protocol());
        let addresses = !sum(&self.addresses(), 0);
        let checksum = sum(&bytes, pseudo + u32::from(addresses));
        bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

/// Returns an IPv4 packet. `fragment` is the field of flags and offset.
fn packet4(segment: Segment, options: usize, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let header = 20 + 4 * options;
    let length = u16::try_from(header + payload.len()).unwrap();
    let mut packet = vec![0x40 | u8::try_from(header / 4).unwrap(), 0];
    packet.extend(length.to_be_bytes());
    packet.extend((segment.number | 1).to_be_bytes());
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, segment.protocol(), 0, 0]);
    packet.extend(segment.addresses());
    // Options "no operation".
    packet.resize(header, 1);
    let checksum = sum(&packet, 0);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(payload);
    packet
}

fn packet6(segment: Segment, next: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap();
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([next, 64]);
    packet.extend(segment.addresses());
    packet.extend(payload);
    packet
}

/// Returns a payload after IPv6 extension headers of these kinds, and the kind of the first header. `behind` is the
/// protocol of the payload.
fn chain(headers: &[(u8, usize)], behind: u8, payload: &[u8]) -> (u8, Vec<u8>) {
    let mut bytes = Vec::new();
    for (at, (kind, units)) in headers.iter().enumerate() {
        let next = headers.get(at + 1).map_or(behind, |(next, _)| *next);
        let mut header = vec![next, 0];
        match kind {
            // An atomic fragment header (RFC 6946).
            44 => header.extend([0; 6]),
            // A routing header of an unknown type with no segments left.
            43 => header.extend([253, 0, 0, 0, 0, 0]),
            // Options that receivers skip, and padding.
            _ => {
                header[1] = u8::try_from(*units).unwrap();
                let end = 8 + 8 * units;
                while header.len() + 7 < end {
                    let length = (end - header.len() - 2).min(255);
                    header.extend([0x1e, u8::try_from(length).unwrap()]);
                    header.resize(header.len() + length, 0);
                }
                let padding = end - header.len();
                if padding == 1 {
                    header.push(0);
                } else if padding > 1 {
                    header.extend([1, u8::try_from(padding - 2).unwrap()]);
                    header.resize(end, 0);
                }
            }
        }
        bytes.extend(header);
    }
    bytes.extend(payload);
    (headers.first().map_or(behind, |(kind, _)| *kind), bytes)
}

/// Returns an IPv6 fragment header followed by `piece`, a part of a packet.
fn fragment6(next: u8, offset: usize, more: bool, id: u16, piece: &[u8]) -> Vec<u8> {
    let field = u16::try_from(offset).unwrap() | u16::from(more);
    let [high, low] = field.to_be_bytes();
    let [first, second] = id.to_be_bytes();
    [&[next, 0, high, low, 0, 0, first, second], piece].concat()
}

/// Returns a frame to the service's host with these tags, all with VLAN ID 0.
pub fn framed(to: [u8; 6], tags: &[(u16, u16)], v6: bool, packet: &[u8], random: &mut Random) -> Vec<u8> {
    let mut frame = super::ethernet(to, tags, if v6 { 0x86dd } else { 0x0800 }, packet);
    while frame.len() < 60 {
        // The padding is not zero, so that it cannot be taken for a part of the packet.
        frame.push(random.byte());
    }
    frame
}

/// Returns a datagram or SYN after `tags` tags with VLAN ID 0 and `headers` destination options headers.
pub fn plain(to: [u8; 6], segment: Segment, tags: usize, headers: usize) -> Vec<u8> {
    let payload = segment.transport(0);
    let packet = if segment.v6 {
        let (next, bytes) = chain(&vec![(60, 0); headers], segment.protocol(), &payload);
        packet6(segment, next, &bytes)
    } else {
        packet4(segment, 0, 0, &payload)
    };
    framed(to, &vec![(0x8100, 0); tags], segment.v6, &packet, &mut Random(1))
}

/// Returns the frames of a segment as a sender may build them to hide its contents.
pub fn hidden(to: [u8; 6], segment: Segment, random: &mut Random) -> Vec<Vec<u8>> {
    let padding = if segment.tcp || random.one_in(3) { 0 } else { random.below(64) };
    let payload = segment.transport(padding);
    let packets =
        if segment.v6 { packets6(segment, &payload, random) } else { packets4(segment, &payload, random) };
    let tags: Vec<(u16, u16)> = match random.below(3) {
        0 => Vec::new(),
        // The priority may have any value.
        _ => (0..random.below(20))
            .map(|_| (random.pick(&[0x8100, 0x88a8]), random.pick(&[0, 0xe000, 0x1000])))
            .collect(),
    };
    packets.into_iter().map(|packet| framed(to, &tags, segment.v6, &packet, random)).collect()
}

fn packets4(segment: Segment, payload: &[u8], random: &mut Random) -> Vec<Vec<u8>> {
    let options = if random.one_in(2) { random.below(11) } else { 0 };
    let cut = 8 * (1 + random.below(3));
    if random.one_in(2) || cut >= payload.len() {
        return vec![packet4(segment, options, random.pick(&[0, 0x4000]), payload)];
    }
    let (first, rest) = payload.split_at(cut);
    let offset = u16::try_from(cut / 8).unwrap();
    let mut packets = vec![packet4(segment, options, 0x2000, first), packet4(segment, options, offset, rest)];
    if random.one_in(4) {
        // A second fragment with offset 0 has another destination port. A filter may read one of the two, and the
        // receiver the other.
        let mut other = first.to_vec();
        other[2..4].copy_from_slice(&9_u16.to_be_bytes());
        packets.insert(random.below(2), packet4(segment, options, 0x2000, &other));
    }
    if random.one_in(3) {
        packets.reverse();
    }
    packets
}

fn packets6(segment: Segment, payload: &[u8], random: &mut Random) -> Vec<Vec<u8>> {
    let headers = |random: &mut Random, most: usize| -> Vec<(u8, usize)> {
        let long = random.one_in(6);
        (0..random.below(most))
            .map(|_| {
                (random.pick(&[60, 60, 60, 43, 44]), if long { random.below(80) } else { random.below(3) })
            })
            .collect()
    };
    let mut before = headers(random, 10);
    if random.one_in(4) {
        before.insert(0, (0, random.below(3)));
    }
    if random.one_in(2) {
        let (next, bytes) = chain(&before, segment.protocol(), payload);
        return vec![packet6(segment, next, &bytes)];
    }
    // Extension headers may be before and after the fragment header.
    let behind = headers(random, 3);
    let (inner, whole) = chain(&behind, segment.protocol(), payload);
    let cut = 8 * (1 + random.below(whole.len() / 8));
    if cut >= whole.len() || whole.len() > 4000 {
        let (next, bytes) = chain(&before, inner, &whole);
        return vec![packet6(segment, next, &bytes)];
    }
    let (first, rest) = whole.split_at(cut);
    let piece = |offset, more, piece: &[u8]| {
        let fragment = fragment6(inner, offset, more, segment.number, piece);
        let (next, bytes) = chain(&before, 44, &fragment);
        packet6(segment, next, &bytes)
    };
    let mut packets = vec![piece(0, true, first), piece(cut, false, rest)];
    if random.one_in(4) {
        packets.insert(random.below(2), piece(0, true, &vec![0; cut]));
    }
    if random.one_in(3) {
        packets.reverse();
    }
    packets
}
