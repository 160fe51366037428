//! Resilient distribution of flows among the next hops of a route (multipath). A fixed number of hash buckets is
//! divided among the next hops. A change of the next hops moves as few buckets as their new shares allow. RFC 2992
//! compares algorithms of this kind, and the kernel's resilient nexthop groups work similarly.

/// Number of hash buckets of a group of next hops. The buckets are divided among the next hops.
pub const BUCKETS: usize = 1024;

/// Combines the hash of a flow with a router's seed. The result selects the flow's bucket ([`Buckets::of`]). Routers
/// with different seeds choose next hops independently of each other. BPF programs that forward for a router compute
/// the same value.
#[inline]
#[must_use]
pub fn spread(seed: u32, hash: u32) -> u32 {
    let mixed = (hash ^ seed).wrapping_mul(0x85eb_ca6b);
    let mixed = (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35);
    mixed >> 16
}

/// The assignment of hash buckets to the members of a group, for example next hops. The hash of a flow
/// selects its bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets<T> {
    members: Vec<T>,
    /// Index of the member to which each bucket is assigned, by bucket number.
    owners: Box<[u16; BUCKETS]>,
}

impl<T: Clone + PartialEq> Buckets<T> {
    /// Divides all buckets among the members of a group by weight. If there are more members than buckets, some members
    /// get none. Returns `None` if there are no members.
    #[must_use]
    pub fn new(members: &[(T, u16)]) -> Option<Buckets<T>> {
        Buckets::after(None, members)
    }

    /// Divides the buckets like [`Buckets::new`], but keeps the assignments in `before` as far as possible: a bucket
    /// moves to another member only if its former member now gets fewer buckets.
    #[must_use]
    pub fn after(before: Option<&Buckets<T>>, members: &[(T, u16)]) -> Option<Buckets<T>> {
        // A bucket's member is a 16-bit index.
        let members = members.get(..members.len().min(usize::from(u16::MAX)))?;
        if members.is_empty() {
            return None;
        }
        let place = |owner: u16| {
            let owner = before?.members.get(usize::from(owner))?;
            members.iter().position(|(member, _)| member == owner)
        };
        let known: Vec<Option<usize>> = match before {
            Some(before) => {
                // Each old member is searched for once.
                let places: Vec<_> = (0..).take(before.members.len()).map(place).collect();
                before.owners.iter().map(|owner| places.get(usize::from(*owner)).copied().flatten()).collect()
            }
            None => vec![None; BUCKETS],
        };
        let mut held = vec![0; members.len()];
        known.iter().flatten().for_each(|place| held[*place] += 1);
        let mut left = shares(members, &held);
        let mut owners = Box::new([0; BUCKETS]);
        let mut free = Vec::new();
        for (bucket, place) in known.into_iter().enumerate() {
            match place.filter(|place| left[*place] > 0) {
                Some(place) => {
                    left[place] -= 1;
                    owners[bucket] = u16::try_from(place).unwrap_or(0);
                }
                None => free.push(bucket),
            }
        }
        // Round-robin, so that adjacent buckets differ.
        let mut turn = (0..members.len()).cycle();
        for bucket in free {
            // The remaining shares add up to the number of free buckets.
            if let Some(place) = turn.by_ref().take(members.len()).find(|place| left[*place] > 0) {
                left[place] -= 1;
                owners[bucket] = u16::try_from(place).unwrap_or(0);
            }
        }
        Some(Buckets { members: members.iter().map(|(member, _)| member.clone()).collect(), owners })
    }

    /// Returns a copy in which each member is replaced by the result of `of`. The assignment of buckets is unchanged.
    #[must_use]
    pub fn map<U>(&self, of: impl FnMut(&T) -> U) -> Buckets<U> {
        Buckets { members: self.members.iter().map(of).collect(), owners: self.owners.clone() }
    }
}

impl<T> Buckets<T> {
    /// Returns all members of the group.
    #[must_use]
    pub fn members(&self) -> &[T] {
        &self.members
    }

    /// Returns the member to which flows with this hash are assigned.
    #[must_use]
    pub fn of(&self, hash: u32) -> Option<&T> {
        self.at(usize::try_from(hash).unwrap_or(0) % BUCKETS)
    }

