//! Checks of the program file that an upgrade starts in place of the running daemon.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use axum::http::StatusCode;

use crate::error::{ApiError, ApiResult};

/// File mode bits that permit users other than the owner to write.
const OTHERS_WRITE: u32 = 0o022;
/// Sticky bit of a directory, which permits only the owner of a file to remove or rename it.
const STICKY: u32 = 0o1000;

/// Checks that a program file for an upgrade exists and is executable.
///
/// # Errors
///
/// Returns an error if the file does not exist or is not executable.
pub(super) fn existing(path: &Path) -> ApiResult<()> {
    let metadata = fs::metadata(path).map_err(|error| unusable(path, &error))?;
    is_program(path, &metadata)
}

/// Returns the canonical path of a program file for an upgrade. The function checks that only root (or the daemon's own
/// user) can change the file and each directory above it.
///
/// # Errors
///
/// Returns an error if the file does not exist, or if another user could replace it.
pub(super) fn trusted(path: &Path) -> ApiResult<PathBuf> {
    if !path.is_absolute() {
        let cause = format!("{:?} is not a path from the root", path.display().to_string());
        return Err(refused(cause, "give the whole path of the program"));
    }
    let whole = fs::canonicalize(path).map_err(|error| unusable(path, &error))?;
    let own = rustix::process::geteuid().as_raw();
    for part in whole.ancestors() {
        let metadata = fs::symlink_metadata(part).map_err(|error| unusable(part, &error))?;
        if part == whole {
            is_program(part, &metadata)?;
        }
        let fix = "install it where only root writes, such as /usr/local/sbin (`install -o root -m 755`)";
        if metadata.uid() != 0 && metadata.uid() != own {
            let cause = format!("{} belongs to user {}, not to root", part.display(), metadata.uid());
            return Err(refused(cause, fix));
        }
        // If a directory is sticky, only the owner of a file can replace the file, and the owner has already been
        // checked.
        let sticky = metadata.is_dir() && metadata.mode() & STICKY != 0;
        if metadata.mode() & OTHERS_WRITE != 0 && !sticky {
            let mode = metadata.mode() & 0o7777;
            let cause = format!("others than root may write {} (mode {mode:o})", part.display());
            return Err(refused(cause, fix));
        }
    }
    Ok(whole)
}

fn is_program(path: &Path, metadata: &Metadata) -> ApiResult<()> {
    if metadata.is_file() && metadata.mode() & 0o111 != 0 {
        return Ok(());
    }
    let cause = format!("{} is not a program", path.display());
    Err(refused(cause, "name a file that can be executed"))
}

fn unusable(path: &Path, error: &io::Error) -> ApiError {
    refused(format!("{}: {error}", path.display()), "check the path of the program")
}

fn refused(cause: String, fix: &str) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "upgrade", cause, fix)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_that_others_can_change_is_refused() {
        let place = std::env::temp_dir().join(format!("trivium-program-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(&place, 0o755);
        let program = place.join("program");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        let why = |path: &Path| trusted(path).map_err(|error| error.body.cause);
        mode(&program, 0o644);
        assert!(why(&program).unwrap_err().contains("not a program"));
        mode(&program, 0o755);
        assert!(trusted(&program).is_ok());
        let link = place.join("link");
        std::os::unix::fs::symlink(&program, &link).unwrap();
        assert_eq!(why(&link).unwrap(), fs::canonicalize(&program).unwrap(), "the file itself is started");
        mode(&program, 0o775);
        assert!(why(&program).unwrap_err().contains("(mode 775)"));
        mode(&program, 0o755);
        mode(&place, 0o777);
        assert!(why(&program).unwrap_err().contains("(mode 777)"));
        mode(&place, 0o755);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&program, Some(1), None).unwrap();
            assert!(why(&program).unwrap_err().contains("belongs to user 1"));
        }
        assert!(why(&place.join("nothing")).unwrap_err().contains("No such file"));
        assert!(why(Path::new("program")).unwrap_err().contains("from the root"));
        fs::remove_dir_all(&place).unwrap();
    }
}
