//! Mirrors: copies of routing tables and adjacencies in memory that the caller provides. BPF programs read this
//! memory and route packets as workers do.
//!
//! ```text
//!   trie (lookup) ──number of a path──► paths ──► 0: pass to a worker │ one next hop │ blackhole
//!                                         └──► group ──bucket of the flow──► next hop
//!     next hop: number of an adjacency ──► neighbours: address, interface, its key
//!       on the link itself ──(device, destination)──► links ──► number of an adjacency
//! ```
//!
//! The writer of the tables updates the mirror together with the workers' state. Each step of an update
//! writes one word. A reader therefore gets the state before or after a change. A group is written completely
//! before a path refers to it. An unreferenced group is reused when no reader can use it any more
//! ([`Readers`]).

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use sync::readers::{GracePeriods, Memory, Readers};

use crate::address_bits::{bits_of, halves};
use crate::adjacency_number::{MOST, place};
use crate::buckets::{BUCKETS, Buckets};
use crate::link_hash::{LINK_SECRETS, LinkHash};

/// Number of 64-bit words of a next-hop group in the mirror (the memory that BPF programs read to route packets). Each
/// word holds two hash buckets.
pub const GROUP_WORDS: usize = BUCKETS / 2;
/// Number of 64-bit words of a neighbour in the mirror (the memory that BPF programs read to route packets): the two
/// words of [`crate::Adjacency`], and two words for the neighbour's address.
pub const NEIGHBOUR_WORDS: usize = 4;
/// Number of 64-bit words of a line (bucket) in the mirror's hash table of on-link neighbours. Each word contains the
/// adjacency number of a neighbour, and a part of the hash of its device and address.
pub const LINE_WORDS: usize = 8;
/// Number of 64-bit words that count the packets and bytes that one CPU has sent to one neighbour.
pub const COUNT_WORDS: usize = 2;

/// Upper half of the word that describes a path in the mirror (the memory that BPF programs read): the path has one
/// next hop. The lower half is the adjacency number of the next hop.
const WAY: u64 = 1 << 32;
/// Upper half of the word that describes a path in the mirror (the memory that BPF programs read): the path has several
/// next hops. The lower half is the index of the next-hop group.
const GROUP: u64 = 2 << 32;
/// Upper half of the word that describes a path in the mirror (the memory that BPF programs read): BPF programs drop
/// the packets of the path.
const BLACKHOLE: u64 = 3 << 32;
/// Upper half of the word that describes a path in the mirror (the memory that BPF programs read): BPF programs pass
/// the packets of the path to a worker.
const UP: u64 = 0;

/// Memory for the mirror of a routing table (the copy that BPF programs read). All words are initially zero.
pub struct TableMirror {
    /// Memory for the words of the IPv4 trie.
    pub four: Memory,
    /// Memory for the words of the IPv6 trie.
    pub six: Memory,
    /// Table of paths: one word for each path number. If a path's number is beyond the end of the table, its packets
    /// are routed by workers.
    pub paths: Memory,
    /// Table of next-hop groups: [`GROUP_WORDS`] words for each group index. If all groups are in use, the packets of
    /// any other path with several next hops are routed by workers.
    pub groups: Memory,
}

/// Memory for the mirror of the neighbours (the copy that BPF programs read). All words are initially zero.
pub struct NeighbourMirror {
    /// Table of neighbours: [`NEIGHBOUR_WORDS`] words for each adjacency number, number 0 included.
    pub neighbours: Memory,
    /// Hash table of on-link neighbours: lines of [`LINE_WORDS`] words. The number of lines is a power of two. Packets
    /// to an on-link destination without an entry are forwarded by workers.
    pub links: Memory,
    /// Secret numbers for the hash of `links` ([`LINK_SECRETS`]), which the BPF programs must use, too. The numbers are
    /// random and have no other use.
    pub secrets: [u64; LINK_SECRETS],
    /// Counters of the packets and bytes that BPF programs have sent. The memory consists of consecutive tables, one
    /// for each CPU. Each table has [`COUNT_WORDS`] words for each adjacency number, number 0 included.
    pub counts: Memory,
}

fn words(memory: &Memory) -> &[AtomicU64] {
    memory.as_ref().as_ref()
}

/// A path in the form in which the mirror of a routing table stores it for BPF programs.
pub enum PathEntry<'a> {
    Up,
    Blackhole,
    Adjacency(u32),
    Group(&'a Buckets<u32>),
}

/// Writer of the paths and next-hop groups in the mirror of a routing table, which BPF programs read.
pub struct PathMirror {
    paths: Memory,
    groups: Memory,
    free: Vec<u32>,
    /// Index of the next-hop group in use by each path with several next hops. The key is the path number.
    used: HashMap<u32, u32>,
    leaving: VecDeque<(GracePeriods, u32)>,
}

