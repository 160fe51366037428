//! Tests of veth pairs, links and the watch on the real kernel.
#![allow(clippy::unwrap_used, reason = "a failure is the test's")]

mod common;

use std::collections::HashMap;
use std::process::Command;

use common::{Space, privileged};
use packet::MacAddr;
use packet::net::InterfaceAddress;
use port::link::{self, LinkChange};
use port::netns::{self, Netns, NetnsError};
use port::veth::{self, VethConfig, VethError};
use port::watch::{LinkEvent, LinkWatch};

fn features(name: &str) -> HashMap<String, bool> {
    link::features(name).unwrap().into_iter().map(|feature| (feature.name, feature.active)).collect()
}

#[test]
fn a_pair_is_made_as_configured_and_adopted() {
    if !privileged("a_pair_is_made_as_configured_and_adopted") {
        return;
    }
    let (ours, host) = (Space::new(), Space::new());
    let addresses: Vec<InterfaceAddress> =
        ["10.1.0.2/24", "fd00::2/64"].map(|text| text.parse().unwrap()).to_vec();
    let config = VethConfig {
        netns: Some(host.netns()),
        addresses: addresses.clone(),
        mtu: 9000,
        mac: Some(MacAddr([2, 1, 1, 1, 1, 1])),
        queues: 3,
        ..VethConfig::new("v-near", "eth7")
    };
    let made = ours.run(|| veth::ensure(&config).unwrap());
    assert!(!made.adopted);
    assert_eq!((made.near.mtu, made.far.mtu, made.far.mac), (9000, 9000, config.mac));
    assert_eq!(
        (made.near.alias.as_deref(), made.near.kind.as_deref()),
        (Some("trivium:v-near"), Some("veth"))
    );
    assert!(made.near.up && made.far.up && !made.near.arp && made.far.arp);
    assert_eq!((made.near.rx_queues, made.far.tx_queues, made.far.name.as_str()), (3, 3, "eth7"));
    ours.run(|| {
        assert_eq!(link::driver("v-near").unwrap().driver, "veth");
        assert_eq!(link::channels("v-near").unwrap().rx(), 3);
        let near = features("v-near");
        assert!(!near["rx-vlan-hw-parse"] && !near["tx-vlan-hw-insert"]);
        assert_eq!(sysctl("net/ipv6/conf/v-near/disable_ipv6"), "1");
    });
    host.run(|| {
        let far = features("eth7");
        for off in
            ["tx-checksum-ip-generic", "tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-udp-segmentation"]
        {
            assert!(!far[off], "{off}");
        }
        assert!(!far["rx-vlan-hw-parse"] && !far["tx-vlan-hw-insert"] && far["rx-gro"]);
        for InterfaceAddress { address, .. } in &addresses {
            // The bind succeeds only if the address exists and is no longer tentative.
            std::net::UdpSocket::bind((*address, 0)).unwrap();
        }
    });
    // The far end is changed and then adopted, which restores the configuration.
    host.run(|| {
        link::set(
            made.far.ifindex,
            &LinkChange { mtu: Some(1400), up: Some(false), ..LinkChange::default() },
        )
        .unwrap();
    });
    let adopted = ours.run(|| veth::ensure(&config).unwrap());
    assert!(adopted.adopted && adopted.far.up);
    assert_eq!(
        (adopted.near.ifindex, adopted.far.ifindex, adopted.far.mtu),
        (made.near.ifindex, made.far.ifindex, 9000)
    );
    ours.run(|| {
        veth::remove("v-near").unwrap();
        veth::remove("v-near").unwrap();
    });
    assert_eq!(host.run(|| link::find("eth7").unwrap_err().errno()), libc::ENODEV);
}

fn sysctl(path: &str) -> String {
    std::fs::read_to_string(format!("/proc/sys/{path}")).unwrap_or_else(|_| "1".into()).trim().to_owned()
}

