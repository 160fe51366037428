//! Interface through which the control plane uses the data plane. The daemon implements the interface over
//! the engine.
//!
//! All values are types of the `model` crate. Every method may block, for example to open a device or to wait
//! for a worker. The control plane calls the methods on blocking threads, never on its event loop, and makes
//! at most one [`Plane::apply`] call at a time.

use std::path::Path;

use model::{
    BlockRequest, Blocked, BridgeState, CachesState, CapturedFrame, Counters, DoctorFinding, DriftState,
    DropState, Explanation, FdbEntry, FdbFilter, FilterState, FlowQuery, FlowRuleState, FlowTuning,
    GroupState, HookState, Machine, MegaflowState, Merged, MeterState, MulticastMember, NeighbourEntry,
    NextHopEntry, PacketFilter, PortState, Prefix, ProgramChange, RouteEntry, RouteQuery, RouteWhy,
    RouterState, RssTable, StageState, SteeringDone, SteeringEntry, SteeringRequest, SteeringState,
    SteeringTable, TraceEvent, TraceRequest, WorkerState,
};
use tokio::sync::mpsc::Sender;

/// The operations of the data plane that the control plane uses.
pub trait Plane: Send + Sync + 'static {
    /// Returns the properties of the machine against which configurations are checked.
    fn machine(&self) -> Machine;

    /// Changes the data plane so that it runs the configuration `new`. The data plane compares its running
    /// configuration with `new`, and makes all changes or none. Settings that require a restart of the daemon are only
    /// stored. Packets that arrive after the method has returned are processed by the new configuration.
    ///
    /// Returns notices for the operator, such as a port that fell back to generic mode.
    ///
    /// # Errors
    ///
    /// Returns the error of the first change that failed. Changes made before are undone, so the data plane is
    /// unchanged.
    fn apply(&self, new: &Merged) -> Result<Vec<DoctorFinding>, PlaneError>;

    /// Returns the states of all ports, sorted by name, without the owner of each port (such as the configuration file
    /// or the API). The caller adds the owners.
    fn ports(&self) -> Vec<PortState>;

    /// Returns the states of all filters, sorted by name, without the owner of each filter. The caller adds the owners.
    fn filters(&self) -> Vec<FilterState>;

    /// Adds prefixes to the block list of a filter, or removes them. Added prefixes last until the daemon stops, and an
    /// upgrade keeps them. If a removed prefix is in the file of the block list, the prefix is blocked again when the
    /// file is read again, or when a successor process takes over.
    ///
    /// # Errors
    ///
    /// Returns an error if the filter does not exist, or has no rule that uses a block list.
    fn block(&self, filter: &str, request: &BlockRequest) -> Result<Blocked, PlaneError>;

    /// Reads the block list file of a filter again. Prefixes that were added by [`Plane::block`] are kept.
    ///
    /// # Errors
    ///
    /// Returns an error if the filter or its file does not exist, or if the file is invalid. The block list is then
    /// unchanged.
    fn reload_blocklist(&self, filter: &str) -> Result<Blocked, PlaneError>;

    /// Returns the states of all steering policies, sorted by name, without the owner of each policy. The caller adds
    /// the owners.
    fn steering(&self) -> Vec<SteeringState>;

    /// Returns the exact-match flows of a steering policy with their counters, at most `limit` flows.
    ///
    /// # Errors
    ///
    /// Returns an error if the steering policy does not exist.
    fn steering_flows(&self, steering: &str, limit: usize) -> Result<Vec<SteeringEntry>, PlaneError>;

    /// Adds, changes or removes exact-match flows of a steering policy, all of them or none. An added flow exists as
    /// long as a hook (XDP program on a port) applies the policy. If the hook remains attached while no daemon runs, so
    /// does the flow. Flows that the configuration contains cannot be changed.
    ///
    /// # Errors
    ///
    /// Returns an error if:
    ///
    /// - the steering policy does not exist, or no port uses it;
    /// - a flow belongs to the configuration, or no packet can match it;
    /// - a CPU does not exist;
    /// - the table of exact-match flows is full.
    fn change_steering_flows(
        &self,
        steering: &str,
        request: &SteeringRequest,
    ) -> Result<SteeringDone, PlaneError>;

    /// Returns the target of each of the 256 hash buckets in the table of a steering policy.
    ///
    /// # Errors
    ///
    /// Returns an error if the steering policy does not exist or has no table.
    fn steering_table(&self, steering: &str) -> Result<SteeringTable, PlaneError>;

    /// Replaces the hash bucket table of a steering policy. The new table is in effect until the table in the
    /// configuration changes.
    ///
    /// # Errors
    ///
    /// Returns an error if the steering policy does not exist or has no table, if a CPU does not exist, or if the
    /// number of targets is not a power of two up to 256.
    fn set_steering_table(&self, steering: &str, table: &SteeringTable) -> Result<(), PlaneError>;

    /// Returns the states of all hooks (XDP programs on the devices of ports), sorted by port name.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel does not report the state of the hooks.
    fn hooks(&self) -> Result<Vec<HookState>, PlaneError>;

    /// Enables the kernel's statistics of the run time of BPF programs until the returned value is dropped.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel does not provide the statistics.
    fn count_runs(&self) -> Result<Box<dyn Send>, PlaneError>;

    /// Attaches a custom XDP program that runs before the XDP program of a port. The change is atomic. A previous
    /// custom program is replaced. `object` is a compiled object file. `program` is the name of the XDP program in the
    /// object file, and may be `None` if the file contains only one. The custom program stays attached when the port
    /// changes, and as long as the hook of the port exists.
    ///
    /// # Errors
    ///
    /// Returns an error if the port does not exist or has no hook, if the object file contains no program
    /// with this name, if the custom program cannot call the program of the port, or if the kernel refuses
    /// the custom program. The previous custom program then stays attached.
    fn load_program(
        &self,
        port: &str,
        object: &[u8],
        program: Option<&str>,
    ) -> Result<ProgramChange, PlaneError>;

    /// Removes the custom XDP program in front of the program of a port.
    ///
    /// # Errors
    ///
    /// Returns an error if the port does not exist, has no hook, or has no custom program.
    fn unload_program(&self, port: &str) -> Result<ProgramChange, PlaneError>;

    /// Returns the states of all bridges, sorted by name, without the owners (such as the API) of each bridge and its
    /// members. The caller adds the owners.
    fn bridges(&self) -> Vec<BridgeState>;

    /// Returns the MAC table entries that match `filter`, at most `filter.limit`.
    fn fdb(&self, filter: &FdbFilter) -> Vec<FdbEntry>;

    /// Removes the learned MAC table entries that match `filter`, and returns their number. Static entries
    /// are kept.
    ///
    /// # Errors
    ///
    /// Returns an error if the bridge or port of the filter does not exist.
    fn flush_fdb(&self, filter: &FdbFilter) -> Result<u64, PlaneError>;

    /// Returns the multicast group members and multicast router ports in the snooping table of a bridge.
    ///
    /// # Errors
    ///
    /// Returns an error if the bridge does not exist or has snooping disabled.
    fn multicast(&self, bridge: &str) -> Result<Vec<MulticastMember>, PlaneError> {
        Err(PlaneError::no_snooping(bridge))
    }

    /// Removes all entries from the snooping table of a bridge.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Plane::multicast`].
    fn flush_multicast(&self, bridge: &str) -> Result<(), PlaneError> {
        Err(PlaneError::no_snooping(bridge))
    }

    /// Returns the states of all virtual routers, sorted by name, without the owners (such as the API) of each router
    /// and its interfaces. The caller adds the owners.
    fn routers(&self) -> Vec<RouterState> {
        Vec::new()
    }

    /// Returns the routes of a router that match the query, sorted by table and prefix, at most
    /// `query.limit`.
    ///
    /// # Errors
    ///
    /// Returns an error if the router does not exist.
    fn routes(&self, router: &str, _query: &RouteQuery) -> Result<Vec<RouteEntry>, PlaneError> {
        Err(PlaneError::no_router(router))
    }

    /// Explains the route lookup for all addresses of the prefix `_of`. For a single address, the prefix length is 32
    /// (IPv4) or 128 (IPv6).
    ///
    /// # Errors
    ///
    /// Returns an error if the router does not exist.
    fn route_why(&self, router: &str, _of: Prefix) -> Result<RouteWhy, PlaneError> {
        Err(PlaneError::no_router(router))
    }

    /// Returns the neighbours of a router, sorted by device and address, at most `limit`.
    ///
    /// # Errors
    ///
    /// Returns an error if the router does not exist.
    fn neighbours(&self, router: &str, _limit: usize) -> Result<Vec<NeighbourEntry>, PlaneError> {
        Err(PlaneError::no_router(router))
    }

    /// Returns the next-hop objects of a router, sorted by number, at most `limit`.
    ///
    /// # Errors
    ///
    /// Returns an error if the router does not exist.
    fn next_hops(&self, router: &str, _limit: usize) -> Result<Vec<NextHopEntry>, PlaneError> {
        Err(PlaneError::no_router(router))
    }

    /// Compares a router's copy of the kernel's routes and neighbours with the kernel's state, repairs the differences,
    /// and returns them.
    ///
    /// # Errors
    ///
    /// Returns an error if the router does not exist, or if the kernel does not report its state.
    fn drift(&self, router: &str) -> Result<DriftState, PlaneError> {
        Err(PlaneError::no_router(router))
    }

    /// Returns the flow entries of bridges with OpenFlow that match the query, sorted by bridge, table and
    /// descending priority.
    ///
    /// # Errors
    ///
    /// Returns an error if the bridge of the query does not exist or does not use OpenFlow.
    fn flow_rules(&self, query: &FlowQuery) -> Result<Vec<FlowRuleState>, PlaneError> {
        nothing_flows(query)
    }

    /// Returns the groups of bridges with OpenFlow that match the query, sorted by bridge and group number.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Plane::flow_rules`].
    fn groups(&self, query: &FlowQuery) -> Result<Vec<GroupState>, PlaneError> {
        nothing_flows(query)
    }

    /// Returns the meters of bridges with OpenFlow that match the query, sorted by bridge and meter number.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Plane::flow_rules`].
    fn meters(&self, query: &FlowQuery) -> Result<Vec<MeterState>, PlaneError> {
        nothing_flows(query)
    }

    /// Returns the megaflows in the flow caches of the workers that match the query, in no particular order.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Plane::flow_rules`].
    fn megaflows(&self, query: &FlowQuery) -> Result<Vec<MegaflowState>, PlaneError> {
        nothing_flows(query)
    }

    /// Returns the state and the memory usage of the workers' flow caches.
    fn caches(&self) -> CachesState {
        CachesState::default()
    }

    /// Traces a flow through the flow tables of a bridge, and returns a report in the format of `ovs-appctl
    /// ofproto/trace`. No packet is sent, and no counter changes. If the request contains a packet, its
    /// source address is learned.
    ///
    /// # Errors
    ///
    /// Returns an error if the bridge does not use OpenFlow, or if the flow or the packet cannot be parsed.
    fn trace_rules(&self, request: &TraceRequest) -> Result<String, PlaneError> {
        Err(PlaneError::no_rules(request.bridge.as_deref().unwrap_or("?")))
    }

    /// Waits until all megaflows have been revalidated against the current flow tables. If `purge` is set,
    /// all megaflows are removed first.
    ///
    /// # Errors
    ///
    /// Returns an error if the wait exceeds a time limit.
    fn settle_flows(&self, _purge: bool) -> Result<(), PlaneError> {
        Ok(())
    }

    /// Changes the parameters of the flow caches. The change lasts until no bridge uses OpenFlow any more or
    /// the process ends.
    ///
    /// # Errors
    ///
    /// Returns an error if no bridge uses OpenFlow.
    fn tune_flows(&self, _tuning: FlowTuning) -> Result<(), PlaneError> {
        Err(PlaneError::not_found(
            "flows",
            "no bridge goes by OpenFlow's rules",
            "give one a table `openflow`",
        ))
    }

    /// Returns the states of all workers, sorted by worker number.
    fn workers(&self) -> Vec<WorkerState>;

    /// Returns the states of all stages of the data path, in the order in which packets pass them.
    fn stages(&self) -> Vec<StageState>;

    /// Returns the number of dropped packets for each port and drop reason. Pairs without drops are left out.
    fn drops(&self) -> Vec<DropState>;

    /// Returns the counters of the data plane for the event stream. The call is cheap enough for one call per second.
    fn counters(&self) -> Counters;

    /// Predicts how the data plane would process a frame that arrives at the port `in_port`. No packet is
    /// sent and no address is learned.
    ///
    /// # Errors
    ///
    /// Returns an error if the port does not exist.
    fn explain(&self, in_port: &str, frame: &[u8]) -> Result<Explanation, PlaneError>;

    /// Starts a trace. The trace reports of the next `count` packets that match `filter` are sent to `to`.
    /// The method returns immediately. The trace ends after `count` packets, or when `to` is closed. Reports
    /// that exceed the capacity of `to` are dropped, so workers never wait.
    ///
    /// # Errors
    ///
    /// Returns an error if the port of the filter does not exist, or if the maximum number of traces is
    /// already running.
    fn trace(&self, count: u64, filter: &PacketFilter, to: Sender<TraceEvent>) -> Result<(), PlaneError>;

    /// Starts a capture. The frames of a port are sent to `to` until `to` is closed. The method returns
    /// immediately. Frames that exceed the capacity of `to` are dropped, so workers never wait.
    ///
    /// # Errors
    ///
    /// Returns an error if the port does not exist, or if the maximum number of captures is already running.
    fn capture(&self, request: &CaptureRequest, to: Sender<CapturedFrame>) -> Result<(), PlaneError>;

    /// Starts a capture at the hook of a port. The frames are sent to `to` until `to` is closed or the hook
    /// is removed. The method returns immediately. Frames that exceed the capacity of `to` are missing in the
    /// capture, so the hook never waits.
    ///
    /// # Errors
    ///
    /// Returns an error if the port does not exist or has no hook, if a verdict does not exist, or if a
    /// capture is already running at the hook.
    fn dump(&self, request: DumpRequest, to: Sender<CapturedFrame>) -> Result<(), PlaneError>;

    /// Starts to send the frames that the rules of a filter sample into the channel `to`, until `to` is closed or the
    /// filter is removed. The method returns immediately. Samples for which `to` has no space are dropped, so the hook
    /// never waits.
    ///
    /// # Errors
    ///
    /// Returns an error if the filter does not exist, if it has no rule that samples, if no hook applies it,
    /// or if another client already reads its samples.
    fn samples(&self, request: SampleRequest, to: Sender<CapturedFrame>) -> Result<(), PlaneError>;

    /// Diagnoses ports, memory and kernel, and returns the findings with their remedies.
    fn doctor(&self) -> Vec<DoctorFinding>;

    /// Returns the indirection table of a port's software RSS.
    ///
    /// # Errors
    ///
    /// Returns an error if the port does not exist or does not use software RSS.
    fn rss_table(&self, port: &str) -> Result<RssTable, PlaneError>;

    /// Replaces the indirection table of a port's software RSS. The packets of a flow are not reordered.
    ///
    /// # Errors
    ///
    /// Returns an error if the port does not exist or does not use software RSS, if a worker does not exist,
    /// or if the length is not a power of two.
    fn set_rss_table(&self, port: &str, table: &RssTable) -> Result<(), PlaneError>;

    /// Starts the program `binary` as the successor process, and transfers all state to the successor. After the method
    /// has returned, this process is about to end.
    ///
    /// # Errors
    ///
    /// Returns an error if the successor does not start or does not take over. This process then continues.
    fn upgrade(&self, binary: &Path) -> Result<(), PlaneError>;
}

