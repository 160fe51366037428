//! API routes (HTTP) of the lists in the registry ([`LISTS`]), and the descriptions of these routes.

use std::sync::Arc;

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use model::FlowQuery;
use serde::Deserialize;
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, Paths,
};
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{Content, Ref, RefOr, Required, ResponseBuilder, ResponsesBuilder};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use super::Context;
use super::context::Shared;
use super::read::{Bounded, ask, too_long};
use super::request::Params;
use crate::error::{ApiError, ApiResult};
use crate::lists::{Arguments, LISTS, List, Query, Resource};
use crate::octets::texts_of;
use crate::{ErrorBody, Plane};

/// Default maximum number of entries in one response.
const SOME: usize = 1000;
/// Upper bound of the number of entries in one response.
const MOST: usize = 100_000;

/// Query parameters for reading a list of the objects of one bridge or of all bridges.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct BridgeParams {
    /// Name of the bridge. Absent: all bridges.
    bridge: Option<String>,
    /// Maximum number of returned objects. Default 1000, at most 100000.
    limit: Option<usize>,
}

/// Query parameters for reading a list of the objects of a router.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RouterParams {
    /// Maximum number of returned objects. Default 1000, at most 100000.
    limit: Option<usize>,
}

/// Returns the maximum number of entries in one response. `limit` is the number that the client
/// requests.
pub(super) fn entries(limit: Option<usize>) -> usize {
    limit.unwrap_or(SOME).min(MOST)
}

/// Adds the API routes of all lists that have a resource.
pub(super) fn add_routes(router: OpenApiRouter<Shared>) -> OpenApiRouter<Shared> {
    let lists = LISTS.iter().filter_map(|list| Some((list, list.resource?)));
    lists.fold(router, |router, (list, resource)| router.routes(route(list, resource)))
}

/// Returns the API route of a list, with the description of the route.
fn route(list: &'static List, resource: &'static dyn Resource) -> UtoipaMethodRouter<Shared> {
    let (path, parameters, method) = match list.arguments {
        Arguments::None | Arguments::Name(..) | Arguments::Own => {
            let handler = async move |context: Context| whole(&context, resource).await;
            (format!("/v1/{}", list.name), Vec::new(), get(handler))
        }
        Arguments::Bridge => {
            let handler = async move |context: Context, Params(params): Params<BridgeParams>| {
                of_bridges(&context, resource, params).await
            };
            (format!("/v1/{}", list.name), BridgeParams::into_params(|| None), get(handler))
        }
        Arguments::Router => {
            let handler =
                async move |context: Context, router: Path<String>, params: Params<RouterParams>| {
                    of_router(&context, resource, router.0, params.0).await
                };
            let mut parameters = vec![router_parameter()];
            parameters.extend(RouterParams::into_params(|| None));
            (format!("/v1/routers/{{router}}/{}", list.name), parameters, get(handler))
        }
    };
    let mut schemas = Vec::new();
    let operation = describe(list, resource, parameters, &mut schemas);
    let mut paths = Paths::new();
    paths.add_path_operation(path, vec![HttpMethod::Get], operation);
    (schemas, paths, method)
}

/// Describes the operation that reads a list. The schema of the entries and all schemas that it refers to are added to
/// `schemas`.
fn describe(
    list: &List,
    resource: &dyn Resource,
    parameters: Vec<Parameter>,
    schemas: &mut Vec<(String, RefOr<Schema>)>,
) -> Operation {
    let entries = ArrayBuilder::new().items(Ref::from_schema_name(resource.schemas(schemas)));
    let response = |schema: RefOr<Schema>| {
        ResponseBuilder::new().description("").content("application/json", Content::new(Some(schema))).build()
    };
    let mut responses = ResponsesBuilder::new().response("200", response(entries.into()));
    if !parameters.is_empty() {
        responses = responses.response("404", response(Ref::from_schema_name(ErrorBody::name()).into()));
        schemas.push((ErrorBody::name().into_owned(), ErrorBody::schema()));
        ErrorBody::schemas(schemas);
    }
    let security = [SecurityRequirement::default(), SecurityRequirement::new("token", ["read"])];
    let operation = parameters.into_iter().fold(OperationBuilder::new(), OperationBuilder::parameter);
    operation
        .operation_id(Some(list.operation))
        .summary(Some(resource.summary()))
        .securities(Some(security))
        .responses(responses.build())
        .build()
}

/// Returns the API description of the path parameter that names a router.
fn router_parameter() -> Parameter {
    ParameterBuilder::new()
        .name("router")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

/// Answers a request for the whole list. The list's API route has no arguments.
async fn whole(context: &Context, resource: &'static dyn Resource) -> ApiResult<Response> {
    let store = context.store.clone();
    let merged = Some(Arc::new(move || store.merged()) as Arc<_>);
    answer(context, resource, Query { merged, ..Query::default() }).await
}

/// Answers a request for a list of the objects of one bridge or of all bridges. First reserves memory for the maximum
/// number of entries, including the texts in the entries.
async fn of_bridges(
    context: &Context,
    resource: &'static dyn Resource,
    params: BridgeParams,
) -> ApiResult<Response> {
    let limit = entries(params.limit);
    if let Some(answer) = &context.answer {
        answer.reserve_texts(limit).await?;
    }
    let texts = Some(texts_of(limit));
    let flows = FlowQuery { bridge: params.bridge, limit, text_octets: texts, ..FlowQuery::default() };
    answer(context, resource, Query { flows, ..Query::default() }).await
}

/// Answers a request for a list of the objects of a router. First reserves memory for the maximum
/// number of entries.
async fn of_router(
    context: &Context,
    resource: &'static dyn Resource,
    router: String,
    params: RouterParams,
) -> ApiResult<Response> {
    let limit = entries(params.limit);
    if let Some(answer) = &context.answer {
        answer.reserve_list(limit).await?;
    }
    answer(context, resource, Query { router, limit, ..Query::default() }).await
}

/// Reads a list and returns it as a JSON response. The list is serialized on the blocking thread.
async fn answer(context: &Context, resource: &'static dyn Resource, query: Query) -> ApiResult<Response> {
    let read = move |plane: &dyn Plane| {
        let mut text = Bounded::default();
        resource.write(plane, &query, &mut text)?.map_err(|_| too_long())?;
        Ok::<_, ApiError>(text.0)
    };
    let text = ask(context, read).await??;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}
