//! IGMP and MLD snooping, the control thread's half (RFC 4541): who listens to which group, and where the routers are.
//!
//! The times and their reasons stand with [`Snooper`].

mod message;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use packet::{PortId, VlanId};

use crate::bridge::Bridge;
use crate::config::Now;
use crate::groups::{Family, GroupPorts, Groups, RouterPorts};
use crate::multicast::is_prunable;
use message::{Event, Query};

const NS_PER_S: u64 = 1_000_000_000;
/// Last member query count, RFC 3376 section 8.11: a router asks so often before it believes a leave.
const LAST_MEMBER_QUERIES: u64 = 2;
/// What a leaving port has left where no querier asks: that count times the last member query interval of a second.
const LEAVE_NS: u64 = LAST_MEMBER_QUERIES * NS_PER_S;
/// In how long hosts answer a query that does not say so (IGMP version 1, RFC 2236 section 4).
const RESPONSE_NS: u64 = 10 * NS_PER_S;
/// How long after the response time an answer may be read: answers wait for the control thread's next look.
const ANSWER_SLACK_NS: u64 = NS_PER_S;
/// In how long a host repeats a report of its own accord (RFC 2236 section 8.10, RFC 2710 section 7.10), and a second for the way: a report
/// of an older member is an answer.
const UNSOLICITED_NS: u64 = 11 * NS_PER_S;
/// Queriers of one VLAN and family that are told apart. Where there is one, others fall silent (RFC 3376 section 6.6.2).
const MAX_QUERIERS: usize = 8;
/// No query may cut a listener's time below this, lest a forged response time of zero cut everybody off.
const MIN_RESPONSE_NS: u64 = NS_PER_S;

/// Times and bounds of snooping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnooperConfig {
    /// Seconds that a report holds: the group membership interval, RFC 3376 section 8.4.
    pub member_secs: u32,
    /// Seconds that a query or PIM hello makes its port a router port: the other querier present interval, RFC 3376
    /// section 8.5.
    pub router_secs: u32,
    /// Whether a leave takes effect at once: for ports with one host each.
    pub fast_leave: bool,
    /// Groups that a bridge knows at most.
    pub max_groups: usize,
    /// Groups that one port listens to at most, over all its VLANs.
    pub max_groups_per_port: u32,
}

impl Default for SnooperConfig {
    fn default() -> Self {
        SnooperConfig {
            member_secs: 260,
            router_secs: 255,
            fast_leave: false,
            max_groups: 4096,
            max_groups_per_port: 512,
        }
    }
}

/// What a snooper has seen, as counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnooperCounts {
    /// Reports that somebody listens, by group.
    pub joins: u64,
    /// Reports that somebody left, by group.
    pub leaves: u64,
    /// Queries that were believed.
    pub queries: u64,
    /// PIM hellos that were believed.
    pub hellos: u64,
    /// Frames that were not believed: broken, not as a host would believe them, or of a router where none may be.
    pub bad: u64,
    /// Joins beyond a bound.
    pub refused: u64,
}

