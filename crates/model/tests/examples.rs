//! Tests that the configurations in the examples and in the documentation load without warnings.

#![allow(clippy::unwrap_used, reason = "a test says with a panic what it did not expect")]

use std::path::Path;

use model::{Format, Machine, load_on};

fn loads(text: &str, name: &str) -> model::Config {
    match load_on(text, name, Format::Toml, Some(&Machine { cores: 64, frames: None })) {
        Ok(loaded) if loaded.warnings.is_empty() => loaded.config,
        Ok(loaded) => panic!("{}", loaded.warnings.iter().map(|w| format!("{w}\n")).collect::<String>()),
        Err(problems) => panic!("{}", problems.iter().map(|p| format!("{p}\n")).collect::<String>()),
    }
}

#[test]
fn every_example_loads() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let config = loads(&std::fs::read_to_string(&path).unwrap(), &path.display().to_string());
            assert!(!config.ports.is_empty(), "{}", path.display());
            count += 1;
        }
    }
    assert!(count >= 3, "{count} examples");
}

/// Checks that the complete example contains every configuration key: serializing the loaded example yields no other
/// keys.
#[test]
fn the_complete_example_is_complete() {
    let document = include_str!("../../../docs/config.md");
    let example = document.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let config = loads(example, "docs/config.md");
    for line in config.to_toml().lines() {
        let Some((key, _)) = line.split_once(" = ") else { continue };
        let named = example.lines().any(|line| line.trim_start().starts_with(&format!("{key} =")));
        assert!(
            named || example.contains(&format!("{{ {key} =")) || example.contains(&format!(", {key} =")),
            "{key}"
        );
    }
}