/// Returns the empty response to an OpenFlow query if no bridge uses OpenFlow. If the query names a bridge, returns an
/// error.
fn nothing_flows<T>(query: &FlowQuery) -> Result<Vec<T>, PlaneError> {
    query.bridge.as_ref().map_or(Ok(Vec::new()), |bridge| Err(PlaneError::no_rules(bridge)))
}

/// Parameters of a capture at a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureRequest {
    /// Name of the port whose frames are captured.
    pub port: String,
    /// Whether only packets are captured that arrived at the port and were dropped. The records of these
    /// packets contain the drop reasons.
    pub drops_only: bool,
    /// Maximum number of captured bytes of each frame.
    pub snap_length: u32,
    /// Filter of the captured packets. Packets that cannot be parsed are captured regardless of the filter.
    pub filter: packet::filter::Filter,
}

/// Parameters of a capture at the hook of a port (the XDP program on the port's device).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DumpRequest {
    /// Name of the port whose hook is captured.
    pub port: String,
    /// Names of the verdicts whose frames are captured. An empty list means all verdicts.
    pub verdicts: Vec<String>,
    /// Whether frames are captured before the hook's program runs.
    pub entry: bool,
    /// Whether frames are captured after the hook's program has run.
    pub exit: bool,
    /// Maximum number of captured bytes of each frame.
    pub snap_length: u32,
    /// Filter of the captured frames. Frames that cannot be parsed are captured regardless of the filter.
    pub filter: packet::filter::Filter,
}

