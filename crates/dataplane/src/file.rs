//! Secure opening of files that the configuration names. Other users of the machine cannot redirect the daemon to other
//! files.
//!
//! A path is resolved component by component from the root, by these rules:
//!
//! - A symbolic link within the path is followed only if root or the daemon's own user owns it.
//! - The last component is never followed if it is a symbolic link.
//! - Only regular files of a limited length are read. A FIFO or a device would block or have no end.
//! - A file is written only if it is new, or a regular file of the daemon's own user with one hard link.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, ftruncate, openat, readlinkat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Maximum number of symbolic links that are followed while one path is resolved.
const LINKS: usize = 16;
/// Access mode of files that the daemon creates: only the daemon's user can read and write them.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Opens a regular file of at most `limit` bytes for reading.
///
/// # Errors
/// Returns the error of the operating system, or an error with the reason why the file is refused.
pub fn read_from(path: &Path, limit: u64) -> io::Result<File> {
    let (directory, name) = walk(path)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(&directory, &name, flags, Mode::empty()).map_err(link_or)?;
    let metadata = fstat(&file)?;
    regular(&metadata)?;
    let length = u64::try_from(metadata.st_size).unwrap_or(u64::MAX);
    if length > limit {
        return Err(refused(format!("it has {length} bytes, and at most {limit} are read")));
    }
    Ok(file.into())
}

/// Reads a text file of at most `limit` bytes.
///
/// # Errors
/// Returns the errors of [`read_from`]. A file that is not UTF-8 is also an error.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    let mut text = String::new();
    // The file may grow while it is read.
    let read = read_from(path, limit)?.take(limit + 1).read_to_string(&mut text)?;
    if read as u64 > limit {
        return Err(refused(format!("it has more than {limit} bytes")));
    }
    Ok(text)
}

/// Opens and truncates a file for writing. Creates the file if no file has this path.
///
/// # Errors
/// Returns the error of the operating system, or an error with the reason why the file is refused.
pub fn write_to(path: &Path) -> io::Result<File> {
    let (directory, name) = walk(path)?;
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(&directory, &name, flags | OFlags::CREATE | OFlags::EXCL, MODE) {
        Ok(file) => return Ok(file.into()),
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    // The type is checked before the file is opened, because a FIFO without a reader cannot be opened for
    // writing.
    regular(&statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW)?)?;
    let file = openat(&directory, &name, flags, Mode::empty()).map_err(link_or)?;
    let metadata = fstat(&file)?;
    regular(&metadata)?;
    if metadata.st_uid != geteuid().as_raw() {
        return Err(refused(format!("it belongs to user {}", metadata.st_uid)));
    }
    if metadata.st_nlink > 1 {
        return Err(refused(format!("it has {} names", metadata.st_nlink)));
    }
    ftruncate(&file, 0)?;
    Ok(file.into())
}

/// Resolves a path. Returns the directory that contains the file, and the name of the file in this directory.
fn walk(path: &Path) -> io::Result<(OwnedFd, OsString)> {
    let mut names: VecDeque<OsString> = VecDeque::new();
    for part in path.components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => names.push_back(name.to_owned()),
            Component::ParentDir | Component::Prefix(_) => {
                return Err(refused("its path steps up".to_owned()));
            }
        }
    }
    let Some(last) = names.pop_back().filter(|_| path.is_absolute()) else {
        return Err(refused("it is no path of a file from the root".to_owned()));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = || rustix::fs::open("/", flags, Mode::empty());
    let (mut at, mut links) = (root()?, 0);
    while let Some(name) = names.pop_front() {
        match openat(&at, &name, flags, Mode::empty()) {
            Ok(next) => at = next,
            Err(error) => {
                let target = followed(at.as_fd(), &name, error)?;
                links += 1;
                if links > LINKS {
                    return Err(Errno::LOOP.into());
                }
                if target.is_absolute() {
                    at = root()?;
                }
                for part in target.components().rev() {
                    match part {
                        Component::Normal(name) => names.push_front(name.to_owned()),
                        Component::ParentDir => names.push_front(OsString::from("..")),
                        _ => {}
                    }
                }
            }
        }
    }
    Ok((at, last))
}

