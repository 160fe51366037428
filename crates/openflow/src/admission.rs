//! The peers that a `ptcp:` listener at a loopback address lets in: processes of root, of the daemon's own user, and of the users that its
//! target names. There is no other authentication, and every user of the machine reaches such an address.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use port::tcp_users::{TcpUsers, User, is_own};

use crate::target::{Address, Target};

/// Lines of the log that peers can cause, a minute.
const LINES: u32 = 10;

/// What a listener asks of its peers.
pub(crate) struct Admission {
    allowed: Vec<u32>,
    /// `None` before the first peer, and while it is asked on another thread.
    users: Option<TcpUsers>,
    /// Lines of this minute.
    lines: (Instant, u32),
}

impl Admission {
    /// What a target asks; `None`: nothing.
    pub fn of(target: &Target) -> Option<Admission> {
        let allowed = target.users.clone()?;
        let asks = matches!(target.address, Address::ListenTcp(_)) && !target.allow_remote;
        asks.then(|| Admission { allowed, users: None, lines: (Instant::now(), 0) })
    }

    /// Finds out whether a peer may speak here.
    ///
    /// # Errors
    /// Why it may not.
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

    /// Whether a peer may cause another line.
    pub fn may_log(&mut self) -> bool {
        let (since, lines) = &mut self.lines;
        if since.elapsed() >= Duration::from_secs(60) {
            (*since, *lines) = (Instant::now(), 0);
        }
        *lines += 1;
        *lines <= LINES
    }
}
