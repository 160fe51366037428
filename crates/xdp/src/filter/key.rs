//! What rules see of a frame, for ports without a hook: what `bpf/include/filter_key.h` reads, in the same order and with
//! the same outcome for whatever is cut short.

use super::compiled::Conf;

/// Of `struct filter_conf`: whether rules look beyond the IP header.
const TRANSPORT: usize = 3;
/// Values of fields that a frame does not have.
const NO_PORT: u32 = 65_536;
const NO_VLAN: u32 = 4096;
const NO_FLAGS: u32 = 256;
/// `enum filter_family`.
const OTHER: u32 = 0;
pub(super) const IPV4: u32 = 1;
pub(super) const IPV6: u32 = 2;
const MALFORMED: u32 = 3;
/// `enum filter_fragment`.
const WHOLE: u32 = 0;
const FIRST: u32 = 1;
const LATER: u32 = 2;
const UNREADABLE: u32 = 3;
/// `enum filter_base`.
const NETWORK: usize = 1;
const TRANSPORT_BASE: usize = 2;
const PAYLOAD: usize = 3;
/// Extension headers of IPv6 that are walked: `IPV6_EXTENSIONS_MAX`.
const EXTENSIONS: usize = 6;

/// A frame as it lies in memory.
#[derive(Clone, Copy)]
pub struct Frame<'f> {
    /// Its first bytes, with all its headers.
    pub head: &'f [u8],
    /// Bytes of all of it, without the check sequence.
    pub length: usize,
    /// Whether it is many frames yet, to be cut later (TSO, USO).
    pub is_uncut: bool,
    /// Fills a piece with the bytes from an offset on; false if the frame ends before. Asked for what `head` does not have.
    pub rest: &'f dyn Fn(usize, &mut [u8]) -> bool,
}

impl<'f> Frame<'f> {
    /// A frame in one piece.
    #[must_use]
    pub fn whole(bytes: &'f [u8]) -> Frame<'f> {
        Frame { head: bytes, length: bytes.len(), is_uncut: false, rest: &no_more }
    }

    /// Fills a piece from an offset on; false if the frame ends before.
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

/// `struct filter_key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    /// IPv4: the first four octets.
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub family: u32,
    pub fragment: u32,
    pub protocol: u32,
    pub source_port: u32,
    pub destination_port: u32,
    pub vlan: u32,
    pub flags: u32,
    /// Offsets in the frame by `enum filter_base`; `None`: nowhere.
    pub base: [Option<usize>; 4],
}

impl Key {
    /// Reads the headers in a frame's first piece.
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
        let Some(mut ethertype) = word(head, 12) else { return key };
        let mut at = 14;
        for tag in 0..2 {
            if !is_tag(ethertype) {
                break;
            }
            let (Some(control), Some(inner)) = (word(head, at), word(head, at + 2)) else { return key };
            if tag == 0 {
                key.vlan = u32::from(control & 0xfff);
            }
            (ethertype, at) = (inner, at + 4);
        }
        let beyond = conf[TRANSPORT] != 0;
        let is_readable = match ethertype {
            0x0800 => key.ipv4(head, at, beyond),
            0x86dd => key.ipv6(head, at, beyond),
            _ => return key,
        };
        key.base[NETWORK] = Some(at);
        if !is_readable {
            key.family = MALFORMED;
        }
        key
    }

    /// The value of the field of family, fragment state and protocol.
    pub fn kind(&self) -> u32 {
        self.family << 10 | self.fragment << 8 | self.protocol
    }

    /// False when the fixed header cannot be read.
    fn ipv4(&mut self, head: &[u8], at: usize, beyond: bool) -> bool {
        let Some(ip) = head.get(at..at + 20) else { return false };
        let (version, words) = (ip[0] >> 4, usize::from(ip[0] & 15));
        if version != 4 || words < 5 {
            return false;
        }
        self.family = IPV4;
        self.source[..4].copy_from_slice(&ip[12..16]);
        self.destination[..4].copy_from_slice(&ip[16..20]);
        if !beyond {
            return true;
        }
        let transport = at + words * 4;
        if transport > head.len() {
            self.fragment = UNREADABLE;
            return true;
        }
        self.protocol = u32::from(ip[9]);
        let fragment = u16::from_be_bytes([ip[6], ip[7]]);
        if fragment & 0x1fff != 0 {
            self.fragment = LATER;
        } else if fragment & 0x2000 != 0 {
            self.fragment = FIRST;
        }
        self.transport(head, transport);
        true
    }

    /// False when the fixed header cannot be read.
    fn ipv6(&mut self, head: &[u8], at: usize, beyond: bool) -> bool {
        let Some(ip) = head.get(at..at + 40) else { return false };
        if ip[0] >> 4 != 6 {
            return false;
        }
        self.family = IPV6;
        self.source.copy_from_slice(&ip[8..24]);
        self.destination.copy_from_slice(&ip[24..40]);
        if beyond && !self.extensions(head, at + 40, ip[6]) {
            self.fragment = UNREADABLE;
            self.protocol = 0;
        }
        true
    }

    /// Walks the extension headers (RFC 8200, section 4) to the transport header; false: it is not there.
    fn extensions(&mut self, head: &[u8], mut at: usize, mut next: u8) -> bool {
        for _ in 0..=EXTENSIONS {
            self.protocol = u32::from(next);
            // Hop-by-hop options, routing, destination options, authentication, fragment.
            if !matches!(next, 0 | 43 | 60 | 51 | 44) {
                self.transport(head, at);
                return true;
            }
            let Some(extension) = head.get(at..at + 2) else { return false };
            let (behind, units) = (extension[0], usize::from(extension[1]));
            match next {
                44 => {
                    let Some(header) = head.get(at..at + 8) else { return false };
                    let offset = u16::from_be_bytes([header[2], header[3]]);
                    if offset >> 3 != 0 {
                        // What follows is not a header.
                        self.fragment = LATER;
                        self.protocol = u32::from(behind);
                        return true;
                    }
                    if offset & 1 != 0 {
                        self.fragment = FIRST;
                    }
                    at += 8;
                }
                51 => at += (units + 2) * 4,
                _ => at += (units + 1) * 8,
            }
            next = behind;
        }
        false
    }

    fn transport(&mut self, head: &[u8], at: usize) {
        if self.fragment == LATER {
            return;
        }
        self.base[TRANSPORT_BASE] = Some(at);
        // TCP, UDP, DCCP, SCTP and UDP-Lite begin with both ports.
        if !matches!(self.protocol, 6 | 17 | 33 | 132 | 136) {
            return;
        }
        let (Some(source), Some(destination)) = (word(head, at), word(head, at + 2)) else { return };
        self.source_port = u32::from(source);
        self.destination_port = u32::from(destination);
        match self.protocol {
            17 | 136 => self.base[PAYLOAD] = Some(at + 8),
            6 => {
                let Some(tcp) = head.get(at..at + 20) else { return };
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

fn is_tag(ethertype: u16) -> bool {
    ethertype == 0x8100 || ethertype == 0x88a8
}
