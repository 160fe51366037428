//! Fields of a packet that the connection tracker has determined: the fields `ct_state` to `ct_tp_dst` of
//! ovs-fields(7).

/// Number of words of a [`Flow`](super::Flow) that hold the connection of the packet.
pub(super) const WORDS: usize = super::CONNECTION_WORDS.end - super::CONNECTION_WORDS.start;

/// Fields of a packet that the connection tracker has determined. All fields are zero for a packet that was not
/// tracked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectionFields {
    /// State bits of the packet (`ct_state`), with the numbers of ovs-fields(7).
    pub state: u8,
    /// Zone in which the packet was tracked.
    pub zone: u16,
    /// Mark of the connection.
    pub mark: u32,
    /// Label of the connection.
    pub label: u128,
    /// IP protocol of the first packet of the connection, before translation.
    pub protocol: u8,
    /// Source address of the first packet. The first four octets hold an IPv4 address.
    pub source: [u8; 16],
    /// Destination address of the first packet. The first four octets hold an IPv4 address.
    pub destination: [u8; 16],
    /// Source and destination port of the first packet, or type and code of an ICMP message.
    pub ports: [u16; 2],
}

impl ConnectionFields {
    /// Returns the words of a flow that hold these fields, at the positions that [`Field`](super::Field) specifies.
    pub(super) fn words(&self) -> [u64; WORDS] {
        let mut bytes = [0_u8; 8 * WORDS];
        bytes[3] = self.state;
        bytes[4..6].copy_from_slice(&self.zone.to_be_bytes());
        bytes[6] = self.protocol;
        bytes[8..12].copy_from_slice(&self.mark.to_be_bytes());
        bytes[16..32].copy_from_slice(&self.label.to_be_bytes());
        bytes[32..48].copy_from_slice(&self.source);
        bytes[48..64].copy_from_slice(&self.destination);
        bytes[64..66].copy_from_slice(&self.ports[0].to_be_bytes());
        bytes[66..68].copy_from_slice(&self.ports[1].to_be_bytes());
        zerocopy::transmute!(bytes)
    }

    /// Returns the fields that the words of a flow hold.
    pub(super) fn of_words(words: [u64; WORDS]) -> ConnectionFields {
        let bytes: [u8; 8 * WORDS] = zerocopy::transmute!(words);
        let octets = |at: usize| std::array::from_fn(|index| bytes[at + index]);
        let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        ConnectionFields {
            state: bytes[3],
            zone: number(4),
            mark: u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            label: u128::from_be_bytes(octets(16)),
            protocol: bytes[6],
            source: octets(32),
            destination: octets(48),
            ports: [number(64), number(66)],
        }
    }
}

#[cfg(test)]
mod tests {
    use packet::FlowKey;

    use super::*;
    use crate::flow::{ExtendedKey, Field, Flow};

    #[test]
    fn the_words_hold_the_fields() {
        let connection = ConnectionFields {
            state: 0x2a,
            zone: 0x1234,
            mark: 0xdead_beef,
            label: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
            protocol: 6,
            source: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
            destination: [0x20; 16],
            ports: [1000, 80],
        };
        let extended = ExtendedKey::ZERO.with_connection(&connection);
        let flow = Flow::new(&FlowKey::ZERO, &extended, 7);
        let expected: [(Field, u128); 11] = [
            (Field::CtState, 0x2a),
            (Field::CtZone, 0x1234),
            (Field::CtMark, 0xdead_beef),
            (Field::CtLabel, connection.label),
            (Field::CtNwProto, 6),
            (Field::CtNwSrc, 0x0102_0304),
            (Field::CtIpv6Src, 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
            (Field::CtNwDst, 0x2020_2020),
            (Field::CtIpv6Dst, u128::from_be_bytes([0x20; 16])),
            (Field::CtTpSrc, 1000),
            (Field::CtTpDst, 80),
        ];
        for (field, value) in expected {
            assert_eq!(flow.get(field), value, "{field:?}");
        }
        assert_eq!((flow.extended(), extended.connection()), (extended, connection));
    }
}
