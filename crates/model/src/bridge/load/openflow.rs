//! Reads `[bridge.NAME.openflow]`.

use std::collections::{BTreeMap, BTreeSet};

use crate::load::fields::{Fields, Findings, table_of};
use crate::load::tree::{Node, Value};
use crate::load::users::read_users;
use crate::spelling::nearest;
use crate::{
    Cause, Controller, FailMode, FlowTable, FlowTableId, OpenFlow, OpenFlowTls, OpenFlowVersion, PrefixField,
    WhenFull,
};

/// Maximum number of controllers of a bridge.
const CONTROLLER_LIMIT: usize = 16;
/// Bounds of durations in milliseconds. The upper bound is one hour.
const MILLISECONDS: (i64, i64) = (0, 3_600_000);
/// Bounds of the number of VLAN tags that flow entries can match.
const VLAN_TAGS: (i64, i64) = (1, 2);
/// Minimum and maximum of the setting that limits the flow entries of a table.
const RULES: (i64, i64) = (0, 1_000_000);
/// Maximum length of a table name in bytes (OpenFlow 1.5.1 section 7.3.5.6: OFP_MAX_TABLE_NAME_LEN includes
/// the terminator).
const TABLE_NAME: usize = 31;
/// Maximum number of subfields that group the flow entries of a table for eviction.
const GROUPS: usize = 16;

pub(crate) fn read_openflow(fields: &mut Fields<'_>, findings: &mut Findings) -> Option<OpenFlow> {
    let entry = fields.get("openflow", findings)?;
    let mut table = table_of(&fields.path("openflow"), &entry.node, findings)?;
    let mut controllers = Vec::new();
    for (object, item) in table.items("controllers", findings).unwrap_or_default() {
        controllers.extend(read_controller(&object, item, findings));
    }
    table.limit("controllers", "controllers", controllers.len(), CONTROLLER_LIMIT, findings);
    let words = [FailMode::Standalone, FailMode::Secure];
    let fail_mode = table.word("fail_mode", &["standalone", "secure"], &words, findings).unwrap_or_default();
    let bad = |text, ()| Cause::BadText { text, what: "a datapath id", example: "\"00000000000000a1\"" };
    let datapath_id = table.parsed::<DatapathId>("datapath_id", bad, findings).map(|id| id.0);
    let versions = read_versions(&mut table, findings);
    let vlan_limit = table.number("vlan_limit", VLAN_TAGS, " tags", findings);
    let tls = read_tls(&mut table, findings);
    let tables = read_tables(&mut table, findings);
    table.finish(findings);
    Some(OpenFlow { controllers, fail_mode, datapath_id, versions, vlan_limit, tls, tables })
}

/// Reads a controller, which is written as a connection method, or as a table with a connection method and other
/// settings.
fn read_controller(object: &str, item: &Node, findings: &mut Findings) -> Option<Controller> {
    match &item.value {
        Value::Text(text) => Some(Controller::at(text)),
        Value::Table(_) => {
            let mut fields = table_of(object, item, findings)?;
            let target = fields.text("target", findings).map(str::to_owned);
            if !fields.has("target") {
                fields.missing("target", "target = \"tcp:10.0.0.1:6653\"", findings);
            }
            let mut time = |key, findings: &mut Findings| fields.number(key, MILLISECONDS, " ms", findings);
            let (inactivity_probe_ms, max_backoff_ms) =
                (time("inactivity_probe_ms", findings), time("max_backoff_ms", findings));
            let mut packets =
                |key, findings: &mut Findings| fields.number(key, (1, 1_000_000_000), " packets", findings);
            let (rate_limit, burst_limit) =
                (packets("rate_limit", findings), packets("burst_limit", findings));
            let asynchronous = fields.flag("asynchronous", findings).unwrap_or(true);
            let allow_remote = fields.flag("allow_remote", findings).unwrap_or(false);
            let passive_users = read_users(&mut fields, "passive_users", findings).unwrap_or_default();
            fields.finish(findings);
            let target = target?;
            Some(Controller {
                target,
                inactivity_probe_ms,
                max_backoff_ms,
                rate_limit,
                burst_limit,
                asynchronous,
                allow_remote,
                passive_users,
            })
        }
        other => {
            let expected =
                "a controller's address, such as \"tcp:10.0.0.1:6653\", or a table with its `target`";
            findings.add(item.place, object, Cause::WrongType { expected, found: other.found() });
            None
        }
    }
}

