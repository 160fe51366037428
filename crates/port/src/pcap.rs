//! Capture files. The module contains a reader for pcap and pcapng files, a writer for pcapng files
//! (with a comment per packet) or classic pcap files, and a port that replays one file and records
//! packets into another file.
//!
//! The reader accepts untrusted files. The reader checks lengths before it allocates memory. A truncated file
//! results in an error that contains the position in the file.

mod queue;
mod read;
mod write;

pub use queue::{Clock, PcapConfig, PcapQueue, Timing};
pub use read::{Reader, Record};
pub use write::{Interface, Notes, Writer};

/// Maximum length in bytes of a packet that is read or written. This is the usual snapshot length (snaplen) of
/// capture programs.
pub const MAX_PACKET: u32 = 262_144;

const MAGIC_MICRO: u32 = 0xa1b2_c3d4;
const MAGIC_NANO: u32 = 0xa1b2_3c4d;
const LINKTYPE_ETHERNET: u32 = 1;
const BLOCK_SECTION: u32 = 0x0a0d_0d0a;
const BLOCK_INTERFACE: u32 = 1;
const BLOCK_SIMPLE: u32 = 3;
const BLOCK_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const OPT_COMMENT: u16 = 1;
const OPT_FLAGS: u16 = 2;
const OPT_DROP_COUNT: u16 = 4;
const OPT_IF_NAME: u16 = 2;
const OPT_TSRESOL: u16 = 9;

/// An error of reading or writing a capture file.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// The file cannot be opened.
    #[error("capture file {path}: {source}; check the path and the permissions")]
    Open {
        /// Path of the file.
        path: std::path::PathBuf,
        /// Error that the system returned.
        source: std::io::Error,
    },
    /// Reading from the file or writing to the file has failed.
    #[error("capture file: {0}; check the disk")]
    Io(#[from] std::io::Error),
    /// The file is neither a pcap file nor a pcapng file.
    #[error("capture file: not a pcap or pcapng file; convert it with `editcap`")]
    Magic,
    /// The link type of the file is not Ethernet. The field is the number of the link type.
    #[error("capture file: link type {0} is not Ethernet; capture on an Ethernet device")]
    LinkType(u32),
    /// The file is malformed.
    #[error("capture file: broken at byte {at} ({what}); cut it there with `editcap` or capture anew")]
    Broken {
        /// Offset of the problem in the file, in bytes.
        at: u64,
        /// Description of the problem.
        what: &'static str,
    },
    /// The packets of the file exceed the memory limit. The field is the limit in bytes.
    #[error("capture file: more than {0} bytes of packets; replay a part of it (`editcap -r`)")]
    TooLarge(usize),
}
