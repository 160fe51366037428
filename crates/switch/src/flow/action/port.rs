//! Reserved port numbers of OpenFlow 1.1 and later. Their lowest 16 bits are the reserved port numbers of
//! OpenFlow 1.0.

/// Highest number that an ordinary port can have (OFPP_MAX).
pub const MAX: u32 = 0xffff_ff00;
/// Port number that means that no port is set (OFPP_UNSET), in the field `actset_output` and as
/// `watch_port`.
pub const UNSET: u32 = 0xffff_fff7;
/// The ingress port of the packet (OFPP_IN_PORT).
pub const IN_PORT: u32 = 0xffff_fff8;
/// The flow tables as an output port (OFPP_TABLE), allowed in packet-outs of a controller.
pub const TABLE: u32 = 0xffff_fff9;
/// The learning bridge as an output port (OFPP_NORMAL).
pub const NORMAL: u32 = 0xffff_fffa;
/// All ports except the ingress port and ports that do not accept floods (OFPP_FLOOD).
pub const FLOOD: u32 = 0xffff_fffb;
/// All ports except the ingress port (OFPP_ALL).
pub const ALL: u32 = 0xffff_fffc;
/// The controllers as an output port (OFPP_CONTROLLER).
pub const CONTROLLER: u32 = 0xffff_fffd;
/// The bridge's local port (OFPP_LOCAL).
pub const LOCAL: u32 = 0xffff_fffe;
/// No port, or any port, depending on the message (OFPP_ANY).
pub const ANY: u32 = 0xffff_ffff;
