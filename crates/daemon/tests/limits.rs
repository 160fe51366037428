//! Tests limits of a bridge with the real binary: ageing of silent stations, and storm control.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::time::{Duration, Instant};

use rig::{PATIENCE, Rig};
use testbed::{RawReceiver, RawSender, UdpFlow, eventually, require};

const BROADCAST: [u8; 6] = [0xff; 6];
/// EtherType without a protocol (IEEE 802 local experimental), so that no kernel answers.
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];
/// Payload of the frame whose arrival ends the counting of frames.
const END: &[u8] = b"the end";

/// Returns a frame with this payload at its end.
fn frame(to: [u8; 6], from: [u8; 6], payload: &[u8]) -> Vec<u8> {
    let mut frame = [&to[..], &from, &EXPERIMENT, &[0; 46]].concat();
    let at = frame.len() - payload.len();
    frame[at..].copy_from_slice(payload);
    frame
}

/// Returns the number of frames to the address `to` that arrive at `wire` before the frame that ends the counting.
/// `sender` sends this last frame to the address `last`.
fn count(wire: &RawReceiver, to: [u8; 6], sender: &RawSender, payload: &[u8], last: [u8; 6]) -> u64 {
    sender.send(&frame(last, [2, 0, 0, 0, 0, 0xee], END)).unwrap();
    let wanted = |frame: &[u8]| frame.starts_with(&to) && frame.ends_with(payload);
    wire.count_until(wanted, |frame| frame.ends_with(END), PATIENCE).unwrap()
}

#[test]
fn a_silent_station_is_forgotten_and_one_that_speaks_is_not() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(3);
    let configuration =
        rig.configuration("persist = false").replace("[bridge.br0]\n", "[bridge.br0]\nageing = 10\n");
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let (one, two) =
        (RawSender::open(&rig.hosts[0], "eth0").unwrap(), RawSender::open(&rig.hosts[1], "eth0").unwrap());
    let wire = RawReceiver::open(&rig.hosts[2], "eth0").unwrap();
    // Host 1 sends continuously.
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 50).unwrap();
    let speaking = (rig.hosts[0].mac().unwrap(), 10, "h1".to_owned());
    let silent_mac = [2, 0, 0, 0, 0, 0x77];
    let silent = ("02:00:00:00:00:77".to_owned(), 10, "h2".to_owned());

    two.send(&frame(BROADCAST, silent_mac, b"here I am")).unwrap();
    let spoken = Instant::now();
    testbed::wait_until("the station", PATIENCE, || rig.stations().contains(&silent)).unwrap();
    // As long as the address is in the MAC table, host 3 receives no frame to it.
    one.send(&frame(silent_mac, [2, 0, 0, 0, 0, 1], b"for you")).unwrap();
    assert_eq!(count(&wire, silent_mac, &one, b"for you", BROADCAST), 0);
    eventually("the station forgotten", PATIENCE, || {
        let stations = rig.stations();
        assert!(stations.contains(&speaking), "{stations:?}");
        if stations.contains(&silent) { Err(format!("{stations:?}")) } else { Ok(()) }
    })
    .unwrap();
    // Ages are whole seconds, and a complete sweep takes two or three.
    let after = spoken.elapsed();
    assert!((9.0..17.0).contains(&after.as_secs_f64()), "after {after:?}");
    one.send(&frame(silent_mac, [2, 0, 0, 0, 0, 1], b"for you")).unwrap();
    assert_eq!(
        count(&wire, silent_mac, &one, b"for you", BROADCAST),
        1,
        "nobody knows where it is, so it floods"
    );
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken), (0, 0), "{report:?}");
}

#[test]
fn a_storm_is_dropped_and_counted_and_unicast_loses_nothing() {
    require!("ip", "ethtool");
    const LIMIT: u32 = 200;
    const BURST: u32 = 32;
    const STORM: u32 = 4_000;
    let mut rig = Rig::new(3);
    let limits = format!("storm = {{ broadcast = {LIMIT}, multicast = {LIMIT}, unknown = {LIMIT} }}\n");
    let configuration = rig.configuration("persist = false").replace(
        "[bridge.br0.port.h1]\naccess = 10\n",
        &format!("[bridge.br0.port.h1]\naccess = 10\n{limits}"),
    );
    assert!(configuration.contains("storm"));
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let (one, two) =
        (RawSender::open(&rig.hosts[0], "eth0").unwrap(), RawSender::open(&rig.hosts[1], "eth0").unwrap());
    let wire = RawReceiver::open(&rig.hosts[2], "eth0").unwrap();
    // The address of host 3 is known, so frames to it are not flooded.
    let third = [2, 0, 0, 0, 0, 0x33];
    RawSender::open(&rig.hosts[2], "eth0").unwrap().send(&frame(BROADCAST, third, b"here I am")).unwrap();
    let station = ("02:00:00:00:00:33".to_owned(), 10, "h3".to_owned());
    testbed::wait_until("the station", PATIENCE, || rig.stations().contains(&station)).unwrap();
    // Unicast traffic through the port with the storm.
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 1_000).unwrap();
    flow.wait_for(100, PATIENCE).unwrap();
    let cases = [
        ("storm-broadcast", BROADCAST),
        ("storm-multicast", [0x01, 0x00, 0x5e, 0x01, 0x02, 0x03]),
        ("storm-unknown", [2, 0, 0, 0, 0, 0x99]),
    ];
    for (reason, to) in cases {
        let storm = frame(to, [2, 0, 0, 0, 0, 0x55], reason.as_bytes());
        let before = cases.map(|(reason, _)| rig.dropped("h1", reason));
        let began = Instant::now();
        for number in 0..STORM {
            one.send(&storm).unwrap();
            // At most 8,000 frames per second are sent, so that the limit drops frames and not a full ring.
            if number % 40 == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let came = u32::try_from(count(&wire, to, &one, reason.as_bytes(), third)).unwrap();
        let seconds = began.elapsed().as_secs_f64();
        // Permitted frames: the rate over the time, and the burst.
        let most = (f64::from(LIMIT) * seconds).ceil() + f64::from(BURST);
        let within = came >= BURST && f64::from(came) <= most;
        assert!(within, "{reason}: {came} of {STORM} came in {seconds:.2} s with {LIMIT} allowed a second");
        // Every frame beyond the limit is counted for this drop reason only.
        let expected = cases.map(|(other, _)| if other == reason { u64::from(STORM - came) } else { 0 });
        eventually(&format!("{expected:?} dropped"), PATIENCE, || {
            let after = cases.map(|(reason, _)| rig.dropped("h1", reason));
            let dropped = std::array::from_fn(|at| after[at] - before[at]);
            if dropped == expected { Ok(()) } else { Err(format!("{dropped:?}")) }
        })
        .unwrap();
        // Another port has no limit.
        for _ in 0..2 * LIMIT {
            two.send(&frame(to, [2, 0, 0, 0, 0, 0x66], b"unlimited")).unwrap();
        }
        assert_eq!(count(&wire, to, &two, b"unlimited", third), u64::from(2 * LIMIT), "{reason}");
    }
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken), (0, 0), "{report:?}");
}
