//! OpenFlow support of the switch: matches, actions, flow tables, and the translation of packets into
//! datapath actions.
//!
//! ```text
//!   FlowKey + ExtendedKey (of the packet)            Pipeline (tables, groups, meters; one writer)
//!            \                                             |
//!             +--> Flow (words for every field) --> translate --> Megaflow: mask + program, for the worker's caches
//! ```
//!
//! [`Flow`] holds all fields of a packet that OpenFlow can match. The first words hold metadata, tunnel metadata and
//! registers, which are zero when a packet arrives, because no port is a tunnel. The other words are copied from the
//! [`FlowKey`] and from the [`ExtendedKey`], which holds fields that only some packets have, and the connection of a
//! packet that the action `ct` has tracked. A [`Match`] consists of two flows: a value and a mask. [`Field`] specifies
//! the position of each field. The crate `openflow` implements the protocol versions and wire formats.
//!
//! A [`Rule`] is a flow entry of an OpenFlow table. A [`Megaflow`] is the result of a translation: a masked flow and
//! datapath actions. Workers cache megaflows.

mod action;
mod batch;
mod bounds;
mod connection;
mod connection_filter;
mod dump;
mod events;
mod expire;
mod extended_key;
mod field;
mod group_references;
mod instructions;
mod learned;
mod look_up;
mod matching;
mod message;
mod modify;
mod normal;
mod numbers;
mod option_fields;
mod option_uses;
mod options;
mod packet_out;
mod pipeline;
mod program;
mod reason;
mod rewrite;
mod rule;
mod shown;
mod table_bounds;
mod tags;
mod teach;
pub mod text;
mod trace_report;
mod translate;
mod uses;
mod work;

pub use action::{
    Action, BundleMode, Conjunction, Ct, CtAction, CtNat, FTP, HashFields, Learn, LearnPart, LearnSource,
    NatEnd, NatRange, NatSelection, Reference, SubField, TFTP, ZoneSource, each_reference, port,
};
pub use batch::{BATCH_WORK, DecidedPacket};
pub use connection::ConnectionFields;
pub use connection_filter::{ConnectionFilter, TupleFilter};
pub use dump::{FlowDump, FlowSums, NumberedDump};
pub use extended_key::{EXTENDED_WORDS, ExtendedKey};
pub use field::{Field, Prerequisite, TUN_METADATA};
pub use instructions::Instructions;
pub use learned::LearnedFlow;
pub use matching::{Match, MatchError, packet_meets};
pub use message::*;
pub use normal::{Arrival, NormalNote, Resolved, resolve};
pub use options::{OPTION_SPACE, OptionsError, OptionsMod, TunnelOption, TunnelOptions};
pub use pipeline::{
    FlowPort, LAYOUT, MAX_MASKS, MAX_RULES, Pipeline, RULE_MEMORY, TABLES, Touched, VISIBLE_TABLES,
};
pub use program::{FrozenState, MAX_CLONES, Megaflow, Op, Program, Recirculation, SetBits, TrackStep};
pub use reason::Reason;
pub use rewrite::{Frame, apply as rewrite};
pub use rule::{Rule, RuleRef};
pub use shown::{GroupShown, MeterShown};
pub use table_bounds::{TableBounds, TableWishes};
pub use tags::one_tag;
pub use trace_report::{Bits, TraceLine, TraceReport};
pub use translate::{
    Ahead, Failed, TRACED, ToController, Trace, Translated, TranslationInput, all_bits,
    packet_and_beyond_bits, packet_bits,
};

use packet::FlowKey;

/// Number of 64-bit words of a [`Flow`].
pub const FLOW_WORDS: usize = 50;
/// Ends of the four stages of a staged classifier lookup (metadata, L2, L3, L4), as indices of words of a [`Flow`].
pub const STAGES: [usize; 4] = [26, 31, 40, FLOW_WORDS];
/// Indices in a [`Flow`] of the words that are copied from the packet's [`FlowKey`], in the order of the key's words.
pub(crate) const KEY_WORDS: [usize; 8] = [26, 27, 28, 31, 32, 33, 34, 40];
/// Index in a [`Flow`] of the first octet of the 802.1ah service instance tag (I-TAG).
pub(crate) const PBB_TAG: usize = Field::PbbUca.octet();
/// Indices in a [`Flow`] of the words that are copied from the [`ExtendedKey`], in the order of the key's words.
pub(crate) const BEYOND_WORDS: [usize; EXTENDED_WORDS] =
    [29, 30, 35, 36, 37, 38, 39, 41, 42, 43, 44, 45, 46, 47, 48, 49];
/// Words of a [`Flow`] that hold the connection of the packet (`ct_state` to `ct_tp_dst`).
pub(crate) const CONNECTION_WORDS: std::ops::Range<usize> = 41..FLOW_WORDS;

