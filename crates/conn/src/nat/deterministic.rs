//! Deterministic mapping of inside addresses to blocks of ports of outside addresses (RFC 7422).
//!
//! Each inside address is a subscriber, and has one block of ports of one outside address for as long as the
//! configuration does not change. The configuration therefore answers the question which subscriber has used a port,
//! and the translator needs no log of connections or blocks. [`Ports`](crate::nat::ports::Ports) chooses the ports of
//! connections within a block (see [`Block::range`]).
//!
//! ```text
//!  ports of each outside address
//!
//!  0         first_port                                                       last_port
//!  +---------+-----------+-----------+-- ... --+-----------+------------------+
//!  |reserved |  block 0  |  block 1  |         | block C-1 |   dynamic pool   |
//!  +---------+-----------+-----------+-- ... --+-----------+------------------+
//! ```
//!
//! The letters of RFC 7422 section 2 are: `C` blocks of an outside address (compression ratio), `D` further blocks for
//! the dynamic pool (dynamic address pool factor). A block has `ports / (C + D)` ports, and the rest of the division
//! belongs to the dynamic pool. The translator must log the ports of the dynamic pool that a subscriber receives.
//!
//! The inside addresses fill the blocks of the first outside address, then the blocks of the second outside address,
//! and so on. All blocks have an equal number of ports.
//!
//! All functions are total, and take constant time.

use std::net::{IpAddr, Ipv4Addr};
use std::num::{NonZeroU16, NonZeroU32};

use packet::net::Prefix;

use crate::nat::ports::Range;

/// Lowest port that is not reserved by default: the system ports end below (RFC 6335 section 6).
const FIRST_PORT: u16 = 1024;

/// Number of ports of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Size {
    /// Each block has as many ports as possible, so that all inside addresses have a block.
    #[default]
    Largest,
    /// Each outside address has this number of blocks (compression ratio `C`).
    Ratio(NonZeroU16),
    /// Each block has this number of ports.
    Ports(NonZeroU16),
}

/// Assignment of the ports of an outside address to blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Order {
    /// The ports of a block are consecutive.
    #[default]
    Sequential,
    /// Consecutive ports belong to consecutive blocks, and a block has every `C`-th port. Adjacent ports therefore
    /// belong to different subscribers.
    Staggered,
}

/// Configuration of a deterministic mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Config {
    /// First and last inside address.
    pub inside: [u32; 2],
    /// Outside addresses, and their ports that are not reserved.
    pub outside: Range<u32>,
    /// Number of ports of a block.
    pub size: Size,
    /// Number of blocks of each outside address that the dynamic pool receives (`D`). 0: there is no dynamic pool.
    pub dynamic_factor: u16,
    /// Assignment of ports to blocks.
    pub order: Order,
}

impl Config {
    /// Returns the configuration with the largest consecutive blocks of the ports from 1024 on, without a dynamic pool.
    /// Both arrays have the first and the last address.
    #[must_use]
    pub fn new(inside: [u32; 2], outside: [u32; 2]) -> Config {
        let [first_address, last_address] = outside;
        let outside = Range { first_address, last_address, first_port: FIRST_PORT, last_port: u16::MAX };
        Config { inside, outside, size: Size::Largest, dynamic_factor: 0, order: Order::Sequential }
    }
}

/// Returns the first and the last address of an IPv4 prefix. Returns `None` for an IPv6 prefix.
#[must_use]
pub fn addresses(prefix: Prefix) -> Option<[u32; 2]> {
    let IpAddr::V4(first) = prefix.address() else { return None };
    let hosts = u32::MAX.checked_shr(prefix.length().into()).unwrap_or(0);
    Some([first.to_bits(), first.to_bits() | hosts])
}

/// Error for a configuration without a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidConfig {
    /// The last inside address is less than the first one.
    #[error("inside addresses {first} to {last}: the last one is less than the first one; exchange them")]
    Inside {
        /// First inside address.
        first: Ipv4Addr,
        /// Last inside address.
        last: Ipv4Addr,
    },
    /// The last outside address is less than the first one.
    #[error("outside addresses {first} to {last}: the last one is less than the first one; exchange them")]
    Outside {
        /// First outside address.
        first: Ipv4Addr,
        /// Last outside address.
        last: Ipv4Addr,
    },
    /// An address is an inside and an outside address.
    #[error(
        "outside addresses {first} to {last}: some are inside addresses, too; choose other outside addresses"
    )]
    Overlap {
        /// First outside address.
        first: Ipv4Addr,
        /// Last outside address.
        last: Ipv4Addr,
    },
    /// The range of ports is empty or contains port 0.
    #[error("ports {first} to {last}: not a range of ports from 1 on; choose a range such as 1024 to 65535")]
    Ports {
        /// First port.
        first: u16,
        /// Last port.
        last: u16,
    },
    /// An outside address has fewer ports than blocks.
    #[error(
        "{ports} ports of an outside address: fewer than {blocks} blocks and {dynamic} blocks for the dynamic pool; \
         reduce the ratio or the dynamic factor"
    )]
    Ratio {
        /// Number of ports of an outside address.
        ports: u16,
        /// Number of blocks of an outside address.
        blocks: u16,
        /// Number of blocks for the dynamic pool.
        dynamic: u16,
    },
    /// An outside address has no space for one block.
    #[error(
        "{ports} ports of an outside address: no space for a block of {block} ports besides {dynamic} blocks for the \
         dynamic pool; reduce the ports of a block or the dynamic factor"
    )]
    Block {
        /// Number of ports of an outside address.
        ports: u16,
        /// Number of ports of a block.
        block: u16,
        /// Number of blocks for the dynamic pool.
        dynamic: u16,
    },
    /// There are more inside addresses than blocks.
    #[error(
        "{subscribers} inside addresses: {addresses} outside addresses with {blocks} blocks of {ports} ports have only \
         {capacity} blocks; configure {needed} outside addresses or smaller blocks"
    )]
    Subscribers {
        /// Number of inside addresses.
        subscribers: u64,
        /// Number of outside addresses.
        addresses: u64,
        /// Number of blocks of an outside address.
        blocks: u16,
        /// Number of ports of a block.
        ports: u16,
        /// Number of blocks of all outside addresses.
        capacity: u64,
        /// Number of outside addresses that suffices with such blocks.
        needed: u64,
    },
}

