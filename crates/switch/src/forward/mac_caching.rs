//! The forwarding process for a MAC table with few entries. A tight loop decides frames from the per-worker MAC
//! cache. Frames that are not cached are decided from the MAC table.

use packet::record::Recorder;
use packet::{FlowKey, Layers};

use super::{Frame, Pass, Scratch, ingress};
use crate::decision::Decision;
use crate::mac_cache::{MacCache, State};

impl<R: Recorder> Pass<'_, R> {
    /// Decides the frames of a burst from the per-worker MAC cache. Frames that are not cached are decided
    /// one by one from the MAC table.
    pub(super) fn decide_recalling(
        &mut self,
        keys: &[FlowKey],
        layers: &[Layers],
        out: &mut [Decision],
        scratch: &mut Scratch,
    ) {
        let mut at = 0;
        while let Some(key) = keys.get(at) {
            // Repeated after each frame that was not cached, because the frame may have changed the table.
            self.enter_epoch(&mut scratch.mac_cache);
            let way = self.way(key, &mut scratch.mac_cache);
            at += way.map_or(0, |way| scratch.mac_cache.decide(way, &keys[at..], &mut out[at..]));
            // Decides the frame that ended the run, unless the run ended only because the frame's ingress
            // differs.
            if let Some(key) = keys.get(at).filter(|key| way.is_none_or(|way| way.ingress == ingress(key))) {
                let frame = Frame { at: u16::try_from(at).unwrap_or(u16::MAX), key, layers: &layers[at] };
                out[at] = self.decide_one::<true>(frame, None, way, scratch);
                at += 1;
            }
        }
    }

    /// Selects the epoch of the per-worker MAC cache (the period in which cached results are valid) for the current
    /// state of the bridge.
    #[inline]
    fn enter_epoch(&self, mac_cache: &mut MacCache) {
        let changes = self.bridge.tables.changes();
        mac_cache.enter(State { view: self.view.number, changes, secs: self.now.secs });
    }
}
