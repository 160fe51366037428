//! Constants of the ONF's extensions for OpenFlow 1.3, which OpenFlow 1.4 and 1.5 include
//! (Open vSwitch's `ofp-msgs.h`).

/// ONF subtype of the message that deletes a flow monitor (ONF EXT-187).
pub const ONFT_FLOW_MONITOR_CANCEL: u32 = 1870;
/// ONF subtype of a role status message (ONF EXT-191).
pub const ONFT_ROLE_STATUS: u32 = 1911;
/// ONF subtype of a bundle control message (ONF EXT-230).
pub const ONFT_BUNDLE_CONTROL: u32 = 2300;
/// ONF subtype of a message that adds a message to a bundle (ONF EXT-230).
pub const ONFT_BUNDLE_ADD_MESSAGE: u32 = 2301;
/// ONF subtype of the message that forwards a copy of another controller's request (ONF EXT-235).
pub const ONFT_REQUESTFORWARD: u32 = 2350;
/// Experimenter multipart subtype: flow monitors (ONF EXT-187).
pub const ONFMP_FLOW_MONITOR: u32 = 1870;
