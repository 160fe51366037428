//! Configuration of ports: the settings that all kinds have in common. The settings of each kind are in [`kind`], one
//! file for each kind.

pub(crate) mod check;
pub(crate) mod diff;
pub(crate) mod kind;
pub(crate) mod load;
pub(crate) mod state;
pub(crate) mod xdp_options;

use kind::PortKind;
use packet::WorkerId;
use serde::Serialize;

use crate::{FilterName, Mtu, text};

/// Configuration of a port, through which the data plane receives and transmits packets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Port {
    /// MTU of the port: maximum size of an L3 packet in bytes. `None`: the MTU of the device, or 1500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Mtu>,
    /// Workers to which the queues of the port are assigned in turn. Empty: all workers.
    #[serde(serialize_with = "text::ids::serialize")]
    pub workers: Vec<WorkerId>,
    /// Whether received packets are distributed over all workers according to a symmetric hash (software RSS).
    pub software_rss: bool,
    /// Whether the port is administratively up (`admin = "up"`). A port that is down carries no packets.
    #[serde(serialize_with = "up_or_down")]
    pub admin: bool,
    /// Name of the filter for received packets. The hook of the port applies the filter, or the workers if
    /// the kind of the port has no hook. Ports of kind `null` have no filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterName>,
    /// Kind of the port, with the settings of this kind.
    #[serde(flatten)]
    pub kind: PortKind,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn up_or_down<S: serde::Serializer>(up: &bool, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(if *up { "up" } else { "down" })
}
