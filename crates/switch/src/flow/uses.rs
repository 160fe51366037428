//! Reference counts of groups, meters and tunnel option fields. The counts show, without a scan
//! over all rules and groups, whether a group, meter or field is in use.

use std::collections::HashMap;

use super::field::TUN_METADATA;
use super::option_fields::OptionFields;
use super::rule::Rule;

/// Counts of the rules that use each group, meter and tunnel option field, and counts of the groups that use each
/// meter. See the [module](self).
#[derive(Clone, Default, Debug)]
pub(crate) struct Uses {
    groups: HashMap<u32, u32>,
    meters: HashMap<u32, u32>,
    /// Number of groups that use each meter in a bucket, by meter number.
    metered_groups: HashMap<u32, u32>,
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
        self.each(rule, subtract);
    }

    /// Counts a new group for the meters that its buckets use.
    pub fn group_linked(&mut self, meters: &[u32]) {
        meters.iter().for_each(|id| *self.metered_groups.entry(*id).or_default() += 1);
    }

    /// Subtracts a group from the counts of the meters that its buckets use. The group was removed or is about to
    /// change.
    pub fn group_unlinked(&mut self, meters: &[u32]) {
        meters.iter().for_each(|id| subtract(&mut self.metered_groups, *id));
    }

    /// Returns whether any rule uses a group.
    pub fn has_group(&self, id: u32) -> bool {
        self.groups.contains_key(&id)
    }

    /// Returns whether any rule uses a meter.
    pub fn has_meter(&self, id: u32) -> bool {
        self.meters.contains_key(&id)
    }

    /// Returns whether a bucket of any group uses the meter `id`, or any meter if `id` is `None`.
    pub fn has_metered_group(&self, id: Option<u32>) -> bool {
        id.map_or(!self.metered_groups.is_empty(), |id| self.metered_groups.contains_key(&id))
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

/// Subtracts one from the reference count of the object `id`. Removes the count if it becomes zero.
fn subtract(counts: &mut HashMap<u32, u32>, id: u32) {
    if let Some(count) = counts.get_mut(&id) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&id);
        }
    }
}

fn options_of(rule: &Rule) -> OptionFields {
    OptionFields::of_rule(&rule.matching, &rule.instructions)
}
