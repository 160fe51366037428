//! Questions and deeds: explain, doctor, flush, software RSS, upgrade.

use std::path::PathBuf;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use model::{DoctorFinding, Explanation, RssTable};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::read::{FdbParams, ask};
use super::request::{self, Params};
use super::{Context, hex};
use crate::ErrorBody;
use crate::error::{ApiError, ApiResult};

/// Longest frame that can be explained, in bytes.
const FRAME_LIMIT: usize = 9100;
/// Most entries of a table of software RSS.
const RSS_LIMIT: usize = 65_536;

/// Which packet is explained.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// The port that it would come in by.
    pub in_port: String,
    /// The frame from its destination address on, in hexadecimal digits.
    pub frame: String,
}

impl ExplainRequest {
    /// Asks about this frame.
    pub fn new(in_port: impl Into<String>, frame: &[u8]) -> Self {
        ExplainRequest { in_port: in_port.into(), frame: hex::write(frame) }
    }
}

/// What is started in our place.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpgradeRequest {
    /// The program's file.
    #[schema(value_type = String)]
    pub binary: PathBuf,
}

/// How many objects something was done to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Flushed {
    /// Addresses that were forgotten.
    pub flushed: u64,
}

/// What would happen to a packet, and why. Nothing is sent and nothing is learnt.
#[utoipa::path(post, path = "/v1/explain", request_body = ExplainRequest,
    responses((status = 200, body = Explanation), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn explain(State(context): State<Context>, body: Body) -> ApiResult<Json<Explanation>> {
    let asked: ExplainRequest = request::json(body).await?;
    let frame = hex::read(&asked.frame).filter(|frame| (1..=FRAME_LIMIT).contains(&frame.len())).ok_or_else(
        || {
            let cause = format!("it is not 1 to {FRAME_LIMIT} bytes in hexadecimal digits");
            ApiError::new(StatusCode::BAD_REQUEST, "body.frame", cause, "write two digits for each byte")
        },
    )?;
    Ok(Json(ask(&context, move |plane| plane.explain(&asked.in_port, &frame)).await??))
}

/// What is wrong with ports, memory and kernel, and how to mend it.
#[utoipa::path(get, path = "/v1/doctor", responses((status = 200, body = Vec<DoctorFinding>)))]
pub(super) async fn doctor(State(context): State<Context>) -> ApiResult<Json<Vec<DoctorFinding>>> {
    ask(&context, |plane| plane.doctor()).await.map(Json)
}

/// Forgets learnt addresses that match; all without a query.
#[utoipa::path(post, path = "/v1/fdb/flush", params(FdbParams),
    responses((status = 200, body = Flushed), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn flush_fdb(
    State(context): State<Context>,
    Params(params): Params<FdbParams>,
) -> ApiResult<Json<Flushed>> {
    let filter = model::FdbFilter { limit: None, ..params.filter()? };
    let flushed = ask(&context, move |plane| plane.flush_fdb(&filter)).await??;
    Ok(Json(Flushed { flushed }))
}

/// A port's table of software RSS.
#[utoipa::path(get, path = "/v1/rss/{port}", params(("port" = String, Path)),
    responses((status = 200, body = RssTable), (status = 404, body = ErrorBody)))]
pub(super) async fn get_rss(
    State(context): State<Context>,
    Path(port): Path<String>,
) -> ApiResult<Json<RssTable>> {
    Ok(Json(ask(&context, move |plane| plane.rss_table(&port)).await??))
}

/// Replaces a port's table of software RSS.
#[utoipa::path(put, path = "/v1/rss/{port}", params(("port" = String, Path)), request_body = RssTable,
    responses((status = 200, body = RssTable), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_rss(
    State(context): State<Context>,
    Path(port): Path<String>,
    body: Body,
) -> ApiResult<Json<RssTable>> {
    let table: RssTable = request::json(body).await?;
    let length = table.buckets.len();
    if !length.is_power_of_two() || length > RSS_LIMIT {
        return Err(ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("port.{port}.rss"),
            format!("{length} buckets are not a power of two up to {RSS_LIMIT}"),
            "give 128, for example",
        ));
    }
    let set = table.clone();
    ask(&context, move |plane| plane.set_rss_table(&port, &set)).await??;
    Ok(Json(table))
}

/// Starts another program in our place, with nothing lost.
#[utoipa::path(post, path = "/v1/upgrade", request_body = UpgradeRequest,
    responses((status = 200, body = String), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 500, body = ErrorBody)))]
pub(super) async fn upgrade(State(context): State<Context>, body: Body) -> ApiResult<&'static str> {
    let asked: UpgradeRequest = request::json(body).await?;
    if !asked.binary.is_absolute() {
        return Err(ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "upgrade",
            format!("{:?} is not a path from the root", asked.binary.display().to_string()),
            "give the whole path of the program",
        ));
    }
    // A successor would take a change over that nobody has confirmed, and would not roll it back.
    if context.store.pending().await.pending {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "upgrade",
            "a change waits for its confirmation",
            "confirm it (POST /v1/config/confirm) or roll it back (DELETE /v1/config/pending) first",
        ));
    }
    ask(&context, move |plane| plane.upgrade(&asked.binary)).await??;
    Ok("handed over\n")
}
