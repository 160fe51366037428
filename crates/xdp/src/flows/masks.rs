//! Masks of the table of cached flows, and their shares by ingress port.
//!
//! The table has few indices for masks. A sender that keeps flows with many masks in use must not occupy all indices
//! and leave none for other ports. Each mask therefore has an *owner*: the port that wrote the mask. If the owner no
//! longer has flows under the mask, another port with flows under the mask becomes the owner. A port that gets no index
//! for a new mask may *claim* the index of a mask whose owner has at least two masks more than the port. The flows
//! under the old mask leave the table, and the index is then assigned to the new mask. A claim counts as a mask of the
//! claiming port.
//!
//! Invariants:
//!
//! - A claim leaves the former owner with at least as many masks as the claiming port. The sum of the squares of the
//!   ports' masks therefore decreases with each claim, and ports with constant demands displace each other's masks only
//!   a limited number of times. Flows of other ports under a mask do not change the sum.
//! - A port never claims the index of a mask under which the port itself has flows.
//! - A port has at most one claim at a time, and at most one port has a claim for a given mask.
//! - The mask words at an index change only while no flow uses the index.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time for which an index stays reserved for a new mask. The time begins when the mask is written to the index. While
/// a port has only a claim to the index (see the module documentation), the time begins again at each request for the
/// mask. Without the reservation, flows that each need a new mask would evict each other's masks forever.
const RESERVED: Duration = Duration::from_secs(2);
/// Minimum number of masks by which the owner of a mask must exceed the port that claims the index of the mask.
const RICHER: usize = 2;

/// Claim of a port to an index that still holds another mask.
#[derive(Debug, Clone, Copy)]
struct Claim {
    port: u16,
    /// Words of the mask for which the index is claimed. A flow of any port with this mask may use the index.
    words: [u64; 8],
    /// Time at which the claim expires.
    until: Instant,
}

/// A flow mask of the table, with the state of the mask's index.
#[derive(Debug, Default)]
struct Mask {
    words: [u64; 8],
    /// Number of slots with flows under the mask, including removed flows whose slots are not released yet.
    users: usize,
    /// Number of flows under the mask by ingress port, without removed flows.
    flows: BTreeMap<u16, usize>,
    /// Whether every XDP program run in progress reads the complete mask.
    is_known: bool,
    /// Sequence number of the mask among all masks written to the table, from 1. 0 if the index was never used.
    nth: u64,
    /// Port that owns the mask: the port that wrote the mask, or the port that became its owner afterwards.
    owner: u16,
    /// Time until which the mask is kept for its owner although the owner has no flows under it. `None` after the owner
    /// has inserted its first flow.
    kept: Option<Instant>,
    claim: Option<Claim>,
}

impl Mask {
    fn is_kept(&self, now: Instant) -> bool {
        self.kept.is_some_and(|until| until > now)
    }

    /// Returns the port with a claim to the index, if the claim has not expired.
    fn claimant(&self, now: Instant) -> Option<u16> {
        self.claim.filter(|claim| claim.until > now).map(|claim| claim.port)
    }

    /// Returns the owner of the mask. Returns `None` if the mask is not kept and has no flows.
    fn owner(&self, now: Instant) -> Option<u16> {
        let is_own = self.is_kept(now) || self.flows.contains_key(&self.owner);
        if is_own { Some(self.owner) } else { self.flows.keys().next().copied() }
    }

    /// Returns whether the index has no users, so that its mask words may change.
    fn is_unused(&self) -> bool {
        self.users == 0 && (self.is_known || self.nth == 0)
    }

    /// Returns whether any port may write a new mask to the index.
    fn is_free(&self, now: Instant) -> bool {
        self.is_unused() && !self.is_kept(now) && self.claimant(now).is_none()
    }
}

