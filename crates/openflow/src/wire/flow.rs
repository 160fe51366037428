//! Messages about flow entries: flow-mods, statistics, removal messages, and flow monitor updates.

use switch::flow::{
    ALL_TABLES, ANY_GROUP, FlowCommand, FlowFilter, FlowFlags, FlowMod, FlowStats, Removed, port,
};

use super::action::{get_instructions, get_plain, put_instructions, put_plain};
use super::error::Error;
use super::matching::{get_10, get_nxm, get_oxm, is_exact_10, put_10, put_nxm, put_oxm};
use super::ofp::flow::*;
use super::ofp::{msg, nx};
use super::{
    NO_BUFFER, Put, Reader, TooLong, Version, begin, begin_experimenter, finish, port_from_16, seconds,
};

/// Fields that the flow-mods of OpenFlow 1.0 (OFPT_FLOW_MOD) and of Nicira (NXT_FLOW_MOD) have in common: all fields
/// from the command to the flags.
struct Old {
    command: u16,
    idle: u16,
    hard: u16,
    priority: u16,
    buffer: u32,
    out_port: u16,
    flags: u16,
}

fn old(from: &mut Reader<'_>) -> Result<Old, Error> {
    Ok(Old {
        command: from.u16()?,
        idle: from.u16()?,
        hard: from.u16()?,
        priority: from.u16()?,
        buffer: from.u32()?,
        out_port: from.u16()?,
        flags: from.u16()?,
    })
}

fn some(value: u32, none: u32) -> Option<u32> {
    (value != none).then_some(value)
}

fn command(number: u16, or_add: bool) -> Result<FlowCommand, Error> {
    Ok(match number {
        OFPFC_ADD => FlowCommand::Add,
        OFPFC_MODIFY | OFPFC_MODIFY_STRICT => {
            FlowCommand::Modify { strict: number == OFPFC_MODIFY_STRICT, or_add }
        }
        OFPFC_DELETE | OFPFC_DELETE_STRICT => FlowCommand::Delete { strict: number == OFPFC_DELETE_STRICT },
        _ => return Err(Error::FlowCommand),
    })
}

/// Returns the flags that are valid in a flow-mod of this OpenFlow version.
fn known_flags(version: Version) -> u16 {
    let first = OFPFF_SEND_FLOW_REM | OFPFF_CHECK_OVERLAP;
    match version {
        Version::V10 | Version::V11 => first,
        Version::V12 => first | OFPFF_RESET_COUNTS,
        Version::V13 | Version::V14 | Version::V15 => {
            first | OFPFF_RESET_COUNTS | OFPFF_NO_PKT_COUNTS | OFPFF_NO_BYT_COUNTS
        }
    }
}

fn flags(raw: u16, version: Version) -> Result<FlowFlags, Error> {
    let known = known_flags(version);
    if raw & !known != 0 {
        // Emergency flow entries of OpenFlow 1.0 are not supported.
        return Err(if version == Version::V10 && raw & !(known | ofp10::OFPFF_EMERG) == 0 {
            Error::TableFull
        } else {
            Error::FlowFlags
        });
    }
    Ok(FlowFlags {
        send_removed: raw & OFPFF_SEND_FLOW_REM != 0,
        check_overlap: raw & OFPFF_CHECK_OVERLAP != 0,
        reset_counts: raw & OFPFF_RESET_COUNTS != 0,
        no_packet_counts: raw & OFPFF_NO_PKT_COUNTS != 0,
        no_byte_counts: raw & OFPFF_NO_BYT_COUNTS != 0,
    })
}

/// Returns the flags of a flow entry as a bit mask (OFPFF_*).
fn put_flags(flags: FlowFlags) -> u16 {
    let bit = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
    bit(flags.send_removed, OFPFF_SEND_FLOW_REM)
        | bit(flags.check_overlap, OFPFF_CHECK_OVERLAP)
        | bit(flags.reset_counts, OFPFF_RESET_COUNTS)
        | bit(flags.no_packet_counts, OFPFF_NO_PKT_COUNTS)
        | bit(flags.no_byte_counts, OFPFF_NO_BYT_COUNTS)
}

