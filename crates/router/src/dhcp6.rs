//! Message processing of the DHCPv6 relay (RFC 8415, section 19). The messages of clients are encapsulated for servers,
//! and the messages to clients are extracted from the replies of servers.
//!
//! All functions are pure, as in [`crate::dhcp`]. A relay keeps no state between two messages: the relayed request
//! carries the name of the interface to the client, and the server returns this name.

use std::net::Ipv6Addr;

use crate::dhcp::{MOST, Refusal};

/// UDP port on which DHCPv6 servers and relays receive messages (RFC 8415, section 7.2).
pub const SERVER_PORT: u16 = 547;
/// UDP port on which DHCPv6 clients receive messages.
pub const CLIENT_PORT: u16 = 546;
/// Multicast address at which clients reach the relays and servers of their link (RFC 8415, section 7.1).
pub const RELAYS_AND_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

/// Maximum number of relays that a message may have passed (`HOP_COUNT_LIMIT`, RFC 8415, section 7.6).
const HOPS: u8 = 8;
/// Length, in octets, of a client's or server's message before its options: type and transaction identifier.
const LEAST: usize = 4;
/// Length, in octets, of a relay message before its options (RFC 8415, section 9): type, hop count, link
/// address and peer address.
const HEAD: usize = 34;

const ADVERTISE: u8 = 2;
const REPLY: u8 = 7;
const RECONFIGURE: u8 = 10;
const RELAY_FORWARD: u8 = 12;
const RELAY_REPLY: u8 = 13;

/// Number of the Relay Message option (RFC 8415, section 21.10).
const RELAYED: u16 = 9;
/// Number of the Interface-Id option, which the server returns unchanged (RFC 8415, section 21.18).
const INTERFACE: u16 = 18;

/// The direction in which a relay forwards a DHCPv6 message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From a client or another relay to servers.
    Up {
        /// True if another relay has sent the message. False if the client has sent it.
        relayed: bool,
    },
    /// From a server to a client or to another relay. The Relay-reply message contains the address of this receiver
    /// (the peer).
    Down,
}

/// The contents of a Relay-reply message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply<'a> {
    /// Link address of the message, which identifies the client's link. The address is unspecified if only the
    /// Interface-Id option identifies the link.
    pub link: Ipv6Addr,
    /// Name of the interface to the client, which [`forward`] has put into the request. The value is `None` if the
    /// reply does not carry one.
    pub interface: Option<&'a [u8]>,
    /// Address of the client, or of the next relay towards the client.
    pub peer: Ipv6Addr,
    /// Whether `peer` is a relay, which receives on [`SERVER_PORT`]. A client receives on [`CLIENT_PORT`].
    pub to_relay: bool,
    /// Inner message, which is sent to the peer.
    pub message: &'a [u8],
}

/// Returns the direction of a message that arrived at a relay. Messages of unknown types are treated as
/// messages of a client (RFC 7283).
///
/// # Errors
/// Returns [`Refusal::Malformed`] if the message is not relayed.
pub fn direction(message: &[u8]) -> Result<Direction, Refusal> {
    let least = match message.first() {
        None | Some(&0 | &ADVERTISE | &REPLY | &RECONFIGURE) => return Err(Refusal::Malformed),
        Some(&RELAY_FORWARD | &RELAY_REPLY) => HEAD,
        Some(_) => LEAST,
    };
    if !(least..=MOST).contains(&message.len()) {
        return Err(Refusal::Malformed);
    }
    Ok(match message.first() {
        Some(&RELAY_REPLY) => Direction::Down,
        first => Direction::Up { relayed: first == Some(&RELAY_FORWARD) },
    })
}

/// Builds the Relay-forward message that carries `message` to servers. `from` is the address of the client or relay
/// that sent `message`. `own` and `interface` are the address and the name of the interface on which `message` arrived.
///
/// # Errors
/// Returns [`Refusal::Looping`] after 8 relays. Returns [`Refusal::Malformed`] if the message is not a
/// [`Direction::Up`] message.
pub fn forward(message: &[u8], from: Ipv6Addr, own: Ipv6Addr, interface: &str) -> Result<Vec<u8>, Refusal> {
    let Direction::Up { relayed } = direction(message)? else { return Err(Refusal::Malformed) };
    let hops = match message.get(1) {
        Some(hops) if relayed && *hops >= HOPS => return Err(Refusal::Looping),
        Some(hops) if relayed => hops + 1,
        _ => 0,
    };
    // The link address is omitted for a relay with a non-link-local source, which identifies its link
    // (section 19.1.2).
    let link = if relayed && !from.is_unicast_link_local() { Ipv6Addr::UNSPECIFIED } else { own };
    let mut envelope = Vec::with_capacity(HEAD + 4 + message.len() + 4 + interface.len());
    envelope.extend_from_slice(&[RELAY_FORWARD, hops]);
    envelope.extend_from_slice(&link.octets());
    envelope.extend_from_slice(&from.octets());
    for (code, value) in [(INTERFACE, interface.as_bytes()), (RELAYED, message)] {
        let length = u16::try_from(value.len()).map_err(|_| Refusal::Malformed)?;
        envelope.extend_from_slice(&code.to_be_bytes());
        envelope.extend_from_slice(&length.to_be_bytes());
        envelope.extend_from_slice(value);
    }
    Ok(envelope)
}

