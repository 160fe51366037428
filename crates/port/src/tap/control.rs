//! Control of a TAP's interface while a worker owns its queues.
#![allow(unsafe_code, reason = "an ioctl; see the SAFETY comment")]

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::sys;

const TUNSETCARRIER: u64 = 0x4004_54e2;

/// Handle that controls a TAP while a worker owns its queues. The TAP counts as in use while the handle exists.
#[derive(Debug)]
pub struct TapControl(OwnedFd);

impl TapControl {
    pub(super) fn new(queue: OwnedFd) -> Self {
        TapControl(queue)
    }

    /// Sets the carrier of the interface. The kernel ignores routes over an interface without a carrier.
    ///
    /// # Errors
    /// The kernel's error. The error number is `ENODEV` if the interface was deleted, `EINVAL`
    /// while the interface is not up, or `EPERM`.
    pub fn set_carrier(&self, there: bool) -> io::Result<()> {
        let mut there = i32::from(there);
        // SAFETY: TUNSETCARRIER reads one int.
        unsafe { sys::ioctl(self.0.as_fd(), TUNSETCARRIER, &mut there) }.map(drop)
    }
}
