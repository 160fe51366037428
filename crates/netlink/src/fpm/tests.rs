//! Tests of the FPM wire format, and of the effect of announcements on a mirror.

use std::collections::BTreeMap;
use std::net::IpAddr;

use proptest::prelude::*;
use sync::qsbr::Domain;

use super::speak::{self, Message, Target, announce, frame, group, next_hop, next_hop_gone, withdraw};
use super::table::{Answer, Table};
use super::{BadMessage, Cause, Decoder};
use crate::decode::{Event, Object};
use crate::feed::{Feed, Limits};
use crate::mirror::{Change, Mirror};
use crate::state::{Hop, Kind, Link, Path, Prefix, RouteKey};

const BGP: u8 = 186;
const LINK: u32 = 3;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Prefix<IpAddr> {
    let (address, length) = text.split_once('/').unwrap();
    Prefix { address: ip(address), length: length.parse().unwrap() }
}

fn via(gateway: &str) -> Target {
    Target::Via(ip(gateway), LINK)
}

/// Decodes the bytes of a complete FPM session.
fn read(bytes: &[u8]) -> Result<Vec<Event>, BadMessage> {
    let mut events = Vec::new();
    Decoder::new().feed(bytes, &mut events).map(|()| events)
}

/// Test fixture: the table of routes that FPM sessions have announced, a mirror with one device, and the recorded
/// changes and answers.
struct Site {
    table: Table,
    mirror: Mirror,
    changes: Vec<Change>,
    answers: Vec<Answer>,
}

fn link(index: u32, up: bool) -> Object {
    let name = format!("e{index}");
    let address = vec![2, 0, 0, 0, 0, 1];
    let none = (None, None);
    Object::Link(Link {
        index,
        name,
        kind: None,
        address,
        mtu: 1500,
        up,
        carrier: up,
        running: up,
        master: none.0,
        parent: none.1,
    })
}

impl Site {
    fn new(limit: usize) -> Site {
        let mut mirror = Mirror::default();
        mirror.told_apart = true;
        mirror.dumped(link(LINK, true));
        let mut site = Site { table: Table::new(limit), mirror, changes: Vec::new(), answers: Vec::new() };
        site.table.begin();
        site
    }

    /// Applies all messages in one call ([`Table::apply_all`]).
    fn says_at_once(&mut self, all: impl IntoIterator<Item = Message>) {
        let events = all.into_iter().flat_map(|message| read(&frame([message])).unwrap()).collect();
        self.table.apply_all(&mut self.mirror, events, &mut self.changes, &mut self.answers);
    }

    fn says(&mut self, all: impl IntoIterator<Item = Message>) {
        for message in all {
            for event in read(&frame([message])).unwrap() {
                self.table.apply(&mut self.mirror, event, &mut self.changes, &mut self.answers);
            }
        }
    }

    /// Starts a new FPM session with a complete replay of these messages.
    fn replays(&mut self, all: impl IntoIterator<Item = Message>) -> u64 {
        self.table.lost();
        self.table.begin();
        self.says(all);
        self.table.settled(&mut self.mirror, &mut self.changes)
    }

    /// Applies an event of the kernel to the mirror. Ignores the event if FPM sessions are the source of the object
    /// that the event describes.
    fn kernel(&mut self, gone: bool, object: Object) {
        let event = Event { gone, flags: 0, object };
        if !self.table.speaks_for(&event) {
            self.mirror.apply(event, &mut self.changes);
        }
    }

    /// Returns each prefix in the mirror with its target as text.
    fn routes(&self) -> Vec<String> {
        let hop = |hop: &Hop| {
            let gateway = hop.gateway.map(|gateway| gateway.to_string()).unwrap_or_default();
            format!(
                "{gateway}{}{}",
                if hop.weight > 1 { "*" } else { "" },
                if hop.dead { " dead" } else { "" }
            )
        };
        let said = |path: &Path| match path.next_hop {
            Some(id) => {
                let next = self.mirror.next_hops.get(&id);
                next.map_or("nothing".to_owned(), |next| {
                    next.hop.as_ref().map_or_else(
                        || {
                            next.group
                                .iter()
                                .map(|member| member.id.to_string())
                                .collect::<Vec<_>>()
                                .join("+")
                        },
                        hop,
                    )
                })
            }
            None if path.kind == Kind::Unicast => path.hops.iter().map(hop).collect::<Vec<_>>().join(", "),
            None => format!("{:?}", path.kind),
        };
        let four = self.mirror.routes4.iter().map(|(key, paths)| (key.prefix.to_string(), paths));
        let six = self.mirror.routes6.iter().map(|(key, paths)| (key.prefix.to_string(), paths));
        four.chain(six).map(|(prefix, paths)| format!("{prefix} {}", said(paths.first().unwrap()))).collect()
    }

