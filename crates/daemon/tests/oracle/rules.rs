//! Where a router of ours may differ from the kernel alone, and why: `docs/router.md` has the same list.

use packet::checksum;

use super::Output;

macro_rules! rules {
    ($($variant:ident = $name:literal, $reason:literal, $evens_out:expr;)+) => {
        /// An accepted difference.
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

            /// The rules that make what came of a frame equal, one after the other; `None` if they do not.
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
}

/// The type of an ICMPv6 message right behind an IPv6 header.
fn icmpv6(frame: &[u8]) -> Option<u8> {
    (frame.get(12..14)? == [0x86, 0xdd] && frame[20] == 58).then(|| frame.get(54).copied())?
}

/// Whether an ICMPv6 error is of those that a worker makes itself: no route, or one that refuses, for a packet without extension headers. Its
/// source is compared.
fn is_workers(frame: &[u8]) -> bool {
    const EXTENSIONS: [u8; 8] = [0, 43, 44, 50, 51, 60, 135, 139];
    let quoted = frame.get(68).copied();
    frame[54] == 1 && frame[55] <= 1 && quoted.is_some_and(|next| !EXTENSIONS.contains(&next))
}

/// Whether the checksum of an ICMPv6 message holds (RFC 4443, 2.3).
fn is_sound_icmpv6(frame: &[u8]) -> bool {
    let length = u32::try_from(frame.len() - 54).unwrap_or(0);
    checksum::finish(checksum::sum(&frame[22..]) + length + 58) == 0
}

/// The router's own addresses.
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

/// What the kernel says by itself when it likes: it asks for neighbours (ARP, ND), reports its groups (MLD).
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

/// A frame without what the kernel draws by lot where the packet is its own: the identification of an IPv4 packet and of an IPv6
/// packet's fragments.
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
