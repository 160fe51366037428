//! The HTTP API. Resources in JSON are under `/v1`, the API description (OpenAPI) is under `/openapi.json`,
//! and Prometheus metrics are under `/metrics`.
//!
//! Handlers convert requests to types of the `model` crate, and call the [`Store`] or the [`Plane`](crate::Plane),
//! which make all decisions. Every error response is an [`ErrorBody`]. All resources that a client can occupy are
//! limited:
//!
//! - the length of bodies, and the time in which they must arrive;
//! - the number of connections (module `places`);
//! - the memory of unread responses (module `octets`);
//! - threads, changes, configurations and streams, of which each client has a share (module `quota`);
//! - the length of the queue of each stream.

mod configuration;
mod context;
mod filters;
mod flows;
mod guard;
mod hex;
mod hooks;
mod lists;
mod objects;
mod program;
mod read;
mod request;
mod routers;
mod steering;
mod tools;
mod watch;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::uri::{PathAndQuery, Uri};
use axum::middleware::{from_fn_with_state, map_request};
use axum::response::IntoResponse;
use axum::routing::get;
use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::admission::AdmissionGate;
use crate::error::ApiError;
use crate::octets::{self, Octets};
use crate::quota::Quotas;
use crate::{ErrorBody, Store, metrics};

pub use configuration::ConfigReport;
pub(crate) use context::Context;
use context::Shared;
pub(crate) use hex::read as read_hex;
pub use tools::{ExplainRequest, Flushed, UpgradeRequest, Upgraded};

#[derive(OpenApi)]
#[openapi(
    info(title = "Trivium", description = "State and configuration of one Trivium data plane."),
    components(schemas(ErrorBody))
)]
struct Document;

/// Returns the API routes for the listeners, with authorization, audit log and memory limits. The handlers use the
/// state in `store`. `door` is the admission gate.
pub(crate) fn router(store: Arc<Store>, door: AdmissionGate) -> Router {
    let shared = Shared { store, door, quotas: Quotas::default() };
    let (router, document) = described();
    let guard = guard::Guard::of(&document);
    let document = serde_json::to_string_pretty(&document).unwrap_or_default();
    let router = router
        .route("/openapi.json", get(async move || ([("content-type", "application/json")], document)))
        .fallback(async |uri: axum::http::Uri| {
            let cause = format!("there is no `{}`", uri.path());
            ApiError::new(StatusCode::NOT_FOUND, "api", cause, "look at GET /openapi.json for what there is")
        })
        .method_not_allowed_fallback(async |method: axum::http::Method, uri: axum::http::Uri| {
            let cause = format!("`{}` cannot be asked for with {method}", uri.path());
            let fix = "look at GET /openapi.json for how it can";
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "api", cause, fix).into_response()
        })
        .layer(from_fn_with_state(guard, guard::guard))
        .layer(from_fn_with_state(Octets::default(), octets::count))
        .with_state(shared);
    // A layer of a router runs after the router has selected the route. Therefore an outer router must change the
    // paths.
    Router::new().fallback_service(router).layer(map_request(with_present_path))
}

