//! Errors of building or driving a lab. Each names the command or object, the cause and the output.

use std::io;

/// Error of a lab step.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A command could not be started.
    #[error("cannot start '{command}': {source}; is its package installed ('make setup')?")]
    Start {
        /// The command line.
        command: String,
        /// Error of starting the command.
        source: io::Error,
    },
    /// A command exited with an error.
    #[error("'{command}' ended with {status}:\n{output}")]
    Failed {
        /// The command line.
        command: String,
        /// Exit status of the command in words.
        status: String,
        /// Output of the command, standard error last.
        output: String,
    },
    /// An awaited event did not occur.
    #[error("{what} did not happen within {seconds:.1} s{detail}")]
    TimedOut {
        /// Description of the event.
        what: String,
        /// Time waited, in seconds.
        seconds: f64,
        /// Last observation instead of the event. Empty, or text that begins with punctuation.
        detail: String,
    },
    /// A system call in a namespace failed.
    #[error("{what}: {source}")]
    System {
        /// The object and the operation on it.
        what: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// The output of a tool could not be parsed.
    #[error("output of '{command}' is not understood: {output}")]
    Output {
        /// The command line.
        command: String,
        /// Output of the command.
        output: String,
    },
}

impl LabError {
    /// Returns the error of a failed system call on the object that `what` names.
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        LabError::System { what: what.into(), source: source.into() }
    }
}
