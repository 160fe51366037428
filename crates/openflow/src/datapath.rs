//! Interface between a bridge and its controllers: the trait [`Datapath`], which bridges implement. The module
//! `events` contains the queue of the bridge's events.

use std::future::Future;
use std::pin::Pin;

use packet::MacAddr;
use switch::flow::{
    ConnectionFilter, FlowError, FlowFilter, FlowStats, Group, GroupStats, Meter, MeterStats, Mod,
    OptionsError, OptionsMod, Origin, PacketOut, PortDesc, PortStats, TableState, TableStats, TunnelOptions,
};
pub use switch::flow::{Fragments, Miss};
use tokio::sync::OwnedSemaphorePermit;

pub use crate::events::{EventSender, Interest, SharedEvent, Subscription, events, events_for};

/// An iterator over batches of objects, for replies that list many objects. The bridge computes a batch within a few
/// milliseconds when the session requests the batch, and holds no lock between two batches. A batch may be empty.
pub type Batches<T> = Box<dyn Iterator<Item = Vec<T>> + Send>;

/// Result of applying a batch of changes of flow entries, groups and meters. The error contains the index of the first
/// refused change, and the reason for the refusal.
pub type Outcome = Result<(), (usize, FlowError)>;

/// Minimum size of a batch of changes that the default implementation of [`Datapath::modify_soon`] considers too slow
/// for the task of a session. A bridge can use a better estimate instead.
const MANY: usize = 32;

/// Future that completes when all changes before a barrier request have taken effect in the flow caches (see
/// `Datapath::barrier`).
pub type Settled = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Features of a bridge (OFPT_FEATURES_REPLY).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Features {
    /// Datapath ID of the bridge.
    pub datapath_id: u64,
    /// Number of flow tables, at most 255. Tables are numbered from 0.
    pub tables: u8,
    /// Maximum number of groups of each group type.
    pub max_groups: u32,
    /// Maximum number of meters. Meters are numbered from 1.
    pub max_meters: u32,
    /// Maximum number of bands that a meter may have.
    pub max_bands: u8,
    /// Whether ports have queues with counters (capability OFPC_QUEUE_STATS).
    pub queues: bool,
}

/// Textual description of a bridge (OFPMP_DESC). Each field has at most 255 octets, except for `serial`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Description {
    /// Name of the manufacturer of the bridge.
    pub manufacturer: String,
    /// Description of the hardware on which the bridge runs.
    pub hardware: String,
    /// Name and version of the bridge's software.
    pub software: String,
    /// Serial number of the bridge, at most 31 octets long.
    pub serial: String,
    /// Description of the datapath, by which the bridge can be distinguished from other bridges.
    pub datapath: String,
}

/// Modification of a port (OFPT_PORT_MOD).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortMod {
    /// OpenFlow number of the port to modify.
    pub number: u32,
    /// Ethernet address of the port as known to the controller. A different address is refused with
    /// [`PortModError::Address`].
    pub mac: MacAddr,
    /// New values of the configuration bits in [`PortDesc::config`]: 1 port down, 4 no receive, 16 no flood,
    /// 32 no forward, 64 no packet-in.
    pub config: u32,
    /// Bits of `config` that the modification changes.
    pub mask: u32,
}

/// Reason why a port modification is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PortModError {
    /// OFPPMFC_BAD_PORT: the port does not exist.
    #[error("there is no such port")]
    NoPort,
    /// OFPPMFC_BAD_HW_ADDR: the port has another Ethernet address.
    #[error("the port has another address")]
    Address,
    /// OFPPMFC_BAD_CONFIG: the requested configuration is not supported.
    #[error("the port cannot be configured so")]
    Config,
    /// OFPPMFC_EPERM: the modification is not permitted.
    #[error("not allowed")]
    Permission,
}

/// Counters of a port's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueStats {
    /// OpenFlow number of the port.
    pub port: u32,
    /// Queue ID, which is unique within the port.
    pub queue: u32,
    /// Number of packets transmitted by the queue.
    pub tx_packets: u64,
    /// Number of octets transmitted by the queue.
    pub tx_bytes: u64,
    /// Number of packets dropped by the queue.
    pub tx_errors: u64,
    /// Time in nanoseconds since the queue was added.
    pub age_ns: u64,
}

