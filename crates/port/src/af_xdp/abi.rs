//! Constants and types of `linux/if_xdp.h` and `asm/socket.h` that the libc crate lacks or defines with
//! inconvenient types.

pub(super) use libc::{XDP_PKT_CONTD, XDP_RING_NEED_WAKEUP};

/// Socket option for the maximum number of packets that one `sendto` transmits in copy mode (Linux 6.17).
/// Older kernels use 32.
pub(super) const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// Minimum and default of the number of packets that one `sendto` transmits.
pub(super) const TX_BATCH: u32 = 32;
/// Maximum number of descriptors of one packet in the kernel's copy mode: a linear part and 17 fragments.
pub(super) const MAX_SEGMENTS: u16 = 18;

/// A receive or transmit descriptor.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// Address in the umem.
    pub(crate) addr: u64,
    /// Length in bytes.
    pub(crate) len: u32,
    /// Flags: `XDP_PKT_CONTD`, `XDP_TX_METADATA`.
    pub(crate) options: u32,
}

const _: () = assert!(size_of::<Descriptor>() == size_of::<libc::xdp_desc>());
