//! Child processes whose output is collected line by line, so that tests can wait for a line. A process is killed when
//! its handle is dropped.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::LabError;

/// A running child process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    line: String,
    output: Arc<Lines>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Lines {
    seen: Mutex<Vec<String>>,
    more: Condvar,
}

impl Process {
    /// Starts `command` and collects its standard output and standard error.
    ///
    /// # Errors
    /// Returns an error if the command cannot be started.
    pub fn start(mut command: Command) -> Result<Self, LabError> {
        let line = describe(&command);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| LabError::Start { command: line.clone(), source })?;
        let output = Arc::new(Lines::default());
        let mut readers = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            readers.push(collect(stdout, Arc::clone(&output)));
        }
        if let Some(stderr) = child.stderr.take() {
            readers.push(collect(stderr, Arc::clone(&output)));
        }
        Ok(Process { child, line, output, readers })
    }

    /// Returns the process ID of the command. For a command in a namespace, `nsenter` replaces itself by the
    /// command, which keeps the process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that contains `part` and returns the line. The search starts at the beginning of the
    /// output.
    ///
    /// # Errors
    /// Returns an error if `timeout` has elapsed, or if the process has ended without printing the line. The
    /// error contains the output so far.
    pub fn wait_for_line(&mut self, part: &str, timeout: Duration) -> Result<String, LabError> {
        let deadline = Instant::now() + timeout;
        let mut from = 0;
        loop {
            {
                let seen = self.output.seen.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(line) = seen[from..].iter().find(|line| line.contains(part)) {
                    return Ok(line.clone());
                }
                from = seen.len();
                let nap = deadline.saturating_duration_since(Instant::now()).min(Duration::from_millis(50));
                if nap.is_zero() {
                    drop(seen);
                    return Err(self.missing(part, timeout));
                }
                let _woken = self.output.more.wait_timeout(seen, nap);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                self.join_readers();
                let text = self.output();
                return match text.lines().find(|line| line.contains(part)) {
                    Some(line) => Ok(line.to_owned()),
                    None => Err(LabError::Failed {
                        command: self.line.clone(),
                        status: format!("{status} before it printed '{part}'"),
                        output: text,
                    }),
                };
            }
        }
    }

    fn missing(&self, part: &str, timeout: Duration) -> LabError {
        LabError::TimedOut {
            what: format!("a line with '{part}' from '{}'", self.line),
            seconds: timeout.as_secs_f64(),
            detail: format!(", it printed:\n{}", self.output()),
        }
    }

    /// Returns the output so far: the lines of standard output and standard error in order of arrival.
    pub fn output(&self) -> String {
        self.output.seen.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }

    /// Returns whether the process is running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// Returns an error if the process has ended.
    pub fn signal(&self, signal: Signal) -> Result<(), LabError> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal)
            .map_err(|source| LabError::system(format!("signalling '{}'", self.line), source))
    }

    /// Waits for the process to end, and returns its exit status and output.
    ///
    /// # Errors
    /// Returns an error if the process still runs when `timeout` has elapsed. The process is then killed.
    pub fn finish(mut self, timeout: Duration) -> Result<(ExitStatus, String), LabError> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    self.join_readers();
                    return Ok((status, self.output()));
                }
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                Ok(None) => {
                    let what = format!("the end of '{}'", self.line);
                    let detail = format!(", it printed:\n{}", self.output());
                    return Err(LabError::TimedOut { what, seconds: timeout.as_secs_f64(), detail });
                }
                Err(source) => return Err(LabError::system(format!("waiting for '{}'", self.line), source)),
            }
        }
    }

    /// Sends `signal` to the process and waits for the process to end.
    ///
    /// # Errors
    /// Returns an error under the conditions of [`Process::finish`].
    pub fn stop(self, signal: Signal, timeout: Duration) -> Result<(ExitStatus, String), LabError> {
        // If the process has already ended, finish() reports its status.
        let _ = self.signal(signal);
        self.finish(timeout)
    }

    fn join_readers(&mut self) {
        // A grandchild may hold the pipe open, so the wait is bounded.
        let deadline = Instant::now() + Duration::from_secs(1);
        for reader in self.readers.drain(..) {
            while !reader.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(stream: impl Read + Send + 'static, lines: Arc<Lines>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut bytes = Vec::new();
        while matches!(reader.read_until(b'\n', &mut bytes), Ok(read) if read > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            lines.seen.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            lines.more.notify_all();
            bytes.clear();
        }
    })
}

/// Returns the command line as text.
pub(crate) fn describe(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command).unwrap()
    }

    #[test]
    fn a_line_is_awaited() {
        let mut process = shell("echo one; echo two >&2; exec sleep 60");
        assert_eq!(process.wait_for_line("tw", Duration::from_secs(5)).unwrap(), "two");
        assert!(process.is_running());
        let (status, _) = process.stop(Signal::TERM, Duration::from_secs(5)).unwrap();
        assert!(!status.success());
    }

    #[test]
    fn an_early_end_is_told_with_the_output() {
        let mut process = shell("echo 'no such port'; exit 3");
        let error = process.wait_for_line("ready", Duration::from_secs(5)).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("no such port"), "{error}");
    }
}
