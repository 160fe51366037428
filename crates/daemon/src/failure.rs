//! What a command ends with when it fails: the object, the cause, the next step, and the exit code.

use std::fmt;
use std::process::ExitCode;

/// The end of a command that did not work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What it is about, such as `port.web1` or a file's name.
    pub object: String,
    /// Why it did not work.
    pub cause: String,
    /// What to do next.
    pub fix: String,
    /// How the process ends.
    pub kind: Kind,
}

/// Exit codes, as the manual lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// 1: it did not work.
    Failed,
    /// 3: the configuration is refused; nothing was applied.
    Refused,
    /// 4: the daemon does not answer.
    Unreachable,
    /// 1, and everything has been said already.
    Silent,
}

impl Failure {
    /// An ordinary failure.
    pub fn new(object: impl Into<String>, cause: impl fmt::Display, fix: impl Into<String>) -> Self {
        Failure { object: object.into(), cause: cause.to_string(), fix: fix.into(), kind: Kind::Failed }
    }

    /// The same with another exit code.
    pub fn of_kind(self, kind: Kind) -> Self {
        Failure { kind, ..self }
    }

    /// A failure whose explanation the command has printed itself.
    pub fn told(kind: Kind) -> Self {
        let kind = if kind == Kind::Failed { Kind::Silent } else { kind };
        Failure { object: String::new(), cause: String::new(), fix: String::new(), kind }
    }

    /// Prints it on standard error, unless that was done.
    pub fn print(&self) {
        if !self.cause.is_empty() {
            eprintln!("trivium: {self}");
        }
    }

    /// How the process ends.
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
