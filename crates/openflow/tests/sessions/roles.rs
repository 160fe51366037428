//! Tests of controller roles, and of the asynchronous messages that controllers receive in each role.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_one_master_and_slaves_look_only() {
    let (bridge, controllers, listeners) = controlled(|_| {}).await;
    let mut one = accept(&listeners[0], 5).await;
    let mut two = accept(&listeners[1], 5).await;
    assert_eq!(one.role(2, 10).await.2[..4], [0, 0, 0, 2]);
    assert_eq!(two.role(2, 11).await.2[..4], [0, 0, 0, 2]);
    // OpenFlow 1.4 reports the demotion.
    assert_eq!(one.wait_for(30).await.2[..5], [0, 0, 0, 3, 0]);
    assert_eq!(error(&one.role(2, 10).await), (11, 0), "stale");
    one.stream.write_all(&flow_mod(Version::V14, 1)).await.unwrap();
    assert_eq!(error(&one.wait_for(1).await), (1, 10), "a slave changes nothing");
    two.stream.write_all(&flow_mod(Version::V14, 1)).await.unwrap();
    assert!(two.until_barrier().await.is_empty());
    assert_eq!(bridge.lock().flows.len(), 1);
    // Packets are sent to the master only, and port status messages to both.
    bridge.packet(1, &[0; 60], Reason::Action, 0xffff);
    let desc = bridge.lock().ports[0].clone();
    bridge.tell(&switch::flow::Event::Port(2, desc));
    assert_eq!(two.wait_for(10).await.0, 10);
    let told = loop {
        let message = one.next().await;
        assert_ne!(message.0, 10, "a slave gets no packets");
        if message.0 == 12 {
            break message;
        }
    };
    assert_eq!(told.2[0], 2);
    assert_eq!(one.role(0, 0).await.2[..4], [0, 0, 0, 3], "asking changes nothing");
    controllers.shutdown().await;
}

/// Sends a barrier request that the bridge does not complete while `waits` is true. Returns when the session waits for
/// the barrier and has received the messages `behind`, which it processes after the barrier.
async fn hold_up(bridge: &Memory, peer: &mut Peer, behind: &[u8]) {
    bridge.waits.store(true, Ordering::Relaxed);
    peer.send(20, 1, &[]).await;
    peer.stream.write_all(behind).await.unwrap();
    // An echo request is answered before the earlier requests.
    peer.send(2, 9, &[]).await;
    let reply = peer.wait_for(3).await;
    assert_eq!(reply.1, 9);
}

/// Sends more port events than fit into the queue of a session that is held up. `other` reads all of them.
async fn fill_queue(bridge: &Memory, other: &mut Peer) {
    let desc = bridge.lock().ports[0].clone();
    for _ in 0..11 {
        (0..100).for_each(|_| bridge.tell(&switch::flow::Event::Port(2, desc.clone())));
        for _ in 0..100 {
            assert_eq!(other.next().await.0, 12);
        }
    }
}

/// Returns the status of the controller that listens here.
fn status_at(controllers: &Controllers, listener: &TcpListener) -> openflow::Status {
    let address = Address::Tcp(listener.local_addr().unwrap());
    controllers.status().into_iter().find(|status| status.address == address).unwrap()
}

/// Checks that a controller receives no report of a demotion if it has become the master again before the report.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_is_master_again_hears_of_no_demotion() {
    let (bridge, controllers, listeners) = controlled(|_| {}).await;
    let mut one = accept(&listeners[0], 5).await;
    let mut two = accept(&listeners[1], 5).await;
    assert_eq!(one.role(2, 10).await.2[..4], [0, 0, 0, 2]);
    let again = one.message(24, 7, &[0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12]);
    hold_up(&bridge, &mut one, &again).await;
    assert_eq!(two.role(2, 11).await.2[..4], [0, 0, 0, 2]);
    bridge.waits.store(false, Ordering::Relaxed);
    assert_eq!(one.next().await.0, 21);
    let reply = one.next().await;
    assert_eq!((reply.0, &reply.2[..4]), (25, &[0, 0, 0, 2][..]));
    assert_eq!(two.wait_for(30).await.2[..5], [0, 0, 0, 3, 0]);
    assert_eq!(one.until_barrier().await, []);
    let status = status_at(&controllers, &listeners[0]);
    assert_eq!(status.role, openflow::Role::Master);
    controllers.shutdown().await;
}

