//! What a change may name: files need the scope `root`, and lie in configured directories.
//!
//! A file that the configuration names already needs nothing: only what a change adds is judged. The daemon itself (its
//! start, SIGHUP, an OVSDB server's tables) and root's whole file over the unix socket may name files anywhere.

use std::path::PathBuf;

use model::{Config, Scope};

use crate::ChangeError;
use crate::caller::Caller;

/// What the author of a change may name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// What the author may do.
    pub scope: Scope,
    /// Whether files may lie anywhere, and not only in `daemon.files`.
    pub anywhere: bool,
}

impl Default for Access {
    /// The daemon's own.
    fn default() -> Self {
        Access { scope: Scope::Root, anywhere: true }
    }
}

impl Access {
    /// For single objects of a client.
    pub(crate) fn of(caller: &Caller) -> Access {
        Access { scope: caller.scope.unwrap_or(Scope::Read), anywhere: false }
    }

    /// For the whole file of a client.
    pub(crate) fn of_file(caller: &Caller) -> Access {
        Access { anywhere: caller.is_local_root(), ..Access::of(caller) }
    }

    /// Judges what a change adds to the files that are named.
    ///
    /// # Errors
    ///
    /// If the author may not name one of them.
    pub(crate) fn check(
        self,
        before: &Config,
        after: &Config,
        directories: &[PathBuf],
    ) -> Result<(), ChangeError> {
        if self.anywhere && self.scope == Scope::Root {
            return Ok(());
        }
        if self.scope < Scope::Root {
            for (object, differs) in
                [("daemon", before.daemon != after.daemon), ("ovsdb", before.ovsdb != after.ovsdb)]
            {
                if differs {
                    let what = "its sockets and files are root's".to_owned();
                    return Err(ChangeError::NeedsRoot { object: object.to_owned(), what });
                }
            }
        }
        let known = before.files();
        for file in after.files().into_iter().filter(|file| !known.contains(file)) {
            if self.scope < Scope::Root {
                let what = format!("it names the file {}", file.path.display());
                return Err(ChangeError::NeedsRoot { object: file.field, what });
            }
            if file.content && !self.anywhere && !file.is_within(directories) {
                let directories = directories.to_vec();
                return Err(ChangeError::Outside { object: file.field, path: file.path, directories });
            }
        }
        Ok(())
    }
}
