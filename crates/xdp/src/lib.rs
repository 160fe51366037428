//! XDP program of a port. This crate loads the programs of `bpf/`, attaches them to devices and accesses their maps.
//!
//! ```text
//!  device --> [XDP program: filter, function, steer] --XSKMAP--> AF_XDP socket of the queue
//!                     |  ^                                              (crate `port`)
//!              XDP_PASS  | constants, local addresses, counters
//!                     v  |
//!                 kernel stack        this crate: load, attach, replace, pin, adopt, hand over
//! ```
//!
//! Each port has one program, specialised by constants ([`ProgramConfig`]). A link update replaces the whole
//! program ([`Attached::swap`]). Unless the program is pinned, it is detached when the process ends. A custom
//! program may run in front of the port's program ([`user`]).
//!
//! All functions of this crate belong to the control path. The functions make system calls and never run per packet.
//! Devices are looked up in the network namespace of the calling thread, which must enter that namespace first
//! (`setns`). An attached link no longer depends on the namespace of the thread.
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

mod adopt;
mod attach;
mod attached;
pub mod bridge;
mod build;
mod config;
mod counters;
pub mod dump;
mod error;
mod explain;
pub mod fib;
pub mod filter;
pub mod flows;
mod guard;
mod hand_over;
mod inspect;
#[cfg(test)]
mod layout;
pub mod live;
mod log;
mod map_copy;
mod mode;
mod needs;
mod object;
mod pin;
mod placeholder;
mod port_stages;
mod program;
pub mod ring;
pub mod route;
mod stages;
pub mod steer;
#[allow(unsafe_code, reason = "bpf(2) and libbpf are C interfaces; every block states why it holds")]
mod sys;
mod test_run;
pub mod user;
mod verdict;
pub mod watch;

pub use adopt::adopt;
pub use attach::AttachMode;
pub use attached::Attached;
pub use config::{Constants, LocalAddresses, Owner, ProgramConfig, WhenDown};
pub use counters::{Counter, Counters};
pub use error::Error;
pub use explain::{Explainer, HookSays};
pub use guard::IngressGuard;
pub use hand_over::{HandOver, HookDescriptors};
pub use inspect::{
    Features, MapInfo, ProgramInfo, RunStatistics, driver, features, inspect, program as program_by_id,
};
pub use mode::{Fallback, Mode, ProgramOnDevice};
pub use pin::PinPath;
pub use placeholder::Placeholders;
pub use program::{LOCAL_CAPACITY, Loaded, PortProgram};
pub use stages::StageChange;
pub use test_run::TestRun;
pub use verdict::Verdict;

/// Waits until every BPF program run that is in progress has ended, which takes some milliseconds. Objects that these
/// runs may be using, such as maps and slots, can be reused afterwards.
pub fn wait_for_programs() {
    sys::wait_for_programs();
}
