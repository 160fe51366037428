//! TCP segments of a client, and the parsed and checked answers of a hook with SYN cookies.

use crate::support::{ethernet, to_us};

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

pub const CLIENT4: [u8; 4] = [198, 51, 100, 1];
pub const SERVICE4: [u8; 4] = [192, 0, 2, 80];
pub const CLIENT6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
pub const SERVICE6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80];

/// Returns the RFC 1071 sum over 16-bit words.
pub fn sum(parts: &[&[u8]]) -> u16 {
    let bytes: Vec<u8> = parts.concat();
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

/// A segment to the service, and its encapsulation.
#[derive(Clone)]
pub struct Segment {
    pub v6: bool,
    pub client: u8,
    pub port: u16,
    pub to: u16,
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub options: Vec<u8>,
    pub payload: usize,
    pub tags: Vec<(u16, u16)>,
}

pub fn segment(flags: u8) -> Segment {
    Segment {
        v6: false,
        client: 1,
        port: 40_000,
        to: 80,
        flags,
        seq: 0x1234_5678,
        ack: 0,
        options: vec![2, 4, 5, 0xb4],
        payload: 0,
        tags: vec![],
    }
}

impl Segment {
    pub fn tcp(&self) -> Vec<u8> {
        let mut tcp = [self.port.to_be_bytes(), self.to.to_be_bytes()].concat();
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        let words = u8::try_from(5 + self.options.len().div_ceil(4)).unwrap();
        tcp.extend([words << 4, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(&self.options);
        tcp.resize(usize::from(words) * 4, 0);
        tcp.resize(tcp.len() + self.payload, 0xa5);
        tcp
    }

    pub fn packet(&self) -> Vec<u8> {
        let tcp = self.tcp();
        let length = u16::try_from(tcp.len()).unwrap();
        if self.v6 {
            let mut packet = vec![0x60, 0, 0, 0];
            packet.extend(length.to_be_bytes());
            packet.extend([6, 64]);
            packet.extend(CLIENT6);
            packet[23] = self.client;
            packet.extend(SERVICE6);
            return [packet, tcp].concat();
        }
        let mut packet = vec![0x45, 0];
        packet.extend((length + 20).to_be_bytes());
        packet.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
        packet.extend(CLIENT4);
        packet[15] = self.client;
        packet.extend(SERVICE4);
        [packet, tcp].concat()
    }

    pub fn frame(&self) -> Vec<u8> {
        let ethertype = if self.v6 { 0x86dd } else { 0x0800 };
        ethernet(to_us(), &self.tags, ethertype, &self.packet())
    }
}

/// Returns the offset of the TCP segment in an untagged frame, and the addresses, which begin the pseudo-header.
fn transport(frame: &[u8], v6: bool) -> (usize, &[u8]) {
    if v6 { (54, &frame[22..54]) } else { (34, &frame[26..34]) }
}

/// Returns the sum over the pseudo-header and the segment of a frame. The sum is 0xffff if the checksum is valid.
pub fn segment_sum(frame: &[u8], v6: bool) -> u16 {
    let (at, pseudo) = transport(frame, v6);
    let length = u16::try_from(frame.len() - at).unwrap();
    sum(&[pseudo, &[0, 6], &length.to_be_bytes(), &frame[at..]])
}

/// Writes the checksum of a segment. A partial checksum is the sum over the pseudo-header only.
pub fn with_checksum(mut frame: Vec<u8>, v6: bool, is_partial: bool) -> Vec<u8> {
    let (at, pseudo) = transport(&frame, v6);
    let length = u16::try_from(frame.len() - at).unwrap();
    let check =
        if is_partial { sum(&[pseudo, &[0, 6], &length.to_be_bytes()]) } else { !segment_sum(&frame, v6) };
    frame[at + 16..at + 18].copy_from_slice(&check.to_be_bytes());
    frame
}

/// The fields of a SYN-ACK with which the hook answers a SYN. The fields that are equal in all answers have been
/// checked before, and are not included.
#[derive(Debug)]
pub struct Answer {
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub options: Vec<u8>,
    pub ttl: u8,
}

pub fn read(answer: &[u8], asked: &Segment) -> Answer {
    let frame = asked.frame();
    assert_eq!((&answer[..6], &answer[6..12]), (&frame[6..12], &frame[..6]), "stations are exchanged");
    let network = 14 + 4 * asked.tags.len();
    assert_eq!(answer[12..network], frame[12..network], "tags and ethertype stay");
    let packet = &answer[network..];
    let (transport, length, pseudo, ttl) = if asked.v6 {
        assert_eq!((packet[0], packet[6]), (0x60, 6));
        assert_eq!((&packet[8..24], &packet[24..40]), (&SERVICE6[..], &asked.packet()[8..24]));
        (40, usize::from(u16::from_be_bytes([packet[4], packet[5]])), &packet[8..40], packet[7])
    } else {
        assert_eq!((packet[0], packet[9], packet[6]), (0x45, 6, 0x40));
        assert_eq!((&packet[12..16], &packet[16..20]), (&SERVICE4[..], &asked.packet()[12..16]));
        assert_eq!(sum(&[&packet[..20]]), 0xffff, "the IPv4 header's checksum");
        let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        (20, total - 20, &packet[12..20], packet[8])
    };
    let tcp = &packet[transport..transport + length];
    let proto = u16::try_from(length).unwrap();
    assert_eq!(sum(&[pseudo, &[0, 6], &proto.to_be_bytes(), tcp]), 0xffff, "the segment's checksum");
    assert_eq!(answer.len(), (network + transport + length).max(60), "nothing behind it but padding");
    assert!(packet[transport + length..].iter().all(|byte| *byte == 0));
    let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
    assert_eq!((&tcp[..2], &tcp[2..4]), (&asked.to.to_be_bytes()[..], &asked.port.to_be_bytes()[..]));
    assert_eq!((tcp[13], usize::from(tcp[12] >> 4) * 4), (SYN | ACK, length));
    Answer {
        seq: word(4),
        ack: word(8),
        window: u16::from_be_bytes([tcp[14], tcp[15]]),
        options: tcp[20..].to_vec(),
        ttl,
    }
}
