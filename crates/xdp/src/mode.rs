//! XDP modes, the XDP programs that devices already run, and failed attempts to attach a program.

use std::fmt;
use std::io;

use libbpf_rs::libbpf_sys as ffi;

/// XDP mode: the place in the receive path where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// The program runs in the driver, before a socket buffer is allocated.
    Native,
    /// The program runs in the kernel's generic receive path, after a socket buffer is allocated. This mode
    /// is slow, but works with every device.
    Generic,
    /// The program runs on the network card.
    Offload,
}

impl Mode {
    /// Returns the kernel flag that requests this XDP mode, for creating a link and for netlink.
    pub(crate) const fn flag(self) -> u32 {
        match self {
            Mode::Native => ffi::XDP_FLAGS_DRV_MODE,
            Mode::Generic => ffi::XDP_FLAGS_SKB_MODE,
            Mode::Offload => ffi::XDP_FLAGS_HW_MODE,
        }
    }

    /// Returns the keyword of this mode (`X`) in the command `ip link set dev DEVICE X off`.
    pub(crate) const fn ip_keyword(self) -> &'static str {
        match self {
            Mode::Native => "xdp",
            Mode::Generic => "xdpgeneric",
            Mode::Offload => "xdpoffload",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
            Mode::Offload => "offload",
        })
    }
}

/// An XDP program that is attached to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramOnDevice {
    /// Id of the program in the kernel.
    pub id: u32,
    /// Name of the program, up to 15 characters. Empty when the kernel does not show the name.
    pub name: String,
    /// XDP mode in which the program runs.
    pub mode: Mode,
    /// Id of the BPF link that attaches the program. `None` if the program was attached through netlink (`ip link`).
    pub link: Option<u32>,
}

/// An attempt to attach a program, which the kernel or the driver refused, with the reason for the refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// XDP mode that the attempt requested.
    pub mode: Mode,
    /// Whether the attempt used the build of the program that accepts multi-buffer frames.
    pub multi_buffer: bool,
    /// Error number that the kernel returned for the attempt.
    pub errno: i32,
    /// Error message of the driver for the attempt. Empty if the driver returned no message.
    pub reason: String,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let build = if self.multi_buffer { "" } else { " without multi-buffer" };
        write!(f, "{}{build}: {}", self.mode, io::Error::from_raw_os_error(self.errno))?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}
