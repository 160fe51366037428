//! Tests of flow monitors.

use super::*;

/// If a request of the monitor's own session causes the changes, the update contains only the transaction ID of the
/// request. A monitor of an output port also reports a change of a flow entry that sent packets to this port before the
/// change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_changes_are_abbreviated_for_monitors() {
    let (_bridge, controllers, to) = listening().await;
    let mut own = Peer::connect(to, 4).await;
    let mut other = Peer::connect(to, 4).await;
    // The ONF monitor of OpenFlow 1.3: flow entries that output to port 7, with added, removed, modified and
    // actions.
    let monitor = |id: u32, flags: u16| {
        let mut body = Vec::new();
        body.u16(0xffff);
        body.zeros(6);
        body.u32(0x4f4e_4600);
        body.u32(1870);
        body.u32(id);
        body.u16(flags);
        body.zeros(2);
        body.u32(7);
        body.extend([0xff, 0, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0]);
        body
    };
    own.send(18, 1, &monitor(1, 0x1e)).await;
    other.send(18, 1, &monitor(1, 0x1e)).await;
    assert_eq!((own.wait_for(19).await.1, other.wait_for(19).await.1), (1, 1));
    let rule = |port| {
        let output = Instructions::apply(vec![Action::Output { port, max_len: 0 }]);
        let mut change = FlowMod::add(0, 5, Match::ANY, output);
        let mut add = Vec::new();
        wire::flow::put_mod(&mut add, Version::V13, 77, &change).unwrap();
        change.command = switch::flow::FlowCommand::Modify { strict: false, or_add: false };
        change.cookie = None;
        let mut modify = Vec::new();
        wire::flow::put_mod(&mut modify, Version::V13, 78, &change).unwrap();
        (add, modify)
    };
    // After the multipart and experimenter headers: length, event and further fields.
    let update = |message: &Message| message.2[16..].to_vec();
    own.stream.write_all(&rule(7).0).await.unwrap();
    assert_eq!(update(&own.wait_for(19).await), [0, 8, 0, 3, 0, 0, 0, 77]);
    assert_eq!(update(&other.wait_for(19).await)[2..4], [0, 0], "in full: added");
    // A change to another port.
    own.stream.write_all(&rule(8).1).await.unwrap();
    assert_eq!(update(&own.wait_for(19).await), [0, 8, 0, 3, 0, 0, 0, 78]);
    assert_eq!(update(&other.wait_for(19).await)[2..4], [0, 2], "in full: modified");
    // A monitor that requests full updates for the session's own changes.
    own.send(18, 2, &monitor(2, 0x3e)).await;
    assert_eq!(own.wait_for(19).await.1, 2);
    own.stream.write_all(&rule(7).1).await.unwrap();
    assert_eq!(update(&own.wait_for(19).await)[2..4], [0, 2]);
    controllers.shutdown().await;
}

/// Checks that the existing flow entries are reported only once if a request adds a flow monitor and then modifies it
/// many times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_monitor_that_is_named_again_and_again_is_told_once() {
    let (_bridge, controllers, at) = listening().await;
    let mut peer = Peer::connect(at, 5).await;
    peer.stream.write_all(&flow_mod(Version::V14, 3)).await.unwrap();
    let again = std::iter::repeat_n((1, 3, 1), 2000);
    peer.send(18, 4, &monitors([(1, 3, 0), (2, 3, 0)].into_iter().chain(again).chain([(2, 3, 2)]))).await;
    let told = peer.wait_for(19).await;
    assert_eq!((told.1, told.2[3]), (4, 0));
    let length = usize::from(u16::from_be_bytes([told.2[8], told.2[9]]));
    assert_eq!(told.2.len(), 8 + length, "one update");
    assert!(peer.until_barrier().await.is_empty());
    controllers.shutdown().await;
}

