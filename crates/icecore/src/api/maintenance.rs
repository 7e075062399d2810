//! Maintenance of a vault: snapshots and undo, checks and repairs, settings, pauses, merging,
//! models.

use icecore_domain::pause::{self, PauseScope};
use icecore_engine::config;
use serde_json::json;

use super::call::{ApiAnswer, ApiCall, ParsedInput, usage_error};
use super::route::{
    BodySpec, HandlerFuture, InputField, READ, RouteSpec, SpaceTarget, ValueType, WRITE,
};
use crate::error::{AppError, Exit};
use crate::json_output;

const GROUP: &str = "Care";
/// The default number of snapshots.
const DEFAULT_SNAPSHOTS: usize = 1_000;
/// The most snapshots.
const MAX_SNAPSHOTS: usize = 10_000;
/// The default number of injected texts.
const DEFAULT_INJECTIONS: usize = 5;
/// The most injected texts.
const MAX_INJECTIONS: usize = 1_000;
const DURATION_TYPE: ValueType = ValueType::Shaped("^[0-9]{1,9} *(?:s|m|min|h|d)$");
const PAUSE_SCOPE_FIELDS: &[InputField] = &[
    InputField::text("session", "Only this session; `last` is the most recent one"),
    InputField::text("project", "Only this project"),
];

