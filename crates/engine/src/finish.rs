//! Tells whoever forwards beside the workers (the driver hook) up to which frame a queue's packets have left, so that none of a
//! flow overtakes another when the flow changes its way.
//!
//! Frames bear their number in front of them. What a worker has taken off a queue has left when every queue that it owns has given to
//! the kernel what it was given, and every other worker has ended the round in which it took what was handed to it.

use crate::handover::{Links, Settling};
use crate::stage::transmit::OwnedQueue;

/// Whom a queue's progress is told to.
pub trait Finisher: Send {
    /// The number in the bytes in front of a frame, if there is one.
    fn number(&self, before: [u8; 8]) -> Option<u32>;

    /// All frames of the queue up to this number have left.
    fn finish(&self, number: u32);
}

/// A queue's progress.
pub struct Finish {
    to: Box<dyn Finisher>,
    /// Of the last frame that was received.
    received: u32,
    /// Waits to be told until what was handed over has left.
    waiting: Option<u32>,
    /// Was told last.
    told: Option<u32>,
}

impl Finish {
    /// Nothing told yet.
    #[must_use]
    pub fn new(to: Box<dyn Finisher>) -> Self {
        Self { to, received: 0, waiting: None, told: None }
    }

    /// A burst has come, and these bytes stand in front of its frames, the last frame first.
    pub(crate) fn received(&mut self, mut before: impl Iterator<Item = [u8; 8]>) {
        if let Some(number) = before.find_map(|bytes| self.to.number(bytes)) {
            self.received = number;
        }
    }

    fn is_behind(&self) -> bool {
        self.told.unwrap_or(0) != self.received
    }

    fn tell(&mut self, number: u32) {
        self.told = Some(number);
        self.to.finish(number);
    }
}

/// A worker's progress with all its queues.
#[derive(Default)]
pub(crate) struct Finishing {
    /// Whether any queue's progress is told.
    pub(crate) active: bool,
    settling: Settling,
    is_settling: bool,
}

impl Finishing {
    /// Tells what has left; call at the end of a round, after the queues were kicked.
    pub(crate) fn run(&mut self, queues: &mut [OwnedQueue], links: &Links) {
        if self.is_settling {
            if !links.has_settled(&mut self.settling) {
                return;
            }
            self.is_settling = false;
            for finish in queues.iter_mut().filter_map(|own| own.finish.as_mut()) {
                // A queue that came meanwhile has nothing to tell.
                finish.waiting.take().into_iter().for_each(|number| finish.tell(number));
            }
        }
        let behind = queues.iter().filter_map(|own| own.finish.as_ref()).any(Finish::is_behind);
        if !behind || queues.iter_mut().any(|own| own.queue.is_unsent()) {
            return;
        }
        links.settle(&mut self.settling);
        self.is_settling = !links.has_settled(&mut self.settling);
        for finish in queues.iter_mut().filter_map(|own| own.finish.as_mut()).filter(|f| f.is_behind()) {
            match self.is_settling {
                true => finish.waiting = Some(finish.received),
                false => finish.tell(finish.received),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use packet::{PortId, QueueId, WorkerId};
    use port::{FrameMemory, HugePages, MemoryConfig};
    use sync::wake::Waker;

    use super::*;
    use crate::engine::owned;
    use crate::handover::{Output, mesh};

    struct Told(Arc<AtomicU32>);

    impl Finisher for Told {
        fn number(&self, before: [u8; 8]) -> Option<u32> {
            let number = u64::from_ne_bytes(before);
            u32::try_from(number).ok().filter(|number| *number != 0)
        }

        fn finish(&self, number: u32) {
            self.0.store(number, Ordering::Release);
        }
    }

    #[test]
    fn what_was_handed_over_is_waited_for() {
        let memory = Arc::new(
            FrameMemory::new(MemoryConfig { frames: 64, frame_size: 2048, huge_pages: HugePages::Off })
                .unwrap(),
        );
        let depot = port::Depot::new(memory);
        let mut pool = depot.pool();
        let wakers: Vec<Arc<Waker>> = (0..2).map(|_| Arc::new(Waker::new().unwrap())).collect();
        let mut links = mesh(&wakers);
        let (mut other, mut mine) = (links.pop().unwrap(), links.pop().unwrap());
        let (queue, _peer) = port::ring::pair(8);
        let told = Arc::new(AtomicU32::new(0));
        let mut own = owned(WorkerId(0), PortId(0), QueueId(0), Box::new(queue));
        own.finish = Some(Finish::new(Box::new(Told(Arc::clone(&told)))));
        let mut queues = [own];
        let mut finishing = Finishing { active: true, ..Finishing::default() };
        let receive = |queues: &mut [OwnedQueue], number: u64| {
            queues[0].finish.as_mut().unwrap().received([[0; 8], number.to_ne_bytes()].into_iter());
        };
        let now = || told.load(Ordering::Acquire);

        // Nothing handed over: told at once.
        mine.begin_round();
        receive(&mut queues, 7);
        finishing.run(&mut queues, &mine);
        assert_eq!(now(), 7);
        mine.publish();

        // One packet for the other worker's queue.
        mine.begin_round();
        receive(&mut queues, 9);
        let packet = pool.alloc().unwrap();
        assert!(mine.output_to(WorkerId(1)).unwrap().push(Output { packet, out: PortId(1) }).is_ok());
        finishing.run(&mut queues, &mine);
        mine.publish();
        assert_eq!(now(), 7, "it stands in the ring");
        other.begin_round();
        let taken = other.take_output(0).unwrap();
        finishing.run(&mut queues, &mine);
        assert_eq!(now(), 7, "the other worker has it, and is not done");
        receive(&mut queues, 12);
        pool.free(taken.packet);
        other.publish();
        finishing.run(&mut queues, &mine);
        assert_eq!(now(), 12, "both are told, one after the other");
    }
}
