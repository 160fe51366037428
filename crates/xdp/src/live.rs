//! Traffic made, sunk and forwarded inside the kernel, for tests and benches: a [`Generator`] of
//! live frames, a [`Sink`] that counts and drops, [`Pass`] for the peers of veth devices, and
//! [`Redirect`], the bare forwarding that other planes are measured against.
//!
//! A redirect to a veth arrives only if the peer runs an XDP program (or GRO): attach one of the
//! counterparts there, else frames vanish without an error. A sink drops ARP too: pin the
//! neighbours.

mod counterpart;
mod filter_bench;
pub(crate) mod replay;
pub(crate) mod template;

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub use counterpart::{Bench, Pass, Redirect, Reflect, Sink, Sunk};
pub use filter_bench::{FilterBench, KernelsMap, LookUp, scattered};
pub use replay::Replay;

use crate::attach::{AttachMode, Candidate, Linked, attach};
use crate::object::{InKernel, Opened, generator_object};
use crate::{Error, ProgramInfo, sys};

/// Frames per call at full rate: each call sets up and tears down a page pool.
const PER_CALL: u64 = 1 << 18;
/// Frames that the kernel takes from the page pool, and flushes to the device, at a time.
const BATCH: u32 = 64;
/// How often it is tried, and after which pauses, to get a page pool where there is none left.
const POOL_ATTEMPTS: u32 = 500;
const POOL_PAUSE: Duration = Duration::from_millis(20);
/// How often a paced generator wakes: a call costs some 20 us when it is parked, else 25 ms.
const PACE: Duration = Duration::from_millis(1);

/// The fields of a frame that take the number of its flow. None: all frames are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vary {
    /// Source port in its lower 14 bits, destination port above.
    pub ports: bool,
    /// Added to the last four bytes.
    pub source_mac: bool,
    /// Added to the last four bytes.
    pub destination_mac: bool,
    /// Added to the IPv4 destination address above `destination_shift`.
    pub destination: bool,
    /// The IPv4 source is [`scattered`] in place of the traffic's.
    pub source: bool,
}

/// How flows follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// One after the other.
    InTurn,
    /// Pseudo-random, the same in every run with this seed, which is not 0.
    Random(u32),
}

/// Transport of the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Without checksum, which is valid.
    Udp,
    /// ACK segments with an invalid checksum: for planes that do not verify it.
    Tcp,
}

/// What to generate. Start from [`Traffic::to`] and change what matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// Device that transmits, in the namespace of the thread that sends.
    pub ifindex: u32,
    /// Bytes of a frame without frame check sequence, 60 to 1514.
    pub length: u16,
    /// A power of two.
    pub flows: u32,
    /// Where flows differ.
    pub vary: Vary,
    /// How flows follow each other.
    pub order: Order,
    /// Of the first flow.
    pub source_mac: [u8; 6],
    /// Of the first flow.
    pub destination_mac: [u8; 6],
    /// An 802.1Q tag with this VLAN id.
    pub vlan: Option<u16>,
    /// Source address.
    pub source: Ipv4Addr,
    /// Of the first flow.
    pub destination: Ipv4Addr,
    /// Lowest bit of the destination address that varies: 8 gives one address per /24.
    pub destination_shift: u8,
    /// Transport.
    pub protocol: Protocol,
    /// Source port of the first flow is 1024.
    pub destination_port: u16,
    /// Packets per second, in bursts of a millisecond's worth while parked; `None`: as fast as
    /// it goes.
    pub rate: Option<u64>,
    /// Let the program stand on the device meanwhile, passing to the kernel what that receives.
    /// The kernel rewrites its XDP dispatcher, and waits some 25 ms for all CPUs, when a program
    /// comes into use and when it goes out of it: for each call, unless it is parked so.
    pub park: bool,
    /// Where it stands in place of the device, when that has another program or must receive: an idle device.
    pub park_on: Option<u32>,
}

impl Traffic {
    /// One flow of 60-byte UDP frames at full rate.
    #[must_use]
    pub fn to(ifindex: u32) -> Traffic {
        Traffic {
            ifindex,
            length: 60,
            flows: 1,
            vary: Vary::default(),
            order: Order::InTurn,
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            vlan: None,
            source: Ipv4Addr::new(10, 0, 1, 2),
            destination: Ipv4Addr::new(10, 0, 2, 2),
            destination_shift: 0,
            protocol: Protocol::Udp,
            destination_port: 9,
            rate: None,
            park: true,
            park_on: None,
        }
    }

    /// Whether a generator can be made of it.
    ///
    /// # Errors
    /// [`Error::Generator`] for what is out of range.
    pub fn check(&self) -> Result<(), Error> {
        template::check(self)
    }
}

/// What a generator has offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offered {
    /// Frames given to the device; whether it took them its own counters tell.
    pub packets: u64,
    /// From the first to the last.
    pub elapsed: Duration,
}