/// Parses a Relay-reply message.
///
/// # Errors
/// Returns [`Refusal::Malformed`] if the message is not a [`Direction::Down`] message, if an option is truncated or
/// duplicate, if the inner message is of a type or length that no client or relay accepts, or if the peer address is
/// not a unicast address of a host.
pub fn reply(envelope: &[u8]) -> Result<Reply<'_>, Refusal> {
    let Direction::Down = direction(envelope)? else { return Err(Refusal::Malformed) };
    let (link, peer) = (address(envelope, 2)?, address(envelope, 18)?);
    let (mut interface, mut message) = (None, None);
    let mut rest = envelope.get(HEAD..).unwrap_or_default();
    while let [code0, code1, length0, length1, after @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*length0, *length1]));
        let (value, next) = after.split_at_checked(length).ok_or(Refusal::Malformed)?;
        let place = match u16::from_be_bytes([*code0, *code1]) {
            RELAYED => Some(&mut message),
            INTERFACE => Some(&mut interface),
            _ => None,
        };
        if place.is_some_and(|place| place.replace(value).is_some()) {
            return Err(Refusal::Malformed);
        }
        rest = next;
    }
    let message: &[u8] = message.filter(|_| rest.is_empty()).ok_or(Refusal::Malformed)?;
    let to_relay = message.first() == Some(&RELAY_REPLY);
    let least = if to_relay { HEAD } else { LEAST };
    let to_host = !peer.is_unspecified() && !peer.is_loopback() && !peer.is_multicast();
    if message.len() < least || message.first() == Some(&RELAY_FORWARD) || !to_host {
        return Err(Refusal::Malformed);
    }
    Ok(Reply { link, interface, peer, to_relay, message })
}

