//! Checksums equal those of the definition, and incremental updates equal the checksum of the changed packet.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::checksum::{finish, fold, sum, update_bytes};

fuzz_target!(|bytes: &[u8]| {
    let mut naive = 0u64;
    for pair in bytes.chunks(2) {
        naive += u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low));
    }
    while naive > 0xffff {
        naive = (naive & 0xffff) + (naive >> 16);
    }
    assert_eq!(u64::from(fold(sum(bytes))), naive);
    if bytes.len() >= 16 {
        let mut after = bytes.to_vec();
        after[..4].copy_from_slice(&bytes[8..12]);
        let updated = update_bytes(finish(sum(bytes)), &bytes[..4], &bytes[8..12]);
        let anew = finish(sum(&after));
        assert!(updated == anew || (updated ^ anew == 0xffff && (updated == 0 || anew == 0)));
    }
});
