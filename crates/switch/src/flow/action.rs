//! Actions of flow entries. One representation serves the actions of OpenFlow 1.0 to 1.5 and of
//! Nicira.

mod conntrack;
mod conntrack_text;
mod learn;
mod parser;
pub mod port;
mod print;
mod select;
mod subfield;

use packet::ethertype;

pub use conntrack::{CtAction, CtNat, FTP, NatEnd, NatRange, NatSelection, TFTP, ZoneSource};
pub(super) use conntrack_text::nat_text;
pub use learn::{Learn, LearnPart, LearnSource};
pub(super) use parser::{ActionParser, name_and_argument, split};
pub use select::{BundleMode, HashFields};
pub use subfield::SubField;

use super::Field;
use super::text::field;
use super::text::value::{integer, number, sub_field};

/// Number of octets of actions that count as one visited rule in work limits. Visiting, copying or comparing these
/// octets costs about as much as visiting a rule.
pub(super) const OCTETS_OF_WORK: usize = 64;

/// Number of octets that the memory limit and the work limit charge for the reference count of a `learn` action with
/// the flag NX_LEARN_F_DELETE_LEARNED. The reference count itself uses about 100 octets, but its update searches a
/// tree, which is as much work as 64 visited rules. With this number, the memory limit also bounds the work of removing
/// all rules.
pub(super) const KEEPER_OCTETS: usize = 64 * OCTETS_OF_WORK;

/// The flag NX_LEARN_F_DELETE_LEARNED of a `learn` action. With this flag, learned flow entries are removed when no
/// flow entry is left that has a `learn` action for the table and cookie of the learned flow entries.
const DELETE_LEARNED: u16 = 2;

/// Position of output actions in the order in which the actions of an action set are executed.
pub(super) const POSITION_OF_OUTPUT: u8 = 10;

/// The `conjunction` action: membership of a flow entry in a conjunctive match (ovs-fields(7), "Conjunctive
/// Match Fields").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Conjunction {
    /// Identifier of the conjunction (`conj_id`).
    pub id: u32,
    /// Index of the clause that the flow entry belongs to, from 0.
    pub clause: u8,
    /// Number of clauses of the conjunction, 2 to 64.
    pub clauses: u8,
}

/// The action `ct`.
pub type Ct = CtAction<Action>;

