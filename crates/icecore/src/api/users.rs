//! End users: listing, exporting and deleting them.

use icecore_domain::layout;
use serde_json::{Map, Value, json};

use super::access::forgotten;
use super::call::{Answer, Call, no_user, user_name};
use super::route::{ADMIN, Doing, READ, Route, Whose};

const GROUP: &str = "End users";

/// The routes of end users.
pub const ROUTES: &[Route] = &[
    Route::get(READ, "/api/users", GROUP, "List the end users that have a space", "Users", list)
        .of(Whose::Everybodys),
    Route::get(
        READ,
        "/api/users/{name}/export",
        GROUP,
        "Export everything stored about an end user: every file of their space",
        "UserExport",
        export,
    )
    .of(Whose::Named)
    .example("/api/users/ann%40example.org/export", None),
    Route::delete(
        ADMIN,
        "/api/users/{name}",
        GROUP,
        "Delete an end user with their whole space",
        "UserForgotten",
        forget,
    )
    .of(Whose::Named)
    .example("/api/users/ann%40example.org", None),
];

fn list(call: Call) -> Doing {
    Box::pin(async move {
        let user =
            |(user, folder): (Option<String>, String)| json!({ "user": user, "folder": folder });
        Answer::named(
            "users",
            &call.api.spaces.named().await?.into_iter().map(user).collect::<Vec<_>>(),
        )
    })
}

fn export(call: Call) -> Doing {
    Box::pin(async move {
        let user = user_name(call.path("name"))?;
        let _held = call.api.spaces.held(Some(&user)).await;
        if !call.api.spaces.has(Some(&user)).await? {
            return Err(no_user(&user));
        }
        let chats = call.api.spaces.of(Some(&user)).await?;
        let store = chats.memory().store();
        let text = |bytes: Vec<u8>| Value::from(String::from_utf8_lossy(&bytes).into_owned());
        let mut files = Map::new();
        files.insert(layout::LEDGER.into(), text(store.ledger().await?.bytes));
        for place in store.documents("").await? {
            files
                .insert(place.to_string(), text(store.document(&place).await?.unwrap_or_default()));
        }
        Answer::of(
            &json!({ "user": user, "conversations": chats.conversations().await?, "files": files }),
        )
    })
}

fn forget(call: Call) -> Doing {
    Box::pin(
        async move { Answer::of(&json!({ "user": forgotten(&call).await?, "forgotten": true })) },
    )
}
