//! The number of VLAN tags that flow entries can match: two, or one (Open vSwitch's `vlan-limit`). Additional tags
//! count as payload. If a packet has additional tags, its EtherType is the TPID of the first additional tag.

use packet::ethertype::{SERVICE_VLAN as SERVICE, VLAN as CUSTOMER};
use packet::{DropReason, FlowKey, PortId};

use super::pipeline::{Pipeline, Touched};
use super::{ExtendedKey, Flow};

/// Converts the flow key of a packet with two VLAN tags for a switch that matches only the outer tag. In the result,
/// the second tag counts as payload. Returns `None` for packets with fewer tags, whose key does not change.
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
    /// Sets whether flow entries match only the outer tag of a packet instead of two tags.
    pub fn set_one_tag(&mut self, one_tag: bool) {
        if self.one_tag != one_tag {
            self.one_tag = one_tag;
            self.touch(Touched::All);
        }
    }

    /// Extracts all match fields of a frame that arrived on the OpenFlow port `in_port`.
    ///
    /// # Errors
    /// Returns the drop reason if the frame is malformed.
    pub fn read(&self, frame: &[u8], in_port: u32) -> Result<Flow, DropReason> {
        let mut key = FlowKey::ZERO;
        let layers = FlowKey::extract(frame, frame.len(), PortId(0), &mut key)?;
        let key = if self.one_tag { one_tag(&key).unwrap_or(key) } else { key };
        Ok(Flow::new(&key, &ExtendedKey::extract(frame, &key, &layers), in_port))
    }

    /// Extracts all match fields of the packet in a packet-out, with the metadata that the controller specified.
    ///
    /// # Errors
    /// Returns the drop reason if the frame is malformed.
    pub fn read_packet_out(&self, packet: &super::PacketOut) -> Result<Flow, DropReason> {
        let mut flow = self.read(&packet.frame, packet.in_port)?;
        let fields = packet.metadata.mask.0.into_iter().zip(packet.metadata.value.0);
        for (own, (mask, value)) in flow.0.iter_mut().zip(fields) {
            *own = *own & !mask | value;
        }
        Ok(flow)
    }
}
