//! Virtual routers and their interfaces.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use model::ObjectKey;

use super::Context;
use super::objects::{delete, put};
use super::request::{self, ChangeParams, Params};
use crate::error::ApiResult;
use crate::{ErrorBody, Outcome};

/// Makes a router of the API or replaces its settings. The body has the fields of `[router.NAME]`, interfaces aside.
#[utoipa::path(put, path = "/v1/routers/{router}", params(("router" = String, Path), ChangeParams),
    request_body = serde_json::Value,
    responses((status = 200, body = Outcome), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_router(
    State(context): State<Context>,
    Path(router): Path<String>,
    Params(params): Params<ChangeParams>,
    body: Body,
) -> ApiResult<Json<Outcome>> {
    put(&context, ObjectKey::Router(request::router_name(&router)?), params, body).await
}

/// Removes a router of the API with the interfaces that the API gave it.
#[utoipa::path(delete, path = "/v1/routers/{router}", params(("router" = String, Path), ChangeParams),
    responses((status = 200, body = Outcome), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn delete_router(
    State(context): State<Context>,
    Path(router): Path<String>,
    Params(params): Params<ChangeParams>,
) -> ApiResult<Json<Outcome>> {
    delete(&context, ObjectKey::Router(request::router_name(&router)?), params).await
}

/// Makes a port a router's interface, or changes what it is there. The body has the fields of `[router.NAME.port.PORT]`.
#[utoipa::path(put, path = "/v1/routers/{router}/ports/{port}",
    params(("router" = String, Path), ("port" = String, Path), ChangeParams), request_body = serde_json::Value,
    responses((status = 200, body = Outcome), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_interface(
    State(context): State<Context>,
    Path((router, port)): Path<(String, String)>,
    Params(params): Params<ChangeParams>,
    body: Body,
) -> ApiResult<Json<Outcome>> {
    let object = ObjectKey::RouterPort(request::router_name(&router)?, request::port_name(&port)?);
    put(&context, object, params, body).await
}

/// Takes a port out of a router.
#[utoipa::path(delete, path = "/v1/routers/{router}/ports/{port}",
    params(("router" = String, Path), ("port" = String, Path), ChangeParams),
    responses((status = 200, body = Outcome), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn delete_interface(
    State(context): State<Context>,
    Path((router, port)): Path<(String, String)>,
    Params(params): Params<ChangeParams>,
) -> ApiResult<Json<Outcome>> {
    let object = ObjectKey::RouterPort(request::router_name(&router)?, request::port_name(&port)?);
    delete(&context, object, params).await
}
