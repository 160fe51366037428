//! Decoding of actions and instructions.

use packet::ip_proto;
use switch::flow::{Action, CtNat, Field, Instructions, Match};

use super::DEPTH;
use super::conntrack::{ct, ct_head, nat};
use super::field::{copy_field, transport};
use super::forms::{exact_length, get_nicira, get_standard, nx};
use crate::wire::error::Error;
use crate::wire::ofp::action::*;
use crate::wire::ofp::instruction::*;
use crate::wire::{NICIRA, ONF, Reader, Version, get_port};

/// State of decoding a list of OpenFlow actions.
struct Reading<'m> {
    pub version: Version,
    /// Match of the flow entry. The match determines which field the OpenFlow 1.0 actions for transport ports set.
    pub matching: &'m Match,
    pub depth: usize,
    /// Value and mask from NXAST_WRITE_METADATA, which represents an instruction and not an action.
    pub metadata: Option<(u64, u64)>,
    /// Whether the list is inside of NXAST_CT.
    pub is_in_ct: bool,
    /// NXAST_NAT inside of NXAST_CT.
    pub nat: Option<CtNat>,
}

impl<'m> Reading<'m> {
    fn new(version: Version, matching: &'m Match) -> Reading<'m> {
        Reading { version, matching, depth: 0, metadata: None, is_in_ct: false, nat: None }
    }
}

/// Decodes a list of OpenFlow actions. The list must extend to the end of the reader.
///
/// # Errors
/// Returns OFPBAC_* errors.
pub fn get_actions(from: Reader<'_>, version: Version, matching: &Match) -> Result<Vec<Action>, Error> {
    let mut reading = Reading::new(version, matching);
    let actions = reading.list(from)?;
    if reading.metadata.is_some() { Err(Error::InstructionUnsupported) } else { Ok(actions) }
}

/// Decodes the actions of a flow entry in a format without instructions. OpenFlow 1.0 and Nicira's
/// messages use this format.
///
/// # Errors
/// Returns OFPBAC_* errors.
pub fn get_plain(from: Reader<'_>, version: Version, matching: &Match) -> Result<Instructions, Error> {
    let mut reading = Reading::new(version, matching);
    let apply = reading.list(from)?;
    Ok(Instructions { apply, metadata: reading.metadata, ..Instructions::default() })
}

/// Decodes a list of OpenFlow instructions. The list must extend to the end of the reader.
///
/// # Errors
/// Returns OFPBIC_* and OFPBAC_* errors.
pub fn get_instructions(from: Reader<'_>, version: Version, matching: &Match) -> Result<Instructions, Error> {
    let mut from = Reader { short: Error::InstructionLength, ..from };
    let mut out = Instructions::default();
    let mut seen = 0_u8;
    while !from.is_empty() {
        let kind = from.u16()?;
        let length = usize::from(from.u16()?);
        if length < 8 || !length.is_multiple_of(8) {
            return Err(Error::InstructionLength);
        }
        let mut body = from.part(length - 4)?;
        let last = if version < Version::V13 { OFPIT_CLEAR_ACTIONS } else { OFPIT_METER };
        if !(OFPIT_GOTO_TABLE..=last).contains(&kind) {
            return Err(if kind == OFPIT_EXPERIMENTER {
                Error::InstructionExperimenter
            } else {
                Error::InstructionUnknown
            });
        }
        if seen & 1 << kind != 0 {
            return Err(Error::InstructionTwice);
        }
        seen |= 1 << kind;
        let exact = |octets| if length == octets { Ok(()) } else { Err(Error::InstructionLength) };
        match kind {
            OFPIT_GOTO_TABLE => {
                exact(8)?;
                out.goto = Some(body.u8()?);
            }
            OFPIT_WRITE_METADATA => {
                exact(24)?;
                body.skip(4)?;
                let (value, mask) = (body.u64()?, body.u64()?);
                out.metadata = Some((value & mask, mask));
            }
            OFPIT_WRITE_ACTIONS | OFPIT_APPLY_ACTIONS => {
                body.skip(4)?;
                let body = Reader::new(body.data, Error::ActionLength);
                let actions = get_actions(body, version, matching)?;
                if kind == OFPIT_WRITE_ACTIONS {
                    out.write = actions;
                } else {
                    out.apply = actions;
                }
            }
            OFPIT_CLEAR_ACTIONS => {
                exact(8)?;
                out.clear = true;
            }
            _ => {
                exact(8)?;
                out.meter = Some(body.u32()?);
            }
        }
    }
    Ok(out)
}

impl Reading<'_> {
    fn list(&mut self, from: Reader<'_>) -> Result<Vec<Action>, Error> {
        if self.depth >= DEPTH {
            return Err(Error::ActionTooMany);
        }
        self.depth += 1;
        let mut from = Reader::new(from.data, Error::ActionLength);
        let mut out = Vec::new();
        while !from.is_empty() {
            let kind = from.u16()?;
            let length = usize::from(from.u16()?);
            if length < 8 || !length.is_multiple_of(8) {
                return Err(Error::ActionLength);
            }
            let body = from.part(length - 4)?;
            if kind == OFPAT_EXPERIMENTER {
                self.experimenter(body, &mut out)?;
            } else if self.version == Version::V10 {
                self.plain(kind, body, &mut out)?;
            } else {
                out.push(self.standard(kind, body)?);
            }
        }
        self.depth -= 1;
        Ok(out)
    }