    /// Returns the member to which a bucket is assigned. Returns `None` if there is no bucket with this
    /// index.
    #[must_use]
    pub fn at(&self, bucket: usize) -> Option<&T> {
        self.members.get(usize::from(*self.owners.get(bucket)?))
    }
}

/// Returns the number of buckets of each member. A member gets its share by weight, rounded down. The remaining buckets
/// go first to members that had more buckets before the change (`held`) than this share, and then to the members with
/// the largest remainders of the division.
fn shares<T>(members: &[(T, u16)], held: &[usize]) -> Vec<usize> {
    let total: usize = members.iter().map(|(_, weight)| usize::from(*weight).max(1)).sum();
    let exact = |weight: u16| usize::from(weight).max(1) * BUCKETS;
    let mut shares: Vec<usize> = members.iter().map(|(_, weight)| exact(*weight) / total).collect();
    let given: usize = shares.iter().sum();
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|place| {
        let loses = held[*place] > shares[*place];
        std::cmp::Reverse((loses, exact(members[*place].1) % total))
    });
    for place in order.into_iter().take(BUCKETS - given) {
        shares[place] += 1;
    }
    shares
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count(buckets: &Buckets<u32>, member: u32) -> usize {
        (0..BUCKETS).filter(|bucket| buckets.at(*bucket) == Some(&member)).count()
    }

    fn moved(before: &Buckets<u32>, after: &Buckets<u32>) -> usize {
        (0..BUCKETS).filter(|bucket| before.at(*bucket) != after.at(*bucket)).count()
    }

    fn members() -> impl Strategy<Value = Vec<(u32, u16)>> {
        proptest::collection::vec(1_u16..=256, 1..64)
            .prop_map(|weights| (1..).zip(weights).collect::<Vec<(u32, u16)>>())
    }

    fn total(members: &[(u32, u16)]) -> usize {
        members.iter().map(|(_, weight)| usize::from(*weight)).sum()
    }

    proptest! {
        #[test]
        fn shares_are_exact_to_a_bucket(members in members()) {
            let (buckets, total) = (Buckets::new(&members).unwrap(), total(&members));
            for (member, weight) in &members {
                let (has, exact) = (count(&buckets, *member) * total, usize::from(*weight) * BUCKETS);
                prop_assert!(has < exact + total && exact < has + total, "{member}: {has} of {exact}");
            }
        }

        #[test]
        fn who_leaves_or_joins_moves_its_share_and_one_in_a_hundred(
            members in members().prop_filter("someone is left", |members| members.len() > 1),
            nth in any::<prop::sample::Index>(),
        ) {
            let whole = Buckets::new(&members).unwrap();
            let mut fewer = members.clone();
            let (gone, _) = fewer.remove(nth.index(members.len()));
            let without = Buckets::after(Some(&whole), &fewer).unwrap();
            let share = count(&whole, gone);
            prop_assert!(moved(&whole, &without) <= share + BUCKETS / 100, "left: {} for {share}", moved(&whole, &without));
            prop_assert_eq!(count(&without, gone), 0);
            let back = Buckets::after(Some(&without), &members).unwrap();
            let share = count(&back, gone);
            prop_assert!(moved(&without, &back) <= share + BUCKETS / 100, "joined: {} for {share}", moved(&without, &back));
            // If the set of members does not change, no bucket moves, regardless of the order of the members.
            let mut turned = members.clone();
            turned.reverse();
            prop_assert_eq!(moved(&back, &Buckets::after(Some(&back), &turned).unwrap()), 0);
        }
    }

    #[test]
    fn nobody_shares_nothing_and_many_share_what_there_is() {
        assert_eq!(Buckets::<u32>::new(&[]), None);
        let one = Buckets::new(&[(7_u32, 3)]).unwrap();
        assert_eq!((count(&one, 7), one.of(u32::MAX)), (BUCKETS, Some(&7)));
        let crowd: Vec<(u32, u16)> = (0..2000).map(|member| (member, 1)).collect();
        let buckets = Buckets::new(&crowd).unwrap();
        assert!((0..BUCKETS).all(|bucket| buckets.at(bucket).is_some()));
        assert!((0..2000).all(|member| count(&buckets, member) <= 1));
    }
}
