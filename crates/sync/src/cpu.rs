//! CPU-specific operations with safe interfaces: prefetch, time-stamp counter, CRC32C, pinning of threads.
//!
//! Under miri and on architectures that lack the instructions, the functions use portable implementations.
#![allow(unsafe_code, reason = "CPU intrinsics that the compiler cannot check")]

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

/// Prefetches the cache line that contains `value`, for reading.
#[inline(always)]
pub fn prefetch_read<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: A prefetch accesses nothing and cannot fault. SSE is part of x86_64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

/// Prefetches the cache line that contains `value`, for writing.
#[inline(always)]
pub fn prefetch_write<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: A prefetch accesses nothing and cannot fault. The hint falls back to a read prefetch.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

/// Returns the value of the CPU's time-stamp counter, in ticks at the frequency [`tsc_hz`]. The read does not serialise
/// the instruction stream: the CPU may execute neighbouring instructions before or after the read.
#[inline(always)]
#[must_use]
pub fn tsc() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: The instruction is part of x86_64, and Linux leaves it enabled.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        monotonic_ns()
    }
}

/// Returns the frequency of [`tsc`] in ticks per second. The first call determines the frequency from CPUID,
/// or by measuring for 20 ms. Therefore a control thread should make the first call.
#[must_use]
pub fn tsc_hz() -> u64 {
    static HZ: OnceLock<u64> = OnceLock::new();
    *HZ.get_or_init(|| {
        if cfg!(all(target_arch = "x86_64", not(miri))) {
            tsc_hz_of_cpuid().unwrap_or_else(tsc_hz_measured)
        } else {
            1_000_000_000
        }
    })
}

/// Returns the frequency of the time-stamp counter that the CPU (CPUID leaf 0x15) or the hypervisor (leaf 0x40000010)
/// reports. Returns `None` if neither reports the frequency.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn tsc_hz_of_cpuid() -> Option<u64> {
    use std::arch::x86_64::__cpuid;
    let hypervisor_present = __cpuid(1).ecx & (1 << 31) != 0;
    if hypervisor_present && __cpuid(0x4000_0000).eax >= 0x4000_0010 {
        let khz = u64::from(__cpuid(0x4000_0010).eax);
        return (khz != 0).then_some(khz * 1_000);
    }
    if __cpuid(0).eax < 0x15 {
        return None;
    }
    let leaf = __cpuid(0x15);
    let (denominator, numerator, crystal_hz) =
        (u64::from(leaf.eax), u64::from(leaf.ebx), u64::from(leaf.ecx));
    (denominator != 0 && numerator != 0 && crystal_hz != 0).then(|| crystal_hz * numerator / denominator)
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn tsc_hz_of_cpuid() -> Option<u64> {
    None
}

fn tsc_hz_measured() -> u64 {
    let (start_tsc, start_ns) = both_clocks();
    std::thread::sleep(Duration::from_millis(20));
    let (end_tsc, end_ns) = both_clocks();
    let hz = u128::from(end_tsc - start_tsc) * 1_000_000_000 / u128::from((end_ns - start_ns).max(1));
    u64::try_from(hz).unwrap_or(u64::MAX).max(1)
}

/// Returns the time-stamp counter in ticks and `CLOCK_MONOTONIC` in nanoseconds, read at nearly the same instant. The
/// function reads the clocks several times and uses the reading that took the least time.
fn both_clocks() -> (u64, u64) {
    let attempts = (0..16).map(|_| {
        let before = tsc();
        let ns = monotonic_ns();
        (tsc() - before, before, ns)
    });
    let (_, tsc, ns) = attempts.min().unwrap_or_default();
    (tsc, ns)
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (seconds, ns) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds * 1_000_000_000 + ns
}

/// A clock that converts [`tsc`] readings to nanoseconds of `CLOCK_MONOTONIC`. The conversion factor is fixed when the
/// clock is created. Therefore the clock does not follow later frequency corrections of the kernel's clock (for example
/// by NTP). The type is `Copy`, and each worker keeps its own copy.
#[derive(Debug, Clone, Copy)]
pub struct TscClock {
    base_tsc: u64,
    base_ns: u64,
    /// Nanoseconds per tick of the time-stamp counter, multiplied by 2^32.
    scale: u64,
}

impl TscClock {
    /// Creates a clock with the frequency that [`tsc_hz`] returns. A control thread must create the first clock of the
    /// process, because the first measurement of the frequency may take 20 ms.
    #[must_use]
    pub fn new() -> Self {
        let scale = (1_000_000_000u128 << 32) / u128::from(tsc_hz());
        let (base_tsc, base_ns) = both_clocks();
        Self { base_tsc, base_ns, scale: u64::try_from(scale).unwrap_or(u64::MAX) }
    }

