//! Streams: live counters and links, traces and captures. Each is bounded in number and in what it holds.
//!
//! The data plane never waits for a client: what a stream's queue cannot take is lost, and a client that goes away
//! closes the queue, which ends the trace or capture.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use model::{CapturedFrame, Counters, LinkEvent, PacketFilter, PortState, TraceEvent};
use packet::filter::Filter;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use utoipa::{IntoParams, ToSchema};

use super::Context;
use super::read::ask;
use super::request::Params;
use crate::error::{ApiError, ApiResult};
use crate::pcapng;
use crate::quota::Permit;
use crate::{CaptureRequest, ErrorBody};

/// Frames or events that wait for a client.
pub(super) const QUEUE: usize = 1024;
/// Most packets of one trace.
const TRACE_LIMIT: u64 = 1_000_000;

/// A place among the streams; it is free again when this goes away.
pub(super) fn permit(context: &Context) -> ApiResult<Permit> {
    context.quotas.streams.try_enter(&context.holder).ok_or_else(|| {
        ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "api",
            "as many streams are served already as this client, or all clients together, may have",
            "end another trace, capture or live view",
        )
    })
}

/// How live counters come.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventParams {
    /// Milliseconds between two events, 100..=60000; 1000 unless told.
    interval_ms: Option<u64>,
}

/// What an event of the live view tells; its name is the variant's.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Live {
    /// `counters`: all of them, at each interval.
    Counters(Counters),
    /// `link`: a port's link went or came since the event before.
    Link(LinkEvent),
}

impl Live {
    fn event(&self) -> Option<Event> {
        let name = match self {
            Live::Counters(_) => "counters",
            Live::Link(_) => "link",
        };
        Event::default().event(name).json_data(self).ok()
    }
}

/// Whose link was up when a client was last told.
#[derive(Default)]
struct Links(BTreeMap<String, bool>);

impl Links {
    /// What differs now. A port that was not there before is no news.
    fn changes(&mut self, ports: Vec<PortState>, at_ns: u64) -> Vec<LinkEvent> {
        let differs = |port: &PortState| self.0.get(&port.name).is_some_and(|up| *up != port.link_up);
        let told = ports.iter().filter(|port| differs(port)).map(|port| LinkEvent {
            at_ns,
            port: port.name.clone(),
            up: port.link_up,
            trouble: port.trouble.clone(),
        });
        let told = told.collect();
        self.0 = ports.into_iter().map(|port| (port.name, port.link_up)).collect();
        told
    }
}

/// Live counters as server-sent events named `counters`, one a second, and `link` where a port's link went or came
/// meanwhile.
#[utoipa::path(get, path = "/v1/events", security((), ("token" = ["read"])), params(EventParams),
    responses((status = 200, body = Live, content_type = "text/event-stream"), (status = 503, body = ErrorBody)))]
pub(super) async fn events(
    context: Context,
    Params(params): Params<EventParams>,
) -> ApiResult<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let permit = permit(&context)?;
    let interval = Duration::from_millis(params.interval_ms.unwrap_or(1000).clamp(100, 60_000));
    let mut ticks = tokio::time::interval_at(Instant::now(), interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let start = (context, ticks, Links::default(), permit);
    let events = stream::unfold(start, |(context, mut ticks, mut links, permit)| async move {
        ticks.tick().await;
        let (counters, ports) = ask(&context, |plane| (plane.counters(), plane.ports())).await.ok()?;
        let changes = links.changes(ports, counters.at_ns);
        let all = std::iter::once(Live::Counters(counters)).chain(changes.into_iter().map(Live::Link));
        let events: Vec<_> = all.filter_map(|live| live.event()).map(Ok).collect();
        Some((stream::iter(events), (context, ticks, links, permit)))
    });
    Ok(Sse::new(events.flatten()))
}

/// Which packets are traced.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TraceParams {
    /// So many packets; 10 unless told.
    count: Option<u64>,
    /// That come in by this port.
    port: Option<String>,
    /// From or to this Ethernet address.
    mac: Option<String>,
    /// In this VLAN.
    vlan: Option<u16>,
    /// Of this Ethernet type.
    ether_type: Option<u16>,
    /// From or to this IP address.
    ip: Option<String>,
    /// Of this IP protocol.
    protocol: Option<u8>,
    /// From or to this L4 port.
    l4_port: Option<u16>,
    /// And that match all of this, such as `ip_src=10.0.0.0/8,tcp,dst_port=443`.
    filter: Option<String>,
}

