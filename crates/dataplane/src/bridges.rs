//! Creates the bridges of the crate `switch` from the configuration.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use model::{BridgeName, Config};
use packet::{BridgeId, PortId};
use switch::{Bridge, BridgeConfig, BridgePortConfig, StaticMac, StormLimits, VlanMode, VlanSet};

use super::ids::Names;

/// Running bridges, indexed by name.
pub type Bridges = BTreeMap<BridgeName, Arc<Bridge>>;

/// Converts the configuration of one bridge into the configuration type of the crate `switch`. Ports that are not
/// running are omitted.
pub fn told(
    config: &Config,
    name: &BridgeName,
    id: BridgeId,
    port: impl Fn(&str) -> Option<PortId>,
) -> BridgeConfig {
    let Some(bridge) = config.bridges.get(name) else { return BridgeConfig::default() };
    let members = bridge.ports.iter().filter_map(|(name, member)| {
        Some(BridgePortConfig {
            port: port(name.as_str())?,
            mode: mode(&member.vlans),
            native_untagged_only: member.native_untagged_only,
            protected: member.protected,
            multicast_router: member.multicast_router.map(|role| role == model::MulticastRouter::Auto),
            learning: member.learning,
            flood: member.flood,
            mac_limit: member.mac_limit,
            storm: StormLimits {
                broadcast: member.storm.broadcast,
                multicast: member.storm.multicast,
                unknown: member.storm.unknown,
            },
        })
    });
    let statics = bridge.statics.iter().filter_map(|(key, name)| {
        Some(StaticMac { vid: key.vlan, mac: key.mac, port: Some(port(name.as_str())?) })
    });
    BridgeConfig {
        id,
        name: name.as_str().to_owned(),
        ageing_secs: bridge.settings.ageing,
        mac_limit: bridge.settings.mac_limit,
        snooping: bridge.settings.snooping,
        ports: members.collect(),
        statics: statics.collect(),
    }
}

fn mode(mode: &model::VlanMode) -> VlanMode {
    match mode {
        model::VlanMode::Access(vlan) => VlanMode::Access(*vlan),
        model::VlanMode::Trunk { allowed, native, native_tagged } => VlanMode::Trunk {
            allowed: allowed.iter().collect::<VlanSet>(),
            native: *native,
            native_tagged: *native_tagged,
        },
    }
}

/// Creates the bridges that `config` describes. A bridge that is also in `before` keeps its MAC table.
pub fn build(config: &Config, before: &Bridges, names: &mut Names) -> Bridges {
    for gone in before.iter().filter(|(name, _)| !config.bridges.contains_key(*name)) {
        names.bridges.release(gone.1.id().0);
    }
    let mut bridges = Bridges::new();
    for name in config.bridges.keys() {
        let old = before.get(name);
        let number = old.map(|bridge| bridge.id().0).or_else(|| names.bridges.find(name.as_str()));
        // The configuration allows fewer bridges than there are numbers.
        let Some(number) = number.or_else(|| names.bridges.take(name.as_str())) else { continue };
        let told = told(config, name, BridgeId(number), |port| names.ports.find(port).map(PortId));
        let bridge = match old {
            Some(old) => old.reconfigured(&told),
            None => Bridge::new(&told, seed()),
        };
        bridges.insert(name.clone(), Arc::new(bridge));
    }
    bridges
}

/// Returns a random seed for the hash tables of bridges. An attacker who does not know the seed cannot choose addresses
/// that fall into the same hash bucket.
pub fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        [port.a]
        kind = "null"
        [port.b]
        kind = "null"
        [bridge.br0]
        ageing = 60
        [bridge.br0.port.a]
        access = 10
        storm = { broadcast = 100 }
        [bridge.br0.port.b]
        trunk = [10, "20-29"]
        native = 1
    "#;

    fn config() -> Config {
        model::load(TEXT, "test.toml").unwrap()
    }

    #[test]
    fn members_and_limits_are_told() {
        let number = |port: &str| match port {
            "a" => Some(PortId(4)),
            "b" => Some(PortId(7)),
            _ => None,
        };
        let config = config();
        let name = config.bridges.keys().next().unwrap();
        let told = told(&config, name, BridgeId(2), number);
        assert_eq!((told.id, told.name.as_str(), told.ageing_secs), (BridgeId(2), "br0", 60));
        assert_eq!(told.ports.len(), 2);
        assert_eq!(told.ports[0].storm.broadcast, Some(100));
        let VlanMode::Trunk { allowed, native, .. } = &told.ports[1].mode else {
            panic!("{:?}", told.ports[1])
        };
        assert_eq!(allowed.iter().count(), 12, "1, 10 and 20 to 29");
        assert_eq!(native.unwrap().get(), 1);
    }

    #[test]
    fn a_bridge_keeps_its_tables_and_number() {
        let mut names = Names::new();
        names.ports.insert(0, "a");
        let first = build(&config(), &Bridges::new(), &mut names);
        names.ports.insert(1, "b");
        let second = build(&config(), &first, &mut names);
        let (first, second) = (first.values().next().unwrap(), second.values().next().unwrap());
        assert!(Arc::ptr_eq(first.tables(), second.tables()));
        assert_eq!(first.id(), second.id());
        assert_eq!((first.ports().count(), second.ports().count()), (1, 2));
    }
}
