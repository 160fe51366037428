//! From a packet to its fate: follows the rules through the tables, and notes on the way which bits of the packet that depends on.
//!
//! What comes out is a [`Program`] and a mask: every packet that equals this one in the mask's bits meets the same fate, so the
//! workers may keep both as one cached flow. Bits that an action has overwritten depend on the packet no more; those that moved
//! with a tag are noted where they came from.
//!
//! Header changes are not written at once: they collect in the flow, and become one step in front of the next output. What cannot be
//! foreseen from the key (what is behind a label taken off, a packet's length) makes the fate of this packet one of its own
//! ([`Translated::is_own`]): it is not cached.

mod actions;
mod ahead;
mod choose;
mod learn;
mod wait;

use std::collections::BTreeMap;
use std::sync::Arc;

use packet::DropReason;

pub use ahead::Ahead;
use ahead::Seen;

use super::action::port;
use super::lessons::Lesson;
use super::message::{Continuation, Fragments, Miss, Reason, Rest};
use super::pipeline::{Pipeline, VISIBLE_TABLES};
use super::program::{Megaflow, Op, Program, SetBits};
use super::rewrite;
use super::rule::RuleRef;
use super::{Action, Field, Flow, Instructions, Match, Prerequisite, packet_meets};

/// Look-ups inside look-ups of the same or an earlier table, at most (as Open vSwitch).
const MAX_DEPTH: u32 = 64;
/// Look-ups for one packet, at most (as Open vSwitch).
const MAX_LOOKUPS: u32 = 4096;
/// Look-ups inside look-ups, to any table, for which the stack of any thread suffices.
const MAX_NESTED: u32 = 192;
/// Octets of stack for translations in which more look-ups stand inside look-ups: up to `MAX_LOOKUPS`, at some 4 KiB each.
const DEEP_STACK: usize = 64 << 20;
/// Steps of a program, at most.
const MAX_OPS: usize = 4096;
/// Actions, buckets and what takes as long as they do for one packet, at most.
const MAX_WORK: u32 = 65_536;
/// Copies for controllers and rules that are taught, of one packet, at most.
const MAX_TOLD: usize = 256;
/// OFPPC_NO_PACKET_IN.
const NO_PACKET_IN: u32 = 64;
/// The cookie of packets to controllers that come from no rule.
const NO_COOKIE: u64 = u64::MAX;
/// Values on the stack, at most.
const MAX_STACK: usize = 1024;

/// A packet that goes to a controller.
#[derive(Clone, PartialEq, Debug)]
pub struct ToController {
    /// Why.
    pub reason: Reason,
    /// Table of the rule.
    pub table: u8,
    /// Cookie of the rule.
    pub cookie: u64,
    /// Octets that are sent.
    pub max_len: u16,
    /// Which controller.
    pub controller: u16,
    /// Of the action.
    pub userdata: Vec<u8>,
    /// Registers and metadata as they were.
    pub flow: Flow,
    /// The frame as it was then; none where there was none to begin with.
    pub frame: Option<Vec<u8>>,
    /// What is left to be done when the controller says so.
    pub continuation: Option<Box<Continuation>>,
}

/// Things that are told of one packet, besides those that asked for bits.
pub const TRACED: usize = 1024;