/// Checks that a demotion is reported even if it occurs while the queue of the session is full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_loses_no_demotion() {
    let (bridge, controllers, listeners) = controlled(|_| {}).await;
    let mut one = accept(&listeners[0], 5).await;
    let mut two = accept(&listeners[1], 5).await;
    assert_eq!(one.role(2, 10).await.2[..4], [0, 0, 0, 2]);
    assert_eq!(two.role(0, 0).await.2[..4], [0, 0, 0, 1]);
    hold_up(&bridge, &mut one, &[]).await;
    fill_queue(&bridge, &mut two).await;
    assert_eq!(two.role(2, 11).await.2[..4], [0, 0, 0, 2]);
    bridge.waits.store(false, Ordering::Relaxed);
    assert_eq!(one.wait_for(30).await.2[..5], [0, 0, 0, 3, 0]);
    controllers.shutdown().await;
}

/// Checks that the status counts the lost messages of a session that is still connected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn losses_of_a_connected_session_are_counted() {
    let (bridge, controllers, listeners) = controlled(|_| {}).await;
    let mut one = accept(&listeners[0], 5).await;
    let mut two = accept(&listeners[1], 5).await;
    assert_eq!(two.role(0, 0).await.2[..4], [0, 0, 0, 1]);
    hold_up(&bridge, &mut one, &[]).await;
    fill_queue(&bridge, &mut two).await;
    let status = status_at(&controllers, &listeners[0]);
    assert!(status.connected);
    assert_eq!(status.lost, 1100 - 1024);
    controllers.shutdown().await;
}

/// Checks that the status counts the events that did not fit into the queue of the bridge.
#[test]
fn losses_of_the_queue_of_the_bridge_are_counted() {
    const EVENTS: u64 = 6000;
    // With one thread, the connection manager receives no event while the bridge queues events.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (bridge, controllers, listeners) = controlled(|_| {}).await;
        let mut peer = accept(&listeners[0], 5).await;
        assert!(peer.until_barrier().await.is_empty());
        let desc = bridge.lock().ports[0].clone();
        (0..EVENTS).for_each(|_| bridge.tell(&switch::flow::Event::Port(2, desc.clone())));
        let mut received = 0;
        loop {
            let lost: u64 = controllers.status().iter().map(|status| status.lost).sum();
            if received + lost >= EVENTS {
                break;
            }
            assert_eq!(peer.next().await.0, 12, "{received} received, {lost} lost");
            received += 1;
        }
        assert!(received < 4096 + 1, "{received} received");
        controllers.shutdown().await;
    });
}

/// Checks that a new client of a listener does not change the role that the status of the listener shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_role_of_a_listener_is_that_of_the_oldest_session() {
    let (_bridge, controllers, at) = listening().await;
    let role = || controllers.status()[0].role;
    let mut oldest = Peer::connect(at, 5).await;
    assert_eq!(oldest.role(2, 10).await.2[..4], [0, 0, 0, 2]);
    assert_eq!(role(), openflow::Role::Master);
    let mut other = Peer::connect(at, 5).await;
    assert!(other.until_barrier().await.is_empty());
    assert_eq!(role(), openflow::Role::Master);
    assert_eq!(other.role(3, 11).await.2[..4], [0, 0, 0, 3]);
    assert_eq!(role(), openflow::Role::Master);
    drop(oldest);
    eventually("the other is the oldest", || role() == openflow::Role::Slave).await;
    controllers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_are_cut_limited_and_lost_without_harm_to_others() {
    let (bridge, controllers, listeners) = controlled(|target| target.rate_limit = Some((1, 5))).await;
    let mut slow = accept(&listeners[0], 4).await;
    let mut other = accept(&listeners[1], 4).await;
    eventually("both", || controllers.status().iter().all(|status| status.connected)).await;
    for _ in 0..50 {
        bridge.packet(1, &[9; 1000], Reason::Action, 100);
    }
    // A burst of five packets, and further packets after whole seconds. Five more packets wait.
    let packets: Vec<Message> = other.until_barrier().await.into_iter().filter(|it| it.0 == 10).collect();
    eventually("the rest is counted", || controllers.status().iter().all(|status| status.lost >= 38)).await;
    assert!(packets.len() <= 7, "{}", packets.len());
    let first = slow.wait_for(10).await;
    assert_eq!(u16::from_be_bytes([first.2[4], first.2[5]]), 1000, "whole length");
    assert!(first.2.ends_with(&[9; 100]) && !first.2.ends_with(&[9; 101]));
    // The waiting packets follow without another event.
    slow.wait_for(10).await;
    for _ in 0..5 {
        slow.wait_for(10).await;
    }
    controllers.shutdown().await;

    // A controller that does not read.
    let (bridge, controllers, listeners) = controlled(|_| {}).await;
    let _deaf = accept(&listeners[0], 4).await;
    let mut other = accept(&listeners[1], 4).await;
    eventually("both", || controllers.status().iter().all(|status| status.connected)).await;
    let frame = vec![1; 60_000];
    for _ in 0..400 {
        bridge.packet(1, &frame, Reason::Action, 0xffff);
        assert_eq!(other.wait_for(10).await.2.len() - 60_000, other_parts());
    }
    controllers.shutdown().await;
}

