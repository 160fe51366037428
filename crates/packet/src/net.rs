//! Network value types that many crates share: address prefixes, interface addresses, VLAN conditions, conditions on
//! TCP flags, and five-tuples of connections.
//!
//! Each type has one text form and one serialized form, which configuration files, the API and the
//! logs share. None of the types is used per packet. The data path uses other types, which are
//! built from these values: [`FlowKey`](crate::FlowKey), `lookup::Prefix` and the tables of `xdp`.

mod five_tuple;
mod frame;
mod interface_address;
mod pattern;
mod prefix;
mod protocol;
mod rate;
mod span;
mod tcp_flags;

pub use five_tuple::FiveTuple;
pub use frame::{Family, FragmentState};
pub use interface_address::{InterfaceAddress, InterfaceAddressError};
pub use pattern::{Pattern, PatternBase};
pub use prefix::{Prefix, PrefixError, PrefixLengthError};
pub use protocol::Protocol;
pub use rate::{RateUnit, SourceBits};
pub use span::{Span, VlanMatch};
pub use tcp_flags::TcpFlags;