/// One thing that happened, for whoever asks why.
#[derive(Clone, PartialEq, Debug)]
pub enum Trace {
    /// A look-up, the bits of the packet that it added to the mask, and what it found.
    Lookup {
        /// Depth of resubmits.
        depth: u32,
        /// Table.
        table: u8,
        /// The rule that was met.
        rule: Option<RuleRef>,
        /// Bits that the answer depends on and that were not looked at before.
        bits: Box<Flow>,
    },
    /// An action that was done.
    Did {
        /// Depth of resubmits.
        depth: u32,
        /// Which.
        action: Box<Action>,
    },
    /// Bits of the packet that an action has asked for, and that were not looked at before.
    Needs {
        /// Table of the rule.
        table: u8,
        /// Which action.
        action: Box<Action>,
        /// The bits.
        bits: Box<Flow>,
    },
    /// In words.
    Note(u32, &'static str),
    /// An instruction besides `apply_actions` was done, and what it led to, in words.
    Instruction(u32, String, Option<String>),
    /// The bucket of this place of a group was gone by; its actions follow one level deeper.
    Bucket(u32, usize),
    /// The action set is done.
    ActionSet(u32),
    /// The packet as it was at the end, copies aside.
    End(Box<Flow>),
}

/// Why a packet was followed no further, and is dropped whatever was decided before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// Look-ups inside look-ups of the same or an earlier table are too many.
    Depth,
    /// Look-ups are too many.
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

/// A packet's fate. See the module documentation.
#[derive(Clone, PartialEq, Debug)]
pub struct Translated {
    /// What is done to it.
    pub program: Program,
    /// The bits that this depends on.
    pub mask: Flow,
    /// Rules that it met, in order; each gets the packet's count.
    pub rules: Vec<RuleRef>,
    /// Tables in which it met none.
    pub missed: Vec<u8>,
    /// Groups and the places of their buckets that it went by.
    pub groups: Vec<(u32, usize)>,
    /// A bit for each table that was looked at.
    pub tables: [u64; 4],
    /// The first table was looked at again, by then with another flow maybe.
    pub first_again: bool,
    /// Copies for controllers.
    pub to_controller: Vec<ToController>,
    /// Rules that it teaches.
    pub learns: Vec<Lesson>,
    /// Rules whose time-outs it shortens: idle, hard.
    pub fin: Vec<(RuleRef, u16, u16)>,
    /// Why it goes nowhere, when it does.
    pub dropped: DropReason,
    /// Why it was followed no further, where that is why it is dropped.
    pub failed: Option<Failed>,
    /// Only this packet meets it: the flow must not be cached.
    pub is_own: bool,
    /// Look-ups are nested too deep for the stack; nothing else of this counts.
    is_cut: bool,
    /// What happened, if somebody asked: the first [`TRACED`] things, and all that asked for bits.
    pub trace: Vec<Trace>,
    /// What else happened: so many things.
    pub untold: usize,
}

impl Translated {
    /// Whether a flow of it may be kept in caches.
    #[must_use]
    pub fn is_cacheable(&self) -> bool {
        !self.is_own && self.to_controller.is_empty()
    }

    /// Octets of memory that the fate takes, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        let steps = self.program.ops.iter().map(|op| match op {
            Op::Set(_) => size_of::<Op>() + size_of::<SetBits>(),
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
    }

    /// The flow for the caches, when it may be kept.
    #[must_use]
    pub fn megaflow(&self, arrived: &Flow) -> Option<Megaflow> {
        self.is_cacheable().then(|| Megaflow {
            flow: arrived.masked(&self.mask),
            mask: self.mask,
            program: self.program.clone(),
        })
    }
}

/// Does steps to a frame; what is done to copies only is left out.
fn render(frame: &mut Vec<u8>, ops: &[Op]) {
    let mut at = 0;
    while at < ops.len() {
        if let Op::Clone(n) = ops[at] {
            at += usize::from(n);
        } else {
            // What cannot be done is not done for the others either.
            let _ = rewrite::apply(frame, &ops[at]);
        }
        at += 1;
    }
}

/// What a packet is, to be translated.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Its flow as it came in.
    pub flow: &'a Flow,
    /// Its frame, where there is one: without, flows that need it are followed as far as their key leads.
    pub frame: Option<&'a [u8]>,
    /// Whether what happens is written down.
    pub trace: bool,
}

impl Pipeline {
    /// Follows a packet through the tables. Nothing is changed or counted.
    #[must_use]
    pub fn translate(&self, asked: Asked<'_>) -> Translated {
        self.run(asked, Run::arrived)
    }