/// An OpenFlow or Nicira action.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Outputs the packet to a port.
    Output {
        /// Number of the output port.
        port: u32,
        /// Maximum number of octets of the packet that are sent if the port is the controller. 0xffff means the whole
        /// packet.
        max_len: u16,
    },
    /// Outputs the packet to the port whose number is in a field.
    OutputReg {
        /// Field that holds the port number.
        source: SubField,
        /// Maximum number of octets of the packet that are sent if the port is the controller.
        max_len: u16,
    },
    /// Sends the packet to a controller (NXAST_CONTROLLER, NXAST_CONTROLLER2).
    Controller {
        /// Maximum number of octets sent to the controller.
        max_len: u16,
        /// Identifier of the controller.
        id: u16,
        /// Reason number in the packet-in (OFPR_*).
        reason: u8,
        /// Data that the packet-in message carries back to the controller.
        userdata: Vec<u8>,
        /// Whether processing of the packet pauses until the controller resumes the packet.
        pause: bool,
        /// Number of the meter that is applied to the copy for the controller. `None` means no meter.
        meter: Option<u32>,
    },
    /// Outputs the packet to a port through one of the port's queues (OpenFlow 1.0).
    Enqueue {
        /// Number of the output port.
        port: u32,
        /// Number of the port's queue.
        queue: u32,
    },
    /// Selects the queue with this number for subsequent outputs.
    SetQueue(u32),
    /// Selects the default queue for subsequent outputs.
    PopQueue,
    /// Processes the packet with the group of this number.
    Group(u32),
    /// Applies the meter with this number to the packet (an action since OpenFlow 1.5).
    Meter(u32),
    /// Sets a whole field, or a part of the field, to a constant value.
    Set {
        /// Field that the action sets.
        field: Field,
        /// New value of the field, right-aligned.
        value: u128,
        /// Mask of the bits of the field that the action sets.
        mask: u128,
        /// Whether the action is encoded and printed as NXAST_REG_LOAD.
        load: bool,
    },
    /// Copies bits between fields. Both ranges have equal width.
    Move {
        /// Subfield that the bits are copied from.
        from: SubField,
        /// Subfield that the bits are copied to.
        to: SubField,
    },
    /// Pushes bits of a field onto the stack.
    Push(SubField),
    /// Pops bits of a field from the stack.
    Pop(SubField),
    /// Adds a VLAN tag with this EtherType.
    PushVlan(u16),
    /// Removes the outer VLAN tag.
    PopVlan,
    /// Sets the VLAN identifier. Adds a VLAN tag if the packet has no tag (OpenFlow 1.0).
    SetVlanVid(u16),
    /// Sets the VLAN priority. Adds a VLAN tag if the packet has no tag (OpenFlow 1.0).
    SetVlanPcp(u8),
    /// Adds an MPLS label stack entry with this EtherType.
    PushMpls(u16),
    /// Removes the outer MPLS label stack entry. The value is the EtherType of the packet after the removal.
    PopMpls(u16),
    /// Adds an 802.1ah header with this EtherType.
    PushPbb(u16),
    /// Removes the 802.1ah header.
    PopPbb,
    /// Copies the TTL from the next-to-outermost header to the outermost header.
    CopyTtlOut,
    /// Copies the TTL from the outermost header to the next-to-outermost header.
    CopyTtlIn,
    /// Sets the MPLS TTL.
    SetMplsTtl(u8),
    /// Decrements the MPLS TTL.
    DecMplsTtl,
    /// Sets the IP TTL or hop limit.
    SetTtl(u8),
    /// Decrements the IP TTL or hop limit. The controllers with these identifiers get the packet if the TTL
    /// expires.
    DecTtl(Vec<u16>),
    /// Looks the packet up in a table, executes the flow entry that matches, then continues with the next
    /// action.
    Resubmit {
        /// Ingress port used for the look-up. `None` means the packet's ingress port.
        port: Option<u32>,
        /// Table of the look-up. `None` means the table of the current flow entry.
        table: Option<u8>,
    },
    /// Adds a learned flow entry to a table.
    Learn(Box<Learn>),
    /// Makes the flow entry part of a conjunctive match.
    Conjunction(Conjunction),
    /// Does nothing. The octets are a comment of the controller.
    Note(Vec<u8>),
    /// Executes actions on a copy of the packet.
    Clone(Vec<Action>),
    /// Selects a link with a hash and stores the link's number in a field.
    Multipath {
        /// Fields that the hash covers.
        fields: HashFields,
        /// Initial value of the hash.
        basis: u16,
        /// Algorithm that selects the link.
        mode: BundleMode,
        /// Highest link number.
        max_link: u16,
        /// Argument of the algorithm that selects the link (used by `iter_hash`).
        argument: u32,
        /// Field that receives the link number.
        to: SubField,
    },
    /// Selects a port, for output or for storage in a field.
    Bundle {
        /// Fields that the hash covers.
        fields: HashFields,
        /// Initial value of the hash.
        basis: u16,
        /// Algorithm that selects the port.
        mode: BundleMode,
        /// Ports that the action selects from.
        ports: Vec<u32>,
        /// Field that receives the port number. If `None`, the action outputs the packet to the port.
        to: Option<SubField>,
    },
    /// Stores in a bit whether the packet is longer than a limit.
    CheckPktLarger {
        /// Length limit in octets.
        len: u16,
        /// Bit that is set if the packet is longer than the limit.
        to: SubField,
    },
    /// Reduces the time-outs of the flow entry when a TCP FIN or RST matches the flow entry.
    FinTimeout {
        /// Maximum idle time-out after the reduction, in seconds. 0 leaves the time-out unchanged.
        idle: u16,
        /// Maximum hard time-out after the reduction, in seconds. 0 leaves the time-out unchanged.
        hard: u16,
    },
    /// Sends the packet to the connection tracker.
    Ct(Box<Ct>),
    /// Clears the connection fields of the packet.
    CtClear,
    /// Stops processing of the packet.
    Exit,
}

