//! Lists of flow entries, groups, meters, megaflows and cache memory of OpenFlow bridges, for the API. The client's
//! request limits the length of each list. The tables are locked separately for each part (slice) of a list.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use control::{FailureKind, PlaneError};
use engine::{ConnectionView, Connections, Engine, FlowTables, MegaflowView, SlowPathView};
use model::{
    CacheState, CachesState, ConnectionQuery, ConnectionState, ConnectionTuple, FlowCount, FlowQuery,
    FlowRuleState, GroupState, IcmpQueryState, MegaflowState, MemoryState, MeterState, SlowPathState,
};
use packet::PortId;
use port::FrameMemory;
use switch::flow::{ALL_TABLES, ConnectionFilter, FlowDump, FlowFilter, Match, Pipeline, RuleRef, text};

use super::{Flows, now};
use crate::ids::Names;

/// Time limit for the slow path to return the next megaflow of a list or to revalidate all megaflows.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum total time for which [`Shown::memory`] waits for locked flow tables, over all bridges.
const MEMORY_PATIENCE: Duration = Duration::from_millis(20);
/// Number of megaflows whose flow entries are looked up before the flow tables are unlocked for other threads.
const SLICE: usize = 128;
/// Maximum total size in octets of the texts in one list. A client of the API can request a lower maximum
/// ([`FlowQuery::text_octets`]).
const LONGEST: usize = 256 << 20;
/// Maximum number of flow entries that are listed for one megaflow.
const RULES: usize = 32;

/// Snapshot of the running OpenFlow bridges. Lists are made from the snapshot without a lock on the
/// configuration.
pub struct Shown {
    bridges: Vec<(String, Arc<FlowTables>)>,
    /// MAC-learning bridges that execute the action `NORMAL` of the OpenFlow bridges, in the order of `bridges`.
    learning: Vec<Arc<switch::Bridge>>,
    names: Names,
    slow_path: Option<Arc<SlowPathView>>,
    connections: Arc<Connections>,
}

impl Flows {
    /// Returns a snapshot of the OpenFlow bridges, from which lists are made. See [`Shown`].
    pub fn shown(&self, names: &Names) -> Shown {
        let bridge = |(name, own): (&model::BridgeName, &super::Flowing)| {
            (name.as_str().to_owned(), Arc::clone(&own.tables))
        };
        Shown {
            bridges: self.bridges.iter().map(bridge).collect(),
            learning: self.bridges.values().map(|own| Arc::clone(&own.bridge.bridge)).collect(),
            names: names.clone(),
            slow_path: self.deciding.as_ref().map(|deciding| Arc::clone(&deciding.view)),
            connections: Arc::clone(&self.connections),
        }
    }
}

impl Shown {
    /// Returns the tracked connections that a query selects.
    pub fn connections(&self, query: &ConnectionQuery) -> Vec<ConnectionState> {
        let filter = ConnectionFilter { zone: query.zone, ..ConnectionFilter::default() };
        self.connections.list(&filter, query.limit, now()).iter().map(connection).collect()
    }
}

fn connection(view: &ConnectionView) -> ConnectionState {
    let tuple = |ends: &[(std::net::IpAddr, u16); 2]| ConnectionTuple {
        source: ends[0].0,
        destination: ends[1].0,
        source_port: ends[0].1,
        destination_port: ends[1].1,
    };
    let icmp = view.icmp.map(|icmp| IcmpQueryState {
        request: icmp.request,
        reply: icmp.reply,
        original_id: icmp.identifiers[0],
        reply_id: icmp.identifiers[1],
    });
    ConnectionState {
        zone: view.zone,
        protocol: view.protocol,
        original: tuple(&view.original),
        reply: tuple(&view.reply),
        icmp,
        state: view.state.to_owned(),
        mark: view.mark,
        label: format!("{:#x}", view.label),
        timeout_secs: view.timeout_ms.div_ceil(1000),
    }
}

/// A list of bounded length for the API, to which entries are added.
struct List<T> {
    entries: Vec<T>,
    /// Maximum number of entries in the list.
    limit: usize,
    /// Total size in octets of the texts of all entries in the list.
    length: usize,
    /// Maximum total size in octets of the texts in the list.
    longest: usize,
}

impl<T> List<T> {
    /// Returns the number of entries that may still be added to the list.
    fn left(&self) -> usize {
        self.limit - self.entries.len()
    }

    /// Adds an entry that belongs to `bridge`. The entry's texts have `length` octets.
    fn push(&mut self, bridge: &str, entry: T, length: usize) -> Result<(), PlaneError> {
        self.length += length;
        if self.length > self.longest {
            return Err(PlaneError {
                kind: FailureKind::Invalid,
                object: format!("bridge.{bridge}"),
                cause: format!("the list would take more than {} KiB", self.longest >> 10),
                fix: "ask for fewer entries by `limit`, or of one bridge or table".to_owned(),
            });
        }
        self.entries.push(entry);
        Ok(())
    }
}

