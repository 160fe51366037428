//! Programs for the other ends of a test or bench. Each is on its device until it is dropped.

use std::os::fd::{AsFd, OwnedFd};

use crate::attach::{AttachMode, Candidate, Linked, attach};
use crate::object::{InKernel, Opened, bench_object};
use crate::user::UserProgram;
use crate::{Attached, Error, Mode, ProgramInfo, sys};

/// The programs of `bpf/bench.bpf.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bench {
    /// [`Sink`]
    Sink,
    /// [`Sink::attach_reading`]
    SinkReading,
    /// [`Pass`]
    Pass,
    /// [`Reflect`]
    Reflect,
    /// [`Redirect`]
    Redirect,
    /// [`Redirect::attach_routing`]
    Route,
}

impl Bench {
    /// All of them.
    pub const ALL: [Bench; 6] =
        [Bench::Sink, Bench::SinkReading, Bench::Pass, Bench::Reflect, Bench::Redirect, Bench::Route];

    /// The name that the kernel knows it by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Bench::Sink => "sink",
            Bench::SinkReading => "sink_reading",
            Bench::Pass => "pass",
            Bench::Reflect => "reflect",
            Bench::Redirect => "redirect",
            Bench::Route => "route",
        }
    }

    fn load(self) -> Result<InKernel, Error> {
        Opened::new(bench_object(), self.name())?.load()
    }

    /// The same as a user's program for a port's hook.
    ///
    /// # Errors
    /// As [`UserProgram::load`].
    pub fn in_front_of(self, port: &Attached) -> Result<UserProgram, Error> {
        UserProgram::load(bench_object().bytes, Some(self.name()), port.multi_buffer())
    }

    /// Loads it only to see what the kernel makes of it.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::Query`].
    pub fn load_info(self) -> Result<ProgramInfo, Error> {
        ProgramInfo::read(self.load()?.program()?.as_fd())
    }
}

fn put_on(object: &InKernel, ifindex: u32, allowed: AttachMode) -> Result<Linked, Error> {
    let program = object.program()?;
    let first = Candidate { program: program.as_fd(), multi_buffer: true };
    attach(ifindex, allowed, first, || Ok(None))
}

/// Packets and bytes that a sink has dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sunk {
    /// Frames.
    pub packets: u64,
    /// Without frame check sequences.
    pub bytes: u64,
}

/// Drops and counts all that a device receives.
#[derive(Debug)]
pub struct Sink {
    linked: Linked,
    sunk: OwnedFd,
}

impl Sink {
    /// Puts a sink on a device of this namespace.
    ///
    /// # Errors
    /// As for [`crate::Loaded::attach`].
    pub fn attach(ifindex: u32, allowed: AttachMode) -> Result<Sink, Error> {
        Sink::put(Bench::Sink, ifindex, allowed)
    }

    /// The same with a look at each frame's Ethernet type.
    ///
    /// # Errors
    /// As for [`crate::Loaded::attach`].
    pub fn attach_reading(ifindex: u32, allowed: AttachMode) -> Result<Sink, Error> {
        Sink::put(Bench::SinkReading, ifindex, allowed)
    }

    fn put(program: Bench, ifindex: u32, allowed: AttachMode) -> Result<Sink, Error> {
        let object = program.load()?;
        Ok(Sink { linked: put_on(&object, ifindex, allowed)?, sunk: object.map("sunk")? })
    }

    /// What it has dropped so far.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn sunk(&self) -> Result<Sunk, Error> {
        let per_cpu = sys::map_lookup_per_cpu(self.sunk.as_fd(), 0, 2).map_err(|source| Error::Map {
            map: "sunk",
            operation: "read",
            source,
        })?;
        let mut sum = Sunk::default();
        for count in per_cpu.chunks_exact(2) {
            sum.packets = sum.packets.wrapping_add(count[0]);
            sum.bytes = sum.bytes.wrapping_add(count[1]);
        }
        Ok(sum)
    }

    /// The mode in use.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.linked.mode
    }
}

/// Passes all to the kernel: for the far end of a veth, so that redirected frames arrive.
#[derive(Debug)]
pub struct Pass {
    linked: Linked,
}

impl Pass {
    /// Puts it on a device of this namespace.
    ///
    /// # Errors
    /// As for [`crate::Loaded::attach`].
    pub fn attach(ifindex: u32, allowed: AttachMode) -> Result<Pass, Error> {
        Ok(Pass { linked: put_on(&Bench::Pass.load()?, ifindex, allowed)? })
    }

    /// The mode in use.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.linked.mode
    }
}

/// Sends all that a device receives back where it came from, Ethernet addresses swapped.
#[derive(Debug)]
pub struct Reflect {
    linked: Linked,
}

impl Reflect {
    /// Puts it on a device of this namespace.
    ///
    /// # Errors
    /// As for [`crate::Loaded::attach`].
    pub fn attach(ifindex: u32, allowed: AttachMode) -> Result<Reflect, Error> {
        Ok(Reflect { linked: put_on(&Bench::Reflect.load()?, ifindex, allowed)? })
    }

    /// The mode in use.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.linked.mode
    }
}

/// Forwards all that a device receives to another, by a device map: the ceiling.
#[derive(Debug)]
pub struct Redirect {
    linked: Linked,
    program: OwnedFd,
}

impl Redirect {
    /// Puts it on a device; both are in this namespace.
    ///
    /// # Errors
    /// As for [`crate::Loaded::attach`], and [`Error::Map`] when there is no such target.
    pub fn attach(ifindex: u32, target: u32, allowed: AttachMode) -> Result<Redirect, Error> {
        Redirect::put(Bench::Redirect, ifindex, target, allowed)
    }

    /// The same after a look at the kernel's IPv4 routes, and with the Ethernet header that they want.
    ///
    /// # Errors
    /// As for [`Redirect::attach`].
    pub fn attach_routing(ifindex: u32, target: u32, allowed: AttachMode) -> Result<Redirect, Error> {
        Redirect::put(Bench::Route, ifindex, target, allowed)
    }

    fn put(bench: Bench, ifindex: u32, target: u32, allowed: AttachMode) -> Result<Redirect, Error> {
        let object = bench.load()?;
        let map = object.map("target")?;
        sys::map_update(map.as_fd(), &0_u32.to_ne_bytes(), &target.to_ne_bytes())
            .map_err(|source| Error::Map { map: "target", operation: "add to", source })?;
        Ok(Redirect { linked: put_on(&object, ifindex, allowed)?, program: object.program()? })
    }

    /// The mode in use.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.linked.mode
    }

    /// What the kernel made of it.
    ///
    /// # Errors
    /// [`Error::Query`].
    pub fn info(&self) -> Result<ProgramInfo, Error> {
        ProgramInfo::read(self.program.as_fd())
    }
}
