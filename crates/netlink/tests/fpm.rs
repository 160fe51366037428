//! Tests of FPM sessions between test clients and a follower (the threads that follow the routing state of a
//! namespace). The tests send messages in unusual orders and interrupt connections.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use netlink::fpm::speak::{Answer, Target, announce, answers, frame, next_hop, session, withdraw};
use netlink::{Change, Feed, FibOutcome, Follower, Fpm, FpmListener, FpmStatus, Limits, Mirror, Prefix};
use port::netns::Netns;
use sync::qsbr::Domain;
use testbed::{Lab, Namespace, eventually, require};

const BGP: u8 = 186;
const PATIENCE: Duration = Duration::from_secs(20);
const SETTLE: Duration = Duration::from_millis(400);

/// Test fixture: a namespace with a device and a neighbour, and the follower of the namespace's routing state.
struct Site {
    follower: Follower,
    address: SocketAddr,
    device: u32,
    /// Observations and settings of the callback: the watched prefix, how often there was no route to this prefix, and
    /// the prefixes that the callback refuses as if the tables were full.
    told: Arc<Mutex<Told>>,
    namespace: Namespace,
    _lab: Lab,
}

#[derive(Default)]
struct Told {
    times: usize,
    watched: Option<netlink::RouteKey<std::net::Ipv4Addr>>,
    absent: usize,
    full: Vec<netlink::TablePrefix>,
    found: Vec<netlink::TablePrefix>,
}

/// Creates a device with an address, and a neighbour on this device.
fn connected(namespace: &Namespace) {
    for line in [
        "link add e1 type veth peer name f1",
        "link set f1 up",
        "link set e1 up",
        "link set lo up",
        "addr add 192.0.2.1/24 dev e1",
        "neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev e1",
    ] {
        namespace.run(["ip"].into_iter().chain(line.split(' '))).unwrap();
    }
}

/// Returns an FPM configuration that permits connections from processes of the current user.
fn sessions(listener: FpmListener, routes: usize) -> Fpm {
    let users = vec![rustix::process::geteuid().as_raw()];
    Fpm { name: "edge".to_owned(), listener, settle: SETTLE, routes, users, remote: false }
}

impl Site {
    fn new(routes: usize) -> Site {
        let lab = Lab::new().unwrap();
        let namespace = lab.namespace("router").unwrap();
        connected(&namespace);
        let told = Arc::<Mutex<Told>>::default();
        let to = Arc::clone(&told);
        let tell = move |mirror: &Mirror, _: &[Change]| {
            let mut told = to.lock().unwrap();
            told.times += 1;
            if let Some(key) = told.watched {
                told.absent += usize::from(mirror.routes4.get(&key).is_none());
            }
            FibOutcome { refused: told.full.clone(), found: std::mem::take(&mut told.found) }
        };
        let netns = Netns::Path(namespace.path());
        let listener = FpmListener::bind(Some(&netns), "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address();
        let fpm = sessions(listener, routes);
        let follower = Follower::start_with_fpm(Some(&netns), 8 << 20, fpm, tell).unwrap();
        let device = follower
            .look(|mirror| mirror.links.values().find(|link| link.name == "e1").map(|link| link.index));
        let device = device.unwrap().unwrap();
        Site { follower, address, device, told, namespace, _lab: lab }
    }

    fn connect(&self) -> TcpStream {
        let address = self.address;
        let stream = self.namespace.inside(move || Ok(TcpStream::connect(address).unwrap())).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn via(&self) -> Target {
        Target::Via("192.0.2.2".parse().unwrap(), self.device)
    }

    /// Returns the prefixes of FRR's routes.
    fn routes(&self) -> BTreeSet<String> {
        let all = self.follower.look(|mirror| {
            let own = mirror.routes4.iter().filter(|(_, paths)| paths.first().unwrap().protocol == BGP);
            own.map(|(key, _)| key.prefix.to_string()).collect()
        });
        all.unwrap()
    }

    fn status(&self) -> FpmStatus {
        self.follower.fpm().unwrap()
    }

    fn until(&self, what: &str, reached: impl Fn(&FpmStatus) -> bool) -> FpmStatus {
        eventually(what, PATIENCE, || {
            let status = self.status();
            if reached(&status) { Ok(status) } else { Err(format!("{status:?}")) }
        })
        .unwrap()
    }

    fn until_routes(&self, wanted: &[&str]) {
        let wanted: BTreeSet<String> = wanted.iter().map(|prefix| (*prefix).to_owned()).collect();
        eventually("the routes", PATIENCE, || {
            let routes = self.routes();
            if routes == wanted { Ok(()) } else { Err(format!("{routes:?}")) }
        })
        .unwrap();
    }
}

fn prefix(text: &str) -> Prefix<IpAddr> {
    let (address, length) = text.split_once('/').unwrap();
    Prefix { address: address.parse().unwrap(), length: length.parse().unwrap() }
}

/// Reads answers until there is an answer about each of `count` routes. Returns the last answer about each route.
fn read_answers(stream: &mut TcpStream, count: usize) -> BTreeMap<String, Answer> {
    let (mut bytes, mut read, mut chunk) = (Vec::new(), Vec::new(), vec![0; 1 << 16]);
    let mut last = BTreeMap::new();
    while last.len() < count {
        let more = stream.read(&mut chunk).unwrap();
        assert!(more > 0, "the session has ended after {last:?}");
        bytes.extend_from_slice(&chunk[..more]);
        let taken = answers(&bytes, &mut read).unwrap();
        bytes.drain(..taken);
        last.extend(read.drain(..).map(|one| (one.prefix.to_string(), one)));
    }
    last
}

/// Waits until the peer has closed the connection.
fn until_closed(stream: &mut TcpStream) {
    let mut chunk = vec![0; 1 << 16];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) => panic!("still open: {error}"),
        }
    }
}

