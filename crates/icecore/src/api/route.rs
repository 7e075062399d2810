//! Routes as values: what each one takes, whose memory it is about, and what it does. The router,
//! the checks at the door, the document and the page are all made from the same list, so none of
//! them can tell of another API.

use std::pin::Pin;

use anyhow::Result;
use axum::http::Method;
use serde_json::{Value, json};

use super::call::{Answer, Call, MOST};
use crate::rights::Right;

/// What a value looks like.
#[derive(Clone, Copy)]
pub enum Form {
    /// Any text.
    Text,
    /// One of these words.
    Word(fn() -> Vec<&'static str>),
    /// A whole number, not below nought.
    Number,
    /// A whole number between these two.
    Between(usize, usize),
    /// True or false.
    Yes,
    /// How much is allowed: a whole number, or a word.
    Limit,
    /// The id of an event.
    Id,
    /// A day: 2026-02-20, today, friday, +3d.
    Day,
    /// A time as people say it: yesterday, 2026-W07, last month.
    When,
    /// A moment with its offset.
    Moment,
    /// Any JSON.
    Json,
    /// Files: their paths, their texts, when they were last written.
    Files,
}

impl Form {
    /// Its JSON schema.
    pub fn schema(self) -> Value {
        match self {
            Self::Text => json!({ "type": "string" }),
            Self::Word(words) => json!({ "type": "string", "enum": words() }),
            Self::Number => json!({ "type": "integer", "minimum": 0, "maximum": MOST }),
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
                    "path": { "type": "string", "description": "Its path in the folder, parts separated by /" },
                    "text": { "type": "string", "description": "What it holds" },
                    "modified": { "type": "string", "format": "date-time", "description": "When it was last written" },
                },
                "required": ["path", "text"],
                "additionalProperties": false,
            }),
        }
    }
}

/// A parameter of a query, or a field of a body.
#[derive(Clone, Copy)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// What it looks like.
    pub form: Form,
    /// What it is for.
    pub about: &'static str,
    /// Whether it must be there.
    pub required: bool,
    /// Whether there may be several.
    pub many: bool,
}

impl Field {
    /// A field that may be left out.
    pub const fn new(name: &'static str, form: Form, about: &'static str) -> Self {
        Self { name, form, about, required: false, many: false }
    }

    /// Likewise, any text.
    pub const fn text(name: &'static str, about: &'static str) -> Self {
        Self::new(name, Form::Text, about)
    }

    /// It must be there.
    pub const fn must(self) -> Self {
        Self { required: true, ..self }
    }

    /// There may be several.
    pub const fn many(self) -> Self {
        Self { many: true, ..self }
    }

    /// Its JSON schema.
    pub fn schema(&self) -> Value {
        let mut schema = self.form.schema();
        if self.required && matches!(self.form, Form::Text) {
            schema["minLength"] = 1.into();
        }
        match (self.many, self.required) {
            (true, true) => json!({ "type": "array", "minItems": 1, "items": schema }),
            (true, false) => json!({ "type": "array", "items": schema }),
            (false, _) => schema,
        }
    }
}

