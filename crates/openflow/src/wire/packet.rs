//! Encoding and decoding of packet-in, packet-out and resume messages.

use switch::flow::{
    Action, Continuation, Field, FlowMod, Instructions, Match, PacketIn, PacketOut, Reason, Rest, STAGES,
    port,
};

use super::action::get_actions;
use super::error::Error;
use super::matching::{fields as get_fields, get_oxm, put_fields, put_nxm, put_oxm};
use super::ofp::msg::OFPT_PACKET_IN;
use super::ofp::nx;
use super::ofp::switch::*;
use super::{
    HEADER, NICIRA, NO_BUFFER, Put, Reader, TooLong, Version, begin, begin_experimenter, finish, low16,
    port_from_16, port_to_16,
};

/// Type of the property that contains a continuation (the state of a paused packet) in the format of this program.
/// Open vSwitch does not use this type.
const CONTINUATION: u16 = 0x7401;

/// Cookie value that means no cookie. NXT_PACKET_IN2 then has no cookie property.
const NO_COOKIE: u64 = u64::MAX;

/// Format of packet-in messages, which NXT_SET_PACKET_IN_FORMAT selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// The standard packet-in message OFPT_PACKET_IN.
    #[default]
    Standard,
    /// Nicira's packet-in message NXT_PACKET_IN.
    Nicira,
    /// Nicira's packet-in message NXT_PACKET_IN2.
    Nicira2,
}

/// Returns the metadata fields of a packet-in as a match. The match contains the input port, and
/// each tunnel field, metadata field, packet mark and register that is not zero.
#[must_use]
pub fn metadata(packet: &PacketIn) -> Match {
    let mut out = Match::ANY;
    out.put(Field::InPort, packet.flow.get(Field::InPort), Field::InPort.all_ones());
    let tunnel = &Field::ALL[Field::TunId as usize..=Field::TunMetadata7 as usize];
    let fields = [Field::Metadata, Field::PktMark].into_iter().chain(tunnel.iter().copied());
    for field in fields.chain((0..16).filter_map(Field::reg)) {
        let value = packet.flow.get(field);
        if value != 0 {
            out.put(field, value, field.all_ones());
        }
    }
    out
}

fn reason(reason: Reason, version: Version) -> u8 {
    match (reason, version) {
        (Reason::NoMatch | Reason::Miss, _) => OFPR_NO_MATCH,
        // Before OpenFlow 1.3, a flow entry that matches everything is an ordinary flow entry.
        (Reason::MissRule, version) if version >= Version::V13 => OFPR_NO_MATCH,
        (Reason::MissRule | Reason::Action, _) => OFPR_ACTION,
        (Reason::InvalidTtl, _) => OFPR_INVALID_TTL,
        // Earlier versions use the reason "action" in place of the reasons of later versions.
        (_, Version::V10 | Version::V11 | Version::V12 | Version::V13) => OFPR_ACTION,
        (Reason::ActionSet, _) => OFPR_ACTION_SET,
        (Reason::Group, _) => OFPR_GROUP,
        (Reason::PacketOut, _) => OFPR_PACKET_OUT,
    }
}

