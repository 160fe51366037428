//! Status of running ports and refused interfaces that the daemon writes to the database.

use std::collections::BTreeMap;

use model::PortState;
use ovsdb::{BridgeStatus, Desired, InterfaceStatus, SwitchStatus};

use super::desired::{DesiredConfig, TYPES};
use super::numbers::Numbers;

/// Returns the status of all bridges and interfaces that the daemon writes to the database. If the previous status
/// `before` is given, the result contains the interface statistics of `before` instead of the current statistics.
pub fn told(
    desired: &Desired,
    wanted: &DesiredConfig,
    numbers: &Numbers,
    states: &BTreeMap<String, PortState>,
    before: Option<&SwitchStatus>,
) -> SwitchStatus {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let mut told = SwitchStatus {
        version: Some(format!("{}-trivium", env!("CARGO_PKG_VERSION"))),
        iface_types: texts(&TYPES),
        datapath_types: texts(&["netdev", "system"]),
        ..SwitchStatus::default()
    };
    for (row, id) in &wanted.ids {
        told.bridges.insert(*row, BridgeStatus { datapath_id: Some(id.clone()) });
    }
    for (_, _, name, interface) in desired.interfaces() {
        let row = interface.uuid;
        let refused = wanted.refused.get(&row);
        let state = states.get(name).filter(|_| refused.is_none());
        let number = numbers.of(row).filter(|_| state.is_some());
        let mut one = match (state, refused) {
            (Some(state), _) => interface_told(state),
            (None, Some(_)) => InterfaceStatus::default(),
            // The row is not applied yet, so its status is unknown.
            (None, None) => continue,
        };
        one.ofport = Some(number.map_or(-1, i64::from));
        one.error = refused.cloned().or(one.error).or_else(|| wanted.lacks.get(&row).cloned());
        if let Some(before) = before {
            let last = before.interfaces.get(&row).map(|last| last.statistics.clone());
            one.statistics = last.unwrap_or(one.statistics);
        }
        told.interfaces.insert(row, one);
    }
    told
}

fn interface_told(state: &PortState) -> InterfaceStatus {
    let counters = &state.counters;
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let statistics = [
        ("rx_packets", counters.rx_packets),
        ("rx_bytes", counters.rx_bytes),
        ("rx_dropped", counters.drops),
        ("rx_missed_errors", counters.rx_missed),
        ("tx_packets", counters.tx_packets),
        ("tx_bytes", counters.tx_bytes),
    ];
    let driver = state.driver.clone().map(|driver| ("driver_name".to_owned(), driver));
    let mode = state.mode.clone().map(|mode| ("xdp_mode".to_owned(), mode));
    InterfaceStatus {
        ofport: None,
        error: state.trouble.clone(),
        admin_up: Some(state.admin_up),
        link_up: Some(state.link_up),
        link_speed: None,
        mtu: Some(state.mtu.into()),
        mac_in_use: state.mac.map(|mac| mac.to_string()),
        ifindex: state.ifindex.map(i64::from),
        statistics: statistics.into_iter().map(|(name, count)| (name.to_owned(), number(count))).collect(),
        status: driver.into_iter().chain(mode).collect(),
    }
}
