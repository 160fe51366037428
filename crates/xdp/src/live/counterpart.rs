//! XDP programs that drop, reflect or forward frames, for the peer devices of a test or benchmark. Each program stays
//! attached until its value is dropped.

use std::os::fd::{AsFd, OwnedFd};

use crate::attach::{AttachMode, Candidate, Linked, attach};
use crate::object::{InKernel, Opened, bench_object};
use crate::user::UserProgram;
use crate::{Attached, Error, Mode, ProgramInfo, sys};

/// The programs of `bpf/bench.bpf.c`, which tests and benchmarks attach to peer devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bench {
    /// Program that drops and counts all frames ([`Sink::attach`]).
    Sink,
    /// Program that reads the EtherType of all frames, and drops and counts them ([`Sink::attach_reading`]).
    SinkReading,
    /// Program that passes all frames to the kernel ([`Pass`]).
    Pass,
    /// Program that sends all frames back through the receiving device ([`Reflect`]).
    Reflect,
    /// Program that redirects all frames to another device ([`Redirect::attach`]).
    Redirect,
    /// Program that also looks up the kernel's routes ([`Redirect::attach_routing`]).
    Route,
}

impl Bench {
    /// All programs of `bpf/bench.bpf.c`.
    pub const ALL: [Bench; 6] =
        [Bench::Sink, Bench::SinkReading, Bench::Pass, Bench::Reflect, Bench::Redirect, Bench::Route];

    /// Returns the name of the benchmark program in the kernel.
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

    /// Loads the benchmark program as a custom program that can be put in front of a port's program.
    ///
    /// # Errors
    /// Returns the errors of [`UserProgram::load`].
    pub fn in_front_of(self, port: &Attached) -> Result<UserProgram, Error> {
        UserProgram::load(bench_object().bytes, Some(self.name()), port.multi_buffer())
    }

    /// Loads the benchmark program and returns the kernel's information about it. The program is not attached.
    ///
    /// # Errors
    /// Returns [`Error::Load`] or [`Error::Query`].
    pub fn load_info(self) -> Result<ProgramInfo, Error> {
        ProgramInfo::read(self.load()?.program()?.as_fd())
    }
}

fn put_on(object: &InKernel, ifindex: u32, allowed: AttachMode) -> Result<Linked, Error> {
    let program = object.program()?;
    let first = Candidate { program: program.as_fd(), multi_buffer: true };
    attach(ifindex, allowed, first, || Ok(None))
}

/// Numbers of packets and bytes that a sink has dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sunk {
    /// Number of frames that the sink has dropped.
    pub packets: u64,
    /// Number of bytes of the dropped frames, without frame check sequences.
    pub bytes: u64,
}

/// A program that drops and counts all frames that a device receives.
#[derive(Debug)]
pub struct Sink {
    linked: Linked,
    sunk: OwnedFd,
}

impl Sink {
    /// Attaches a sink to a device in the calling thread's network namespace.
    ///
    /// # Errors
    /// Returns the errors of [`crate::Loaded::attach`].
    pub fn attach(ifindex: u32, allowed: AttachMode) -> Result<Sink, Error> {
        Sink::put(Bench::Sink, ifindex, allowed)
    }

    /// Attaches a sink like [`Sink::attach`], with a program that also reads each frame's EtherType.
    ///
    /// # Errors
    /// Returns the errors of [`crate::Loaded::attach`].
    pub fn attach_reading(ifindex: u32, allowed: AttachMode) -> Result<Sink, Error> {
        Sink::put(Bench::SinkReading, ifindex, allowed)
    }

    fn put(program: Bench, ifindex: u32, allowed: AttachMode) -> Result<Sink, Error> {
        let object = program.load()?;
        Ok(Sink { linked: put_on(&object, ifindex, allowed)?, sunk: object.map("sunk")? })
    }

    /// Returns the numbers of packets and bytes that the sink has dropped so far.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
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

    /// Returns the XDP mode in which the program runs.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.linked.mode
    }
}

/// A program that passes all frames to the kernel. When it runs on the peer of a veth device, frames that are
/// redirected to the device arrive.
#[derive(Debug)]
pub struct Pass {
    linked: Linked,
}

impl Pass {
    /// Attaches the program that passes all frames to the kernel. The device `ifindex` is looked up in the calling
    /// thread's network namespace.
    ///
    /// # Errors
    /// Returns the errors of [`crate::Loaded::attach`].
    pub fn attach(ifindex: u32, allowed: AttachMode) -> Result<Pass, Error> {
        Ok(Pass { linked: put_on(&Bench::Pass.load()?, ifindex, allowed)? })
    }

    /// Returns the XDP mode in which the program runs.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.linked.mode
    }
}

/// A program that sends all received frames back through the receiving device, with the two Ethernet addresses swapped.
#[derive(Debug)]
pub struct Reflect {
    linked: Linked,
}

impl Reflect {
    /// Attaches the program that sends received frames back. The device `ifindex` is looked up in the calling thread's
    /// network namespace.
    ///
    /// # Errors
    /// Returns the errors of [`crate::Loaded::attach`].
    pub fn attach(ifindex: u32, allowed: AttachMode) -> Result<Reflect, Error> {
        Ok(Reflect { linked: put_on(&Bench::Reflect.load()?, ifindex, allowed)? })
    }

    /// Returns the XDP mode in which the program runs.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.linked.mode
    }
}

/// A program that redirects all received frames to another device. The rate of this program is an upper bound for data
/// planes that use XDP redirects.
#[derive(Debug)]
pub struct Redirect {
    linked: Linked,
    program: OwnedFd,
}

impl Redirect {
    /// Attaches the program to the device `ifindex`. The program forwards frames to the device `target`. Both devices
    /// must be in the calling thread's network namespace.
    ///
    /// # Errors
    /// Returns the errors of [`crate::Loaded::attach`], and [`Error::Map`] when the target does not exist.
    pub fn attach(ifindex: u32, target: u32, allowed: AttachMode) -> Result<Redirect, Error> {
        Redirect::put(Bench::Redirect, ifindex, target, allowed)
    }

    /// Attaches a program that forwards frames as the program of [`Redirect::attach`] does. The
    /// program also looks up the kernel's IPv4 routes and rewrites the Ethernet header.
    ///
    /// # Errors
    /// Returns the errors of [`Redirect::attach`].
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

    /// Returns the XDP mode in which the program runs.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.linked.mode
    }

    /// Returns the kernel's information about the program.
    ///
    /// # Errors
    /// Returns [`Error::Query`] if a query of the kernel fails.
    pub fn info(&self) -> Result<ProgramInfo, Error> {
        ProgramInfo::read(self.program.as_fd())
    }
}
