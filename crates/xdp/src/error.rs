//! What can go wrong between user space and the hook. Every message names the object, the cause
//! and the next step.

use std::io;
use std::path::PathBuf;

use crate::inspect::ProgramOnDevice;
use crate::{Fallback, Mode};

/// Failures of loading, attaching, pinning and of map operations.
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
        /// What the kernel answered.
        source: io::Error,
        /// What libbpf and the verifier had to say.
        log: String,
    },
    /// The embedded object and this crate disagree: a defect of the build.
    #[error(
        "embedded BPF object {object}: {what} is missing or has another layout; rebuild from a clean tree"
    )]
    Object {
        /// Name of the object.
        object: &'static str,
        /// The map, program or type.
        what: &'static str,
    },
    /// A port needs at least one queue, and the map holds at most 2^16.
    #[error("XDP program: {queues} queues are not possible; give 1 to 65536")]
    Queues {
        /// What was asked for.
        queues: u32,
    },
    /// The port has no such queue.
    #[error(
        "XDP program of {device}: queue {queue} does not exist, the program was loaded for {queues}; reload the port with more queues"
    )]
    QueueOutOfRange {
        /// Name of the device.
        device: String,
        /// What was asked for.
        queue: u32,
        /// Queues that the program was loaded for.
        queues: u32,
    },
    /// No device has this index in the namespace of the calling thread.
    #[error(
        "device with index {ifindex}: not in this network namespace; enter the device's namespace first, or check `ip link`"
    )]
    NoDevice {
        /// The index asked for.
        ifindex: u32,
    },
    /// No device has this name in the namespace of the calling thread.
    #[error(
        "device {name}: not in this network namespace; enter the device's namespace first, or check `ip link`"
    )]
    NoDeviceNamed {
        /// The name asked for.
        name: String,
    },
    /// Somebody else's program is on the device.
    #[error("device {device}: XDP program \"{}\" (id {}, {}) of someone else is attached; {}", .program.name, .program.id, .program.mode, foreign_advice(device, program))]
    Foreign {
        /// Name of the device.
        device: String,
        /// What is attached there.
        program: ProgramOnDevice,
    },
    /// No allowed mode took the program.
    #[error("device {device}: no XDP mode works: {}; {}", attempts(tried), attach_advice(tried))]
    Attach {
        /// Name of the device.
        device: String,
        /// Every attempt with the driver's reason, in order.
        tried: Vec<Fallback>,
    },
    /// The queues' map cannot be taken over into a program with another number of queues.
    #[error("XDP program of {device}: {new} queues cannot replace {old} in place; detach and attach it anew")]
    QueuesDiffer {
        /// Name of the device.
        device: String,
        /// Queues now.
        old: u32,
        /// Queues of the replacement.
        new: u32,
    },
    /// A replacement must share the maps, or sockets and counters would be lost.
    #[error(
        "XDP program of {device}: the replacement was loaded with maps of its own; load it with Attached::prepare"
    )]
    MapsDiffer {
        /// Name of the device.
        device: String,
    },
    /// The link update failed; the old program goes on.
    #[error("XDP program of {device}: cannot be replaced: {source}; the old program goes on")]
    Swap {
        /// Name of the device.
        device: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The device of an attached program has gone.
    #[error("XDP link {link}: its device has gone; detach the port")]
    DeviceGone {
        /// Id of the link.
        link: u32,
    },
    /// A map operation failed.
    #[error("XDP map {map}: cannot {operation}: {source}; check with `bpftool map`")]
    Map {
        /// Name of the map.
        map: &'static str,
        /// What was attempted.
        operation: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The descriptor given for a queue is no AF_XDP socket with a receive ring.
    #[error(
        "XDP program of {device}, queue {queue}: the socket is not accepted: {source}; give an AF_XDP socket that has a receive ring"
    )]
    Socket {
        /// Name of the device.
        device: String,
        /// The queue.
        queue: u32,
        /// What the kernel answered.
        source: io::Error,
    },
    /// More local addresses than the map holds.
    #[error("XDP program: {count} local {family} addresses are too many; the hook holds {capacity}")]
    LocalsFull {
        /// `IPv4` or `IPv6`.
        family: &'static str,
        /// Addresses given.
        count: usize,
        /// What the map holds.
        capacity: usize,
    },
    /// More of a router's own addresses than its ports' hooks hold.
    #[error(
        "router {router}: its own address {address} has no room in the driver hook, which holds {capacity} {family} addresses of a router; remove addresses, or spread them over more routers"
    )]
    OwnFull {
        /// Name of the router.
        router: String,
        /// The first address that has no room.
        address: std::net::IpAddr,
        /// `IPv4` or `IPv6`.
        family: &'static str,
        /// Addresses of this family that there is room for.
        capacity: usize,
    },
    /// A router's own address could not be added or removed.
    #[error(
        "router {router}: its own address {address}: the driver hook's map {map}: cannot {operation}: {source}; check with `bpftool map`"
    )]
    Own {
        /// Name of the router.
        router: String,
        /// The address.
        address: std::net::IpAddr,
        /// Name of the map.
        map: &'static str,
        /// What was attempted.
        operation: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A user's program that cannot stand in front of a port's.
    #[error(transparent)]
    User(#[from] crate::user::UserError),
    /// Rules or a block list that are not possible.
    #[error(transparent)]
    Filter(#[from] crate::filter::FilterError),
    /// A filter's counters are made for a number of rules.
    #[error(
        "filter: {count} rules are more than the {capacity} that it was made for; make it anew with room for them"
    )]
    FilterFull {
        /// Rules given.
        count: usize,
        /// Rules that it has room for.
        capacity: usize,
    },
    /// More exact flows than there are slots.
    #[error(
        "steering: its {capacity} slots for exact flows are full; remove flows, or give it a larger `capacity`"
    )]
    SteerFull {
        /// Slots.
        capacity: u32,
    },
    /// No frame can belong to this flow.
    #[error("steering: flow {flow}: {why}")]
    SteerFlow {
        /// The flow.
        flow: String,
        /// Why not.
        why: crate::steer::FlowError,
    },
    /// A CPU that does not run.
    #[error("steering: there is no CPU {cpu}; use one of {cpus}")]
    SteerCpu {
        /// What was asked for.
        cpu: u32,
        /// Those that run.
        cpus: String,
    },
    /// The kernel has not what a stage calls.
    #[error(
        "the hook's stage \"{stage}\" needs {helper}, which this kernel does not have for XDP programs; use Linux {since} or later, or leave out what the stage is for"
    )]
    Helper {
        /// The stage, as `trivium xdp status` names it.
        stage: &'static str,
        /// What it calls.
        helper: &'static str,
        /// The first Linux that has it.
        since: &'static str,
    },
    /// The kernel makes no cookies for the hook.
    #[error(
        "filter rule \"{rule}\": this kernel makes no SYN cookies for the driver hook ({lacks}); use Linux 6.0 or later with CONFIG_SYN_COOKIES, or limit the rate of SYNs instead"
    )]
    NoCookies {
        /// Name of the rule that wants some.
        rule: String,
        /// The helper that is not there.
        lacks: &'static str,
    },
    /// A pin's name would leave its directory.
    #[error("pin name \"{0}\": use letters, digits, '-' and '_', at most 64")]
    PinName(String),
    /// The BPF file system is not there and cannot be mounted.
    #[error("{}: no BPF file system and mounting it failed: {source}; run `mount -t bpf bpf {}` as root, or set persist = false", .path.display(), .path.display())]
    Bpffs {
        /// Where it should be.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A pin could not be made, opened or removed.
    #[error("pin {}: cannot {operation}: {source}; look at it with `bpftool link` and `ls {}`", .path.display(), .path.display())]
    Pin {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        operation: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A link is pinned there already.
    #[error("pin {}: a program is pinned there already; adopt it, or remove the directory to detach it", .path.display())]
    Pinned {
        /// The directory.
        path: PathBuf,
    },
    /// A pinned link or a handed-over descriptor holds something that is not ours.
    #[error("{object}: not a Trivium port program ({found}); remove it, or choose another pin name")]
    NotOurs {
        /// The pin or descriptor.
        object: String,
        /// What it is.
        found: String,
    },
    /// A user's program stands there, but the port's behind it has gone.
    #[error(
        "{object}: the port's program behind a user's has gone; remove the directory to detach what is left"
    )]
    Alone {
        /// The pin or descriptor.
        object: String,
    },
    /// The link's device is not visible here.
    #[error(
        "XDP link {link} on device index {ifindex}: its program is not on that device in this namespace; enter the device's namespace first"
    )]
    WrongNamespace {
        /// Id of the link.
        link: u32,
        /// The index inside the device's namespace.
        ifindex: u32,
    },
    /// A query about programs, links or devices failed.
    #[error("{what}: {source}; CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN are needed (run as root)")]
    Query {
        /// What was asked.
        what: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A test run was refused.
    #[error(
        "test run of XDP program {program} on {length} bytes: {source}; frames of 14 bytes up to a page (more with a multi-buffer program) can be run"
    )]
    TestRun {
        /// Name of the program.
        program: &'static str,
        /// Bytes of the frame.
        length: usize,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A traffic generator's parameter is out of range.
    #[error("generator: {field} is {value}; {allowed}")]
    Generator {
        /// The parameter.
        field: &'static str,
        /// What was given.
        value: u64,
        /// What is possible.
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

/// `ip link` cannot remove a program that a link holds; its holder or its pin must go.
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
