//! Configuration of a session's asynchronous messages, such as packet-ins, which the bridge sends
//! without a request. The configuration consists of the kinds and reasons of messages that the
//! session reports.

use crate::wire::error::Error;
use crate::wire::ofp::flow::*;
use crate::wire::ofp::switch::*;
use crate::wire::ofp::table as ofptr;
use crate::wire::{Reader, Version};

pub(super) const PACKETS: usize = 0;
pub(super) const PORTS: usize = 1;
pub(super) const REMOVED: usize = 2;
pub(super) const ROLES: usize = 3;
/// Number of kinds of asynchronous messages: packet-in, port status, flow removed, role status, table status,
/// and request forward.
pub(super) const KINDS: usize = 6;
pub(super) const TABLES: usize = 4;
pub(super) const REQUESTS: usize = 5;

/// Returns a bit mask of reason codes in which the bits from 0 to `last` are set.
pub(super) const fn up_to(last: u8) -> u32 {
    u32::MAX >> (31 - last)
}

/// Bit mask of the reasons of packet-ins that OpenFlow 1.4 added.
const PACKETS_14: u32 = 1 << OFPR_ACTION_SET | 1 << OFPR_GROUP | 1 << OFPR_PACKET_OUT;
/// Bit mask of the reasons of table status messages.
pub(super) const TABLE_REASONS: u32 = 1 << ofptr::OFPTR_VACANCY_DOWN | 1 << ofptr::OFPTR_VACANCY_UP;

/// Configuration of asynchronous messages. Each kind of message has two bit masks of the reasons
/// that are reported. The first mask applies while the controller's role is master or equal, and
/// the second mask applies while the role is slave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Async(pub(super) [[u32; 2]; KINDS]);

impl Async {
    /// Returns the default configuration of an OpenFlow version (OpenFlow 1.5.1 section 6.1.1). In versions before
    /// 1.4, the packet-in reason "action" includes the reasons that OpenFlow 1.4 added.
    pub fn standard(version: Version) -> Async {
        let mut wanted = [[0; 2]; KINDS];
        wanted[PACKETS] = [up_to(OFPR_PACKET_OUT) & !(1 << OFPR_INVALID_TTL), 0];
        wanted[PORTS] = [up_to(OFPPR_MODIFY); 2];
        wanted[REMOVED] = [
            match version {
                Version::V10 => up_to(OFPRR_DELETE),
                Version::V11 | Version::V12 | Version::V13 => up_to(OFPRR_GROUP_DELETE),
                Version::V14 | Version::V15 => up_to(OFPRR_EVICTION),
            },
            0,
        ];
        if version >= Version::V14 {
            wanted[ROLES] = [up_to(OFPCRR_EXPERIMENTER); 2];
        }
        Async(wanted)
    }

    /// Decodes NXT_SET_ASYNC_CONFIG, and OFPT_SET_ASYNC of OpenFlow 1.3.
    pub fn get_legacy(mut body: Reader<'_>) -> Result<Async, Error> {
        let mut wanted = [[0; 2]; KINDS];
        for kind in [PACKETS, PORTS, REMOVED] {
            for mask in &mut wanted[kind] {
                *mask = body.u32()?;
                if kind == PACKETS && *mask & 1 << OFPR_ACTION != 0 {
                    *mask |= PACKETS_14;
                }
            }
        }
        Ok(Async(wanted))
    }

    pub fn wants(&self, kind: usize, slave: bool, reason: u8) -> bool {
        self.0[kind][usize::from(slave)] & 1 << reason != 0
    }
}
