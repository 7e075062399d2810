//! The export of Claude.ai: conversations with their attachments, and Claude's notes about the
//! user.

use jiff::tz::Offset;

use super::document::memory_statements;
use super::{ImportBatch, ImportFormat, ImportedFact, parse_time};
use crate::event::Origin;
use crate::record::{IncomingMessage, Role};
use crate::transcript::{JsonObject, text_value, trim_blank_lines};

/// Reads a conversation, or an account's memories.
pub(super) fn read_conversation(
    number: usize,
    object: &JsonObject<'_>,
    offset: Offset,
    into: &mut ImportBatch,
) {
    let Some(messages) = object.list("chat_messages") else {
        return read_memories(number, object, into);
    };
    let session = object.first_text(&["uuid", "id"]);
    let mut title = object.first_text(&["name"]);
    let mut last = parse_time(object, &["created_at"], offset);
    for (at, message) in messages.iter().enumerate() {
        let Ok(message) = JsonObject::parse(message.get()) else {
            into.add_complaint(number, "has a message that is not a JSON object");
            continue;
        };
        last = parse_time(&message, &["created_at"], offset).or(last);
        let role = match message.text("sender").as_deref() {
            Some("human") => Role::User,
            Some("assistant") => Role::Assistant,
            other => {
                into.count_skipped(&format!("sender {}", other.unwrap_or("unknown")), 1);
                continue;
            }
        };
        let id = message
            .first_text(&["uuid", "id"])
            .or_else(|| session.as_ref().map(|session| format!("{session}.{at}")));
        let base = IncomingMessage {
            ts: last,
            conversation: ImportFormat::ClaudeAi.default_conversation().map(str::to_owned),
            session: session.clone(),
            ..IncomingMessage::default()
        };
        let words = message_text(&message, into);
        if words.trim().is_empty() {
            into.count_skipped("empty", 1);
        } else {
            into.add_message(
                number,
                IncomingMessage {
                    id: id.clone(),
                    role: Some(role),
                    text: words,
                    title: title.take(),
                    ..base.clone()
                },
            );
        }
        for (at, attached) in message.list("attachments").unwrap_or_default().iter().enumerate() {
            let Ok(attached) = JsonObject::parse(attached.get()) else { continue };
            let Some(words) = attached.first_text(&["extracted_content"]) else {
                into.count_skipped("attachment without text", 1);
                continue;
            };
            // The content of a file is not the words of the person who attached it.
            into.add_message(
                number,
                IncomingMessage {
                    id: id.as_ref().map(|id| format!("{id}.attached.{}", at + 1)),
                    role: Some(Role::Tool),
                    name: attached.first_text(&["file_name"]),
                    text: words,
                    ..base.clone()
                },
            );
        }
    }
}

fn message_text(message: &JsonObject<'_>, into: &mut ImportBatch) -> String {
    let mut said: Vec<String> = Vec::new();
    for part in message.list("content").unwrap_or_default() {
        let Ok(part) = JsonObject::parse(part.get()) else { continue };
        match part.text("type").as_deref() {
            Some("text") | None => said.extend(part.first_text(&["text"])),
            Some("thinking" | "redacted_thinking") => into.count_skipped("thinking", 1),
            Some("tool_use") => into.count_skipped("tool call", 1),
            Some("tool_result") => into.count_skipped("tool output", 1),
            Some(other) => into.count_skipped(&format!("{other} content"), 1),
        }
    }
    if said.is_empty() {
        said.extend(message.first_text(&["text"]));
    }
    let files = message.list("files").unwrap_or_default();
    let names = files
        .iter()
        .filter_map(|file| JsonObject::parse(file.get()).ok())
        .filter_map(|file| file.first_text(&["file_name"]));
    said.extend(names.map(|name| format!("[file: {name}]")));
    trim_blank_lines(&said.join("\n\n")).to_owned()
}

/// Reads Claude's notes about an account: one text for everything, and one per project.
fn read_memories(number: usize, object: &JsonObject<'_>, into: &mut ImportBatch) {
    let whole = object.first_text(&["conversations_memory", "memory"]);
    let projects = object.object("project_memories");
    if whole.is_none() && projects.is_none() {
        return into.add_complaint(
            number,
            "has neither `chat_messages` nor memories; not a Claude.ai export",
        );
    }
    let mut learn = |name: &str, text: &str, project: Option<&str>| {
        for fact in memory_statements(name, text, None) {
            into.facts.push(ImportedFact {
                origin: Origin::Assistant,
                project: project.map(str::to_owned),
                ..fact
            });
        }
    };
    if let Some(whole) = whole {
        learn("claude-ai/memory", &whole, None);
    }
    for (id, json) in projects.iter().flat_map(JsonObject::fields) {
        if let Some(words) = text_value(json) {
            learn(&format!("claude-ai/memory/{id}"), &words, Some(id));
        }
    }
}
