//! Clean-up after a killed demo. The clean-up process waits until its standard input ends. The
//! standard input is a pipe that the demo keeps open while the demo runs.

use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use cli::failure::Failure;

/// The clean-up process, and the pipe to it. The kernel closes the pipe when the demo ends.
#[derive(Debug)]
pub struct Reaper {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Reaper {
    /// Starts the clean-up process for the lab whose namespace names have this prefix.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(prefix: &str) -> Result<Reaper, Failure> {
        let failed = |error| Failure::new("demo", error, "raise the limit of processes");
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .args(["demo", "--reap", prefix])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is delivered to the demo only, which ends the clean-up process after an orderly
            // clean-up.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let pipe = child.stdin.take();
        Ok(Reaper { child, pipe })
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // The lab has already removed everything, so the process finds nothing and ends.
        self.pipe.take();
        let _ = self.child.wait();
    }
}
