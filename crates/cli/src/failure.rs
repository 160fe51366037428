//! Failure of a command: the object, the cause, the next step for the user, and the exit code.

use std::fmt;
use std::process::ExitCode;

/// The failure of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Object on which the command failed, such as `port.web1` or a file name.
    pub object: String,
    /// Cause of the failure.
    pub cause: String,
    /// Next step for the user. The text is empty if there is no next step.
    pub fix: String,
    /// Kind of the failure, which determines the exit code.
    pub kind: Kind,
}

/// Kinds of failures, each with the exit code that the manual lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The command failed (exit code 1).
    Failed,
    /// The configuration is refused and nothing was applied (exit code 3).
    Refused,
    /// The daemon does not answer (exit code 4).
    Unreachable,
    /// The command failed and has already printed the reason (exit code 1).
    Silent,
}

impl Failure {
    /// Returns a failure of kind [`Kind::Failed`].
    pub fn new(object: impl Into<String>, cause: impl fmt::Display, fix: impl Into<String>) -> Self {
        Failure { object: object.into(), cause: cause.to_string(), fix: fix.into(), kind: Kind::Failed }
    }

    /// Returns this failure with its kind replaced.
    pub fn of_kind(self, kind: Kind) -> Self {
        Failure { kind, ..self }
    }

    /// Returns a failure whose reason the command has already printed.
    pub fn told(kind: Kind) -> Self {
        let kind = if kind == Kind::Failed { Kind::Silent } else { kind };
        Failure { object: String::new(), cause: String::new(), fix: String::new(), kind }
    }

    /// Prints the failure on standard error, unless the command has already printed the failure.
    pub fn print(&self) {
        if !self.cause.is_empty() {
            eprintln!("trivium: {self}");
        }
    }

    /// Returns the exit code of the process, which the kind of the failure determines.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.kind {
            Kind::Failed | Kind::Silent => 1,
            Kind::Refused => 3,
            Kind::Unreachable => 4,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.cause)?;
        if self.fix.is_empty() { Ok(()) } else { write!(f, "; {}", self.fix) }
    }
}

impl std::error::Error for Failure {}
