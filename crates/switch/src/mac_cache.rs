//! A per-worker MAC cache in front of the shared MAC table. The cache holds source addresses that need no learning, and
//! the forwarding decisions by destination address.
//!
//! If the MAC table has few entries, the table fits into the first-level CPU cache, and the instructions of the
//! lookups dominate the cost of a frame. The MAC cache reduces this cost to two multiplications and three
//! comparisons, in a loop that keeps its state in CPU registers ([`MacCache::decide`]).
//!
//! Each combination of ingress port and tag (a direction) has a number ([`Way`]). Each combination of VLAN, tag form
//! and protection (a class), which many ports share, has a number too (`Class`). A cached word holds a MAC address in
//! its low 48 bits and one of these numbers in its high bits. One comparison therefore decides whether the address is
//! cached for this direction or class in the current epoch. Only frames that passed every check of the slow path are
//! cached. The checks (group sources, reserved destinations) are therefore not repeated.
//!
//! If the MAC table has many entries, it is looked up for every address ([`crate::forward`]'s
//! `fetching`). The MAC cache then holds only the decision for each table entry. A cached word
//! holds the entry's value instead of the address, and cached results remain valid as long as the
//! version of the bridge is in use.
//!
//! Invariant: a cached result is valid during one epoch. A new epoch begins with every change of
//! the bridge's configuration or MAC table that a worker can see. A new epoch also begins with
//! every second, so a cached source needs no refresh of its age. Several bridges can have epochs at
//! the same time. No number of a direction or class is used in two epochs.

use std::slice;

use packet::{DropReason, FlowKey, PortId};

use crate::decision::{Decision, TagForm};
use crate::key_words::{addresses, ingress};

/// Number of slots for cached sources (64 KiB). Only slots in use occupy the CPU's caches.
const SOURCES: usize = 8192;
/// Number of slots for cached destinations (128 KiB). Only slots in use occupy the CPU's caches.
const TARGETS: usize = 8192;
/// Maximum number of MAC table entries up to which the MAC cache is keyed by address. With more
/// entries, too many addresses share a slot of the cache (measured).
pub(crate) const STATIONS: u32 = 1024;
const WAYS: usize = 64;
const CLASSES: usize = 16;
const BRIDGES: usize = 8;
/// Bit position, in a cached word, of the number that identifies an ingress direction ([`Way`]) or a `Class`. The
/// number is above the 48 bits of the address.
const NUMBER_SHIFT: u32 = 48;
/// Multiplier of the hash. Bits 12 to 23 are 1. Addresses that differ in the last octet (bits 40 to
/// 47 of a word) therefore get adjacent slots, so that hosts with consecutive addresses fill few
/// cache lines. The other bits are bits of the golden ratio, which scatter the addresses over the
/// slots.
const SPREAD: u64 = 0x9e37_79b9_7f00_1c15;

/// A per-worker MAC cache. See the [module](self).
#[derive(Debug)]
pub(crate) struct MacCache {
    /// Source addresses that are known on their ingress port and whose age needs no refresh, each with the number of
    /// the ingress direction in the high bits.
    sources: Box<[u64; SOURCES]>,
    targets: Box<[Target; TARGETS]>,
    ways: [Way; WAYS],
    classes: [Numbered; CLASSES],
    epochs: [Epoch; BRIDGES],
    /// Number of the epoch of the current burst. Cached results are valid only in the epoch in which they were cached.
    /// 0 means no epoch.
    current: u32,
    /// Number of the epoch (the period in which cached results are valid) that began most recently.
    last: u32,
    /// Number that was last assigned to an ingress direction ([`Way`]) or to a `Class`. 0 means that no number was
    /// assigned.
    number: u16,
}

/// The cached decision for frames to one destination.
#[derive(Clone, Copy, Debug, Default)]
struct Target {
    /// Destination address in the low 48 bits, and in the high bits the number of the `Class` of frames for which the
    /// decision is valid.
    address: u64,
    /// Decision for frames that did not arrive on the output port.
    decision: Decision,
}

impl Target {
    /// Writes to `out` the decision for a frame that arrived from the direction `way`.
    #[inline(always)]
    fn decide(&self, way: Way, out: &mut Decision) {
        // A slice copy, because otherwise the compiler copies field by field (the next line reads fields).
        slice::from_mut(out).copy_from_slice(slice::from_ref(&self.decision));
        if matches!(&self.decision, Decision::Forward { port, .. } if *port == way.port) {
            *out = Decision::Drop(DropReason::SamePort);
        }
    }
}

