//! Budgets and timeouts of bundles.

use super::*;

/// Lock for tests that check the process-wide memory of bundles.
static LARGE_BUNDLES: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Sends changes for the bundles of a session until the bridge refuses a change. Returns the number of changes that
/// were sent.
async fn fill_bundles(peer: &mut Peer) -> u32 {
    let mut sent = 0;
    let full = loop {
        // A bundle that exceeds the limit fails and releases its memory.
        for _ in 0..50 {
            peer.send(34, 5, &bundle_add(sent % 16)).await;
            sent += 1;
        }
        peer.send(20, 0xbbbb, &[]).await;
        let first = peer.next().await;
        if first.0 == 1 {
            peer.wait_for(21).await;
            break error(&first);
        }
        assert_eq!(first.0, 21);
    };
    assert_eq!(full, (17, 12), "OFPBFC_MSG_TOO_MANY");
    // The limit of a session is 64 MiB.
    assert!(sent < 1_300, "{sent} messages of 60,000 octets");
    sent
}

/// Checks that bundles are limited in number and in octets, for a session, for a bridge and for all sessions. A bridge
/// at its limit leaves half of the process-wide memory to other bridges.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bundles_are_bounded_in_octets() {
    let _alone = LARGE_BUNDLES.lock().await;
    // Bundles do not time out while others are filled.
    let patient = |target: &mut Target| target.bundle_timeout = Duration::from_secs(300);
    let (_bridge, controllers, at) = listening_with(patient).await;
    let mut peer = Peer::connect(at, 5).await;
    for id in 0..16 {
        peer.send(33, 1, &bundle_control(id, 0)).await;
        assert_eq!(peer.next().await.2, bundle_control(id, 1));
    }
    peer.send(33, 1, &bundle_control(16, 0)).await;
    assert_eq!(error(&peer.next().await), (17, 5), "OFPBFC_OUT_OF_BUNDLES");
    // The process-wide limit is 256 MiB, of which the first bridge can use half.
    let mut held = Vec::new();
    let mut messages = 0;
    loop {
        let own = fill_bundles(&mut peer).await;
        messages += own;
        held.push(peer);
        if own < 100 {
            break;
        }
        peer = Peer::connect(at, 5).await;
    }
    assert!((2_100..2_700).contains(&messages), "{messages} messages of 60,000 octets");
    // A session of another bridge can use the full limit of a session.
    let (_other, others, at_other) = listening_with(patient).await;
    let mut other = Peer::connect(at_other, 5).await;
    let own = fill_bundles(&mut other).await;
    assert!(own > 1_000, "{own} messages of 60,000 octets");
    // A discarded bundle releases memory for others.
    let mut last = held.pop().unwrap();
    drop(held);
    let more = async {
        loop {
            last.send(33, 1, &bundle_control(7, 0)).await;
            let opened = last.next().await;
            last.send(34, 5, &bundle_add(7)).await;
            last.send(33, 1, &bundle_control(7, 6)).await;
            if opened.0 != 1 && last.next().await.0 != 1 {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), more).await.expect("room");
    // Ended sessions release memory for new sessions.
    drop(last);
    let again = async { while fill_bundles(&mut Peer::connect(at, 5).await).await < 1_000 {} };
    tokio::time::timeout(Duration::from_secs(60), again).await.expect("room");
    controllers.shutdown().await;
    others.shutdown().await;
}

/// Checks that a failed bundle releases its memory, so that other bundles can use this memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_bundle_gives_its_memory_back() {
    let _alone = LARGE_BUNDLES.lock().await;
    let (_bridge, controllers, at) = listening().await;
    let mut peer = Peer::connect(at, 5).await;
    peer.send(33, 1, &bundle_control(1, 0)).await;
    assert_eq!(peer.next().await.2, bundle_control(1, 1));
    // Three times the limit of a session in total. Each bundle fails by a message with other flags.
    for id in 1..=4 {
        for _ in 0..800 {
            peer.send(34, 5, &bundle_add(id)).await;
        }
        let mut other = bundle_add(id);
        other[7] = 1;
        peer.send(34, 5, &other).await;
        assert_eq!(error(&peer.next().await), (17, 7), "OFPBFC_BAD_FLAGS of bundle {id}");
        // Further changes for a failed bundle have no effect.
        peer.send(34, 5, &bundle_add(id)).await;
    }
    peer.send(33, 9, &bundle_control(1, 4)).await;
    assert_eq!(error(&peer.next().await), (17, 13), "OFPBFC_MSG_FAILED");
    controllers.shutdown().await;
}

/// Checks that a bundle times out if no message about the bundle arrives, even if the session makes other requests. An
/// added change restarts the timeout of its bundle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_that_is_left_alone_times_out() {
    let short = |target: &mut Target| target.bundle_timeout = Duration::from_millis(500);
    let (_bridge, controllers, at) = listening_with(short).await;
    let mut peer = Peer::connect(at, 5).await;
    for id in [1, 2] {
        peer.send(33, 70 + id, &bundle_control(id, 0)).await;
        peer.wait_for(33).await;
    }
    let timed_out = loop {
        peer.send(34, 5, &bundle_add(2)).await;
        peer.send(20, 6, &[]).await;
        let next = peer.next().await;
        if next.0 == 1 {
            break next;
        }
    };
    assert_eq!((timed_out.1, error(&timed_out)), (71, (17, 14)), "OFPBFC_TIMEOUT");
    peer.wait_for(21).await;
    peer.send(33, 8, &bundle_control(1, 4)).await;
    assert_eq!(error(&peer.wait_for(1).await), (17, 2), "it is gone");
    peer.send(33, 9, &bundle_control(2, 4)).await;
    assert_eq!(peer.wait_for(33).await.2, bundle_control(2, 5));
    controllers.shutdown().await;
}