/// Encodes a packet-in message. At most `octets` octets of the packet are included.
///
/// # Errors
/// Returns [`TooLong`] and encodes nothing if the message would be too long.
pub fn put_in(
    out: &mut Vec<u8>,
    version: Version,
    form: Form,
    packet: &PacketIn,
    octets: usize,
) -> Result<(), TooLong> {
    let data = &packet.frame[..octets.min(packet.frame.len())];
    let total = low16(packet.frame.len());
    let why = reason(packet.reason, version);
    let fields = metadata(packet);
    match form {
        Form::Nicira2 => {
            let start = begin_experimenter(out, version, NICIRA, nx::NXT_PACKET_IN2, 0);
            let mut property = |kind: u16, value: &[u8], octets: usize| {
                let start = out.len();
                out.u16(kind);
                out.u16(low16(octets + 4));
                out.extend_from_slice(value);
                out.align(start);
            };
            property(nx::NXPINT_PACKET, data, data.len());
            if data.len() != packet.frame.len() {
                property(nx::NXPINT_FULL_LEN, &u32::from(total).to_be_bytes(), 4);
            }
            property(nx::NXPINT_TABLE_ID, &[packet.table], 4);
            if packet.cookie != NO_COOKIE {
                let mut cookie = [0; 12];
                cookie[4..].copy_from_slice(&packet.cookie.to_be_bytes());
                property(nx::NXPINT_COOKIE, &cookie, 12);
            }
            property(nx::NXPINT_REASON, &[why], 4);
            let mut list = Vec::new();
            put_fields(&mut list, &fields, version);
            property(nx::NXPINT_METADATA, &list, list.len());
            if !packet.userdata.is_empty() {
                property(nx::NXPINT_USERDATA, &packet.userdata, packet.userdata.len());
            }
            if let Some(left) = &packet.continuation {
                let mut own = Vec::new();
                if let Err(error) = put_continuation(&mut own, left) {
                    out.truncate(start);
                    return Err(error);
                }
                property(nx::NXPINT_CONTINUATION, &own, own.len());
            }
            finish(out, start)
        }
        Form::Nicira => {
            let start = begin_experimenter(out, version, NICIRA, nx::NXT_PACKET_IN, 0);
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
            finish(out, start)
        }
        Form::Standard => {
            let start = begin(out, version, OFPT_PACKET_IN, 0);
            out.u32(NO_BUFFER);
            let in_port = u32::try_from(packet.flow.get(Field::InPort)).unwrap_or(port::ANY);
            match version {
                Version::V10 => {
                    out.u16(total);
                    out.u16(port_to_16(in_port));
                    out.u8(why);
                    out.u8(0);
                }
                Version::V11 => {
                    // The second port is the physical port, which is equal here.
                    out.u32(in_port);
                    out.u32(in_port);
                    out.u16(total);
                    out.u8(why);
                    out.u8(packet.table);
                }
                _ => {
                    out.u16(total);
                    out.u8(why);
                    out.u8(packet.table);
                    if version >= Version::V13 {
                        out.u64(packet.cookie);
                    }
                    put_oxm(out, &fields, version);
                    out.zeros(2);
                }
            }
            out.extend_from_slice(data);
            finish(out, start)
        }
    }
}

/// Decodes the body of OFPT_PACKET_OUT. The second value is the buffer ID, or `None` if the message specifies
/// no buffer.
///
/// # Errors
/// Returns OFPBAC_* errors and OFPBRC_BAD_PORT.
pub fn get_out(mut from: Reader<'_>, version: Version) -> Result<(PacketOut, Option<u32>), Error> {
    let buffer = from.u32()?;
    let mut fields = Match::ANY;
    let (in_port, actions_len);
    match version {
        Version::V10 => {
            in_port = port_from_16(from.u16()?);
            actions_len = usize::from(from.u16()?);
        }
        Version::V11 | Version::V12 | Version::V13 | Version::V14 => {
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
            // Only pipeline fields are permitted, and no fields of the packet itself.
            if fields.mask.0[STAGES[0]..].iter().any(|word| *word != 0) {
                return Err(Error::PipelineFieldsOnly);
            }
        }
    }
    let allowed = matches!(in_port, 0..port::MAX | port::LOCAL | port::CONTROLLER | port::ANY);
    if !allowed {
        return Err(Error::BadPort);
    }
    let actions = get_actions(from.part(actions_len)?, version, &fields)?;
    let frame = from.data.to_vec();
    let buffer = (buffer != NO_BUFFER).then_some(buffer);
    Ok((PacketOut { in_port, metadata: fields, actions, frame, resumes: None }, buffer))
}

