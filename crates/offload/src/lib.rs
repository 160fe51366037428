//! Hook offload: copies of the bridges' forwarding state for the XDP programs (hooks) of the ports. The hooks report
//! when entries were last used. The offload removes invalid entries immediately.
//!
//! ```text
//!  switch's MAC table --[`BridgeOffload::sync`]--> MAC table entries (stations) in the hook's table
//!          |  ^                                         |
//!          |  '----[`BridgeOffload::feed_back`]---------'  times at which the hook last used the entries
//!          '--- `switch::OffloadInvalidator::revoke`, when an entry changes: removes the hook's entry at once
//! ```
//!
//! From OpenFlow bridges, the hook gets the megaflows with the most traffic ([`FlowOffload`]). Only the slow
//! path, which installs flows in the workers, installs flows in the hook.
//!
//! From other bridges, the hook gets copies of MAC table entries. New entries reach the hook when a control thread
//! synchronises the next time. When an entry becomes invalid, it is removed from the hook before the bridge completes
//! the change of its MAC table.

mod bridge;
mod flows;
mod grace;

pub use bridge::{BridgeOffload, HookPort, port_stage};
pub use flows::{FlowOffload, action};
