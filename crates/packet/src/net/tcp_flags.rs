//! Conditions on the flags of a TCP segment.

use serde::{Serialize, Serializer};

/// TCP flag condition (RFC 9293 section 3.1). For example, `["syn", "!ack"]` matches packets with SYN and
/// without ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpFlags {
    /// TCP flags that are compared. If 0, the packet need not be TCP.
    pub mask: u8,
    /// TCP flags of `mask` that must be set. The other flags of `mask` must be cleared.
    pub value: u8,
}

impl TcpFlags {
    /// Names of the TCP flags, starting at the lowest bit.
    pub const WORDS: [&'static str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];

    /// Returns whether the condition compares no flag and therefore matches every packet.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    pub fn is_any(&self) -> bool {
        self.mask == 0
    }
}

impl Serialize for TcpFlags {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let looked_at = TcpFlags::WORDS.iter().zip(0..8_u8).filter(|(_, bit)| self.mask >> bit & 1 != 0);
        to.collect_seq(looked_at.map(|(word, bit)| match self.value >> bit & 1 {
            0 => format!("!{word}"),
            _ => (*word).to_owned(),
        }))
    }
}
