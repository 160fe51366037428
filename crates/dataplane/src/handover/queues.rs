//! Queues of ports in the hand-over state: export and import of each kind of queue.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use port::af_xdp::{AfXdpConfig, AfXdpHandOver, AfXdpQueue, BusyPoll, ZeroCopy};
use port::tap::{TapHandOver, TapQueue};
use port::{Exported, FrameMemory, FramePool, Queue};

use super::error::HandoverError;
use super::state::{BusyPollRecord, QueueKind, QueueRecord};
use crate::ports::Returned;

/// Converts a queue into hand-over state, and returns the descriptor to send with the state. A queue whose kind
/// cannot be handed over is closed.
pub fn export((worker, _, id, queue): Returned, pool: &mut FramePool) -> (QueueRecord, Option<OwnedFd>) {
    let (kind, descriptor) = match queue.export(pool) {
        Exported::AfXdp(AfXdpHandOver {
            fd,
            config,
            ifindex,
            zero_copy,
            multi_buffer,
            mtu,
            reasons,
            frames,
        }) => {
            let kind = QueueKind::AfXdp {
                ifname: config.ifname,
                ifindex,
                queue: config.queue,
                ring_size: config.ring_size,
                fill_level: config.fill_level,
                busy_poll: config.busy_poll.map(BusyPollRecord::from),
                complete_checksums: config.complete_checksums,
                zero_copy,
                multi_buffer,
                mtu,
                reasons,
                frames,
            };
            (kind, Some(fd))
        }
        Exported::Tap(TapHandOver { fd, kind, mtu, uso }) => {
            (QueueKind::Tap { internal: kind == "internal", mtu, uso }, Some(fd))
        }
        Exported::Closed => (QueueKind::OpenAgain, None),
    };
    (QueueRecord { id: id.0, worker: worker.0, kind }, descriptor)
}

/// Rebuilds a queue from its hand-over state and its descriptor.
///
/// # Errors
/// Returns an error if the queue cannot be resumed, and must be opened again.
pub fn import(
    kind: QueueKind,
    descriptor: Option<OwnedFd>,
    memory: &Arc<FrameMemory>,
) -> Result<Box<dyn Queue>, HandoverError> {
    match kind {
        QueueKind::Tap { .. } => Ok(Box::new(import_tap(kind, descriptor)?)),
        QueueKind::AfXdp {
            ifname,
            ifindex,
            queue,
            ring_size,
            fill_level,
            busy_poll,
            complete_checksums,
            zero_copy,
            multi_buffer,
            mtu,
            reasons,
            frames,
        } => {
            let config = AfXdpConfig {
                ring_size,
                fill_level,
                zero_copy: if zero_copy { ZeroCopy::Require } else { ZeroCopy::Auto },
                busy_poll: busy_poll.map(BusyPoll::from),
                multi_buffer,
                complete_checksums,
                ..AfXdpConfig::new(ifname, queue)
            };
            let fd = descriptor.ok_or_else(no_descriptor)?;
            let given = AfXdpHandOver { fd, config, ifindex, zero_copy, multi_buffer, mtu, reasons, frames };
            let resumed = AfXdpQueue::import(Arc::clone(memory), given);
            Ok(Box::new(resumed.map_err(|error| HandoverError::Own(error.to_string()))?))
        }
        QueueKind::OpenAgain => Err(HandoverError::Strange("a queue that must be opened again".to_owned())),
    }
}

/// Rebuilds the queue of a TAP from its hand-over state and its descriptor.
///
/// # Errors
/// Returns an error if the state does not describe a TAP queue.
pub fn import_tap(kind: QueueKind, descriptor: Option<OwnedFd>) -> Result<TapQueue, HandoverError> {
    let QueueKind::Tap { internal, mtu, uso } = kind else {
        return Err(HandoverError::Strange("a queue of no TAP".to_owned()));
    };
    let fd = descriptor.ok_or_else(no_descriptor)?;
    let kind = if internal { "internal" } else { "tap" };
    Ok(TapQueue::import(TapHandOver { fd, kind, mtu, uso }))
}

fn no_descriptor() -> HandoverError {
    HandoverError::Strange("a queue without its descriptor".to_owned())
}
