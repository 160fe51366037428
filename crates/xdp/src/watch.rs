//! Counts frames that the kernel loses after an XDP program's verdict: redirects that the target refused, verdicts that
//! the driver does not support, and frames that a device did not accept. The XDP program itself counts such frames as
//! steered or redirected. Only the kernel's tracepoints report the losses (`bpf/watch.bpf.c`).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::object::{Opened, WATCH_CONF, watch_object};
use crate::ring::{self, RingReader, WallClock};
use crate::sys::{self, MapKind, MapSpec};
use crate::{Error, Verdict};

const MAP: &str = "watch_losses";
const RING: &str = "watch_ring";
const MISSED: &str = "watch_missed";
/// Size of `struct watch_key` (device, event and reason of a loss) in bytes. The struct has four words.
const KEY_SIZE: usize = 16;
/// Size of `struct watch_told` (a single loss event) in bytes.
const TOLD_SIZE: usize = 32;
/// Maximum number of entries in the map of loss counts: `WATCH_CAPACITY`.
const CAPACITY: u32 = 4096;

/// Point in the kernel at which a frame was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LossEvent {
    /// The XDP program aborted, returned an unknown verdict, or returned a verdict that the driver does not
    /// support.
    Exception,
    /// The target refused a redirected frame. Examples are a socket with a full ring and a device that is down.
    Redirect,
    /// The driver of the target device did not accept a redirected frame.
    Device,
    /// The device did not accept a frame that the program sent back through the receiving device (verdict `XDP_TX`).
    Transmit,
    /// The queue to the CPU to which the frame was redirected was full.
    Cpu,
}

impl LossEvent {
    /// All loss events, in the order of `enum watch_event`.
    pub const ALL: [LossEvent; 5] =
        [LossEvent::Exception, LossEvent::Redirect, LossEvent::Device, LossEvent::Transmit, LossEvent::Cpu];

    /// Returns the name of the kernel's tracepoint that reports the loss.
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

/// Number of frames lost after reception by one device, at one point in the kernel and for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Inode number of the receiving device's network namespace. 0 for losses in a queue to another CPU, and for losses
    /// that are not counted separately because the map is full.
    pub netns: u32,
    /// Index of the receiving device in its namespace. For losses in a queue to another CPU, this is the kernel's id of
    /// the CPU map.
    pub ifindex: u32,
    /// Point in the kernel at which the frames were lost.
    pub event: LossEvent,
    /// Reason for the loss: verdict of the program, number of the target CPU, or error number, depending on the event.
    /// 0 if the driver reports no reason.
    pub code: u32,
    /// Number of frames that were lost.
    pub frames: u64,
}

impl Loss {
    /// Returns the reason for the loss as text: a verdict, or the meaning of the error number.
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

/// A single loss event with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossAt {
    /// Time of the loss in nanoseconds since 1970.
    pub at_ns: u64,
    /// Point and reason of the loss, and number of the frames that were lost in this event. If a device or a CPU did
    /// not accept a batch of frames, the event has several frames.
    pub loss: Loss,
}

/// Kernel maps through which single loss events reach user space.
#[derive(Debug)]
struct Each {
    ring: OwnedFd,
    missed: OwnedFd,
}

/// Counts of the frames that are lost after an XDP verdict on the whole machine. Losses are counted until the value is
/// dropped.
#[derive(Debug)]
pub struct Losses {
    map: OwnedFd,
    each: Option<Each>,
    _links: Vec<OwnedFd>,
    left_out: Vec<(LossEvent, Error)>,
}

impl Losses {
    /// Starts to count lost frames. [`Losses::left_out`] returns the loss events that this kernel cannot report.
    ///
    /// # Errors
    /// Returns [`Error::Map`] without the required privilege.
    pub fn watch() -> Result<Losses, Error> {
        Losses::begin(None)
    }

    /// Starts to count lost frames like [`Losses::watch`], and also writes each loss event to a ring buffer of
    /// `ring_bytes` bytes. The size must be a power of two and at least one page.
    ///
    /// # Errors
    /// Returns [`Error::Map`] without the required privilege, or if the ring buffer has another size.
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
            // This entry counts losses for which the map has no free key.
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

    /// Returns a reader that takes the single loss events out of the ring buffer. Returns `None` unless the counting
    /// was started with [`Losses::watch_each`].
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn reader(&self) -> Result<Option<RingReader<LossAt>>, Error> {
        self.each.as_ref().map(|each| RingReader::new(RING, each.ring.as_fd(), told)).transpose()
    }

    /// Returns the number of loss events that were not written to the ring buffer because it was full. The result of
    /// [`Losses::read`] includes these losses.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn missed(&self) -> Result<u64, Error> {
        self.each.as_ref().map_or(Ok(0), |each| ring::missed(MISSED, each.missed.as_fd()))
    }

    /// Returns the loss events that this kernel cannot report, each with the error that prevented the use of its
    /// tracepoint.
    #[must_use]
    pub fn left_out(&self) -> &[(LossEvent, Error)] {
        &self.left_out
    }

    /// Returns the numbers of frames lost since the counting was started, by device, event and reason.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
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

/// Decodes a loss from a `struct watch_key`. `frames` is the number of lost frames. Returns `None` if the number of the
/// event is unknown.
fn loss(key: &[u8], frames: u64) -> Option<Loss> {
    let mut words = key.chunks_exact(4).filter_map(|word| Some(u32::from_ne_bytes(word.try_into().ok()?)));
    let [netns, ifindex, event, code] = std::array::from_fn(|_| words.next().unwrap_or(0));
    let event = LossEvent::ALL.into_iter().zip(0..).find(|(_, number)| *number == event)?.0;
    Some(Loss { netns, ifindex, event, code, frames })
}

/// Decodes a single loss event from a `struct watch_told`. Returns `None` if the number of the event is unknown.
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