/// Decodes the body of OFPT_FLOW_MOD. If `table_ids` is true, the command field also contains a
/// table number (NXT_FLOW_MOD_TABLE_ID).
///
/// # Errors
/// Returns OFPFMFC_*, OFPBMC_*, OFPBAC_* and OFPBIC_* errors.
pub fn get_mod(mut from: Reader<'_>, version: Version, table_ids: bool) -> Result<FlowMod, Error> {
    if version == Version::V10 {
        let exact = is_exact_10(&from);
        let matching = get_10(&mut from)?;
        let cookie = from.u64()?;
        let mut head = old(&mut from)?;
        if exact {
            // OpenFlow 1.0 section 3.4: a flow entry without wildcards has the highest priority.
            head.priority = u16::MAX;
        }
        return finish_old(from, version, head, matching, cookie, (0, 0), table_ids);
    }
    let (cookie, cookie_mask) = (from.u64()?, from.u64()?);
    let (table, number) = (from.u8()?, from.u8()?);
    let (idle_timeout, hard_timeout, priority) = (from.u16()?, from.u16()?, from.u16()?);
    let (buffer, out_port, out_group) = (from.u32()?, from.u32()?, from.u32()?);
    let (raw, importance) = (from.u16()?, from.u16()?);
    let matching = get_oxm(&mut from)?.matching;
    let instructions = get_instructions(from, version, &matching)?;
    // In OpenFlow 1.1 only, a modification without a cookie mask adds a missing flow entry (section 4.6), and
    // no table number stands for all tables.
    let is_11 = version == Version::V11;
    if is_11 && table == ALL_TABLES {
        return Err(Error::FlowTable);
    }
    let command = command(u16::from(number), is_11 && cookie_mask == 0)?;
    let delete = matches!(command, FlowCommand::Delete { .. });
    let add = command == FlowCommand::Add;
    let gives_cookie = add || matches!(command, FlowCommand::Modify { or_add: true, .. });
    let cookie_mask = if add { 0 } else { cookie_mask };
    let mut flags = flags(raw, version)?;
    flags.reset_counts |= is_11 && add;
    Ok(FlowMod {
        command,
        table,
        matching,
        priority,
        cookie: gives_cookie.then_some(cookie),
        cookie_mask,
        cookie_value: cookie & cookie_mask,
        idle_timeout,
        hard_timeout,
        importance: if version >= Version::V14 { importance } else { 0 },
        flags,
        instructions,
        out_port: some(out_port, port::ANY).filter(|_| delete),
        out_group: some(out_group, ANY_GROUP).filter(|_| delete),
        buffer: some(buffer, NO_BUFFER).filter(|_| !delete),
    })
}

/// Decodes the body of NXT_FLOW_MOD. `version` determines the encoding of the actions.
///
/// # Errors
/// Returns the errors of [`get_mod`].
pub fn get_mod_nx(mut from: Reader<'_>, version: Version, table_ids: bool) -> Result<FlowMod, Error> {
    let cookie = from.u64()?;
    let head = old(&mut from)?;
    let octets = usize::from(from.u16()?);
    from.skip(6)?;
    let fields = get_nxm(&mut from, octets)?;
    finish_old(from, version, head, fields.matching, cookie, fields.cookie, table_ids)
}

fn finish_old(
    from: Reader<'_>,
    version: Version,
    head: Old,
    matching: switch::flow::Match,
    cookie: u64,
    (cookie_value, cookie_mask): (u64, u64),
    table_ids: bool,
) -> Result<FlowMod, Error> {
    let (number, table) = if table_ids {
        (head.command & 0xff, head.command.to_be_bytes()[0])
    } else {
        (head.command, ALL_TABLES)
    };
    let command = command(number, cookie_mask == 0)?;
    let instructions = get_plain(from, version, &matching)?;
    let delete = matches!(command, FlowCommand::Delete { .. });
    let add = command == FlowCommand::Add;
    let mut flags = flags(head.flags, Version::V10)?;
    // In OpenFlow 1.0, counters always start at zero.
    flags.reset_counts = add;
    Ok(FlowMod {
        command,
        table: if table == ALL_TABLES && !delete { 0 } else { table },
        matching,
        priority: head.priority,
        // A cookie of all ones leaves the cookie unchanged.
        cookie: Some(cookie).filter(|cookie| add || *cookie != u64::MAX),
        cookie_mask: if add { 0 } else { cookie_mask },
        cookie_value: if add { 0 } else { cookie_value },
        idle_timeout: head.idle,
        hard_timeout: head.hard,
        importance: 0,
        flags,
        instructions,
        out_port: some(port_from_16(head.out_port), port::ANY).filter(|_| delete),
        out_group: None,
        buffer: some(head.buffer, NO_BUFFER).filter(|_| !delete),
    })
}

