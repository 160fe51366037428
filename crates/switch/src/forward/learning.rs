//! The learning process (IEEE 802.1Q clause 8.7), which updates the MAC table from a frame's source address.
//!
//! In a dry run ([`Recorder::DRY`]) the process determines what would be learned, and changes nothing.

use packet::record::{Recorder, Step};
use packet::{DropReason, MacAddr};
use sync::mac_table::BucketIndex;

use super::{Lane, Pass};
use crate::member::Member;
use crate::tables::{Learned, Station, mac_of};

impl<'a, R: Recorder> Pass<'a, R> {
    /// Returns whether the MAC table has the source address of a frame on the frame's ingress port, so that nothing
    /// needs to be learned. If so, refreshes the age of the entry. Returns false if a recorder is active, because
    /// [`Pass::source`] then processes the source and records the steps.
    #[inline(always)]
    pub(super) fn source_is_known_here(&self, lane: Lane<'a>, source_at: BucketIndex) -> bool {
        if R::ACTIVE {
            return false;
        }
        let Some(hit) = self.table.lookup_at(source_at, lane.source) else { return false };
        if hit.value != Station::learned(lane.by.member.port).0 {
            return false;
        }
        if hit.age != self.now.secs && lane.by.member.learning {
            self.table.refresh(hit.slot, lane.source, self.now.secs);
        }
        true
    }

    /// Learns the source address of a frame that is not known on the frame's ingress port, or
    /// decides that the address is not learned. Returns the drop reason if the frame must be
    /// dropped.
    #[inline(never)]
    pub(super) fn source(&mut self, lane: Lane<'a>, source_at: BucketIndex) -> Result<(), DropReason> {
        let (at, member) = (lane.at, lane.by.member);
        let hit = self.table.lookup_at(source_at, lane.source);
        let mac = mac_of(lane.source);
        let known = hit.map(|hit| Station(hit.value));
        if let Some(station) = known.filter(|station| station.is_static()) {
            return self.static_source(at, member, mac, station);
        }
        if known.is_some_and(|station| station.port() == member.port) {
            if let Some(hit) = hit.filter(|_| member.learning && !R::DRY) {
                self.table.refresh(hit.slot, lane.source, self.now.secs);
            }
            self.step(at, Step::SourceKnown { mac, is_static: false });
            return Ok(());
        }
        if !member.learning {
            self.step(at, Step::NotLearned { mac, why: "learning is switched off on the port" });
            return Ok(());
        }
        let (tables, limits) = (&self.bridge.tables, self.view.limits(member));
        let learned = if R::DRY {
            match (tables.refusal(member.port, known.is_some(), limits, self.now.secs), known) {
                (Some(why), _) => Learned::Refused(why),
                (None, Some(station)) => Learned::Moved(station.port()),
                (None, None) => Learned::New,
            }
        } else {
            tables.learn(source_at, lane.source, member.port, known.is_some(), limits, self.now.secs)
        };
        match learned {
            Learned::New => self.step(at, Step::Learned { mac, from: None }),
            Learned::Moved(from) => self.step(at, Step::Learned { mac, from: Some(from) }),
            Learned::Already => self.step(at, Step::SourceKnown { mac, is_static: false }),
            Learned::Refused(why) => self.step(at, Step::NotLearned { mac, why }),
            Learned::Static(station) => return self.static_source(at, member, mac, station),
        }
        Ok(())
    }

    fn static_source(
        &mut self,
        at: u16,
        member: &Member,
        mac: MacAddr,
        station: Station,
    ) -> Result<(), DropReason> {
        if station.discards() {
            return Err(DropReason::FdbDiscard);
        }
        if station.port() != member.port {
            return Err(DropReason::SourceStaticMoved);
        }
        self.step(at, Step::SourceKnown { mac, is_static: true });
        Ok(())
    }

    /// Returns whether the source address of a frame would be known on the frame's ingress port
    /// after learning. Dry runs use this function.
    #[cold]
    pub(super) fn would_be_here(&self, lane: Lane<'a>) -> bool {
        let (tables, member) = (&self.bridge.tables, lane.by.member);
        let known = self.table.lookup(lane.source);
        let limits = self.view.limits(member);
        let here = known.is_some_and(|hit| Station(hit.value).port() == member.port);
        let refusal = || tables.refusal(member.port, known.is_some(), limits, self.now.secs);
        here || member.learning && refusal().is_none()
    }

    /// Returns whether learning the source address of a frame would displace the entry of the
    /// frame's own destination. Dry runs use this function.
    #[cold]
    pub(super) fn would_displace(&self, lane: Lane<'a>) -> bool {
        let (tables, member) = (&self.bridge.tables, lane.by.member);
        let is_new = member.learning && self.table.lookup(lane.source).is_none();
        let displaced = || tables.displaced(member.port, self.view.limits(member), self.now.secs);
        is_new && displaced() == Some(lane.destination)
    }
}
