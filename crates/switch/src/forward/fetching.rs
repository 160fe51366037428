//! The stage for many stations: the table is asked about every address, and the cache lines of the next few frames are
//! on their way while the frames before are decided.
//!
//! Two tight loops do all for a frame of a known, fresh source to a known destination: one hashes; one fetches for the
//! frame a group ahead, looks once into each bucket and recalls what the station means. So fetches come evenly: all at
//! once they would wait for each other. Any other frame takes the whole way.

use packet::record::Recorder;
use packet::{FlowKey, Layers};
use sync::mac_table::Glancer;

use super::{Frame, Pass, Places, Scratch, addresses, ingress};
use crate::decision::Decision;
use crate::recall::{Recall, State, Way};
use crate::tables::{Station, station_key};

/// Frames in a group: enough that the calls do not count, few enough that what is fetched stays in the first-level cache
/// until it is looked at.
const AHEAD: usize = 32;

impl<R: Recorder> Pass<'_, R> {
    /// Decides about frames in groups.
    pub(super) fn decide_fetching(
        &mut self,
        keys: &[FlowKey],
        layers: &[Layers],
        out: &mut [Decision],
        scratch: &mut Scratch,
    ) {
        // What a station means lasts as long as the view.
        scratch.recall.enter(State { view: self.view.number, changes: u64::MAX, secs: 0 });
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

    /// Decides about one group, whose first frame is the burst's frame `first`.
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
            let way = if R::ACTIVE { None } else { self.way(key, &mut scratch.recall) };
            if let Some(way) = way {
                let known =
                    Known { table: self.table.glancer(), recall: &scratch.recall, way, secs: self.now.secs };
                at += known.decide(&keys[at..], &places[at..], &next[at..], &mut out[at..]);
            }
            // The frame that ended the run, unless only because it came in another way.
            if let Some(key) = keys.get(at).filter(|key| way.is_none_or(|way| way.ingress == ingress(key))) {
                let place = first + u16::try_from(at).unwrap_or(0);
                let frame = Frame { at: place, key, layers: &layers[at] };
                out[at] = self.decide_one::<false>(frame, Some(places[at]), way, scratch);
                at += 1;
            }
        }
    }

    /// Finds where the addresses of a group belong in the table.
    #[inline(always)]
    fn hash(&mut self, keys: &[FlowKey], places: &mut [Places; AHEAD]) {
        let mut at = 0;
        while let Some(key) = keys.get(at) {
            // Where it is not admitted, its addresses matter to nobody.
            let vid = self.admission(key).outcome.map_or(0, |by| by.vid);
            at += hash_run(self.table.glancer(), vid, &keys[at..], &mut places[at..]);
        }
    }
}

/// Hashes for frames as long as they come in as the first did. Returns how many.
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

/// Fetches buckets side by side.
fn fetch(table: Glancer<'_>, places: &[Places]) {
    for (source, destination) in places {
        table.fetch(*source);
        table.fetch(*destination);
    }
}

/// What it takes to decide about frames of known stations.
struct Known<'a> {
    table: Glancer<'a>,
    recall: &'a Recall,
    way: Way,
    secs: u16,
}

impl Known<'_> {
    /// Decides about frames as long as they came in by the way, their sources are known here and fresh, and their
    /// destinations known; and fetches the buckets of the next group. Returns how many.
    ///
    /// What may not come in (group sources, the zero source, reserved destinations) is not in the table as learned on a
    /// port, so that nothing checks it here.
    #[inline(never)]
    fn decide(&self, keys: &[FlowKey], places: &[Places], next: &[Places], out: &mut [Decision]) -> usize {
        let Known { table, recall, way, secs } = *self;
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
                Some((station, _)) if recall.decide_station(way, station, out) => decided += 1,
                _ => break,
            }
        }
        decided
    }
}
