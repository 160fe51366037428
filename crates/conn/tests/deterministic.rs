//! Tests of the deterministic mapping of inside addresses to blocks of ports. The oracle assigns all ports of small
//! configurations one by one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use conn::nat::deterministic::{Block, Config, InvalidConfig, Order, PortBlocks, Size, addresses};
use conn::nat::ports::{Flow, NotAllocated, Ports, Range, Selection};
use conn::tuple::End;
use proptest::prelude::*;

const INSIDE: u32 = 0x6440_0000;
const OUTSIDE: u32 = 0xcb00_7100;

/// Returns the configuration of the first inside and outside addresses.
fn config(subscribers: u32, addresses: u32) -> Config {
    Config::new([INSIDE, INSIDE + subscribers - 1], [OUTSIDE, OUTSIDE + addresses - 1])
}

fn nonzero(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

fn bounds(block: &Block) -> (u32, u16, u16) {
    (block.address - OUTSIDE, block.first_port, block.last_port)
}

/// Returns the number of blocks of an outside address and of ports of a block, by trial. Returns `None` if the
/// configuration has no mapping.
fn naive_sizes(config: &Config) -> Option<(u32, u32)> {
    let Range { first_address, last_address, first_port, last_port } = config.outside;
    let ports = u32::from(last_port - first_port) + 1;
    let (subscribers, addresses) =
        (config.inside[1] - config.inside[0] + 1, last_address - first_address + 1);
    let dynamic = u32::from(config.dynamic_factor);
    let fits = |blocks: u32, size: u32| (blocks + dynamic) * size <= ports;
    let (blocks, size) = match config.size {
        Size::Largest => {
            let blocks = (1..).find(|blocks| blocks * addresses >= subscribers)?;
            (blocks, (1..=ports).filter(|size| fits(blocks, *size)).max()?)
        }
        Size::Ratio(blocks) => {
            let blocks = blocks.get().into();
            (blocks, (1..=ports).filter(|size| fits(blocks, *size)).max()?)
        }
        Size::Ports(size) => {
            let size = size.get().into();
            ((1..=ports).filter(|blocks| fits(*blocks, size)).max()?, size)
        }
    };
    (blocks * addresses >= subscribers).then_some((blocks, size))
}

/// Returns the inside address of each port of each outside address.
fn naive_owners(config: &Config, blocks: u32, size: u32) -> BTreeMap<(u32, u16), u32> {
    let mut owners = BTreeMap::new();
    let mut subscriber = config.inside[0];
    for address in config.outside.first_address..=config.outside.last_address {
        for port in config.outside.first_port..=config.outside.last_port {
            let offset = u32::from(port - config.outside.first_port);
            let number = match config.order {
                _ if offset >= blocks * size => continue,
                Order::Sequential => offset / size,
                Order::Staggered => offset % blocks,
            };
            if subscriber + number <= config.inside[1] {
                owners.insert((address, port), subscriber + number);
            }
        }
        subscriber += blocks;
    }
    owners
}

/// Returns the ports near the ports of small configurations.
fn probes() -> impl Iterator<Item = u16> {
    (0..200).chain(65_400..=65_535)
}

fn any_order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Sequential), Just(Order::Staggered)]
}

