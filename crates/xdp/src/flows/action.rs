//! What is done to a flow's packets, and the flow as the hook reads it: `struct flow_entry`.

/// New values for octets: those bits of `value` that `mask` has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bits<const N: usize> {
    /// The octets, in the order of the wire.
    pub value: [u8; N],
    /// Which bits of them.
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

/// What the hook does to a packet, in this order: headers are written, the tag it came with goes, another comes, it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowAction {
    /// The number of the port by which it leaves; `None`: it is dropped, unless it is `normal`.
    pub port: Option<u16>,
    /// It leaves where the bridge knows its station, and nothing else is done to it.
    pub normal: bool,
    /// Ethernet addresses: destination, source.
    pub ethernet: Bits<12>,
    /// The TCI of the tag that it came with, if it did.
    pub tci: Bits<2>,
    /// Source address; of IPv4 the first four octets.
    pub source: Bits<16>,
    /// Destination address.
    pub destination: Bits<16>,
    /// TOS or traffic class.
    pub tos: Bits<1>,
    /// TTL or hop limit.
    pub ttl: Bits<1>,
    /// Ports of TCP or UDP: source, destination.
    pub ports: Bits<4>,
    /// Whether the tag that it came with is taken off. Only for flows that have one.
    pub pop: bool,
    /// TPID and TCI of a tag that is put on.
    pub push: Option<(u16, u16)>,
}

/// Octets of `struct flow_entry`.
pub(crate) const ENTRY_BYTES: usize = 256;
/// `enum flow_does`
pub(crate) const DROPS: u32 = 1;
pub(crate) const POPS: u32 = 2;
pub(crate) const PUSHES: u32 = 4;
pub(crate) const SETS_IP: u32 = 8;
pub(crate) const NORMAL: u32 = 16;

/// A flow in the order of the kernel's side.
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
    // The bit that says "tag present" is drop eligibility on the wire, and stays.
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
