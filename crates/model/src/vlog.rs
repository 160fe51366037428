//! Log levels in the form of Open vSwitch (ovs-appctl(8), "Logging commands"): modules, destinations, levels, and the
//! arguments of `vlog/set` and `--verbose`.

use std::str::FromStr;

/// Module names of Open vSwitch 3.1, in alphabetical order. Scripts of operators use these names, and each log message
/// of the daemon belongs to one module.
pub const VLOG_MODULES: &[&str] = &[
    "backtrace",
    "bfd",
    "bond",
    "bridge",
    "bundle",
    "bundles",
    "cfm",
    "collectors",
    "command_line",
    "connmgr",
    "conntrack",
    "conntrack_tp",
    "coverage",
    "ct_dpif",
    "daemon",
    "daemon_unix",
    "dns_resolve",
    "dpdk",
    "dpif",
    "dpif_lookup_autovalidator",
    "dpif_lookup_generic",
    "dpif_mfex_extract_study",
    "dpif_netdev",
    "dpif_netdev_extract",
    "dpif_netdev_impl",
    "dpif_netdev_lookup",
    "dpif_netlink",
    "dpif_netlink_rtnl",
    "entropy",
    "fail_open",
    "fatal_signal",
    "flow",
    "hmap",
    "in_band",
    "ipf",
    "ipfix",
    "jsonrpc",
    "lacp",
    "lldp",
    "lldpd",
    "lldpd_structs",
    "lockfile",
    "memory",
    "meta_flow",
    "native_tnl",
    "netdev",
    "netdev_afxdp",
    "netdev_dummy",
    "netdev_linux",
    "netdev_offload",
    "netdev_offload_tc",
    "netdev_vport",
    "netflow",
    "netlink",
    "netlink_conntrack",
    "netlink_notifier",
    "netlink_socket",
    "nx_match",
    "odp_execute",
    "odp_execute_impl",
    "odp_util",
    "ofp_actions",
    "ofp_bundle",
    "ofp_connection",
    "ofp_errors",
    "ofp_flow",
    "ofp_group",
    "ofp_match",
    "ofp_meter",
    "ofp_monitor",
    "ofp_msgs",
    "ofp_packet",
    "ofp_port",
    "ofp_protocol",
    "ofp_queue",
    "ofp_table",
    "ofp_util",
    "ofproto",
    "ofproto_dpif",
    "ofproto_dpif_mirror",
    "ofproto_dpif_monitor",
    "ofproto_dpif_rid",
    "ofproto_dpif_upcall",
    "ofproto_dpif_xlate",
    "ofproto_xlate_cache",
    "ovs_lldp",
    "ovs_numa",
    "ovs_rcu",
    "ovs_replay",
    "ovs_router",
    "ovs_thread",
    "ovsdb_cs",
    "ovsdb_error",
    "ovsdb_idl",
    "ox_stat",
    "pcap",
    "pmd_perf",
    "poll_loop",
    "process",
    "rconn",
    "reconnect",
    "route_table",
    "rstp",
    "rstp_sm",
    "sflow",
    "sha1",
    "signals",
    "socket_util",
    "socket_util_unix",
    "stp",
    "stream",
    "stream_fd",
    "stream_replay",
    "stream_ssl",
    "stream_tcp",
    "stream_unix",
    "svec",
    "system_stats",
    "tc",
    "timeval",
    "tunnel",
    "unixctl",
    "userspace_tso",
    "util",
    "uuid",
    "vconn",
    "vconn_stream",
    "vlog",
    "vswitchd",
];

/// A log level. The levels are ordered from the fewest to the most messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum VlogLevel {
    /// The daemon logs no messages.
    Off,
    /// The daemon logs only emergencies.
    Emer,
    /// The daemon logs errors and emergencies.
    Err,
    /// The daemon logs warnings and everything that `Err` logs.
    Warn,
    /// The daemon logs operational information and everything that `Warn` logs.
    Info,
    /// The daemon logs all messages.
    Dbg,
}

impl VlogLevel {
    const ALL: [VlogLevel; 6] =
        [VlogLevel::Off, VlogLevel::Emer, VlogLevel::Err, VlogLevel::Warn, VlogLevel::Info, VlogLevel::Dbg];

    /// Returns the name of the level in capital letters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            VlogLevel::Off => "OFF",
            VlogLevel::Emer => "EMER",
            VlogLevel::Err => "ERR",
            VlogLevel::Warn => "WARN",
            VlogLevel::Info => "INFO",
            VlogLevel::Dbg => "DBG",
        }
    }
}

/// Destination of log messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum VlogDestination {
    /// Messages go to the system log.
    Syslog,
    /// Messages go to standard error.
    Console,
    /// Messages go to the log file of the daemon.
    File,
}

impl VlogDestination {
    /// All destinations of log messages, in Open vSwitch's order.
    pub const ALL: [VlogDestination; 3] =
        [VlogDestination::Syslog, VlogDestination::Console, VlogDestination::File];

    /// Returns the name of the destination in capital letters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            VlogDestination::Syslog => "SYSLOG",
            VlogDestination::Console => "CONSOLE",
            VlogDestination::File => "FILE",
        }
    }
}

