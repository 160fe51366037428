//! Diagnostics of a port's device, in the device's namespace: driver, link, offloads, the peer of a veth device, and
//! frames that would leak between kernel and bridge.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use model::{Finding, Namespace, PortKind, PortName};
use port::link::{self, Feature, LinkInfo};

use super::{Chart, there};
use crate::af_xdp;
use crate::device::{Device, inside, object, place, xdp_features, xdp_features_of};
use crate::ports::Running;
use crate::routing;

/// State of the network namespaces of ports' devices, by the path of the namespace's file. The state of a namespace is
/// read once, for the first port in the namespace, and reused for the other ports in it.
#[derive(Default)]
pub struct Places(BTreeMap<PathBuf, Place>);

/// Adds all findings about a port's device. `answers` is true if the port's hook (XDP program) itself answers TCP SYN
/// packets with SYN cookies.
pub fn port(
    chart: &mut Chart,
    places: &mut Places,
    name: &PortName,
    running: &Running,
    memory: &port::FrameMemory,
    answers: bool,
) {
    let object = object(name);
    if running.hooks_lost > 0 {
        let times = match running.hooks_lost {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        };
        let put_back = if running.hook.is_some() { ", and put back" } else { "" };
        let finding =
            format!("its XDP program was taken off the device by another program {times}{put_back}");
        let fix = "find the program that takes it off: `bpftool link detach`, `ip link set DEV xdp off`, another manager of the device";
        chart.note(&object, Finding::Warning, finding, fix);
    }
    if running.guard.as_ref().is_some_and(|guard| guard.ifindex().is_some()) {
        let finding = "the kernel receives no frames from its device: a guard drops them until the port is open with its filter";
        let fix = "end what keeps the port from being opened, or remove the port or its filter";
        chart.note(&object, Finding::Error, finding.to_owned(), fix);
    }
    if running.hook.as_ref().is_some_and(af_xdp::is_locked) {
        let finding = "its hook drops all frames, because the kernel refused its program or its filter at the end of a change of its function";
        let fix = "none: it is tried again each second; the log names the cause";
        chart.note(&object, Finding::Error, finding.to_owned(), fix);
    }
    if let Some(trouble) = &running.trouble {
        let fix = match &running.wanted.port.kind {
            PortKind::Patch(_) => "make the peer, or remove the port",
            _ => "make the device again, or remove the port",
        };
        chart.note(&object, Finding::Error, trouble.clone(), fix);
        return;
    }
    let Some(device) = &running.device else { return };
    let (ifname, namespace) = (device.name.clone(), device.namespace.clone());
    let place = places.0.entry(place(namespace.as_ref())).or_default();
    let looked = inside(&object, namespace.as_ref(), || {
        let failed = |error: link::LinkError| control::PlaneError::failed(&object, &error, "");
        let info = link::find(&ifname).map_err(failed)?;
        let features = link::features(&ifname).unwrap_or_default();
        // Kernels before 6.3 do not report features.
        let xdp = xdp_features_of(info.ifindex);
        let routed = routing::is_wanted(&running.wanted).then(|| Routed::look(&info, place));
        let configured = running.wanted.port.kind.device().map(|(device, _)| device.to_string());
        // The configured name may be an alternative name of the device.
        let is_named = |name: &String| link::find(name).is_ok_and(|found| found.ifindex == info.ifindex);
        let missed = configured.filter(|name| !is_named(name));
        let addresses = place.addresses().of(info.ifindex).to_vec();
        Ok(Seen { info, features, xdp, addresses, routed, missed })
    });
    let seen = match looked {
        Ok(seen) => seen,
        Err(error) => return chart.note(&object, Finding::Error, error.cause, error.fix),
    };
    let mut file = File { chart, object: &object, running, device };
    if let Some(configured) = &seen.missed {
        file.renamed(configured);
    }
    file.driver(&seen);
    file.user_program();
    file.link_state(&seen.info, memory);
    file.offloads(&seen);
    file.peer(&seen.info);
    file.shortcut(&seen);
    if answers {
        file.answers(&seen);
    }
    file.leaks(&seen.info, &seen.addresses);
    if let Some(routed) = &seen.routed {
        file.routing(routed);
    }
}

