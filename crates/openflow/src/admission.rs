//! Admission of peers to a `ptcp:` listener on a loopback address. Every local user can connect to a loopback
//! address, and there is no other authentication. Therefore, only processes of root, of the daemon's own
//! user, and of the users that the target names are admitted.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use port::tcp_users::{TcpUsers, User, is_own};

use crate::target::{Address, Target};

/// Maximum number of log lines per minute about peers that one listener refuses.
const LINES: u32 = 10;

/// Rule for one `ptcp:` listener. The rule determines the local users whose processes may connect.
pub(crate) struct Admission {
    allowed: Vec<u32>,
    /// Interface to the kernel that finds the user of the process at the peer's end of a
    /// connection. `None` before the first peer connects, and while another thread uses the
    /// interface.
    users: Option<TcpUsers>,
    /// Start of the current minute, and the number of lines about refused peers that were logged in
    /// this minute.
    lines: (Instant, u32),
}

impl Admission {
    /// Returns the admission rule for a target. Returns `None` if the target admits every peer: a
    /// target that is not a `ptcp:` address, has no user list, or sets `allow_remote`.
    pub fn of(target: &Target) -> Option<Admission> {
        let allowed = target.users.clone()?;
        let asks = matches!(target.address, Address::ListenTcp(_)) && !target.allow_remote;
        asks.then(|| Admission { allowed, users: None, lines: (Instant::now(), 0) })
    }

    /// Checks whether a peer may connect to the listener.
    ///
    /// # Errors
    /// Returns a text with the reason why the peer is refused.
    pub async fn admit(&mut self, peer: SocketAddr, local: SocketAddr) -> Result<(), String> {
        let users = self.users.take();
        let look = move || {
            let mut users = users.unwrap_or_else(TcpUsers::open);
            let found = users.user_of(peer, local);
            (users, found)
        };
        let failed = |error: io::Error| format!("the kernel does not tell the user of its socket: {error}");
        let (users, found) = tokio::task::spawn_blocking(look).await.map_err(|error| failed(error.into()))?;
        self.users = Some(users);
        match found.map_err(failed)? {
            User::Local(user) if is_own(user) || self.allowed.contains(&user) => Ok(()),
            User::Local(user) => Err(format!(
                "it is a process of user {user}, and only those of root and of the users in `passive_users` (in OVSDB the bridge's \
                 other_config:passive-users) may change the rules; name the user there if that is meant"
            )),
            User::Gone => Err("it is closed already".to_owned()),
            User::Elsewhere => Err(
                "it is no process of this network namespace; set `allow_remote` (in OVSDB the bridge's other_config:allow-remote) if that is \
                 meant"
                    .to_owned(),
            ),
        }
    }

    /// Counts one log line about a refused peer. Returns false if the limit for the current minute
    /// is exceeded, so that the line must not be logged.
    pub fn may_log(&mut self) -> bool {
        let (since, lines) = &mut self.lines;
        if since.elapsed() >= Duration::from_secs(60) {
            (*since, *lines) = (Instant::now(), 0);
        }
        *lines += 1;
        *lines <= LINES
    }
}
