//! Every field, action and message of every version, driven by the stock `ovs-ofctl` (by the codec where that has no word for it), and the
//! tests in which packets meet them: `docs/switch-matrix.md` is what this test writes down. `UPDATE=1` writes the file; without, a
//! difference fails.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "matrix/actions.rs"]
mod actions;
#[path = "matrix/fields.rs"]
mod fields;
mod memory;
#[path = "matrix/messages.rs"]
mod messages;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;

use memory::Memory;
use openflow::wire::Version;
use openflow::{Address, Controllers, Target};
use testbed::skip;
use tokio::process::Command;

/// Versions, and how the client calls them.
const VERSIONS: [(Version, &str); 6] = [
    (Version::V10, "OpenFlow10"),
    (Version::V11, "OpenFlow11"),
    (Version::V12, "OpenFlow12"),
    (Version::V13, "OpenFlow13"),
    (Version::V14, "OpenFlow14"),
    (Version::V15, "OpenFlow15"),
];

/// Tests in which packets meet fields and actions: their name in the table, and their source.
const WITH_PACKETS: [(&str, &str); 6] = [
    ("oracle", "../daemon/tests/ovs_oracle/rules.rs"),
    ("daemon", "../daemon/tests/openflow.rs"),
    ("engine", "../engine/tests/flows.rs"),
    ("switch", "../switch/tests/flows.rs"),
    ("taught", "../switch/tests/taught.rs"),
    ("fields", "../switch/tests/fields.rs"),
];

fn source(path: &str) -> String {
    std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The names of the tests with packets whose source has one of these words.
fn met_in(words: &[String]) -> String {
    let has = |path: &str| {
        let text = source(path);
        let is_word = |at: usize, word: &str| {
            let part_of_name = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            !part_of_name(text[..at].chars().next_back())
                && !part_of_name(text[at + word.len()..].chars().next())
        };
        words.iter().any(|word| text.match_indices(word.as_str()).any(|(at, _)| is_word(at, word)))
    };
    let met: Vec<&str> = WITH_PACKETS.iter().filter(|(_, path)| has(path)).map(|(name, _)| *name).collect();
    if met.is_empty() { "**none**".into() } else { met.join(", ") }
}

/// A bridge in memory behind a socket, and the stock client.
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

    /// Whether a rule can be given by the stock client. It is then in the bridge.
    async fn takes(&self, version: &str, rule: &str) -> bool {
        self.bridge.lock().flows.clear();
        let output = self.client(version, &["add-flow", rule]).await;
        output.status.success() && self.bridge.lock().flows.len() == 1
    }

    /// What the client prints of the rules.
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
    fields::table(&lab, &mut text).await;
    actions::table(&lab, &mut text).await;
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
    assert!(lacking.is_empty(), "met by packets in no test, or read as something else: {lacking:#?}");
}

const HEAD: &str = "\
# OpenFlow: what there is, by version

Written by `crates/openflow/tests/matrix.rs` (`UPDATE=1 cargo test -p openflow --test matrix`), which fails where this page and what it finds differ.

- **+**: the stock `ovs-ofctl` gives it in this version, and the bridge reads what was meant.
- **wire**: the client has no word for it in this version; it is read as it was written by the codec.
- empty: the version cannot say it.

The last column names the tests in which packets meet it: *oracle* (`daemon/tests/ovs_oracle.rs`, octet for octet against Open vSwitch), *daemon* \
(`daemon/tests/openflow.rs`), *engine* (`engine/tests/flows.rs`), *switch* (`switch/tests/flows.rs`), *taught* (`switch/tests/taught.rs`), *fields* (`switch/tests/fields.rs`, each field matched, set and read again).
";
