//! Hand-over state together with the file descriptors to send, and with the resources that must be kept until the
//! successor runs.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use model::Config;
use xdp::IngressGuard;
use xdp::user::UserProgram;

use super::descriptors::{Descriptors, PortDescriptors};
use super::error::HandoverError;
use super::state::{HandoverState, PortRecord, QueueKind};
use crate::guards::guards;
use crate::pins::Claim;

/// Hand-over state together with its file descriptors.
#[derive(Debug, Default)]
pub struct HandoverBundle {
    /// Message that describes the hand-over state.
    pub state: HandoverState,
    /// File descriptors of the hand-over state. A port that has no descriptors in this field must be
    /// opened again.
    pub descriptors: Descriptors,
    /// Custom programs that run before the hooks' own programs. They are kept until the rebuilt hooks hold
    /// references to the programs' kernel objects.
    pub users: Vec<UserProgram>,
    /// Locks on the pins of the ports' hooks, by port name. The bundle keeps the locks until this process or
    /// the successor holds its own locks, so that no third process regards a pin as unused.
    pub claims: BTreeMap<String, Claim>,
    /// File descriptors of ports that this process must open again after a failed hand-over. The ports' hooks stay
    /// attached until these descriptors are closed.
    pub unusable: BTreeMap<String, PortDescriptors>,
    /// Guards (programs that drop all frames that a device passes to the kernel) of the ports that wait to be opened,
    /// and of the ports that the successor opens again ([`HandoverBundle::release`]). If the successor ends, its hooks
    /// and guards may be detached, and this process opens the ports again.
    pub guards: Vec<IngressGuard>,
}

impl HandoverBundle {
    /// Creates the bundle from a message and file descriptors that a predecessor has sent.
    ///
    /// # Errors
    /// Returns an error if the message and the descriptors do not agree.
    pub fn received(
        state: HandoverState,
        descriptors: Vec<OwnedFd>,
    ) -> Result<HandoverBundle, HandoverError> {
        let descriptors = Descriptors::assign(&state, descriptors)?;
        Ok(HandoverBundle { state, descriptors, ..HandoverBundle::default() })
    }

    /// Closes the descriptors of the named ports, which must then be opened again. The kernel releases the ports'
    /// queues only when the successor has also closed its descriptors of these ports. Before the descriptors are
    /// closed, a guard (a program that drops all frames that a device passes to the kernel) is attached to the device
    /// of each port whose hook has a filter.
    pub fn release(&mut self, ports: &[String], config: &Config) {
        let known = |name: &String| self.state.ports.get(name).and_then(|port| port.ifindex);
        self.guards.extend(guards(ports.iter().map(|name| (name.as_str(), known(name))), config));
        for name in ports {
            self.descriptors.ports.remove(name);
            // The process that opens the port again must find it unclaimed.
            self.claims.remove(name);
        }
    }

    /// Marks the descriptors of all ports with AF_XDP sockets as unusable. The successor may have used the rings of
    /// these sockets before it ended, so this process does not know the content of the rings.
    pub fn mark_sockets_unusable(&mut self) {
        let has_sockets =
            |port: &PortRecord| port.queues.iter().any(|queue| matches!(queue.kind, QueueKind::AfXdp { .. }));
        for (name, _) in self.state.ports.iter().filter(|(_, port)| has_sockets(port)) {
            let descriptors = self.descriptors.ports.remove(name);
            self.unusable.extend(descriptors.map(|own| (name.clone(), own)));
            self.claims.remove(name);
        }
    }
}
