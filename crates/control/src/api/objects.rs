//! API routes that create, replace and delete single objects that the API owns: ports, bridges, bridge members and
//! static MAC table entries. Filters are in `filters`, steering policies in `steering`, routers and their interfaces in
//! `routers`.

use axum::Json;
use axum::body::Body;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::{Change, ObjectKey, Owner, PortName, load_change};

use super::Context;
use super::guard::Done;
use super::request::{self, BODY_LIMIT, ChangeParams, Params};
use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::{Access, ApplyOptions, ErrorBody, Outcome};

pub(super) async fn put(
    context: &Context,
    caller: &Caller,
    object: ObjectKey,
    params: ChangeParams,
    body: Body,
) -> ApiResult<Made> {
    let options = request::options(params.dry_run, params.confirm, Access::of(caller))?;
    let bytes = request::body(body, BODY_LIMIT).await?;
    let change = load_change(&object, request::text(&bytes)?)?;
    make(context, change, params.persist, options).await
}

pub(super) async fn delete(
    context: &Context,
    caller: &Caller,
    object: ObjectKey,
    params: ChangeParams,
) -> ApiResult<Made> {
    let options = request::options(params.dry_run, params.confirm, Access::of(caller))?;
    if let ObjectKey::Port(port) = &object {
        unused(context, port)?;
    }
    make(context, Change::Remove(object), None, options).await
}

async fn make(
    context: &Context,
    change: Change,
    persist: Option<bool>,
    options: ApplyOptions,
) -> ApiResult<Made> {
    let store = context.store.clone();
    let work = async move { store.change(Owner::Api, change, persist, options).await };
    Ok(Made(context.task(&context.quotas.changes, work).await??))
}

/// Returns an error if a bridge or a router still uses the port. A port in use cannot be removed.
fn unused(context: &Context, port: &PortName) -> ApiResult<()> {
    let merged = context.store.merged();
    if merged.owners.get(&ObjectKey::Port(port.clone())) != Some(&Owner::Api) {
        return Ok(());
    }
    let bridges = merged.config.bridges.iter().filter(|(_, bridge)| bridge.ports.contains_key(port));
    let routers = merged.config.routers.iter().filter(|(_, router)| router.ports.contains_key(port));
    let users = bridges
        .map(|(name, _)| {
            (
                ObjectKey::Member(name.clone(), port.clone()),
                format!("bridge {name}"),
                "bridges",
                name.to_string(),
            )
        })
        .chain(routers.map(|(name, _)| {
            (
                ObjectKey::RouterPort(name.clone(), port.clone()),
                format!("router {name}"),
                "routers",
                name.to_string(),
            )
        }));
    let Some((object, user, kind, name)) = users.into_iter().next() else { return Ok(()) };
    let owner = merged.owners.get(&object).copied().unwrap_or_default();
    let cause = format!("it is still a port of {user} (owner: {owner})");
    let fix = match owner {
        Owner::Api => format!("take it out first (DELETE /v1/{kind}/{name}/ports/{port})"),
        _ => format!("take it out of {user} first, where its owner does"),
    };
    Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, format!("port.{port}"), cause, fix))
}

/// Outcome of a configuration change. It becomes the response and a line of the audit log.
pub(super) struct Made(pub Outcome);

impl IntoResponse for Made {
    fn into_response(self) -> Response {
        let done = Done(self.0.summary());
        let mut response = Json(self.0).into_response();
        response.extensions_mut().insert(done);
        response
    }
}

/// Creates or replaces a port that the API owns.
///
/// The body has the fields of `[port.NAME]`.
#[utoipa::path(put, path = "/v1/ports/{port}", security((), ("token" = ["configure"])), params(("port" = String, Path), ChangeParams),
    request_body = serde_json::Value,
    responses((status = 200, body = Outcome), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_port(
    context: Context,
    caller: Caller,
    Path(port): Path<String>,
    Params(params): Params<ChangeParams>,
    body: Body,
) -> ApiResult<Made> {
    put(&context, &caller, ObjectKey::Port(request::port_name(&port)?), params, body).await
}

/// Removes a port that the API owns.
///
/// The port must be removed from its bridge or router first.
#[utoipa::path(delete, path = "/v1/ports/{port}", security((), ("token" = ["configure"])), params(("port" = String, Path), ChangeParams),
    responses((status = 200, body = Outcome), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 422, body = ErrorBody, description = "A bridge or a router still has the port")))]
