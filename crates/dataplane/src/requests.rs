//! Implementation of [`control::Plane`]: the requests of the control plane to the engine, the ports, the
//! hooks and the switch.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use control::{CaptureRequest, DumpRequest, FailureKind, Plane, PlaneError, SampleRequest};
use engine::state::RSS_BUCKETS;
use model::{
    BlockRequest, Blocked, CapturedFrame, Counters, DoctorFinding, DriftState, Explanation, FdbFilter,
    FilterName, FlowTuning, HookState, Machine, Merged, MulticastMember, PacketFilter, Prefix, ProgramChange,
    RouteWhy, RssTable, SteeringDone, SteeringEntry, SteeringRequest, SteeringTable, TraceEvent,
    TraceRequest,
};
use packet::{PortId, VlanId, WorkerId};
use tokio::sync::mpsc::Sender;

use super::data_plane::DataPlane;
use super::filters::{BlocklistFiles, Filters, Reloaded, Tables};
use super::handover::HandoverError;
use super::hook_test::HookAnswer;
use super::lock::locked;
use super::ports::no_such_port;
use super::running_state::FilterParts;
use super::{
    doctor, dump, fault, filters, hooks, machine, observe, orphans, program_requests, routers, routes,
    samples, steering, view,
};

/// Maximum number of prefixes that a request blocks before it unlocks the data plane. A longer request is processed in
/// parts, so that other threads can lock the data plane between two parts. The table of a long block list is built at
/// most once for each part. The limit for unblocking (`UNBLOCKED_AT_ONCE`) is lower, because unblocking a short prefix
/// visits its whole range.
const BLOCKED_AT_ONCE: usize = 4096;
const UNBLOCKED_AT_ONCE: usize = 256;
/// Maximum number of attempts to install a block list that was built while the data plane was not
/// locked. If the blocked prefixes have changed meanwhile, the attempt fails, and the changes are
/// applied to the list without the lock. The last attempt applies the changes while the data plane
/// is locked.
const RELOAD_ATTEMPTS: u32 = 4;

impl Plane for DataPlane {
    fn machine(&self) -> Machine {
        Machine { frames: Some(self.memory.frames()), ..machine() }
    }

    fn apply(&self, new: &Merged) -> Result<Vec<DoctorFinding>, PlaneError> {
        let starting = !self.settled.load(Ordering::Acquire);
        if starting {
            fault::step("apply")
                .map_err(|cause| PlaneError::failed("config", &HandoverError::Own(cause), ""))?;
        }
        let before = locked(&self.running_state).config.clone();
        let blocklists = BlocklistFiles::read(&new.config, &before)?;
        let state_of = |name: &FilterName| locked(&self.running_state).filters.list_state(name);
        let lists = blocklists.build(&new.config, &before, state_of)?;
        let tables = Tables::compile(&new.config, &before)?;
        let newly_hooked = locked(&self.running_state).filters.newly_hooked(&new.config);
        for (name, compiled) in newly_hooked {
            filters::write_tables(&name, &compiled);
        }
        let mut parts = FilterParts { blocklists: &blocklists, lists, tables };
        let (applied, _former) = self.engine(|engine| {
            let mut running_state = locked(&self.running_state);
            let mut applied = running_state.apply(engine, &new.config, &mut parts, starting);
            if let Ok(notes) = &mut applied {
                notes.extend(doctor::services(&running_state));
                if !starting {
                    orphans::sweep(&running_state);
                }
            }
            // A failed change also leaves former state, which must be freed.
            Ok((applied, running_state.filters.former()))
        })?;
        let notes = applied?;
        *locked(&self.merged) = new.clone();
        Ok(notes)
    }

