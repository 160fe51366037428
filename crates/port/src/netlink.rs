//! A small synchronous rtnetlink: requests are built as bytes, answers read as bytes, nothing is trusted about lengths.
//! For links and addresses of our own ports only; routes and neighbours are the `netlink` crate's. RFC 3549.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

const HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
pub(crate) const NLM_F_ACK: u16 = 4;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
pub(crate) const NLM_F_CREATE: u16 = 0x400;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
const NESTED: u16 = 0x8000;
/// Larger than any message that the kernel sends in one piece (32 KiB for dumps).
const BUFFER: usize = 64 * 1024;

/// What the kernel answered to a request.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The request was refused.
    #[error("{source}{}", explained(.message))]
    Refused {
        /// Error number.
        source: io::Error,
        /// The kernel's own words, if it has any.
        message: Option<String>,
    },
    /// The socket failed.
    #[error("netlink socket: {0}")]
    Socket(#[from] io::Error),
}

fn explained(message: &Option<String>) -> String {
    message.as_ref().map_or_else(String::new, |message| format!(": {message}"))
}

impl NetlinkError {
    /// The error number.
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

/// A request under construction.
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// A message of `kind` with its fixed `body` (`ifinfomsg`, `ifaddrmsg`).
    pub(crate) fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend_from_slice(body);
        Self { bytes }
    }

    /// Appends an attribute. One that is longer than an attribute can be is cut: the kernel then refuses it.
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

    /// Appends an attribute that holds those which `fill` appends, behind `body`.
    pub(crate) fn nest(&mut self, kind: u16, body: &[u8], fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(body);
        fill(self);
        let len = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.bytes[start + 2..start + 4].copy_from_slice(&(kind | NESTED).to_ne_bytes());
        self
    }
}

/// One message of an answer: kind and payload behind the header.
pub(crate) struct Message {
    pub(crate) kind: u16,
    pub(crate) payload: Vec<u8>,
}

/// A rtnetlink socket in the network namespace of the thread that opened it.
pub(crate) struct Netlink {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens a socket for requests.
    pub(crate) fn open() -> Result<Self, NetlinkError> {
        Self::open_for(None)
    }

    /// Opens a socket for requests to another family of netlink.
    pub(crate) fn open_for(family: Option<rustix::net::Protocol>) -> Result<Self, NetlinkError> {
        let netlink = Self::with_groups(family, 0, SocketFlags::CLOEXEC)?;
        rustix::net::sockopt::set_socket_timeout(
            &netlink.fd,
            rustix::net::sockopt::Timeout::Recv,
            Some(Duration::from_secs(5)),
        )?;
        // Without these the kernel answers with bare numbers; older ones do.
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
            let _ = crate::sys::set_option(netlink.fd.as_fd(), libc::SOL_NETLINK, option, &1_i32);
        }
        Ok(netlink)
    }

    /// Opens a non-blocking socket that listens to multicast groups.
    pub(crate) fn listen(groups: u32) -> Result<Self, NetlinkError> {
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

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sends a request and collects the answer up to its acknowledgement or end.
    pub(crate) fn transact(&mut self, mut request: Request) -> Result<Vec<Message>, NetlinkError> {
        self.sequence += 1;
        let len = u32::try_from(request.bytes.len()).unwrap_or(u32::MAX);
        request.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        request.bytes[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        rustix::net::send(&self.fd, &request.bytes, SendFlags::empty())?;
        let mut answer = Vec::new();
        loop {
            for (sequence, message) in self.receive()? {
                if sequence != self.sequence {
                    continue;
                }
                match message.kind {
                    NLMSG_DONE => return Ok(answer),
                    NLMSG_ERROR => {
                        return match refusal(&message) {
                            None => Ok(answer),
                            Some(error) => Err(error),
                        };
                    }
                    _ => answer.push(message),
                }
            }
        }
    }

    /// The messages of one datagram. An overrun of the socket is `ENOBUFS`.
    pub(crate) fn receive(&mut self) -> Result<Vec<(u32, Message)>, NetlinkError> {
        let (_, len) = rustix::net::recv(&self.fd, &mut self.buffer[..], RecvFlags::TRUNC)?;
        if len > self.buffer.len() {
            return Err(NetlinkError::Socket(io::Error::from_raw_os_error(libc::ENOBUFS)));
        }
        Ok(messages(&self.buffer[..len]))
    }
}

fn messages(mut bytes: &[u8]) -> Vec<(u32, Message)> {
    let mut found = Vec::new();
    while bytes.len() >= HEADER {
        let len = u32_at(bytes, 0).and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
        if len < HEADER || len > bytes.len() {
            break;
        }
        let kind = u16_at(bytes, 4).unwrap_or(0);
        let flags = u16_at(bytes, 6).unwrap_or(0);
        let sequence = u32_at(bytes, 8).unwrap_or(0);
        let mut payload = bytes[HEADER..len].to_vec();
        if kind == NLMSG_ERROR {
            payload.extend_from_slice(&flags.to_ne_bytes());
        }
        found.push((sequence, Message { kind, payload }));
        bytes = &bytes[len.next_multiple_of(4).min(bytes.len())..];
    }
    found
}

/// The error in an NLMSG_ERROR message whose flags were appended by [`messages`]; `None` for an acknowledgement.
fn refusal(message: &Message) -> Option<NetlinkError> {
    let (payload, flags) = message.payload.split_at(message.payload.len().saturating_sub(2));
    let code = u32_at(payload, 0).map_or(libc::EPROTO, |code| code.cast_signed().wrapping_neg());
    if code == 0 {
        return None;
    }
    let flags = u16_at(flags, 0).unwrap_or(0);
    // Behind the error number stands the request's header, with its body unless capped; attributes follow when flagged.
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

/// The attributes in `bytes`, up to the first that is broken.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)? & 0x3fff;
        let value = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// A text attribute, up to its terminating zero.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
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

    proptest! {
        #[test]
        fn broken_answers_end_quietly(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for (_, message) in messages(&bytes) {
                let _ = refusal(&message);
                prop_assert!(attributes(&message.payload).count() <= 50);
            }
        }
    }
}
