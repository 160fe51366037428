//! API routes that explain packets, report problems, flush MAC tables, set software RSS, and upgrade or stop the
//! daemon.

use std::path::PathBuf;

use axum::Json;
use axum::body::Body;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::{DoctorFinding, Explanation, RssTable, Scope};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::guard::Done;
use super::read::{FdbParams, ask};
use super::request::{self, Params};
use super::{Context, hex, program};
use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::store::blocking;
use crate::{ChangeError, ErrorBody, Plane};

/// Maximum length in bytes of a frame whose processing can be explained.
const FRAME_LIMIT: usize = 9100;
/// Maximum number of entries in a software RSS indirection table.
const RSS_LIMIT: usize = 65_536;

/// Request body that describes a packet whose processing is to be explained.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// Name of the port at which the packet arrives.
    pub in_port: String,
    /// Frame in hexadecimal digits, starting with the destination MAC address.
    pub frame: String,
}

impl ExplainRequest {
    /// Creates a request to explain a frame that arrives on the port `in_port`.
    pub fn new(in_port: impl Into<String>, frame: &[u8]) -> Self {
        ExplainRequest { in_port: in_port.into(), frame: hex::write(frame) }
    }
}

/// Request body of an upgrade, which replaces the running daemon by another program.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpgradeRequest {
    /// Path of the program to start. If absent, the file that is now at the path of the running program is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub binary: Option<PathBuf>,
}

/// Response to an upgrade request.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Upgraded {
    /// Path of the program that runs after the upgrade.
    #[schema(value_type = String)]
    pub binary: PathBuf,
}

/// Response to a flush of MAC tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Flushed {
    /// Number of removed MAC table entries.
    pub flushed: u64,
}

