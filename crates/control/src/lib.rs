//! The control plane: one configuration with owners, applied whole or not at all, and the API to see and change it.
//!
//! It runs on tokio and never touches a packet. Everything below it is behind the [`Plane`] trait.

mod plane;

pub use plane::{CaptureRequest, FailureKind, Plane, PlaneError};
