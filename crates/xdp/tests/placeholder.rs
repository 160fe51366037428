//! Tests of placeholder programs: their verdicts, their replacement by the port's own program, and the
//! adoption of a hook whose process was killed before the replacement.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::os::fd::AsFd;

use support::compile::one;
use support::xsk::Xsk;
use support::{LOCAL4, Namespace, PacketSocket, config, eventually, frame4};
use xdp::StageChange;
use xdp::live::{Generator, Traffic};
use xdp::user::UserProgram;
use xdp::{
    AttachMode, Attached, Counter, MapInfo, Mode, Owner, PinPath, Placeholders, PortProgram, ProgramConfig,
    WhenDown, adopt,
};

const OWN: &str = "trivium_port";

fn bridged() -> ProgramConfig {
    config(Owner::Bridged, WhenDown::Drop)
}

fn attach(
    ifindex: u32,
    config: &ProgramConfig,
    placeholders: &Placeholders,
    pin: Option<&PinPath>,
) -> Attached {
    let loaded = PortProgram::load_placeholder(config, placeholders).unwrap();
    let port = loaded.attach(ifindex, AttachMode::Native, pin.cloned()).unwrap();
    assert!(port.is_placeholder());
    port
}

/// Returns the name of the program on a device.
fn on_device(ifindex: u32) -> String {
    xdp::inspect(ifindex).unwrap().unwrap().name
}

#[test]
fn ports_share_a_placeholder_and_get_programs_of_their_own() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (one, two) = namespace.veth("va", "vb", "");
    let placeholders = Placeholders::default();
    let mut ports = [one, two].map(|ifindex| attach(ifindex, &bridged(), &placeholders, None));
    drop(placeholders);
    let ids = |ports: &[Attached]| ports.iter().map(|port| port.info().unwrap().id).collect::<Vec<_>>();
    let shared = ids(&ports);
    assert_eq!(shared[0], shared[1]);
    assert_eq!([on_device(one), on_device(two)], ["trivium_wait", "trivium_wait"]);
    for port in &mut ports {
        let constants = port.constants();
        port.complete().unwrap();
        assert!(!port.is_placeholder());
        assert_eq!(port.constants(), constants);
        assert_eq!(on_device(port.ifindex()), OWN);
    }
    let own = ids(&ports);
    assert_ne!(own[0], own[1]);
    ports[0].complete().unwrap();
    assert_eq!(ids(&ports), own, "a complete port stays as it is");
}

#[test]
fn ports_with_other_constants_have_another_placeholder() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (one, two) = namespace.veth("va", "vb", "");
    let placeholders = Placeholders::default();
    let first = attach(one, &bridged(), &placeholders, None);
    let second = attach(two, &config(Owner::Routed, WhenDown::Pass), &placeholders, None);
    assert_ne!(first.info().unwrap().id, second.info().unwrap().id);
}

#[test]
fn when_down_decides_until_the_port_is_complete() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    let socket = Xsk::bound(near, 0);
    for (when_down, passed) in [(WhenDown::Drop, false), (WhenDown::Pass, true)] {
        let mut port = attach(near, &config(Owner::Bridged, when_down), &Placeholders::default(), None);
        port.set_socket(0, socket.fd()).unwrap();
        let wire = PacketSocket::on(far);
        let kernel = PacketSocket::on(near);
        let frame = frame4(LOCAL4, |_| {});
        let seen = || kernel.waiting().contains(&frame);
        wire.send(&frame);
        if passed {
            eventually("the kernel has the frame", seen);
        } else {
            Generator::new(&Traffic::to(far)).unwrap().send(10).unwrap();
            assert!(!seen());
        }
        assert_eq!(socket.receive(), None);
        assert_eq!(port.counters().unwrap().seen(), 0, "a placeholder counts nothing");
        // The socket that was set before receives frames from the port's own program.
        port.complete().unwrap();
        wire.send(&frame);
        assert_eq!(support::awaited("steered", || socket.receive()), frame);
        assert_eq!(port.counters().unwrap().get(Counter::Steered), 1);
        port.detach().unwrap();
    }
}

