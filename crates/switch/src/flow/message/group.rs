//! Groups, the requests that change them, and their counters.

use crate::flow::action::memory_of;
use crate::flow::{Action, Field};

/// Group number that represents all groups in requests (OFPG_ALL).
pub const ALL_GROUPS: u32 = 0xffff_fffc;
/// Group number in requests that represents any group, and therefore means no restriction (OFPG_ANY).
pub const ANY_GROUP: u32 = 0xffff_ffff;

/// The type of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupKind {
    /// Executes all buckets, each on a copy of the packet.
    All,
    /// Executes one bucket, selected by weight.
    Select,
    /// Executes the only bucket.
    Indirect,
    /// Executes the first live bucket.
    FastFailover,
}

/// The method by which a select group selects a bucket.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum SelectMethod {
    /// Hashes the Ethernet addresses and the other L2 to L4 fields.
    #[default]
    Default,
    /// Hashes the fields that the controller specified (`selection_method=hash`).
    Hash {
        /// Fields that are hashed, each with a mask of the bits that the hash includes.
        fields: Vec<(Field, u128)>,
        /// Parameter of the hash, as the controller specified it.
        parameter: u64,
    },
    /// Uses a hash of the packet's five-tuple (`dp_hash`).
    DpHash {
        /// Parameter of the hash, as the controller specified it.
        parameter: u64,
    },
}

/// A bucket of a group: a list of actions with a weight and a liveness condition.
#[derive(Clone, PartialEq, Debug)]
pub struct Bucket {
    /// Bucket identifier in OpenFlow 1.5, or the index of the bucket in earlier versions.
    pub id: u32,
    /// Weight of the bucket in a select group, relative to the other buckets.
    pub weight: u16,
    /// Port that the bucket watches: the bucket is live if this port is live. `None` means no port.
    pub watch_port: Option<u32>,
    /// Group that the bucket watches: the bucket is live if this group is live. `None` means no group.
    pub watch_group: Option<u32>,
    /// Actions of the bucket.
    pub actions: Vec<Action>,
}

/// An OpenFlow group.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// Number of the group.
    pub id: u32,
    /// Type of the group.
    pub kind: GroupKind,
    /// Bucket selection method of a select group.
    pub method: SelectMethod,
    /// Buckets of the group.
    pub buckets: Vec<Bucket>,
}

impl Bucket {
    /// Returns the approximate size of the bucket with its actions in memory, in octets.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Bucket>() + memory_of(&self.actions)
    }
}

impl Group {
    /// Returns the approximate size of the group with its buckets in memory, in octets.
    #[must_use]
    pub fn memory(&self) -> usize {
        let buckets = self.buckets.iter();
        let fields = match &self.method {
            SelectMethod::Hash { fields, .. } => size_of_val(&fields[..]),
            SelectMethod::Default | SelectMethod::DpHash { .. } => 0,
        };
        size_of::<Group>() + fields + buckets.map(Bucket::memory).sum::<usize>()
    }
}

/// The position at which buckets are inserted, or the selection of buckets to remove (OpenFlow 1.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BucketPlace {
    /// Inserts before the first bucket, or removes the first bucket.
    First,
    /// Inserts after the last bucket, or removes the last bucket.
    Last,
    /// Inserts after the bucket with this identifier, or removes this bucket.
    Id(u32),
    /// Removes all buckets.
    All,
}

/// A group-mod: a change of groups.
#[derive(Clone, PartialEq, Debug)]
pub enum GroupMod {
    /// Adds a group.
    Add(Group),
    /// Changes a group.
    Modify {
        /// New state of the group.
        group: Group,
        /// Whether the group is added if it does not exist (Nicira's ADD_OR_MOD).
        or_add: bool,
    },
    /// Removes the group with this number, or all groups if the number is [`ALL_GROUPS`]. Flow entries that use the
    /// removed groups are also removed.
    Delete(u32),
    /// Inserts buckets into a group.
    InsertBuckets(u32, BucketPlace, Vec<Bucket>),
    /// Removes buckets from a group.
    RemoveBuckets(u32, BucketPlace),
}

/// Counters of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupStats {
    /// Number of the group.
    pub id: u32,
    /// Number of flow entries and groups that refer to the group.
    pub references: u32,
    /// Number of packets that the group processed.
    pub packets: u64,
    /// Number of octets of the packets that the group processed.
    pub bytes: u64,
    /// Nanoseconds since the group was added.
    pub age_ns: u64,
    /// Number of packets and number of octets that each bucket processed, in the order of the buckets.
    pub buckets: Vec<(u64, u64)>,
}
