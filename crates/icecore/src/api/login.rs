//! Login and logout of browsers.

use axum::http::header::HOST;
use axum::http::uri::Authority;
use serde_json::json;

use super::call::{ApiAnswer, ApiCall, usage_error};
use super::route::{
    AUTHENTICATED, BodySpec, HandlerFuture, InputField, RouteSpec, SpaceTarget, WRITE,
};
use crate::error::{AppError, Exit};
use crate::http::logins::{self, LoginStore};
use crate::permissions::{Permission, Permissions};

const GROUP: &str = "Login";
/// The login route, which needs no token: it receives one.
pub const PATH: &str = "/api/login";

/// The routes of login.
pub const ROUTES: &[RouteSpec] = &[
    RouteSpec::post(
        AUTHENTICATED,
        PATH,
        GROUP,
        "Log a browser in with a token or a login code; sets an HttpOnly cookie",
        "LoginResult",
        log_in,
    )
    .space(SpaceTarget::Callers)
    .body(BodySpec::One(&[
        InputField::text("token", "The server's token"),
        InputField::text("code", "A login code, valid once"),
    ]))
    .example(PATH, Some(r#"{"code":"0000"}"#)),
    RouteSpec::post(
        AUTHENTICATED,
        "/api/logout",
        GROUP,
        "Log a browser out",
        "LogoutResult",
        log_out,
    )
    .space(SpaceTarget::Callers)
    .body(BodySpec::One(&[]))
    .example("/api/logout", Some("{}")),
    RouteSpec::post(
        WRITE,
        "/api/login/code",
        GROUP,
        "Create a login code for a link /#code=…; valid once, for a few minutes",
        "LoginCode",
        create_login_code,
    )
    .space(SpaceTarget::Callers)
    .body(BodySpec::One(&[]))
    .example("/api/login/code", Some("{}")),
    RouteSpec::get(
        AUTHENTICATED,
        "/api/session",
        GROUP,
        "The caller's permissions",
        "Session",
        show_session,
    )
    .space(SpaceTarget::Callers),
];

fn login_store(call: &ApiCall) -> anyhow::Result<&LoginStore> {
    let known = call.api.logins.as_deref();
    known.ok_or_else(|| AppError::new(Exit::NotFound, "this server has no browser login").into())
}

fn host_header(call: &ApiCall) -> anyhow::Result<Authority> {
    let host = call.headers.get(HOST).and_then(|host| host.to_str().ok()?.parse().ok());
    host.ok_or_else(|| usage_error("the Host header is missing"))
}

/// The permission on memory, in one word.
fn permission_word(rights: Permissions) -> &'static str {
    if rights.includes(Permission::Write) { "write" } else { "read" }
}

fn log_in(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (logins, said) = (login_store(&call)?, call.body()?);
        let held = match (said.get("token"), said.get("code")) {
            (Some(token), None) => logins.verify_token(token).await?.ok_or("not this server's token; `icecore serve` prints its location, and `icecore dashboard` prints a login link"),
            (None, Some(code)) => logins.redeem_code(code).ok_or("the login code is invalid or expired; `icecore dashboard` prints another"),
            _ => return Err(usage_error("send `token` or `code`")),
        };
        let held = held.map_err(|said| AppError::new(Exit::NotLoggedIn, said))?;
        let rights = held.grant.rights;
        // The dashboard needs to read memory.
        if !rights.includes(Permission::Read) {
            return Err(AppError::new(
                Exit::NotAllowed,
                "the token may not read memory; use one with the scope read",
            )
            .into());
        }
        let given = logins.start_session(held)?;
        let cookie = logins::set_cookie_value(&host_header(&call)?, &call.headers, Some(&given));
        Ok(ApiAnswer::from_value(
            &json!({ "right": permission_word(rights), "expires_in_seconds": given.seconds }),
        )?
        .with_cookie(cookie))
    })
}

fn log_out(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let host = host_header(&call)?;
        login_store(&call)?.end_session(&host, &call.headers);
        Ok(ApiAnswer::from_value(&json!({ "ok": true }))?.with_cookie(logins::set_cookie_value(
            &host,
            &call.headers,
            None,
        )))
    })
}

fn create_login_code(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let given = login_store(&call)?.create_code(call.caller.held.clone())?;
        ApiAnswer::from_value(&json!({ "code": given.secret, "expires_in_seconds": given.seconds }))
    })
}

fn show_session(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let by = if call.caller.by_cookie { "cookie" } else { "token" };
        let grant = &call.caller.held.grant;
        ApiAnswer::from_value(&json!({
            "right": permission_word(grant.rights),
            "scopes": grant.rights.names(),
            "space": grant.space,
            "by": by,
            "version": env!("CARGO_PKG_VERSION"),
        }))
    })
}
