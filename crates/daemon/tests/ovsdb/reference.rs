//! A real `ovs-vswitchd` that runs beside the daemon, with a bridge on dummy devices. Tests compare the answers of both
//! to `ovs-appctl`.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use testbed::{OvsdbServer, Process};

use super::appctl;
use super::rig::{PATIENCE, Rig};

/// The reference `ovs-vswitchd`, which is stopped when this value is dropped.
pub struct Reference {
    directory: PathBuf,
    pub server: OvsdbServer,
    daemon: Option<Process>,
}

impl Reference {
    /// Starts `ovs-vswitchd` with the bridge br0 and the given ports, which are numbered from 1 in this order.
    pub fn start(rig: &Rig, ports: &[&str]) -> Reference {
        let directory = rig.path("reference");
        let server = OvsdbServer::start(&directory).unwrap();
        let mut command = Command::new("ovs-vswitchd");
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(variable, &directory);
        }
        command.arg(server.target()).args(["--enable-dummy=override", "--disable-system", "-vconsole:off"]);
        command.args(["--log-file", "--no-chdir"]);
        command.arg(format!("--unixctl={}", directory.join("vswitchd.ctl").display()));
        let daemon = Process::start(command).unwrap();
        let reference = Reference { directory, server, daemon: Some(daemon) };
        let mut line = "add-br br0 -- set bridge br0 datapath_type=dummy".to_owned();
        for (port, number) in ports.iter().zip(1..) {
            line += &format!(
                " -- add-port br0 {port} -- set interface {port} type=dummy ofport_request={number}"
            );
        }
        reference.server.vsctl(line.split(' ')).unwrap();
        reference
    }

    pub fn appctl(&self, arguments: &[&str]) -> Result<String, String> {
        appctl(&self.directory.join("vswitchd.ctl"), arguments)
    }

    /// Returns the address of br0 for `ovs-ofctl`.
    pub fn bridge(&self) -> String {
        format!("unix:{}", self.directory.join("br0.mgmt").display())
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            let _ = daemon.stop(Signal::TERM, PATIENCE);
        }
    }
}
