//! Tests of attaching a port's XDP program: XDP modes and fallbacks, devices with foreign programs, and the frames that
//! reach the AF_XDP socket and the kernel.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use support::xsk::Xsk;
use support::{Namespace, PacketSocket, config, enter, sh, unbound_socket};
use xdp::live::{Generator, Pass, Traffic, Vary};
use xdp::{
    AttachMode, Counter, Error, IngressGuard, LocalAddresses, Mode, Owner, PortProgram, ProgramConfig,
    WhenDown,
};

fn bridged() -> ProgramConfig {
    config(Owner::Bridged, WhenDown::Drop)
}

#[test]
fn attaches_natively_and_is_gone_when_dropped() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (ifindex, _) = namespace.veth("va", "vb", "");
    assert_eq!(xdp::inspect(ifindex).unwrap(), None);
    let port = PortProgram::load(&bridged()).unwrap().attach(ifindex, AttachMode::Native, None).unwrap();
    assert_eq!((port.mode(), port.device(), port.ifindex()), (Mode::Native, "va", ifindex));
    assert!(port.multi_buffer() && port.fallbacks().is_empty());
    let info = port.info().unwrap();
    assert_eq!(info.name, "trivium_port");
    assert!(info.instructions > 0 && info.verified_instructions > 0 && info.tag != [0; 8]);
    let seen = xdp::inspect(ifindex).unwrap().unwrap();
    assert_eq!((seen.id, seen.mode, seen.link), (info.id, Mode::Native, Some(port.link_id())));
    let shown = namespace.ip("link show dev va");
    assert!(
        shown.contains(&format!("prog/xdp id {} name trivium_port tag {}", info.id, info.tag_text())),
        "{shown}"
    );
    drop(port);
    support::eventually("the program is gone", || xdp::inspect(ifindex).unwrap().is_none());
}

#[test]
fn attaches_generically_when_told() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (ifindex, _) = namespace.veth("va", "vb", "");
    let port = PortProgram::load(&bridged()).unwrap().attach(ifindex, AttachMode::Generic, None).unwrap();
    assert_eq!(port.mode(), Mode::Generic);
    assert_eq!(xdp::inspect(ifindex).unwrap().unwrap().mode, Mode::Generic);
    assert!(namespace.ip("link show dev va").contains("xdpgeneric"));
    port.detach().unwrap();
    assert_eq!(xdp::inspect(ifindex).unwrap(), None);
}

#[test]
fn falls_back_to_generic_and_tells_why() {
    need_root!();
    let namespace = Namespace::enter_new();
    namespace.ip("link add name br type bridge");
    let ifindex = namespace.index("br");
    let native = PortProgram::load(&bridged()).unwrap().attach(ifindex, AttachMode::Native, None);
    let Err(Error::Attach { device, tried }) = native else { panic!("{native:?}") };
    assert_eq!((device.as_str(), tried.len()), ("br", 1));
    assert_eq!((tried[0].mode, tried[0].errno), (Mode::Native, libc::EOPNOTSUPP));
    let auto = PortProgram::load(&bridged()).unwrap().attach(ifindex, AttachMode::Auto, None).unwrap();
    assert_eq!(auto.mode(), Mode::Generic);
    assert_eq!(auto.fallbacks(), tried);
    let text = tried[0].to_string();
    assert!(text.contains("native mode"), "the driver's own words: {text}");
    assert_eq!(xdp::driver("br").as_deref(), Some("bridge"));
}

#[test]
fn error_of_a_refused_mode_says_what_to_do() {
    need_root!();
    let namespace = Namespace::enter_new();
    namespace.ip("link add name br type bridge");
    let ifindex = namespace.index("br");
    let error = PortProgram::load(&bridged()).unwrap().attach(ifindex, AttachMode::Native, None).unwrap_err();
    let text = error.to_string();
    for part in ["device br", "native", "allow generic mode"] {
        assert!(text.contains(part), "{part} in: {text}");
    }
}

#[test]
fn program_without_multi_buffer_is_refused_on_jumbo_devices_only() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (ifindex, _) = namespace.veth("va", "vb", "mtu 9000");
    let linear = || PortProgram::load_linear(&bridged()).unwrap();
    let port = linear().attach(ifindex, AttachMode::Auto, None).unwrap();
    assert_eq!((port.mode(), port.multi_buffer()), (Mode::Generic, false));
    assert_eq!(port.fallbacks().len(), 1);
    assert!(port.fallbacks()[0].to_string().contains("without multi-buffer"), "{:?}", port.fallbacks());
    assert!(port.fallbacks()[0].reason.contains("MTU"), "{:?}", port.fallbacks());
    port.detach().unwrap();
    let frags = PortProgram::load(&bridged()).unwrap().attach(ifindex, AttachMode::Auto, None).unwrap();
    assert_eq!((frags.mode(), frags.multi_buffer()), (Mode::Native, true));
}

