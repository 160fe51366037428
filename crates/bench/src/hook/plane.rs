//! Variants of frame processing that `trivium xdp bench` measures and compares.

use xdp::live::{Order, Traffic, Vary};

use cli::args::XdpScenario;

/// Number of prefixes in the block list. The traffic has twice as many source addresses, so that half of them
/// are blocked.
pub const LISTED: u32 = 1 << 20;
/// Number of generated flows in scenarios with a single source address.
const FLOWS: u32 = 64;

/// A variant of frame processing: an XDP program with its configuration, or the kernel without an XDP program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plane {
    /// Minimal XDP program that drops without reading the frame.
    BareDrop,
    /// Minimal XDP program that reads the frame and then drops it.
    ReadingDrop,
    /// Trivium's XDP program for a port without an AF_XDP socket. This program drops all packets.
    PortDrop,
    /// Trivium's XDP program for a port, with a filter that has one rule.
    FilterDrop,
    /// Trivium's XDP program for a port, with a filter whose rule matches sources in the block list.
    BlockDrop,
    /// Minimal XDP program that swaps the MAC addresses and transmits the frame (XDP_TX).
    BareTransmit,
    /// The program of [`Plane::BareTransmit`] as a custom program, which runs before Trivium's XDP program for the
    /// port.
    UserTransmit,
    /// Minimal XDP program that redirects frames through a device map (DEVMAP).
    BareRedirect,
    /// Trivium's XDP program for a port, with the bridge stage. The MAC table of the stage contains the source and
    /// destination addresses of the frames.
    BridgeRedirect,
    /// Minimal XDP program that forwards packets according to the kernel's routes.
    LeastRoute,
    /// Trivium's XDP program for a port, with the stage that forwards packets according to copies of the kernel's
    /// routes.
    PortRoute,
    /// Forwarding according to the kernel's routes, without an XDP program.
    KernelRoute,
}

impl Plane {
    /// Returns the variants of a scenario in the order in which the report lists them.
    pub const fn of(scenario: XdpScenario) -> &'static [Plane] {
        match scenario {
            XdpScenario::Drop => &[Plane::BareDrop, Plane::ReadingDrop, Plane::PortDrop, Plane::FilterDrop],
            XdpScenario::Block => &[Plane::BareDrop, Plane::ReadingDrop, Plane::BlockDrop],
            XdpScenario::Tx => &[Plane::BareTransmit, Plane::UserTransmit],
            XdpScenario::Redirect => &[Plane::BareRedirect, Plane::BridgeRedirect],
            XdpScenario::Route => &[Plane::LeastRoute, Plane::PortRoute, Plane::KernelRoute],
        }
    }

    /// Returns the description of the variant for the report.
    pub const fn name(self) -> &'static str {
        match self {
            Plane::BareDrop => "bare drop",
            Plane::ReadingDrop => "bare drop that looks at the frame",
            Plane::PortDrop => "port's program, no socket, when_down drop",
            Plane::FilterDrop => "port's program, filter with one rule, drop",
            Plane::BlockDrop => "port's program, filter with a million prefixes, half of the sources listed",
            Plane::BareTransmit => "bare swap of addresses and transmit",
            Plane::UserTransmit => "port's hook, the same as a user's program in front",
            Plane::BareRedirect => "bare devmap redirect",
            Plane::BridgeRedirect => "port's program, bridge stage, known stations",
            Plane::LeastRoute => "least program that asks for the kernel's route",
            Plane::PortRoute => "port's program, stage of the kernel's routing",
            Plane::KernelRoute => "the kernel's forwarding",
        }
    }

    /// Returns whether this variant is the minimal program of its scenario, with which the other variants are
    /// compared.
    pub const fn is_bare(self) -> bool {
        matches!(self, Plane::BareDrop | Plane::BareTransmit | Plane::BareRedirect | Plane::LeastRoute)
    }
}

/// Returns the traffic that a scenario generates. The device with index `ifindex` sends the traffic.
pub fn traffic(scenario: XdpScenario, ifindex: u32) -> Traffic {
    let of = Traffic::to(ifindex);
    match scenario {
        XdpScenario::Block => Traffic {
            flows: 2 * LISTED,
            vary: Vary { source: true, ..Vary::default() },
            order: Order::Random(1),
            ..of
        },
        _ => Traffic { flows: FLOWS, vary: Vary { ports: true, ..Vary::default() }, ..of },
    }
}
