//! Parses a request, checks it against its route, and builds the response.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use axum::body::Bytes;
use axum::http::header::{ETAG, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::natural_date::{self, NaturalDate};
use icecore_domain::sanitize;
use icecore_engine::Memory;
use icecore_engine::converse::Chats;
use jiff::civil::Date;
use serde::Serialize;
use serde_json::value::RawValue;

use super::ApiState;
use super::route::{BodySpec, InputField, RouteSpec, SpaceTarget, ValueType};
use crate::error::{AppError, Exit};
use crate::http::RequestCaller;
use crate::spaces;

/// The header that names an end user.
pub const USER_HEADER: &str = "x-icecore-user";
/// The largest budget, limit or count that is accepted.
pub const MAX_NUMBER: usize = 1_000_000_000;

/// A usage error (HTTP 400).
pub fn usage_error(message: impl Into<String>) -> anyhow::Error {
    AppError::new(Exit::Usage, message).into()
}

/// A request that was checked against its route.
pub struct ApiCall {
    pub api: Arc<ApiState>,
    /// The end user it concerns.
    pub user: Option<String>,
    /// The query parameters.
    pub query: ParsedInput,
    /// The bodies; exactly one, except for routes that accept a list.
    pub bodies: Vec<ParsedInput>,
    /// The raw body, for routes with an open body.
    pub raw: String,
    pub headers: HeaderMap,
    pub caller: RequestCaller,
    path: BTreeMap<String, String>,
    whose: SpaceTarget,
}

/// A request before it is checked.
pub struct RawRequest {
    /// The path parameters.
    pub path: BTreeMap<String, String>,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub caller: RequestCaller,
}

/// A response body, as JSON.
pub struct ApiAnswer {
    text: String,
    cookie: Option<String>,
}

impl ApiAnswer {
    /// Serializes a value.
    pub fn from_value(value: &impl Serialize) -> Result<Self> {
        // Not through a JSON tree: that would sort fields and round large numbers of other
        // programs.
        Ok(Self::from_json(serde_json::to_string(value)?))
    }

    /// Serializes a value under one key.
    pub fn with_key(name: &str, value: &impl Serialize) -> Result<Self> {
        Ok(Self::from_json(format!(
            "{{{}:{}}}",
            serde_json::to_string(name)?,
            serde_json::to_string(value)?
        )))
    }

    /// Uses JSON that is already serialized.
    pub fn from_json(text: String) -> Self {
        Self { text, cookie: None }
    }

    /// Adds a `Set-Cookie` header.
    pub fn with_cookie(self, cookie: String) -> Self {
        Self { cookie: Some(cookie), ..self }
    }

    /// The HTTP response; 304 if the client already has it.
    pub fn into_response(self, has: Option<&HeaderValue>) -> Response {
        let tag = format!("\"{}\"", Hash::of(self.text.as_bytes()).short_hex());
        let is_known = has.is_some_and(|has| has.as_bytes() == tag.as_bytes());
        let mut response = if is_known {
            super::json_response(StatusCode::NOT_MODIFIED, String::new())
        } else {
            super::json_response(StatusCode::OK, self.text)
        };
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            response.headers_mut().insert(ETAG, tag);
        }
        if let Some(cookie) = self.cookie.and_then(|cookie| HeaderValue::from_str(&cookie).ok()) {
            response.headers_mut().insert(SET_COOKIE, cookie);
        }
        response
    }
}

