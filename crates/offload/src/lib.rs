//! What the driver hook is told: derived from the rooms' decisions, aged by their use, revoked at once.
//!
//! ```text
//!  switch's MAC table --[`BridgeOffload::sync`]--> stations in the hook's table
//!          |  ^                                         |
//!          |  '----[`BridgeOffload::feed_back`]---------'  when they were last seen there
//!          '--- `switch::Shortcut::revoke`, by whoever changes the table: the hook's entry is gone when that returns
//! ```
//!
//! Of OpenFlow's rules it is told the hottest cached flows ([`FlowOffload`]), by the decider alone, who gave them to the workers.
//!
//! The hook only ever caches what the bridge's table says. New stations come to it at the next look of a control thread; what
//! is not so any more leaves it before the change is answered.

mod bridge;
mod flows;
mod grace;

pub use bridge::{BridgeOffload, HookPort, port_stage};
pub use flows::{FlowOffload, action};
