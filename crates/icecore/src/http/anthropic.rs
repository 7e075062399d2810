//! Anthropic's Messages API: reading messages, inserting text blocks, collecting a reply.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::body::{self, BodyEdits, RawObject, RequestBody};
use super::chat_memory::AssistantReply;
use super::messages;
use super::stream_tap::EventPosition;

/// The most blocks of a reply that are collected.
const MAX_BLOCKS: usize = 4_096;

/// The text of a message, and whether it contains tool calls or results.
pub fn message_text(message: &RawObject<'_>) -> (String, bool) {
    let (texts, kinds) = messages::text_parts(message.get("content"));
    (
        texts.join("\n"),
        kinds.iter().any(|kind| kind.ends_with("tool_use") || kind.ends_with("tool_result")),
    )
}

fn text_block(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{text}}}")
}

/// A string or a list of blocks with one more text block at its end. An empty string is dropped,
/// because no block may be empty.
fn with_block(value: &serde_json::value::RawValue, added: &str) -> Option<String> {
    let added = text_block(&body::json_string(added));
    if let Some(text) = body::parse_string(value) {
        return Some(if text.is_empty() {
            format!("[{added}]")
        } else {
            format!("[{},{added}]", text_block(value.get()))
        });
    }
    let blocks = body::parse_array(value)?;
    let mut edits = BodyEdits::default();
    edits.append_to_array(&(0..value.get().len()), blocks.is_empty(), &added);
    Some(edits.apply(value.get()))
}

/// The message with one more text block at its end; `None` if its content is neither text nor
/// blocks.
pub fn with_text(message: &str, object: &RawObject<'_>, added: &str) -> Option<String> {
    let content = object.get("content")?;
    let start = content.get().as_ptr() as usize - message.as_ptr() as usize;
    let mut edits = BodyEdits::default();
    edits.replace(start..start + content.get().len(), with_block(content, added)?);
    Some(edits.apply(message))
}

/// Appends a text block to the system prompt. The existing blocks stay in place: the position of
/// the first one matters.
pub fn append_to_system(body: &RequestBody<'_>, edits: &mut BodyEdits, added: &str) {
    match body.object.get_or_null("system") {
        None => edits.append_field(
            body,
            "system",
            &format!("[{}]", text_block(&body::json_string(added))),
        ),
        Some(system) => {
            let changed = with_block(system, added)
                .unwrap_or_else(|| format!("[{}]", text_block(&body::json_string(added))));
            // Invalid values stay; the upstream reports them better.
            if system.get() == "null" || system.get().starts_with(['"', '[']) {
                edits.replace(body.range_of(system), changed);
            }
        }
    }
}

/// Collects a reply from its events.
#[derive(Debug, Default)]
pub struct AnthropicReply {
    blocks: BTreeMap<u64, ReplyBlock>,
    /// Blocks of a complete reply that are not text, verbatim.
    written: Vec<String>,
    finish: Option<String>,
    read: Option<u64>,
    said: Option<u64>,
    closed: bool,
    broken: bool,
}

#[derive(Debug, Default)]
struct ReplyBlock {
    /// As announced, with later deltas added.
    fields: serde_json::Map<String, Value>,
    /// The input of a tool, verbatim.
    input: String,
}

impl ReplyBlock {
    fn field(&self, key: &str) -> &str {
        self.fields.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    fn append(&mut self, key: &str, more: &Value) {
        let more = more.as_str().unwrap_or_default();
        match self.fields.get_mut(key) {
            Some(Value::String(sofar)) => sofar.push_str(more),
            _ => {
                self.fields.insert(key.to_owned(), more.into());
            }
        }
    }

    fn is_text(&self) -> bool {
        self.field("type") == "text"
    }

    fn to_json(&self) -> String {
        if self.input.is_empty() {
            return Value::Object(self.fields.clone()).to_string();
        }
        // The input is inserted verbatim, so that its numbers and its order stay.
        let mut fields = self.fields.clone();
        fields.remove("input");
        let head = Value::Object(fields).to_string();
        let whole = serde_json::from_str::<IgnoredAny>(&self.input).is_ok();
        let input = if whole { self.input.clone() } else { body::json_string(&self.input) };
        format!("{},\"input\":{input}}}", head.strip_suffix('}').unwrap_or(&head))
    }
}

impl AnthropicReply {
    /// Reads the data of an event.
    pub fn read_event(&mut self, data: &str) -> EventPosition {
        let Some(event) = super::stream_tap::parse_lenient(data) else {
            return EventPosition::Unread;
        };
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => self.count_usage(&event["message"]["usage"]),
            "content_block_start" => self.start_block(&event),
            "content_block_delta" => self.append_delta(&event),
            "message_delta" => {
                self.count_usage(&event["usage"]);
                if let Some(word) = event["delta"]["stop_reason"].as_str() {
                    self.finish = Some(word.to_owned());
                    return EventPosition::Finish;
                }
            }
            "message_stop" => {
                self.closed = true;
                return EventPosition::Last;
            }
            "error" => {
                self.broken = true;
                return EventPosition::Finish;
            }
            _ => {}
        }
        EventPosition::Middle
    }

