#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::address_bits::mapped;
use crate::link_hash::LINK_SECRETS;

#[derive(Clone, Debug)]
enum Step {
    Take(u32, Option<u8>),
    GiveBack(usize),
    Resolve(u32, u8, Option<u8>),
    Bind(u32, Option<u16>),
    Quiescent,
    Retry,
}

fn step() -> impl Strategy<Value = Step> {
    let device = 1_u32..4;
    prop_oneof![
        4 => (device.clone(), proptest::option::of(0_u8..6)).prop_map(|(d, a)| Step::Take(d, a)),
        4 => any::<usize>().prop_map(Step::GiveBack),
        4 => (device.clone(), 0_u8..6, proptest::option::of(any::<u8>()))
            .prop_map(|(d, a, mac)| Step::Resolve(d, a, mac)),
        1 => (device, proptest::option::of(0_u16..9)).prop_map(|(d, i)| Step::Bind(d, i)),
        2 => Just(Step::Quiescent),
        1 => Just(Step::Retry),
    ]
}

/// Returns an address that ends in `last`: an IPv4 address for even values, and an IPv6 address for odd
/// ones.
fn address(last: u8) -> IpAddr {
    if last.is_multiple_of(2) {
        [10, 0, 0, last].into()
    } else {
        [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)].into()
    }
}

fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, last])
}

proptest! {
    #[test]
    fn readers_find_whom_the_writer_knows(steps in proptest::collection::vec(step(), 1..200)) {
        let domain = Domain::new();
        let mut reader = domain.register().unwrap();
        // The table is small, so that the numbers are used up and reused.
        let mut all = Adjacencies::new(&domain, 9, 2);
        let view = all.view();
        let mut taken: Vec<(u32, Key)> = Vec::new();
        let mut known = BTreeMap::new();
        let mut waiting = BTreeMap::new();
        let mut bound = BTreeMap::new();
        for step in steps {
            match step {
                Step::Take(device, last) => {
                    let hop = NextHop { interface: device, gateway: last.map(address), weight: 1 };
                    match all.take(&hop) {
                        0 => prop_assert!(all.refused() > 0),
                        number => {
                            taken.push((number, (device, hop.gateway)));
                            known.extend(waiting.remove_entry(&(device, hop.gateway)));
                        }
                    }
                }
                Step::GiveBack(nth) if !taken.is_empty() => {
                    let (number, _) = taken.swap_remove(nth % taken.len());
                    all.give_back(number);
                }
                Step::GiveBack(_) => {}
                Step::Resolve(device, last, hardware) => {
                    let (before, key) = (all.refused(), (device, Some(address(last))));
                    all.resolve(device, address(last), hardware.map(mac));
                    known.remove(&key);
                    waiting.remove(&key);
                    if let Some(hardware) = hardware {
                        let is_known = all.refused() == before;
                        let to = if is_known { &mut known } else { &mut waiting };
                        to.insert(key, mac(hardware));
                    }
                }
                Step::Bind(device, interface) => {
                    all.bind(device, interface);
                    bound.insert(device, interface);
                }
                Step::Quiescent => reader.quiescent(),
                Step::Retry => {
                    all.retry();
                    let has_come = |(device, to): &Key, _: &mut MacAddr| {
                        to.is_some_and(|to| view.find(*device, bits_of(to)) != 0)
                    };
                    known.extend(waiting.extract_if(.., has_come));
                }
            }
            // Readers find all known or referenced neighbours and no others.
            for (device, last) in (1..4).flat_map(|device| (0..6).map(move |last| (device, last))) {
                let key = (device, Some(address(last)));
                let led_to = taken.iter().find(|(_, to)| *to == key).map(|(number, _)| *number);
                let number = view.find(device, bits_of(address(last)));
                prop_assert_eq!(number != 0, led_to.is_some() || known.contains_key(&key));
                prop_assert!(led_to.is_none_or(|led_to| led_to == number));
                prop_assert_eq!(view.read(number).mac(), known.get(&key).copied());
                if number != 0 {
                    let interface = bound.get(&device).copied().flatten().unwrap_or(FOREIGN);
                    prop_assert_eq!(view.read(number).interface(), interface);
                    prop_assert_eq!(all.leads(number), Some(key));
                }
            }
            for (number, (device, address)) in &taken {
                let adjacency = view.read(*number);
                prop_assert_eq!((adjacency.is_on_link(), adjacency.device()), (address.is_none(), *device));
            }
            prop_assert_eq!((all.iter().count(), all.waiting()), (all.len(), waiting.len()));
        }
    }
}