#[test]
fn what_is_not_ours_is_left_alone() {
    if !privileged("what_is_not_ours_is_left_alone") {
        return;
    }
    let (ours, host) = (Space::new(), Space::new());
    let config = VethConfig { netns: Some(host.netns()), ..VethConfig::new("v-near", "eth0") };
    ours.run(|| {
        let pair = veth::ensure(&config).unwrap();
        link::set(pair.near.ifindex, &LinkChange { alias: Some("somebody else's"), ..LinkChange::default() })
            .unwrap();
        assert!(matches!(veth::ensure(&config), Err(VethError::Foreign { .. })));
        assert!(matches!(veth::remove("v-near"), Err(VethError::Foreign { .. })));
        assert!(link::find("v-near").is_ok());
    });
    let missing =
        VethConfig { netns: Some(Netns::Name("port-none".into())), ..VethConfig::new("v-b", "eth0") };
    let error = ours.run(|| veth::ensure(&missing).unwrap_err());
    assert!(error.to_string().contains("port-none"), "{error}");
    let taken = VethConfig { netns: Some(host.netns()), ..VethConfig::new("v-c", "eth0") };
    let error = ours.run(|| veth::ensure(&taken).unwrap_err());
    assert!(matches!(error, VethError::Link { .. }), "the far name is taken: {error}");
    assert_eq!(ours.run(|| link::find("v-c").unwrap_err().errno()), libc::ENODEV, "nothing is left behind");
    let elsewhere = VethConfig { far_name: "eth9".into(), ..config };
    ours.run(|| {
        let near = link::find("v-near").unwrap().ifindex;
        link::set(near, &LinkChange { alias: Some("trivium:v-near"), ..LinkChange::default() }).unwrap();
        assert!(matches!(veth::ensure(&elsewhere), Err(VethError::Elsewhere { .. })));
    });
}

/// Checks that a pair is created again if its creation was interrupted. A process that is killed before it assigns the
/// alias leaves a near end that only its device group identifies as Trivium's.
#[test]
fn a_pair_whose_creation_was_interrupted_is_created_anew() {
    if !privileged("a_pair_whose_creation_was_interrupted_is_created_anew") {
        return;
    }
    let (ours, host) = (Space::new(), Space::new());
    let config = VethConfig { netns: Some(host.netns()), ..VethConfig::new("v-near", "eth0") };
    let interrupt = |group| {
        let near = link::find("v-near").unwrap().ifindex;
        link::set(near, &LinkChange { alias: Some(""), group: Some(group), ..LinkChange::default() })
            .unwrap();
        near
    };
    let unfinished = u32::from_be_bytes(*b"triv");
    ours.run(|| {
        let pair = veth::ensure(&config).unwrap();
        assert_eq!((pair.near.group, pair.adopted), (0, false));
        interrupt(7);
        assert!(matches!(veth::ensure(&config), Err(VethError::Foreign { .. })), "another group");
        let before = interrupt(unfinished);
        let pair = veth::ensure(&config).unwrap();
        assert_eq!((pair.near.group, pair.adopted), (0, false));
        assert_ne!(pair.near.ifindex, before);
        assert!(veth::ensure(&config).unwrap().adopted);
        interrupt(unfinished);
        veth::remove("v-near").unwrap();
        assert_eq!(link::find("v-near").unwrap_err().errno(), libc::ENODEV);
    });
}

/// Collects events of the watch until `done` returns true for the collected events, and returns them.
fn events(watch: &mut LinkWatch, done: impl Fn(&[LinkEvent]) -> bool) -> Vec<LinkEvent> {
    let mut seen = Vec::new();
    while !done(&seen) {
        assert!(common::wait(watch.fd(), 2000), "no more events after {seen:?}");
        seen.extend(watch.poll().unwrap());
    }
    seen
}

