//! Parsing of the parts of actions: their names, ports, fields and values.

use crate::flow::text::value::{find, integer, read_value, reserved_port, special};
use crate::flow::{Field, Flow};

/// Parser of ports and fields in the arguments of actions.
pub(in crate::flow) struct ActionParser<'a, P> {
    /// Flow of the packet. Its protocol determines the field that `mod_tp_dst` sets.
    pub flow: &'a Flow,
    /// Function that returns the OpenFlow number of the port with a given name.
    pub port: &'a P,
}

impl<P: Fn(&str) -> Option<u32>> ActionParser<'_, P> {
    /// Parses a port, which is given by its number, its name, or the name of a reserved port. Returns `None` if there
    /// is no such port.
    pub fn port(&self, text: &str) -> Option<u32> {
        integer(text).or_else(|| reserved_port(text)).or_else(|| special(text)).or_else(|| (self.port)(text))
    }

    /// Returns the field with the name `name`. Returns `None` if there is no such field.
    pub fn field(&self, name: &str) -> Option<Field> {
        find(self.flow, name)
    }

    /// Parses the value of a field. Returns `None` if the value is invalid.
    pub fn value(&self, field: Field, text: &str) -> Option<u128> {
        read_value(field, text, self.port).ok()
    }
}

/// Returns the name of an action in lower case, and its argument, which follows a colon or is in parentheses.
pub(in crate::flow) fn name_and_argument(word: &str) -> Option<(String, &str)> {
    let (name, argument) = match word.find([':', '(']) {
        Some(at) if word.get(at..=at) == Some(":") => (word.get(..at)?, word.get(at + 1..)?),
        Some(at) => (word.get(..at)?, word.get(at + 1..)?.strip_suffix(')')?),
        None => (word, ""),
    };
    Some((name.to_ascii_lowercase(), argument))
}

/// Splits a text at commas and blanks outside of parentheses.
pub(in crate::flow) fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let parts = text.split(move |letter: char| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        depth == 0 && matches!(letter, ',' | ' ' | '\t')
    });
    parts.filter(|part| !part.is_empty()).collect()
}
