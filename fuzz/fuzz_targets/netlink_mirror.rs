//! Datagrams of rtnetlink: no panic, and applied to one mirror they leave it the same as applied to another.

#![no_main]

use netlink::{Mirror, decode};

fn applied(bytes: &[u8]) -> Mirror {
    let (mut mirror, mut changes) = (Mirror::default(), Vec::new());
    for message in port::netlink::messages(bytes) {
        if let Some(event) = decode(message.kind, message.flags, message.payload) {
            mirror.apply(event, &mut changes);
        }
    }
    mirror
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assert!(applied(bytes) == applied(bytes)));
