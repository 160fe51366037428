//! API routes for virtual routers: their interfaces, routing tables and neighbours, and the comparison of a router with
//! the kernel.

use axum::Json;
use axum::body::Body;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use model::{DriftState, ObjectKey, Prefix, RouteEntry, RouteQuery, RouteWhy, RouterState, TableId};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Context;
use super::lists::entries;
use super::objects::{Made, delete, put};
use super::read::{ask, list, no_such};
use super::request::{self, ChangeParams, Params};
use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::{ErrorBody, Outcome, Plane, owners};

/// Query parameters for reading the routes of a router.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RouteParams {
    /// Prefix that contains the destinations of the returned routes. Absent: all destinations.
    prefix: Option<String>,
    /// Routing table: a number, `main`, `local` or `default`. Absent: all tables.
    table: Option<String>,
    /// Maximum number of returned routes. Default 1000, at most 100000.
    limit: Option<usize>,
}

/// Query parameters for the explanation of a route lookup.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WhyParams {
    /// Destination address or prefix whose route lookup is explained.
    of: String,
}

fn read<T: std::str::FromStr<Err: std::fmt::Display>>(key: &str, text: &str, fix: &str) -> ApiResult<T> {
    text.parse().map_err(|error| {
        ApiError::new(StatusCode::BAD_REQUEST, format!("query.{key}"), format!("{text:?}: {error}"), fix)
    })
}

fn prefix(key: &str, text: &str) -> ApiResult<Prefix> {
    read(key, text, "write an address, or a prefix such as 192.0.2.0/24")
}

/// Returns the state of one virtual router.
#[utoipa::path(get, path = "/v1/routers/{router}", security((), ("token" = ["read"])), params(("router" = String, Path)),
    responses((status = 200, body = RouterState), (status = 404, body = ErrorBody)))]
pub(super) async fn router(context: Context, Path(name): Path<String>) -> ApiResult<Json<RouterState>> {
    let routers = ask(&context, |plane| plane.routers()).await?;
    let routers = owners::routers(routers, &context.store.merged());
    let found = routers.into_iter().find(|router| router.name == name);
    found.map(Json).ok_or_else(|| no_such("router", &name))
}

/// Returns the routes of a router, by default of all tables.
#[utoipa::path(get, path = "/v1/routers/{router}/routes", security((), ("token" = ["read"])), params(("router" = String, Path), RouteParams),
    responses((status = 200, body = Vec<RouteEntry>), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn routes(
    context: Context,
    Path(router): Path<String>,
    Params(params): Params<RouteParams>,
) -> ApiResult<Response> {
    let table = |text: &String| read::<TableId>("table", text, "leave it out for all tables");
    let query = RouteQuery {
        prefix: params.prefix.as_deref().map(|text| prefix("prefix", text)).transpose()?,
        table: params.table.as_ref().map(table).transpose()?,
        limit: entries(params.limit),
    };
    list(&context, query.limit, move |plane| plane.routes(&router, &query)).await
}

/// Explains the route lookup for an address, or for all addresses of a prefix.
#[utoipa::path(get, path = "/v1/routers/{router}/why", security((), ("token" = ["read"])), params(("router" = String, Path), WhyParams),
    responses((status = 200, body = RouteWhy), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn why(
    context: Context,
    Path(router): Path<String>,
    Params(params): Params<WhyParams>,
) -> ApiResult<Json<RouteWhy>> {
    let of = prefix("of", &params.of)?;
    Ok(Json(ask(&context, move |plane| plane.route_why(&router, of)).await??))
}

/// Compares the state of a router with the kernel's state, and repairs differences.
///
/// Other changes of the router wait until the comparison has ended. Only one comparison runs at a time.
#[utoipa::path(get, path = "/v1/routers/{router}/drift", security((), ("token" = ["configure"])), params(("router" = String, Path)),
    responses((status = 200, body = DriftState), (status = 404, body = ErrorBody)))]
pub(super) async fn drift(context: Context, Path(router): Path<String>) -> ApiResult<Json<DriftState>> {
    let permit = context.quotas.drifts.try_enter(&context.holder).ok_or_else(|| {
        let cause = "another router is being compared with the kernel";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "api", cause, "ask again in a few seconds")
    })?;
    let compare = move |plane: &dyn Plane| {
        let found = plane.drift(&router);
        drop(permit);
        found
    };
    let mut found = ask(&context, compare).await??;
    found.changes.truncate(DriftState::TOLD);
    Ok(Json(found))
}

/// Creates a router that the API owns, or replaces its settings.
///
/// The body has the fields of `[router.NAME]` without interfaces.
#[utoipa::path(put, path = "/v1/routers/{router}", security((), ("token" = ["configure"])), params(("router" = String, Path), ChangeParams),
    request_body = serde_json::Value,
    responses((status = 200, body = Outcome), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_router(
    context: Context,
    caller: Caller,
    Path(router): Path<String>,
    Params(params): Params<ChangeParams>,
    body: Body,
) -> ApiResult<Made> {
    put(&context, &caller, ObjectKey::Router(request::router_name(&router)?), params, body).await
}

/// Removes a router that the API owns, with its interfaces that the API owns.
#[utoipa::path(delete, path = "/v1/routers/{router}", security((), ("token" = ["configure"])), params(("router" = String, Path), ChangeParams),
    responses((status = 200, body = Outcome), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn delete_router(
    context: Context,
    caller: Caller,
    Path(router): Path<String>,
    Params(params): Params<ChangeParams>,
) -> ApiResult<Made> {
    delete(&context, &caller, ObjectKey::Router(request::router_name(&router)?), params).await
}

/// Adds a port to a router as an interface, or replaces the settings of the interface.
///
/// The body has the fields of `[router.NAME.port.PORT]`.
#[utoipa::path(put, path = "/v1/routers/{router}/ports/{port}", security((), ("token" = ["configure"])),
    params(("router" = String, Path), ("port" = String, Path), ChangeParams), request_body = serde_json::Value,
    responses((status = 200, body = Outcome), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_interface(
    context: Context,
    caller: Caller,
    Path((router, port)): Path<(String, String)>,
    Params(params): Params<ChangeParams>,
    body: Body,
) -> ApiResult<Made> {
    let object = ObjectKey::RouterPort(request::router_name(&router)?, request::port_name(&port)?);
    put(&context, &caller, object, params, body).await
}

/// Removes a port from a router.
#[utoipa::path(delete, path = "/v1/routers/{router}/ports/{port}", security((), ("token" = ["configure"])),
    params(("router" = String, Path), ("port" = String, Path), ChangeParams),
    responses((status = 200, body = Outcome), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn delete_interface(
    context: Context,
    caller: Caller,
    Path((router, port)): Path<(String, String)>,
    Params(params): Params<ChangeParams>,
) -> ApiResult<Made> {
    let object = ObjectKey::RouterPort(request::router_name(&router)?, request::port_name(&port)?);
    delete(&context, &caller, object, params).await
}
