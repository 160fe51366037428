//! Tests the real binary with a configuration file that contains fifty mistakes. All mistakes are reported with
//! position, object, cause and fix, and no daemon is started or changed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::process::{Command, Output};

use rig::{PATIENCE, Rig, TRIVIUM};
use testbed::{UdpFlow, require};

/// The configuration file, which belongs to the crate `model`, and its expected problems.
const FIFTY: &str = include_str!("../../model/tests/fifty.toml");
const EXPECTED: &str = include_str!("../../model/tests/fifty.expected");

/// Exit code for a refused configuration.
const REFUSED: Option<i32> = Some(3);

/// Asserts that exactly the expected problems were printed, in order.
fn assert_said(output: &Output, by: &str) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), REFUSED, "{by}: {said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{by}");
    // Warnings depend on the number of cores of the machine.
    let mut problems: Vec<&str> = said.lines().filter(|line| !line.contains(": warning: ")).collect();
    if by == "check" {
        let total = format!("fifty.toml: {} mistakes", EXPECTED.lines().count());
        assert_eq!(problems.pop(), Some(total.as_str()), "{by}");
    }
    for (line, expected) in problems.iter().zip(EXPECTED.lines()) {
        assert_eq!(*line, expected, "{by}");
    }
    assert_eq!(problems.len(), EXPECTED.lines().count(), "{by}: {said}");
    assert!(problems.len() >= 50);
}

/// Each expected problem has the form `file:line:column: object: cause; fix`, without an empty part.
#[test]
fn what_is_expected_has_all_parts() {
    for line in EXPECTED.lines() {
        let (place, rest) = line.split_once(": ").unwrap();
        let place: Vec<&str> = place.split(':').collect();
        let number = |at: usize| place[at].parse::<u32>().is_ok_and(|number| number > 0);
        assert!(place.len() == 3 && place[0] == "fifty.toml" && number(1) && number(2), "place: {line}");
        let (object, rest) = rest.split_once(": ").unwrap();
        let (cause, fix) = rest.rsplit_once("; ").unwrap();
        assert!(!object.is_empty() && !cause.is_empty() && !fix.is_empty(), "{line}");
    }
}

#[test]
fn check_says_everything_and_starts_nothing() {
    let directory = std::env::temp_dir().join(format!("trivium-check-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("fifty.toml"), FIFTY).unwrap();
    let check = |arguments: &[&str]| {
        Command::new(TRIVIUM).arg("check").args(arguments).current_dir(&directory).output().unwrap()
    };
    assert_said(&check(&["fifty.toml"]), "check");
    // The JSON output has the mistakes of the text output.
    let output = check(&["fifty.toml", "--json"]);
    let told: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let errors = told.iter().filter(|problem| problem["severity"] != "warning").count();
    assert_eq!((output.status.code(), errors), (REFUSED, EXPECTED.lines().count()));
    let left: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["fifty.toml"]);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn run_and_apply_refuse_the_whole() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(2);
    rig.write("fifty.toml", FIFTY);
    let links = rig.lab.hub().run(["ip", "-o", "link"]).unwrap();
    let run =
        rig.lab.hub().command([TRIVIUM, "run", "-c", "fifty.toml"]).current_dir(&rig.directory).output();
    assert_said(&run.unwrap(), "run");
    assert_eq!(rig.lab.hub().run(["ip", "-o", "link"]).unwrap(), links, "no device was touched");
    assert_eq!(rig.pins(), Vec::<String>::new());

    let configuration = rig.configuration("persist = false");
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let shown = |rig: &Rig| {
        let said = ["config", "bridges"].map(|what| rig.ok(&["show", what, "--json"])).concat();
        // The number of addresses in the hook changes by itself.
        let lasting = |line: &&str| !line.starts_with("    \"hook\":");
        said.lines().filter(lasting).collect::<Vec<_>>().join("\n")
            + &rig.lab.hub().run(["ip", "-o", "link"]).unwrap()
    };
    let before = shown(&rig);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 1_000).unwrap();
    flow.wait_for(100, PATIENCE).unwrap();
    for extra in [&[][..], &["--dry-run"], &["--confirm", "5"]] {
        let mut command = Command::new(TRIVIUM);
        command.env("TRIVIUM_SOCKET", rig.socket()).current_dir(&rig.directory).args(["apply", "fifty.toml"]);
        assert_said(&command.args(extra).output().unwrap(), &format!("apply {extra:?}"));
    }
    flow.wait_for(100, PATIENCE).unwrap();
    assert_eq!(shown(&rig), before, "nothing was changed");
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken), (0, 0), "{report:?}");
    // No confirmed change is pending, so the next change is accepted.
    let good = rig.path("trivium.toml");
    assert!(rig.ok(&["apply", good.to_str().unwrap()]).contains("nothing differs"));
}
