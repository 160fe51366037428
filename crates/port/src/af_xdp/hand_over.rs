//! State of a bound AF_XDP socket for a successor process. The module `queue` exports and imports the state.
//!
//! The predecessor stops its worker between two bursts. The predecessor then passes the socket, the
//! geometry of the rings and the list of frames that the kernel holds. The successor maps the rings
//! again. The indices of the rings are in shared memory, so the successor continues with the next
//! entry, and the kernel is not involved. Frames that are neither in the kernel nor in a packet of
//! the predecessor are free ([`free_frames`]). Therefore no frame is lost, regardless of the pool
//! to which the frame belonged, and no frame is used twice.

use std::os::fd::OwnedFd;

use super::AfXdpConfig;
use super::owned::OwnedFrames;

/// State of one AF_XDP queue for a hand-over. The socket is passed as a file descriptor (`SCM_RIGHTS`), and
/// the other fields as plain data.
#[derive(Debug)]
pub struct AfXdpHandOver {
    /// AF_XDP socket of the queue.
    pub fd: OwnedFd,
    /// Configuration with which the predecessor opened the queue.
    pub config: AfXdpConfig,
    /// Interface index of the device, or 0 if the index is not known.
    pub ifindex: u32,
    /// Whether the socket is bound in zero-copy mode (true) or in copy mode (false).
    pub zero_copy: bool,
    /// Whether packets may span several frames (`XDP_USE_SG`).
    pub multi_buffer: bool,
    /// MTU of the device in bytes.
    pub mtu: u32,
    /// Reasons why the socket does not use a mode with better performance.
    pub reasons: Vec<String>,
    /// Indices of the frames that the kernel holds for this socket, in the socket's rings or internally.
    pub frames: Vec<u32>,
}

/// Returns the frames that are free after a hand-over. These are all frames of the memory that no
/// list in `taken` contains. The memory has `frames` frames. The successor passes the result to
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

/// Returns the number of list entries that repeat the frame of an earlier entry. In a valid hand-over, the number is 0,
/// because no frame is in two lists.
pub fn doubles<'a>(frames: u32, lists: impl IntoIterator<Item = &'a [u32]>) -> usize {
    let mut set = OwnedFrames::new(frames);
    lists.into_iter().flatten().filter(|frame| !set.insert(**frame)).count()
}
