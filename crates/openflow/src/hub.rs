//! Where a bridge's sessions meet: its events are shown to all of them, and among controllers there is one master.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use switch::flow::{Event, FlowError, Mod, Origin};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast, mpsc};

use crate::budget;
use crate::datapath::{
    Datapath, Interest, Outcome, Subscription, TableMod, Told, is_about_rules, is_for_all,
};
use crate::wire::{HEADER, Header};

/// What a session is told from outside that it has not taken yet.
const QUEUE: usize = 1024;
/// Octets of memory of the events that a session has not taken yet, at most.
const QUEUE_OCTETS: usize = 32 << 20;
/// Messages, of 64 KiB at most, that wait for the slowest of those who listen to controllers.
const OVERHEARD: usize = 512;

/// What a controller may do (OpenFlow 1.5.1, 6.3.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// Everything, beside others.
    #[default]
    Equal,
    /// Everything, alone of its kind.
    Master,
    /// Look.
    Slave,
}

/// What a session is told.
#[derive(Debug)]
pub(crate) enum Notice {
    /// By the bridge.
    Event(Pending),
    /// Another one is the master now.
    Demoted,
    /// Changes of rules were lost that its monitors should have been told of.
    Behind,
}

/// An event that a session has not taken yet.
#[derive(Debug)]
pub(crate) struct Pending {
    pub told: Arc<Told>,
    /// Octets of memory of all of them.
    octets: Arc<AtomicUsize>,
}

impl Pending {
    /// An event for a session that has not taken events of so many octets, unless these are too many. One event is taken in any case.
    fn new(told: &Arc<Told>, octets: &Arc<AtomicUsize>) -> Option<Pending> {
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
    lost: Arc<AtomicU64>,
    /// Octets of memory of the events that it has not taken yet.
    octets: Arc<AtomicUsize>,
    role: Role,
    controller: bool,
    /// It monitors rules.
    monitoring: bool,
    /// Its monitors were not told of something.
    behind: Arc<AtomicBool>,
}

impl Member {
    /// Hands an event over, where there is room for it.
    fn tell(&self, told: &Arc<Told>) {
        let is_packet = matches!(told.event, Event::PacketIn(_));
        let has_room = !is_packet || self.to.capacity() > QUEUE / 4;
        let pending = if has_room { Pending::new(told, &self.octets) } else { None };
        let sent = pending.is_some_and(|pending| self.to.try_send(Notice::Event(pending)).is_ok());
        if !sent {
            self.lost.fetch_add(1, Ordering::Relaxed);
            if is_about_rules(&told.event) {
                self.is_behind();
            }
        }
    }

    /// Notes that it was not told of a change of rules. Monitors without it would go wrong for ever.
    fn is_behind(&self) {
        if self.monitoring {
            self.behind.store(true, Ordering::Relaxed);
            // Where the queue is full, the session looks when it has taken something from it.
            let _ = self.to.try_send(Notice::Behind);
        }
    }
}

/// What the bridge is told of its sessions as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Standing {
    /// There is a controller that we connected to.
    controllers: bool,
    /// Some session hears of packets that no rule matches.
    misses: bool,
}