    /// Does a translation; on a thread with a larger stack where look-ups are nested too deep for this one's. Nothing is changed by the
    /// first, so the second begins anew.
    fn run<'p>(&'p self, asked: Asked<'p>, go: impl Fn(Run<'p>) -> Translated + Sync) -> Translated {
        let first = go(Run::new(self, asked));
        if !first.is_cut {
            return first;
        }
        std::thread::scope(|scope| {
            let deep = std::thread::Builder::new().name("translate".to_owned()).stack_size(DEEP_STACK);
            match deep.spawn_scoped(scope, || go(Run { is_deep: true, ..Run::new(self, asked) })) {
                Ok(deep) => deep.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                // Without a thread this packet is dropped; the next one of its flow is tried again.
                Err(_) => Translated { is_own: true, ..first },
            }
        })
    }

    /// Does actions to a controller's packet.
    #[must_use]
    pub fn packet_out(&self, asked: Asked<'_>, actions: &[Action]) -> Translated {
        self.run(asked, |mut run| {
            run.from_controller = true;
            run.list(actions);
            run.done()
        })
    }

    /// Goes on with a packet that has waited for its controller.
    #[must_use]
    pub fn resume(&self, asked: Asked<'_>, left: &Continuation) -> Translated {
        self.run(asked, |mut run| {
            run.resume(left);
            run.done()
        })
    }
}

/// Where the bits of a tag came from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The packet's outer (0) or inner (1) tag.
    Packet(usize),
    /// No packet: an action made it.
    Made,
}

/// Bytes of a flow's outer TCI; the inner one follows.
pub(super) const TCI: usize = Field::VlanTci.octet();

/// A translation under way.
struct Run<'p> {
    pipeline: &'p Pipeline,
    asked: Asked<'p>,
    out: Translated,
    /// The packet as it is now.
    flow: Flow,
    /// Bits that no longer depend on the packet.
    made: Flow,
    /// Bits that are changed, and not yet in the frame.
    dirty: Flow,
    /// The frame as so many steps of the program have made it, where it was asked for.
    rendered: Option<(Arc<Vec<u8>>, usize)>,
    tags: [Origin; 2],
    /// A header was taken off, and what is behind it is not known.
    opaque: bool,
    stack: Vec<(u128, u16)>,
    /// The queue of later outputs, and the one that the program names; `None`: the default one.
    queue: Option<u32>,
    queued: Option<u32>,
    action_set: Vec<Action>,
    table: u8,
    cookie: u64,
    rule: Option<RuleRef>,
    /// Resubmits and groups around what is done, for traces.
    depth: u32,
    /// Look-ups around what is done that went to the same or an earlier table.
    recursion: u32,
    /// Look-ups around what is done, whatever table they went to.
    nested: u32,
    /// The stack suffices however many these are.
    is_deep: bool,
    lookups: u32,
    /// Nothing more is done at all.
    stopped: bool,
    /// Nothing more is done of this list, nor of those around it.
    exits: bool,
    /// Nothing more is done of this list; those around it go on.
    ends: bool,
    /// Actions and buckets so far, and what takes as long as they do.
    work: u32,
    /// Groups that buckets watch, as far as they were asked for: whether any bucket of theirs is alive.
    live_groups: BTreeMap<u32, bool>,
    from_controller: bool,
    in_bucket: bool,
    in_action_set: bool,
    is_miss: bool,
    /// The packet waits for its controller: place of what is told.
    waits: Option<usize>,
    /// The action under way, while somebody asks why.
    doing: Option<Box<Action>>,
    /// What the first look-up has found.
    ahead: Option<&'p Seen>,
}

