//! A minimal AF_XDP socket in copy mode that receives frames, to check the frames that are steered to it.

use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::set_option;

const FRAME: usize = 4096;
const FRAMES: u32 = 256;

/// A memory mapping that is removed on drop.
struct Mapping {
    at: NonNull<u8>,
    length: usize,
}

impl Mapping {
    fn new(length: usize, flags: i32, fd: i32, offset: u64) -> Mapping {
        let offset = i64::try_from(offset).unwrap();
        // SAFETY: the call creates a new mapping at an address that the kernel chooses.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset)
        };
        assert_ne!(at, libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        Mapping { at: NonNull::new(at.cast()).unwrap(), length }
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        let offset = usize::try_from(offset).unwrap();
        assert!(offset + 4 <= self.length && offset.is_multiple_of(4));
        // SAFETY: the word is inside the mapping, aligned, and shared with the kernel as an atomic word.
        unsafe { AtomicU32::from_ptr(self.at.as_ptr().add(offset).cast()) }
    }

    fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.length);
        // SAFETY: the bytes are inside the mapping, and the kernel no longer writes to memory that it has
        // handed over.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(offset), length) }.to_vec()
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.length);
        // SAFETY: the bytes are inside the mapping, and the kernel reads them only after the ring's producer
        // moves.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.as_ptr().add(offset), bytes.len()) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and no reference to it remains.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.length) };
    }
}

pub struct Xsk {
    socket: OwnedFd,
    memory: Mapping,
    receive: Mapping,
    fill: Mapping,
    offsets: libc::xdp_mmap_offsets,
}

impl Xsk {
    /// Creates a socket that is bound to a queue of a device of this namespace.
    pub fn bound(ifindex: u32, queue: u32) -> Xsk {
        // SAFETY: the call takes integers, and the result is checked.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(fd >= 0, "AF_XDP: {}", std::io::Error::last_os_error());
        // SAFETY: `fd` is new and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let length = FRAME * usize::try_from(FRAMES).unwrap();
        let memory = Mapping::new(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        // SAFETY: the struct holds integers only.
        let mut region: libc::xdp_umem_reg = unsafe { zeroed() };
        region.addr = u64::try_from(memory.at.as_ptr().expose_provenance()).unwrap();
        region.len = u64::try_from(length).unwrap();
        region.chunk_size = u32::try_from(FRAME).unwrap();
        set_option(socket.as_fd(), libc::XDP_UMEM_REG, &region);
        set_option(socket.as_fd(), libc::XDP_UMEM_FILL_RING, &FRAMES);
        set_option(socket.as_fd(), libc::XDP_UMEM_COMPLETION_RING, &FRAMES);
        set_option(socket.as_fd(), libc::XDP_RX_RING, &FRAMES);
        let offsets = ring_offsets(socket.as_fd());
        let ring = |descriptors: u64, size: usize, page: u64| {
            let length = usize::try_from(descriptors).unwrap() + size * usize::try_from(FRAMES).unwrap();
            Mapping::new(length, libc::MAP_SHARED | libc::MAP_POPULATE, socket.as_raw_fd(), page)
        };
        let receive = ring(offsets.rx.desc, size_of::<libc::xdp_desc>(), 0);
        let fill = ring(offsets.fr.desc, 8, libc::XDP_UMEM_PGOFF_FILL_RING);
        for index in 0..FRAMES {
            let address = u64::from(index) * u64::try_from(FRAME).unwrap();
            let at = usize::try_from(offsets.fr.desc).unwrap() + 8 * usize::try_from(index).unwrap();
            fill.write(at, &address.to_ne_bytes());
        }
        fill.word(offsets.fr.producer).store(FRAMES, Ordering::Release);
        bind(socket.as_fd(), ifindex, queue);
        Xsk { socket, memory, receive, fill, offsets }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the next frame, or `None` when there is none. The memory of the frame is returned to the
    /// kernel.
    pub fn receive(&self) -> Option<Vec<u8>> {
        self.receive_noted().map(|(_, frame)| frame)
    }

    /// Returns the next frame with the sixteen bytes in front of it.
    pub fn receive_noted(&self) -> Option<([u8; 16], Vec<u8>)> {
        let consumer = self.receive.word(self.offsets.rx.consumer);
        let at = consumer.load(Ordering::Relaxed);
        if self.receive.word(self.offsets.rx.producer).load(Ordering::Acquire) == at {
            return None;
        }
        let index = usize::try_from(at % FRAMES).unwrap();
        let descriptor = usize::try_from(self.offsets.rx.desc).unwrap() + 16 * index;
        let descriptor = self.receive.bytes(descriptor, 16);
        let address = u64::from_ne_bytes(descriptor[..8].try_into().unwrap());
        let length = u32::from_ne_bytes(descriptor[8..12].try_into().unwrap());
        let start = usize::try_from(address).unwrap();
        let before = self.memory.bytes(start - 16, 16).try_into().unwrap();
        let frame = self.memory.bytes(start, length.try_into().unwrap());
        consumer.store(at.wrapping_add(1), Ordering::Release);
        let producer = self.fill.word(self.offsets.fr.producer);
        let slot = producer.load(Ordering::Relaxed);
        let slot_at = usize::try_from(self.offsets.fr.desc).unwrap();
        let base = address - address % u64::try_from(FRAME).unwrap();
        self.fill.write(slot_at + 8 * usize::try_from(slot % FRAMES).unwrap(), &base.to_ne_bytes());
        producer.store(slot.wrapping_add(1), Ordering::Release);
        Some((before, frame))
    }
}

fn ring_offsets(socket: BorrowedFd<'_>) -> libc::xdp_mmap_offsets {
    // SAFETY: the struct holds integers only.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { zeroed() };
    let mut length = libc::socklen_t::try_from(size_of::<libc::xdp_mmap_offsets>()).unwrap();
    // SAFETY: the kernel writes at most `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_MMAP_OFFSETS,
            (&raw mut offsets).cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0, "XDP_MMAP_OFFSETS: {}", std::io::Error::last_os_error());
    offsets
}

fn bind(socket: BorrowedFd<'_>, ifindex: u32, queue: u32) {
    // SAFETY: the struct holds integers only.
    let mut address: libc::sockaddr_xdp = unsafe { zeroed() };
    address.sxdp_family = u16::try_from(libc::AF_XDP).unwrap();
    address.sxdp_flags = libc::XDP_COPY;
    address.sxdp_ifindex = ifindex;
    address.sxdp_queue_id = queue;
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_xdp>()).unwrap();
    // SAFETY: `address` is readable for `length` bytes.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    assert_eq!(result, 0, "bind: {}", std::io::Error::last_os_error());
}