/// A flood of packets from one port displaces no packet-in from another port, even if the controller has a rate limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_from_one_port_displaces_no_packet_in_of_another() {
    const QUIET: usize = 20;
    let (bridge, controllers, listeners) = controlled(|target| target.rate_limit = Some((200, 50))).await;
    let mut peer = accept(&listeners[0], 1).await;
    eventually("connected", || controllers.status().iter().any(|status| status.connected)).await;
    let lost = || controllers.status().iter().map(|status| status.lost).sum::<u64>();
    // The packets of the quiet port come between those of the flood.
    for number in 0..QUIET {
        let before = lost();
        (0..100).for_each(|_| bridge.packet(1, &[9; 60], Reason::Action, 0xffff));
        bridge.packet(2, &[u8::try_from(number).unwrap(); 61], Reason::Action, 0xffff);
        (0..100).for_each(|_| bridge.packet(1, &[9; 60], Reason::Action, 0xffff));
        eventually("the flood is dropped", || lost() > before + 50).await;
    }
    let (mut quiet, mut flood) = (0, 0);
    while quiet < QUIET {
        let (_, _, body) = peer.wait_for(10).await;
        if body[7] == 2 {
            assert_eq!(usize::from(body[70]), quiet, "in order");
            quiet += 1;
        } else {
            flood += 1;
        }
    }
    assert!(flood >= 50, "the flood has the rest of the rate: {flood}");
    controllers.shutdown().await;
}

/// Checks the packet-ins for packets that match no flow entry. OpenFlow 1.0 has no table-miss flow entry. Therefore,
/// whole packets that match no flow entry are sent to controllers of OpenFlow 1.0, and not to controllers of later
/// versions. For a controller of OpenFlow 1.0, packet-ins of a table-miss flow entry have the reason of an ordinary
/// flow entry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misses_are_told_to_controllers_of_openflow_1_0() {
    let (bridge, controllers, listeners) = controlled(|_| {}).await;
    let mut later = accept(&listeners[1], 4).await;
    eventually("the later", || controllers.status().iter().any(|status| status.connected)).await;
    assert!(!bridge.misses_heard.load(Ordering::Relaxed));
    let mut old = accept(&listeners[0], 1).await;
    eventually("somebody hears of misses", || bridge.misses_heard.load(Ordering::Relaxed)).await;
    for (reason, octets) in [(Reason::Miss, 1000), (Reason::MissRule, 999), (Reason::NoMatch, 998)] {
        bridge.packet(1, &vec![0; octets], reason, 0xffff);
    }
    // Offsets after buffer ID, length and port.
    let reason_10 = |message: &Message| (message.2.len() - 10, message.2[8]);
    for wanted in [(1000, 0), (999, 1), (998, 0)] {
        assert_eq!(reason_10(&old.wait_for(10).await), wanted);
    }
    // The packets of the flow entry and of the action, but not the first packet.
    for octets in [999, 998] {
        let told = later.wait_for(10).await;
        assert_eq!((u16::from_be_bytes([told.2[4], told.2[5]]), told.2[6]), (octets, 0));
    }
    // A controller that disables such packets.
    let body: Vec<u8> =
        [0x2320_u32, 19, 0, 0, 7, 7, 7, 7].iter().flat_map(|word| word.to_be_bytes()).collect();
    old.send(4, 9, &body).await;
    eventually("nobody does", || !bridge.misses_heard.load(Ordering::Relaxed)).await;
    drop(old);
    let _old = accept(&listeners[0], 1).await;
    eventually("another does", || bridge.misses_heard.load(Ordering::Relaxed)).await;
    drop(_old);
    eventually("it has gone", || !bridge.misses_heard.load(Ordering::Relaxed)).await;
    controllers.shutdown().await;
}