/// Parameters of a request for the samples of a filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SampleRequest {
    /// Name of the filter whose samples are read.
    pub filter: String,
    /// Name of the port whose samples are read. `None` means all ports that apply the filter.
    pub port: Option<String>,
    /// Filter of the samples. Frames that cannot be parsed are returned regardless of the filter.
    pub packets: packet::filter::Filter,
}

/// Reason why the data plane refused a request or could not carry it out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{object}: {cause}; {fix}")]
pub struct PlaneError {
    /// Kind of the failure, which determines the HTTP status of the response.
    pub kind: FailureKind,
    /// Path of the affected object, such as `port.eth1`.
    pub object: String,
    /// Cause of the failure, with the texts of its source errors.
    pub cause: String,
    /// Remedy for the failure: what the operator can do.
    pub fix: String,
}

/// Kind of a data plane failure. Each kind has an HTTP status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// The object does not exist (404).
    NotFound,
    /// The request is invalid (422).
    Invalid,
    /// Another operation that excludes this one is in progress (409).
    Busy,
    /// The operation failed on this machine (500).
    Failed,
    /// The operation failed because of an external condition that may end without action of the operator, such as a
    /// change that a tenant made to the other end of a port's device (500). A later attempt may succeed.
    Unready,
}

impl PlaneError {
    /// Returns an error of kind `FailureKind::NotFound` for an object that does not exist.
    pub fn not_found(object: impl Into<String>, cause: impl Into<String>, fix: impl Into<String>) -> Self {
        PlaneError {
            kind: FailureKind::NotFound,
            object: object.into(),
            cause: cause.into(),
            fix: fix.into(),
        }
    }

