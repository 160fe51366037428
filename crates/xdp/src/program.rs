//! The XDP program of a port, loaded and verified by the kernel, before it is attached to a device.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::build::Build;
use crate::config::QUEUES_MAX;
use crate::counters::Counters;
use crate::filter::Filter;
use crate::map_copy::duplicate;
use crate::object::{Opened, dump_object, port_object, services_dump_object, services_object};
use crate::placeholder::Placeholders;
use crate::route::RouteStage;
use crate::stages::Stages;
use crate::steer::Steering;
use crate::sys::{MapKind, MapSpec};
use crate::{
    Constants, Counter, Error, LocalAddresses, Mode, Owner, ProgramConfig, ProgramInfo, TestRun, Verdict,
    needs, sys,
};

/// Maximum number of local addresses of each address family in the maps of a port's program:
/// `TRIVIUM_LOCAL_CAPACITY`.
pub const LOCAL_CAPACITY: usize = 4096;

/// Names of the port's maps that are kept when its program is replaced, in the order of [`Maps::list`].
pub(crate) const MAP_NAMES: [&str; 4] = ["xsks", "local4", "local6", "counters"];

/// Maps of a port that are kept when its program is replaced, handed over or pinned.
#[derive(Debug)]
pub(crate) struct Maps {
    pub xsks: OwnedFd,
    pub local4: OwnedFd,
    pub local6: OwnedFd,
    pub counters: OwnedFd,
}

impl Maps {
    /// Creates the maps that `bpf/include/trivium_maps.h` declares, for a port with `queues` receive queues.
    fn create(queues: u32) -> Result<Maps, Error> {
        let locals = u32::try_from(LOCAL_CAPACITY).unwrap_or(u32::MAX);
        let counted = u32::try_from(Counter::ALL.len()).unwrap_or(u32::MAX);
        let create = |name, kind, key, value, entries| {
            let spec = MapSpec { name, kind, key, value, entries };
            sys::map_create(spec, None).map_err(|source| Error::Map {
                map: name,
                operation: "create",
                source,
            })
        };
        let [xsks, local4, local6, counters] = MAP_NAMES;
        Ok(Maps {
            xsks: create(xsks, MapKind::Sockets, 4, 4, queues)?,
            local4: create(local4, MapKind::SparseHash, 4, 4, locals)?,
            local6: create(local6, MapKind::SparseHash, 16, 4, locals)?,
            counters: create(counters, MapKind::PerCpuArray, 4, 8, counted)?,
        })
    }

    pub(crate) fn list(&self) -> [(&'static str, BorrowedFd<'_>); 4] {
        let fds = [self.xsks.as_fd(), self.local4.as_fd(), self.local6.as_fd(), self.counters.as_fd()];
        let [a, b, c, d] = MAP_NAMES;
        let [xsks, local4, local6, counters] = fds;
        [(a, xsks), (b, local4), (c, local6), (d, counters)]
    }

    /// Adds the local addresses in the maps `four` (IPv4) and `six` (IPv6) to these maps.
    pub(crate) fn copy_locals(&self, [four, six]: &[OwnedFd; 2]) -> Result<(), Error> {
        copy_keys::<4>("local4", four.as_fd(), self.local4.as_fd())?;
        copy_keys::<16>("local6", six.as_fd(), self.local6.as_fd())
    }

    /// Duplicates the maps of the local addresses, for [`Maps::copy_locals`].
    pub(crate) fn duplicate_locals(&self) -> Result<[OwnedFd; 2], Error> {
        Ok([duplicate("local4", &self.local4)?, duplicate("local6", &self.local6)?])
    }

    /// Adds the local addresses in `locals` that the maps lack. Then removes addresses that are not in `locals`, unless
    /// `keep_others` is set.
    pub(crate) fn set_locals(&self, locals: &LocalAddresses, keep_others: bool) -> Result<(), Error> {
        check_capacity(locals)?;
        set_keys("local4", self.local4.as_fd(), &octets(&locals.v4, Ipv4Addr::octets), keep_others)?;
        set_keys("local6", self.local6.as_fd(), &octets(&locals.v6, Ipv6Addr::octets), keep_others)
    }
}

fn copy_keys<const N: usize>(
    name: &'static str,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
) -> Result<(), Error> {
    let failed = |source| Error::Map { map: name, operation: "copy", source };
    for key in sys::map_keys::<N>(from).map_err(failed)? {
        sys::map_update(to, &key, &1_u32.to_ne_bytes()).map_err(failed)?;
    }
    Ok(())
}

