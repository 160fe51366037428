//! What the kernel loses after a program's verdict: redirects that their target refused, verdicts that the driver
//! cannot do, frames that a device did not take. The hook has counted such a frame as steered or redirected; only the
//! kernel's tracepoints tell that it went no further (`bpf/watch.bpf.c`).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::object::{Opened, watch_object};
use crate::sys::{self, MapKind, MapSpec};
use crate::{Error, Verdict};

const MAP: &str = "watch_losses";
/// `struct watch_key`: four words.
const KEY_SIZE: usize = 16;
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

/// Counts losses of the whole machine until it is dropped.
#[derive(Debug)]
pub struct Losses {
    map: OwnedFd,
    _links: Vec<OwnedFd>,
    left_out: Vec<(LossEvent, Error)>,
}

impl Losses {
    /// Begins to count. What the kernel cannot tell is in [`Losses::left_out`].
    ///
    /// # Errors
    /// [`Error::Map`] without privilege.
    pub fn watch() -> Result<Losses, Error> {
        let spec = MapSpec { name: MAP, kind: MapKind::PerCpuHash, key: 16, value: 8, entries: CAPACITY };
        let failed = |operation| move |source| Error::Map { map: MAP, operation, source };
        let map = sys::map_create(spec, None).map_err(failed("create"))?;
        for event in (0_u32..).take(LossEvent::ALL.len()) {
            // What no key of its own is left for.
            let mut key = [0; KEY_SIZE];
            key[8..12].copy_from_slice(&event.to_ne_bytes());
            sys::map_zero_per_cpu(map.as_fd(), &key).map_err(failed("add to"))?;
        }
        let (mut links, mut left_out) = (Vec::new(), Vec::new());
        for event in LossEvent::ALL {
            match Losses::attach(event, map.as_fd()) {
                Ok(link) => links.push(link),
                Err(error) => left_out.push((event, error)),
            }
        }
        Ok(Losses { map, _links: links, left_out })
    }

    fn attach(event: LossEvent, map: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
        let mut opened = Opened::new(watch_object(), event.program())?;
        opened.reuse(MAP, map)?;
        let program = opened.load()?.program()?;
        let what = "attaching to a tracepoint";
        sys::trace(program.as_fd()).map_err(|source| Error::Query { what, source })
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
        let loss = |(key, frames): ([u8; KEY_SIZE], u64)| {
            let mut words =
                key.chunks_exact(4).filter_map(|word| Some(u32::from_ne_bytes(word.try_into().ok()?)));
            let [netns, ifindex, event, code] = std::array::from_fn(|_| words.next().unwrap_or(0));
            let event = LossEvent::ALL.into_iter().zip(0..).find(|(_, number)| *number == event)?.0;
            Some(Loss { netns, ifindex, event, code, frames })
        };
        Ok(entries.into_iter().filter_map(loss).filter(|loss| loss.frames > 0).collect())
    }
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
