//! Findings of the `doctor` diagnostics.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Severity;

/// Finding of the diagnostics (`trivium doctor`) about one object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DoctorFinding {
    /// Path of the object, such as `port.eth1` or `memory`.
    pub object: String,
    /// Severity of the diagnostics finding.
    pub severity: Finding,
    /// Description of the problem or the state that was found.
    pub finding: String,
    /// Remedy for the finding. Empty if no action is required.
    #[serde(default)]
    pub fix: String,
}

/// Severity of a diagnostics finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Finding {
    /// The diagnostics have found no problem with the object.
    Ok,
    /// The object works, but slower than possible.
    Advice,
    /// The object works, but probably not as intended.
    Warning,
    /// The object does not work.
    Error,
}

impl From<Severity> for Finding {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Error => Finding::Error,
            Severity::Warning => Finding::Warning,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Finding::Ok => "ok",
            Finding::Advice => "advice",
            Finding::Warning => "warning",
            Finding::Error => "error",
        })
    }
}
