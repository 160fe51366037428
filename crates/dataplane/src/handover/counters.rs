//! Counters of a port in the hand-over state. Drop reasons are identified by their names, because their numbers differ
//! between releases. If a predecessor does not send a counter, the counter starts at zero.

use std::collections::BTreeMap;

use engine::counters::PortTotals;
use packet::DropReason;
use serde::{Deserialize, Serialize};
use xdp::bridge::BridgeCounts;
use xdp::route::RouteCounts;

/// Counters of one port that a successor continues.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CountersState {
    /// Number of packets received by workers.
    pub rx_packets: u64,
    /// Number of bytes received by workers.
    pub rx_bytes: u64,
    /// Number of packets sent by workers.
    pub tx_packets: u64,
    /// Number of bytes sent by workers.
    pub tx_bytes: u64,
    /// Number of packet copies and segments that workers have created.
    pub copies: u64,
    /// Number of packet copies that workers have passed to control threads.
    pub punted: u64,
    /// Number of packets that workers have dropped, by the name of the drop reason.
    pub drops: BTreeMap<String, u64>,
    /// Counters of packets and bytes that hooks have bridged from and to the port.
    pub bridged: HookedState,
    /// Counters of packets and bytes that hooks have routed from and to the port.
    pub routed: HookedState,
}

/// Counters of the packets and bytes that hooks have redirected (XDP_REDIRECT) from a port to other ports,
/// and from other ports to this port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HookedState {
    /// Number of packets that the port has received and its hook has redirected.
    pub rx_packets: u64,
    /// Number of bytes that the port has received and its hook has redirected.
    pub rx_bytes: u64,
    /// Number of packets that hooks of other ports have redirected to the port.
    pub tx_packets: u64,
    /// Number of bytes that hooks of other ports have redirected to the port.
    pub tx_bytes: u64,
}

impl CountersState {
    /// Returns the counters of a port. `totals` are the counters of the workers. `bridged` and `routed` are
    /// the counters of the hooks.
    pub fn new(totals: &PortTotals, bridged: BridgeCounts, routed: RouteCounts) -> CountersState {
        let drops = DropReason::ALL.iter().zip(&totals.drops).filter(|(_, packets)| **packets > 0);
        CountersState {
            rx_packets: totals.rx_packets,
            rx_bytes: totals.rx_bytes,
            tx_packets: totals.tx_packets,
            tx_bytes: totals.tx_bytes,
            copies: totals.copies,
            punted: totals.punted,
            drops: drops.map(|(reason, packets)| (reason.name().to_owned(), *packets)).collect(),
            bridged: HookedState {
                rx_packets: bridged.rx_packets,
                rx_bytes: bridged.rx_bytes,
                tx_packets: bridged.tx_packets,
                tx_bytes: bridged.tx_bytes,
            },
            routed: HookedState {
                rx_packets: routed.rx_packets,
                rx_bytes: routed.rx_bytes,
                tx_packets: routed.tx_packets,
                tx_bytes: routed.tx_bytes,
            },
        }
    }

    /// Converts the state into the counters of the workers. Drop reasons that do not exist in this release are omitted.
    pub fn totals(&self) -> PortTotals {
        let of = |reason: &DropReason| self.drops.get(reason.name()).copied().unwrap_or_default();
        PortTotals {
            rx_packets: self.rx_packets,
            rx_bytes: self.rx_bytes,
            tx_packets: self.tx_packets,
            tx_bytes: self.tx_bytes,
            copies: self.copies,
            punted: self.punted,
            drops: DropReason::ALL.iter().map(of).collect(),
        }
    }
}

impl From<HookedState> for BridgeCounts {
    fn from(state: HookedState) -> Self {
        let HookedState { rx_packets, rx_bytes, tx_packets, tx_bytes } = state;
        BridgeCounts { rx_packets, rx_bytes, tx_packets, tx_bytes }
    }
}

impl From<HookedState> for RouteCounts {
    fn from(state: HookedState) -> Self {
        let HookedState { rx_packets, rx_bytes, tx_packets, tx_bytes } = state;
        RouteCounts { rx_packets, rx_bytes, tx_packets, tx_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_other_releases_are_read_as_far_as_they_are_known() {
        let text = r#"{"rx_packets": 7, "drops": {"no-member": 3, "of-another-release": 5}, "unknown": 1}"#;
        let state: CountersState = serde_json::from_str(text).unwrap();
        let totals = state.totals();
        assert_eq!((totals.rx_packets, totals.tx_packets, totals.dropped()), (7, 0, 3));
        assert_eq!(totals.drops[DropReason::NoMember.index()], 3);
    }

    #[test]
    fn all_counters_come_back() {
        let mut drops = vec![0; DropReason::COUNT];
        drops[DropReason::PortDown.index()] = 9;
        let totals = PortTotals {
            rx_packets: 1,
            rx_bytes: 2,
            tx_packets: 3,
            tx_bytes: 4,
            copies: 5,
            punted: 6,
            drops,
        };
        let bridged = BridgeCounts { rx_packets: 10, rx_bytes: 11, tx_packets: 12, tx_bytes: 13 };
        let routed = RouteCounts { rx_packets: 20, rx_bytes: 21, tx_packets: 22, tx_bytes: 23 };
        let text = serde_json::to_string(&CountersState::new(&totals, bridged, routed)).unwrap();
        let state: CountersState = serde_json::from_str(&text).unwrap();
        assert_eq!(state.totals(), totals);
        assert_eq!((BridgeCounts::from(state.bridged), RouteCounts::from(state.routed)), (bridged, routed));
    }
}
