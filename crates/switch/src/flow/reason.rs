//! Reasons of packet-ins.

/// The reason why a packet is sent to controllers (OFPR_* of OpenFlow 1.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Reason {
    /// No other flow entry matched the packet, and the table-miss flow entry sent the packet to controllers.
    NoMatch = 0,
    /// An output action sent the packet to controllers.
    Action = 1,
    /// The TTL of the packet expired.
    InvalidTtl = 2,
    /// An output action in the action set sent the packet to controllers.
    ActionSet = 3,
    /// An output action in a bucket of a group sent the packet to controllers.
    Group = 4,
    /// An output action of a packet-out sent the packet to controllers.
    PacketOut = 5,
    /// The table-miss flow entry, which has priority 0 and no conditions, sent the packet to
    /// controllers. The reason is reported as `NoMatch` since OpenFlow 1.3, and as `Action` in
    /// earlier versions.
    MissRule = 7,
    /// No flow entry matched, not even a table-miss flow entry. The reason is reported as `NoMatch`
    /// to controllers that use an OpenFlow version before 1.3, and not reported to other
    /// controllers.
    Miss = 8,
}

impl Reason {
    /// Returns the OFPR_* reason number whose bit enables this reason in a controller's asynchronous configuration.
    #[must_use]
    pub const fn asked_as(self) -> u8 {
        match self {
            Reason::MissRule | Reason::Miss => Reason::NoMatch as u8,
            other => other as u8,
        }
    }
}
