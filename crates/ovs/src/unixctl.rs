//! Server for `ovs-appctl`. The protocol is JSON-RPC over a Unix socket. Each command is one JSON-RPC method with
//! strings as arguments and as result.
//!
//! The registry ([`Commands`]) contains all commands. Each part of the daemon adds its own commands. The general
//! commands are in `unixctl/commands.rs`. The requests of one client are executed one after the other, on threads that
//! may block.

mod absent;
mod bridge;
pub mod commands;
mod conntrack;
mod coverage;
mod datapath;
mod fdb;
mod trace;
mod upcall;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use control::Plane;
use openflow::sockets::bind_private;
use openflow::{OpenSocket, Sockets};
use ovsdb::rpc::{Framer, Message};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// Maximum length of a JSON-RPC request in bytes.
const REQUEST_LIMIT: usize = 1 << 20;
/// Maximum number of clients that are served at the same time. Other clients wait.
const CLIENT_LIMIT: usize = 32;

/// Result of an `ovs-appctl` command: the output, or the error message.
pub type Answer = Result<String, String>;

type Run = Box<dyn Fn(&[String]) -> Answer + Send + Sync>;

struct Command {
    usage: &'static str,
    arguments: RangeInclusive<usize>,
    run: Run,
    /// Function that is called when the output has been sent, if the command succeeded.
    afterwards: Option<Box<dyn Fn() + Send + Sync>>,
}

/// Registry of the `ovs-appctl` commands, by command name.
#[derive(Default)]
pub struct Commands {
    commands: BTreeMap<&'static str, Command>,
}

impl Commands {
    /// Adds a command to the registry. `arguments` is the allowed range of the number of arguments. `run`
    /// executes the command and may block.
    pub fn add(
        &mut self,
        name: &'static str,
        usage: &'static str,
        arguments: RangeInclusive<usize>,
        run: impl Fn(&[String]) -> Answer + Send + Sync + 'static,
    ) {
        self.commands.insert(name, Command { usage, arguments, run: Box::new(run), afterwards: None });
    }

    /// Adds a command that succeeds with an empty output. `afterwards` is called when the output has been sent.
    pub fn add_last(
        &mut self,
        name: &'static str,
        usage: &'static str,
        arguments: RangeInclusive<usize>,
        afterwards: impl Fn() + Send + Sync + 'static,
    ) {
        let run = Box::new(|_: &[String]| Ok(String::new()));
        let command = Command { usage, arguments, run, afterwards: Some(Box::new(afterwards)) };
        self.commands.insert(name, command);
    }

    /// Calls the function `afterwards` of a command, if it has one.
    fn finish(&self, name: &str) {
        if let Some(afterwards) = self.commands.get(name).and_then(|command| command.afterwards.as_ref()) {
            afterwards();
        }
    }

    fn list(&self) -> String {
        let mut text = "The available commands are:\n".to_owned();
        let names = self.commands.iter().map(|(name, command)| (*name, command.usage));
        let mut all: Vec<(&str, &str)> = names.chain([("list-commands", "")]).collect();
        all.sort_unstable();
        for (name, usage) in all {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {}", format!("{name:<23} {usage}").trim_end());
        }
        text
    }

    /// Runs the `ovs-appctl` command with this name.
    ///
    /// # Errors
    /// Returns an error if the command does not exist, if the number of arguments is wrong, or if
    /// the command itself fails.
    pub fn run(&self, name: &str, arguments: &[String]) -> Answer {
        if name == "list-commands" {
            return Ok(self.list());
        }
        let command = self.commands.get(name).ok_or_else(|| {
            format!(
                "\"{name}\" is not a valid command (use \"list-commands\" to see a list of valid commands)"
            )
        })?;
        let (least, most) = (*command.arguments.start(), *command.arguments.end());
        if arguments.len() < least {
            return Err(format!("\"{name}\" command requires at least {least} arguments"));
        }
        if arguments.len() > most {
            return Err(format!("\"{name}\" command takes at most {most} arguments"));
        }
        (command.run)(arguments)
    }
}

/// Returns the error `unknown` if no running bridge has this name.
fn known_bridge(plane: &dyn Plane, bridge: &str, unknown: &str) -> Result<(), String> {
    let runs = plane.bridges().iter().any(|state| state.name == bridge);
    if runs { Ok(()) } else { Err(unknown.to_owned()) }
}

/// Server for `ovs-appctl` whose Unix socket exists, but which does not serve clients yet.
pub struct Server {
    listener: std::os::unix::net::UnixListener,
    path: PathBuf,
    sockets: Arc<Sockets>,
    /// Registration of the socket for a successor process. The socket file is removed when the value is dropped.
    open: OpenSocket,
}

impl Server {
    /// Listens at `path`. In an upgrade of the daemon, uses the socket that the previous process has passed on for this
    /// path. Otherwise creates a socket and replaces a stale socket file. Only root may connect.
    ///
    /// # Errors
    /// Returns an error if the socket cannot be bound, or if the file at `path` is not a socket.
    pub fn bind(path: &Path, sockets: &Arc<Sockets>) -> io::Result<Server> {
        let listener = match sockets.take(path) {
            Some(given) => given,
            None => bind(path)?,
        };
        listener.set_nonblocking(true)?;
        let open = sockets.keep(path, &listener)?;
        Ok(Server { listener, path: path.to_owned(), sockets: Arc::clone(sockets), open })
    }

