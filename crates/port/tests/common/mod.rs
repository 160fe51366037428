//! Helpers of tests against the real kernel: namespaces that are removed also after a failure, a visible skip
//! without privileges, and a small XDP program that redirects frames to sockets.
#![allow(unsafe_code, reason = "raw bpf(2) to attach a five-instruction program")]
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, reason = "a failure is the test's")]
#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use port::{Batch, Depot, FrameMemory, FramePool, HugePages, MemoryConfig, Queue, netns};

/// Returns whether this process may create namespaces and devices. If not, the skip is recorded, which is a
/// failure in CI.
pub fn privileged(part: &str) -> bool {
    if !testbed::privileged() {
        testbed::skip(&format!("{part} needs root (namespaces, devices)"));
    }
    testbed::privileged()
}

/// A network namespace of a test, bound to a file so that it can be entered. The namespace is removed when
/// the value is dropped.
pub struct Space {
    name: String,
    path: PathBuf,
}

impl Space {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("port-t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = PathBuf::from("/run/netns").join(&name);
        std::fs::create_dir_all("/run/netns").unwrap();
        File::create(&path).unwrap();
        let target = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        std::thread::spawn(move || {
            // SAFETY: unshares this short-lived thread only, then binds its namespace to the file.
            unsafe {
                assert_eq!(libc::unshare(libc::CLONE_NEWNET), 0, "unshare");
                let source = c"/proc/thread-self/ns/net";
                let none = std::ptr::null();
                let bound = libc::mount(source.as_ptr(), target.as_ptr(), none, libc::MS_BIND, none.cast());
                assert_eq!(bound, 0, "bind: {}", std::io::Error::last_os_error());
            }
            let lo = port::link::find("lo").unwrap();
            port::link::set(lo.ifindex, &port::link::LinkChange { up: Some(true), ..Default::default() })
                .unwrap();
        })
        .join()
        .unwrap();
        Self { name, path }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn netns(&self) -> netns::Netns {
        netns::Netns::Name(self.name.clone())
    }

    /// Runs `work` inside the namespace.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        netns::within(&self.path, work).unwrap()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let path = std::ffi::CString::new(self.path.to_str().unwrap()).unwrap();
        // SAFETY: a valid path; the namespace ends with its last user.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        let _ = std::fs::remove_file(&self.path);
    }
}

pub fn memory(frames: u32) -> Arc<FrameMemory> {
    Arc::new(FrameMemory::new(MemoryConfig { frames, frame_size: 2048, huge_pages: HugePages::Off }).unwrap())
}

pub fn depot(frames: u32) -> Arc<Depot> {
    Depot::new(memory(frames))
}

pub fn bytes_of(packet: &port::Packet, memory: &FrameMemory) -> Vec<u8> {
    let mut bytes = vec![0; packet.len()];
    assert_eq!(packet.copy_to(memory, &mut bytes), bytes.len());
    bytes
}

/// Waits at most `milliseconds` until `fd` is readable.
pub fn wait(fd: BorrowedFd<'_>, milliseconds: i32) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut poll, 1, milliseconds) == 1 }
}

/// Receives packets until `enough` packets have arrived, or no packet arrives for a second.
pub fn collect(queue: &mut dyn Queue, pool: &mut FramePool, enough: usize) -> Batch {
    let mut batch = Batch::new();
    while batch.len() < enough {
        if queue.receive(pool, &mut batch) == 0 {
            let Some(fd) = queue.wait_fd() else { break };
            if !wait(fd, 1000) {
                break;
            }
        }
        queue.kick(pool);
    }
    batch
}

/// Attributes of a bpf(2) system call (`union bpf_attr`). The memory has space for all fields that the tests use.
#[repr(C)]
struct Bpf([u8; 144]);

