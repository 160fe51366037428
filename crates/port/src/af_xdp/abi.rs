//! Constants and types of `linux/if_xdp.h` and `asm/socket.h` that the libc crate does not define, or defines
//! with types that are inconvenient here.

pub(super) use libc::{XDP_PKT_CONTD, XDP_RING_NEED_WAKEUP};

/// Socket option for the maximum number of packets that one `sendto` call transmits in copy mode (Linux
/// 6.17). Kernels without the option transmit at most 32 packets per call.
pub(super) const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// Maximum number of packets that one `sendto` call transmits on kernels without the socket option
/// `XDP_MAX_TX_SKB_BUDGET`. The option cannot be set to a smaller number.
pub(super) const TX_BATCH: u32 = 32;
/// Maximum number of descriptors of one packet in the kernel's copy mode (a linear part and 17 fragments).
pub(super) const MAX_SEGMENTS: u16 = 18;

/// A descriptor of the receive ring or of the transmit ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// Address of the first byte of the packet data, relative to the start of the umem.
    pub(crate) addr: u64,
    /// Number of bytes of packet data that the descriptor describes.
    pub(crate) len: u32,
    /// Flags of the descriptor: `XDP_PKT_CONTD`, `XDP_TX_METADATA`.
    pub(crate) options: u32,
}

const _: () = assert!(size_of::<Descriptor>() == size_of::<libc::xdp_desc>());
