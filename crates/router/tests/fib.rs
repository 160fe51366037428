//! Compares the FIB with a list of routes that is searched linearly, while routes are added, changed and removed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use lookup::Prefix;
use proptest::prelude::*;
use router::{Adjacencies, Fib, FibError, NextHop, Path, Verdict};
use sync::qsbr::Domain;

fn hop(interface: u32, last: u8) -> NextHop {
    NextHop { interface, gateway: Some(Ipv4Addr::new(10, 0, 0, last).into()), weight: 1 }
}

/// A list of routes that is searched linearly.
#[derive(Default)]
struct Naive {
    routes: BTreeMap<Prefix<u32>, Path>,
    shared: HashMap<u32, Path>,
}

impl Naive {
    fn says(&self, address: u32) -> Option<&Path> {
        let covering = self.routes.iter().filter(|(prefix, _)| prefix.contains(address));
        let path = covering.max_by_key(|(prefix, _)| prefix.length())?.1;
        match path {
            Path::Shared(number) => self.shared.get(number),
            path => Some(path),
        }
    }
}

fn adjacencies(domain: &Arc<Domain>) -> Adjacencies {
    Adjacencies::new(domain, 100, 1)
}

/// Returns the next hop of a look-up result. Returns `None` if the packet is not forwarded.
fn leads(adjacencies: &Adjacencies, verdict: Verdict) -> Option<NextHop> {
    let Verdict::Forward(number) = verdict else { return None };
    let (interface, gateway) = adjacencies.leads(number).expect("it is in use");
    Some(NextHop { interface, gateway, weight: 1 })
}

