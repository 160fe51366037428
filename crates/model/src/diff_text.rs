//! The text form of the differences between two configurations, for people and programs. Each object has one
//! line with the sign `+`, `-`, `~` or `!`.
//!
//! The sign `!` marks settings that take effect after a restart of the daemon. A port or a router that is
//! removed and added again is one `~` line, which includes its memberships.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{BridgeName, ConfigChange, ConfigDiff, FieldChange, ObjectKey, PortName, RouterName};

/// One line of the text form of a difference between configurations.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PlanLine {
    /// Sign of the change. `+` adds an object, `-` removes one, `~` changes one, and `!` marks a setting
    /// that takes effect after a restart of the daemon.
    pub sign: char,
    /// Path of the object, such as `bridge.br0.port.web1`.
    pub object: String,
    /// Properties of a new object, or the fields of a changed object that differ.
    pub detail: String,
}

/// The differences between two configurations as the API sends them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PlanReport {
    /// One line for each object that differs.
    pub lines: Vec<PlanLine>,
}

impl fmt::Display for PlanLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.detail.is_empty() {
            true => write!(f, "{} {}", self.sign, self.object),
            false => write!(f, "{} {}: {}", self.sign, self.object, self.detail),
        }
    }
}

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl fmt::Display for ConfigDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report().fmt(f)
    }
}

impl ConfigDiff {
    /// Returns the differences as lines of text.
    pub fn report(&self) -> PlanReport {
        let anew: BTreeSet<&PortName> = self.changes.iter().filter_map(recreated).collect();
        let moved: BTreeSet<&RouterName> = self.changes.iter().filter_map(moved).collect();
        let edges = |added| {
            let edges = self.changes.iter().filter_map(edge);
            edges
                .filter(move |edge| edge.0 == added)
                .map(|(_, object, port)| (object, port))
                .collect::<BTreeSet<_>>()
        };
        // Memberships and entries whose port or router is removed and added again. They are removed and added again as
        // well, and get no lines of their own.
        let kept: BTreeSet<_> = edges(false).intersection(&edges(true)).cloned().collect();
        let mut lines = Vec::new();
        for change in &self.changes {
            let again = edge(change).filter(|(_, object, port)| kept.contains(&(object.clone(), *port)));
            match (change, again) {
                (ConfigChange::RemovePort { name }, _) if anew.contains(name) => {}
                (ConfigChange::RemoveRouter { name }, _) if moved.contains(name) => {}
                (ConfigChange::AddMember { member, .. }, Some((_, object, _))) => lines.push(PlanLine {
                    sign: '~',
                    object: object.to_string(),
                    detail: format!("{} (joins again)", member_detail(member)),
                }),
                (ConfigChange::AddRouterPort { settings, .. }, Some((_, object, _))) => {
                    lines.push(PlanLine {
                        sign: '~',
                        object: object.to_string(),
                        detail: format!("{} (joins again)", interface_detail(settings)),
                    })
                }
                (_, Some(_)) => {}
                _ => lines.push(line(change)),
            }
        }
        PlanReport { lines }
    }
}

/// Returns the bridge membership, static entry or router interface that a change adds (`true`) or removes (`false`),
/// and the port of this object. Returns `None` for other changes.
fn edge(change: &ConfigChange) -> Option<(bool, ObjectKey, &PortName)> {
    let member = |bridge: &BridgeName, port: &PortName| ObjectKey::Member(bridge.clone(), port.clone());
    match change {
        ConfigChange::AddMember { bridge, port, .. } => Some((true, member(bridge, port), port)),
        ConfigChange::RemoveMember { bridge, port } => Some((false, member(bridge, port), port)),
        ConfigChange::SetStatic { bridge, key, port } => {
            Some((true, ObjectKey::Static(bridge.clone(), *key), port))
        }
        ConfigChange::RemoveStatic { bridge, key, port } => {
            Some((false, ObjectKey::Static(bridge.clone(), *key), port))
        }
        ConfigChange::AddRouterPort { router, port, .. } => {
            Some((true, ObjectKey::RouterPort(router.clone(), port.clone()), port))
        }
        ConfigChange::RemoveRouterPort { router, port } => {
            Some((false, ObjectKey::RouterPort(router.clone(), port.clone()), port))
        }
        _ => None,
    }
}

fn recreated(change: &ConfigChange) -> Option<&PortName> {
    match change {
        ConfigChange::AddPort { name, recreated, .. } if !recreated.is_empty() => Some(name),
        _ => None,
    }
}

fn moved(change: &ConfigChange) -> Option<&RouterName> {
    match change {
        ConfigChange::AddRouter { name, recreated, .. } if !recreated.is_empty() => Some(name),
        _ => None,
    }
}

