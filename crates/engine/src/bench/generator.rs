//! In-memory ports that generate their own traffic. A frame that the engine transmits through one port is received by
//! the other port with new headers.

use std::sync::Arc;

use packet::MacAddr;
use port::{Batch, Capabilities, Exported, FrameMemory, FramePool, Packet, Queue, QueueStatus};
use sync::spsc::{Consumer, Producer, channel};

/// Length of a generated IPv4 frame in bytes, without the frame check sequence (64 on the wire).
pub const FRAME: u16 = 60;
/// Length of a generated IPv6 frame in bytes. UDP over IPv6 needs more than 60 bytes.
const FRAME_6: u16 = 64;

/// Destination addresses of the generated packets in routing scenarios. The writer uses the addresses in turn.
#[derive(Clone, Debug)]
pub enum Destinations {
    /// IPv4 destination addresses.
    Four(Arc<[u32]>),
    /// IPv6 destination addresses.
    Six(Arc<[u128]>),
}

/// Header fields that differ between successive generated packets.
#[derive(Clone, Debug)]
enum Aim {
    Hosts(Flows),
    /// Destination addresses, the index of the next address, and the checksum of the IPv4 header without the
    /// destination address.
    Four(Arc<[u32]>, usize, u32),
    Six(Arc<[u128]>, usize),
}

/// Two groups of simulated hosts. A host of one group sends packets to hosts of the other group, in random
/// order.
#[derive(Clone, Copy, Debug)]
pub struct Flows {
    /// Number of the first host in the sending group.
    pub first: u32,
    /// Number of hosts in each group.
    pub hosts: u32,
    /// Number of the first host in the receiving group.
    pub peer_first: u32,
}

/// A writer of packet headers. Each call writes the headers of one packet.
#[derive(Clone, Debug)]
pub struct Writer {
    /// Current headers of the frame as little-endian words. The last four bytes of an IPv4 frame are
    /// constant.
    words: [u64; 8],
    aim: Aim,
    state: u64,
    /// Whether the UDP source port is constant. If so, all packets to a destination belong to one flow.
    steady: bool,
}

/// Returns the MAC address of simulated host `host` as a little-endian number. The address is a locally administered
/// unicast address with 46 pseudorandom bits.
#[inline]
pub(super) fn mac(host: u32) -> u64 {
    let mixed = u64::from(host).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29) & 0xffff_ffff_fffc | 0x02
}

impl Writer {
    /// Creates a writer of UDP packets over IPv4 between the hosts of `flows`.
    #[must_use]
    pub fn new(flows: Flows) -> Self {
        let mut template = [0_u8; FRAME as usize];
        template[12..14].copy_from_slice(&[0x08, 0x00]);
        template[14..42].copy_from_slice(&UDP4);
        template[30..34].copy_from_slice(&[10, 0, 0, 2]);
        Self {
            words: words(&template),
            aim: Aim::Hosts(flows),
            state: 0x2545_f491_4f6c_dd1d ^ u64::from(flows.first),
            steady: false,
        }
    }

    /// Creates a writer of UDP packets whose destination MAC address is `router`. The writer uses the IP
    /// addresses in `destinations` in turn, starting at index `from`.
    #[must_use]
    pub fn routed(router: MacAddr, destinations: &Destinations, from: usize) -> Self {
        let mut template = [0_u8; FRAME_6 as usize];
        template[..6].copy_from_slice(&router.0);
        template[6..12].copy_from_slice(&[2, 0, 0, 0, 0xfd, 1]);
        let aim = match destinations {
            Destinations::Four(list) => {
                template[12..14].copy_from_slice(&[0x08, 0x00]);
                template[14..42].copy_from_slice(&UDP4);
                let header = template[14..34].as_chunks::<2>().0;
                let sum = header.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
                Aim::Four(list.clone(), from, sum)
            }
            Destinations::Six(list) => {
                template[12..14].copy_from_slice(&[0x86, 0xdd]);
                // The UDP payload has two bytes.
                template[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 10, 17, 64]);
                template[22..24].copy_from_slice(&[0x20, 0x01]);
                template[54..62].copy_from_slice(&[0x04, 0x00, 0, 9, 0, 10, 0, 0]);
                Aim::Six(list.clone(), from)
            }
        };
        Self { words: words(&template), aim, state: 0x2545_f491_4f6c_dd1d ^ from as u64, steady: false }
    }

    /// Makes the UDP source port constant, so that all packets to a destination belong to one flow.
    #[must_use]
    pub fn steady(mut self) -> Self {
        self.steady = true;
        self
    }

    /// Returns the length of the generated frames in bytes.
    #[must_use]
    pub fn frame(&self) -> u16 {
        if matches!(self.aim, Aim::Six(..)) { FRAME_6 } else { FRAME }
    }

    /// Writes the headers of the next packet into `frame`, which must have 60 bytes (64 bytes for IPv6).
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the halves of a random word choose the hosts")]
    pub fn write(&mut self, frame: &mut [u8]) {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let (a, b) = (if self.steady { 0 } else { self.state as u32 }, (self.state >> 32) as u32);
        let port = |word: u64| word & 0xffff_ffff_0000_ffff | u64::from(a & 0xffff) << 16;
        // The frame is written in whole words, so that a following reader is not delayed by stores narrower
        // than its loads.
        match &mut self.aim {
            Aim::Hosts(flows) => {
                // A multiplication selects a host without a division.
                let pick = |r: u32| ((u64::from(r) * u64::from(flows.hosts)) >> 32) as u32;
                let (src, dst) = (mac(flows.first + pick(a)), mac(flows.peer_first + pick(b)));
                self.words[0] = dst | src << 48;
                self.words[1] = src >> 16 | self.words[1] & 0xffff_ffff_0000_0000;
                // The source port is at bytes 34 and 35.
                self.words[4] = port(self.words[4]);
            }
            Aim::Four(destinations, at, sum) => {
                let to = destinations[*at];
                *at = if *at + 1 == destinations.len() { 0 } else { *at + 1 };
                let sum = *sum + (to >> 16) + (to & 0xffff);
                let sum = (sum >> 16) + (sum & 0xffff);
                let sum = !((sum >> 16) + sum) as u16;
                // The checksum is at bytes 24 and 25, the destination at bytes 30 to 33, followed by the
                // source port.
                let to = to.swap_bytes();
                self.words[3] =
                    self.words[3] & 0x0000_ffff_ffff_0000 | u64::from(sum.swap_bytes()) | u64::from(to) << 48;
                self.words[4] = port(self.words[4]) & !0xffff | u64::from(to >> 16);
            }
            Aim::Six(destinations, at) => {
                let to = destinations[*at].swap_bytes();
                *at = if *at + 1 == destinations.len() { 0 } else { *at + 1 };
                // The destination is at bytes 38 to 53, followed by the source port.
                self.words[4] = self.words[4] & 0x0000_ffff_ffff_ffff | (to as u64) << 48;
                self.words[5] = (to >> 16) as u64;
                self.words[6] = self.words[6] & 0xffff_0000_0000_0000 | (to >> 80) as u64;
                self.words[6] = self.words[6] & 0x0000_ffff_ffff_ffff | u64::from(a & 0xffff) << 48;
            }
        }
        if let Some(place) = frame.first_chunk_mut::<{ FRAME as usize }>() {
            for (bytes, word) in place.as_chunks_mut::<8>().0.iter_mut().zip(&self.words) {
                *bytes = word.to_le_bytes();
            }
        }
        if let Some(last) = frame.get_mut(56..).and_then(<[u8]>::first_chunk_mut::<8>) {
            *last = self.words[7].to_le_bytes();
        }
    }
}

