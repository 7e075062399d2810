//! OpenAI's chat completions API: reading messages, inserting text, collecting a reply.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::body::{self, BodyEdits, RawObject};
use super::chat_memory::AssistantReply;
use super::messages;
use super::stream_tap::EventPosition;

/// The most tool calls of a reply that are collected.
const MAX_TOOL_CALLS: usize = 1_024;

/// The text of a message, and whether it contains tool calls or results.
pub fn message_text(message: &RawObject<'_>, role: &str) -> (String, bool) {
    let (texts, _) = messages::text_parts(message.get("content"));
    let calls = message
        .get("tool_calls")
        .and_then(body::parse_array)
        .is_some_and(|calls| !calls.is_empty());
    let has_tools =
        calls || message.get("function_call").is_some() || matches!(role, "tool" | "function");
    (texts.join("\n"), has_tools)
}

/// A message with one text.
pub fn text_message(role: &str, text: &str) -> String {
    format!("{{\"role\":{},\"content\":{}}}", body::json_string(role), body::json_string(text))
}

/// The message with `added` at its end; `None` if its content is neither text nor parts.
pub fn with_text(message: &str, object: &RawObject<'_>, added: &str) -> Option<String> {
    let content = object.get("content")?;
    let start = content.get().as_ptr() as usize - message.as_ptr() as usize;
    let place = start..start + content.get().len();
    let mut edits = BodyEdits::default();
    if let Some(text) = body::parse_string(content) {
        let gap = if text.is_empty() { "" } else { "\n\n" };
        edits.append_to_string(&place, &format!("{gap}{added}"));
    } else {
        let parts = body::parse_array(content)?;
        edits.append_to_array(
            &place,
            parts.is_empty(),
            &format!("{{\"type\":\"text\",\"text\":{}}}", body::json_string(added)),
        );
    }
    Some(edits.apply(message))
}

/// Collects a reply from its events. Of several choices, only the first is collected.
#[derive(Debug, Default)]
pub struct OpenAiReply {
    text: String,
    reasoning: String,
    calls: BTreeMap<u64, CollectedToolCall>,
    /// Tool calls of a complete reply, verbatim.
    written: Vec<String>,
    finish: Option<String>,
    usage: Option<(u64, u64)>,
    speaking: BTreeSet<u64>,
    finished: BTreeSet<u64>,
    closed: bool,
    broken: bool,
}

#[derive(Debug, Default)]
struct CollectedToolCall {
    id: String,
    kind: String,
    name: String,
    arguments: String,
}

impl OpenAiReply {
    /// Reads the data of an event.
    pub fn read_event(&mut self, data: &str) -> EventPosition {
        if data.trim() == "[DONE]" {
            self.closed = true;
            return EventPosition::Last;
        }
        let Some(event) = super::stream_tap::parse_lenient(data) else {
            return EventPosition::Unread;
        };
        if !event["error"].is_null() {
            self.broken = true;
            return EventPosition::Finish;
        }
        self.count_usage(&event["usage"]);
        for choice in event["choices"].as_array().into_iter().flatten() {
            let which = choice["index"].as_u64().unwrap_or(0);
            self.speaking.insert(which);
            if choice["finish_reason"].is_string() {
                self.finished.insert(which);
            }
            if which == 0 {
                self.append_delta(&choice["delta"]);
                self.finish =
                    choice["finish_reason"].as_str().map(str::to_owned).or(self.finish.take());
            }
        }
        if !self.speaking.is_empty() && self.finished.len() >= self.speaking.len() {
            EventPosition::Finish
        } else {
            EventPosition::Middle
        }
    }

    fn append_delta(&mut self, delta: &Value) {
        let said = |key: &str| delta[key].as_str().unwrap_or_default();
        self.text.push_str(said("content"));
        self.text.push_str(said("refusal"));
        self.reasoning.push_str(if delta["reasoning_content"].is_string() {
            said("reasoning_content")
        } else {
            said("reasoning")
        });
        for piece in delta["tool_calls"].as_array().into_iter().flatten() {
            self.append_tool_call(piece);
        }
        if delta["function_call"].is_object() {
            self.append_tool_call(
                &json!({ "index": 0, "type": "function", "function": delta["function_call"] }),
            );
        }
    }

