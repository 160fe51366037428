//! Limits of the resources that API clients may use at the same time. No client, and no group of clients, can prevent
//! root or the daemon itself from working.
//!
//! Each kind of resource (work on blocking threads, changes, streams, configurations, measurements) has a separate
//! [`Quota`]. A client may hold a limited number of a quota's permits. A client is a user, or a token, regardless of
//! the address from which the token is used. Clients of the scope `root` have separate permits.
//!
//! A [`Permit`] belongs to the work of a request. If a client disconnects, its work continues, and the permit is held
//! until the work is done.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use model::Scope;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::caller::{Caller, Origin};

/// Maximum number of threads that clients with the scope `root` may occupy with blocking work at
/// the same time.
const ROOT_WORK: usize = 4;
/// Maximum number of threads that all clients without the scope `root` together may occupy with
/// blocking work at the same time.
const OTHERS_WORK: usize = 8;

/// Maximum number of threads that API clients may occupy with blocking work at the same time. The daemon itself needs
/// additional threads, such as one for a configuration change.
pub const BLOCKING_WORK: usize = ROOT_WORK + OTHERS_WORK;

/// Client to which a permit of a quota is attributed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Holder {
    /// A client with the scope `root`, connected through the Unix socket or through TCP.
    Root,
    /// A local user, with the user's ID.
    User(u32),
    /// All clients that present the token with this name.
    Token(String),
    /// A client that the daemon could not identify.
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

/// Quotas for all kinds of resources that API clients can hold. Clones refer to the same quotas.
#[derive(Clone)]
pub(crate) struct Quotas {
    /// Quota of work that blocks a thread.
    pub work: Quota,
    /// Quota of configuration changes that are in progress or wait for another change to end.
    pub changes: Quota,
    /// Quota of streams (live events, traces and captures).
    pub streams: Quota,
    /// Quota of requests that check a configuration without applying it.
    pub checks: Quota,
    /// Quota of configurations that are being parsed to be applied.
    pub texts: Quota,
    /// Quota of comparisons of a router with the kernel's state. Changes of the router wait until a comparison has
    /// ended.
    pub drifts: Quota,
    /// Quota of measurements of BPF program runs. During a measurement, the kernel counts the runs of all BPF programs.
    pub measurements: Quota,
    /// Quota of requests that explain a packet. For each such request, the kernel verifies a program.
    pub explanations: Quota,
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
            explanations: Quota::new(1, 1, 1),
        }
    }
}

/// Quota of one kind of resource. Clones refer to the same quota.
#[derive(Clone)]
pub(crate) struct Quota {
    inside: Arc<Inside>,
}

struct Inside {
    /// Permits for all clients without the scope `root` together.
    others: Arc<Semaphore>,
    /// Permits for all clients with the scope `root` together.
    root: Arc<Semaphore>,
    /// Maximum number of permits that one client without the scope `root` may hold.
    share: usize,
    /// Semaphore with the permits of each client that currently holds permits or waits for permits.
    shares: Mutex<HashMap<Holder, Weak<Semaphore>>>,
}

/// Permit of a client to use one unit of a resource, such as one thread. The permit is released when this value is
/// dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _own: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl Quota {
    /// Creates a quota. There are `others` permits for clients without the scope `root`, of which one client
    /// may hold `share`, and `root` permits for clients with the scope `root`.
    pub fn new(others: usize, share: usize, root: usize) -> Quota {
        let (others, root) = (Arc::new(Semaphore::new(others)), Arc::new(Semaphore::new(root)));
        Quota { inside: Arc::new(Inside { others, root, share, shares: Mutex::default() }) }
    }

    /// Waits for a permit for the client. Waiting requests get permits in the order of their arrival. If a client
    /// already holds its maximum number of permits, its requests do not delay other clients while they wait.
    pub async fn enter(&self, holder: &Holder) -> Permit {
        let (own, all) = self.of(holder);
        // The semaphores are never closed.
        let own = own.acquire_owned().await.ok();
        let of_all = match all {
            Some(all) => all.acquire_owned().await.ok(),
            None => None,
        };
        Permit { _own: own, _of_all: of_all }
    }

    /// Returns a permit for the client, or `None` if no permit is available immediately.
    pub fn try_enter(&self, holder: &Holder) -> Option<Permit> {
        let (own, all) = self.of(holder);
        let own = own.try_acquire_owned().ok()?;
        let of_all = match all {
            Some(all) => Some(all.try_acquire_owned().ok()?),
            None => None,
        };
        Some(Permit { _own: Some(own), _of_all: of_all })
    }

    /// Returns the semaphore that limits this client, and the semaphore that limits all clients without the scope
    /// `root` together. For a client with the scope `root`, the first semaphore limits all such clients together, and
    /// the second value is `None`.
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

    /// Checks that one client can hold its maximum number of permits, that all clients together can hold all permits
    /// except those of root, and that dropped permits are available again.
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

    /// Checks that a client that already holds its maximum number of permits can wait for another permit without using
    /// up the permits of other clients.
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
