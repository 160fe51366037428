//! Hand-over of a bound socket to a successor process.
//!
//! The predecessor stops its worker between two bursts and passes the descriptor, the ring geometry and the
//! set of frames that the kernel holds. The successor maps the same rings, whose indices are in shared
//! memory, and continues with the next entry. The kernel is not involved. All frames that neither the kernel
//! nor a packet of the predecessor holds are free ([`free_frames`]). No frame is therefore lost, regardless
//! of its pool, and no frame has two owners.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::owned::OwnedFrames;
use super::{AfXdpCause, AfXdpConfig, AfXdpError, AfXdpQueue, socket};
use crate::memory::FrameMemory;

/// State of one queue for a hand-over. The descriptor is passed by `SCM_RIGHTS`, and the rest as plain data.
#[derive(Debug)]
pub struct AfXdpHandOver {
    /// The socket.
    pub fd: OwnedFd,
    /// Configuration with which the queue was opened.
    pub config: AfXdpConfig,
    /// Interface index of the device, or 0 if not known.
    pub ifindex: u32,
    /// Whether the socket is bound in zero-copy mode.
    pub zero_copy: bool,
    /// Whether the socket is bound in multi-buffer mode.
    pub multi_buffer: bool,
    /// MTU of the device in bytes.
    pub mtu: u32,
    /// Reasons why a better mode is not in use.
    pub reasons: Vec<String>,
    /// Indices of the frames that the kernel holds, in the socket's rings and internally.
    pub frames: Vec<u32>,
}

impl AfXdpQueue {
    /// Converts the queue into hand-over state. Frames in its rings stay there, and no pool of this process
    /// receives them.
    #[must_use]
    pub fn hand_over(self) -> AfXdpHandOver {
        AfXdpHandOver {
            frames: self.rings.owned.iter().collect(),
            fd: self.fd,
            config: self.config,
            ifindex: self.ifindex,
            zero_copy: self.zero_copy,
            multi_buffer: self.multi_buffer,
            mtu: self.mtu,
            reasons: self.reasons,
        }
    }

    /// Resumes a queue that a predecessor handed over. `memory` is the same memfd, mapped with
    /// [`FrameMemory::from_fd`].
    ///
    /// # Errors
    /// [`AfXdpError`] when the rings cannot be mapped, or the frames do not belong to this memory.
    pub fn from_hand_over(memory: Arc<FrameMemory>, from: AfXdpHandOver) -> Result<Self, AfXdpError> {
        from.config.check(&memory)?;
        if from.frames.iter().any(|frame| *frame >= memory.frames()) {
            return Err(from.config.error(AfXdpCause::HandOver("a frame lies outside of it")));
        }
        let AfXdpHandOver { fd, config, ifindex, zero_copy, multi_buffer, mtu, reasons, frames } = from;
        let bound = socket::Bound { fd, zero_copy, multi_buffer, reasons };
        let mut queue = Self::assemble(config, memory, bound, mtu)?;
        queue.ifindex = ifindex;
        let mut owned = OwnedFrames::new(queue.memory.frames());
        for frame in frames {
            owned.insert(frame);
        }
        // The visible ring entries are authoritative. A list that contradicts them belongs to another socket.
        if queue.frames_in_rings().iter().any(|frame| !owned.contains(*frame)) {
            return Err(queue.config.error(AfXdpCause::HandOver("a frame in the rings is not on the list")));
        }
        queue.rings.owned = owned;
        Ok(queue)
    }
}

/// Returns the frames of a memory of `frames` frames that none of the lists in `taken` contains. The
/// successor passes them to [`crate::Depot::with_free`].
pub fn free_frames<'a>(frames: u32, taken: impl IntoIterator<Item = &'a [u32]>) -> impl Iterator<Item = u32> {
    let mut set = OwnedFrames::new(frames);
    for list in taken {
        for frame in list {
            set.insert(*frame);
        }
    }
    (0..frames).filter(move |frame| !set.contains(*frame))
}

/// Returns the number of list entries that name a frame which another entry already names. In a valid
/// hand-over the number is 0, because each frame has one owner.
pub fn doubles<'a>(frames: u32, lists: impl IntoIterator<Item = &'a [u32]>) -> usize {
    let mut set = OwnedFrames::new(frames);
    lists.into_iter().flatten().filter(|frame| !set.insert(**frame)).count()
}
