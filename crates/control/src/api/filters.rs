//! API routes that read and change filters, single rules of filters and block lists. Block lists change at run time
//! without a change of the configuration.

use axum::Json;
use axum::body::Body;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use model::{BlockRequest, Blocked, FilterState, ObjectKey};
use serde::Deserialize;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::Context;
use super::objects::{Made, delete, put};
use super::read::{ask, no_such};
use super::request::{self, ChangeParams, Params};
use super::watch::{QUEUE, file, permit, words};
use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::{Access, ErrorBody, Outcome, RulePlace, SampleRequest, owners};

/// Longest time in seconds for which a client can block a prefix: one year.
const EXPIRY_LIMIT_S: u64 = 366 * 86_400;
/// Maximum number of bytes that the hook (XDP program) copies from each sampled frame.
const SAMPLE_LENGTH: u32 = 128;

/// Returns the filter with the given name, with the counters of each rule.
#[utoipa::path(get, path = "/v1/filters/{filter}", security((), ("token" = ["read"])), params(("filter" = String, Path)),
    responses((status = 200, body = FilterState), (status = 404, body = ErrorBody)))]
pub(super) async fn filter(context: Context, Path(name): Path<String>) -> ApiResult<Json<FilterState>> {
    let filters = ask(&context, |plane| plane.filters()).await?;
    let filters = owners::filters(filters, &context.store.merged());
    let found = filters.into_iter().find(|filter| filter.name == name);
    found.map(Json).ok_or_else(|| no_such("filter", &name))
}

/// Creates or replaces a filter that the API owns.
///
/// The body has the fields of `[filter.NAME]`.
#[utoipa::path(put, path = "/v1/filters/{filter}", security((), ("token" = ["configure"])), params(("filter" = String, Path), ChangeParams),
    request_body = serde_json::Value,
    responses((status = 200, body = Outcome), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_filter(
    context: Context,
    caller: Caller,
    Path(filter): Path<String>,
    Params(params): Params<ChangeParams>,
    body: Body,
) -> ApiResult<Made> {
    put(&context, &caller, ObjectKey::Filter(request::filter_name(&filter)?), params, body).await
}

/// Removes a filter that the API owns.
#[utoipa::path(delete, path = "/v1/filters/{filter}", security((), ("token" = ["configure"])), params(("filter" = String, Path), ChangeParams),
    responses((status = 200, body = Outcome), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn delete_filter(
    context: Context,
    caller: Caller,
    Path(filter): Path<String>,
    Params(params): Params<ChangeParams>,
) -> ApiResult<Made> {
    delete(&context, &caller, ObjectKey::Filter(request::filter_name(&filter)?), params).await
}

/// Query parameters for adding a rule to a filter.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RuleParams {
    /// Whether the rule is placed in front of all rules, with the highest priority of the existing
    /// rules. The rule in the request body must not contain a priority.
    #[serde(default)]
    first: bool,
    /// Name of a rule. The new rule is placed directly in front of this rule, with the priority of this rule. The rule
    /// in the request body must not contain a priority.
    before: Option<String>,
    /// Name of a rule. The new rule is placed directly after this rule, with the priority of this rule. The rule in the
    /// request body must not contain a priority.
    after: Option<String>,
    /// Whether the change is only planned (dry run) and not applied.
    #[serde(default)]
    dry_run: bool,
    /// Seconds after which the change is rolled back unless it is confirmed.
    confirm: Option<u64>,
    /// Whether the filter persists across restarts. If absent, an existing filter keeps its setting.
    persist: Option<bool>,
}

impl RuleParams {
    fn place(&self) -> ApiResult<RulePlace> {
        match (self.first, &self.before, &self.after) {
            (false, None, None) => Ok(RulePlace::Last),
            (true, None, None) => Ok(RulePlace::First),
            (false, Some(rule), None) => request::rule_name(rule).map(RulePlace::Before),
            (false, None, Some(rule)) => request::rule_name(rule).map(RulePlace::After),
            _ => {
                let (cause, fix) = ("a rule has one place", "give one of `first`, `before` and `after`");
                Err(ApiError::new(StatusCode::BAD_REQUEST, "query", cause, fix))
            }
        }
    }
}

/// Adds a rule to a filter that the API owns, by default after the other rules.
///
/// A filter that does not exist is created. The body has the fields of `[[filter.NAME.rule]]`.
#[utoipa::path(post, path = "/v1/filters/{filter}/rules", security((), ("token" = ["configure"])), params(("filter" = String, Path), RuleParams),
    request_body = serde_json::Value,
    responses((status = 200, body = Outcome), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn add_rule(
    context: Context,
    caller: Caller,
    Path(filter): Path<String>,
    Params(params): Params<RuleParams>,
    body: Body,
) -> ApiResult<Made> {
    let (filter, place) = (request::filter_name(&filter)?, params.place()?);
    let options = request::options(params.dry_run, params.confirm, Access::of(&caller))?;
    let rule: serde_json::Value = request::json(body).await?;
    if place != RulePlace::Last && rule.get("priority").is_some() {
        let (cause, fix) = ("its place says which priority it has", "leave it out, or the place");
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "body.priority", cause, fix));
    }
    let store = context.store.clone();
    let add = async move { store.add_rule(filter, rule, place, params.persist, options).await };
    Ok(Made(context.task(&context.quotas.changes, add).await??))
}

