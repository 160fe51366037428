//! Readers of two kinds: workers, which pass quiescent points by themselves ([`Domain`]), and strangers, which do not know of us.
//!
//! Programs in the kernel read tables that we write, and never say when they are done. All that can be had is to wait until whoever
//! began before now has ended, which takes milliseconds. A thread of [`Strangers`] does so when it is asked to, once for all that was
//! asked meanwhile, and sleeps otherwise. What is unlinked is free to be used again when both kinds have let go of it.
//!
//! ```text
//!   writer: unlink, begin ──► ticket ──► workers' grace period: their own quiescent points
//!                               └──────► strangers' grace period: the thread's next wait, from begin to end
//! ```

use std::fmt;
use std::io;
use std::thread::Thread;

use crate::primitives::{Arc, AtomicBool, Ordering};
use crate::qsbr::{Domain, Grace};

/// Words that strangers read, too. They are as long as they are, and only ever read and written whole.
pub type Memory = Box<dyn AsRef<[std::sync::atomic::AtomicU64]> + Send + Sync>;

/// Readers that never pass a quiescent point by themselves. Dropping it ends its thread.
pub struct Strangers {
    domain: Arc<Domain>,
    asked: Arc<Asked>,
    thread: Thread,
}

#[derive(Default)]
struct Asked {
    /// Somebody waits who began since the last wait began.
    again: AtomicBool,
    end: AtomicBool,
}

impl Strangers {
    /// `wait` returns when all readers have ended that began before it was called; it is called on a thread of its own.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(wait: impl Fn() + Send + 'static) -> io::Result<Arc<Strangers>> {
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
                // Whoever asked has begun before: this moment covers it, and the wait begins after it.
                let then = reader.moment();
                wait();
                reader.was_quiescent(then);
            }
        })?;
        Ok(Arc::new(Strangers { domain, asked, thread: thread.thread().clone() }))
    }

    fn begin(&self) -> Grace {
        let grace = self.domain.begin_grace();
        if !self.asked.again.swap(true, Ordering::AcqRel) {
            self.thread.unpark();
        }
        grace
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.asked.end.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl fmt::Debug for Strangers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Strangers").field("domain", &self.domain).finish_non_exhaustive()
    }
}

/// All who read something that one writer changes.
#[derive(Clone, Debug)]
pub struct Readers {
    workers: Arc<Domain>,
    strangers: Option<Arc<Strangers>>,
}

/// What was unlinked before it was made is free to be used again when [`Readers::are_past`] it.
#[derive(Clone, Copy, Debug)]
#[must_use = "a ticket protects nothing unless somebody asks for it"]
pub struct Ticket(Grace, Option<Grace>);

impl Readers {
    /// Workers alone.
    #[must_use]
    pub fn of(workers: &Arc<Domain>) -> Readers {
        Readers { workers: Arc::clone(workers), strangers: None }
    }

    /// Workers and strangers.
    #[must_use]
    pub fn with(workers: &Arc<Domain>, strangers: &Arc<Strangers>) -> Readers {
        Readers { workers: Arc::clone(workers), strangers: Some(Arc::clone(strangers)) }
    }

    /// The workers' domain.
    #[must_use]
    pub fn workers(&self) -> &Arc<Domain> {
        &self.workers
    }

    /// For everything that the caller has unlinked so far.
    pub fn begin(&self) -> Ticket {
        Ticket(self.workers.begin_grace(), self.strangers.as_ref().map(|strangers| strangers.begin()))
    }

    /// Whether nobody can read any more what was unlinked before. Never blocks.
    #[must_use]
    pub fn are_past(&self, ticket: Ticket) -> bool {
        let strangers = self.strangers.as_ref().zip(ticket.1);
        self.workers.has_passed(ticket.0) && strangers.is_none_or(|(all, grace)| all.domain.has_passed(grace))
    }

    /// Blocks until strangers are past it, some milliseconds; workers may not be. For control threads.
    pub fn wait_for_strangers(&self, ticket: Ticket) {
        if let (Some(strangers), Some(grace)) = (&self.strangers, ticket.1) {
            strangers.domain.wait(grace);
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
        let strangers = Strangers::start(move || {
            began.send(()).unwrap();
            let _ = goes.recv();
        });
        let readers = Readers::with(&domain, &strangers.unwrap());
        let first = readers.begin();
        worker.quiescent();
        begins.recv().unwrap();
        // This one began after the wait did, so that wait does not count for it.
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
        // Without asking nobody waits.
        assert!(begins.try_recv().is_err());
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
