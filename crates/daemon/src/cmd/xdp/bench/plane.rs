//! What `trivium xdp bench` measures, and beside what.

use xdp::live::{Order, Traffic, Vary};

use crate::cli::XdpScenario;

/// Prefixes of the block list, and twice as many sources in random order.
pub const LISTED: u32 = 1 << 20;
/// Flows where sources do not matter.
const FLOWS: u32 = 64;

/// A program, or the kernel itself, that frames come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plane {
    /// A program that drops without a look at the frame.
    BareDrop,
    /// The same with a look.
    ReadingDrop,
    /// The port's program without a socket.
    PortDrop,
    /// The port's program with a filter of one rule.
    FilterDrop,
    /// The port's program with a filter whose rule asks for the block list.
    BlockDrop,
    /// A program that swaps the addresses and sends back.
    BareTransmit,
    /// The same as a user's program in front of the port's.
    UserTransmit,
    /// A program that redirects by a device map.
    BareRedirect,
    /// The port's program with a bridge that knows both stations.
    BridgeRedirect,
    /// The least program that forwards by the kernel's routes.
    LeastRoute,
    /// The port's program with the stage of the kernel's routing.
    PortRoute,
    /// The kernel's own forwarding.
    KernelRoute,
}

impl Plane {
    /// The planes of a scenario in the order in which they are shown.
    pub const fn of(scenario: XdpScenario) -> &'static [Plane] {
        match scenario {
            XdpScenario::Drop => &[Plane::BareDrop, Plane::ReadingDrop, Plane::PortDrop, Plane::FilterDrop],
            XdpScenario::Block => &[Plane::BareDrop, Plane::ReadingDrop, Plane::BlockDrop],
            XdpScenario::Tx => &[Plane::BareTransmit, Plane::UserTransmit],
            XdpScenario::Redirect => &[Plane::BareRedirect, Plane::BridgeRedirect],
            XdpScenario::Route => &[Plane::LeastRoute, Plane::PortRoute, Plane::KernelRoute],
        }
    }

    /// In words.
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

    /// Whether the others of its scenario are compared with it.
    pub const fn is_bare(self) -> bool {
        matches!(self, Plane::BareDrop | Plane::BareTransmit | Plane::BareRedirect | Plane::LeastRoute)
    }
}

/// The frames of a scenario, out of a device.
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
