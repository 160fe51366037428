//! An XDP program that is attached to the device of a port. This module replaces the program, registers the port's
//! AF_XDP sockets and local addresses, reads the program's counters and pins the program.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::attach::{self, AttachMode, Candidate};
use crate::bridge::Orders;
use crate::build::Build;
use crate::counters::Counters;
use crate::fib::FibStage;
use crate::program::Maps;
use crate::route::RouteStage;
use crate::stages::{StageChange, Stages};
use crate::steer;
use crate::user::UserProgram;
use crate::{
    Constants, Error, Fallback, Loaded, LocalAddresses, Mode, PinPath, ProgramConfig, ProgramInfo, sys,
};

/// A port's XDP program that is attached to a device. Dropping the value detaches the program unless it is
/// pinned.
#[derive(Debug)]
pub struct Attached {
    pub(crate) link: OwnedFd,
    pub(crate) link_id: u32,
    pub(crate) maps: Maps,
    pub(crate) constants: Constants,
    pub(crate) build: Build,
    pub(crate) ifindex: u32,
    pub(crate) device: String,
    pub(crate) mode: Mode,
    pub(crate) fallbacks: Vec<Fallback>,
    pub(crate) pin: Option<PinPath>,
    pub(crate) stages: Stages,
    /// Custom program ([`crate::user`]) that the link runs in front of the port's program.
    pub(crate) user: Option<UserProgram>,
    /// Whether the link runs a placeholder program ([`crate::Placeholders`]) until the port's own program is loaded.
    /// The port then has no custom program.
    pub(crate) is_placeholder: bool,
}

impl Loaded {
    /// Attaches the program to a device of the calling thread's network namespace.
    ///
    /// With a pin path in `pin`, the link and the maps stay in the kernel when the process ends, and
    /// [`adopt`](crate::adopt()) takes them over.
    ///
    /// # Errors
    /// Returns [`Error::NoDevice`], [`Error::Foreign`], [`Error::Attach`] with the reason of every refused
    /// attempt, or the errors of pinning. After an error, the program is neither attached nor pinned.
    pub fn attach(self, ifindex: u32, allowed: AttachMode, pin: Option<PinPath>) -> Result<Attached, Error> {
        if let Some(pin) = &pin {
            pin.prepare()?;
        }
        let attached = self.attach_and_pin(ifindex, allowed, pin.as_ref());
        if let (Err(_), Some(pin)) = (&attached, &pin) {
            // The first error is reported. An error of the clean-up is ignored.
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
        let linear = || self.linear().map(Some);
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
            is_placeholder: self.placeholders.is_some(),
        })
    }
}

pub(crate) fn link_info(link: BorrowedFd<'_>) -> Result<sys::LinkInfo, Error> {
    sys::link_info(link).map_err(|source| Error::Query { what: "information about a link", source })
}

impl Attached {
    /// Returns the index of the device in the device's own network namespace.
    #[must_use]
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Returns the name that the device had when the program was attached.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Returns the XDP mode in which the program runs.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns whether the program accepts multi-buffer frames.
    #[must_use]
    pub fn multi_buffer(&self) -> bool {
        self.build == Build::Frags
    }

    /// Returns the attach attempts that were refused before the mode in use was accepted. The list is empty for a
    /// program that was taken over by [`adopt`](crate::adopt()).
    #[must_use]
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    /// Returns the constants that were written into the program before it was loaded.
    #[must_use]
    pub fn constants(&self) -> Constants {
        self.constants
    }

    /// Returns the kernel's id of the link, as `bpftool link` shows it.
    #[must_use]
    pub fn link_id(&self) -> u32 {
        self.link_id
    }

    /// Returns the path where the program is pinned. Returns `None` if the program is not pinned.
    #[must_use]
    pub fn pin(&self) -> Option<&PinPath> {
        self.pin.as_ref()
    }

    /// Returns the kernel's information about the port's program, such as its id, tag and number of
    /// instructions.
    ///
    /// # Errors
    /// Returns [`Error::Query`] if a query of the kernel fails.
    pub fn info(&self) -> Result<ProgramInfo, Error> {
        ProgramInfo::read(self.program()?.as_fd())
    }

    /// Opens the port's own program: the program of the BPF link or, if the link runs a custom program, the program in
    /// the custom program's tail call array.
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

    /// Returns whether the device runs a placeholder program ([`crate::Placeholders`]) in place of the port's
    /// own program.
    #[must_use]
    pub fn is_placeholder(&self) -> bool {
        self.is_placeholder
    }

    /// Replaces a placeholder program with the port's own program. Does nothing if the port's own program runs already.
    ///
    /// # Errors
    /// Returns [`Error::Load`] or [`Error::Swap`]. The placeholder stays in place on failure.
    pub fn complete(&mut self) -> Result<(), Error> {
        if !self.is_placeholder {
            return Ok(());
        }
        let loaded = Loaded::new(self.constants, None, self.build, Some(&self.maps), self.stages.clone())?;
        self.swap(loaded)
    }

