//! The part of IGMP and MLD snooping (RFC 4541) that the control thread executes: tracks the listeners of each group
//! and the ports of multicast routers.
//!
//! See [`Snooper`] for the timers and the reasons for them.

mod message;
mod reporters;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use packet::{PortId, VlanId};

use crate::bridge::Bridge;
use crate::config::Now;
use crate::groups::{Family, GroupPorts, Groups, RouterPorts};
use crate::multicast::is_prunable;
use message::{Event, LONGEST_RESPONSE_NS, Query};
use reporters::Reporters;

const NS_PER_S: u64 = 1_000_000_000;
/// Last member query count (RFC 3376 section 8.11): the number of queries that a router sends before it
/// accepts a leave.
const LAST_MEMBER_QUERIES: u64 = 2;
/// Membership time, in nanoseconds, that remains after a leave in a VLAN without a querier: the last member query count
/// times the last member query interval of one second.
const LEAVE_NS: u64 = LAST_MEMBER_QUERIES * NS_PER_S;
/// Maximum response time, in nanoseconds, of a query that does not carry a maximum response time
/// (IGMP version 1, RFC 2236 section 4).
const RESPONSE_NS: u64 = 10 * NS_PER_S;
/// Time, in nanoseconds, after the end of a query's response time within which a report still
/// counts as an answer. The time allows for the interval at which the control thread reads reports.
const ANSWER_SLACK_NS: u64 = NS_PER_S;
/// Minimum time, in nanoseconds, between a port's first report for a group and a later report that counts as an answer
/// to a query. Earlier reports may be repetitions without a query: hosts repeat their first report within ten seconds
/// (RFC 2236 section 8.10, RFC 2710 section 7.10), and one second is added for the delivery.
const UNSOLICITED_NS: u64 = 11 * NS_PER_S;
/// Maximum number of queriers tracked for one VLAN and address family. Normally one querier is
/// active, because the other queriers stop querying (RFC 3376 section 6.6.2).
const MAX_QUERIERS: usize = 8;
/// Minimum time, in nanoseconds, for which a membership remains after a query that the listener does not answer.
/// Without this minimum, a query with a forged response time of zero would remove all listeners.
const MIN_RESPONSE_NS: u64 = NS_PER_S;

/// Timers and bounds of snooping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnooperConfig {
    /// Seconds for which a membership report is valid: the group membership interval (RFC 3376 section 8.4).
    pub member_secs: u32,
    /// Seconds for which a port remains a router port after a query or PIM hello: the other querier present interval
    /// (RFC 3376 section 8.5).
    pub router_secs: u32,
    /// Whether a leave takes effect immediately. This setting is for ports with one host each.
    pub fast_leave: bool,
    /// Maximum number of multicast groups of a bridge. A group in two VLANs counts twice.
    pub max_groups: usize,
    /// Maximum number of groups of one port in one VLAN.
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

/// Counts of the events that a snooper processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnooperCounts {
    /// Number of joins of multicast groups. A report that joins several groups counts once for each group.
    pub joins: u64,
    /// Number of leaves of multicast groups. A report that leaves several groups counts once for each group.
    pub leaves: u64,
    /// Number of accepted IGMP and MLD queries.
    pub queries: u64,
    /// Number of accepted PIM hellos.
    pub hellos: u64,
    /// Number of rejected multicast control messages: malformed messages, messages that a host would not accept, and
    /// queries and PIM hellos from ports to which no multicast router may be connected.
    pub bad: u64,
    /// Number of joins refused because the port or the bridge was at its limit of groups.
    pub refused: u64,
    /// Number of times that a port began to receive all groups, because a report from the port was lost or refused.
    pub incomplete: u64,
}

