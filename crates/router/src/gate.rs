//! How many packets get into the kernel, and how many senders are told by the router itself: each class of them has its own limit and its own
//! counts.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use packet::PuntClass;
use sync::counter::CounterArray;
use sync::token_bucket::TokenBucket;

use crate::room::Punt;

/// The limits of a router, which all its snapshots share.
#[derive(Debug)]
pub struct Gate {
    buckets: [TokenBucket; PuntClass::COUNT],
    rates: [AtomicU64; PuntClass::COUNT],
    /// By class: packets that were let in, and that were not.
    counts: CounterArray,
    /// Of the IPv4 error that is made next.
    id: AtomicU16,
}

impl Gate {
    /// Lets in so many packets a second of each class; counted by so many workers.
    #[must_use]
    pub fn new(rate: impl Fn(PuntClass) -> u32, workers: usize, now_ns: u64) -> Gate {
        let bucket = |class| TokenBucket::new(u64::from(rate(class)), burst(rate(class)), now_ns);
        Gate {
            buckets: PuntClass::ALL.map(bucket),
            rates: PuntClass::ALL.map(|class| AtomicU64::new(u64::from(rate(class)))),
            counts: CounterArray::new(workers, 2 * PuntClass::COUNT),
            id: AtomicU16::new(1),
        }
    }

    /// Other rates, in packets a second. A class that keeps its rate keeps its bucket.
    pub fn set_rates(&self, rate: impl Fn(PuntClass) -> u32, now_ns: u64) {
        for ((class, bucket), set) in PuntClass::ALL.into_iter().zip(&self.buckets).zip(&self.rates) {
            let rate = rate(class);
            if set.swap(u64::from(rate), Ordering::Relaxed) != u64::from(rate) {
                bucket.set_rate(u64::from(rate), burst(rate), now_ns);
            }
        }
    }

    /// Whether one more packet may pass; counts it. On the worker's own thread.
    pub fn admits(&self, class: PuntClass, worker: usize, now_ns: u64) -> bool {
        let admitted = self.buckets[class as usize].take(now_ns, 1) == 1;
        self.counts.row(worker).add(2 * (class as usize) + usize::from(!admitted), 1);
        admitted
    }

    /// An identification that the last 65,535 IPv4 errors did not have (RFC 6864, 4.3).
    pub fn next_id(&self) -> u16 {
        self.id.fetch_add(1, Ordering::Relaxed)
    }

    /// Packets that were let in, and that were not.
    #[must_use]
    pub fn counted(&self, class: PuntClass) -> (u64, u64) {
        (self.counts.sum(2 * (class as usize)), self.counts.sum(2 * (class as usize) + 1))
    }
}

/// A tenth of a second's packets.
fn burst(rate: u32) -> u32 {
    (rate / 10).max(64)
}

/// The class of a frame that is given to the kernel for a reason: that of its protocol where it speaks to this host or its link. What is only on
/// its way through counts by the reason, so that it takes nothing from the daemons. `head` is the frame's first octets, `len` its length.
#[must_use]
pub fn class(why: Punt, head: &[u8], len: usize) -> PuntClass {
    let protocol = match why {
        Punt::NotIp | Punt::Group | Punt::Own | Punt::Scope => PuntClass::of_protocol(head, len),
        Punt::Expired
        | Punt::NoRoute
        | Punt::Unresolved
        | Punt::TooLong
        | Punt::Options
        | Punt::Elsewhere
        | Punt::NotRouted => None,
    };
    protocol.unwrap_or(why.class())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_class_leaves_the_others_whole() {
        let rate = |class| if class == PuntClass::Ospf { 100 } else { 1000 };
        let gate = Gate::new(rate, 1, 0);
        let mut passed = 0;
        // A second of 10,000 hellos, and a BFD packet every 10 ms.
        for at in 0..10_000_u64 {
            passed += u32::from(gate.admits(PuntClass::Ospf, 0, at * 100_000));
            if at % 100 == 0 {
                assert!(gate.admits(PuntClass::Bfd, 0, at * 100_000));
            }
        }
        assert!((100..=165).contains(&passed), "{passed}: the rate and its first burst");
        assert_eq!(gate.counted(PuntClass::Bfd), (100, 0));
        assert_eq!(gate.counted(PuntClass::Ospf), (u64::from(passed), 10_000 - u64::from(passed)));
        // Another rate for one of them.
        gate.set_rates(|_| 1000, 1_000_000_000);
        let more = (0..10_000).filter(|at| gate.admits(PuntClass::Ospf, 0, 1_000_000_000 + at * 100_000));
        assert!((900..1200).contains(&more.count()));
    }

    #[test]
    fn what_passes_through_is_of_no_protocol() {
        let bgp = packet::spec::parse("ip_dst=10.0.0.1,tcp,dst_port=179").unwrap();
        assert_eq!(class(Punt::Own, &bgp, bgp.len()), PuntClass::Bgp);
        assert_eq!(class(Punt::NoRoute, &bgp, bgp.len()), PuntClass::NoRoute);
        let web = packet::spec::parse("ip_dst=10.0.0.1,tcp,dst_port=80").unwrap();
        assert_eq!(class(Punt::Own, &web, web.len()), PuntClass::Own);
    }
}
