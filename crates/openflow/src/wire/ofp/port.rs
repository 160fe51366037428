//! Constants of ports and queues (OpenFlow 1.5.1 sections 7.2.1 and 7.3.5.8).
//!
//! Section numbers are those of OpenFlow 1.5.1, unless another version is named.

/// Port configuration bit: the port is administratively down (section 7.2.1.1).
pub const OFPPC_PORT_DOWN: u32 = 1;
/// Port configuration bit: the port drops received packets (section 7.2.1.1).
pub const OFPPC_NO_RECV: u32 = 1 << 2;
/// Port configuration bit: the port drops the packets forwarded to it (section 7.2.1.1).
pub const OFPPC_NO_FWD: u32 = 1 << 5;
/// Port configuration bit: no packet-ins are sent for packets from the port (section 7.2.1.1).
pub const OFPPC_NO_PACKET_IN: u32 = 1 << 6;
/// Port state bit: the port has no link (section 7.2.1.1).
pub const OFPPS_LINK_DOWN: u32 = 1;
/// Port state bit: a protocol outside of OpenFlow blocks the port (section 7.2.1.1).
pub const OFPPS_BLOCKED: u32 = 1 << 1;
/// Port state bit: the port is live for fast-failover groups (section 7.2.1.1).
pub const OFPPS_LIVE: u32 = 1 << 2;
/// Port feature bit: 10 Mbit/s, full duplex (section 7.2.1.2).
pub const OFPPF_10MB_FD: u32 = 1 << 1;
/// Port feature bit: 100 Mbit/s, full duplex (section 7.2.1.2).
pub const OFPPF_100MB_FD: u32 = 1 << 3;
/// Port feature bit: 1 Gbit/s, full duplex (section 7.2.1.2).
pub const OFPPF_1GB_FD: u32 = 1 << 5;
/// Port feature bit: 10 Gbit/s, full duplex (section 7.2.1.2).
pub const OFPPF_10GB_FD: u32 = 1 << 6;
/// Port feature bit: 40 Gbit/s, full duplex (section 7.2.1.2).
pub const OFPPF_40GB_FD: u32 = 1 << 7;
/// Port feature bit: 100 Gbit/s, full duplex (section 7.2.1.2).
pub const OFPPF_100GB_FD: u32 = 1 << 8;
/// Port feature bit: 1 Tbit/s, full duplex (section 7.2.1.2).
pub const OFPPF_1TB_FD: u32 = 1 << 9;
/// Port feature bit: a rate that no other feature bit represents (section 7.2.1.2).
pub const OFPPF_OTHER: u32 = 1 << 10;
/// Type of the Ethernet property of a port description (section 7.2.1.2).
pub const OFPPDPT_ETHERNET: u16 = 0;
/// Type of the Ethernet property of a port-mod (section 7.3.4.4).
pub const OFPPMPT_ETHERNET: u16 = 0;
/// Type of an experimenter property of a port-mod (section 7.3.4.4).
pub const OFPPMPT_EXPERIMENTER: u16 = 0xffff;
/// Type of the Ethernet property of port counters (section 7.3.5.5).
pub const OFPPSPT_ETHERNET: u16 = 0;
/// Queue property type: the minimum rate of the queue. The name is OFPQT_MIN_RATE before OpenFlow
/// 1.4 (section 7.3.5.8).
pub const OFPQDPT_MIN_RATE: u16 = 1;
/// Queue property type: the maximum rate of the queue. The name is OFPQT_MAX_RATE before OpenFlow
/// 1.4 (section 7.3.5.8).
pub const OFPQDPT_MAX_RATE: u16 = 2;
/// Queue ID that represents all queues in requests (section 7.3.5.7).
pub const OFPQ_ALL: u32 = u32::MAX;

/// Configuration bits of ports that only OpenFlow 1.0 has.
pub mod ofp10 {
    /// Port configuration bit: the port does not take part in the spanning tree protocol (OpenFlow 1.0 section 5.2.1).
    pub const OFPPC_NO_STP: u32 = 1 << 1;
    /// Port configuration bit: the port drops received spanning tree packets (OpenFlow 1.0 section 5.2.1).
    pub const OFPPC_NO_RECV_STP: u32 = 1 << 3;
    /// Port configuration bit: packets are not flooded to the port (OpenFlow 1.0 section 5.2.1).
    pub const OFPPC_NO_FLOOD: u32 = 1 << 4;
}