    /// Returns the current time in nanoseconds of `CLOCK_MONOTONIC`. Workers call this method once per burst.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.ns_of(tsc())
    }

    /// Returns the time in nanoseconds of `CLOCK_MONOTONIC` at which [`tsc`] had the value `tsc`. For values from
    /// before the creation of the clock, returns the time of the creation.
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "overflows 64 bits after 584 years of uptime")]
    pub fn ns_of(&self, tsc: u64) -> u64 {
        let ticks = tsc.saturating_sub(self.base_tsc);
        self.base_ns + ((u128::from(ticks) * u128::from(self.scale)) >> 32) as u64
    }
}

impl Default for TscClock {
    fn default() -> Self {
        Self::new()
    }
}

/// Updates the CRC32C checksum `crc` (Castagnoli polynomial, RFC 3720 appendix B.4) with the eight little-endian bytes
/// of `value`. The function does not invert the checksum at the start and at the end.
#[inline]
#[must_use]
pub fn crc32c_u64(crc: u32, value: u64) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: SSE 4.2 was detected.
        return unsafe { crc32c_u64_sse42(crc, value) };
    }
    crc32c_u64_portable(crc, value)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2")]
#[allow(clippy::cast_possible_truncation, reason = "the instruction leaves a 32-bit result")]
fn crc32c_u64_sse42(crc: u32, value: u64) -> u32 {
    std::arch::x86_64::_mm_crc32_u64(u64::from(crc), value) as u32
}

fn crc32c_u64_portable(crc: u32, value: u64) -> u32 {
    value.to_le_bytes().iter().fold(crc, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        CRC32C_TABLE[usize::from(low ^ byte)] ^ (crc >> 8)
    })
}

static CRC32C_TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut index = 0u32;
    while index < 256 {
        let (mut crc, mut bit) = (index, 0);
        while bit < 8 {
            crc = (crc >> 1) ^ (if crc & 1 == 1 { 0x82f6_3b78 } else { 0 });
            bit += 1;
        }
        table[index as usize] = crc;
        index += 1;
    }
    table
};

/// Executes the CPU's hint instruction for spin loops, for example `PAUSE` on x86.
#[inline(always)]
pub fn pause() {
    std::hint::spin_loop();
}

/// Pins the calling thread to the CPU core with the index `core`.
///
/// # Errors
/// Returns the error of sched_setaffinity(2) if the core does not exist or is not allowed for this process.
pub fn pin_current_thread(core: usize) -> io::Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    if core >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Returns the index of the CPU core on which the calling thread currently runs.
#[must_use]
pub fn current_core() -> usize {
    rustix::thread::sched_getcpu()
}

/// Returns the indexes of the CPU cores on which the calling thread may run, in ascending order.
///
/// # Errors
/// Returns the error of sched_getaffinity(2) if the system call fails.
pub fn allowed_cores() -> io::Result<Vec<usize>> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn crc32c_matches_its_twin_and_the_standard() {
        // RFC 3720 B.4: 32 bytes of zeroes have the CRC 0x8a9136aa.
        let crc = |step: fn(u32, u64) -> u32| !(0..4).fold(!0, |crc, _| step(crc, 0));
        assert_eq!(crc(crc32c_u64), 0x8a91_36aa);
        assert_eq!(crc(crc32c_u64_portable), 0x8a91_36aa);
        for value in [1, 0x0123_4567_89ab_cdef, u64::MAX] {
            assert_eq!(crc32c_u64(7, value), crc32c_u64_portable(7, value));
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn the_clock_keeps_time() {
        let measured = tsc_hz_measured();
        assert!(measured.abs_diff(tsc_hz()) < tsc_hz() / 50, "{measured} Hz measured, {} said", tsc_hz());
        let clock = TscClock::new();
        let (start, start_ns) = (monotonic_ns(), clock.now_ns());
        std::thread::sleep(Duration::from_millis(20));
        let (end_ns, end) = (clock.now_ns(), monotonic_ns());
        let (inner, outer) = (end_ns - start_ns, end - start);
        assert!(inner <= outer + outer / 50 && inner > 19_000_000, "{inner} of {outer} ns");
        assert_eq!(clock.ns_of(0), clock.base_ns);
    }

    #[test]
    #[cfg(not(miri))]
    fn a_pinned_thread_stays() {
        std::thread::spawn(|| {
            for core in allowed_cores().unwrap() {
                pin_current_thread(core).unwrap();
                assert_eq!((current_core(), allowed_cores().unwrap()), (core, vec![core]));
            }
            assert!(pin_current_thread(1_000_000).is_err());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn prefetching_changes_nothing() {
        let value = [7u8; 64];
        prefetch_read(&value);
        prefetch_write(&value);
        assert_eq!(value, [7; 64]);
    }
}
