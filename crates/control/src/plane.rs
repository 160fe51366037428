//! What the control plane asks of the data plane: the one way down, implemented by the daemon over the engine.
//!
//! All values are the model's. Every method may block (a device is opened, a worker is waited for): the control plane
//! calls them on threads of their own, never on its event loop, and at most one [`Plane::apply`] at a time.

use std::path::Path;

use model::{
    BlockRequest, Blocked, BridgeState, CachesState, CapturedFrame, Counters, DoctorFinding, DriftState,
    DropState, Explanation, FdbEntry, FdbFilter, FilterState, FlowQuery, FlowRuleState, FlowTuning,
    GroupState, HookState, Machine, MegaflowState, Merged, MeterState, MulticastMember, NeighbourEntry,
    NextHopEntry, PacketFilter, Plan, PortState, Prefix, ProgramChange, RouteEntry, RouteQuery, RouteWhy,
    RouterState, RssTable, StageState, SteerDone, SteerEntry, SteerRequest, SteerState, SteerTable,
    TraceEvent, TraceRequest, WorkerState,
};
use tokio::sync::mpsc::Sender;

/// The data plane as the control plane sees it.
pub trait Plane: Send + Sync + 'static {
    /// The machine that configurations are held against.
    fn machine(&self) -> Machine;

    /// Does `plan`, which leads to `new`, whole or not at all: after an error everything is as before. Settings that
    /// need a restart are only noted. When it returns, no packet that arrives meets the old decision.
    ///
    /// Returns what an operator should know (a port that fell back to generic mode, for example).
    ///
    /// # Errors
    ///
    /// The first step that was not possible; the steps before it have been undone.
    fn apply(&self, plan: &Plan, new: &Merged) -> Result<Vec<DoctorFinding>, PlaneError>;

    /// All ports by name. The owner in each is set by the caller.
    fn ports(&self) -> Vec<PortState>;

    /// All filters by name. The owner in each is set by the caller.
    fn filters(&self) -> Vec<FilterState>;

    /// Puts prefixes into a filter's block list, or takes them out. Blocks last as long as the process and its successors;
    /// what the list's file names and is taken out comes back when the file is read anew, or by a successor.
    ///
    /// # Errors
    ///
    /// If the filter does not exist, or has no rule that asks for a block list.
    fn block(&self, filter: &str, request: &BlockRequest) -> Result<Blocked, PlaneError>;

    /// Reads the file of a filter's block list anew; what was blocked besides stays.
    ///
    /// # Errors
    ///
    /// If the filter or its file does not exist, or the file is wrong; the list is as before then.
    fn reload_blocklist(&self, filter: &str) -> Result<Blocked, PlaneError>;

    /// All steerings by name. The owner in each is set by the caller.
    fn steers(&self) -> Vec<SteerState>;

    /// A steering's exact flows in their order, at most `limit` of them.
    ///
    /// # Errors
    ///
    /// If the steering does not exist.
    fn steer_flows(&self, steer: &str, limit: usize) -> Result<Vec<SteerEntry>, PlaneError>;

    /// Adds exact flows to a steering, changes where they go, or takes them out: all of them or none. They last as long as a
    /// hook has the steering, through an end of the process where the hook outlives that. The configuration's flows are its
    /// own.
    ///
    /// # Errors
    ///
    /// If the steering does not exist or no port has it, a flow is the configuration's or can be nobody's, a CPU does not
    /// exist, or there is no room.
    fn steer(&self, steer: &str, request: &SteerRequest) -> Result<SteerDone, PlaneError>;

    /// Where each of the 256 buckets of a steering's table goes.
    ///
    /// # Errors
    ///
    /// If the steering does not exist or has no table.
    fn steer_table(&self, steer: &str) -> Result<SteerTable, PlaneError>;

    /// Replaces a steering's table until the configuration's changes.
    ///
    /// # Errors
    ///
    /// If the steering does not exist or has no table, a CPU does not exist, or the length is no power of two up to 256.
    fn set_steer_table(&self, steer: &str, table: &SteerTable) -> Result<(), PlaneError>;

    /// The hooks of all ports that have one, by the port's name.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    fn hooks(&self) -> Result<Vec<HookState>, PlaneError>;

    /// Has the kernel count runs of programs, and their time, until the value is dropped.
    ///
    /// # Errors
    ///
    /// If the kernel does not count them.
    fn count_runs(&self) -> Result<Box<dyn Send>, PlaneError>;

    /// Puts a user's own program in front of a port's, in one step, in the place of another that stands there: the one of this
    /// name of a compiled object, or the only one for XDP. It stays when the port is changed, and outlives the daemon where the
    /// port's hook does.
    ///
    /// # Errors
    ///
    /// If the port does not exist or has no hook, the object has no such program, that could not go on with the port's, or the
    /// kernel refuses it; what stood there goes on then.
    fn load_program(
        &self,
        port: &str,
        object: &[u8],
        program: Option<&str>,
    ) -> Result<ProgramChange, PlaneError>;

    /// Takes the user's program away that stands in front of a port's.
    ///
    /// # Errors
    ///
    /// If the port does not exist or has no hook, or none stands there.
    fn unload_program(&self, port: &str) -> Result<ProgramChange, PlaneError>;

    /// All bridges by name. The owners in each are set by the caller.
    fn bridges(&self) -> Vec<BridgeState>;

    /// Addresses that match, at most `filter.limit` of them.
    fn fdb(&self, filter: &FdbFilter) -> Vec<FdbEntry>;

    /// Forgets learnt addresses that match, and returns how many there were. Static ones stay.
    ///
    /// # Errors
    ///
    /// If the bridge or port of the filter does not exist.
    fn flush_fdb(&self, filter: &FdbFilter) -> Result<u64, PlaneError>;

    /// Ports that want multicast groups of a bridge, or lead to multicast routers, as snooping knows them.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist or does not snoop.
    fn multicast(&self, bridge: &str) -> Result<Vec<MulticastMember>, PlaneError> {
        Err(PlaneError::no_snooping(bridge))
    }

    /// Forgets what snooping knows of a bridge.
    ///
    /// # Errors
    ///
    /// As [`Plane::multicast`].
    fn flush_multicast(&self, bridge: &str) -> Result<(), PlaneError> {
        Err(PlaneError::no_snooping(bridge))
    }

    /// All virtual routers by name. The owners in each are set by the caller.
    fn routers(&self) -> Vec<RouterState> {
        Vec::new()
    }

    /// A router's routes that match, in the order of tables and prefixes, at most `query.limit` of them.
    ///
    /// # Errors
    ///
    /// If the router does not exist.
    fn routes(&self, router: &str, _query: &RouteQuery) -> Result<Vec<RouteEntry>, PlaneError> {
        Err(PlaneError::no_router(router))
    }

    /// Where packets to all of a prefix (an address is one of full length) go, and why.
    ///
    /// # Errors
    ///
    /// If the router does not exist.
    fn route_why(&self, router: &str, _of: Prefix) -> Result<RouteWhy, PlaneError> {
        Err(PlaneError::no_router(router))
    }

    /// A router's neighbours by device and address, at most `limit` of them.
    ///
    /// # Errors
    ///
    /// If the router does not exist.
    fn neighbours(&self, router: &str, _limit: usize) -> Result<Vec<NeighbourEntry>, PlaneError> {
        Err(PlaneError::no_router(router))
    }

    /// A router's next-hop objects by number, at most `limit` of them.
    ///
    /// # Errors
    ///
    /// If the router does not exist.
    fn next_hops(&self, router: &str, _limit: usize) -> Result<Vec<NextHopEntry>, PlaneError> {
        Err(PlaneError::no_router(router))
    }

    /// Compares what a router holds with the kernel's state, and repairs what differs.
    ///
    /// # Errors
    ///
    /// If the router does not exist, or the kernel does not tell.
    fn drift(&self, router: &str) -> Result<DriftState, PlaneError> {
        Err(PlaneError::no_router(router))
    }

    /// Rules of bridges that go by OpenFlow, by bridge, table and falling priority.
    ///
    /// # Errors
    ///
    /// If the query's bridge does not exist or has no rules.
    fn flow_rules(&self, query: &FlowQuery) -> Result<Vec<FlowRuleState>, PlaneError> {
        nothing_flows(query)
    }

    /// Groups by bridge and number.
    ///
    /// # Errors
    ///
    /// As [`Plane::flow_rules`].
    fn groups(&self, query: &FlowQuery) -> Result<Vec<GroupState>, PlaneError> {
        nothing_flows(query)
    }

    /// Meters by bridge and number.
    ///
    /// # Errors
    ///
    /// As [`Plane::flow_rules`].
    fn meters(&self, query: &FlowQuery) -> Result<Vec<MeterState>, PlaneError> {
        nothing_flows(query)
    }

    /// Flows that workers have cached, in no particular order.
    ///
    /// # Errors
    ///
    /// As [`Plane::flow_rules`].
    fn megaflows(&self, query: &FlowQuery) -> Result<Vec<MegaflowState>, PlaneError> {
        nothing_flows(query)
    }

    /// What is cached of the tables, and what that takes.
    fn caches(&self) -> CachesState {
        CachesState::default()
    }

    /// What the tables of a bridge do with a flow, told as `ovs-appctl ofproto/trace` tells it. Nothing is sent or counted, and nothing learnt
    /// but the station of a packet that is given.
    ///
    /// # Errors
    ///
    /// If the bridge has no rules, or flow or packet are not understood.
    fn trace_rules(&self, request: &TraceRequest) -> Result<String, PlaneError> {
        Err(PlaneError::no_rules(request.bridge.as_deref().unwrap_or("?")))
    }

    /// Returns once no cached flow is older than the tables; with `purge`, all are thrown away first.
    ///
    /// # Errors
    ///
    /// If that takes too long.
    fn settle_flows(&self, _purge: bool) -> Result<(), PlaneError> {
        Ok(())
    }

    /// Changes how flows are cached, until no bridge goes by rules any more or the process ends.
    ///
    /// # Errors
    ///
    /// If no bridge goes by rules.
    fn tune_flows(&self, _tuning: FlowTuning) -> Result<(), PlaneError> {
        Err(PlaneError::not_found(
            "flows",
            "no bridge goes by OpenFlow's rules",
            "give one a table `openflow`",
        ))
    }

    /// All workers by number.
    fn workers(&self) -> Vec<WorkerState>;

    /// All stages in the order of a packet's way.
    fn stages(&self) -> Vec<StageState>;

    /// Dropped packets by port and reason, zeros left out.
    fn drops(&self) -> Vec<DropState>;

    /// The counters that live views show; cheap enough for once a second.
    fn counters(&self) -> Counters;

    /// What would happen to this frame, with nothing sent and nothing learnt.
    ///
    /// # Errors
    ///
    /// If the port does not exist.
    fn explain(&self, in_port: &str, frame: &[u8]) -> Result<Explanation, PlaneError>;

    /// Sends the next `count` packets that match to `to`, and returns at once. It ends when they are sent or `to` is
    /// closed. What `to` cannot take is lost; a worker never waits for it.
    ///
    /// # Errors
    ///
    /// If the filter's port does not exist, or as many traces as possible run already.
    fn trace(&self, count: u64, filter: &PacketFilter, to: Sender<TraceEvent>) -> Result<(), PlaneError>;

    /// Sends what a port carries to `to` until that is closed, and returns at once. What `to` cannot take is lost; a
    /// worker never waits for it.
    ///
    /// # Errors
    ///
    /// If the port does not exist, or as many captures as possible run already.
    fn capture(&self, request: &CaptureRequest, to: Sender<CapturedFrame>) -> Result<(), PlaneError>;

    /// Sends what meets a port's hook to `to` until that is closed or the hook has gone, and returns at once. What `to`
    /// cannot take is lost; no frame waits for it.
    ///
    /// # Errors
    ///
    /// If the port does not exist or has no hook, a verdict does not exist, or somebody captures there already.
    fn dump(&self, request: DumpRequest, to: Sender<CapturedFrame>) -> Result<(), PlaneError>;

    /// Sends what the rules of a filter sample from now on to `to` until that is closed or the filter has gone, and returns at
    /// once. What `to` cannot take is lost; no frame waits for it.
    ///
    /// # Errors
    ///
    /// If the filter does not exist, none of its rules samples, no port's hook has it, or somebody follows it already.
    fn samples(&self, request: SampleRequest, to: Sender<CapturedFrame>) -> Result<(), PlaneError>;

    /// What is wrong with ports, memory and kernel, and how to mend it.
    fn doctor(&self) -> Vec<DoctorFinding>;

    /// A port's table of software RSS.
    ///
    /// # Errors
    ///
    /// If the port does not exist or is not spread.
    fn rss_table(&self, port: &str) -> Result<RssTable, PlaneError>;

    /// Replaces a port's table of software RSS; no flow is reordered.
    ///
    /// # Errors
    ///
    /// If the port does not exist or is not spread, a worker does not exist, or the length is not a power of two.
    fn set_rss_table(&self, port: &str, table: &RssTable) -> Result<(), PlaneError>;

    /// Starts `binary` and hands everything over to it. When it returns, the process is about to end.
    ///
    /// # Errors
    ///
    /// If the successor does not start or does not take over; this process then goes on.
    fn upgrade(&self, binary: &Path) -> Result<(), PlaneError>;
}

