//! Log levels for each destination and log module, and the conversion of these levels into tracing filters.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::{VLOG_MODULES, VlogDestination, VlogLevel};

/// Log level of all modules at the start of the daemon.
const DEFAULT: VlogLevel = VlogLevel::Info;

/// Open vSwitch's module name for each prefix of tracing targets (Rust module paths). The longest prefix that
/// matches a target determines the module. A target that is itself a module name belongs to that module.
const TARGETS: [(&str, &str); 18] = [
    ("control", "unixctl"),
    ("dataplane", "dpif"),
    ("dataplane::flows", "ofproto_dpif"),
    ("dataplane::open", "netdev_linux"),
    ("dataplane::pins", "netdev_linux"),
    ("dataplane::ports", "netdev_linux"),
    ("dataplane::routers", "ovs_router"),
    ("dataplane::watch", "netdev_linux"),
    ("netlink", "route_table"),
    ("openflow", "rconn"),
    ("openflow::session", "vconn"),
    ("openflow::session::request", "ofproto"),
    ("ovs::controllers", "connmgr"),
    ("ovs::database", "bridge"),
    ("ovs::unixctl", "unixctl"),
    ("ovsdb", "ovsdb_idl"),
    ("trivium", "vswitchd"),
    ("xdp", "netdev_afxdp"),
];

/// Returns the Open vSwitch module to which messages with this tracing target belong.
pub fn module(target: &str) -> &'static str {
    if let Ok(at) = VLOG_MODULES.binary_search(&target) {
        return VLOG_MODULES.get(at).copied().unwrap_or("vswitchd");
    }
    let of = TARGETS.iter().filter(|(prefix, _)| target.starts_with(prefix));
    of.max_by_key(|(prefix, _)| prefix.len()).map_or("vswitchd", |(_, module)| module)
}

/// Log levels of the destinations syslog, console and log file. Each destination has a default
/// level, and may have different levels for single modules.
#[derive(Clone, Debug)]
pub struct Levels([Of; 3]);

#[derive(Clone, Debug)]
struct Of {
    all: VlogLevel,
    modules: BTreeMap<&'static str, VlogLevel>,
}

impl Default for Levels {
    fn default() -> Levels {
        Levels(std::array::from_fn(|_| Of { all: DEFAULT, modules: BTreeMap::new() }))
    }
}

fn index(destination: VlogDestination) -> usize {
    match destination {
        VlogDestination::Syslog => 0,
        VlogDestination::Console => 1,
        VlogDestination::File => 2,
    }
}

impl Levels {
    /// Sets the log level of a module at a destination. `None` means all modules or all destinations.
    pub fn set(
        &mut self,
        module: Option<&'static str>,
        destination: Option<VlogDestination>,
        level: VlogLevel,
    ) {
        for (at, of) in self.0.iter_mut().enumerate() {
            if destination.is_some_and(|destination| index(destination) != at) {
                continue;
            }
            match module {
                Some(module) => {
                    of.modules.insert(module, level);
                }
                None => {
                    of.all = level;
                    of.modules.clear();
                }
            }
        }
    }

    fn of(&self, destination: VlogDestination) -> &Of {
        let [syslog, console, file] = &self.0;
        match destination {
            VlogDestination::Syslog => syslog,
            VlogDestination::Console => console,
            VlogDestination::File => file,
        }
    }

    fn level(&self, module: &str, destination: VlogDestination) -> VlogLevel {
        let of = self.of(destination);
        of.modules.get(module).copied().unwrap_or(of.all)
    }

    /// Returns the log filter of a destination in the syntax of `RUST_LOG`.
    pub fn directives(&self, destination: VlogDestination) -> String {
        let word = |level| match level {
            VlogLevel::Off => "off",
            VlogLevel::Emer | VlogLevel::Err => "error",
            VlogLevel::Warn => "warn",
            VlogLevel::Info => "info",
            VlogLevel::Dbg => "debug",
        };
        let of = self.of(destination);
        let mut text = word(of.all).to_owned();
        if of.modules.is_empty() {
            return text;
        }
        // A longer target may belong to another module than its prefix, so every target is listed.
        let targets = TARGETS.iter().copied().chain(VLOG_MODULES.iter().map(|module| (*module, *module)));
        for (target, module) in targets {
            // Writing to a string cannot fail.
            let _ = write!(text, ",{target}={}", word(self.level(module, destination)));
        }
        text
    }

    /// Returns the log levels in the format of `vlog/list`.
    pub fn list(&self) -> String {
        let mut text = String::from(
            "                 console    syslog    file\n                 -------    ------    ------\n",
        );
        for module in VLOG_MODULES {
            let name = |destination| self.level(module, destination).name();
            let [syslog, console, file] = VlogDestination::ALL.map(name);
            let _ = writeln!(text, "{module:<16}  {console:>4}       {syslog:>4}       {file:>4}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_belong_to_the_module_of_their_longest_prefix() {
        for (target, of) in [
            ("vconn", "vconn"),
            ("openflow::session::request", "ofproto"),
            ("openflow::controllers", "rconn"),
            ("dataplane::flows::leader", "ofproto_dpif"),
            ("ovs::database", "bridge"),
            ("ovsdb::client", "ovsdb_idl"),
            ("trivium::run", "vswitchd"),
            ("hyper", "vswitchd"),
        ] {
            assert_eq!(module(target), of, "{target}");
            assert!(VLOG_MODULES.contains(&of));
        }
        assert!(TARGETS.iter().all(|(_, module)| VLOG_MODULES.contains(module)));
    }

    #[test]
    fn levels_make_filters() {
        let mut levels = Levels::default();
        assert_eq!(levels.directives(VlogDestination::File), "info");
        levels.set(Some("vconn"), Some(VlogDestination::File), VlogLevel::Dbg);
        let filter = levels.directives(VlogDestination::File);
        assert!(filter.contains(",openflow::session=debug") && filter.contains(",vconn=debug"), "{filter}");
        assert!(filter.contains(",openflow::session::request=info"), "{filter}");
        assert_eq!(levels.directives(VlogDestination::Console), "info");
        assert!(
            levels.list().contains("vconn             INFO       INFO        DBG\n"),
            "{}",
            levels.list()
        );
        levels.set(None, None, VlogLevel::Off);
        assert_eq!(levels.directives(VlogDestination::File), "off");
    }
}
