//! The payload of a hook: the JSON object on standard input. Every field is untrusted and may be
//! missing.

use std::path::Path;

use icecore_domain::record::MAX_NAME_BYTES;
use icecore_domain::{json, plain};
use icecore_engine::{Attended, project};
use serde_json::Value;

use super::call::{Call, Client, Event};
use super::unnamed;

/// The fields of a payload that we use.
#[derive(Debug, Clone)]
pub struct Heard {
    pub session: Attended,
    pub client: Client,
    pub source: Option<String>,
    pub prompt: Option<String>,
    pub reply: Option<String>,
    /// The kind of a subagent.
    pub agent: Option<String>,
    pub agent_id: Option<String>,
    pub agent_transcript: Option<String>,
    /// The user's instructions for a compaction.
    pub wish: Option<String>,
    /// The result of a compaction.
    pub summary: Option<String>,
}

impl Heard {
    pub fn read(input: &[u8], call: &Call) -> Result<Self, String> {
        // A client may cut text inside a character; the rest is still valid.
        let text = String::from_utf8_lossy(input);
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            return Err("the client sent nothing".into());
        }
        let fields: Value =
            json::read(text).map_err(|error| format!("the client sent invalid JSON: {error}"))?;
        if !fields.is_object() {
            return Err("the client sent JSON that is not an object".into());
        }
        Ok(Self::of(&fields, call))
    }

    /// Whether it brings text to store for this event.
    pub fn has_words(&self, event: Event) -> bool {
        match event {
            Event::UserPromptSubmit => self.prompt.is_some(),
            Event::Stop | Event::SubagentStop => self.reply.is_some(),
            Event::PostCompact => self.summary.is_some(),
            _ => false,
        }
    }

    fn of(fields: &Value, call: &Call) -> Self {
        let text = |name: &str| match &fields[name] {
            Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
            _ => None,
        };
        let name = |field: &str| match &fields[field] {
            Value::String(text) => named(text),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let client = call.client.unwrap_or_else(|| guessed(fields));
        let folder = text("cwd").or_else(|| std::env::var("CLAUDE_PROJECT_DIR").ok());
        let session = Attended {
            session: name("session_id").unwrap_or(unnamed().session),
            project: folder.and_then(|folder| project::of(Path::new(&folder))),
            client: client.word().into(),
            transcript: text("transcript_path"),
            turn: name("prompt_id").or_else(|| name("turn_id")),
        };
        Self {
            session,
            client,
            source: text("source"),
            prompt: text("prompt"),
            reply: text("last_assistant_message"),
            agent: name("agent_type"),
            agent_id: name("agent_id"),
            agent_transcript: text("agent_transcript_path"),
            wish: text("custom_instructions"),
            summary: text("compact_summary"),
        }
    }
}

/// A name that can be stored: one line of limited length.
fn named(text: &str) -> Option<String> {
    let line = plain::one_line(text.trim());
    let name = line[..line.floor_char_boundary(MAX_NAME_BYTES)].trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Guesses the client by fields that only one of them sends: Codex numbers turns, and has sessions
/// without a transcript.
fn guessed(fields: &Value) -> Client {
    let path = fields["transcript_path"].as_str();
    let codex = fields["turn_id"].is_string()
        || fields.get("transcript_path").is_some_and(Value::is_null)
        || path.is_some_and(|path| {
            let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
            name.starts_with("rollout-") || path.contains("/.codex/")
        });
    if codex { Client::Codex } else { Client::ClaudeCode }
}
