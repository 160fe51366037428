//! A port's program on its device: sockets, local addresses, counters, replacement, pins and the
//! hand-over to a successor process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::attach::{self, AttachMode, Candidate, Fallback};
use crate::bridge::{BRIDGE_WORDS, BridgeMaps, BridgeStage, KnownStations, Orders};
use crate::config::CONF_SIZE;
use crate::counters::Counters;
use crate::dump::Dump;
use crate::fib::{FIB_WORDS, FibMaps, FibStage};
use crate::filter::{CONF_WORDS, Filter, FilterMaps};
use crate::flows::{FLOWS_WORDS, FlowMaps, FlowStage};
use crate::object::{
    BRIDGE_CONF, CONF, FIB_CONF, FILTER_CONF, FLOWS_CONF, ROUTE_CONF, ROUTE_LINKS, ROUTE_VLANS, STEER_CONF,
};
use crate::program::{Build, MAP_NAMES, Maps, Stages};
use crate::route::{LINK_SECRETS, ROUTE_WORDS, RouteMaps, RouteStage, VLAN_WORDS, Vlans, link_secrets};
use crate::steer::{self, STEER_WORDS, SteerMaps, Steering};
use crate::user::UserProgram;
use crate::{Constants, Error, Loaded, LocalAddresses, Mode, PinPath, ProgramConfig, ProgramInfo, sys};

/// A program on a device. Unless it is pinned, dropping this takes it off.
#[derive(Debug)]
pub struct Attached {
    link: OwnedFd,
    link_id: u32,
    maps: Maps,
    constants: Constants,
    build: Build,
    ifindex: u32,
    device: String,
    mode: Mode,
    fallbacks: Vec<Fallback>,
    pin: Option<PinPath>,
    stages: Stages,
    /// What the link runs in front of the port's program.
    user: Option<UserProgram>,
}

impl Loaded {
    /// Puts the program on a device of the calling thread's network namespace.
    ///
    /// With a pin path, link and maps stay when the process ends, and [`adopt`] finds them.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::Foreign`], [`Error::Attach`] with every driver's reason, or
    /// the pin errors. Nothing is left behind.
    pub fn attach(self, ifindex: u32, allowed: AttachMode, pin: Option<PinPath>) -> Result<Attached, Error> {
        if let Some(pin) = &pin {
            pin.prepare()?;
        }
        let attached = self.attach_and_pin(ifindex, allowed, pin.as_ref());
        if let (Err(_), Some(pin)) = (&attached, &pin) {
            // The error that brought us here says more than one of the clean-up would.
            let _ = pin.remove();
        }
        attached
    }

    fn attach_and_pin(
        self,
        ifindex: u32,
        allowed: AttachMode,
        pin: Option<&PinPath>,
    ) -> Result<Attached, Error> {
        let linear = || self.linear().map(|loaded| Some(loaded.program));
        let first = Candidate { program: self.program.as_fd(), multi_buffer: self.multi_buffer() };
        let linked = attach::attach(ifindex, allowed, first, linear)?;
        if let Some(pin) = pin {
            for (name, map) in self.maps.list() {
                pin.pin_map(name, map)?;
            }
            pin.pin_link(linked.link.as_fd())?;
        }
        Ok(Attached {
            link_id: link_info(linked.link.as_fd())?.id,
            link: linked.link,
            maps: self.maps,
            stages: self.stages,
            constants: self.constants,
            build: Build::of(linked.multi_buffer),
            ifindex,
            device: linked.device,
            mode: linked.mode,
            fallbacks: linked.fallbacks,
            pin: pin.cloned(),
            user: None,
        })
    }
}

fn link_info(link: BorrowedFd<'_>) -> Result<sys::LinkInfo, Error> {
    sys::link_info(link).map_err(|source| Error::Query { what: "information about a link", source })
}

impl Attached {
    /// Index of the device in its own namespace.
    #[must_use]
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Name of the device when it was attached.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The mode in use.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether multi-buffer frames are taken.
    #[must_use]
    pub fn multi_buffer(&self) -> bool {
        self.build == Build::Frags
    }

    /// What was refused before this mode was found; empty after [`adopt`].
    #[must_use]
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    /// What the program is specialised by.
    #[must_use]
    pub fn constants(&self) -> Constants {
        self.constants
    }