    /// Returns an error for a virtual router that does not run.
    pub fn no_router(router: &str) -> Self {
        let fix = "look at the names with `trivium show routers`";
        PlaneError::not_found(format!("router.{router}"), "no such router runs", fix)
    }

    /// Returns an error for a bridge that does not exist, or that has snooping disabled.
    pub fn no_snooping(bridge: &str) -> Self {
        let fix = "set `snooping`, or look at the names with `trivium show bridges`";
        PlaneError::not_found(format!("bridge.{bridge}"), "no such bridge reads IGMP and MLD", fix)
    }

    /// Returns an error for a bridge that does not exist, or that does not use OpenFlow.
    pub fn no_rules(bridge: &str) -> Self {
        let fix = "give it a table `openflow`, or look at the names with `trivium show bridges`";
        PlaneError::not_found(format!("bridge.{bridge}"), "no such bridge goes by OpenFlow's rules", fix)
    }

    /// Returns an error for an operation that failed on this machine. The cause consists of `error` and its
    /// source errors.
    pub fn failed(object: impl Into<String>, error: &dyn std::error::Error, fix: impl Into<String>) -> Self {
        let mut cause = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            let text = error.to_string();
            // The text of many errors already contains the text of the source.
            if !cause.contains(&text) {
                cause = format!("{cause}: {text}");
            }
            source = error.source();
        }
        PlaneError { kind: FailureKind::Failed, object: object.into(), cause, fix: fix.into() }
    }
}
