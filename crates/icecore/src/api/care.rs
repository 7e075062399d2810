//! Maintenance of a vault: snapshots and undo, checks and repairs, settings, pauses, merging,
//! models.

use icecore_domain::pause::{self, Reach};
use icecore_engine::config;
use serde_json::json;

use super::call::{Answer, Call, Given, wrong};
use super::route::{Body, Doing, Field, Form, READ, Route, WRITE, Whose};
use crate::error::{Exit, Stop};
use crate::told;

const GROUP: &str = "Care";
/// The default number of snapshots.
const SNAPSHOTS: usize = 1_000;
/// The most snapshots.
const MOST_SNAPSHOTS: usize = 10_000;
/// The default number of injected texts.
const INJECTED: usize = 5;
/// The most injected texts.
const MOST_INJECTED: usize = 1_000;
const REACH: &[Field] = &[
    Field::text("session", "Only this session; `last` is the most recent one"),
    Field::text("project", "Only this project"),
];

/// The routes of maintenance.
pub const ROUTES: &[Route] = &[
    Route::get(
        READ,
        "/api/snapshots",
        GROUP,
        "List the snapshots that can be restored, newest first",
        "Snapshots",
        snapshots,
    )
    .query(&[Field::new("limit", Form::Between(1, MOST_SNAPSHOTS), "Maximum number; default 1000")])
    .example("/api/snapshots?limit=5", None),
    Route::post(
        WRITE,
        "/api/snapshots",
        GROUP,
        "Take a snapshot; null if nothing changed since the last one",
        "SnapshotMade",
        snapshot,
    )
    .body(Body::One(&[Field::text("note", "A note")]))
    .example("/api/snapshots", Some(r#"{"note":"before the migration"}"#)),
    Route::post(
        WRITE,
        "/api/undo",
        GROUP,
        "Restore the last snapshot, or `to`; the current state is saved first, so a second undo restores it",
        "UndoneOrNot",
        undo,
    )
    .body(Body::One(&[Field::text("to", "The snapshot; default the last one")]))
    .example("/api/undo", Some("{}")),
    Route::post(
        WRITE,
        "/api/doctor",
        GROUP,
        "Report what is wrong; with `fix`, repair what can be repaired without data loss",
        "Doctor",
        doctor,
    )
    .body(Body::One(&[Field::new("fix", Form::Yes, "Repair it")]))
    .example("/api/doctor", Some("{}")),
    Route::post(
        WRITE,
        "/api/reindex",
        GROUP,
        "Rebuild everything derived from the files",
        "Reindexed",
        reindex,
    )
    .body(Body::One(&[Field::new(
        "words",
        Form::Yes,
        "Skip the slowest part: the embedding vectors for semantic search",
    )]))
    .example("/api/reindex", Some(r#"{"words":true}"#)),
    Route::get(
        READ,
        "/api/config",
        GROUP,
        "The effective settings of the vault",
        "Policy",
        config_show,
    ),
    Route::get(
        READ,
        "/api/config/check",
        GROUP,
        "Check icecore.toml; problems are returned as the error",
        "Fine",
        config_check,
    ),
    Route::get(
        READ,
        "/api/pauses",
        GROUP,
        "List what is paused: nothing of it is captured",
        "Paused",
        pauses,
    ),
    Route::post(
        WRITE,
        "/api/pauses",
        GROUP,
        "Pause capture: for a while, in a session, in a project",
        "Paused",
        begin_pause,
    )
    .body(Body::One(&[
        Field::text("session", "Only this session; `last` is the most recent one"),
        Field::text("project", "Only this project"),
        Field::text("for", "The duration, e.g. 30m, 1h, 2d; until resumed if omitted"),
    ]))
    .example("/api/pauses", Some(r#"{"for":"1s"}"#)),
    Route::post(
        WRITE,
        "/api/resume",
        GROUP,
        "Resume capture; without a session or project, all pauses end",
        "Resumed",
        resume,
    )
    .body(Body::One(REACH))
    .example("/api/resume", Some("{}")),
    Route::get(
        READ,
        "/api/injected",
        GROUP,
        "The exact text that hooks injected into recent prompts, and why, newest first",
        "InjectedList",
        injected,
    )
    .query(&[
        Field::new("last", Form::Between(1, MOST_INJECTED), "Maximum number; default 5"),
        Field::text("session", "Only this session; `last` is the most recent one"),
    ])
    .example("/api/injected?last=3", None),
    Route::get(
        READ,
        "/api/triggers",
        GROUP,
        "The triggers that load pages: the user's own, and suggestions from pages",
        "Triggers",
        triggers,
    ),
    Route::post(
        WRITE,
        "/api/triggers",
        GROUP,
        "Append the suggestions to recall/triggers.json",
        "TriggersKept",
        keep_triggers,
    )
    .body(Body::One(&[]))
    .example("/api/triggers", Some("{}")),
    Route::get(
        READ,
        "/api/merge",
        GROUP,
        "The merge status with other machines",
        "MergeStatus",
        merge_status,
    ),
    Route::post(
        WRITE,
        "/api/merge",
        GROUP,
        "Merge what another machine did in the same vault, as fetched by git",
        "MergeDone",
        merge,
    )
    .body(Body::One(&[Field::text(
        "other",
        "What to merge, such as origin/main; default the upstream branch",
    )]))
    .example("/api/merge", Some(r#"{"other":"origin/main"}"#)),
    Route::post(
        WRITE,
        "/api/model/check",
        GROUP,
        "Check that the configured model can be reached, streams and follows a schema",
        "ModelChecked",
        model,
    )
    .of(Whose::Everybodys)
    .body(Body::One(&[]))
    .example("/api/model/check", Some("{}")),
];

fn snapshots(call: Call) -> Doing {
    Box::pin(async move {
        let most = call.query.number("limit").unwrap_or(SNAPSHOTS);
        let memory = call.memory().await?;
        Answer::named("snapshots", &told::snapshots(&memory, &memory.snapshots(most).await?)?)
    })
}

fn snapshot(call: Call) -> Doing {
    Box::pin(async move {
        let note = call
            .body()?
            .text("note")
            .filter(|note| !note.trim().is_empty())
            .unwrap_or_else(|| "snapshot".into());
        let memory = call.memory().await?;
        Answer::named(
            "snapshot",
            &told::snapshots(&memory, memory.snapshot(&note).await?.as_slice())?.pop(),
        )
    })
}

fn undo(call: Call) -> Doing {
    Box::pin(async move {
        let undone = call.memory().await?.undo(call.body()?.one("to")).await?;
        // Settings may have changed, and open conversations cache their last turns.
        call.api.spaces.close(call.user.as_deref());
        Answer::named("undone", &undone)
    })
}

fn doctor(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        if !call.body()?.yes("fix") {
            let troubles = memory.hook_troubles().await?;
            return Answer::of(&told::doctor(&memory.verify().await?, &troubles));
        }
        let repairs = memory.mend().await?;
        call.api.spaces.close(call.user.as_deref());
        Answer::of(&told::repairs(&repairs))
    })
}

fn reindex(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let (events, open_loops, _) = memory.reindex(&|_, _| {}).await?;
        let passages = memory.renew_passages(&|_, _| {}).await?.new;
        let mut embedded = memory.embedded().await?;
        if let Some(model) = call
            .api
            .embedder()
            .filter(|_| !call.bodies.first().is_some_and(|said| said.yes("words")))
        {
            embedded = memory.embed_passages(model, usize::MAX, &|_, _| {}).await?;
        }
        Answer::of(&told::reindexed(events, open_loops, passages, embedded.have))
    })
}

fn config_show(call: Call) -> Doing {
    Box::pin(async move { Answer::of(call.memory().await?.policy()) })
}

fn config_check(call: Call) -> Doing {
    Box::pin(async move {
        let policy = config::load(call.memory().await?.store()).await?;
        Answer::of(&json!({ "ok": policy.warnings.is_empty() }))
    })
}

/// The session a caller names; `last` is the newest one.
async fn session(call: &Call, name: &str) -> anyhow::Result<String> {
    if name != "last" {
        return Ok(name.to_owned());
    }
    let last = call.memory().await?.last_session().await?;
    last.ok_or_else(|| {
        Stop::new(Exit::NotFound, "no hook has reported a session yet; name one").into()
    })
}

async fn reach(call: &Call, said: &Given) -> anyhow::Result<Reach> {
    match (said.one("session"), said.text("project")) {
        (Some(_), Some(_)) => Err(wrong("`session` and `project` are both given; give only one")),
        (Some(name), None) => Ok(Reach::Session(session(call, name).await?)),
        (None, Some(name)) => Ok(Reach::Project(name)),
        (None, None) => Ok(Reach::Everything),
    }
}

fn pauses(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let (pauses, now) = (memory.pauses().await?, memory.now());
        Answer::named("paused", &pauses.at(now.at()).map(told::pause).collect::<Vec<_>>())
    })
}

fn begin_pause(call: Call) -> Doing {
    Box::pin(async move {
        let said = call.body()?;
        let seconds = said.read("for", pause::seconds)?;
        let reach = reach(&call, said).await?;
        let begun = call.memory().await?.pause_for(reach, seconds).await?;
        Answer::named("paused", &[told::pause(&begun)])
    })
}

fn resume(call: Call) -> Doing {
    Box::pin(async move {
        let reach = reach(&call, call.body()?).await?;
        let ended = call.memory().await?.resume(&reach).await?;
        Answer::named("resumed", &ended.iter().map(told::pause).collect::<Vec<_>>())
    })
}

fn injected(call: Call) -> Doing {
    Box::pin(async move {
        let name = match call.query.one("session") {
            Some(name) => Some(session(&call, name).await?),
            None => None,
        };
        let most = call.query.number("last").unwrap_or(INJECTED);
        Answer::named("injected", &call.memory().await?.injected(most, name.as_deref()).await?)
    })
}

fn triggers(call: Call) -> Doing {
    Box::pin(async move { Answer::of(&call.memory().await?.triggers().await?) })
}

fn keep_triggers(call: Call) -> Doing {
    Box::pin(async move {
        let added = call.memory().await?.keep_triggers().await?;
        Answer::of(&json!({ "added": added, "path": icecore_domain::layout::TRIGGERS }))
    })
}

fn merge_status(call: Call) -> Doing {
    Box::pin(async move { Answer::of(&call.memory().await?.merge_status().await?) })
}

fn merge(call: Call) -> Doing {
    Box::pin(async move {
        let models = call.api.spaces.models();
        let other = call.body()?.one("other");
        let merged =
            call.memory().await?.merge_in(other, models.asking().as_ref(), &|_, _, _| {}).await?;
        call.api.spaces.close(call.user.as_deref());
        Answer::of(&told::merged(&merged))
    })
}

fn model(call: Call) -> Doing {
    Box::pin(async move { Answer::of(&told::model(call.api.spaces.models()).await.0) })
}
