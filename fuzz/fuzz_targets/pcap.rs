//! Capture files of both formats are read without a panic, and no record exceeds the limits. Records equal those that
//! are read from a file to which they are written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use port::pcap::{MAX_PACKET, Reader, Record, Writer};

/// Returns the records up to the end or the first error.
fn records(bytes: &[u8]) -> Vec<Record> {
    let Ok(mut reader) = Reader::new(bytes) else { return Vec::new() };
    let mut found = Vec::new();
    while let Ok(Some(record)) = reader.next_record() {
        let _ = reader.interface_name(record.interface);
        assert!(record.data.len() <= 2 * MAX_PACKET as usize + 64);
        found.push(record);
    }
    found
}

fuzz_target!(|bytes: &[u8]| {
    let found = records(bytes);
    let mut file = Vec::new();
    let mut writer = Writer::classic(&mut file).expect("a vector takes all");
    let interface = writer.interface("any").expect("a vector takes all");
    // Seconds have 32 bits in such a file.
    let fits = |record: &&Record| {
        record.data.len() <= MAX_PACKET as usize && record.timestamp < u64::from(u32::MAX) * 1_000_000_000
    };
    let kept: Vec<&Record> = found.iter().filter(fits).collect();
    for record in &kept {
        let Record { timestamp, original_len, data, .. } = record;
        let written = writer.packet(interface, *timestamp, *original_len, [&data[..]], None);
        written.expect("a vector takes all");
    }
    let again = records(&file);
    assert_eq!(again.len(), kept.len());
    for (record, before) in again.iter().zip(kept) {
        assert_eq!((record.timestamp, &record.data), (before.timestamp, &before.data));
    }
});
