//! A bridge's member as the data path reads it: one small value per port, compiled from its configuration.
//!
//! Holds the VLAN rules of ingress (IEEE 802.1Q clauses 6.9.1 and 8.6.2) and egress (8.6.4, 6.9.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packet::record::{FloodClass, VlanSource};
use packet::{DropReason, FlowKey, PortId, VlanId};
use sync::token_bucket::TokenBucket;

use crate::bridge::MemberFacts;
use crate::config::{BridgePortConfig, StormLimits, VlanMode, VlanSet};
use crate::decision::TagForm;

/// Tells that a port takes no untagged frames.
const NOT_ADMITTED: u16 = u16::MAX;

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) port: PortId,
    pub(crate) protected: bool,
    /// Whether multicast routers may be here.
    pub(crate) multicast_router: bool,
    pub(crate) learning: bool,
    pub(crate) flood: bool,
    /// Whether any class has a limit.
    pub(crate) limited: bool,
    mode: Mode,
    /// VLAN of untagged frames, or [`NOT_ADMITTED`].
    untagged: u16,
    /// VLAN whose frames leave without a tag, or [`NOT_ADMITTED`].
    plain: u16,
    /// VLAN that is no tagged frame's, or [`NOT_ADMITTED`].
    untagged_only: u16,
    vlans: VlanSet,
    pub(crate) mac_limit: u32,
    limits: StormLimits,
    buckets: [Option<Arc<TokenBucket>>; 3],
    /// Limits the copies for the snooper.
    snooped: Arc<SnoopedCopies>,
}

/// The limit of a port's copies for the snooper.
#[derive(Debug)]
pub(crate) struct SnoopedCopies {
    bucket: TokenBucket,
    /// When a copy was last left out, in nanoseconds; 0: never. Written by workers, read by the snooper, which needs no order.
    missed_ns: AtomicU64,
}

impl SnoopedCopies {
    fn new() -> SnoopedCopies {
        let bucket = TokenBucket::new(u64::from(SNOOPED_RATE), SNOOPED_BURST, 0);
        SnoopedCopies { bucket, missed_ns: AtomicU64::new(0) }
    }

    /// Whether one more copy is within the limit; takes it. What is not is noted.
    pub(crate) fn take(&self, now_ns: u64) -> bool {
        let is_granted = self.bucket.take(now_ns, 1) == 1;
        if !is_granted {
            self.miss(now_ns);
        }
        is_granted
    }

    /// Notes that a copy was left out.
    pub(crate) fn miss(&self, now_ns: u64) {
        self.missed_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Whether one more copy would be within the limit.
    pub(crate) fn is_available(&self, now_ns: u64) -> bool {
        self.bucket.available(now_ns) > 0
    }

    pub(crate) fn last_missed_ns(&self) -> Option<u64> {
        Some(self.missed_ns.load(Ordering::Relaxed)).filter(|at| *at != 0)
    }
}

/// Copies of IGMP, MLD and PIM messages of one port that the snooper gets per second: more than a port's bound of groups
/// ([`crate::SnooperConfig::max_groups_per_port`]) needs in the ten seconds in which hosts answer a query.
pub(crate) const SNOOPED_RATE: u32 = 100;
/// Such copies at once: a small part of the ring between a worker and the snooper.
pub(crate) const SNOOPED_BURST: u32 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Access,
    Trunk,
    Transparent,
}

/// What ingress made of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ingress {
    pub(crate) vid: u16,
    pub(crate) form: TagForm,
}

impl Member {
    /// Compiles a member; the buckets of limits that did not change are those of `before`.
    pub(crate) fn new(config: &BridgePortConfig, before: Option<&Member>) -> Member {
        let (mode, untagged, plain, vlans) = match &config.mode {
            VlanMode::Access(vlan) => {
                (Mode::Access, vlan.get(), vlan.get(), std::iter::once(*vlan).collect())
            }
            VlanMode::Trunk { allowed, native, native_tagged } => {
                let mut vlans = allowed.clone();
                native.iter().for_each(|&native| vlans.insert(native));
                let untagged = native.map_or(NOT_ADMITTED, |native| native.get());
                (Mode::Trunk, untagged, if *native_tagged { NOT_ADMITTED } else { untagged }, vlans)
            }
            VlanMode::Transparent => (Mode::Transparent, 0, 0, VlanSet::new()),
        };
        Member {
            port: config.port,
            protected: config.protected,
            multicast_router: config.multicast_router.unwrap_or(!config.protected),
            learning: config.learning,
            flood: config.flood,
            limited: config.storm != StormLimits::default(),
            mode,
            untagged,
            plain,
            untagged_only: if config.native_untagged_only { untagged } else { NOT_ADMITTED },
            vlans,
            mac_limit: config.mac_limit.unwrap_or(u32::MAX),
            limits: config.storm,
            buckets: CLASSES.map(|class| bucket(limit(&config.storm, class), class, before)),
            snooped: before
                .map_or_else(|| Arc::new(SnoopedCopies::new()), |member| Arc::clone(&member.snooped)),
        }
    }

