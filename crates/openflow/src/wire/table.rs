//! Encoding and decoding of messages about flow tables: counters, features, and configuration.

use switch::flow::{Field, TableState, TableStats};

use super::error::Error;
use super::ofp::action as ofpat;
use super::ofp::instruction::*;
use super::ofp::msg::OFPT_TABLE_STATUS;
use super::ofp::table::*;
use super::oxm::Wire;
use super::{Put, Reader, TooLong, Version, begin, finish, properties};
use crate::datapath::{Miss, TableConfig, TableMod};

/// Bit mask of the fields that OpenFlow 1.0 can match (wildcard bits). All bits are set.
const WILDCARDS_10: u32 = 0x003f_ffff;

/// Bit mask of the fields that OpenFlow 1.1 can match (OFPFMF_*). All bits are set except the bit
/// for the match type.
const FIELDS_11: u32 = 0xfbff;

/// Returns a bit mask in which the bits from `first` to `last` are set.
const fn bits(first: u16, last: u16) -> u32 {
    (u32::MAX >> (31 - last)) & (u32::MAX << first)
}

/// Returns a bit mask of the action types (OFPAT_*) that the bridge supports in this OpenFlow version, for
/// descriptions of groups and tables.
pub(crate) fn actions(version: Version) -> u32 {
    let common = 1 << ofpat::OFPAT_OUTPUT | 1 << ofpat::OFPAT_COPY_TTL_OUT | 1 << ofpat::OFPAT_COPY_TTL_IN;
    match version {
        // All actions.
        Version::V10 => bits(ofpat::ofp10::OFPAT_OUTPUT, ofpat::ofp10::OFPAT_ENQUEUE),
        Version::V11 => bits(ofpat::OFPAT_OUTPUT, ofpat::OFPAT_DEC_NW_TTL),
        // Set-field replaces the actions that set one field. OpenFlow 1.3 adds PBB.
        Version::V12 => common | bits(ofpat::OFPAT_SET_MPLS_TTL, ofpat::OFPAT_SET_FIELD),
        Version::V13 | Version::V14 | Version::V15 => {
            common | bits(ofpat::OFPAT_SET_MPLS_TTL, ofpat::OFPAT_POP_PBB)
        }
    }
}

/// Returns a bit mask of the basic match fields (OFPXMT_OFB_*) for which `wanted` returns true.
fn field_bits(wanted: fn(Field) -> bool) -> u64 {
    let basic = Field::ALL.into_iter().filter(|field| wanted(*field)).filter_map(|field| {
        let wire = Wire::of(field, Version::V12)?;
        wire.basic_number()
    });
    basic.fold(0, |bits, number| bits | 1 << number)
}

