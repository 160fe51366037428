//! Tests that a port's program persists: replacement of the program, pins, killed processes and hand-overs.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

use support::xsk::Xsk;
use support::{LOCAL4, Namespace, config, enter, eventually, frame4, unbound_socket};
use xdp::live::{Generator, Traffic};
use xdp::{
    AttachMode, Attached, Counter, Error, HookDescriptors, Owner, PinPath, PortProgram, ProgramConfig,
    WhenDown, adopt,
};

fn bridged() -> ProgramConfig {
    config(Owner::Bridged, WhenDown::Drop)
}

fn attach(ifindex: u32, pin: Option<&Pin>) -> Attached {
    let loaded = PortProgram::load(&bridged()).unwrap();
    loaded.attach(ifindex, AttachMode::Native, pin.map(|pin| pin.0.clone())).unwrap()
}

/// A pin directory of one test, which is removed when the value is dropped.
struct Pin(PinPath);

impl Pin {
    fn new(test: &str) -> Pin {
        Pin(PinPath::new(&format!("xdp-t{}-{test}", std::process::id())).unwrap())
    }

    fn exists(&self) -> bool {
        self.0.directory().exists()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.directory());
    }
}

#[test]
fn pinned_port_outlives_its_owner_and_is_adopted() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    let pin = Pin::new("adopt");
    assert!(adopt(&pin.0).unwrap().is_none(), "nothing is there yet");
    let port = attach(near, Some(&pin));
    let (link, program) = (port.link_id(), port.info().unwrap().id);
    drop(port);
    Generator::new(&Traffic::to(far)).unwrap().send(100).unwrap();
    let adopted = adopt(&pin.0).unwrap().unwrap();
    assert_eq!((adopted.link_id(), adopted.info().unwrap().id), (link, program));
    assert_eq!((adopted.ifindex(), adopted.device()), (near, "vb"));
    assert_eq!(adopted.constants(), bridged_constants());
    assert_eq!(adopted.counters().unwrap().get(Counter::DownDropped), 100, "counted meanwhile");
    // The adopted port supports all operations: sockets, replacement, removal.
    adopted.set_socket(0, unbound_socket().as_fd()).unwrap();
    let mut adopted = adopted;
    adopted.swap(adopted.prepare(&config(Owner::Routed, WhenDown::Pass)).unwrap()).unwrap();
    drop(adopted);
    let adopted = adopt(&pin.0).unwrap().unwrap();
    assert_eq!(adopted.constants().owner, Owner::Routed, "the swap outlives the owner as well");
    adopted.detach().unwrap();
    assert!(!pin.exists());
    assert_eq!(xdp::inspect(near).unwrap(), None);
    assert!(adopt(&pin.0).unwrap().is_none());
}

fn bridged_constants() -> xdp::Constants {
    xdp::Constants { owner: Owner::Bridged, when_down: WhenDown::Drop, queues: 1 }
}

#[test]
fn second_port_under_a_pin_is_refused() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    let pin = Pin::new("twice");
    let _port = attach(near, Some(&pin));
    let second = PortProgram::load(&bridged()).unwrap().attach(far, AttachMode::Auto, Some(pin.0.clone()));
    assert!(matches!(second, Err(Error::Pinned { .. })), "{second:?}");
    assert!(adopt(&pin.0).unwrap().is_some(), "the first one is untouched");
}

#[test]
fn failed_attach_leaves_no_pins() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let _taken = attach(near, None);
    let pin = Pin::new("failed");
    let second = PortProgram::load(&bridged()).unwrap().attach(near, AttachMode::Auto, Some(pin.0.clone()));
    assert!(matches!(second, Err(Error::Foreign { .. })), "{second:?}");
    assert!(!pin.exists());
}

#[test]
fn remains_of_a_half_made_pin_are_replaced() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let pin = Pin::new("half");
    let port = attach(near, Some(&pin));
    drop(port);
    std::fs::remove_file(pin.0.directory().join("link")).unwrap();
    eventually("the link is gone with its pin", || xdp::inspect(near).unwrap().is_none());
    assert!(adopt(&pin.0).unwrap().is_none());
    attach(near, Some(&pin)).detach().unwrap();
    assert!(!pin.exists());
}

#[test]
fn pins_of_a_deleted_device_are_removed() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let pin = Pin::new("deleted");
    let port = attach(near, Some(&pin));
    assert!(port.is_alive().unwrap());
    namespace.ip("link del va");
    assert!(!port.is_alive().unwrap());
    drop(port);
    assert!(pin.exists());
    assert!(adopt(&pin.0).unwrap().is_none());
    assert!(!pin.exists());
}

