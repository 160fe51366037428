//! Tests machines without some features: an error names the missing feature and the fix. Also tests that reserved huge
//! pages are used.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::fs;

use rig::{PATIENCE, Rig, TRIVIUM};
use testbed::{Process, eventually, require, skip};

/// Script that runs a program as if the kernel had no AF_XDP. A seccomp filter (seccomp(2)) makes `socket(AF_XDP, ...)`
/// fail as on a kernel without CONFIG_XDP_SOCKETS.
const WITHOUT_AF_XDP: &str = r#"
import ctypes, errno, os, struct, sys
AF_XDP, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 44, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN, ALLOW, ERRNO = 0x20, 0x15, 0x06, 0x7fff0000, 0x00050000
socket = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
program = [(LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 3, socket), (LOAD, 0, 0, 16), (JUMP_IF_EQUAL, 0, 1, AF_XDP),
           (RETURN, 0, 0, ERRNO | errno.EAFNOSUPPORT), (RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
given = Program(len(program), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), ctypes.byref(given), ctypes.c_ulong(0), ctypes.c_ulong(0)):
    sys.exit("seccomp: " + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn a_kernel_without_af_xdp_is_named() {
    require!("ip", "ethtool", "python3", "ping");
    let mut rig = Rig::new(2);
    let tenant = rig.lab.namespace("tenant").unwrap();
    // Valid ports, created before and after the invalid ones.
    let others = format!(
        "[port.a]\nkind = \"tap\"\nnamespace = \"{}\"\naddress = [\"10.8.0.60/24\"]\n\
         [port.z]\nkind = \"internal\"\naddress = [\"10.8.0.61/24\"]\n[bridge.br0.port.a]\naccess = 10\n[bridge.br0.port.z]\naccess = 10\n",
        tenant.name()
    );
    let links =
        || (rig.lab.hub().run(["ip", "-o", "link"]).unwrap(), tenant.run(["ip", "-o", "link"]).unwrap());
    // The kernel reports the carrier of new devices a moment later.
    eventually("the links are up", PATIENCE, || {
        let links = links();
        if links.0.contains("NO-CARRIER") { Err(links.0) } else { Ok(()) }
    })
    .unwrap();
    let before = links();
    let file = rig.write("trivium.toml", &format!("{}{others}", rig.configuration("")));
    let line =
        |file: &str| rig.lab.hub().command(["python3", "-c", WITHOUT_AF_XDP, TRIVIUM, "run", "-c", file]);
    let (status, said) = Process::start(line(file.to_str().unwrap())).unwrap().finish(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.contains("port.h1: "), "the object: {said}");
    assert!(last.contains("this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)"), "the cause: {said}");
    assert!(last.contains("use a kernel that has it, or a port of kind tap"), "the next step: {said}");
    assert!(!said.contains("panicked"), "{said}");

    assert_eq!(links(), before, "devices are as they were");
    assert_eq!(rig.pins(), Vec::<String>::new());
    assert!(!rig.socket().exists(), "a name that nobody listens behind");

    // The suggested fix works.
    let file = rig.write("trivium.toml", &format!("{}{others}", rig.configuration_with("", &[0, 0])));
    let mut daemon = Process::start(line(file.to_str().unwrap())).unwrap();
    daemon.wait_for_line("ready:", PATIENCE).unwrap();
    tenant.run(["ping", "-n", "-c", "3", "-i", "0.01", "-W", "2", "10.8.0.61"]).unwrap();
    rig.daemon = Some(daemon);
}

/// Returns a configuration whose frame memory occupies `pages` huge pages of 2 MiB.
fn with_pages(rig: &Rig, pages: u64) -> String {
    let memory = format!("frames = {}\nhuge_pages = \"require\"\n", pages << 10);
    rig.configuration("persist = false").replace("frames = 32768\nhuge_pages = \"off\"\n", &memory)
}

/// Returns a number from /proc/meminfo.
fn memory(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Returns the number of huge pages that are neither in use nor reserved for a process.
fn free_pages() -> u64 {
    memory("HugePages_Free:") - memory("HugePages_Rsvd:")
}

const RESERVED: &str = "/proc/sys/vm/nr_hugepages";

/// Huge pages that a test reserves in addition to those of the machine. The reservation is reverted when the value is
/// dropped.
struct Reservation {
    before: String,
}

impl Reservation {
    /// Reserves additional huge pages. Returns `None` if the machine cannot provide them.
    fn new(pages: u64) -> Option<Reservation> {
        let before = fs::read_to_string(RESERVED).ok()?;
        let reservation = Reservation { before };
        let total: u64 = reservation.before.trim().parse().ok()?;
        fs::write(RESERVED, (total + pages).to_string()).ok()?;
        (free_pages() >= pages).then_some(reservation)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let _ = fs::write(RESERVED, self.before.trim());
    }
}

#[test]
fn huge_pages_that_are_required_and_missing_are_named() {
    require!("ip", "ethtool");
    let rig = Rig::new(1);
    let pages = free_pages() + 32;
    let file = rig.write("trivium.toml", &with_pages(&rig, pages));
    let command = rig.lab.hub().command([TRIVIUM, "run", "-c", file.to_str().unwrap()]);
    let (status, said) = Process::start(command).unwrap().finish(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("memory: {pages} huge pages of 2 MiB are required and could not be had")),
        "{said}"
    );
    // Pages that other processes hold cannot be used.
    let reserve = memory("HugePages_Total:") + 32;
    for fix in [format!("sysctl vm.nr_hugepages={reserve}"), "huge_pages = \"try\"".to_owned()] {
        assert!(said.contains(&fix), "{fix} in {said}");
    }
    assert!(!rig.socket().exists(), "a name that nobody listens behind");
}

#[test]
fn huge_pages_that_are_reserved_are_used() {
    require!("ip", "ethtool", "ping");
    let mut rig = Rig::new(2);
    let pages = 16;
    let Some(_reservation) = Reservation::new(pages) else {
        return skip("this machine gives no huge pages (vm.nr_hugepages)");
    };
    let configuration = with_pages(&rig, pages);
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    let status = fs::read_to_string(format!("/proc/{}/status", rig.daemon().pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("HugetlbPages:")).unwrap();
    assert_eq!(
        line.split_whitespace().nth(1).unwrap(),
        (pages << 11).to_string(),
        "KiB of the process: {line}"
    );
    let findings: Vec<serde_json::Value> =
        serde_json::from_slice(&rig.trivium(&["doctor", "--json"]).stdout).unwrap();
    let found = findings.iter().find(|finding| finding["object"] == "memory").unwrap();
    assert_eq!(
        (found["severity"].as_str(), found["finding"].as_str()),
        (Some("ok"), Some("32 MiB of frames in reserved huge pages"))
    );
}
