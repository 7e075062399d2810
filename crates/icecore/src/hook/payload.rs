//! The payload of a hook: the JSON object on standard input. Every field is untrusted and may be
//! missing.

use std::path::Path;

use icecore_domain::record::MAX_NAME_BYTES;
use icecore_domain::{json, sanitize};
use icecore_engine::{LiveSession, project};
use serde_json::Value;

use super::call::{HookCall, HookClient, HookEvent};
use super::unnamed_session;

/// The fields of a payload that we use.
#[derive(Debug, Clone)]
pub struct HookPayload {
    pub session: LiveSession,
    pub client: HookClient,
    pub source: Option<String>,
    pub prompt: Option<String>,
    pub reply: Option<String>,
    /// The kind of a subagent.
    pub agent: Option<String>,
    pub agent_id: Option<String>,
    pub agent_transcript: Option<String>,
    /// The user's instructions for a compaction.
    pub instructions: Option<String>,
    /// The result of a compaction.
    pub summary: Option<String>,
}

impl HookPayload {
    /// Parses a client's payload.
    pub fn parse(input: &[u8], call: &HookCall) -> Result<Self, String> {
        // A client may cut text inside a character; the rest is still valid.
        let text = String::from_utf8_lossy(input);
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            return Err("the client sent nothing".into());
        }
        let fields: Value =
            json::parse(text).map_err(|error| format!("the client sent invalid JSON: {error}"))?;
        if !fields.is_object() {
            return Err("the client sent JSON that is not an object".into());
        }
        Ok(Self::from_fields(&fields, call))
    }

    /// Whether it brings text to store for this event.
    pub fn has_text(&self, event: HookEvent) -> bool {
        match event {
            HookEvent::UserPromptSubmit => self.prompt.is_some(),
            HookEvent::Stop | HookEvent::SubagentStop => self.reply.is_some(),
            HookEvent::PostCompact => self.summary.is_some(),
            _ => false,
        }
    }

    fn from_fields(fields: &Value, call: &HookCall) -> Self {
        let text = |name: &str| match &fields[name] {
            Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
            _ => None,
        };
        let name = |field: &str| match &fields[field] {
            Value::String(text) => clean_name(text),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let client = call.client.unwrap_or_else(|| guess_client(fields));
        let folder = text("cwd").or_else(|| std::env::var("CLAUDE_PROJECT_DIR").ok());
        let session = LiveSession {
            session: name("session_id").unwrap_or(unnamed_session().session),
            project: folder.and_then(|folder| project::project_of(Path::new(&folder))),
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
            instructions: text("custom_instructions"),
            summary: text("compact_summary"),
        }
    }
}

/// A name that can be stored: one line of limited length.
fn clean_name(text: &str) -> Option<String> {
    let line = sanitize::one_line(text.trim());
    let name = line[..line.floor_char_boundary(MAX_NAME_BYTES)].trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Guesses the client by fields that only one of them sends: Codex numbers turns, and has sessions
/// without a transcript.
fn guess_client(fields: &Value) -> HookClient {
    let path = fields["transcript_path"].as_str();
    let codex = fields["turn_id"].is_string()
        || fields.get("transcript_path").is_some_and(Value::is_null)
        || path.is_some_and(|path| {
            let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
            name.starts_with("rollout-") || path.contains("/.codex/")
        });
    if codex { HookClient::Codex } else { HookClient::ClaudeCode }
}
