//! Functions that several tests use: check of privileges, network namespaces, AF_XDP sockets and frames.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(unsafe_code, reason = "sockets and namespaces through libc; every block states why it holds")]

pub mod compile;
pub mod oracle;
pub mod packets;
pub mod router;
pub mod stacks;
pub mod xsk;

use std::collections::BTreeSet;
use std::fs::File;
use std::mem::size_of_val;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use xdp::live::{Generator, Traffic};
use xdp::{LocalAddresses, Owner, ProgramConfig, WhenDown};

/// Returns whether the process has the privilege that BPF needs. If not, records that the test was skipped. In CI a
/// missing privilege is a failure.
#[must_use]
pub fn privileged() -> bool {
    if !testbed::privileged() {
        testbed::skip("needs root (BPF, network namespaces)");
    }
    testbed::privileged()
}

/// Returns from the calling test if the process lacks the privilege that BPF needs.
#[macro_export]
macro_rules! need_root {
    () => {
        if !$crate::support::privileged() {
            return;
        }
    };
}

pub const LOCAL4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub const LOCAL6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

pub fn locals() -> LocalAddresses {
    LocalAddresses { v4: BTreeSet::from([LOCAL4]), v6: BTreeSet::from([LOCAL6]) }
}

pub fn config(owner: Owner, when_down: WhenDown) -> ProgramConfig {
    ProgramConfig { owner, when_down, queues: 1, locals: locals() }
}

/// Returns an AF_XDP socket with a receive ring and without frame memory. Such a socket can be put into a slot of the
/// socket map.
pub fn unbound_socket() -> OwnedFd {
    // SAFETY: the call takes integers, and the result is checked.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    assert!(fd >= 0, "AF_XDP: {}", std::io::Error::last_os_error());
    // SAFETY: `fd` is new and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    set_option(socket.as_fd(), libc::XDP_RX_RING, &64_u32);
    socket
}

pub fn set_option<T>(socket: BorrowedFd<'_>, option: i32, value: &T) {
    set_option_at(socket, libc::SOL_XDP, option, value);
}

fn set_option_at<T>(socket: BorrowedFd<'_>, level: i32, option: i32, value: &T) {
    let length = libc::socklen_t::try_from(size_of_val(value)).unwrap();
    // SAFETY: `value` is readable for `length` bytes.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length)
    };
    assert_eq!(result, 0, "option {option}: {}", std::io::Error::last_os_error());
}

/// Runs a command of the test setup, which must succeed.
pub fn sh(command: &str) -> String {
    let output = Command::new("sh").arg("-ec").arg(command).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A network namespace that is deleted when the value is dropped. Threads enter the namespace with setns(2), because
/// `ip netns exec` would remount /sys and hide pinned objects.
pub struct Namespace {
    pub name: String,
}

impl Namespace {
    /// Creates an empty namespace and moves the calling thread into it.
    pub fn enter_new() -> Namespace {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("xdp-t{}-{number}", std::process::id());
        sh(&format!("ip netns add {name}; ip -n {name} link set lo up"));
        enter(&name);
        Namespace { name }
    }

    /// Runs `ip -n NAME <arguments>`.
    pub fn ip(&self, arguments: &str) -> String {
        sh(&format!("ip -n {} {arguments}", self.name))
    }

    /// Creates a veth pair with both ends in this namespace and up, without IPv6 autoconfiguration traffic.
    pub fn veth(&self, a: &str, b: &str, options: &str) -> (u32, u32) {
        self.ip(&format!("link add name {a} {options} type veth peer name {b} {options}"));
        for device in [a, b] {
            self.ip(&format!("link set dev {device} addrgenmode none up"));
        }
        (self.index(a), self.index(b))
    }

    /// Sends traffic while `work` runs. Without a rate, sends at full speed in bursts of 2,000 frames.
    /// Returns the number of frames sent.
    pub fn under_load(&self, traffic: &Traffic, work: impl FnOnce()) -> u64 {
        let done = AtomicBool::new(false);
        let (begun, begins) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                enter(&self.name);
                let mut generator = Generator::new(traffic).unwrap();
                drop(begun);
                if traffic.rate.is_some() {
                    return generator.run_until(&done, Duration::from_secs(600)).unwrap().packets;
                }
                let mut sent = 0;
                loop {
                    sent += generator.send(2000).unwrap().packets;
                    if done.load(Ordering::Relaxed) {
                        return sent;
                    }
                }
            });
            // The sender also stops when the work fails. Otherwise the test would never end.
            let stop = Stop(&done);
            let _ = begins.recv();
            work();
            drop(stop);
            sender.join().unwrap()
        })
    }

    pub fn index(&self, device: &str) -> u32 {
        self.ip(&format!("-o link show dev {device}")).split(':').next().unwrap().parse().unwrap()
    }
}

