//! Checks for the privileges and programs that a test needs. If one is missing, a test is visibly skipped on
//! a developer's machine and fails in CI.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// Name of the environment variable with the path of the skip record file. Each skipped test adds a line to
/// the file with the name of the test, a tab and the reason. `ci/run_tests.py` sets the variable for each
/// test program, and counts and prints the lines at the end of a run.
pub const SKIP_RECORD: &str = "TRIVIUM_SKIP_RECORD";

/// Returns whether this process may create namespaces, which is assumed if its effective user ID is 0.
pub fn privileged() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns whether a command exists in a directory of `PATH`, in /usr/sbin or in /sbin.
pub fn have_command(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()))
        || ["/usr/sbin", "/sbin"].iter().any(|dir| Path::new(dir).join(name).is_file())
}

/// Records that the calling test, or a part of it, is skipped, with the reason. The function writes a line to standard
/// error and bypasses the output capture of the test harness, so that the line appears even if the test passes. The
/// function also adds the line to the file that [`SKIP_RECORD`] names.
///
/// # Panics
/// - Panics if the environment variable `CI` is set, because in continuous integration a missing privilege or
///   program is a failure.
/// - Panics if the file cannot be written, because an unrecorded skip would count as a passed test.
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

/// Returns from the calling test unless the test runs as root and the named commands exist. A test that
/// returns here is visibly skipped. In CI, the test fails instead.
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
