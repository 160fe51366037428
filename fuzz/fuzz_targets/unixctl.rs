//! Requests to the socket of `ovs-appctl` are processed without a panic, and replies can be read. A stream in two
//! pieces contains the same messages as in one piece.

#![no_main]

use ovsdb::rpc::{Framer, Message};

/// Maximum length of a message in octets, as in the daemon.
const LIMIT: usize = 1 << 20;

fn messages(pieces: &[&[u8]]) -> (Vec<Message>, bool) {
    let mut framer = Framer::new(LIMIT);
    let mut found = Vec::new();
    for piece in pieces {
        framer.push(piece);
        loop {
            match framer.next_message() {
                Ok(Some(message)) => found.push(message),
                Ok(None) => break,
                Err(_) => return (found, false),
            }
        }
    }
    (found, true)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((cut, stream)) = bytes.split_first() else { return };
    let (one, two) = stream.split_at(usize::from(*cut).min(stream.len()));
    let whole = messages(&[stream]);
    assert_eq!(whole, messages(&[one, two]));
    for message in whole.0 {
        let Message::Request { method, params, id } = message else { continue };
        let texts = params.iter().map(|param| param.as_str());
        let words = texts.collect::<Option<Vec<&str>>>().map(|words| words.join(" "));
        let outcome = words.map(Into::into).ok_or_else(|| method.into());
        // Fractions are not read back to the last bit.
        let exact = id.is_string() || id.is_i64();
        let reply = Message::Reply { id, outcome };
        let (again, whole) = messages(&[&reply.bytes()]);
        assert!(whole && again.len() == 1);
        assert!(!exact || again == [reply]);
    }
});
