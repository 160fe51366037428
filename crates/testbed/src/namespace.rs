//! Network namespaces: creation, entering and removal. Commands enter a namespace with `nsenter --net=`, because `ip
//! netns exec` remounts /sys and thereby loses pinned BPF objects. Threads of a test enter a namespace with setns(2).

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::describe;
use crate::{LabError, Process};

/// Handle of a named network namespace. When the last handle is dropped, the processes in the namespace are
/// killed and the namespace is removed.
#[derive(Clone, Debug)]
pub struct Namespace {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
}

impl Namespace {
    /// Creates the namespace `name`. The loopback device is up, and IPv6 is disabled by default.
    ///
    /// # Errors
    /// Returns the error of `ip netns add`.
    pub fn create(name: &str) -> Result<Self, LabError> {
        run_command(Command::new("ip").args(["netns", "add", name]))?;
        let namespace = Namespace { inner: Arc::new(Inner { name: name.to_owned() }) };
        namespace.run(["ip", "link", "set", "lo", "up"])?;
        namespace.quiet_ipv6()?;
        Ok(namespace)
    }

    /// Disables IPv6 on the devices of the namespace, so that they send no router solicitations and do no duplicate
    /// address detection. Otherwise these packets would change counters that tests compare. Also disables reverse path
    /// filtering.
    fn quiet_ipv6(&self) -> Result<(), LabError> {
        self.run([
            "sysctl",
            "-qw",
            "net.ipv6.conf.all.disable_ipv6=1",
            "net.ipv6.conf.default.disable_ipv6=1",
            "net.ipv4.conf.all.rp_filter=0",
            "net.ipv4.conf.default.rp_filter=0",
        ])
        .map(drop)
    }

    /// Returns the name of the namespace, as `ip netns` lists it.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the path of the file that represents the namespace.
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(self.name())
    }

    /// Returns a command that will run the command line `line` in the namespace. The command is not started.
    pub fn command<S: AsRef<OsStr>>(&self, line: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display())).arg("--").args(line);
        command
    }

    /// Runs a command in the namespace and returns its standard output.
    ///
    /// # Errors
    /// Returns an error if the command cannot be started or exits with an error.
    pub fn run<S: AsRef<OsStr>>(&self, line: impl IntoIterator<Item = S>) -> Result<String, LabError> {
        run_command(&mut self.command(line))
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts a command in the namespace. The process is killed when the handle is dropped.
    ///
    /// # Errors
    /// Returns an error if the command cannot be started.
    pub fn spawn<S: AsRef<OsStr>>(&self, line: impl IntoIterator<Item = S>) -> Result<Process, LabError> {
        Process::start(self.command(line))
    }

    /// Calls `work` on a new thread in the namespace. Sockets that `work` opens remain in the namespace.
    ///
    /// # Errors
    /// Returns an error if the namespace does not exist, or the error that `work` returns.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T, LabError> + Send) -> Result<T, LabError> {
        let enter = || {
            let file = File::open(self.path())?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(())
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                enter().map_err(|source: std::io::Error| {
                    LabError::system(format!("entering namespace {}", self.name()), source)
                })?;
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Removes the name of the namespace, to test the loss of a namespace. Processes in the namespace continue to run.
    ///
    /// # Errors
    /// Returns the error of `ip netns del`.
    pub fn remove_name(&self) -> Result<(), LabError> {
        run_command(Command::new("ip").args(["netns", "del", self.name()])).map(drop)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Kills the processes in a namespace of a lab and removes the namespace. Errors are ignored, because the
/// function is called in destructors and for namespaces of killed tests.
pub(crate) fn remove(name: &str) {
    let quiet =
        |args: &[&str]| Command::new("ip").args(args).stdin(Stdio::null()).stderr(Stdio::null()).output();
    if let Ok(output) = quiet(&["netns", "pids", name]) {
        for pid in String::from_utf8_lossy(&output.stdout).split_whitespace() {
            if let Some(pid) = pid.parse().ok().and_then(rustix::process::Pid::from_raw)
                && pid != rustix::process::getpid()
            {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
    let _ = quiet(&["netns", "del", name]);
}

/// Runs a command until it exits, and returns its output.
pub(crate) fn run_command(command: &mut Command) -> Result<Output, LabError> {
    let line = describe(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| LabError::Start { command: line.clone(), source })?;
    if output.status.success() {
        return Ok(output);
    }
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    Err(LabError::Failed { command: line, status: output.status.to_string(), output: text })
}
