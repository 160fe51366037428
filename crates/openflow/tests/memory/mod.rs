//! A simulated bridge for tests. Its tables, groups and meters are lists in memory, and the bridge processes only
//! packets that controllers send.

#![allow(dead_code, reason = "each test uses its part")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use openflow::datapath::{
    Batches, Description, EventSender, Features, Interest, Outcome, PortMod, PortModError, QueueConfig,
    QueueStats, Reservation, Settled, TableConfig, TableMod, events_for,
};
use openflow::{Datapath, Subscription};
use packet::MacAddr;
use switch::flow::{
    ALL_GROUPS, ALL_TABLES, Action, Bucket, BucketPlace, Event, Field, Flow, FlowCommand, FlowError,
    FlowFilter, FlowMod, FlowStats, ForwardedRequest, Group, GroupMod, GroupStats, Meter, MeterMod,
    MeterStats, Mod, OptionsError, OptionsMod, Origin, PacketIn, PacketOut, PortDesc, PortStats, Reason,
    Removed, TableStats, TunnelOptions, port,
};

#[derive(Clone, Default)]
pub struct Tables {
    pub flows: Vec<FlowStats>,
    pub groups: Vec<Group>,
    pub meters: Vec<Meter>,
    pub names: Vec<(u8, TableConfig)>,
    pub ports: Vec<PortDesc>,
    /// Maximum number of flow entries in a table.
    pub limit: usize,
    pub options: TunnelOptions,
    fresh: bool,
}

pub struct Memory {
    pub tables: Mutex<Tables>,
    pub sent: Mutex<Vec<PacketOut>>,
    /// Whether packet-outs stay unprocessed, so that their budget reservations stay in `held`.
    pub holds: AtomicBool,
    pub held: Mutex<Vec<Reservation>>,
    pub connected: Mutex<Vec<bool>>,
    pub misses_heard: AtomicBool,
    /// Lock of the flow tables, which a slow change holds. Notifications about sessions wait for this lock.
    pub rules: Mutex<()>,
    /// While true, changes block.
    pub stalls: AtomicBool,
    /// Number of blocked changes.
    pub stalled: AtomicUsize,
    pub barriers: Mutex<u32>,
    /// While true, barriers and dumps do not complete.
    pub waits: Arc<AtomicBool>,
    /// Whether every added flow entry counts as new. The bridge then does not search for an existing entry to replace.
    pub fresh: AtomicBool,
    subscribers: Mutex<Vec<EventSender>>,
    /// Kinds of events that the sessions have requested.
    interest: Interest,
}

fn desc(number: u32, name: &str, mac: u8) -> PortDesc {
    PortDesc {
        number,
        name: name.into(),
        mac: MacAddr([2, 0, 0, 0, 0, mac]),
        config: 0,
        state: 4,
        speed: 10_000_000,
    }
}

impl Memory {
    pub fn new() -> Arc<Memory> {
        let ports = vec![desc(1, "p1", 1), desc(2, "p2", 2), desc(port::LOCAL, "br0", 0xff)];
        Arc::new(Memory {
            tables: Mutex::new(Tables { ports, limit: 1 << 20, ..Tables::default() }),
            sent: Mutex::default(),
            holds: AtomicBool::new(false),
            held: Mutex::default(),
            connected: Mutex::default(),
            misses_heard: AtomicBool::new(false),
            rules: Mutex::default(),
            stalls: AtomicBool::new(false),
            stalled: AtomicUsize::new(0),
            barriers: Mutex::default(),
            waits: Arc::default(),
            fresh: AtomicBool::new(false),
            subscribers: Mutex::default(),
            interest: Interest::default(),
        })
    }

