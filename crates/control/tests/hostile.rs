//! Tests that random bytes cause no panic when they are read as a configuration or as the body of an API request. The
//! fuzz targets run the same checks for longer.

use proptest::prelude::*;

const COMPLETE: &str = include_str!("../../../docs/config.md");
const FIFTY: &str = include_str!("../../model/tests/fifty.toml");

fn example() -> &'static str {
    COMPLETE.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default()
}

proptest! {
    #[test]
    fn any_text_is_read(text in "\\PC{0,200}", bytes: Vec<u8>) {
        control::fuzz::config(text.as_bytes());
        control::fuzz::config(&bytes);
        control::fuzz::api_body(&bytes);
    }

    /// A modified or truncated configuration is loaded or results in a list of problems, without a panic.
    #[test]
    fn mutated_configurations_are_read(
        fifty: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = if fifty { FIFTY } else { example() }.as_bytes().to_vec();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        control::fuzz::config(&bytes);
    }

    #[test]
    fn mutated_bodies_are_read(
        choice: u8,
        kind in prop::sample::select(vec!["af_xdp", "veth", "tap", "internal", "pcap", "patch", "ring", "null", "x"]),
        key in prop::sample::select(vec!["device", "peer", "mtu", "queues", "access", "trunk", "storm", "port", "address"]),
        value in prop::sample::select(vec!["1", "-1", "\"a\"", "[1,\"2-3\"]", "{}", "null", "1e99", "99999999999999999999"]),
    ) {
        let body = format!("{}{{\"kind\":\"{kind}\",\"{key}\":{value}}}", char::from(choice % 128));
        control::fuzz::api_body(body.as_bytes());
    }
}

#[test]
fn the_whole_example_is_accepted() {
    control::fuzz::config(example().as_bytes());
}
