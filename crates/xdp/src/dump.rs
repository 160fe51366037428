//! A capture at the hook itself: what its program receives, what it makes of it, and its verdict. The port's program is
//! replaced by one with a capture around it (`bpf/dump.bpf.c`) for as long as somebody looks: [`crate::Attached::set_dump`].

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::ring::{self, RingReader, WallClock};
use crate::sys::{self, MapKind, MapSpec};
use crate::{Counter, Error, Verdict};

const RING: &str = "dump_ring";
const MISSED: &str = "dump_missed";
const FRAMES: &str = "dump_frames";
/// `struct dump_record`.
pub(crate) const RECORD_SIZE: usize = 48;
/// `DUMP_SNAP_MAX`.
pub const SNAP_MAX: u32 = 2048;
/// `struct dump_frame`.
pub(crate) const FRAME_SIZE: u32 = 48 + 3 * SNAP_MAX;

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
    /// What it counted the frame as, which tells why; `None` where it ended without counting it.
    pub way: Option<Counter>,
    /// The place among counters of the filter's rule that ended the frame's way: [`crate::filter::Filter::rule_at`] tells
    /// its name.
    pub rule: Option<u32>,
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
    pub fn reader(&self) -> Result<RingReader<Dumped>, Error> {
        RingReader::new(RING, self.maps.ring.as_fd(), parse)
    }

    /// Frames that were left out because the ring was full.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn missed(&self) -> Result<u64, Error> {
        ring::missed(MISSED, self.maps.missed.as_fd())
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
        way: usize::try_from(word(36)?).ok().and_then(|way| Counter::ALL.get(way).copied()),
        rule: word(40)?.checked_sub(1),
        lengths: [word(20)?, word(24)?],
        entry: bytes.get(RECORD_SIZE..after)?.to_vec(),
        exit: bytes.get(after..after + exit)?.to_vec(),
    })
}