    pub fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap()
    }

    pub fn tell(&self, event: &Event) {
        self.subscribers.lock().unwrap().retain(|to| to.send(event.clone()));
    }

    /// Sends a packet-in to the controllers, as if a flow entry had sent the packet.
    pub fn packet(&self, in_port: u32, frame: &[u8], reason: Reason, max_len: u16) {
        let mut flow = Flow::ZERO;
        flow.set(Field::InPort, u128::from(in_port));
        flow.set(Field::Reg3, 7);
        self.tell(&Event::PacketIn(PacketIn {
            reason,
            table: 3,
            cookie: 0x1234,
            flow,
            frame: frame.to_vec(),
            max_len,
            controller: 0,
            userdata: vec![1, 2, 3],
            continuation: None,
        }));
    }
}

impl Memory {
    /// Applies all changes, or none of them. Returns the resulting events and the packets to send.
    fn change(&self, changes: Vec<Mod>) -> Result<(Vec<Event>, Vec<PacketOut>), (usize, FlowError)> {
        let mut tables = self.lock();
        let mut next = tables.clone();
        next.fresh = self.fresh.load(Ordering::Relaxed);
        let forwards = self.interest.requests.load(Ordering::Relaxed) > 0;
        let (mut told, mut sent) = (Vec::new(), Vec::new());
        for (index, change) in changes.into_iter().enumerate() {
            let request = request_of(&next, &change).filter(|_| forwards);
            let done = match change {
                Mod::Flow(change) => change_flow(&mut next, &change, &mut told),
                Mod::Group(change) => change_group(&mut next, change),
                Mod::Meter(change) => change_meter(&mut next, change),
                Mod::PacketOut(packet) => check(&next, &packet.actions).map(|()| sent.push(*packet)),
            };
            done.map_err(|error| (index, error))?;
            told.extend(request.map(|request| Event::Request(Box::new(with_group(request, &next)))));
        }
        *tables = next;
        Ok((told, sent))
    }

    /// Records a packet as sent. If an action outputs the packet to the controller, also sends a packet-in to the
    /// controllers.
    fn send(&self, packet: PacketOut) {
        for action in &packet.actions {
            if let Action::Output { port: port::CONTROLLER, max_len } = action {
                self.packet(packet.in_port, &packet.frame, Reason::PacketOut, *max_len);
            }
        }
        self.sent.lock().unwrap().push(packet);
    }
}

/// Returns the message with which other controllers receive a copy of a change of groups or meters
/// (OFPT_REQUESTFORWARD). Returns `None` for other changes.
fn request_of(tables: &Tables, change: &Mod) -> Option<ForwardedRequest> {
    match change {
        Mod::Group(change) => {
            let (id, _) = group_of(change);
            let existed = tables.groups.iter().any(|group| group.id == id);
            Some(ForwardedRequest::Group { change: change.clone(), existed, after: None })
        }
        Mod::Meter(change) => Some(ForwardedRequest::Meter(change.clone())),
        Mod::Flow(_) | Mod::PacketOut(_) => None,
    }
}

/// Returns the ID of the group that a change modifies, and whether the change contains only a part of the group.
fn group_of(change: &GroupMod) -> (u32, bool) {
    match change {
        GroupMod::Add(group) | GroupMod::Modify { group, .. } => (group.id, false),
        GroupMod::Delete(id) => (*id, false),
        GroupMod::InsertBuckets(id, ..) | GroupMod::RemoveBuckets(id, _) => (*id, true),
    }
}

/// Adds to a forwarded request the state of the group after the change, if the request contains only a part of the
/// group.
fn with_group(request: ForwardedRequest, tables: &Tables) -> ForwardedRequest {
    match request {
        ForwardedRequest::Group { change, existed, .. } => {
            let (id, is_part) = group_of(&change);
            let after = tables.groups.iter().find(|group| is_part && group.id == id).cloned();
            ForwardedRequest::Group { change, existed, after }
        }
        meter => meter,
    }
}

