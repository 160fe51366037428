//! Hand-over of a bound AF_XDP socket to a successor process.
//!
//! The predecessor stops its worker between two bursts. The predecessor then passes the socket, the geometry of
//! the rings and the list of frames that the kernel holds. The successor maps the rings again. The indices of
//! the rings are in shared memory, so the successor continues with the next entry, and the kernel is not
//! involved. Frames that are neither in the kernel nor in a packet of the predecessor are free
//! ([`free_frames`]). Therefore no frame is lost, whatever pool it belonged to, and no frame is used twice.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::owned::OwnedFrames;
use super::{AfXdpCause, AfXdpConfig, AfXdpError, AfXdpQueue, socket};
use crate::memory::FrameMemory;

/// State of one AF_XDP queue for a hand-over. The socket is passed as a file descriptor (`SCM_RIGHTS`), and
/// the other fields as plain data.
#[derive(Debug)]
pub struct AfXdpHandOver {
    /// AF_XDP socket of the queue.
    pub fd: OwnedFd,
    /// Configuration with which the predecessor opened the queue.
    pub config: AfXdpConfig,
    /// Interface index of the device, or 0 if it is not known.
    pub ifindex: u32,
    /// Whether the socket is bound in zero-copy mode (true) or in copy mode (false).
    pub zero_copy: bool,
    /// Whether packets may span several frames (`XDP_USE_SG`).
    pub multi_buffer: bool,
    /// MTU of the device in bytes.
    pub mtu: u32,
    /// Reasons for which the socket is not in a mode with better performance.
    pub reasons: Vec<String>,
    /// Indices of the frames that the kernel holds for this socket, in the socket's rings or internally.
    pub frames: Vec<u32>,
}

impl AfXdpQueue {
    /// Converts the queue into its hand-over state. Frames in the rings stay there, and are not returned to a
    /// pool of this process.
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

    /// Resumes a queue that a predecessor has handed over. `memory` must be the predecessor's frame memory,
    /// mapped with [`FrameMemory::from_fd`].
    ///
    /// # Errors
    /// [`AfXdpError`] if the rings cannot be mapped, or if the handed-over frames are not part of `memory`.
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

/// Returns the free frames after a hand-over, which are the frames that none of the lists in `taken`
/// contains. The frame memory has `frames` frames. The successor passes the result to
/// [`crate::Depot::with_free`].
pub fn free_frames<'a>(frames: u32, taken: impl IntoIterator<Item = &'a [u32]>) -> impl Iterator<Item = u32> {
    let mut set = OwnedFrames::new(frames);
    for list in taken {
        for frame in list {
            set.insert(*frame);
        }
    }
    (0..frames).filter(move |frame| !set.contains(*frame))
}

/// Returns the number of list entries whose frame an earlier entry already contains. In a valid hand-over, the number
/// is 0, because no frame is in two lists.
pub fn doubles<'a>(frames: u32, lists: impl IntoIterator<Item = &'a [u32]>) -> usize {
    let mut set = OwnedFrames::new(frames);
    lists.into_iter().flatten().filter(|frame| !set.insert(**frame)).count()
}
