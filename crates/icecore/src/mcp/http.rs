//! The way in over HTTP: `POST /mcp`, a request at a time, behind the door that every route stands behind.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::extract::rejection::BytesRejection;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use axum::routing::any;
use axum::{RequestExt as _, http};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;

use super::{PATH, Server};
use crate::http as house;
use crate::rights::{self, Operation, Right};

/// The largest request.
const MOST_BYTES: usize = 4 << 20;

type Service = StreamableHttpService<Server, NeverSessionManager>;

/// The route of this server.
pub fn router(server: Server) -> Router {
    // Who may ask, under which name and from which page, was decided at the door already, by rules that know this server's own
    // settings. No sessions: every request stands for itself, in both eras.
    let settings = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(MOST_BYTES)
        .disable_allowed_hosts();
    let service: Service = StreamableHttpService::new(move || Ok(server.clone()), Arc::new(NeverSessionManager::default()), settings);
    Router::new().route(PATH, any(move |request: Request| answer(service.clone(), request)))
}

/// What a request is for, as far as that decides who may send it. What cannot be read is refused by whoever reads it in full,
/// and the tool itself asks again.
#[derive(Deserialize)]
struct Glance {
    method: String,
    params: Option<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: Option<String>,
}

async fn answer(service: Service, request: Request) -> Response {
    if request.method() != Method::POST {
        return service.handle(request).await.map(Body::new);
    }
    let right = request.extensions().get::<Right>().copied().unwrap_or(Right::Read);
    let (parts, body) = request.into_parts();
    let body: Result<Bytes, BytesRejection> = Request::from_parts(parts.clone(), body).extract().await;
    let body = match body {
        Ok(body) if body.len() <= MOST_BYTES => body,
        Err(rejection) if rejection.status() != StatusCode::PAYLOAD_TOO_LARGE => {
            return house::own_refusal(StatusCode::BAD_REQUEST, "usage", "the body broke off; send it again");
        }
        _ => {
            let said = format!("a request has at most {MOST_BYTES} bytes; send less at once");
            return house::own_refusal(StatusCode::PAYLOAD_TOO_LARGE, "usage", &said);
        }
    };
    if let Ok(Glance { method, params: Some(Named { name: Some(name) }) }) = serde_json::from_slice(&body)
        && method == "tools/call"
        && !rights::allows(right, Operation::Tool(&name))
    {
        return house::too_little(Operation::Tool(&name).needs());
    }
    let request = http::Request::from_parts(parts, Body::from(body));
    service.handle(request).await.map(Body::new)
}
