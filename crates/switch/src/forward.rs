//! Forwarding of a burst by the bridge: computes one decision for each flow key of the burst.
//!
//! Frames are processed one after another. Each frame is admitted to its VLAN (IEEE 802.1Q clause
//! 8.6.2), then its source is looked up (learning process, 8.7), then its destination (forwarding
//! process, 8.6). With few MAC table entries, the per-worker MAC cache decides most frames (see
//! `mac_caching`). With many entries, the MAC table is read for every frame, and the hash buckets
//! for the next frames are prefetched while earlier frames are decided (see `fetching`). Both
//! variants have a tight loop for known addresses and decide all other frames on the slow path.
//! Storm limits are applied last. Tokens of a storm limit are taken once for a run of consecutive
//! frames of one port.
//!
//! With [`Recorder::DRY`] the bridge changes nothing (no learning, no refresh, no tokens taken) and returns the
//! decision that a real frame would get. Two reasons against learning cannot be predicted: a bucket of the MAC table
//! may be full, or another worker may be writing to it.

mod fetching;
mod learning;
mod mac_caching;
mod storm;

use packet::record::{FloodClass, Recorder, Step};
use packet::{DropReason, FlowKey, Layers};
use sync::mac_table::{BucketIndex, Hit, MacTable};

use crate::bridge::{Bridge, View};
use crate::config::Now;
use crate::decision::{Decision, TagForm};
use crate::key_words::{MAC_MASK, addresses, ingress};
use crate::mac_cache::{self, Class, MacCache, Way};
use crate::member::{Ingress, Member};
use crate::tables::{Station, mac_of, station_key};

/// Maximum number of frames that one pass of [`Bridge::forward`] processes. Longer bursts are divided.
const BURST: usize = 256;
/// The reserved addresses 01:80:c2:00:00:00 to 01:80:c2:00:00:0f, with the last four bits cleared,
/// in the form of [`crate::tables::mac_bits`].
const RESERVED: u64 = 0x0000_00c2_8001;
const RESERVED_MASK: u64 = 0xf0ff_ffff_ffff;
/// Initial value of [`Admission::ingress`], which differs from every masked first word of a flow key.
const NO_INGRESS: u64 = u64::MAX;

/// The MAC table buckets of a frame's source and destination address. Group addresses have no entries in the table.
type Places = (BucketIndex, BucketIndex);

/// A worker's scratch memory for [`Bridge::forward`], allocated once so that the data path does not allocate.
#[derive(Debug)]
pub struct Scratch {
    /// Indices in the burst of the frames to which a storm limit applies.
    judged: Vec<u16>,
    mac_cache: MacCache,
}

impl Scratch {
    /// Allocates scratch memory. The memory suffices for bursts of any length.
    pub fn new() -> Scratch {
        Scratch { judged: Vec::with_capacity(BURST), mac_cache: MacCache::new() }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch::new()
    }
}

impl Bridge {
    /// Makes the forwarding decision for each frame of a burst that arrived on members of this
    /// bridge, in the order of the frames.
    ///
    /// `layers` and `out` are as long as `keys`. Excess elements are ignored. The L3 fields of a key are read only for
    /// group (multicast) destinations on a bridge with snooping, and only if `layers` shows an L3 header. For other
    /// frames [`FlowKey::extract_l2`] suffices. A frame of a port that is not a member is dropped with
    /// [`DropReason::NoFunction`].
    pub fn forward<R: Recorder>(
        &self,
        keys: &[FlowKey],
        layers: &[Layers],
        now: Now,
        scratch: &mut Scratch,
        out: &mut [Decision],
        recorder: &mut R,
    ) {
        let frames = keys.len().min(layers.len()).min(out.len());
        let (keys, layers, out) = (&keys[..frames], &layers[..frames], &mut out[..frames]);
        let bursts = keys.chunks(BURST).zip(layers.chunks(BURST)).zip(out.chunks_mut(BURST));
        for (number, ((keys, layers), out)) in bursts.enumerate() {
            scratch.judged.clear();
            let mut pass = Pass {
                bridge: self,
                view: &self.view,
                table: self.tables.table(),
                now,
                first: number * BURST,
                admission: Admission { ingress: NO_INGRESS, outcome: Err(DropReason::NoFunction) },
                recorder,
            };
            if !R::ACTIVE && self.tables.len() <= mac_cache::STATIONS {
                pass.decide_recalling(keys, layers, out, scratch);
            } else {
                pass.decide_fetching(keys, layers, out, scratch);
            }
            if !scratch.judged.is_empty() {
                pass.judge_storms(&scratch.judged, keys, out);
            }
            if R::ACTIVE {
                for (at, decision) in out.iter().enumerate() {
                    pass.record_outcome(at, decision);
                }
            }
        }
    }
}