fn selected(flow: &FlowStats, change: &FlowMod, strict: bool) -> bool {
    (change.table == ALL_TABLES || change.table == flow.table)
        && flow.cookie & change.cookie_mask == change.cookie_value
        && if strict {
            flow.priority == change.priority && flow.matching == change.matching
        } else {
            flow.matching.is_within(&change.matching)
        }
        && change.out_port.is_none_or(|port| flow.instructions.outputs_to(port))
        && change.out_group.is_none_or(|group| flow.instructions.uses_group(group))
}

fn check(tables: &Tables, actions: &[Action]) -> Result<(), FlowError> {
    for action in actions {
        match action {
            Action::Group(id) if !tables.groups.iter().any(|group| group.id == *id) => {
                return Err(FlowError::BadOutGroup);
            }
            Action::Meter(id) if !tables.meters.iter().any(|meter| meter.id == *id) => {
                return Err(FlowError::InvalidMeter);
            }
            _ => {}
        }
    }
    Ok(())
}

fn change_flow(tables: &mut Tables, change: &FlowMod, told: &mut Vec<Event>) -> Result<(), FlowError> {
    if let Some(meter) = change.instructions.meter
        && !tables.meters.iter().any(|it| it.id == meter)
    {
        return Err(FlowError::InvalidMeter);
    }
    if change.instructions.goto.is_some_and(|to| to <= change.table) {
        return Err(FlowError::BadGoto);
    }
    check(tables, &change.instructions.apply)?;
    check(tables, &change.instructions.write)?;
    match change.command {
        FlowCommand::Add => add(tables, change, told),
        FlowCommand::Modify { strict, or_add } => {
            let mut any = false;
            for flow in tables.flows.iter_mut().filter(|flow| selected(flow, change, strict)) {
                any = true;
                let did = std::mem::replace(&mut flow.instructions, change.instructions.clone());
                flow.cookie = change.cookie.unwrap_or(flow.cookie);
                told.push(Event::Modified(flow.clone(), Some(Box::new(did))));
            }
            if any || !or_add { Ok(()) } else { add(tables, change, told) }
        }
        FlowCommand::Delete { strict } => {
            tables.flows.retain(|flow| {
                let gone = selected(flow, change, strict);
                if gone {
                    told.push(Event::Removed(flow.clone(), Removed::Delete));
                }
                !gone
            });
            Ok(())
        }
    }
}

fn add(tables: &mut Tables, change: &FlowMod, told: &mut Vec<Event>) -> Result<(), FlowError> {
    if change.table == ALL_TABLES {
        return Err(FlowError::BadTable);
    }
    if change.flags.check_overlap
        && tables.flows.iter().any(|flow| {
            flow.table == change.table
                && flow.priority == change.priority
                && flow.matching.overlaps(&change.matching)
        })
    {
        return Err(FlowError::Overlap);
    }
    let flow = FlowStats {
        table: change.table,
        matching: change.matching,
        priority: change.priority,
        cookie: change.cookie.unwrap_or(0),
        age_ns: 1_500_000_000,
        unchanged_ns: 1_500_000_000,
        idle_ns: 0,
        idle_timeout: change.idle_timeout,
        hard_timeout: change.hard_timeout,
        importance: change.importance,
        flags: change.flags,
        packets: 3,
        bytes: 180,
        instructions: change.instructions.clone(),
    };
    let same = |it: &FlowStats| {
        it.table == flow.table && it.priority == flow.priority && it.matching == flow.matching
    };
    if !tables.fresh {
        tables.flows.retain(|it| !same(it));
    }
    if tables.flows.len() >= tables.limit {
        return Err(FlowError::TableFull);
    }
    told.push(Event::Added(flow.clone(), None));
    tables.flows.push(flow);
    Ok(())
}

