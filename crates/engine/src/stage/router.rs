//! Forwarding by routers. The stage looks up the route of each packet, rewrites MAC addresses and hop limits,
//! sorts packets by output port, and punts packets that the kernel must process.

mod refuse;
mod rewrite;

use packet::record::{Recorder, Step, TagChange};
use packet::{DropReason, FlowKey, L3Kind, Layers, PortId, VlanId, VlanTags};
use port::{FrameMemory, Packet};
use rewrite::Way;
use router::{Admitted, Decision, Kernel, Punt, Router, fast_path};
use sync::qsbr::Reader;

use super::path_context::Context;
use super::{WorkerContext, output, tag};
use crate::burst::{Burst, Head};
use crate::counters::Stage;

/// Number of packets by which the prefetch of packet headers runs ahead of parsing. See [`crate::stage::parse`].
const AHEAD: usize = 4;

/// Routes the packets of `burst`, which arrived on the router interface with index `interface`. `has_keys` states
/// whether the flow keys of the packets are filled. If not, the function reads the headers that routing needs. `burst`
/// is empty afterwards.
pub(super) fn process<R: Recorder>(
    router: &Router,
    interface: u16,
    has_keys: bool,
    context: &mut Context<'_, '_, R>,
    burst: &mut Burst,
) {
    let n = burst.len();
    let (port, reader) = (context.port, context.reader);
    if has_keys {
        decide(router, interface, context, burst);
        context.count(Stage::Function, n);
        execute::<R, false>(router, interface, context, burst);
    } else {
        if router.mirrored.has_vlans() {
            untag(port, router, interface, burst, false, context.worker);
        }
        read(port, router, interface, burst, context.worker);
        context.count(Stage::Parse, n);
        look_up(port, router, interface, reader, burst, context.worker);
        context.count(Stage::Function, n);
        execute::<R, true>(router, interface, context, burst);
    }
    context.count(Stage::Execute, n);
}

/// Looks up the routes of the packets of `burst`, whose flow keys are already filled.
fn decide<R: Recorder>(router: &Router, interface: u16, context: &mut Context<'_, '_, R>, burst: &mut Burst) {
    let n = burst.len();
    let (port, reader) = (context.port, context.reader);
    let vlans = router.mirrored.has_vlans();
    if vlans || burst.keys[..n].iter().any(FlowKey::is_tagged) {
        untag(port, router, interface, burst, true, context.worker);
    }
    let Burst { keys, layers, routes, arrivals, .. } = burst;
    let (keys, layers, routes) = (&keys[..n], &layers[..n], &mut routes[..n]);
    let arrival = |place: usize| if vlans { arrivals[place] } else { interface };
    router.decide_each(arrival, reader, keys, layers, &mut context.worker.routing, routes);
    if R::ACTIVE {
        record_refused(port, router, arrival, reader, keys, routes, context.recorder);
    }
}

/// Parses the headers that routing needs. For a plain packet (`router::fast_path`), this is only
/// the destination address. For any other packet, the flow key is extracted. For packets that must
/// not be routed, the function also sets the decision (for example drop or punt), so that no route
/// is looked up.
fn read(port: PortId, router: &Router, interface: u16, burst: &mut Burst, context: &mut WorkerContext) {
    if router.mirrored.has_vlans() {
        read_from::<true>(port, router, interface, burst, context);
    } else {
        read_from::<false>(port, router, interface, burst, context);
    }
}