    /// Finds the frame's VLAN, or why it may not enter.
    #[inline(always)]
    pub(crate) fn admit(&self, key: &FlowKey) -> Result<Ingress, DropReason> {
        let tci = key.outer_tci();
        if self.mode == Mode::Transparent {
            return Ok(Ingress { vid: 0, form: TagForm::Opaque });
        }
        let tagged = tci != 0 && !key.outer_is_service_tag();
        let vid = tci & 0xfff;
        if tagged && vid != 0 {
            return match self.mode {
                Mode::Access => Err(DropReason::VlanTaggedOnAccess),
                _ if self.vlans.contains_vid(vid) && vid != self.untagged_only => {
                    Ok(Ingress { vid, form: TagForm::Tagged })
                }
                _ => Err(DropReason::VlanNotAllowed),
            };
        }
        if self.untagged == NOT_ADMITTED {
            return Err(DropReason::VlanUntaggedNotAdmitted);
        }
        Ok(Ingress { vid: self.untagged, form: if tagged { TagForm::Priority } else { TagForm::Untagged } })
    }

    /// Whether frames of the VLAN leave here, and if so whether they carry a tag.
    #[inline(always)]
    pub(crate) fn egress(&self, vid: u16) -> Option<bool> {
        if vid == self.plain {
            return Some(false);
        }
        // For an access port, `vlans` holds only `plain`; for a transparent one nothing.
        self.vlans.contains_vid(vid).then_some(true)
    }

    /// The limit of the copies for the snooper.
    #[inline]
    pub(crate) fn snooped(&self) -> &SnoopedCopies {
        &self.snooped
    }

    /// For whoever forwards in the bridge's name; `None` for a transparent member.
    pub(crate) fn facts(&self) -> Option<MemberFacts> {
        let untagged = VlanId::new(self.untagged).filter(|_| self.untagged != NOT_ADMITTED);
        (self.mode != Mode::Transparent).then_some(MemberFacts {
            untagged,
            tagged: self.mode == Mode::Trunk,
            untagged_only: self.untagged_only != NOT_ADMITTED,
            protected: self.protected,
            learning: self.learning,
        })
    }

    /// Where the VLAN of a frame that came in this way was found, for recorders.
    pub(crate) fn vlan_source(&self, form: TagForm) -> VlanSource {
        match (form, self.mode) {
            (TagForm::Opaque, _) => VlanSource::None,
            (TagForm::Tagged, _) => VlanSource::Tag,
            (_, Mode::Access) => VlanSource::Access,
            (_, _) => VlanSource::Native,
        }
    }

    /// The bucket that limits this class, if one does.
    #[inline]
    pub(crate) fn bucket(&self, class: FloodClass) -> Option<&TokenBucket> {
        self.buckets[class_index(class)].as_deref()
    }
}

/// The classes of storm limits in the order of their buckets.
pub(crate) const CLASSES: [FloodClass; 3] =
    [FloodClass::Broadcast, FloodClass::Multicast, FloodClass::Unknown];

#[inline]
pub(crate) fn class_index(class: FloodClass) -> usize {
    match class {
        FloodClass::Broadcast => 0,
        FloodClass::Multicast => 1,
        FloodClass::Unknown => 2,
    }
}

/// The reason of a frame that a storm limit stopped.
pub(crate) fn storm_reason(class: FloodClass) -> DropReason {
    match class {
        FloodClass::Broadcast => DropReason::StormBroadcast,
        FloodClass::Multicast => DropReason::StormMulticast,
        FloodClass::Unknown => DropReason::StormUnknown,
    }
}

fn limit(limits: &StormLimits, class: FloodClass) -> Option<u32> {
    match class {
        FloodClass::Broadcast => limits.broadcast,
        FloodClass::Multicast => limits.multicast,
        FloodClass::Unknown => limits.unknown,
    }
}

fn bucket(rate: Option<u32>, class: FloodClass, before: Option<&Member>) -> Option<Arc<TokenBucket>> {
    let rate = rate?;
    let kept = before.filter(|member| limit(&member.limits, class) == Some(rate));
    let kept = kept.and_then(|member| member.buckets[class_index(class)].clone());
    // Born at the clock's beginning, it is full at its first use, whenever that is.
    Some(kept.unwrap_or_else(|| Arc::new(TokenBucket::new(u64::from(rate), StormLimits::burst(rate), 0))))
}