fn change_group(tables: &mut Tables, change: GroupMod) -> Result<(), FlowError> {
    let place = |tables: &Tables, id| tables.groups.iter().position(|group| group.id == id);
    match change {
        GroupMod::Add(group) if place(tables, group.id).is_some() => Err(FlowError::GroupExists),
        GroupMod::Add(group) => {
            tables.groups.push(group);
            Ok(())
        }
        GroupMod::Modify { group, or_add } => match place(tables, group.id) {
            Some(at) => {
                tables.groups[at] = group;
                Ok(())
            }
            None if or_add => {
                tables.groups.push(group);
                Ok(())
            }
            None => Err(FlowError::UnknownGroup),
        },
        GroupMod::Delete(id) => {
            tables.groups.retain(|group| id != ALL_GROUPS && group.id != id);
            Ok(())
        }
        GroupMod::InsertBuckets(id, at, new) => {
            let buckets = buckets(tables, id)?;
            let index = match at {
                BucketPlace::First => 0,
                BucketPlace::Last | BucketPlace::All => buckets.len(),
                BucketPlace::Id(id) => {
                    1 + buckets.iter().position(|bucket| bucket.id == id).ok_or(FlowError::UnknownBucket)?
                }
            };
            buckets.splice(index..index, new);
            Ok(())
        }
        GroupMod::RemoveBuckets(id, at) => {
            let buckets = buckets(tables, id)?;
            match at {
                BucketPlace::All => buckets.clear(),
                BucketPlace::First => drop(buckets.remove(0)),
                BucketPlace::Last => drop(buckets.pop()),
                BucketPlace::Id(id) => buckets.retain(|bucket| bucket.id != id),
            }
            Ok(())
        }
    }
}

fn buckets(tables: &mut Tables, id: u32) -> Result<&mut Vec<Bucket>, FlowError> {
    let group = tables.groups.iter_mut().find(|group| group.id == id).ok_or(FlowError::UnknownGroup)?;
    Ok(&mut group.buckets)
}

fn change_meter(tables: &mut Tables, change: MeterMod) -> Result<(), FlowError> {
    let place = |tables: &Tables, id| tables.meters.iter().position(|meter| meter.id == id);
    match change {
        MeterMod::Add(meter) if place(tables, meter.id).is_some() => return Err(FlowError::MeterExists),
        MeterMod::Add(meter) => tables.meters.push(meter),
        MeterMod::Modify(meter) => {
            let at = place(tables, meter.id).ok_or(FlowError::UnknownMeter)?;
            tables.meters[at] = meter;
        }
        MeterMod::Delete(id) => tables.meters.retain(|meter| id.is_some_and(|id| id != meter.id)),
    }
    Ok(())
}

/// Splits a list into batches of 100 entries.
fn batches<T: Send + 'static>(all: Vec<T>) -> Batches<T> {
    let mut left = all.into_iter();
    Box::new(std::iter::from_fn(move || {
        let batch: Vec<T> = left.by_ref().take(100).collect();
        (!batch.is_empty()).then_some(batch)
    }))
}

impl Datapath for Memory {
    fn features(&self) -> Features {
        Features {
            datapath_id: 0x0000_0200_0000_00ff,
            tables: 254,
            max_groups: 1000,
            max_meters: 100,
            max_bands: 8,
            queues: true,
        }
    }

    fn description(&self) -> Description {
        Description {
            manufacturer: "Trivium".into(),
            hardware: "memory".into(),
            software: "test".into(),
            serial: "None".into(),
            datapath: "br0".into(),
        }
    }

    fn ports(&self) -> Vec<PortDesc> {
        self.lock().ports.clone()
    }

    fn port_stats(&self, wanted: Option<u32>) -> Vec<PortStats> {
        let ports = self.ports().into_iter().filter(|port| wanted.is_none_or(|wanted| wanted == port.number));
        ports
            .map(|port| PortStats {
                number: port.number,
                rx_packets: 11,
                tx_packets: 22,
                rx_bytes: 1100,
                tx_bytes: 2200,
                rx_dropped: 1,
                tx_dropped: 2,
                age_ns: 2_500_000_000,
                ..PortStats::default()
            })
            .collect()
    }

