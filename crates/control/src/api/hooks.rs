//! API routes for hooks: the XDP programs on the devices of ports.

use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Body;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use model::{HookProgram, HookRuns, HookState, OBJECT_LIMIT, ProgramChange};
use serde::Deserialize;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::Context;
use super::read::ask;
use super::request::{self, Params};
use super::watch::{QUEUE, file, permit, words};
use crate::error::{ApiError, ApiResult};
use crate::{DumpRequest, ErrorBody, Plane};

/// Maximum duration, in milliseconds, for which a client can have the runs of XDP programs measured.
const MEASURE_LIMIT_MS: u64 = 60_000;

/// Number of bytes of each frame that a capture at a hook copies, unless the client requests another number.
const SNAP: u32 = 256;
/// Largest number of bytes of each frame that a client can request from a capture at a hook.
const SNAP_MAX: u32 = 2048;

/// Query parameters for reading the states of hooks (XDP programs on the devices of ports).
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HookParams {
    /// Time in milliseconds (1..=60000) for which the runs of the hooks' BPF programs are counted
    /// and timed. The response is sent after this time. Meanwhile, every run of every BPF program
    /// of the system takes about 20 ns longer. Absent: nothing is measured.
    measure_ms: Option<u64>,
}

impl HookParams {
    fn measure(&self) -> ApiResult<Option<Duration>> {
        match self.measure_ms {
            Some(time) if !(1..=MEASURE_LIMIT_MS).contains(&time) => Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "query.measure_ms",
                format!("{time} is outside of 1..={MEASURE_LIMIT_MS}"),
                "leave it out to measure nothing",
            )),
            time => Ok(time.map(Duration::from_millis)),
        }
    }
}

async fn read(context: &Context, params: &HookParams) -> ApiResult<Vec<HookState>> {
    match params.measure()? {
        Some(time) => measured(context, time).await,
        None => Ok(ask(context, |plane| plane.hooks()).await??),
    }
}

/// Measures the runs of the XDP programs of all hooks for the duration `time`. No thread is blocked. The measurement
/// ends early if the client disconnects.
async fn measured(context: &Context, time: Duration) -> ApiResult<Vec<HookState>> {
    let _permit = context.quotas.measurements.try_enter(&context.holder).ok_or_else(|| {
        let cause = "another client measures now";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "hooks", cause, "ask again when it has ended")
    })?;
    let _counted = ask(context, |plane| plane.count_runs()).await??;
    let (start, before) = ask(context, |plane| (Instant::now(), plane.hooks())).await?;
    let before = before?;
    tokio::time::sleep(time).await;
    let (end, hooks) = ask(context, |plane| (Instant::now(), plane.hooks())).await?;
    let mut hooks = hooks?;
    let elapsed_ns = u64::try_from((end - start).as_nanos()).unwrap_or(u64::MAX);
    for hook in &mut hooks {
        let Some(now) = first(hook) else { continue };
        let same = |other: &&HookState| other.port == hook.port;
        let then = before.iter().find(same).and_then(first);
        // A program that was loaded during the measurement started at 0.
        let then = then.filter(|then| then.id == now.id);
        let (runs, run_time_ns) = then.map_or((0, 0), |then| (then.runs, then.run_time_ns));
        hook.measured = Some(HookRuns {
            elapsed_ns,
            runs: now.runs.saturating_sub(runs),
            run_time_ns: now.run_time_ns.saturating_sub(run_time_ns),
        });
    }
    Ok(hooks)
}

/// Returns the XDP program that is attached to the device of a hook. The run time of this program includes the run time
/// of the programs that it calls by tail calls.
fn first(hook: &HookState) -> Option<&HookProgram> {
    hook.user_program.as_ref().map(|user| &user.program).or(hook.program.as_ref())
}

