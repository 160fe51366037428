//! A problem in a configuration: position, object, cause and remedy.
//!
//! A problem is displayed as `file:line:col: object: cause; fix`. Line and column numbers start at 1. Columns
//! are counted in characters. Both numbers are 0 if the problem has no position in a text, as for objects
//! from the API.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::Cause;

/// Severity of a problem.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The problem is an error: the configuration is refused.
    Error,
    /// The problem is a warning: the configuration is valid, but probably not as intended.
    Warning,
}

/// A problem of a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Severity of the configuration problem.
    pub severity: Severity,
    /// Name of the configuration text (usually a file name), as given by the caller. Empty if the text has no name.
    pub file: String,
    /// Line number in the configuration text, starting at 1. 0 if the problem has no position.
    pub line: u32,
    /// Column number in the line in characters, starting at 1. 0 if the problem has no position.
    pub column: u32,
    /// Path of the affected object, such as `bridge.br0.port.web1.access`.
    pub object: String,
    /// Cause of the configuration problem.
    pub cause: Cause,
}

impl Problem {
    /// Returns a problem of the severity `Error` for an object, without a position in a text.
    pub fn new(object: impl Into<String>, cause: Cause) -> Self {
        Problem {
            severity: Severity::Error,
            file: String::new(),
            line: 0,
            column: 0,
            object: object.into(),
            cause,
        }
    }

    /// Returns the problem with its severity changed to `Warning`.
    pub fn warning(self) -> Self {
        Problem { severity: Severity::Warning, ..self }
    }

    /// Returns the remedy for the problem.
    pub fn fix(&self) -> String {
        self.cause.fix()
    }

    /// Returns the problem with its cause and remedy as texts.
    pub fn report(&self) -> ProblemReport {
        ProblemReport {
            severity: self.severity,
            file: self.file.clone(),
            line: self.line,
            column: self.column,
            object: self.object.clone(),
            cause: self.cause.to_string(),
            fix: self.fix(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report().fmt(f)
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.report().serialize(to)
    }
}

/// A problem as the API sends it, with cause and remedy as texts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProblemReport {
    /// Severity of the problem.
    pub severity: Severity,
    /// Name of the configuration text (usually a file name). Empty if the text has no name.
    #[serde(default)]
    pub file: String,
    /// Line number in the configuration text, starting at 1. 0 if the problem has no position.
    #[serde(default)]
    pub line: u32,
    /// Column number in the line in characters, starting at 1. 0 if the problem has no position.
    #[serde(default)]
    pub column: u32,
    /// Path of the affected object. Empty if the problem affects the whole text.
    pub object: String,
    /// Cause of the problem.
    pub cause: String,
    /// Remedy for the problem.
    pub fix: String,
}

impl fmt::Display for ProblemReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:", self.file)?;
            if self.line > 0 {
                write!(f, "{}:{}:", self.line, self.column)?;
            }
            f.write_str(" ")?;
        }
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        if !self.object.is_empty() {
            write!(f, "{}: ", self.object)?;
        }
        write!(f, "{}; {}", self.cause, self.fix)
    }
}
