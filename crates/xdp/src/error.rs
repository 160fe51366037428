//! Errors of loading, attaching and controlling XDP programs. Every message names the object, the cause and
//! the next step.

use std::io;
use std::path::PathBuf;

use crate::mode::{Fallback, Mode, ProgramOnDevice};

/// Error in loading, attaching or pinning an XDP program, or in a map operation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel or libbpf refused a program or one of its maps.
    #[error(
        "XDP program {program}: the kernel refused to load it: {source}{}; {}",
        log_suffix(log),
        load_advice(source)
    )]
    Load {
        /// Name of the program in its object.
        program: &'static str,
        /// Error that the kernel returned for the load.
        source: io::Error,
        /// Messages of libbpf and the verifier during the load.
        log: String,
    },
    /// The embedded BPF object does not match this crate, which is a defect of the build.
    #[error(
        "embedded BPF object {object}: {what} is missing or has another layout; rebuild from a clean tree"
    )]
    Object {
        /// Name of the BPF object that does not match.
        object: &'static str,
        /// Name of the missing map, program or type.
        what: &'static str,
    },
    /// The number of queues is not in the range 1 to 65536.
    #[error("XDP program: {queues} queues are not possible; give 1 to 65536")]
    Queues {
        /// Number of receive queues that was requested.
        queues: u32,
    },
    /// The number of a receive queue exceeds the number of queues for which the port's program was loaded.
    #[error(
        "XDP program of {device}: queue {queue} does not exist, the program was loaded for {queues}; reload the port with more queues"
    )]
    QueueOutOfRange {
        /// Name of the port's device.
        device: String,
        /// Number of the receive queue that was requested.
        queue: u32,
        /// Number of receive queues for which the program was loaded.
        queues: u32,
    },
    /// The calling thread's network namespace has no device with this index.
    #[error(
        "device with index {ifindex}: not in this network namespace; enter the device's namespace first, or check `ip link`"
    )]
    NoDevice {
        /// Device index that was looked up.
        ifindex: u32,
    },
    /// The calling thread's network namespace has no device with this name.
    #[error(
        "device {name}: not in this network namespace; enter the device's namespace first, or check `ip link`"
    )]
    NoDeviceNamed {
        /// Device name that was looked up.
        name: String,
    },
    /// The device already has an XDP program that this process did not attach.
    #[error("device {device}: XDP program \"{}\" (id {}, {}) of someone else is attached; {}", .program.name, .program.id, .program.mode, foreign_advice(device, program))]
    Foreign {
        /// Name of the device that has another program.
        device: String,
        /// Program that is already attached to the device.
        program: ProgramOnDevice,
    },
    /// The device refused the program in every allowed mode.
    #[error("device {device}: no XDP mode works: {}; {}", attempts(tried), attach_advice(tried))]
    Attach {
        /// Name of the device that refused the program.
        device: String,
        /// All attempts to attach the program, in the order in which they were made, each with the driver's reason for
        /// the refusal.
        tried: Vec<Fallback>,
    },
    /// The replacement program has a different number of receive queues from the port's program, so the replacement
    /// cannot use the port's socket map.
    #[error("XDP program of {device}: {new} queues cannot replace {old} in place; detach and attach it anew")]
    QueuesDiffer {
        /// Name of the port's device.
        device: String,
        /// Number of receive queues of the port's current program.
        old: u32,
        /// Number of receive queues of the replacement program.
        new: u32,
    },
    /// The replacement program was not loaded with the port's maps, so the port would lose its sockets and counters.
    #[error(
        "XDP program of {device}: the replacement was loaded with maps of its own; load it with Attached::prepare"
    )]
    MapsDiffer {
        /// Name of the port's device.
        device: String,
    },
    /// The kernel refused to replace the program of the link. The old program stays in place.
    #[error("XDP program of {device}: cannot be replaced: {source}; the old program goes on")]
    Swap {
        /// Name of the port's device.
        device: String,
        /// Error that the kernel returned for the link update.
        source: io::Error,
    },
    /// The device of an attached program no longer exists.
    #[error("XDP link {link}: its device has gone; detach the port")]
    DeviceGone {
        /// Kernel id of the BPF link whose device no longer exists.
        link: u32,
    },
    /// An operation on a BPF map failed.
    #[error("XDP map {map}: cannot {operation}: {source}; check with `bpftool map`")]
    Map {
        /// Name of the map on which the operation failed.
        map: &'static str,
        /// Description of the map operation that failed.
        operation: &'static str,
        /// Error that the kernel returned for the map operation.
        source: io::Error,
    },
    /// The descriptor given for a queue is not an AF_XDP socket with a receive ring.
    #[error(
        "XDP program of {device}, queue {queue}: the socket is not accepted: {source}; give an AF_XDP socket that has a receive ring"
    )]
    Socket {
        /// Name of the port's device.
        device: String,
        /// Number of the receive queue for which the socket was given.
        queue: u32,
        /// Error that the kernel returned for the socket.
        source: io::Error,
    },
    /// The number of local addresses exceeds the capacity of the program's map of local addresses.
    #[error("XDP program: {count} local {family} addresses are too many; the hook holds {capacity}")]
    LocalsFull {
        /// Family of the addresses: `IPv4` or `IPv6`.
        family: &'static str,
        /// Number of local addresses of this family that were given.
        count: usize,
        /// Maximum number of addresses of this family in the map.
        capacity: usize,
    },
    /// The XDP programs' maps of a virtual router's own IP addresses are full.
    #[error(
        "router {router}: its own address {address} has no room in the driver hook, which holds {capacity} {family} addresses of a router; remove addresses, or spread them over more routers"
    )]
    OwnFull {
        /// Name of the virtual router.
        router: String,
        /// First own address of the router for which the map has no space.
        address: std::net::IpAddr,
        /// Family of the address: `IPv4` or `IPv6`.
        family: &'static str,
        /// Maximum number of own addresses of this family in the map.
        capacity: usize,
    },
    /// A virtual router's own IP address could not be added to a map or removed from it.
    #[error(
        "router {router}: its own address {address}: the driver hook's map {map}: cannot {operation}: {source}; check with `bpftool map`"
    )]
    Own {
        /// Name of the virtual router.
        router: String,
        /// Address that was to be added or removed.
        address: std::net::IpAddr,
        /// Name of the map that could not be changed.
        map: &'static str,
        /// Description of the map operation that failed.
        operation: &'static str,
        /// Error that the kernel returned for the map operation.
        source: io::Error,
    },
    /// The custom program (an XDP program that the user provides) cannot run in front of a port's program.
    #[error(transparent)]
    User(#[from] crate::user::UserError),
    /// The filter rules or the block list cannot be used.
    #[error(transparent)]
    Filter(#[from] crate::filter::FilterError),
    /// The number of filter rules exceeds the capacity for which the maps of the filter were created.
    #[error(
        "filter: {count} rules are more than the {capacity} that it was made for; make it anew with room for them"
    )]
    FilterFull {
        /// Number of filter rules in the new rule set.
        count: usize,
        /// Maximum number of rules of the filter.
        capacity: usize,
    },
    /// All slots for exact flows of the steering policy are in use.
    #[error(
        "steering: its {capacity} slots for exact flows are full; remove flows, or give it a larger `capacity`"
    )]
    SteerFull {
        /// Number of slots for exact flows.
        capacity: u32,
    },
    /// An exact flow of the steering policy is invalid, so the exact flow could not match any frame.
    #[error("steering: flow {flow}: {why}")]
    SteerFlow {
        /// The exact flow as text.
        flow: String,
        /// Reason why the exact flow is invalid.
        why: crate::steer::FlowError,
    },
    /// A CPU that the steering policy has as a target is not online.
    #[error("steering: there is no CPU {cpu}; use one of {cpus}")]
    SteeringCpu {
        /// Number of the CPU that is not online.
        cpu: u32,
        /// List of the CPUs that are online, for example `0-3,6`.
        cpus: String,
    },
    /// The kernel lacks a BPF helper that a stage of the XDP program calls.
    #[error(
        "the hook's stage \"{stage}\" needs {helper}, which this kernel does not have for XDP programs; use Linux {since} or later, or leave out what the stage is for"
    )]
    Helper {
        /// Name of the program stage, as `trivium xdp status` shows it.
        stage: &'static str,
        /// Name of the missing helper.
        helper: &'static str,
        /// First Linux version that has the helper for XDP programs.
        since: &'static str,
    },
    /// The kernel cannot create SYN cookies in XDP programs.
    #[error(
        "filter rule \"{rule}\": this kernel makes no SYN cookies for the driver hook ({lacks}); use Linux 6.0 or later with CONFIG_SYN_COOKIES, or limit the rate of SYNs instead"
    )]
    NoCookies {
        /// Name of the rule that needs SYN cookies.
        rule: String,
        /// Name of the missing kernel helper.
        lacks: &'static str,
    },
    /// The pin name contains characters that are not allowed, or is too long.
    #[error("pin name \"{0}\": use letters, digits, '-' and '_', at most 64")]
    PinName(String),
    /// The BPF file system is not mounted and cannot be mounted.
    #[error("{}: no BPF file system and mounting it failed: {source}; run `mount -t bpf bpf {}` as root, or set persist = false", .path.display(), .path.display())]
    Bpffs {
        /// Path where the BPF file system is expected.
        path: PathBuf,
        /// Error that the kernel returned for the mount.
        source: io::Error,
    },
    /// A pin could not be created, opened or removed.
    #[error("pin {}: cannot {operation}: {source}; look at it with `bpftool link` and `ls {}`", .path.display(), .path.display())]
    Pin {
        /// Path of the pin on which the operation failed.
        path: PathBuf,
        /// Description of the pin operation that failed.
        operation: &'static str,
        /// Error that the kernel returned for the pin operation.
        source: io::Error,
    },
    /// Another BPF link is already pinned at this path.
    #[error("pin {}: a program is pinned there already; adopt it, or remove the directory to detach it", .path.display())]
    Pinned {
        /// Path of the existing pin directory.
        path: PathBuf,
    },
    /// A pinned link or a descriptor from a predecessor process does not belong to a Trivium port program.
    #[error("{object}: not a Trivium port program ({found}); remove it, or choose another pin name")]
    NotOurs {
        /// Name of the pin or the descriptor that does not refer to a port program.
        object: String,
        /// Description of the object to which the pin or the descriptor refers.
        found: String,
    },
    /// A custom program is attached to the device, but the port's program that it calls no longer exists.
    #[error(
        "{object}: the port's program behind a user's has gone; remove the directory to detach what is left"
    )]
    Alone {
        /// Name of the pin or descriptor of the custom program.
        object: String,
    },
    /// The device of the BPF link does not run the link's program. The device is looked up by its
    /// index in the calling thread's network namespace.
    #[error(
        "XDP link {link} on device index {ifindex}: its program is not on that device in this namespace; enter the device's namespace first"
    )]
    WrongNamespace {
        /// Kernel id of the BPF link.
        link: u32,
        /// Index of the link's device in the device's own namespace.
        ifindex: u32,
    },
    /// A query about programs, links or devices failed.
    #[error("{what}: {source}; CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN are needed (run as root)")]
    Query {
        /// Object or property that was queried.
        what: &'static str,
        /// Error that the kernel returned for the query.
        source: io::Error,
    },
    /// The kernel refused a test run of an XDP program.
    #[error(
        "test run of XDP program {program} on {length} bytes: {source}; frames of 14 bytes up to a page (more with a multi-buffer program) can be run"
    )]
    TestRun {
        /// Name of the program in the test run.
        program: &'static str,
        /// Length of the test run's frame in bytes.
        length: usize,
        /// Error that the kernel returned for the test run.
        source: io::Error,
    },
    /// A parameter of a traffic generator is out of range.
    #[error("generator: {field} is {value}; {allowed}")]
    Generator {
        /// Name of the parameter that is out of range.
        field: &'static str,
        /// Value of the parameter that was given.
        value: u64,
        /// Description of the values that are allowed for the parameter.
        allowed: &'static str,
    },
}

