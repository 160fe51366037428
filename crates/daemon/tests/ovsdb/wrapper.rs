//! Tests the script `contrib/ovs-vswitchd`: the paths of the files that it uses, and its checks of the directories of
//! these files.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

use testbed::{eventually, require};

use super::rig::{PATIENCE, TRIVIUM};
use super::{Switch, appctl};

const WRAPPER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/ovs-vswitchd");

/// Runs the wrapper script in the hub with these arguments and environment variables. The names of the variables are
/// given without the prefix `OVS_`.
fn wrapper(switch: &Switch, variables: &[(&str, &Path)], arguments: &[&str]) -> Output {
    let line = [&[WRAPPER, "--detach"], arguments].concat();
    let mut command = switch.rig.lab.hub().command(line);
    for name in ["RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR"] {
        command.env_remove(format!("OVS_{name}"));
    }
    for (name, path) in variables {
        command.env(format!("OVS_{name}"), path);
    }
    command.env("TRIVIUM", TRIVIUM).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Ends the daemon whose process ID is in the PID file.
fn end(pidfile: &Path, control: &Path) {
    assert!(appctl(control, &["version"]).unwrap().contains("Trivium"));
    appctl(control, &["exit"]).unwrap();
    eventually("its end", PATIENCE, || if pidfile.exists() { Err(String::new()) } else { Ok(()) }).unwrap();
}

#[test]
fn files_are_where_the_variables_say() {
    require!("ovs-vsctl", "ovsdb-server", "ovs-appctl", "bash");
    let switch = Switch::new(1);
    let (here, target) = (switch.rig.path("one"), switch.server.target());
    std::fs::create_dir(&here).unwrap();
    // One directory for all files, as in Open vSwitch's tests, with a settings file and an option whose value
    // is the next word.
    std::fs::write(here.join("trivium.toml"), "ring_size = 512\n[memory]\nframes = 8192\n").unwrap();
    let all: Vec<(&str, &Path)> =
        ["RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR"].into_iter().map(|name| (name, &*here)).collect();
    let own =
        ["--pidfile=v.pid", "--log-file=v.log", "--unixctl", "v.ctl", "--user", "root:root", "-vfile:dbg"];
    let output = wrapper(&switch, &all, &[&own[..], &[target.as_str()]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let log = std::fs::read_to_string(here.join("v.log")).unwrap();
    assert!(log.contains("|vlog|INFO|opened log file ") && log.contains("following the database"), "{log}");
    let config = here.join("trivium/ovs-vswitchd.toml");
    let written = std::fs::read_to_string(&config).unwrap();
    assert!(written.contains("frames = 8192") && written.contains("\"file:dbg\""), "{written}");
    assert_eq!(here.join("trivium").metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(config.metadata().unwrap().permissions().mode() & 0o077, 0);
    end(&here.join("v.pid"), &here.join("v.ctl"));
    // A second start in these directories.
    let output = wrapper(&switch, &all, &[&own[..], &[target.as_str()]].concat());
    assert!(output.status.success(), "{}", said(&output));
    end(&here.join("v.pid"), &here.join("v.ctl"));
    // Separate directories. The database is in the run directory, and settings are in `openvswitch` below the
    // system's directory.
    let (run, log, etc) = (switch.rig.path("run"), switch.rig.path("log"), switch.rig.path("etc"));
    std::fs::create_dir_all(etc.join("openvswitch")).unwrap();
    std::fs::write(etc.join("openvswitch/trivium.toml"), "ring_size = 256\n[memory]\nframes = 4096\n")
        .unwrap();
    std::fs::create_dir(&run).unwrap();
    symlink(switch.server.socket(), run.join("db.sock")).unwrap();
    let apart: [(&str, &Path); 3] = [("RUNDIR", &run), ("LOGDIR", &log), ("SYSCONFDIR", &etc)];
    for database in [&[][..], &["unix:db.sock"]] {
        let output = wrapper(&switch, &apart, &[&["--pidfile", "--log-file"], database].concat());
        assert!(output.status.success(), "{}", said(&output));
        let pid = std::fs::read_to_string(run.join("ovs-vswitchd.pid")).unwrap();
        assert!(
            std::fs::read_to_string(log.join("ovs-vswitchd.log")).unwrap().contains("following the database")
        );
        let config = std::fs::read_to_string(run.join("trivium/ovs-vswitchd.toml")).unwrap();
        let state = format!("state_dir = {:?}", etc.join("openvswitch/trivium"));
        assert!(config.contains("ring_size = 256") && config.contains(&state), "{config}");
        end(&run.join("ovs-vswitchd.pid"), &run.join(format!("ovs-vswitchd.{}.ctl", pid.trim())));
    }
}

/// A killed daemon leaves its socket file in place. The script must not conclude from this file that the daemon that it
/// starts is ready.
#[test]
fn readiness_comes_from_the_started_process_and_not_from_an_old_socket() {
    require!("ovs-vsctl", "ovsdb-server", "bash");
    let switch = Switch::new(1);
    let run = switch.rig.path("run");
    std::fs::create_dir(&run).unwrap();
    let all: [(&str, &Path); 4] = [("RUNDIR", &run), ("LOGDIR", &run), ("DBDIR", &run), ("SYSCONFDIR", &run)];
    drop(UnixListener::bind(run.join("trivium.sock")).unwrap());
    // A configuration that the daemon refuses.
    std::fs::write(run.join("trivium.toml"), "frobnicate = 1\n").unwrap();
    let arguments = ["--unixctl=none", "--pidfile", &switch.server.target()];
    let output = wrapper(&switch, &all, &arguments);
    assert!(!output.status.success() && said(&output).contains("it has ended at once"), "{}", said(&output));
    // A listener of another process.
    std::fs::remove_file(run.join("trivium.sock")).unwrap();
    let other = UnixListener::bind(run.join("trivium.sock")).unwrap();
    std::fs::write(run.join("trivium.toml"), "ring_size = 512\n[memory]\nframes = 8192\n").unwrap();
    let output = wrapper(&switch, &all, &arguments);
    assert!(!output.status.success() && said(&output).contains("it has ended at once"), "{}", said(&output));
    drop(other);
    let output = wrapper(&switch, &all, &arguments);
    assert!(output.status.success(), "{}", said(&output));
    let pid = std::fs::read_to_string(run.join("ovs-vswitchd.pid")).unwrap();
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let pidfile = run.join("ovs-vswitchd.pid");
    eventually("its end", PATIENCE, || if pidfile.exists() { Err(String::new()) } else { Ok(()) }).unwrap();
    assert!(
        std::fs::read_dir(run.join("trivium"))
            .unwrap()
            .all(|file| { !file.unwrap().file_name().to_string_lossy().contains("ready") })
    );
}

#[test]
fn what_others_than_root_may_change_is_refused() {
    require!("ovs-vsctl", "ovsdb-server", "bash");
    let switch = Switch::new(1);
    let (run, log) = (switch.rig.path("run"), switch.rig.path("log"));
    let victim = switch.rig.path("victim");
    std::fs::write(&victim, "kept").unwrap();
    std::fs::create_dir(&run).unwrap();
    let all: [(&str, &Path); 4] = [("RUNDIR", &run), ("LOGDIR", &log), ("DBDIR", &run), ("SYSCONFDIR", &run)];
    let refused = |part: &str| {
        let output = wrapper(&switch, &all, &["--pidfile", "--log-file", &switch.server.target()]);
        assert!(!output.status.success() && said(&output).contains(part), "{part}: {}", said(&output));
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
    };
    // The directory belongs to the user of the service, as in the packages of Fedora.
    std::os::unix::fs::chown(&run, Some(65_534), Some(65_534)).unwrap();
    refused("and the daemon runs as root; give it to root");
    std::os::unix::fs::chown(&run, Some(0), Some(0)).unwrap();
    std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o777)).unwrap();
    refused("may be written by others than root (mode 777)");
    std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o755)).unwrap();
    // Symbolic links in place of the wrapper's files.
    symlink(switch.rig.path("elsewhere"), run.join("trivium")).unwrap();
    refused("move away what is there");
    std::fs::remove_file(run.join("trivium")).unwrap();
    std::fs::create_dir_all(run.join("trivium")).unwrap();
    symlink(&victim, run.join("trivium/ovs-vswitchd.toml")).unwrap();
    std::fs::create_dir_all(&log).unwrap();
    symlink(&victim, log.join("ovs-vswitchd.log")).unwrap();
    refused("daemon.log_file");
    assert!(
        run.join("trivium/ovs-vswitchd.toml").symlink_metadata().unwrap().is_file(),
        "the link was replaced"
    );
    // A settings file that another user may write.
    std::fs::write(run.join("trivium.toml"), "ring_size = 512\n").unwrap();
    std::os::unix::fs::chown(run.join("trivium.toml"), Some(65_534), None).unwrap();
    refused("trivium.toml belongs to nobody");
    std::fs::remove_file(run.join("trivium.toml")).unwrap();
    // Wrong arguments without security risk.
    for (arguments, part) in [
        (&["--frobnicate"][..], "unknown option --frobnicate"),
        (&["unix:a", "unix:b"], "at most one non-option argument"),
        (&["--unixctl"], "requires an argument"),
    ] {
        let output = Command::new(WRAPPER).args(arguments).env("TRIVIUM", TRIVIUM).output().unwrap();
        assert!(!output.status.success() && said(&output).contains(part), "{part}: {}", said(&output));
    }
}
