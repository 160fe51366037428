//! Generates frames for both routers: valid frames of many sizes and destinations, to which faults and unusual features
//! are added. Equal seeds result in equal frames.

use packet::checksum;

/// Side of the router, on which a frame enters or leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Left,
    Right,
}

impl Side {
    pub const BOTH: [Side; 2] = [Side::Left, Side::Right];

    /// Returns the name of the router's device on this side.
    pub fn device(self) -> &'static str {
        if self == Side::Left { "left" } else { "right" }
    }

    pub fn letter(self) -> &'static str {
        &self.device()[..1]
    }

    /// Returns the number N of the side. The networks on the side are 10.1.N.0/29 and fd00:N::/125.
    pub fn number(self) -> u8 {
        if self == Side::Left { 1 } else { 2 }
    }

    pub fn mtu(self) -> u16 {
        if self == Side::Left { 1500 } else { 1300 }
    }

    /// Returns the MAC address of the router's device on this side.
    pub fn router(self) -> String {
        text(self.router_mac())
    }

    /// Returns the MAC address of the neighbour on this side whose IP addresses end with `number`.
    pub fn neighbour(self, number: u8) -> String {
        text([2, 0, 0, 0, self.number(), number])
    }

    fn router_mac(self) -> [u8; 6] {
        [2, 0, 0, 0, self.number(), 1]
    }
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

/// A frame that is sent to both routers.
pub struct Frame {
    pub number: u32,
    pub side: Side,
    pub bytes: Vec<u8>,
    /// Description of the frame's special features.
    pub story: String,
}

/// First octets of a mark. They are followed by the frame's number.
const MARK: [u8; 4] = *b"TvOr";
/// Length of a mark in octets.
const CELL: usize = 16;

/// Returns the frame number in the mark of a frame. The mark may be in a packet that the frame quotes (ICMP error).
/// Returns `None` if there is no mark.
pub fn mark_of(frame: &[u8]) -> Option<u32> {
    let at = frame.windows(MARK.len()).position(|window| window == MARK)?;
    let number = frame.get(at + 4..at + 8)?;
    (frame.get(at + 8..at + 12)? == number.iter().map(|byte| !byte).collect::<Vec<u8>>())
        .then(|| u32::from_be_bytes(number.try_into().unwrap()))
}

/// Random number generator (`SplitMix64`), reproducible in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
}

/// A frame under construction.
struct Draft {
    ethernet: [u8; 12],
    /// VLAN tags and EtherType, which follow the MAC addresses.
    types: Vec<u8>,
    /// IP header without options or extension headers.
    ip: Vec<u8>,
    /// IPv4 options or IPv6 extension headers.
    more: Vec<u8>,
    upper: Vec<u8>,
    /// Padding after the IP packet.
    padding: Vec<u8>,
    /// Whether the length fields of the headers are set to their correct values.
    lengths: bool,
    sums: bool,
    story: Vec<&'static str>,
}

impl Draft {
    fn is_four(&self) -> bool {
        self.ip.len() == 20
    }

    fn source(&mut self) -> &mut [u8] {
        let four = self.is_four();
        if four { &mut self.ip[12..16] } else { &mut self.ip[8..24] }
    }

    fn destination(&mut self) -> &mut [u8] {
        let four = self.is_four();
        if four { &mut self.ip[16..20] } else { &mut self.ip[24..40] }
    }

    fn hops(&mut self) -> &mut u8 {
        let at = if self.is_four() { 8 } else { 7 };
        &mut self.ip[at]
    }

    fn protocol(&mut self) -> &mut u8 {
        let at = if self.is_four() { 9 } else { 6 };
        &mut self.ip[at]
    }