/// Replaces the path `/v1/steers`, which older clients request, by `/v1/steering`. Requests with
/// other paths are unchanged.
async fn with_present_path(mut request: Request) -> Request {
    let uri = request.uri();
    if let Some(rest) =
        uri.path().strip_prefix("/v1/steers").filter(|rest| rest.is_empty() || rest.starts_with('/'))
    {
        let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
        let present = PathAndQuery::try_from(format!("/v1/steering{rest}{query}"));
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = present.ok();
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// Returns all API routes, and the complete API description.
fn described() -> (Router<Shared>, utoipa::openapi::OpenApi) {
    let (router, mut document) = routes().split_for_parts();
    for item in document.paths.paths.values_mut() {
        for operation in
            [&mut item.get, &mut item.put, &mut item.post, &mut item.delete].into_iter().flatten()
        {
            describe_refusals(operation);
        }
    }
    (router, document)
}

/// Adds error responses to the description of an API route. Some errors are possible for every API route, and others
/// only for an API route with a body, a query or a path parameter. Responses that the API route describes itself are
/// kept.
fn describe_refusals(operation: &mut Operation) {
    let mut refusals = vec![
        ("401", "Over TCP: no token of the configuration"),
        ("403", "The client has not the scope that the route needs, which `security` names"),
        ("500", "The machine refused"),
        ("503", "Answers that the client has not read yet take all the memory that they may"),
    ];
    let parameters = operation.parameters.iter().flatten();
    if operation.request_body.is_some() || parameters.clone().count() > 0 {
        refusals.push(("400", "The request is not understood"));
    }
    if parameters.clone().any(|parameter| matches!(parameter.parameter_in, ParameterIn::Path)) {
        refusals.push(("404", "There is no such object"));
    }
    if operation.request_body.is_some() {
        refusals.push(("408", "The body did not come in time"));
        refusals.push(("413", "The body is too long"));
        refusals.push(("422", "The request cannot be done"));
    }
    for (status, description) in refusals {
        operation.responses.responses.entry(status.to_owned()).or_insert_with(|| {
            let content = Content::new(Some(Ref::from_schema_name("ErrorBody")));
            RefOr::T(
                ResponseBuilder::new().description(description).content("application/json", content).build(),
            )
        });
    }
}

/// Returns the general part of the API description, without routes.
fn document() -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token of [daemon.tcp] with the scope that the route names, or one above (read, configure, root); over TCP only, the unix socket needs none."));
    let components = document.components.get_or_insert_default();
    components.security_schemes.insert("token".to_owned(), SecurityScheme::Http(bearer.build()));
    // A client sends no credentials on the Unix socket, and a token over TCP.
    document.security =
        Some(vec![SecurityRequirement::default(), SecurityRequirement::new("token", [""; 0])]);
    document
}

fn routes() -> OpenApiRouter<Shared> {
    lists::add_routes(OpenApiRouter::with_openapi(document()))
        .routes(routes!(read::port, objects::put_port, objects::delete_port))
        .routes(routes!(filters::filter, filters::put_filter, filters::delete_filter))
        .routes(routes!(filters::add_rule))
        .routes(routes!(filters::delete_rule))
        .routes(routes!(filters::block))
        .routes(routes!(filters::reload))
        .routes(routes!(filters::samples))
        .routes(routes!(steering::policy, steering::put_steering, steering::delete_steering))
        .routes(routes!(steering::flows, steering::change_flows))
        .routes(routes!(steering::table, steering::put_table))
        .routes(routes!(hooks::hooks))
        .routes(routes!(hooks::hook))
        .routes(routes!(hooks::dump))
        .routes(routes!(hooks::put_program, hooks::delete_program))
        .routes(routes!(read::bridge, objects::put_bridge, objects::delete_bridge))
        .routes(routes!(objects::put_member, objects::delete_member))
        .routes(routes!(objects::put_static, objects::delete_static))
        .routes(routes!(routers::router, routers::put_router, routers::delete_router))
        .routes(routes!(routers::put_interface, routers::delete_interface))
        .routes(routes!(routers::routes))
        .routes(routes!(routers::why))
        .routes(routes!(routers::drift))
        .routes(routes!(read::fdb))
        .routes(routes!(tools::flush_fdb))
        .routes(routes!(flows::flows))
        .routes(routes!(flows::caches))
        .routes(routes!(configuration::get_config, configuration::put_config))
        .routes(routes!(configuration::check_config))
        .routes(routes!(configuration::confirm_config))
        .routes(routes!(configuration::get_pending, configuration::delete_pending))
        .routes(routes!(tools::explain))
        .routes(routes!(tools::doctor))
        .routes(routes!(tools::get_rss, tools::put_rss))
        .routes(routes!(tools::upgrade))
        .routes(routes!(tools::stop))
        .routes(routes!(watch::events))
        .routes(routes!(watch::trace))
        .routes(routes!(watch::capture))
        .routes(routes!(metrics::metrics))
        .routes(routes!(read::healthz))
}

/// Returns the API description as JSON, for tests and documentation.
pub fn openapi() -> String {
    let (_, document) = described();
    serde_json::to_string_pretty(&document).unwrap_or_default()
}
