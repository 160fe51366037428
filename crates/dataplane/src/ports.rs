//! Running ports. Each queue of a running port is owned by one worker, and the port is part of the configuration
//! snapshot that the workers use.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::PlaneError;
use engine::inspect::QueueView;
use engine::state::RSS_BUCKETS;
use engine::{Engine, EngineError, Function, IngressStage, PortView};
use model::{PortKind, PortName};
use packet::{PortId, QueueId, WorkerId};
use port::veth::EndAddresses;
use port::{Queue, QueueCounters, QueueStatus};
use xdp::user::UserProgram;
use xdp::{Attached, IngressGuard};

use super::device::{Device, object};
use super::opened::{Footprint, Opened};
use super::pins::Claim;
use super::port_spec::PortSpec;

/// Software RSS table of a port: for each bucket of the flow hash, the worker that processes its flows.
pub type RssBuckets = Arc<[WorkerId; RSS_BUCKETS]>;

/// A port that runs, or that waits for its device to appear again.
pub struct Running {
    /// Number by which the data path identifies the port.
    pub id: PortId,
    /// Settings from the configuration with which the port was opened.
    pub wanted: PortSpec,
    /// Device of the port, if it has one.
    pub device: Option<Device>,
    /// Hook (XDP program) of the port, if it has one.
    pub hook: Option<Attached>,
    /// Custom XDP program of the port (loaded by a user), kept for the next hook while the port has no hook.
    pub user: Option<UserProgram>,
    /// Lock on the hook's pin directory, if the hook outlives this process. The lock shows other
    /// processes that the hook is in use.
    pub claim: Option<Claim>,
    /// Queues of the port, each with the worker that owns it.
    pub queues: Vec<(QueueId, WorkerId)>,
    /// Status of each queue, in the order of `queues`.
    pub statuses: Vec<QueueStatus>,
    /// Number of packets that the kernel dropped before they reached the port's queues. Drops at AF_XDP sockets are not
    /// included: the numbers of these drops are read directly from the kernel when they are needed.
    pub missed: u64,
    /// Duplicated file descriptors of the port's AF_XDP sockets, with the queue indices of the
    /// sockets. They are needed to fill the hook's XSKMAP and to read the sockets' counters from
    /// the kernel. The descriptors are closed before the queues are closed.
    pub sockets: Vec<(QueueId, OwnedFd)>,
    /// Changes that opening the port has made on the machine (created device, changed settings).
    pub footprint: Footprint,
    /// Whether the port completes the transport checksums of packets whose senders left them to checksum offload.
    pub complete_checksums: bool,
    /// MTU of the port: size in bytes of the largest layer-3 packet.
    pub mtu: u32,
    /// Software RSS table of the port, if the port uses software RSS.
    pub rss_table: Option<RssBuckets>,
    /// Ingress stage with which workers apply the port's filter, if the port's kind has no hook.
    pub own: Option<Arc<dyn IngressStage>>,
    /// Description of the port's current fault. `None` if the port works.
    pub trouble: Option<String>,
    /// Earliest time of the next attempt to open the port. `None` if the last attempt succeeded.
    pub not_before: Option<Instant>,
    /// Number of consecutive failed attempts to open the port again.
    pub refusals: u32,
    /// Time when the port was last opened again. `None` if the port was never opened again.
    pub reopened: Option<Instant>,
    /// Whether the hook was taken over from an earlier daemon process.
    pub adopted: bool,
    /// Guard of the port's device: a program that drops all frames that the device passes to the kernel. The guard is
    /// attached while the port has no hook with its filter and waits to be opened again.
    pub guard: Option<IngressGuard>,
    /// Number of times that the daemon has attached the hook again because another program had detached it.
    pub hooks_lost: u64,
    /// Last attempt to set the device of an internal port to the lowest MTU of the bridge: the MTU
    /// in bytes, and whether the device accepted the MTU. `None` if the MTU does not depend on the
    /// bridge or was not set yet.
    pub followed_mtu: Option<(u32, bool)>,
}