/// Configured rates of a queue, in tenths of a percent of the port's rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueConfig {
    /// OpenFlow number of the port.
    pub port: u32,
    /// Queue ID, which is unique within the port.
    pub queue: u32,
    /// Minimum rate of the queue in tenths of a percent of the port's rate. `None` if not configured.
    pub min_rate: Option<u16>,
    /// Maximum rate of the queue in tenths of a percent of the port's rate. `None` if not configured.
    pub max_rate: Option<u16>,
}

/// Configuration of a flow table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableConfig {
    /// Number of the flow table.
    pub table: u8,
    /// Name of the table, at most 31 octets. Empty if the table has no name.
    pub name: String,
    /// Maximum number of flow entries in the table.
    pub max_entries: u32,
    /// Handling of packets that match no flow entry of the table.
    pub miss: Miss,
    /// Whether the table evicts flow entries when a flow entry is added to the full table.
    pub eviction: bool,
    /// Thresholds of vacancy events (down, up): free entries in percent of `max_entries`. `None` disables
    /// vacancy events.
    pub vacancy: Option<(u8, u8)>,
}

impl TableConfig {
    /// Returns the configuration that is part of the state of a flow table.
    #[must_use]
    pub fn of(state: &TableState) -> TableConfig {
        TableConfig {
            table: state.table,
            name: state.name.clone(),
            max_entries: state.limit,
            miss: state.miss,
            eviction: state.evicts,
            vacancy: state.vacancy,
        }
    }
}

/// Modification of the configuration of flow tables. A field that is `None` is not changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableMod {
    /// Number of the table. [`switch::flow::ALL_TABLES`] represents all tables.
    pub table: u8,
    /// New value of [`TableConfig::miss`].
    pub miss: Option<Miss>,
    /// New value of [`TableConfig::eviction`].
    pub eviction: Option<bool>,
    /// New value of [`TableConfig::vacancy`]. An inner `None` disables vacancy events.
    pub vacancy: Option<Option<(u8, u8)>>,
    /// New name of the table.
    pub name: Option<String>,
}

/// Sums of counters over several flow entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Aggregate {
    /// Number of packets that the flow entries have matched.
    pub packets: u64,
    /// Number of octets of the packets that the flow entries have matched.
    pub bytes: u64,
    /// Number of flow entries whose counters are summed.
    pub flows: u32,
}

