//! Files to which configuration objects refer.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::{Config, Namespace, Target};

/// Names that end in one of these extensions belong to sockets that the daemon creates for each bridge beside the API's
/// socket.
const BRIDGE_SOCKETS: [&str; 2] = [MANAGEMENT_SOCKET, SNOOP_SOCKET];
/// Extension of the name of a bridge's socket for `ovs-ofctl`.
pub const MANAGEMENT_SOCKET: &str = "mgmt";
/// Extension of the name of a bridge's socket whose clients receive copies of all OpenFlow messages.
pub const SNOOP_SOCKET: &str = "snoop";

/// Method by which the daemon accesses a file that a configuration object names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FileAccess {
    /// The daemon reads or writes the file's content.
    Content,
    /// The daemon enters the namespace.
    Enter,
    /// The daemon connects to the Unix socket.
    Connect,
    /// The daemon creates the Unix socket and listens on it.
    Listen,
}

/// A file that a configuration object names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FileUse {
    /// Path of the configuration field that names the file, such as `port.tap.write`.
    pub field: String,
    /// Path of the file that the configuration field names.
    pub path: PathBuf,
    /// Method by which the daemon accesses the file.
    pub access: FileAccess,
}

impl FileUse {
    /// Returns whether the path of the file lies below one of `directories`. Only the text of the path is
    /// compared, because the daemon opens files that API clients name without following symbolic links. A
    /// path with a `..` component never lies below a directory.
    pub fn is_within(&self, directories: &[PathBuf]) -> bool {
        let plain = |path: &Path| path.components().all(|part| !matches!(part, Component::ParentDir));
        plain(&self.path)
            && directories.iter().any(|directory| self.path != *directory && self.path.starts_with(directory))
    }
}

impl Config {
    /// Returns the files that the filters, ports, bridges and routers of the configuration name. Files that
    /// `[daemon]` and `[ovsdb]` name are not included.
    pub fn files(&self) -> BTreeSet<FileUse> {
        let mut all = BTreeSet::new();
        let mut add = |field: String, path: &Path, access| {
            all.insert(FileUse { field, path: path.to_owned(), access });
        };
        for (name, filter) in &self.filters {
            if let Some(path) = &filter.blocklist {
                add(format!("filter.{name}.blocklist"), path, FileAccess::Content);
            }
        }
        for (name, port) in &self.ports {
            for (field, device) in
                [("namespace", port.kind.device()), ("peer.namespace", port.kind.far_device())]
            {
                if let Some((_, Some(Namespace::Path(path)))) = device {
                    add(format!("port.{name}.{field}"), path, FileAccess::Enter);
                }
            }
            for (field, path) in port.kind.settings().files() {
                add(format!("port.{name}.{field}"), path, FileAccess::Content);
            }
        }
        for (name, bridge) in &self.bridges {
            let Some(openflow) = &bridge.settings.openflow else { continue };
            for controller in &openflow.controllers {
                if let Some((access, path)) = unix_socket(&controller.target) {
                    add(format!("bridge.{name}.openflow.controllers"), path, access);
                }
            }
            if let Some(tls) = &openflow.tls {
                for (field, path) in [("key", &tls.key), ("certificate", &tls.certificate), ("ca", &tls.ca)] {
                    add(format!("bridge.{name}.openflow.tls.{field}"), path, FileAccess::Content);
                }
            }
        }
        for (name, router) in &self.routers {
            if let Some(Namespace::Path(path)) = &router.settings.namespace {
                add(format!("router.{name}.namespace"), path, FileAccess::Enter);
            }
        }
        all
    }

