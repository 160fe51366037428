//! The flows that a worker knows: packets in bursts, answered by an exact-match cache of hints and by wildcard flows behind it.
//!
//! The first thing asked about a packet once its key is made; what is not found goes to the decider's
//! [`Classifier`](crate::Classifier), which answers with a wildcard flow (a *megaflow*) to insert here. One worker owns the cache.
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
//! A packet is asked against the masks alone that flows of its own port have, those first that answered most of that port's packets: whoever sends so that
//! many masks come to be pays for them, and his neighbours' packets do not.
//!
//! Flows have no priorities: they are expected to be disjoint, and where two overlap, either may answer. A hint is never believed: what it
//! leads to is compared with the packet, so that a hint whose flow has gone, or was followed by another in the same place,
//! is a hint that was not there. Words beyond the eight are asked for only where a flow has bits in them.
//!
//! Invariants: a flow's key has no bits outside its mask; a flow's place names the number of a mask that is in use, a free place none;
//! every mask in use has flows, and stands once in the order of each port that has some. Finding allocates nothing.
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

use std::num::NonZeroU32;

use crate::buckets::Buckets;
use crate::hash::Secrets;
use exact::Hints;
pub use find::MISS;
use find::Notes;
use mask::Mask;

/// Words of every packet's key.
pub const KEY_WORDS: usize = 8;
/// No flow, no mask.
const NONE: u32 = u32::MAX;

/// How much a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLimits {
    /// Flows at most; 2^24 at most.
    pub flows: u32,
    /// Different masks of one port's flows at most: what a packet that is not found is asked against.
    pub masks: u32,
}

impl Default for FlowLimits {
    fn default() -> Self {
        FlowLimits { flows: 250_000, masks: 256 }
    }
}

/// Why a flow was not inserted. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowRefused {
    /// The limit of flows.
    #[error("the cache holds {most} flows already, which is the limit")]
    Flows {
        /// The limit.
        most: u32,
    },
    /// The limit of a port's masks, and the flow has another one.
    #[error("the port's flows have {most} different masks already, which is the limit")]
    Masks {
        /// The limit.
        most: u32,
    },
    /// There is a flow of the same key and mask.
    #[error("the flow is there already")]
    Exists(FlowRef),
}

/// A flow that was inserted: leads to it until it is removed, and never to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowRef {
    index: u32,
    generation: u32,
}

impl FlowRef {
    /// Its place, as [`FlowCache::find_burst`] names it; after the flow is removed another flow's.
    #[must_use]
    pub fn index(self) -> u32 {
        self.index
    }
}

/// What became of packets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Packets that a hint answered.
    pub exact: u64,
    /// Packets that the masks answered.
    pub wildcard: u64,
    /// Packets that no flow matches.
    pub misses: u64,
    /// Times that a packet was asked against a mask.
    pub probes: u64,
}

/// A flow's two cache lines, if the value is not larger than 48 octets.
#[derive(Debug)]
#[repr(C, align(64))]
struct Flow<T> {
    key: [u64; KEY_WORDS],
    /// The number of its mask; of a free place [`NONE`].
    mask: u32,
    /// Counts what was removed here.
    generation: u32,
    /// Where the words beyond the key stand, if the mask has bits there; of a free place the next free one.
    link: u32,
    /// Whose packets it is for.
    port: u16,
    value: Option<T>,
}

/// A mask that flows of a port have.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    mask: u32,
    /// The port's flows that have it.
    flows: u32,
    /// The port's packets that were found under it; halved now and then.
    hits: u64,
}

/// See the [module](self). `X` is how many words there are beyond the key.
#[derive(Debug)]
pub struct FlowCache<const X: usize, T> {
    limits: FlowLimits,
    secrets: Secrets,
    hints: Hints,
    flows: Vec<Flow<T>>,
    free: u32,
    len: usize,
    /// The masked words beyond the key, of flows that have bits there.
    beyond: Vec<[u64; X]>,
    free_beyond: Vec<u32>,
    masks: Vec<Mask<X>>,
    free_masks: Vec<u32>,
    /// From a mask's hash to its number.
    by_mask: Buckets,
    /// By port: its flows' masks in the order in which they are asked.
    ranks: Vec<Vec<Ranked>>,
    counters: FlowCounters,
    notes: Option<Box<Notes>>,
}

