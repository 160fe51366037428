//! State of FPM sessions in the applier thread. In an FPM session, FRR's zebra announces routes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::error::NetlinkError;
use crate::fpm::{self, Answer, Fpm, Table, locked};
use crate::mirror::{Change, Mirror};
use crate::state::FibOutcome;

/// Minimum interval between two log messages about refused routes.
const COMPLAINTS: Duration = Duration::from_secs(60);

/// State of FPM sessions in the applier thread.
pub(super) struct Sessions {
    pub(super) table: Table,
    /// Answers to zebra's announcements of routes, which report whether the routes were installed. The answers are sent
    /// after all announcements of the batch have been applied.
    pub(super) answers: Vec<Answer>,
    /// Sequence number of the present FPM session. Each session has a new number.
    pub(super) number: u64,
    pub(super) permits: Receiver<()>,
    pub(super) shared: Arc<fpm::Shared>,
    /// Name of the virtual router, for log messages.
    pub(super) name: String,
    /// Time of the last log message about refused routes, and the number of refused routes at that time.
    /// `None` before the first message.
    pub(super) complained: Option<(Instant, u64)>,
    /// Number of complete replays (announcements of all routes by zebra) since the counters were last published.
    pub(super) settled: u64,
}

impl Sessions {
    pub(super) fn new(fpm: &Fpm, permits: Receiver<()>) -> Result<Sessions, NetlinkError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(|errno| NetlinkError::Thread(errno.into()))?;
        Ok(Sessions {
            table: Table::new(fpm.routes),
            answers: Vec::new(),
            number: 0,
            permits,
            shared: Arc::new(fpm::Shared::new(wake)),
            name: fpm.name.clone(),
            complained: None,
            settled: 0,
        })
    }

    /// Logs refused routes, if more routes were refused since the last such message and the interval `COMPLAINTS` has
    /// passed.
    fn complain(&mut self) {
        let refused = self.table.refused;
        let due = match self.complained {
            None => refused > 0,
            Some((when, before)) => refused > before && when.elapsed() >= COMPLAINTS,
        };
        if due {
            let first = self.answers.iter().find(|(_, said)| said.is_some_and(|said| !said.offloaded));
            let route = first.map(|(key, _)| key.prefix().to_string()).unwrap_or_default();
            let why = "announced routes find no room, or lead to next hops that nobody has announced";
            let next = "raise `routes`; what there is goes on forwarding";
            tracing::error!(router = %self.name, refused, route, "{why}; {next}");
            self.complained = Some((Instant::now(), refused));
        }
    }

    /// Applies input of an FPM session to the mirror of the kernel's routing state. Returns the number of messages in
    /// the input.
    pub(super) fn apply(&mut self, said: fpm::Said, mirror: &mut Mirror, changes: &mut Vec<Change>) -> usize {
        match said {
            fpm::Said::Begin(number) => {
                self.number = number;
                self.answers.clear();
                self.table.begin();
            }
            fpm::Said::Lost => self.table.lost(),
            fpm::Said::Settled => {
                self.table.settled(mirror, changes);
                self.settled += 1;
            }
            fpm::Said::Events(events) => {
                let count = events.len();
                self.table.apply_all(mirror, events, changes, &mut self.answers);
                let _ = self.permits.try_recv();
                return count;
            }
        }
        0
    }

    /// Queues the answers to zebra's announcements of routes. `room` lists the routes that were refused because a table
    /// was full, and the routes that were installed after a refusal.
    pub(super) fn answer(&mut self, room: &FibOutcome) {
        self.table.no_room(&room.refused, &mut self.answers);
        self.table.found_room(&room.found, &mut self.answers);
        self.complain();
        let counts = [
            (&self.shared.left, self.table.left),
            (&self.shared.refused, self.table.refused),
            (&self.shared.swept, self.table.swept),
            (&self.shared.named, self.table.named().unwrap_or(u64::MAX)),
        ];
        counts.into_iter().for_each(|(count, now)| count.store(now, Ordering::Relaxed));
        self.shared.settling.fetch_sub(std::mem::take(&mut self.settled), Ordering::Release);
        if !self.answers.is_empty() {
            locked(&self.shared.answers).say(self.number, self.answers.drain(..));
            self.shared.wake();
        }
    }
}
