//! What can go wrong while a lab is built or driven: always the command or object, the cause and the output.

use std::io;

/// A step of a lab failed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A command could not be started at all.
    #[error("cannot start '{command}': {source}; is its package installed ('make setup')?")]
    Start {
        /// The command line.
        command: String,
        /// Why not.
        source: io::Error,
    },
    /// A command ended with an error.
    #[error("'{command}' ended with {status}:\n{output}")]
    Failed {
        /// The command line.
        command: String,
        /// Its exit status in words.
        status: String,
        /// What it printed, standard error last.
        output: String,
    },
    /// Something that was waited for did not happen.
    #[error("{what} did not happen within {seconds:.1} s{detail}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: f64,
        /// What was seen instead; empty or begins with a colon.
        detail: String,
    },
    /// A system call in a namespace failed.
    #[error("{what}: {source}")]
    System {
        /// The object and what was done to it.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// A tool printed something that is not understood.
    #[error("output of '{command}' is not understood: {output}")]
    Output {
        /// The command line.
        command: String,
        /// What it printed.
        output: String,
    },
}

impl LabError {
    /// A failed system call on the object that `what` names.
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        LabError::System { what: what.into(), source: source.into() }
    }
}
