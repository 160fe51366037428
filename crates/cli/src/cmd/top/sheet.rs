//! Table of one page of `trivium top`: rows with values, rates and the values of the last two minutes.
//!
//! A [`Sheet`] is updated with rows of cumulative counters about once a second. The sheet computes the rate of
//! each counter from the last two updates. Rows are identified by their keys, so rows may come and go.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::table::{by_number, short};

/// Number of values that the history of a column holds.
const HISTORY: usize = 120;
/// Interval between two updates after which the histories begin again.
const GAP: Duration = Duration::from_secs(5);
/// Symbols of a sparkline, from 0 to the maximum.
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Kind of the values of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Text.
    Text,
    /// Number, such as a number of objects or a cumulative count.
    Number,
    /// Events per second, from a cumulative count of events.
    Rate,
    /// Bits per second, from a cumulative count of bytes.
    Bits,
    /// Percentage, from a fraction 0..=1.
    Percent,
}

/// Column of a sheet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Heading of the column.
    pub title: &'static str,
    /// Kind of the values.
    pub kind: Kind,
    /// Maximum width in characters. 0: the column takes the width that other columns leave.
    pub width: u16,
}

impl Column {
    /// Creates a column.
    pub const fn new(title: &'static str, kind: Kind, width: u16) -> Column {
        Column { title, kind, width }
    }
}

/// Cell of a row that is added to a sheet.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// Text of a text column.
    Text(String),
    /// Value that is shown as it is, or `None` if it is not known.
    Value(Option<f64>),
    /// Cumulative count, from which the sheet computes a rate per second.
    Count(u64),
}

impl Cell {
    /// Creates a cell with a text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// Creates a cell with a number that is shown as it is.
    #[allow(clippy::cast_precision_loss, reason = "a rounded figure for people")]
    pub fn number(number: u64) -> Cell {
        Cell::Value(Some(number as f64))
    }
}

/// Row that is added to a sheet.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Key that identifies the row in successive updates.
    pub key: String,
    /// Cells, one for each column.
    pub cells: Vec<Cell>,
    /// Text that is shown while the row is selected.
    pub note: String,
    /// Whether the object of the row has a problem or is down.
    pub trouble: bool,
}

impl Row {
    /// Creates a row without a note.
    pub fn new(key: impl Into<String>, cells: Vec<Cell>) -> Row {
        Row { key: key.into(), cells, note: String::new(), trouble: false }
    }
}

/// Value of a cell that is shown.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Text.
    Text(String),
    /// Number, or `None` while it is not known, as for a rate after the first update.
    Number(Option<f64>),
}

impl Value {
    /// Returns the number, or `None` if the value is a text or is not known.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Text(_) => None,
            Value::Number(number) => *number,
        }
    }

    /// Formats the value for a column of this kind.
    pub fn format(&self, kind: Kind) -> String {
        match (self, kind) {
            (Value::Text(text), _) => text.clone(),
            (Value::Number(None), _) => "-".to_owned(),
            (Value::Number(Some(share)), Kind::Percent) => format!("{:.1} %", share * 100.0),
            (Value::Number(Some(number)), _) => figure(*number),
        }
    }
}

/// Row of a sheet, with the values that are shown.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// Key of the row.
    pub key: String,
    /// Values, one for each column.
    pub values: Vec<Value>,
    /// Text that is shown while the row is selected.
    pub note: String,
    /// Whether the object of the row has a problem or is down.
    pub trouble: bool,
    cells: Vec<Cell>,
    histories: Vec<VecDeque<f64>>,
}

impl Line {
    /// Returns the last sums of the values of these columns that are known, from the oldest to the newest.
    pub fn history(&self, columns: &[usize]) -> Vec<f64> {
        let mut sums: Vec<f64> = Vec::new();
        for history in columns.iter().filter_map(|column| self.histories.get(*column)) {
            sums.resize(sums.len().max(history.len()), 0.0);
            // The newest values are at the ends.
            for (sum, value) in sums.iter_mut().rev().zip(history.iter().rev()) {
                *sum += value;
            }
        }
        sums
    }

    /// Returns whether the key or a text of the line contains `filter`, which is in lower case.
    fn contains(&self, filter: &str) -> bool {
        let text = |value: &Value| match value {
            Value::Text(text) => text.to_lowercase().contains(filter),
            Value::Number(_) => false,
        };
        self.key.to_lowercase().contains(filter) || self.values.iter().any(text)
    }
}

/// Order of the lines of a sheet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// Index of the column by which lines are sorted.
    pub column: usize,
    /// Whether large values come first.
    pub descending: bool,
}

