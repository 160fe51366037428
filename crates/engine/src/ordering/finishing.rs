//! Progress reports of all queues of one worker. A report states up to which frame number the frames of a queue have
//! left the engine.

use crate::clock::monotonic;
use crate::handover::{Settling, WorkerRings};
use crate::stage::transmit::OwnedQueue;

/// State for reporting which frames of all queues of one worker have left the engine.
#[derive(Default)]
pub(crate) struct Finishing {
    /// Whether any of the worker's queues has a receiver of progress reports.
    pub(crate) active: bool,
    settling: Settling,
    is_settling: bool,
}

impl Finishing {
    /// Begins new progress reports, and sends each earlier report whose packets have left the
    /// engine. The worker calls this function at the end of each round, after it has made the
    /// kernel process the transmit rings.
    pub(crate) fn run(&mut self, queues: &mut [OwnedQueue], links: &WorkerRings) {
        if self.is_settling {
            self.end(queues, links);
        }
        let is_behind = |own: &OwnedQueue| own.finish.as_ref().is_some_and(|it| it.is_behind(&own.parked));
        if self.is_settling || !queues.iter().any(is_behind) {
            return;
        }
        for own in queues.iter_mut() {
            own.unsent.begin(own.queue.as_mut());
            if let Some(finish) = own.finish.as_mut().filter(|finish| finish.is_behind(&own.parked)) {
                finish.waiting = Some(finish.due(&own.parked));
            }
        }
        links.settle(&mut self.settling);
        self.is_settling = true;
        self.end(queues, links);
    }

