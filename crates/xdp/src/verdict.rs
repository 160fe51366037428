//! Verdicts of XDP programs: `enum xdp_action` of the kernel.

use std::fmt;

use libbpf_rs::libbpf_sys as ffi;

/// Verdict of an XDP program on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The program stopped because of a defect, or returned an unknown code. The kernel drops the frame.
    Aborted,
    /// The kernel drops the frame, because the program returned `XDP_DROP`.
    Drop,
    /// The frame goes to the kernel's stack.
    Pass,
    /// The frame is transmitted through the device that received it.
    Transmit,
    /// The frame goes to another device, CPU or socket.
    Redirect,
}

impl Verdict {
    /// All verdicts, in the order of the kernel's codes (`enum xdp_action`).
    pub const ALL: [Verdict; 5] =
        [Verdict::Aborted, Verdict::Drop, Verdict::Pass, Verdict::Transmit, Verdict::Redirect];

    /// Returns the name of the XDP verdict.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Aborted => "aborted",
            Verdict::Drop => "drop",
            Verdict::Pass => "pass",
            Verdict::Transmit => "transmit",
            Verdict::Redirect => "redirect",
        }
    }

    pub(crate) const fn code(self) -> u32 {
        match self {
            Verdict::Aborted => ffi::XDP_ABORTED,
            Verdict::Drop => ffi::XDP_DROP,
            Verdict::Pass => ffi::XDP_PASS,
            Verdict::Transmit => ffi::XDP_TX,
            Verdict::Redirect => ffi::XDP_REDIRECT,
        }
    }

    pub(crate) fn from_code(code: u32) -> Verdict {
        match code {
            ffi::XDP_DROP => Verdict::Drop,
            ffi::XDP_PASS => Verdict::Pass,
            ffi::XDP_TX => Verdict::Transmit,
            ffi::XDP_REDIRECT => Verdict::Redirect,
            _ => Verdict::Aborted,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
