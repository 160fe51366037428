//! State of a TAP queue for a successor process. The module `queue` exports and imports the state.

use std::os::fd::OwnedFd;

/// State of one TAP queue for a hand-over. All frames of the queue have been returned to the pool.
#[derive(Debug)]
pub struct TapHandOver {
    /// File descriptor of the queue.
    pub fd: OwnedFd,
    /// Kind of the port, which is `tap` or `internal`.
    pub kind: &'static str,
    /// MTU of the interface in bytes.
    pub mtu: u32,
    /// Whether the kernel may leave the segmentation of UDP packets to Trivium.
    pub uso: bool,
}
