//! Extraction of the frame fields that rules match, for ports without an XDP program. The code mirrors
//! `bpf/include/filter_key.h`, in the same order and with the same result for truncated frames. A frame gets
//! the fragment state [`UNREADABLE`] if headers that rules match cannot be parsed. `compiled.rs` decides the
//! treatment of these frames.

use super::compiled::{Conf, DESTINATION_PORT, FIELDS, FLAGS, HEAD_WORDS, SOURCE_PORT};

/// Index in `struct filter_conf` of the flag that states whether rules examine fields after the IP header.
const TRANSPORT: usize = 3;
/// Value of the port fields in a `Key` for a frame without ports. The next two constants are the values for frames
/// without a VLAN and without TCP flags.
const NO_PORT: u32 = 65_536;
const NO_VLAN: u32 = 4096;
const NO_FLAGS: u32 = 256;
/// Protocol family of a frame that is neither IPv4 nor IPv6. This and the next three constants are the values
/// of `enum filter_family`.
const OTHER: u32 = 0;
pub(super) const IPV4: u32 = 1;
pub(super) const IPV6: u32 = 2;
const MALFORMED: u32 = 3;
/// Fragment state of an unfragmented packet. This and the next three constants are the values of `enum
/// filter_fragment`.
const WHOLE: u32 = 0;
const FIRST: u32 = 1;
const LATER: u32 = 2;
const UNREADABLE: u32 = 3;
/// Value of `enum filter_base` for byte offsets that are counted from the IP header. The next two constants are the
/// values for offsets from the transport header and from the payload.
const NETWORK: usize = 1;
const TRANSPORT_BASE: usize = 2;
const PAYLOAD: usize = 3;
/// Maximum number of IPv6 extension headers that the filter examines in a packet (`IPV6_EXTENSIONS_MAX`).
const EXTENSIONS: usize = 6;
/// Maximum number of VLAN tags that the filter examines in a frame (`FILTER_TAGS_MAX`).
const TAGS: usize = 16;
/// Minimum offset in bytes at which an IPv6 fragment cannot overlap a TCP header (`FILTER_FRAGMENT6_LEAST`).
const FRAGMENT6_LEAST: u16 = 64;
const TCP: u32 = 6;
const TCP_HEADER: usize = 20;

/// Transport header fields that at least one rule matches.
#[derive(Debug, Clone, Copy)]
struct Asked {
    ports: bool,
    /// Whether rules match fields of the TCP header after the ports. Mirrors `asks_tcp()` of the XDP program, except
    /// for rules with SYN cookies, which only the XDP program supports.
    tcp: bool,
}

impl Asked {
    fn of(conf: &Conf) -> Asked {
        let has = |field: usize| conf[HEAD_WORDS + 4 * field] != 0;
        // If rules have byte patterns, the length of the first probe is not 0.
        let tcp = has(FLAGS) || conf[HEAD_WORDS + 4 * FIELDS + 2] != 0;
        Asked { ports: tcp || has(SOURCE_PORT) || has(DESTINATION_PORT), tcp }
    }
}

/// A frame that a worker filters.
#[derive(Clone, Copy)]
pub struct Frame<'f> {
    /// First bytes of the frame, including all headers.
    pub head: &'f [u8],
    /// Length of the whole frame in bytes, without frame check sequence.
    pub length: usize,
    /// Whether the frame will be cut into several frames at transmission (TSO, USO).
    pub is_uncut: bool,
    /// Function that copies the bytes at an offset of the frame to a buffer. Called for bytes that `head` does not
    /// contain. Returns `false` if the frame ends before the last requested byte.
    pub rest: &'f dyn Fn(usize, &mut [u8]) -> bool,
}

impl<'f> Frame<'f> {
    /// Returns a frame whose bytes are all in one slice.
    #[must_use]
    pub fn whole(bytes: &'f [u8]) -> Frame<'f> {
        Frame { head: bytes, length: bytes.len(), is_uncut: false, rest: &no_more }
    }

    /// Copies the bytes at an offset of the frame to `piece`. Returns `false` if the frame ends before the last
    /// requested byte.
    pub(super) fn load(&self, offset: usize, piece: &mut [u8]) -> bool {
        let Some(end) = offset.checked_add(piece.len()) else { return false };
        match self.head.get(offset..end) {
            Some(bytes) => {
                piece.copy_from_slice(bytes);
                true
            }
            None => end <= self.length && (self.rest)(offset, piece),
        }
    }
}

fn no_more(_: usize, _: &mut [u8]) -> bool {
    false
}

/// Fields of a frame that filter rules match. Mirrors `struct filter_key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    /// Source address of the packet. An IPv4 address uses the first four octets.
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub family: u32,
    pub fragment: u32,
    pub protocol: u32,
    pub source_port: u32,
    pub destination_port: u32,
    pub vlan: u32,
    pub flags: u32,
    /// Offset in the frame of each header from which the offsets of byte patterns are counted (`enum filter_base`).
    /// `None` if the frame does not have the header.
    pub base: [Option<usize>; 4],
}

