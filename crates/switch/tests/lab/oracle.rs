//! A naive bridge, which processes one frame at a time with one map. The code follows the text of IEEE 802.1Q and RFC
//! 4541 without regard to speed. Clause numbers are those of 802.1Q-2022.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use packet::record::TagChange;
use packet::{DropReason, MacAddr, PortId};
use switch::{BridgeConfig, BridgePortConfig, Family, GroupPorts, Now, RouterPorts, StormLimits, VlanMode};

use super::{Frame, Outcome, Payload};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    port: Option<u16>,
    is_static: bool,
    seen_secs: u64,
}

/// A token bucket. Tokens are counted in billionths to avoid rounding.
#[derive(Clone, Debug)]
struct Bucket {
    rate: u32,
    level: u128,
    at_ns: u64,
}

impl Bucket {
    /// Adds the tokens for the elapsed time, up to `full`, and takes a token. Returns false if there is none to take.
    fn takes(&mut self, full: u128, now: Now) -> bool {
        self.level = full.min(self.level + u128::from(now.ns - self.at_ns) * u128::from(self.rate));
        self.at_ns = now.ns;
        let passes = self.level >= 1_000_000_000;
        self.level -= if passes { 1_000_000_000 } else { 0 };
        passes
    }
}

pub struct Oracle {
    config: BridgeConfig,
    table: HashMap<(u16, MacAddr), Entry>,
    buckets: HashMap<(u16, DropReason), Bucket>,
    snooped: HashMap<u16, Bucket>,
    pub groups: BTreeMap<(u16, IpAddr), Vec<u16>>,
    pub routers: BTreeMap<(u16, bool), Vec<u16>>,
    pub moves: u64,
}

/// The class of a frame that is sent to more than one port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Many {
    Broadcast,
    Multicast,
    Unknown,
}

impl Oracle {
    pub fn new(config: &BridgeConfig) -> Oracle {
        let mut oracle = Oracle {
            config: BridgeConfig::default(),
            table: HashMap::new(),
            buckets: HashMap::new(),
            snooped: HashMap::new(),
            groups: BTreeMap::new(),
            routers: BTreeMap::new(),
            moves: 0,
        };
        oracle.reconfigure(config);
        oracle
    }

    pub fn reconfigure(&mut self, config: &BridgeConfig) {
        let old = std::mem::replace(&mut self.config, config.clone());
        self.table.retain(|_, entry| !entry.is_static);
        for entry in &config.statics {
            let port = entry.port.map(|port| port.0);
            self.table.insert((entry.vid.get(), entry.mac), Entry { port, is_static: true, seen_secs: 0 });
        }
        let carried: Vec<_> = self.table.iter().map(|(key, entry)| self.carried(key.0, entry)).collect();
        let mut carried = carried.into_iter();
        self.table.retain(|_, _| carried.next().unwrap());
        let limits = |config: &BridgeConfig, port| {
            config
                .ports
                .iter()
                .find(|member| member.port.0 == port)
                .map(|member| member.storm)
                .unwrap_or_default()
        };
        self.buckets.retain(|(port, reason), _| {
            rate(&limits(&old, *port), *reason) == rate(&limits(config, *port), *reason)
        });
        self.snooped.retain(|port, _| config.ports.iter().any(|member| member.port.0 == *port));
        if !config.snooping {
            self.groups.clear();
            self.routers.clear();
        }
    }

    fn carried(&self, vid: u16, entry: &Entry) -> bool {
        entry.is_static
            || self.member(entry.port.unwrap()).is_some_and(|member| leaves_tagged(member, vid).is_some())
    }

    /// Adds the entry of a learned station to the table.
    pub fn know(&mut self, vid: u16, mac: MacAddr, port: u16, seen_secs: u64) {
        self.table.insert((vid, mac), Entry { port: Some(port), is_static: false, seen_secs });
    }

    /// Removes dynamic entries whose stations have sent nothing for longer than the ageing time (8.8.3).
    pub fn age(&mut self, now_secs: u64) {
        let ageing = u64::from(self.config.ageing_secs);
        self.table.retain(|_, entry| entry.is_static || now_secs - entry.seen_secs <= ageing);
    }

    pub fn flush(&mut self, unwanted: impl Fn(u16, MacAddr, u16) -> bool) {
        self.table.retain(|key, entry| entry.is_static || !unwanted(key.0, key.1, entry.port.unwrap()));
    }

    /// Returns the VLAN, address, port and age of each entry, and whether the entry is static. The list is sorted.
    pub fn listing(&self, now_secs: u64) -> Vec<(u16, MacAddr, Option<u16>, u64, bool)> {
        let age = |entry: &Entry| if entry.is_static { 0 } else { now_secs - entry.seen_secs };
        let list =
            self.table.iter().map(|(key, entry)| (key.0, key.1, entry.port, age(entry), entry.is_static));
        let mut list: Vec<_> = list.collect();
        list.sort_unstable();
        list
    }

