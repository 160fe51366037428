#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use switch::flow::{
    Field, Flow, FlowFilter, FlowMod, Instructions, Match, Mod, PacketIn, Pipeline, PortDesc, Reason,
};
use sync::wake::Waker;

use super::*;
use crate::flows::FlowTables;

const SOON: Duration = Duration::from_secs(20);

fn tables() -> Arc<FlowTables> {
    Arc::new(FlowTables::new(1, Pipeline::new(), Arc::new(Waker::new().unwrap())))
}

fn matching(number: u16) -> Match {
    Match::ANY.with(Field::EthType, u128::from(number))
}

fn add(number: u16) -> Mod {
    Mod::Flow(Box::new(FlowMod::add(0, 1, matching(number), Instructions::default())))
}

fn delete(number: u16) -> Mod {
    Mod::Flow(Box::new(FlowMod::delete(0, matching(number))))
}

/// Returns an event that is recognized by `number`, with a frame of `octets` octets.
fn packet(number: u32, octets: usize) -> Event {
    Event::PacketIn(PacketIn {
        reason: Reason::NoMatch,
        table: 0,
        cookie: 0,
        flow: Flow::ZERO,
        frame: vec![0; octets],
        max_len: 0,
        controller: u16::try_from(number).unwrap(),
        userdata: Vec::new(),
        continuation: None,
    })
}

fn numbers(events: &[Event]) -> Vec<u16> {
    let number = |event: &Event| match event {
        Event::PacketIn(packet) => packet.controller,
        other => panic!("{other:?}"),
    };
    events.iter().map(number).collect()
}

/// Changes the tables like the slow path, which does not wait for the listener.
fn change_as_slow_path(tables: &FlowTables, change: impl FnOnce(&mut Pipeline)) {
    let mut pipeline = loop {
        if let Some(pipeline) = tables.lock_for_packets() {
            break pipeline;
        }
    };
    change(&mut pipeline);
    tables.unlock_for_packets(pipeline);
}

/// Sets a listener that reports the start of each call and then waits for a permission to return. Returns the receiver
/// of the reports and the sender of the permissions.
fn listen_slowly(tables: &FlowTables) -> (Receiver<Vec<Event>>, Sender<()>) {
    let ((report, reports), (permit, permitted)) = (channel(), channel());
    let permitted = Mutex::new(permitted);
    tables.listen(Some(Arc::new(move |events| {
        report.send(events).unwrap();
        permitted.lock().unwrap().recv_timeout(SOON).unwrap();
    })));
    (reports, permit)
}

/// Starts a control thread that causes the event `number`. The returned receiver reports the end of the thread.
fn change_in_thread(tables: &Arc<FlowTables>, number: u32) -> Receiver<()> {
    let (tables, (done, is_done)) = (Arc::clone(tables), channel());
    std::thread::spawn(move || {
        tables.change(|pipeline| pipeline.push_event(packet(number, 0)));
        done.send(()).unwrap();
    });
    is_done
}

/// Waits until the queue contains `count` entries.
fn wait_for_entries(tables: &FlowTables, count: usize) {
    let begin = std::time::Instant::now();
    while tables.events.state().entries.len() < count {
        assert!(begin.elapsed() < SOON, "nothing was queued");
        std::thread::yield_now();
    }
}

