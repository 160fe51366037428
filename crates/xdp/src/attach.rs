//! Attaches a program to a device by a BPF link. The modes are tried best first, and every refusal is
//! recorded with the driver's error message. The device is looked up in the network namespace of the calling
//! thread, which may leave the namespace afterwards.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys as ffi;

use crate::inspect::{device_text, inspect};
use crate::{Error, Mode, log, sys};

/// XDP modes that may be used to attach a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttachMode {
    /// Attaches in native mode only.
    Native,
    /// Attaches in generic mode only.
    Generic,
    /// Attaches in native mode, or in generic mode if native mode is refused.
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

/// An attach attempt that a driver refused, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// XDP mode of the attempt.
    pub mode: Mode,
    /// Whether the attempt used the multi-buffer program.
    pub multi_buffer: bool,
    /// Error number that the kernel returned.
    pub errno: i32,
    /// Error message of the driver. Empty if the driver gave none.
    pub reason: String,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let build = if self.multi_buffer { "" } else { " without multi-buffer" };
        write!(f, "{}{build}: {}", self.mode, io::Error::from_raw_os_error(self.errno))?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}

/// A new link with the mode in use and the attempts that failed before.
#[derive(Debug)]
pub(crate) struct Linked {
    pub link: OwnedFd,
    pub device: String,
    pub mode: Mode,
    pub multi_buffer: bool,
    pub fallbacks: Vec<Fallback>,
}

/// A program that can be attached, with its multi-buffer support.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub program: BorrowedFd<'a>,
    pub multi_buffer: bool,
}

/// Attaches the program `first` to a device. Where a multi-buffer program is refused, attaches the program
/// that `linear` returns.
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
                    // Another process may have attached a program since the first check.
                    refuse_foreign(ifindex, &device)?;
                    record(&mut tried, refusal(ifindex, candidate, mode, multi_buffer, &error));
                }
            }
        }
    }
    Err(Error::Attach { device, tried })
}

/// The program without multi-buffer support, loaded only when needed.
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

/// Adds a refusal to the list. Leaves out a second refusal in the same mode for the same reason.
fn record(tried: &mut Vec<Fallback>, refusal: Fallback) {
    let same = |earlier: &Fallback| {
        earlier.mode == refusal.mode && earlier.errno == refusal.errno && earlier.reason == refusal.reason
    };
    if !tried.iter().any(same) {
        tried.push(refusal);
    }
}

/// Returns the refusal of an attach attempt with the driver's error message. Creating a link returns only an
/// error number, but netlink carries the driver's message. The attach is therefore repeated over netlink to
/// learn the reason.
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
        // The cause of the refusal is gone by now. A netlink attachment does not end with the process, so it
        // is removed.
        let (_detached, _) = log::captured(|| sys::netlink_detach(ifindex, mode.flag()));
    }
    let reason = log::kernel_message(&said).unwrap_or_default().to_owned();
    Fallback { mode, multi_buffer, errno: error.raw_os_error().unwrap_or(0), reason }
}

/// Returns the mode in which a link's program runs, and the name of its device. Fails when the calling
/// thread's namespace does not show the program on that device.
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
