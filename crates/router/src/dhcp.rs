//! Message processing of the DHCP relay (RFC 2131 and RFC 1542, section 4): forwarding of requests to
//! servers, forwarding of replies to clients, and the frames of these replies.
//!
//! All functions are pure. The caller owns the sockets. A relay keeps no state between two messages: the field `giaddr`
//! of a reply identifies the interface to the client.

use std::net::Ipv4Addr;

use packet::{MacAddr, checksum, udp};

/// UDP port on which DHCP servers and relays receive messages.
pub const SERVER_PORT: u16 = 67;
/// UDP port on which DHCP clients receive messages.
pub const CLIENT_PORT: u16 = 68;
/// Maximum length of a DHCP or DHCPv6 message that is relayed, in octets of UDP payload. With Ethernet's default MTU of
/// 1,500 octets, a message has at most 1,472 octets.
pub const MOST: usize = 9_000;

/// Length, in octets, of the fixed part of a DHCP message, including the four-octet magic cookie (RFC 2131,
/// section 2).
const LEAST: usize = 240;
/// Maximum number of relays that a message may have passed (RFC 1542, section 4.1.1).
const HOPS: u8 = 16;

const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const ETHERNET: [u8; 2] = [1, 6];

const HOPS_AT: usize = 3;
const FLAGS_AT: usize = 10;
const CIADDR_AT: usize = 12;
const YIADDR_AT: usize = 16;
const GIADDR_AT: usize = 24;
const CHADDR_AT: usize = 28;

/// Total length, in octets, of the Ethernet, IPv4 and UDP headers before a message in a frame.
const HEADERS: usize = 14 + 20 + 8;

/// The reason why a DHCP or DHCPv6 message is not relayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The message is truncated, too long, or neither a request nor a reply.
    #[error("it is no DHCP message")]
    Malformed,
    /// The hardware type is not Ethernet, or the client has no valid Ethernet address.
    #[error("its client has no Ethernet address")]
    Hardware,
    /// The message has passed 16 relays, or has passed this relay before.
    #[error("it has passed too many relays, or this one")]
    Looping,
}

/// The direction in which a relay forwards a DHCP message, with the relay address (`giaddr`) of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From a client to servers. The value is the address of the first relay (`giaddr`), which is unspecified if the
    /// message has not passed a relay.
    Up(Ipv4Addr),
    /// From a server to a client. The value is the address (`giaddr`) of the relay's interface to the client.
    Down(Ipv4Addr),
}

/// Returns the direction of a message that arrived at a relay.
///
/// # Errors
/// Returns [`Refusal`] if the message is not relayed.
pub fn direction(message: &[u8]) -> Result<Direction, Refusal> {
    if message.len() > MOST {
        return Err(Refusal::Malformed);
    }
    let (Some([op, hardware @ .., _]), Some(giaddr)) =
        (message.first_chunk::<4>(), address(message, GIADDR_AT))
    else {
        return Err(Refusal::Malformed);
    };
    if message.len() < LEAST || !matches!(*op, REQUEST | REPLY) {
        return Err(Refusal::Malformed);
    }
    let client = mac(message).ok_or(Refusal::Malformed)?;
    if *hardware != ETHERNET || client.is_zero() || client.is_multicast() {
        return Err(Refusal::Hardware);
    }
    Ok(if *op == REQUEST { Direction::Up(giaddr) } else { Direction::Down(giaddr) })
}

/// Changes a client's message into the message that is sent to servers. The hop count is incremented, and `giaddr` is
/// set to `own`, the address of the interface to the client, unless an earlier relay has set it.
///
/// # Errors
/// Returns [`Refusal::Looping`] after 16 hops, or if `giaddr` is already `own`. Returns
/// [`Refusal::Malformed`] if the message is not a [`Direction::Up`] message.
pub fn forward(message: &mut [u8], own: Ipv4Addr) -> Result<(), Refusal> {
    let Direction::Up(giaddr) = direction(message)? else { return Err(Refusal::Malformed) };
    let hops = message.get_mut(HOPS_AT).ok_or(Refusal::Malformed)?;
    if *hops >= HOPS || giaddr == own {
        return Err(Refusal::Looping);
    }
    *hops += 1;
    if giaddr.is_unspecified()
        && let Some(place) = message.get_mut(GIADDR_AT..GIADDR_AT + 4)
    {
        place.copy_from_slice(&own.octets());
    }
    Ok(())
}