    /// Sends the pending progress reports if all packets that they wait for have left the engine.
    fn end(&mut self, queues: &mut [OwnedQueue], links: &WorkerRings) {
        let mut sent = true;
        for own in queues.iter_mut() {
            sent &= own.unsent.has_passed(own.queue.as_mut(), || monotonic().ns);
        }
        if !sent || !links.has_settled(&mut self.settling) {
            return;
        }
        self.is_settling = false;
        for finish in queues.iter_mut().filter_map(|own| own.finish.as_mut()) {
            // A queue that was added meanwhile has no pending report.
            finish.waiting.take().into_iter().for_each(|number| finish.tell(number));
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

    use super::super::*;
    use super::*;
    use crate::engine::owned;
    use crate::handover::{Output, mesh};

    struct Told(Arc<AtomicU32>);

    impl CompletionSink for Told {
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

        // Without handed-over packets, the report is immediate.
        mine.begin_round();
        receive(&mut queues, 7);
        finishing.run(&mut queues, &mine);
        assert_eq!(now(), 7);
        mine.publish();

        // One packet is handed over to the other worker's queue.
        mine.begin_round();
        receive(&mut queues, 9);
        let packet = pool.alloc().unwrap();
        let ring = mine.output_to(WorkerId(1)).unwrap();
        assert!(ring.push(PortId(0), 1, Output { packet, out: PortId(1) }).is_ok());
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

    /// A queue for tests, which transfers no packets and reports only the progress of its transmit ring.
    struct Sending(Arc<[AtomicU32; 2]>);

    impl Queue for Sending {
        fn receive(&mut self, _pool: &mut port::FramePool, _out: &mut port::Batch) -> usize {
            0
        }
        fn transmit(&mut self, _pool: &mut port::FramePool, _batch: &mut port::Batch) -> usize {
            0
        }
        fn kick(&mut self, _pool: &mut port::FramePool) {}
        fn has_pending(&mut self) -> bool {
            false
        }
        fn transmit_progress(&mut self) -> Option<port::TransmitProgress> {
            let [given, taken] = &*self.0;
            let read = |number: &AtomicU32| number.load(Ordering::Acquire);
            Some(port::TransmitProgress { given: read(given), taken: read(taken) })
        }
        fn capabilities(&self) -> port::Capabilities {
            port::Capabilities::default()
        }
        fn status(&self) -> port::QueueStatus {
            port::QueueStatus::default()
        }
        fn close(self: Box<Self>, _pool: &mut port::FramePool) {}

        fn export(self: Box<Self>, pool: &mut port::FramePool) -> port::Exported {
            self.close(pool);
            port::Exported::Closed
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the time that is tested")]
    fn a_ring_that_never_empties_does_not_keep_progress_back() {
        let wakers = [Arc::new(Waker::new().unwrap())];
        let mut mine = mesh(&wakers).pop().unwrap();
        let ring = Arc::new([u32::MAX - 1, u32::MAX - 2].map(AtomicU32::new));
        let told = Arc::new(AtomicU32::new(0));
        let mut own = owned(WorkerId(0), PortId(0), QueueId(0), Box::new(Sending(Arc::clone(&ring))));
        own.finish = Some(Finish::new(Box::new(Told(Arc::clone(&told)))));
        let mut queues = [own];
        let mut finishing = Finishing { active: true, ..Finishing::default() };
        let set = |given: u32, taken: u32| {
            ring[0].store(given, Ordering::Release);
            ring[1].store(taken, Ordering::Release);
        };
        let mut receive = |queues: &mut [OwnedQueue], number: u64| {
            mine.begin_round();
            queues[0].finish.as_mut().unwrap().received([number.to_ne_bytes()].into_iter());
            finishing.run(queues, &mine);
            mine.publish();
            told.load(Ordering::Acquire)
        };
        assert_eq!(receive(&mut queues, 7), 0, "a descriptor stands in the ring");
        // The first descriptor leaves while others are queued behind it, as on a device that is always busy.
        set(3, u32::MAX - 1);
        assert_eq!(receive(&mut queues, 9), 7);
        set(6, 2);
        assert_eq!(receive(&mut queues, 10), 7, "what came before 9 is not all gone");
        set(9, 3);
        assert_eq!(receive(&mut queues, 10), 9);
        // The kernel takes no more descriptors.
        let begin = std::time::Instant::now();
        while receive(&mut queues, 11) < 11 {
            assert!(begin.elapsed().as_secs() < 30);
        }
        assert!(begin.elapsed().as_nanos() >= u128::from(STUCK_NS));
        assert_eq!(receive(&mut queues, 12), 12, "nobody waits for it again");
        // The kernel makes progress, and reports wait for the ring again.
        set(12, 10);
        assert_eq!(receive(&mut queues, 13), 12);
        set(12, 12);
        assert_eq!(receive(&mut queues, 13), 13);
        // The kernel takes a descriptor every 20 ms, which is too slow. Reports do not wait for the ring
        // until the descriptors present at the time have left.
        set(1000, 12);
        let (begin, mut taken) = (std::time::Instant::now(), 12);
        while receive(&mut queues, 14) < 14 {
            assert!(begin.elapsed().as_secs() < 30);
            taken = 12 + u32::try_from(begin.elapsed().as_millis() / 20).unwrap();
            set(1000, taken);
        }
        assert!(begin.elapsed().as_nanos() >= u128::from(SLOW_NS) && taken < 1000);
        set(1500, taken + 1);
        assert_eq!(receive(&mut queues, 15), 15, "nobody waits for it again");
        set(1500, 1000);
        assert_eq!(receive(&mut queues, 16), 15, "it is as others are");
        set(1500, 1500);
        assert_eq!(receive(&mut queues, 16), 16);
    }

    #[test]
    fn nothing_is_told_beyond_what_waits_for_the_slow_path() {
        let wakers = [Arc::new(Waker::new().unwrap())];
        let mut links = mesh(&wakers);
        let mut mine = links.pop().unwrap();
        let (queue, _peer) = port::ring::pair(8);
        let told = Arc::new(AtomicU32::new(u32::MAX));
        let mut own = owned(WorkerId(0), PortId(0), QueueId(0), Box::new(queue));
        // The frame arrived before a receiver was set.
        let unnumbered = own.parked.park();
        own.finish = Some(Finish::new(Box::new(Told(Arc::clone(&told)))));
        own.parked.renumber();
        let mut queues = [own];
        let mut finishing = Finishing { active: true, ..Finishing::default() };
        let mut receive = |queues: &mut [OwnedQueue], number: u64, parks: usize| -> Vec<u64> {
            mine.begin_round();
            let OwnedQueue { finish, parked, .. } = &mut queues[0];
            let finish = finish.as_mut().unwrap();
            parked.begin(Some(finish.last()));
            finish.received([number.to_ne_bytes()].into_iter());
            let tickets = (0..parks).map(|_| parked.park()).collect();
            finishing.run(queues, &mine);
            mine.publish();
            tickets
        };
        let now = || told.load(Ordering::Acquire);
        receive(&mut queues, 3, 0);
        assert_eq!(now(), u32::MAX, "what has no number comes before all that have one");
        queues[0].parked.release(unnumbered);
        receive(&mut queues, 7, 0);
        assert_eq!(now(), 7);
        let first = receive(&mut queues, 10, 2);
        let second = receive(&mut queues, 20, 1);
        receive(&mut queues, 30, 0);
        assert_eq!(now(), 7, "8 to 10 are not gone");
        queues[0].parked.release(second[0]);
        queues[0].parked.release(first[0]);
        receive(&mut queues, 31, 0);
        assert_eq!(now(), 7, "one of the first burst still waits");
        let third = receive(&mut queues, 40, 1);
        queues[0].parked.release(first[1]);
        receive(&mut queues, 41, 0);
        assert_eq!(now(), 31, "up to the burst of the one that waits now");
        queues[0].parked.clear();
        queues[0].parked.release(third[0]);
        receive(&mut queues, 42, 0);
        assert_eq!(now(), 42, "it was dropped");
        // Frame numbers wrap around.
        receive(&mut queues, u64::from(u32::MAX) - 1, 0);
        let last = receive(&mut queues, 5, 1);
        receive(&mut queues, 9, 0);
        assert_eq!(now(), u32::MAX - 1);
        queues[0].parked.release(last[0]);
        receive(&mut queues, 10, 0);
        assert_eq!(now(), 10);
    }
}
