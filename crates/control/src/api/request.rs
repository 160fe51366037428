//! Parsing of the queries, bodies and names in API requests. If parsing fails, the error response describes the
//! problem.

use std::str::FromStr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use model::{BridgeName, FilterName, NameError, PortName, RouterName, RuleName, StaticKey, SteeringName};
use packet::{MacAddr, VlanId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::error::{ApiError, ApiResult};
use crate::{Access, ApplyOptions};

/// Maximum length of a request body other than a configuration, in bytes.
pub(super) const BODY_LIMIT: usize = 256 << 10;
/// Maximum time for the reception of a request body.
const BODY_TIME: Duration = Duration::from_secs(10);
/// Longest accepted time in seconds for which a configuration change may wait for its confirmation.
const CONFIRM_LIMIT_S: u64 = 86_400;

/// Query parameters of an API request, parsed into `T`.
pub(super) struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<Self> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Params(query)),
            Err(error) => Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "query",
                error.body_text(),
                "look at GET /openapi.json for the query's names and types",
            )),
        }
    }
}

/// Query parameters that all changes of single configuration objects have.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ChangeParams {
    /// Whether the change is only planned (dry run) and not applied.
    #[serde(default)]
    pub dry_run: bool,
    /// Seconds after which the change is rolled back unless it is confirmed.
    pub confirm: Option<u64>,
    /// Whether the object persists across restarts. If absent, an existing object keeps its setting.
    pub persist: Option<bool>,
}

pub(super) fn options(dry_run: bool, confirm: Option<u64>, access: Access) -> ApiResult<ApplyOptions> {
    match confirm {
        Some(seconds) if !(1..=CONFIRM_LIMIT_S).contains(&seconds) => Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "query.confirm",
            format!("{seconds} is outside of 1..={CONFIRM_LIMIT_S} seconds"),
            "choose a time in which you can look whether all is well, such as 60",
        )),
        _ => Ok(ApplyOptions { dry_run, confirm: confirm.map(Duration::from_secs), force: false, access }),
    }
}

/// Reads a complete request body. Returns an error if the body exceeds `limit` bytes or does not arrive in
/// time.
pub(super) async fn body(body: Body, limit: usize) -> ApiResult<Bytes> {
    let read = tokio::time::timeout(BODY_TIME, axum::body::to_bytes(body, limit)).await;
    match read {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body",
            format!("it is longer than {limit} bytes, or broke off"),
            "send less, and all of it",
        )),
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "body",
            format!("it did not come within {} seconds", BODY_TIME.as_secs()),
            "send it at once",
        )),
    }
}

pub(super) fn text(bytes: &Bytes) -> ApiResult<&str> {
    std::str::from_utf8(bytes).map_err(|error| {
        let cause = format!("byte {} is not part of an UTF-8 text", error.valid_up_to());
        ApiError::new(StatusCode::BAD_REQUEST, "body", cause, "send it as UTF-8")
    })
}

/// Reads a request body and parses it as JSON.
pub(super) async fn json<T: DeserializeOwned>(from: Body) -> ApiResult<T> {
    let bytes = body(from, BODY_LIMIT).await?;
    serde_json::from_slice(&bytes).map_err(|error| {
        let fix = "look at GET /openapi.json for what is expected";
        ApiError::new(StatusCode::BAD_REQUEST, "body", error.to_string(), fix)
    })
}

fn name<T: FromStr<Err = NameError>>(what: &str, text: &str) -> ApiResult<T> {
    text.parse().map_err(|error: NameError| {
        let most = if what == "rule" { 63 } else { 32 };
        ApiError::new(
            StatusCode::BAD_REQUEST,
            format!("{what}.{text}"),
            format!("this cannot be the name of a {what}: {error}"),
            format!("use letters, digits, `_`, `-` and `.`, at most {most}"),
        )
    })
}

pub(super) fn port_name(text: &str) -> ApiResult<PortName> {
    name("port", text)
}

pub(super) fn filter_name(text: &str) -> ApiResult<FilterName> {
    name("filter", text)
}

pub(super) fn rule_name(text: &str) -> ApiResult<RuleName> {
    name("rule", text)
}

pub(super) fn steering_name(text: &str) -> ApiResult<SteeringName> {
    name("steering", text)
}

pub(super) fn bridge_name(text: &str) -> ApiResult<BridgeName> {
    name("bridge", text)
}

pub(super) fn router_name(text: &str) -> ApiResult<RouterName> {
    name("router", text)
}

pub(super) fn static_key(vlan: &str, mac: &str) -> ApiResult<StaticKey> {
    let refused = |cause: String, fix: &str| ApiError::new(StatusCode::BAD_REQUEST, "static", cause, fix);
    let vlan = vlan
        .parse()
        .ok()
        .and_then(VlanId::new)
        .ok_or_else(|| refused(format!("{vlan:?} is not a VLAN within 1..=4094"), "name one"))?;
    let mac: MacAddr =
        mac.parse().map_err(|error| refused(format!("{mac:?}: {error}"), "write it as 02:00:00:00:00:01"))?;
    if mac.is_multicast() || mac.is_zero() {
        return Err(refused(
            format!("{mac} is not a station's address"),
            "use an address whose first octet is even",
        ));
    }
    Ok(StaticKey { vlan, mac })
}