/// The routes of maintenance.
pub const ROUTES: &[RouteSpec] = &[
    RouteSpec::get(
        READ,
        "/api/snapshots",
        GROUP,
        "List the snapshots that can be restored, newest first",
        "Snapshots",
        list_snapshots,
    )
    .query(&[InputField::new("limit", ValueType::Between(1, MAX_SNAPSHOTS), "Maximum number; default 1000")])
    .example("/api/snapshots?limit=5", None),
    RouteSpec::post(
        WRITE,
        "/api/snapshots",
        GROUP,
        "Take a snapshot; null if nothing changed since the last one",
        "SnapshotResult",
        snapshot,
    )
    .body(BodySpec::One(&[InputField::text("note", "A note")]))
    .example("/api/snapshots", Some(r#"{"note":"before the migration"}"#)),
    RouteSpec::post(
        WRITE,
        "/api/undo",
        GROUP,
        "Restore the last snapshot, or `to`; the current state is saved first, so a second undo restores it",
        "UndoResult",
        undo,
    )
    .body(BodySpec::One(&[InputField::text("to", "The snapshot; default the last one")]))
    .example("/api/undo", Some("{}")),
    RouteSpec::post(
        WRITE,
        "/api/doctor",
        GROUP,
        "Report what is wrong; with `fix`, repair what can be repaired without data loss",
        "Doctor",
        doctor,
    )
    .body(BodySpec::One(&[InputField::new("fix", ValueType::Yes, "Repair it")]))
    .example("/api/doctor", Some("{}")),
    RouteSpec::post(
        WRITE,
        "/api/reindex",
        GROUP,
        "Rebuild everything derived from the files",
        "ReindexReport",
        reindex,
    )
    .body(BodySpec::One(&[InputField::new(
        "words",
        ValueType::Yes,
        "Skip the slowest part: the embedding vectors for semantic search",
    )]))
    .example("/api/reindex", Some(r#"{"words":true}"#)),
    RouteSpec::get(
        READ,
        "/api/config",
        GROUP,
        "The effective settings of the vault",
        "Policy",
        config_show,
    ),
    RouteSpec::get(
        READ,
        "/api/config/check",
        GROUP,
        "Check icecore.toml; problems are returned as the error",
        "ConfigCheck",
        config_check,
    ),
    RouteSpec::get(
        READ,
        "/api/pauses",
        GROUP,
        "List what is paused: nothing of it is captured",
        "PauseList",
        list_pauses,
    ),
    RouteSpec::post(
        WRITE,
        "/api/pauses",
        GROUP,
        "Pause capture: for a while, in a session, in a project",
        "PauseList",
        pause_capture,
    )
    .body(BodySpec::One(&[
        InputField::text("session", "Only this session; `last` is the most recent one"),
        InputField::text("project", "Only this project"),
        InputField::new("for", DURATION_TYPE, "The duration, e.g. 30m, 1h, 2d; until resumed if omitted"),
    ]))
    .example("/api/pauses", Some(r#"{"for":"1s"}"#)),
    RouteSpec::post(
        WRITE,
        "/api/resume",
        GROUP,
        "Resume capture; without a session or project, all pauses end",
        "ResumeResult",
        resume,
    )
    .body(BodySpec::One(PAUSE_SCOPE_FIELDS))
    .example("/api/resume", Some("{}")),
    RouteSpec::get(
        READ,
        "/api/injected",
        GROUP,
        "The exact text that hooks injected into recent prompts, and why, newest first",
        "InjectedList",
        list_injected,
    )
    .query(&[
        InputField::new("last", ValueType::Between(1, MAX_INJECTIONS), "Maximum number; default 5"),
        InputField::text("session", "Only this session; `last` is the most recent one"),
    ])
    .example("/api/injected?last=3", None),
    RouteSpec::get(
        READ,
        "/api/triggers",
        GROUP,
        "The triggers that load pages: the user's own, and suggestions from pages",
        "Triggers",
        list_triggers,
    ),
    RouteSpec::post(
        WRITE,
        "/api/triggers",
        GROUP,
        "Append the suggestions to recall/triggers.json",
        "TriggersSaved",
        save_trigger_suggestions,
    )
    .body(BodySpec::One(&[]))
    .example("/api/triggers", Some("{}")),
    RouteSpec::get(
        READ,
        "/api/merge",
        GROUP,
        "The merge status with other machines",
        "MergeStatus",
        merge_status,
    ),
    RouteSpec::post(
        WRITE,
        "/api/merge",
        GROUP,
        "Merge what another machine did in the same vault, as fetched by git",
        "MergeReport",
        merge,
    )
    .body(BodySpec::One(&[InputField::text(
        "other",
        "What to merge, such as origin/main; default the upstream branch",
    )]))
    .example("/api/merge", Some(r#"{"other":"origin/main"}"#)),
    RouteSpec::post(
        WRITE,
        "/api/model/check",
        GROUP,
        "Check that the configured model can be reached, streams and follows a schema",
        "ModelCheck",
        check_model,
    )
    .space(SpaceTarget::Everybodys)
    .body(BodySpec::One(&[]))
    .example("/api/model/check", Some("{}")),
];

fn list_snapshots(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let most = call.query.get_number("limit").unwrap_or(DEFAULT_SNAPSHOTS);
        let memory = call.open_memory().await?;
        ApiAnswer::with_key(
            "snapshots",
            &json_output::snapshots(&memory, &memory.list_snapshots(most).await?)?,
        )
    })
}

fn snapshot(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let note = call
            .body()?
            .get_owned("note")
            .filter(|note| !note.trim().is_empty())
            .unwrap_or_else(|| "snapshot".into());
        let memory = call.open_memory().await?;
        ApiAnswer::with_key(
            "snapshot",
            &json_output::snapshots(&memory, memory.take_snapshot(&note).await?.as_slice())?.pop(),
        )
    })
}

fn undo(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let undone = call.open_memory().await?.undo(call.body()?.get("to")).await?;
        // Settings may have changed, and open conversations cache their last turns.
        call.api.spaces.evict(call.user.as_deref());
        ApiAnswer::with_key("undone", &undone)
    })
}

fn doctor(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        if !call.body()?.is_true("fix") {
            let troubles = memory.hook_failures().await?;
            return ApiAnswer::from_value(&json_output::doctor(&memory.verify().await?, &troubles));
        }
        let repairs = memory.repair().await?;
        call.api.spaces.evict(call.user.as_deref());
        ApiAnswer::from_value(&json_output::repairs(&repairs))
    })
}