    /// Returns the prefixes about which answers were queued since the last call, with the results.
    fn answered(&mut self) -> Vec<(String, Option<bool>)> {
        let answers = std::mem::take(&mut self.answers);
        answers
            .into_iter()
            .map(|(key, said)| (key.prefix().to_string(), said.map(|said| said.offloaded)))
            .collect()
    }
}

#[test]
fn every_kind_of_target_is_read() {
    let mut site = Site::new(100);
    site.says([
        announce(prefix("10.1.0.0/16"), BGP, &via("192.0.2.1")),
        announce(prefix("10.2.0.0/16"), BGP, &via("fe80::1")),
        announce(prefix("2001:db8::/32"), BGP, &via("fe80::2")),
        announce(
            prefix("10.3.0.0/16"),
            BGP,
            &Target::Several(vec![(ip("192.0.2.1"), LINK, 1), (ip("192.0.2.2"), LINK, 7)]),
        ),
        next_hop(7, ip("192.0.2.7"), LINK),
        next_hop(8, ip("192.0.2.8"), LINK),
        group(9, &[(7, 1), (8, 3)]),
        announce(prefix("10.4.0.0/16"), BGP, &Target::Object(7)),
        announce(prefix("10.5.0.0/16"), BGP, &Target::Object(9)),
        announce(prefix("10.6.0.0/16"), BGP, &Target::Nowhere(6)),
        announce(prefix("10.7.0.0/16"), BGP, &Target::Nowhere(8)),
    ]);
    assert_eq!(
        site.routes(),
        [
            "10.1.0.0/16 192.0.2.1",
            "10.2.0.0/16 fe80::1",
            "10.3.0.0/16 192.0.2.1, 192.0.2.2*",
            "10.4.0.0/16 192.0.2.7",
            "10.5.0.0/16 7+8",
            "10.6.0.0/16 Blackhole",
            "10.7.0.0/16 Prohibit",
            "2001:db8::/32 fe80::2",
        ]
    );
    assert!(site.answered().iter().all(|(_, said)| *said == Some(true)));
    site.says([withdraw(prefix("10.1.0.0/16"), BGP), withdraw(prefix("10.9.0.0/16"), BGP)]);
    assert_eq!(site.routes().len(), 7);
    assert_eq!(site.answered(), [("10.1.0.0/16".to_owned(), None), ("10.9.0.0/16".to_owned(), None)]);
}

#[test]
fn what_is_the_kernels_to_say_is_left_to_it() {
    let mut site = Site::new(100);
    let other = |kind, header: &[u8]| Message::new(kind, 0, header);
    let bytes = [
        frame([
            announce(prefix("10.1.0.0/16"), 2, &via("192.0.2.1")),
            announce(prefix("10.1.0.0/16"), 4, &via("192.0.2.1")),
        ]),
        // A neighbour, an MPLS route, a rule, and a multicast route.
        frame([
            other(28, &[0; 12]),
            other(24, &[28, 20, 0, 0, 254, BGP, 0, 1, 0, 0, 0, 0]),
            other(32, &[0; 12]),
        ]),
        frame([other(24, &[128, 32, 0, 0, 254, BGP, 0, 1, 0, 0, 0, 0])]),
    ]
    .concat();
    let (mut decoder, mut events) = (Decoder::new(), Vec::new());
    decoder.feed(&bytes, &mut events).unwrap();
    assert_eq!((decoder.counts().messages, decoder.counts().left, events.len()), (6, 4, 2));
    for event in events {
        site.table.apply(&mut site.mirror, event, &mut site.changes, &mut site.answers);
    }
    assert_eq!((site.table.left, site.routes().len(), site.answers.len()), (2, 0, 0));
}

