//! Tests of changes to flow entries and tables while other sessions continue to be served.

use super::*;

/// Checks that sessions can start, end and change the kinds of events that they receive while a change has locked the
/// tables of the bridge. The event loop must not wait for the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn sessions_go_on_while_a_change_holds_the_rules() {
    let (bridge, mut controllers, listeners) = controlled(|_| {}).await;
    let old = accept(&listeners[0], 1).await;
    let mut one = accept(&listeners[1], 4).await;
    eventually("both", || controllers.status().iter().all(|status| status.connected)).await;
    eventually("the bridge knows", || bridge.misses_heard.load(Ordering::Relaxed)).await;
    let (held, is_held) = std::sync::mpsc::channel();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let rules = bridge.clone();
    let change = std::thread::spawn(move || {
        let rules = rules.rules.lock().unwrap();
        held.send(()).unwrap();
        let in_time = is_done.recv_timeout(Duration::from_secs(10)).is_ok();
        drop(rules);
        in_time
    });
    is_held.recv().unwrap();
    // The only session that receives table misses ends.
    drop(old);
    eventually("it has gone", || controllers.status().iter().any(|status| !status.connected)).await;
    one.send(2, 5, b"still there").await;
    assert_eq!(one.wait_for(3).await.2[..], *b"still there");
    done.send(()).unwrap();
    assert!(change.join().unwrap(), "the event loop has waited for the change");
    eventually("nobody hears of misses", || !bridge.misses_heard.load(Ordering::Relaxed)).await;
    controllers.set(Vec::new()).await;
    eventually("none is left", || *bridge.connected.lock().unwrap() == [true, false]).await;
}

/// A flow entry that is too long for a message of another OpenFlow version is refused. For example, an `enqueue` action
/// of OpenFlow 1.0 corresponds to three actions in later versions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_does_not_fit_into_messages_of_other_versions_is_refused() {
    let (bridge, controllers, at) = listening().await;
    let mut old = Peer::connect(at, 1).await;
    let rule = |count| {
        let enqueue = Action::Enqueue { port: 2, queue: 7 };
        let change = FlowMod::add(0, 5, Match::ANY, Instructions::apply(vec![enqueue; count]));
        let mut out = Vec::new();
        wire::flow::put_mod(&mut out, Version::V10, 9, &change).unwrap();
        out
    };
    old.stream.write_all(&rule(3000)).await.unwrap();
    assert_eq!(error(&old.next().await), (2, 7), "OFPBAC_TOO_MANY");
    old.stream.write_all(&rule(1500)).await.unwrap();
    eventually("it is there", || bridge.lock().flows.len() == 1).await;
    // A flow entry from an earlier release is reported without its instructions, and later messages can be
    // read.
    let mut monitor = Peer::connect(at, 5).await;
    monitor.send(18, 1, &monitors([(1, 2, 0)])).await;
    assert_eq!(monitor.wait_for(19).await.1, 1);
    let mut flow = bridge.lock().flows[0].clone();
    flow.instructions = Instructions::apply(vec![Action::Enqueue { port: 2, queue: 7 }; 3000]);
    bridge.tell(&switch::flow::Event::Added(flow, None));
    let told = monitor.next().await;
    assert_eq!((told.0, told.2.len()), (19, 40), "the head, and an update with an empty match");
    assert!(monitor.until_barrier().await.is_empty());
    controllers.shutdown().await;
}

/// Checks that slow changes that several sessions request do not block the other sessions. The changes are made one
/// after the other. Other requests to the bridge are answered after the changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_take_long_hold_up_no_other_session() {
    let (bridge, controllers, at) = listening().await;
    bridge.stalls.store(true, Ordering::Relaxed);
    let mut slow = Vec::new();
    for priority in 1..=6 {
        let mut peer = Peer::connect(at, 4).await;
        peer.stream.write_all(&flow_mod(Version::V13, priority)).await.unwrap();
        slow.push(peer);
    }
    eventually("one is under way", || bridge.stalled.load(Ordering::Relaxed) == 1).await;
    let mut asks = Peer::connect(at, 4).await;
    asks.send(5, 8, &[]).await;
    let mut other = Peer::connect(at, 4).await;
    for xid in 0..50 {
        other.send(2, xid, &[]).await;
        assert_eq!(other.wait_for(3).await.1, xid);
        assert_eq!(bridge.stalled.load(Ordering::Relaxed), 1);
    }
    bridge.stalls.store(false, Ordering::Relaxed);
    assert_eq!(asks.wait_for(6).await.1, 8);
    for peer in &mut slow {
        assert!(peer.until_barrier().await.is_empty());
    }
    assert_eq!(bridge.lock().flows.len(), 6);
    controllers.shutdown().await;
}

