//! SCTP with its chunks and CRC32c.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::sctp::{self, Sctp};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(sctp) = Sctp::parse(bytes) {
        let (chunks, _) = sctp.chunks().fold((0, 0), |(count, len), chunk| match chunk {
            Ok(chunk) => (count + 1, len + chunk.value.len()),
            Err(_) => (count, len),
        });
        assert!(chunks * 4 <= bytes.len());
        let mut again = bytes.to_vec();
        sctp::fill_checksum(&mut again);
        assert!(Sctp::parse(&again).expect("same length").checksum_ok());
    }
});