/// An ingress direction: a combination of ingress port and VLAN tag, in one epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way {
    /// Masked first word of the flow keys with this ingress port and tag.
    pub(crate) ingress: u64,
    epoch: u32,
    pub(crate) port: PortId,
    pub(crate) vid: u16,
    number: u16,
    /// Number of the class (VLAN, tag form and protection) to which frames of the direction belong.
    class: u16,
}

/// The properties of an admitted frame, apart from its ingress port, that decide its outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) vid: u16,
    pub(crate) form: TagForm,
    pub(crate) protected: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Numbered {
    class: Class,
    epoch: u32,
    number: u16,
}

/// The state of a bridge during one epoch: version of the configuration, number of MAC table changes, and second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Identifier of the version of the bridge's configuration.
    pub(crate) view: u64,
    /// Number of changes of the bridge's MAC table, or `u64::MAX` if the cached decisions do not depend on such
    /// changes.
    pub(crate) changes: u64,
    /// Second of the coarse clock, modulo 65,536, at which the state was read.
    pub(crate) secs: u16,
}

#[derive(Clone, Copy, Debug, Default)]
struct Epoch {
    state: State,
    number: u32,
}

impl MacCache {
    pub(crate) fn new() -> MacCache {
        MacCache {
            sources: Box::new([0; SOURCES]),
            targets: Box::new([Target::default(); TARGETS]),
            ways: [Way::default(); WAYS],
            classes: [Numbered::default(); CLASSES],
            epochs: [Epoch::default(); BRIDGES],
            current: 0,
            last: 0,
            number: 0,
        }
    }

    /// Selects the epoch in which results that were cached for a bridge in this state are valid. If no such epoch
    /// exists, begins a new epoch.
    #[inline]
    pub(crate) fn enter(&mut self, state: State) {
        let place = usize::try_from(state.view % BRIDGES as u64).unwrap_or(0);
        let epoch = self.epochs[place];
        if epoch.state == state && epoch.number != 0 {
            self.current = epoch.number;
        } else {
            self.begin(place, state);
        }
    }

    #[cold]
    fn begin(&mut self, place: usize, state: State) {
        self.last = self.last.wrapping_add(1);
        if self.last == 0 {
            // Epoch numbers wrap after 2^32 epochs, and an old number would become valid again.
            self.forget();
            self.epochs = [Epoch::default(); BRIDGES];
            self.last = 1;
        }
        self.current = self.last;
        self.epochs[place] = Epoch { state, number: self.current };
    }

    /// Clears all cached sources and decisions, and all ingress directions and classes. The memory is not freed,
    /// because the data path does not allocate.
    #[cold]
    fn forget(&mut self) {
        self.sources.fill(0);
        self.targets.fill(Target::default());
        self.ways = [Way::default(); WAYS];
        self.classes = [Numbered::default(); CLASSES];
        self.number = 0;
    }

    /// Returns the ingress direction (the combination of ingress port and VLAN tag) of frames whose masked first key
    /// word is `ingress`. Returns `None` if the direction is not registered in the current epoch.
    #[inline(always)]
    pub(crate) fn way(&self, ingress: u64) -> Option<Way> {
        let way = self.ways[place::<WAYS>(ingress)];
        (way.ingress == ingress && way.epoch == self.current).then_some(way)
    }

    /// Registers an ingress direction (a combination of ingress port and VLAN tag) in the current epoch and assigns a
    /// number to the direction. Frames from this direction arrive on `port` and belong to the class `class`.
    #[cold]
    #[inline(never)]
    pub(crate) fn open(&mut self, ingress: u64, port: PortId, class: Class) -> Way {
        if self.number >= u16::MAX - 1 {
            self.forget();
        }
        let (epoch, vid) = (self.current, class.vid);
        let held = self.classes[usize::from(class.vid) % CLASSES];
        let class = if held.epoch == epoch && held.class == class {
            held.number
        } else {
            self.number += 1;
            self.classes[usize::from(class.vid) % CLASSES] = Numbered { class, epoch, number: self.number };
            self.number
        };
        self.number += 1;
        let way = Way { ingress, epoch, port, vid, number: self.number, class };
        self.ways[place::<WAYS>(ingress)] = way;
        way
    }