    /// The kernel's id of the link, as `bpftool link` shows it.
    #[must_use]
    pub fn link_id(&self) -> u32 {
        self.link_id
    }

    /// Where it is pinned.
    #[must_use]
    pub fn pin(&self) -> Option<&PinPath> {
        self.pin.as_ref()
    }

    /// The port's program as it is now: id, tag, instructions.
    ///
    /// # Errors
    /// [`Error::Query`].
    pub fn info(&self) -> Result<ProgramInfo, Error> {
        ProgramInfo::read(self.program()?.as_fd())
    }

    /// The port's program: on the link, or behind a user's.
    fn program(&self) -> Result<OwnedFd, Error> {
        let on_link = || {
            sys::program_by_id(link_info(self.link.as_fd())?.program)
                .map_err(|source| Error::Query { what: "the program of a link", source })
        };
        match &self.user {
            None => on_link(),
            Some(user) => {
                let source = std::io::Error::from_raw_os_error(libc::ENOENT);
                let empty = Error::Query { what: "the port's program behind a user's", source };
                user.leads_to()?.ok_or(empty)
            }
        }
    }

    /// Whether the device still exists. A deleted device takes its link off by itself.
    ///
    /// # Errors
    /// [`Error::Query`].
    pub fn is_alive(&self) -> Result<bool, Error> {
        Ok(link_info(self.link.as_fd())?.ifindex != 0)
    }