/// Encodes the counters of a flow table. In versions whose table statistics also contain the features of a table, the
/// function also encodes the features. `miss` is the configured behaviour for packets that match no flow entry, which
/// the statistics of OpenFlow 1.1 and 1.2 contain.
pub fn put_stats(
    out: &mut Vec<u8>,
    version: Version,
    table: &TableStats,
    name: &str,
    (miss, tables): (Miss, u8),
) {
    out.u8(table.table);
    out.zeros(3);
    // The last table has no later table to continue in.
    let first = if table.table.saturating_add(1) >= tables { OFPIT_WRITE_METADATA } else { OFPIT_GOTO_TABLE };
    let instructions = bits(first, OFPIT_CLEAR_ACTIONS);
    let config = match miss {
        Miss::Default | Miss::Controller => ofp11::OFPTC_TABLE_MISS_CONTROLLER,
        Miss::Continue => ofp11::OFPTC_TABLE_MISS_CONTINUE,
        Miss::Drop => ofp11::OFPTC_TABLE_MISS_DROP,
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

/// Encodes a table feature property whose value is a list of instruction or action types. Each type is encoded as a
/// header without a body.
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

/// Encodes the features of a flow table. Every instruction, action and field is listed, both for table-miss flow
/// entries and for other flow entries.
pub fn put_features(out: &mut Vec<u8>, version: Version, config: &TableConfig, tables: u8) {
    let start = out.len();
    out.u16(0);
    out.u8(config.table);
    out.zeros(5);
    out.text(&config.name, 32);
    out.u64(u64::MAX);
    out.u64(u64::MAX);
    out.u32(if version >= Version::V14 { OFPTC_EVICTION | OFPTC_VACANCY_EVENTS } else { 0 });
    out.u32(config.max_entries);
    let last = config.table.saturating_add(1) >= tables;
    // The type of a property for table-miss flow entries is one higher.
    for miss in 0..2 {
        let no_meter = version >= Version::V15;
        let instructions = (OFPIT_GOTO_TABLE..=OFPIT_METER)
            .filter(|kind| !(*kind == OFPIT_GOTO_TABLE && last || *kind == OFPIT_METER && no_meter));
        put_list(out, OFPTFPT_INSTRUCTIONS + miss, instructions);
        let begin = out.len();
        out.u16(OFPTFPT_NEXT_TABLES + miss);
        out.u16(0);
        out.extend(config.table.saturating_add(1)..tables);
        out.set_length(begin, 2);
        out.align(begin);
        for (actions, fields) in
            [(OFPTFPT_WRITE_ACTIONS, OFPTFPT_WRITE_SETFIELD), (OFPTFPT_APPLY_ACTIONS, OFPTFPT_APPLY_SETFIELD)]
        {
            let top = if version >= Version::V15 { ofpat::OFPAT_METER } else { ofpat::OFPAT_POP_PBB };
            let kinds = [ofpat::OFPAT_OUTPUT, ofpat::OFPAT_COPY_TTL_OUT, ofpat::OFPAT_COPY_TTL_IN];
            let kinds = kinds.into_iter().chain(ofpat::OFPAT_SET_MPLS_TTL..=top);
            put_list(out, actions + miss, kinds);
            put_fields(out, version, fields + miss, false, Field::is_writable);
        }
    }
    put_fields(out, version, OFPTFPT_MATCH, true, |_| true);
    put_fields(out, version, OFPTFPT_WILDCARDS, false, |_| true);
    out.set_length(start, 0);
}

/// Decodes a table features request. Only the names of the tables are used, and the other features
/// are ignored.
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

/// Encodes the configuration of a flow table (OpenFlow 1.4 and later).
pub fn put_desc(out: &mut Vec<u8>, config: &TableConfig, active: u32) {
    let start = out.len();
    out.u16(0);
    out.u8(config.table);
    out.u8(0);
    let eviction = if config.eviction { OFPTC_EVICTION } else { 0 };
    out.u32(eviction | if config.vacancy.is_some() { OFPTC_VACANCY_EVENTS } else { 0 });
    out.u16(OFPTMPT_EVICTION);
    out.u16(8);
    out.u32(OFPTMPEF_OTHER | OFPTMPEF_IMPORTANCE | OFPTMPEF_LIFETIME);
    if let Some((down, up)) = config.vacancy {
        let free = u64::from(config.max_entries.saturating_sub(active)) * 100;
        let vacancy = free / u64::from(config.max_entries.max(1));
        out.u16(OFPTMPT_VACANCY);
        out.u16(8);
        out.extend_from_slice(&[down, up, u8::try_from(vacancy).unwrap_or(100), 0]);
    }
    out.set_length(start, 0);
}

/// Encodes OFPT_TABLE_STATUS (OpenFlow 1.4 and later). `reason` is OFPTR_VACANCY_DOWN if the vacancy has fallen
/// below the lower threshold, and OFPTR_VACANCY_UP if it has risen above the upper threshold.
///
/// # Errors
/// Returns [`TooLong`] and encodes nothing if the message would be too long.
pub fn put_status(
    out: &mut Vec<u8>,
    version: Version,
    reason: u8,
    state: &TableState,
) -> Result<(), TooLong> {
    let start = begin(out, version, OFPT_TABLE_STATUS, 0);
    out.u8(reason);
    out.zeros(7);
    put_desc(out, &TableConfig::of(state), state.active);
    finish(out, start)
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
            (0..=ofp11::OFPTC_TABLE_MISS_MASK, Version::V13) => None,
            (ofp11::OFPTC_TABLE_MISS_CONTROLLER, _) => Some(Miss::Controller),
            (ofp11::OFPTC_TABLE_MISS_CONTINUE, _) => Some(Miss::Continue),
            (ofp11::OFPTC_TABLE_MISS_DROP, _) => Some(Miss::Drop),
            _ => return Err(Error::TableModConfig),
        };
        return Ok(TableMod { table, miss, ..TableMod::default() });
    }
    if config & !(OFPTC_EVICTION | OFPTC_VACANCY_EVENTS) != 0 {
        return Err(Error::TableModConfig);
    }
    let mut vacancy = None;
    properties(Reader::new(from.data, Error::PropertyLength), |kind, mut value| match kind {
        OFPTMPT_EVICTION => value.u32().map(|_| ()),
        OFPTMPT_VACANCY => {
            let (down, up) = (value.u8()?, value.u8()?);
            if down > up || up > 100 {
                return Err(Error::PropertyValue);
            }
            vacancy = Some((down, up));
            Ok(())
        }
        OFPTMPT_EXPERIMENTER => Err(Error::PropertyExperimenter),
        _ => Err(Error::PropertyType),
    })?;
    let vacancy = match (config & OFPTC_VACANCY_EVENTS != 0, vacancy) {
        (false, _) => None,
        (true, None) => return Err(Error::PropertyValue),
        (true, some) => some,
    };
    Ok(TableMod {
        table,
        eviction: Some(config & OFPTC_EVICTION != 0),
        vacancy: Some(vacancy),
        ..TableMod::default()
    })
}
