//! Generates frames for both switches. The frames use few different addresses, ports and tags, so that rules often
//! match them. Some frames contain unusual or malformed parts. Equal seeds result in equal frames.

use std::net::{Ipv4Addr, Ipv6Addr};

use packet::checksum;

/// Number of ports of either switch, numbered from 1.
pub const PORTS: u8 = 4;
/// EtherType of the marker frames (fences) that end a batch (IEEE 802, local experiments).
pub const FENCE: u16 = 0x88b5;

/// A frame that is sent to both switches.
pub struct Frame {
    pub number: u32,
    pub port: u8,
    pub bytes: Vec<u8>,
    /// Description of the frame's special features.
    pub story: String,
}

/// Random number generator (`SplitMix64`), reproducible in every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
}

/// First octets of a mark. A mark contains the number of the input frame, and is repeated in the payload of the frame.
const MARK: [u8; 4] = *b"TvOv";

/// Returns the frame number in the mark of a frame, or `None` if the frame has no mark.
pub fn mark_of(frame: &[u8]) -> Option<u32> {
    frame.windows(12).find_map(|cell| {
        let number: [u8; 4] = cell[4..8].try_into().ok()?;
        let is_mark = cell[..4] == MARK && cell[8..] == number.map(|octet| !octet);
        is_mark.then(|| u32::from_be_bytes(number))
    })
}

fn marks(number: u32, count: usize) -> Vec<u8> {
    let number = number.to_be_bytes();
    [MARK, number, number.map(|octet| !octet)].concat().repeat(count)
}

pub struct Generator {
    pub random: Random,
    number: u32,
}

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator { random: Random(seed), number: 0 }
    }

    /// Returns a new frame number.
    pub fn number(&mut self) -> u32 {
        self.number += 1;
        self.number
    }

    /// Returns a marker frame (fence) for a port. A rule with the highest priority sends this frame back through its
    /// input port. The return of the frame shows that the switch has processed all earlier frames of the port.
    pub fn fence(&mut self, port: u8) -> Frame {
        let number = self.number();
        let mut bytes = vec![2, 0, 0, 0, 0, 0xf, 2, 0, 0, 0, 0, port];
        bytes.extend(FENCE.to_be_bytes());
        bytes.extend(marks(number, 4));
        Frame { number, port, bytes, story: "fence".into() }
    }

    /// Returns a broadcast frame from which both switches learn that the address `source` is on the port `port`.
    pub fn lesson(&mut self, source: [u8; 6], port: u8, vlan: Option<u16>) -> Frame {
        let number = self.number();
        let mut bytes = [[0xff; 6], source].concat();
        if let Some(vlan) = vlan {
            bytes.extend([[0x81, 0x00], vlan.to_be_bytes()].concat());
        }
        bytes.extend([0x12, 0x34]);
        bytes.extend(marks(number, 4));
        Frame { number, port, bytes, story: "lesson".into() }
    }

    /// Returns a random frame. If `settled` is set, all frames with the same source address enter on the same port.
    pub fn frame(&mut self, settled: bool) -> Frame {
        let number = self.number();
        let mut draft = Draft { random: &mut self.random, story: Vec::new() };
        let mut bytes = draft.addresses();
        let port = if settled { bytes[11] } else { 1 + draft.random.below(PORTS.into()) as u8 };
        let tags = draft.tags();
        bytes.extend(tags);
        let headers = bytes.len();
        let payload = marks(number, 3);
        let (eth_type, behind) = draft.network(payload);
        bytes.extend(eth_type.to_be_bytes());
        bytes.extend(behind);
        if draft.random.one_in(12) {
            // Mutations affect octets after the addresses and tags, and before the final marks.
            let end = bytes.len().saturating_sub(36);
            for _ in 0..=draft.random.below(3) {
                let at = headers + draft.random.below(end.saturating_sub(headers).max(1));
                let bit = 1 << draft.random.below(8);
                if let Some(octet) = bytes.get_mut(at) {
                    *octet ^= bit;
                    draft.story.push("mutated");
                }
            }
        }
        // Padding contains the number, too, so that rewritten headers do not hide it.
        bytes.extend(marks(number, 1));
        while bytes.len() < 60 {
            bytes.extend(marks(number, 1));
        }
        let story = draft.story.join(", ");
        Frame { number, port, bytes, story }
    }
}

struct Draft<'r> {
    random: &'r mut Random,
    story: Vec<&'static str>,
}

