//! Fuzz test of the hand-over messages. Arbitrary messages, as another release may send them, are decoded or
//! refused without a panic.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::de::DeserializeOwned;
use switch::flow::Pipeline;

use super::channel::Link;
use super::messages::{Offer, Reply};
use super::state::HandoverState;

/// Returns the message that a `Link` decodes from `stream`. The sender closes the connection after these
/// octets. Returns `None` if the link refuses the octets.
fn received<T: DeserializeOwned>(stream: &[u8]) -> Option<T> {
    let (theirs, mut ours) = UnixStream::pair().unwrap();
    let mut link = Link::over(theirs);
    link.patience(Duration::from_millis(100));
    ours.write_all(stream).unwrap();
    drop(ours);
    link.receive("the hand-over state").ok().map(|(message, _)| message)
}

#[test]
fn any_octets_are_read_or_refused() {
    testbed::mutated("handover", |octets| {
        // The octets are decoded as they are, and after a correct header.
        let mut framed = (octets.len() as u64).to_le_bytes().to_vec();
        framed.extend([0; 8]);
        framed.extend(octets);
        let _ = received::<Offer>(octets).or_else(|| received(&framed));
        let _ = received::<Reply>(&framed);
        let Some(state) = received::<HandoverState>(&framed) else { return };
        let _ = (state.blocks(), state.counted());
        for flow in &state.known {
            flow.read();
        }
        for rules in state.rules.values() {
            rules.give(&mut Pipeline::new(), 1);
        }
        let text = serde_json::to_vec(&state).unwrap();
        assert_eq!(
            serde_json::to_vec(&serde_json::from_slice::<HandoverState>(&text).unwrap()).unwrap(),
            text
        );
    });
}
