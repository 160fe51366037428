//! General commands of `ovs-appctl` (`exit`, `version`), and the creation of the registry of all commands.

use std::sync::Arc;

use control::Store;
use tokio::sync::mpsc::UnboundedSender;

use super::{Commands, absent, bridge, conntrack, coverage, datapath, fdb, trace, upcall};
use crate::database::Database;

/// Returns the registry with all commands of this crate.
///
/// - `database`: source of the OpenFlow port numbers. `None` if no OVSDB server is configured.
/// - `reconnect`: channel that receives the name of the bridge whose controllers are to be reconnected, or `None` for
///   all bridges.
pub fn general(
    store: &Arc<Store>,
    database: Option<&Database>,
    reconnect: UnboundedSender<Option<String>>,
) -> Commands {
    let mut commands = Commands::default();
    let to_end = Arc::clone(store);
    // The process may end at once, and with it the connection.
    commands.add_last("exit", "[--cleanup]", 0..=1, move || to_end.stop());
    commands
        .add("version", "", 0..=0, |_| Ok(format!("ovs-vswitchd (Trivium) {}\n", env!("CARGO_PKG_VERSION"))));
    let layout = database.map(|database| database.layout.clone());
    let stations = database.map(|database| (database.layout.clone(), Arc::clone(&database.stations)));
    absent::add(&mut commands, store);
    bridge::add(&mut commands, store, reconnect);
    coverage::add(&mut commands, store);
    datapath::add(&mut commands, store, layout);
    conntrack::add(&mut commands, store);
    fdb::add(&mut commands, store, stations);
    trace::add(&mut commands, store);
    upcall::add(&mut commands, store);
    commands
}
