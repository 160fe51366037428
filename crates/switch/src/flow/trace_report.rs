//! Trace reports: a description of the path of a packet through the flow tables, with the flow
//! entries matched, the actions executed, and the reason for each bit of the megaflow's mask. A
//! report is made from the [`Trace`] of a translation without a second lookup.

use super::message::ALL_TABLES;
use super::pipeline::Pipeline;
use super::rule::RuleRef;
use super::translate::{Trace, Translated};
use super::{Field, Flow, Match, text};

/// Maximum number of lines of a trace report.
const LINES: usize = 1_000;
/// Maximum number of rules that a report examines to find a rule that the packet does not match but that caused mask
/// bits of the megaflow.
const LOOKED_AT: usize = 65_536;

/// One line of a trace report. Lines are in the order of events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TraceLine {
    /// A flow entry matched the packet.
    Rule {
        /// Depth of nested resubmits at which the flow entry was executed.
        depth: u32,
        /// Table of the flow entry.
        table: u8,
        /// Priority of the flow entry.
        priority: u16,
        /// Cookie of the flow entry.
        cookie: u64,
        /// Match of the flow entry in `ovs-ofctl`'s syntax. The text is empty if the flow entry
        /// matches all packets.
        matching: String,
        /// Instructions of the flow entry in `ovs-ofctl`'s syntax.
        actions: String,
    },
    /// No flow entry of the table matched the packet.
    Miss {
        /// Depth of nested resubmits at which the table was looked up.
        depth: u32,
        /// Number of the table that was looked up.
        table: u8,
    },
    /// An action was executed.
    Did {
        /// Depth of nested resubmits at which the action was executed.
        depth: u32,
        /// Executed action in `ovs-ofctl`'s syntax.
        action: String,
    },
    /// A remark: the reason why an action was not executed, or was executed differently.
    Note {
        /// Depth of nested resubmits at which the event occurred.
        depth: u32,
        /// Text of the remark.
        words: &'static str,
    },
    /// The result of an instruction.
    Detail {
        /// Depth of nested resubmits at which the instruction was executed.
        depth: u32,
        /// Text that describes the result.
        words: String,
    },
    /// A bucket of a group was executed.
    Bucket {
        /// Depth of nested resubmits and groups at which the bucket's actions are executed.
        depth: u32,
        /// Index of the bucket in its group, from 0.
        place: usize,
    },
    /// The action set is executed.
    ActionSet {
        /// Depth of nested resubmits at which the action set is executed.
        depth: u32,
    },
    /// Number of trace events that the report omits.
    More(usize),
}

/// Bits of the megaflow's mask, with the reason why the result of the translation depends on the
/// bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bits {
    /// Match fields that contain the bits, in `ovs-ofctl`'s syntax with masks.
    pub fields: String,
    /// Table, flow entry or action that depends on the bits.
    pub because: String,
}

/// A trace report. See the module documentation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TraceReport {
    /// Lines of the report, in order of events.
    pub lines: Vec<TraceLine>,
    /// Match fields of the packet after all actions, if the fields differ from the fields on
    /// arrival.
    pub changed: Option<String>,
    /// Match of the megaflow in `ovs-ofctl`'s syntax.
    pub megaflow: String,
    /// Reasons for the bits of the megaflow's mask. The mask always includes the ingress port.
    pub why: Vec<Bits>,
    /// Whether the translation applies only to this packet and is not cached. If so, every such packet is translated
    /// separately on the slow path.
    pub is_own: bool,
}

impl Pipeline {
    /// Returns the trace report of a packet whose translation `translated` recorded a trace. `arrived` is the flow
    /// of the packet on arrival. The tables must not have changed since the translation.
    #[must_use]
    pub fn trace_report(&self, arrived: &Flow, translated: &Translated) -> TraceReport {
        let mut trace_report = TraceReport { is_own: !translated.is_cacheable(), ..TraceReport::default() };
        let mut mask = translated.mask;
        mask.want(Field::InPort);
        trace_report.megaflow = text::part(arrived, &mask);
        let (mut left, mut unrecorded) = (LOOKED_AT, translated.unrecorded);
        for step in &translated.trace {
            let line = match step {
                Trace::Lookup { depth, table, rule, bits } => {
                    self.why(arrived, *table, *rule, bits, &mut left, &mut trace_report.why);
                    match rule.and_then(|at| self.rule(at)) {
                        Some(rule) => TraceLine::Rule {
                            depth: *depth,
                            table: *table,
                            priority: rule.priority,
                            cookie: rule.cookie,
                            matching: text::matching(&rule.matching, None),
                            actions: text::instructions(&rule.instructions),
                        },
                        None => TraceLine::Miss { depth: *depth, table: *table },
                    }
                }
                Trace::Did { depth, action } => {
                    TraceLine::Did { depth: *depth, action: text::action(action) }
                }
                Trace::Note(depth, words) => TraceLine::Note { depth: *depth, words },
                Trace::Bucket(depth, place) => TraceLine::Bucket { depth: *depth, place: *place },
                Trace::ActionSet(depth) => TraceLine::ActionSet { depth: *depth },
                Trace::Instruction(depth, action, then) => {
                    let depth = *depth;
                    if let Some(words) = then
                        && trace_report.lines.len() + 1 < LINES
                    {
                        trace_report.lines.push(TraceLine::Did { depth, action: action.clone() });
                        TraceLine::Detail { depth, words: words.clone() }
                    } else {
                        TraceLine::Did { depth, action: action.clone() }
                    }
                }
                Trace::End(flow) => {
                    trace_report.changed = (**flow != *arrived).then(|| text::whole(flow));
                    continue;
                }
                Trace::Needs { table, action, bits } => {
                    let because = format!("table {table}: action {}", text::action(action));
                    trace_report.why.push(Bits { fields: text::part(arrived, bits), because });
                    continue;
                }
            };
            if trace_report.lines.len() < LINES {
                trace_report.lines.push(line);
            } else {
                unrecorded += 1;
            }
        }
        if unrecorded > 0 {
            trace_report.lines.push(TraceLine::More(unrecorded));
        }
        trace_report
    }

    /// Appends the reasons for the bits that a lookup added to the mask. Some of these bits are in the mask of the rule
    /// that matched. The other bits show that the packet does not match other rules.
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
