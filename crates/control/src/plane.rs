//! Interface through which the control plane uses the data plane. The daemon's implementation of the interface uses the
//! packet engine.
//!
//! All values are types of the `model` crate. Every method may block, for example to open a device or to wait for a
//! worker. The control plane calls the methods on blocking threads, never on its event loop, and makes at most one
//! [`Plane::apply`] call at a time.

use std::path::Path;

use model::{
    BlockRequest, Blocked, CapturedFrame, Counters, DoctorFinding, DriftState, Explanation, FdbFilter,
    FlowTuning, HookState, Machine, Merged, MulticastMember, PacketFilter, Prefix, ProgramChange, RouteWhy,
    RssTable, SteeringDone, SteeringEntry, SteeringRequest, SteeringTable, TraceEvent, TraceRequest,
};
use tokio::sync::mpsc::Sender;

use crate::lists::Lists;
use crate::plane_error::PlaneError;

/// The operations of the data plane that the control plane uses. The operations that return lists of state are in
/// [`Lists`].
pub trait Plane: Lists {
    /// Returns the properties of the machine (such as its CPUs), with which configurations are checked.
    fn machine(&self) -> Machine;

    /// Changes the data plane so that it runs the configuration `new`. The data plane compares its running
    /// configuration with `new`, and makes all changes or none. Settings that require a restart of the daemon are only
    /// stored. Packets that arrive after the method has returned are processed according to the new configuration.
    ///
    /// Returns notices for the operator, such as a port that fell back to generic mode.
    ///
    /// # Errors
    ///
    /// Returns the error of the first change that failed. Changes made before are undone, so the data plane is
    /// unchanged.
    fn apply(&self, new: &Merged) -> Result<Vec<DoctorFinding>, PlaneError>;

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

    /// Returns the exact-match flows of a steering policy with their counters, at most `limit` flows.
    ///
    /// # Errors
    ///
    /// Returns an error if the steering policy does not exist.
    fn steering_flows(&self, steering: &str, limit: usize) -> Result<Vec<SteeringEntry>, PlaneError>;

    /// Adds, changes or removes exact-match flows of a steering policy, all of them or none. An added flow exists as
    /// long as a hook (XDP program on a port) applies the policy, even if no daemon runs while the hook remains
    /// attached. Flows that the configuration contains cannot be changed.
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
    /// object file, and may be `None` if the file contains only one. The custom program stays attached as long as the
    /// port's hook exists, even if the settings of the port change.
    ///
    /// # Errors
    ///
    /// Returns an error if the port does not exist or has no hook, if the object file contains no program with this
    /// name, if the custom program cannot call the program of the port, or if the kernel refuses the custom program.
    /// The previous custom program then stays attached.
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

    /// Explains the route lookup for all addresses of a prefix. For a single address, the prefix has full
    /// length.
    ///
    /// # Errors
    ///
    /// Returns an error if the router does not exist.
    fn route_why(&self, router: &str, _of: Prefix) -> Result<RouteWhy, PlaneError> {
        Err(PlaneError::no_router(router))
    }

    /// Compares the state of a router with the kernel's state, repairs the differences, and returns them.
    ///
    /// # Errors
    ///
    /// Returns an error if the router does not exist, or if the kernel does not report its state.
    fn drift(&self, router: &str) -> Result<DriftState, PlaneError> {
        Err(PlaneError::no_router(router))
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

    /// Changes the parameters of the flow caches. The change lasts until the process ends, or until no bridge uses
    /// OpenFlow.
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

    /// Returns the counters of the data plane for the event stream. The function takes so little time that it can be
    /// called once per second.
    fn counters(&self) -> Counters;

    /// Predicts how the data plane would process a frame that arrives on the port `in_port`. No packet is sent and no
    /// address is learned.
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

    /// Starts a capture in the hook of a port. The frames are sent to `to` until `to` is closed or the hook is removed.
    /// The method returns immediately. Frames that exceed the capacity of `to` are missing in the capture, so the hook
    /// never waits.
    ///
    /// # Errors
    ///
    /// Returns an error if the port does not exist or has no hook, if the request names an unknown verdict, or if a
    /// capture is already running in the hook.
    fn dump(&self, request: DumpRequest, to: Sender<CapturedFrame>) -> Result<(), PlaneError>;

    /// Starts the delivery of a filter's samples. The frames that the rules of the filter sample are sent to `to` until
    /// `to` is closed or the filter is removed. The method returns immediately. Samples for which `to` has no space are
    /// dropped, so the hook never waits.
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

/// Parameters of a capture on a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureRequest {
    /// Name of the port whose frames are captured.
    pub port: String,
    /// Whether the capture contains only packets that arrived on the port and were dropped. The records of these
    /// packets contain the drop reasons.
    pub drops_only: bool,
    /// Maximum number of captured bytes of each frame.
    pub snap_length: u32,
    /// Filter that packets must match to be captured. Packets that cannot be parsed are always captured.
    pub filter: packet::filter::Filter,
}

/// Parameters of a capture in the hook of a port (the XDP program on the port's device).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DumpRequest {
    /// Name of the port at whose hook frames are captured.
    pub port: String,
    /// Names of the verdicts whose frames are captured. An empty list means all verdicts.
    pub verdicts: Vec<String>,
    /// Whether frames are captured before the hook's program runs.
    pub entry: bool,
    /// Whether frames are captured after the hook's program has run.
    pub exit: bool,
    /// Maximum number of captured bytes of each frame.
    pub snap_length: u32,
    /// Filter that frames must match to be captured. Frames that cannot be parsed are always captured.
    pub filter: packet::filter::Filter,
}

/// Parameters of a request for the samples of a filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SampleRequest {
    /// Name of the filter whose samples are read.
    pub filter: String,
    /// Name of the port whose samples are read. `None` means all ports that apply the filter.
    pub port: Option<String>,
    /// Filter that sampled frames must match to be returned. Frames that cannot be parsed are always returned.
    pub packets: packet::filter::Filter,
}
