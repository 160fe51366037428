//! OpenFlow datapath of a bridge: the interface through which controllers access the bridge.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use engine::{Connections, FlowTables};
use model::{BridgeName, FailMode, FlowTable, FlowTableId, PrefixField, WhenFull};
use openflow::Datapath;
use openflow::datapath::{
    Aggregate, Batches, Description, EventSender, Features, Interest, Outcome, PortMod, PortModError,
    Reservation, Settled, Subscription, TableConfig, TableMod, events_for,
};
use switch::flow::{
    ALL_TABLES, ConnectionFilter, DecidedPacket, Event, FlowDump, FlowError, FlowFilter, FlowMod, FlowPort,
    FlowStats, FlowSums, Fragments, Group, GroupStats, Match, Meter, MeterStats, Mod, NumberedDump,
    OptionsError, OptionsMod, Origin, PacketOut, Pipeline, PortDesc, PortStats, TableBounds, TableStats,
    TableWishes, TunnelOptions, VISIBLE_TABLES, text,
};

use super::records::OfDatapathRecord;
use super::{is_bare, normal, now, stands_alone, stands_by_itself};
use crate::DataPlane;

/// Maximum number of queued events (such as flow removals) for one OpenFlow session.
const EVENTS: usize = 4096;

/// Maximum amount of work of a change that is made on the calling thread: the number of flow entries, groups and
/// buckets that the change visits. Such a change takes less than a millisecond. Larger changes run on a separate
/// thread.
const SOON: usize = 8192;

/// Port configuration bit `OFPPC_PORT_DOWN`: the port is administratively down.
const PORT_DOWN: u32 = 1;
/// Port configuration bit `OFPPC_NO_RECV`: the port drops received packets.
const NO_RECEIVE: u32 = 4;
/// Port configuration bit `OFPPC_NO_FLOOD` of OpenFlow 1.0: flooded packets are not sent to the port.
const NO_FLOOD: u32 = 16;
/// Port configuration bit `OFPPC_NO_FWD`: the port drops packets that are forwarded to it.
const NO_FORWARD: u32 = 32;

