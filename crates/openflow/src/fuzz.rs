//! What the fuzz target and the property tests share: a message is read by every reader that a session would use, and what was
//! understood is written and read again.

use switch::flow::{ALL_TABLES, FlowMod, GroupMod, Match, MeterMod};

use crate::wire::error::Error;
use crate::wire::{
    HEADER, Header, Reader, Version, action, flow, group, matching, meter, packet, port, properties, table,
};

/// A reader over the body of one message.
fn body(message: &[u8]) -> Reader<'_> {
    Reader::new(message.get(HEADER..).unwrap_or_default(), Error::BadLength)
}

/// Reads a message in the version that its header names, if that is spoken.
///
/// # Panics
/// Where something that was read cannot be read again once it is written, or is something else then.
pub fn message(octets: &[u8]) {
    let Some(head) = Header::read(octets) else { return };
    let Some(version) = Version::from_wire(head.version) else { return };
    for table_ids in [false, true] {
        let read = [
            flow::get_mod(body(octets), version, table_ids),
            flow::get_mod_nx(body(octets), version, table_ids),
        ];
        // OpenFlow 1.1 has no number for all tables, which Nicira's message may mean: such a change has no message of 1.1 to be written as.
        let written = |change: &FlowMod| version != Version::V11 || change.table != ALL_TABLES;
        read.into_iter().flatten().filter(written).for_each(|change| flow_again(version, &change));
    }
    if let Ok(GroupMod::Add(group) | GroupMod::Modify { group, .. }) = group::get_mod(body(octets), version) {
        let again = |group| {
            let mut out = Vec::new();
            group::put_mod(&mut out, version, group);
            match group::get_mod(Reader::new(&out, Error::BadLength), version) {
                Ok(GroupMod::Add(group)) => group,
                other => panic!("{group:?} is read as {other:?}"),
            }
        };
        let once = again(&group);
        assert_eq!(again(&once), once);
    }
    if let Ok(MeterMod::Add(meter)) = meter::get_mod(body(octets)) {
        let mut out = Vec::new();
        meter::put_mod(&mut out, &meter);
        assert_eq!(meter::get_mod(Reader::new(&out, Error::BadLength)), Ok(MeterMod::Add(meter)));
    }
    // These are only read.
    let _ = flow::get_filter(body(octets), version);
    let _ = flow::get_filter_nx(body(octets));
    let _ = flow::get_monitor(&mut body(octets), version);
    let _ = packet::get_out(body(octets), version);
    let _ = octets.get(16..).map(|body| packet::get_resume(Reader::new(body, Error::BadLength)));
    let _ = port::get_mod(body(octets), version);
    let _ = table::get_mod(body(octets), version);
    let _ = table::get_features(body(octets));
    let _ = properties(body(octets), |_, _| Ok(()));
    let _ = matching::get_oxm(&mut body(octets));
    if let Ok(actions) = action::get_actions(body(octets), version, &Match::ANY) {
        let mut out = Vec::new();
        action::put_actions(&mut out, version, &actions);
        let again = action::get_actions(Reader::new(&out, Error::ActionLength), version, &Match::ANY);
        assert!(again.is_ok(), "{actions:?} is read as {again:?}");
    }
}

/// A flow-mod as it is read once it was written. What a version has several forms for is the same from the first writing on.
fn flow_again(version: Version, change: &FlowMod) {
    let again = |change: &FlowMod| {
        let mut out = Vec::new();
        flow::put_mod(&mut out, version, 1, change);
        let read = if version == Version::V10 {
            flow::get_mod_nx(Reader::new(&out[HEADER + 8..], Error::BadLength), version, true)
        } else {
            flow::get_mod(Reader::new(&out[HEADER..], Error::BadLength), version, true)
        };
        match read {
            Ok(read) => read,
            Err(error) => panic!("{change:?} is refused: {error}"),
        }
    };
    let once = again(change);
    assert_eq!(again(&once), once);
}