    pub fn learned_on(&self, port: u16) -> usize {
        self.table.values().filter(|entry| !entry.is_static && entry.port == Some(port)).count()
    }

    pub fn frame(&mut self, frame: &Frame, now: Now) -> Outcome {
        let dropped = |reason| Outcome { outputs: Vec::new(), dropped: Some(reason), punted: false };
        let Some(member) = self.member(frame.port).cloned() else { return dropped(DropReason::NoFunction) };
        if frame.src.0[0] & 1 == 1 || frame.src == MacAddr::ZERO {
            return dropped(DropReason::SourceMulticast);
        }
        if frame.dst.0[..5] == [1, 0x80, 0xc2, 0, 0] && frame.dst.0[5] < 16 {
            return dropped(DropReason::ReservedMulticast);
        }
        let vid = match classify(&member, frame.tag) {
            Ok(vid) => vid,
            Err(reason) => return dropped(reason),
        };
        if let Err(reason) = self.learn(&member, (vid, frame.src), now.ns / 1_000_000_000) {
            return dropped(reason);
        }
        match self.destination(&member, frame, vid) {
            Destination::Drop(reason) => dropped(reason),
            Destination::One(port) => self.one(&member, frame, vid, port),
            Destination::Many { class, only, punted } => {
                let punted = punted && self.is_snooped(&member, now);
                if self.storm(&member, class, now) {
                    return dropped(storm_reason(class));
                }
                let outputs = self.many(&member, frame, vid, class, only.as_deref());
                Outcome { dropped: outputs.is_empty().then_some(DropReason::NoMember), outputs, punted }
            }
        }
    }

    /// Runs the learning process (8.7).
    fn learn(
        &mut self,
        member: &BridgePortConfig,
        key: (u16, MacAddr),
        now_secs: u64,
    ) -> Result<(), DropReason> {
        let here = member.port.0;
        let (held, held_here) = (self.table.len(), self.learned_on(here));
        let room_here = member.mac_limit.is_none_or(|limit| held_here < limit as usize);
        let Some(entry) = self.table.get_mut(&key) else {
            if member.learning
                && room_here
                && (held < self.config.mac_limit as usize || self.evict(here, now_secs))
            {
                self.table.insert(key, Entry { port: Some(here), is_static: false, seen_secs: now_secs });
            }
            return Ok(());
        };
        if entry.is_static {
            return match entry.port {
                None => Err(DropReason::FdbDiscard),
                Some(port) if port == here => Ok(()),
                Some(_) => Err(DropReason::SourceStaticMoved),
            };
        }
        if member.learning && entry.port == Some(here) {
            entry.seen_secs = now_secs;
        } else if member.learning && room_here {
            *entry = Entry { port: Some(here), is_static: false, seen_secs: now_secs };
            self.moves += 1;
        }
        Ok(())
    }

    /// Frees space in a full table for a station on port `here`, as in Open vSwitch: removes the oldest learned entry
    /// of the port with the most entries, and among entries of equal age the one with the lowest VLAN and address.
    /// Returns whether the station can now be added. If the limit was lowered below the number of entries, the table
    /// shrinks by one entry.
    fn evict(&mut self, here: u16, now_secs: u64) -> bool {
        let key = |(vid, mac): (u16, MacAddr)| {
            let mut octets = [0; 8];
            octets[..6].copy_from_slice(&mac.0);
            (vid, u64::from_le_bytes(octets))
        };
        let held = |port| self.learned_on(port) + usize::from(port == here);
        let learned = self.table.iter().filter(|(_, entry)| !entry.is_static);
        let ranked = learned.filter_map(|(station, entry)| {
            let age = now_secs - entry.seen_secs;
            Some(((held(entry.port?), age, std::cmp::Reverse(key(*station))), *station))
        });
        let Some((rank, station)) = ranked.max() else { return false };
        if rank.0 < held(here) {
            return false;
        }
        self.table.remove(&station);
        self.table.len() < self.config.mac_limit as usize
    }

