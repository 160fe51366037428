//! Multicast listener discovery of both versions with address records.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::mld::Mld;

fuzz_target!(|bytes: &[u8]| {
    match Mld::parse(bytes) {
        Ok(Mld::ReportV2(records)) => {
            let sources: usize = records.clone().flatten().map(|record| record.sources.len()).sum();
            assert!(sources * 16 <= bytes.len());
            assert!(records.filter(Result::is_err).count() <= 1);
        }
        Ok(Mld::Query(query)) => assert!(query.sources.len() * 16 <= bytes.len()),
        _ => {}
    }
});