/// Encodes a continuation: the state of a paused packet. The controller returns the continuation in NXT_RESUME, and the
/// bridge then continues the processing of the packet. The encoded continuation is the value of the property
/// NXPINT_CONTINUATION, after the four octets of the property header. The format is specific to this program. It
/// contains the stack, the queue, the action set, and the remaining instructions as flow-mods of OpenFlow 1.5.
///
/// # Errors
/// Returns [`TooLong`] if a part of the continuation is longer than a message may be.
fn put_continuation(out: &mut Vec<u8>, left: &Continuation) -> Result<(), TooLong> {
    let Continuation { rest, action_set, stack, queue, is_too_long: _ } = left;
    // The header of a nested property has four more octets. Open vSwitch's clients iterate over the nested
    // properties.
    out.zeros(4);
    let start = out.len();
    out.u16(CONTINUATION);
    out.zeros(2);
    out.u16(low16(stack.len()));
    for (value, bits) in stack {
        out.extend_from_slice(&value.to_be_bytes());
        out.u16(*bits);
    }
    out.align(start);
    let apply = queue.map(Action::SetQueue).into_iter().collect();
    let set = Instructions { apply, write: action_set.clone(), ..Instructions::default() };
    let set = Rest { table: 0, cookie: 0, matching: Match::ANY, instructions: set };
    for part in std::iter::once(&set).chain(rest) {
        let mut change = FlowMod::add(part.table, 0, part.matching, part.instructions.clone());
        change.cookie = Some(part.cookie);
        super::flow::put_mod(out, Version::V15, 0, &change)?;
    }
    // A packet-in with a continuation that is too long is not sent.
    out.patch16(start + 2, out.len() - start);
    Ok(())
}

/// Decodes a continuation that `put_continuation` has encoded.
///
/// # Errors
/// Returns OFPBPC_BAD_VALUE if the continuation has another format, and the errors of flow-mods.
fn get_continuation(mut from: Reader<'_>) -> Result<Continuation, Error> {
    from.skip(4)?;
    let whole = from.data.len();
    if from.u16()? != CONTINUATION || usize::from(from.u16()?) != whole {
        return Err(Error::PropertyValue);
    }
    let mut left = Continuation::default();
    for _ in 0..from.u16()? {
        let value = u128::from(from.u64()?) << 64 | u128::from(from.u64()?);
        left.stack.push((value, from.u16()?));
    }
    let taken = whole - from.data.len();
    from.skip((8 - taken % 8) % 8)?;
    let mut parts = Vec::new();
    while !from.is_empty() {
        let octets = super::Header::read(from.data).map_or(0, |head| usize::from(head.length));
        let mut message = from.part(octets)?;
        message.skip(HEADER)?;
        let change = super::flow::get_mod(message, Version::V15, false)?;
        parts.push(Rest {
            table: change.table,
            cookie: change.cookie.unwrap_or(0),
            matching: change.matching,
            instructions: change.instructions,
        });
    }
    let mut parts = parts.into_iter();
    let first = parts.next().ok_or(Error::PropertyValue)?.instructions;
    left.action_set = first.write;
    left.queue = first.apply.iter().find_map(|action| match action {
        Action::SetQueue(queue) => Some(*queue),
        _ => None,
    });
    left.rest = parts.collect();
    Ok(left)
}

/// Decodes the body of NXT_RESUME: the packet and its metadata, which the controller may have changed.
///
/// # Errors
/// Returns OFPBPC_* errors, OFPBRC_BAD_PORT, and the errors of fields and of the continuation.
pub fn get_resume(mut from: Reader<'_>) -> Result<PacketOut, Error> {
    let (mut frame, mut metadata, mut left) = (None, Match::ANY, None);
    while !from.is_empty() {
        let start = from.data.len();
        let (kind, octets) = (from.u16()?, usize::from(from.u16()?));
        let mut value = from.part(octets.checked_sub(4).ok_or(Error::PropertyLength)?)?;
        let padding = (8 - octets % 8) % 8;
        from.skip(padding.min(from.data.len()))?;
        debug_assert!(from.data.len() < start, "each property has a head");
        match kind {
            nx::NXPINT_PACKET => frame = Some(value.data.to_vec()),
            nx::NXPINT_METADATA => metadata = get_fields(value)?.matching,
            nx::NXPINT_CONTINUATION => {
                value.short = Error::PropertyLength;
                left = Some(get_continuation(value)?);
            }
            // These properties are ignored.
            nx::NXPINT_FULL_LEN
            | nx::NXPINT_TABLE_ID
            | nx::NXPINT_COOKIE
            | nx::NXPINT_REASON
            | nx::NXPINT_USERDATA => {}
            _ => return Err(Error::PropertyType),
        }
    }
    let (Some(frame), Some(left)) = (frame, left) else { return Err(Error::PropertyLength) };
    let in_port = metadata.exact(Field::InPort).ok_or(Error::BadPort)?;
    let in_port = u32::try_from(in_port).unwrap_or(port::ANY);
    // The fields of the packet itself are taken from the packet.
    metadata.value.0[STAGES[0]..].fill(0);
    metadata.mask.0[STAGES[0]..].fill(0);
    Ok(PacketOut { in_port, metadata, actions: Vec::new(), frame, resumes: Some(Box::new(left)) })
}