impl Offered {
    /// Packets per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        // Exact up to 2^53 packets.
        let packets = self.packets as f64;
        packets / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Sends frames of the kernel's making. It runs on the CPU of the calling thread, in the
/// kernel; each object has its own flows.
#[derive(Debug)]
pub struct Generator {
    name: &'static str,
    program: OwnedFd,
    state: OwnedFd,
    frame: Vec<u8>,
    rate: Option<u64>,
    parked: Option<Linked>,
}

impl Generator {
    /// Loads a generator.
    ///
    /// # Errors
    /// [`Error::Generator`] for what is out of range, [`Error::Load`].
    pub fn new(traffic: &Traffic) -> Result<Generator, Error> {
        let template = template::Template::new(traffic)?;
        let mut opened = Opened::new(generator_object(), "livegen")?;
        opened.set_constants(&template.constants())?;
        let park = traffic.park.then_some(traffic.park_on.unwrap_or(traffic.ifindex));
        let frame = template.frame().to_vec();
        Generator::over(&opened.load()?, "livegen", frame, traffic.order, traffic.rate, park)
    }

    /// A generator over a loaded program, which is given `frame` anew for each run.
    fn over(
        object: &InKernel,
        name: &'static str,
        frame: Vec<u8>,
        order: Order,
        rate: Option<u64>,
        park: Option<u32>,
    ) -> Result<Generator, Error> {
        let program = object.program()?;
        let first = Candidate { program: program.as_fd(), multi_buffer: false };
        // A device that is taken sends as well, in larger bursts.
        let parked = park.and_then(|at| attach(at, AttachMode::Auto, first, || Ok(None)).ok());
        let state = object.map(".data.state")?;
        let generator = Generator { name, program, state, frame, rate, parked };
        if let Order::Random(seed) = order {
            generator.seed(seed)?;
        }
        Ok(generator)
    }

    /// Whether the program stands on its device, so that calls are cheap.
    #[must_use]
    pub fn parked(&self) -> bool {
        self.parked.is_some()
    }

    /// What the kernel made of the program.
    ///
    /// # Errors
    /// [`Error::Query`].
    pub fn info(&self) -> Result<ProgramInfo, Error> {
        ProgramInfo::read(self.program.as_fd())
    }

    /// `struct livegen_state`.
    fn seed(&self, seed: u32) -> Result<(), Error> {
        let mut state = [0_u8; 16];
        state[8..12].copy_from_slice(&seed.to_ne_bytes());
        sys::map_update(self.state.as_fd(), &0_u32.to_ne_bytes(), &state).map_err(|source| Error::Map {
            map: "state",
            operation: "write",
            source,
        })
    }

    /// Frames given to the device since the generator was made.
    fn sent(&self) -> Result<u64, Error> {
        let state = sys::map_lookup::<16>(self.state.as_fd(), 0).map_err(|source| Error::Map {
            map: "state",
            operation: "read",
            source,
        })?;
        let mut sent = [0; 8];
        sent.copy_from_slice(&state[..8]);
        Ok(u64::from_ne_bytes(sent))
    }

    /// Sends exactly this many frames, paced if a rate is set.
    ///
    /// # Errors
    /// [`Error::TestRun`].
    pub fn send(&mut self, packets: u64) -> Result<Offered, Error> {
        self.go(packets, None, &AtomicBool::new(false))
    }

    /// Sends for this long, to the end of a call, which at full rate is 2^18 frames.
    ///
    /// # Errors
    /// [`Error::TestRun`].
    pub fn run_for(&mut self, time: Duration) -> Result<Offered, Error> {
        self.go(u64::MAX, Some(time), &AtomicBool::new(false))
    }

    /// Sends until told to stop, or for this long.
    ///
    /// # Errors
    /// [`Error::TestRun`].
    pub fn run_until(&mut self, stop: &AtomicBool, at_most: Duration) -> Result<Offered, Error> {
        self.go(u64::MAX, Some(at_most), stop)
    }

    fn go(&mut self, packets: u64, time: Option<Duration>, stop: &AtomicBool) -> Result<Offered, Error> {
        let start = Instant::now();
        let before = self.sent()?;
        let mut offered = Offered::default();
        while offered.packets < packets
            && time.is_none_or(|time| offered.elapsed < time)
            && !stop.load(Ordering::Relaxed)
        {
            let left = packets - offered.packets;
            match self.due(offered.packets, start.elapsed()).min(left) {
                0 => thread::sleep(PACE),
                frames => self.call(frames)?,
            }
            offered = Offered { packets: self.sent()?.wrapping_sub(before), elapsed: start.elapsed() };
        }
        Ok(offered)
    }

    /// Frames to send now: at a set rate, what is missing by the end of the coming interval.
    fn due(&self, sent: u64, elapsed: Duration) -> u64 {
        let Some(rate) = self.rate else { return PER_CALL };
        let target = u128::from(rate) * (elapsed + PACE).as_nanos() / 1_000_000_000;
        let due = target.saturating_sub(u128::from(sent));
        u64::try_from(due).unwrap_or(PER_CALL).min(PER_CALL)
    }

    fn call(&self, frames: u64) -> Result<(), Error> {
        let request = sys::RunRequest {
            frame: &self.frame,
            ingress: None,
            repeat: i32::try_from(frames).unwrap_or(i32::MAX),
            live_batch: Some(BATCH),
        };
        for attempt in 0.. {
            match sys::run(self.program.as_fd(), request) {
                // All 65,534 numbers of page pools are taken: those of earlier calls are given back when their last frame is.
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && attempt < POOL_ATTEMPTS => {
                    thread::sleep(POOL_PAUSE);
                }
                Err(source) if source.kind() != io::ErrorKind::Interrupted => {
                    return Err(Error::TestRun { program: self.name, length: self.frame.len(), source });
                }
                // A signal cuts a call short; the state tells how far it came.
                _ => break,
            }
        }
        Ok(())
    }
}