    /// Records that frames with the source address `source` that arrive from the direction `way` need no learning in
    /// this epoch.
    #[inline(always)]
    pub(crate) fn note_source(&mut self, way: Way, source: u64) {
        let source = numbered(way.number, source);
        self.sources[place::<SOURCES>(source)] = source;
    }

    /// Caches the decision for frames to `destination` that belong to the same class as frames from `way`. The decision
    /// does not apply to frames that arrive on the decision's output port.
    #[inline(always)]
    pub(crate) fn note_target(&mut self, way: Way, destination: u64, decision: Decision) {
        let address = numbered(way.class, destination);
        self.targets[place::<TARGETS>(address)] = Target { address, decision };
    }

    /// Writes to `out` the cached decision for a frame that arrived from the direction `way` and whose destination has
    /// a MAC table entry. `station` is the value of this entry, which replaces the address in the cached word. Returns
    /// whether the decision was cached.
    #[inline(always)]
    pub(crate) fn decide_station(&self, way: Way, station: u32, out: &mut Decision) -> bool {
        let station = numbered(way.class, station.into());
        let target = &self.targets[place::<TARGETS>(station)];
        if target.address == station {
            target.decide(way, out);
        }
        target.address == station
    }

    /// Writes to `out` the cached decisions for frames, up to the first frame that has another ingress port or tag than
    /// `way`, or whose source or destination is not cached. Returns the number of frames decided.
    #[inline(never)]
    pub(crate) fn decide(&self, way: Way, keys: &[FlowKey], out: &mut [Decision]) -> usize {
        let mut decided = 0;
        for (key, out) in keys.iter().zip(out) {
            let (source, destination) = addresses(key);
            let source = numbered(way.number, source);
            let destination = numbered(way.class, destination);
            let target = &self.targets[place::<TARGETS>(destination)];
            if ingress(key) != way.ingress
                || self.sources[place::<SOURCES>(source)] != source
                || target.address != destination
            {
                break;
            }
            target.decide(way, out);
            decided += 1;
        }
        decided
    }
}

#[inline(always)]
fn numbered(number: u16, address: u64) -> u64 {
    u64::from(number) << NUMBER_SHIFT | address
}