impl PathMirror {
    pub fn new(paths: Memory, groups: Memory) -> PathMirror {
        let count = u32::try_from(words(&groups).len() / GROUP_WORDS).unwrap_or(u32::MAX);
        let (used, leaving) = (HashMap::new(), VecDeque::new());
        PathMirror { paths, groups, free: (0..count).rev().collect(), used, leaving }
    }

    /// Writes the action or the next hops of the path with the number `path` to the mirror. Returns false if there is
    /// no space for the next hops. The packets of the path are then routed by workers.
    pub fn write(&mut self, path: u32, entry: &PathEntry<'_>, readers: &Readers) -> bool {
        let Some(at) = words(&self.paths).get(place(path)) else { return true };
        let (word, group) = match entry {
            PathEntry::Up => (UP, None),
            PathEntry::Blackhole => (BLACKHOLE, None),
            PathEntry::Adjacency(number) => (WAY | u64::from(*number), None),
            PathEntry::Group(buckets) => match take(&mut self.free, &mut self.leaving, readers) {
                Some(group) => {
                    let first = place(group) * GROUP_WORDS;
                    for (word, at) in words(&self.groups).iter().skip(first).take(GROUP_WORDS).zip(0..) {
                        let way = |bucket| u64::from(buckets.at(bucket).copied().unwrap_or(0));
                        word.store(way(2 * at) | way(2 * at + 1) << 32, Ordering::Relaxed);
                    }
                    (GROUP | u64::from(group), Some(group))
                }
                None => (UP, None),
            },
        };
        at.store(word, Ordering::Release);
        let before = match group {
            Some(group) => self.used.insert(path, group),
            None => self.used.remove(&path),
        };
        self.leaving.extend(before.map(|before| (readers.begin(), before)));
        group.is_some() || !matches!(entry, PathEntry::Group(_))
    }

    /// Returns whether the mirror (the memory that BPF programs read) has a free next-hop group, so that one more path
    /// with several next hops can be written.
    pub fn has_room(&mut self, readers: &Readers) -> bool {
        if let Some(group) = take(&mut self.free, &mut self.leaving, readers) {
            self.free.push(group);
        }
        !self.free.is_empty()
    }

    /// Returns whether some freed next-hop groups cannot be reused yet because readers may still use these groups.
    pub fn is_freeing(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Releases the next-hop group of a path that no route uses any more.
    pub fn leave(&mut self, path: u32, readers: &Readers) {
        let group = self.used.remove(&path);
        self.leaving.extend(group.map(|group| (readers.begin(), group)));
    }
}

fn take(free: &mut Vec<u32>, leaving: &mut VecDeque<(GracePeriods, u32)>, readers: &Readers) -> Option<u32> {
    if let (true, Some((ticket, _))) = (free.is_empty(), leaving.front()) {
        readers.wait_for_strangers(*ticket);
    }
    while let Some((_, group)) = leaving.pop_front_if(|(ticket, _)| readers.are_past(*ticket)) {
        free.push(group);
    }
    free.pop()
}

/// Writer of the mirror of the neighbours, which BPF programs read.
pub struct Neighbours(NeighbourMirror, LinkHash);

impl Neighbours {
    pub fn new(mirror: NeighbourMirror) -> Neighbours {
        let hash = LinkHash::with(mirror.secrets);
        Neighbours(mirror, hash)
    }

    fn word(&self, number: u32, nth: usize) -> Option<&AtomicU64> {
        words(&self.0.neighbours).get(place(number) * NEIGHBOUR_WORDS + nth)
    }

    /// Writes the first word of the neighbour with this adjacency number: flags and link-layer address.
    pub fn write(&self, number: u32, word: u64) {
        if let Some(at) = self.word(number, 0) {
            at.store(word, Ordering::Release);
        }
    }

    /// Writes the second word of the neighbour with this adjacency number: kernel device and interface number.
    pub fn place(&self, number: u32, word: u64) {
        if let Some(at) = self.word(number, 1) {
            at.store(word, Ordering::Release);
        }
    }

    /// Adds the neighbour with this adjacency number to the hash table of on-link neighbours. Its device and address
    /// are the key of the entry.
    pub fn enter(&self, number: u32, device: u32, address: IpAddr) {
        let (high, low) = halves(bits_of(address));
        for (nth, half) in [(2, high), (3, low)] {
            if let Some(at) = self.word(number, nth) {
                at.store(half, Ordering::Relaxed);
            }
        }
        let hash = self.1.of(device, high, low);
        let free = self.homes(hash).into_iter().flatten().find(|entry| entry.load(Ordering::Relaxed) == 0);
        if let Some(entry) = free {
            entry.store(entry_of(hash, number), Ordering::Release);
        }
    }

