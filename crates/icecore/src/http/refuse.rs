//! The server's own error responses, in the format of the client's dialect.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;

use super::mind::Dialect;
use crate::access::NotAdmitted;
use crate::dashboard;
use crate::rights::{Denied, Right, Rights};
use crate::spaces::MAX_USER_BYTES;

/// The OAuth error code of a token that lacks a scope.
const TOO_LITTLE: &str = "insufficient_scope";

/// An error response: what is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    status: StatusCode,
    code: &'static str,
    said: String,
    /// The missing scope.
    needed: Option<Right>,
    /// Seconds until a retry may succeed.
    again: Option<u64>,
}

impl Refusal {
    /// Creates an error; `code` is for programs.
    pub fn new(status: StatusCode, code: &'static str, said: impl Into<String>) -> Self {
        Self { status, code, said: said.into(), needed: None, again: None }
    }

    /// The token lacks a permission.
    pub fn too_little(held: Rights, needed: Right) -> Self {
        let held = match held.words().as_slice() {
            ["read"] => "only read".to_owned(),
            words => words.join(", "),
        };
        let said = format!("this token may {held}; the request needs the scope {}", needed.word());
        Self { needed: Some(needed), ..Self::new(StatusCode::FORBIDDEN, TOO_LITTLE, said) }
    }

    /// The error for a denied operation.
    pub fn of(denied: &Denied) -> Self {
        match denied {
            Denied::Unknown => {
                Self::new(StatusCode::UNAUTHORIZED, "invalid_api_key", "send a valid token")
            }
            Denied::TooLittle { held, needed } => Self::too_little(*held, *needed),
            Denied::Bound => {
                let said =
                    "this token is bound to one space, and the request concerns the whole server";
                Self::new(StatusCode::FORBIDDEN, "bound_to_a_space", said)
            }
            Denied::NoName => {
                let said = format!(
                    "a user name must be 1 to {MAX_USER_BYTES} bytes of UTF-8 without control characters"
                );
                Self::new(StatusCode::BAD_REQUEST, "usage", said)
            }
            Denied::Undeclared => {
                let said = "no permission is declared for this operation, so no token allows it; GET /api lists the operations";
                Self::new(StatusCode::FORBIDDEN, "undeclared", said)
            }
            Denied::MethodNotAllowed => {
                let said = "method not allowed for this path; GET /api lists the methods";
                Self::new(StatusCode::METHOD_NOT_ALLOWED, "usage", said)
            }
            Denied::NoSuchUser(name) => Self::new(
                StatusCode::NOT_FOUND,
                "not_found",
                crate::api::call::no_user(name).to_string(),
            ),
        }
    }

    /// The error for a space that exceeded a quota.
    pub fn not_admitted(refused: &NotAdmitted) -> Self {
        match refused {
            NotAdmitted::Over(over) => Self {
                again: over.seconds,
                ..Self::new(StatusCode::TOO_MANY_REQUESTS, "over_limit", refused.to_string())
            },
            NotAdmitted::UnknownQuota => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "try_later", refused.to_string())
            }
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The response for a request of a path, in the format of its API.
    pub fn answer(&self, path: &str, dialect: Dialect) -> Response {
        let mut response = self.response(dialect);
        if is_own(path) {
            *response.body_mut() = own(self.status, self.code, &self.said).into_body();
        }
        response
    }

    /// The response in a dialect.
    pub fn response(&self, dialect: Dialect) -> Response {
        let body = match dialect {
            Dialect::OpenAi => {
                serde_json::json!({ "error": { "message": self.said, "type": self.openai_kind(), "param": null, "code": self.code } })
            }
            Dialect::Anthropic => {
                serde_json::json!({ "type": "error", "error": { "type": self.anthropic_kind(), "message": self.said } })
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
            let scope = needed.word();
            if let Ok(value) =
                HeaderValue::from_str(&format!("Bearer error=\"{TOO_LITTLE}\", scope=\"{scope}\""))
            {
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

    fn openai_kind(&self) -> &'static str {
        match self.status.as_u16() {
            403 => "permission_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn anthropic_kind(&self) -> &'static str {
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
pub fn own(status: StatusCode, kind: &str, message: &str) -> Response {
    let body = serde_json::json!({ "error": { "kind": kind, "message": message, "status": status.as_u16() } });
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Whether a path belongs to the memory API and not to the chat API.
pub fn is_own(path: &str) -> bool {
    path == "/api"
        || path.starts_with("/api/")
        || path.starts_with("/state/")
        || path == crate::mcp::PATH
}

/// The dialect of a request, by its path.
pub fn dialect(path: &str, headers: &HeaderMap) -> Dialect {
    let messages = path == "/v1/messages" || path.starts_with("/v1/messages/");
    if messages || (path.starts_with("/v1/models") && headers.contains_key("anthropic-version")) {
        Dialect::Anthropic
    } else {
        Dialect::OpenAi
    }
}

/// The metrics label for a path; there are few, whatever is requested.
pub fn route(method: &Method, path: &str) -> &'static str {
    match path {
        "/v1/chat/completions" if method == Method::POST => "chat",
        "/v1/messages" if method == Method::POST => "messages",
        "/v1/messages/count_tokens" => "count_tokens",
        "/livez" | "/readyz" => "health",
        "/metrics" => "metrics",
        crate::mcp::PATH => "mcp",
        _ if path == "/v1/models" || path.starts_with("/v1/models/") => "models",
        _ if path.starts_with("/v1/") => "passed",
        _ if is_own(path) => "api",
        _ if dashboard::is_page(path) => "dashboard",
        _ => "other",
    }
}
