//! Stateless translation between two IPv6 prefixes (NPTv6, RFC 6296).
//!
//! A packet that leaves the site has a source in the inside prefix, and receives a source in the outside prefix. A
//! packet that enters the site has a destination in the outside prefix, and receives a destination in the inside
//! prefix. The translation needs no connection and no ports: each address has exactly one image.
//!
//! Another word of the address is adjusted, so the sum of the 16-bit words of the address in one's complement does not
//! change (sections 3.1 to 3.5 and 3.7). The checksums of TCP, UDP and ICMPv6 therefore stay valid without an update.
//!
//! | longer of both prefixes | adjusted word |
//! |---|---|
//! | up to 48 bits | bits 48 to 63, the subnet |
//! | 49 to 64 bits | the first word of the interface identifier, from bit 64 on, that is not 0xffff |
//!
//! 0 and 0xffff are equal in one's complement. A word is not 0xffff before the adjustment or after the adjustment. The
//! translations of both directions are therefore exact inverses. An address has no image in these cases:
//!
//! - The prefixes have up to 48 bits, and the subnet is 0xffff.
//! - A prefix has more than 48 bits, and all words of the interface identifier are 0xffff.
//! - The prefix of the address is the shorter prefix, and the bits up to the length of the longer prefix are not 0.
//!
//! RFC 6296 section 3.7 says "all-zeros" for the second case. Erratum 8757 (reported) says "all-ones", as Linux does.
//!
//! RFC 6296 does not mention the packets that ICMPv6 errors quote. The functions translate the quoted address, as
//! `ip6t_NPT` of Linux does: the sender of the quoted packet would otherwise not recognise its packet. The checksums of
//! the error and of the quoted packet stay valid, too.
//!
//! A packet between two inside hosts that use their outside addresses (hairpinning) passes both translations.
//!
//! All functions are total. An error leaves the packet unchanged.

use std::net::IpAddr;

use packet::icmpv6::Icmpv6;
use packet::ipv6::{self, Ipv6};
use packet::net::Prefix;
use packet::{DropReason, HeaderError};

use crate::layout::Layout;

/// Largest length in bits of a prefix. The bits that follow are the interface identifier.
const LONGEST: u8 = 64;
/// Largest length in bits of prefixes for which the subnet is adjusted.
const LONGEST_WITH_SUBNET: u8 = 48;
/// Offset of the source in the IPv6 header.
const SOURCE: usize = 8;
/// Offset of the destination in the IPv6 header.
const DESTINATION: usize = 24;
/// Length in bytes of the header of ICMPv6 errors before the quoted packet.
const ERROR_HEADER: usize = 8;
/// Value of a word that is equal to 0 in one's complement. Words are added modulo this number.
const ONES: u128 = 0xffff;

/// Error for prefixes between which addresses cannot be translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidPair {
    /// A prefix is an IPv4 prefix.
    #[error("prefix {0}: not an IPv6 prefix; NPTv6 translates between two IPv6 prefixes")]
    NotIpv6(Prefix),
    /// The length of a prefix is 0, or exceeds 64 bits.
    #[error("prefix {0}: NPTv6 translates prefixes of 1 to 64 bits; choose the prefix of the whole site")]
    Length(Prefix),
}

/// Reason for which an address or a packet is not translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotMapped {
    /// A header is incomplete, or has a field with an invalid value.
    Header(DropReason),
    /// The address is not in the prefix.
    Prefix,
    /// The subnet has no image. The packet must be dropped, and the answer is an ICMPv6 destination unreachable
    /// message (RFC 6296 sections 3.2 and 3.3).
    Subnet,
    /// All words of the interface identifier are 0xffff. The packet must be dropped, and the answer is an ICMPv6
    /// parameter problem message that points to the address (RFC 6296 section 3.7).
    InterfaceIdentifier,
}

impl From<HeaderError> for NotMapped {
    fn from(error: HeaderError) -> NotMapped {
        NotMapped::Header(error.reason())
    }
}

/// Inside and outside prefix of a site.
///
/// ```
/// use std::net::Ipv6Addr;
///
/// use conn::nat::prefix::PrefixPair;
///
/// // The example of RFC 6296 section 3.6.
/// let pair = PrefixPair::new("fd01:203:405::/48".parse()?, "2001:db8:1::/48".parse()?)?;
/// let inside: Ipv6Addr = "fd01:203:405:1::1234".parse()?;
/// let outside: Ipv6Addr = "2001:db8:1:d550::1234".parse()?;
/// assert_eq!(pair.outward(inside.to_bits()), Some(outside.to_bits()));
/// assert_eq!(pair.inward(outside.to_bits()), Some(inside.to_bits()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefixPair {
    outward: Translation,
    inward: Translation,
}

impl PrefixPair {
    /// Returns the translation between two prefixes of 1 to 64 bits. Zeros extend the shorter prefix to the length of
    /// the longer prefix (RFC 6296 section 3.1).
    ///
    /// # Errors
    /// Returns an error that names the prefix whose family or length is invalid.
    pub fn new(inside: Prefix, outside: Prefix) -> Result<PrefixPair, InvalidPair> {
        let (inside_bits, outside_bits) = (bits_of(inside)?, bits_of(outside)?);
        let length = inside.length().max(outside.length());
        // 2^16 is 1 modulo 0xffff, so a number and the sum of its 16-bit words are equal.
        let (inside_sum, outside_sum) = (inside_bits % ONES, outside_bits % ONES);
        let translation = |from, to, configured: Prefix, adjustment| Translation {
            from,
            to,
            configured: mask(configured.length()),
            prefix: mask(length),
            adjusts_subnet: length <= LONGEST_WITH_SUBNET,
            adjustment,
        };
        Ok(PrefixPair {
            outward: translation(inside_bits, outside_bits, inside, (inside_sum + ONES - outside_sum) % ONES),
            inward: translation(outside_bits, inside_bits, outside, (outside_sum + ONES - inside_sum) % ONES),
        })
    }

