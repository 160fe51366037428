//! Starts and controls FRR's daemons in tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use testbed::{Namespace, Process, eventually};

use super::{PATIENCE, Rig};

/// FRR's daemons in one namespace, with sockets and files in a separate directory.
pub struct Frr {
    directory: PathBuf,
    namespace: Namespace,
    daemons: BTreeMap<&'static str, Process>,
    /// Additional arguments of zebra.
    zebra: Vec<String>,
}

impl Frr {
    /// Starts zebra and these daemons with their configurations.
    pub fn start(rig: &Rig, namespace: &Namespace, name: &str, daemons: &[(&'static str, &str)]) -> Frr {
        Frr::start_with(rig, namespace, name, ("", &[]), daemons)
    }

    /// Like [`Frr::start`], with a configuration and additional arguments of zebra.
    pub fn start_with(
        rig: &Rig,
        namespace: &Namespace,
        name: &str,
        (configuration, options): (&str, &[&str]),
        daemons: &[(&'static str, &str)],
    ) -> Frr {
        let directory = rig.path(name);
        // FRR's daemons run as the user that the package creates.
        let made = Command::new("install")
            .args(["-d", "-m", "755", "-o", "frr", "-g", "frr"])
            .arg(&directory)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let zebra = options.iter().map(|option| (*option).to_owned()).collect();
        let mut frr = Frr { directory, namespace: namespace.clone(), daemons: BTreeMap::new(), zebra };
        for (daemon, configuration) in [("zebra", configuration)].iter().chain(daemons) {
            std::fs::write(frr.path(&format!("{daemon}.conf")), configuration).unwrap();
            frr.run(daemon);
        }
        frr
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Starts a daemon and waits until it accepts commands.
    pub fn run(&mut self, daemon: &'static str) {
        let path = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let (program, file, pid) = (
            format!("/usr/lib/frr/{daemon}"),
            path(&format!("{daemon}.conf")),
            path(&format!("{daemon}.pid")),
        );
        let line = [
            program.as_str(),
            "-f",
            &file,
            "-i",
            &pid,
            "-z",
            &path("zserv.api"),
            "--vty_socket",
            &path(""),
            // Telnet is disabled.
            "-P",
            "0",
            "--log",
            "stdout",
        ]
        .map(str::to_owned);
        let more = self.zebra.iter().filter(|_| daemon == "zebra").cloned();
        let mut process = self.namespace.spawn(line.into_iter().chain(more)).unwrap();
        process.wait_for_line("starting", PATIENCE).unwrap();
        self.daemons.insert(daemon, process);
        eventually(&format!("{daemon} answers"), PATIENCE, || self.tell(daemon, &["show version"])).unwrap();
    }

    /// Executes commands on a daemon, one after the other.
    pub fn tell(&self, daemon: &str, commands: &[impl AsRef<str>]) -> Result<String, String> {
        let mut vtysh = Command::new("vtysh");
        vtysh.arg("--vty_socket").arg(&self.directory).args(["-d", daemon]);
        for command in commands {
            vtysh.args(["-c", command.as_ref()]);
        }
        let output = vtysh.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    }

    /// Kills a daemon with SIGKILL, so that it ends without an orderly shutdown.
    pub fn kill(&mut self, daemon: &str) {
        let process = self.daemons.remove(daemon).unwrap();
        let pid = process.pid();
        drop(process);
        forget(daemon, pid);
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        for (daemon, process) in std::mem::take(&mut self.daemons) {
            let pid = process.pid();
            if std::thread::panicking() {
                eprintln!("{} in {}:\n{}", daemon, self.directory.display(), process.output());
            }
            drop(process);
            forget(daemon, pid);
        }
    }
}

/// Removes the crash log directory of a daemon.
fn forget(daemon: &str, pid: u32) {
    let _ = std::fs::remove_dir_all(Path::new("/var/tmp/frr").join(format!("{daemon}.{pid}")));
}