/// Returns whether a look-up result is possible for a route with this path. `None` means that there is no route.
fn agrees(path: Option<&Path>, verdict: Verdict, adjacencies: &Adjacencies) -> bool {
    match (path, verdict) {
        (None | Some(Path::Shared(_)), Verdict::NoRoute)
        | (Some(Path::Local), Verdict::Local)
        | (Some(Path::Blackhole), Verdict::Blackhole)
        | (Some(Path::Unreachable), Verdict::Unreachable)
        | (Some(Path::Prohibit), Verdict::Prohibit)
        | (Some(Path::Throw), Verdict::Throw) => true,
        (Some(Path::NextHops(next_hops)), Verdict::NoRoute) => next_hops.is_empty(),
        (Some(Path::NextHops(next_hops)), verdict) => {
            leads(adjacencies, verdict).is_some_and(|hop| next_hops.contains(&hop))
        }
        _ => false,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set(u32, u8, Path),
    Remove(u32, u8),
    Define(u32, Option<Path>),
}

fn path() -> impl Strategy<Value = Path> {
    let next_hops = proptest::collection::vec((1_u32..4, 1_u8..4), 0..4).prop_map(|list| {
        Path::NextHops(list.into_iter().map(|(interface, last)| hop(interface, last)).collect())
    });
    prop_oneof![
        4 => next_hops,
        1 => Just(Path::Local),
        1 => Just(Path::Blackhole),
        1 => Just(Path::Unreachable),
        1 => Just(Path::Prohibit),
        1 => Just(Path::Throw),
        3 => (0_u32..4).prop_map(Path::Shared),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    // Few addresses, so that prefixes overlap.
    let address = (0_u32..4, 0_u32..4).prop_map(|(high, low)| high << 30 | low << 8);
    let length = prop_oneof![Just(0_u8), Just(2), Just(17), Just(18), Just(19), Just(24), Just(32)];
    prop_oneof![
        6 => (address.clone(), length.clone(), path()).prop_map(|(a, l, path)| Step::Set(a, l, path)),
        3 => (address, length).prop_map(|(a, l)| Step::Remove(a, l)),
        2 => (0_u32..4, proptest::option::of(path())).prop_map(|(number, path)| Step::Define(number, path)),
    ]
}

proptest! {
    #[test]
    fn it_says_what_the_list_says(steps in proptest::collection::vec(step(), 1..60)) {
        let domain = Domain::new();
        // Few enough paths that numbers are reused.
        let (mut fib, mut naive) = (Fib::new(&domain, 1 << 19, 12), Naive::default());
        let mut adjacencies = adjacencies(&domain);
        let (view, mut reader) = (fib.view(), domain.register().unwrap());
        for step in steps {
            reader.quiescent();
            match step {
                Step::Set(address, length, path) => {
                    let prefix = Prefix::new(address, length);
                    match fib.set4(prefix, &path, &mut adjacencies) {
                        Ok(()) => drop(naive.routes.insert(prefix, path)),
                        Err(FibError::Paths { limit, .. }) => prop_assert!(fib.paths() <= 12 && limit == 12),
                        Err(error) => panic!("{error}"),
                    }
                }
                Step::Remove(address, length) => {
                    let prefix = Prefix::new(address, length);
                    fib.remove4(prefix, &mut adjacencies).unwrap();
                    naive.routes.remove(&prefix);
                }
                Step::Define(number, path) => {
                    // A shared path cannot be defined as a shared path.
                    let path = path.filter(|path| !matches!(path, Path::Shared(_)));
                    fib.define(number, path.as_ref(), &mut adjacencies);
                    match path {
                        Some(path) => drop(naive.shared.insert(number, path)),
                        None => drop(naive.shared.remove(&number)),
                    }
                }
            }
            prop_assert_eq!(fib.len(), naive.routes.len());
            let addresses: Vec<u32> =
                (0..64_u32).map(|n| (n >> 4) << 30 | (n >> 2 & 3) << 8 | (n & 3) << 5).collect();
            let mut verdicts = [Verdict::NoRoute; 64];
            view.route4(&reader, &addresses, hash, |place, verdict| verdicts[place] = verdict);
            for (address, verdict) in addresses.iter().zip(verdicts) {
                let path = naive.says(*address);
                prop_assert!(agrees(path, verdict, &adjacencies), "{}: {path:?} and {verdict:?}", Ipv4Addr::from_bits(*address));
                let why = fib.why(IpAddr::V4(Ipv4Addr::from_bits(*address)));
                prop_assert_eq!(why.is_some(), naive.routes.keys().any(|prefix| prefix.contains(*address)));
            }
        }
    }
}

/// Returns the hash of flow number `nth`.
fn hash(nth: usize) -> u32 {
    u32::try_from(nth).unwrap().wrapping_mul(0x9e37_79b9)
}

/// Returns the next hops that many flows to one address use, by flow number.
fn flows(fib: &Fib, adjacencies: &Adjacencies, domain: &Arc<Domain>) -> Vec<Option<NextHop>> {
    let mut verdicts = vec![Verdict::NoRoute; 10_000];
    let (view, reader) = (fib.view(), domain.register().unwrap());
    view.route6(&reader, &[1 << 100; 10_000], hash, |place, verdict| verdicts[place] = verdict);
    verdicts.into_iter().map(|verdict| leads(adjacencies, verdict)).collect()
}

/// If a next hop is removed, only the flows of this next hop move. This holds whether the route or its shared path is
/// replaced.
#[test]
fn flows_stay_where_they_are() {
    let domain = Domain::new();
    let mut fib = Fib::new(&domain, 1 << 19, 100);
    let mut adjacencies = adjacencies(&domain);
    let all: Vec<NextHop> = (1..=8).map(|last| hop(u32::from(last), last)).collect();
    let fewer: Vec<NextHop> = all.iter().copied().filter(|hop| hop.interface != 3).collect();
    let prefix = Prefix::new(1_u128 << 100, 28);
    for shared in [false, true] {
        let mut say = |fib: &mut Fib, next_hops: &[NextHop]| {
            let path = Path::NextHops(next_hops.to_vec());
            if shared {
                fib.define(1, Some(&path), &mut adjacencies);
                fib.set6(prefix, &Path::Shared(1), &mut adjacencies).unwrap();
            } else {
                fib.set6(prefix, &path, &mut adjacencies).unwrap();
            }
            flows(fib, &adjacencies, &domain)
        };
        let before = say(&mut fib, &all);
        let after = say(&mut fib, &fewer);
        let moved = before.iter().zip(&after).filter(|(one, other)| one != other).count();
        let lost = before.iter().filter(|verdict| **verdict == Some(all[2])).count();
        assert!((1_100..1_400).contains(&lost), "an eighth of them: {lost}");
        assert!(moved <= lost + 100, "{moved} of {lost} and one in a hundred");
        assert!(!after.contains(&Some(all[2])));
        fib.remove6(prefix, &mut adjacencies).unwrap();
        assert_eq!(flows(&fib, &adjacencies, &domain)[0], None);
    }
    fib.define(1, None, &mut adjacencies);
    assert_eq!((fib.len(), fib.paths(), adjacencies.len()), (0, 0, 0));
}

/// The numbers of flows of the next hops are proportional to the weights.
#[test]
fn weights_are_kept() {
    let domain = Domain::new();
    let mut fib = Fib::new(&domain, 1 << 19, 4);
    let mut adjacencies = adjacencies(&domain);
    let next_hops = vec![NextHop { weight: 3, ..hop(1, 1) }, hop(2, 2)];
    fib.set6(Prefix::new(0, 0), &Path::NextHops(next_hops), &mut adjacencies).unwrap();
    let flows = flows(&fib, &adjacencies, &domain);
    let first = flows.iter().filter(|taken| **taken == Some(hop(1, 1))).count();
    assert!((7_400..=7_600).contains(&first), "three quarters of 10,000: {first}");
}

/// A route that does not fit into the table is refused with the error of the exceeded limit. Other routes are not
/// affected.
#[test]
fn a_full_table_forwards_what_it_has() {
    let domain = Domain::new();
    let mut fib = Fib::new(&domain, 1 << 18, 3);
    let mut adjacencies = adjacencies(&domain);
    // Alternating next hops, because equal routes of adjacent prefixes use no space.
    let of = |number: u32| hop(1 + number % 2, 1);
    let mut taken = 0_u32;
    let error = loop {
        match fib.set4(Prefix::new(taken << 8, 24), &Path::NextHops(vec![of(taken)]), &mut adjacencies) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, FibError::Full { .. }), "{error}");
    assert!(error.to_string().contains(&format!("{}/24", Ipv4Addr::from_bits(taken << 8))), "{error}");
    assert_eq!(fib.len(), usize::try_from(taken).unwrap());
    // Removed routes free space.
    for gone in taken - 1000..taken {
        fib.remove4(Prefix::new(gone << 8, 24), &mut adjacencies).unwrap();
    }
    fib.set4(Prefix::new(0, 24), &Path::Blackhole, &mut adjacencies).unwrap();
    let error = fib.set4(Prefix::new(0, 24), &Path::Local, &mut adjacencies).unwrap_err();
    assert!(matches!(error, FibError::Paths { limit: 3, .. }), "{error}");
    let (view, reader) = (fib.view(), domain.register().unwrap());
    let mut verdicts = [Verdict::NoRoute; 3];
    let addresses = [1, 0x100, ((taken - 1000) << 8) - 1];
    view.route4(&reader, &addresses, |_| 0, |place, verdict| verdicts[place] = verdict);
    assert_eq!(verdicts[0], Verdict::Blackhole);
    assert_eq!(
        verdicts.map(|verdict| leads(&adjacencies, verdict))[1..],
        [Some(of(1)), Some(of(taken - 1001))]
    );
}

#[test]
fn there_are_as_many_routes_as_there_may_be() {
    let domain = Domain::new();
    let mut fib = Fib::new(&domain, 1 << 19, 10).with_limit(3);
    let mut all = Adjacencies::new(&domain, 4, 1);
    let v4 = |n: u32| Prefix::new(n << 24, 8);
    let v6 = |n: u128| Prefix::new(n << 120, 8);
    fib.set4(v4(1), &Path::Unreachable, &mut all).unwrap();
    fib.set4(v4(2), &Path::Unreachable, &mut all).unwrap();
    fib.set6(v6(1), &Path::Unreachable, &mut all).unwrap();
    for error in [
        fib.set4(v4(3), &Path::Blackhole, &mut all).unwrap_err(),
        fib.set6(v6(3), &Path::Blackhole, &mut all).unwrap_err(),
    ] {
        assert!(matches!(error, FibError::Limit { limit: 3, .. }), "{error}");
    }
    // Existing routes can be replaced, and removed ones free space.
    fib.set4(v4(2), &Path::Blackhole, &mut all).unwrap();
    fib.remove4(v4(1), &mut all).unwrap();
    fib.set6(v6(3), &Path::Blackhole, &mut all).unwrap();
    fib.set4(v4(1), &Path::Unreachable, &mut all).unwrap_err();
    // Local routes are always accepted and not counted.
    fib.set4(v4(9), &Path::Local, &mut all).unwrap();
    fib.set6(v6(9), &Path::Local, &mut all).unwrap();
    fib.set4(v4(9), &Path::Unreachable, &mut all).unwrap_err();
    fib.set4(v4(2), &Path::Local, &mut all).unwrap();
    fib.set4(v4(9), &Path::Unreachable, &mut all).unwrap();
    fib.set4(v4(2), &Path::Blackhole, &mut all).unwrap_err();
    fib.remove6(v6(9), &mut all).unwrap();
    fib.remove4(v4(2), &mut all).unwrap();
    fib.set4(v4(1), &Path::Unreachable, &mut all).unwrap_err();
    fib.remove4(v4(9), &mut all).unwrap();
    fib.set4(v4(1), &Path::Unreachable, &mut all).unwrap();
    assert_eq!(fib.len(), 3);
}