impl<const X: usize, T> FlowCache<X, T> {
    /// Without flows. Takes address space, though not yet memory, for as many as the limit says.
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
            beyond: Vec::new(),
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

    /// Has one of so many packets that the masks answer leave a hint in the exact-match cache; `None` switches that cache off.
    pub fn set_exact(&mut self, one_in: Option<NonZeroU32>) {
        self.hints.set_one_in(one_in);
    }

    /// Puts a flow in: a port's packets that agree with `key` and `beyond` in the bits of the masks. Where there are several ports, keys and
    /// masks have to tell them apart.
    ///
    /// # Errors
    /// [`FlowRefused`], and nothing has changed.
    pub fn insert(
        &mut self,
        port: u16,
        key: &[u64; KEY_WORDS],
        beyond: &[u64; X],
        mask: &[u64; KEY_WORDS],
        beyond_mask: &[u64; X],
        value: T,
    ) -> Result<FlowRef, FlowRefused> {
        let known = self.mask_number(mask, beyond_mask);
        if let Some(index) = known.and_then(|number| self.same_flow(number, key, beyond)) {
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
        let number = known.unwrap_or_else(|| self.add_mask(mask, beyond_mask));
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
                self.beyond[at as usize] = mask.beyond_of(beyond);
                at
            }
            None => {
                self.beyond.push(mask.beyond_of(beyond));
                place(self.beyond.len() - 1)
            }
        };
        let (hash, key) = (mask.hash(key, || *beyond), mask.key_of(key));
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

    /// Takes a flow out.
    pub fn remove(&mut self, flow: FlowRef) -> Option<T> {
        let place = self.flows.get_mut(flow.index as usize)?;
        if place.generation != flow.generation {
            return None;
        }
        let value = place.value.take()?;
        let mask = &mut self.masks[place.mask as usize];
        let beyond = self.beyond.get(place.link as usize).copied();
        let hash = mask.hash(&place.key, || beyond.unwrap_or([0; X]));
        mask.index.remove(hash, flow.index);
        mask.flows -= 1;
        if beyond.is_some() {
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

    /// A flow's value.
    #[must_use]
    pub fn get(&self, flow: FlowRef) -> Option<&T> {
        let place = self.flows.get(flow.index as usize)?;
        place.value.as_ref().filter(|_| place.generation == flow.generation)
    }

    /// A flow's value.
    pub fn get_mut(&mut self, flow: FlowRef) -> Option<&mut T> {
        let place = self.flows.get_mut(flow.index as usize)?;
        let same = place.generation == flow.generation;
        place.value.as_mut().filter(|_| same)
    }

    /// The value of the flow that [`FlowCache::find_burst`] named; `None` for [`MISS`]. Flows must not have been removed meanwhile.
    #[inline(always)]
    #[must_use]
    pub fn get_at(&self, index: u32) -> Option<&T> {
        self.flows.get(index as usize)?.value.as_ref()
    }

    /// As [`FlowCache::get_at`].
    #[inline(always)]
    pub fn get_at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.flows.get_mut(index as usize)?.value.as_mut()
    }

    /// What leads to the flow at a place for longer than a burst.
    #[must_use]
    pub fn reference_at(&self, index: u32) -> Option<FlowRef> {
        self.flows.get(index as usize).filter(|flow| flow.value.is_some()).map(|_| self.reference(index))
    }

    /// All flows.
    pub fn iter(&self) -> impl Iterator<Item = (FlowRef, &T)> {
        (0..).zip(&self.flows).filter_map(|(index, flow)| {
            let reference = FlowRef { index, generation: flow.generation };
            Some((reference, flow.value.as_ref()?))
        })
    }

    /// Puts each port's masks in the order of their hits; the last ones count most. To be called now and then, a second apart or so.
    pub fn rerank(&mut self) {
        for ranks in &mut self.ranks {
            ranks.sort_unstable_by_key(|own| std::cmp::Reverse(own.hits));
            for own in ranks {
                own.hits /= 2;
            }
        }
    }

    /// Flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no flow.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Different masks.
    #[must_use]
    pub fn masks(&self) -> usize {
        self.masks.len() - self.free_masks.len()
    }

    /// How much fits.
    #[must_use]
    pub fn limits(&self) -> FlowLimits {
        self.limits
    }

    /// What became of packets so far.
    #[must_use]
    pub fn counters(&self) -> FlowCounters {
        self.counters
    }

    /// Bytes of memory in use, without what values point to: places that no flow has been in yet do not count.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + size_of::<Notes>()
            + self.hints.memory()
            + self.flows.len() * size_of::<Flow<T>>()
            + self.beyond.capacity() * size_of::<[u64; X]>()
            + self.masks.iter().map(Mask::memory).sum::<usize>()
            + (self.free_beyond.capacity() + self.free_masks.capacity()) * size_of::<u32>()
            + self.ranks.capacity() * size_of::<Vec<Ranked>>()
            + self.ranks.iter().map(Vec::capacity).sum::<usize>() * size_of::<Ranked>()
            + self.by_mask.memory()
    }

