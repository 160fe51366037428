//! Files to which configuration objects refer.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::{Config, Namespace};

/// A file that a configuration object names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FileUse {
    /// Path of the configuration field that names the file, such as `port.tap.write`.
    pub field: String,
    /// Path of the file that the configuration field names.
    pub path: PathBuf,
    /// Whether the daemon reads or writes the file's content. `false` for sockets, to which the daemon only connects,
    /// and for namespaces, which it only enters.
    pub content: bool,
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
        let mut add = |field: String, path: &Path, content| {
            all.insert(FileUse { field, path: path.to_owned(), content });
        };
        for (name, filter) in &self.filters {
            if let Some(path) = &filter.blocklist {
                add(format!("filter.{name}.blocklist"), path, true);
            }
        }
        for (name, port) in &self.ports {
            for (field, device) in
                [("namespace", port.kind.device()), ("peer.namespace", port.kind.far_device())]
            {
                if let Some((_, Some(Namespace::Path(path)))) = device {
                    add(format!("port.{name}.{field}"), path, false);
                }
            }
            for (field, path) in port.kind.settings().files() {
                add(format!("port.{name}.{field}"), path, true);
            }
        }
        for (name, bridge) in &self.bridges {
            let Some(openflow) = &bridge.settings.openflow else { continue };
            for controller in &openflow.controllers {
                if let Some((kind, path)) = controller.target.split_once(':')
                    && matches!(kind, "unix" | "punix")
                {
                    add(format!("bridge.{name}.openflow.controllers"), Path::new(path), false);
                }
            }
            if let Some(tls) = &openflow.tls {
                for (field, path) in [("key", &tls.key), ("certificate", &tls.certificate), ("ca", &tls.ca)] {
                    add(format!("bridge.{name}.openflow.tls.{field}"), path, true);
                }
            }
        }
        for (name, router) in &self.routers {
            if let Some(Namespace::Path(path)) = &router.settings.namespace {
                add(format!("router.{name}.namespace"), path, false);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_within_directories_by_whole_names_and_without_steps_up() {
        let within = |path: &str| {
            let directories = [PathBuf::from("/etc/trivium"), PathBuf::from("/var/lib/trivium/")];
            FileUse { field: String::new(), path: path.into(), content: true }.is_within(&directories)
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
}