/// State of a port's device, read in the device's namespace. If the port's hook forwards packets according to the
/// kernel's routes, the routing settings of the namespace are included.
struct Seen {
    info: LinkInfo,
    features: Vec<Feature>,
    xdp: xdp::Features,
    addresses: Vec<String>,
    routed: Option<Routed>,
    /// Configured name of the device, if the device has been renamed. `None` if the device still has its configured
    /// name.
    missed: Option<String>,
}

/// Kernel settings of the namespace that matter when a hook forwards packets according to the kernel's routes.
struct Routed {
    /// Netfilter chains that do not see the packets that the hook forwards.
    bypassed: Vec<String>,
    /// Address families for which forwarding from this device is disabled in the kernel, each with the
    /// command that enables it.
    off: Vec<(&'static str, String)>,
    /// Names of devices that have an IP address and to which frames cannot be redirected. The flag is true for a veth
    /// device.
    unreached: Vec<(String, bool)>,
}

impl Routed {
    fn look(own: &LinkInfo, place: &mut Place) -> Routed {
        let families = [
            ("IPv4", format!("net/ipv4/conf/{}/forwarding", own.name), "net.ipv4.ip_forward=1"),
            ("IPv6", format!("net/ipv6/conf/{}/forwarding", own.name), "net.ipv6.conf.all.forwarding=1"),
        ];
        let off = families
            .into_iter()
            .filter(|(_, path, _)| super::sysctl(path).as_deref() == Some("0"))
            .map(|(family, _, command)| (family, format!("sysctl -w {command}")));
        let unreached = place.unreached().iter().filter(|device| device.ifindex != own.ifindex);
        let unreached = unreached.map(|device| (device.name.clone(), device.is_veth));
        Routed { bypassed: routing::bypassed(), off: off.collect(), unreached: unreached.collect() }
    }
}

/// The examined device of a port, and the list to which each examination adds its findings.
struct File<'a> {
    chart: &'a mut Chart,
    object: &'a str,
    running: &'a Running,
    device: &'a Device,
}

