//! OpenFlow features that are tested with packets. Each case has rules in `ovs-ofctl` syntax, frames that are
//! sent into a bridge with four ports, and the frames that must leave.
//!
//! Two tests use the list. `daemon/tests/openflow_packets.rs` runs every case against the real binary and
//! fails if any frame differs. `openflow/tests/matrix.rs` writes the features into `docs/switch-matrix.md`,
//! where a feature without a case appears as "-".

mod actions;
mod fields;
mod frames;

use std::collections::BTreeSet;

pub use frames::MARK;

/// Number of ports of the bridge. Port numbers start at 1.
pub const PORTS: u8 = 4;

/// `ovs-ofctl` commands that run before all cases. The name of the bridge follows the first word.
pub const PREPARATION: [[&str; 2]; 1] = [[
    "add-tlv-map",
    "{class=0x100,type=0,len=8}->tun_metadata0,{class=0x101,type=0,len=8}->tun_metadata1,\
     {class=0x102,type=0,len=8}->tun_metadata2,{class=0x103,type=0,len=8}->tun_metadata3,\
     {class=0x104,type=0,len=8}->tun_metadata4,{class=0x105,type=0,len=8}->tun_metadata5,\
     {class=0x106,type=0,len=8}->tun_metadata6,{class=0x107,type=0,len=8}->tun_metadata7",
]];

/// A feature that a case proves. Corresponds to a row of `docs/switch-matrix.md`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Feature {
    /// The field is matched exactly. A frame with another value leaves by another port.
    Match(&'static str),
    /// The field is matched under a mask. A bit outside the mask makes no difference.
    Part(&'static str),
    /// The field is set. The frame that leaves, or the next table, has the new value.
    Set(&'static str),
    /// The action or instruction of this row is executed.
    Action(&'static str),
}

/// A test case: rules, input frames and expected output frames.
#[derive(Clone, Debug)]
pub struct PacketCase {
    /// Features that the case proves.
    pub proves: Vec<Feature>,
    /// OpenFlow version of the client, as in `ovs-ofctl -O`.
    pub version: &'static str,
    /// `ovs-ofctl` commands that run before the rules are added: command and argument.
    pub setup: Vec<(&'static str, String)>,
    /// Rules of the bridge. There are no other rules during the case.
    pub flows: Vec<String>,
    /// Frames in the order in which they are sent.
    pub steps: Vec<Step>,
}

/// An input frame and its expected effects.
#[derive(Clone, Debug)]
pub struct Step {
    /// Port on which the frame is received.
    pub port: u8,
    /// The frame, which begins with the Ethernet header. It contains [`MARK`].
    pub frame: Vec<u8>,
    /// Number of times that the frame is sent, back to back.
    pub times: usize,
    /// All frames that leave, with their ports. The order between ports is not significant.
    pub leaves: Vec<(u8, Vec<u8>)>,
    /// Part of a line that `ovs-ofctl monitor` prints.
    pub packet_in: Option<String>,
    /// Match for `ovs-ofctl dump-flows`, and part of a line that the command prints after the step.
    pub shown: Option<(&'static str, &'static str)>,
}

impl PacketCase {
    /// Returns a case in OpenFlow 1.5 without set-up commands.
    fn new(proves: &[Feature], flows: &[&str], steps: Vec<Step>) -> PacketCase {
        let flows = flows.iter().map(|flow| (*flow).to_owned()).collect();
        PacketCase { proves: proves.to_vec(), version: "OpenFlow15", setup: Vec::new(), flows, steps }
    }
}

impl Step {
    /// Returns the step of a frame that is sent once.
    fn new(port: u8, frame: &[u8], leaves: &[(u8, &[u8])]) -> Step {
        let leaves = leaves.iter().map(|(port, frame)| (*port, frame.to_vec())).collect();
        Step { port, frame: frame.to_vec(), times: 1, leaves, packet_in: None, shown: None }
    }
}

/// Returns all cases.
#[must_use]
pub fn all() -> Vec<PacketCase> {
    let mut cases = fields::cases();
    cases.extend(actions::cases());
    cases
}

/// Returns the features of all cases.
#[must_use]
pub fn features() -> BTreeSet<Feature> {
    all().into_iter().flat_map(|case| case.proves).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_bears_the_mark_and_every_step_has_a_consequence() {
        for case in all() {
            assert!(!case.proves.is_empty() && !case.flows.is_empty() && !case.steps.is_empty(), "{case:?}");
            for step in &case.steps {
                let frames = step.leaves.iter().map(|(_, frame)| frame).chain([&step.frame]);
                for frame in frames {
                    assert!(frame.windows(MARK.len()).any(|part| part == MARK), "{case:?}");
                    assert!((60..=1514).contains(&frame.len()), "{case:?}");
                }
                assert!(!step.leaves.is_empty() || step.packet_in.is_some(), "{case:?}");
            }
        }
    }
}