fn address(message: &[u8], at: usize) -> Result<Ipv6Addr, Refusal> {
    let octets: Option<&[u8; 16]> = message.get(at..).and_then(<[u8]>::first_chunk);
    octets.map(|octets| Ipv6Addr::from(*octets)).ok_or(Refusal::Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWN: Ipv6Addr = Ipv6Addr::new(0xfd00, 8, 1, 0, 0, 0, 0, 1);
    const FAR: Ipv6Addr = Ipv6Addr::new(0xfd00, 8, 7, 0, 0, 0, 0, 1);
    const CLIENT: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);
    const SOLICIT: [u8; 8] = [1, 0xa, 0xb, 0xc, 0, 14, 0, 0];

    /// Returns a server's answer to the Relay-forward message `envelope`: a Relay-reply message with the headers of the
    /// Relay-forward message and with the inner message `answer`.
    fn answered(envelope: &[u8], answer: &[u8]) -> Vec<u8> {
        let name = usize::from(envelope[37]);
        let mut reply = envelope[..HEAD + 4 + name].to_vec();
        reply[0] = RELAY_REPLY;
        reply.extend_from_slice(&[0, 9, 0, u8::try_from(answer.len()).unwrap()]);
        reply.extend_from_slice(answer);
        reply
    }

    #[test]
    fn a_clients_message_goes_in_an_envelope_and_the_answer_comes_out_of_one() {
        let envelope = forward(&SOLICIT, CLIENT, OWN, "eth1.100").unwrap();
        let mut expected = vec![RELAY_FORWARD, 0];
        expected.extend(OWN.octets());
        expected.extend(CLIENT.octets());
        expected.extend([0, 18, 0, 8]);
        expected.extend(b"eth1.100");
        expected.extend([0, 9, 0, 8]);
        expected.extend(SOLICIT);
        assert_eq!(envelope, expected);
        let answer = [REPLY, 0xa, 0xb, 0xc];
        let back = answered(&envelope, &answer);
        let interface = Some(&b"eth1.100"[..]);
        let told = Reply { link: OWN, interface, peer: CLIENT, to_relay: false, message: &answer };
        assert_eq!(reply(&back), Ok(told));
    }

    #[test]
    fn eight_relays_are_passed_and_each_takes_off_its_own_envelope() {
        let mut envelopes = vec![forward(&SOLICIT, CLIENT, OWN, "a").unwrap()];
        for hops in 1..=8 {
            let next = forward(envelopes.last().unwrap(), FAR, OWN, "b").unwrap();
            assert_eq!(
                (next[1], address(&next, 2), address(&next, 18)),
                (hops, Ok(Ipv6Addr::UNSPECIFIED), Ok(FAR))
            );
            envelopes.push(next);
        }
        assert_eq!(forward(envelopes.last().unwrap(), FAR, OWN, "c"), Err(Refusal::Looping));
        // The link address is set for a relay that sends from a link-local address.
        assert_eq!(address(&forward(&envelopes[0], CLIENT, OWN, "b").unwrap(), 2), Ok(OWN));
        let inner = answered(&envelopes[0], &[REPLY, 0xa, 0xb, 0xc]);
        let outer = answered(&envelopes[1], &inner);
        let told = reply(&outer).unwrap();
        assert_eq!((told.peer, told.to_relay, told.message), (FAR, true, &inner[..]));
        assert_eq!(reply(told.message).map(|told| (told.peer, told.to_relay)), Ok((CLIENT, false)));
    }

    #[test]
    fn what_is_no_message_for_a_relay_is_refused() {
        for first in [0, ADVERTISE, REPLY, RECONFIGURE] {
            assert_eq!(direction(&[first, 0, 0, 0]), Err(Refusal::Malformed), "{first}");
        }
        assert_eq!(direction(&[]), Err(Refusal::Malformed));
        assert_eq!(direction(&SOLICIT[..3]), Err(Refusal::Malformed));
        assert_eq!(direction(&SOLICIT[..4]), Ok(Direction::Up { relayed: false }));
        // A type that is not assigned yet.
        assert_eq!(direction(&[200, 0, 0, 0]), Ok(Direction::Up { relayed: false }));
        let mut long = SOLICIT.to_vec();
        long.resize(MOST + 1, 0);
        assert_eq!(direction(&long), Err(Refusal::Malformed));

        let envelope = forward(&SOLICIT, CLIENT, OWN, "eth1").unwrap();
        assert_eq!(direction(&envelope), Ok(Direction::Up { relayed: true }));
        assert_eq!(direction(&envelope[..HEAD - 1]), Err(Refusal::Malformed));
        assert_eq!(reply(&envelope), Err(Refusal::Malformed));
        let back = answered(&envelope, &[REPLY, 0xa, 0xb, 0xc]);
        assert_eq!(forward(&back, CLIENT, OWN, "eth1"), Err(Refusal::Malformed));
        for cut in 0..back.len() {
            assert_eq!(reply(&back[..cut]), Err(Refusal::Malformed), "{cut}");
        }
        let twice = [&back[..], &[0, 18, 0, 0]].concat();
        assert_eq!(reply(&twice), Err(Refusal::Malformed));
        assert_eq!(reply(&answered(&envelope, &envelope)), Err(Refusal::Malformed));
        for peer in [Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST, RELAYS_AND_SERVERS] {
            let mut nowhere = back.clone();
            nowhere[18..HEAD].copy_from_slice(&peer.octets());
            assert_eq!(reply(&nowhere), Err(Refusal::Malformed), "{peer}");
        }
    }

    proptest! {
        /// Checks messages with arbitrary contents. Every message must be either refused or contained completely in its
        /// Relay-forward message. The message that is extracted from a Relay-reply message must be a part of the
        /// Relay-reply message.
        #[test]
        fn any_octets_are_refused_or_relayed(
            mut message in proptest::collection::vec(any::<u8>(), 0..300),
            kind in 0..3_usize,
            from in any::<u128>(),
            name in "[a-z0-9.]{0,15}",
        ) {
            if let Some(first) = message.first_mut() && kind > 0 {
                *first = [RELAY_FORWARD, RELAY_REPLY][kind - 1];
            }
            let from = Ipv6Addr::from(from);
            if let Ok(envelope) = forward(&message, from, OWN, &name) {
                prop_assert!(envelope.ends_with(&message));
                prop_assert_eq!(envelope.len(), HEAD + 8 + name.len() + message.len());
                prop_assert_eq!(address(&envelope, 18), Ok(from));
                let mut back = envelope;
                back[0] = RELAY_REPLY;
                if let Ok(told) = reply(&back) {
                    prop_assert_eq!((told.message, told.interface), (&message[..], Some(name.as_bytes())));
                }
            }
            if let Ok(told) = reply(&message) {
                prop_assert!(told.message.len() + HEAD + 4 <= message.len());
            }
        }

        /// Checks that Relay-reply messages with random options in random order are parsed, or are refused because of a
        /// duplicate option.
        #[test]
        fn options_of_an_envelope_are_read_in_any_order(
            options in proptest::collection::vec(
                (prop_oneof![Just(RELAYED), Just(INTERFACE), any::<u16>()], proptest::collection::vec(any::<u8>(), 0..50)),
                0..6,
            ),
        ) {
            let mut envelope = vec![RELAY_REPLY, 0];
            envelope.extend(OWN.octets());
            envelope.extend(CLIENT.octets());
            for (code, value) in &options {
                envelope.extend(code.to_be_bytes());
                envelope.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
                envelope.extend(value);
            }
            let all = |code: u16| options.iter().filter(move |option| option.0 == code).map(|option| &option.1[..]);
            let (messages, names) = (all(RELAYED).count(), all(INTERFACE).count());
            match reply(&envelope) {
                Ok(told) => {
                    prop_assert!(messages == 1 && names <= 1);
                    prop_assert_eq!(Some(told.message), all(RELAYED).next());
                    prop_assert_eq!(told.interface, all(INTERFACE).next());
                }
                Err(refusal) => {
                    prop_assert_eq!(refusal, Refusal::Malformed);
                    let fits = all(RELAYED).next().is_some_and(|inner| inner.len() >= HEAD && inner[0] != RELAY_FORWARD);
                    prop_assert!(messages != 1 || names > 1 || !fits);
                }
            }
        }
    }
}