fn counts(of: &[(u64, u64)]) -> Vec<FlowCount> {
    of.iter().map(|(packets, bytes)| FlowCount { packets: *packets, bytes: *bytes }).collect()
}

/// Returns whether the megaflow belongs to the cache of `worker`. If `worker` is `None`, returns true for every
/// megaflow.
fn is_of(view: &MegaflowView, worker: Option<u16>) -> bool {
    worker.is_none_or(|worker| view.worker == usize::from(worker))
}

const fn ms(ns: u64) -> u64 {
    ns / 1_000_000
}

impl Shown {
    /// Returns the name and the flow tables of the bridge `bridge`. If `bridge` is `None`, returns those of all
    /// bridges.
    fn of(&self, bridge: Option<&String>) -> Result<&[(String, Arc<FlowTables>)], PlaneError> {
        let Some(name) = bridge else { return Ok(&self.bridges) };
        let at = self.bridges.iter().position(|(own, _)| own == name);
        at.and_then(|at| self.bridges.get(at..=at)).ok_or_else(|| PlaneError::no_rules(name))
    }

    /// Calls `read` for each bridge that the query requests, and returns all entries in one list.
    fn list<T>(
        &self,
        query: &FlowQuery,
        read: impl Fn(&str, &FlowTables, &mut List<T>) -> Result<(), PlaneError>,
    ) -> Result<Vec<T>, PlaneError> {
        let longest = query.text_octets.map_or(LONGEST, |octets| octets.min(LONGEST));
        let mut list = List { entries: Vec::new(), limit: query.limit, length: 0, longest };
        for (name, tables) in self.of(query.bridge.as_ref())? {
            read(name, tables, &mut list)?;
        }
        Ok(list.entries)
    }

    /// Lists the flow entries of bridges. See [`control::Lists::flow_rules`].
    pub fn rules(&self, query: &FlowQuery) -> Result<Vec<FlowRuleState>, PlaneError> {
        let filter = FlowFilter { table: query.table.unwrap_or(ALL_TABLES), ..FlowFilter::default() };
        self.list(query, |bridge, tables, list| {
            let mut dump = FlowDump::new(filter.clone());
            while list.left() > 0 {
                dump.prepare();
                let Some(rules) = dump.step(&tables.lock(), now()) else { break };
                for rule in rules.into_iter().take(list.left()) {
                    let state = FlowRuleState {
                        bridge: bridge.to_owned(),
                        table: rule.table,
                        priority: rule.priority,
                        cookie: rule.cookie,
                        matches: text::matching(&rule.matching, None),
                        actions: text::instructions(&rule.instructions),
                        packets: rule.packets,
                        bytes: rule.bytes,
                        age_ms: ms(rule.age_ns),
                        idle_ms: ms(rule.idle_ns),
                        idle_timeout: rule.idle_timeout,
                        hard_timeout: rule.hard_timeout,
                        importance: rule.importance,
                    };
                    let length = state.matches.len() + state.actions.len();
                    list.push(bridge, state, length)?;
                }
            }
            Ok(())
        })
    }

    /// Lists the groups of bridges. See [`control::Lists::groups`].
    pub fn groups(&self, query: &FlowQuery) -> Result<Vec<GroupState>, PlaneError> {
        self.list(query, |bridge, tables, list| {
            let mut from = Some(0);
            while let Some(first) = from {
                let Some(groups) = tables.lock().groups_from(first, list.left(), now()) else { break };
                from = groups.last().and_then(|last| last.group.id.checked_add(1));
                for shown in groups {
                    let state = GroupState {
                        bridge: bridge.to_owned(),
                        id: shown.group.id,
                        text: text::group(&shown.group),
                        packets: shown.packets,
                        bytes: shown.bytes,
                        age_ms: ms(shown.age_ns),
                        buckets: counts(&shown.buckets),
                    };
                    let length = state.text.len() + size_of_val(&state.buckets[..]);
                    list.push(bridge, state, length)?;
                }
            }
            Ok(())
        })
    }

    /// Lists the meters of bridges. See [`control::Lists::meters`].
    pub fn meters(&self, query: &FlowQuery) -> Result<Vec<MeterState>, PlaneError> {
        self.list(query, |bridge, tables, list| {
            let mut from = Some(0);
            while let Some(first) = from {
                let Some(meters) = tables.lock().meters_from(first, list.left(), now()) else { break };
                from = meters.last().and_then(|last| last.meter.id.checked_add(1));
                for shown in meters {
                    let state = MeterState {
                        bridge: bridge.to_owned(),
                        id: shown.meter.id,
                        text: text::meter(&shown.meter),
                        packets: shown.packets,
                        bytes: shown.bytes,
                        age_ms: ms(shown.age_ns),
                        bands: counts(&shown.bands),
                    };
                    let length = state.text.len() + size_of_val(&state.bands[..]);
                    list.push(bridge, state, length)?;
                }
            }
            Ok(())
        })
    }

