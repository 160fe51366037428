//! A bridge as workers see it: an immutable value inside the engine's snapshot, over tables that all its versions share.
//!
//! Control makes a new version for every change ([`Bridge::reconfigured`], [`Bridge::with_groups`]) and publishes it;
//! the MAC table, counts and token buckets stay. A worker still on the old version may learn an address on a port that
//! the new one no longer has: such an entry is not believed, and [`Bridge::prune`] removes it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packet::{BridgeId, MacAddr, PortId, VlanId};

use crate::config::{BridgeConfig, Now, StaticMac};
use crate::groups::Groups;
use crate::member::Member;
use crate::tables::{BridgeTables, FdbEntry, Limits, Station, mac_bits, station_key};

/// The number of the next view.
static NEXT_VIEW: AtomicU64 = AtomicU64::new(1);

/// Says that a port is no member.
const NO_SLOT: u16 = u16::MAX;

/// Lists of indices into a view's members.
type SlotLists = Box<[Box<[u16]>]>;

/// A bridge as workers see it: an immutable view of its configuration and groups, over tables that all its versions
/// share. Cloning shares everything.
#[derive(Clone, Debug)]
pub struct Bridge {
    pub(crate) view: Arc<View>,
    pub(crate) tables: Arc<BridgeTables>,
    pub(crate) groups: Arc<Groups>,
}

/// What a member does with frames, for whoever forwards in the bridge's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberFacts {
    /// VLAN of untagged frames; `None`: they are not admitted.
    pub untagged: Option<VlanId>,
    /// Whether frames with a VLAN's tag may come.
    pub tagged: bool,
    /// Whether that is so but for the tag of [`MemberFacts::untagged`].
    pub untagged_only: bool,
    /// Whether it is kept apart from the other protected members.
    pub protected: bool,
    /// Whether source addresses are learned.
    pub learning: bool,
}

/// The configuration, compiled.
#[derive(Debug)]
pub(crate) struct View {
    /// Tells this view from every other of the process.
    pub(crate) number: u64,
    pub(crate) id: BridgeId,
    name: String,
    pub(crate) ageing_secs: u32,
    pub(crate) mac_limit: u32,
    pub(crate) snooping: bool,
    /// Members by ascending port number.
    pub(crate) members: Box<[Member]>,
    /// Index into `members` by port number, [`NO_SLOT`] for strangers.
    slots: Box<[u16]>,
    /// Which ports each VLAN floods to, by VLAN identifier: index into `floods`.
    flood_of: Box<[u16]>,
    /// Indices into `members`, ascending. The first list is empty.
    floods: SlotLists,
    statics: BTreeMap<u64, Station>,
    seed: u64,
}

impl Bridge {
    /// A bridge that knows only its static entries. `seed` keys its hash tables and must be secret and random.
    pub fn new(config: &BridgeConfig, seed: u64) -> Bridge {
        let bridge = Bridge {
            view: Arc::new(View::new(config, seed, None)),
            tables: Arc::new(BridgeTables::new(config.mac_limit, seed)),
            groups: Arc::new(Groups::none()),
        };
        bridge.apply_statics(&BTreeMap::new());
        bridge
    }

    /// The bridge under another configuration. Keeps what was learned, the counts, and the token buckets of limits
    /// that did not change. Entries of ports and VLANs that are gone are flushed; call [`Bridge::prune`] once more when
    /// no worker uses the old version.
    ///
    /// A `mac_limit` that the table has no room for makes a larger table and copies; what workers learn in the old one
    /// meanwhile is learned again.
    pub fn reconfigured(&self, config: &BridgeConfig) -> Bridge {
        let view = Arc::new(View::new(config, self.view.seed, Some(&self.view)));
        let groups = if config.snooping { self.groups.clone() } else { Arc::new(Groups::none()) };
        if config.mac_limit <= self.tables.capacity() {
            let bridge = Bridge { view, tables: self.tables.clone(), groups };
            bridge.apply_statics(&self.view.statics);
            bridge.prune();
            return bridge;
        }
        let tables = Arc::new(self.tables.larger(config.mac_limit, self.view.seed));
        let bridge = Bridge { view, tables, groups };
        bridge.apply_statics(&BTreeMap::new());
        // Who is known stays known, whatever the new limits say.
        bridge
            .import_from(self.tables.entries_with_stamps(), |_| Limits { port: u32::MAX, bridge: u32::MAX });
        bridge
    }