    fn port_mod(&self, change: &PortMod) -> Result<(), PortModError> {
        let mut tables = self.lock();
        let desc = tables.ports.iter_mut().find(|port| port.number == change.number);
        let desc = desc.ok_or(PortModError::NoPort)?;
        if desc.mac != change.mac {
            return Err(PortModError::Address);
        }
        desc.config = desc.config & !change.mask | change.config & change.mask;
        let event = Event::Port(2, desc.clone());
        drop(tables);
        self.tell(&event);
        Ok(())
    }

    fn queue_stats(&self, port: Option<u32>, queue: Option<u32>) -> Vec<QueueStats> {
        let all = [QueueStats { port: 1, queue: 7, tx_packets: 5, tx_bytes: 500, tx_errors: 0, age_ns: 0 }];
        let wanted =
            |it: &QueueStats| port.is_none_or(|port| port == it.port) && queue.is_none_or(|q| q == it.queue);
        all.into_iter().filter(wanted).collect()
    }

    fn queues(&self, port: Option<u32>) -> Vec<QueueConfig> {
        let all = [QueueConfig { port: 1, queue: 7, min_rate: Some(100), max_rate: Some(500) }];
        all.into_iter().filter(|it| port.is_none_or(|port| port == it.port)).collect()
    }

    fn modify(&self, changes: Vec<Mod>) -> Result<(), (usize, FlowError)> {
        self.change(changes)?.0.iter().for_each(|event| self.tell(event));
        Ok(())
    }

    fn modify_soon(&self, changes: Vec<Mod>, origin: Origin) -> Result<Outcome, Vec<Mod>> {
        if self.stalls.load(Ordering::Relaxed) { Err(changes) } else { Ok(self.modify_for(changes, origin)) }
    }

    fn modify_for(&self, changes: Vec<Mod>, origin: Origin) -> Result<(), (usize, FlowError)> {
        self.stalled.fetch_add(1, Ordering::Relaxed);
        while self.stalls.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.stalled.fetch_sub(1, Ordering::Relaxed);
        let (told, _) = self.change(changes)?;
        self.tell(&Event::Caused(origin, told));
        Ok(())
    }

    fn modify_and_send(&self, changes: Vec<Mod>, origin: Origin, reservation: Reservation) -> Outcome {
        let (told, sent) = self.change(changes)?;
        self.tell(&Event::Caused(origin, told));
        sent.into_iter().for_each(|packet| self.send(packet));
        if self.holds.load(Ordering::Relaxed) {
            self.held.lock().unwrap().push(reservation);
        }
        Ok(())
    }

    fn flows(&self, filter: &FlowFilter) -> Batches<FlowStats> {
        let tables = self.lock();
        let wanted = |flow: &&FlowStats| {
            (filter.table == ALL_TABLES || filter.table == flow.table)
                && flow.cookie & filter.cookie_mask == filter.cookie
                && flow.matching.is_within(&filter.matching)
                && filter.out_port.is_none_or(|port| flow.instructions.outputs_to(port))
                && filter.out_group.is_none_or(|group| flow.instructions.uses_group(group))
        };
        let waits = Arc::clone(&self.waits);
        let wait = move || {
            while waits.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            None
        };
        let flows = batches(tables.flows.iter().filter(wanted).cloned().collect());
        Box::new(std::iter::from_fn(wait).chain(flows))
    }

    fn tables(&self) -> Vec<TableStats> {
        let tables = self.lock();
        let active = |table| tables.flows.iter().filter(|flow| flow.table == table).count();
        (0..254)
            .map(|table| TableStats {
                table,
                active: u32::try_from(active(table)).unwrap(),
                max_entries: 1_000_000,
                lookups: 10,
                matched: 9,
            })
            .collect()
    }