    fn append_tool_call(&mut self, piece: &Value) {
        let id = piece["id"].as_str().unwrap_or_default();
        let last = self.calls.keys().next_back().copied();
        // Some servers send no index, and then complete calls.
        let index = piece["index"].as_u64().unwrap_or(match last {
            Some(last) if id.is_empty() => last,
            Some(last) => last + 1,
            None => 0,
        });
        if self.calls.len() >= MAX_TOOL_CALLS && !self.calls.contains_key(&index) {
            self.broken = true;
            return;
        }
        let call = self.calls.entry(index).or_default();
        if !id.is_empty() {
            id.clone_into(&mut call.id);
        }
        if let Some(kind) = piece["type"].as_str() {
            kind.clone_into(&mut call.kind);
        }
        call.name.push_str(piece["function"]["name"].as_str().unwrap_or_default());
        call.arguments.push_str(piece["function"]["arguments"].as_str().unwrap_or_default());
    }

    fn count_usage(&mut self, usage: &Value) {
        if let (Some(read), Some(written)) =
            (usage["prompt_tokens"].as_u64(), usage["completion_tokens"].as_u64())
        {
            self.usage = Some((read, written));
        }
    }

    /// Reads a reply that was not streamed.
    pub fn read_complete(&mut self, reply: &str) {
        let Ok(reply) = body::parse_object(reply, "the reply") else {
            self.broken = true;
            return;
        };
        if let Some(usage) =
            reply.get("usage").and_then(|usage| super::stream_tap::parse_lenient(usage.get()))
        {
            self.count_usage(&usage);
        }
        let choices = reply.get("choices").and_then(body::parse_array).unwrap_or_default();
        let choices: Vec<RawObject<'_>> = choices
            .iter()
            .filter_map(|choice| body::parse_object(choice.get(), "a choice").ok())
            .collect();
        let first = choices
            .iter()
            .find(|choice| choice.get_or_null("index").is_none_or(|index| index.get() == "0"))
            .or(choices.first());
        let Some((first, message)) = first.and_then(|first| {
            Some((first, body::parse_object(first.get("message")?.get(), "").ok()?))
        }) else {
            self.broken = true;
            return;
        };
        self.text = messages::text_parts(message.get("content")).0.join("\n");
        self.text.push_str(&message.text("refusal").unwrap_or_default());
        self.reasoning = message
            .text("reasoning_content")
            .or_else(|| message.text("reasoning"))
            .unwrap_or_default()
            .into_owned();
        let calls = message.get("tool_calls").and_then(body::parse_array).unwrap_or_default();
        self.written.extend(calls.iter().map(|call| call.get().to_owned()));
        if let Some(call) = message.get("function_call") {
            self.written.push(format!("{{\"type\":\"function\",\"function\":{}}}", call.get()));
        }
        self.finish = first.text("finish_reason").map(|word| word.into_owned());
        self.closed = true;
    }

    /// The collected size.
    pub fn collected_bytes(&self) -> usize {
        let calls = self.calls.values().map(|call| call.name.len() + call.arguments.len());
        self.text.len() + self.reasoning.len() + calls.sum::<usize>()
    }

    /// The reply so far; complete if the upstream said so.
    pub fn to_reply(&self) -> AssistantReply {
        let mut parts = Vec::new();
        if !self.reasoning.is_empty() {
            parts.push(json!({ "type": "reasoning", "text": self.reasoning }).to_string());
        }
        parts.extend(self.written.iter().cloned());
        parts.extend(self.calls.values().map(|call| {
            let kind = if call.kind.is_empty() { "function" } else { &call.kind };
            let function = json!({ "name": call.name, "arguments": call.arguments });
            json!({ "id": call.id, "type": kind, "function": function }).to_string()
        }));
        AssistantReply {
            text: self.text.clone(),
            parts: (!parts.is_empty()).then(|| format!("[{}]", parts.join(","))),
            finish: self.finish.clone(),
            usage: self.usage,
            complete: !self.broken && (self.closed || self.finish.is_some()),
            status: 200,
        }
    }
}