/// Rows of one page, with rates and histories.
#[derive(Clone, Debug)]
pub struct Sheet {
    columns: &'static [Column],
    /// Time of the last update, or `None` before the first update.
    at: Option<Duration>,
    lines: Vec<Line>,
}

impl Sheet {
    /// Creates an empty sheet.
    pub fn new(columns: &'static [Column]) -> Sheet {
        Sheet { columns, at: None, lines: Vec::new() }
    }

    /// Returns whether the sheet has been updated at least once.
    pub fn is_read(&self) -> bool {
        self.at.is_some()
    }

    /// Returns all lines, in the order of the last update.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Returns the line with this key.
    pub fn line(&self, key: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.key == key)
    }

    /// Replaces the rows. `at` is the time of the reading by a steady clock. Rates are unknown if the clock has
    /// gone back, as it does when the daemon has restarted.
    pub fn update(&mut self, at: Duration, rows: Vec<Row>) {
        let passed = self.at.and_then(|before| at.checked_sub(before)).filter(|passed| !passed.is_zero());
        let continues = passed.is_none_or(|passed| passed <= GAP);
        self.at = Some(at);
        let mut before: HashMap<String, Line> =
            self.lines.drain(..).map(|line| (line.key.clone(), line)).collect();
        let columns = self.columns;
        self.lines = rows
            .into_iter()
            .map(|row| {
                let old = before.remove(&row.key);
                let cells = old.as_ref().map_or(&[][..], |old| &old.cells);
                let values: Vec<Value> = columns
                    .iter()
                    .zip(&row.cells)
                    .enumerate()
                    .map(|(at, (column, cell))| value(column.kind, cell, cells.get(at), passed))
                    .collect();
                let mut histories = old.filter(|_| continues).map_or_else(Vec::new, |old| old.histories);
                histories.resize(columns.len(), VecDeque::new());
                for (history, value) in histories.iter_mut().zip(&values) {
                    let Some(number) = value.number() else { continue };
                    if history.len() == HISTORY {
                        history.pop_front();
                    }
                    history.push_back(number);
                }
                let Row { key, cells, note, trouble } = row;
                Line { key, values, note, trouble, cells, histories }
            })
            .collect();
    }

    /// Replaces the texts, notes and problems of the rows that the sheet has. Numbers and histories are unchanged.
    pub fn amend(&mut self, rows: Vec<Row>) {
        let mut rows: HashMap<String, Row> = rows.into_iter().map(|row| (row.key.clone(), row)).collect();
        for line in &mut self.lines {
            let Some(row) = rows.remove(&line.key) else { continue };
            for (value, cell) in line.values.iter_mut().zip(row.cells) {
                if let Cell::Text(text) = cell {
                    *value = Value::Text(text);
                }
            }
            (line.note, line.trouble) = (row.note, row.trouble);
        }
    }

    /// Returns the lines that contain `filter`, sorted by `order`. Equal lines are sorted by key, with numbers
    /// in numerical order. The filter ignores case.
    pub fn shown(&self, order: Order, filter: &str) -> Vec<&Line> {
        let filter = filter.to_lowercase();
        let mut shown: Vec<&Line> = self.lines.iter().filter(|line| line.contains(&filter)).collect();
        shown.sort_by(|one, other| {
            let compared = compare(one.values.get(order.column), other.values.get(order.column));
            let compared = if order.descending { compared.reverse() } else { compared };
            compared.then_with(|| by_number(&one.key, &other.key))
        });
        shown
    }

    /// Returns the sum of the values of a column. Unknown values count as 0.
    pub fn sum(&self, column: usize) -> f64 {
        self.lines.iter().filter_map(|line| line.values.get(column)?.number()).sum()
    }
}

/// Returns the value of a cell. For a count, this is the rate since the former cell, `passed` ago.
#[allow(clippy::cast_precision_loss, reason = "rates for people to read")]
fn value(kind: Kind, cell: &Cell, before: Option<&Cell>, passed: Option<Duration>) -> Value {
    match cell {
        Cell::Text(text) => Value::Text(text.clone()),
        Cell::Value(number) => Value::Number(*number),
        Cell::Count(now) => {
            let (Some(Cell::Count(before)), Some(passed)) = (before, passed) else {
                return Value::Number(None);
            };
            let rate = now.saturating_sub(*before) as f64 / passed.as_secs_f64();
            Value::Number(Some(if kind == Kind::Bits { rate * 8.0 } else { rate }))
        }
    }
}

/// Compares two values. Unknown numbers come before known numbers.
fn compare(one: Option<&Value>, other: Option<&Value>) -> Ordering {
    match (one, other) {
        (Some(Value::Text(one)), Some(Value::Text(other))) => by_number(one, other),
        (Some(Value::Number(one)), Some(Value::Number(other))) => {
            one.partial_cmp(other).unwrap_or(Ordering::Equal)
        }
        _ => Ordering::Equal,
    }
}