/// Reads what workers punt: the control thread's half of snooping, one for each bridge.
///
/// Workers punt a copy of each report, query and PIM hello; [`Snooper::handle`] reads it, [`Snooper::tick`] forgets
/// what was not confirmed, and [`Snooper::take_groups`] gives the next table for [`crate::Bridge::with_groups`] when
/// something changed. One snooper serves one bridge.
///
/// - A port listens from a report until [`SnooperConfig::member_secs`] pass without another, while a querier lives that the port has answered:
///   silence means something only behind a port that hears the question. A port that is at its bound of groups keeps no silent one.
/// - **There is no querier of our own.** A group goes to its listeners only where a querier lives in its VLAN and family: where none does, nobody
///   renews memberships, and listeners are not asked to report themselves. Until then, and for the response time of the querier's first general
///   query, all groups flood (as in Linux, `br_multicast_querier_exists`). A general query from address zero counts, too: a snooping switch
///   that asks is no router (RFC 4541 section 2.1.1, item 1b), but listeners answer it.
/// - A querier is its IP source, and counts once reports of another port than its own have followed a question of it within the response time. A
///   forged source may be one that hosts discard (of another subnet under `rp_filter`, or a listener's own), so that all others would be silent.
/// - A leave ends that at once with `fast_leave`. Otherwise, where a querier lives, the querier's own question about the
///   group cuts the time of the ports that have left to twice the response time, and those who still listen there answer. Ports that have not
///   left keep their time, whoever asks. Without a querier the leaving port has two seconds.
/// - A router port is one that a query (not from address zero) or a PIM hello came in by, for
///   [`SnooperConfig::router_secs`]. Queries and hellos of ports where no router may be
///   ([`crate::BridgePortConfig::multicast_router`]) have no effect.
/// - A query cuts the time of listeners that it reaches only. A querier on a protected port, which other protected ports do not
///   hear, does not count as one that renews memberships.
/// - Where copies of a port's messages were left out (beyond 100 a second, or because no place was left for them), a report may be among them: the
///   memberships of this port last [`SnooperConfig::member_secs`] from then on at least.
/// - Groups are bounded per port and per bridge. A listener beyond its port's bound gets the group only as long as it
///   floods; a group beyond the bridge's bound floods.
#[derive(Debug)]
pub struct Snooper {
    config: SnooperConfig,
    seed: u64,
    groups: BTreeMap<(u16, IpAddr), BTreeMap<PortId, Member>>,
    routers: BTreeMap<(u16, Family), BTreeMap<PortId, u64>>,
    queriers: BTreeMap<(u16, Family), BTreeMap<IpAddr, Querier>>,
    /// Groups that each port listens to.
    per_port: HashMap<PortId, u32>,
    counts: SnooperCounts,
    changed: bool,
}

/// A querier that lives.
#[derive(Clone, Debug)]
struct Querier {
    /// Port that its last general query came in by.
    port: PortId,
    /// Until when it is taken to live.
    expires_ns: u64,
    /// Until when listeners answer its last general query.
    asks_until_ns: u64,
    /// From when on all listeners have answered it.
    answered_ns: u64,
    /// Whether a port besides its own has answered it.
    is_heard: bool,
    /// Ports that have renewed a membership in answer to it, and to no other querier.
    heard_by: BTreeSet<PortId>,
    /// Whether groups go to their listeners only.
    restricts: bool,
}

impl Querier {
    fn is_asking(&self, now_ns: u64) -> bool {
        now_ns <= self.asks_until_ns + ANSWER_SLACK_NS
    }
}

#[derive(Clone, Copy, Debug)]
struct Member {
    /// When the first report came.
    since_ns: u64,
    expires_ns: u64,
    /// Whether a leave has come since the last report.
    has_left: bool,
}

impl Snooper {
    /// A snooper that knows nothing. `seed` keys the tables that it makes and must be secret and random.
    pub fn new(config: SnooperConfig, seed: u64) -> Snooper {
        Snooper {
            config,
            seed,
            groups: BTreeMap::new(),
            routers: BTreeMap::new(),
            queriers: BTreeMap::new(),
            per_port: HashMap::new(),
            counts: SnooperCounts::default(),
            changed: false,
        }
    }

    /// Reads a frame that a decision of `bridge` punted: `port` and `vid` are those of its arrival (the decision names the
    /// VLAN), `frame` its bytes as received.
    pub fn handle(&mut self, bridge: &Bridge, port: PortId, vid: u16, frame: &[u8], now: Now) {
        let mut events = Vec::new();
        if message::read(frame, vid, |event| events.push(event)).is_err() {
            self.counts.bad += 1;
        }
        for event in events {
            match event {
                Event::Join(group) => {
                    let is_renewal = self.join(port, vid, group, now.ns);
                    self.answer(port, vid, Family::of(group), is_renewal, now.ns);
                }
                Event::Leave(group) => self.leave(port, vid, group, now.ns),
                Event::Query(_) | Event::Router(_) if !bridge.may_be_multicast_router(port) => {
                    self.counts.bad += 1;
                }
                Event::Query(query) => self.query(bridge, port, vid, query, now.ns),
                Event::Router(family) => {
                    self.counts.hellos += 1;
                    self.router(port, vid, family, now.ns);
                }
            }
        }
    }