#[test]
fn who_comes_later_begins_at_nothing() {
    let domain = Domain::new();
    let mut all = Adjacencies::new(&domain, 1, 2);
    let view = all.view();
    all.resolve(3, address(0), Some(mac(1)));
    let number = view.find(3, bits_of(address(0)));
    view.counts(0).add(number, 2, 120);
    view.counts(1).add(number, 1, 60);
    assert_eq!(all.iter().map(|it| (it.packets, it.bytes)).collect::<Vec<_>>(), [(3, 180)]);
    all.resolve(3, address(0), None);
    assert!(all.is_empty() && view.read(number).mac().is_none());
    all.resolve(3, address(1), Some(mac(2)));
    let seen: Vec<AdjacencyUse> = all.iter().collect();
    let [only] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!((only.address, only.packets, only.bytes), (Some(address(1)), 0, 0));
}

/// Checks that addresses whose hashes collide under one secret do not collide under another secret. Otherwise, a host
/// on the link could fill all bucket entries that the address of a victim may use.
#[test]
fn addresses_that_collide_under_one_secret_do_not_under_another() {
    let known: [u64; LINK_SECRETS] = std::array::from_fn(|nth| 0x9e37_79b9_7f4a_7c15 << nth);
    let domain = Domain::new();
    let table = |hash| Adjacencies::made(&Readers::of(&domain), 1000, 1, None, hash);
    let homes = |all: &Adjacencies, address: u128| {
        let homes = all.shared.homes(all.shared.hash(1, address));
        homes.map(std::ptr::from_ref::<Bucket>)
    };
    let net = 0x2001_0db8_u128 << 96;
    let mut attacked = table(LinkHash::with(known));
    let victim = homes(&attacked, net | 1);
    assert_ne!(victim[0], victim[1]);
    let same = |address: &u128| match homes(&attacked, *address) {
        [one, other] => one != other && victim.contains(&one) && victim.contains(&other),
    };
    let chosen: Vec<u128> = (2..1 << 32).map(|low| net | low).filter(same).take(2 * PLACES).collect();
    assert_eq!(chosen.len(), 2 * PLACES);
    let address = |bits: u128| IpAddr::V6(bits.into());
    let mut safe = table(LinkHash::new());
    for all in [&mut attacked, &mut safe] {
        chosen.iter().for_each(|bits| all.resolve(1, address(*bits), Some(mac(2))));
        all.resolve(1, address(net | 1), Some(mac(1)));
    }
    assert_eq!((attacked.refused(), attacked.view().find(1, net | 1)), (1, 0), "it is kept out");
    assert_eq!(safe.refused(), 0);
    assert!(chosen.iter().chain([&(net | 1)]).all(|bits| safe.view().find(1, *bits) != 0));
}

/// Checks that every neighbour is found, for any secret of the hash, even if the table is full and the addresses are
/// consecutive. Half of the bucket entries are always free.
#[test]
fn a_full_table_finds_everybody() {
    for round in 0..20 {
        let domain = Domain::new();
        let mut all = Adjacencies::new(&domain, 20_000, 1);
        for nth in 0..20_001_u32 {
            all.resolve(1, IpAddr::from(nth.to_be_bytes()), Some(mac(1)));
        }
        assert_eq!((all.len(), all.refused()), (20_000, 1), "round {round}");
        let view = all.view();
        assert!((0..20_000).all(|nth| view.find(1, mapped(nth)) != 0), "round {round}");
        assert_eq!(view.find(1, mapped(20_000)), 0, "round {round}");
    }
}