#[test]
fn routes_come_by_sessions_and_stay_when_these_are_lost() {
    require!("ip");
    let site = Site::new(1000);
    // The kernel's copies of FRR's routes are used at first. Routes of other origins are kept.
    for line in ["10.9.0.0/16 via 192.0.2.2 proto bgp metric 20", "10.8.0.0/16 via 192.0.2.2 proto static"] {
        site.namespace.run(["ip", "route", "add"].into_iter().chain(line.split(' '))).unwrap();
    }
    site.follower.settle().unwrap();
    site.until_routes(&["10.9.0.0/16"]);
    let mut one = site.connect();
    let first = ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"];
    one.write_all(&session([], first.map(prefix), |_| site.via())).unwrap();
    let said = read_answers(&mut one, 3);
    assert!(said.values().all(|one| one.offloaded && one.table == 254 && one.protocol == BGP), "{said:?}");
    site.until_routes(&["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.9.0.0/16"]);
    let status = site.until("a whole replay", |status| !status.replaying);
    assert_eq!((status.sessions, status.messages, status.swept, status.answers), (1, 3, 1, 3));
    assert!(status.peer.is_some());
    site.until_routes(&first);
    // The next session is lost during its replay, which has another order and other routes.
    drop(one);
    let mut two = site.connect();
    two.write_all(&session([], ["10.4.0.0/16", "10.1.0.0/16"].map(prefix), |_| site.via())).unwrap();
    read_answers(&mut two, 2);
    drop(two);
    site.until("the end", |status| status.peer.is_none() && status.sessions == 2);
    std::thread::sleep(SETTLE * 2);
    site.until_routes(&["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"]);
    // There is no drift: routes of sessions are not compared with the kernel, and the kernel's copies are
    // ignored.
    assert_eq!(site.follower.check().unwrap().changes, []);
    site.namespace.run(["ip", "route", "del", "10.9.0.0/16"]).unwrap();
    site.namespace.run(["ip", "route", "add", "10.7.0.0/16", "via", "192.0.2.2", "proto", "bgp"]).unwrap();
    site.follower.settle().unwrap();
    assert_eq!(site.follower.check().unwrap().changes, []);
    let mut three = site.connect();
    three.write_all(&session([], ["10.1.0.0/16", "10.5.0.0/16"].map(prefix), |_| site.via())).unwrap();
    site.until_routes(&["10.1.0.0/16", "10.5.0.0/16"]);
    let status = site.until("a whole replay", |status| !status.replaying);
    assert_eq!((status.swept, status.sessions), (4, 3));
    let others =
        site.follower.look(|mirror| mirror.routes4.iter().filter(|(key, _)| key.table == 254).count());
    assert_eq!(others.unwrap(), 4, "the kernel's own, the static one and two by BGP");
}

