//! Objects that the API owns: filters (in `filters`), steerings (in `steers`), routers and their interfaces (in `routers`), ports, bridges, members and
//! static entries, each put and deleted by its name.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use model::{Change, ObjectKey, Owner, load_change};

use super::request::{self, ChangeParams, Params};
use super::{BODY_LIMIT, Context};
use crate::error::ApiResult;
use crate::{ErrorBody, Outcome};

pub(super) async fn put(
    context: &Context,
    object: ObjectKey,
    params: ChangeParams,
    body: Body,
) -> ApiResult<Json<Outcome>> {
    let terms = request::terms(params.dry_run, params.confirm)?;
    let bytes = request::body(body, BODY_LIMIT).await?;
    let change = load_change(&object, request::text(&bytes)?)?;
    Ok(Json(context.store.change(Owner::Api, change, params.persist, terms).await?))
}

pub(super) async fn delete(
    context: &Context,
    object: ObjectKey,
    params: ChangeParams,
) -> ApiResult<Json<Outcome>> {
    let terms = request::terms(params.dry_run, params.confirm)?;
    Ok(Json(context.store.change(Owner::Api, Change::Remove(object), None, terms).await?))
}

/// Makes or replaces a port of the API. The body has the fields of `[port.NAME]`.
#[utoipa::path(put, path = "/v1/ports/{port}", params(("port" = String, Path), ChangeParams),
    request_body = serde_json::Value,
    responses((status = 200, body = Outcome), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_port(
    State(context): State<Context>,
    Path(port): Path<String>,
    Params(params): Params<ChangeParams>,
    body: Body,
) -> ApiResult<Json<Outcome>> {
    put(&context, ObjectKey::Port(request::port_name(&port)?), params, body).await
}

/// Removes a port of the API.
#[utoipa::path(delete, path = "/v1/ports/{port}", params(("port" = String, Path), ChangeParams),
    responses((status = 200, body = Outcome), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn delete_port(
    State(context): State<Context>,
    Path(port): Path<String>,
    Params(params): Params<ChangeParams>,
) -> ApiResult<Json<Outcome>> {
    delete(&context, ObjectKey::Port(request::port_name(&port)?), params).await
}

/// Makes a bridge of the API or replaces its settings. The body has the fields of `[bridge.NAME]`, members aside.
#[utoipa::path(put, path = "/v1/bridges/{bridge}", params(("bridge" = String, Path), ChangeParams),
    request_body = serde_json::Value,
    responses((status = 200, body = Outcome), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_bridge(
    State(context): State<Context>,
    Path(bridge): Path<String>,
    Params(params): Params<ChangeParams>,
    body: Body,
) -> ApiResult<Json<Outcome>> {
    put(&context, ObjectKey::Bridge(request::bridge_name(&bridge)?), params, body).await
}

/// Removes a bridge of the API with the members and entries that the API gave it.
#[utoipa::path(delete, path = "/v1/bridges/{bridge}", params(("bridge" = String, Path), ChangeParams),
    responses((status = 200, body = Outcome), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn delete_bridge(
    State(context): State<Context>,
    Path(bridge): Path<String>,
    Params(params): Params<ChangeParams>,
) -> ApiResult<Json<Outcome>> {
    delete(&context, ObjectKey::Bridge(request::bridge_name(&bridge)?), params).await
}

/// Makes a port a member of a bridge, or changes how it is one. The body has the fields of `[bridge.NAME.port.PORT]`.
#[utoipa::path(put, path = "/v1/bridges/{bridge}/ports/{port}",
    params(("bridge" = String, Path), ("port" = String, Path), ChangeParams), request_body = serde_json::Value,
    responses((status = 200, body = Outcome), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_member(
    State(context): State<Context>,
    Path((bridge, port)): Path<(String, String)>,
    Params(params): Params<ChangeParams>,
    body: Body,
) -> ApiResult<Json<Outcome>> {
    let object = ObjectKey::Member(request::bridge_name(&bridge)?, request::port_name(&port)?);
    put(&context, object, params, body).await
}

/// Takes a port out of a bridge.
#[utoipa::path(delete, path = "/v1/bridges/{bridge}/ports/{port}",
    params(("bridge" = String, Path), ("port" = String, Path), ChangeParams),
    responses((status = 200, body = Outcome), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn delete_member(
    State(context): State<Context>,
    Path((bridge, port)): Path<(String, String)>,
    Params(params): Params<ChangeParams>,
) -> ApiResult<Json<Outcome>> {
    let object = ObjectKey::Member(request::bridge_name(&bridge)?, request::port_name(&port)?);
    delete(&context, object, params).await
}

/// Makes or moves a static entry. The body is `{"port": "NAME"}`.
#[utoipa::path(put, path = "/v1/bridges/{bridge}/static/{vlan}/{mac}",
    params(("bridge" = String, Path), ("vlan" = u16, Path), ("mac" = String, Path), ChangeParams),
    request_body = serde_json::Value,
    responses((status = 200, body = Outcome), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_static(
    State(context): State<Context>,
    Path((bridge, vlan, mac)): Path<(String, String, String)>,
    Params(params): Params<ChangeParams>,
    body: Body,
) -> ApiResult<Json<Outcome>> {
    let object = ObjectKey::Static(request::bridge_name(&bridge)?, request::static_key(&vlan, &mac)?);
    put(&context, object, params, body).await
}

/// Removes a static entry.
#[utoipa::path(delete, path = "/v1/bridges/{bridge}/static/{vlan}/{mac}",
    params(("bridge" = String, Path), ("vlan" = u16, Path), ("mac" = String, Path), ChangeParams),
    responses((status = 200, body = Outcome), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn delete_static(
    State(context): State<Context>,
    Path((bridge, vlan, mac)): Path<(String, String, String)>,
    Params(params): Params<ChangeParams>,
) -> ApiResult<Json<Outcome>> {
    let object = ObjectKey::Static(request::bridge_name(&bridge)?, request::static_key(&vlan, &mac)?);
    delete(&context, object, params).await
}
