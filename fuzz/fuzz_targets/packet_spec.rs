//! Packet specs and filters from any text; what a spec builds has no broken header of its own.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::filter::Filter;
use packet::{FlowKey, PortId, spec};

fuzz_target!(|text: &str| {
    let filter = Filter::parse(text);
    let Ok(frame) = spec::parse(text) else { return };
    if text.trim().starts_with("hex:") {
        return;
    }
    let mut key = FlowKey::ZERO;
    let layers = FlowKey::extract(&frame, frame.len(), PortId(0), &mut key).expect("an L2 header of our own");
    if let Ok(filter) = filter {
        let _ = filter.matches(&key);
    }
    let printed = Filter::parse(&key.to_string()).expect("a key prints as a filter");
    assert!(layers.malformed().is_some() || printed.matches(&key), "{text}: {key}");
});