fn bpf(command: i32, fields: &[(usize, &[u8])]) -> std::io::Result<i32> {
    let mut attributes = Bpf([0; 144]);
    for (at, bytes) in fields {
        attributes.0[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    // SAFETY: the structure has the given length; pointers in it are valid for the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut attributes, size_of::<Bpf>()) };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(i32::try_from(result).unwrap()) }
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: a new descriptor.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// An XDP program, attached in driver mode, that redirects each frame to a socket. The index of the frame's receive
/// queue selects the socket in a map.
pub struct Steering {
    map: OwnedFd,
    _program: OwnedFd,
    _link: OwnedFd,
}

impl Steering {
    /// Attaches the program to a device of the calling thread's namespace.
    pub fn attach(ifindex: u32) -> Self {
        let word = |value: u32| value.to_ne_bytes();
        // BPF_MAP_CREATE: type XSKMAP, key and value of 4 bytes, 64 entries.
        let map = bpf(0, &[(0, &word(17)), (4, &word(4)), (8, &word(4)), (12, &word(64))]).unwrap();
        let instruction = |code: u8, registers: u8, offset: i16, value: i32| {
            let (o, v) = (offset.to_ne_bytes(), value.to_ne_bytes());
            [code, registers, o[0], o[1], v[0], v[1], v[2], v[3]]
        };
        let code: Vec<u8> = [
            instruction(0x61, 0x12, 16, 0),  // r2 = ctx->rx_queue_index
            instruction(0x18, 0x11, 0, map), // r1 = map
            instruction(0, 0, 0, 0),         //
            instruction(0xb7, 0x03, 0, 2),   // r3 = XDP_PASS
            instruction(0x85, 0, 0, 51),     // r0 = bpf_redirect_map(r1, r2, r3)
            instruction(0x95, 0, 0, 0),      // return r0
        ]
        .concat();
        let license = c"Apache-2.0";
        let address = |pointer: usize| (pointer as u64).to_ne_bytes();
        // BPF_PROG_LOAD: type XDP, 6 instructions, with the flag that declares support for fragments.
        let program = bpf(
            5,
            &[
                (0, &word(6)),
                (4, &word(6)),
                (8, &address(code.as_ptr().addr())),
                (16, &address(license.as_ptr().addr())),
                (44, &word(1 << 5)),
            ],
        )
        .unwrap();
        // BPF_LINK_CREATE: program, device, attach type XDP, driver mode.
        let fields = [(0, word(program.unsigned_abs())), (4, word(ifindex)), (8, word(37)), (12, word(4))];
        let fields: Vec<(usize, &[u8])> = fields.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
        let link = bpf(28, &fields).unwrap();
        Self { map: owned(map), _program: owned(program), _link: owned(link) }
    }

    /// Inserts a socket into the program's map, at the index of the receive queue `queue`.
    pub fn steer(&self, queue: u32, socket: BorrowedFd<'_>) {
        let value = socket.as_raw_fd().unsigned_abs();
        let (key, value) = (&raw const queue, &raw const value);
        // BPF_MAP_UPDATE_ELEM.
        let map = self.map.as_fd().as_raw_fd().unsigned_abs().to_ne_bytes();
        bpf(
            2,
            &[(0, &map), (8, &(key.addr() as u64).to_ne_bytes()), (16, &(value.addr() as u64).to_ne_bytes())],
        )
        .unwrap();
    }
}

/// A raw socket on a device of the calling thread's namespace. The socket sends and receives frames like a host in this
/// namespace.
pub struct Wire(OwnedFd);

impl Wire {
    pub fn open(device: &str) -> Self {
        let ifindex = port::link::find(device).unwrap().ifindex;
        let protocol = 3_u16.to_be();
        // SAFETY: plain system calls with valid arguments.
        unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(protocol));
            assert!(fd >= 0, "AF_PACKET: {}", std::io::Error::last_os_error());
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol;
            address.sll_ifindex = ifindex.cast_signed();
            let bound = libc::bind(fd, (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as u32);
            assert_eq!(bound, 0);
            let room = 64_i32 << 20;
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, (&raw const room).cast(), 4);
            Self(OwnedFd::from_raw_fd(fd))
        }
    }

    pub fn send(&self, frame: &[u8]) {
        rustix::net::send(&self.0, frame, rustix::net::SendFlags::empty()).unwrap();
    }

    /// Returns the next received frame (not a transmitted one), or `None` after `milliseconds` without a
    /// frame.
    pub fn receive(&self, milliseconds: i32) -> Option<Vec<u8>> {
        loop {
            if !wait(self.0.as_fd(), milliseconds) {
                return None;
            }
            let mut buffer = vec![0_u8; 70_000];
            // SAFETY: all-zero bytes are a valid address.
            let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            let mut len = size_of::<libc::sockaddr_ll>() as u32;
            // SAFETY: the buffers have the given lengths.
            let got = unsafe {
                let to = buffer.as_mut_ptr().cast();
                libc::recvfrom(self.0.as_raw_fd(), to, buffer.len(), 0, (&raw mut from).cast(), &raw mut len)
            };
            // PACKET_OUTGOING marks frames transmitted by this host.
            if from.sll_pkttype != 4 {
                buffer.truncate(usize::try_from(got).unwrap());
                return Some(buffer);
            }
        }
    }
}

/// Returns a frame of `len` bytes with an experimental EtherType. The payload begins with `number`.
pub fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 0x88, 0xb5];
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend((bytes.len()..len).map(|i| (i % 251) as u8));
    bytes
}

