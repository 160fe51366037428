//! Connection manager of a bridge. The connection manager registers all OpenFlow sessions
//! (connections with controllers and clients), distributes the bridge's events to the sessions, and
//! manages the roles of controllers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use switch::flow::{Event, FlowError, Mod, Origin, PacketOut};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast, mpsc};

use crate::budget;
use crate::datapath::{Datapath, Outcome, Reservation, TableMod};
use crate::events::{Interest, SharedEvent, Subscription, is_about_rules, is_for_all};
use crate::losses::Losses;
use crate::wire::{HEADER, Header};

/// Maximum number of notices, such as bridge events, in the queue of one OpenFlow session.
const QUEUE: usize = 1024;
/// Maximum memory in octets of the bridge events in the queue of one OpenFlow session.
const QUEUE_OCTETS: usize = 32 << 20;
/// Maximum number of messages (of up to 64 KiB) that are queued for the slowest snooping listener. A snooping
/// listener (`ovs-ofctl snoop`) receives copies of the messages between controllers and the bridge.
const OVERHEARD: usize = 512;

/// Role of a controller (OpenFlow 1.5.1 section 6.3.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// `OFPCR_ROLE_EQUAL`: full access. Other controllers may have full access, too.
    #[default]
    Equal,
    /// `OFPCR_ROLE_MASTER`: full access. At most one controller has this role.
    Master,
    /// `OFPCR_ROLE_SLAVE`: read-only access.
    Slave,
}

/// A notice from the connection manager to an OpenFlow session, queued until the session processes it.
#[derive(Debug)]
pub(crate) enum Notice {
    /// An event of the bridge, to be processed by the session.
    Event(Pending),
    /// Another controller has become the master. The session reports the demotion if
    /// [`SessionSeat::demotion`] still returns one.
    Demoted,
    /// Updates for the flow monitors of the session were dropped, because the session's queue was
    /// full. The controller has requested these updates about changes of flow entries.
    Behind,
}

/// An event of the bridge that is queued for an OpenFlow session.
#[derive(Debug)]
pub(crate) struct Pending {
    pub told: Arc<SharedEvent>,
    /// Memory in octets that all queued events of the session use.
    octets: Arc<AtomicUsize>,
}

impl Pending {
    /// Creates a queued event for a session. `octets` counts the memory of the session's queued
    /// events. Returns `None` if this memory would exceed [`QUEUE_OCTETS`]. An empty queue accepts
    /// an event of any size.
    fn new(told: &Arc<SharedEvent>, octets: &Arc<AtomicUsize>) -> Option<Pending> {
        let fits = |held: usize| {
            let sum = held.checked_add(told.octets())?;
            (held == 0 || sum <= QUEUE_OCTETS).then_some(sum)
        };
        octets.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Pending { told: Arc::clone(told), octets: Arc::clone(octets) })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.octets.fetch_sub(self.told.octets(), Ordering::Relaxed);
    }
}

struct Member {
    to: mpsc::Sender<Notice>,
    /// Lost messages to the target of the session.
    lost: Arc<Losses>,
    /// Memory in octets that the bridge events in the session's queue use.
    octets: Arc<AtomicUsize>,
    role: Role,
    /// Flag, shared with the session, that is true if the session has not reported yet that another controller has
    /// become the master. Only a thread that holds the lock of the [`State`] changes the flag.
    demoted: Arc<AtomicBool>,
    controller: bool,
    /// Whether the session has flow monitors.
    monitoring: bool,
    /// State, shared with the session, of whether an update for the session's flow monitors was dropped.
    behind: Arc<Behind>,
}

/// Whether an update for the flow monitors of a session was dropped.
#[derive(Debug, Default)]
struct Behind {
    flag: AtomicBool,
    /// Wakes a session that waits for its peer when the flag is set.
    set: Notify,
}

impl Member {
    /// Queues an event of the bridge for the session. If the queue has no space for the event, the event is dropped
    /// and counted.
    fn tell(&self, told: &Arc<SharedEvent>) {
        let is_packet = matches!(told.event, Event::PacketIn(_));
        let has_room = !is_packet || self.to.capacity() > QUEUE / 4;
        let pending = if has_room { Pending::new(told, &self.octets) } else { None };
        let sent = pending.is_some_and(|pending| self.to.try_send(Notice::Event(pending)).is_ok());
        if !sent {
            self.lost.add(1);
            if is_about_rules(&told.event) {
                self.is_behind();
            }
        }
    }

