//! Packets to transmit, sorted by output port. The packets of each port are in the order of arrival.

use packet::PortId;
use port::{Batch, Packet};

use crate::state::Forwarding;

/// Batches of packets to transmit, one for each existing port. The batches are allocated when the snapshot
/// changes, and never while packets are processed.
#[derive(Default)]
pub struct Outbox {
    batches: Vec<Option<Box<Batch>>>,
    /// Ports whose batch contains packets, in the order in which the batches got their first packet.
    dirty: Vec<PortId>,
}

impl Outbox {
    /// Allocates a batch for each port of `forwarding`. The outbox must contain no packets.
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

    /// Appends `packet` to the batch of `port`. If the batch is full, the caller must transmit the batch and
    /// then call this function again.
    ///
    /// # Errors
    /// [`Refused`] with the packet if the port does not exist or its batch is full.
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

    /// Moves all of `packets` to the batch of `port` by exchanging the two batches. Returns false and changes
    /// nothing if the batch of the port contains packets or the port does not exist.
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

    /// Returns the batch of `port`, or `None` if the port does not exist.
    #[inline]
    pub fn batch(&mut self, port: PortId) -> Option<&mut Batch> {
        self.batches.get_mut(port.index())?.as_deref_mut()
    }

    /// Returns whether the outbox contains packets to transmit through patch ports.
    #[must_use]
    pub fn has_patched(&self, forwarding: &Forwarding) -> bool {
        let is_patch = |port: &PortId| forwarding.port(*port).is_some_and(|view| view.patch.is_some());
        self.dirty.iter().any(is_patch)
    }

    /// Removes and returns the first port of the list of ports whose batch contains packets. The caller must empty the
    /// port's batch before it appends more packets.
    #[inline]
    pub fn next_port(&mut self) -> Option<PortId> {
        self.dirty.pop()
    }
}

/// Error of [`Outbox::push`], which returns the packet that was not accepted.
pub enum Refused {
    /// The port does not exist.
    NoPort(Packet),
    /// The port's batch is full.
    Full(Packet),
}
