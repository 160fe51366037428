//! Errors of creating or using a lab. Each error names the command or object, the cause and the output.

use std::io;

/// Error of a step that a test performs in a lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A command could not be started.
    #[error("cannot start '{command}': {source}; is its package installed ('make setup')?")]
    Start {
        /// Command line that could not be started.
        command: String,
        /// Error that starting the command returned.
        source: io::Error,
    },
    /// A command exited with an error.
    #[error("'{command}' ended with {status}:\n{output}")]
    Failed {
        /// Command line that failed.
        command: String,
        /// Exit status of the command in words.
        status: String,
        /// Output of the command. Standard error follows standard output.
        output: String,
    },
    /// An event for which the test waited did not occur in time.
    #[error("{what} did not happen within {seconds:.1} s{detail}")]
    TimedOut {
        /// Description of the event for which the test waited.
        what: String,
        /// Time for which the test waited, in seconds.
        seconds: f64,
        /// Last observation before the test stopped waiting. The text is empty, or begins with punctuation so that it
        /// can follow the description.
        detail: String,
    },
    /// A system call in a namespace failed.
    #[error("{what}: {source}")]
    System {
        /// Name of the object, and the operation on it that failed.
        what: String,
        /// Error that the system call returned.
        source: io::Error,
    },
    /// The output of a tool could not be parsed.
    #[error("output of '{command}' is not understood: {output}")]
    Output {
        /// Command line whose output could not be parsed.
        command: String,
        /// Output that could not be parsed.
        output: String,
    },
}

impl LabError {
    /// Returns the error for a system call that failed on the object that `what` names.
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        LabError::System { what: what.into(), source: source.into() }
    }
}
