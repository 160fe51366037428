//! Frames for the tests, built as bytes and parsed by the data path's parser.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use packet::record::{NoRecord, Recorder, TagChange};
use packet::{FlowKey, Layers, MacAddr, PortId};
use switch::{Bridge, Decision, Now, Scratch};

pub mod oracle;

/// A frame that enters the bridge.
#[derive(Clone, Debug)]
pub struct Frame {
    pub port: u16,
    pub src: MacAddr,
    pub dst: MacAddr,
    /// TCI of the tag, and whether it is a service tag.
    pub tag: Option<(u16, bool)>,
    pub payload: Payload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A payload with an unknown EtherType.
    Other,
    /// A UDP packet over IPv4 to this unicast or group address.
    Udp4([u8; 4]),
    /// A UDP packet over IPv6 to this unicast or group address.
    Udp6([u16; 8]),
    /// An IGMP message: destination address and message type.
    Igmp([u8; 4], u8),
    /// An ICMPv6 message: destination address and message type.
    Icmp6([u16; 8], u8),
    /// A PIM hello over IPv4 to all PIM routers.
    Pim4,
    /// A PIM hello over IPv6 to all PIM routers.
    Pim6,
}

/// Returns the unicast address of station `number`.
pub fn station(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number])
}

pub fn udp(port: u16, from: u8, to: u8) -> Frame {
    Frame { port, src: station(from), dst: station(to), tag: None, payload: Payload::Udp4([10, 0, 0, to]) }
}

pub fn broadcast(port: u16, from: u8) -> Frame {
    Frame { dst: MacAddr::BROADCAST, payload: Payload::Other, ..udp(port, from, 0) }
}

impl Frame {
    /// Builds an IP multicast frame with the addresses that RFC 1112 and RFC 2464 specify.
    pub fn multicast(port: u16, from: u8, payload: Payload) -> Frame {
        let mut frame = Frame { payload, ..udp(port, from, 0) };
        frame.dst = match frame.ip_destination() {
            Some(std::net::IpAddr::V4(group)) => MacAddr::for_ipv4_multicast(group),
            Some(std::net::IpAddr::V6(group)) => MacAddr::for_ipv6_multicast(group),
            None => MacAddr([3, 0, 0, 0, 0, 1]),
        };
        frame
    }

    pub fn tagged(self, tci: u16) -> Frame {
        Frame { tag: Some((tci, false)), ..self }
    }

    pub fn ip_destination(&self) -> Option<std::net::IpAddr> {
        match self.payload {
            Payload::Other => None,
            Payload::Udp4(to) | Payload::Igmp(to, _) => Some(to.into()),
            Payload::Udp6(to) | Payload::Icmp6(to, _) => Some(to.into()),
            Payload::Pim4 => Some([224, 0, 0, 13].into()),
            Payload::Pim6 => Some([0xff02, 0, 0, 0, 0, 0, 0, 0xd].into()),
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = [self.dst.0, self.src.0].concat();
        if let Some((tci, service)) = self.tag {
            bytes.extend(if service { [0x88, 0xa8] } else { [0x81, 0] });
            bytes.extend(tci.to_be_bytes());
        }
        match self.payload {
            Payload::Other => bytes.extend([0x88, 0xb5, 1, 2, 3, 4]),
            Payload::Udp4(to) => ipv4(&mut bytes, to, 17, &[0x10, 0, 0x20, 0, 0, 8, 0, 0]),
            Payload::Igmp(to, kind) => ipv4(&mut bytes, to, 2, &[kind, 0, 0, 0, to[0], to[1], to[2], to[3]]),
            Payload::Pim4 => ipv4(&mut bytes, [224, 0, 0, 13], 103, &[0x20, 0, 0xdf, 0xff]),
            Payload::Udp6(to) => ipv6(&mut bytes, to, 17, &[0x10, 0, 0x20, 0, 0, 8, 1, 1]),
            Payload::Icmp6(to, kind) => ipv6(&mut bytes, to, 58, &[kind, 0, 0, 0, 0, 0, 0, 0]),
            Payload::Pim6 => ipv6(&mut bytes, [0xff02, 0, 0, 0, 0, 0, 0, 0xd], 103, &[0x20, 0, 0, 0]),
        }
        bytes
    }

    pub fn key(&self) -> (FlowKey, Layers) {
        let bytes = self.bytes();
        let mut key = FlowKey::ZERO;
        let layers = FlowKey::extract(&bytes, bytes.len(), PortId(self.port), &mut key);
        (key, layers.expect("a whole Ethernet header"))
    }
}

fn ipv4(bytes: &mut Vec<u8>, to: [u8; 4], proto: u8, payload: &[u8]) {
    bytes.extend([8, 0]);
    let length = u8::try_from(20 + payload.len()).unwrap();
    let mut header =
        [0x45, 0, 0, length, 0, 0, 0x40, 0, 1, proto, 0, 0, 10, 0, 0, 1, to[0], to[1], to[2], to[3]];
    let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap();
    header[10..12].copy_from_slice(&(!folded).to_be_bytes());
    bytes.extend(header);
    bytes.extend(payload);
}

fn ipv6(bytes: &mut Vec<u8>, to: [u16; 8], next: u8, payload: &[u8]) {
    bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, u8::try_from(payload.len()).unwrap(), next, 1]);
    bytes.extend(std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).octets());
    bytes.extend(std::net::Ipv6Addr::from(to).octets());
    bytes.extend(payload);
}