#[test]
fn what_does_not_add_up_is_named_with_its_place() {
    let good = frame([announce(prefix("10.1.0.0/16"), BGP, &via("192.0.2.1"))]);
    let offset = good.len() as u64;
    let after = |bad: &[u8]| read(&[good.as_slice(), bad].concat()).unwrap_err();
    assert_eq!(after(&[2, 1, 0, 30]), BadMessage { offset, cause: Cause::Frame { version: 2, kind: 1 } });
    assert_eq!(after(&[1, 2, 0, 30]), BadMessage { offset, cause: Cause::Frame { version: 1, kind: 2 } });
    assert_eq!(after(&[1, 1, 0, 19]), BadMessage { offset, cause: Cause::Short(19) });
    let spoilt = |at: usize, value: u8| {
        let mut bad = good.clone();
        bad[at] = value;
        after(&bad)
    };
    let offset = offset + 4;
    let room = good.len() - 4;
    assert_eq!(spoilt(4, 15), BadMessage { offset, cause: Cause::Message { length: 15, room } });
    assert_eq!(spoilt(4, 255), BadMessage { offset, cause: Cause::Message { length: 255, room } });
    let unreadable = BadMessage { offset, cause: Cause::Unreadable(24) };
    // A prefix of 33 bits, and attributes that exceed the message or are shorter than their header.
    assert_eq!(spoilt(21, 33), unreadable);
    assert_eq!(spoilt(32, 200), unreadable);
    assert_eq!(spoilt(32, 3), unreadable);
    // A gateway of three bytes.
    assert_eq!(spoilt(48, 7), unreadable);
    assert_eq!(read(&good).unwrap().len(), 1);
}

#[test]
fn what_is_not_announced_again_goes_when_the_replay_is_whole() {
    let mut site = Site::new(100);
    let routes = |numbers: &[u8]| -> Vec<Message> {
        numbers
            .iter()
            .map(|number| announce(prefix(&format!("10.{number}.0.0/16")), BGP, &via("192.0.2.1")))
            .collect()
    };
    site.says(routes(&[1, 2, 3]));
    assert_eq!(site.table.settled(&mut site.mirror, &mut site.changes), 0);
    // If the session is lost during a replay, no route is removed.
    site.table.lost();
    site.table.begin();
    site.says(routes(&[1]));
    site.table.lost();
    assert_eq!(site.routes().len(), 3);
    site.changes.clear();
    assert_eq!(site.replays(routes(&[2, 4])), 2);
    assert_eq!(site.routes(), ["10.2.0.0/16 192.0.2.1", "10.4.0.0/16 192.0.2.1"]);
    assert_eq!((site.changes.len(), site.table.swept), (3, 2), "a route that stays has not changed");
}

#[test]
fn numbers_of_next_hops_of_another_session_do_not_mislead_its_routes() {
    let mut site = Site::new(100);
    let route = |number: u8, id| announce(prefix(&format!("10.{number}.0.0/16")), BGP, &Target::Object(id));
    site.says([
        next_hop(7, ip("192.0.2.1"), LINK),
        next_hop(8, ip("192.0.2.2"), LINK),
        route(1, 7),
        route(2, 8),
    ]);
    site.table.settled(&mut site.mirror, &mut site.changes);
    // zebra was restarted, and assigns IDs in another order.
    site.table.lost();
    site.table.begin();
    site.says([next_hop(8, ip("192.0.2.1"), LINK), next_hop(7, ip("192.0.2.9"), LINK)]);
    assert_eq!(site.routes(), ["10.1.0.0/16 192.0.2.1", "10.2.0.0/16 192.0.2.2"]);
    site.says([group(9, &[(7, 1), (8, 1)]), route(1, 8), route(3, 9)]);
    assert_eq!(site.routes()[..2], ["10.1.0.0/16 192.0.2.1", "10.2.0.0/16 192.0.2.2"]);
    assert_eq!(site.table.settled(&mut site.mirror, &mut site.changes), 1);
    site.says([route(2, 7), next_hop(7, ip("192.0.2.10"), LINK)]);
    assert_eq!(site.routes()[..2], ["10.1.0.0/16 192.0.2.1", "10.2.0.0/16 192.0.2.10"]);
    assert_eq!(site.mirror.next_hops.len(), 3, "those of the session before have gone");
    // A route to an unknown object is refused. Groups of groups are refused, because they could be recursive.
    site.answers.clear();
    site.says([route(4, 77), group(10, &[(9, 1)]), group(8, &[(7, 1)]), route(5, 10)]);
    assert_eq!(
        site.answered(),
        [("10.4.0.0/16".to_owned(), Some(false)), ("10.5.0.0/16".to_owned(), Some(false))]
    );
    site.says([next_hop_gone(9)]);
    assert_eq!(site.routes().len(), 2, "a route goes with what it leads to");
}

