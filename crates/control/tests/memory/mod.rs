//! Data plane for tests, which keeps its configuration in memory, and a client of the API.

#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "a test says with a panic what it did not expect")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use control::{
    CaptureRequest, DumpRequest, FailureKind, Listeners, Lists, Plane, PlaneError, SampleRequest, Store,
};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use model::*;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::sync::mpsc::Sender;

/// Data plane for tests. It stores the applied configuration in memory, and fails or blocks if a test requests this.
#[derive(Default)]
pub struct Memory {
    pub running: Mutex<Config>,
    pub applied: AtomicU32,
    pub fail: AtomicBool,
    /// Number of changes after which all further changes fail. 0 means that no change fails.
    pub fail_after: AtomicU32,
    pub slow: AtomicBool,
    /// Whether the data plane runs a configuration that differs from the store's.
    pub behind: AtomicBool,
    /// Whether a hand-over is in progress.
    pub upgrading: AtomicBool,
    /// Number of calls that have read the states of hooks.
    pub looks: AtomicU32,
    /// Number of measurements of BPF program runs in progress.
    pub counting: Arc<AtomicU32>,
    /// Whether calls that read the states of workers block.
    pub hold_workers: AtomicBool,
    /// Whether comparisons of a router with the kernel block.
    pub hold_drift: AtomicBool,
    /// Number of comparisons of a router with the kernel in progress.
    pub drifting: AtomicU32,
    /// Number of calls in progress that read the states of workers.
    pub asking_workers: AtomicU32,
    /// Whether explanations of packets block.
    pub hold_explain: AtomicBool,
    /// Number of explanations in progress.
    pub explaining: AtomicU32,
    /// Largest number of explanations that were in progress at the same time.
    pub most_explaining: AtomicU32,
}

impl Memory {
    pub fn running(&self) -> Config {
        self.running.lock().unwrap().clone()
    }

    fn has_router(&self, name: &str) -> Result<(), PlaneError> {
        let runs = self.running().routers.contains_key(name);
        if runs { Ok(()) } else { Err(PlaneError::no_router(name)) }
    }

    fn port(&self, name: &str) -> Result<(), PlaneError> {
        if self.running().ports.contains_key(name) {
            return Ok(());
        }
        Err(PlaneError::not_found(
            format!("port.{name}"),
            "there is no such port",
            "look at `trivium show ports`",
        ))
    }
}

/// Number of IPv4 routes of each router.
const ROUTES: usize = 2002;

/// Returns a default route, 2000 routes in the main table, one route in table 100, and one IPv6 route.
fn all_routes() -> impl Iterator<Item = RouteEntry> {
    let route = |prefix: String, table, gateway: &str| RouteEntry {
        prefix: prefix.parse().unwrap(),
        table,
        kind: "unicast".to_owned(),
        protocol: RouteProtocol(186),
        metric: 20,
        only: None,
        next_hops: vec![RouteNextHop { gateway: gateway.parse().ok(), weight: 1, ..RouteNextHop::default() }],
        next_hop: None,
    };
    let network = move |number: u16| {
        let [high, low] = number.to_be_bytes();
        route(format!("10.{high}.{low}.0/24"), TableId::MAIN, "10.0.0.2")
    };
    [route("0.0.0.0/0".to_owned(), TableId::MAIN, "10.0.0.1")]
        .into_iter()
        .chain((0..2000).map(network))
        .chain([route("192.0.2.0/24".to_owned(), TableId(100), "10.0.0.3")])
        .chain([route("2001:db8::/32".to_owned(), TableId::MAIN, "fe80::1")])
}

/// Returns whether `outer` contains `inner`.
fn covers(outer: Prefix, inner: Prefix) -> bool {
    let cut: Prefix = format!("{}/{}", inner.address(), outer.length()).parse().unwrap_or(inner);
    inner.length() >= outer.length() && cut == outer
}

