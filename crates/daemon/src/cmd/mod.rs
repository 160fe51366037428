//! Commands that need more than a client of the daemon.

pub mod bench;
pub mod demo;
pub mod run;
pub mod xdp;
