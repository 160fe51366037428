//! IPv4 with options: what is read can be written and reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::ipv4::{Ipv4, Ipv4Repr};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(ip) = Ipv4::parse(bytes) {
        let _ = (ip.options().count(), ip.checksum_ok(), ip.pseudo_sum());
        assert_eq!(ip.header_len() + ip.payload().len(), usize::from(ip.total_len()));
        let repr = Ipv4Repr::parse(&ip);
        let mut again = bytes.to_vec();
        repr.emit(&mut again).expect("room");
        let again = Ipv4::parse(&again).expect("what we write is sound");
        assert!(again.checksum_ok());
        assert_eq!(Ipv4Repr::parse(&again), repr);
    }
});
