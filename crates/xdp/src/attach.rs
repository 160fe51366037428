//! Attaches an XDP program to a device with a BPF link. Native mode is tried before generic mode, and every refusal is
//! recorded with the driver's error message. The device is looked up in the network namespace of the calling thread.
//! The thread may leave the namespace afterwards.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys as ffi;

use crate::inspect::{device_text, inspect};
use crate::mode::{Fallback, Mode};
use crate::{Error, log, sys};

/// XDP modes that may be used to attach a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttachMode {
    /// Attaches the program in native mode only.
    Native,
    /// Attaches the program in generic mode only.
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

/// A new BPF link, the XDP mode in which the link runs the program, and the attach attempts that
/// were refused before.
#[derive(Debug)]
pub(crate) struct Linked {
    pub link: OwnedFd,
    pub device: String,
    pub mode: Mode,
    pub multi_buffer: bool,
    pub fallbacks: Vec<Fallback>,
}

/// A loaded XDP program that may be attached to a device, and whether it accepts multi-buffer frames.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub program: BorrowedFd<'a>,
    pub multi_buffer: bool,
}

/// Attaches the program `first` to a device and returns the link. If the device refuses `first` in an XDP mode, the
/// function tries the program that `linear` returns in the same mode. That program has no multi-buffer support.
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

/// Build of a port's program that accepts only single-buffer frames. The build is loaded only after
/// a driver has refused the multi-buffer build.
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

/// Adds a refused attach attempt to `tried`, unless the list already contains an attempt with this mode and reason.
fn record(tried: &mut Vec<Fallback>, refusal: Fallback) {
    let same = |earlier: &Fallback| {
        earlier.mode == refusal.mode && earlier.errno == refusal.errno && earlier.reason == refusal.reason
    };
    if !tried.iter().any(same) {
        tried.push(refusal);
    }
}

/// Returns the record of a refused attach attempt, with the driver's error message. The system call that creates a BPF
/// link returns only an error number. The attempt is therefore repeated over netlink, which also returns the driver's
/// message.
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
        // The repeated attempt succeeded, because the cause of the refusal no longer exists. The program is detached
        // again, because a netlink attachment would outlast the process.
        let (_detached, _) = log::captured(|| sys::netlink_detach(ifindex, mode.flag()));
    }
    let reason = log::kernel_message(&said).unwrap_or_default().to_owned();
    Fallback { mode, multi_buffer, errno: error.raw_os_error().unwrap_or(0), reason }
}

/// Returns the XDP mode in which a link's program runs, and the name of its device. Returns an error if this program is
/// not attached to the device with the link's interface index in the calling thread's namespace.
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
