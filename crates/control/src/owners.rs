//! Adds the owners of objects to the states that the data plane reports. The owner of an object (the configuration
//! file, the API, OVSDB or the kernel) is read from the store.

use model::{BridgeState, FilterState, Merged, ObjectKey, Owner, PortState, RouterState, SteeringState};

/// Sets the owner (such as the API) in the state of each port. A port that is not in the configuration is attributed to
/// the configuration file.
pub(crate) fn ports(mut ports: Vec<PortState>, merged: &Merged) -> Vec<PortState> {
    for port in &mut ports {
        let object = port.name.parse().ok().map(ObjectKey::Port);
        port.owner = owner(merged, object);
    }
    ports
}

/// Sets the owner (such as the API) in the state of each filter.
pub(crate) fn filters(mut filters: Vec<FilterState>, merged: &Merged) -> Vec<FilterState> {
    for filter in &mut filters {
        filter.owner = owner(merged, filter.name.parse().ok().map(ObjectKey::Filter));
    }
    filters
}

/// Sets the owner (such as the API) in the state of each steering policy.
pub(crate) fn steering(mut policies: Vec<SteeringState>, merged: &Merged) -> Vec<SteeringState> {
    for steering in &mut policies {
        steering.owner = owner(merged, steering.name.parse().ok().map(ObjectKey::Steering));
    }
    policies
}

/// Sets the owner (such as the API) in the state of each bridge and of each bridge member.
pub(crate) fn bridges(mut bridges: Vec<BridgeState>, merged: &Merged) -> Vec<BridgeState> {
    for bridge in &mut bridges {
        let Ok(name) = bridge.name.parse::<model::BridgeName>() else { continue };
        bridge.owner = owner(merged, Some(ObjectKey::Bridge(name.clone())));
        for member in &mut bridge.members {
            let object = member.port.parse().ok().map(|port| ObjectKey::Member(name.clone(), port));
            member.owner = owner(merged, object);
        }
    }
    bridges
}

/// Sets the owner (such as the API) in the state of each router and of each router interface.
pub(crate) fn routers(mut routers: Vec<RouterState>, merged: &Merged) -> Vec<RouterState> {
    for router in &mut routers {
        let Ok(name) = router.name.parse::<model::RouterName>() else { continue };
        router.owner = owner(merged, Some(ObjectKey::Router(name.clone())));
        for interface in &mut router.interfaces {
            let object = interface.port.parse().ok().map(|port| ObjectKey::RouterPort(name.clone(), port));
            interface.owner = owner(merged, object);
        }
    }
    routers
}

fn owner(merged: &Merged, object: Option<ObjectKey>) -> Owner {
    object.and_then(|object| merged.owners.get(&object).copied()).unwrap_or(Owner::File)
}