/// Ports of a subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Block {
    /// Outside address.
    pub address: u32,
    /// First port.
    pub first_port: u16,
    /// Last port.
    pub last_port: u16,
    /// Distance of adjacent ports of the block. 1 for a block of consecutive ports.
    pub step: NonZeroU16,
}

impl Block {
    /// Returns whether a port of the outside address belongs to the block.
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        let offset = port.checked_sub(self.first_port).filter(|_| port <= self.last_port);
        offset.is_some_and(|offset| offset % self.step == 0)
    }

    /// Returns the ports of the block in ascending order.
    pub fn ports(&self) -> impl Iterator<Item = u16> + use<> {
        (self.first_port..=self.last_port).step_by(self.step.get().into())
    }

    /// Returns the block as a range for [`Ports::allocate`](crate::nat::ports::Ports::allocate). Returns `None` if the
    /// ports of the block are not consecutive.
    #[must_use]
    pub fn range(&self) -> Option<Range<u32>> {
        let Block { address, first_port, last_port, step } = *self;
        let range = Range { first_address: address, last_address: address, first_port, last_port };
        (step.get() == 1 || first_port == last_port).then_some(range)
    }
}

/// Deterministic mapping of inside addresses to blocks of ports.
///
/// ```
/// use std::net::Ipv4Addr;
///
/// use conn::nat::deterministic::{Config, PortBlocks, addresses};
///
/// let inside = addresses("100.64.0.0/22".parse()?).expect("the prefix is an IPv4 prefix");
/// let outside = addresses("203.0.113.0/26".parse()?).expect("the prefix is an IPv4 prefix");
/// // Each of the 64 outside addresses has 16 of the 1024 subscribers, and ports for 2 more in its dynamic pool.
/// let blocks = PortBlocks::new(&Config { dynamic_factor: 2, ..Config::new(inside, outside) })?;
/// let subscriber = u32::from(Ipv4Addr::new(100, 64, 0, 17));
/// let block = blocks.outside_of(subscriber).expect("the subscriber is an inside address");
/// assert_eq!(Ipv4Addr::from(block.address), Ipv4Addr::new(203, 0, 113, 1));
/// assert_eq!((block.first_port, block.last_port), (4608, 8191));
/// // The reverse mapping replaces the log.
/// assert_eq!(blocks.inside_of(block.address, 5000), Some(subscriber));
/// // The ports of the dynamic pool belong to no subscriber.
/// assert_eq!(blocks.dynamic_pool().map(|pool| (pool.first_port, pool.last_port)), Some((58368, 65535)));
/// assert_eq!(blocks.inside_of(block.address, 60000), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortBlocks {
    inside: [u32; 2],
    outside: Range<u32>,
    /// Number of blocks of an outside address.
    blocks: NonZeroU16,
    /// Number of ports of a block. The product of both numbers is at most the number of ports of an outside address.
    ports: NonZeroU16,
    has_dynamic_pool: bool,
    order: Order,
}

