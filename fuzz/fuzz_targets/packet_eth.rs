//! Ethernet, VLAN tags and ARP: what is read can be written and reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::arp::{Arp, ArpRepr};
use packet::eth::{Eth, EthRepr};
use packet::vlan::{Tags, VlanRepr};

fuzz_target!(|bytes: &[u8]| {
    let mut buffer = [0; 28];
    if let Ok(eth) = Eth::parse(bytes) {
        let repr = EthRepr::parse(&eth);
        repr.emit(&mut buffer).expect("room");
        assert_eq!(buffer[..14], bytes[..14]);
        let mut tags = Tags::of(&eth);
        for (_, tag) in tags.by_ref().flatten() {
            let repr = VlanRepr::parse(&tag);
            assert_eq!(repr.tci(), tag.tci());
        }
        assert!(tags.payload().len() <= bytes.len());
    }
    if let Ok(arp) = Arp::parse(bytes) {
        ArpRepr::parse(&arp).emit(&mut buffer).expect("room");
        assert_eq!(buffer[..], bytes[..28]);
    }
});
