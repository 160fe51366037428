//! Pools of free frames. Each worker has a private pool, and all pools are filled from a shared depot. The
//! allocation and the release of frames access shared memory only once per [`REFILL`] frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use packet::DropReason;

use crate::memory::{FrameMemory, HEADROOM};
use crate::packet::{MAX_LENGTH, Packet};
use crate::quarantine::{HeldFrames, Place, Quarantine};

/// Number of frames that are moved between the depot (the shared store of free frames) and a pool at a time.
pub const REFILL: usize = 256;
/// Number of depots that this process has created so far.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);
/// Minimum number of frames that a fill ring may hold, regardless of how many sockets share the memory.
pub const LEAST_FILL: u32 = 64;
/// Number of free frames in a pool above which the pool returns frames to the depot.
const HIGH_WATER: usize = 4 * REFILL;

/// The depot: the shared store of the free frames of one [`FrameMemory`], from which all pools are filled.
pub struct Depot {
    memory: Arc<FrameMemory>,
    generation: u64,
    quarantine: Quarantine,
    free: sync::mpmc::Ring<u32>,
    /// Number of AF_XDP sockets that share the frame memory.
    sockets: AtomicU32,
    /// Number of frames that the fill rings of these sockets lack to their minima of at most [`LEAST_FILL`] frames.
    lacking: AtomicU32,
}

/// Share of the frame memory that one AF_XDP socket may use. The memory is divided as follows:
///
/// - Half of the frames are divided among the fill rings.
/// - The other half is for packets in the workers and for transmit rings. When free frames become scarce, a
///   quarter of this half is divided among the transmit rings. Therefore a receiver that does not consume its
///   packets occupies only the frames of one share.
pub struct MemoryShare {
    depot: Arc<Depot>,
    /// Number of frames in half of the memory.
    half: u32,
    /// Number of frames that the socket's fill ring lacks to its minimum, as counted in [`Depot::lacking`].
    lacking: u32,
}

impl MemoryShare {
    /// Returns the number of frames that the socket's fill ring may currently hold. The number is at least
    /// [`LEAST_FILL`].
    #[inline]
    #[must_use]
    pub fn fill(&self) -> u32 {
        self.of(self.half)
    }

    /// Returns the number of frames that the socket may currently have in transmission, which is at least
    /// [`LEAST_FILL`]. Returns `None` if there is no limit, because free frames are not scarce. This is the
    /// case while the depot holds more than a quarter of all frames.
    #[inline]
    #[must_use]
    pub fn transmit(&self) -> Option<u32> {
        let is_scarce = self.depot.available() < (self.half / 2) as usize;
        is_scarce.then(|| self.of(self.half / 4))
    }

    /// Records how many frames the socket's fill ring lacks to its minimum. The same number of free frames is then
    /// reserved for fill rings.
    #[inline]
    pub fn set_lacking(&mut self, frames: u32) {
        if frames != self.lacking {
            // Wraps around if the number falls.
            self.depot.lacking.fetch_add(frames.wrapping_sub(self.lacking), Ordering::Relaxed);
            self.lacking = frames;
        }
    }

    fn of(&self, frames: u32) -> u32 {
        let sockets = self.depot.sockets.load(Ordering::Relaxed).max(1);
        (frames / sockets).max(LEAST_FILL)
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.depot.sockets.fetch_sub(1, Ordering::Relaxed);
        self.depot.lacking.fetch_sub(self.lacking, Ordering::Relaxed);
    }
}

impl Depot {
    /// Creates the depot of a new frame memory. All frames of the memory are free.
    #[must_use]
    pub fn new(memory: Arc<FrameMemory>) -> Arc<Self> {
        let frames = memory.frames();
        Self::with_free(memory, 0..frames)
    }

    /// Creates a depot for a frame memory of which only the frames in `free` are free. This is the case after
    /// a hand-over, when the other frames are in the rings of sockets.
    #[must_use]
    pub fn with_free(memory: Arc<FrameMemory>, free: impl IntoIterator<Item = u32>) -> Arc<Self> {
        let ring = sync::mpmc::Ring::new(memory.frames() as usize);
        for frame in free {
            if frame < memory.frames() {
                // A list with duplicates exceeds the ring. Frames that do not fit are already in the ring.
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
            lacking: AtomicU32::new(0),
        })
    }

    /// Returns the generation number of the depot, which is unique in this process. If a hand-over fails, a
    /// new depot is created for the frame memory. Frames that were taken from the old depot must not be
    /// returned to the new depot, because the new depot already contains them.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Puts frames of a closed zero-copy socket into quarantine until the kernel has released them.
    /// If this release cannot be checked, the frames become free after `time`. See
    /// [`crate::quarantine`].
    pub fn quarantine(&self, frames: Vec<u32>, place: Option<Place>, time: Duration) {
        self.quarantine.hold(frames, place, now() + time);
    }

    /// Frees the quarantined frames of the queue `place`. The caller has just bound a socket to this queue,
    /// which proves that the kernel has released the frames.
    pub fn bound(&self, place: &Place) {
        self.put_back(&self.quarantine.bound(place));
    }

    /// Frees the quarantined frames that the kernel has released. To check a queue, the function binds a temporary
    /// socket to the queue. Control threads must call this function at intervals.
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

    /// Returns the frames in quarantine for a successor process. The frames are grouped by queue, and each
    /// group has the remaining time of the quarantine.
    #[must_use]
    pub fn quarantined_frames(&self) -> Vec<HeldFrames> {
        self.quarantine.list(now())
    }

