//! Device queues to which a successor that has ended may have passed frames. This process does not know these frames:
//! the successor took them from its own list of free frames.
//!
//! Closing a zero-copy socket only schedules its release ([`port::quarantine`]). Until the release, the driver may
//! write to the frames of the socket. Therefore, this process waits until the kernel has released the queues before it
//! creates its own list of free frames. In copy mode, the kernel does not write to the frames of a closed socket.
//!
//! A successor opens queues only for the ports that it had to open again ([`HandoverBundle::release`]), and uses queues
//! of the other ports only after it has confirmed the commit ([`HandoverBundle::mark_sockets_unusable`]).

use std::time::{Duration, Instant};

use model::{Config, PortName, ZeroCopy};
use port::Place;
use port::link::{self, LinkInfo};

use super::HandoverError;
use super::bundle::HandoverBundle;
use super::descriptors::has_descriptors;
use super::import::place_of;
use super::state::QueueKind;
use crate::af_xdp;
use crate::device::{inside, object};

/// Interval at which a queue is checked.
const PAUSE: Duration = Duration::from_millis(2);

/// A queue of a port's device.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DeviceQueue {
    /// Name of the port.
    pub port: PortName,
    /// Interface index of the device in the network namespace of the port.
    pub ifindex: u32,
    /// Index of the queue on the device.
    pub queue: u32,
}

