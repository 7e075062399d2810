//! Conversations: reading, exporting and deleting them.

use icecore_domain::converse::turn_log::TurnState;
use icecore_domain::id::EventId;
use serde_json::json;

use super::call::{ApiAnswer, ApiCall, usage_error};
use super::route::{BodySpec, HandlerFuture, InputField, READ, RouteSpec, ValueType, WRITE};
use crate::error::{AppError, Exit};
use crate::json_output;

const GROUP: &str = "Conversations";

/// The routes of conversations.
pub const ROUTES: &[RouteSpec] = &[
    RouteSpec::get(
        READ,
        "/api/conversations",
        GROUP,
        "List conversations, latest first",
        "Conversations",
        list,
    ),
    RouteSpec::get(
        READ,
        "/api/conversations/{name}",
        GROUP,
        "A conversation: its facts, its turns, its artifacts",
        "Conversation",
        show,
    )
    .example("/api/conversations/trip", None),
    RouteSpec::get(
        READ,
        "/api/conversations/{name}/facts",
        GROUP,
        "The facts of a conversation, now or at the end of a turn",
        "Facts",
        list_facts,
    )
    .query(&[InputField::new("turn", ValueType::Number, "At the end of this turn")])
    .example("/api/conversations/trip/facts?turn=12", None),
    RouteSpec::get(
        READ,
        "/api/conversations/{name}/turns",
        GROUP,
        "The turns as one line each; or one turn, word for word",
        "Turns",
        list_turns,
    )
    .query(&[
        InputField::new(
            "turn",
            ValueType::Number,
            "Return the messages of this turn, word for word",
        ),
        InputField::new("unsummarized", ValueType::Yes, "Only turns that could not be summarized"),
    ])
    .example("/api/conversations/trip/turns?unsummarized=true", None),
    RouteSpec::get(
        READ,
        "/api/conversations/{name}/artifacts",
        GROUP,
        "Every version of the conversation's artifacts (code and drafts)",
        "Artifacts",
        list_artifacts,
    )
    .example("/api/conversations/trip/artifacts", None),
    RouteSpec::get(
        READ,
        "/api/conversations/{name}/artifacts/{which}",
        GROUP,
        "One version of an artifact",
        "Artifact",
        show_artifact,
    )
    .example("/api/conversations/trip/artifacts/sort.py@v1", None),
    RouteSpec::get(
        READ,
        "/api/conversations/{name}/artifacts/{which}/diff",
        GROUP,
        "The diff between two versions of an artifact",
        "Diff",
        diff_artifacts,
    )
    .query(&[InputField::text("to", "The other version: NAME, NAME@v2 or NAME@turn-3").require()])
    .example("/api/conversations/trip/artifacts/sort.py@v1/diff?to=sort.py@v2", None),
    RouteSpec::get(
        READ,
        "/api/conversations/{name}/diff",
        GROUP,
        "How the facts changed between the ends of two turns",
        "FactChanges",
        diff,
    )
    .query(&[
        InputField::new("from", ValueType::Number, "The earlier turn; 0 for the beginning")
            .require(),
        InputField::new("to", ValueType::Number, "The later turn").require(),
    ])
    .example("/api/conversations/trip/diff?from=0&to=5", None),
    RouteSpec::post(
        WRITE,
        "/api/conversations/{name}/retry",
        GROUP,
        "Retry summarizing turns that could not be summarized",
        "RetryReport",
        retry,
    )
    .body(BodySpec::One(&[]))
    .example("/api/conversations/trip/retry", Some("{}")),
    RouteSpec::post(
        WRITE,
        "/api/conversations/{name}/promote",
        GROUP,
        "Promote a fact to all conversations",
        "PromotedFact",
        promote,
    )
    .body(BodySpec::One(&[InputField::new("id", ValueType::Id, "The fact").require()]))
    .example("/api/conversations/trip/promote", Some(r#"{"id":"EVT-20260213-004"}"#)),
    RouteSpec::get(
        READ,
        "/api/conversations/{name}/export",
        GROUP,
        "Export everything stored about a conversation",
        "ConversationExport",
        export,
    )
    .example("/api/conversations/trip/export", None),
    RouteSpec::delete(
        WRITE,
        "/api/conversations/{name}",
        GROUP,
        "Delete a conversation: its messages, facts, turns and artifacts",
        "DeletedConversation",
        forget,
    )
    .example("/api/conversations/trip", None),
];

fn turn_param(call: &ApiCall, name: &str) -> Option<u64> {
    call.query.get_number(name).map(|turn| turn as u64)
}

fn list(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::with_key("conversations", &call.open_chats().await?.conversations().await?)
    })
}

