//! The memory API: everything the command line can do, over HTTP.
//!
//! A request is checked against its declared route, handled on a blocking thread, and answered with
//! the JSON that `--json` prints. `route` declares routes, `call` parses requests, `document` and
//! `page` describe them, and the other modules are the handlers.

pub mod access;
pub mod call;
mod capture;
mod commands;
mod conversations;
pub mod document;
mod insights;
mod jobs;
mod ledger;
pub mod live;
mod login;
mod maintenance;
mod memory_tool;
mod overview;
mod packs;
mod page;
mod pages;
pub mod route;
mod timeline;
mod users;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{BytesRejection, RawPathParamsRejection};
use axum::extract::{Extension, RawPathParams};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, IF_NONE_MATCH, REFERRER_POLICY,
    RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, get, on};
use icecore_engine::embed::MiniLm;

use self::call::{ApiCall, RawRequest};
use self::live::LiveUpdates;
use self::route::RouteSpec;
use crate::access::AccessControl;
use crate::bootstrap::LazyEmbedder;
use crate::error;
use crate::http::logins::LoginStore;
use crate::http::{self, LogFn, RequestCaller};
use crate::spaces::{self, SpaceRegistry};

/// The state of the memory API.
pub struct ApiState {
    spaces: Arc<SpaceRegistry>,
    meanings: Arc<LazyEmbedder>,
    logins: Option<Arc<LoginStore>>,
    access: Option<Arc<AccessControl>>,
    log: LogFn,
}

impl ApiState {
    /// The embedding model, if it is available.
    fn embedder(&self) -> Option<&MiniLm> {
        self.meanings.get()
    }
}

/// Every route, built once.
static ROUTES: LazyLock<Vec<RouteSpec>> = LazyLock::new(|| {
    [
        overview::ROUTES,
        ledger::ROUTES,
        capture::ROUTES,
        packs::ROUTES,
        timeline::ROUTES,
        pages::ROUTES,
        insights::ROUTES,
        jobs::ROUTES,
        maintenance::ROUTES,
        conversations::ROUTES,
        memory_tool::ROUTES,
        users::ROUTES,
        access::ROUTES,
        login::ROUTES,
    ]
    .concat()
});

/// Every route.
pub fn routes() -> &'static [RouteSpec] {
    &ROUTES
}

/// The router of the memory API.
pub fn router(
    spaces: Arc<SpaceRegistry>,
    meanings: Arc<LazyEmbedder>,
    logins: Option<Arc<LoginStore>>,
    access: Option<Arc<AccessControl>>,
    live: Arc<LiveUpdates>,
    log: LogFn,
) -> Router {
    let api = Arc::new(ApiState { spaces, meanings, logins, access, log });
    let mut router = Router::new();
    for route in routes() {
        router = router.route(route.path, method_router(&api, *route));
    }
    let described = document::openapi_document(routes()).to_string();
    let (shown, policy) = page::render_page(routes());
    router
        .route(
            live::PATH,
            get(move |uri: Uri, headers: HeaderMap| live::live_response(live, uri, headers)),
        )
        .route(document::PATH, get(move || async move { json_response(StatusCode::OK, described) }))
        .route(page::PATH, get(move || async move { html_response(shown, &policy) }))
}

fn method_router(api: &Arc<ApiState>, route: RouteSpec) -> MethodRouter {
    let (api, filter) =
        (api.clone(), MethodFilter::try_from(route.method.clone()).unwrap_or(MethodFilter::GET));
    on(
        filter,
        move |path: Result<RawPathParams, RawPathParamsRejection>,
              uri: Uri,
              headers: HeaderMap,
              Extension(caller): Extension<RequestCaller>,
              body: Result<Bytes, BytesRejection>| {
            handle(api, route, path, uri, headers, caller, body)
        },
    )
}

async fn handle(
    api: Arc<ApiState>,
    route: RouteSpec,
    path: Result<RawPathParams, RawPathParamsRejection>,
    uri: Uri,
    headers: HeaderMap,
    caller: RequestCaller,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let Ok(path) = path else {
        return http::own_refusal(
            StatusCode::BAD_REQUEST,
            "usage",
            "the percent-decoded path is not UTF-8",
        );
    };
    let path: BTreeMap<String, String> =
        path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let body = match body {
        Ok(body) => body,
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let most = http::ServerLimits::default().body_bytes >> 20;
            let message = format!(
                "the body is too large: at most {most} MiB are allowed; send a smaller one"
            );
            return http::own_refusal(StatusCode::PAYLOAD_TOO_LARGE, "usage", &message);
        }
        Err(_) => {
            return http::own_refusal(
                StatusCode::BAD_REQUEST,
                "usage",
                "the request body ended early; send it again",
            );
        }
    };
    let log = api.log.clone();
    let has = headers.get(IF_NONE_MATCH).filter(|_| *route.method == Method::GET).cloned();
    let work = move || async move {
        let call =
            ApiCall::parse(api.clone(), &route, RawRequest { path, uri, headers, body, caller })?;
        // Hold the space's lock, so that it is not deleted meanwhile.
        let _held = match call.user.as_deref() {
            Some(user) => Some(api.spaces.acquire_shared(Some(user)).await),
            None => None,
        };
        (route.handler)(call).await
    };
    match spaces::run_blocking(work).await {
        Ok(Ok(answer)) => answer.into_response(has.as_ref()),
        Ok(Err(error)) => error_response(&error, &log),
        Err(broken) => {
            log(&format!("the API failed: {broken}"));
            http::own_refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                "failure",
                "internal error; see the server's log",
            )
        }
    }
}

fn error_response(error: &anyhow::Error, log: &LogFn) -> Response {
    let (status, kind, message) = error::http_status_of(error);
    if status.is_server_error() {
        log(&format!("the API failed: {message}"));
    }
    let mut response = http::own_refusal(status, kind, &message);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    }
    response
}

fn build_response(status: StatusCode, kind: &'static str, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn json_response(status: StatusCode, text: String) -> Response {
    build_response(status, "application/json", text)
}

fn html_response(text: String, policy: &str) -> Response {
    let mut response = build_response(StatusCode::OK, "text/html; charset=utf-8", text);
    let headers = response.headers_mut();
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(HeaderName::from_static("x-frame-options"), HeaderValue::from_static("DENY"));
    if let Ok(policy) = HeaderValue::from_str(policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}