/// Processes the multicast control messages that workers copy to the control thread, and tracks listeners and multicast
/// routers. One snooper serves one bridge.
///
/// Workers send a copy of each report, query and PIM hello. [`Snooper::handle`] processes a copy. [`Snooper::tick`]
/// removes expired state. [`Snooper::take_groups`] returns the next table of groups for [`crate::Bridge::with_groups`]
/// if something changed.
///
/// - **Membership**: a port is a listener from its report until [`SnooperConfig::member_secs`] pass without another
///   report. Without a leave, the membership expires only if a querier is present whose queries the port has answered.
///   If no such querier is present, the membership does not expire, because the port may not receive the queries. At a
///   port with the maximum number of groups, memberships always expire.
/// - **No own querier**: a group is restricted to its listeners only if a querier is present in its VLAN and address
///   family, because hosts renew memberships only in answer to queries. Without a querier, and during the response time
///   of the querier's first general query, all groups are flooded (as in Linux, `br_multicast_querier_exists`). A
///   querier with the source address zero counts as present, because listeners answer its queries, although it is a
///   snooping switch and not a router (RFC 4541 section 2.1.1, item 1b).
/// - **Queriers**: a querier is identified by its IP source address. A querier counts as present when reports from a
///   port other than its own follow one of its queries within the response time. This excludes queries with a forged
///   source (an address of another subnet under `rp_filter`, or a listener's own address): hosts may discard such
///   queries and send no reports.
/// - **Answers**: a report counts as an answer to a querier only if no other query can have caused the report: no other
///   querier, no query about a group, no rejected query, and no query among the lost copies of a port. A port from
///   which reports with the address of a querier come does not hear this querier.
/// - **Leave**: with `fast_leave` a leave ends the membership immediately. Otherwise, if a querier is present, the
///   querier's next query about the group reduces the remaining time of the ports that have sent a leave to twice the
///   response time, and remaining listeners on these ports answer. The time of other ports does not change. Without a
///   querier, the remaining time of the port is reduced to two seconds.
/// - **Router ports**: a query (not from address zero) or a PIM hello makes its port a router port for
///   [`SnooperConfig::router_secs`]. Queries and hellos from ports to which no router may be connected
///   ([`crate::BridgePortConfig::multicast_router`]) have no effect.
/// - **Protected ports**: a query reduces the time only of listeners to which it is forwarded. A querier on a protected
///   port does not count as present, because its queries are not forwarded to other protected ports.
/// - **Incomplete ports**: if copies of a port's messages did not reach the snooper (because of the limit of 100 copies
///   per second, a storm limit, or a full queue), a report may be among the lost copies. The memberships of this port
///   then last for at least [`SnooperConfig::member_secs`] more, and the port receives all groups for as long. After
///   this time, the listeners on the port have answered a query again. The load of one VLAN of a trunk thus cannot
///   remove listeners of another VLAN.
/// - **Limits**: the number of groups is limited for each port and VLAN, for each port over all VLANs (a quarter of the
///   groups of the bridge, if this is more), and for each bridge. A port whose report is
///   refused at a limit is incomplete in the VLAN of the report. A group beyond the bridge's limit is flooded.
#[derive(Debug)]
pub struct Snooper {
    config: SnooperConfig,
    seed: u64,
    groups: BTreeMap<(u16, IpAddr), BTreeMap<PortId, Member>>,
    routers: BTreeMap<(u16, Family), BTreeMap<PortId, u64>>,
    queriers: BTreeMap<(u16, Family), BTreeMap<IpAddr, Querier>>,
    /// Number of groups with a listener on the port, for each port and VLAN.
    per_vlan: HashMap<(PortId, u16), u32>,
    /// Number of groups with a listener on the port, over all VLANs, for each port.
    per_port: HashMap<PortId, u32>,
    /// Ports from which a copy for the snooper was recently lost. The ports receive all groups.
    lossy: BTreeSet<PortId>,
    /// Ports on which a join was recently refused, or that do not hear a querier, by VLAN, with the time in nanoseconds
    /// until which the port receives all groups of the VLAN.
    refused: BTreeMap<(u16, PortId), u64>,
    /// IP sources of recent reports.
    reporters: Reporters,
    /// Time, in nanoseconds, until which hosts may answer queries other than general queries of the known queriers.
    others_ask_until_ns: BTreeMap<(u16, Family), u64>,
    /// Answers to a querier since the last call of [`Snooper::tick`]: the VLAN, the family, the querier's address, and
    /// the port of the answer.
    answers: BTreeSet<(u16, Family, IpAddr, PortId)>,
    counts: SnooperCounts,
    changed: bool,
}

