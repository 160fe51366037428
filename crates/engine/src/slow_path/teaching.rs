//! Execution of learn actions, with a limit on the work that the learn actions of one packet cause.
//!
//! A learn action that adds a rule to a full table with eviction searches all rules of the table for one to evict. Each
//! revalidation of a megaflow executes the megaflow's learn actions again. Therefore learn actions that exceed the
//! limit are executed only at intervals: each bridge has a permit for one such action in each interval. The ports of a
//! bridge take turns, so that the packets of one port do not use up the permits of the bridge.

use std::collections::{HashMap, VecDeque};

use packet::PortId;
use switch::flow::{LearnedFlow, Pipeline};

/// Maximum number of rules that the flow tables may visit to execute the learn actions of one packet.
const TEACHING: usize = 1 << 18;
/// Number of intervals (half a second each) for which a bridge's permit, which allows one learn action to exceed the
/// limit of work, is reserved for the first waiting source of packets. A source that does not use the permit in this
/// time is no longer waiting.
const RESERVED: u8 = 4;

/// Limiter for the work of learn actions. See the [module](self) documentation.
pub(super) struct Teaching {
    /// Maximum number of rules that the flow tables may visit to execute the learn actions of one packet.
    most: usize,
    /// Permits by bridge identifier. A bridge without an entry has a permit that no source waits for.
    permits: HashMap<u16, Permit>,
}

/// Origin of a packet that executes learn actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// The packet was received on this port, and may have passed patch ports to the bridge.
    Port(PortId),
    /// A controller of the bridge has sent the packet as a packet-out. All controllers count as one origin.
    PacketOut,
}

/// Permit of a bridge to execute one learn action that exceeds the limit of work.
#[derive(Default)]
struct Permit {
    /// Source of packets (a port, or the packet-outs of the bridge) that has used the permit since the last call of
    /// `turn`.
    used_by: Option<Source>,
    /// Sources of packets whose learn actions were skipped, in the order in which these sources get the permit.
    waiting: VecDeque<Source>,
    /// Number of intervals (half a second each) in which the first waiting source has not used the permit.
    unused: u8,
}

impl Permit {
    /// Uses the permit, if the permit is unused and no other source has precedence. Otherwise, the source waits for the
    /// permit. Returns whether the source has used the permit.
    fn take(&mut self, source: Source) -> bool {
        let is_first = self.waiting.front().is_none_or(|first| *first == source);
        if self.used_by.is_none() && is_first {
            self.waiting.pop_front();
            (self.used_by, self.unused) = (Some(source), 0);
            return true;
        }
        if !self.waiting.contains(&source) {
            self.waiting.push_back(source);
        }
        false
    }

    /// Renews the permit. The source that used the last permit moves to the end of the list of waiting sources.
    fn turn(&mut self) {
        if let Some(last) = self.used_by.take() {
            if self.waiting.front() == Some(&last) {
                self.waiting.rotate_left(1);
            }
            return;
        }
        self.unused += 1;
        if self.unused >= RESERVED {
            self.waiting.pop_front();
            self.unused = 0;
        }
    }
}

impl Default for Teaching {
    fn default() -> Teaching {
        Teaching { most: TEACHING, permits: HashMap::new() }
    }
}

impl Teaching {
    /// Permits each bridge one more learn action that exceeds the limit of work. The slow path calls this function
    /// twice a second.
    pub fn turn(&mut self) {
        self.permits.values_mut().for_each(Permit::turn);
        self.permits.retain(|_, permit| !permit.waiting.is_empty());
    }

