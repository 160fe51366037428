//! The bridge's stage on the packet's path: a burst of flow keys in, a decision for each out.
//!
//! Two passes. The first admits each frame to its VLAN (IEEE 802.1Q clause 8.6.2), hashes source and destination and
//! fetches their buckets. The second takes the frames in order: source (learning process, 8.7), then destination
//! (forwarding process, 8.6), so that the outcome is that of frames handled one by one. Storm limits come last: a
//! burst leases its tokens in one step for each run of frames of the same port.
//!
//! With [`Recorder::DRY`] nothing is learned, refreshed or taken, and the decision is the one that the real frame would
//! meet. (Two refusals cannot be foreseen without trying: full or contended buckets of the MAC table.)

use packet::record::{FloodClass, Recorder, Step};
use packet::{DropReason, FlowKey, Layers, MacAddr};
use sync::mac_table::{BucketIndex, Hit};

use crate::bridge::Bridge;
use crate::config::Now;
use crate::decision::{Decision, TagForm};
use crate::member::{Member, class_index, storm_reason};
use crate::tables::{Learned, Station, station_key};

/// Frames handled in one go; longer bursts are cut.
const BURST: usize = 256;

/// A frame between the passes.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    source: u64,
    destination: u64,
    source_at: At,
    destination_at: At,
    vid: u16,
    slot: u16,
    form: TagForm,
    refused: Option<DropReason>,
}

type At = Option<BucketIndex>;

/// A worker's own working space for [`Bridge::forward`]; made once, so that the data path allocates nothing.
#[derive(Debug)]
pub struct Scratch {
    lanes: Box<[Lane; BURST]>,
    /// Frames that a storm limit is to judge: place in the burst.
    judged: Vec<u16>,
}

impl Scratch {
    /// Room for bursts of any length.
    pub fn new() -> Scratch {
        Scratch { lanes: Box::new([Lane::default(); BURST]), judged: Vec::with_capacity(BURST) }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch::new()
    }
}

impl Bridge {
    /// Decides about a burst of frames that came in by members of this bridge, in their order.
    ///
    /// `layers` and `out` are as long as `keys` (what is longer is ignored). The keys' L3 fields are read only for group
    /// destinations of a snooping bridge, and only where `layers` shows an L3 header: others do with
    /// [`FlowKey::extract_l2`]. A frame of a port that is no member is dropped as [`DropReason::NoRoom`].
    pub fn forward<R: Recorder>(
        &self,
        keys: &[FlowKey],
        layers: &[Layers],
        now: Now,
        scratch: &mut Scratch,
        out: &mut [Decision],
        recorder: &mut R,
    ) {
        let bursts = keys.chunks(BURST).zip(layers.chunks(BURST)).zip(out.chunks_mut(BURST));
        for (number, ((keys, layers), out)) in bursts.enumerate() {
            let mut pass = Pass { bridge: self, now, first: number * BURST, recorder };
            pass.admit(keys, &mut scratch.lanes);
            scratch.judged.clear();
            let frames = keys.iter().zip(layers).zip(scratch.lanes.iter()).zip(out.iter_mut());
            for (at, (((key, layers), lane), out)) in (0u16..).zip(frames) {
                *out = pass.decide(at, key, layers, lane, &mut scratch.judged);
            }
            if !scratch.judged.is_empty() {
                pass.judge_storms(&scratch.judged, &scratch.lanes, out);
            }
            if R::ACTIVE {
                for (at, decision) in out.iter().enumerate() {
                    pass.record_outcome(at, decision);
                }
            }
        }
    }
}

/// One burst under way.
struct Pass<'a, R> {
    bridge: &'a Bridge,
    now: Now,
    /// Place of the burst's first frame in the caller's numbering.
    first: usize,
    recorder: &'a mut R,
}

