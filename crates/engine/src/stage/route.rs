//! Does what the router decided: writes addresses and hop counts anew and sorts packets by output; what needs more goes to the kernel.

use packet::record::{Recorder, Step, TagChange};
use packet::{DropReason, FlowKey, L3Kind, Layers, PortId};
use port::{Flags, FrameMemory, Packet, offload};
use router::plain::{self, HEAD_4, HEAD_6};
use router::{Admitted, Counts, Decision, Kernel, Punt, Router};
use switch::Now;
use sync::qsbr::Reader;

use crate::burst::{Burst, Head};
use crate::stage::transmit::Exits;
use crate::stage::{Tools, execute, tag};
use crate::state::Forwarding;

/// How many packets ahead their first line is asked for, as in [`crate::stage::parse`].
const AHEAD: usize = 4;

/// Reads what routing needs of each packet: of a plain one its destination, of others their keys. Those that are not to be routed have
/// their decision then.
pub fn read(port: PortId, router: &Router, interface: u16, burst: &mut Burst, tools: &mut Tools) {
    let Burst { packets, keys, layers, routes, heads, arrivals, .. } = burst;
    let Tools { pool, routing, .. } = tools;
    let memory = pool.memory();
    let mut gathering = routing.begin();
    let vlans = router.mirrored.has_vlans();
    let base = router.own(interface);
    if base.is_none() && !vlans {
        // Broken ones, too, have no room then.
        routes.fill(Decision::Drop(DropReason::NoRoom));
        heads.fill(Head::Read);
        return gathering.end();
    }
    let packets = packets.as_slice();
    for packet in packets.iter().take(AHEAD) {
        packet.prefetch(memory);
    }
    for (place, (packet, kind)) in packets.iter().zip(heads.iter_mut()).enumerate() {
        if let Some(ahead) = packets.get(place + AHEAD) {
            ahead.prefetch(memory);
        }
        let (head, len) = (packet.head(memory), packet.len());
        let own = if vlans && arrivals[place] != interface { router.own(arrivals[place]) } else { base };
        let Some(own) = own else {
            (*kind, routes[place]) = (Head::Read, Decision::Drop(DropReason::NoRoom));
            continue;
        };
        if let Some(fixed) = head.first_chunk()
            && let Some(destination) = plain::four(own, fixed, len)
        {
            *kind = Head::Plain4;
            gathering.four(destination, place);
        } else if let Some(fixed) = head.first_chunk()
            && let Some(destination) = plain::six(own, fixed, len)
        {
            *kind = Head::Plain6;
            gathering.six(destination, place);
        } else {
            *kind = Head::Read;
            let admitted = judge(port, own, head, len, &mut keys[place], &mut layers[place]);
            if let Some(decision) = gathering.admitted(admitted, place) {
                routes[place] = decision;
            }
        }
    }
    gathering.end();
}

/// Takes the tags off packets of VLANs that have an interface of their own, and notes by which interface each has come in. `keyed`: their
/// keys have been made, and are made again.
#[inline(never)]
pub fn untag(
    port: PortId,
    router: &Router,
    interface: u16,
    burst: &mut Burst,
    keyed: bool,
    tools: &mut Tools,
) {
    let Burst { packets, keys, layers, arrivals, .. } = burst;
    let memory = tools.pool.memory();
    let all = packets.as_mut_slice();
    for place in 0..all.len() {
        if let Some(ahead) = all.get(place + AHEAD) {
            ahead.prefetch(memory);
        }
        arrivals[place] = interface;
        let packet = &mut all[place];
        // With an EtherType behind the tag: else nothing is left to read.
        let Some([0x81, 0x00, high, low, _, _]) = packet.head(memory).get(12..18) else { continue };
        let vlan = u16::from_be_bytes([*high, *low]) & 0xfff;
        let Some(own) = router.mirrored.of_vlan(interface, vlan) else { continue };
        if tag::apply(packet, memory, TagChange::Pop).is_err() {
            continue;
        }
        arrivals[place] = own;
        if keyed
            && let Ok(found) = FlowKey::extract(packet.head(memory), packet.len(), port, &mut keys[place])
        {
            layers[place] = found;
        }
    }
}

