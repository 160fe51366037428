//! Bridges that go by OpenFlow's rules: rules, groups, meters and what is cached of them. Controllers and `ovs-ofctl` change them.

use axum::Json;
use axum::response::Response;
use model::{CachesState, FlowQuery, FlowRuleState, GroupState, MegaflowState, MeterState};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Context;
use super::read::{ask, list};
use super::request::Params;
use crate::ErrorBody;
use crate::error::ApiResult;

/// Rules, groups, meters or cached flows in one answer unless more are asked for.
const SOME: usize = 1000;
/// Most of them in one answer.
const MOST: usize = 100_000;

/// Which rules are asked for.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RuleParams {
    /// Of this bridge.
    bridge: Option<String>,
    /// Of this table.
    table: Option<u8>,
    /// So many at most: 1000 unless told, and never more than 100000.
    limit: Option<usize>,
}

/// Which groups, meters or cached flows are asked for.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BridgeParams {
    /// Of this bridge.
    bridge: Option<String>,
    /// So many at most: 1000 unless told, and never more than 100000.
    limit: Option<usize>,
}

fn query(bridge: Option<String>, table: Option<u8>, limit: Option<usize>) -> FlowQuery {
    FlowQuery { bridge, table, limit: limit.unwrap_or(SOME).min(MOST), ..FlowQuery::default() }
}

/// Rules by bridge, table and falling priority.
#[utoipa::path(get, path = "/v1/flows", security((), ("token" = ["read"])), params(RuleParams),
    responses((status = 200, body = Vec<FlowRuleState>), (status = 404, body = ErrorBody)))]
pub(super) async fn flows(context: Context, Params(params): Params<RuleParams>) -> ApiResult<Response> {
    let query = query(params.bridge, params.table, params.limit);
    list(&context, query.limit, move |plane| plane.flow_rules(&query)).await
}

/// Groups by bridge and number.
#[utoipa::path(get, path = "/v1/groups", security((), ("token" = ["read"])), params(BridgeParams),
    responses((status = 200, body = Vec<GroupState>), (status = 404, body = ErrorBody)))]
pub(super) async fn groups(context: Context, Params(params): Params<BridgeParams>) -> ApiResult<Response> {
    let query = query(params.bridge, None, params.limit);
    list(&context, query.limit, move |plane| plane.groups(&query)).await
}

/// Meters by bridge and number.
#[utoipa::path(get, path = "/v1/meters", security((), ("token" = ["read"])), params(BridgeParams),
    responses((status = 200, body = Vec<MeterState>), (status = 404, body = ErrorBody)))]
pub(super) async fn meters(context: Context, Params(params): Params<BridgeParams>) -> ApiResult<Response> {
    let query = query(params.bridge, None, params.limit);
    list(&context, query.limit, move |plane| plane.meters(&query)).await
}

/// Flows that workers have cached.
#[utoipa::path(get, path = "/v1/megaflows", security((), ("token" = ["read"])), params(BridgeParams),
    responses((status = 200, body = Vec<MegaflowState>), (status = 404, body = ErrorBody)))]
pub(super) async fn megaflows(context: Context, Params(params): Params<BridgeParams>) -> ApiResult<Response> {
    let query = query(params.bridge, None, params.limit);
    list(&context, query.limit, move |plane| plane.megaflows(&query)).await
}

/// What is cached of the tables: hits by tier, the decider's work, memory by consumer.
#[utoipa::path(get, path = "/v1/caches", security((), ("token" = ["read"])), responses((status = 200, body = CachesState)))]
pub(super) async fn caches(context: Context) -> ApiResult<Json<CachesState>> {
    ask(&context, |plane| plane.caches()).await.map(Json)
}
