//! Connection tracking helpers, which Open vSwitch calls application layer gateways (ALG).
//!
//! A helper reads the payloads of a connection, and learns that the ends will open another connection: the data
//! connection of FTP or TFTP. The table of expectations holds these connections until they are opened.
//!
//! ```text
//!  ftp, tftp     total functions over payloads; replacement of addresses and ports
//!  expectation   expected connections
//!  replace       replacement in a packet, with its lengths and checksums
//!  sequence      correction of TCP sequence numbers after a replacement
//! ```

mod chains;
pub mod expectation;
pub mod ftp;
pub mod replace;
pub mod sequence;
pub mod tftp;