/// A multicast querier (router or snooping switch) of a VLAN and address family.
#[derive(Clone, Debug)]
struct Querier {
    /// Port on which the querier's last general query arrived.
    port: PortId,
    /// Time, in nanoseconds, until which the querier counts as present.
    expires_ns: u64,
    /// Time, in nanoseconds, at which the response time of the querier's last general query ends.
    asks_until_ns: u64,
    /// Time, in nanoseconds, at which the response time of the first query that was answered ends. From this time on,
    /// all listeners are known.
    answered_ns: u64,
    /// Whether a port other than the querier's port has sent a report in answer to a query.
    is_heard: bool,
    /// Ports that renewed a membership by a report while only this querier's response time was
    /// running. Such a report can only be an answer to this querier.
    heard_by: BTreeSet<PortId>,
    /// Whether groups are restricted to their listeners because this querier is present.
    restricts: bool,
}

impl Querier {
    fn is_asking(&self, now_ns: u64) -> bool {
        now_ns <= self.asks_until_ns + ANSWER_SLACK_NS
    }
}

#[derive(Clone, Copy, Debug)]
struct Member {
    /// Time, in nanoseconds, of the port's first report for the group, or of the first report after a leave.
    since_ns: u64,
    expires_ns: u64,
    /// Whether a leave from the port has arrived since the port's last report for the group.
    has_left: bool,
}

/// A copy of a multicast control frame, parsed into events.
#[derive(Clone, Debug)]
pub struct SnoopedMessage {
    vid: u16,
    events: Vec<Event>,
    /// IP source of the frame. The value is `None` if the frame is malformed.
    source: Option<IpAddr>,
    /// Whether the copy lacks the end of the frame. The frame may then hold reports that the snooper cannot read.
    is_cut: bool,
}

impl SnoopedMessage {
    /// Maximum length, in octets, of a frame that the snooper parses: the largest MTU (9,000), the Ethernet header and
    /// two VLAN tags.
    pub const MAX_FRAME: usize = 9000 + 14 + 2 * 4;

    /// Parses a frame as the bridge received it. `vid` is the VLAN in the bridge's decision. `total_len` is the length
    /// of the whole frame in octets. If `frame` is shorter, the frame counts as lost.
    pub fn read(frame: &[u8], total_len: usize, vid: u16) -> SnoopedMessage {
        let mut events = Vec::new();
        let is_cut = frame.len() < total_len;
        let source = message::read(frame, vid, |event| events.push(event)).ok();
        SnoopedMessage { vid, events, source, is_cut }
    }

    /// Returns the number of reports, leaves, queries and hellos in the message.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns whether the message contains nothing that a snooper processes.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

impl Snooper {
    /// Creates a snooper without groups. `seed` keys the hash tables of groups that the snooper builds. The seed must
    /// be secret and random.
    pub fn new(config: SnooperConfig, seed: u64) -> Snooper {
        Snooper {
            config,
            seed,
            groups: BTreeMap::new(),
            routers: BTreeMap::new(),
            queriers: BTreeMap::new(),
            per_vlan: HashMap::new(),
            per_port: HashMap::new(),
            lossy: BTreeSet::new(),
            refused: BTreeMap::new(),
            reporters: Reporters::default(),
            others_ask_until_ns: BTreeMap::new(),
            answers: BTreeSet::new(),
            counts: SnooperCounts::default(),
            changed: false,
        }
    }

    /// Processes the copy of a frame that `bridge` has forwarded to the snooper. `port` is the port on which the frame
    /// arrived, `vid` is the VLAN to which the bridge assigned the frame, and `frame` is the frame as received.
    pub fn handle(&mut self, bridge: &Bridge, port: PortId, vid: u16, frame: &[u8], now: Now) {
        self.apply(bridge, port, &SnoopedMessage::read(frame, frame.len(), vid), now);
    }

