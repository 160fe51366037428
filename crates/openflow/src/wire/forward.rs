//! Copies of other controllers' group and meter requests. The format is OFPT_REQUESTFORWARD (OpenFlow 1.4 and
//! later), the ONF extension for 1.3, and NXT_REQUESTFORWARD of Open vSwitch for earlier versions.

use switch::flow::ForwardedRequest;

use super::{NICIRA, ONF, Version, begin, begin_experimenter, finish, group, meter};

/// Returns the reason code of a forwarded request (OFPRFR_*).
#[must_use]
pub(crate) fn reason(request: &ForwardedRequest) -> u8 {
    match request {
        ForwardedRequest::Group { .. } => 0,
        ForwardedRequest::Meter(_) => 1,
    }
}

/// Encodes a forwarded request with its original transaction ID. Nothing is encoded if the version has no
/// message for the request, or if the request does not fit into a message.
pub(crate) fn put(out: &mut Vec<u8>, version: Version, xid: u32, request: &ForwardedRequest) {
    let start = match version {
        Version::V10 | Version::V11 | Version::V12 => begin_experimenter(out, version, NICIRA, 132, 0),
        Version::V13 => begin_experimenter(out, version, ONF, 2350, 0),
        Version::V14 | Version::V15 => begin(out, version, 32, 0),
    };
    let inner = out.len();
    let is_written = match request {
        ForwardedRequest::Group { change, existed, after } => {
            match version {
                Version::V10 => begin_experimenter(out, version, NICIRA, 31, xid),
                _ => begin(out, version, 15, xid),
            };
            group::put_request(out, version, change, *existed, after.as_ref())
        }
        ForwardedRequest::Meter(change) => {
            begin(out, version, 29, xid);
            meter::put_request(out, change);
            version >= Version::V13
        }
    };
    if !is_written || out.len() - start > usize::from(u16::MAX) {
        out.truncate(start);
        return;
    }
    finish(out, inner);
    finish(out, start);
}
