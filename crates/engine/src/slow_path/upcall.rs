//! Processing of upcalls: the slow path translates packets without a megaflow and creates their megaflows.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use packet::PortId;
use switch::flow::{
    Ahead, Event, Flow, Op, PacketIn, Pipeline, Recirculation, Translated, TranslationInput, port,
};

use super::budget::every_bit;
use super::record::{Bits, Record};
use super::teaching::Source;
use super::{PACKETS_NS, ROUND_PACKETS_NS, SlowPath, TURN, TURN_NS, hook_state};
use crate::clock::monotonic;
use crate::flows::{CacheCommand, CachedActions, FlowBridge, MeterLive, Upcall, UpcallPorts, credit};

/// Where the packets of a megaflow arrive.
pub(super) struct Place {
    pub ports: UpcallPorts,
    pub arrival: PortId,
    pub recirculation: Option<Arc<Recirculation>>,
    /// OpenFlow number of the port.
    pub in_port: u32,
}

/// Translates a packet, from the state of its recirculation on if it has one.
pub(super) fn translate(
    pipeline: &Pipeline,
    asked: TranslationInput<'_>,
    recirculation: Option<&Recirculation>,
) -> Translated {
    match recirculation {
        Some(to) => pipeline.recirculate(asked, &to.state),
        None => pipeline.translate(asked),
    }
}

impl SlowPath {
    /// Processes upcalls. The queues take turns, and each turn is limited in packets and in time. If the upcalls of a
    /// round take too long, the next round continues with the following queue. Returns whether any upcall was
    /// processed.
    pub(super) fn decide(&mut self, now: u64) -> bool {
        let mut queues: Vec<UpcallPorts> = self.queues.keys().copied().collect();
        let first = queues.partition_point(|queue| *queue < self.next_queue);
        queues.rotate_left(first);
        let begin = monotonic().ns;
        let mut did = false;
        for queue in queues {
            // Stopping the engine waits for one upcall at most.
            let is_late = did && monotonic().ns - begin >= ROUND_PACKETS_NS;
            if is_late || self.knobs.stop.load(Ordering::Acquire) {
                self.next_queue = queue;
                break;
            }
            did |= self.decide_of(queue, now);
        }
        if did {
            self.packets_ns = (self.packets_ns + (monotonic().ns - begin)).min(PACKETS_NS);
        }
        did
    }

    /// Processes upcalls of one queue until its turn ends. Returns whether any upcall was processed.
    fn decide_of(&mut self, queue: UpcallPorts, now: u64) -> bool {
        let begin = monotonic().ns;
        let ahead = self.look_ahead(queue);
        let mut did = false;
        for at in 0..TURN {
            let Some((worker, _)) = self.queues.get(&queue).and_then(VecDeque::front) else { break };
            let is_late = did && monotonic().ns - begin >= TURN_NS;
            if is_late || self.is_worker_behind(*worker) || self.knobs.stop.load(Ordering::Acquire) {
                break;
            }
            let next = self.queues.get_mut(&queue).and_then(VecDeque::pop_front);
            let Some((worker, upcall)) = next else { break };
            if let Err(upcall) = self.upcall(worker, upcall, ahead.get(at), now) {
                self.queues.entry(queue).or_default().push_front((worker, upcall));
                break;
            }
            did = true;
        }
        self.ahead = ahead;
        if self.queues.get(&queue).is_some_and(VecDeque::is_empty) {
            self.queues.remove(&queue);
        }
        did
    }

    /// Looks up the upcalls of a queue's turn as a batch in the first flow table. The batch contains the first upcalls
    /// of the queue up to the first upcall of another bridge or behind a recirculation. Returns no results if only one
    /// upcall is queued, if a control thread has locked the tables, or if the table has too few rules for a batch to be
    /// faster.
    pub(super) fn look_ahead(&mut self, queue: UpcallPorts) -> Vec<Ahead> {
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.clear();
        let Some(upcalls) = self.queues.get(&queue).filter(|upcalls| upcalls.len() > 1) else { return ahead };
        let Some((_, Upcall { bridge, .. })) = upcalls.front() else { return ahead };
        let Some(pipeline) = bridge.tables.lock_for_packets() else { return ahead };
        if !pipeline.gains_by_looking_ahead() {
            return ahead;
        }
        let in_port = pipeline.number_of(queue.port).unwrap_or(port::ANY);
        let packets = upcalls.iter().map(|(_, upcall)| upcall).take(TURN);
        let is_first =
            |upcall: &&Upcall| Arc::ptr_eq(&upcall.bridge, bridge) && upcall.recirculation.is_none();
        let of_bridge = packets.take_while(is_first);
        ahead.extend(of_bridge.map(|upcall| Ahead::new(Flow::new(&upcall.key, &upcall.extended, in_port))));
        pipeline.look_ahead(&mut ahead);
        ahead
    }

