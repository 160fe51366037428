//! A port in memory that is its own traffic source: what the engine sends out of one end comes back, with new headers, as what the
//! other end receives.

use port::{Batch, Capabilities, FrameMemory, FramePool, Packet, Queue, QueueStatus};
use sync::spsc::{Consumer, Producer, channel};

/// Length of a generated frame in bytes, without the frame check sequence (64 on the wire).
pub const FRAME: u16 = 60;

/// Which hosts talk to which, in random order.
#[derive(Clone, Copy, Debug)]
pub struct Flows {
    /// Hosts on this side, numbered from `first`.
    pub first: u32,
    /// How many.
    pub hosts: u32,
    /// First of the other side's as many hosts.
    pub peer_first: u32,
}

/// Writes the headers of one packet after the other.
#[derive(Clone, Debug)]
pub struct Writer {
    /// The frame as little-endian words; the last four bytes of it stay as they are.
    words: [u64; 7],
    flows: Flows,
    state: u64,
}

/// An address spread over the 46 bits that a locally administered unicast address leaves, its first octet lowest.
#[inline]
fn mac(host: u32) -> u64 {
    let mixed = u64::from(host).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29) & 0xffff_ffff_fffc | 0x02
}

impl Writer {
    /// Frames of UDP over IPv4 between the hosts of `flows`.
    #[must_use]
    pub fn new(flows: Flows) -> Self {
        let mut template = [0_u8; FRAME as usize];
        let header: [u8; 28] = [
            0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
            0x04, 0x00, 0, 9, 0, 26, 0, 0, // UDP
        ];
        template[12..14].copy_from_slice(&[0x08, 0x00]);
        template[14..42].copy_from_slice(&header);
        let mut words = [0; 7];
        for (word, bytes) in words.iter_mut().zip(template.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self { words, flows, state: 0x2545_f491_4f6c_dd1d ^ u64::from(flows.first) }
    }

    /// Writes the next packet's headers into `frame`, 60 bytes.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the halves of a random word choose the hosts")]
    pub fn write(&mut self, frame: &mut [u8]) {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let (a, b) = (self.state as u32, (self.state >> 32) as u32);
        // A multiply picks a host in range without a division.
        let pick = |r: u32| ((u64::from(r) * u64::from(self.flows.hosts)) >> 32) as u32;
        let (src, dst) = (mac(self.flows.first + pick(a)), mac(self.flows.peer_first + pick(b)));
        // Whole words, so that a reader right behind is not held up by stores narrower than its loads.
        self.words[0] = dst | src << 48;
        self.words[1] = src >> 16 | self.words[1] & 0xffff_ffff_0000_0000;
        // The source port, at octets 34 and 35.
        self.words[4] = self.words[4] & 0xffff_ffff_0000_ffff | u64::from(a & 0xffff) << 16;
        if let Some(place) = frame.first_chunk_mut::<{ FRAME as usize }>() {
            for (bytes, word) in place.as_chunks_mut::<8>().0.iter_mut().zip(&self.words) {
                *bytes = word.to_le_bytes();
            }
        }
    }
}

/// The source: writes new headers into a burst of packets. Never inlined: with and without the work to be measured it must be the very same
/// instructions at the same addresses, or its own differences count as the work's.
#[inline(never)]
pub fn fill(writer: &mut Writer, memory: &FrameMemory, packets: &mut [Packet]) {
    for packet in packets.iter() {
        packet.prefetch(memory);
    }
    for packet in packets {
        writer.write(packet.head_mut(memory));
    }
}

/// One end. See the module documentation.
pub struct GeneratorQueue {
    back: Consumer<Packet>,
    out: Producer<Packet>,
    writer: Writer,
}

/// Two ends with `frames` frames in rotation each way; `a` and `b` say which hosts stand behind them.
///
/// # Panics
/// If `pool` has fewer than `2 * frames` free frames.
#[must_use]
pub fn pair(pool: &mut FramePool, frames: usize, a: Flows, b: Flows) -> (GeneratorQueue, GeneratorQueue) {
    let (mut to_a, back_a) = channel(frames);
    let (mut to_b, back_b) = channel(frames);
    for ring in [&mut to_a, &mut to_b] {
        for _ in 0..frames {
            let Some(mut packet) = pool.alloc() else { panic!("the bench's frame memory is too small") };
            let fits = packet.set_len(pool.memory(), FRAME);
            assert!(fits && ring.push(packet).is_ok(), "the ring holds every frame");
        }
    }
    // What b transmits comes back to a, and the reverse.
    let a = GeneratorQueue { back: back_a, out: to_b, writer: Writer::new(a) };
    let b = GeneratorQueue { back: back_b, out: to_a, writer: Writer::new(b) };
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
        let room = self.out.free().min(batch.len());
        self.out.push_from(&mut batch.drain(..room))
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
}
