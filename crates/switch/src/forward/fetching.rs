//! The forwarding process for a MAC table with many entries. Every address is looked up in the table. While earlier
//! frames of a burst are decided, the cache lines for later frames are prefetched.
//!
//! Two tight loops handle frames from a known source, whose age needs no refresh, to a known destination. The first
//! loop hashes the addresses. The second loop prefetches the buckets of the next group of frames, reads each bucket of
//! the present group once, and takes the decision from the per-worker MAC cache. This order spreads the prefetches
//! evenly, because many prefetches issued together would wait for each other. Other frames take the slow path.

use packet::record::Recorder;
use packet::{FlowKey, Layers};
use sync::mac_table::Glancer;

use super::{Frame, Pass, Places, Scratch, addresses, ingress};
use crate::decision::Decision;
use crate::mac_cache::{MacCache, State, Way};
use crate::tables::{Station, station_key};

/// Number of frames in each of the groups into which a burst is divided. The number is large enough to amortize the
/// calls, and small enough that prefetched lines stay in the first-level CPU cache until they are read.
const AHEAD: usize = 32;

impl<R: Recorder> Pass<'_, R> {
    /// Decides the frames of a burst in groups of [`AHEAD`] frames.
    pub(super) fn decide_fetching(
        &mut self,
        keys: &[FlowKey],
        layers: &[Layers],
        out: &mut [Decision],
        scratch: &mut Scratch,
    ) {
        // The decision for a MAC table entry is valid as long as the view.
        scratch.mac_cache.enter(State { view: self.view.number, changes: u64::MAX, secs: 0 });
        let mut places = [[Places::default(); AHEAD]; 2];
        let (mut first, mut ahead) = (0, keys.chunks(AHEAD));
        self.hash(ahead.next().unwrap_or_default(), &mut places[0]);
        fetch(self.table.glancer(), &places[0][..keys.len().min(AHEAD)]);
        let groups = keys.chunks(AHEAD).zip(layers.chunks(AHEAD)).zip(out.chunks_mut(AHEAD));
        for ((keys, layers), out) in groups {
            let next = ahead.next().unwrap_or_default();
            self.hash(next, &mut places[1]);
            self.decide_fetched(first, keys, layers, &places, out, scratch);
            first += u16::try_from(keys.len()).unwrap_or(0);
            places[0] = places[1];
        }
    }

    /// Decides one group of frames. `first` is the index of the group's first frame in the burst.
    #[inline(always)]
    fn decide_fetched(
        &mut self,
        first: u16,
        keys: &[FlowKey],
        layers: &[Layers],
        [places, next]: &[[Places; AHEAD]; 2],
        out: &mut [Decision],
        scratch: &mut Scratch,
    ) {
        let mut at = 0;
        while let Some(key) = keys.get(at) {
            let way = if R::ACTIVE { None } else { self.way(key, &mut scratch.mac_cache) };
            if let Some(way) = way {
                let known = Known {
                    table: self.table.glancer(),
                    mac_cache: &scratch.mac_cache,
                    way,
                    secs: self.now.secs,
                };
                at += known.decide(&keys[at..], &places[at..], &next[at..], &mut out[at..]);
            }
            // Decides the frame that ended the run, unless the run ended only because the frame's ingress
            // differs.
            if let Some(key) = keys.get(at).filter(|key| way.is_none_or(|way| way.ingress == ingress(key))) {
                let place = first + u16::try_from(at).unwrap_or(0);
                let frame = Frame { at: place, key, layers: &layers[at] };
                out[at] = self.decide_one::<false>(frame, Some(places[at]), way, scratch);
                at += 1;
            }
        }
    }

    /// Computes, for a group of frames, the MAC table buckets that can hold their addresses.
    #[inline(always)]
    fn hash(&mut self, keys: &[FlowKey], places: &mut [Places; AHEAD]) {
        let mut at = 0;
        while let Some(key) = keys.get(at) {
            // The buckets of a frame that is not admitted are not used.
            let vid = self.admission(key).outcome.map_or(0, |by| by.vid);
            at += hash_run(self.table.glancer(), vid, &keys[at..], &mut places[at..]);
        }
    }
}

/// Computes the MAC table buckets for consecutive frames, up to the first frame whose ingress port
/// or tag differs from the port or tag of `keys[0]`. Returns the number of frames processed.
#[inline(never)]
fn hash_run(table: Glancer<'_>, vid: u16, keys: &[FlowKey], places: &mut [Places]) -> usize {
    let way = keys.first().map_or(0, ingress);
    let mut hashed = 0;
    for (key, places) in keys.iter().zip(places) {
        if ingress(key) != way {
            break;
        }
        let (source, destination) = addresses(key);
        *places = (table.hash(station_key(vid, source)), table.hash(station_key(vid, destination)));
        hashed += 1;
    }
    hashed
}

/// Prefetches the MAC table buckets of several frames.
fn fetch(table: Glancer<'_>, places: &[Places]) {
    for (source, destination) in places {
        table.fetch(*source);
        table.fetch(*destination);
    }
}

/// The input of the loop that decides frames from a known source to a known destination.
struct Known<'a> {
    table: Glancer<'a>,
    mac_cache: &'a MacCache,
    way: Way,
    secs: u16,
}

impl Known<'_> {
    /// Writes the decision for each frame to `out`, and prefetches the buckets of the next group of frames. The loop
    /// stops at the first frame that has another ingress port or tag than `way`. The loop also stops if the source is
    /// not known on this port or needs a refresh of its age, or if the destination is not known. Returns the number of
    /// frames decided.
    ///
    /// Invalid addresses (group sources, the zero source, reserved destinations) are never learned
    /// on a port. This loop therefore does not check for invalid addresses.
    #[inline(never)]
    fn decide(&self, keys: &[FlowKey], places: &[Places], next: &[Places], out: &mut [Decision]) -> usize {
        let Known { table, mac_cache, way, secs } = *self;
        let here = Station::learned(way.port).0;
        let mut decided = 0;
        for (((key, places), next), out) in keys.iter().zip(places).zip(next).zip(out) {
            table.fetch(next.0);
            table.fetch(next.1);
            let (source, destination) = addresses(key);
            if ingress(key) != way.ingress
                || table.glance(places.0, station_key(way.vid, source)) != Some((here, secs))
            {
                break;
            }
            match table.glance(places.1, station_key(way.vid, destination)) {
                Some((station, _)) if mac_cache.decide_station(way, station, out) => decided += 1,
                _ => break,
            }
        }
        decided
    }
}
