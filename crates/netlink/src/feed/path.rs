//! Conversion of the kernel's routes and next-hop objects to paths of the router ([`Path`]).

use router::{NextHop, Path};

use crate::mirror::Mirror;
use crate::routes::Routes;
use crate::state::{self, Family, Hop, Kind, Member};

/// Returns the path to install for a prefix of a kernel table. This is the path of the usable route with the lowest
/// metric, or `Path::Local` if a route to the prefix applies to some packets only. Returns `None` if there is no usable
/// route.
pub(super) fn best<A: Family>(routes: &Routes<A>, table: u32, prefix: state::Prefix<A>) -> Option<Path> {
    let mut usable = None;
    for (key, path) in routes.to_prefix(table, prefix) {
        if key.is_for_some() {
            return Some(Path::Local);
        }
        usable = usable.or(Some(path).filter(|path| path.is_usable()));
    }
    usable.map(said)
}

/// Converts the path of a usable route of the kernel to a path of the router.
fn said(path: &state::Path) -> Path {
    match (path.kind, path.next_hop) {
        (Kind::Blackhole, _) => Path::Blackhole,
        (Kind::Unreachable, _) => Path::Unreachable,
        (Kind::Prohibit, _) => Path::Prohibit,
        (Kind::Throw, _) => Path::Throw,
        (Kind::Local | Kind::Broadcast | Kind::Anycast | Kind::Multicast | Kind::Other(_), _) => Path::Local,
        // The kernel fragments or rejects packets that exceed the MTU of the route, although they fit the MTU
        // of the device.
        (Kind::Unicast, _) if path.mtu.is_some() => Path::Local,
        (Kind::Unicast, Some(id)) => Path::Shared(id),
        (Kind::Unicast, None) if path.hops.iter().any(|hop| hop.encapsulates) => Path::Local,
        (Kind::Unicast, None) => {
            Path::NextHops(path.hops.iter().filter(|hop| !hop.dead).map(next_hop).collect())
        }
    }
}

fn next_hop(hop: &state::Hop) -> NextHop {
    NextHop { interface: hop.link, gateway: hop.gateway, weight: hop.weight }
}

/// Converts a next-hop object of the kernel to a path of the router.
pub(super) fn object(mirror: &Mirror, next: &state::NextHop) -> Path {
    if next.blackhole {
        return Path::Blackhole;
    }
    if let Some(hop) = &next.hop {
        return match (hop.encapsulates, hop.dead) {
            (true, _) => Path::Local,
            // The kernel no longer has the object, and answers packets as unreachable.
            (false, true) => Path::Unreachable,
            (false, false) => Path::NextHops(vec![next_hop(hop)]),
        };
    }
    let hop = |member: &Member| Some((member.weight, mirror.next_hops.get(&member.id)?.hop?));
    let hops: Vec<(u16, Hop)> = next.group.iter().filter_map(hop).collect();
    let live = hops.iter().filter(|(_, hop)| !hop.dead);
    let next_hops: Vec<NextHop> =
        live.map(|(weight, hop)| NextHop { weight: *weight, ..next_hop(hop) }).collect();
    match (next_hops.is_empty(), hops.is_empty()) {
        (false, _) => Path::NextHops(next_hops),
        (true, false) => Path::Unreachable,
        // The group has only one member, which is a blackhole.
        (true, true) => Path::Blackhole,
    }
}