#[test]
fn who_says_nothing_takes_nothing_away_and_the_last_to_come_counts() {
    require!("ip");
    let site = Site::new(1000);
    let mut one = site.connect();
    one.write_all(&session([], ["10.1.0.0/16".to_owned()].map(|text| prefix(&text)), |_| site.via()))
        .unwrap();
    site.until("a whole replay", |status| !status.replaying && status.messages == 1);
    // zebra has ended, and the next session is accepted.
    drop(one);
    let mut two = site.connect();
    site.until("the other", |status| status.sessions == 2 && status.ended.is_some());
    std::thread::sleep(SETTLE * 3);
    assert!(site.status().replaying, "nothing was replayed");
    site.until_routes(&["10.1.0.0/16"]);
    two.write_all(&frame([announce(prefix("10.2.0.0/16"), BGP, &site.via())])).unwrap();
    site.until_routes(&["10.2.0.0/16"]);
}

#[test]
fn a_bad_message_ends_the_session_and_nothing_else() {
    require!("ip");
    let site = Site::new(1000);
    let mut one = site.connect();
    let mut bytes = frame([announce(prefix("10.1.0.0/16"), BGP, &site.via())]);
    let good = bytes.len();
    bytes.extend(frame([announce(prefix("10.2.0.0/16"), BGP, &site.via())]));
    bytes[good + 21] = 99;
    one.write_all(&bytes).unwrap();
    until_closed(&mut one);
    let status = site.until("the end", |status| status.peer.is_none());
    let ended = status.ended.unwrap();
    assert!(ended.contains(&format!("at byte {}: a message of type 24", good + 4)), "{ended}");
    site.until_routes(&["10.1.0.0/16"]);
    let mut two = site.connect();
    two.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    until_closed(&mut two);
    let status = site.until("the end", |status| status.sessions == 2 && status.peer.is_none());
    assert!(status.ended.unwrap().contains("version 71"));
}

#[test]
fn a_route_that_is_replaced_is_there_all_the_time() {
    require!("ip");
    let site = Site::new(1000);
    let mut one = site.connect();
    one.write_all(&frame([announce(prefix("10.1.0.0/16"), BGP, &site.via())])).unwrap();
    site.until_routes(&["10.1.0.0/16"]);
    let key = site.follower.look(|mirror| {
        mirror.routes4.iter().map(|(key, _)| *key).find(|key| key.prefix.to_string() == "10.1.0.0/16")
    });
    site.told.lock().unwrap().watched = key.unwrap();
    one.set_nodelay(true).unwrap();
    // On a busy machine, the pause is sometimes longer than the time that a deletion waits for its
    // replacement.
    let mut late = 0;
    for round in 0..300_u32 {
        let device =
            Target::Via(IpAddr::from([192, 0, 2, u8::try_from(round % 250).unwrap() + 3]), site.device);
        let (gone, new) =
            (withdraw(prefix("10.1.0.0/16"), BGP), announce(prefix("10.1.0.0/16"), BGP, &device));
        if round % 2 == 0 {
            // Both messages in one frame, like zebra.
            one.write_all(&frame([gone, new])).unwrap();
        } else {
            // Separate frames, with a pause between them.
            let begin = Instant::now();
            one.write_all(&frame([gone])).unwrap();
            std::thread::sleep(Duration::from_micros(u64::from(round)));
            one.write_all(&frame([new])).unwrap();
            late += usize::from(begin.elapsed() > Duration::from_millis(4));
        }
    }
    site.until("all of it", |status| status.messages == 601);
    site.follower.settle().unwrap();
    let told = site.told.lock().unwrap();
    assert!(told.times > 50, "told {} times", told.times);
    let before = told.absent;
    assert!(before <= late && late < 30, "{before} of {} times, {late} of them late", told.times);
    drop(told);
    one.write_all(&frame([withdraw(prefix("10.1.0.0/16"), BGP)])).unwrap();
    site.until_routes(&[]);
    assert_eq!(site.told.lock().unwrap().absent, before + 1);
}

