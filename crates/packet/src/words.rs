//! Syntax that packet specs and packet filters share: field names with their aliases, and parsers for values.
//!
//! A text is a list of `field=value` items and bare words, separated by commas. Every field also has its Open
//! vSwitch name. Therefore `nw_dst=10.0.0.2,tp_dst=80,tcp` works as in `ovs-ofctl`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::numbers::{ethertype, ip_proto};
use crate::{MacAddr, tcp};

/// Error in a packet spec or filter. Every message names the field, the cause and the remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TextError {
    /// The text contains an unknown field or word.
    #[error("`{word}` is not a known field; known are: {}", known_names())]
    Unknown {
        /// The word that is not known.
        word: String,
    },
    /// A field has no value.
    #[error("field `{field}` has no value; write `{field}=...` ({expected})")]
    NoValue {
        /// Name of the field in the packet spec or filter.
        field: &'static str,
        /// Description of the values that are valid for the field.
        expected: &'static str,
    },
    /// A field's value cannot be parsed.
    #[error("field `{field}`: `{value}` cannot be read; it takes {expected}")]
    BadValue {
        /// Name of the field in the packet spec or filter.
        field: &'static str,
        /// Invalid value of the field, as written in the text.
        value: String,
        /// Description of the values that are valid for the field.
        expected: &'static str,
    },
    /// A field occurs twice in the text.
    #[error("field `{field}` is given twice; keep one of them")]
    Repeated {
        /// Name of the field in the packet spec or filter.
        field: &'static str,
    },
    /// A field contradicts other fields.
    #[error("field `{field}` does not fit the rest: {cause}; {fix}")]
    Conflict {
        /// Name of the field in the packet spec or filter.
        field: &'static str,
        /// Cause of the conflict.
        cause: &'static str,
        /// Remedy for the conflict.
        fix: &'static str,
    },
    /// The value of the field `len` is less than the length of the packet's headers.
    #[error("field `len`: {len} bytes are too few for the packet's headers; write at least len={need}")]
    TooShort {
        /// Frame length that the text requests, in bytes.
        len: usize,
        /// Length of the packet's headers in bytes.
        need: usize,
    },
    /// The text after `hex:` does not describe bytes.
    #[error("`hex:` takes an even number of hex digits (spaces and colons may separate them); {0}")]
    Hex(HexFault),
}

/// Error in the hexadecimal digits of a packet spec.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HexFault {
    /// A character is not a hex digit. The value is its position after `hex:`, starting at 1.
    #[error("character {0} is not a hex digit")]
    Digit(usize),
    /// The number of hexadecimal digits is odd.
    #[error("the last byte lacks a digit")]
    Odd,
    /// The text has no hexadecimal digits.
    #[error("none is there")]
    Empty,
}

macro_rules! fields {
    ($($variant:ident [$name:literal $(, $alias:literal)*] $expected:literal;)+) => {
        /// A field of a packet spec or filter.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Field {
            $($variant,)+
        }

        impl Field {
            pub(crate) fn from_name(name: &str) -> Option<Field> {
                match name {
                    $($name $(| $alias)* => Some(Field::$variant),)+
                    _ => None,
                }
            }

            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Field::$variant => $name,)+
                }
            }

            pub(crate) const fn expected(self) -> &'static str {
                match self {
                    $(Field::$variant => $expected,)+
                }
            }
        }

        const NAMES: &[&str] = &[$($name,)+];
    };
}