/// Where no bridge goes by rules.
fn nothing_flows<T>(query: &FlowQuery) -> Result<Vec<T>, PlaneError> {
    query.bridge.as_ref().map_or(Ok(Vec::new()), |bridge| Err(PlaneError::no_rules(bridge)))
}

/// What is captured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureRequest {
    /// The port.
    pub port: String,
    /// Whether only packets that came in here and were dropped are wanted, with their reasons.
    pub drops_only: bool,
    /// Bytes of each frame at most.
    pub snap_length: u32,
    /// Only packets that match; what cannot be parsed is shown whatever the filter.
    pub filter: packet::filter::Filter,
}

/// What is captured at a hook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DumpRequest {
    /// The port.
    pub port: String,
    /// Verdicts that are wanted, by name; all if there are none.
    pub verdicts: Vec<String>,
    /// Whether frames are wanted as they come.
    pub entry: bool,
    /// Whether frames are wanted as the program leaves them.
    pub exit: bool,
    /// Bytes of each frame at most.
    pub snap_length: u32,
    /// Only frames that match; what cannot be parsed is shown whatever the filter.
    pub filter: packet::filter::Filter,
}

/// Which samples are followed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SampleRequest {
    /// The filter.
    pub filter: String,
    /// Only frames of this port; of all that have the filter if absent.
    pub port: Option<String>,
    /// Only frames that match; what cannot be parsed is shown whatever this says.
    pub packets: packet::filter::Filter,
}

