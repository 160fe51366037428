//! Communication between control threads and workers, and between workers.
//!
//! This crate is the lowest layer and depends on no other crate of the project. On the data path, a worker
//! uses these modules and functions:
//! - [`qsbr::Reader::quiescent`], once per burst.
//! - [`snapshot`], [`left_right`] and [`slots`] to read tables.
//! - [`mac_table`] for the MAC table of a bridge.
//! - [`token_bucket`] for rate limits.
//! - [`hash`] for hash functions with secret numbers.
//! - [`counter`] for statistics.
//! - [`spsc`] to pass bursts to another worker, and [`wake`] to wake that worker.
//!
//! Functions for readers never take a lock, allocate, read a clock or make a system call. Functions that may
//! block are for control threads only, and their documentation states this.
//!
//! With `--cfg loom` the structures use loom's atomics, and `tests/loom.rs` model-checks them.

pub mod counter;
pub mod cpu;
pub mod hash;
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
