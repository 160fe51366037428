//! Aligned text tables for the output of commands. Programs use `--json` instead.

use std::cmp::Ordering;
use std::fmt::Write as _;

/// A type of state value that `trivium show` lists. The type formats the list of its values, in
/// most cases as a table.
pub trait Listed: Sized {
    /// Returns the text of a list, with a line break at the end of each line.
    fn text(all: &[Self]) -> String;
}

/// Alignment of the texts in a column of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// The texts are aligned to the left, as for names.
    Left,
    /// The texts are aligned to the right, as for numbers.
    Right,
}

/// A text table to which rows are added. The last column is not padded with spaces.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these column headings. A heading that begins with `>` marks a column of numbers, which
    /// is right-aligned.
    pub fn new(headings: &[&'static str]) -> Self {
        let column = |heading: &&'static str| match heading.strip_prefix('>') {
            Some(rest) => (rest, Align::Right),
            None => (*heading, Align::Left),
        };
        Table { columns: headings.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Creates a table with one row for each value. The table has no columns yet.
    pub fn of<T>(values: &[T]) -> Columns<'_, T> {
        let rows = values.iter().map(|_| Vec::new()).collect();
        Columns { values, table: Table { columns: Vec::new(), rows } }
    }

    /// Adds a row to the table. `cells` has one text for each column.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Returns the text of the table: one line for the headings and one for each row.
    pub fn render(&self) -> String {
        let headings: Vec<String> = self.columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
        let width = |at: usize| {
            let cells = self.rows.iter().chain([&headings]).filter_map(|row| row.get(at));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        for row in [&headings].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for ((cell, (_, align)), width) in row.iter().zip(&self.columns).zip(&widths) {
                // Writing to a string cannot fail.
                let _ = match align {
                    Align::Left => write!(line, "{cell:<width$}  "),
                    Align::Right => write!(line, "{cell:>width$}  "),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A table with one row for each value, to which columns are added from left to right.
#[derive(Clone, Debug)]
pub struct Columns<'a, T> {
    values: &'a [T],
    table: Table,
}

impl<T> Columns<'_, T> {
    /// Adds a left-aligned column of text.
    #[must_use]
    pub fn text(self, heading: &'static str, cell: impl Fn(&T) -> String) -> Self {
        self.column(heading, Align::Left, cell)
    }

    /// Adds a right-aligned column of numbers, which `cell` formats.
    #[must_use]
    pub fn number(self, heading: &'static str, cell: impl Fn(&T) -> String) -> Self {
        self.column(heading, Align::Right, cell)
    }

    /// Adds a right-aligned column of counts, which [`short`] formats.
    #[must_use]
    pub fn count(self, heading: &'static str, count: impl Fn(&T) -> u64) -> Self {
        self.column(heading, Align::Right, |value| short(count(value)))
    }

    fn column(mut self, heading: &'static str, align: Align, cell: impl Fn(&T) -> String) -> Self {
        self.table.columns.push((heading, align));
        for (row, value) in self.table.rows.iter_mut().zip(self.values) {
            row.push(cell(value));
        }
        self
    }

    /// Returns the text of the table: one line for the headings and one for each value.
    pub fn render(&self) -> String {
        self.table.render()
    }
}

/// Returns `part` divided by `of`. Returns 0 if `of` is 0.
#[allow(clippy::cast_precision_loss, reason = "a mean for people to read")]
pub fn ratio(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

/// Returns a count with its noun, such as `1 port` or `2 ports`. The noun takes an `s` unless the count is 1.
pub fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Compares two names such that numbers within names have numerical order: `v2` comes before `v10`.
pub fn by_number(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one, other);
    loop {
        let (Some(a), Some(b)) = (left.chars().next(), right.chars().next()) else {
            // One name is a prefix of the other, or the names differ in leading zeros.
            return left.len().cmp(&right.len()).then_with(|| one.cmp(other));
        };
        if a.is_ascii_digit() && b.is_ascii_digit() {
            let (x, y) = (digits(left), digits(right));
            let (number, against) = (x.trim_start_matches('0'), y.trim_start_matches('0'));
            let order = number.len().cmp(&against.len()).then_with(|| number.cmp(against));
            if order != Ordering::Equal {
                return order;
            }
            (left, right) = (&left[x.len()..], &right[y.len()..]);
        } else if a == b {
            (left, right) = (&left[a.len_utf8()..], &right[b.len_utf8()..]);
        } else {
            return a.cmp(&b);
        }
    }
}

/// Returns the decimal digits at the beginning of a text. The result is empty if the text does not
/// begin with a digit.
fn digits(text: &str) -> &str {
    &text[..text.bytes().take_while(u8::is_ascii_digit).count()]
}

/// Returns the names of a worker's receive queues (port and queue number) on one line, such as `a/0 a/1`. A long
/// list is shortened to its first and last port and the number of queues, such as `v1..v200: 200 queues`.
pub fn folded(queues: &[String]) -> String {
    /// Maximum number of queues that are named individually.
    const NAMED: usize = 8;
    if queues.len() <= NAMED {
        return queues.join(" ");
    }
    let mut ports: Vec<&str> =
        queues.iter().map(|queue| queue.rsplit_once('/').map_or(queue.as_str(), |(port, _)| port)).collect();
    ports.sort_by(|one, other| by_number(one, other));
    ports.dedup();
    let ports = match ports.as_slice() {
        [first, .., last] => format!("{first}..{last}"),
        _ => ports.concat(),
    };
    format!("{ports}: {} queues", queues.len())
}

/// Returns a count with a metric prefix and at most four digits, such as `950`, `12.3k` or `1.25M`.
#[allow(clippy::cast_precision_loss, reason = "a rounded figure for people")]
pub fn short(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["", "k", "M", "G"] {
        if value < 999.5 || unit == "G" {
            return match unit {
                "" => count.to_string(),
                _ if value < 10.0 => format!("{value:.2}{unit}"),
                _ if value < 100.0 => format!("{value:.1}{unit}"),
                _ => format!("{value:.0}{unit}"),
            };
        }
        value /= 1000.0;
    }
    count.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align() {
        let mut table = Table::new(&["NAME", ">PACKETS", "NOTE"]);
        table.row(["web1", "7", ""]);
        table.row(["a-long-name", "1234567", "down"]);
        assert_eq!(
            table.render(),
            "NAME         PACKETS  NOTE\nweb1               7\na-long-name  1234567  down\n"
        );
    }

    #[test]
    fn nouns_agree_with_their_counts() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "port")), ["0 ports", "1 port", "2 ports"]);
    }

    #[test]
    fn names_are_sorted_by_their_numbers() {
        let sorted = ["eth0", "v1", "v2", "v2a", "v02b", "v10", "v10x", "v200", "w"];
        let mut names = sorted;
        names.sort_unstable();
        assert_ne!(names, sorted);
        names.sort_by(|one, other| by_number(one, other));
        assert_eq!(names, sorted);
        assert_eq!(by_number("v01", "v1").reverse(), by_number("v1", "v01"));
        assert_ne!(by_number("v01", "v1"), Ordering::Equal);
    }

    #[test]
    fn many_queues_are_folded() {
        let queues =
            |ports: std::ops::RangeInclusive<u8>| ports.map(|n| format!("v{n}/0")).collect::<Vec<_>>();
        assert_eq!(folded(&queues(1..=3)), "v1/0 v2/0 v3/0");
        assert_eq!(folded(&queues(1..=200)), "v1..v200: 200 queues");
        let one: Vec<String> = (0..32).map(|queue| format!("eth0/{queue}")).collect();
        assert_eq!(folded(&one), "eth0: 32 queues");
    }

    #[test]
    fn counts_are_short() {
        let texts: Vec<String> =
            [0, 999, 1_000, 9_994, 12_345, 999_499, 1_250_000, 7_000_000_000_000].map(short).into();
        assert_eq!(texts, ["0", "999", "1.00k", "9.99k", "12.3k", "999k", "1.25M", "7000G"]);
    }
}