impl Key {
    /// Returns the fields of a frame that filter rules match. `head` contains the first bytes of the frame.
    pub fn of(head: &[u8], conf: &Conf) -> Key {
        let mut key = Key {
            source: [0; 16],
            destination: [0; 16],
            family: OTHER,
            fragment: WHOLE,
            protocol: 0,
            source_port: NO_PORT,
            destination_port: NO_PORT,
            vlan: NO_VLAN,
            flags: NO_FLAGS,
            base: [Some(0), None, None, None],
        };
        let Some((ethertype, at)) = key.tags(head) else {
            key.fragment = UNREADABLE;
            return key;
        };
        let asked = (conf[TRANSPORT] != 0).then(|| Asked::of(conf));
        let is_readable = match ethertype {
            0x0800 => key.ipv4(head, at, asked),
            0x86dd => key.ipv6(head, at, asked),
            length => {
                if is_snap_ip(head, at, length) {
                    key.fragment = UNREADABLE;
                }
                return key;
            }
        };
        key.base[NETWORK] = Some(at);
        if !is_readable {
            (key.family, key.fragment) = (MALFORMED, UNREADABLE);
        }
        key
    }

    /// Returns the EtherType after all VLAN tags and the offset of the header that follows. Returns
    /// `None` if the EtherType cannot be reached. The VLAN of the frame is the identifier of the
    /// outermost tag whose identifier is not 0, because a tag with identifier 0 has no VLAN (IEEE
    /// 802.1Q, 6.9.1).
    fn tags(&mut self, head: &[u8]) -> Option<(u16, usize)> {
        let (mut ethertype, mut at) = (word(head, 12)?, 14);
        for _ in 0..TAGS {
            if !is_tag(ethertype) {
                break;
            }
            let (control, inner) = (word(head, at)?, word(head, at + 2)?);
            let vid = u32::from(control & 0xfff);
            if vid != 0 && self.vlan == NO_VLAN {
                self.vlan = vid;
            }
            (ethertype, at) = (inner, at + 4);
        }
        (!is_tag(ethertype)).then_some((ethertype, at))
    }

    /// Returns the value of the filter field that combines family, fragment state and protocol.
    pub fn kind(&self) -> u32 {
        self.family << 10 | self.fragment << 8 | self.protocol
    }

    /// Reads the fields of an IPv4 header into the key. Returns `false` if the fixed part of the header cannot be read.
    fn ipv4(&mut self, head: &[u8], at: usize, asked: Option<Asked>) -> bool {
        let Some(ip) = head.get(at..at + 20) else { return false };
        let (version, words) = (ip[0] >> 4, usize::from(ip[0] & 15));
        if version != 4 || words < 5 {
            return false;
        }
        self.family = IPV4;
        self.source[..4].copy_from_slice(&ip[12..16]);
        self.destination[..4].copy_from_slice(&ip[16..20]);
        let Some(asked) = asked else { return true };
        let (header, total) = (words * 4, usize::from(u16::from_be_bytes([ip[2], ip[3]])));
        let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff;
        self.protocol = u32::from(ip[9]);
        // A length of 0 belongs to a packet that will be segmented, and never to a fragment.
        let is_short = if total == 0 { fragment != 0 } else { total < header };
        if at + header > head.len() || is_short {
            self.fragment = UNREADABLE;
            return true;
        }
        let end = if total == 0 { usize::MAX } else { at + total };
        let offset = fragment & 0x1fff;
        if offset != 0 {
            // The fragment overlaps the transport header of the first fragment, to which the rules have already been
            // applied (RFC 3128).
            let overlaps = self.protocol == TCP && usize::from(offset) * 8 < TCP_HEADER;
            self.fragment = if overlaps { UNREADABLE } else { LATER };
            return true;
        }
        if fragment != 0 {
            self.fragment = FIRST;
        }
        self.transport(head, at + header, end, asked);
        true
    }