/// Result of a port's request for a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Index {
    /// Flows can be inserted with the mask at this index.
    Ready(usize),
    /// The mask is in the table, but a program run in progress may have read only a part of it.
    Written,
    /// The mask is new. The caller must write its words at this index.
    New(usize),
    /// No index was assigned to the mask. The port may have obtained a claim to an index. To use the claim, the port
    /// must repeat the request.
    Refused,
}

/// The masks of a table with `N` indices.
#[derive(Debug)]
pub(super) struct Masks<const N: usize> {
    masks: [Mask; N],
    /// Number of masks that were written to the table so far.
    written: u64,
}

impl<const N: usize> Masks<N> {
    pub fn new() -> Masks<N> {
        Masks { masks: std::array::from_fn(|_| Mask::default()), written: 0 }
    }

    /// Returns the index of the mask `words` for a flow of an ingress port, or assigns an index to a new mask.
    pub fn request(&mut self, words: &[u64; 8], port: u16, now: Instant) -> Index {
        let known = self.masks.iter().position(|own| own.nth > 0 && own.words == *words);
        if let Some(at) = known {
            let mask = &self.masks[at];
            return match (mask.claimant(now), mask.is_known) {
                (Some(_), _) => Index::Refused,
                (None, true) => Index::Ready(at),
                (None, false) => Index::Written,
            };
        }
        let is_claimed =
            |own: &Mask| own.claimant(now).is_some() && own.claim.is_some_and(|own| own.words == *words);
        let claimed = self.masks.iter().position(is_claimed);
        let claimed_now = claimed.filter(|at| self.masks[*at].is_unused());
        let never_used = || self.masks.iter().position(|own| own.is_free(now) && own.nth == 0);
        let free = || self.masks.iter().position(|own| own.is_free(now));
        let at = claimed_now.or_else(never_used).or_else(free);
        let claim = claimed.and_then(|at| self.masks[at].claim.take());
        let owner = claim.map_or(port, |claim| claim.port);
        let until = now + RESERVED;
        let Some(at) = at else {
            match claimed {
                Some(at) => self.masks[at].claim = Some(Claim { port: owner, words: *words, until }),
                None => self.claim(words, port, now),
            }
            return Index::Refused;
        };
        self.written += 1;
        let nth = self.written;
        self.masks[at] = Mask { words: *words, nth, owner, kept: Some(until), ..Mask::default() };
        Index::New(at)
    }

    /// Claims an index for a mask of a port, unless the port has a claim already. Only masks are eligible whose owner
    /// has at least [`RICHER`] masks more than the port. Among these, the function selects a mask of the owner with the
    /// most masks. Of several such masks the function selects the mask that the fewest ports use, and of these the mask
    /// with the fewest flows.
    fn claim(&mut self, words: &[u64; 8], port: u16, now: Instant) {
        if self.masks.iter().any(|own| own.claimant(now) == Some(port)) {
            return;
        }
        let owned = self.owned(now);
        let owned = |port: u16| owned.get(&port).copied().unwrap_or(0);
        let needed = owned(port) + RICHER;
        let candidates = self.masks.iter_mut().filter(|own| own.claimant(now).is_none());
        let candidates = candidates.filter(|own| !own.flows.contains_key(&port)).filter_map(|mask| {
            // A mask without an owner will soon be free, so it is preferred to all other masks.
            let wealth = mask.owner(now).map_or(usize::MAX, owned);
            (wealth >= needed).then_some((wealth, mask))
        });
        let chosen = candidates.max_by_key(|(wealth, own)| (*wealth, Reverse((own.flows.len(), own.users))));
        if let Some((_, mask)) = chosen {
            (mask.kept, mask.claim) = (None, Some(Claim { port, words: *words, until: now + RESERVED }));
        }
    }

    /// Returns the number of masks that each port owns or has claimed.
    fn owned(&self, now: Instant) -> BTreeMap<u16, usize> {
        let mut owned = BTreeMap::new();
        for port in self.masks.iter().filter_map(|mask| mask.claimant(now).or_else(|| mask.owner(now))) {
            *owned.entry(port).or_default() += 1;
        }
        owned
    }

