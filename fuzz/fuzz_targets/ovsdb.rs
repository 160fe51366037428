//! Messages of a database server are processed without a panic. A stream in two pieces has the same effect as in one
//! piece.

#![no_main]

use ovsdb::rpc::Framer;
use ovsdb::{Desired, Session, SwitchStatus};

/// Returns the configuration that a session derives from a stream, and whether it could read the whole stream.
fn played(pieces: &[&[u8]]) -> (Option<Desired>, bool) {
    let mut session = Session::new("lock");
    let mut framer = Framer::new(1 << 16);
    let told = SwitchStatus { cur_cfg: Some(1), ..SwitchStatus::default() };
    let mut play = || {
        for piece in pieces {
            framer.push(piece);
            while let Some(message) = framer.next_message().ok()? {
                session.take(message).ok()?;
                session.tell(&told);
                for answer in session.outgoing() {
                    // The other end reads what we say.
                    let mut framer = Framer::new(1 << 24);
                    framer.push(&answer.bytes());
                    assert!(framer.next_message().is_ok_and(|message| message.is_some()));
                }
            }
        }
        Some(())
    };
    let all = play().is_some();
    (session.replica().and_then(|replica| Desired::read(replica)), all)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((cut, stream)) = bytes.split_first() else { return };
    let (one, two) = stream.split_at(usize::from(*cut).min(stream.len()));
    assert_eq!(played(&[stream]), played(&[one, two]));
});
