//! A client of Anthropic's Messages API.
//!
//! A structured answer is requested as a forced tool call; the input of the call is the answer.

use async_trait::async_trait;
use reqwest::header::HeaderName;
use serde_json::{Map, Value, json};

use super::wire::{Heard, Tongue, Tries, Wire, said_in};
use super::{Answer, Ask, Finish, Llm, Probe, Trouble, probe_by_asking};
use crate::settings::{Mistake, Model};

const VERSION: &str = "2023-06-01";

/// A client of Anthropic's Messages API.
pub(super) struct Anthropic {
    wire: Wire,
    model: String,
    extra: Map<String, Value>,
}

impl Anthropic {
    pub fn open(settings: &Model) -> Result<Self, Mistake> {
        let wire = Wire::open(settings, &[("anthropic-version", VERSION)], |key| {
            (HeaderName::from_static("x-api-key"), key.to_owned())
        })?;
        Ok(Self { wire, model: settings.model.clone(), extra: settings.extra.clone() })
    }

    fn url(&self, path: &str) -> String {
        // Users write the address with and without the version.
        let base = self.wire.place();
        format!("{}/v1/{path}", base.strip_suffix("/v1").unwrap_or(base))
    }

    fn body(&self, ask: &Ask) -> Value {
        let mut body = Map::new();
        body.insert("model".into(), json!(self.model));
        body.insert("max_tokens".into(), json!(ask.max_tokens));
        body.insert("stream".into(), json!(true));
        if !ask.system.is_empty() {
            body.insert("system".into(), json!(ask.system));
        }
        body.insert("messages".into(), json!([{"role": "user", "content": ask.user}]));
        if let Some(schema) = &ask.schema {
            body.insert(
                "tools".into(),
                json!([{"name": schema.name, "input_schema": schema.json}]),
            );
            body.insert("tool_choice".into(), json!({"type": "tool", "name": schema.name}));
        }
        body.extend(self.extra.clone());
        Value::Object(body)
    }
}

#[async_trait]
impl Llm for Anthropic {
    fn name(&self) -> String {
        format!("anthropic:{}", self.model)
    }

    async fn complete(
        &self,
        ask: &Ask,
        heard: &(dyn Fn(usize) + Send + Sync),
    ) -> Result<Answer, Trouble> {
        // A model may add text to a forced call; only the call is the answer.
        let tongue = if ask.schema.is_some() {
            Tongue { event: called, whole: whole_call }
        } else {
            Tongue { event: spoken, whole: whole_text }
        };
        self.wire
            .ask(&self.url("messages"), &self.body(ask), ask, &tongue, &mut Tries::default(), heard)
            .await
    }

    async fn check(&self) -> Vec<Probe> {
        let mut probes = self.wire.probe(&self.url("models?limit=1000"), &self.model).await;
        if probes.len() > 1 {
            probes.extend(probe_by_asking(self).await);
        }
        probes
    }
}

fn spoken(value: &Value, heard: &mut Heard) -> Result<(), String> {
    event(value, heard, "text")
}

fn called(value: &Value, heard: &mut Heard) -> Result<(), String> {
    event(value, heard, "partial_json")
}

fn event(value: &Value, heard: &mut Heard, wanted: &str) -> Result<(), String> {
    match value["type"].as_str().unwrap_or_default() {
        "error" => return Err(complaint(value)),
        "message_start" => usage(&value["message"]["usage"], heard),
        "content_block_delta" => {
            let delta = &value["delta"];
            heard.text.push_str(delta[wanted].as_str().unwrap_or_default());
            heard.thought_bytes += delta["thinking"].as_str().map_or(0, str::len);
        }
        "message_delta" => {
            usage(&value["usage"], heard);
            finish(&value["delta"], heard);
        }
        "message_stop" => heard.closed = true,
        // Pings, block boundaries and future event types.
        _ => {}
    }
    Ok(())
}

fn whole_text(value: &Value, heard: &mut Heard) -> Result<(), String> {
    whole(value, heard, |block| block["text"].as_str().map(str::to_owned))
}

fn whole_call(value: &Value, heard: &mut Heard) -> Result<(), String> {
    whole(value, heard, |block| block["input"].is_object().then(|| block["input"].to_string()))
}

fn whole(
    value: &Value,
    heard: &mut Heard,
    wanted: fn(&Value) -> Option<String>,
) -> Result<(), String> {
    if value["type"] == "error" || value["error"].is_object() {
        return Err(complaint(value));
    }
    let Some(blocks) = value["content"].as_array() else {
        return Err("it is JSON, but holds no `content`".into());
    };
    heard.text.extend(blocks.iter().filter_map(wanted));
    usage(&value["usage"], heard);
    finish(value, heard);
    Ok(())
}

fn complaint(value: &Value) -> String {
    said_in(&value["error"]).unwrap_or_else(|| "an error without a message".into())
}

fn finish(place: &Value, heard: &mut Heard) {
    if let Some(word) = place["stop_reason"].as_str() {
        heard.finish = Some(match word {
            "end_turn" | "tool_use" | "stop_sequence" => Finish::Done,
            "max_tokens" | "model_context_window_exceeded" => Finish::CutOff,
            other => Finish::Other(other.chars().take(40).collect()),
        });
    }
}

/// Input tokens come first, output tokens with the end. Cached input counts as input.
fn usage(usage: &Value, heard: &mut Heard) {
    let count = |key: &str| usage[key].as_u64();
    if let Some(read) = count("input_tokens") {
        let cached = count("cache_creation_input_tokens")
            .unwrap_or(0)
            .saturating_add(count("cache_read_input_tokens").unwrap_or(0));
        heard.tokens_in = Some(read.saturating_add(cached));
    }
    heard.tokens_out = count("output_tokens").or(heard.tokens_out);
}