impl Lists for Memory {
    fn ports(&self) -> Vec<PortState> {
        let state = |(id, (name, port)): (usize, (&PortName, &Port))| PortState {
            name: name.to_string(),
            id: u16::try_from(id).unwrap(),
            kind: port.kind.name().to_owned(),
            owner: Owner::Netlink,
            device: port.kind.device().map(|(device, _)| device.to_string()),
            namespace: None,
            ifindex: None,
            driver: None,
            mode: None,
            zero_copy: None,
            reasons: Vec::new(),
            queues: 1,
            workers: vec![0],
            mac: Some("02:00:00:00:00:01".parse().unwrap()),
            mtu: 1500,
            admin_up: true,
            link_up: true,
            bridge: None,
            router: None,
            persist: false,
            filter: None,
            counters: PortCounters { rx_packets: 7, ..PortCounters::default() },
            trouble: None,
            shortcut: None,
        };
        self.running().ports.iter().enumerate().map(state).collect()
    }

    fn filters(&self) -> Vec<FilterState> {
        let rule = |rule: &FilterRule| RuleState {
            name: rule.name.to_string(),
            priority: rule.priority,
            action: rule.action.name().to_owned(),
            dry_run: rule.dry_run,
            expires: None,
            expired: false,
            packets: 9,
            bytes: 900,
            acted_packets: 8,
            acted_bytes: 800,
            cookies: matches!(rule.action, FilterAction::SynCookie(_)).then_some(CookieState {
                answered: 7,
                valid: 6,
                invalid: 5,
                refused: 4,
                through: 3,
                answering: true,
            }),
        };
        let state = |(name, filter): (&FilterName, &Filter)| FilterState {
            name: name.to_string(),
            owner: Owner::Netlink,
            ports: Vec::new(),
            blocklist: None,
            listed: Some(2),
            rules: filter.rules.iter().map(rule).collect(),
        };
        self.running().filters.iter().map(state).collect()
    }

    fn steering(&self) -> Vec<SteeringState> {
        let state = |(name, steering): (&SteeringName, &SteeringPolicy)| SteeringState {
            name: name.to_string(),
            owner: Owner::Netlink,
            ports: Vec::new(),
            flows: u64::try_from(steering.flows.len()).unwrap(),
            live_flows: 0,
            capacity: steering.capacity,
            cpu_queue: steering.cpu_queue,
            metadata: steering.metadata,
            unmarked: 3,
            buckets: Vec::new(),
            live_table: false,
            sent: vec![SteeringSent { to: SteeringTarget::Cpu(1), packets: 9, bytes: 900 }],
        };
        self.running().steering.iter().map(state).collect()
    }

    fn bridges(&self) -> Vec<BridgeState> {
        let member = |port: &PortName| MemberState {
            port: port.to_string(),
            owner: Owner::Netlink,
            vlans: "access 1".to_owned(),
            protected: false,
            macs: 1,
            moves: 0,
        };
        let state = |(name, bridge): (&BridgeName, &Bridge)| BridgeState {
            counts: model::BridgeCounts::default(),
            name: name.to_string(),
            id: 0,
            owner: Owner::Netlink,
            macs: 1,
            mac_limit: bridge.settings.mac_limit,
            ageing: bridge.settings.ageing,
            snooping: bridge.settings.snooping,
            groups: 0,
            hook: None,
            hook_flows: None,
            members: bridge.ports.keys().map(member).collect(),
        };
        self.running().bridges.iter().map(state).collect()
    }

    fn fdb(&self, _: &FdbFilter) -> Vec<FdbEntry> {
        let entry = |last: u8| FdbEntry {
            bridge: "br0".to_owned(),
            vlan: packet::VlanId::new(10).unwrap(),
            mac: packet::MacAddr([2, 0, 0, 0, 0, last]),
            port: "a".to_owned(),
            age_s: 3,
            is_static: false,
        };
        (0..200).map(entry).collect()
    }

    fn routers(&self) -> Vec<RouterState> {
        let interface = |(port, settings): (&PortName, &RouterPort)| InterfaceState {
            port: port.to_string(),
            owner: Owner::Netlink,
            miss: settings.miss,
            ..InterfaceState::default()
        };
        let state = |(name, router): (&RouterName, &Router)| RouterState {
            name: name.to_string(),
            owner: Owner::Netlink,
            namespace: router.settings.namespace.as_ref().map(ToString::to_string),
            routes4: u64::try_from(ROUTES).unwrap(),
            routes6: 1,
            routes_limit: router.settings.routes,
            neighbours: 2,
            neighbours_limit: router.settings.neighbours,
            in_step: true,
            events: 3,
            overruns: 4,
            resyncs: 5,
            resync_ms: 6,
            drifted: 7,
            refused: 8,
            fpm: router.settings.fpm.map(|listen| FpmState {
                listen: listen.to_string(),
                routes: 11,
                ..FpmState::default()
            }),
            punts: vec![PuntState { class: "arp".to_owned(), limit: 100, packets: 9, refused: 10 }],
            interfaces: router.ports.iter().map(interface).collect(),
            ..RouterState::default()
        };
        self.running().routers.iter().map(state).collect()
    }

