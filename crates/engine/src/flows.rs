//! What a worker and the decider have between them: the rings, cached flows, and the bridges whose packets go by OpenFlow's rules.
//!
//! ```text
//!            Upcall (packet of an unknown flow)                  FlowTables: one bridge's rules, locked by control threads only
//!   worker ------------------------------------> decider ------------------+
//!     |  <------------------------------------      |   translate, revalidate, count
//!     |      Answer (packet back, flow, removal)    |
//!     +-------------------------------------------->+
//!            Told (where it stands, that it is gone, how far it has come)
//! ```
//!
//! A cached flow belongs to the decider, which made it; the worker counts in it ([`Live`]) and does what it says ([`Compiled`]).

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "tables are locked by control threads, which wait by the clock; a worker never asks them"
)]

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use lookup::FlowRef;
use packet::{DropReason, FlowKey, PortId};
use port::Packet;
use switch::Bridge;
use switch::flow::{BandKind, Beyond, DecidedPacket, Event, Meter, Op, PacketOut, Pipeline, Program};
use sync::counter::Counter;
use sync::spsc::{Consumer, Producer};
use sync::token_bucket::TokenBucket;
use sync::wake::Waker;

use crate::packet_outs::{Outgoing, PacketOuts, Queued};

/// Words beyond the key that caches know.
pub const BEYOND: usize = 7;
/// Packets of unknown flows that one worker's ring holds.
pub const UPCALLS: usize = 2048;
/// Answers that one worker's ring holds.
pub const ANSWERS: usize = 8192;

/// For how long a thread sleeps before it looks again whether it may have the rules.
const YIELDS: Duration = Duration::from_micros(50);
/// For how long the slow path looks for the rules without a sleep between.
const SPINS: Duration = Duration::from_micros(50);
/// For how long the slow path waits for the rules before it goes on with other bridges.
const PATIENCE: Duration = Duration::from_millis(1);
/// For how long control threads let the slow path go first when it has claimed the rules.
const CLAIM: Duration = Duration::from_millis(100);

/// A bridge whose packets go by OpenFlow's rules, as workers see it.
pub struct FlowBridge {
    /// Its rules.
    pub tables: Arc<FlowTables>,
    /// Decides where a rule says `NORMAL`.
    pub bridge: Arc<Bridge>,
}

/// What has happened on a bridge goes to whoever listens.
pub type Listener = Arc<dyn Fn(Vec<Event>) + Send + Sync>;

/// A request to the decider.
pub(crate) enum Asked {
    /// Tell when caches agree with the tables.
    Barrier(Box<dyn FnOnce() + Send>),
    /// Tell the flows that workers have.
    Dump(std::sync::mpsc::SyncSender<crate::decider::MegaflowView>),
    /// Have workers throw them away, and tell when all are told to.
    Purge(Box<dyn FnOnce() + Send>),
}

/// The rules of one bridge, with what control threads and the decider need around them.
pub struct FlowTables {
    number: u16,
    pipeline: Mutex<Pipeline>,
    /// The control thread that waits for the rules, one at a time.
    turn: Mutex<()>,
    /// The slow path waits for the rules: control threads let it go first.
    packets_wait: AtomicBool,
    pub(crate) asked: Mutex<Vec<Asked>>,
    packet_outs: Mutex<PacketOuts>,
    listener: Mutex<Option<Listener>>,
    waker: Arc<Waker>,
    /// Rules see one VLAN tag of a packet instead of two.
    one_tag: AtomicBool,
    /// Packets that met no cached flow.
    pub(crate) upcalls: AtomicU64,
    /// Flows that the driver hook has.
    pub(crate) hooked: AtomicU64,
}

impl FlowTables {
    /// The tables of the bridge of this number, whose decider is woken so.
    #[must_use]
    pub fn new(number: u16, pipeline: Pipeline, waker: Arc<Waker>) -> FlowTables {
        FlowTables {
            number,
            pipeline: Mutex::new(pipeline),
            turn: Mutex::new(()),
            packets_wait: AtomicBool::new(false),
            asked: Mutex::new(Vec::new()),
            packet_outs: Mutex::default(),
            listener: Mutex::new(None),
            waker,
            one_tag: AtomicBool::new(false),
            upcalls: AtomicU64::new(0),
            hooked: AtomicU64::new(0),
        }
    }

