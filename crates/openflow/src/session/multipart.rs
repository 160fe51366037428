//! Requests for statistics and descriptions (OFPST, OFPMP). A reply consists of one or more parts.
//! A part is a message of at most 64 KiB.

use std::cell::LazyCell;
use std::collections::HashSet;
use std::sync::Arc;

use switch::flow::{
    ALL_TABLES, Action, FlowError, FlowFilter, FlowStats, Instructions, Reference, each_reference, port,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::{Answer, Ended, GATHER, Session};
use crate::datapath::{Batches, Datapath};
use crate::wire::error::Error;
use crate::wire::flow::{Form, Monitor, MonitorRequest, Update};
use crate::wire::ofp::flow::{OFPFMF_INITIAL, OFPFMF_INSTRUCTIONS};
use crate::wire::ofp::multipart::*;
use crate::wire::ofp::port::OFPQ_ALL;
use crate::wire::ofp::{meter as ofpm, msg, nx, onf};
use crate::wire::{
    Header, MAX_LENGTH, NICIRA, ONF, Put, Reader, TooLong, Version, begin, finish, flow, get_port, group,
    meter, port as wire_port, table,
};

/// Maximum number of tables in one table features request.
const DESCRIBED: usize = 256;
/// Permits for concurrent dumps (replies that list many objects) in the process, in addition to the dumps that are
/// guaranteed to each bridge ([`crate::connection_manager::ConnectionManager::dumps`]). A dump uses 8 octets of
/// memory for each flow entry, and less than 1 MiB in addition.
static DUMPS: Semaphore = Semaphore::const_new(16);

/// Permit for making a dump (a reply that lists many objects).
#[allow(dead_code, reason = "the permits are only held")]
enum Turn {
    /// Permit for one of the dumps (replies that list many objects) that are guaranteed to each bridge.
    Bridge(OwnedSemaphorePermit),
    /// Permits for a dump (a reply that lists many objects) that is not one of the bridge's
    /// guaranteed dumps. One permit comes from the controller or listener, and one from the
    /// process.
    Shared(OwnedSemaphorePermit, SemaphorePermit<'static>),
}

/// Maximum number of flow monitors of an OpenFlow session.
const MONITORS: usize = 1024;

/// Type of a multipart reply, which may consist of several messages.
#[derive(Clone, Copy)]
struct Kind {
    number: u16,
    /// Experimenter ID and subtype of an experimenter reply. `None` for a standard reply.
    who: Option<(u32, u32)>,
}

/// A multipart reply that is being written. `start` is the offset of the reply's current message.
struct Parts {
    version: Version,
    xid: u32,
    kind: Kind,
    start: usize,
}

impl Parts {
    fn begin(out: &mut Vec<u8>, version: Version, xid: u32, kind: Kind) -> Parts {
        let reply = match version {
            Version::V10 => msg::ofp10::OFPT_STATS_REPLY,
            _ => msg::OFPT_MULTIPART_REPLY,
        };
        let start = begin(out, version, reply, xid);
        out.u16(kind.number);
        out.u16(0);
        if version != Version::V10 {
            out.zeros(4);
        }
        if let Some((vendor, subtype)) = kind.who {
            out.u32(vendor);
            out.u32(subtype);
            if version == Version::V10 {
                out.zeros(4);
            }
        }
        Parts { version, xid, kind, start }
    }

    /// Appends an entry to the multipart reply. If the current message would exceed 64 KiB, begins a new message
    /// with this entry.
    fn add(&mut self, out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) -> Result<(), TooLong> {
        let at = out.len();
        put(out);
        if out.len() - self.start <= MAX_LENGTH {
            return Ok(());
        }
        let entry = out.split_off(at);
        out.patch16(self.start + 10, usize::from(OFPMPF_REPLY_MORE));
        finish(out, self.start)?;
        *self = Parts::begin(out, self.version, self.xid, self.kind);
        if out.len() - self.start + entry.len() <= MAX_LENGTH {
            out.extend_from_slice(&entry);
        } else {
            // Flow entries of controllers are shorter than this, but an earlier release may have left a
            // longer one.
            tracing::debug!("something of {} octets fits into no message, and is left out", entry.len());
        }
        Ok(())
    }

    fn end(self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        finish(out, self.start)
    }
}

/// Begins a message with flow monitor updates, and returns the message's start offset in `out`.
pub(super) fn begin_monitor(out: &mut Vec<u8>, version: Version, xid: u32) -> usize {
    Parts::begin(out, version, xid, monitor_kind(version)).start
}

fn monitor_kind(version: Version) -> Kind {
    match version {
        Version::V10 | Version::V11 | Version::V12 => {
            Kind { number: OFPMP_EXPERIMENTER, who: Some((NICIRA, nx::NXST_FLOW_MONITOR)) }
        }
        Version::V13 => Kind { number: OFPMP_EXPERIMENTER, who: Some((ONF, onf::ONFMP_FLOW_MONITOR)) },
        Version::V14 | Version::V15 => Kind { number: OFPMP_FLOW_MONITOR, who: None },
    }
}

/// Ports and groups to which the actions of a flow entry refer. After a modification of the flow
/// entry, the ports of its previous actions are included.
pub(super) struct Named {
    ports: HashSet<u32>,
    groups: HashSet<u32>,
}

impl Named {
    pub fn new(flow: &FlowStats, before: Option<&Instructions>) -> Named {
        let mut named = Named { ports: HashSet::new(), groups: HashSet::new() };
        for actions in [&flow.instructions.apply, &flow.instructions.write] {
            named.add(actions, true);
        }
        for before in before.iter() {
            named.add(&before.apply, false);
            named.add(&before.write, false);
        }
        named
    }

    fn add(&mut self, actions: &[Action], with_groups: bool) {
        each_reference(actions, &mut |named| match named {
            Reference::Port(port) => _ = self.ports.insert(port),
            Reference::Group(group) if with_groups => _ = self.groups.insert(group),
            _ => {}
        });
    }
}

/// Returns whether the filter of a flow monitor matches a flow entry. Cheap conditions are checked first. The ports
/// and groups of the flow entry are computed at most once for all filters.
pub(super) fn within<F: FnOnce() -> Named>(
    filter: &FlowFilter,
    flow: &FlowStats,
    named: &LazyCell<Named, F>,
) -> bool {
    (filter.table == ALL_TABLES || filter.table == flow.table)
        && flow.cookie & filter.cookie_mask == filter.cookie
        && filter.out_port.is_none_or(|port| named.ports.contains(&port))
        && filter.out_group.is_none_or(|group| named.groups.contains(&group))
        && flow.matching.is_within(&filter.matching)
}

/// Runs a slow call on a blocking thread, where the call does not delay other sessions.
async fn apart<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(call).await {
        Ok(done) => done,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// A dump (reply that lists many objects) that is being made: the batches of objects, and the permit.
type Dump<T> = (Batches<T>, Option<Turn>);

/// Computes the next batch of objects on a blocking thread. Returns the batch, and the dump for the following batches.
/// The thread holds the permit until the batch is complete, even if the session ends meanwhile.
async fn next<T: Send + 'static>((mut batches, turn): Dump<T>) -> (Option<Vec<T>>, Dump<T>) {
    apart(move || (batches.next(), (batches, turn))).await
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session<S> {
    pub(super) async fn multipart(&mut self, head: Header, mut body: Reader<'_>) -> Answer {
        let (number, flags) = (body.u16()?, body.u16()?);
        let mut more = false;
        if self.version != Version::V10 {
            body.skip(4)?;
            more = flags & OFPMPF_REQ_MORE != 0;
            // Only a table features request may span several messages.
            if more && number != OFPMP_TABLE_FEATURES {
                return Err(Error::MultipartOverflow.into());
            }
        }
        let xid = head.xid;
        let kind = Kind { number, who: None };
        let version = self.version;
        match (number, version) {
            (OFPMP_DESC, _) => self.description(xid, kind),
            (OFPMP_FLOW_DESC, _) => {
                let filter = flow::get_filter(body, version)?;
                self.flows(xid, kind, Form::Standard, filter).await
            }
            (OFPMP_FLOW_STATS, Version::V15) => {
                let filter = flow::get_filter(body, version)?;
                self.flows(xid, kind, Form::Brief, filter).await
            }
            (OFPMP_AGGREGATE_STATS, _) => {
                let filter = flow::get_filter(body, version)?;
                self.aggregate(xid, kind, filter).await
            }
            (OFPMP_TABLE_STATS, _) => self.tables(xid, kind).await,
            (OFPMP_PORT_STATS, _) => self.port_stats(xid, kind, body).await,
            (OFPMP_QUEUE_STATS, _) => self.queue_stats(xid, kind, body).await,
            (OFPMP_PORT_DESC, _) => self.port_descs(xid, kind, body).await,
            (OFPMP_EXPERIMENTER, _) => {
                let (who, subtype) = (body.u32()?, body.u32()?);
                if version == Version::V10 {
                    body.skip(4)?;
                }
                let kind = Kind { number, who: Some((who, subtype)) };
                match (who, subtype, version) {
                    (NICIRA, nx::NXST_FLOW, Version::V10) => {
                        let filter = flow::get_filter_nx(body)?;
                        self.flows(xid, kind, Form::Nicira, filter).await
                    }
                    (NICIRA, nx::NXST_AGGREGATE, Version::V10) => {
                        let filter = flow::get_filter_nx(body)?;
                        self.aggregate(xid, kind, filter).await
                    }
                    (NICIRA, nx::NXST_FLOW_MONITOR, Version::V10 | Version::V11 | Version::V12)
                    | (ONF, onf::ONFMP_FLOW_MONITOR, Version::V13) => self.monitor(xid, kind, body).await,
                    (NICIRA, nx::NXST_GROUP, Version::V10) => self.group_stats(xid, kind, body).await,
                    (NICIRA, nx::NXST_GROUP_DESC, Version::V10) => self.group_descs(xid, kind, body).await,
                    (NICIRA, nx::NXST_GROUP_FEATURES, Version::V10 | Version::V11) => {
                        self.group_features(xid, kind)
                    }
                    (NICIRA | ONF, ..) => Err(Error::BadSubtype.into()),
                    _ => Err(Error::BadExperimenter.into()),
                }
            }
            (_, Version::V10) => Err(Error::BadMultipart.into()),
            (OFPMP_GROUP_STATS, _) => self.group_stats(xid, kind, body).await,
            (OFPMP_GROUP_DESC, _) => self.group_descs(xid, kind, body).await,
            (OFPMP_GROUP_FEATURES, _) if version >= Version::V12 => self.group_features(xid, kind),
            (OFPMP_METER_STATS..=OFPMP_TABLE_FEATURES, Version::V11 | Version::V12) => {
                Err(Error::BadMultipart.into())
            }
            (OFPMP_METER_STATS | OFPMP_METER_DESC, _) => self.meters(xid, kind, body).await,
            (OFPMP_METER_FEATURES, _) => self.meter_features(xid, kind),
            (OFPMP_TABLE_FEATURES, _) => self.table_features(xid, kind, body, more).await,
            (OFPMP_TABLE_DESC, Version::V14 | Version::V15) => self.table_descs(xid, kind).await,
            (OFPMP_QUEUE_DESC, Version::V14 | Version::V15) => self.queue_descs(xid, kind, body).await,
            (OFPMP_FLOW_MONITOR, Version::V14 | Version::V15) => self.monitor(xid, kind, body).await,
            _ => Err(Error::BadMultipart.into()),
        }
    }

    fn parts(&mut self, xid: u32, kind: Kind) -> Parts {
        Parts::begin(&mut self.out, self.version, xid, kind)
    }

    fn description(&mut self, xid: u32, kind: Kind) -> Answer {
        let about = self.manager.datapath.description();
        let parts = self.parts(xid, kind);
        self.out.text(&about.manufacturer, 256);
        self.out.text(&about.hardware, 256);
        self.out.text(&about.software, 256);
        self.out.text(&about.serial, 32);
        self.out.text(&about.datapath, 256);
        Ok(parts.end(&mut self.out)?)
    }

    /// Waits for the permit to make a dump (a reply that lists many objects). Some permits are
    /// reserved for each bridge. The other permits are limited for the whole process, and for each
    /// listener or controller.
    async fn turn(&mut self) -> Result<Option<Turn>, Ended> {
        let of_bridge = Arc::clone(&self.manager.dumps);
        if let Ok(permit) = Arc::clone(&of_bridge).try_acquire_owned() {
            return Ok(Some(Turn::Bridge(permit)));
        }
        let own = Arc::clone(&self.board.dumps);
        if own.available_permits() == 0 || DUMPS.available_permits() == 0 {
            self.flush().await?;
        }
        // The semaphores are never closed.
        let shared = async {
            let own = own.acquire_owned().await.ok()?;
            Some(Turn::Shared(own, DUMPS.acquire().await.ok()?))
        };
        Ok(tokio::select! {
            biased;
            turn = shared => turn,
            permit = of_bridge.acquire_owned() => permit.ok().map(Turn::Bridge),
        })
    }

    /// Writes many entries into a multipart reply. Complete parts are sent while the bridge computes more entries.
    async fn many<T: Send + 'static>(
        &mut self,
        xid: u32,
        kind: Kind,
        things: Batches<T>,
        put: impl FnMut(&mut Vec<u8>, &T),
    ) -> Answer {
        let turn = self.turn().await?;
        let mut parts = self.parts(xid, kind);
        self.some(&mut parts, (things, turn), put).await?;
        Ok(parts.end(&mut self.out)?)
    }

    /// Writes entries into a multipart reply, and sends the parts that are complete.
    async fn some<T: Send + 'static>(
        &mut self,
        parts: &mut Parts,
        mut dump: Dump<T>,
        mut put: impl FnMut(&mut Vec<u8>, &T),
    ) -> Answer {
        while let (Some(batch), rest) = next(dump).await {
            dump = rest;
            for thing in batch {
                parts.add(&mut self.out, |out| put(out, &thing))?;
                if self.out.len() >= GATHER {
                    // Only complete parts are sent. The current part is kept.
                    let rest = self.out.split_off(parts.start);
                    self.flush().await?;
                    self.out = rest;
                    parts.start = 0;
                }
            }
        }
        Ok(())
    }

    async fn flows(&mut self, xid: u32, kind: Kind, form: Form, filter: FlowFilter) -> Answer {
        let (flows, version) = (self.manager.datapath.flows(&filter), self.version);
        self.many(xid, kind, flows, |out, flow| flow::put_stats(out, version, form, flow)).await?;
        Ok(())
    }

    async fn aggregate(&mut self, xid: u32, kind: Kind, filter: FlowFilter) -> Answer {
        let turn = self.turn().await?;
        let datapath = Arc::clone(&self.manager.datapath);
        let sums = apart(move || {
            // The permit is held until the sums are complete, even if the session ends meanwhile.
            let _turn = turn;
            datapath.aggregate(&filter)
        });
        let sums = sums.await;
        let parts = self.parts(xid, kind);
        if self.version == Version::V15 {
            flow::put_oxs_sums(&mut self.out, &sums);
        } else {
            self.out.u64(sums.packets);
            self.out.u64(sums.bytes);
            self.out.u32(sums.flows);
            self.out.zeros(4);
        }
        Ok(parts.end(&mut self.out)?)
    }

    async fn tables(&mut self, xid: u32, kind: Kind) -> Answer {
        let version = self.version;
        let look = move |datapath: &dyn Datapath| {
            // Since OpenFlow 1.3, separate requests return the name and configuration of a table.
            let config = |table| match version {
                Version::V10 | Version::V11 | Version::V12 => datapath.table_config(table),
                _ => None,
            };
            let all = datapath.tables().into_iter().map(|stats| (config(stats.table), stats));
            (all.collect::<Vec<_>>(), datapath.features().tables)
        };
        let (all, tables) = self.manager.in_turn(look).await;
        let mut parts = self.parts(xid, kind);
        for (config, stats) in all {
            let config = config.unwrap_or_default();
            // Like in Open vSwitch, a table has no name unless one was configured.
            parts.add(&mut self.out, |out| {
                table::put_stats(out, version, &stats, &config.name, (config.miss, tables));
            })?;
        }
        Ok(parts.end(&mut self.out)?)
    }

    async fn port_stats(&mut self, xid: u32, kind: Kind, mut body: Reader<'_>) -> Answer {
        let wanted = wire_port::wanted(get_port(&mut body, self.version)?);
        let stats = self.manager.in_turn(move |datapath| datapath.port_stats(wanted)).await;
        let (mut parts, version) = (self.parts(xid, kind), self.version);
        for stats in stats {
            parts.add(&mut self.out, |out| wire_port::put_stats(out, version, &stats))?;
        }
        Ok(parts.end(&mut self.out)?)
    }

    /// Decodes the port number and the queue ID in a request for queues. `None` represents all ports or all queues.
    fn queue(&mut self, body: &mut Reader<'_>) -> Result<(Option<u32>, Option<u32>), Error> {
        let wanted = wire_port::wanted(get_port(body, self.version)?);
        if self.version == Version::V10 {
            body.skip(2)?;
        }
        let queue = body.u32()?;
        Ok((wanted, (queue != OFPQ_ALL).then_some(queue)))
    }

    async fn queue_stats(&mut self, xid: u32, kind: Kind, mut body: Reader<'_>) -> Answer {
        let (wanted, queue) = self.queue(&mut body)?;
        let read = move |datapath: &dyn Datapath| {
            datapath.has_ports(wanted).then(|| datapath.queue_stats(wanted, queue))
        };
        let stats = self.manager.in_turn(read).await.ok_or(Error::QueuePort)?;
        if stats.is_empty() && queue.is_some() {
            return Err(Error::QueueUnknown.into());
        }
        let (mut parts, version) = (self.parts(xid, kind), self.version);
        for stats in stats {
            parts.add(&mut self.out, |out| wire_port::put_queue_stats(out, version, &stats))?;
        }
        Ok(parts.end(&mut self.out)?)
    }

    async fn queue_descs(&mut self, xid: u32, kind: Kind, mut body: Reader<'_>) -> Answer {
        let (wanted, queue) = self.queue(&mut body)?;
        let mut queues = self.queues_of(wanted).await?;
        queues.retain(|one| queue.is_none_or(|queue| queue == one.queue));
        if queues.is_empty() && queue.is_some() {
            return Err(Error::QueueUnknown.into());
        }
        let (mut parts, version) = (self.parts(xid, kind), self.version);
        for queue in queues {
            parts.add(&mut self.out, |out| wire_port::put_queue(out, version, &queue))?;
        }
        Ok(parts.end(&mut self.out)?)
    }

    async fn port_descs(&mut self, xid: u32, kind: Kind, mut body: Reader<'_>) -> Answer {
        let wanted = match self.version {
            Version::V15 => wire_port::wanted(body.u32()?),
            _ => None,
        };
        let mut ports = self.ports().await;
        ports.retain(|port| wanted.is_none_or(|wanted| wanted == port.number));
        if ports.is_empty() && wanted.is_some_and(|wanted| wanted != port::ANY) {
            return Err(Error::BadPort.into());
        }
        let (mut parts, version) = (self.parts(xid, kind), self.version);
        for port in ports {
            parts.add(&mut self.out, |out| wire_port::put_desc(out, version, &port))?;
        }
        Ok(parts.end(&mut self.out)?)
    }

    async fn group_stats(&mut self, xid: u32, kind: Kind, mut body: Reader<'_>) -> Answer {
        let stats = self.manager.datapath.group_stats(group::wanted(body.u32()?));
        let version = self.version;
        self.many(xid, kind, stats, |out, stats| group::put_stats(out, version, stats)).await
    }

    async fn group_descs(&mut self, xid: u32, kind: Kind, mut body: Reader<'_>) -> Answer {
        let wanted = match self.version {
            Version::V10 | Version::V15 => group::wanted(body.u32()?),
            Version::V11 | Version::V12 | Version::V13 | Version::V14 => None,
        };
        let (groups, version) = (self.manager.datapath.groups(wanted), self.version);
        self.many(xid, kind, groups, |out, group| group::put_desc(out, version, group)).await
    }

    fn group_features(&mut self, xid: u32, kind: Kind) -> Answer {
        let most = self.manager.datapath.features().max_groups;
        let parts = self.parts(xid, kind);
        group::put_features(&mut self.out, self.version, most);
        Ok(parts.end(&mut self.out)?)
    }

    async fn meters(&mut self, xid: u32, kind: Kind, mut body: Reader<'_>) -> Answer {
        let id = body.u32()?;
        let wanted = (id != ofpm::OFPM_ALL).then_some(id);
        let exists = move |datapath: &dyn Datapath| datapath.meters(wanted).flatten().next().is_some();
        if wanted.is_some() && !self.manager.in_turn(exists).await {
            return Err(Error::MeterUnknown.into());
        }
        if kind.number == OFPMP_METER_STATS {
            let stats = self.manager.datapath.meter_stats(wanted);
            self.many(xid, kind, stats, meter::put_stats).await?;
        } else {
            let meters = self.manager.datapath.meters(wanted);
            self.many(xid, kind, meters, meter::put_config).await?;
        }
        Ok(())
    }

    fn meter_features(&mut self, xid: u32, kind: Kind) -> Answer {
        let features = self.manager.datapath.features();
        let parts = self.parts(xid, kind);
        self.out.u32(features.max_meters);
        self.out.u32(1 << ofpm::OFPMBT_DROP | 1 << ofpm::OFPMBT_DSCP_REMARK);
        let flags = ofpm::OFPMF_KBPS | ofpm::OFPMF_PKTPS | ofpm::OFPMF_BURST | ofpm::OFPMF_STATS;
        self.out.u32(u32::from(flags));
        self.out.u8(features.max_bands);
        self.out.zeros(3);
        Ok(parts.end(&mut self.out)?)
    }

    async fn table_features(&mut self, xid: u32, kind: Kind, body: Reader<'_>, more: bool) -> Answer {
        // Parts of another incomplete request are discarded.
        let before = self.described.take().filter(|(of, _)| *of == xid);
        let mut changes = before.map(|(_, changes)| changes).unwrap_or_default();
        if !body.is_empty() {
            self.not_as_slave()?;
            changes.extend(table::get_features(body)?);
        }
        if changes.len() > DESCRIBED {
            return Err(Error::MultipartOverflow.into());
        }
        if more {
            self.described = Some((xid, changes));
            return Ok(());
        }
        // A request is carried out as a whole or not at all. Only the number of a table can be wrong.
        let tables = self.manager.datapath.features().tables;
        if changes.iter().any(|change| change.table >= tables && change.table != ALL_TABLES) {
            return Err(Error::FeaturesTable.into());
        }
        for change in changes {
            self.manager.table_mod(change).await.map_err(|error| match error {
                FlowError::BadTable => Error::FeaturesTable,
                _ => Error::FeaturesPermission,
            })?;
        }
        let look = move |datapath: &dyn Datapath| {
            (0..tables).filter_map(|table| datapath.table_config(table)).collect::<Vec<_>>()
        };
        let configs = self.manager.in_turn(look).await;
        let version = self.version;
        let configs = Box::new(std::iter::once(configs));
        self.many(xid, kind, configs, |out, config| table::put_features(out, version, config, tables))
            .await?;
        Ok(())
    }

    async fn table_descs(&mut self, xid: u32, kind: Kind) -> Answer {
        let look = |datapath: &dyn Datapath| {
            let all = datapath.tables().into_iter();
            all.filter_map(|stats| Some((datapath.table_config(stats.table)?, stats.active)))
                .collect::<Vec<_>>()
        };
        let all = self.manager.in_turn(look).await;
        let mut parts = self.parts(xid, kind);
        for (config, active) in all {
            parts.add(&mut self.out, |out| table::put_desc(out, &config, active))?;
        }
        Ok(parts.end(&mut self.out)?)
    }

    async fn monitor(&mut self, xid: u32, kind: Kind, mut body: Reader<'_>) -> Answer {
        let mut added: Vec<Monitor> = Vec::new();
        let mut monitors = self.monitors.clone();
        while !body.is_empty() {
            let place = |monitors: &[Monitor], id| monitors.iter().position(|monitor| monitor.id == id);
            match flow::get_monitor(&mut body, self.version)? {
                MonitorRequest::Add(monitor) => {
                    if place(&monitors, monitor.id).is_some() {
                        return Err(Error::MonitorExists.into());
                    }
                    if monitors.len() >= MONITORS {
                        return Err(Error::MonitorUnknown.into());
                    }
                    monitors.push(monitor.clone());
                    added.push(monitor);
                }
                MonitorRequest::Modify(monitor) => {
                    let at = place(&monitors, monitor.id).ok_or(Error::MonitorMissing)?;
                    monitors[at] = monitor.clone();
                    // Earlier additions of this monitor in the same request are replaced.
                    added.retain(|own| own.id != monitor.id);
                    added.push(monitor);
                }
                MonitorRequest::Delete(id) => {
                    let at = place(&monitors, id).ok_or(Error::MonitorMissing)?;
                    monitors.remove(at);
                    added.retain(|own| own.id != id);
                }
            }
        }
        // From here on, changes are reported. The existing flow entries follow immediately.
        self.monitors = monitors;
        self.seat.monitor(!self.monitors.is_empty());
        let mut parts = self.parts(xid, kind);
        let version = self.version;
        for monitor in added.into_iter().filter(|monitor| monitor.flags & OFPFMF_INITIAL != 0) {
            // Other dumps may run between those of two monitors. An incomplete part is not sent meanwhile.
            let begun = self.out.split_off(parts.start);
            let turn = self.turn().await;
            parts.start = self.out.len();
            self.out.extend(begun);
            let turn = turn?;
            let whole = monitor.flags & OFPFMF_INSTRUCTIONS != 0;
            let flows = self.manager.datapath.flows(&monitor.filter);
            let put = |out: &mut Vec<u8>, flow: &FlowStats| {
                flow::put_update(out, version, Update::Initial, flow, whole)
            };
            self.some(&mut parts, (flows, turn), put).await?;
        }
        Ok(parts.end(&mut self.out)?)
    }

    pub(super) fn monitor_cancel(&mut self, mut body: Reader<'_>) -> Answer {
        let id = body.u32()?;
        let at = self.monitors.iter().position(|monitor| monitor.id == id).ok_or(Error::MonitorMissing)?;
        self.monitors.remove(at);
        self.seat.monitor(!self.monitors.is_empty());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use switch::flow::{FlowFlags, Match};

    use super::*;

    fn stats(table: u8, cookie: u64, instructions: Instructions) -> FlowStats {
        FlowStats {
            table,
            cookie,
            instructions,
            matching: Match::ANY,
            priority: 0,
            age_ns: 0,
            unchanged_ns: 0,
            idle_ns: 0,
            idle_timeout: 0,
            hard_timeout: 0,
            importance: 0,
            flags: FlowFlags::default(),
            packets: 0,
            bytes: 0,
        }
    }

    /// Checks that the filters of flow monitors by port and group match all actions of a flow entry, including actions
    /// inside clone actions. A filter by port must also match the actions that the flow entry had before its
    /// modification.
    #[test]
    fn filters_by_port_and_group_agree_with_the_actions() {
        let out = |port| Action::Output { port, max_len: 0 };
        let inner =
            vec![out(2), Action::Group(8), Action::Clone(vec![Action::Enqueue { port: 3, queue: 1 }])];
        let instructions = Instructions {
            apply: vec![out(1), Action::Clone(inner), out(port::CONTROLLER)],
            write: vec![Action::Group(7), out(4)],
            ..Instructions::default()
        };
        let before = Instructions::apply(vec![out(5), Action::Group(9)]);
        let flow = stats(0, 0, instructions.clone());
        for before in [None, Some(&before)] {
            let named = LazyCell::new(|| Named::new(&flow, before));
            for number in (0..12).chain([port::CONTROLLER]) {
                let asks = FlowFilter { out_port: Some(number), ..FlowFilter::default() };
                let sends =
                    instructions.outputs_to(number) || before.is_some_and(|own| own.outputs_to(number));
                assert_eq!(within(&asks, &flow, &named), sends, "port {number}");
                let asks = FlowFilter { out_group: Some(number), ..FlowFilter::default() };
                assert_eq!(within(&asks, &flow, &named), instructions.uses_group(number), "group {number}");
            }
        }
    }

    /// Checks that the actions of a flow entry are not examined if the table or the cookie of the flow entry does not
    /// match the filter of a flow monitor.
    #[test]
    fn a_filter_of_another_table_looks_at_no_actions() {
        let flow = stats(3, 4, Instructions::default());
        let named = LazyCell::new(|| unreachable!("the table differs"));
        let port = FlowFilter { out_port: Some(1), ..FlowFilter::default() };
        assert!(!within(&FlowFilter { table: 2, ..port.clone() }, &flow, &named));
        assert!(!within(&FlowFilter { cookie: 5, cookie_mask: u64::MAX, ..port }, &flow, &named));
        assert!(within(&FlowFilter { table: 3, ..FlowFilter::default() }, &flow, &named));
    }
}