impl Draft<'_> {
    fn is(&mut self, one_in: usize, what: &'static str) -> bool {
        let is = self.random.one_in(one_in);
        if is {
            self.story.push(what);
        }
        is
    }

    fn addresses(&mut self) -> Vec<u8> {
        let last = 1 + self.random.below(4) as u8;
        let to = match self.random.below(10) {
            0 => [0xff; 6],
            1 => [0x01, 0, 0x5e, 0, 0, last],
            2 => [0x33, 0x33, 0, 0, 0, last],
            _ => [2, 0, 0, 0, 0, last],
        };
        let from = [2, 0, 0, 0, self.random.below(2) as u8, 1 + self.random.below(4) as u8];
        [to, from].concat()
    }

    fn tags(&mut self) -> Vec<u8> {
        let (count, outer) = match self.random.below(20) {
            0..10 => (0, 0),
            10..16 => (1, 0x8100),
            16 => (1, 0x88a8),
            17 => (2, 0x8100),
            18 => (2, 0x88a8),
            _ => (3, 0x8100),
        };
        self.story.push(["", "a tag", "two tags", "three tags"][count]);
        let mut tags = Vec::new();
        for place in 0..count {
            let tpid: u16 = if place == 0 { outer } else { 0x8100 };
            let vid = if self.is(40, "VLAN 4095") { 4095 } else { self.random.of(&[0_u16, 5, 5, 6, 100]) };
            let pcp = self.random.of(&[0_u16, 0, 3, 7]);
            let dei = u16::from(self.random.one_in(6));
            tags.extend(tpid.to_be_bytes());
            tags.extend((pcp << 13 | dei << 12 | vid).to_be_bytes());
        }
        tags
    }

    /// Returns a random EtherType, and the bytes that follow the EtherType in the frame.
    fn network(&mut self, payload: Vec<u8>) -> (u16, Vec<u8>) {
        match self.random.below(20) {
            0..8 => (0x0800, self.ipv4(payload)),
            8..14 => (0x86dd, self.ipv6(payload)),
            14 | 15 => self.arp(),
            16 | 17 => self.mpls(payload),
            18 => {
                self.story.push("another EtherType");
                (self.random.of(&[0x1234, 0x8899, 0x88cc, 0x0600, 0x88e5]), payload)
            }
            _ => {
                self.story.push("802.2");
                let snap = self.random.one_in(2);
                let kind = [0x08, 0x00];
                let head: &[u8] =
                    if snap { &[0xaa, 0xaa, 3, 0, 0, 0, kind[0], kind[1]] } else { &[0x42, 0x42, 3, 0, 0] };
                let behind = [head, &payload].concat();
                (behind.len() as u16, behind)
            }
        }
    }

    fn arp(&mut self) -> (u16, Vec<u8>) {
        self.story.push("ARP");
        let mut octets = vec![0, 1, 8, 0, 6, 4, 0, self.random.of(&[1, 2, 2, 1, 3, 9])];
        if self.is(12, "of another length") {
            octets[5] = 16;
        }
        if self.is(16, "of another hardware") {
            octets[1] = 6;
        }
        if self.is(20, "operation over 255") {
            octets[6] = 1;
        }
        let last = |random: &mut Random| 1 + random.below(4) as u8;
        octets.extend([2, 0, 0, 0, 0, last(self.random), 10, 0, 0, last(self.random)]);
        octets.extend([2, 0, 0, 0, 0, last(self.random), 10, 0, 1, last(self.random)]);
        (if self.is(8, "RARP") { 0x8035 } else { 0x0806 }, octets)
    }

    fn mpls(&mut self, payload: Vec<u8>) -> (u16, Vec<u8>) {
        self.story.push("MPLS");
        let mut octets = Vec::new();
        let count = 1 + self.random.of(&[0, 0, 1, 1, 2, 3]);
        for place in 0..count {
            let label = self.random.of(&[0_u32, 2, 16, 100, 0xf_ffff]);
            let class = self.random.below(8) as u32;
            let bottom = u32::from(place + 1 == count);
            let ttl = self.random.of(&[64_u32, 64, 255, 1, 0, 2]);
            octets.extend((label << 12 | class << 9 | bottom << 8 | ttl).to_be_bytes());
        }
        let inner = if self.random.one_in(3) { self.ipv6(payload) } else { self.ipv4(payload) };
        octets.extend(inner);
        (if self.is(8, "multicast label") { 0x8848 } else { 0x8847 }, octets)
    }

    fn ipv4(&mut self, payload: Vec<u8>) -> Vec<u8> {
        self.story.push("IPv4");
        let source = Ipv4Addr::new(10, 0, self.random.of(&[0, 0, 1, 7]), 1 + self.random.below(4) as u8);
        let target = Ipv4Addr::new(10, 0, self.random.of(&[1, 1, 0, 9]), 1 + self.random.below(4) as u8);
        let (protocol, mut upper) =
            self.upper(payload, |protocol, len| checksum::l4_pseudo_v4(source, target, protocol, len as u16));
        let options = if self.is(8, "options") { self.random.of(&[4_usize, 8, 40]) } else { 0 };
        let mut head = vec![0; 20 + options];
        head[20..].fill(1);
        head[0] = 0x40 | ((20 + options) / 4) as u8;
        head[1] = self.random.of(&[0, 0, 0x20, 0xb8, 1, 3, 0xff]);
        head[8] = self.random.of(&[64, 64, 64, 255, 2, 1, 0]);
        head[9] = protocol;
        head[12..16].copy_from_slice(&source.octets());
        head[16..20].copy_from_slice(&target.octets());
        let total = (head.len() + upper.len()) as u16;
        head[2..4].copy_from_slice(&total.to_be_bytes());
        let fragment: u16 = match self.random.below(12) {
            0 => 0x2000,
            1 => 0x2003,
            2 => 0x0007,
            3 => 0x4000,
            _ => 0,
        };
        if fragment & 0x3fff != 0 {
            self.story.push(if fragment & 0x1fff == 0 { "first fragment" } else { "later fragment" });
        }
        head[4..6].copy_from_slice(&[0x12, 0x34]);
        head[6..8].copy_from_slice(&fragment.to_be_bytes());
        match self.random.below(40) {
            0 => {
                self.story.push("shorter by its length");
                let shorter = total - 1 - self.random.below(usize::from(total) - 1) as u16;
                head[2..4].copy_from_slice(&shorter.to_be_bytes());
            }
            1 => {
                self.story.push("longer by its length");
                head[2..4].copy_from_slice(&(total + 200).to_be_bytes());
            }
            2 => {
                self.story.push("another length of the header");
                head[0] = 0x40 | self.random.of(&[0, 4, 6, 15]);
            }
            3 => {
                self.story.push("another version");
                head[0] = 0x60 | head[0] & 0xf;
            }
            4 => {
                self.story.push("upper header cut");
                upper.truncate(self.random.below(upper.len()));
                let total = (head.len() + upper.len()) as u16;
                head[2..4].copy_from_slice(&total.to_be_bytes());
            }
            _ => {}
        }
        let sum = checksum::finish(checksum::sum(&head));
        checksum::store(&mut head, 10, sum);
        if self.is(25, "wrong header checksum") {
            head[10] ^= 0x55;
        }
        head.extend(upper);
        head
    }

    fn ipv6(&mut self, payload: Vec<u8>) -> Vec<u8> {
        self.story.push("IPv6");
        let address = |random: &mut Random, net: u16| {
            Ipv6Addr::new(0x2001, 0xdb8, net, random.of(&[0, 0, 1]), 0, 0, 0, 1 + random.below(4) as u16)
        };
        let (source, target) = (address(self.random, 1), address(self.random, 2));
        let (protocol, upper) =
            self.upper(payload, |protocol, len| checksum::l4_pseudo_v6(source, target, protocol, len as u32));
        let mut next = protocol;
        let mut behind = upper;
        // Extension headers are added from the innermost to the outermost.
        let count = if self.random.one_in(3) { 1 + self.random.below(3) } else { 0 };
        for _ in 0..count {
            let (kind, header): (u8, Vec<u8>) = match self.random.below(7) {
                0 => {
                    self.story.push("hop-by-hop options");
                    (0, vec![next, 0, 1, 4, 0, 0, 0, 0])
                }
                1 => {
                    self.story.push("destination options");
                    (60, [vec![next, 1, 1, 12], vec![0; 12]].concat())
                }
                2 => {
                    self.story.push("routing header at its end");
                    (43, [vec![next, 2, 0, 0, 0, 0, 0, 0], vec![0x20; 16]].concat())
                }
                3 => {
                    self.story.push("first fragment");
                    (44, vec![next, 0, 0, 1, 0, 0, 0, 7])
                }
                4 => {
                    self.story.push("atomic fragment");
                    (44, vec![next, 0, 0, 0, 0, 0, 0, 7])
                }
                5 => {
                    self.story.push("later fragment");
                    (44, vec![next, 0, 0, 0x51, 0, 0, 0, 7])
                }
                _ => {
                    self.story.push("AH");
                    (51, [vec![next, 1, 0, 0], vec![9; 8]].concat())
                }
            };
            behind = [header, behind].concat();
            next = kind;
        }
        let class = self.random.of(&[0_u32, 0, 0x20, 0xb8, 1, 0xff]);
        let label = self.random.of(&[0_u32, 0, 0x12345, 0xfffff]);
        let mut head = (6 << 28 | class << 20 | label).to_be_bytes().to_vec();
        head.extend((behind.len() as u16).to_be_bytes());
        head.extend([next, self.random.of(&[64, 64, 255, 2, 1, 0])]);
        head.extend(source.octets());
        head.extend(target.octets());
        match self.random.below(40) {
            0 => {
                self.story.push("shorter by its length");
                let shorter = self.random.below(behind.len()) as u16;
                head[4..6].copy_from_slice(&shorter.to_be_bytes());
            }
            1 => {
                self.story.push("longer by its length");
                head[4..6].copy_from_slice(&(behind.len() as u16 + 200).to_be_bytes());
            }
            2 => {
                self.story.push("another version");
                head[0] = 0x40 | head[0] & 0xf;
            }
            _ => {}
        }
        head.extend(behind);
        head
    }

    /// Returns a random IP protocol number, and the bytes that follow the IP header. `pseudo` returns the checksum of
    /// the pseudo-header for a protocol number and a length.
    fn upper(&mut self, payload: Vec<u8>, pseudo: impl Fn(u8, usize) -> u32) -> (u8, Vec<u8>) {
        let ports = |random: &mut Random| {
            let (from, to) = (random.of(&[1000_u16, 1001, 53, 80]), random.of(&[80_u16, 81, 443, 53, 8080]));
            [from.to_be_bytes(), to.to_be_bytes()].concat()
        };
        let story = ["TCP", "UDP", "SCTP", "ICMP", "ICMPv6", "another protocol"];
        let kind = self.random.of(&[0, 0, 0, 1, 1, 1, 2, 3, 4, 4, 5]);
        self.story.push(story[kind]);
        let (protocol, mut message, at) = match kind {
            0 => {
                let mut head = ports(self.random);
                head.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, self.random.of(&[2, 0x10, 0x12, 0x18, 1, 4, 0])]);
                head.extend([1, 0, 0, 0, 0, 0]);
                if self.is(10, "data offset of its own") {
                    head[12] = self.random.of(&[0x40, 0x00, 0xf0, 0x60]);
                }
                (6, [head, payload].concat(), Some(16))
            }
            1 => {
                let mut head = ports(self.random);
                head.extend(((payload.len() + 8) as u16).to_be_bytes());
                head.extend([0, 0]);
                (17, [head, payload].concat(), Some(6))
            }
            2 => {
                let mut head = ports(self.random);
                head.extend([0, 0, 0, 9, 0, 0, 0, 0]);
                let mut message = [head, payload].concat();
                let sum = checksum::crc32c(&message);
                message[8..12].copy_from_slice(&sum.to_le_bytes());
                (132, message, None)
            }
            3 => {
                let head =
                    vec![self.random.of(&[8, 0, 3, 11, 13]), self.random.of(&[0, 0, 1]), 0, 0, 0, 1, 0, 2];
                (1, [head, payload].concat(), Some(2))
            }
            4 => (58, self.icmpv6(payload), Some(2)),
            _ => (self.random.of(&[2, 47, 89, 255]), payload, None),
        };
        if let Some(at) = at {
            let sum = if protocol == 1 { 0 } else { pseudo(protocol, message.len()) };
            checksum::fill(&mut message, at, sum);
            if protocol == 17 && self.is(6, "no checksum") {
                message[6..8].fill(0);
            }
        }
        if self.is(25, "wrong checksum")
            && let Some(at) = at
        {
            message[at] ^= 0x5a;
        }
        (protocol, message)
    }

    fn icmpv6(&mut self, payload: Vec<u8>) -> Vec<u8> {
        let kind = self.random.of(&[135_u8, 136, 135, 136, 128, 1, 133]);
        let code = if self.random.one_in(10) { 1 } else { 0 };
        let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
        if matches!(kind, 135 | 136) {
            self.story.push("ND");
            message.extend([
                0x20,
                1,
                0xd,
                0xb8,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                1 + self.random.below(4) as u8,
            ]);
            let count = self.random.below(3);
            if count == 2 {
                self.story.push("two options");
            }
            for _ in 0..count {
                let option = self.random.of(&[1_u8, 2, 1, 2, 5]);
                let len = if self.is(20, "an odd option") { self.random.of(&[0, 2, 9]) } else { 1 };
                message.extend([option, len, 2, 0, 0, 0, 0, 1 + self.random.below(4) as u8]);
            }
        }
        if !matches!(kind, 135 | 136) || self.random.one_in(4) {
            message.extend(payload);
        }
        message
    }
}
