//! Rewrites packets for transmission to a neighbour: the MAC addresses, the hop limit and the IPv4 checksum. The
//! packets are counted for each neighbour.

use packet::{DropReason, FlowKey, L3Kind, WorkerId};
use port::{Flags, FrameMemory, Packet, offload};
use router::fast_path::{self, HEAD_4, HEAD_6};
use router::{Counts, Decision, Punt, Router};

use crate::burst::Head;

/// State for rewriting the packets of a burst, with the next hop of the current packet. Consecutive packets
/// often have the same next hop. The state is then reused, and the packets are counted together.
pub struct Way<'a> {
    router: &'a Router,
    counts: Counts<'a>,
    to: Heading,
    /// Number of packets that were sent to the current next hop but are not counted for this next
    /// hop yet.
    packets: u64,
    bytes: u64,
}

#[derive(Clone, Copy)]
struct Heading {
    interface: u16,
    adjacency: u32,
    /// MTU of the output interface in bytes. The value is 0 if the next hop cannot be used. In this case, `otherwise`
    /// is the decision for the packets.
    mtu: u32,
    otherwise: Decision,
    /// Destination and source MAC address of the Ethernet header: the first eight bytes as one word, and the
    /// last four bytes as another word.
    addresses: (u64, u32),
}

impl<'a> Way<'a> {
    /// Creates the rewrite state for a burst. Packets are counted in the counters of `worker`.
    pub fn of(router: &'a Router, worker: WorkerId) -> Way<'a> {
        let counts = router.adjacencies.counts(worker.index());
        Way { router, counts, to: Heading::find(router, 0, 0), packets: 0, bytes: 0 }
    }

    /// Rewrites and counts packets, starting with the first one. Stops at the first packet that is not plain or has no
    /// usable next hop, and leaves this packet unchanged. Returns the number of packets rewritten.
    #[inline(never)]
    pub fn rewrite_plain(
        &mut self,
        memory: &FrameMemory,
        all: &mut [Packet],
        routes: &[Decision],
        heads: &[Head],
    ) -> usize {
        // The loop keeps these values in registers.
        let (mut to, mut packets, mut bytes) = (self.to, self.packets, self.bytes);
        let mut done = 0;
        for ((packet, route), head) in all.iter_mut().zip(routes).zip(heads) {
            let Decision::Forward { interface, adjacency } = *route else { break };
            if (interface, adjacency) != (to.interface, to.adjacency) {
                (self.to, self.packets, self.bytes) = (to, packets, bytes);
                self.turn(interface, adjacency);
                (to, packets, bytes) = (self.to, 0, 0);
            }
            if packet.flags().contains(Flags::SEGMENT) {
                break;
            }
            let length = match head {
                Head::Plain4 => packet.head_mut(memory).first_chunk_mut().and_then(|head| to.four(head)),
                Head::Plain6 => packet.head_mut(memory).first_chunk_mut().and_then(|head| to.six(head)),
                Head::Read => None,
            };
            let Some(length) = length else { break };
            if packet.len() > 14 + length as usize {
                cut(packet, memory, length);
            }
            packets += 1;
            bytes += packet.len() as u64;
            done += 1;
        }
        (self.to, self.packets, self.bytes) = (to, packets, bytes);
        done
    }

    /// Rewrites a packet of any kind for its next hop.
    ///
    /// # Errors
    /// The routing decision for a packet that is not sent to its next hop. The packet is unchanged.
    #[inline(never)]
    pub fn rewrite(
        &mut self,
        interface: u16,
        adjacency: u32,
        packet: &mut Packet,
        memory: &FrameMemory,
        known: Head,
        key: &FlowKey,
    ) -> Result<(), Decision> {
        if (interface, adjacency) != (self.to.interface, self.to.adjacency) {
            self.turn(interface, adjacency);
        }
        let to = self.to;
        if to.mtu == 0 {
            return Err(to.otherwise);
        }
        let is_four = known == Head::Plain4 || known == Head::Read && key.l3_kind() == L3Kind::Ipv4;
        if known == Head::Read
            && is_four
            && packet.head(memory).first_chunk().is_some_and(|head| !fast_path::is_sound(head))
        {
            return Err(Decision::Drop(DropReason::Ipv4BadChecksum));
        }
        let is_segmented = packet.flags().contains(Flags::SEGMENT);
        if is_segmented && offload::wire_len(packet, memory) > 14 + to.mtu as usize {
            return Err(Decision::Punt(Punt::TooLong));
        }
        // The segments have valid lengths, whatever length the header contains.
        let to = if is_segmented { Heading { mtu: u32::MAX, ..to } } else { to };
        let head = packet.head_mut(memory);
        let truncated = if is_four { DropReason::Ipv4Truncated } else { DropReason::Ipv6Truncated };
        let length = match is_four {
            true => head.first_chunk_mut().map(|head| to.four(head)),
            false => head.first_chunk_mut().map(|head| to.six(head)),
        };
        let length = length.ok_or(Decision::Drop(truncated))?.ok_or(Decision::Punt(Punt::TooLong))?;
        if !is_segmented && packet.len() > 14 + length as usize {
            cut(packet, memory, length);
        }
        Ok(())
    }

    /// Counts a packet of `bytes` bytes that [`Way::rewrite`] has rewritten for its next hop.
    pub fn count(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }

    /// Selects another next hop for the packets that follow.
    #[inline(always)]
    fn turn(&mut self, interface: u16, adjacency: u32) {
        self.settle();
        self.to = Heading::find(self.router, interface, adjacency);
    }

    /// Adds the packets and bytes that are not counted yet to the counters of the current next hop.
    #[inline(always)]
    pub fn settle(&mut self) {
        if self.packets > 0 {
            self.counts.add(self.to.adjacency, self.packets, self.bytes);
            (self.packets, self.bytes) = (0, 0);
        }
    }
}

impl Heading {
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "the last four of twelve octets")]
    fn find(router: &Router, interface: u16, adjacency: u32) -> Heading {
        let to = router.adjacencies.read(adjacency);
        let (mut mtu, mut addresses) = (0, (0, 0));
        let mut otherwise = Decision::Punt(Punt::Unresolved);
        match router.interfaces.get(usize::from(interface)) {
            // The interface was created after this snapshot.
            None | Some(None) => otherwise = Decision::Punt(Punt::Elsewhere),
            Some(Some(_)) if !to.is_resolved() => {}
            Some(Some(out)) => {
                let from = out.mac.to_wire_word();
                mtu = out.mtu;
                addresses = (to.wire_word() | from << 48, (from >> 16) as u32);
            }
        }
        Heading { interface, adjacency, mtu, otherwise, addresses }
    }

    /// Rewrites the headers of an IPv4 packet and returns the packet length that the IPv4 header contains.
    /// Returns `None` if this length exceeds the MTU.
    #[inline(always)]
    fn four(&self, head: &mut [u8; HEAD_4]) -> Option<u32> {
        let length = u32::from(be16::<16>(head));
        if length > self.mtu {
            return None;
        }
        // TTL, protocol and checksum are updated as one little-endian word (RFC 1624). Like Linux, the result
        // is never 0xffff. The TTL is the lowest byte and not zero. The checksum is the upper half, whose
        // carry is added back.
        let word = head.get_mut(22..26)?.first_chunk_mut::<4>()?;
        let before = u32::from_le_bytes(*word);
        let carried = u32::from(before >= 0xfffe_0000) << 16;
        *word = before.wrapping_add(0xffff).wrapping_add(carried).to_le_bytes();
        self.address(head);
        Some(length)
    }

    /// Rewrites the headers of an IPv6 packet and returns the packet length that the IPv6 header contains. Returns
    /// `None` if this length exceeds the MTU.
    #[inline(always)]
    fn six(&self, head: &mut [u8; HEAD_6]) -> Option<u32> {
        let length = u32::from(be16::<18>(head)) + 40;
        if length > self.mtu {
            return None;
        }
        head[21] -= 1;
        self.address(head);
        Some(length)
    }

    #[inline(always)]
    fn address<const N: usize>(&self, head: &mut [u8; N]) {
        head[..8].copy_from_slice(&self.addresses.0.to_le_bytes());
        head[8..12].copy_from_slice(&self.addresses.1.to_le_bytes());
    }
}

/// Removes the bytes after an IP packet of `length` bytes (Ethernet padding), as Linux does. Otherwise, the frame could
/// exceed the MTU of the output interface. A packet that spans several frames is not shortened.
#[cold]
fn cut(packet: &mut Packet, memory: &FrameMemory, length: u32) {
    let _is_chain = !u16::try_from(14 + length).is_ok_and(|length| packet.set_len(memory, length));
}

#[inline(always)]
fn be16<const AT: usize>(head: &[u8]) -> u16 {
    head.get(AT..).and_then(<[u8]>::first_chunk::<2>).map_or(0, |two| u16::from_be_bytes(*two))
}
