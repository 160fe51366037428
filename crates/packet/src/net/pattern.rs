//! Byte patterns at an offset in a frame.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// A byte pattern at an offset in a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Position in the packet from which the offset is counted.
    pub base: PatternBase,
    /// Offset of the pattern in bytes, counted from `base`.
    pub offset: u16,
    /// Bytes of the pattern, 1 to 32.
    pub bytes: Vec<u8>,
    /// Mask of the bits that are compared. The mask has as many bytes as the pattern. Empty: all bits are
    /// compared.
    pub mask: Vec<u8>,
}

impl Pattern {
    /// Maximum number of bytes in a pattern.
    pub const LIMIT: usize = 32;
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("at", &self.base)?;
        map.serialize_entry("offset", &self.offset)?;
        map.serialize_entry("bytes", &hex(&self.bytes))?;
        if !self.mask.is_empty() {
            map.serialize_entry("mask", &hex(&self.mask))?;
        }
        map.end()
    }
}

/// Position in a packet from which the offset of a pattern is counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PatternBase {
    /// First byte of the destination Ethernet address.
    Frame,
    /// First byte of the IP header.
    Network,
    /// First byte after the IP header and its extension headers.
    Transport,
    /// First byte after the TCP, UDP or UDP-Lite header.
    Payload,
}

impl PatternBase {
    /// Words that name the positions in the configuration file, in the order of [`PatternBase::ALL`].
    pub const WORDS: &'static [&'static str] = &["frame", "network", "transport", "payload"];
    /// All positions from which the offset of a pattern can be counted.
    pub const ALL: [PatternBase; 4] =
        [PatternBase::Frame, PatternBase::Network, PatternBase::Transport, PatternBase::Payload];
}