    /// Processes a message like [`Snooper::handle`]. The caller has already parsed the message, so that parsing does
    /// not need the lock that protects this snooper.
    pub fn apply(&mut self, bridge: &Bridge, port: PortId, message: &SnoopedMessage, now: Now) {
        let SnoopedMessage { vid, ref events, source, is_cut } = *message;
        self.counts.bad += u64::from(source.is_none());
        if is_cut {
            bridge.note_unsnooped(port, now);
        }
        if let (Some(source), Some(Event::Join(_) | Event::Leave(_))) = (source, events.first()) {
            self.reporter(port, vid, source, now.ns);
        }
        for &event in events {
            match event {
                Event::RejectedQuery(family, response_ns) => {
                    self.other_query(vid, family, response_ns, now.ns);
                }
                Event::Join(group) => {
                    let is_renewal = self.join(port, vid, group, now.ns);
                    self.answer(port, vid, Family::of(group), is_renewal, now.ns);
                }
                Event::Leave(group) => self.leave(port, vid, group, now.ns),
                Event::Query(query) if !bridge.may_be_multicast_router(port) => {
                    self.counts.bad += 1;
                    self.other_query(vid, query.family, query.max_resp_ns, now.ns);
                }
                Event::Router(_) if !bridge.may_be_multicast_router(port) => self.counts.bad += 1,
                Event::Query(query) => self.query(bridge, port, vid, query, now.ns),
                Event::Router(family) => {
                    self.counts.hellos += 1;
                    self.router(port, vid, family, now.ns);
                }
            }
        }
    }