/// OpenFlow datapath of one bridge, used by the sessions of its controllers.
pub struct OfDatapath {
    name: String,
    datapath_id: AtomicU64,
    secure: AtomicBool,
    /// Whether the bridge is in standalone mode. The flag is written while the flow tables are locked, and read
    /// without the lock.
    alone: AtomicBool,
    /// Whether the standalone flow entry (with the action `NORMAL`) was added by the daemon and not by a
    /// controller.
    begun: AtomicBool,
    tables: Arc<FlowTables>,
    connections: Arc<Connections>,
    listeners: Arc<Mutex<Vec<EventSender>>>,
    /// For each kind of event, the number of OpenFlow sessions that receive events of this kind.
    interest: Interest,
    /// Port configuration that controllers have set: `OFPPC_*` bits by OpenFlow port number.
    configs: Mutex<BTreeMap<u32, u32>>,
    /// Port settings from the daemon's configuration and the devices, without the controllers' changes. Each
    /// OpenFlow port number maps to a flag and `OFPPC_*` bits. The flag is true if the port takes part in
    /// flooding.
    described: Mutex<BTreeMap<u32, (bool, u32)>>,
    /// Flow table settings of the configuration that was applied last.
    configured: Mutex<BTreeMap<FlowTableId, FlowTable>>,
    plane: Mutex<Weak<DataPlane>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OfDatapath {
    pub(super) fn new(
        name: &BridgeName,
        datapath_id: u64,
        mode: FailMode,
        tables: Arc<FlowTables>,
        connections: Arc<Connections>,
    ) -> OfDatapath {
        let listeners: Arc<Mutex<Vec<EventSender>>> = Arc::default();
        let told = Arc::clone(&listeners);
        tables.listen(Some(Arc::new(move |events: Vec<Event>| {
            // Splitting, counting and freeing many events takes long, so the list is not locked meanwhile.
            let listeners = locked(&told).clone();
            if let Some((last, others)) = listeners.split_last() {
                for other in others {
                    other.send_all(events.clone());
                }
                last.send_all(events);
            }
            locked(&told).retain(|listener| !listener.is_closed());
        })));
        let interest = Interest::default();
        let alone = {
            let mut pipeline = tables.lock();
            pipeline.set_monitors(Arc::clone(&interest.rules));
            pipeline.set_requests(Arc::clone(&interest.requests));
            pipeline.set_group_fits(openflow::wire::group::fits_all_versions);
            AtomicBool::new(pipeline.is_alone())
        };
        OfDatapath {
            name: name.as_str().to_owned(),
            datapath_id: AtomicU64::new(datapath_id),
            secure: AtomicBool::new(!stands_alone(mode)),
            alone,
            begun: AtomicBool::new(false),
            tables,
            connections,
            listeners,
            interest,
            configs: Mutex::default(),
            described: Mutex::default(),
            configured: Mutex::default(),
            plane: Mutex::default(),
        }
    }

    /// Sets the data plane from which the port counters are read.
    pub fn of(&self, plane: &Arc<DataPlane>) {
        *locked(&self.plane) = Arc::downgrade(plane);
    }

    /// Returns the datapath ID that the bridge reports to controllers.
    pub fn datapath_id(&self) -> u64 {
        self.datapath_id.load(Ordering::Relaxed)
    }

    pub(super) fn set_datapath_id(&self, id: u64) {
        self.datapath_id.store(id, Ordering::Relaxed);
    }

    /// Returns the state of the datapath for a hand-over, except for the flow tables.
    pub(super) fn record(&self) -> OfDatapathRecord {
        // Two locks are never held at once here, because `port_mod` locks the tables first.
        let configs = locked(&self.configs).clone();
        OfDatapathRecord {
            configs,
            fragments: match self.fragments() {
                Fragments::Normal | Fragments::Reassemble => 0,
                Fragments::Drop => 1,
                Fragments::NxMatch => 3,
            },
            begun: self.begun.load(Ordering::Relaxed),
            alone: self.is_alone(),
        }
    }

    /// Restores the state of the datapath from a predecessor's hand-over. If the predecessor was killed, `record` is
    /// `None`: the bridge was then restored from its rule file, which does not contain this state.
    pub(super) fn take_over(&self, record: Option<OfDatapathRecord>) {
        let Some(OfDatapathRecord { configs, fragments, begun, alone }) = record else {
            let begun = !self.secure.load(Ordering::Relaxed) && stands_by_itself(&self.tables.lock());
            return self.begun.store(begun, Ordering::Relaxed);
        };
        *locked(&self.configs) = configs;
        self.set_fragments(match fragments {
            1 => Fragments::Drop,
            3 => Fragments::NxMatch,
            _ => Fragments::Normal,
        });
        self.begun.store(begun, Ordering::Relaxed);
        self.stand_alone(alone);
    }

    /// Returns whether the bridge is in standalone mode. This function does not block.
    pub fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    fn set_alone(&self, pipeline: &mut Pipeline, alone: bool) {
        pipeline.set_alone(alone);
        self.alone.store(alone, Ordering::Relaxed);
    }

    /// Adds the standalone flow entry (with the action `NORMAL`) if the bridge has no flow entries and its fail mode is
    /// not secure.
    pub(super) fn begin(&self) {
        if !self.secure.load(Ordering::Relaxed) {
            self.tables.change(|pipeline| {
                if is_bare(pipeline) {
                    // A flow entry without conditions cannot be refused.
                    let _ = pipeline.modify(&[normal()], now());
                    self.begun.store(true, Ordering::Relaxed);
                }
            });
        }
    }

    /// Changes the bridge's fail mode. In secure mode, the standalone flow entry (with the action `NORMAL`) is removed.
    /// In standalone mode, this entry is added if the bridge has no flow entries.
    pub(super) fn set_fail_mode(&self, mode: FailMode) {
        let secure = !stands_alone(mode);
        if self.secure.swap(secure, Ordering::Relaxed) == secure {
            return;
        }
        if secure {
            self.tables.change(|pipeline| self.set_alone(pipeline, false));
            self.resume();
        } else {
            self.begin();
        }
    }

    /// Prepares a bridge that starts with restored flow entries. In secure mode, removes the standalone flow entry
    /// (with the action `NORMAL`).
    pub(super) fn resume(&self) {
        if self.secure.load(Ordering::Relaxed) {
            self.tables.change(end);
        }
    }

    /// Puts the bridge into standalone mode (`alone` is true) or back into normal mode. A bridge is in standalone mode
    /// if all its controllers have been disconnected for longer than a time limit. A bridge with the fail mode "secure"
    /// never enters standalone mode. This function blocks until the flow tables can be locked.
    pub fn stand_alone(&self, alone: bool) {
        self.tables.change(|pipeline| {
            let alone = self.may_be_alone(alone);
            self.set_alone(pipeline, alone);
        });
    }

    /// Returns whether the bridge must be in standalone mode. `away` means that all controllers have been
    /// disconnected for too long.
    pub fn may_be_alone(&self, away: bool) -> bool {
        away && !self.secure.load(Ordering::Relaxed)
    }

    /// Applies the flow table settings of the daemon's configuration. A table whose configuration is unchanged keeps
    /// the settings made by controllers.
    pub(super) fn set_tables(&self, tables: &BTreeMap<FlowTableId, FlowTable>) {
        let mut configured = locked(&self.configured);
        let usual = FlowTable::default();
        let numbers: BTreeSet<FlowTableId> = configured.keys().chain(tables.keys()).copied().collect();
        for number in numbers {
            let wanted = tables.get(&number);
            if wanted == configured.get(&number) {
                continue;
            }
            let bounds = self.bounds(number, wanted.unwrap_or(&usual));
            self.tables.change(|pipeline| pipeline.set_table_bounds(number.0, bounds, now()));
        }
        *configured = tables.clone();
    }

    /// Converts the configuration of a flow table into the settings that the crate `switch` uses.
    fn bounds(&self, number: FlowTableId, table: &FlowTable) -> TableBounds {
        let group = |name: &String| {
            let part = text::sub_field(name);
            if part.is_none() {
                let (bridge, table) = (&self.name, number.0);
                tracing::warn!(
                    bridge,
                    table,
                    "groups: there is no field {name}, or it has no such bits; it is left out"
                );
            }
            part
        };
        let tracks = |field| table.prefixes.as_ref().is_none_or(|own| own.contains(&field));
        TableBounds {
            name: table.name.clone(),
            limit: table.limit,
            evicts: table.when_full == WhenFull::Evict,
            groups: table.groups.iter().filter_map(group).collect(),
            prefixes: PrefixField::ALL.map(tracks),
        }
    }

    /// Discards the port configuration that controllers have set for a removed port.
    pub(super) fn undress(&self, number: u32) {
        locked(&self.configs).remove(&number);
        locked(&self.described).remove(&number);
    }

    /// Returns an iterator that reads the bridge's flow tables in batches. The tables are locked separately for
    /// each batch.
    fn batches<T>(&self, mut next: impl FnMut(&FlowTables) -> Option<Vec<T>> + Send + 'static) -> Batches<T> {
        let tables = Arc::clone(&self.tables);
        Box::new(std::iter::from_fn(move || next(&tables)))
    }

    /// Records the configuration and device state of a port. Returns the port with the port configuration that
    /// controllers have set.
    pub(super) fn dress(&self, port: FlowPort) -> FlowPort {
        locked(&self.described).insert(port.desc.number, (port.floods, port.desc.config));
        self.with_changes(port)
    }

    fn with_changes(&self, mut port: FlowPort) -> FlowPort {
        let config = locked(&self.configs).get(&port.desc.number).copied().unwrap_or_default();
        port.desc.config |= config;
        port.floods &= config & NO_FLOOD == 0;
        port.forwards &= config & (NO_FORWARD | PORT_DOWN) == 0;
        port.receives &= config & (NO_RECEIVE | PORT_DOWN) == 0;
        port
    }
}

impl Datapath for OfDatapath {
    fn features(&self) -> Features {
        Features {
            datapath_id: self.datapath_id(),
            tables: VISIBLE_TABLES,
            max_groups: 65_536,
            max_meters: 65_536,
            max_bands: 16,
            // As in Open vSwitch, queue statistics are supported, although no port has queues.
            queues: true,
        }
    }