/// The state of one pass of [`Bridge::forward`], which processes at most [`BURST`] frames.
struct Pass<'a, R> {
    bridge: &'a Bridge,
    view: &'a View,
    table: &'a MacTable,
    now: Now,
    /// Index in the caller's arrays of the first frame of this pass.
    first: usize,
    /// Result of the VLAN admission of the previous frame. The next frame usually arrives on the same port with the
    /// same tag, and then has the same result.
    admission: Admission<'a>,
    recorder: &'a mut R,
}

#[derive(Clone, Copy)]
struct Admission<'a> {
    /// Masked first word (ingress port, L2 flags, VLAN tag) of the flow keys for which `outcome` is the admission
    /// result.
    ingress: u64,
    outcome: Result<Admitted<'a>, DropReason>,
}

#[derive(Clone, Copy)]
struct Admitted<'a> {
    member: &'a Member,
    vid: u16,
    form: TagForm,
}

/// A frame before its admission to a VLAN.
#[derive(Clone, Copy)]
struct Frame<'a> {
    /// Index of the frame in the burst.
    at: u16,
    key: &'a FlowKey,
    layers: &'a Layers,
}

/// A frame after its admission to a VLAN.
#[derive(Clone, Copy)]
struct Lane<'a> {
    /// Index of the frame in the burst.
    at: u16,
    source: u64,
    destination: u64,
    by: Admitted<'a>,
}

impl<'a, R: Recorder> Pass<'a, R> {
    /// Returns the ingress direction of a frame (the combination of ingress port and VLAN tag) in the numbered form
    /// that `mac_cache` uses. A new direction is registered. Returns `None` if the frame is not admitted.
    #[inline]
    fn way(&mut self, key: &FlowKey, mac_cache: &mut MacCache) -> Option<Way> {
        let ingress = ingress(key);
        mac_cache.way(ingress).or_else(|| {
            let by = self.admission(key).outcome.ok()?;
            let class = Class { vid: by.vid, form: by.form, protected: by.member.protected };
            Some(mac_cache.open(ingress, by.member.port, class))
        })
    }

    /// Returns the decision for one frame from the MAC table, and caches the result for frames that arrive from the
    /// direction `way`.
    fn decide_one<const RECALLING: bool>(
        &mut self,
        frame: Frame<'_>,
        fetched: Option<Places>,
        way: Option<Way>,
        scratch: &mut Scratch,
    ) -> Decision {
        let lane = match self.admit(frame.at, frame.key) {
            Ok(lane) => lane,
            Err(reason) => return Decision::Drop(reason),
        };
        let places =
            fetched.unwrap_or_else(|| (self.table.hash(lane.source), self.table.hash(lane.destination)));
        let mut decision = self.decide::<RECALLING>(frame, lane, places, way, &mut scratch.mac_cache);
        if decision.punts() {
            decision = self.limit_snooped(lane.by.member, decision);
        }
        if lane.by.member.limited && class_of(&decision).is_some() {
            scratch.judged.push(frame.at);
        }
        decision
    }

