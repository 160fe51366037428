//! Packets sorted by output port, in order of arrival.

use packet::PortId;
use port::{Batch, Packet};

use crate::state::Forwarding;

/// Outgoing batches, one for each existing port. Batches are allocated when the snapshot changes, never per
/// packet.
#[derive(Default)]
pub struct Outbox {
    batches: Vec<Option<Box<Batch>>>,
    /// Ports with waiting packets, in the order of their first packet.
    dirty: Vec<PortId>,
}

impl Outbox {
    /// Allocates a batch for each port of `forwarding`. The outbox must be empty.
    pub fn fit(&mut self, forwarding: &Forwarding) {
        self.batches.resize_with(forwarding.ports.len(), || None);
        for (batch, port) in self.batches.iter_mut().zip(&forwarding.ports) {
            match (&batch, port) {
                (None, Some(_)) => *batch = Some(Box::default()),
                (Some(_), None) => *batch = None,
                _ => {}
            }
        }
        self.dirty.reserve(self.batches.len());
    }

    /// Appends `packet` to the batch of `port`. If the batch is full, the caller transmits the batch first
    /// and tries again.
    ///
    /// # Errors
    /// [`Refused`] with the packet, if the port is unknown or its batch is full.
    #[inline]
    pub fn push(&mut self, port: PortId, packet: Packet) -> Result<(), Refused> {
        let Some(Some(batch)) = self.batches.get_mut(port.index()) else {
            return Err(Refused::NoPort(packet));
        };
        if batch.is_empty() {
            self.dirty.push(port);
        }
        batch.try_push(packet).map_err(|full| Refused::Full(full.element()))
    }

    /// Moves all of `packets` to `port` by exchanging the batches. Returns false without a change if packets
    /// already wait at the port or the port is unknown.
    #[inline]
    pub fn take_whole(&mut self, port: PortId, packets: &mut Box<Batch>) -> bool {
        match self.batches.get_mut(port.index()) {
            Some(Some(batch)) if batch.is_empty() => {
                std::mem::swap(batch, packets);
                self.dirty.push(port);
                true
            }
            _ => false,
        }
    }

    /// Returns the batch of a port.
    #[inline]
    pub fn batch(&mut self, port: PortId) -> Option<&mut Batch> {
        self.batches.get_mut(port.index())?.as_deref_mut()
    }

    /// Takes the next port with waiting packets off the list. The caller must empty the port's batch before
    /// pushing more packets.
    #[inline]
    pub fn next_port(&mut self) -> Option<PortId> {
        self.dirty.pop()
    }
}

/// Reason why [`Outbox::push`] returned a packet.
pub enum Refused {
    /// The port does not exist.
    NoPort(Packet),
    /// The port's batch is full.
    Full(Packet),
}
