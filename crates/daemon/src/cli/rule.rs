//! The grammar of a filter's rule: `trivium xdp filter add` and `remove`.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use super::seconds;

/// Longest time after which a rule may end: a hundred years.
const EXPIRY_LIMIT_S: u64 = 36_525 * 86_400;

/// `trivium xdp filter add`
#[derive(Clone, Debug, Args)]
pub struct RuleAdd {
    /// The filter, one of the API's; it is made where there is none of this name
    pub filter: String,
    /// The rule
    #[command(flatten)]
    pub rule: RuleFields,
    /// Ask it before all others
    #[arg(long, conflicts_with = "priority")]
    pub first: bool,
    /// Ask it right before this rule, with its priority
    #[arg(long, value_name = "RULE", conflicts_with_all = ["first", "priority"])]
    pub before: Option<model::RuleName>,
    /// Ask it right after this rule, with its priority; without a place it is asked after those of its priority
    #[arg(long, value_name = "RULE", conflicts_with_all = ["first", "before", "priority"])]
    pub after: Option<model::RuleName>,
    /// Keep the filter over restarts of the daemon; absent: as it was, a new one is gone then
    #[arg(long)]
    pub persist: bool,
}

/// `trivium xdp filter remove`
#[derive(Clone, Debug, Args)]
pub struct RuleRemove {
    /// The filter, one of the API's; it stays, also without rules
    pub filter: String,
    /// The rule
    pub rule: model::RuleName,
}

/// The fields of `[[filter.NAME.rule]]`, of the same names. Lists are separated by commas. What they hold the daemon checks, as in
/// a file.
#[derive(Clone, Debug, Args, Serialize)]
pub struct RuleFields {
    /// Its name: counters belong to it
    #[arg(long)]
    pub name: String,
    /// drop, pass, count, sample, limit or syncookie
    #[arg(long)]
    pub action: String,
    /// Higher is asked first; 0 if absent
    #[arg(long, value_name = "N")]
    pub priority: Option<u64>,
    /// Count what it would do, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// From so many seconds on ("60" or "60s") it matches nothing
    #[arg(long, value_name = "SECONDS", value_parser = from_now)]
    pub expires: Option<model::Timestamp>,
    /// ipv4, ipv6, other or malformed
    #[arg(long, value_delimiter = ',')]
    pub family: Vec<String>,
    /// whole, first, later or unreadable (what rules ask for cannot be reached)
    #[arg(long, value_delimiter = ',')]
    pub fragment: Vec<String>,
    /// Words such as tcp, or numbers
    #[arg(long, value_delimiter = ',', value_parser = value)]
    pub protocol: Vec<Value>,
    /// Source addresses or prefixes
    #[arg(long, value_delimiter = ',', value_name = "PREFIX")]
    pub source: Vec<String>,
    /// Destination addresses or prefixes
    #[arg(long, value_delimiter = ',', value_name = "PREFIX")]
    pub destination: Vec<String>,
    /// Source ports, or ranges such as 1900-1999
    #[arg(long, value_delimiter = ',', value_name = "PORT", value_parser = value)]
    pub source_port: Vec<Value>,
    /// Destination ports, or ranges
    #[arg(long, value_delimiter = ',', value_name = "PORT", value_parser = value)]
    pub destination_port: Vec<Value>,
    /// Bytes of the frame without its check sequence, or ranges
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = value)]
    pub length: Vec<Value>,
    /// Ids of the outermost tag but those with the id 0, ranges, or untagged
    #[arg(long, value_delimiter = ',', value_parser = value)]
    pub vlan: Vec<Value>,
    /// TCP flags that are set, or, behind `!`, are not
    #[arg(long, value_delimiter = ',', value_name = "FLAG")]
    pub tcp_flags: Vec<String>,
    /// Bytes at a place, such as `at=payload,offset=0,bytes=16030100,mask=ffffff00`; may be given several times
    #[arg(long, value_parser = table)]
    pub pattern: Vec<Value>,
    /// The source is in the block list
    #[arg(long)]
    pub listed: bool,
    /// With sample: one in so many
    #[arg(long, value_name = "N")]
    pub one_in: Option<u64>,
    /// With limit: so many packets or bytes
    #[arg(long, value_name = "N")]
    pub rate: Option<u64>,
    /// With limit: packets or bytes
    #[arg(long)]
    pub unit: Option<String>,
    /// With limit: in so many seconds, 1 if absent
    #[arg(long, value_name = "SECONDS")]
    pub per: Option<u64>,
    /// With limit: so many at once
    #[arg(long, value_name = "N")]
    pub burst: Option<u64>,
    /// With limit: a bucket for each source prefix of these lengths, such as `ipv4=32,ipv6=64`
    #[arg(long, value_name = "BITS", value_parser = table)]
    pub per_source: Option<Value>,
    /// With syncookie: retry or cookie
    #[arg(long)]
    pub scheme: Option<String>,
    /// With syncookie: auto or always
    #[arg(long)]
    pub mode: Option<String>,
    /// With syncookie: answer while more SYNs come in a second
    #[arg(long, value_name = "N")]
    pub above: Option<u64>,
    /// With syncookie: time to live of answers
    #[arg(long)]
    pub ttl: Option<u64>,
    /// With syncookie: the service's longest segment
    #[arg(long)]
    pub mss: Option<u64>,
    /// With syncookie: the service's window scale
    #[arg(long)]
    pub wscale: Option<u64>,
    /// With syncookie: seconds for which a client is not asked again
    #[arg(long, value_name = "SECONDS")]
    pub remember: Option<u64>,
}

impl RuleFields {
    /// Those that were given, as the API takes a rule.
    pub fn given(&self) -> Value {
        let mut fields = serde_json::to_value(self).unwrap_or_default();
        if let Value::Object(fields) = &mut fields {
            let absent = |value: &Value| match value {
                Value::Null | Value::Bool(false) => true,
                Value::Array(items) => items.is_empty(),
                _ => false,
            };
            fields.retain(|_, value| !absent(value));
        }
        fields
    }
}

/// A number, or else a text.
fn value(text: &str) -> Result<Value, String> {
    Ok(text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from))
}

/// `KEY=VALUE,...` as a table; bytes are hexadecimal digits, whatever they look like.
fn table(text: &str) -> Result<Value, String> {
    let mut table = Map::new();
    for field in text.split(',') {
        let Some((key, text)) = field.split_once('=') else {
            return Err(format!("'{field}' is no KEY=VALUE"));
        };
        let value = if matches!(key, "bytes" | "mask") { Value::from(text) } else { value(text)? };
        if table.insert(key.to_owned(), value).is_some() {
            return Err(format!("'{key}' stands here twice"));
        }
    }
    Ok(Value::Object(table))
}

fn from_now(text: &str) -> Result<model::Timestamp, String> {
    let seconds = seconds(text)?;
    if seconds > EXPIRY_LIMIT_S {
        return Err(format!("'{text}' is more than a hundred years; leave it out for a rule that stays"));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(model::Timestamp(now.as_secs() + seconds))
}