/// Checks that a next-hop object of the kernel (`ip nexthop add`) and an equal next-hop object of an FPM session remain
/// two objects in the mirror, even if both have the same ID.
#[test]
fn an_object_of_the_kernel_and_one_of_a_session_do_not_share_an_id() {
    let mut site = Site::new(100);
    site.says([next_hop(7, ip("192.0.2.1"), LINK)]);
    let mut of_kernel = site.mirror.next_hops[&7].clone();
    of_kernel.protocol = 4;
    let mut site = Site::new(100);
    site.kernel(false, Object::NextHop(7, of_kernel.clone()));
    site.says([next_hop(7, ip("192.0.2.1"), LINK), announce(prefix("10.1.0.0/16"), BGP, &Target::Object(7))]);
    assert_eq!(site.mirror.next_hops.len(), 2);
    assert_eq!(site.mirror.next_hops[&7].protocol, 4);
    site.kernel(true, Object::NextHop(7, of_kernel));
    assert_eq!(site.routes(), ["10.1.0.0/16 192.0.2.1"]);
}

/// Checks that removing several next-hop objects in one pass has the same result as removing them one by one. The
/// objects are removed from their groups, and routes through the objects are removed. An object that is added again
/// between the removals is kept.
#[test]
fn next_hops_that_go_together_go_as_one_by_one() {
    let route = |number: u32, id| {
        announce(prefix(&format!("10.{}.{}.0/24", number / 256, number % 256)), BGP, &Target::Object(id))
    };
    let objects = (1..=40).map(|id| next_hop(id, ip(&format!("192.0.2.{id}")), LINK));
    let groups = (0..20).map(|number| group(100 + number, &[(1 + number, 1), (2 + 2 * number, 1)]));
    let routes = (0..400)
        .map(|number| route(number, if number % 3 == 0 { 100 + number % 20 } else { 1 + number % 40 }));
    let begun: Vec<Message> = objects.chain(groups).chain(routes).collect();
    let gone = |ids: std::ops::Range<u32>| ids.map(next_hop_gone);
    let anew = [next_hop(5, ip("192.0.2.99"), LINK), route(1_000, 5)];
    let end: Vec<Message> = gone(3..9).chain(anew).chain(gone(7..12)).chain(gone(103..104)).collect();
    let mut sites = [Site::new(1000), Site::new(1000)];
    sites.iter_mut().for_each(|site| site.says_at_once(begun.clone()));
    let before = sites[0].routes().len();
    let [whole, single] = &mut sites;
    whole.says_at_once(end.clone());
    single.says(end);
    assert_eq!(whole.routes(), single.routes());
    assert!(whole.routes().len() < before && whole.routes().contains(&"10.3.232.0/24 192.0.2.99".to_owned()));
    assert_eq!(whole.mirror.differences(&single.mirror), []);
}

