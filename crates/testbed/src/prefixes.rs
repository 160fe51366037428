//! Prefixes of a real routing table, for tests. The data file may be absent.

use std::path::Path;
use std::process::Command;

use crate::skip;

/// Returns the distinct prefixes of the routing table as text, one prefix per line. IPv4 prefixes precede IPv6
/// prefixes. If the file is absent, records a skip ([`skip`]) and returns `None`.
///
/// # Panics
/// Panics if the file cannot be unpacked. In CI, panics also if the file is absent.
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
