//! Pin directories of ports in the BPF file system. `/sys/fs/bpf/trivium/<name>/` holds the link and the maps of a
//! port's XDP program. A pinned link stays attached when the process that created the link ends. The link is pinned
//! last and removed first. A directory with a link is therefore complete. A directory without a link was left by a
//! process that ended early.
//!
//! If a custom program runs in front of the port's program, the directory has a subdirectory `user`. The subdirectory
//! holds `program`, `next` (the array through which the program continues) and `maps`. The subdirectory is created
//! under another name before the link runs the program, and renamed afterwards. If a process ends between these steps,
//! the valid subdirectory is the one whose pin `program` is the program that the link runs.
//!
//! Only the user of the process may enter these directories, because any user that can open a directory can lock the
//! directory (`flock`). A lock on a pin directory means that a process uses the pin.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::user::UserProgram;
use crate::{Error, sys};

/// Mount point of the BPF file system.
const BPFFS: &str = "/sys/fs/bpf";
const NAME_MAX: usize = 64;
/// Access mode of pin directories: access only for the directory's owner.
const PRIVATE: u32 = 0o700;
/// Access mode bits of the group and of other users.
const OTHERS: u32 = 0o077;
const LINK: &str = "link";
const USER: &str = "user";
/// Subdirectory in which the next custom program is pinned before the link runs it. `USER_OLD` is the
/// subdirectory of the previous custom program.
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

    /// Returns the pin path of `name` under the mount point `root` of a BPF file system.
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

    /// Returns the pin directory, which holds the pin of the BPF link (`link`) and one pin for each map.
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

    /// Makes the directory that contains all pin directories of [`PinPath::new`] accessible only to the user of the
    /// process. In earlier releases, other users had access. If another user owned the directory, changes the owner to
    /// the user of the process, removes the other user's files in it, and returns `true`. Otherwise returns `false`.
    /// Does nothing if the directory does not exist.
    ///
    /// # Errors
    /// Returns [`Error::Pin`] if the owner or the mode cannot be changed.
    pub fn protect() -> Result<bool, Error> {
        let path = Path::new(BPFFS).join("trivium");
        match protect(&path, sys::effective_user()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            done => done.map_err(|source| Error::Pin { path, operation: "protect", source }),
        }
    }

    /// Creates an empty pin directory. Mounts the BPF file system if it is not mounted.
    pub(crate) fn prepare(&self) -> Result<(), Error> {
        self.mount()?;
        self.make_parent()?;
        if self.file(LINK).exists() {
            return Err(Error::Pinned { path: self.directory.clone() });
        }
        self.remove()?;
        make_directories(&self.directory).map_err(|source| self.error("make the directory", source))
    }

    /// Creates the parent of all pin directories. If this directory exists, restricts access to it.
    fn make_parent(&self) -> Result<(), Error> {
        let parent = self.root.join("trivium");
        let user = sys::effective_user();
        let done = match protect(&parent, user) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_directories(&parent).and_then(|()| protect(&parent, user))
            }
            done => done,
        };
        done.map(drop).map_err(|source| Error::Pin { path: parent, operation: "protect", source })
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

    /// Opens the BPF link in the pin directory. Returns `None` when no link is pinned.
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

    /// Pins the custom program that the link will run next, in the subdirectory `user-new`. The pins of the current
    /// custom program are kept.
    pub(crate) fn stage_user(&self, user: &UserProgram) -> Result<(), Error> {
        self.drop_staged_user()?;
        let staged = self.file(USER_NEW);
        let maps = staged.join(MAPS);
        make_directories(&maps).map_err(|source| self.error("make the directory", source))?;
        self.pin_at(staged.join(PROGRAM), user.program.as_fd())?;
        self.pin_at(staged.join("next"), user.next.as_fd())?;
        user.maps.iter().try_for_each(|(name, map)| self.pin_at(maps.join(name), map.as_fd()))
    }

    pub(crate) fn drop_staged_user(&self) -> Result<(), Error> {
        self.remove_tree(&self.file(USER_NEW))
    }

    /// Renames the subdirectory `user-new` to `user` when the link runs the program that is pinned in it. On error, the
    /// pins of the previous custom program stay in `user`.
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

    /// Removes the pins of all custom programs except `standing`, which is the custom program that the BPF link runs.
    /// With `None` all pins of custom programs are removed.
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

