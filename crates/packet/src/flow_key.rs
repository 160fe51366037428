//! The flow key: what look-ups, hashes and matches see of a packet, in one cache line.
//!
//! First thing made of a received frame ([`FlowKey::extract`]), and the only thing that the flow caches read. The
//! fields stand in the order metadata, L2, L3, L4, so that a classifier which looks at the key in stages reads it
//! front to back, as eight words ([`FlowKey::words`]):
//!
//! ```text
//!  word 0  in_port, L2 flags, L3 kind, outer TCI, inner TCI     word 3,4  IP source (or ARP sender)
//!  word 1  destination MAC, source MAC (first two octets)       word 5,6  IP destination (or ARP target)
//!  word 2  source MAC (rest), EtherType, protocol, fragment     word 7    L4 ports, TCP flags, TOS, TTL
//! ```
//!
//! Invariants: fields that a packet lacks are zero; multi-byte fields are in the order of the wire; the bytes of two
//! equal keys are equal (there is no padding). Where a header is broken, the fields from there on are zero and
//! [`Layers::malformed`] says why.

mod extract;
mod fields;
mod hash;
mod l2;
mod layers;
mod text;

use zerocopy::byteorder::{big_endian, little_endian};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use layers::Layers;

/// The light form of the key: only metadata and L2 filled, by [`FlowKey::extract_l2`].
///
/// The same type, because a bridge that needs no more and a bridge with flows share their stages. After `extract_l2`
/// the words from L3 on hold whatever the memory held before: read only the accessors up to
/// [`FlowKey::eth_type`].
pub type L2Key = FlowKey;

/// The bit of a key's TCI that says that the tag is there (its place on the wire is the drop-eligible bit).
pub const TAG_PRESENT: u16 = 0x1000;

/// The frame is a fragment: bit of [`FlowKey::fragment_bits`].
pub const FRAGMENT_ANY: u8 = 1;
/// The frame is a fragment other than the first, so it has no L4 header: bit of [`FlowKey::fragment_bits`].
pub const FRAGMENT_LATER: u8 = 2;

const OUTER_IS_SERVICE: u8 = 1;
const INNER_IS_SERVICE: u8 = 2;

/// What the words 3 to 6 of a key hold. Bit 0 means "IP", so that a mask can ask for either version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum L3Kind {
    /// No network header that we know, or a broken one.
    #[default]
    None = 0,
    /// IPv4 addresses in the first four octets of each field.
    Ipv4 = 1,
    /// IPv6 addresses.
    Ipv6 = 3,
    /// ARP (or RARP): sender and target protocol address; the protocol field is the operation.
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
    /// The key of no packet: all zero.
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

    /// The key as eight words in the order of memory, for hashing, masking and comparing.
    #[inline]
    pub fn words(&self) -> &[u64; 8] {
        zerocopy::transmute_ref!(self)
    }

    /// The key with these words; the inverse of [`FlowKey::words`].
    #[inline]
    pub fn from_words(words: [u64; 8]) -> FlowKey {
        zerocopy::transmute!(words)
    }

    /// The key with every bit cleared that `mask` does not have.
    #[inline]
    pub fn masked(&self, mask: &FlowKey) -> FlowKey {
        let (own, kept) = (self.words(), mask.words());
        FlowKey::from_words(std::array::from_fn(|word| own[word] & kept[word]))
    }

    /// Whether the key equals `value` in every bit that `mask` has.
    #[inline]
    pub fn matches(&self, value: &FlowKey, mask: &FlowKey) -> bool {
        let (own, wanted, kept) = (self.words(), value.words(), mask.words());
        (0..8).fold(0, |differing, word| differing | ((own[word] ^ wanted[word]) & kept[word])) == 0
    }
}