impl File<'_> {
    /// Adds a finding with a command that fixes the problem. The operator runs the command in the
    /// device's namespace.
    fn note(&mut self, severity: Finding, finding: impl Into<String>, command: &str) {
        let fix = there(self.device.namespace.as_ref(), command);
        self.chart.note(self.object, severity, finding, fix);
    }

    /// Adds a finding with a remedy that is a text and not a command.
    fn tell(&mut self, severity: Finding, finding: impl Into<String>, fix: impl Into<String>) {
        self.chart.note(self.object, severity, finding, fix);
    }

    /// Reports that the device no longer has its configured name.
    fn renamed(&mut self, configured: &str) {
        let now = &self.device.name;
        let what = format!(
            "the configuration names {configured}, and the device is called {now}: the port goes on, but waits for {configured} after a restart"
        );
        let command = format!("ip link set dev {now} name {configured}");
        let command = there(self.device.namespace.as_ref(), &command);
        self.tell(Finding::Warning, what, format!("{command}, or device = \"{now}\" at the port"));
    }

    /// Reports which XDP and AF_XDP capabilities the device's driver has and whether the port uses them.
    fn driver(&mut self, seen: &Seen) {
        let Some(hook) = &self.running.hook else { return };
        let name = self.device.driver.clone().or_else(|| seen.info.kind.clone());
        let name = name.unwrap_or_else(|| "unknown".to_owned());
        let can = seen.xdp;
        let zero_copy = self.running.statuses.iter().all(|status| status.zero_copy);
        if hook.mode() == xdp::Mode::Generic {
            let (why, fix) = if can.basic {
                (
                    "although it has native XDP",
                    "mode = \"auto\" at the port; its reasons are in `trivium show ports PORT`",
                )
            } else {
                ("which has no native XDP", "use a device whose driver has it")
            };
            let bridged = self.running.wanted.bridged;
            let past = if bridged { ", and what its stations send and get passes a worker" } else { "" };
            let what = format!(
                "driver {name}, {why}: generic XDP, the kernel makes an skb of each packet before the hook sees it{past}"
            );
            self.tell(Finding::Warning, what, fix);
        } else {
            let copies = if zero_copy { "zero copy" } else { "the driver copies (no zero copy)" };
            self.tell(Finding::Ok, format!("driver {name}: {} XDP, {copies}", hook.mode()), "");
        }
        if can.zero_copy && !zero_copy {
            let what = format!("driver {name} offers zero copy, and its queues run with copies");
            self.tell(
                Finding::Advice,
                what,
                "zero_copy = \"auto\"; its reasons are in `trivium show ports PORT`",
            );
        }
        if !hook.multi_buffer() {
            let what = "the driver takes no multi-buffer program: frames larger than a page are refused";
            self.tell(Finding::Advice, what, "keep the MTU below 3500, or use another driver");
        }
    }

    /// Reports the custom program that receives the port's frames before the daemon's own program.
    fn user_program(&mut self) {
        let Some(user) = self.running.hook.as_ref().and_then(xdp::Attached::user) else { return };
        let port = self.object.strip_prefix("port.").unwrap_or(self.object);
        let fix = format!("`trivium xdp unload --port {port}` takes it away");
        let (severity, what) = if user.goes_on() {
            (Finding::Advice, "meets its frames first: what it decides is not counted and never gets further")
        } else {
            (Finding::Warning, "meets its frames first and never goes on: the port receives nothing")
        };
        let finding = format!("the user's program {} {what}", user.name());
        self.tell(severity, finding, fix);
    }

    fn link_state(&mut self, info: &LinkInfo, memory: &port::FrameMemory) {
        let ifname = &info.name;
        if !info.up {
            self.note(Finding::Error, format!("{ifname} is down"), &format!("ip link set dev {ifname} up"));
        } else if !self.device.running {
            let what = format!("{ifname} has no carrier");
            self.tell(Finding::Warning, what, "set the other end up, or check the cable");
        }
        let served = u32::try_from(self.running.queues.len()).unwrap_or(u32::MAX);
        let rings = inside(self.object, self.device.namespace.as_ref(), || {
            Ok(link::channels(ifname).map_or(info.rx_queues, |channels| channels.rx()))
        });
        let rings = rings.unwrap_or(info.rx_queues);
        if self.running.hook.is_some() && served < rings {
            let what = format!(
                "{served} of {rings} receive queues are served: what the device puts into the others is lost"
            );
            let command =
                there(self.device.namespace.as_ref(), &format!("ethtool -L {ifname} combined {served}"));
            self.tell(Finding::Warning, what, format!("queues = \"all\", or `{command}`"));
        }
        let chains = self.running.hook.as_ref().is_none_or(xdp::Attached::multi_buffer);
        if info.mtu + 18 > memory.data_room() && !chains {
            let size = memory.frame_size();
            let what = format!("an MTU of {} does not fit into a frame of {size} bytes", info.mtu);
            self.tell(Finding::Error, what, "memory.frame_size = 4096, or a smaller MTU");
        }
    }

    fn offloads(&mut self, seen: &Seen) {
        let (ifname, hooked) = (&seen.info.name, self.running.hook.is_some());
        let on = |name: &str| seen.features.iter().any(|feature| feature.name == name && feature.active);
        if hooked && on("rx-vlan-hw-parse") {
            let what = format!(
                "{ifname} takes VLAN tags out of received frames: tagged traffic looks untagged here"
            );
            self.note(Finding::Warning, what, &format!("ethtool -K {ifname} rxvlan off"));
        }
        if hooked && on("rx-lro") {
            let what = format!("{ifname} joins packets (LRO): frames arrive larger than the MTU");
            self.note(Finding::Warning, what, &format!("ethtool -K {ifname} lro off"));
        }
    }

    /// Reports that frames cannot be redirected to the device, so that the hooks of the bridge's other ports cannot
    /// send to it.
    fn shortcut(&mut self, seen: &Seen) {
        if seen.xdp.transmit || !self.running.hook.as_ref().is_some_and(xdp::Attached::has_bridge) {
            return;
        }
        let info = &seen.info;
        let what = format!(
            "{} takes no redirected frames: what is for its stations passes a worker, not the driver hook alone",
            info.name
        );
        if info.kind.as_deref() != Some("veth") {
            let fix = "use a device whose driver has `ndo-xmit` (see `trivium xdp status`), or leave it so";
            return self.tell(Finding::Advice, what, fix);
        }
        let fix = self.gro(info);
        self.tell(Finding::Advice, what, fix);
    }

    /// Returns the command that makes the kernel accept frames for a veth device that are redirected to it
    /// (XDP_REDIRECT). The veth driver starts to accept such frames when the peer's GRO setting changes while the peer
    /// is up, or when the device itself is set up. The driver does not start to accept such frames when a peer with GRO
    /// is set up later.
    fn gro(&self, info: &LinkInfo) -> String {
        let Some(peer) = find_peer(self.object, self.running, self.device, info) else {
            return "at the peer: `ethtool -K PEER gro on`; if it is on, off first".to_owned();
        };
        let command = |state: &str| {
            let command = format!("ethtool -K {} gro {state}", peer.info.name);
            format!("`{}`", there(peer.namespace.as_ref(), &command))
        };
        if peer.gro { format!("{}, then {}", command("off"), command("on")) } else { command("on") }
    }

    /// Reports that the device cannot transmit the hook's answers (SYN cookies) to TCP SYN packets.
    fn answers(&mut self, seen: &Seen) {
        let info = &seen.info;
        let native = self.running.hook.as_ref().is_some_and(|hook| hook.mode() == xdp::Mode::Native);
        if seen.xdp.transmit || !native {
            return;
        }
        if info.kind.as_deref() != Some("veth") {
            let what =
                format!("{} takes no frames from the driver hook: answers to SYNs are lost", info.name);
            return self.tell(
                Finding::Warning,
                what,
                "use a device whose driver has `ndo-xmit`, or mode = \"generic\"",
            );
        }
        let what =
            format!("{}'s peer takes no frames from the driver hook: answers to SYNs are lost", info.name);
        let fix = self.gro(info);
        self.tell(Finding::Warning, what, fix);
    }

    /// Reports problems of the peer of a veth device: its checksum offload, its MTU, and an XDP program that receives
    /// the port's frames there.
    fn peer(&mut self, info: &LinkInfo) {
        if info.kind.as_deref() != Some("veth") {
            return;
        }
        let foreign = matches!(self.running.wanted.port.kind, PortKind::AfXdp(_));
        let peer = find_peer(self.object, self.running, self.device, info);
        if foreign {
            let ifname = &info.name;
            let completes = if self.running.complete_checksums {
                "they are completed here, at a cost"
            } else {
                "they break"
            };
            let what =
                format!("{ifname} is one end of a veth pair: its peer may leave checksums open; {completes}");
            let command = |name: &str| format!("ethtool -K {name} tx off tso off");
            let command = peer.as_ref().map_or_else(
                || format!("at the peer: `{}`", command("PEER")),
                |peer| format!("`{}`", there(peer.namespace.as_ref(), &command(&peer.info.name))),
            );
            self.tell(Finding::Advice, what, format!("{command}, or let the port be of kind veth"));
        }
        let Some(peer) = peer else { return };
        let name = match &peer.namespace {
            Some(namespace) => format!("{}@{namespace}", peer.info.name),
            None => peer.info.name.clone(),
        };
        if let Some(program) = &peer.program {
            let what = format!(
                "its peer {name} runs an XDP program ({}, {}): it meets our frames first, and what it drops is counted nowhere here",
                program.name, program.mode
            );
            let command =
                there(peer.namespace.as_ref(), &format!("ip link set dev {} xdp off", peer.info.name));
            let fix = match program.link {
                Some(link) => format!(
                    "if that is not meant, end whoever holds BPF link {link}, or `bpftool link detach id {link}`"
                ),
                None => format!("if that is not meant, `{command}`"),
            };
            self.tell(Finding::Advice, what, fix);
        } else {
            self.tell(Finding::Ok, format!("its peer {name} runs no XDP program"), "");
        }
        if peer.info.mtu != info.mtu {
            let what = format!(
                "its peer {name} has an MTU of {}, not {}: the longer frames are dropped between them",
                peer.info.mtu, info.mtu
            );
            let command = format!("ip link set dev {} mtu {}", peer.info.name, info.mtu);
            self.tell(Finding::Warning, what, there(peer.namespace.as_ref(), &command));
        }
    }

    /// Reports settings that prevent the hook from using the kernel's routes. Also reports netfilter rules
    /// that do not apply to packets forwarded in the hook.
    fn routing(&mut self, seen: &Routed) {
        if !seen.bypassed.is_empty() {
            let what = format!(
                "netfilter has rules for forwarded packets ({}), and does not see what the hook forwards",
                seen.bypassed.join("; ")
            );
            self.tell(Finding::Warning, what, "filter = \"NAME\" at the port, or leave `routing` out");
        }
        for (family, command) in &seen.off {
            self.note(
                Finding::Warning,
                format!("{family} forwarding is off: no {family} packet is routed"),
                command,
            );
        }
        for (device, veth) in &seen.unreached {
            let what = format!(
                "{device} takes no redirected frames: what leaves by it is sent by the kernel's stack"
            );
            if *veth {
                let fix = "at its peer: `ethtool -K PEER gro on`, or an XDP program";
                self.tell(Finding::Advice, what, fix);
            } else {
                self.tell(Finding::Advice, what, "use a device whose driver transmits redirected frames");
            }
        }
    }

    /// Reports that the device of a bridge port has IP addresses or that the kernel answers ARP on it. Received frames
    /// go to the bridge and never reach the kernel, and frames that the kernel sends bypass the bridge.
    fn leaks(&mut self, info: &LinkInfo, addresses: &[String]) {
        if !self.running.wanted.bridged || self.running.hook.is_none() {
            return;
        }
        let ifname = &info.name;
        if !addresses.is_empty() {
            let what = format!(
                "the kernel has {} on {ifname}, whose traffic never reaches it",
                addresses.join(", ")
            );
            let command = format!("ip address flush dev {ifname}");
            let command = there(self.device.namespace.as_ref(), &command);
            self.tell(
                Finding::Warning,
                what,
                format!("{command}; the host joins a bridge by a port of kind internal"),
            );
        }
        if info.arp {
            let what = format!("the kernel's ARP is on at {ifname}: its frames leave beside the bridge");
            self.note(Finding::Warning, what, &format!("ip link set dev {ifname} arp off"));
        }
    }
}