/// Checks that a slow snooping listener does not delay the controller. The listener may miss whole messages, but the
/// controller receives all replies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_is_slow_delays_no_controller() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut controllers = Controllers::new(Memory::new());
    let listens = Target { snoops: true, ..Target::new(Address::ListenTcp(free)) };
    controllers.set(vec![Target::new(Address::Tcp(listener.local_addr().unwrap())), listens]).await;
    let mut controller = accept(&listener, 4).await;
    let mut heard = loop {
        match TcpStream::connect(free).await {
            Ok(stream) => break Peer::greet(stream, 4).await,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    eventually("it listens", || controllers.status().iter().filter(|own| own.sessions == 1).count() == 2)
        .await;
    // Requests of the listener are ignored.
    heard.send(20, 9, &[]).await;
    let body = vec![7; 60_000];
    for xid in 0..600 {
        controller.send(2, xid, &body).await;
        assert_eq!(controller.wait_for(3).await, (3, xid, body.clone()));
    }
    controller.send(2, 600, &[]).await;
    assert_eq!(controller.wait_for(3).await.1, 600);
    let (mut last, mut seen) = (None, 0);
    loop {
        let (kind, xid, octets) = heard.next().await;
        assert!(matches!(kind, 2 | 3) && xid <= 600, "{kind} {xid}");
        assert_eq!(octets.len(), if xid == 600 { 0 } else { body.len() });
        // Each request precedes its answer, in order.
        assert!(last < Some((xid, kind)), "{last:?}, then {kind} {xid}");
        (last, seen) = (Some((xid, kind)), seen + 1);
        if (kind, xid) == (3, 600) {
            break;
        }
    }
    assert!(seen < 1_200, "{seen}");
    controllers.shutdown().await;
}

/// A peer must read a complete answer before a deadline. A peer that reads too slowly is disconnected, and a peer that
/// reads fast enough is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_of_a_dump_is_cut_at_the_deadline() {
    let short = |target: &mut Target| target.patience = Duration::from_millis(500);
    let (bridge, controllers, at) = listening_with(short).await;
    bridge.fresh.store(true, Ordering::Relaxed);
    let changes = (0..15_000_u32).map(|number| {
        let matching = Match::ANY.with(switch::flow::Field::Reg0, u128::from(number));
        let note = Instructions::apply(vec![Action::Note(vec![0; 2_000])]);
        switch::flow::Mod::Flow(Box::new(FlowMod::add(0, 1, matching, note)))
    });
    openflow::Datapath::modify(&*bridge, changes.collect()).unwrap();
    // OFPMP_FLOW: all tables, any port, any group, no cookie, every match.
    let mut all = vec![0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0];
    all.extend([0xff; 8]);
    all.extend([0; 20]);
    all.extend([0, 1, 0, 4, 0, 0, 0, 0]);
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut slow = Peer::greet(socket.connect(at).await.unwrap(), 4).await;
    slow.send(18, 1, &all).await;
    let begin = std::time::Instant::now();
    let trickle = tokio::spawn(async move {
        // Reads 10 kB/s until the end of the connection.
        let mut some = [0; 500];
        while slow.stream.write_all(&[4, 3, 0, 8, 0, 0, 0, 0]).await.is_ok() {
            if slow.stream.read_exact(&mut some).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let mut fast = Peer::connect(at, 4).await;
    fast.send(18, 2, &all).await;
    let mut octets = 0;
    loop {
        let part = fast.wait_for(19).await;
        octets += part.2.len();
        if part.2[3] & 1 == 0 {
            break;
        }
    }
    assert!(octets > 15_000 * 2_000, "{octets}");
    eventually("the slow one is cut", || {
        controllers.status()[0].last_error.as_ref().is_some_and(|why| why.contains("too slowly"))
    })
    .await;
    eprintln!("the slow reader was cut after {:?}", begin.elapsed());
    trickle.abort();
    controllers.shutdown().await;
}

/// A table features request with an invalid table number changes no table, even if valid table numbers precede the
/// invalid one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn table_features_are_set_as_a_whole_or_not_at_all() {
    let (bridge, controllers, at) = listening().await;
    let mut peer = Peer::connect(at, 4).await;
    let features = |tables: &[(u8, &str)]| {
        let mut body = vec![0, 12, 0, 0, 0, 0, 0, 0];
        for (table, name) in tables {
            body.u16(64);
            body.extend_from_slice(&[*table, 0, 0, 0, 0, 0]);
            let mut padded = [0; 32];
            padded[..name.len()].copy_from_slice(name.as_bytes());
            body.extend_from_slice(&padded);
            body.extend_from_slice(&[0; 24]);
        }
        body
    };
    peer.send(18, 1, &features(&[(3, "three"), (254, "none")])).await;
    // OFPET_TABLE_FEATURES_FAILED, OFPTFFC_BAD_TABLE
    assert_eq!(error(&peer.wait_for(1).await), (13, 0));
    assert!(bridge.lock().names.is_empty());
    peer.send(18, 2, &features(&[(3, "three"), (253, "last")])).await;
    peer.wait_for(19).await;
    assert_eq!(bridge.lock().names.len(), 2);
    controllers.shutdown().await;
}
