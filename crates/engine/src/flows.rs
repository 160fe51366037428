//! Types that workers and the slow path share: the rings between them, the cached megaflows, and the bridges
//! with OpenFlow rules.
//!
//! ```text
//!            Upcall (packet of an unknown flow)                  FlowTables: one bridge's rules, locked by control threads only
//!   worker ------------------------------------> slow path ----------------+
//!     |  <------------------------------------      |   translate, revalidate, count
//!     |      CacheCommand (packet, flow, removal)   |
//!     +-------------------------------------------->+
//!            CacheCompletion (megaflow installed, removed or replaced)
//! ```
//!
//! The slow path creates the megaflows and owns their records. A worker counts the matching packets of a
//! megaflow in [`Live`] and executes its cached actions ([`Compiled`]).

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "tables are locked by control threads, which wait by the clock; a worker never asks them"
)]

mod cached_actions;
mod compiled;
mod event_queue;
mod megaflow_view;
mod meter;

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use lookup::FlowRef;
use packet::{FlowKey, PortId};
use port::Packet;
use switch::Bridge;
use switch::flow::{ConnectionFields, DecidedPacket, ExtendedKey, PacketOut, Pipeline, Recirculation};
use sync::spsc::{Consumer, Producer};
use sync::wake::Waker;

use crate::connections::Connections;
use crate::packet_outs::{Outgoing, PacketOuts, Queued};

pub(crate) use cached_actions::{CachedActions, CachedActionsIndex, credit};
pub use compiled::{CachedFlow, Compiled, Live};
pub(crate) use compiled::{Departure, Kind};
use event_queue::EventQueue;
pub use event_queue::Listener;
pub use megaflow_view::MegaflowView;
pub use meter::MeterLive;
pub(crate) use meter::Metered;

/// Capacity of the ring from one worker to the slow path, in upcalls.
pub const UPCALLS: usize = 2048;
/// Capacity of the ring from the slow path to one worker, in messages.
pub const ANSWERS: usize = 8192;

/// Time that a thread sleeps between two attempts to lock the rules of a bridge.
const YIELDS: Duration = Duration::from_micros(50);
/// Time for which the slow path retries to lock the rules of a bridge without sleeping. After this time, the slow path
/// sleeps between attempts.
const SPINS: Duration = Duration::from_micros(50);
/// Maximum time that the slow path tries to lock a bridge's rules. After this time, the slow path continues with other
/// bridges.
const PATIENCE: Duration = Duration::from_millis(1);
/// Maximum time for which a control thread waits so that the slow path can take the lock of the rules first. The time
/// begins when the control thread finds that the slow path has claimed the lock.
const CLAIM: Duration = Duration::from_millis(100);

/// A bridge with OpenFlow rules, in the form that workers and the slow path share.
pub struct FlowBridge {
    /// OpenFlow rules of the bridge, with the lock of the rules.
    pub tables: Arc<FlowTables>,
    /// Learning bridge that executes the `NORMAL` action.
    pub bridge: Arc<Bridge>,
    /// Connections of the data path, to which the `ct` action sends packets.
    pub connections: Arc<Connections>,
}

/// A request of a control thread to the slow path.
pub(crate) enum Asked {
    /// Requests that the slow path calls the function when the flow caches of all workers agree with the bridge's
    /// tables.
    Barrier(Box<dyn FnOnce() + Send>),
    /// Requests that all megaflows of the bridge are sent to this channel.
    Dump(std::sync::mpsc::SyncSender<MegaflowView>),
    /// Requests the removal of all megaflows of the bridge. The slow path calls the function when all removals have
    /// been sent to the workers.
    Purge(Box<dyn FnOnce() + Send>),
}

/// OpenFlow rules of one bridge with the lock of the rules. Control threads and the slow path share both.
pub struct FlowTables {
    number: u16,
    pipeline: Mutex<Pipeline>,
    /// Lock that a control thread takes before the lock `pipeline`. Therefore at most one control thread waits for
    /// `pipeline` at a time.
    turn: Mutex<()>,
    /// Whether the slow path has claimed the lock of the rules. Control threads then let the slow path lock the
    /// rules first.
    packets_wait: AtomicBool,
    /// Memory of the rules in bytes, as last determined by [`FlowTables::memory`].
    memory: AtomicUsize,
    pub(crate) asked: Mutex<Vec<Asked>>,
    packet_outs: Mutex<PacketOuts>,
    events: EventQueue,
    waker: Arc<Waker>,
    /// Whether rules match only the outermost VLAN tag of a packet (true) or two VLAN tags (false).
    one_tag: AtomicBool,
    /// Number of packets of the bridge that have matched no cached megaflow.
    pub(crate) upcalls: AtomicU64,
    /// Number of the bridge's megaflows that are installed in the XDP hook.
    pub(crate) hooked: AtomicU64,
}