/// Builds the Ethernet frame that carries a server's message to its client. `from` is the MAC address of the interface
/// that sends the frame. The frame is broadcast if the client requests broadcasts (broadcast flag) or gets no address
/// (RFC 2131, section 4.1). Otherwise, the frame is sent to the client's MAC address.
///
/// # Errors
/// Returns [`Refusal::Malformed`] if the message is not a [`Direction::Down`] message.
pub fn reply_frame(message: &[u8], from: MacAddr) -> Result<Vec<u8>, Refusal> {
    let Direction::Down(own) = direction(message)? else { return Err(Refusal::Malformed) };
    let (Some(client), Some(flags), Some(yiaddr), Some(ciaddr)) =
        (mac(message), message.get(FLAGS_AT), address(message, YIADDR_AT), address(message, CIADDR_AT))
    else {
        return Err(Refusal::Malformed);
    };
    let is_host =
        |address: &Ipv4Addr| !address.is_unspecified() && !address.is_broadcast() && !address.is_multicast();
    let known = [yiaddr, ciaddr].into_iter().find(is_host).filter(|_| flags & 0x80 == 0);
    let (to, at) = known.map_or((Ipv4Addr::BROADCAST, MacAddr::BROADCAST), |address| (address, client));
    let too_long = |_| Refusal::Malformed;
    let datagram = u16::try_from(message.len() + 8).map_err(too_long)?;
    let packet = u16::try_from(message.len() + 28).map_err(too_long)?;

    let mut frame = Vec::with_capacity(HEADERS + message.len());
    frame.extend_from_slice(&at.0);
    frame.extend_from_slice(&from.0);
    frame.extend_from_slice(&[0x08, 0x00]);
    let mut header = [0_u8; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&packet.to_be_bytes());
    header[8] = 64;
    header[9] = 17;
    header[12..16].copy_from_slice(&own.octets());
    header[16..].copy_from_slice(&to.octets());
    let sum = checksum::ipv4_header(&header);
    checksum::store(&mut header, 10, sum);
    frame.extend_from_slice(&header);
    let start = frame.len();
    for field in [SERVER_PORT, CLIENT_PORT, datagram, 0] {
        frame.extend_from_slice(&field.to_be_bytes());
    }
    frame.extend_from_slice(message);
    if let Some(whole) = frame.get_mut(start..) {
        udp::fill_checksum(whole, checksum::l4_pseudo_v4(own, to, 17, datagram));
    }
    Ok(frame)
}

fn address(message: &[u8], at: usize) -> Option<Ipv4Addr> {
    let octets: &[u8; 4] = message.get(at..)?.first_chunk()?;
    Some(Ipv4Addr::from(*octets))
}

/// Returns the client's MAC address (`chaddr`) in a DHCP message. Returns `None` if the message is too short.
pub fn client(message: &[u8]) -> Option<MacAddr> {
    mac(message)
}

/// Returns the client's MAC address (`chaddr`). Returns `None` if the message is too short.
fn mac(message: &[u8]) -> Option<MacAddr> {
    message.get(CHADDR_AT..)?.first_chunk().copied().map(MacAddr)
}

#[cfg(test)]
mod tests {
    use packet::eth::Eth;
    use packet::ipv4::Ipv4;
    use packet::udp::Udp;
    use proptest::prelude::*;

    use super::*;

    const OWN: Ipv4Addr = Ipv4Addr::new(10, 8, 1, 1);
    const CLIENT: [u8; 6] = [2, 0, 0, 0, 1, 7];
    const FROM: MacAddr = MacAddr([2, 0, 0, 0, 9, 1]);

    fn message(op: u8) -> Vec<u8> {
        let mut message = vec![0; 300];
        message[..3].copy_from_slice(&[op, 1, 6]);
        message[CHADDR_AT..CHADDR_AT + 6].copy_from_slice(&CLIENT);
        message[236..240].copy_from_slice(&[99, 130, 83, 99]);
        message
    }

    #[test]
    fn a_request_gets_a_hop_and_the_interfaces_address() {
        let (before, mut after) = (message(REQUEST), message(REQUEST));
        assert_eq!(forward(&mut after, OWN), Ok(()));
        let mut expected = before;
        expected[HOPS_AT] = 1;
        expected[GIADDR_AT..GIADDR_AT + 4].copy_from_slice(&[10, 8, 1, 1]);
        assert_eq!(after, expected);
        // The address of another relay is kept. `giaddr` equal to the own address means a loop.
        let other = Ipv4Addr::new(10, 8, 2, 1);
        assert_eq!(forward(&mut after, other), Ok(()));
        assert_eq!((after[HOPS_AT], address(&after, GIADDR_AT)), (2, Some(OWN)));
        assert_eq!(forward(&mut after, OWN), Err(Refusal::Looping));
    }

