//! Hook offload: state that the XDP hook gets from the bridges' decisions. Entries age by their use and are
//! revoked immediately.
//!
//! ```text
//!  switch's MAC table --[`BridgeOffload::sync`]--> stations in the hook's table
//!          |  ^                                         |
//!          |  '----[`BridgeOffload::feed_back`]---------'  when they were last seen there
//!          '--- `switch::Shortcut::revoke`, by whoever changes the table: the hook's entry is gone when that returns
//! ```
//!
//! From OpenFlow bridges the hook gets the cached flows with most traffic ([`FlowOffload`]). Only the slow
//! path that installs flows in the workers installs them here.
//!
//! The hook only caches entries of the bridge's MAC table. New stations reach the hook when a control thread
//! synchronises the next time. Entries that became invalid are removed from the hook before the change is
//! acknowledged.

mod bridge;
mod flows;
mod grace;

pub use bridge::{BridgeOffload, HookPort, port_stage};
pub use flows::{FlowOffload, action};