    /// The bridge with another table of snooped groups. Shares everything else: costs two
    /// reference counts.
    #[must_use]
    pub fn with_groups(&self, groups: Arc<Groups>) -> Bridge {
        Bridge { groups, ..self.clone() }
    }

    /// Its number.
    pub fn id(&self) -> BridgeId {
        self.view.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.view.name
    }

    /// The tables that all versions of this bridge share.
    pub fn tables(&self) -> &Arc<BridgeTables> {
        &self.tables
    }

    /// The snooped groups that this version uses.
    pub fn groups(&self) -> &Arc<Groups> {
        &self.groups
    }

    /// Its members in ascending order.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + '_ {
        self.view.members.iter().map(|member| member.port)
    }

    /// Whether frames of the VLAN ([`VlanId::NONE`]: the domain of transparent ports) leave by this port.
    pub fn carries(&self, port: PortId, vid: VlanId) -> bool {
        self.view.member(port).is_some_and(|member| member.egress(vid.get()).is_some())
    }

    /// Whether frames of the VLAN leave by this port with a tag; `None` where they do not leave there.
    pub fn leaves_tagged(&self, port: PortId, vid: VlanId) -> Option<bool> {
        self.view.member(port)?.egress(vid.get())
    }

    /// Whether a multicast router may be behind this port: whether its queries and PIM hellos are believed.
    pub fn may_be_multicast_router(&self, port: PortId) -> bool {
        self.view.member(port).is_some_and(|member| member.multicast_router)
    }

    /// Whether frames that come in by the member `from` may leave by the member `to`: not between two protected members.
    pub fn reaches(&self, from: PortId, to: PortId) -> bool {
        let is_protected = |port| self.view.member(port).is_some_and(|member| member.protected);
        !(is_protected(from) && is_protected(to))
    }

    /// Notes that a copy of a member's multicast control message, which a decision asked for, did not reach the [`crate::Snooper`].
    #[cold]
    pub fn note_unsnooped(&self, port: PortId, now: Now) {
        if let Some(member) = self.view.member(port) {
            member.snooped().miss(now.ns);
        }
    }

    /// When a copy of a member's multicast control message was last left out because the member had had its share of copies, or there was no place
    /// for it, in nanoseconds; `None`: never.
    pub fn snooped_incompletely(&self, port: PortId) -> Option<u64> {
        self.view.member(port)?.snooped().last_missed_ns()
    }

    /// What a member does with frames; `None` for strangers and for transparent members, which have no VLANs.
    pub fn facts(&self, port: PortId) -> Option<MemberFacts> {
        self.view.member(port)?.facts()
    }

    /// Ages the table by the configured time; see [`BridgeTables::age`].
    pub fn age(&self, now_secs: u16) -> usize {
        self.tables.age(now_secs, self.view.ageing_secs)
    }

    /// Forgets learned entries of ports and VLANs that this version does not have. Returns how many went.
    pub fn prune(&self) -> usize {
        let gone = |entry: &FdbEntry| !entry.port.is_some_and(|port| self.carries(port, entry.vid));
        self.tables.flush(gone)
    }

    /// What was learned, for a hand-over to another process: static entries are in its configuration already.
    pub fn export(&self, now_secs: u16) -> Vec<FdbEntry> {
        self.tables.fdb(now_secs).filter(|entry| !entry.is_static).collect()
    }

    /// Takes over what another process learned, as far as ports, VLANs and limits of this bridge allow; what is known
    /// already stays. Returns how many entries were taken.
    pub fn import(&self, entries: &[FdbEntry], now_secs: u16) -> usize {
        let stamped = entries.iter().map(|entry| (*entry, now_secs.wrapping_sub(entry.age_secs)));
        self.import_from(stamped, |member| self.view.limits(member))
    }

    fn import_from(
        &self,
        entries: impl IntoIterator<Item = (FdbEntry, u16)>,
        limits: impl Fn(&Member) -> Limits,
    ) -> usize {
        let mut taken = 0;
        for (entry, seen_secs) in entries {
            let Some(member) = entry.port.and_then(|port| self.view.member(port)) else { continue };
            let no_source = entry.mac.is_multicast() || entry.mac == MacAddr::ZERO;
            if entry.is_static || no_source || member.egress(entry.vid.get()).is_none() {
                continue;
            }
            let key = station_key(entry.vid.get(), mac_bits(entry.mac));
            taken += usize::from(self.tables.import(key, member.port, limits(member), seen_secs));
        }
        taken
    }

    /// Makes the table's static entries those of the view, which were those of `before`.
    fn apply_statics(&self, before: &BTreeMap<u64, Station>) {
        for (&key, &station) in &self.view.statics {
            if before.get(&key) != Some(&station) {
                self.tables.set_static(key, station);
            }
        }
        for &key in before.keys().filter(|key| !self.view.statics.contains_key(key)) {
            self.tables.clear_static(key);
        }
    }
}

