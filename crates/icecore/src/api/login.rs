//! Login and logout of browsers.

use axum::http::header::HOST;
use axum::http::uri::Authority;
use serde_json::json;

use super::call::{Answer, Call, wrong};
use super::route::{Body, Doing, Field, KNOWN, Route, WRITE, Whose};
use crate::error::{Exit, Stop};
use crate::http::logins::{self, Logins};
use crate::rights::{Right, Rights};

const GROUP: &str = "Login";
/// The login route, which needs no token: it receives one.
pub const PATH: &str = "/api/login";

/// The routes of login.
pub const ROUTES: &[Route] = &[
    Route::post(
        KNOWN,
        PATH,
        GROUP,
        "Log a browser in with a token or a login code; sets an HttpOnly cookie",
        "LoggedIn",
        login,
    )
    .of(Whose::Callers)
    .body(Body::One(&[
        Field::text("token", "The server's token"),
        Field::text("code", "A login code, valid once"),
    ]))
    .example(PATH, Some(r#"{"code":"0000"}"#)),
    Route::post(KNOWN, "/api/logout", GROUP, "Log a browser out", "LoggedOut", logout)
        .of(Whose::Callers)
        .body(Body::One(&[]))
        .example("/api/logout", Some("{}")),
    Route::post(
        WRITE,
        "/api/login/code",
        GROUP,
        "Create a login code for a link /#code=…; valid once, for a few minutes",
        "LoginCode",
        code,
    )
    .of(Whose::Callers)
    .body(Body::One(&[]))
    .example("/api/login/code", Some("{}")),
    Route::get(KNOWN, "/api/session", GROUP, "The caller's permissions", "Session", session)
        .of(Whose::Callers),
];

fn logins(call: &Call) -> anyhow::Result<&Logins> {
    let known = call.api.logins.as_deref();
    known.ok_or_else(|| Stop::new(Exit::NotFound, "this server has no browser login").into())
}

fn host(call: &Call) -> anyhow::Result<Authority> {
    let host = call.headers.get(HOST).and_then(|host| host.to_str().ok()?.parse().ok());
    host.ok_or_else(|| wrong("the Host header is missing"))
}

/// The permission on memory, in one word.
fn word(rights: Rights) -> &'static str {
    if rights.cover(Right::Write) { "write" } else { "read" }
}

fn login(call: Call) -> Doing {
    Box::pin(async move {
        let (logins, said) = (logins(&call)?, call.body()?);
        let held = match (said.one("token"), said.one("code")) {
            (Some(token), None) => logins.by_token(token).await?.ok_or("not this server's token; `icecore serve` prints its location, and `icecore dashboard` prints a login link"),
            (None, Some(code)) => logins.by_code(code).ok_or("the login code is invalid or expired; `icecore dashboard` prints another"),
            _ => return Err(wrong("send `token` or `code`")),
        };
        let held = held.map_err(|said| Stop::new(Exit::NotLoggedIn, said))?;
        let rights = held.grant.rights;
        // The dashboard needs to read memory.
        if !rights.cover(Right::Read) {
            return Err(Stop::new(
                Exit::NotAllowed,
                "the token may not read memory; use one with the scope read",
            )
            .into());
        }
        let given = logins.begin(held)?;
        let cookie = logins::cookie(&host(&call)?, &call.headers, Some(&given));
        Ok(Answer::of(&json!({ "right": word(rights), "expires_in_seconds": given.seconds }))?
            .with_cookie(cookie))
    })
}

fn logout(call: Call) -> Doing {
    Box::pin(async move {
        let host = host(&call)?;
        logins(&call)?.end(&host, &call.headers);
        Ok(Answer::of(&json!({ "ok": true }))?.with_cookie(logins::cookie(
            &host,
            &call.headers,
            None,
        )))
    })
}

fn code(call: Call) -> Doing {
    Box::pin(async move {
        let given = logins(&call)?.code(call.caller.held.clone())?;
        Answer::of(&json!({ "code": given.secret, "expires_in_seconds": given.seconds }))
    })
}

fn session(call: Call) -> Doing {
    Box::pin(async move {
        let by = if call.caller.by_cookie { "cookie" } else { "token" };
        let grant = &call.caller.held.grant;
        Answer::of(&json!({
            "right": word(grant.rights),
            "scopes": grant.rights.words(),
            "space": grant.space,
            "by": by,
            "version": env!("CARGO_PKG_VERSION"),
        }))
    })
}
