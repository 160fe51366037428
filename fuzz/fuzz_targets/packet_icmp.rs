//! ICMP for IPv4.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::checksum;
use packet::icmp::{CHECKSUM_AT, Icmp, IcmpRepr};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(icmp) = Icmp::parse(bytes) {
        let _ = (icmp.echo(), icmp.next_hop_mtu(), icmp.gateway(), icmp.is_error(), icmp.payload());
        let repr = IcmpRepr::parse(&icmp);
        let mut again = bytes.to_vec();
        repr.emit(&mut again).expect("room");
        checksum::fill(&mut again, CHECKSUM_AT, 0);
        let again = Icmp::parse(&again).expect("sound");
        assert!(again.checksum_ok());
        assert_eq!(IcmpRepr::parse(&again), repr);
    }
});