/// All fields of a packet that OpenFlow can match. See the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow(pub [u64; FLOW_WORDS]);

impl Flow {
    /// A flow with all bits zero. Used as a mask, this value matches all packets.
    pub const ZERO: Flow = Flow([0; FLOW_WORDS]);

    /// Returns the flow of a packet that arrived on the OpenFlow port `in_port`.
    #[must_use]
    pub fn new(key: &FlowKey, extended: &ExtendedKey, in_port: u32) -> Flow {
        let mut flow = Flow::ZERO;
        for (word, place) in key.words().iter().zip(KEY_WORDS) {
            flow.0[place] = *word;
        }
        for (word, place) in extended.0.iter().zip(BEYOND_WORDS) {
            flow.0[place] = *word;
        }
        // The engine's port number in the key is replaced by the OpenFlow port number.
        flow.0[KEY_WORDS[0]] &= !IN_PORT_BITS;
        flow.set(Field::InPort, u128::from(in_port));
        flow
    }

    /// Returns the words of the flow that come from the worker's flow key. The ingress port of the returned key is
    /// zero.
    #[must_use]
    pub fn key(&self) -> FlowKey {
        FlowKey::from_words(KEY_WORDS.map(|place| self.0[place]))
    }

    /// Returns the words of the flow that come from the extended key.
    #[must_use]
    pub fn extended(&self) -> ExtendedKey {
        ExtendedKey(BEYOND_WORDS.map(|place| self.0[place]))
    }

    /// Returns the value of a field, right-aligned.
    #[must_use]
    pub fn get(&self, field: Field) -> u128 {
        let (at, bits) = field.place();
        self.bits(at, bits)
    }

    /// Sets a field. Bits above the field's width are ignored.
    pub fn set(&mut self, field: Field, value: u128) {
        let (at, bits) = field.place();
        self.set_bits(at, bits, value);
    }

    /// Returns `bits` bits, starting at bit `at`. Bit 0 is the most significant bit of the first octet.
    pub(crate) fn bits(&self, at: usize, bits: usize) -> u128 {
        let bytes = zerocopy::IntoBytes::as_bytes(&self.0);
        let mut value: u128 = 0;
        let (first, last) = (at / 8, (at + bits).div_ceil(8));
        let behind = last * 8 - at - bits;
        for (index, byte) in bytes[first..last].iter().enumerate() {
            let byte = if index == 0 { byte & (0xff >> (at % 8)) } else { *byte };
            let own = if first + index + 1 == last { u128::from(byte >> behind) } else { u128::from(byte) };
            let width = if first + index + 1 == last { 8 - behind } else { 8 };
            value = if index == 0 { own } else { value << width | own };
        }
        value
    }

    /// Sets `bits` bits, starting at bit `at`. Bits are counted as in [`Flow::bits`].
    pub(crate) fn set_bits(&mut self, at: usize, bits: usize, value: u128) {
        let bytes = zerocopy::IntoBytes::as_mut_bytes(&mut self.0);
        let mut rest = value;
        let mut left = bits;
        let mut end = at + bits;
        while left > 0 {
            // Octet that holds the lowest remaining bits.
            let index = (end - 1) / 8;
            let behind = (index + 1) * 8 - end;
            let width = left.min(8 - behind);
            let mask = u8::try_from((1_u16 << width) - 1).unwrap_or(0xff) << behind;
            let own = rest.to_le_bytes()[0] << behind & mask;
            bytes[index] = bytes[index] & !mask | own;
            rest >>= width;
            left -= width;
            end -= width;
        }
    }

    /// Returns a copy of the flow in which all bits outside `mask` are cleared.
    #[must_use]
    pub fn masked(&self, mask: &Flow) -> Flow {
        Flow(std::array::from_fn(|word| self.0[word] & mask.0[word]))
    }

    /// Sets in this mask all bits that are set in the mask `other`.
    pub fn or(&mut self, other: &Flow) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own |= other;
        }
    }

    /// Sets all bits of a field in this mask, so that the whole field is matched.
    pub fn want(&mut self, field: Field) {
        self.set(field, u128::MAX);
    }
}

/// Mask of the ingress port in the first word of a [`FlowKey`], in memory order. The port is an engine port number.
pub(crate) const IN_PORT_BITS: u64 = u64::from_ne_bytes([0xff, 0xff, 0, 0, 0, 0, 0, 0]);

impl Default for Flow {
    fn default() -> Self {
        Flow::ZERO
    }
}

impl std::fmt::Debug for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut map = f.debug_map();
        for field in Field::ALL {
            let value = self.get(field);
            if value != 0 {
                map.entry(&field.name(), &format_args!("{value:#x}"));
            }
        }
        map.finish()
    }
}
