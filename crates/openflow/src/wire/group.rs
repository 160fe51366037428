//! Encoding and decoding of groups. There are two formats: one of OpenFlow 1.1 to 1.4, and one of OpenFlow 1.5 and
//! NXT_GROUP_MOD, in which buckets have IDs. The module also encodes and decodes the group property that specifies the
//! selection method of a select group.

use switch::flow::{
    ALL_GROUPS, Bucket, BucketPlace, Field, Group, GroupKind, GroupMod, GroupStats, Match, SelectMethod, port,
};

use super::action::{get_actions, put_actions};
use super::error::Error;
use super::ofp::group::*;
use super::oxm::{Wire, header};
use super::{Put, Reader, Version, properties, seconds};

/// Experimenter IDs of Netronome in the group property for the selection method: the current ID and
/// the former ID.
const NETRONOME: [u32; 2] = [0x154d, 0x1540];
/// Number of octets that are reserved for the headers in a message that contains a group.
const BESIDE_GROUP: usize = 64;

fn kind(number: u8) -> Result<GroupKind, Error> {
    match number {
        OFPGT_ALL => Ok(GroupKind::All),
        OFPGT_SELECT => Ok(GroupKind::Select),
        OFPGT_INDIRECT => Ok(GroupKind::Indirect),
        OFPGT_FF => Ok(GroupKind::FastFailover),
        _ => Err(Error::GroupType),
    }
}

fn kind_number(kind: GroupKind) -> u8 {
    match kind {
        GroupKind::All => OFPGT_ALL,
        GroupKind::Select => OFPGT_SELECT,
        GroupKind::Indirect => OFPGT_INDIRECT,
        GroupKind::FastFailover => OFPGT_FF,
    }
}

/// Decodes the body of OFPT_GROUP_MOD (NXT_GROUP_MOD in OpenFlow 1.0).
///
/// # Errors
/// Returns OFPGMFC_*, OFPBAC_* and OFPBPC_* errors.
pub fn get_mod(mut from: Reader<'_>, version: Version) -> Result<GroupMod, Error> {
    let (command, raw_kind) = (from.u16()?, from.u8()?);
    from.skip(1)?;
    let id = from.u32()?;
    let numbered = matches!(version, Version::V10 | Version::V15);
    if numbered {
        let octets = usize::from(from.u16()?);
        from.skip(2)?;
        let place = from.u32()?;
        let buckets = get_buckets_15(from.part(octets).map_err(|_| Error::BadLength)?, version)?;
        let method = get_method(from)?;
        return match command {
            OFPGC_INSERT_BUCKET => Ok(GroupMod::InsertBuckets(id, bucket_place(place), buckets)),
            OFPGC_REMOVE_BUCKET => Ok(GroupMod::RemoveBuckets(id, bucket_place(place))),
            _ => whole(command, raw_kind, id, buckets, method),
        };
    }
    let buckets = get_buckets(from, version)?;
    whole(command, raw_kind, id, buckets, SelectMethod::Default)
}

fn whole(
    command: u16,
    raw_kind: u8,
    id: u32,
    buckets: Vec<Bucket>,
    method: SelectMethod,
) -> Result<GroupMod, Error> {
    if command == OFPGC_DELETE {
        return Ok(GroupMod::Delete(id));
    }
    if !matches!(command, OFPGC_ADD | OFPGC_MODIFY | OFPGC_ADD_OR_MOD) {
        return Err(Error::GroupCommand);
    }
    let kind = kind(raw_kind)?;
    if method != SelectMethod::Default && kind != GroupKind::Select {
        return Err(Error::PropertyValue);
    }
    if id > OFPG_MAX {
        return Err(Error::GroupInvalid);
    }
    let group = Group { id, kind, method, buckets };
    Ok(match command {
        OFPGC_ADD => GroupMod::Add(group),
        _ => GroupMod::Modify { group, or_add: command == OFPGC_ADD_OR_MOD },
    })
}

fn bucket_place(place: u32) -> BucketPlace {
    match place {
        OFPG_BUCKET_FIRST => BucketPlace::First,
        OFPG_BUCKET_LAST => BucketPlace::Last,
        OFPG_BUCKET_ALL => BucketPlace::All,
        id => BucketPlace::Id(id),
    }
}

