//! Dumps and purges of the megaflows. Each round of the slow path processes only a part of the megaflows, so that
//! upcalls do not wait until all 200,000 megaflows are processed.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use super::SlowPath;
use super::record::Record;
use super::requests::Job;
use crate::flows::{Asked, FlowTables, Live, MegaflowView};

/// Number of megaflow records that a dump or purge processes in one round of the slow path.
const SLICE: usize = 256;
/// Capacity of the channel from the slow path to the thread that requested a dump, in megaflows.
const QUEUE: usize = 1024;
/// Approximate memory of the compact form of a megaflow's key and mask, in bytes, including allocation overhead. The
/// estimate assumes a mask of several fields. The cached actions are not included, because megaflows share them.
const WORDS: usize = 128;

impl FlowTables {
    /// Starts a dump of this bridge's megaflows. Returns the receiving end of a channel, which closes after
    /// the last megaflow. Megaflows that are installed or removed during the dump may or may not be included.
    /// Dropping the receiver ends the dump.
    #[must_use]
    pub fn megaflows(&self) -> Receiver<MegaflowView> {
        let (to, views) = sync_channel(QUEUE);
        self.ask(Asked::Dump(to));
        views
    }

    /// Starts the removal of all megaflows of this bridge from the workers' caches. The slow path
    /// calls `done` when the removal messages have been sent to the workers. A later
    /// [`FlowTables::barrier`] completes when the workers have removed the megaflows.
    pub fn purge(&self, done: impl FnOnce() + Send + 'static) {
        self.ask(Asked::Purge(Box::new(done)));
    }
}

impl SlowPath {
    /// Processes some records of each dump and purge in progress. Returns whether there was any work.
    pub(super) fn jobs(&mut self) -> bool {
        let mut did = false;
        for mut job in std::mem::take(&mut self.jobs) {
            let (slice, goes_on) = match &mut job {
                Job::Dump { bridge, at, to } => self.dump(*bridge, at, to),
                Job::Purge { bridge, at, done } => (true, self.purge(*bridge, at, done)),
            };
            did |= slice;
            if goes_on {
                self.jobs.push(job);
            }
        }
        did
    }

    /// Sends some megaflows of a dump, beginning with record `at`. Returns two values: whether any record was
    /// processed, and whether the dump continues.
    fn dump(&self, bridge: u16, at: &mut usize, to: &SyncSender<MegaflowView>) -> (bool, bool) {
        let from = *at;
        let end = (from + SLICE).min(self.records.len());
        while *at < end {
            if let Some(Some(record)) = self.records.get(*at)
                && record.bridge.tables.number() == bridge
                && !record.leaving
            {
                match to.try_send(view(record)) {
                    Ok(()) => {}
                    // The receiver determines the speed of the dump.
                    Err(TrySendError::Full(_)) => return (*at > from, true),
                    Err(TrySendError::Disconnected(_)) => return (true, false),
                }
            }
            *at += 1;
        }
        (true, end < self.records.len())
    }

    fn purge(&mut self, bridge: u16, at: &mut usize, done: &mut Option<Box<dyn FnOnce() + Send>>) -> bool {
        let end = (*at + SLICE).min(self.records.len());
        for id in *at..end {
            let is_here = matches!(self.records.get(id), Some(Some(record))
                if record.bridge.tables.number() == bridge && !record.leaving);
            if let (true, Ok(id)) = (is_here, u32::try_from(id)) {
                self.dismiss(id);
            }
        }
        *at = end;
        if end < self.records.len() {
            return true;
        }
        if let Some(done) = done.take() {
            done();
        }
        false
    }

    /// Returns the approximate memory of the megaflow records in bytes.
    pub(super) fn memory(&self) -> usize {
        let places = self.records.capacity() * size_of::<Option<Record>>()
            + self.names.capacity() * size_of::<(u64, u32)>();
        let each = WORDS + size_of::<Live>();
        places + self.flows * each + self.cached_actions.memory() + self.recirculations.memory()
    }
}

fn view(record: &Record) -> MegaflowView {
    let (flow, mask) = record.bits.both();
    MegaflowView {
        worker: record.worker,
        port: record.arrival,
        recirculation: record.recirculation.as_ref().and_then(|to| to.number),
        flow,
        mask,
        packets: record.live.packets.get() + record.hook.packets(),
        bytes: record.live.bytes.get() + record.hook.bytes(),
        used_ns: record.live.used_ns.get().max(record.hook.used_ns()),
        actions: Arc::clone(&record.actions),
    }
}
