//! Aligned tables for people; `--json` is for programs.

use std::fmt::Write as _;

/// How a column is aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table under construction. The last column is not padded.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns; a heading that begins with `>` is a column of numbers.
    pub fn new(headings: &[&'static str]) -> Self {
        let column = |heading: &&'static str| match heading.strip_prefix('>') {
            Some(rest) => (rest, Align::Right),
            None => (*heading, Align::Left),
        };
        Table { columns: headings.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The text, one line per row and one for the headings.
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

/// Returns a count with its noun, which takes an `s` unless the count is 1: `1 port`, `2 ports`.
pub fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// A count with a unit prefix, four digits at most: `950`, `12.3k`, `1.25M`.
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
    fn counts_are_short() {
        let texts: Vec<String> =
            [0, 999, 1_000, 9_994, 12_345, 999_499, 1_250_000, 7_000_000_000_000].map(short).into();
        assert_eq!(texts, ["0", "999", "1.00k", "9.99k", "12.3k", "999k", "1.25M", "7000G"]);
    }
}
