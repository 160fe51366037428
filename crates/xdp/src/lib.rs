//! The driver hook of a port: loads the programs of `bpf/`, puts them on devices and talks to
//! their maps.
//!
//! ```text
//!  device --> [XDP program: filter, room, steer] --XSKMAP--> AF_XDP socket of the queue
//!                     |  ^                                          (crate `port`)
//!              XDP_PASS  | constants, local addresses, counters
//!                     v  |
//!                 kernel stack        this crate: load, attach, swap, pin, adopt, hand over
//! ```
//!
//! One program stands on each port, specialised by constants ([`ProgramConfig`]) and replaced
//! whole by a link update ([`Attached::swap`]). Unless it is pinned it goes with the process. A user's
//! own program may stand in front of it ([`user`]).
//!
//! Everything here is control: system calls, never per packet. Devices are looked up in the
//! network namespace of the calling thread; enter it first (`setns`). Once attached, a link
//! needs it no more.
//!
//! ```no_run
//! use xdp::{AttachMode, Owner, PortProgram, ProgramConfig, WhenDown};
//!
//! # fn main() -> Result<(), xdp::Error> {
//! let config = ProgramConfig {
//!     owner: Owner::Bridged,
//!     when_down: WhenDown::Drop,
//!     queues: 1,
//!     locals: Default::default(),
//! };
//! let port = PortProgram::load(&config)?.attach(2, AttachMode::Auto, None)?;
//! println!("{} runs {} XDP", port.device(), port.mode());
//! for (counter, packets) in port.counters()?.iter() {
//!     println!("{counter}: {packets}");
//! }
//! # Ok(())
//! # }
//! ```

mod attach;
mod attached;
pub mod bridge;
mod config;
mod counters;
pub mod dump;
mod error;
mod explain;
pub mod fib;
pub mod filter;
pub mod flows;
mod inspect;
#[cfg(test)]
mod layout;
pub mod live;
mod log;
mod needs;
mod object;
mod pin;
mod program;
pub mod ring;
pub mod route;
pub mod steer;
#[allow(unsafe_code, reason = "bpf(2) and libbpf are C interfaces; every block states why it holds")]
mod sys;
pub mod user;
pub mod watch;

pub use attach::{AttachMode, Fallback};
pub use attached::{Attached, HandOver, adopt};
pub use config::{Constants, LocalAddresses, Owner, ProgramConfig, WhenDown};
pub use counters::{Counter, Counters};
pub use error::Error;
pub use explain::HookSays;
pub use inspect::{
    Features, MapInfo, Mode, ProgramInfo, ProgramOnDevice, RunStatistics, driver, features, inspect,
    program as program_by_id,
};
pub use pin::PinPath;
pub use program::{LOCAL_CAPACITY, Loaded, PortProgram, TestRun, Verdict};

/// Returns when every program that runs now has come to its end: what they can have found before is free to be used again. It takes some
/// milliseconds.
pub fn wait_for_programs() {
    sys::wait_for_programs();
}