    /// The bridge's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The rules. Hold them shortly: packets of unknown flows wait meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Pipeline> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // However many control threads want the rules again and again, the slow path waits for one of them at most. A claim that the slow path
        // has forgotten, as it serves the bridge no more, ends.
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

    /// Whether a control thread could have the rules by a deadline.
    #[must_use]
    pub fn is_free_by(&self, deadline: Instant) -> bool {
        loop {
            match self.pipeline.try_lock() {
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(YIELDS),
                tried => return !matches!(tried, Err(TryLockError::WouldBlock)),
            }
        }
    }

    /// The rules, if no thread has them or waits for them.
    #[must_use]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, Pipeline>> {
        let _turn = self.turn.try_lock().ok()?;
        if self.packets_wait.load(Ordering::Acquire) {
            return None;
        }
        self.pipeline.try_lock().ok()
    }

    /// The rules for the slow path, of which there is one thread: before all control threads that wait for them. `None`: a control thread holds
    /// them for long. The slow path goes on with other bridges then and comes back; its claim to the rules stays until it has had them.
    pub(crate) fn lock_for_packets(&self) -> Option<MutexGuard<'_, Pipeline>> {
        // The first wait is the only one for as long as a thread holds the rules.
        let patience = if self.packets_wait.load(Ordering::Relaxed) { Duration::ZERO } else { PATIENCE };
        self.lock_for_packets_within(patience)
    }

    /// As [`FlowTables::lock_for_packets`], with another patience.
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
                // Most threads hold the rules for less than it takes to sleep.
                waited if waited < SPINS => std::thread::yield_now(),
                _ => std::thread::sleep(YIELDS),
            }
        }
    }

    /// The slow path has had the rules.
    fn had<'a>(&self, pipeline: MutexGuard<'a, Pipeline>) -> MutexGuard<'a, Pipeline> {
        if self.packets_wait.load(Ordering::Relaxed) {
            self.forget_claim();
        }
        pipeline
    }

    /// The slow path waits for the rules no more.
    pub(crate) fn forget_claim(&self) {
        self.packets_wait.store(false, Ordering::Release);
    }

    /// Changes the rules, and tells listeners and the decider.
    pub fn change<T>(&self, change: impl FnOnce(&mut Pipeline) -> T) -> T {
        self.change_locked(self.lock(), change)
    }

    /// As [`FlowTables::change`] where the rules can be had at once; `None`: nothing was done.
    pub fn try_change<T>(&self, change: impl FnOnce(&mut Pipeline) -> T) -> Option<T> {
        Some(self.change_locked(self.try_lock()?, change))
    }

    fn change_locked<T>(
        &self,
        mut pipeline: MutexGuard<'_, Pipeline>,
        change: impl FnOnce(&mut Pipeline) -> T,
    ) -> T {
        let done = change(&mut pipeline);
        let events = pipeline.take_events();
        drop(pipeline);
        self.publish(events);
        self.waker.notify_if_sleeping();
        done
    }

    /// Says whether rules see one VLAN tag of a packet instead of two.
    pub fn set_one_tag(&self, one_tag: bool) {
        self.change(|pipeline| pipeline.set_one_tag(one_tag));
        self.one_tag.store(one_tag, Ordering::Relaxed);
    }

    /// Whether rules see one VLAN tag of a packet instead of two.
    #[inline]
    pub(crate) fn sees_one_tag(&self) -> bool {
        self.one_tag.load(Ordering::Relaxed)
    }

    /// Who is told what happens; one at a time.
    pub fn listen(&self, listener: Option<Listener>) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = listener;
    }

    pub(crate) fn publish(&self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(listener) = listener {
            listener(events);
        }
    }

    pub(crate) fn ask(&self, what: Asked) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(what);
        self.waker.notify();
    }

    /// Calls `done` once no worker meets a decision older than the rules as they are now.
    pub fn barrier(&self, done: impl FnOnce() + Send + 'static) {
        self.ask(Asked::Barrier(Box::new(done)));
    }

    /// Sends a controller's packet through actions or tables. Packet-outs of one session keep their order, and sessions take turns.
    ///
    /// The queue has no limit of its own. `reservation` stands for the room that the session has reserved for the packet; the reservation is
    /// dropped when the slow path has decided the packet, or when the bridge goes.
    pub fn packet_out(&self, session: u64, packet: PacketOut, reservation: impl Any + Send) {
        self.queue_packet_out(session, Outgoing::Asked(Box::new(packet)), Box::new(reservation));
    }

    /// Sends a packet that a batch of changes has decided, behind the packet-outs of the session that wait. `reservation` is as with
    /// [`FlowTables::packet_out`].
    pub fn send_decided(&self, session: u64, packet: DecidedPacket, reservation: impl Any + Send) {
        self.queue_packet_out(session, Outgoing::Decided(Box::new(packet)), Box::new(reservation));
    }

    fn queue_packet_out(&self, session: u64, packet: Outgoing, reservation: Box<dyn Any + Send>) {
        let queued = Queued { packet, reservation };
        self.packet_outs.lock().unwrap_or_else(PoisonError::into_inner).push(session, queued);
        self.waker.notify();
    }

    /// Drops the packet-outs of a session that still wait, and returns how many these were.
    pub fn drop_packet_outs(&self, session: u64) -> usize {
        let dropped = self.packet_outs.lock().unwrap_or_else(PoisonError::into_inner).purge(session);
        dropped.len()
    }

    /// Takes the packet-out whose turn comes next.
    pub(crate) fn next_packet_out(&self) -> Option<Queued> {
        self.packet_outs.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Whether barriers, dumps or the like wait for the slow path.
    pub(crate) fn has_requests(&self) -> bool {
        !self.asked.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whether packet-outs wait for the slow path.
    pub(crate) fn has_packet_outs(&self) -> bool {
        !self.packet_outs.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Packets that met no cached flow so far.
    #[must_use]
    pub fn upcalls(&self) -> u64 {
        self.upcalls.load(Ordering::Relaxed)
    }

    /// Cached flows that the driver hook answers for, at the moment.
    #[must_use]
    pub fn hooked(&self) -> u64 {
        self.hooked.load(Ordering::Relaxed)
    }
}

/// What a cached flow has done.
#[derive(Debug, Default)]
pub struct Live {
    /// Packets.
    pub packets: Counter,
    /// Octets.
    pub bytes: Counter,
    /// When the last came, in nanoseconds.
    pub used_ns: Counter,
}

/// A band at work.
struct BandLive {
    kind: BandKind,
    bucket: TokenBucket,
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// A meter at work: buckets are shared by all workers.
pub struct MeterLive {
    pub(crate) meter: Meter,
    bands: Vec<BandLive>,
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// What a meter says of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Metered {
    Passes,
    Drops,
    /// Raise the drop precedence by so much.
    Remarks(u8),
}

impl MeterLive {
    pub(crate) fn new(meter: &Meter, now_ns: u64) -> MeterLive {
        let band = |band: &switch::flow::Band| {
            // A burst of 0 is one second's worth, as in Open vSwitch's documentation.
            let burst = if band.burst == 0 { band.rate } else { band.burst };
            let (rate, burst) = if meter.packets {
                (u64::from(band.rate), burst)
            } else {
                // In octets. What does not fit into the bucket's range is as good as no limit of bursts.
                (u64::from(band.rate) * 125, burst.saturating_mul(125))
            };
            let bucket = TokenBucket::new(rate, burst, now_ns);
            BandLive { kind: band.kind, bucket, packets: AtomicU64::new(0), bytes: AtomicU64::new(0) }
        };
        MeterLive {
            meter: meter.clone(),
            bands: meter.bands.iter().map(band).collect(),
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// The band of the highest rate that is exceeded decides (OpenFlow 1.3, 5.7.1).
    pub(crate) fn pass(&self, len: usize, now_ns: u64) -> Metered {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(u64::from(len), Ordering::Relaxed);
        let want = if self.meter.packets { 1 } else { len };
        let mut exceeded: Option<(u32, &BandLive)> = None;
        for (band, live) in self.meter.bands.iter().zip(&self.bands) {
            let granted = live.bucket.take(now_ns, want);
            if granted < want {
                live.bucket.give_back(granted);
                if exceeded.is_none_or(|(rate, _)| band.rate > rate) {
                    exceeded = Some((band.rate, live));
                }
            }
        }
        let Some((_, band)) = exceeded else { return Metered::Passes };
        band.packets.fetch_add(1, Ordering::Relaxed);
        band.bytes.fetch_add(u64::from(len), Ordering::Relaxed);
        match band.kind {
            BandKind::Drop => Metered::Drops,
            BandKind::DscpRemark(raise) => Metered::Remarks(raise),
        }
    }

    /// Takes what was counted since the last call.
    pub(crate) fn take(&self) -> (u64, u64, Vec<(u64, u64)>) {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let bands = self.bands.iter().map(|band| (take(&band.packets), take(&band.bytes)));
        (take(&self.packets), take(&self.bytes), bands.collect())
    }
}

/// A program as workers do it.
pub struct Compiled {
    /// The steps.
    pub program: Program,
    /// What most programs come to.
    pub(crate) kind: Kind,
    /// Its meters by their numbers.
    pub(crate) meters: Vec<(u32, Arc<MeterLive>)>,
    /// Why packets end, when they leave nowhere.
    pub(crate) dropped: DropReason,
}

/// What a program comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Unchanged, by one port.
    Output(PortId),
    /// Unchanged, as the learning bridge says.
    Normal,
    /// Nowhere.
    Drop,
    /// Step by step.
    Steps,
}

impl Compiled {
    pub(crate) fn new(program: Program, dropped: DropReason, meters: Vec<(u32, Arc<MeterLive>)>) -> Compiled {
        let kind = match (program.plain_output(), program.is_normal(), program.is_drop()) {
            (Some(port), ..) => Kind::Output(port),
            (_, true, _) => Kind::Normal,
            (.., true) if !program.ops.iter().any(|op| matches!(op, Op::Meter(_))) => Kind::Drop,
            _ => Kind::Steps,
        };
        Compiled { program, kind, meters, dropped }
    }

    /// The meter of a number; `None`: there is none.
    pub(crate) fn meter(&self, id: u32) -> Option<&MeterLive> {
        let at = self.meters.binary_search_by_key(&id, |(own, _)| *own).ok()?;
        Some(&self.meters[at].1)
    }

    /// Whether packets meet the same fate, meters included.
    pub(crate) fn is_same(
        &self,
        program: &Program,
        dropped: DropReason,
        meters: &[(u32, Arc<MeterLive>)],
    ) -> bool {
        self.program == *program
            && (self.kind != Kind::Drop || self.dropped == dropped)
            && self.meters.len() == meters.len()
            && self.meters.iter().zip(meters).all(|(own, other)| Arc::ptr_eq(&own.1, &other.1))
    }
}

/// A flow in a worker's cache.
pub struct CachedFlow {
    /// Its number at the decider's.
    pub(crate) id: u32,
    pub(crate) compiled: Arc<Compiled>,
    pub(crate) live: Arc<Live>,
}

/// A packet of an unknown flow.
pub(crate) struct Upcall {
    pub bridge: Arc<FlowBridge>,
    pub port: PortId,
    pub packet: Packet,
    pub key: FlowKey,
    pub beyond: Beyond,
}

/// A flow for the cache. Its box goes back empty.
#[derive(Default)]
pub(crate) struct Install {
    pub id: u32,
    pub key: FlowKey,
    pub mask: FlowKey,
    pub beyond: Beyond,
    pub beyond_mask: Beyond,
    pub flow: Option<CachedFlow>,
}

/// What the decider says to a worker.
pub(crate) enum Answer {
    /// A packet back: what is to be done with it. `key` is the one that it was asked by; `None`: a controller's.
    Release {
        bridge: Arc<FlowBridge>,
        port: PortId,
        packet: Packet,
        key: Option<FlowKey>,
        compiled: Arc<Compiled>,
    },
    /// A flow.
    Install(Box<Install>),
    /// Another fate for a flow.
    Replace(FlowRef, Arc<Compiled>),
    /// A flow goes.
    Remove(FlowRef),
    /// Tell when you have come here.
    Sync(u64),
}

/// What a worker says to the decider.
pub(crate) enum Told {
    /// The flow stands there; `None`: the cache has no room.
    Installed(u32, Option<FlowRef>, Box<Install>),
    /// It is gone.
    Removed(CachedFlow),
    /// Its old fate is not used any more.
    Replaced(Arc<Compiled>),
    /// It has come so far.
    Synced(u64),
}

/// A worker's ends of the rings.
pub struct WorkerFlows {
    pub(crate) upcalls: Producer<Upcall>,
    pub(crate) answers: Consumer<Answer>,
    pub(crate) told: Producer<Told>,
    pub(crate) waker: Arc<Waker>,
}

/// The decider's ends of one worker's rings.
pub(crate) struct WorkerEnd {
    pub upcalls: Consumer<Upcall>,
    pub answers: Producer<Answer>,
    pub told: Consumer<Told>,
    pub waker: Arc<Waker>,
}

/// Rings between one worker and the decider.
pub(crate) fn rings(decider: &Arc<Waker>, worker: &Arc<Waker>) -> (WorkerFlows, WorkerEnd) {
    use sync::spsc::channel;
    let (upcalls, asked) = channel(UPCALLS);
    let (answers, answered) = channel(ANSWERS);
    let (told, heard) = channel(2 * ANSWERS);
    (
        WorkerFlows { upcalls, answers: answered, told, waker: Arc::clone(decider) },
        WorkerEnd { upcalls: asked, answers, told: heard, waker: Arc::clone(worker) },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use switch::flow::Band;

    /// Whoever has the rules and wants them again at once comes behind the slow path that waits for them.
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

    /// The slow path does not wait for rules that a control thread holds for long. Its claim lasts until it has had them, or until a control
    /// thread has waited long enough.
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
        // The slow path does not come back.
        let held = tables.lock();
        assert!(tables.lock_for_packets().is_none());
        drop(held);
        drop(tables.lock());
        assert!(tables.try_lock().is_some());
    }

    /// A band that remarks lets its exact rate pass untouched, however irregular the packets and pauses are, as long as none of these is longer
    /// than the burst lasts: in packets and in kilobits, one flow or several sharing the meter.
    #[test]
    fn a_remarking_band_passes_its_rate() {
        for (packets, rate, want) in [(true, 1000, 10_000), (false, 8000, 10_000_000)] {
            let band = Band { kind: BandKind::DscpRemark(1), rate, burst: 0 };
            let meter = Meter { id: 1, packets, bursts: false, stats: true, bands: vec![band] };
            let live = MeterLive::new(&meter, 0);
            let (mut now, mut passed, mut step) = (0_u64, 0_u64, 7_u64);
            while now < 10_000_000_000 {
                step = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Bursts of a few packets at one time, on average three times the rate; now and then a pause of 0.9 s.
                now += if step >> 58 == 0 && step >> 50 & 0xff == 0 {
                    900_000_000
                } else {
                    step >> 44 & 0xf_ffff
                };
                for _ in 0..3 {
                    let len = 200 + usize::try_from(step >> 54).unwrap();
                    if live.pass(len, now) == Metered::Passes {
                        passed += if packets { 1 } else { len as u64 };
                    }
                }
            }
            // The first burst is one second's worth.
            let due = want + want / 10;
            assert!(passed <= due + 1500 && passed > due - want / 50, "{passed} of {due}");
        }
    }
}
