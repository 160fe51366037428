//! What the decider tells of the flows it has given out, and throws away when told to: a slice in each round, so that packets of unknown
//! flows never wait for a list of 200,000.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use packet::PortId;
use switch::flow::{Flow, Op, RuleRef};

use super::Decider;
use super::record::{Fate, Record};
use crate::flows::{Asked, FlowTables, Live};

/// Flows of one slice.
const SLICE: usize = 256;
/// Flows on their way to whoever asked.
const QUEUE: usize = 1024;
/// Octets that a flow's words take, about: those of a mask of several fields, allocations' heads. Its fate is others', too.
const WORDS: usize = 128;

/// A flow that a worker has.
#[derive(Clone)]
pub struct MegaflowView {
    /// The worker.
    pub worker: usize,
    /// The port that its packets come in by.
    pub port: PortId,
    /// Its bits, without those of the port.
    pub flow: Flow,
    /// Which bits.
    pub mask: Flow,
    /// Packets so far.
    pub packets: u64,
    /// Octets so far.
    pub bytes: u64,
    /// When the last came (0: none yet), in nanoseconds.
    pub used_ns: u64,
    fate: Arc<Fate>,
}

impl MegaflowView {
    /// What is done to its packets.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.fate.compiled.program.ops
    }

    /// Rules that it stands for, in the order met.
    #[must_use]
    pub fn rules(&self) -> &[RuleRef] {
        &self.fate.rules
    }
}

/// Something that takes more than one round.
pub(super) enum Job {
    Dump { bridge: u16, at: usize, to: SyncSender<MegaflowView> },
    Purge { bridge: u16, at: usize, done: Option<Box<dyn FnOnce() + Send>> },
}

impl FlowTables {
    /// The flows that workers have of this bridge; the list ends when all have been told or nobody listens. Those that come or go meanwhile
    /// may be told or not.
    #[must_use]
    pub fn megaflows(&self) -> Receiver<MegaflowView> {
        let (to, views) = sync_channel(QUEUE);
        self.ask(Asked::Dump(to));
        views
    }

    /// Has workers throw away what they have cached of this bridge, and calls `done` when they all have been told to. A
    /// [`FlowTables::barrier`] that is asked for after that waits until they have.
    pub fn purge(&self, done: impl FnOnce() + Send + 'static) {
        self.ask(Asked::Purge(Box::new(done)));
    }
}

impl Decider {
    /// A slice of everything that is under way; whether there was anything to do.
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

    /// Whether it told anything, and whether it goes on.
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
                    // Whoever asked takes them at his pace.
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

    /// Octets that the flows' records take, about.
    pub(super) fn memory(&self) -> usize {
        let places = self.records.capacity() * size_of::<Option<Record>>()
            + self.names.capacity() * size_of::<(u64, u32)>();
        let each = WORDS + size_of::<Live>();
        places + self.flows * each
    }
}

fn view(record: &Record) -> MegaflowView {
    let (flow, mask) = record.bits.both();
    MegaflowView {
        worker: record.worker,
        port: record.port,
        flow,
        mask,
        packets: record.live.packets.get() + record.hook.packets(),
        bytes: record.live.bytes.get() + record.hook.bytes(),
        used_ns: record.live.used_ns.get().max(record.hook.used_ns()),
        fate: Arc::clone(&record.fate),
    }
}
