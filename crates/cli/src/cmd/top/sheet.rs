//! Table of one page of `trivium top`: rows with values, rates, and a history of two minutes.
//!
//! A [`Sheet`] is updated about once a second with rows of cumulative counters. The sheet computes
//! the rate of each counter from the last two updates. A row is recognised by its key. Therefore
//! rows may appear and disappear.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::table::{by_number, short};

/// Maximum number of values in the history of a column, one for each update.
const HISTORY: usize = 120;
/// Time without an update after which the histories start again.
const GAP: Duration = Duration::from_secs(5);
/// Characters of a sparkline for the levels from 0 to the maximum.
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Kind of the values in a column of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Text, which is shown as it is.
    Text,
    /// Number that is shown as it is, such as a number of objects or a cumulative count.
    Number,
    /// Events per second, computed from a cumulative count of events.
    Rate,
    /// Bits per second, computed from a cumulative count of bytes.
    Bits,
    /// Percentage, computed from a fraction between 0 and 1.
    Percent,
}

/// Description of a column of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Heading of the column.
    pub title: &'static str,
    /// Kind of the values in the column.
    pub kind: Kind,
    /// Maximum width in characters. 0 means that the column takes the width that the other columns leave.
    pub width: u16,
}

impl Column {
    /// Creates a column. See the fields of [`Column`].
    pub const fn new(title: &'static str, kind: Kind, width: u16) -> Column {
        Column { title, kind, width }
    }

    /// Returns the index of the column with this title. The function is evaluated at compile time. If no column has the
    /// title, the program does not compile.
    pub const fn index(columns: &[Column], title: &str) -> usize {
        let mut at = 0;
        while !equal(columns[at].title.as_bytes(), title.as_bytes()) {
            at += 1;
        }
        at
    }
}

/// Returns whether two texts are equal. The operator `==` is not available in constants.
const fn equal(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// Input cell: the value of one column in a row with which the table is updated.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// Text, for a column of the kind [`Kind::Text`].
    Text(String),
    /// Number that is shown as it is, or `None` if the number is not known.
    Value(Option<f64>),
    /// Cumulative count, from which the table computes a rate per second.
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

/// Input row with which the table is updated.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Key that identifies the row in successive updates.
    pub key: String,
    /// Cells of the row, one for each column.
    pub cells: Vec<Cell>,
    /// Text that is shown below the table while the row is selected.
    pub note: String,
    /// Whether the object of the row has a problem or is down.
    pub trouble: bool,
}

impl Row {
    /// Creates an input row without a note and without a problem.
    pub fn new(key: impl Into<String>, cells: Vec<Cell>) -> Row {
        Row { key: key.into(), cells, note: String::new(), trouble: false }
    }
}

/// Shown value of a cell.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Text of the cell.
    Text(String),
    /// Number or rate. The value is `None` if the number is not known, for example a rate after the
    /// first update.
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

    /// Formats the value as text for a column of this kind.
    pub fn format(&self, kind: Kind) -> String {
        match (self, kind) {
            (Value::Text(text), _) => text.clone(),
            (Value::Number(None), _) => "-".to_owned(),
            (Value::Number(Some(share)), Kind::Percent) => format!("{:.1} %", share * 100.0),
            (Value::Number(Some(number)), _) => figure(*number),
        }
    }
}

/// Row of the table, with the values as shown.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// Key of the row.
    pub key: String,
    /// Shown values of the row, one for each column.
    pub values: Vec<Value>,
    /// Text that is shown below the table while the row is selected.
    pub note: String,
    /// Whether the object of the row has a problem or is down.
    pub trouble: bool,
    cells: Vec<Cell>,
    histories: Vec<VecDeque<f64>>,
}

impl Line {
    /// Returns the history of the sums of these columns, from the oldest to the newest value.
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

    /// Returns whether the key or a text of the row contains `filter`. `filter` must be in lower case, and the case
    /// of the row is ignored.
    fn contains(&self, filter: &str) -> bool {
        let text = |value: &Value| match value {
            Value::Text(text) => text.to_lowercase().contains(filter),
            Value::Number(_) => false,
        };
        self.key.to_lowercase().contains(filter) || self.values.iter().any(text)
    }
}

/// Order in which the rows of a table are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// Index of the column by which the rows are sorted.
    pub column: usize,
    /// Whether rows with large values come first.
    pub descending: bool,
}

/// Table of one page, with rates and histories. See the [module](self).
#[derive(Clone, Debug)]
pub struct Sheet {
    columns: &'static [Column],
    /// Time of the last update by a monotonic clock, or `None` before the first update.
    at: Option<Duration>,
    lines: Vec<Line>,
}

impl Sheet {
    /// Creates an empty table with these columns.
    pub fn new(columns: &'static [Column]) -> Sheet {
        Sheet { columns, at: None, lines: Vec::new() }
    }

    /// Returns whether the table has been updated at least once.
    pub fn is_read(&self) -> bool {
        self.at.is_some()
    }

    /// Returns all rows, in the order of the last update.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Returns the row of the table with this key.
    pub fn line(&self, key: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.key == key)
    }

    /// Replaces the rows. `at` is the time at which the rows were read, by a monotonic clock. If `at` is before the
    /// time of the last update, as after a restart of the daemon, rates are unknown.
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
                debug_assert_eq!(row.cells.len(), columns.len(), "a row has one cell for each column");
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

    /// Updates the texts, notes and problem marks of existing rows. Numbers and histories do not change.
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

    /// Returns the rows that contain `filter`, sorted by `order`. Rows with equal values are sorted by key, with
    /// numbers in numerical order. The filter ignores case.
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

/// Returns the shown value of a cell. For a cumulative count, the shown value is the rate since the
/// previous cell. `passed` is the time since the previous cell was read.
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

/// Compares two values for sorting. Unknown numbers come before known numbers.
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

/// Returns a sparkline of the last values, with the newest value at the right. `most` is the value of a full bar.
/// If `most` is `None`, the largest value has a full bar. The sparkline is at most `width` characters wide.
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
    fn a_column_is_found_by_its_title() {
        assert_eq!(["NAME", "p/s", "bit/s"].map(|title| Column::index(COLUMNS, title)), [0, 1, 2]);
        assert!(!equal(b"p/s", b"p/") && !equal(b"p/", b"p/s") && equal(b"", b""));
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
