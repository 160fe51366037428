//! Configuration of a port's XDP program. The values are written to the read-only data of the BPF object before the
//! object is loaded (`bpf/include/trivium_layout.h`). The verifier then removes code that is not used.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use libbpf_rs::libbpf_sys as ffi;

/// Maximum number of receive queues of one port. The socket map has one slot for each queue.
pub(crate) const QUEUES_MAX: u32 = 1 << 16;

/// Type of a port: used for bridging, used for routing, or closed. The type determines which received frames the XDP
/// program passes to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The port belongs to a bridge or another function that processes all frames. Every frame goes to the AF_XDP
    /// socket of its receive queue, and no frame goes to the kernel.
    Bridged,
    /// The port is a routed port. The kernel receives ARP and other non-IP protocols, multicast and broadcast,
    /// fragments, malformed headers and packets to the port's local addresses. All other frames go to the socket of
    /// their receive queue. Headers after one or two VLAN tags are examined too.
    Routed,
    /// The port is closed: every frame is dropped before all stages of the program, also if the program has stages of
    /// a router, of kernel routing or of steering. A port is closed until its filter is installed.
    Closed,
}

/// Treatment of the frames of a receive queue that has no AF_XDP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WhenDown {
    /// Passes the frame to the kernel's stack.
    Pass,
    /// Drops the frame and counts it as dropped.
    Drop,
}

/// IP addresses of a routed port at which the kernel receives packets. The XDP program passes packets to these
/// addresses to the kernel. The program of a bridged port ignores the addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalAddresses {
    /// Unicast and subnet-broadcast IPv4 addresses (from the kernel's `local` table).
    pub v4: BTreeSet<Ipv4Addr>,
    /// Unicast and anycast IPv6 addresses. Packets to link-local addresses always go to the kernel.
    pub v6: BTreeSet<Ipv6Addr>,
}

/// Complete configuration of one port's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramConfig {
    /// Type of the port, which determines the frames that go to the kernel.
    pub owner: Owner,
    /// Treatment of frames from a receive queue that has no AF_XDP socket.
    pub when_down: WhenDown,
    /// Number of receive queues of the device, 1 to 65536. Frames from any other queue are passed or dropped, as
    /// `when_down` states.
    pub queues: u32,
    /// Local addresses that are written to the maps when the program is loaded.
    pub locals: LocalAddresses,
}

/// Size of `struct trivium_conf` (the constants of a port's program) in bytes. The struct consists of four 32-bit words
/// in host byte order.
pub(crate) const CONF_SIZE: usize = 16;

/// Port type (`TRIVIUM_OWNER_ROUTER`) that `struct trivium_conf` holds for a port with a virtual
/// router stage.
pub(crate) const OWNER_ROUTER: u32 = 2;

impl Owner {
    pub(crate) const fn code(self) -> u32 {
        match self {
            Owner::Bridged => 0,
            Owner::Routed => 1,
            Owner::Closed => 3,
        }
    }

    fn from_code(code: u32) -> Option<Owner> {
        match code {
            0 => Some(Owner::Bridged),
            1 | OWNER_ROUTER => Some(Owner::Routed),
            3 => Some(Owner::Closed),
            _ => None,
        }
    }
}

impl WhenDown {
    const fn verdict(self) -> u32 {
        match self {
            WhenDown::Pass => ffi::XDP_PASS,
            WhenDown::Drop => ffi::XDP_DROP,
        }
    }
}

/// Constants of a port's program: the part of a `ProgramConfig` that is fixed when the program is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Constants {
    /// Type of the port, which determines the frames that go to the kernel.
    pub owner: Owner,
    /// Treatment of frames from a receive queue that has no AF_XDP socket.
    pub when_down: WhenDown,
    /// Number of slots of the socket map, one for each receive queue.
    pub queues: u32,
}

impl Constants {
    /// Encodes the constants of a port's program as `struct trivium_conf`. `counters` is the number of counters that
    /// the BPF object declares. `router` states whether the program has a virtual router stage.
    pub(crate) fn to_bytes(self, counters: u32, router: bool) -> [u8; CONF_SIZE] {
        let owner = if router && self.owner != Owner::Closed { OWNER_ROUTER } else { self.owner.code() };
        let words = [owner, self.when_down.verdict(), self.queues, counters];
        let mut bytes = [0; CONF_SIZE];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Decodes the constants of a port's program from `struct trivium_conf`. Returns `None` if no program of this crate
    /// can have these constants.
    pub(crate) fn from_bytes(bytes: &[u8; CONF_SIZE]) -> Option<Constants> {
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let owner = Owner::from_code(word(0)?)?;
        let when_down =
            [WhenDown::Pass, WhenDown::Drop].into_iter().find(|w| Some(w.verdict()) == word(4))?;
        Some(Constants { owner, when_down, queues: word(8)? })
    }
}

impl From<&ProgramConfig> for Constants {
    fn from(config: &ProgramConfig) -> Constants {
        Constants { owner: config.owner, when_down: config.when_down, queues: config.queues }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_survive_the_way_into_the_kernel_and_back() {
        let owners =
            [(Owner::Bridged, false), (Owner::Routed, false), (Owner::Routed, true), (Owner::Closed, true)];
        for (owner, router) in owners {
            for when_down in [WhenDown::Pass, WhenDown::Drop] {
                let constants = Constants { owner, when_down, queues: 7 };
                assert_eq!(Constants::from_bytes(&constants.to_bytes(10, router)), Some(constants));
            }
        }
    }

    #[test]
    fn foreign_constants_are_refused() {
        let constants = Constants { owner: Owner::Bridged, when_down: WhenDown::Pass, queues: 1 };
        let mut bytes = constants.to_bytes(10, false);
        bytes[0] = 9;
        assert_eq!(Constants::from_bytes(&bytes), None);
        let mut bytes = constants.to_bytes(10, false);
        bytes[4] = 0;
        assert_eq!(Constants::from_bytes(&bytes), None, "XDP_ABORTED is no when_down");
    }
}