impl FlowTables {
    /// Creates the OpenFlow tables of the bridge with identifier `number`. `waker` wakes the slow path.
    #[must_use]
    pub fn new(number: u16, pipeline: Pipeline, waker: Arc<Waker>) -> FlowTables {
        FlowTables {
            number,
            memory: AtomicUsize::new(pipeline.memory()),
            pipeline: Mutex::new(pipeline),
            turn: Mutex::new(()),
            packets_wait: AtomicBool::new(false),
            asked: Mutex::new(Vec::new()),
            packet_outs: Mutex::default(),
            events: EventQueue::default(),
            waker,
            one_tag: AtomicBool::new(false),
            upcalls: AtomicU64::new(0),
            hooked: AtomicU64::new(0),
        }
    }

    /// Returns the identifier of the bridge to which the tables belong.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Locks the rules for a control thread. Upcalls of the bridge wait while the lock is held, so the caller
    /// should release it soon.
    pub fn lock(&self) -> MutexGuard<'_, Pipeline> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // The slow path waits for one control thread at most, even if several control threads lock the rules
        // repeatedly. A claim that the slow path left behind when it stopped serving the bridge expires.
        let begin = Instant::now();
        while self.packets_wait.load(Ordering::Acquire) {
            if begin.elapsed() >= CLAIM {
                self.forget_claim();
            } else {
                std::thread::sleep(YIELDS);
            }
        }
        self.pipeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no thread holds the lock of the rules, or until `deadline`. Returns whether the lock is
    /// free.
    #[must_use]
    pub fn is_free_by(&self, deadline: Instant) -> bool {
        loop {
            match self.pipeline.try_lock() {
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(YIELDS),
                tried => return !matches!(tried, Err(TryLockError::WouldBlock)),
            }
        }
    }

    /// Returns the approximate memory of the rules in bytes. If other threads keep the rules locked until `deadline`,
    /// returns the last known value.
    #[must_use]
    pub fn memory(&self, deadline: Instant) -> usize {
        if self.is_free_by(deadline)
            && let Some(pipeline) = self.try_lock()
        {
            self.memory.store(pipeline.memory(), Ordering::Relaxed);
        }
        self.memory.load(Ordering::Relaxed)
    }

