//! Changes of meters. A change is validated before it is made.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::flow::batch::Batch;
use crate::flow::message::{Band, BandKind, FlowError, Meter, MeterMod, Removed};
use crate::flow::pipeline::{MAX_METERS, MeterState, Pipeline, Touched};
use crate::flow::rule::{Rule, RuleRef};
use crate::flow::work::WORK_OF_CHANGE;

/// Maximum number of bands of a meter.
const MAX_BANDS: usize = 16;

impl Pipeline {
    pub(super) fn meter_mod(&mut self, change: &MeterMod, batch: &mut Batch) -> Result<(), FlowError> {
        match change {
            MeterMod::Add(meter) => {
                if self.meters.contains_key(&meter.id) {
                    return Err(FlowError::MeterExists);
                }
                if self.meters.len() >= MAX_METERS {
                    return Err(FlowError::OutOfMeters);
                }
                self.put_meter(meter, batch)
            }
            MeterMod::Modify(meter) => {
                if !self.meters.contains_key(&meter.id) {
                    return Err(FlowError::UnknownMeter);
                }
                self.put_meter(meter, batch)
            }
            MeterMod::Delete(id) => {
                let gone: BTreeSet<u32> = match id {
                    None => self.meters.keys().copied().collect(),
                    Some(id) => self.meters.contains_key(id).then_some(*id).into_iter().collect(),
                };
                batch.work(gone.len() * WORK_OF_CHANGE)?;
                for id in &gone {
                    let state = self.meters.remove(id);
                    batch.meter(*id, state);
                    self.touch(Touched::All);
                }
                self.delete_groups_of_meters(&gone, batch)?;
                if !gone.iter().any(|id| self.uses.has_meter(*id)) {
                    return Ok(());
                }
                batch.work(self.rules.place_count() + self.rules.work())?;
                // One scan over the rules finds all users of the removed meters.
                let mut named = Vec::new();
                let mut is_user = |rule: &Rule| {
                    named.clear();
                    rule.instructions.meters(&mut named);
                    named.iter().any(|id| gone.contains(id))
                };
                let users = self.rules.iter().filter(|(_, rule)| is_user(rule));
                let users: Vec<RuleRef> = users.map(|(at, _)| at).collect();
                batch.work(self.work_to_change(&users))?;
                for at in users {
                    self.remove_in(at, Removed::MeterDelete, batch);
                }
                Ok(())
            }
        }
    }

    /// Removes the groups that use one of these meters in a bucket, together with the rules that use the groups.
    /// OpenFlow specifies this only for rules that use a removed meter. If such a group were kept, it would forward
    /// packets without the meter.
    fn delete_groups_of_meters(&mut self, gone: &BTreeSet<u32>, batch: &mut Batch) -> Result<(), FlowError> {
        if !gone.iter().any(|id| self.uses.has_metered_group(Some(*id))) {
            return Ok(());
        }
        batch.work(self.groups.len())?;
        let users = self.groups.iter().filter(|(_, state)| state.meters.iter().any(|id| gone.contains(id)));
        let users: Vec<u32> = users.map(|(id, _)| *id).collect();
        self.delete_groups(&users, batch)
    }

    fn put_meter(&mut self, meter: &Meter, batch: &mut Batch) -> Result<(), FlowError> {
        if meter.id == 0 || meter.id > 0xffff_0000 {
            return Err(FlowError::InvalidMeter);
        }
        if meter.bands.len() > MAX_BANDS {
            return Err(FlowError::OutOfBands);
        }
        let is_bad =
            |band: &Band| matches!(band.kind, BandKind::DscpRemark(raise) if raise == 0 || raise > 3);
        if meter.bands.iter().any(is_bad) {
            return Err(FlowError::BadBand);
        }
        if meter.bands.iter().any(|band| band.rate == 0) {
            return Err(FlowError::BadRate);
        }
        batch.work(WORK_OF_CHANGE)?;
        let old = self.meters.remove(&meter.id);
        let state = MeterState {
            created_ns: old.as_ref().map_or(batch.now_ns, |old| old.created_ns),
            packets: old.as_ref().map_or(0, |old| old.packets),
            bytes: old.as_ref().map_or(0, |old| old.bytes),
            bands: vec![(0, 0); meter.bands.len()],
            meter: Arc::new(meter.clone()),
        };
        batch.meter(meter.id, old);
        self.meters.insert(meter.id, state);
        self.touch(Touched::All);
        Ok(())
    }
}
