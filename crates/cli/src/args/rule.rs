//! Grammar of filter rules: `trivium xdp filter add` and `remove`.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use super::seconds;

/// Maximum lifetime of a filter rule in seconds, as given by `--expires` (100 years).
const EXPIRY_LIMIT_S: u64 = 36_525 * 86_400;

/// Arguments of `trivium xdp filter add`.
#[derive(Clone, Debug, Args)]
pub struct RuleAdd {
    /// Name of a filter that the API owns. A filter that does not exist is created
    pub filter: String,
    /// Rule to add
    #[command(flatten)]
    pub rule: RuleFields,
    /// Place the rule before all others
    #[arg(long, conflicts_with = "priority")]
    pub first: bool,
    /// Place the rule right before this rule, with the priority of that rule
    #[arg(long, value_name = "RULE", conflicts_with_all = ["first", "priority"])]
    pub before: Option<model::RuleName>,
    /// Place the rule right after this rule, with the priority of that rule. By default a rule follows all
    /// rules of its priority
    #[arg(long, value_name = "RULE", conflicts_with_all = ["first", "before", "priority"])]
    pub after: Option<model::RuleName>,
    /// Keep the filter after a restart of the daemon. If absent, an existing filter keeps its setting and a
    /// new filter does not persist
    #[arg(long)]
    pub persist: bool,
}

/// Arguments of `trivium xdp filter remove`.
#[derive(Clone, Debug, Args)]
pub struct RuleRemove {
    /// Name of a filter that the API owns. The filter remains, even without rules
    pub filter: String,
    /// Name of the rule
    pub rule: model::RuleName,
}

/// Fields of a filter rule, named as in `[[filter.NAME.rule]]` of the configuration. Lists are separated by
/// commas. The daemon checks the values as it checks the values of a file.
#[derive(Clone, Debug, Args, Serialize)]
pub struct RuleFields {
    /// Name of the rule. Counters belong to the name
    #[arg(long)]
    pub name: String,
    /// Action: drop, pass, count, sample, limit or syncookie
    #[arg(long)]
    pub action: String,
    /// Priority. Rules with a higher number match first. 0 if absent
    #[arg(long, value_name = "N")]
    pub priority: Option<u64>,
    /// Count matching packets, and do not execute the action
    #[arg(long)]
    pub dry_run: bool,
    /// Time after which the rule expires and matches nothing ("60" or "60s")
    #[arg(long, value_name = "SECONDS", value_parser = from_now)]
    pub expires: Option<model::Timestamp>,
    /// Family: ipv4, ipv6, other or malformed
    #[arg(long, value_delimiter = ',')]
    pub family: Vec<String>,
    /// Fragment: whole, first, later or unreadable (headers that rules match cannot be reached)
    #[arg(long, value_delimiter = ',')]
    pub fragment: Vec<String>,
    /// IP protocols: words such as tcp, or numbers
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
    /// Destination ports, or ranges such as 1024-65535
    #[arg(long, value_delimiter = ',', value_name = "PORT", value_parser = value)]
    pub destination_port: Vec<Value>,
    /// Lengths of the frame in bytes without the check sequence, or ranges
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = value)]
    pub length: Vec<Value>,
    /// VLAN ids of the outermost tag with a non-zero id, ranges, or untagged
    #[arg(long, value_delimiter = ',', value_parser = value)]
    pub vlan: Vec<Value>,
    /// TCP flags that are set, or with `!` are not set
    #[arg(long, value_delimiter = ',', value_name = "FLAG")]
    pub tcp_flags: Vec<String>,
    /// Bytes at a position, such as `at=payload,offset=0,bytes=16030100,mask=ffffff00`. May be given several
    /// times
    #[arg(long, value_parser = table)]
    pub pattern: Vec<Value>,
    /// Match sources in the block list
    #[arg(long)]
    pub listed: bool,
    /// With sample: sample one of every N packets
    #[arg(long, value_name = "N")]
    pub one_in: Option<u64>,
    /// With limit: number of packets or bytes in each period
    #[arg(long, value_name = "N")]
    pub rate: Option<u64>,
    /// With limit: unit of the rate, packets or bytes
    #[arg(long)]
    pub unit: Option<String>,
    /// With limit: length of the period in seconds. 1 if absent
    #[arg(long, value_name = "SECONDS")]
    pub per: Option<u64>,
    /// With limit: largest burst, in packets or bytes
    #[arg(long, value_name = "N")]
    pub burst: Option<u64>,
    /// With limit: one bucket for each source prefix of these lengths, such as `ipv4=32,ipv6=64`
    #[arg(long, value_name = "BITS", value_parser = table)]
    pub per_source: Option<Value>,
    /// With syncookie: scheme, retry or cookie
    #[arg(long)]
    pub scheme: Option<String>,
    /// With syncookie: mode, auto or always
    #[arg(long)]
    pub mode: Option<String>,
    /// With syncookie: number of SYNs per second above which SYNs are answered
    #[arg(long, value_name = "N")]
    pub above: Option<u64>,
    /// With syncookie: time to live (hop limit) of answers
    #[arg(long)]
    pub ttl: Option<u64>,
    /// With syncookie: maximum segment size (MSS) of the service
    #[arg(long)]
    pub mss: Option<u64>,
    /// With syncookie: window scale of the service
    #[arg(long)]
    pub wscale: Option<u64>,
    /// With syncookie: seconds for which a verified client is not challenged again
    #[arg(long, value_name = "SECONDS")]
    pub remember: Option<u64>,
}

impl RuleFields {
    /// Returns the fields of the rule that the command line sets, as a JSON object of the API.
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

/// Converts an option's value to JSON: a number becomes a JSON number, any other text a JSON string.
fn value(text: &str) -> Result<Value, String> {
    Ok(text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from))
}

/// Parses the value of an option with several keys, `KEY=VALUE,...`, into a JSON object. `bytes` and `mask` are
/// hexadecimal digits and always stay strings.
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