/// The peer of a port's veth device (the other end of the veth pair).
struct Peer {
    namespace: Option<Namespace>,
    info: LinkInfo,
    program: Option<xdp::ProgramOnDevice>,
    gro: bool,
}

/// Finds the other end (the peer) of a port's veth pair: in the namespace in which the configuration placed the peer,
/// or otherwise in the device's own namespace. Each namespace numbers its interfaces separately. A device with the
/// peer's index in another namespace is therefore not necessarily the peer.
fn find_peer(object: &str, running: &Running, device: &Device, info: &LinkInfo) -> Option<Peer> {
    let index = info.peer?;
    let namespace = match &running.wanted.port.kind {
        PortKind::Veth(veth) => veth.peer.namespace.clone(),
        _ if info.peer_elsewhere => return None,
        _ => device.namespace.clone(),
    };
    let found = inside(object, namespace.as_ref(), || {
        let peer = link::by_index(index).ok();
        let peer =
            peer.filter(|peer| peer.kind.as_deref() == Some("veth") && peer.peer == Some(info.ifindex));
        let program = peer.as_ref().and_then(|peer| xdp::inspect(peer.ifindex).ok().flatten());
        let features = peer.as_ref().and_then(|peer| link::features(&peer.name).ok()).unwrap_or_default();
        let gro = features.iter().any(|feature| feature.name == "rx-gro" && feature.active);
        Ok(peer.map(|info| (info, program, gro)))
    });
    let (info, program, gro) = found.ok().flatten()?;
    Some(Peer { namespace, info, program, gro })
}