    /// Locks the rules if no other thread holds the lock or waits for it. Returns `None` otherwise.
    #[must_use]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, Pipeline>> {
        let _turn = self.turn.try_lock().ok()?;
        if self.packets_wait.load(Ordering::Acquire) {
            return None;
        }
        self.pipeline.try_lock().ok()
    }

    /// Locks the rules for the slow path, which has precedence over waiting control threads. Returns `None` if a
    /// control thread holds the lock longer than the slow path waits. In this case, the slow path continues with other
    /// bridges and tries again later. The slow path's claim to the lock remains until the slow path has locked the
    /// rules.
    pub(crate) fn lock_for_packets(&self) -> Option<MutexGuard<'_, Pipeline>> {
        // The slow path waits only once while a thread holds the rules.
        let patience = if self.packets_wait.load(Ordering::Relaxed) { Duration::ZERO } else { PATIENCE };
        self.lock_for_packets_within(patience)
    }

    /// Locks the rules like [`FlowTables::lock_for_packets`], but waits at most `patience`.
    pub(crate) fn lock_for_packets_within(&self, patience: Duration) -> Option<MutexGuard<'_, Pipeline>> {
        let mut begin = None;
        loop {
            match self.pipeline.try_lock() {
                Ok(pipeline) => return Some(self.had(pipeline)),
                Err(TryLockError::Poisoned(poisoned)) => return Some(self.had(poisoned.into_inner())),
                Err(TryLockError::WouldBlock) => {}
            }
            self.packets_wait.store(true, Ordering::Release);
            let begin = *begin.get_or_insert_with(Instant::now);
            match begin.elapsed() {
                waited if waited >= patience => return None,
                // Most threads hold the rules for less time than a sleep takes.
                waited if waited < SPINS => std::thread::yield_now(),
                _ => std::thread::sleep(YIELDS),
            }
        }
    }

    /// Clears the slow path's claim to the lock, because the slow path has locked the rules.
    fn had<'a>(&self, pipeline: MutexGuard<'a, Pipeline>) -> MutexGuard<'a, Pipeline> {
        if self.packets_wait.load(Ordering::Relaxed) {
            self.forget_claim();
        }
        pipeline
    }

    /// Clears the slow path's claim to the lock of the rules.
    pub(crate) fn forget_claim(&self) {
        self.packets_wait.store(false, Ordering::Release);
    }

    /// Waits for the lock of the rules, changes the rules, passes the resulting events to the listener, and wakes the
    /// slow path. The listener receives the events in the order of the changes. When the function returns, the listener
    /// has received the events of this change.
    pub fn change<T>(&self, change: impl FnOnce(&mut Pipeline) -> T) -> T {
        self.change_locked(self.lock(), change)
    }

    /// Changes the rules like [`FlowTables::change`], but does not wait for other control threads. Returns `None` and
    /// changes nothing if the rules cannot be locked immediately, or if events of another control thread are queued or
    /// being passed to the listener. The function may wait while the slow path passes events to the listener.
    pub fn try_change<T>(&self, change: impl FnOnce(&mut Pipeline) -> T) -> Option<T> {
        let pipeline = self.try_lock()?;
        // Threads append events only while they hold the lock.
        if self.events.has_control() {
            return None;
        }
        Some(self.change_locked(pipeline, change))
    }

    fn change_locked<T>(
        &self,
        mut pipeline: MutexGuard<'_, Pipeline>,
        change: impl FnOnce(&mut Pipeline) -> T,
    ) -> T {
        let done = change(&mut pipeline);
        let events = pipeline.take_events();
        let queued = (!events.is_empty()).then(|| self.events.append(events));
        drop(pipeline);
        if let Some(number) = queued {
            self.events.send(number);
        }
        self.waker.notify_if_sleeping();
        done
    }

    /// Sets whether rules match only the outermost VLAN tag of a packet (true) or two VLAN tags (false).
    pub fn set_one_tag(&self, one_tag: bool) {
        self.change(|pipeline| pipeline.set_one_tag(one_tag));
        self.one_tag.store(one_tag, Ordering::Relaxed);
    }

    /// Returns whether rules match only the outermost VLAN tag of a packet (true) or two VLAN tags (false).
    #[inline]
    pub(crate) fn sees_one_tag(&self) -> bool {
        self.one_tag.load(Ordering::Relaxed)
    }

    /// Sets the function that is called with the OpenFlow events of the bridge. A new function replaces the
    /// previous function, which may still be called with the events that another thread is passing to it.
    pub fn listen(&self, listener: Option<Listener>) {
        self.events.listen(listener);
    }

    /// Unlocks the rules for the slow path, and passes the resulting events to the listener. If another thread is
    /// passing events to the listener, the slow path does not wait, and the other thread passes these events too.
    pub(crate) fn unlock_for_packets(&self, mut pipeline: MutexGuard<'_, Pipeline>) {
        let events = pipeline.take_events();
        let turn = if events.is_empty() { None } else { self.events.append_deferrable(events) };
        drop(pipeline);
        if let Some(turn) = turn {
            self.events.send_deferrable(turn);
        }
    }

    /// Calls `done` when the listener has received the events of all changes so far. The function does not wait.
    pub(crate) fn notify_after_events(&self, done: Box<dyn FnOnce() + Send>) {
        self.events.notify(done);
    }

    pub(crate) fn ask(&self, what: Asked) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(what);
        self.waker.notify();
    }

    /// Requests a barrier: the slow path calls `done` when every worker's flow cache agrees with the rules at the time
    /// of this call. The function does not wait for the barrier.
    pub fn barrier(&self, done: impl FnOnce() + Send + 'static) {
        self.ask(Asked::Barrier(Box::new(done)));
    }

    /// Queues a controller's packet-out. The slow path processes the packet according to the actions of the packet-out
    /// or the flow tables. The packet-outs of one OpenFlow session keep their order, and the slow path serves the
    /// sessions in turn.
    ///
    /// The queue has no limit. `reservation` is the part of the session's packet-out budget that is reserved for
    /// the packet. The reservation is dropped when the slow path has processed the packet, or when the bridge is
    /// removed.
    pub fn packet_out(&self, session: u64, packet: PacketOut, reservation: impl Any + Send) {
        self.queue_packet_out(session, Outgoing::Asked(Box::new(packet)), Box::new(reservation));
    }

    /// Queues a packet-out whose actions were already determined when the OpenFlow bundle that contains it was applied.
    /// The packet-out is sent after the packet-outs of the session that are already queued. For `reservation`, see
    /// [`FlowTables::packet_out`].
    pub fn send_decided(&self, session: u64, packet: DecidedPacket, reservation: impl Any + Send) {
        self.queue_packet_out(session, Outgoing::Decided(Box::new(packet)), Box::new(reservation));
    }

    fn queue_packet_out(&self, session: u64, packet: Outgoing, reservation: Box<dyn Any + Send>) {
        let queued = Queued { packet, reservation };
        self.packet_outs.lock().unwrap_or_else(PoisonError::into_inner).push(session, queued);
        self.waker.notify();
    }

    /// Drops all queued packet-outs of an OpenFlow session and returns their number.
    pub fn drop_packet_outs(&self, session: u64) -> usize {
        let dropped = self.packet_outs.lock().unwrap_or_else(PoisonError::into_inner).purge(session);
        dropped.len()
    }

    /// Takes the next packet-out from the queue of the OpenFlow session whose turn it is. Returns `None` if no
    /// packet-out is queued.
    pub(crate) fn next_packet_out(&self) -> Option<Queued> {
        self.packet_outs.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Returns whether barriers, dumps or purges of this bridge are pending at the slow path.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        !self.asked.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Returns whether packet-outs of this bridge are pending at the slow path.
    pub(crate) fn has_packet_outs(&self) -> bool {
        !self.packet_outs.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Returns the number of packets of the bridge that have matched no cached megaflow so far.
    #[must_use]
    pub fn upcalls(&self) -> u64 {
        self.upcalls.load(Ordering::Relaxed)
    }

    /// Returns the number of the bridge's megaflows that are installed in the XDP hook.
    #[must_use]
    pub fn hooked(&self) -> u64 {
        self.hooked.load(Ordering::Relaxed)
    }
}

/// A packet that matched no cached megaflow and is sent to the slow path.
pub(crate) struct Upcall {
    pub bridge: Arc<FlowBridge>,
    pub port: PortId,
    pub packet: Packet,
    pub key: FlowKey,
    pub extended: ExtendedKey,
    /// State with which the translation goes on, if the connection tracker has seen the packet.
    pub recirculation: Option<Arc<Recirculation>>,
}

impl Upcall {
    /// Returns the port whose share of the slow path the packet uses: the port on which the packet was received, even
    /// if the packet has passed patch ports.
    pub fn ingress(&self) -> PortId {
        self.packet.arrival_or(self.port)
    }

    /// Returns the two ports of the packet, which name the queue in which it waits.
    pub fn queue(&self) -> UpcallPorts {
        UpcallPorts { ingress: self.ingress(), port: self.port }
    }

    /// Returns the two ports of the packet's megaflow.
    pub fn ports(&self) -> UpcallPorts {
        UpcallPorts { ingress: self.ingress(), port: self.key.in_port() }
    }
}

/// The two ports of a packet that matches no cached megaflow, and of the megaflow that is then installed. They differ
/// only behind patch ports. They also name the queue in which the packet waits in the slow path. The queues take turns.
/// If the tables of a bridge are locked, only the queues of the bridge's ports wait, and not the packets that were
/// received on the same ports and miss in other bridges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UpcallPorts {
    /// Port on which the packet was received. Packet and megaflow count toward the share of this port, so that ports
    /// behind one patch port have their own shares.
    pub ingress: PortId,
    /// Port of the bridge on which the packet arrived in the bridge, or the number of its recirculation
    /// ([`Recirculation::number`]). It is the port in the megaflow's key, and the megaflow's mask is one of this port's
    /// masks.
    pub port: PortId,
}

