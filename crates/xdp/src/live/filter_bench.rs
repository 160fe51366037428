//! Benchmark of the filter with a different source address in each frame: `bpf/filterbench.bpf.c`.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

use crate::Error;
use crate::filter::{Filter, FilterMaps};
use crate::object::{FILTER_CONF, Opened, filter_bench_object};
use crate::sys::{self, MapKind, MapSpec};

const PROGRAM: &str = "filterbench";
const KERNELS_MAP: &str = "kernels_map";
/// Length in bytes of the frame that the benchmark generates: Ethernet, IPv4 and UDP headers, and padding.
const FRAME: usize = 60;

/// Lookup that the benchmark program makes for each frame.
#[derive(Debug, Clone, Copy)]
pub enum LookUp<'a> {
    /// The program only generates the frame.
    Nothing,
    /// The program generates the frame and runs the filter stage with this filter.
    Stage(&'a Filter),
    /// The program generates the frame and looks up its source address in the kernel's longest-prefix-match
    /// map.
    KernelsMap(&'a KernelsMap),
}

/// A longest-prefix-match map of the kernel (LPM trie), for comparison with the filter.
#[derive(Debug)]
pub struct KernelsMap(OwnedFd);

impl KernelsMap {
    /// Creates a longest-prefix-match map with one /32 prefix for each number in a range: the address that
    /// [`scattered`] returns for the number.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn new(numbers: std::ops::Range<u32>) -> Result<KernelsMap, Error> {
        let failed = |operation| move |source| Error::Map { map: KERNELS_MAP, operation, source };
        let entries = numbers.end.saturating_sub(numbers.start).max(1);
        let spec = MapSpec { name: KERNELS_MAP, kind: MapKind::LongestPrefix, key: 8, value: 4, entries };
        let map = sys::map_create(spec, None).map_err(failed("create"))?;
        for number in numbers {
            let mut key = [0; 8];
            key[..4].copy_from_slice(&32_u32.to_ne_bytes());
            key[4..].copy_from_slice(&scattered(number).octets());
            sys::map_update(map.as_fd(), &key, &[1, 0, 0, 0]).map_err(failed("add to"))?;
        }
        Ok(KernelsMap(map))
    }
}

/// A benchmark program that generates frames with different source addresses and makes a [`LookUp`] for each frame.
#[derive(Debug)]
pub struct FilterBench {
    program: OwnedFd,
}

/// Returns an IPv4 address for a number, for use as a source address of a benchmark. Different numbers result in
/// different addresses, which are spread over the whole address space.
#[must_use]
pub fn scattered(number: u32) -> Ipv4Addr {
    let number = (number ^ number >> 16).wrapping_mul(0x85eb_ca6b);
    let number = (number ^ number >> 13).wrapping_mul(0xc2b2_ae35);
    Ipv4Addr::from_bits(number ^ number >> 16)
}

impl FilterBench {
    /// Loads the benchmark program. The source addresses of its frames are the addresses that
    /// [`scattered`] returns for `count` numbers, starting with `first`. `count` must be a power of
    /// two.
    ///
    /// # Errors
    /// Returns [`Error::Load`] or [`Error::Map`].
    pub fn new(look_up: LookUp<'_>, first: u32, count: u32) -> Result<FilterBench, Error> {
        let mut opened = Opened::new(filter_bench_object(), PROGRAM)?;
        let code = match &look_up {
            LookUp::Nothing => 0_u32,
            LookUp::Stage(_) => 1,
            LookUp::KernelsMap(_) => 2,
        };
        let conf = [code, first, count.max(1) - 1, 0];
        let bytes: Vec<u8> = conf.iter().flat_map(|word| word.to_ne_bytes()).collect();
        opened.set_section(".rodata.bench", &bytes)?;
        match look_up {
            LookUp::Stage(filter) => {
                let maps = filter.maps();
                let conf: Vec<u8> = maps.conf.iter().flat_map(|word| word.to_ne_bytes()).collect();
                opened.set_section(FILTER_CONF, &conf)?;
                maps.list().try_for_each(|(name, map)| opened.reuse(name, map))?;
            }
            _ => FilterMaps::names().try_for_each(|name| opened.leave_out(name))?,
        }
        match look_up {
            LookUp::KernelsMap(map) => opened.reuse(KERNELS_MAP, map.0.as_fd())?,
            _ => opened.leave_out(KERNELS_MAP)?,
        }
        Ok(FilterBench { program: opened.load()?.program()? })
    }

    /// Returns the mean time that the program takes for a frame, in nanoseconds, measured over `frames`
    /// frames.
    ///
    /// # Errors
    /// Returns [`Error::TestRun`] if the kernel refuses the test run.
    pub fn nanoseconds(&self, frames: u32) -> Result<u32, Error> {
        let mut frame = [0; FRAME];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17]);
        frame[30..38].copy_from_slice(&[198, 51, 100, 1, 0x30, 0x39, 0, 9]);
        let repeat = i32::try_from(frames).unwrap_or(i32::MAX);
        let request = sys::RunRequest { frame: &frame, ingress: None, repeat, live_batch: None };
        let result = sys::run(self.program.as_fd(), request);
        let failed = |source| Error::TestRun { program: PROGRAM, length: FRAME, source };
        result.map(|run| run.nanoseconds).map_err(failed)
    }
}
