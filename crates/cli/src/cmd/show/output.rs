//! Output of `trivium show`: JSON or a text table.

use serde::Serialize;

/// Prints values as JSON, or as the text table that `table` returns.
pub fn print<T: Serialize>(json: bool, all: &[T], table: impl Fn(&[T]) -> String) {
    match json {
        true => println!("{}", serde_json::to_string_pretty(all).unwrap_or_default()),
        false => print!("{}", table(all)),
    }
}

/// Returns `part` divided by `of`. Returns 0 if `of` is 0.
#[allow(clippy::cast_precision_loss, reason = "a mean for people to read")]
pub fn ratio(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}
