//! Tests that configuration texts whose tables and lists are nested too deeply are refused, and that reading them does
//! not overflow the stack.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use model::{Format, load, load_on};

#[test]
fn deep_nesting_is_refused() {
    let text = format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(!load(&text, "t").unwrap_err().is_empty());
    let json = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(load_on(&json, "t", Format::Json, None).is_err());
}

/// Checks that inline tables with dotted keys are refused if their total nesting is too deep. The parser allows up to
/// 80 nested brackets and up to 80 parts in a key. A tree with both would overflow a stack of 2 MiB.
#[test]
fn dotted_keys_in_inline_tables_are_refused_when_they_nest_deeply() {
    let within_stack = |text: String| {
        let small = std::thread::Builder::new().stack_size(1 << 20);
        small.spawn(move || load(&text, "t").unwrap_err()).unwrap().join().unwrap()
    };
    let key = vec!["a"; 79].join(".");
    let text = format!("{}1{}\n", format!("{key} = {{").repeat(78), "}".repeat(78));
    let problems = within_stack(text.clone());
    assert_eq!(problems.len(), 1);
    assert!(problems[0].to_string().contains("too many tables in one another"), "{}", problems[0]);
    for other in [
        // Brackets that do not match, with and without commas and lines between them.
        format!("{key} = {{]").repeat(70) + "1",
        format!("{key} = {{],").repeat(70) + "1",
        format!("{key} = [}}\n").repeat(70) + "1",
        format!("{key} = {{\n").repeat(70) + "1",
        format!("{key} = [{{").repeat(40) + "1",
        format!("[{key}]\n{}", format!("{key} = {{").repeat(78)),
        text[..text.len() / 2].to_owned(),
    ] {
        assert!(!within_stack(other).is_empty());
    }
    // Many statements and long lists are not deep.
    let texts = vec!["'a.b.c'"; 4000].join(", ");
    let many =
        format!("[port.p]\nkind = 'tap'\n[bridge.br0]\n[x]\ny = [{texts}]\n{}", "z.a.b = 1.5\n".repeat(200));
    assert!(within_stack(many).iter().all(|problem| !problem.to_string().contains("in one another")));
}
