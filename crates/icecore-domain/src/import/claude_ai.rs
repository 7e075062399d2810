//! The export of Claude.ai: conversations with their attachments, and Claude's notes about the
//! user.

use jiff::tz::Offset;

use super::document::noted;
use super::{Fact, Format, Harvest, time};
use crate::event::Origin;
use crate::record::{Role, Said};
use crate::transcript::{Object, text, trim_blank_lines};

/// Reads a conversation, or an account's memories.
pub(super) fn conversation(number: usize, object: &Object<'_>, offset: Offset, into: &mut Harvest) {
    let Some(messages) = object.list("chat_messages") else {
        return memories(number, object, into);
    };
    let session = object.first(&["uuid", "id"]);
    let mut title = object.first(&["name"]);
    let mut last = time(object, &["created_at"], offset);
    for (at, message) in messages.iter().enumerate() {
        let Ok(message) = Object::read(message.get()) else {
            into.complain(number, "has a message that is not a JSON object");
            continue;
        };
        last = time(&message, &["created_at"], offset).or(last);
        let role = match message.text("sender").as_deref() {
            Some("human") => Role::User,
            Some("assistant") => Role::Assistant,
            other => {
                into.skip(&format!("sender {}", other.unwrap_or("unknown")), 1);
                continue;
            }
        };
        let id = message
            .first(&["uuid", "id"])
            .or_else(|| session.as_ref().map(|session| format!("{session}.{at}")));
        let base = Said {
            ts: last,
            conversation: Format::ClaudeAi.conversation().map(str::to_owned),
            session: session.clone(),
            ..Said::default()
        };
        let words = words(&message, into);
        if words.trim().is_empty() {
            into.skip("empty", 1);
        } else {
            into.say(
                number,
                Said {
                    id: id.clone(),
                    role: Some(role),
                    text: words,
                    title: title.take(),
                    ..base.clone()
                },
            );
        }
        for (at, attached) in message.list("attachments").unwrap_or_default().iter().enumerate() {
            let Ok(attached) = Object::read(attached.get()) else { continue };
            let Some(words) = attached.first(&["extracted_content"]) else {
                into.skip("attachment without text", 1);
                continue;
            };
            // The content of a file is not the words of the person who attached it.
            into.say(
                number,
                Said {
                    id: id.as_ref().map(|id| format!("{id}.attached.{}", at + 1)),
                    role: Some(Role::Tool),
                    name: attached.first(&["file_name"]),
                    text: words,
                    ..base.clone()
                },
            );
        }
    }
}

fn words(message: &Object<'_>, into: &mut Harvest) -> String {
    let mut said: Vec<String> = Vec::new();
    for part in message.list("content").unwrap_or_default() {
        let Ok(part) = Object::read(part.get()) else { continue };
        match part.text("type").as_deref() {
            Some("text") | None => said.extend(part.first(&["text"])),
            Some("thinking" | "redacted_thinking") => into.skip("thinking", 1),
            Some("tool_use") => into.skip("tool call", 1),
            Some("tool_result") => into.skip("tool output", 1),
            Some(other) => into.skip(&format!("{other} content"), 1),
        }
    }
    if said.is_empty() {
        said.extend(message.first(&["text"]));
    }
    let files = message.list("files").unwrap_or_default();
    let names = files
        .iter()
        .filter_map(|file| Object::read(file.get()).ok())
        .filter_map(|file| file.first(&["file_name"]));
    said.extend(names.map(|name| format!("[file: {name}]")));
    trim_blank_lines(&said.join("\n\n")).to_owned()
}

/// Reads Claude's notes about an account: one text for everything, and one per project.
fn memories(number: usize, object: &Object<'_>, into: &mut Harvest) {
    let whole = object.first(&["conversations_memory", "memory"]);
    let projects = object.object("project_memories");
    if whole.is_none() && projects.is_none() {
        return into
            .complain(number, "has neither `chat_messages` nor memories; not a Claude.ai export");
    }
    let mut learn = |name: &str, text: &str, project: Option<&str>| {
        for fact in noted(name, text, None) {
            into.facts.push(Fact {
                origin: Origin::Assistant,
                project: project.map(str::to_owned),
                ..fact
            });
        }
    };
    if let Some(whole) = whole {
        learn("claude-ai/memory", &whole, None);
    }
    for (id, json) in projects.iter().flat_map(Object::fields) {
        if let Some(words) = text(json) {
            learn(&format!("claude-ai/memory/{id}"), &words, Some(id));
        }
    }
}
