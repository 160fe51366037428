//! Files of the daemon's Unix sockets, which the daemon removes when it no longer listens on them.
//!
//! A second daemon, or another program, may replace a socket file by a new file meanwhile. The daemon then leaves the
//! new file in place.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat, lstat, open};

/// Socket file of a Unix socket of this process.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Open descriptor of the socket file. [`SocketFile::remove`] recognises the file by its inode
    /// number, which the kernel does not reuse while the descriptor is open.
    file: OwnedFd,
}

impl SocketFile {
    /// Returns the socket file at `path`, to which this process has just bound a socket. Returns `None` if there
    /// is no file.
    pub fn at(path: &Path) -> Option<SocketFile> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = open(path, flags, Mode::empty()).ok()?;
        Some(SocketFile { path: path.to_owned(), file })
    }

    /// Removes the file, unless another file has replaced it.
    pub fn remove(self) {
        let (Ok(own), Ok(now)) = (fstat(&self.file), lstat(&self.path)) else { return };
        if (own.st_dev, own.st_ino) == (now.st_dev, now.st_ino) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::net::UnixListener;

    use super::*;

    /// Checks that a daemon that ends does not remove the socket file of a daemon that has started meanwhile.
    #[test]
    fn a_socket_file_that_another_process_has_replaced_is_not_removed() {
        let directory = std::env::temp_dir().join(format!("trivium-socket-file-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("api.sock");
        assert!(SocketFile::at(&path).is_none());
        let first = UnixListener::bind(&path).unwrap();
        let own = SocketFile::at(&path).unwrap();
        drop(first);
        std::fs::remove_file(&path).unwrap();
        let _second = UnixListener::bind(&path).unwrap();
        let other = SocketFile::at(&path).unwrap();
        own.remove();
        assert!(path.exists(), "the socket of the other process stays");
        other.remove();
        assert!(!path.exists());
        std::fs::remove_dir(&directory).unwrap();
    }
}
