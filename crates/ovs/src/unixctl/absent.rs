//! Commands of `ovs-appctl` for objects that Trivium does not have: bonds, LACP, BFD, CFM, spanning trees,
//! QoS, auto-attach and tunnels. Each command has the output that `ovs-vswitchd` prints if no such object
//! exists.

use std::sync::Arc;

use control::{Plane, Store};

use super::{Answer, Commands};

/// Commands for one kind of object that does not exist. The lists that the commands print are empty, and every object
/// name is unknown.
struct Kind {
    /// Commands that show all objects, or one object that the argument names. Each entry has the name and the usage of
    /// a command.
    shows: &'static [(&'static str, &'static str)],
    /// Commands that change an object. The fields of an entry are the name of the command, the usage, the minimum and
    /// the maximum number of arguments, the number of arguments from which on one argument is an object name, and the
    /// output of the command if no argument is an object name.
    changes: &'static [(&'static str, &'static str, usize, usize, usize, &'static str)],
    /// Error message for an unknown object name: for commands that show objects, and for commands that change
    /// an object.
    unknown: [&'static str; 2],
}

const KINDS: [Kind; 7] = [
    Kind {
        shows: &[("bond/show", "[port]")],
        changes: &[
            ("bond/migrate", "port hash member", 3, 3, 1, ""),
            ("bond/set-active-member", "port member", 2, 2, 1, ""),
            ("bond/enable-member", "port member", 2, 2, 1, ""),
            ("bond/disable-member", "port member", 2, 2, 1, ""),
        ],
        unknown: ["no such bond", "no such bond"],
    },
    Kind {
        shows: &[("lacp/show", "[port]"), ("lacp/show-stats", "[port]")],
        changes: &[],
        unknown: ["no such lacp object", ""],
    },
    Kind {
        shows: &[("bfd/show", "[interface]")],
        changes: &[("bfd/set-forwarding", "[interface] normal|false|true", 1, 2, 2, "OK")],
        unknown: ["no such bfd object", "no such BFD object"],
    },
    Kind {
        shows: &[("cfm/show", "[interface]")],
        changes: &[("cfm/set-fault", "[interface] normal|false|true", 1, 2, 2, "OK")],
        unknown: ["no such CFM object", "no such CFM object"],
    },
    Kind {
        shows: &[("stp/show", "[bridge]")],
        changes: &[("stp/tcn", "[bridge]", 0, 1, 1, "OK")],
        unknown: ["no such stp object", "no such stp object"],
    },
    Kind {
        shows: &[("rstp/show", "[bridge]")],
        changes: &[("rstp/tcn", "[bridge]", 0, 1, 1, "OK")],
        unknown: ["No such RSTP object", "No such RSTP object"],
    },
    // An unknown name is no error here.
    Kind {
        shows: &[
            ("autoattach/status", "[bridge]"),
            ("autoattach/show-isid", "[bridge]"),
            ("autoattach/statistics", "[bridge]"),
        ],
        changes: &[],
        unknown: ["", ""],
    },
];

/// Commands with a constant output. Each entry has the name and the usage of the command, the maximum number of
/// arguments, and the output.
const FIXED: [(&str, &str, usize, &str); 6] = [
    ("bond/list", "", 0, "bond\ttype\trecircID\tmembers\n"),
    ("ofproto/list-tunnels", "", 0, ""),
    ("tnl/ports/show", "-v", 1, "Listening ports:\n"),
    ("tnl/arp/show", "", 0, NEIGHBOURS),
    ("tnl/neigh/show", "", 0, NEIGHBOURS),
    ("tnl/neigh/flush", "", 0, "OK"),
];

const NEIGHBOURS: &str = "IP                                            MAC                 Bridge\n\
     ==========================================================================\n";

/// Adds all commands of this module to the registry.
pub fn add(commands: &mut Commands, store: &Arc<Store>) {
    for Kind { shows, changes, unknown: [shown, changed] } in KINDS {
        for (name, usage) in shows {
            commands.add(name, usage, 0..=1, move |arguments| {
                none(arguments.is_empty() || shown.is_empty(), "", shown)
            });
        }
        for (name, usage, least, most, named, done) in changes {
            commands.add(name, usage, *least..=*most, move |arguments| {
                none(arguments.len() < *named, done, changed)
            });
        }
    }
    for (name, usage, most, answer) in FIXED {
        commands.add(name, usage, 0..=most, move |_| Ok(answer.to_owned()));
    }
    let plane = Arc::clone(store.plane());
    commands.add("qos/show-types", "interface", 1..=1, move |arguments| {
        interface(&*plane, arguments).map(|name| format!("No QoS types supported for interface: {name}\n"))
    });
    let plane = Arc::clone(store.plane());
    commands.add("qos/show", "interface", 1..=1, move |arguments| {
        interface(&*plane, arguments).map(|name| format!("QoS not configured on {name}\n"))
    });
}

fn none(names_nothing: bool, answer: &str, unknown: &str) -> Answer {
    if names_nothing { Ok(answer.to_owned()) } else { Err(unknown.to_owned()) }
}

fn interface<'a>(plane: &dyn Plane, arguments: &'a [String]) -> Result<&'a str, String> {
    let name = arguments.first().map_or("", String::as_str);
    let exists = plane.ports().iter().any(|port| port.name == name);
    if exists { Ok(name) } else { Err("no such interface".to_owned()) }
}