/// Implements [`read`]. If `VLANS` is true, the router has VLAN interfaces, so packets may belong to an
/// interface other than `interface`.
fn read_from<const VLANS: bool>(
    port: PortId,
    router: &Router,
    interface: u16,
    burst: &mut Burst,
    context: &mut WorkerContext,
) {
    let Burst { packets, keys, layers, routes, heads, arrivals, .. } = burst;
    let WorkerContext { pool, routing, .. } = context;
    let memory = pool.memory();
    let mut gathering = routing.begin();
    let packets = packets.as_mut_slice();
    for packet in packets.iter().take(AHEAD) {
        packet.prefetch(memory);
    }
    let mut place = 0;
    // Consecutive packets of one kind and one interface are processed together. Usually this is the whole
    // burst.
    while place < packets.len() {
        let arrival = if VLANS { arrivals[place] } else { interface };
        let Some(own) = router.own(arrival) else {
            // Malformed packets are also dropped as `no-function` in this case.
            (heads[place], routes[place]) = (Head::Read, Decision::Drop(DropReason::NoFunction));
            place += 1;
            continue;
        };
        let is_next = |place: usize| !VLANS || arrivals[place] == arrival;
        let from = place;
        place += gathering.fours(from, |place| {
            let (head, len) = seen(memory, packets, place)?;
            // If the source may be an address of this host, the slower path with a flow key decides.
            let is_plain =
                |_: &u32| is_next(place) && !router.own_addresses.may_hold(fast_path::source(head));
            fast_path::four(own, head, len).filter(is_plain)
        });
        heads[from..place].fill(Head::Plain4);
        let from = place;
        place += gathering.sixes(from, |place| {
            let (head, len) = seen(memory, packets, place)?;
            fast_path::six(own, head, len).filter(|_| is_next(place))
        });
        heads[from..place].fill(Head::Plain6);
        if place > from {
            // The packets that follow may be plain IPv4 again.
            continue;
        }
        let Some(packet) = packets.get_mut(place).filter(|_| is_next(place)) else { continue };
        if !VLANS {
            tag::strip_priority(packet, memory);
        }
        heads[place] = Head::Read;
        let (head, len) = (packet.head(memory), packet.len());
        let admitted = judge(port, router, own, head, len, &mut keys[place], &mut layers[place]);
        if let Some(decision) = gathering.admitted(admitted, place) {
            routes[place] = decision;
        }
        place += 1;
    }
    gathering.end();
}

/// Returns the first `N` bytes and the length of the packet at index `place`, and prefetches a later packet.
/// Returns `None` if there is no such packet or it has fewer than `N` bytes in its first frame.
#[inline(always)]
fn seen<'m, const N: usize>(
    memory: &'m FrameMemory,
    packets: &'m [Packet],
    place: usize,
) -> Option<(&'m [u8; N], usize)> {
    if let Some(ahead) = packets.get(place + AHEAD) {
        ahead.prefetch(memory);
    }
    let packet = packets.get(place)?;
    Some((packet.head(memory).first_chunk()?, packet.len()))
}

/// Removes priority tags (VLAN 0) at any depth, removes the VLAN tags of packets that arrived on a VLAN interface, and
/// records the arrival interface of each packet. If `keyed` is true, the flow keys are already filled, and the keys of
/// changed packets are extracted again.
#[inline(never)]
fn untag(
    port: PortId,
    router: &Router,
    interface: u16,
    burst: &mut Burst,
    keyed: bool,
    context: &mut WorkerContext,
) {
    let Burst { packets, keys, layers, arrivals, .. } = burst;
    let memory = context.pool.memory();
    let all = packets.as_mut_slice();
    for place in 0..all.len() {
        if let Some(ahead) = all.get(place + AHEAD) {
            ahead.prefetch(memory);
        }
        let packet = &mut all[place];
        // A tag that the kernel would skip must not hide the packet from the check of its source.
        let is_stripped = tag::strip_priority(packet, memory) | tag::strip_inner_priority(packet, memory);
        let own = take_off(packet, memory, router, interface);
        arrivals[place] = own.unwrap_or(interface);
        if (is_stripped || own.is_some())
            && keyed
            && let Ok(found) = FlowKey::extract(packet.head(memory), packet.len(), port, &mut keys[place])
        {
            layers[place] = found;
        }
    }
}

/// Removes the VLAN tags of a packet that arrived on a VLAN interface, and returns the index of this
/// interface. For a packet with two tags, an interface for both tags takes precedence over an interface for
/// the outer tag. Returns `None` if there is no VLAN interface for the packet.
#[inline]
fn take_off(packet: &mut Packet, memory: &FrameMemory, router: &Router, interface: u16) -> Option<u16> {
    let head = packet.head(memory);
    // An EtherType must follow the tag.
    let [first, second, high, low, ..] = *head.get(12..)?.first_chunk::<6>()?;
    let vid = |high, low| VlanId::new(u16::from_be_bytes([high, low]) & 0xfff);
    let (outer, service) = match [first, second] {
        [0x81, 0x00] => (vid(high, low)?, false),
        [0x88, 0xa8] => (vid(high, low)?, true),
        _ => return None,
    };
    if router.mirrored.has_pairs()
        && let Some([0x81, 0x00, high, low, _, _]) = head.get(16..22)
        && let inner @ Some(_) = vid(*high, *low)
        && let Some(own) = router.mirrored.of_pair(interface, VlanTags { outer, inner, service })
    {
        // Both tags are present.
        tag::apply(packet, memory, TagChange::Pop).ok()?;
        tag::apply(packet, memory, TagChange::Pop).ok()?;
        tag::strip_priority(packet, memory);
        return Some(own);
    }
    let own = router.mirrored.of_vlan(interface, outer.get()).filter(|_| !service)?;
    tag::apply(packet, memory, TagChange::Pop).ok()?;
    Some(own)
}