/// Checks that the listener receives the events in the order of the changes, although control threads and the slow path
/// change the same flow entries. At each time, the replayed events must agree with the flow entries.
#[test]
fn events_come_in_the_order_of_the_changes() {
    const CHANGES: u16 = 4000;
    let tables = tables();
    let replay = Arc::new(Mutex::new(HashSet::new()));
    let own = Arc::clone(&replay);
    tables.listen(Some(Arc::new(move |events| {
        let mut replay = own.try_lock().expect("one thread at a time calls the listener");
        for event in events {
            match event {
                Event::Added(flow, _) => assert!(replay.insert(flow.matching), "added twice"),
                Event::Removed(flow, _) => assert!(replay.remove(&flow.matching), "removed before added"),
                other => panic!("{other:?}"),
            }
        }
    })));
    let change = |thread: u16, turn: u16, pipeline: &mut Pipeline| {
        let number = turn % 3;
        let is_there = pipeline.flows(&all(), 0).iter().any(|flow| flow.matching == matching(number));
        let change = if is_there { delete(number) } else { add(number) };
        pipeline.modify(&[change], u64::from(thread)).unwrap();
    };
    std::thread::scope(|scope| {
        let (tables, change) = (&tables, &change);
        for thread in 0..2 {
            scope.spawn(move || {
                (0..CHANGES).for_each(|turn| tables.change(|pipeline| change(thread, turn, pipeline)));
            });
        }
        (0..CHANGES).for_each(|turn| change_as_slow_path(tables, |pipeline| change(2, turn, pipeline)));
    });
    let flows = tables.lock().flows(&all(), 0);
    let there: HashSet<Match> = flows.into_iter().map(|flow| flow.matching).collect();
    assert_eq!(*replay.lock().unwrap(), there, "no event is left in the queue");
}

/// Checks that the slow path does not wait while a control thread passes events to a slow listener. The control thread
/// then passes the slow path's events too. Another control thread waits until its events were passed.
#[test]
fn the_slow_path_does_not_wait_for_the_listener() {
    let tables = tables();
    let (reports, permit) = listen_slowly(&tables);
    let first = change_in_thread(&tables, 1);
    assert_eq!(numbers(&reports.recv_timeout(SOON).unwrap()), [1]);
    let slow_path = {
        let (tables, (done, is_done)) = (Arc::clone(&tables), channel());
        std::thread::spawn(move || {
            change_as_slow_path(&tables, |pipeline| pipeline.push_event(packet(2, 0)));
            change_as_slow_path(&tables, |pipeline| pipeline.push_event(packet(3, 0)));
            done.send(()).unwrap();
        });
        is_done
    };
    slow_path.recv_timeout(SOON).expect("the slow path goes on");
    let second = change_in_thread(&tables, 4);
    wait_for_entries(&tables, 2);
    assert!(first.try_recv().is_err() && second.try_recv().is_err());
    for expected in [&[2, 3][..], &[4]] {
        permit.send(()).unwrap();
        assert_eq!(numbers(&reports.recv_timeout(SOON).unwrap()), expected);
        assert!(second.try_recv().is_err(), "the events of this thread come last");
    }
    permit.send(()).unwrap();
    assert_eq!((first.recv_timeout(SOON), second.recv_timeout(SOON)), (Ok(()), Ok(())));
}

/// Checks that a control thread passes its own events to the listener, but not the later events of another control
/// thread. The other control thread passes these later events.
#[test]
fn a_control_thread_leaves_later_events_to_their_owner() {
    let tables = tables();
    let (reports, permit) = listen_slowly(&tables);
    let first = change_in_thread(&tables, 1);
    assert_eq!(numbers(&reports.recv_timeout(SOON).unwrap()), [1]);
    change_as_slow_path(&tables, |pipeline| pipeline.push_event(packet(2, 0)));
    let second = change_in_thread(&tables, 3);
    wait_for_entries(&tables, 2);
    permit.send(()).unwrap();
    assert_eq!(numbers(&reports.recv_timeout(SOON).unwrap()), [2]);
    permit.send(()).unwrap();
    assert_eq!(numbers(&reports.recv_timeout(SOON).unwrap()), [3]);
    first.recv_timeout(SOON).expect("the first thread does not wait for the events of the second thread");
    assert!(second.try_recv().is_err());
    permit.send(()).unwrap();
    second.recv_timeout(SOON).unwrap();
}