#[test]
fn what_finds_no_room_is_answered_so() {
    require!("ip");
    // Five routes are the kernel's own.
    let site = Site::new(7);
    let own = site.follower.look(|mirror| mirror.routes4.len() + mirror.routes6.len()).unwrap();
    let mut one = site.connect();
    let all: Vec<String> = (0..10).map(|number| format!("10.{number}.0.0/16")).collect();
    one.write_all(&session([], all.iter().map(|text| prefix(text)), |_| site.via())).unwrap();
    let said = read_answers(&mut one, 10);
    let good = said.values().filter(|one| one.offloaded).count();
    assert_eq!((good, site.routes().len()), (7 - own, 7 - own), "beside {own}");
    assert_eq!(site.status().refused, 10 - good as u64);
    // Routes that the workers' tables refuse are answered as refused as well.
    site.told.lock().unwrap().full.push((254, prefix("10.0.0.0/16")));
    one.write_all(&frame([
        withdraw(prefix("10.0.0.0/16"), BGP),
        announce(prefix("10.0.0.0/16"), BGP, &Target::Nowhere(6)),
    ]))
    .unwrap();
    assert!(!read_answers(&mut one, 1)["10.0.0.0/16"].offloaded);
    // When space is available later, another answer is sent.
    {
        let mut told = site.told.lock().unwrap();
        told.full.clear();
        told.found.push((254, prefix("10.0.0.0/16")));
    }
    site.namespace.run(["ip", "route", "add", "198.51.100.0/24", "via", "192.0.2.2"]).unwrap();
    assert!(read_answers(&mut one, 1)["10.0.0.0/16"].offloaded);
}

