//! Tests of VLANs that are interfaces of a router. Frames of these VLANs go to the worker, and frames of other VLANs go
//! to the kernel. A successor process finds the list of VLANs.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use support::router::{NEAR, ethernet, ipv4, ipv6};
use support::{Namespace, config, unbound_socket};
use xdp::route::{AnswerPort, AnswerSizes, Answers, Own, RoutePort, RouteStage, Sources};
use xdp::{AttachMode, Counter, Loaded, Owner, PinPath, PortProgram, StageChange, Verdict, WhenDown, adopt};

const OWN4: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
const BEHIND: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const BEHIND6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
const PORT: RoutePort = RoutePort { mac: NEAR[0], vrrp: false };
const VLANS: [u16; 4] = [1, 100, 127, 4094];
/// VLANs that are interfaces of the router in the tests. All their frames go to the worker.
const UP: [(u16, Option<u16>); 4] = [(1, None), (100, None), (127, None), (4094, None)];

fn own() -> Own {
    let mut own = Own::new("blue").unwrap();
    own.replace_all(&[IpAddr::from(OWN4)].into()).unwrap();
    own
}

fn tagged(frame: &[u8], protocol: u16, control: u16) -> Vec<u8> {
    [&frame[..12], &protocol.to_be_bytes(), &control.to_be_bytes(), &frame[12..]].concat()
}

/// Runs the program on a frame. Returns the verdict and the only counter that changed. The program must not change the
/// frame.
fn see(loaded: &Loaded, frame: &[u8]) -> (Verdict, Counter) {
    let before = loaded.counters().unwrap();
    let run = loaded.test_run(frame).unwrap();
    let after = loaded.counters().unwrap();
    assert_eq!(run.frame, frame, "nobody writes");
    let moved: Vec<Counter> = Counter::ALL.into_iter().filter(|c| after.get(*c) != before.get(*c)).collect();
    assert_eq!(moved.len(), 1, "{moved:?}");
    (run.verdict, moved[0])
}

#[test]
fn frames_of_its_vlans_go_up_and_others_stay() {
    need_root!();
    let own = own();
    let sizes = AnswerSizes { words4: 1 << 19, words6: 1 << 18, paths: 16, groups: 1, neighbours: 16 };
    let answers = Answers::new(&sizes).unwrap();
    answers.answer(true, true);
    let answer =
        AnswerPort { number: 1, interface: 0, sources: Sources::Any, partial_checksums: true, seed: 7 };
    for stage in [RouteStage::new(&PORT, &own), RouteStage::answering(&PORT, &own, &answers, &answer)] {
        let stage = stage.with_vlans(UP);
        let loaded = PortProgram::load_routed(&config(Owner::Routed, WhenDown::Drop), &stage).unwrap();
        let socket = unbound_socket();
        loaded.set_socket(0, socket.as_fd()).unwrap();
        let arp = ethernet([0xff; 6], 0x0806, &[0; 46]);
        let frames = [
            ipv4(BEHIND, 60, |_| ()),
            ipv6(BEHIND6, 60, |_| ()),
            // Frames that would belong to the kernel without a tag. The worker passes them to the kernel's
            // device of the VLAN.
            ipv4(OWN4, 60, |_| ()),
            ipv4(BEHIND, 60, |ip| ip[8] = 1),
            arp.clone(),
        ];
        for frame in &frames {
            for vlan in 1..=4095 {
                let is_own = VLANS.contains(&vlan);
                let wanted = match is_own {
                    true => (Verdict::Redirect, Counter::Steered),
                    false => (Verdict::Pass, Counter::RouteTagged),
                };
                // Priority and drop eligibility have no effect.
                for bits in if is_own { [0, 0xf000] } else { [0, 0x9000] } {
                    assert_eq!(see(&loaded, &tagged(frame, 0x8100, bits | vlan)), wanted, "VLAN {vlan}");
                }
            }
            // A frame with a priority tag is processed as an untagged frame. The worker removes the tag when it
            // forwards the frame.
            let (_, untagged) = see(&loaded, frame);
            let up = (Verdict::Redirect, Counter::Steered);
            let expected = if untagged == Counter::Steered { up } else { (Verdict::Pass, untagged) };
            assert_eq!(see(&loaded, &tagged(frame, 0x8100, 0xa000)), expected);
            // The hook itself removes a priority tag that is followed by another tag.
            let run = loaded.test_run(&tagged(&tagged(frame, 0x8100, 0), 0x88a8, 0)).unwrap();
            assert_eq!((run.verdict, run.frame), (expected.0, tagged(frame, 0x8100, 0)));
            // A service tag is not a VLAN of the router.
            let provider = tagged(frame, 0x88a8, 100);
            assert_eq!(see(&loaded, &provider), (Verdict::Pass, Counter::RouteTagged));
        }
        // If service tags are enabled, the hook does not read the headers after a service tag.
        let service = stage.clone().with_service_tags();
        let loaded = PortProgram::load_routed(&config(Owner::Routed, WhenDown::Drop), &service).unwrap();
        loaded.set_socket(0, socket.as_fd()).unwrap();
        let provider = tagged(&frames[0], 0x88a8, 100);
        assert_eq!(see(&loaded, &provider), (Verdict::Redirect, Counter::Steered));
        let other = tagged(&frames[0], 0x88a8, 101);
        assert_eq!(see(&loaded, &other), (Verdict::Pass, Counter::RouteTagged));
        // A tag at the end of the frame.
        let cut = tagged(&arp, 0x8100, 100)[..16].to_vec();
        assert_eq!(see(&loaded, &cut), (Verdict::Pass, Counter::RouteTagged));
        // Frames without a tag are processed as before.
        assert_eq!(see(&loaded, &arp), (Verdict::Pass, Counter::PassedControl));
        assert_eq!(see(&loaded, &frames[2]), (Verdict::Pass, Counter::PassedLocal4));
    }
}

/// A pin directory that is removed when the value is dropped.
struct Removed(PinPath);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.directory());
    }
}

#[test]
fn a_successor_finds_them() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (index, _) = namespace.veth("va", "vb", "");
    let pin = PinPath::new(&format!("xdp-vlans-{}", std::process::id())).unwrap();
    let _removed = Removed(pin.clone());
    let own = own();
    let stage = RouteStage::new(&PORT, &own).with_vlans(UP);
    let loaded = PortProgram::load_routed(&config(Owner::Routed, WhenDown::Drop), &stage).unwrap();
    let port = loaded.attach(index, AttachMode::Native, Some(pin.clone())).unwrap();
    assert!(port.route().unwrap().vlans().eq(UP));
    drop(port);
    let mut port = adopt(&pin).unwrap().unwrap();
    let found = port.route().unwrap();
    assert!(found.vlans().eq(UP) && found.port() == PORT);
    assert!(found.is_same(&stage).unwrap());
    assert!(!found.is_same(&RouteStage::new(&PORT, &own).with_vlans([(1, None)])).unwrap());
    // After removal, the program has no VLANs.
    port.set_stage(StageChange::Route(Some(&RouteStage::new(&PORT, &own)))).unwrap();
    drop(port);
    let port = adopt(&pin).unwrap().unwrap();
    assert_eq!(port.route().unwrap().vlans().count(), 0);
    port.detach().unwrap();
}
