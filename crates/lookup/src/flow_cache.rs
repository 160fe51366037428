//! The flow cache of a worker: look-up of packets in bursts by an exact-match cache (EMC) and by wildcard
//! flows (*megaflows*).
//!
//! A packet is looked up here directly after its key is built. A miss goes to the slow path's
//! [`Classifier`](crate::Classifier), which returns a megaflow to insert here. One worker owns the cache.
//!
//! ```text
//!  key (8 words) --hash--> hints: 1,024 sets of 8       a flow: two cache lines
//!                          +-----------+-------+       +----------------------------------+
//!                          | tag       | flow -+-----> | masked key, 8 words              |  compared under the flow's mask
//!                          +-----------+-------+       +------+------------+--------------+
//!                                 | no, or stale       | mask | generation | the value    |
//!                                 v                    +------+------------+--------------+
//!  the port's masks by hits:  key & mask --hash--> groups of 15 -^
//! ```
//!
//! A packet is looked up only under the masks that flows of its own port have. These masks are ordered by the number of
//! packets of this port that matched under them. A sender that causes many masks thus slows down only its own port.
//!
//! Flows have no priorities. The flows must be disjoint: no packet may match two flows. If flows overlap nevertheless,
//! a look-up returns any one of the matching flows. A hint of the EMC is always verified by comparing the flow with the
//! packet. Therefore a hint to a removed or replaced flow is a miss. Words of the extended key are read only if a flow
//! has bits in them.
//!
//! Invariants: a flow's key has no bits outside its mask. The entry of a flow refers to a mask in use, and a free
//! entry refers to no mask. Every mask in use has flows, and occurs once in the search order of each port that has
//! flows with this mask. Look-ups allocate nothing.
//!
//! ```
//! use lookup::{FlowCache, FlowLimits, MISS};
//!
//! let mut cache = FlowCache::<0, &str>::new(FlowLimits::default());
//! let mask = [0, 0xffff, 0, 0, 0, 0, 0, 0];
//! let flow = cache.insert(1, &[0, 7, 0, 0, 0, 0, 0, 0], &[], &mask, &[], "to port 7").unwrap();
//!
//! let keys = [[1, 7, 2, 3, 4, 5, 6, 7], [1, 8, 2, 3, 4, 5, 6, 7]];
//! let mut found = [MISS; 2];
//! cache.find_burst(1, |packet| &keys[packet], |_| [], &mut found);
//! assert_eq!(found.map(|at| cache.get_at(at).copied()), [Some("to port 7"), None]);
//!
//! assert_eq!(cache.remove(flow), Some("to port 7"));
//! assert_eq!(cache.get(flow), None);
//! ```

mod exact;
mod find;
mod mask;
mod notes;

use std::num::NonZeroU32;

use sync::hash::Secrets;

use crate::buckets::Buckets;
use exact::Hints;
pub use find::MISS;
pub use mask::KEY_WORDS;
use mask::Mask;
use notes::Notes;

/// Index value that denotes no flow or no mask.
const NONE: u32 = u32::MAX;

/// Maximum numbers of flows and masks in a flow cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLimits {
    /// Maximum number of flows in the cache, at most 2^24.
    pub flows: u32,
    /// Maximum number of different masks that the flows of one port may have. A packet that matches no flow is looked
    /// up under all masks of its port.
    pub masks: u32,
}

impl Default for FlowLimits {
    fn default() -> Self {
        FlowLimits { flows: 250_000, masks: 256 }
    }
}

/// Reason why [`FlowCache::insert`] did not insert a flow. The flow cache has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowRefused {
    /// The cache already contains the maximum number of flows.
    #[error("the cache holds {most} flows already, which is the limit")]
    Flows {
        /// Maximum number of flows in the cache.
        most: u32,
    },
    /// The flow has a mask that is new for its port, and the port already has the maximum number of masks.
    #[error("the port's flows have {most} different masks already, which is the limit")]
    Masks {
        /// Maximum number of different masks that the flows of one port may have.
        most: u32,
    },
    /// The cache already contains a flow with equal key and mask.
    #[error("the flow is there already")]
    Exists(FlowRef),
}

/// Reference to an inserted flow. The reference is valid until the flow is removed, and never refers to another flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowRef {
    index: u32,
    generation: u32,
}

impl FlowRef {
    /// Returns the index of the flow, which [`FlowCache::find_burst`] also reports. After the flow is
    /// removed, the index may belong to another flow.
    #[must_use]
    pub fn index(self) -> u32 {
        self.index
    }
}

