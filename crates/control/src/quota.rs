//! What clients of the API may hold at once. No client, nor all of them together, keeps root or the daemon itself out.
//!
//! Each kind of thing (work on blocking threads, changes, streams, texts, measurements) has a [`Quota`] of its own. A client (a user, or a
//! token whatever address it comes from) has a share of it. Clients of the scope `root` have permits of their own beside these.
//!
//! A [`Permit`] belongs to the work and not to the request. The work goes on when its client disconnects, and the permit is held until the work
//! is done.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use model::Scope;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::caller::{Caller, Origin};

/// Work of root's clients on blocking threads at once.
const ROOT_WORK: usize = 4;
/// Work of all other clients on blocking threads at once.
const OTHERS_WORK: usize = 8;

/// Most threads that work of the API's clients blocks at once. The event loop needs more of them for the daemon's own work: each change,
/// one at a time, and whatever else uses the same threads.
pub const BLOCKING_WORK: usize = ROOT_WORK + OTHERS_WORK;

/// The client that a permit counts for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Holder {
    /// A client of the scope `root`, over either socket.
    Root,
    /// A user of this machine.
    User(u32),
    /// The holders of a token.
    Token(String),
    /// A connection that does not say.
    Unknown,
}

impl From<&Caller> for Holder {
    fn from(caller: &Caller) -> Holder {
        match &caller.from {
            _ if caller.scope == Some(Scope::Root) => Holder::Root,
            Origin::Process { uid, .. } => Holder::User(*uid),
            Origin::Token { name, .. } => Holder::Token(name.clone()),
            Origin::Unknown => Holder::Unknown,
        }
    }
}

/// The quotas of one API. Clones are the same ones.
#[derive(Clone)]
pub(crate) struct Quotas {
    /// Work on threads that may block.
    pub work: Quota,
    /// Changes that are made or wait for the one before.
    pub changes: Quota,
    /// Streams: events, traces, captures.
    pub streams: Quota,
    /// Configurations that are checked.
    pub checks: Quota,
    /// Configurations that are read to be applied.
    pub texts: Quota,
    /// Comparisons of a router with the kernel, for which the router's changes wait.
    pub drifts: Quota,
    /// Measurements, for which the kernel counts the runs of all BPF programs.
    pub measurements: Quota,
}

impl Default for Quotas {
    fn default() -> Self {
        Quotas {
            work: Quota::new(OTHERS_WORK, OTHERS_WORK / 2, ROOT_WORK),
            changes: Quota::new(16, 8, 16),
            streams: Quota::new(12, 6, 16),
            checks: Quota::new(2, 1, 1),
            texts: Quota::new(2, 1, 2),
            drifts: Quota::new(1, 1, 1),
            measurements: Quota::new(1, 1, 1),
        }
    }
}

/// How many of one kind clients hold at once. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Quota {
    inside: Arc<Inside>,
}

struct Inside {
    /// Of all clients but root's.
    others: Arc<Semaphore>,
    /// Of root's clients.
    root: Arc<Semaphore>,
    /// Of one client.
    share: usize,
    /// Shares of the clients that hold something or wait.
    shares: Mutex<HashMap<Holder, Weak<Semaphore>>>,
}

/// Something that a client holds, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _own: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl Quota {
    /// A quota of `others` for all clients but root's, `share` of them for each, and `root` for root's.
    pub fn new(others: usize, share: usize, root: usize) -> Quota {
        let (others, root) = (Arc::new(Semaphore::new(others)), Arc::new(Semaphore::new(root)));
        Quota { inside: Arc::new(Inside { others, root, share, shares: Mutex::default() }) }
    }

    /// Waits until the client may hold one more, in the order of requests. A client waits for its own share first.
    pub async fn enter(&self, holder: &Holder) -> Permit {
        let (own, all) = self.of(holder);
        // Neither is ever closed.
        let own = own.acquire_owned().await.ok();
        let of_all = match all {
            Some(all) => all.acquire_owned().await.ok(),
            None => None,
        };
        Permit { _own: own, _of_all: of_all }
    }

    /// Gives the client one more if there is one.
    pub fn try_enter(&self, holder: &Holder) -> Option<Permit> {
        let (own, all) = self.of(holder);
        let own = own.try_acquire_owned().ok()?;
        let of_all = match all {
            Some(all) => Some(all.try_acquire_owned().ok()?),
            None => None,
        };
        Some(Permit { _own: Some(own), _of_all: of_all })
    }

    /// The client's share, and what all clients have.
    fn of(&self, holder: &Holder) -> (Arc<Semaphore>, Option<Arc<Semaphore>>) {
        if *holder == Holder::Root {
            return (self.inside.root.clone(), None);
        }
        let mut shares = self.inside.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let own = shares.get(holder).and_then(Weak::upgrade).unwrap_or_else(|| {
            let own = Arc::new(Semaphore::new(self.inside.share));
            shares.retain(|_, other| other.strong_count() > 0);
            shares.insert(holder.clone(), Arc::downgrade(&own));
            own
        });
        (own, Some(self.inside.others.clone()))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// One client takes its share, all clients all but root's, and what is dropped is free.
    #[tokio::test]
    async fn a_client_has_its_share_and_root_its_own() {
        let quota = Quota::new(3, 2, 1);
        let (one, two) = (Holder::User(1), Holder::Token("grafana".to_owned()));
        let held: Vec<Permit> = (0..2).filter_map(|_| quota.try_enter(&one)).collect();
        assert!(held.len() == 2 && quota.try_enter(&one).is_none());
        let other = quota.try_enter(&two).unwrap();
        assert!(quota.try_enter(&two).is_none(), "there are three for all");
        let root = quota.try_enter(&Holder::Root).unwrap();
        assert!(quota.try_enter(&Holder::Root).is_none());
        drop(held);
        assert!(quota.try_enter(&two).is_some());
        drop((other, root));
        drop(quota.try_enter(&Holder::User(3)));
        assert!(quota.inside.shares.lock().unwrap().len() <= 1, "clients that hold nothing are forgotten");
    }

    /// A client that waits holds no place that another could have.
    #[tokio::test]
    async fn a_client_that_waits_for_its_share_keeps_no_other_out() {
        let quota = Quota::new(2, 1, 1);
        let held = quota.try_enter(&Holder::User(1)).unwrap();
        let mut waiting = Box::pin(quota.enter(&Holder::User(1)));
        assert!((&mut waiting).now_or_never().is_none());
        assert!(quota.enter(&Holder::User(2)).now_or_never().is_some());
        drop(held);
        assert!(waiting.now_or_never().is_some());
    }
}
