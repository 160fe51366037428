//! Announces a router's IP addresses when their Ethernet address has changed, because the device was created again or
//! got another Ethernet address. Otherwise, neighbours would send to the old Ethernet address until they resolve the IP
//! address again. The announcements are gratuitous ARP (RFC 5227, section 3) and unsolicited neighbour advertisements
//! (RFC 4861, section 7.2.6). The kernel sends such announcements only with the sysctls `arp_notify` and
//! `ndisc_notify`.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv6Addr};

use model::{Config, PortName, RouterName};
use packet::MacAddr;
use packet::arp::ArpRepr;
use packet::build::PacketBuilder;
use port::bound::FrameSender;

use super::super::device::inside;
use super::super::lock::locked;
use super::super::ports::Ports;
use super::announcer::Own;
use super::{Running, mirror_device, object};

/// Ethernet multicast address for the IPv6 all-nodes group.
const ALL_NODES: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
/// R flag of a neighbour advertisement: the sender is a router (RFC 4861, section 4.4).
const ROUTER: u8 = 0x80;
/// O flag of a neighbour advertisement: receivers must override existing neighbour entries (RFC 4861, section 4.4).
const OVERRIDE: u8 = 0x20;

impl Running {
    /// Announces the router's IP addresses whose Ethernet address has changed, by ARP and neighbour discovery.
    pub fn announce(&mut self, name: &RouterName, config: &Config, ports: &Ports) {
        let is_up = |port: &PortName| ports.get(port).is_some_and(|running| running.is_up());
        let devices =
            self.wanted.ports.keys().filter_map(|port| Some((port, mirror_device::device(config, port)?)));
        let mut up: BTreeSet<&str> = devices.filter(|(port, _)| is_up(port)).map(|it| it.1).collect();
        let mirrors = self.mirrors.iter().filter(|((port, _), _)| is_up(port));
        up.extend(mirrors.map(|(_, own)| own.device.as_str()));
        let own: Vec<Own> = {
            let state = locked(&self.state);
            let netdevs = state
                .seen
                .devices
                .iter()
                .filter(|(device, netdev)| netdev.up && up.contains(device.as_str()));
            let addresses = netdevs.flat_map(|(device, netdev)| {
                let at = state.seen.addresses.get(&netdev.index).into_iter().flatten();
                at.map(|address| Own {
                    place: (address.address, device.clone()),
                    index: netdev.index,
                    mac: netdev.mac,
                })
            });
            addresses.collect()
        };
        let due = self.announcer.look(&own);
        if due.is_empty() {
            return;
        }
        let sent = inside(&object(name), self.wanted.settings.namespace.as_ref(), || {
            let routes = std::fs::read_to_string("/proc/sys/net/ipv6/conf/all/forwarding");
            let routes = routes.is_ok_and(|text| text.trim() == "1");
            Ok(send_all(&due, routes, FrameSender::open, FrameSender::send))
        });
        let sent = sent.unwrap_or_default();
        tracing::info!(router = %name, sent, of = due.len(), "addresses have another Ethernet address, and are announced");
    }
}

/// Announces the IP addresses in `due`. Addresses of one device must be adjacent in `due`, because they are announced
/// through one socket: the kernel takes milliseconds to close a socket. Returns the number of announcements sent.
fn send_all<S>(
    due: &[Own],
    routes: bool,
    open: impl Fn(u32) -> io::Result<S>,
    send: impl Fn(&S, &[u8]) -> io::Result<()>,
) -> usize {
    let mut sent = 0;
    for device in due.chunk_by(|one, other| one.index == other.index) {
        let Some(Ok(socket)) = device.first().map(|own| open(own.index)) else { continue };
        let frames = device.iter().map(|own| frame(own.place.0, own.mac, routes));
        sent += frames.filter(|frame| send(&socket, frame).is_ok()).count();
    }
    sent
}

/// Returns the ARP or neighbour discovery frame that announces an IP address. `routes` states whether this host is a
/// router.
fn frame(address: IpAddr, mac: MacAddr, routes: bool) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => {
            let announcement = ArpRepr::request(mac, address, address);
            PacketBuilder::eth(mac, MacAddr::BROADCAST).arp(announcement).pad_to(60).build()
        }
        IpAddr::V6(address) => {
            let flags = OVERRIDE | if routes { ROUTER } else { 0 };
            let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            PacketBuilder::eth(mac, ALL_NODES)
                .ipv6(address, all)
                .neighbour_advert(flags, address, mac)
                .build()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use packet::{FlowKey, PortId};

    use super::super::announcer::{AT_ONCE, Announcer, Place, TIMES};
    use super::*;

    #[test]
    fn many_announcements_are_spread_over_looks_and_share_sockets() {
        let own = |number: u32, mac: u8| Own {
            place: (std::net::Ipv4Addr::from(0x0a00_0000 + number).into(), format!("h{}", number % 2)),
            index: number % 2,
            mac: MacAddr([2, 0, 0, 0, 0, mac]),
        };
        let (before, now): (Vec<Own>, Vec<Own>) =
            (0..1000).map(|number| (own(number, 1), own(number, 2))).unzip();
        let mut announcer = Announcer::default();
        assert_eq!(announcer.look(&before), []);
        let mut times: BTreeMap<Place, usize> = BTreeMap::new();
        let mut looks = 0;
        loop {
            let due = announcer.look(&now);
            if due.is_empty() {
                break;
            }
            looks += 1;
            assert!(due.len() <= AT_ONCE);
            let opened = std::cell::Cell::new(0);
            let open = |_| {
                opened.set(opened.get() + 1);
                Ok(())
            };
            assert_eq!(send_all(&due, false, open, |(), _| Ok(())), due.len());
            assert!(opened.get() <= 2, "{} sockets", opened.get());
            due.into_iter().for_each(|own| *times.entry(own.place).or_default() += 1);
            // Each address is announced once before any address is announced a second time.
            assert!(times.len() == 1000 || times.values().all(|times| *times == 1), "{looks}");
        }
        assert!(times.values().all(|times| *times == usize::from(TIMES)));
        assert_eq!((times.len(), looks), (1000, (1000 * usize::from(TIMES)).div_ceil(AT_ONCE)));
    }

    #[test]
    fn announcements_are_whole() {
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        for address in ["10.8.1.1", "fd00:8:1::1"] {
            let frame = frame(address.parse().unwrap(), mac, true);
            let mut key = FlowKey::default();
            FlowKey::extract(&frame, frame.len(), PortId(0), &mut key).unwrap();
            assert!(key.eth_dst().is_multicast() && key.eth_src() == mac, "{frame:02x?}");
        }
    }
}