    /// Returns whether the device still exists. The kernel detaches the link when the device is deleted.
    ///
    /// # Errors
    /// Returns [`Error::Query`] if a query of the kernel fails.
    pub fn is_alive(&self) -> Result<bool, Error> {
        Ok(link_info(self.link.as_fd())?.ifindex != 0)
    }

    /// Puts an AF_XDP socket into the socket map's slot of a receive queue. A socket that is already in the
    /// slot is replaced. The kernel clears the slot when the socket is closed.
    ///
    /// # Errors
    /// Returns [`Error::QueueOutOfRange`] or [`Error::Socket`].
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        crate::program::set_socket(&self.maps, self.constants.queues, &self.device, queue, socket)
    }

    /// Clears the socket map's slot of a receive queue. Frames received later on the queue are passed to the kernel or
    /// dropped, as [`crate::WhenDown`] in the port's configuration states. Clearing an empty slot succeeds.
    ///
    /// # Errors
    /// Returns [`Error::QueueOutOfRange`] or [`Error::Map`].
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

    /// Replaces the local IP addresses of the port. Packets to a local address go to the kernel. New addresses
    /// are added before old ones are removed.
    ///
    /// # Errors
    /// Returns [`Error::LocalsFull`] or [`Error::Map`].
    pub fn update_locals(&self, locals: &LocalAddresses) -> Result<(), Error> {
        self.maps.set_locals(locals, false)
    }

    /// Returns the number of frames for each outcome (forwarded, passed, dropped and so on) since the port's maps were
    /// created.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn counters(&self) -> Result<Counters, Error> {
        Counters::read(self.maps.counters.as_fd())
    }

    /// Loads a replacement for the port's program that uses this port's maps. The attached program is
    /// unchanged until the replacement is passed to [`Attached::swap`].
    ///
    /// # Errors
    /// Returns [`Error::QueuesDiffer`], [`Error::LocalsFull`] or [`Error::Load`].
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

    /// Loads this port's program with one stage added, replaced or removed. The attached program is
    /// unchanged until the loaded program is passed to [`Attached::swap`].
    ///
    /// # Errors
    /// Returns [`Error::Load`] if the kernel refuses the program. If the stage is flow steering, also returns
    /// [`Error::Map`].
    pub fn prepare_stage(&self, change: StageChange<'_>) -> Result<Loaded, Error> {
        let stages = self.stages.with(change, self.build, self.mode)?;
        Loaded::new(self.constants, None, self.build, Some(&self.maps), stages)
    }

    /// Replaces a stage of the port's program, or removes it. Each frame is processed by the program either with
    /// the old stage or with the new one. Later replacements of the program keep the stage.
    ///
    /// # Errors
    /// Returns the errors of [`Attached::prepare_stage`], or [`Error::Swap`]. The old stage stays in place on
    /// failure.
    pub fn set_stage(&mut self, change: StageChange<'_>) -> Result<(), Error> {
        let loaded = self.prepare_stage(change)?;
        self.swap(loaded)
    }

    /// Returns whether the program has a stage of cached OpenFlow flows.
    #[must_use]
    pub fn has_flows(&self) -> bool {
        self.stages.flows.is_some()
    }

    /// Returns whether the running program captures packets. This includes a capture that a predecessor process did not
    /// remove.
    ///
    /// # Errors
    /// Returns [`Error::Query`] if a query of the kernel fails.
    pub fn dumps(&self) -> Result<bool, Error> {
        Ok(self.info()?.name == self.build.dumping())
    }

    /// Returns whether the program has a bridge stage.
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

    /// Returns the program's kernel routing stage. Returns `None` if the program has no such stage.
    #[must_use]
    pub fn fib(&self) -> Option<FibStage> {
        self.stages.fib.as_ref().map(|maps| FibStage::over(Arc::clone(maps)))
    }

    /// Returns the program's virtual router stage. Returns `None` if the program has no such stage.
    #[must_use]
    pub fn route(&self) -> Option<RouteStage> {
        self.stages.route.as_ref().map(|maps| RouteStage::over(Arc::clone(maps)))
    }

    /// Returns the frame sequence numbers with which the port's XDP program and the workers keep the frames of a flow
    /// in order. Returns `None` if the virtual router stage does not keep frame order ([`RouteStage::in_order`]).
    #[must_use]
    pub fn route_orders(&self) -> Option<&Arc<Orders>> {
        self.stages.route.as_ref().and_then(|route| route.orders())
    }

    /// Returns the frame sequence numbers ([`Orders`]) that the program already uses. Returns new
    /// sequence numbers if the program uses none, or if its sequence numbers are for a different
    /// number of receive queues.
    pub(crate) fn orders(&self) -> Result<Arc<Orders>, Error> {
        let queues = self.constants().queues;
        let known = self.stages.bridge.as_ref().map(|maps| maps.orders());
        let known = known.or(self.stages.flows.as_ref().map(|maps| maps.orders())).or(self.route_orders());
        match known.filter(|orders| orders.queues() == queues) {
            Some(orders) => Ok(Arc::clone(orders)),
            None => Ok(Arc::new(Orders::new(queues)?)),
        }
    }

    /// Returns the kernel id that identifies the port's flow steering ([`crate::steer::Steering::id`]). Returns
    /// `None` if the port has no flow steering.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn steering_id(&self) -> Result<Option<u32>, Error> {
        self.stages.steer.as_ref().map(|maps| maps.shared.id()).transpose()
    }

    /// Returns two flags of the port's flow steering: whether it looks up exact flows, and whether it selects targets
    /// with a hash of the flow. Returns `None` if the port has no flow steering.
    #[must_use]
    pub fn steers(&self) -> Option<(bool, bool)> {
        let [_, flows, table, _] = self.stages.steer.as_ref()?.conf;
        Some((flows > 0, table > 0))
    }

    /// Returns whether flow steering can move this port's frames to other CPUs. If not, all frames that the steering
    /// passes to the kernel are processed on the CPU that received them.
    #[must_use]
    pub fn sends_to_cpus(&self) -> bool {
        steer::Kind::of(self.build, self.mode()).sends_to_cpus()
    }

    /// Returns the kernel id that identifies the port's filter ([`crate::filter::Filter::id`]). Returns `None`
    /// if the port has no filter.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn filter_id(&self) -> Result<Option<u32>, Error> {
        self.stages.filter.as_ref().map(|maps| maps.id()).transpose()
    }

    /// Replaces the port's program atomically with `loaded`. Each frame is processed by either the old program or the
    /// new one. Sockets, counters and pins are kept.
    ///
    /// # Errors
    /// Returns [`Error::MapsDiffer`] unless `loaded` came from [`Attached::prepare`]. Also returns
    /// [`Error::Swap`] or [`Error::Map`]. The old program stays in place on every error except
    /// [`Error::Map`].
    pub fn swap(&mut self, loaded: Loaded) -> Result<(), Error> {
        if !self.shares_maps_with(&loaded)? {
            return Err(Error::MapsDiffer { device: self.device.clone() });
        }
        // The local addresses of both programs are set while either program may run.
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
        self.is_placeholder = loaded.placeholders.is_some();
        loaded.locals.map_or(Ok(()), |locals| self.maps.set_locals(&locals, false))
    }

    /// Puts a custom program ([`crate::user`]) in front of the port's program, or replaces the custom program that is
    /// there. The change is atomic for each frame. Later replacements of the port's program keep the custom program. If
    /// the port is pinned, the custom program and its maps are pinned too. The call waits some milliseconds, until
    /// program runs in progress have ended.
    ///
    /// # Errors
    /// Returns [`Error::User`] if the custom program cannot continue with the port's program, and
    /// [`Error::Pin`], [`Error::Swap`] or [`Error::Query`] for failed operations. The port is unchanged on
    /// failure.
    pub fn set_user(&mut self, user: UserProgram) -> Result<(), Error> {
        user.fits(self.multi_buffer())?;
        self.complete()?;
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
            // The first error is reported. An error of the clean-up is ignored.
            let _ = self.pin.as_ref().map(PinPath::drop_staged_user);
        } else {
            self.user = Some(user);
        }
        done
    }

    /// Removes the custom program in front of the port's program, and the pins of the custom program. Returns the
    /// custom program, or `None` if there is none. The change is atomic for each frame. The call waits some
    /// milliseconds, until program runs in progress have ended. The returned program can be put in front of another
    /// port.
    ///
    /// # Errors
    /// Returns [`Error::Query`] or [`Error::Swap`]. The custom program stays in place on failure.
    pub fn take_user(&mut self) -> Result<Option<UserProgram>, Error> {
        if self.user.is_some() {
            self.run_first(self.program()?.as_fd())?;
        }
        let user = self.user.take();
        // Pins that remain here are removed when the hook is adopted.
        let _ = self.pin.as_ref().map(|pin| pin.repair_user(None));
        Ok(user)
    }

    /// Returns the custom program in front of the port's program. Returns `None` if there is no custom
    /// program.
    #[must_use]
    pub fn user(&self) -> Option<&UserProgram> {
        self.user.as_ref()
    }

    /// Makes the BPF link run `program`, and waits some milliseconds until no frame is processed by
    /// the previous program. After the call, the caller may close programs that only the previous
    /// program calls.
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

    /// Detaches the program from the device and removes its pins.
    ///
    /// # Errors
    /// Returns [`Error::Query`] or [`Error::Pin`].
    pub fn detach(self) -> Result<(), Error> {
        self.detach_from_user().1
    }

    /// Detaches the program like [`Attached::detach`], and also returns the custom program that was in front
    /// of it. The caller can put the custom program in front of the port's next XDP program with
    /// [`Attached::set_user`].
    pub fn detach_from_user(self) -> (Option<UserProgram>, Result<(), Error>) {
        let detached = match sys::link_detach(self.link.as_fd()) {
            // The device was deleted, which also detached its link.
            Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => Ok(()),
            other => other.map_err(|source| Error::Query { what: "detaching a link", source }),
        };
        let removed = detached.and_then(|()| self.pin.map_or(Ok(()), |pin| pin.remove()));
        let user = self.user.inspect(UserProgram::lead_nowhere);
        (user, removed)
    }
}
