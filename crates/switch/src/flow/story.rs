//! A packet's way through the tables in words: each rule that it met, what was done, and for each bit of its megaflow what has asked for it.
//! Made of a translation's [`Trace`]: the tables are not looked through a second time.

use super::message::ALL_TABLES;
use super::pipeline::Pipeline;
use super::rule::RuleRef;
use super::translate::{Trace, Translated};
use super::{Field, Flow, Match, text};

/// Lines of a story, at most.
const LINES: usize = 1_000;
/// Rules that are looked at for one that a look-up had to tell from the packet's, over a whole story.
const LOOKED_AT: usize = 65_536;

/// What happened, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// A rule was met.
    Rule {
        /// Depth of resubmits.
        depth: u32,
        /// Its table.
        table: u8,
        /// Its priority.
        priority: u16,
        /// Its cookie.
        cookie: u64,
        /// What it matches, in `ovs-ofctl`'s syntax; empty: everything.
        matching: String,
        /// What it does, likewise.
        actions: String,
    },
    /// No rule of the table was met.
    Miss {
        /// Depth of resubmits.
        depth: u32,
        /// The table.
        table: u8,
    },
    /// An action was done.
    Did {
        /// Depth of resubmits.
        depth: u32,
        /// Which, in `ovs-ofctl`'s syntax.
        action: String,
    },
    /// Why something was not done, or was done otherwise.
    Note {
        /// Depth of resubmits.
        depth: u32,
        /// In words.
        words: &'static str,
    },
    /// What an instruction led to.
    Detail {
        /// Depth of resubmits.
        depth: u32,
        /// In words.
        words: String,
    },
    /// The bucket of this place of a group was gone by.
    Bucket {
        /// Depth of resubmits and groups: that of its actions.
        depth: u32,
        /// Its place.
        place: usize,
    },
    /// The action set is done.
    ActionSet {
        /// Depth of resubmits.
        depth: u32,
    },
    /// So much more happened than is told.
    More(usize),
}

/// Bits of the megaflow, and why they are there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bits {
    /// The fields with their masks.
    pub fields: String,
    /// The table, rule or action that has asked for them.
    pub because: String,
}

/// See the module documentation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Story {
    /// What happened.
    pub lines: Vec<Line>,
    /// The packet's flow at the end, where it is another one.
    pub changed: Option<String>,
    /// The megaflow's match, in `ovs-ofctl`'s syntax.
    pub megaflow: String,
    /// Why it has its bits. The port of arrival is one of them always.
    pub why: Vec<Bits>,
    /// It is not cached: each such packet goes to the decider.
    pub is_own: bool,
}

impl Pipeline {
    /// The story of a packet that was translated with `trace`, of the tables as they were then.
    #[must_use]
    pub fn story(&self, arrived: &Flow, fate: &Translated) -> Story {
        let mut story = Story { is_own: !fate.is_cacheable(), ..Story::default() };
        let mut mask = fate.mask;
        mask.want(Field::InPort);
        story.megaflow = text::part(arrived, &mask);
        let (mut left, mut untold) = (LOOKED_AT, fate.untold);
        for step in &fate.trace {
            let line = match step {
                Trace::Lookup { depth, table, rule, bits } => {
                    self.why(arrived, *table, *rule, bits, &mut left, &mut story.why);
                    match rule.and_then(|at| self.rule(at)) {
                        Some(rule) => Line::Rule {
                            depth: *depth,
                            table: *table,
                            priority: rule.priority,
                            cookie: rule.cookie,
                            matching: text::matching(&rule.matching, None),
                            actions: text::instructions(&rule.instructions),
                        },
                        None => Line::Miss { depth: *depth, table: *table },
                    }
                }
                Trace::Did { depth, action } => Line::Did { depth: *depth, action: text::action(action) },
                Trace::Note(depth, words) => Line::Note { depth: *depth, words },
                Trace::Bucket(depth, place) => Line::Bucket { depth: *depth, place: *place },
                Trace::ActionSet(depth) => Line::ActionSet { depth: *depth },
                Trace::Instruction(depth, action, then) => {
                    let depth = *depth;
                    if let Some(words) = then
                        && story.lines.len() + 1 < LINES
                    {
                        story.lines.push(Line::Did { depth, action: action.clone() });
                        Line::Detail { depth, words: words.clone() }
                    } else {
                        Line::Did { depth, action: action.clone() }
                    }
                }
                Trace::End(flow) => {
                    story.changed = (**flow != *arrived).then(|| text::whole(flow));
                    continue;
                }
                Trace::Needs { table, action, bits } => {
                    let because = format!("table {table}: action {}", text::action(action));
                    story.why.push(Bits { fields: text::part(arrived, bits), because });
                    continue;
                }
            };
            if story.lines.len() < LINES {
                story.lines.push(line);
            } else {
                untold += 1;
            }
        }
        if untold > 0 {
            story.lines.push(Line::More(untold));
        }
        story
    }

    /// Bits of a look-up: those that its rule matches, and those that tell the packet from rules that it might have met instead.
    fn why(
        &self,
        arrived: &Flow,
        table: u8,
        rule: Option<RuleRef>,
        bits: &Flow,
        left: &mut usize,
        why: &mut Vec<Bits>,
    ) {
        let met = rule.and_then(|at| self.rule(at));
        let own = met.map_or(Flow::ZERO, |rule| bits.masked(&rule.matching.mask));
        if let (Some(rule), true) = (met, own != Flow::ZERO) {
            let because = format!("table {table}: matched by the rule of priority {}", rule.priority);
            why.push(Bits { fields: text::part(arrived, &own), because });
        }
        let rest = Flow(std::array::from_fn(|word| bits.0[word] & !own.0[word]));
        if rest == Flow::ZERO {
            return;
        }
        let excluded = |other: &Match| {
            (0..super::FLOW_WORDS)
                .any(|word| (arrived.0[word] ^ other.value.0[word]) & other.mask.0[word] & rest.0[word] != 0)
        };
        let floor = met.map_or(0, |rule| rule.priority);
        let mut others = self.rules.iter().take(*left).inspect(|_| *left -= 1).filter(|(at, other)| {
            Some(*at) != rule
                && other.table == table
                && table != ALL_TABLES
                && other.priority >= floor
                && excluded(&other.matching)
        });
        let because = match others.next() {
            Some((_, other)) => {
                let matching = text::matching(&other.matching, None);
                format!("table {table}: not the rule of priority {} ({matching})", other.priority)
            }
            None => format!("table {table}: looked at on the way to the answer"),
        };
        drop(others);
        why.push(Bits { fields: text::part(arrived, &rest), because });
    }
}
