//! Query of the XDP programs on one device over rtnetlink.
//!
//! libbpf's own query, `bpf_xdp_query`, requests a dump of all devices of the namespace. The cost of that
//! dump grows with the number of devices, and the kernel holds its RTNL mutex for that time.

use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;

use super::{ifindex_arg, owned};

/// Length of the netlink message header (`struct nlmsghdr`) in bytes.
const HEADER: usize = 16;
/// Length of the header of a link message (`struct ifinfomsg`) in bytes.
const INFO: usize = 16;
/// Length of the header of a netlink attribute (`struct nlattr`) in bytes.
const ATTRIBUTE: usize = 4;
/// Mask of a netlink attribute's type without its flag bits.
const TYPE: u16 = 0x3fff;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_XDP: u16 = 43;
/// Flag in the attribute `IFLA_EXT_MASK` of a request. With this flag, the kernel omits the statistics of the device
/// from its reply.
const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;
/// Size of the receive buffer in bytes. The description of one device without statistics and virtual
/// functions takes about 1 KiB.
const BUFFER: usize = 64 * 1024;

/// Ids of the XDP programs on a device, one for each XDP mode. An id is 0 if no program runs in the mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProgramIds {
    pub native: u32,
    pub generic: u32,
    pub offload: u32,
}

/// Returns the ids of the XDP programs on a device of the calling thread's network namespace.
pub(crate) fn programs_on(ifindex: u32) -> io::Result<ProgramIds> {
    let request = request(ifindex_arg(ifindex)?);
    // SAFETY: the call takes integers, and the result is checked.
    let socket = owned(negative_errno(unsafe {
        libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)
    }))?;
    // SAFETY: the struct holds integers.
    let mut kernel: libc::sockaddr_nl = unsafe { zeroed() };
    kernel.nl_family = u16::try_from(libc::AF_NETLINK).unwrap_or_default();
    // SAFETY: request and address are readable with the lengths that are given, and outlive the call.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            request.as_ptr().cast(),
            request.len(),
            0,
            (&raw const kernel).cast(),
            super::size32::<libc::sockaddr_nl>(),
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = vec![0_u8; BUFFER];
    loop {
        // SAFETY: the kernel writes at most `answer.len()` bytes.
        let length = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
        match usize::try_from(length) {
            Ok(length) => return programs_in(answer.get(..length).unwrap_or_default()),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Converts the result of a C library call to the form that [`owned`] expects. A failed call returns a negative result
/// and sets `errno`. The converted result is then the negative error number.
fn negative_errno(result: i32) -> i32 {
    if result < 0 { -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) } else { result }
}

/// Returns a netlink request (RTM_GETLINK) for one device.
fn request(ifindex: i32) -> Vec<u8> {
    let length = HEADER + INFO + ATTRIBUTE + 4;
    let flags = u16::try_from(libc::NLM_F_REQUEST).unwrap_or_default();
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(u32::try_from(length).unwrap_or_default().to_ne_bytes());
    bytes.extend(libc::RTM_GETLINK.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    // Sequence number and port number.
    bytes.extend([0; 8]);
    // Family, padding and type.
    bytes.extend([0; 4]);
    bytes.extend(ifindex.to_ne_bytes());
    // Flags and mask of the flags.
    bytes.extend([0; 8]);
    bytes.extend(8_u16.to_ne_bytes());
    bytes.extend(IFLA_EXT_MASK.to_ne_bytes());
    bytes.extend(RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
    bytes
}

/// Parses the kernel's reply to [`request`] and returns the ids of the XDP programs in it.
fn programs_in(answer: &[u8]) -> io::Result<ProgramIds> {
    let malformed = || io::Error::from_raw_os_error(libc::EBADMSG);
    let length = number(answer, 0).and_then(|length| usize::try_from(length).ok()).ok_or_else(malformed)?;
    let message = answer.get(..length).ok_or_else(malformed)?;
    match half(message, 4).ok_or_else(malformed)? {
        kind if i32::from(kind) == libc::NLMSG_ERROR => {
            let code = number(message, HEADER).ok_or_else(malformed)?.cast_signed();
            Err(io::Error::from_raw_os_error(code.saturating_neg()))
        }
        libc::RTM_NEWLINK => {
            let about = message.get(HEADER + INFO..).ok_or_else(malformed)?;
            let mut found = ProgramIds::default();
            let xdp = attributes(about).find(|(kind, _)| *kind == IFLA_XDP);
            for (kind, value) in xdp.into_iter().flat_map(|(_, value)| attributes(value)) {
                let id = number(value, 0).unwrap_or_default();
                match kind {
                    IFLA_XDP_DRV_PROG_ID => found.native = id,
                    IFLA_XDP_SKB_PROG_ID => found.generic = id,
                    IFLA_XDP_HW_PROG_ID => found.offload = id,
                    _ => {}
                }
            }
            Ok(found)
        }
        _ => Err(malformed()),
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// Returns the netlink attributes in `bytes`, each with its type and its value. The iteration ends at an attribute
/// whose length is invalid.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(half(rest, 0)?);
        let kind = half(rest, 2)? & TYPE;
        let value = rest.get(ATTRIBUTE..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(ATTRIBUTE + value.len()).unwrap();
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    fn link(attributes: &[Vec<u8>]) -> Vec<u8> {
        message(libc::RTM_NEWLINK, &[vec![0; INFO], attributes.concat()].concat())
    }

    #[test]
    fn the_programs_of_each_mode_are_read() {
        let id = |kind, id: u32| attribute(kind, &id.to_ne_bytes());
        let programs = [id(4, 7), id(5, 7), attribute(1, &[1]), id(6, 8), id(7, 9)].concat();
        let answer = link(&[attribute(3, b"eth0\0"), attribute(IFLA_XDP | 0x8000, &programs)]);
        let expected = ProgramIds { native: 7, generic: 8, offload: 9 };
        assert_eq!(programs_in(&answer).unwrap(), expected);
        let without = link(&[attribute(3, b"eth0\0"), attribute(IFLA_XDP, &attribute(1, &[0]))]);
        assert_eq!(programs_in(&without).unwrap(), ProgramIds::default());
    }

    #[test]
    fn truncated_answers_are_refused_or_read_as_far_as_they_go() {
        let programs = attribute(IFLA_XDP, &attribute(5, &7_u32.to_ne_bytes()));
        let answer = link(&[programs]);
        for length in 0..answer.len() {
            assert!(programs_in(&answer[..length]).is_err(), "{length}");
        }
        let refused = message(2, &(-libc::ENODEV).to_ne_bytes());
        assert_eq!(programs_in(&refused).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn a_device_that_does_not_exist_is_refused() {
        assert_eq!(programs_on(i32::MAX.unsigned_abs()).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