    /// Puts a socket into a queue's slot, replacing another. The kernel clears the slot when the
    /// socket is closed.
    ///
    /// # Errors
    /// [`Error::QueueOutOfRange`], [`Error::Socket`].
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        crate::program::set_socket(&self.maps, self.constants.queues, &self.device, queue, socket)
    }

    /// Empties a queue's slot; its frames follow `when_down`. An empty slot is fine.
    ///
    /// # Errors
    /// [`Error::QueueOutOfRange`], [`Error::Map`].
    pub fn clear_socket(&self, queue: u32) -> Result<(), Error> {
        let queues = self.constants.queues;
        if queue >= queues {
            return Err(Error::QueueOutOfRange { device: self.device.clone(), queue, queues });
        }
        sys::map_delete(self.maps.xsks.as_fd(), &queue.to_ne_bytes()).map(drop).map_err(|source| Error::Map {
            map: "xsks",
            operation: "clear",
            source,
        })
    }

    /// Replaces what the kernel answers for: additions first.
    ///
    /// # Errors
    /// [`Error::LocalsFull`], [`Error::Map`].
    pub fn update_locals(&self, locals: &LocalAddresses) -> Result<(), Error> {
        self.maps.set_locals(locals, false)
    }

    /// Packets by way out since the port's maps were made.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn counters(&self) -> Result<Counters, Error> {
        Counters::read(self.maps.counters.as_fd())
    }

    /// Loads a replacement on this port's maps, for [`Attached::swap`]. The port is unchanged.
    ///
    /// # Errors
    /// [`Error::QueuesDiffer`], [`Error::LocalsFull`], [`Error::Load`].
    pub fn prepare(&self, config: &ProgramConfig) -> Result<Loaded, Error> {
        if config.queues != self.constants.queues {
            return Err(Error::QueuesDiffer {
                device: self.device.clone(),
                old: self.constants.queues,
                new: config.queues,
            });
        }
        let (locals, stages) = (Some(config.locals.clone()), self.stages.clone());
        Loaded::new(Constants::from(config), locals, self.build, Some(&self.maps), stages)
    }

    /// Loads the same program with another filter, or without one, for [`Attached::swap`]. The
    /// port is unchanged.
    ///
    /// # Errors
    /// [`Error::Load`].
    pub fn prepare_filter(&self, filter: Option<&Filter>) -> Result<Loaded, Error> {
        let filter = filter.map(|filter| Arc::clone(filter.maps()));
        let stages = Stages { filter, ..self.stages.clone() };
        Loaded::new(self.constants, None, self.build, Some(&self.maps), stages)
    }

    /// Loads the same program with another bridge stage, or without one, for [`Attached::swap`].
    /// The port is unchanged.
    ///
    /// # Errors
    /// [`Error::Load`].
    pub fn prepare_bridge(&self, bridge: Option<&BridgeStage>) -> Result<Loaded, Error> {
        let bridge = bridge.map(|bridge| Arc::clone(bridge.maps()));
        let route = self.stages.route.clone().filter(|_| bridge.is_none());
        let flows = self.stages.flows.clone().filter(|_| bridge.is_none());
        let stages = Stages { bridge, flows, route, ..self.stages.clone() };
        Loaded::new(self.constants, None, self.build, Some(&self.maps), stages)
    }

    /// Loads the same program with another stage of cached flows, or without one, for [`Attached::swap`]. With it there is none of
    /// known stations. The port is unchanged.
    ///
    /// # Errors
    /// [`Error::Load`].
    pub fn prepare_flows(&self, flows: Option<&FlowStage>) -> Result<Loaded, Error> {
        let flows = flows.map(|flows| Arc::clone(flows.maps()));
        let route = self.stages.route.clone().filter(|_| flows.is_none());
        let bridge = self.stages.bridge.clone().filter(|_| flows.is_none());
        let stages = Stages { bridge, flows, route, ..self.stages.clone() };
        Loaded::new(self.constants, None, self.build, Some(&self.maps), stages)
    }

    /// Lets the hook answer for cached flows of OpenFlow's rules, or leave that to the worker. Each frame meets the old stage or the
    /// new one. Later replacements of the program keep it.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::Swap`]: the old stage goes on.
    pub fn set_flows(&mut self, flows: Option<&FlowStage>) -> Result<(), Error> {
        let loaded = self.prepare_flows(flows)?;
        self.swap(loaded)
    }

    /// Whether the program has a stage of cached flows.
    #[must_use]
    pub fn has_flows(&self) -> bool {
        self.stages.flows.is_some()
    }

    pub(crate) fn flow_maps(&self) -> Option<&Arc<FlowMaps>> {
        self.stages.flows.as_ref()
    }

    /// Lets the hook answer for a bridge's known stations, or leave that to the worker. Each frame
    /// meets the old stage or the new one. Later replacements of the program keep it.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::Swap`]: the old stage goes on.
    pub fn set_bridge(&mut self, bridge: Option<&BridgeStage>) -> Result<(), Error> {
        let loaded = self.prepare_bridge(bridge)?;
        self.swap(loaded)
    }

    /// Puts a capture around the port's program, or takes it away; frames meet the program with
    /// it or without it. Later replacements of the program keep it.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::Swap`]: the program is as before.
    pub fn set_dump(&mut self, dump: Option<&Dump>) -> Result<(), Error> {
        let dump = dump.map(|dump| Arc::clone(dump.maps()));
        let stages = Stages { dump, ..self.stages.clone() };
        let loaded = Loaded::new(self.constants, None, self.build, Some(&self.maps), stages)?;
        self.swap(loaded)
    }

    /// Whether a capture is around the program: ours, or one that a predecessor has left.
    ///
    /// # Errors
    /// [`Error::Query`].
    pub fn dumps(&self) -> Result<bool, Error> {
        Ok(self.info()?.name == self.build.dumping())
    }

    /// Whether the program has a bridge stage.
    #[must_use]
    pub fn has_bridge(&self) -> bool {
        self.stages.bridge.is_some()
    }

    pub(crate) fn stages(&self) -> &Stages {
        &self.stages
    }

    pub(crate) fn build(&self) -> Build {
        self.build
    }

    pub(crate) fn maps(&self) -> &Maps {
        &self.maps
    }

    pub(crate) fn bridge_maps(&self) -> Option<&Arc<BridgeMaps>> {
        self.stages.bridge.as_ref()
    }

    /// Loads the same program with another stage of the kernel's routing, or without one, for
    /// [`Attached::swap`]. The port is unchanged.
    ///
    /// # Errors
    /// [`Error::Load`].
    pub fn prepare_fib(&self, fib: Option<&FibStage>) -> Result<Loaded, Error> {
        let fib = fib.map(|fib| Arc::clone(fib.maps()));
        let route = self.stages.route.clone().filter(|_| fib.is_none());
        let stages = Stages { fib, route, ..self.stages.clone() };
        Loaded::new(self.constants, None, self.build, Some(&self.maps), stages)
    }

    /// Lets the hook forward by the kernel's routes, or leave that to the stack. Each frame meets
    /// the old stage or the new one. With it nothing is steered to sockets. Later replacements of
    /// the program keep it.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::Swap`]: the old stage goes on.
    pub fn set_fib(&mut self, fib: Option<&FibStage>) -> Result<(), Error> {
        let loaded = self.prepare_fib(fib)?;
        self.swap(loaded)
    }

    /// The stage of the kernel's routing that the program has.
    #[must_use]
    pub fn fib(&self) -> Option<FibStage> {
        self.stages.fib.as_ref().map(|maps| FibStage::over(Arc::clone(maps)))
    }

    /// Loads the same program with another stage of a virtual router, or without one, for [`Attached::swap`]. A port stands in one
    /// room: with it there is no bridge stage and none of the kernel's routing, and the port's owner is [`crate::Owner::Routed`].
    /// The port is unchanged.
    ///
    /// # Errors
    /// [`Error::Load`].
    pub fn prepare_route(&self, route: Option<&RouteStage>) -> Result<Loaded, Error> {
        let stages = match route {
            None => Stages { route: None, ..self.stages.clone() },
            Some(route) => {
                let route = Some(Arc::clone(route.maps()));
                Stages { route, bridge: None, flows: None, fib: None, ..self.stages.clone() }
            }
        };
        Loaded::new(self.constants, None, self.build, Some(&self.maps), stages)
    }

    /// Makes the port a virtual router's, or gives it another Ethernet address there: what is not the kernel's own goes up to be
    /// routed. Or takes it away: then the stage of routed ports leaves the kernel what is its own. Each frame meets the old stage
    /// or the new one. Later replacements of the program keep it.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::Swap`]: the old stage goes on.
    pub fn set_route(&mut self, route: Option<&RouteStage>) -> Result<(), Error> {
        let loaded = self.prepare_route(route)?;
        self.swap(loaded)
    }

    /// The stage of a virtual router that the program has.
    #[must_use]
    pub fn route(&self) -> Option<RouteStage> {
        self.stages.route.as_ref().map(|maps| RouteStage::over(Arc::clone(maps)))
    }

    /// The order of frames between the hook of a virtual router's port and its workers, where it is kept ([`RouteStage::in_order`]).
    #[must_use]
    pub fn route_orders(&self) -> Option<&Arc<Orders>> {
        self.stages.route.as_ref().and_then(|route| route.orders())
    }

    /// Loads the same program with a steering as it is now, or without one, for [`Attached::swap`]. The port is unchanged.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::Map`].
    pub fn prepare_steering(&self, steering: Option<&Steering>) -> Result<Loaded, Error> {
        let steer = steering.map(|steering| steering.maps(self.build, self.mode)).transpose()?;
        let stages = Stages { steer, ..self.stages.clone() };
        Loaded::new(self.constants, None, self.build, Some(&self.maps), stages)
    }

    /// Lets a steering say where the port's frames go, or takes it away. Each frame meets the old one or the new one. Later
    /// replacements of the program keep it.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::Map`], [`Error::Swap`]: the old steering goes on.
    pub fn set_steering(&mut self, steering: Option<&Steering>) -> Result<(), Error> {
        let loaded = self.prepare_steering(steering)?;
        self.swap(loaded)
    }

    /// The number of the port's steering ([`Steering::id`]), if there is one.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn steering_id(&self) -> Result<Option<u32>, Error> {
        self.stages.steer.as_ref().map(|maps| maps.shared.id()).transpose()
    }

    /// Whether its steering looks for exact flows, and whether it has a table; `None` without one.
    #[must_use]
    pub fn steers(&self) -> Option<(bool, bool)> {
        let [_, flows, table, _] = self.stages.steer.as_ref()?.conf;
        Some((flows > 0, table > 0))
    }

    /// Whether a steering can send this port's frames to other CPUs; if not, they stay with the kernel on the one that they came to.
    #[must_use]
    pub fn sends_to_cpus(&self) -> bool {
        steer::Kind::of(self.build, self.mode()).sends_to_cpus()
    }

    pub(crate) fn steer_maps(&self) -> Option<&Arc<SteerMaps>> {
        self.stages.steer.as_ref()
    }

    /// Puts a filter's present rules in front of the port, or takes the filter away. Each frame
    /// meets the old rules or the new ones. Later replacements of the program keep them.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::Swap`]: the old rules go on.
    pub fn set_filter(&mut self, filter: Option<&Filter>) -> Result<(), Error> {
        let loaded = self.prepare_filter(filter)?;
        self.swap(loaded)
    }

    /// The number of the filter in front of the port ([`Filter::id`]), if there is one.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn filter_id(&self) -> Result<Option<u32>, Error> {
        self.stages.filter.as_ref().map(|maps| maps.id()).transpose()
    }

    pub(crate) fn filter_maps(&self) -> Option<&Arc<FilterMaps>> {
        self.stages.filter.as_ref()
    }

    /// Replaces the program atomically: each frame meets the old one or the new one. Sockets,
    /// counters and pins stay.
    ///
    /// # Errors
    /// [`Error::MapsDiffer`] unless `loaded` came from [`Attached::prepare`], [`Error::Swap`],
    /// [`Error::Map`]; but for the last, the old program goes on.
    pub fn swap(&mut self, loaded: Loaded) -> Result<(), Error> {
        if !self.shares_maps_with(&loaded)? {
            return Err(Error::MapsDiffer { device: self.device.clone() });
        }
        // Both programs' addresses are the kernel's while either may run.
        if let Some(locals) = &loaded.locals {
            loaded.maps.set_locals(locals, true)?;
        }
        let swapped = match &self.user {
            None => sys::link_update(self.link.as_fd(), loaded.program.as_fd()),
            Some(user) => user.lead_to(loaded.program.as_fd()),
        };
        swapped.map_err(|source| self.not_swapped(source))?;
        self.constants = loaded.constants;
        self.build = loaded.build;
        self.stages = loaded.stages;
        loaded.locals.map_or(Ok(()), |locals| self.maps.set_locals(&locals, false))
    }

    /// Puts a user's program in front of the port's, or in the place of another: each frame meets first what stood there or what
    /// stands there now. Later replacements of the port's program keep it. Where the port is pinned, it is pinned with its maps.
    ///
    /// # Errors
    /// [`Error::User`] when it could not go on with the port's program, [`Error::Pin`], [`Error::Swap`], [`Error::Query`]: all is
    /// as before.
    pub fn set_user(&mut self, user: UserProgram) -> Result<(), Error> {
        user.fits(self)?;
        let own = self.program()?;
        user.lead_to(own.as_fd()).map_err(|source| self.not_swapped(source))?;
        let staged = self.pin.as_ref().map_or(Ok(()), |pin| pin.stage_user(&user));
        let done = staged.and_then(|()| self.run_first(user.program.as_fd()));
        let done = done.and_then(|()| match self.pin.as_ref().map_or(Ok(()), PinPath::commit_user) {
            Ok(()) => Ok(()),
            Err(error) => {
                let before = self.user.as_ref().map_or(own.as_fd(), |before| before.program.as_fd());
                self.run_first(before).and(Err(error))
            }
        });
        if done.is_err() {
            // The error that brought us here says more than one of the clean-up would.
            let _ = self.pin.as_ref().map(PinPath::drop_staged_user);
        } else {
            self.user = Some(user);
        }
        done
    }

    /// Takes a user's program away again, its pins too; each frame meets it, or the port's program at once. What is returned can
    /// be put in front of another port.
    ///
    /// # Errors
    /// [`Error::Query`], [`Error::Swap`]: it stays.
    pub fn take_user(&mut self) -> Result<Option<UserProgram>, Error> {
        if self.user.is_some() {
            self.run_first(self.program()?.as_fd())?;
        }
        let user = self.user.take();
        // What stays of its pins is removed by whoever adopts the hook.
        let _ = self.pin.as_ref().map(|pin| pin.repair_user(None));
        Ok(user)
    }

    /// The user's program in front of the port's.
    #[must_use]
    pub fn user(&self) -> Option<&UserProgram> {
        self.user.as_ref()
    }

    /// When it returns no frame is in the program that was first until now: its way on may go.
    fn run_first(&self, program: BorrowedFd<'_>) -> Result<(), Error> {
        sys::link_update(self.link.as_fd(), program).map_err(|source| self.not_swapped(source))?;
        sys::wait_for_programs();
        Ok(())
    }

    fn not_swapped(&self, source: std::io::Error) -> Error {
        Error::Swap { device: self.device.clone(), source }
    }

    fn shares_maps_with(&self, loaded: &Loaded) -> Result<bool, Error> {
        let id = |map: BorrowedFd<'_>| {
            sys::map_info(map).map(|info| info.id).map_err(|source| Error::Map {
                map: "xsks",
                operation: "query",
                source,
            })
        };
        Ok(id(self.maps.xsks.as_fd())? == id(loaded.maps.xsks.as_fd())?)
    }

    /// Takes the program off the device and removes its pins.
    ///
    /// # Errors
    /// [`Error::Query`] or [`Error::Pin`].
    pub fn detach(self) -> Result<(), Error> {
        self.detach_from_user().1
    }

    /// The same, and the user's program that stood in front, for [`Attached::set_user`] of the port's next hook.
    pub fn detach_from_user(self) -> (Option<UserProgram>, Result<(), Error>) {
        let detached = match sys::link_detach(self.link.as_fd()) {
            // The device has gone, and the link with it.
            Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => Ok(()),
            other => other.map_err(|source| Error::Query { what: "detaching a link", source }),
        };
        let removed = detached.and_then(|()| self.pin.map_or(Ok(()), |pin| pin.remove()));
        let user = self.user.inspect(UserProgram::lead_nowhere);
        (user, removed)
    }

    /// Gives everything away for a successor process, without detaching.
    #[must_use]
    pub fn into_fds(self) -> HandOver {
        let Maps { xsks, local4, local6, counters } = self.maps;
        HandOver { fds: [self.link, xsks, local4, local6, counters], pin: self.pin, user: self.user }
    }

    /// Takes over what [`Attached::into_fds`] gave away, in the device's namespace.
    ///
    /// # Errors
    /// [`Error::NotOurs`], [`Error::DeviceGone`], [`Error::WrongNamespace`], [`Error::Query`].
    pub fn from_fds(hand_over: HandOver) -> Result<Attached, Error> {
        let HandOver { fds: [link, xsks, local4, local6, counters], pin, user: _until_then } = hand_over;
        Attached::from_link(link, Some(Maps { xsks, local4, local6, counters }), pin)
    }

    /// The link's program tells the rest: its maps, and its constants in one of them.
    fn from_link(link: OwnedFd, maps: Option<Maps>, pin: Option<PinPath>) -> Result<Attached, Error> {
        let object = || match &pin {
            Some(pin) => pin.directory().display().to_string(),
            None => "descriptor of a link".to_owned(),
        };
        let is_link = sys::is_link(link.as_fd())
            .map_err(|source| Error::Query { what: "the kind of a descriptor (in /proc)", source })?;
        let info = link_info(link.as_fd())?;
        if !is_link || !info.is_xdp {
            return Err(Error::NotOurs { object: object(), found: "no XDP link".to_owned() });
        }
        let (mode, device) = attach::mode_of(&info)?;
        let query = |source| Error::Query { what: "the program of a link", source };
        let on_link = sys::program_by_id(info.program).map_err(query)?;
        let user = UserProgram::adopt(&on_link, pin.as_ref())?;
        let own = match &user {
            None => on_link,
            Some(user) => user.leads_to()?.ok_or_else(|| Error::Alone { object: object() })?,
        };
        let program = sys::program_info(own.as_fd()).map_err(query)?;
        let known = |build: &Build| [build.program(), build.dumping()].contains(&program.name.as_str());
        let build = [Build::Frags, Build::Linear].into_iter().find(known);
        let mut found = MapsOfProgram::open(&program.maps)?;
        let ours = build.zip(found.constants()?);
        let Some((build, constants)) = ours else {
            return Err(Error::NotOurs { object: object(), found: format!("program \"{}\"", program.name) });
        };
        let filter = found.filter()?.map(Arc::new);
        let (bridge, for_flows) = match found.stations()? {
            Some(known) if known.is_stage() => (Some(Arc::new(found.bridge(known)?)), None),
            known => (None, known),
        };
        let flows = found.flows(for_flows)?.map(Arc::new);
        // The reader of a predecessor's capture has gone with it.
        let (fib, steer) = (found.fib()?.map(Arc::new), found.steer()?.map(Arc::new));
        let route = found.route()?.map(Arc::new);
        let stages = Stages { filter, bridge, flows, fib, route, steer, dump: None };
        let maps = match maps {
            Some(maps) => maps,
            None => found.into_maps()?,
        };
        let user = user.map(|user| user.with_buffers(build == Build::Frags));
        if let Some(pin) = &pin {
            pin.repair_user(user.as_ref())?;
        }
        Ok(Attached {
            link,
            link_id: info.id,
            maps,
            constants,
            build,
            ifindex: info.ifindex,
            device,
            mode,
            fallbacks: Vec::new(),
            pin,
            stages,
            user,
        })
    }
}

