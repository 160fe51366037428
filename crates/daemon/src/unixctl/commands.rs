//! The commands of `ovs-appctl` that concern the daemon as a whole.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use control::{Plane, Store};
use model::FdbFilter;
use tokio::sync::watch;

use super::{Answer, Commands, datapath};
use crate::cmd::run::set_log_level;
use crate::database::{Layout, UNTAGGED};

/// Addresses that `fdb/show` prints at most.
const FDB_LIMIT: usize = 1_000_000;

/// What every daemon answers. `layout` numbers ports as OpenFlow does, where an OVSDB server is followed.
pub fn general(store: &Arc<Store>, layout: Option<watch::Receiver<Layout>>) -> Commands {
    let mut commands = Commands::default();
    let plane = || Arc::clone(store.plane());
    let to_end = Arc::clone(store);
    commands.add("exit", "[--cleanup]", 0..=1, move |_| {
        to_end.stop();
        Ok(String::new())
    });
    commands
        .add("version", "", 0..=0, |_| Ok(format!("ovs-vswitchd (Trivium) {}\n", env!("CARGO_PKG_VERSION"))));
    let asked = plane();
    commands.add("fdb/show", "BRIDGE", 1..=1, move |arguments| {
        let layout = layout.as_ref().map(|layout| layout.borrow().clone()).unwrap_or_default();
        fdb_show(&*asked, &layout, arguments.first().map_or("", String::as_str))
    });
    datapath::add(&mut commands, store);
    commands.add("vlog/set", "{SPEC | PATTERN:FACILITY:PATTERN}", 0..=16, |arguments| {
        arguments.iter().try_for_each(|spec| set_log_level(level(spec)?))?;
        Ok(String::new())
    });
    commands
}

/// As `ovs-vswitchd` prints it: `LOCAL` or the port's number, the VLAN with 0 for none, the address, seconds.
fn fdb_show(plane: &dyn Plane, layout: &Layout, bridge: &str) -> Answer {
    if !plane.bridges().iter().any(|state| state.name == bridge) {
        return Err("no such bridge".to_owned());
    }
    let filter =
        FdbFilter { bridge: Some(bridge.to_owned()), limit: Some(FDB_LIMIT), ..FdbFilter::default() };
    let ids: BTreeMap<String, u16> = plane.ports().into_iter().map(|port| (port.name, port.id)).collect();
    let ours = layout.desired.bridges.contains_key(bridge);
    let mut text = " port  VLAN  MAC                Age\n".to_owned();
    for entry in plane.fdb(&filter) {
        let number = layout.number(bridge, &entry.port).or_else(|| ids.get(&entry.port).copied());
        let port = match number {
            _ if ours && entry.port == bridge => "LOCAL".to_owned(),
            Some(number) => number.to_string(),
            None => "?".to_owned(),
        };
        let vlan = if ours && entry.vlan == UNTAGGED { 0 } else { entry.vlan.get() };
        let age = if entry.is_static { "static".to_owned() } else { format!("{:3}", entry.age_s) };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{port:>5}  {vlan:>4}  {}  {age}", entry.mac);
    }
    Ok(text)
}

/// The level in `LEVEL`, `MODULE:LEVEL` or `MODULE:FACILITY:LEVEL`, in our words. Modules and facilities are not told apart.
fn level(spec: &str) -> Result<&'static str, String> {
    if spec.starts_with("PATTERN:") || spec.starts_with("FACILITY:") {
        return Err(format!("{spec}: only levels can be set here"));
    }
    match spec.rsplit(':').next().unwrap_or_default().to_ascii_lowercase().as_str() {
        "off" => Ok("off"),
        "emer" | "err" => Ok("error"),
        "warn" => Ok("warn"),
        "info" => Ok("info"),
        "dbg" => Ok("debug"),
        _ => Err(format!("{spec}: no such level; use off, emer, err, warn, info or dbg")),
    }
}

#[cfg(test)]
mod tests {
    use super::level;

    #[test]
    fn levels_are_those_of_vlog() {
        assert_eq!(level("dbg"), Ok("debug"));
        assert_eq!(level("ANY:file:INFO"), Ok("info"));
        assert_eq!(level("ofproto:warn"), Ok("warn"));
        assert!(level("ofproto").is_err() && level("").is_err() && level("PATTERN:ANY:x").is_err());
    }
}
