//! Programs and configurations that `trivium xdp bench` measures and compares.

use xdp::live::{Order, Traffic, Vary};

use crate::cli::XdpScenario;

/// Number of prefixes in the block list. Traffic has twice as many sources in random order.
pub const LISTED: u32 = 1 << 20;
/// Number of flows in scenarios without varying sources.
const FLOWS: u32 = 64;

/// A program, or the kernel itself, that processes the frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plane {
    /// Program that drops without reading the frame.
    BareDrop,
    /// Program that reads the frame and drops.
    ReadingDrop,
    /// Port's program without a socket.
    PortDrop,
    /// Port's program with a filter of one rule.
    FilterDrop,
    /// Port's program with a filter whose rule matches the block list.
    BlockDrop,
    /// Program that swaps the MAC addresses and transmits.
    BareTransmit,
    /// Like [`Plane::BareTransmit`], as a custom program in front of the port's program.
    UserTransmit,
    /// Program that redirects by a device map.
    BareRedirect,
    /// Port's program with the bridge stage, whose MAC table has both addresses.
    BridgeRedirect,
    /// Minimal program that forwards by the kernel's routes.
    LeastRoute,
    /// Port's program with the stage that forwards by the kernel's routes.
    PortRoute,
    /// Kernel forwarding without a program.
    KernelRoute,
}

impl Plane {
    /// Returns the planes of a scenario in the order of the report.
    pub const fn of(scenario: XdpScenario) -> &'static [Plane] {
        match scenario {
            XdpScenario::Drop => &[Plane::BareDrop, Plane::ReadingDrop, Plane::PortDrop, Plane::FilterDrop],
            XdpScenario::Block => &[Plane::BareDrop, Plane::ReadingDrop, Plane::BlockDrop],
            XdpScenario::Tx => &[Plane::BareTransmit, Plane::UserTransmit],
            XdpScenario::Redirect => &[Plane::BareRedirect, Plane::BridgeRedirect],
            XdpScenario::Route => &[Plane::LeastRoute, Plane::PortRoute, Plane::KernelRoute],
        }
    }

    /// Returns the description of the plane.
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

    /// Returns whether the other planes of the scenario are compared with this one.
    pub const fn is_bare(self) -> bool {
        matches!(self, Plane::BareDrop | Plane::BareTransmit | Plane::BareRedirect | Plane::LeastRoute)
    }
}

/// Returns the traffic of a scenario, sent from a device.
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
