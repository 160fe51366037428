//! Packets sorted by the port that they leave by, in the order in which they came.

use packet::PortId;
use port::{Batch, Packet};

use crate::state::Forwarding;

/// One batch per port that exists; places are made when the snapshot changes, never on a packet's path.
#[derive(Default)]
pub struct Outbox {
    batches: Vec<Option<Box<Batch>>>,
    /// Ports with packets waiting, in the order in which they got their first.
    dirty: Vec<PortId>,
}

impl Outbox {
    /// Makes a place for each port of `forwarding`. Call only when the outbox is empty.
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

    /// Puts `packet` behind the others for `port`. `Err` gives it back: `Full` asks for a transmit first.
    ///
    /// # Errors
    /// The packet, and whether the port is unknown or its batch full.
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

    /// Takes all of `packets` for `port` by exchanging the batches; false, changing nothing, when packets wait there already or the port
    /// is unknown.
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

    /// The batch of a port.
    #[inline]
    pub fn batch(&mut self, port: PortId) -> Option<&mut Batch> {
        self.batches.get_mut(port.index())?.as_deref_mut()
    }

    /// Takes the next port that has packets waiting off the list; they must be taken out before more is pushed.
    #[inline]
    pub fn next_port(&mut self) -> Option<PortId> {
        self.dirty.pop()
    }
}

/// Why [`Outbox::push`] gave a packet back.
pub enum Refused {
    /// No such port.
    NoPort(Packet),
    /// The port's batch is full.
    Full(Packet),
}