    fn routes(&self, router: &str, query: &RouteQuery) -> Result<Vec<RouteEntry>, PlaneError> {
        self.has_router(router)?;
        let wanted = |route: &RouteEntry| {
            query.table.is_none_or(|table| table == route.table)
                && query.prefix.is_none_or(|prefix| covers(prefix, route.prefix))
        };
        Ok(all_routes().filter(wanted).take(query.limit).collect())
    }

    fn neighbours(&self, router: &str, limit: usize) -> Result<Vec<NeighbourEntry>, PlaneError> {
        self.has_router(router)?;
        let neighbour = |number: u32| NeighbourEntry {
            address: std::net::Ipv4Addr::from(0x0a00_0000 + number).into(),
            device: "eth1".to_owned(),
            mac: Some(packet::MacAddr([2, 0, 0, 0, 0, number.to_le_bytes()[0]])),
            permanent: number == 1,
            packets: number.into(),
            bytes: 60 * u64::from(number),
        };
        Ok((1..=150_000).map(neighbour).take(limit).collect())
    }

    fn next_hops(&self, router: &str, limit: usize) -> Result<Vec<NextHopEntry>, PlaneError> {
        self.has_router(router)?;
        let members = vec![NextHopMember { id: 1, weight: 2 }];
        let group = NextHopEntry { id: 7, group: members, buckets: Some(64), ..NextHopEntry::default() };
        let blackhole = NextHopEntry { id: 1, blackhole: true, ..NextHopEntry::default() };
        Ok([blackhole, group].into_iter().take(limit).collect())
    }

    fn caches(&self) -> CachesState {
        CachesState {
            workers: vec![CacheState::default()],
            slow_path: Some(SlowPathState::default()),
            memory: vec![MemoryState { consumer: "frames".to_owned(), bytes: 4096 }],
        }
    }

    fn workers(&self) -> Vec<WorkerState> {
        self.asking_workers.fetch_add(1, Ordering::Relaxed);
        while self.hold_workers.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.asking_workers.fetch_sub(1, Ordering::Relaxed);
        let queues = vec!["a/0".to_owned()];
        vec![WorkerState {
            id: 0,
            core: 1,
            busy: 0.5,
            sleeping: false,
            bursts: 1,
            packets: 2,
            sleeps: 3,
            handed_over: 0,
            queues,
        }]
    }

    fn stages(&self) -> Vec<StageState> {
        vec![StageState { name: "parse".to_owned(), packets: 10, ns: 100 }]
    }

    fn drops(&self) -> Vec<DropState> {
        let explanation = "The frame ends before its headers do.".to_owned();
        vec![DropState { port: "a".to_owned(), reason: "truncated".to_owned(), explanation, packets: 4 }]
    }
}

impl Plane for Memory {
    fn machine(&self) -> Machine {
        Machine { cores: 2, frames: None }
    }

