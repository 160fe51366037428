//! Flows in the syntax of `ofproto/trace` are parsed from any text without a panic. A flow equals the flow that is
//! read from its printed form.

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