    /// Lists the megaflows of bridges. See [`control::Lists::megaflows`].
    pub fn megaflows(&self, query: &FlowQuery) -> Result<Vec<MegaflowState>, PlaneError> {
        if self.slow_path.is_none() {
            return self.list(query, |_, _, _| Ok(()));
        }
        self.list(query, |bridge, tables, list| {
            let flows = tables.megaflows();
            let mut slice = Vec::with_capacity(SLICE);
            let mut goes_on = true;
            while goes_on && list.left() > 0 {
                match flows.recv_timeout(PATIENCE) {
                    Ok(view) if is_of(&view, query.worker) => slice.push(view),
                    Ok(_) => {}
                    Err(RecvTimeoutError::Disconnected) => goes_on = false,
                    Err(RecvTimeoutError::Timeout) => return Err(late(bridge)),
                }
                if slice.len() == SLICE || !goes_on {
                    for state in self.megaflow_states(bridge, tables, query, &mut slice) {
                        if list.left() > 0 {
                            let rules = state.rules.iter().map(String::len).sum::<usize>();
                            let length = state.flow.len() + state.actions.len() + rules;
                            list.push(bridge, state, length)?;
                        }
                    }
                }
            }
            Ok(())
        })
    }

    /// Converts the megaflows of `slice` into values of the API. Texts that need no flow tables are made before the
    /// tables are locked.
    fn megaflow_states(
        &self,
        bridge: &str,
        tables: &FlowTables,
        query: &FlowQuery,
        slice: &mut Vec<MegaflowView>,
    ) -> Vec<MegaflowState> {
        let at = now();
        let port = |port: PortId| if query.numbers { port.0.to_string() } else { self.names.port(port) };
        let is_wanted =
            |flow: &String| query.text.as_ref().is_none_or(|wanted| flow.contains(wanted.as_str()));
        let state = |view: MegaflowView| {
            let text = text::cached(view.recirculation, &port(view.port), &view.flow, &view.mask);
            let flow = Some(text).filter(is_wanted)?;
            let state = MegaflowState {
                bridge: bridge.to_owned(),
                worker: u16::try_from(view.worker).unwrap_or(u16::MAX),
                flow,
                actions: text::program(view.ops(), &port),
                packets: view.packets,
                bytes: view.bytes,
                used_ms: (view.used_ns != 0).then(|| ms(at.saturating_sub(view.used_ns))),
                rules: Vec::new(),
            };
            Some((state, view))
        };
        let described: Vec<(MegaflowState, MegaflowView)> = slice.drain(..).filter_map(state).collect();
        let of_rules: Vec<Vec<RuleKey>> = {
            let pipeline = tables.lock();
            described.iter().map(|(_, view)| rules(&pipeline, view.rules())).collect()
        };
        let with_rules = |((state, _), rules): ((MegaflowState, _), Vec<RuleKey>)| MegaflowState {
            rules: rules.iter().map(rule_text).collect(),
            ..state
        };
        described.into_iter().zip(of_rules).map(with_rules).collect()
    }

    /// Returns the memory use of each bridge's flow tables. If another thread keeps the tables of a bridge locked,
    /// returns the last known value for this bridge.
    pub fn memory(&self) -> Vec<MemoryState> {
        let deadline = Instant::now() + MEMORY_PATIENCE;
        let state = |(name, tables): &(String, Arc<FlowTables>)| MemoryState {
            consumer: format!("tables of {name}"),
            bytes: u64::try_from(tables.memory(deadline)).unwrap_or(u64::MAX),
        };
        self.bridges.iter().map(state).collect()
    }