    /// Starts a task that serves clients. Aborting the returned task ends the service.
    ///
    /// # Errors
    /// Returns an error if the event loop does not accept the socket.
    pub fn serve(self, commands: Commands) -> io::Result<tokio::task::JoinHandle<()>> {
        let listener = UnixListener::from_std(self.listener)?;
        let (commands, path, sockets, open) = (Arc::new(commands), self.path, self.sockets, self.open);
        let mut held = sockets.held();
        Ok(tokio::spawn(async move {
            let _open = open;
            let room = Arc::new(Semaphore::new(CLIENT_LIMIT));
            loop {
                let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
                let holds = *held.borrow_and_update();
                let accepted = tokio::select! {
                    biased;
                    Ok(()) = held.changed() => continue,
                    accepted = listener.accept(), if !holds => accepted,
                };
                match accepted {
                    Ok((client, _)) => {
                        let commands = Arc::clone(&commands);
                        let session = sockets.session();
                        tokio::spawn(async move {
                            let _session = session;
                            if let Err(error) = attend(client, commands).await {
                                tracing::debug!("unixctl: {error}");
                            }
                            drop(place);
                        });
                    }
                    Err(error) => {
                        tracing::warn!("{}: {error}; trying again", path.display());
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
            }
        }))
    }
}

/// Creates a Unix socket at `path`. A stale socket file is replaced. Any other file at `path` is an error.
fn bind(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => Err(io::ErrorKind::AlreadyExists.into()),
        _ => bind_private(path),
    }
}

async fn attend(mut client: UnixStream, commands: Arc<Commands>) -> io::Result<()> {
    let mut framer = Framer::new(REQUEST_LIMIT);
    let mut received = vec![0; 1 << 12];
    loop {
        let count = client.read(&mut received).await?;
        if count == 0 {
            return Ok(());
        }
        framer.push(received.get(..count).unwrap_or_default());
        while let Some(message) = framer.next_message().map_err(io::Error::other)? {
            let Message::Request { method, params, id } = message else { continue };
            let (all, name) = (Arc::clone(&commands), method.clone());
            let outcome = tokio::task::spawn_blocking(move || answer(&all, &method, &params)).await;
            let outcome =
                outcome.unwrap_or_else(|_| Err(json!("the command was lost; look at the daemon's log")));
            let is_done = outcome.is_ok();
            let sent = client.write_all(&Message::Reply { id, outcome }.bytes()).await;
            if is_done {
                commands.finish(&name);
            }
            sent?;
        }
    }
}

fn answer(commands: &Commands, method: &str, params: &[Value]) -> Result<Value, Value> {
    let texts: Option<Vec<String>> = params.iter().map(|param| param.as_str().map(str::to_owned)).collect();
    let Some(texts) = texts else {
        return Err(json!(format!("\"{method}\" command has non-string argument")));
    };
    // `ovs-appctl` prints its own lines after the text, which therefore ends with a newline.
    let whole =
        |text: String| Value::from(if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" });
    commands.run(method, &texts).map(whole).map_err(whole)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn commands() -> Commands {
        let mut commands = Commands::default();
        commands.add("fdb/show", "BRIDGE", 1..=1, |arguments| Ok(arguments.concat()));
        commands
    }

    #[test]
    fn arguments_are_counted_and_unknown_commands_named() {
        let commands = commands();
        let run = |name: &str, arguments: &[&str]| {
            commands.run(name, &arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(run("fdb/show", &["br0"]).unwrap(), "br0");
        assert!(run("fdb/show", &[]).unwrap_err().contains("at least 1"));
        assert!(run("fdb/show", &["a", "b"]).unwrap_err().contains("at most 1"));
        assert!(run("fdb/hide", &[]).unwrap_err().contains("list-commands"));
        let list = run("list-commands", &[]).unwrap();
        assert!(
            list.contains("  fdb/show                BRIDGE\n") && list.contains("  list-commands\n"),
            "{list}"
        );
    }

    #[test]
    fn arguments_are_texts() {
        assert!(answer(&commands(), "fdb/show", &[json!(7)]).is_err());
        assert_eq!(answer(&commands(), "fdb/show", &[json!("x")]), Ok(json!("x\n")));
        assert_eq!(answer(&commands(), "fdb/show", &[json!("")]), Ok(json!("")));
        let refused = answer(&commands(), "fdb/show", &[]).unwrap_err();
        assert!(refused.as_str().unwrap().ends_with("arguments\n"), "{refused}");
    }

    #[test]
    fn what_is_no_socket_stays() {
        let path = std::env::temp_dir().join(format!("unixctl-{}", std::process::id()));
        std::fs::write(&path, "kept").unwrap();
        assert!(Server::bind(&path, &Arc::default()).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
        std::fs::remove_file(&path).unwrap();
        let server = Server::bind(&path, &Arc::default()).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        drop(server);
        assert!(!path.exists(), "the server removes its socket file");
        // The socket file of a killed process does not prevent binding.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(Server::bind(&path, &Arc::default()).unwrap());
    }
}
