//! Privileges and peers that a test needs: without them it is skipped visibly on a developer's machine, and fails in CI.

use std::path::Path;

/// Whether this process may make namespaces: checked once by making one's own requirements visible, not by trying.
pub fn privileged() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a command is in the `PATH`.
pub fn have_command(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()))
        || ["/usr/sbin", "/sbin"].iter().any(|dir| Path::new(dir).join(name).is_file())
}

/// Says that a test is skipped, and why; panics instead where `CI` is set.
///
/// # Panics
/// In CI: there a missing privilege or peer is a failure.
pub fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "in CI this is a failure: {why}");
    eprintln!("SKIP: {why}");
}

/// Returns from the test (skipped visibly, or failed in CI) unless it runs as root and the named commands exist.
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
