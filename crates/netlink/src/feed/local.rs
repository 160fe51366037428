//! The kernel's local routing table: the addresses of this host, and the decision whether packets must be looked up in
//! the local table separately from the main table.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::mirror::Mirror;
use crate::routes::Routes;
use crate::rtnetlink::route::{RT_TABLE_LOCAL, RT_TABLE_MAIN};
use crate::state::{self, Family, Kind, RouteKey};

/// Returns the IPv4 and IPv6 destination addresses of packets that the kernel must process: this host's own addresses,
/// and the broadcast and anycast addresses of its links. These addresses are the host routes of the local table.
#[must_use]
pub fn own_addresses(mirror: &Mirror) -> (BTreeSet<Ipv4Addr>, BTreeSet<Ipv6Addr>) {
    let own = |kind| matches!(kind, Kind::Local | Kind::Broadcast | Kind::Anycast);
    (hosts(&mirror.routes4, 32, own), hosts(&mirror.routes6, 128, own))
}

/// Returns the destination addresses of the host routes in the local table whose route type `wanted` accepts. `length`
/// is the length of a host prefix in bits (32 or 128).
pub(super) fn hosts<A: Family>(routes: &Routes<A>, length: u8, wanted: impl Fn(Kind) -> bool) -> BTreeSet<A> {
    let everyone = state::Prefix { address: A::ZERO, length: 0 };
    let key = |table| RouteKey { table, prefix: everyone, tos: 0, metric: 0, from: everyone };
    let local = routes.range(key(RT_TABLE_LOCAL)..=key(RT_TABLE_LOCAL + 1));
    let single = local.filter(|(key, paths)| {
        key.table == RT_TABLE_LOCAL
            && key.prefix.length == length
            && paths.first().is_some_and(|path| wanted(path.kind))
    });
    single.map(|(key, _)| key.prefix.address).collect()
}

/// Returns whether packets must first be looked up in the local table and then, separately, in the main table. A single
/// look-up in a combined table would be wrong if the local table contains a prefix shorter than a host address, because
/// a longer prefix of the main table would take precedence over this prefix. For IPv4, returns `false` if there are no
/// additional policy rules, because the kernel itself combines both tables then (`fib_lookup()`). `rules` is the number
/// of policy rules of the address family.
pub(super) fn is_apart(mirror: &Mirror, v6: bool, rules: usize) -> bool {
    const OWN_RULES: usize = 3;
    let loopback = state::Prefix { address: Ipv4Addr::new(127, 0, 0, 0), length: 8 };
    match v6 {
        true => is_wide(&mirror.routes6, 128, None),
        false => rules > OWN_RULES && is_wide(&mirror.routes4, 32, Some(loopback)),
    }
}

/// Returns whether the local table contains a prefix shorter than a host address (`length` bits). The loopback network
/// (`loopback`) and multicast prefixes are ignored.
pub(super) fn is_wide<A: Family>(routes: &Routes<A>, length: u8, loopback: Option<state::Prefix<A>>) -> bool {
    let everyone = state::Prefix { address: A::ZERO, length: 0 };
    let key = |table| RouteKey { table, prefix: everyone, tos: 0, metric: 0, from: everyone };
    routes.range(key(RT_TABLE_LOCAL)..=key(RT_TABLE_LOCAL + 1)).any(|(key, paths)| {
        let kind = paths.first().map(|path| path.kind);
        key.table == RT_TABLE_LOCAL
            && key.prefix.length < length
            && kind != Some(Kind::Multicast)
            && Some(key.prefix) != loopback
    })
}

/// Returns the numbers of the router's tables into which the routes of a kernel table are installed. The routes of the
/// local table are installed in the router's local table and in its main table.
pub(super) fn tables_of(table: u32) -> impl Iterator<Item = u32> {
    std::iter::once(table).chain((table == RT_TABLE_LOCAL).then_some(RT_TABLE_MAIN))
}

/// Returns the numbers of the kernel tables whose routes are installed in one table of the router. The kernel table
/// with the highest precedence comes first.
pub(super) fn tables_in(table: u32) -> impl Iterator<Item = u32> {
    (table == RT_TABLE_MAIN).then_some(RT_TABLE_LOCAL).into_iter().chain(std::iter::once(table))
}
