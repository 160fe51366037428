//! The predecessor's side of a hand-over.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::{FailureKind, PlaneError};
use model::{Config, Fragment, Layers, Merged, Owner};
use openflow::Sockets;
use port::FrameMemory;

use super::bundle::HandoverBundle;
use super::messages::{MemoryRecord, Offer, Order, Reply};
use super::progress::Progress;
use super::{HandoverError, Link, VERSION};

/// Time limit for the successor to prepare the take-over. The successor reads block lists and the kernel's
/// routes while this process continues to forward.
const PATIENCE: Duration = Duration::from_secs(30);

/// Listening sockets and paths that a successor needs in addition to the data plane.
#[derive(Debug)]
pub struct ListenerSet {
    /// Path of the daemon's configuration file.
    pub file: PathBuf,
    /// Path of the API's unix socket, if the command line names it.
    pub socket: Option<PathBuf>,
    /// Listening unix socket of the API.
    pub unix: UnixListener,
    /// Listening TCP socket of the API. `None` if the API has none.
    pub tcp: Option<TcpListener>,
    /// Listening OpenFlow sockets of bridges, and the socket of `ovs-appctl`.
    pub sockets: Arc<Sockets>,
    /// Names of the environment variables that the successor must not inherit, because their values apply only
    /// to this process.
    pub not_inherited: &'static [&'static str],
}

/// A successor process that is prepared to take over.
#[derive(Debug)]
pub struct Successor {
    child: Child,
    link: Link,
    progress: Arc<Progress>,
}

impl Successor {
    /// Starts the program `binary` as successor and waits until it is ready to take over.
    ///
    /// # Errors
    /// Returns an error if the successor does not start, refuses the offer, or does not answer. The successor
    /// has then ended, and this process is unchanged.
    pub fn start(
        binary: &Path,
        around: &ListenerSet,
        merged: &Merged,
        memory: &FrameMemory,
        made_by: &model::Memory,
        progress: &Arc<Progress>,
    ) -> Result<Successor, PlaneError> {
        let failed = |error: &dyn std::error::Error| refused(binary, error);
        let (link, theirs) = Link::pair().map_err(|error| failed(&error))?;
        let child = {
            let mut command = Command::new(binary);
            around.not_inherited.iter().for_each(|name| {
                command.env_remove(name);
            });
            // This process detects the end of the successor only if no other process holds the successor's end of the
            // link. The block drops the command, which holds a copy of this end.
            command
                .args(["run", "--take-over", "--config"])
                .arg(&around.file)
                .args(around.socket.iter().flat_map(|socket| [OsStr::new("--socket"), socket.as_os_str()]))
                .stdin(Stdio::from(OwnedFd::from(theirs)))
                .spawn()
                .map_err(|error| failed(&error))?
        };
        let mut successor = Successor { child, link, progress: Arc::clone(progress) };
        if !progress.started(successor.child.id()) {
            return Err(failed(&cancelled()));
        }
        let ready = successor.offer(around, merged, memory, made_by);
        ready.map(|()| successor).map_err(|error| failed(&error))
    }

    fn offer(
        &mut self,
        around: &ListenerSet,
        merged: &Merged,
        memory: &FrameMemory,
        made_by: &model::Memory,
    ) -> Result<(), HandoverError> {
        self.link.until(Instant::now() + PATIENCE);
        let (file, api, ovsdb) = parts(merged);
        let own = |error: std::io::Error| HandoverError::Own(error.to_string());
        let (paths, sockets): (Vec<_>, Vec<_>) =
            around.sockets.duplicates().map_err(own)?.into_iter().unzip();
        let offer = Offer {
            version: VERSION,
            file: file.to_toml(),
            api: api.to_json(),
            ovsdb: ovsdb.to_json(),
            memory: MemoryRecord {
                frames: memory.frames(),
                frame_size: memory.frame_size(),
                huge: memory.backing() == port::Backing::Reserved,
                transparent: memory.backing() == port::Backing::Transparent,
            },
            tcp: around.tcp.is_some(),
            sockets: paths,
            made_by: Config { memory: made_by.clone(), ..Config::default() }.to_toml(),
            commit: true,
        };
        let mut descriptors = vec![memory.fd(), around.unix.as_fd()];
        descriptors.extend(around.tcp.as_ref().map(AsFd::as_fd));
        descriptors.extend(sockets.iter().map(AsFd::as_fd));
        self.link.send(&offer, &descriptors)?;
        self.answer("its readiness")
    }

    fn answer(&mut self, what: &'static str) -> Result<(), HandoverError> {
        match self.link.receive::<Reply>(what)?.0 {
            Reply::Ready => Ok(()),
            Reply::Refused(why) => Err(HandoverError::Refused(why)),
            _ => Err(out_of_turn()),
        }
    }

    /// Sends the hand-over state, and waits until the successor forwards traffic. Returns the successor's
    /// process ID. `config` is the running configuration.
    ///
    /// # Errors
    /// Returns an error if the successor does not take over. The successor has then ended, and this process
    /// must resume the data plane from `held`. If the successor may have accessed packets, the descriptors of the
    /// ports with AF_XDP sockets are then in `held.unusable`.
    pub fn take(mut self, held: &mut HandoverBundle, config: &Config) -> Result<u32, HandoverError> {
        self.link.until(Instant::now() + held.state.patience());
        self.link.send(&held.state, &held.descriptors.in_order())?;
        if self.resumed(held, config)? {
            self.commit(held)?;
        }
        if !self.progress.taken() {
            // The successor may have used the rings.
            self.end();
            held.mark_sockets_unusable();
            return Err(cancelled());
        }
        let pid = self.child.id();
        // The successor outlives this process.
        std::mem::forget(self);
        Ok(pid)
    }

