//! What a worker recalls of a small MAC table: stations that it has just looked up, and what they meant.
//!
//! In front of the shared table on the packet's path. With few stations their entries sit in the first-level cache, and
//! then the look-ups' instructions are what a frame costs; a direct-mapped table with one multiplication halves them.
//!
//! Invariant: what was recalled under an epoch is true as long as the epoch lasts. A new one begins with every change
//! of the bridge's configuration or table that a worker can see, and with every second (so that a recalled source needs
//! no refresh). Epochs of several bridges live side by side.

use crate::decision::Decision;

/// Entries: 64 KiB, of which only the lines in use matter.
const ENTRIES: usize = 4096;
/// Stations up to which recalling pays: with more, too many share a place.
pub(crate) const STATIONS: u32 = 512;
/// Bit of a station, which has 18, that says that its entry bears the second of the epoch.
const FRESH: u32 = 1 << 31;
const VERDICTS: usize = 64;
const BRIDGES: usize = 8;
/// From the golden ratio: spreads consecutive keys evenly.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Recall {
    stations: Box<[Known; ENTRIES]>,
    verdicts: Box<[Verdict; VERDICTS]>,
    epochs: [Epoch; BRIDGES],
    /// The epoch of the burst under way; 0 is none.
    current: u32,
    /// The last epoch that began.
    last: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    key: u64,
    station: u32,
    epoch: u32,
}

/// What a destination's entry means for frames admitted in one way.
#[derive(Clone, Copy, Debug, Default)]
struct Verdict {
    ingress: u64,
    station: u32,
    epoch: u32,
    decision: Decision,
}

/// The state of a bridge for which an epoch holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Number of the bridge's view.
    pub(crate) view: u64,
    /// Changes of its table.
    pub(crate) changes: u64,
    /// Second of the coarse clock.
    pub(crate) secs: u16,
}

#[derive(Clone, Copy, Debug, Default)]
struct Epoch {
    state: State,
    number: u32,
}

impl Recall {
    pub(crate) fn new() -> Recall {
        Recall {
            stations: Box::new([Known::default(); ENTRIES]),
            verdicts: Box::new([Verdict::default(); VERDICTS]),
            epochs: [Epoch::default(); BRIDGES],
            current: 0,
            last: 0,
        }
    }

    /// Enters the epoch of a bridge in this state, a new one if the state is new.
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
            // After four thousand million epochs an old number would come to mean something again.
            *self = Recall { last: 1, ..Recall::new() };
        }
        self.current = self.last;
        self.epochs[place] = Epoch { state, number: self.current };
    }

    /// The station of a key, if it was looked up in this epoch.
    #[inline(always)]
    pub(crate) fn station(&self, key: u64) -> Option<u32> {
        self.known(key).map(|station| station & !FRESH)
    }

    /// Whether this is the station of a key, looked up in this epoch, and its entry needs no refresh in this second.
    #[inline(always)]
    pub(crate) fn is_fresh(&self, key: u64, station: u32) -> bool {
        self.known(key) == Some(station | FRESH)
    }

    #[inline(always)]
    fn known(&self, key: u64) -> Option<u32> {
        let known = &self.stations[place(key)];
        (known.key == key && known.epoch == self.current).then_some(known.station)
    }

    /// Notes what a look-up found; `fresh`: whether the entry was refreshed in this second.
    #[inline(always)]
    pub(crate) fn note(&mut self, key: u64, station: u32, fresh: bool) {
        let station = if fresh { station | FRESH } else { station };
        self.stations[place(key)] = Known { key, station, epoch: self.current };
    }

    /// The decision for frames admitted as `ingress` says to `station`, if this epoch had one; else `decide`'s.
    #[inline(always)]
    pub(crate) fn verdict(
        &mut self,
        ingress: u64,
        station: u32,
        decide: impl FnOnce() -> Decision,
    ) -> Decision {
        let place = (ingress ^ ingress >> 40 ^ u64::from(station)) % VERDICTS as u64;
        let verdict = &mut self.verdicts[usize::try_from(place).unwrap_or(0)];
        if verdict.epoch != self.current || verdict.station != station || verdict.ingress != ingress {
            *verdict = Verdict { ingress, station, epoch: self.current, decision: decide() };
        }
        verdict.decision
    }
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the upper bits of a product, then masked")]
fn place(key: u64) -> usize {
    (key.wrapping_mul(SPREAD) >> 52) as usize % ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::PortId;
    use packet::record::TagChange;

    fn state(changes: u64) -> State {
        State { view: 1, changes, secs: 7 }
    }

    #[test]
    fn nothing_outlives_its_epoch() {
        let mut recall = Recall::new();
        recall.enter(state(1));
        recall.note(5, 50, true);
        assert_eq!((recall.station(5), recall.station(6)), (Some(50), None));
        assert!(recall.is_fresh(5, 50) && !recall.is_fresh(5, 51));
        recall.note(5, 50, false);
        assert!(!recall.is_fresh(5, 50) && recall.station(5) == Some(50));
        recall.enter(State { view: 2, ..state(1) });
        assert_eq!(recall.station(5), None, "another bridge");
        recall.enter(state(1));
        assert_eq!(recall.station(5), Some(50), "the same state again");
        for changed in [
            state(2),
            State { secs: 8, ..state(2) },
            State { view: 1 + BRIDGES as u64, ..state(1) },
            state(1),
        ] {
            recall.enter(changed);
            assert_eq!(recall.station(5), None, "{changed:?}");
        }
    }

    #[test]
    fn verdicts_are_told_apart_by_ingress_and_station() {
        let mut recall = Recall::new();
        recall.enter(state(1));
        let reason = |number: u64| Decision::Forward {
            port: PortId(u16::try_from(number).unwrap()),
            tag: TagChange::Keep,
        };
        // Twice over, with places shared.
        for round in 0..2 {
            for ingress in 0..20u64 {
                for station in 0..20u32 {
                    let right = reason(ingress * 20 + u64::from(station));
                    assert_eq!(recall.verdict(ingress << 32, station, || right), right, "round {round}");
                }
            }
        }
        assert_eq!(recall.verdict(19 << 32, 19, || unreachable!("just decided")), reason(19 * 20 + 19));
        recall.enter(state(2));
        assert_eq!(recall.verdict(19 << 32, 19, || reason(0)), reason(0));
    }

    #[test]
    fn epochs_may_wrap() {
        let mut recall = Recall::new();
        recall.enter(state(1));
        recall.note(5, 50, true);
        recall.last = u32::MAX;
        recall.enter(state(2));
        assert_eq!((recall.current, recall.station(5)), (1, None));
    }
}
