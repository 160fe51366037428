//! Hook offload: forwarding state of the bridges that the XDP hooks of the ports also use. The hooks report
//! when entries were last used. Entries that become invalid are removed immediately.
//!
//! ```text
//!  switch's MAC table --[`BridgeOffload::sync`]--> stations in the hook's table
//!          |  ^                                         |
//!          |  '----[`BridgeOffload::feed_back`]---------'  when they were last seen there
//!          '--- `switch::OffloadInvalidator::revoke`, by whoever changes the table: the hook's entry is gone when that returns
//! ```
//!
//! From OpenFlow bridges, the hook gets the megaflows with the most traffic ([`FlowOffload`]). Only the slow
//! path, which installs flows in the workers, installs flows in the hook.
//!
//! From other bridges, the hook gets copies of MAC table entries. New entries reach the hook when a control
//! thread synchronises the next time. An entry that became invalid is removed from the hook before the change
//! of the MAC table is acknowledged.

mod bridge;
mod flows;
mod grace;

pub use bridge::{BridgeOffload, HookPort, port_stage};
pub use flows::{FlowOffload, action};