/// An object of the switch that an action names.
#[derive(Clone, Copy, Debug)]
pub enum Reference<'a> {
    /// The action outputs to the port with this number.
    Port(u32),
    /// The action processes the packet with the group of this number.
    Group(u32),
    /// The action applies the meter with this number.
    Meter(u32),
    /// The action looks the packet up in the table with this number, or adds flow entries to this table.
    Table(u8),
    /// The action reads bits of a field.
    Read(&'a SubField),
    /// The action writes bits of a field.
    Written(&'a SubField),
    /// The action sets the bits of a field that are in a mask to a constant. The values are the field, the constant and
    /// the mask.
    Constant(Field, u128, u128),
    /// The action adds learned flow entries, as this `learn` action specifies.
    Learn(&'a Learn),
    /// The action contains these nested actions.
    Actions(&'a [Action]),
}

/// Returns whether `is_meant` returns true for any object that the actions name, nested actions included.
pub fn any_reference<'a>(actions: &'a [Action], is_meant: &mut impl FnMut(Reference<'a>) -> bool) -> bool {
    actions.iter().any(|action| {
        let seen = action.references(&mut |named| {
            let is_found = match named {
                Reference::Actions(inner) => any_reference(inner, is_meant),
                named => is_meant(named),
            };
            if is_found { Err(()) } else { Ok(()) }
        });
        seen.is_err()
    })
}

/// Calls `see` with each object that the actions name, nested actions included.
pub fn each_reference<'a>(actions: &'a [Action], see: &mut impl FnMut(Reference<'a>)) {
    any_reference(actions, &mut |named| {
        see(named);
        false
    });
}

/// Calls `see` with each `learn` action that has the flag NX_LEARN_F_DELETE_LEARNED.
pub(super) fn each_keeper(actions: &[Action], see: &mut impl FnMut(&Learn)) {
    each_reference(actions, &mut |named| match named {
        Reference::Learn(learn) if learn.flags & DELETE_LEARNED != 0 => see(learn),
        _ => {}
    });
}

/// Prints a list of actions, separated by commas.
pub(super) fn text_of(actions: &[Action]) -> String {
    actions.iter().map(Action::text).collect::<Vec<_>>().join(",")
}

/// Returns the approximate heap size of a list of actions, in octets.
pub(crate) fn memory_of(actions: &[Action]) -> usize {
    size_of_val(actions) + actions.iter().map(Action::memory).sum::<usize>()
}

impl Action {
    /// Calls `see` with each object that the action names, in the order in which they are checked. Stops at the first
    /// error. Objects that only nested actions name are not included.
    ///
    /// # Errors
    /// Returns the error of `see`.
    pub fn references<'a, E>(
        &'a self,
        see: &mut impl FnMut(Reference<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Action::Output { port, .. } | Action::Enqueue { port, .. } => see(Reference::Port(*port)),
            Action::Controller { .. } => see(Reference::Port(port::CONTROLLER)),
            Action::Group(id) => see(Reference::Group(*id)),
            Action::Meter(id) => see(Reference::Meter(*id)),
            Action::Set { field, value, mask, .. } => see(Reference::Constant(*field, *value, *mask)),
            Action::Move { from, to } => {
                see(Reference::Read(from))?;
                see(Reference::Written(to))
            }
            Action::Push(part) | Action::OutputReg { source: part, .. } => see(Reference::Read(part)),
            Action::Pop(part)
            | Action::CheckPktLarger { to: part, .. }
            | Action::Multipath { to: part, .. }
            | Action::Bundle { to: Some(part), .. } => see(Reference::Written(part)),
            Action::Resubmit { table, .. } => table.map_or(Ok(()), |table| see(Reference::Table(table))),
            Action::Learn(learn) => {
                see(Reference::Table(learn.table))?;
                see(Reference::Learn(learn))
            }
            Action::Clone(actions) => see(Reference::Actions(actions)),
            Action::Ct(ct) => {
                if let ZoneSource::Field(part) = &ct.zone {
                    see(Reference::Read(part))?;
                }
                ct.table.map_or(Ok(()), |table| see(Reference::Table(table)))?;
                see(Reference::Actions(&ct.exec))
            }
            Action::SetQueue(_)
            | Action::PopQueue
            | Action::PushVlan(_)
            | Action::PopVlan
            | Action::SetVlanVid(_)
            | Action::SetVlanPcp(_)
            | Action::PushMpls(_)
            | Action::PopMpls(_)
            | Action::PushPbb(_)
            | Action::PopPbb
            | Action::CopyTtlOut
            | Action::CopyTtlIn
            | Action::SetMplsTtl(_)
            | Action::DecMplsTtl
            | Action::SetTtl(_)
            | Action::DecTtl(_)
            | Action::Conjunction(_)
            | Action::Note(_)
            | Action::Bundle { to: None, .. }
            | Action::FinTimeout { .. }
            | Action::CtClear
            | Action::Exit => Ok(()),
        }
    }

    /// Returns whether the EtherType, VLAN identifier, VLAN priority, conjunction clause or width in the action is
    /// valid, and whether the arguments of a `ct` action are valid. Returns true for actions without these arguments.
    pub(crate) fn has_valid_numbers(&self) -> bool {
        match self {
            Action::PushVlan(tpid) => matches!(*tpid, ethertype::VLAN | ethertype::SERVICE_VLAN),
            Action::PushMpls(eth_type) => matches!(*eth_type, ethertype::MPLS | ethertype::MPLS_MULTICAST),
            Action::PushPbb(eth_type) => *eth_type == ethertype::PBB,
            Action::SetVlanVid(vid) => *vid <= 4095,
            Action::SetVlanPcp(pcp) => *pcp <= 7,
            Action::Conjunction(part) => part.clause < part.clauses && (2..=64).contains(&part.clauses),
            Action::Move { from, to } => from.bits == to.bits,
            Action::Ct(ct) => ct.is_sound(Action::sets_connection),
            _ => true,
        }
    }

    /// Returns whether the action may be in `exec` of a `ct` action: it sets bits of the mark or the label of the
    /// connection.
    #[must_use]
    pub fn sets_connection(&self) -> bool {
        match self {
            Action::Set { field, .. } => field.belongs_to_connection(),
            Action::Move { to, .. } => to.field.belongs_to_connection(),
            _ => false,
        }
    }

    /// Returns the heap memory that the action refers to, in octets, without the size of the action itself.
    fn memory(&self) -> usize {
        match self {
            Action::Controller { userdata, .. } => userdata.len(),
            Action::DecTtl(controllers) => size_of_val(&controllers[..]),
            Action::Learn(learn) => size_of::<Learn>() + size_of_val(&learn.parts[..]),
            Action::Note(octets) => octets.len(),
            Action::Clone(actions) => memory_of(actions),
            Action::Ct(ct) => size_of::<Ct>() + memory_of(&ct.exec),
            Action::Bundle { ports, .. } => size_of_val(&ports[..]),
            _ => 0,
        }
    }

    /// Returns the position of the action in the order in which an action set is executed (OpenFlow 1.3, 5.10).
    pub(super) fn position_in_set(&self) -> u8 {
        match self {
            Action::CopyTtlIn => 0,
            Action::PopPbb | Action::PopMpls(_) | Action::PopVlan => 1,
            Action::PushMpls(_) => 2,
            Action::PushPbb(_) => 3,
            Action::PushVlan(_) => 4,
            Action::CopyTtlOut => 5,
            Action::DecTtl(_) | Action::DecMplsTtl => 6,
            Action::SetQueue(_) | Action::PopQueue | Action::Enqueue { .. } => 8,
            Action::Group(_) => 9,
            Action::Output { .. } | Action::OutputReg { .. } | Action::Controller { .. } => {
                POSITION_OF_OUTPUT
            }
            Action::Resubmit { .. } => 11,
            _ => 7,
        }
    }

    /// Prints the action in the syntax of ovs-actions(7).
    #[allow(clippy::too_many_lines, reason = "one arm for each action")]
    pub(super) fn text(&self) -> String {
        match self {
            Action::Output { port: port::CONTROLLER, max_len } => format!("CONTROLLER:{max_len}"),
            Action::Output { port: number, .. } if *number <= port::MAX => format!("output:{number}"),
            Action::Output { port: number, .. } => field::port(*number),
            Action::OutputReg { source, .. } => format!("output:{}", field::sub_field(source)),
            Action::Controller { max_len, id, reason, userdata, pause, meter } => {
                print::controller(*max_len, *id, *reason, userdata, *pause, *meter)
            }
            Action::Enqueue { port: number, queue } => format!("enqueue:{}:{queue}", field::port(*number)),
            Action::SetQueue(queue) => format!("set_queue:{queue}"),
            Action::PopQueue => "pop_queue".to_owned(),
            Action::Group(id) => format!("group:{id}"),
            Action::Meter(id) => format!("meter:{id}"),
            Action::Set { field, value: to, mask, load } => print::set(*field, *to, *mask, *load),
            Action::Move { from, to } => format!("move:{}->{}", field::sub_field(from), field::sub_field(to)),
            Action::Push(part) => format!("push:{}", field::sub_field(part)),
            Action::Pop(part) => format!("pop:{}", field::sub_field(part)),
            Action::PushVlan(tpid) => format!("push_vlan:0x{tpid:04x}"),
            Action::PopVlan => "pop_vlan".to_owned(),
            Action::SetVlanVid(vid) => format!("mod_vlan_vid:{vid}"),
            Action::SetVlanPcp(pcp) => format!("mod_vlan_pcp:{pcp}"),
            Action::PushMpls(eth_type) => format!("push_mpls:0x{eth_type:04x}"),
            Action::PopMpls(eth_type) => format!("pop_mpls:0x{eth_type:04x}"),
            Action::PushPbb(eth_type) => format!("push_pbb:0x{eth_type:04x}"),
            Action::PopPbb => "pop_pbb".to_owned(),
            Action::CopyTtlOut => "copy_ttl_out".to_owned(),
            Action::CopyTtlIn => "copy_ttl_in".to_owned(),
            Action::SetMplsTtl(ttl) => format!("set_mpls_ttl({ttl})"),
            Action::DecMplsTtl => "dec_mpls_ttl".to_owned(),
            Action::SetTtl(ttl) => format!("mod_nw_ttl:{ttl}"),
            Action::DecTtl(controllers) if controllers.is_empty() || **controllers == [0] => {
                "dec_ttl".to_owned()
            }
            Action::DecTtl(controllers) => {
                let ids: Vec<String> = controllers.iter().map(u16::to_string).collect();
                format!("dec_ttl({})", ids.join(","))
            }
            Action::Resubmit { port: Some(number), table: None } => {
                format!("resubmit:{}", field::port(*number))
            }
            Action::Resubmit { port: number, table } => {
                let number = number.map(field::port).unwrap_or_default();
                format!("resubmit({number},{})", table.map(|table| table.to_string()).unwrap_or_default())
            }
            Action::Learn(learnt) => print::learn(learnt),
            Action::Conjunction(part) => {
                format!("conjunction({},{}/{})", part.id, u16::from(part.clause) + 1, part.clauses)
            }
            Action::Note(octets) => format!("note:{}", print::dotted(octets)),
            Action::Clone(inner) => format!("clone({})", text_of(inner)),
            Action::Multipath { fields, basis, mode, max_link, argument, to } => format!(
                "multipath({},{basis},{},{},{argument},{})",
                print::hashed(*fields),
                print::chosen(*mode),
                u32::from(*max_link) + 1,
                field::sub_field(to)
            ),
            Action::Bundle { fields, basis, mode, ports, to } => {
                print::bundle(*fields, *basis, *mode, ports, to.as_ref())
            }
            Action::CheckPktLarger { len, to } => {
                format!("check_pkt_larger({len})->{}", field::sub_field(to))
            }
            Action::FinTimeout { idle, hard } => {
                let times = [("idle_timeout", idle), ("hard_timeout", hard)];
                let times = times.iter().filter(|(_, time)| **time != 0);
                let times: Vec<String> = times.map(|(name, time)| format!("{name}={time}")).collect();
                format!("fin_timeout({})", times.join(","))
            }
            Action::Ct(ct) => conntrack_text::print(ct, &text_of(&ct.exec)),
            Action::CtClear => "ct_clear".to_owned(),
            Action::Exit => "exit".to_owned(),
        }
    }

    /// Parses an action in the syntax of ovs-actions(7). The name of a port is parsed as an output
    /// action. Returns `None` if the action is unknown or invalid. `clone`, actions for flow
    /// entries only (`learn`, `conjunction`, `fin_timeout`) and selections (`multipath`, `bundle`)
    /// are not parsed.
    pub(super) fn parse(
        word: &str,
        parser: &ActionParser<'_, impl Fn(&str) -> Option<u32>>,
    ) -> Option<Action> {
        let (name, argument) = name_and_argument(word)?;
        let output = |port: u32, max_len: u16| Action::Output { port, max_len };
        let set = |name: &str, text: &str| {
            let field = parser.field(name)?;
            let value = parser.value(field, text)?;
            Some(Action::Set { field, value, mask: field.all_ones(), load: false })
        };
        Some(match &*name {
            "output" => match sub_field(argument).filter(|_| parser.port(argument).is_none()) {
                Some(source) => Action::OutputReg { source, max_len: 0 },
                None => output(parser.port(argument)?, 0),
            },
            "controller" if argument.is_empty() => output(port::CONTROLLER, u16::MAX),
            "controller" => output(port::CONTROLLER, integer(argument)?),
            "resubmit" => {
                let (from, table) = argument.split_once(',').unwrap_or((argument, ""));
                let port = if from.is_empty() { None } else { Some(parser.port(from)?) };
                let table = if table.is_empty() { 0 } else { integer(table)? };
                Action::Resubmit { port, table: Some(table) }
            }
            "group" => Action::Group(integer(argument)?),
            "meter" => Action::Meter(integer(argument)?),
            "set_queue" => Action::SetQueue(integer(argument)?),
            "pop_queue" => Action::PopQueue,
            "enqueue" => {
                let (to, queue) = argument.split_once([':', ','])?;
                Action::Enqueue { port: parser.port(to)?, queue: integer(queue)? }
            }
            "set_field" => {
                let (value, field) = argument.split_once("->")?;
                let field = parser.field(field)?;
                let (value, mask) = match value.split_once('/') {
                    Some((value, mask)) => (value, parser.value(field, mask)?),
                    None => (value, field.all_ones()),
                };
                Action::Set { field, value: parser.value(field, value)? & mask, mask, load: false }
            }
            "load" => {
                let (value, to) = argument.split_once("->")?;
                let to = sub_field(to)?;
                Action::Set {
                    field: to.field,
                    value: number(value)? << to.first,
                    mask: to.mask(),
                    load: true,
                }
            }
            "move" => {
                let (from, to) = argument.split_once("->")?;
                Action::Move { from: sub_field(from)?, to: sub_field(to)? }
            }
            "push" => Action::Push(sub_field(argument)?),
            "pop" => Action::Pop(sub_field(argument)?),
            "mod_dl_src" => set("dl_src", argument)?,
            "mod_dl_dst" => set("dl_dst", argument)?,
            "mod_nw_src" => set("nw_src", argument)?,
            "mod_nw_dst" => set("nw_dst", argument)?,
            "mod_nw_tos" => set("ip_dscp", &(number(argument)? >> 2).to_string())?,
            "mod_nw_ecn" => set("ip_ecn", argument)?,
            "mod_tp_src" => set("tp_src", argument)?,
            "mod_tp_dst" => set("tp_dst", argument)?,
            "mod_nw_ttl" => Action::SetTtl(integer(argument)?),
            "mod_vlan_vid" => Action::SetVlanVid(integer(argument).filter(|vid| *vid < 0x1000)?),
            "mod_vlan_pcp" => Action::SetVlanPcp(integer(argument).filter(|pcp| *pcp < 8)?),
            "push_vlan" => Action::PushVlan(integer(argument)?),
            "pop_vlan" | "strip_vlan" => Action::PopVlan,
            "push_mpls" => Action::PushMpls(integer(argument)?),
            "pop_mpls" => Action::PopMpls(integer(argument)?),
            "dec_mpls_ttl" => Action::DecMplsTtl,
            "set_mpls_ttl" => Action::SetMplsTtl(integer(argument)?),
            "dec_ttl" if argument.is_empty() => Action::DecTtl(vec![0]),
            "dec_ttl" => Action::DecTtl(argument.split(',').map(integer).collect::<Option<_>>()?),
            "ct" => {
                let ct = conntrack_text::parse(argument, |word| Action::parse(word, parser))?;
                Some(Action::Ct(Box::new(ct))).filter(Action::has_valid_numbers)?
            }
            "ct_clear" => Action::CtClear,
            "exit" => Action::Exit,
            _ if argument.is_empty() => output(parser.port(&name).or_else(|| (parser.port)(word))?, 0),
            _ => return None,
        })
    }
}
