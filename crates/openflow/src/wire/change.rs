//! Decoding of changes: requests that modify flow entries, groups or meters.

use switch::flow::Mod;

use super::error::Error;
use super::ofp::{msg, nx};
use super::{NICIRA, Reader, Version, flow, group, meter};

/// Length in octets from which a received flow-mod is checked against the maximum message length in all OpenFlow
/// versions. A shorter flow-mod fits into a message of any version, because the lengths of its shortest encodings in
/// two versions differ by at most a factor of eight.
const LONG: usize = 8 * 1024;

/// Decodes a change of flow entries, groups or meters. `kind` is the message type. Returns `None`
/// if the message is not such a change.
pub(crate) fn get_mod(
    kind: u8,
    body: Reader<'_>,
    version: Version,
    table_ids: bool,
) -> Result<Option<Mod>, Error> {
    let octets = body.data.len();
    let change = match (kind, version) {
        (msg::OFPT_FLOW_MOD, _) => Mod::Flow(Box::new(flow::get_mod(body, version, table_ids)?)),
        (msg::OFPT_GROUP_MOD, _) if version > Version::V10 => Mod::Group(group::get_mod(body, version)?),
        (msg::OFPT_METER_MOD, _) if version >= Version::V13 => Mod::Meter(meter::get_mod(body)?),
        (msg::OFPT_EXPERIMENTER, _) => {
            let mut body = body;
            if body.u32()? != NICIRA {
                return Ok(None);
            }
            match (body.u32()?, version) {
                (nx::NXT_FLOW_MOD, _) => Mod::Flow(Box::new(flow::get_mod_nx(body, version, table_ids)?)),
                (nx::NXT_GROUP_MOD, Version::V10) => Mod::Group(group::get_mod(body, version)?),
                _ => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    match &change {
        Mod::Flow(change) if octets >= LONG && !flow::fits_all_versions(change) => Err(Error::ActionTooMany),
        _ => Ok(Some(change)),
    }
}
