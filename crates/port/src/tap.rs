//! TAP devices: Ethernet ports whose other side is a kernel interface, in the host's or another namespace.
//! TAPs serve `tap` ports and `internal` ports, which are the interfaces of a bridge or router itself.
//!
//! Each queue is one descriptor of a multi-queue TAP with a virtio header in front of each frame. Checksums
//! and segmentation are left undone in both directions. A TCP segment of 64 KiB therefore crosses as one
//! packet over a chain of frames, directly to and from the frame memory. A TAP needs one system call per
//! packet, so large packets are the only way to reduce the cost.

mod control;
mod device;
mod queue;

pub use control::TapControl;
pub use device::{Tap, TapConfig, TapError};
pub use queue::{TapHandOver, TapQueue};
