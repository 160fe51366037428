//! Everything through which control talks to workers and workers talk to each other.
//!
//! Floor 0: depends on no other crate of ours. On the packet's path a worker meets, in this order: one
//! [`qsbr::Reader::quiescent`] per burst, [`snapshot`]/[`left_right`]/[`slots`] for the tables, [`mac_table`] for a
//! bridge's stations, [`token_bucket`] for its limits, [`counter`] for what it saw, [`spsc`] for bursts that go to
//! another worker and [`wake`] when that one sleeps. None of these locks, allocates, reads a clock or enters the
//! kernel on the reader's side; what may block says so and belongs to control threads.
//!
//! Built with `--cfg loom`, the structures run on loom's atomics and `tests/loom.rs` model-checks them.

pub mod counter;
pub mod cpu;
pub mod heap;
pub mod left_right;
pub mod mac_table;
pub mod memory;
pub mod mpmc;
mod primitives;
pub mod qsbr;
pub mod readers;
pub mod slots;
pub mod snapshot;
pub mod spsc;
pub mod token_bucket;
pub mod wake;

pub use primitives::CachePadded;