    /// Processes the source and then the destination of a frame, and returns the decision for the frame. With
    /// `RECALLING`, the MAC cache stores the results by MAC address, otherwise by MAC table entry.
    #[inline(always)]
    fn decide<const RECALLING: bool>(
        &mut self,
        frame: Frame<'_>,
        lane: Lane<'a>,
        (source_at, destination_at): Places,
        mut way: Option<Way>,
        mac_cache: &mut MacCache,
    ) -> Decision {
        if !self.source_is_known_here(lane, source_at) {
            if let Err(reason) = self.source(lane, source_at) {
                return Decision::Drop(reason);
            }
            if RECALLING {
                // The table may have changed, and with it the epoch.
                way = None;
            }
        } else if let Some(way) = way.filter(|_| RECALLING) {
            mac_cache.note_source(way, lane.source & MAC_MASK);
        }
        if is_group(lane.destination) {
            return self.bridge.multicast(frame.key, frame.layers, lane.by.vid, lane.by.form);
        }
        let Some(hit) = self.table.lookup_at(destination_at, lane.destination) else {
            return self.unknown(lane);
        };
        if R::ACTIVE {
            return self.found(lane, hit);
        }
        let station = Station(hit.value);
        let elsewhere = from_elsewhere(self.view, lane.by, station);
        let lasting = matches!(elsewhere, Decision::Forward { .. } | Decision::Drop(DropReason::FdbDiscard));
        if let Some(way) = way.filter(|_| lasting) {
            let destination = if RECALLING { lane.destination & MAC_MASK } else { station.0.into() };
            mac_cache.note_target(way, destination, elsewhere);
        }
        if is_here(lane.by, station) { Decision::Drop(DropReason::SamePort) } else { elsewhere }
    }

    /// Returns the admission result for the ingress port and VLAN tag of `key`.
    #[inline(always)]
    fn admission(&mut self, key: &FlowKey) -> &Admission<'a> {
        let ingress = ingress(key);
        if self.admission.ingress != ingress {
            self.admission = Admission { ingress, outcome: admit_by(self.view, key) };
        }
        &self.admission
    }

    /// Checks the addresses of a frame and determines its VLAN. Returns the drop reason if the frame is not
    /// admitted.
    #[inline(always)]
    fn admit(&mut self, at: u16, key: &FlowKey) -> Result<Lane<'a>, DropReason> {
        let outcome = self.admission(key).outcome;
        let (source, destination) = addresses(key);
        if R::ACTIVE && outcome.err() != Some(DropReason::NoFunction) {
            self.step(at, Step::Bridge(self.view.id));
        }
        if is_group(source) || source == 0 || destination & RESERVED_MASK == RESERVED {
            return Err(refused(outcome.err(), destination, source));
        }
        let by = outcome?;
        if R::ACTIVE {
            self.step(at, Step::Vlan { vid: by.vid, source: by.member.vlan_source(by.form) });
        }
        let (source, destination) = (station_key(by.vid, source), station_key(by.vid, destination));
        Ok(Lane { at, source, destination, by })
    }

    /// Returns the decision for a frame whose destination has the MAC table entry `hit`, and records the steps for
    /// packet tracing if a recorder is active.
    fn found(&mut self, lane: Lane<'a>, hit: Hit) -> Decision {
        let station = Station(hit.value);
        if R::DRY && lane.source == lane.destination && self.would_be_here(lane) {
            return Decision::Drop(DropReason::SamePort);
        }
        if R::DRY && self.would_displace(lane) {
            return unknown(lane.by);
        }
        if !station.discards() {
            let age = if station.is_static() { 0 } else { self.now.secs.wrapping_sub(hit.age) };
            let mac = mac_of(lane.destination);
            let step = Step::Found { mac, port: station.port(), age, is_static: station.is_static() };
            self.step(lane.at, step);
        }
        to_station(self.view, lane.by, station)
    }

    /// Returns the decision for a frame whose unicast destination address is not in the MAC table.
    #[inline]
    fn unknown(&self, lane: Lane<'a>) -> Decision {
        if R::DRY && lane.source == lane.destination && self.would_be_here(lane) {
            return Decision::Drop(DropReason::SamePort);
        }
        unknown(lane.by)
    }

    #[inline]
    fn step(&mut self, at: u16, step: Step) {
        if R::ACTIVE {
            self.recorder.step(self.first + usize::from(at), step);
        }
    }

    /// Records the outcome of a decision for packet tracing. The outputs of floods are recorded by
    /// [`Bridge::flood_recorded`].
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