/// The maps that a loaded program refers to, by name.
struct MapsOfProgram(Vec<(String, OwnedFd)>);

impl MapsOfProgram {
    fn open(ids: &[u32]) -> Result<MapsOfProgram, Error> {
        let failed = |source| Error::Query { what: "the maps of a program", source };
        let mut maps = Vec::with_capacity(ids.len());
        for id in ids {
            let map = sys::map_by_id(*id).map_err(failed)?;
            maps.push((sys::map_info(map.as_fd()).map_err(failed)?.name, map));
        }
        Ok(MapsOfProgram(maps))
    }

    fn constants(&self) -> Result<Option<Constants>, Error> {
        let Some((_, map)) = self.0.iter().find(|(name, _)| name == CONF) else { return Ok(None) };
        match sys::map_lookup::<CONF_SIZE>(map.as_fd(), 0) {
            Ok(bytes) => Ok(Constants::from_bytes(&bytes)),
            // Another size: a program of somebody else's, or of another version.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
            Err(source) => Err(Error::Map { map: CONF, operation: "read", source }),
        }
    }

    /// The constants of a stage; `None` without it.
    fn stage<const BYTES: usize, const WORDS: usize>(
        &self,
        section: &'static str,
    ) -> Result<Option<[u32; WORDS]>, Error> {
        let conf = self.words::<BYTES, WORDS>(section)?;
        Ok(conf.filter(|conf| conf.first().is_some_and(|present| *present > 0)))
    }

