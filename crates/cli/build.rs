//! Sets the version string of the binary. The string is the version of the package. In a release build, the string also
//! names the commit from which the binary was built.
//!
//! `TRIVIUM_COMMIT` names the commit if there is no git repository, for example in a source package. The version string
//! of a development build contains no commit, so that a new commit alone does not cause a rebuild.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=TRIVIUM_COMMIT");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = match env::var("PROFILE").as_deref() {
        Ok("release") => {
            env::var("TRIVIUM_COMMIT").ok().or_else(commit).unwrap_or_else(|| "unknown".to_owned())
        }
        _ => "development build".to_owned(),
    };
    println!("cargo::rustc-env=TRIVIUM_VERSION={version} ({commit})");
}

/// Returns the abbreviated hash of the checked-out commit, followed by `-dirty` if tracked files differ.
fn commit() -> Option<String> {
    let folder = git(&["rev-parse", "--absolute-git-dir"])?;
    // The log of `HEAD` changes with each commit, `HEAD` with each checkout, and the index when files are added.
    for file in ["HEAD", "logs/HEAD", "index"] {
        println!("cargo::rerun-if-changed={folder}/{file}");
    }
    git(&["describe", "--always", "--dirty", "--abbrev=12", "--match="])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
