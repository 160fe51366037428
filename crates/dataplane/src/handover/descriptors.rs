//! File descriptors of the hand-over state. Only this module states which descriptors are sent, and in which order.
//!
//! | part of [`HandoverState`] | descriptors |
//! |---|---|
//! | each port, by name | a set for its hook, if any ([`HookDescriptors`]), and one for each queue with a descriptor |
//! | each mirror device (`vlans`), by name | one for its queue, if the queue has a descriptor |
//! | each known device queue (`places`), in order | one for the network namespace |

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use xdp::HookDescriptors;

use super::error::HandoverError;
use super::state::{HandoverState, PortRecord};

/// File descriptors of the hand-over state, with the names of the objects to which the descriptors belong.
#[derive(Debug, Default)]
pub struct Descriptors {
    /// Descriptors of each port, by port name. A port without an entry must be opened again.
    pub ports: BTreeMap<String, PortDescriptors>,
    /// Descriptors of the queues of mirror devices, by the name of the device.
    pub mirrors: BTreeMap<String, OwnedFd>,
    /// Descriptors of the network namespaces of the device queues in `HandoverState::places`, in the same order. `None`
    /// for an unknown queue.
    pub places: Vec<Option<OwnedFd>>,
}

/// File descriptors of one port.
#[derive(Debug, Default)]
pub struct PortDescriptors {
    /// Descriptors of the port's hook. `None` if the port has no hook.
    pub hook: Option<HookDescriptors>,
    /// Descriptor of each queue, in the order of `PortRecord::queues`. `None` for a queue without a descriptor.
    pub queues: Vec<Option<OwnedFd>>,
}

impl Descriptors {
    /// Returns the descriptors in the order in which they are sent.
    pub fn in_order(&self) -> Vec<BorrowedFd<'_>> {
        let mut all = Vec::new();
        for PortDescriptors { hook, queues } in self.ports.values() {
            all.extend(hook.iter().flat_map(HookDescriptors::as_array));
            all.extend(queues.iter().flatten().map(AsFd::as_fd));
        }
        all.extend(self.mirrors.values().map(AsFd::as_fd));
        all.extend(self.places.iter().flatten().map(AsFd::as_fd));
        all
    }

    /// Assigns received descriptors to the objects of `state`.
    ///
    /// # Errors
    /// Returns an error if `received` does not contain exactly the descriptors that `state` refers to. With a
    /// different number, the order may differ too, and descriptors would be assigned to the wrong objects.
    pub fn assign(state: &HandoverState, received: Vec<OwnedFd>) -> Result<Descriptors, HandoverError> {
        let count = received.len();
        let wrong =
            || HandoverError::Strange(format!("a state that does not agree with {count} descriptors"));
        let mut received = received.into_iter();
        let mut own = Descriptors::default();
        for (name, port) in &state.ports {
            let hook = match &port.hook {
                Some(_) => Some(hook(&mut received).ok_or_else(wrong)?),
                None => None,
            };
            let mut queues = Vec::with_capacity(port.queues.len());
            for queue in &port.queues {
                queues.push(match queue.kind.has_descriptor() {
                    true => Some(received.next().ok_or_else(wrong)?),
                    false => None,
                });
            }
            own.ports.insert(name.clone(), PortDescriptors { hook, queues });
        }
        for (name, _) in state.vlans.iter().filter(|(_, mirror)| mirror.queue.kind.has_descriptor()) {
            own.mirrors.insert(name.clone(), received.next().ok_or_else(wrong)?);
        }
        for place in &state.places {
            own.places.push(match place {
                Some(_) => Some(received.next().ok_or_else(wrong)?),
                None => None,
            });
        }
        if received.next().is_some() { Err(wrong()) } else { Ok(own) }
    }
}

