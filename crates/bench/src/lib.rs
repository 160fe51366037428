//! The benches of the `trivium` binary, which run without a daemon.
//!
//! ```text
//!   trivium bench ─────> memory ──> engine::bench (workers over in-memory ports)
//!   trivium xdp bench ─> hook ────> hook/lab.rs (veth pairs in a namespace), hook programs and minimal programs
//! ```
//!
//! ```
//! use cli::args::{Cli, Command};
//!
//! let line = Cli::read_from(["trivium", "bench", "list"]).expect("a command line");
//! let Command::Bench(args) = line.command else { panic!("no bench") };
//! bench::memory::run(&args).expect("the names of the scenarios");
//! ```

pub mod hook;
pub mod memory;
