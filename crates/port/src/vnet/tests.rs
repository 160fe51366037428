//! Tests of the conversion of virtio headers, with headers that contradict the packet.

use proptest::prelude::*;
use std::sync::Arc;

use packet::build::PacketBuilder;
use packet::{MacAddr, checksum};

use super::*;
use crate::memory::{HugePages, MemoryConfig};
use crate::pool::{Depot, FramePool};

const SRC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const DST: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// Two VLAN tags with identifier 0.
const TAGS: [u8; 8] = [0x81, 0, 0, 0, 0x81, 0, 0, 0];

fn pool() -> FramePool {
    let memory = MemoryConfig { frames: 64, frame_size: 2048, huge_pages: HugePages::Off };
    Depot::new(Arc::new(FrameMemory::new(memory).unwrap())).pool()
}

/// Returns a virtio header with a partial checksum, and with segmentation if `gso` is not 0.
fn needs_checksum(start: u16, offset: u16, gso: u8) -> [u8; VNET_HEADER] {
    let mut header = [F_NEEDS_CSUM, gso, 0, 0, 0, 0, 0, 0, 0, 0];
    if gso != GSO_NONE {
        header[4..6].copy_from_slice(&100_u16.to_ne_bytes());
    }
    header[6..8].copy_from_slice(&start.to_ne_bytes());
    header[8..10].copy_from_slice(&offset.to_ne_bytes());
    header
}

/// Returns a frame with `tags` before the EtherType.
fn tagged(frame: &[u8], tags: &[u8]) -> Vec<u8> {
    [&frame[..12], tags, &frame[12..]].concat()
}

fn udp() -> Vec<u8> {
    PacketBuilder::eth(SRC, DST).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1000, 2000).payload(&[7; 200]).build()
}

fn tcp() -> Vec<u8> {
    PacketBuilder::eth(SRC, DST).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1000, 2000).payload(&[7; 200]).build()
}

/// Returns a UDP packet with a destination options header. The UDP header starts at byte 62.
fn udp_behind_extension() -> Vec<u8> {
    let (src, dst) = ([0x20; 16], [0x21; 16]);
    let mut frame = PacketBuilder::eth(SRC, DST).ipv6(src, dst).udp(1000, 2000).payload(&[7; 200]).build();
    frame[20] = 60;
    frame[19] += 8;
    frame.splice(54..54, [17, 0, 1, 4, 0, 0, 0, 0]);
    frame
}

#[test]
fn checksums_of_the_transport_header_stay_partial() {
    let mut pool = pool();
    let cases = [
        ("UDP", udp(), needs_checksum(34, 6, GSO_NONE)),
        ("TCP", tcp(), needs_checksum(34, 16, GSO_NONE)),
        ("TCP with segmentation", tcp(), needs_checksum(34, 16, GSO_TCPV4)),
        ("UDP with segmentation", udp(), needs_checksum(34, 6, GSO_UDP_L4)),
        ("UDP behind two tags", tagged(&udp(), &TAGS), needs_checksum(42, 6, GSO_NONE)),
        ("UDP behind an extension header", udp_behind_extension(), needs_checksum(62, 6, GSO_NONE)),
    ];
    for (name, frame, header) in cases {
        let mut packet = pool.alloc_copy(&frame).unwrap();
        decode(&header, &mut packet, pool.memory()).unwrap();
        assert!(packet.flags().contains(Flags::PARTIAL_CHECKSUM), "{name}");
        assert_eq!(packet.head(pool.memory()), frame, "{name}");
        pool.free(packet);
    }
}

