//! Sessions with OpenFlow controllers: one set for each bridge that has rules, followed as bridges come, change and go.
//!
//! Each bridge listens at `BRIDGE.mgmt` beside the API's socket, as `ovs-ofctl` expects it, and speaks with the controllers that its
//! configuration names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{BridgeName, OpenFlow};
use openflow::{Address, Controllers, Target};

use crate::plane::{DataPlane, Leader};

/// Follows the plane's bridges until it ends. `api` is the API's socket: bridges' sockets stand in its directory.
pub async fn run(plane: Arc<DataPlane>, api: PathBuf) {
    let directory = api.parent().unwrap_or(Path::new("/run/trivium")).to_owned();
    let mut leaders = plane.leaders();
    let mut sessions: BTreeMap<BridgeName, (Arc<Leader>, Controllers)> = BTreeMap::new();
    loop {
        let wanted = leaders.borrow_and_update().clone();
        let stays = |name: &BridgeName, leader: &Arc<Leader>| {
            wanted.get(name).is_some_and(|(_, own)| Arc::ptr_eq(own, leader))
        };
        let gone: Vec<BridgeName> = sessions
            .iter()
            .filter(|(name, (leader, _))| !stays(name, leader))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            if let Some((_, controllers)) = sessions.remove(&name) {
                controllers.shutdown().await;
            }
        }
        for (name, (settings, leader)) in wanted {
            leader.of(&plane);
            let (_, controllers) = sessions.entry(name.clone()).or_insert_with(|| {
                (Arc::clone(&leader), Controllers::new(Arc::clone(&leader) as Arc<dyn openflow::Datapath>))
            });
            controllers.set(targets(&name, &settings, &directory)).await;
        }
        if leaders.changed().await.is_err() {
            return;
        }
    }
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