    /// Builds the complete frame.
    fn finish(mut self) -> Vec<u8> {
        let behind = self.more.len() + self.upper.len();
        if self.lengths && self.is_four() {
            self.ip[2..4].copy_from_slice(&((20 + behind) as u16).to_be_bytes());
            self.ip[0] = 0x40 | ((20 + self.more.len()) / 4) as u8;
        } else if self.lengths {
            self.ip[4..6].copy_from_slice(&(behind as u16).to_be_bytes());
        }
        if self.sums && self.is_four() {
            self.ip[10..12].fill(0);
            let sum = checksum::finish(checksum::sum(&self.ip) + checksum::sum(&self.more));
            self.ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        [self.ethernet.to_vec(), self.types, self.ip, self.more, self.upper, self.padding].concat()
    }
}

const UDP: u8 = 17;
const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Generator of frames.
pub struct Generator {
    random: Random,
    number: u32,
}

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator { random: Random(seed), number: 0 }
    }

    fn count(&mut self) -> u32 {
        self.number += 1;
        self.number
    }

    /// Returns three marker frames for each side, each of which always causes output: a frame that is forwarded, a
    /// frame that would have to be fragmented, and a frame whose hop limit expires. When the output of these frames has
    /// left, the output of all earlier frames has left as well.
    pub fn fences(&mut self) -> Vec<Frame> {
        let mut fences = Vec::new();
        for side in Side::BOTH {
            // The second frame is too long for its route and may not be fragmented.
            let ways = [
                ([10, 1, 3 - side.number(), 2], 64, 64, "through a worker"),
                ([10, 2, 129, 1], 64, 1100, "through the TAP"),
                ([10, 2, 0, 1], 1, 64, "through the kernel"),
            ];
            for (to, hops, size, way) in ways {
                let number = self.count();
                let mut draft = self.plain(number, side, true, UDP, size);
                draft.source().copy_from_slice(&[10, 1, side.number(), 2]);
                draft.destination().copy_from_slice(&to);
                draft.ip[6] = 0x40;
                *draft.hops() = hops;
                fences.push(Frame { number, side, bytes: draft.finish(), story: format!("fence {way}") });
            }
        }
        fences
    }

    /// Returns the next frame.
    pub fn next(&mut self) -> Frame {
        let number = self.count();
        let side = self.random.of(&Side::BOTH);
        let four = self.random.below(100) < 55;
        let protocol = match self.random.below(10) {
            0..4 => UDP,
            4..7 => TCP,
            7..9 if four => ICMP,
            7..9 => ICMPV6,
            _ => self.random.of(&[2, 47, 50, 89, 112, 132, 136, 253]),
        };
        let room = usize::from(side.mtu()) - 80;
        let size = match self.random.below(10) {
            0..6 => 32 + self.random.below(90),
            6..8 => 32 + self.random.below(room - 32),
            _ => room - self.random.below(200),
        };
        let mut draft = self.plain(number, side, four, protocol, size);
        for _ in 0..self.random.below(3) {
            self.mutate(side, &mut draft);
        }
        let mut story = if four { "IPv4" } else { "IPv6" }.to_owned();
        draft.story.iter().for_each(|what| story += &format!(", {what}"));
        let mut bytes = draft.finish();
        if self.random.one_in(40) {
            // The marks are not cut, if there are any.
            let keep = 14 + self.random.below(bytes.len() - 14);
            bytes.truncate(keep);
            story += ", cut off";
        }
        bytes.truncate(usize::from(side.mtu()) + 14);
        Frame { number, side, bytes, story }
    }

    /// Builds a valid frame.
    fn plain(&mut self, number: u32, side: Side, four: bool, protocol: u8, size: usize) -> Draft {
        let payload = payload(number, size);
        let mut ip = vec![0; if four { 20 } else { 40 }];
        let (source, destination) = self.addresses(side, four);
        if four {
            ip[0] = 0x45;
            ip[4..6].copy_from_slice(&(number as u16).to_be_bytes());
            ip[6] = if self.random.one_in(2) { 0x40 } else { 0 };
            (ip[8], ip[9]) = (64, protocol);
            ip[12..16].copy_from_slice(&source);
            ip[16..20].copy_from_slice(&destination);
        } else {
            ip[0] = 0x60;
            (ip[6], ip[7]) = (protocol, 64);
            ip[8..24].copy_from_slice(&source);
            ip[24..40].copy_from_slice(&destination);
        }
        let mut ethernet = [0; 12];
        ethernet[..6].copy_from_slice(&side.router_mac());
        ethernet[6..].copy_from_slice(&[2, 0, 0, 0, side.number(), 2 + (number % 5) as u8]);
        let upper = upper(protocol, &source, &destination, &payload, number);
        Draft {
            ethernet,
            types: if four { vec![8, 0] } else { vec![0x86, 0xdd] },
            ip,
            more: Vec::new(),
            upper,
            padding: Vec::new(),
            lengths: true,
            sums: true,
            story: Vec::new(),
        }
    }

    /// Returns random source and destination addresses for a packet that enters on a side. Most destinations have a
    /// route.
    fn addresses(&mut self, side: Side, four: bool) -> (Vec<u8>, Vec<u8>) {
        let (number, other) = (side.number(), 3 - side.number());
        let noise = (self.random.byte(), self.random.byte());
        let last = 2 + self.random.below(5) as u8;
        if four {
            let destination = match self.random.below(20) {
                0..5 => vec![10, 2, noise.0, noise.1],
                5 => vec![10, 2, 3, self.random.of(&[3, 4, 5])],
                6 => vec![10, 1, number, last],
                7 | 8 => vec![10, 1, other, last],
                9 => vec![10, 3, noise.0, noise.1],
                10 => vec![10, 4, noise.0, noise.1],
                11 => vec![10, 5, self.random.of(&[4, 5, 6]), noise.1],
                12 | 13 => vec![10, 6 + (noise.0 & 1), noise.1, last],
                14 | 15 => vec![10, 8, self.random.of(&[0, 1, 2, 3]), noise.1],
                16 => vec![203, 0, 113, noise.1],
                17 => vec![10, 1, self.random.of(&[number, other]), 1],
                18 => vec![10, 9, 9, 9],
                _ => vec![10, 2, 128 | noise.0, noise.1],
            };
            // Many senders are used, because the kernel sends one error a second for missing routes to each
            // sender.
            let source = match self.random.below(4) {
                0 => vec![10, 2, self.random.byte(), self.random.byte()],
                1 if destination[..3] == [10, 1, other] => vec![10, 1, number, last],
                _ => vec![10, self.random.of(&[6, 7]), self.random.byte(), self.random.byte()],
            };
            return (source, destination);
        }
        let documentation =
            |a: u8, b: u8| [0x20, 1, 0xd, 0xb8, 0, a, 0, b, 0, 0, 0, 0, 0, 0, noise.0, noise.1].to_vec();
        let link = |n: u8, last: u8| [0xfd, 0, 0, n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last].to_vec();
        let source = match self.random.below(10) {
            0..7 => link(number, last),
            7 => documentation(2, noise.1),
            _ => documentation(6, noise.1),
        };
        let destination = match self.random.below(20) {
            0..4 => documentation(2, noise.1),
            4 => {
                let mut to = documentation(2, 3);
                to[14..].copy_from_slice(&[0, self.random.of(&[3, 4, 5])]);
                to
            }
            5 => {
                let mut to = documentation(2, noise.1);
                to[6] = 0x80;
                to
            }
            6 => link(number, last),
            7 | 8 => link(other, last),
            9 => documentation(3, noise.1),
            10 => documentation(4, noise.1),
            11 => documentation(5, self.random.of(&[4, 5])),
            12 | 13 => documentation(6 + (noise.0 & 1), noise.1),
            14 | 15 => documentation(8, self.random.of(&[0, 1, 2])),
            16 => documentation(0x77, noise.1),
            17 => link(self.random.of(&[number, other]), self.random.of(&[0, 1])),
            18 => [0x20, 1, 0xd, 0xb8, 0, 0x99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x99].to_vec(),
            _ => documentation(2, 0),
        };
        (source, destination)
    }

    fn mutate(&mut self, side: Side, draft: &mut Draft) {
        let story = match self.random.below(16) {
            0 | 1 => {
                *draft.hops() = self.random.of(&[0, 1, 2, 3, 255]);
                "hops"
            }
            2 | 3 if draft.is_four() => self.options(draft),
            2..=4 if !draft.is_four() => self.extensions(draft),
            4 => {
                let flags = self.random.of(&[0x20_u8, 0x20, 0x60, 0x80, 0xa0, 0]);
                draft.ip[6] = flags | self.random.of(&[0, 0, 1, 0x1f]);
                draft.ip[7] = self.random.of(&[0, 0, 1, 185, 255]);
                "fragment"
            }
            5 => self.wrong_length(draft),
            6 if draft.is_four() => {
                draft.sums = false;
                draft.ip[10..12].copy_from_slice(&self.random.of(&[[0, 0], [0xff, 0xff], [0x12, 0x34]]));
                "checksum"
            }
            6 | 7 => {
                self.strange_address(side, draft, true);
                "source"
            }
            8 | 9 => {
                self.strange_address(side, draft, false);
                "destination"
            }
            10 => {
                let tag = self.random.of(&[
                    [0x81, 0, 0, 0],
                    [0x81, 0, 0, 5],
                    [0x88, 0xa8, 0, 7],
                    [0x81, 0, 0xe0, 0],
                ]);
                draft.types.splice(..0, tag);
                "tag"
            }
            11 => self.strange_station(side, draft),
            12 => {
                let types = self.random.of(&[
                    [8, 0],
                    [0x86, 0xdd],
                    [8, 6],
                    [0x88, 0x47],
                    [0x88, 0xcc],
                    [0, 60],
                    [5, 0xdc],
                    [0x88, 0x63],
                    [0x86, 0xdc],
                ]);
                let at = draft.types.len() - 2;
                draft.types[at..].copy_from_slice(&types);
                "EtherType"
            }
            13 => {
                let octets = 1 + self.random.below(40);
                draft.padding = (0..octets).map(|_| self.random.byte()).collect();
                "padding"
            }
            14 => {
                let at = self.random.below(draft.ip.len());
                draft.ip[at] ^= 1 << self.random.below(8);
                draft.lengths &= self.random.one_in(2);
                if draft.is_four() {
                    draft.sums &= !self.random.one_in(4);
                }
                "a bit of the header"
            }
            _ => self.message(draft),
        };
        draft.story.push(story);
    }

    fn wrong_length(&mut self, draft: &mut Draft) -> &'static str {
        draft.lengths = false;
        let (at, whole) = if draft.is_four() { (2, 20 + draft.more.len()) } else { (4, draft.more.len()) };
        let right = whole + draft.upper.len();
        let wrong = match self.random.below(5) {
            0 => right + 1,
            1 => right - 1 - self.random.below(16),
            2 => self.random.below(24),
            3 => usize::from(u16::MAX),
            _ => right + self.random.below(2000),
        };
        draft.ip[at..at + 2].copy_from_slice(&(wrong as u16).to_be_bytes());
        if draft.is_four() {
            draft.ip[0] = 0x40 | ((20 + draft.more.len()) / 4) as u8;
        }
        "length"
    }

    fn strange_station(&mut self, side: Side, draft: &mut Draft) -> &'static str {
        let station = self.random.of(&[
            [0xff; 6],
            [1, 0, 0x5e, 0, 0, 5],
            [0x33, 0x33, 0, 0, 0, 1],
            [2, 9, 9, 9, 9, 9],
            [0, 0, 0x5e, 0, 1, 7],
            [1, 0x80, 0xc2, 0, 0, 0],
            [0; 6],
        ]);
        if self.random.one_in(4) {
            draft.ethernet[6..].copy_from_slice(&self.random.of(&[station, side.router_mac()]));
        } else {
            draft.ethernet[..6].copy_from_slice(&station);
        }
        "station"
    }

    fn options(&mut self, draft: &mut Draft) -> &'static str {
        let hop = *self
            .random
            .of(&[[10, 1, 2, 2], [10, 1, 1, 2], [10, 9, 9, 9], [10, 2, 1, 1]])
            .first_chunk::<4>()
            .unwrap();
        let [a, b, c, d] = hop;
        draft.more = self.random.of(&[
            vec![1, 1, 1, 0],
            vec![0x94, 4, 0, 0],
            vec![7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            vec![7, 7, 8, 1, 1, 1, 1, 0],
            vec![68, 12, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            vec![68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0],
            vec![131, 7, 4, a, b, c, d, 0],
            vec![137, 7, 4, a, b, c, d, 0],
            vec![7, 200, 4, 0],
            vec![7, 1, 4, 0],
            vec![0x82, 4, 0, 0],
            vec![99, 4, 1, 2],
            vec![1; 40],
        ]);
        // A time stamp written by the routers would differ between them.
        if draft.more[0] == 68 {
            draft.more = vec![68, 4, 5, 0xf0];
        }
        "options"
    }

    fn extensions(&mut self, draft: &mut Draft) -> &'static str {
        let next = *draft.protocol();
        let (kind, story) = self.random.of(&[
            (0, "hop-by-hop options"),
            (0, "hop-by-hop options"),
            (43, "a routing header"),
            (44, "a fragment header"),
            (44, "a fragment header"),
            (51, "an authentication header"),
            (60, "destination options"),
            (59, "no next header"),
            (135, "a mobility header"),
        ]);
        *draft.protocol() = kind;
        let mut header = match kind {
            0 | 60 => {
                let option = self.random.of(&[
                    [1, 4, 0, 0, 0, 0],
                    [5, 2, 0, 0, 1, 0],
                    [0x3e, 4, 0, 0, 0, 0],
                    [0x7e, 4, 0, 0, 0, 0],
                    [0xbe, 4, 0, 0, 0, 0],
                    [0xfe, 4, 0, 0, 0, 0],
                    [0xc2, 4, 0, 1, 0, 0],
                    [1, 200, 0, 0, 0, 0],
                ]);
                [[next, 0].to_vec(), option.to_vec()].concat()
            }
            43 => {
                let (kind, left) = self.random.of(&[(0, 0), (0, 1), (2, 1), (3, 1), (4, 0), (4, 1)]);
                let mut header = vec![next, 2, kind, left, 0, 0, 0, 0];
                header.extend([0xfd, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
                header
            }
            44 => {
                let low = self.random.of(&[0, 1, 8, 9, 0x10, 6]);
                vec![next, 0, self.random.of(&[0, 0, 1, 0x20]), low, 0, 0, self.random.byte(), 1]
            }
            51 => vec![next, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1],
            59 => Vec::new(),
            _ => vec![next, 0, 0, 0, 0, 0, 0, 0],
        };
        if !header.is_empty() && self.random.one_in(12) {
            header[1] = self.random.byte();
        }
        header.extend(&draft.more);
        draft.more = header;
        story
    }

    fn strange_address(&mut self, side: Side, draft: &mut Draft, source: bool) {
        let number = side.number();
        let noise = [self.random.byte(), self.random.byte(), self.random.byte(), self.random.byte()];
        let address = if draft.is_four() {
            self.random
                .of(&[
                    [0, 0, 0, 0],
                    [0, 1, 2, 3],
                    [127, 0, 0, 1],
                    [127, 9, 9, 9],
                    [255; 4],
                    [224, 0, 0, 5],
                    [239, 1, 1, 1],
                    [240, 0, 0, 1],
                    [169, 254, 1, 1],
                    [192, 0, 2, 1],
                    [10, 1, 1, 1],
                    [10, 1, 2, 1],
                    [10, 9, 9, 9],
                    [10, 1, number, 7],
                    [10, 1, number, 0],
                    [10, 1, 3 - number, 7],
                    [10, 3, 0, 1],
                    [10, 4, 0, 1],
                    noise,
                    [noise[0] | 0xe0, 0, 0, 1],
                ])
                .to_vec()
        } else {
            let of = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
            let mut list: Vec<[u8; 16]> = [
                "::",
                "::1",
                "::2",
                "::ffff:10.1.1.2",
                "::10.1.2.2",
                "64:ff9b::10.1.2.2",
                "ff02::1",
                "ff02::5",
                "ff01::1",
                "ff05::2",
                "ff0e::1:2",
                "fe80::2",
                "fe80::1",
                "fe80::9:9",
                "fec0::1",
                "fd00:1::1",
                "fd00:2::1",
                "fd00:1::",
                "2001:db8:99::99",
                "2001:db8:3::1",
                "2001:db8:4::1",
                "4000::1",
                "2002:7f00:1::1",
            ]
            .map(of)
            .into();
            let mut wild = [0; 16];
            wild.iter_mut().for_each(|octet| *octet = self.random.byte());
            list.push(wild);
            self.random.of(&list).to_vec()
        };
        if source { draft.source() } else { draft.destination() }.copy_from_slice(&address);
    }

    /// Builds an ICMP message of a random type. Error messages quote a packet.
    fn message(&mut self, draft: &mut Draft) -> &'static str {
        let four = draft.is_four();
        *draft.protocol() = if four { ICMP } else { ICMPV6 };
        let kind = if four {
            self.random.of(&[0, 3, 3, 4, 5, 8, 11, 12, 14, 17, 42])
        } else {
            self.random.of(&[1, 2, 3, 4, 100, 127, 128, 129, 130, 131, 132, 143, 145, 151, 200, 255])
        };
        let code = self.random.of(&[0, 0, 1, 2, 3, 4, 13]);
        let (source, destination) = (draft.source().to_vec(), draft.destination().to_vec());
        let number = mark_of(&draft.upper).unwrap_or(self.number);
        let mut within = vec![if four { 0x45 } else { 0x60 }];
        within.resize(if four { 12 } else { 8 }, 0);
        within.extend(destination.iter().chain(&source));
        within.extend([7, 7, 9, 9, 0, 8, 0, 0]);
        let mut upper = vec![kind, code, 0, 0, 0, 0, 5, 0];
        upper.extend(within);
        upper.extend(payload(number, draft.upper.len().clamp(80, 1200) - 40));
        let pseudo = if four { 0 } else { pseudo(&source, &destination, upper.len(), ICMPV6) };
        let sum = checksum::finish(pseudo + checksum::sum(&upper));
        upper[2..4].copy_from_slice(&sum.to_be_bytes());
        draft.upper = upper;
        "an ICMP message"
    }
}