/// The final outcome of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub outputs: Vec<(u16, TagChange)>,
    pub dropped: Option<packet::DropReason>,
    pub punted: bool,
}

/// A bridge under test, with the scratch memory of its worker.
pub struct Driven {
    pub bridge: Bridge,
    scratch: Scratch,
}

impl Driven {
    pub fn new(bridge: Bridge) -> Driven {
        Driven { bridge, scratch: Scratch::new() }
    }

    pub fn send(&mut self, frame: &Frame, now: Now) -> Outcome {
        self.burst(std::slice::from_ref(frame), now, &mut NoRecord).remove(0)
    }

    /// Sends a frame and returns its output ports.
    pub fn ports(&mut self, frame: &Frame, now: Now) -> Vec<u16> {
        self.send(frame, now).outputs.into_iter().map(|(port, _)| port).collect()
    }

    /// Sends a frame given as bytes.
    pub fn send_bytes(&mut self, port: u16, bytes: &[u8], now: Now) -> Outcome {
        let mut key = FlowKey::ZERO;
        let layers = FlowKey::extract(bytes, bytes.len(), PortId(port), &mut key).unwrap();
        self.keys(&[key], &[layers], now, &mut NoRecord).remove(0)
    }

    pub fn burst<R: Recorder>(&mut self, frames: &[Frame], now: Now, recorder: &mut R) -> Vec<Outcome> {
        let (keys, layers): (Vec<_>, Vec<_>) = frames.iter().map(Frame::key).unzip();
        self.keys(&keys, &layers, now, recorder)
    }

    fn keys<R: Recorder>(
        &mut self,
        keys: &[FlowKey],
        layers: &[Layers],
        now: Now,
        recorder: &mut R,
    ) -> Vec<Outcome> {
        let mut out = vec![Decision::default(); keys.len()];
        self.bridge.forward(keys, layers, now, &mut self.scratch, &mut out, recorder);
        let outcome = |(index, (key, decision)): (usize, (&FlowKey, &Decision))| {
            let mut outputs = Vec::new();
            self.bridge.flood_recorded(key.in_port(), decision, index, recorder, |port, tag| {
                outputs.push((port.0, tag));
            });
            let dropped = match *decision {
                Decision::Forward { port, tag } => {
                    outputs.push((port.0, tag));
                    None
                }
                Decision::Drop(reason) => Some(reason),
                _ => outputs.is_empty().then_some(packet::DropReason::NoMember),
            };
            Outcome { outputs, dropped, punted: decision.punts() }
        };
        keys.iter().zip(&out).enumerate().map(outcome).collect()
    }
}