/// Creates a directory and its missing parents, which only their owner may enter.
fn make_directories(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE).create(path)
}

/// Restricts access to a directory to the user `user`. If neither `user` nor root owns the directory, changes the owner
/// to `user`, removes other users' files in the directory, and returns true. Such files or locks on them can therefore
/// not prevent a start of the daemon.
fn protect(path: &Path, user: u32) -> io::Result<bool> {
    let is_foreign = |owner: u32| owner != user && owner != 0;
    // A symbolic link that another user owns is replaced. A symbolic link that root owns is kept, because an
    // administrator has created it.
    let own = fs::symlink_metadata(path)?;
    if !own.is_dir() {
        if !is_foreign(own.uid()) {
            return Ok(false);
        }
        fs::remove_file(path)?;
        make_directories(path)?;
        return Ok(true);
    }
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let directory: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = directory.metadata()?;
    let was_foreign = is_foreign(found.uid());
    if was_foreign {
        fchown(&directory, Some(user), None)?;
    }
    if found.mode() & OTHERS != 0 {
        directory.set_permissions(Permissions::from_mode(PRIVATE))?;
    }
    if was_foreign {
        // From here on, the former owner can add no files.
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if is_foreign(metadata.uid()) {
                let path = entry.path();
                if metadata.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
            }
        }
    }
    Ok(was_foreign)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, lchown, symlink};

    use super::*;

    /// A temporary directory of one test, which is removed when the value is dropped.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(test: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("trivium-pin-{test}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn owner_and_mode(path: &Path) -> (u32, u32) {
        let found = fs::symlink_metadata(path).unwrap();
        (found.uid(), found.mode() & 0o777)
    }

    #[test]
    fn other_users_cannot_open_and_so_cannot_lock_the_directories_of_pins() {
        let scratch = Scratch::new("modes");
        let user = sys::effective_user();
        let made = scratch.0.join("trivium/one");
        make_directories(&made).unwrap();
        assert_eq!(owner_and_mode(&made), (user, 0o700));
        assert_eq!(owner_and_mode(&scratch.0.join("trivium")), (user, 0o700));
        // The directory of an earlier release.
        let earlier = scratch.0.join("earlier");
        fs::create_dir_all(earlier.join("pin")).unwrap();
        fs::set_permissions(&earlier, Permissions::from_mode(0o755)).unwrap();
        assert!(!protect(&earlier, user).unwrap());
        assert_eq!(owner_and_mode(&earlier), (user, 0o700));
        assert!(earlier.join("pin").exists());
        assert_eq!(protect(&scratch.0.join("absent"), user).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_directory_that_another_user_created_first_is_taken_from_that_user() {
        testbed::require!();
        let scratch = Scratch::new("foreign");
        let parent = scratch.0.join("trivium");
        let (own, foreign) = (parent.join("own"), parent.join("foreign"));
        fs::create_dir_all(&own).unwrap();
        fs::create_dir_all(foreign.join("link")).unwrap();
        for path in [&parent, &foreign] {
            chown(path, Some(1000), None).unwrap();
        }
        assert!(protect(&parent, 0).unwrap());
        assert_eq!(owner_and_mode(&parent), (0, 0o700));
        assert!(own.exists() && !foreign.exists());
        assert!(!protect(&parent, 0).unwrap());

        let (linked, elsewhere) = (scratch.0.join("linked"), scratch.0.join("elsewhere"));
        fs::create_dir_all(&elsewhere).unwrap();
        symlink(&elsewhere, &linked).unwrap();
        lchown(&linked, Some(1000), None).unwrap();
        assert!(protect(&linked, 0).unwrap());
        assert!(fs::symlink_metadata(&linked).unwrap().is_dir() && elsewhere.exists());
    }

    #[test]
    fn names_cannot_leave_the_directory() {
        for bad in ["", "..", "a/b", "a.b", "ü", &"x".repeat(65)] {
            assert!(matches!(PinPath::new(bad), Err(Error::PinName(_))), "{bad}");
        }
        let path = PinPath::new("blue-eth0_1").unwrap();
        assert_eq!(path.directory(), Path::new("/sys/fs/bpf/trivium/blue-eth0_1"));
    }
}
