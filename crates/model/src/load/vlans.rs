//! Reads sets of VLANs: identifiers, ranges of identifiers, or all.

use packet::VlanId;

use super::fields::{Fields, Findings, vlan_in};
use super::tree::Value;
use crate::VlanSet;
use crate::cause::Cause;
use crate::vlan::RawRange;

/// Maximum number of VLANs and ranges in a set.
const LIMIT: usize = 4094;

/// Reads a set of VLANs from the value of a key. An empty set is reported as a problem that suggests `example`.
pub(crate) fn read_set(
    fields: &mut Fields<'_>,
    key: &'static str,
    example: &'static str,
    findings: &mut Findings,
) -> Option<VlanSet> {
    let mut set = VlanSet::new();
    let items = fields.items(key, findings)?;
    if items.is_empty() {
        findings.add(fields.place_of(key), fields.path(key), Cause::Missing { key: "a VLAN", example });
    }
    fields.limit(key, "VLANs and ranges", items.len(), LIMIT, findings);
    for (object, item) in items.into_iter().take(LIMIT) {
        match &item.value {
            Value::Text(text) if text == "all" => set.insert(VlanId::MIN, VlanId::MAX),
            Value::Text(text) => match read_range(text) {
                Ok((from, to)) => set.insert(from, to),
                Err(cause) => findings.add(item.place, object, cause),
            },
            Value::Integer(_) => {
                if let Some(vlan) = vlan_in(&object, item, findings) {
                    set.insert(vlan, vlan);
                }
            }
            other => {
                let expected = "a VLAN or a range of VLANs";
                findings.add(item.place, object, Cause::WrongType { expected, found: other.found() });
            }
        }
    }
    Some(set)
}

fn read_range(text: &str) -> Result<(VlanId, VlanId), Cause> {
    let RawRange(from, to) = text.parse().map_err(|()| Cause::BadVlanRange { text: text.to_owned() })?;
    let vlan = |value: i64| {
        let (min, max) = (VlanId::MIN.get().into(), VlanId::MAX.get().into());
        let vlan = u16::try_from(value).ok().and_then(VlanId::new);
        vlan.ok_or(Cause::OutOfRange { value, min, max, unit: "" })
    };
    let range = (vlan(from)?, vlan(to)?);
    if from > to { Err(Cause::ReversedRange { from, to }) } else { Ok(range) }
}