    fn experimenter(&mut self, mut body: Reader<'_>, out: &mut Vec<Action>) -> Result<(), Error> {
        let (who, subtype) = (body.u32()?, body.u16()?);
        match who {
            NICIRA if subtype == nx::WRITE_METADATA => self.write_metadata(body),
            NICIRA => {
                out.push(match subtype {
                    nx::NAT => return self.nat(&mut body),
                    nx::CT => self.ct(body)?,
                    nx::CLONE => {
                        body.skip(6)?;
                        Action::Clone(self.list(body)?)
                    }
                    _ => get_nicira(subtype, body)?,
                });
                Ok(())
            }
            ONF if subtype == nx::ONF_COPY_FIELD => {
                body.skip(2)?;
                let (bits, from_bit, to_bit) = (body.u16()?, body.u16()?, body.u16()?);
                body.skip(2)?;
                out.push(copy_field(body, bits, from_bit, to_bit)?);
                Ok(())
            }
            ONF => Err(Error::ActionExperimenterType),
            _ => Err(Error::ActionExperimenter),
        }
    }

    /// Decodes NXAST_CT with its nested actions. The action is refused inside of another NXAST_CT.
    fn ct(&mut self, mut body: Reader<'_>) -> Result<Action, Error> {
        if self.is_in_ct {
            return Err(Error::ActionArgument);
        }
        let head = ct_head(&mut body)?;
        self.is_in_ct = true;
        let exec = self.list(body)?;
        self.is_in_ct = false;
        ct(head, self.nat.take(), exec)
    }

    /// Decodes NXAST_NAT, which is not an action of its own but an argument of NXAST_CT.
    fn nat(&mut self, body: &mut Reader<'_>) -> Result<(), Error> {
        let nat = nat(body)?;
        if !self.is_in_ct {
            return Err(Error::ActionSetArgument);
        }
        if self.nat.replace(nat).is_some() {
            return Err(Error::ActionArgument);
        }
        Ok(())
    }

    /// Decodes NXAST_WRITE_METADATA. The action is refused if it is in a nested list of actions, or
    /// if it occurs more than once.
    fn write_metadata(&mut self, mut body: Reader<'_>) -> Result<(), Error> {
        body.skip(6)?;
        let (value, mask) = (body.u64()?, body.u64()?);
        if self.depth > 1 || self.metadata.is_some() {
            return Err(Error::ActionOrder);
        }
        self.metadata = Some((value & mask, mask));
        Ok(())
    }

    /// Decodes an action of OpenFlow 1.0.
    fn plain(&self, kind: u16, mut body: Reader<'_>, out: &mut Vec<Action>) -> Result<(), Error> {
        let octets = body.data.len() + 4;
        let exact = match kind {
            ofp10::OFPAT_SET_DL_SRC | ofp10::OFPAT_SET_DL_DST | ofp10::OFPAT_ENQUEUE => 16,
            _ => 8,
        };
        if octets != exact {
            return Err(if kind <= ofp10::OFPAT_ENQUEUE { Error::ActionLength } else { Error::ActionType });
        }
        let whole =
            |field: Field, value: u128| Action::Set { field, value, mask: field.all_ones(), load: false };
        out.push(match kind {
            ofp10::OFPAT_OUTPUT => {
                Action::Output { port: get_port(&mut body, Version::V10)?, max_len: body.u16()? }
            }
            ofp10::OFPAT_SET_VLAN_VID => match body.u16()? {
                vid if vid < 0x1000 => Action::SetVlanVid(vid),
                _ => return Err(Error::ActionArgument),
            },
            ofp10::OFPAT_SET_VLAN_PCP => match body.u8()? {
                pcp if pcp < 8 => Action::SetVlanPcp(pcp),
                _ => return Err(Error::ActionArgument),
            },
            ofp10::OFPAT_STRIP_VLAN => Action::PopVlan,
            ofp10::OFPAT_SET_DL_SRC | ofp10::OFPAT_SET_DL_DST => {
                let address = body.take(6)?.iter().fold(0, |value, byte| value << 8 | u128::from(*byte));
                let field = if kind == ofp10::OFPAT_SET_DL_SRC { Field::EthSrc } else { Field::EthDst };
                whole(field, address)
            }
            ofp10::OFPAT_SET_NW_SRC => whole(Field::Ipv4Src, u128::from(body.u32()?)),
            ofp10::OFPAT_SET_NW_DST => whole(Field::Ipv4Dst, u128::from(body.u32()?)),
            ofp10::OFPAT_SET_NW_TOS => match body.u8()? {
                tos if tos & 3 == 0 => whole(Field::IpDscp, u128::from(tos >> 2)),
                _ => return Err(Error::ActionArgument),
            },
            ofp10::OFPAT_SET_TP_SRC | ofp10::OFPAT_SET_TP_DST => {
                let is_destination = kind == ofp10::OFPAT_SET_TP_DST;
                let port = body.u16()?;
                let value = u128::from(port);
                if self.matching.exact(Field::IpProto).is_none() {
                    // The protocol depends on the packet. Of the three actions, only the one for the packet's
                    // protocol has an effect.
                    out.extend(transport(is_destination).into_iter().map(|field| whole(field, value)));
                    return Ok(());
                }
                self.set_transport_port(is_destination, port)
            }
            ofp10::OFPAT_ENQUEUE => {
                let port = get_port(&mut body, Version::V10)?;
                body.skip(6)?;
                Action::Enqueue { port, queue: body.u32()? }
            }
            _ => return Err(Error::ActionType),
        });
        Ok(())
    }