/// Returns a number with a metric prefix and at most four digits, such as `950`, `12.3k` or `1.25M`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a figure, rounded for people")]
pub fn figure(number: f64) -> String {
    short(number.max(0.0).round() as u64)
}

/// Returns a sparkline of the last values, with the newest value at the right. `most` is the value of a full
/// bar. If `most` is `None`, the largest value has a full bar. The line is at most `width` characters wide.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the level of a bar, 0..=8")]
pub fn sparkline(values: &[f64], most: Option<f64>, width: usize) -> String {
    let shown = &values[values.len().saturating_sub(width)..];
    let most = most.unwrap_or_else(|| shown.iter().copied().fold(0.0, f64::max));
    let level = |value: f64| {
        if value <= 0.0 || most <= 0.0 { 0 } else { ((value / most * 8.0).round() as usize).clamp(1, 8) }
    };
    let bars: String = shown.iter().map(|value| LEVELS[level(*value)]).collect();
    format!("{bars:>width$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column::new("NAME", Kind::Text, 8),
        Column::new("p/s", Kind::Rate, 7),
        Column::new("bit/s", Kind::Bits, 7),
    ];

    fn row(name: &str, packets: u64) -> Row {
        Row::new(name, vec![Cell::text(name), Cell::Count(packets), Cell::Count(packets * 100)])
    }

    fn second(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn rate(sheet: &Sheet, name: &str) -> Option<f64> {
        sheet.line(name).unwrap().values[1].number()
    }

    #[test]
    fn rates_are_unknown_until_the_second_update_of_a_row() {
        let mut sheet = Sheet::new(COLUMNS);
        sheet.update(second(10), vec![row("a", 500)]);
        assert_eq!(rate(&sheet, "a"), None);
        sheet.update(second(12), vec![row("a", 2500), row("b", 7)]);
        assert_eq!((rate(&sheet, "a"), rate(&sheet, "b")), (Some(1000.0), None));
        let values = &sheet.line("a").unwrap().values;
        assert_eq!(values[2].format(Kind::Bits), "800k");
        assert_eq!(sheet.sum(1), 1000.0);
    }

    #[test]
    fn a_clock_that_goes_back_gives_no_rate() {
        let mut sheet = Sheet::new(COLUMNS);
        sheet.update(second(100), vec![row("a", 500)]);
        sheet.update(second(101), vec![row("a", 600)]);
        sheet.update(second(1), vec![row("a", 10)]);
        assert_eq!(rate(&sheet, "a"), None);
        sheet.update(second(2), vec![row("a", 30)]);
        assert_eq!(rate(&sheet, "a"), Some(20.0));
        assert_eq!(sheet.line("a").unwrap().history(&[1]), [100.0, 20.0]);
    }

    #[test]
    fn histories_are_bounded_and_begin_again_after_a_gap() {
        let mut sheet = Sheet::new(COLUMNS);
        for at in 0..300 {
            sheet.update(second(at), vec![row("a", at * 10)]);
        }
        assert_eq!(sheet.line("a").unwrap().history(&[1]).len(), HISTORY);
        sheet.update(second(400), vec![row("a", 4000)]);
        assert_eq!(sheet.line("a").unwrap().history(&[1]).len(), 1);
    }

    #[test]
    fn lines_are_sorted_and_filtered() {
        let mut sheet = Sheet::new(COLUMNS);
        let rows = |more: u64| vec![row("v10", more), row("v2", 3 * more), row("web", more), row("x", 0)];
        sheet.update(second(1), rows(0));
        sheet.update(second(2), rows(100));
        let keys = |column, descending, filter| -> Vec<&str> {
            let shown = sheet.shown(Order { column, descending }, filter);
            shown.iter().map(|line| line.key.as_str()).collect()
        };
        assert_eq!(keys(0, false, ""), ["v2", "v10", "web", "x"]);
        assert_eq!(keys(0, true, ""), ["x", "web", "v10", "v2"]);
        assert_eq!(keys(1, true, ""), ["v2", "v10", "web", "x"]);
        assert_eq!(keys(1, false, "V"), ["v10", "v2"]);
        assert!(keys(0, false, "absent").is_empty());
    }

    #[test]
    fn sparklines_end_with_the_newest_value() {
        assert_eq!(sparkline(&[], None, 3), "   ");
        assert_eq!(sparkline(&[0.0, 1.0, 50.0, 100.0], None, 6), "   ▁▄█");
        assert_eq!(sparkline(&[100.0, 50.0, 50.0], None, 2), "██");
        assert_eq!(sparkline(&[0.5, 1.0], Some(2.0), 2), "▂▄");
    }
}