    /// Removes the neighbour with this adjacency number from the hash table of on-link neighbours. Its device and
    /// address are the key of the entry.
    pub fn leave(&self, number: u32, device: u32, address: IpAddr) {
        let (high, low) = halves(bits_of(address));
        let hash = self.1.of(device, high, low);
        for entry in self.homes(hash).into_iter().flatten() {
            if entry.load(Ordering::Relaxed) == entry_of(hash, number) {
                entry.store(0, Ordering::Release);
            }
        }
    }

    fn homes(&self, hash: u64) -> [&[AtomicU64]; 2] {
        let links = words(&self.0.links);
        let mask = (links.len() / LINE_WORDS).saturating_sub(1);
        [hash >> 32, hash & 0xffff_ffff].map(|at| {
            let line = usize::try_from(at).unwrap_or(0) & mask;
            links.get(line * LINE_WORDS..(line + 1) * LINE_WORDS).unwrap_or(&[])
        })
    }

    /// Returns the number of packets and the number of bytes that the BPF programs have sent to a neighbour, summed
    /// over all CPUs. `number` is the adjacency number of the neighbour. `numbers` is the number of neighbours in the
    /// counter table of one CPU.
    pub fn counted(&self, number: u32, numbers: usize) -> (u64, u64) {
        let all = words(&self.0.counts);
        let rows = all.chunks_exact((numbers * COUNT_WORDS).max(1));
        let sum = |nth: usize| {
            let of = |row: &[AtomicU64]| {
                row.get(place(number) * COUNT_WORDS + nth)
                    .map_or(0, |count: &AtomicU64| count.load(Ordering::Relaxed))
            };
            rows.clone().map(of).fold(0_u64, u64::wrapping_add)
        };
        (sum(0), sum(1))
    }
}

/// Returns the hash table entry of a neighbour: its adjacency number, and a part of the hash of its device and address.
/// The entry is 0 only if the number is 0.
fn entry_of(hash: u64, number: u32) -> u64 {
    hash << 24 | u64::from(number & MOST)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone)]
    struct Words(Arc<[AtomicU64]>);

    impl AsRef<[AtomicU64]> for Words {
        fn as_ref(&self) -> &[AtomicU64] {
            &self.0
        }
    }

    const LINES: usize = 64;

    fn neighbours(secrets: [u64; LINK_SECRETS]) -> Neighbours {
        let memory = |words: usize| Box::new(Words((0..words).map(|_| AtomicU64::new(0)).collect()));
        Neighbours::new(NeighbourMirror {
            neighbours: memory(32 * NEIGHBOUR_WORDS),
            links: memory(LINES * LINE_WORDS),
            secrets,
            counts: memory(32 * COUNT_WORDS),
        })
    }

    /// Checks that addresses whose hashes collide under some secrets do not collide under other secrets. Otherwise, a
    /// host on the link could fill all slots that the address of a victim may use.
    #[test]
    fn addresses_that_collide_under_one_secret_do_not_under_another() {
        let known = std::array::from_fn(|nth| 0x9e37_79b9_7f4a_7c15 << nth);
        let other = std::array::from_fn(|nth| 0xd6e8_feb8_6659_fd93 << nth ^ 0x1234_5678_9abc_def0);
        let address = |low: u64| IpAddr::from((0x2001_0db8_u128 << 96 | u128::from(low)).to_be_bytes());
        let lines = |all: &Neighbours, low| {
            let (high, low) = halves(bits_of(address(low)));
            all.homes(all.1.of(1, high, low)).map(<[AtomicU64]>::as_ptr)
        };
        let (attacked, safe) = (neighbours(known), neighbours(other));
        let victim = lines(&attacked, 1);
        assert_ne!(victim[0], victim[1]);
        let same = |low: &u64| match lines(&attacked, *low) {
            [one, two] => one != two && victim.contains(&one) && victim.contains(&two),
        };
        let chosen: Vec<u64> = (2..).filter(same).take(2 * LINE_WORDS).collect();
        for (all, is_found) in [(&attacked, false), (&safe, true)] {
            chosen.iter().zip(2..).for_each(|(low, number)| all.enter(number, 1, address(*low)));
            all.enter(1, 1, address(1));
            let is = |entry: &AtomicU64| entry.load(Ordering::Relaxed) & u64::from(MOST) == 1;
            assert_eq!(words(&all.0.links).iter().any(is), is_found);
        }
    }
}
