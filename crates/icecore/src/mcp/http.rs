//! The HTTP transport: `POST /mcp`, one request at a time, behind the same guard as every route.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::extract::rejection::BytesRejection;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use axum::{RequestExt as _, http};
use icecore_domain::json;
use rmcp::RoleServer;
use rmcp::model::{ErrorData, RequestId};
use rmcp::service::TxJsonRpcMessage;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::lines::read_message;
use super::server::{CallDenial, ToolCallReport};
use super::{McpServer, PATH};
use crate::http as app;

/// The largest request.
const MAX_REQUEST_BYTES: usize = 4 << 20;

type McpService = StreamableHttpService<McpServer, NeverSessionManager>;

/// The route of the MCP server.
pub fn router(server: McpServer) -> Router {
    // The guard already checked host, origin and token with this server's settings. No sessions:
    // every request is independent, in both protocol versions.
    let settings = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(MAX_REQUEST_BYTES)
        .disable_allowed_hosts();
    let service: McpService = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(NeverSessionManager::default()),
        settings,
    );
    Router::new().route(PATH, any(move |request: Request| handle_request(service.clone(), request)))
}

/// The parts of a request that the audit log records. Unreadable parts are omitted; the server
/// itself parses the request in full.
#[derive(Deserialize)]
struct RequestSummary<'a> {
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct SubjectParams<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    uri: Option<&'a RawValue>,
}

/// The subject of a request for the audit log: the tool, or the method and what it names.
fn audit_subject(body: &[u8], tool: Option<&str>) -> String {
    if let Some(tool) = tool {
        return format!("tools/call {tool}");
    }
    let Ok(RequestSummary { method, params }) = serde_json::from_slice(body) else {
        return String::new();
    };
    let SubjectParams { name, uri } =
        params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
    let texts = [method, name, uri]
        .into_iter()
        .flatten()
        .filter_map(|raw| serde_json::from_str::<String>(raw.get()).ok());
    texts.collect::<Vec<_>>().join(" ")
}

async fn handle_request(service: McpService, request: Request) -> Response {
    if request.method() != Method::POST {
        return service.handle(request).await.map(Body::new);
    }
    let (mut parts, body) = request.into_parts();
    let body: Result<Bytes, BytesRejection> =
        Request::from_parts(parts.clone(), body).extract().await;
    let body = match body {
        Ok(body) if body.len() <= MAX_REQUEST_BYTES => body,
        Err(rejection) if rejection.status() != StatusCode::PAYLOAD_TOO_LARGE => {
            return app::own_refusal(
                StatusCode::BAD_REQUEST,
                "usage",
                "the request body ended early; send it again",
            );
        }
        _ => {
            let said =
                format!("a request may have at most {MAX_REQUEST_BYTES} bytes; send a smaller one");
            return app::own_refusal(StatusCode::PAYLOAD_TOO_LARGE, "usage", &said);
        }
    };
    let body = replace_invalid_text(body);
    if is_json(&parts)
        && let Err((error, id)) = read_message(&body)
    {
        return parse_error_response(error, id);
    }
    let called = Arc::new(ToolCallReport::default());
    parts.extensions.insert(called.clone());
    let request = http::Request::from_parts(parts, Body::from(body.clone()));
    let answered = service.handle(request).await.map(Body::new);
    let mut response = match called.denial() {
        None => answered,
        Some(CallDenial::Denied(denied)) => app::denied_response(denied),
        Some(CallDenial::NotAdmitted(refused)) => app::quota_response(refused),
    };
    response
        .extensions_mut()
        .insert(app::AuditSubject { what: audit_subject(&body, called.tool()), user: None });
    response
}

/// Replaces invalid UTF-8 and lone surrogates, which `rmcp` would reject, as the stdio transport
/// does.
fn replace_invalid_text(body: Bytes) -> Bytes {
    let text = String::from_utf8_lossy(&body);
    match (json::replace_unpaired(&text), &text) {
        (Cow::Borrowed(_), Cow::Borrowed(_)) => body,
        (mended, _) => mended.into_owned().into(),
    }
}

fn is_json(parts: &http::request::Parts) -> bool {
    parts
        .headers
        .get(http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

/// The response to a body that is not a message.
fn parse_error_response(error: ErrorData, id: Option<RequestId>) -> Response {
    let refusal = TxJsonRpcMessage::<RoleServer>::error(error, id);
    let body = serde_json::to_string(&refusal).unwrap_or_default();
    (StatusCode::BAD_REQUEST, [(http::header::CONTENT_TYPE, "application/json")], body)
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_summarized_as_far_as_it_can_be_read() {
        for (body, tool, told) in [
            (r#"{"method":"tools/list"}"#, None, "tools/list"),
            (
                r#"{"method":"resources/read","params":{"uri":"icecore://x","name":null}}"#,
                None,
                "resources/read icecore://x",
            ),
            (
                r#"{"method":"tools/call","params":{"name":"nothing","uri":5}}"#,
                None,
                "tools/call nothing",
            ),
            (r#"{"method":"tools/call","params":{"name":"a","name":"b"}}"#, None, "tools/call"),
            (r#"{"method":"tools/call","params":[]}"#, None, "tools/call"),
            (
                r#"{"method":"tools/call","params":{"name":"a","name":"b"}}"#,
                Some("remember"),
                "tools/call remember",
            ),
            ("[]", None, ""),
            ("", None, ""),
        ] {
            assert_eq!(audit_subject(body.as_bytes(), tool), told, "{body}");
        }
    }
}
