//! Time-outs of connections by protocol and state, and policies that replace the defaults.
//!
//! | RFC | requirement | default here |
//! |---|---|---|
//! | 5382 REQ-5 | TCP established: at least 2 h 4 min | 2 h 4 min |
//! | 5382 REQ-5 | TCP partially open or closing: at least 4 min | 4 min |
//! | 4787 REQ-5 | UDP: at least 2 min, 5 min recommended | 5 min, 2 min without an answer |
//! | 5508 REQ-2 | ICMP queries: at least 60 s | 60 s |
//!
//! RFC 5382 states no time-out for connections that an end has reset. The default is 10 s, as in Linux. The names are
//! the keys of `CT_Timeout_Policy` in Open vSwitch's database, where Open vSwitch has the state.

use crate::tcp;

/// Longest time-out in milliseconds, 24.8 days. The times of a table are ordered within this distance.
pub const LONGEST_TIMEOUT: u32 = i32::MAX.unsigned_abs();

/// State of a connection that has a time-out of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Timeout {
    /// TCP: one end has sent a SYN, or the connection was picked up and the other end has not replied.
    TcpSynSent,
    /// TCP: both ends have sent a SYN.
    TcpSynReceived,
    /// TCP: the handshake is complete.
    TcpEstablished,
    /// TCP: one end has sent a FIN that is not acknowledged.
    TcpFinWait,
    /// TCP: one end has sent a FIN that is acknowledged.
    TcpCloseWait,
    /// TCP: both ends have sent a FIN.
    TcpLastAck,
    /// TCP: both ends have sent a FIN that is acknowledged.
    TcpTimeWait,
    /// TCP: an end has reset the connection.
    TcpClosed,
    /// UDP: one end has sent one datagram.
    UdpFirst,
    /// UDP: one end has sent several datagrams, and the other end none.
    UdpSingle,
    /// UDP: both ends have sent datagrams.
    UdpMultiple,
    /// ICMP and ICMPv6: no reply was seen.
    IcmpFirst,
    /// ICMP and ICMPv6: a reply was seen.
    IcmpReply,
    /// SCTP: the handshake is not complete.
    SctpOpening,
    /// SCTP: the handshake is complete.
    SctpEstablished,
    /// SCTP: an end has begun to shut the association down.
    SctpClosing,
    /// SCTP: the association is shut down or aborted.
    SctpClosed,
    /// Other protocols: the other end has not replied.
    OtherFirst,
    /// Other protocols: both ends have sent packets.
    OtherMultiple,
}

impl Timeout {
    /// All states with their names and default time-outs in seconds, in the order of the numbers of the states.
    const TABLE: [(Timeout, &'static str, u32); 19] = [
        (Timeout::TcpSynSent, "tcp_syn_sent", 240),
        (Timeout::TcpSynReceived, "tcp_syn_recv", 240),
        (Timeout::TcpEstablished, "tcp_established", 7440),
        (Timeout::TcpFinWait, "tcp_fin_wait", 240),
        (Timeout::TcpCloseWait, "tcp_close_wait", 240),
        (Timeout::TcpLastAck, "tcp_last_ack", 240),
        (Timeout::TcpTimeWait, "tcp_time_wait", 240),
        (Timeout::TcpClosed, "tcp_close", 10),
        (Timeout::UdpFirst, "udp_first", 120),
        (Timeout::UdpSingle, "udp_single", 120),
        (Timeout::UdpMultiple, "udp_multiple", 300),
        (Timeout::IcmpFirst, "icmp_first", 60),
        (Timeout::IcmpReply, "icmp_reply", 60),
        (Timeout::SctpOpening, "sctp_opening", 60),
        (Timeout::SctpEstablished, "sctp_established", 7440),
        (Timeout::SctpClosing, "sctp_closing", 60),
        (Timeout::SctpClosed, "sctp_closed", 10),
        (Timeout::OtherFirst, "other_first", 60),
        (Timeout::OtherMultiple, "other_multiple", 600),
    ];

    /// Returns all states.
    pub fn all() -> impl Iterator<Item = Timeout> {
        Timeout::TABLE.into_iter().map(|(state, _, _)| state)
    }

    /// Returns the name of the time-out.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Timeout::TABLE[self as usize].1
    }

    /// Returns the state whose time-out has this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Timeout> {
        Timeout::all().find(|state| state.name() == name)
    }

    /// Returns the default time-out in seconds.
    #[must_use]
    pub const fn default_seconds(self) -> u32 {
        Timeout::TABLE[self as usize].2
    }

    /// Returns the state of a TCP connection for its time-out.
    #[must_use]
    pub const fn of_tcp(state: tcp::State) -> Timeout {
        match state {
            tcp::State::SynSent => Timeout::TcpSynSent,
            tcp::State::SynReceived => Timeout::TcpSynReceived,
            tcp::State::Established => Timeout::TcpEstablished,
            tcp::State::FinWait => Timeout::TcpFinWait,
            tcp::State::CloseWait => Timeout::TcpCloseWait,
            tcp::State::Closing | tcp::State::LastAck => Timeout::TcpLastAck,
            tcp::State::TimeWait => Timeout::TcpTimeWait,
            tcp::State::Closed => Timeout::TcpClosed,
        }
    }
}

/// A time-out policy: the time-outs of all states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts([u32; Timeout::TABLE.len()]);

impl Timeouts {
    /// Returns the time-out of a state in milliseconds.
    #[inline]
    #[must_use]
    pub const fn get(&self, state: Timeout) -> u32 {
        self.0[state as usize]
    }

    /// Sets the time-out of a state in seconds. A time-out of 0 becomes 1 s, and one of more than [`LONGEST_TIMEOUT`]
    /// becomes [`LONGEST_TIMEOUT`].
    pub fn set(&mut self, state: Timeout, seconds: u32) {
        self.0[state as usize] = seconds.max(1).saturating_mul(1000).min(LONGEST_TIMEOUT);
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts(Timeout::TABLE.map(|(_, _, seconds)| seconds * 1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_meet_the_rfcs() {
        let at_least = |seconds: u32, names: &str| {
            for name in names.split(' ') {
                assert!(Timeout::from_name(name).unwrap().default_seconds() >= seconds, "{name}");
            }
        };
        at_least(2 * 3600 + 4 * 60, "tcp_established");
        at_least(4 * 60, "tcp_syn_sent tcp_syn_recv tcp_fin_wait tcp_close_wait tcp_last_ack tcp_time_wait");
        at_least(2 * 60, "udp_first udp_single udp_multiple");
        at_least(60, "icmp_first icmp_reply");
    }

    #[test]
    fn each_state_has_its_own_row() {
        for (number, (state, name, seconds)) in Timeout::TABLE.into_iter().enumerate() {
            assert_eq!((state as usize, state.name()), (number, name));
            assert_eq!(Timeouts::default().get(state), seconds * 1000);
        }
    }

    #[test]
    fn extreme_time_outs_are_limited() {
        let mut timeouts = Timeouts::default();
        timeouts.set(Timeout::UdpFirst, 0);
        timeouts.set(Timeout::UdpSingle, u32::MAX);
        assert_eq!(
            (timeouts.get(Timeout::UdpFirst), timeouts.get(Timeout::UdpSingle)),
            (1000, LONGEST_TIMEOUT)
        );
    }
}