    fn description(&self) -> Description {
        Description {
            manufacturer: "Trivium".to_owned(),
            hardware: "Trivium".to_owned(),
            software: env!("CARGO_PKG_VERSION").to_owned(),
            serial: "None".to_owned(),
            datapath: self.name.clone(),
        }
    }

    fn fragments(&self) -> Fragments {
        self.tables.lock().fragments()
    }

    fn set_fragments(&self, to: Fragments) -> bool {
        self.tables.change(|pipeline| pipeline.set_fragments(to))
    }

    fn misses_heard(&self, heard: bool) {
        self.tables.change(|pipeline| pipeline.set_misses_heard(heard));
    }

    fn ports(&self) -> Vec<PortDesc> {
        self.tables.lock().ports().values().map(|port| port.desc.clone()).collect()
    }

    fn port_stats(&self, port: Option<u32>) -> Vec<PortStats> {
        let ports: Vec<(u32, packet::PortId)> = self
            .tables
            .lock()
            .ports()
            .iter()
            .filter(|(number, _)| port.is_none_or(|port| port == **number))
            .map(|(number, port)| (*number, port.id))
            .collect();
        let Some(plane) = locked(&self.plane).upgrade() else { return Vec::new() };
        ports.into_iter().map(|(number, id)| plane.flow_port_stats(number, id)).collect()
    }

