//! The router, first part: what a table of routes says of an address, and which of several ways out a flow takes.
//!
//! ```text
//!   address ──lookup's trie──► number of a path ──slots──► Path: an end, or a group of ways out
//!                                                            │ hash of the flow
//!                                                            └──buckets──► one of them
//! ```
//!
//! A [`Fib`] belongs to one writer; any number of workers ask its [`View`]. Routes that lead to the same share a path, so that one
//! write repoints all of them, and a path that changes keeps as many flows where they are as its new shares allow ([`Buckets`]).
//!
//! ```
//! use lookup::Prefix;
//! use router::{Fib, Path, Verdict, Way};
//! use sync::qsbr::Domain;
//!
//! let domain = Domain::new();
//! let mut fib = Fib::new(&domain, 1 << 20, 64);
//! let way = Way { interface: 3, gateway: Some([10, 0, 0, 1].into()), weight: 1 };
//! fib.set4(Prefix::new(0xc000_0200, 24), &Path::Ways(vec![way])).unwrap();
//!
//! let (view, reader) = (fib.view(), domain.register().unwrap());
//! let mut verdicts = [Verdict::NoRoute; 2];
//! view.route4(&reader, &[0xc000_0207, 0x0a00_0001], &[17, 17], &mut verdicts);
//! assert_eq!(verdicts, [Verdict::Forward(way), Verdict::NoRoute]);
//! ```

mod buckets;
mod fib;
mod paths;

pub use buckets::{BUCKETS, Buckets};
pub use fib::{Fib, FibError, View};
pub use paths::{Path, Verdict, Way};
