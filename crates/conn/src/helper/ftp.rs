//! Commands and replies of FTP that announce a data connection (RFC 959, RFC 2428).
//!
//! | mode | sender | line | other end connects to |
//! |---|---|---|---|
//! | active | client | `PORT h1,h2,h3,h4,p1,p2` | the client |
//! | active | client | `EPRT \|1\|address\|port\|`, or `\|2\|` for IPv6 | the client |
//! | passive | server | `227 Entering Passive Mode (h1,h2,h3,h4,p1,p2)` | the server |
//! | passive | server | `229 Entering Extended Passive Mode (\|\|\|port\|)` | the server |
//!
//! A line is recognised only if the line is the first one of the payload, and if its end is within the first
//! [`LINE_MAX`] octets of the payload. A line that is split over segments is not recognised. Commands may be in lower
//! case. The text of the reply 227 is free (RFC 1123 section 4.1.2.6): without parentheses, the numbers begin with the
//! first digit after the code.
//!
//! All functions are total, and read no more than [`LINE_MAX`] octets.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use crate::tuple::Address;

/// Largest length of a line in octets with its end. RFC 959 states no limit.
pub const LINE_MAX: usize = 512;

/// Largest length of the text of an address and a port in octets: an IPv6 address of 39 characters with the delimiters
/// of EPRT and a port of 5 digits. The text of an address that embeds an IPv4 address has at most 45 characters.
const TEXT_MAX: usize = 64;

/// Kind of an announcement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// Command PORT of the client.
    Port,
    /// Command EPRT of the client.
    ExtendedPort,
    /// Reply 227 of the server to PASV.
    Passive,
    /// Reply 229 of the server to EPSV.
    ExtendedPassive,
}

/// End of a data connection that a line announces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announcement<A> {
    /// Kind of the line.
    pub kind: Kind,
    /// Address of the end. `None`: the end has the address of the sender, because a reply 229 has no address.
    pub address: Option<A>,
    /// Port of the end, at least 1.
    pub port: u16,
    /// Octets of the payload with the address and the port: `h1,h2,h3,h4,p1,p2`, or the text from the first to the last
    /// delimiter.
    pub range: Range<usize>,
}

/// Reason for which a payload has no announcement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum NotRead {
    /// The payload begins with another line.
    Other,
    /// The end of the line is not within the payload, or the line is too long.
    Incomplete,
    /// The address or the port of the line is not valid.
    Malformed,
    /// The address of the line belongs to another address family than the control connection.
    Family,
}

/// Reads the payload of a segment that the client has sent.
///
/// # Errors
/// Returns the reason for which the payload does not announce the client's end of a data connection.
pub fn read_command<A: Address>(payload: &[u8]) -> Result<Announcement<A>, NotRead> {
    let kind = match payload.first_chunk::<5>() {
        Some(verb) if verb.eq_ignore_ascii_case(b"PORT ") => Kind::Port,
        Some(verb) if verb.eq_ignore_ascii_case(b"EPRT ") => Kind::ExtendedPort,
        _ => return Err(NotRead::Other),
    };
    let mut reader = Reader { line: first_line(payload)?, at: 5 };
    reader.skip_spaces();
    let start = reader.at;
    let read = if kind == Kind::Port { reader.host_and_port() } else { reader.extended() };
    let (address, port) = read.ok_or(NotRead::Malformed)?;
    let range = start..reader.at;
    reader.skip_spaces();
    if reader.next().is_some() {
        return Err(NotRead::Malformed);
    }
    let address = Some(of_family(address).ok_or(NotRead::Family)?);
    Ok(Announcement { kind, address, port, range })
}