/// Checks that a bridge reports a new master to an OpenFlow 1.3 controller with the ONF extension message, if the
/// controller has requested this message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openflow_1_3_tells_of_another_master_when_asked() {
    let (_bridge, controllers, listeners) = controlled(|_| {}).await;
    let mut one = accept(&listeners[0], 4).await;
    let mut two = accept(&listeners[1], 4).await;
    // NXT_SET_ASYNC_CONFIG2: all role changes, as slave.
    let body: Vec<u8> = [0x2320_u32, 27, 0x0006_0008, 7].iter().flat_map(|word| word.to_be_bytes()).collect();
    one.send(4, 9, &body).await;
    assert_eq!(one.role(2, 10).await.2[..4], [0, 0, 0, 2]);
    assert_eq!(two.role(2, 11).await.2[..4], [0, 0, 0, 2]);
    let told = one.wait_for(4).await.2;
    assert_eq!(told[..8], [0x4f, 0x4e, 0x46, 0, 0, 0, 7, 0x77]);
    assert_eq!(told[8..], [0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11]);
    controllers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asynchronous_messages_are_as_configured() {
    let (bridge, controllers, listeners) = controlled(|_| {}).await;
    let mut peer = accept(&listeners[0], 4).await;
    peer.send(26, 1, &[]).await;
    let mut standard = Vec::new();
    for mask in [0b1011_u32, 0, 7, 7, 15, 0] {
        standard.u32(mask);
    }
    assert_eq!(peer.wait_for(27).await.2, standard);
    let mut none = vec![0; 24];
    peer.send(28, 2, &none).await;
    assert!(peer.until_barrier().await.is_empty());
    bridge.packet(1, &[0; 60], Reason::Action, 0xffff);
    assert!(peer.until_barrier().await.iter().all(|message| message.0 != 10));
    none[3] = 2;
    peer.send(28, 2, &none).await;
    assert!(peer.until_barrier().await.is_empty());
    bridge.packet(1, &[0; 60], Reason::InvalidTtl, 0xffff);
    bridge.packet(1, &[0; 60], Reason::Action, 0xffff);
    assert_eq!(peer.wait_for(10).await.2[6], 1, "by an action");
    controllers.shutdown().await;
}

/// Subscribes, for the roles master and equal, to copies of other sessions' requests. `mask` selects requests that
/// change groups (bit 0) and meters (bit 1).
async fn ask_for_requests(peer: &mut Peer, mask: u32) {
    // A client of a listener receives asynchronous messages after setting `miss_send_len`.
    peer.send(9, 1, &[0, 0, 0, 64]).await;
    let mut property = Vec::new();
    property.u16(11);
    property.u16(8);
    property.u32(mask);
    if peer.version >= 5 {
        peer.send(28, 2, &property).await;
    } else {
        // NXT_SET_ASYNC_CONFIG2.
        let mut body = vec![0, 0, 0x23, 0x20, 0, 0, 0, 27];
        body.extend(property);
        peer.send(4, 2, &body).await;
    }
}

/// Returns the type, the transaction ID and the body of the request that a forwarding message contains. In OpenFlow
/// 1.0, the body follows the experimenter header.
fn forwarded(version: u8, message: &Message) -> Message {
    let (kind, experimenter): (u8, &[u8]) = match version {
        1..=3 => (4, &[0, 0, 0x23, 0x20, 0, 0, 0, 132]),
        4 => (4, &[0x4f, 0x4e, 0x46, 0, 0, 0, 0x09, 0x2e]),
        _ => (32, &[]),
    };
    assert_eq!((message.0, message.1), (kind, 0), "{message:?}");
    let inner = message.2.strip_prefix(experimenter).unwrap();
    assert_eq!(inner[0], version);
    assert_eq!(usize::from(u16::from_be_bytes([inner[2], inner[3]])), inner.len());
    let xid = u32::from_be_bytes([inner[4], inner[5], inner[6], inner[7]]);
    if (version, inner[1]) == (1, 4) {
        assert_eq!(inner[8..16], [0, 0, 0x23, 0x20, 0, 0, 0, 31], "NXT_GROUP_MOD");
        return (15, xid, inner[16..].to_vec());
    }
    (inner[1], xid, inner[8..].to_vec())
}

