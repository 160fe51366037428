//! Tests that the netfilter chains that apply to forwarded packets are read from the real kernel.
#![allow(clippy::unwrap_used, reason = "a failure is the test's")]

mod common;

use std::fmt::Write;
use std::io::Write as _;
use std::process::{Command, Stdio};

use common::{Space, privileged};

/// Checks that a chain that applies to forwarded packets is reported even if other chains contain more rules than the
/// query reads, and that a chain without rules is not reported.
#[test]
fn only_chains_that_decide_are_told_among_many_rules() {
    let name = "only_chains_that_decide_are_told_among_many_rules";
    if !privileged(name) {
        return;
    }
    if !testbed::have_command("nft") {
        testbed::skip(&format!("{name} needs nft"));
        return;
    }
    let mut rules = "table ip many {\n chain out {\n  type filter hook output priority 0;\n".to_owned();
    for number in 0..12_000 {
        writeln!(rules, "  ip daddr 10.0.{}.{} counter", number / 256, number % 256).unwrap();
    }
    rules.push_str(" }\n}\n");
    for (chain, hook, rule) in [
        ("empty", "forward priority 0;", ""),
        ("ruled", "forward priority 1;", "counter"),
        ("closed", "prerouting priority 0; policy drop;", ""),
        ("own", "input priority 0;", "counter"),
    ] {
        write!(rules, "table inet few {{\n chain {chain} {{\n  type filter hook {hook}\n  {rule}\n }}\n}}\n")
            .unwrap();
    }
    let space = Space::new();
    let chains = space.run(|| {
        let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
        assert!(nft.wait().unwrap().success());
        port::netfilter::chains().unwrap()
    });
    assert_eq!(chains, ["table inet few, chain ruled", "table inet few, chain closed"]);
}
