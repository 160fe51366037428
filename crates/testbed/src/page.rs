//! Pages of `docs/` that tests generate from the code. A test fails if its page differs from the code. With `UPDATE=1`
//! in the environment, the test writes the page instead.

use std::fmt::Write as _;
use std::path::Path;

/// Compares a generated page with the file `docs/NAME`, or writes the file if `UPDATE` is set. `command` is the command
/// that runs the test. The error message contains the command.
///
/// # Panics
/// Panics if the file differs from the text, or cannot be written.
#[track_caller]
pub fn assert_page(name: &str, command: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("UPDATE").is_some()
        && let Err(error) = std::fs::write(&file, text)
    {
        panic!("docs/{name}: {error}");
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    let first = text.lines().zip(written.lines()).find(|(generated, written)| generated != written);
    assert!(
        text == written,
        "docs/{name} is not what the code says; `UPDATE=1 {command}` writes it. First difference: {first:?}"
    );
}

/// Adds a row to a Markdown table. Vertical bars in the cells are escaped.
pub fn row(text: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_in_cells_are_escaped() {
        let mut text = String::new();
        row(&mut text, &["a|b", "c"]);
        assert_eq!(text, "| a\\|b | c |\n");
    }

    #[test]
    #[should_panic(expected = "docs/no-such-page.md is not what the code says")]
    fn a_page_that_differs_is_found() {
        assert_page("no-such-page.md", "cargo test", "text");
    }
}