#[test]
fn who_does_not_read_its_answers_is_sent_away() {
    require!("ip");
    let site = Site::new(100);
    let mut one = site.connect();
    one.set_write_timeout(Some(PATIENCE)).unwrap();
    // More routes than the limit, each of which is answered as refused.
    let begun = Instant::now();
    let mut number = 0_u32;
    let ended = loop {
        let some = (0..1000).map(|_| {
            number += 1;
            announce(
                Prefix { address: IpAddr::from((0x0a00_0000 + number).to_be_bytes()), length: 32 },
                BGP,
                &site.via(),
            )
        });
        let bytes: Vec<u8> = some.flat_map(|message| frame([message])).collect();
        if let Err(error) = one.write_all(&bytes) {
            break error;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{number} announcements without an end");
    };
    assert!(matches!(ended.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{ended}");
    let status = site.until("the end", |status| status.peer.is_none());
    assert!(status.ended.unwrap().contains("does not read its answers"));
    let mut two = site.connect();
    two.write_all(&frame([announce(prefix("10.0.0.1/32"), BGP, &site.via())])).unwrap();
    assert!(read_answers(&mut two, 1)["10.0.0.1/32"].offloaded);
}

#[test]
fn an_address_that_is_taken_is_named_and_waited_for() {
    require!("ip");
    let lab = Lab::new().unwrap();
    let namespace = lab.namespace("router").unwrap();
    namespace.run(["ip", "link", "set", "lo", "up"]).unwrap();
    let netns = Netns::Path(namespace.path());
    let taken = FpmListener::bind(Some(&netns), "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = taken.address();
    let refused = FpmListener::bind(Some(&netns), address).unwrap_err().to_string();
    assert!(refused.contains(&address.to_string()) && refused.contains("in use"), "{refused}");
    let listener = FpmListener::later(Some(&netns), address);
    let fpm = sessions(listener, 10);
    let follower =
        Follower::start_with_fpm(Some(&netns), 1 << 20, fpm, |_, _| FibOutcome::default()).unwrap();
    let trouble = || follower.fpm().unwrap().trouble;
    eventually("the trouble is told", PATIENCE, || trouble().ok_or_else(String::new)).unwrap();
    drop(taken);
    eventually("it listens", PATIENCE, || trouble().map_or(Ok(()), Err)).unwrap();
    // A second follower uses the socket while the first one still exists.
    let listener = follower.listener().unwrap();
    assert_eq!(listener.address(), address);
    let fpm = sessions(listener, 10);
    let other = Follower::start_with_fpm(Some(&netns), 1 << 20, fpm, |_, _| FibOutcome::default()).unwrap();
    drop(follower);
    let _stream = namespace.inside(move || Ok(TcpStream::connect(address).unwrap())).unwrap();
    eventually("a session", PATIENCE, || {
        if other.fpm().unwrap().sessions == 1 { Ok(()) } else { Err(String::new()) }
    })
    .unwrap();
}

/// Measures the time to load a million routes into a router's tables, and the time to apply a hundred thousand changes.
/// Prints the durations with `--nocapture`.
#[test]
#[ignore = "takes memory and time, and wants an idle machine: `cargo test --release -p netlink --test fpm -- --ignored --nocapture`"]
fn a_full_table_is_there_in_seconds() {
    require!("ip");
    let Some(real) = testbed::real_prefixes() else { return };
    let mut prefixes: Vec<Prefix<IpAddr>> = real.lines().map(prefix).collect();
    prefixes.truncate(1_000_000);
    let lab = Lab::new().unwrap();
    let namespace = lab.namespace("router").unwrap();
    connected(&namespace);
    let netns = Netns::Path(namespace.path());
    let listener = FpmListener::bind(Some(&netns), "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address();
    let domain = Domain::new();
    let limits = Limits { words: 1 << 23, routes: 4_000_000, paths: 65_536, neighbours: 65_536 };
    let feed = Arc::new(Mutex::new(Feed::new(&domain, limits, 1)));
    let fed = Arc::clone(&feed);
    let fpm = sessions(listener, 2_000_000);
    let follower = Follower::start_with_fpm(Some(&netns), 8 << 20, fpm, move |mirror, changes| {
        let mut feed = fed.lock().unwrap();
        feed.apply(mirror, changes);
        feed.take_outcome()
    })
    .unwrap();
    let device = follower.look(|mirror| mirror.links.values().find(|link| link.name == "e1").unwrap().index);
    let device = device.unwrap();
    let gateway = |number: u32| IpAddr::from([192, 0, 2, u8::try_from(2 + number).unwrap()]);
    let objects = (0..64).map(|number| next_hop(number + 1, gateway(number), device));
    let target = |place: usize| Target::Object(u32::try_from(place % 64).unwrap() + 1);
    let table = session(objects, prefixes.iter().copied(), target);
    let change = |place: usize| {
        let target = Target::Object(u32::try_from(place % 63).unwrap() + 1);
        frame([withdraw(prefixes[place], BGP), announce(prefixes[place], BGP, &target)])
    };
    let changes: Vec<u8> =
        (0..prefixes.len()).step_by(prefixes.len() / 100_000).take(100_000).flat_map(change).collect();
    let mut stream = namespace.inside(move || Ok(TcpStream::connect(address).unwrap())).unwrap();
    let mut reading = stream.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let (mut chunk, mut all) = (vec![0; 1 << 20], 0_usize);
        while let Ok(more @ 1..) = reading.read(&mut chunk) {
            all += more;
        }
        all
    });
    let mut took = Vec::new();
    let mut messages = 0;
    for (what, bytes, more) in [("routes", &table, prefixes.len() + 64), ("changes", &changes, 200_000)] {
        messages += more as u64;
        let begun = Instant::now();
        stream.write_all(bytes).unwrap();
        while follower.fpm().unwrap().messages < messages {
            std::thread::sleep(Duration::from_millis(1));
        }
        // All messages read have been applied and reported.
        follower.settle().unwrap();
        took.push(begun.elapsed());
        println!("{what}: {} MB in {:?}", bytes.len() >> 20, took[took.len() - 1]);
    }
    let held = follower.look(Mirror::announced).unwrap();
    assert_eq!(held, prefixes.len() as u64);
    let feed = feed.lock().unwrap();
    let fib = feed.table(254).unwrap();
    assert!(fib.len() >= prefixes.len() && feed.refused() == 0);
    let gone = prefixes.iter().step_by(1000).filter(|prefix| fib.why(prefix.address).is_none()).count();
    drop(stream);
    drop(follower);
    println!("answers: {} MB", reader.join().unwrap() >> 20);
    assert_eq!(gone, 0);
    assert!(took[0] < Duration::from_secs(5) && took[1] < Duration::from_secs(1), "{took:?}");
}

/// Opens connections in a loop, so that at all times a connection waits to be accepted by the listener.
fn flood(address: SocketAddr, ended: &std::sync::atomic::AtomicBool) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
    let mut under_way = std::collections::VecDeque::new();
    while !ended.load(std::sync::atomic::Ordering::Relaxed) {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, None);
        let Ok(socket) = socket else { continue };
        // The connection is in progress, or no port is free.
        let _ = connect(&socket, &address);
        under_way.push_back(socket);
        if under_way.len() > 200 {
            under_way.pop_front();
        }
    }
}

/// Checks that a flood of refused connections delays neither the open FPM session nor the end of the follower.
#[test]
fn a_flood_of_connections_leaves_the_session_its_turn() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let site = Site::new(1000);
    let mut session = site.connect();
    site.until("a session", |status| status.sessions == 1 && status.peer.is_some());
    let (address, ended) = (site.address, Arc::<AtomicBool>::default());
    let floods: Vec<_> = (0..2)
        .map(|_| {
            let (namespace, ended) = (site.namespace.path(), Arc::clone(&ended));
            std::thread::spawn(move || port::netns::within(namespace, || flood(address, &ended)).unwrap())
        })
        .collect();
    for number in 0..20 {
        let network = format!("10.{number}.0.0/16");
        session.write_all(&frame([announce(prefix(&network), BGP, &site.via())])).unwrap();
        site.until("it is announced", |status| status.messages > number);
    }
    eventually("the routes", PATIENCE, || {
        let routes = site.routes();
        if routes.len() == 20 { Ok(()) } else { Err(format!("{routes:?}")) }
    })
    .unwrap();
    let Site { follower, .. } = site;
    // Dropping the follower waits for its threads.
    drop(follower);
    ended.store(true, Ordering::Relaxed);
    floods.into_iter().for_each(|flood| flood.join().unwrap());
}

