//! How many VLAN tags rules see: two, or one (Open vSwitch's `vlan-limit`). Behind the last one all is payload, and its EtherType is that of
//! the next tag.

use packet::{DropReason, FlowKey, PortId};

use super::pipeline::{Pipeline, Touched};
use super::{Beyond, Flow};

/// EtherTypes of tags (IEEE 802.1Q, table 8-1).
const CUSTOMER: u16 = 0x8100;
const SERVICE: u16 = 0x88a8;

/// The key of a packet with two tags whose second one is payload; `None` for other packets, whose key stays as it is.
#[must_use]
#[inline]
pub fn one_tag(key: &FlowKey) -> Option<FlowKey> {
    (key.inner_tci() != 0).then(|| without_inner(key))
}

#[cold]
fn without_inner(key: &FlowKey) -> FlowKey {
    let mut own = FlowKey::ZERO;
    own.set_in_port(key.in_port());
    own.set_eth_dst(key.eth_dst());
    own.set_eth_src(key.eth_src());
    own.set_outer_tag(Some(key.outer_tci()), key.outer_is_service_tag());
    own.set_eth_type(if key.inner_is_service_tag() { SERVICE } else { CUSTOMER });
    own
}

impl Pipeline {
    /// Says whether rules see one tag of a packet instead of two.
    pub fn set_one_tag(&mut self, one_tag: bool) {
        if self.one_tag != one_tag {
            self.one_tag = one_tag;
            self.touch(Touched::All);
        }
    }

    /// Reads a frame that came in by a port (OpenFlow's number), as rules see it.
    ///
    /// # Errors
    /// What is wrong with the frame.
    pub fn read(&self, frame: &[u8], in_port: u32) -> Result<Flow, DropReason> {
        let mut key = FlowKey::ZERO;
        let layers = FlowKey::extract(frame, frame.len(), PortId(0), &mut key)?;
        let key = if self.one_tag { one_tag(&key).unwrap_or(key) } else { key };
        Ok(Flow::new(&key, &Beyond::extract(frame, &key, &layers), in_port))
    }

    /// Reads a controller's packet, as rules see it, with the fields that the controller gives it.
    ///
    /// # Errors
    /// What is wrong with the frame.
    pub fn read_packet_out(&self, packet: &super::PacketOut) -> Result<Flow, DropReason> {
        let mut flow = self.read(&packet.frame, packet.in_port)?;
        let fields = packet.metadata.mask.0.into_iter().zip(packet.metadata.value.0);
        for (own, (mask, value)) in flow.0.iter_mut().zip(fields) {
            *own = *own & !mask | value;
        }
        Ok(flow)
    }
}
