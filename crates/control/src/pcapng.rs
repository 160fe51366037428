//! Writing of captured frames as a pcapng file (draft-ietf-opsawg-pcapng). The file has one section, an
//! interface description block for each port, and a packet block for each frame.
//!
//! - The comment of a packet block contains the drop reason with the output port, the verdict of the hook, or
//!   the rule that sampled the packet.
//! - The two low bits of `epb_flags` contain the direction of the packet.
//! - `epb_dropcount` contains the number of packets that were lost before the packet.
//!
//! Timestamps have a resolution of nanoseconds. Blocks are little-endian, as the byte-order magic specifies.

use model::CapturedFrame;

/// Maximum captured length of a frame in bytes.
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
const DROP_COUNT: u16 = 4;

/// State of one pcapng section. It contains the names of the interfaces whose description blocks have been written.
pub(crate) struct Section {
    interfaces: Vec<String>,
    snap_length: u32,
}

impl Section {
    /// Returns the state of a new section, and the section's Section Header Block. `snap_length` is the
    /// maximum captured length of a frame.
    pub(crate) fn begin(snap_length: u32) -> (Section, Vec<u8>) {
        let mut section = Vec::new();
        section.extend(BYTE_ORDER.to_le_bytes());
        section.extend(1u16.to_le_bytes());
        section.extend(0u16.to_le_bytes());
        section.extend(u64::MAX.to_le_bytes()); // section length unknown
        (Section { interfaces: Vec::new(), snap_length }, block(SECTION_HEADER, &section))
    }

    /// Returns the packet block of one frame. For the first frame of a port, the port's interface description block
    /// precedes the packet block.
    pub(crate) fn packet(&mut self, frame: &CapturedFrame) -> Vec<u8> {
        let (interface, mut blocks) = self.interface(&frame.port);
        let kept = frame.bytes.len().min(usize::try_from(self.snap_length).unwrap_or(usize::MAX));
        let bytes = &frame.bytes[..kept];
        let mut body = Vec::with_capacity(bytes.len() + 64);
        body.extend(interface.to_le_bytes());
        let [low, high] = halves(frame.at_ns);
        body.extend(high.to_le_bytes());
        body.extend(low.to_le_bytes());
        body.extend(length(bytes).to_le_bytes());
        body.extend(frame.original_length.max(length(bytes)).to_le_bytes());
        body.extend(bytes);
        pad(&mut body);
        let direction: u32 = if frame.received { 1 } else { 2 };
        option(&mut body, PACKET_FLAGS, &direction.to_le_bytes());
        if frame.missed > 0 {
            option(&mut body, DROP_COUNT, &frame.missed.to_le_bytes());
        }
        if let Some(reason) = &frame.drop {
            let output = frame.output.as_ref().map_or_else(String::new, |port| format!(", output: {port}"));
            option(&mut body, OPTION_COMMENT, format!("dropped: {reason}{output}").as_bytes());
        }
        let told = [("verdict: ", &frame.verdict), ("", &frame.counter), ("rule: ", &frame.rule)];
        let told = told.map(|(what, word)| word.as_ref().map(|word| format!("{what}{word}")));
        let told: Vec<String> = told.into_iter().flatten().collect();
        if !told.is_empty() {
            option(&mut body, OPTION_COMMENT, told.join(", ").as_bytes());
        }
        end_of_options(&mut body);
        blocks.extend(block(ENHANCED_PACKET, &body));
        blocks
    }

    /// Returns the pcapng interface ID of a port. If the port has no interface yet, also returns the interface
    /// description block that defines it. Otherwise, the block is empty.
    fn interface(&mut self, port: &str) -> (u32, Vec<u8>) {
        let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        if let Some(at) = self.interfaces.iter().position(|known| known == port) {
            return (number(at), Vec::new());
        }
        self.interfaces.push(port.to_owned());
        let mut interface = Vec::new();
        interface.extend(LINK_ETHERNET.to_le_bytes());
        interface.extend(0u16.to_le_bytes());
        interface.extend(self.snap_length.to_le_bytes());
        option(&mut interface, IF_NAME, port.as_bytes());
        option(&mut interface, IF_TIME_RESOLUTION, &[9]);
        end_of_options(&mut interface);
        (number(self.interfaces.len() - 1), block(INTERFACE, &interface))
    }
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

    /// Returns the types of all blocks of a file, after checking that both length fields of each block are
    /// equal.
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
        let (mut section, mut file) = Section::begin(96);
        for (size, port) in [(0usize, "web1"), (1, "web1"), (60, "web2"), (61, "web1"), (1500, "web2")] {
            let frame = CapturedFrame {
                at_ns: 1_700_000_000_123_456_789,
                port: port.to_owned(),
                output: Some("web9".to_owned()),
                received: true,
                bytes: vec![0xab; size],
                original_length: 1500,
                missed: 7,
                drop: Some("rx_vlan_not_allowed".to_owned()),
                verdict: Some("pass".to_owned()),
                counter: Some("steering_kernel".to_owned()),
                rule: Some("web-1".to_owned()),
            };
            let blocks = section.packet(&frame);
            // The description of an interface precedes its first packet, and occurs once.
            let block = blocks[if word(&blocks, 0) == 1 { word(&blocks, 4) } else { 0 }..].to_vec();
            assert_eq!(word(&block, 8), usize::from(port == "web2"), "interface");
            assert_eq!(word(&block, 20), size.min(96), "captured length");
            assert_eq!(word(&block, 24), 1500, "original length");
            assert!(block.windows(42).any(|bytes| bytes == b"dropped: rx_vlan_not_allowed, output: web9"));
            let told = b"verdict: pass, steering_kernel, rule: web-1";
            assert!(block.windows(told.len()).any(|bytes| bytes == told));
            assert!(
                block.windows(12).any(|bytes| bytes == [4, 0, 8, 0, 7, 0, 0, 0, 0, 0, 0, 0]),
                "drop count"
            );
            let time = (word(&block, 12) as u64) << 32 | word(&block, 16) as u64;
            assert_eq!(time, frame.at_ns);
            file.extend(blocks);
        }
        assert_eq!(kinds(&file), [0x0a0d_0d0a, 1, 6, 6, 1, 6, 6, 6]);
    }
}
