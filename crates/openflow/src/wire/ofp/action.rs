//! Action types (OFPAT_*, OpenFlow 1.5.1 section 7.2.6) of OpenFlow 1.1 and later.
//!
//! The types of OpenFlow 1.0 are in [`ofp10`]. The types that set one field in OpenFlow 1.1 are in [`ofp11`].
//! Section numbers are those of OpenFlow 1.5.1, unless another version is named.

/// Type of the action that sends the packet to a port (section 7.2.6).
pub const OFPAT_OUTPUT: u16 = 0;
/// Type of the action that copies the TTL to the outer header (section 7.2.6).
pub const OFPAT_COPY_TTL_OUT: u16 = 11;
/// Type of the action that copies the TTL to the inner header (section 7.2.6).
pub const OFPAT_COPY_TTL_IN: u16 = 12;
/// Type of the action that sets the MPLS TTL (section 7.2.6).
pub const OFPAT_SET_MPLS_TTL: u16 = 15;
/// Type of the action that decrements the MPLS TTL (section 7.2.6).
pub const OFPAT_DEC_MPLS_TTL: u16 = 16;
/// Type of the action that pushes a VLAN tag (section 7.2.6).
pub const OFPAT_PUSH_VLAN: u16 = 17;
/// Type of the action that removes the outer VLAN tag (section 7.2.6).
pub const OFPAT_POP_VLAN: u16 = 18;
/// Type of the action that pushes an MPLS label (section 7.2.6).
pub const OFPAT_PUSH_MPLS: u16 = 19;
/// Type of the action that removes the outer MPLS label (section 7.2.6).
pub const OFPAT_POP_MPLS: u16 = 20;
/// Type of the action that selects the queue (section 7.2.6).
pub const OFPAT_SET_QUEUE: u16 = 21;
/// Type of the action that processes the packet with a group (section 7.2.6).
pub const OFPAT_GROUP: u16 = 22;
/// Type of the action that sets the IP TTL (section 7.2.6).
pub const OFPAT_SET_NW_TTL: u16 = 23;
/// Type of the action that decrements the IP TTL (section 7.2.6).
pub const OFPAT_DEC_NW_TTL: u16 = 24;
/// Type of the action that sets a field, since OpenFlow 1.2 (section 7.2.6).
pub const OFPAT_SET_FIELD: u16 = 25;
/// Type of the action that pushes a PBB header, since OpenFlow 1.3 (section 7.2.6).
pub const OFPAT_PUSH_PBB: u16 = 26;
/// Type of the action that removes the PBB header, since OpenFlow 1.3 (section 7.2.6).
pub const OFPAT_POP_PBB: u16 = 27;
/// Type of the action that copies a field, since OpenFlow 1.5 (section 7.2.6).
pub const OFPAT_COPY_FIELD: u16 = 28;
/// Type of the action that applies a meter, since OpenFlow 1.5 (section 7.2.6).
pub const OFPAT_METER: u16 = 29;
/// Type of an experimenter action. The name is OFPAT_VENDOR in OpenFlow 1.0 (section 7.2.6).
pub const OFPAT_EXPERIMENTER: u16 = 0xffff;

/// Action types of OpenFlow 1.1 that the set-field action of OpenFlow 1.2 replaces.
pub mod ofp11 {
    /// Type of the action that sets the VLAN ID (OpenFlow 1.1 section A.2.5).
    pub const OFPAT_SET_VLAN_VID: u16 = 1;
    /// Type of the action that sets the VLAN priority (OpenFlow 1.1 section A.2.5).
    pub const OFPAT_SET_VLAN_PCP: u16 = 2;
    /// Type of the action that sets the Ethernet source address (OpenFlow 1.1 section A.2.5).
    pub const OFPAT_SET_DL_SRC: u16 = 3;
    /// Type of the action that sets the Ethernet destination address (OpenFlow 1.1 section A.2.5).
    pub const OFPAT_SET_DL_DST: u16 = 4;
    /// Type of the action that sets the IPv4 source address (OpenFlow 1.1 section A.2.5).
    pub const OFPAT_SET_NW_SRC: u16 = 5;
    /// Type of the action that sets the IPv4 destination address (OpenFlow 1.1 section A.2.5).
    pub const OFPAT_SET_NW_DST: u16 = 6;
    /// Type of the action that sets the DSCP (OpenFlow 1.1 section A.2.5).
    pub const OFPAT_SET_NW_TOS: u16 = 7;
    /// Type of the action that sets the ECN bits (OpenFlow 1.1 section A.2.5).
    pub const OFPAT_SET_NW_ECN: u16 = 8;
    /// Type of the action that sets the transport source port (OpenFlow 1.1 section A.2.5).
    pub const OFPAT_SET_TP_SRC: u16 = 9;
    /// Type of the action that sets the transport destination port (OpenFlow 1.1 section A.2.5).
    pub const OFPAT_SET_TP_DST: u16 = 10;
    /// Type of the action that sets the MPLS label (OpenFlow 1.1 section A.2.5).
    pub const OFPAT_SET_MPLS_LABEL: u16 = 13;
    /// Type of the action that sets the MPLS traffic class (OpenFlow 1.1 section A.2.5).
    pub const OFPAT_SET_MPLS_TC: u16 = 14;
}

/// Action types of OpenFlow 1.0.
pub mod ofp10 {
    /// Type of the action that sends the packet to a port (OpenFlow 1.0 section 5.2.4).
    pub const OFPAT_OUTPUT: u16 = 0;
    /// Type of the action that sets the VLAN ID (OpenFlow 1.0 section 5.2.4).
    pub const OFPAT_SET_VLAN_VID: u16 = 1;
    /// Type of the action that sets the VLAN priority (OpenFlow 1.0 section 5.2.4).
    pub const OFPAT_SET_VLAN_PCP: u16 = 2;
    /// Type of the action that removes the VLAN tag (OpenFlow 1.0 section 5.2.4).
    pub const OFPAT_STRIP_VLAN: u16 = 3;
    /// Type of the action that sets the Ethernet source address (OpenFlow 1.0 section 5.2.4).
    pub const OFPAT_SET_DL_SRC: u16 = 4;
    /// Type of the action that sets the Ethernet destination address (OpenFlow 1.0 section 5.2.4).
    pub const OFPAT_SET_DL_DST: u16 = 5;
    /// Type of the action that sets the IPv4 source address (OpenFlow 1.0 section 5.2.4).
    pub const OFPAT_SET_NW_SRC: u16 = 6;
    /// Type of the action that sets the IPv4 destination address (OpenFlow 1.0 section 5.2.4).
    pub const OFPAT_SET_NW_DST: u16 = 7;
    /// Type of the action that sets the DSCP (OpenFlow 1.0 section 5.2.4).
    pub const OFPAT_SET_NW_TOS: u16 = 8;
    /// Type of the action that sets the transport source port (OpenFlow 1.0 section 5.2.4).
    pub const OFPAT_SET_TP_SRC: u16 = 9;
    /// Type of the action that sets the transport destination port (OpenFlow 1.0 section 5.2.4).
    pub const OFPAT_SET_TP_DST: u16 = 10;
    /// Type of the action that sends the packet to a queue of a port (OpenFlow 1.0 section 5.2.4).
    pub const OFPAT_ENQUEUE: u16 = 11;
}