/// Counters of the results of look-ups in a flow cache, since the creation of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Number of packets whose flow was found by the exact-match cache.
    pub exact: u64,
    /// Number of packets that matched a wildcard flow (megaflow) after a miss in the exact-match cache.
    pub wildcard: u64,
    /// Number of packets that matched no flow.
    pub misses: u64,
    /// Number of look-ups of a packet under one mask. A packet counts once for each mask under which it was looked up.
    pub probes: u64,
}

/// A flow in the cache. A flow occupies two cache lines if its value has at most 48 octets.
#[derive(Debug)]
#[repr(C, align(64))]
struct Flow<T> {
    key: [u64; KEY_WORDS],
    /// Index of the flow's mask. [`NONE`] in a free entry.
    mask: u32,
    /// Number of flows that were removed from this entry so far. A [`FlowRef`] with another generation is
    /// invalid.
    generation: u32,
    /// Index of the flow's masked extended key, if the mask has bits in the extended key (the key words that few flows
    /// match). In a free entry, index of the next free entry.
    link: u32,
    /// Port whose packets the flow matches.
    port: u16,
    value: Option<T>,
}

/// A mask in the search order of one port, with its statistics.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    mask: u32,
    /// Number of the port's flows that have this mask.
    flows: u32,
    /// Number of the port's packets that matched a flow with this mask. [`FlowCache::rerank`] halves the number each
    /// time.
    hits: u64,
}

/// A flow cache. See the [module](self). `X` is the number of words of the extended key, which holds the fields
/// that few flows match.
#[derive(Debug)]
pub struct FlowCache<const X: usize, T> {
    limits: FlowLimits,
    secrets: Secrets,
    hints: Hints,
    flows: Vec<Flow<T>>,
    free: u32,
    len: usize,
    /// Masked extended keys of those flows whose masks have bits in the extended key (the key words that few flows
    /// match).
    extended: Vec<[u64; X]>,
    free_beyond: Vec<u32>,
    masks: Vec<Mask<X>>,
    free_masks: Vec<u32>,
    /// Hash table that maps the hash of a mask to the index of the mask.
    by_mask: Buckets,
    /// For each port, the masks of the port's flows, in search order.
    ranks: Vec<Vec<Ranked>>,
    counters: FlowCounters,
    notes: Option<Box<Notes>>,
}

impl<const X: usize, T> FlowCache<X, T> {
    /// Returns an empty cache. Reserves address space for the maximum number of flows. The kernel allocates the memory
    /// when the memory is first written.
    #[must_use]
    pub fn new(limits: FlowLimits) -> Self {
        let limits = FlowLimits { flows: limits.flows.min(1 << 24), ..limits };
        let secrets = Secrets::new();
        let mut flows = Vec::with_capacity(limits.flows as usize);
        sync::memory::advise_huge_pages(flows.spare_capacity_mut());
        FlowCache {
            hints: Hints::new(limits.flows, &secrets),
            flows,
            free: NONE,
            len: 0,
            extended: Vec::new(),
            free_beyond: Vec::new(),
            masks: Vec::new(),
            free_masks: Vec::new(),
            by_mask: Buckets::new(),
            ranks: Vec::new(),
            counters: FlowCounters::default(),
            notes: Some(Box::default()),
            limits,
            secrets,
        }
    }

    /// Sets how often a packet inserts an entry into the exact-match cache: one in `one_in` of the packets that match a
    /// wildcard flow after a miss in the exact-match cache. `None` disables the exact-match cache.
    pub fn set_exact(&mut self, one_in: Option<NonZeroU32>) {
        self.hints.set_one_in(one_in);
    }