#[test]
fn the_kernels_copies_stand_in_until_a_replay_is_whole() {
    let mut site = Site::new(100);
    site.table.lost();
    let copy = |number: u8| {
        let bytes = frame([announce(prefix(&format!("10.{number}.0.0/16")), BGP, &via("192.0.2.1"))]);
        read(&bytes).unwrap().remove(0).object
    };
    for number in 1..4 {
        site.kernel(false, copy(number));
    }
    site.kernel(true, copy(3));
    assert_eq!(site.routes().len(), 2, "as the kernel says");
    site.table.begin();
    site.says([announce(prefix("10.1.0.0/16"), BGP, &via("192.0.2.9"))]);
    site.kernel(true, copy(1));
    site.kernel(false, copy(4));
    assert_eq!(site.routes(), ["10.1.0.0/16 192.0.2.9", "10.2.0.0/16 192.0.2.1", "10.4.0.0/16 192.0.2.1"]);
    assert_eq!(site.table.settled(&mut site.mirror, &mut site.changes), 2);
    site.kernel(false, copy(5));
    assert_eq!(site.routes(), ["10.1.0.0/16 192.0.2.9"]);
    // The kernel determines routes of other origins.
    let Object::Route4(key, path) = copy(6) else { unreachable!() };
    site.kernel(false, Object::Route4(key, Path { protocol: 4, ..path }));
    assert_eq!(site.routes().len(), 2);
    // A new dump of the kernel's state receives the announced routes.
    let mut dumped = Mirror::default();
    dumped.dumped(link(LINK, false));
    site.table.carry(&site.mirror, &mut dumped);
    site.mirror = dumped;
    assert_eq!(site.routes(), ["10.1.0.0/16 192.0.2.9 dead"]);
}

#[test]
fn routes_rest_while_their_device_is_down() {
    let mut site = Site::new(100);
    site.says([
        next_hop(7, ip("192.0.2.7"), LINK),
        announce(prefix("10.1.0.0/16"), BGP, &via("192.0.2.1")),
        announce(prefix("10.2.0.0/16"), BGP, &Target::Object(7)),
        announce(prefix("2001:db8::/32"), BGP, &via("fe80::2")),
    ]);
    let (up, down) = (
        site.routes(),
        ["10.1.0.0/16 192.0.2.1 dead", "10.2.0.0/16 192.0.2.7 dead", "2001:db8::/32 fe80::2 dead"],
    );
    site.changes.clear();
    site.kernel(false, link(LINK, false));
    assert_eq!(site.routes(), down);
    assert!(site.changes.len() >= 4, "the device, two routes and an object have changed: {:?}", site.changes);
    site.says([announce(prefix("10.1.0.0/16"), BGP, &via("192.0.2.1"))]);
    assert_eq!(site.routes(), down);
    site.kernel(false, link(LINK, true));
    assert_eq!(site.routes(), up);
    site.kernel(true, link(LINK, true));
    assert_eq!(site.routes(), down);
}

/// Checks that tables without routes do not count against the limit of tables. Such tables remain when VRFs are created
/// and deleted.
#[test]
fn tables_without_routes_make_room_for_others() {
    let mut site = Site::new(1000);
    let says = |site: &mut Site, table: u32, message: Message| {
        for mut event in read(&frame([message])).unwrap() {
            let Object::Route4(key, _) = &mut event.object else { panic!("{event:?}") };
            key.table = table;
            site.table.apply(&mut site.mirror, event, &mut site.changes, &mut site.answers);
        }
        site.answered().into_iter().map(|(_, said)| said).collect::<Vec<_>>()
    };
    let route = || announce(prefix("10.1.0.0/16"), BGP, &via("192.0.2.1"));
    for table in 1000..1064 {
        assert_eq!(says(&mut site, table, route()), [Some(true)], "{table}");
    }
    assert_eq!(says(&mut site, 2000, route()), [Some(false)], "64 tables are filled");
    assert_eq!(says(&mut site, 1063, route()), [Some(true)]);
    for table in 1000..1010 {
        assert_eq!(says(&mut site, table, withdraw(prefix("10.1.0.0/16"), BGP)), [None]);
    }
    for table in 2000..2010 {
        assert_eq!(says(&mut site, table, route()), [Some(true)], "{table}");
    }
    assert_eq!(says(&mut site, 2010, route()), [Some(false)]);
    // Tables of a previous session count until the replay is complete.
    assert_eq!(site.replays([]), 64);
    for table in 3000..3064 {
        assert_eq!(says(&mut site, table, route()), [Some(true)], "{table}");
    }
}