    /// Returns the memory use of frames, flow tables and flow caches, the counters of each worker's flow cache,
    /// and the state of the slow path. `tables` is the result of [`Shown::memory`]. See [`control::Lists::caches`].
    pub fn caches(&self, engine: &Engine, frames: &FrameMemory, tables: Vec<MemoryState>) -> CachesState {
        let mut caches = CachesState::default();
        let mut memory = |consumer: String, bytes: u64| caches.memory.push(MemoryState { consumer, bytes });
        memory("frames".to_owned(), frames.bytes());
        tables.into_iter().for_each(|own| memory(own.consumer, own.bytes));
        let Some(slow_path) = &self.slow_path else { return caches };
        let count = |value: usize| u64::try_from(value).unwrap_or(u64::MAX);
        let state = |(worker, view): (u16, engine::stage::FlowsView)| CacheState {
            worker,
            flows: count(view.flows),
            masks: count(view.masks),
            exact_hits: view.counters.exact,
            masked_hits: view.counters.wildcard,
            misses: view.counters.misses,
            probes: view.counters.probes,
            memory: count(view.memory),
        };
        let workers: Vec<CacheState> =
            (0..).zip(engine.flow_caches().unwrap_or_default()).map(state).collect();
        memory("flow caches".to_owned(), workers.iter().map(|cache| cache.memory).sum());
        memory("flow records".to_owned(), slow_path.memory.load(Ordering::Relaxed));
        caches.slow_path = Some(SlowPathState {
            flows: slow_path.flows.load(Ordering::Relaxed),
            mean_flows: slow_path.mean_flows.load(Ordering::Relaxed),
            most_flows: slow_path.most_flows.load(Ordering::Relaxed),
            limit: slow_path.limit.load(Ordering::Relaxed),
            upcalls: slow_path.upcalls.load(Ordering::Relaxed),
            revalidated: slow_path.revalidated.load(Ordering::Relaxed),
            round_us: slow_path.round_us.load(Ordering::Relaxed),
            narrowed: slow_path.narrowed.load(Ordering::Relaxed),
            wrong: slow_path.wrong.load(Ordering::Relaxed),
            skipped_learns: slow_path.skipped_learns.load(Ordering::Relaxed),
        });
        caches.workers = workers;
        caches
    }

    /// Revalidates all megaflows, or removes all of them if `purge` is true. See
    /// [`control::Plane::settle_flows`].
    pub fn settle(&self, purge: bool) -> Result<(), PlaneError> {
        if self.slow_path.is_none() {
            return Ok(());
        }
        let deadline = Instant::now() + PATIENCE;
        for asks_for_purge in [true, false].into_iter().skip(usize::from(!purge)) {
            // All bridges are queried before the first answer is awaited.
            let ask = |(name, tables): &(String, Arc<FlowTables>)| {
                let (done, is_done) = std::sync::mpsc::channel();
                let tell = move || {
                    let _ = done.send(());
                };
                if asks_for_purge {
                    tables.purge(tell)
                } else {
                    tables.barrier(tell)
                }
                (name.clone(), is_done)
            };
            for (name, is_done) in self.bridges.iter().map(ask).collect::<Vec<_>>() {
                let left = deadline.saturating_duration_since(Instant::now());
                is_done.recv_timeout(left).map_err(|_| late(&name))?;
            }
        }
        Ok(())
    }

    /// Returns the flow tables of a bridge, and the MAC-learning bridge that executes the action `NORMAL`.
    pub fn one(&self, bridge: &str) -> Result<(&FlowTables, &switch::Bridge), PlaneError> {
        let mut all = self.bridges.iter().zip(&self.learning);
        let found = all.find(|((own, _), _)| own == bridge);
        let ((_, tables), learning) = found.ok_or_else(|| PlaneError::no_rules(bridge))?;
        Ok((tables, learning))
    }

    /// Finds the bridge of a data-path port, which is given by name or number. Returns the bridge's name and
    /// the port's OpenFlow number. Returns `None` if no OpenFlow bridge has the port.
    pub fn bridge_of(&self, port: &str) -> Option<(&str, u32)> {
        let id = port.parse().ok().or_else(|| self.names.ports.find(port)).map(PortId)?;
        self.bridges.iter().find_map(|(name, tables)| Some((name.as_str(), tables.lock().number_of(id)?)))
    }

    /// Returns the name of a port if `names` is true, otherwise its number.
    pub fn port(&self, port: PortId, names: bool) -> String {
        if names { self.names.port(port) } else { port.0.to_string() }
    }
}

/// Table number, priority and match of a flow entry. Together, these values identify the flow entry.
type RuleKey = (u8, u16, Match);

/// Returns the table, priority and match of the flow entries from which a megaflow was computed. Flow entries that no
/// longer exist are left out. The caller converts these values into text after it has unlocked the flow tables.
fn rules(pipeline: &Pipeline, of: &[RuleRef]) -> Vec<RuleKey> {
    let known = of.iter().take(RULES).filter_map(|at| pipeline.rule(*at));
    known.map(|rule| (rule.table, rule.priority, rule.matching)).collect()
}

fn rule_text((table, priority, matching): &RuleKey) -> String {
    let matching = text::matching(matching, None);
    let comma = if matching.is_empty() { "" } else { "," };
    format!("table={table},priority={priority}{comma}{matching}")
}

fn late(bridge: &str) -> PlaneError {
    PlaneError {
        kind: FailureKind::Busy,
        object: format!("bridge.{bridge}"),
        cause: format!("its slow path has not answered within {} s", PATIENCE.as_secs()),
        fix: "look at `trivium show workers` and the daemon's log, then try again".to_owned(),
    }
}