/// Why the data plane did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{object}: {cause}; {fix}")]
pub struct PlaneError {
    /// What kind of failure it is.
    pub kind: FailureKind,
    /// The object that is concerned, such as `port.eth1`.
    pub object: String,
    /// What is wrong, with its sources.
    pub cause: String,
    /// What to do about it.
    pub fix: String,
}

/// Kinds of failures; each is one HTTP status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// The object does not exist (404).
    NotFound,
    /// The request cannot be done by anyone (422).
    Invalid,
    /// Something else is under way (409).
    Busy,
    /// The machine refused (500).
    Failed,
    /// The machine refused because of something outside the daemon that may go away by itself, such as what a tenant has done to the far end
    /// of its device (500).
    Unready,
}

impl PlaneError {
    /// An object that does not exist.
    pub fn not_found(object: impl Into<String>, cause: impl Into<String>, fix: impl Into<String>) -> Self {
        PlaneError {
            kind: FailureKind::NotFound,
            object: object.into(),
            cause: cause.into(),
            fix: fix.into(),
        }
    }

    /// A virtual router that does not run.
    pub fn no_router(router: &str) -> Self {
        let fix = "look at the names with `trivium show routers`";
        PlaneError::not_found(format!("router.{router}"), "no such router runs", fix)
    }

    /// A bridge that does not exist, or does not read IGMP and MLD.
    pub fn no_snooping(bridge: &str) -> Self {
        let fix = "set `snooping`, or look at the names with `trivium show bridges`";
        PlaneError::not_found(format!("bridge.{bridge}"), "no such bridge reads IGMP and MLD", fix)
    }

    /// A bridge that does not exist, or does not go by OpenFlow's rules.
    pub fn no_rules(bridge: &str) -> Self {
        let fix = "give it a table `openflow`, or look at the names with `trivium show bridges`";
        PlaneError::not_found(format!("bridge.{bridge}"), "no such bridge goes by OpenFlow's rules", fix)
    }

    /// Something that the machine refused, with everything that `error` says about its sources.
    pub fn failed(object: impl Into<String>, error: &dyn std::error::Error, fix: impl Into<String>) -> Self {
        let mut cause = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            let text = error.to_string();
            // Many errors repeat their source in their own text.
            if !cause.contains(&text) {
                cause = format!("{cause}: {text}");
            }
            source = error.source();
        }
        PlaneError { kind: FailureKind::Failed, object: object.into(), cause, fix: fix.into() }
    }
}
