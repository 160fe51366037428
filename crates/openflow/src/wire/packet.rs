//! Packets to and from controllers.

use switch::flow::{Field, Match, PacketIn, PacketOut, Reason, port};

use super::action::get_actions;
use super::error::Error;
use super::matching::{get_oxm, put_fields, put_nxm, put_oxm};
use super::{
    NICIRA, NO_BUFFER, Put, Reader, Version, begin, begin_experimenter, finish, low16, port_from_16,
    port_to_16,
};

/// How packets are written to a controller (NXT_SET_PACKET_IN_FORMAT).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// OFPT_PACKET_IN.
    #[default]
    Standard,
    /// NXT_PACKET_IN.
    Nicira,
    /// NXT_PACKET_IN2.
    Nicira2,
}

/// The fields that a controller is told: port, tunnel, metadata, registers, those that are not zero.
#[must_use]
pub fn metadata(packet: &PacketIn) -> Match {
    let mut out = Match::ANY;
    out.put(Field::InPort, packet.flow.get(Field::InPort), Field::InPort.all_ones());
    let fields = [Field::Metadata, Field::TunId, Field::TunSrc, Field::TunDst, Field::PktMark];
    for field in fields.into_iter().chain((0..16).filter_map(Field::reg)) {
        let value = packet.flow.get(field);
        if value != 0 {
            out.put(field, value, field.all_ones());
        }
    }
    out
}

fn reason(reason: Reason, version: Version) -> u8 {
    match (reason, version) {
        (Reason::NoMatch, _) => 0,
        (Reason::Action, _) => 1,
        (Reason::InvalidTtl, _) => 2,
        // What later versions tell apart is an action in earlier ones.
        (_, Version::V10 | Version::V13) => 1,
        (Reason::ActionSet, _) => 3,
        (Reason::Group, _) => 4,
        (Reason::PacketOut, _) => 5,
    }
}

/// Writes a packet of which `octets` octets are sent.
pub fn put_in(out: &mut Vec<u8>, version: Version, form: Form, packet: &PacketIn, octets: usize) {
    let data = &packet.frame[..octets.min(packet.frame.len())];
    let total = low16(packet.frame.len());
    let why = reason(packet.reason, version);
    let fields = metadata(packet);
    match form {
        Form::Nicira2 => {
            let start = begin_experimenter(out, version, NICIRA, 30, 0);
            let mut property = |kind: u16, value: &[u8], octets: usize| {
                let start = out.len();
                out.u16(kind);
                out.u16(low16(octets + 4));
                out.extend_from_slice(value);
                out.align(start);
            };
            property(0, data, data.len());
            if data.len() != packet.frame.len() {
                property(1, &u32::from(total).to_be_bytes(), 4);
            }
            property(3, &[packet.table], 4);
            let mut cookie = [0; 12];
            cookie[4..].copy_from_slice(&packet.cookie.to_be_bytes());
            property(4, &cookie, 12);
            property(5, &[why], 4);
            let mut list = Vec::new();
            put_fields(&mut list, &fields, version);
            property(6, &list, list.len());
            if !packet.userdata.is_empty() {
                property(7, &packet.userdata, packet.userdata.len());
            }
            finish(out, start);
        }
        Form::Nicira => {
            let start = begin_experimenter(out, version, NICIRA, 17, 0);
            out.u32(NO_BUFFER);
            out.u16(total);
            out.u8(why);
            out.u8(packet.table);
            out.u64(packet.cookie);
            let length_at = out.len();
            out.zeros(8);
            let length = put_nxm(out, &fields, None);
            out.patch16(length_at, usize::from(length));
            out.zeros(2);
            out.extend_from_slice(data);
            finish(out, start);
        }
        Form::Standard => {
            let start = begin(out, version, 10, 0);
            out.u32(NO_BUFFER);
            out.u16(total);
            if version == Version::V10 {
                let in_port = u32::try_from(packet.flow.get(Field::InPort)).unwrap_or(port::ANY);
                out.u16(port_to_16(in_port));
                out.u8(why);
                out.u8(0);
            } else {
                out.u8(why);
                out.u8(packet.table);
                out.u64(packet.cookie);
                put_oxm(out, &fields, version);
                out.zeros(2);
            }
            out.extend_from_slice(data);
            finish(out, start);
        }
    }
}

/// Reads the body of OFPT_PACKET_OUT, with the buffer where one is named.
///
/// # Errors
/// OFPBAC_*, OFPBRC_BAD_PORT.
pub fn get_out(mut from: Reader<'_>, version: Version) -> Result<(PacketOut, Option<u32>), Error> {
    let buffer = from.u32()?;
    let mut fields = Match::ANY;
    let (in_port, actions_len);
    match version {
        Version::V10 => {
            in_port = port_from_16(from.u16()?);
            actions_len = usize::from(from.u16()?);
        }
        Version::V13 | Version::V14 => {
            in_port = from.u32()?;
            actions_len = usize::from(from.u16()?);
            from.skip(6)?;
        }
        Version::V15 => {
            actions_len = usize::from(from.u16()?);
            from.skip(2)?;
            fields = get_oxm(&mut from)?.matching;
            let wanted = fields.exact(Field::InPort).ok_or(Error::BadPort)?;
            in_port = u32::try_from(wanted).unwrap_or(port::ANY);
            // Only what is no part of the packet itself.
            if fields.mask.0[14..].iter().any(|word| *word != 0) {
                return Err(Error::PipelineFieldsOnly);
            }
        }
    }
    let allowed = matches!(in_port, 1..port::MAX | port::LOCAL | port::CONTROLLER | port::ANY);
    if !allowed {
        return Err(Error::BadPort);
    }
    let actions = get_actions(from.part(actions_len)?, version, &fields)?;
    let frame = from.data.to_vec();
    let buffer = (buffer != NO_BUFFER).then_some(buffer);
    Ok((PacketOut { in_port, metadata: fields, actions, frame }, buffer))
}
