//! Output of `trivium show`: JSON or text.

use serde::Serialize;

/// Prints a value as JSON, or as the text that `text` returns.
pub fn print<T: Serialize + ?Sized>(json: bool, value: &T, text: impl Fn(&T) -> String) {
    match json {
        true => println!("{}", serde_json::to_string_pretty(value).unwrap_or_default()),
        false => print!("{}", text(value)),
    }
}