/// Takes the descriptors of a hook from the received descriptors. Returns `None` if too few
/// descriptors are left.
fn hook(received: &mut impl Iterator<Item = OwnedFd>) -> Option<HookDescriptors> {
    let own: Vec<OwnedFd> = received.take(HookDescriptors::COUNT).collect();
    own.try_into().ok().map(HookDescriptors::from_array)
}

/// Returns whether descriptors are sent for a port (for its hook or its queues).
pub fn has_descriptors(port: &PortRecord) -> bool {
    port.hook.is_some() || port.queues.iter().any(|queue| queue.kind.has_descriptor())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::handover::state::{HookRecord, PlaceRecord, QueueKind, QueueRecord, VlanRecord};

    fn file() -> OwnedFd {
        File::open("/dev/null").unwrap().into()
    }

    fn queue(kind: QueueKind) -> QueueRecord {
        QueueRecord { id: 0, worker: 0, kind }
    }

    fn tap() -> QueueKind {
        QueueKind::Tap { internal: false, mtu: 1500, uso: false }
    }

    /// Returns the state of a port with a hook and two queues, a port with a TAP queue, two mirror devices, and two
    /// device queues in `places`. The first queue must be opened again.
    fn state() -> HandoverState {
        let port = |hook, queues| {
            let text = r#"{"id": 1, "ifindex": null, "hook": null, "queues": [], "complete_checksums": false, "mtu": 1500, "spread": null}"#;
            PortRecord { hook, queues, ..serde_json::from_str(text).unwrap() }
        };
        let hook = Some(HookRecord { pin: None });
        let ports = [
            ("a".to_owned(), port(hook, vec![queue(QueueKind::OpenAgain), queue(tap())])),
            ("b".to_owned(), port(None, vec![queue(tap())])),
        ];
        let mirror = |id| VlanRecord { id, queue: queue(tap()) };
        HandoverState {
            ports: ports.into(),
            vlans: [("r/h1.9".to_owned(), mirror(7)), ("r/h1.10".to_owned(), mirror(8))].into(),
            places: vec![None, Some(PlaceRecord { namespace: 1, ifindex: 2, queue: 3 })],
            ..HandoverState::default()
        }
    }

    #[test]
    fn each_object_gets_its_own_descriptors() {
        let received: Vec<OwnedFd> = (0..HookDescriptors::COUNT + 5).map(|_| file()).collect();
        let numbers: Vec<i32> = received.iter().map(AsRawFd::as_raw_fd).collect();
        let own = Descriptors::assign(&state(), received).unwrap();
        let sent: Vec<i32> = own.in_order().iter().map(AsRawFd::as_raw_fd).collect();
        assert_eq!(sent, numbers, "the order of sending is the order of receiving");
        let number = |descriptor: &Option<OwnedFd>| descriptor.as_ref().map(AsRawFd::as_raw_fd);
        let hook = own.ports["a"].hook.as_ref().unwrap();
        assert_eq!((hook.link.as_raw_fd(), hook.counters.as_raw_fd()), (numbers[0], numbers[4]));
        assert_eq!(own.ports["a"].queues.iter().map(number).collect::<Vec<_>>(), [None, Some(numbers[5])]);
        assert_eq!(number(&own.ports["b"].queues[0]), Some(numbers[6]));
        // Mirror devices are ordered by name, whatever the order in which the engine returned the queues.
        assert_eq!(own.mirrors["r/h1.10"].as_raw_fd(), numbers[7]);
        assert_eq!(own.mirrors["r/h1.9"].as_raw_fd(), numbers[8]);
        assert_eq!(own.places.iter().map(number).collect::<Vec<_>>(), [None, Some(numbers[9])]);
    }

    #[test]
    fn a_state_with_another_number_of_descriptors_is_refused_as_a_whole() {
        let needed = HookDescriptors::COUNT + 5;
        for count in (0..needed).chain(needed + 1..needed + 3) {
            let received = (0..count).map(|_| file()).collect();
            assert!(matches!(Descriptors::assign(&state(), received), Err(HandoverError::Strange(_))));
        }
    }
}