impl PortBlocks {
    /// Returns the mapping of a configuration.
    ///
    /// # Errors
    /// Returns the reason for which the configuration has no mapping, for example too few outside addresses.
    pub fn new(config: &Config) -> Result<PortBlocks, InvalidConfig> {
        let Config { inside, outside, size, dynamic_factor: dynamic, order } = *config;
        let (subscribers, addresses, available) = check_ranges(inside, &outside)?;
        let ratio_error = |blocks| InvalidConfig::Ratio { ports: available, blocks, dynamic };
        let (blocks, ports) = match size {
            Size::Largest => {
                // The check of the number of inside addresses fails if the limit is the number of ports.
                let most = available.saturating_sub(dynamic);
                let blocks = u16::try_from(subscribers.div_ceil(addresses)).unwrap_or(u16::MAX).min(most);
                let blocks = NonZeroU16::new(blocks).ok_or(ratio_error(1))?;
                (blocks, block_of(available, blocks, dynamic).ok_or(ratio_error(blocks.get()))?)
            }
            Size::Ratio(blocks) => {
                (blocks, block_of(available, blocks, dynamic).ok_or(ratio_error(blocks.get()))?)
            }
            Size::Ports(ports) => {
                let blocks = NonZeroU16::new((available / ports).saturating_sub(dynamic));
                let error = InvalidConfig::Block { ports: available, block: ports.get(), dynamic };
                (blocks.ok_or(error)?, ports)
            }
        };
        let capacity = addresses * u64::from(blocks.get());
        if subscribers > capacity {
            let needed = subscribers.div_ceil(blocks.get().into());
            let (blocks, ports) = (blocks.get(), ports.get());
            return Err(InvalidConfig::Subscribers {
                subscribers,
                addresses,
                blocks,
                ports,
                capacity,
                needed,
            });
        }
        Ok(PortBlocks { inside, outside, blocks, ports, has_dynamic_pool: dynamic > 0, order })
    }

    /// Returns the block of an inside address. Returns `None` for other addresses.
    #[must_use]
    pub fn outside_of(&self, inside: u32) -> Option<Block> {
        let [first, last] = self.inside;
        let index = inside.checked_sub(first).filter(|_| inside <= last)?;
        let (blocks, ports) = (NonZeroU32::from(self.blocks), self.ports.get());
        let (address, number) = (index / blocks, u16::try_from(index % blocks).ok()?);
        let (start, step) = match self.order {
            Order::Sequential => (number.checked_mul(ports)?, NonZeroU16::MIN),
            Order::Staggered => (number, self.blocks),
        };
        let first_port = self.outside.first_port.checked_add(start)?;
        let last_port = first_port.checked_add(step.get().checked_mul(ports - 1)?)?;
        Some(Block { address: self.outside.first_address.checked_add(address)?, first_port, last_port, step })
    }

    /// Returns the inside address whose block contains a port of an outside address. Returns `None` for a port that is
    /// reserved, belongs to the dynamic pool or to an unused block, and for other addresses.
    #[must_use]
    pub fn inside_of(&self, outside: u32, port: u16) -> Option<u32> {
        let Range { first_address, last_address, first_port, .. } = self.outside;
        let address = outside.checked_sub(first_address).filter(|_| outside <= last_address)?;
        let offset = port.checked_sub(first_port).filter(|offset| *offset < self.used())?;
        let number = match self.order {
            Order::Sequential => offset / self.ports,
            Order::Staggered => offset % self.blocks,
        };
        let index = address.checked_mul(self.blocks.get().into())?.checked_add(number.into())?;
        let [first, last] = self.inside;
        first.checked_add(index).filter(|inside| *inside <= last)
    }

    /// Returns the addresses and ports of the dynamic pool. Returns `None` if the dynamic factor is 0.
    #[must_use]
    pub fn dynamic_pool(&self) -> Option<Range<u32>> {
        let first_port = self.outside.first_port.checked_add(self.used())?;
        self.has_dynamic_pool.then_some(Range { first_port, ..self.outside })
    }

    /// Returns the number of ports of a block.
    #[must_use]
    pub fn ports(&self) -> NonZeroU16 {
        self.ports
    }

    /// Returns the number of blocks of an outside address (compression ratio).
    #[must_use]
    pub fn ratio(&self) -> NonZeroU16 {
        self.blocks
    }

    /// Returns the number of ports of an outside address that belong to blocks.
    fn used(&self) -> u16 {
        self.blocks.get().saturating_mul(self.ports.get())
    }
}

/// Returns the numbers of inside addresses, of outside addresses, and of ports of an outside address.
fn check_ranges(inside: [u32; 2], outside: &Range<u32>) -> Result<(u64, u64, u16), InvalidConfig> {
    let count = |first: u32, last: u32| last.checked_sub(first).map(|more| u64::from(more) + 1);
    let [first_inside, last_inside] = inside;
    let Range { first_address, last_address, first_port, last_port } = *outside;
    let (first, last) = (first_inside.into(), last_inside.into());
    let subscribers = count(first_inside, last_inside).ok_or(InvalidConfig::Inside { first, last })?;
    let (first, last) = (first_address.into(), last_address.into());
    let addresses = count(first_address, last_address).ok_or(InvalidConfig::Outside { first, last })?;
    if first_address <= last_inside && first_inside <= last_address {
        return Err(InvalidConfig::Overlap { first, last });
    }
    let error = InvalidConfig::Ports { first: first_port, last: last_port };
    let more = last_port.checked_sub(first_port).filter(|_| first_port > 0).ok_or(error)?;
    // Port 0 is excluded, so the number of ports is at most 65,535.
    Ok((subscribers, addresses, more.saturating_add(1)))
}

/// Returns the number of ports of each block. Returns `None` if there are fewer ports than blocks.
fn block_of(available: u16, blocks: NonZeroU16, dynamic: u16) -> Option<NonZeroU16> {
    let ports = u32::from(available) / (u32::from(blocks.get()) + u32::from(dynamic));
    u16::try_from(ports).ok().and_then(NonZeroU16::new)
}
