//! Packet capture in a port's XDP program. A capture records the verdict on each frame, and the frame's bytes before
//! and after the program processed it. While a capture runs, the port's program is replaced by a variant that captures
//! (`bpf/dump.bpf.c`). See [`crate::Attached::set_stage`].

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::ring::{self, RingReader, WallClock};
use crate::sys::{self, MapKind, MapSpec};
use crate::{Counter, Error, Verdict};

const RING: &str = "dump_ring";
const MISSED: &str = "dump_missed";
const FRAMES: &str = "dump_frames";
/// Size of `struct dump_record` (the description of a captured frame) in bytes.
pub(crate) const RECORD_SIZE: usize = 48;
/// Maximum number of bytes that a capture records of each frame (`DUMP_SNAP_MAX`).
pub const SNAP_MAX: u32 = 2048;
/// Size of `struct dump_frame` (the memory in which a program builds a record of the capture) in bytes.
pub(crate) const FRAME_SIZE: u32 = 48 + 3 * SNAP_MAX;

/// Configuration of a packet capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpConfig {
    /// Number of bytes captured of each frame, 1 to [`SNAP_MAX`].
    pub snap: u32,
    /// XDP verdicts whose frames are captured. Frames with other verdicts are not captured.
    pub verdicts: Vec<Verdict>,
    /// Whether the capture records frames as they were received.
    pub entry: bool,
    /// Whether the capture records frames as they were after the program had processed them.
    pub exit: bool,
    /// Size of the ring buffer for captured frames, in bytes. The size is a power of two and at least one
    /// page.
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
    /// Encodes the configuration as `struct dump_conf` (the constants of the capture).
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

/// A captured frame with its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dumped {
    /// Time in nanoseconds since 1970 at which the program began to process the frame.
    pub at_ns: u64,
    /// Index of the receiving device in the device's network namespace.
    pub ifindex: u32,
    /// Receive queue on which the frame arrived.
    pub queue: u32,
    /// Verdict of the program on the frame.
    pub verdict: Verdict,
    /// Packet counter that the program incremented for the frame, which shows the reason for the verdict.
    /// `None` if the program ended without counting the frame.
    pub counter: Option<Counter>,
    /// Counter index of the filter rule that dropped, passed, sampled or limited the frame.
    /// [`crate::filter::Filter::rule_at`] returns the rule's name. `None` if no filter rule decided.
    pub rule: Option<u32>,
    /// Lengths of the whole frame in bytes: as received, and after the program had processed it.
    pub lengths: [u32; 2],
    /// First bytes of the frame as received. Empty unless [`DumpConfig::entry`] is set.
    pub entry: Vec<u8>,
    /// First bytes of the frame after the program had processed it. Empty unless [`DumpConfig::exit`] is set.
    pub exit: Vec<u8>,
}

/// Kernel maps and program constants of a packet capture.
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

/// A packet capture for a port's program. When the ring buffer is full, frames are only counted and not captured. The
/// program never waits for the reader of the ring buffer.
#[derive(Debug)]
pub struct Dump {
    maps: Arc<DumpMaps>,
}

impl Dump {
    /// Creates the maps of a packet capture.
    ///
    /// # Errors
    /// Returns [`Error::Map`] without the required privilege, or if the size of the ring buffer is not a
    /// power of two.
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

    /// Returns a reader that takes the captured frames out of the ring buffer.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn reader(&self) -> Result<RingReader<Dumped>, Error> {
        RingReader::new(RING, self.maps.ring.as_fd(), parse)
    }

    /// Returns the number of frames that were not captured because the ring buffer was full.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
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
        counter: usize::try_from(word(36)?).ok().and_then(|index| Counter::ALL.get(index).copied()),
        rule: word(40)?.checked_sub(1),
        lengths: [word(20)?, word(24)?],
        entry: bytes.get(RECORD_SIZE..after)?.to_vec(),
        exit: bytes.get(after..after + exit)?.to_vec(),
    })
}