    fn table_config(&self, table: u8) -> Option<TableConfig> {
        let own =
            self.lock().names.iter().find(|(number, _)| *number == table).map(|(_, config)| config.clone());
        let fresh = TableConfig { table, max_entries: 1_000_000, ..TableConfig::default() };
        (table < 254).then(|| own.unwrap_or(fresh))
    }

    fn table_mod(&self, change: &TableMod) -> Result<(), FlowError> {
        let mut config = self.table_config(change.table).ok_or(FlowError::BadTable)?;
        config.eviction = change.eviction.unwrap_or(config.eviction);
        config.vacancy = change.vacancy.unwrap_or(config.vacancy);
        config.name = change.name.clone().unwrap_or(config.name);
        let mut tables = self.lock();
        tables.names.retain(|(number, _)| *number != change.table);
        tables.names.push((change.table, config));
        Ok(())
    }

    fn tunnel_options(&self) -> TunnelOptions {
        self.lock().options.clone()
    }

    fn change_tunnel_options(&self, change: &OptionsMod) -> Result<(), OptionsError> {
        self.lock().options.change(change, |_| false)
    }

    fn groups(&self, wanted: Option<u32>) -> Batches<Group> {
        let groups = self.lock().groups.clone();
        batches(groups.into_iter().filter(|group| wanted.is_none_or(|wanted| wanted == group.id)).collect())
    }

    fn group_stats(&self, wanted: Option<u32>) -> Batches<GroupStats> {
        let stats = |group: Group| GroupStats {
            id: group.id,
            references: 1,
            packets: 4,
            bytes: 400,
            age_ns: 3_000_000_000,
            buckets: group.buckets.iter().map(|_| (2, 200)).collect(),
        };
        batches(self.groups(wanted).flatten().map(stats).collect())
    }

    fn meters(&self, wanted: Option<u32>) -> Batches<Meter> {
        let meters = self.lock().meters.clone();
        batches(meters.into_iter().filter(|meter| wanted.is_none_or(|wanted| wanted == meter.id)).collect())
    }

    fn meter_stats(&self, wanted: Option<u32>) -> Batches<MeterStats> {
        let stats = |meter: Meter| MeterStats {
            id: meter.id,
            flows: 1,
            packets: 6,
            bytes: 600,
            age_ns: 4_000_000_000,
            bands: meter.bands.iter().map(|_| (1, 60)).collect(),
        };
        batches(self.meters(wanted).flatten().map(stats).collect())
    }

    fn packet_out(&self, packet: PacketOut, reservation: Reservation) -> Result<(), FlowError> {
        if self.holds.load(Ordering::Relaxed) {
            self.held.lock().unwrap().push(reservation);
        }
        drop(self.lock());
        self.send(packet);
        Ok(())
    }

    fn packet_out_soon(
        &self,
        packet: PacketOut,
        reservation: Reservation,
    ) -> Result<Result<(), FlowError>, Box<(PacketOut, Reservation)>> {
        if self.tables.try_lock().is_err() {
            return Err(Box::new((packet, reservation)));
        }
        Ok(self.packet_out(packet, reservation))
    }

    fn session_ended(&self, session: u64) -> usize {
        let mut held = self.held.lock().unwrap();
        let before = held.len();
        held.retain(|reservation| reservation.session() != session);
        before - held.len()
    }

    fn barrier(&self) -> Settled {
        *self.barriers.lock().unwrap() += 1;
        let waits = Arc::clone(&self.waits);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            while waits.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    }

    fn subscribe(&self) -> Subscription {
        let (to, subscription) = events_for(4096, self.interest.clone());
        self.subscribers.lock().unwrap().push(to);
        subscription
    }

    fn controllers_connected(&self, connected: bool) {
        let _rules = self.rules.lock().unwrap();
        self.connected.lock().unwrap().push(connected);
    }

    fn misses_heard(&self, heard: bool) {
        let _rules = self.rules.lock().unwrap();
        self.misses_heard.store(heard, Ordering::Relaxed);
    }
}
