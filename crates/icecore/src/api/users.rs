//! End users: listing, exporting and deleting them.

use icecore_domain::layout;
use serde_json::{Map, Value, json};

use super::access::forget_user;
use super::call::{ApiAnswer, ApiCall, no_such_user, parse_user_name};
use super::route::{ADMIN, HandlerFuture, READ, RouteSpec, SpaceTarget};

const GROUP: &str = "End users";

/// The routes of end users.
pub const ROUTES: &[RouteSpec] = &[
    RouteSpec::get(
        READ,
        "/api/users",
        GROUP,
        "List the end users that have a space",
        "Users",
        list,
    )
    .space(SpaceTarget::Everybodys),
    RouteSpec::get(
        READ,
        "/api/users/{name}/export",
        GROUP,
        "Export everything stored about an end user: every file of their space",
        "UserExport",
        export,
    )
    .space(SpaceTarget::Named)
    .example("/api/users/ann%40example.org/export", None),
    RouteSpec::delete(
        ADMIN,
        "/api/users/{name}",
        GROUP,
        "Delete an end user with their whole space",
        "DeletedUser",
        forget,
    )
    .space(SpaceTarget::Named)
    .example("/api/users/ann%40example.org", None),
];

fn list(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let user =
            |(user, folder): (Option<String>, String)| json!({ "user": user, "folder": folder });
        ApiAnswer::with_key(
            "users",
            &call.api.spaces.list_spaces().await?.into_iter().map(user).collect::<Vec<_>>(),
        )
    })
}

fn export(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let user = parse_user_name(call.path_param("name"))?;
        let _held = call.api.spaces.acquire_shared(Some(&user)).await;
        if !call.api.spaces.has_space(Some(&user)).await? {
            return Err(no_such_user(&user));
        }
        let chats = call.api.spaces.chats(Some(&user)).await?;
        let store = chats.memory().store();
        let text = |bytes: Vec<u8>| Value::from(String::from_utf8_lossy(&bytes).into_owned());
        let mut files = Map::new();
        files.insert(layout::LEDGER.into(), text(store.ledger().await?.bytes));
        for place in store.documents("").await? {
            files
                .insert(place.to_string(), text(store.document(&place).await?.unwrap_or_default()));
        }
        ApiAnswer::from_value(
            &json!({ "user": user, "conversations": chats.conversations().await?, "files": files }),
        )
    })
}

fn forget(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::from_value(&json!({ "user": forget_user(&call).await?, "forgotten": true }))
    })
}
