//! Pin directories of ports. `/sys/fs/bpf/trivium/<name>/` holds the link and the maps of a port's XDP
//! program. A pinned link stays attached when its process ends. The link is pinned last and removed first. A
//! directory with a link is therefore complete. A directory without a link was left by a process that ended
//! early.
//!
//! If a custom program runs in front of the port's program, the directory has a subdirectory `user`. It holds
//! `program`, `next` (the array through which the program continues) and `maps`. The subdirectory is created
//! under another name before the link runs the program, and renamed afterwards. If a process ends in between,
//! the valid subdirectory is the one whose `program` the link runs.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::user::UserProgram;
use crate::{Error, sys};

/// Mount point of the BPF file system.
const BPFFS: &str = "/sys/fs/bpf";
const NAME_MAX: usize = 64;
const LINK: &str = "link";
const USER: &str = "user";
/// Names of the subdirectories of the next and of the previous custom program.
const USER_NEW: &str = "user-new";
const USER_OLD: &str = "user-old";
const PROGRAM: &str = "program";
const MAPS: &str = "maps";

/// Path of the pin directory of one port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PinPath {
    root: PathBuf,
    directory: PathBuf,
}

impl PinPath {
    /// Returns the pin path `/sys/fs/bpf/trivium/<name>`.
    ///
    /// # Errors
    /// Returns [`Error::PinName`] when the name is not a plain file name.
    pub fn new(name: &str) -> Result<PinPath, Error> {
        PinPath::under(Path::new(BPFFS), name)
    }