/// A port's queue, with its worker, port number and queue index. The engine takes and returns
/// queues in this form.
pub type Returned = (WorkerId, PortId, QueueId, Box<dyn Queue>);

/// Running ports, indexed by name.
pub type Ports = BTreeMap<PortName, Running>;

/// Converts an error of the engine into an API error about a port.
pub fn engine_failed(name: &PortName, error: &EngineError) -> PlaneError {
    PlaneError::failed(object(name), error, "")
}

/// Returns the error for a port that does not exist.
pub fn no_such_port(name: &str) -> PlaneError {
    PlaneError::not_found(
        format!("port.{name}"),
        "there is no such port",
        "see the names with `trivium show ports`",
    )
}

impl Running {
    /// Assigns the queues of an open port to workers. No packets flow before the next
    /// [`publish`](super::publish::publish).
    ///
    /// # Errors
    /// Returns an error if a worker does not answer. The port is then closed again, and `user` gets the custom program
    /// of the port's hook.
    pub fn install(
        engine: &Engine,
        name: &PortName,
        id: PortId,
        wanted: PortSpec,
        opened: Opened,
        user: &mut Option<UserProgram>,
    ) -> Result<Running, PlaneError> {
        let workers = workers(&wanted, engine.workers());
        let (mut running, queues) = Self::assemble(id, wanted, opened, &workers);
        running.rss_table = running.wanted.port.software_rss.then(|| even_rss_table(engine.workers()));
        let mut queues = queues.into_iter();
        for (worker, port, queue_id, queue) in queues.by_ref() {
            if let Err(error) = engine.add_queue(worker, port, queue_id, queue) {
                running.close(engine);
                *user = running.user.take();
                let mut pool = engine.pool();
                queues.for_each(|(_, _, _, queue)| queue.close(&mut pool));
                return Err(engine_failed(name, &error));
            }
        }
        Ok(running)
    }

    /// Creates a running port. The port's queues are assigned to the workers in `workers` by round-robin.
    pub fn assemble(
        id: PortId,
        wanted: PortSpec,
        opened: Opened,
        workers: &[WorkerId],
    ) -> (Running, Vec<Returned>) {
        let assign = |((queue_id, queue), worker): ((QueueId, _), &WorkerId)| (*worker, id, queue_id, queue);
        let queues: Vec<Returned> =
            opened.queues.into_iter().zip(workers.iter().cycle()).map(assign).collect();
        let running = Running {
            id,
            wanted,
            device: opened.device,
            claim: opened.claim.or_else(|| opened.hook.as_ref().and_then(Claim::on)),
            hook: opened.hook,
            user: None,
            queues: queues.iter().map(|(worker, _, queue, _)| (*queue, *worker)).collect(),
            statuses: opened.statuses,
            missed: 0,
            sockets: opened.sockets,
            footprint: opened.footprint,
            complete_checksums: opened.complete_checksums,
            mtu: opened.max_mtu,
            rss_table: None,
            own: opened.own,
            trouble: None,
            not_before: None,
            refusals: 0,
            reopened: None,
            adopted: opened.adopted,
            guard: None,
            hooks_lost: 0,
            followed_mtu: None,
        };
        (running, queues)
    }

    /// Creates a port without device and queues, which cannot be opened now for the reason `trouble`. The daemon tries
    /// to open it again when its device appears.
    pub fn waiting(id: PortId, wanted: PortSpec, trouble: String) -> Running {
        let mtu = wanted.port.mtu.map_or(1500, |mtu| u32::from(mtu.get()));
        Running {
            id,
            wanted,
            device: None,
            hook: None,
            user: None,
            claim: None,
            queues: Vec::new(),
            statuses: Vec::new(),
            missed: 0,
            sockets: Vec::new(),
            footprint: Footprint::default(),
            complete_checksums: false,
            mtu,
            rss_table: None,
            own: None,
            trouble: Some(trouble),
            not_before: None,
            refusals: 0,
            reopened: None,
            adopted: false,
            guard: None,
            hooks_lost: 0,
            followed_mtu: None,
        }
    }

