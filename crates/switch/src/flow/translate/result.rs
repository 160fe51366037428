//! Input and result of the translation of a packet.

use packet::DropReason;

use crate::flow::learned::LearnedFlow;
use crate::flow::message::Continuation;
use crate::flow::program::{Megaflow, Op, Program, SetBits, TrackStep};
use crate::flow::reason::Reason;
use crate::flow::rule::RuleRef;
use crate::flow::{Action, Flow};

/// Maximum number of trace events of one packet. Look-ups that add bits to the mask are recorded without this limit.
pub const TRACED: usize = 1024;

/// A copy of a packet for a controller.
#[derive(Clone, PartialEq, Debug)]
pub struct ToController {
    /// Reason of the packet-in.
    pub reason: Reason,
    /// Table of the flow entry that sends the copy.
    pub table: u8,
    /// Cookie of the flow entry that sends the copy.
    pub cookie: u64,
    /// Maximum number of octets of the frame to send.
    pub max_len: u16,
    /// Identifier of the controller that gets the copy.
    pub controller: u16,
    /// User data of the controller action.
    pub userdata: Vec<u8>,
    /// Flow of the packet at the time of the action, with registers and metadata.
    pub flow: Flow,
    /// Frame at the time of the action. The value is `None` if the packet was translated without a frame.
    pub frame: Option<Vec<u8>>,
    /// Remaining processing of the packet, if the packet is paused until its controller resumes it.
    pub continuation: Option<Box<Continuation>>,
}

/// One event of a translation, for trace reports.
#[derive(Clone, PartialEq, Debug)]
pub enum Trace {
    /// A look-up in a table.
    Lookup {
        /// Depth of nested resubmits at which the table was looked up.
        depth: u32,
        /// Table of the look-up.
        table: u8,
        /// Rule that matched. The value is `None` if no rule matched.
        rule: Option<RuleRef>,
        /// Bits that the look-up added to the mask of the result.
        bits: Box<Flow>,
    },
    /// An action that was executed.
    Did {
        /// Depth of nested resubmits at which the action was executed.
        depth: u32,
        /// Action that was executed.
        action: Box<Action>,
    },
    /// Bits that an action added to the mask of the result.
    Needs {
        /// Table of the flow entry that contains the action.
        table: u8,
        /// Action that depends on the bits.
        action: Box<Action>,
        /// Bits that the action added to the mask of the result.
        bits: Box<Flow>,
    },
    /// Text of a remark, with the depth of nested resubmits.
    Note(u32, &'static str),
    /// An instruction other than `apply_actions`, with the depth of nested resubmits and its result in words.
    Instruction(u32, String, Option<String>),
    /// A bucket of a group that was executed, with the depth of nested resubmits and groups and the index of the
    /// bucket. The bucket's actions follow one level deeper.
    Bucket(u32, usize),
    /// The execution of the action set, with the depth of nested resubmits.
    ActionSet(u32),
    /// Flow of the packet after all actions. Changes to copies of the packet are not included.
    End(Box<Flow>),
}

/// The reason why a translation was aborted. The packet is dropped, and the results up to this point are
/// discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// Look-ups of the same or an earlier table are nested too deep.
    Depth,
    /// The limit of table look-ups for one packet was exceeded.
    Lookups,
}

impl Failed {
    /// Returns the reason in Open vSwitch's words.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Failed::Depth => "Recursion too deep",
            Failed::Lookups => "Too many resubmits",
        }
    }
}

/// The result of translating a packet. See the module documentation.
#[derive(Clone, PartialEq, Debug)]
pub struct Translated {
    /// Datapath actions of the packet.
    pub program: Program,
    /// Mask of the packet's bits that the result depends on.
    pub mask: Flow,
    /// Rules that matched, in order of the look-ups. The packet is counted for each of these rules.
    pub rules: Vec<RuleRef>,
    /// Numbers of the tables in which no rule matched.
    pub missed: Vec<u8>,
    /// Numbers of the groups that the packet used, each with the index of the executed bucket.
    pub groups: Vec<(u32, usize)>,
    /// Bitmap of the tables that were looked up, with one bit for each table.
    pub tables: [u64; 4],
    /// Whether the first table was looked up more than once, possibly with a changed flow.
    pub first_again: bool,
    /// Copies of the packet for controllers.
    pub to_controller: Vec<ToController>,
    /// Flow entries that the `learn` actions of the packet add.
    pub learns: Vec<LearnedFlow>,
    /// Rules whose time-outs the packet shortens (`fin_timeout`), with the new idle and hard time-outs in seconds.
    pub fin: Vec<(RuleRef, u16, u16)>,
    /// Drop reason, which applies if the packet is not output.
    pub dropped: DropReason,
    /// Reason why the translation was aborted. The value is `None` if the translation was not
    /// aborted.
    pub failed: Option<Failed>,
    /// Whether the result applies only to this packet and must not be cached.
    pub is_own: bool,
    /// Work of the translation: the number of actions, buckets, masks of tables and operations of similar cost that
    /// were executed or visited.
    pub(in crate::flow) work: u32,
    /// Whether look-ups were nested too deep for the stack. If so, the other fields are invalid.
    pub(super) is_cut: bool,
    /// Trace events, if requested: the first [`TRACED`] events, and all look-ups that added bits to the mask.
    pub trace: Vec<Trace>,
    /// Number of additional trace events that were not recorded.
    pub unrecorded: usize,
}

impl Translated {
    /// Returns whether a megaflow of the result may be cached.
    #[must_use]
    pub fn is_cacheable(&self) -> bool {
        !self.is_own && self.to_controller.is_empty()
    }

    /// Returns the approximate size of the result in memory, in octets.
    #[must_use]
    pub fn memory(&self) -> usize {
        let steps = self.program.ops.iter().map(|op| match op {
            Op::Set(_) => size_of::<Op>() + size_of::<SetBits>(),
            Op::Track(_) => size_of::<Op>() + size_of::<TrackStep>(),
            Op::Recirculate(to) => size_of::<Op>() + to.state.memory(),
            _ => size_of::<Op>(),
        });
        let told = self.to_controller.iter().map(|to| {
            let left = to.continuation.as_ref().map_or(0, |left| left.memory());
            size_of::<ToController>() + to.userdata.len() + to.frame.as_ref().map_or(0, Vec::len) + left
        });
        size_of::<Translated>()
            + steps.sum::<usize>()
            + told.sum::<usize>()
            + size_of_val(&self.rules[..])
            + size_of_val(&self.missed[..])
            + size_of_val(&self.groups[..])
            + self.learns.iter().map(LearnedFlow::memory).sum::<usize>()
    }

    /// Returns the megaflow for the workers' caches. `arrived` is the flow of the packet on arrival. Returns `None`
    /// if the result must not be cached.
    #[must_use]
    pub fn megaflow(&self, arrived: &Flow) -> Option<Megaflow> {
        self.is_cacheable().then(|| Megaflow {
            flow: arrived.masked(&self.mask),
            mask: self.mask,
            program: self.program.clone(),
        })
    }
}

/// A packet to translate.
#[derive(Clone, Copy, Debug)]
pub struct TranslationInput<'a> {
    /// Flow of the packet on arrival.
    pub flow: &'a Flow,
    /// Frame of the packet. If the frame is `None`, a translation that needs the frame uses only the fields of the
    /// flow key.
    pub frame: Option<&'a [u8]>,
    /// Whether trace events are recorded.
    pub trace: bool,
}
