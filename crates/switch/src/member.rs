//! A bridge member as workers use it: one small value for each port, which is compiled from the
//! port's configuration.
//!
//! The VLAN rules of ingress (IEEE 802.1Q clauses 6.9.1 and 8.6.2) and egress (8.6.4, 6.9.2) are in this
//! module.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packet::record::{FloodClass, VlanSource};
use packet::{DropReason, FlowKey, PortId, VlanId};
use sync::token_bucket::TokenBucket;

use crate::config::{BridgePortConfig, StormLimits, VlanMode, VlanSet};
use crate::decision::TagForm;

/// VLAN and learning settings of one bridge member, for offloads (such as XDP programs) that forward in place of the
/// bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberFacts {
    /// VLAN of untagged frames on ingress. The value is `None` if the member does not admit untagged frames.
    pub untagged: Option<VlanId>,
    /// Whether the member admits frames that carry a VLAN tag.
    pub tagged: bool,
    /// Whether the member drops frames that carry a tag of the VLAN in [`MemberFacts::untagged`], so that this VLAN is
    /// only admitted untagged.
    pub untagged_only: bool,
    /// Whether the member is protected. The bridge forwards no frames between protected members.
    pub protected: bool,
    /// Whether source addresses are learned on the member.
    pub learning: bool,
}

/// Value of a VLAN field if the port has no such VLAN, for example no native VLAN.
const NOT_ADMITTED: u16 = u16::MAX;

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) port: PortId,
    pub(crate) protected: bool,
    /// Whether the bridge accepts multicast queries and PIM hellos that arrive on the port.
    pub(crate) multicast_router: bool,
    pub(crate) learning: bool,
    pub(crate) flood: bool,
    /// Whether any storm limit is configured on the port.
    pub(crate) limited: bool,
    mode: Mode,
    /// VLAN of untagged frames on ingress, or [`NOT_ADMITTED`].
    untagged: u16,
    /// VLAN whose frames are transmitted without a tag, or [`NOT_ADMITTED`] if all frames are tagged.
    plain: u16,
    /// VLAN whose frames are dropped on ingress if they are tagged, or [`NOT_ADMITTED`].
    untagged_only: u16,
    vlans: VlanSet,
    pub(crate) mac_limit: u32,
    limits: StormLimits,
    buckets: [Option<Arc<TokenBucket>>; 3],
    /// Limit on the rate at which the port's multicast control messages are copied to the snooper.
    snooped: Arc<SnoopedCopies>,
}

/// The limit on the rate at which one port's multicast control messages (IGMP, MLD, PIM) are copied to the snooper.
#[derive(Debug)]
pub(crate) struct SnoopedCopies {
    bucket: TokenBucket,
    /// Time, in nanoseconds, at which a copy for the snooper was last lost or cut: because of the rate limit, a storm
    /// limit, a full queue, or the length of the frame.
    /// The value is 0 if no copy was lost. Workers store the value and the snooper loads it with relaxed ordering.
    missed_ns: AtomicU64,
}

impl SnoopedCopies {
    fn new() -> SnoopedCopies {
        let bucket = TokenBucket::new(u64::from(SNOOPED_RATE), SNOOPED_BURST, 0);
        SnoopedCopies { bucket, missed_ns: AtomicU64::new(0) }
    }

    /// Takes a token of the rate limit for one copy. If the limit is exceeded, records the lost copy and returns false.
    pub(crate) fn take(&self, now_ns: u64) -> bool {
        let is_granted = self.bucket.take(now_ns, 1) == 1;
        if !is_granted {
            self.miss(now_ns);
        }
        is_granted
    }

    /// Records that a copy for the snooper was lost at the time `now_ns`.
    pub(crate) fn miss(&self, now_ns: u64) {
        self.missed_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Returns whether the rate limit allows one more copy for the snooper. No token is taken.
    pub(crate) fn is_available(&self, now_ns: u64) -> bool {
        self.bucket.available(now_ns) > 0
    }

    pub(crate) fn last_missed_ns(&self) -> Option<u64> {
        Some(self.missed_ns.load(Ordering::Relaxed)).filter(|at| *at != 0)
    }
}

/// Maximum rate, in copies per second, at which the snooper gets one port's IGMP, MLD and PIM messages. Hosts answer a
/// query within ten seconds. Even if a port has the maximum number of groups
/// ([`crate::SnooperConfig::max_groups_per_port`]) in one VLAN, the answers of its hosts stay below this rate. If the
/// rate is exceeded, the port receives all groups.
pub(crate) const SNOOPED_RATE: u32 = 100;
/// Burst size, in copies, for the rate limit [`SNOOPED_RATE`]. A burst fills only a small part of the queue from a
/// worker to the snooper.
pub(crate) const SNOOPED_BURST: u32 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Access,
    Trunk,
    Transparent,
}

/// The VLAN of an admitted frame, and the form of the frame's VLAN tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ingress {
    pub(crate) vid: u16,
    pub(crate) form: TagForm,
}

impl Member {
    /// Compiles the configuration of a member. Storm limits that are unchanged keep the token buckets of `before`,
    /// the previous version of the member.
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

    /// Returns the VLAN of an arriving frame, or the reason why the frame is not admitted.
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

    /// Returns true if the port transmits frames of the VLAN `vid` with a tag, and false if it transmits them
    /// untagged. Returns `None` if the port does not transmit frames of the VLAN.
    #[inline(always)]
    pub(crate) fn egress(&self, vid: u16) -> Option<bool> {
        if vid == self.plain {
            return Some(false);
        }
        // `vlans` of an access port holds only `plain`. `vlans` of a transparent port is empty.
        self.vlans.contains_vid(vid).then_some(true)
    }

    /// Returns the limit on the rate at which the port's multicast control messages are copied to the snooper.
    #[inline]
    pub(crate) fn snooped(&self) -> &SnoopedCopies {
        &self.snooped
    }

    /// Returns the member's settings for offloads. Returns `None` for a transparent member.
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

    /// Returns the source of a frame's VLAN: the frame's tag, or the access or native VLAN of the port. `form` is the
    /// form of the frame's VLAN tag. Packet tracing uses this function.
    pub(crate) fn vlan_source(&self, form: TagForm) -> VlanSource {
        match (form, self.mode) {
            (TagForm::Opaque, _) => VlanSource::None,
            (TagForm::Tagged, _) => VlanSource::Tag,
            (_, Mode::Access) => VlanSource::Access,
            (_, _) => VlanSource::Native,
        }
    }

    /// Returns the token bucket of the member's storm limit for a class of frames. Returns `None` if the
    /// class has no limit.
    #[inline]
    pub(crate) fn bucket(&self, class: FloodClass) -> Option<&TokenBucket> {
        self.buckets[class_index(class)].as_deref()
    }
}

/// The classes of flooded frames with a storm limit, in the order of a member's token buckets.
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

/// Returns the drop reason of a frame that exceeds the storm limit of its class.
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
    // The bucket's start time is the clock's zero, so that the bucket is full at its first use.
    Some(kept.unwrap_or_else(|| Arc::new(TokenBucket::new(u64::from(rate), StormLimits::burst(rate), 0))))
}
