//! API routes for bridges with OpenFlow, which return flow entries and flow caches. The routes of groups, meters and
//! megaflows are in `lists`. All are read-only, because controllers and `ovs-ofctl` change the tables.

use axum::Json;
use axum::response::Response;
use model::{CachesState, FlowQuery, FlowRuleState};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Context;
use super::lists::entries;
use super::read::{ask, reserved_list};
use super::request::Params;
use crate::ErrorBody;
use crate::error::ApiResult;
use crate::octets::texts_of;

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

/// Returns OpenFlow flow entries, sorted by bridge, table and descending priority.
#[utoipa::path(get, path = "/v1/flows", security((), ("token" = ["read"])), params(RuleParams),
    responses((status = 200, body = Vec<FlowRuleState>), (status = 404, body = ErrorBody)))]
pub(super) async fn flows(context: Context, Params(params): Params<RuleParams>) -> ApiResult<Response> {
    let RuleParams { bridge, table, limit } = params;
    let limit = entries(limit);
    if let Some(answer) = &context.answer {
        answer.reserve_texts(limit).await?;
    }
    let texts = Some(texts_of(limit));
    let query = FlowQuery { bridge, table, limit, text_octets: texts, ..FlowQuery::default() };
    reserved_list(&context, move |plane| plane.flow_rules(&query)).await
}

/// Returns flow cache statistics: hits by cache tier, slow path counters, and memory by consumer.
#[utoipa::path(get, path = "/v1/caches", security((), ("token" = ["read"])), responses((status = 200, body = CachesState)))]
pub(super) async fn caches(context: Context) -> ApiResult<Json<CachesState>> {
    ask(&context, |plane| plane.caches()).await.map(Json)
}
