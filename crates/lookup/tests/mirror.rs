//! Tests of mirrors: a reader that accesses only the words, like a BPF program, always finds the content of
//! the table.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lookup::{Address, Hop, Prefix, Table, TableFull};
use proptest::prelude::*;
use sync::qsbr::Domain;
use sync::readers::{ExternalReaders, Memory, Readers};

#[derive(Clone)]
struct Words(Arc<[AtomicU64]>);

impl AsRef<[AtomicU64]> for Words {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0
    }
}

impl Words {
    fn new(words: usize) -> Words {
        Words((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    fn memory(&self) -> Memory {
        Box::new(self.clone())
    }

    fn at(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Acquire)
    }

    /// Looks up an address. The code follows the crate's documentation and shares no code with the crate.
    fn look_up<A: Address>(&self, address: A) -> u32 {
        let low = |word: u64| usize::try_from(word & 0xffff_ffff).unwrap();
        let rank = |bits: u64, slot: usize| (bits << (63 - slot)).count_ones() as usize;
        let root = self.at(1 + address.bits(0, A::ROOT_BITS));
        let (mut hop, mut node, mut from) = (low(root), low(root), A::ROOT_BITS);
        let mut is_node = root >> 63 == 1;
        while is_node {
            assert!(from < A::BITS, "deeper than an address");
            let slot = address.bits(from, 6);
            let (children, leaves, bases) = (self.at(node), self.at(node + 1), self.at(node + 2));
            is_node = children >> slot & 1 == 1;
            if is_node {
                node = low(bases) + 3 * (rank(children, slot) - 1);
            } else {
                let nth = rank(leaves, slot) - 1;
                hop = low(self.at(low(bases >> 32) + nth / 2) >> (32 * (nth & 1)));
            }
            from += 6;
        }
        u32::try_from(if hop == 0 { low(self.at(0)) } else { hop }).unwrap()
    }
}

/// Returns a domain and its set of readers. Nothing reads through this set.
fn nobody() -> (Arc<Domain>, Readers) {
    let domain = Domain::new();
    let readers = Readers::with(&domain, &ExternalReaders::start(|| ()).unwrap());
    (domain, readers)
}

fn agrees<A: Address>(changes: Vec<(A, u8, u32)>, asked: Vec<A>) -> Result<(), TestCaseError> {
    let (domain, readers) = nobody();
    let words = Words::new(1 << 19);
    let mut table = Table::<A>::mirrored(&readers, words.memory()).unwrap();
    let mut reader = domain.register().unwrap();
    let addresses: Vec<A> = changes.iter().map(|(address, ..)| *address).chain(asked).collect();
    for (address, length, hop) in changes {
        table.insert(Prefix::new(address, length), Hop(hop)).unwrap();
        let mut hops = vec![Hop::NONE; addresses.len()];
        table.trie().look_up(&reader, &addresses, &mut hops);
        for (address, hop) in addresses.iter().zip(hops) {
            prop_assert_eq!(words.look_up(*address), hop.0);
        }
        reader.quiescent();
    }
    Ok(())
}

/// Generates changes of prefixes. Many of the prefixes are nested in each other.
fn changes<A: Address>(address: impl Strategy<Value = A>) -> impl Strategy<Value = Vec<(A, u8, u32)>> {
    proptest::collection::vec((address, 0_u8..=128, 0_u32..4), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn words_alone_lead_where_the_trie_does_4(
        changes in changes(prop_oneof![any::<u32>(), 0x0a00_0000_u32..0x0a00_0100]),
        asked in proptest::collection::vec(any::<u32>(), 20),
    ) {
        agrees(changes, asked)?;
    }

    #[test]
    fn words_alone_lead_where_the_trie_does_6(
        changes in changes(prop_oneof![any::<u128>(), (0x2001_u128 << 112)..(0x2001_u128 << 112) + 0x1_0000]),
        asked in proptest::collection::vec(any::<u128>(), 20),
    ) {
        agrees(changes, asked)?;
    }
}

#[test]
fn memory_without_room_for_a_root_is_refused() {
    let (_, readers) = nobody();
    for words in [0, 1, 1 << 18] {
        let made = Table::<u32>::mirrored(&readers, Words::new(words).memory());
        assert_eq!(made.err(), Some(TableFull { words }));
    }
}

/// Checks that an external reader (such as a BPF program), which reads continuously while prefixes change, never reads
/// reused words. Each result must have been correct at some time during its look-up.
#[test]
fn a_stranger_never_meets_words_that_are_used_again() {
    let words = Words::new((1 << 18) + 40_000);
    // The parity of `turn` marks whether a look-up is in progress.
    let (turn, end) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let waits = Arc::clone(&turn);
    let external_readers = ExternalReaders::start(move || {
        let began = waits.load(Ordering::SeqCst);
        while began & 1 == 1 && waits.load(Ordering::SeqCst) == began {
            std::thread::yield_now();
        }
    });
    let readers = Readers::with(&Domain::new(), &external_readers.unwrap());
    let mut table = Table::<u32>::mirrored(&readers, words.memory()).unwrap();
    let address = |number: u32| 0x0a00_0000 | number.wrapping_mul(0x9e37_79b1) >> 14;
    table.insert(Prefix::new(0, 0), Hop(1)).unwrap();
    // Each prefix has a different range of next hops.
    for number in 0..64 {
        table.insert(Prefix::new(address(number), 32), Hop(1000 * (number + 1))).unwrap();
    }
    let (stranger, told) = (words.clone(), Arc::clone(&end));
    let reads = std::thread::spawn(move || {
        let mut seen: BTreeMap<u32, u32> = BTreeMap::new();
        let mut count = 0_u64;
        while !told.load(Ordering::Relaxed) {
            for number in 0..64 {
                turn.fetch_add(1, Ordering::SeqCst);
                let hop = stranger.look_up(address(number));
                turn.fetch_add(1, Ordering::SeqCst);
                assert_eq!(hop / 1000, number + 1, "the hop {hop} is another's");
                // The next hop is never older than the next hop that the previous look-up returned.
                let last = seen.insert(number, hop).unwrap_or(0);
                assert!(hop >= last, "{number}: {hop} after {last}");
                count += 1;
            }
        }
        count
    });
    for round in 1..=400_u32 {
        for number in 0..64 {
            let hop = Hop(1000 * (number + 1) + round);
            table.insert(Prefix::new(address(number), 32), hop).unwrap();
        }
    }
    end.store(true, Ordering::Relaxed);
    assert!(reads.join().unwrap() > 64);
}
