//! The stage for few stations: what is recalled is decided in one tight loop, what is not by the table.

use packet::record::Recorder;
use packet::{FlowKey, Layers};

use super::{Pass, Scratch, class_of, ingress};
use crate::decision::Decision;
use crate::recall::{Class, Recall, State, Way};

impl<R: Recorder> Pass<'_, R> {
    /// Decides about frames by what is recalled, and one by one about those in between.
    pub(super) fn decide_recalling(
        &mut self,
        keys: &[FlowKey],
        layers: &[Layers],
        out: &mut [Decision],
        scratch: &mut Scratch,
    ) {
        let frames = keys.len().min(layers.len()).min(out.len());
        let (keys, layers, out) = (&keys[..frames], &layers[..frames], &mut out[..frames]);
        let mut at = 0;
        while let Some(key) = keys.get(at) {
            // Again after each frame that was not recalled: it may have changed the table.
            self.enter_epoch(&mut scratch.recall);
            let way = self.way(key, &mut scratch.recall);
            at += way.map_or(0, |way| scratch.recall.decide(way, &keys[at..], &mut out[at..]));
            // The frame that ended the run, unless only because it came in another way.
            if let Some(key) = keys.get(at).filter(|key| way.is_none_or(|way| way.ingress == ingress(key))) {
                self.decide_one(at, key, &layers[at], way, out, scratch);
                at += 1;
            }
        }
    }

    /// Enters the epoch of the bridge's state as it is now.
    #[inline]
    fn enter_epoch(&self, recall: &mut Recall) {
        let changes = self.bridge.tables.changes();
        recall.enter(State { view: self.view.number, changes, secs: self.now.secs });
    }

    /// The way in of a frame, unless it is not admitted that way.
    #[inline]
    fn way(&mut self, key: &FlowKey, recall: &mut Recall) -> Option<Way> {
        let ingress = ingress(key);
        recall.way(ingress).or_else(|| {
            let by = self.admission(key).outcome.ok()?;
            let class = Class { vid: by.vid, form: by.form, protected: by.member.protected };
            Some(recall.open(ingress, by.member.port, class))
        })
    }

    /// Decides by the table, and notes what it says.
    fn decide_one(
        &mut self,
        at: usize,
        key: &FlowKey,
        layers: &Layers,
        way: Option<Way>,
        out: &mut [Decision],
        scratch: &mut Scratch,
    ) {
        let number = u16::try_from(at).unwrap_or(u16::MAX);
        let lane = match self.admit(number, key) {
            Ok(lane) => lane,
            Err(reason) => {
                out[at] = Decision::Drop(reason);
                return;
            }
        };
        let places = (self.table.hash(lane.source), self.table.hash(lane.destination));
        out[at] = self.decide(key, layers, lane, places, &mut scratch.recall, way);
        if lane.by.member.limited && class_of(&out[at]).is_some() {
            scratch.judged.push(number);
        }
    }
}