impl View {
    fn new(config: &BridgeConfig, seed: u64, before: Option<&View>) -> View {
        // A port listed twice counts once, the last wins.
        let ports: BTreeMap<PortId, _> = config.ports.iter().map(|port| (port.port, port)).collect();
        let members: Box<[Member]> = ports
            .values()
            .map(|port| Member::new(port, before.and_then(|view| view.member(port.port))))
            .collect();
        let mut slots = vec![NO_SLOT; ports.keys().last().map_or(0, |port| port.index() + 1)];
        for (slot, member) in (0u16..).zip(&members) {
            slots[member.port.index()] = slot;
        }
        let (flood_of, floods) = flood_lists(&members);
        View {
            number: NEXT_VIEW.fetch_add(1, Ordering::Relaxed),
            id: config.id,
            name: config.name.clone(),
            ageing_secs: config.ageing_secs,
            mac_limit: config.mac_limit,
            snooping: config.snooping,
            members,
            slots: slots.into(),
            flood_of,
            floods,
            statics: config.statics.iter().filter(|entry| !entry.mac.is_multicast()).map(station).collect(),
            seed,
        }
    }

    /// The member's index, if the port is one.
    #[inline]
    pub(crate) fn slot(&self, port: PortId) -> Option<u16> {
        self.slots.get(port.index()).copied().filter(|&slot| slot != NO_SLOT)
    }

    #[inline]
    pub(crate) fn member(&self, port: PortId) -> Option<&Member> {
        self.slot(port).and_then(|slot| self.members.get(usize::from(slot)))
    }

    /// The members that carry a VLAN, by ascending port number.
    pub(crate) fn carriers(&self, vid: u16) -> impl Iterator<Item = &Member> + '_ {
        let list = self.flood_of.get(usize::from(vid)).map_or(0, |&list| usize::from(list));
        self.floods[list].iter().map(|&slot| &self.members[usize::from(slot)])
    }

    pub(crate) fn limits(&self, member: &Member) -> Limits {
        Limits { port: member.mac_limit, bridge: self.mac_limit }
    }
}

fn station(entry: &StaticMac) -> (u64, Station) {
    (station_key(entry.vid.get(), mac_bits(entry.mac)), Station::fixed(entry.port))
}

/// The members of each VLAN. VLANs with the same members (trunks carry thousands) share one list.
fn flood_lists(members: &[Member]) -> (Box<[u16]>, SlotLists) {
    let mut lists: Vec<Box<[u16]>> = vec![Box::default()];
    let mut known: HashMap<Box<[u16]>, u16> = HashMap::from([(Box::default(), 0)]);
    let flood_of = (0..=VlanId::MAX.get())
        .map(|vid| {
            let carriers = (0u16..).zip(members).filter(|(_, member)| member.egress(vid).is_some());
            let list: Box<[u16]> = carriers.map(|(slot, _)| slot).collect();
            *known.entry(list).or_insert_with_key(|list| {
                lists.push(list.clone());
                // At most one list per VLAN identifier.
                u16::try_from(lists.len() - 1).unwrap_or(0)
            })
        })
        .collect();
    (flood_of, lists.into())
}