fn reindex(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let (events, open_loops, _) = memory.reindex(&|_, _| {}).await?;
        let passages = memory.rebuild_passages(&|_, _| {}).await?.new;
        let mut embedded = memory.count_embedded().await?;
        if let Some(model) = call
            .api
            .embedder()
            .filter(|_| !call.bodies.first().is_some_and(|said| said.is_true("words")))
        {
            embedded = memory.embed_passages(model, usize::MAX, &|_, _| {}).await?;
        }
        ApiAnswer::from_value(&json_output::reindex_report(
            events,
            open_loops,
            passages,
            embedded.embedded,
        ))
    })
}

fn config_show(call: ApiCall) -> HandlerFuture {
    Box::pin(async move { ApiAnswer::from_value(call.open_memory().await?.policy()) })
}

fn config_check(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let policy = config::load_policy(call.open_memory().await?.store()).await?;
        ApiAnswer::from_value(&json!({ "ok": policy.warnings.is_empty() }))
    })
}

/// The session a caller names; `last` is the newest one.
async fn resolve_session(call: &ApiCall, name: &str) -> anyhow::Result<String> {
    if name != "last" {
        return Ok(name.to_owned());
    }
    let last = call.open_memory().await?.newest_session().await?;
    last.ok_or_else(|| {
        AppError::new(Exit::NotFound, "no hook has reported a session yet; name one").into()
    })
}

async fn parse_pause_scope(call: &ApiCall, said: &ParsedInput) -> anyhow::Result<PauseScope> {
    match (said.get("session"), said.get_owned("project")) {
        (Some(_), Some(_)) => {
            Err(usage_error("`session` and `project` are both given; give only one"))
        }
        (Some(name), None) => Ok(PauseScope::Session(resolve_session(call, name).await?)),
        (None, Some(name)) => Ok(PauseScope::Project(name)),
        (None, None) => Ok(PauseScope::Everything),
    }
}

fn list_pauses(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let (pauses, now) = (memory.pauses().await?, memory.now());
        ApiAnswer::with_key(
            "paused",
            &pauses.active_at(now.timestamp()).map(json_output::pause).collect::<Vec<_>>(),
        )
    })
}

fn pause_capture(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let said = call.body()?;
        let seconds = said.parse_field("for", pause::parse_duration_secs)?;
        let reach = parse_pause_scope(&call, said).await?;
        let begun = call.open_memory().await?.pause_for(reach, seconds).await?;
        ApiAnswer::with_key("paused", &[json_output::pause(&begun)])
    })
}

fn resume(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let reach = parse_pause_scope(&call, call.body()?).await?;
        let ended = call.open_memory().await?.resume(&reach).await?;
        ApiAnswer::with_key("resumed", &ended.iter().map(json_output::pause).collect::<Vec<_>>())
    })
}

fn list_injected(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let name = match call.query.get("session") {
            Some(name) => Some(resolve_session(&call, name).await?),
            None => None,
        };
        let most = call.query.get_number("last").unwrap_or(DEFAULT_INJECTIONS);
        ApiAnswer::with_key(
            "injected",
            &call.open_memory().await?.injections(most, name.as_deref()).await?,
        )
    })
}

fn list_triggers(call: ApiCall) -> HandlerFuture {
    Box::pin(
        async move { ApiAnswer::from_value(&call.open_memory().await?.list_triggers().await?) },
    )
}

fn save_trigger_suggestions(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let added = call.open_memory().await?.adopt_suggested_triggers().await?;
        ApiAnswer::from_value(&json!({ "added": added, "path": icecore_domain::layout::TRIGGERS }))
    })
}

fn merge_status(call: ApiCall) -> HandlerFuture {
    Box::pin(
        async move { ApiAnswer::from_value(&call.open_memory().await?.load_merge_status().await?) },
    )
}

fn merge(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let models = call.api.spaces.models();
        let other = call.body()?.get("other");
        let merged = call
            .open_memory()
            .await?
            .merge_from(other, models.model_budget().as_ref(), &|_, _, _| {})
            .await?;
        call.api.spaces.evict(call.user.as_deref());
        ApiAnswer::from_value(&json_output::merge_report(&merged))
    })
}

fn check_model(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::from_value(&json_output::check_model(call.api.spaces.models()).await.0)
    })
}
