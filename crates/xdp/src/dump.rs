//! A capture at the hook itself: what its program receives, what it makes of it, and its verdict. The port's program is
//! replaced by one with a capture around it (`bpf/dump.bpf.c`) for as long as somebody looks: [`crate::Attached::set_dump`].

use std::cell::RefCell;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

use crate::sys::{self, MapKind, MapSpec};
use crate::{Error, Verdict};

const RING: &str = "dump_ring";
const MISSED: &str = "dump_missed";
const FRAMES: &str = "dump_frames";
/// `struct dump_record`.
pub(crate) const RECORD_SIZE: usize = 40;
/// `DUMP_SNAP_MAX`.
pub const SNAP_MAX: u32 = 2048;
/// `struct dump_frame`.
pub(crate) const FRAME_SIZE: u32 = 40 + 3 * SNAP_MAX;

/// What is captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpConfig {
    /// Bytes of each frame, 1 to [`SNAP_MAX`].
    pub snap: u32,
    /// Verdicts that are wanted.
    pub verdicts: Vec<Verdict>,
    /// Frames as they come.
    pub entry: bool,
    /// Frames as the program leaves them.
    pub exit: bool,
    /// Bytes of the ring: a power of two, from a page on.
    pub ring_bytes: u32,
}

impl Default for DumpConfig {
    fn default() -> DumpConfig {
        DumpConfig {
            snap: 256,
            verdicts: Verdict::ALL.to_vec(),
            entry: true,
            exit: true,
            ring_bytes: 4 << 20,
        }
    }
}

impl DumpConfig {
    /// `struct dump_conf`.
    fn constants(&self) -> [u8; 16] {
        let verdicts = self.verdicts.iter().fold(0, |bits, verdict| bits | 1 << verdict.code());
        let words = [self.snap.clamp(1, SNAP_MAX), verdicts, u32::from(self.entry), u32::from(self.exit)];
        let mut bytes = [0; 16];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// One frame that met the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dumped {
    /// Nanoseconds since 1970 at the entry.
    pub at_ns: u64,
    /// Index of the device that received it, in its namespace.
    pub ifindex: u32,
    /// Its receive queue.
    pub queue: u32,
    /// What the program said.
    pub verdict: Verdict,
    /// Bytes of the whole frame at entry and exit.
    pub lengths: [u32; 2],
    /// Its first bytes as it came; empty unless wanted.
    pub entry: Vec<u8>,
    /// Its first bytes as the program left it; empty unless wanted.
    pub exit: Vec<u8>,
}

/// The kernel's side of a capture.
#[derive(Debug)]
pub(crate) struct DumpMaps {
    pub constants: [u8; 16],
    ring: OwnedFd,
    missed: OwnedFd,
    frames: OwnedFd,
}

impl DumpMaps {
    pub(crate) fn list(&self) -> [(&'static str, BorrowedFd<'_>); 3] {
        [(RING, self.ring.as_fd()), (MISSED, self.missed.as_fd()), (FRAMES, self.frames.as_fd())]
    }
}

/// A capture that a port's program can be given. When its ring is full copies are left out and counted; frames never wait.
#[derive(Debug)]
pub struct Dump {
    maps: Arc<DumpMaps>,
}

impl Dump {
    /// Makes the maps of a capture.
    ///
    /// # Errors
    /// [`Error::Map`]: without privilege, or for a ring whose size is no power of two.
    pub fn new(config: &DumpConfig) -> Result<Dump, Error> {
        let make = |name, kind, key, value, entries| {
            let spec = MapSpec { name, kind, key, value, entries };
            sys::map_create(spec, None).map_err(|source| Error::Map {
                map: name,
                operation: "create",
                source,
            })
        };
        let maps = DumpMaps {
            constants: config.constants(),
            ring: make(RING, MapKind::Ring, 0, 0, config.ring_bytes)?,
            missed: make(MISSED, MapKind::PerCpuArray, 4, 8, 1)?,
            frames: make(FRAMES, MapKind::PerCpuArray, 4, FRAME_SIZE, 1)?,
        };
        Ok(Dump { maps: Arc::new(maps) })
    }

    pub(crate) fn maps(&self) -> &Arc<DumpMaps> {
        &self.maps
    }

    /// The end of the ring where frames are taken out.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn reader(&self) -> Result<DumpReader, Error> {
        let query = |source| Error::Map { map: RING, operation: "query", source };
        let id = sys::map_info(self.maps.ring.as_fd()).map_err(query)?.id;
        let map = MapHandle::from_map_id(id).map_err(|error| unreadable(&error))?;
        let waiting = Rc::new(RefCell::new(Vec::new()));
        let (to, clock) = (Rc::clone(&waiting), WallClock::now());
        let each = move |bytes: &[u8]| {
            to.borrow_mut().extend(parse(bytes, clock));
            0
        };
        let mut builder = RingBufferBuilder::new();
        builder.add(&map, each).map_err(|error| unreadable(&error))?;
        Ok(DumpReader { ring: builder.build().map_err(|error| unreadable(&error))?, waiting })
    }

    /// Frames that were left out because the ring was full.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn missed(&self) -> Result<u64, Error> {
        let counted = sys::map_lookup_per_cpu(self.maps.missed.as_fd(), 0, 1);
        let counted = counted.map_err(|source| Error::Map { map: MISSED, operation: "read", source })?;
        Ok(counted.iter().fold(0, |sum: u64, frames| sum.wrapping_add(*frames)))
    }
}

/// Takes frames out of a capture's ring; it belongs to one thread.
pub struct DumpReader {
    ring: RingBuffer<'static>,
    waiting: Rc<RefCell<Vec<Dumped>>>,
}

impl fmt::Debug for DumpReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DumpReader").finish_non_exhaustive()
    }
}

impl DumpReader {
    /// The frames that have come, in the order of each CPU; waits so long for the first one.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn poll(&self, patience: Duration) -> Result<Vec<Dumped>, Error> {
        match self.ring.poll(patience) {
            Ok(()) => {}
            Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(&error)),
        }
        Ok(self.waiting.take())
    }
}

fn unreadable(error: &libbpf_rs::Error) -> Error {
    Error::Map { map: RING, operation: "read", source: std::io::Error::other(error.to_string()) }
}

/// The kernel's monotonic clock in nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WallClock {
    offset: u64,
}

impl WallClock {
    pub(crate) fn now() -> WallClock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        WallClock { offset: u64::try_from(wall).unwrap_or(u64::MAX).saturating_sub(sys::monotonic_ns()) }
    }

    pub(crate) fn at(self, monotonic_ns: u64) -> u64 {
        monotonic_ns.wrapping_add(self.offset)
    }
}

fn parse(bytes: &[u8], clock: WallClock) -> Option<Dumped> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (entry, exit) = (usize::try_from(word(28)?).ok()?, usize::try_from(word(32)?).ok()?);
    let after = RECORD_SIZE + entry;
    Some(Dumped {
        at_ns: clock.at(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?)),
        ifindex: word(8)?,
        queue: word(12)?,
        verdict: Verdict::from_code(word(16)?),
        lengths: [word(20)?, word(24)?],
        entry: bytes.get(RECORD_SIZE..after)?.to_vec(),
        exit: bytes.get(after..after + exit)?.to_vec(),
    })
}
