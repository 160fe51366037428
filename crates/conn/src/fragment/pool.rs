//! Pool of the packets that the reassembler holds. The packets of a datagram are a chain in the order of their arrival.

use super::list::NONE;

/// A packet that is held. `P` is the caller's packet.
#[derive(Debug)]
struct Node<P> {
    packet: Option<P>,
    /// Offset of the first octet of the data, and of the last octet.
    first: u16,
    last: u16,
    next: u32,
}

/// Packets of a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    oldest: u32,
    newest: u32,
    count: u32,
}

impl Chain {
    /// A chain without packets.
    pub(super) const EMPTY: Chain = Chain { oldest: NONE, newest: NONE, count: 0 };

    /// Returns the number of packets.
    pub(super) fn count(&self) -> u32 {
        self.count
    }
}

#[derive(Debug)]
pub(super) struct Pool<P> {
    nodes: Vec<Node<P>>,
    /// Numbers of the unused nodes. The vector never exceeds its first allocation.
    unused: Vec<u32>,
}

impl<P> Pool<P> {
    /// Returns a pool for this number of packets.
    pub(super) fn new(packets: u32) -> Pool<P> {
        let node = |_| Node { packet: None, first: 0, last: 0, next: NONE };
        Pool { nodes: (0..packets).map(node).collect(), unused: (0..packets).rev().collect() }
    }

    /// Returns the number of packets that are held.
    pub(super) fn held(&self) -> u32 {
        u32::try_from(self.nodes.len() - self.unused.len()).unwrap_or(u32::MAX)
    }

    /// Appends a packet to a chain. The octets of its data are `first..=last`.
    ///
    /// # Errors
    /// Returns the packet if the pool is full.
    pub(super) fn push(&mut self, chain: &mut Chain, packet: P, [first, last]: [u16; 2]) -> Result<(), P> {
        let Some(number) = self.unused.pop() else { return Err(packet) };
        let Some(node) = self.nodes.get_mut(number as usize) else { return Err(packet) };
        *node = Node { packet: Some(packet), first, last, next: NONE };
        match self.nodes.get_mut(chain.newest as usize) {
            Some(newest) => newest.next = number,
            None => chain.oldest = number,
        }
        chain.newest = number;
        chain.count += 1;
        Ok(())
    }

    /// Removes the oldest packet of a chain. Returns the packet with the offset of its data.
    pub(super) fn pop(&mut self, chain: &mut Chain) -> Option<(P, u16)> {
        let number = chain.oldest;
        let node = self.nodes.get_mut(number as usize)?;
        let packet = node.packet.take()?;
        let next = node.next;
        let first = node.first;
        *chain = if next == NONE {
            Chain::EMPTY
        } else {
            Chain { oldest: next, count: chain.count - 1, ..*chain }
        };
        self.unused.push(number);
        Some((packet, first))
    }

    /// Returns the offsets of the first and the last octet of each packet of a chain.
    pub(super) fn octets(&self, chain: &Chain) -> impl Iterator<Item = [u16; 2]> {
        let node = |number: u32| self.nodes.get(number as usize);
        let nodes = std::iter::successors(node(chain.oldest), move |last| node(last.next));
        nodes.map(|node| [node.first, node.last])
    }
}