    /// Inserts a flow. The flow matches packets of `port` whose key and extended key equal `key` and `extended` in the
    /// bits of the masks. The port number itself is not compared. Therefore keys and masks must distinguish ports.
    ///
    /// # Errors
    /// Returns the reason as [`FlowRefused`] if the flow is not inserted. The cache has not changed then.
    pub fn insert(
        &mut self,
        port: u16,
        key: &[u64; KEY_WORDS],
        extended: &[u64; X],
        mask: &[u64; KEY_WORDS],
        extended_mask: &[u64; X],
        value: T,
    ) -> Result<FlowRef, FlowRefused> {
        let known = self.mask_number(mask, extended_mask);
        if let Some(index) = known.and_then(|number| self.same_flow(number, key, extended)) {
            return Err(FlowRefused::Exists(self.reference(index)));
        }
        if self.len >= self.limits.flows as usize {
            return Err(FlowRefused::Flows { most: self.limits.flows });
        }
        let rank = known.and_then(|number| self.rank(port, number));
        if rank.is_none()
            && self.ranks.get(usize::from(port)).map_or(0, Vec::len) >= self.limits.masks as usize
        {
            return Err(FlowRefused::Masks { most: self.limits.masks });
        }
        let number = known.unwrap_or_else(|| self.add_mask(mask, extended_mask));
        if self.ranks.len() <= usize::from(port) {
            self.ranks.resize_with(usize::from(port) + 1, Vec::new);
        }
        let ranks = &mut self.ranks[usize::from(port)];
        match rank {
            Some(at) => ranks[at].flows += 1,
            None => ranks.push(Ranked { mask: number, flows: 1, hits: 0 }),
        }
        let mask = &mut self.masks[number as usize];
        let free_beyond = if mask.has_beyond() { self.free_beyond.pop() } else { None };
        let link = match free_beyond {
            _ if !mask.has_beyond() => NONE,
            Some(at) => {
                self.extended[at as usize] = mask.beyond_of(extended);
                at
            }
            None => {
                self.extended.push(mask.beyond_of(extended));
                place(self.extended.len() - 1)
            }
        };
        let (hash, key) = (mask.hash(key, || *extended), mask.key_of(key));
        let index = if self.free == NONE { place(self.flows.len()) } else { self.free };
        mask.index.insert(hash, index);
        mask.flows += 1;
        self.len += 1;
        match self.flows.get_mut(index as usize) {
            Some(flow) => {
                self.free = flow.link;
                *flow =
                    Flow { key, mask: number, generation: flow.generation, link, port, value: Some(value) };
            }
            None => {
                self.flows.push(Flow { key, mask: number, generation: 0, link, port, value: Some(value) })
            }
        }
        Ok(self.reference(index))
    }

    /// Removes a flow and returns its value. Returns `None` if the flow no longer exists.
    pub fn remove(&mut self, flow: FlowRef) -> Option<T> {
        let place = self.flows.get_mut(flow.index as usize)?;
        if place.generation != flow.generation {
            return None;
        }
        let value = place.value.take()?;
        let mask = &mut self.masks[place.mask as usize];
        let extended = self.extended.get(place.link as usize).copied();
        let hash = mask.hash(&place.key, || extended.unwrap_or([0; X]));
        mask.index.remove(hash, flow.index);
        mask.flows -= 1;
        if extended.is_some() {
            self.free_beyond.push(place.link);
        }
        let (number, port) = (std::mem::replace(&mut place.mask, NONE), place.port);
        place.generation = place.generation.wrapping_add(1);
        place.link = std::mem::replace(&mut self.free, flow.index);
        self.len -= 1;
        if let Some(at) = self.rank(port, number) {
            let ranks = &mut self.ranks[usize::from(port)];
            ranks[at].flows -= 1;
            if ranks[at].flows == 0 {
                ranks.remove(at);
            }
        }
        if self.masks[number as usize].flows == 0 {
            self.remove_mask(number);
        }
        Some(value)
    }

    /// Returns the value of a flow. Returns `None` if the flow no longer exists.
    #[must_use]
    pub fn get(&self, flow: FlowRef) -> Option<&T> {
        let place = self.flows.get(flow.index as usize)?;
        place.value.as_ref().filter(|_| place.generation == flow.generation)
    }

    /// Returns a mutable reference to the value of a flow. Returns `None` if the flow no longer exists.
    pub fn get_mut(&mut self, flow: FlowRef) -> Option<&mut T> {
        let place = self.flows.get_mut(flow.index as usize)?;
        let same = place.generation == flow.generation;
        place.value.as_mut().filter(|_| same)
    }

    /// Returns the value of the flow at an index that [`FlowCache::find_burst`] reported. Returns `None` for
    /// [`MISS`]. The caller must not have removed a flow since that call.
    #[inline(always)]
    #[must_use]
    pub fn get_at(&self, index: u32) -> Option<&T> {
        self.flows.get(index as usize)?.value.as_ref()
    }

