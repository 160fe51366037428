//! Grace periods for two kinds of readers: workers and external readers. Workers declare their quiescent points
//! themselves (see [`Domain`]). External readers are BPF programs in the kernel, which declare no quiescent points.
//!
//! BPF programs read tables that this process writes, and do not report when they have finished. The writer
//! can only wait until all programs that started earlier have ended, which takes milliseconds. A thread of
//! [`ExternalReaders`] does this waiting. One wait serves all requests that arrived before it began. Without requests,
//! the thread sleeps. Unlinked memory may be reused when no reader of either kind can use it any more.
//!
//! ```text
//!   writer: unlink, begin ──► ticket ──► workers' grace period: their own quiescent points
//!                               └──────► external readers' grace period: the next complete wait of the thread
//! ```

use std::fmt;
use std::io;
use std::thread::Thread;

use crate::primitives::{Arc, AtomicBool, Ordering};
use crate::qsbr::{Domain, Grace};

/// An array of words that external readers also read, for example the memory of a mapped BPF array. The number of words
/// is fixed. Each word is read and written atomically.
pub type Memory = Box<dyn AsRef<[std::sync::atomic::AtomicU64]> + Send + Sync>;

/// The external readers of a writer's data, and the thread that waits for them. External readers never pass a
/// quiescent point themselves. Dropping this value ends the thread.
pub struct ExternalReaders {
    domain: Arc<Domain>,
    asked: Arc<Asked>,
    thread: Thread,
}

#[derive(Default)]
struct Asked {
    /// Whether another wait is required, because a grace period began after the thread had begun its current wait.
    again: AtomicBool,
    end: AtomicBool,
}

impl ExternalReaders {
    /// Starts the thread that waits for external readers. `wait` must block until all external readers that
    /// began before the call of `wait` have ended.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(wait: impl Fn() + Send + 'static) -> io::Result<Arc<ExternalReaders>> {
        let domain = Domain::with_max_readers(1);
        let asked = Arc::new(Asked::default());
        let mut reader = domain.register().map_err(io::Error::other)?;
        let told = Arc::clone(&asked);
        let thread = std::thread::Builder::new().name("strangers".to_owned()).spawn(move || {
            while !told.end.load(Ordering::Acquire) {
                if !told.again.swap(false, Ordering::AcqRel) {
                    std::thread::park();
                    continue;
                }
                // Every grace period requested so far began before `then`. The wait that follows therefore covers all
                // of them.
                let then = reader.moment();
                wait();
                reader.was_quiescent(then);
            }
        })?;
        Ok(Arc::new(ExternalReaders { domain, asked, thread: thread.thread().clone() }))
    }

    fn begin(&self) -> Grace {
        let grace = self.domain.begin_grace();
        if !self.asked.again.swap(true, Ordering::AcqRel) {
            self.thread.unpark();
        }
        grace
    }
}

impl Drop for ExternalReaders {
    fn drop(&mut self) {
        self.asked.end.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl fmt::Debug for ExternalReaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Strangers").field("domain", &self.domain).finish_non_exhaustive()
    }
}

/// All readers of data that one writer changes: workers and, optionally, external readers (BPF programs).
#[derive(Clone, Debug)]
pub struct Readers {
    workers: Arc<Domain>,
    external_readers: Option<Arc<ExternalReaders>>,
    /// Whether [`Readers::wait_for_strangers`] waits for external readers. If `false`, the method returns immediately.
    waits: bool,
}

/// A grace period for the workers and one for the external readers. Memory that was unlinked before these periods began
/// may be reused when [`Readers::are_past`] returns `true`.
#[derive(Clone, Copy, Debug)]
#[must_use = "a ticket protects nothing unless somebody asks for it"]
pub struct GracePeriods(Grace, Option<Grace>);

impl Readers {
    /// Returns a set of readers that contains only the workers of a domain.
    #[must_use]
    pub fn of(workers: &Arc<Domain>) -> Readers {
        Readers { workers: Arc::clone(workers), external_readers: None, waits: true }
    }