/// A megaflow to install in a worker's cache. The worker takes the megaflow out of the box and returns the empty box to
/// the slow path for reuse.
#[derive(Default)]
pub(crate) struct Install {
    pub id: u32,
    pub key: FlowKey,
    pub mask: FlowKey,
    pub extended: ExtendedKey,
    pub extended_mask: ExtendedKey,
    pub flow: Option<CachedFlow>,
}

/// A message from the slow path to a worker.
pub(crate) enum CacheCommand {
    /// Returns a packet to the worker, which executes the given actions on the packet. `key` is the flow key of the
    /// upcall, or `None` for the packet of a packet-out.
    Release {
        bridge: Arc<FlowBridge>,
        port: PortId,
        packet: Packet,
        key: Option<FlowKey>,
        compiled: Arc<Compiled>,
        /// Connection fields of the packet. `None` if the connection tracker has not seen the packet.
        connection: Option<Box<ConnectionFields>>,
    },
    /// Installs a megaflow in the worker's cache.
    Install(Box<Install>),
    /// Replaces the actions of the megaflow at this cache location.
    Replace(FlowRef, Arc<Compiled>),
    /// Removes the megaflow at this cache location.
    Remove(FlowRef),
    /// Requests that the worker sends [`CacheCompletion::Synced`] with this number when it has processed all earlier
    /// messages.
    Sync(u64),
}