    fn port_mod(&self, change: &PortMod) -> Result<(), PortModError> {
        self.tables.change(|pipeline| {
            let mut port = pipeline.ports().get(&change.number).cloned().ok_or(PortModError::NoPort)?;
            if port.desc.mac != change.mac {
                return Err(PortModError::Address);
            }
            {
                let mut configs = locked(&self.configs);
                let own = configs.entry(change.number).or_default();
                *own = *own & !change.mask | change.config & change.mask;
            }
            // The settings of the daemon's configuration are kept, whatever controllers change.
            let described = locked(&self.described).get(&change.number).copied();
            (port.floods, port.desc.config) = described.unwrap_or((true, 0));
            (port.forwards, port.receives) = (true, true);
            pipeline.set_port(change.number, Some(self.with_changes(port)));
            Ok(())
        })
    }

    fn modify(&self, changes: Vec<Mod>) -> Result<(), (usize, FlowError)> {
        self.tables.change(|pipeline| pipeline.modify(&changes, now()))
    }

    fn modify_for(&self, changes: Vec<Mod>, origin: Origin) -> Result<(), (usize, FlowError)> {
        self.tables.change(|pipeline| modify_for(pipeline, &changes, origin)).map(|_| ())
    }

    fn modify_and_send(&self, changes: Vec<Mod>, origin: Origin, reservation: Reservation) -> Outcome {
        let decided = self.tables.change(|pipeline| modify_for(pipeline, &changes, origin))?;
        let reservation = Arc::new(reservation);
        for packet in decided {
            self.tables.send_decided(reservation.session(), packet, Arc::clone(&reservation));
        }
        Ok(())
    }

    fn modify_soon(&self, changes: Vec<Mod>, origin: Origin) -> Result<Outcome, Vec<Mod>> {
        let soon = |pipeline: &mut Pipeline| {
            let is_soon = pipeline.is_within_work(&changes, SOON);
            is_soon.then(|| modify_for(pipeline, &changes, origin).map(|_| ()))
        };
        self.tables.try_change(soon).flatten().ok_or(changes)
    }

    fn flows(&self, filter: &FlowFilter) -> Batches<FlowStats> {
        let mut dump = FlowDump::new(filter.clone());
        self.batches(move |tables| {
            dump.prepare();
            dump.step(&tables.lock(), now())
        })
    }

    fn aggregate(&self, filter: &FlowFilter) -> Aggregate {
        let mut sums = FlowSums::new(filter.clone());
        let (packets, bytes, flows) = loop {
            let step = sums.step(&self.tables.lock());
            if let Some(sums) = step {
                break sums;
            }
            std::thread::yield_now();
        };
        Aggregate { packets, bytes, flows }
    }

    fn tables(&self) -> Vec<TableStats> {
        self.tables.lock().table_stats()
    }

    fn table_config(&self, table: u8) -> Option<TableConfig> {
        self.tables.lock().table_state(table).as_ref().map(TableConfig::of)
    }

    fn table_mod(&self, change: &TableMod) -> Result<(), FlowError> {
        let tables = tables_of(change).ok_or(FlowError::BadTable)?;
        self.tables.change(|pipeline| change_tables(pipeline, tables, change));
        Ok(())
    }

    fn table_mod_soon(&self, change: &TableMod) -> Option<Result<(), FlowError>> {
        let Some(tables) = tables_of(change) else { return Some(Err(FlowError::BadTable)) };
        let soon = |pipeline: &mut Pipeline| {
            let work = |table| pipeline.work_of_wishes(table, &wishes_after(pipeline, table, change));
            let is_soon = tables.clone().map(work).fold(0, usize::saturating_add) <= SOON;
            is_soon.then(|| change_tables(pipeline, tables.clone(), change))
        };
        self.tables.try_change(soon).flatten().map(Ok)
    }

    fn tunnel_options(&self) -> TunnelOptions {
        self.tables.lock().tunnel_options().clone()
    }