    /// Returns the Ethernet addresses of a device that the daemon created. A device that must be created again gets
    /// these addresses.
    pub fn ends(&self) -> EndAddresses {
        let EndAddresses { near, far } = self.footprint.ends;
        let now = self.device.as_ref().and_then(|device| device.mac);
        EndAddresses { near: near.map(|near| now.unwrap_or(near)), far }
    }

    /// Records a failed attempt to open the port again. The next attempt is allowed after the time `least`, which
    /// doubles with each failure, up to `most`.
    pub fn refused(&mut self, least: Duration, most: Duration) {
        let wait = least.saturating_mul(1 << self.refusals.min(16)).min(most);
        self.not_before = Some(Instant::now() + wait);
        self.refusals += 1;
    }

    /// Returns whether another attempt to open the port is allowed now.
    pub fn may_be_tried(&self) -> bool {
        self.not_before.is_none_or(|time| Instant::now() >= time)
    }

    /// Takes the port's queues from the workers and closes the queues. The hook stays attached. The caller must
    /// have published a snapshot without the port, so that workers send no more packets to the port.
    pub fn release_queues(&mut self, engine: &Engine) {
        self.queues.clear();
        // A socket is closed with its last descriptor, and the kernel returns the frames only then.
        self.sockets.clear();
        // A worker that does not answer keeps its queue. The watchdog then restarts the process.
        let Ok(queues) = engine.remove_queues(self.id) else { return };
        let mut pool = engine.pool();
        for (_, _, queue) in queues {
            queue.close(&mut pool);
        }
    }

    /// Closes the port's queues, its hook and its pin. A custom program is kept for the port's next hook.
    pub fn close(&mut self, engine: &Engine) {
        self.release_queues(engine);
        if let Some(hook) = self.hook.take() {
            let (user, detached) = hook.detach_from_user();
            self.user = user.or(self.user.take());
            if let Err(error) = detached {
                tracing::warn!(%error, "a hook could not be taken off");
            }
        }
        self.claim = None;
    }

    /// Moves the port's queues to the workers that the current configuration assigns to them. No packet is dropped.
    ///
    /// # Errors
    /// Returns an error if a worker does not answer. The queues then stay with their workers.
    pub fn rehome(&mut self, engine: &Engine) -> Result<(), EngineError> {
        let workers = workers(&self.wanted, engine.workers());
        let queues = self.queues.iter().map(|(queue, _)| *queue);
        let homes: Vec<(QueueId, WorkerId)> = queues.zip(workers.iter().copied().cycle()).collect();
        engine.move_queues(self.id, &homes)?;
        self.queues = homes;
        Ok(())
    }

    /// Stores the status of the port's queues, as the workers report it, and logs new problems.
    pub fn inspected(&mut self, name: &PortName, views: &[QueueView]) {
        let own: Vec<&QueueView> = views.iter().filter(|view| view.port == self.id).collect();
        if own.len() != self.queues.len() {
            return;
        }
        let statuses: Vec<QueueStatus> = own.iter().map(|view| view.status.clone()).collect();
        let known: Vec<&String> = self.statuses.iter().flat_map(|status| &status.reasons).collect();
        for reason in
            statuses.iter().flat_map(|status| &status.reasons).filter(|reason| !known.contains(reason))
        {
            tracing::warn!(port = %name, "{reason}");
        }
        self.statuses = statuses;
        if self.sockets.is_empty() {
            let lost = |counters: QueueCounters| {
                counters.rx_ring_full + counters.rx_fill_empty + counters.rx_invalid
            };
            self.missed = own.iter().map(|view| lost(view.counters)).sum();
        }
    }