#[test]
fn a_partial_checksum_at_any_other_place_is_completed_before_a_filter_reads_the_frame() {
    let mut pool = pool();
    let mut fragment = udp();
    fragment[20] = 0x20;
    let three_tags = tagged(&tagged(&udp(), &TAGS), &TAGS[..4]);
    let cases = [
        ("destination address", udp(), needs_checksum(14, 16, GSO_NONE)),
        ("UDP ports", udp(), needs_checksum(34, 2, GSO_NONE)),
        ("payload", udp(), needs_checksum(34, 16, GSO_NONE)),
        ("payload before the field", udp(), needs_checksum(42, 0, GSO_NONE)),
        ("UDP field of a TCP header", tcp(), needs_checksum(34, 6, GSO_NONE)),
        ("first fragment", fragment, needs_checksum(34, 6, GSO_NONE)),
        ("more tags than the flow key has", three_tags, needs_checksum(46, 6, GSO_NONE)),
        ("extension header", udp_behind_extension(), needs_checksum(54, 6, GSO_NONE)),
        (
            "no IP packet",
            [&DST.0[..], &SRC.0, &[0x88, 0xb5], &[0; 46]].concat(),
            needs_checksum(14, 0, GSO_NONE),
        ),
    ];
    for (name, frame, header) in cases {
        let start = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        let field = start + usize::from(u16::from_ne_bytes([header[8], header[9]]));
        let mut expected = frame.clone();
        let sum = checksum::finish_udp(checksum::sum(&frame[start..]));
        expected[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        let mut packet = pool.alloc_copy(&frame).unwrap();
        decode(&header, &mut packet, pool.memory()).unwrap();
        assert!(packet.flags().is_empty(), "{name}");
        assert_eq!(packet.head(pool.memory()), expected, "{name}");
        pool.free(packet);
    }
}

#[test]
fn segmentation_that_contradicts_the_headers_is_refused() {
    let mut pool = pool();
    let cases = [
        ("TCP segmentation of UDP", udp(), needs_checksum(34, 6, GSO_TCPV4)),
        ("UDP segmentation of TCP", tcp(), needs_checksum(34, 16, GSO_UDP_L4)),
        ("IPv6 segmentation of IPv4", tcp(), needs_checksum(34, 16, GSO_TCPV6)),
        ("another position", tcp(), needs_checksum(38, 12, GSO_TCPV4)),
    ];
    for (name, frame, header) in cases {
        let mut packet = pool.alloc_copy(&frame).unwrap();
        assert_eq!(decode(&header, &mut packet, pool.memory()), Err(DropReason::RxBadOffload), "{name}");
        pool.free(packet);
    }
}

proptest! {
    #[test]
    fn what_is_accepted_comes_out_again_and_lies_inside(
        header in proptest::array::uniform10(any::<u8>()), small in any::<bool>(), near in any::<bool>(),
        is_tcp in any::<bool>(), cut in 0_usize..150,
    ) {
        let mut pool = pool();
        let mut header = header;
        if small {
            // The offsets are small, so that most headers are accepted.
            (header[7], header[9]) = (0, 0);
            header[1] %= 6;
        }
        if near {
            header[6..8].copy_from_slice(&34_u16.to_ne_bytes());
            header[8..10].copy_from_slice(&(if is_tcp { 16_u16 } else { 6 }).to_ne_bytes());
        }
        let mut frame = if is_tcp { tcp() } else { udp() };
        frame.truncate(frame.len() - cut);
        let mut packet = pool.alloc_copy(&frame).unwrap();
        if decode(&header, &mut packet, pool.memory()).is_ok() {
            let offload = packet.offload(pool.memory());
            if offload.flags.contains(Flags::PARTIAL_CHECKSUM) {
                let field = usize::from(offload.csum_offset);
                prop_assert_eq!((usize::from(offload.csum_start), field), (34, if is_tcp { 16 } else { 6 }));
                prop_assert!(34 + field + 2 <= frame.len());
            }
            let again = encode(&packet, pool.memory());
            let mut second = pool.alloc_copy(&frame).unwrap();
            decode(&again, &mut second, pool.memory()).unwrap();
            prop_assert_eq!(packet.offload(pool.memory()), second.offload(pool.memory()));
            pool.free(second);
        }
        pool.free(packet);
    }
}