/// Checks that [`FlowTables::try_change`], which does not wait for other control threads, is refused while the events
/// of another control thread are queued or being passed to the listener. Events of the slow path do not cause a
/// refusal.
#[test]
fn a_change_without_waiting_does_not_wait_for_a_control_thread() {
    let tables = tables();
    let (reports, permit) = listen_slowly(&tables);
    let try_change = || tables.try_change(|pipeline| pipeline.push_event(packet(9, 0)));
    let first = change_in_thread(&tables, 1);
    assert_eq!(numbers(&reports.recv_timeout(SOON).unwrap()), [1]);
    assert_eq!(try_change(), None, "events of a control thread are being passed");
    permit.send(()).unwrap();
    first.recv_timeout(SOON).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| change_as_slow_path(&tables, |pipeline| pipeline.push_event(packet(2, 0))));
        assert_eq!(numbers(&reports.recv_timeout(SOON).unwrap()), [2]);
        let second = change_in_thread(&tables, 3);
        wait_for_entries(&tables, 1);
        assert_eq!(try_change(), None, "events of a control thread are queued");
        (0..2).for_each(|_| permit.send(()).unwrap());
        second.recv_timeout(SOON).unwrap();
        assert_eq!(numbers(&reports.recv_timeout(SOON).unwrap()), [3]);
        scope.spawn(|| change_as_slow_path(&tables, |pipeline| pipeline.push_event(packet(4, 0))));
        assert_eq!(numbers(&reports.recv_timeout(SOON).unwrap()), [4]);
        (0..2).for_each(|_| permit.send(()).unwrap());
        assert_eq!(try_change(), Some(()));
    });
    assert_eq!(numbers(&reports.recv_timeout(SOON).unwrap()), [9]);
}

/// Checks that the slow path passes its events to the listener itself if no other thread is passing events, and that a
/// control thread waits until the slow path has passed these events.
#[test]
fn a_control_thread_waits_for_the_slow_path() {
    let tables = tables();
    let (reports, permit) = listen_slowly(&tables);
    std::thread::scope(|scope| {
        scope.spawn(|| change_as_slow_path(&tables, |pipeline| pipeline.push_event(packet(1, 0))));
        assert_eq!(numbers(&reports.recv_timeout(SOON).unwrap()), [1]);
        scope.spawn(|| tables.change(|pipeline| pipeline.push_event(packet(2, 0))));
        wait_for_entries(&tables, 1);
        permit.send(()).unwrap();
        assert_eq!(numbers(&reports.recv_timeout(SOON).unwrap()), [2]);
        permit.send(()).unwrap();
    });
    assert!(tables.events.state().entries.is_empty() && !tables.events.state().is_sending);
}

/// Checks that the answer to a barrier request comes after the slow path's earlier events.
#[test]
fn a_notification_comes_after_earlier_events() {
    let tables = tables();
    let (reports, permit) = listen_slowly(&tables);
    let (done, is_done) = channel();
    let notify = |number: u32| {
        let done = done.clone();
        tables.notify_after_events(Box::new(move || done.send(number).unwrap()));
    };
    notify(0);
    assert_eq!(is_done.try_recv(), Ok(0), "the queue is empty");
    std::thread::scope(|scope| {
        scope.spawn(|| tables.change(|pipeline| pipeline.push_event(packet(1, 0))));
        reports.recv_timeout(SOON).unwrap();
        change_as_slow_path(&tables, |pipeline| pipeline.push_event(packet(2, 0)));
        notify(1);
        permit.send(()).unwrap();
        reports.recv_timeout(SOON).unwrap();
        assert!(is_done.try_recv().is_err());
        permit.send(()).unwrap();
        assert_eq!(is_done.recv_timeout(SOON), Ok(1));
    });
}

