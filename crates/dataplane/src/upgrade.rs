//! Hand-over of the data plane to a successor process. If the successor does not take over, this process returns to
//! normal operation.

use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use control::{FailureKind, PlaneError};
use engine::Engine;
use model::PortName;
use openflow::Sockets;
use port::quarantine::HOLD;

use super::data_plane::{DataPlane, handed_over};
use super::handover;
use super::handover::HandoverError;
use super::handover::bundle::HandoverBundle;
use super::handover::export::export;
use super::handover::import::Parts;
use super::handover::send::Successor;
use super::handover::successor_queues::{await_release, current_queues, successor_queues};

use super::lock::locked;
use super::routers::Routers;
use super::running_state::RunningState;

/// Time limit for stopping the workers in a hand-over, and for resuming the data plane after a failed hand-over. During
/// this time, the daemon continues to notify the service manager's watchdog although the data plane does not answer.
const RESUME: Duration = Duration::from_secs(60);
/// Time limit of two waits in an upgrade. The first wait ends when no flow table of a bridge is
/// locked by a large change. If the first wait takes too long, the upgrade is abandoned. The second
/// wait ends when the slow path has translated all waiting packets (upcalls). If the second wait
/// takes too long, the process aborts.
const RULES: Duration = Duration::from_secs(10);
/// Time limit for OpenFlow and `ovs-appctl` sessions to end before their listening sockets are handed over.
const SESSIONS_END: Duration = Duration::from_millis(100);

impl DataPlane {
    /// Starts the program `binary` as successor process and hands the data plane over to it.
    pub(super) fn upgrade_to(&self, binary: &Path) -> Result<(), PlaneError> {
        let around = locked(&self.around);
        let around = around.as_ref().ok_or_else(handed_over)?;
        let merged = locked(&self.merged).clone();
        let progress = &self.handing_over;
        let successor = Successor::start(binary, around, &merged, &self.memory, &self.made_by, progress)?;
        // From here on, this process writes no rule file, because it could overwrite a file of the successor. The
        // writer of the rule files may be writing now. Its lock is awaited before clients are held up.
        let keeper = locked(&self.keeper).take();
        around.sockets.hold(SESSIONS_END);
        let given = self.hand_over(binary, successor, &around.sockets);
        if given.is_err() {
            around.sockets.release();
            *locked(&self.keeper) = keeper;
        }
        given
    }

    /// Stops the workers and hands all state over to `successor`. If the successor does not take over, resumes
    /// the data plane in this process and returns an error.
    fn hand_over(&self, binary: &Path, successor: Successor, sockets: &Sockets) -> Result<(), PlaneError> {
        // Before anything stops, wait for changes that hold rule tables. The upgrade is refused if the wait
        // takes too long.
        let held = locked(&self.running_state).flows.held();
        held.wait(Instant::now() + RULES).map_err(|bridge| busy_rules(bridge.as_str()))?;
        held.fit(handover::LIMIT).map_err(|(bridge, octets)| many_rules(bridge.as_str(), octets))?;
        // The time limit of the hand-over is not known until the flow entries have been converted, so time for the
        // conversion is added here.
        self.handing_over.within(RESUME + handover::PER_RULE * held.rule_count());
        let given = self.give(binary, successor, sockets);
        self.handing_over.over();
        given
    }

