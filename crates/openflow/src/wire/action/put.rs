//! Encoding of instructions.

use switch::flow::{Action, Instructions};

use super::forms::{nx, put, put_actions};
use super::frame::nicira;
use crate::wire::ofp::instruction::*;
use crate::wire::{Put, Version};

/// Encodes the instructions of a flow entry in a format that has only actions. OpenFlow 1.0 and
/// Nicira's messages use this format. Write-actions, goto-table and other instructions are encoded
/// as actions of Nicira. Instructions without such an action are omitted.
pub fn put_plain(out: &mut Vec<u8>, version: Version, instructions: &Instructions) {
    put_actions(out, version, &instructions.apply);
    if let Some((value, mask)) = instructions.metadata {
        nicira(out, nx::WRITE_METADATA, |out| {
            out.zeros(6);
            out.u64(value);
            out.u64(mask);
        });
    }
    if let Some(table) = instructions.goto {
        put(out, version, &Action::Resubmit { port: None, table: Some(table) });
    }
}

/// Encodes instructions in the format of OpenFlow 1.1 and later.
pub fn put_instructions(out: &mut Vec<u8>, version: Version, instructions: &Instructions) {
    let mut apply = instructions.apply.as_slice();
    let mut meter = instructions.meter;
    if let (true, None, [Action::Meter(id), rest @ ..]) = (version < Version::V15, meter, apply) {
        (meter, apply) = (Some(*id), rest);
    }
    // OpenFlow 1.1 and 1.2 have no meters.
    if let (Some(id), Version::V13 | Version::V14) = (meter, version) {
        out.u16(OFPIT_METER);
        out.u16(8);
        out.u32(id);
    }
    let meter = meter.filter(|_| version >= Version::V15);
    if !apply.is_empty() || meter.is_some() {
        list(out, OFPIT_APPLY_ACTIONS, |out| {
            if let Some(id) = meter {
                put(out, version, &Action::Meter(id));
            }
            put_actions(out, version, apply);
        });
    }
    if instructions.clear {
        out.u16(OFPIT_CLEAR_ACTIONS);
        out.u16(8);
        out.u32(0);
    }
    if !instructions.write.is_empty() {
        list(out, OFPIT_WRITE_ACTIONS, |out| put_actions(out, version, &instructions.write));
    }
    if let Some((value, mask)) = instructions.metadata {
        out.u16(OFPIT_WRITE_METADATA);
        out.u16(24);
        out.u32(0);
        out.u64(value);
        out.u64(mask);
    }
    if let Some(table) = instructions.goto {
        out.u16(OFPIT_GOTO_TABLE);
        out.u16(8);
        out.extend_from_slice(&[table, 0, 0, 0]);
    }
}

fn list(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.u16(kind);
    out.u16(0);
    out.u32(0);
    body(out);
    out.set_length(start, 2);
}
