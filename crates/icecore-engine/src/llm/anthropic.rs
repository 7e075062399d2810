//! A client of Anthropic's Messages API.
//!
//! A structured answer is requested as a forced tool call; the input of the call is the answer.

use async_trait::async_trait;
use reqwest::header::HeaderName;
use serde_json::{Map, Value, json};

use super::http_client::{
    ModelHttpClient, PartialAnswer, ReplyParser, RequestAttempts, error_message,
};
use super::{
    FinishReason, Llm, ModelAnswer, ModelCheck, ModelError, ModelRequest, check_by_requests,
};
use crate::settings::{ModelSettings, SettingsError};

const API_VERSION: &str = "2023-06-01";

/// A client of Anthropic's Messages API.
pub(super) struct AnthropicClient {
    wire: ModelHttpClient,
    model: String,
    extra: Map<String, Value>,
}

impl AnthropicClient {
    /// A client with these settings.
    pub fn open(settings: &ModelSettings) -> Result<Self, SettingsError> {
        let wire = ModelHttpClient::open(settings, &[("anthropic-version", API_VERSION)], |key| {
            (HeaderName::from_static("x-api-key"), key.to_owned())
        })?;
        Ok(Self { wire, model: settings.model.clone(), extra: settings.extra.clone() })
    }

    fn url(&self, path: &str) -> String {
        // Users write the address with and without the version.
        let base = self.wire.endpoint();
        format!("{}/v1/{path}", base.strip_suffix("/v1").unwrap_or(base))
    }

    fn body(&self, ask: &ModelRequest) -> Value {
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
impl Llm for AnthropicClient {
    fn name(&self) -> String {
        format!("anthropic:{}", self.model)
    }

    async fn complete(
        &self,
        ask: &ModelRequest,
        heard: &(dyn Fn(usize) + Send + Sync),
    ) -> Result<ModelAnswer, ModelError> {
        // A model may add text to a forced call; only the call is the answer.
        let parser = if ask.schema.is_some() {
            ReplyParser { event: parse_call_event, whole: parse_call_reply }
        } else {
            ReplyParser { event: parse_text_event, whole: parse_text_reply }
        };
        self.wire
            .request_answer(
                &self.url("messages"),
                &self.body(ask),
                ask,
                &parser,
                &mut RequestAttempts::default(),
                heard,
            )
            .await
    }

    async fn check_abilities(&self) -> Vec<ModelCheck> {
        let mut probes =
            self.wire.check_endpoint(&self.url("models?limit=1000"), &self.model).await;
        if probes.len() > 1 {
            probes.extend(check_by_requests(self).await);
        }
        probes
    }
}

fn parse_text_event(value: &Value, heard: &mut PartialAnswer) -> Result<(), String> {
    parse_event(value, heard, "text")
}

fn parse_call_event(value: &Value, heard: &mut PartialAnswer) -> Result<(), String> {
    parse_event(value, heard, "partial_json")
}

fn parse_event(value: &Value, heard: &mut PartialAnswer, wanted: &str) -> Result<(), String> {
    match value["type"].as_str().unwrap_or_default() {
        "error" => return Err(reported_error(value)),
        "message_start" => read_usage(&value["message"]["usage"], heard),
        "content_block_delta" => {
            let delta = &value["delta"];
            heard.text.push_str(delta[wanted].as_str().unwrap_or_default());
            heard.thought_bytes += delta["thinking"].as_str().map_or(0, str::len);
        }
        "message_delta" => {
            read_usage(&value["usage"], heard);
            read_finish(&value["delta"], heard);
        }
        "message_stop" => heard.closed = true,
        // Pings, block boundaries and future event types.
        _ => {}
    }
    Ok(())
}

fn parse_text_reply(value: &Value, heard: &mut PartialAnswer) -> Result<(), String> {
    parse_reply(value, heard, |block| block["text"].as_str().map(str::to_owned))
}

fn parse_call_reply(value: &Value, heard: &mut PartialAnswer) -> Result<(), String> {
    parse_reply(value, heard, |block| {
        block["input"].is_object().then(|| block["input"].to_string())
    })
}

fn parse_reply(
    value: &Value,
    heard: &mut PartialAnswer,
    wanted: fn(&Value) -> Option<String>,
) -> Result<(), String> {
    if value["type"] == "error" || value["error"].is_object() {
        return Err(reported_error(value));
    }
    let Some(blocks) = value["content"].as_array() else {
        return Err("it is JSON, but holds no `content`".into());
    };
    heard.text.extend(blocks.iter().filter_map(wanted));
    read_usage(&value["usage"], heard);
    read_finish(value, heard);
    Ok(())
}

fn reported_error(value: &Value) -> String {
    error_message(&value["error"]).unwrap_or_else(|| "an error without a message".into())
}

fn read_finish(place: &Value, heard: &mut PartialAnswer) {
    if let Some(word) = place["stop_reason"].as_str() {
        heard.finish = Some(match word {
            "end_turn" | "tool_use" | "stop_sequence" => FinishReason::Done,
            "max_tokens" | "model_context_window_exceeded" => FinishReason::CutOff,
            other => FinishReason::Other(other.chars().take(40).collect()),
        });
    }
}

/// Input tokens come first, output tokens with the end. Cached input counts as input.
fn read_usage(usage: &Value, heard: &mut PartialAnswer) {
    let count = |key: &str| usage[key].as_u64();
    if let Some(read) = count("input_tokens") {
        let cached = count("cache_creation_input_tokens")
            .unwrap_or(0)
            .saturating_add(count("cache_read_input_tokens").unwrap_or(0));
        heard.tokens_in = Some(read.saturating_add(cached));
    }
    heard.tokens_out = count("output_tokens").or(heard.tokens_out);
}