    fn apply(&self, new: &Merged) -> Result<Vec<DoctorFinding>, PlaneError> {
        if self.slow.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(300));
        }
        let limit = self.fail_after.load(Ordering::Relaxed);
        let is_over = limit != 0 && self.applied.load(Ordering::Relaxed) >= limit;
        if self.fail.load(Ordering::Relaxed) || is_over {
            let error = std::io::Error::from_raw_os_error(95);
            return Err(PlaneError::failed("port.a", &error, "use another kernel"));
        }
        self.applied.fetch_add(1, Ordering::Relaxed);
        *self.running.lock().unwrap() = new.config.clone();
        let finding = "fell back".to_owned();
        Ok(vec![DoctorFinding {
            object: "port.a".to_owned(),
            severity: Finding::Advice,
            finding,
            fix: String::new(),
        }])
    }

    fn block(&self, filter: &str, request: &BlockRequest) -> Result<Blocked, PlaneError> {
        if !self.running().filters.contains_key(filter) {
            let object = format!("filter.{filter}");
            return Err(PlaneError::not_found(
                object,
                "there is no such filter",
                "look at `trivium show filters`",
            ));
        }
        let count = u64::try_from(request.prefixes.len()).unwrap();
        Ok(Blocked { changed: count, listed: if request.unblock { 0 } else { count } })
    }

    fn reload_blocklist(&self, filter: &str) -> Result<Blocked, PlaneError> {
        self.block(filter, &BlockRequest::default())
    }

    fn steering_flows(&self, steering: &str, limit: usize) -> Result<Vec<SteeringEntry>, PlaneError> {
        let running = self.running();
        let found = running.steering.get(steering);
        let found = found.ok_or_else(|| {
            PlaneError::not_found(
                format!("steering.{steering}"),
                "there is no such steering",
                "look at `trivium show steering`",
            )
        })?;
        let text = |flow: &SteeringFlow| serde_json::to_value(flow).unwrap();
        Ok(found
            .flows
            .iter()
            .take(limit)
            .map(|flow| SteeringEntry {
                vlan: flow.key.vlan.map(packet::VlanId::get),
                source: flow.key.source,
                destination: flow.key.destination,
                protocol: flow.key.protocol,
                source_port: text(flow)["source_port"].as_u64().and_then(|port| u16::try_from(port).ok()),
                destination_port: flow.key.ports.map(|ports| ports.1),
                to: flow.to,
                mark: flow.mark,
                expires_s: None,
                live: false,
                packets: 5,
                bytes: 500,
            })
            .collect())
    }

    fn change_steering_flows(
        &self,
        steering: &str,
        request: &SteeringRequest,
    ) -> Result<SteeringDone, PlaneError> {
        let flows = self.steering_flows(steering, usize::MAX)?.len();
        let changed = u64::try_from(request.flows.len()).unwrap();
        Ok(SteeringDone { changed, flows: u64::try_from(flows).unwrap() + changed })
    }

    fn steering_table(&self, steering: &str) -> Result<SteeringTable, PlaneError> {
        self.steering_flows(steering, 0)?;
        Ok(SteeringTable { buckets: vec![SteeringTarget::Kernel] })
    }

    fn set_steering_table(&self, steering: &str, _: &SteeringTable) -> Result<(), PlaneError> {
        self.steering_flows(steering, 0).map(drop)
    }

    fn hooks(&self) -> Result<Vec<HookState>, PlaneError> {
        // Three runs occur between two queries.
        let runs = 3 * u64::from(self.looks.fetch_add(1, Ordering::Relaxed));
        let program = HookProgram { id: 9, runs, run_time_ns: 10 * runs, ..HookProgram::default() };
        let state = |name: &PortName| HookState {
            port: name.to_string(),
            mode: "native".to_owned(),
            counters: [("steered".to_owned(), 7)].into(),
            program: Some(program.clone()),
            ..HookState::default()
        };
        Ok(self.running().ports.keys().map(state).collect())
    }

    fn count_runs(&self) -> Result<Box<dyn Send>, PlaneError> {
        struct Counted(Arc<AtomicU32>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.counting.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Counted(self.counting.clone())))
    }

    fn load_program(
        &self,
        port: &str,
        object: &[u8],
        program: Option<&str>,
    ) -> Result<ProgramChange, PlaneError> {
        self.port(port)?;
        let name = format!("{} of {} bytes", program.unwrap_or("the only one"), object.len());
        let program = HookProgram { name, ..HookProgram::default() };
        let now = Some(UserProgram { program, goes_on: true, ..UserProgram::default() });
        Ok(ProgramChange { port: port.to_owned(), now, before: None })
    }

    fn unload_program(&self, port: &str) -> Result<ProgramChange, PlaneError> {
        self.port(port)?;
        Ok(ProgramChange { port: port.to_owned(), now: None, before: Some("mine".to_owned()) })
    }

    fn route_why(&self, router: &str, of: Prefix) -> Result<RouteWhy, PlaneError> {
        self.has_router(router)?;
        let route = all_routes().filter(|route| covers(route.prefix, of)).max_by_key(|r| r.prefix.length());
        let chosen = vec![match &route {
            Some(route) => format!("{} is the longest", route.prefix),
            None => "no route covers it".to_owned(),
        }];
        Ok(RouteWhy { of, rule: Some("32766: from all lookup main".to_owned()), route, chosen })
    }

    fn drift(&self, router: &str) -> Result<DriftState, PlaneError> {
        self.drifting.fetch_add(1, Ordering::Relaxed);
        while self.hold_drift.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.drifting.fetch_sub(1, Ordering::Relaxed);
        self.has_router(router)?;
        let changes: Vec<String> = (0..2000).map(|number| format!("route {number}")).collect();
        Ok(DriftState { checked: 9000, drifted: 2000, changes, busy: 1 })
    }

    fn flush_fdb(&self, filter: &FdbFilter) -> Result<u64, PlaneError> {
        filter.port.as_deref().map_or(Ok(()), |port| self.port(port))?;
        Ok(200)
    }

    fn counters(&self) -> Counters {
        Counters { at_ns: 1, ..Counters::default() }
    }

    fn explain(&self, in_port: &str, frame: &[u8]) -> Result<Explanation, PlaneError> {
        let now = self.explaining.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_explaining.fetch_max(now, Ordering::Relaxed);
        while self.hold_explain.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.explaining.fetch_sub(1, Ordering::Relaxed);
        self.port(in_port)?;
        Ok(Explanation {
            in_port: in_port.to_owned(),
            packet: format!("{} bytes", frame.len()),
            steps: vec![Step { stage: "parse".to_owned(), what: "too short".to_owned() }],
            tier: Tier::Tables,
            outputs: Vec::new(),
            to_kernel: false,
            drop: Some("truncated".to_owned()),
            verdict: "dropped".to_owned(),
        })
    }

    fn trace(&self, count: u64, filter: &PacketFilter, to: Sender<TraceEvent>) -> Result<(), PlaneError> {
        filter.port.as_deref().map_or(Ok(()), |port| self.port(port))?;
        std::thread::spawn(move || {
            for number in 1..=count {
                let event = TraceEvent {
                    number,
                    at_ns: 5,
                    worker: 0,
                    in_port: "a".to_owned(),
                    packet: "p".to_owned(),
                    steps: Vec::new(),
                    verdict: "sent".to_owned(),
                };
                if to.blocking_send(event).is_err() {
                    return;
                }
            }
        });
        Ok(())
    }

    fn dump(&self, request: DumpRequest, to: Sender<CapturedFrame>) -> Result<(), PlaneError> {
        self.port(&request.port)?;
        let frame = CapturedFrame {
            at_ns: 5,
            port: request.port,
            received: request.entry,
            bytes: vec![0xaa; 60],
            original_length: 60,
            missed: 0,
            drop: None,
            output: None,
            verdict: Some(request.verdicts.join("+")),
            counter: Some("steered".to_owned()),
            rule: None,
        };
        std::thread::spawn(move || while to.blocking_send(frame.clone()).is_ok() {});
        Ok(())
    }

    fn capture(&self, request: &CaptureRequest, to: Sender<CapturedFrame>) -> Result<(), PlaneError> {
        self.port(&request.port)?;
        let frame = CapturedFrame {
            at_ns: 5,
            port: request.port.clone(),
            received: true,
            bytes: vec![0xaa; 60],
            original_length: 60,
            missed: 0,
            drop: Some("truncated".to_owned()),
            output: None,
            verdict: None,
            counter: None,
            rule: None,
        };
        // The queue of the stream is open until the client disconnects.
        std::thread::spawn(move || while to.blocking_send(frame.clone()).is_ok() {});
        Ok(())
    }

    fn samples(&self, request: SampleRequest, to: Sender<CapturedFrame>) -> Result<(), PlaneError> {
        if !self.running().filters.contains_key(request.filter.as_str()) {
            let object = format!("filter.{}", request.filter);
            return Err(PlaneError::not_found(object, "there is no such filter", "look at them"));
        }
        let frame = CapturedFrame {
            at_ns: 5,
            port: request.port.unwrap_or_else(|| "any".to_owned()),
            received: true,
            bytes: vec![0xaa; 60],
            original_length: 1000,
            missed: 3,
            drop: None,
            output: None,
            verdict: None,
            counter: None,
            rule: Some("some".to_owned()),
        };
        std::thread::spawn(move || while to.blocking_send(frame.clone()).is_ok() {});
        Ok(())
    }

    fn doctor(&self) -> Vec<DoctorFinding> {
        Vec::new()
    }

    fn rss_table(&self, port: &str) -> Result<RssTable, PlaneError> {
        self.port(port)?;
        Ok(RssTable { buckets: vec![0, 1] })
    }

    fn set_rss_table(&self, port: &str, _: &RssTable) -> Result<(), PlaneError> {
        self.port(port)
    }

    fn upgrade(&self, binary: &Path) -> Result<(), PlaneError> {
        if binary.ends_with("tac") {
            self.upgrading.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(500));
            self.upgrading.store(false, Ordering::Relaxed);
        }
        let (object, cause) = (binary.display().to_string(), "it is not a program".to_owned());
        Err(PlaneError { kind: FailureKind::Invalid, object, cause, fix: "give another".to_owned() })
    }
}

