//! Hash function of the MAC table, with a secret seed and a result of 64 bits. The key is multiplied twice by
//! secret odd numbers. After each multiplication, the halves of the 128-bit product are combined.
//!
//! One multiplication suffices for random keys. With some seeds, a single multiplication leaves arithmetic progressions
//! (for example consecutive VLANs) clustered. The second multiplication removes the clusters and takes well under a
//! nanosecond. The hash is not cryptographic. Therefore the seed must stay secret.

use crate::hash::fold;

/// Secret numbers of one table's hash function, derived from the table's seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher {
    add: u64,
    multiply: [u64; 2],
}

impl Hasher {
    pub(super) fn new(seed: u64) -> Self {
        let mut state = seed;
        // The multipliers are odd, so that no bit of the key is lost in the low half.
        Self { add: splitmix(&mut state), multiply: [splitmix(&mut state) | 1, splitmix(&mut state) | 1] }
    }

    /// Returns the hash of `key`. The halves of the result serve as two independent hashes.
    #[inline(always)]
    pub(super) fn hash(&self, key: u64) -> u64 {
        let [multiply_1, multiply_2] = self.multiply;
        fold(fold(key ^ self.add, multiply_1), multiply_2)
    }
}

/// Returns the next number of a pseudo-random sequence, for expanding a seed to several words (Steele, Lea,
/// Flood: "Fast splittable pseudorandom number generators", 2014).
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    #[cfg(not(miri))]
    use crate::primitives::place;

    #[cfg(not(miri))]
    /// Returns the chi-squared statistic of the distribution of keys over 1,024 cells, with 64 expected keys
    /// in each cell. Random placement yields 1,023 on average, with a standard deviation of about 45. More
    /// even placement yields less.
    fn chi_squared(seed: u64, keys: impl Iterator<Item = u64>, shift: u32) -> f64 {
        let hasher = Hasher::new(seed);
        let mut cells = [0f64; 1024];
        keys.for_each(|key| cells[place(hasher.hash(key) >> shift, 1023)] += 1.0);
        cells.iter().map(|count| (count - 64.0).powi(2) / 64.0).sum()
    }

    #[test]
    #[cfg(not(miri))]
    fn structured_keys_spread_evenly() {
        type Keys = fn(u64) -> u64;
        let structures: [(&str, Keys); 6] = [
            ("counting MACs", |n| 0x0200_0000_0000 + n),
            ("counting VLANs", |n| 0x0200_0000_0001 | (n << 48)),
            ("high bytes", |n| n << 32),
            ("strides", |n| n * 0x1_0001),
            ("bits far apart", |n| (n & 0xff) | ((n >> 8) << 40)),
            ("equal low bits", |n| n << 16),
        ];
        for (name, key) in structures {
            for shift in [0, 10, 32, 42] {
                let worst =
                    (0..12).map(|seed| chi_squared(seed, (0..65_536).map(key), shift)).fold(0.0, f64::max);
                assert!(worst < 1_300.0, "{name} >> {shift}: {worst}");
            }
        }
    }

    #[test]
    fn seeds_make_different_tables() {
        assert_ne!(Hasher::new(1).hash(5), Hasher::new(2).hash(5));
    }
}
