//! Tests of capture files and pcap ports: written files can be read again, files of other programs can be read,
//! malformed files lead to an error, and the port replays packets with the original intervals and records transmitted
//! packets.
#![allow(clippy::unwrap_used, reason = "a failure is the test's")]

mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{bytes_of, depot};
use port::pcap::{Notes, PcapConfig, PcapError, PcapQueue, Reader, Record, Timing, Writer};
use port::{Batch, Queue};
use proptest::prelude::*;

fn read_all(bytes: &[u8]) -> Result<Vec<Record>, PcapError> {
    let mut reader = Reader::new(bytes)?;
    std::iter::from_fn(|| reader.next_record().transpose()).collect()
}

fn record() -> impl Strategy<Value = Record> {
    let data = proptest::collection::vec(any::<u8>(), 0..200);
    let comment = proptest::option::of("[a-zé ]{0,40}");
    let notes = (comment, any::<Option<bool>>(), any::<u64>());
    (0..4_000_000_000_000_000_000_u64, 0_u32..2, data, 0_u32..100, notes).prop_map(
        |(timestamp, interface, data, cut, (comment, received, missed))| {
            let original_len = u32::try_from(data.len()).unwrap() + cut;
            Record { timestamp, interface, original_len, data, comment, received, missed }
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(records in proptest::collection::vec(record(), 0..20)) {
        let mut writer = Writer::pcapng(Vec::new()).unwrap();
        let interfaces = [writer.interface("eth0").unwrap(), writer.interface("a port").unwrap()];
        let mut classic = Writer::classic(Vec::new()).unwrap();
        let only = classic.interface("eth0").unwrap();
        for r in &records {
            let halves = r.data.split_at(r.data.len() / 2);
            let parts = [halves.0, halves.1];
            let notes = Notes { comment: r.comment.as_deref(), received: r.received, missed: r.missed };
            writer.annotated(interfaces[r.interface as usize], r.timestamp, r.original_len, parts, &notes).unwrap();
            classic.packet(only, r.timestamp, r.original_len, parts, r.comment.as_deref()).unwrap();
        }
        let written = writer.into_inner().unwrap();
        prop_assert_eq!(read_all(&written).unwrap(), records.clone());
        let mut reader = Reader::new(&written[..]).unwrap();
        while reader.next_record().unwrap().is_some() {}
        let names = [0, 1, 2].map(|number| reader.interface_name(number).map(str::to_owned));
        prop_assert_eq!(names, [Some("eth0".to_owned()), Some("a port".to_owned()), None]);
        let plain: Vec<Record> = records.into_iter().map(|r| Record { interface: 0, comment: None, received: None, missed: 0, ..r }).collect();
        prop_assert_eq!(read_all(&classic.into_inner().unwrap()).unwrap(), plain);
    }

    #[test]
    fn broken_files_end_quietly(
        records in proptest::collection::vec(record(), 1..5),
        classic in any::<bool>(),
        changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..8),
        cut in any::<u16>(),
    ) {
        let mut writer = if classic { Writer::classic(Vec::new()) } else { Writer::pcapng(Vec::new()) }.unwrap();
        let interface = writer.interface("eth0").unwrap();
        for r in &records {
            writer.packet(interface, r.timestamp, r.original_len, [&r.data[..]], r.comment.as_deref()).unwrap();
        }
        let mut bytes = writer.into_inner().unwrap();
        for (at, value) in changes {
            let at = usize::from(at) % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(usize::from(cut) % (bytes.len() + 1));
        if let Ok(read) = read_all(&bytes) {
            prop_assert!(read.iter().map(|r| r.data.len()).sum::<usize>() <= bytes.len());
        }
    }

    #[test]
    fn noise_is_no_capture(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_all(&bytes);
    }
}

#[test]
fn classic_files_of_both_byte_orders_and_resolutions_are_read() {
    for (magic, fraction) in [(0xa1b2_c3d4_u32, 5000_u32), (0xa1b2_3c4d, 5_000_000)] {
        for big in [false, true] {
            let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
            let short = if big { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
            let mut file = [word(magic), short, word(0), word(0), word(65535), word(1)].concat();
            file.extend([word(7), word(fraction), word(3), word(60)].concat());
            file.extend([1, 2, 3]);
            let got = read_all(&file).unwrap();
            let want = Record {
                timestamp: 7_005_000_000,
                original_len: 60,
                data: vec![1, 2, 3],
                ..Record::default()
            };
            assert_eq!(got, [want]);
        }
    }
}

#[test]
fn what_is_no_ethernet_capture_is_named() {
    let mut file = [0xa1b2_c3d4_u32.to_le_bytes(), [2, 0, 4, 0]].concat();
    file.extend([0; 12]);
    file.extend(113_u32.to_le_bytes());
    assert!(matches!(read_all(&file), Err(PcapError::LinkType(113))));
    assert!(matches!(read_all(b"#!/bin/sh"), Err(PcapError::Magic)));
    let huge = [&file[..20], &1_u32.to_le_bytes(), &[0; 8], &u32::MAX.to_le_bytes(), &[0; 4]].concat();
    assert!(matches!(read_all(&huge), Err(PcapError::Broken { .. })));
}

/// A directory that is removed when the value is dropped, also after a failure.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("port-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn packets(sizes: &[usize]) -> Vec<Vec<u8>> {
    (0..).zip(sizes).map(|(n, size)| common::frame(n, *size)).collect()
}

#[test]
fn a_port_replays_in_time_loops_and_records() {
    let scratch = Scratch::new("replay");
    let (from, to) = (scratch.0.join("in.pcap"), scratch.0.join("out.pcapng"));
    let want = packets(&[60, 1514, 9000]);
    let mut writer = Writer::classic(std::fs::File::create(&from).unwrap()).unwrap();
    let interface = writer.interface("").unwrap();
    for (i, bytes) in (0..).zip(&want) {
        writer.packet(interface, 1_000_000 + i * 100, 0, [&bytes[..]], None).unwrap();
    }
    drop(writer);
    let time = Arc::new(AtomicU64::new(50_000));
    let clock = time.clone();
    let config = PcapConfig {
        name: "replay".to_owned(),
        read: Some(from),
        write: Some(to.clone()),
        timing: Timing::Original,
        rounds: Some(2),
    };
    let mut queue = PcapQueue::open(&config, Box::new(move || clock.load(Ordering::Relaxed))).unwrap();
    let depot = depot(128);
    let mut pool = depot.pool();
    let mut batch = Batch::new();
    let mut receive = |queue: &mut PcapQueue, at: u64| {
        time.store(50_000 + at, Ordering::Relaxed);
        let before = batch.len();
        queue.receive(&mut pool, &mut batch);
        let got: Vec<Vec<u8>> = batch[before..].iter().map(|p| bytes_of(p, pool.memory())).collect();
        got
    };
    assert_eq!(receive(&mut queue, 0), &want[..1]);
    assert_eq!(receive(&mut queue, 99), &want[..0]);
    assert!(!queue.has_pending(), "the next is due in a nanosecond of the test's clock");
    assert!(common::wait(queue.wait_fd().unwrap(), 1000), "and then the timer wakes");
    assert_eq!(receive(&mut queue, 210), &want[1..]);
    // The second round begins one mean interval after the last packet of the first.
    assert_eq!(receive(&mut queue, 299), &want[..0]);
    assert_eq!(receive(&mut queue, 1_000_000), want);
    assert!(queue.is_finished() && !queue.has_pending());
    assert_eq!(queue.transmit(&mut pool, &mut batch), 6);
    Box::new(queue).close(&mut pool);
    pool.flush();
    assert_eq!(depot.available(), 128);
    let recorded: Vec<Vec<u8>> =
        read_all(&std::fs::read(to).unwrap()).unwrap().into_iter().map(|r| r.data).collect();
    assert_eq!(recorded, [&want[..], &want[..]].concat());
}

#[test]
fn a_full_disk_stops_the_recording_and_is_said() {
    let config = PcapConfig { write: Some("/dev/full".into()), ..PcapConfig::default() };
    let mut queue = PcapQueue::open(&config, Box::new(|| 0)).unwrap();
    let depot = depot(128);
    let mut pool = depot.pool();
    for _ in 0..1000 {
        let mut batch: Batch = std::iter::once(pool.alloc_copy(&[0; 1500]).unwrap()).collect();
        assert_eq!(queue.transmit(&mut pool, &mut batch), 1);
    }
    let reasons = queue.status().reasons;
    assert!(reasons.len() == 1 && reasons[0].contains("disk"), "{reasons:?}");
    assert!(queue.counters().tx_invalid > 0);
    Box::new(queue).close(&mut pool);
}

#[test]
fn a_missing_file_is_named() {
    let config = PcapConfig { read: Some("/nowhere/x.pcap".into()), ..PcapConfig::default() };
    let error = PcapQueue::open(&config, Box::new(|| 0)).err().unwrap().to_string();
    assert!(error.contains("/nowhere/x.pcap"), "{error}");
}
