//! IGMP and MLD: copies that workers punt are read here, and what follows for the groups is published.
//!
//! The copies come over one ring per worker; when it is full, a worker leaves copies out, and hosts repeat themselves.

use std::collections::BTreeMap;

use engine::Engine;
use engine::stage::Punt;
use engine::worker::monotonic;
use model::BridgeName;
use packet::PortId;
use port::FramePool;
use switch::{Snooper, SnooperConfig};
use sync::spsc::Consumer;

use super::bridges::seed;
use super::site::Site;

/// Copies that are read in one go: what a flood of reports can cost.
const BUDGET: usize = 4096;
/// Bytes of a message that are looked at.
const LONGEST: usize = 2048;

/// A listener of a group as the snooper lists it: VLAN identifier, group (`None`: the port leads to a multicast router), port, and seconds since
/// its last report.
pub type ListedMember = (u16, Option<std::net::IpAddr>, PortId, u32);

/// The snoopers of all bridges.
#[derive(Default)]
pub struct Snooping {
    /// The workers' rings; `None` while there are no workers.
    source: Option<Source>,
    snoopers: BTreeMap<BridgeName, Snooper>,
}

/// Where copies come from.
struct Source {
    rings: Vec<Consumer<Punt>>,
    pool: FramePool,
    /// That of the engine.
    generation: u64,
}

impl Snooping {
    /// Gives the copies that were not read back, and listens to no worker any more: the engine has stopped. What is known of groups stays.
    pub fn detach(&mut self) {
        let Some(Source { rings, mut pool, .. }) = self.source.take() else { return };
        for mut ring in rings {
            while let Some(punt) = ring.pop() {
                pool.free(punt.packet);
            }
        }
    }

    /// Listens to the workers of `engine`, unless that is so already. When a worker does not answer, the next look tries again.
    fn attach(&mut self, engine: &Engine, site: &mut Site) {
        if self.source.as_ref().is_some_and(|source| source.generation == engine.generation()) {
            return;
        }
        self.source = engine.punts().ok().map(|rings| Source {
            rings,
            pool: engine.pool(),
            generation: engine.generation(),
        });
        // The bridges of a new engine do not know the groups.
        for (name, snooper) in &self.snoopers {
            if let Some(bridge) = site.bridges.get_mut(name) {
                *bridge = std::sync::Arc::new(bridge.with_groups(snooper.table()));
            }
        }
        if !self.snoopers.is_empty() {
            site.publish(engine);
        }
    }

    /// Reads what workers have left, and publishes groups that changed. With `second`, forgets what ran out.
    pub fn look(&mut self, site: &mut Site, engine: &Engine, second: bool) {
        self.attach(engine, site);
        self.follow(site, second);
        self.read(site);
        let mut changed = false;
        for (name, snooper) in &mut self.snoopers {
            if let (true, Some(bridge)) = (second, site.bridges.get(name)) {
                snooper.tick(bridge, monotonic());
            }
            if let (Some(groups), Some(bridge)) = (snooper.take_groups(), site.bridges.get_mut(name)) {
                *bridge = std::sync::Arc::new(bridge.with_groups(groups));
                changed = true;
            }
        }
        if changed {
            site.publish(engine);
        }
    }

    /// Returns what a bridge's snooper knows; `None` where there is none.
    pub fn listed(&self, bridge: &str) -> Option<Vec<ListedMember>> {
        self.snoopers.get(bridge).map(|snooper| snooper.listed(monotonic()))
    }

    /// Forgets what a bridge's snooper knows, which the next look publishes. False where there is none.
    pub fn flush(&mut self, bridge: &str) -> bool {
        self.snoopers.get_mut(bridge).map(Snooper::flush).is_some()
    }

    /// One snooper for each bridge that wants one, told of ports and VLANs that are gone.
    fn follow(&mut self, site: &Site, second: bool) {
        let snoops =
            |name: &BridgeName| site.config.bridges.get(name).is_some_and(|bridge| bridge.settings.snooping);
        self.snoopers.retain(|name, _| site.bridges.contains_key(name) && snoops(name));
        for (name, bridge) in site.bridges.iter().filter(|(name, _)| snoops(name)) {
            let fresh = || Snooper::new(SnooperConfig::default(), seed());
            let snooper = self.snoopers.entry(name.clone()).or_insert_with(fresh);
            if second {
                snooper.follow(bridge);
            }
        }
    }

    fn read(&mut self, site: &Site) {
        let now = monotonic();
        let mut bytes = [0; LONGEST];
        let Some(Source { rings, pool, .. }) = &mut self.source else { return };
        for ring in rings {
            for _ in 0..BUDGET {
                let Some(punt) = ring.pop() else { break };
                let length = punt.packet.copy_to(pool.memory(), &mut bytes);
                let name = bridge_of(site, punt.port);
                let found =
                    name.and_then(|name| Some((self.snoopers.get_mut(name)?, site.bridges.get(name)?)));
                if let Some((snooper, bridge)) = found {
                    snooper.handle(bridge, punt.port, punt.vid, &bytes[..length], now);
                }
                pool.free(punt.packet);
            }
        }
        // A pool keeps frames for its next allocation; this one never allocates.
        pool.flush();
    }
}

fn bridge_of(site: &Site, port: PortId) -> Option<&BridgeName> {
    let (name, _) = site.ports.iter().find(|(_, running)| running.id == port)?;
    site.config.bridge_of(name.as_str()).map(|(bridge, _)| bridge)
}