/// Encodes a flow-mod. In OpenFlow 1.0, the message is NXT_FLOW_MOD, whose command field also contains the table
/// number. In later versions, the message is OFPT_FLOW_MOD.
///
/// # Errors
/// Returns [`TooLong`] and encodes nothing if the flow-mod does not fit into a message.
pub fn put_mod(out: &mut Vec<u8>, version: Version, xid: u32, change: &FlowMod) -> Result<(), TooLong> {
    let start = match version {
        Version::V10 => begin_experimenter(out, version, super::NICIRA, nx::NXT_FLOW_MOD, xid),
        _ => begin(out, version, msg::OFPT_FLOW_MOD, xid),
    };
    put_mod_body(out, version, change);
    finish(out, start)
}

/// Encodes a flow-mod like [`put_mod`], but without the header. The length is not limited.
pub fn put_mod_body(out: &mut Vec<u8>, version: Version, change: &FlowMod) {
    let number = match change.command {
        FlowCommand::Add => OFPFC_ADD,
        FlowCommand::Modify { strict: false, .. } => OFPFC_MODIFY,
        FlowCommand::Modify { strict: true, .. } => OFPFC_MODIFY_STRICT,
        FlowCommand::Delete { strict: false } => OFPFC_DELETE,
        FlowCommand::Delete { strict: true } => OFPFC_DELETE_STRICT,
    };
    let flags = put_flags(change.flags);
    let buffer = change.buffer.unwrap_or(NO_BUFFER);
    if version == Version::V10 {
        out.u64(change.cookie.unwrap_or(u64::MAX));
        // The table is in the upper octet of the command.
        out.u16(u16::from(change.table) << 8 | number);
        out.u16(change.idle_timeout);
        out.u16(change.hard_timeout);
        out.u16(change.priority);
        out.u32(buffer);
        out.u16(super::port_to_16(change.out_port.unwrap_or(port::ANY)));
        out.u16(flags & known_flags(version));
        let length_at = out.len();
        out.zeros(8);
        let octets = put_nxm(out, &change.matching, Some((change.cookie_value, change.cookie_mask)));
        out.patch16(length_at, usize::from(octets));
        put_plain(out, version, &change.instructions);
        return;
    }
    out.u64(change.cookie.unwrap_or(change.cookie_value));
    out.u64(change.cookie_mask);
    out.u8(change.table);
    out.u8(number.to_be_bytes()[1]);
    out.u16(change.idle_timeout);
    out.u16(change.hard_timeout);
    out.u16(change.priority);
    out.u32(buffer);
    out.u32(change.out_port.unwrap_or(port::ANY));
    out.u32(change.out_group.unwrap_or(ANY_GROUP));
    out.u16(flags & known_flags(version));
    out.u16(if version >= Version::V14 { change.importance } else { 0 });
    put_oxm(out, &change.matching, version);
    put_instructions(out, version, &change.instructions);
}

/// Decodes the body of a request for flow statistics or aggregate statistics.
///
/// # Errors
/// Returns OFPBMC_* errors.
pub fn get_filter(mut from: Reader<'_>, version: Version) -> Result<FlowFilter, Error> {
    if version == Version::V10 {
        let matching = get_10(&mut from)?;
        let table = from.u8()?;
        from.skip(1)?;
        let out_port = some(port_from_16(from.u16()?), port::ANY);
        return Ok(FlowFilter { table, matching, out_port, ..FlowFilter::default() });
    }
    let table = from.u8()?;
    from.skip(3)?;
    let (out_port, out_group) = (from.u32()?, from.u32()?);
    from.skip(4)?;
    let (cookie, cookie_mask) = (from.u64()?, from.u64()?);
    let matching = get_oxm(&mut from)?.matching;
    Ok(FlowFilter {
        table,
        matching,
        cookie: cookie & cookie_mask,
        cookie_mask,
        out_port: some(out_port, port::ANY),
        out_group: some(out_group, ANY_GROUP),
    })
}