impl<'p> Run<'p> {
    fn new(pipeline: &'p Pipeline, asked: Asked<'p>) -> Run<'p> {
        let mut made = Flow::ZERO;
        // Metadata and registers do not come from the packet.
        made.0[..super::STAGES[0]].fill(u64::MAX);
        let mut flow = *asked.flow;
        flow.set(Field::ActsetOutput, u128::from(port::UNSET));
        Run {
            pipeline,
            asked,
            out: Translated {
                program: Program::default(),
                mask: Flow::ZERO,
                rules: Vec::new(),
                missed: Vec::new(),
                groups: Vec::new(),
                tables: [0; 4],
                first_again: false,
                to_controller: Vec::new(),
                learns: Vec::new(),
                fin: Vec::new(),
                dropped: DropReason::RuleDrop,
                failed: None,
                is_own: false,
                is_cut: false,
                trace: Vec::new(),
                untold: 0,
            },
            flow,
            made,
            dirty: Flow::ZERO,
            rendered: None,
            tags: [Origin::Packet(0), Origin::Packet(1)],
            opaque: false,
            stack: Vec::new(),
            queue: None,
            queued: None,
            action_set: Vec::new(),
            table: 0,
            // No rule, no cookie (as Open vSwitch).
            cookie: NO_COOKIE,
            rule: None,
            depth: 0,
            recursion: 0,
            nested: 0,
            is_deep: false,
            lookups: 0,
            stopped: false,
            exits: false,
            ends: false,
            work: 0,
            live_groups: BTreeMap::new(),
            from_controller: false,
            in_bucket: false,
            in_action_set: false,
            is_miss: false,
            waits: None,
            doing: None,
            ahead: None,
        }
    }

    /// What becomes of a packet that came in by a port.
    fn arrived(mut self) -> Translated {
        let in_port = self.asked.flow.get(Field::InPort);
        let receives = u32::try_from(in_port)
            .ok()
            .and_then(|number| self.pipeline.ports.get(&number))
            .is_none_or(|port| port.receives);
        if !receives {
            self.out.dropped = DropReason::PortDown;
        } else if self.pipeline.alone {
            self.note("no controller is connected: the bridge stands alone (fail mode standalone), and its rules are not asked");
            self.list(&[Action::Output { port: port::NORMAL, max_len: 0 }]);
        } else {
            self.table(0, None, false);
            self.finish_action_set();
        }
        self.done()
    }

    fn done(mut self) -> Translated {
        if self.out.failed.is_some() {
            // As Open vSwitch: what was decided before is not done either.
            self.out.program.ops.clear();
            self.out.to_controller.clear();
            self.out.learns.clear();
        }
        if self.stopped && self.out.program.is_drop() && self.out.dropped == DropReason::RuleDrop {
            self.out.dropped = DropReason::RuleLoop;
        }
        if self.asked.trace {
            // It is no part of a packet.
            self.flow.set(Field::ActsetOutput, 0);
            self.out.trace.push(Trace::End(Box::new(self.flow)));
        }
        self.out
    }

    fn note(&mut self, words: &'static str) {
        if self.asked.trace {
            self.tell(Trace::Note(self.depth, words));
        }
    }

    /// Notes what happened, within bounds: rules that loop do tens of thousands of things. Bits are asked for once each.
    fn tell(&mut self, what: Trace) {
        let asks = matches!(&what, Trace::Lookup { bits, .. } if **bits != Flow::ZERO);
        if asks || self.out.trace.len() < TRACED {
            self.out.trace.push(what);
        } else {
            self.out.untold += 1;
        }
    }

    /// Counts an action or bucket; false when there were too many.
    fn works(&mut self) -> bool {
        self.works_for(1)
    }

    /// Counts what takes as long as so many actions; false when it was too much.
    fn works_for(&mut self, actions: u32) -> bool {
        self.work = self.work.saturating_add(actions);
        if self.work > MAX_WORK {
            self.note("too much is to be done for one packet");
            self.stopped = true;
        }
        !self.stopped
    }

    /// The fate depends on these bits of the flow as it is now; returns those that are new in the mask.
    fn depend(&mut self, bits: &Flow) -> Flow {
        let mut own = Flow(std::array::from_fn(|word| bits.0[word] & !self.made.0[word]));
        let tci = |flow: &Flow, tag: usize| flow.bits((TCI + 2 * tag) * 8, 16);
        if self.tags != [Origin::Packet(0), Origin::Packet(1)] {
            let now = [tci(&own, 0), tci(&own, 1)];
            own.set_bits(TCI * 8, 32, 0);
            for (bits, origin) in now.into_iter().zip(self.tags) {
                if let Origin::Packet(tag) = origin {
                    own.set_bits((TCI + 2 * tag) * 8, 16, tci(&own, tag) | bits);
                }
            }
        }
        let new = Flow(std::array::from_fn(|word| own.0[word] & !self.out.mask.0[word]));
        self.out.mask.or(&own);
        if new != Flow::ZERO
            && let Some(action) = &self.doing
        {
            let (table, action, bits) = (self.table, action.clone(), Box::new(new));
            self.out.trace.push(Trace::Needs { table, action, bits });
        }
        new
    }

    fn depend_on(&mut self, field: Field) {
        let mut bits = Flow::ZERO;
        bits.want(field);
        self.depend(&bits);
    }

    /// A field's value, on which the fate depends from now on.
    fn ask(&mut self, field: Field) -> u128 {
        self.see_through();
        self.depend_on(field);
        self.flow.get(field)
    }

    /// Whether the packet is what a field needs; the fate depends on it.
    fn meets(&mut self, need: Prerequisite) -> bool {
        if need == Prerequisite::None {
            return true;
        }
        self.see_through();
        let mut bits = Flow::ZERO;
        let meets = packet_meets(&self.flow, need, &mut bits);
        self.depend(&bits);
        meets
    }

    /// Reads the frame anew when a header was taken off it.
    fn see_through(&mut self) {
        if !self.opaque {
            return;
        }
        self.opaque = false;
        self.out.is_own = true;
        // What is not in the frame yet would be forgotten.
        self.commit();
        self.note(
            "what is behind the header that was taken off is read from the frame; the flow is not cached",
        );
        let pipeline = self.pipeline;
        let Some(own) = self.frame_now() else { return };
        let read = pipeline.read(own, 0).unwrap_or(Flow::ZERO);
        self.flow.0[super::STAGES[0]..].copy_from_slice(&read.0[super::STAGES[0]..]);
    }

    /// The frame as the steps so far have made it. The frame is kept, so that each step is done to it once, however often it is asked for.
    fn frame_now(&mut self) -> Option<&[u8]> {
        let arrived = self.asked.frame?;
        let ops = &self.out.program.ops;
        let (frame, done) = self.rendered.get_or_insert_with(|| (Arc::new(arrived.to_vec()), 0));
        if *done < ops.len() {
            render(Arc::make_mut(frame), &ops[*done..]);
            *done = ops.len();
        }
        Some(frame.as_slice())
    }

    /// Writes the changes into the program, in front of what needs them in the frame.
    fn commit(&mut self) {
        if self.dirty == Flow::ZERO {
            return;
        }
        let bits = SetBits { value: self.flow.masked(&self.dirty), mask: self.dirty };
        self.dirty = Flow::ZERO;
        self.push(Op::Set(Box::new(bits)));
    }

    /// Names the queue in front of an output, where it is another one than before.
    fn name_queue(&mut self) {
        if self.queue != self.queued {
            self.queued = self.queue;
            self.push(Op::Queue(self.queue));
        }
    }

    fn push(&mut self, op: Op) {
        if self.out.program.ops.len() >= MAX_OPS {
            self.note("the packet's program has too many steps; the rest is left out");
            self.stopped = true;
            return;
        }
        self.out.program.ops.push(op);
    }

    /// Overwrites bits of a field of the packet (or of metadata).
    fn write(&mut self, field: Field, value: u128, mask: u128) {
        let kept = self.flow.get(field) & !mask;
        self.flow.set(field, kept | value & mask);
        self.made.set(field, self.made.get(field) | mask);
        let (at, _) = field.place();
        if at >= super::STAGES[0] * 64 {
            self.dirty.set(field, self.dirty.get(field) | mask);
        }
    }

    /// Looks up in a table and does what the rule says.
    ///
    /// With `port`, as if the packet had come in there; what the rule does then sees the port that it did come in by.
    fn table(&mut self, table: u8, port: Option<u32>, is_resubmit: bool) {
        self.nested += 1;
        if self.nested > MAX_NESTED && !self.is_deep {
            self.out.is_cut = true;
            self.out.failed = Some(Failed::Depth);
            self.stopped = true;
        }
        if !self.stopped {
            self.look_up(table, port, is_resubmit);
        }
        self.nested -= 1;
    }

    fn look_up(&mut self, table: u8, port: Option<u32>, is_resubmit: bool) {
        self.see_through();
        // What the look-up asks for is its own, not the resubmit's.
        let doing = self.doing.take();
        let mut table = table;
        let found = loop {
            self.lookups += 1;
            if self.lookups > MAX_LOOKUPS || self.recursion > MAX_DEPTH {
                self.note("too many look-ups for one packet: look for a loop of resubmits");
                let failed = if self.lookups > MAX_LOOKUPS { Failed::Lookups } else { Failed::Depth };
                self.out.failed = Some(failed);
                self.stopped = true;
                return;
            }
            if self.drops_fragment() {
                self.doing = doing;
                return;
            }
            let found = self.find(table, port).and_then(|at| Some((at, self.pipeline.rule(at)?)));
            if self.stopped {
                self.doing = doing;
                return;
            }
            let goes_on = found.is_none() && !is_resubmit && self.pipeline.miss_of(table) == Miss::Continue;
            if !goes_on || table + 1 >= VISIBLE_TABLES {
                break found;
            }
            self.out.missed.push(table);
            table += 1;
        };
        let Some((at, rule)) = found else {
            self.out.missed.push(table);
            if !is_resubmit {
                self.miss(table);
            }
            self.doing = doing;
            return;
        };
        self.out.rules.push(at);
        let before = (self.table, self.cookie, self.rule, self.is_miss);
        (self.table, self.cookie, self.rule) = (table, rule.cookie, Some(at));
        self.is_miss = rule.priority == 0 && rule.matching.mask == Flow::ZERO;
        self.instructions(&rule.instructions);
        (self.table, self.cookie, self.rule, self.is_miss) = before;
        self.doing = doing;
    }

    /// Whether the packet is a fragment that goes nowhere (OFPC_FRAG_DROP).
    fn drops_fragment(&mut self) -> bool {
        if self.pipeline.fragments != Fragments::Drop {
            return false;
        }
        let mut bits = Flow::ZERO;
        bits.set(Field::IpFrag, 1);
        self.depend(&bits);
        let drops = self.flow.get(Field::IpFrag) & 1 != 0;
        if drops {
            self.note("it is a fragment, and fragments are dropped (frags=drop)");
        }
        drops
    }

    /// Looks the packet up in one table, as if it had come in by `port`; what the answer depends on is noted.
    fn find(&mut self, table: u8, port: Option<u32>) -> Option<RuleRef> {
        let mut bits = Flow::ZERO;
        let in_port = self.flow.get(Field::InPort);
        if let Some(port) = port {
            self.flow.set(Field::InPort, u128::from(port));
        }
        // To rules fragments have no ports (or ICMP type and code), not even the first one, unless frags=nx-match (as Open vSwitch).
        let hides = self.pipeline.fragments != Fragments::NxMatch;
        let l4 = [Field::TcpSrc, Field::TcpDst].map(|field| (field, self.flow.get(field)));
        let is_fragment = hides && self.flow.get(Field::IpFrag) & 1 != 0;
        if is_fragment {
            l4.iter().for_each(|(field, _)| self.flow.set(*field, 0));
        }
        let found = if let Some(seen) = self.ahead.take() {
            bits = seen.bits;
            seen.rule
        } else {
            let left = MAX_WORK.saturating_sub(self.work);
            let (found, work) = self.pipeline.look_up(table, &mut self.flow, &mut bits, left);
            if work > 0 && !self.works_for(work) { None } else { found }
        };
        if hides && l4.iter().any(|(field, _)| bits.get(*field) != 0) {
            bits.set(Field::IpFrag, bits.get(Field::IpFrag) | 1);
        }
        if is_fragment {
            for (field, value) in l4 {
                self.flow.set(field, value);
                bits.set(field, 0);
            }
        }
        self.flow.set(Field::InPort, in_port);
        let new = self.depend(&bits);
        self.out.first_again |= table == 0 && self.lookups > 1;
        self.out.tables[usize::from(table) / 64] |= 1 << (table % 64);
        if self.asked.trace {
            let (depth, bits) = (self.depth, Box::new(new));
            self.tell(Trace::Lookup { depth, table, rule: found, bits });
        }
        found
    }

    /// What becomes of a packet that no rule of a table matches, where no resubmit has led there (OpenFlow 1.1, 4.4; as Open vSwitch).
    fn miss(&mut self, table: u8) {
        if self.out.rules.is_empty() {
            self.out.dropped = DropReason::RuleMiss;
        }
        let tells = match self.pipeline.miss_of(table) {
            Miss::Default => self.pipeline.misses_heard,
            // Behind the last table as to a controller.
            Miss::Controller | Miss::Continue => true,
            Miss::Drop => false,
        };
        // The port may be one whose packets no controller gets for a miss.
        let in_port = u32::try_from(self.flow.get(Field::InPort)).unwrap_or(port::ANY);
        let port = self.pipeline.ports.get(&in_port);
        if tells && port.is_some_and(|port| port.desc.config & NO_PACKET_IN == 0) {
            self.note("no rule matches: controllers that speak OpenFlow before 1.3 get the packet");
            let before = (self.table, self.cookie);
            (self.table, self.cookie) = (table, 0);
            // No buffer keeps the packet, so the controller gets all of it.
            self.tell_controller(u16::MAX, 0, Reason::Miss, &[]);
            (self.table, self.cookie) = before;
        }
    }

    fn instructions(&mut self, instructions: &Instructions) {
        if let Some(meter) = instructions.meter {
            self.tell_instruction(|| format!("meter:{meter}"), None);
            self.commit();
            self.push(Op::Meter(meter));
        }
        self.list(&instructions.apply);
        if self.waits.is_some() {
            self.leave(Instructions { meter: None, apply: Vec::new(), ..instructions.clone() });
        }
        if self.exits || self.ends || self.stopped {
            return;
        }
        if instructions.clear {
            let before = self.shown_action_set("was");
            self.tell_instruction(|| "clear_actions".to_owned(), before);
            self.action_set.clear();
            self.note_output();
        }
        for action in &instructions.write {
            self.put_in_set(action);
        }
        if !instructions.write.is_empty() {
            let after = self.shown_action_set("is");
            let written = || format!("write_actions({})", super::text::actions(&instructions.write));
            self.tell_instruction(written, after);
        }
        if let Some((value, mask)) = instructions.metadata {
            let mask_text = if mask == u64::MAX { String::new() } else { format!("/{mask:#x}") };
            self.tell_instruction(|| format!("write_metadata:{value:#x}{mask_text}"), None);
            self.write(Field::Metadata, u128::from(value), u128::from(mask));
        }
        if let Some(next) = instructions.goto {
            self.tell_instruction(|| format!("goto_table:{next}"), None);
            self.table(next, None, false);
        }
    }

    /// Tells of an instruction, while somebody asks.
    fn tell_instruction(&mut self, text: impl FnOnce() -> String, then: Option<String>) {
        if self.asked.trace {
            self.tell(Trace::Instruction(self.depth, text(), then));
        }
    }

    /// The action set in words, while somebody asks.
    fn shown_action_set(&self, verb: &str) -> Option<String> {
        self.asked.trace.then(|| {
            if self.action_set.is_empty() {
                return format!("action set {verb} empty");
            }
            format!("action set {verb}: {}", super::text::actions(&self.action_set))
        })
    }

    /// One of a kind stays in the set, fields one each (OpenFlow 1.3, 5.10).
    fn put_in_set(&mut self, action: &Action) {
        let is_same = |own: &Action| match (own, action) {
            (Action::Set { field, mask, .. }, Action::Set { field: new, mask: bits, .. }) => {
                (field, mask) == (new, bits)
            }
            (Action::Move { to, .. }, Action::Move { to: new, .. }) => to == new,
            _ => std::mem::discriminant(own) == std::mem::discriminant(action),
        };
        self.action_set.retain(|own| !is_same(own));
        self.action_set.push(action.clone());
        self.note_output();
    }

    /// Where the action set sends, for `actset_output`.
    fn note_output(&mut self) {
        let to = self.action_set.iter().find_map(|action| match action {
            Action::Output { port, .. } => Some(*port),
            _ => None,
        });
        let has_group = self.action_set.iter().any(|action| matches!(action, Action::Group(_)));
        let to = to.filter(|_| !has_group).unwrap_or(port::UNSET);
        self.flow.set(Field::ActsetOutput, u128::from(to));
    }

    /// Does the action set, in the order of OpenFlow 1.3, 5.10.
    fn finish_action_set(&mut self) {
        if self.stopped || self.exits || self.ends {
            return;
        }
        let set = std::mem::take(&mut self.action_set);
        if self.asked.trace && !set.is_empty() {
            self.tell(Trace::ActionSet(self.depth));
        }
        let before = std::mem::replace(&mut self.in_action_set, true);
        self.ordered(&set);
        self.in_action_set = before;
    }

    /// Actions of a set or a bucket: each kind in its turn, and output only where there is no group.
    fn ordered(&mut self, set: &[Action]) {
        let turn = |action: &Action| match action {
            Action::CopyTtlIn => 0,
            Action::PopPbb | Action::PopMpls(_) | Action::PopVlan => 1,
            Action::PushMpls(_) => 2,
            Action::PushPbb(_) => 3,
            Action::PushVlan(_) => 4,
            Action::CopyTtlOut => 5,
            Action::DecTtl(_) | Action::DecMplsTtl => 6,
            Action::Group(_) => 9,
            Action::Output { .. } | Action::OutputReg { .. } | Action::Controller { .. } => 10,
            Action::SetQueue(_) | Action::PopQueue | Action::Enqueue { .. } => 8,
            Action::Resubmit { .. } => 11,
            _ => 7,
        };
        let mut actions: Vec<Action> = set.to_vec();
        actions.sort_by_key(turn);
        if actions.iter().any(|action| matches!(action, Action::Group(_))) && self.in_action_set {
            actions.retain(|action| turn(action) != 10);
        }
        self.list(&actions);
    }

    /// Does something to a copy: afterwards the packet is as it was.
    fn on_copy(&mut self, does: impl FnOnce(&mut Self)) {
        self.commit();
        let before = (
            self.flow,
            self.made,
            self.tags,
            self.opaque,
            self.action_set.clone(),
            self.stack.clone(),
            (self.exits, self.ends),
            (self.queue, self.queued),
        );
        let from = self.out.program.ops.len();
        if self.out.is_own {
            // The copies of such a packet are likely to ask for the frame: each of them goes on from here.
            let _ = self.frame_now();
        }
        let rendered = self.rendered.clone();
        does(self);
        // What was done to the copy's frame was not done to this one.
        self.rendered = rendered;
        // Who waits is the copy.
        self.waits = None;
        self.dirty = Flow::ZERO;
        (
            self.flow,
            self.made,
            self.tags,
            self.opaque,
            self.action_set,
            self.stack,
            (self.exits, self.ends),
            (self.queue, self.queued),
        ) = before;
        let ops = &mut self.out.program.ops;
        // A queue that is named in the copy stays there.
        let changes = |op: &Op| !matches!(op, Op::Output(_) | Op::Normal);
        if ops[from..].iter().any(changes)
            && let Ok(n) = u16::try_from(ops.len() - from)
        {
            ops.insert(from, Op::Clone(n));
        }
    }
}

/// The bits of everything that a worker's key has of a packet: what a flow depends on that stands for no others.
#[must_use]
pub fn packet_bits() -> Flow {
    let mut bits = Flow::ZERO;
    for word in super::KEY_WORDS {
        bits.0[word] = u64::MAX;
    }
    bits
}

/// The same, and of everything that stands beyond the key.
#[must_use]
pub fn packet_and_beyond_bits() -> Flow {
    let mut bits = packet_bits();
    for word in super::BEYOND_WORDS {
        bits.0[word] = u64::MAX;
    }
    bits
}

/// The bits of all of a flow.
#[must_use]
pub fn all_bits() -> Flow {
    Flow([u64::MAX; Flow::ZERO.0.len()])
}
