//! Verifies that look-ups in the flow cache allocate no memory, neither for hits in the exact-match cache, nor for hits
//! under a mask, nor for misses.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lookup::{FlowCache, FlowLimits, MISS};
use sync::heap::{CountingHeap, allocations};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

const PORT: u16 = 3;

#[test]
fn finding_allocates_nothing() {
    let mut cache = FlowCache::<1, u32>::new(FlowLimits::default());
    for number in 0..1000 {
        let (key, mask) = ([number, 1, 2, 3, 4, 5, 6, 7], [u64::MAX >> (number % 3), 1, 0, 0, 0, 0, 0, 0]);
        cache.insert(PORT, &key, &[number], &mask, &[number % 2], 7).unwrap();
    }
    let keys: Vec<[u64; 8]> = (0..2000).map(|number| [number, 1, 2, 3, 4, 5, 6, 7]).collect();
    let mut found = vec![MISS; keys.len()];
    let before = allocations();
    for one_in in [None, std::num::NonZeroU32::new(1), std::num::NonZeroU32::new(3)] {
        cache.set_exact(one_in);
        for _ in 0..3 {
            cache.find_burst(PORT, |packet| &keys[packet], |packet| [packet as u64], &mut found);
            cache.rerank();
        }
    }
    assert_eq!(allocations() - before, 0);
    let counters = cache.counters();
    assert!(counters.exact >= 2000 && counters.wildcard >= 3000 && counters.misses == 9000, "{counters:?}");
}
