//! What a client tells: the JSON object on standard input. Every field is a stranger's word and may
//! be missing.

use std::path::Path;

use icecore_domain::record::MAX_NAME_BYTES;
use icecore_domain::{json, plain};
use icecore_engine::{Attended, project};
use serde_json::Value;

use super::call::{Call, Client, Event};
use super::unnamed;

/// An event as far as we have to do with it.
#[derive(Debug, Clone)]
pub struct Heard {
    /// The session.
    pub session: Attended,
    /// Whose it is.
    pub client: Client,
    /// Why a session starts.
    pub source: Option<String>,
    /// What the person says.
    pub prompt: Option<String>,
    /// What the assistant answered.
    pub reply: Option<String>,
    /// A helper's kind.
    pub agent: Option<String>,
    /// Its name within the session.
    pub agent_id: Option<String>,
    /// Where its transcript is.
    pub agent_transcript: Option<String>,
    /// What the person wants a compaction to keep.
    pub wish: Option<String>,
    /// What a compaction came to.
    pub summary: Option<String>,
}

impl Heard {
    pub fn read(input: &[u8], call: &Call) -> Result<Self, String> {
        // Where a client cuts a text inside a character, the rest of it is still good.
        let text = String::from_utf8_lossy(input);
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            return Err("the client sent nothing".into());
        }
        let fields: Value = json::read(text)
            .map_err(|error| format!("the client sent something else than JSON: {error}"))?;
        if !fields.is_object() {
            return Err("the client sent JSON that is not an object".into());
        }
        Ok(Self::of(&fields, call))
    }

    /// Whether it brings something that was said.
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

/// A name as it can be kept: one line, not too long.
fn named(text: &str) -> Option<String> {
    let line = plain::one_line(text.trim());
    let name = line[..line.floor_char_boundary(MAX_NAME_BYTES)].trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Whose event it is, by what only one of them says: Codex numbers turns, and has sessions without
/// a transcript.
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
