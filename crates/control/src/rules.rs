//! Rules of the API's filters, one at a time.
//!
//! The filter is read, changed, checked and put as a whole while no other change is made: of two clients neither undoes
//! what the other has done.

use std::sync::Arc;

use model::{Change, Filter, FilterName, Layers, ObjectKey, Owner, Refusal, RuleName, load_change};
use serde_json::{Value, json};

use crate::{ChangeError, Outcome, Store, Terms};

/// Where a rule is put among those that its filter has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RulePlace {
    /// Behind those of its priority.
    Last,
    /// In front of all, with the highest priority that one of them has.
    First,
    /// Right in front of this one, with its priority.
    Before(RuleName),
    /// Right behind this one, with its priority.
    After(RuleName),
}

impl Store {
    /// Puts one more rule (its fields as in the file) into a filter of the API, and makes the filter where there is none.
    /// `persist` says whether the filter survives a restart; `None`: as it was.
    ///
    /// # Errors
    ///
    /// As [`Store::change`]; and if the rule that its place names is not there, or the filter is none with it.
    pub async fn add_rule(
        self: &Arc<Self>,
        filter: FilterName,
        rule: Value,
        place: RulePlace,
        persist: Option<bool>,
        terms: Terms,
    ) -> Result<Outcome, ChangeError> {
        let change = move |layers: &Layers| with_rule(layers, &filter, rule, &place);
        self.change_by(Owner::Api, persist, terms, change).await
    }

    /// Takes a rule out of a filter of the API. The filter stays, also without rules.
    ///
    /// # Errors
    ///
    /// As [`Store::change`]; and if it has no such rule.
    pub async fn remove_rule(
        self: &Arc<Self>,
        filter: FilterName,
        rule: RuleName,
        persist: Option<bool>,
        terms: Terms,
    ) -> Result<Outcome, ChangeError> {
        let change = move |layers: &Layers| without_rule(layers, filter, &rule);
        self.change_by(Owner::Api, persist, terms, change).await
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
    // Checked as a filter that is put: by the same reader, with the same messages.
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

/// The filter, if the API has it; `None` where nobody has one of this name.
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
