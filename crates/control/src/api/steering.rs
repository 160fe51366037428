//! API routes for steering policies. The exact-match flows and the tables of a policy can change at run time without a
//! change of the configuration.

use axum::Json;
use axum::body::Body;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use model::{ObjectKey, SteeringDone, SteeringEntry, SteeringRequest, SteeringState, SteeringTable};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Context;
use super::objects::{Made, delete, put};
use super::read::{ask, list, no_such};
use super::request::{self, ChangeParams, Params};
use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::{ErrorBody, Outcome, owners};

/// Longest accepted lifetime of an exact-match flow in seconds: one year.
const EXPIRY_LIMIT_S: u64 = 366 * 86_400;
/// Default maximum number of exact-match flows in one response.
const FLOWS: usize = 1000;
/// Upper bound of the number of exact-match flows in one response.
const FLOWS_LIMIT: usize = 1 << 20;

/// Query parameters for reading exact-match flows.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct FlowParams {
    /// Maximum number of exact-match flows in the response. Default 1000.
    limit: Option<usize>,
}

/// Returns one steering policy with the number of packets for each target.
#[utoipa::path(get, path = "/v1/steering/{steering}", security((), ("token" = ["read"])), params(("steering" = String, Path)),
    responses((status = 200, body = SteeringState), (status = 404, body = ErrorBody)))]
pub(super) async fn policy(context: Context, Path(name): Path<String>) -> ApiResult<Json<SteeringState>> {
    let policies = ask(&context, |plane| plane.steering()).await?;
    let policies = owners::steering(policies, &context.store.merged());
    let found = policies.into_iter().find(|steering| steering.name == name);
    found.map(Json).ok_or_else(|| no_such("steering", &name))
}

/// Creates or replaces a steering policy that the API owns.
///
/// The body has the fields of `[steering.NAME]`.
#[utoipa::path(put, path = "/v1/steering/{steering}", security((), ("token" = ["configure"])), params(("steering" = String, Path), ChangeParams),
    request_body = serde_json::Value,
    responses((status = 200, body = Outcome), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_steering(
    context: Context,
    caller: Caller,
    Path(steering): Path<String>,
    Params(params): Params<ChangeParams>,
    body: Body,
) -> ApiResult<Made> {
    put(&context, &caller, ObjectKey::Steering(request::steering_name(&steering)?), params, body).await
}

/// Removes a steering policy that the API owns.
#[utoipa::path(delete, path = "/v1/steering/{steering}", security((), ("token" = ["configure"])), params(("steering" = String, Path), ChangeParams),
    responses((status = 200, body = Outcome), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn delete_steering(
    context: Context,
    caller: Caller,
    Path(steering): Path<String>,
    Params(params): Params<ChangeParams>,
) -> ApiResult<Made> {
    delete(&context, &caller, ObjectKey::Steering(request::steering_name(&steering)?), params).await
}

/// Returns the exact-match flows of a steering policy with their counters.
#[utoipa::path(get, path = "/v1/steering/{steering}/flows", operation_id = "steering_flows", security((), ("token" = ["read"])), params(("steering" = String, Path), FlowParams),
    responses((status = 200, body = Vec<SteeringEntry>), (status = 404, body = ErrorBody)))]
pub(super) async fn flows(
    context: Context,
    Path(steering): Path<String>,
    Params(params): Params<FlowParams>,
) -> ApiResult<Response> {
    let limit = params.limit.unwrap_or(FLOWS).min(FLOWS_LIMIT);
    list(&context, limit, move |plane| plane.steering_flows(&steering, limit)).await
}

/// Adds, changes or removes exact-match flows of a steering policy, all of them or none.
///
/// The configuration is not changed. Flows that the configuration contains cannot be changed.
#[utoipa::path(post, path = "/v1/steering/{steering}/flows", security((), ("token" = ["configure"])), params(("steering" = String, Path)),
    request_body = SteeringRequest,
    responses((status = 200, body = SteeringDone), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 422, body = ErrorBody)))]
pub(super) async fn change_flows(
    context: Context,
    Path(steering): Path<String>,
    body: Body,
) -> ApiResult<Json<SteeringDone>> {
    let asked: SteeringRequest = request::json(body).await?;
    for (at, flow) in asked.flows.iter().enumerate() {
        let refused = |key: &str, cause: String, fix: &str| {
            Err(ApiError::new(StatusCode::BAD_REQUEST, format!("body.flows[{at}]{key}"), cause, fix))
        };
        if let Err((cause, fix)) = flow.key() {
            return refused("", cause.to_owned(), fix);
        }
        if let Some(seconds) = flow.expires_s.filter(|seconds| !(1..=EXPIRY_LIMIT_S).contains(seconds)) {
            let cause = format!("{seconds} is outside of 1..={EXPIRY_LIMIT_S} seconds");
            return refused(".expires_s", cause, "leave it out to add the flow for good");
        }
    }
    Ok(Json(ask(&context, move |plane| plane.change_steering_flows(&steering, &asked)).await??))
}

/// Returns the target of each of the 256 hash buckets in the table of a steering policy.
#[utoipa::path(get, path = "/v1/steering/{steering}/table", security((), ("token" = ["read"])), params(("steering" = String, Path)),
    responses((status = 200, body = SteeringTable), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn table(context: Context, Path(steering): Path<String>) -> ApiResult<Json<SteeringTable>> {
    Ok(Json(ask(&context, move |plane| plane.steering_table(&steering)).await??))
}

/// Replaces the table of a steering policy until the configuration's table changes.
///
/// A list of fewer than 256 targets is repeated until all buckets have a target.
#[utoipa::path(put, path = "/v1/steering/{steering}/table", security((), ("token" = ["configure"])), params(("steering" = String, Path)), request_body = SteeringTable,
    responses((status = 200, body = SteeringTable), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 422, body = ErrorBody)))]
pub(super) async fn put_table(
    context: Context,
    Path(steering): Path<String>,
    body: Body,
) -> ApiResult<Json<SteeringTable>> {
    let table: SteeringTable = request::json(body).await?;
    let set = table.clone();
    ask(&context, move |plane| plane.set_steering_table(&steering, &set)).await??;
    Ok(Json(table))
}