    /// Returns the pin path of `name` under another mount point of a BPF file system.
    ///
    /// # Errors
    /// Returns [`Error::PinName`] when the name is not a plain file name.
    pub fn under(root: &Path, name: &str) -> Result<PinPath, Error> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
            return Err(Error::PinName(name.to_owned()));
        }
        Ok(PinPath { root: root.to_owned(), directory: root.join("trivium").join(name) })
    }

    /// Returns the pin directory, which holds `link` and one file for each map.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the name of the pin, which is the last part of its path.
    #[must_use]
    pub fn name(&self) -> &str {
        // The name is the last path component and is UTF-8.
        self.directory.file_name().and_then(std::ffi::OsStr::to_str).unwrap_or_default()
    }

    /// Returns the names of all pin directories that exist under the root of [`PinPath::new`].
    ///
    /// # Errors
    /// Returns [`Error::Pin`] when the directory cannot be read.
    pub fn existing() -> Result<Vec<String>, Error> {
        let path = Path::new(BPFFS).join("trivium");
        let failed = |source| Error::Pin { path: path.clone(), operation: "list", source };
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            if let Ok(name) = entry.map_err(failed)?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Creates an empty pin directory. Mounts the BPF file system if it is not mounted.
    pub(crate) fn prepare(&self) -> Result<(), Error> {
        self.mount()?;
        if self.file(LINK).exists() {
            return Err(Error::Pinned { path: self.directory.clone() });
        }
        self.remove()?;
        fs::create_dir_all(&self.directory).map_err(|source| self.error("make the directory", source))
    }

    fn mount(&self) -> Result<(), Error> {
        let failed = |source| Error::Bpffs { path: self.root.clone(), source };
        if sys::is_bpffs(&self.root).map_err(failed)? {
            return Ok(());
        }
        sys::mount_bpffs(&self.root).map_err(failed)
    }

    pub(crate) fn pin_map(&self, name: &str, map: BorrowedFd<'_>) -> Result<(), Error> {
        self.pin(name, map)
    }

    pub(crate) fn pin_link(&self, link: BorrowedFd<'_>) -> Result<(), Error> {
        self.pin(LINK, link)
    }

    fn pin(&self, name: &str, object: BorrowedFd<'_>) -> Result<(), Error> {
        self.pin_at(self.file(name), object)
    }

    fn pin_at(&self, path: PathBuf, object: BorrowedFd<'_>) -> Result<(), Error> {
        sys::pin(object, &path).map_err(|source| Error::Pin { path, operation: "pin", source })
    }

    /// Opens the pinned link. Returns `None` when no link is pinned.
    pub(crate) fn open_link(&self) -> Result<Option<OwnedFd>, Error> {
        match sys::pinned(&self.file(LINK)) {
            Ok(link) => Ok(Some(link)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Pin { path: self.file(LINK), operation: "open", source }),
        }
    }

    /// Opens a pinned map of the port.
    pub(crate) fn open_map(&self, name: &str) -> Result<OwnedFd, Error> {
        let path = self.file(name);
        sys::pinned(&path).map_err(|source| Error::Pin { path, operation: "open", source })
    }

    /// Removes the pin of the link, and then the other pins of the port. Succeeds if nothing is pinned.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        self.remove_file(&self.file(LINK))?;
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|source| self.error("list", source))?,
        };
        for entry in entries {
            let path = entry.map_err(|source| self.error("list", source))?.path();
            if path.is_dir() { self.remove_tree(&path)? } else { self.remove_file(&path)? }
        }
        fs::remove_dir(&self.directory).map_err(|source| self.error("remove", source))
    }

    /// Removes a directory with all its contents. Succeeds if the directory does not exist.
    fn remove_tree(&self, path: &Path) -> Result<(), Error> {
        match fs::remove_dir_all(path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::Pin { path: path.to_owned(), operation: "remove", source })
            }
            _ => Ok(()),
        }
    }

    /// Returns the directory in which the maps of a custom program are pinned.
    #[must_use]
    pub fn user_directory(&self) -> PathBuf {
        self.file(USER).join(MAPS)
    }

    /// Pins a custom program in the directory of the next custom program, beside the pins of the present one.
    pub(crate) fn stage_user(&self, user: &UserProgram) -> Result<(), Error> {
        self.drop_staged_user()?;
        let staged = self.file(USER_NEW);
        let maps = staged.join(MAPS);
        fs::create_dir_all(&maps).map_err(|source| self.error("make the directory", source))?;
        self.pin_at(staged.join(PROGRAM), user.program.as_fd())?;
        self.pin_at(staged.join("next"), user.next.as_fd())?;
        user.maps.iter().try_for_each(|(name, map)| self.pin_at(maps.join(name), map.as_fd()))
    }

    pub(crate) fn drop_staged_user(&self) -> Result<(), Error> {
        self.remove_tree(&self.file(USER_NEW))
    }

    /// Makes the custom program that `PinPath::stage_user` has pinned the present one. On error, the
    /// previous custom program stays the present one.
    pub(crate) fn commit_user(&self) -> Result<(), Error> {
        let rename = |from: &str, to: &str| {
            let renamed = fs::rename(self.file(from), self.file(to));
            renamed.map_err(|source| Error::Pin { path: self.file(from), operation: "rename", source })
        };
        self.remove_tree(&self.file(USER_OLD))?;
        let replaces = self.file(USER).exists();
        if replaces {
            rename(USER, USER_OLD)?;
        }
        if let Err(error) = rename(USER_NEW, USER) {
            return if replaces { rename(USER_OLD, USER).and(Err(error)) } else { Err(error) };
        }
        // A remaining directory is removed with the next change.
        let _ = self.remove_tree(&self.file(USER_OLD));
        Ok(())
    }

    /// Removes the pins of custom programs, except those of `standing`, the custom program that the link
    /// runs. With `None` all of them are removed.
    pub(crate) fn repair_user(&self, standing: Option<&UserProgram>) -> Result<(), Error> {
        let id = |directory: &str| {
            let program = sys::pinned(&self.file(directory).join(PROGRAM)).ok()?;
            sys::program_info(program.as_fd()).ok().map(|info| info.id)
        };
        let Some(user) = standing else {
            return [USER, USER_NEW, USER_OLD]
                .into_iter()
                .try_for_each(|at| self.remove_tree(&self.file(at)));
        };
        if id(USER) == Some(user.id) {
            return [USER_NEW, USER_OLD].into_iter().try_for_each(|at| self.remove_tree(&self.file(at)));
        }
        if id(USER_NEW) != Some(user.id) {
            self.stage_user(user)?;
        }
        self.commit_user()
    }

    /// Returns the kernel ids of the pinned maps of custom programs, with their names.
    pub(crate) fn user_maps(&self) -> Vec<(u32, String)> {
        let named = [USER, USER_NEW, USER_OLD].into_iter().flat_map(|at| {
            let entries = fs::read_dir(self.file(at).join(MAPS)).into_iter().flatten().flatten();
            entries.filter_map(|entry| {
                let map = sys::pinned(&entry.path()).ok()?;
                Some((sys::map_info(map.as_fd()).ok()?.id, entry.file_name().into_string().ok()?))
            })
        });
        named.collect()
    }

    fn remove_file(&self, path: &Path) -> Result<(), Error> {
        match fs::remove_file(path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::Pin { path: path.to_owned(), operation: "remove", source })
            }
            _ => Ok(()),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn error(&self, operation: &'static str, source: io::Error) -> Error {
        Error::Pin { path: self.directory.clone(), operation, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_the_directory() {
        for bad in ["", "..", "a/b", "a.b", "ü", &"x".repeat(65)] {
            assert!(matches!(PinPath::new(bad), Err(Error::PinName(_))), "{bad}");
        }
        let path = PinPath::new("blue-eth0_1").unwrap();
        assert_eq!(path.directory(), Path::new("/sys/fs/bpf/trivium/blue-eth0_1"));
    }
}
