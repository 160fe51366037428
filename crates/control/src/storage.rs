//! Storage of the API's persistent objects in one file. The file is replaced completely or not at all.
//!
//! New content is first written and synchronized to a temporary file in the same directory, so that a full
//! disk is detected before anything changes. The temporary file is then renamed into place.
//!
//! An unreadable file never prevents the daemon from starting. The file is renamed to `NAME.damaged`, so that
//! the operator can repair it, and the daemon starts without the stored objects.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use model::{DoctorFinding, Finding, Fragment, StoredError};

/// Name of the temporary file that the daemon writes to test whether the state directory is writable.
const PROBE: &str = "write-probe";
/// Maximum length of the file with the API's persistent objects, in bytes.
const LIMIT_BYTES: u64 = 16 << 20;

/// Reason why the persistent objects could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The file of persistent objects or its directory cannot be written.
    #[error("{}: it cannot be written: {source}; {}", path.display(), write_fix(source))]
    Write {
        /// Path of the file that cannot be written.
        path: PathBuf,
        /// Error that the operating system returned.
        source: io::Error,
    },
    /// The file of persistent objects cannot be read.
    #[error("{}: it cannot be read: {source}; let the daemon read it, or move it away", path.display())]
    Read {
        /// Path of the file that cannot be read.
        path: PathBuf,
        /// Error that the operating system returned.
        source: io::Error,
    },
    /// The file does not contain valid persistent objects.
    #[error("{}: {source}; {CONTENT_FIX}", path.display())]
    Content {
        /// Path of the file with invalid content.
        path: PathBuf,
        /// Kind of the defect in the content of the file.
        source: StoredError,
    },
}

const CONTENT_FIX: &str = "mend it, or move it away to start without the objects of the API";

/// Suffix that is appended to the name of an unreadable state file.
const DAMAGED: &str = ".damaged";

/// Appends a suffix to the name of an unreadable state file, and returns the new path. An unreadable file
/// that was renamed earlier is replaced.
///
/// # Errors
///
/// Returns an error if the file cannot be renamed. The file then keeps its name, and the next write replaces
/// it.
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
        io::ErrorKind::FileTooLarge => {
            "remove some persistent objects, or make this one without `persist`; nothing was changed"
        }
        _ => "look at daemon.state_dir",
    }
}

impl StorageError {
    /// Returns the path of the affected file as text.
    pub fn object(&self) -> String {
        match self {
            StorageError::Write { path, .. }
            | StorageError::Read { path, .. }
            | StorageError::Content { path, .. } => path.display().to_string(),
        }
    }

    /// Returns the cause of the error.
    pub fn cause(&self) -> String {
        match self {
            StorageError::Write { source, .. } => format!("it cannot be written: {source}"),
            StorageError::Read { source, .. } => format!("it cannot be read: {source}"),
            StorageError::Content { source, .. } => source.to_string(),
        }
    }

    /// Returns the remedy for the error.
    pub fn fix(&self) -> &'static str {
        match self {
            StorageError::Write { source, .. } => write_fix(source),
            StorageError::Read { .. } => "let the daemon read it, or move it away",
            StorageError::Content { .. } => CONTENT_FIX,
        }
    }
}

/// The file of the API's persistent objects.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    path: PathBuf,
}

/// New content of the file of persistent objects, which has been written to a temporary file on disk. If this value is
/// dropped without a call of [`Prepared::commit`], the temporary file is removed.
#[derive(Debug)]
pub(crate) struct Prepared {
    temporary: PathBuf,
    path: PathBuf,
}

impl Storage {
    pub fn new(state_dir: &Path) -> Self {
        Storage { path: state_dir.join("api-objects.json") }
    }

    /// Reads the persistent objects from the file. Returns no objects if the file does not exist.
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

    /// Reads the persistent objects from the file. If the file is unreadable, the function renames it, and
    /// returns no objects and a finding for the operator.
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

    /// Tests whether the state directory is writable, by writing to a temporary file.
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

    /// Writes `objects` to a temporary file in the directory of the stored file, and synchronizes the temporary file to
    /// disk. Refuses objects whose text is longer than [`Storage::read`] accepts.
    pub fn prepare(&self, objects: &Fragment) -> Result<Prepared, StorageError> {
        let text = objects.to_json();
        if u64::try_from(text.len()).is_ok_and(|length| length > LIMIT_BYTES) {
            let source = io::Error::new(
                io::ErrorKind::FileTooLarge,
                "all persistent objects together are longer than 16 MiB",
            );
            return Err(StorageError::Write { path: self.path.clone(), source });
        }
        let temporary = self.path.with_extension("json.new");
        let prepared = Prepared { temporary, path: self.path.clone() };
        let write = || {
            if let Some(directory) = self.path.parent() {
                make_directory(directory)?;
            }
            let mut options = OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&prepared.temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(|source| StorageError::Write { path: self.path.clone(), source })?;
        Ok(prepared)
    }
}

/// Creates a directory with its parents, and synchronizes the entries of the new directories to disk.
fn make_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        make_directory(parent)?;
    }
    fs::create_dir_all(directory)?;
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

impl Prepared {
    /// Renames the temporary file, so that it replaces the stored file, and synchronizes the directory to disk.
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
        // After a commit, the temporary file no longer exists.
        let _ = fs::remove_file(&self.temporary);
    }
}
