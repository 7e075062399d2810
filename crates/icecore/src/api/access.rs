//! Tokens, spaces, quotas and the audit log of a store in a database.

use std::sync::Arc;

use anyhow::Result;
use icecore_engine::clock::{Clock as _, SystemClock};
use icecore_store::postgres::{AccessToken, Quota, QuotaLimit};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::call::{ApiAnswer, ApiCall, ParsedInput, no_such_user, parse_user_name, usage_error};
use super::route::{ADMIN, BodySpec, HandlerFuture, InputField, RouteSpec, SpaceTarget, ValueType};
use crate::access::{self, AccessControl, Actor, DatabaseStore, IssuedToken, TokenRequest};
use crate::permissions::Permission;

const GROUP: &str = "Access";
/// The default and the maximum length of a list.
pub const DEFAULT_LIST_LEN: usize = 100;
const MAX_LIST_LEN: usize = 10_000;
/// The default grace period of a rotated token.
pub const DEFAULT_GRACE: &str = "1h";

const SCOPE_TYPE: ValueType =
    ValueType::Word(|| Permission::ALL.iter().map(|right| right.as_str()).collect());
const LIMIT_FIELDS: &[InputField] = &[
    InputField::new(
        "requests_per_minute",
        ValueType::Limit,
        "Requests per minute, for each server process: a number, `none`, or `default` for the store's default",
    ),
    InputField::new(
        "messages_per_day",
        ValueType::Limit,
        "Messages stored per day (UTC): a number, `none` or `default`",
    ),
    InputField::new("bytes", ValueType::Limit, "Bytes of documents: a number, `none` or `default`"),
    InputField::new(
        "model_tokens_per_day",
        ValueType::Limit,
        "Model tokens read and written per day (UTC): a number, `none` or `default`",
    ),
];