#[derive(Default)]
struct State {
    members: HashMap<u64, Member>,
    next: u64,
    /// Sessions that hear of packets that no rule matches.
    hearing: usize,
    generation: Option<u64>,
    /// What the bridge was told last.
    told: Standing,
    /// Changes of members and of what they hear.
    changes: u64,
    /// The last one of those that the bridge was told of.
    changes_told: u64,
    /// A thread tells the bridge.
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

/// See the [module](self).
pub(crate) struct Hub {
    pub datapath: Arc<dyn Datapath>,
    /// What sessions want to hear of; the bridge looks at it.
    interest: Interest,
    /// What controllers and bridge say to each other, while somebody listens.
    said: broadcast::Sender<Arc<[u8]>>,
    /// What the packet-outs of all sessions may take, also of those that have ended.
    pub packet_outs: Arc<Semaphore>,
    /// Octets of memory that the bundles of all sessions take.
    pub bundles: Arc<AtomicUsize>,
    /// The large bundle that is committed or waits for it, of which there is one at a time.
    pub commits: Arc<Semaphore>,
    /// The turn of changes that take a while, of which one is made at a time.
    changes: Arc<Semaphore>,
    state: Mutex<State>,
    /// The bridge was told of changes of sessions.
    told: Notify,
}

/// A session's place in the hub; it leaves by being dropped.
pub(crate) struct Seat {
    hub: Arc<Hub>,
    id: u64,
    monitoring: bool,
    hearing: bool,
    /// The last change of this session that the bridge is told of.
    change: u64,
    /// It hears of the requests of others that change groups and meters.
    hears_requests: bool,
    pub notices: mpsc::Receiver<Notice>,
    pub lost: Arc<AtomicU64>,
    behind: Arc<AtomicBool>,
}

/// The generation is older than one that was seen.
#[derive(Debug)]
pub(crate) struct Stale;

impl Hub {
    pub fn new(datapath: Arc<dyn Datapath>, interest: Interest) -> Arc<Hub> {
        let said = broadcast::Sender::new(OVERHEARD);
        let packet_outs = budget::of_bridge();
        let (commits, changes) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(1)));
        let bundles = Arc::default();
        let (state, told) = (Mutex::default(), Notify::new());
        Arc::new(Hub { datapath, interest, said, packet_outs, bundles, commits, changes, state, told })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can leave half a change behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears what controllers and bridge say from now on; who is slow misses some of it.
    pub fn listen(&self) -> broadcast::Receiver<Arc<[u8]>> {
        self.said.subscribe()
    }

    /// Lets listeners hear whole messages of a controller, or to one. Waits for nobody.
    pub fn overhear(&self, mut messages: &[u8]) {
        if self.said.receiver_count() == 0 {
            return;
        }
        while let Some(head) = Header::read(messages)
            && let Some((message, rest)) = messages.split_at_checked(usize::from(head.length).max(HEADER))
        {
            // The last listener may just have gone.
            let _ = self.said.send(message.into());
            messages = rest;
        }
    }

    /// A place for a session; `controller`: one that we connected to. The bridge knows of it once [`Seat::told`] is ready.
    pub fn join(self: &Arc<Self>, controller: bool) -> Seat {
        let (to, notices) = mpsc::channel(QUEUE);
        let (lost, behind) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        let member = Member {
            to,
            lost: Arc::clone(&lost),
            octets: Arc::default(),
            role: Role::Equal,
            controller,
            monitoring: false,
            behind: Arc::clone(&behind),
        };
        state.members.insert(id, member);
        let change = if controller { self.changed(state) } else { 0 };
        let hub = Arc::clone(self);
        let (monitoring, hearing, hears_requests) = (false, false, false);
        Seat { hub, id, monitoring, hearing, hears_requests, change, notices, lost, behind }
    }

    fn leave(self: &Arc<Self>, id: u64) {
        let mut state = self.state();
        if state.members.remove(&id).is_some_and(|member| member.controller) {
            self.changed(state);
        }
    }

