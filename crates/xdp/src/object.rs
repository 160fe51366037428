//! BPF objects that `build.rs` compiles from `bpf/`, and the loading of one program from an object after the object's
//! constants are set. The libbpf object is dropped after loading. Only the descriptors of the program and its maps are
//! kept.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore, Object, ObjectBuilder, OpenObject};

use crate::map_copy::duplicate;
use crate::{Error, log};

/// Wrapper that aligns the bytes of a BPF object. ELF readers need the alignment of the structures in the object.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

/// A BPF object that is embedded in this crate, with its name.
#[derive(Clone, Copy)]
pub(crate) struct Embedded {
    pub name: &'static str,
    pub bytes: &'static [u8],
}

macro_rules! embed {
    ($name:literal) => {{
        static OBJECT: &Aligned<[u8]> =
            &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")));
        Embedded { name: $name, bytes: &OBJECT.0 }
    }};
}

pub(crate) fn port_object() -> Embedded {
    embed!("trivium")
}

/// Returns the BPF object of port programs with SYN cookie support. The object is used for filters that have rules with
/// SYN cookies.
pub(crate) fn services_object() -> Embedded {
    embed!("services")
}

/// Returns the BPF object of the placeholder program.
pub(crate) fn placeholder_object() -> Embedded {
    embed!("placeholder")
}

/// Returns the BPF object of the ingress guard.
pub(crate) fn guard_object() -> Embedded {
    embed!("guard")
}

pub(crate) fn generator_object() -> Embedded {
    embed!("livegen")
}

pub(crate) fn replay_object() -> Embedded {
    embed!("replay")
}

pub(crate) fn bench_object() -> Embedded {
    embed!("bench")
}

pub(crate) fn filter_bench_object() -> Embedded {
    embed!("filterbench")
}

pub(crate) fn watch_object() -> Embedded {
    embed!("watch")
}

pub(crate) fn dump_object() -> Embedded {
    embed!("dump")
}

/// Returns the BPF object of port programs with a packet capture and SYN cookie support. The object is used for filters
/// that have rules with SYN cookies.
pub(crate) fn services_dump_object() -> Embedded {
    embed!("services_dump")
}

/// Name of the map that libbpf creates for the constant `conf`, the configuration of a port's program.
pub(crate) const CONF: &str = ".rodata.conf";
/// Name of the map that libbpf creates for the constant `dump`, the configuration of the packet capture.
pub(crate) const DUMP_CONF: &str = ".rodata.dump";
/// Name of the map that libbpf creates for the constant `filter`, the configuration of the packet filter stage.
pub(crate) const FILTER_CONF: &str = ".rodata.filter";

/// Name of the map that libbpf creates for the constant `bridge`, the configuration of the bridge stage.
pub(crate) const BRIDGE_CONF: &str = ".rodata.bridge";
/// Name of the map that libbpf creates for the constant `flows`, the configuration of the stage of cached
/// flows.
pub(crate) const FLOWS_CONF: &str = ".rodata.flows";
/// Name of the map that libbpf creates for the constant `fib`, the configuration of the kernel routing stage.
pub(crate) const FIB_CONF: &str = ".rodata.fib";
/// Name of the map that libbpf creates for the constant `route`, the configuration of the virtual router stage.
pub(crate) const ROUTE_CONF: &str = ".rodata.route";
/// Name of the map that libbpf creates for the constant `route_vlans`, the router interfaces by VLAN.
pub(crate) const ROUTE_VLANS: &str = ".rodata.vlans";
/// Name of the map that libbpf creates for the constant `route_link_secrets`. The constant holds the secret values of
/// two hashes of the virtual router stage: the hash by which it looks up on-link neighbours, and the hash that assigns
/// a flow to one of the buckets with which XDP program and workers keep frames in order.
pub(crate) const ROUTE_LINKS: &str = ".rodata.links";
/// Name of the map that libbpf creates for the constant `steer`, the configuration of flow steering.
pub(crate) const STEER_CONF: &str = ".rodata.steer";
/// Name of the map that libbpf creates for the constant `watch`, the configuration of the programs that count
/// losses.
pub(crate) const WATCH_CONF: &str = ".rodata.watch";

/// A BPF object that libbpf has opened and that is not loaded yet.
pub(crate) struct Opened {
    embedded: Embedded,
    program: &'static str,
    open: OpenObject,
    said: String,
}

impl Opened {
    /// Opens a BPF object and selects `program`, the only program of the object that will be
    /// loaded.
    pub(crate) fn new(embedded: Embedded, program: &'static str) -> Result<Opened, Error> {
        let (result, said) = log::captured(|| ObjectBuilder::default().open_memory(embedded.bytes));
        let open = result.map_err(|error| load_error(program, &error, said.clone()))?;
        let mut opened = Opened { embedded, program, open, said };
        let mut found = false;
        for mut candidate in opened.open.progs_mut() {
            let chosen = candidate.name() == program;
            candidate.set_autoload(chosen);
            found |= chosen;
        }
        if found { Ok(opened) } else { Err(opened.lacks(program)) }
    }