fn some(value: u32) -> Option<u32> {
    (value != OFPG_ANY).then_some(value)
}

fn get_buckets(mut from: Reader<'_>, version: Version) -> Result<Vec<Bucket>, Error> {
    let mut out = Vec::new();
    while !from.is_empty() {
        let length = usize::from(from.u16()?);
        if length < 16 || !length.is_multiple_of(8) {
            return Err(Error::GroupBucket);
        }
        let mut body = from.part(length - 2).map_err(|_| Error::GroupBucket)?;
        let weight = body.u16()?;
        let (watch_port, watch_group) = (some(body.u32()?), some(body.u32()?));
        body.skip(4)?;
        let actions = get_actions(body, version, &Match::ANY)?;
        let id = u32::try_from(out.len()).unwrap_or(OFPG_ANY);
        out.push(Bucket { id, weight, watch_port, watch_group, actions });
    }
    Ok(out)
}

fn get_buckets_15(mut from: Reader<'_>, version: Version) -> Result<Vec<Bucket>, Error> {
    let mut out: Vec<Bucket> = Vec::new();
    while !from.is_empty() {
        let length = usize::from(from.u16()?);
        let octets = usize::from(from.u16()?);
        let rest = length.checked_sub(4).filter(|_| length.is_multiple_of(8)).ok_or(Error::GroupBucket)?;
        let mut body = from.part(rest).map_err(|_| Error::GroupBucket)?;
        let id = body.u32().map_err(|_| Error::GroupBucket)?;
        if id > OFPG_BUCKET_MAX {
            return Err(Error::GroupBucket);
        }
        let actions = get_actions(body.part(octets).map_err(|_| Error::GroupBucket)?, version, &Match::ANY)?;
        let mut bucket = Bucket { id, weight: 0, watch_port: None, watch_group: None, actions };
        properties(Reader::new(body.data, Error::PropertyLength), |kind, mut value| {
            match kind {
                OFPGBPT_WEIGHT => bucket.weight = value.u16()?,
                OFPGBPT_WATCH_PORT => bucket.watch_port = some(value.u32()?),
                OFPGBPT_WATCH_GROUP => bucket.watch_group = some(value.u32()?),
                OFPGBPT_EXPERIMENTER => return Err(Error::PropertyExperimenter),
                _ => return Err(Error::PropertyType),
            }
            Ok(())
        })?;
        out.push(bucket);
    }
    Ok(out)
}

fn get_method(from: Reader<'_>) -> Result<SelectMethod, Error> {
    let mut method = SelectMethod::Default;
    properties(Reader::new(from.data, Error::PropertyLength), |kind, mut value| {
        if kind != OFPGPT_EXPERIMENTER {
            return Err(Error::PropertyType);
        }
        if !NETRONOME.contains(&value.u32()?) || value.u32()? != NTRT_SELECTION_METHOD {
            return Err(Error::PropertyExperimenter);
        }
        value.skip(4)?;
        let name = value.take(16)?;
        let parameter = value.u64()?;
        let end = name.iter().position(|byte| *byte == 0).ok_or(Error::PropertyValue)?;
        method = match &name[..end] {
            b"hash" => SelectMethod::Hash { fields: get_field_array(value)?, parameter },
            b"dp_hash" if value.is_empty() => SelectMethod::DpHash { parameter },
            _ => return Err(Error::PropertyValue),
        };
        Ok(())
    })?;
    Ok(method)
}

/// Decodes the fields over which a select group computes its hash, with their masks. Each field may occur once. A mask
/// of zero means all bits of the field.
fn get_field_array(mut from: Reader<'_>) -> Result<Vec<(Field, u128)>, Error> {
    let mut out = Vec::new();
    while !from.is_empty() {
        let head = header(&mut from)?;
        let wire = head.wire.ok_or(Error::MatchField)?;
        if out.iter().any(|(field, _)| *field == wire.field) {
            return Err(Error::MatchTwice);
        }
        let own = if head.masked { head.len / 2 } else { head.len };
        let bytes = from.take(own)?;
        let mask = bytes.iter().fold(0_u128, |value, byte| value << 8 | u128::from(*byte));
        let mask = mask & wire.field.all_ones();
        if head.masked {
            from.skip(own)?;
        }
        out.push((wire.field, if mask == 0 { wire.field.all_ones() } else { mask }));
    }
    Ok(out)
}

