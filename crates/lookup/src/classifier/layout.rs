//! Layout of a key: positions of the fields that a classifier treats specially.

use std::ops::Range;

/// Position of one field in the bytes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Octets {
    /// Index of the field's first octet in the key.
    pub from: usize,
    /// Number of octets in the field, at most 16.
    pub count: usize,
}

/// Maximum number of prefix fields (for example IP addresses) in a layout.
pub const MOST_PREFIXES: usize = 8;
/// Maximum number of port number fields (for example TCP ports) in a layout.
pub const MOST_PORTS: usize = 8;

/// Positions of the key fields that a classifier treats specially.
///
/// Octets are counted over the words of the key in memory order. A layout is a constant of the program.
/// [`Layout::new`] checks it at compile time.
#[derive(Clone, Copy, Debug)]
pub struct Layout<const W: usize> {
    pub(super) stages: [usize; 4],
    pub(super) prefixes: &'static [Octets],
    pub(super) ports: &'static [usize],
    pub(super) partition: (usize, usize),
}

impl<const W: usize> Layout<W> {
    /// Returns a layout with the given positions.
    ///
    /// - `stages`: for each of the metadata, L2, L3 and L4 stages, number of words from the start of the key to the
    ///   end of the stage. The last number is `W`.
    /// - `prefixes`: fields whose prefixes are tracked. Each field lies within one stage.
    /// - `ports`: index in the key of the first octet of each port number. A port number has two octets and lies in the
    ///   last stage.
    /// - `partition`: range of words (first word, word after the last) whose value partitions the rules. Look-ups skip
    ///   subtables without rules for the key's value. With `(0, 0)`, the rules are not partitioned.
    ///
    /// # Panics
    /// Panics if an argument violates these conditions. In a constant this is a compile-time error.
    #[must_use]
    pub const fn new(
        stages: [usize; 4],
        prefixes: &'static [Octets],
        ports: &'static [usize],
        partition: (usize, usize),
    ) -> Layout<W> {
        assert!(stages[0] <= stages[1] && stages[1] <= stages[2] && stages[2] <= stages[3]);
        assert!(stages[3] == W, "the last stage ends with the key");
        assert!(prefixes.len() <= MOST_PREFIXES && ports.len() <= MOST_PORTS, "more fields than are tracked");
        assert!(partition.0 <= partition.1 && partition.1 <= W, "the partition lies outside the key");
        let layout = Layout { stages, prefixes, ports, partition };
        let mut at = 0;
        while at < prefixes.len() {
            let (from, count) = (prefixes[at].from, prefixes[at].count);
            assert!(1 <= count && count <= 16 && from + count <= W * 8, "a prefix field outside the key");
            assert!(
                layout.stage_of(from) == layout.stage_of(from + count - 1),
                "a prefix field in two stages"
            );
            at += 1;
        }
        at = 0;
        while at < ports.len() {
            assert!(ports[at] >= stages[2] * 8 && ports[at] + 2 <= W * 8, "a port outside the last stage");
            at += 1;
        }
        layout
    }

    /// Returns the index of the stage that contains the octet of the key at index `octet`.
    pub(super) const fn stage_of(&self, octet: usize) -> usize {
        let mut stage = 0;
        while octet / 8 >= self.stages[stage] {
            stage += 1;
        }
        stage
    }

    pub(super) fn partition(&self) -> Range<usize> {
        self.partition.0..self.partition.1
    }
}

/// Converts a word of a key to a number in which the first octet in memory is the highest octet (big-endian order). The
/// function also converts such a number to a word.
#[inline(always)]
fn turned(word: u64) -> u64 {
    word.to_be()
}

/// Returns the value of a field in a key. The field's first bit is the highest bit of the result.
#[inline(always)]
pub fn field<const W: usize>(key: &[u64; W], octets: Octets) -> u128 {
    let (first, shift) = (octets.from / 8, octets.from % 8 * 8);
    let word = |at: usize| key.get(at).map_or(0, |word| u128::from(turned(*word)));
    let both = word(first) << 64 | word(first + 1);
    let behind = if shift == 0 { 0 } else { word(first + 2) >> (64 - shift) };
    (both << shift | behind) & (u128::MAX << (128 - octets.count * 8))
}

/// Sets in a key those bits of a field that are set in `bits`. The field's first bit is the highest bit of `bits`.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "takes a number of 128 bits apart")]
pub fn or_field<const W: usize>(key: &mut [u64; W], octets: Octets, bits: u128) {
    let (first, shift) = (octets.from / 8, octets.from % 8 * 8);
    let mut or = |at: usize, bits: u64| {
        if let Some(word) = key.get_mut(at) {
            *word |= turned(bits);
        }
    };
    or(first, (bits >> shift >> 64) as u64);
    or(first + 1, (bits >> shift) as u64);
    if shift != 0 {
        or(first + 2, (bits << (64 - shift)) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_written_wherever_they_stand() {
        let octets: Vec<u8> = (1..=32).collect();
        let key: [u64; 4] =
            std::array::from_fn(|at| u64::from_ne_bytes(octets[at * 8..at * 8 + 8].try_into().unwrap()));
        for from in 0..32 {
            for count in 1..=16.min(32 - from) {
                let octets = Octets { from, count };
                let value = field(&key, octets).to_be_bytes();
                let first = u8::try_from(from + 1).unwrap();
                for (at, octet) in (0_u8..16).zip(value) {
                    assert_eq!(octet, if usize::from(at) < count { first + at } else { 0 });
                }
                let mut written = [0; 4];
                or_field(&mut written, octets, field(&key, octets));
                assert_eq!(field(&written, octets), field(&key, octets));
                let bytes: Vec<u8> = written.iter().flat_map(|word| word.to_ne_bytes()).collect();
                assert!(
                    bytes
                        .iter()
                        .enumerate()
                        .all(|(at, octet)| (*octet != 0) == (from..from + count).contains(&at))
                );
            }
        }
    }

    #[test]
    fn stages_are_found_by_octet() {
        const LAYOUT: Layout<8> =
            Layout::new([1, 3, 7, 8], &[Octets { from: 24, count: 4 }], &[56, 58], (0, 1));
        assert_eq!(
            [0, 7, 8, 23, 24, 55, 56, 63].map(|octet| LAYOUT.stage_of(octet)),
            [0, 0, 1, 1, 2, 2, 3, 3]
        );
    }
}
