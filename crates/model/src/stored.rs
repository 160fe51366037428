//! Text form (JSON) of the objects of one owner, which the daemon saves across restarts.
//!
//! Each object is stored with the parts of its name as a list, because a name may contain dots. The fields of
//! the object are those of the configuration file. Reading performs the same checks as reading a
//! configuration file.

use packet::{MacAddr, VlanId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::load::load_change;
use crate::text;
use crate::{
    BridgeName, Change, FilterName, Fragment, ObjectKey, PortName, Problem, RouterName, StaticKey,
    SteeringName,
};

/// Reason why stored objects cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// The text is not a list of objects.
    #[error("the text is not a list of stored objects")]
    Json(#[from] serde_json::Error),
    /// The entry with this index does not identify an object, because its name parts belong to different types of
    /// objects.
    #[error("entry {0} names no object")]
    Nameless(usize),
    /// The checks reject an object. The value is the first problem of the object.
    #[error("{0}")]
    Problem(Box<Problem>),
}

#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filter: Option<FilterName>,
    #[serde(alias = "steer", default, skip_serializing_if = "Option::is_none")]
    steering: Option<SteeringName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bridge: Option<BridgeName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    router: Option<RouterName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<PortName>,
    #[serde(default, with = "text::mac_option", skip_serializing_if = "Option::is_none")]
    mac: Option<MacAddr>,
    #[serde(default, with = "text::vlan_option", skip_serializing_if = "Option::is_none")]
    vlan: Option<VlanId>,
    value: Value,
}

impl Stored {
    fn object(&self) -> Option<ObjectKey> {
        let bridged = self.bridge.is_some() || self.mac.is_some() || self.vlan.is_some();
        let alone = !bridged && self.port.is_none();
        match (&self.filter, &self.steering, &self.router, &self.port) {
            (None, None, None, _) => {}
            (Some(filter), None, None, _) if alone => return Some(ObjectKey::Filter(filter.clone())),
            (None, Some(steering), None, _) if alone => return Some(ObjectKey::Steering(steering.clone())),
            (None, None, Some(router), None) if !bridged => return Some(ObjectKey::Router(router.clone())),
            (None, None, Some(router), Some(port)) if !bridged => {
                return Some(ObjectKey::RouterPort(router.clone(), port.clone()));
            }
            _ => return None,
        }
        Some(match (self.bridge.clone(), self.port.clone(), self.mac, self.vlan) {
            (None, Some(port), None, None) => ObjectKey::Port(port),
            (Some(bridge), None, None, None) => ObjectKey::Bridge(bridge),
            (Some(bridge), Some(port), None, None) => ObjectKey::Member(bridge, port),
            (Some(bridge), None, Some(mac), Some(vlan)) => ObjectKey::Static(bridge, StaticKey { vlan, mac }),
            _ => return None,
        })
    }
}

impl Fragment {
    /// Returns the objects of the fragment (the objects of one owner) as a JSON text that [`Fragment::from_json`]
    /// reads.
    pub fn to_json(&self) -> String {
        let none = || Stored {
            filter: None,
            steering: None,
            bridge: None,
            router: None,
            port: None,
            mac: None,
            vlan: None,
            value: Value::Null,
        };
        let value = |value: Result<Value, serde_json::Error>| value.unwrap_or_default();
        let mut all = Vec::new();
        for (name, filter) in &self.filters {
            let filter_value = value(serde_json::to_value(filter));
            all.push(Stored { filter: Some(name.clone()), value: filter_value, ..none() });
        }
        for (name, steering) in &self.steering {
            let steering_value = value(serde_json::to_value(steering));
            all.push(Stored { steering: Some(name.clone()), value: steering_value, ..none() });
        }
        for (port, settings) in &self.ports {
            all.push(Stored {
                port: Some(port.clone()),
                value: value(serde_json::to_value(settings)),
                ..none()
            });
        }
        for (bridge, settings) in &self.bridges {
            all.push(Stored {
                bridge: Some(bridge.clone()),
                value: value(serde_json::to_value(settings)),
                ..none()
            });
        }
        for ((bridge, port), member) in &self.members {
            let (bridge, port) = (Some(bridge.clone()), Some(port.clone()));
            all.push(Stored { bridge, port, value: value(serde_json::to_value(member)), ..none() });
        }
        for ((bridge, key), port) in &self.statics {
            let (mac, vlan) = (Some(key.mac), Some(key.vlan));
            all.push(Stored {
                bridge: Some(bridge.clone()),
                mac,
                vlan,
                value: json!({ "port": port }),
                ..none()
            });
        }
        for (router, settings) in &self.routers {
            let settings = value(serde_json::to_value(settings));
            all.push(Stored { router: Some(router.clone()), value: settings, ..none() });
        }
        for ((router, port), settings) in &self.router_ports {
            let (router, port) = (Some(router.clone()), Some(port.clone()));
            all.push(Stored { router, port, value: value(serde_json::to_value(settings)), ..none() });
        }
        serde_json::to_string_pretty(&all).unwrap_or_default()
    }

    /// Reads a text that [`Fragment::to_json`] returned.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a list of stored objects, or if an object does not pass the checks
    /// of a single object.
    pub fn from_json(text: &str) -> Result<Fragment, StoredError> {
        let mut fragment = Fragment::default();
        for (index, stored) in serde_json::from_str::<Vec<Stored>>(text)?.into_iter().enumerate() {
            let object = stored.object().ok_or(StoredError::Nameless(index))?;
            let change = load_change(&object, &stored.value.to_string()).map_err(|problems| {
                let first = problems.into_iter().next();
                first.map_or(StoredError::Nameless(index), |problem| StoredError::Problem(Box::new(problem)))
            })?;
            fragment.apply(change);
        }
        Ok(fragment)
    }

    /// Returns a copy of the fragment (the objects of one owner) that contains only the objects for whose keys `keep`
    /// returns `true`.
    pub fn only(&self, keep: impl Fn(&ObjectKey) -> bool) -> Fragment {
        let mut part = Fragment::default();
        let changes: Vec<Change> =
            self.objects().filter(keep).filter_map(|object| self.get(&object)).collect();
        changes.into_iter().for_each(|change| part.apply(change));
        part
    }
}
