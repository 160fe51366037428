//! A bridge as workers use it: an immutable value that holds the compiled configuration and refers
//! to the tables (MAC table, address counts) that all versions of the bridge share. The value is
//! part of the engine's configuration snapshot.
//!
//! Control threads create a new version for every change ([`Bridge::reconfigured`], [`Bridge::with_groups`]) and
//! publish it to the workers. All versions share the MAC table, the address counts and the token buckets of unchanged
//! storm limits. A worker that still uses the old version may learn an address on a port that the new version does not
//! have. Lookups ignore this entry, and [`Bridge::prune`] removes it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packet::{BridgeId, MacAddr, PortId, VlanId};

use crate::config::{BridgeConfig, Now, StaticMac};
use crate::groups::Groups;
use crate::member::{Member, MemberFacts};
use crate::tables::{BridgeTables, FdbEntry, Limits, Station, mac_bits, station_key};

/// Identifier for the next [`View`] that is created.
static NEXT_VIEW: AtomicU64 = AtomicU64::new(1);

/// Index in `View::slots` for a port that is not a member of the bridge.
const NO_SLOT: u16 = u16::MAX;

/// Flood lists. There is one list for each set of VLANs with the same members. A list holds the
/// members to which frames are flooded, as indices into the members of a [`View`].
type SlotLists = Box<[Box<[u16]>]>;

/// A bridge as workers use it: the compiled configuration, the table of snooped multicast groups, and the tables that
/// all versions of the bridge share. A clone shares all three with the original.
#[derive(Clone, Debug)]
pub struct Bridge {
    pub(crate) view: Arc<View>,
    pub(crate) tables: Arc<BridgeTables>,
    pub(crate) groups: Arc<Groups>,
}

/// The compiled configuration of a bridge.
#[derive(Debug)]
pub(crate) struct View {
    /// Identifier of this version of the configuration, unique within the process. A worker
    /// compares the identifier to detect that its MAC cache belongs to another version.
    pub(crate) number: u64,
    pub(crate) id: BridgeId,
    name: String,
    pub(crate) ageing_secs: u32,
    pub(crate) mac_limit: u32,
    pub(crate) snooping: bool,
    /// Members of the bridge in ascending order of port number.
    pub(crate) members: Box<[Member]>,
    /// Index into `members` for each port number. [`NO_SLOT`] marks ports that are not members.
    slots: Box<[u16]>,
    /// Index into `floods` for each VLAN identifier. The list at that index holds the members to which the
    /// bridge floods frames of the VLAN.
    flood_of: Box<[u16]>,
    /// Flood lists. Each list holds indices into `members` in ascending order. The first list is empty.
    floods: SlotLists,
    statics: BTreeMap<u64, Station>,
    seed: u64,
}

impl Bridge {
    /// Creates a bridge whose MAC table holds only the static entries. `seed` is the secret key of the bridge's hash
    /// functions and must be random.
    pub fn new(config: &BridgeConfig, seed: u64) -> Bridge {
        let bridge = Bridge {
            view: Arc::new(View::new(config, seed, None)),
            tables: Arc::new(BridgeTables::new(config.mac_limit, seed)),
            groups: Arc::new(Groups::none()),
        };
        bridge.apply_statics(&BTreeMap::new());
        bridge
    }

