//! State of virtual routers: interfaces, sizes of their tables, and synchronization with the kernel.
//!
//! The API sends these values as JSON. Counters only increase, like those of [`crate::PortState`].

use std::fmt;

use packet::MacAddr;
use serde::{Deserialize, Serialize};

use crate::table::Listed;
use crate::{Miss, Owner, text};

/// State of a virtual router.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RouterState {
    /// Name of the router.
    pub name: String,
    /// Owner of the router: the source that created it, such as `file` or `api`.
    pub owner: Owner,
    /// Namespace of the router. Absent: the daemon's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Number of IPv4 routes in all routing tables of the router.
    pub routes4: u64,
    /// Number of IPv6 routes in all routing tables of the router.
    pub routes6: u64,
    /// Maximum number of routes of both families together.
    pub routes_limit: u32,
    /// Number of neighbours of the router, IPv4 and IPv6 together.
    pub neighbours: u64,
    /// Maximum number of neighbours of both families together.
    pub neighbours_limit: u32,
    /// Number of routing tables of the router that contain routes.
    pub tables: u32,
    /// Number of policy rules (`ip rule`) of the router.
    pub rules: u32,
    /// Whether the router has applied all kernel notifications that it has received so far.
    pub in_step: bool,
    /// Number of kernel notifications that were applied to the router's tables.
    pub events: u64,
    /// Number of overruns of the netlink receive buffer. After an overrun, the router reads all state from the kernel
    /// again.
    pub overruns: u64,
    /// Number of times that all state was read from the kernel: at the start, and after each overrun.
    pub resyncs: u64,
    /// Duration of the last complete read of the kernel's state, in milliseconds.
    pub resync_ms: u64,
    /// Number of the router's objects (such as routes) that differed from the kernel's objects and
    /// were repaired.
    pub drifted: u64,
    /// Number of routes that were refused because a table was full.
    pub refused: u64,
    /// State of the FPM server. Absent if the router does not use FPM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fpm: Option<FpmState>,
    /// Counters of packets that workers punted to the kernel, by packet class.
    #[serde(default)]
    pub punts: Vec<PuntState>,
    /// Interfaces of the router.
    #[serde(default)]
    pub interfaces: Vec<InterfaceState>,
    /// Description of a current problem of the router, such as a missing namespace. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl Listed for RouterState {
    fn text(routers: &[RouterState]) -> String {
        if routers.is_empty() {
            return "no router runs\n".to_owned();
        }
        routers.iter().map(RouterState::paragraph).collect()
    }
}

impl RouterState {
    /// Formats the state of the router as text, with one line for each part, such as routes or
    /// neighbours.
    fn paragraph(&self) -> String {
        let namespace = self.namespace.as_deref().unwrap_or("the daemon's namespace");
        let step = if self.in_step { "in step with the kernel" } else { "behind the kernel" };
        let mut text = format!("{}: in {namespace}, {step}, owner {}\n", self.name, self.owner);
        if let Some(trouble) = &self.trouble {
            text.push_str(&format!("  {trouble}\n"));
        }
        let (held, room) = (self.routes4 + self.routes6, self.routes_limit);
        text.push_str(&format!(
            "  routes      {held} of {room} ({} IPv4, {} IPv6) in {} tables, {} rules, {} refused\n",
            self.routes4, self.routes6, self.tables, self.rules, self.refused
        ));
        text.push_str(&format!("  neighbours  {} of {}\n", self.neighbours, self.neighbours_limit));
        text.push_str(&format!(
            "  kernel      {} messages, {} overruns, {} times read anew (the last in {} ms), {} drifted\n",
            self.events, self.overruns, self.resyncs, self.resync_ms, self.drifted
        ));
        if let Some(fpm) = &self.fpm {
            text.push_str(&fpm.lines());
        }
        let names: Vec<&str> = self.interfaces.iter().map(|interface| interface.port.as_str()).collect();
        let names = if names.is_empty() { "-".to_owned() } else { names.join(" ") };
        text.push_str(&format!("  interfaces  {names}\n"));
        text
    }
}

