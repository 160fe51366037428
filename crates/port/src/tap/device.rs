//! Creates TAPs. The module opens the queues and configures the addresses, the MTU and the name of the
//! interface. The code runs on control threads and may block.
#![allow(unsafe_code, reason = "ioctls; see the SAFETY comments")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use packet::MacAddr;
use packet::net::InterfaceAddress;

use super::queue::TapQueue;
use crate::link::{self, LinkChange, LinkError, LinkInfo};
use crate::netns::{self, Netns, NetnsError};
use crate::sys;
use crate::vnet::VNET_HEADER;

const TUNSETIFF: u64 = 0x4004_54ca;
const TUNSETOFFLOAD: u64 = 0x4004_54d0;
const TUNSETVNETHDRSZ: u64 = 0x4004_54d8;
const TUNSETPERSIST: u64 = 0x4004_54cb;

const IFF_TAP: i32 = 0x0002;
const IFF_MULTI_QUEUE: i32 = 0x0100;
const IFF_NO_PI: i32 = 0x1000;
const IFF_VNET_HDR: i32 = 0x4000;
const IFF_TUN_EXCL: i32 = 0x8000;

const TUN_F_CSUM: u64 = 0x01;
const TUN_F_TSO4: u64 = 0x02;
const TUN_F_TSO6: u64 = 0x04;
const TUN_F_TSO_ECN: u64 = 0x08;
const TUN_F_USO4: u64 = 0x20;
const TUN_F_USO6: u64 = 0x40;

/// Configuration of a TAP with its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// Name of the kernel interface.
    pub name: String,
    /// Kind of the port, which is `tap` or `internal`.
    pub kind: &'static str,
    /// Namespace of the interface. `None` for the namespace of the calling thread.
    pub netns: Option<Netns>,
    /// Number of queues. Each queue is one file descriptor.
    pub queues: u32,
    /// IP addresses of the interface with their prefix lengths.
    pub addresses: Vec<InterfaceAddress>,
    /// MTU of the interface in bytes.
    pub mtu: u32,
    /// MAC address of the interface. With `None`, the kernel chooses the address.
    pub mac: Option<MacAddr>,
    /// Whether the kernel may send frames with incomplete checksums and packets that need segmentation. Trivium then
    /// completes the checksums and segments the packets.
    pub offload: bool,
    /// Whether the interface and its settings remain when the last queue is closed. If a persistent interface of
    /// Trivium with this name exists, it is adopted without changes.
    pub persistent: bool,
}

impl TapConfig {
    /// Returns the default configuration for a TAP with this interface name: one queue, MTU 1500, offloads
    /// enabled, and no IP address.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind: "tap",
            netns: None,
            queues: 1,
            addresses: Vec::new(),
            mtu: 1500,
            mac: None,
            offload: true,
            persistent: false,
        }
    }
}

/// An error of the creation of a TAP.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The kernel does not support TAPs, or the process may not open `/dev/net/tun`.
    #[error(
        "tap port {name}: /dev/net/tun cannot be opened ({source}); load the tun module, or run as root or with CAP_NET_ADMIN"
    )]
    Open {
        /// Name of the interface.
        name: String,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// A device with this name exists and does not belong to Trivium.
    #[error(
        "tap port {name}: a device of this name exists; choose another name or remove it with `ip link del {name}`"
    )]
    Exists {
        /// Name of the interface.
        name: String,
    },
    /// An ioctl of the TAP failed.
    #[error(
        "tap port {name}: {call} failed ({source}); check the name (at most 15 characters), the number of queues (at most 256) and the privileges (CAP_NET_ADMIN)"
    )]
    Os {
        /// Name of the interface.
        name: String,
        /// Name of the ioctl.
        call: &'static str,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// The namespace of the interface could not be entered.
    #[error("tap port {name}: {source}")]
    Netns {
        /// Name of the interface.
        name: String,
        /// Underlying error.
        source: NetnsError,
    },
    /// The addresses, the MTU or other settings of the interface could not be configured.
    #[error("tap port {name}: {source}")]
    Link {
        /// Name of the interface.
        name: String,
        /// Underlying error.
        source: LinkError,
    },
}

/// A TAP with its interface and with queues for the workers. If the TAP is not persistent, it is deleted when
/// its last queue is closed.
pub struct Tap {
    /// State of the interface in its namespace, after the configuration.
    pub link: LinkInfo,
    /// Queues of the TAP, one for each file descriptor.
    pub queues: Vec<TapQueue>,
}

impl Tap {
    /// Creates the TAP, configures its interface and sets the interface up.
    ///
    /// # Errors
    /// [`TapError`] if the TAP cannot be created or configured. No new interface remains in this case.
    pub fn create(config: &TapConfig) -> Result<Self, TapError> {
        netns::within_optional(config.netns.as_ref(), || config.create_here())
            .map_err(|source| TapError::Netns { name: config.name.clone(), source })?
    }
}