/// Returns the hooks of all ports that have one: mode, stages, program, maps, counters.
#[utoipa::path(get, path = "/v1/hooks", security((), ("token" = ["read"])), params(HookParams),
    responses((status = 200, body = Vec<HookState>), (status = 400, body = ErrorBody), (status = 500, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn hooks(
    context: Context,
    Params(params): Params<HookParams>,
) -> ApiResult<Json<Vec<HookState>>> {
    read(&context, &params).await.map(Json)
}

/// Returns the hook of one port.
#[utoipa::path(get, path = "/v1/hooks/{port}", security((), ("token" = ["read"])), params(("port" = String, Path), HookParams),
    responses((status = 200, body = HookState), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 500, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn hook(
    context: Context,
    Path(port): Path<String>,
    Params(params): Params<HookParams>,
) -> ApiResult<Json<HookState>> {
    let found = read(&context, &params).await?.into_iter().find(|hook| hook.port == port);
    found.map(Json).ok_or_else(|| {
        let (cause, fix) = ("there is no port of this name with a hook", "look at GET /v1/hooks for those");
        ApiError::new(StatusCode::NOT_FOUND, format!("port.{port}"), cause, fix)
    })
}

/// Query parameters for attaching a custom XDP program to a hook.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ProgramParams {
    /// Name of the XDP program in the object file. Can be absent if the object file contains only one XDP program.
    program: Option<String>,
}

/// Attaches a custom program in front of a port's program. Replaces a previous custom program.
///
/// The body is an object file compiled by clang, at most 4 MiB long. The verdict of the custom program is
/// final unless the program calls the port's program by a tail call through `trivium_next`.
#[utoipa::path(put, path = "/v1/hooks/{port}/program", security((), ("token" = ["root"])), params(("port" = String, Path), ProgramParams),
    request_body(content = String, content_type = "application/octet-stream"),
    responses((status = 200, body = ProgramChange), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 413, body = ErrorBody), (status = 422, body = ErrorBody), (status = 500, body = ErrorBody)))]
pub(super) async fn put_program(
    context: Context,
    Path(port): Path<String>,
    Params(params): Params<ProgramParams>,
    body: Body,
) -> ApiResult<Json<ProgramChange>> {
    let object = request::body(body, OBJECT_LIMIT).await?;
    let load = move |plane: &dyn Plane| plane.load_program(&port, &object, params.program.as_deref());
    Ok(Json(ask(&context, load).await??))
}

/// Removes the custom program in front of the program of a port, with the custom program's maps.
#[utoipa::path(delete, path = "/v1/hooks/{port}/program", security((), ("token" = ["root"])), params(("port" = String, Path)),
    responses((status = 200, body = ProgramChange), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 500, body = ErrorBody)))]
pub(super) async fn delete_program(
    context: Context,
    Path(port): Path<String>,
) -> ApiResult<Json<ProgramChange>> {
    Ok(Json(ask(&context, move |plane| plane.unload_program(&port)).await??))
}

/// Query parameters for a capture at a hook (the XDP program on a port's device).
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DumpParams {
    /// Whether frames are captured before the hook's program runs. Default true.
    entry: Option<bool>,
    /// Whether frames are captured after the hook's program has run. Default true.
    exit: Option<bool>,
    /// List of the verdicts whose frames are captured, such as `drop,pass`. The verdicts are `aborted`,
    /// `drop`, `pass`, `transmit` and `redirect`. Default: all.
    verdicts: Option<String>,
    /// Maximum number of captured bytes of each frame, 14..=2048. Default 256.
    snap: Option<u32>,
    /// Filter that frames must match, such as `ip_src=10.0.0.0/8,tcp,dst_port=443`.
    filter: Option<String>,
}

/// Captures the frames at the hook of a port, as an endless pcapng file.
///
/// Frames that are captured before the program runs have the direction inbound, and frames that are captured afterwards
/// have the direction outbound. The comment of a record contains the verdict. During the capture, the hook runs a
/// variant of its program that contains capture code and uses the same maps.
#[utoipa::path(get, path = "/v1/hooks/{port}/dump", security((), ("token" = ["configure"])), params(("port" = String, Path), DumpParams),
    responses((status = 200, body = String, content_type = "application/x-pcapng"), (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 500, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn dump(
    context: Context,
    Path(port): Path<String>,
    Params(params): Params<DumpParams>,
) -> ApiResult<Response> {
    let permit = permit(&context)?;
    let snap_length = params.snap.unwrap_or(SNAP).clamp(14, SNAP_MAX);
    let (entry, exit) = (params.entry.unwrap_or(true), params.exit.unwrap_or(true));
    if !entry && !exit {
        let cause = "frames are asked for neither as they come nor as they leave";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "query.exit", cause, "ask for one of them"));
    }
    let verdicts = params.verdicts.unwrap_or_default();
    let verdicts = verdicts.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    let filter = words(params.filter.as_deref())?;
    let asked = DumpRequest { port, verdicts, entry, exit, snap_length, filter };
    let (to, from) = mpsc::channel(QUEUE);
    ask(&context, move |plane| plane.dump(asked, to)).await??;
    Ok(file(snap_length, from, permit))
}
