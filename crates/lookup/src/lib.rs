//! Look-ups in large tables.
//!
//! - Longest-prefix tries map addresses to next hops, for tables of a million prefixes that change
//!   continuously. The rest of this page describes the tries.
//! - The [`classifier`] holds rules with masks and priorities over keys of words.
//! - The [`flow_cache`] of each worker caches the results of the classifier.
//!
//! A [`Table`] belongs to one writer and holds the prefixes. Any number of workers look up addresses in its
//! [`Trie`], in bursts. The trie is a poptrie (Asai and Ohara, SIGCOMM 2015): a root table over the first
//! bits, then nodes of 64 slots. Children and leaves of a node are in dense arrays and are found by counting
//! bits.
//!
//! ```text
//!   words of one array                                     a node: three words
//!   +---------+----------------+---------------------+     bits of the slots that hold a child node     1001..0
//!   | default | root, 2^18 or  | arrays of nodes and |     bits of the slots where a new leaf begins   0100..1
//!   |  hop    | 2^16 entries   | of leaves, by size  |     indexes of the first child and the first leaf
//!   +---------+----------------+---------------------+
//! ```
//!
//! **Changes.** The writer never modifies words that a reader can reach. It writes new arrays on the path from a
//! root entry to the changed part, and stores the root entry last (release). A look-up sees the table before or
//! after a change, never an intermediate state. Replaced arrays are reused after a grace period of the
//! [`Domain`](sync::qsbr::Domain). The default route is a separate word. A [`Hop`] is a number, for example an
//! index into the caller's table of next hops. A next hop that many prefixes share can thus be changed by one write
//! to that table.
//!
//! **Limits.** The array has a fixed size. A change that does not fit is refused and leaves the table
//! unchanged ([`TableFull`]).
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
pub mod naive;
mod prefix;
mod routes;
mod rule;
mod simd;
mod table;
mod trie;
mod words;

pub use classifier::{Classifier, Layout, Octets, Options, PrefixStep, RulesFull};
pub use flow_cache::{FlowCache, FlowCounters, FlowLimits, FlowRef, FlowRefused, MISS};
pub use prefix::{Address, Prefix};
pub use rule::{Entry, Rule, matches};
pub use table::{Table, Usage};
pub use trie::{Hop, Trie};
pub use words::TableFull;
