//! Communication between control threads and workers, and between workers.
//!
//! This crate is the lowest layer and depends on no other crate of the project. On the data path a worker
//! uses these modules:
//! - [`qsbr::Reader::quiescent`], once per burst.
//! - [`snapshot`], [`left_right`] and [`slots`] for the tables.
//! - [`mac_table`] for the stations of a bridge.
//! - [`token_bucket`] for rate limits.
//! - [`counter`] for statistics.
//! - [`spsc`] for bursts to another worker, and [`wake`] when that worker sleeps.
//!
//! Readers never lock, allocate, read a clock or enter the kernel. Functions that may block are for control
//! threads, and their documentation states so.
//!
//! With `--cfg loom` the structures run on loom's atomics, and `tests/loom.rs` model-checks them.

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
