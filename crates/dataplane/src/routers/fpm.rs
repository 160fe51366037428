//! FPM for routers: the daemon receives routes from FRR over the Forwarding Plane Manager protocol
//! (`netlink::fpm`).

use std::time::Duration;

use control::PlaneError;
use model::{FpmPhase, FpmState, RouterName};
use netlink::{Follower, Fpm, FpmListener, Mirror};
use port::netns::Netns;

use super::{Running, object};
use crate::users::user_id;

/// Returns the FPM source of a router. Returns `None` if FPM is not configured. If the running router `before` has an
/// equal FPM address and namespace, the new source uses the listening socket of `before`. If `starting` is true and the
/// address is in use, the socket is created as soon as the address is available, because a predecessor process may use
/// the address during an upgrade.
///
/// # Errors
/// Returns an error if no socket can listen on the address.
pub fn source(
    name: &RouterName,
    wanted: &model::Router,
    before: Option<&Running>,
    starting: bool,
) -> Result<Option<Fpm>, PlaneError> {
    let settings = &wanted.settings;
    let Some(address) = settings.fpm else { return Ok(None) };
    let netns = settings.namespace.as_ref().map(|namespace| Netns::Path(namespace.path()));
    let same = |running: &&Running| {
        let other = &running.wanted.settings;
        (other.fpm, &other.namespace) == (settings.fpm, &settings.namespace)
    };
    let listener = match before.filter(same).and_then(|running| running.follower.listener()) {
        Some(shared) => shared,
        None if starting => FpmListener::later(netns.as_ref(), address),
        None => FpmListener::bind(netns.as_ref(), address).map_err(|error| {
            let fix = "end what listens there (`ss -ltnp` in its namespace), or name another address, in zebra's `fpm address` too";
            PlaneError::failed(format!("{}.fpm", object(name)), &error, fix)
        })?,
    };
    Ok(Some(Fpm {
        name: name.to_string(),
        listener,
        settle: Duration::from_secs(settings.fpm_settle.into()),
        routes: usize::try_from(settings.routes).unwrap_or(usize::MAX),
        users: settings.fpm_users.iter().filter_map(|user| user_id(user)).collect(),
        remote: settings.fpm_remote,
    }))
}

/// State of a router's FPM sessions, without the number of routes, which [`Standing::told`] adds.
pub struct Standing {
    state: FpmState,
    /// Number of routes that the FPM session has announced. If `None`, the routes must be counted in the mirror (the
    /// daemon's copy of the kernel's routing state).
    named: Option<u64>,
}

impl Standing {
    /// Returns the complete FPM state, with the number of routes that FRR has announced.
    pub fn told(self, mirror: &Mirror) -> FpmState {
        FpmState { routes: self.named.unwrap_or_else(|| mirror.announced()), ..self.state }
    }
}

/// Returns the state of a router's FPM sessions. Returns `None` if FPM is not configured.
pub fn state(follower: &Follower, wanted: &model::Router) -> Option<Standing> {
    let (status, listen) = (follower.fpm()?, wanted.settings.fpm?);
    let state = match (status.peer, status.replaying) {
        (None, _) => FpmPhase::Waiting,
        (Some(_), true) => FpmPhase::Replaying,
        (Some(_), false) => FpmPhase::Connected,
    };
    let state = FpmState {
        listen: listen.to_string(),
        state,
        peer: status.peer.map(|(peer, _)| peer.to_string()),
        seconds: status.peer.map(|(_, lasts)| lasts.as_secs()),
        routes: 0,
        sessions: status.sessions,
        messages: status.messages,
        left: status.left,
        refused: status.refused,
        swept: status.swept,
        answers: status.answers,
        ended: status.ended,
        trouble: status.trouble,
    };
    Some(Standing { state, named: status.named })
}
