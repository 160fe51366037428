//! A synchronous netlink client (RFC 3549). Requests and answers are built and parsed as bytes. All lengths
//! in answers are checked.
//!
//! This crate uses the client for the devices and addresses of its own ports. The `netlink` crate, which
//! follows the kernel's routing state, uses it as well.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// Length of a message header (`struct nlmsghdr`) in bytes.
pub const HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Flag `NLM_F_REQUEST`, which all netlink requests have.
pub const NLM_F_REQUEST: u16 = 1;
pub(crate) const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP_INTR: u16 = 0x10;
/// Request flag `NLM_F_DUMP`, which requests all objects of a kind.
pub const NLM_F_DUMP: u16 = 0x300;
/// Request flag `NLM_F_REPLACE`, which replaces an existing object.
pub const NLM_F_REPLACE: u16 = 0x100;
/// Request flag `NLM_F_EXCL`, which lets the request fail if the object exists.
pub const NLM_F_EXCL: u16 = 0x200;
/// Request flag `NLM_F_CREATE`, which creates an object that does not exist.
pub const NLM_F_CREATE: u16 = 0x400;
/// Request flag `NLM_F_APPEND`, which adds an object after the existing objects.
pub const NLM_F_APPEND: u16 = 0x800;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
const NLA_F_NESTED: u16 = 0x8000;
/// Mask of the type in an attribute's type field. The other bits are flags (`NLA_F_NESTED`,
/// `NLA_F_NET_BYTEORDER`).
pub const NLA_TYPE_MASK: u16 = 0x3fff;
/// Size of the receive buffer in bytes. The kernel sends at most 32 KiB in one datagram of a dump.
const BUFFER: usize = 64 * 1024;

/// An error of a netlink request.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The kernel refused the request.
    #[error("{source}{}", explained(.message))]
    Refused {
        /// Error number that the kernel returned.
        source: io::Error,
        /// Error text of the kernel (extended acknowledgement), or `None` if the kernel sent no text.
        message: Option<String>,
    },
    /// An operation on the netlink socket failed.
    #[error("netlink socket: {0}")]
    Socket(#[from] io::Error),
}

fn explained(message: &Option<String>) -> String {
    message.as_ref().map_or_else(String::new, |message| format!(": {message}"))
}

impl NetlinkError {
    /// Returns the error number (errno) that the kernel returned, or 0 if there is no error number.
    #[must_use]
    pub fn errno(&self) -> i32 {
        let (Self::Refused { source, .. } | Self::Socket(source)) = self;
        source.raw_os_error().unwrap_or(0)
    }
}

impl From<rustix::io::Errno> for NetlinkError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Socket(errno.into())
    }
}

/// A netlink request that is being built.
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Begins a request with a message of type `kind`. `body` is the fixed structure that follows the message
    /// header (`ifinfomsg`, `ifaddrmsg`).
    #[must_use]
    pub fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend_from_slice(body);
        Self { bytes }
    }

    /// Appends an attribute to the request. If the value exceeds the maximum length of an attribute, the value is
    /// truncated, and the kernel then refuses the request.
    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let len = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&len.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&value[..usize::from(len) - 4]);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    pub(crate) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    /// Appends a nested attribute. The attribute's value consists of `body` and the attributes that `fill`
    /// appends.
    pub(crate) fn nest(&mut self, kind: u16, body: &[u8], fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(body);
        fill(self);
        let len = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.bytes[start + 2..start + 4].copy_from_slice(&(kind | NLA_F_NESTED).to_ne_bytes());
        self
    }
}

/// A message of the kernel's answer, with its type and the payload after the message header.
pub(crate) struct Message {
    pub(crate) kind: u16,
    pub(crate) payload: Vec<u8>,
}

/// A received message that refers to the bytes in the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRef<'a> {
    /// Type of the message (`RTM_*`, `NLMSG_*`).
    pub kind: u16,
    /// Flags of the message (`NLM_F_*`).
    pub flags: u16,
    /// Sequence number of the request that the message answers, or 0 for a notification.
    pub sequence: u32,
    /// Payload of the message, after the message header.
    pub payload: &'a [u8],
}

