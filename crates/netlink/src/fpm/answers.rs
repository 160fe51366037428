//! Answers to zebra that are not sent yet. An answer reports whether a route that zebra announced was installed. There
//! is at most one answer for each route, with its latest result.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::speak::{Message, frame};
use crate::rtnetlink::family::{AF_INET, AF_INET6};
use crate::rtnetlink::message::RTM_NEWROUTE;
use crate::rtnetlink::route::{
    RT_SCOPE_UNIVERSE, RTA_DST, RTA_PRIORITY, RTA_TABLE, RTM_F_OFFLOAD, RTM_F_OFFLOAD_FAILED,
};
use crate::state::{Family, Prefix, RouteKey, TablePrefix};

/// Key of an IPv4 or IPv6 route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Four(RouteKey<Ipv4Addr>),
    Six(RouteKey<Ipv6Addr>),
}

impl Key {
    /// Returns the number of the route's routing table, and the destination prefix of the route.
    pub(crate) fn table_prefix(&self) -> TablePrefix {
        match self {
            Key::Four(key) => (key.table, self.prefix()),
            Key::Six(key) => (key.table, self.prefix()),
        }
    }

    /// Returns the destination prefix of the route.
    pub(crate) fn prefix(&self) -> Prefix<IpAddr> {
        match self {
            Key::Four(key) => Prefix { address: key.prefix.address.into(), length: key.prefix.length },
            Key::Six(key) => Prefix { address: key.prefix.address.into(), length: key.prefix.length },
        }
    }
}

/// Answer to zebra that reports whether a route was installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// Protocol of the route (`RTPROT_*`), as in zebra's announcement.
    pub(crate) protocol: u8,
    pub(crate) kind: u8,
    /// Whether the route was installed in the router's tables.
    pub(crate) offloaded: bool,
}

/// Answers to zebra in one FPM session that are not sent yet.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Sequence number of the FPM session. Answers of other FPM sessions are ignored.
    session: u64,
    waiting: BTreeMap<Key, Said>,
    /// Maximum number of unsent answers. A higher number shows that zebra does not read its answers.
    most: usize,
}

impl Answers {
    /// Removes the answers of the previous FPM session and starts the FPM session with the number `session`. `most` is
    /// the maximum number of unsent answers.
    pub(crate) fn begin(&mut self, session: u64, most: usize) {
        *self = Answers { session, waiting: BTreeMap::new(), most };
    }

    /// Queues answers about routes for the FPM session with the number `session`. `None` in place of an answer states
    /// that the route was withdrawn, and removes the unsent answer about the route.
    pub(crate) fn say(&mut self, session: u64, all: impl IntoIterator<Item = (Key, Option<Said>)>) {
        if session != self.session {
            return;
        }
        for (key, said) in all {
            match said {
                None => drop(self.waiting.remove(&key)),
                // Further answers are discarded, because the session will be ended.
                Some(said) if self.waiting.len() <= self.most => drop(self.waiting.insert(key, said)),
                Some(_) => {}
            }
        }
    }

    /// Returns whether the number of unsent answers exceeds the maximum, which shows that zebra does not read the
    /// answers.
    pub(crate) fn overflows(&self) -> bool {
        self.waiting.len() > self.most
    }

    /// Appends encoded answers to `bytes` until `bytes` contains about `until` bytes, and removes these answers from
    /// the queue. Returns the number of encoded answers.
    pub(crate) fn write(&mut self, bytes: &mut Vec<u8>, until: usize) -> u64 {
        let mut written = 0;
        while bytes.len() < until {
            let Some((key, said)) = self.waiting.pop_first() else { break };
            let message = match key {
                Key::Four(key) => message(&key, said, &key.prefix.address.octets()),
                Key::Six(key) => message(&key, said, &key.prefix.address.octets()),
            };
            bytes.extend_from_slice(&frame([message]));
            written += 1;
        }
        written
    }
}

/// Returns the encoded answer about a route. Each FPM frame contains one answer, because zebra reads only the first
/// message of a frame.
fn message<A: Family>(key: &RouteKey<A>, said: Said, address: &[u8]) -> Message {
    let family = if A::BYTES == 4 { AF_INET } else { AF_INET6 };
    let table = u8::try_from(key.table).unwrap_or(0);
    let marks = if said.offloaded { RTM_F_OFFLOAD } else { RTM_F_OFFLOAD_FAILED };
    let mut header =
        vec![family, key.prefix.length, 0, key.tos, table, said.protocol, RT_SCOPE_UNIVERSE, said.kind];
    header.extend_from_slice(&marks.to_ne_bytes());
    Message::new(RTM_NEWROUTE, 0, &header)
        .with(RTA_DST, address)
        .with(RTA_PRIORITY, &key.metric.to_ne_bytes())
        .with(RTA_TABLE, &key.table.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::speak::answers;
    use super::*;

    fn key(last: u8, table: u32) -> Key {
        let everyone = Prefix { address: Ipv4Addr::UNSPECIFIED, length: 0 };
        let prefix = Prefix { address: [192, 0, 2, last].into(), length: 32 };
        Key::Four(RouteKey { table, prefix, tos: 0, metric: 20, from: everyone })
    }

    const GOOD: Option<Said> = Some(Said { protocol: 186, kind: 1, offloaded: true });
    const BAD: Option<Said> = Some(Said { protocol: 188, kind: 6, offloaded: false });

    #[test]
    fn the_last_word_on_a_route_is_said_once() {
        let mut waiting = Answers::default();
        waiting.begin(7, 100);
        waiting.say(7, [(key(1, 254), GOOD), (key(2, 1000), GOOD), (key(3, 254), GOOD)]);
        waiting.say(6, [(key(9, 254), GOOD)]);
        waiting.say(7, [(key(2, 1000), BAD), (key(3, 254), None)]);
        let mut bytes = Vec::new();
        assert_eq!(waiting.write(&mut bytes, 1 << 20), 2);
        assert_eq!(waiting.write(&mut Vec::new(), 1), 0);
        let mut read = Vec::new();
        assert_eq!(answers(&bytes, &mut read), Ok(bytes.len()));
        let told: Vec<_> =
            read.iter().map(|one| (one.prefix.to_string(), one.table, one.protocol, one.offloaded)).collect();
        assert_eq!(
            told,
            [("192.0.2.1/32".to_owned(), 254, 186, true), ("192.0.2.2/32".to_owned(), 1000, 188, false)]
        );
    }

    #[test]
    fn who_does_not_read_is_found_out() {
        let mut waiting = Answers::default();
        waiting.begin(1, 2);
        waiting.say(1, (0..9).map(|last| (key(last, 254), GOOD)));
        assert!(waiting.overflows());
        let mut bytes = Vec::new();
        assert_eq!(waiting.write(&mut bytes, 1 << 20), 3);
    }
}
