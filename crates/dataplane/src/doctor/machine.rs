//! Diagnostics of the machine. They need no running daemon. Therefore `trivium doctor` can also be used before `trivium
//! run`.

use std::fs;

use model::{DoctorFinding, Finding};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};

use super::{Chart, kernel, sysctl};

/// Examines privileges, AF_XDP, the BPF file system, the BPF compiler, huge pages and IP forwarding. The
/// function needs neither a daemon nor privileges.
pub fn preflight() -> Vec<DoctorFinding> {
    let mut chart = Chart { findings: Vec::new() };
    privileges(&mut chart);
    sockets(&mut chart);
    bpf_file_system(&mut chart);
    kernel(&mut chart);
    huge_pages(&mut chart);
    forwarding(&mut chart);
    chart.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    chart.findings
}

fn privileges(chart: &mut Chart) {
    if rustix::process::geteuid().is_root() {
        chart.note("privileges", Finding::Ok, "this user is root", "");
    } else {
        let what = "this user is not root: a daemon started by this user can only have ports without devices (pcap, ring, null)";
        chart.note(
            "privileges",
            Finding::Warning,
            what,
            "start the daemon with sudo, or by its systemd unit",
        );
    }
}

fn sockets(chart: &mut Chart) {
    match rustix::net::socket(AddressFamily::XDP, SocketType::RAW, None) {
        Ok(_) => chart.note("kernel", Finding::Ok, "AF_XDP sockets can be opened", ""),
        Err(Errno::PERM | Errno::ACCESS) => {
            let what = "whether the kernel has AF_XDP sockets cannot be tried without CAP_NET_RAW";
            chart.note("kernel", Finding::Advice, what, "run `sudo trivium doctor`");
        }
        Err(error) => {
            let what = format!("AF_XDP sockets cannot be opened: {error}");
            chart.note("kernel", Finding::Error, what, "use a kernel with CONFIG_XDP_SOCKETS=y");
        }
    }
}

fn bpf_file_system(chart: &mut Chart) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounted = mounts.lines().any(|line| {
        let mut words = line.split(' ');
        words.nth(1) == Some("/sys/fs/bpf") && words.next() == Some("bpf")
    });
    if mounted {
        chart.note("bpffs", Finding::Ok, "/sys/fs/bpf is a BPF file system", "");
    } else {
        let what = "/sys/fs/bpf is not a BPF file system: hooks cannot outlive the daemon";
        chart.note("bpffs", Finding::Warning, what, "mount -t bpf bpf /sys/fs/bpf");
    }
}

fn huge_pages(chart: &mut Chart) {
    let reserved = sysctl("vm/nr_hugepages").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let transparent =
        fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
    if reserved == 0 && (transparent.is_empty() || transparent.contains("[never]")) {
        let what = "no huge pages are reserved, and shared memory has no transparent ones: more TLB misses per packet";
        chart.note("memory", Finding::Advice, what, "sysctl -w vm.nr_hugepages=64");
    }
}

fn forwarding(chart: &mut Chart) {
    if sysctl("net/ipv4/ip_forward").as_deref() == Some("0") {
        let what = "IPv4 forwarding is off in this network namespace: a router there forwards no IPv4 packet";
        chart.note(
            "net.ipv4.ip_forward",
            Finding::Advice,
            what,
            "sysctl -w net.ipv4.ip_forward=1, if there is to be a router",
        );
    }
}
