//! Address resolution for IPv4 over Ethernet (RFC 826; announcements and probes RFC 5227).
//!
//! Read where a bridge or router answers or learns from ARP, and written by an interface without a kernel device.

use std::net::Ipv4Addr;

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{split_header, write_header};
use crate::numbers::ethertype;
use crate::{BuildError, DropReason, HeaderError, MacAddr};

/// Operation of a request.
pub const REQUEST: u16 = 1;
/// Operation of a reply.
pub const REPLY: u16 = 2;

const ETHERNET: u16 = 1;

/// The message as it lies in the frame: 28 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Hardware address space; 1 is Ethernet.
    pub hardware: U16,
    /// Protocol address space, an EtherType.
    pub protocol: U16,
    /// Length of a hardware address.
    pub hardware_len: u8,
    /// Length of a protocol address.
    pub protocol_len: u8,
    /// [`REQUEST`], [`REPLY`], or RARP's 3 and 4.
    pub operation: U16,
    /// Sender's hardware address.
    pub sender_mac: MacAddr,
    /// Sender's protocol address.
    pub sender_ip: [u8; 4],
    /// Target's hardware address.
    pub target_mac: MacAddr,
    /// Target's protocol address.
    pub target_ip: [u8; 4],
}

/// An ARP message for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct Arp<'a> {
    header: &'a Header,
}

impl<'a> Arp<'a> {
    /// Checks that the message is whole and speaks of IPv4 over Ethernet; padding may follow it.
    ///
    /// # Errors
    /// [`DropReason::ArpTruncated`], [`DropReason::ArpBadField`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, _): (&Header, _) = split_header(bytes, DropReason::ArpTruncated)?;
        let fields = [
            ("ar$hrd", header.hardware.get(), ETHERNET),
            ("ar$pro", header.protocol.get(), ethertype::IPV4),
            ("ar$hln", header.hardware_len.into(), 6),
            ("ar$pln", header.protocol_len.into(), 4),
        ];
        for (field, value, wanted) in fields {
            if value != wanted {
                return Err(HeaderError::bad(DropReason::ArpBadField, field, value.into()));
            }
        }
        Ok(Arp { header })
    }

    /// The operation: [`REQUEST`], [`REPLY`] or another.
    pub fn operation(&self) -> u16 {
        self.header.operation.get()
    }

    /// Sender's Ethernet address.
    pub fn sender_mac(&self) -> MacAddr {
        self.header.sender_mac
    }

    /// Sender's IPv4 address; 0.0.0.0 in a probe.
    pub fn sender_ip(&self) -> Ipv4Addr {
        self.header.sender_ip.into()
    }

    /// Target's Ethernet address; zero in a request.
    pub fn target_mac(&self) -> MacAddr {
        self.header.target_mac
    }

    /// Target's IPv4 address.
    pub fn target_ip(&self) -> Ipv4Addr {
        self.header.target_ip.into()
    }

    /// Whether the sender announces its own address (sender and target address are equal).
    pub fn is_gratuitous(&self) -> bool {
        self.header.sender_ip == self.header.target_ip
    }
}

/// An ARP message to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArpRepr {
    /// [`REQUEST`], [`REPLY`] or another.
    pub operation: u16,
    /// Sender's Ethernet address.
    pub sender_mac: MacAddr,
    /// Sender's IPv4 address.
    pub sender_ip: Ipv4Addr,
    /// Target's Ethernet address.
    pub target_mac: MacAddr,
    /// Target's IPv4 address.
    pub target_ip: Ipv4Addr,
}

impl ArpRepr {
    /// Bytes that [`ArpRepr::emit`] writes.
    pub const LEN: usize = size_of::<Header>();

    /// A question for the owner of `target_ip`.
    pub fn request(sender_mac: MacAddr, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> ArpRepr {
        ArpRepr { operation: REQUEST, sender_mac, sender_ip, target_mac: MacAddr::ZERO, target_ip }
    }

    /// The answer to `request` by the owner of `mac`.
    pub fn reply_to(request: &Arp<'_>, mac: MacAddr) -> ArpRepr {
        ArpRepr {
            operation: REPLY,
            sender_mac: mac,
            sender_ip: request.target_ip(),
            target_mac: request.sender_mac(),
            target_ip: request.sender_ip(),
        }
    }

    /// The representation of a parsed message.
    pub fn parse(view: &Arp<'_>) -> ArpRepr {
        ArpRepr {
            operation: view.operation(),
            sender_mac: view.sender_mac(),
            sender_ip: view.sender_ip(),
            target_mac: view.target_mac(),
            target_ip: view.target_ip(),
        }
    }

    /// Writes the message and gives the bytes behind it.
    ///
    /// # Errors
    /// [`BuildError::BufferTooSmall`].
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        let header = Header {
            hardware: ETHERNET.into(),
            protocol: ethertype::IPV4.into(),
            hardware_len: 6,
            protocol_len: 4,
            operation: self.operation.into(),
            sender_mac: self.sender_mac,
            sender_ip: self.sender_ip.octets(),
            target_mac: self.target_mac,
            target_ip: self.target_ip.octets(),
        };
        write_header(bytes, &header)
    }
}
