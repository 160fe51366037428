//! Prefixes of a real routing table, if the file is available.

use std::net::{Ipv4Addr, Ipv6Addr};

use lookup::Prefix;

/// IPv4 and IPv6 prefixes.
type Prefixes = (Vec<Prefix<u32>>, Vec<Prefix<u128>>);

/// Returns the prefixes in the file of the real routing table. If the file does not exist, returns `None` and records a
/// skip. In CI, a missing file is a failure.
pub fn prefixes() -> Option<Prefixes> {
    let text = testbed::real_prefixes()?;
    let (mut four, mut six) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let (address, length) = line.split_once('/').unwrap();
        let length = length.parse().unwrap();
        match address.parse::<Ipv4Addr>() {
            Ok(address) => four.push(Prefix::new(address.to_bits(), length)),
            Err(_) => six.push(Prefix::new(address.parse::<Ipv6Addr>().unwrap().to_bits(), length)),
        }
    }
    Some((four, six))
}
