//! Flows from any text, as `ofproto/trace` takes them: no panic, and what a flow is printed as is read as the same flow.

#![no_main]

use libfuzzer_sys::fuzz_target;
use switch::flow::text;

fn port(name: &str) -> Option<u32> {
    name.strip_prefix("eth").and_then(|number| number.parse().ok())
}

fuzz_target!(|words: &str| {
    let Ok(flow) = text::parse(words, port) else { return };
    let printed = text::whole(&flow);
    let again = text::parse(&printed, port).unwrap_or_else(|error| panic!("{printed}: {error}"));
    assert_eq!(text::whole(&again), printed, "{words}");
});
