//! Daemon of the demo. The demo starts its own program as a child process in the daemon's network namespace (the hub).
//! The log is written to a file.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::lab::Lab;
use cli::failure::Failure;

/// Maximum time to wait for the start or the end of the daemon.
const PATIENCE: Duration = Duration::from_secs(15);

/// The daemon process of the demo.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    /// Starts the daemon and waits until it is ready.
    ///
    /// # Errors
    /// The daemon does not start. The failure contains the end of the daemon's log.
    pub fn start(lab: &Lab) -> Result<Daemon, Failure> {
        let (file, log) = (lab.directory().join("trivium.toml"), lab.directory().join("log"));
        let failed = |path: &Path| {
            let object = path.display().to_string();
            move |error: std::io::Error| Failure::new(object.clone(), error, "make room in /run")
        };
        fs::write(&file, lab.configuration()).map_err(failed(&file))?;
        let output = File::create(&log).map_err(failed(&log))?;
        let errors = output.try_clone().map_err(failed(&log))?;
        let program = std::env::current_exe().map_err(failed(&file))?;
        let child = Lab::command(&lab.hub(), &program.display().to_string())
            .args(["run", "--config"])
            .arg(&file)
            .env_remove("NOTIFY_SOCKET")
            .stdout(Stdio::from(output))
            .stderr(Stdio::from(errors))
            .process_group(0)
            .spawn()
            .map_err(|error| Failure::new("demo", error, "raise the limit of processes"))?;
        let mut daemon = Daemon { child, socket: lab.directory().join("trivium.sock") };
        daemon.wait(&log)?;
        Ok(daemon)
    }

    /// Returns the path of the daemon's API socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Waits until the daemon reports in its log that it is ready.
    fn wait(&mut self, log: &Path) -> Result<(), Failure> {
        let begin = Instant::now();
        loop {
            let text = fs::read_to_string(log).unwrap_or_default();
            if text.contains("ready: ") && self.socket.exists() {
                return Ok(());
            }
            let ended = matches!(self.child.try_wait(), Ok(Some(_)));
            if ended || begin.elapsed() > PATIENCE {
                let cause = if ended { "the daemon has ended" } else { "the daemon is not ready in time" };
                let lines: Vec<&str> = text.lines().rev().take(12).collect();
                let tail: Vec<&str> = lines.into_iter().rev().collect();
                return Err(Failure::new("demo", format!("{cause}:\n{}", tail.join("\n")), ""));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