/// State of a router's FPM server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FpmState {
    /// Address on which connections of zebra are accepted.
    pub listen: String,
    /// Phase of the session with zebra.
    pub state: FpmPhase,
    /// Address of the connected peer. Absent if there is no connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Seconds since zebra connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Number of routes of the router that come from FPM sessions. Includes routes of the previous session that the
    /// current session has not announced again yet.
    pub routes: u64,
    /// Number of FPM sessions since the server started.
    pub sessions: u64,
    /// Number of FPM messages received in all sessions.
    pub messages: u64,
    /// Number of FPM messages that were ignored, because they concern objects that the router does not use, or
    /// routes that the router learns from the kernel.
    pub left: u64,
    /// Number of route announcements that were refused, because a table was full or the announced next hop is unknown.
    pub refused: u64,
    /// Number of routes that were removed because zebra did not announce them again after it had connected again.
    pub swept: u64,
    /// Number of messages in which the router reported to zebra whether a route was installed.
    pub answers: u64,
    /// Reason for the end of the last FPM session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Reason why zebra cannot connect. Absent if zebra can connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl FpmState {
    /// Formats the state of the FPM server as lines of the text that describes the router.
    fn lines(&self) -> String {
        let peer = self.peer.as_ref().map(|peer| format!(" from {peer}")).unwrap_or_default();
        let since = self.seconds.map(|seconds| format!(" for {seconds} s")).unwrap_or_default();
        let mut text = format!(
            "  fpm         {}{peer}{since} at {}, session {}: {} routes, {} messages ({} left), {} answers, {} refused, {} swept\n",
            self.state,
            self.listen,
            self.sessions,
            self.routes,
            self.messages,
            self.left,
            self.answers,
            self.refused,
            self.swept
        );
        if let Some(trouble) = &self.trouble {
            text.push_str(&format!("              {trouble}\n"));
        } else if let (Some(ended), FpmPhase::Waiting) = (&self.ended, self.state) {
            text.push_str(&format!("              the last session ended: {ended}\n"));
        }
        text
    }
}

/// Phase of an FPM session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FpmPhase {
    /// Zebra is not connected.
    #[default]
    Waiting,
    /// Zebra is connected, and its initial announcement of routes is probably not complete.
    Replaying,
    /// Zebra is connected, and its initial announcement of routes is complete. Routes that zebra did not announce have
    /// been removed.
    Connected,
}

impl fmt::Display for FpmPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FpmPhase::Waiting => "waiting",
            FpmPhase::Replaying => "replaying",
            FpmPhase::Connected => "connected",
        })
    }
}

/// Counters of one class of packets that are punted to the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PuntState {
    /// Name of the packet class, such as `own` or `arp`.
    pub class: String,
    /// Maximum rate at which packets of the class are punted, in packets per second.
    pub limit: u32,
    /// Number of packets that workers punted to the kernel.
    pub packets: u64,
    /// Number of packets that were dropped because they exceeded the maximum rate of the class.
    pub refused: u64,
}

/// State of an interface of a router.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct InterfaceState {
    /// Name of the port that is the interface.
    pub port: String,
    /// Owner of the interface: the source that created it, such as `file` or `api`.
    pub owner: Owner,
    /// VLAN of the interface. Absent: the interface carries untagged packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Inner VLAN of a double-tagged interface. Absent if the packets of the interface have one tag or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_vlan: Option<u16>,
    /// Name of the device in the namespace of the router.
    pub device: String,
    /// Interface index of the device. 0 if the device does not exist.
    pub index: u32,
    /// Ethernet address of the interface's device.
    #[serde(default, with = "text::mac_option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub mac: Option<MacAddr>,
    /// MTU of the device: maximum size of an L3 packet in bytes.
    pub mtu: u32,
    /// Whether the interface's device is up and has a carrier.
    pub up: bool,
    /// IP addresses that the kernel device has, with prefix lengths.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Handling of packets that arrive on the interface and match no route.
    pub miss: Miss,
    /// State of the DHCP relay for IPv4. Absent if the interface has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp_relay: Option<DhcpRelayState>,
    /// State of the DHCPv6 relay. Absent if the interface has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp6_relay: Option<DhcpRelayState>,
}

/// State of the DHCP or DHCPv6 relay of an interface. All counters count messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DhcpRelayState {
    /// Whether the relay currently receives messages. For this, the device must exist and have an address of the
    /// relay's address family. For DHCPv6, the address must not be link-local.
    pub listens: bool,
    /// Number of client requests that were relayed to the servers. A request that is sent to several servers
    /// counts once.
    pub requests: u64,
    /// Number of server replies that were relayed to clients.
    pub replies: u64,
    /// Number of messages that were dropped because they are truncated, are not for a relay, or (DHCP for IPv4) are not
    /// for Ethernet clients.
    pub malformed: u64,
    /// Number of messages that were dropped because they had already passed this relay, or 16 relays (DHCPv6: 8
    /// relays).
    pub looping: u64,
    /// Number of dropped messages from unexpected senders: replies that are not from the configured servers,
    /// and requests that are neither from on-link clients nor from relays.
    pub strangers: u64,
    /// Number of messages that were dropped by the rate limit of the relay.
    pub limited: u64,
    /// Number of messages that were dropped because the kernel could not send them.
    pub unsent: u64,
}

/// Result of a comparison of the router's tables with the kernel. Differences have been repaired.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DriftState {
    /// Number of objects (such as routes and neighbours) that were compared.
    pub checked: u64,
    /// Number of objects that differed from the kernel's objects although no kernel notification had announced the
    /// change.
    pub drifted: u64,
    /// Names of the objects that differed, at most 1000.
    #[serde(default)]
    pub changes: Vec<String>,
    /// Number of objects that were not compared, because they changed during the comparison. The next
    /// comparison checks them.
    pub busy: u64,
}

impl DriftState {
    /// Maximum number of differing objects that are listed by name.
    pub const TOLD: usize = 1000;
}