/// Directory for the files of one test. The directory is removed when this value is dropped.
pub struct Place(PathBuf);

impl Place {
    pub fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("trivium-control-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn settings(&self) -> Config {
        let mut config = Config::default();
        config.daemon.api = self.0.join("api.sock");
        config.daemon.state_dir = self.0.join("state");
        config
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Control plane of a daemon, connected to the data plane for tests ([`Memory`]).
pub struct Daemon {
    pub place: Place,
    pub plane: Arc<Memory>,
    pub store: Arc<Store>,
}

impl Daemon {
    /// Creates a daemon that does not listen on any socket.
    pub fn new(name: &str) -> Daemon {
        let place = Place::new(name);
        let plane = Arc::new(Memory::default());
        let store = Store::new(plane.clone(), &place.settings());
        Daemon { place, plane, store }
    }

    /// Creates a daemon that serves the API on its Unix socket until the end of the test.
    pub fn serving(name: &str) -> Daemon {
        let daemon = Daemon::new(name);
        let listeners = Listeners::bind(&daemon.place.settings().daemon).unwrap();
        tokio::spawn(control::serve(listeners, daemon.store.clone(), std::future::pending()));
        daemon
    }

    /// Returns the text of a configuration that contains the settings of this daemon and the objects `objects`.
    pub fn file(&self, objects: &str) -> String {
        let settings = self.place.settings().daemon;
        let (api, state) = (settings.api.display(), settings.state_dir.display());
        format!("[daemon]\napi = \"{api}\"\nstate_dir = \"{state}\"\n{objects}")
    }

    pub async fn ask(&self, method: &str, path: &str, body: &str) -> (StatusCode, String) {
        let response = self.open(method, path, body).await;
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }

    pub async fn json<T: serde::de::DeserializeOwned>(&self, method: &str, path: &str, body: &str) -> T {
        let (status, text) = self.ask(method, path, body).await;
        assert_eq!(status, StatusCode::OK, "{method} {path}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    }

    pub async fn refused(&self, method: &str, path: &str, body: &str, status: u16) -> control::ErrorBody {
        let (got, text) = self.ask(method, path, body).await;
        assert_eq!(got.as_u16(), status, "{method} {path}: {text}");
        let error: control::ErrorBody =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}: {text}"));
        assert!(!error.object.is_empty() && !error.cause.is_empty() && !error.fix.is_empty(), "{text}");
        error
    }

    /// Sends a request, and returns the response before its body is received.
    pub async fn open(&self, method: &str, path: &str, body: &str) -> Response<Incoming> {
        let stream = UnixStream::connect(self.place.settings().daemon.api).await.unwrap();
        send(stream, method, path, body, None).await.unwrap()
    }
}

pub async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    method: &str,
    path: &str,
    body: &str,
    token: Option<&str>,
) -> Result<Response<Incoming>, hyper::Error> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("host", "trivium");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    sender.send_request(request.body(Full::<Bytes>::from(body.to_owned())).unwrap()).await
}

pub const OBJECTS: &str = "[port.a]\nkind='ring'\n[port.b]\nkind='null'\n[bridge.br0.port.a]\naccess=10\n";
