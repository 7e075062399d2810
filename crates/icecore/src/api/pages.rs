//! Knowledge pages: reading, editing, and earlier versions.

use icecore_domain::page::{PageKey, PageKind};
use serde_json::json;

use super::call::{Answer, Call, wrong};
use super::route::{Body, Doing, Field, Form, READ, Route, WRITE};
use crate::told;

const GROUP: &str = "Knowledge";
/// The default number of versions.
const VERSIONS: usize = 100;
/// The most versions.
const MOST_VERSIONS: usize = 1_000;

/// The routes of knowledge pages.
pub const ROUTES: &[Route] = &[
    Route::get(
        READ,
        "/api/pages",
        GROUP,
        "List pages: kind, title, size, modification time and freshness",
        "Pages",
        list,
    ),
    Route::get(READ, "/api/pages/{kind}/{slug}", GROUP, "A page: its Markdown, its hash, and the events it shows", "Page", show)
        .example("/api/pages/entities/apollo", None),
    Route::post(
        WRITE,
        "/api/pages/{kind}/{slug}",
        GROUP,
        "Save an edited page, if it is unchanged since it was read; its statements are added to the ledger at once",
        "PageSaved",
        save,
    )
    .body(Body::One(&[
        Field::text("text", "The whole page").must(),
        Field::text("hash", "The hash of the text that was read; omitted for a new page"),
    ]))
    .example("/api/pages/entities/apollo", Some(r##"{"text":"# Apollo\n\n## Key Facts\n- The port is 7431\n"}"##)),
    Route::get(
        READ,
        "/api/pages/{kind}/{slug}/versions",
        GROUP,
        "The snapshots that changed a page, newest first",
        "PageVersions",
        versions,
    )
    .query(&[Field::new("limit", Form::Between(1, MOST_VERSIONS), "Maximum number; default 100")])
    .example("/api/pages/entities/apollo/versions", None),
    Route::get(
        READ,
        "/api/pages/{kind}/{slug}/versions/{snapshot}",
        GROUP,
        "A page as of a snapshot; `now` is the current state",
        "PageThen",
        version,
    )
    .example("/api/pages/entities/apollo/versions/now", None),
    Route::get(READ, "/api/pages/{kind}/{slug}/diff", GROUP, "The unified diff of a page between two snapshots", "Diff", diff)
        .query(&[Field::text("from", "The earlier snapshot").must(), Field::text("to", "The later snapshot; default the current state")])
        .example("/api/pages/entities/apollo/diff?from=now", None),
];

fn key(call: &Call) -> anyhow::Result<PageKey> {
    let kind = call.path("kind").parse::<PageKind>().map_err(|error| wrong(error.to_string()))?;
    let place = format!("knowledge/{kind}/{}.md", call.path("slug"));
    let key = place.parse().ok().and_then(|place| PageKey::of_path(&place));
    key.ok_or_else(|| {
        wrong("a page name has lowercase letters, digits and dashes, such as `client-x`")
    })
}

fn list(call: Call) -> Doing {
    Box::pin(async move { Answer::named("pages", &call.memory().await?.pages().await?) })
}

fn show(call: Call) -> Doing {
    Box::pin(async move {
        let key = key(&call)?;
        Answer::of(&call.memory().await?.page(&key).await?)
    })
}

fn save(call: Call) -> Doing {
    Box::pin(async move {
        let (key, said) = (key(&call)?, call.body()?);
        let text = said.text("text").unwrap_or_default();
        if text.trim().is_empty() {
            return Err(wrong(
                "the page is empty; strike through what is wrong, or retract its events",
            ));
        }
        Answer::of(&call.memory().await?.edit_page(&key, &text, said.one("hash")).await?)
    })
}

fn versions(call: Call) -> Doing {
    Box::pin(async move {
        let key = key(&call)?;
        let most = call.query.number("limit").unwrap_or(VERSIONS);
        let memory = call.memory().await?;
        Answer::named(
            "versions",
            &told::snapshots(&memory, &memory.page_versions(&key, most).await?)?,
        )
    })
}

fn version(call: Call) -> Doing {
    Box::pin(async move {
        let (key, id) = (key(&call)?, call.path("snapshot"));
        let text = call.memory().await?.page_then(&key, id).await?;
        Answer::of(&json!({ "path": key.path().as_str(), "snapshot": id, "text": text }))
    })
}

fn diff(call: Call) -> Doing {
    Box::pin(async move {
        let key = key(&call)?;
        let (from, to) =
            (call.query.one("from").unwrap_or_default(), call.query.one("to").unwrap_or("now"));
        Answer::named("diff", &call.memory().await?.page_diff(&key, from, to).await?)
    })
}
