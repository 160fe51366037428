//! One network namespace: made, entered and removed. Commands enter by `nsenter --net=`, because `ip netns exec`
//! remounts /sys and loses pinned BPF objects; our own threads enter by setns(2).

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{LabError, Process};

/// A named network namespace that goes away with its last handle, processes in it included.
#[derive(Clone, Debug)]
pub struct Namespace {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
}

impl Namespace {
    /// Makes the namespace with its loopback up and IPv6 autoconfiguration off.
    ///
    /// # Errors
    /// Whatever `ip netns add` says.
    pub fn create(name: &str) -> Result<Self, LabError> {
        run_command(Command::new("ip").args(["netns", "add", name]))?;
        let namespace = Namespace { inner: Arc::new(Inner { name: name.to_owned() }) };
        namespace.run(["ip", "link", "set", "lo", "up"])?;
        namespace.quiet_ipv6()?;
        Ok(namespace)
    }

    /// Devices that appear later send no router solicitations and no duplicate address detection: counters stay exact.
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

    /// Its name, as `ip netns` shows it.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The file that names it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(self.name())
    }

    /// A command line that runs inside, not yet started.
    pub fn command<S: AsRef<OsStr>>(&self, line: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display())).arg("--").args(line);
        command
    }

    /// Runs a command inside and gives its standard output.
    ///
    /// # Errors
    /// If it cannot be started or ends with an error.
    pub fn run<S: AsRef<OsStr>>(&self, line: impl IntoIterator<Item = S>) -> Result<String, LabError> {
        run_command(&mut self.command(line))
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts a command inside; it is killed when the handle goes away.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn<S: AsRef<OsStr>>(&self, line: impl IntoIterator<Item = S>) -> Result<Process, LabError> {
        Process::start(self.command(line))
    }

    /// Runs `work` on a thread of its own inside the namespace: sockets that it opens belong there for good.
    ///
    /// # Errors
    /// If the namespace is gone, or what `work` returns.
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

    /// Removes the namespace now, as a test of its loss; processes in it live on.
    ///
    /// # Errors
    /// Whatever `ip netns del` says.
    pub fn remove_name(&self) -> Result<(), LabError> {
        run_command(Command::new("ip").args(["netns", "del", self.name()])).map(drop)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Ends what still runs in a namespace of ours and removes it; silent, for a destructor and for remnants.
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

/// Runs a command to its end.
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

/// The command line as a person would type it.
pub(crate) fn describe(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}
