//! OpenFlow features that are tested with packets. Each case consists of flow entries in `ovs-ofctl` syntax,
//! frames that are sent into a bridge with four ports, and the frames that must leave the bridge.
//!
//! Two tests use the list of cases. `daemon/tests/openflow_packets.rs` runs every case with the real binary
//! and fails if any frame differs. `openflow/tests/matrix.rs` writes the features into
//! `docs/switch-matrix.md`, where a feature without a case appears as "-".

mod actions;
mod fields;
mod frames;

use std::collections::BTreeSet;

pub use frames::MARK;

/// Number of ports of the bridge. The port numbers start at 1.
pub const PORTS: u8 = 4;

/// `ovs-ofctl` commands that run before all cases. The caller inserts the name of the bridge after the first word of
/// each command.
pub const PREPARATION: [[&str; 2]; 1] = [[
    "add-tlv-map",
    "{class=0x100,type=0,len=8}->tun_metadata0,{class=0x101,type=0,len=8}->tun_metadata1,\
     {class=0x102,type=0,len=8}->tun_metadata2,{class=0x103,type=0,len=8}->tun_metadata3,\
     {class=0x104,type=0,len=8}->tun_metadata4,{class=0x105,type=0,len=8}->tun_metadata5,\
     {class=0x106,type=0,len=8}->tun_metadata6,{class=0x107,type=0,len=8}->tun_metadata7",
]];

/// A feature that a case tests. Each feature corresponds to a row of `docs/switch-matrix.md`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Feature {
    /// Exact match on the field with this name. A frame with another value must leave through another port.
    Match(&'static str),
    /// Masked match on the field with this name. A bit outside the mask must make no difference.
    Part(&'static str),
    /// Action that sets the field with this name. The frame that leaves, or the next table, must have the new value.
    Set(&'static str),
    /// Execution of the action or instruction that the text names.
    Action(&'static str),
}

/// A test case: flow entries, input frames and expected output frames.
#[derive(Clone, Debug)]
pub struct PacketCase {
    /// Features that the case tests.
    pub proves: Vec<Feature>,
    /// OpenFlow version of the client, as in `ovs-ofctl -O`.
    pub version: &'static str,
    /// `ovs-ofctl` commands that run before the flow entries are added. Each consists of the name of the command and an
    /// argument.
    pub setup: Vec<(&'static str, String)>,
    /// Flow entries of the bridge. The bridge has no other flow entries during the case.
    pub flows: Vec<String>,
    /// Input frames of the case, in the order in which they are sent.
    pub steps: Vec<Step>,
}

/// An input frame and the effects that the test expects.
#[derive(Clone, Debug)]
pub struct Step {
    /// Port of the bridge on which the frame is received.
    pub port: u8,
    /// Bytes of the frame from the Ethernet header on. The frame contains [`MARK`].
    pub frame: Vec<u8>,
    /// Number of times that the frame is sent, without pauses.
    pub times: usize,
    /// All frames that must leave the bridge, each with its output port. The order of frames on different ports is
    /// arbitrary.
    pub leaves: Vec<(u8, Vec<u8>)>,
    /// Text that one line of the output of `ovs-ofctl monitor` must contain. `None`: the output is not
    /// checked.
    pub packet_in: Option<String>,
    /// Match for `ovs-ofctl dump-flows`, and a text that one line of its output after the step must contain. `None`:
    /// the flow entries are not checked.
    pub shown: Option<(&'static str, &'static str)>,
}

impl PacketCase {
    /// Returns a case that uses OpenFlow 1.5 and has no set-up commands.
    fn new(proves: &[Feature], flows: &[&str], steps: Vec<Step>) -> PacketCase {
        let flows = flows.iter().map(|flow| (*flow).to_owned()).collect();
        PacketCase { proves: proves.to_vec(), version: "OpenFlow15", setup: Vec::new(), flows, steps }
    }
}

impl Step {
    /// Returns a step that sends the frame once.
    fn new(port: u8, frame: &[u8], leaves: &[(u8, &[u8])]) -> Step {
        let leaves = leaves.iter().map(|(port, frame)| (*port, frame.to_vec())).collect();
        Step { port, frame: frame.to_vec(), times: 1, leaves, packet_in: None, shown: None }
    }
}

/// Returns all test cases.
#[must_use]
pub fn all() -> Vec<PacketCase> {
    let mut cases = fields::cases();
    cases.extend(actions::cases());
    cases
}

/// Returns the features that the cases test.
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
