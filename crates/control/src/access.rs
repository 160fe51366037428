//! Checks the files to which a configuration change refers. An API client needs the scope `root` to refer to files, and
//! the files must be in configured directories (`daemon.files`).
//!
//! Only files that the change adds are checked, not files to which the running configuration already refers. Changes
//! that the daemon makes itself (at its start, on SIGHUP, and for an OVSDB server) may refer to files in any directory.
//! A complete configuration file that root applies over the Unix socket may also refer to files in any directory.

use std::path::PathBuf;

use model::{Config, FileAccess, Scope};

use crate::ChangeError;
use crate::caller::Caller;

/// Permission to refer to files in a configuration change. The permission depends on the client that makes the change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Access scope of the client that makes the change.
    pub scope: Scope,
    /// Whether the change may refer to files in any directory, and not only in those of `daemon.files`.
    pub anywhere: bool,
}

impl Default for Access {
    /// Returns the unrestricted access of the daemon itself.
    fn default() -> Self {
        Access { scope: Scope::Root, anywhere: true }
    }
}

impl Access {
    /// Returns the access rights of a client that changes single configuration objects. The objects may refer only to
    /// files in the directories of `daemon.files`.
    pub(crate) fn of(caller: &Caller) -> Access {
        Access { scope: caller.scope.unwrap_or(Scope::Read), anywhere: false }
    }

    /// Returns the access rights of a client that applies a complete configuration file. If the client is a local root
    /// user, the configuration may refer to files in any directory.
    pub(crate) fn of_file(caller: &Caller) -> Access {
        Access { anywhere: caller.is_local_root(), ..Access::of(caller) }
    }

    /// Checks whether the client may make a change: whether it may refer to the files that the change adds to the
    /// configuration, and whether it has the scope `root` if the change affects `[daemon]` or `[ovsdb]`.
    ///
    /// # Errors
    /// Returns an error if the client may not refer to one of the added files, or may not change `[daemon]` or
    /// `[ovsdb]`.
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
            if file.access == FileAccess::Content && !self.anywhere && !file.is_within(directories) {
                let directories = directories.to_vec();
                return Err(ChangeError::Outside { object: file.field, path: file.path, directories });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that a client without the scope `root` cannot make the daemon listen on a Unix socket to which the
    /// configuration only connects.
    #[test]
    fn a_listener_in_place_of_a_connection_is_another_file() {
        let with = |target: &str| {
            let text = format!("[bridge.b.openflow]\ncontrollers=['{target}:/run/c.sock']\n");
            model::load(&text, "t").unwrap()
        };
        let access = Access { scope: Scope::Configure, anywhere: false };
        let check = |before: &str, after: &str| access.check(&with(before), &with(after), &[]);
        assert!(check("unix", "unix").is_ok());
        for (before, after) in [("unix", "punix"), ("punix", "unix")] {
            let refused = check(before, after);
            assert!(matches!(refused, Err(ChangeError::NeedsRoot { .. })), "{refused:?}");
        }
    }
}