    /// The words of a section; `None` where the program does not read it.
    fn words<const BYTES: usize, const WORDS: usize>(
        &self,
        section: &'static str,
    ) -> Result<Option<[u32; WORDS]>, Error> {
        let Some((_, map)) = self.0.iter().find(|(name, _)| name == section) else { return Ok(None) };
        let failed = |source| Error::Map { map: section, operation: "read", source };
        let bytes = sys::map_lookup::<BYTES>(map.as_fd(), 0).map_err(failed)?;
        let mut conf = [0; WORDS];
        for (word, bytes) in conf.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = bytes.try_into().map_or(0, u32::from_ne_bytes);
        }
        Ok(Some(conf))
    }

    /// What the program's filter consists of; `None` without one.
    fn filter(&mut self) -> Result<Option<FilterMaps>, Error> {
        let conf = self.stage::<{ 4 * CONF_WORDS }, CONF_WORDS>(FILTER_CONF)?;
        conf.map(|conf| FilterMaps::adopt(conf, |name| self.take(name))).transpose()
    }

    /// The stations that the program asks; `None` without them.
    fn stations(&mut self) -> Result<Option<KnownStations>, Error> {
        let conf = self.stage::<{ 4 * BRIDGE_WORDS }, BRIDGE_WORDS>(BRIDGE_CONF)?;
        conf.map(|conf| KnownStations::adopt(conf, |name| self.take(name))).transpose()
    }

    /// What the program's bridge stage consists of.
    fn bridge(&mut self, known: KnownStations) -> Result<BridgeMaps, Error> {
        BridgeMaps::adopt(known, |name| self.take(name))
    }

    /// What the program's stage of cached flows consists of; `None` without one.
    fn flows(&mut self, known: Option<KnownStations>) -> Result<Option<FlowMaps>, Error> {
        let conf = self.stage::<{ 4 * FLOWS_WORDS }, FLOWS_WORDS>(FLOWS_CONF)?;
        conf.map(|conf| FlowMaps::adopt(conf, known, |name| self.take(name))).transpose()
    }

    /// What the program's stage of the kernel's routing consists of; `None` without one.
    fn fib(&mut self) -> Result<Option<FibMaps>, Error> {
        let conf = self.stage::<{ 4 * FIB_WORDS }, FIB_WORDS>(FIB_CONF)?;
        conf.map(|conf| FibMaps::adopt(conf, |name| self.take(name))).transpose()
    }

    /// What the program's stage of a virtual router consists of; `None` without one.
    fn route(&mut self) -> Result<Option<RouteMaps>, Error> {
        let Some(conf) = self.stage::<{ 4 * ROUTE_WORDS }, ROUTE_WORDS>(ROUTE_CONF)? else { return Ok(None) };
        // A program without VLANs does not refer to them.
        let vlans = self.words::<{ 4 * VLAN_WORDS }, VLAN_WORDS>(ROUTE_VLANS)?;
        let vlans = vlans.map_or_else(Vlans::none, |words| Vlans::read(&words));
        // Neither does one that finds no neighbours to them.
        let secrets = self.words::<{ 8 * LINK_SECRETS }, { 2 * LINK_SECRETS }>(ROUTE_LINKS)?;
        let secrets = secrets.map_or([0; LINK_SECRETS], |words| link_secrets(&words));
        RouteMaps::adopt(conf, vlans, secrets, |name| self.take(name)).map(Some)
    }

    /// What the program's steering consists of; `None` without one.
    fn steer(&mut self) -> Result<Option<SteerMaps>, Error> {
        let conf = self.stage::<{ 4 * STEER_WORDS }, STEER_WORDS>(STEER_CONF)?;
        conf.map(|conf| SteerMaps::adopt(conf, |name| self.take(name))).transpose()
    }

    fn take(&mut self, what: &'static str) -> Result<OwnedFd, Error> {
        let at = self.0.iter().position(|(name, _)| name == what);
        at.map(|at| self.0.swap_remove(at).1).ok_or(Error::Object { object: "trivium", what })
    }

    fn into_maps(mut self) -> Result<Maps, Error> {
        let [xsks, local4, local6, counters] = MAP_NAMES;
        Ok(Maps {
            xsks: self.take(xsks)?,
            local4: self.take(local4)?,
            local6: self.take(local6)?,
            counters: self.take(counters)?,
        })
    }
}

