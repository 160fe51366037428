//! Differences between the filters of two configurations.

use crate::diff::change::{ConfigChange, FieldChange, How, fields, prefixed};
use crate::{Config, Filter};

pub(crate) fn filters(old: &Config, new: &Config, changes: &mut Vec<ConfigChange>) {
    for (name, filter) in &new.filters {
        let (before, name, boxed) = (old.filters.get(name), name.clone(), Box::new(filter.clone()));
        match before {
            None => changes.push(ConfigChange::AddFilter { name, filter: boxed }),
            Some(before) if before != filter => {
                let fields = filter_changes(before, filter);
                changes.push(ConfigChange::ChangeFilter { name, filter: boxed, fields });
            }
            Some(_) => {}
        }
    }
}

/// Returns the differences between two filters, one entry for each rule or setting that differs.
fn filter_changes(old: &Filter, new: &Filter) -> Vec<FieldChange> {
    let live = |field: String, old: String, new: String| FieldChange { field, old, new, how: How::Live };
    let mut changes = Vec::new();
    if old.blocklist != new.blocklist {
        let text = |filter: &Filter| {
            filter.blocklist.as_ref().map_or_else(|| "none".to_owned(), |path| path.display().to_string())
        };
        changes.push(live("blocklist".to_owned(), text(old), text(new)));
    }
    if old.unreadable != new.unreadable {
        let text = |filter: &Filter| filter.unreadable.name().to_owned();
        changes.push(live("unreadable".to_owned(), text(old), text(new)));
    }
    let find = |filter: &Filter, name| filter.rules.iter().find(|rule| rule.name == name).cloned();
    for rule in &old.rules {
        match find(new, rule.name.clone()) {
            None => {
                let action = rule.action.name().to_owned();
                changes.push(live(format!("rule.{}", rule.name), action, "removed".to_owned()));
            }
            Some(after) => {
                let prefix = format!("rule.{}", rule.name);
                changes.extend(prefixed(&prefix, fields(rule, &after, |_| How::Live)));
            }
        }
    }
    for rule in new.rules.iter().filter(|rule| find(old, rule.name.clone()).is_none()) {
        let action = rule.action.name().to_owned();
        changes.push(live(format!("rule.{}", rule.name), "none".to_owned(), action));
    }
    if changes.is_empty() {
        let order = |filter: &Filter| {
            filter.rules.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>().join(" ")
        };
        changes.push(live("the order of rules".to_owned(), order(old), order(new)));
    }
    changes
}
