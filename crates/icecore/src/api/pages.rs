//! Knowledge pages: reading, editing, and earlier versions.

use icecore_domain::page::{PageKey, PageKind};
use serde_json::json;

use super::call::{ApiAnswer, ApiCall, usage_error};
use super::route::{BodySpec, HandlerFuture, InputField, READ, RouteSpec, ValueType, WRITE};
use crate::json_output;

const GROUP: &str = "Knowledge";
/// The default number of versions.
const DEFAULT_VERSIONS: usize = 100;
/// The most versions.
const MAX_VERSIONS: usize = 1_000;

/// The routes of knowledge pages.
pub const ROUTES: &[RouteSpec] = &[
    RouteSpec::get(
        READ,
        "/api/pages",
        GROUP,
        "List pages: kind, title, size, modification time and freshness",
        "Pages",
        list,
    ),
    RouteSpec::get(READ, "/api/pages/{kind}/{slug}", GROUP, "A page: its Markdown, its hash, and the events it shows", "Page", show)
        .example("/api/pages/entities/apollo", None),
    RouteSpec::post(
        WRITE,
        "/api/pages/{kind}/{slug}",
        GROUP,
        "Save an edited page, if it is unchanged since it was read; its statements are added to the ledger at once",
        "PageSaveResult",
        save,
    )
    .body(BodySpec::One(&[
        InputField::text("text", "The whole page").require(),
        InputField::text("hash", "The hash of the text that was read; omitted for a new page"),
    ]))
    .example("/api/pages/entities/apollo", Some(r##"{"text":"# Apollo\n\n## Key Facts\n- The port is 7431\n"}"##)),
    RouteSpec::get(
        READ,
        "/api/pages/{kind}/{slug}/versions",
        GROUP,
        "The snapshots that changed a page, newest first",
        "PageVersions",
        list_page_versions,
    )
    .query(&[InputField::new("limit", ValueType::Between(1, MAX_VERSIONS), "Maximum number; default 100")])
    .example("/api/pages/entities/apollo/versions", None),
    RouteSpec::get(
        READ,
        "/api/pages/{kind}/{slug}/versions/{snapshot}",
        GROUP,
        "A page as of a snapshot; `now` is the current state",
        "PageVersion",
        show_page_version,
    )
    .example("/api/pages/entities/apollo/versions/now", None),
    RouteSpec::get(READ, "/api/pages/{kind}/{slug}/diff", GROUP, "The unified diff of a page between two snapshots", "Diff", diff)
        .query(&[InputField::text("from", "The earlier snapshot").require(), InputField::text("to", "The later snapshot; default the current state")])
        .example("/api/pages/entities/apollo/diff?from=now", None),
];

fn page_key(call: &ApiCall) -> anyhow::Result<PageKey> {
    let kind = call
        .path_param("kind")
        .parse::<PageKind>()
        .map_err(|error| usage_error(error.to_string()))?;
    let place = format!("knowledge/{kind}/{}.md", call.path_param("slug"));
    let key = place.parse().ok().and_then(|place| PageKey::from_path(&place));
    key.ok_or_else(|| {
        usage_error("a page name has lowercase letters, digits and dashes, such as `client-x`")
    })
}

fn list(call: ApiCall) -> HandlerFuture {
    Box::pin(
        async move { ApiAnswer::with_key("pages", &call.open_memory().await?.list_pages().await?) },
    )
}

fn show(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let key = page_key(&call)?;
        ApiAnswer::from_value(&call.open_memory().await?.load_page(&key).await?)
    })
}

fn save(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (key, said) = (page_key(&call)?, call.body()?);
        let text = said.get_owned("text").unwrap_or_default();
        if text.trim().is_empty() {
            return Err(usage_error(
                "the page is empty; strike through what is wrong, or retract its events",
            ));
        }
        ApiAnswer::from_value(
            &call.open_memory().await?.save_page(&key, &text, said.get("hash")).await?,
        )
    })
}

fn list_page_versions(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let key = page_key(&call)?;
        let most = call.query.get_number("limit").unwrap_or(DEFAULT_VERSIONS);
        let memory = call.open_memory().await?;
        ApiAnswer::with_key(
            "versions",
            &json_output::snapshots(&memory, &memory.list_page_versions(&key, most).await?)?,
        )
    })
}

fn show_page_version(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (key, id) = (page_key(&call)?, call.path_param("snapshot"));
        let text = call.open_memory().await?.load_page_at_snapshot(&key, id).await?;
        ApiAnswer::from_value(&json!({ "path": key.path().as_str(), "snapshot": id, "text": text }))
    })
}

fn diff(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let key = page_key(&call)?;
        let (from, to) =
            (call.query.get("from").unwrap_or_default(), call.query.get("to").unwrap_or("now"));
        ApiAnswer::with_key("diff", &call.open_memory().await?.diff_page(&key, from, to).await?)
    })
}
