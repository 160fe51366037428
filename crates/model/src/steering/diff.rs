//! Differences between the steering policies of two configurations.

use std::collections::{BTreeMap, BTreeSet};

use crate::diff::change::{ConfigChange, FieldChange, How, fields};
use crate::{Config, SteeringPolicy};

pub(crate) fn policies(old: &Config, new: &Config, changes: &mut Vec<ConfigChange>) {
    for (name, steering) in &new.steering {
        let (before, name, boxed) = (old.steering.get(name), name.clone(), Box::new(steering.clone()));
        match before {
            None => changes.push(ConfigChange::AddSteering { name, steering: boxed }),
            Some(before) if before != steering => {
                let fields = steering_changes(before, steering);
                changes.push(ConfigChange::ChangeSteering { name, steering: boxed, fields });
            }
            Some(_) => {}
        }
    }
}

/// Returns the differences between two steering policies, one entry for each exact-match flow entry or
/// setting that differs.
fn steering_changes(old: &SteeringPolicy, new: &SteeringPolicy) -> Vec<FieldChange> {
    let bare = |steering: &SteeringPolicy| SteeringPolicy { flows: Vec::new(), ..steering.clone() };
    let mut changes = fields(&bare(old), &bare(new), |_| How::Live);
    let by_key = |steering: &SteeringPolicy| -> BTreeMap<_, _> {
        steering.flows.iter().map(|flow| (flow.key, (flow.to, flow.mark))).collect()
    };
    let (before, after) = (by_key(old), by_key(new));
    let text = |flow: Option<&(crate::SteeringTarget, u32)>, none: &str| match flow {
        None => none.to_owned(),
        Some((to, 0)) => to.to_string(),
        Some((to, mark)) => format!("{to} with mark {mark:#x}"),
    };
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let (old, new) = (before.get(key), after.get(key));
        if old != new {
            let (old, new) = (text(old, "none"), text(new, "removed"));
            changes.push(FieldChange { field: format!("flow {key}"), old, new, how: How::Live });
        }
    }
    if changes.is_empty() {
        let order = |steering: &SteeringPolicy| format!("{} flows", steering.flows.len());
        let field = "the order of flows".to_owned();
        changes.push(FieldChange { field, old: order(old), new: order(new), how: How::Live });
    }
    changes
}