    /// Processes an upcall. Returns the upcall as an error if the bridge's tables stay locked by a control thread for
    /// too long.
    #[allow(
        clippy::result_large_err,
        reason = "what comes back is what was given, and goes into its queue again"
    )]
    fn upcall(
        &mut self,
        worker: usize,
        upcall: Upcall,
        ahead: Option<&Ahead>,
        now: u64,
    ) -> Result<(), Upcall> {
        let ports = upcall.ports();
        let ingress = ports.ingress;
        let Upcall { bridge, port, packet, key, extended, recirculation } = upcall;
        let Some(mut pipeline) = bridge.tables.lock_for_packets() else {
            return Err(Upcall { bridge, port, packet, key, extended, recirculation });
        };
        self.view.upcalls.fetch_add(1, Ordering::Relaxed);
        bridge.tables.upcalls.fetch_add(1, Ordering::Relaxed);
        let mut frame = std::mem::take(&mut self.frame);
        frame.resize(packet.len(), 0);
        packet.copy_to(self.pool.memory(), &mut frame);
        let in_port = pipeline.number_of(port).unwrap_or(port::ANY);
        let flow = Flow::new(&key, &extended, in_port);
        let asked = TranslationInput { flow: &flow, frame: Some(&frame), trace: false };
        let mut actions = match ahead.filter(|ahead| *ahead.flow() == flow) {
            Some(ahead) => pipeline.translate_ahead(ahead, Some(&frame)),
            None => translate(&pipeline, asked, recirculation.as_deref()),
        };
        self.prepare_tracking(&bridge, UpcallPorts { ingress, port }, &mut actions);
        if !self.knobs.megaflows.load(Ordering::Relaxed) {
            actions.mask = every_bit(&actions.mask);
        }
        // The learn actions of the packet may change the rules that the packet matches, so the version is
        // read before.
        let version = pipeline.version();
        let meters = self.meters_of(&bridge, &actions.program.ops, &mut pipeline);
        // Learn actions take effect before the packet is released.
        let source = (bridge.tables.number(), Source::Port(ingress));
        self.effects(&mut pipeline, source, &actions, &frame, now);
        bridge.tables.unlock_for_packets(pipeline);
        self.frame = frame;
        // No megaflow is kept for a port that has left the bridge meanwhile, or for a bridge that has been
        // removed.
        let is_kept = actions.is_cacheable()
            && in_port != port::ANY
            && self.is_served(&bridge)
            && self.budgets.has_room(worker, ingress, self.flows, self.flow_limit())
            && self.cached_actions.has_room(ingress, &actions);
        let mask = actions.mask;
        let actions = self.cached_actions.shared(ingress, actions, meters, is_kept);
        let compiled = Arc::clone(&actions.compiled);
        if is_kept {
            let place = Place { ports, arrival: port, recirculation: recirculation.clone(), in_port };
            self.keep(worker, &bridge, place, (&flow, mask), actions, version, now);
        }
        let connection = recirculation.map(|_| Box::new(extended.connection()));
        let answer = CacheCommand::Release { bridge, port, packet, key: Some(key), compiled, connection };
        self.answer(worker, answer);
        Ok(())
    }

    /// Creates the record of a new megaflow and sends the megaflow to a worker's cache.
    #[allow(clippy::too_many_arguments, reason = "what a record consists of")]
    pub(super) fn keep(
        &mut self,
        worker: usize,
        bridge: &Arc<FlowBridge>,
        place: Place,
        (flow, mask): (&Flow, Flow),
        actions: Arc<CachedActions>,
        version: u64,
        now: u64,
    ) {
        let Place { ports, arrival, recirculation, in_port } = place;
        let mut mask = mask;
        let mut mask_hash = self.name_hash.of(mask.0);
        if !self.budgets.admits(worker, ports.port, mask_hash) {
            mask = every_bit(&mask);
            mask_hash = self.name_hash.of(mask.0);
            self.view.narrowed.fetch_add(1, Ordering::Relaxed);
        }
        let bits = Bits::new(flow, &mask);
        let number = u64::from(bridge.tables.number());
        let name = [worker as u64 | u64::from(ports.port.0) << 16 | number << 32];
        self.install(Record {
            worker,
            at: None,
            place: 0,
            name: self.name_hash.of(name.into_iter().chain(bits.words())),
            mask: mask_hash,
            bridge: Arc::clone(bridge),
            ports,
            arrival,
            recirculation,
            in_port,
            bits,
            actions,
            live: Arc::default(),
            seen: (0, 0),
            version,
            created_ns: now,
            leaving: false,
            hook: hook_state::Part::default(),
        });
    }

    /// Performs the side effects of a translated packet: counts the packet for its rules, executes
    /// the learn actions, and sends the packet to controllers. `source` is the bridge and the origin of the packet.
    pub(super) fn effects(
        &mut self,
        pipeline: &mut Pipeline,
        source: (u16, Source),
        actions: &Translated,
        frame: &[u8],
        now: u64,
    ) {
        credit(pipeline, (&actions.rules, &actions.missed, &actions.groups), 1, frame.len() as u64, now);
        if !actions.learns.is_empty() {
            let skipped = self.teaching.teach(pipeline, source, &actions.learns, now);
            self.view.skipped_learns.fetch_add(skipped, Ordering::Relaxed);
        }
        for (rule, idle, hard) in &actions.fin {
            pipeline.shorten(*rule, *idle, *hard);
        }
        for to in &actions.to_controller {
            let packet_in = PacketIn {
                reason: to.reason,
                table: to.table,
                cookie: to.cookie,
                flow: to.flow,
                frame: to.frame.clone().unwrap_or_default(),
                max_len: to.max_len,
                controller: to.controller,
                userdata: to.userdata.clone(),
                continuation: to.continuation.clone(),
            };
            pipeline.push_event(Event::PacketIn(packet_in));
        }
    }

    /// Prepares that a worker can execute the `ct` actions of a program: gives numbers to its recirculations, and
    /// allocates the tables of connections. `ports.port` is a port of the bridge.
    pub(super) fn prepare_tracking(
        &mut self,
        bridge: &FlowBridge,
        ports: UpcallPorts,
        actions: &mut Translated,
    ) {
        if actions.program.ops.iter().any(|op| matches!(op, Op::Track(_))) {
            bridge.connections.prepare();
            self.recirculations.number(bridge.tables.number(), ports, actions);
        }
    }

    /// Returns the runtime state of all meters that `program` uses, and creates missing state.
    pub(super) fn meters_of(
        &mut self,
        bridge: &Arc<FlowBridge>,
        ops: &[Op],
        pipeline: &mut Pipeline,
    ) -> Vec<(u32, Arc<MeterLive>)> {
        let ids = ops.iter().filter_map(|op| if let Op::Meter(id) = op { Some(*id) } else { None });
        // Each meter appears once, even if the program uses the meter several times. The meters are sorted by
        // number, as the workers' binary search requires.
        let ids: BTreeSet<u32> = ids.collect();
        if ids.is_empty() {
            return Vec::new();
        }
        let number = bridge.tables.number();
        let now = monotonic().ns;
        let mut found = Vec::new();
        for id in ids {
            let Some(meter) = pipeline.meter(id).cloned() else { continue };
            let live = match self.meters.get(&(number, id)) {
                Some((of, live)) if live.meter == meter && Arc::ptr_eq(of, &bridge.tables) => {
                    Arc::clone(live)
                }
                old => {
                    let own = old.filter(|(of, _)| Arc::ptr_eq(of, &bridge.tables));
                    if let Some((packets, bytes, bands)) = own.map(|(_, old)| old.take()) {
                        pipeline.credit_meter(id, packets, bytes, &bands);
                    }
                    let live = Arc::new(MeterLive::new(&meter, now));
                    self.meters.insert((number, id), (Arc::clone(&bridge.tables), Arc::clone(&live)));
                    live
                }
            };
            found.push((id, live));
        }
        found
    }
}