/// What a packet is that is not plain.
#[inline(never)]
fn judge(
    port: PortId,
    own: u64,
    head: &[u8],
    len: usize,
    key: &mut FlowKey,
    layers: &mut Layers,
) -> Admitted {
    match FlowKey::extract(head, len, port, key) {
        Ok(found) => {
            *layers = found;
            router::admit(own, key, layers)
        }
        Err(reason) => Admitted::Not(Decision::Drop(reason)),
    }
}

/// Asks the router about those that [`read`] found to be routed.
pub fn look_up(
    port: PortId,
    router: &Router,
    interface: u16,
    reader: &Reader,
    burst: &mut Burst,
    tools: &mut Tools,
) {
    let Burst { packets, keys, routes, heads, arrivals, .. } = burst;
    let Tools { pool, routing, .. } = tools;
    let memory = pool.memory();
    let vlans = router.mirrored.has_vlans();
    let arrival = |place: usize| if vlans { arrivals[place] } else { interface };
    let key = |place: usize| {
        let mut key = keys[place];
        if heads[place] != Head::Read
            && let Some(packet) = packets.get(place)
        {
            // A plain packet's L2 header is whole.
            let _ = FlowKey::extract(packet.head(memory), packet.len(), port, &mut key);
        }
        key
    };
    router.answer(arrival, reader, key, routing, &mut routes[..packets.len()]);
}

/// Empties `burst`, whose packets arrived on `port`, into the outbox. `QUICK`: its packets have been read by [`read`].
#[allow(clippy::too_many_arguments, reason = "the stage's whole context")]
pub fn run<R: Recorder, const QUICK: bool>(
    forwarding: &Forwarding,
    port: PortId,
    router: &Router,
    interface: u16,
    burst: &mut Burst,
    now: Now,
    exits: &mut Exits<'_>,
    tools: &mut Tools,
    recorder: &mut R,
) {
    let n = burst.packets.len();
    let Burst { packets, keys, routes, heads, arrivals, .. } = burst;
    let routes = &mut routes[..n];
    let memory = tools.pool.memory();
    let mut tally =
        Tally { counts: router.adjacencies.counts(tools.id.index()), adjacency: 0, packets: 0, bytes: 0 };
    let mut heading = Heading::nowhere(router);
    let (all, keys, heads) = (&mut packets.as_mut_slice()[..n], &keys[..n], &heads[..n]);
    for place in 0..n {
        let (packet, route) = (&mut all[place], &mut routes[place]);
        let Decision::Forward { interface, adjacency } = *route else { continue };
        heading.lead(router, interface, adjacency);
        let written = match heads[place] {
            Head::Plain4 if QUICK && heading.takes(packet) => heading.four(packet, memory),
            Head::Plain6 if QUICK && heading.takes(packet) => heading.six(packet, memory),
            head => heading.rewrite(packet, memory, if QUICK { head } else { Head::Read }, &keys[place]),
        };
        match written {
            Ok(()) => tally.add(adjacency, packet.len() as u64, R::DRY),
            Err(instead) => *route = instead,
        }
    }
    tally.settle();
    if R::ACTIVE {
        record(router, routes, recorder);
    }
    if let Some(out) = common(router, routes)
        && tools.outbox.take_whole(out, packets)
    {
        return;
    }
    let vlans = router.mirrored.has_vlans();
    for ((packet, route), arrival) in packets.drain(..).zip(routes).zip(arrivals.iter()) {
        match *route {
            Decision::Forward { interface, .. } => match router.interfaces.get(usize::from(interface)) {
                Some(Some(out)) => match router.mirrored.tag(interface) {
                    None => execute::send(forwarding, port, out.port, packet, exits, tools, recorder),
                    Some(vid) => {
                        let tag = TagChange::Push(vid);
                        execute::output(forwarding, port, packet, out.port, tag, exits, tools, recorder);
                    }
                },
                None | Some(None) => tools.drop(packet, port, DropReason::PortRemoved),
            },
            Decision::Punt(why) => {
                let arrival = if vlans { *arrival } else { interface };
                let kernel = router.mirrored.kernel(arrival).or(router.kernel.as_ref());
                punt(forwarding, port, router, kernel, why, packet, now, exits, tools, recorder);
            }
            Decision::Drop(reason) => tools.drop(packet, port, reason),
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
            Decision::Drop(reason) => recorder.step(place, Step::Dropped(reason)),
        }
    }
}

