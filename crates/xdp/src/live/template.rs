//! Construction of the first frame that a generator sends, and of the `struct livegen_conf` that contains it.

use super::traffic::{Order, Protocol, Traffic};
use crate::Error;

/// Number of bytes at the beginning of each frame that the generator's program writes (`LIVEGEN_HEADER`): the headers.
const HEADER: usize = 60;
const ETHERNET: usize = 14;
const TAG: usize = 4;
const IPV4: usize = 20;

/// Flag of `enum livegen_vary`: the TCP or UDP ports vary with the flow number. The following constants are the flags
/// for other fields.
const PORTS: u32 = 1;
const SOURCE_MAC: u32 = 2;
const DESTINATION_MAC: u32 = 4;
const DESTINATION: u32 = 8;
const SOURCE: u32 = 16;

/// Size of `struct livegen_conf` (the constants of the generator's program) in bytes.
pub(crate) const CONF_SIZE: usize = HEADER + 11 * 4;

pub(super) struct Template<'a> {
    traffic: &'a Traffic,
    frame: Vec<u8>,
    ip: usize,
}

impl<'a> Template<'a> {
    pub(super) fn new(traffic: &'a Traffic) -> Result<Template<'a>, Error> {
        traffic.check()?;
        let ip = ETHERNET + if traffic.vlan.is_some() { TAG } else { 0 };
        let mut template = Template { traffic, frame: vec![0; usize::from(traffic.length)], ip };
        template.ethernet();
        template.ipv4();
        template.transport();
        Ok(template)
    }

    pub(super) fn frame(&self) -> &[u8] {
        &self.frame
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.frame[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn ethernet(&mut self) {
        self.put(0, &self.traffic.destination_mac);
        self.put(6, &self.traffic.source_mac);
        if let Some(vlan) = self.traffic.vlan {
            self.put(12, &[0x81, 0x00]);
            self.put(14, &vlan.to_be_bytes());
        }
        self.put(self.ip - 2, &[0x08, 0x00]);
    }

    /// Returns the number of bytes from an offset to the end of the frame, as a 16-bit length field of a header.
    fn length_from(&self, offset: usize) -> [u8; 2] {
        let offset = u16::try_from(offset).unwrap_or(u16::MAX);
        self.traffic.length.saturating_sub(offset).to_be_bytes()
    }

    fn ipv4(&mut self) {
        let ip = self.ip;
        let protocol = match self.traffic.protocol {
            Protocol::Udp => 17,
            Protocol::Tcp => 6,
        };
        self.put(ip, &[0x45, 0]);
        self.put(ip + 2, &self.length_from(ip));
        self.put(ip + 8, &[64, protocol]);
        self.put(ip + 12, &self.traffic.source.octets());
        self.put(ip + 16, &self.traffic.destination.octets());
        let sum = self.sum(0..IPV4);
        self.put(ip + 10, &(!sum).to_be_bytes());
    }

    /// Returns the one's complement sum (RFC 1071) of the 16-bit words in the range `part`, which is counted from the
    /// beginning of the IP header.
    fn sum(&self, part: std::ops::Range<usize>) -> u16 {
        let mut sum: u32 = 0;
        for word in self.frame[self.ip..][part].chunks_exact(2) {
            sum += u32::from(u16::from_be_bytes([word[0], word[1]]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::try_from(sum).unwrap_or(u16::MAX)
    }

    fn transport(&mut self) {
        let at = self.ip + IPV4;
        self.put(at, &1024_u16.to_be_bytes());
        self.put(at + 2, &self.traffic.destination_port.to_be_bytes());
        match self.traffic.protocol {
            Protocol::Udp => self.put(at + 4, &self.length_from(at)),
            // A header of five words with the flag ACK.
            Protocol::Tcp => self.put(at + 12, &[0x50, 0x10]),
        }
    }

    /// Encodes the traffic parameters and the first frame as `struct livegen_conf` (the constants of the generator's
    /// program).
    pub(super) fn constants(&self) -> [u8; CONF_SIZE] {
        let t = self.traffic;
        let vary = [
            (t.vary.ports, PORTS),
            (t.vary.source_mac, SOURCE_MAC),
            (t.vary.destination_mac, DESTINATION_MAC),
            (t.vary.destination, DESTINATION),
            (t.vary.source, SOURCE),
        ];
        // The checksum and the addresses follow these bytes.
        let ip_sum = u32::from(self.sum(0..10));
        let words = [
            t.ifindex,
            t.flows - 1,
            vary.into_iter().filter(|(on, _)| *on).map(|(_, bit)| bit).sum(),
            u32::from(matches!(t.order, Order::Random(_))),
            u32::from(t.vlan.is_some()),
            u32::from(t.destination),
            u32::from(t.destination_shift),
            ip_sum,
            u32::from(t.destination_port),
            u32::from(t.source),
            0,
        ];
        let mut bytes = [0; CONF_SIZE];
        bytes[..HEADER].copy_from_slice(&self.frame[..HEADER]);
        for (to, word) in bytes[HEADER..].chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_is_refused_by_name() {
        let good = Traffic::to(1);
        assert!(Template::new(&good).is_ok());
        let bad = [
            Traffic { length: 59, ..good.clone() },
            Traffic { length: 1515, ..good.clone() },
            Traffic { flows: 0, ..good.clone() },
            Traffic { flows: 3, ..good.clone() },
            Traffic { vlan: Some(4095), ..good.clone() },
            Traffic { destination_shift: 32, ..good.clone() },
            Traffic { order: Order::Random(0), ..good.clone() },
            Traffic { rate: Some(0), ..good },
        ];
        for traffic in bad {
            assert!(matches!(Template::new(&traffic), Err(Error::Generator { .. })), "{traffic:?}");
        }
    }

    #[test]
    fn template_has_a_valid_ip_header() {
        for vlan in [None, Some(7)] {
            let traffic = Traffic { vlan, length: 100, ..Traffic::to(1) };
            let template = Template::new(&traffic).unwrap();
            assert_eq!(template.sum(0..IPV4), 0xffff);
            let total = usize::from(u16::from_be_bytes([
                template.frame[template.ip + 2],
                template.frame[template.ip + 3],
            ]));
            assert_eq!(template.ip + total, 100);
        }
    }
}
