//! API routes for bridges with OpenFlow, which return flow entries, groups, meters and flow caches. The routes are
//! read-only, because OpenFlow controllers and `ovs-ofctl` change the flow tables.

use axum::Json;
use axum::response::Response;
use model::{CachesState, FlowQuery, FlowRuleState, GroupState, MegaflowState, MeterState};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::Context;
use super::read::{ask, reserved_list};
use super::request::Params;
use crate::error::ApiResult;
use crate::octets::texts_of;
use crate::{ErrorBody, Plane, PlaneError};

/// Default maximum number of objects, such as flow entries, in one response.
const SOME: usize = 1000;
/// Upper bound of the number of objects, such as flow entries, in one response.
const MOST: usize = 100_000;

/// Query parameters for reading OpenFlow flow entries.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RuleParams {
    /// Name of the bridge whose flow entries are returned. Absent: all bridges.
    bridge: Option<String>,
    /// Number of the OpenFlow flow table. Absent: all tables.
    table: Option<u8>,
    /// Maximum number of returned flow entries. Default 1000, at most 100000.
    limit: Option<usize>,
}

/// Query parameters for reading OpenFlow groups, meters or megaflows.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BridgeParams {
    /// Name of the bridge whose objects are returned. Absent: all bridges.
    bridge: Option<String>,
    /// Maximum number of returned objects. Default 1000, at most 100000.
    limit: Option<usize>,
}

fn query(bridge: Option<String>, table: Option<u8>, limit: Option<usize>) -> FlowQuery {
    let limit = limit.unwrap_or(SOME).min(MOST);
    FlowQuery { bridge, table, limit, text_octets: Some(texts_of(limit)), ..FlowQuery::default() }
}

/// Queries the data plane for a list of texts, and returns the list as a JSON response. Before the query, memory is
/// reserved for the texts.
async fn list<T: Serialize>(
    context: &Context,
    limit: usize,
    question: impl FnOnce(&dyn Plane) -> Result<Vec<T>, PlaneError> + Send + 'static,
) -> ApiResult<Response> {
    if let Some(answer) = &context.answer {
        answer.reserve_texts(limit).await?;
    }
    reserved_list(context, question).await
}

/// Returns OpenFlow flow entries, sorted by bridge, table and descending priority.
#[utoipa::path(get, path = "/v1/flows", security((), ("token" = ["read"])), params(RuleParams),
    responses((status = 200, body = Vec<FlowRuleState>), (status = 404, body = ErrorBody)))]
pub(super) async fn flows(context: Context, Params(params): Params<RuleParams>) -> ApiResult<Response> {
    let query = query(params.bridge, params.table, params.limit);
    list(&context, query.limit, move |plane| plane.flow_rules(&query)).await
}

/// Returns OpenFlow groups, sorted by bridge and group number.
#[utoipa::path(get, path = "/v1/groups", security((), ("token" = ["read"])), params(BridgeParams),
    responses((status = 200, body = Vec<GroupState>), (status = 404, body = ErrorBody)))]
pub(super) async fn groups(context: Context, Params(params): Params<BridgeParams>) -> ApiResult<Response> {
    let query = query(params.bridge, None, params.limit);
    list(&context, query.limit, move |plane| plane.groups(&query)).await
}

/// Returns OpenFlow meters, sorted by bridge and meter number.
#[utoipa::path(get, path = "/v1/meters", security((), ("token" = ["read"])), params(BridgeParams),
    responses((status = 200, body = Vec<MeterState>), (status = 404, body = ErrorBody)))]
pub(super) async fn meters(context: Context, Params(params): Params<BridgeParams>) -> ApiResult<Response> {
    let query = query(params.bridge, None, params.limit);
    list(&context, query.limit, move |plane| plane.meters(&query)).await
}

/// Returns the megaflows in the caches of the workers.
#[utoipa::path(get, path = "/v1/megaflows", security((), ("token" = ["read"])), params(BridgeParams),
    responses((status = 200, body = Vec<MegaflowState>), (status = 404, body = ErrorBody)))]
pub(super) async fn megaflows(context: Context, Params(params): Params<BridgeParams>) -> ApiResult<Response> {
    let query = query(params.bridge, None, params.limit);
    list(&context, query.limit, move |plane| plane.megaflows(&query)).await
}

/// Returns flow cache statistics: hits by cache tier, slow path counters, and memory by consumer.
#[utoipa::path(get, path = "/v1/caches", security((), ("token" = ["read"])), responses((status = 200, body = CachesState)))]
pub(super) async fn caches(context: Context) -> ApiResult<Json<CachesState>> {
    ask(&context, |plane| plane.caches()).await.map(Json)
}
