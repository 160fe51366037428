//! Free frames: a private stack per worker over a shared depot, so that allocation and release touch no shared line
//! except once per [`REFILL`] frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use packet::DropReason;

use crate::memory::{FrameMemory, HEADROOM};
use crate::packet::{MAX_LENGTH, Packet};
use crate::quarantine::{HeldFrames, Place, Quarantine};

/// Frames moved between a pool and the depot at a time.
pub const REFILL: usize = 256;
/// Depots made so far.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);
/// Frames that a fill ring has at least, however many queues share the memory.
pub const LEAST_FILL: u32 = 64;
/// Frames that a pool keeps before it gives some back.
const HIGH_WATER: usize = 4 * REFILL;

/// The shared stock of free frames of one [`FrameMemory`].
pub struct Depot {
    memory: Arc<FrameMemory>,
    generation: u64,
    quarantine: Quarantine,
    free: sync::mpmc::Ring<u32>,
    /// Sockets that share the memory.
    sockets: AtomicU32,
}

/// A socket's part of the frame memory. Half of the frames are divided among the fill rings that there are; the other half is left to
/// packets in the workers and to transmit rings. A quarter of that half is divided among the transmit rings when free frames become
/// scarce: a receiver that does not consume what it is sent keeps the frames of its own share, and not those of all.
pub struct MemoryShare {
    depot: Arc<Depot>,
    /// Half of the frames.
    half: u32,
}

impl MemoryShare {
    /// Returns the number of frames that the socket's fill ring may hold now; at least [`LEAST_FILL`].
    #[inline]
    #[must_use]
    pub fn fill(&self) -> u32 {
        self.of(self.half)
    }

    /// Returns the number of frames that the socket may have on their way out now, at least [`LEAST_FILL`]; `None` while free frames are not
    /// scarce, that is, while more than a quarter of all frames lies in the depot.
    #[inline]
    #[must_use]
    pub fn transmit(&self) -> Option<u32> {
        let is_scarce = self.depot.available() < (self.half / 2) as usize;
        is_scarce.then(|| self.of(self.half / 4))
    }

    fn of(&self, frames: u32) -> u32 {
        let sockets = self.depot.sockets.load(Ordering::Relaxed).max(1);
        (frames / sockets).max(LEAST_FILL)
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.depot.sockets.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Depot {
    /// A depot that holds every frame of a fresh memory.
    #[must_use]
    pub fn new(memory: Arc<FrameMemory>) -> Arc<Self> {
        let frames = memory.frames();
        Self::with_free(memory, 0..frames)
    }

    /// A depot that holds only the given free frames (hand-over: the others stand in rings).
    #[must_use]
    pub fn with_free(memory: Arc<FrameMemory>, free: impl IntoIterator<Item = u32>) -> Arc<Self> {
        let ring = sync::mpmc::Ring::new(memory.frames() as usize);
        for frame in free {
            if frame < memory.frames() {
                // A list with doubles is longer than the ring: what does not fit was there already.
                let _ = ring.push(frame);
            }
        }
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            memory,
            generation,
            quarantine: Quarantine::default(),
            free: ring,
            sockets: AtomicU32::new(0),
        })
    }

    /// Returns a number that no other depot of this process has. After a hand-over that fails there is a new depot over the same frames:
    /// what was taken from the old depot is not given back to the new one, which has its frames already.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Holds frames of a closed zero-copy socket until the kernel has released them. Frames whose queue cannot be tried are free after `time`;
    /// see [`crate::quarantine`].
    pub fn quarantine(&self, frames: Vec<u32>, place: Option<Place>, time: Duration) {
        self.quarantine.hold(frames, place, now() + time);
    }

    /// Frees the frames in quarantine of a queue to which a socket has just been bound.
    pub fn bound(&self, place: &Place) {
        self.put_back(&self.quarantine.bound(place));
    }

    /// Frees the frames in quarantine that the kernel has let go of; call now and then. It tries queues by binding a socket.
    pub fn end_quarantine(&self) {
        if !self.quarantine.is_empty() {
            self.put_back(&self.quarantine.released(now(), Place::is_free));
        }
    }

    /// Returns the number of frames in quarantine.
    #[must_use]
    pub fn quarantined(&self) -> usize {
        self.quarantine.len()
    }

    /// Returns the frames in quarantine, each group with its queue and the time that is left, for a successor process.
    #[must_use]
    pub fn quarantined_frames(&self) -> Vec<HeldFrames> {
        self.quarantine.list(now())
    }

    /// Returns the number of frames that are longer in quarantine than the kernel should need.
    #[must_use]
    pub fn overdue(&self) -> usize {
        self.quarantine.overdue(now())
    }

    /// Counts one more socket among those that share the memory, until the returned value is dropped.
    #[must_use]
    pub fn share(self: &Arc<Self>) -> MemoryShare {
        self.sockets.fetch_add(1, Ordering::Relaxed);
        MemoryShare { depot: Arc::clone(self), half: self.memory.frames() / 2 }
    }

    fn put_back(&self, frames: &[u32]) {
        let mut left = frames;
        while !left.is_empty() {
            // See `FramePool::spill` for why this may take another round.
            left = &left[self.free.push_slice(left)..];
        }
    }

    /// The frames' memory.
    #[must_use]
    pub fn memory(&self) -> &Arc<FrameMemory> {
        &self.memory
    }

    /// Free frames that lie in the depot (those in pools and rings not counted).
    #[must_use]
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// A pool for one worker or one control thread.
    #[must_use]
    pub fn pool(self: &Arc<Self>) -> FramePool {
        FramePool {
            memory: self.memory.clone(),
            depot: self.clone(),
            free: Vec::with_capacity(HIGH_WATER + REFILL),
        }
    }