    fn block(&self, filter: &str, request: &BlockRequest) -> Result<Blocked, PlaneError> {
        let at_once = if request.unblock { UNBLOCKED_AT_ONCE } else { BLOCKED_AT_ONCE };
        // A request that is too long is refused as a whole.
        locked(&self.running_state).filters.check_space(filter, request)?;
        let mut sum = Blocked::default();
        let (mut parts, mut failed) = (request.prefixes.chunks(at_once).peekable(), None);
        // The loop runs at least once, so that a request without prefixes is checked as well.
        loop {
            let prefixes = parts.next().unwrap_or_default().to_vec();
            let part = BlockRequest { prefixes, ..*request };
            let done = self.engine(|engine| {
                let mut running_state = locked(&self.running_state);
                let done = running_state.filters.block(filter, &part);
                running_state.filters_have_changed(engine);
                done
            });
            match done {
                Ok(done) => sum = Blocked { changed: sum.changed + done.changed, listed: done.listed },
                Err(error) => drop(failed.get_or_insert(error)),
            }
            if parts.peek().is_none() {
                return failed.map_or(Ok(sum), Err);
            }
        }
    }

    fn reload_blocklist(&self, filter: &str) -> Result<Blocked, PlaneError> {
        loop {
            let source = locked(&self.running_state).filters.list_source(filter)?;
            // This is done without the lock, because reading and building a long list takes seconds.
            let mut read =
                Filters::build_list(&source, filters::read_blocklist(&source.name, &source.path)?)?;
            for attempt in 1..=RELOAD_ATTEMPTS {
                let (reloaded, _former) = self.engine(|engine| {
                    let mut running_state = locked(&self.running_state);
                    let reloaded = running_state.filters.reload(&source, read, attempt == RELOAD_ATTEMPTS)?;
                    if matches!(reloaded, Reloaded::Done(_)) {
                        running_state.filters_have_changed(engine);
                    }
                    Ok((reloaded, running_state.filters.former()))
                })?;
                match reloaded {
                    Reloaded::Done(done) => return Ok(done),
                    Reloaded::Behind(behind, blocks) => {
                        read = *behind;
                        read.follow(&blocks);
                    }
                    Reloaded::OtherSource => break,
                }
            }
        }
    }

    fn steering_flows(&self, steering: &str, limit: usize) -> Result<Vec<SteeringEntry>, PlaneError> {
        let slice = |from, limit| locked(&self.running_state).steering.flows(steering, from, limit);
        steering::list_flows(limit, slice)
    }

    fn change_steering_flows(
        &self,
        steering: &str,
        request: &SteeringRequest,
    ) -> Result<SteeringDone, PlaneError> {
        self.engine(|_| locked(&self.running_state).steering.change_flows(steering, request))
    }

    fn steering_table(&self, steering: &str) -> Result<SteeringTable, PlaneError> {
        locked(&self.running_state).steering.table(steering)
    }

    fn set_steering_table(&self, steering: &str, table: &SteeringTable) -> Result<(), PlaneError> {
        self.engine(|_| locked(&self.running_state).steering.set_table(steering, table))
    }

    fn hooks(&self) -> Result<Vec<HookState>, PlaneError> {
        hooks::read(&self.running_state)
    }

    fn count_runs(&self) -> Result<Box<dyn Send>, PlaneError> {
        Ok(Box::new(hooks::count_runs()?))
    }

    fn load_program(
        &self,
        port: &str,
        object: &[u8],
        program: Option<&str>,
    ) -> Result<ProgramChange, PlaneError> {
        // The verifier may take seconds, so the program is loaded outside the lock.
        let user = program_requests::load(&self.running_state, port, object, program)?;
        self.engine(|_| program_requests::put(&self.running_state, port, user))
    }

    fn unload_program(&self, port: &str) -> Result<ProgramChange, PlaneError> {
        self.engine(|_| program_requests::take(&self.running_state, port))
    }

