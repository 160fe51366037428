//! ARP for IPv4 over Ethernet: address resolution (RFC 826), announcements and probes (RFC 5227).
//!
//! Bridges and routers parse ARP messages to learn addresses and to answer requests. For interfaces without a kernel
//! device, the data plane sends ARP messages itself.

use std::net::Ipv4Addr;

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{split_header, write_header};
use crate::numbers::ethertype;
use crate::{BuildError, DropReason, HeaderError, MacAddr};

/// ARP operation code of a request.
pub const REQUEST: u16 = 1;
/// ARP operation code of a reply.
pub const REPLY: u16 = 2;

const ETHERNET: u16 = 1;

/// ARP message as laid out in the frame, 28 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Hardware address space. The value 1 represents Ethernet.
    pub hardware: U16,
    /// Protocol address space, an EtherType.
    pub protocol: U16,
    /// Length of a hardware address in octets.
    pub hardware_len: u8,
    /// Length of a protocol address in octets.
    pub protocol_len: u8,
    /// ARP operation code: [`REQUEST`], [`REPLY`], or 3 and 4 for RARP.
    pub operation: U16,
    /// Hardware address of the sender.
    pub sender_mac: MacAddr,
    /// Protocol address of the sender.
    pub sender_ip: [u8; 4],
    /// Hardware address of the target.
    pub target_mac: MacAddr,
    /// Protocol address of the target.
    pub target_ip: [u8; 4],
}

/// An ARP message for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct Arp<'a> {
    header: &'a Header,
}

impl<'a> Arp<'a> {
    /// Checks that the ARP message is complete and is for IPv4 over Ethernet. Padding may follow the message.
    ///
    /// # Errors
    /// Returns an error with [`DropReason::ArpTruncated`] if the message is incomplete, or with
    /// [`DropReason::ArpBadField`] if it is not for IPv4 over Ethernet.
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

    /// Returns the ARP operation code: [`REQUEST`], [`REPLY`] or another code.
    pub fn operation(&self) -> u16 {
        self.header.operation.get()
    }

    /// Returns the Ethernet address of the sender.
    pub fn sender_mac(&self) -> MacAddr {
        self.header.sender_mac
    }

    /// Returns the IPv4 address of the sender, which is 0.0.0.0 in a probe.
    pub fn sender_ip(&self) -> Ipv4Addr {
        self.header.sender_ip.into()
    }

    /// Returns the Ethernet address of the target, which is zero in a request.
    pub fn target_mac(&self) -> MacAddr {
        self.header.target_mac
    }

    /// Returns the IPv4 address of the target.
    pub fn target_ip(&self) -> Ipv4Addr {
        self.header.target_ip.into()
    }

    /// Returns whether the message is a gratuitous ARP, in which the sender IPv4 address equals the target IPv4
    /// address.
    pub fn is_gratuitous(&self) -> bool {
        self.header.sender_ip == self.header.target_ip
    }
}

/// An ARP message to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArpRepr {
    /// ARP operation code of the message: [`REQUEST`], [`REPLY`] or another code.
    pub operation: u16,
    /// Ethernet address of the sender.
    pub sender_mac: MacAddr,
    /// IPv4 address of the sender.
    pub sender_ip: Ipv4Addr,
    /// Ethernet address of the target.
    pub target_mac: MacAddr,
    /// IPv4 address of the target.
    pub target_ip: Ipv4Addr,
}

impl ArpRepr {
    /// Number of bytes that [`ArpRepr::emit`] writes.
    pub const LEN: usize = size_of::<Header>();

    /// Returns a request for the MAC address of `target_ip`.
    pub fn request(sender_mac: MacAddr, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> ArpRepr {
        ArpRepr { operation: REQUEST, sender_mac, sender_ip, target_mac: MacAddr::ZERO, target_ip }
    }

    /// Returns the reply to `request`. The reply contains `mac` as the requested MAC address.
    pub fn reply_to(request: &Arp<'_>, mac: MacAddr) -> ArpRepr {
        ArpRepr {
            operation: REPLY,
            sender_mac: mac,
            sender_ip: request.target_ip(),
            target_mac: request.sender_mac(),
            target_ip: request.sender_ip(),
        }
    }

    /// Converts a parsed ARP message to a message to be written.
    pub fn parse(view: &Arp<'_>) -> ArpRepr {
        ArpRepr {
            operation: view.operation(),
            sender_mac: view.sender_mac(),
            sender_ip: view.sender_ip(),
            target_mac: view.target_mac(),
            target_ip: view.target_ip(),
        }
    }

    /// Writes the ARP message at the start of `bytes` and returns the bytes after it.
    ///
    /// # Errors
    /// Returns [`BuildError::BufferTooSmall`] if `bytes` is too short.
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
