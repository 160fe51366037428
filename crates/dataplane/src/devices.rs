//! Tracks the devices in the ports' namespaces with the kernel's netlink notifications. There is one subscription for
//! each namespace.
//!
//! The housekeeping thread waits on [`DeviceWatches::readiness`]. Therefore, the data plane reacts within
//! about a millisecond to a link that comes up.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::linux::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::Namespace;
use port::netns::{self, Netns, NetnsError};
use port::watch::LinkWatch;
use rustix::event::{PollFd, PollFlags, epoll, poll};

use super::device::place;

/// Interval at which all devices of a namespace are read again, in case a notification was lost.
const LISTING: Duration = Duration::from_secs(30);
/// Minimum pause after all devices of a namespace were read, as a multiple of the time that reading them took. The
/// pause limits the share of CPU time that is spent on reading devices.
pub const LISTING_SHARE: u32 = 10;

/// Device subscriptions, indexed by the path of the namespace's file. The empty path is the daemon's own
/// namespace.
pub struct DeviceWatches {
    /// Epoll instance for all device subscriptions. `None` if the kernel refused a file descriptor.
    /// Notifications are then read four times a second.
    epoll: Option<Arc<OwnedFd>>,
    namespaces: BTreeMap<PathBuf, Watched>,
}

/// State of the subscription to the device notifications of one namespace.
struct Watched {
    namespace: Option<Namespace>,
    /// Device number and inode of the namespace's file.
    identity: Option<(u64, u64)>,
    state: State,
    /// Whether the daemon has already logged that the kernel cannot list the namespace's devices.
    is_silent: bool,
    listed: Instant,
    /// Earliest time at which the namespace's devices may be listed again.
    not_before: Instant,
}

impl Watched {
    /// Returns whether the pause after the last listing of the devices has passed.
    fn may_list(&self) -> bool {
        Instant::now() >= self.not_before
    }

    /// Records that a listing of the namespace's devices began at `begin` and has ended now. Computes the pause before
    /// the next listing, so that listings take at most a tenth of the time. Without the pause, the owner of a namespace
    /// with thousands of devices could cause listings all the time, and the data plane is locked during a listing.
    fn has_listed(&mut self, begin: Instant) {
        let now = Instant::now();
        self.not_before = now + LISTING_SHARE * now.duration_since(begin);
    }
}

enum State {
    /// The subscription is open, and the devices of the namespace are known.
    Followed(LinkWatch),
    /// The namespace does not exist or cannot be entered. The text is the error message.
    Missing(String),
    /// The kernel cannot list the devices now (for example, no file descriptors or memory are left).
    Unknown,
}

/// Current devices of a namespace, with which the recorded device of each port is compared, or the reason why the
/// devices are unknown.
pub enum Devices<'a> {
    /// The namespace exists and its devices are known. The pair is the device number and the inode of the
    /// namespace's file, and is `None` for the daemon's own namespace.
    Known(&'a LinkWatch, Option<(u64, u64)>),
    /// The namespace does not exist or cannot be entered. The text is the error message.
    Missing(&'a str),
    /// The kernel cannot list the devices now, so the devices of the namespace are unknown.
    Unknown,
}

impl DeviceWatches {
    /// Creates device watches without a subscription to any namespace.
    pub fn new() -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).ok().map(Arc::new);
        DeviceWatches { epoll, namespaces: BTreeMap::new() }
    }

    /// Returns the epoll descriptor that becomes readable when device notifications are waiting.
    pub fn readiness(&self) -> Option<Arc<OwnedFd>> {
        self.epoll.clone()
    }

    /// Subscribes to the device notifications of the namespaces in `wanted` and of no others, and reads the
    /// notifications that have arrived.
    pub fn read<'n>(&mut self, wanted: impl Iterator<Item = Option<&'n Namespace>>) {
        let wanted: BTreeSet<Option<&Namespace>> = wanted.collect();
        let now = Instant::now();
        self.namespaces.retain(|_, watched| wanted.contains(&watched.namespace.as_ref()));
        for namespace in wanted {
            let watched = self.namespaces.entry(place(namespace)).or_insert_with(|| Watched {
                namespace: namespace.cloned(),
                identity: None,
                state: State::Unknown,
                is_silent: false,
                listed: now,
                not_before: now,
            });
            watched.read(self.epoll.as_deref(), now);
        }
    }

    /// Returns the current devices of a namespace. The last call of [`DeviceWatches::read`] must have included the
    /// namespace.
    pub fn of(&self, namespace: Option<&Namespace>) -> Devices<'_> {
        let Some(watched) = self.namespaces.get(&place(namespace)) else { return Devices::Unknown };
        match &watched.state {
            State::Followed(watch) => Devices::Known(watch, watched.identity),
            State::Missing(why) => Devices::Missing(why),
            State::Unknown => Devices::Unknown,
        }
    }
}