/// OpenFlow datapath of a bridge: the interface through which controllers use the bridge.
///
/// Sessions call these methods from their tasks, and each call may take a few milliseconds. Calls that may take longer
/// (dumps, large batches of changes) are made on threads where they do not delay other sessions. No method may wait for
/// a controller.
pub trait Datapath: Send + Sync + 'static {
    /// Returns the features of the bridge.
    fn features(&self) -> Features;

    /// Returns the textual description of the bridge.
    fn description(&self) -> Description;

    /// Returns the current setting for the handling of IP fragments.
    fn fragments(&self) -> Fragments {
        Fragments::Normal
    }

    /// Changes the handling of IP fragments. Returns false if the bridge does not support the setting.
    fn set_fragments(&self, to: Fragments) -> bool {
        to == Fragments::Normal
    }

    /// Returns all ports, including LOCAL, in ascending order of their numbers.
    fn ports(&self) -> Vec<PortDesc>;

    /// Returns whether the bridge has the port with the OpenFlow number `port`. Returns true if `port` is `None`, which
    /// means all ports.
    fn has_ports(&self, port: Option<u32>) -> bool {
        port.is_none_or(|number| self.ports().iter().any(|own| own.number == number))
    }

    /// Returns the counters of one port, or of all ports if `port` is `None`. The list is empty if the port
    /// does not exist.
    fn port_stats(&self, port: Option<u32>) -> Vec<PortStats>;

    /// Modifies the configuration of a port (OFPT_PORT_MOD).
    ///
    /// # Errors
    /// Returns [`PortModError`] if the modification is refused. Nothing is changed then.
    fn port_mod(&self, change: &PortMod) -> Result<(), PortModError>;

    /// Returns the counters of the queue with this port number and queue ID. `None` as port number
    /// selects all ports, and `None` as queue ID selects all queues.
    fn queue_stats(&self, _port: Option<u32>, _queue: Option<u32>) -> Vec<QueueStats> {
        Vec::new()
    }

    /// Returns the configured rates of the queues of one port, or of all ports if the argument is `None`.
    fn queues(&self, _port: Option<u32>) -> Vec<QueueConfig> {
        Vec::new()
    }

    /// Applies all changes of flow entries, groups and meters, or none of them. Each packet is
    /// processed either by the tables before the changes or by the tables after the changes. All
    /// subscribers are notified of each change.
    ///
    /// # Errors
    /// Returns the index of the first refused change, and the reason. Nothing is changed then.
    fn modify(&self, changes: Vec<Mod>) -> Result<(), (usize, FlowError)>;

    /// Applies changes like [`Datapath::modify`], on behalf of a session. The notifications
    /// ([`Event::Caused`](switch::flow::Event::Caused)) name the session and its request.
    ///
    /// # Errors
    /// Returns the errors of [`Datapath::modify`].
    fn modify_for(&self, changes: Vec<Mod>, _origin: Origin) -> Result<(), (usize, FlowError)> {
        self.modify(changes)
    }

    /// Applies changes like [`Datapath::modify_for`], but only if the changes are fast enough for the task of a session
    /// and need not wait for other changes.
    ///
    /// # Errors
    /// Returns the changes, which have not been applied, if they may be slow. The caller must then apply them on a
    /// thread where they do not delay other sessions.
    fn modify_soon(&self, changes: Vec<Mod>, origin: Origin) -> Result<Outcome, Vec<Mod>> {
        if changes.len() < MANY { Ok(self.modify_for(changes, origin)) } else { Err(changes) }
    }

    /// Applies changes like [`Datapath::modify_for`], including packet-outs ([`Mod::PacketOut`]).
    /// The bridge releases `reservation`, the reserved memory of the packet-outs, when all packets
    /// have been sent.
    ///
    /// # Errors
    /// Returns the errors of [`Datapath::modify`]. No packet is sent then.
    fn modify_and_send(&self, changes: Vec<Mod>, origin: Origin, reservation: Reservation) -> Outcome;

    /// Returns the flow entries that match the filter, with their counters. The entries are ordered by table and
    /// descending priority. An entry that exists during the whole dump is returned exactly once.
    fn flows(&self, filter: &FlowFilter) -> Batches<FlowStats>;

    /// Returns the sums of the counters of all flow entries that match the filter.
    fn aggregate(&self, filter: &FlowFilter) -> Aggregate {
        let mut sums = Aggregate::default();
        for flow in self.flows(filter).flatten() {
            sums.packets = sums.packets.wrapping_add(flow.packets);
            sums.bytes = sums.bytes.wrapping_add(flow.bytes);
            sums.flows = sums.flows.saturating_add(1);
        }
        sums
    }

    /// Returns the statistics of all flow tables, ordered by table number.
    fn tables(&self) -> Vec<TableStats>;

    /// Returns the configuration of a flow table. Returns `None` if the table does not exist.
    fn table_config(&self, table: u8) -> Option<TableConfig>;

    /// Modifies the configuration of flow tables (OFPT_TABLE_MOD).
    ///
    /// # Errors
    /// Returns [`FlowError::BadTable`] if the table does not exist, and another error if the modification is
    /// refused.
    fn table_mod(&self, change: &TableMod) -> Result<(), FlowError>;

    /// Modifies flow tables like [`Datapath::table_mod`], but only if the modification is fast
    /// enough for the task of a session and need not wait for other changes. Otherwise, the
    /// function changes nothing and returns `None`. The caller must then make the modification on a
    /// thread where the modification does not delay other sessions.
    fn table_mod_soon(&self, change: &TableMod) -> Option<Result<(), FlowError>> {
        Some(self.table_mod(change))
    }

    /// Returns the mapping of tunnel options (TLVs of Geneve headers) to match fields.
    fn tunnel_options(&self) -> TunnelOptions;

    /// Modifies the mapping of tunnel options to match fields.
    ///
    /// # Errors
    /// Returns [`OptionsError`] if the modification is refused. Nothing is changed then.
    fn change_tunnel_options(&self, change: &OptionsMod) -> Result<(), OptionsError>;

    /// Removes the connections that a filter selects from the connection tracker of the data path, which all bridges
    /// share.
    fn flush_connections(&self, _filter: &ConnectionFilter) {}

    /// Returns one group, or all groups if `group` is `None`. The groups are ordered by group ID.
    fn groups(&self, group: Option<u32>) -> Batches<Group>;

    /// Returns the counters of one group, or of all groups if `group` is `None`.
    fn group_stats(&self, group: Option<u32>) -> Batches<GroupStats>;

    /// Returns one meter, or all meters if `meter` is `None`. The meters are ordered by meter ID.
    fn meters(&self, meter: Option<u32>) -> Batches<Meter>;

    /// Returns the counters of one meter, or of all meters if `meter` is `None`.
    fn meter_stats(&self, meter: Option<u32>) -> Batches<MeterStats>;

    /// Queues a packet-out for the slow path. The bridge releases `reservation`, the reserved memory of the packet-out,
    /// when the slow path has processed the packet. This limits the rate at which the session can send packet-outs.
    ///
    /// # Errors
    /// Returns [`FlowError`] if the packet-out is refused. No packet is sent then.
    fn packet_out(&self, packet: PacketOut, reservation: Reservation) -> Result<(), FlowError>;

    /// Queues a packet-out like [`Datapath::packet_out`], but only if the call need not wait.
    ///
    /// # Errors
    /// Returns the unsent packet and its reservation if the call would have to wait. The caller must then
    /// pass both to the bridge on a thread where they do not delay other sessions.
    fn packet_out_soon(
        &self,
        packet: PacketOut,
        reservation: Reservation,
    ) -> Result<Result<(), FlowError>, Box<(PacketOut, Reservation)>> {
        Ok(self.packet_out(packet, reservation))
    }

    /// Drops the packet-outs of an ended session that the slow path has not processed, and releases their reserved
    /// memory. Returns the number of dropped packet-outs.
    fn session_ended(&self, _session: u64) -> usize {
        0
    }

    /// Returns a future that completes when all flow caches reflect the changes made before the call (barrier
    /// request). Packets that arrive later are processed according to these changes.
    fn barrier(&self) -> Settled;

    /// Subscribes to events of the bridge. See [`events`].
    fn subscribe(&self) -> Subscription;

    /// Notifies the bridge whether controllers are connected. The argument is true when the first
    /// controller has connected, and false when the last controller has disconnected. The argument
    /// determines whether the bridge's fail mode applies. Clients that connect to listeners, such
    /// as `ovs-ofctl`, do not count as controllers.
    fn controllers_connected(&self, connected: bool);

    /// Notifies the bridge whether any session receives table misses (packets that match no flow entry). The argument
    /// is true when the first such session exists, and false when the last such session has ended. A session receives
    /// table misses if it uses an OpenFlow version before 1.3 and its configuration of asynchronous messages includes
    /// table misses.
    fn misses_heard(&self, _heard: bool) {}
}

/// Memory of an OpenFlow session's budget that is reserved for queued packet-outs. Dropping this value releases the
/// memory. A session that waits for memory then continues to read from its socket.
#[derive(Debug)]
pub struct Reservation {
    session: u64,
    /// Permits of the semaphores that count free memory: one permit of the session's semaphore, and
    /// one of the bridge's semaphore.
    _permits: [OwnedSemaphorePermit; 2],
}

impl Reservation {
    pub(crate) fn new(session: u64, permits: [OwnedSemaphorePermit; 2]) -> Reservation {
        Reservation { session, _permits: permits }
    }

    /// Returns the number of the session, which is unique in the bridge.
    #[must_use]
    pub fn session(&self) -> u64 {
        self.session
    }
}
