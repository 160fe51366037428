//! Commands `upcall/*` and `revalidator/*` of `ovs-appctl`: upcalls (packets that miss the flow caches) and cached
//! flows.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use control::{Plane, Store};
use model::{CachesState, FlowTuning};

use super::datapath::{DATAPATH, refused};
use super::{Answer, Commands};

/// Adds the `upcall/*` and `revalidator/*` commands to the registry.
pub fn add(commands: &mut Commands, store: &Arc<Store>) {
    let plane = || Arc::clone(store.plane());
    // The setting has no effect, because flows are always dumped with their match. The stored value is only
    // printed by `upcall/show`.
    let ufid = Arc::new(AtomicBool::new(true));
    let (asked, known) = (plane(), Arc::clone(&ufid));
    commands.add("upcall/show", "", 0..=0, move |_| Ok(show(&asked.caches(), known.load(Ordering::Relaxed))));
    let told = Arc::clone(&ufid);
    commands.add("upcall/enable-ufid", "", 0..=0, move |_| {
        told.store(true, Ordering::Relaxed);
        Ok("Datapath dumping tersely using UFID enabled for supported datapaths\n".to_owned())
    });
    commands.add("upcall/disable-ufid", "", 0..=0, move |_| {
        ufid.store(false, Ordering::Relaxed);
        Ok("Datapath dumping tersely using UFID disabled\n".to_owned())
    });
    let asked = plane();
    commands.add("upcall/set-flow-limit", "flow-limit-number", 1..=1, move |arguments| {
        let limit = arguments.first().and_then(|text| text.parse().ok()).unwrap_or_default();
        tune(&*asked, FlowTuning::Limit(limit), &format!("set flow_limit to {limit}\n"))
    });
    let asked = plane();
    commands.add("upcall/enable-megaflows", "", 0..=0, move |_| {
        tune(&*asked, FlowTuning::Megaflows(true), "megaflows enabled\n")
    });
    let asked = plane();
    commands.add("upcall/disable-megaflows", "", 0..=0, move |_| {
        tune(&*asked, FlowTuning::Megaflows(false), "megaflows disabled\n")
    });
    let asked = plane();
    commands.add("revalidator/wait", "", 0..=0, move |_| settle(&*asked, false));
    let asked = plane();
    commands.add("revalidator/purge", "", 0..=0, move |_| settle(&*asked, true));
}

/// Changes a setting of the workers' flow caches, and returns the output `done`. A change of the megaflow setting also
/// removes all cached flows, as in Open vSwitch.
fn tune(plane: &dyn Plane, tuning: FlowTuning, done: &str) -> Answer {
    plane.tune_flows(tuning).map_err(refused)?;
    if let FlowTuning::Megaflows(_) = tuning {
        settle(plane, true)?;
    }
    Ok(done.to_owned())
}

fn settle(plane: &dyn Plane, purge: bool) -> Answer {
    plane.settle_flows(purge).map_err(refused)?;
    Ok(String::new())
}

fn show(caches: &CachesState, ufid: bool) -> String {
    let slow_path = caches.slow_path.unwrap_or_default();
    let mut text = format!(
        "{DATAPATH}:\n  flows         : (current {}) (avg {}) (max {}) (limit {})\n  dump duration : {}ms\n  ufid enabled : {ufid}\n\n",
        slow_path.flows,
        slow_path.mean_flows,
        slow_path.most_flows,
        slow_path.limit,
        slow_path.round_us / 1000,
    );
    for cache in &caches.workers {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {}: (keys {})", cache.worker, cache.flows);
    }
    let _ = writeln!(text, "  upcalls       : {}", slow_path.upcalls);
    let _ = writeln!(text, "  revalidated   : {} (wrong {})", slow_path.revalidated, slow_path.wrong);
    text
}
