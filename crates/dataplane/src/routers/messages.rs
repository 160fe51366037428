//! Names of a router and its namespace in log messages and errors.

use model::RouterName;

/// Returns the name by which messages refer to a router.
pub fn object(name: &RouterName) -> String {
    format!("router.{name}")
}

/// Returns the name by which messages refer to a router's namespace.
pub fn place(wanted: &model::Router) -> String {
    let named = wanted.settings.namespace.as_ref().map(|namespace| format!("namespace {namespace}"));
    named.unwrap_or_else(|| "the daemon's namespace".to_owned())
}
