//! Tests of connections for which the kernel has sockets, in the hook's network namespace and in another namespace.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::*;
use crate::support::{enter, eventually};

/// Runs `work` on a thread in a namespace.
fn inside<T: Send>(namespace: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    let run = || {
        enter(&namespace.name);
        work()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// Two connected namespaces: one with the service's addresses, and one with the addresses of the clients.
struct Rig {
    service: Namespace,
    clients: Namespace,
    listeners: BTreeMap<bool, TcpListener>,
}

/// An open connection of a client. Dropping the value closes the connection.
struct Open {
    data: Segment,
    _ends: (TcpStream, TcpStream),
}

impl Rig {
    /// Creates the namespaces. Moves the calling thread into the service's namespace if `is_near` is `true`, and
    /// otherwise into the clients' namespace.
    fn new(is_near: bool) -> Rig {
        let first = Namespace::enter_new();
        let second = Namespace::enter_new();
        enter(&first.name);
        first.ip(&format!("link add va type veth peer name vb netns {}", second.name));
        let (service, clients) = if is_near { (first, second) } else { (second, first) };
        let (inner, outer) = if is_near { ("va", "vb") } else { ("vb", "va") };
        for (namespace, device, v4, v6) in [
            (&service, inner, "192.0.2.80/32", "2001:db8::80/128"),
            (&clients, outer, "198.51.100.1/32", "2001:db8:9::1/128"),
        ] {
            namespace.ip(&format!("link set dev {device} up"));
            namespace.ip(&format!("address add {v4} dev {device}"));
            namespace.ip(&format!("address add {v6} dev {device} nodad"));
            namespace.ip(&format!("route add default dev {device}"));
            namespace.ip(&format!("-6 route add default dev {device}"));
        }
        let bind = |v6: bool| {
            let address: SocketAddr = if v6 { "[2001:db8::80]:80" } else { "192.0.2.80:80" }.parse().unwrap();
            (v6, TcpListener::bind(address).unwrap())
        };
        let listeners = inside(&service, || [false, true].map(bind).into());
        Rig { service, clients, listeners }
    }

    fn connect(&self, v6: bool) -> Open {
        let listener = &self.listeners[&v6];
        let to = listener.local_addr().unwrap();
        let near = inside(&self.clients, || TcpStream::connect_timeout(&to, Duration::from_secs(5)).unwrap());
        let far = listener.accept().unwrap().0;
        let port = near.local_addr().unwrap().port();
        let data = Segment { v6, port, flags: ACK | PSH, ack: 77, payload: 10, ..segment(ACK) };
        Open { data, _ends: (near, far) }
    }
}

/// Sends a SYN to the hook and completes the handshake if the hook answers. Returns whether the hook has answered. The
/// hook passes one SYN every 30 seconds without an answer, and therefore the SYN is repeated once.
fn shake_hands(hook: &Hook, syn: &Segment) -> bool {
    let (mut fate, mut frame) = hook.run(&syn.frame());
    if fate == Fate::On {
        (fate, frame) = hook.run(&syn.frame());
    }
    if fate == Fate::Answered {
        assert_eq!(hook.fate(&completing(syn, &read(&frame, syn))), Fate::On);
    }
    fate == Fate::Answered
}

/// Completes many more handshakes from one source prefix than the tables of connections have entries. Each connection
/// sends one more segment, because the kernel first evicts entries that were never looked up.
fn displace(hook: &Hook) {
    let connection = |port| {
        let syn = Segment { client: 77, port, ..segment(SYN) };
        shake_hands(hook, &syn) && hook.fate(&Segment { flags: ACK, ack: 1, ..syn }) == Fate::On
    };
    assert!((1..=1000).filter(|port| connection(*port)).count() > 500);
}

fn small(scheme: CookieScheme) -> Hook {
    let sizes = FilterSizes { clients: 64, ..FilterSizes::default() };
    let hook = hook_of(vec![service("web", scheme, Some(1))], sizes);
    for v6 in [false, true, false, true] {
        hook.fate(&Segment { v6, client: 200, ..segment(SYN) });
    }
    assert!(hook.counted("web").flood);
    hook
}

/// An idle connection continues after handshakes of another source have displaced its entry.
#[test]
fn handshakes_of_another_source_cut_off_no_idle_connection() {
    need_root!();
    let rig = Rig::new(true);
    let hook = small(cookie());
    for v6 in [false, true] {
        let idle = rig.connect(v6);
        let syn = Segment { flags: SYN, payload: 0, ack: 0, ..idle.data.clone() };
        assert!(shake_hands(&hook, &syn));
        assert_eq!(hook.fate(&idle.data), Fate::On);
        displace(&hook);
        let [.., refused, _, _] = hook.figures();
        for flags in [ACK, ACK | PSH, FIN | ACK, RST, RST | ACK] {
            displace(&hook);
            assert_eq!(hook.fate(&Segment { flags, ..idle.data.clone() }), Fate::On, "{flags:#x}");
        }
        let [.., still, _, _] = hook.figures();
        assert_eq!(still, refused, "none is counted as invalid");
    }
}

/// The hook drops a segment if the kernel has only a socket of another connection, or a listening socket.
#[test]
fn segments_without_a_socket_of_their_own_are_dropped() {
    need_root!();
    let rig = Rig::new(true);
    let hook = small(cookie());
    for v6 in [false, true] {
        let open = rig.connect(v6);
        let known = |flags| hook.fate(&Segment { flags, ..open.data.clone() });
        assert_eq!([0, FIN, PSH, SYN | ACK, SYN | RST, SYN | FIN].map(known), [Fate::Dropped; 6]);
        let port = open.data.port ^ 1;
        for other in [
            Segment { port, ..open.data.clone() },
            Segment { client: 77, ..open.data.clone() },
            Segment { to: 443, ..open.data.clone() },
        ] {
            assert_eq!(hook.fate(&other), Fate::Dropped);
        }
        assert_eq!(known(ACK), Fate::On);
        let ended = open.data.clone();
        let port = ended.port;
        drop(open);
        // The client's side is in TIME-WAIT, or both sides are gone.
        eventually("the service's socket is gone", || {
            displace(&hook);
            hook.fate(&Segment { port, ..ended.clone() }) == Fate::Dropped
        });
    }
}

/// The hook finds the network namespace of a service that is not in the hook's own namespace. The hook recognises the
/// namespace by a connection that has been open for some time.
#[test]
fn a_service_in_another_namespace_is_found() {
    need_root!();
    let rig = Rig::new(false);
    let hook = small(cookie());
    for v6 in [false, true] {
        let (idle, busy) = (rig.connect(v6), rig.connect(v6));
        assert_eq!(hook.fate(&idle.data), Fate::Dropped, "the namespace is not known yet");
        let syn = Segment { flags: SYN, payload: 0, ack: 0, ..busy.data.clone() };
        assert!(shake_hands(&hook, &syn));
        eventually("the namespace is found", || {
            hook.fate(&busy.data) == Fate::On && hook.fate(&idle.data) == Fate::On
        });
        assert!(hook.counted("web").flood, "the idle connection is not learned");
        displace(&hook);
        assert_eq!([&idle, &busy].map(|open| hook.fate(&open.data)), [Fate::On; 2]);
        assert_eq!(hook.fate(&Segment { port: 9, ..idle.data.clone() }), Fate::Dropped);
    }
    drop(rig.service);
}
