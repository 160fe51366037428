//! Copies of other controllers' group and meter requests. The format is OFPT_REQUESTFORWARD (OpenFlow 1.4 and
//! later), the ONF extension for 1.3, and NXT_REQUESTFORWARD of Open vSwitch for earlier versions.

use switch::flow::ForwardedRequest;

use super::ofp::switch::{OFPRFR_GROUP_MOD, OFPRFR_METER_MOD};
use super::ofp::{msg, nx, onf};
use super::{NICIRA, ONF, TooLong, Version, begin, begin_experimenter, finish, group, meter};

/// Returns the reason code of a forwarded request (OFPRFR_*).
#[must_use]
pub(crate) fn reason(request: &ForwardedRequest) -> u8 {
    match request {
        ForwardedRequest::Group { .. } => OFPRFR_GROUP_MOD,
        ForwardedRequest::Meter(_) => OFPRFR_METER_MOD,
    }
}

/// Encodes a forwarded request with its original transaction ID. The function encodes nothing if
/// the OpenFlow version has no message for the request.
///
/// # Errors
/// Returns [`TooLong`] and encodes nothing if the request does not fit into a message.
pub(crate) fn put(
    out: &mut Vec<u8>,
    version: Version,
    xid: u32,
    request: &ForwardedRequest,
) -> Result<(), TooLong> {
    let start = match version {
        Version::V10 | Version::V11 | Version::V12 => {
            begin_experimenter(out, version, NICIRA, nx::NXT_REQUESTFORWARD, 0)
        }
        Version::V13 => begin_experimenter(out, version, ONF, onf::ONFT_REQUESTFORWARD, 0),
        Version::V14 | Version::V15 => begin(out, version, msg::OFPT_REQUESTFORWARD, 0),
    };
    let inner = out.len();
    let is_written = match request {
        ForwardedRequest::Group { change, existed, after } => {
            match version {
                Version::V10 => begin_experimenter(out, version, NICIRA, nx::NXT_GROUP_MOD, xid),
                _ => begin(out, version, msg::OFPT_GROUP_MOD, xid),
            };
            group::put_request(out, version, change, *existed, after.as_ref())
        }
        ForwardedRequest::Meter(change) => {
            begin(out, version, msg::OFPT_METER_MOD, xid);
            meter::put_request(out, change);
            version >= Version::V13
        }
    };
    if !is_written {
        out.truncate(start);
        return Ok(());
    }
    if let Err(error) = finish(out, inner) {
        out.truncate(start);
        return Err(error);
    }
    finish(out, start)
}