/// Returns the slot of a cached word in a hash table of `LEN` slots. `LEN` is a power of two.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the upper bits of a product")]
fn place<const LEN: usize>(word: u64) -> usize {
    const { assert!(LEN.is_power_of_two()) };
    (word.wrapping_mul(SPREAD) >> (u64::BITS - LEN.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::MacAddr;
    use packet::record::TagChange;

    const CLASS: Class = Class { vid: 7, form: TagForm::Untagged, protected: false };

    fn state(changes: u64) -> State {
        State { view: 1, changes, secs: 7 }
    }

    fn to(port: u16) -> Decision {
        Decision::Forward { port: PortId(port), tag: TagChange::Keep }
    }

    fn key(port: u16, src: u8, dst: u8) -> FlowKey {
        let mut key = FlowKey::ZERO;
        key.set_in_port(PortId(port));
        key.set_eth_src(MacAddr([2, 0, 0, 0, 0, src]));
        key.set_eth_dst(MacAddr([2, 0, 0, 0, 0, dst]));
        key
    }

    impl MacCache {
        /// Returns the ingress direction of untagged frames that arrive on `port`. Registers the direction if the
        /// current epoch does not have it.
        fn by(&mut self, port: u16, class: Class) -> Way {
            let ingress = ingress(&key(port, 0, 0));
            self.way(ingress).unwrap_or_else(|| self.open(ingress, PortId(port), class))
        }

        fn note(&mut self, way: Way, src: u8, dst: u8, decision: Decision) {
            let (source, destination) = addresses(&key(0, src, dst));
            self.note_source(way, source);
            self.note_target(way, destination, decision);
        }

        /// Returns the cached decision for one frame. Returns `None` if the decision is not cached.
        fn one(&self, way: Way, key: FlowKey) -> Option<Decision> {
            let mut out = [Decision::default()];
            (self.decide(way, &[key], &mut out) == 1).then_some(out[0])
        }
    }

    #[test]
    fn a_run_ends_at_the_first_frame_that_is_not_wholly_recalled() {
        let mut mac_cache = MacCache::new();
        mac_cache.enter(state(1));
        let way = mac_cache.by(3, CLASS);
        mac_cache.note(way, 1, 2, to(4));
        mac_cache.note(way, 5, 6, Decision::Drop(DropReason::FdbDiscard));
        let good = [key(3, 1, 2), key(3, 1, 6), key(3, 5, 2)];
        for bad in [key(4, 1, 2), key(3, 2, 2), key(3, 1, 1), key(3, 0, 2), key(3, 1, 0)] {
            let mut out = [to(9); 5];
            let keys = [good[0], good[1], good[2], bad, good[0]];
            assert_eq!(mac_cache.decide(way, &keys, &mut out), 3, "{bad:?}");
            assert_eq!(out, [to(4), Decision::Drop(DropReason::FdbDiscard), to(4), to(9), to(9)]);
        }
        assert_eq!(mac_cache.decide(way, &good, &mut [to(9); 3]), 3);
    }

    #[test]
    fn ports_of_a_class_share_destinations_but_not_sources() {
        let mut mac_cache = MacCache::new();
        mac_cache.enter(state(1));
        let (a, b) = (mac_cache.by(3, CLASS), mac_cache.by(4, CLASS));
        mac_cache.note(a, 1, 2, to(4));
        assert_eq!(mac_cache.one(b, key(4, 1, 2)), None, "the source is elsewhere");
        mac_cache.note_source(b, addresses(&key(4, 9, 0)).0);
        assert_eq!(mac_cache.one(b, key(4, 9, 2)), Some(Decision::Drop(DropReason::SamePort)));
        assert_eq!(mac_cache.one(a, key(3, 1, 2)), Some(to(4)));
        for class in [
            Class { vid: 8, ..CLASS },
            Class { form: TagForm::Tagged, ..CLASS },
            Class { protected: true, ..CLASS },
        ] {
            let other = mac_cache.by(5 + class.vid + u16::from(class.protected), class);
            mac_cache.note_source(other, addresses(&key(0, 9, 0)).0);
            assert_eq!(mac_cache.one(other, key(other.port.0, 9, 2)), None);
        }
    }

    #[test]
    fn nothing_outlives_its_epoch() {
        let mut mac_cache = MacCache::new();
        mac_cache.enter(state(1));
        let way = mac_cache.by(3, CLASS);
        mac_cache.note(way, 1, 2, to(4));
        let recalls = |mac_cache: &mut MacCache| {
            let way = mac_cache.by(3, CLASS);
            mac_cache.one(way, key(3, 1, 2))
        };
        assert_eq!(recalls(&mut mac_cache), Some(to(4)));
        mac_cache.enter(State { view: 2, ..state(1) });
        assert_eq!(recalls(&mut mac_cache), None, "another bridge");
        for changed in [
            state(2),
            State { secs: 8, ..state(2) },
            State { view: 1 + BRIDGES as u64, ..state(1) },
            state(1),
        ] {
            mac_cache.enter(changed);
            assert_eq!(recalls(&mut mac_cache), None, "{changed:?}");
        }
    }

    #[test]
    fn epochs_of_bridges_live_side_by_side() {
        let mut mac_cache = MacCache::new();
        let second = State { view: 2, ..state(1) };
        for (at, port) in [(state(1), 3), (second, 4)] {
            mac_cache.enter(at);
            let way = mac_cache.by(port, CLASS);
            mac_cache.note(way, 1, 2, to(port + 10));
        }
        for (at, port) in [(state(1), 3), (second, 4)] {
            mac_cache.enter(at);
            let way = mac_cache.by(port, CLASS);
            assert_eq!(mac_cache.one(way, key(port, 1, 2)), Some(to(port + 10)));
        }
    }

    #[test]
    fn numbers_and_epochs_may_run_out() {
        let mut mac_cache = MacCache::new();
        mac_cache.enter(state(1));
        let first = mac_cache.by(3, CLASS);
        mac_cache.note(first, 1, 2, to(4));
        // Each change takes one number for the direction and one for the class.
        for changes in 2..40_000 {
            mac_cache.enter(state(changes));
            let way = mac_cache.by(3, CLASS);
            assert!(way.number != 0 && way.class != 0 && way.number != way.class);
            assert_eq!(mac_cache.one(way, key(3, 1, 2)), None, "after {changes} changes");
        }
        mac_cache.last = u32::MAX;
        let way = mac_cache.by(3, CLASS);
        mac_cache.note(way, 1, 2, to(4));
        mac_cache.enter(state(1));
        assert_eq!(mac_cache.current, 1);
        let way = mac_cache.by(3, CLASS);
        assert_eq!(mac_cache.one(way, key(3, 1, 2)), None);
    }
}