    fn block_at(&mut self, event: &Value) -> Option<&mut ReplyBlock> {
        let index = event["index"].as_u64().unwrap_or(0);
        if self.blocks.len() >= MAX_BLOCKS && !self.blocks.contains_key(&index) {
            self.broken = true;
            return None;
        }
        Some(self.blocks.entry(index).or_default())
    }

    fn start_block(&mut self, event: &Value) {
        if let (Some(fields), Some(block)) =
            (event["content_block"].as_object(), self.block_at(event))
        {
            block.fields = fields.clone();
        }
    }

    fn append_delta(&mut self, event: &Value) {
        let delta = &event["delta"];
        let Some(block) = self.block_at(event) else { return };
        let kind = delta["type"].as_str().unwrap_or_default();
        if block.fields.is_empty() && kind == "text_delta" {
            // Some servers do not announce the block.
            block.append("type", &"text".into());
        }
        match kind {
            "text_delta" => block.append("text", &delta["text"]),
            "thinking_delta" => block.append("thinking", &delta["thinking"]),
            "signature_delta" => block.append("signature", &delta["signature"]),
            "input_json_delta" => {
                block.input.push_str(delta["partial_json"].as_str().unwrap_or_default())
            }
            "citations_delta" => {
                let cited =
                    block.fields.entry("citations").or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(cited) = cited {
                    cited.push(delta["citation"].clone());
                }
            }
            _ => {}
        }
    }

    /// Counts all input tokens, including those from the provider's cache.
    fn count_usage(&mut self, usage: &Value) {
        let read = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"]
            .map(|key| usage[key].as_u64());
        if read[0].is_some() {
            self.read = Some(read.into_iter().flatten().fold(0, u64::saturating_add));
        }
        self.said = usage["output_tokens"].as_u64().or(self.said);
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
        let Some(blocks) = reply.get("content").and_then(body::parse_array) else {
            self.broken = true;
            return;
        };
        for (index, raw) in (0..).zip(blocks) {
            let object = body::parse_object(raw.get(), "a block").ok();
            match object
                .as_ref()
                .filter(|object| object.text("type").as_deref() == Some("text"))
                .and_then(|object| object.text("text"))
            {
                Some(text) => {
                    let block: &mut ReplyBlock = self.blocks.entry(index).or_default();
                    block.append("type", &"text".into());
                    block.append("text", &text.into());
                }
                None => self.written.push(raw.get().to_owned()),
            }
        }
        self.finish = reply.text("stop_reason").map(|word| word.into_owned());
        self.closed = true;
    }

    /// The collected size.
    pub fn collected_bytes(&self) -> usize {
        self.blocks
            .values()
            .map(|block| {
                block.input.len() + block.field("text").len() + block.field("thinking").len()
            })
            .sum()
    }

    /// The reply so far; complete if the upstream said so.
    pub fn to_reply(&self) -> AssistantReply {
        let texts: Vec<&str> = self
            .blocks
            .values()
            .filter(|block| block.is_text())
            .map(|block| block.field("text"))
            .collect();
        let others = self.blocks.values().filter(|block| !block.is_text()).map(ReplyBlock::to_json);
        let parts: Vec<String> = self.written.iter().cloned().chain(others).collect();
        AssistantReply {
            text: texts.join("\n"),
            parts: (!parts.is_empty()).then(|| format!("[{}]", parts.join(","))),
            finish: self.finish.clone(),
            usage: self.read.zip(self.said),
            complete: !self.broken && (self.closed || self.finish.is_some()),
            status: 200,
        }
    }
}
