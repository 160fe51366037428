//! Reference counts of groups, meters and tunnel option fields. The counts show, without a scan
//! over all rules, whether a group, meter or field is in use.

use std::collections::HashMap;

use super::field::TUN_METADATA;
use super::option_fields::OptionFields;
use super::rule::Rule;

/// Numbers of rules that use each group, meter and tunnel option field. See the [module](self).
#[derive(Clone, Default, Debug)]
pub(crate) struct Uses {
    groups: HashMap<u32, u32>,
    meters: HashMap<u32, u32>,
    options: [u32; TUN_METADATA as usize],
    named: Vec<u32>,
}

impl Uses {
    /// Counts a new rule for the groups, meters and tunnel option fields that it uses.
    pub fn linked(&mut self, rule: &Rule) {
        options_of(rule).numbers().for_each(|number| self.options[number] += 1);
        self.each(rule, |uses, id| *uses.entry(id).or_default() += 1);
    }

    /// Subtracts a rule from the counts of the groups, meters and tunnel option fields that it uses. The rule was
    /// removed or is about to change.
    pub fn unlinked(&mut self, rule: &Rule) {
        options_of(rule).numbers().for_each(|number| self.options[number] -= 1);
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

    /// Returns the tunnel option fields that any rule uses.
    pub fn options(&self) -> OptionFields {
        let used = self.options.iter().enumerate().filter(|(_, count)| **count != 0);
        used.fold(OptionFields::default(), |set, (number, _)| set.with_number(number))
    }

    fn each(&mut self, rule: &Rule, change: impl Fn(&mut HashMap<u32, u32>, u32)) {
        rule.instructions.groups(&mut self.named);
        self.named.drain(..).for_each(|id| change(&mut self.groups, id));
        rule.instructions.meters(&mut self.named);
        self.named.drain(..).for_each(|id| change(&mut self.meters, id));
    }
}

fn options_of(rule: &Rule) -> OptionFields {
    OptionFields::of_rule(&rule.matching, &rule.instructions)
}
