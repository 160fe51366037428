//! Text of `explain` about the flow entries that a packet matches, and about the packet fields on which the
//! packet's megaflow depends.

use engine::Explained;
use model::Step as Told;
use packet::record::Step;
use switch::flow::{TraceLine, TraceReport};

/// Returns whether a trace report contains a lookup in a flow table. The trace report of a bridge in standalone mode
/// contains no lookup, and no step of the packet names a flow entry of this bridge.
fn asks_tables(trace_report: &TraceReport) -> bool {
    trace_report.lines.iter().any(|line| matches!(line, TraceLine::Rule { .. } | TraceLine::Miss { .. }))
}

/// Replaces each sequence of a packet's steps that only name flow entries with the trace report of these lookups. For a
/// bridge in standalone mode, the trace report is inserted before the first step of the bridge. `steps` contains the
/// texts of the steps in `explained`, in the same order.
pub fn tell(steps: Vec<Told>, explained: &Explained) -> Vec<Told> {
    let (asking, alone): (Vec<&TraceReport>, Vec<&TraceReport>) =
        explained.trace_reports.iter().partition(|trace_report| asks_tables(trace_report));
    let (mut trace_reports, mut alone) = (asking.into_iter(), alone.into_iter());
    let mut told = Vec::with_capacity(steps.len());
    let mut in_row = false;
    for (own, step) in explained.steps.iter().zip(steps) {
        let is_rule = matches!(own, Step::Rule { .. } | Step::NoRule { .. });
        let begins = is_rule && !in_row;
        in_row = is_rule;
        if matches!(own, Step::Bridge(_)) {
            alone.by_ref().for_each(|trace_report| told.extend(lines(trace_report)));
        }
        match (is_rule, begins.then(|| trace_reports.next()).flatten()) {
            (true, Some(trace_report)) => told.extend(lines(trace_report)),
            (true, None) if !explained.trace_reports.is_empty() => {}
            _ => told.push(step),
        }
    }
    told
}

fn lines(trace_report: &TraceReport) -> impl Iterator<Item = Told> {
    let step = |stage: &str, what: String| Told { stage: stage.to_owned(), what };
    let rules = trace_report.lines.iter().map(move |line| step("table", sentence(line)));
    let cached = if trace_report.is_own {
        "not cached: each such packet goes to the slow path; it depends on ".to_owned()
    } else {
        String::new()
    };
    let megaflow = step("megaflow", cached + &trace_report.megaflow);
    let why = trace_report
        .why
        .iter()
        .map(move |bits| step("because", format!("{}: {}", bits.fields, bits.because)));
    rules.chain([megaflow]).chain(why)
}

fn sentence(line: &TraceLine) -> String {
    let margin = |depth: u32| "  ".repeat(usize::try_from(depth).unwrap_or_default());
    match line {
        TraceLine::Rule { depth, table, priority, cookie, matching, actions } => {
            let space = if matching.is_empty() { "" } else { " " };
            format!(
                "{}table {table}: the rule of priority {priority} (cookie {cookie:#x}) matches:{space}{matching} actions={actions}",
                margin(*depth)
            )
        }
        TraceLine::Miss { depth, table } => format!("{}table {table}: no rule matches", margin(*depth)),
        TraceLine::Did { depth, action } => format!("{}  {action}", margin(*depth)),
        TraceLine::Note { depth, words } => format!("{}  {words}", margin(*depth)),
        TraceLine::Detail { depth, words } => format!("{}  {words}", margin(*depth)),
        TraceLine::Bucket { depth, place } => format!("{}bucket {place}", margin(*depth)),
        TraceLine::ActionSet { depth } => format!("{}the action set is done", margin(*depth)),
        TraceLine::More(more) => format!("and {more} more of the like"),
    }
}
