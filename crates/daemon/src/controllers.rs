//! Sessions with OpenFlow controllers: one set for each bridge that has rules, followed as bridges come, change and go.
//!
//! Each bridge listens at `BRIDGE.mgmt` beside the API's socket, as `ovs-ofctl` expects it, and speaks with the controllers that its
//! configuration names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use model::{BridgeName, OpenFlow};
use openflow::{Address, Controllers, Target};
use ovsdb::ControllerTold;
use tokio::sync::watch;

use crate::database::Database;
use crate::plane::{DataPlane, Leader};

/// How often it is looked how controllers stand.
const LOOK: Duration = Duration::from_secs(1);

/// Sessions of one bridge.
type Led = BTreeMap<BridgeName, (Arc<Leader>, Controllers)>;

/// Follows the plane's bridges until it ends. `api` is the API's socket: bridges' sockets stand in its directory. A database is told how its
/// controllers stand.
pub async fn run(plane: Arc<DataPlane>, api: PathBuf, database: Option<Database>) {
    let directory = api.parent().unwrap_or(Path::new("/run/trivium")).to_owned();
    let mut leaders = plane.leaders();
    let mut sessions = Led::new();
    let mut tick = tokio::time::interval(LOOK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    follow(&plane, &mut leaders, &mut sessions, &directory).await;
    loop {
        tokio::select! {
            changed = leaders.changed() => {
                if changed.is_err() {
                    return;
                }
                follow(&plane, &mut leaders, &mut sessions, &directory).await;
            }
            _ = tick.tick() => {}
        }
        if let Some(database) = &database {
            tell(database, &sessions);
        }
    }
}

/// Starts, keeps and ends sessions.
async fn follow(
    plane: &Arc<DataPlane>,
    leaders: &mut watch::Receiver<BTreeMap<BridgeName, (OpenFlow, Arc<Leader>)>>,
    sessions: &mut Led,
    directory: &Path,
) {
    let wanted = leaders.borrow_and_update().clone();
    let stays = |name: &BridgeName, leader: &Arc<Leader>| {
        wanted.get(name).is_some_and(|(_, own)| Arc::ptr_eq(own, leader))
    };
    let gone = sessions.iter().filter(|(name, (leader, _))| !stays(name, leader));
    for name in gone.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
        if let Some((_, controllers)) = sessions.remove(&name) {
            controllers.shutdown().await;
        }
    }
    for (name, (settings, leader)) in wanted {
        leader.of(plane);
        let (_, controllers) = sessions.entry(name.clone()).or_insert_with(|| {
            (Arc::clone(&leader), Controllers::new(Arc::clone(&leader) as Arc<dyn openflow::Datapath>))
        });
        controllers.set(targets(&name, &settings, directory)).await;
    }
}

/// Writes into the database's rows whether controllers are there.
fn tell(database: &Database, sessions: &Led) {
    let desired = Arc::clone(&database.layout.borrow().desired);
    let mut told = BTreeMap::new();
    for (name, bridge) in &desired.bridges {
        let Some((_, controllers)) =
            sessions.iter().find(|(own, _)| own.as_str() == name).map(|(_, own)| own)
        else {
            continue;
        };
        let status = controllers.status();
        for (row, controller) in &bridge.controllers {
            let Ok(address) = controller.target.parse::<Address>() else { continue };
            let Some(own) = status.iter().find(|own| own.address == address) else { continue };
            let mut says = BTreeMap::new();
            says.insert("state".to_owned(), if own.connected { "ACTIVE" } else { "BACKOFF" }.to_owned());
            if let Some(error) = own.last_error.as_ref().filter(|_| !own.connected) {
                says.insert("last_error".to_owned(), error.clone());
            }
            told.insert(*row, ControllerTold { is_connected: own.connected, role: None, status: says });
        }
    }
    database.controllers.send_if_modified(|before| {
        let changed = *before != told;
        *before = told;
        changed
    });
}

fn targets(name: &BridgeName, settings: &OpenFlow, directory: &Path) -> Vec<Target> {
    let own = Address::ListenUnix(directory.join(format!("{name}.mgmt")));
    let others = settings.controllers.iter().filter_map(|text| match text.parse::<Address>() {
        Ok(address) => Some(address),
        Err(error) => {
            tracing::error!(bridge = %name, %error, "a controller is left out");
            None
        }
    });
    std::iter::once(own).chain(others).map(Target::new).collect()
}