fn put_bucket(out: &mut Vec<u8>, version: Version, kind: GroupKind, bucket: &Bucket) {
    let start = out.len();
    if !matches!(version, Version::V10 | Version::V15) {
        out.u16(0);
        out.u16(bucket.weight);
        out.u32(bucket.watch_port.unwrap_or(port::ANY));
        out.u32(bucket.watch_group.unwrap_or(OFPG_ANY));
        out.zeros(4);
        put_actions(out, version, &bucket.actions);
        out.set_length(start, 0);
        return;
    }
    out.zeros(4);
    out.u32(bucket.id);
    let before = out.len();
    put_actions(out, version, &bucket.actions);
    let octets = out.len() - before;
    if kind == GroupKind::Select || bucket.weight != 0 {
        out.u16(OFPGBPT_WEIGHT);
        out.u16(8);
        out.u16(bucket.weight);
        out.zeros(2);
    }
    for (property, value) in
        [(OFPGBPT_WATCH_PORT, bucket.watch_port), (OFPGBPT_WATCH_GROUP, bucket.watch_group)]
    {
        if let Some(value) = value {
            out.u16(property);
            out.u16(8);
            out.u32(value);
        }
    }
    out.set_length(start, 0);
    out.patch16(start + 2, octets);
}

fn put_method(out: &mut Vec<u8>, version: Version, method: &SelectMethod) {
    let (name, parameter, fields) = match method {
        SelectMethod::Default => return,
        SelectMethod::Hash { fields, parameter } => ("hash", *parameter, fields.as_slice()),
        SelectMethod::DpHash { parameter } => ("dp_hash", *parameter, [].as_slice()),
    };
    let start = out.len();
    out.u16(OFPGPT_EXPERIMENTER);
    out.u16(0);
    out.u32(NETRONOME[0]);
    out.u32(NTRT_SELECTION_METHOD);
    out.zeros(4);
    out.text(name, 16);
    out.u64(parameter);
    for (field, mask) in fields {
        // The value is the mask of the used bits. There is no separate mask.
        if let Some(wire) = Wire::of(*field, version) {
            wire.put_header(out, false);
            let octets = wire.octets(false) - wire.octets_of_header();
            out.extend_from_slice(&mask.to_be_bytes()[16 - octets..]);
        }
    }
    out.set_length(start, 2);
    out.align(start);
}

/// Encodes the body of a group-mod that adds a group.
pub fn put_mod(out: &mut Vec<u8>, version: Version, group: &Group) {
    put_whole(out, version, OFPGC_ADD, group);
}

fn put_whole(out: &mut Vec<u8>, version: Version, command: u16, group: &Group) {
    put_command(out, version, (command, BucketPlace::All), (group.kind, group.id), &group.buckets);
    if is_numbered(version) {
        put_method(out, version, &group.method);
    }
}

/// Returns whether the buckets of groups have IDs in this OpenFlow version (since 1.5).
fn is_numbered(version: Version) -> bool {
    matches!(version, Version::V10 | Version::V15)
}

fn put_command(
    out: &mut Vec<u8>,
    version: Version,
    (command, place): (u16, BucketPlace),
    (kind, id): (GroupKind, u32),
    buckets: &[Bucket],
) {
    out.u16(command);
    out.u8(kind_number(kind));
    out.u8(0);
    out.u32(id);
    let length_at = out.len();
    if is_numbered(version) {
        out.zeros(4);
        out.u32(match place {
            BucketPlace::First => OFPG_BUCKET_FIRST,
            BucketPlace::Last => OFPG_BUCKET_LAST,
            BucketPlace::All => OFPG_BUCKET_ALL,
            BucketPlace::Id(id) => id,
        });
    }
    let before = out.len();
    buckets.iter().for_each(|bucket| put_bucket(out, version, kind, bucket));
    if is_numbered(version) {
        let octets = out.len() - before;
        out.patch16(length_at, octets);
    }
}

