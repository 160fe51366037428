//! Selection of one of several buckets, ports or links according to a hash of the packet, in groups, `bundle` and
//! `multipath`.

use super::{Field, Flow, LIST_WORK, Run};
use crate::flow::action::{BundleMode, HashFields, SubField};
use crate::flow::message::{Bucket, GroupKind, SelectMethod};
use crate::flow::numbers::eth_type;
use crate::flow::pipeline::Pipeline;
use crate::flow::{Prerequisite, port};

/// Number of links whose weights can be computed in the time that one action takes.
const WEIGHED: usize = 4;

/// Hashes two numbers to one (the finaliser of MurmurHash3, Appleby, 2011).
fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

/// Maps a hash to a number greater than 0 and less than 1.
#[allow(clippy::cast_precision_loss, reason = "53 bits are kept, as many as there are")]
fn unit(hash: u64) -> f64 {
    ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// Returns the index of the choice with the highest random weight. The expected share of each
/// choice is proportional to its weight, and the share of a removed choice is distributed among the
/// others (Thaler and Ravishankar, 1998; weights after Schindelhauer and Schomaker, 2005). Returns
/// `None` if there are no choices.
fn highest(hash: u64, choices: impl Iterator<Item = (usize, u64, u16)>) -> Option<usize> {
    let score =
        |(place, id, weight): (usize, u64, u16)| (place, -unit(mix(hash, id)).ln() / f64::from(weight));
    choices
        .filter(|(_, _, weight)| *weight > 0)
        .map(score)
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(place, _)| place)
}

/// Returns the additional work of a selection among `links` links, in units of one action. Highest random weight
/// evaluates each link, which takes a fraction of the time of an action.
pub(super) fn work_of(mode: BundleMode, links: usize) -> u32 {
    match mode {
        BundleMode::Weight => u32::try_from(links / WEIGHED).unwrap_or(u32::MAX),
        BundleMode::Modulo | BundleMode::Threshold | BundleMode::Iterative | BundleMode::ActiveBackup => 0,
    }
}

/// Returns the number of the link that `multipath` selects, from 0 to `links - 1`.
#[allow(clippy::cast_possible_truncation, reason = "of a hash")]
pub fn multipath(mode: BundleMode, hash: u64, links: u32, argument: u32) -> u32 {
    let low = hash as u32;
    match mode {
        BundleMode::Modulo | BundleMode::ActiveBackup => low % links,
        BundleMode::Threshold => {
            if links == 1 {
                0
            } else {
                low / (u32::MAX / links + 1)
            }
        }
        BundleMode::Weight => {
            let choices = (0..links).map(|link| (link as usize, u64::from(link), 1));
            highest(hash, choices).and_then(|link| u32::try_from(link).ok()).unwrap_or(0)
        }
        BundleMode::Iterative => {
            // Numbers below the next power of two are tried until one is a link.
            let range = links.max(argument.min(links.saturating_mul(2))).next_power_of_two();
            (0..).map(|round| mix(hash, round) as u32 % range).find(|link| *link < links).unwrap_or(0)
        }
    }
}

/// The port or group that decides whether a bucket is live.
enum Liveness {
    /// The liveness is known without a look at other groups. The value is true if the watched port is live, or if the
    /// bucket watches neither a port nor a group.
    Is(bool),
    /// The bucket is live if the watched group with this number is live.
    Of(u32),
}

impl Pipeline {
    fn liveness(&self, bucket: &Bucket) -> Liveness {
        let by_port = bucket.watch_port.filter(|number| *number != port::ANY);
        let by_group = bucket.watch_group.filter(|number| *number != port::ANY);
        let port_lives = |number| self.ports.get(&number).is_some_and(|port| port.live);
        match (by_port, by_group) {
            (None, None) => Liveness::Is(true),
            (Some(number), Some(_)) if port_lives(number) => Liveness::Is(true),
            (_, Some(id)) => Liveness::Of(id),
            (Some(number), None) => Liveness::Is(port_lives(number)),
        }
    }
}

impl Run<'_> {
    /// Returns whether a bucket is live, which depends on the port or group that the bucket watches. Each call counts
    /// as work of one action.
    fn is_live(&mut self, bucket: &Bucket) -> bool {
        self.works()
            && match self.pipeline.liveness(bucket) {
                Liveness::Is(live) => live,
                Liveness::Of(id) => self.is_group_live(id),
            }
    }

    /// Returns whether any bucket of a group is live. Buckets may watch groups whose buckets watch other groups, to any
    /// depth. The search is iterative, and examines each group once for each translation.
    fn is_group_live(&mut self, id: u32) -> bool {
        if let Some(live) = self.live_groups.get(&id) {
            return *live;
        }
        let pipeline = self.pipeline;
        // Groups under examination, each watched by the one before it, and the indices of their next buckets.
        // A group counts as dead until a bucket of it is found live, so that a group that watches itself is
        // dead.
        let mut path = vec![(id, 0)];
        self.live_groups.insert(id, false);
        while let Some((id, place)) = path.last_mut() {
            let bucket = pipeline.groups.get(id).and_then(|state| state.group.buckets.get(*place));
            *place += 1;
            let Some(bucket) = bucket else {
                path.pop();
                continue;
            };
            if !self.works() {
                return false;
            }
            let live = match pipeline.liveness(bucket) {
                Liveness::Is(live) => live,
                Liveness::Of(watched) => match self.live_groups.get(&watched) {
                    Some(live) => *live,
                    None => {
                        self.live_groups.insert(watched, false);
                        path.push((watched, 0));
                        false
                    }
                },
            };
            if live {
                self.live_groups.extend(path.into_iter().map(|(id, _)| (id, true)));
                return true;
            }
        }
        false
    }
}