    /// Returns whether flows under the mask must leave the table, because a port has a claim to the index.
    pub fn is_displaced(&self, at: usize, now: Instant) -> bool {
        self.masks.get(at).is_some_and(|mask| mask.claimant(now).is_some())
    }

    /// Records the insertion of a flow of a port under a mask.
    pub fn add(&mut self, at: usize, port: u16, now: Instant) {
        if let Some(mask) = self.masks.get_mut(at) {
            mask.users += 1;
            mask.owner = mask.owner(now).unwrap_or(port);
            mask.kept = mask.kept.filter(|_| mask.owner != port);
            *mask.flows.entry(port).or_default() += 1;
        }
    }

    /// Records the removal of a flow of a port. The slot of the flow still uses the mask.
    pub fn remove(&mut self, at: usize, port: u16) {
        let Some(mask) = self.masks.get_mut(at) else { return };
        if let Some(flows) = mask.flows.get_mut(&port) {
            *flows -= 1;
            if *flows == 0 {
                mask.flows.remove(&port);
            }
        }
    }

    /// Records the release of the slot of a removed flow.
    pub fn release(&mut self, at: usize) {
        if let Some(mask) = self.masks.get_mut(at) {
            mask.users = mask.users.saturating_sub(1);
        }
    }

    /// Returns the number of masks that were written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Records that every program run in progress reads the complete words of the first `written` masks.
    pub fn settle(&mut self, written: u64) {
        self.masks.iter_mut().filter(|mask| mask.nth <= written).for_each(|mask| mask.is_known = true);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const INDICES: usize = 8;
    /// Time between two rounds of the model. The slow path checks each megaflow once per round.
    const ROUND: Duration = Duration::from_millis(500);

    /// A warm (recently used) flow: its ingress port and its mask.
    type Flow = (u16, u64);

    /// A naive model of the slow path, which inserts each warm flow and removes each displaced flow.
    struct Model {
        masks: Masks<INDICES>,
        now: Instant,
        /// Flows in the table, with the index of their mask.
        inserted: BTreeMap<Flow, usize>,
        /// Indices of the masks of removed flows whose slots are not released yet.
        leaving: Vec<usize>,
        displaced: usize,
    }

    impl Model {
        fn new() -> Model {
            let (masks, now) = (Masks::new(), Instant::now());
            Model { masks, now, inserted: BTreeMap::new(), leaving: Vec::new(), displaced: 0 }
        }

        fn remove(&mut self, flow: Flow) {
            if let Some(at) = self.inserted.remove(&flow) {
                self.masks.remove(at, flow.0);
                self.leaving.push(at);
            }
        }

        /// Checks each flow once, in the order of `flows`. Flows that are not in `flows` are cold, and are removed.
        fn round(&mut self, flows: &[Flow]) {
            self.now += ROUND;
            self.leaving.drain(..).for_each(|at| self.masks.release(at));
            self.masks.settle(self.masks.written());
            let cold: Vec<Flow> =
                self.inserted.keys().filter(|flow| !flows.contains(flow)).copied().collect();
            cold.into_iter().for_each(|flow| self.remove(flow));
            for flow in flows {
                match self.inserted.get(flow) {
                    Some(at) if self.masks.is_displaced(*at, self.now) => {
                        self.displaced += 1;
                        self.remove(*flow);
                    }
                    Some(_) => {}
                    None => {
                        let index = self.masks.request(&[flow.1; 8], flow.0, self.now);
                        if let Index::Ready(at) = index {
                            assert_eq!(self.masks.masks[at].words, [flow.1; 8]);
                            self.masks.add(at, flow.0, self.now);
                            self.inserted.insert(*flow, at);
                        }
                    }
                }
            }
        }

        fn rounds(&mut self, flows: &[Flow], rounds: usize) {
            (0..rounds).for_each(|nth| {
                // The order of the visits differs from round to round.
                let (early, late) = flows.split_at(nth * 7 % flows.len().max(1));
                self.round(&[late, early].concat());
            });
        }

        fn held(&self, port: u16) -> usize {
            self.inserted.keys().filter(|flow| flow.0 == port).count()
        }

        /// Checks that no port may claim the index of another port's mask, and that all flows whose masks are in the
        /// table are inserted.
        fn check_is_fair(&self, flows: &[Flow]) {
            let masks: BTreeSet<u64> = self.inserted.keys().map(|flow| flow.1).collect();
            let demanded: BTreeSet<u64> = flows.iter().map(|flow| flow.1).collect();
            assert_eq!(masks.len(), demanded.len().min(INDICES), "an index is not used");
            for flow in flows {
                assert_eq!(self.inserted.contains_key(flow), masks.contains(&flow.1), "{flow:?}");
            }
            let owners: BTreeMap<u64, u16> = self.owners();
            let owned = |port: u16| owners.values().filter(|own| **own == port).count();
            for (port, _) in flows.iter().filter(|flow| !masks.contains(&flow.1)) {
                for (mask, owner) in &owners {
                    let is_common = self.inserted.contains_key(&(*port, *mask));
                    assert!(is_common || owned(*owner) < owned(*port) + RICHER, "port {port}: {owners:?}");
                }
            }
        }

        /// Returns the owner of each mask with flows. Each owner must have a flow under its mask.
        fn owners(&self) -> BTreeMap<u64, u16> {
            let used = self.masks.masks.iter().filter(|mask| !mask.flows.is_empty());
            let owners: BTreeMap<u64, u16> =
                used.map(|mask| (mask.words[0], mask.owner(self.now).unwrap())).collect();
            assert!(owners.iter().all(|(mask, owner)| self.inserted.contains_key(&(*owner, *mask))));
            owners
        }
    }

    /// Returns a warm flow of `port` for each of the masks.
    fn flows(port: u16, masks: std::ops::Range<u64>) -> Vec<Flow> {
        masks.map(|mask| (port, mask)).collect()
    }

    /// Checks that a port whose masks fill the table gives up indices to another port, and that the ports do not
    /// displace each other's masks for ever.
    #[test]
    fn one_port_holds_all_masks_until_another_port_needs_one() {
        let mut model = Model::new();
        let (holder, one) = (flows(1, 0..20), flows(2, 100..101));
        model.rounds(&holder, 20);
        assert_eq!((model.held(1), model.displaced), (INDICES, 0), "a port alone uses all");
        model.rounds(&[holder.clone(), one.clone()].concat(), 8);
        assert_eq!((model.held(1), model.held(2), model.displaced), (7, 1, 1));
        model.rounds(&[holder.clone(), flows(2, 100..120)].concat(), 40);
        assert_eq!((model.held(1), model.held(2), model.displaced), (4, 4, 4));
        model.rounds(&[holder.clone(), flows(2, 100..120)].concat(), 100);
        assert_eq!(model.displaced, 4, "the shares do not change any more");
        model.rounds(&holder, 20);
        assert_eq!(model.held(1), INDICES, "indices without flows are free for any port");
    }

    /// Checks that two ports that share all masks give up an index when a third port needs one, although neither of the
    /// two ports is the only user of a mask.
    #[test]
    fn ports_that_share_all_masks_give_up_one_together() {
        let mut model = Model::new();
        let holders = [flows(1, 0..8), flows(2, 0..8)].concat();
        model.rounds(&holders, 10);
        assert_eq!(model.inserted.len(), 16);
        model.rounds(&[holders, flows(3, 100..101)].concat(), 10);
        assert_eq!((model.held(1), model.held(2), model.held(3)), (7, 7, 1));
    }

    /// Checks that a port that writes masks and never inserts a flow does not prevent another port from getting
    /// indices.
    #[test]
    fn a_port_that_only_writes_masks_does_not_keep_indices() {
        let mut model = Model::new();
        let mut fresh = 0;
        for round in 0..40 {
            for _ in 0..32 {
                fresh += 1;
                model.masks.request(&[fresh; 8], 1, model.now);
            }
            model.round(if round < 10 { &[] } else { &[(2, 0)] });
        }
        assert_eq!(model.held(2), 1);
    }

    /// Checks that a port never claims the index of a mask under which the port itself has flows, that masks that only
    /// one port uses are displaced first, and that a claim expires.
    #[test]
    fn masks_of_a_single_port_are_displaced_first_and_claims_expire() {
        let mut model = Model::new();
        model.rounds(&flows(1, 0..8), 10);
        let warm = [flows(1, 0..8), flows(2, 0..6), flows(3, 6..7)].concat();
        model.rounds(&warm, 10);
        assert_eq!(model.inserted.len(), 15);
        // Only port 1 uses the last mask. Port 4 requests a mask once.
        assert_eq!(model.masks.request(&[100; 8], 4, model.now), Index::Refused);
        let displaced = |model: &Model| -> Vec<u64> {
            let displaced = (0..INDICES).filter(|at| model.masks.is_displaced(*at, model.now));
            displaced.map(|at| model.masks.masks[at].words[0]).collect()
        };
        assert_eq!(displaced(&model), [7]);
        // Port 3 has flows under mask 6, and claims another mask.
        assert_eq!(model.masks.request(&[101; 8], 3, model.now), Index::Refused);
        assert!(displaced(&model).len() == 2 && !displaced(&model).contains(&6), "{:?}", displaced(&model));
        model.now += RESERVED;
        assert_eq!(displaced(&model), [0; 0]);
        model.rounds(&warm, 10);
        assert_eq!((model.inserted.len(), model.displaced), (15, 0));
    }

    /// Returns the number of masks of each port, sorted, if the indices are assigned one by one. Among the ports that
    /// still need a mask, the port with the fewest masks gets the next index.
    fn assign(demands: &[usize]) -> Vec<usize> {
        let mut held = vec![0; demands.len()];
        for _ in 0..INDICES {
            let ports = 0..demands.len();
            if let Some(poorest) = ports.filter(|at| held[*at] < demands[*at]).min_by_key(|at| held[*at]) {
                held[poorest] += 1;
            }
        }
        held.sort_unstable();
        held
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Checks that the numbers of masks of ports that share no masks equal those of a naive assignment, and then
        /// stay constant.
        #[test]
        fn shares_agree_with_a_naive_assignment(
            phases in prop::collection::vec(prop::collection::vec(0..12_usize, 1..10), 1..4),
        ) {
            let mut model = Model::new();
            for demands in phases {
                let warm: Vec<Flow> = (0_u16..).zip(&demands)
                    .flat_map(|(port, many)| (0..*many as u64).map(move |nth| (port, u64::from(port) * 100 + nth)))
                    .collect();
                model.rounds(&warm, 100);
                let mut held: Vec<usize> =
                    (0_u16..).take(demands.len()).map(|port| model.held(port)).collect();
                held.sort_unstable();
                prop_assert_eq!(held, assign(&demands));
                let displaced = model.displaced;
                model.rounds(&warm, 20);
                prop_assert_eq!(model.displaced, displaced, "the shares still change");
            }
        }

        /// Checks that the numbers of masks of ports that share masks become constant, and that no port may then
        /// displace a mask.
        #[test]
        fn shares_of_common_masks_become_fair_and_constant(
            phases in prop::collection::vec(prop::collection::btree_set((0..6_u16, 0..14_u64), 0..50), 1..4),
        ) {
            let mut model = Model::new();
            for warm in phases {
                let warm: Vec<Flow> = warm.into_iter().collect();
                model.rounds(&warm, 200);
                model.check_is_fair(&warm);
                let displaced = model.displaced;
                model.rounds(&warm, 20);
                prop_assert_eq!(model.displaced, displaced, "the shares still change");
            }
        }
    }
}
