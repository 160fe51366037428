//! Zones: the number of connections in each zone, and its limit.
//!
//! A worker has one [`Zones`] for its tables of both address families. The numbers include expired connections that no
//! sweep has removed yet. The arrays have 65,536 elements each. The kernel provides memory for the zones in use only.

const ZONES: usize = 1 << 16;

/// Error: the zone has as many connections as its limit allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneFull;

/// Number of connections in each zone, and the limits.
#[derive(Debug)]
pub struct Zones {
    counts: Vec<u32>,
    /// Limits plus 1. 0: the zone has the default limit.
    limits: Vec<u32>,
    default_limit: u32,
}

impl Zones {
    /// Returns zones without connections and without limits.
    #[must_use]
    pub fn new() -> Zones {
        Zones { counts: vec![0; ZONES], limits: vec![0; ZONES], default_limit: u32::MAX }
    }

    /// Returns the number of connections in a zone.
    #[must_use]
    pub fn count(&self, zone: u16) -> u32 {
        self.counts.get(usize::from(zone)).copied().unwrap_or_default()
    }

    /// Returns the largest number of connections in a zone. `u32::MAX` means that the zone has no limit.
    #[must_use]
    pub fn limit(&self, zone: u16) -> u32 {
        let own = self.limits.get(usize::from(zone)).copied().unwrap_or_default();
        own.checked_sub(1).unwrap_or(self.default_limit)
    }

    /// Sets the largest number of connections in a zone. `None`: the zone has the default limit. Connections that
    /// exceed the limit remain.
    pub fn set_limit(&mut self, zone: u16, limit: Option<u32>) {
        if let Some(own) = self.limits.get_mut(usize::from(zone)) {
            *own = limit.map_or(0, |limit| limit.saturating_add(1));
        }
    }

    /// Sets the largest number of connections in a zone without a limit of its own. `u32::MAX` means no limit.
    pub fn set_default_limit(&mut self, limit: u32) {
        self.default_limit = limit;
    }

    /// Counts one more connection in a zone.
    ///
    /// # Errors
    /// Returns an error if the zone has reached its limit. The number is unchanged then.
    pub(crate) fn add(&mut self, zone: u16) -> Result<(), ZoneFull> {
        let limit = self.limit(zone);
        let count = self.counts.get_mut(usize::from(zone)).ok_or(ZoneFull)?;
        if *count >= limit {
            return Err(ZoneFull);
        }
        *count += 1;
        Ok(())
    }

    /// Counts one connection less in a zone.
    pub(crate) fn remove(&mut self, zone: u16) {
        if let Some(count) = self.counts.get_mut(usize::from(zone)) {
            *count = count.saturating_sub(1);
        }
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

    #[test]
    fn a_zone_has_its_own_limit_or_the_default() {
        let mut zones = Zones::new();
        assert_eq!((zones.limit(7), zones.count(7)), (u32::MAX, 0));
        zones.set_default_limit(2);
        zones.set_limit(8, Some(0));
        assert_eq!((zones.add(7), zones.add(7), zones.add(7)), (Ok(()), Ok(()), Err(ZoneFull)));
        assert_eq!(zones.add(8), Err(ZoneFull));
        zones.set_limit(8, None);
        assert_eq!(zones.add(8), Ok(()));
        // A lower limit removes no connection.
        zones.set_limit(7, Some(1));
        assert_eq!((zones.count(7), zones.add(7)), (2, Err(ZoneFull)));
        zones.remove(7);
        zones.remove(7);
        assert_eq!((zones.count(7), zones.add(7)), (0, Ok(())));
    }
}
