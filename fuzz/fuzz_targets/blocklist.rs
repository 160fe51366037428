//! The text of a block list is parsed without a panic, and an error names its line. The prefixes that are read equal
//! the prefixes that are read from their printed form.

#![no_main]

use std::path::Path;

use xdp::filter::{FilterError, list_of};

libfuzzer_sys::fuzz_target!(|text: &str| {
    match list_of(Path::new("list"), text) {
        Ok(prefixes) => {
            let printed: String = prefixes.iter().map(|prefix| format!("{prefix}\n")).collect();
            assert_eq!(list_of(Path::new("printed"), &printed).expect("prefixes"), prefixes);
        }
        Err(FilterError::Line { line, .. }) => {
            assert!(usize::try_from(line).is_ok_and(|line| (1..=text.lines().count()).contains(&line)));
        }
        Err(other) => panic!("{other}"),
    }
});
