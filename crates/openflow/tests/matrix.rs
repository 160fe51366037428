//! Tests every field, action and message in every OpenFlow version with the stock `ovs-ofctl`. Features that the client
//! does not support are tested with the encoder and the decoder of this crate. The resulting table also lists the
//! features that the packet test cases in `testbed` cover. The test fails if the table differs from
//! `docs/switch-matrix.md`. If the environment variable `UPDATE` is set, the test first writes the table to this file.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "matrix/actions.rs"]
mod actions;
#[path = "matrix/fields.rs"]
mod fields;
mod memory;
#[path = "matrix/messages.rs"]
mod messages;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;

use memory::Memory;
use openflow::wire::Version;
use openflow::{Address, Controllers, Target};
use testbed::packet_cases::{self, Feature};
use testbed::skip;
use tokio::process::Command;

/// OpenFlow versions, with their names in `ovs-ofctl`.
const VERSIONS: [(Version, &str); 6] = [
    (Version::V10, "OpenFlow10"),
    (Version::V11, "OpenFlow11"),
    (Version::V12, "OpenFlow12"),
    (Version::V13, "OpenFlow13"),
    (Version::V14, "OpenFlow14"),
    (Version::V15, "OpenFlow15"),
];

fn source(path: &str) -> String {
    std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Features that the packet test cases ([`packet_cases`]) cover, and features that have a row in the table.
/// `daemon/tests/openflow_packets.rs` runs the cases.
struct Proven {
    by_cases: BTreeSet<Feature>,
    in_rows: BTreeSet<Feature>,
}

impl Proven {
    /// Returns the table cell for several features: the names of the features that a packet test case covers, or "-" if
    /// no case covers any of the features.
    fn cell(&mut self, features: &[(Feature, &str)]) -> String {
        let of_cases = features.iter().filter(|(feature, _)| self.by_cases.contains(feature));
        let words: Vec<&str> = of_cases.map(|(_, word)| *word).collect();
        self.in_rows.extend(features.iter().map(|(feature, _)| *feature));
        if words.is_empty() { "-".into() } else { words.join(", ") }
    }
}

/// A simulated bridge with an OpenFlow socket, to which the stock client connects.
struct Lab {
    bridge: Arc<Memory>,
    path: PathBuf,
}

impl Lab {
    async fn client(&self, version: &str, arguments: &[&str]) -> Output {
        let mut process = Command::new("ovs-ofctl");
        let (command, rest) = arguments.split_last().map_or((&[][..], ""), |(last, front)| (front, *last));
        process.env("OVS_RUNDIR", std::env::temp_dir());
        process.args(["-vtimeval:off", "-vcoverage:off", "-O", version, "--timeout=60"]).args(command);
        process.arg(format!("unix:{}", self.path.display()));
        if !rest.is_empty() {
            process.args(rest.split('\u{1f}'));
        }
        process.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap()
    }

    /// Adds a flow entry with the stock client. Returns whether the client succeeds and the bridge then has the flow
    /// entry.
    async fn takes(&self, version: &str, rule: &str) -> bool {
        self.bridge.lock().flows.clear();
        let output = self.client(version, &["add-flow", rule]).await;
        output.status.success() && self.bridge.lock().flows.len() == 1
    }

    /// Returns the output of `ovs-ofctl` that lists the flow entries.
    async fn printed(&self, version: &str) -> String {
        let output = self.client(version, &["--no-stats", "--no-names", "dump-flows", ""]).await;
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn row(text: &mut String, cells: &[String]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_matrix_is_what_the_tests_find() {
    if Command::new("ovs-ofctl").arg("--version").output().await.is_err() {
        return skip("needs the command ovs-ofctl ('make setup' installs it)");
    }
    let path = std::env::temp_dir().join(format!("trivium-of-{}-matrix.mgmt", std::process::id()));
    let bridge = Memory::new();
    let mut controllers = Controllers::new(bridge.clone());
    controllers.set(vec![Target::new(Address::ListenUnix(path.clone()))]).await;
    while !path.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let lab = Lab { bridge, path };
    let mut text = String::from(HEAD);
    let mut proven = Proven { by_cases: packet_cases::features(), in_rows: BTreeSet::new() };
    fields::table(&lab, &mut proven, &mut text).await;
    actions::table(&lab, &mut proven, &mut text).await;
    messages::table(&lab, &mut text).await;
    controllers.shutdown().await;
    let file = format!("{}/../../docs/switch-matrix.md", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = text.lines().zip(committed.lines()).find(|(found, written)| found != written);
    assert!(
        text == committed,
        "docs/switch-matrix.md is not what was found; `UPDATE=1 cargo test -p openflow --test matrix` writes it. First: {differs:?}"
    );
    let lacking: Vec<&str> =
        text.lines().filter(|line| line.contains("**") && line.starts_with("| ")).collect();
    assert!(lacking.is_empty(), "read as something else: {lacking:#?}");
    let nameless: Vec<&Feature> = proven.by_cases.difference(&proven.in_rows).collect();
    assert!(nameless.is_empty(), "cases with packets prove features that no row has: {nameless:?}");
}

const HEAD: &str = "\
# OpenFlow: what there is, by version

Written by `crates/openflow/tests/matrix.rs` (`UPDATE=1 cargo test -p openflow --test matrix`), which fails where this page and what it finds differ.

- **+**: the stock `ovs-ofctl` gives it in this version, and the bridge reads what was meant.
- **wire**: the client has no word for it in this version; it is read as it was written by the codec.
- empty: the version cannot say it.

The column *packets* is the list of cases in `crates/testbed/src/packet_cases/`. `crates/daemon/tests/openflow_packets.rs` runs each of them: the \
stock `ovs-ofctl` adds rules to the daemon, real frames go in, and each frame that leaves is compared octet for octet.

- **+**: the frames that leave are what the action makes of them.
- **match**: a frame that differs in this field alone takes another way; **part**: the same under a mask.
- **set**: the frame leaves with the new value and right checksums; of registers and fields of tunnels, the next table matches the new value.
- **-**: no case.
";
