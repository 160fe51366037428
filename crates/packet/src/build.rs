//! Builds complete packets from a chain of method calls. The builder fills in lengths, types and checksums.
//!
//! The builder is used by tests, benchmarks, packet specs ([`crate::spec`]), and code that creates replies to
//! packets. The module also re-exports the types for writing single headers.
//!
//! The type of the builder changes with each call. Therefore only the methods that fit the last header are
//! available: `ttl` after `ipv4`, `flags` after `tcp`. A builder uses no heap memory, and
//! [`PacketBuilder::build_into`] does not allocate.
//!
//! ```
//! use packet::build::PacketBuilder;
//! use packet::{FlowKey, MacAddr, PortId};
//!
//! let (a, b) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
//! let frame = PacketBuilder::eth(a, b)
//!     .vlan(10)
//!     .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
//!     .ttl(3)
//!     .udp(1000, 2000)
//!     .payload(b"hello")
//!     .build();
//! let mut key = FlowKey::ZERO;
//! FlowKey::extract(&frame, frame.len(), PortId(0), &mut key).unwrap();
//! assert_eq!((key.ttl(), key.dst_port()), (3, 2000));
//! ```

mod chain;
mod emit;

use std::marker::PhantomData;

pub use crate::arp::ArpRepr;
pub use crate::eth::EthRepr;
pub use crate::icmp::IcmpRepr;
pub use crate::icmpv6::{Icmpv6Repr, NeighbourRepr};
pub use crate::igmp::IgmpRepr;
pub use crate::ipv4::{Ipv4Repr, Options};
pub use crate::ipv6::Ipv6Repr;
pub use crate::ipv6_ext::FragmentRepr;
pub use crate::mld::MldRepr;
pub use crate::sctp::SctpRepr;
pub use crate::tcp::TcpRepr;
pub use crate::udp::UdpRepr;
pub use crate::vlan::VlanRepr;
pub use crate::vxlan::VxlanRepr;

use crate::MacAddr;

/// Maximum number of headers in one packet. This is enough for VXLAN with VLAN tags in the outer and the
/// inner frame.
pub const MAX_LAYERS: usize = 12;

/// One header of a packet under construction. Types, lengths and checksums that depend on other headers are
/// filled in when the packet is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Layer {
    Eth(EthRepr),
    Vlan(VlanRepr, bool),
    Arp(ArpRepr),
    Ipv4(Ipv4Repr),
    Ipv6(Ipv6Repr),
    /// IPv6 hop-by-hop header with the router alert option that MLD requires (RFC 2711).
    RouterAlert,
    Fragment(FragmentRepr),
    Tcp(TcpRepr),
    Udp(UdpRepr),
    Sctp(SctpRepr),
    Icmp(IcmpRepr),
    Icmpv6(Icmpv6Repr),
    Neighbour(NeighbourRepr),
    Igmp(IgmpRepr),
    Mld(MldRepr),
    Vxlan(VxlanRepr),
}

/// Type parameters of [`PacketBuilder`], which represent the last header in the chain.
pub mod at {
    /// The last header is an Ethernet header or a VLAN tag.
    #[derive(Clone, Copy, Debug)]
    pub struct L2;
    /// The last header is an IPv4 header.
    #[derive(Clone, Copy, Debug)]
    pub struct Ipv4;
    /// The last header is an IPv6 header or an IPv6 extension header.
    #[derive(Clone, Copy, Debug)]
    pub struct Ipv6;
    /// The last header is a TCP header.
    #[derive(Clone, Copy, Debug)]
    pub struct Tcp;
    /// The last header is a UDP header.
    #[derive(Clone, Copy, Debug)]
    pub struct Udp;
    /// After the last header only a payload can follow.
    #[derive(Clone, Copy, Debug)]
    pub struct End;
}

/// A packet under construction. See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct PacketBuilder<'p, At = at::End> {
    layers: [Option<Layer>; MAX_LAYERS],
    count: usize,
    payload: &'p [u8],
    pad_to: usize,
    at: PhantomData<At>,
}

impl PacketBuilder<'static, at::L2> {
    /// Starts a packet with an Ethernet header. The EtherType is derived from the header that follows.
    pub fn eth(src: MacAddr, dst: MacAddr) -> PacketBuilder<'static, at::L2> {
        let empty: PacketBuilder<'static, at::L2> =
            PacketBuilder { layers: [None; MAX_LAYERS], count: 0, payload: &[], pad_to: 0, at: PhantomData };
        empty.push(Layer::Eth(EthRepr { dst, src, ethertype: 0 }))
    }
}

impl<'p, At> PacketBuilder<'p, At> {
    /// Sets the payload of the packet: the bytes after the last header.
    pub fn payload<'q>(self, payload: &'q [u8]) -> PacketBuilder<'q, At> {
        PacketBuilder {
            layers: self.layers,
            count: self.count,
            payload,
            pad_to: self.pad_to,
            at: PhantomData,
        }
    }

    /// Pads the frame with zeros to the length `frame_len` in bytes, without FCS. The minimum length on the wire is
    /// 60 bytes.
    pub fn pad_to(mut self, frame_len: usize) -> Self {
        self.pad_to = frame_len;
        self
    }

    /// Returns the length of the complete frame in bytes.
    pub fn frame_len(&self) -> usize {
        (self.headers_len() + self.payload.len()).max(self.pad_to)
    }

    /// Returns the frame in a new vector. A length field whose value would exceed 65,535 is set to 65,535.
    pub fn build(&self) -> Vec<u8> {
        let mut frame = vec![0; self.frame_len()];
        self.build_into(&mut frame);
        frame
    }

    /// Writes the frame at the start of `buffer` and returns the frame's length. Writes nothing if `buffer`
    /// is shorter than the frame.
    pub fn build_into(&self, buffer: &mut [u8]) -> usize {
        let len = self.frame_len();
        if let Some(frame) = buffer.get_mut(..len) {
            self.write(frame);
        }
        len
    }

    /// Returns the total length of all headers in bytes.
    pub(crate) fn headers_len(&self) -> usize {
        self.layers.iter().flatten().map(Layer::len).sum()
    }

    /// Returns this packet with another type parameter, which represents a new last header.
    pub(crate) fn retag<Next>(self) -> PacketBuilder<'p, Next> {
        PacketBuilder {
            layers: self.layers,
            count: self.count,
            payload: self.payload,
            pad_to: self.pad_to,
            at: PhantomData,
        }
    }

    /// Adds a header to the packet. If the packet already has [`MAX_LAYERS`] headers, the new
    /// header is omitted. Only packets with nested tunnels or repeated tags reach this limit.
    pub(crate) fn push<Next>(mut self, layer: Layer) -> PacketBuilder<'p, Next> {
        if let Some(place) = self.layers.get_mut(self.count) {
            *place = Some(layer);
            self.count += 1;
        }
        self.retag()
    }

    fn last(&mut self) -> Option<&mut Layer> {
        self.layers.get_mut(self.count.checked_sub(1)?)?.as_mut()
    }
}
