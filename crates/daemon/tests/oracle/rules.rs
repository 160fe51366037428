//! Permitted differences between a Trivium router and the kernel, with reasons. `docs/router.md` also lists these
//! differences.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use packet::{FlowKey, L3Kind, PortId, checksum, ip_proto};

use super::Output;

macro_rules! rules {
    ($($variant:ident = $name:literal, $reason:literal, $evens_out:expr;)+) => {
        /// A permitted difference.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Rule {
            $($variant,)+
        }

        impl Rule {
            pub fn name(self) -> &'static str {
                match self { $(Rule::$variant => $name,)+ }
            }

            pub fn reason(self) -> &'static str {
                match self { $(Rule::$variant => $reason,)+ }
            }

            /// Returns the rules that together explain why the outputs for one frame differ, or `None` if no
            /// combination of rules does.
            pub fn that_explain(mut kernel: Vec<Output>, mut ours: Vec<Output>) -> Option<Vec<Rule>> {
                let mut rules = Vec::new();
                $(if kernel != ours {
                    let evens_out: fn(&mut Vec<Output>, &mut Vec<Output>) = $evens_out;
                    let before = (kernel.clone(), ours.clone());
                    evens_out(&mut kernel, &mut ours);
                    kernel.sort();
                    ours.sort();
                    if (&before.0, &before.1) != (&kernel, &ours) {
                        rules.push(Rule::$variant);
                    }
                })+
                (kernel == ours).then_some(rules)
            }
        }
    };
}

rules! {
    Redirect = "redirect", "what leaves by the port that it came by is forwarded without telling the sender",
        |kernel, ours| {
            for outputs in [kernel, ours] {
                outputs.retain(|(_, frame)| !(is_own(frame) && icmpv6(frame) == Some(137)));
            }
        };
    ErrorSource = "error-source",
        "an ICMPv6 error about what a worker gave to the kernel comes from another of the router's addresses: by the kernel's \
        choice for the TAP that the packet entered by, not for the port",
        |kernel, ours| {
            for (_, frame) in kernel.iter_mut().chain(ours) {
                let is_error = icmpv6(frame).is_some_and(|kind| (1..=4).contains(&kind));
                if is_own(frame) && is_error && !is_workers(frame) && is_sound_icmpv6(frame) {
                    frame[22..38].fill(0);
                    frame[56..58].fill(0);
                }
            }
        };
    PartialChecksum = "partial-checksum",
        "a wrong TCP or UDP checksum that equals the sum of the pseudo-header is completed: AF_XDP does not tell it from \
        one that the sender left to its device",
        |kernel, ours| {
            for (_, frame) in kernel {
                let Some(at) = partial_checksum(frame) else { continue };
                let rest = |frame: &[u8]| [&frame[..at], &frame[at + 2..]].concat();
                let same = ours.iter_mut().filter(|(_, our)| our.len() == frame.len() && rest(our) == rest(frame));
                same.for_each(|(_, our)| our[at..at + 2].fill(0));
                frame[at..at + 2].fill(0);
            }
        };
    ErrorLimit = "error-limit",
        "the kernel sends a source no more than five ICMP errors for routes in a burst, and a worker has other limits",
        // Depends on earlier frames: `Errors`.
        |_, _| {};
}

/// Number of ICMP errors about missing routes that the kernel has sent, for each receiver of the errors.
#[derive(Clone, Default)]
pub struct Errors(BTreeMap<Ipv4Addr, u32>);

impl Errors {
    /// Number of errors that the kernel sends to a source in a burst (`/proc/sys/net/ipv4/route/error_burst`, divided
    /// by `error_cost`).
    const BURST: u32 = 5;

    /// Counts the ICMP errors about routes in the kernel's output for a frame.
    pub fn count(&mut self, kernel: &[Output]) {
        for receiver in kernel.iter().filter_map(|(_, frame)| error_for_route(frame)) {
            *self.0.entry(receiver).or_default() += 1;
        }
    }

    /// Returns whether a missing output of the kernel is explained by the rate limit of ICMP errors: the kernel has
    /// already sent the maximum number of errors to the source of the frame.
    pub fn explain(&self, kernel: &[Output], ours: &[Output]) -> bool {
        let [(_, error)] = ours else { return false };
        let sent = error_for_route(error).and_then(|receiver| self.0.get(&receiver)).copied();
        kernel.is_empty() && sent.is_some_and(|sent| sent >= Errors::BURST)
    }
}

/// Returns the receiver of an ICMPv4 error for a destination that has no route, or an unreachable or prohibit route.
/// Returns `None` for other frames.
fn error_for_route(frame: &[u8]) -> Option<Ipv4Addr> {
    let is_error = frame.get(12..15)? == [8, 0, 0x45]
        && frame.get(23) == Some(&1)
        && matches!(frame.get(34..36)?, [3, 0 | 1 | 13]);
    is_error.then(|| frame.get(30..34)?.first_chunk().map(|to: &[u8; 4]| Ipv4Addr::from(*to)))?
}