    /// Removes expired memberships, router ports and queriers of `bridge`. Call this function about once a second.
    pub fn tick(&mut self, bridge: &Bridge, now: Now) {
        self.credit(bridge, now.ns);
        self.reporters.expire(now.ns);
        self.others_ask_until_ns.retain(|_, until_ns| *until_ns + ANSWER_SLACK_NS >= now.ns);
        let mut changed = false;
        for (place, queriers) in &mut self.queriers {
            queriers.retain(|_, querier| {
                let lives = querier.expires_ns > now.ns;
                if !lives && querier.asks_until_ns > now.ns {
                    let others = self.others_ask_until_ns.entry(*place).or_default();
                    *others = querier.asks_until_ns.max(*others);
                }
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
        self.note_incomplete(bridge, now.ns);
        let member_ns = self.member_ns();
        let mut forgotten = Vec::new();
        for (&(vid, group), members) in &mut self.groups {
            let queriers = self.queriers.get(&(vid, Family::of(group)));
            let is_over = |port, member: &Member| {
                let reported_ns = bridge.snooped_incompletely(port).map_or(0, |last_ns| last_ns + member_ns);
                let was_asked =
                    |querier: &Querier| querier.heard_by.contains(&port) && querier.asks_until_ns <= now.ns;
                let (of_vlan, of_port) = (self.per_vlan.get(&(port, vid)), self.per_port.get(&port));
                let is_full = || at_limit(&self.config, of_vlan, of_port);
                member.expires_ns.max(reported_ns) <= now.ns
                    && (member.has_left
                        || is_full()
                        || queriers.is_some_and(|all| all.values().any(was_asked)))
            };
            forget(vid, members, &mut forgotten, is_over);
        }
        self.settle(forgotten);
    }

    /// Removes listeners and router ports on ports and in VLANs that the bridge no longer has. Call this function
    /// when the bridge is reconfigured.
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
        self.refused.retain(|&(vid, port), _| carries(port, vid));
        let mut forgotten = Vec::new();
        for (&(vid, _), members) in &mut self.groups {
            forget(vid, members, &mut forgotten, |port, _| !carries(port, vid));
        }
        self.settle(forgotten);
    }

    /// Returns the table of groups for workers if something changed since the last call. Returns `None` otherwise.
    /// The cost is proportional to the number of groups, so a busy caller should limit the rate of its calls.
    pub fn take_groups(&mut self) -> Option<Arc<Groups>> {
        std::mem::take(&mut self.changed).then(|| self.table())
    }

    /// Returns the current table of groups for workers.
    pub fn table(&self) -> Arc<Groups> {
        let restricts = |group: &GroupPorts| {
            let queriers = self.queriers.get(&(group.vid.get(), Family::of(group.group)));
            queriers.is_some_and(|queriers| queriers.values().any(|querier| querier.restricts))
        };
        let mut groups: Vec<GroupPorts> = self.groups().into_iter().filter(restricts).collect();
        for group in &mut groups {
            let vid = group.vid.get();
            let refused = self.refused.range((vid, PortId(0))..=(vid, PortId(u16::MAX)));
            group.members.extend(self.lossy.iter().copied().chain(refused.map(|(&(_, port), _)| port)));
        }
        Arc::new(Groups::new(&groups, &self.routers(), self.seed))
    }

    /// Returns the known groups with their listeners, for `show`.
    pub fn groups(&self) -> Vec<GroupPorts> {
        let ports = |(&(vid, group), members): (&(u16, IpAddr), &BTreeMap<PortId, Member>)| GroupPorts {
            vid: vlan(vid),
            group,
            members: members.keys().copied().collect(),
        };
        self.groups.iter().map(ports).collect()
    }

    /// Returns the ports that receive all groups because a report from the port was recently lost or refused.
    pub fn incomplete_ports(&self) -> BTreeSet<PortId> {
        self.lossy.iter().copied().chain(self.refused.keys().map(|&(_, port)| port)).collect()
    }

    /// Returns the ports with multicast routers, for `show`.
    pub fn routers(&self) -> Vec<RouterPorts> {
        let ports = |(&(vid, family), ports): (&(u16, Family), &BTreeMap<PortId, u64>)| RouterPorts {
            vid: vlan(vid),
            family,
            ports: ports.keys().copied().collect(),
        };
        self.routers.iter().map(ports).collect()
    }

    /// Returns one item for each listener of each known group, and for each router port of each VLAN. An item holds
    /// the VLAN, the group (`None` for a router port), the port, and the number of seconds since the last report,
    /// query or hello.
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

    /// Removes all groups, routers and queriers. Multicast frames are flooded until the snooper has learned groups
    /// again.
    pub fn flush(&mut self) {
        self.groups.clear();
        self.routers.clear();
        self.queriers.clear();
        self.per_vlan.clear();
        self.per_port.clear();
        self.refused.clear();
        self.reporters = Reporters::default();
        self.others_ask_until_ns.clear();
        self.answers.clear();
        self.changed = true;
    }

    /// Returns the event counts of the snooper.
    pub fn counts(&self) -> SnooperCounts {
        self.counts
    }

    /// Records that a port is a listener of a group. Returns true if the report counts as an answer to a query: the
    /// first report of the port is at least [`UNSOLICITED_NS`] old.
    fn join(&mut self, port: PortId, vid: u16, group: IpAddr, now_ns: u64) -> bool {
        self.counts.joins += 1;
        if !is_prunable(group) {
            return false;
        }
        let expires_ns = now_ns + self.member_ns();
        let listens = Member { since_ns: now_ns, expires_ns, has_left: false };
        let known = self.groups.get_mut(&(vid, group));
        if let Some(member) = known.and_then(|members| members.get_mut(&port)) {
            // After a leave, a report may come from a host that has returned.
            let since_ns = if member.has_left { now_ns } else { member.since_ns };
            *member = Member { since_ns, ..listens };
            return since_ns + UNSOLICITED_NS <= now_ns;
        }
        let full = self.groups.len() >= self.config.max_groups && !self.groups.contains_key(&(vid, group));
        let (of_vlan, of_port) =
            (self.per_vlan.entry((port, vid)).or_default(), self.per_port.entry(port).or_default());
        if full || at_limit(&self.config, Some(of_vlan), Some(of_port)) {
            self.counts.refused += 1;
            self.incomplete(vid, port, expires_ns);
            return false;
        }
        *of_vlan += 1;
        *of_port += 1;
        self.groups.entry((vid, group)).or_default().insert(port, listens);
        self.changed = true;
        false
    }

    /// Records a report of a port as a possible answer to every querier whose response time has not
    /// ended. `is_renewal` is the result of [`Snooper::join`].
    fn answer(&mut self, port: PortId, vid: u16, family: Family, is_renewal: bool, now_ns: u64) {
        let Some(queriers) = self.queriers.get_mut(&(vid, family)) else { return };
        let mut asking: Vec<(&IpAddr, &mut Querier)> =
            queriers.iter_mut().filter(|(_, querier)| querier.is_asking(now_ns)).collect();
        // If the response times of two queriers overlap, the port may have answered the other querier.
        let others = self.others_ask_until_ns.get(&(vid, family));
        let others_ask = others.is_some_and(|until_ns| now_ns <= until_ns + ANSWER_SLACK_NS);
        if let ([(source, _)], true) = (asking.as_slice(), is_renewal && !others_ask)
            && !self.reporters.has(port, vid, **source)
        {
            self.answers.insert((vid, family, **source, port));
        }
        for (_, querier) in asking.iter_mut().filter(|(_, querier)| querier.port != port && !querier.is_heard)
        {
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
            forget(vid, members, &mut forgotten, |member, _| member == port);
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
        if !query.is_general || !bridge.reaches(port, port) {
            self.other_query(vid, query.family, query.max_resp_ns, now_ns);
        } else {
            self.querier(port, vid, &query, now_ns);
        }
        if !query.source.is_unspecified() {
            self.router(port, vid, query.family, now_ns);
        }
        let Some(group) = query.group.filter(|_| !query.suppress) else { return };
        let answer_ns = (LAST_MEMBER_QUERIES * query.max_resp_ns).max(MIN_RESPONSE_NS);
        for (&listener, member) in self.groups.get_mut(&(vid, group)).into_iter().flatten() {
            // A listener on the querier's port heard the query on the wire. Other listeners received it
            // through the bridge.
            let has_heard = listener == port || bridge.reaches(port, listener);
            if member.has_left && has_heard && member.expires_ns > now_ns + answer_ns {
                // A listener that does not answer counts as having left.
                member.expires_ns = now_ns + answer_ns;
            }
        }
    }

    fn querier(&mut self, port: PortId, vid: u16, query: &Query, now_ns: u64) {
        let expires_ns = now_ns + u64::from(self.config.router_secs) * NS_PER_S;
        let asks_until_ns = now_ns + response_ns(query.max_resp_ns);
        let queriers = self.queriers.entry((vid, query.family)).or_default();
        if let Some(known) = queriers.get_mut(&query.source) {
            (known.port, known.expires_ns) = (port, expires_ns);
            known.asks_until_ns = known.asks_until_ns.max(asks_until_ns);
            return;
        }
        if queriers.len() >= MAX_QUERIERS {
            let unheard = queriers.iter().find(|(_, querier)| !querier.is_heard).map(|(source, _)| *source);
            let Some(unheard) = unheard else {
                return self.other_query(vid, query.family, query.max_resp_ns, now_ns);
            };
            let removed = queriers.remove(&unheard);
            self.others_ask(vid, query.family, removed.map_or(0, |querier| querier.asks_until_ns));
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
        self.queriers.entry((vid, query.family)).or_default().insert(query.source, new);
    }

    /// Records that hosts may answer a query that is not a general query of a known querier.
    fn other_query(&mut self, vid: u16, family: Family, max_resp_ns: u64, now_ns: u64) {
        self.others_ask(vid, family, now_ns + response_ns(max_resp_ns));
    }

    /// Records that hosts may answer a query of no known querier until the time `until_ns`.
    fn others_ask(&mut self, vid: u16, family: Family, until_ns: u64) {
        let others = self.others_ask_until_ns.entry((vid, family)).or_default();
        *others = until_ns.max(*others);
    }

    /// Records the IP source of a report. If this is the address of a querier on another port, the port does not hear
    /// the querier, and receives all groups of the VLAN.
    fn reporter(&mut self, port: PortId, vid: u16, source: IpAddr, now_ns: u64) {
        if source.is_unspecified() {
            return;
        }
        self.reporters.note(port, vid, source, now_ns + self.member_ns());
        let until_ns = now_ns + self.member_ns();
        let queriers = self.queriers.get_mut(&(vid, Family::of(source)));
        let querier = queriers.and_then(|queriers| queriers.get_mut(&source));
        if let Some(querier) = querier.filter(|querier| querier.port != port) {
            querier.heard_by.remove(&port);
            self.incomplete(vid, port, until_ns);
        }
    }

    /// Makes a port receive all groups of a VLAN until the time `until_ns`.
    fn incomplete(&mut self, vid: u16, port: PortId, until_ns: u64) {
        if self.refused.insert((vid, port), until_ns).is_none() {
            self.counts.incomplete += 1;
            self.changed = true;
        }
    }

    /// Records which ports have heard which queriers, from the answers since the last call. If a query may be among
    /// the lost copies of a port of the VLAN, the answers do not count.
    fn credit(&mut self, bridge: &Bridge, now_ns: u64) {
        let answers = std::mem::take(&mut self.answers);
        if answers.is_empty() {
            return;
        }
        let has_lost = |port: &PortId| {
            bridge.snooped_incompletely(*port).is_some_and(|at| at + LONGEST_RESPONSE_NS > now_ns)
        };
        let lossy: Vec<PortId> = bridge.ports().filter(has_lost).collect();
        for (vid, family, source, port) in answers {
            let vlan = VlanId::new(vid).unwrap_or(VlanId::NONE);
            if lossy.iter().any(|lossy| bridge.carries(*lossy, vlan)) {
                continue;
            }
            let queriers = self.queriers.get_mut(&(vid, family));
            if let Some(querier) = queriers.and_then(|queriers| queriers.get_mut(&source)) {
                querier.heard_by.insert(port);
            }
        }
    }

    /// Updates the set of ports that receive all groups because reports of the port were recently lost or refused.
    fn note_incomplete(&mut self, bridge: &Bridge, now_ns: u64) {
        let before = self.refused.len();
        self.refused.retain(|_, until_ns| *until_ns > now_ns);
        self.changed |= self.refused.len() != before;
        let member_ns = self.member_ns();
        let has_lost = |port| bridge.snooped_incompletely(port).is_some_and(|at| at + member_ns > now_ns);
        let lossy: BTreeSet<PortId> = bridge.ports().filter(|&port| has_lost(port)).collect();
        if lossy != self.lossy {
            self.counts.incomplete += lossy.difference(&self.lossy).map(|_| 1).sum::<u64>();
            self.lossy = lossy;
            self.changed = true;
        }
    }

    fn member_ns(&self) -> u64 {
        u64::from(self.config.member_secs) * NS_PER_S
    }

    fn router(&mut self, port: PortId, vid: u16, family: Family, now_ns: u64) {
        let expires_ns = now_ns + u64::from(self.config.router_secs) * NS_PER_S;
        let known = self.routers.entry((vid, family)).or_default().insert(port, expires_ns);
        self.changed |= known.is_none();
    }

    /// Completes the removal of memberships: removes groups without listeners, and corrects the number of groups of
    /// each port. `forgotten` holds the port and the VLAN of each removed membership.
    fn settle(&mut self, forgotten: Vec<(PortId, u16)>) {
        if forgotten.is_empty() {
            return;
        }
        self.changed = true;
        self.groups.retain(|_, members| !members.is_empty());
        for (port, vid) in forgotten {
            let counts = [self.per_vlan.get_mut(&(port, vid)), self.per_port.get_mut(&port)];
            counts.into_iter().flatten().for_each(|count| *count -= 1);
        }
        self.per_port.retain(|_, count| *count > 0);
    }
}

/// Returns the time in nanoseconds in which hosts answer a query with the maximum response time `max_resp_ns`.
fn response_ns(max_resp_ns: u64) -> u64 {
    if max_resp_ns == 0 { RESPONSE_NS } else { max_resp_ns }
}

/// Returns whether a port has as many groups as it may have: `of_vlan` in one VLAN, and `of_port` over all VLANs.
fn at_limit(config: &SnooperConfig, of_vlan: Option<&u32>, of_port: Option<&u32>) -> bool {
    let quarter = u32::try_from(config.max_groups / 4).unwrap_or(u32::MAX);
    of_vlan >= Some(&config.max_groups_per_port) || of_port >= Some(&config.max_groups_per_port.max(quarter))
}

fn forget(
    vid: u16,
    members: &mut BTreeMap<PortId, Member>,
    forgotten: &mut Vec<(PortId, u16)>,
    unwanted: impl Fn(PortId, &Member) -> bool,
) {
    members.retain(|&port, member| {
        let gone = unwanted(port, member);
        if gone {
            forgotten.push((port, vid));
        }
        !gone
    });
}

fn vlan(vid: u16) -> VlanId {
    VlanId::new(vid).unwrap_or(VlanId::NONE)
}
