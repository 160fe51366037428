//! Replay of recorded frames by the traffic generator: `bpf/replay.bpf.c`.

use std::os::fd::{AsFd, OwnedFd};

use super::{Generator, Order};
use crate::object::{Opened, replay_object};
use crate::{Error, sys};

const FRAMES: &str = "replay_frames";
/// Maximum length of a replayed frame in bytes (`REPLAY_FRAME_MAX`).
pub(crate) const FRAME_MAX: usize = 1522;
const FRAME_MIN: usize = 14;
/// Size of `struct replay_frame` (a recorded frame with its length) in bytes.
pub(crate) const VALUE_SIZE: usize = 4 + FRAME_MAX + 2;
/// Maximum number of frames in one replay. This many frames take 100 MB of kernel memory.
const CAPACITY: usize = 1 << 16;

/// Recorded frames to send, and the rate and order in which they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replay<'a> {
    /// Index of the transmitting device, in the namespace of the sending thread.
    pub ifindex: u32,
    /// Frames to send, of 14 to 1522 bytes each. There are at most 65536 frames.
    pub frames: &'a [Vec<u8>],
    /// Order in which the frames are sent. After the last frame, the first frame is sent again.
    pub order: Order,
    /// Rate in packets per second, like [`super::Traffic::rate`].
    pub rate: Option<u64>,
    /// Whether the program is attached to a device while it sends frames, like [`super::Traffic::park`].
    pub park: bool,
}

impl Replay<'_> {
    /// Returns whether a replay can send frames of `length` bytes.
    #[must_use]
    pub fn fits(length: usize) -> bool {
        (FRAME_MIN..=FRAME_MAX).contains(&length)
    }

    fn check(&self) -> Result<u32, Error> {
        let wrong = |field, value: usize, allowed| Error::Generator {
            field,
            value: u64::try_from(value).unwrap_or(u64::MAX),
            allowed,
        };
        if let Some(frame) = self.frames.iter().find(|frame| !Replay::fits(frame.len())) {
            return Err(wrong("length of a frame", frame.len(), "give 14 to 1522 bytes"));
        }
        if self.order == Order::Random(0) {
            return Err(wrong("seed", 0, "give anything else"));
        }
        if self.rate == Some(0) {
            return Err(wrong("rate", 0, "give at least one packet per second"));
        }
        let count = self.frames.len();
        let fits = u32::try_from(count).ok().filter(|_| (1..=CAPACITY).contains(&count));
        fits.ok_or_else(|| wrong("number of frames", count, "give 1 to 65536"))
    }

    fn map(&self) -> Result<OwnedFd, Error> {
        let failed = |operation| move |source| Error::Map { map: FRAMES, operation, source };
        let spec = sys::MapSpec {
            name: FRAMES,
            kind: sys::MapKind::Array,
            key: 4,
            value: u32::try_from(VALUE_SIZE).unwrap_or(u32::MAX),
            entries: self.check()?,
        };
        let map = sys::map_create(spec, None).map_err(failed("create"))?;
        for (frame, key) in self.frames.iter().zip(0_u32..) {
            let mut value = [0; VALUE_SIZE];
            let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
            value[..4].copy_from_slice(&length.to_ne_bytes());
            value[4..4 + frame.len()].copy_from_slice(frame);
            sys::map_update(map.as_fd(), &key.to_ne_bytes(), &value).map_err(failed("add to"))?;
        }
        Ok(map)
    }
}

impl Generator {
    /// Loads a traffic generator that sends recorded frames.
    ///
    /// # Errors
    /// Returns [`Error::Generator`] for a parameter that is out of range, and
    /// [`Error::Load`] or [`Error::Map`].
    pub fn replay(replay: &Replay<'_>) -> Result<Generator, Error> {
        let words = [replay.ifindex, replay.check()?, u32::from(matches!(replay.order, Order::Random(_))), 0];
        let constants: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut opened = Opened::new(replay_object(), "replay")?;
        opened.set_constants(&constants)?;
        opened.reuse(FRAMES, replay.map()?.as_fd())?;
        let park = replay.park.then_some(replay.ifindex);
        Generator::over(&opened.load()?, "replay", vec![0; FRAME_MAX], replay.order, replay.rate, park)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_is_refused_by_name() {
        let frames = [vec![0; 14], vec![0; 1522]];
        let good = Replay { ifindex: 1, frames: &frames, order: Order::InTurn, rate: None, park: false };
        assert_eq!(good.check().unwrap(), 2);
        let (short, long) = ([vec![0; 13]], [vec![0; 1523]]);
        let bad = [
            Replay { frames: &[], ..good },
            Replay { frames: &short, ..good },
            Replay { frames: &long, ..good },
            Replay { order: Order::Random(0), ..good },
            Replay { rate: Some(0), ..good },
        ];
        for replay in bad {
            assert!(matches!(replay.check(), Err(Error::Generator { .. })), "{replay:?}");
        }
    }
}