/// Encodes a change of a group that the bridge has made, as a group-mod of the OpenFlow version `version`. `existed` is
/// true if the group existed before the change. `after` is the group after the change, which the encoding needs if the
/// change names only some buckets. Returns false and encodes nothing if the version has no suitable group-mod.
pub(crate) fn put_request(
    out: &mut Vec<u8>,
    version: Version,
    change: &GroupMod,
    existed: bool,
    after: Option<&Group>,
) -> bool {
    let kind = after.map_or(GroupKind::All, |group| group.kind);
    match change {
        GroupMod::Add(group) => put_whole(out, version, OFPGC_ADD, group),
        // The command describes the actual effect, like in Open vSwitch.
        GroupMod::Modify { group, or_add } => {
            put_whole(out, version, if *or_add && !existed { OFPGC_ADD } else { OFPGC_MODIFY }, group);
        }
        GroupMod::Delete(id) => {
            put_command(out, version, (OFPGC_DELETE, BucketPlace::All), (GroupKind::All, *id), &[]);
        }
        GroupMod::InsertBuckets(id, place, buckets) if is_numbered(version) => {
            put_command(out, version, (OFPGC_INSERT_BUCKET, *place), (kind, *id), buckets);
        }
        GroupMod::RemoveBuckets(id, place) if is_numbered(version) => {
            put_command(out, version, (OFPGC_REMOVE_BUCKET, *place), (kind, *id), &[]);
        }
        // Versions without changes of single buckets receive the complete group.
        GroupMod::InsertBuckets(..) | GroupMod::RemoveBuckets(..) => match after {
            Some(group) => put_whole(out, version, OFPGC_MODIFY, group),
            None => return false,
        },
    }
    true
}

/// Returns whether a group with its buckets fits into a message of every version. A group that fits
/// can be reported to controllers of all versions, be contained in forwarded requests, and be
/// passed to the new process in an upgrade. The counters of such a group also fit into a message.
#[must_use]
pub fn fits_all_versions(group: &Group) -> bool {
    Version::ALL.into_iter().all(|version| {
        let mut out = Vec::new();
        put_desc(&mut out, version, group);
        out.len() <= usize::from(u16::MAX) - BESIDE_GROUP
    })
}

/// Encodes the description of a group with its buckets.
pub fn put_desc(out: &mut Vec<u8>, version: Version, group: &Group) {
    let start = out.len();
    out.u16(0);
    out.u8(kind_number(group.kind));
    out.u8(0);
    out.u32(group.id);
    let numbered = matches!(version, Version::V10 | Version::V15);
    if numbered {
        out.zeros(8);
    }
    let before = out.len();
    group.buckets.iter().for_each(|bucket| put_bucket(out, version, group.kind, bucket));
    if numbered {
        let octets = out.len() - before;
        out.patch16(start + 8, octets);
        put_method(out, version, &group.method);
    }
    out.set_length(start, 0);
}

/// Encodes the counters of a group.
pub fn put_stats(out: &mut Vec<u8>, version: Version, group: &GroupStats) {
    let start = out.len();
    out.zeros(4);
    out.u32(group.id);
    out.u32(group.references);
    out.zeros(4);
    out.u64(group.packets);
    out.u64(group.bytes);
    // OpenFlow 1.1 and 1.2 have no duration.
    if !matches!(version, Version::V11 | Version::V12) {
        let (sec, nsec) = seconds(group.age_ns);
        out.u32(sec);
        out.u32(nsec);
    }
    for (packets, bytes) in &group.buckets {
        out.u64(*packets);
        out.u64(*bytes);
    }
    out.set_length(start, 0);
}

/// Encodes the reply to a group features request.
pub fn put_features(out: &mut Vec<u8>, version: Version, max_groups: u32) {
    out.u32(
        [OFPGT_ALL, OFPGT_SELECT, OFPGT_INDIRECT, OFPGT_FF].iter().fold(0, |bits, kind| bits | 1 << kind),
    );
    out.u32(OFPGFC_SELECT_WEIGHT | OFPGFC_SELECT_LIVENESS | OFPGFC_CHAINING | OFPGFC_CHAINING_CHECKS);
    (0..4).for_each(|_| out.u32(max_groups));
    let actions = super::table::actions(version);
    (0..4).for_each(|_| out.u32(actions));
}

/// Returns the group ID in a request, or `None` if the ID represents all groups.
#[must_use]
pub fn wanted(id: u32) -> Option<u32> {
    (id != ALL_GROUPS && id != OFPG_ANY).then_some(id)
}
