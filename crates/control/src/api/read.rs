//! API routes that return the state of one port or bridge, and MAC tables. The routes of whole lists are in `lists`.

use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::{BridgeState, FdbEntry, FdbFilter, PortState};
use packet::VlanId;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::Context;
use super::request::Params;
use crate::error::{ApiError, ApiResult};
use crate::octets::LONGEST;
use crate::{ErrorBody, Plane, PlaneError, owners};

/// Maximum number of MAC table entries in one response.
const FDB_LIMIT: usize = 100_000;

/// Calls the function `question`, which queries the data plane, on a thread of the blocking pool, and returns the
/// result.
pub(super) async fn ask<T: Send + 'static>(
    context: &Context,
    question: impl FnOnce(&dyn Plane) -> T + Send + 'static,
) -> ApiResult<T> {
    let plane: Arc<dyn Plane> = context.store.plane().clone();
    Ok(context.blocking(move || question(plane.as_ref())).await?)
}

/// Calls the function `question`, which reads a list from the data plane, and returns the list as a JSON response.
/// First reserves memory for `limit` entries.
pub(super) async fn list<T: Serialize>(
    context: &Context,
    limit: usize,
    question: impl FnOnce(&dyn Plane) -> Result<Vec<T>, PlaneError> + Send + 'static,
) -> ApiResult<Response> {
    if let Some(answer) = &context.answer {
        answer.reserve_list(limit).await?;
    }
    reserved_list(context, question).await
}

/// Calls the function `question`, which reads a list from the data plane, and returns the list as a JSON response. The
/// caller has reserved memory for the list. The list is serialized on the blocking thread.
pub(super) async fn reserved_list<T: Serialize>(
    context: &Context,
    question: impl FnOnce(&dyn Plane) -> Result<Vec<T>, PlaneError> + Send + 'static,
) -> ApiResult<Response> {
    let text = ask(context, move |plane| json(question(plane)?.as_slice())).await??;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// Serializes a value to JSON. Returns an error if the text is longer than the maximum length of a response.
pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> ApiResult<Vec<u8>> {
    let mut text = Bounded::default();
    serde_json::to_writer(&mut text, value).map_err(|_| too_long())?;
    Ok(text.0)
}

/// Returns the error for a response that is longer than the maximum length.
pub(super) fn too_long() -> ApiError {
    let cause = format!("the answer would take more than {} MiB", LONGEST >> 20);
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "query.limit", cause, "ask for fewer by `limit`")
}

/// Buffer for the JSON text of a response. A write beyond [`LONGEST`] octets fails.
#[derive(Default)]
pub(super) struct Bounded(pub Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, more: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + more.len() > LONGEST {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the state of one port.
#[utoipa::path(get, path = "/v1/ports/{port}", security((), ("token" = ["read"])), params(("port" = String, Path)),
    responses((status = 200, body = PortState), (status = 404, body = ErrorBody)))]
pub(super) async fn port(context: Context, Path(name): Path<String>) -> ApiResult<Json<PortState>> {
    let ports = ask(&context, |plane| plane.ports()).await?;
    let port = owners::ports(ports, &context.store.merged()).into_iter().find(|port| port.name == name);
    port.map(Json).ok_or_else(|| no_such("port", &name))
}

pub(super) fn no_such(what: &str, name: &str) -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        format!("{what}.{name}"),
        format!("there is no such {what}"),
        format!("look at GET /v1/{what}s for those that exist"),
    )
}

/// Returns the state of one bridge.
#[utoipa::path(get, path = "/v1/bridges/{bridge}", security((), ("token" = ["read"])), params(("bridge" = String, Path)),
    responses((status = 200, body = BridgeState), (status = 404, body = ErrorBody)))]
pub(super) async fn bridge(context: Context, Path(name): Path<String>) -> ApiResult<Json<BridgeState>> {
    let bridges = ask(&context, |plane| plane.bridges()).await?;
    let bridge =
        owners::bridges(bridges, &context.store.merged()).into_iter().find(|bridge| bridge.name == name);
    bridge.map(Json).ok_or_else(|| no_such("bridge", &name))
}

/// Query parameters that select MAC table entries.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct FdbParams {
    /// Name of the bridge of the entries. Absent: all bridges.
    bridge: Option<String>,
    /// Name of the port of the entries. Absent: all ports.
    port: Option<String>,
    /// VLAN of the entries. Absent: all VLANs.
    vlan: Option<u16>,
    /// MAC address of the entries. Absent: all addresses.
    mac: Option<String>,
    /// Maximum number of MAC table entries in the response.
    limit: Option<usize>,
}

impl FdbParams {
    pub fn filter(self) -> ApiResult<FdbFilter> {
        let refused = |name: &str, cause: String| {
            ApiError::new(
                StatusCode::BAD_REQUEST,
                format!("query.{name}"),
                cause,
                "correct it or leave it out",
            )
        };
        let vlan = self
            .vlan
            .map(|vid| VlanId::new(vid).ok_or_else(|| refused("vlan", format!("there is no VLAN {vid}"))));
        let mac =
            self.mac.map(|mac| mac.parse().map_err(|error| refused("mac", format!("{mac:?}: {error}"))));
        let limit = Some(self.limit.unwrap_or(FDB_LIMIT).min(FDB_LIMIT));
        Ok(FdbFilter {
            bridge: self.bridge,
            port: self.port,
            vlan: vlan.transpose()?,
            mac: mac.transpose()?,
            limit,
        })
    }
}

/// Returns the MAC table entries of bridges, learned and static.
#[utoipa::path(get, path = "/v1/fdb", security((), ("token" = ["read"])), params(FdbParams),
    responses((status = 200, body = Vec<FdbEntry>), (status = 400, body = ErrorBody)))]
pub(super) async fn fdb(context: Context, Params(params): Params<FdbParams>) -> ApiResult<Response> {
    let filter = params.filter()?;
    let limit = filter.limit.unwrap_or(FDB_LIMIT);
    let question = move |plane: &dyn Plane| {
        let mut entries = plane.fdb(&filter);
        entries.retain(|entry| filter.matches(entry));
        entries.truncate(limit);
        Ok(entries)
    };
    list(&context, limit, question).await
}

/// Returns 200 if the control plane answers requests.
#[utoipa::path(get, path = "/healthz", security((), ("token" = ["read"])), responses((status = 200, body = String)))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}