    fn lacks(&self, what: &'static str) -> Error {
        Error::Object { object: self.embedded.name, what }
    }

    /// Returns the initial bytes of the constants of a port's program. Returns `None` if the object has no such
    /// constants.
    pub(crate) fn constants(&self) -> Option<Vec<u8>> {
        let map = self.open.maps().find(|map| map.name() == CONF)?;
        map.initial_value().map(<[u8]>::to_vec)
    }

    /// Sets the constants of a port's program. `bytes` must have the length of the object's constants.
    pub(crate) fn set_constants(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.set_section(CONF, bytes)
    }

    /// Sets the constants in the section with the name `section` of the BPF object.
    pub(crate) fn set_section(&mut self, section: &'static str, bytes: &[u8]) -> Result<(), Error> {
        let done = self
            .open
            .maps_mut()
            .find(|map| map.name() == section)
            .is_some_and(|mut map| map.set_initial_value(bytes).is_ok());
        if done { Ok(()) } else { Err(self.lacks(section)) }
    }

    /// Excludes a map of the object from loading. The constants must be set so that the program
    /// does not use the map.
    pub(crate) fn leave_out(&mut self, name: &'static str) -> Result<(), Error> {
        let done = self
            .open
            .maps_mut()
            .find(|map| map.name() == name)
            .is_some_and(|mut map| map.set_autocreate(false).is_ok());
        if done { Ok(()) } else { Err(self.lacks(name)) }
    }

    /// Sets the number of entries of a map, in place of the number that the object declares.
    pub(crate) fn set_entries(&mut self, map: &'static str, entries: u32) -> Result<(), Error> {
        let done = self
            .open
            .maps_mut()
            .find(|candidate| candidate.name() == map)
            .is_some_and(|mut map| map.set_max_entries(entries).is_ok());
        if done { Ok(()) } else { Err(self.lacks(map)) }
    }

    /// Makes the program use an existing map in place of a new one.
    pub(crate) fn reuse(&mut self, map: &'static str, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let Some(mut target) = self.open.maps_mut().find(|candidate| candidate.name() == map) else {
            return Err(self.lacks(map));
        };
        target.reuse_fd(fd).map_err(|error| Error::Map {
            map,
            operation: "reuse",
            source: io::Error::from_raw_os_error(errno_of(&error)),
        })
    }

    /// Loads the program into the kernel, which verifies it.
    pub(crate) fn load(self) -> Result<InKernel, Error> {
        let Opened { embedded, program, open, said } = self;
        let (result, more) = log::captured(|| open.load());
        match result {
            Ok(object) => Ok(InKernel { embedded, program, object }),
            Err(error) => {
                let log = [said, more].join("\n").trim().to_owned();
                Err(load_error(program, &error, log))
            }
        }
    }
}

/// A loaded BPF object. The descriptors that are needed later are duplicated before the object is dropped.
pub(crate) struct InKernel {
    embedded: Embedded,
    program: &'static str,
    object: Object,
}

impl InKernel {
    pub(crate) fn program(&self) -> Result<OwnedFd, Error> {
        let program = self.object.progs().find(|candidate| candidate.name() == self.program);
        self.duplicate(self.program, program.as_ref().map(AsFd::as_fd))
    }

    pub(crate) fn map(&self, name: &'static str) -> Result<OwnedFd, Error> {
        let map = self.object.maps().find(|candidate| candidate.name() == name);
        self.duplicate(name, map.as_ref().map(AsFd::as_fd))
    }

    fn duplicate(&self, what: &'static str, fd: Option<BorrowedFd<'_>>) -> Result<OwnedFd, Error> {
        let lacks = Error::Object { object: self.embedded.name, what };
        let fd = fd.ok_or(lacks)?;
        duplicate(what, &fd)
    }
}

fn load_error(program: &'static str, error: &libbpf_rs::Error, log: String) -> Error {
    Error::Load { program, source: io::Error::from_raw_os_error(errno_of(error)), log }
}

/// Returns the error number (errno) at the end of the chain of sources of a libbpf-rs error.
pub(crate) fn errno_of(error: &libbpf_rs::Error) -> i32 {
    let mut at: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = at {
        if let Some(errno) = current.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return errno;
        }
        at = current.source();
    }
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => libc::EPERM,
        libbpf_rs::ErrorKind::OutOfMemory => libc::ENOMEM,
        libbpf_rs::ErrorKind::NotFound => libc::ENOENT,
        _ => libc::EINVAL,
    }
}
