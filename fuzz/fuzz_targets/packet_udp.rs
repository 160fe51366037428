//! UDP and VXLAN: what is read can be written and reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::udp::{self, Udp, UdpRepr};
use packet::vxlan::{Vxlan, VxlanRepr};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(udp) = Udp::parse(bytes) {
        let _ = udp.checksum_ok(77);
        let mut again = vec![0; 8];
        UdpRepr::parse(&udp).emit(&mut again).expect("room");
        again.extend(udp.payload());
        if again.len() <= 65_535 {
            udp::fill_checksum(&mut again, 77);
            let again = Udp::parse(&again).expect("what we write is sound");
            assert!(again.checksum() != 0 && again.checksum_ok(77));
            assert_eq!(again.payload(), udp.payload());
        }
    }
    if let Ok(vxlan) = Vxlan::parse(bytes) {
        let mut again = [0; 8];
        VxlanRepr::parse(&vxlan).emit(&mut again).expect("room");
        assert_eq!(Vxlan::parse(&again).expect("sound").vni(), vxlan.vni());
    }
});