impl<R: Recorder> Pass<'_, R> {
    /// First pass: VLANs, hashes, prefetches.
    #[inline]
    fn admit(&mut self, keys: &[FlowKey], lanes: &mut [Lane; BURST]) {
        let (view, table) = (&*self.bridge.view, self.bridge.tables.table());
        for (at, (key, lane)) in keys.iter().zip(lanes.iter_mut()).enumerate() {
            let Some(slot) = view.slot(key.in_port()) else {
                lane.refused = Some(DropReason::NoRoom);
                continue;
            };
            let member = &view.members[usize::from(slot)];
            if R::ACTIVE {
                self.recorder.step(self.first + at, Step::Bridge(view.id));
            }
            let (source, destination) = (key.eth_src().as_u64(), key.eth_dst().as_u64());
            let ingress = match checked(source, destination).and_then(|()| member.admit(key)) {
                Ok(ingress) => ingress,
                Err(reason) => {
                    lane.refused = Some(reason);
                    continue;
                }
            };
            if R::ACTIVE {
                let source = member.vlan_source(ingress.form);
                self.recorder.step(self.first + at, Step::Vlan { vid: ingress.vid, source });
            }
            let (source, destination) =
                (station_key(ingress.vid, source), station_key(ingress.vid, destination));
            *lane = Lane {
                source,
                destination,
                source_at: Some(table.prefetch(source)),
                destination_at: (!is_group(destination)).then(|| table.prefetch(destination)),
                vid: ingress.vid,
                slot,
                form: ingress.form,
                refused: None,
            };
        }
    }

    /// Second pass, one frame.
    #[inline]
    fn decide(
        &mut self,
        at: u16,
        key: &FlowKey,
        layers: &Layers,
        lane: &Lane,
        judged: &mut Vec<u16>,
    ) -> Decision {
        let view = &*self.bridge.view;
        let (None, Some(source_at)) = (lane.refused, lane.source_at) else {
            return Decision::Drop(lane.refused.unwrap_or(DropReason::NoRoom));
        };
        let member = &view.members[usize::from(lane.slot)];
        let table = self.bridge.tables.table();
        match table.lookup_at(source_at, lane.source) {
            Some(hit) if hit.value == Station::learned(member.port).0 && !R::ACTIVE => {
                if hit.age != self.now.secs && member.learning {
                    table.refresh(hit.slot, lane.source, self.now.secs);
                }
            }
            hit => {
                if let Err(reason) = self.source(at, member, lane, source_at, hit) {
                    return Decision::Drop(reason);
                }
            }
        }
        let decision = match lane.destination_at {
            Some(destination_at) => self.unicast(at, member, lane, destination_at),
            None => self.bridge.multicast(key, layers, lane.vid, lane.form),
        };
        if member.limited && class_of(&decision).is_some_and(|class| member.bucket(class).is_some()) {
            judged.push(at);
        }
        decision
    }

    /// The learning process for a source that is not simply known on its port.
    #[inline(never)]
    fn source(
        &mut self,
        at: u16,
        member: &Member,
        lane: &Lane,
        source_at: BucketIndex,
        hit: Option<Hit>,
    ) -> Result<(), DropReason> {
        let mac = MacAddr::from_u64(lane.source);
        let known = hit.map(|hit| Station(hit.value));
        if let Some(station) = known.filter(|station| station.is_static()) {
            return self.static_source(at, member, mac, station);
        }
        if known.is_some_and(|station| station.port() == member.port) {
            if let Some(hit) = hit.filter(|_| member.learning && !R::DRY) {
                self.bridge.tables.table().refresh(hit.slot, lane.source, self.now.secs);
            }
            self.step(at, Step::SourceKnown { mac, is_static: false });
            return Ok(());
        }
        if !member.learning {
            self.step(at, Step::NotLearned { mac, why: "learning is switched off on the port" });
            return Ok(());
        }
        let (tables, limits) = (&self.bridge.tables, self.bridge.view.limits(member));
        let learned = if R::DRY {
            match (tables.refusal(member.port, known.is_some(), limits), known) {
                (Some(why), _) => Learned::Refused(why),
                (None, Some(station)) => Learned::Moved(station.port()),
                (None, None) => Learned::New,
            }
        } else {
            tables.learn(source_at, lane.source, member.port, known.is_some(), limits, self.now.secs)
        };
        match learned {
            Learned::New => self.step(at, Step::Learned { mac, from: None }),
            Learned::Moved(from) => self.step(at, Step::Learned { mac, from: Some(from) }),
            Learned::Already => self.step(at, Step::SourceKnown { mac, is_static: false }),
            Learned::Refused(why) => self.step(at, Step::NotLearned { mac, why }),
            Learned::Static(station) => return self.static_source(at, member, mac, station),
        }
        Ok(())
    }

    fn static_source(
        &mut self,
        at: u16,
        member: &Member,
        mac: MacAddr,
        station: Station,
    ) -> Result<(), DropReason> {
        if station.discards() {
            return Err(DropReason::FdbDiscard);
        }
        if station.port() != member.port {
            return Err(DropReason::SourceStaticMoved);
        }
        self.step(at, Step::SourceKnown { mac, is_static: true });
        Ok(())
    }

    /// The forwarding process for an individual address.
    #[inline]
    fn unicast(&mut self, at: u16, member: &Member, lane: &Lane, destination_at: BucketIndex) -> Decision {
        let view = &*self.bridge.view;
        let unknown =
            Decision::Flood { vid: lane.vid, class: FloodClass::Unknown, form: lane.form, punt: false };
        if R::DRY && lane.source == lane.destination && self.would_be_here(member, lane) {
            return Decision::Drop(DropReason::SamePort);
        }
        let Some(hit) = self.bridge.tables.table().lookup_at(destination_at, lane.destination) else {
            return unknown;
        };
        let station = Station(hit.value);
        if R::ACTIVE && !station.discards() {
            let age = self.now.secs.wrapping_sub(hit.age);
            let age = if station.is_static() { 0 } else { age };
            let mac = MacAddr::from_u64(lane.destination);
            let step = Step::Found { mac, port: station.port(), age, is_static: station.is_static() };
            self.step(at, step);
        }
        if station.is_static() {
            return self.static_destination(member, lane, station);
        }
        if station.port() == member.port {
            return Decision::Drop(DropReason::SamePort);
        }
        // A port or VLAN that is gone means an entry that awaits its flush: not believed.
        let target = view.member(station.port());
        match target.and_then(|target| Some((target, target.egress(lane.vid)?))) {
            Some((target, tagged)) => deliver(member, target, lane, tagged),
            None => unknown,
        }
    }

    #[cold]
    fn static_destination(&self, member: &Member, lane: &Lane, station: Station) -> Decision {
        if station.discards() {
            return Decision::Drop(DropReason::FdbDiscard);
        }
        if station.port() == member.port {
            return Decision::Drop(DropReason::SamePort);
        }
        let target = self.bridge.view.member(station.port());
        match target.and_then(|target| Some((target, target.egress(lane.vid)?))) {
            Some((target, tagged)) => deliver(member, target, lane, tagged),
            None => Decision::Drop(DropReason::NoMember),
        }
    }

    /// Whether the real frame would have found its own source address here, in a dry run that learned nothing.
    #[cold]
    fn would_be_here(&self, member: &Member, lane: &Lane) -> bool {
        let tables = &self.bridge.tables;
        let known = tables.table().lookup(lane.source);
        let limits = self.bridge.view.limits(member);
        let here = known.is_some_and(|hit| Station(hit.value).port() == member.port);
        here || member.learning && tables.refusal(member.port, known.is_some(), limits).is_none()
    }

    /// Leases tokens for the frames that a limit is to judge: once for each class in each run of one port's frames.
    #[cold]
    #[inline(never)]
    fn judge_storms(&mut self, judged: &[u16], lanes: &[Lane; BURST], out: &mut [Decision]) {
        let slot = |at: &u16| lanes[usize::from(*at)].slot;
        for run in judged.chunk_by(|a, b| slot(a) == slot(b)) {
            let member = &self.bridge.view.members[usize::from(slot(&run[0]))];
            let mut wanted = [0u32; 3];
            let class = |out: &[Decision], at: u16| class_of(&out[usize::from(at)]);
            run.iter().filter_map(|&at| class(out, at)).for_each(|class| wanted[class_index(class)] += 1);
            let mut granted = crate::member::CLASSES.map(|class| {
                let wanted = wanted[class_index(class)];
                let Some(bucket) = member.bucket(class).filter(|_| wanted > 0) else { return 0 };
                if R::DRY {
                    return u32::try_from(bucket.available(self.now.ns)).unwrap_or(u32::MAX).min(wanted);
                }
                bucket.take(self.now.ns, wanted)
            });
            for &at in run {
                let Some(class) = class(out, at) else { continue };
                let left = &mut granted[class_index(class)];
                match left.checked_sub(1) {
                    Some(rest) => *left = rest,
                    None => out[usize::from(at)] = Decision::Drop(storm_reason(class)),
                }
            }
        }
    }

    #[inline]
    fn step(&mut self, at: u16, step: Step) {
        if R::ACTIVE {
            self.recorder.step(self.first + usize::from(at), step);
        }
    }

    /// Floods and drops, for recorders; outputs are told by whoever resolves them.
    fn record_outcome(&mut self, at: usize, decision: &Decision) {
        let at = self.first + at;
        match *decision {
            Decision::Flood { class, .. } => self.recorder.step(at, Step::Flood { class }),
            Decision::Group { list, .. } => {
                let ports = u16::try_from(self.bridge.groups.ports(list).len()).unwrap_or(u16::MAX);
                self.recorder.step(at, Step::Snooped { ports });
            }
            Decision::Drop(reason) => self.recorder.step(at, Step::Dropped(reason)),
            Decision::Forward { port, tag } => self.recorder.step(at, Step::Output { port, tag }),
        }
        if decision.punts() {
            self.recorder.step(at, Step::Punted);
        }
    }
}

/// Addresses that no frame may carry through a bridge.
#[inline]
fn checked(source: u64, destination: u64) -> Result<(), DropReason> {
    if is_group(source) || source == 0 {
        return Err(DropReason::SourceMulticast);
    }
    if MacAddr::from_u64(destination).is_reserved_group() {
        return Err(DropReason::ReservedMulticast);
    }
    Ok(())
}

/// Whether an address (or a key made of one) is a group address.
#[inline]
fn is_group(mac: u64) -> bool {
    mac >> 40 & 1 == 1
}

/// The last check before a frame goes to one port.
#[inline]
fn deliver(member: &Member, target: &Member, lane: &Lane, tagged: bool) -> Decision {
    if member.protected && target.protected {
        return Decision::Drop(DropReason::ProtectedPort);
    }
    Decision::Forward { port: target.port, tag: lane.form.change(lane.vid, tagged) }
}

/// The class under which a storm limit counts the frame.
#[inline]
fn class_of(decision: &Decision) -> Option<FloodClass> {
    match decision {
        Decision::Flood { class, .. } => Some(*class),
        Decision::Group { .. } => Some(FloodClass::Multicast),
        Decision::Forward { .. } | Decision::Drop(_) => None,
    }
}