/// Checks that a session ends if its peer reads flow monitor updates too slowly, so that no change is lost without
/// notice. Sessions without flow monitors receive no updates, and are not affected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_monitor_that_is_too_far_behind_ends() {
    const CHANGES: usize = 1000;
    let (bridge, controllers, at) = listening().await;
    let mut slow = Peer::connect(at, 5).await;
    let mut other = Peer::connect(at, 5).await;
    // A client receives port status messages after setting `miss_send_len`.
    other.send(9, 1, &[0, 0, 0, 100]).await;
    assert!(other.until_barrier().await.is_empty());
    slow.send(18, 1, &monitors([(1, 2, 0)])).await;
    assert_eq!(slow.wait_for(19).await.1, 1);
    let note = Instructions::apply(vec![Action::Note(vec![0; 60_000])]);
    let changes = (0..CHANGES).map(|number| {
        let matching = Match::ANY.with(switch::flow::Field::Reg0, number as u128);
        switch::flow::Mod::Flow(Box::new(FlowMod::add(0, 1, matching, note.clone())))
    });
    bridge.fresh.store(true, Ordering::Relaxed);
    let origin = switch::flow::Origin { session: 99, xid: 1 };
    openflow::Datapath::modify_for(&*bridge, changes.collect(), origin).unwrap();
    let desc = bridge.lock().ports[0].clone();
    bridge.tell(&switch::flow::Event::Port(2, desc));
    let told = other.next().await;
    assert_eq!(told.0, 12, "what comes behind all of them");
    let mut updates = 0;
    while slow.try_next().await.is_ok() {
        updates += 1;
    }
    assert!((1..CHANGES).contains(&updates), "{updates}");
    eventually("it says why", || {
        controllers.status()[0].last_error.as_ref().is_some_and(|why| why.contains("monitor anew"))
    })
    .await;
    controllers.shutdown().await;
}

/// Checks that a session with flow monitors ends as soon as it misses a change, even while its peer reads nothing. The
/// memory of the notifications that wait for the session is then free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_monitor_that_reads_nothing_ends_when_it_misses_a_change() {
    let (bridge, controllers, at) = listening_with(|target| target.patience = Duration::from_secs(600)).await;
    let mut deaf = Peer::connect(at, 5).await;
    deaf.send(18, 1, &monitors([(1, 2, 0)])).await;
    assert_eq!(deaf.wait_for(19).await.1, 1);
    let note = Instructions::apply(vec![Action::Note(vec![0; 60_000])]);
    let changes = (0..1000).map(|number: u32| {
        let matching = Match::ANY.with(switch::flow::Field::Reg0, number.into());
        switch::flow::Mod::Flow(Box::new(FlowMod::add(0, 1, matching, note.clone())))
    });
    bridge.fresh.store(true, Ordering::Relaxed);
    let origin = switch::flow::Origin { session: 99, xid: 1 };
    openflow::Datapath::modify_for(&*bridge, changes.collect(), origin).unwrap();
    eventually("the session has ended", || controllers.status()[0].sessions == 0).await;
    let why = controllers.status()[0].last_error.clone().unwrap();
    assert!(why.contains("monitor anew"), "{why}");
    controllers.shutdown().await;
}

/// Checks that a session yields to other tasks between the events of one request, and not only between requests. One
/// request can cause several hundred events, and a session may have 1,024 flow monitors.
#[test]
fn a_session_yields_between_the_events_of_one_request() {
    // The runtime has one thread and looks for received data after each task, so that another task runs only a few
    // times unless the session yields.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().event_interval(1).build();
    runtime.unwrap().block_on(yields_of_a_session());
}

async fn yields_of_a_session() {
    const EVENTS: usize = 300;
    let (bridge, controllers, at) = listening().await;
    let mut peer = Peer::connect(at, 5).await;
    peer.send(18, 1, &monitors((1..=1024).map(|id| (id, 2, 0)))).await;
    assert_eq!(peer.wait_for(19).await.1, 1);
    let rule = FlowMod::add(0, 1, Match::ANY, Instructions::default());
    let mut pipeline = switch::flow::Pipeline::new();
    pipeline.modify(&[switch::flow::Mod::Flow(Box::new(rule))], 0).unwrap();
    let flow = pipeline.flows(&switch::flow::FlowFilter::default(), 0).remove(0);
    let events = vec![switch::flow::Event::Added(flow, None); EVENTS];
    let runs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let other = tokio::spawn(async move {
        loop {
            tokio::task::yield_now().await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut least = usize::MAX;
    for _ in 0..10 {
        let origin = switch::flow::Origin { session: 99, xid: 1 };
        bridge.tell(&switch::flow::Event::Caused(origin, events.clone()));
        let before = runs.load(Ordering::Relaxed);
        assert_eq!(peer.next().await.0, 19);
        least = least.min(runs.load(Ordering::Relaxed) - before);
        for _ in 1..EVENTS {
            assert_eq!(peer.next().await.0, 19);
        }
    }
    other.abort();
    // The session yields after 4,096 units of work. An event is one unit, and one more for each monitor.
    assert!(least >= EVENTS / 6, "the other task has run {least} times");
    controllers.shutdown().await;
}
