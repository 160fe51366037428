//! TCP with options: what is read can be written and reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::checksum;
use packet::tcp::{CHECKSUM_AT, Tcp, TcpRepr};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(tcp) = Tcp::parse(bytes) {
        let _ = (tcp.options().count(), tcp.checksum_ok(0x1234));
        assert_eq!(tcp.header_len() + tcp.payload().len(), bytes.len());
        let repr = TcpRepr::parse(&tcp);
        let mut again = bytes.to_vec();
        repr.emit(&mut again).expect("room");
        checksum::fill(&mut again, CHECKSUM_AT, 0x1234);
        let again = Tcp::parse(&again).expect("what we write is sound");
        assert!(again.checksum_ok(0x1234));
        assert_eq!(TcpRepr::parse(&again), repr);
    }
});
