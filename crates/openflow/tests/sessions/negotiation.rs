//! Tests of version negotiation, invalid messages, inactivity probes, and controllers that disconnect.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_are_negotiated() {
    let (_bridge, controllers, at) = listening().await;
    for (theirs, bits, agreed) in [
        (1, None, Some(1)),
        (4, None, Some(4)),
        (6, None, Some(6)),
        (9, None, Some(6)),
        (2, None, Some(2)),
        (3, None, Some(3)),
        (3, Some(0b1110), Some(3)),
        (4, Some(0b1_0110), Some(4)),
        (6, Some(0b111_0000), Some(6)),
        (5, Some(0b11_1100), Some(5)),
        (3, Some(0b1100), Some(3)),
        // Version 7 is not supported, and neither is a bitmap without a common version.
        (7, Some(0b1000_0001), None),
    ] {
        let mut stream = TcpStream::connect(at).await.unwrap();
        let mut hello = vec![theirs, 0, 0, if bits.is_some() { 16 } else { 8 }, 0, 0, 0, 3];
        if let Some(bits) = bits {
            hello.extend([0, 1, 0, 8]);
            hello.u32(bits);
        }
        stream.write_all(&hello).await.unwrap();
        let mut peer = Peer { stream, version: agreed.unwrap_or(theirs) };
        let greeting = peer.next().await;
        assert_eq!(greeting.2, [0, 1, 0, 8, 0, 0, 0, 0b111_1110], "1.0 to 1.5");
        match agreed {
            Some(_) => {
                peer.send(2, 9, b"ping").await;
                assert_eq!(peer.next().await, (3, 9, b"ping".to_vec()));
            }
            None => {
                assert_eq!(error(&peer.next().await), (0, 0));
                assert!(peer.try_next().await.is_err(), "and the session is over");
            }
        }
    }
    controllers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_messages_are_refused_by_type_and_code_and_the_session_goes_on() {
    let (bridge, controllers, at) = listening().await;
    let mut peer = Peer::connect(at, 4).await;
    let long = [7_u8; 100];
    for (kind, body, wanted) in [
        (200_u8, &long[..], (1, 1)),
        (5, &long[..4], (1, 6)),
        (9, &long[..2], (1, 6)),
        (14, &long[..20], (1, 6)),
        (18, &[0, 99, 0, 0, 0, 0, 0, 0][..], (1, 2)),
        (18, &[0, 0, 0, 1, 0, 0, 0, 0], (1, 13)),
        (4, &[0, 0, 1, 2, 0, 0, 0, 0], (1, 3)),
        (4, &[0, 0, 0x23, 0x20, 0, 0, 9, 9], (1, 4)),
        (24, &[0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], (11, 2)),
        (13, &[0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], (1, 8)),
        (13, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0], (1, 6)),
    ] {
        peer.send(kind, 77, body).await;
        let answer = peer.next().await;
        assert_eq!((answer.1, error(&answer)), (77, wanted), "{kind} {body:?}");
        let request = peer.message(kind, 77, body);
        assert_eq!(answer.2[4..], request, "it carries the whole request");
    }
    // A message of another version.
    peer.stream.write_all(&[1, 5, 0, 8, 0, 0, 0, 3]).await.unwrap();
    assert_eq!(error(&peer.next().await), (1, 0));
    // A message in two parts.
    let whole = flow_mod(Version::V13, 3);
    peer.stream.write_all(&whole[..30]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    peer.stream.write_all(&whole[30..]).await.unwrap();
    assert!(peer.until_barrier().await.is_empty());
    assert_eq!(bridge.lock().flows.len(), 1);
    controllers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_ends_a_session_and_no_other() {
    let (bridge, controllers, at) = listening().await;
    let mut good = Peer::connect(at, 4).await;
    for garbage in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 4096],
        vec![4, 0, 0, 3, 0, 0, 0, 0],
        vec![4, 5, 0, 8, 0, 0, 0, 0],
    ] {
        let mut bad = TcpStream::connect(at).await.unwrap();
        bad.write_all(&garbage).await.unwrap();
        let mut rest = Vec::new();
        // The bridge sends a hello message and closes the connection, with a reset if data is unread.
        let _ =
            tokio::time::timeout(Duration::from_secs(10), bad.read_to_end(&mut rest)).await.expect("an end");
    }
    // A message that is shorter than its header, after the negotiation.
    let mut bad = Peer::connect(at, 4).await;
    bad.stream.write_all(&[4, 2, 0, 4, 0, 0, 0, 0]).await.unwrap();
    assert!(bad.try_next().await.is_err());
    // A peer that disconnects within a message.
    let mut bad = Peer::connect(at, 4).await;
    bad.stream.write_all(&[4, 14, 0, 80, 0, 0]).await.unwrap();
    drop(bad);
    good.stream.write_all(&flow_mod(Version::V13, 3)).await.unwrap();
    assert!(good.until_barrier().await.is_empty());
    assert_eq!(bridge.lock().flows.len(), 1);
    eventually("the others have gone", || controllers.status()[0].sessions == 1).await;
    controllers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_flaps_is_found_again_and_the_bridge_hears_when_none_is_left() {
    let (bridge, mut controllers, listeners) = controlled(|_| {}).await;
    let one = accept(&listeners[0], 4).await;
    let two = accept(&listeners[1], 6).await;
    eventually("both", || controllers.status().iter().all(|status| status.connected)).await;
    assert_eq!(*bridge.connected.lock().unwrap(), [true]);
    drop(one);
    eventually("one has gone", || controllers.status().iter().any(|status| !status.connected)).await;
    assert_eq!(*bridge.connected.lock().unwrap(), [true], "the other is still there");
    drop(two);
    eventually("none", || *bridge.connected.lock().unwrap() == [true, false]).await;
    // The reason is recorded after the bridge is notified.
    eventually("the reasons", || controllers.status().iter().all(|status| status.last_error.is_some())).await;
    let again = accept(&listeners[0], 1).await;
    eventually("one again", || *bridge.connected.lock().unwrap() == [true, false, true]).await;
    eventually("its version", || {
        controllers.status().iter().any(|status| status.version == Some(Version::V10))
    })
    .await;
    // A removed target does not affect the remaining one.
    let kept = Target::new(Address::Tcp(listeners[0].local_addr().unwrap()));
    controllers.set(vec![kept]).await;
    assert_eq!(controllers.status().len(), 1);
    assert!(controllers.status()[0].connected);
    let mut again = again;
    again.send(2, 4, &[]).await;
    assert_eq!(again.next().await, (3, 4, vec![]));
    controllers.set(Vec::new()).await;
    assert!(again.try_next().await.is_err(), "its session has ended");
    eventually("none again", || *bridge.connected.lock().unwrap() == [true, false, true, false]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_is_asked_about_and_then_ends_the_session() {
    let probe = |target: &mut Target| target.inactivity_probe = Some(Duration::from_millis(150));
    let (_bridge, controllers, listeners) = controlled(probe).await;
    let mut answers = accept(&listeners[0], 4).await;
    let mut silent = accept(&listeners[1], 4).await;
    assert_eq!(silent.next().await.0, 2, "an echo request");
    for _ in 0..4 {
        let (kind, xid, body) = answers.next().await;
        assert_eq!(kind, 2);
        answers.send(3, xid, &body).await;
    }
    assert!(silent.try_next().await.is_err(), "given up");
    answers.send(2, 1, &[]).await;
    answers.wait_for(3).await;
    controllers.shutdown().await;
}
