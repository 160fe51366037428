//! Encoding and decoding of messages about flow tables: counters, features, and configuration.

use switch::flow::{Field, TableState, TableStats};

use super::error::Error;
use super::oxm::Wire;
use super::{Put, Reader, Version, begin, finish, properties};
use crate::datapath::{Miss, TableConfig, TableMod};

const EVICTION: u32 = 1 << 2;
const VACANCY: u32 = 1 << 3;
/// Wildcard bits of the fields that OpenFlow 1.0 can match: all bits.
const WILDCARDS_10: u32 = 0x003f_ffff;

/// Bits of the fields that OpenFlow 1.1 can match (OFPFMF_*): all bits except the one for the match type.
const FIELDS_11: u32 = 0xfbff;

/// Returns the actions that groups and tables support in this version. Each OFPAT_* value has one bit.
pub(super) fn actions(version: Version) -> u32 {
    match version {
        // All actions: output, VLAN, addresses, TOS, ports, queues.
        Version::V10 => 0x0fff,
        // All actions, including TTL, MPLS and groups.
        Version::V11 => 0x01ff_ffff,
        // Set-field replaces the actions that set one field. OpenFlow 1.3 adds PBB.
        Version::V12 => 0x03ff_9801,
        Version::V13 | Version::V14 | Version::V15 => 0x0fff_9801,
    }
}

/// Returns a mask with one bit for each basic field (OFPXMT_OFB_*) for which `wanted` returns true.
fn field_bits(wanted: fn(Field) -> bool) -> u64 {
    let basic = Field::ALL.into_iter().filter(|field| wanted(*field)).filter_map(|field| {
        let wire = Wire::of(field, Version::V12)?;
        wire.basic_number()
    });
    basic.fold(0, |bits, number| bits | 1 << number)
}

/// Encodes the counters of a table. In versions whose statistics contain the features of a table, these are
/// encoded, too. `miss` is the handling of packets that match no flow entry, for OpenFlow 1.1 and 1.2.
pub fn put_stats(
    out: &mut Vec<u8>,
    version: Version,
    table: &TableStats,
    name: &str,
    (miss, tables): (Miss, u8),
) {
    out.u8(table.table);
    out.zeros(3);
    let instructions = if table.table.saturating_add(1) >= tables { 0b11_1100 } else { 0b11_1110 };
    let config = match miss {
        Miss::Default | Miss::Controller => 0,
        Miss::Continue => 1,
        Miss::Drop => 2,
    };
    match version {
        Version::V10 => {
            out.text(name, 32);
            out.u32(WILDCARDS_10);
            out.u32(table.max_entries);
        }
        Version::V11 => {
            out.zeros(4);
            out.text(name, 32);
            out.u32(FIELDS_11);
            out.u32(FIELDS_11);
            out.u32(instructions);
            out.u32(actions(version));
            out.u32(actions(version));
            out.u32(config);
            out.u32(table.max_entries);
        }
        Version::V12 => {
            out.zeros(4);
            out.text(name, 32);
            out.u64(field_bits(|_| true));
            out.u64(field_bits(|_| true));
            out.u32(actions(version));
            out.u32(actions(version));
            out.u64(field_bits(Field::is_writable));
            out.u64(field_bits(Field::is_writable));
            out.u64(u64::MAX);
            out.u64(u64::MAX);
            out.u32(instructions);
            out.u32(config);
            out.u32(table.max_entries);
        }
        Version::V13 | Version::V14 | Version::V15 => {}
    }
    out.u32(table.active);
    out.u64(table.lookups);
    out.u64(table.matched);
}

/// Encodes a property whose value is a list of types. Each type is encoded as a header without a body.
fn put_list(out: &mut Vec<u8>, property: u16, kinds: impl Iterator<Item = u16>) {
    let start = out.len();
    out.u16(property);
    out.u16(0);
    for kind in kinds {
        out.u16(kind);
        out.u16(4);
    }
    out.set_length(start, 2);
    out.align(start);
}

fn put_fields(out: &mut Vec<u8>, version: Version, property: u16, masks: bool, wanted: fn(Field) -> bool) {
    let start = out.len();
    out.u16(property);
    out.u16(0);
    for field in Field::ALL.into_iter().filter(|field| wanted(*field)) {
        if let Some(wire) = Wire::of(field, version) {
            wire.put_header(out, masks && field.is_maskable());
        }
    }
    out.set_length(start, 2);
    out.align(start);
}

