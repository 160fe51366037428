//! Checks of the references from ports to filters: the filter must exist, and the port must support the actions of the
//! filter's rules.

use crate::check::references::GUESSED;
use crate::spelling::nearest;
use crate::{Cause, Config, FilterName, Problem};

pub(crate) fn filters(config: &Config, problems: &mut Vec<Problem>) {
    for (name, port) in &config.ports {
        let Some(filter) = &port.filter else { continue };
        let object = || format!("port.{name}.filter");
        if let Some(rules) = config.filters.get(filter).map(|filter| &filter.rules) {
            let kind = port.kind.name();
            let needs_hook = rules.iter().find(|rule| rule.action.needs_hook());
            if let Some(rule) = needs_hook.filter(|_| port.kind.xdp().is_none()) {
                let (filter, rule, action) = (filter.to_string(), rule.name.to_string(), rule.action.name());
                problems.push(Problem::new(object(), Cause::NeedsHook { kind, filter, rule, action }));
            }
        } else {
            let known = config.filters.keys().map(FilterName::as_str).filter(|_| problems.len() < GUESSED);
            let near = nearest(filter.as_str(), known).map(str::to_owned);
            let cause = Cause::NoSuchFilter { filter: filter.to_string(), near };
            problems.push(Problem::new(object(), cause));
        }
    }
}