/// The routes of access.
pub const ROUTES: &[RouteSpec] = &[
    RouteSpec::get(
        ADMIN,
        "/api/tokens",
        GROUP,
        "List current and former tokens, newest first, without secrets",
        "Tokens",
        list_tokens,
    )
    .space(SpaceTarget::Everybodys)
    .query(&[
        InputField::text("user", "Only tokens bound to this end user's space"),
        InputField::new("limit", ValueType::Between(1, MAX_LIST_LEN), "Maximum number; default 100"),
    ]),
    RouteSpec::post(
        ADMIN,
        "/api/tokens",
        GROUP,
        "Create a token; its secret is returned only in this response",
        "IssuedToken",
        add,
    )
    .space(SpaceTarget::Everybodys)
    .body(BodySpec::One(&[
        InputField::new("scopes", SCOPE_TYPE, "The scopes of the token").many().require(),
        InputField::text("user", "The end user whose space it is bound to; all spaces if omitted"),
        InputField::text("expires", "The lifetime, such as 90d or 12h; until revoked if omitted"),
        InputField::text("label", "A label"),
    ]))
    .example("/api/tokens", Some(r#"{"user":"ann@example.org","scopes":["read","write"],"expires":"90d","label":"her phone"}"#)),
    RouteSpec::post(
        ADMIN,
        "/api/tokens/{token}/rotate",
        GROUP,
        "Replace a token by a new one; the old one stays valid for a grace period",
        "IssuedToken",
        rotate,
    )
    .space(SpaceTarget::Everybodys)
    .body(BodySpec::One(&[InputField::text("grace", "The grace period of the old token, such as 1h; 0 ends it at once; default 1h")]))
    .example("/api/tokens/00c0ffee00c0ffee/rotate", Some(r#"{"grace":"1h"}"#)),
    RouteSpec::delete(ADMIN, "/api/tokens/{token}", GROUP, "Revoke a token; it stops working everywhere within five seconds", "RevokedToken", revoke)
        .space(SpaceTarget::Everybodys)
        .example("/api/tokens/00c0ffee00c0ffee", None),
    RouteSpec::get(ADMIN, "/api/spaces", GROUP, "List the end users that have a space, sorted", "Spaces", list_spaces).space(SpaceTarget::Everybodys).query(&[
        InputField::text("after", "Start after this user"),
        InputField::new("limit", ValueType::Between(1, MAX_LIST_LEN), "Maximum number; default 100"),
    ]),
    RouteSpec::get(ADMIN, "/api/spaces/{name}", GROUP, "Show the usage and limits of a space", "SpaceUsage", show)
        .space(SpaceTarget::Named)
        .example("/api/spaces/ann%40example.org", None),
    RouteSpec::delete(ADMIN, "/api/spaces/{name}", GROUP, "Erase a space with everything in it, including its tokens", "ErasedSpace", erase)
        .space(SpaceTarget::Named)
        .example("/api/spaces/ann%40example.org", None),
    RouteSpec::get(ADMIN, "/api/spaces/{name}/quota", GROUP, "Show the limits set for a space", "SpaceQuota", show_quota)
        .space(SpaceTarget::Named)
        .example("/api/spaces/ann%40example.org/quota", None),
    RouteSpec::post(ADMIN, "/api/spaces/{name}/quota", GROUP, "Set limits of a space; omitted ones stay", "SpaceQuota", set_quota)
        .space(SpaceTarget::Everybodys)
        .body(BodySpec::One(LIMIT_FIELDS))
        .example("/api/spaces/ann%40example.org/quota", Some(r#"{"requests_per_minute":120,"bytes":"none"}"#)),
    RouteSpec::get(ADMIN, "/api/quota", GROUP, "Show the default limits of all spaces", "SpaceQuota", show_quota)
        .space(SpaceTarget::Everybodys),
    RouteSpec::post(ADMIN, "/api/quota", GROUP, "Set the default limits; omitted ones stay", "SpaceQuota", set_quota)
        .space(SpaceTarget::Everybodys)
        .body(BodySpec::One(LIMIT_FIELDS))
        .example("/api/quota", Some(r#"{"messages_per_day":2000}"#)),
    RouteSpec::get(ADMIN, "/api/audit", GROUP, "The audit log: who read and wrote what, newest first, without content", "Audit", list_audit)
        .space(SpaceTarget::Everybodys)
        .query(&[
            InputField::text("user", "Only this end user's space"),
            InputField::text("since", "Only events since this time: 2026-02-13T09:30:00Z, or 12h ago as 12h"),
            InputField::new("limit", ValueType::Between(1, MAX_LIST_LEN), "Maximum number; default 100"),
        ]),
];

fn access_control(call: &ApiCall) -> Result<&Arc<AccessControl>> {
    call.api.access.as_ref().ok_or_else(access::database_required)
}

fn actor(call: &ApiCall) -> Actor {
    Actor {
        token: call.caller.held.grant.id.clone(),
        interface: "api",
        who: String::new(),
        now: SystemClock.now(),
    }
}

fn list_len(input: &ParsedInput) -> i64 {
    i64::try_from(input.get_number("limit").unwrap_or(DEFAULT_LIST_LEN)).unwrap_or(i64::MAX)
}

/// A token as JSON.
pub fn token_json(database: &DatabaseStore, token: &AccessToken, now: Timestamp) -> Value {
    let state = match (token.revoked, token.expires) {
        (Some(_), _) => "revoked",
        (None, Some(end)) if end <= now => "expired",
        _ => "good",
    };
    let moment = |at: Option<Timestamp>| at.map(|at| at.to_string());
    json!({
        "id": token.id, "user": database.user_of(&token.space).ok().flatten(), "label": token.label, "scopes": token.scopes, "state": state, "made": token.created.to_string(),
        "expires": moment(token.expires), "revoked": moment(token.revoked), "used": moment(token.last_used),
    })
}

/// A new token with its secret as JSON.
pub fn issued_token_json(database: &DatabaseStore, made: &IssuedToken, now: Timestamp) -> Value {
    json!({ "secret": made.secret, "token": token_json(database, &made.token, now) })
}

/// Limits as JSON.
pub fn quota_json(quota: &Quota) -> Value {
    let limit = |limit: Option<QuotaLimit>| match limit {
        Some(QuotaLimit::AtMost(most)) => json!(most),
        other => json!(access::format_limit(other)),
    };
    json!({
        "requests_per_minute": limit(quota.requests_per_minute), "messages_per_day": limit(quota.messages_per_day),
        "bytes": limit(quota.bytes), "model_tokens_per_day": limit(quota.model_tokens_per_day),
    })
}

/// The usage and limits of an end user's space.
pub async fn space_json(postgres: &DatabaseStore, user: &str) -> Result<Value> {
    let (user, now) = (parse_user_name(user)?, SystemClock.now());
    let space = postgres.space_name(Some(&user));
    if postgres.database.space_fingerprint(&space).await?.is_none() {
        return Err(no_such_user(&user));
    }
    let standing = postgres.database.quota_usage(&postgres.name, &space).await?;
    let tokens = postgres.database.list_tokens(&postgres.name, Some(&space), i64::MAX).await?;
    let good = tokens
        .iter()
        .filter(|token| token.revoked.is_none() && token.expires.is_none_or(|end| end > now))
        .count();
    Ok(json!({
        "user": user, "bytes": standing.bytes, "messages_today": standing.messages, "model_tokens_today": standing.model_tokens,
        "limits": quota_json(&standing.quota), "tokens": good,
    }))
}

/// The audit log, optionally as of a moment.
pub async fn audit_json(
    postgres: &DatabaseStore,
    user: Option<&str>,
    since: Option<&str>,
    as_of: Option<Timestamp>,
    most: i64,
) -> Result<Vec<Value>> {
    let since = since
        .map(|text| access::parse_since(text, as_of.unwrap_or_else(|| SystemClock.now())))
        .transpose()?;
    let space = user.map(parse_user_name).transpose()?.map(|user| postgres.space_name(Some(&user)));
    // The newest events of that moment are not the newest of now.
    let read = if as_of.is_some() { i64::MAX } else { most };
    let mut noted =
        postgres.database.audit_log(&postgres.name, space.as_deref(), since, read).await?;
    noted.retain(|noted| as_of.is_none_or(|now| noted.event.at <= now));
    noted.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    let deeds = noted.into_iter().map(|noted| {
        let deed = noted.event;
        json!({
            "number": noted.number, "at": deed.at.to_string(), "space": deed.space, "token": deed.token, "door": deed.interface,
            "who": deed.who, "verb": deed.action, "what": deed.target, "status": deed.status,
        })
    });
    Ok(deeds.collect())
}

fn list_tokens(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (home, now) = (access_control(&call)?.store(), SystemClock.now());
        let user = call.query.get("user").map(parse_user_name).transpose()?;
        let space = user.map(|user| home.space_name(Some(&user)));
        let tokens =
            home.database.list_tokens(&home.name, space.as_deref(), list_len(&call.query)).await?;
        ApiAnswer::with_key(
            "tokens",
            &tokens.iter().map(|token| token_json(home, token, now)).collect::<Vec<_>>(),
        )
    })
}

fn add(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (access, given, by) = (access_control(&call)?, call.body()?, actor(&call));
        let wanted = TokenRequest {
            user: given.get_owned("user"),
            rights: given.parse_all("scopes", |word| word.parse::<Permission>())?,
            lasts: given.parse_field("expires", access::parse_duration)?,
            label: given.get_owned("label").unwrap_or_default(),
        };
        ApiAnswer::from_value(&issued_token_json(
            access.store(),
            &access::add_token(access.store(), wanted, &by).await?,
            by.now,
        ))
    })
}

fn rotate(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (access, by) = (access_control(&call)?, actor(&call));
        let grace = access::parse_duration(call.body()?.get("grace").unwrap_or(DEFAULT_GRACE))
            .map_err(|said| usage_error(format!("`grace`: {said}")))?;
        let made =
            access::rotate_token(access.store(), call.path_param("token"), grace, &by).await?;
        access.invalidate_cache();
        ApiAnswer::from_value(&issued_token_json(access.store(), &made, by.now))
    })
}

fn revoke(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let access = access_control(&call)?;
        let token =
            access::revoke_token(access.store(), call.path_param("token"), &actor(&call)).await?;
        access.invalidate_cache();
        ApiAnswer::from_value(&json!({ "id": token.id, "revoked": true }))
    })
}