/// Encodes the features of a table. Every instruction, action and field is listed, both for table-miss flow
/// entries and for other flow entries.
pub fn put_features(out: &mut Vec<u8>, version: Version, config: &TableConfig, tables: u8) {
    let start = out.len();
    out.u16(0);
    out.u8(config.table);
    out.zeros(5);
    out.text(&config.name, 32);
    out.u64(u64::MAX);
    out.u64(u64::MAX);
    out.u32(if version >= Version::V14 { EVICTION | VACANCY } else { 0 });
    out.u32(config.max_entries);
    let last = config.table.saturating_add(1) >= tables;
    for miss in 0..2 {
        let no_meter = version >= Version::V15;
        put_list(out, miss, (1..=6).filter(|kind| !(*kind == 1 && last || *kind == 6 && no_meter)));
        let begin = out.len();
        out.u16(2 + miss);
        out.u16(0);
        out.extend(config.table.saturating_add(1)..tables);
        out.set_length(begin, 2);
        out.align(begin);
        for (actions, fields) in [(4, 12), (6, 14)] {
            let top = if version >= Version::V15 { 29 } else { 27 };
            let kinds = (0..=top).filter(|kind| matches!(kind, 0 | 11 | 12 | 15..=29));
            put_list(out, actions + miss, kinds);
            put_fields(out, version, fields + miss, false, Field::is_writable);
        }
    }
    put_fields(out, version, 8, true, |_| true);
    put_fields(out, version, 10, false, |_| true);
    out.set_length(start, 0);
}

/// Decodes a table features request. Only the names of the tables are taken from it.
///
/// # Errors
/// Returns OFPTFFC_* errors and OFPBRC_BAD_LEN.
pub fn get_features(mut from: Reader<'_>) -> Result<Vec<TableMod>, Error> {
    let mut out = Vec::new();
    while !from.is_empty() {
        let length = usize::from(from.u16()?);
        let mut body = from.part(length.checked_sub(2).ok_or(Error::BadLength)?)?;
        let table = body.u8()?;
        body.skip(5)?;
        let name = body.take(32)?;
        body.skip(24)?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(31);
        let name = String::from_utf8_lossy(&name[..end.min(31)]).into_owned();
        out.push(TableMod { table, name: Some(name), ..TableMod::default() });
    }
    Ok(out)
}

/// Encodes the configuration of a table (OpenFlow 1.4 and later).
pub fn put_desc(out: &mut Vec<u8>, config: &TableConfig, active: u32) {
    let start = out.len();
    out.u16(0);
    out.u8(config.table);
    out.u8(0);
    let eviction = if config.eviction { EVICTION } else { 0 };
    out.u32(eviction | if config.vacancy.is_some() { VACANCY } else { 0 });
    // Eviction flags: other criteria, importance, lifetime.
    out.u16(2);
    out.u16(8);
    out.u32(7);
    if let Some((down, up)) = config.vacancy {
        let free = u64::from(config.max_entries.saturating_sub(active)) * 100;
        let vacancy = free / u64::from(config.max_entries.max(1));
        out.u16(3);
        out.u16(8);
        out.extend_from_slice(&[down, up, u8::try_from(vacancy).unwrap_or(100), 0]);
    }
    out.set_length(start, 0);
}

/// Encodes OFPT_TABLE_STATUS (OpenFlow 1.4 and later). `reason` is 3 if the vacancy has fallen below the
/// lower threshold, and 4 if it has risen above the upper threshold.
pub fn put_status(out: &mut Vec<u8>, version: Version, reason: u8, state: &TableState) {
    let start = begin(out, version, 31, 0);
    out.u8(reason);
    out.zeros(7);
    put_desc(out, &TableConfig::of(state), state.active);
    finish(out, start);
}

/// Decodes the body of OFPT_TABLE_MOD.
///
/// # Errors
/// Returns OFPTMFC_BAD_CONFIG and OFPBPC_* errors.
pub fn get_mod(mut from: Reader<'_>, version: Version) -> Result<TableMod, Error> {
    let table = from.u8()?;
    from.skip(3)?;
    let config = from.u32()?;
    if version < Version::V14 {
        // OpenFlow 1.3 has no configuration. Bits of earlier versions are accepted and ignored.
        let miss = match (config, version) {
            (0..=3, Version::V13) => None,
            (0, _) => Some(Miss::Controller),
            (1, _) => Some(Miss::Continue),
            (2, _) => Some(Miss::Drop),
            _ => return Err(Error::TableModConfig),
        };
        return Ok(TableMod { table, miss, ..TableMod::default() });
    }
    if config & !(EVICTION | VACANCY) != 0 {
        return Err(Error::TableModConfig);
    }
    let mut vacancy = None;
    properties(Reader::new(from.data, Error::PropertyLength), |kind, mut value| match kind {
        2 => value.u32().map(|_| ()),
        3 => {
            let (down, up) = (value.u8()?, value.u8()?);
            if down > up || up > 100 {
                return Err(Error::PropertyValue);
            }
            vacancy = Some((down, up));
            Ok(())
        }
        0xffff => Err(Error::PropertyExperimenter),
        _ => Err(Error::PropertyType),
    })?;
    let vacancy = match (config & VACANCY != 0, vacancy) {
        (false, _) => None,
        (true, None) => return Err(Error::PropertyValue),
        (true, some) => some,
    };
    Ok(TableMod {
        table,
        eviction: Some(config & EVICTION != 0),
        vacancy: Some(vacancy),
        ..TableMod::default()
    })
}
