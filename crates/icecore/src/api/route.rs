//! Routes as data: parameters, permission, space and handler. The router, the permission check, the
//! OpenAPI document and the HTML page are all built from the same table, so they cannot disagree.

use std::pin::Pin;

use anyhow::Result;
use axum::http::Method;
use serde_json::{Value, json};

use super::call::{ApiAnswer, ApiCall, MAX_NUMBER};
use crate::permissions::Permission;

/// The type of a value.
#[derive(Clone, Copy)]
pub enum ValueType {
    Text,
    /// A text of this form.
    Shaped(&'static str),
    Word(fn() -> Vec<&'static str>),
    /// A non-negative integer.
    Number,
    /// An integer between these two.
    Between(usize, usize),
    Yes,
    /// A limit: an integer, `none` or `default`.
    Limit,
    /// The id of an event.
    Id,
    /// A date: 2026-02-20, today, friday, +3d.
    Day,
    /// A natural-language time: yesterday, 2026-W07, last month.
    When,
    /// A timestamp with its offset.
    Moment,
    Json,
    /// Files with path, text and modification time.
    Files,
}

impl ValueType {
    /// The JSON schema of the type.
    pub fn schema(self) -> Value {
        match self {
            Self::Text => json!({ "type": "string" }),
            Self::Shaped(pattern) => json!({ "type": "string", "pattern": pattern }),
            Self::Word(words) => json!({ "type": "string", "enum": words() }),
            Self::Number => json!({ "type": "integer", "minimum": 0, "maximum": MAX_NUMBER }),
            Self::Between(least, most) => {
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
            Self::Yes => json!({ "type": "boolean" }),
            Self::Limit => {
                json!({ "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "minLength": 1 }] })
            }
            Self::Id => {
                json!({ "type": "string", "minLength": 1, "examples": ["EVT-20260213-001"] })
            }
            Self::Day => {
                json!({ "type": "string", "minLength": 1, "examples": ["2026-02-20", "friday", "+3d"] })
            }
            Self::When => {
                json!({ "type": "string", "minLength": 1, "examples": ["yesterday", "2026-W07", "last month"] })
            }
            Self::Moment => json!({ "type": "string", "format": "date-time" }),
            Self::Json => json!({}),
            Self::Files => json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string", "description": "The path in the folder, separated by /" },
                    "text": { "type": "string", "description": "The content" },
                    "modified": { "type": "string", "format": "date-time", "description": "The modification time" },
                },
                "required": ["path", "text"],
                "additionalProperties": false,
            }),
        }
    }
}

/// A scope.
pub const SCOPE_TYPE: ValueType =
    ValueType::Shaped("^(?:everywhere|(?:project|conversation):.*\\S.*)$");

/// The form of a period.
pub const PERIOD_PATTERN: &str =
    r"^[0-9]{4}(?:-W[0-9]{2}|-[0-9]{2}(?:-[0-9]{2}(?:_session_[0-9]{2,6})?)?)?$";
/// A period: a session, a day, a week, a month or a year.
pub const PERIOD_TYPE: ValueType = ValueType::Shaped(PERIOD_PATTERN);

/// A query parameter, or a field of a body.
#[derive(Clone, Copy)]
pub struct InputField {
    pub name: &'static str,
    pub form: ValueType,
    /// The description.
    pub description: &'static str,
    pub required: bool,
    /// Whether it may be repeated.
    pub many: bool,
}

impl InputField {
    /// An optional field.
    pub const fn new(name: &'static str, form: ValueType, description: &'static str) -> Self {
        Self { name, form, description, required: false, many: false }
    }

    /// An optional text field.
    pub const fn text(name: &'static str, about: &'static str) -> Self {
        Self::new(name, ValueType::Text, about)
    }

    /// Makes the field required.
    pub const fn require(self) -> Self {
        Self { required: true, ..self }
    }

    /// Allows several values.
    pub const fn many(self) -> Self {
        Self { many: true, ..self }
    }

    /// The JSON schema of the field.
    pub fn schema(&self) -> Value {
        let mut schema = self.form.schema();
        if self.required && matches!(self.form, ValueType::Text) {
            schema["minLength"] = 1.into();
        }
        match (self.many, self.required) {
            (true, true) => json!({ "type": "array", "minItems": 1, "items": schema }),
            (true, false) => json!({ "type": "array", "items": schema }),
            (false, _) => schema,
        }
    }
}

/// The body of a request.
#[derive(Clone, Copy)]
pub enum BodySpec {
    None,
    One(&'static [InputField]),
    OneOrMany(&'static [InputField]),
    /// An object written by a model, usually with these fields. Errors in it are returned to the
    /// model as a result, not as an HTTP error.
    Open(&'static [InputField]),
}

impl BodySpec {
    /// The fields of its objects.
    pub fn fields(self) -> &'static [InputField] {
        match self {
            Self::None => &[],
            Self::One(fields) | Self::OneOrMany(fields) | Self::Open(fields) => fields,
        }
    }
}

/// Whose memory a route uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceTarget {
    /// The user in `X-Icecore-User`, who must have a space.
    Theirs,
    /// The same, but a missing space is created.
    TheirsOrNew,
    /// The end user whom the path names as `{name}`.
    Named,
    /// The whole server; no user may be named.
    Everybodys,
    /// No memory: it concerns the caller.
    Callers,
}

impl SpaceTarget {
    /// Whether `X-Icecore-User` names the user.
    pub fn uses_user_header(self) -> bool {
        matches!(self, Self::Theirs | Self::TheirsOrNew)
    }
}

/// The permission to read memory.
pub const READ: Option<Permission> = Some(Permission::Read);
/// The permission to change memory.
pub const WRITE: Option<Permission> = Some(Permission::Write);
/// The permission to manage tokens, spaces and limits.
pub const ADMIN: Option<Permission> = Some(Permission::Admin);
/// No permission: every authenticated caller is allowed.
pub const AUTHENTICATED: Option<Permission> = None;

/// A running handler, on the thread it was started on.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Result<ApiAnswer>>>>;

/// A route.
#[derive(Clone, Copy)]
pub struct RouteSpec {
    pub method: &'static Method,
    /// The required permission. There is no default: a route without one does not compile.
    pub needs: Option<Permission>,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// The tag in the OpenAPI document.
    pub group: &'static str,
    /// The summary, one line.
    pub summary: &'static str,
    pub query: &'static [InputField],
    pub body: BodySpec,
    pub target: SpaceTarget,
    /// The name of the response schema.
    pub reply: &'static str,
    /// An example target and body.
    pub example: (&'static str, Option<&'static str>),
    /// The handler.
    pub handler: fn(ApiCall) -> HandlerFuture,
}

impl RouteSpec {
    /// A route that reads.
    pub const fn get(
        needs: Option<Permission>,
        path: &'static str,
        group: &'static str,
        summary: &'static str,
        reply: &'static str,
        handler: fn(ApiCall) -> HandlerFuture,
    ) -> Self {
        let (query, body, target, example) =
            (&[] as &[InputField], BodySpec::None, SpaceTarget::Theirs, (path, None));
        Self {
            method: &Method::GET,
            needs,
            path,
            group,
            summary,
            query,
            body,
            target,
            reply,
            example,
            handler,
        }
    }

    /// A route that changes something.
    pub const fn post(
        needs: Option<Permission>,
        path: &'static str,
        group: &'static str,
        about: &'static str,
        reply: &'static str,
        does: fn(ApiCall) -> HandlerFuture,
    ) -> Self {
        Self { method: &Method::POST, ..Self::get(needs, path, group, about, reply, does) }
    }

    /// A route that deletes something.
    pub const fn delete(
        needs: Option<Permission>,
        path: &'static str,
        group: &'static str,
        about: &'static str,
        reply: &'static str,
        does: fn(ApiCall) -> HandlerFuture,
    ) -> Self {
        Self { method: &Method::DELETE, ..Self::get(needs, path, group, about, reply, does) }
    }

    /// Sets the query parameters.
    pub const fn query(self, query: &'static [InputField]) -> Self {
        Self { query, ..self }
    }

    /// Sets the body.
    pub const fn body(self, body: BodySpec) -> Self {
        Self { body, ..self }
    }

    /// Sets whose memory it uses.
    pub const fn space(self, whose: SpaceTarget) -> Self {
        Self { target: whose, ..self }
    }

    /// Sets the example.
    pub const fn example(self, target: &'static str, body: Option<&'static str>) -> Self {
        Self { example: (target, body), ..self }
    }

    /// The names of the path parameters.
    pub fn path_params(&self) -> Vec<&'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect()
    }
}

/// The description of a path parameter.
pub fn describe_path_param(path: &str, name: &str) -> &'static str {
    match name {
        "id" => "The event, e.g. EVT-20260213-001 or 20260213-1",
        "kind" => "The kind of page: entities, procedures, principles or insights",
        "slug" => "The page's name: lowercase letters, digits and dashes",
        "snapshot" => "The snapshot, or `now`",
        "date" => "The date of the nightly run, such as 2026-02-13",
        "period" => "The summary: 2026-02-13, 2026-W07, 2026-02, 2026, or a session",
        "token" => "The token, by its id",
        "which" => "The artifact: NAME, NAME@v2 or NAME@turn-3, percent-encoded",
        _ if path.starts_with("/api/users") || path.starts_with("/api/spaces") => {
            "The end user, percent-encoded"
        }
        _ => "The conversation, percent-encoded",
    }
}
