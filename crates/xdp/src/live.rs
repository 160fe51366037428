//! Traffic generation, sinks and forwarding inside the kernel, for tests and benchmarks.
//!
//! - [`Generator`] sends frames to a device.
//! - [`Sink`] counts and drops frames.
//! - [`Pass`] passes frames to the kernel. This program is attached to the peer of a veth device to which frames are
//!   redirected.
//! - [`Redirect`] forwards frames without any other processing. This program is the reference for measurements of data
//!   planes.
//!
//! A frame that is redirected to a veth device arrives only if the peer runs an XDP program or GRO. Otherwise
//! the frame is lost without an error. A sink also drops ARP, so the neighbours must be static entries.

mod counterpart;
mod filter_bench;
pub(crate) mod replay;
pub(crate) mod template;
mod traffic;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub use counterpart::{Bench, Pass, Redirect, Reflect, Sink, Sunk};
pub use filter_bench::{FilterBench, KernelsMap, LookUp, scattered};
pub use replay::Replay;
pub use traffic::{Order, Protocol, Traffic, Vary};

use crate::attach::{AttachMode, Candidate, Linked, attach};
use crate::object::{InKernel, Opened, generator_object};
use crate::{Error, ProgramInfo, sys};

/// Number of frames that one system call sends at full rate. The number is large, because each call sets up and tears
/// down a page pool.
const PER_CALL: u64 = 1 << 18;
/// Number of frames that the kernel generates and passes to the device in one batch.
const BATCH: u32 = 64;
/// Maximum number of attempts to send while the kernel cannot allocate a page pool. `POOL_PAUSE` is the pause between
/// two attempts.
const POOL_ATTEMPTS: u32 = 500;
const POOL_PAUSE: Duration = Duration::from_millis(20);
/// Interval at which a generator with a rate limit sends. One system call takes about 20 us while the generator's
/// program is attached to a device ([`Generator::parked`]), and 25 ms otherwise.
const PACE: Duration = Duration::from_millis(1);

/// Amount of traffic that a generator has passed to a device for transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offered {
    /// Number of frames passed to the device for transmission. The device may accept fewer frames, which only the
    /// counters of the device show.
    pub packets: u64,
    /// Time from the first to the last frame passed to the device.
    pub elapsed: Duration,
}

impl Offered {
    /// Returns the mean rate of the frames passed to the device, in packets per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        // The conversion is exact up to 2^53 packets.
        let packets = self.packets as f64;
        packets / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// A traffic generator inside the kernel. The generator runs on the CPU of the calling thread. Each generator has its
/// own flow counter, which selects the flow of the next frame.
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
    /// Loads a traffic generator that sends the frames that `traffic` describes.
    ///
    /// # Errors
    /// Returns [`Error::Generator`] for a parameter that is out of range, and [`Error::Load`].
    pub fn new(traffic: &Traffic) -> Result<Generator, Error> {
        let template = template::Template::new(traffic)?;
        let mut opened = Opened::new(generator_object(), "livegen")?;
        opened.set_constants(&template.constants())?;
        let park = traffic.park.then_some(traffic.park_on.unwrap_or(traffic.ifindex));
        let frame = template.frame().to_vec();
        Generator::over(&opened.load()?, "livegen", frame, traffic.order, traffic.rate, park)
    }

    /// Creates a generator from a loaded program. For each frame to send, the program changes a
    /// copy of `frame`.
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
        // If the program cannot be attached, because the device has another program, the generator sends in larger
        // bursts.
        let parked = park.and_then(|at| attach(at, AttachMode::Auto, first, || Ok(None)).ok());
        let state = object.map(".data.state")?;
        let generator = Generator { name, program, state, frame, rate, parked };
        if let Order::Random(seed) = order {
            generator.seed(seed)?;
        }
        Ok(generator)
    }

    /// Returns whether the generator's program is attached to a device. The system calls that send frames are then
    /// faster.
    #[must_use]
    pub fn parked(&self) -> bool {
        self.parked.is_some()
    }

    /// Returns the kernel's information about the generator's program.
    ///
    /// # Errors
    /// Returns [`Error::Query`] if a query of the kernel fails.
    pub fn info(&self) -> Result<ProgramInfo, Error> {
        ProgramInfo::read(self.program.as_fd())
    }

    /// Writes the seed of the random flow order to `struct livegen_state`.
    fn seed(&self, seed: u32) -> Result<(), Error> {
        let mut state = [0_u8; 16];
        state[8..12].copy_from_slice(&seed.to_ne_bytes());
        sys::map_update(self.state.as_fd(), &0_u32.to_ne_bytes(), &state).map_err(|source| Error::Map {
            map: "state",
            operation: "write",
            source,
        })
    }

    /// Returns the number of frames that were passed to the device since the generator was created.
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

    /// Sends exactly `packets` frames, at the configured rate if there is one.
    ///
    /// # Errors
    /// Returns [`Error::TestRun`] if the kernel refuses the test run.
    pub fn send(&mut self, packets: u64) -> Result<Offered, Error> {
        self.go(packets, None, &AtomicBool::new(false))
    }

    /// Sends frames for the duration `time`, rounded up to the end of a system call. At full rate each call
    /// sends 2^18 frames.
    ///
    /// # Errors
    /// Returns [`Error::TestRun`] if the kernel refuses the test run.
    pub fn run_for(&mut self, time: Duration) -> Result<Offered, Error> {
        self.go(u64::MAX, Some(time), &AtomicBool::new(false))
    }

    /// Sends frames until `stop` is set, for at most the duration `at_most`.
    ///
    /// # Errors
    /// Returns [`Error::TestRun`] if the kernel refuses the test run.
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

    /// Returns the number of frames to send with the next system call. With a rate, this is the
    /// number of frames that are due by the end of the next interval, minus the number of frames
    /// already sent.
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
                // All 65,534 page pool ids are in use. The kernel frees the id of an earlier call when the
                // last frame of that call is freed.
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && attempt < POOL_ATTEMPTS => {
                    thread::sleep(POOL_PAUSE);
                }
                Err(source) if source.kind() != io::ErrorKind::Interrupted => {
                    return Err(Error::TestRun { program: self.name, length: self.frame.len(), source });
                }
                // A signal ends a call early. The state map shows the number of frames sent.
                _ => break,
            }
        }
        Ok(())
    }
}
