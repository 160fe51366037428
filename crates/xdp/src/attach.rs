//! Puts a program on a device by a BPF link: the best allowed mode first, every refusal recorded
//! in the driver's own words. The device is looked up in the network namespace of the calling
//! thread, which may leave it afterwards.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys as ffi;

use crate::inspect::{device_text, inspect};
use crate::{Error, Mode, log, sys};

/// Which modes may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttachMode {
    /// Native only.
    Native,
    /// Generic only.
    Generic,
    /// Native, else generic.
    Auto,
}

impl AttachMode {
    fn modes(self) -> &'static [Mode] {
        match self {
            AttachMode::Native => &[Mode::Native],
            AttachMode::Generic => &[Mode::Generic],
            AttachMode::Auto => &[Mode::Native, Mode::Generic],
        }
    }
}

/// An attempt that a driver refused, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// The mode that was tried.
    pub mode: Mode,
    /// Whether the program was the multi-buffer one.
    pub multi_buffer: bool,
    /// The kernel's error number.
    pub errno: i32,
    /// The driver's own words; empty if it has none.
    pub reason: String,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let build = if self.multi_buffer { "" } else { " without multi-buffer" };
        write!(f, "{}{build}: {}", self.mode, io::Error::from_raw_os_error(self.errno))?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}

/// A link and how it came about.
#[derive(Debug)]
pub(crate) struct Linked {
    pub link: OwnedFd,
    pub device: String,
    pub mode: Mode,
    pub multi_buffer: bool,
    pub fallbacks: Vec<Fallback>,
}

/// A program that takes multi-buffer frames or not, as it says.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub program: BorrowedFd<'a>,
    pub multi_buffer: bool,
}

/// Attaches a program, or the other that `linear` gives where a multi-buffer one is refused.
pub(crate) fn attach(
    ifindex: u32,
    allowed: AttachMode,
    first: Candidate<'_>,
    linear: impl FnOnce() -> Result<Option<OwnedFd>, Error>,
) -> Result<Linked, Error> {
    let device = sys::device_name(ifindex).ok_or(Error::NoDevice { ifindex })?;
    refuse_foreign(ifindex, &device)?;
    let mut tried: Vec<Fallback> = Vec::new();
    let mut linear = LinearProgram::Unasked(linear);
    for &mode in allowed.modes() {
        for second in [false, true] {
            let (candidate, multi_buffer) = if !second {
                (first.program, first.multi_buffer)
            } else if let Some(program) = linear.get()?.filter(|_| first.multi_buffer) {
                (program, false)
            } else {
                continue;
            };
            match sys::link_create(candidate, ifindex, mode.flag()) {
                Ok(link) => {
                    return Ok(Linked { link, device, mode, multi_buffer, fallbacks: tried });
                }
                Err(error) => {
                    // Somebody may have been faster than us.
                    refuse_foreign(ifindex, &device)?;
                    record(&mut tried, refusal(ifindex, candidate, mode, multi_buffer, &error));
                }
            }
        }
    }
    Err(Error::Attach { device, tried })
}

/// The program without multi-buffer support, loaded only when it is needed.
enum LinearProgram<F> {
    Unasked(F),
    Known(Option<OwnedFd>),
}

impl<F: FnOnce() -> Result<Option<OwnedFd>, Error>> LinearProgram<F> {
    fn get(&mut self) -> Result<Option<BorrowedFd<'_>>, Error> {
        if let LinearProgram::Unasked(_) = self
            && let LinearProgram::Unasked(make) = std::mem::replace(self, LinearProgram::Known(None))
        {
            *self = LinearProgram::Known(make()?);
        }
        match self {
            LinearProgram::Known(program) => Ok(program.as_ref().map(AsFd::as_fd)),
            LinearProgram::Unasked(_) => Ok(None),
        }
    }
}

fn refuse_foreign(ifindex: u32, device: &str) -> Result<(), Error> {
    match inspect(ifindex)? {
        None => Ok(()),
        Some(program) => Err(Error::Foreign { device: device.to_owned(), program }),
    }
}

/// A second attempt in the same mode that fails for the same reason says nothing new.
fn record(tried: &mut Vec<Fallback>, refusal: Fallback) {
    let same = |earlier: &Fallback| {
        earlier.mode == refusal.mode && earlier.errno == refusal.errno && earlier.reason == refusal.reason
    };
    if !tried.iter().any(same) {
        tried.push(refusal);
    }
}

/// A link's creation answers a bare error number. Netlink carries the driver's own words, so the
/// same is asked once more that way, only to be told why not.
fn refusal(
    ifindex: u32,
    program: BorrowedFd<'_>,
    mode: Mode,
    multi_buffer: bool,
    error: &io::Error,
) -> Fallback {
    let flags = mode.flag() | ffi::XDP_FLAGS_UPDATE_IF_NOEXIST;
    let (result, said) = log::captured(|| sys::netlink_attach(ifindex, program, flags));
    if result.is_ok() {
        // What refused a moment ago has gone. It is not for us to keep an attachment that does
        // not end with the process.
        let (_detached, _) = log::captured(|| sys::netlink_detach(ifindex, mode.flag()));
    }
    let reason = log::kernel_message(&said).unwrap_or_default().to_owned();
    Fallback { mode, multi_buffer, errno: error.raw_os_error().unwrap_or(0), reason }
}

/// The mode in which a link's program runs, or an error when it is not on the link's device as
/// seen from here.
pub(crate) fn mode_of(info: &sys::LinkInfo) -> Result<(Mode, String), Error> {
    if info.ifindex == 0 {
        return Err(Error::DeviceGone { link: info.id });
    }
    let elsewhere = || Error::WrongNamespace { link: info.id, ifindex: info.ifindex };
    let query = crate::inspect::query(info.ifindex).map_err(|error| match error {
        Error::NoDevice { .. } => elsewhere(),
        other => other,
    })?;
    let modes =
        [(query.native, Mode::Native), (query.generic, Mode::Generic), (query.offload, Mode::Offload)];
    let found = modes.into_iter().find(|(id, _)| *id == info.program && *id != 0);
    let (_, mode) = found.ok_or_else(elsewhere)?;
    Ok((mode, device_text(info.ifindex)))
}