pub(super) async fn delete_port(
    context: Context,
    caller: Caller,
    Path(port): Path<String>,
    Params(params): Params<ChangeParams>,
) -> ApiResult<Made> {
    delete(&context, &caller, ObjectKey::Port(request::port_name(&port)?), params).await
}

/// Creates a bridge that the API owns, or replaces its settings.
///
/// The body has the fields of `[bridge.NAME]` without members.
#[utoipa::path(put, path = "/v1/bridges/{bridge}", security((), ("token" = ["configure"])), params(("bridge" = String, Path), ChangeParams),
    request_body = serde_json::Value,
    responses((status = 200, body = Outcome), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_bridge(
    context: Context,
    caller: Caller,
    Path(bridge): Path<String>,
    Params(params): Params<ChangeParams>,
    body: Body,
) -> ApiResult<Made> {
    put(&context, &caller, ObjectKey::Bridge(request::bridge_name(&bridge)?), params, body).await
}

/// Removes a bridge that the API owns, with its members and static entries that the API owns.
#[utoipa::path(delete, path = "/v1/bridges/{bridge}", security((), ("token" = ["configure"])), params(("bridge" = String, Path), ChangeParams),
    responses((status = 200, body = Outcome), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn delete_bridge(
    context: Context,
    caller: Caller,
    Path(bridge): Path<String>,
    Params(params): Params<ChangeParams>,
) -> ApiResult<Made> {
    delete(&context, &caller, ObjectKey::Bridge(request::bridge_name(&bridge)?), params).await
}

/// Adds a port to a bridge, or replaces the settings of the port in the bridge.
///
/// The body has the fields of `[bridge.NAME.port.PORT]`.
#[utoipa::path(put, path = "/v1/bridges/{bridge}/ports/{port}", security((), ("token" = ["configure"])),
    params(("bridge" = String, Path), ("port" = String, Path), ChangeParams), request_body = serde_json::Value,
    responses((status = 200, body = Outcome), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_member(
    context: Context,
    caller: Caller,
    Path((bridge, port)): Path<(String, String)>,
    Params(params): Params<ChangeParams>,
    body: Body,
) -> ApiResult<Made> {
    let object = ObjectKey::Member(request::bridge_name(&bridge)?, request::port_name(&port)?);
    put(&context, &caller, object, params, body).await
}

/// Removes a port from a bridge.
#[utoipa::path(delete, path = "/v1/bridges/{bridge}/ports/{port}", security((), ("token" = ["configure"])),
    params(("bridge" = String, Path), ("port" = String, Path), ChangeParams),
    responses((status = 200, body = Outcome), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn delete_member(
    context: Context,
    caller: Caller,
    Path((bridge, port)): Path<(String, String)>,
    Params(params): Params<ChangeParams>,
) -> ApiResult<Made> {
    let object = ObjectKey::Member(request::bridge_name(&bridge)?, request::port_name(&port)?);
    delete(&context, &caller, object, params).await
}

/// Creates a static MAC table entry, or moves it to another port.
///
/// The body is `{"port": "NAME"}`.
#[utoipa::path(put, path = "/v1/bridges/{bridge}/static/{vlan}/{mac}", security((), ("token" = ["configure"])),
    params(("bridge" = String, Path), ("vlan" = u16, Path), ("mac" = String, Path), ChangeParams),
    request_body = serde_json::Value,
    responses((status = 200, body = Outcome), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_static(
    context: Context,
    caller: Caller,
    Path((bridge, vlan, mac)): Path<(String, String, String)>,
    Params(params): Params<ChangeParams>,
    body: Body,
) -> ApiResult<Made> {
    let object = ObjectKey::Static(request::bridge_name(&bridge)?, request::static_key(&vlan, &mac)?);
    put(&context, &caller, object, params, body).await
}

/// Removes a static MAC table entry.
#[utoipa::path(delete, path = "/v1/bridges/{bridge}/static/{vlan}/{mac}", security((), ("token" = ["configure"])),
    params(("bridge" = String, Path), ("vlan" = u16, Path), ("mac" = String, Path), ChangeParams),
    responses((status = 200, body = Outcome), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn delete_static(
    context: Context,
    caller: Caller,
    Path((bridge, vlan, mac)): Path<(String, String, String)>,
    Params(params): Params<ChangeParams>,
) -> ApiResult<Made> {
    let object = ObjectKey::Static(request::bridge_name(&bridge)?, request::static_key(&vlan, &mac)?);
    delete(&context, &caller, object, params).await
}
