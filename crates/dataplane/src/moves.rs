//! Detection of forwarding loops. If many MAC addresses move between two ports of a bridge every second, the two ports
//! are probably connected outside the bridge, and frames that leave through one port return through the other. Workers
//! count moves ([`switch::BridgeTables::moves_to`]). The housekeeping thread reads the counts once a second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use model::{BridgeName, PortName};

use super::bridges::Bridges;
use super::ports::Ports;

/// Minimum rate of MAC address moves between two ports, in moves per second, that is reported as a loop.
const MANY: u64 = 50;
/// Minimum time between two log messages about MAC address moves on one bridge.
const LOG: Duration = Duration::from_secs(60);
/// Time for which `doctor` continues to report a loop after the last second with many moves.
const TOLD: Duration = Duration::from_secs(10);

/// Detected moves of MAC addresses between ports, for each bridge.
#[derive(Default)]
pub struct Moves(BTreeMap<BridgeName, Seen>);

#[derive(Default)]
struct Seen {
    /// Total number of MAC address moves to each port at the last poll.
    counts: BTreeMap<PortName, u64>,
    /// Time at which the number of moves was last read. `None` before the first poll.
    looked: Option<Instant>,
    moving: Option<Moving>,
    logged: Option<Instant>,
}

/// Two ports of a bridge between which many MAC addresses move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moving {
    /// Port to which the most MAC addresses moved in the last second with many moves.
    pub one: PortName,
    /// Port to which the second most MAC addresses moved in the last second with many moves.
    pub other: PortName,
    /// Number of MAC address moves per second to the two ports together, in the last second with many moves.
    pub rate: u64,
    at: Instant,
}

impl Moves {
    /// Computes the number of MAC address moves since the last call, and logs loops. This function
    /// is called about once a second.
    pub fn look(&mut self, bridges: &Bridges, ports: &Ports) {
        self.0.retain(|name, _| bridges.contains_key(name));
        for (name, bridge) in bridges {
            let tables = bridge.tables();
            let port_of =
                |id| ports.iter().find(|(_, running)| running.id == id).map(|(name, _)| name.clone());
            let counts = bridge.ports().filter_map(|id| Some((port_of(id)?, tables.moves_to(id)))).collect();
            let seen = self.0.entry(name.clone()).or_default();
            if let Some(moving) = seen.count(counts, Instant::now()) {
                let (rate, one, other) = (moving.rate, moving.one.to_string(), moving.other.to_string());
                tracing::warn!(
                    bridge = %name, one, other, rate,
                    "stations move between two ports many times a second: they are probably joined behind the bridge; unplug one, or \
                     limit floods by `storm`"
                );
            }
        }
    }

    /// Returns the bridges on which many MAC addresses moved recently, each with the two ports between which
    /// the addresses moved.
    pub fn moving(&self) -> impl Iterator<Item = (&BridgeName, &Moving)> {
        self.0.iter().filter_map(|(name, seen)| {
            Some((name, seen.moving.as_ref().filter(|moving| moving.at.elapsed() < TOLD)?))
        })
    }
}

impl Seen {
    /// Compares the total number of MAC address moves to each port with that of the last poll. Returns the
    /// detected loop if it must be logged, otherwise `None`.
    fn count(&mut self, counts: BTreeMap<PortName, u64>, now: Instant) -> Option<Moving> {
        let before = std::mem::replace(&mut self.counts, counts);
        let looked = self.looked.replace(now)?;
        let milliseconds = u64::try_from(now.duration_since(looked).as_millis()).unwrap_or(u64::MAX).max(1);
        let since = |(name, count): (&PortName, &u64)| {
            let moves = before.get(name).map_or(0, |before| count.saturating_sub(*before));
            (moves.saturating_mul(1000) / milliseconds, name.clone())
        };
        let mut most: Vec<(u64, PortName)> = self.counts.iter().map(since).collect();
        most.sort_by_key(|one| std::cmp::Reverse(one.0));
        let [(first, one), (second, other), ..] = most.as_slice() else { return None };
        // If all moves lead to one port, the stations have moved to this port once, and there is no loop.
        if *second < MANY / 2 || first + second < MANY {
            return None;
        }
        let moving = Moving { one: one.clone(), other: other.clone(), rate: first + second, at: now };
        self.moving = Some(moving.clone());
        if self.logged.is_some_and(|logged| now.duration_since(logged) < LOG) {
            return None;
        }
        self.logged = Some(now);
        Some(moving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_told_by_its_two_ports_and_roaming_stations_are_not() {
        let now = Instant::now();
        let mut seen = Seen::default();
        let mut count = |counts: [u64; 3], second| {
            let names = ["a", "b", "c"].map(|name| name.parse::<PortName>().unwrap());
            let told = seen.count(names.into_iter().zip(counts).collect(), now + Duration::from_secs(second));
            told.map(|moving| (moving.one.to_string(), moving.other.to_string(), moving.rate))
        };
        // Moves counted before the first poll do not belong to this second.
        assert_eq!(count([9000, 9000, 0], 0), None);
        assert_eq!(count([9001, 9000, 0], 1), None);
        // All stations of a network segment have moved to another port.
        assert_eq!(count([9001, 9500, 1], 2), None);
        assert_eq!(count([9011, 9600, 101], 3), Some(("b".to_owned(), "c".to_owned(), 200)));
        assert_eq!(count([9011, 9700, 201], 4), None, "the log has said so");
        assert_eq!(count([9011, 9700, 201], 63), None);
        assert_eq!(count([9011, 9800, 301], 64), Some(("b".to_owned(), "c".to_owned(), 200)));
    }
}
