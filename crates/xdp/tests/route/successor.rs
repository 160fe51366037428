//! Tests of the hooks (XDP programs) that a killed daemon leaves attached, and of their adoption by a successor
//! process.

use super::*;

const HOLDER: &str = "XDP_TEST_ROUTE_HOLDER";

/// Not a test. Another test runs this function in a child process, which holds two ports of one router until the test
/// kills the process.
#[test]
fn holder() {
    let Ok(order) = std::env::var(HOLDER) else { return };
    let words: Vec<&str> = order.split(' ').collect();
    enter(words[0]);
    let own = own();
    let stage = RouteStage::new(&PORT, &own);
    let ports = ["vb", "vd"].into_iter().zip(&words[1..]).map(|(device, pin)| {
        let index = sh(&format!("ip -o link show dev {device}")).split(':').next().unwrap().parse().unwrap();
        let loaded = PortProgram::load_routed(&config(Owner::Routed, WhenDown::Drop), &stage).unwrap();
        loaded.attach(index, AttachMode::Native, Some(PinPath::new(pin).unwrap())).unwrap()
    });
    let _ports: Vec<Attached> = ports.collect();
    println!("HOLDING");
    loop {
        std::thread::park();
    }
}

fn start_holder(order: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "successor::holder", "--nocapture"])
        .env(HOLDER, order)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("HOLDING")), "the holder failed");
    child
}

/// A pin directory that is removed when the value is dropped.
struct Pin(PinPath);

impl Drop for Pin {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.directory());
    }
}

#[test]
fn a_killed_routers_ports_go_on_and_a_successor_finds_its_addresses() {
    need_root!();
    let (namespace, va, _) = veth();
    let (vc, _) = namespace.veth("vc", "vd", "");
    let pins = ["one", "two"]
        .map(|which| Pin(PinPath::new(&format!("xdp-route-{}-{which}", std::process::id())).unwrap()));
    let [one, two] = [pins[0].0.name(), pins[1].0.name()];
    let mut holder = start_holder(&format!("{} {one} {two}", namespace.name));
    holder.kill().unwrap();
    holder.wait().unwrap();
    // No process serves the ports, and packets for the kernel still go to the kernel.
    let wires = [PacketSocket::on(va), PacketSocket::on(vc)];
    let (local, transit) = (ipv4(OWN4, 60, |_| ()), ipv4(BEHIND, 60, |_| ()));
    for wire in &wires {
        [&local, &transit].into_iter().for_each(|frame| wire.send(frame));
    }
    let mut ports = [&pins[0], &pins[1]].map(|pin| adopt(&pin.0).unwrap().unwrap());
    let reads = |port: &Attached, way| port.counters().unwrap().get(way);
    for port in &ports {
        eventually("passed and dropped", || {
            (reads(port, Counter::PassedLocal4), reads(port, Counter::DownDropped)) == (1, 1)
        });
        assert_eq!(port.constants().owner, Owner::Routed);
    }
    let mut own = Own::of(&ports[0], "blue").unwrap().unwrap();
    assert_eq!((own.addresses(), own.router()), (&addresses(), "blue"));
    for port in &ports {
        assert!(port.route().unwrap().is_for(&PORT, &own).unwrap(), "both read the same");
        assert!(!port.route().unwrap().is_for(&VRRP, &own).unwrap());
        assert!(!port.route().unwrap().is_for(&PORT, &Own::new("blue").unwrap()).unwrap());
    }
    // Changes by the successor apply to both ports, before and after it replaces the programs.
    own.replace_all(&[BEHIND.into(), OWN6.into()].into()).unwrap();
    for swap in [false, true] {
        for (port, wire) in ports.iter_mut().zip(&wires) {
            if swap {
                port.swap(port.prepare(&config(Owner::Routed, WhenDown::Drop)).unwrap()).unwrap();
            }
            let before = (reads(port, Counter::PassedLocal4), reads(port, Counter::DownDropped));
            [&local, &transit].into_iter().for_each(|frame| wire.send(frame));
            eventually("the other way round", || {
                (reads(port, Counter::PassedLocal4), reads(port, Counter::DownDropped))
                    == (before.0 + 1, before.1 + 1)
            });
        }
    }
    let none = PortProgram::load(&config(Owner::Routed, WhenDown::Drop)).unwrap();
    let (_, other) = namespace.veth("ve", "vf", "");
    let plain = none.attach(other, AttachMode::Native, None).unwrap();
    assert!(Own::of(&plain, "blue").unwrap().is_none());
    for port in ports {
        port.detach().unwrap();
    }
}