    /// Forgets what ran out on the ports of `bridge`. Call it about once a second.
    pub fn tick(&mut self, bridge: &Bridge, now: Now) {
        let mut changed = false;
        for queriers in self.queriers.values_mut() {
            queriers.retain(|_, querier| {
                let lives = querier.expires_ns > now.ns;
                let restricts = querier.is_heard && querier.answered_ns <= now.ns;
                changed |= querier.restricts != (lives && restricts);
                querier.restricts = restricts;
                lives
            });
        }
        self.queriers.retain(|_, queriers| !queriers.is_empty());
        self.changed |= changed;
        for ports in self.routers.values_mut() {
            let before = ports.len();
            ports.retain(|_, expires_ns| *expires_ns > now.ns);
            self.changed |= ports.len() != before;
        }
        self.routers.retain(|_, ports| !ports.is_empty());
        let member_ns = u64::from(self.config.member_secs) * NS_PER_S;
        let mut forgotten = Vec::new();
        for (&(vid, group), members) in &mut self.groups {
            let queriers = self.queriers.get(&(vid, Family::of(group)));
            let is_over = |port, member: &Member| {
                let reported_ns = bridge.snooped_incompletely(port).map_or(0, |last_ns| last_ns + member_ns);
                let was_asked =
                    |querier: &Querier| querier.heard_by.contains(&port) && querier.asks_until_ns <= now.ns;
                let is_full = || self.per_port.get(&port).copied() >= Some(self.config.max_groups_per_port);
                member.expires_ns.max(reported_ns) <= now.ns
                    && (member.has_left
                        || is_full()
                        || queriers.is_some_and(|all| all.values().any(was_asked)))
            };
            forget(members, &mut forgotten, is_over);
        }
        self.settle(forgotten);
    }

    /// Forgets ports and VLANs that the bridge no longer has; call it when the bridge is reconfigured.
    pub fn follow(&mut self, bridge: &Bridge) {
        let carries = |port, vid| bridge.carries(port, vlan(vid));
        for (&(vid, _), ports) in &mut self.routers {
            let before = ports.len();
            ports.retain(|port, _| carries(*port, vid));
            self.changed |= ports.len() != before;
        }
        self.routers.retain(|_, ports| !ports.is_empty());
        for (&(vid, _), queriers) in &mut self.queriers {
            queriers.values_mut().for_each(|querier| querier.heard_by.retain(|port| carries(*port, vid)));
        }
        let mut forgotten = Vec::new();
        for (&(vid, _), members) in &mut self.groups {
            forget(members, &mut forgotten, |port, _| !carries(port, vid));
        }
        self.settle(forgotten);
    }

    /// The table for workers, if something changed since the last call. Making it costs time in proportion to all
    /// groups, so a busy caller waits a little between calls.
    pub fn take_groups(&mut self) -> Option<Arc<Groups>> {
        std::mem::take(&mut self.changed).then(|| self.table())
    }

    /// Returns the table for workers as it is now.
    pub fn table(&self) -> Arc<Groups> {
        let restricts = |group: &GroupPorts| {
            let queriers = self.queriers.get(&(group.vid.get(), Family::of(group.group)));
            queriers.is_some_and(|queriers| queriers.values().any(|querier| querier.restricts))
        };
        let groups: Vec<GroupPorts> = self.groups().into_iter().filter(restricts).collect();
        Arc::new(Groups::new(&groups, &self.routers(), self.seed))
    }

    /// Known groups with their listeners, for `show`.
    pub fn groups(&self) -> Vec<GroupPorts> {
        let ports = |(&(vid, group), members): (&(u16, IpAddr), &BTreeMap<PortId, Member>)| GroupPorts {
            vid: vlan(vid),
            group,
            members: members.keys().copied().collect(),
        };
        self.groups.iter().map(ports).collect()
    }