/// Reads the payload of a segment that the server has sent.
///
/// # Errors
/// Returns the reason for which the payload does not announce the server's end of a data connection.
pub fn read_reply<A: Address>(payload: &[u8]) -> Result<Announcement<A>, NotRead> {
    let kind = match payload.first_chunk::<4>() {
        Some(b"227 ") => Kind::Passive,
        Some(b"229 ") => Kind::ExtendedPassive,
        _ => return Err(NotRead::Other),
    };
    let line = first_line(payload)?;
    let find = |is: fn(u8) -> bool| (4..line.len()).find(|at| is(line[*at]));
    let open = find(|byte| byte == b'(');
    let start = open.map(|open| open + 1).or_else(|| find(|byte| byte.is_ascii_digit()));
    let start = start.filter(|_| open.is_some() || kind == Kind::Passive).ok_or(NotRead::Malformed)?;
    let mut reader = Reader { line, at: start };
    let read = match kind {
        Kind::Passive => reader.host_and_port().map(|(address, port)| (Some(address), port)),
        _ => reader.extended_port().map(|port| (None, port)),
    };
    let (address, port) = read.ok_or(NotRead::Malformed)?;
    let range = start..reader.at;
    if open.is_some() && reader.next() != Some(b')') || reader.next() == Some(b',') {
        return Err(NotRead::Malformed);
    }
    let address = match address {
        Some(address) => Some(of_family(address).ok_or(NotRead::Family)?),
        None => None,
    };
    Ok(Announcement { kind, address, port, range })
}

/// Returns the first line of a payload without its end, which is LF, or CR and LF.
fn first_line(payload: &[u8]) -> Result<&[u8], NotRead> {
    let start = payload.get(..LINE_MAX).unwrap_or(payload);
    let end = start.iter().position(|byte| *byte == b'\n').ok_or(NotRead::Incomplete)?;
    let line = start.get(..end).unwrap_or_default();
    Ok(line.strip_suffix(b"\r").unwrap_or(line))
}

/// Returns an address as a number. Returns `None` if the address belongs to another address family.
fn of_family<A: Address>(address: IpAddr) -> Option<A> {
    let (bits, size) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 4),
        IpAddr::V6(address) => (address.to_bits(), 16),
    };
    A::try_from(bits).ok().filter(|_| size_of::<A>() == size)
}

/// Reads a line from an offset on.
struct Reader<'line> {
    line: &'line [u8],
    at: usize,
}

impl<'line> Reader<'line> {
    /// Returns the next octet without reading the octet.
    fn next(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    /// Reads one octet of this value.
    fn read(&mut self, octet: u8) -> Option<()> {
        let is_next = self.next() == Some(octet);
        self.at += usize::from(is_next);
        is_next.then_some(())
    }

    fn skip_spaces(&mut self) {
        while self.read(b' ').is_some() {}
    }

    /// Reads a decimal number of at most this number of digits, which no further digit follows.
    fn number(&mut self, digits: usize, largest: u32) -> Option<u32> {
        let start = self.at;
        let mut number = 0;
        while let Some(digit) = self.next().filter(u8::is_ascii_digit) {
            if self.at - start == digits {
                return None;
            }
            number = number * 10 + u32::from(digit - b'0');
            self.at += 1;
        }
        Some(number).filter(|_| self.at > start && number <= largest)
    }

    /// Reads the port of an extended command, at least 1.
    fn port(&mut self) -> Option<u16> {
        u16::try_from(self.number(5, 65_535)?).ok().filter(|port| *port != 0)
    }

    /// Reads `h1,h2,h3,h4,p1,p2`.
    fn host_and_port(&mut self) -> Option<(IpAddr, u16)> {
        let mut octets = [0; 6];
        for (number, octet) in octets.iter_mut().enumerate() {
            if number > 0 {
                self.read(b',')?;
            }
            *octet = u8::try_from(self.number(3, 255)?).ok()?;
        }
        let [a, b, c, d, high, low] = octets;
        let port = u16::from_be_bytes([high, low]);
        (port != 0).then_some((IpAddr::V4(Ipv4Addr::new(a, b, c, d)), port))
    }

    /// Reads a delimiter: a printable character other than a digit (RFC 2428 section 2).
    fn delimiter(&mut self) -> Option<u8> {
        let delimiter = self.next().filter(|octet| octet.is_ascii_graphic() && !octet.is_ascii_digit())?;
        self.at += 1;
        Some(delimiter)
    }

    /// Reads `|1|address|port|` or `|2|address|port|`.
    fn extended(&mut self) -> Option<(IpAddr, u16)> {
        let delimiter = self.delimiter()?;
        let family = self.number(1, 2)?;
        self.read(delimiter)?;
        let rest = self.line.get(self.at..)?;
        let text = rest.get(..rest.iter().position(|octet| *octet == delimiter)?)?;
        self.at += text.len() + 1;
        let text = std::str::from_utf8(text).ok()?;
        let address = match family {
            1 => IpAddr::V4(text.parse::<Ipv4Addr>().ok()?),
            2 => IpAddr::V6(text.parse::<Ipv6Addr>().ok()?),
            _ => return None,
        };
        let port = self.port()?;
        self.read(delimiter)?;
        Some((address, port))
    }

    /// Reads `|||port|`.
    fn extended_port(&mut self) -> Option<u16> {
        let delimiter = self.delimiter()?;
        self.read(delimiter)?;
        self.read(delimiter)?;
        let port = self.port()?;
        self.read(delimiter)?;
        Some(port)
    }
}

/// Replacement of the address and the port in a payload, for a connection with NAT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replacement<A> {
    /// Kind of the line.
    pub kind: Kind,
    /// Octets of the payload that the new text replaces.
    pub range: Range<usize>,
    /// New address. A reply 229 has no address.
    pub address: A,
    /// New port.
    pub port: u16,
}