    /// Records that an update for the session's flow monitors was dropped. The session then ends, because the
    /// controller no longer knows the current flow entries.
    fn is_behind(&self) {
        if self.monitoring {
            self.behind.flag.store(true, Ordering::Relaxed);
            self.behind.set.notify_waiters();
            // If the queue is full, the session checks the flag after processing a notice.
            let _ = self.to.try_send(Notice::Behind);
        }
    }
}

/// Combined state of all OpenFlow sessions of a bridge, which the bridge needs for its fail mode and for table
/// misses (packets that match no flow entry).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Standing {
    /// Whether there is at least one session with a controller to which the bridge has connected.
    controllers: bool,
    /// Whether at least one session receives table misses (packets that match no flow entry).
    misses: bool,
}

#[derive(Default)]
struct State {
    members: HashMap<u64, Member>,
    next: u64,
    /// Number of sessions that receive table misses (packets that match no flow entry).
    hearing: usize,
    generation: Option<u64>,
    /// Combined state that was last reported to the bridge.
    told: Standing,
    /// Number of state changes of the sessions so far. A state change occurs when a session starts or ends, or when a
    /// session starts or stops receiving table misses.
    changes: u64,
    /// Value of `changes` at the last state change that was reported to the bridge.
    changes_told: u64,
    /// Whether a thread is currently reporting the combined state to the bridge. At most one thread
    /// reports at a time.
    telling: bool,
}

impl State {
    fn standing(&self) -> Standing {
        Standing {
            controllers: self.members.values().any(|member| member.controller),
            misses: self.hearing > 0,
        }
    }
}

/// Number of concurrent dumps (replies that list many objects) that are guaranteed to each bridge, regardless of the
/// dumps of other bridges.
const DUMPS: usize = 2;

/// Connection manager of a bridge, which distributes the bridge's events to OpenFlow sessions and manages the roles of
/// controllers.
pub(crate) struct ConnectionManager {
    pub datapath: Arc<dyn Datapath>,
    /// Number of sessions that need each kind of event. The bridge does not create events that no session needs.
    interest: Interest,
    /// Broadcast channel to the snooping listeners. The channel carries copies of the messages
    /// between controllers and the bridge.
    said: broadcast::Sender<Arc<[u8]>>,
    /// Memory budget in octets for the queued packet-outs of all sessions together. Packet-outs of
    /// ended sessions are included until they are processed.
    pub packet_outs: Arc<Semaphore>,
    /// Memory in octets that the bundles (collected changes that are not committed yet) of all sessions of the
    /// bridge use.
    pub bundles: Arc<AtomicUsize>,
    /// Permit for committing a large bundle. At most one session of the bridge has this permit. The session also
    /// needs a permit that all bridges of the process share.
    pub commits: Arc<Semaphore>,
    /// Permits for the dumps (replies that list many objects) that are guaranteed to this bridge.
    pub dumps: Arc<Semaphore>,
    /// Permit for a slow change of the bridge's flow tables. At most one slow change of the bridge is made at a time.
    changes: Arc<Semaphore>,
    /// Permit for a packet-out that waits for the lock of the flow tables. At most one session of the bridge waits on a
    /// thread.
    waiting_packets: Arc<Semaphore>,
    state: Mutex<State>,
    /// Wakes tasks that wait until the bridge has been informed about a change of the sessions' state.
    told: Notify,
}

/// Registration of an OpenFlow session with the connection manager. Dropping this value ends the registration.
pub(crate) struct SessionSeat {
    manager: Arc<ConnectionManager>,
    id: u64,
    monitoring: bool,
    hearing: bool,
    /// Sequence number of this session's last state change. [`SessionSeat::told`] waits until this change was reported
    /// to the bridge.
    change: u64,
    /// Whether the session receives copies of other sessions' group and meter requests.
    hears_requests: bool,
    pub notices: mpsc::Receiver<Notice>,
    lost: Arc<Losses>,
    behind: Arc<Behind>,
    demoted: Arc<AtomicBool>,
}

/// Error for a role request whose generation ID is older than the generation ID of a previous
/// request.
#[derive(Debug)]
pub(crate) struct Stale;

