//! Two ports in memory whose frames go round for ever: what the engine sends out of one comes in by the other, as whatever packet a
//! scenario wants next. There are only so many frames, so nothing that is decided slowly piles up: the loop is as quick as what is
//! measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use port::{Batch, Capabilities, FramePool, Packet, Queue, QueueStatus};
use sync::cpu::tsc;
use sync::spsc::{Consumer, Producer, channel};

use crate::bench::generator::{FRAME, mac};

/// A packet of TCP or UDP over IPv4.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    /// Whose MAC addresses: from, to.
    pub hosts: [u32; 2],
    /// IPv4 addresses: from, to.
    pub addresses: [u32; 2],
    pub protocol: u8,
    /// From, to.
    pub ports: [u16; 2],
}

impl Headers {
    /// Writes them into a frame of [`FRAME`] bytes.
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
        // Of UDP the length, of TCP part of the sequence number.
        frame[38..42].copy_from_slice(&[0, 26, 0, 0]);
        // A TCP header without options, and an ACK.
        frame[46..48].copy_from_slice(&[0x50, 0x10]);
    }
}

/// The MAC address of a host of the benches.
pub(super) fn mac_of(host: u32) -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = mac(host).to_le_bytes();
    [a, b, c, d, e, f]
}

/// A number's scattered one (the output function of Vigna's splitmix64).
pub(super) fn scattered(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Writes one packet after the other.
pub(super) type Writes = Box<dyn FnMut(&mut [u8]) + Send>;

/// One end. See the module documentation.
pub(super) struct Circuit<W> {
    back: Consumer<Packet>,
    out: Producer<Packet>,
    write: W,
    open: Arc<AtomicBool>,
}

/// Two ends with `frames` frames between them each way; `writers` write what each of them receives, as long as `open` says so.
///
/// # Panics
/// If the pool has fewer than `2 * frames` free frames.
pub(super) fn circuit<W>(
    pool: &mut FramePool,
    frames: usize,
    writers: [W; 2],
    open: &Arc<AtomicBool>,
) -> [Circuit<W>; 2] {
    // Room for all of them, as some packets go back where they came from.
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

/// A port with one frame, which goes back where it came from and is a new packet then: how long each was away is told.
pub(super) struct Probe<W> {
    here: Option<Packet>,
    sent: u64,
    write: W,
    /// TSC cycles; when nobody reads them they are lost.
    told: Producer<u64>,
}

impl<W: FnMut(&mut [u8]) + Send + 'static> Probe<W> {
    /// `told` takes the times, in TSC cycles.
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
}