fn show(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (chats, name) = (call.open_chats().await?, call.path_param("name"));
        let (facts, turns, artifacts) = (
            chats.facts(name, None).await?,
            chats.turns(name).await?,
            chats.artifacts(name).await?,
        );
        ApiAnswer::from_value(&json_output::conversation(name, &facts, &turns, &artifacts))
    })
}

fn list_facts(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let facts = call
            .open_chats()
            .await?
            .facts(call.path_param("name"), turn_param(&call, "turn"))
            .await?;
        ApiAnswer::with_key("facts", &json_output::facts(&facts))
    })
}

fn list_turns(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (chats, name) = (call.open_chats().await?, call.path_param("name"));
        if let Some(turn) = turn_param(&call, "turn") {
            if call.query.is_true("unsummarized") {
                return Err(usage_error("`turn` names one turn; omit `unsummarized`"));
            }
            return ApiAnswer::with_key(
                "messages",
                &json_output::messages(&chats.turn_records(name, turn).await?),
            );
        }
        let mut lines = chats.turns(name).await?;
        if call.query.is_true("unsummarized") {
            lines.retain(|line| line.state == TurnState::Raw);
        }
        ApiAnswer::with_key("turns", &json_output::turns(&lines))
    })
}

fn list_artifacts(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::with_key(
            "artifacts",
            &call.open_chats().await?.artifacts(call.path_param("name")).await?,
        )
    })
}

fn show_artifact(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (kept, text) = call
            .open_chats()
            .await?
            .artifact(call.path_param("name"), call.path_param("which"))
            .await?;
        ApiAnswer::from_value(&json!({ "artifact": kept, "text": text }))
    })
}

fn diff_artifacts(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (chats, name) = (call.open_chats().await?, call.path_param("name"));
        let ((old, before), (new, after)) = (
            chats.artifact(name, call.path_param("which")).await?,
            chats.artifact(name, call.query.get("to").unwrap_or_default()).await?,
        );
        ApiAnswer::with_key("diff", &json_output::artifact_diff((&old, &before), (&new, &after)))
    })
}

fn diff(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (from, to) = (
            turn_param(&call, "from").unwrap_or_default(),
            turn_param(&call, "to").unwrap_or_default(),
        );
        ApiAnswer::from_value(&json_output::changes(
            &call.open_chats().await?.compare_facts(call.path_param("name"), from, to).await?,
        ))
    })
}

fn retry(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (chats, name) = (call.open_chats().await?, call.path_param("name"));
        // An unknown name is reported before a model is asked.
        chats.turns(name).await?;
        let models = call.api.spaces.models();
        if models.summarizer.is_none() {
            let message =
                "no summarizer model is configured; set [summarizer] in the server's config.toml";
            return Err(AppError::new(Exit::Conflict, message).into());
        }
        ApiAnswer::from_value(&chats.reflect(name, models.model_budget().as_ref(), true).await?)
    })
}

fn promote(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let id = call
            .body()?
            .parse_field("id", EventId::parse_lenient)?
            .ok_or_else(|| usage_error("`id` is missing"))?;
        let event = call.open_chats().await?.promote(call.path_param("name"), id).await?;
        ApiAnswer::from_value(&json!({ "id": event.id.to_string(), "content": event.content }))
    })
}

fn export(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::from_value(&call.open_chats().await?.export(call.path_param("name")).await?)
    })
}

fn forget(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::from_value(
            &call.open_chats().await?.delete_conversation(call.path_param("name")).await?,
        )
    })
}