fn check_queues(constants: Constants) -> Result<(), Error> {
    let queues = constants.queues;
    if queues == 0 || queues > QUEUES_MAX { Err(Error::Queues { queues }) } else { Ok(()) }
}

fn check_capacity(locals: &LocalAddresses) -> Result<(), Error> {
    for (family, count) in [("IPv4", locals.v4.len()), ("IPv6", locals.v6.len())] {
        if count > LOCAL_CAPACITY {
            return Err(Error::LocalsFull { family, count, capacity: LOCAL_CAPACITY });
        }
    }
    Ok(())
}

fn octets<A, const N: usize>(addresses: &BTreeSet<A>, of: fn(&A) -> [u8; N]) -> BTreeSet<[u8; N]> {
    addresses.iter().map(of).collect()
}

fn set_keys<const N: usize>(
    name: &'static str,
    map: BorrowedFd<'_>,
    wanted: &BTreeSet<[u8; N]>,
    keep_others: bool,
) -> Result<(), Error>
where
    [u8; N]: Ord + Hash,
{
    let failed = |operation| move |source| Error::Map { map: name, operation, source };
    let present: BTreeSet<[u8; N]> = sys::map_keys(map).map_err(failed("list"))?.into_iter().collect();
    let stale = || present.difference(wanted);
    // If the map has no space for the old and the new addresses together, old addresses are removed first. For a
    // moment, frames to an old address may then go to the router too early. Otherwise, frames to a new address would
    // not reach the kernel.
    let crowded = present.union(wanted).count() > LOCAL_CAPACITY;
    if crowded {
        for key in stale() {
            sys::map_delete(map, key).map_err(failed("delete from"))?;
        }
    }
    for key in wanted.difference(&present) {
        sys::map_update(map, key, &1_u32.to_ne_bytes()).map_err(failed("add to"))?;
    }
    if !keep_others && !crowded {
        for key in stale() {
            sys::map_delete(map, key).map_err(failed("delete from"))?;
        }
    }
    Ok(())
}

/// Namespace of the functions that load the XDP program of a port.
#[derive(Debug)]
pub struct PortProgram;

impl PortProgram {
    /// Loads a port's program and creates its maps. `config` sets the program's constants before the kernel verifies
    /// it.
    ///
    /// # Errors
    /// Returns [`Error::Queues`], [`Error::LocalsFull`], or [`Error::Load`] with the verifier's log.
    pub fn load(config: &ProgramConfig) -> Result<Loaded, Error> {
        PortProgram::load_build(config, Build::Frags, None)
    }

    /// Loads a port's program like [`PortProgram::load`], with a filter as its first stage.
    ///
    /// # Errors
    /// Returns the errors of [`PortProgram::load`].
    pub fn load_filtered(config: &ProgramConfig, filter: &Filter) -> Result<Loaded, Error> {
        PortProgram::load_build(config, Build::Frags, Some(filter))
    }

    /// Loads a port's program like [`PortProgram::load`], with flow steering by the policy `steering`. The program is
    /// for ports in native mode.
    ///
    /// # Errors
    /// Returns the errors of [`PortProgram::load`].
    pub fn load_steered(config: &ProgramConfig, steering: &Steering) -> Result<Loaded, Error> {
        let steer = Some(steering.maps(Build::Frags, Mode::Native)?);
        PortProgram::load_stages(config, Build::Frags, Stages { steer, ..Stages::default() })
    }

    /// Loads a port's program like [`PortProgram::load`], with a virtual router stage. The port's type in the program
    /// is [`Owner::Routed`] if `config` does not close the port.
    ///
    /// # Errors
    /// Returns the errors of [`PortProgram::load`].
    pub fn load_routed(config: &ProgramConfig, route: &RouteStage) -> Result<Loaded, Error> {
        let route = Some(Arc::clone(route.maps()));
        PortProgram::load_stages(config, Build::Frags, Stages { route, ..Stages::default() })
    }

    /// Loads a port's program like [`PortProgram::load`], in the build without multi-buffer support. [`Loaded::attach`]
    /// uses this build if a driver refuses the build with multi-buffer support.
    ///
    /// # Errors
    /// Returns the errors of [`PortProgram::load`].
    pub fn load_linear(config: &ProgramConfig) -> Result<Loaded, Error> {
        PortProgram::load_build(config, Build::Linear, None)
    }

