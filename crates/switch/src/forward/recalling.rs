//! The stage for few stations: what is recalled is decided in one tight loop, what is not by the table.

use packet::record::Recorder;
use packet::{FlowKey, Layers};

use super::{Frame, Pass, Scratch, ingress};
use crate::decision::Decision;
use crate::recall::{Recall, State};

impl<R: Recorder> Pass<'_, R> {
    /// Decides about frames by what is recalled, and one by one about those in between.
    pub(super) fn decide_recalling(
        &mut self,
        keys: &[FlowKey],
        layers: &[Layers],
        out: &mut [Decision],
        scratch: &mut Scratch,
    ) {
        let mut at = 0;
        while let Some(key) = keys.get(at) {
            // Again after each frame that was not recalled: it may have changed the table.
            self.enter_epoch(&mut scratch.recall);
            let way = self.way(key, &mut scratch.recall);
            at += way.map_or(0, |way| scratch.recall.decide(way, &keys[at..], &mut out[at..]));
            // The frame that ended the run, unless only because it came in another way.
            if let Some(key) = keys.get(at).filter(|key| way.is_none_or(|way| way.ingress == ingress(key))) {
                let frame = Frame { at: u16::try_from(at).unwrap_or(u16::MAX), key, layers: &layers[at] };
                out[at] = self.decide_one::<true>(frame, None, way, scratch);
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
}