/// Decodes the body of NXST_FLOW and NXST_AGGREGATE requests.
///
/// # Errors
/// Returns OFPBMC_* errors.
pub fn get_filter_nx(mut from: Reader<'_>) -> Result<FlowFilter, Error> {
    let out_port = some(port_from_16(from.u16()?), port::ANY);
    let octets = usize::from(from.u16()?);
    let table = from.u8()?;
    from.skip(3)?;
    let fields = get_nxm(&mut from, octets)?;
    let (cookie, cookie_mask) = fields.cookie;
    Ok(FlowFilter { table, matching: fields.matching, cookie, cookie_mask, out_port, out_group: None })
}

/// Encoding of a flow entry's statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The standard encoding of the version (OFPST_FLOW, OFPMP_FLOW).
    Standard,
    /// Nicira's encoding of the statistics (NXST_FLOW).
    Nicira,
    /// The encoding of OpenFlow 1.5 that contains only counters (OFPMP_FLOW_STATS).
    Brief,
}

fn put_counters(out: &mut Vec<u8>, flow: &FlowStats) {
    out.u64(flow.packets);
    out.u64(flow.bytes);
}

/// Encodes the durations and counters of a flow entry as OXS fields (statistics fields of OpenFlow 1.5), with
/// padding.
fn put_oxs(out: &mut Vec<u8>, flow: &FlowStats) {
    let start = out.len();
    out.u32(0);
    for (number, (first, second)) in
        [(OFPXST_OFB_DURATION, seconds(flow.age_ns)), (OFPXST_OFB_IDLE_TIME, seconds(flow.idle_ns))]
    {
        put_oxs_header(out, number, 8);
        out.u32(first);
        out.u32(second);
    }
    for (number, value) in [(OFPXST_OFB_PACKET_COUNT, flow.packets), (OFPXST_OFB_BYTE_COUNT, flow.bytes)] {
        put_oxs_header(out, number, 8);
        out.u64(value);
    }
    out.set_length(start, 2);
    out.align(start);
}

fn put_oxs_header(out: &mut Vec<u8>, number: u8, octets: u8) {
    out.u16(OFPXSC_OPENFLOW_BASIC);
    out.u8(number << 1);
    out.u8(octets);
}

/// Encodes the reply to an aggregate statistics request of OpenFlow 1.5.
pub fn put_oxs_sums(out: &mut Vec<u8>, sums: &crate::datapath::Aggregate) {
    let start = out.len();
    out.u32(0);
    put_oxs_header(out, OFPXST_OFB_FLOW_COUNT, 4);
    out.u32(sums.flows);
    for (number, value) in [(OFPXST_OFB_PACKET_COUNT, sums.packets), (OFPXST_OFB_BYTE_COUNT, sums.bytes)] {
        put_oxs_header(out, number, 8);
        out.u64(value);
    }
    out.set_length(start, 2);
    out.align(start);
}

/// Number of octets of a message that are reserved for the match and the fixed part of a flow
/// entry. The instructions can use the rest of the 65,535 octets.
const BESIDE_ACTIONS: usize = 4096;

/// Returns whether the instructions of a flow-mod fit into a message of every OpenFlow version. One
/// action may become several actions in another version. A flow entry whose instructions do not fit
/// cannot be reported to controllers of all versions.
pub(crate) fn fits_all_versions(change: &FlowMod) -> bool {
    let fits = |put: &dyn Fn(&mut Vec<u8>, Version), version| {
        let mut out = Vec::new();
        put(&mut out, version);
        out.len() <= 0xffff - BESIDE_ACTIONS
    };
    Version::ALL.into_iter().all(|version| match version {
        Version::V10 => fits(&|out, version| put_plain(out, version, &change.instructions), version),
        _ => fits(&|out, version| put_instructions(out, version, &change.instructions), version),
    })
}

