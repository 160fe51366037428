//! One thing that is wrong with a configuration: where, at which object, why, and what to do.
//!
//! Shown as `file:line:col: object: cause; fix`. Lines and columns count from 1, columns in characters; both are 0
//! where a problem has no place in a text (an object that came by the API).

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::Cause;

/// Whether a problem forbids the configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// It works, but probably not as meant.
    Warning,
}

/// One thing that is wrong with a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Whether it forbids the configuration.
    pub severity: Severity,
    /// Name of the text, as the caller gave it; empty where there is none.
    pub file: String,
    /// Line in the text, from 1; 0: none.
    pub line: u32,
    /// Column in the line, from 1, in characters; 0: none.
    pub column: u32,
    /// The object that is concerned, such as `bridge.br0.port.web1.access`.
    pub object: String,
    /// What is wrong.
    pub cause: Cause,
}

impl Problem {
    /// An error at an object, as yet without a place in a text.
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

    /// The same as a warning.
    pub fn warning(self) -> Self {
        Problem { severity: Severity::Warning, ..self }
    }

    /// What to do about it.
    pub fn fix(&self) -> String {
        self.cause.fix()
    }

    /// The same as texts.
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

/// A problem as the API sends it: all texts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProblemReport {
    /// Whether it forbids the configuration.
    pub severity: Severity,
    /// Name of the text; empty where there is none.
    #[serde(default)]
    pub file: String,
    /// Line in the text, from 1; 0: none.
    #[serde(default)]
    pub line: u32,
    /// Column in the line, from 1; 0: none.
    #[serde(default)]
    pub column: u32,
    /// The object that is concerned; empty for the text as a whole.
    pub object: String,
    /// What is wrong.
    pub cause: String,
    /// What to do about it.
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
