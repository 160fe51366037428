//! References between the objects of a configuration, for the checks of several kinds of objects.

use std::collections::{BTreeMap, BTreeSet};

use crate::spelling::nearest;
use crate::{BridgeName, Cause, Config, Namespace, PortName, RouterName};

/// Number of problems after which messages about missing ports, filters and steering policies no longer suggest a
/// similar name, because more suggestions would take too much time.
pub(crate) const GUESSED: usize = 50;

pub(crate) fn no_such_port(config: &Config, port: &PortName, problems: usize) -> Cause {
    let known = config.ports.keys().map(PortName::as_str).filter(|_| problems < GUESSED);
    let near = nearest(port.as_str(), known).map(str::to_owned);
    Cause::NoSuchPort { port: port.to_string(), near }
}

pub(crate) fn exists(config: &Config, declared: &BTreeSet<String>, port: &PortName) -> bool {
    config.ports.contains_key(port) || declared.contains(port.as_str())
}

pub(crate) fn namespace_text(namespace: Option<&Namespace>) -> String {
    namespace.map_or_else(|| "the daemon's namespace".to_owned(), |name| format!("namespace `{name}`"))
}

/// Bridge or router that a port belongs to.
#[derive(Clone, Copy)]
pub(crate) enum Function<'a> {
    Bridge(&'a BridgeName),
    Router(&'a RouterName),
}

pub(crate) type Functions<'a> = BTreeMap<&'a PortName, Function<'a>>;

impl std::fmt::Display for Function<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Function::Bridge(bridge) => write!(f, "bridge `{bridge}`"),
            Function::Router(router) => write!(f, "router `{router}`"),
        }
    }
}
