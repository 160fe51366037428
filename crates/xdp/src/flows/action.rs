//! Actions of a cached flow on a packet, and the encoding of a flow in the format of the XDP program: `struct
//! flow_entry`.

/// New values for some bits of a header field. Only the bits that `mask` selects are copied from `value` to the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bits<const N: usize> {
    /// New octets of the field, in network byte order. Bits that are not set in `mask` are ignored.
    pub value: [u8; N],
    /// Mask of the bits that are written to the field.
    pub mask: [u8; N],
}

impl<const N: usize> Default for Bits<N> {
    fn default() -> Self {
        Bits { value: [0; N], mask: [0; N] }
    }
}

impl<const N: usize> Bits<N> {
    fn any(&self) -> bool {
        self.mask != [0; N]
    }
}

/// Actions of a cached flow on a packet. The actions are performed in this order: header fields are written,
/// the received tag is removed, another tag is added, and the packet is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowAction {
    /// Number of the output port. With `None` the packet is dropped, unless `normal` is set.
    pub port: Option<u16>,
    /// Whether the packet leaves through the port that the bridge's MAC table has for its destination address (OpenFlow
    /// action `NORMAL`). If this flag is set, no other action may be set.
    pub normal: bool,
    /// New bits of the two MAC addresses: destination, then source.
    pub ethernet: Bits<12>,
    /// New bits of the TCI of the received VLAN tag. Valid only for flows of tagged packets.
    pub tci: Bits<2>,
    /// New bits of the IP source address. An IPv4 address uses the first four octets.
    pub source: Bits<16>,
    /// New bits of the IP destination address. An IPv4 address uses the first four octets.
    pub destination: Bits<16>,
    /// New bits of the IPv4 TOS or IPv6 traffic class.
    pub tos: Bits<1>,
    /// New bits of the IPv4 TTL or IPv6 hop limit.
    pub ttl: Bits<1>,
    /// New bits of the TCP or UDP ports: source, then destination.
    pub ports: Bits<4>,
    /// Whether the received VLAN tag is removed. Valid only for flows of tagged packets.
    pub pop: bool,
    /// TPID and TCI of a VLAN tag to add. `None` adds no tag.
    pub push: Option<(u16, u16)>,
}

/// Size of `struct flow_entry` (a cached flow with its actions) in octets.
pub(crate) const ENTRY_BYTES: usize = 256;
/// Flag in an encoded flow: the flow's actions drop the packet. This and the following constants are the flags of `enum
/// flow_does`.
pub(crate) const DROPS: u32 = 1;
pub(crate) const POPS: u32 = 2;
pub(crate) const PUSHES: u32 = 4;
pub(crate) const SETS_IP: u32 = 8;
pub(crate) const NORMAL: u32 = 16;

/// Encodes a cached flow as `struct flow_entry`. `mask` is the index of the flow's mask in the table of masks.
pub(super) fn entry(key: &[u64; 8], mask: u32, action: &FlowAction) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    let mut put = |at: usize, part: &[u8]| {
        if let Some(place) = bytes.get_mut(at..at + part.len()) {
            place.copy_from_slice(part);
        }
    };
    let FlowAction { port, normal, ethernet, tci, source, destination, tos, ttl, ports, pop, push } = action;
    let sets_ip = source.any() || destination.any() || tos.any() || ttl.any() || ports.any();
    let does = [
        (port.is_none() && !normal, DROPS),
        (*pop, POPS),
        (push.is_some(), PUSHES),
        (sets_ip, SETS_IP),
        (*normal, NORMAL),
    ];
    let does: u32 = does.into_iter().filter(|(does, _)| *does).map(|(_, bit)| bit).sum();
    for (word, at) in key.iter().zip((0..).step_by(8)) {
        put(at, &word.to_ne_bytes());
    }
    put(64, &mask.to_ne_bytes());
    put(68, &does.to_ne_bytes());
    put(72, &u32::from(port.unwrap_or(0)).to_ne_bytes());
    // In a flow key, this bit of the TCI means "tag present". On the wire, it is the drop eligible indicator, which
    // must not be changed.
    let [high, low] = tci.mask;
    put(76, &[high & 0xef, low]);
    put(78, &tci.value);
    let (to, from) = (0..6, 6..12);
    put(80, &ethernet.mask[to.clone()]);
    put(88, &ethernet.mask[from.clone()]);
    put(96, &ethernet.value[to]);
    put(104, &ethernet.value[from]);
    let (tpid, pushed) = push.unwrap_or_default();
    put(112, &tpid.to_be_bytes());
    put(114, &pushed.to_be_bytes());
    put(116, &ports.mask);
    put(120, &ports.value);
    let ([tos_mask], [tos]) = (tos.mask, tos.value);
    let ([ttl_mask], [ttl]) = (ttl.mask, ttl.value);
    put(124, &[tos_mask, tos, ttl_mask, ttl]);
    put(128, &source.mask);
    put(144, &source.value);
    put(160, &destination.mask);
    put(176, &destination.value);
    bytes
}