fn small_config() -> impl Strategy<Value = Config> {
    let size = prop_oneof![
        Just(Size::Largest),
        (1_u16..20).prop_map(|ratio| Size::Ratio(nonzero(ratio))),
        (1_u16..20).prop_map(|ports| Size::Ports(nonzero(ports))),
    ];
    let ports = prop_oneof![1_u16..100, Just(65_486)];
    (1_u32..60, 1_u32..10, ports, 0_u16..50, size, 0_u16..4, any_order()).prop_map(
        |(subscribers, addresses, first_port, more, size, dynamic_factor, order)| {
            let outside = config(1, addresses).outside;
            let outside = Range { first_port, last_port: first_port.saturating_add(more), ..outside };
            Config { outside, size, dynamic_factor, order, ..config(subscribers, addresses) }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn small_configurations_equal_an_enumeration(config in small_config()) {
        let (result, sizes) = (PortBlocks::new(&config), naive_sizes(&config));
        prop_assert_eq!(result.is_ok(), sizes.is_some(), "{:?}", result);
        if let Err(InvalidConfig::Subscribers { subscribers, capacity, needed, blocks, .. }) = result {
            prop_assert!(subscribers > capacity && needed * u64::from(blocks) >= subscribers);
            prop_assert!((needed - 1) * u64::from(blocks) < subscribers);
        }
        let (Ok(mapping), Some((blocks, size))) = (result, sizes) else { return Ok(()) };
        prop_assert_eq!((u32::from(mapping.ratio().get()), u32::from(mapping.ports().get())), (blocks, size));
        let owners = naive_owners(&config, blocks, size);
        for address in config.outside.first_address - 1..=config.outside.last_address + 1 {
            for port in probes() {
                prop_assert_eq!(mapping.inside_of(address, port), owners.get(&(address, port)).copied());
            }
        }
        let mut count = 0;
        for inside in config.inside[0]..=config.inside[1] {
            let block = mapping.outside_of(inside).unwrap();
            prop_assert_eq!(block.ports().count(), usize::from(mapping.ports().get()));
            prop_assert_eq!(block.ports().last(), Some(block.last_port));
            for port in block.ports() {
                prop_assert_eq!(owners.get(&(block.address, port)), Some(&inside));
                prop_assert!(block.contains(port));
                count += 1;
            }
            let all = probes().filter(|port| block.contains(*port)).count();
            prop_assert_eq!(all, usize::from(mapping.ports().get()));
        }
        // No two inside addresses share a port.
        prop_assert_eq!(count, owners.len());
        for inside in [config.inside[0] - 1, config.inside[1] + 1, 0, u32::MAX] {
            prop_assert_eq!(mapping.outside_of(inside), None);
        }
        let pool = mapping.dynamic_pool();
        prop_assert_eq!(pool.is_some(), config.dynamic_factor > 0);
        if let Some(pool) = pool {
            prop_assert_eq!(Range { first_port: config.outside.first_port, ..pool }, config.outside);
            let ports = u32::from(pool.last_port - pool.first_port) + 1;
            prop_assert!(ports >= u32::from(config.dynamic_factor) * size);
            prop_assert!(owners.keys().all(|(_, port)| *port < pool.first_port));
        }
    }

    /// Both ranges may begin and end anywhere.
    #[test]
    fn any_configuration_has_disjoint_blocks_and_an_inverse(
        inside in any::<[u32; 2]>(),
        outside in any::<[u32; 2]>(),
        shifts in [0_u32..32, 0_u32..32],
        ports in any::<[u16; 2]>(),
        numbers in any::<[u16; 2]>(),
        order in any_order(),
        samples in any::<[u32; 6]>(),
        probe in any::<(u32, u16)>(),
    ) {
        let end = |[first, length]: [u32; 2], shift| [first, first.saturating_add(length >> shift)];
        let (inside, outside) = (end(inside, shifts[0]), end(outside, shifts[1]));
        let [first_port, last_port] = [ports[0].min(ports[1]), ports[0].max(ports[1])];
        let size = match numbers[0] {
            0 => Size::Largest,
            number if number % 3 == 0 => Size::Ratio(nonzero(number % 100 + 1)),
            number if number % 3 == 1 => Size::Ports(nonzero(number % 1000 + 1)),
            _ => Size::Largest,
        };
        let config = Config::new(inside, outside);
        let outside = Range { first_port, last_port, ..config.outside };
        let config = Config { outside, size, order, dynamic_factor: numbers[1] % 20, ..config };
        let Ok(mapping) = PortBlocks::new(&config) else { return Ok(()) };
        let subscribers = u64::from(inside[1] - inside[0]) + 1;
        let index = |sample: u32| u32::try_from(u64::from(sample) % subscribers).unwrap();
        let near = samples.map(|sample| inside[0] + index(sample));
        let all = [near[0], near[1], near[2], inside[0], inside[1], near[0].saturating_add(1).min(inside[1])];
        for address in all {
            let block = mapping.outside_of(address).unwrap();
            prop_assert!((outside.first_address..=outside.last_address).contains(&block.address));
            prop_assert!(first_port <= block.first_port && block.last_port <= last_port);
            let mut some_ports = block.ports().step_by(91).chain([block.last_port]);
            prop_assert!(some_ports.all(|port| mapping.inside_of(block.address, port) == Some(address)));
            prop_assert_eq!(block.ports().count(), usize::from(mapping.ports().get()));
            for other in all.map(|other| mapping.outside_of(other).unwrap()) {
                let is_disjoint = || block.ports().all(|port| !other.contains(port));
                prop_assert!(other == block || other.address != block.address || is_disjoint());
            }
        }
        let pool = mapping.dynamic_pool().map(|pool| (pool.first_address, pool.first_port));
        for (address, port) in [Some(probe), pool].into_iter().flatten() {
            if let Some(inside) = mapping.inside_of(address, port) {
                let block = mapping.outside_of(inside).unwrap();
                prop_assert!(block.address == address && block.contains(port));
            }
        }
        prop_assert_eq!(pool.and_then(|(address, port)| mapping.inside_of(address, port)), None);
    }
}

#[test]
fn the_inside_addresses_fill_one_outside_address_after_the_other() {
    let mapping = PortBlocks::new(&config(1000, 10)).unwrap();
    assert_eq!((mapping.ratio().get(), mapping.ports().get()), (100, 645));
    let block = |index| bounds(&mapping.outside_of(INSIDE + index).unwrap());
    assert_eq!(block(0), (0, 1024, 1668));
    assert_eq!(block(1), (0, 1669, 2313));
    assert_eq!(block(99), (0, 64_879, 65_523));
    assert_eq!(block(100), (1, 1024, 1668));
    assert_eq!(block(999), (9, 64_879, 65_523));
    // The reserved ports, and the rest of the division.
    for port in [0, 1023, 65_524, u16::MAX] {
        assert_eq!(mapping.inside_of(OUTSIDE, port), None);
    }
    assert_eq!((mapping.inside_of(OUTSIDE + 10, 2000), mapping.dynamic_pool()), (None, None));
}

#[test]
fn staggered_blocks_have_every_cth_port() {
    let config = Config {
        size: Size::Ratio(nonzero(16)),
        dynamic_factor: 2,
        order: Order::Staggered,
        ..config(16, 1)
    };
    let mapping = PortBlocks::new(&config).unwrap();
    let block = mapping.outside_of(INSIDE + 3).unwrap();
    assert_eq!(block.ports().take(3).collect::<Vec<_>>(), [1027, 1043, 1059]);
    assert_eq!((block.ports().count(), block.last_port, block.range()), (3584, 1027 + 3583 * 16, None));
    assert_eq!(mapping.inside_of(OUTSIDE, 1043), Some(INSIDE + 3));
    assert_eq!(mapping.dynamic_pool().map(|pool| pool.first_port), Some(1024 + 16 * 3584));
}

/// The ports of a subscriber are the ports of the block, and no others.
#[test]
fn connections_of_a_subscriber_have_ports_of_the_block() {
    let mapping = PortBlocks::new(&Config { size: Size::Ports(nonzero(5)), ..config(100, 1) }).unwrap();
    let (mut ports, subscriber) = (Ports::<u32>::new(100), INSIDE + 42);
    let range = mapping.outside_of(subscriber).unwrap().range().unwrap();
    let (source, remote) = (End { address: subscriber, port: 7 }, End { address: 9, port: 53 });
    let flow = Flow { zone: 0, protocol: 17, query: None, source, remote };
    for _ in 0..5 {
        let end = ports.allocate(&range, &flow, Selection::default(), |_| true).unwrap();
        assert_eq!(mapping.inside_of(end.address, end.port), Some(subscriber));
    }
    let refused = ports.allocate(&range, &flow, Selection::default(), |_| true);
    assert_eq!(refused, Err(NotAllocated::Exhausted));
}

#[test]
fn an_error_names_the_numbers_and_the_next_step() {
    let error = |config: &Config| PortBlocks::new(config).unwrap_err().to_string();
    let ports = |first_port, last_port| Range { first_port, last_port, ..config(1, 1).outside };
    let small = Config { size: Size::Ports(nonzero(2000)), ..config(1000, 10) };
    assert_eq!(
        error(&small),
        "1000 inside addresses: 10 outside addresses with 32 blocks of 2000 ports have only 320 blocks; configure 32 \
         outside addresses or smaller blocks"
    );
    assert_eq!(
        error(&Config { outside: ports(1, 10), ..config(11, 1) }),
        "11 inside addresses: 1 outside addresses with 10 blocks of 1 ports have only 10 blocks; configure 2 outside \
         addresses or smaller blocks"
    );
    assert_eq!(
        error(&Config {
            outside: ports(1, 10),
            size: Size::Ratio(nonzero(8)),
            dynamic_factor: 3,
            ..config(1, 1)
        }),
        "10 ports of an outside address: fewer than 8 blocks and 3 blocks for the dynamic pool; reduce the ratio or \
         the dynamic factor"
    );
    assert_eq!(
        error(&Config {
            outside: ports(1, 10),
            size: Size::Ports(nonzero(4)),
            dynamic_factor: 2,
            ..config(1, 1)
        }),
        "10 ports of an outside address: no space for a block of 4 ports besides 2 blocks for the dynamic pool; \
         reduce the ports of a block or the dynamic factor"
    );
    assert_eq!(
        error(&Config { outside: ports(0, 10), ..config(1, 1) }),
        "ports 0 to 10: not a range of ports from 1 on; choose a range such as 1024 to 65535"
    );
    assert!(matches!(
        PortBlocks::new(&Config { outside: ports(9, 8), ..config(1, 1) }),
        Err(InvalidConfig::Ports { .. })
    ));
    assert_eq!(
        error(&Config::new([2, 1], [5, 6])),
        "inside addresses 0.0.0.2 to 0.0.0.1: the last one is less than the first one; exchange them"
    );
    assert!(matches!(PortBlocks::new(&Config::new([1, 2], [6, 5])), Err(InvalidConfig::Outside { .. })));
    assert_eq!(
        error(&Config::new([1, 5], [5, 6])),
        "outside addresses 0.0.0.5 to 0.0.0.6: some are inside addresses, too; choose other outside addresses"
    );
}

#[test]
fn a_prefix_has_a_first_and_a_last_address() {
    let range = |text: &str| addresses(text.parse().unwrap());
    assert_eq!(range("100.64.0.0/10"), Some([0x6440_0000, 0x647f_ffff]));
    assert_eq!(range("192.0.2.1"), Some([0xc000_0201; 2]));
    assert_eq!(range("0.0.0.0/0"), Some([0, u32::MAX]));
    assert_eq!(range("2001:db8::/32"), None);
}
