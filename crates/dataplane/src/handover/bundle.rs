//! Hand-over state together with what is handed over beside it: file descriptors, and what must be kept until the
//! successor runs.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use xdp::user::UserProgram;

use super::state::{HandoverState, PortRecord, QueueKind};
use crate::pins::Claim;

/// Hand-over state together with its file descriptors.
#[derive(Debug, Default)]
pub struct HandoverBundle {
    /// Message that describes the hand-over state.
    pub state: HandoverState,
    /// File descriptors, in the order in which the message refers to them. The descriptors of ports in
    /// `released` are closed.
    pub descriptors: Vec<Option<OwnedFd>>,
    /// Custom programs that run before the hooks' own programs. They are kept until the rebuilt hooks hold
    /// references to the programs' kernel objects.
    pub users: Vec<UserProgram>,
    /// Locks on the pins of the ports' hooks, by port name. They are kept until this process or the successor
    /// has locks of its own. Therefore, no third process can find a pin unused.
    pub claims: BTreeMap<String, Claim>,
    /// Names of the ports that cannot be resumed from their descriptors and must be opened again.
    pub released: BTreeSet<String>,
}

impl HandoverBundle {
    /// Creates the bundle from a message and file descriptors that a predecessor has sent.
    pub fn received(state: HandoverState, descriptors: Vec<OwnedFd>) -> HandoverBundle {
        HandoverBundle {
            state,
            descriptors: descriptors.into_iter().map(Some).collect(),
            ..HandoverBundle::default()
        }
    }

    /// Closes the descriptors of the named ports, which must then be opened again. The kernel releases the
    /// ports' queues when the successor has closed its descriptors, too.
    pub fn release(&mut self, ports: &[String]) {
        let mut at = 0;
        for (name, port) in &self.state.ports {
            let share = HandoverState::share(port);
            if ports.contains(name) {
                self.descriptors
                    .iter_mut()
                    .skip(at)
                    .take(share)
                    .for_each(|descriptor| drop(descriptor.take()));
                // The process that opens the port again must find it unclaimed.
                self.claims.remove(name);
                self.released.insert(name.clone());
            }
            at += share;
        }
    }

    /// Closes the descriptors of all ports with AF_XDP sockets. The successor that has ended may have used the
    /// rings of these sockets, so the content of the rings is unknown to this process.
    pub fn release_sockets(&mut self) {
        let has_sockets =
            |port: &PortRecord| port.queues.iter().any(|queue| matches!(queue.kind, QueueKind::AfXdp { .. }));
        let ports = self.state.ports.iter().filter(|(_, port)| has_sockets(port));
        let ports: Vec<String> = ports.map(|(name, _)| name.clone()).collect();
        self.release(&ports);
    }
}