/// A message from a worker to the slow path.
pub(crate) enum CacheCompletion {
    /// Reports the cache location of a newly installed megaflow, or `None` if the cache had no space for the megaflow.
    /// The first field is the index of the megaflow's record in the slow path. The last field returns the box of the
    /// install message for reuse.
    Installed(u32, Option<FlowRef>, Box<Install>),
    /// Reports that the worker has removed a megaflow from its cache, and returns the megaflow.
    Removed(CachedFlow),
    /// Returns the previous actions of a megaflow after a replacement.
    Replaced(Arc<Compiled>),
    /// Reports that the worker has processed all messages up to the [`CacheCommand::Sync`] with this number.
    Synced(u64),
}

/// A worker's ends of the rings between the worker and the slow path.
pub struct WorkerFlows {
    pub(crate) upcalls: Producer<Upcall>,
    pub(crate) answers: Consumer<CacheCommand>,
    pub(crate) told: Producer<CacheCompletion>,
    pub(crate) waker: Arc<Waker>,
}

/// The slow path's ends of the rings between one worker and the slow path.
pub(crate) struct WorkerEnd {
    pub upcalls: Consumer<Upcall>,
    pub answers: Producer<CacheCommand>,
    pub told: Consumer<CacheCompletion>,
    pub waker: Arc<Waker>,
}

/// Creates the rings between one worker and the slow path. Returns the worker's ends and the slow path's
/// ends.
pub(crate) fn rings(slow_path: &Arc<Waker>, worker: &Arc<Waker>) -> (WorkerFlows, WorkerEnd) {
    use sync::spsc::channel;
    let (upcalls, asked) = channel(UPCALLS);
    let (answers, answered) = channel(ANSWERS);
    let (told, heard) = channel(2 * ANSWERS);
    (
        WorkerFlows { upcalls, answers: answered, told, waker: Arc::clone(slow_path) },
        WorkerEnd { upcalls: asked, answers, told: heard, waker: Arc::clone(worker) },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the slow path is the next thread to lock the rules if it waits while another thread
    /// repeatedly locks and unlocks them.
    #[test]
    fn the_slow_path_has_the_rules_next() {
        let tables = FlowTables::new(1, Pipeline::new(), Arc::new(Waker::new().unwrap()));
        for _ in 0..200 {
            let order = Mutex::new(Vec::new());
            let had = |who| order.lock().unwrap().push(who);
            std::thread::scope(|scope| {
                let first = tables.lock();
                scope.spawn(|| {
                    let _held = loop {
                        if let Some(held) = tables.lock_for_packets() {
                            break held;
                        }
                    };
                    had("slow path");
                });
                while !tables.packets_wait.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                assert!(tables.try_lock().is_none());
                for _ in 0..3 {
                    scope.spawn(|| {
                        let _held = tables.lock();
                        had("control");
                    });
                }
                drop(first);
                let _held = tables.lock();
                had("control");
            });
            assert_eq!(
                order.into_inner().unwrap(),
                ["slow path", "control", "control", "control", "control"]
            );
        }
        assert!(tables.try_lock().is_some());
    }

    /// Checks that the slow path does not wait long for rules that a control thread has locked. The claim of the slow
    /// path stays until the slow path has locked the rules, or until a control thread has waited for the slow path for
    /// the maximum time.
    #[test]
    fn the_slow_path_goes_on_without_rules_that_are_held() {
        let tables = FlowTables::new(1, Pipeline::new(), Arc::new(Waker::new().unwrap()));
        let held = tables.lock();
        let begin = Instant::now();
        assert!(tables.lock_for_packets().is_none());
        assert!(begin.elapsed() >= PATIENCE);
        let begin = Instant::now();
        (0..1000).for_each(|_| assert!(tables.lock_for_packets().is_none()));
        assert!(begin.elapsed() < 500 * PATIENCE, "it waits once only");
        assert!(!tables.is_free_by(Instant::now()));
        drop(held);
        assert!(tables.is_free_by(Instant::now()));
        assert!(tables.try_lock().is_none(), "the slow path comes first");
        drop(tables.lock_for_packets().unwrap());
        assert!(tables.try_lock().is_some());
        // The slow path does not retry.
        let held = tables.lock();
        assert!(tables.lock_for_packets().is_none());
        drop(held);
        drop(tables.lock());
        assert!(tables.try_lock().is_some());
    }
}
