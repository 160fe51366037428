//! TAP devices. A TAP is an Ethernet port whose other side is a kernel interface, in this namespace
//! or in another namespace. Ports of the kinds `tap` and `internal` are TAPs. An `internal` port is
//! the interface of a bridge or router itself.
//!
//! Each queue of the port is one file descriptor of a multi-queue TAP, with a virtio header in front of each
//! frame. In both directions, the sender leaves checksums and segmentation to the receiver. Therefore a TCP
//! segment of 64 KiB passes the TAP as one packet in a chain of frames, which the kernel reads or writes
//! directly in the frame memory. A TAP needs one system call per packet, so its cost per byte can be reduced
//! only by larger packets.

mod control;
mod device;
mod hand_over;
mod queue;

pub use control::TapControl;
pub use device::{Tap, TapConfig, TapError};
pub use hand_over::TapHandOver;
pub use queue::TapQueue;
