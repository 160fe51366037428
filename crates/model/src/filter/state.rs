//! State of filters as plain values: filters with their rules, and the requests that change a block list.
//!
//! The API sends these values in this form, and the command line reads them. Counters start when the object
//! is created, and only increase.

use serde::{Deserialize, Serialize};

use crate::table::{Listed, Table};
use crate::{Owner, Prefix};

/// State of a filter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FilterState {
    /// Name of the filter.
    pub name: String,
    /// Owner of the filter: the source that created it, such as `file` or `api`.
    pub owner: Owner,
    /// Names of the ports whose hooks (XDP programs) apply the filter.
    pub ports: Vec<String>,
    /// Path of the block list file of the filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocklist: Option<String>,
    /// Number of prefixes in the block list. Absent if no rule of the filter uses the block list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<u64>,
    /// Rules of the filter, in the order of their evaluation.
    pub rules: Vec<RuleState>,
}

impl Listed for FilterState {
    fn text(filters: &[FilterState]) -> String {
        if filters.is_empty() {
            return "there is no filter\n".to_owned();
        }
        let mut text = String::new();
        for filter in filters {
            let ports = if filter.ports.is_empty() { "no port".to_owned() } else { filter.ports.join(" ") };
            let listed =
                filter.listed.map_or_else(String::new, |listed| format!(", {listed} prefixes blocked"));
            text.push_str(&format!("{}: on {ports}{listed}, owner {}\n", filter.name, filter.owner));
            text.push_str(&RuleState::text(&filter.rules));
        }
        text
    }
}

/// State of a filter rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RuleState {
    /// Name of the rule.
    pub name: String,
    /// Priority of the rule. Rules with a higher priority are evaluated first.
    pub priority: u32,
    /// Action of the rule, as in the configuration file.
    pub action: String,
    /// Whether the rule only counts packets, without applying its action.
    pub dry_run: bool,
    /// Time at which the rule expires. Absent if it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Whether the rule has expired.
    #[serde(default)]
    pub expired: bool,
    /// Number of packets that matched the filter rule.
    pub packets: u64,
    /// Number of bytes in the packets that matched the rule.
    pub bytes: u64,
    /// Number of matching packets that the rule dropped, passed, sampled or answered, or that exceeded the rule's rate.
    /// For a dry-run rule, the number of packets that the action would have affected.
    pub acted_packets: u64,
    /// Number of bytes in the packets that `acted_packets` counts.
    pub acted_bytes: u64,
    /// SYN cookie counters. Absent if the action is not `syncookie`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookies: Option<CookieState>,
}

impl Listed for RuleState {
    fn text(rules: &[RuleState]) -> String {
        let rows = Table::of(rules)
            .text("  RULE", |rule| format!("  {}", rule.name))
            .number("PRIORITY", |rule| rule.priority.to_string())
            .text("ACTION", |rule| rule.action.clone())
            .count("PACKETS", |rule| rule.packets)
            .count("BYTES", |rule| rule.bytes)
            .count("ACTED", |rule| rule.acted_packets)
            .count("BYTES", |rule| rule.acted_bytes)
            .text("NOTE", RuleState::note)
            .render();
        rows + &cookies(rules)
    }
}

impl RuleState {
    /// Returns a text that states whether the rule only counts packets, and when the rule expires.
    /// The text is empty if the rule is not a dry run and does not expire.
    fn note(&self) -> String {
        let dry = if self.dry_run { "dry run" } else { "" };
        let expiry = match (&self.expires, self.expired) {
            (Some(time), true) => format!("expired {time}"),
            (Some(time), false) => format!("until {time}"),
            (None, _) => String::new(),
        };
        let note: Vec<&str> = [dry, &expiry].into_iter().filter(|note| !note.is_empty()).collect();
        note.join(", ")
    }
}

/// Formats the SYN cookie counters of the rules. The text is empty if no rule has such counters.
fn cookies(rules: &[RuleState]) -> String {
    let counted: Vec<(&str, CookieState)> =
        rules.iter().filter_map(|rule| Some((rule.name.as_str(), rule.cookies?))).collect();
    if counted.is_empty() {
        return String::new();
    }
    Table::of(&counted)
        .text("  SYN COOKIES", |(rule, _)| format!("  {rule}"))
        .count("ANSWERED", |(_, cookies)| cookies.answered)
        .count("VALID", |(_, cookies)| cookies.valid)
        .count("INVALID", |(_, cookies)| cookies.invalid)
        .count("REFUSED", |(_, cookies)| cookies.refused)
        .count("THROUGH", |(_, cookies)| cookies.through)
        .text("NOW", |(_, cookies)| if cookies.answering { "answering" } else { "calm" }.to_owned())
        .render()
}

/// SYN cookie counters of a rule, in packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CookieState {
    /// Number of SYNs that were answered with a cookie.
    pub answered: u64,
    /// Number of TCP segments with a valid cookie.
    pub valid: u64,
    /// Number of TCP segments with a missing or invalid cookie.
    pub invalid: u64,
    /// Number of SYNs that could not be answered with a cookie and were dropped.
    pub refused: u64,
    /// Number of SYNs that were passed to the protected service and not answered with a cookie. The
    /// number includes segments with a valid cookie that the hook turned into SYNs.
    pub through: u64,
    /// Whether the rule currently answers SYNs with cookies.
    pub answering: bool,
}

/// Request to add prefixes to the block list of a filter, or to remove prefixes from it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BlockRequest {
    /// Whether the request removes the prefixes instead of adding them.
    #[serde(default)]
    pub unblock: bool,
    /// Address prefixes to add to the block list or to remove from it.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub prefixes: Vec<Prefix>,
    /// Seconds after which the added prefixes are removed again. Absent: the prefixes are not removed automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
}

/// Result of a [`BlockRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Blocked {
    /// Number of prefixes that the request added or removed.
    pub changed: u64,
    /// Number of prefixes in the block list after the request.
    pub listed: u64,
}