    /// Returns the path of the configuration field that has reserved the Unix socket `path` for the daemon itself, so
    /// that no OpenFlow listener can be there: the sockets of the API, of `ovs-appctl` and of the OVSDB server, and all
    /// names in the directory of the API's socket that belong to sockets of bridges. Returns `None` if the path is not
    /// reserved.
    pub fn reserves_socket(&self, path: &Path) -> Option<&'static str> {
        let daemon = &self.daemon;
        let is_bridges = path.parent() == daemon.api.parent()
            && path.extension().is_some_and(|name| BRIDGE_SOCKETS.iter().any(|own| name == *own));
        match &self.ovsdb.database {
            _ if daemon.api == path || is_bridges => Some("daemon.api"),
            _ if daemon.unixctl.as_deref() == Some(path) => Some("daemon.unixctl"),
            Some(Target::Unix(server)) if server == path => Some("ovsdb.database"),
            _ => None,
        }
    }
}

/// Returns the path in the target of an OpenFlow controller, and the method by which the daemon accesses the path.
/// Returns `None` if the target is not a Unix socket.
pub fn unix_socket(target: &str) -> Option<(FileAccess, &Path)> {
    let (method, path) = target.split_once(':')?;
    let access = match method {
        "unix" => FileAccess::Connect,
        "punix" => FileAccess::Listen,
        _ => return None,
    };
    Some((access, Path::new(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_within_directories_by_whole_names_and_without_steps_up() {
        let within = |path: &str| {
            let directories = [PathBuf::from("/etc/trivium"), PathBuf::from("/var/lib/trivium/")];
            FileUse { field: String::new(), path: path.into(), access: FileAccess::Content }
                .is_within(&directories)
        };
        assert!(within("/etc/trivium/a") && within("/var/lib/trivium/b/c"));
        for path in ["/etc/trivium", "/etc/trivium2/a", "/etc/trivium/../shadow", "/var/lib/x", "/"] {
            assert!(!within(path), "{path}");
        }
    }

    #[test]
    fn every_object_that_names_a_file_tells_so() {
        let text = "[filter.f]\nblocklist='/b'\n[port.p]\nkind='pcap'\nread='/r'\nwrite='/w'\n\
            [port.v]\nkind='veth'\nnamespace='/n'\npeer={name='x',namespace='/m'}\n\
            [bridge.b.openflow]\ncontrollers=['punix:/s','tcp:10.0.0.1']\n\
            tls={key='/k',certificate='/c',ca='/a'}\n[router.r]\nnamespace='/o'\n";
        let config = crate::load(text, "t").unwrap_or_else(|problems| panic!("{problems:?}"));
        let paths: Vec<_> = config.files().into_iter().map(|file| file.path).collect();
        for path in ["/b", "/r", "/w", "/n", "/m", "/s", "/k", "/c", "/a", "/o"] {
            assert!(paths.iter().any(|other| other == Path::new(path)), "{path}: {paths:?}");
        }
        assert_eq!(paths.len(), 10);
    }

    #[test]
    fn a_socket_that_the_daemon_uses_itself_is_reserved() {
        let text = "[daemon]\napi='/run/t/trivium.sock'\nunixctl='/run/t/ctl'\n\
            [ovsdb]\ndatabase='unix:/run/t/db.sock'\n";
        let config = crate::load(text, "t").unwrap_or_else(|problems| panic!("{problems:?}"));
        for (path, field) in [
            ("/run/t/trivium.sock", "daemon.api"),
            ("/run/t/./br0.mgmt", "daemon.api"),
            ("/run/t/br0.snoop", "daemon.api"),
            ("/run/t/ctl", "daemon.unixctl"),
            ("/run/t/db.sock", "ovsdb.database"),
        ] {
            assert_eq!(config.reserves_socket(Path::new(path)), Some(field), "{path}");
        }
        for path in ["/run/t/br0.controller", "/run/t/mgmt", "/run/br0.mgmt"] {
            assert_eq!(config.reserves_socket(Path::new(path)), None, "{path}");
        }
        let bridge =
            "[bridge.trivium.openflow]\ncontrollers=['unix:/run/t/db.sock','punix:/run/t/trivium.sock']\n";
        let problems = crate::load(&format!("{text}{bridge}"), "t").unwrap_err();
        let said: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert!(said.len() == 1 && said[0].contains("bridge.trivium.openflow.controllers"), "{said:?}");
        assert!(said[0].contains("`daemon.api`"), "{said:?}");
    }
}
