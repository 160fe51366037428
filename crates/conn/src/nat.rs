//! Network address translation (NAT): choice of addresses and ports.
//!
//! A connection with source NAT has another address and port towards the remote end. [`ports::Ports`] chooses them.
//!
//! ```text
//!  ports       free address and port for a new connection; release after its end
//!    '--- bitmap      used numbers as trees of 64-bit words
//!           '--- sparse   hash table of the words that are not zero
//! ```

mod bitmap;
pub mod ports;
mod sparse;
