//! Network address translation (NAT): choice of addresses and ports, and rewriting of packets.
//!
//! A connection with source NAT has another address and port towards the remote end. [`ports::Ports`] chooses them.
//! [`translate`] rewrites the headers of the packets of both directions.
//!
//! ```text
//!  spec        translation that a commit asks for; choice of the translated ends
//!    '--- ports
//!
//!  ports       free address and port for a new connection; release after its end
//!    '--- bitmap      used numbers as trees of 64-bit words
//!           '--- sparse   hash table of the words that are not zero
//!
//!  deterministic   one block of ports for each inside address, and the inside address of a port (RFC 7422)
//!
//!  mapping     original and translated ends of a connection, and the tuple of the replies
//!    '--- translate   addresses, ports and checksums of a packet, and of the packet that an ICMP error quotes
//!
//!  prefix      translation between two IPv6 prefixes without connections (NPTv6): addresses and packets
//! ```

mod bitmap;
pub mod deterministic;
pub mod mapping;
pub mod ports;
pub mod prefix;
mod sparse;
pub mod spec;
pub mod translate;
