//! Privileges and programs that a test needs. Without them a test is skipped visibly on a developer's machine
//! and fails in CI.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// Name of the environment variable with the path of the skip record file. Each skipped test adds a line to
/// the file: its name, a tab, the reason. `ci/run_tests.py` sets the variable for each test program, and
/// counts and prints the lines at the end of a run.
pub const SKIP_RECORD: &str = "TRIVIUM_SKIP_RECORD";

/// Returns whether this process may create namespaces. Checks for effective user id 0 and does not try.
pub fn privileged() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns whether a command is in the `PATH`, /usr/sbin or /sbin.
pub fn have_command(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()))
        || ["/usr/sbin", "/sbin"].iter().any(|dir| Path::new(dir).join(name).is_file())
}

/// Records that the calling test, or a part of it, is skipped, and the reason. The line goes to standard
/// error past the output capture of the test harness, so that a passing test shows it too. It is also added
/// to the file that [`SKIP_RECORD`] names.
///
/// # Panics
/// - If the environment variable `CI` is set, because in continuous integration a missing privilege or
///   program is a failure.
/// - If the file cannot be written, because an unrecorded skip would count as a passed test.
pub fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "in CI this is a failure: {why}");
    let test = std::thread::current().name().unwrap_or("a thread of a test").to_owned();
    // The harness captures the output of macros such as `eprintln!` and shows it only for failed tests.
    let _ = std::io::stderr().write_all(format!("SKIP: {test}: {why}\n").as_bytes());
    let Some(path) = std::env::var_os(SKIP_RECORD) else { return };
    let line = format!("{test}\t{}\n", why.replace(['\n', '\t'], " "));
    let written = OpenOptions::new().append(true).create(true).open(&path);
    let written = written.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}; no skip can be recorded there", path.display()));
}

/// Returns from the test (skipped visibly, or failed in CI) unless the test runs as root and the named
/// commands exist.
#[macro_export]
macro_rules! require {
    ($($command:literal),* $(,)?) => {
        if !$crate::privileged() {
            $crate::skip("needs root (namespaces, AF_XDP)");
            return;
        }
        $(if !$crate::have_command($command) {
            $crate::skip(concat!("needs the command ", $command, " ('make setup' installs it)"));
            return;
        })*
    };
}
