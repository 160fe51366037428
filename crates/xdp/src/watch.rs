//! What the kernel loses after a program's verdict: redirects that their target refused, verdicts that the driver
//! cannot do, frames that a device did not take. The hook has counted such a frame as steered or redirected; only the
//! kernel's tracepoints tell that it went no further (`bpf/watch.bpf.c`).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::object::{Opened, WATCH_CONF, watch_object};
use crate::ring::{self, RingReader, WallClock};
use crate::sys::{self, MapKind, MapSpec};
use crate::{Error, Verdict};

const MAP: &str = "watch_losses";
const RING: &str = "watch_ring";
const MISSED: &str = "watch_missed";
/// `struct watch_key`: four words.
const KEY_SIZE: usize = 16;
/// `struct watch_told`.
const TOLD_SIZE: usize = 32;
/// `WATCH_CAPACITY`.
const CAPACITY: u32 = 4096;

/// Where a frame was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LossEvent {
    /// Aborted, a verdict that is none, or one that the driver cannot do.
    Exception,
    /// A redirect that its target refused: a socket's full ring, a device that is down.
    Redirect,
    /// Redirected to a device that then did not take it.
    Device,
    /// Transmitted back by a device that then did not take it.
    Transmit,
    /// Redirected to a CPU whose queue is full.
    Cpu,
}

impl LossEvent {
    /// In the order of `enum watch_event`.
    pub const ALL: [LossEvent; 5] =
        [LossEvent::Exception, LossEvent::Redirect, LossEvent::Device, LossEvent::Transmit, LossEvent::Cpu];

    /// The kernel's tracepoint.
    #[must_use]
    pub const fn tracepoint(self) -> &'static str {
        match self {
            LossEvent::Exception => "xdp_exception",
            LossEvent::Redirect => "xdp_redirect_err",
            LossEvent::Device => "xdp_devmap_xmit",
            LossEvent::Transmit => "xdp_bulk_tx",
            LossEvent::Cpu => "xdp_cpumap_enqueue",
        }
    }

    const fn program(self) -> &'static str {
        match self {
            LossEvent::Exception => "watch_exception",
            LossEvent::Redirect => "watch_redirect",
            LossEvent::Device => "watch_device",
            LossEvent::Transmit => "watch_transmit",
            LossEvent::Cpu => "watch_cpu",
        }
    }
}

/// Frames that were lost in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Number of the receiving device's namespace; 0 where more were lost in different ways than are told apart, and on the
    /// way to a CPU.
    pub netns: u32,
    /// Index of the receiving device there; on the way to a CPU the kernel's id of the map of CPUs.
    pub ifindex: u32,
    /// Where.
    pub event: LossEvent,
    /// The verdict of an exception, the CPU, else an error number; 0 where the driver gives none.
    pub code: u32,
    /// How many.
    pub frames: u64,
}

impl Loss {
    /// The reason in words: a verdict, or what the error number means.
    #[must_use]
    pub fn reason(&self) -> String {
        match (self.event, i32::try_from(self.code)) {
            (LossEvent::Exception, _) => match Verdict::from_code(self.code) {
                Verdict::Aborted if self.code != 0 => format!("verdict {} is none", self.code),
                Verdict::Aborted => "aborted".to_owned(),
                verdict => format!("verdict {verdict} is not possible here"),
            },
            (LossEvent::Cpu, _) => format!("the queue of CPU {} is full", self.code),
            (_, Ok(0)) | (_, Err(_)) => "not taken".to_owned(),
            (LossEvent::Redirect, Ok(libc::ENOBUFS)) => "the socket's ring is full".to_owned(),
            (LossEvent::Redirect, Ok(libc::ENOMEM)) => "the socket has no free frame".to_owned(),
            (LossEvent::Redirect, Ok(libc::EINVAL)) => "the target cannot take it".to_owned(),
            (_, Ok(errno)) => {
                let text = std::io::Error::from_raw_os_error(errno).to_string();
                text.split(" (os error").next().unwrap_or_default().to_lowercase()
            }
        }
    }
}

/// One loss, as it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossAt {
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    /// What was lost: one frame, or several that a device or a CPU did not take at once.
    pub loss: Loss,
}

/// The maps that tell losses one by one.
#[derive(Debug)]
struct Each {
    ring: OwnedFd,
    missed: OwnedFd,
}

/// Counts losses of the whole machine until it is dropped.
#[derive(Debug)]
pub struct Losses {
    map: OwnedFd,
    each: Option<Each>,
    _links: Vec<OwnedFd>,
    left_out: Vec<(LossEvent, Error)>,
}

impl Losses {
    /// Begins to count. What the kernel cannot tell is in [`Losses::left_out`].
    ///
    /// # Errors
    /// [`Error::Map`] without privilege.
    pub fn watch() -> Result<Losses, Error> {
        Losses::begin(None)
    }