/// Extracts the flow key of a packet that cannot take the fast path, and determines whether the packet may be routed.
#[inline(never)]
fn judge(
    port: PortId,
    router: &Router,
    own: u64,
    head: &[u8],
    len: usize,
    key: &mut FlowKey,
    layers: &mut Layers,
) -> Admitted {
    match FlowKey::extract(head, len, port, key) {
        Ok(found) => {
            *layers = found;
            router.admit(own, key, layers)
        }
        Err(reason) => Admitted::Not(Decision::Drop(reason)),
    }
}

/// Looks up the routes for the packets that [`read`] has selected for routing.
fn look_up(
    port: PortId,
    router: &Router,
    interface: u16,
    reader: &Reader,
    burst: &mut Burst,
    context: &mut WorkerContext,
) {
    let Burst { packets, keys, routes, heads, arrivals, .. } = burst;
    let WorkerContext { pool, routing, .. } = context;
    let memory = pool.memory();
    let vlans = router.mirrored.has_vlans();
    let arrival = |place: usize| if vlans { arrivals[place] } else { interface };
    let key = |place: usize| {
        let mut key = keys[place];
        if heads[place] != Head::Read
            && let Some(packet) = packets.get(place)
        {
            // The L2 header of a plain packet is complete.
            let _ = FlowKey::extract(packet.head(memory), packet.len(), port, &mut key);
        }
        key
    };
    router.answer(arrival, reader, key, routing, &mut routes[..packets.len()]);
}

/// Rewrites the packets of `burst` and moves them into the outbox. If `QUICK` is true, the packets were parsed
/// by [`read`].
fn execute<R: Recorder, const QUICK: bool>(
    router: &Router,
    interface: u16,
    context: &mut Context<'_, '_, R>,
    burst: &mut Burst,
) {
    let (port, now, reader) = (context.port, context.now, context.reader);
    let n = burst.packets.len();
    let Burst { packets, keys, routes, heads, arrivals, .. } = burst;
    let routes = &mut routes[..n];
    let memory = context.worker.pool.memory();
    let mut way = Way::of(router, context.worker.id);
    let (all, keys, heads) = (&mut packets.as_mut_slice()[..n], &keys[..n], &heads[..n]);
    let vlans = router.mirrored.has_vlans();
    let mut place = 0;
    while place < n {
        if QUICK && !R::DRY {
            place += way.rewrite_plain(memory, &mut all[place..], &routes[place..], &heads[place..]);
        }
        let (Some(packet), Some(route)) = (all.get_mut(place), routes.get_mut(place)) else { break };
        let mut head = if QUICK { heads[place] } else { Head::Read };
        if let Decision::Drop(DropReason::ForwardingOff) = *route {
            // If the kernel receives all packets of a device, a local process may want the packet, for
            // example a DHCP client without an address.
            let arrival = if vlans { arrivals[place] } else { interface };
            if router.mirrored.kernel(arrival).is_some() {
                *route = Decision::Punt(Punt::NotRouted);
            }
        }
        if let Decision::Refuse(why) = *route {
            let mut asked = refuse::Asked {
                router,
                arrival: if vlans { arrivals[place] } else { interface },
                place,
                worker: context.worker.id,
                now,
                reader,
                scratch: &mut context.worker.routing,
            };
            // The ICMP error replaces the packet.
            (*route, head) = refuse::run(&mut asked, why, packet, memory, context.recorder);
        }
        if let Decision::Forward { interface, adjacency } = *route {
            match way.rewrite(interface, adjacency, packet, memory, head, &keys[place]) {
                Ok(()) if R::DRY => {}
                Ok(()) => way.count(packet.len()),
                Err(instead) => *route = instead,
            }
        }
        place += 1;
    }
    way.settle();
    if R::ACTIVE {
        record(router, routes, context.recorder);
    }
    if let Some(out) = common(router, routes)
        && context.worker.outbox.take_whole(out, packets)
    {
        return;
    }
    for ((mut packet, route), arrival) in packets.drain(..).zip(routes).zip(arrivals.iter()) {
        match *route {
            Decision::Forward { interface, .. } => match router.interfaces.get(usize::from(interface)) {
                Some(Some(out)) => match router.mirrored.tags(interface) {
                    None => output::send(context, out.port, packet),
                    Some(tags) => match tag::begin(&mut packet, context.worker.pool.memory(), tags) {
                        Ok(tag) => {
                            output::send_tagged(context, packet, out.port, tag);
                        }
                        Err(reason) => {
                            context.recorder.step(0, Step::Dropped(reason));
                            context.worker.drop(packet, port, reason);
                        }
                    },
                },
                None | Some(None) => context.worker.drop(packet, port, DropReason::PortRemoved),
            },
            // No refused packets are left: `refuse::run` has replaced each of them.
            Decision::Refuse(_) => context.worker.drop(packet, port, DropReason::NoRoute),
            Decision::Punt(why) => {
                let arrival = if vlans { *arrival } else { interface };
                let kernel = router.mirrored.kernel(arrival).or(router.kernel.as_ref());
                punt(context, router, arrival, kernel, why, packet);
            }
            Decision::Drop(reason) => context.worker.drop(packet, port, reason),
        }
    }
}