    /// Lets the bridge be told of a change of sessions, on a thread that may wait for the bridge's rules. Gives the number of the last change.
    fn changed(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> u64 {
        if state.standing() != state.told || state.telling {
            state.changes += 1;
        }
        let change = state.changes;
        if state.standing() == state.told || std::mem::replace(&mut state.telling, true) {
            return change;
        }
        drop(state);
        let hub = Arc::clone(self);
        let tell = move || while hub.tell() {};
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(tell)),
            Err(_) => tell(),
        }
        change
    }

    /// Tells the bridge how things stand, if it does not know; whether to look again.
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

    /// Whether a change is under way that takes a while: whoever asks the bridge for something would hold a thread up meanwhile.
    pub fn is_changing(&self) -> bool {
        self.changes.available_permits() == 0
    }

    /// Waits for the turn of a change that takes a while. `None` never comes: the semaphore is not closed.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.changes).acquire_owned().await.ok()
    }

    /// The turn of a change that takes a while, unless another one has it.
    pub fn try_turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.changes).try_acquire_owned().ok()
    }

    /// Makes changes: at once, or where they hold nobody up.
    pub async fn modify(&self, changes: Vec<Mod>, origin: Origin) -> Outcome {
        let changes = match self.datapath.modify_soon(changes, origin) {
            Ok(done) => return done,
            Err(changes) => changes,
        };
        let turn = self.turn().await;
        let datapath = Arc::clone(&self.datapath);
        let made = move || {
            // Kept until the change is made, also where the session ends meanwhile.
            let _turn = turn;
            datapath.modify_for(changes, origin)
        };
        match tokio::task::spawn_blocking(made).await {
            Ok(done) => done,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    /// Changes how a table, or all tables, are configured: at once, or where it holds nobody up.
    pub async fn table_mod(&self, change: TableMod) -> Result<(), FlowError> {
        if let Some(done) = self.datapath.table_mod_soon(&change) {
            return done;
        }
        let turn = self.turn().await;
        let datapath = Arc::clone(&self.datapath);
        let made = move || {
            // Kept until the change is made, also where the session ends meanwhile.
            let _turn = turn;
            datapath.table_mod(&change)
        };
        match tokio::task::spawn_blocking(made).await {
            Ok(done) => done,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    /// Shows an event to all that it is for. Packets leave the last quarter of a session's queue to everything else.
    fn show(&self, told: Told) {
        let for_all = is_for_all(&told.event);
        let told = Arc::new(told);
        for member in self.state().members.values() {
            if let Event::Lost(count) = told.event {
                member.lost.fetch_add(count, Ordering::Relaxed);
                member.is_behind();
            } else if for_all || member.monitoring {
                member.tell(&told);
            }
        }
    }

    /// Shows the bridge's events until it has none any more.
    pub async fn run(self: Arc<Self>, mut subscription: Subscription) {
        while let Some(told) = subscription.events.recv().await {
            if subscription.missed.swap(0, Ordering::Relaxed) > 0 {
                self.state().members.values().for_each(Member::is_behind);
            }
            self.show(told);
        }
    }
}

impl Seat {
    /// Waits until the bridge knows what this session has changed.
    pub async fn told(&self) {
        loop {
            let told = self.hub.told.notified();
            if self.hub.state().changes_told >= self.change {
                return;
            }
            told.await;
        }
    }

    /// Changes this session's role; `None`: only says what it is. The generation that counts comes back.
    pub fn role(&self, to: Option<Role>, generation: Option<u64>) -> Result<(Role, u64), Stale> {
        let mut state = self.hub.state();
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
                    if member.to.try_send(Notice::Demoted).is_err() {
                        member.lost.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
        let generation = state.generation.unwrap_or(u64::MAX);
        let Some(own) = state.members.get_mut(&self.id) else { return Ok((Role::Equal, generation)) };
        own.role = to.unwrap_or(own.role);
        Ok((own.role, generation))
    }

    /// The number of the session, which no other session of the bridge has.
    pub fn number(&self) -> u64 {
        self.id
    }

    /// Says whether this session monitors rules.
    pub fn monitor(&mut self, on: bool) {
        if on != self.monitoring {
            self.monitoring = on;
            if let Some(member) = self.hub.state().members.get_mut(&self.id) {
                member.monitoring = on;
            }
            self.behind.store(false, Ordering::Relaxed);
            if on {
                self.hub.interest.rules.fetch_add(1, Ordering::Relaxed);
            } else {
                self.hub.interest.rules.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether this session monitors rules, and was not told of all changes.
    pub fn is_behind(&self) -> bool {
        self.monitoring && self.behind.load(Ordering::Relaxed)
    }

    /// Says whether this session hears of packets that no rule matches.
    pub fn hear_misses(&mut self, on: bool) {
        if on == self.hearing {
            return;
        }
        self.hearing = on;
        let mut state = self.hub.state();
        state.hearing = if on { state.hearing + 1 } else { state.hearing.saturating_sub(1) };
        self.change = self.hub.changed(state);
    }

    /// Says whether this session hears of the requests of others that change groups and meters.
    pub fn hear_requests(&mut self, on: bool) {
        if on != self.hears_requests {
            self.hears_requests = on;
            let requests = &self.hub.interest.requests;
            if on {
                requests.fetch_add(1, Ordering::Relaxed)
            } else {
                requests.fetch_sub(1, Ordering::Relaxed)
            };
        }
    }

    /// This session's role, which another one may have changed.
    pub fn current(&self) -> Role {
        self.hub.state().members.get(&self.id).map_or(Role::Equal, |member| member.role)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.monitor(false);
        self.hear_misses(false);
        self.hear_requests(false);
        let dropped = self.hub.datapath.session_ended(self.id);
        self.lost.fetch_add(dropped as u64, Ordering::Relaxed);
        self.hub.leave(self.id);
    }
}