    /// Creates the maps of a port, and returns them with a placeholder program from `placeholders`. After the result is
    /// attached, [`crate::Attached::complete`] or the first change of a stage replaces the placeholder with the port's
    /// own program.
    ///
    /// # Errors
    /// Returns the errors of [`PortProgram::load`], or [`Error::Map`].
    pub fn load_placeholder(config: &ProgramConfig, placeholders: &Placeholders) -> Result<Loaded, Error> {
        check_capacity(&config.locals)?;
        let (constants, build) = (Constants::from(config), Build::Frags);
        check_queues(constants)?;
        let maps = Maps::create(constants.queues)?;
        maps.set_locals(&config.locals, false)?;
        Ok(Loaded {
            constants,
            locals: Some(config.locals.clone()),
            build,
            program: placeholders.program(build.placeholder(), constants)?,
            maps,
            stages: Stages::default(),
            placeholders: Some(placeholders.clone()),
        })
    }

    fn load_build(config: &ProgramConfig, build: Build, filter: Option<&Filter>) -> Result<Loaded, Error> {
        let stages = Stages { filter: filter.map(|filter| Arc::clone(filter.maps())), ..Stages::default() };
        PortProgram::load_stages(config, build, stages)
    }

    fn load_stages(config: &ProgramConfig, build: Build, stages: Stages) -> Result<Loaded, Error> {
        check_capacity(&config.locals)?;
        let locals = Some(config.locals.clone());
        let loaded = Loaded::new(Constants::from(config), locals, build, None, stages)?;
        loaded.maps.set_locals(&config.locals, false)?;
        Ok(loaded)
    }
}

/// A program that is loaded and verified by the kernel and not attached yet, with its maps.
#[derive(Debug)]
pub struct Loaded {
    pub(crate) constants: Constants,
    /// Local addresses of the host that `Attached::swap` writes to the port's maps. `None` leaves the addresses in the
    /// maps unchanged.
    pub(crate) locals: Option<LocalAddresses>,
    pub(crate) build: Build,
    pub(crate) program: OwnedFd,
    pub(crate) maps: Maps,
    pub(crate) stages: Stages,
    /// Placeholder programs of the process, if `program` is one of them. `None` if `program` is the port's own program.
    pub(crate) placeholders: Option<Placeholders>,
}

impl Loaded {
    /// Loads a port's program with the constants in `constants` and `stages`. If `share` is not `None`, the program
    /// uses these maps instead of new ones.
    pub(crate) fn new(
        mut constants: Constants,
        locals: Option<LocalAddresses>,
        build: Build,
        share: Option<&Maps>,
        mut stages: Stages,
    ) -> Result<Loaded, Error> {
        if stages.route.is_some() && constants.owner != Owner::Closed {
            constants.owner = Owner::Routed;
        }
        // A filter without rules is not a stage.
        stages.filter = stages.filter.filter(|filter| filter.conf[0] > 0);
        check_queues(constants)?;
        let services = stages.filter.as_ref().is_some_and(|filter| filter.has_services());
        let mut opened = match (&stages.dump, services) {
            (None, false) => Opened::new(port_object(), build.program())?,
            (None, true) => Opened::new(services_object(), build.program())?,
            (Some(_), false) => Opened::new(dump_object(), build.dumping())?,
            (Some(_), true) => Opened::new(services_dump_object(), build.dumping())?,
        };
        let counters = u32::try_from(Counter::ALL.len()).unwrap_or(u32::MAX);
        let bytes = constants.to_bytes(counters, stages.route.is_some());
        let declared = opened.constants().and_then(|c| c.get(12..16).map(<[u8]>::to_vec));
        if declared.as_deref() != Some(&counters.to_ne_bytes()) {
            return Err(Error::Object { object: "trivium", what: "enum trivium_counter" });
        }
        opened.set_constants(&bytes)?;
        match share {
            None => opened.set_entries("xsks", constants.queues)?,
            Some(maps) => {
                for (name, map) in maps.list() {
                    opened.reuse(name, map)?;
                }
            }
        }
        stages.set(&mut opened)?;
        let object = opened
            .load()
            .map_err(|error| needs::lacking(&stages.names(), sys::has_helper).unwrap_or(error))?;
        let [xsks, local4, local6, counters] = MAP_NAMES;
        let maps = Maps {
            xsks: object.map(xsks)?,
            local4: object.map(local4)?,
            local6: object.map(local6)?,
            counters: object.map(counters)?,
        };
        Ok(Loaded { constants, locals, build, program: object.program()?, maps, stages, placeholders: None })
    }