/// Predicts how the data plane would process a packet, and returns the reasons.
///
/// No packet is sent and no address is learned.
#[utoipa::path(post, path = "/v1/explain", security((), ("token" = ["read"])), request_body = ExplainRequest,
    responses((status = 200, body = Explanation), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn explain(context: Context, body: Body) -> ApiResult<Json<Explanation>> {
    let asked: ExplainRequest = request::json(body).await?;
    let frame = hex::read(&asked.frame).filter(|frame| (1..=FRAME_LIMIT).contains(&frame.len())).ok_or_else(
        || {
            let cause = format!("it is not 1 to {FRAME_LIMIT} bytes in hexadecimal digits");
            ApiError::new(StatusCode::BAD_REQUEST, "body.frame", cause, "write two digits for each byte")
        },
    )?;
    let permit = context.quotas.explanations.enter(&context.holder).await;
    let explain = move |plane: &dyn Plane| {
        let explanation = plane.explain(&asked.in_port, &frame);
        drop(permit);
        explanation
    };
    Ok(Json(ask(&context, explain).await??))
}

/// Diagnoses ports, memory and kernel, and returns the findings with their remedies.
#[utoipa::path(get, path = "/v1/doctor", security((), ("token" = ["read"])), responses((status = 200, body = Vec<DoctorFinding>)))]
pub(super) async fn doctor(context: Context) -> ApiResult<Json<Vec<DoctorFinding>>> {
    let mut findings = ask(&context, |plane| plane.doctor()).await?;
    let store = context.store.clone();
    let examine = async move { store.examine_state().await };
    findings.extend(context.task(&context.quotas.work, examine).await?);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok(Json(findings))
}

/// Removes the learned MAC table entries that match the query, by default all learned entries.
#[utoipa::path(post, path = "/v1/fdb/flush", security((), ("token" = ["configure"])), params(FdbParams),
    responses((status = 200, body = Flushed), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn flush_fdb(
    context: Context,
    Params(params): Params<FdbParams>,
) -> ApiResult<Json<Flushed>> {
    let filter = model::FdbFilter { limit: None, ..params.filter()? };
    let flushed = ask(&context, move |plane| plane.flush_fdb(&filter)).await??;
    Ok(Json(Flushed { flushed }))
}

/// Returns the indirection table of a port's software RSS.
#[utoipa::path(get, path = "/v1/rss/{port}", security((), ("token" = ["read"])), params(("port" = String, Path)),
    responses((status = 200, body = RssTable), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn get_rss(context: Context, Path(port): Path<String>) -> ApiResult<Json<RssTable>> {
    Ok(Json(ask(&context, move |plane| plane.rss_table(&port)).await??))
}

/// Replaces the indirection table of a port's software RSS.
#[utoipa::path(put, path = "/v1/rss/{port}", security((), ("token" = ["configure"])), params(("port" = String, Path)), request_body = RssTable,
    responses((status = 200, body = RssTable), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_rss(
    context: Context,
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

/// Replaces the running daemon by another program, without packet loss.
///
/// A program other than the daemon's own requires the scope `root`, and must be a file that only root can
/// change.
#[utoipa::path(post, path = "/v1/upgrade", security((), ("token" = ["configure"])), request_body = UpgradeRequest,
    responses((status = 200, body = Upgraded), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 500, body = ErrorBody)))]
pub(super) async fn upgrade(context: Context, caller: Caller, body: Body) -> ApiResult<Response> {
    let asked: UpgradeRequest = request::json(body).await?;
    let own = own_binary()?;
    let binary = match asked.binary.filter(|binary| *binary != own) {
        None => {
            program::existing(&own)?;
            own
        }
        Some(binary) if caller.scope < Some(Scope::Root) => {
            let what = format!("{} is not the daemon's own program {}", binary.display(), own.display());
            return Err(ChangeError::NeedsRoot { object: "upgrade".to_owned(), what }.into());
        }
        Some(binary) => program::trusted(&binary)?,
    };
    let started = binary.clone();
    // The hand-over runs in a separate task. It then continues if the client disconnects, and the gate stays closed
    // while the successor takes over.
    let task = tokio::spawn(async move { hand_over(&context, started).await });
    task.await.map_err(|_| ChangeError::Interrupted)??;
    let done = Done(format!("{} has taken over", binary.display()));
    let mut response = Json(Upgraded { binary }).into_response();
    response.extensions_mut().insert(done);
    Ok(response)
}

async fn hand_over(context: &Context, binary: PathBuf) -> ApiResult<()> {
    // The permit is obtained before the gate is closed. Otherwise, clients that hold all permits would keep the gate
    // closed for all clients.
    let _permit = context.quotas.work.enter(&context.holder).await;
    let Some(shut) = context.door.shut().await else {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "upgrade",
            "another upgrade is in progress",
            "wait until it has ended, then look at the running version (`trivium doctor`)",
        ));
    };
    // The hold waits for changes of admitted clients. A change during the hand-over would be lost, because
    // the successor runs the configuration that it received at the beginning. The rollback of an unconfirmed
    // change would be lost as well.
    let hold = context.store.hold().await.map_err(|error| match error {
        ChangeError::Pending { .. } => ApiError::new(
            StatusCode::CONFLICT,
            "upgrade",
            "a change waits for its confirmation",
            "confirm it (`trivium confirm`, POST /v1/config/confirm) or roll it back (`trivium rollback`, DELETE /v1/config/pending) first",
        ),
        error => error.into(),
    })?;
    let plane = context.store.plane().clone();
    blocking(move || plane.upgrade(&binary)).await??;
    shut.for_good();
    hold.for_good();
    Ok(())
}

/// Returns the path of this process's own program. After a package update, the file at this path is the new
/// program.
fn own_binary() -> ApiResult<PathBuf> {
    let path = std::env::current_exe().map_err(|error| {
        let fix = "name the program to start in `binary`";
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "upgrade", error.to_string(), fix)
    })?;
    Ok(replaced(&path))
}

/// Removes the suffix ` (deleted)` from a program's path. The kernel appends this suffix if the file was removed.
fn replaced(path: &std::path::Path) -> PathBuf {
    path.to_str().and_then(|text| text.strip_suffix(" (deleted)")).map_or_else(|| path.into(), PathBuf::from)
}

/// Stops the daemon in the same way as SIGTERM.
///
/// The response ends with the ID of the daemon's process. The process ends shortly after its sockets are
/// closed.
#[utoipa::path(post, path = "/v1/stop", security((), ("token" = ["configure"])), responses((status = 202, body = String)))]
pub(super) async fn stop(context: Context) -> (StatusCode, String) {
    context.store.stop();
    (StatusCode::ACCEPTED, format!("ending: process {}\n", std::process::id()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_binary_that_was_replaced_is_found_under_its_name() {
        assert_eq!(replaced(Path::new("/usr/bin/trivium (deleted)")), Path::new("/usr/bin/trivium"));
        assert_eq!(replaced(Path::new("/usr/bin/trivium")), Path::new("/usr/bin/trivium"));
        assert!(own_binary().is_ok_and(|path| path.is_file()));
    }
}
