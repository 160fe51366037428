//! State of the look-up of a burst: the packets that have no flow yet, and the hashes of their keys.

use crate::buckets::Slot;

/// Maximum number of packets that are looked up together. Their look-up state takes a few KiB and stays in the L1
/// cache.
pub(super) const TOGETHER: usize = 256;

/// State of the look-up of a burst. The state is kept between bursts, because initialising it takes as long
/// as looking up a dozen packets. Most bursts of a worker with little load have only one packet.
#[derive(Debug)]
pub(super) struct Notes {
    /// For each packet, hash of the complete key.
    pub exact: [u32; TOGETHER],
    /// For each packet that has no flow yet, hash of the key under the current mask, in the order of `rest`.
    pub masked: [u32; TOGETHER],
    /// Packets for which no flow has been found yet.
    pub rest: Packets,
    /// Packets for which a flow with the current mask may exist. `hashes` and `slots` contain, for each of these
    /// packets, the hash of its key and the position in the mask's hash table that may hold its flow.
    pub likely: Packets,
    pub hashes: [u32; TOGETHER],
    pub slots: [Slot; TOGETHER],
}

impl Default for Notes {
    fn default() -> Notes {
        Notes {
            exact: [0; TOGETHER],
            masked: [0; TOGETHER],
            rest: Packets::NONE,
            likely: Packets::NONE,
            hashes: [0; TOGETHER],
            slots: [Slot::NONE; TOGETHER],
        }
    }
}

/// A subset of the packets of a burst, by their indexes.
#[derive(Debug)]
pub(super) struct Packets {
    pub numbers: [u16; TOGETHER],
    pub len: usize,
}

impl Packets {
    const NONE: Packets = Packets { numbers: [0; TOGETHER], len: 0 };

    #[inline(always)]
    pub fn all(&self) -> &[u16] {
        &self.numbers[..self.len.min(TOGETHER)]
    }

    /// Adds the packet with index `number` if `is` is `true`.
    #[inline(always)]
    pub fn add_if(&mut self, number: u16, is: bool) {
        self.numbers[self.len % TOGETHER] = number;
        self.len += usize::from(is);
    }
}