    fn change_tunnel_options(&self, change: &OptionsMod) -> Result<(), OptionsError> {
        self.tables.change(|pipeline| pipeline.change_tunnel_options(change))
    }

    fn flush_connections(&self, filter: &ConnectionFilter) {
        self.connections.flush(filter, now());
    }

    fn groups(&self, group: Option<u32>) -> Batches<Group> {
        let mut dump = NumberedDump::new(group);
        self.batches(move |tables| dump.groups(&tables.lock()))
    }

    fn group_stats(&self, group: Option<u32>) -> Batches<GroupStats> {
        let mut dump = NumberedDump::new(group);
        self.batches(move |tables| dump.group_stats(&tables.lock(), now()))
    }

    fn meters(&self, meter: Option<u32>) -> Batches<Meter> {
        let mut dump = NumberedDump::new(meter);
        self.batches(move |tables| dump.meters(&tables.lock()))
    }

    fn meter_stats(&self, meter: Option<u32>) -> Batches<MeterStats> {
        let mut dump = NumberedDump::new(meter);
        self.batches(move |tables| dump.meter_stats(&tables.lock(), now()))
    }

    fn packet_out(&self, packet: PacketOut, reservation: Reservation) -> Result<(), FlowError> {
        self.tables.lock().check_packet_out(&packet)?;
        self.tables.packet_out(reservation.session(), packet, reservation);
        Ok(())
    }

    fn packet_out_soon(
        &self,
        packet: PacketOut,
        reservation: Reservation,
    ) -> Result<Result<(), FlowError>, Box<(PacketOut, Reservation)>> {
        let Some(checked) = self.tables.try_lock().map(|pipeline| pipeline.check_packet_out(&packet)) else {
            return Err(Box::new((packet, reservation)));
        };
        if checked.is_ok() {
            self.tables.packet_out(reservation.session(), packet, reservation);
        }
        Ok(checked)
    }

    fn session_ended(&self, session: u64) -> usize {
        self.tables.drop_packet_outs(session)
    }

    fn barrier(&self) -> Settled {
        let (done, is_done) = tokio::sync::oneshot::channel();
        self.tables.barrier(move || {
            let _ = done.send(());
        });
        Box::pin(async move {
            // If the slow path has ended, the channel is closed and nothing is cached.
            let _ = is_done.await;
        })
    }

    fn subscribe(&self) -> Subscription {
        let (sender, subscription) = events_for(EVENTS, self.interest.clone());
        locked(&self.listeners).push(sender);
        subscription
    }

