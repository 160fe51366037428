//! Bit rows with one bit for each filter rule. Field values that match the same set of rules form a class,
//! which has one bit row.

use std::collections::HashMap;

use super::FilterError;

/// Error for a frame field whose values form more than 65,536 classes.
const CLASSES_FULL: FilterError =
    FilterError::Tables { table: "field of ports, lengths or addresses", limit: "65536 classes" };

/// A bit row: one bit for each rule, in the order of the rules.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Bits(Box<[u64]>);

impl Bits {
    pub fn none(rules: usize) -> Bits {
        Bits(vec![0; rules.div_ceil(64)].into_boxed_slice())
    }

    pub fn set(&mut self, rule: usize, on: bool) {
        let bit = 1 << (rule % 64);
        let Some(word) = self.0.get_mut(rule / 64) else { return };
        *word = if on { *word | bit } else { *word & !bit };
    }

    pub fn has(&self, rule: usize) -> bool {
        self.0.get(rule / 64).is_some_and(|word| word >> (rule % 64) & 1 != 0)
    }

    pub fn add(&mut self, other: &Bits) {
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    /// Appends the bit row to `rows` in the format that the XDP program reads. If the row has several words,
    /// a summary word precedes it. The summary word has a bit for each word that is not zero.
    pub fn write(&self, rows: &mut Vec<u64>) {
        if self.0.len() > 1 {
            rows.push(self.0.iter().enumerate().fold(0, |all, (at, word)| all | u64::from(*word != 0) << at));
        }
        rows.extend(&self.0);
    }
}

/// The distinct bit rows of a frame field. The class number of a row is its index in the order of insertion.
#[derive(Debug, Default)]
pub(super) struct Classes {
    numbers: HashMap<Bits, u32>,
    rows: Vec<Bits>,
}

impl Classes {
    /// Returns the class number of a bit row. Adds a new class if the row is not present yet.
    pub fn of(&mut self, bits: &Bits) -> Result<u32, FilterError> {
        if let Some(number) = self.numbers.get(bits) {
            return Ok(*number);
        }
        let number = u32::from(u16::try_from(self.rows.len()).map_err(|_| CLASSES_FULL)?);
        self.numbers.insert(bits.clone(), number);
        self.rows.push(bits.clone());
        Ok(number)
    }

    pub fn rows(&self) -> &[Bits] {
        &self.rows
    }
}

/// A table that maps each value of a frame field to its class (the set of rules that the value matches).
#[derive(Debug)]
pub(super) struct Table {
    pub classes: Vec<u16>,
    pub rows: Classes,
}

/// Builds the class table of a frame field whose values are below `domain`. `allowed` holds the ranges of
/// values that each rule matches, or `None` for a rule that matches any value. Returns `None` if every rule
/// matches any value.
pub(super) fn table(
    domain: usize,
    allowed: &[Option<Vec<(usize, usize)>>],
) -> Result<Option<Table>, FilterError> {
    if allowed.iter().all(Option::is_none) {
        return Ok(None);
    }
    // Edges of the ranges: +1 where a range begins, and -1 after its end.
    let mut edges: Vec<(usize, usize, i32)> = Vec::new();
    let mut bits = Bits::none(allowed.len());
    let mut open = vec![0_i32; allowed.len()];
    for (rule, ranges) in allowed.iter().enumerate() {
        match ranges {
            None => bits.set(rule, true),
            Some(ranges) => {
                for (first, last) in ranges {
                    edges.push((*first, rule, 1));
                    edges.push((last + 1, rule, -1));
                }
            }
        }
    }
    edges.sort_unstable();
    let mut table = Table { classes: Vec::with_capacity(domain), rows: Classes::default() };
    let mut edges = edges.into_iter().peekable();
    while table.classes.len() < domain {
        let at = table.classes.len();
        while let Some((_, rule, change)) = edges.next_if(|(edge, ..)| *edge <= at) {
            open[rule] += change;
            bits.set(rule, open[rule] > 0);
        }
        let end = edges.peek().map_or(domain, |(edge, ..)| (*edge).min(domain));
        let class = table.rows.of(&bits)?;
        table.classes.resize(end, u16::try_from(class).unwrap_or(u16::MAX));
    }
    Ok(Some(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_holds_the_rules_of_each_value() {
        let allowed =
            [Some(vec![(2, 4), (4, 6)]), None, Some(vec![(0, 0), (9, 9)]), Some(vec![]), Some(vec![(5, 9)])];
        let table = table(10, &allowed).unwrap().unwrap();
        for value in 0..10 {
            let mut expected = Bits::none(5);
            for (rule, ranges) in allowed.iter().enumerate() {
                let within = |r: &Vec<(usize, usize)>| r.iter().any(|(a, b)| (*a..=*b).contains(&value));
                expected.set(rule, ranges.as_ref().is_none_or(within));
            }
            assert_eq!(table.rows.rows()[usize::from(table.classes[value])], expected, "{value}");
        }
    }

    #[test]
    fn fields_that_no_rule_asks_for_have_no_table() {
        assert!(table(10, &[None, None]).unwrap().is_none());
    }

    #[test]
    fn rows_begin_with_a_summary_when_they_are_long() {
        let mut bits = Bits::none(130);
        bits.set(129, true);
        let mut rows = Vec::new();
        bits.write(&mut rows);
        assert_eq!(rows, [0b100, 0, 0, 2]);
        let mut short = Bits::none(64);
        short.set(63, true);
        rows.clear();
        short.write(&mut rows);
        assert_eq!(rows, [1 << 63]);
    }
}