/// Checks that the total number of members of all next-hop groups is limited. The removal of groups frees space for
/// other groups.
#[test]
fn members_of_groups_beyond_the_limit_are_refused() {
    const WAYS: u32 = 1024;
    let mut site = Site::new(100);
    let single = |id: u32| next_hop(id, IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + id)), LINK);
    site.says((1..=WAYS).map(single));
    let all: Vec<(u32, u8)> = (1..=WAYS).map(|id| (id, 1)).collect();
    let refused = |site: &mut Site, id: u32| {
        let before = site.table.refused;
        site.says([group(id, &all)]);
        site.table.refused - before
    };
    for id in 0..1024 {
        assert_eq!(refused(&mut site, 10_000 + id), 0, "{id}");
    }
    assert_eq!(refused(&mut site, 20_000), 1);
    // A group whose number of members does not change needs no additional space.
    assert_eq!(refused(&mut site, 10_000), 0);
    site.says([next_hop_gone(10_001)]);
    assert_eq!((refused(&mut site, 20_000), refused(&mut site, 20_001)), (0, 1));
    site.says([group(10_002, &all[1..])]);
    site.says([group(20_001, &all[..1])]);
    assert!(site.mirror.next_hops.contains_key(&20_001));
    let members: usize = site.mirror.next_hops.values().map(|next| next.group.len()).sum();
    assert_eq!(members, 1 << 20);
}

/// Checks that a replay of zebra's routes with new next-hop IDs is applied quickly. After a restart, zebra assigns the
/// IDs of its objects in another order.
#[test]
fn many_next_hops_that_are_numbered_anew_take_no_long_search() {
    const MANY: u32 = 20_000;
    let mut site = Site::new(100);
    let gateway = |number: u32| IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + number));
    let all = |first: u32| (1..=MANY).map(move |id| next_hop(id, gateway(first + id), LINK));
    site.says(all(0));
    site.table.lost();
    site.table.begin();
    let begin = std::time::Instant::now();
    site.says(all(100_000));
    let took = begin.elapsed();
    assert_eq!(site.mirror.next_hops.len(), 2 * MANY as usize);
    assert!(took.as_millis() < 1500, "{took:?}");
}

#[test]
fn beyond_the_limit_routes_are_refused_and_those_there_stay() {
    let mut site = Site::new(3);
    let route =
        |number: u8, gateway: &str| announce(prefix(&format!("10.{number}.0.0/16")), BGP, &via(gateway));
    site.says((1..5).map(|number| route(number, "192.0.2.1")));
    site.says([route(2, "192.0.2.2")]);
    let said: Vec<Option<bool>> = site.answered().into_iter().map(|(_, said)| said).collect();
    assert_eq!(said, [Some(true), Some(true), Some(true), Some(false), Some(true)]);
    assert_eq!(site.routes(), ["10.1.0.0/16 192.0.2.1", "10.2.0.0/16 192.0.2.2", "10.3.0.0/16 192.0.2.1"]);
    assert_eq!(site.table.refused, 1);
    // A route that the workers' tables refused is reported as changed again.
    site.says([route(1, "192.0.2.1")]);
    site.table.no_room(&[(254, prefix("10.1.0.0/16"))], &mut site.answers);
    assert_eq!(site.answered(), [("10.1.0.0/16".to_owned(), Some(false))]);
    // A result for an equal prefix in another table does not affect this route.
    site.table.found_room(&[(100, prefix("10.1.0.0/16"))], &mut site.answers);
    assert_eq!(site.answered(), []);
    site.says([route(2, "192.0.2.1")]);
    site.table.no_room(&[(100, prefix("10.2.0.0/16"))], &mut site.answers);
    assert_eq!(site.answered(), [("10.2.0.0/16".to_owned(), Some(true))]);
    site.changes.clear();
    site.says([route(1, "192.0.2.1")]);
    assert_eq!((site.changes.len(), site.answered()), (1, vec![("10.1.0.0/16".to_owned(), Some(true))]));
}

/// Checks that a refused route that a replay of zebra's routes removes is also removed from the refused routes. The
/// table would otherwise grow with each session, and would send answers about routes that do not exist.
#[test]
fn a_refused_route_that_a_replay_removes_is_forgotten() {
    let mut site = Site::new(10);
    let route = |number: u8| announce(prefix(&format!("10.{number}.0.0/16")), BGP, &via("192.0.2.1"));
    site.table.begin();
    site.says([route(1), route(2)]);
    site.table.no_room(&[(254, prefix("10.1.0.0/16")), (254, prefix("10.2.0.0/16"))], &mut site.answers);
    site.answered();
    site.table.lost();
    site.table.begin();
    site.says([route(2)]);
    site.table.no_room(&[(254, prefix("10.2.0.0/16"))], &mut site.answers);
    site.answered();
    assert_eq!(site.table.settled(&mut site.mirror, &mut site.changes), 1);
    site.table.found_room(&[(254, prefix("10.1.0.0/16")), (254, prefix("10.2.0.0/16"))], &mut site.answers);
    assert_eq!(site.answered(), [("10.2.0.0/16".to_owned(), Some(true))]);
}

