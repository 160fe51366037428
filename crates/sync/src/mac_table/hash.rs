//! Seeded 64-bit hash of the MAC table: two folded 64x64->128 multiplications.
//!
//! One multiplication mixes, the second hides the structure that an attacker who chooses keys could still exploit in
//! the first; both pipeline across a burst. No claim of cryptographic strength: the seed must stay secret.

/// The secret that a table hashes under.
#[derive(Debug)]
pub(super) struct Hasher {
    secret: [u64; 4],
}

impl Hasher {
    pub(super) fn new(seed: u64) -> Self {
        let mut state = seed;
        // Odd multipliers: no bit of the key is lost in the low half.
        let mut next = || splitmix(&mut state);
        Self { secret: [next(), next() | 1, next(), next() | 1] }
    }

    /// Two independent 32-bit values.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "takes the halves apart")]
    pub(super) fn hash(&self, key: u64) -> [u32; 2] {
        let [add_1, multiply_1, add_2, multiply_2] = self.secret;
        let hash = fold(fold(key ^ add_1, multiply_1) ^ add_2, multiply_2);
        [hash as u32, (hash >> 32) as u32]
    }
}

/// Multiplies to 128 bits and folds the halves together.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "takes the halves apart")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Spreads a seed over many words (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Chi-squared over 1,024 cells of 64 expected each; its standard deviation is about 45.
    fn chi_squared(keys: impl Iterator<Item = u64>, part: usize, shift: u32) -> f64 {
        let hasher = Hasher::new(42);
        let mut cells = [0f64; 1024];
        keys.for_each(|key| cells[(hasher.hash(key)[part] >> shift) as usize & 1023] += 1.0);
        cells.iter().map(|count| (count - 64.0).powi(2) / 64.0).sum()
    }

    #[test]
    #[cfg(not(miri))]
    fn structured_keys_spread_evenly() {
        type Keys = fn(u64) -> u64;
        let structures: [(&str, Keys); 5] = [
            ("counting MACs", |n| 0x0200_0000_0000 + n),
            ("counting VLANs", |n| 0x0200_0000_0001 | (n << 48)),
            ("high bytes", |n| n << 32),
            ("strides", |n| n * 0x1_0001),
            ("bits far apart", |n| (n & 0xff) | ((n >> 8) << 40)),
        ];
        for (name, key) in structures {
            for (part, shift) in [(0, 0), (0, 10), (1, 0), (1, 10)] {
                let x = chi_squared((0..65_536).map(key), part, shift);
                assert!((700.0..1_350.0).contains(&x), "{name}, part {part} >> {shift}: {x}");
            }
        }
    }

    #[test]
    fn seeds_make_different_tables() {
        assert_ne!(Hasher::new(1).hash(5), Hasher::new(2).hash(5));
    }
}