/// Tells of packets that were refused for their sources where those would be reached.
#[cold]
pub fn record_refused<R: Recorder>(
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
            let back = router.way_back(arrival(place), reader, key);
            recorder.step(place, Step::ReversePath { from: port, source, back });
        }
    }
}

/// The port that all packets leave by, if it is one.
#[inline]
fn common(router: &Router, routes: &[Decision]) -> Option<PortId> {
    let Some(Decision::Forward { interface: first, .. }) = routes.first() else { return None };
    let same = |route: &Decision| matches!(route, Decision::Forward { interface, .. } if interface == first);
    let out = router.interfaces.get(usize::from(*first))?.as_ref()?;
    (router.mirrored.tag(*first).is_none() && routes.iter().all(same)).then_some(out.port)
}

/// Packets in a row for one neighbour, counted together.
struct Tally<'a> {
    counts: Counts<'a>,
    adjacency: u32,
    packets: u64,
    bytes: u64,
}

impl Tally<'_> {
    #[inline(always)]
    fn add(&mut self, adjacency: u32, bytes: u64, dry: bool) {
        if dry {
            return;
        }
        if adjacency != self.adjacency {
            self.settle();
            self.adjacency = adjacency;
        }
        self.packets += 1;
        self.bytes += bytes;
    }

    #[inline]
    fn settle(&mut self) {
        if self.packets > 0 {
            self.counts.add(self.adjacency, self.packets, self.bytes);
            (self.packets, self.bytes) = (0, 0);
        }
    }
}

/// Where the packet in hand goes: as the one before it, as often as not.
#[derive(Clone, Copy)]
struct Heading {
    interface: u16,
    adjacency: u32,
    /// Bytes of the largest IP packet; 0: it cannot go there, and `otherwise` says what becomes of it.
    mtu: u32,
    otherwise: Decision,
    /// The addresses of the Ethernet header: its first eight octets, and four.
    addresses: (u64, u32),
}

impl Heading {
    fn nowhere(router: &Router) -> Heading {
        let mut heading = Heading {
            interface: 0,
            adjacency: 0,
            mtu: 0,
            otherwise: Decision::Punt(Punt::Unresolved),
            addresses: (0, 0),
        };
        heading.find(router);
        heading
    }

