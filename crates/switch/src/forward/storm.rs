//! Storm limits, which bound a port's broadcast, multicast and unknown-unicast frames.

use packet::FlowKey;
use packet::record::Recorder;

use super::{Pass, class_of};
use crate::decision::Decision;
use crate::member::{CLASSES, Member, class_index, storm_reason};

impl<R: Recorder> Pass<'_, R> {
    /// Applies the limit on the rate at which a port's frames are copied to the snooper. If the limit is exceeded, the
    /// returned decision no longer requests a copy.
    #[cold]
    #[inline(never)]
    pub(super) fn limit_snooped(&self, member: &Member, mut decision: Decision) -> Decision {
        let copies = member.snooped();
        let is_granted = if R::DRY { copies.is_available(self.now.ns) } else { copies.take(self.now.ns) };
        if let Decision::Flood { punt, .. } | Decision::Group { punt, .. } = &mut decision {
            *punt = is_granted;
        }
        decision
    }

    /// Drops the frames that exceed a storm limit. Tokens are taken once for each class and run of consecutive frames
    /// from one port. `judged` holds the indices of the frames to which a limit applies.
    #[cold]
    #[inline(never)]
    pub(super) fn judge_storms(&mut self, judged: &[u16], keys: &[FlowKey], out: &mut [Decision]) {
        let port = |at: &u16| keys[usize::from(*at)].in_port();
        for run in judged.chunk_by(|a, b| port(a) == port(b)) {
            let Some(member) = self.view.member(port(&run[0])) else { continue };
            let mut wanted = [0u32; 3];
            let class = |out: &[Decision], at: u16| class_of(&out[usize::from(at)]);
            run.iter().filter_map(|&at| class(out, at)).for_each(|class| wanted[class_index(class)] += 1);
            let mut granted = CLASSES.map(|class| {
                let wanted = wanted[class_index(class)];
                let Some(bucket) = member.bucket(class).filter(|_| wanted > 0) else { return 0 };
                if R::DRY {
                    return u32::try_from(bucket.available(self.now.ns)).unwrap_or(u32::MAX).min(wanted);
                }
                bucket.take(self.now.ns, wanted)
            });
            for &at in run {
                let Some(class) = class(out, at) else { continue };
                let left = &mut granted[class_index(class)];
                match left.checked_sub(1) {
                    _ if member.bucket(class).is_none() => {}
                    Some(rest) => *left = rest,
                    None => {
                        if out[usize::from(at)].punts() && !R::DRY {
                            member.snooped().miss(self.now.ns);
                        }
                        out[usize::from(at)] = Decision::Drop(storm_reason(class));
                    }
                }
            }
        }
    }
}