/// Returns the target of a symbolic link that root or the daemon's own user owns. If the path component `name` is not a
/// symbolic link, returns `error`, the error with which it could not be opened as a directory.
fn followed(at: impl AsFd, name: &OsStr, error: Errno) -> io::Result<std::path::PathBuf> {
    let metadata = statat(&at, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(metadata.st_mode) != FileType::Symlink {
        return Err(error.into());
    }
    let user = metadata.st_uid;
    if user != 0 && user != geteuid().as_raw() {
        let name = name.as_bytes().escape_ascii();
        return Err(refused(format!("`{name}` on its path is a link that user {user} made")));
    }
    let target = readlinkat(at, name, Vec::new())?;
    Ok(OsString::from_vec(target.into_bytes()).into())
}

fn regular(metadata: &Stat) -> io::Result<()> {
    match FileType::from_raw_mode(metadata.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(refused("it is a link".to_owned())),
        FileType::Directory => Err(refused("it is a directory".to_owned())),
        _ => Err(refused("it is no regular file".to_owned())),
    }
}

/// Converts the errno of an open call into an error. An open call with `O_NOFOLLOW` returns `ELOOP` if the last
/// component of the path is a symbolic link. The message for `ELOOP` therefore says that a symbolic link is refused.
fn link_or(error: Errno) -> io::Error {
    if error == Errno::LOOP { refused("it is a link".to_owned()) } else { error.into() }
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    /// Links, FIFOs, devices, directories and files of other users are refused without blocking, and are not
    /// changed.
    #[test]
    fn only_regular_files_are_opened_and_links_of_others_are_not_followed() {
        let place = std::env::temp_dir().join(format!("trivium-file-{}", std::process::id()));
        fs::create_dir_all(place.join("real")).unwrap();
        let (file, link, fifo) = (place.join("real/file"), place.join("real/link"), place.join("real/fifo"));
        fs::write(&file, "text").unwrap();
        symlink(&file, &link).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, MODE, 0).unwrap();
        assert_eq!(read_text(&file, 4).unwrap(), "text");
        let why = |path: &Path| {
            let reads = read_text(path, 1000).map(drop).unwrap_err().to_string();
            (reads, write_to(path).map(drop).unwrap_err().to_string())
        };
        assert_eq!(why(&link), ("it is a link".to_owned(), "it is a link".to_owned()));
        for path in [&fifo, Path::new("/dev/zero")] {
            let both = "it is no regular file".to_owned();
            assert_eq!(why(path), (both.clone(), both));
        }
        assert_eq!(why(&place).0, "it is a directory");
        assert!(why(&place.join("real/../real/file")).0.contains("steps up"));
        assert!(read_text(&file, 3).unwrap_err().to_string().contains("at most 3"));
        // A link to a directory that the daemon's own user owns is followed.
        let way = place.join("way");
        symlink("real", &way).unwrap();
        assert_eq!(read_text(&way.join("file"), 4).unwrap(), "text");
        if geteuid().is_root() {
            lchown(&way, Some(1), Some(1)).unwrap();
            assert!(why(&way.join("file")).0.contains("`way` on its path is a link that user 1 made"));
            lchown(&file, Some(1), Some(1)).unwrap();
            assert!(write_to(&file).unwrap_err().to_string().contains("belongs to user 1"));
            lchown(&file, Some(0), Some(0)).unwrap();
        }
        let second = place.join("second");
        fs::hard_link(&file, &second).unwrap();
        assert!(write_to(&file).unwrap_err().to_string().contains("2 names"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        fs::remove_file(&second).unwrap();
        drop(write_to(&file).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "");
        drop(write_to(&place.join("new")).unwrap());
        fs::remove_dir_all(&place).unwrap();
    }
}