    /// Determines the outcome for a frame from its destination address (8.6.3).
    fn destination(&self, member: &BridgePortConfig, frame: &Frame, vid: u16) -> Destination {
        if frame.dst == MacAddr::BROADCAST {
            let is_snooped = self.config.snooping && !has_other_vlan(member, frame.tag);
            if is_snooped && is_membership_message(frame.payload) {
                return Destination::Drop(DropReason::MulticastControlBad);
            }
            return Destination::Many { class: Many::Broadcast, only: None, punted: false };
        }
        if frame.dst.0[0] & 1 == 1 {
            let is_snooped = self.config.snooping && !has_other_vlan(member, frame.tag);
            let (only, punted) = if is_snooped { self.group(frame, vid) } else { (None, false) };
            return Destination::Many { class: Many::Multicast, only, punted };
        }
        match self.table.get(&(vid, frame.dst)) {
            None => Destination::Many { class: Many::Unknown, only: None, punted: false },
            Some(Entry { port: None, .. }) => Destination::Drop(DropReason::FdbDiscard),
            Some(Entry { port: Some(port), .. }) if *port == member.port.0 => {
                Destination::Drop(DropReason::SamePort)
            }
            Some(Entry { port: Some(port), .. }) => Destination::One(*port),
        }
    }

    /// Returns the output ports for a multicast frame (`None` for all ports), and whether the snooper reads the frame
    /// (RFC 4541).
    fn group(&self, frame: &Frame, vid: u16) -> (Option<Vec<u16>>, bool) {
        let Some(address) = frame.ip_destination() else { return (None, false) };
        let routers = self.routers.get(&(vid, address.is_ipv6())).cloned().unwrap_or_default();
        match frame.payload {
            Payload::Igmp(_, 0x11) | Payload::Icmp6(_, 130) | Payload::Pim4 | Payload::Pim6 => {
                return (None, true);
            }
            Payload::Igmp(_, 0x12 | 0x16 | 0x17 | 0x22) | Payload::Icmp6(_, 131 | 132 | 143) => {
                return (Some(routers), true);
            }
            _ => {}
        }
        let local = match address {
            IpAddr::V4(v4) => !v4.is_multicast() || u32::from(v4) >> 8 == 0x00e0_0000,
            IpAddr::V6(v6) => !v6.is_multicast() || matches!(v6.octets()[1] & 15, 0..=2),
        };
        match self.groups.get(&(vid, address)) {
            Some(members) if !local => (Some([routers, members.clone()].concat()), false),
            _ => (None, false),
        }
    }

    fn one(&self, member: &BridgePortConfig, frame: &Frame, vid: u16, port: u16) -> Outcome {
        let dropped = |reason| Outcome { outputs: Vec::new(), dropped: Some(reason), punted: false };
        let Some((target, tagged)) =
            self.member(port).and_then(|target| Some((target, leaves_tagged(target, vid)?)))
        else {
            // Only a static entry can name a port outside the VLAN, because the change that removed the port
            // removed other entries.
            return dropped(DropReason::NoMember);
        };
        if member.protected && target.protected {
            return dropped(DropReason::ProtectedPort);
        }
        Outcome { outputs: vec![(port, change(member, frame, vid, tagged))], dropped: None, punted: false }
    }

    fn many(
        &self,
        member: &BridgePortConfig,
        frame: &Frame,
        vid: u16,
        class: Many,
        only: Option<&[u16]>,
    ) -> Vec<(u16, TagChange)> {
        let mut outputs = Vec::new();
        for target in &self.config.ports {
            let port = target.port.0;
            let Some(tagged) = leaves_tagged(target, vid) else { continue };
            let unwanted = port == member.port.0
                || member.protected && target.protected
                || class == Many::Unknown && !target.flood
                || only.is_some_and(|only| !only.contains(&port));
            if !unwanted {
                outputs.push((port, change(member, frame, vid, tagged)));
            }
        }
        outputs.sort_unstable_by_key(|(port, _)| *port);
        outputs
    }

    /// Returns whether the port's limit for the class is exceeded.
    fn storm(&mut self, member: &BridgePortConfig, class: Many, now: Now) -> bool {
        let reason = storm_reason(class);
        let Some(rate) = rate(&member.storm, reason) else { return false };
        let full = u128::from(StormLimits::burst(rate)) * 1_000_000_000;
        let bucket = self.buckets.entry((member.port.0, reason));
        let bucket = bucket.or_insert(Bucket { rate, level: full, at_ns: now.ns });
        !bucket.takes(full, now)
    }

    /// Returns whether the snooper may get one more copy of the port's frames. The limit is 100 copies per second, in
    /// bursts of at most 50.
    fn is_snooped(&mut self, member: &BridgePortConfig, now: Now) -> bool {
        let bucket = self.snooped.entry(member.port.0);
        let bucket = bucket.or_insert(Bucket { rate: 100, level: 50_000_000_000, at_ns: now.ns });
        bucket.takes(50_000_000_000, now)
    }

    fn member(&self, port: u16) -> Option<&BridgePortConfig> {
        self.config.ports.iter().find(|member| member.port.0 == port)
    }

