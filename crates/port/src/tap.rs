//! TAP devices: Ethernet ports whose other side is a kernel interface, in the host or in a namespace. They serve `tap` ports
//! and `internal` ones, the bridge's or router's own interface.
//!
//! Each queue is one descriptor of a multi-queue TAP with a virtio header before each frame, so checksums and segmentation are
//! left undone in both directions: a TCP segment of 64 KiB crosses as one packet over a chain of frames, straight to and from
//! the frame memory. A TAP needs one system call per packet; there is no other way than to make packets large.

mod device;
mod queue;

pub use device::{Tap, TapConfig, TapControl, TapError};
pub use queue::{TapHandOver, TapQueue};
