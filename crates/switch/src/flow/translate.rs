//! Translation of a packet: executes the flow entries that the packet matches, table by table, and records the
//! packet bits that the result depends on.
//!
//! The result is a [`Program`] of datapath actions and a mask. Every packet that equals the translated packet in the
//! bits of the mask gets the same actions. Workers may therefore cache program and mask as a megaflow. If an action
//! has overwritten bits, later look-ups of these bits do not depend on the packet. Bits of a VLAN tag that actions
//! have moved are attributed to their original position.
//!
//! Header changes are collected in the flow and become one step before the next output. Some properties of a packet are
//! not part of the flow key, for example the header after a removed label, or the length. A result that depends on such
//! a property applies only to this packet ([`Translated::is_own`]) and is not cached.

mod action_set;
mod actions;
mod ahead;
mod choose;
mod copy;
mod learn;
mod render;
mod result;
mod track;
mod wait;

use std::collections::BTreeMap;
use std::sync::Arc;

use packet::DropReason;

pub use ahead::Ahead;
use render::{render, work_to_render};
pub use result::{Failed, TRACED, ToController, Trace, Translated, TranslationInput};

use super::action::{memory_of, port};
use super::look_up::Seen;
use super::message::{Continuation, Fragments, Miss, Rest};
use super::pipeline::{Pipeline, Table, VISIBLE_TABLES};
use super::program::{Op, Program, SetBits};
use super::reason::Reason;
use super::rule::RuleRef;
use super::{Action, Field, Flow, Instructions, Match, Prerequisite, packet_meets};

/// Maximum nesting depth of look-ups in the same or an earlier table (as in Open vSwitch).
const MAX_DEPTH: u32 = 64;
/// Maximum number of table look-ups for one packet (as in Open vSwitch).
const MAX_LOOKUPS: u32 = 4096;
/// Maximum stack size, in octets, that a translation uses on the thread of its caller. The stack of every thread of
/// the process is larger.
const SHALLOW_STACK: usize = 768 << 10;
/// Stack size, in octets, of the thread that runs translations whose nesting is too deep for [`SHALLOW_STACK`]. The
/// stack suffices for `MAX_LOOKUPS` levels of about 4 KiB each.
const DEEP_STACK: usize = 64 << 20;
/// Stack space, in octets, that a translation leaves free for the functions called between two checks of the stack.
const STACK_RESERVE: usize = 1 << 20;
/// Maximum number of steps (datapath actions) of a program.
const MAX_OPS: usize = 4096;
/// Maximum sum of the weights of a program's steps. The weight of a step reflects the time that it takes for each
/// packet.
const MAX_STEP_COST: usize = 1 << 14;
/// Weight of a step that sets SCTP ports. Such a step recomputes the CRC32c checksum, which covers the whole SCTP
/// packet.
const COST_OF_CRC: usize = 64;
/// Weight of a step that applies a meter.
const COST_OF_METER: usize = 4;
/// Work limit of the translation of one packet: the maximum number of actions, buckets, masks of tables and
/// operations of similar cost that are executed or visited.
const MAX_WORK: u32 = 65_536;
/// Number of list entries whose copying or comparison counts as one unit of [`MAX_WORK`].
const LIST_WORK: usize = 16;
/// Maximum number of copies for controllers that one packet causes, and maximum number of learned flow entries that
/// one packet adds.
const MAX_TOLD: usize = 256;
/// Maximum memory of the learned flow entries that one packet adds, in octets.
const MAX_LEARNED_OCTETS: usize = 1 << 20;
/// Port configuration flag OFPPC_NO_PACKET_IN: packets that arrive on the port and match no flow entry cause no
/// packet-in.
const NO_PACKET_IN: u32 = 64;
/// Cookie in packet-ins that were not sent by a flow entry.
const NO_COOKIE: u64 = u64::MAX;
/// Maximum number of values on the stack of a packet (`push` and `pop` actions).
const MAX_STACK: usize = 1024;
/// IP protocol number of SCTP.
const SCTP: u128 = 132;

impl Pipeline {
    /// Translates a packet that arrived on a port. The pipeline and its counters do not change.
    #[must_use]
    pub fn translate(&self, asked: TranslationInput<'_>) -> Translated {
        self.run(asked, Run::arrived)
    }

