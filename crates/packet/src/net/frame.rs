//! Kinds of frames that rules distinguish: the protocol family and the fragment state.

use serde::Serialize;

/// Protocol family of a frame, after the VLAN tags.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// The frame carries an IPv4 packet.
    Ipv4,
    /// The frame carries an IPv6 packet.
    Ipv6,
    /// The frame carries another protocol, or has too many VLAN tags for the parser to reach the
    /// protocol.
    Other,
    /// The frame has an IP header that is truncated or has an unknown version.
    Malformed,
}

impl Family {
    /// Words that name the families in the configuration file, in the order of [`Family::ALL`].
    pub const WORDS: &'static [&'static str] = &["ipv4", "ipv6", "other", "malformed"];
    /// All protocol families.
    pub const ALL: [Family; 4] = [Family::Ipv4, Family::Ipv6, Family::Other, Family::Malformed];
}

/// Fragment state of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FragmentState {
    /// The packet is not a fragment, or its only fragment contains the whole packet.
    Whole,
    /// The packet is the first of several fragments, which contains the transport header.
    First,
    /// The packet is a later fragment, which contains no ports.
    Later,
    /// The fields that rules match cannot be reached in the frame. This applies to frames of any [`Family`]
    /// with one of the following:
    ///
    /// - more than 16 VLAN tags, truncated tags, or a truncated IP header
    /// - truncated IPv4 options
    /// - more than six IPv6 extension headers, or extension headers that exceed the packet
    /// - a transport header that ends before the ports or TCP flags that rules match
    /// - a later fragment that can overlap the transport header of the first one
    ///
    /// In an XDP program, the headers must be in the first buffer of the frame.
    Unreadable,
}

impl FragmentState {
    /// Words that name the fragment states in the configuration file, in the order of [`FragmentState::ALL`].
    pub const WORDS: &'static [&'static str] = &["whole", "first", "later", "unreadable"];
    /// All fragment states.
    pub const ALL: [FragmentState; 4] =
        [FragmentState::Whole, FragmentState::First, FragmentState::Later, FragmentState::Unreadable];
}