    #[test]
    fn after_sixteen_hops_it_ends() {
        let mut one = message(REQUEST);
        for hops in 1..=16 {
            assert_eq!(forward(&mut one, Ipv4Addr::new(10, 0, 0, hops)), Ok(()));
        }
        let before = one.clone();
        assert_eq!(forward(&mut one, Ipv4Addr::new(10, 0, 0, 17)), Err(Refusal::Looping));
        assert_eq!(one, before);
    }

    #[test]
    fn what_is_no_message_for_a_relay_is_refused() {
        assert_eq!(direction(&[]), Err(Refusal::Malformed));
        assert_eq!(direction(&message(REQUEST)[..LEAST - 1]), Err(Refusal::Malformed));
        assert_eq!(direction(&message(REQUEST)[..LEAST]), Ok(Direction::Up(Ipv4Addr::UNSPECIFIED)));
        assert_eq!(direction(&message(3)), Err(Refusal::Malformed));
        let mut long = message(REQUEST);
        long.resize(MOST + 1, 0);
        assert_eq!(direction(&long), Err(Refusal::Malformed));
        for (at, octet) in [(1, 6), (2, 16), (CHADDR_AT, 1)] {
            let mut one = message(REPLY);
            one[at] = octet;
            assert_eq!(direction(&one), Err(Refusal::Hardware), "{at}");
        }
        assert_eq!(forward(&mut message(REPLY), OWN), Err(Refusal::Malformed));
        assert_eq!(reply_frame(&message(REQUEST), FROM), Err(Refusal::Malformed));
    }

    #[test]
    fn a_reply_goes_to_its_client_or_to_all() {
        let mut one = message(REPLY);
        one[GIADDR_AT..GIADDR_AT + 4].copy_from_slice(&OWN.octets());
        let broadcast = (MacAddr::BROADCAST, Ipv4Addr::BROADCAST);
        let given = Ipv4Addr::new(10, 8, 1, 20);
        let held = Ipv4Addr::new(10, 8, 1, 30);
        let to = |message: &[u8]| {
            let frame = reply_frame(message, FROM).unwrap();
            let eth = Eth::parse(&frame).unwrap();
            let ip = Ipv4::parse(eth.payload()).unwrap();
            assert!(ip.checksum_ok());
            let udp = Udp::parse(ip.payload()).unwrap();
            assert!(udp.checksum_ok(checksum::l4_pseudo_v4(ip.src(), ip.dst(), 17, udp.len_field())));
            assert_eq!((eth.src(), ip.src(), udp.src_port(), udp.dst_port()), (FROM, OWN, 67, 68));
            assert_eq!(udp.payload(), message);
            (eth.dst(), ip.dst())
        };
        assert_eq!(to(&one), broadcast, "nothing is given");
        one[CIADDR_AT..CIADDR_AT + 4].copy_from_slice(&held.octets());
        assert_eq!(to(&one), (MacAddr(CLIENT), held));
        one[YIADDR_AT..YIADDR_AT + 4].copy_from_slice(&given.octets());
        assert_eq!(to(&one), (MacAddr(CLIENT), given));
        one[FLAGS_AT] = 0x80;
        assert_eq!(to(&one), broadcast, "it asks for that");
    }

    proptest! {
        /// Checks messages with arbitrary contents. A relayed request must differ from the received one only in the hop
        /// count and `giaddr`, and the frame of a reply must carry the message unchanged.
        #[test]
        fn any_octets_are_refused_or_relayed(
            mut message in proptest::collection::vec(any::<u8>(), 0..600),
            shaped in any::<bool>(),
            own in any::<u32>(),
        ) {
            if shaped && let Some(head) = message.first_chunk_mut::<4>() {
                *head = [1 + head[0] % 2, 1, 6, head[3] % 20];
            }
            let (before, own) = (message.clone(), Ipv4Addr::from(own));
            if forward(&mut message, own).is_ok() {
                prop_assert!(matches!(direction(&before), Ok(Direction::Up(_))));
                prop_assert_eq!(message[HOPS_AT], before[HOPS_AT] + 1);
                message[HOPS_AT] -= 1;
                if address(&before, GIADDR_AT) == Some(Ipv4Addr::UNSPECIFIED) {
                    message[GIADDR_AT..GIADDR_AT + 4].fill(0);
                }
            }
            prop_assert_eq!(&message, &before);
            if let Ok(frame) = reply_frame(&message, FROM) {
                prop_assert_eq!(&frame[HEADERS..], &message[..]);
            }
        }
    }
}