/// Parsed parameters, by field name, as text.
#[derive(Default)]
pub struct ParsedInput(BTreeMap<&'static str, Vec<String>>);

impl ParsedInput {
    /// Parses a query string.
    pub fn from_query(fields: &'static [InputField], query: &str) -> Result<Self> {
        let mut given = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (percent_decode(name)?, percent_decode(value)?);
            let field = find_field(fields, &name, "parameter")?;
            match field.form {
                // An empty text counts as missing.
                ValueType::Text if value.is_empty() => continue,
                _ if value.is_empty() => {
                    return Err(usage_error(format!(
                        "`{}` is empty; give a value or omit it: {}",
                        field.name, field.description
                    )));
                }
                _ => {}
            }
            let value = match field.form {
                ValueType::Yes if ["true", "1", "yes"].contains(&value.as_str()) => {
                    "true".to_owned()
                }
                ValueType::Yes if ["false", "0", "no"].contains(&value.as_str()) => {
                    "false".to_owned()
                }
                ValueType::Yes => {
                    return Err(usage_error(format!(
                        "`{}` must be true or false, got {}",
                        field.name,
                        quote_input(&value)
                    )));
                }
                _ => value,
            };
            given.insert(field, value)?;
        }
        given.check_required(fields)
    }

    /// Parses a JSON object.
    pub fn from_object(fields: &'static [InputField], raw: &str) -> Result<Self> {
        let object: BTreeMap<String, &RawValue> = serde_json::from_str(raw).map_err(|error| {
            usage_error(format!("the body is not a JSON object: {}", json_error_reason(&error)))
        })?;
        let mut given = Self::default();
        for (name, raw) in object {
            let field = find_field(fields, &name, "field")?;
            let raw = raw.get();
            if raw == "null" {
                continue;
            }
            if !field.many {
                given.insert(field, value_as_text(field, raw)?)?;
                continue;
            }
            let list: Vec<&RawValue> = serde_json::from_str(raw).map_err(|_| {
                usage_error(format!("`{}` must be a list, got {}", field.name, quote_input(raw)))
            })?;
            for one in list {
                given.insert(field, value_as_text(field, one.get())?)?;
            }
        }
        given.check_required(fields)
    }

    fn insert(&mut self, field: &InputField, value: String) -> Result<()> {
        let number = value.parse::<usize>().ok();
        if matches!(field.form, ValueType::Number)
            && number.is_none_or(|number| number > MAX_NUMBER)
        {
            return Err(usage_error(format!(
                "`{}` must be a whole number up to {MAX_NUMBER}, got {}",
                field.name,
                quote_input(&value)
            )));
        }
        if let ValueType::Between(least, most) = field.form
            && number.is_none_or(|number| !(least..=most).contains(&number))
        {
            return Err(usage_error(format!(
                "`{}` must be a whole number from {least} to {most}, got {}",
                field.name,
                quote_input(&value)
            )));
        }
        // A required text that is empty is missing.
        if field.required && value.is_empty() && matches!(field.form, ValueType::Text) {
            return Ok(());
        }
        let values = self.0.entry(field.name).or_default();
        if !values.is_empty() && !field.many {
            return Err(usage_error(format!("`{}` was given twice; give it once", field.name)));
        }
        values.push(value);
        Ok(())
    }

    fn check_required(self, fields: &'static [InputField]) -> Result<Self> {
        let missing =
            fields.iter().find(|field| field.required && !self.0.contains_key(field.name));
        match missing {
            Some(field) => {
                Err(usage_error(format!("`{}` is missing: {}", field.name, field.description)))
            }
            None => Ok(self),
        }
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.first().map(String::as_str)
    }

    /// The value of a field, as an owned string.
    pub fn get_owned(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    /// All values of a field.
    pub fn get_all(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Whether a field is true.
    pub fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }

    /// The value of a field as a number.
    pub fn get_number(&self, name: &str) -> Option<usize> {
        self.get(name)?.parse().ok()
    }

    /// The value of a field, parsed.
    pub fn parse_field<T, E: std::fmt::Display>(
        &self,
        name: &str,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>> {
        Ok(self.parse_all(name, read)?.pop())
    }

    /// All values of a field, parsed.
    pub fn parse_all<T, E: std::fmt::Display>(
        &self,
        name: &str,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Vec<T>> {
        self.get_all(name)
            .iter()
            .map(|text| read(text).map_err(|error| usage_error(format!("`{name}`: {error}"))))
            .collect()
    }

    /// A date: 2026-02-20, today, friday, +3d.
    pub fn get_date(&self, name: &str, today: Date) -> Result<Option<Date>> {
        self.parse_field(name, |text| {
            icecore_domain::calendar::parse_day(text, today)
                .ok_or_else(|| format!("{} is not a day; write 2026-02-20, today, tomorrow, yesterday, friday, +3d or -2w", quote_input(text)))
        })
    }

    /// A natural-language time.
    pub fn get_time(&self, name: &str, today: Date) -> Result<Option<NaturalDate>> {
        self.parse_field(name, |text| natural_date::parse(text, today))
    }

    /// A time that is a single day.
    pub fn get_single_day(&self, name: &str, today: Date) -> Result<Option<Date>> {
        let Some(when) = self.get_time(name, today)? else { return Ok(None) };
        let days = when.days();
        if days.first != days.last {
            return Err(usage_error(format!(
                "`{name}`: {} is more than one day",
                quote_input(self.get(name).unwrap_or_default())
            )));
        }
        Ok(Some(days.first))
    }
}

fn find_field(
    fields: &'static [InputField],
    name: &str,
    what: &str,
) -> Result<&'static InputField> {
    fields.iter().find(|field| field.name == name).ok_or_else(|| {
        let names: Vec<String> = fields.iter().map(|field| format!("`{}`", field.name)).collect();
        let there = if names.is_empty() {
            "none is accepted here".to_owned()
        } else {
            format!("there are {}", names.join(", "))
        };
        usage_error(format!("there is no {what} {}; {there}", quote_input(name)))
    })
}

/// A body's value as text.
fn value_as_text(field: &InputField, raw: &str) -> Result<String> {
    let is_text = raw.starts_with('"');
    let unlike = |what: &str| {
        Err(usage_error(format!("`{}` must be {what}, got {}", field.name, quote_input(raw))))
    };
    match field.form {
        ValueType::Json | ValueType::Files => Ok(raw.to_owned()),
        ValueType::Number | ValueType::Between(..) if is_text => unlike("a whole number"),
        ValueType::Number | ValueType::Between(..) => Ok(raw.to_owned()),
        ValueType::Limit if raw.bytes().all(|byte| byte.is_ascii_digit()) => Ok(raw.to_owned()),
        ValueType::Limit if !is_text => unlike("a whole number, `none` or `default`"),
        ValueType::Yes if raw != "true" && raw != "false" => unlike("true or false"),
        ValueType::Yes => Ok(raw.to_owned()),
        _ if !is_text => unlike("a text"),
        _ => serde_json::from_str(raw).map_err(|error| {
            usage_error(format!("`{}`: {}", field.name, json_error_reason(&error)))
        }),
    }
}

/// The reason of a JSON error, with its position.
fn json_error_reason(error: &serde_json::Error) -> String {
    sanitize::one_line(&error.to_string())
}

/// User input, sanitized for an error message.
pub fn quote_input(text: &str) -> String {
    format!("`{}`", icecore_domain::budget::truncate_at_word(&sanitize::one_line(text), 60))
}

/// Percent-decodes a part of a query.
fn percent_decode(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                match (digit(), digit()) {
                    (Some(high), Some(low)) => u8::try_from(high * 16 + low).unwrap_or_default(),
                    _ => {
                        return Err(usage_error(format!(
                            "{} has a `%` without two hexadecimal digits; write %25 for it",
                            quote_input(text)
                        )));
                    }
                }
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| {
        usage_error(format!("{} is not UTF-8 after percent-decoding", quote_input(text)))
    })
}

/// The canonical name of an end user.
pub fn parse_user_name(text: &str) -> Result<String> {
    let name = sanitize::one_line(text.trim());
    if name.is_empty() || name.len() > spaces::MAX_USER_BYTES || text.chars().any(char::is_control)
    {
        return Err(usage_error(format!(
            "a user name must be 1 to {} bytes of UTF-8 without control characters",
            spaces::MAX_USER_BYTES
        )));
    }
    Ok(name)
}

impl ApiCall {
    /// Parses and checks a request.
    pub fn parse(api: Arc<ApiState>, route: &RouteSpec, asked: RawRequest) -> Result<Self> {
        let RawRequest { path, uri, headers, body, caller } = asked;
        let body = body.as_ref();
        let user = match headers.get(USER_HEADER).filter(|value| !value.is_empty()) {
            None => None,
            Some(_) if !route.target.uses_user_header() => {
                return Err(usage_error(
                    "this route concerns the whole server; omit X-Icecore-User",
                ));
            }
            Some(value) => {
                let text = std::str::from_utf8(value.as_bytes())
                    .map_err(|_| usage_error("X-Icecore-User is not UTF-8"))?;
                Some(parse_user_name(text)?)
            }
        };
        let query = ParsedInput::from_query(route.query, uri.query().unwrap_or_default())?;
        let bodies = parse_bodies(route.body, body)?;
        let raw = if matches!(route.body, BodySpec::Open(_)) {
            String::from_utf8_lossy(body).into_owned()
        } else {
            String::new()
        };
        Ok(Self { api, user, query, bodies, raw, headers, caller, path, whose: route.target })
    }

    /// A path parameter.
    pub fn path_param(&self, name: &str) -> &str {
        self.path.get(name).map_or("", String::as_str)
    }

    /// The event in the path.
    pub fn event_id(&self) -> Result<EventId> {
        EventId::parse_lenient(self.path_param("id"))
            .map_err(|error| usage_error(error.to_string()))
    }

    /// The body's fields.
    pub fn body(&self) -> Result<&ParsedInput> {
        self.bodies.first().ok_or_else(|| usage_error("the body is empty"))
    }

    /// Whether the space exists.
    pub async fn has_space(&self) -> Result<bool> {
        self.api.spaces.has_space(self.user.as_deref()).await
    }

    /// Opens the conversations of the space.
    pub async fn open_chats(&self) -> Result<Arc<Chats>> {
        if self.whose != SpaceTarget::TheirsOrNew
            && let Some(user) = self.user.as_deref()
            && !self.has_space().await?
        {
            return Err(no_such_user(user));
        }
        self.api.spaces.chats(self.user.as_deref()).await
    }

    /// Opens the memory of the space.
    pub async fn open_memory(&self) -> Result<Arc<Memory>> {
        Ok(self.open_chats().await?.memory().clone())
    }
}

/// The error that a user has no space.
pub fn no_such_user(user: &str) -> anyhow::Error {
    let message = format!(
        "there is no user {} here; a space is created with a user's first chat or write",
        quote_input(user)
    );
    AppError::new(Exit::NotFound, message).into()
}

fn parse_bodies(wanted: BodySpec, body: &[u8]) -> Result<Vec<ParsedInput>> {
    let text = std::str::from_utf8(body).map_err(|error| {
        usage_error(format!("the body is not UTF-8 at byte {}", error.valid_up_to() + 1))
    })?;
    let text = if text.trim().is_empty() { "{}" } else { text };
    match wanted {
        BodySpec::None => Ok(Vec::new()),
        BodySpec::Open(_) => match serde_json::from_str::<BTreeMap<String, &RawValue>>(text) {
            Ok(_) => Ok(Vec::new()),
            Err(error) => Err(usage_error(format!(
                "the body is not a JSON object: {}",
                json_error_reason(&error)
            ))),
        },
        BodySpec::One(fields) => Ok(vec![ParsedInput::from_object(fields, text)?]),
        BodySpec::OneOrMany(fields) if text.trim_start().starts_with('[') => {
            let list: Vec<&RawValue> = serde_json::from_str(text).map_err(|error| {
                usage_error(format!("the body is not a JSON list: {}", json_error_reason(&error)))
            })?;
            let each = list.iter().enumerate();
            each.map(|(at, one)| {
                ParsedInput::from_object(fields, one.get())
                    .map_err(|error| usage_error(format!("item {} of the list: {error}", at + 1)))
            })
            .collect()
        }
        BodySpec::OneOrMany(fields) => Ok(vec![ParsedInput::from_object(fields, text)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[InputField] = &[
        InputField::text("text", "What").require(),
        InputField::new("limit", ValueType::Number, "How many"),
        InputField::new("all", ValueType::Yes, "All"),
        InputField::text("tag", "Labels").many(),
        InputField::new("parts", ValueType::Json, "Anything"),
    ];

    fn describe_input(input: Result<ParsedInput>) -> String {
        match input {
            Ok(input) => input
                .0
                .iter()
                .map(|(name, values)| format!("{name}={}", values.join("|")))
                .collect::<Vec<_>>()
                .join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_is_wrong_with_a_query_is_said() {
        for (query, expected) in [
            ("text=a%20b+c&tag=x&tag=y&limit=3&all=1", "all=true limit=3 tag=x|y text=a b c"),
            ("text=%C3%A9", "text=\u{e9}"),
            ("text=", "`text` is missing: What"),
            ("", "`text` is missing: What"),
            ("text=a&tag=", "text=a"),
            ("text=a&limit=", "`limit` is empty; give a value or omit it: How many"),
            ("text=a&all=", "`all` is empty; give a value or omit it: All"),
            ("text=a&limit=-1", "`limit` must be a whole number up to 1000000000, got `-1`"),
            (
                "text=a&limit=99999999999999999999",
                "`limit` must be a whole number up to 1000000000, got `99999999999999999999`",
            ),
            ("text=a&text=b", "`text` was given twice; give it once"),
            ("text=a&all=maybe", "`all` must be true or false, got `maybe`"),
            (
                "txt=a",
                "there is no parameter `txt`; there are `text`, `limit`, `all`, `tag`, `parts`",
            ),
            ("text=%zz", "`%zz` has a `%` without two hexadecimal digits; write %25 for it"),
            ("text=%E9", "`%E9` is not UTF-8 after percent-decoding"),
        ] {
            assert_eq!(describe_input(ParsedInput::from_query(FIELDS, query)), expected, "{query}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_body_is_said() {
        for (body, expected) in [
            (
                r#"{"text":"a","limit":3,"all":true,"tag":["x","y"],"parts":{"n":12345678901234567890123}}"#,
                r#"all=true limit=3 parts={"n":12345678901234567890123} tag=x|y text=a"#,
            ),
            (r#"{"text":"a","limit":null}"#, "text=a"),
            (r#"{"text":1}"#, "`text` must be a text, got `1`"),
            (r#"{"text":"a","limit":"3"}"#, "`limit` must be a whole number, got `\"3\"`"),
            (
                r#"{"text":"a","limit":1.5}"#,
                "`limit` must be a whole number up to 1000000000, got `1.5`",
            ),
            (r#"{"text":"a","all":"yes"}"#, "`all` must be true or false, got `\"yes\"`"),
            (r#"{"text":"a","tag":"x"}"#, "`tag` must be a list, got `\"x\"`"),
            (
                r#"{"text":"a","tags":[]}"#,
                "there is no field `tags`; there are `text`, `limit`, `all`, `tag`, `parts`",
            ),
            ("{}", "`text` is missing: What"),
            (r#"{"text":""}"#, "`text` is missing: What"),
            (r#"{"text":null}"#, "`text` is missing: What"),
        ] {
            assert_eq!(describe_input(ParsedInput::from_object(FIELDS, body)), expected, "{body}");
        }
        for body in ["[]", "1", "{", "{\"text\":\"\\ud800\"}"] {
            assert!(ParsedInput::from_object(FIELDS, body).is_err(), "{body}");
        }
    }
}
