//! How many rules go by each group and each meter, so that one which no rule goes by can be removed without a look at all rules.

use std::collections::HashMap;

use super::rule::Rule;

/// See the [module](self).
#[derive(Clone, Default, Debug)]
pub(crate) struct Uses {
    groups: HashMap<u32, u32>,
    meters: HashMap<u32, u32>,
    named: Vec<u32>,
}

impl Uses {
    /// A rule has come.
    pub fn linked(&mut self, rule: &Rule) {
        self.each(rule, |uses, id| *uses.entry(id).or_default() += 1);
    }

    /// A rule has gone, or is another one from now on.
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

    /// Whether any rule goes by a group.
    pub fn has_group(&self, id: u32) -> bool {
        self.groups.contains_key(&id)
    }

    /// Whether any rule goes by a meter.
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
