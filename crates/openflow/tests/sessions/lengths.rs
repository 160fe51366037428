//! Messages at the maximum length of OpenFlow messages.

use switch::flow::{Event, Field, Flow, PacketIn, PortDesc};

use super::*;

/// Returns a packet-in event for a packet of `frame` octets from port 1, with the given user data.
fn packet_in(frame: usize, userdata: Vec<u8>) -> Event {
    let mut flow = Flow::ZERO;
    flow.set(Field::InPort, 1);
    (0..16).filter_map(Field::reg).for_each(|register| flow.set(register, 7));
    Event::PacketIn(PacketIn {
        reason: Reason::Action,
        table: 3,
        cookie: 0x1234,
        flow,
        frame: vec![9; frame],
        max_len: 0xffff,
        controller: 0,
        userdata,
        continuation: None,
    })
}

/// Checks that a packet-in message never exceeds the maximum length:
/// - If the user data leave no space for the packet, the packet-in is dropped and counted. The peer must never parse
///   user data, which another session may have chosen, as a message.
/// - If the message would be too long with the whole packet, the message contains fewer octets of the packet.
/// - The other formats of packet-ins contain no user data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packet_ins_never_exceed_a_message() {
    // An echo request that the peer would read if the length of the packet-in was wrong.
    let forged = [4, 2, 0, 8, 0xee, 0xee, 0xee, 0xee];
    for form in 0..3 {
        let (bridge, controllers, listeners) = controlled(|_| {}).await;
        let mut peer = accept(&listeners[0], 4).await;
        let body: Vec<u8> = [0x2320_u32, 16, form].iter().flat_map(|word| word.to_be_bytes()).collect();
        peer.send(4, 1, &body).await;
        assert!(peer.until_barrier().await.is_empty());
        let sizes = [65_300, 65_400, 65_484, 65_500, 65_528];
        for octets in sizes {
            let userdata = forged.iter().copied().cycle().take(octets).collect();
            bridge.tell(&packet_in(60, userdata));
        }
        bridge.tell(&packet_in(0xffff, vec![7; 100]));
        bridge.tell(&packet_in(100, Vec::new()));
        let lost = || controllers.status().iter().map(|status| status.lost).max().unwrap();
        let mut lengths = Vec::new();
        loop {
            let (kind, _, body) = peer.next().await;
            assert_eq!(kind, if form == 0 { 10 } else { 4 }, "a packet-in");
            lengths.push(8 + body.len());
            if body.len() < 1000 && lost() + u64::try_from(lengths.len()).unwrap() == 7 {
                break;
            }
        }
        assert_eq!(lost() > 0, form == 2, "{} lost", lost());
        let longest = lengths.iter().max().unwrap();
        assert!((65_500..=65_535).contains(longest), "{longest}");
        assert!(peer.until_barrier().await.is_empty(), "no further message");
        controllers.shutdown().await;
    }
}

/// Checks that the features reply of a switch with very many ports contains as many ports as fit into the message. The
/// port descriptions, which may consist of several messages, contain all ports.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn features_contain_the_ports_that_fit() {
    const PORTS: u32 = 3000;
    let (bridge, controllers, at) = listening().await;
    let port = bridge.lock().ports[0].clone();
    bridge.lock().ports = (1..=PORTS).map(|number| PortDesc { number, ..port.clone() }).collect();
    for (version, fit, octets, head) in [(1, 1364, 48, 4), (2, 1023, 64, 8), (3, 1023, 64, 8)] {
        let mut peer = Peer::connect(at, version).await;
        peer.send(5, 9, &[]).await;
        let (kind, xid, body) = peer.next().await;
        assert_eq!((kind, xid, body.len()), (6, 9, 24 + fit * octets), "version {version}");
        let (request, reply) = if version == 1 { (16, 17) } else { (18, 19) };
        peer.send(request, 10, &[0, 13, 0, 0, 0, 0, 0, 0][..head]).await;
        let mut ports = 0;
        while ports < usize::try_from(PORTS).unwrap() {
            let (kind, xid, body) = peer.next().await;
            assert_eq!((kind, xid), (reply, 10));
            ports += (body.len() - head) / octets;
        }
        assert_eq!(ports, usize::try_from(PORTS).unwrap());
    }
    controllers.shutdown().await;
}
