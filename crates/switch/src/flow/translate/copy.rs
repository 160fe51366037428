//! Translation of actions on a copy of the packet (`clone` actions and buckets of groups).

use super::{Run, work_of, work_to_copy};
use crate::flow::Flow;
use crate::flow::program::Op;

impl Run<'_> {
    /// Executes `does` on a copy of the packet, and then restores the packet. Does nothing if the stack space is
    /// used up.
    pub(super) fn on_copy(&mut self, does: impl FnOnce(&mut Self)) {
        let copied = work_to_copy(&self.action_set).saturating_add(work_of(self.stack.len()));
        if !self.has_stack() || !self.works_for(copied) {
            return;
        }
        let uncommitted = (self.dirty, self.rendered.clone(), self.cost, self.out.program.ops.len());
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
            // The copies of a packet of this kind probably need the frame, and each of them continues from
            // here.
            let _ = self.frame_now();
        }
        let rendered = self.rendered.clone();
        does(self);
        // Changes to the copy's frame do not apply to this one.
        self.rendered = rendered;
        // The copy waits for its controller. The packet does not.
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
        if !ops[from..].iter().any(|op| matches!(op, Op::Output(_) | Op::Normal | Op::Meter(_))) {
            let steps;
            (self.dirty, self.rendered, self.cost, steps) = uncommitted;
            ops.truncate(steps);
            return;
        }
        // A queue that the copy selects applies to the copy only.
        let changes = |op: &Op| !matches!(op, Op::Output(_) | Op::Normal);
        if ops[from..].iter().any(changes)
            && let Ok(n) = u16::try_from(ops.len() - from)
        {
            ops.insert(from, Op::Clone(n));
        }
    }
}
