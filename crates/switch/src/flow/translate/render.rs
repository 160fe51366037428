//! Execution of the steps of an unfinished program on the frame of the packet, and an estimate of the work of this
//! execution.
//!
//! A translation needs the resulting frame for packet-ins, and to parse the header that follows a removed header.

use crate::flow::program::Op;
use crate::flow::{Field, rewrite};

/// Number of octets of a frame whose copying, moving or reading counts as one unit in the work limit of a
/// translation.
const FRAME_WORK: usize = 2048;
/// Number of steps whose execution counts as one unit in the work limit of a translation.
const STEPS_WORK: usize = 16;

/// Executes datapath actions on a frame. Actions that apply to copies of the packet are skipped.
pub(super) fn render(frame: &mut Vec<u8>, ops: &[Op]) {
    for op in on_packet(ops) {
        // Steps that fail are skipped.
        let _ = rewrite::apply(frame, op);
    }
}

/// Returns the work of executing datapath actions on a frame of `length` octets, in the unit of the work limit of a
/// packet's translation. `is_copied` states whether the frame is copied first.
///
/// Steps that add or remove a header move the whole frame, and a step that sets SCTP ports may read the whole frame.
pub(super) fn work_to_render(length: usize, is_copied: bool, ops: &[Op]) -> u32 {
    let mut length = length;
    let mut passed = if is_copied { length } else { 0 };
    for op in on_packet(ops) {
        length += match op {
            Op::PushPbb(..) => 18,
            Op::PushVlan(..) | Op::PushMpls(..) => 4,
            _ => 0,
        };
        let passes = match op {
            Op::PushPbb(..) | Op::PushVlan(..) | Op::PushMpls(..) => true,
            Op::PopPbb | Op::PopVlan | Op::PopMpls(_) => true,
            Op::Set(bits) => [Field::TcpSrc, Field::TcpDst].iter().any(|port| bits.mask.get(*port) != 0),
            _ => false,
        };
        passed += if passes { length } else { 0 };
    }
    u32::try_from(ops.len() / STEPS_WORK + passed / FRAME_WORK).unwrap_or(u32::MAX)
}

/// Returns the steps that apply to the packet itself, without the steps that apply to a copy of the packet.
fn on_packet(ops: &[Op]) -> impl Iterator<Item = &Op> {
    let mut left = ops.iter();
    std::iter::from_fn(move || {
        loop {
            match left.next()? {
                Op::Clone(0) => {}
                Op::Clone(n) => {
                    left.nth(usize::from(*n) - 1);
                }
                op => return Some(op),
            }
        }
    })
}
