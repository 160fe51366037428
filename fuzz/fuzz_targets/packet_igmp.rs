//! IGMP of all versions with group records.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::igmp::{self, Igmp};

fuzz_target!(|bytes: &[u8]| {
    let _ = igmp::checksum_ok(bytes);
    match Igmp::parse(bytes) {
        Ok(Igmp::ReportV3(records)) => {
            let sources: usize = records.clone().flatten().map(|record| record.sources.len()).sum();
            assert!(sources * 4 <= bytes.len());
            assert!(records.filter(Result::is_err).count() <= 1);
        }
        Ok(Igmp::Query(query)) => assert!(query.sources.len() * 4 <= bytes.len()),
        _ => {}
    }
});
