//! A tree of values with positions, which represents a TOML text or a JSON text.
//!
//! JSON values have no position (`None`), because serde_json does not keep positions. Problems then identify
//! the value by the name of the object.

use serde_json::Value as Json;
use toml::de::{DeTable, DeValue};

use super::nesting::too_deep;
use crate::{Cause, Problem};

/// Byte offset of a value from the start of the text. `None`: the position is not known.
pub(crate) type Place = Option<usize>;

pub(crate) struct Node {
    pub place: Place,
    pub value: Value,
}

pub(crate) enum Value {
    Text(String),
    Integer(i64),
    /// An integer that does not fit into 64 bits. No key accepts such a value.
    Huge,
    Fraction,
    Bool(bool),
    /// A TOML date, as written in the text.
    Date(String),
    Nothing,
    List(Vec<Node>),
    Table(Table),
}

/// Entries of a TOML or JSON table, in the order of their positions.
pub(crate) struct Table {
    pub entries: Vec<Entry>,
}

pub(crate) struct Entry {
    pub key: String,
    pub place: Place,
    pub node: Node,
}

impl Value {
    /// Returns the type of the value in words, for messages about values of a wrong type.
    pub fn found(&self) -> &'static str {
        match self {
            Value::Text(_) => "a text",
            Value::Integer(_) | Value::Huge => "a number",
            Value::Fraction => "a fraction",
            Value::Bool(_) => "true or false",
            Value::Date(_) => "a date",
            Value::Nothing => "nothing",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }
}

/// Maximum length in bytes of a text for which every syntax error is reported. The limit bounds memory, because the
/// parser stores all errors.
const RECOVERED_BYTES: usize = 128 << 10;

/// Parses a TOML text, and continues after syntax errors. Returns the parts that could be read, and a problem
/// with its offset for each syntax error.
pub(crate) fn from_toml(text: &str) -> (Table, Vec<(Place, Problem)>) {
    if let Some(place) = too_deep(text) {
        let cause = Cause::Syntax { language: "TOML", message: "too many tables in one another".to_owned() };
        return (Table { entries: Vec::new() }, vec![(Some(place), Problem::new("", cause))]);
    }
    if text.len() > RECOVERED_BYTES {
        return match DeTable::parse(text) {
            Ok(table) => (toml_table(table.into_inner()), Vec::new()),
            Err(error) => (Table { entries: Vec::new() }, vec![syntax_problem(text, &error)]),
        };
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    (toml_table(table.into_inner()), errors.iter().map(|error| syntax_problem(text, error)).collect())
}

fn syntax_problem(text: &str, error: &toml::de::Error) -> (Place, Problem) {
    // The message of the parser may span lines, but a problem has one line.
    let mut message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    if message == "duplicate key"
        && let Some(key) = error.span().and_then(|span| text.get(span))
    {
        message = format!("duplicate key `{key}`");
    }
    let place = error.span().map(|span| span.start);
    (place, Problem::new("", Cause::Syntax { language: "TOML", message }))
}

fn toml_table(table: DeTable<'_>) -> Table {
    let mut entries: Vec<_> = table
        .into_iter()
        .map(|(key, value)| Entry {
            place: Some(key.span().start),
            key: key.into_inner().into_owned(),
            node: Node { place: Some(value.span().start), value: toml_value(value.into_inner()) },
        })
        .collect();
    entries.sort_by_key(|entry| entry.place);
    Table { entries }
}

fn toml_value(value: DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Integer(number),
            Err(_) => Value::Huge,
        },
        DeValue::Float(_) => Value::Fraction,
        DeValue::Boolean(value) => Value::Bool(value),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(items) => Value::List(
            items
                .into_iter()
                .map(|item| Node { place: Some(item.span().start), value: toml_value(item.into_inner()) })
                .collect(),
        ),
        DeValue::Table(table) => Value::Table(toml_table(table)),
    }
}

/// Parses a JSON text. If the text has a syntax error, returns an empty table and one problem that reports
/// the error.
pub(crate) fn from_json(text: &str) -> (Table, Vec<(Place, Problem)>) {
    let empty = || Table { entries: Vec::new() };
    match serde_json::from_str::<Json>(text) {
        Ok(Json::Object(map)) => (json_table(map), Vec::new()),
        Ok(other) => {
            let found = json_value(other).found();
            (empty(), vec![(Some(0), Problem::new("", Cause::WrongType { expected: "a table", found }))])
        }
        Err(error) => {
            let line_starts = text.split_inclusive('\n').take(error.line().saturating_sub(1));
            let place = line_starts.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
            let message = error.to_string();
            // The position is reported as line and column, so it is removed from the message.
            let message = message.split(" at line ").next().unwrap_or_default().to_owned();
            (empty(), vec![(Some(place), Problem::new("", Cause::Syntax { language: "JSON", message }))])
        }
    }
}

fn json_table(map: serde_json::Map<String, Json>) -> Table {
    let entries = map.into_iter().map(|(key, value)| Entry { key, place: None, node: json_node(value) });
    Table { entries: entries.collect() }
}

pub(crate) fn json_node(value: Json) -> Node {
    Node { place: None, value: json_value(value) }
}

fn json_value(value: Json) -> Value {
    match value {
        Json::Null => Value::Nothing,
        Json::Bool(value) => Value::Bool(value),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::Integer(number),
            None if number.is_u64() => Value::Huge,
            None => Value::Fraction,
        },
        Json::String(text) => Value::Text(text),
        Json::Array(items) => Value::List(items.into_iter().map(json_node).collect()),
        Json::Object(map) => Value::Table(json_table(map)),
    }
}