/// Returns the member and the VLAN for the ingress port and VLAN tag of `key`. Returns the drop reason if such frames
/// are not admitted.
#[inline(never)]
fn admit_by<'a>(view: &'a View, key: &FlowKey) -> Result<Admitted<'a>, DropReason> {
    let member = view.member(key.in_port()).ok_or(DropReason::NoFunction)?;
    let Ingress { vid, form } = member.admit(key)?;
    Ok(Admitted { member, vid, form })
}

/// Returns the drop reason of a frame with an invalid source address or a reserved destination address. `reason` is the
/// drop reason of the VLAN admission, if any. `reason` takes precedence if the ingress port is not a member.
#[cold]
fn refused(reason: Option<DropReason>, destination: u64, source: u64) -> DropReason {
    match reason {
        Some(DropReason::NoFunction) => DropReason::NoFunction,
        _ if is_group(source) || source == 0 => DropReason::SourceMulticast,
        _ => {
            debug_assert_eq!(destination & RESERVED_MASK, RESERVED);
            DropReason::ReservedMulticast
        }
    }
}

/// Returns whether an address in the form of `mac_bits` is a group (multicast or broadcast) address. Also accepts a MAC
/// table key.
#[inline]
fn is_group(bits: u64) -> bool {
    bits & 1 == 1
}

/// Returns the decision for a frame whose destination has the MAC table entry `station`.
fn to_station(view: &View, by: Admitted<'_>, station: Station) -> Decision {
    if is_here(by, station) {
        Decision::Drop(DropReason::SamePort)
    } else {
        from_elsewhere(view, by, station)
    }
}

/// Returns whether the port of a MAC table entry is the port on which the frame arrived.
#[inline(always)]
fn is_here(by: Admitted<'_>, station: Station) -> bool {
    !station.discards() && station.port() == by.member.port
}

/// Returns the decision for a frame whose destination has the MAC table entry `station` with a port
/// other than the ingress port. The only property of the ingress port that affects the decision is
/// whether the port is protected.
#[inline(never)]
fn from_elsewhere(view: &View, by: Admitted<'_>, station: Station) -> Decision {
    if station.discards() {
        return Decision::Drop(DropReason::FdbDiscard);
    }
    let target = view.member(station.port());
    let Some((target, tagged)) = target.and_then(|target| Some((target, target.egress(by.vid)?))) else {
        // A learned entry whose port or VLAN was removed awaits its flush and is ignored. A static entry is
        // not ignored.
        return if station.is_static() { Decision::Drop(DropReason::NoMember) } else { unknown(by) };
    };
    if by.member.protected && target.protected {
        return Decision::Drop(DropReason::ProtectedPort);
    }
    Decision::Forward { port: target.port, tag: by.form.change(by.vid, tagged) }
}

fn unknown(by: Admitted<'_>) -> Decision {
    Decision::Flood { vid: by.vid, class: FloodClass::Unknown, form: by.form, punt: false }
}

/// Returns the class of flooded frames to which a decision belongs. The storm limit of this class
/// applies to the frame. Returns `None` if no storm limit applies.
#[inline(always)]
fn class_of(decision: &Decision) -> Option<FloodClass> {
    match decision {
        Decision::Flood { class, .. } => Some(*class),
        Decision::Group { .. } => Some(FloodClass::Multicast),
        Decision::Forward { .. } | Decision::Drop(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::mac_bits;
    use packet::MacAddr;

    #[test]
    fn addresses_come_whole_out_of_the_words() {
        let (src, dst) =
            (MacAddr([2, 0x11, 0x22, 0x33, 0x44, 0x55]), MacAddr([0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb]));
        let mut key = FlowKey::ZERO;
        key.set_eth_src(src);
        key.set_eth_dst(dst);
        key.set_eth_type(0xffff);
        assert_eq!(addresses(&key), (mac_bits(src), mac_bits(dst)));
        assert_eq!((mac_of(mac_bits(src)), mac_of(station_key(4094, mac_bits(dst)))), (src, dst));
        for low in 0..=255 {
            let mac = MacAddr([1, 0x80, 0xc2, 0, 0, low]);
            assert_eq!(mac_bits(mac) & RESERVED_MASK == RESERVED, mac.is_reserved_group());
        }
        assert!(is_group(mac_bits(MacAddr::BROADCAST)) && !is_group(mac_bits(src)));
    }
}
