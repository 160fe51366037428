//! Conversion of the OpenFlow columns of a bridge in the database (controllers, fail mode, flow tables) into settings
//! of the bridge.

use std::collections::BTreeSet;
use std::path::Path;

use model::{
    BridgeName, Config, Controller, FileAccess, FileUse, FlowTable, FlowTableId, OpenFlowTls,
    OpenFlowVersion, PrefixField, WhenFull, unix_socket,
};
use ovsdb::{Bridge, Desired, FailMode};
use switch::flow::text::sub_field;

/// Returns the OpenFlow settings of a bridge. Returns `None` for a bridge that forwards only by MAC learning. XDP
/// programs can forward the frames of such a bridge in the driver, without the daemon.
///
/// As in Open vSwitch, every bridge forwards packets according to OpenFlow rules by default. The exception is a bridge
/// with `other_config:openflow=false`, a fail mode other than `secure`, and no controller.
pub fn settings(desired: &Desired, bridge: &Bridge, datapath_id: Option<u64>) -> Option<model::OpenFlow> {
    let plain = bridge.other_config.get("openflow").is_some_and(|text| text == "false");
    let secure = bridge.fail_mode == FailMode::Secure;
    if plain && !secure && bridge.controllers.is_empty() {
        return None;
    }
    // Until the rules are restored, no controller is connected, and the bridge does not become standalone.
    let waits = desired.waits_for_rules();
    let allow_remote = allows_remote(bridge);
    let passive_users = passive_users(bridge);
    let rows = bridge.controllers.values().filter(|_| !waits);
    let controllers = rows.map(|row| controller(row, allow_remote, &passive_users));
    let fail_mode = if secure || waits { model::FailMode::Secure } else { model::FailMode::Standalone };
    let versions = OpenFlowVersion::ALL.into_iter().zip(OpenFlowVersion::NAMES);
    let versions = versions.filter(|(_, name)| bridge.protocols.contains(*name)).map(|(version, _)| version);
    let tls = desired.ssl.as_ref().map(|ssl| OpenFlowTls {
        key: ssl.private_key.clone().into(),
        certificate: ssl.certificate.clone().into(),
        ca: ssl.ca_cert.clone().into(),
    });
    let table = |(number, table): (&u8, &ovsdb::FlowTable)| {
        let when_full = if table.evict { WhenFull::Evict } else { WhenFull::Refuse };
        let own = FlowTable {
            name: table.name.clone(),
            limit: table.flow_limit,
            when_full,
            groups: table.groups.iter().cloned().collect(),
            prefixes: prefixes(&table.prefixes),
        };
        (FlowTableId(*number), own)
    };
    Some(model::OpenFlow {
        controllers: controllers.collect(),
        fail_mode,
        datapath_id,
        versions: (!bridge.protocols.is_empty()).then(|| versions.collect()),
        vlan_limit: vlan_limit(desired),
        tls,
        tables: bridge.flow_tables.iter().map(table).collect(),
    })
}

/// Returns the maximum number of VLAN tags that OpenFlow rules can match (`other_config:vlan-limit` of the table
/// Open_vSwitch). The default is one tag, as in Open vSwitch. Returns `None` for 0 and for values above 1: rules can
/// then match all tags that the flow key contains.
fn vlan_limit(desired: &Desired) -> Option<u8> {
    let limit = desired.other_config.get("vlan-limit").map(|text| text.trim().parse::<i64>());
    // An invalid number counts as absent.
    let limit = limit.and_then(Result::ok).unwrap_or(1);
    (limit == 1).then_some(1)
}

/// Returns the packet fields that the column `prefixes` of a flow table contains. Returns `None` for an empty column,
/// which represents the default fields. The value `none` means no fields.
fn prefixes(column: &BTreeSet<String>) -> Option<BTreeSet<PrefixField>> {
    (!column.is_empty()).then(|| column.iter().filter_map(|name| tracked(name)).collect())
}

/// Returns the address of the flow key (source or destination) to which a field name in the column `prefixes` refers.
/// IPv4, IPv6 and ARP fields share one address of the flow key. Returns `None` for other field names.
fn tracked(name: &str) -> Option<PrefixField> {
    match name {
        "ip_src" | "nw_src" | "ipv6_src" => Some(PrefixField::Source),
        "ip_dst" | "nw_dst" | "ipv6_dst" => Some(PrefixField::Destination),
        _ => None,
    }
}