fn list_spaces(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let most = call.query.get_number("limit").unwrap_or(DEFAULT_LIST_LEN);
        ApiAnswer::with_key(
            "users",
            &access_control(&call)?
                .store()
                .list_users(call.query.get("after").unwrap_or_default(), most)
                .await?,
        )
    })
}

fn show(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::from_value(
            &space_json(access_control(&call)?.store(), call.path_param("name")).await?,
        )
    })
}

fn erase(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        access_control(&call)?;
        ApiAnswer::from_value(&json!({ "user": forget_user(&call).await?, "erased": true }))
    })
}

/// Deletes the space of the end user in the path.
pub async fn forget_user(call: &ApiCall) -> Result<String> {
    let name = parse_user_name(call.path_param("name"))?;
    if !call.api.spaces.forget_user(&name, &actor(call)).await? {
        return Err(no_such_user(&name));
    }
    // The user's tokens were deleted with the space.
    if let Some(access) = &call.api.access {
        access.invalidate_cache();
    }
    Ok(name)
}

/// The end user in the path, if there is one.
fn user_in_path(call: &ApiCall) -> Result<Option<String>> {
    Some(call.path_param("name")).filter(|name| !name.is_empty()).map(parse_user_name).transpose()
}

fn show_quota(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let user = user_in_path(&call)?;
        let quota = access::read_quota(access_control(&call)?.store(), user.as_deref()).await?;
        ApiAnswer::from_value(&json!({ "user": user, "quota": quota_json(&quota) }))
    })
}

fn set_quota(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (access, given, user) = (access_control(&call)?, call.body()?, user_in_path(&call)?);
        let mut quota = access::read_quota(access.store(), user.as_deref()).await?;
        if let Some(limit) =
            given.parse_field("requests_per_minute", access::parse_request_limit)?
        {
            quota.requests_per_minute = limit;
        }
        for (name, place) in [
            ("messages_per_day", &mut quota.messages_per_day),
            ("bytes", &mut quota.bytes),
            ("model_tokens_per_day", &mut quota.model_tokens_per_day),
        ] {
            if let Some(limit) = given.parse_field(name, access::parse_limit)? {
                *place = limit;
            }
        }
        access::set_quota(access.store(), user.as_deref(), &quota, &actor(&call)).await?;
        access.invalidate_cache();
        ApiAnswer::from_value(&json!({ "user": user, "quota": quota_json(&quota) }))
    })
}

fn list_audit(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let access = access_control(&call)?;
        // Include events that are still queued.
        access.flush(std::time::Duration::from_secs(2)).await;
        let deeds = audit_json(
            access.store(),
            call.query.get("user"),
            call.query.get("since"),
            None,
            list_len(&call.query),
        )
        .await?;
        ApiAnswer::with_key("deeds", &deeds)
    })
}