/// State of all devices in one namespace. Each part is read when it is first needed.
#[derive(Default)]
struct Place {
    addresses: Option<Addresses>,
    unreached: Option<Vec<Unreached>>,
}

/// A device that has an IP address and to which frames cannot be redirected (XDP_REDIRECT).
#[derive(Debug, PartialEq, Eq)]
struct Unreached {
    ifindex: u32,
    name: String,
    is_veth: bool,
}

impl Place {
    /// Returns the IP addresses of the devices in the calling thread's namespace.
    fn addresses(&mut self) -> &Addresses {
        self.addresses.get_or_insert_with(Addresses::look)
    }

    /// Returns the devices in the calling thread's namespace that have an IP address and to which frames cannot be
    /// redirected. The kernel is queried once for all devices.
    fn unreached(&mut self) -> &[Unreached] {
        let addresses = self.addresses.get_or_insert_with(Addresses::look);
        self.unreached.get_or_insert_with(|| {
            let features = xdp_features();
            let takes = |info: &LinkInfo| features.get(&info.ifindex).is_some_and(|it| it.transmit);
            let devices = link::list().unwrap_or_default().into_iter();
            devices
                .filter(|info| info.up && info.name != "lo" && !addresses.of(info.ifindex).is_empty())
                .filter(|info| !takes(info))
                .map(|info| Unreached {
                    ifindex: info.ifindex,
                    is_veth: info.kind.as_deref() == Some("veth"),
                    name: info.name,
                })
                .collect()
        })
    }
}