#[test]
fn changes_of_links_are_reported() {
    if !privileged("changes_of_links_are_reported") {
        return;
    }
    let (ours, host) = (Space::new(), Space::new());
    let config = VethConfig { netns: Some(host.netns()), ..VethConfig::new("w0", "far0") };
    let mut watch = ours.run(|| LinkWatch::open().unwrap());
    assert!(watch.poll().unwrap().is_empty());
    let ifindex = ours.run(|| veth::ensure(&config).unwrap().near.ifindex);
    let running = LinkEvent::State { ifindex, up: true, running: true };
    let seen = events(&mut watch, |seen| seen.contains(&running));
    assert!(matches!(&seen[0], LinkEvent::Added(info) if info.name == "w0"), "{seen:?}");
    let change = |change: LinkChange| ours.run(|| link::set(ifindex, &change).unwrap());
    change(LinkChange { mtu: Some(1400), ..LinkChange::default() });
    events(&mut watch, |seen| seen.contains(&LinkEvent::Mtu { ifindex, mtu: 1400 }));
    change(LinkChange { up: Some(false), ..LinkChange::default() });
    events(&mut watch, |seen| seen.contains(&LinkEvent::State { ifindex, up: false, running: false }));
    change(LinkChange { name: Some("w1"), ..LinkChange::default() });
    let renamed = LinkEvent::Renamed { ifindex, from: "w0".into(), to: "w1".into() };
    events(&mut watch, |seen| seen.contains(&renamed));
    let steering = ours.run(|| common::Steering::attach(ifindex));
    let attached = LinkEvent::Xdp { ifindex, attached: Some(link::XdpAttached::Native) };
    assert_eq!(ours.run(|| watch.resync().unwrap()), [attached]);
    drop(steering);
    ours.run(|| link::delete("w1").unwrap());
    let gone = LinkEvent::Deleted { ifindex, name: "w1".into() };
    events(&mut watch, |seen| seen.contains(&gone));
    assert!(!watch.needs_resync());
}

/// Checks that no deletion of a device is reported when the device leaves a Linux bridge. The kernel reports the
/// deletion of the bridge port, with the family AF_BRIDGE.
#[test]
fn a_device_that_leaves_a_linux_bridge_is_there_still() {
    if !privileged("a_device_that_leaves_a_linux_bridge_is_there_still") {
        return;
    }
    let ours = Space::new();
    let mut watch = ours.run(|| LinkWatch::open().unwrap());
    let ifindex = ours.run(|| veth::ensure(&VethConfig::new("l0", "l1")).unwrap().near.ifindex);
    for line in ["link add lb type bridge", "link set l0 master lb", "link set l0 nomaster"] {
        let status = ours.run(|| Command::new("ip").args(line.split(' ')).status().unwrap());
        assert!(status.success(), "{line}");
    }
    ours.run(|| link::set(ifindex, &LinkChange { mtu: Some(1400), ..LinkChange::default() }).unwrap());
    let last = LinkEvent::Mtu { ifindex, mtu: 1400 };
    let seen = events(&mut watch, |seen| seen.contains(&last));
    assert!(!seen.iter().any(|event| matches!(event, LinkEvent::Deleted { .. })), "{seen:?}");
}

#[test]
fn a_flood_of_changes_ends_in_a_resync() {
    if !privileged("a_flood_of_changes_ends_in_a_resync") {
        return;
    }
    let ours = Space::new();
    let mut watch = ours.run(|| LinkWatch::open().unwrap());
    let ifindex = ours.run(|| veth::ensure(&VethConfig::new("f0", "f1")).unwrap().near.ifindex);
    ours.run(|| {
        for i in 0..400 {
            link::set(ifindex, &LinkChange { mtu: Some(1400 + i % 2), ..LinkChange::default() }).unwrap();
        }
        link::set(ifindex, &LinkChange { mtu: Some(1300), ..LinkChange::default() }).unwrap();
    });
    watch.poll().unwrap();
    if watch.needs_resync() {
        ours.run(|| watch.resync().unwrap());
    }
    let known = watch.known().find(|info| info.ifindex == ifindex).unwrap();
    assert_eq!(known.mtu, 1300, "the last state is known, with or without lost events");
    assert!(!watch.needs_resync());
}

#[test]
fn work_in_a_namespace_comes_back_and_its_panics_too() {
    if !privileged("work_in_a_namespace_comes_back_and_its_panics_too") {
        return;
    }
    let space = Space::new();
    let inside = netns::within(space.netns().path(), || link::list().unwrap().len()).unwrap();
    assert_eq!(inside, 1, "only the loopback");
    let panicked = std::panic::catch_unwind(|| netns::within(space.netns().path(), || panic!("inside")));
    assert!(panicked.is_err());
    let missing = netns::within("/run/netns/port-none", || ()).unwrap_err();
    assert!(matches!(missing, NetnsError::Open { .. }), "{missing}");
    let wrong = netns::within("/proc/self/ns/mnt", || ()).unwrap_err();
    assert!(matches!(wrong, NetnsError::Enter { .. }), "{wrong}");
}