    /// Returns a set of readers that contains the workers of a domain and external readers.
    #[must_use]
    pub fn with(workers: &Arc<Domain>, external_readers: &Arc<ExternalReaders>) -> Readers {
        Readers {
            workers: Arc::clone(workers),
            external_readers: Some(Arc::clone(external_readers)),
            waits: true,
        }
    }

    /// Returns a copy of this set for a writer that must not wait. For this copy, [`Readers::wait_for_strangers`] does
    /// nothing.
    #[must_use]
    pub fn without_waiting(&self) -> Readers {
        Readers { waits: false, ..self.clone() }
    }

    /// Returns the QSBR domain of the workers.
    #[must_use]
    pub fn workers(&self) -> &Arc<Domain> {
        &self.workers
    }

    /// Begins the grace periods for all memory that the caller has unlinked so far.
    pub fn begin(&self) -> GracePeriods {
        GracePeriods(
            self.workers.begin_grace(),
            self.external_readers.as_ref().map(|external_readers| external_readers.begin()),
        )
    }

    /// Returns whether the grace periods of `ticket` are over: no reader can still use memory that was unlinked before
    /// the periods began. The method never blocks.
    #[must_use]
    pub fn are_past(&self, ticket: GracePeriods) -> bool {
        let external_readers = self.external_readers.as_ref().zip(ticket.1);
        self.workers.has_passed(ticket.0)
            && external_readers.is_none_or(|(all, grace)| all.domain.has_passed(grace))
    }

    /// Blocks until no external reader can use memory that was unlinked before `ticket` began, which takes
    /// some milliseconds. Workers may still use the memory afterwards. Only control threads may call this
    /// method. The method does nothing for a set of [`Readers::without_waiting`].
    pub fn wait_for_strangers(&self, ticket: GracePeriods) {
        if let (true, Some(external_readers), Some(grace)) = (self.waits, &self.external_readers, ticket.1) {
            external_readers.domain.wait(grace);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_is_unlinked_waits_for_both_kinds() {
        let domain = Domain::new();
        let mut worker = domain.register().unwrap();
        let ((began, begins), (go, goes)) = (channel(), channel::<()>());
        let external_readers = ExternalReaders::start(move || {
            began.send(()).unwrap();
            let _ = goes.recv();
        });
        let readers = Readers::with(&domain, &external_readers.unwrap());
        let first = readers.begin();
        worker.quiescent();
        begins.recv().unwrap();
        // This grace period began after the wait did, so that wait does not cover it.
        let second = readers.begin();
        worker.quiescent();
        assert!(!readers.are_past(first));
        go.send(()).unwrap();
        readers.wait_for_strangers(first);
        assert!(readers.are_past(first));
        begins.recv().unwrap();
        assert!(!readers.are_past(second));
        go.send(()).unwrap();
        readers.wait_for_strangers(second);
        assert!(readers.are_past(second));
        let third = readers.begin();
        begins.recv().unwrap();
        go.send(()).unwrap();
        readers.wait_for_strangers(third);
        assert!(!readers.are_past(third), "the worker is not past it");
        // The thread does not wait without a request.
        assert!(begins.try_recv().is_err());
    }

    /// Checks that a writer that must not wait does not wait, and that its grace period still lasts until the external
    /// readers have ended.
    #[test]
    fn a_writer_without_waiting_goes_on() {
        let domain = Domain::new();
        let (go, goes) = channel::<()>();
        let external_readers = ExternalReaders::start(move || _ = goes.recv());
        let waiting = Readers::with(&domain, &external_readers.unwrap());
        let readers = waiting.without_waiting();
        let ticket = readers.begin();
        readers.wait_for_strangers(ticket);
        assert!(!readers.are_past(ticket));
        go.send(()).unwrap();
        waiting.wait_for_strangers(ticket);
        assert!(readers.are_past(ticket));
        drop(go);
    }

    #[test]
    fn workers_alone_are_waited_for_alone() {
        let domain = Domain::new();
        let mut worker = domain.register().unwrap();
        let readers = Readers::of(&domain);
        let ticket = readers.begin();
        assert!(!readers.are_past(ticket));
        readers.wait_for_strangers(ticket);
        worker.quiescent();
        assert!(readers.are_past(ticket));
    }
}