/// Template of the IPv4 and UDP headers of a 60-byte frame, without the IPv4 checksum and the destination
/// address.
const UDP4: [u8; 28] = [
    0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 0, 0, 0, 0, // IPv4
    0x04, 0x00, 0, 9, 0, 26, 0, 0, // UDP
];

fn words(template: &[u8]) -> [u64; 8] {
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(template.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// Writes new headers into a burst of packets. The function is never inlined, because runs with and without the code
/// under test must execute identical generator instructions at identical addresses. Otherwise, differences in the
/// generator would appear as differences of the code under test.
#[inline(never)]
pub fn fill(writer: &mut Writer, memory: &FrameMemory, packets: &mut [Packet]) {
    for packet in packets.iter() {
        packet.prefetch(memory);
    }
    for packet in packets {
        writer.write(packet.head_mut(memory));
    }
}

/// One of two in-memory ports that generate traffic for each other. See the module documentation.
pub struct GeneratorQueue {
    back: Consumer<Packet>,
    out: Producer<Packet>,
    writer: Writer,
}

/// Creates two in-memory ports that generate traffic for each other, with `frames` frames in each direction. `a` writes
/// the packets that the first port receives, and `b` writes the packets that the second port receives.
///
/// # Panics
/// Panics if `pool` has fewer than `2 * frames` free frames.
#[must_use]
pub fn pair(pool: &mut FramePool, frames: usize, a: Writer, b: Writer) -> (GeneratorQueue, GeneratorQueue) {
    let (mut to_a, back_a) = channel(frames);
    let (mut to_b, back_b) = channel(frames);
    for ring in [&mut to_a, &mut to_b] {
        for _ in 0..frames {
            let Some(mut packet) = pool.alloc() else { panic!("the bench's frame memory is too small") };
            let fits = packet.set_len(pool.memory(), a.frame());
            assert!(fits && ring.push(packet).is_ok(), "the ring holds every frame");
        }
    }
    // Packets transmitted by b are received by a, and the reverse.
    let a = GeneratorQueue { back: back_a, out: to_b, writer: a };
    let b = GeneratorQueue { back: back_b, out: to_a, writer: b };
    (a, b)
}

impl Queue for GeneratorQueue {
    #[inline]
    fn receive(&mut self, pool: &mut FramePool, out: &mut Batch) -> usize {
        let before = out.len();
        let n = port::ring::pop_batch(&mut self.back, out);
        fill(&mut self.writer, pool.memory(), &mut out[before..]);
        n
    }

    #[inline]
    fn transmit(&mut self, _pool: &mut FramePool, batch: &mut Batch) -> usize {
        let function = self.out.free().min(batch.len());
        self.out.push_from(&mut batch.drain(..function))
    }

    fn kick(&mut self, _pool: &mut FramePool) {}

    fn has_pending(&mut self) -> bool {
        !self.back.is_empty()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { max_segments: 1, max_frame: 1518, ..Capabilities::default() }
    }

    fn status(&self) -> QueueStatus {
        QueueStatus { kind: "generator", ..QueueStatus::default() }
    }

    fn close(mut self: Box<Self>, pool: &mut FramePool) {
        while let Some(packet) = self.back.pop() {
            pool.free(packet);
        }
    }

    fn export(self: Box<Self>, pool: &mut FramePool) -> Exported {
        self.close(pool);
        Exported::Closed
    }
}