    fn give(&self, binary: &Path, successor: Successor, sockets: &Sockets) -> Result<(), PlaneError> {
        // Lock order: as in `look`.
        let mut reader = locked(&self.snooped);
        let mut snooping = locked(&self.snooping);
        let mut slot = self.engine.write().unwrap_or_else(PoisonError::into_inner);
        let engine = slot.take().ok_or_else(handed_over)?;
        let mut running_state = locked(&self.running_state);
        // The engine is already removed, so no capture or trace can start. Running ones must end now, because their
        // frames belong to the depot of the engine.
        self.watches.end();
        let (mut pool, counts) = (engine.pool(), engine.counts());
        let queues = match engine.stop() {
            Ok(queues) => queues,
            Err(error) => {
                // The queues cannot be recovered, and without workers this process forwards nothing. A
                // restart by the supervisor restores service.
                drop(successor);
                tracing::error!(%error, "the workers cannot be stopped for the upgrade; the process ends so that it can be restarted");
                std::process::abort();
            }
        };
        reader.detach();
        // The slow path stops after the workers, so that the workers' last counts are added to the rules.
        if !running_state.flows.halt_by(Some(Instant::now() + RULES)) {
            // The slow path may own frames, which the hand-over state would count as free frames. Neither the
            // successor nor this process could then use the frame memory safely.
            drop(successor);
            tracing::error!(
                "unknown flows are still being decided {RULES:?} after the workers have stopped for the upgrade; the process ends so that it can be restarted"
            );
            std::process::abort();
        }
        let fresh = Routers::new(&self.domain, self.workers.cores.len());
        let routers = std::mem::replace(&mut running_state.routers, fresh);
        let mut held = export(&mut running_state, &routers, queues, &counts, &mut pool);
        drop(pool);
        held.state.counting_secs = self.started.elapsed().as_secs();
        // The successor has the time limit of the hand-over state. If it fails, resuming the data plane takes about as
        // long.
        self.handing_over.within(held.state.patience() * 2 + RESUME);
        match successor.take(&mut held, &running_state.config) {
            Ok(pid) => {
                // The sockets of this process are duplicates, so closing them does not affect the successor.
                sockets.leave();
                self.left.send_replace(Some(pid));
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "the successor has not taken over; this process goes on");
                match self.take_back(held, &mut running_state, routers) {
                    Ok(engine) => {
                        // A host sends two reports for a group within one second. A snooper that starts
                        // polling later may miss both.
                        let is_other = reader.attach(&engine);
                        snooping.look(&mut running_state, &engine, &[], is_other, false);
                        *slot = Some(engine);
                    }
                    Err(fatal) => {
                        tracing::error!(%fatal, "this process cannot resume either; it ends so that it can be restarted");
                        std::process::abort();
                    }
                }
                Err(handover::send::refused(binary, &error))
            }
        }
    }

    /// Resumes the data plane in this process, from the state that was prepared for the failed
    /// hand-over.
    fn take_back(
        &self,
        mut held: HandoverBundle,
        running_state: &mut RunningState,
        mut routers: Routers,
    ) -> Result<Engine, HandoverError> {
        routers.unplugged();
        let config = running_state.config.clone();
        let current_queues = |name: &PortName| current_queues(&config, name);
        let queues = successor_queues(&held, &config, current_queues);
        let (unusable, _released) = (std::mem::take(&mut held.unusable), std::mem::take(&mut held.guards));
        let mut parts = Parts::new(held, &config, &self.memory)?;
        let _guards = parts.guard_lost(&config);
        drop(unusable);
        await_release(queues, &config, HOLD)?;
        // The kernel state of the filters has not changed, so the workers apply the filters from the start.
        let filters = std::mem::take(&mut running_state.filters);
        let rebuilt = parts.rebuild(&config, &self.workers, &self.memory, routers, filters, true)?;
        let (engine, mut rebuilt) = rebuilt.run()?;
        let steering = std::mem::take(&mut running_state.steering);
        // The flow tables are kept. Only the OpenFlow datapaths that use them are new.
        let flows = std::mem::take(&mut running_state.flows);
        rebuilt.flows.halt();
        *running_state = RunningState { steering, flows, ..rebuilt };
        running_state.publish(&engine);
        let RunningState { filters, steering, ports, .. } = running_state;
        // A port whose filter cannot be set keeps the rules of its hook. The other ports get their filters.
        for error in filters.ensure_each(ports) {
            tracing::error!(%error, "the filter could not be given back to it; its hook goes on with the rules that it has");
        }
        if let Err(error) = steering.ensure(ports) {
            tracing::error!(%error, "steering could not be given back to it");
        }
        Ok(engine)
    }
}

fn busy_rules(bridge: &str) -> PlaneError {
    PlaneError {
        kind: FailureKind::Busy,
        object: format!("bridge.{bridge}"),
        cause: format!("its rules are held by a change for longer than {RULES:?}"),
        fix: "the running daemon goes on; try again when the change is made".to_owned(),
    }
}

fn many_rules(bridge: &str, octets: usize) -> PlaneError {
    PlaneError {
        kind: FailureKind::Failed,
        object: format!("bridge.{bridge}"),
        cause: format!(
            "the rules of all bridges, most of them of this one, take about {} MiB in a hand-over, which carries {} MiB",
            octets >> 20,
            handover::LIMIT >> 20
        ),
        fix: "the running daemon goes on; limit the rules (`flow_limit` of the bridge's tables), or restart with `--restore`".to_owned(),
    }
}