    /// Returns whether the port can receive and transmit packets.
    pub fn is_up(&self) -> bool {
        self.wanted.port.admin
            && self.trouble.is_none()
            && !self.queues.is_empty()
            && self.device.as_ref().is_none_or(|device| device.running)
    }

    /// Returns whether the port's kind has a device and this device is missing or has no carrier.
    pub fn lacks_link(&self) -> bool {
        self.wanted.port.kind.device().is_some() && self.device.as_ref().is_none_or(|device| !device.running)
    }

    /// Returns the port as it appears in the configuration snapshot of the workers.
    pub fn view(&self, function: Function) -> PortView {
        let waits_for_link =
            self.lacks_link() && self.wanted.port.admin && self.trouble.is_none() && !self.queues.is_empty();
        let tx_owner = self.queues.first().map_or(WorkerId(0), |(_, worker)| *worker);
        PortView {
            up: self.is_up(),
            max_frame: self.mtu.saturating_add(14),
            rss_table: self.rss_table.clone(),
            own: self.own.clone(),
            carrier: waits_for_link.then(Arc::default),
            complete_checksums: self.complete_checksums,
            ..PortView::new(function, tx_owner)
        }
    }
}

/// Sets a new MTU on the queues of a port. Each worker changes its queues between two bursts of packets, so the port
/// stays in operation.
pub fn resize_queues(running: &Running, engine: &Engine, mtu: u32) {
    // The watchdog restarts the process if a worker does not answer.
    let _ = engine.change_queues(running.id, move |queue| queue.set_mtu(mtu));
}

/// Returns the name of the port at the other end of a patch port. Returns `None` for other kinds of ports.
pub fn peer_of(running: &Running) -> Option<&PortName> {
    match &running.wanted.port.kind {
        PortKind::Patch(patch) => Some(&patch.peer),
        _ => None,
    }
}

/// Connects each patch port to its peer port. Patch ports whose peer does not exist are down until the peer
/// appears.
pub fn join(ports: &mut Ports) {
    let lacks = |name: &PortName, running: &Running| {
        let peer = peer_of(running)?;
        let why = match ports.get(peer).map(|other| (peer_of(other), other)) {
            None => format!("its peer {peer} is not there"),
            Some((None, _)) => format!("its peer {peer} is no patch port"),
            Some((Some(back), _)) if back != name => format!("its peer {peer} is joined with {back}"),
            Some(_) => return Some((name.clone(), None)),
        };
        Some((name.clone(), Some(why)))
    };
    let found: Vec<_> = ports.iter().filter_map(|(name, running)| lacks(name, running)).collect();
    for (name, lack) in found {
        let Some(running) = ports.get_mut(&name) else { continue };
        if running.trouble != lack {
            tracing::info!(port = %name, lack, "the patch port has {} its peer", if lack.is_some() { "lost" } else { "found" });
            running.trouble = lack;
        }
    }
}

fn workers(wanted: &PortSpec, count: usize) -> Vec<WorkerId> {
    let named: Vec<WorkerId> =
        wanted.port.workers.iter().copied().filter(|worker| worker.index() < count).collect();
    if named.is_empty() { (0_u16..).map(WorkerId).take(count).collect() } else { named }
}

/// Returns a software RSS table in which the buckets are assigned to all workers by round-robin.
pub fn even_rss_table(workers: usize) -> RssBuckets {
    let workers = u16::try_from(workers.max(1)).unwrap_or(u16::MAX);
    let mut turn = (0..workers).cycle();
    Arc::new(std::array::from_fn(|_| WorkerId(turn.next().unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_distributed_evenly() {
        let rss_table = even_rss_table(3);
        for worker in 0..3 {
            let share = rss_table.iter().filter(|own| own.0 == worker).count();
            assert!((85..=86).contains(&share), "{share}");
        }
    }
}
