//! Types of the hand-over's messages, except for the hand-over state. The types hold no file descriptors. The
//! descriptors are sent with the message as ancillary data, in the order in which the message refers to them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// First message of the predecessor. It contains all that the successor needs to prepare the take-over. These file
/// descriptors are sent with the message, in this order: the frame memory, the API's unix socket, the API's TCP socket
/// if any, and the other unix sockets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// Version of the format of the hand-over messages.
    pub version: u32,
    /// Part of the configuration that comes from the configuration file, as TOML.
    pub file: String,
    /// Configuration objects that were created through the API, in the form in which the daemon stores them.
    pub api: String,
    /// Configuration objects that an OVSDB server has created, in the form in which the daemon stores them.
    #[serde(default)]
    pub ovsdb: String,
    /// Frame memory of the predecessor.
    pub memory: MemoryRecord,
    /// Whether the API's listening TCP socket is among the file descriptors of the message.
    pub tcp: bool,
    /// Paths of the other listening unix sockets among the file descriptors of the message.
    #[serde(default)]
    pub sockets: Vec<PathBuf>,
    /// Settings of the configuration section `[memory]` with which the predecessor's frame memory was created,
    /// as TOML. Different settings in the current configuration take effect only at a restart.
    #[serde(default)]
    pub made_by: String,
    /// Whether the predecessor sends [`Order`]s after the hand-over state. A predecessor that sends no orders expects
    /// that the successor starts its workers and then answers the hand-over state with [`Reply::Ready`].
    #[serde(default)]
    pub commit: bool,
}

/// Number, size and page kind of the frames in the frame memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryRecord {
    /// Number of packet frames in the frame memory.
    pub frames: u32,
    /// Size of each packet frame in bytes.
    pub frame_size: u32,
    /// Whether the frame memory uses reserved huge pages.
    pub huge: bool,
    /// Whether the frame memory uses transparent huge pages.
    #[serde(default)]
    pub transparent: bool,
}

impl MemoryRecord {
    /// Returns the kind of pages that the frame memory uses.
    pub fn backing(&self) -> port::Backing {
        match (self.huge, self.transparent) {
            (true, _) => port::Backing::Reserved,
            (false, true) => port::Backing::Transparent,
            (false, false) => port::Backing::Normal,
        }
    }
}

/// A message from the successor to the predecessor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// As the answer to the offer: the successor is prepared to take over. As the answer to the hand-over state: the
    /// successor's workers run.
    Ready,
    /// The successor cannot continue with the hand-over. The text is the reason.
    Refused(String),
    /// The named ports cannot be resumed. The predecessor closes its descriptors of these ports, so that the
    /// successor can open the ports again. The predecessor then answers with [`Order::Released`].
    Release(Vec<String>),
    /// The successor's workers are prepared and do not run yet. The predecessor answers with [`Order::Commit`].
    Resumed,
    /// The successor has received [`Order::Commit`]. From now on, the successor owns the data plane.
    Committed,
}

/// A message that the predecessor sends after the hand-over state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Order {
    /// The predecessor has closed its descriptors of the ports that [`Reply::Release`] named.
    Released,
    /// The successor may start its workers. The successor must first confirm with [`Reply::Committed`].
    Commit,
}
