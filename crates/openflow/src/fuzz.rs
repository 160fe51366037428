//! Checks of the OpenFlow decoders and encoders, which the fuzz target and the property tests share. A message is
//! decoded with each decoder that a session uses. Decoded flow-mods, groups, meters and actions are then encoded and
//! decoded again.

use switch::flow::{ALL_TABLES, FlowMod, GroupMod, Match, MeterMod};

use crate::wire::error::Error;
use crate::wire::{
    HEADER, Header, Reader, Version, action, flow, group, matching, meter, packet, port, properties, table,
};

/// Returns a reader for the body of an OpenFlow message (the octets after its header).
fn body(message: &[u8]) -> Reader<'_> {
    Reader::new(message.get(HEADER..).unwrap_or_default(), Error::BadLength)
}

/// Decodes a message with each decoder that a session uses, in the OpenFlow version that the message's header
/// specifies. Decoded flow-mods, groups, meters and actions are then encoded and decoded again. Does nothing if the
/// version is not supported.
///
/// # Panics
/// Panics if an encoded value cannot be decoded, or if a decoded value changes when it is encoded and decoded again.
pub fn message(octets: &[u8]) {
    let Some(head) = Header::read(octets) else { return };
    let Some(version) = Version::from_wire(head.version) else { return };
    for table_ids in [false, true] {
        let read = [
            flow::get_mod(body(octets), version, table_ids),
            flow::get_mod_nx(body(octets), version, table_ids),
        ];
        // OpenFlow 1.1 has no number for all tables, which Nicira's message can specify. A change of all
        // tables cannot be encoded in a 1.1 message.
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
    // The following messages are only decoded.
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

/// Encodes a flow-mod and decodes the result, twice. The results must be equal. The original flow-mod may differ from
/// the first result, because a flow-mod can have several forms, of which the encoder uses only one.
fn flow_again(version: Version, change: &FlowMod) {
    let again = |change: &FlowMod| {
        let mut out = Vec::new();
        flow::put_mod_body(&mut out, version, change);
        let body = Reader::new(&out, Error::BadLength);
        let read = if version == Version::V10 {
            flow::get_mod_nx(body, version, true)
        } else {
            flow::get_mod(body, version, true)
        };
        match read {
            Ok(read) => read,
            Err(error) => panic!("{change:?} is refused: {error}"),
        }
    };
    let once = again(change);
    assert_eq!(again(&once), once);
}
