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
use crate::access::{Access, Takes};
use crate::http as house;
use crate::http::Caller;
use crate::rights::{self, Denied, Operation, Right, Rights};

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
    uri: Option<String>,
}

async fn answer(service: Service, request: Request) -> Response {
    if request.method() != Method::POST {
        return service.handle(request).await.map(Body::new);
    }
    let caller = request.extensions().get::<Caller>().cloned();
    let access = request.extensions().get::<Arc<Access>>().cloned();
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
    let mut what = String::new();
    if let Ok(Glance { method, params }) = serde_json::from_slice(&body) {
        let (name, uri) = params.map_or((None, None), |Named { name, uri }| (name, uri));
        if let Some(tool) = name.as_deref().filter(|_| method == "tools/call") {
            let wanted = Operation::Tool(tool);
            let (rights, user) = caller.as_ref().map_or((Rights::NONE, None), |caller| (caller.held.grant.rights, caller.user.as_deref()));
            if let Some(needed) = wanted.needs().filter(|_| !rights::allows(rights, wanted)) {
                return house::denied(&Denied::TooLittle { held: rights, needed });
            }
            if let Some(access) = access.filter(|_| wanted.needs() == Some(Right::Write))
                && let Err(over) = access.has(user, Takes::Room).await
            {
                return house::over(&over);
            }
        }
        what = [Some(method), name, uri].into_iter().flatten().collect::<Vec<_>>().join(" ");
    }
    let request = http::Request::from_parts(parts, Body::from(body));
    let mut response = service.handle(request).await.map(Body::new);
    response.extensions_mut().insert(house::Named { what, user: None });
    response
}