    /// Executes the learn actions of one packet from `source` on the bridge with identifier `bridge`. A learn action
    /// has no effect if the tables refuse the rule (for example because a table is full) or if the action exceeds the
    /// limit of work. Returns the number of actions that were skipped because of the limit of work.
    pub fn teach(
        &mut self,
        pipeline: &mut Pipeline,
        (bridge, source): (u16, Source),
        learns: &[LearnedFlow],
        now: u64,
    ) -> u64 {
        let (mut left, mut skipped) = (self.most, 0);
        for lesson in learns {
            let work = pipeline.work_to_teach(lesson);
            if work > left && !self.permits.entry(bridge).or_default().take(source) {
                skipped += 1;
                continue;
            }
            left = left.saturating_sub(work);
            let _ = pipeline.teach(lesson, now);
        }
        skipped
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use switch::flow::{Field, FlowMod, Instructions, Match, Mod, TableBounds};

    use super::*;

    fn rule(number: u32) -> FlowMod {
        let matching = Match::ANY.with(Field::Reg0, u128::from(number));
        FlowMod { idle_timeout: 9, ..FlowMod::add(0, 1, matching, Instructions::default()) }
    }

    /// Returns a pipeline whose first table is full and evicts rules.
    fn full() -> Pipeline {
        let mut pipeline = Pipeline::new();
        let rules: Vec<Mod> = (0..1000).map(|number| Mod::Flow(Box::new(rule(number)))).collect();
        pipeline.modify(&rules, 0).unwrap();
        let bounds = TableBounds { limit: Some(1000), evicts: true, ..TableBounds::default() };
        pipeline.set_table_bounds(0, bounds, 0);
        pipeline
    }

    const ONE: (u16, Source) = (0, Source::Port(PortId(1)));
    const OTHER: (u16, Source) = (0, Source::Port(PortId(2)));

    /// Checks that the limit also applies to the first learn action of a packet, for a large table that is
    /// full.
    #[test]
    fn a_first_lesson_that_walks_over_all_rules_is_taught_once_a_turn() {
        let mut pipeline = full();
        let mut teaching = Teaching { most: 500, ..Teaching::default() };
        let mut is_taught = |teaching: &mut Teaching, number| {
            let version = pipeline.version();
            let skipped =
                teaching.teach(&mut pipeline, ONE, &[LearnedFlow { rule: rule(number), limit: 0 }], 1);
            let is_taught = pipeline.version() != version;
            assert_eq!(skipped, u64::from(!is_taught));
            is_taught
        };
        assert_eq!([2000, 2001, 2002].map(|number| is_taught(&mut teaching, number)), [true, false, false]);
        teaching.turn();
        assert_eq!([2003, 2004].map(|number| is_taught(&mut teaching, number)), [true, false]);
        // Learn actions within the limit do not depend on `turn`.
        teaching.most = 5000;
        assert_eq!([2005, 2006].map(|number| is_taught(&mut teaching, number)), [true, true]);
    }

    /// A test rig with a limiter. Each source of packets executes `learn` actions that are more expensive than the
    /// limit for actions without a permit.
    struct Rig {
        pipeline: Pipeline,
        teaching: Teaching,
        number: u32,
    }

    impl Rig {
        fn new() -> Rig {
            Rig { pipeline: full(), teaching: Teaching { most: 500, ..Teaching::default() }, number: 2000 }
        }

        /// Returns whether a learn action of the source is executed.
        fn is_taught(&mut self, source: (u16, Source)) -> bool {
            self.number += 1;
            let lesson = LearnedFlow { rule: rule(self.number), limit: 0 };
            self.teaching.teach(&mut self.pipeline, source, &[lesson], 1) == 0
        }
    }

    /// Checks that a port whose packets always come first shares the permits of its bridge with a port that rarely has
    /// packets, and that each bridge has its own permits.
    #[test]
    fn a_flood_from_one_port_leaves_permits_to_other_ports_and_bridges() {
        let mut rig = Rig::new();
        let mut taught = Vec::new();
        for _ in 0..6 {
            let flood = (0..100).filter(|_| rig.is_taught(ONE)).count();
            let other = usize::from(rig.is_taught(OTHER));
            taught.push([flood, other, usize::from(rig.is_taught((1, OTHER.1)))]);
            rig.teaching.turn();
        }
        let in_turn = [[1, 0, 1], [0, 1, 1]].repeat(3);
        assert_eq!(taught, in_turn, "learn actions of the flood, of the other port, and of the other bridge");
        // Packet-outs are one more source.
        let controller = (0, Source::PacketOut);
        assert!(!rig.is_taught(controller));
        let mut order = Vec::new();
        for _ in 0..6 {
            let taught = [ONE, OTHER, controller].map(|source| rig.is_taught(source));
            order.extend(taught.iter().position(|is_taught| *is_taught));
            rig.teaching.turn();
        }
        for source in 0..3 {
            assert_eq!(order.iter().filter(|at| **at == source).count(), 2, "{order:?}");
        }
    }

    /// Checks that the permit of a bridge is reserved only for a limited time for a port that has no more packets, and
    /// that the limiter keeps no state of bridges without waiting ports.
    #[test]
    fn a_port_that_does_not_use_its_turn_loses_it() {
        let mut rig = Rig::new();
        assert!(rig.is_taught(ONE) && !rig.is_taught(OTHER));
        let mut turns = 0;
        while !rig.is_taught(ONE) {
            rig.teaching.turn();
            turns += 1;
            assert!(turns < 10, "the permit is reserved for a port without packets");
        }
        assert_eq!(turns, usize::from(RESERVED) + 1);
        (0..=2 * RESERVED).for_each(|_| rig.teaching.turn());
        assert!(rig.teaching.permits.is_empty());
    }
}
