//! The real table's prefixes, where they are at hand.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;

use lookup::Prefix;

/// IPv4 and IPv6 prefixes.
type Prefixes = (Vec<Prefix<u32>>, Vec<Prefix<u128>>);

/// `None`, said aloud, where the file is absent.
pub fn prefixes() -> Option<Prefixes> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/rib-prefixes.txt.gz");
    if !file.exists() {
        eprintln!("SKIPPED: {} is absent", file.display());
        return None;
    }
    let unpacked = Command::new("gzip").args(["-dc".as_ref(), file.as_os_str()]).output().unwrap();
    assert!(unpacked.status.success(), "gzip: {}", String::from_utf8_lossy(&unpacked.stderr));
    let (mut four, mut six) = (Vec::new(), Vec::new());
    for line in String::from_utf8(unpacked.stdout).unwrap().lines() {
        let (address, length) = line.split_once('/').unwrap();
        let length = length.parse().unwrap();
        match address.parse::<Ipv4Addr>() {
            Ok(address) => four.push(Prefix::new(address.to_bits(), length)),
            Err(_) => six.push(Prefix::new(address.parse::<Ipv6Addr>().unwrap().to_bits(), length)),
        }
    }
    Some((four, six))
}