#[cfg(test)]
mod tests {
    use switch::flow::{Flow, SubField};

    use super::*;

    fn waiting() -> PacketIn {
        let write = vec![Action::Output { port: 4, max_len: 0 }];
        let apply = vec![
            Action::Set { field: Field::TcpDst, value: 80, mask: 0xffff, load: false },
            Action::Pop(SubField::whole(Field::Reg2)),
            Action::Resubmit { port: None, table: Some(9) },
        ];
        let matching = Match::ANY.with(Field::EthType, 0x0800).with(Field::IpProto, 6);
        let first = Instructions::apply(apply);
        let second = Instructions { metadata: Some((1, 3)), goto: Some(7), ..Instructions::default() };
        let rest = vec![
            Rest { table: 3, cookie: 0x1234, matching, instructions: first },
            Rest { table: 0, cookie: u64::MAX - 1, matching: Match::ANY, instructions: second },
        ];
        let left = Continuation {
            rest,
            action_set: write,
            stack: vec![(u128::MAX - 5, 128), (1, 1)],
            queue: Some(5),
            is_too_long: false,
        };
        let mut flow = Flow::ZERO;
        for (field, value) in [(Field::InPort, 7), (Field::Reg5, 55), (Field::Metadata, 9), (Field::TunId, 3)]
        {
            flow.set(field, value);
        }
        PacketIn {
            reason: Reason::Action,
            table: 3,
            cookie: 1,
            flow,
            frame: (0..61).collect(),
            max_len: u16::MAX,
            controller: 0,
            userdata: vec![1, 2, 3, 4, 5],
            continuation: Some(Box::new(left)),
        }
    }

    #[test]
    fn what_waits_comes_back_as_it_was_told() {
        let told = waiting();
        for version in Version::ALL {
            let mut message = Vec::new();
            put_in(&mut message, version, Form::Nicira2, &told, usize::MAX).unwrap();
            // Header, experimenter ID and subtype, as in NXT_RESUME.
            let body = Reader::new(&message[16..], Error::BadLength);
            let back = get_resume(body).unwrap();
            assert_eq!((back.in_port, &back.frame, &back.resumes), (7, &told.frame, &told.continuation));
            for field in [Field::InPort, Field::Reg5, Field::Metadata, Field::TunId] {
                assert_eq!(back.metadata.value.get(field), told.flow.get(field), "{field:?}");
            }
            // Truncated or modified messages are decoded or refused without harm.
            for end in 0..message.len() - 16 {
                let _ = get_resume(Reader::new(&message[16..16 + end], Error::BadLength));
            }
            for place in 16..message.len() {
                let mut other = message.clone();
                other[place] ^= 0xff;
                let _ = get_resume(Reader::new(&other[16..], Error::BadLength));
            }
        }
    }

    #[test]
    fn a_packet_that_waits_for_nothing_is_not_resumed() {
        let told = PacketIn { continuation: None, ..waiting() };
        let mut message = Vec::new();
        put_in(&mut message, Version::V13, Form::Nicira2, &told, usize::MAX).unwrap();
        let refused = get_resume(Reader::new(&message[16..], Error::BadLength));
        assert_eq!(refused.unwrap_err(), Error::PropertyLength);
    }
}