fields! {
    InPort ["in_port"] "a port number, such as 1";
    EthSrc ["eth_src", "dl_src"] "an Ethernet address, such as 02:00:00:00:00:01";
    EthDst ["eth_dst", "dl_dst"] "an Ethernet address, such as 02:00:00:00:00:02";
    EthType ["eth_type", "dl_type"] "an EtherType, such as 0x0800, ipv4, ipv6 or arp";
    Vlan ["vlan", "vlan_vid", "dl_vlan", "vlan_id"] "a VLAN identifier from 0 to 4094, or `none`";
    Pcp ["pcp", "vlan_pcp", "dl_vlan_pcp"] "a priority from 0 to 7";
    InnerVlan ["inner_vlan", "cvlan"] "a VLAN identifier from 0 to 4094, or `none`";
    VlanTpid ["vlan_tpid"] "0x8100 (802.1Q) or 0x88a8 (802.1ad)";
    IpSrc ["ip_src", "nw_src", "ipv6_src", "src"] "an IPv4 or IPv6 address, such as 10.0.0.1";
    IpDst ["ip_dst", "nw_dst", "ipv6_dst", "dst"] "an IPv4 or IPv6 address, such as 10.0.0.2";
    Proto ["proto", "ip_proto", "nw_proto"] "a protocol number or tcp, udp, sctp, icmp, icmpv6 or igmp";
    Tos ["tos", "nw_tos", "ip_tos"] "a number from 0 to 255";
    Ttl ["ttl", "nw_ttl", "hop_limit"] "a number from 0 to 255";
    Frag ["frag", "ip_frag", "nw_frag"] "none, any, first or later";
    SrcPort ["src_port", "tp_src", "tcp_src", "udp_src", "sctp_src"] "a port number from 0 to 65535";
    DstPort ["dst_port", "tp_dst", "tcp_dst", "udp_dst", "sctp_dst"] "a port number from 0 to 65535";
    TcpFlags ["tcp_flags", "flags"] "flags such as syn+ack, or a number such as 0x012";
    IcmpType ["icmp_type", "icmpv6_type"] "a number from 0 to 255";
    IcmpCode ["icmp_code", "icmpv6_code"] "a number from 0 to 255";
    ArpOp ["arp_op"] "request, reply or a number from 0 to 255";
    ArpSpa ["arp_spa"] "an IPv4 address, such as 10.0.0.1";
    ArpTpa ["arp_tpa"] "an IPv4 address, such as 10.0.0.2";
    ArpSha ["arp_sha"] "an Ethernet address, such as 02:00:00:00:00:01";
    ArpTha ["arp_tha"] "an Ethernet address, such as 02:00:00:00:00:02";
    Len ["len", "length"] "the frame's length in bytes without FCS, 14 to 65535";
}

/// A word without a value that selects a network header, a protocol, or both, such as `ip` or `tcp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shorthand {
    pub(crate) l3: Option<L3Word>,
    pub(crate) proto: Option<u8>,
}

/// Network header that a word without a value selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum L3Word {
    Ipv4,
    Ipv6,
    Arp,
}

impl Shorthand {
    fn from_word(word: &str) -> Option<Shorthand> {
        let (l3, proto) = match word {
            "ip" | "ipv4" => (Some(L3Word::Ipv4), None),
            "ip6" | "ipv6" => (Some(L3Word::Ipv6), None),
            "arp" => (Some(L3Word::Arp), None),
            "tcp" => (None, Some(ip_proto::TCP)),
            "udp" => (None, Some(ip_proto::UDP)),
            "sctp" => (None, Some(ip_proto::SCTP)),
            "tcp6" => (Some(L3Word::Ipv6), Some(ip_proto::TCP)),
            "udp6" => (Some(L3Word::Ipv6), Some(ip_proto::UDP)),
            "sctp6" => (Some(L3Word::Ipv6), Some(ip_proto::SCTP)),
            "icmp" => (Some(L3Word::Ipv4), Some(ip_proto::ICMP)),
            "icmp6" | "icmpv6" => (Some(L3Word::Ipv6), Some(ip_proto::ICMPV6)),
            "igmp" => (Some(L3Word::Ipv4), Some(ip_proto::IGMP)),
            _ => return None,
        };
        Some(Shorthand { l3, proto })
    }
}

/// One item of a packet spec or filter: a field with a value, or a word without a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item<'t> {
    Field(Field, &'t str),
    Word(Shorthand),
}

/// Splits a text into its items. Empty items (two commas in a row) are skipped.
pub(crate) fn items(text: &str) -> impl Iterator<Item = Result<Item<'_>, TextError>> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(|item| {
        let (name, value) = match item.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (item, None),
        };
        match (Field::from_name(name), value) {
            (Some(field), Some(value)) if !value.is_empty() => Ok(Item::Field(field, value)),
            (Some(field), _) => Err(TextError::NoValue { field: field.name(), expected: field.expected() }),
            (None, None) if let Some(word) = Shorthand::from_word(name) => Ok(Item::Word(word)),
            (None, _) => Err(TextError::Unknown { word: name.to_owned() }),
        }
    })
}

fn known_names() -> String {
    let words = "ip, ip6, arp, tcp, udp, sctp, icmp, icmp6, igmp, tcp6, udp6";
    format!("{}; and the words {words}", NAMES.join(", "))
}

impl Field {
    pub(crate) fn bad(self, value: &str) -> TextError {
        TextError::BadValue { field: self.name(), value: value.to_owned(), expected: self.expected() }
    }

    pub(crate) fn conflict(self, cause: &'static str, fix: &'static str) -> TextError {
        TextError::Conflict { field: self.name(), cause, fix }
    }

