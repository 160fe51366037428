//! Reasons why a hand-over fails.

/// Reason why a hand-over did not take place.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The other process of the hand-over has ended or does not answer. The text names the message that
    /// this process waited for.
    #[error("the other process does not answer while {0} is awaited ({1})")]
    Silent(&'static str, std::io::Error),
    /// A received hand-over message cannot be decoded or arrives out of order.
    #[error(
        "what the other process sent is not understood ({0}); restart the daemon instead of upgrading it"
    )]
    Strange(String),
    /// The successor refuses the hand-over. The text is the reason.
    #[error("the successor refuses: {0}")]
    Refused(String),
    /// An operation of this process failed. The text is the reason.
    #[error("{0}")]
    Own(String),
}