    /// Loads the build without multi-buffer support with the maps of this program, for drivers that refuse multi-buffer
    /// programs.
    pub(crate) fn linear(&self) -> Result<OwnedFd, Error> {
        if let Some(placeholders) = &self.placeholders {
            return placeholders.program(Build::Linear.placeholder(), self.constants);
        }
        let (locals, stages) = (self.locals.clone(), self.stages.clone());
        Ok(Loaded::new(self.constants, locals, Build::Linear, Some(&self.maps), stages)?.program)
    }

    /// Returns the kernel's information about the program, such as its id, tag and number of instructions.
    ///
    /// # Errors
    /// Returns [`Error::Query`] if a query of the kernel fails.
    pub fn info(&self) -> Result<ProgramInfo, Error> {
        ProgramInfo::read(self.program.as_fd())
    }

    /// Returns the constants that were written into the program before it was loaded.
    #[must_use]
    pub fn constants(&self) -> Constants {
        self.constants
    }

    /// Returns whether the program accepts multi-buffer frames.
    #[must_use]
    pub fn multi_buffer(&self) -> bool {
        self.build == Build::Frags
    }

    /// Returns the number of frames for each outcome of the program, including frames of test runs.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn counters(&self) -> Result<Counters, Error> {
        Counters::read(self.maps.counters.as_fd())
    }

    /// Replaces the local IP addresses of the port. Packets to a local address go to the kernel.
    ///
    /// # Errors
    /// Returns [`Error::LocalsFull`] or [`Error::Map`].
    pub fn update_locals(&mut self, locals: &LocalAddresses) -> Result<(), Error> {
        self.maps.set_locals(locals, false)?;
        self.locals = Some(locals.clone());
        Ok(())
    }

    /// Puts an AF_XDP socket into the socket map's slot of a receive queue. The socket must have a receive ring. The
    /// socket receives frames when it is bound to the device and the queue.
    ///
    /// # Errors
    /// Returns [`Error::QueueOutOfRange`] or [`Error::Socket`].
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        set_socket(&self.maps, self.constants.queues, "the loaded program", queue, socket)
    }

    /// Runs the program once on a frame and returns the result. The frame is treated as received on queue 0 of a device
    /// without a name. No frame is forwarded.
    ///
    /// # Errors
    /// Returns [`Error::TestRun`] if the kernel refuses the test run.
    pub fn test_run(&self, frame: &[u8]) -> Result<TestRun, Error> {
        self.test_run_from(frame, None, 1)
    }

    /// Runs the program `repeat` times on a frame and returns the result with the mean time of a run. The frame is
    /// treated as received on the device with the index and on the queue in `ingress`. The device must exist.
    ///
    /// # Errors
    /// Returns [`Error::TestRun`] if the kernel refuses the test run.
    pub fn test_run_from(
        &self,
        frame: &[u8],
        ingress: Option<(u32, u32)>,
        repeat: u32,
    ) -> Result<TestRun, Error> {
        let repeat = i32::try_from(repeat).unwrap_or(i32::MAX);
        let request = sys::RunRequest { frame, ingress, repeat, live_batch: None };
        let result = sys::run(self.program.as_fd(), request).map_err(|source| Error::TestRun {
            program: self.build.program(),
            length: frame.len(),
            source,
        })?;
        Ok(TestRun {
            verdict: Verdict::from_code(result.verdict),
            frame: result.frame,
            nanoseconds: result.nanoseconds,
        })
    }
}

pub(crate) fn set_socket(
    maps: &Maps,
    queues: u32,
    device: &str,
    queue: u32,
    socket: BorrowedFd<'_>,
) -> Result<(), Error> {
    use std::os::fd::AsRawFd;
    if queue >= queues {
        return Err(Error::QueueOutOfRange { device: device.to_owned(), queue, queues });
    }
    sys::map_update(maps.xsks.as_fd(), &queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
        .map_err(|source| Error::Socket { device: device.to_owned(), queue, source })
}