    /// Reads the fields of an IPv6 header into the key. Returns `false` if the fixed part of the header cannot be read.
    fn ipv6(&mut self, head: &[u8], at: usize, asked: Option<Asked>) -> bool {
        let Some(ip) = head.get(at..at + 40) else { return false };
        if ip[0] >> 4 != 6 {
            return false;
        }
        self.family = IPV6;
        self.source.copy_from_slice(&ip[8..24]);
        self.destination.copy_from_slice(&ip[24..40]);
        let Some(asked) = asked else { return true };
        // A length of 0 belongs to a jumbogram or to a packet that will be segmented.
        let end = match usize::from(u16::from_be_bytes([ip[4], ip[5]])) {
            0 => usize::MAX,
            length => at + 40 + length,
        };
        if !self.extensions(head, at + 40, ip[6], end, asked) {
            self.fragment = UNREADABLE;
            self.protocol = 0;
        }
        true
    }

    /// Reads the IPv6 extension headers (RFC 8200, section 4) and the transport header into the key. `end` is the
    /// offset at which the packet ends. Returns `false` if the transport header is not found.
    fn extensions(&mut self, head: &[u8], mut at: usize, mut next: u8, end: usize, asked: Asked) -> bool {
        for _ in 0..=EXTENSIONS {
            self.protocol = u32::from(next);
            // Hop-by-hop options, routing, destination options, authentication, fragment.
            if !matches!(next, 0 | 43 | 60 | 51 | 44) {
                self.transport(head, at, end, asked);
                return true;
            }
            let Some(extension) = head.get(at..at + 2) else { return false };
            let (behind, units) = (extension[0], usize::from(extension[1]));
            match next {
                44 => {
                    let Some(header) = head.get(at..at + 8) else { return false };
                    let field = u16::from_be_bytes([header[2], header[3]]);
                    at += 8;
                    let (offset, is_fragment) = (field & !7, field & !7 != 0 || field & 1 != 0);
                    if is_fragment {
                        // A fragment in a packet of unknown length is unreadable.
                        if at > end || end == usize::MAX {
                            return false;
                        }
                        self.fragment = FIRST;
                    }
                    if offset != 0 {
                        // The bytes that follow are not a header.
                        self.fragment = if offset < FRAGMENT6_LEAST { UNREADABLE } else { LATER };
                        self.protocol = u32::from(behind);
                        return true;
                    }
                }
                51 => at += (units + 2) * 4,
                _ => at += (units + 1) * 8,
            }
            next = behind;
        }
        false
    }

    /// Reads the fields of the transport header into the key. `end` is the offset at which the packet ends.
    fn transport(&mut self, head: &[u8], at: usize, end: usize, asked: Asked) {
        if at > end {
            self.fragment = UNREADABLE;
            return;
        }
        if !asked.ports {
            return;
        }
        self.base[TRANSPORT_BASE] = Some(at);
        // TCP, UDP, DCCP, SCTP and UDP-Lite begin with both ports.
        if !matches!(self.protocol, TCP | 17 | 33 | 132 | 136) {
            return;
        }
        let reach = |bytes: usize| head.get(at..at + bytes).filter(|_| at + bytes <= end);
        let Some(ports) = reach(4) else {
            self.fragment = UNREADABLE;
            return;
        };
        self.source_port = u32::from(u16::from_be_bytes([ports[0], ports[1]]));
        self.destination_port = u32::from(u16::from_be_bytes([ports[2], ports[3]]));
        match self.protocol {
            17 | 136 => self.base[PAYLOAD] = Some(at + 8),
            TCP if asked.tcp => {
                let Some(tcp) = reach(TCP_HEADER) else {
                    self.fragment = UNREADABLE;
                    return;
                };
                self.flags = u32::from(tcp[13]);
                let words = usize::from(tcp[12] >> 4);
                if words >= 5 {
                    self.base[PAYLOAD] = Some(at + words * 4);
                }
            }
            _ => {}
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Returns whether the frame has a length field in place of an EtherType, followed by an IP header
/// or a VLAN tag (IEEE 802.2, RFC 1042). Linux does not read such frames as IP, but other receivers
/// do.
fn is_snap_ip(head: &[u8], at: usize, length: u16) -> bool {
    const LEAST_TYPE: u16 = 0x0600;
    let inner = word(head, at + 6).filter(|_| length < LEAST_TYPE && word(head, at) == Some(0xaaaa));
    inner.is_some_and(|inner| matches!(inner, 0x0800 | 0x86dd) || is_tag(inner))
}

fn is_tag(ethertype: u16) -> bool {
    ethertype == 0x8100 || ethertype == 0x88a8
}
