//! Conversion of the conditions of a kernel policy rule to a selector of the router ([`Selector`]).

use router::Selector;

use crate::rtnetlink::rule::FIB_RULE_INVERT;
use crate::state::Rule;

/// Returns a selector for the packets to which a rule applies. If the rule is inverted, these are the packets that do
/// not fulfil the conditions of the rule. Returns `None` if there are no such packets.
pub(super) fn selector(rule: &Rule, interface: &impl Fn(&str) -> Option<u16>) -> Option<Selector> {
    match selected(rule, interface) {
        Some(selector) if rule.flags & FIB_RULE_INVERT != 0 => Some(selector.invert()),
        None if rule.flags & FIB_RULE_INVERT != 0 => Some(Selector::ALL),
        selector => selector,
    }
}

/// Returns a selector for the packets that fulfil the conditions of a rule. Returns `None` if no packet that the router
/// forwards can fulfil the conditions.
pub(super) fn selected(rule: &Rule, interface: &impl Fn(&str) -> Option<u16>) -> Option<Selector> {
    // When the kernel evaluates the rules, packets have no output device and no mark yet.
    if rule.output.is_some() || rule.mark.is_some_and(|(mark, mask)| mark & mask != 0) {
        return None;
    }
    let mut selector = Selector::ALL.tos(rule.tos);
    if let Some(name) = &rule.input {
        selector = selector.interface(interface(name)?);
    }
    if let Some(source) = rule.source {
        selector = selector.from(source.address, source.length);
    }
    if let Some(destination) = rule.destination {
        selector = selector.to(destination.address, destination.length);
    }
    Some(selector)
}
