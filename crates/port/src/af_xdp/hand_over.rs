//! Passing a bound socket to a successor process.
//!
//! The predecessor stops its worker between two bursts and gives away the descriptor with what cannot be read from it: the
//! geometry and the set of frames that the kernel has. The successor maps the same rings, whose indices stand in
//! shared memory, and goes on with the next entry; the kernel notices nothing. Frames that neither the kernel nor a
//! packet of the predecessor has are free ([`free_frames`]), so none leaks, whatever pool it lay in, and none has two owners.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::owned::OwnedFrames;
use super::{AfXdpCause, AfXdpConfig, AfXdpError, AfXdpQueue, socket};
use crate::memory::FrameMemory;

/// One queue on its way to another process. The descriptor travels as `SCM_RIGHTS`, the rest as plain data.
#[derive(Debug)]
pub struct AfXdpHandOver {
    /// The socket.
    pub fd: OwnedFd,
    /// How it was opened.
    pub config: AfXdpConfig,
    /// The device's number, 0 if it is not known.
    pub ifindex: u32,
    /// Whether it was bound in zero-copy mode.
    pub zero_copy: bool,
    /// Whether it was bound with several buffers a packet.
    pub multi_buffer: bool,
    /// The device's MTU.
    pub mtu: u32,
    /// Why a better mode was not had.
    pub reasons: Vec<String>,
    /// The frames that the kernel has, in its rings and inside itself.
    pub frames: Vec<u32>,
}

impl AfXdpQueue {
    /// Gives the socket away. Frames in its rings stay there: no pool gets them back in this process.
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
    /// [`AfXdpError`] when the rings cannot be mapped, or the frames are not of this memory.
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
        // The rings are the truth where they can be seen: a list that contradicts them is not of this socket.
        if queue.frames_in_rings().iter().any(|frame| !owned.contains(*frame)) {
            return Err(queue.config.error(AfXdpCause::HandOver("a frame in the rings is not on the list")));
        }
        queue.rings.owned = owned;
        Ok(queue)
    }
}

/// The frames of a memory of `frames` frames that stand in none of `taken`: the successor's
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

/// Returns how many entries of the lists name a frame that another entry names already. In a hand-over this is 0: each frame has one
/// owner.
pub fn doubles<'a>(frames: u32, lists: impl IntoIterator<Item = &'a [u32]>) -> usize {
    let mut set = OwnedFrames::new(frames);
    lists.into_iter().flatten().filter(|frame| !set.insert(**frame)).count()
}
