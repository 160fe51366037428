//! Tests of messages: commands of the stock client that the bridge must answer, and messages that other tests cover.

use super::{Lab, VERSIONS, row, source};

/// Test cases. Each case contains the name of a message, and the command of the stock client that sends the message,
/// with the arguments of the command. The character U+001F separates arguments.
const COMMANDS: &[(&str, &[&str])] = &[
    ("hello, features, configuration", &["show", ""]),
    ("echo", &["probe", ""]),
    ("flow-mod: add", &["add-flow", "priority=1,in_port=1,actions=output:2"]),
    ("flow-mod: modify", &["mod-flows", "in_port=1,actions=output:1"]),
    ("flow-mod: delete", &["del-flows", "in_port=1"]),
    ("packet-out", &["packet-out", "in_port=1 packet=ffffffffffff0200000000010806 actions=output:2"]),
    ("port-mod", &["mod-port", "2\u{1f}no-forward"]),
    ("group-mod: add", &["add-group", "group_id=9,type=all,bucket=output:1"]),
    ("group-mod: modify", &["mod-group", "group_id=9,type=all,bucket=output:2"]),
    (
        "group-mod: insert bucket",
        &["insert-buckets", "group_id=9,command_bucket_id=last,bucket=bucket_id:9,output:2"],
    ),
    ("group-mod: remove bucket", &["remove-buckets", "group_id=9,command_bucket_id=9"]),
    ("group-mod: delete", &["del-groups", "group_id=9"]),
    ("meter-mod: add", &["add-meter", "meter=1,kbps,band=type=drop,rate=9"]),
    ("meter-mod: modify", &["mod-meter", "meter=1,kbps,band=type=drop,rate=7"]),
    ("meter-mod: delete", &["del-meter", "meter=1"]),
    ("table-mod", &["mod-table", "3\u{1f}evict"]),
    ("bundle", &["--bundle", "add-flow", "priority=3,in_port=3,actions=output:2"]),
    ("options of tunnels: map", &["add-tlv-map", "{class=0x102,type=0x80,len=4}->tun_metadata3"]),
    ("options of tunnels: list", &["dump-tlv-map", ""]),
    ("options of tunnels: delete", &["del-tlv-map", ""]),
    ("statistics: description", &["dump-desc", ""]),
    ("statistics: flow", &["dump-flows", ""]),
    ("statistics: aggregate", &["dump-aggregate", ""]),
    ("statistics: table", &["dump-tables", ""]),
    ("statistics: port", &["dump-ports", ""]),
    ("statistics: queue", &["queue-stats", "1\u{1f}7"]),
    ("queue configuration", &["queue-get-config", "1"]),
    ("port description", &["dump-ports-desc", ""]),
    ("group statistics", &["dump-group-stats", ""]),
    ("group description", &["dump-groups", ""]),
    ("group features", &["dump-group-features", ""]),
    ("meter statistics", &["meter-stats", ""]),
    ("meter configuration", &["dump-meters", ""]),
    ("meter features", &["meter-features", ""]),
    ("table features", &["dump-table-features", ""]),
    ("table description", &["dump-table-desc", ""]),
];

/// Messages that other tests cover. Each row contains the name of a message, the OpenFlow versions that are tested, the
/// file of the test, and the name of the test.
const BY_HAND: &[(&str, [bool; 6], &str, &str)] = &[
    ("packet-in", [true; 6], "ofctl.rs", "a_monitor_sees_what_happens"),
    ("flow-removed", [true; 6], "ofctl.rs", "a_monitor_sees_what_happens"),
    ("port-status", [true; 6], "ofctl.rs", "a_monitor_sees_what_happens"),
    ("flow monitor", [true; 6], "ofctl.rs", "a_monitor_sees_what_happens"),
    ("barrier", [true; 6], "ofctl.rs", "rules_are_changed_and_removed"),
    ("error", [true; 6], "ofctl.rs", "errors_have_the_names_of_the_specification"),
    ("role", [true; 6], "sessions/roles.rs", "there_is_one_master_and_slaves_look_only"),
    (
        "requestforward",
        [true; 6],
        "sessions/roles.rs",
        "requests_that_change_groups_and_meters_are_forwarded",
    ),
    (
        "packet-out in a bundle",
        [false, false, false, true, true, true],
        "ofctl.rs",
        "packets_in_bundles_are_sent_when_all_is_done",
    ),
    ("asynchronous configuration", [true; 6], "sessions/roles.rs", "asynchronous_messages_are_as_configured"),
];

pub async fn table(lab: &Lab, text: &mut String) {
    text.push_str("\n## Messages\n\n| message | 1.0 | 1.1 | 1.2 | 1.3 | 1.4 | 1.5 | by |\n|---|---|---|---|---|---|---|---|\n");
    let mut rows: Vec<Vec<String>> = COMMANDS.iter().map(|(name, _)| vec![(*name).to_owned()]).collect();
    // The commands run in the order of the list, because later commands change objects of earlier ones.
    for (_, version) in VERSIONS {
        {
            let mut tables = lab.bridge.lock();
            (tables.groups, tables.meters) = Default::default();
        }
        for ((name, command), cells) in COMMANDS.iter().zip(&mut rows) {
            let output = lab.client(version, command).await;
            let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            // For bundles, the client uses a later version than requested.
            let is_own = *name != "bundle" || version >= "OpenFlow13";
            let done = output.status.success() && !said.contains("OFPT_ERROR") && is_own;
            cells.push(if done { "+".into() } else { String::new() });
        }
    }
    for ((_, command), mut cells) in COMMANDS.iter().zip(rows) {
        let client = command.iter().find(|word| !word.starts_with('-')).unwrap_or(&"");
        cells.push(format!(
            "`ovs-ofctl {}{client}`",
            if command.contains(&"--bundle") { "--bundle " } else { "" }
        ));
        row(text, &cells);
    }
    for (name, versions, file, test) in BY_HAND {
        assert!(
            source(&format!("tests/{file}")).contains(&format!("fn {test}(")),
            "{file} has no test {test}"
        );
        let mut cells = vec![(*name).to_owned()];
        cells.extend(versions.map(|there| if there { "+".to_owned() } else { String::new() }));
        cells.push(format!("`tests/{file}`: `{test}`"));
        row(text, &cells);
    }
}
