//! Requests of TFTP (RFC 1350).
//!
//! A client sends a request from any port to the port of the server. The server answers from another port to the
//! client's port. Every request therefore announces a connection from the server to the port of the client.

/// Request for the transfer of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Request {
    /// Read request (RRQ, opcode 1).
    Read,
    /// Write request (WRQ, opcode 2).
    Write,
}

/// Modes of transfer, in lower case.
const MODES: [&[u8]; 3] = [b"netascii", b"octet", b"mail"];

/// Reads the payload of a datagram that the client has sent. Returns `None` if the payload is not a request: an opcode,
/// the name of a file and a mode. A NUL octet ends the name and the mode. Options (RFC 2347) may follow. The function
/// is total.
#[must_use]
pub fn read_request(payload: &[u8]) -> Option<Request> {
    let (opcode, rest) = payload.split_first_chunk()?;
    let request = match u16::from_be_bytes(*opcode) {
        1 => Request::Read,
        2 => Request::Write,
        _ => return None,
    };
    let mut strings = rest.split_inclusive(|octet| *octet == 0);
    let mut next = || strings.next()?.strip_suffix(&[0]).filter(|string| !string.is_empty());
    let (_name, mode) = (next()?, next()?);
    MODES.iter().any(|known| mode.eq_ignore_ascii_case(known)).then_some(request)
}
