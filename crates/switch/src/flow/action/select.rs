//! Hashes and algorithms with which `multipath` and `bundle` select a link or a port.

/// Header fields that the hash of a `multipath` or `bundle` action covers (ovs-actions(7)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashFields {
    /// Hashes the Ethernet source address.
    EthSrc,
    /// Hashes L2 to L4 fields, with equal hashes for both directions of a connection.
    SymmetricL4,
    /// Hashes L3 and L4 fields (TCP and SCTP ports), with equal hashes for both directions of a connection.
    SymmetricL3L4,
    /// Hashes L3 and L4 fields including UDP ports, with equal hashes for both directions of a connection.
    SymmetricL3L4Udp,
    /// Hashes the IP source address.
    NwSrc,
    /// Hashes the IP destination address.
    NwDst,
    /// Hashes L3 fields, with equal hashes for both directions of a connection.
    SymmetricL3,
}

/// Algorithm with which `multipath` or `bundle` selects a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BundleMode {
    /// `multipath`: hash modulo the number of links.
    Modulo,
    /// `multipath`: hash threshold (RFC 2992).
    Threshold,
    /// `multipath` and `bundle`: highest random weight (Thaler and Ravishankar, 1998).
    Weight,
    /// `multipath`: hashes repeatedly until the result is the number of a link (`iter_hash`).
    Iterative,
    /// `bundle`: the first port that is up.
    ActiveBackup,
}