/// A filter in words; none holds for every packet.
pub(super) fn words(text: Option<&str>) -> ApiResult<Filter> {
    Filter::parse(text.unwrap_or_default()).map_err(|error| {
        let fix = "for example: ip_src=10.0.0.0/8,tcp,dst_port=443";
        ApiError::new(StatusCode::BAD_REQUEST, "query.filter", error.to_string(), fix)
    })
}

impl TraceParams {
    fn filter(self) -> ApiResult<PacketFilter> {
        let refused = |name: &str, cause: String| {
            ApiError::new(
                StatusCode::BAD_REQUEST,
                format!("query.{name}"),
                cause,
                "correct it or leave it out",
            )
        };
        let mac =
            self.mac.map(|mac| mac.parse().map_err(|error| refused("mac", format!("{mac:?}: {error}"))));
        let ip = self.ip.map(|ip| ip.parse().map_err(|error| refused("ip", format!("{ip:?}: {error}"))));
        let vlan = self.vlan.map(|vid| {
            packet::VlanId::new(vid).ok_or_else(|| refused("vlan", format!("there is no VLAN {vid}")))
        });
        words(self.filter.as_deref())?;
        Ok(PacketFilter {
            port: self.port,
            mac: mac.transpose()?,
            vlan: vlan.transpose()?,
            ether_type: self.ether_type,
            ip: ip.transpose()?,
            protocol: self.protocol,
            l4_port: self.l4_port,
            filter: self.filter,
        })
    }
}

/// The next packets that match, with their way stage by stage: one JSON value in each line.
#[utoipa::path(get, path = "/v1/trace", security((), ("token" = ["configure"])), params(TraceParams),
    responses((status = 200, body = TraceEvent, content_type = "application/x-ndjson"),
        (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn trace(context: Context, Params(params): Params<TraceParams>) -> ApiResult<Response> {
    let permit = permit(&context)?;
    let count = params.count.unwrap_or(10).clamp(1, TRACE_LIMIT);
    let filter = params.filter()?;
    let (to, from) = mpsc::channel(QUEUE);
    ask(&context, move |plane| plane.trace(count, &filter, to)).await??;
    let lines = lines(from, permit, |event: &TraceEvent| {
        let mut line = serde_json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        line
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

/// What a port carries.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CaptureParams {
    /// Only packets that came in here and were dropped, with their reasons.
    #[serde(default)]
    drops: bool,
    /// Bytes of each frame at most; whole frames unless told.
    snap: Option<u32>,
    /// Only packets that match all of this, such as `ip_src=10.0.0.0/8,tcp,dst_port=443`. Those that do not take no place in queues.
    filter: Option<String>,
}

/// What a port (or `all`) carries, as a pcapng file without end: an interface for each port, each packet's direction in its
/// flags, the reason of a drop in its comment, and how many were lost before it in its drop count.
#[utoipa::path(get, path = "/v1/capture/{port}", security((), ("token" = ["configure"])), params(("port" = String, Path), CaptureParams),
    responses((status = 200, body = String, content_type = "application/x-pcapng"),
        (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn capture(
    context: Context,
    Path(port): Path<String>,
    Params(params): Params<CaptureParams>,
) -> ApiResult<Response> {
    let permit = permit(&context)?;
    let snap_length = params.snap.unwrap_or(pcapng::LONGEST_FRAME).clamp(14, pcapng::LONGEST_FRAME);
    let filter = words(params.filter.as_deref())?;
    let asked = CaptureRequest { port: port.clone(), drops_only: params.drops, snap_length, filter };
    let (to, from) = mpsc::channel(QUEUE);
    ask(&context, move |plane| plane.capture(&asked, to)).await??;
    Ok(file(snap_length, from, permit))
}

/// Frames as a pcapng file without end.
pub(super) fn file(snap_length: u32, from: mpsc::Receiver<CapturedFrame>, permit: Permit) -> Response {
    let (mut section, start) = pcapng::Section::begin(snap_length);
    let start = stream::iter([Ok(Bytes::from(start))]);
    let packets = lines(from, permit, move |frame| section.packet(frame));
    let body = Body::from_stream(start.chain(packets));
    ([(header::CONTENT_TYPE, "application/x-pcapng")], body).into_response()
}

/// The items of a queue as chunks of a body; what waits is sent together.
fn lines<T: Send + 'static>(
    from: mpsc::Receiver<T>,
    permit: Permit,
    write: impl FnMut(&T) -> Vec<u8> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    stream::unfold((from, permit, write), |(mut from, permit, mut write)| async move {
        let mut waiting = Vec::new();
        if from.recv_many(&mut waiting, 64).await == 0 {
            return None;
        }
        let chunk: Vec<u8> = waiting.iter().flat_map(&mut write).collect();
        Some((Ok(Bytes::from(chunk)), (from, permit, write)))
    })
}