fn read_versions(table: &mut Fields<'_>, findings: &mut Findings) -> Option<BTreeSet<OpenFlowVersion>> {
    const CHOICES: &[&str] = &OpenFlowVersion::NAMES;
    let items = table.items("versions", findings)?;
    let mut versions = BTreeSet::new();
    for (object, item) in items {
        let Value::Text(text) = &item.value else {
            let cause = Cause::NotAWord { found: item.value.found(), choices: CHOICES };
            findings.add(item.place, object, cause);
            continue;
        };
        match OpenFlowVersion::ALL.iter().zip(CHOICES).find(|(_, name)| *name == text) {
            Some((version, _)) => drop(versions.insert(*version)),
            None => {
                let near = nearest(text, CHOICES.iter().copied());
                let cause = Cause::NotOneOf { value: text.clone(), near, choices: CHOICES };
                findings.add(item.place, object, cause);
            }
        }
    }
    if versions.is_empty() {
        let cause = Cause::Missing { key: "a version", example: "versions = [\"OpenFlow13\"]" };
        findings.add(table.place_of("versions"), table.path("versions"), cause);
    }
    Some(versions)
}

fn read_tls(table: &mut Fields<'_>, findings: &mut Findings) -> Option<OpenFlowTls> {
    let entry = table.get("tls", findings)?;
    let mut tls = table_of(&table.path("tls"), &entry.node, findings)?;
    let mut file = |key, example, findings: &mut Findings| {
        if !tls.has(key) {
            tls.missing(key, example, findings);
        }
        tls.file(key, findings)
    };
    let key = file("key", "key = \"/etc/trivium/of-key.pem\"", findings);
    let certificate = file("certificate", "certificate = \"/etc/trivium/of-cert.pem\"", findings);
    let ca = file("ca", "ca = \"/etc/trivium/controllers-ca.pem\"", findings);
    tls.finish(findings);
    Some(OpenFlowTls { key: key?, certificate: certificate?, ca: ca? })
}

fn read_tables(table: &mut Fields<'_>, findings: &mut Findings) -> BTreeMap<FlowTableId, FlowTable> {
    let mut all = BTreeMap::new();
    let Some(entry) = table.get("table", findings) else { return all };
    let Some(tables) = table_of(&table.path("table"), &entry.node, findings) else { return all };
    for entry in tables.entries() {
        let object = tables.path(&entry.key);
        let number = entry.key.parse().ok().filter(|number| *number < u8::MAX && !entry.key.starts_with('+'));
        if number.is_none() {
            let cause =
                Cause::BadText { text: entry.key.clone(), what: "a table's number, 0 to 254", example: "0" };
            findings.add(entry.place, object.clone(), cause);
        }
        let Some(mut fields) = table_of(&object, &entry.node, findings) else { continue };
        let bad = |text, ()| Cause::BadText { text, what: "a table's name", example: "\"acl\"" };
        let own = FlowTable {
            name: fields.parsed::<TableName>("name", bad, findings).map(|name| name.0),
            limit: fields.number("limit", RULES, " rules", findings),
            when_full: fields
                .word("when_full", &["refuse", "evict"], &[WhenFull::Refuse, WhenFull::Evict], findings)
                .unwrap_or_default(),
            groups: read_groups(&mut fields, findings),
            prefixes: read_prefixes(&mut fields, findings),
        };
        fields.finish(findings);
        all.extend(number.map(|number| (FlowTableId(number), own)));
    }
    all
}

fn read_groups(table: &mut Fields<'_>, findings: &mut Findings) -> Vec<String> {
    let mut groups = Vec::new();
    for (object, item) in table.items("groups", findings).unwrap_or_default() {
        match &item.value {
            // The switch crate checks whether the field exists.
            Value::Text(text) if is_part(text) => groups.push(text.clone()),
            Value::Text(text) => {
                let what = "a field, or some bits of it";
                let cause = Cause::BadText { text: text.clone(), what, example: "\"NXM_OF_IN_PORT[]\"" };
                findings.add(item.place, object, cause);
            }
            other => {
                let expected = "a field, such as \"NXM_OF_IN_PORT[]\"";
                findings.add(item.place, object, Cause::WrongType { expected, found: other.found() });
            }
        }
    }
    table.limit("groups", "fields", groups.len(), GROUPS, findings);
    groups
}

/// Returns whether the text has the syntax of a field or subfield: `NAME`, `NAME[]`, `NAME[3]`,
/// `NAME[0..11]`.
fn is_part(text: &str) -> bool {
    let (name, bits) = text.split_once('[').unwrap_or((text, "]"));
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_number =
        |text: &str| (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let are_bits = |bits: &str| match bits.split_once("..") {
        Some((first, last)) => is_number(first) && is_number(last),
        None => bits.is_empty() || is_number(bits),
    };
    (1..=64).contains(&name.len())
        && name.bytes().all(is_name)
        && bits.strip_suffix(']').is_some_and(are_bits)
}

fn read_prefixes(table: &mut Fields<'_>, findings: &mut Findings) -> Option<BTreeSet<PrefixField>> {
    const CHOICES: &[&str] = &PrefixField::NAMES;
    let mut prefixes = BTreeSet::new();
    for (object, item) in table.items("prefixes", findings)? {
        let Value::Text(text) = &item.value else {
            let cause = Cause::NotAWord { found: item.value.found(), choices: CHOICES };
            findings.add(item.place, object, cause);
            continue;
        };
        match PrefixField::ALL.iter().zip(CHOICES).find(|(_, name)| *name == text) {
            Some((field, _)) => drop(prefixes.insert(*field)),
            None => {
                let near = nearest(text, CHOICES.iter().copied());
                let cause = Cause::NotOneOf { value: text.clone(), near, choices: CHOICES };
                findings.add(item.place, object, cause);
            }
        }
    }
    Some(prefixes)
}

/// Name of a flow table: 1 to 31 printable ASCII characters without spaces.
struct TableName(String);

impl std::str::FromStr for TableName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_plain =
            (1..=TABLE_NAME).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_plain { Ok(TableName(text.to_owned())) } else { Err(()) }
    }
}

