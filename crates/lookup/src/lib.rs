//! Look-ups in large tables. Longest-prefix tries: which next hop an address has, for tables of a million prefixes that change all the
//! time; this page is about them. And rules with masks and priorities over keys of words: the [`classifier`]; before it,
//! in each worker, its answers: the [`flow_cache`].
//!
//! A [`Table`] belongs to one writer and holds the prefixes; any number of workers look addresses up in its [`Trie`], in bursts.
//! The trie is a poptrie (Asai and Ohara, SIGCOMM 2015): a root table over the first bits, then nodes of 64 slots, whose children
//! and leaves stand in arrays without gaps and are found by counting bits.
//!
//! ```text
//!   words of one array                                     a node: three words
//!   +---------+----------------+---------------------+     slots that are nodes   1001..0
//!   | default | root, 2^18 or  | arrays of nodes and |     leaves that differ     0100..1
//!   |  hop    | 2^16 entries   | of leaves, by size  |     where children and leaves begin
//!   +---------+----------------+---------------------+
//! ```
//!
//! **Change.** The writer never touches what a reader can reach. It writes the arrays on the way from a root entry to what changes
//! anew, and stores the root entry last (release): a look-up sees the table before or after, never between. Arrays that were
//! replaced are used again after a grace period of the [`Domain`](sync::qsbr::Domain). The default route is a word of its own, and a
//! [`Hop`] is a number that its owner gives a meaning: what many prefixes share changes by one write elsewhere.
//!
//! **Limits.** The array has a fixed size; what does not fit is refused, and the table is as it was ([`TableFull`]).
//!
//! ```
//! use lookup::{Hop, Prefix, Table};
//! use sync::qsbr::Domain;
//!
//! let domain = Domain::new();
//! let mut table = Table::<u32>::new(&domain, 1 << 20);
//! table.insert(Prefix::new(0x0a00_0000, 8), Hop(1)).unwrap();
//! table.insert(Prefix::new(0x0a01_0200, 24), Hop(2)).unwrap();
//!
//! let (trie, reader) = (table.trie(), domain.register().unwrap());
//! let mut hops = [Hop::NONE; 3];
//! trie.look_up(&reader, &[0x0a01_0203, 0x0a01_0303, 0x0b00_0000], &mut hops);
//! assert_eq!(hops, [Hop(2), Hop(1), Hop::NONE]);
//! ```

mod buckets;
pub mod classifier;
pub mod flow_cache;
mod hash;
pub mod naive;
mod prefix;
mod routes;
mod simd;
mod table;
mod trie;
mod words;

pub use classifier::{Classifier, Entry, Layout, Octets, Options, PrefixStep, Rule, RulesFull};
pub use flow_cache::{FlowCache, FlowCounters, FlowLimits, FlowRef, FlowRefused, MISS};
pub use hash::WordHash;
pub use prefix::{Address, Prefix};
pub use table::{Table, Usage};
pub use trie::{Hop, Trie};
pub use words::TableFull;
