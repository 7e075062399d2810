//! Tokens, spaces, quotas and the audit log of a store in a database.

use std::sync::Arc;

use anyhow::Result;
use icecore_engine::clock::{Clock as _, SystemClock};
use icecore_store::postgres::{Limit, Quota, Token};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::call::{Answer, Call, Given, no_user, user_name, wrong};
use super::route::{ADMIN, Body, Doing, Field, Form, Route, Whose};
use crate::access::{self, Access, By, Home, Made, Wanted};
use crate::rights::Right;

const GROUP: &str = "Access";
/// The default and the maximum length of a list.
pub const LISTED: usize = 100;
const MOST_LISTED: usize = 10_000;
/// The default grace period of a rotated token.
pub const GRACE: &str = "1h";

const SCOPE: Form = Form::Word(|| Right::ALL.iter().map(|right| right.word()).collect());
const LIMITS: &[Field] = &[
    Field::new(
        "requests_per_minute",
        Form::Limit,
        "Requests per minute, for each server process: a number, `none`, or `default` for the store's default",
    ),
    Field::new(
        "messages_per_day",
        Form::Limit,
        "Messages stored per day (UTC): a number, `none` or `default`",
    ),
    Field::new("bytes", Form::Limit, "Bytes of documents: a number, `none` or `default`"),
    Field::new(
        "model_tokens_per_day",
        Form::Limit,
        "Model tokens read and written per day (UTC): a number, `none` or `default`",
    ),
];