/// Checks that a waiting route is installed when another route is removed, and that zebra gets another answer about the
/// installed route.
#[test]
fn a_route_that_gets_room_later_is_answered_anew() {
    let mut site = Site::new(10);
    let limits = Limits { words: 1 << 21, routes: 1, paths: 16, neighbours: 16 };
    let mut feed = Feed::new(&Domain::new(), limits, 1);
    let mut tell = |site: &mut Site| {
        feed.apply(&site.mirror, &site.changes);
        site.changes.clear();
        let outcome = feed.take_outcome();
        site.table.no_room(&outcome.refused, &mut site.answers);
        site.table.found_room(&outcome.found, &mut site.answers);
    };
    let route = |number: u8| announce(prefix(&format!("10.{number}.0.0/16")), BGP, &via("192.0.2.1"));
    let answer = |number: u8, said| (format!("10.{number}.0.0/16"), said);
    tell(&mut site);
    site.says([route(1), route(2), route(3)]);
    tell(&mut site);
    let said = [answer(1, Some(true)), answer(2, Some(false)), answer(3, Some(false))];
    assert_eq!(site.answered(), said);
    site.says([withdraw(prefix("10.1.0.0/16"), BGP)]);
    tell(&mut site);
    assert_eq!(site.answered(), [answer(1, None), answer(2, Some(true))]);
    // Each result is answered once. A route that is withdrawn while it waits gets no further answer.
    site.says([withdraw(prefix("10.3.0.0/16"), BGP)]);
    tell(&mut site);
    site.says([withdraw(prefix("10.2.0.0/16"), BGP)]);
    tell(&mut site);
    assert_eq!(site.answered(), [answer(3, None), answer(2, None)]);
}

/// Checks that packets of a changed route are punted to the kernel, and not forwarded along the route's old path, if
/// there is no space for the new path. A waiting route does not block routes of the other address family.
#[test]
fn a_changed_route_without_room_is_the_kernels() {
    let mut site = Site::new(10);
    let limits = Limits { words: 1 << 21, routes: 10, paths: 2, neighbours: 16 };
    let mut feed = Feed::new(&Domain::new(), limits, 1);
    let bytes = frame([announce(prefix("192.0.2.254/32"), BGP, &via("192.0.2.1"))]);
    let Object::Route4(key, path) = read(&bytes).unwrap().remove(0).object else { unreachable!() };
    let (key, path) = (RouteKey { table: 255, ..key }, Path { kind: Kind::Local, protocol: 2, ..path });
    site.kernel(false, Object::Route4(key, path));
    let route = |to: &str, gateway: &str| announce(prefix(to), BGP, &via(gateway));
    site.says([route("10.1.0.0/16", "192.0.2.1"), route("10.2.0.0/16", "192.0.2.1")]);
    let mut tell = |site: &mut Site| {
        feed.apply(&site.mirror, &site.changes);
        site.changes.clear();
        let main = feed.table(254).unwrap();
        ["10.1.0.1", "10.2.0.1"].map(|to| main.why(ip(to)).map(|(.., path)| *path == router::Path::Local))
    };
    assert_eq!(tell(&mut site), [Some(false), Some(false)]);
    site.says([route("10.1.0.0/16", "192.0.2.2")]);
    assert_eq!(tell(&mut site), [Some(true), Some(false)]);
    site.says([withdraw(prefix("10.2.0.0/16"), BGP)]);
    assert_eq!(tell(&mut site), [Some(false), None]);
}