    /// Runs a translation. If look-ups are nested too deep for the current stack, the translation is repeated on a
    /// thread with a larger stack. The repetition has no side effects, because a translation changes no tables.
    fn run<'p>(
        &'p self,
        asked: TranslationInput<'p>,
        go: impl Fn(Run<'p>) -> Translated + Sync,
    ) -> Translated {
        let first = go(Run::new(self, asked));
        if !first.is_cut {
            return first;
        }
        std::thread::scope(|scope| {
            let deep = std::thread::Builder::new().name("translate".to_owned()).stack_size(DEEP_STACK);
            match deep.spawn_scoped(scope, || go(Run { is_deep: true, ..Run::new(self, asked) })) {
                Ok(deep) => deep.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                // Without a thread this packet is dropped. The next packet of its flow tries again.
                Err(_) => Translated { is_own: true, ..first },
            }
        })
    }

    /// Translates a packet-out with its list of actions. The pipeline and its counters do not change.
    #[must_use]
    pub fn packet_out(&self, asked: TranslationInput<'_>, actions: &[Action]) -> Translated {
        self.run(asked, |mut run| {
            run.from_controller = true;
            run.list(actions);
            run.done()
        })
    }

    /// Translates the remaining processing of a paused packet that its controller has resumed. The pipeline and its
    /// counters do not change.
    #[must_use]
    pub fn resume(&self, asked: TranslationInput<'_>, left: &Continuation) -> Translated {
        self.run(asked, |mut run| {
            run.resume(left);
            run.done()
        })
    }
}

/// The origin of the bits of a VLAN tag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The bits belong to the packet's outer (0) or inner (1) tag on arrival.
    Packet(usize),
    /// An action wrote the tag.
    Made,
}

/// Index of the octet of a [`Flow`] at which the outer TCI begins. The inner TCI follows.
pub(super) const TCI: usize = Field::VlanTci.octet();

/// The state of a translation in progress.
struct Run<'p> {
    pipeline: &'p Pipeline,
    asked: TranslationInput<'p>,
    out: Translated,
    /// Flow of the packet after the actions executed so far.
    flow: Flow,
    /// Mask of the flow's bits that actions have overwritten, and that therefore no longer depend on the
    /// packet.
    made: Flow,
    /// Mask of the flow's bits that actions have changed and that no step of the program writes to the frame yet.
    dirty: Flow,
    /// Total weight of the steps that the program has so far.
    cost: usize,
    /// Number of nested copies of the packet that the translation is processing at present. The program needs one step
    /// ([`Op::Clone`]) for each of these copies.
    copies: usize,
    /// Cached frame, and the number of the program's steps that have been executed on the frame. The value is `None` if
    /// no frame has been needed so far.
    rendered: Option<(Arc<Vec<u8>>, usize)>,
    tags: [Origin; 2],
    /// Whether a header was removed, and the header after it has not been parsed.
    opaque: bool,
    stack: Vec<(u128, u16)>,
    /// Queue that the actions translated so far have selected for later outputs. `None` means the default queue.
    /// `queued` is the queue that the steps of the translated program select. If the two differ at an output, a step
    /// that selects `queue` is added first.
    queue: Option<u32>,
    queued: Option<u32>,
    action_set: Vec<Action>,
    table: u8,
    cookie: u64,
    rule: Option<RuleRef>,
    /// Depth of nested resubmits and groups, for trace events.
    depth: u32,
    /// Depth of nested look-ups of the same or an earlier table.
    recursion: u32,
    /// Memory of the learned flow entries of the result, in octets.
    learned: usize,
    /// Memory of the remaining processing that was recorded for paused copies of the packet, in octets.
    left: usize,
    /// Stack address at which the translation began, to compute the stack space used.
    stack_from: usize,
    /// Whether the current thread has a stack of [`DEEP_STACK`] octets.
    is_deep: bool,
    lookups: u32,
    /// Number of times that the packet has been looked up in the flow cache again, after the connection tracker.
    passes: u8,
    /// Whether the whole translation has stopped.
    stopped: bool,
    /// Whether the translation has stopped processing the current action list and the enclosing
    /// lists.
    exits: bool,
    /// Whether the translation has stopped processing the current action list. The enclosing lists
    /// continue.
    ends: bool,
    /// Work done so far: the number of actions, buckets and operations of similar cost that were executed.
    work: u32,
    /// Liveness of the watched groups that were examined so far, by group number. A group is live if any of its
    /// buckets is live.
    live_groups: BTreeMap<u32, bool>,
    from_controller: bool,
    in_bucket: bool,
    in_action_set: bool,
    is_miss: bool,
    /// Index in `to_controller` of the copy whose controller can resume the paused packet.
    waits: Option<usize>,
    /// Action that is executed at present, if a trace is requested.
    doing: Option<Box<Action>>,
    /// Result of the look-up in the first table, if the look-up was done in a batch before the translation.
    ahead: Option<&'p Seen>,
}