    /// Returns the next version of the bridge, with the configuration `config`. Learned entries, address counts, and
    /// the token buckets of unchanged storm limits are kept. Entries of removed ports and VLANs are flushed. Call
    /// [`Bridge::prune`] once more when no worker uses the old version.
    ///
    /// A `mac_limit` above the table's capacity allocates a larger table and copies the entries. Addresses
    /// that workers learn in the old table during the copy must be learned again.
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
        // Existing entries are copied even if they exceed the new limits.
        bridge
            .import_from(self.tables.entries_with_stamps(), |_| Limits { port: u32::MAX, bridge: u32::MAX });
        bridge
    }

    /// Returns a version of the bridge that uses `groups` as its table of snooped multicast groups. The new version
    /// shares the configuration and all other tables with this version, so the call is cheap.
    #[must_use]
    pub fn with_groups(&self, groups: Arc<Groups>) -> Bridge {
        Bridge { groups, ..self.clone() }
    }

    /// Returns the identifier of the bridge.
    pub fn id(&self) -> BridgeId {
        self.view.id
    }

    /// Returns the name of the bridge.
    pub fn name(&self) -> &str {
        &self.view.name
    }

    /// Returns the tables that all versions of this bridge share.
    pub fn tables(&self) -> &Arc<BridgeTables> {
        &self.tables
    }

    /// Returns the table of snooped multicast groups that this version uses.
    pub fn groups(&self) -> &Arc<Groups> {
        &self.groups
    }

    /// Returns the member ports of the bridge in ascending order of port number.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + '_ {
        self.view.members.iter().map(|member| member.port)
    }

    /// Returns whether `port` transmits frames of the VLAN `vid`. [`VlanId::NONE`] represents the traffic of
    /// transparent ports, which have no VLANs.
    pub fn carries(&self, port: PortId, vid: VlanId) -> bool {
        self.view.member(port).is_some_and(|member| member.egress(vid.get()).is_some())
    }

    /// Returns true if `port` transmits frames of the VLAN `vid` with a tag, and false if it transmits them
    /// untagged. Returns `None` if the port does not transmit frames of the VLAN.
    pub fn leaves_tagged(&self, port: PortId, vid: VlanId) -> Option<bool> {
        self.view.member(port)?.egress(vid.get())
    }

    /// Returns whether the bridge accepts multicast queries and PIM hellos that arrive on `port`.
    pub fn may_be_multicast_router(&self, port: PortId) -> bool {
        self.view.member(port).is_some_and(|member| member.multicast_router)
    }

    /// Returns whether the bridge may forward a frame from the member `from` to the member `to`. Returns
    /// false if both members are protected.
    pub fn reaches(&self, from: PortId, to: PortId) -> bool {
        let is_protected = |port| self.view.member(port).is_some_and(|member| member.protected);
        !(is_protected(from) && is_protected(to))
    }

    /// Records that the [`crate::Snooper`] did not get its copy of a multicast control message from the member `port`.
    /// `now` is the time of the loss.
    #[cold]
    pub fn note_unsnooped(&self, port: PortId, now: Now) {
        if let Some(member) = self.view.member(port) {
            member.snooped().miss(now.ns);
        }
    }

    /// Returns the last time, in nanoseconds, at which the snooper missed a multicast control message from this port,
    /// because the copy for the snooper exceeded the port's rate limit or a storm limit, a queue was full, or the frame
    /// was too long. Returns `None` if no copy was lost.
    pub fn snooped_incompletely(&self, port: PortId) -> Option<u64> {
        self.view.member(port)?.snooped().last_missed_ns()
    }

    /// Returns the VLAN and learning settings of a member, for offloads such as XDP programs. Returns `None` for ports
    /// that are not members and for transparent members, which have no VLANs.
    pub fn facts(&self, port: PortId) -> Option<MemberFacts> {
        self.view.member(port)?.facts()
    }

    /// Removes learned entries older than the configured ageing time. See [`BridgeTables::age`].
    pub fn age(&self, now_secs: u16) -> usize {
        self.tables.age(now_secs, self.view.ageing_secs)
    }

    /// Removes learned entries of ports and VLANs that this version does not have. Returns the number of
    /// entries removed.
    pub fn prune(&self) -> usize {
        let gone = |entry: &FdbEntry| !entry.port.is_some_and(|port| self.carries(port, entry.vid));
        self.tables.flush(gone)
    }

    /// Returns the learned MAC table entries, for transfer to a successor process. Static entries are left out, because
    /// the successor reads them from its configuration.
    pub fn export(&self, now_secs: u16) -> Vec<FdbEntry> {
        self.tables.fdb(now_secs).filter(|entry| !entry.is_static).collect()
    }

    /// Adds MAC table entries that a predecessor process learned. An entry is skipped if this bridge does not have its
    /// port or VLAN, if a limit on the number of addresses is reached, or if its address is already known. Returns the
    /// number of entries added.
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

    /// Replaces the static entries of the previous configuration (`before`) in the MAC table with the static entries of
    /// this configuration.
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
        // If a port has several configurations, the last one is used.
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

    /// Returns the index of a port in `members`. Returns `None` if the port is not a member.
    #[inline]
    pub(crate) fn slot(&self, port: PortId) -> Option<u16> {
        self.slots.get(port.index()).copied().filter(|&slot| slot != NO_SLOT)
    }

    #[inline]
    pub(crate) fn member(&self, port: PortId) -> Option<&Member> {
        self.slot(port).and_then(|slot| self.members.get(usize::from(slot)))
    }

    /// Returns the members that carry the VLAN `vid`, in ascending order of port number.
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

/// Returns the flood lists, and for each VLAN the index of its list. VLANs with equal members share one list,
/// because trunks carry thousands of VLANs.
fn flood_lists(members: &[Member]) -> (Box<[u16]>, SlotLists) {
    let mut lists: Vec<Box<[u16]>> = vec![Box::default()];
    let mut known: HashMap<Box<[u16]>, u16> = HashMap::from([(Box::default(), 0)]);
    let flood_of = (0..=VlanId::MAX.get())
        .map(|vid| {
            let carriers = (0u16..).zip(members).filter(|(_, member)| member.egress(vid).is_some());
            let list: Box<[u16]> = carriers.map(|(slot, _)| slot).collect();
            *known.entry(list).or_insert_with_key(|list| {
                lists.push(list.clone());
                // There is at most one list for each VLAN identifier.
                u16::try_from(lists.len() - 1).unwrap_or(0)
            })
        })
        .collect();
    (flood_of, lists.into())
}