/// OpenFlow datapath ID: up to 16 hexadecimal digits, nonzero.
struct DatapathId(u64);

impl std::str::FromStr for DatapathId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_plain = text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = u64::from_str_radix(text, 16).ok().filter(|id| is_plain && *id != 0);
        id.map(DatapathId).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, Controller, FlowTableId, OpenFlowVersion, PrefixField, WhenFull, load};

    fn read(text: &str) -> Result<Config, Vec<String>> {
        let lines = |problems: Vec<crate::Problem>| problems.iter().map(ToString::to_string).collect();
        load(&format!("[bridge.br0.openflow]\n{text}"), "test").map_err(lines)
    }

    #[test]
    fn settings_are_read_and_written_the_same() {
        let text = r#"
            controllers = ["tcp:10.0.0.1", { target = "pssl:", inactivity_probe_ms = 0, max_backoff_ms = 2000, rate_limit = 100, burst_limit = 30, asynchronous = false, allow_remote = true, passive_users = ["ryu", "1001"] }]
            fail_mode = "secure"
            datapath_id = "a1"
            vlan_limit = 1
            versions = ["OpenFlow13", "OpenFlow10"]
            tls = { key = "/k", certificate = "/c", ca = "/a" }
            table.0 = { name = "acl", limit = 10, when_full = "evict", groups = ["NXM_OF_IN_PORT[]", "reg0[0..7]"], prefixes = ["ip_dst"] }
            table.254 = { limit = 0, prefixes = [] }
        "#;
        let config = read(text).unwrap();
        let again = load(&config.to_toml(), "again").unwrap();
        assert_eq!(again, config);
        let json: Config = serde_json::from_value(serde_json::to_value(&config).unwrap()).unwrap();
        assert_eq!(json, config);
        let openflow = config.bridges["br0"].settings.openflow.as_ref().unwrap();
        assert_eq!(openflow.vlan_limit, Some(1));
        assert_eq!(openflow.controllers[0], Controller::at("tcp:10.0.0.1"));
        let second = &openflow.controllers[1];
        assert_eq!((second.inactivity_probe_ms, second.max_backoff_ms), (Some(0), Some(2000)));
        assert!(second.allow_remote);
        assert_eq!(second.passive_users, ["ryu", "1001"]);
        assert_eq!(
            (second.rate_limit, second.burst_limit, second.asynchronous),
            (Some(100), Some(30), false)
        );
        let versions = openflow.versions.as_ref().unwrap();
        assert!(versions.iter().eq(&[OpenFlowVersion::V10, OpenFlowVersion::V13]));
        let table = &openflow.tables[&FlowTableId(0)];
        assert_eq!((table.limit, table.when_full), (Some(10), WhenFull::Evict));
        assert_eq!(table.groups, ["NXM_OF_IN_PORT[]", "reg0[0..7]"]);
        assert!(table.prefixes.as_ref().unwrap().iter().eq(&[PrefixField::Destination]));
    }

    #[test]
    fn what_is_wrong_is_told_by_its_place() {
        for (text, place, why) in [
            ("controllers = [5]", "controllers[0]", "address"),
            ("controllers = [{ rate_limit = 5 }]", "controllers[0]", "target"),
            ("controllers = [{ target = \"tcp:1.1.1.1\", rate_limit = 0 }]", "rate_limit", "1"),
            ("versions = [\"OpenFlow16\"]", "versions[0]", "OpenFlow13"),
            ("versions = []", "versions", "version"),
            ("vlan_limit = 3", "vlan_limit", "2"),
            ("tls = { key = \"k\", certificate = \"/c\" }", "tls", "ca"),
            ("table.255 = {}", "table.255", "254"),
            ("table.x = {}", "table.x", "254"),
            ("table.1.name = \"a b\"", "table.1.name", "name"),
            ("table.1.when_full = \"wait\"", "table.1.when_full", "evict"),
            ("table.1.groups = [\"NXM_OF_IN_PORT[\"]", "table.1.groups[0]", "NXM_OF_IN_PORT[]"),
            ("table.1.groups = [7]", "table.1.groups[0]", "field"),
            ("table.1.prefixes = [\"ip_sry\"]", "table.1.prefixes[0]", "ip_src"),
        ] {
            let problems = read(text).unwrap_err().join("\n");
            assert!(problems.contains(place) && problems.contains(why), "{text}: {problems}");
        }
    }
}