    /// The same, and tells each loss by itself in a ring of so many bytes: a power of two, from a page on.
    ///
    /// # Errors
    /// [`Error::Map`]: without privilege, or for a ring of another size.
    pub fn watch_each(ring_bytes: u32) -> Result<Losses, Error> {
        let ring =
            create(MapSpec { name: RING, kind: MapKind::Ring, key: 0, value: 0, entries: ring_bytes })?;
        let missed = MapSpec { name: MISSED, kind: MapKind::PerCpuArray, key: 4, value: 8, entries: 1 };
        Losses::begin(Some(Each { ring, missed: create(missed)? }))
    }

    fn begin(each: Option<Each>) -> Result<Losses, Error> {
        let spec = MapSpec { name: MAP, kind: MapKind::PerCpuHash, key: 16, value: 8, entries: CAPACITY };
        let failed = |operation| move |source| Error::Map { map: MAP, operation, source };
        let map = create(spec)?;
        for event in (0_u32..).take(LossEvent::ALL.len()) {
            // What no key of its own is left for.
            let mut key = [0; KEY_SIZE];
            key[8..12].copy_from_slice(&event.to_ne_bytes());
            sys::map_zero_per_cpu(map.as_fd(), &key).map_err(failed("add to"))?;
        }
        let (mut links, mut left_out) = (Vec::new(), Vec::new());
        for event in LossEvent::ALL {
            match attach(event, map.as_fd(), each.as_ref()) {
                Ok(link) => links.push(link),
                Err(error) => left_out.push((event, error)),
            }
        }
        Ok(Losses { map, each, _links: links, left_out })
    }

    /// The end of the ring where losses are taken out one by one; `None` unless it was asked for.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn reader(&self) -> Result<Option<RingReader<LossAt>>, Error> {
        self.each.as_ref().map(|each| RingReader::new(RING, each.ring.as_fd(), told)).transpose()
    }

    /// Losses that the ring had no room for; they are counted with the others all the same.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn missed(&self) -> Result<u64, Error> {
        self.each.as_ref().map_or(Ok(0), |each| ring::missed(MISSED, each.missed.as_fd()))
    }

    /// What this kernel cannot tell, and why.
    #[must_use]
    pub fn left_out(&self) -> &[(LossEvent, Error)] {
        &self.left_out
    }

    /// What was lost since the beginning, by device and reason.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn read(&self) -> Result<Vec<Loss>, Error> {
        let entries = sys::map_entries_per_cpu::<KEY_SIZE>(self.map.as_fd());
        let entries = entries.map_err(|source| Error::Map { map: MAP, operation: "read", source })?;
        let losses = entries.into_iter().filter_map(|(key, frames)| loss(&key, frames));
        Ok(losses.filter(|loss| loss.frames > 0).collect())
    }
}

fn create(spec: MapSpec) -> Result<OwnedFd, Error> {
    let map = spec.name;
    sys::map_create(spec, None).map_err(|source| Error::Map { map, operation: "create", source })
}

fn attach(event: LossEvent, map: BorrowedFd<'_>, each: Option<&Each>) -> Result<OwnedFd, Error> {
    let mut opened = Opened::new(watch_object(), event.program())?;
    opened.reuse(MAP, map)?;
    opened.set_section(WATCH_CONF, &u32::from(each.is_some()).to_ne_bytes())?;
    match each {
        Some(each) => {
            opened.reuse(RING, each.ring.as_fd())?;
            opened.reuse(MISSED, each.missed.as_fd())?;
        }
        None => [RING, MISSED].into_iter().try_for_each(|name| opened.leave_out(name))?,
    }
    let program = opened.load()?.program()?;
    let what = "attaching to a tracepoint";
    sys::trace(program.as_fd()).map_err(|source| Error::Query { what, source })
}

/// `struct watch_key` with a number of frames.
fn loss(key: &[u8], frames: u64) -> Option<Loss> {
    let mut words = key.chunks_exact(4).filter_map(|word| Some(u32::from_ne_bytes(word.try_into().ok()?)));
    let [netns, ifindex, event, code] = std::array::from_fn(|_| words.next().unwrap_or(0));
    let event = LossEvent::ALL.into_iter().zip(0..).find(|(_, number)| *number == event)?.0;
    Some(Loss { netns, ifindex, event, code, frames })
}

/// `struct watch_told`.
fn told(bytes: &[u8], clock: WallClock) -> Option<LossAt> {
    let bytes = bytes.get(..TOLD_SIZE)?;
    let at_ns = clock.at(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?));
    let frames = u32::from_ne_bytes(bytes.get(24..28)?.try_into().ok()?);
    Some(LossAt { at_ns, loss: loss(bytes.get(8..24)?, u64::from(frames))? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_in_words() {
        let reason = |event, code| Loss { netns: 1, ifindex: 2, event, code, frames: 1 }.reason();
        assert_eq!(reason(LossEvent::Exception, 0), "aborted");
        assert_eq!(reason(LossEvent::Exception, 9), "verdict 9 is none");
        assert_eq!(reason(LossEvent::Exception, 3), "verdict transmit is not possible here");
        assert_eq!(reason(LossEvent::Redirect, 105), "the socket's ring is full");
        assert_eq!(reason(LossEvent::Device, 100), "network is down");
        assert_eq!(reason(LossEvent::Transmit, 0), "not taken");
        assert_eq!(reason(LossEvent::Cpu, 0), "the queue of CPU 0 is full");
    }
}