impl<'p> Run<'p> {
    fn new(pipeline: &'p Pipeline, asked: TranslationInput<'p>) -> Run<'p> {
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
                work: 0,
                is_cut: false,
                trace: Vec::new(),
                unrecorded: 0,
            },
            flow,
            made,
            dirty: Flow::ZERO,
            cost: 0,
            copies: 0,
            rendered: None,
            tags: [Origin::Packet(0), Origin::Packet(1)],
            opaque: false,
            stack: Vec::new(),
            queue: None,
            queued: None,
            action_set: Vec::new(),
            table: 0,
            // Without a flow entry the cookie has all bits set (as in Open vSwitch).
            cookie: NO_COOKIE,
            rule: None,
            depth: 0,
            recursion: 0,
            learned: 0,
            left: 0,
            stack_from: stack_address(),
            is_deep: false,
            lookups: 0,
            passes: 0,
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

    /// Translates a packet that arrived on a port.
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
        self.out.work = self.work;
        if self.out.failed.is_some() {
            // The results so far are discarded, as in Open vSwitch.
            self.out.program.ops.clear();
            self.out.to_controller.clear();
            self.out.learns.clear();
        }
        if self.stopped && self.out.program.is_drop() && self.out.dropped == DropReason::RuleDrop {
            self.out.dropped = DropReason::RuleLoop;
        }
        if self.asked.trace {
            // The field is not part of a packet.
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

    /// Records a trace event. The number of events is limited to [`TRACED`], because looping rules cause tens of
    /// thousands of events. Look-ups that add bits to the mask are always recorded. There is at most one such look-up
    /// for each bit.
    fn tell(&mut self, what: Trace) {
        let asks = matches!(&what, Trace::Lookup { bits, .. } if **bits != Flow::ZERO);
        if asks || self.out.trace.len() < TRACED {
            self.out.trace.push(what);
        } else {
            self.out.unrecorded += 1;
        }
    }

    /// Adds one action or bucket to the work done. Returns false if the work limit of the packet is exceeded.
    fn works(&mut self) -> bool {
        self.works_for(1)
    }

    /// Adds work equal to `actions` actions to the work done. Returns false if the work limit of the packet is
    /// exceeded.
    fn works_for(&mut self, actions: u32) -> bool {
        self.work = self.work.saturating_add(actions);
        if self.work > MAX_WORK {
            self.note("too much is to be done for one packet");
            self.stopped = true;
        }
        !self.stopped
    }

    /// Adds the part of `bits` that comes from the packet, and not from an action, to the mask of the result. Returns
    /// the bits that the mask did not contain before.
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

    /// Returns the value of a field, and adds the bits of the field to the mask of the result.
    fn ask(&mut self, field: Field) -> u128 {
        self.see_through();
        self.depend_on(field);
        self.flow.get(field)
    }

    /// Returns whether the packet fulfils a field's prerequisite, and adds the bits on which the result depends to the
    /// mask of the translation.
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

    /// Parses the frame again if an action has removed a header, to extract the fields of the header after the removed
    /// header.
    fn see_through(&mut self) {
        if !self.opaque {
            return;
        }
        self.opaque = false;
        self.out.is_own = true;
        // Pending changes must be in the frame, or they would be lost.
        self.commit();
        self.note(
            "what is behind the header that was taken off is read from the frame; the flow is not cached",
        );
        let pipeline = self.pipeline;
        let Some(own) = self.frame_now() else { return };
        let read = pipeline.read(own, 0).unwrap_or(Flow::ZERO);
        let headers = super::STAGES[0]..super::CONNECTION_WORDS.start;
        self.flow.0[headers.clone()].copy_from_slice(&read.0[headers]);
    }

    /// Executes the steps that the program has so far on the frame, and returns the frame. The frame is cached, so that
    /// each step is executed only once. Returns `None` if the packet is translated without a frame.
    fn frame_now(&mut self) -> Option<&[u8]> {
        let arrived = self.asked.frame?;
        // A frame that another copy of the packet shares is copied as a whole.
        let (length, done, is_shared) = match &self.rendered {
            Some((frame, done)) => (frame.len(), *done, Arc::strong_count(frame) > 1),
            None => (arrived.len(), 0, true),
        };
        let left = &self.out.program.ops[done..];
        let is_copied = is_shared && (self.rendered.is_none() || !left.is_empty());
        let work = work_to_render(length, is_copied, left);
        if work > 0 && !self.works_for(work) {
            return None;
        }
        let ops = &self.out.program.ops;
        let (frame, done) = self.rendered.get_or_insert_with(|| (Arc::new(arrived.to_vec()), 0));
        if *done < ops.len() {
            render(Arc::make_mut(frame), &ops[*done..]);
            *done = ops.len();
        }
        Some(frame.as_slice())
    }

    /// Appends a step to the program that writes the pending header changes to the frame.
    fn commit(&mut self) {
        if self.dirty == Flow::ZERO {
            return;
        }
        let bits = SetBits { value: self.flow.masked(&self.dirty), mask: self.dirty };
        self.dirty = Flow::ZERO;
        self.push(Op::Set(Box::new(bits)));
    }

    /// Appends a step to the program that selects the queue for the next output, if the queue has changed.
    fn name_queue(&mut self) {
        if self.queue != self.queued {
            self.queued = self.queue;
            self.push(Op::Queue(self.queue));
        }
    }

    /// Appends a step to the program, unless the program would then exceed its limits. The limits include the clone
    /// steps that will be added for the nested copies in progress.
    fn push(&mut self, op: Op) {
        let cost = self.cost_of(&op);
        let steps = self.out.program.ops.len() + self.copies;
        if steps >= MAX_OPS || self.cost + cost + self.copies > MAX_STEP_COST {
            self.note("the packet's program has too many steps; the rest is left out");
            self.stopped = true;
            return;
        }
        self.cost += cost;
        self.out.program.ops.push(op);
    }

    /// Returns the weight of a step, which reflects the time that the step takes for each packet.
    fn cost_of(&self, op: &Op) -> usize {
        let sets_ports = |mask: &Flow| [Field::TcpSrc, Field::TcpDst].iter().any(|port| mask.get(*port) != 0);
        match op {
            Op::Set(bits) if self.flow.get(Field::IpProto) == SCTP && sets_ports(&bits.mask) => COST_OF_CRC,
            Op::Meter(_) => COST_OF_METER,
            _ => 1,
        }
    }

    /// Writes bits of a header or metadata field of the packet.
    fn write(&mut self, field: Field, value: u128, mask: u128) {
        let kept = self.flow.get(field) & !mask;
        self.flow.set(field, kept | value & mask);
        self.made.set(field, self.made.get(field) | mask);
        let (at, _) = field.place();
        if at >= super::STAGES[0] * 64 {
            self.dirty.set(field, self.dirty.get(field) | mask);
        }
    }

    /// Looks the packet up in a table and executes the instructions of the rule that matches.
    ///
    /// If `port` is given, the look-up uses this port as the ingress port. For the instructions, the ingress port does
    /// not change.
    fn table(&mut self, table: u8, port: Option<u32>, is_resubmit: bool) {
        if self.has_stack() {
            self.look_up(table, port, is_resubmit);
        }
    }

    /// Returns whether the stack has space for one more nested look-up or copy. Otherwise, ends the translation.
    fn has_stack(&mut self) -> bool {
        let most = if self.is_deep { DEEP_STACK - STACK_RESERVE } else { SHALLOW_STACK };
        if !self.stopped && self.stack_from.abs_diff(stack_address()) > most {
            self.note("nested too deep: fewer clones, groups and resubmits inside each other");
            self.out.is_cut = !self.is_deep;
            self.out.failed = Some(Failed::Depth);
            self.stopped = true;
        }
        !self.stopped
    }

    fn look_up(&mut self, table: u8, port: Option<u32>, is_resubmit: bool) {
        self.see_through();
        // Mask bits of the look-up are attributed to the look-up and not to the resubmit action.
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

    /// Returns whether the packet is a fragment to drop (OFPC_FRAG_DROP).
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

    /// Looks the packet up in one table with `port` as the ingress port, and adds to the mask of the result the bits on
    /// which the look-up depends. Returns the rule that matches, or `None`.
    fn find(&mut self, table: u8, port: Option<u32>) -> Option<RuleRef> {
        let mut bits = Flow::ZERO;
        let in_port = self.flow.get(Field::InPort);
        if let Some(port) = port {
            self.flow.set(Field::InPort, u128::from(port));
        }
        // L4 ports (or ICMP type and code) of fragments are hidden from rules, in the first fragment too,
        // unless frags=nx-match (as in Open vSwitch).
        let hides = self.pipeline.fragments != Fragments::NxMatch;
        let l4 = [Field::TcpSrc, Field::TcpDst].map(|field| (field, self.flow.get(field)));
        let is_fragment = hides && self.flow.get(Field::IpFrag) & 1 != 0;
        if is_fragment {
            l4.iter().for_each(|(field, _)| self.flow.set(*field, 0));
        }
        let found = if let Some(seen) = self.ahead.take() {
            // A look-up ahead counts like the same look-up during the translation.
            let work = self.pipeline.tables.get(usize::from(table)).map_or(0, Table::work_of_look_up);
            bits = seen.bits;
            if work > 0 && !self.works_for(work) { None } else { seen.rule }
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

    /// Applies the table-miss setting of a table ([`Miss`]) to a packet that no rule of the table matches (OpenFlow
    /// 1.1, 4.4, and as in Open vSwitch). Resubmits do not call this function.
    fn miss(&mut self, table: u8) {
        if self.out.rules.is_empty() {
            self.out.dropped = DropReason::RuleMiss;
        }
        let tells = match self.pipeline.miss_of(table) {
            Miss::Default => self.pipeline.misses_heard,
            // `Continue` in the last table sends the packet to the controller.
            Miss::Controller | Miss::Continue => true,
            Miss::Drop => false,
        };
        // The port may have packet-ins disabled.
        let in_port = u32::try_from(self.flow.get(Field::InPort)).unwrap_or(port::ANY);
        let port = self.pipeline.ports.get(&in_port);
        if tells && port.is_some_and(|port| port.desc.config & NO_PACKET_IN == 0) {
            self.note("no rule matches: controllers that speak OpenFlow before 1.3 get the packet");
            let before = (self.table, self.cookie);
            (self.table, self.cookie) = (table, 0);
            // No packet is buffered, so that the controller gets the whole packet.
            self.send_to_controller(u16::MAX, 0, Reason::Miss, &[]);
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
        if self.is_recording() {
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

    /// Records a trace event for an instruction, if a trace is requested. `then` is the result of the
    /// instruction in words.
    fn tell_instruction(&mut self, text: impl FnOnce() -> String, then: Option<String>) {
        if self.asked.trace {
            self.tell(Trace::Instruction(self.depth, text(), then));
        }
    }
}

/// Returns the work of iterating over a list of this length, in the unit of [`MAX_WORK`].
fn work_of(length: usize) -> u32 {
    u32::try_from(length / LIST_WORK).unwrap_or(u32::MAX)
}

/// Returns the work of copying a list of actions with all nested lists, in the unit of
/// [`MAX_WORK`]. Without nested lists, the work equals the work of iterating over the list.
fn work_to_copy(actions: &[Action]) -> u32 {
    work_of(memory_of(actions) / size_of::<Action>())
}

/// Returns an address in the stack frame of this function, as a measure of the stack space in use.
#[inline(never)]
fn stack_address() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}

/// Returns the mask of all bits of a flow that come from the packet's flow key. A megaflow with this mask
/// covers only packets with equal keys.
#[must_use]
pub fn packet_bits() -> Flow {
    let mut bits = Flow::ZERO;
    for word in super::KEY_WORDS {
        bits.0[word] = u64::MAX;
    }
    bits
}

/// Returns the mask of all bits of a flow that come from the packet's flow key and extended key.
#[must_use]
pub fn packet_and_beyond_bits() -> Flow {
    let mut bits = packet_bits();
    for word in super::BEYOND_WORDS {
        bits.0[word] = u64::MAX;
    }
    bits
}

/// Returns the mask of all bits of a flow.
#[must_use]
pub fn all_bits() -> Flow {
    Flow([u64::MAX; Flow::ZERO.0.len()])
}