/// Checks that connections from processes of other users are refused, and that a new connection does not end an open
/// session.
#[test]
fn a_session_is_not_displaced_and_other_users_are_refused() {
    use std::os::unix::process::CommandExt;
    let site = Site::new(1000);
    let mut first = site.connect();
    site.until("a session", |status| status.sessions == 1 && status.peer.is_some());
    first.write_all(&frame([announce(prefix("10.1.0.0/16"), BGP, &site.via())])).unwrap();
    site.until_routes(&["10.1.0.0/16"]);
    let closed = |mut stream: TcpStream| {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).map_or(true, |read| read == 0)
    };
    assert!(closed(site.connect()), "a newcomer is refused");
    let address = site.address;
    let stranger = move || {
        let text =
            format!("exec 3<>/dev/tcp/{}/{}; read -t 10 <&3; echo closed", address.ip(), address.port());
        let shell = std::process::Command::new("bash").args(["-c", &text]).uid(65534).gid(65534).output();
        Ok(String::from_utf8_lossy(&shell.unwrap().stdout).into_owned())
    };
    assert_eq!(site.namespace.inside(stranger).unwrap(), "closed\n");
    let status = site.status();
    assert_eq!((status.sessions, status.ended), (1, None));
    first.write_all(&frame([announce(prefix("10.2.0.0/16"), BGP, &site.via())])).unwrap();
    site.until_routes(&["10.1.0.0/16", "10.2.0.0/16"]);
    // A session that its peer has closed is replaced, regardless of unread data.
    drop(first);
    let _second = site.connect();
    site.until("the next session", |status| status.sessions == 2 && status.peer.is_some());
}