/// What a successor process needs: descriptors, to be passed by `SCM_RIGHTS`, and the pin.
#[derive(Debug)]
pub struct HandOver {
    /// Link, sockets, IPv4 and IPv6 addresses, counters: in this order.
    pub fds: [OwnedFd; 5],
    /// Where the port is pinned.
    pub pin: Option<PinPath>,
    /// A user's program in front. The successor finds it by the link; keep it until then, or its way on is lost.
    pub user: Option<UserProgram>,
}

/// Opens what a process that has ended left pinned, from within the device's namespace. `None`
/// when nothing is there, or when the device or the port's program behind a user's has gone: then the remains are removed.
///
/// # Errors
/// [`Error::NotOurs`], [`Error::WrongNamespace`], [`Error::Pin`], [`Error::Query`]; needs
/// CAP_SYS_ADMIN.
pub fn adopt(pin: &PinPath) -> Result<Option<Attached>, Error> {
    let Some(link) = pin.open_link()? else { return Ok(None) };
    match Attached::from_link(link, None, Some(pin.clone())) {
        Err(Error::DeviceGone { .. }) => {
            pin.remove()?;
            Ok(None)
        }
        // Its pin was removed by hand: no frame gets any further.
        Err(Error::Alone { .. }) => {
            let link = pin.open_link()?;
            let detached = link.map_or(Ok(()), |link| sys::link_detach(link.as_fd()));
            detached.map_err(|source| Error::Query { what: "detaching a link", source })?;
            pin.remove()?;
            Ok(None)
        }
        other => other.map(Some),
    }
}