/// Checks that group and meter requests are forwarded in each OpenFlow version to the sessions that subscribed to such
/// requests, except to the session that made the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_change_groups_and_meters_are_forwarded() {
    use switch::flow::{Bucket, Group, GroupKind, SelectMethod};
    for version in 1..=6_u8 {
        let (_bridge, controllers, at) = listening().await;
        let number = Version::from_wire(version).unwrap();
        let mut hears = Peer::connect(at, version).await;
        ask_for_requests(&mut hears, 3).await;
        hears.send(2, 9, &[]).await;
        assert_eq!(hears.wait_for(3).await.1, 9);
        // A session that receives packets, and did not subscribe to requests.
        let mut other = Peer::connect(at, 4).await;
        other.send(9, 1, &[0, 0, 0, 64]).await;
        let mut asks = Peer::connect(at, 6).await;
        ask_for_requests(&mut asks, 3).await;
        let bucket = |id| {
            let actions = vec![Action::Output { port: 2, max_len: 0 }];
            Bucket { id, weight: 0, watch_port: None, watch_group: None, actions }
        };
        let group = |buckets: u32| {
            let buckets = (0..buckets).map(bucket).collect();
            Group { id: 7, kind: GroupKind::All, method: SelectMethod::Default, buckets }
        };
        let body = |command: u16, version: Version, buckets: u32| {
            let mut out = Vec::new();
            wire::group::put_mod(&mut out, version, &group(buckets));
            out[..2].copy_from_slice(&command.to_be_bytes());
            out
        };
        // Nicira's ADD_OR_MOD is forwarded as the command with its actual effect.
        asks.send(15, 71, &body(0x8000, Version::V15, 1)).await;
        assert_eq!(forwarded(version, &hears.next().await), (15, 71, body(0, number, 1)), "{number}");
        asks.send(15, 72, &body(0x8000, Version::V15, 2)).await;
        assert_eq!(forwarded(version, &hears.next().await), (15, 72, body(1, number, 2)), "{number}");
        // An inserted bucket, or the complete group for versions without bucket commands.
        let mut insert = body(3, Version::V15, 0);
        let last = vec![0, 3, 0, 0, 0, 0, 0, 7, 0, 8, 0, 0, 0xff, 0xff, 0xff, 0xfe, 0, 8, 0, 0, 0, 0, 0, 9];
        insert.clear();
        insert.extend(&last);
        asks.send(15, 73, &insert).await;
        let (kind, xid, inserted) = forwarded(version, &hears.next().await);
        assert_eq!((kind, xid), (15, 73));
        if matches!(version, 1 | 6) {
            assert_eq!(inserted, last);
        } else {
            assert_eq!(inserted[..8], body(1, number, 2)[..8]);
            assert_eq!(inserted.len(), body(1, number, 2).len() + 16, "three buckets");
        }
        // Refused requests are not forwarded.
        asks.send(15, 74, &body(0, Version::V15, 1)).await;
        assert_eq!(
            error(&asks.next().await),
            (6, 0),
            "OFPGMFC_GROUP_EXISTS, and nothing of its own requests"
        );
        let meter = [0, 0, 0, 1, 0, 0, 0, 5, 0, 1, 0, 16, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0];
        asks.send(29, 75, &meter).await;
        if version >= 4 {
            assert_eq!(forwarded(version, &hears.next().await), (29, 75, meter.to_vec()));
        }
        let mut delete = body(2, Version::V15, 0);
        asks.send(15, 76, &delete).await;
        delete = body(2, number, 0);
        assert_eq!(forwarded(version, &hears.next().await), (15, 76, delete));
        assert!(asks.until_barrier().await.is_empty() && other.until_barrier().await.is_empty());
        // From here on, only meter requests, which versions before 1.3 do not have.
        ask_for_requests(&mut hears, 2).await;
        hears.send(2, 10, &[]).await;
        assert_eq!(hears.next().await.1, 10);
        asks.send(15, 77, &body(0, Version::V15, 1)).await;
        assert!(asks.until_barrier().await.is_empty());
        hears.send(2, 11, &[]).await;
        assert_eq!(hears.next().await.1, 11);
        controllers.shutdown().await;
    }
}
