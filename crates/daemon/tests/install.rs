//! Tests the files that `make install` installs: the binary with its version, completions and manual pages. Completions
//! and manual pages are generated from the definition of the command line.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_trivium");

/// Returns the standard output of a command, which must succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn everything_is_installed_below_a_prefix() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let destination = std::env::temp_dir().join(format!("trivium-install-{}", std::process::id()));
    let at = destination.to_str().unwrap();
    let (bash, zsh, fish, units) = ("/opt/t/bash", "/opt/t/zsh", "/opt/t/fish", "/opt/t/units");
    let arguments = [BINARY, at, "/opt/t", bash, zsh, fish, units];
    output(Command::new(root.join("ci/install")).args(arguments));
    let text = |file: &str| {
        std::fs::read_to_string(format!("{at}{file}")).unwrap_or_else(|error| panic!("{file}: {error}"))
    };
    let installed = format!("{at}/opt/t/bin/trivium");
    assert_eq!(
        output(Command::new(&installed).arg("--version")),
        output(Command::new(BINARY).arg("--version"))
    );
    assert!(text("/opt/t/share/man/man1/trivium.1").contains(".TH"));
    assert!(text("/opt/t/share/man/man1/trivium-show-ports.1").contains("trivium"));
    assert!(text("/opt/t/zsh/_trivium").starts_with("#compdef trivium"));
    assert!(text("/opt/t/fish/trivium.fish").contains("complete -c trivium"));
    assert!(text("/opt/t/units/trivium.service").contains("ExecStart=/opt/t/bin/trivium run"));
    // The shell itself completes a command's name.
    let script = format!(
        ". {at}{bash}/trivium; COMP_WORDS=(trivium expl); COMP_CWORD=1; _trivium trivium expl trivium; echo \"${{COMPREPLY[*]}}\""
    );
    assert_eq!(output(Command::new("bash").args(["--norc", "-c", &script])).trim(), "explain");
    std::fs::remove_dir_all(destination).unwrap();
}

#[test]
fn the_version_names_the_build() {
    let version = output(Command::new(BINARY).arg("--version"));
    let number = env!("CARGO_PKG_VERSION");
    assert!(
        version.starts_with(&format!("trivium {number} (")) && version.trim().ends_with(')'),
        "{version}"
    );
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let output = Command::new(BINARY).args(["man", "/nowhere/at/all"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("/nowhere/at/all: cannot write manual pages") && said.contains("directory that exists"),
        "{said}"
    );
}