/// The maps that are created for a placeholder program have the properties of the maps that the BPF object declares.
#[test]
fn the_maps_are_those_of_a_port() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (one, two) = namespace.veth("va", "vb", "");
    let wide = ProgramConfig { queues: 3, ..bridged() };
    let mut port = attach(one, &wide, &Placeholders::default(), None);
    port.complete().unwrap();
    let plain = PortProgram::load(&wide).unwrap().attach(two, AttachMode::Native, None).unwrap();
    let maps = |port: &Attached| {
        let (_, maps) = xdp::program_by_id(port.info().unwrap().id).unwrap();
        let mut maps: Vec<MapInfo> = maps.into_iter().map(|map| MapInfo { id: 0, ..map }).collect();
        maps.sort_by(|one, other| one.name.cmp(&other.name));
        maps
    };
    assert_eq!(maps(&port), maps(&plain));
    let known = |name: &str| maps(&port).iter().any(|map| map.name == name && map.bytes.is_some());
    assert!(known("xsks") && known("counters"), "{:?}", maps(&port));
    // Only the program of a routed port reads the local addresses.
    let routed = ProgramConfig { owner: Owner::Routed, ..wide };
    let mut ports = [port, plain];
    for port in &mut ports {
        port.swap(port.prepare(&routed).unwrap()).unwrap();
    }
    assert_eq!(maps(&ports[0]), maps(&ports[1]));
    assert!(maps(&ports[0]).iter().any(|map| map.name == "local6"));
}

#[test]
fn a_change_replaces_the_placeholder() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let mut port = attach(near, &bridged(), &Placeholders::default(), None);
    port.set_stage(StageChange::Fib(None)).unwrap();
    assert!(!port.is_placeholder());
    assert_eq!(on_device(near), OWN);
    let routed = config(Owner::Routed, WhenDown::Pass);
    port.detach().unwrap();
    let mut port = attach(near, &bridged(), &Placeholders::default(), None);
    port.swap(port.prepare(&routed).unwrap()).unwrap();
    assert!(!port.is_placeholder());
    assert_eq!((port.constants().owner, on_device(near).as_str()), (Owner::Routed, OWN));
}

/// A custom program continues with the port's own program, and not with the placeholder.
#[test]
fn a_custom_program_stands_before_the_own_program() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    let mut port = attach(near, &bridged(), &Placeholders::default(), None);
    let go_on = "trivium_continue(ctx); return XDP_ABORTED;";
    let user = UserProgram::load(&one("xdp.frags", "first", go_on), None, true).unwrap();
    port.set_user(user).unwrap();
    assert!(!port.is_placeholder());
    assert_eq!((on_device(near).as_str(), port.info().unwrap().name.as_str()), ("first", OWN));
    Generator::new(&Traffic::to(far)).unwrap().send(10).unwrap();
    eventually("counted", || port.counters().unwrap().get(Counter::DownDropped) == 10);
}

#[test]
fn generic_mode_has_a_placeholder_too() {
    need_root!();
    let namespace = Namespace::enter_new();
    namespace.ip("link add name br type bridge");
    let ifindex = namespace.index("br");
    let loaded = PortProgram::load_placeholder(&bridged(), &Placeholders::default()).unwrap();
    let mut port = loaded.attach(ifindex, AttachMode::Auto, None).unwrap();
    assert_eq!((port.mode(), port.fallbacks().len(), port.is_placeholder()), (Mode::Generic, 1, true));
    port.complete().unwrap();
    assert_eq!(on_device(ifindex), OWN);
}

#[test]
fn the_pinned_placeholder_of_a_killed_process_is_adopted() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    let pin = PinPath::new(&format!("xdp-t{}-placeholder", std::process::id())).unwrap();
    let wide = ProgramConfig { queues: 2, ..config(Owner::Routed, WhenDown::Drop) };
    let port = attach(near, &wide, &Placeholders::default(), Some(&pin));
    let (constants, link) = (port.constants(), port.link_id());
    drop(port);
    assert_eq!(on_device(near), "trivium_wait");
    let mut adopted = adopt(&pin).unwrap().unwrap();
    assert!(adopted.is_placeholder());
    assert_eq!((adopted.constants(), adopted.link_id(), adopted.ifindex()), (constants, link, near));
    adopted.complete().unwrap();
    drop(adopted);
    assert_eq!(on_device(near), OWN);
    let adopted = adopt(&pin).unwrap().unwrap();
    assert!(!adopted.is_placeholder());
    // The pinned maps are those that the program uses.
    let socket = Xsk::bound(near, 0);
    adopted.set_socket(0, socket.fd().as_fd()).unwrap();
    Generator::new(&Traffic::to(far)).unwrap().send(1).unwrap();
    eventually("counted", || adopted.counters().unwrap().seen() > 0);
    adopted.detach().unwrap();
    assert!(!pin.directory().exists());
}