/// Encodes one flow entry of a statistics reply.
pub fn put_stats(out: &mut Vec<u8>, version: Version, form: Form, flow: &FlowStats) {
    let start = out.len();
    let (sec, nsec) = seconds(flow.age_ns);
    let idle = seconds(flow.idle_ns).0;
    out.u16(0);
    match (form, version) {
        (Form::Nicira, _) => {
            out.u8(flow.table);
            out.u8(0);
            out.u32(sec);
            out.u32(nsec);
            out.u16(flow.priority);
            out.u16(flow.idle_timeout);
            out.u16(flow.hard_timeout);
            let length_at = out.len();
            out.u16(0);
            // Ages are encoded plus one, because zero means unknown.
            out.u16(u16::try_from(idle).unwrap_or(u16::MAX).saturating_add(1));
            let hard = seconds(flow.unchanged_ns).0;
            out.u16(u16::try_from(hard).unwrap_or(u16::MAX).saturating_add(1));
            out.u64(flow.cookie);
            put_counters(out, flow);
            let octets = put_nxm(out, &flow.matching, None);
            out.patch16(length_at, usize::from(octets));
            put_plain(out, version, &flow.instructions);
        }
        (_, Version::V10) => {
            out.u8(flow.table);
            out.u8(0);
            put_10(out, &flow.matching);
            out.u32(sec);
            out.u32(nsec);
            out.u16(flow.priority);
            out.u16(flow.idle_timeout);
            out.u16(flow.hard_timeout);
            out.zeros(6);
            out.u64(flow.cookie);
            put_counters(out, flow);
            put_plain(out, version, &flow.instructions);
        }
        (_, Version::V11 | Version::V12 | Version::V13 | Version::V14) => {
            out.u8(flow.table);
            out.u8(0);
            out.u32(sec);
            out.u32(nsec);
            out.u16(flow.priority);
            out.u16(flow.idle_timeout);
            out.u16(flow.hard_timeout);
            // OpenFlow 1.1 and 1.2 have padding in place of the flags.
            out.u16(if version >= Version::V13 { put_flags(flow.flags) } else { 0 });
            out.u16(if version == Version::V14 { flow.importance } else { 0 });
            out.zeros(2);
            out.u64(flow.cookie);
            put_counters(out, flow);
            put_oxm(out, &flow.matching, version);
            put_instructions(out, version, &flow.instructions);
        }
        (Form::Standard, Version::V15) => {
            out.zeros(2);
            out.u8(flow.table);
            out.u8(0);
            out.u16(flow.priority);
            out.u16(flow.idle_timeout);
            out.u16(flow.hard_timeout);
            out.u16(put_flags(flow.flags));
            out.u16(flow.importance);
            out.u64(flow.cookie);
            put_oxm(out, &flow.matching, version);
            put_oxs(out, flow);
            put_instructions(out, version, &flow.instructions);
        }
        (Form::Brief, Version::V15) => {
            out.zeros(2);
            out.u8(flow.table);
            out.u8(0);
            out.u16(flow.priority);
            put_oxm(out, &flow.matching, version);
            put_oxs(out, flow);
        }
    }
    out.set_length(start, 0);
}

