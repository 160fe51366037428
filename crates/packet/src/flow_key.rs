//! The flow key: 64 bytes of metadata and header fields of a packet, which look-ups, hashes and matches read.
//!
//! [`FlowKey::extract`] builds the key of every received frame before other processing. The flow caches read
//! only the key. The order of the fields is metadata, L2, L3, L4. A classifier that reads the key stage by
//! stage reads it from front to back. The key consists of eight words ([`FlowKey::words`]):
//!
//! ```text
//!  word 0  in_port, L2 flags, L3 kind, outer TCI, inner TCI     word 3,4  IP source (or ARP sender)
//!  word 1  destination MAC, source MAC (first two octets)       word 5,6  IP destination (or ARP target)
//!  word 2  source MAC (rest), EtherType, protocol, fragment     word 7    L4 ports, TCP flags, TOS, TTL
//! ```
//!
//! Invariants: fields that a packet lacks are zero. Multi-byte fields are in network byte order. The key has
//! no padding. Therefore equal keys have equal bytes. If a header is malformed, the fields of that header and
//! of all later headers are zero, and [`Layers::malformed`] reports the reason.

mod extract;
mod fields;
mod hash;
mod l2;
mod layers;
mod read;
mod text;

use zerocopy::byteorder::{big_endian, little_endian};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use layers::Layers;

/// A flow key in which only the metadata and L2 fields are filled, by [`FlowKey::extract_l2`].
///
/// The type is an alias of the full key, because bridges with and without flow tables share code. After
/// `extract_l2`, the words from L3 on hold the content of a previous packet. Only the accessors up to
/// [`FlowKey::eth_type`] are valid.
pub type L2Key = FlowKey;

/// Bit of a TCI (tag control information) in the flow key that marks the tag as present. On the wire, this
/// bit is the drop eligible indicator.
pub const TAG_PRESENT: u16 = 0x1000;

/// Bit of [`FlowKey::fragment_bits`]: the packet is a fragment.
pub const FRAGMENT_ANY: u8 = 1;
/// Bit of [`FlowKey::fragment_bits`]: the packet is a fragment other than the first and has no L4 header.
pub const FRAGMENT_LATER: u8 = 2;

const OUTER_IS_SERVICE: u8 = 1;
const INNER_IS_SERVICE: u8 = 2;

/// L3 protocol of a packet, which determines the content of words 3 to 6 of its flow key. Bit 0 is set for both IP
/// versions, and a mask can therefore match either version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum L3Kind {
    /// The packet has no known network header, or a malformed one.
    #[default]
    None = 0,
    /// The packet is IPv4. Each address is in the first four octets of its field.
    Ipv4 = 1,
    /// The packet is IPv6. The addresses fill the address fields.
    Ipv6 = 3,
    /// The packet is ARP or RARP. The address fields hold the sender and target protocol addresses. The
    /// protocol field holds the operation.
    Arp = 2,
}

/// The flow key of one packet: 64 bytes, one cache line, no padding. See the [module](self) for its layout.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct FlowKey {
    in_port: little_endian::U16,
    l2_flags: u8,
    l3_kind: u8,
    vlan: [big_endian::U16; 2],
    eth_dst: [u8; 6],
    eth_src: [u8; 6],
    eth_type: big_endian::U16,
    proto: u8,
    fragment: u8,
    ip_src: [u8; 16],
    ip_dst: [u8; 16],
    src_port: big_endian::U16,
    dst_port: big_endian::U16,
    tcp_flags: big_endian::U16,
    tos: u8,
    ttl: u8,
}

const _: () = assert!(size_of::<FlowKey>() == 64 && align_of::<FlowKey>() == 64);

impl FlowKey {
    /// Flow key in which all bits are zero.
    pub const ZERO: FlowKey = FlowKey {
        in_port: little_endian::U16::ZERO,
        l2_flags: 0,
        l3_kind: 0,
        vlan: [big_endian::U16::ZERO; 2],
        eth_dst: [0; 6],
        eth_src: [0; 6],
        eth_type: big_endian::U16::ZERO,
        proto: 0,
        fragment: 0,
        ip_src: [0; 16],
        ip_dst: [0; 16],
        src_port: big_endian::U16::ZERO,
        dst_port: big_endian::U16::ZERO,
        tcp_flags: big_endian::U16::ZERO,
        tos: 0,
        ttl: 0,
    };

    /// Returns the key as eight words in memory order, for hashing, masking and comparing.
    #[inline]
    pub fn words(&self) -> &[u64; 8] {
        zerocopy::transmute_ref!(self)
    }

    /// Returns the key that consists of the given words. This is the inverse of [`FlowKey::words`].
    #[inline]
    pub fn from_words(words: [u64; 8]) -> FlowKey {
        zerocopy::transmute!(words)
    }

    /// Returns the key with every bit cleared that is not set in `mask`.
    #[inline]
    pub fn masked(&self, mask: &FlowKey) -> FlowKey {
        let (own, kept) = (self.words(), mask.words());
        FlowKey::from_words(std::array::from_fn(|word| own[word] & kept[word]))
    }

    /// Returns whether the key equals `value` in every bit that is set in `mask`.
    #[inline]
    pub fn matches(&self, value: &FlowKey, mask: &FlowKey) -> bool {
        let (own, wanted, kept) = (self.words(), value.words(), mask.words());
        (0..8).fold(0, |differing, word| differing | ((own[word] ^ wanted[word]) & kept[word])) == 0
    }
}
