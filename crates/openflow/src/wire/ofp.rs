//! Numbers of the OpenFlow protocol under the names of the specification. Each module contains the
//! constants of one part of the protocol.
//!
//! A constant without a version is valid in every version that has the number. Modules named `ofp10` and `ofp11`
//! hold the numbers of OpenFlow 1.0 and 1.1 that later versions changed or removed. The modules [`nx`] and [`onf`]
//! hold the numbers of Nicira's and the ONF's extensions.

pub mod action;
pub mod error;
pub mod flow;
pub mod group;
pub mod instruction;
pub mod matching;
pub mod meter;
pub mod msg;
pub mod multipart;
pub mod nx;
pub mod onf;
pub mod port;
pub mod switch;
pub mod table;