impl ConnectionManager {
    pub fn new(datapath: Arc<dyn Datapath>, interest: Interest) -> Arc<ConnectionManager> {
        let said = broadcast::Sender::new(OVERHEARD);
        let packet_outs = budget::of_bridge();
        let one = || Arc::new(Semaphore::new(1));
        let (commits, changes, waiting_packets) = (one(), one(), one());
        let (bundles, dumps) = (Arc::default(), Arc::new(Semaphore::new(DUMPS)));
        let (state, told) = (Mutex::default(), Notify::new());
        Arc::new(ConnectionManager {
            datapath,
            interest,
            said,
            packet_outs,
            bundles,
            commits,
            dumps,
            changes,
            waiting_packets,
            state,
            told,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock can leave a partial change behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver of copies of the messages between controllers and the bridge. A slow receiver misses
    /// messages.
    pub fn listen(&self) -> broadcast::Receiver<Arc<[u8]>> {
        self.said.subscribe()
    }

    /// Passes copies of messages between a controller and the bridge to the snooping listeners. The
    /// messages must be complete. The function does not wait for the listeners.
    pub fn overhear(&self, mut messages: &[u8]) {
        if self.said.receiver_count() == 0 {
            return;
        }
        while let Some(head) = Header::read(messages)
            && let Some((message, rest)) = messages.split_at_checked(usize::from(head.length).max(HEADER))
        {
            // The last listener may have just ended.
            let _ = self.said.send(message.into());
            messages = rest;
        }
    }

    /// Registers an OpenFlow session. `controller` is true if the peer is a controller to which the bridge has
    /// connected. `lost` counts the messages to the peer that are dropped. The bridge has been informed about the
    /// session when [`SessionSeat::told`] returns.
    pub fn join(self: &Arc<Self>, controller: bool, lost: Arc<Losses>) -> SessionSeat {
        let (to, notices) = mpsc::channel(QUEUE);
        let (behind, demoted) = (Arc::<Behind>::default(), Arc::default());
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        let member = Member {
            to,
            lost: Arc::clone(&lost),
            octets: Arc::default(),
            role: Role::Equal,
            demoted: Arc::clone(&demoted),
            controller,
            monitoring: false,
            behind: Arc::clone(&behind),
        };
        state.members.insert(id, member);
        let change = if controller { self.changed(state) } else { 0 };
        let manager = Arc::clone(self);
        let (monitoring, hearing, hears_requests) = (false, false, false);
        SessionSeat {
            manager,
            id,
            monitoring,
            hearing,
            hears_requests,
            change,
            notices,
            lost,
            behind,
            demoted,
        }
    }

    fn leave(self: &Arc<Self>, id: u64) {
        let mut state = self.state();
        if state.members.remove(&id).is_some_and(|member| member.controller) {
            self.changed(state);
        }
    }

    /// Counts a change of the sessions' combined state. A blocking thread then reports the change to the bridge,
    /// because the report may wait for the bridge's flow tables. Returns the number of the state change.
    fn changed(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> u64 {
        if state.standing() != state.told || state.telling {
            state.changes += 1;
        }
        let change = state.changes;
        if state.standing() == state.told || std::mem::replace(&mut state.telling, true) {
            return change;
        }
        drop(state);
        let manager = Arc::clone(self);
        let tell = move || while manager.tell() {};
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(tell)),
            Err(_) => tell(),
        }
        change
    }

    /// Reports the combined state of the sessions to the bridge if the state has changed. Returns
    /// true if the state may have changed again during the report. The caller must then repeat the
    /// call.
    fn tell(&self) -> bool {
        let (told, now, changes) = {
            let mut state = self.state();
            let (told, now) = (state.told, state.standing());
            if told == now {
                state.changes_told = state.changes;
                state.telling = false;
                self.told.notify_waiters();
                return false;
            }
            (told, now, state.changes)
        };
        if told.controllers != now.controllers {
            self.datapath.controllers_connected(now.controllers);
        }
        if told.misses != now.misses {
            self.datapath.misses_heard(now.misses);
        }
        let mut state = self.state();
        (state.told, state.changes_told) = (now, changes);
        self.told.notify_waiters();
        true
    }

    /// Returns whether a slow change of the bridge ([`ConnectionManager::in_turn`]) may be in
    /// progress. A fast change must wait until the slow change is complete.
    pub fn is_changing(&self) -> bool {
        self.changes.available_permits() == 0
    }

    /// Waits for the permit to make a slow change of the bridge's flow tables. Never returns
    /// `None`, because the semaphore is never closed.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.changes).acquire_owned().await.ok()
    }

    /// Returns the permit to make a slow change of the bridge's flow tables. Returns `None` if another session has the
    /// permit.
    pub fn try_turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.changes).try_acquire_owned().ok()
    }

    /// Runs `call` with the bridge on a blocking thread. Waiting for a lock of the flow tables then delays no other
    /// session. At most one such call runs for each bridge at a time. Additional calls wait without occupying a thread.
    pub async fn in_turn<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Datapath) -> T + Send + 'static,
    ) -> T {
        self.with_permit(&self.changes, call).await
    }

    /// Queues a packet-out for the slow path. If the flow tables are locked, waits on a blocking thread, one packet-out
    /// of the bridge at a time. Additional packet-outs wait without occupying a thread.
    ///
    /// # Errors
    /// Returns the reason if the packet-out is refused.
    pub async fn packet_out(&self, packet: PacketOut, reservation: Reservation) -> Result<(), FlowError> {
        match self.datapath.packet_out_soon(packet, reservation) {
            Ok(sent) => sent,
            Err(kept) => {
                let (packet, reservation) = *kept;
                let wait = move |datapath: &dyn Datapath| datapath.packet_out(packet, reservation);
                self.with_permit(&self.waiting_packets, wait).await
            }
        }
    }

    /// Waits for a permit of `semaphore`, and runs `call` with the bridge on a blocking thread. The permit is held
    /// during the call.
    async fn with_permit<T: Send + 'static>(
        &self,
        semaphore: &Arc<Semaphore>,
        call: impl FnOnce(&dyn Datapath) -> T + Send + 'static,
    ) -> T {
        // The semaphores are never closed.
        let permit = Arc::clone(semaphore).acquire_owned().await;
        let datapath = Arc::clone(&self.datapath);
        let called = move || {
            // The permit is held until the call returns, even if the session ends meanwhile.
            let _permit = permit;
            call(&*datapath)
        };
        match tokio::task::spawn_blocking(called).await {
            Ok(done) => done,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    /// Applies changes of flow entries, groups and meters. Fast changes are applied in the calling
    /// task. Slow changes are applied on a blocking thread, where they do not delay other sessions.
    pub async fn modify(&self, changes: Vec<Mod>, origin: Origin) -> Outcome {
        match self.datapath.modify_soon(changes, origin) {
            Ok(done) => done,
            Err(changes) => self.in_turn(move |datapath| datapath.modify_for(changes, origin)).await,
        }
    }

    /// Modifies the configuration of one flow table or of all flow tables. A fast modification is
    /// made in the calling task. A slow modification is made on a blocking thread, where it does
    /// not delay other sessions.
    pub async fn table_mod(&self, change: TableMod) -> Result<(), FlowError> {
        match self.datapath.table_mod_soon(&change) {
            Some(done) => done,
            None => self.in_turn(move |datapath| datapath.table_mod(&change)).await,
        }
    }

    /// Distributes an event of the bridge to all interested sessions. The last quarter of a
    /// session's queue is reserved for events other than packet-ins.
    fn show(&self, told: SharedEvent) {
        let for_all = is_for_all(&told.event);
        let told = Arc::new(told);
        for member in self.state().members.values() {
            if let Event::Lost(count) = told.event {
                member.lost.add(count);
                member.is_behind();
            } else if let Event::LostPackets(count) = told.event {
                member.lost.add(count);
            } else if for_all || member.monitoring {
                member.tell(&told);
            }
        }
    }

    /// Distributes the events of the bridge to the sessions. Events that did not fit into the queue of the bridge count
    /// as lost for each controller to which the bridge has connected. Returns when the bridge is dropped.
    pub async fn run(self: Arc<Self>, mut subscription: Subscription) {
        let mut counted = 0;
        while let Some(told) = subscription.events.recv().await {
            let lost = subscription.lost.load(Ordering::Relaxed);
            if lost > counted {
                let state = self.state();
                let controllers = state.members.values().filter(|member| member.controller);
                controllers.for_each(|member| member.lost.add(lost - counted));
                drop(state);
                counted = lost;
            }
            if subscription.missed.swap(0, Ordering::Relaxed) > 0 {
                self.state().members.values().for_each(Member::is_behind);
            }
            self.show(told);
        }
    }
}

impl SessionSeat {
    /// Waits until the bridge has been informed about this session's last state change (start of the session, or
    /// start or stop of receiving table misses).
    pub async fn told(&self) {
        loop {
            let told = self.manager.told.notified();
            if self.manager.state().changes_told >= self.change {
                return;
            }
            told.await;
        }
    }

    /// Changes the role of this session's controller. If `to` is `None`, the role is not changed. Returns the role and
    /// the current generation ID.
    pub fn role(&self, to: Option<Role>, generation: Option<u64>) -> Result<(Role, u64), Stale> {
        let mut state = self.manager.state();
        if let (Some(new), Some(Role::Master | Role::Slave)) = (generation, to) {
            let older = state.generation.is_some_and(|old| new.wrapping_sub(old) > u64::MAX / 2);
            if older {
                return Err(Stale);
            }
            state.generation = Some(new);
        }
        if to == Some(Role::Master) {
            for (id, member) in &mut state.members {
                if *id != self.id && member.role == Role::Master {
                    member.role = Role::Slave;
                    member.demoted.store(true, Ordering::Relaxed);
                    // If the queue is full, the session checks the flag after processing some notices.
                    let _ = member.to.try_send(Notice::Demoted);
                }
            }
        }
        let generation = state.generation.unwrap_or(u64::MAX);
        let Some(own) = state.members.get_mut(&self.id) else { return Ok((Role::Equal, generation)) };
        own.role = to.unwrap_or(own.role);
        if own.role != Role::Slave {
            own.demoted.store(false, Ordering::Relaxed);
        }
        Ok((own.role, generation))
    }

    /// Returns the current generation ID if another controller has become the master, this session's controller is
    /// therefore a slave, and no earlier call has reported this demotion.
    pub fn demotion(&self) -> Option<u64> {
        if !self.demoted.load(Ordering::Relaxed) {
            return None;
        }
        let state = self.manager.state();
        self.demoted.swap(false, Ordering::Relaxed).then(|| state.generation.unwrap_or(u64::MAX))
    }

    /// Returns the number of the session, which is unique among all sessions of the bridge.
    pub fn number(&self) -> u64 {
        self.id
    }

    /// Enables or disables the monitoring of flow entries for this session.
    pub fn monitor(&mut self, on: bool) {
        if on != self.monitoring {
            self.monitoring = on;
            if let Some(member) = self.manager.state().members.get_mut(&self.id) {
                member.monitoring = on;
            }
            self.behind.flag.store(false, Ordering::Relaxed);
            if on {
                self.manager.interest.rules.fetch_add(1, Ordering::Relaxed);
            } else {
                self.manager.interest.rules.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns whether this session monitors flow entries and has missed changes of flow entries.
    pub fn is_behind(&self) -> bool {
        self.monitoring && self.behind.flag.load(Ordering::Relaxed)
    }

    /// Waits until this session monitors flow entries and has missed changes of flow entries.
    pub async fn fell_behind(&self) {
        loop {
            let set = self.behind.set.notified();
            if self.is_behind() {
                return;
            }
            set.await;
        }
    }

    /// Sets whether this session receives table misses (packets that match no flow entry).
    pub fn hear_misses(&mut self, on: bool) {
        if on == self.hearing {
            return;
        }
        self.hearing = on;
        let mut state = self.manager.state();
        state.hearing = if on { state.hearing + 1 } else { state.hearing.saturating_sub(1) };
        self.change = self.manager.changed(state);
    }

    /// Sets whether this session receives copies of other sessions' group and meter requests.
    pub fn hear_requests(&mut self, on: bool) {
        if on != self.hears_requests {
            self.hears_requests = on;
            let requests = &self.manager.interest.requests;
            if on {
                requests.fetch_add(1, Ordering::Relaxed)
            } else {
                requests.fetch_sub(1, Ordering::Relaxed)
            };
        }
    }

    /// Returns the current role of this session's controller. Another session may have changed the
    /// role.
    pub fn current(&self) -> Role {
        self.manager.state().members.get(&self.id).map_or(Role::Equal, |member| member.role)
    }
}

impl Drop for SessionSeat {
    fn drop(&mut self) {
        self.monitor(false);
        self.hear_misses(false);
        self.hear_requests(false);
        let dropped = self.manager.datapath.session_ended(self.id);
        self.lost.add(dropped as u64);
        self.manager.leave(self.id);
    }
}
