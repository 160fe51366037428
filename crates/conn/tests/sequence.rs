//! Tests of the correction of TCP sequence numbers: a comparison with the octets of a stream, and headers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use conn::helper::sequence::{Correction, SequenceOffset};
use conn::nat::translate::Checksum;
use packet::checksum::{fill, fold, sum};
use proptest::prelude::*;

/// A segment of a stream: its start and its length at the sender, and its start and its length at the receiver.
#[derive(Clone, Copy, Debug)]
struct Segment {
    sent: (u32, u32),
    received: (u32, u32),
}

fn wrapped(number: u32, offset: u32) -> u32 {
    number.wrapping_add(offset)
}

proptest! {
    /// Numbers of segments and of their ends, as the sender and the receiver know them.
    #[test]
    fn the_numbers_agree_with_the_stream(start: u32, lengths in proptest::collection::vec((1..90_u32, 0..4_u8, 1..90_u32), 1..30)) {
        let (mut offset, mut sent, mut received) = (SequenceOffset::default(), start, start);
        let mut segments: Vec<Segment> = Vec::new();
        for (len, change, new_len) in lengths {
            // A quarter of the segments changes its length.
            let new_len = if change == 0 { new_len } else { len };
            let segment = Segment { sent: (sent, len), received: (received, new_len) };
            prop_assert_eq!(offset.for_receiver(sent), received);
            prop_assert_eq!(offset.of_sender(received), sent);
            let difference = i32::try_from(new_len).unwrap() - i32::try_from(len).unwrap();
            offset.change(sent, difference);
            // The repetition of the segment changes nothing.
            let once = offset;
            offset.change(sent, difference);
            prop_assert_eq!(once, offset);
            if difference != 0 {
                // Only the last change is known.
                segments.clear();
            }
            segments.push(segment);
            for Segment { sent, received } in &segments {
                prop_assert_eq!(offset.for_receiver(sent.0), received.0);
                prop_assert_eq!(offset.of_sender(received.0), sent.0);
                prop_assert_eq!(offset.for_receiver(wrapped(sent.0, sent.1)), wrapped(received.0, received.1));
                prop_assert_eq!(offset.of_sender(wrapped(received.0, received.1)), wrapped(sent.0, sent.1));
            }
            (sent, received) = (wrapped(sent, len), wrapped(received, new_len));
        }
    }

    /// Any bytes are corrected without a panic, and a checksum stays valid.
    #[test]
    fn the_checksum_stays_valid(mut bytes in proptest::collection::vec(any::<u8>(), 0..100), words in 5..16_u8) {
        if let Some(offset) = bytes.get_mut(12) {
            *offset = words << 4;
        }
        let mut offset = SequenceOffset::default();
        offset.change(7, -3);
        let correction = Correction::of(offset, offset);
        fill(&mut bytes, 16, 99);
        let mut corrected = bytes.clone();
        correction.apply(&mut corrected, Checksum::Complete);
        let len = usize::from(words) * 4;
        if bytes.len() < len {
            prop_assert_eq!(corrected, bytes);
            return Ok(());
        }
        prop_assert_eq!(fold(sum(&corrected) + 99), 0xffff);
        prop_assert_eq!(&corrected[len..], &bytes[len..]);
        let mut partial = bytes.clone();
        correction.apply(&mut partial, Checksum::Partial);
        prop_assert_eq!(&partial[16..18], &bytes[16..18]);
        partial[16..18].copy_from_slice(&corrected[16..18]);
        prop_assert_eq!(partial, corrected);
    }
}

#[test]
fn an_offset_of_zero_changes_nothing() {
    let mut offset = SequenceOffset::default();
    assert!(offset.is_zero());
    offset.change(100, 0);
    assert!(offset.is_zero());
    for number in [0, 1, 100, 101, u32::MAX] {
        assert_eq!((offset.for_receiver(number), offset.of_sender(number)), (number, number));
    }
    offset.change(100, 5);
    assert!(!offset.is_zero());
    // A change before the last one is ignored.
    let before = offset;
    offset.change(90, 7);
    assert_eq!(offset, before);
    offset.change(200, -5);
    assert_eq!((offset.for_receiver(200), offset.for_receiver(201)), (205, 201));
}

/// Returns a TCP header with a sequence number, an acknowledgement number and options.
fn header(flags: u8, seq: u32, ack: u32, options: &[u8]) -> Vec<u8> {
    assert_eq!(options.len() % 4, 0);
    let offset = u8::try_from(5 + options.len() / 4).unwrap() << 4;
    let mut header = vec![0, 21, 0, 22];
    header.extend(seq.to_be_bytes());
    header.extend(ack.to_be_bytes());
    header.extend([offset, flags, 1, 2, 0, 0, 0, 0]);
    header.extend(options);
    header
}

#[test]
fn acknowledgements_and_sack_blocks_are_corrected() {
    let (mut own, mut other) = (SequenceOffset::default(), SequenceOffset::default());
    own.change(1000, 10);
    other.change(5000, -4);
    let correction = Correction::of(own, other);
    assert_eq!([correction.seq(1000), correction.seq(1001)], [1000, 1011]);
    assert_eq!([correction.ack(5000), correction.ack(5001)], [5000, 5005]);
    let sack = |edges: [u32; 4]| {
        let mut options = vec![1, 5, 18];
        options.extend(edges.iter().flat_map(|edge| edge.to_be_bytes()));
        options.extend([1, 0, 5]);
        options.resize(24, 9);
        options
    };
    const ACK: u8 = 0x10;
    let mut segment = header(ACK, 2000, 5100, &sack([5200, 5300, 4900, 4950]));
    segment.extend(b"payload");
    correction.apply(&mut segment, Checksum::Partial);
    let mut expected = header(ACK, 2010, 5104, &sack([5204, 5304, 4900, 4950]));
    expected.extend(b"payload");
    assert_eq!(segment, expected);
    // Without the ACK flag, the acknowledgement number has no meaning.
    let mut segment = header(0, 2000, 5100, &sack([5200, 5300, 4900, 4950]));
    correction.apply(&mut segment, Checksum::Partial);
    assert_eq!(segment, header(0, 2010, 5100, &sack([5200, 5300, 4900, 4950])));
    // Malformed options stay unchanged.
    for options in [[5, 12, 0, 0], [5, 1, 0, 0], [5, 0, 0, 0], [1, 1, 1, 5], [5, 4, 9, 9], [2, 5, 0, 0]] {
        let mut segment = header(ACK, 2000, 5100, &options);
        correction.apply(&mut segment, Checksum::Partial);
        assert_eq!(segment, header(ACK, 2010, 5104, &options));
    }
    // An incomplete header stays unchanged.
    for len in 0..20 {
        let mut segment = header(ACK, 2000, 5100, &[])[..len].to_vec();
        let before = segment.clone();
        correction.apply(&mut segment, Checksum::Complete);
        assert_eq!(segment, before);
    }
}