/// A netlink socket. The socket belongs to the network namespace of the thread that opened it.
pub struct Netlink {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens an rtnetlink socket for requests.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`] if the socket cannot be opened.
    pub fn open() -> Result<Self, NetlinkError> {
        Self::open_for(None)
    }

    /// Opens a socket for requests to a netlink family. `None` means rtnetlink.
    pub(crate) fn open_for(family: Option<rustix::net::Protocol>) -> Result<Self, NetlinkError> {
        let netlink = Self::with_groups(family, 0, SocketFlags::CLOEXEC)?;
        rustix::net::sockopt::set_socket_timeout(
            &netlink.fd,
            rustix::net::sockopt::Timeout::Recv,
            Some(Duration::from_secs(5)),
        )?;
        // Without these options, the kernel answers with error numbers only, as older kernels do.
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
            let _ = crate::sys::set_option(netlink.fd.as_fd(), libc::SOL_NETLINK, option, &1_i32);
        }
        Ok(netlink)
    }

    /// Opens a non-blocking rtnetlink socket that receives multicast notifications. Bit `n - 1` of `groups`
    /// subscribes to multicast group `n`.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`] if the socket cannot be opened.
    pub fn listen(groups: u32) -> Result<Self, NetlinkError> {
        Self::with_groups(None, groups, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }

    fn with_groups(
        family: Option<rustix::net::Protocol>,
        groups: u32,
        flags: SocketFlags,
    ) -> Result<Self, NetlinkError> {
        // Protocol 0 is NETLINK_ROUTE.
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, family)?;
        rustix::net::bind(&fd, &netlink::SocketAddrNetlink::new(0, groups))?;
        Ok(Self { fd, sequence: 0, buffer: vec![0; BUFFER] })
    }

    /// Sets the size of the socket's receive buffer in bytes. The size may exceed the system's limit
    /// (CAP_NET_ADMIN).
    ///
    /// # Errors
    /// [`NetlinkError::Socket`] if the kernel refuses the size.
    pub fn set_receive_buffer(&self, bytes: usize) -> Result<(), NetlinkError> {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        Ok(crate::sys::set_option(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)?)
    }

    /// Returns the file descriptor of the socket, which is readable when messages are pending.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sends a request and returns all messages of the answer, up to the acknowledgement or the end of the
    /// dump.
    pub(crate) fn transact(&mut self, request: Request) -> Result<Vec<Message>, NetlinkError> {
        let mut answer = Vec::new();
        self.dump(request, |message| {
            answer.push(Message { kind: message.kind, payload: message.payload.to_vec() });
        })?;
        Ok(answer)
    }

    /// Sends a request and calls `each` with each message of the answer, up to the acknowledgement or the end
    /// of the dump. Returns false if the objects have changed during a dump. In this case, objects may be
    /// missing, and the caller should repeat the request.
    ///
    /// # Errors
    /// [`NetlinkError`] if the kernel refuses the request or the socket fails.
    pub fn dump(
        &mut self,
        request: Request,
        mut each: impl FnMut(MessageRef<'_>),
    ) -> Result<bool, NetlinkError> {
        self.dump_until(request, |message| {
            each(message);
            ControlFlow::Continue(())
        })
    }

    /// Makes a request like `Netlink::dump`, but stops when `each` returns `Break`. The rest of the answer is then
    /// still pending, so the socket cannot be used for another dump.
    pub(crate) fn dump_until(
        &mut self,
        mut request: Request,
        mut each: impl FnMut(MessageRef<'_>) -> ControlFlow<()>,
    ) -> Result<bool, NetlinkError> {
        self.sequence += 1;
        let len = u32::try_from(request.bytes.len()).unwrap_or(u32::MAX);
        request.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        request.bytes[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        rustix::net::send(&self.fd, &request.bytes, SendFlags::empty())?;
        let (wanted, mut consistent) = (self.sequence, true);
        loop {
            for message in messages(self.receive()?).filter(|message| message.sequence == wanted) {
                consistent &= message.flags & NLM_F_DUMP_INTR == 0 || message.kind == NLMSG_ERROR;
                match message.kind {
                    NLMSG_DONE => return Ok(consistent),
                    NLMSG_ERROR => return refusal(&message).map_or(Ok(consistent), Err),
                    _ => {
                        if each(message).is_break() {
                            return Ok(consistent);
                        }
                    }
                }
            }
        }
    }

    /// Receives the next datagram, which may contain several [`messages`]. Waits for a datagram, unless
    /// `Netlink::listen` has opened the socket. In that case, the error is `EAGAIN` if no datagram is pending. The
    /// error is `ENOBUFS` if the kernel has lost messages because the socket's buffer was full.
    pub(crate) fn receive(&mut self) -> Result<&[u8], NetlinkError> {
        let (_, len) = rustix::net::recv(&self.fd, &mut self.buffer[..], RecvFlags::TRUNC)?;
        let whole = self.buffer.get(..len);
        whole.ok_or_else(|| NetlinkError::Socket(io::Error::from_raw_os_error(libc::ENOBUFS)))
    }

    /// Receives the next datagram of a socket that `Netlink::listen` has opened. Returns `None` if no
    /// datagram is pending.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`]. The error number is `ENOBUFS` if the kernel has lost notifications because
    /// the socket's receive buffer was full.
    pub fn try_receive(&mut self) -> Result<Option<&[u8]>, NetlinkError> {
        match self.receive() {
            Ok(datagram) => Ok(Some(datagram)),
            Err(NetlinkError::Socket(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Iterates over the messages in a datagram. Stops at the first malformed message.
pub fn messages(bytes: &[u8]) -> impl Iterator<Item = MessageRef<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let len = usize::try_from(u32_at(rest, 0)?).ok()?;
        let message = MessageRef {
            kind: u16_at(rest, 4)?,
            flags: u16_at(rest, 6)?,
            sequence: u32_at(rest, 8)?,
            payload: rest.get(HEADER..len)?,
        };
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(message)
    })
}

/// Returns the error that an NLMSG_ERROR message reports. Returns `None` if the message is an acknowledgement
/// (error number 0).
fn refusal(message: &MessageRef<'_>) -> Option<NetlinkError> {
    let (payload, flags) = (message.payload, message.flags);
    let code = u32_at(payload, 0).map_or(libc::EPROTO, |code| code.cast_signed().wrapping_neg());
    if code == 0 {
        return None;
    }
    // After the error number, the message contains the request's header, with the request's body unless
    // capped. Attributes follow if flagged.
    let request = if flags & NLM_F_CAPPED != 0 {
        HEADER
    } else {
        u32_at(payload, 4).map_or(HEADER, |len| usize::try_from(len).unwrap_or(HEADER).next_multiple_of(4))
    };
    let message = (flags & NLM_F_ACK_TLVS != 0)
        .then(|| payload.get(4 + request..))
        .flatten()
        .and_then(|bytes| attributes(bytes).find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG))
        .map(|(_, value)| text(value));
    Some(NetlinkError::Refused { source: io::Error::from_raw_os_error(code), message })
}

/// Iterates over the netlink attributes in `bytes` as pairs of type and value. Stops at the first malformed
/// attribute.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)? & NLA_TYPE_MASK;
        let value = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// Returns the text of a string attribute, without its terminating zero byte.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Returns the 16-bit number at byte offset `at`, in host byte order. Returns `None` if `bytes` is too short.
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

/// Returns the 32-bit number at byte offset `at`, in host byte order. Returns `None` if `bytes` is too short.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn attributes_nest_and_are_padded() {
        let mut request = Request::new(16, 0, &[0; 16]);
        request.text(3, "veth0").nest(18, &[], |inner| {
            inner.text(1, "veth").number(2, 7);
        });
        assert!(request.bytes.len().is_multiple_of(4));
        let found: Vec<_> = attributes(&request.bytes[32..]).collect();
        assert_eq!(found[0], (3, &b"veth0\0"[..]));
        assert_eq!(found[1].0, 18);
        let inner: Vec<_> = attributes(found[1].1).collect();
        assert_eq!(inner, [(1, &b"veth\0"[..]), (2, &7_u32.to_ne_bytes()[..])]);
    }

    #[test]
    fn a_dump_that_is_broken_off_reads_no_more() {
        // RTM_GETRULE lists the IPv4 rules. A new namespace has three of them.
        let dump = || Request::new(34, NLM_F_DUMP, &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let (mut all, mut some) = (0, 0);
        Netlink::open().unwrap().dump(dump(), |_| all += 1).unwrap();
        let broken_off = Netlink::open().unwrap().dump_until(dump(), |_| {
            some += 1;
            ControlFlow::Break(())
        });
        assert!(broken_off.unwrap() && all >= 3 && some == 1, "{some} of {all}");
    }

    proptest! {
        #[test]
        fn broken_answers_end_quietly(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for message in messages(&bytes) {
                let _ = refusal(&message);
                prop_assert!(attributes(message.payload).count() <= 50);
            }
        }
    }
}