fn log_suffix(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("\n{log}") }
}

fn load_advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "run as root, or with CAP_BPF and CAP_NET_ADMIN",
        Some(libc::ENOMEM) => "free memory, or raise the memory limit of the service",
        Some(libc::EMFILE | libc::ENFILE) => {
            "raise the limit of open files: LimitNOFILE= in the unit, or `ulimit -n`"
        }
        Some(libc::ENOSYS) => "this kernel has no BPF",
        _ => "`trivium doctor` shows what this kernel supports",
    }
}

/// Returns advice on how to remove an XDP program that this process did not attach. `ip link` cannot remove a program
/// that a BPF link holds. Instead, the process that holds the link must be ended, or the link's pin must be removed.
fn foreign_advice(device: &str, program: &ProgramOnDevice) -> String {
    match program.link {
        Some(link) if program.name.starts_with("trivium_") => format!(
            "it is another Trivium's: stop that process, adopt its pin, or run `bpftool link detach id {link}`"
        ),
        Some(link) => format!(
            "it is held by BPF link {link}: stop the process that holds it, or run `bpftool link detach id {link}`"
        ),
        None => format!("remove it with `ip link set dev {device} {} off`", program.mode.ip_keyword()),
    }
}

fn attempts(tried: &[Fallback]) -> String {
    let texts: Vec<String> = tried.iter().map(Fallback::to_string).collect();
    texts.join("; ")
}

fn attach_advice(tried: &[Fallback]) -> &'static str {
    let denied = tried.iter().any(|t| matches!(t.errno, libc::EPERM | libc::EACCES));
    let generic_tried = tried.iter().any(|t| t.mode == Mode::Generic);
    if denied {
        "run as root, or with CAP_BPF and CAP_NET_ADMIN"
    } else if generic_tried {
        "see `trivium doctor`"
    } else {
        "allow generic mode, or see `trivium doctor`"
    }
}
