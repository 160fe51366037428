//! Runs a real `ovsdb-server` with the schema of Open vSwitch in a directory of its own, and runs `ovs-vsctl` commands
//! on its database.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::namespace::run_command;
use crate::{LabError, Process, eventually};

/// Path of the schema file in Debian's package.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Maximum time in which the server starts or stops on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// An OVSDB server. Dropping this value stops the server and removes its directory.
#[derive(Debug)]
pub struct OvsdbServer {
    directory: PathBuf,
    remotes: Vec<String>,
    process: Option<Process>,
}

impl OvsdbServer {
    /// Creates a database with one empty Open_vSwitch row in `directory`, which must not contain a database,
    /// and starts the server.
    ///
    /// # Errors
    /// Returns an error if the package is not installed, or the server does not start.
    pub fn start(directory: &Path) -> Result<Self, LabError> {
        Self::start_with(directory, Path::new(SCHEMA), &[])
    }

    /// Like [`OvsdbServer::start`], with a different schema file and with the additional listening addresses `remotes`
    /// (for example `ptcp:0:127.0.0.1`).
    ///
    /// # Errors
    /// Returns an error under the conditions of [`OvsdbServer::start`].
    pub fn start_with(directory: &Path, schema: &Path, remotes: &[&str]) -> Result<Self, LabError> {
        std::fs::create_dir_all(directory)
            .map_err(|source| LabError::system(format!("making {}", directory.display()), source))?;
        let remotes = remotes.iter().map(|remote| format!("--remote={remote}")).collect();
        let mut server = OvsdbServer { directory: directory.to_owned(), remotes, process: None };
        run_command(Command::new("ovsdb-tool").arg("create").arg(server.path("conf.db")).arg(schema))?;
        server.resume()?;
        server.vsctl(["--no-wait", "init"])?;
        Ok(server)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns the path of the server's Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.path("db.sock")
    }

    /// Returns the connection method of the server, in the form that the option `--db` and the configuration
    /// use.
    pub fn target(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// Stops the server. The database is kept.
    ///
    /// # Errors
    /// Returns an error if the server does not stop.
    pub fn halt(&mut self) -> Result<(), LabError> {
        match self.process.take() {
            Some(process) => process.stop(Signal::TERM, PATIENCE).map(drop),
            None => Ok(()),
        }
    }

    /// Starts the server again with the existing database.
    ///
    /// # Errors
    /// Returns an error if the server does not start.
    pub fn resume(&mut self) -> Result<(), LabError> {
        let option = |name: &str, path: PathBuf| format!("--{name}={}", path.display());
        let mut command = Command::new("ovsdb-server");
        command
            .arg(self.path("conf.db"))
            .arg(format!("--remote=punix:{}", self.socket().display()))
            .args(&self.remotes)
            .arg(option("unixctl", self.path("ovsdb.ctl")))
            .arg(option("log-file", self.path("ovsdb.log")))
            .arg("-vconsole:off");
        let process = Process::start(command)?;
        let answers = || run_command(&mut self.appctl_command("version")).map_err(|error| error.to_string());
        eventually("an answer of ovsdb-server", PATIENCE, answers)?;
        self.process = Some(process);
        Ok(())
    }

    fn appctl_command(&self, method: &str) -> Command {
        let mut command = Command::new("ovs-appctl");
        command.arg("-T").arg("10").arg("-t").arg(self.path("ovsdb.ctl")).arg(method);
        command
    }

    /// Runs `ovs-vsctl` with `arguments` and returns its output. Without `--no-wait`, the command waits until the
    /// daemon that is connected to the database has applied the changes.
    ///
    /// # Errors
    /// Returns an error if the command fails, or takes more than twenty seconds.
    pub fn vsctl<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String, LabError> {
        let mut command = Command::new("ovs-vsctl");
        command.arg(format!("--db={}", self.target())).arg("--timeout=20").args(arguments);
        let output = run_command(&mut command)?;
        let text = [output.stdout, output.stderr].concat();
        Ok(String::from_utf8_lossy(&text).trim().to_owned())
    }
}

impl Drop for OvsdbServer {
    fn drop(&mut self) {
        let _ = self.halt();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