/// The routes of access.
pub const ROUTES: &[Route] = &[
    Route::get(
        ADMIN,
        "/api/tokens",
        GROUP,
        "List current and former tokens, newest first, without secrets",
        "Tokens",
        tokens,
    )
    .of(Whose::Everybodys)
    .query(&[
        Field::text("user", "Only tokens bound to this end user's space"),
        Field::new("limit", Form::Between(1, MOST_LISTED), "Maximum number; default 100"),
    ]),
    Route::post(
        ADMIN,
        "/api/tokens",
        GROUP,
        "Create a token; its secret is returned only in this response",
        "TokenMade",
        add,
    )
    .of(Whose::Everybodys)
    .body(Body::One(&[
        Field::new("scopes", SCOPE, "The scopes of the token").many().must(),
        Field::text("user", "The end user whose space it is bound to; all spaces if omitted"),
        Field::text("expires", "The lifetime, such as 90d or 12h; until revoked if omitted"),
        Field::text("label", "A label"),
    ]))
    .example("/api/tokens", Some(r#"{"user":"ann@example.org","scopes":["read","write"],"expires":"90d","label":"her phone"}"#)),
    Route::post(
        ADMIN,
        "/api/tokens/{token}/rotate",
        GROUP,
        "Replace a token by a new one; the old one stays valid for a grace period",
        "TokenMade",
        rotate,
    )
    .of(Whose::Everybodys)
    .body(Body::One(&[Field::text("grace", "The grace period of the old token, such as 1h; 0 ends it at once; default 1h")]))
    .example("/api/tokens/00c0ffee00c0ffee/rotate", Some(r#"{"grace":"1h"}"#)),
    Route::delete(ADMIN, "/api/tokens/{token}", GROUP, "Revoke a token; it stops working everywhere within five seconds", "TokenRevoked", revoke)
        .of(Whose::Everybodys)
        .example("/api/tokens/00c0ffee00c0ffee", None),
    Route::get(ADMIN, "/api/spaces", GROUP, "List the end users that have a space, sorted", "Spaces", spaces).of(Whose::Everybodys).query(&[
        Field::text("after", "Start after this user"),
        Field::new("limit", Form::Between(1, MOST_LISTED), "Maximum number; default 100"),
    ]),
    Route::get(ADMIN, "/api/spaces/{name}", GROUP, "Show the usage and limits of a space", "SpaceShown", show)
        .of(Whose::Named)
        .example("/api/spaces/ann%40example.org", None),
    Route::delete(ADMIN, "/api/spaces/{name}", GROUP, "Erase a space with everything in it, including its tokens", "SpaceErased", erase)
        .of(Whose::Named)
        .example("/api/spaces/ann%40example.org", None),
    Route::get(ADMIN, "/api/spaces/{name}/quota", GROUP, "Show the limits set for a space", "SpaceQuota", quota)
        .of(Whose::Named)
        .example("/api/spaces/ann%40example.org/quota", None),
    Route::post(ADMIN, "/api/spaces/{name}/quota", GROUP, "Set limits of a space; omitted ones stay", "SpaceQuota", set_quota)
        .of(Whose::Everybodys)
        .body(Body::One(LIMITS))
        .example("/api/spaces/ann%40example.org/quota", Some(r#"{"requests_per_minute":120,"bytes":"none"}"#)),
    Route::get(ADMIN, "/api/quota", GROUP, "Show the default limits of all spaces", "SpaceQuota", quota)
        .of(Whose::Everybodys),
    Route::post(ADMIN, "/api/quota", GROUP, "Set the default limits; omitted ones stay", "SpaceQuota", set_quota)
        .of(Whose::Everybodys)
        .body(Body::One(LIMITS))
        .example("/api/quota", Some(r#"{"messages_per_day":2000}"#)),
    Route::get(ADMIN, "/api/audit", GROUP, "The audit log: who read and wrote what, newest first, without content", "Audit", audit)
        .of(Whose::Everybodys)
        .query(&[
            Field::text("user", "Only this end user's space"),
            Field::text("since", "Only events since this time: 2026-02-13T09:30:00Z, or 12h ago as 12h"),
            Field::new("limit", Form::Between(1, MOST_LISTED), "Maximum number; default 100"),
        ]),
];

fn keeper(call: &Call) -> Result<&Arc<Access>> {
    call.api.access.as_ref().ok_or_else(access::needs_a_store)
}

fn by(call: &Call) -> By {
    By {
        token: call.caller.held.grant.id.clone(),
        door: "api",
        who: String::new(),
        now: SystemClock.now(),
    }
}

fn most(given: &Given) -> i64 {
    i64::try_from(given.number("limit").unwrap_or(LISTED)).unwrap_or(i64::MAX)
}

/// A token as JSON.
pub fn told(home: &Home, token: &Token, now: Timestamp) -> Value {
    let state = match (token.revoked, token.expires) {
        (Some(_), _) => "revoked",
        (None, Some(end)) if end <= now => "expired",
        _ => "good",
    };
    let moment = |at: Option<Timestamp>| at.map(|at| at.to_string());
    json!({
        "id": token.id, "user": home.user_of(&token.space).ok().flatten(), "label": token.label, "scopes": token.scopes, "state": state, "made": token.made.to_string(),
        "expires": moment(token.expires), "revoked": moment(token.revoked), "used": moment(token.used),
    })
}

/// A new token with its secret as JSON.
pub fn told_made(home: &Home, made: &Made, now: Timestamp) -> Value {
    json!({ "secret": made.secret, "token": told(home, &made.token, now) })
}

/// Limits as JSON.
pub fn told_quota(quota: &Quota) -> Value {
    let limit = |limit: Option<Limit>| match limit {
        Some(Limit::Most(most)) => json!(most),
        other => json!(access::word(other)),
    };
    json!({
        "requests_per_minute": limit(quota.requests_per_minute), "messages_per_day": limit(quota.messages_per_day),
        "bytes": limit(quota.bytes), "model_tokens_per_day": limit(quota.model_tokens_per_day),
    })
}

/// The usage and limits of an end user's space.
pub async fn told_space(home: &Home, user: &str) -> Result<Value> {
    let (user, now) = (user_name(user)?, SystemClock.now());
    let space = home.space(Some(&user));
    if home.database.glance(&space).await?.is_none() {
        return Err(no_user(&user));
    }
    let standing = home.database.standing(&home.name, &space).await?;
    let tokens = home.database.tokens(&home.name, Some(&space), i64::MAX).await?;
    let good = tokens
        .iter()
        .filter(|token| token.revoked.is_none() && token.expires.is_none_or(|end| end > now))
        .count();
    Ok(json!({
        "user": user, "bytes": standing.bytes, "messages_today": standing.messages, "model_tokens_today": standing.model_tokens,
        "limits": told_quota(&standing.quota), "tokens": good,
    }))
}

/// The audit log, optionally as of a moment.
pub async fn told_audit(
    home: &Home,
    user: Option<&str>,
    since: Option<&str>,
    as_of: Option<Timestamp>,
    most: i64,
) -> Result<Vec<Value>> {
    let since = since
        .map(|text| access::since(text, as_of.unwrap_or_else(|| SystemClock.now())))
        .transpose()?;
    let space = user.map(user_name).transpose()?.map(|user| home.space(Some(&user)));
    // The newest events of that moment are not the newest of now.
    let read = if as_of.is_some() { i64::MAX } else { most };
    let mut noted = home.database.deeds(&home.name, space.as_deref(), since, read).await?;
    noted.retain(|noted| as_of.is_none_or(|now| noted.deed.at <= now));
    noted.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    let deeds = noted.into_iter().map(|noted| {
        let deed = noted.deed;
        json!({
            "number": noted.number, "at": deed.at.to_string(), "space": deed.space, "token": deed.token, "door": deed.door,
            "who": deed.who, "verb": deed.verb, "what": deed.what, "status": deed.status,
        })
    });
    Ok(deeds.collect())
}

fn tokens(call: Call) -> Doing {
    Box::pin(async move {
        let (home, now) = (keeper(&call)?.home(), SystemClock.now());
        let user = call.query.one("user").map(user_name).transpose()?;
        let space = user.map(|user| home.space(Some(&user)));
        let tokens = home.database.tokens(&home.name, space.as_deref(), most(&call.query)).await?;
        Answer::named(
            "tokens",
            &tokens.iter().map(|token| told(home, token, now)).collect::<Vec<_>>(),
        )
    })
}

fn add(call: Call) -> Doing {
    Box::pin(async move {
        let (access, given, by) = (keeper(&call)?, call.body()?, by(&call));
        let wanted = Wanted {
            user: given.text("user"),
            rights: given.read_all("scopes", |word| word.parse::<Right>())?,
            lasts: given.read("expires", access::lasts)?,
            label: given.text("label").unwrap_or_default(),
        };
        Answer::of(&told_made(
            access.home(),
            &access::add_token(access.home(), wanted, &by).await?,
            by.now,
        ))
    })
}

fn rotate(call: Call) -> Doing {
    Box::pin(async move {
        let (access, by) = (keeper(&call)?, by(&call));
        let grace = access::lasts(call.body()?.one("grace").unwrap_or(GRACE))
            .map_err(|said| wrong(format!("`grace`: {said}")))?;
        let made = access::rotate_token(access.home(), call.path("token"), grace, &by).await?;
        access.look_again();
        Answer::of(&told_made(access.home(), &made, by.now))
    })
}

fn revoke(call: Call) -> Doing {
    Box::pin(async move {
        let access = keeper(&call)?;
        let token = access::revoke_token(access.home(), call.path("token"), &by(&call)).await?;
        access.look_again();
        Answer::of(&json!({ "id": token.id, "revoked": true }))
    })
}

fn spaces(call: Call) -> Doing {
    Box::pin(async move {
        let most = call.query.number("limit").unwrap_or(LISTED);
        Answer::named(
            "users",
            &keeper(&call)?.home().users(call.query.one("after").unwrap_or_default(), most).await?,
        )
    })
}

fn show(call: Call) -> Doing {
    Box::pin(
        async move { Answer::of(&told_space(keeper(&call)?.home(), call.path("name")).await?) },
    )
}

fn erase(call: Call) -> Doing {
    Box::pin(async move {
        keeper(&call)?;
        Answer::of(&json!({ "user": forgotten(&call).await?, "erased": true }))
    })
}

/// Deletes the space of the end user in the path.
pub async fn forgotten(call: &Call) -> Result<String> {
    let name = user_name(call.path("name"))?;
    if !call.api.spaces.forget(&name, &by(call)).await? {
        return Err(no_user(&name));
    }
    // The user's tokens were deleted with the space.
    if let Some(access) = &call.api.access {
        access.look_again();
    }
    Ok(name)
}

/// The end user in the path, if there is one.
fn named(call: &Call) -> Result<Option<String>> {
    Some(call.path("name")).filter(|name| !name.is_empty()).map(user_name).transpose()
}

fn quota(call: Call) -> Doing {
    Box::pin(async move {
        let user = named(&call)?;
        let quota = access::quota(keeper(&call)?.home(), user.as_deref()).await?;
        Answer::of(&json!({ "user": user, "quota": told_quota(&quota) }))
    })
}

fn set_quota(call: Call) -> Doing {
    Box::pin(async move {
        let (access, given, user) = (keeper(&call)?, call.body()?, named(&call)?);
        let mut quota = access::quota(access.home(), user.as_deref()).await?;
        if let Some(limit) = given.read("requests_per_minute", access::requests)? {
            quota.requests_per_minute = limit;
        }
        for (name, place) in [
            ("messages_per_day", &mut quota.messages_per_day),
            ("bytes", &mut quota.bytes),
            ("model_tokens_per_day", &mut quota.model_tokens_per_day),
        ] {
            if let Some(limit) = given.read(name, access::limit)? {
                *place = limit;
            }
        }
        access::set_quota(access.home(), user.as_deref(), &quota, &by(&call)).await?;
        access.look_again();
        Answer::of(&json!({ "user": user, "quota": told_quota(&quota) }))
    })
}

fn audit(call: Call) -> Doing {
    Box::pin(async move {
        let access = keeper(&call)?;
        // Include events that are still queued.
        access.settle(std::time::Duration::from_secs(2)).await;
        let deeds = told_audit(
            access.home(),
            call.query.one("user"),
            call.query.one("since"),
            None,
            most(&call.query),
        )
        .await?;
        Answer::named("deeds", &deeds)
    })
}