impl TapConfig {
    /// Returns whether a persistent TAP that belongs to Trivium and has the configured name exists.
    fn stands(&self) -> bool {
        self.persistent
            && link::find(&self.name)
                .is_ok_and(|link| link.kind.as_deref() == Some("tun") && link.alias == Some(self.alias()))
    }

    fn alias(&self) -> String {
        format!("trivium:{}", self.name)
    }

    fn os(&self, call: &'static str) -> impl FnOnce(io::Error) -> TapError + '_ {
        move |source| TapError::Os { name: self.name.clone(), call, source }
    }

    fn create_here(&self) -> Result<Tap, TapError> {
        let failed = |source| TapError::Link { name: self.name.clone(), source };
        let adopted = self.stands();
        let mut opened = Vec::new();
        for i in 0..self.queues.max(1) {
            let fd = self.open_queue(i == 0 && !adopted)?;
            let uso = self.set_offloads(&fd)?;
            opened.push((fd, uso));
        }
        let link = if adopted { link::find(&self.name) } else { self.set_up() }.map_err(failed)?;
        if let Some((fd, _)) = opened.first().filter(|_| self.persistent) {
            sys::ioctl_number(fd.as_fd(), TUNSETPERSIST, 1).map_err(self.os("TUNSETPERSIST"))?;
        }
        let queue = |(fd, uso)| TapQueue::new(fd, self.kind, link.mtu, uso);
        let queues = opened.into_iter().map(queue).collect();
        Ok(Tap { link, queues })
    }

    fn open_queue(&self, first: bool) -> Result<OwnedFd, TapError> {
        let file = File::options()
            .read(true)
            .write(true)
            .open("/dev/net/tun")
            .map_err(|source| TapError::Open { name: self.name.clone(), source })?;
        let fd = OwnedFd::from(file);
        rustix::io::ioctl_fionbio(&fd, true).map_err(|e| self.os("FIONBIO")(e.into()))?;
        // SAFETY: all-zero bytes are a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if self.name.is_empty() || self.name.len() >= request.ifr_name.len() {
            return Err(self.os("TUNSETIFF")(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = from.cast_signed();
        }
        // The exclusive flag prevents the use of a foreign device with this name.
        let exclusive = if first { IFF_TUN_EXCL } else { 0 };
        let flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE | exclusive;
        #[allow(clippy::cast_possible_truncation, reason = "16 flag bits, of which the highest is the sign")]
        {
            request.ifr_ifru.ifru_flags = flags as i16;
        }
        // SAFETY: TUNSETIFF reads and writes one ifreq.
        unsafe { sys::ioctl(fd.as_fd(), TUNSETIFF, &mut request) }.map_err(|e| match sys::errno(&e) {
            libc::EBUSY | libc::EEXIST if first => TapError::Exists { name: self.name.clone() },
            _ => self.os("TUNSETIFF")(e),
        })?;
        let mut size = i32::try_from(VNET_HEADER).unwrap_or(10);
        // SAFETY: TUNSETVNETHDRSZ reads one int.
        unsafe { sys::ioctl(fd.as_fd(), TUNSETVNETHDRSZ, &mut size) }.map_err(self.os("TUNSETVNETHDRSZ"))?;
        Ok(fd)
    }

    /// Sets the offloads that the kernel may leave to Trivium (`TUNSETOFFLOAD`). Returns whether UDP segmentation is
    /// one of these offloads (since Linux 6.2).
    fn set_offloads(&self, fd: &OwnedFd) -> Result<bool, TapError> {
        if !self.offload {
            sys::ioctl_number(fd.as_fd(), TUNSETOFFLOAD, 0).map_err(self.os("TUNSETOFFLOAD"))?;
            return Ok(false);
        }
        let tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
        if sys::ioctl_number(fd.as_fd(), TUNSETOFFLOAD, tcp | TUN_F_USO4 | TUN_F_USO6).is_ok() {
            return Ok(true);
        }
        sys::ioctl_number(fd.as_fd(), TUNSETOFFLOAD, tcp).map_err(self.os("TUNSETOFFLOAD"))?;
        Ok(false)
    }

    fn set_up(&self) -> Result<LinkInfo, LinkError> {
        let ifindex = link::find(&self.name)?.ifindex;
        let alias = self.alias();
        let change = LinkChange {
            mtu: Some(self.mtu),
            mac: self.mac,
            alias: Some(&alias),
            up: Some(true),
            ..LinkChange::default()
        };
        link::set(ifindex, &change)?;
        for address in &self.addresses {
            link::add_address(ifindex, *address)?;
        }
        link::by_index(ifindex)
    }
}
