//! Access scopes of API clients.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Access scope of an API client. Each scope includes the scopes before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The client may read state and counters. The client can neither read packets nor change
    /// anything.
    Read,
    /// The client may change the configuration, read packets, and restart the daemon with the daemon's current program.
    /// The client cannot refer to files.
    #[default]
    Configure,
    /// The client may refer to files, load BPF programs, and start another program. This scope is as powerful as root
    /// on this machine.
    Root,
}

impl Scope {
    /// All scopes, from the least to the most powerful.
    pub const ALL: [Scope; 3] = [Scope::Read, Scope::Configure, Scope::Root];
    /// Names of the scopes in the configuration file, in the order of [`Scope::ALL`].
    pub const WORDS: &'static [&'static str] = &["read", "configure", "root"];

    /// Returns the name of the scope in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Configure => "configure",
            Scope::Root => "root",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}