impl Run<'_> {
    /// Executes the group with the number `id`.
    pub(super) fn group(&mut self, id: u32) {
        let pipeline = self.pipeline;
        let Some(state) = pipeline.groups.get(&id) else {
            return self.note("there is no such group");
        };
        (self.depth, self.recursion) = (self.depth + 1, self.recursion + 1);
        if self.recursion > super::MAX_DEPTH {
            self.note("too many groups inside groups");
            self.stopped = true;
            (self.depth, self.recursion) = (self.depth - 1, self.recursion - 1);
            return;
        }
        let group = &state.group;
        // The selection of a bucket visits the buckets and hashes the fields, which counts as work.
        let fields = if let SelectMethod::Hash { fields, .. } = &group.method { fields.len() } else { 0 };
        let is_choice = matches!(group.kind, GroupKind::Select | GroupKind::FastFailover);
        if is_choice && !self.works_for(super::work_of(group.buckets.len() + LIST_WORK * fields)) {
            (self.depth, self.recursion) = (self.depth - 1, self.recursion - 1);
            return;
        }
        match group.kind {
            GroupKind::All => {
                for place in 0..group.buckets.len() {
                    self.bucket(id, place, &group.buckets[place]);
                }
            }
            GroupKind::Indirect => {
                if let Some(bucket) = group.buckets.first() {
                    self.bucket(id, 0, bucket);
                }
            }
            GroupKind::FastFailover => match group.buckets.iter().position(|bucket| self.is_live(bucket)) {
                Some(place) => self.bucket(id, place, &group.buckets[place]),
                None => self.note("no bucket is alive"),
            },
            GroupKind::Select => {
                let hash = self.select_hash(&group.method);
                let choices = group.buckets.iter().enumerate().filter(|(_, bucket)| self.is_live(bucket));
                let choices = choices.map(|(place, bucket)| (place, u64::from(bucket.id), bucket.weight));
                match highest(hash, choices) {
                    Some(place) => self.bucket(id, place, &group.buckets[place]),
                    None => self.note("no bucket is alive"),
                }
            }
        }
        (self.depth, self.recursion) = (self.depth - 1, self.recursion - 1);
    }

    fn bucket(&mut self, id: u32, place: usize, bucket: &Bucket) {
        if self.stopped || !self.works() {
            return;
        }
        if self.asked.trace {
            self.tell(super::Trace::Bucket(self.depth, place));
        }
        self.out.groups.push((id, place));
        let before = (self.in_bucket, self.in_action_set);
        (self.in_bucket, self.in_action_set) = (true, false);
        self.on_copy(|run| run.ordered(&bucket.actions));
        (self.in_bucket, self.in_action_set) = before;
    }

    fn select_hash(&mut self, method: &SelectMethod) -> u64 {
        match method {
            SelectMethod::Default => {
                let hash = self.hash_fields(HashFields::SymmetricL4, 0);
                self.hash_arp(hash)
            }
            SelectMethod::DpHash { parameter } => {
                let hash = self.hash_fields(HashFields::SymmetricL3L4Udp, 0);
                mix(self.hash_arp(hash), *parameter)
            }
            SelectMethod::Hash { fields, parameter } => {
                fields.iter().fold(*parameter, |hash, (field, mask)| {
                    if !self.meets(field.prerequisite()) {
                        return hash;
                    }
                    let mut bits = Flow::ZERO;
                    bits.set(*field, *mask);
                    self.depend(&bits);
                    let value = self.flow.get(*field) & mask;
                    #[allow(clippy::cast_possible_truncation, reason = "both halves are taken")]
                    let (high, low) = ((value >> 64) as u64, value as u64);
                    mix(mix(mix(hash, *field as u64), high), low)
                })
            }
        }
    }

    /// Adds the ARP protocol addresses, which [`HashFields`] omit, to a hash. ARP requests for different hosts thus
    /// spread over the buckets of a group, and a request and its reply use the same bucket.
    #[allow(clippy::cast_possible_truncation, reason = "addresses of 32 bits")]
    fn hash_arp(&mut self, hash: u64) -> u64 {
        if !self.meets(Prerequisite::Arp) {
            return hash;
        }
        mix(hash, (self.ask(Field::ArpSpa) ^ self.ask(Field::ArpTpa)) as u64)
    }

    /// Returns a hash of packet fields, and adds the bits of the fields to the mask of the result.
    #[allow(clippy::cast_possible_truncation, reason = "halves of wide values")]
    pub(super) fn hash_fields(&mut self, fields: HashFields, basis: u16) -> u64 {
        let mut hash = mix(u64::from(basis), 0x7472_6976_6975_6d21);
        let mut add = |value: u128| hash = mix(mix(hash, (value >> 64) as u64), value as u64);
        // The hash is equal for both directions.
        let both = |a: u128, b: u128| a ^ b;
        let is_v6 = |run: &mut Self| run.ask(Field::EthType) == eth_type::IPV6;
        match fields {
            HashFields::EthSrc => add(self.ask(Field::EthSrc)),
            HashFields::NwSrc => {
                if self.meets(Prerequisite::Ip) {
                    let field = if is_v6(self) { Field::Ipv6Src } else { Field::Ipv4Src };
                    add(self.ask(field));
                }
            }
            HashFields::NwDst => {
                if self.meets(Prerequisite::Ip) {
                    let field = if is_v6(self) { Field::Ipv6Dst } else { Field::Ipv4Dst };
                    add(self.ask(field));
                }
            }
            HashFields::SymmetricL4
            | HashFields::SymmetricL3L4
            | HashFields::SymmetricL3L4Udp
            | HashFields::SymmetricL3 => {
                if fields == HashFields::SymmetricL4 {
                    add(both(self.ask(Field::EthSrc), self.ask(Field::EthDst)));
                    add(self.ask(Field::VlanVid) & 0xfff);
                    add(self.ask(Field::EthType));
                }
                if self.meets(Prerequisite::Ip) {
                    let (src, dst) = if is_v6(self) {
                        (Field::Ipv6Src, Field::Ipv6Dst)
                    } else {
                        (Field::Ipv4Src, Field::Ipv4Dst)
                    };
                    add(both(self.ask(src), self.ask(dst)));
                    add(self.ask(Field::IpProto));
                    let udp = fields != HashFields::SymmetricL3L4;
                    let has_ports = fields != HashFields::SymmetricL3
                        && (self.meets(Prerequisite::Tcp)
                            || self.meets(Prerequisite::Sctp)
                            || udp && self.meets(Prerequisite::Udp));
                    if has_ports {
                        add(both(self.ask(Field::TcpSrc), self.ask(Field::TcpDst)));
                    }
                }
            }
        }
        hash
    }

    /// Executes a `bundle` action, which selects one of the ports that are up.
    pub(super) fn bundle(
        &mut self,
        fields: HashFields,
        basis: u16,
        mode: BundleMode,
        ports: &[u32],
        to: Option<&SubField>,
    ) {
        if !self.works_for(u32::try_from(ports.len()).unwrap_or(u32::MAX)) {
            return;
        }
        let pipeline = self.pipeline;
        let lives = |number: &u32| pipeline.ports.get(number).is_some_and(|port| port.live);
        let chosen = if mode == BundleMode::ActiveBackup {
            ports.iter().copied().find(lives)
        } else {
            let hash = self.hash_fields(fields, basis);
            let choices = ports.iter().enumerate().filter(|(_, number)| lives(number));
            highest(hash, choices.map(|(place, number)| (place, u64::from(*number), 1)))
                .map(|place| ports[place])
        };
        match (chosen, to) {
            (Some(number), None) => self.output(number, 0),
            (None, None) => self.note("no port of the bundle is up"),
            (chosen, Some(to)) => self.put(to, u128::from(chosen.unwrap_or(port::ANY))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_by_weight_and_who_goes_leaves_only_his_own() {
        let weights = [1_u16, 2, 3, 4];
        let pick = |hash: u64, gone: usize| {
            let choices = weights.iter().enumerate().filter(|(place, _)| *place != gone);
            highest(hash, choices.map(|(place, weight)| (place, place as u64, *weight))).unwrap()
        };
        let mut counts = [0_u32; 4];
        const N: u64 = 400_000;
        for n in 0..N {
            let hash = mix(n, 77);
            let all = pick(hash, usize::MAX);
            counts[all] += 1;
            let without = pick(hash, 2);
            assert!(all == 2 || without == all, "a flow moved that did not have to");
        }
        for (count, weight) in counts.into_iter().zip(weights) {
            let share = f64::from(count) / N as f64;
            let wanted = f64::from(weight) / 10.0;
            assert!((share / wanted - 1.0).abs() < 0.01, "{share} of {wanted}");
        }
    }

    #[test]
    fn multipath_stays_among_its_links() {
        for mode in [BundleMode::Modulo, BundleMode::Threshold, BundleMode::Weight, BundleMode::Iterative] {
            for links in [1, 2, 3, 7, 255] {
                let mut seen = vec![0_u32; links as usize];
                for n in 0..20_000 {
                    seen[multipath(mode, mix(n, 3), links, 0) as usize] += 1;
                }
                let mean = 20_000 / links;
                assert!(seen.iter().all(|count| *count > mean / 3), "{mode:?} {links}: {seen:?}");
            }
        }
    }
}