    fn flush_fdb(&self, filter: &FdbFilter) -> Result<u64, PlaneError> {
        let running_state = locked(&self.running_state);
        if let Some(port) =
            filter.port.as_ref().filter(|port| !running_state.ports.contains_key(port.as_str()))
        {
            return Err(no_such_port(port));
        }
        if let Some(bridge) =
            filter.bridge.as_ref().filter(|bridge| !running_state.bridges.contains_key(bridge.as_str()))
        {
            let fix = "see the names with `trivium show bridges`";
            return Err(PlaneError::not_found(format!("bridge.{bridge}"), "there is no such bridge", fix));
        }
        let mut flushed = 0;
        for (name, bridge) in &running_state.bridges {
            if filter.bridge.as_ref().is_some_and(|wanted| wanted != name.as_str()) {
                continue;
            }
            let port = filter
                .port
                .as_ref()
                .and_then(|port| running_state.ports.get(port.as_str()))
                .map(|port| port.id);
            flushed += bridge.tables().flush(|entry| {
                !entry.is_static
                    && port.is_none_or(|port| entry.port == Some(port))
                    && filter.vlan.is_none_or(|vlan| entry.vid == vlan)
                    && filter.mac.is_none_or(|mac| entry.mac == mac)
            });
        }
        Ok(u64::try_from(flushed).unwrap_or(u64::MAX))
    }

    fn multicast(&self, bridge: &str) -> Result<Vec<MulticastMember>, PlaneError> {
        let listed = locked(&self.snooping).listed(bridge);
        let listed = listed.ok_or_else(|| PlaneError::no_snooping(bridge))?;
        let names = self.names();
        let member = |(vid, group, port, age_s): (u16, _, PortId, u32)| {
            Some(MulticastMember { vlan: VlanId::new(vid)?, group, port: names.port(port), age_s })
        };
        Ok(listed.into_iter().filter_map(member).collect())
    }

    fn flush_multicast(&self, bridge: &str) -> Result<(), PlaneError> {
        let flushed = locked(&self.snooping).flush(bridge);
        if flushed { Ok(()) } else { Err(PlaneError::no_snooping(bridge)) }
    }

    fn route_why(&self, router: &str, of: Prefix) -> Result<RouteWhy, PlaneError> {
        let mut why = self.ask_router(router, move |mirror| routes::why(mirror, of))?;
        if why
            .route
            .as_ref()
            .is_some_and(|route| locked(&self.running_state).routers.lacks_room(router, route))
        {
            why.chosen.push(routes::NO_ROOM.to_owned());
        }
        Ok(why)
    }

    fn drift(&self, router: &str) -> Result<DriftState, PlaneError> {
        let follower = locked(&self.running_state).routers.follower(router)?;
        routers::drift(router, &follower)
    }

    fn trace_rules(&self, request: &TraceRequest) -> Result<String, PlaneError> {
        self.shown_flows().trace(request)
    }

    fn settle_flows(&self, purge: bool) -> Result<(), PlaneError> {
        self.shown_flows().settle(purge)
    }

    fn tune_flows(&self, tuning: FlowTuning) -> Result<(), PlaneError> {
        if locked(&self.running_state).flows.tune(tuning) {
            return Ok(());
        }
        let fix = "give one a table `openflow`";
        Err(PlaneError::not_found("flows", "no bridge goes by OpenFlow's rules", fix))
    }

    fn counters(&self) -> Counters {
        let at_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let loads = locked(&self.loads).clone();
        self.with_engine(|engine| view::counters(&locked(&self.running_state), engine, &loads, at_ns))
            .unwrap_or_default()
    }

    fn explain(&self, in_port: &str, frame: &[u8]) -> Result<Explanation, PlaneError> {
        let port = self.port_id(in_port)?;
        let names = self.names();
        let (test, rule) = {
            let running_state = locked(&self.running_state);
            (running_state.hook_test(in_port), running_state.worker_drops(in_port, frame))
        };
        let hook = test.and_then(|test| {
            let HookAnswer { says, device } = test.run(frame)?;
            let running_state = locked(&self.running_state);
            let port = says.device.and_then(|index| running_state.port_of_device(test.namespace(), index));
            Some((says, port.map(ToString::to_string).or(device)))
        });
        let mut story =
            self.engine(|engine| Ok(observe::explain(engine, &names, (port, in_port), frame, hook, rule)))?;
        let router = locked(&self.running_state).config.router_of(in_port).map(|(name, _)| name.to_string());
        if let (Some(router), Some(to)) = (router, routes::destination(frame)) {
            // The routes are read a moment after the trace. The trace report is complete without them.
            if let Ok(why) = self.route_why(&router, to) {
                routes::tell(&mut story, &why);
            }
        }
        Ok(story)
    }