/// Encodes the message that reports the removal of a flow entry. If `nicira` is true, the message is
/// NXT_FLOW_REMOVED.
///
/// # Errors
/// Returns [`TooLong`] and encodes nothing if the message would be too long.
pub fn put_removed(
    out: &mut Vec<u8>,
    version: Version,
    nicira: bool,
    flow: &FlowStats,
    why: Removed,
) -> Result<(), TooLong> {
    let reason = match (why, version) {
        (Removed::IdleTimeout, _) => OFPRR_IDLE_TIMEOUT,
        (Removed::HardTimeout, _) => OFPRR_HARD_TIMEOUT,
        (Removed::MeterDelete, Version::V14 | Version::V15) => OFPRR_METER_DELETE,
        (Removed::Eviction, Version::V14 | Version::V15) => OFPRR_EVICTION,
        (Removed::GroupDelete, _) if version != Version::V10 => OFPRR_GROUP_DELETE,
        _ => OFPRR_DELETE,
    };
    let (sec, nsec) = seconds(flow.age_ns);
    if nicira {
        let start = begin_experimenter(out, version, super::NICIRA, nx::NXT_FLOW_REMOVED, 0);
        out.u64(flow.cookie);
        out.u16(flow.priority);
        out.u8(reason);
        // The table is encoded plus one, because zero means unknown.
        out.u8(flow.table.wrapping_add(1));
        out.u32(sec);
        out.u32(nsec);
        out.u16(flow.idle_timeout);
        let length_at = out.len();
        out.u16(0);
        put_counters(out, flow);
        let octets = put_nxm(out, &flow.matching, None);
        out.patch16(length_at, usize::from(octets));
        return finish(out, start);
    }
    let start = begin(out, version, msg::OFPT_FLOW_REMOVED, 0);
    match version {
        Version::V10 => {
            put_10(out, &flow.matching);
            out.u64(flow.cookie);
            out.u16(flow.priority);
            out.u8(reason);
            out.u8(flow.table.wrapping_add(1));
            out.u32(sec);
            out.u32(nsec);
            out.u16(flow.idle_timeout);
            out.zeros(2);
            put_counters(out, flow);
        }
        Version::V11 | Version::V12 | Version::V13 | Version::V14 => {
            out.u64(flow.cookie);
            out.u16(flow.priority);
            out.u8(reason);
            out.u8(flow.table);
            out.u32(sec);
            out.u32(nsec);
            out.u16(flow.idle_timeout);
            out.u16(flow.hard_timeout);
            put_counters(out, flow);
            put_oxm(out, &flow.matching, version);
        }
        Version::V15 => {
            out.u8(flow.table);
            out.u8(reason);
            out.u16(flow.priority);
            out.u16(flow.idle_timeout);
            out.u16(flow.hard_timeout);
            out.u64(flow.cookie);
            put_oxm(out, &flow.matching, version);
            put_oxs(out, flow);
        }
    }
    finish(out, start)
}

/// A flow monitor, which reports changes of flow entries to a controller. The flags are those of OpenFlow 1.4
/// (OFPFMF_*).
#[derive(Clone, PartialEq, Debug)]
pub struct Monitor {
    /// ID of the monitor, which the controller has chosen.
    pub id: u32,
    /// Flags of the flow monitor. OFPFMF_ONLY_OWN is stored as OFPFMF_NO_ABBREV, like in Open vSwitch.
    pub flags: u16,
    /// Filter for the flow entries that are monitored.
    pub filter: FlowFilter,
}

/// A flow monitor request.
#[derive(Clone, PartialEq, Debug)]
pub enum MonitorRequest {
    /// Adds a flow monitor.
    Add(Monitor),
    /// Modifies a flow monitor.
    Modify(Monitor),
    /// Deletes the flow monitor with this ID.
    Delete(u32),
}

/// Converts the flags of a flow monitor request into the bits of OpenFlow 1.4.
fn monitor_flags(raw: u16, version: Version) -> Result<u16, Error> {
    let events = OFPFMF_ADD | OFPFMF_REMOVED | OFPFMF_MODIFY;
    let common = OFPFMF_INITIAL | events | OFPFMF_INSTRUCTIONS;
    let own = OFPFMF_NO_ABBREV | if version >= Version::V14 { OFPFMF_ONLY_OWN } else { 0 };
    if raw & events == 0 || raw & !(common | own) != 0 {
        return Err(Error::MonitorFlags);
    }
    // Open vSwitch handles OFPFMF_ONLY_OWN of OpenFlow 1.4 equally.
    let full = if raw & own != 0 { OFPFMF_NO_ABBREV } else { 0 };
    Ok(raw & common | full)
}

/// Decodes the next flow monitor request. The format is NXST_FLOW_MONITOR in OpenFlow 1.0 to 1.2, the ONF
/// extension in 1.3, and the standard request in later versions.
///
/// # Errors
/// Returns OFPMOFC_* and OFPBMC_* errors.
pub fn get_monitor(from: &mut Reader<'_>, version: Version) -> Result<MonitorRequest, Error> {
    let id = from.u32()?;
    if version >= Version::V14 {
        let (out_port, out_group) = (from.u32()?, from.u32()?);
        let (raw, table, command) = (from.u16()?, from.u8()?, from.u8()?);
        let matching = get_oxm(from)?.matching;
        if command == OFPFMC_DELETE {
            return Ok(MonitorRequest::Delete(id));
        }
        let filter = FlowFilter {
            table,
            matching,
            out_port: some(out_port, port::ANY),
            out_group: some(out_group, ANY_GROUP),
            ..FlowFilter::default()
        };
        let monitor = Monitor { id, flags: monitor_flags(raw, version)?, filter };
        return match command {
            OFPFMC_ADD => Ok(MonitorRequest::Add(monitor)),
            OFPFMC_MODIFY => Ok(MonitorRequest::Modify(monitor)),
            _ => Err(Error::MonitorCommand),
        };
    }
    let raw = from.u16()?;
    let (out_port, table, matching);
    if version < Version::V13 {
        out_port = port_from_16(from.u16()?);
        let octets = usize::from(from.u16()?);
        table = from.u8()?;
        if from.take(5)? != [0; 5] {
            return Err(Error::MustBeZero);
        }
        matching = get_nxm(from, octets)?.matching;
    } else {
        from.skip(2)?;
        out_port = from.u32()?;
        table = from.u8()?;
        from.skip(3)?;
        matching = get_oxm(from)?.matching;
    }
    let filter = FlowFilter { table, matching, out_port: some(out_port, port::ANY), ..FlowFilter::default() };
    Ok(MonitorRequest::Add(Monitor { id, flags: monitor_flags(raw, version)?, filter }))
}