fn line(change: &ConfigChange) -> PlanLine {
    use ConfigChange::*;
    let (sign, object, detail) = match change {
        RemoveStatic { bridge, key, port } => {
            ('-', format!("bridge.{bridge}.static.{key}"), format!("port {port}"))
        }
        RemoveMember { bridge, port } => ('-', format!("bridge.{bridge}.port.{port}"), String::new()),
        RemoveBridge { name } => ('-', format!("bridge.{name}"), String::new()),
        RemovePort { name } => ('-', format!("port.{name}"), String::new()),
        AddFilter { name, filter } => {
            ('+', format!("filter.{name}"), format!("{} rules", filter.rules.len()))
        }
        ChangeFilter { name, fields, .. } => ('~', format!("filter.{name}"), texts(fields)),
        RemoveFilter { name } => ('-', format!("filter.{name}"), String::new()),
        AddSteering { name, steering } => {
            ('+', format!("steering.{name}"), format!("{} flows", steering.flows.len()))
        }
        ChangeSteering { name, fields, .. } => ('~', format!("steering.{name}"), texts(fields)),
        RemoveSteering { name } => ('-', format!("steering.{name}"), String::new()),
        AddPort { name, recreated, .. } if !recreated.is_empty() => {
            ('~', format!("port.{name}"), format!("{} (made anew)", texts(recreated)))
        }
        AddPort { name, port, .. } => ('+', format!("port.{name}"), port_detail(port)),
        ChangePort { name, fields, .. } => ('~', format!("port.{name}"), texts(fields)),
        ChangeHookPolicy { port, policy } => {
            let persist = if policy.persist { "persists" } else { "goes with the daemon" };
            ('~', format!("port.{port}"), format!("its hook {persist}, when_down {}", policy.when_down))
        }
        AddBridge { name, .. } => ('+', format!("bridge.{name}"), String::new()),
        ChangeBridge { name, fields, .. } => ('~', format!("bridge.{name}"), texts(fields)),
        AddMember { bridge, port, member } => {
            ('+', format!("bridge.{bridge}.port.{port}"), member_detail(member))
        }
        ChangeMember { bridge, port, fields, .. } => {
            ('~', format!("bridge.{bridge}.port.{port}"), texts(fields))
        }
        SetStatic { bridge, key, port } => {
            ('+', format!("bridge.{bridge}.static.{key}"), format!("port {port}"))
        }
        RemoveRouterPort { router, port } => ('-', format!("router.{router}.port.{port}"), String::new()),
        RemoveRouter { name } => ('-', format!("router.{name}"), String::new()),
        AddRouter { name, recreated, .. } if !recreated.is_empty() => {
            ('~', format!("router.{name}"), format!("{} (made anew)", texts(recreated)))
        }
        AddRouter { name, settings, .. } => {
            let place = settings.namespace.as_ref().map(|namespace| format!("in {namespace}"));
            ('+', format!("router.{name}"), place.unwrap_or_default())
        }
        ChangeRouter { name, fields, .. } => ('~', format!("router.{name}"), texts(fields)),
        AddRouterPort { router, port, settings } => {
            ('+', format!("router.{router}.port.{port}"), interface_detail(settings))
        }
        ChangeRouterPort { router, port, fields, .. } => {
            ('~', format!("router.{router}.port.{port}"), texts(fields))
        }
        NeedsRestart(change) => ('!', change.field.clone(), format!("{} (needs a restart)", values(change))),
    };
    PlanLine { sign, object, detail }
}

fn port_detail(port: &crate::Port) -> String {
    match port.kind.device() {
        Some((device, Some(namespace))) => format!("{} {device} in {namespace}", port.kind.name()),
        Some((device, None)) => format!("{} {device}", port.kind.name()),
        None => port.kind.name().to_owned(),
    }
}

fn member_detail(member: &crate::Member) -> String {
    match &member.vlans {
        crate::VlanMode::Access(vlan) => format!("access {vlan}"),
        crate::VlanMode::Trunk { allowed, native: Some(native), .. } => {
            format!("trunk {allowed}, native {native}")
        }
        crate::VlanMode::Trunk { allowed, native: None, .. } => format!("trunk {allowed}"),
    }
}

fn interface_detail(settings: &crate::RouterPort) -> String {
    let vlans = if settings.vlans.is_empty() { String::new() } else { format!(", VLANs {}", settings.vlans) };
    let pairs: Vec<String> = settings.qinq.iter().map(ToString::to_string).collect();
    let qinq =
        if pairs.is_empty() { String::new() } else { format!(", VLANs in VLANs {}", pairs.join(", ")) };
    let rpf = if settings.rpf.is_off() { String::new() } else { format!(", rpf {}", settings.rpf) };
    let vrrp = if settings.vrrp { ", VRRP" } else { "" };
    let servers: Vec<String> = settings.dhcp_relay.iter().map(ToString::to_string).collect();
    let relay =
        if servers.is_empty() { String::new() } else { format!(", DHCP relay to {}", servers.join(" ")) };
    format!("miss {}{vlans}{qinq}{rpf}{vrrp}{relay}", settings.miss)
}

fn values(change: &FieldChange) -> String {
    let shown = |text: &str| if text.is_empty() { "default".to_owned() } else { text.to_owned() };
    format!("{} -> {}", shown(&change.old), shown(&change.new))
}

fn texts(fields: &[FieldChange]) -> String {
    fields.iter().map(|change| format!("{} {}", change.field, values(change))).collect::<Vec<_>>().join(", ")
}
