//! Where persistent ports keep their link and maps: `/sys/fs/bpf/trivium/<name>/`. A pinned link
//! stays attached when its process dies. The link is pinned last and removed first, so a
//! directory with a link is whole, and one without is rubbish of a process that died meanwhile.

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::{Error, sys};

/// Where the BPF file system belongs.
const BPFFS: &str = "/sys/fs/bpf";
const NAME_MAX: usize = 64;
const LINK: &str = "link";

/// The directory of one port's pins.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PinPath {
    root: PathBuf,
    directory: PathBuf,
}

impl PinPath {
    /// `/sys/fs/bpf/trivium/<name>`.
    ///
    /// # Errors
    /// [`Error::PinName`] when the name is no plain file name.
    pub fn new(name: &str) -> Result<PinPath, Error> {
        PinPath::under(Path::new(BPFFS), name)
    }

    /// The same under another mount point of a BPF file system.
    ///
    /// # Errors
    /// [`Error::PinName`] when the name is no plain file name.
    pub fn under(root: &Path, name: &str) -> Result<PinPath, Error> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
            return Err(Error::PinName(name.to_owned()));
        }
        Ok(PinPath { root: root.to_owned(), directory: root.join("trivium").join(name) })
    }

    /// The directory that holds `link` and one file per map.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The name that it was made with.
    #[must_use]
    pub fn name(&self) -> &str {
        // A plain name is the last component and UTF-8.
        self.directory.file_name().and_then(std::ffi::OsStr::to_str).unwrap_or_default()
    }

    /// The names that are pinned under [`PinPath::new`]'s root now.
    ///
    /// # Errors
    /// [`Error::Pin`] when the directory cannot be read.
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

    /// Makes an empty directory, mounting the file system where it is absent.
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
        let path = self.file(name);
        sys::pin(object, &path).map_err(|source| Error::Pin { path, operation: "pin", source })
    }

    /// The pinned link, or `None` when there is none.
    pub(crate) fn open_link(&self) -> Result<Option<OwnedFd>, Error> {
        match sys::pinned(&self.file(LINK)) {
            Ok(link) => Ok(Some(link)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Pin { path: self.file(LINK), operation: "open", source }),
        }
    }

    /// Removes the link's pin, then the others. Nothing there is fine.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        self.remove_file(&self.file(LINK))?;
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|source| self.error("list", source))?,
        };
        for entry in entries {
            self.remove_file(&entry.map_err(|source| self.error("list", source))?.path())?;
        }
        fs::remove_dir(&self.directory).map_err(|source| self.error("remove", source))
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