/// Event that a flow monitor update reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// Update event: the flow entry existed when the monitor was added.
    Initial,
    /// Update event: the flow entry was added.
    Added,
    /// Update event: the flow entry was removed, for this reason.
    Removed(Removed),
    /// Update event: the flow entry was modified.
    Modified,
}

/// Encodes an abbreviated flow monitor update. The update reports that the session's own request with this transaction
/// ID has changed flow entries.
pub fn put_abbreviated(out: &mut Vec<u8>, version: Version, xid: u32) {
    out.u16(8);
    out.u16(if version >= Version::V14 { OFPFME_ABBREV } else { nx::NXFME_ABBREV });
    out.u32(xid);
}

/// Encodes one full flow monitor update. If `instructions` is true, the update contains the instructions of the flow
/// entry.
pub fn put_update(out: &mut Vec<u8>, version: Version, update: Update, flow: &FlowStats, instructions: bool) {
    let start = out.len();
    let reason = match update {
        Update::Removed(why) => match why {
            Removed::IdleTimeout => OFPRR_IDLE_TIMEOUT,
            Removed::HardTimeout => OFPRR_HARD_TIMEOUT,
            Removed::Delete => OFPRR_DELETE,
            Removed::GroupDelete => OFPRR_GROUP_DELETE,
            Removed::MeterDelete => OFPRR_METER_DELETE,
            Removed::Eviction => OFPRR_EVICTION,
        },
        _ => 0,
    };
    out.u16(0);
    if version >= Version::V14 {
        out.u16(match update {
            Update::Initial => OFPFME_INITIAL,
            Update::Added => OFPFME_ADDED,
            Update::Removed(_) => OFPFME_REMOVED,
            Update::Modified => OFPFME_MODIFIED,
        });
        out.u8(flow.table);
        out.u8(reason);
        out.u16(flow.idle_timeout);
        out.u16(flow.hard_timeout);
        out.u16(flow.priority);
        out.zeros(4);
        out.u64(flow.cookie);
        put_oxm(out, &flow.matching, version);
        if instructions {
            put_instructions(out, version, &flow.instructions);
        }
    } else {
        out.u16(match update {
            Update::Initial | Update::Added => nx::NXFME_ADDED,
            Update::Removed(_) => nx::NXFME_DELETED,
            Update::Modified => nx::NXFME_MODIFIED,
        });
        out.u16(u16::from(reason));
        out.u16(flow.priority);
        out.u16(flow.idle_timeout);
        out.u16(flow.hard_timeout);
        let length_at = out.len();
        out.u16(0);
        out.u8(flow.table);
        out.u8(0);
        out.u64(flow.cookie);
        if version < Version::V13 {
            let octets = put_nxm(out, &flow.matching, None);
            out.patch16(length_at, usize::from(octets));
            if instructions {
                put_plain(out, version, &flow.instructions);
            }
        } else {
            let before = out.len();
            put_oxm(out, &flow.matching, version);
            // The length excludes the padding, like in the match itself.
            let octets = u16::from_be_bytes([out[before + 2], out[before + 3]]);
            out.patch16(length_at, usize::from(octets));
            if instructions {
                put_instructions(out, version, &flow.instructions);
            }
        }
    }
    out.set_length(start, 0);
}