#[test]
fn detaching_after_the_device_has_gone_is_fine() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let pin = Pin::new("gone");
    let port = attach(near, Some(&pin));
    namespace.ip("link del va");
    port.detach().unwrap();
    assert!(!pin.exists());
}

#[test]
fn adopting_from_another_namespace_is_refused() {
    need_root!();
    let home = Namespace::enter_new();
    let (_, near) = home.veth("va", "vb", "");
    let pin = Pin::new("elsewhere");
    drop(attach(near, Some(&pin)));
    let _elsewhere = Namespace::enter_new();
    let error = adopt(&pin.0).unwrap_err();
    assert!(matches!(error, Error::WrongNamespace { ifindex, .. } if ifindex == near), "{error}");
    enter(&home.name);
    adopt(&pin.0).unwrap().unwrap().detach().unwrap();
}

/// A pinned program in place of the link, and the pinned link of a foreign program, must be refused. The kernel's query
/// for links also succeeds for a program, and type 6 means XDP for both links and programs. Only the kind of the
/// descriptor distinguishes a link from a program.
#[test]
fn foreign_pins_are_not_adopted() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    // Pinning mounts the BPF file system where it is not mounted.
    let pin = Pin::new("foreign");
    attach(near, Some(&pin)).detach().unwrap();
    std::fs::create_dir_all(pin.0.directory()).unwrap();
    let object = concat!(env!("OUT_DIR"), "/bench.bpf.o");
    let path = pin.0.directory().display().to_string();
    support::sh(&format!("bpftool prog loadall {object} {path}; mv {path}/pass {path}/link"));
    let error = adopt(&pin.0).unwrap_err();
    assert!(matches!(error, Error::NotOurs { .. }), "{error}");
    std::fs::remove_file(pin.0.directory().join("link")).unwrap();
    // A link of a foreign program.
    let _foreign = xdp::live::Pass::attach(far, AttachMode::Native).unwrap();
    let link = xdp::inspect(far).unwrap().unwrap().link.unwrap();
    support::sh(&format!("bpftool link pin id {link} {path}/link"));
    let error = adopt(&pin.0).unwrap_err();
    assert!(error.to_string().contains("program \"pass\""), "{error}");
    assert!(xdp::inspect(far).unwrap().is_some(), "it is left alone");
}

#[test]
fn swap_keeps_sockets_and_replaces_addresses() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    let mut port = attach(near, None);
    let socket = Xsk::bound(near, 0);
    port.set_socket(0, socket.fd()).unwrap();
    let wire = support::PacketSocket::on(far);
    let local = frame4(LOCAL4, |_| {});
    wire.send(&local);
    assert_eq!(support::awaited("steered", || socket.receive()), local);
    let routed = config(Owner::Routed, WhenDown::Drop);
    port.swap(port.prepare(&routed).unwrap()).unwrap();
    assert_eq!(port.constants().owner, Owner::Routed);
    wire.send(&local);
    eventually("passed", || port.counters().unwrap().get(Counter::PassedLocal4) == 1);
    let without = ProgramConfig { locals: Default::default(), ..routed };
    port.swap(port.prepare(&without).unwrap()).unwrap();
    wire.send(&local);
    assert_eq!(support::awaited("steered", || socket.receive()), local);
    assert_eq!(port.counters().unwrap().seen(), 3, "counters survive");
}

#[test]
fn swap_refuses_what_would_lose_sockets() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let mut port = attach(near, None);
    let before = port.info().unwrap().id;
    let alone = PortProgram::load(&bridged()).unwrap();
    assert!(matches!(port.swap(alone), Err(Error::MapsDiffer { .. })));
    let more = ProgramConfig { queues: 2, ..bridged() };
    assert!(matches!(port.prepare(&more), Err(Error::QueuesDiffer { old: 1, new: 2, .. })));
    assert_eq!(port.info().unwrap().id, before);
}