    /// Takes all frames out, for hand-over; call when every pool has been dropped or flushed.
    #[must_use]
    pub fn drain(&self) -> Vec<u32> {
        std::iter::from_fn(|| self.free.pop()).collect()
    }
}

#[allow(clippy::disallowed_methods, reason = "for control threads, when a queue is closed")]
fn now() -> Instant {
    Instant::now()
}

/// One thread's free frames.
pub struct FramePool {
    memory: Arc<FrameMemory>,
    depot: Arc<Depot>,
    free: Vec<u32>,
}

impl FramePool {
    /// The frames' memory.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> &FrameMemory {
        &self.memory
    }

    /// Returns the number of free frames in this pool, those of the depot not counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// Whether no free frame is in this pool.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// The memory, shared.
    #[must_use]
    pub fn memory_arc(&self) -> Arc<FrameMemory> {
        self.memory.clone()
    }

    /// The depot behind this pool.
    #[must_use]
    pub fn depot(&self) -> &Arc<Depot> {
        &self.depot
    }

    /// One free frame's index, for a kernel ring; it is out of the pool until [`Self::put_raw`] or a packet brings it back.
    #[inline]
    pub(crate) fn take_raw(&mut self) -> Option<u32> {
        if self.free.is_empty() {
            self.refill();
        }
        self.free.pop()
    }

    /// Gives a frame's index back (from a completion ring).
    #[inline]
    pub(crate) fn put_raw(&mut self, frame: u32) {
        self.free.push(frame);
        if self.free.len() >= HIGH_WATER {
            self.spill();
        }
    }

    #[cold]
    fn refill(&mut self) {
        let had = self.free.len();
        self.free.resize(had + REFILL, 0);
        let got = self.depot.free.pop_slice(&mut self.free[had..]);
        self.free.truncate(had + got);
    }

    #[cold]
    fn spill(&mut self) {
        // The oldest go: they left the caches first. The depot has a place for every frame there is, but one that
        // another thread is just emptying may refuse for a moment: what it does not take stays here.
        let taken = self.depot.free.push_slice(&self.free[..2 * REFILL]);
        self.free.copy_within(taken.., 0);
        self.free.truncate(self.free.len() - taken);
    }

    /// A packet of one empty frame behind the default headroom; `None` when no frame is free.
    #[inline]
    pub fn alloc(&mut self) -> Option<Packet> {
        let frame = self.take_raw()?;
        Some(Packet::from_frame(&self.memory, frame, HEADROOM, 0))
    }

    /// A packet that holds a copy of `bytes`, over as many frames as needed.
    ///
    /// # Errors
    /// [`DropReason::NoFrame`] when frames run out, [`DropReason::RxOversized`] for more than [`MAX_LENGTH`] bytes.
    pub fn alloc_copy(&mut self, bytes: &[u8]) -> Result<Packet, DropReason> {
        if bytes.len() > MAX_LENGTH {
            return Err(DropReason::RxOversized);
        }
        let room = self.memory.data_room() as usize;
        let mut whole: Option<Packet> = None;
        let mut rest = bytes;
        loop {
            let Some(mut part) = self.alloc() else {
                if let Some(packet) = whole {
                    self.free(packet);
                }
                return Err(DropReason::NoFrame);
            };
            let n = rest.len().min(room);
            let fits = u16::try_from(n).is_ok_and(|n| part.set_len(&self.memory, n));
            assert!(fits, "a frame holds its own data room");
            part.head_mut(&self.memory).copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            match &mut whole {
                None => whole = Some(part),
                Some(packet) => packet.append(&self.memory, part),
            }
            if rest.is_empty() {
                return whole.ok_or(DropReason::NoFrame);
            }
        }
    }

    /// A copy of `packet` with its offload state (a flood, a mirror, a capture).
    ///
    /// # Errors
    /// [`DropReason::NoFrame`] when frames run out.
    pub fn copy(&mut self, packet: &Packet) -> Result<Packet, DropReason> {
        let memory = self.memory.clone();
        let mut copy: Option<Packet> = None;
        let mut failed = false;
        packet.for_each_segment(&memory, |bytes| {
            if failed {
                return;
            }
            // A received segment may use more of its frame than the default headroom leaves: copies may take one more frame.
            match self.alloc_copy(bytes) {
                Ok(part) => match &mut copy {
                    None => copy = Some(part),
                    Some(whole) => part.dismantle(&memory, |single| whole.append(&memory, single)),
                },
                Err(_) => failed = true,
            }
        });
        match copy {
            Some(mut whole) if !failed => {
                whole.copy_offload(&memory, packet);
                whole.copy_path(packet);
                Ok(whole)
            }
            other => {
                if let Some(part) = other {
                    self.free(part);
                }
                Err(DropReason::NoFrame)
            }
        }
    }

    /// Gives a packet's frames back.
    #[inline]
    pub fn free(&mut self, packet: Packet) {
        if packet.segments() == 1 {
            self.put_raw(packet.frame());
        } else {
            self.free_chain(packet);
        }
    }

    fn free_chain(&mut self, packet: Packet) {
        let mut rest = Some(packet);
        while let Some(packet) = rest {
            let (first, tail) = packet.split_first(&self.memory);
            self.put_raw(first.frame());
            rest = tail;
        }
    }

    /// Returns every frame to the depot (the thread is going to end or sleep for long).
    pub fn flush(&mut self) {
        while !self.free.is_empty() {
            // See `spill` for why this may take another round.
            let taken = self.depot.free.push_slice(&self.free);
            self.free.drain(..taken);
            if taken == 0 {
                std::hint::spin_loop();
            }
        }
    }
}

impl Drop for FramePool {
    fn drop(&mut self) {
        self.flush();
    }
}