/// Removes a rule from a filter that the API owns.
///
/// The filter is kept, even if it has no rules left.
#[utoipa::path(delete, path = "/v1/filters/{filter}/rules/{rule}", security((), ("token" = ["configure"])),
    params(("filter" = String, Path), ("rule" = String, Path), ChangeParams),
    responses((status = 200, body = Outcome), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn delete_rule(
    context: Context,
    caller: Caller,
    Path((filter, rule)): Path<(String, String)>,
    Params(params): Params<ChangeParams>,
) -> ApiResult<Made> {
    let (filter, rule) = (request::filter_name(&filter)?, request::rule_name(&rule)?);
    let options = request::options(params.dry_run, params.confirm, Access::of(&caller))?;
    let store = context.store.clone();
    let remove = async move { store.remove_rule(filter, rule, params.persist, options).await };
    Ok(Made(context.task(&context.quotas.changes, remove).await??))
}

/// Adds source prefixes to the block list of a filter, or removes them.
///
/// The file of the block list is not changed.
#[utoipa::path(post, path = "/v1/filters/{filter}/block", security((), ("token" = ["configure"])), params(("filter" = String, Path)),
    request_body = BlockRequest,
    responses((status = 200, body = Blocked), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 422, body = ErrorBody)))]
pub(super) async fn block(
    context: Context,
    Path(filter): Path<String>,
    body: Body,
) -> ApiResult<Json<Blocked>> {
    let asked: BlockRequest = request::json(body).await?;
    if asked.unblock && asked.expires_s.is_some() {
        let cause = "what is taken out does not come back by itself";
        return Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "body.expires_s",
            cause,
            "leave it out with `unblock`",
        ));
    }
    if let Some(seconds) = asked.expires_s.filter(|seconds| !(1..=EXPIRY_LIMIT_S).contains(seconds)) {
        let cause = format!("{seconds} is outside of 1..={EXPIRY_LIMIT_S} seconds");
        let fix = "leave it out to block for good";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "body.expires_s", cause, fix));
    }
    Ok(Json(ask(&context, move |plane| plane.block(&filter, &asked)).await??))
}

/// Reads the block list file of a filter again.
#[utoipa::path(post, path = "/v1/filters/{filter}/reload", security((), ("token" = ["configure"])), params(("filter" = String, Path)),
    responses((status = 200, body = Blocked), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 500, body = ErrorBody)))]
pub(super) async fn reload(context: Context, Path(filter): Path<String>) -> ApiResult<Json<Blocked>> {
    Ok(Json(ask(&context, move |plane| plane.reload_blocklist(&filter)).await??))
}

/// Query parameters for reading the samples of a filter.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SampleParams {
    /// Name of the port whose samples are returned. Absent: all ports that apply the filter.
    port: Option<String>,
    /// Filter that frames must match, such as `ip_src=10.0.0.0/8,tcp,dst_port=443`.
    filter: Option<String>,
}

/// Streams the frames that the rules of a filter sample, as an endless pcapng file.
///
/// Each record contains up to 128 bytes of a frame. The comment of a record names the rule, and the drop
/// count is the number of samples that were lost before the frame. Only one client can read the samples of a
/// filter at a time.
#[utoipa::path(get, path = "/v1/filters/{filter}/samples", security((), ("token" = ["configure"])), params(("filter" = String, Path), SampleParams),
    responses((status = 200, body = String, content_type = "application/x-pcapng"), (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 500, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn samples(
    context: Context,
    Path(filter): Path<String>,
    Params(params): Params<SampleParams>,
) -> ApiResult<Response> {
    let permit = permit(&context)?;
    let packets = words(params.filter.as_deref())?;
    let asked = SampleRequest { filter, port: params.port, packets };
    let (to, from) = mpsc::channel(QUEUE);
    ask(&context, move |plane| plane.samples(asked, to)).await??;
    Ok(file(SAMPLE_LENGTH, from, permit))
}