    /// Ports with multicast routers, for `show`.
    pub fn routers(&self) -> Vec<RouterPorts> {
        let ports = |(&(vid, family), ports): (&(u16, Family), &BTreeMap<PortId, u64>)| RouterPorts {
            vid: vlan(vid),
            family,
            ports: ports.keys().copied().collect(),
        };
        self.routers.iter().map(ports).collect()
    }

    /// Returns the listeners of each known group, and the ports with routers of each VLAN (without a group), with the seconds since each last
    /// said so.
    pub fn listed(&self, now: Now) -> Vec<(u16, Option<IpAddr>, PortId, u32)> {
        let age = |lives_secs: u32, expires_ns: u64| {
            let left = expires_ns.saturating_sub(now.ns) / NS_PER_S;
            lives_secs.saturating_sub(u32::try_from(left).unwrap_or(u32::MAX))
        };
        let groups = self.groups.iter().flat_map(|(&(vid, group), members)| {
            let listed = move |(&port, member): (&PortId, &Member)| {
                (vid, Some(group), port, age(self.config.member_secs, member.expires_ns))
            };
            members.iter().map(listed)
        });
        let routers = self.routers.iter().flat_map(|(&(vid, _), ports)| {
            let listed = move |(&port, &expires_ns): (&PortId, &u64)| {
                (vid, None, port, age(self.config.router_secs, expires_ns))
            };
            ports.iter().map(listed)
        });
        groups.chain(routers).collect()
    }

    /// Forgets groups, routers and queriers: multicast floods until somebody says something.
    pub fn flush(&mut self) {
        self.groups.clear();
        self.routers.clear();
        self.queriers.clear();
        self.per_port.clear();
        self.changed = true;
    }

    /// What it has seen.
    pub fn counts(&self) -> SnooperCounts {
        self.counts
    }

    /// Notes that a port listens. Returns whether the port has listened for so long that the report is an answer to a question.
    fn join(&mut self, port: PortId, vid: u16, group: IpAddr, now_ns: u64) -> bool {
        self.counts.joins += 1;
        if !is_prunable(group) {
            return false;
        }
        let expires_ns = now_ns + u64::from(self.config.member_secs) * NS_PER_S;
        let listens = Member { since_ns: now_ns, expires_ns, has_left: false };
        let known = self.groups.get_mut(&(vid, group));
        if let Some(member) = known.and_then(|members| members.get_mut(&port)) {
            // After a leave, a report may be that of a host that has come back.
            let since_ns = if member.has_left { now_ns } else { member.since_ns };
            *member = Member { since_ns, ..listens };
            return since_ns + UNSOLICITED_NS <= now_ns;
        }
        let full = self.groups.len() >= self.config.max_groups && !self.groups.contains_key(&(vid, group));
        let count = self.per_port.entry(port).or_default();
        if full || *count >= self.config.max_groups_per_port {
            self.counts.refused += 1;
            return false;
        }
        *count += 1;
        self.groups.entry((vid, group)).or_default().insert(port, listens);
        self.changed = true;
        false
    }

    /// Notes that a port hears the queriers whose question it may have answered by a report.
    fn answer(&mut self, port: PortId, vid: u16, family: Family, is_renewal: bool, now_ns: u64) {
        let Some(queriers) = self.queriers.get_mut(&(vid, family)) else { return };
        let mut asking: Vec<&mut Querier> =
            queriers.values_mut().filter(|querier| querier.is_asking(now_ns)).collect();
        // A question that comes at the same time as another may be the one that is not heard.
        if let ([querier], true) = (asking.as_mut_slice(), is_renewal) {
            querier.heard_by.insert(port);
        }
        for querier in asking.into_iter().filter(|querier| querier.port != port && !querier.is_heard) {
            querier.is_heard = true;
            querier.answered_ns = querier.answered_ns.max(querier.asks_until_ns);
            querier.restricts = querier.answered_ns <= now_ns;
            self.changed |= querier.restricts;
        }
    }

