//! Streaming API routes: live counters with link events, traces, and captures. The number of streams and the memory of
//! each stream are limited.
//!
//! The data plane never waits for a client. Data for which a stream's queue has no space is dropped. When a client
//! disconnects, its queue is closed. The data plane then ends the trace or the capture.

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

/// Maximum number of frames or events that are queued for one client of a streaming API route.
pub(super) const QUEUE: usize = 1024;
/// Largest accepted number of packets of one trace.
const TRACE_LIMIT: u64 = 1_000_000;

/// Returns a permit for a stream (events, trace or capture), or an error if the client's quota is used up. Dropping the
/// permit releases it.
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

/// Query parameters of the event stream.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventParams {
    /// Interval between events in milliseconds, 100..=60000. Default 1000.
    interval_ms: Option<u64>,
}

/// Data of one event in the event stream. The event is named after the variant, in lower case.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Live {
    /// Counters of the whole data plane (event `counters`), sent at each interval.
    Counters(Counters),
    /// Change of a port's link state since the previous interval (event `link`).
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

/// Link state of each port (true means up) at the previous interval of the event stream.
#[derive(Default)]
struct Links(BTreeMap<String, bool>);

impl Links {
    /// Returns the link state changes of ports since the previous call. For a port that was added since the previous
    /// call, no change is reported.
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

/// Streams live counters as server-sent events.
///
/// Events named `counters` are sent at each interval, by default one per second. Events named `link` report
/// changes of ports' link states.
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

/// Query parameters of a trace. A packet must match all parameters that are present.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TraceParams {
    /// Number of packets to trace. Default 10.
    count: Option<u64>,
    /// Name of the port that receives the packet.
    port: Option<String>,
    /// Source or destination Ethernet address of the packet.
    mac: Option<String>,
    /// VLAN of the packet.
    vlan: Option<u16>,
    /// Ethernet type of the packet.
    ether_type: Option<u16>,
    /// Source or destination IP address of the packet.
    ip: Option<String>,
    /// IP protocol number of the packet.
    protocol: Option<u8>,
    /// Source or destination transport port of the packet.
    l4_port: Option<u16>,
    /// Filter that packets must match, such as `ip_src=10.0.0.0/8,tcp,dst_port=443`.
    filter: Option<String>,
}

/// Parses the text of a packet filter. An absent text results in a filter that matches every packet.
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

/// Streams trace reports of the next packets that match, one JSON value per line.
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

/// Query parameters of a capture on a port.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CaptureParams {
    /// Whether the capture contains only packets that arrived on the port and were dropped. The records of these
    /// packets contain the drop reasons.
    #[serde(default)]
    drops: bool,
    /// Maximum number of captured bytes of each frame. Default: whole frames.
    snap: Option<u32>,
    /// Filter that packets must match, such as `ip_src=10.0.0.0/8,tcp,dst_port=443`. Packets that do not
    /// match take no space in the queue.
    filter: Option<String>,
}

/// Captures the frames of a port (or of `all` ports), as an endless pcapng file.
///
/// The file has an interface for each port. The flags of a record contain the direction of the packet, the
/// comment contains the drop reason, and the drop count is the number of packets that were lost before the
/// packet.
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

/// Returns a response whose body is an endless pcapng file of the frames from a queue. `permit` is held until
/// the body ends.
pub(super) fn file(snap_length: u32, from: mpsc::Receiver<CapturedFrame>, permit: Permit) -> Response {
    let (mut section, start) = pcapng::Section::begin(snap_length);
    let start = stream::iter([Ok(Bytes::from(start))]);
    let packets = lines(from, permit, move |frame| section.packet(frame));
    let body = Body::from_stream(start.chain(packets));
    ([(header::CONTENT_TYPE, "application/x-pcapng")], body).into_response()
}

/// Returns a response body that consists of the items of a queue. `write` converts each item to text. Items that are in
/// the queue at the same time are sent in one chunk. `permit` is held until the body ends.
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
