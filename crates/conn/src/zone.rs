//! Zones: the limit of connections of each zone, and its time-out policy.
//!
//! A worker has one [`Zones`] for its tables of both address families. Each table counts its own connections, so a zone
//! may have as many IPv4 connections as its limit allows, and as many IPv6 connections, on each worker. The arrays have
//! 65,536 elements each. The kernel provides a page of an array when a zone of the page is set for the first time.

use crate::timeout::Timeouts;

/// Number of zones.
pub(crate) const ZONES: usize = 1 << 16;

/// Limits of connections and time-out policies of the zones.
#[derive(Debug)]
pub struct Zones {
    /// Limits plus 1. 0: the zone has the default limit.
    limits: Vec<u32>,
    default_limit: u32,
    /// Indexes of the policies of the zones in `policies`.
    policy_of: Vec<u32>,
    /// Time-out policies. The first one is the default.
    policies: Vec<Timeouts>,
}

impl Zones {
    /// Returns zones without limits and with the default time-outs.
    #[must_use]
    pub fn new() -> Zones {
        let (limits, policy_of) = (vec![0; ZONES], vec![0; ZONES]);
        let policies = vec![Timeouts::default()];
        Zones { limits, default_limit: u32::MAX, policy_of, policies }
    }

    /// Returns the time-out policy of a zone.
    #[inline]
    #[must_use]
    pub fn timeouts(&self, zone: u16) -> &Timeouts {
        let policy = self.policy_of.get(usize::from(zone)).copied().unwrap_or_default();
        self.policies.get(policy as usize).unwrap_or(&self.policies[0])
    }

    /// Sets the time-out policy of a zone. `None`: the zone has the default policy. The time-out of a connection
    /// changes with its next packet. Zones with equal policies share the memory.
    pub fn set_timeouts(&mut self, zone: u16, timeouts: Option<Timeouts>) {
        let Some(timeouts) = timeouts else {
            self.policy_of[usize::from(zone)] = 0;
            return;
        };
        let known = self.policies.iter().skip(1).position(|known| *known == timeouts).map(|at| at + 1);
        let unused = || {
            let others =
                || self.policy_of.iter().enumerate().filter(|(other, _)| *other != usize::from(zone));
            (1..self.policies.len()).find(|at| others().all(|(_, policy)| *policy as usize != *at))
        };
        let at = known.or_else(unused).unwrap_or(self.policies.len());
        match self.policies.get_mut(at) {
            Some(policy) => *policy = timeouts,
            None => self.policies.push(timeouts),
        }
        self.policy_of[usize::from(zone)] = u32::try_from(at).unwrap_or_default();
    }

    /// Sets the time-out policy of all zones without a policy of their own.
    pub fn set_default_timeouts(&mut self, timeouts: Timeouts) {
        self.policies[0] = timeouts;
    }

    /// Returns the largest number of connections in a zone of a table. `u32::MAX` means that the zone has no limit.
    #[must_use]
    pub fn limit(&self, zone: u16) -> u32 {
        let own = self.limits.get(usize::from(zone)).copied().unwrap_or_default();
        own.checked_sub(1).unwrap_or(self.default_limit)
    }

    /// Sets the largest number of connections in a zone of each table. `None`: the zone has the default limit.
    /// Connections that exceed the limit remain.
    pub fn set_limit(&mut self, zone: u16, limit: Option<u32>) {
        if let Some(own) = self.limits.get_mut(usize::from(zone)) {
            *own = limit.map_or(0, |limit| limit.saturating_add(1));
        }
    }

    /// Sets the largest number of connections in a zone of each table, for zones without a limit of their own.
    /// `u32::MAX` means no limit.
    pub fn set_default_limit(&mut self, limit: u32) {
        self.default_limit = limit;
    }
}

impl Default for Zones {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeout::Timeout;

    #[test]
    fn a_zone_has_its_own_time_outs_or_the_default() {
        let of = |seconds| {
            let mut timeouts = Timeouts::default();
            timeouts.set(Timeout::UdpFirst, seconds);
            timeouts
        };
        let udp = |zones: &Zones, zone| zones.timeouts(zone).get(Timeout::UdpFirst) / 1000;
        let mut zones = Zones::new();
        zones.set_timeouts(1, Some(of(10)));
        zones.set_timeouts(2, Some(of(20)));
        zones.set_timeouts(3, Some(of(10)));
        assert_eq!([0, 1, 2, 3].map(|zone| udp(&zones, zone)), [120, 10, 20, 10]);
        // A policy that several zones share changes for one zone only.
        zones.set_timeouts(1, Some(of(30)));
        assert_eq!([1, 3].map(|zone| udp(&zones, zone)), [30, 10]);
        zones.set_default_timeouts(of(40));
        zones.set_timeouts(2, None);
        assert_eq!([2, 4].map(|zone| udp(&zones, zone)), [40, 40]);
        // Changes use the memory of unused policies.
        for seconds in 100..200 {
            zones.set_timeouts(1, Some(of(seconds)));
        }
        assert!(zones.policies.len() <= 4 && udp(&zones, 1) == 199);
    }

    #[test]
    fn a_zone_has_its_own_limit_or_the_default() {
        let mut zones = Zones::new();
        assert_eq!(zones.limit(7), u32::MAX);
        zones.set_default_limit(2);
        zones.set_limit(8, Some(0));
        assert_eq!((zones.limit(7), zones.limit(8)), (2, 0));
        zones.set_limit(8, None);
        zones.set_limit(7, Some(u32::MAX));
        assert_eq!((zones.limit(7), zones.limit(8)), (u32::MAX - 1, 2));
    }
}
