//! The control plane, which holds the configuration and serves the API that reads and changes it. Each configuration
//! object has an owner (the configuration file, the API, OVSDB or the kernel), and only the owner changes the object. A
//! change is applied completely or not at all.
//!
//! The control plane runs on tokio and never processes packets. The control plane accesses the data plane
//! through the [`Plane`] trait. The daemon implements the trait over the engine, and the tests implement it
//! in memory.
//!
//! ```text
//!  unix socket (0660) --+                            +--> Store: load, merge, check, diff, apply, store
//!  TCP (TLS + token) ---+--> places --> API (axum) --+
//!                                                    +--> Plane: states, explain, trace, capture, doctor, ...
//! ```
//!
//! ```
//! // The API describes itself; every route in the description is served, and the other way round.
//! let document: serde_json::Value = serde_json::from_str(&control::openapi()).expect("it is JSON");
//! assert!(document["paths"]["/v1/ports/{port}"]["put"].is_object());
//! ```

mod access;
mod admission;
mod api;
mod bind;
mod caller;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod lists;
mod metrics;
mod octets;
mod owners;
mod pace;
mod pcapng;
mod places;
mod plane;
mod plane_error;
mod quota;
mod rules;
mod serve;
mod storage;
mod store;
mod tls;

pub use access::Access;
pub use api::{ConfigReport, ExplainRequest, Flushed, UpgradeRequest, Upgraded, openapi};
pub use bind::{BindError, Listeners};
pub use error::{ChangeError, ErrorBody};
pub use lists::{Arguments, Formatted, LISTS, List, Lists};
pub use plane::{CaptureRequest, DumpRequest, Plane, SampleRequest};
pub use plane_error::{FailureKind, PlaneError};
pub use quota::BLOCKING_WORK;
pub use rules::RulePlace;
pub use serve::{ServeError, serve};
pub use storage::{StorageError, put_aside};
pub use store::{ApplyOptions, Outcome, PendingReport, Store, stored_api_objects};
pub use tls::{Guard, GuardError};