    /// Returns the number of quarantined frames that the kernel has kept for longer than the
    /// release of frames should take.
    #[must_use]
    pub fn overdue(&self) -> usize {
        self.quarantine.overdue(now())
    }

    /// Registers one more AF_XDP socket that shares the frame memory. The socket stays registered until the
    /// returned value is dropped.
    #[must_use]
    pub fn share(self: &Arc<Self>) -> MemoryShare {
        self.sockets.fetch_add(1, Ordering::Relaxed);
        self.lacking.fetch_add(LEAST_FILL, Ordering::Relaxed);
        MemoryShare { depot: Arc::clone(self), half: self.memory.frames() / 2, lacking: LEAST_FILL }
    }

    fn put_back(&self, frames: &[u32]) {
        let mut left = frames;
        while !left.is_empty() {
            // The loop may take several iterations, for the reason given at `FramePool::spill`.
            left = &left[self.free.push_slice(left)..];
        }
    }

    /// Returns the frame memory to which the frames of the depot belong.
    #[must_use]
    pub fn memory(&self) -> &Arc<FrameMemory> {
        &self.memory
    }

    /// Returns how many of `free` free frames are reserved for the fill rings of the AF_XDP sockets that share the
    /// frame memory. Other queues do not receive packets into these frames. The frames that the rings lack are
    /// reserved. Rings that are full now may need frames soon, so at most half of the free frames is reserved for
    /// them.
    #[must_use]
    pub fn reserved(&self, free: usize) -> usize {
        let for_all = (self.sockets.load(Ordering::Relaxed) * LEAST_FILL) as usize;
        (self.lacking.load(Ordering::Relaxed) as usize).max(for_all.min(free / 2))
    }

    /// Returns the number of free frames in the depot. Free frames in pools and frames in rings are not
    /// included.
    #[must_use]
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Creates an empty pool for one worker or one control thread.
    #[must_use]
    pub fn pool(self: &Arc<Self>) -> FramePool {
        FramePool {
            memory: self.memory.clone(),
            depot: self.clone(),
            free: Vec::with_capacity(HIGH_WATER + REFILL),
        }
    }

    /// Removes all frames from the depot and returns them, for a hand-over. The caller must have dropped or
    /// flushed all pools.
    #[must_use]
    pub fn drain(&self) -> Vec<u32> {
        std::iter::from_fn(|| self.free.pop()).collect()
    }
}

#[allow(clippy::disallowed_methods, reason = "for control threads, when a queue is closed")]
fn now() -> Instant {
    Instant::now()
}

/// A pool of free frames, which belongs to one thread.
pub struct FramePool {
    memory: Arc<FrameMemory>,
    depot: Arc<Depot>,
    free: Vec<u32>,
}

impl FramePool {
    /// Returns the frame memory to which the frames of this pool belong.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> &FrameMemory {
        &self.memory
    }

    /// Returns the number of free frames in this pool, without the free frames of the [`Depot`]
    /// that all pools share.
    #[must_use]
    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// Returns whether this pool contains no free frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// Returns the frame memory to which the frames of this pool belong, as a shared pointer.
    #[must_use]
    pub fn memory_arc(&self) -> Arc<FrameMemory> {
        self.memory.clone()
    }

    /// Returns the depot from which this pool is filled.
    #[must_use]
    pub fn depot(&self) -> &Arc<Depot> {
        &self.depot
    }

    /// Takes a free frame out of the pool, for a kernel ring. The frame returns to a pool through [`Self::put_raw`] or
    /// as part of a packet. Returns `None` if no frame is free.
    #[inline]
    pub(crate) fn take_raw(&mut self) -> Option<u32> {
        if self.free.is_empty() {
            self.refill();
        }
        self.free.pop()
    }

    /// Puts a frame that the kernel has returned (from a completion ring) into the pool.
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
        // The oldest frames are returned, because they have left the CPU caches. The depot has space for all
        // frames, but it may refuse frames for a moment while another thread removes some. Frames that the
        // depot refuses stay in the pool.
        let taken = self.depot.free.push_slice(&self.free[..2 * REFILL]);
        self.free.copy_within(taken.., 0);
        self.free.truncate(self.free.len() - taken);
    }

    /// Allocates a packet of one frame, which is empty and has the default headroom. Returns `None` if no
    /// frame is free.
    #[inline]
    pub fn alloc(&mut self) -> Option<Packet> {
        let frame = self.take_raw()?;
        Some(Packet::from_frame(&self.memory, frame, HEADROOM, 0))
    }

    /// Allocates a packet that contains a copy of `bytes`. The packet has as many frames as necessary.
    ///
    /// # Errors
    /// [`DropReason::NoFrame`] if no frame is free, and [`DropReason::RxOversized`] if `bytes` is longer than
    /// [`MAX_LENGTH`].
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

    /// Creates a copy of `packet` with its offload state, for example for a flood, a mirror or a capture.
    ///
    /// # Errors
    /// [`DropReason::NoFrame`] if no frame is free.
    pub fn copy(&mut self, packet: &Packet) -> Result<Packet, DropReason> {
        let memory = self.memory.clone();
        let mut copy: Option<Packet> = None;
        let mut failed = false;
        packet.for_each_segment(&memory, |bytes| {
            if failed {
                return;
            }
            // A received segment may use more of its frame than the default headroom leaves, so a copy may
            // need one more frame.
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

    /// Returns all frames of a packet to the pool.
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

    /// Returns all free frames of this pool to the depot. A thread calls this function before it ends or
    /// sleeps for a long time.
    pub fn flush(&mut self) {
        while !self.free.is_empty() {
            // The loop may take several iterations, for the reason given at `spill`.
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
