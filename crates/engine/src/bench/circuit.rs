//! Two in-memory ports whose frames circulate. A frame that the engine transmits through one port is received by the
//! other port, with the headers of the scenario's next packet. The number of frames is fixed. Therefore slow processing
//! causes no backlog, and the measured packet rate is the rate of the code under test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use port::{Batch, Capabilities, Exported, FramePool, Packet, Queue, QueueStatus};
use sync::cpu::tsc;
use sync::spsc::{Consumer, Producer, channel};

use crate::bench::generator::{FRAME, mac};

/// Header fields of a TCP or UDP packet over IPv4.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    /// Numbers of the source and destination host, which `mac_of` converts into MAC addresses.
    pub hosts: [u32; 2],
    /// IPv4 addresses of the source and the destination.
    pub addresses: [u32; 2],
    pub protocol: u8,
    /// L4 ports of the source and the destination.
    pub ports: [u16; 2],
}

impl Headers {
    /// Writes the headers into a frame of [`FRAME`] bytes.
    pub fn write(&self, frame: &mut [u8]) {
        let mut ip: [u8; 20] =
            [0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, self.protocol, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        ip[12..16].copy_from_slice(&self.addresses[0].to_be_bytes());
        ip[16..].copy_from_slice(&self.addresses[1].to_be_bytes());
        let pairs = ip.as_chunks::<2>().0.iter().map(|pair| u32::from(u16::from_be_bytes(*pair)));
        let sum: u32 = pairs.sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        ip[10..12].copy_from_slice(&(!sum).to_be_bytes()[2..]);
        let Some(frame) = frame.first_chunk_mut::<{ FRAME as usize }>() else { return };
        frame[..6].copy_from_slice(&mac_of(self.hosts[1]));
        frame[6..12].copy_from_slice(&mac_of(self.hosts[0]));
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14..34].copy_from_slice(&ip);
        frame[34..36].copy_from_slice(&self.ports[0].to_be_bytes());
        frame[36..38].copy_from_slice(&self.ports[1].to_be_bytes());
        // These bytes are the length for UDP, and a part of the sequence number for TCP.
        frame[38..42].copy_from_slice(&[0, 26, 0, 0]);
        // These bytes are the data offset without TCP options, and the ACK flag.
        frame[46..48].copy_from_slice(&[0x50, 0x10]);
    }
}

/// Returns the MAC address of the simulated host with number `host`.
pub(super) fn mac_of(host: u32) -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = mac(host).to_le_bytes();
    [a, b, c, d, e, f]
}

/// Returns a pseudorandom number that is different for each `number` (the output function of Vigna's
/// splitmix64).
pub(super) fn scattered(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// A function that writes the headers of the next packet into a frame.
pub(super) type Writes = Box<dyn FnMut(&mut [u8]) + Send>;

/// One of two in-memory ports between which frames circulate. See the module documentation.
pub(super) struct Circuit<W> {
    back: Consumer<Packet>,
    out: Producer<Packet>,
    write: W,
    open: Arc<AtomicBool>,
}

/// Creates two connected in-memory ports with `frames` frames in each direction. `writers[i]` writes the headers of the
/// packets that port `i` receives. The ports receive packets only while `open` is true.
///
/// # Panics
/// Panics if the pool has fewer than `2 * frames` free frames.
pub(super) fn circuit<W>(
    pool: &mut FramePool,
    frames: usize,
    writers: [W; 2],
    open: &Arc<AtomicBool>,
) -> [Circuit<W>; 2] {
    // Each ring has space for all frames, because some packets return to the port that they came from.
    let (mut to_a, back_a) = channel(2 * frames);
    let (mut to_b, back_b) = channel(2 * frames);
    for ring in [&mut to_a, &mut to_b] {
        for _ in 0..frames {
            let pushed = ring.push(frame_of(pool));
            assert!(pushed.is_ok(), "the ring holds every frame");
        }
    }
    let [a, b] = writers;
    [
        Circuit { back: back_a, out: to_b, write: a, open: Arc::clone(open) },
        Circuit { back: back_b, out: to_a, write: b, open: Arc::clone(open) },
    ]
}

fn frame_of(pool: &mut FramePool) -> Packet {
    let Some(mut packet) = pool.alloc() else { panic!("the bench's frame memory is too small") };
    let fits = packet.set_len(pool.memory(), FRAME);
    assert!(fits, "a frame holds a minimal packet");
    packet
}

impl<W: FnMut(&mut [u8]) + Send + 'static> Queue for Circuit<W> {
    fn receive(&mut self, pool: &mut FramePool, out: &mut Batch) -> usize {
        if !self.open.load(Ordering::Relaxed) {
            return 0;
        }
        let before = out.len();
        let n = port::ring::pop_batch(&mut self.back, out);
        for packet in &mut out[before..] {
            (self.write)(packet.head_mut(pool.memory()));
        }
        n
    }

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

/// A port for latency measurements with a single frame. When the frame returns to the port, the port reports the
/// round-trip time and sends the frame again as a new packet.
pub(super) struct Probe<W> {
    here: Option<Packet>,
    sent: u64,
    write: W,
    /// Ring for the measured round-trip times in TSC cycles. If the ring is full, times are discarded.
    told: Producer<u64>,
}

impl<W: FnMut(&mut [u8]) + Send + 'static> Probe<W> {
    /// Creates a probe port. `write` writes the packets of the port. The port puts the measured round-trip times, in
    /// TSC cycles, into the ring `told`.
    pub fn new(pool: &mut FramePool, write: W, told: Producer<u64>) -> Self {
        Probe { here: Some(frame_of(pool)), sent: 0, write, told }
    }
}

impl<W: FnMut(&mut [u8]) + Send + 'static> Queue for Probe<W> {
    fn receive(&mut self, pool: &mut FramePool, out: &mut Batch) -> usize {
        let Some(mut packet) = self.here.take() else { return 0 };
        (self.write)(packet.head_mut(pool.memory()));
        self.sent = tsc();
        out.push(packet);
        1
    }

    fn transmit(&mut self, pool: &mut FramePool, batch: &mut Batch) -> usize {
        let n = batch.len();
        for packet in batch.drain(..) {
            let _ = self.told.push(tsc().wrapping_sub(self.sent));
            if let Some(extra) = self.here.replace(packet) {
                pool.free(extra);
            }
        }
        n
    }

    fn kick(&mut self, _pool: &mut FramePool) {}

    fn has_pending(&mut self) -> bool {
        self.here.is_some()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { max_segments: 1, max_frame: 1518, ..Capabilities::default() }
    }

    fn status(&self) -> QueueStatus {
        QueueStatus { kind: "probe", ..QueueStatus::default() }
    }

    fn close(self: Box<Self>, pool: &mut FramePool) {
        if let Some(packet) = self.here {
            pool.free(packet);
        }
    }

    fn export(self: Box<Self>, pool: &mut FramePool) -> Exported {
        self.close(pool);
        Exported::Closed
    }
}
