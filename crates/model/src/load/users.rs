//! Reads lists of local users, each by name or number.

use super::fields::{Fields, Findings};
use super::tree::Value;
use crate::Cause;

/// Maximum number of users in a list of local users.
const USERS_LIMIT: usize = 16;

/// Reads the list of users in the value of a key. Returns `None` if the key is absent.
pub(crate) fn read_users(
    fields: &mut Fields<'_>,
    key: &'static str,
    findings: &mut Findings,
) -> Option<Vec<String>> {
    let items = fields.items(key, findings)?;
    fields.limit(key, "users", items.len(), USERS_LIMIT, findings);
    let mut users = Vec::new();
    for (object, node) in items {
        match &node.value {
            Value::Text(text) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) => {
                users.push(text.clone());
            }
            Value::Text(text) => {
                let (text, what) = (text.clone(), "a user's name or number");
                findings.add(node.place, object, Cause::BadText { text, what, example: "\"frr\"" });
            }
            other => {
                let cause = Cause::WrongType { expected: "a text in quotes", found: other.found() };
                findings.add(node.place, object, cause);
            }
        }
    }
    Some(users)
}