/// Each frame is processed by the old or the new program: all frames are counted, and no frame is lost. A swap takes
/// about 25 ms, because the kernel waits for all CPUs. The environment variable XDP_SWAPS changes the number of swaps.
#[test]
fn swaps_under_traffic_lose_nothing() {
    need_root!();
    let swaps: u32 = std::env::var("XDP_SWAPS").ok().map_or(200, |n| n.parse().unwrap());
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    let mut port = attach(near, None);
    let sent = namespace.under_load(&Traffic { rate: Some(5_000), ..Traffic::to(far) }, || {
        for round in 0..swaps {
            let owner = if round % 2 == 0 { Owner::Routed } else { Owner::Bridged };
            port.swap(port.prepare(&config(owner, WhenDown::Drop)).unwrap()).unwrap();
        }
    });
    assert!(sent > 0);
    let counters = port.counters().unwrap();
    assert_eq!((counters.get(Counter::DownDropped), counters.seen()), (sent, sent));
}

#[test]
fn hand_over_changes_nothing_on_the_device() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    let port = attach(near, None);
    let socket = Xsk::bound(near, 0);
    port.set_socket(0, socket.fd()).unwrap();
    let (link, constants) = (port.link_id(), port.constants());
    let hand_over = port.export();
    let wire = support::PacketSocket::on(far);
    let frame = frame4(LOCAL4, |_| {});
    wire.send(&frame);
    assert_eq!(support::awaited("steered between owners", || socket.receive()), frame);
    let taken = Attached::import(hand_over).unwrap();
    assert_eq!((taken.link_id(), taken.constants(), taken.mode()), (link, constants, xdp::Mode::Native));
    assert_eq!(taken.counters().unwrap().get(Counter::Steered), 1);
    wire.send(&frame);
    assert_eq!(support::awaited("steered to the successor", || socket.receive()), frame);
    drop(taken);
    eventually("gone with the successor", || xdp::inspect(near).unwrap().is_none());
}

#[test]
fn hand_over_of_something_else_is_refused() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let mut hand_over = attach(near, None).export();
    let HookDescriptors { link, xsks, .. } = &mut hand_over.descriptors;
    std::mem::swap(link, xsks);
    assert!(Attached::import(hand_over).is_err());
}

const HOLDER: &str = "XDP_TEST_HOLDER";

/// Not a test. Another test runs this function in a child process, which holds a port until the test kills the process.
#[test]
fn holder() {
    let Ok(order) = std::env::var(HOLDER) else { return };
    let (namespace, pin) = order.split_once(' ').unwrap();
    enter(namespace);
    let ifindex = namespace_index();
    let pin = (!pin.is_empty()).then(|| PinPath::new(pin).unwrap());
    let port = PortProgram::load(&bridged()).unwrap().attach(ifindex, AttachMode::Native, pin).unwrap();
    let socket = Xsk::bound(ifindex, 0);
    port.set_socket(0, socket.fd()).unwrap();
    println!("HOLDING");
    loop {
        std::thread::park();
    }
}

fn namespace_index() -> u32 {
    support::sh("ip -o link show dev vb").split(':').next().unwrap().parse().unwrap()
}

/// Starts a child process that runs [`holder`], and waits until the process holds the port.
fn start_holder(namespace: &str, pin: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holder", "--nocapture"])
        .env(HOLDER, format!("{namespace} {pin}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("HOLDING")), "the holder failed");
    child
}

#[test]
fn kill_removes_what_is_not_pinned() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (_, near) = namespace.veth("va", "vb", "");
    let mut holder = start_holder(&namespace.name, "");
    assert!(xdp::inspect(near).unwrap().is_some());
    holder.kill().unwrap();
    holder.wait().unwrap();
    eventually("the program is gone", || xdp::inspect(near).unwrap().is_none());
    attach(near, None).detach().unwrap();
}

#[test]
fn kill_leaves_what_is_pinned_and_when_down_decides() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (far, _near) = namespace.veth("va", "vb", "");
    let pin = Pin::new("kill");
    let name = pin.0.name().to_owned();
    let mut holder = start_holder(&namespace.name, &name);
    let mut generator = Generator::new(&Traffic::to(far)).unwrap();
    generator.send(10).unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    let port = adopt(&pin.0).unwrap().unwrap();
    assert_eq!(port.counters().unwrap().get(Counter::Steered), 10);
    // The socket of the dead process is closed by then, and its slot is empty. No frame reaches the kernel,
    // and no other counter changes.
    generator.send(10).unwrap();
    let counters = port.counters().unwrap();
    assert_eq!((counters.get(Counter::DownDropped), counters.seen()), (10, 20));
    assert!(PinPath::existing().unwrap().contains(&name));
    port.detach().unwrap();
    assert!(!pin.exists());
}