    /// Returns the action that sets the source or destination port of the transport protocol that the match specifies.
    /// If the match specifies no transport protocol, the action sets the TCP port.
    fn set_transport_port(&self, destination: bool, port: u16) -> Action {
        let [tcp, udp, sctp] = transport(destination);
        let proto = self.matching.exact(Field::IpProto);
        let field = match proto.and_then(|proto| u8::try_from(proto).ok()) {
            Some(ip_proto::UDP) => udp,
            Some(ip_proto::SCTP) => sctp,
            _ => tcp,
        };
        Action::Set { field, value: u128::from(port), mask: field.all_ones(), load: false }
    }

    /// Decodes an OpenFlow 1.1 action that sets one field. Later versions replace these actions with set-field. Like in
    /// Open vSwitch, the OpenFlow 1.1 actions are accepted in all later versions.
    fn set_11(&self, kind: u16, mut body: Reader<'_>) -> Result<Action, Error> {
        let (field, value, most) = match kind {
            // Unlike in OpenFlow 1.0, a packet without a tag stays untagged.
            ofp11::OFPAT_SET_VLAN_VID => (Field::VlanVid, u128::from(body.u16()?) | 0x1000, 0x1fff),
            ofp11::OFPAT_SET_VLAN_PCP => (Field::VlanPcp, u128::from(body.u8()?), 7),
            ofp11::OFPAT_SET_DL_SRC | ofp11::OFPAT_SET_DL_DST => {
                let address = body.take(6)?.iter().fold(0, |value, byte| value << 8 | u128::from(*byte));
                let field = if kind == ofp11::OFPAT_SET_DL_SRC { Field::EthSrc } else { Field::EthDst };
                (field, address, u128::MAX)
            }
            ofp11::OFPAT_SET_NW_SRC => (Field::Ipv4Src, u128::from(body.u32()?), u128::MAX),
            ofp11::OFPAT_SET_NW_DST => (Field::Ipv4Dst, u128::from(body.u32()?), u128::MAX),
            ofp11::OFPAT_SET_NW_TOS => match body.u8()? {
                tos if tos & 3 == 0 => (Field::IpDscp, u128::from(tos >> 2), u128::MAX),
                _ => return Err(Error::ActionArgument),
            },
            ofp11::OFPAT_SET_NW_ECN => (Field::IpEcn, u128::from(body.u8()?), 3),
            ofp11::OFPAT_SET_TP_SRC | ofp11::OFPAT_SET_TP_DST => {
                return Ok(self.set_transport_port(kind == ofp11::OFPAT_SET_TP_DST, body.u16()?));
            }
            ofp11::OFPAT_SET_MPLS_LABEL => (Field::MplsLabel, u128::from(body.u32()?), 0xf_ffff),
            _ => (Field::MplsTc, u128::from(body.u8()?), 7),
        };
        if value > most {
            return Err(Error::ActionArgument);
        }
        Ok(Action::Set { field, value, mask: field.all_ones(), load: false })
    }

    /// Decodes a standard action of OpenFlow 1.1 or later.
    fn standard(&self, kind: u16, body: Reader<'_>) -> Result<Action, Error> {
        let exact = exact_length(kind, self.version)?;
        if exact.is_some_and(|exact| body.data.len() + 4 != exact) {
            return Err(Error::ActionLength);
        }
        match kind {
            ofp11::OFPAT_SET_VLAN_VID..=ofp11::OFPAT_SET_TP_DST
            | ofp11::OFPAT_SET_MPLS_LABEL
            | ofp11::OFPAT_SET_MPLS_TC => self.set_11(kind, body),
            _ => get_standard(kind, self.version, body),
        }
    }
}
