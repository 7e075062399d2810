//! The server's own error responses, in the format of the client's dialect.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;

use super::chat_memory::ChatDialect;
use crate::access::AdmissionError;
use crate::dashboard;
use crate::permissions::{AccessDenied, Permission, Permissions};
use crate::spaces::MAX_USER_BYTES;

/// The OAuth error code of a token that lacks a scope.
const INSUFFICIENT_SCOPE: &str = "insufficient_scope";

/// An error response: what is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpError {
    status: StatusCode,
    code: &'static str,
    said: String,
    /// The missing scope.
    needed: Option<Permission>,
    /// Seconds until a retry may succeed.
    again: Option<u64>,
}

impl HttpError {
    /// Creates an error; `code` is for programs.
    pub fn new(status: StatusCode, code: &'static str, said: impl Into<String>) -> Self {
        Self { status, code, said: said.into(), needed: None, again: None }
    }

    /// The token lacks a permission.
    pub fn insufficient_scope(held: Permissions, needed: Permission) -> Self {
        let held = match held.names().as_slice() {
            ["read"] => "only read".to_owned(),
            words => words.join(", "),
        };
        let said =
            format!("this token may {held}; the request needs the scope {}", needed.as_str());
        Self { needed: Some(needed), ..Self::new(StatusCode::FORBIDDEN, INSUFFICIENT_SCOPE, said) }
    }

    /// The error for a denied operation.
    pub fn from_denied(denied: &AccessDenied) -> Self {
        match denied {
            AccessDenied::Unknown => {
                Self::new(StatusCode::UNAUTHORIZED, "invalid_api_key", "send a valid token")
            }
            AccessDenied::TooLittle { held, needed } => Self::insufficient_scope(*held, *needed),
            AccessDenied::Bound => {
                let said =
                    "this token is bound to one space, and the request concerns the whole server";
                Self::new(StatusCode::FORBIDDEN, "bound_to_a_space", said)
            }
            AccessDenied::NoName => {
                let said = format!(
                    "a user name must be 1 to {MAX_USER_BYTES} bytes of UTF-8 without control characters"
                );
                Self::new(StatusCode::BAD_REQUEST, "usage", said)
            }
            AccessDenied::Undeclared => {
                let said = "no permission is declared for this operation, so no token allows it; GET /api lists the operations";
                Self::new(StatusCode::FORBIDDEN, "undeclared", said)
            }
            AccessDenied::MethodNotAllowed => {
                let said = "method not allowed for this path; GET /api lists the methods";
                Self::new(StatusCode::METHOD_NOT_ALLOWED, "usage", said)
            }
            AccessDenied::NoSuchUser(name) => Self::new(
                StatusCode::NOT_FOUND,
                "not_found",
                crate::api::call::no_such_user(name).to_string(),
            ),
        }
    }

    /// The error for a space that exceeded a quota.
    pub fn from_admission_error(refused: &AdmissionError) -> Self {
        match refused {
            AdmissionError::QuotaExceeded(over) => Self {
                again: over.seconds,
                ..Self::new(StatusCode::TOO_MANY_REQUESTS, "over_limit", refused.to_string())
            },
            AdmissionError::UnknownQuota => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "try_later", refused.to_string())
            }
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The response for a request of a path, in the format of its API.
    pub fn response_for_path(&self, path: &str, dialect: ChatDialect) -> Response {
        let mut response = self.response(dialect);
        if is_api_path(path) {
            *response.body_mut() = api_error(self.status, self.code, &self.said).into_body();
        }
        response
    }

    /// The response in a dialect.
    pub fn response(&self, dialect: ChatDialect) -> Response {
        let body = match dialect {
            ChatDialect::OpenAi => {
                serde_json::json!({ "error": { "message": self.said, "type": self.openai_error_type(), "param": null, "code": self.code } })
            }
            ChatDialect::Anthropic => {
                serde_json::json!({ "type": "error", "error": { "type": self.anthropic_error_type(), "message": self.said } })
            }
        };
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(needed) = self.needed {
            let scope = needed.as_str();
            if let Ok(value) = HeaderValue::from_str(&format!(
                "Bearer error=\"{INSUFFICIENT_SCOPE}\", scope=\"{scope}\""
            )) {
                headers.insert(WWW_AUTHENTICATE, value);
            }
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE
            && matches!(self.code, "too_busy" | "try_later")
        {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(seconds) = self.again {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        response
    }

    fn openai_error_type(&self) -> &'static str {
        match self.status.as_u16() {
            403 => "permission_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn anthropic_error_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            408 | 504 => "timeout_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        }
    }
}

/// An error in the format of the memory API.
pub fn api_error(status: StatusCode, kind: &str, message: &str) -> Response {
    let body = serde_json::json!({ "error": { "kind": kind, "message": message, "status": status.as_u16() } });
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Whether a path belongs to the memory API and not to the chat API.
pub fn is_api_path(path: &str) -> bool {
    path == "/api"
        || path.starts_with("/api/")
        || path.starts_with("/state/")
        || path == crate::mcp::PATH
}

/// The dialect of a request, by its path.
pub fn dialect_of(path: &str, headers: &HeaderMap) -> ChatDialect {
    let messages = path == "/v1/messages" || path.starts_with("/v1/messages/");
    if messages || (path.starts_with("/v1/models") && headers.contains_key("anthropic-version")) {
        ChatDialect::Anthropic
    } else {
        ChatDialect::OpenAi
    }
}

/// The metrics label for a path; there are few, whatever is requested.
pub fn route_label(method: &Method, path: &str) -> &'static str {
    match path {
        "/v1/chat/completions" if method == Method::POST => "chat",
        "/v1/messages" if method == Method::POST => "messages",
        "/v1/messages/count_tokens" => "count_tokens",
        "/livez" | "/readyz" => "health",
        "/metrics" => "metrics",
        crate::mcp::PATH => "mcp",
        _ if path == "/v1/models" || path.starts_with("/v1/models/") => "models",
        _ if path.starts_with("/v1/") => "passed",
        _ if is_api_path(path) => "api",
        _ if dashboard::is_dashboard_path(path) => "dashboard",
        _ => "other",
    }
}
