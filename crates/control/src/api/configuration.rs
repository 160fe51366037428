//! API routes for the configuration as a whole: read, check, apply, confirm.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::{Format, Loaded, Owner, Problem, ProblemReport, load_on};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::guard::Done;
use super::objects::Made;
use super::request::{self, Params};
use super::{Context, read};
use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::quota::Quota;
use crate::{Access, ApplyOptions, ErrorBody, Outcome, PendingReport};

/// Maximum length of a request body with a configuration, in bytes.
const CONFIG_LIMIT: usize = model::LIMIT_BYTES;

/// The running configuration, with the owner of each object.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConfigReport {
    /// Configuration in the grammar of the configuration file.
    #[schema(value_type = Object)]
    pub config: serde_json::Value,
    /// Owner of each object, by object path such as `bridge.br0.port.web1`.
    pub owners: BTreeMap<String, Owner>,
}

/// Query parameters for reading the configuration.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ShowParams {
    /// Format of the response. `toml`: a configuration file that yields an equal configuration when it is loaded.
    /// `json` (default): JSON that also names the owner of each object.
    format: Option<String>,
}

/// Returns the running configuration.
#[utoipa::path(get, path = "/v1/config", security((), ("token" = ["read"])), params(ShowParams),
    responses((status = 200, body = ConfigReport), (status = 400, body = ErrorBody)))]
pub(super) async fn get_config(context: Context, Params(params): Params<ShowParams>) -> ApiResult<Response> {
    if let Some(answer) = &context.answer {
        answer.reserve_list(CONFIG_LIMIT >> 10).await?;
    }
    let (merged, format) = (context.store.merged(), params.format.unwrap_or_else(|| "json".to_owned()));
    match format.as_str() {
        "toml" => {
            let text = context.blocking(move || merged.config.to_toml()).await?;
            Ok(([(header::CONTENT_TYPE, "application/toml")], text).into_response())
        }
        "json" => {
            let write = move || {
                let config = serde_json::to_value(&merged.config).unwrap_or_default();
                let owners = merged.owners.iter();
                let owners = owners.map(|(object, owner)| (object.to_string(), *owner)).collect();
                read::json(&ConfigReport { config, owners })
            };
            let text = context.blocking(write).await??;
            Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
        }
        other => Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "query.format",
            format!("{other:?} is not a format"),
            "use toml or json",
        )),
    }
}

/// Query parameters for applying a configuration.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ApplyParams {
    /// Whether the change is only planned (dry run) and not applied.
    #[serde(default)]
    dry_run: bool,
    /// Seconds after which the change is rolled back unless it is confirmed.
    confirm: Option<u64>,
    /// Whether the configuration is applied even if it removes most objects of the previous configuration file: all of
    /// three or more objects, or more than half of eight or more objects.
    #[serde(default)]
    force: bool,
    /// Name of the configuration file. Messages about problems contain the name.
    file: Option<String>,
}

/// Reads and parses the configuration in a request body. The function takes a permit of `quota` only when the body is
/// complete, so a client that sends slowly occupies only its connection.
async fn load(
    context: &Context,
    quota: &Quota,
    headers: &HeaderMap,
    body: Body,
    file: Option<String>,
) -> ApiResult<Loaded> {
    let json = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let format = if json { Format::Json } else { Format::Toml };
    let bytes = request::body(body, CONFIG_LIMIT).await?;
    let machine = context.store.plane().machine();
    let file: String = file.unwrap_or_else(|| "configuration".to_owned()).chars().take(256).collect();
    let text = request::text(&bytes)?.to_owned();
    let permit = quota.enter(&context.holder).await;
    let parse = move || {
        let loaded = load_on(&text, &file, format, Some(&machine));
        drop(permit);
        loaded
    };
    Ok(context.blocking(parse).await??)
}

/// Replaces all objects of the owner `file` with the objects of a configuration.
///
/// Objects of other owners are unchanged.
#[utoipa::path(put, path = "/v1/config", security((), ("token" = ["configure"])), params(ApplyParams),
    request_body(content((String = "application/toml"), (serde_json::Value = "application/json"))),
    responses((status = 200, body = Outcome), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn put_config(
    context: Context,
    caller: Caller,
    Params(params): Params<ApplyParams>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Made> {
    let options = request::options(params.dry_run, params.confirm, Access::of_file(&caller))?;
    let options = ApplyOptions { force: params.force, ..options };
    let loaded = load(&context, &context.quotas.texts, &headers, body, params.file).await?;
    let (store, config) = (context.store.clone(), loaded.config);
    let apply = async move { store.apply(Owner::File, config, options).await };
    let mut outcome = context.task(&context.quotas.changes, apply).await??;
    // Warnings of the loaded text replace equal warnings of the outcome, because they contain positions.
    let placed: Vec<ProblemReport> = loaded.warnings.iter().map(Problem::report).collect();
    outcome.warnings.retain(|warning| {
        !placed.iter().any(|with| with.object == warning.object && with.cause == warning.cause)
    });
    outcome.warnings.splice(0..0, placed);
    Ok(Made(outcome))
}

/// Checks a configuration and returns all its problems.
///
/// Nothing is changed.
#[utoipa::path(post, path = "/v1/config/check", security((), ("token" = ["read"])), params(ApplyParams),
    request_body(content((String = "application/toml"), (serde_json::Value = "application/json"))),
    responses((status = 200, body = Vec<ProblemReport>, description = "Warnings at most"),
        (status = 422, body = ErrorBody)))]
pub(super) async fn check_config(
    context: Context,
    Params(params): Params<ApplyParams>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<Vec<ProblemReport>>> {
    let loaded = load(&context, &context.quotas.checks, &headers, body, params.file).await?;
    Ok(Json(loaded.warnings.iter().map(Problem::report).collect()))
}

/// Confirms the pending change. The change is then not rolled back.
#[utoipa::path(post, path = "/v1/config/confirm", security((), ("token" = ["configure"])),
    responses((status = 200, body = PendingReport), (status = 409, body = ErrorBody)))]
pub(super) async fn confirm_config(context: Context) -> ApiResult<Response> {
    let store = context.store.clone();
    let confirm = async move { store.confirm().await };
    let kept = context.task(&context.quotas.changes, confirm).await??;
    let report = context.store.pending().await;
    let mut response = Json(report).into_response();
    response.extensions_mut().insert(Done(format!("kept {kept}")));
    Ok(response)
}

/// Returns whether a change is pending, which means that it waits for its confirmation.
#[utoipa::path(get, path = "/v1/config/pending", security((), ("token" = ["read"])), responses((status = 200, body = PendingReport)))]
pub(super) async fn get_pending(context: Context) -> Json<PendingReport> {
    Json(context.store.pending().await)
}

/// Rolls the pending change back immediately.
#[utoipa::path(delete, path = "/v1/config/pending", security((), ("token" = ["configure"])),
    responses((status = 200, body = Outcome), (status = 409, body = ErrorBody)))]
pub(super) async fn delete_pending(context: Context) -> ApiResult<Made> {
    let store = context.store.clone();
    let roll_back = async move { store.roll_back().await };
    Ok(Made(context.task(&context.quotas.changes, roll_back).await??))
}