/// Returns a payload filled with marks.
fn payload(number: u32, size: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    while payload.len() < size.max(CELL) {
        payload.extend(MARK);
        payload.extend(number.to_be_bytes());
        payload.extend((!number).to_be_bytes());
        payload.extend((payload.len() as u32).to_be_bytes());
    }
    payload.truncate(size.max(CELL));
    payload
}

fn pseudo(source: &[u8], destination: &[u8], length: usize, protocol: u8) -> u32 {
    checksum::sum(source) + checksum::sum(destination) + length as u32 + u32::from(protocol)
}

/// Returns the transport header and payload, which follow the IP header. Port numbers are greater than 20000, because
/// no program of the router listens on these ports.
fn upper(protocol: u8, source: &[u8], destination: &[u8], payload: &[u8], number: u32) -> Vec<u8> {
    let ports = [0x4e, 0x20 + (number % 50) as u8, 0x4e, 0x60 + (number % 7) as u8];
    let (mut header, check) = match protocol {
        UDP => (vec![0; 8], 6),
        TCP => (vec![0; 20], 16),
        ICMP | ICMPV6 => (vec![0; 8], 2),
        _ => return [ports.as_slice(), payload].concat(),
    };
    let length = header.len() + payload.len();
    match protocol {
        UDP => header[4..6].copy_from_slice(&(length as u16).to_be_bytes()),
        TCP => {
            header[4..8].copy_from_slice(&number.to_be_bytes());
            (header[12], header[13]) = (0x50, [0x02, 0x10, 0x18, 0x04][number as usize % 4]);
            header[14] = 0x20;
        }
        _ => {
            header[0] = if protocol == ICMP { 8 } else { 128 };
            header[4..8].copy_from_slice(&number.to_be_bytes());
        }
    }
    if matches!(protocol, UDP | TCP) {
        header[..4].copy_from_slice(&ports);
    }
    let pseudo = if protocol == ICMP { 0 } else { pseudo(source, destination, length, protocol) };
    let sum = checksum::finish(pseudo + checksum::sum(&header) + checksum::sum(payload));
    header[check..check + 2].copy_from_slice(&sum.to_be_bytes());
    header.extend(payload);
    header
}
