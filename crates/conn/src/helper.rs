//! Connection tracking helpers, which Open vSwitch calls application layer gateways (ALG).
//!
//! A helper reads the payloads of a connection, and learns that the ends will open another connection: the data
//! connection of FTP or TFTP.
//!
//! ```text
//!  ftp, tftp     total functions over payloads; replacement of addresses and ports
//! ```

pub mod ftp;
pub mod tftp;
