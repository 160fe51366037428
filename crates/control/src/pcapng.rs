//! Captured frames as a pcapng file (draft-ietf-opsawg-pcapng): one section, one interface, a block for each frame.
//!
//! The reason of a drop is the packet's comment, its direction the two low bits of `epb_flags`. Times have
//! nanoseconds. Blocks are little-endian, as the byte-order magic says.

use model::CapturedFrame;

/// Longest frame that is captured, in bytes.
pub(crate) const LONGEST_FRAME: u32 = 9_216;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const LINK_ETHERNET: u16 = 1;
const OPTION_COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const IF_TIME_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;

/// The blocks before the first frame.
pub(crate) fn start(port: &str, snap_length: u32) -> Vec<u8> {
    let mut section = Vec::new();
    section.extend(BYTE_ORDER.to_le_bytes());
    section.extend(1u16.to_le_bytes());
    section.extend(0u16.to_le_bytes());
    section.extend(u64::MAX.to_le_bytes()); // a section of unknown length
    let mut interface = Vec::new();
    interface.extend(LINK_ETHERNET.to_le_bytes());
    interface.extend(0u16.to_le_bytes());
    interface.extend(snap_length.to_le_bytes());
    option(&mut interface, IF_NAME, port.as_bytes());
    option(&mut interface, IF_TIME_RESOLUTION, &[9]);
    end_of_options(&mut interface);
    let mut blocks = block(SECTION_HEADER, &section);
    blocks.extend(block(INTERFACE, &interface));
    blocks
}

/// The block of one frame.
pub(crate) fn packet(frame: &CapturedFrame, snap_length: u32) -> Vec<u8> {
    let kept = frame.bytes.len().min(usize::try_from(snap_length).unwrap_or(usize::MAX));
    let bytes = &frame.bytes[..kept];
    let mut body = Vec::with_capacity(bytes.len() + 64);
    body.extend(0u32.to_le_bytes());
    let [low, high] = halves(frame.at_ns);
    body.extend(high.to_le_bytes());
    body.extend(low.to_le_bytes());
    body.extend(length(bytes).to_le_bytes());
    body.extend(frame.original_length.max(length(bytes)).to_le_bytes());
    body.extend(bytes);
    pad(&mut body);
    let direction: u32 = if frame.received { 1 } else { 2 };
    option(&mut body, PACKET_FLAGS, &direction.to_le_bytes());
    if let Some(reason) = &frame.drop {
        option(&mut body, OPTION_COMMENT, format!("dropped: {reason}").as_bytes());
    }
    end_of_options(&mut body);
    block(ENHANCED_PACKET, &body)
}

fn halves(number: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

fn pad(to: &mut Vec<u8>) {
    to.resize(to.len().next_multiple_of(4), 0);
}

fn option(to: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(1024)];
    to.extend(code.to_le_bytes());
    to.extend(u16::try_from(value.len()).unwrap_or(0).to_le_bytes());
    to.extend(value);
    pad(to);
}

fn end_of_options(to: &mut Vec<u8>) {
    to.extend([0; 4]);
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let total = length(body) + 12;
    let mut block = Vec::with_capacity(body.len() + 12);
    block.extend(kind.to_le_bytes());
    block.extend(total.to_le_bytes());
    block.extend(body);
    block.extend(total.to_le_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: usize) -> usize {
        usize::try_from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())).unwrap()
    }

    /// Block types, each held against both of its lengths.
    fn kinds(bytes: &[u8]) -> Vec<usize> {
        let (mut kinds, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let total = word(bytes, at + 4);
            assert_eq!(total % 4, 0);
            assert_eq!(word(bytes, at + total - 4), total);
            kinds.push(word(bytes, at));
            at += total;
        }
        kinds
    }

    #[test]
    fn blocks_have_their_lengths_at_both_ends() {
        let mut file = start("web1", 96);
        for size in [0usize, 1, 60, 61, 1500] {
            let frame = CapturedFrame {
                at_ns: 1_700_000_000_123_456_789,
                port: "web1".to_owned(),
                received: true,
                bytes: vec![0xab; size],
                original_length: 1500,
                drop: Some("rx_vlan_not_allowed".to_owned()),
            };
            let block = packet(&frame, 96);
            assert_eq!(word(&block, 20), size.min(96), "captured length");
            assert_eq!(word(&block, 24), 1500, "original length");
            assert!(block.windows(28).any(|bytes| bytes == b"dropped: rx_vlan_not_allowed"));
            let time = (word(&block, 12) as u64) << 32 | word(&block, 16) as u64;
            assert_eq!(time, frame.at_ns);
            file.extend(block);
        }
        assert_eq!(kinds(&file), [0x0a0d_0d0a, 1, 6, 6, 6, 6, 6]);
    }
}
