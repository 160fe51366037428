//! Parts of a rate limit: the unit in which the rate limit counts (packets or bytes), and the source prefixes that are
//! limited separately.

use serde::Serialize;

/// Unit in which a rate limit counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RateUnit {
    /// The rate limit counts packets.
    Packets,
    /// The rate limit counts bytes of frames, without the frame check sequence.
    Bytes,
}

/// Prefix lengths by which a rate limit groups source addresses. All sources in one prefix share a token bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct SourceBits {
    /// Prefix length for IPv4 source addresses, 0 to 32.
    pub ipv4: u8,
    /// Prefix length for IPv6 source addresses, 0 to 128.
    pub ipv6: u8,
}
