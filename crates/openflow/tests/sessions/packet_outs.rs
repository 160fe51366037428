//! Tests of the limits for queued packet-outs.

use super::*;

/// Checks that the bridge stops reading from a session that sends too many packet-outs while the slow path processes
/// none. Other sessions continue. The limits apply to messages and octets. When the slow path continues, all packets
/// are sent in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_floods_packet_outs_is_not_read_further() {
    for (frame, most) in [(60, 256), (60_000, 8)] {
        let (bridge, controllers, at) = listening().await;
        bridge.holds.store(true, Ordering::Relaxed);
        let mut flooder = Peer::connect(at, 4).await;
        let mut other = Peer::connect(at, 4).await;
        let body = packet_out(frame);
        let total = 4 * most;
        let sent = tokio::spawn(async move {
            for xid in 0..total {
                flooder.send(13, xid, &body).await;
            }
            flooder.send(20, 0xbbbb, &[]).await;
            flooder.wait_for(21).await
        });
        let queued = || u32::try_from(bridge.held.lock().unwrap().len()).unwrap();
        eventually("the budget is used up", || queued() == most).await;
        for xid in 0..20 {
            other.send(2, xid, &[]).await;
            assert_eq!(other.wait_for(3).await.1, xid);
            assert_eq!(queued(), most, "nothing more of the flood is read");
        }
        assert!(!sent.is_finished());
        // The slow path processes the packets one by one.
        for _ in 0..total {
            eventually("one more is read", || queued() > 0).await;
            assert!(queued() <= most);
            let one = bridge.held.lock().unwrap().pop();
            drop(one);
        }
        assert_eq!(sent.await.unwrap().1, 0xbbbb, "the barrier comes behind them");
        assert_eq!(bridge.sent.lock().unwrap().len(), usize::try_from(total).unwrap());
        controllers.shutdown().await;
    }
}

/// Checks that packet-outs of an ended session are dropped and counted after a short time, so that they do not
/// accumulate when a client reconnects repeatedly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packet_outs_of_a_session_that_ended_are_dropped() {
    let (bridge, controllers, at) = listening().await;
    bridge.holds.store(true, Ordering::Relaxed);
    for round in 1..=2 {
        let mut flooder = Peer::connect(at, 4).await;
        for xid in 0..100 {
            flooder.send(13, xid, &packet_out(60)).await;
        }
        eventually("they wait", || bridge.held.lock().unwrap().len() == 100).await;
        drop(flooder);
        eventually("they are dropped", || bridge.held.lock().unwrap().is_empty()).await;
        eventually("and counted", || controllers.status()[0].lost == 100 * round).await;
    }
    // A packet that the slow path accepts immediately is sent after its client has disconnected.
    bridge.holds.store(false, Ordering::Relaxed);
    let mut short = Peer::connect(at, 4).await;
    let before = bridge.sent.lock().unwrap().len();
    short.send(13, 7, &packet_out(60)).await;
    drop(short);
    eventually("it is sent", || bridge.sent.lock().unwrap().len() == before + 1).await;
    controllers.shutdown().await;
}

/// Checks that the packet-outs of all sessions of a bridge have a common limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packet_outs_of_many_sessions_are_bounded_together() {
    let (bridge, controllers, at) = listening().await;
    bridge.holds.store(true, Ordering::Relaxed);
    let body = packet_out(60_000);
    let mut flooders = Vec::new();
    for _ in 0..40 {
        let mut flooder = Peer::connect(at, 4).await;
        let body = body.clone();
        flooders.push(tokio::spawn(async move {
            for xid in 0..20 {
                flooder.send(13, xid, &body).await;
            }
            flooder
        }));
    }
    // Without the common limit, 40 sessions would queue eight packets each, 320 in total. The limit of 16 MiB allows
    // fewer packets.
    let held = || bridge.held.lock().unwrap().len();
    eventually("the budget is used up", || held() >= 270).await;
    let mut other = Peer::connect(at, 4).await;
    for xid in 0..50 {
        other.send(2, xid, &[]).await;
        assert_eq!(other.wait_for(3).await.1, xid);
        assert!(held() < 280, "{}", held());
    }
    drop(flooders);
    bridge.holds.store(false, Ordering::Relaxed);
    bridge.held.lock().unwrap().clear();
    controllers.shutdown().await;
}

/// Checks that a bundle can contain at most as many packet-outs as a session may have queued. The commit of a bundle
/// waits until the queue has space for the packet-outs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_of_a_bundle_are_bounded_as_others_are() {
    let (bridge, controllers, at) = listening().await;
    let mut peer = Peer::connect(at, 5).await;
    let packet = |id: u32, buffer: u32| {
        let mut body = Vec::new();
        body.u32(id);
        body.u32(0);
        let start = wire::begin(&mut body, Version::V14, 13, 5);
        body.u32(buffer);
        body.u32(1);
        body.u16(16);
        body.zeros(6);
        body.extend([0, 0, 0, 16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
        body.zeros(60);
        wire::finish(&mut body, start).unwrap();
        body
    };
    for _ in 0..256 {
        peer.send(34, 5, &packet(1, u32::MAX)).await;
    }
    assert!(peer.until_barrier().await.is_empty());
    peer.send(34, 5, &packet(1, u32::MAX)).await;
    assert_eq!(error(&peer.next().await), (17, 12), "OFPBFC_MSG_TOO_MANY");
    peer.send(33, 6, &bundle_control(1, 4)).await;
    assert_eq!(error(&peer.next().await), (17, 13), "a bundle with such a message does not come about");
    peer.send(34, 5, &packet(2, 9)).await;
    assert_eq!(error(&peer.next().await), (1, 8), "OFPBRC_BUFFER_UNKNOWN");
    assert!(bridge.sent.lock().unwrap().is_empty());
    // The bridge keeps the reservation of the first bundle, so that the second one waits.
    bridge.holds.store(true, Ordering::Relaxed);
    for id in [3, 4] {
        peer.send(34, 5, &packet(id, u32::MAX)).await;
        peer.send(33, 7, &bundle_control(id, 4)).await;
    }
    assert_eq!(peer.wait_for(33).await.2, bundle_control(3, 5));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(bridge.sent.lock().unwrap().len(), 1);
    bridge.holds.store(false, Ordering::Relaxed);
    bridge.held.lock().unwrap().clear();
    assert_eq!(peer.wait_for(33).await.2, bundle_control(4, 5));
    assert_eq!(bridge.sent.lock().unwrap().len(), 2);
    controllers.shutdown().await;
}