    /// Returns the outside address of an inside address. Returns `None` if the address is not in the inside prefix or
    /// has no image.
    #[must_use]
    pub fn outward(&self, source: u128) -> Option<u128> {
        self.outward.map(source).ok()
    }

    /// Returns the inside address of an outside address. Returns `None` if the address is not in the outside prefix or
    /// has no image.
    #[must_use]
    pub fn inward(&self, destination: u128) -> Option<u128> {
        self.inward.map(destination).ok()
    }

    /// Translates the source of an IPv6 packet that leaves the site. The destination of the packet that an ICMPv6 error
    /// quotes is translated if this address has an image. No other byte changes.
    ///
    /// # Errors
    /// Returns the reason for which the packet is not translated. The packet is unchanged then.
    pub fn translate_outward(&self, packet: &mut [u8]) -> Result<(), NotMapped> {
        self.outward.rewrite(packet, SOURCE, DESTINATION)
    }

    /// Translates the destination of an IPv6 packet that enters the site. The source of the packet that an ICMPv6 error
    /// quotes is translated if this address has an image. No other byte changes.
    ///
    /// # Errors
    /// Returns the reason for which the packet is not translated. The packet is unchanged then.
    pub fn translate_inward(&self, packet: &mut [u8]) -> Result<(), NotMapped> {
        self.inward.rewrite(packet, DESTINATION, SOURCE)
    }
}

/// Translation in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Translation {
    /// Prefix before the translation.
    from: u128,
    /// Prefix after the translation.
    to: u128,
    /// Bits of the prefix before the translation, as configured.
    configured: u128,
    /// Bits of the longer of both prefixes.
    prefix: u128,
    /// Whether the subnet is the adjusted word.
    adjusts_subnet: bool,
    /// Number that is added to the adjusted word, less than 0xffff.
    adjustment: u128,
}

impl Translation {
    /// Returns the image of an address.
    fn map(&self, address: u128) -> Result<u128, NotMapped> {
        let difference = address ^ self.from;
        if difference & self.configured != 0 {
            return Err(NotMapped::Prefix);
        }
        if difference & self.prefix != 0 {
            return Err(NotMapped::Subnet);
        }
        let word = |shift: u32| (address >> shift) & ONES;
        let shift = if self.adjusts_subnet {
            Some(64).filter(|shift| word(*shift) != ONES).ok_or(NotMapped::Subnet)?
        } else {
            let words = [48, 32, 16, 0];
            words.into_iter().find(|shift| word(*shift) != ONES).ok_or(NotMapped::InterfaceIdentifier)?
        };
        // Both numbers are less than 0xffff, and so the sum exceeds 0xffff at most once.
        let sum = word(shift) + self.adjustment;
        let adjusted = if sum >= ONES { sum - ONES } else { sum };
        let kept = address & !self.prefix & !(ONES << shift);
        Ok(self.to | kept | adjusted << shift)
    }

    /// Rewrites the address at an offset of a packet, and the address at another offset of a packet that an ICMPv6
    /// error quotes.
    fn rewrite(&self, packet: &mut [u8], at: usize, quoted_at: usize) -> Result<(), NotMapped> {
        let view = Ipv6::parse(packet)?;
        view.upper()?;
        let end = ipv6::LEN + view.payload().len();
        let bytes = packet.get_mut(..end).unwrap_or_default();
        let layout = Layout::of_ipv6(bytes).ok_or(NotMapped::Header(DropReason::Ipv6Truncated))?;
        self.rewrite_field(bytes, at)?;
        if !layout.is_icmp() {
            return Ok(());
        }
        let message = layout.upper.and_then(|upper| bytes.get_mut(upper..)).unwrap_or_default();
        if !Icmpv6::parse(message).is_ok_and(|message| message.is_error()) {
            return Ok(());
        }
        let quote = message.get_mut(ERROR_HEADER..).unwrap_or_default();
        if layout.of_quote(quote).is_some() {
            // The error remains useful for the receiver if the quoted address has no image.
            let _ = self.rewrite_field(quote, quoted_at);
        }
        Ok(())
    }

    /// Rewrites the address at an offset.
    fn rewrite_field(&self, bytes: &mut [u8], at: usize) -> Result<(), NotMapped> {
        let field = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<16>);
        let field = field.ok_or(NotMapped::Header(DropReason::Ipv6Truncated))?;
        *field = self.map(u128::from_be_bytes(*field))?.to_be_bytes();
        Ok(())
    }
}

/// Returns the first address of an IPv6 prefix.
fn bits_of(prefix: Prefix) -> Result<u128, InvalidPair> {
    let IpAddr::V6(address) = prefix.address() else { return Err(InvalidPair::NotIpv6(prefix)) };
    if prefix.length() == 0 || prefix.length() > LONGEST {
        return Err(InvalidPair::Length(prefix));
    }
    Ok(address.to_bits())
}

/// Returns a number whose first `length` bits are set.
fn mask(length: u8) -> u128 {
    !u128::MAX.checked_shr(length.into()).unwrap_or(0)
}