/// Returns the offset of the TCP or UDP checksum field if the field contains only the sum of the pseudo-header. Such a
/// checksum is incomplete, because the sender leaves the completion to checksum offloading.
fn partial_checksum(frame: &[u8]) -> Option<usize> {
    let mut key = FlowKey::ZERO;
    let at = FlowKey::extract(frame, frame.len(), PortId(0), &mut key).ok()?.l4()?;
    let (end, pseudo): (usize, _) = match key.l3_kind() {
        L3Kind::Ipv4 => {
            let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            let length = u16::try_from(end.checked_sub(at)?).ok()?;
            (end, checksum::l4_pseudo_v4(key.ipv4_src(), key.ipv4_dst(), key.proto(), length))
        }
        L3Kind::Ipv6 => {
            let end = 54 + usize::from(u16::from_be_bytes([frame[18], frame[19]]));
            let length = u32::try_from(end.checked_sub(at)?).ok()?;
            (end, checksum::l4_pseudo_v6(key.ipv6_src(), key.ipv6_dst(), key.proto(), length))
        }
        L3Kind::None | L3Kind::Arp => return None,
    };
    let at = at
        + match key.proto() {
            ip_proto::TCP => 16,
            ip_proto::UDP => 6,
            _ => return None,
        };
    let field = frame.get(at..at + 2).filter(|_| at + 2 <= end)?;
    (field == checksum::fold(pseudo).to_be_bytes()).then_some(at)
}

/// Returns the type of an ICMPv6 message that directly follows an IPv6 header.
fn icmpv6(frame: &[u8]) -> Option<u8> {
    (frame.get(12..14)? == [0x86, 0xdd] && frame[20] == 58).then(|| frame.get(54).copied())?
}

/// Returns whether a worker, and not the kernel, sends this kind of ICMPv6 error. A worker sends the error for a packet
/// without extension headers for which there is no route or a prohibit route. The test compares the source addresses of
/// such errors. If the route to the sender has an MTU, the kernel sends the error, because the kernel handles all
/// packets of such routes.
fn is_workers(frame: &[u8]) -> bool {
    const EXTENSIONS: [u8; 8] = [0, 43, 44, 50, 51, 60, 135, 139];
    let quoted = frame.get(68).copied();
    // The route of 2001:db8:2:8000::/49 has an MTU.
    let has_mtu = frame[38..44] == [0x20, 1, 0xd, 0xb8, 0, 2] && frame[44] & 0x80 != 0;
    let is_sent = frame[54] == 1 && frame[55] <= 1 && !has_mtu;
    is_sent && quoted.is_some_and(|next| !EXTENSIONS.contains(&next))
}

/// Returns whether the checksum of an ICMPv6 message is valid (RFC 4443, 2.3).
fn is_sound_icmpv6(frame: &[u8]) -> bool {
    let length = u32::try_from(frame.len() - 54).unwrap_or(0);
    checksum::finish(checksum::sum(&frame[22..]) + length + 58) == 0
}

/// Returns whether the source address of a frame is one of the router's own addresses.
fn is_own(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([8, 0]) => matches!(frame.get(26..30), Some([10, 1, 1 | 2, 1] | [10, 9, 9, 9])),
        Some([0x86, 0xdd]) => matches!(
            frame.get(22..38),
            Some(
                [0xfd, 0, 0, 1 | 2, .., 0, 1]
                    | [0x20, 1, 0xd, 0xb8, 0, 0x99, .., 0x99]
                    | [0xfe, 0x80, .., 0, 1]
            )
        ),
        _ => false,
    }
}

/// Returns whether the kernel sends this frame by itself at arbitrary times: address resolution (ARP, ND) and
/// multicast reports (MLD).
pub fn is_own_talk(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([8, 6]) => {
            frame.get(20..22) == Some(&[0, 1]) && matches!(frame.get(28..32), Some([10, 1, _, 1]))
        }
        Some([0x86, 0xdd]) if is_own(frame) || frame.get(22..38) == Some(&[0; 16]) => {
            let solicitation = frame.get(20) == Some(&58) && frame.get(54) == Some(&135);
            let report = frame.get(20) == Some(&0) && matches!(frame.get(62), Some(131 | 132 | 143));
            solicitation || report
        }
        _ => false,
    }
}

/// Returns a frame without the values that the kernel chooses at random for its own packets: the identification of IPv4
/// packets and of IPv6 fragments.
pub fn without_chance(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let header = frame.get(14).map_or(0, |first| usize::from(first & 0xf) * 4);
    let is_sound =
        |header: Option<&[u8]>| header.is_some_and(|header| checksum::finish(checksum::sum(header)) == 0);
    if !is_own(&frame) {
        return frame;
    }
    if frame[12..14] == [8, 0] && is_sound(frame.get(14..14 + header)) {
        frame[18..20].fill(0);
        frame[24..26].fill(0);
    } else if frame[12..14] == [0x86, 0xdd] && frame[20] == 44 && frame.len() >= 62 {
        frame[58..62].fill(0);
    }
    frame
}