    /// Returns a mutable reference to the value of a flow, like [`FlowCache::get_at`].
    #[inline(always)]
    pub fn get_at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.flows.get_mut(index as usize)?.value.as_mut()
    }

    /// Returns a reference to the flow at an index that [`FlowCache::find_burst`] reported. The reference,
    /// unlike the index, stays valid when other flows are removed.
    #[must_use]
    pub fn reference_at(&self, index: u32) -> Option<FlowRef> {
        self.flows.get(index as usize).filter(|flow| flow.value.is_some()).map(|_| self.reference(index))
    }

    /// Returns an iterator over all flows in the cache, with a reference to each flow and its value.
    pub fn iter(&self) -> impl Iterator<Item = (FlowRef, &T)> {
        (0..).zip(&self.flows).filter_map(|(index, flow)| {
            let reference = FlowRef { index, generation: flow.generation };
            Some((reference, flow.value.as_ref()?))
        })
    }

    /// Sorts the masks of each port by the number of packets that matched under them. Recent packets have the greatest
    /// weight. The owner of the cache should call this method about once per second.
    pub fn rerank(&mut self) {
        for ranks in &mut self.ranks {
            ranks.sort_unstable_by_key(|own| std::cmp::Reverse(own.hits));
            for own in ranks {
                own.hits /= 2;
            }
        }
    }

    /// Returns the number of flows in the cache.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the cache has no flows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of different masks of all flows.
    #[must_use]
    pub fn masks(&self) -> usize {
        self.masks.len() - self.free_masks.len()
    }

    /// Returns the capacity limits of the cache.
    #[must_use]
    pub fn limits(&self) -> FlowLimits {
        self.limits
    }

    /// Returns the counters of the results of look-ups.
    #[must_use]
    pub fn counters(&self) -> FlowCounters {
        self.counters
    }

    /// Returns the memory that the cache uses, in bytes, not including memory that values point to. Flow entries that
    /// were never used do not count.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + size_of::<Notes>()
            + self.hints.memory()
            + self.flows.len() * size_of::<Flow<T>>()
            + self.extended.capacity() * size_of::<[u64; X]>()
            + self.masks.iter().map(Mask::memory).sum::<usize>()
            + (self.free_beyond.capacity() + self.free_masks.capacity()) * size_of::<u32>()
            + self.ranks.capacity() * size_of::<Vec<Ranked>>()
            + self.ranks.iter().map(Vec::capacity).sum::<usize>() * size_of::<Ranked>()
            + self.by_mask.memory()
    }

    fn reference(&self, index: u32) -> FlowRef {
        FlowRef { index, generation: self.flows.get(index as usize).map_or(0, |flow| flow.generation) }
    }

    fn mask_number(&self, mask: &[u64; KEY_WORDS], extended_mask: &[u64; X]) -> Option<u32> {
        self.by_mask.find(Mask::number_hash(&self.secrets, mask, extended_mask), |number| {
            self.masks[number as usize].is(mask, extended_mask)
        })
    }

    fn add_mask(&mut self, mask: &[u64; KEY_WORDS], extended_mask: &[u64; X]) -> u32 {
        let new = Mask::new(&self.secrets, mask, extended_mask);
        let number = self.free_masks.pop().unwrap_or(place(self.masks.len()));
        match self.masks.get_mut(number as usize) {
            Some(old) => *old = new,
            None => self.masks.push(new),
        }
        self.by_mask.insert(Mask::number_hash(&self.secrets, mask, extended_mask), number);
        number
    }

    fn remove_mask(&mut self, number: u32) {
        let (mask, extended_mask) = self.masks[number as usize].words();
        self.by_mask.remove(Mask::number_hash(&self.secrets, &mask, &extended_mask), number);
        self.masks[number as usize].index = Buckets::new();
        self.free_masks.push(number);
    }

    /// Returns the position of a mask in the search order of a port. Returns `None` if no flow of the port
    /// has this mask.
    fn rank(&self, port: u16, number: u32) -> Option<usize> {
        self.ranks.get(usize::from(port))?.iter().position(|own| own.mask == number)
    }

    /// Returns the index of the flow that has the mask with the index `number` and equals `key` and `extended` under
    /// this mask. Returns `None` if there is no such flow.
    fn same_flow(&self, number: u32, key: &[u64; KEY_WORDS], extended: &[u64; X]) -> Option<u32> {
        let mask = &self.masks[number as usize];
        let same = |index: u32| self.flows[index as usize].is(mask, &self.extended, key, || *extended);
        mask.index.find(mask.hash(key, || *extended), same)
    }
}

/// Converts an index to `u32`. The capacity limits keep all indexes below [`NONE`].
fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(NONE)
}

impl<T> Flow<T> {
    /// Returns whether a packet with this key and extended key matches the flow. `mask` is the mask of the flow.
    /// `all_beyond` contains the masked extended keys of all flows, and `link` is the index of this flow's extended
    /// key.
    #[inline(always)]
    fn is<const X: usize>(
        &self,
        mask: &Mask<X>,
        all_beyond: &[[u64; X]],
        key: &[u64; KEY_WORDS],
        extended: impl FnOnce() -> [u64; X],
    ) -> bool {
        mask.matches(key, &self.key)
            && (!mask.has_beyond()
                || all_beyond.get(self.link as usize).is_some_and(|own| mask.beyond_of(&extended()) == *own))
    }
}
