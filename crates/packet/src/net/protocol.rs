//! IP protocol numbers with their names in configurations.

use serde::{Serialize, Serializer};

/// An IP protocol number (IANA protocol-numbers). The configuration file uses words for common protocols.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Protocol(pub u8);

impl Protocol {
    /// Protocol number of TCP.
    pub const TCP: Protocol = Protocol(6);
    /// Words that name common protocols in the configuration file, with their protocol numbers.
    pub const WORDS: [(&'static str, u8); 10] = [
        ("icmp", 1),
        ("igmp", 2),
        ("tcp", 6),
        ("udp", 17),
        ("dccp", 33),
        ("gre", 47),
        ("esp", 50),
        ("icmpv6", 58),
        ("sctp", 132),
        ("udplite", 136),
    ];

    /// Returns the word that names the protocol. Returns `None` if the protocol has only a number.
    pub fn word(self) -> Option<&'static str> {
        Protocol::WORDS.iter().find(|(_, number)| *number == self.0).map(|(word, _)| *word)
    }

    /// Returns whether the header of the protocol begins with a source port and a destination port.
    pub fn has_ports(self) -> bool {
        matches!(self.0, 6 | 17 | 33 | 132 | 136)
    }
}

impl Serialize for Protocol {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.word() {
            Some(word) => to.serialize_str(word),
            None => to.serialize_u8(self.0),
        }
    }
}
