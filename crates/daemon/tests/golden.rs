//! Runs the cases of `tests/golden/`. Each case has a configuration, input packets, and the expected output packets and
//! drops. The test needs no privilege.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use testbed::golden;

const ATTEMPTS: usize = 3;

fn run(case: &golden::Case) -> String {
    let directory =
        std::env::temp_dir().join(format!("trivium-golden-{}-{}", std::process::id(), case.name()));
    let came = case.run(env!("CARGO_BIN_EXE_trivium"), &directory).unwrap();
    let _ = std::fs::remove_dir_all(&directory);
    came
}

#[test]
fn every_case_comes_out_as_written() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let cases = golden::cases(&root).unwrap();
    assert!(cases.len() >= 3, "the cases of {} are gone", root.display());
    let mut wrong = String::new();
    for case in cases {
        if std::env::var_os("TRIVIUM_BLESS").is_some() {
            case.bless(&run(&case)).unwrap();
            continue;
        }
        let expected = case.expected().unwrap();
        // The order between ports depends on time, and is lost if the machine stalls for longer than a step.
        let mut came = String::new();
        let matches = (0..ATTEMPTS).any(|_| {
            came = run(&case);
            came == expected
        });
        if !matches {
            wrong += &format!("{}:\n--- expected\n{expected}--- came\n{came}", case.name());
        }
    }
    assert!(wrong.is_empty(), "{wrong}TRIVIUM_BLESS=1 writes what came as what is expected");
}