    fn leave(&mut self, port: PortId, vid: u16, group: IpAddr, now_ns: u64) {
        self.counts.leaves += 1;
        let queriers = self.queriers.get(&(vid, Family::of(group)));
        let lives = |querier: &Querier| querier.expires_ns > now_ns;
        let asked = queriers.is_some_and(|queriers| queriers.values().any(lives));
        let Some(members) = self.groups.get_mut(&(vid, group)) else { return };
        if self.config.fast_leave {
            let mut forgotten = Vec::new();
            forget(members, &mut forgotten, |member, _| member == port);
            self.settle(forgotten);
        } else if let Some(member) = members.get_mut(&port) {
            member.has_left = true;
            if !asked {
                member.expires_ns = member.expires_ns.min(now_ns + LEAVE_NS);
            }
        }
    }

    fn query(&mut self, bridge: &Bridge, port: PortId, vid: u16, query: Query, now_ns: u64) {
        self.counts.queries += 1;
        if query.is_general && bridge.reaches(port, port) {
            self.querier(port, vid, &query, now_ns);
        }
        if !query.source.is_unspecified() {
            self.router(port, vid, query.family, now_ns);
        }
        let Some(group) = query.group.filter(|_| !query.suppress) else { return };
        let answer_ns = (LAST_MEMBER_QUERIES * query.max_resp_ns).max(MIN_RESPONSE_NS);
        for (&listener, member) in self.groups.get_mut(&(vid, group)).into_iter().flatten() {
            // A listener on the port of the querier heard the query on the wire; others got it from the bridge.
            let has_heard = listener == port || bridge.reaches(port, listener);
            if member.has_left && has_heard && member.expires_ns > now_ns + answer_ns {
                // Asked and not answering is leaving.
                member.expires_ns = now_ns + answer_ns;
            }
        }
    }

    fn querier(&mut self, port: PortId, vid: u16, query: &Query, now_ns: u64) {
        let expires_ns = now_ns + u64::from(self.config.router_secs) * NS_PER_S;
        let response_ns = if query.max_resp_ns == 0 { RESPONSE_NS } else { query.max_resp_ns };
        let asks_until_ns = now_ns + response_ns;
        let queriers = self.queriers.entry((vid, query.family)).or_default();
        if let Some(known) = queriers.get_mut(&query.source) {
            (known.port, known.expires_ns, known.asks_until_ns) = (port, expires_ns, asks_until_ns);
            return;
        }
        if queriers.len() >= MAX_QUERIERS {
            let unheard = queriers.iter().find(|(_, querier)| !querier.is_heard).map(|(source, _)| *source);
            let Some(unheard) = unheard else { return };
            queriers.remove(&unheard);
        }
        let new = Querier {
            port,
            expires_ns,
            asks_until_ns,
            answered_ns: asks_until_ns,
            is_heard: false,
            heard_by: BTreeSet::new(),
            restricts: false,
        };
        queriers.insert(query.source, new);
    }

    fn router(&mut self, port: PortId, vid: u16, family: Family, now_ns: u64) {
        let expires_ns = now_ns + u64::from(self.config.router_secs) * NS_PER_S;
        let known = self.routers.entry((vid, family)).or_default().insert(port, expires_ns);
        self.changed |= known.is_none();
    }

    /// Settles the counts of memberships that are gone, and forgets groups that nobody listens to.
    fn settle(&mut self, forgotten: Vec<PortId>) {
        if forgotten.is_empty() {
            return;
        }
        self.changed = true;
        self.groups.retain(|_, members| !members.is_empty());
        for port in forgotten {
            if let Some(count) = self.per_port.get_mut(&port) {
                *count -= 1;
            }
        }
        self.per_port.retain(|_, count| *count > 0);
    }
}

fn forget(
    members: &mut BTreeMap<PortId, Member>,
    forgotten: &mut Vec<PortId>,
    unwanted: impl Fn(PortId, &Member) -> bool,
) {
    members.retain(|&port, member| {
        let gone = unwanted(port, member);
        if gone {
            forgotten.push(port);
        }
        !gone
    });
}

fn vlan(vid: u16) -> VlanId {
    VlanId::new(vid).unwrap_or(VlanId::NONE)
}
