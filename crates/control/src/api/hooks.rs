//! Hooks: the programs that stand on ports' devices.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use model::HookState;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Context;
use super::read::ask;
use super::request::Params;
use super::watch::permit;
use crate::ErrorBody;
use crate::error::{ApiError, ApiResult};

/// Longest time that runs are counted for one answer.
const MEASURE_LIMIT_MS: u64 = 60_000;

/// Whether runs are counted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HookParams {
    /// Have the kernel count runs and their time for so many milliseconds, 1..=60000, before the answer. Meanwhile every run
    /// of every BPF program costs some 20 ns more.
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
    let measure = params.measure()?;
    // Who measures keeps a thread waiting.
    let _permit = measure.map(|_| permit(context)).transpose()?;
    Ok(ask(context, move |plane| plane.hooks(measure)).await??)
}

/// The hooks of all ports that have one: mode, stages, program, maps, counters.
#[utoipa::path(get, path = "/v1/hooks", params(HookParams),
    responses((status = 200, body = Vec<HookState>), (status = 400, body = ErrorBody), (status = 500, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn hooks(
    State(context): State<Context>,
    Params(params): Params<HookParams>,
) -> ApiResult<Json<Vec<HookState>>> {
    read(&context, &params).await.map(Json)
}

/// The hook of one port.
#[utoipa::path(get, path = "/v1/hooks/{port}", params(("port" = String, Path), HookParams),
    responses((status = 200, body = HookState), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 500, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn hook(
    State(context): State<Context>,
    Path(port): Path<String>,
    Params(params): Params<HookParams>,
) -> ApiResult<Json<HookState>> {
    let found = read(&context, &params).await?.into_iter().find(|hook| hook.port == port);
    found.map(Json).ok_or_else(|| {
        let (cause, fix) = ("there is no port of this name with a hook", "look at GET /v1/hooks for those");
        ApiError::new(StatusCode::NOT_FOUND, format!("port.{port}"), cause, fix)
    })
}
