//! PID file of the daemon. The file is locked while the daemon runs, as Open vSwitch's programs do (fcntl(2),
//! F_SETLK).
//!
//! Scripts read the process ID from the file. `ovs-appctl` accepts the file if the process with this ID holds the
//! lock, and connects to the socket `NAME.PID.ctl` beside the file. The process sets its command name to the file's
//! name. By the command name, `ovs-ctl` detects that the process ID was reused by another program.
//!
//! Only the file's owner can open the file. Another user that may read the file could hold a read lock, which
//! prevents the daemon from taking its write lock. The programs of Open vSwitch read the file as root.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};

/// Permission bits of the PID file.
const MODE: u32 = 0o600;

/// A locked PID file of this process. The process must not open the file a second time, because closing any
/// descriptor of the file releases the lock (fcntl(2)).
pub struct PidFile {
    path: PathBuf,
    /// Path of a symbolic link to the socket for `ovs-appctl`. The link has the name that `ovs-appctl` expects. `None`
    /// if the socket itself has this name.
    link: Option<PathBuf>,
    _locked: File,
}

impl PidFile {
    /// Locks the PID file and writes the id of this process to the file. `socket` is the path of the socket
    /// for `ovs-appctl`.
    ///
    /// # Errors
    /// Another process holds the lock ([`io::ErrorKind::WouldBlock`]), or the file cannot be written.
    pub fn take(path: &Path, socket: Option<&Path>) -> io::Result<PidFile> {
        PidFile::lock(path, socket, FlockOperation::NonBlockingLockExclusive)
    }

    /// Waits until the predecessor process in an upgrade, which is about to end, has released its lock of the PID file.
    /// Then locks the file and writes the ID of this process to the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn inherit(path: &Path, socket: Option<&Path>) -> io::Result<PidFile> {
        PidFile::lock(path, socket, FlockOperation::LockExclusive)
    }

    fn lock(path: &Path, socket: Option<&Path>, how: FlockOperation) -> io::Result<PidFile> {
        let file = loop {
            let file = PidFile::open(path, how)?;
            // The previous owner may have removed the file meanwhile. The lock is then useless and the file
            // is opened again.
            let (own, named) = (file.metadata()?, std::fs::metadata(path));
            if named.is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino())) {
                break file;
            }
        };
        let text = format!("{}\n", std::process::id());
        file.write_all_at(text.as_bytes(), 0)?;
        file.set_len(text.len() as u64)?;
        if let Some(name) = path.file_stem() {
            // An error is ignored, because only scripts use the command name.
            let _ = std::fs::write("/proc/self/comm", name.as_encoded_bytes());
        }
        let link = socket.and_then(|socket| link(path, socket)).transpose()?;
        Ok(PidFile { path: path.to_owned(), link, _locked: file })
    }

    fn open(path: &Path, how: FlockOperation) -> io::Result<File> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(MODE).open(path)?;
        // An earlier version or a script may have created the file with other permission bits.
        if file.metadata()?.permissions().mode() & 0o777 != MODE {
            file.set_permissions(Permissions::from_mode(MODE))?;
        }
        fcntl_lock(&file, how).map_err(|error| match io::Error::from(error) {
            // POSIX.1 allows `EACCES` and `EAGAIN` for a lock that another process holds.
            error if error.kind() == io::ErrorKind::PermissionDenied => io::ErrorKind::WouldBlock.into(),
            error => error,
        })?;
        Ok(file)
    }

    /// Leaves the PID file in place for the successor of an upgrade, and removes only the symbolic link of this
    /// process.
    pub fn leave(mut self) {
        self.unlink();
        self.path = PathBuf::new();
    }

    fn unlink(&mut self) {
        if let Some(link) = self.link.take() {
            let _ = std::fs::remove_file(link);
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        self.unlink();
        if !self.path.as_os_str().is_empty() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Creates the symbolic link `NAME.PID.ctl` to the socket for `ovs-appctl`, and returns the link's path.
/// Returns `None` if the socket itself has this name.
fn link(path: &Path, socket: &Path) -> Option<io::Result<PathBuf>> {
    let name = format!("{}.{}.ctl", path.file_stem()?.to_str()?, std::process::id());
    let link = path.with_file_name(name);
    if link == socket {
        return None;
    }
    // Removes the link of an earlier process with the same process id.
    let _ = std::fs::remove_file(&link);
    Some(std::os::unix::fs::symlink(socket, &link).map(|()| link))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_the_process_and_the_way_to_it_until_it_ends() {
        let directory = std::env::temp_dir().join(format!("pid-file-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (path, socket) = (directory.join("x.pid"), directory.join("socket"));
        let link = directory.join(format!("x.{}.ctl", std::process::id()));
        // A stale file with a longer process id.
        std::fs::write(&path, "4194304000\n").unwrap();
        let held = PidFile::take(&path, Some(&socket)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        assert_eq!(std::fs::read_link(&link).unwrap(), socket);
        held.leave();
        assert!(path.exists() && std::fs::symlink_metadata(&link).is_err());
        // A socket of this name needs no link.
        drop(PidFile::take(&path, Some(&link)).unwrap());
        assert!(!path.exists() && std::fs::symlink_metadata(&link).is_err());
        assert!(PidFile::take(&directory.join("none").join("x.pid"), None).is_err());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn only_the_owner_can_open_the_file_and_lock_it() {
        let directory = std::env::temp_dir().join(format!("pid-file-mode-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("x.pid");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        drop(PidFile::take(&path, None).unwrap());
        PidFile::take(&path, None).unwrap().leave();
        assert_eq!(mode(), 0o600);
        // A file that an earlier version left.
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        PidFile::inherit(&path, None).unwrap().leave();
        assert_eq!(mode(), 0o600);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
