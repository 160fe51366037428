//! Translation of actions on a copy of the packet (`clone` actions and buckets of groups).

use super::{Failed, Run, work_of, work_to_copy};
use crate::flow::Flow;
use crate::flow::program::{MAX_CLONES, Op};

impl Run<'_> {
    /// Executes `does` on a copy of the packet, and then restores the packet. Ends the translation if copies are nested
    /// too deep, because each worker executes nested clones recursively. Copies in nested look-ups count as nested too.
    pub(super) fn on_copy(&mut self, does: impl FnOnce(&mut Self)) {
        let copied = work_to_copy(&self.action_set).saturating_add(work_of(self.stack.len()));
        if !self.may_copy() || !self.has_stack() || !self.works_for(copied) {
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
            // Other copies of this packet probably need the frame too, and each of them continues with the frame
            // computed here.
            let _ = self.frame_now();
        }
        let rendered = self.rendered.clone();
        self.copies += 1;
        does(self);
        self.copies -= 1;
        // Changes of the copy's frame do not apply to the packet itself.
        self.rendered = rendered;
        // The copy waits for its controller. The packet itself does not wait.
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
        // Charged, because the steps of the copy are examined, and are moved by the insertion of the clone.
        self.works_for(work_of(self.out.program.ops.len() - from));
        let ops = &mut self.out.program.ops;
        if !ops[from..].iter().any(Op::has_effect) {
            let steps;
            (self.dirty, self.rendered, self.cost, steps) = uncommitted;
            ops.truncate(steps);
            return;
        }
        // A queue that the copy selects applies to the copy only.
        if !ops[from..].iter().all(Op::is_output)
            && let Ok(n) = u16::try_from(ops.len() - from)
        {
            // `push` has left space for the clone of each copy in progress.
            ops.insert(from, Op::Clone(n));
            self.cost += 1;
        }
    }

    /// Returns whether the nesting limit allows one more copy of the packet. If not, ends the translation.
    fn may_copy(&mut self) -> bool {
        if !self.stopped && self.copies >= MAX_CLONES {
            self.note("too many clones and buckets of groups inside each other, also across resubmits");
            self.out.failed = Some(Failed::Depth);
            self.stopped = true;
        }
        !self.stopped
    }
}