    fn controllers_connected(&self, connected: bool) {
        if !connected {
            return self.begin();
        }
        let begun = self.begun.swap(false, Ordering::Relaxed);
        self.tables.change(|pipeline| {
            self.set_alone(pipeline, false);
            // Without the standalone flow entry, packets that match no flow entry are sent to the controllers.
            if begun {
                end(pipeline);
            }
        });
    }
}

/// Returns the range of table numbers to which an OpenFlow table modification applies. Returns `None` if there
/// is no such table.
fn tables_of(change: &TableMod) -> Option<Range<u8>> {
    match change.table {
        ALL_TABLES => Some(0..VISIBLE_TABLES),
        table if table < VISIBLE_TABLES => Some(table..table + 1),
        _ => None,
    }
}

/// Returns the controllers' settings of a flow table after the table modification `change`.
fn wishes_after(pipeline: &Pipeline, table: u8, change: &TableMod) -> TableWishes {
    let wishes = pipeline.table_wishes(table).cloned().unwrap_or_default();
    TableWishes {
        name: change.name.clone().unwrap_or(wishes.name),
        miss: change.miss.unwrap_or(wishes.miss),
        evicts: change.eviction.unwrap_or(wishes.evicts),
        vacancy: change.vacancy.unwrap_or(wishes.vacancy),
    }
}

/// Applies an OpenFlow table modification to all flow tables in the range `tables`.
fn change_tables(pipeline: &mut Pipeline, tables: Range<u8>, change: &TableMod) {
    for table in tables {
        let wishes = wishes_after(pipeline, table, change);
        pipeline.set_table_wishes(table, wishes, now());
    }
}

/// Applies changes of flow entries, groups and meters that an OpenFlow session has requested. Reports all changes of
/// the request in one event to sessions that monitor changes. Returns the packet-outs of the request, translated into
/// datapath actions.
fn modify_for(
    pipeline: &mut Pipeline,
    changes: &[Mod],
    origin: Origin,
) -> Result<Vec<DecidedPacket>, (usize, FlowError)> {
    let before = pipeline.take_events();
    let done = pipeline.modify_and_decide(changes, now());
    let caused = pipeline.take_events();
    let events = before.into_iter().chain(caused_by(origin, caused));
    events.for_each(|event| pipeline.push_taken(event));
    done
}

/// Returns the events that report the result of a session's request. The events that the request has `caused` are
/// combined into one event. Only the event with the number of lost events stays separate: the connection manager reads
/// this event, and ends the sessions that monitor flow entries.
fn caused_by(origin: Origin, mut caused: Vec<Event>) -> impl Iterator<Item = Event> {
    let lost = caused.pop_if(|event| matches!(event, Event::Lost(_)));
    let caused = (!caused.is_empty()).then_some(Event::Caused(origin, caused));
    caused.into_iter().chain(lost)
}

/// Removes the standalone flow entry (with the action `NORMAL`) if the bridge has no other flow entry.
fn end(pipeline: &mut Pipeline) {
    if stands_by_itself(pipeline) {
        let all = FlowMod::delete(ALL_TABLES, Match::ANY);
        // The entry exists, so the removal cannot fail.
        let _ = pipeline.modify(&[Mod::Flow(Box::new(all))], now());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use sync::wake::Waker;

    use super::*;

    /// A hand-over does not hold the lock of the port configuration while it waits for the lock of the flow tables.
    /// `port_mod` locks the flow tables first and then the port configuration, so the two threads would otherwise
    /// deadlock.
    #[test]
    fn a_hand_over_does_not_hold_port_settings_while_it_waits_for_the_tables() {
        let tables = Arc::new(FlowTables::new(1, Pipeline::new(), Arc::new(Waker::new().unwrap())));
        let name = "br0".parse().unwrap();
        let of_datapath =
            Arc::new(OfDatapath::new(&name, 1, FailMode::Secure, Arc::clone(&tables), Arc::default()));
        let rules = tables.lock();
        let (handed_over, received) = mpsc::channel();
        let own = Arc::clone(&of_datapath);
        std::thread::spawn(move || handed_over.send(own.record().configs.len()));
        assert!(received.recv_timeout(Duration::from_millis(200)).is_err(), "it waits for the tables");
        assert!(of_datapath.configs.try_lock().is_ok(), "a modification of a port can go on");
        drop(rules);
        assert_eq!(received.recv_timeout(Duration::from_secs(10)), Ok(0));
    }

    /// The number of lost events of a request is reported as a separate event to the connection manager. The connection
    /// manager ends the sessions that monitor flow entries, because they have missed changes, even if another session
    /// requested the changes.
    #[test]
    fn lost_events_of_a_request_are_reported_to_the_connection_manager() {
        let origin = Origin { session: 1, xid: 2 };
        let request = Event::Caused(origin, Vec::new());
        let lost = caused_by(origin, vec![request.clone(), Event::Lost(4)]);
        let expected = [Event::Caused(origin, vec![request]), Event::Lost(4)];
        assert_eq!(lost.collect::<Vec<_>>(), expected);
        assert_eq!(caused_by(origin, vec![Event::Lost(5)]).collect::<Vec<_>>(), [Event::Lost(5)]);
        assert_eq!(caused_by(origin, Vec::new()).count(), 0);
    }

    /// The connection manager asks every second whether each bridge is in standalone mode. The answer is returned
    /// immediately, even while a large change keeps the flow tables of the bridge locked.
    #[test]
    fn a_bridge_tells_whether_it_stands_alone_while_its_rules_are_held() {
        let tables = Arc::new(FlowTables::new(1, Pipeline::new(), Arc::new(Waker::new().unwrap())));
        let name = "br0".parse().unwrap();
        let of_datapath =
            Arc::new(OfDatapath::new(&name, 1, FailMode::Standalone, Arc::clone(&tables), Arc::default()));
        for alone in [true, false] {
            of_datapath.stand_alone(alone);
            let rules = tables.lock();
            assert_eq!(rules.is_alone(), alone);
            let (tell, told) = mpsc::channel();
            let asked = Arc::clone(&of_datapath);
            std::thread::spawn(move || tell.send(asked.is_alone()));
            assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(alone));
        }
        of_datapath.stand_alone(true);
        let again = OfDatapath::new(&name, 1, FailMode::Standalone, tables, Arc::default());
        assert!(again.is_alone(), "a leader of rules of a bridge that stands alone knows it");
    }
}