/// Returns whether OpenFlow listeners (`ptcp:`) of the bridge may use addresses that other machines can reach
/// (`other_config:allow-remote=true`).
pub fn allows_remote(bridge: &Bridge) -> bool {
    bridge.other_config.get("allow-remote").is_some_and(|text| text == "true")
}

/// Returns the names of the users whose processes may connect to the bridge's `ptcp:` listeners
/// (`other_config:passive-users=USER,...`).
fn passive_users(bridge: &Bridge) -> Vec<String> {
    let named = bridge.other_config.get("passive-users").map(String::as_str).unwrap_or_default();
    named.split([',', ' ']).filter(|user| !user.is_empty()).map(str::to_owned).collect()
}

fn controller(row: &ovsdb::Controller, allow_remote: bool, passive_users: &[String]) -> Controller {
    Controller {
        target: row.target.clone(),
        inactivity_probe_ms: row.inactivity_probe_ms,
        max_backoff_ms: row.max_backoff_ms,
        rate_limit: row.rate_limit.filter(|rate| *rate > 0),
        burst_limit: row.burst_limit.filter(|burst| *burst > 0),
        asynchronous: row.async_messages,
        allow_remote,
        passive_users: passive_users.to_vec(),
    }
}

/// Returns the reason why a bridge must not use the Unix socket in a controller's target. Returns `None` if the socket
/// is allowed, or if the target is not a Unix socket. A socket must be in the run directory, which is the directory of
/// the API's socket in the settings `running`. A listening socket must be named `BRIDGE.NAME`. It must not be a socket
/// that the daemon uses itself, with its current settings or with those of `merged`, which may wait for a restart.
pub fn refused_socket(
    target: &str,
    bridge: &BridgeName,
    running: &Config,
    merged: &Config,
) -> Option<String> {
    let (access, path) = unix_socket(target)?;
    let run_directory = running.daemon.api.parent()?;
    let socket = FileUse { field: String::new(), path: path.to_owned(), access };
    let is_within = socket.is_within(&[run_directory.to_owned()]);
    let name = path.strip_prefix(run_directory).ok().and_then(Path::to_str).unwrap_or_default();
    let is_own = name.starts_with(&format!("{bridge}.")) && !name.contains('/');
    let directory = run_directory.display();
    let (kind, example) = match access {
        FileAccess::Listen => ("punix", format!("{bridge}.NAME")),
        _ => ("unix", "NAME".to_owned()),
    };
    if !is_within || (access == FileAccess::Listen && !is_own) {
        return Some(format!(
            "controller {target}: a database may only name sockets of the run directory {directory}; use {kind}:{directory}/{example}"
        ));
    }
    let reserved = running.reserves_socket(path).or_else(|| merged.reserves_socket(path));
    let field = reserved.filter(|_| access == FileAccess::Listen)?;
    Some(format!(
        "controller {target}: the socket belongs to `{field}`; use another name {kind}:{directory}/{example}"
    ))
}

/// Returns a remark for each OpenFlow column of the bridge in the database whose value has no
/// effect or only a partial effect.
pub fn remarks(desired: &Desired, bridge: &Bridge) -> Vec<String> {
    let mut remarks = Vec::new();
    let strange: Vec<&str> = bridge
        .protocols
        .iter()
        .map(String::as_str)
        .filter(|name| !OpenFlowVersion::NAMES.contains(name))
        .collect();
    if !strange.is_empty() {
        remarks.push(format!("protocols: {} are not spoken here", strange.join(", ")));
    }
    let columns = || bridge.flow_tables.values();
    let unknown = columns().flat_map(|table| &table.groups).filter(|name| sub_field(name).is_none());
    let unknown: BTreeSet<&str> = unknown.map(String::as_str).collect();
    if !unknown.is_empty() {
        let names = Vec::from_iter(unknown).join(", ");
        remarks.push(format!(
            "flow_tables: `groups` has fields that there are not, which are left out: {names}"
        ));
    }
    let untracked = |name: &&String| tracked(name).is_none() && *name != "none";
    let untracked: BTreeSet<&str> =
        columns().flat_map(|table| &table.prefixes).filter(untracked).map(String::as_str).collect();
    if !untracked.is_empty() {
        let names = Vec::from_iter(untracked).join(", ");
        remarks.push(format!(
            "flow_tables: `prefixes` of {names} are not tracked: only those of IP and ARP addresses"
        ));
    }
    if desired.ssl.as_ref().is_some_and(|ssl| ssl.bootstrap) {
        remarks.push(
            "ssl: `bootstrap_ca_cert` is not done: put the CA's certificate where `ca_cert` says".to_owned(),
        );
    }
    remarks
}
