//! Sessions of FPM: no panic, and in two pieces they leave what they leave in one.

#![no_main]

use netlink::fpm::{played, speak};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((cut, session)) = bytes.split_first() else { return };
    let (one, two) = session.split_at(usize::from(*cut).min(session.len()));
    let (whole, ended) = played([session]);
    let (pieces, same) = played([one, two]);
    assert_eq!(ended, same);
    assert!(whole == pieces);
    // The other end reads what we answer.
    let _ = speak::answers(session, &mut Vec::new());
});