/// An argument of `vlog/set`, which changes log settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VlogSpec {
    /// `[MODULE][:DESTINATION][:LEVEL]` sets a log level. An absent module means all modules, an absent destination
    /// means all destinations, and an absent level means `dbg`.
    Level {
        /// Name of the module. `None`: all modules.
        module: Option<&'static str>,
        /// Destination of the messages. `None`: all destinations.
        destination: Option<VlogDestination>,
        /// Log level to set.
        level: VlogLevel,
    },
    /// `PATTERN:DESTINATION:PATTERN` sets the format of log lines.
    Pattern {
        /// Destination of the messages. `None`: all destinations.
        destination: Option<VlogDestination>,
        /// Format of log lines to set.
        pattern: String,
    },
    /// `FACILITY:NAME` sets the facility of the system log.
    Facility,
}

/// Facilities of the system log (RFC 5424 section 6.2.1), as named by Open vSwitch.
const FACILITIES: [&str; 20] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "clock", "ftp", "ntp",
    "audit", "alert", "clock2", "local0", "local1", "local2", "local3", "local4",
];

/// Returns the module with this name, ignoring case. Returns `None` if there is no such module.
#[must_use]
pub fn vlog_module(name: &str) -> Option<&'static str> {
    // Open vSwitch accepts dashes in place of underscores.
    let name = name.replace('-', "_");
    VLOG_MODULES.iter().copied().find(|module| module.eq_ignore_ascii_case(&name))
}

impl FromStr for VlogSpec {
    type Err = String;

    /// Parses an argument of `vlog/set`. The error is the message that Open vSwitch returns.
    fn from_str(text: &str) -> Result<VlogSpec, String> {
        const SEPARATORS: [char; 4] = [' ', ',', ':', '\t'];
        let is = |word: &str, other: &str| word.eq_ignore_ascii_case(other);
        let named = |word: &str| VlogDestination::ALL.into_iter().find(|known| is(known.name(), word));
        let trimmed = text.trim_start_matches(SEPARATORS);
        let (first, rest) = trimmed.split_once(SEPARATORS).unwrap_or((trimmed, ""));
        if is(first, "PATTERN") {
            let rest = rest.trim_start_matches(SEPARATORS);
            let (word, pattern) = rest.split_once(SEPARATORS).unwrap_or((rest, ""));
            let destination = match word {
                "" => return Err("missing destination".to_owned()),
                any if is(any, "ANY") => None,
                word => Some(named(word).ok_or_else(|| format!("unknown destination \"{word}\""))?),
            };
            return Ok(VlogSpec::Pattern { destination, pattern: pattern.to_owned() });
        }
        if is(first, "FACILITY") {
            let known = FACILITIES.iter().chain(&["local5", "local6", "local7"]).any(|name| is(name, rest));
            return if known { Ok(VlogSpec::Facility) } else { Err("invalid facility".to_owned()) };
        }
        let (mut module, mut destination, mut level) = (None, None, None);
        for word in text.split(SEPARATORS).filter(|word| !word.is_empty() && !is(word, "ANY")) {
            if let Some(own) = named(word) {
                if destination.replace(own).is_some() {
                    return Err("cannot specify multiple destinations".to_owned());
                }
            } else if let Some(own) = VlogLevel::ALL.into_iter().find(|known| is(known.name(), word)) {
                if level.replace(own).is_some() {
                    return Err("cannot specify multiple levels".to_owned());
                }
            } else if let Some(own) = vlog_module(word) {
                if module.replace(own).is_some() {
                    return Err("cannot specify multiple modules".to_owned());
                }
            } else {
                return Err(format!("no destination, level, or module \"{word}\""));
            }
        }
        Ok(VlogSpec::Level { module, destination, level: level.unwrap_or(VlogLevel::Dbg) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications_are_read_as_open_vswitch_reads_them() {
        let level = |module, destination, level| Ok(VlogSpec::Level { module, destination, level });
        for (text, read) in [
            ("", level(None, None, VlogLevel::Dbg)),
            ("ANY:file:INFO", level(None, Some(VlogDestination::File), VlogLevel::Info)),
            ("ofproto-dpif:warn", level(Some("ofproto_dpif"), None, VlogLevel::Warn)),
            ("off,console", level(None, Some(VlogDestination::Console), VlogLevel::Off)),
            ("vconn", level(Some("vconn"), None, VlogLevel::Dbg)),
        ] {
            assert_eq!(text.parse::<VlogSpec>(), read, "{text}");
        }
        assert_eq!(
            "PATTERN:file:%D{%H:%M}|%m".parse::<VlogSpec>(),
            Ok(VlogSpec::Pattern {
                destination: Some(VlogDestination::File),
                pattern: "%D{%H:%M}|%m".to_owned()
            })
        );
        assert_eq!("FACILITY:local6".parse::<VlogSpec>(), Ok(VlogSpec::Facility));
        for (text, error) in [
            ("loud", "no destination, level, or module \"loud\""),
            ("info:dbg", "cannot specify multiple levels"),
            ("PATTERN:", "missing destination"),
            ("PATTERN:x:y", "unknown destination \"x\""),
            ("FACILITY:local9", "invalid facility"),
        ] {
            assert_eq!(text.parse::<VlogSpec>(), Err(error.to_owned()), "{text}");
        }
        assert!(VLOG_MODULES.is_sorted());
    }
}