/// What a route reads from the body of a request.
#[derive(Clone, Copy)]
pub enum Body {
    /// Nothing.
    None,
    /// An object with these fields.
    One(&'static [Field]),
    /// An object with these fields, or a list of such objects.
    OneOrMany(&'static [Field]),
    /// An object that a model wrote, usually with these fields. What is wrong with it is told to
    /// the model, not refused.
    Open(&'static [Field]),
}

impl Body {
    /// The fields of its objects.
    pub fn fields(self) -> &'static [Field] {
        match self {
            Self::None => &[],
            Self::One(fields) | Self::OneOrMany(fields) | Self::Open(fields) => fields,
        }
    }
}

/// Whose memory a route is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// That of the user named by `X-Icecore-User`, who must have a space.
    Theirs,
    /// Likewise; a user who has no space yet gets one.
    TheirsOrNew,
    /// That of the end user whom the path names as `{name}`.
    Named,
    /// All of the server's, so that no user is named.
    Everybodys,
    /// Nobody's: it is about the caller.
    Callers,
}

impl Whose {
    /// Whether `X-Icecore-User` says whose it is.
    pub fn is_by_header(self) -> bool {
        matches!(self, Self::Theirs | Self::TheirsOrNew)
    }
}

/// The right to look at memory.
pub const READ: Option<Right> = Some(Right::Read);
/// The right to change it.
pub const WRITE: Option<Right> = Some(Right::Write);
/// The right to look after tokens, spaces and limits.
pub const ADMIN: Option<Right> = Some(Right::Admin);
/// No right: every caller who is known at all may do it.
pub const KNOWN: Option<Right> = None;

/// What is being done for one request, on the thread it was begun on.
pub type Doing = Pin<Box<dyn Future<Output = Result<Answer>>>>;

/// A route.
#[derive(Clone, Copy)]
pub struct Route {
    /// `GET`, `POST` or `DELETE`.
    pub method: &'static Method,
    /// The right that a caller needs. There is none by default: a route that does not say it does
    /// not compile.
    pub needs: Option<Right>,
    /// Its path, with names in braces for what varies.
    pub path: &'static str,
    /// The heading it stands under.
    pub group: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// The parameters of its query.
    pub query: &'static [Field],
    /// What it reads.
    pub body: Body,
    /// Whose memory it is about.
    pub whose: Whose,
    /// The schema of what it answers.
    pub reply: &'static str,
    /// A target to try it with, and what to send there.
    pub example: (&'static str, Option<&'static str>),
    /// What it does.
    pub does: fn(Call) -> Doing,
}

impl Route {
    /// A route that looks.
    pub const fn get(
        needs: Option<Right>,
        path: &'static str,
        group: &'static str,
        about: &'static str,
        reply: &'static str,
        does: fn(Call) -> Doing,
    ) -> Self {
        let (query, body, whose, example) =
            (&[] as &[Field], Body::None, Whose::Theirs, (path, None));
        Self {
            method: &Method::GET,
            needs,
            path,
            group,
            about,
            query,
            body,
            whose,
            reply,
            example,
            does,
        }
    }

    /// A route that does something.
    pub const fn post(
        needs: Option<Right>,
        path: &'static str,
        group: &'static str,
        about: &'static str,
        reply: &'static str,
        does: fn(Call) -> Doing,
    ) -> Self {
        Self { method: &Method::POST, ..Self::get(needs, path, group, about, reply, does) }
    }

    /// A route that takes something away.
    pub const fn delete(
        needs: Option<Right>,
        path: &'static str,
        group: &'static str,
        about: &'static str,
        reply: &'static str,
        does: fn(Call) -> Doing,
    ) -> Self {
        Self { method: &Method::DELETE, ..Self::get(needs, path, group, about, reply, does) }
    }

    /// With these parameters.
    pub const fn query(self, query: &'static [Field]) -> Self {
        Self { query, ..self }
    }

    /// With this body.
    pub const fn body(self, body: Body) -> Self {
        Self { body, ..self }
    }

    /// About that memory.
    pub const fn of(self, whose: Whose) -> Self {
        Self { whose, ..self }
    }

    /// To be tried like this.
    pub const fn example(self, target: &'static str, body: Option<&'static str>) -> Self {
        Self { example: (target, body), ..self }
    }

    /// The names of what varies in its path.
    pub fn names(&self) -> Vec<&'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect()
    }
}

/// What the names in paths stand for.
pub fn about_name(path: &str, name: &str) -> &'static str {
    match name {
        "id" => "The event, e.g. EVT-20260213-001 or 20260213-1",
        "kind" => "The kind of page: entities, procedures, principles or insights",
        "slug" => "The page's name: small letters, digits and dashes",
        "snapshot" => "The snapshot, or `now`",
        "date" => "The day of the night, such as 2026-02-13",
        "period" => "The summary: 2026-02-13, 2026-W07, 2026-02, 2026, or a session",
        "token" => "The token, by its id",
        "which" => "The artifact: NAME, NAME@v2 or NAME@turn-3, percent-encoded",
        _ if path.starts_with("/api/users") || path.starts_with("/api/spaces") => {
            "The end user, percent-encoded"
        }
        _ => "The conversation, percent-encoded",
    }
}