    fn trace(&self, count: u64, filter: &PacketFilter, to: Sender<TraceEvent>) -> Result<(), PlaneError> {
        let port = filter.port.as_deref().map(|name| self.port_id(name)).transpose()?;
        let me = self.me()?;
        self.engine(|engine| observe::trace(&me, engine, count, filter, port, to))
    }

    fn capture(&self, request: &CaptureRequest, to: Sender<CapturedFrame>) -> Result<(), PlaneError> {
        // A port named `all` takes precedence over all ports.
        let port = match self.port_id(&request.port) {
            Err(_) if request.port == "all" => None,
            port => Some(port?),
        };
        let me = self.me()?;
        self.engine(|engine| observe::capture(&me, engine, request, port, to))
    }

    fn dump(&self, request: DumpRequest, to: Sender<CapturedFrame>) -> Result<(), PlaneError> {
        dump::start(&self.me()?, request, to)
    }

    fn samples(&self, request: SampleRequest, to: Sender<CapturedFrame>) -> Result<(), PlaneError> {
        samples::start(&self.me()?, request, to)
    }

    fn doctor(&self) -> Vec<DoctorFinding> {
        let (workers, census) =
            self.with_engine(|engine| (engine.workers(), engine.frames())).unwrap_or_default();
        let loads = locked(&self.loads).clone();
        let mut findings = doctor::examine(&self.running_state, &self.memory, census, (workers, &loads));
        findings.extend(self.watches.examine());
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings
    }

    fn rss_table(&self, port: &str) -> Result<RssTable, PlaneError> {
        let running_state = locked(&self.running_state);
        let running = running_state.ports.get(port).ok_or_else(|| no_such_port(port))?;
        let rss_table = running.rss_table.as_ref().ok_or_else(|| no_software_rss(port))?;
        Ok(RssTable { buckets: rss_table.iter().map(|worker| worker.0).collect() })
    }

    fn set_rss_table(&self, port: &str, table: &RssTable) -> Result<(), PlaneError> {
        self.engine(|engine| {
            let mut running_state = locked(&self.running_state);
            let running = running_state.ports.get_mut(port).ok_or_else(|| no_such_port(port))?;
            if running.rss_table.is_none() {
                return Err(no_software_rss(port));
            }
            let invalid = |cause: String, fix: &str| PlaneError {
                kind: FailureKind::Invalid,
                object: format!("port.{port}.rss"),
                cause,
                fix: fix.to_owned(),
            };
            let length = table.buckets.len();
            if !length.is_power_of_two() || length > RSS_BUCKETS {
                let cause = format!("{length} buckets are not possible");
                return Err(invalid(cause, "use a power of two up to 256"));
            }
            if let Some(worker) =
                table.buckets.iter().find(|worker| usize::from(**worker) >= engine.workers())
            {
                let cause = format!("there is no worker {worker}");
                return Err(invalid(cause, "see `trivium show workers`"));
            }
            running.rss_table =
                Some(Arc::new(std::array::from_fn(|at| WorkerId(table.buckets[at % length]))));
            running_state.publish(engine);
            Ok(())
        })
    }

    fn upgrade(&self, binary: &Path) -> Result<(), PlaneError> {
        self.upgrade_to(binary)
    }
}

fn no_software_rss(port: &str) -> PlaneError {
    PlaneError {
        kind: FailureKind::Invalid,
        object: format!("port.{port}"),
        cause: "it does not use software RSS".to_owned(),
        fix: "set `software_rss = true` on it".to_owned(),
    }
}