    /// Parses a number in decimal or, after `0x`, in hex.
    pub(crate) fn number(self, value: &str, max: u16) -> Result<u16, TextError> {
        read_number(value).filter(|number| *number <= max).ok_or_else(|| self.bad(value))
    }

    pub(crate) fn octet(self, value: &str) -> Result<u8, TextError> {
        self.number(value, 255).and_then(|number| u8::try_from(number).map_err(|_| self.bad(value)))
    }

    pub(crate) fn mac(self, value: &str) -> Result<MacAddr, TextError> {
        value.parse().map_err(|_| self.bad(value))
    }

    pub(crate) fn ip(self, value: &str) -> Result<IpAddr, TextError> {
        value.parse().map_err(|_| self.bad(value))
    }

    pub(crate) fn ipv4(self, value: &str) -> Result<Ipv4Addr, TextError> {
        value.parse().map_err(|_| self.bad(value))
    }

    pub(crate) fn eth_type(self, value: &str) -> Result<u16, TextError> {
        match value {
            "ip" | "ipv4" => Ok(ethertype::IPV4),
            "ip6" | "ipv6" => Ok(ethertype::IPV6),
            "arp" => Ok(ethertype::ARP),
            _ => self.number(value, u16::MAX),
        }
    }

    /// Parses a protocol number or name.
    pub(crate) fn proto(self, value: &str) -> Result<u8, TextError> {
        match Shorthand::from_word(value).and_then(|word| word.proto) {
            Some(proto) => Ok(proto),
            None => self.octet(value),
        }
    }

    /// Parses a VLAN identifier. Returns `None` if the value means "untagged".
    pub(crate) fn vlan(self, value: &str) -> Result<Option<u16>, TextError> {
        match value {
            "none" | "untagged" | "0xffff" | "65535" => Ok(None),
            _ => self.number(value, 4094).map(Some),
        }
    }

    pub(crate) fn arp_op(self, value: &str) -> Result<u8, TextError> {
        match value {
            "request" => Ok(1),
            "reply" => Ok(2),
            _ => self.octet(value),
        }
    }

    /// Parses TCP flags to a value and a mask. Examples are `0x12`, `0x12/0x3f`, `syn+ack` (both flags set,
    /// others ignored) and `+syn-ack`.
    pub(crate) fn tcp_flags(self, value: &str) -> Result<(u16, u16), TextError> {
        if value.starts_with(|first: char| first.is_ascii_digit()) {
            return match value.split_once('/') {
                Some((value, mask)) => Ok((self.number(value, 0xfff)?, self.number(mask, 0xfff)?)),
                None => Ok((self.number(value, 0xfff)?, 0xfff)),
            };
        }
        let (mut set, mut mask) = (0, 0);
        let mut rest = value;
        while !rest.is_empty() {
            let wanted = !rest.starts_with('-');
            let name = rest.strip_prefix(['+', '-', '|']).unwrap_or(rest);
            let end = name.find(['+', '-', '|']).unwrap_or(name.len());
            let bit = tcp_flag(&name[..end]).ok_or_else(|| self.bad(value))?;
            mask |= bit;
            set |= if wanted { bit } else { 0 };
            rest = &name[end..];
        }
        Ok((set & mask, mask))
    }
}

fn tcp_flag(name: &str) -> Option<u16> {
    Some(match name {
        "fin" => tcp::flags::FIN,
        "syn" => tcp::flags::SYN,
        "rst" => tcp::flags::RST,
        "psh" => tcp::flags::PSH,
        "ack" => tcp::flags::ACK,
        "urg" => tcp::flags::URG,
        "ece" => tcp::flags::ECE,
        "cwr" => tcp::flags::CWR,
        _ => return None,
    })
}

fn read_number(text: &str) -> Option<u16> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // `from_str_radix` accepts a sign, which no field has.
    if digits.starts_with('+') { None } else { u16::from_str_radix(digits, radix).ok() }
}

/// Returns the IPv4 netmask for a prefix length of `bits` bits. Returns `None` if `bits` exceeds 32.
pub(crate) fn prefix_v4(bits: u32) -> Option<Ipv4Addr> {
    (bits <= 32).then(|| u32::MAX.checked_shl(32 - bits).unwrap_or(0).into())
}

/// Returns the IPv6 netmask for a prefix length of `bits` bits. Returns `None` if `bits` exceeds 128.
pub(crate) fn prefix_v6(bits: u32) -> Option<Ipv6Addr> {
    (bits <= 128).then(|| u128::MAX.checked_shl(128 - bits).unwrap_or(0).into())
}
