//! Numbers of `linux/if_xdp.h` and `asm/socket.h` that the libc crate lacks or types awkwardly.

pub(super) use libc::{XDP_PKT_CONTD, XDP_RING_NEED_WAKEUP};

/// Most packets that one `sendto` takes in copy mode (`setsockopt`; Linux 6.17; else 32).
pub(super) const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// What the kernel sends at least, and its default.
pub(super) const TX_BATCH: u32 = 32;
/// Descriptors of one packet that the kernel's copy mode takes: a linear part and 17 fragments.
pub(super) const MAX_SEGMENTS: u16 = 18;

/// A receive or transmit descriptor.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// Address in the umem.
    pub(crate) addr: u64,
    /// Bytes.
    pub(crate) len: u32,
    /// `XDP_PKT_CONTD`, `XDP_TX_METADATA`.
    pub(crate) options: u32,
}

const _: () = assert!(size_of::<Descriptor>() == size_of::<libc::xdp_desc>());
