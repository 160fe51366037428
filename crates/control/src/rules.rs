//! Changes of single rules in filters that API clients have created (filters that the API owns).
//!
//! The filter is read, changed, checked and replaced as a whole. No other configuration change is made
//! meanwhile. Concurrent clients therefore do not undo each other's changes.

use std::sync::Arc;

use model::{Change, Filter, FilterName, Layers, ObjectKey, Owner, Refusal, RuleName, load_change};
use serde_json::{Value, json};

use crate::{ApplyOptions, ChangeError, Outcome, Store};

/// Position at which a new filter rule is inserted into its filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RulePlace {
    /// After all rules that have the priority of the new rule.
    Last,
    /// In front of all rules, with the highest priority of the existing rules.
    First,
    /// Directly in front of the named rule, with the priority of that rule.
    Before(RuleName),
    /// Directly after the named rule, with the priority of that rule.
    After(RuleName),
}

impl Store {
    /// Adds a rule to a filter that the API owns, and creates the filter if it does not exist. `rule` has the
    /// fields that a rule has in the configuration file. `persist` sets whether the filter persists across
    /// restarts. `None` keeps the filter's setting.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Store::change`]. Also returns an error if the rule that `place` names does not
    /// exist, or if the filter is invalid with the new rule.
    pub async fn add_rule(
        self: &Arc<Self>,
        filter: FilterName,
        rule: Value,
        place: RulePlace,
        persist: Option<bool>,
        options: ApplyOptions,
    ) -> Result<Outcome, ChangeError> {
        let change = move |layers: &Layers| with_rule(layers, &filter, rule, &place);
        self.change_by(Owner::Api, persist, options, change).await
    }

    /// Removes a rule from a filter that the API owns. The filter is kept, even if it has no rules left.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Store::change`]. Also returns an error if the filter does not contain the
    /// rule.
    pub async fn remove_rule(
        self: &Arc<Self>,
        filter: FilterName,
        rule: RuleName,
        persist: Option<bool>,
        options: ApplyOptions,
    ) -> Result<Outcome, ChangeError> {
        let change = move |layers: &Layers| without_rule(layers, filter, &rule);
        self.change_by(Owner::Api, persist, options, change).await
    }
}

fn with_rule(
    layers: &Layers,
    filter: &FilterName,
    mut rule: Value,
    place: &RulePlace,
) -> Result<Change, ChangeError> {
    let object = ObjectKey::Filter(filter.clone());
    let before = of_api(layers, filter)?.cloned().unwrap_or_default();
    let beside = |name: &RuleName| {
        let at = position(&before, filter, name)?;
        Ok::<_, ChangeError>((at, before.rules.get(at).map(|rule| rule.priority)))
    };
    let (at, priority) = match place {
        RulePlace::Last => (before.rules.len(), None),
        RulePlace::First => (0, before.rules.iter().map(|rule| rule.priority).max()),
        RulePlace::Before(name) => beside(name)?,
        RulePlace::After(name) => beside(name).map(|(at, priority)| (at + 1, priority))?,
    };
    if let (Some(priority), Value::Object(fields)) = (priority, &mut rule) {
        fields.insert("priority".to_owned(), priority.into());
    }
    // The result is checked like a filter in a PUT request: by one reader, with equal messages.
    let mut whole = serde_json::to_value(&before).unwrap_or_default();
    match &mut whole["rule"] {
        Value::Array(rules) => rules.insert(at, rule),
        none => *none = json!([rule]),
    }
    load_change(&object, &whole.to_string()).map_err(ChangeError::Problems)
}

fn without_rule(layers: &Layers, filter: FilterName, rule: &RuleName) -> Result<Change, ChangeError> {
    let Some(mut after) = of_api(layers, &filter)?.cloned() else {
        return Err(refused(Refusal::Unknown { object: ObjectKey::Filter(filter) }));
    };
    let at = position(&after, &filter, rule)?;
    after.rules.remove(at);
    Ok(Change::PutFilter(filter, after))
}

/// Returns the filter with this name that the API owns. Returns `None` if there is no filter of this name, and an error
/// if the filter belongs to another owner.
fn of_api<'l>(layers: &'l Layers, filter: &FilterName) -> Result<Option<&'l Filter>, ChangeError> {
    let object = ObjectKey::Filter(filter.clone());
    match layers.owner_of(&object) {
        Some(owner) if owner != Owner::Api => {
            Err(refused(Refusal::Owned { object, owner, wanted: Owner::Api }))
        }
        _ => Ok(layers.fragments.get(&Owner::Api).and_then(|api| api.filters.get(filter))),
    }
}

fn position(of: &Filter, filter: &FilterName, rule: &RuleName) -> Result<usize, ChangeError> {
    let at = of.rules.iter().position(|other| other.name == *rule);
    at.ok_or_else(|| {
        refused(Refusal::NoRule { object: ObjectKey::Filter(filter.clone()), rule: rule.clone() })
    })
}

fn refused(refusal: Refusal) -> ChangeError {
    ChangeError::Refused(vec![refusal])
}
