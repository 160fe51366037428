//! Who cleans up when the demo is killed: a small process that waits for the end of its standard input, which the demo
//! holds open for as long as it lives.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::demo::lab;
use crate::failure::Failure;

/// The waiting process, and the pipe that tells it of our end.
#[derive(Debug)]
pub struct Reaper {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Reaper {
    /// Starts it for the lab with this prefix.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(prefix: &str) -> Result<Reaper, Failure> {
        let failed = |error| Failure::new("demo", error, "raise the limit of processes");
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .args(["demo", "--reap", prefix])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for the demo, which ends in order and takes its reaper along.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let pipe = child.stdin.take();
        Ok(Reaper { child, pipe })
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // It finds nothing left, because the lab has removed everything before, and ends.
        self.pipe.take();
        let _ = self.child.wait();
    }
}

/// What the waiting process does.
pub fn run(prefix: &str) {
    let mut nothing = [0];
    while matches!(std::io::stdin().read(&mut nothing), Ok(read) if read > 0) {}
    if lab::is_prefix(prefix) {
        lab::remove_all(prefix);
    }
}