    /// Waits until the successor has rebuilt the data plane. Returns false if the successor does not support
    /// the commit step. Such a successor already forwards traffic.
    fn resumed(&mut self, held: &mut HandoverBundle, config: &Config) -> Result<bool, HandoverError> {
        loop {
            match self.link.receive::<Reply>("the successor to resume")?.0 {
                Reply::Ready => return Ok(false),
                Reply::Resumed => return Ok(true),
                Reply::Refused(why) => return Err(HandoverError::Refused(why)),
                Reply::Release(ports) => {
                    held.release(&ports, config);
                    self.link.send(&Order::Released, &[])?;
                }
                Reply::Committed => return Err(out_of_turn()),
            }
        }
    }

    /// Orders the successor to start its workers.
    ///
    /// The successor confirms the order before it accesses the first packet. If the successor has ended and
    /// the socket contains no confirmation, the rings are unchanged.
    fn commit(&mut self, held: &mut HandoverBundle) -> Result<(), HandoverError> {
        let committed = self.link.send(&Order::Commit, &[]).and_then(|()| self.confirmed());
        if let Err(error) = committed {
            self.end();
            if self.link.is_not_at_its_end() {
                held.mark_sockets_unusable();
            }
            return Err(error);
        }
        if let Err(error) = self.answer("traffic to flow again") {
            self.end();
            held.mark_sockets_unusable();
            return Err(error);
        }
        Ok(())
    }

    fn confirmed(&mut self) -> Result<(), HandoverError> {
        match self.link.receive::<Reply>("the commit's confirmation")?.0 {
            Reply::Committed => Ok(()),
            Reply::Refused(why) => Err(HandoverError::Refused(why)),
            _ => Err(out_of_turn()),
        }
    }

    /// Kills the successor and waits for its end. After that, the successor no longer accesses the frame memory
    /// or the rings.
    fn end(&mut self) {
        // After the wait, the process ID may belong to another process.
        self.progress.failed();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cancelled() -> HandoverError {
    HandoverError::Own("this process was told to end meanwhile".to_owned())
}

fn out_of_turn() -> HandoverError {
    HandoverError::Strange("an answer out of turn".to_owned())
}

impl Drop for Successor {
    fn drop(&mut self) {
        self.end();
    }
}

/// Converts the error of a failed hand-over into the API error for the client that requested the upgrade.
pub fn refused(binary: &Path, error: &dyn std::error::Error) -> PlaneError {
    PlaneError {
        kind: FailureKind::Failed,
        object: format!("upgrade to {}", binary.display()),
        cause: error.to_string(),
        fix: "the running daemon goes on; look at the log for what the other said".to_owned(),
    }
}

/// Returns the objects of the configuration, separated by owner: the file, the API, and an OVSDB server.
fn parts(merged: &Merged) -> (Config, Fragment, Fragment) {
    let all = Fragment::from(&merged.config);
    let of = |owner| {
        move |object: &model::ObjectKey| merged.owners.get(object).copied().unwrap_or(Owner::File) == owner
    };
    let base = merged.config.settings();
    let mut layers = Layers { base, ..Layers::default() };
    layers.fragments.insert(Owner::File, all.only(of(Owner::File)));
    // Members of the file's bridges are objects of the file, so the merge cannot fail. If it did, the file
    // would own everything.
    let file = layers.merged().map_or_else(|_| merged.config.clone(), |merged| merged.config);
    (file, all.only(of(Owner::Api)), all.only(of(Owner::Ovsdb)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_make_the_whole_again() {
        let text = "[port.a]\nkind = \"null\"\n[port.b]\nkind = \"null\"\n[port.c]\nkind = \"null\"\n[bridge.br0.port.a]\n[bridge.br0.port.b]\n";
        let config = model::load(text, "test.toml").unwrap();
        let mut owners: std::collections::BTreeMap<_, _> =
            Fragment::from(&config).objects().map(|object| (object, Owner::File)).collect();
        for (object, owner) in &mut owners {
            if object.to_string().ends_with("port.b") {
                *owner = Owner::Api;
            } else if object.to_string() == "port.c" {
                *owner = Owner::Ovsdb;
            }
        }
        let (file, api, ovsdb) = parts(&Merged { config: config.clone(), owners });
        assert_eq!(file.ports.len(), 1);
        assert_eq!(api.objects().count(), 2, "the port and its membership");
        assert_eq!(ovsdb.objects().count(), 1, "the other port");
        let again = model::load(&file.to_toml(), "again.toml").unwrap();
        let mut layers = Layers::default().replaced(Owner::File, &again).unwrap();
        layers.fragments.insert(Owner::Api, Fragment::from_json(&api.to_json()).unwrap());
        layers.fragments.insert(Owner::Ovsdb, Fragment::from_json(&ovsdb.to_json()).unwrap());
        assert_eq!(layers.merged().unwrap().config, config);
    }
}