/// A step of a random FPM session.
#[derive(Clone, Debug)]
enum Step {
    Announce(u8, u8),
    Object(u8, u8),
    Withdraw(u8),
    Lost,
    Begin,
    Settled,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..8_u8, 0..4_u8).prop_map(|(route, gateway)| Step::Announce(route, gateway)),
        3 => (0..8_u8, 0..3_u8).prop_map(|(route, object)| Step::Object(route, object)),
        3 => (0..8_u8).prop_map(Step::Withdraw),
        1 => Just(Step::Lost),
        1 => Just(Step::Begin),
        1 => Just(Step::Settled),
    ];
    proptest::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn sessions_leave_what_a_list_of_them_would(steps in steps()) {
        let mut site = Site::new(100);
        // Target of each route, and whether the current replay has announced it.
        let mut list: BTreeMap<u8, (String, bool)> = BTreeMap::new();
        let objects = || (0..3).map(|id: u32| next_hop(id + 1, ip(&format!("198.51.100.{id}")), LINK));
        site.says(objects());
        let (mut open, mut replays) = (true, true);
        for step in steps {
            match step {
                Step::Announce(route, gateway) if open => {
                    let gateway = format!("192.0.2.{gateway}");
                    site.says([announce(prefix(&format!("10.{route}.0.0/16")), BGP, &via(&gateway))]);
                    list.insert(route, (gateway, true));
                }
                Step::Object(route, object) if open => {
                    let target = Target::Object(u32::from(object) + 1);
                    site.says([announce(prefix(&format!("10.{route}.0.0/16")), BGP, &target)]);
                    list.insert(route, (format!("198.51.100.{object}"), true));
                }
                Step::Withdraw(route) if open => {
                    site.says([withdraw(prefix(&format!("10.{route}.0.0/16")), BGP)]);
                    list.remove(&route);
                }
                Step::Lost => {
                    site.table.lost();
                    (open, replays) = (false, false);
                }
                Step::Begin => {
                    site.table.begin();
                    site.says(objects());
                    list.values_mut().for_each(|(_, named)| *named = false);
                    (open, replays) = (true, true);
                }
                Step::Settled if open => {
                    site.table.settled(&mut site.mirror, &mut site.changes);
                    if replays {
                        list.retain(|_, (_, named)| *named);
                        replays = false;
                    }
                }
                _ => {}
            }
            let wanted: Vec<String> =
                list.iter().map(|(route, (gateway, _))| format!("10.{route}.0.0/16 {gateway}")).collect();
            prop_assert_eq!(site.routes(), wanted);
        }
    }

    #[test]
    fn pieces_say_what_the_whole_says(
        routes in proptest::collection::vec((any::<u32>(), 0..33_u8, any::<bool>()), 0..40),
        cuts in proptest::collection::vec(1..90_usize, 1..50),
        spoilt in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut bytes = Vec::new();
        for (address, length, gone) in routes {
            let prefix = Prefix { address: std::net::Ipv4Addr::from(address).into(), length };
            let message = if gone { withdraw(prefix, BGP) } else { announce(prefix, BGP, &via("192.0.2.1")) };
            bytes.extend(frame([message]));
        }
        if let (Some((at, value)), false) = (spoilt, bytes.is_empty()) {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let mut whole = (Decoder::new(), Vec::new());
        let ended = whole.0.feed(&bytes, &mut whole.1);
        let mut pieces = (Decoder::new(), Vec::new());
        let (mut rest, mut cuts) = (bytes.as_slice(), cuts.iter().cycle());
        let mut same = Ok(());
        while same.is_ok() && !rest.is_empty() {
            let (piece, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            same = pieces.0.feed(piece, &mut pieces.1);
            rest = later;
        }
        prop_assert_eq!(ended, same);
        prop_assert_eq!(whole.1, pieces.1);
        prop_assert_eq!(whole.0.counts(), pieces.0.counts());
    }

    #[test]
    fn noise_is_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 24_u16..26) {
        let _ = read(&bytes);
        let mut framed = frame([Message::new(kind, 0, &[])]);
        framed.extend(&bytes);
        let length = u16::try_from(framed.len()).unwrap();
        framed[2..4].copy_from_slice(&length.to_be_bytes());
        framed[4..8].copy_from_slice(&u32::from(length - 4).to_ne_bytes());
        let _ = read(&framed);
        let _ = speak::answers(&framed, &mut Vec::new());
    }
}
