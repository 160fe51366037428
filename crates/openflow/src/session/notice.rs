//! Asynchronous messages of a session: packet-ins, removed or changed flow entries, and changed ports. The
//! role and the configuration of the session determine which messages are sent.

use std::cell::LazyCell;
use std::sync::Arc;

use switch::flow::{
    Event, Field, FlowStats, ForwardedRequest, Instructions, Origin, PacketIn, Reason, port as port_number,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::asynchronous::{
    Async, KINDS, PACKETS, PORTS, REMOVED, REQUESTS, ROLES, TABLE_REASONS, TABLES, up_to,
};
use super::multipart::{Named, within};
use super::packet_in_scheduler::{PacketInScheduler, QueuedPacketIn, parts};
use super::{Answer, GATHER, Own, Session, Turn};
use crate::connection_manager::{Notice, Role};
use crate::events::SharedEvent;
use crate::wire::error::Error;
use crate::wire::flow::{self, Update};
use crate::wire::ofp::flow::*;
use crate::wire::ofp::switch::*;
use crate::wire::ofp::{msg, onf, table as ofptr};
use crate::wire::{
    Header, MAX_LENGTH, ONF, Put, Reader, TooLong, Version, begin, begin_experimenter, finish, forward,
    packet, port, properties, table,
};

/// Maximum number of octets that truncation of the packet adds to a packet-in: a property with the original length of
/// the packet, and padding.
const TRUNCATED: usize = 16;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session<S> {
    fn wanted(&self) -> Async {
        match self.asynchronous {
            Some(wanted) => wanted,
            None if self.options.asynchronous => Async::standard(self.version),
            None => Async([[0; 2]; KINDS]),
        }
    }

    fn wants(&self, kind: usize, reason: u8) -> bool {
        // Clients that connected to a listener receive nothing before they set `miss_send_len`.
        if !self.options.controller && self.miss_send_len == 0 {
            return false;
        }
        self.wanted().wants(kind, self.slave(), reason)
    }

    /// Registers or unregisters the session for table misses (packets that match no flow entry). A session receives
    /// table misses if it uses an OpenFlow version before 1.3 and its configuration includes table misses for some
    /// role.
    pub(super) fn follow_misses(&mut self) {
        let asked = |masks: [u32; 2]| (masks[0] | masks[1]) & 1 << OFPR_NO_MATCH != 0;
        let hears = self.version.sends_table_miss_to_controller()
            && self.controller_id == 0
            && (self.options.controller || self.miss_send_len != 0)
            && asked(self.wanted().0[PACKETS]);
        self.seat.hear_misses(hears);
    }

    /// Registers or unregisters the session for copies of other sessions' group and meter requests.
    /// A session receives such copies if its configuration includes them for at least one role.
    pub(super) fn follow_requests(&mut self) {
        let masks = self.wanted().0[REQUESTS];
        let hears = (self.options.controller || self.miss_send_len != 0) && masks != [0; 2];
        self.seat.hear_requests(hears);
    }

    /// Processes a notice, such as a bridge event. If the notice is an event, its processing counts as work of `turn`.
    /// When `turn` ends, the session yields to other sessions, even between the events of one request.
    pub(super) async fn notice(&mut self, notice: Notice, turn: &mut Turn) {
        match notice {
            Notice::Demoted => self.report_demotion(),
            Notice::Event(pending) => {
                // The events of one request can arrive in several parts, which are abbreviated to one update.
                let own = match &pending.told.event {
                    Event::Caused(..) if pending.told.continues => self.own,
                    Event::Caused(origin, _) if origin.session == self.seat.number() => Own::Yes(origin.xid),
                    _ => Own::No,
                };
                self.own = self.events(&pending.told, own, turn).await;
            }
            Notice::Behind => {}
        }
    }

    /// Counts a notification as lost if it does not fit into a message.
    fn count(&self, put: Result<(), TooLong>) {
        if let Err(error) = put {
            tracing::debug!("a notification is left out: {error}");
            self.board.lost.add(1);
        }
    }

    /// Reports a demotion that is not reported yet in the status of the target, and to the peer if the peer requests
    /// such reports. A peer that has become the master again in the meantime receives no report.
    pub(super) fn report_demotion(&mut self) {
        let Some(generation) = self.seat.demotion() else { return };
        self.board.role(self.number, Role::Slave);
        if self.version >= Version::V13 && self.wanted().wants(ROLES, true, OFPCRR_MASTER_REQUEST) {
            let put = self.put_demotion(generation);
            self.count(put);
        }
    }

    /// Writes the message which reports that another controller has become the master.
    fn put_demotion(&mut self, generation: u64) -> Result<(), TooLong> {
        let start = if self.version == Version::V13 {
            // ONFT_ROLE_STATUS, for sessions that requested it.
            begin_experimenter(&mut self.out, self.version, ONF, onf::ONFT_ROLE_STATUS, 0)
        } else {
            begin(&mut self.out, self.version, msg::OFPT_ROLE_STATUS, 0)
        };
        self.out.u32(OFPCR_ROLE_SLAVE);
        self.out.u8(OFPCRR_MASTER_REQUEST);
        self.out.zeros(3);
        self.out.u64(generation);
        finish(&mut self.out, start)
    }

    /// Reports an event, or all events that one request has caused, to the peer. `own` states whether this session made
    /// the request. Returns the new value of `own`.
    async fn events(&mut self, told: &Arc<SharedEvent>, mut own: Own, turn: &mut Turn) -> Own {
        let (origin, events) = parts(&told.event);
        for (index, event) in events.iter().enumerate() {
            match event {
                Event::Request(request) if origin != Origin::NONE => self.forward(origin, request),
                Event::PacketIn(packet) => self.packet_in(packet, told, index),
                event => own = self.event(event, own),
            }
            if turn.ends_after(1 + self.monitors.len()) {
                tokio::task::yield_now().await;
            }
        }
        own
    }

    fn event(&mut self, event: &Event, own: Own) -> Own {
        match event {
            Event::Port(reason, port) => {
                if *reason <= OFPPR_MODIFY && self.wants(PORTS, *reason) {
                    let put = port::put_status(&mut self.out, self.version, *reason, port);
                    self.count(put);
                }
            }
            Event::Removed(flow, why) => {
                if flow.flags.send_removed && self.wants(REMOVED, *why as u8) {
                    let put = flow::put_removed(&mut self.out, self.version, self.nxm, flow, *why);
                    self.count(put);
                }
                return self.monitored(Update::Removed(*why), flow, None, own);
            }
            Event::Vacancy(roomy, state) => {
                let reason = if *roomy { ofptr::OFPTR_VACANCY_UP } else { ofptr::OFPTR_VACANCY_DOWN };
                if self.version >= Version::V14 && self.wants(TABLES, reason) {
                    let put = table::put_status(&mut self.out, self.version, reason, state);
                    self.count(put);
                }
            }
            Event::Added(flow, before) => return self.monitored(Update::Added, flow, before.as_deref(), own),
            Event::Modified(flow, before) => {
                return self.monitored(Update::Modified, flow, before.as_deref(), own);
            }
            // The change was not requested by a session, or its events are passed one by one.
            Event::PacketIn(_) | Event::Request(_) | Event::Caused(..) => {}
            // The connection manager has counted the loss.
            Event::Lost(_) | Event::LostPackets(_) => {}
        }
        own
    }

    /// Sends a copy of another session's request to the peer, if this session receives such copies.
    fn forward(&mut self, origin: Origin, request: &ForwardedRequest) {
        if origin.session != self.seat.number() && self.wants(REQUESTS, forward::reason(request)) {
            let put = forward::put(&mut self.out, self.version, origin.xid, request);
            self.count(put);
        }
    }

    /// Returns whether the session sends a packet-in to its peer. The result depends on the peer's controller ID, role
    /// and configuration, and on the reason of the packet-in.
    fn wants_packet(&self, packet: &PacketIn) -> bool {
        if packet.controller != self.controller_id || !self.wants(PACKETS, packet.reason.asked_as()) {
            return false;
        }
        if packet.reason == Reason::Miss && !self.version.sends_table_miss_to_controller() {
            return false;
        }
        if packet.reason == Reason::InvalidTtl && self.version < Version::V13 && !self.invalid_ttl {
            return false;
        }
        // The peer could not resume the packet.
        packet.continuation.is_none() || self.packet_form == packet::Form::Nicira2
    }

    /// Sends a packet-in to the peer, or queues the packet-in if the session has a rate limit. `index` is the position
    /// of the packet-in in the event `told`.
    fn packet_in(&mut self, packet: &PacketIn, told: &Arc<SharedEvent>, index: usize) {
        if !self.wants_packet(packet) {
            return;
        }
        if packet.continuation.as_ref().is_some_and(|left| left.is_too_long) {
            self.board.lost.add(1);
            return;
        }
        let Some(scheduler) = &mut self.packet_ins else {
            let put = self.put_packet_in(packet);
            self.count(put);
            return;
        };
        let in_port = u32::try_from(packet.flow.get(Field::InPort)).unwrap_or(port_number::ANY);
        scheduler.push(in_port, told.octets(), QueuedPacketIn { told: Arc::clone(told), index });
        self.send_packet_ins();
        let dropped = self.packet_ins.as_mut().map_or(0, PacketInScheduler::trim);
        self.board.lost.add(dropped);
    }

    /// Sends the queued packet-ins that the rate limit permits now, until the buffer of messages is full.
    pub(super) fn send_packet_ins(&mut self) {
        let now = Instant::now();
        while self.out.len() < GATHER
            && let Some(queued) = self.packet_ins.as_mut().and_then(|scheduler| scheduler.next(now))
        {
            // The peer may have changed its configuration since the packet was queued.
            if let Some(packet) = queued.packet()
                && self.wants_packet(packet)
            {
                let put = self.put_packet_in(packet);
                self.count(put);
            }
        }
    }

    /// Sends a packet-in to the peer. If the message would be too long, fewer octets of the packet are sent.
    fn put_packet_in(&mut self, packet: &PacketIn) -> Result<(), TooLong> {
        // `miss_send_len` applies to buffered packets only, like in Open vSwitch.
        let octets = usize::from(packet.max_len).min(packet.frame.len());
        let whole = packet::put_in(&mut self.out, self.version, self.packet_form, packet, octets);
        match whole {
            // A truncated packet could not be resumed.
            Err(TooLong(length)) if packet.continuation.is_none() => {
                let excess = length - MAX_LENGTH + TRUNCATED;
                let octets = octets.checked_sub(excess).ok_or(TooLong(length))?;
                packet::put_in(&mut self.out, self.version, self.packet_form, packet, octets)
            }
            put => put,
        }
    }

    /// Reports a change of a flow entry to the session's flow monitors. If a request of this
    /// session caused several changes, one abbreviated update with the request's transaction ID
    /// reports all of them, unless a monitor requests full updates.
    fn monitored(
        &mut self,
        update: Update,
        flow: &FlowStats,
        before: Option<&Instructions>,
        own: Own,
    ) -> Own {
        let bit = match update {
            Update::Initial => OFPFMF_INITIAL,
            Update::Added => OFPFMF_ADD,
            Update::Removed(_) => OFPFMF_REMOVED,
            Update::Modified => OFPFMF_MODIFY,
        };
        let named = LazyCell::new(|| Named::new(flow, before));
        let asked = self
            .monitors
            .iter()
            .filter(|monitor| monitor.flags & bit != 0 && within(&monitor.filter, flow, &named));
        // All monitors share one message. The message contains the instructions if any of the monitors requests them.
        let flags = asked.fold(None, |flags: Option<u16>, monitor| Some(flags.unwrap_or(0) | monitor.flags));
        let Some(flags) = flags else { return own };
        let whole = flags & OFPFMF_NO_ABBREV != 0;
        if let (Own::SharedEvent, false) = (own, whole) {
            return own;
        }
        let start = super::multipart::begin_monitor(&mut self.out, self.version, 0);
        let next = match own {
            Own::Yes(xid) if !whole => {
                flow::put_abbreviated(&mut self.out, self.version, xid);
                Own::SharedEvent
            }
            own => {
                let at = self.out.len();
                flow::put_update(&mut self.out, self.version, update, flow, flags & OFPFMF_INSTRUCTIONS != 0);
                if self.out.len() - start > MAX_LENGTH {
                    // Flow entries of controllers are shorter than this. Without instructions, the message
                    // always fits.
                    self.out.truncate(at);
                    flow::put_update(&mut self.out, self.version, update, flow, false);
                }
                own
            }
        };
        // A monitor must not miss an update silently. The session then ends.
        self.is_behind |= finish(&mut self.out, start).is_err();
        next
    }

    pub(super) fn get_async(&mut self, head: Header, body: Reader<'_>) -> Answer {
        if !body.is_empty() {
            return Err(Error::BadLength.into());
        }
        let wanted = self.wanted();
        let start = begin(&mut self.out, self.version, msg::OFPT_GET_ASYNC_REPLY, head.xid);
        if self.version == Version::V13 {
            for masks in &wanted.0[..3] {
                // Reasons that the version does not have are omitted.
                masks.iter().for_each(|mask| self.out.u32(mask & up_to(OFPRR_GROUP_DELETE)));
            }
        } else {
            for (kind, masks) in (0_u16..).zip(wanted.0) {
                for (slot, mask) in [(0, masks[1]), (1, masks[0])] {
                    self.out.u16(kind * 2 + slot);
                    self.out.u16(8);
                    self.out.u32(mask);
                }
            }
        }
        Ok(finish(&mut self.out, start)?)
    }

    pub(super) fn set_async(&mut self, body: Reader<'_>) -> Answer {
        if self.version == Version::V13 {
            self.asynchronous = Some(Async::get_legacy(body)?);
            return Ok(());
        }
        self.set_async_properties(body)
    }

    pub(super) fn set_async_properties(&mut self, body: Reader<'_>) -> Answer {
        let mut wanted = self.wanted();
        properties(Reader::new(body.data, Error::PropertyLength), |kind, mut value| {
            let known: [u32; KINDS] = [
                up_to(OFPR_PACKET_OUT),
                up_to(OFPPR_MODIFY),
                up_to(OFPRR_EVICTION),
                up_to(OFPCRR_EXPERIMENTER),
                TABLE_REASONS,
                up_to(OFPRFR_METER_MOD),
            ];
            let index = usize::from(kind / 2);
            let Some(known) = known.get(index) else {
                return Err(if kind >= OFPACPT_EXPERIMENTER_SLAVE {
                    Error::PropertyExperimenter
                } else {
                    Error::PropertyType
                });
            };
            let mask = value.u32()?;
            if mask & !known != 0 {
                return Err(Error::AsyncInvalid);
            }
            wanted.0[index][usize::from(kind % 2 == 0)] = mask;
            Ok(())
        })?;
        self.asynchronous = Some(wanted);
        Ok(())
    }
}