impl Watched {
    fn read(&mut self, epoll: Option<&OwnedFd>, now: Instant) {
        let identity = self.namespace.as_ref().map(identity);
        if let Some(Err(why)) = &identity {
            // The open subscription would keep the namespace alive.
            self.state = State::Missing(why.to_string());
            return;
        }
        let identity = identity.and_then(Result::ok);
        if let State::Followed(watch) = &mut self.state
            && self.identity == identity
        {
            let read = watch.poll().map(drop);
            let list = read.is_err() || watch.needs_resync() || now.duration_since(self.listed) >= LISTING;
            if !list || now < self.not_before {
                return;
            }
            self.listed = now;
            let begin = Instant::now();
            let listed = inside(self.namespace.as_ref(), || watch.resync().map(drop));
            self.has_listed(begin);
            match (read, listed) {
                (Ok(()), Ok(Ok(()))) => return,
                (read, listed) => {
                    let read = read.err().map(|error| error.to_string());
                    let entered = listed.map_err(|error| error.to_string());
                    let listed = entered.and_then(|listed| listed.map_err(|error| error.to_string())).err();
                    let error = read.or(listed).unwrap_or_default();
                    tracing::warn!(
                        error,
                        "notifications of devices cannot be read; the devices are listed anew"
                    );
                }
            }
        }
        if !self.may_list() {
            self.state = State::Unknown;
            return;
        }
        (self.identity, self.listed) = (identity, now);
        let begin = Instant::now();
        let opened = inside(self.namespace.as_ref(), LinkWatch::open);
        self.has_listed(begin);
        self.state = match opened {
            Ok(Ok(watch)) => {
                let data = epoll::EventData::new_u64(0);
                // If the subscription cannot be added to epoll, it is read when the devices are polled, four times a
                // second.
                let _ = epoll.map(|epoll| epoll::add(epoll, watch.fd(), data, epoll::EventFlags::IN));
                self.is_silent = false;
                State::Followed(watch)
            }
            Ok(Err(error)) => self.unknown(&error.to_string()),
            Err(error @ NetnsError::Enter { .. }) => State::Missing(error.to_string()),
            Err(error) => self.unknown(&error.to_string()),
        };
    }

    /// Logs that the kernel cannot list the namespace's devices. Later failures are not logged until a listing has
    /// succeeded.
    fn unknown(&mut self, error: &str) -> State {
        if !std::mem::replace(&mut self.is_silent, true) {
            let namespace = place(self.namespace.as_ref());
            tracing::warn!(?namespace, error, "its devices cannot be listed now; its ports stay as they are");
        }
        State::Unknown
    }
}

/// Blocks the calling thread until device notifications are waiting or `deadline` has passed.
pub fn wait(readiness: Option<&OwnedFd>, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    let waited = readiness.zip(left.try_into().ok()).map(|(readiness, timeout)| {
        let mut descriptors = [PollFd::new(readiness, PollFlags::IN)];
        poll(&mut descriptors, Some(&timeout))
    });
    if !matches!(waited, Some(Ok(_) | Err(rustix::io::Errno::INTR))) {
        std::thread::sleep(left);
    }
}

/// Returns the device number and the inode of a namespace's file. They change if a new namespace is created under the
/// old name.
///
/// # Errors
/// Returns an error if the file does not exist.
pub fn identity(namespace: &Namespace) -> Result<(u64, u64), NetnsError> {
    let path = namespace.path();
    let file = std::fs::metadata(&path).map_err(|source| NetnsError::Open { path, source })?;
    Ok((file.st_dev(), file.st_ino()))
}

fn inside<T: Send>(namespace: Option<&Namespace>, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
    let namespace = namespace.map(|namespace| Netns::Path(namespace.path()));
    netns::within_optional(namespace.as_ref(), work)
}
