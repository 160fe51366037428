//! Reference counts of groups and meters. An unused group or meter is therefore removed without a scan over
//! all rules.

use std::collections::HashMap;

use super::rule::Rule;

/// Reference counts of the groups and meters that rules use. See the [module](self).
#[derive(Clone, Default, Debug)]
pub(crate) struct Uses {
    groups: HashMap<u32, u32>,
    meters: HashMap<u32, u32>,
    named: Vec<u32>,
}

impl Uses {
    /// Counts the groups and meters that a rule uses, after the rule was added.
    pub fn linked(&mut self, rule: &Rule) {
        self.each(rule, |uses, id| *uses.entry(id).or_default() += 1);
    }

    /// Removes the groups and meters of a rule from the counts. The rule was removed or is about to change.
    pub fn unlinked(&mut self, rule: &Rule) {
        self.each(rule, |uses, id| {
            if let Some(count) = uses.get_mut(&id) {
                *count -= 1;
                if *count == 0 {
                    uses.remove(&id);
                }
            }
        });
    }

    /// Returns whether any rule uses a group.
    pub fn has_group(&self, id: u32) -> bool {
        self.groups.contains_key(&id)
    }

    /// Returns whether any rule uses a meter.
    pub fn has_meter(&self, id: u32) -> bool {
        self.meters.contains_key(&id)
    }

    fn each(&mut self, rule: &Rule, change: impl Fn(&mut HashMap<u32, u32>, u32)) {
        rule.instructions.groups(&mut self.named);
        self.named.drain(..).for_each(|id| change(&mut self.groups, id));
        rule.instructions.meters(&mut self.named);
        self.named.drain(..).for_each(|id| change(&mut self.meters, id));
    }
}
