//! Conversations: reading, exporting and deleting them.

use icecore_domain::converse::turn::State;
use icecore_domain::id::EventId;
use serde_json::json;

use super::call::{Answer, Call, wrong};
use super::route::{Body, Doing, Field, Form, READ, Route, WRITE};
use crate::error::{Exit, Stop};
use crate::told;

const GROUP: &str = "Conversations";

/// The routes of conversations.
pub const ROUTES: &[Route] = &[
    Route::get(
        READ,
        "/api/conversations",
        GROUP,
        "List conversations, latest first",
        "Conversations",
        list,
    ),
    Route::get(
        READ,
        "/api/conversations/{name}",
        GROUP,
        "A conversation: its facts, its turns, its artifacts",
        "Conversation",
        show,
    )
    .example("/api/conversations/trip", None),
    Route::get(
        READ,
        "/api/conversations/{name}/facts",
        GROUP,
        "The facts of a conversation, now or at the end of a turn",
        "Facts",
        facts,
    )
    .query(&[Field::new("turn", Form::Number, "At the end of this turn")])
    .example("/api/conversations/trip/facts?turn=12", None),
    Route::get(
        READ,
        "/api/conversations/{name}/turns",
        GROUP,
        "The turns as one line each; or one turn, word for word",
        "Turns",
        turns,
    )
    .query(&[
        Field::new("turn", Form::Number, "Return the messages of this turn, word for word"),
        Field::new("unsummarized", Form::Yes, "Only turns that could not be summarized"),
    ])
    .example("/api/conversations/trip/turns?unsummarized=true", None),
    Route::get(
        READ,
        "/api/conversations/{name}/artifacts",
        GROUP,
        "Every version of the conversation's artifacts (code and drafts)",
        "Artifacts",
        artifacts,
    )
    .example("/api/conversations/trip/artifacts", None),
    Route::get(
        READ,
        "/api/conversations/{name}/artifacts/{which}",
        GROUP,
        "One version of an artifact",
        "Artifact",
        artifact,
    )
    .example("/api/conversations/trip/artifacts/sort.py@v1", None),
    Route::get(
        READ,
        "/api/conversations/{name}/artifacts/{which}/diff",
        GROUP,
        "The diff between two versions of an artifact",
        "Diff",
        artifact_diff,
    )
    .query(&[Field::text("to", "The other version: NAME, NAME@v2 or NAME@turn-3").must()])
    .example("/api/conversations/trip/artifacts/sort.py@v1/diff?to=sort.py@v2", None),
    Route::get(
        READ,
        "/api/conversations/{name}/diff",
        GROUP,
        "How the facts changed between the ends of two turns",
        "Changes",
        diff,
    )
    .query(&[
        Field::new("from", Form::Number, "The earlier turn; 0 for the beginning").must(),
        Field::new("to", Form::Number, "The later turn").must(),
    ])
    .example("/api/conversations/trip/diff?from=0&to=5", None),
    Route::post(
        WRITE,
        "/api/conversations/{name}/retry",
        GROUP,
        "Retry summarizing turns that could not be summarized",
        "Reflected",
        retry,
    )
    .body(Body::One(&[]))
    .example("/api/conversations/trip/retry", Some("{}")),
    Route::post(
        WRITE,
        "/api/conversations/{name}/promote",
        GROUP,
        "Promote a fact to all conversations",
        "Promoted",
        promote,
    )
    .body(Body::One(&[Field::new("id", Form::Id, "The fact").must()]))
    .example("/api/conversations/trip/promote", Some(r#"{"id":"EVT-20260213-004"}"#)),
    Route::get(
        READ,
        "/api/conversations/{name}/export",
        GROUP,
        "Export everything stored about a conversation",
        "ConversationExport",
        export,
    )
    .example("/api/conversations/trip/export", None),
    Route::delete(
        WRITE,
        "/api/conversations/{name}",
        GROUP,
        "Delete a conversation: its messages, facts, turns and artifacts",
        "Forgotten",
        forget,
    )
    .example("/api/conversations/trip", None),
];

fn turn_of(call: &Call, name: &str) -> Option<u64> {
    call.query.number(name).map(|turn| turn as u64)
}

fn list(call: Call) -> Doing {
    Box::pin(
        async move { Answer::named("conversations", &call.chats().await?.conversations().await?) },
    )
}

fn show(call: Call) -> Doing {
    Box::pin(async move {
        let (chats, name) = (call.chats().await?, call.path("name"));
        let (facts, turns, artifacts) = (
            chats.facts(name, None).await?,
            chats.turns(name).await?,
            chats.artifacts(name).await?,
        );
        Answer::of(&told::conversation(name, &facts, &turns, &artifacts))
    })
}

fn facts(call: Call) -> Doing {
    Box::pin(async move {
        let facts = call.chats().await?.facts(call.path("name"), turn_of(&call, "turn")).await?;
        Answer::named("facts", &told::facts(&facts))
    })
}

fn turns(call: Call) -> Doing {
    Box::pin(async move {
        let (chats, name) = (call.chats().await?, call.path("name"));
        if let Some(turn) = turn_of(&call, "turn") {
            if call.query.yes("unsummarized") {
                return Err(wrong("`turn` names one turn; omit `unsummarized`"));
            }
            return Answer::named("messages", &told::messages(&chats.said(name, turn).await?));
        }
        let mut lines = chats.turns(name).await?;
        if call.query.yes("unsummarized") {
            lines.retain(|line| line.state == State::Raw);
        }
        Answer::named("turns", &told::turns(&lines))
    })
}

fn artifacts(call: Call) -> Doing {
    Box::pin(async move {
        Answer::named("artifacts", &call.chats().await?.artifacts(call.path("name")).await?)
    })
}

fn artifact(call: Call) -> Doing {
    Box::pin(async move {
        let (kept, text) =
            call.chats().await?.artifact(call.path("name"), call.path("which")).await?;
        Answer::of(&json!({ "artifact": kept, "text": text }))
    })
}

fn artifact_diff(call: Call) -> Doing {
    Box::pin(async move {
        let (chats, name) = (call.chats().await?, call.path("name"));
        let ((old, before), (new, after)) = (
            chats.artifact(name, call.path("which")).await?,
            chats.artifact(name, call.query.one("to").unwrap_or_default()).await?,
        );
        Answer::named("diff", &told::artifact_diff((&old, &before), (&new, &after)))
    })
}

fn diff(call: Call) -> Doing {
    Box::pin(async move {
        let (from, to) =
            (turn_of(&call, "from").unwrap_or_default(), turn_of(&call, "to").unwrap_or_default());
        Answer::of(&told::changes(&call.chats().await?.changes(call.path("name"), from, to).await?))
    })
}

fn retry(call: Call) -> Doing {
    Box::pin(async move {
        let (chats, name) = (call.chats().await?, call.path("name"));
        // An unknown name is reported before a model is asked.
        chats.turns(name).await?;
        let models = call.api.spaces.models();
        if models.summarizer.is_none() {
            let message =
                "no summarizer model is configured; set [summarizer] in the server's config.toml";
            return Err(Stop::new(Exit::Conflict, message).into());
        }
        Answer::of(&chats.reflect(name, models.asking().as_ref(), true).await?)
    })
}

fn promote(call: Call) -> Doing {
    Box::pin(async move {
        let id =
            call.body()?.read("id", EventId::from_hand)?.ok_or_else(|| wrong("`id` is missing"))?;
        let event = call.chats().await?.promote(call.path("name"), id).await?;
        Answer::of(&json!({ "id": event.id.to_string(), "content": event.content }))
    })
}

fn export(call: Call) -> Doing {
    Box::pin(async move { Answer::of(&call.chats().await?.export(call.path("name")).await?) })
}

fn forget(call: Call) -> Doing {
    Box::pin(async move { Answer::of(&call.chats().await?.forget(call.path("name")).await?) })
}