/// Sets the flag that stops a sender when the value is dropped.
struct Stop<'d>(&'d AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// Moves the calling thread into a namespace.
pub fn enter(name: &str) {
    let file = File::open(format!("/run/netns/{name}")).unwrap();
    // SAFETY: the descriptor is that of a namespace, and only this thread changes.
    let result = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(result, 0, "setns {name}: {}", std::io::Error::last_os_error());
}

const TO_US: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Returns a frame with an EtherType after any number of VLAN tags. Each tag is given by its TPID and its VLAN ID.
pub fn ethernet(destination: [u8; 6], tags: &[(u16, u16)], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [destination, FROM].concat();
    for (protocol, id) in tags {
        frame.extend(protocol.to_be_bytes());
        frame.extend(id.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns an IPv4 packet. `edit` changes the header. The header has no checksum.
pub fn ipv4(to: Ipv4Addr, edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut packet = vec![0_u8; 40];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&40_u16.to_be_bytes());
    packet[8] = 64;
    packet[9] = 17;
    packet[12..16].copy_from_slice(&[198, 51, 100, 1]);
    packet[16..20].copy_from_slice(&to.octets());
    edit(&mut packet);
    packet
}

/// Returns an IPv6 packet with this next header and payload.
pub fn ipv6(to: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0_u8; 40];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&u16::try_from(payload.len()).unwrap().to_be_bytes());
    packet[6] = next;
    packet[7] = 64;
    packet[8..24].copy_from_slice(&Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 9).octets());
    packet[24..40].copy_from_slice(&to.octets());
    packet.extend(payload);
    packet
}

pub fn frame4(to: Ipv4Addr, edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    ethernet(TO_US, &[], 0x0800, &ipv4(to, edit))
}

pub fn frame6(to: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    ethernet(TO_US, &[], 0x86dd, &ipv6(to, next, payload))
}

pub fn to_us() -> [u8; 6] {
    TO_US
}

/// A packet socket that receives all frames that the kernel's stack receives or sends on a device.
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    pub fn on(ifindex: u32) -> PacketSocket {
        const ALL: u16 = 3;
        // SAFETY: the call takes integers, and the result is checked.
        let fd = unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(ALL.to_be()))
        };
        assert!(fd >= 0, "AF_PACKET: {}", std::io::Error::last_os_error());
        // SAFETY: `fd` is new and has no other owner.
        let socket = PacketSocket(unsafe { OwnedFd::from_raw_fd(fd) });
        // Each frame uses up receive buffer space of a whole page.
        set_option_at(socket.0.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &(1_i32 << 22));
        // SAFETY: an all-zero address is valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
        address.sll_protocol = ALL.to_be();
        address.sll_ifindex = i32::try_from(ifindex).unwrap();
        let length = libc::socklen_t::try_from(size_of_val(&address)).unwrap();
        // SAFETY: `address` is readable for `length` bytes.
        let result = unsafe { libc::bind(fd, (&raw const address).cast(), length) };
        assert_eq!(result, 0, "bind: {}", std::io::Error::last_os_error());
        socket
    }

    /// Returns the next frame, or `None` after two seconds without one.
    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the call reads and writes one pollfd.
        if unsafe { libc::poll(&raw mut poll, 1, 2000) } != 1 {
            return None;
        }
        let mut frame = vec![0_u8; 2048];
        // SAFETY: the call writes at most the buffer's length.
        let length = unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
        frame.truncate(usize::try_from(length).unwrap());
        Some(frame)
    }

    /// Returns the frames that have been received already.
    pub fn waiting(&self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| {
            let mut frame = vec![0_u8; 2048];
            let (fd, flags) = (self.0.as_raw_fd(), libc::MSG_DONTWAIT);
            // SAFETY: the call writes at most the buffer's length.
            let length = unsafe { libc::recv(fd, frame.as_mut_ptr().cast(), frame.len(), flags) };
            frame.truncate(usize::try_from(length).ok()?);
            Some(frame)
        })
        .collect()
    }
}

impl PacketSocket {
    /// Sends a frame on the device.
    pub fn send(&self, frame: &[u8]) {
        // SAFETY: the call reads the frame's bytes.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(usize::try_from(sent).ok(), Some(frame.len()), "{}", std::io::Error::last_os_error());
    }
}

/// Polls until `poll` returns a value, for at most 10 seconds. Tests use this function to wait for effects that the
/// kernel produces later (freeing links, running NAPI).
#[track_caller]
pub fn awaited<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let start = std::time::Instant::now();
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(start.elapsed().as_secs() < 10, "not within 10 s: {what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    awaited(what, || holds().then_some(()));
}