impl<A: Address> Replacement<A> {
    /// Replaces the text in the first `len` octets of a buffer, and moves the octets after the text. Returns the change
    /// of the length. The caller updates the lengths and the checksums in the headers. Returns `None` if the new text
    /// does not fit into the buffer, or if the range is not within the `len` octets. The buffer is unchanged then.
    pub fn apply(&self, buffer: &mut [u8], len: usize) -> Option<i32> {
        let mut text = [0; TEXT_MAX];
        let text = self.text(&mut text)?;
        let Range { start, end } = self.range;
        buffer.get(..len)?.get(start..end)?;
        let new_end = start + text.len();
        let moved_to = new_end..new_end + (len - end);
        if moved_to.end > buffer.len() {
            return None;
        }
        buffer.copy_within(end..len, moved_to.start);
        buffer.get_mut(start..new_end)?.copy_from_slice(text);
        Some(i32::try_from(text.len()).ok()? - i32::try_from(end - start).ok()?)
    }

    /// Writes the text of the address and the port, and returns the text.
    fn text<'buffer>(&self, buffer: &'buffer mut [u8; TEXT_MAX]) -> Option<&'buffer [u8]> {
        let bits: u128 = self.address.into();
        let address = match u32::try_from(bits) {
            Ok(bits) if size_of::<A>() == 4 => IpAddr::V4(Ipv4Addr::from_bits(bits)),
            _ => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        };
        let (mut rest, port) = (&mut buffer[..], self.port);
        let [high, low] = port.to_be_bytes();
        match (self.kind, address) {
            (Kind::Port | Kind::Passive, IpAddr::V4(address)) => {
                let [a, b, c, d] = address.octets();
                write!(rest, "{a},{b},{c},{d},{high},{low}")
            }
            (Kind::Port | Kind::Passive, IpAddr::V6(_)) => return None,
            (Kind::ExtendedPort, IpAddr::V4(_)) => write!(rest, "|1|{address}|{port}|"),
            (Kind::ExtendedPort, IpAddr::V6(_)) => write!(rest, "|2|{address}|{port}|"),
            (Kind::ExtendedPassive, _) => write!(rest, "|||{port}|"),
        }
        .ok()?;
        let len = TEXT_MAX - rest.len();
        buffer.get(..len)
    }
}