/// Checks that the events of the slow path that wait for a slow listener use limited memory. Packet-ins leave memory
/// for other events, and the dropped events are counted and reported.
#[test]
fn waiting_events_of_the_slow_path_use_limited_memory() {
    const FRAME: usize = 64 << 10;
    let tables = tables();
    let (reports, permit) = listen_slowly(&tables);
    let desc =
        PortDesc { number: 1, name: "p".into(), mac: packet::MacAddr([2; 6]), config: 0, state: 0, speed: 0 };
    std::thread::scope(|scope| {
        scope.spawn(|| tables.change(|pipeline| pipeline.push_event(packet(0, 0))));
        reports.recv_timeout(SOON).unwrap();
        for number in 0..1000 {
            change_as_slow_path(&tables, |pipeline| pipeline.push_event(packet(number, FRAME)));
        }
        let octets = tables.events.state().octets.all;
        assert!(octets > 0 && octets <= MEMORY / 4, "half of the half for packets");
        change_as_slow_path(&tables, |pipeline| pipeline.push_event(Event::Port(0, desc)));
        let (mut kept, mut lost, mut ports) = (0_u64, 0, 0);
        while kept + lost < 1000 || ports == 0 {
            permit.send(()).unwrap();
            for event in reports.recv_timeout(SOON).unwrap() {
                match event {
                    Event::PacketIn(_) => kept += 1,
                    Event::LostPackets(count) => lost += count,
                    Event::Port(..) => ports += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        permit.send(()).unwrap();
        assert!(kept > 0 && kept <= (MEMORY / FRAME) as u64 / 4, "{kept} packets");
        assert_eq!((kept + lost, ports), (1000, 1));
    });
    assert_eq!(tables.events.state().octets, Octets::default());
}

/// Checks that waiting events other than packet-ins leave memory for packet-ins of another bridge, even if these events
/// use all memory that one bridge may use.
#[test]
fn other_events_of_one_bridge_leave_memory_for_packets_of_another() {
    let name = "p".repeat(64 << 10);
    let desc = PortDesc { number: 1, name, mac: packet::MacAddr([2; 6]), config: 0, state: 0, speed: 0 };
    let (mut slow, mut own) = (Deferred::default(), Octets::default());
    slow.add((0..400).map(|_| Event::Port(0, desc.clone())).collect(), &mut own);
    assert!(slow.lost > 0 && own.all > 0 && own.packets == 0, "the memory of the bridge is used up");
    let (mut other, mut own) = (Deferred::default(), Octets::default());
    other.add(vec![packet(1, 0)], &mut own);
    assert_eq!((other.events.len(), other.lost_packets), (1, 0));
    assert_eq!(own.packets, own.all);
}

/// Checks that the events of later changes are passed to the listener after the listener has panicked.
#[test]
fn a_panic_of_the_listener_ends_its_turn() {
    let tables = tables();
    tables.listen(Some(Arc::new(|_| panic!("expected"))));
    let change = |number| tables.change(|pipeline| pipeline.push_event(packet(number, 0)));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| change(1))).is_err());
    let (report, reports) = channel();
    let report = Mutex::new(report);
    tables.listen(Some(Arc::new(move |events| report.lock().unwrap().send(events).unwrap())));
    change(2);
    assert_eq!(numbers(&reports.try_recv().unwrap()), [2]);
}

/// Checks that the slow path passes all its queued events if the listener has panicked in the control thread that would
/// have passed them.
#[test]
fn the_slow_path_takes_over_after_a_panic() {
    let tables = tables();
    let (started, is_started) = channel();
    let (permit, permitted) = channel();
    let permitted = Mutex::new(permitted);
    tables.listen(Some(Arc::new(move |_| {
        started.send(()).unwrap();
        permitted.lock().unwrap().recv_timeout(SOON).unwrap();
        panic!("expected");
    })));
    let (done, is_done) = channel();
    std::thread::scope(|scope| {
        let control = scope.spawn(|| tables.change(|pipeline| pipeline.push_event(packet(1, 0))));
        is_started.recv_timeout(SOON).unwrap();
        change_as_slow_path(&tables, |pipeline| pipeline.push_event(packet(2, 0)));
        for number in 0..2 {
            let done = done.clone();
            tables.notify_after_events(Box::new(move || done.send(number).unwrap()));
        }
        permit.send(()).unwrap();
        assert!(control.join().is_err());
    });
    let (report, reports) = channel();
    let report = Mutex::new(report);
    tables.listen(Some(Arc::new(move |events| report.lock().unwrap().send(events).unwrap())));
    assert!(is_done.try_recv().is_err());
    change_as_slow_path(&tables, |pipeline| pipeline.push_event(packet(3, 0)));
    assert_eq!(numbers(&reports.try_recv().unwrap()), [2]);
    assert_eq!((is_done.try_recv(), is_done.try_recv()), (Ok(0), Ok(1)));
    assert_eq!(numbers(&reports.try_recv().unwrap()), [3]);
    assert_eq!(tables.events.state().octets, Octets::default());
}

fn all() -> FlowFilter {
    FlowFilter::default()
}