#[test]
fn unknown_devices_are_refused() {
    need_root!();
    let _namespace = Namespace::enter_new();
    let error = PortProgram::load(&bridged()).unwrap().attach(4242, AttachMode::Auto, None).unwrap_err();
    assert!(matches!(error, Error::NoDevice { ifindex: 4242 }), "{error}");
}

#[test]
fn foreign_program_of_a_link_is_refused_by_name() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (ifindex, _) = namespace.veth("va", "vb", "");
    let foreign = Pass::attach(ifindex, AttachMode::Native).unwrap();
    for mode in [AttachMode::Native, AttachMode::Generic, AttachMode::Auto] {
        let error = PortProgram::load(&bridged()).unwrap().attach(ifindex, mode, None).unwrap_err();
        let Error::Foreign { device, program } = &error else { panic!("{error}") };
        assert_eq!((device.as_str(), program.name.as_str(), program.mode), ("va", "pass", Mode::Native));
        let advice = format!("bpftool link detach id {}", program.link.unwrap());
        assert!(error.to_string().contains(&advice), "{error}");
    }
    drop(foreign);
}

/// If the device has an XDP program that was attached over netlink, the error message suggests a command. The test runs
/// the command, and the port's program can then be attached.
#[test]
fn foreign_program_of_netlink_can_be_removed_as_the_error_says() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (ifindex, _) = namespace.veth("va", "vb", "");
    let object = concat!(env!("OUT_DIR"), "/livegen.bpf.o");
    for keyword in ["xdp", "xdpgeneric"] {
        namespace.ip(&format!("link set dev va {keyword} object {object} section xdp"));
        let error =
            PortProgram::load(&bridged()).unwrap().attach(ifindex, AttachMode::Auto, None).unwrap_err();
        let Error::Foreign { program, .. } = &error else { panic!("{error}") };
        assert_eq!((program.name.as_str(), program.link), ("livegen", None));
        let text = error.to_string();
        let command = text.split('`').nth(1).unwrap();
        assert_eq!(command, format!("ip link set dev va {keyword} off"));
        sh(command);
        PortProgram::load(&bridged())
            .unwrap()
            .attach(ifindex, AttachMode::Auto, None)
            .unwrap()
            .detach()
            .unwrap();
    }
}

#[test]
fn features_follow_the_peer() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, far) = namespace.veth("va", "vb", "");
    let before = xdp::features("va").unwrap();
    assert!(before.basic && before.redirect && before.receive_multi_buffer && !before.zero_copy);
    assert!(!before.transmit, "a veth transmits redirected frames only to a peer with XDP");
    let _pass = Pass::attach(far, AttachMode::Native).unwrap();
    assert!(xdp::features("va").unwrap().transmit);
    assert_eq!(xdp::driver("va").as_deref(), Some("veth"));
}

/// Frames that the peer of a veth device sends reach the socket of their queue unchanged.
#[test]
fn steers_to_the_socket_in_both_modes() {
    need_root!();
    for mode in [AttachMode::Native, AttachMode::Generic] {
        let namespace = Namespace::enter_new();
        let (far, near) = namespace.veth("va", "vb", "");
        let port = PortProgram::load(&bridged()).unwrap().attach(near, mode, None).unwrap();
        let socket = Xsk::bound(near, 0);
        // In generic mode, the veth device does not accept redirected frames. Therefore the frames are sent through the
        // kernel stack.
        let watch = PacketSocket::on(far);
        let frames: Vec<Vec<u8>> =
            (0..20_u8).map(|i| support::ethernet(support::to_us(), &[], 0x0800, &[i; 60])).collect();
        watch.send(&frames[0]);
        support::eventually("dropped without a socket", || {
            port.counters().unwrap().get(Counter::DownDropped) == 1
        });
        port.set_socket(0, socket.fd()).unwrap();
        for frame in &frames {
            watch.send(frame);
        }
        for frame in &frames {
            assert_eq!(&support::awaited("a frame", || socket.receive()), frame, "{mode:?}");
        }
        port.clear_socket(0).unwrap();
        port.clear_socket(0).unwrap();
        watch.send(&frames[0]);
        support::eventually("dropped again", || port.counters().unwrap().get(Counter::DownDropped) == 2);
        assert!(matches!(port.clear_socket(1), Err(Error::QueueOutOfRange { .. })));
        let counters = port.counters().unwrap();
        assert_eq!((counters.get(Counter::Steered), counters.seen()), (20, 22));
    }
}