    #[inline(always)]
    fn lead(&mut self, router: &Router, interface: u16, adjacency: u32) {
        if (interface, adjacency) != (self.interface, self.adjacency) {
            (self.interface, self.adjacency) = (interface, adjacency);
            self.find(router);
        }
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "the last four of twelve octets")]
    fn find(&mut self, router: &Router) {
        let to = router.adjacencies.read(self.adjacency);
        self.mtu = 0;
        match router.interfaces.get(usize::from(self.interface)) {
            // An interface that was bound after this snapshot was made.
            None | Some(None) => self.otherwise = Decision::Punt(Punt::Elsewhere),
            Some(Some(_)) if !to.is_resolved() => self.otherwise = Decision::Punt(Punt::Unresolved),
            Some(Some(out)) => {
                let from = out.mac.to_wire_word();
                self.mtu = out.mtu;
                self.addresses = (to.wire_word() | from << 48, (from >> 16) as u32);
            }
        }
    }

    /// Whether the neighbour is known, and the packet's length is that of its header.
    #[inline(always)]
    fn takes(&self, packet: &Packet) -> bool {
        self.mtu != 0 && !packet.flags().contains(Flags::SEGMENT)
    }

    /// Makes a packet ready to leave, or says what becomes of it instead: then it is as it was.
    #[inline(never)]
    fn rewrite(
        &self,
        packet: &mut Packet,
        memory: &FrameMemory,
        known: Head,
        key: &FlowKey,
    ) -> Result<(), Decision> {
        if self.mtu == 0 {
            return Err(self.otherwise);
        }
        let is_four = known == Head::Plain4 || known == Head::Read && key.l3_kind() == L3Kind::Ipv4;
        if known == Head::Read
            && is_four
            && packet.head(memory).first_chunk().is_some_and(|head| !plain::is_sound(head))
        {
            return Err(Decision::Drop(DropReason::Ipv4BadChecksum));
        }
        if packet.flags().contains(Flags::SEGMENT) {
            if offload::wire_len(packet, memory) > 14 + self.mtu as usize {
                return Err(Decision::Punt(Punt::TooLong));
            }
            // As long as its segments will be.
            let unbounded = Heading { mtu: u32::MAX, ..*self };
            return if is_four { unbounded.four(packet, memory) } else { unbounded.six(packet, memory) };
        }
        if is_four { self.four(packet, memory) } else { self.six(packet, memory) }
    }

    #[inline(always)]
    fn four(&self, packet: &mut Packet, memory: &FrameMemory) -> Result<(), Decision> {
        let Some(head) = packet.head_mut(memory).first_chunk_mut::<HEAD_4>() else {
            return Err(Decision::Drop(DropReason::Ipv4Truncated));
        };
        let length = u32::from(be16(head, 16));
        if length > self.mtu {
            return Err(Decision::Punt(Punt::TooLong));
        }
        // Hops, protocol and checksum: RFC 1624, with the sum that Linux makes of it: never all ones.
        let word = u32::from_le_bytes([head[22], head[23], head[24], head[25]]);
        let sum = (word >> 16) + 1;
        let sum = sum + u32::from(sum >= 0xffff);
        let word = (word - 1) & 0xffff | sum << 16;
        head[22..26].copy_from_slice(&word.to_le_bytes());
        self.address(head);
        if packet.len() > 14 + length as usize {
            self.cut(packet, memory, length);
        }
        Ok(())
    }

    #[inline(always)]
    fn six(&self, packet: &mut Packet, memory: &FrameMemory) -> Result<(), Decision> {
        let Some(head) = packet.head_mut(memory).first_chunk_mut::<HEAD_6>() else {
            return Err(Decision::Drop(DropReason::Ipv6Truncated));
        };
        let length = u32::from(be16(head, 18)) + 40;
        if length > self.mtu {
            return Err(Decision::Punt(Punt::TooLong));
        }
        head[21] -= 1;
        self.address(head);
        if packet.len() > 14 + length as usize {
            self.cut(packet, memory, length);
        }
        Ok(())
    }

    /// Takes off what stands behind an IP packet of this length, as Linux does: with it, the frame could be too long for the way out.
    /// A chain keeps it.
    #[cold]
    fn cut(&self, packet: &mut Packet, memory: &FrameMemory, length: u32) {
        // Its segments' lengths stand nowhere yet.
        let is_segmented = self.mtu == u32::MAX;
        let _is_chain =
            !is_segmented && !u16::try_from(14 + length).is_ok_and(|length| packet.set_len(memory, length));
    }

    #[inline(always)]
    fn address<const N: usize>(&self, head: &mut [u8; N]) {
        head[..8].copy_from_slice(&self.addresses.0.to_le_bytes());
        head[8..12].copy_from_slice(&self.addresses.1.to_le_bytes());
    }
}

#[inline(always)]
fn be16(head: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([head[at], head[at + 1]])
}

/// Gives a packet to the kernel, within the limit of its kind.
#[cold]
#[allow(clippy::too_many_arguments, reason = "the stage's whole context")]
fn punt<R: Recorder>(
    forwarding: &Forwarding,
    port: PortId,
    router: &Router,
    kernel: Option<&Kernel>,
    why: Punt,
    mut packet: Packet,
    now: Now,
    exits: &mut Exits<'_>,
    tools: &mut Tools,
    recorder: &mut R,
) {
    let refused = match kernel {
        None => Some(DropReason::NoKernel),
        Some(_) if !R::DRY && !router.gate.admits(why, tools.id.index(), now.ns) => {
            Some(DropReason::PuntLimit)
        }
        Some(_) => None,
    };
    match (refused, kernel) {
        (None, Some(kernel)) => {
            // The kernel takes what is for its device's own address.
            if let Some(to) = packet.head_mut(tools.pool.memory()).first_chunk_mut::<6>()
                && to[0] & 1 == 0
            {
                *to = kernel.mac.0;
            }
            execute::send(forwarding, port, kernel.port, packet, exits, tools, recorder);
        }
        (reason, _) => {
            let reason = reason.unwrap_or(DropReason::NoKernel);
            recorder.step(0, Step::Dropped(reason));
            tools.drop(packet, port, reason);
        }
    }
}
