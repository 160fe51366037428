//! Objects of the API on disk: one file that is replaced whole or not at all.
//!
//! A new content is written beside the old and reaches the disk before anything else happens, so that a full disk is
//! noticed while nothing has changed; only then is it renamed into place.
//!
//! A file that cannot be read never keeps the daemon from starting. It is renamed to `NAME.damaged`, so that nothing overwrites what an
//! operator may mend, and the daemon starts without what it held.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use model::{DoctorFinding, Finding, Fragment, StoredError};

/// The file that is written and removed to find out whether the state directory can be written.
const PROBE: &str = "write-probe";
/// Longest file of stored objects that is read, in bytes.
const LIMIT_BYTES: u64 = 16 << 20;

/// Why objects could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The file or its directory cannot be written.
    #[error("{}: it cannot be written: {source}; {}", path.display(), write_fix(source))]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file cannot be read.
    #[error("{}: it cannot be read: {source}; let the daemon read it, or move it away", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file does not hold stored objects.
    #[error("{}: {source}; {CONTENT_FIX}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: StoredError,
    },
}

const CONTENT_FIX: &str = "mend it, or move it away to start without the objects of the API";

/// How the name of a file ends that was put aside because it could not be read.
const DAMAGED: &str = ".damaged";

/// Renames a file of state that cannot be read, over one that was put aside before; where it stands now.
///
/// # Errors
/// If it cannot be renamed: it stays where it is, and the next thing that is stored replaces it.
pub fn put_aside(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(DAMAGED);
    let aside = PathBuf::from(name);
    fs::rename(path, &aside)?;
    Ok(aside)
}

fn write_fix(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room on its disk; nothing was changed"
        }
        io::ErrorKind::PermissionDenied => "let the daemon write there, or change daemon.state_dir",
        io::ErrorKind::ReadOnlyFilesystem => "choose a directory that can be written as daemon.state_dir",
        _ => "look at daemon.state_dir",
    }
}

impl StorageError {
    /// The file.
    pub fn object(&self) -> String {
        match self {
            StorageError::Write { path, .. }
            | StorageError::Read { path, .. }
            | StorageError::Content { path, .. } => path.display().to_string(),
        }
    }

    /// What is wrong.
    pub fn cause(&self) -> String {
        match self {
            StorageError::Write { source, .. } => format!("it cannot be written: {source}"),
            StorageError::Read { source, .. } => format!("it cannot be read: {source}"),
            StorageError::Content { source, .. } => source.to_string(),
        }
    }

    /// What to do about it.
    pub fn fix(&self) -> &'static str {
        match self {
            StorageError::Write { source, .. } => write_fix(source),
            StorageError::Read { .. } => "let the daemon read it, or move it away",
            StorageError::Content { .. } => CONTENT_FIX,
        }
    }
}

/// The file of stored objects.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    path: PathBuf,
}

/// A content that is on disk but not yet in place; goes away unless it is put there.
#[derive(Debug)]
pub(crate) struct Prepared {
    temporary: PathBuf,
    path: PathBuf,
}

impl Storage {
    pub fn new(state_dir: &Path) -> Self {
        Storage { path: state_dir.join("api-objects.json") }
    }

    /// The stored objects; none where there is no file.
    pub fn read(&self) -> Result<Fragment, StorageError> {
        let failed = |source| StorageError::Read { path: self.path.clone(), source };
        let length = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Fragment::default()),
            Err(error) => return Err(failed(error)),
            Ok(metadata) => metadata.len(),
        };
        if length > LIMIT_BYTES {
            return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 16 MiB")));
        }
        let text = fs::read_to_string(&self.path).map_err(failed)?;
        Fragment::from_json(&text).map_err(|source| StorageError::Content { path: self.path.clone(), source })
    }

    /// The stored objects. A file that cannot be read is put aside, and the finding says so.
    pub fn read_or_put_aside(&self) -> (Fragment, Option<DoctorFinding>) {
        let error = match self.read() {
            Ok(stored) => return (stored, None),
            Err(error) => error,
        };
        let lost = format!("{}; the daemon runs without the objects of the API that it held", error.cause());
        let (finding, fix) = match put_aside(&self.path) {
            Ok(aside) => (
                lost,
                format!(
                    "mend {0}, stop the daemon, rename {0} to {1} and start the daemon, or remove {0}",
                    aside.display(),
                    self.path.display()
                ),
            ),
            Err(why) => (format!("{lost}; it could not be put aside: {why}"), error.fix().to_owned()),
        };
        let object = error.object();
        (Fragment::default(), Some(DoctorFinding { object, severity: Finding::Error, finding, fix }))
    }

    /// Finds out whether the state directory can be written, by writing a page beside the stored objects.
    pub fn probe(&self) -> Result<(), StorageError> {
        let path = self.path.with_file_name(PROBE);
        let write = || {
            if let Some(directory) = path.parent() {
                fs::create_dir_all(directory)?;
            }
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            file.write_all(&[0; 4096])?;
            file.sync_all()
        };
        let written = write();
        let _ = fs::remove_file(&path);
        written.map_err(|source| StorageError::Write { path, source })
    }

    /// Brings a new content to the disk, beside the old one.
    pub fn prepare(&self, objects: &Fragment) -> Result<Prepared, StorageError> {
        let temporary = self.path.with_extension("json.new");
        let prepared = Prepared { temporary, path: self.path.clone() };
        let write = || {
            if let Some(directory) = self.path.parent() {
                fs::create_dir_all(directory)?;
            }
            let mut options = OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&prepared.temporary)?;
            file.write_all(objects.to_json().as_bytes())?;
            file.sync_all()
        };
        write().map_err(|source| StorageError::Write { path: self.path.clone(), source })?;
        Ok(prepared)
    }
}

impl Prepared {
    /// Puts the content in place.
    pub fn commit(self) -> Result<(), StorageError> {
        let rename = || {
            fs::rename(&self.temporary, &self.path)?;
            match self.path.parent() {
                Some(directory) => File::open(directory)?.sync_all(),
                None => Ok(()),
            }
        };
        rename().map_err(|source| StorageError::Write { path: self.path.clone(), source })
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // After a commit there is nothing left to remove.
        let _ = fs::remove_file(&self.temporary);
    }
}
