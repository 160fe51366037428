//! Runtime state of OpenFlow meters (OpenFlow 1.3, 5.7), which all workers share.

use std::sync::atomic::{AtomicU64, Ordering};

use switch::flow::{BandKind, Meter};
use sync::token_bucket::TokenBucket;

/// Token bucket and counters of one band of a meter.
struct BandLive {
    kind: BandKind,
    bucket: TokenBucket,
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// Runtime state of an OpenFlow meter. All workers share its token buckets.
pub struct MeterLive {
    pub(crate) meter: Meter,
    bands: Vec<BandLive>,
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// Result of metering one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Metered {
    Passes,
    Drops,
    /// The packet passes, and the drop precedence in its DSCP field is raised by this number of steps (RFC 2597).
    Remarks(u8),
}

impl MeterLive {
    pub(crate) fn new(meter: &Meter, now_ns: u64) -> MeterLive {
        let band = |band: &switch::flow::Band| {
            // A burst size of 0 means the number of tokens that the band receives in one second, as in Open vSwitch's
            // documentation.
            let burst = if band.burst == 0 { band.rate } else { band.burst };
            let (rate, burst) = if meter.packets {
                (u64::from(band.rate), burst)
            } else {
                // The unit is bytes. A burst that exceeds the bucket's range saturates, which is equivalent
                // to no burst limit.
                (u64::from(band.rate) * 125, burst.saturating_mul(125))
            };
            let bucket = TokenBucket::new(rate, burst, now_ns);
            BandLive { kind: band.kind, bucket, packets: AtomicU64::new(0), bytes: AtomicU64::new(0) }
        };
        MeterLive {
            meter: meter.clone(),
            bands: meter.bands.iter().map(band).collect(),
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Meters one packet. If the packet exceeds the rates of several bands, the band with the highest rate applies
    /// (OpenFlow 1.3, 5.7.1). A packet longer than the burst size, such as a TSO super-frame, passes if the band's
    /// token bucket is full. The number of tokens then becomes negative.
    pub(crate) fn pass(&self, len: usize, now_ns: u64) -> Metered {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(u64::from(len), Ordering::Relaxed);
        let want = if self.meter.packets { 1 } else { len };
        let mut exceeded: Option<(u32, &BandLive)> = None;
        for (band, live) in self.meter.bands.iter().zip(&self.bands) {
            let is_within = live.bucket.take_all(now_ns, want);
            if !is_within && exceeded.is_none_or(|(rate, _)| band.rate > rate) {
                exceeded = Some((band.rate, live));
            }
        }
        let Some((_, band)) = exceeded else { return Metered::Passes };
        band.packets.fetch_add(1, Ordering::Relaxed);
        band.bytes.fetch_add(u64::from(len), Ordering::Relaxed);
        match band.kind {
            BandKind::Drop => Metered::Drops,
            BandKind::DscpRemark(raise) => Metered::Remarks(raise),
        }
    }

    /// Returns whether the meter has counted packets since the last call of [`MeterLive::take`].
    pub(crate) fn has_counts(&self) -> bool {
        self.packets.load(Ordering::Relaxed) != 0
    }

    /// Returns the counts of the meter and resets them to 0: packets, bytes, and the packets and bytes of each
    /// band.
    pub(crate) fn take(&self) -> (u64, u64, Vec<(u64, u64)>) {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let bands = self.bands.iter().map(|band| (take(&band.packets), take(&band.bytes)));
        (take(&self.packets), take(&self.bytes), bands.collect())
    }
}

#[cfg(test)]
mod tests {
    use switch::flow::Band;

    use super::*;

    #[test]
    fn a_frame_longer_than_the_burst_passes_a_full_meter_and_the_rate_holds() {
        let band = Band { kind: BandKind::Drop, rate: 8000, burst: 80 };
        let meter = Meter { id: 1, packets: false, bursts: true, stats: true, bands: vec![band] };
        // One million bytes per second, and a burst of 10,000 bytes.
        let live = MeterLive::new(&meter, 0);
        let passed = (0..10_000_u64).filter(|step| live.pass(65_000, step * 1_000_000) == Metered::Passes);
        let bytes = passed.count() * 65_000;
        assert!((9_800_000..=10_100_000).contains(&bytes), "{bytes} bytes in 10 s");
        // The debt of the last frame holds for short frames as well.
        let live = MeterLive::new(&meter, 0);
        assert_eq!(live.pass(65_000, 0), Metered::Passes);
        assert_eq!(live.pass(100, 55_000_000), Metered::Drops);
        assert_eq!(live.pass(100, 56_000_000), Metered::Passes);
    }

    /// Checks that packets at exactly the rate of a DSCP remark band are not remarked. The test uses
    /// irregular packets and pauses, with rates in packets per second and in kbit/s. No pause is long enough
    /// for the token bucket to overflow.
    #[test]
    fn a_remarking_band_passes_its_rate() {
        for (packets, rate, want) in [(true, 1000, 10_000), (false, 8000, 10_000_000)] {
            let band = Band { kind: BandKind::DscpRemark(1), rate, burst: 0 };
            let meter = Meter { id: 1, packets, bursts: false, stats: true, bands: vec![band] };
            let live = MeterLive::new(&meter, 0);
            let (mut now, mut passed, mut step) = (0_u64, 0_u64, 7_u64);
            while now < 10_000_000_000 {
                step = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Packets arrive in bursts of three at about three times the rate on average. Some pauses
                // take 0.9 s.
                now += if step >> 58 == 0 && step >> 50 & 0xff == 0 {
                    900_000_000
                } else {
                    step >> 44 & 0xf_ffff
                };
                for _ in 0..3 {
                    let len = 200 + usize::try_from(step >> 54).unwrap();
                    if live.pass(len, now) == Metered::Passes {
                        passed += if packets { 1 } else { len as u64 };
                    }
                }
            }
            // The initial burst is one second's worth.
            let due = want + want / 10;
            assert!(passed <= due + 1500 && passed > due - want / 50, "{passed} of {due}");
        }
    }
}