/// Returns the number in a frame that the function [`frame`] has built. Returns `None` for any other frame, for example
/// a frame that the kernel sends by itself.
pub fn number(bytes: &[u8]) -> Option<u32> {
    (bytes.get(12..14)? == [0x88, 0xb5]).then(|| u32::from_be_bytes(bytes[14..18].try_into().unwrap()))
}

/// Loads a program of two instructions that returns `verdict` for every frame.
fn verdict_program(verdict: u8) -> OwnedFd {
    let code = [[0xb7, 0, 0, 0, verdict, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]].concat();
    let license = c"Apache-2.0";
    let word = |value: u32| value.to_ne_bytes();
    let address = |pointer: usize| (pointer as u64).to_ne_bytes();
    let fields: [(usize, &[u8]); 5] = [
        (0, &word(6)),
        (4, &word(2)),
        (8, &address(code.as_ptr().addr())),
        (16, &address(license.as_ptr().addr())),
        (44, &word(1 << 5)),
    ];
    owned(bpf(5, &fields).unwrap())
}

/// Attaches a program that drops all frames, for the lifetime of the returned descriptors.
pub fn attach_drop(ifindex: u32) -> (OwnedFd, OwnedFd) {
    let program = verdict_program(1);
    let number = program.as_raw_fd().unsigned_abs().to_ne_bytes();
    let fields: [(usize, &[u8]); 4] =
        [(0, &number), (4, &ifindex.to_ne_bytes()), (8, &37_u32.to_ne_bytes()), (12, &4_u32.to_ne_bytes())];
    let link = owned(bpf(28, &fields).unwrap());
    (program, link)
}

/// A generator that creates frames inside the kernel and transmits them on a device (`BPF_PROG_TEST_RUN` with live
/// frames).
pub struct Generator(OwnedFd);

impl Generator {
    pub fn new() -> Self {
        Self(verdict_program(3))
    }

    /// Transmits `frame` on the device `count` times.
    pub fn run(&self, ifindex: u32, frame: &[u8], count: u32) {
        let word = |value: u32| value.to_ne_bytes();
        let address = |pointer: usize| (pointer as u64).to_ne_bytes();
        let len = frame.len() as u32;
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        let context = [0, len, 0, ifindex, 0, 0].map(word).concat();
        let program = word(self.0.as_raw_fd().unsigned_abs());
        // BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, batches of 64.
        let fields: [(usize, &[u8]); 8] = [
            (0, &program),
            (8, &word(len)),
            (16, &address(frame.as_ptr().addr())),
            (32, &word(count)),
            (40, &word(context.len() as u32)),
            (48, &address(context.as_ptr().addr())),
            (64, &word(2)),
            (72, &word(64)),
        ];
        bpf(10, &fields).unwrap();
    }
}