/// Returns the device queues to which the ended successor may have passed frames that the driver may still use. The
/// function `current_queues` returns the interface index and the queue indices with which the successor can have opened
/// a port again.
pub fn successor_queues(
    held: &HandoverBundle,
    config: &Config,
    current_queues: impl Fn(&PortName) -> Option<(u32, Vec<u16>)>,
) -> Vec<DeviceQueue> {
    let mut found = Vec::new();
    for (name, record) in &held.state.ports {
        let Ok(port) = name.parse::<PortName>() else { continue };
        let options = config.ports.get(&port).and_then(|port| port.kind.xdp());
        let is_used = held.unusable.contains_key(name);
        let is_released = has_descriptors(record) && !held.descriptors.ports.contains_key(name);
        let Some(options) = options.filter(|_| is_used || is_released) else { continue };
        let may_be_zero_copy = |was_zero_copy: bool| match is_used {
            true => was_zero_copy,
            false => was_zero_copy || options.zero_copy != ZeroCopy::Off,
        };
        for queue in &record.queues {
            if let QueueKind::AfXdp { zero_copy, ifindex, queue, .. } = queue.kind
                && may_be_zero_copy(zero_copy)
            {
                found.push(DeviceQueue { port: port.clone(), ifindex, queue });
            }
        }
        // The device may have been created again, or may have other queues now.
        if !is_used
            && may_be_zero_copy(false)
            && let Some((ifindex, queues)) = current_queues(&port)
        {
            let queue = |queue| DeviceQueue { port: port.clone(), ifindex, queue: u32::from(queue) };
            found.extend(queues.into_iter().map(queue));
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Returns the interface index and the queue indices with which a port is opened now. Returns `None` if the port has no
/// device.
pub fn current_queues(config: &Config, name: &PortName) -> Option<(u32, Vec<u16>)> {
    let kind = &config.ports.get(name)?.kind;
    let ((device, namespace), options) = (kind.device()?, kind.xdp()?);
    let found = inside(&object(name), namespace, || {
        let queues = |info: &LinkInfo| af_xdp::queue_indices(&options.queues, af_xdp::device_queues(info));
        Ok(link::find(device.as_str()).ok().map(|info| (info.ifindex, queues(&info))))
    });
    found.ok().flatten()
}

/// Waits until the kernel has released the queues, at most for the time `limit`. All sockets of the queues must be
/// closed in this process. A queue that cannot be checked counts as released after this time.
///
/// # Errors
/// Returns an error if the kernel has not released a queue in time.
pub fn await_release(
    queues: Vec<DeviceQueue>,
    config: &Config,
    limit: Duration,
) -> Result<(), HandoverError> {
    let place = |at: DeviceQueue| (place_of(config, &at.port, at.ifindex, at.queue), at);
    let mut places: Vec<(Option<Place>, DeviceQueue)> = queues.into_iter().map(place).collect();
    let is_free = |(place, _): &(Option<Place>, DeviceQueue)| place.as_ref().and_then(Place::is_free);
    match await_free(&mut places, limit, is_free) {
        None => Ok(()),
        Some((_, DeviceQueue { port, queue, .. })) => Err(HandoverError::Own(format!(
            "the kernel has not released queue {queue} of port {port} {limit:?} after the successor ended, and the driver may \
             still write to frames of the queue"
        ))),
    }
}

/// Waits until `is_free` is `Some(true)` for all `queues`, at most for the time `limit`. Then returns a queue that is
/// not free, if any.
fn await_free<Q>(queues: &mut Vec<Q>, limit: Duration, is_free: impl Fn(&Q) -> Option<bool>) -> Option<Q> {
    let deadline = Instant::now() + limit;
    loop {
        queues.retain(|queue| is_free(queue) != Some(true));
        if queues.is_empty() {
            return None;
        }
        if Instant::now() >= deadline {
            return queues.extract_if(.., |queue| is_free(queue) == Some(false)).next();
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::handover::descriptors::PortDescriptors;
    use crate::handover::state::PortRecord;

    /// Returns hand-over state with an AF_XDP port for each name. The queue of a port has the port's number as its
    /// interface index, and is bound in zero-copy mode if the name begins with `z`.
    fn held(ports: &[&str]) -> (HandoverBundle, Config) {
        let mut held = HandoverBundle::default();
        let mut text = String::new();
        for (number, name) in ports.iter().enumerate() {
            let record = format!(
                r#"{{"id": {number}, "ifindex": {number}, "hook": null, "complete_checksums": true, "mtu": 1500, "spread": null,
                "queues": [{{"id": 0, "worker": 0, "kind": {{"AfXdp": {{
                    "ifname": "e", "ifindex": {number}, "queue": 5, "ring_size": 2048, "fill_level": 1024, "busy_poll": null,
                    "complete_checksums": true, "zero_copy": {}, "multi_buffer": true, "mtu": 1500, "reasons": [],
                    "frames": [{number}]
                }}}}}}]}}"#,
                name.starts_with('z')
            );
            let record: PortRecord = serde_json::from_str(&record).unwrap();
            held.state.ports.insert((*name).to_owned(), record);
            let own = PortDescriptors { hook: None, queues: Vec::new() };
            held.descriptors.ports.insert((*name).to_owned(), own);
            text += &format!("[port.{name}]\nkind = \"af_xdp\"\ndevice = \"{name}\"\n");
            if name.ends_with("copy") {
                text += "zero_copy = \"off\"\n";
            }
        }
        (held, model::load(&text, "test.toml").unwrap())
    }

    fn found(held: &HandoverBundle, config: &Config) -> Vec<(String, u32, u32)> {
        let current_queues = |_: &PortName| Some((70, vec![0, 1]));
        let queues = successor_queues(held, config, current_queues).into_iter();
        queues.map(|at| (at.port.to_string(), at.ifindex, at.queue)).collect()
    }

    #[test]
    fn a_successor_that_ended_before_the_commit_has_used_only_queues_that_it_opened() {
        let (mut held, config) = held(&["zero", "usual", "usual-copy"]);
        assert_eq!(found(&held, &config), [], "the successor has opened no queue");
        held.release(&["zero".to_owned(), "usual-copy".to_owned()], &Config::default());
        // The successor may have opened the port on a device that was created again.
        let zero = |ifindex, queue| ("zero".to_owned(), ifindex, queue);
        assert_eq!(found(&held, &config), [zero(0, 5), zero(70, 0), zero(70, 1)]);
        held.release(&["usual".to_owned()], &Config::default());
        let usual = |ifindex, queue| ("usual".to_owned(), ifindex, queue);
        let all = [usual(1, 5), usual(70, 0), usual(70, 1), zero(0, 5), zero(70, 0), zero(70, 1)];
        assert_eq!(found(&held, &config), all, "the new socket may use zero-copy mode");
    }

    #[test]
    fn a_successor_that_ended_after_the_commit_has_used_all_queues() {
        let (mut held, config) = held(&["zero", "usual", "zero-copy", "released"]);
        held.release(&["released".to_owned()], &Config::default());
        held.mark_sockets_unusable();
        let queues = found(&held, &config);
        let ports: Vec<&str> = queues.iter().map(|(port, ..)| port.as_str()).collect();
        assert_eq!(ports, ["released", "released", "released", "zero", "zero-copy"]);
    }

    #[test]
    fn a_queue_is_awaited_until_it_is_free() {
        let asked = Cell::new(0);
        let free_at = |at: u32| {
            move |asked: &Cell<u32>| {
                asked.set(asked.get() + 1);
                Some(asked.get() > at)
            }
        };
        let third = free_at(3);
        assert_eq!(await_free(&mut vec!["a"], Duration::from_secs(60), |_| third(&asked)), None);
        assert_eq!(asked.get(), 4);
        // A queue that stays busy is returned after the time limit.
        let busy = |queue: &&str| Some(*queue != "busy");
        assert_eq!(await_free(&mut vec!["a", "busy"], Duration::ZERO, busy), Some("busy"));
        // A queue that cannot be checked counts as free after the time limit.
        assert_eq!(await_free(&mut vec!["unknown"], Duration::from_millis(5), |_| None), None);
        assert_eq!(await_free(&mut Vec::<&str>::new(), Duration::from_secs(60), |_| None), None);
    }
}
