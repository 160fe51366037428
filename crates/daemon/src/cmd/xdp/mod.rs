//! Commands for the driver hooks of ports that need more than a client of the daemon.

pub mod bench;
