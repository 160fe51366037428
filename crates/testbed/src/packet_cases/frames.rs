//! Input frames for the test cases, one of each kind. The cases change headers bit by bit, and the functions keep the
//! checksums correct.

use std::net::{Ipv4Addr, Ipv6Addr};

use packet::checksum;

/// Marker in the payload of each frame, which distinguishes the frames of a case from frames that the kernel sends.
pub const MARK: &[u8] = b"TriviumPacket";

/// Destination and source address of all frames: 02:00:00:00:00:02 and 02:00:00:00:00:01, in this order.
const ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

pub fn payload() -> Vec<u8> {
    MARK.repeat(4)
}

pub fn ethernet(eth_type: u16, behind: &[u8]) -> Vec<u8> {
    [&ADDRESSES[..], &eth_type.to_be_bytes(), behind].concat()
}

fn ipv4(protocol: u8, header: &[u8]) -> Vec<u8> {
    let message = [header, &payload()].concat();
    let total = u16_of(20 + message.len()).to_be_bytes();
    let head = [0x45, 0, total[0], total[1], 0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    finish(ethernet(0x0800, &[&head, &message[..]].concat()))
}

fn ipv6(next: u8, header: &[u8]) -> Vec<u8> {
    let message = [header, &payload()].concat();
    let length = u16_of(message.len()).to_be_bytes();
    let mut head = vec![0x60, 0, 0, 0, length[0], length[1], next, 64];
    for last in [1, 2] {
        head.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).octets());
    }
    finish(ethernet(0x86dd, &[head, message].concat()))
}

fn u16_of(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

pub fn tcp() -> Vec<u8> {
    ipv4(6, &[0x12, 0x34, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x12, 1, 0, 0, 0, 0, 0])
}

pub fn udp() -> Vec<u8> {
    let length = u16_of(8 + payload().len()).to_be_bytes();
    ipv4(17, &[0x12, 0x34, 0, 53, length[0], length[1], 0, 0])
}

/// Returns a frame with an SCTP packet that contains one DATA chunk.
pub fn sctp() -> Vec<u8> {
    let length = u16_of(16 + payload().len()).to_be_bytes();
    let chunk = [0, 3, length[0], length[1], 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0];
    ipv4(132, &[&[0x12, 0x34, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0], &chunk[..]].concat())
}

/// Returns a frame with an ICMP echo request.
pub fn icmp() -> Vec<u8> {
    ipv4(1, &[8, 0, 0, 0, 0, 1, 0, 1])
}

pub fn udp6() -> Vec<u8> {
    let length = u16_of(8 + payload().len()).to_be_bytes();
    ipv6(17, &[0x12, 0x34, 0, 53, length[0], length[1], 0, 0])
}

/// Returns a frame with an ICMPv6 echo request.
pub fn icmp6() -> Vec<u8> {
    ipv6(58, &[128, 0, 0, 0, 0, 1, 0, 1])
}

/// Returns a frame with a neighbour solicitation or advertisement that has one link-layer address option. The rest of
/// the payload is an option of an unknown type.
fn discovery(kind: u8, option: u8) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    message.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9).octets());
    message.extend([option, 1, 2, 0, 0, 0, 0, 9]);
    message.extend([253, 7, 0, 0]);
    ipv6(58, &message)
}

pub fn solicitation() -> Vec<u8> {
    discovery(135, 1)
}

pub fn advertisement() -> Vec<u8> {
    discovery(136, 2)
}

/// Returns a frame with an ARP request from 10.0.0.1.
pub fn arp() -> Vec<u8> {
    let message = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2];
    ethernet(0x0806, &[&message[..], &payload()].concat())
}

/// Returns a frame with one MPLS label (18) in front of the IP packet of [`tcp`].
pub fn mpls() -> Vec<u8> {
    ethernet(0x8847, &[&[0, 1, 0x21, 64], &tcp()[14..]].concat())
}

/// Returns a frame with an 802.1Q tag (priority 1, VLAN 5).
pub fn vlan() -> Vec<u8> {
    tagged(&tcp(), 0x2005)
}

/// Returns the frame with an additional outer 802.1Q tag.
pub fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &tci.to_be_bytes(), &frame[12..]].concat()
}

/// Returns the frame with `value` written into the `bits` bits from bit `first` on, and with correct checksums.
pub fn with(frame: &[u8], first: usize, bits: usize, value: u128) -> Vec<u8> {
    let mut frame = frame.to_vec();
    for place in 0..bits {
        let (at, bit) = ((first + place) / 8, 0x80 >> ((first + place) % 8));
        let is_set = value >> (bits - 1 - place) & 1 == 1;
        frame[at] = if is_set { frame[at] | bit } else { frame[at] & !bit };
    }
    finish(frame)
}

/// Returns the frame with correct checksums. Frames that are not plain IP frames are returned unchanged.
fn finish(mut frame: Vec<u8>) -> Vec<u8> {
    match frame[12..14] {
        [8, 0] => {
            frame[24..26].fill(0);
            let sum = checksum::finish(checksum::sum(&frame[14..34]));
            checksum::store(&mut frame[14..34], 10, sum);
            let is_fragment = frame[20] & 0x3f != 0 || frame[21] != 0;
            let address = |at: usize| Ipv4Addr::new(frame[at], frame[at + 1], frame[at + 2], frame[at + 3]);
            let protocol = frame[23];
            let pseudo = checksum::l4_pseudo_v4(address(26), address(30), protocol, u16_of(frame.len() - 34));
            if !is_fragment {
                finish_message(&mut frame[34..], protocol, pseudo);
            }
        }
        [0x86, 0xdd] => {
            let address = |at: usize| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&frame[at..at + 16]);
                Ipv6Addr::from(octets)
            };
            let (protocol, length) = (frame[20], u32::from(u16_of(frame.len() - 54)));
            let pseudo = checksum::l4_pseudo_v6(address(22), address(38), protocol, length);
            finish_message(&mut frame[54..], protocol, pseudo);
        }
        _ => {}
    }
    frame
}

fn finish_message(message: &mut [u8], protocol: u8, pseudo: u32) {
    match protocol {
        6 => checksum::fill(message, 16, pseudo),
        17 => checksum::fill(message, 6, pseudo),
        58 => checksum::fill(message, 2, pseudo),
        1 => checksum::fill(message, 2, 0),
        132 => {
            message[8..12].fill(0);
            let sum = checksum::crc32c(message);
            message[8..12].copy_from_slice(&sum.to_le_bytes());
        }
        _ => {}
    }
}
