//! Start and end of captures and traces. At most one capture or trace runs at a time in an engine.

use std::sync::Arc;

use packet::{PortId, WorkerId};
use sync::spsc::{Consumer, channel};

use super::{Engine, EngineError, lock};
use crate::capture::{CaptureReader, Wanted, taps};
use crate::trace::{TraceFilter, Traced};
use crate::worker::Command;

/// Capacity of the ring on which one worker sends its trace reports, in reports.
const TRACED: usize = 64;

impl Engine {
    /// Starts a capture. The caller ends the capture with [`Self::end_capture`].
    ///
    /// # Errors
    /// - [`EngineError::Occupied`] while another capture or a trace runs.
    /// - [`EngineError::Silent`] when a worker does not answer. No capture runs in this case.
    pub fn capture(&self, wanted: &Wanted) -> Result<CaptureReader, EngineError> {
        self.occupy("capture")?;
        let (taps, reader) = taps(self.workers.len(), self.generation(), wanted);
        let mut pairs = (0_u16..).zip(taps);
        if let Err(error) =
            pairs.try_for_each(|(id, tap)| self.tell(WorkerId(id), Command::Capture(Some(tap))))
        {
            self.disarm(|| Command::Capture(None));
            return Err(error);
        }
        let Wanted { port, only_drops, .. } = *wanted;
        self.update(|f| {
            f.capture_drops = true;
            for (index, view) in f.ports.iter_mut().enumerate() {
                if let Some(view) = view {
                    view.capture = !only_drops && port.is_none_or(|p| p.index() == index);
                }
            }
        });
        Ok(reader)
    }

    fn occupy(&self, what: &'static str) -> Result<(), EngineError> {
        let mut taken = lock(&self.capturing);
        if std::mem::replace(&mut *taken, true) { Err(EngineError::Occupied(what)) } else { Ok(()) }
    }

    /// Ends a capture or trace on all workers that answer. Afterwards, another capture or trace may start.
    fn disarm(&self, command: impl Fn() -> Command) {
        for handle in &self.workers {
            // The function does not wait for a full mailbox, because the worker of a full mailbox may be the
            // reason for the cancellation.
            let _ = lock(&handle.commands).push(command());
            handle.waker.notify();
        }
        *lock(&self.capturing) = false;
    }

    /// Ends a capture and frees the frames of its copies. The call has no effect if the capture was started
    /// in an earlier engine of this process. In this case, the copies' frames already belong to this engine,
    /// and any capture that runs in this engine is a different one.
    pub fn end_capture(&self, reader: CaptureReader) {
        if reader.generation != self.generation() {
            return;
        }
        self.update(|f| {
            f.capture_drops = false;
            f.ports.iter_mut().flatten().for_each(|view| view.capture = false);
        });
        for worker in (0_u16..).map(WorkerId).take(self.workers.len()) {
            let _ = self.tell(worker, Command::Capture(None));
        }
        self.domain.synchronize();
        let mut pool = self.pool();
        for mut ring in reader.rings {
            while let Some(captured) = ring.pop() {
                pool.free(captured.packet);
            }
        }
        *lock(&self.capturing) = false;
    }

    /// Starts a trace of the next packets that match `filter`. The caller ends the trace with
    /// [`Self::end_trace`].
    ///
    /// # Errors
    /// - [`EngineError::Occupied`] while a trace or capture runs.
    /// - [`EngineError::Silent`] when a worker does not answer. No trace runs in this case.
    pub fn trace(&self, filter: TraceFilter) -> Result<Vec<Consumer<Box<Traced>>>, EngineError> {
        self.occupy("trace or capture")?;
        let mut rings = Vec::with_capacity(self.workers.len());
        for worker in (0_u16..).map(WorkerId).take(self.workers.len()) {
            let (ring, reader) = channel(TRACED);
            if let Err(error) = self.tell(worker, Command::Trace(Some(ring))) {
                self.disarm(|| Command::Trace(None));
                return Err(error);
            }
            rings.push(reader);
        }
        self.update(|f| f.trace = Some(Arc::new(filter)));
        Ok(rings)
    }

    /// Ends the trace that was started in the engine with this generation number ([`Self::generation`]). The call has
    /// no effect if the trace was started in an earlier engine of this process.
    pub fn end_trace(&self, generation: u64) {
        if generation != self.generation() {
            return;
        }
        self.update(|f| f.trace = None);
        for worker in (0_u16..).map(WorkerId).take(self.workers.len()) {
            let _ = self.tell(worker, Command::Trace(None));
        }
        *lock(&self.capturing) = false;
    }
}

impl Wanted {
    /// Creates criteria that select all packets of one port, or the packets of all ports if `port` is `None`.
    #[must_use]
    pub fn all(port: Option<PortId>) -> Self {
        Self { port, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use port::{Depot, FrameMemory, HugePages, MemoryConfig};

    use super::*;
    use crate::{EngineConfig, PollMode};

    #[test]
    fn an_engine_ends_only_captures_and_traces_of_its_own() {
        let memory = MemoryConfig { frames: 64, frame_size: 2048, huge_pages: HugePages::Off };
        let memory = Arc::new(FrameMemory::new(memory).unwrap());
        let engine = || Engine::start(&EngineConfig::default(), Depot::new(Arc::clone(&memory))).unwrap();
        let (old, new) = (engine(), engine());
        let (stale, generation) = (old.capture(&Wanted::all(None)).unwrap(), old.generation());
        let free = new.depot().available();
        let reader = new.capture(&Wanted::all(None)).unwrap();
        new.end_capture(stale);
        new.end_trace(generation);
        assert!(new.capture(&Wanted::all(None)).is_err(), "the capture of the new engine goes on");
        assert_eq!(new.depot().available(), free);
        new.end_capture(reader);
        assert!(new.capture(&Wanted::all(None)).is_ok());
    }

    #[test]
    fn a_worker_that_does_not_answer_leaves_room_for_the_next_try() {
        let memory = MemoryConfig { frames: 64, frame_size: 2048, huge_pages: HugePages::Off };
        let depot = Depot::new(Arc::new(FrameMemory::new(memory).unwrap()));
        let config = EngineConfig { mode: PollMode::Busy, ..EngineConfig::default() };
        let (engine, mut workers) = Engine::prepare(&config, depot).unwrap();
        let mut worker = workers.pop().unwrap();
        // The worker executes no commands, so its mailbox fills up.
        while lock(&engine.workers[0].commands).push(Command::Drain(0)).is_ok() {}
        for _ in 0..2 {
            let refused = engine.capture(&Wanted::all(None)).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|why| why.contains("does not answer")));
            let refused = engine.trace(TraceFilter::new([], 1)).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|why| why.contains("does not answer")));
        }
        assert!(worker.round_with_commands());
        let reader = worker.while_offline(|| engine.capture(&Wanted::all(None)));
        assert!(reader.is_ok());
        assert!(matches!(engine.trace(TraceFilter::new([], 1)), Err(EngineError::Occupied(_))));
    }
}
