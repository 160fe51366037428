//! Prefixes of a real routing table, if the data file is present.

use std::path::Path;
use std::process::Command;

use crate::skip;

/// Returns the prefixes as text, one per line, IPv4 before IPv6, without duplicates. `None` if the file is
/// absent, which is recorded as a skip ([`skip`]).
///
/// # Panics
/// If the file cannot be unpacked, and in CI if the file is absent.
#[must_use]
pub fn real_prefixes() -> Option<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/data/rib-prefixes.txt.gz");
    if !file.exists() {
        skip(&format!("{} is absent ('git checkout bench/data' brings the file back)", file.display()));
        return None;
    }
    let unpacked = Command::new("gzip").args(["-dc".as_ref(), file.as_os_str()]).output();
    let unpacked = unpacked.unwrap_or_else(|error| panic!("gzip: {error}; install it"));
    assert!(unpacked.status.success(), "gzip: {}", String::from_utf8_lossy(&unpacked.stderr));
    Some(String::from_utf8_lossy(&unpacked.stdout).into_owned())
}