    fn reference(&self, index: u32) -> FlowRef {
        FlowRef { index, generation: self.flows.get(index as usize).map_or(0, |flow| flow.generation) }
    }

    fn mask_number(&self, mask: &[u64; KEY_WORDS], beyond_mask: &[u64; X]) -> Option<u32> {
        self.by_mask.find(Mask::number_hash(&self.secrets, mask, beyond_mask), |number| {
            self.masks[number as usize].is(mask, beyond_mask)
        })
    }

    fn add_mask(&mut self, mask: &[u64; KEY_WORDS], beyond_mask: &[u64; X]) -> u32 {
        let new = Mask::new(&self.secrets, mask, beyond_mask);
        let number = self.free_masks.pop().unwrap_or(place(self.masks.len()));
        match self.masks.get_mut(number as usize) {
            Some(old) => *old = new,
            None => self.masks.push(new),
        }
        self.by_mask.insert(Mask::number_hash(&self.secrets, mask, beyond_mask), number);
        number
    }

    fn remove_mask(&mut self, number: u32) {
        let (mask, beyond_mask) = self.masks[number as usize].words();
        self.by_mask.remove(Mask::number_hash(&self.secrets, &mask, &beyond_mask), number);
        self.masks[number as usize].index = Buckets::new();
        self.free_masks.push(number);
    }

    /// Where a mask stands in a port's order, if flows of that port have it.
    fn rank(&self, port: u16, number: u32) -> Option<usize> {
        self.ranks.get(usize::from(port))?.iter().position(|own| own.mask == number)
    }

    /// The flow of the same mask and the same masked words.
    fn same_flow(&self, number: u32, key: &[u64; KEY_WORDS], beyond: &[u64; X]) -> Option<u32> {
        let mask = &self.masks[number as usize];
        let same = |index: u32| self.flows[index as usize].is(mask, &self.beyond, key, || *beyond);
        mask.index.find(mask.hash(key, || *beyond), same)
    }
}

/// The number of a place; limits keep them below [`NONE`].
fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(NONE)
}

impl<T> Flow<T> {
    /// Whether a packet is of this flow, whose mask is given.
    #[inline(always)]
    fn is<const X: usize>(
        &self,
        mask: &Mask<X>,
        all_beyond: &[[u64; X]],
        key: &[u64; KEY_WORDS],
        beyond: impl FnOnce() -> [u64; X],
    ) -> bool {
        mask.matches(key, &self.key)
            && (!mask.has_beyond()
                || all_beyond.get(self.link as usize).is_some_and(|own| mask.beyond_of(&beyond()) == *own))
    }
}
