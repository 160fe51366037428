//! ICMPv6 and neighbour discovery with its options.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::icmpv6::{Icmpv6, Icmpv6Repr};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(icmp) = Icmpv6::parse(bytes) {
        let _ = (icmp.echo(), icmp.mtu(), icmp.is_error(), icmp.checksum_ok(99), Icmpv6Repr::parse(&icmp));
        if let Some(Ok(nd)) = icmp.neighbour_discovery() {
            let _ = (nd.target(), nd.destination(), nd.advert_flags());
            assert!(nd.options().count() <= bytes.len() / 8 + 1);
        }
    }
});