/// IP addresses, as text, of all devices in the calling thread's namespace, by interface index. IPv6 addresses have 32
/// hexadecimal digits.
struct Addresses(BTreeMap<u32, Vec<String>>);

impl Addresses {
    /// Reads the IP addresses of all devices from the kernel. Routes are not read, because reading a full
    /// routing table takes seconds.
    fn look() -> Addresses {
        let v6 = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
        Addresses::new(link::addresses_v4().unwrap_or_default(), &v6)
    }

    /// Indexes IP addresses by device. `v6` is the content of `/proc/net/if_inet6`, whose second column is the
    /// interface index in hexadecimal digits.
    fn new(v4: Vec<(u32, Ipv4Addr)>, v6: &str) -> Addresses {
        let mut by_device: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        let v4 = v4.into_iter().map(|(ifindex, address)| (ifindex, address.to_string()));
        let v6 = v6.lines().filter_map(|line| {
            let mut columns = line.split_whitespace();
            let address = columns.next()?.to_owned();
            Some((u32::from_str_radix(columns.next()?, 16).ok()?, address))
        });
        for (ifindex, address) in v4.chain(v6) {
            by_device.entry(ifindex).or_default().push(address);
        }
        Addresses(by_device)
    }

    /// Returns the IP addresses of one device, as text.
    fn of(&self, ifindex: u32) -> &[String] {
        self.0.get(&ifindex).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use port::netns;

    use super::*;

    #[test]
    fn addresses_are_those_of_the_device_with_the_index() {
        let v6 = "fe800000000000000000000000000001 0a 40 20 80     eth0\n\
                  20010db8000000000000000000000001 100 40 00 80     eth1\n";
        let v4 = vec![(10, Ipv4Addr::new(192, 0, 2, 1)), (3, Ipv4Addr::new(192, 0, 2, 2))];
        let addresses = Addresses::new(v4, v6);
        assert_eq!(addresses.of(10), ["192.0.2.1", "fe800000000000000000000000000001"]);
        assert_eq!(addresses.of(0x100), ["20010db8000000000000000000000001"]);
        assert_eq!(addresses.of(3), ["192.0.2.2"]);
        assert!(addresses.of(1).is_empty());
    }

    /// The diagnostics list the devices of a namespace once, and not again for each port.
    #[test]
    fn devices_that_take_no_frames_are_listed_once_for_all_ports_of_a_namespace() {
        testbed::require!("ip", "ethtool");
        netns::within_new(|| {
            let run = |line: &str| {
                let mut words = line.split(' ');
                let status = std::process::Command::new(words.next().unwrap()).args(words).status().unwrap();
                assert!(status.success(), "{line}");
            };
            run("ip link add one type veth peer name two");
            for device in ["one", "two"] {
                run(&format!("ip link set {device} up"));
            }
            run("ethtool -K two gro on");
            run("ip address add 192.0.2.1/24 dev one");
            run("ip address add 198.51.100.1/24 dev two");
            let mut place = Place::default();
            let two = Unreached {
                ifindex: link::find("two").unwrap().ifindex,
                name: "two".to_owned(),
                is_veth: true,
            };
            assert_eq!(place.unreached(), [two]);
            let own = link::find("one").unwrap();
            assert_eq!(Routed::look(&own, &mut place).unreached, [("two".to_owned(), true)]);
            run("ip link del two");
            assert_eq!(Routed::look(&own, &mut place).unreached, [("two".to_owned(), true)]);
        })
        .unwrap();
    }
}