/// The kernel still answers the echo requests of a host on a routed port without a socket.
#[test]
fn routed_port_leaves_ping_to_the_kernel() {
    need_root!();
    let host = Namespace::enter_new();
    let router = Namespace::enter_new();
    router.ip(&format!("link add name vr type veth peer name vh netns {}", host.name));
    router.ip("addr add 192.0.2.1/24 dev vr");
    router.ip("addr add 2001:db8::1/64 dev vr nodad");
    router.ip("link set dev vr up");
    host.ip("addr add 192.0.2.9/24 dev vh");
    host.ip("addr add 2001:db8::9/64 dev vh nodad");
    host.ip("link set dev vh up");
    let ifindex = router.index("vr");
    for mode in [AttachMode::Native, AttachMode::Generic] {
        let config = config(Owner::Routed, WhenDown::Drop);
        let port = PortProgram::load(&config).unwrap().attach(ifindex, mode, None).unwrap();
        enter(&host.name);
        sh("ping -q -c 3 -i 0.05 -W 2 192.0.2.1");
        sh("ping -q -c 3 -i 0.05 -W 2 2001:db8::1");
        let counters = port.counters().unwrap();
        assert!(counters.get(Counter::PassedLocal4) >= 3, "{counters:?}");
        assert!(counters.get(Counter::PassedLocal6) >= 3, "{counters:?}");
        // Without local addresses no packet belongs to the kernel.
        port.update_locals(&LocalAddresses::default()).unwrap();
        sh("! ping -q -c 1 -W 1 192.0.2.1");
        assert!(port.counters().unwrap().get(Counter::DownDropped) >= 1);
        enter(&router.name);
    }
}

#[test]
fn every_generated_frame_is_counted_once() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    let port = PortProgram::load(&bridged()).unwrap().attach(near, AttachMode::Native, None).unwrap();
    let vary = Vary { ports: true, ..Vary::default() };
    let mut generator = Generator::new(&Traffic { flows: 64, vary, ..Traffic::to(far) }).unwrap();
    generator.send(20_000).unwrap();
    let counters = port.counters().unwrap();
    assert_eq!((counters.get(Counter::DownDropped), counters.seen()), (20_000, 20_000));
}

#[test]
fn sockets_of_another_kind_are_refused() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let port = PortProgram::load(&bridged()).unwrap().attach(near, AttachMode::Native, None).unwrap();
    let error = port.set_socket(0, std::io::stderr().as_fd()).unwrap_err();
    assert!(error.to_string().contains("vb, queue 0"), "{error}");
    assert!(matches!(port.set_socket(1, unbound_socket().as_fd()), Err(Error::QueueOutOfRange { .. })));
}

/// Guards (tc programs that drop all frames) of different devices share one program, which the kernel verifies only
/// once. Several guards of one device must each have a program of their own, because the kernel attaches a program to a
/// device only once. A device has two guards, for example, if the guard of a failed hand-over is still attached when
/// the port gets another guard.
#[test]
fn guards_share_one_program_unless_they_have_one_device() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (near, far) = namespace.veth("va", "vb", "");
    let guards = [near, far].map(|ifindex| IngressGuard::attach(ifindex).unwrap());
    assert_eq!(guard_programs().len(), 1);
    let again = [near, near].map(|ifindex| IngressGuard::attach(ifindex).unwrap());
    assert_eq!(guard_programs().len(), 3);
    drop(guards);
    assert_eq!(guard_programs().len(), 2);
    assert_eq!(again[0].ifindex(), Some(near));
    namespace.ip("link delete va");
    assert_eq!(again[0].ifindex(), None, "the device no longer exists");
    drop(again);
    assert_eq!(guard_programs().len(), 0);
}

/// Returns the ids of the programs of this process's tcx links.
fn guard_programs() -> BTreeSet<String> {
    let descriptors = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    // Another test may close a descriptor meanwhile.
    let infos = descriptors.filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok());
    let links = infos.filter(|info| info.contains("link_type:\ttcx"));
    links.map(|info| info.lines().find(|line| line.starts_with("prog_id:")).unwrap().to_owned()).collect()
}