#[cold]
fn record<R: Recorder>(router: &Router, routes: &[Decision], recorder: &mut R) {
    for (place, decision) in routes.iter().enumerate() {
        match *decision {
            Decision::Forward { interface, adjacency } => {
                let to = router.adjacencies.read(adjacency).mac();
                if let (Some(Some(out)), Some(to)) = (router.interfaces.get(usize::from(interface)), to) {
                    recorder.step(place, Step::Routed { port: out.port, to });
                }
            }
            Decision::Punt(punt) => recorder.step(place, Step::ToKernel { why: punt.explain() }),
            Decision::Refuse(_) => recorder.step(place, Step::Dropped(DropReason::NoRoute)),
            Decision::Drop(reason) => recorder.step(place, Step::Dropped(reason)),
        }
    }
}

/// Records the packets that the reverse path filter has dropped. Each record names the interfaces through which
/// the packet's source address is reachable.
#[cold]
fn record_refused<R: Recorder>(
    port: PortId,
    router: &Router,
    arrival: impl Fn(usize) -> u16,
    reader: &Reader,
    keys: &[FlowKey],
    routes: &[Decision],
    recorder: &mut R,
) {
    for (place, (decision, key)) in routes.iter().zip(keys).enumerate() {
        if *decision == Decision::Drop(DropReason::ReversePath) {
            let source = match key.l3_kind() {
                L3Kind::Ipv6 => key.ipv6_src().into(),
                L3Kind::Ipv4 | L3Kind::None | L3Kind::Arp => key.ipv4_src().into(),
            };
            let back = router.reverse_route(arrival(place), reader, key);
            recorder.step(place, Step::ReversePath { from: port, source, back });
        }
    }
}

/// Returns the output port if all packets of a burst are transmitted through one port without added VLAN tags. Returns
/// `None` otherwise.
#[inline]
fn common(router: &Router, routes: &[Decision]) -> Option<PortId> {
    let Some(Decision::Forward { interface: first, .. }) = routes.first() else { return None };
    let same = |route: &Decision| matches!(route, Decision::Forward { interface, .. } if interface == first);
    let out = router.interfaces.get(usize::from(*first))?.as_ref()?;
    (router.mirrored.tags(*first).is_none() && routes.iter().all(same)).then_some(out.port)
}

/// Punts a packet to the kernel through a TAP. The packet is dropped if there is no TAP for the packet, or if the rate
/// limit of its punt class is exceeded.
#[cold]
fn punt<R: Recorder>(
    context: &mut Context<'_, '_, R>,
    router: &Router,
    arrival: u16,
    kernel: Option<&Kernel>,
    why: Punt,
    mut packet: Packet,
) {
    let refused = match kernel {
        None => Some(DropReason::NoKernel),
        Some(_) if R::DRY => None,
        Some(_) => {
            let head = packet.head(context.worker.pool.memory());
            let class = router::class(why, head, packet.len());
            let origin = router::Origin::of(arrival, head, packet.len());
            let punt_policer = &router.punt_policer;
            let admitted = punt_policer.admits_from(
                class,
                &origin,
                &router.adjacencies,
                context.worker.id.index(),
                context.now.ns,
            );
            (!admitted).then_some(DropReason::PuntLimit)
        }
    };
    match (refused, kernel) {
        (None, Some(kernel)) => {
            // The kernel accepts packets for its device's MAC address.
            if let Some(to) = packet.head_mut(context.worker.pool.memory()).first_chunk_mut::<6>()
                && to[0] & 1 == 0
            {
                *to = kernel.mac.0;
            }
            output::send(context, kernel.port, packet);
        }
        (reason, _) => {
            let reason = reason.unwrap_or(DropReason::NoKernel);
            context.recorder.step(0, Step::Dropped(reason));
            context.worker.drop(packet, context.port, reason);
        }
    }
}
