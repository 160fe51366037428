//! Removal of hooks (XDP programs) that earlier daemon processes left on devices and that no port uses.

use std::collections::BTreeMap;
use std::path::Path;

use model::Namespace;

use super::device::plain;
use super::pins::{Pinned, all, inode, take_off, unused};
use super::running_state::RunningState;

/// Detaches pinned hooks that no port uses, in the network namespaces that this daemon uses. Also removes the pins of
/// devices that no longer exist.
pub fn sweep(running_state: &RunningState) {
    let mut places: BTreeMap<u64, Option<Namespace>> = BTreeMap::new();
    for running in running_state.ports.values() {
        if let Some(namespace) = running.wanted.port.kind.device().and_then(|(_, namespace)| namespace) {
            places.extend(inode(&namespace.path()).map(|inode| (inode, Some(namespace.clone()))));
        }
    }
    places.extend(inode(Path::new("/proc/self/ns/net")).map(|inode| (inode, None)));
    for pinned in all().into_iter().filter(|pinned| !is_claimed(running_state, pinned)) {
        let Some(_locked) = unused(&pinned.path) else { continue };
        match places.get(&pinned.namespace) {
            Some(namespace) => match take_off(&pinned, namespace.as_ref()) {
                Ok(Some(device)) => tracing::info!(
                    port = pinned.port,
                    device,
                    "no port stands behind this hook of an earlier process; it was taken off"
                ),
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "a hook of an earlier process was not taken off"),
            },
            // In other namespaces, only the pins of devices that no longer exist are removed. `adopt` removes such a
            // pin.
            None => drop(xdp::adopt(&pinned.path)),
        }
    }
}

/// Returns whether the pin belongs to a running port, or to a port that waits for its device.
fn is_claimed(running_state: &RunningState, pinned: &Pinned) -> bool {
    running_state.ports.iter().any(|(name, running)| match &running.hook {
        Some(hook) => hook.pin().is_some_and(|pin| pin.name() == pinned.path.name()),
        None => running.wanted.policy.persist && plain(name) == pinned.port,
    })
}
