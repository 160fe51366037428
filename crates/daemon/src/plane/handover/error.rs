//! Reasons why a hand-over fails.

/// Reason why nothing was handed over.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The other process is gone or does not answer.
    #[error("the other process does not answer while {0} is awaited ({1})")]
    Silent(&'static str, std::io::Error),
    /// A message cannot be decoded or is out of turn.
    #[error(
        "what the other process sent is not understood ({0}); restart the daemon instead of upgrading it"
    )]
    Strange(String),
    /// The other process refuses.
    #[error("the successor refuses: {0}")]
    Refused(String),
    /// An operation of this process failed.
    #[error("{0}")]
    Own(String),
}