    /// Returns the groups and router ports in the form that the bridge accepts.
    pub fn tables(&self) -> (Vec<GroupPorts>, Vec<RouterPorts>) {
        let ports = |ports: &Vec<u16>| ports.iter().map(|&port| PortId(port)).collect();
        let vlan = |vid| packet::VlanId::new(vid).unwrap_or(packet::VlanId::NONE);
        let group = |((vid, group), members): (&(u16, IpAddr), _)| GroupPorts {
            vid: vlan(*vid),
            group: *group,
            members: ports(members),
        };
        let router = |((vid, v6), list): (&(u16, bool), _)| RouterPorts {
            vid: vlan(*vid),
            family: if *v6 { Family::V6 } else { Family::V4 },
            ports: ports(list),
        };
        (self.groups.iter().map(group).collect(), self.routers.iter().map(router).collect())
    }
}

enum Destination {
    Drop(DropReason),
    One(u16),
    Many { class: Many, only: Option<Vec<u16>>, punted: bool },
}

/// Returns whether the frame's tag names a VLAN that is not a VLAN of the bridge.
fn has_other_vlan(member: &BridgePortConfig, tag: Option<(u16, bool)>) -> bool {
    let is_opaque = |service: bool| service || member.mode == VlanMode::Transparent;
    tag.is_some_and(|(tci, service)| is_opaque(service) && tci & 0xfff != 0)
}

/// Returns whether the payload is an IGMP or MLD report, leave or query.
fn is_membership_message(payload: Payload) -> bool {
    matches!(
        payload,
        Payload::Igmp(_, 0x11 | 0x12 | 0x16 | 0x17 | 0x22) | Payload::Icmp6(_, 130 | 131 | 132 | 143)
    )
}

fn storm_reason(class: Many) -> DropReason {
    match class {
        Many::Broadcast => DropReason::StormBroadcast,
        Many::Multicast => DropReason::StormMulticast,
        Many::Unknown => DropReason::StormUnknown,
    }
}

fn rate(limits: &StormLimits, reason: DropReason) -> Option<u32> {
    match reason {
        DropReason::StormBroadcast => limits.broadcast,
        DropReason::StormMulticast => limits.multicast,
        _ => limits.unknown,
    }
}

/// Returns the VLAN identifier in an 802.1Q tag. Returns `None` if the frame has no 802.1Q tag.
fn tag_vid(tag: Option<(u16, bool)>) -> Option<u16> {
    tag.filter(|(_, service)| !service).map(|(tci, _)| tci & 0xfff)
}

/// Returns the frame's VLAN (6.9.1, 8.6.2).
fn classify(member: &BridgePortConfig, tag: Option<(u16, bool)>) -> Result<u16, DropReason> {
    match (&member.mode, tag_vid(tag)) {
        (VlanMode::Transparent, _) => Ok(0),
        (VlanMode::Access(vlan), None | Some(0)) => Ok(vlan.get()),
        (VlanMode::Access(_), Some(_)) => Err(DropReason::VlanTaggedOnAccess),
        (VlanMode::Trunk { native, .. }, None | Some(0)) => {
            native.map(|native| native.get()).ok_or(DropReason::VlanUntaggedNotAdmitted)
        }
        (VlanMode::Trunk { allowed, native, .. }, Some(vid)) => {
            let carried = allowed.iter().chain(*native).any(|vlan| vlan.get() == vid);
            let refused = member.native_untagged_only && native.is_some_and(|native| native.get() == vid);
            if carried && !refused { Ok(vid) } else { Err(DropReason::VlanNotAllowed) }
        }
    }
}

/// Returns whether the port transmits frames of the VLAN tagged. `None` if the port is not in the VLAN's
/// member set (8.6.4, 8.8.2).
fn leaves_tagged(member: &BridgePortConfig, vid: u16) -> Option<bool> {
    match &member.mode {
        VlanMode::Transparent => (vid == 0).then_some(false),
        VlanMode::Access(vlan) => (vlan.get() == vid).then_some(false),
        VlanMode::Trunk { allowed, native, native_tagged } => {
            let is_native = native.is_some_and(|native| native.get() == vid);
            let carried = is_native || allowed.iter().any(|vlan| vlan.get() == vid);
            carried.then_some(!is_native || *native_tagged)
        }
    }
}

/// Returns how the outer VLAN tag of the transmitted frame differs from the tag of the received frame.
fn change(from: &BridgePortConfig, frame: &Frame, vid: u16, tagged: bool) -> TagChange {
    if from.mode == VlanMode::Transparent {
        return TagChange::Keep;
    }
    match (tag_vid(frame.tag), tagged) {
        (None, false) => TagChange::Keep,
        (None, true) => TagChange::Push(vid),
        (Some(_), false) => TagChange::Pop,
        (Some(0), true) => TagChange::Set(vid),
        (Some(_), true) => TagChange::Keep,
    }
}
