//! A client of the OpenAI chat completions API, which nearly every server supports, each a little
//! differently.
//!
//! One server refuses a request field that another needs. So the first request has all fields. A
//! field that a server complains about is left out, and the client remembers the accepted form.

use std::sync::Mutex;

use async_trait::async_trait;
use reqwest::header::AUTHORIZATION;
use serde_json::{Map, Value, json};

use super::http_client::{
    ModelHttpClient, PartialAnswer, ReplyParser, RequestAttempts, error_message,
};
use super::{
    FinishReason, Llm, ModelAnswer, ModelCheck, ModelError, ModelRequest, check_by_requests,
    with_schema,
};
use crate::settings::{ModelSettings, SettingsError};

/// A client of an OpenAI-compatible server.
pub(super) struct OpenAiClient {
    wire: ModelHttpClient,
    model: String,
    extra: Map<String, Value>,
    dialect: Mutex<RequestDialect>,
}

/// The request form that a server accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RequestDialect {
    schema_mode: SchemaMode,
    counts_in_stream: bool,
    uses_max_tokens: bool,
}

/// How the server gets the schema of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SchemaMode {
    Schema,
    Object,
    PromptOnly,
}

impl RequestDialect {
    const WITH_ALL_FIELDS: Self =
        Self { schema_mode: SchemaMode::Schema, counts_in_stream: true, uses_max_tokens: true };

    /// The dialect without the field that a complaint is about; `None` if there is no such field.
    fn without(self, complaint: &str, has_schema: bool) -> Option<Self> {
        let speaks_of = |words: &[&str]| words.iter().any(|word| complaint.contains(word));
        if self.counts_in_stream && speaks_of(&["stream_options", "include_usage"]) {
            Some(Self { counts_in_stream: false, ..self })
        } else if self.uses_max_tokens && speaks_of(&["max_tokens", "max_completion_tokens"]) {
            Some(Self { uses_max_tokens: false, ..self })
        } else if has_schema
            && speaks_of(&["response_format", "json_schema", "json_object", "schema", "grammar"])
        {
            match self.schema_mode {
                SchemaMode::Schema => Some(Self { schema_mode: SchemaMode::Object, ..self }),
                SchemaMode::Object => Some(Self { schema_mode: SchemaMode::PromptOnly, ..self }),
                SchemaMode::PromptOnly => None,
            }
        } else {
            None
        }
    }
}

impl OpenAiClient {
    /// A client with these settings.
    pub fn open(settings: &ModelSettings) -> Result<Self, SettingsError> {
        let wire =
            ModelHttpClient::open(settings, &[], |key| (AUTHORIZATION, format!("Bearer {key}")))?;
        let dialect = Mutex::new(RequestDialect::WITH_ALL_FIELDS);
        Ok(Self { wire, model: settings.model.clone(), extra: settings.extra.clone(), dialect })
    }

    fn body(&self, ask: &ModelRequest, dialect: RequestDialect) -> Value {
        let told = dialect.schema_mode != SchemaMode::Schema;
        let system = with_schema(&ask.system, ask.schema.as_ref().filter(|_| told));
        let mut messages = Vec::new();
        if !system.is_empty() {
            messages.push(json!({"role": "system", "content": system}));
        }
        messages.push(json!({"role": "user", "content": ask.user}));
        let mut body = Map::new();
        body.insert("model".into(), json!(self.model));
        body.insert("messages".into(), json!(messages));
        body.insert("stream".into(), json!(true));
        if dialect.counts_in_stream {
            body.insert("stream_options".into(), json!({"include_usage": true}));
        }
        body.insert(
            if dialect.uses_max_tokens { "max_tokens" } else { "max_completion_tokens" }.into(),
            json!(ask.max_tokens),
        );
        match (&ask.schema, dialect.schema_mode) {
            (Some(schema), SchemaMode::Schema) => {
                let form = json!({"name": schema.name, "strict": true, "schema": schema.json});
                body.insert(
                    "response_format".into(),
                    json!({"type": "json_schema", "json_schema": form}),
                );
            }
            (Some(_), SchemaMode::Object) => {
                body.insert("response_format".into(), json!({"type": "json_object"}));
            }
            _ => {}
        }
        body.extend(self.extra.clone());
        Value::Object(body)
    }

    fn known_dialect(&self) -> RequestDialect {
        *self.dialect.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[async_trait]
impl Llm for OpenAiClient {
    fn name(&self) -> String {
        format!("openai:{}", self.model)
    }

    async fn complete(
        &self,
        ask: &ModelRequest,
        heard: &(dyn Fn(usize) + Send + Sync),
    ) -> Result<ModelAnswer, ModelError> {
        let url = format!("{}/chat/completions", self.wire.endpoint());
        let parser = ReplyParser { event: parse_event, whole: parse_reply };
        let mut tries = RequestAttempts::default();
        let mut dialect = self.known_dialect();
        // Every round leaves out one field, so there are at most five.
        loop {
            let trouble = match self
                .wire
                .request_answer(&url, &self.body(ask, dialect), ask, &parser, &mut tries, heard)
                .await
            {
                Ok(answer) => {
                    *self.dialect.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = dialect;
                    return Ok(answer);
                }
                Err(trouble) => trouble,
            };
            dialect = match &trouble {
                ModelError::Refused { status: 400 | 422, said, .. } => {
                    match dialect.without(said, ask.schema.is_some()) {
                        Some(plainer) => plainer,
                        None => return Err(trouble),
                    }
                }
                _ => return Err(trouble),
            };
        }
    }

    async fn check_abilities(&self) -> Vec<ModelCheck> {
        let mut probes = self
            .wire
            .check_endpoint(&format!("{}/models", self.wire.endpoint()), &self.model)
            .await;
        if probes.len() > 1 {
            probes.extend(check_by_requests(self).await);
        }
        probes
    }
}

fn parse_event(value: &Value, heard: &mut PartialAnswer) -> Result<(), String> {
    if let Some(said) = error_message(&value["error"]) {
        return Err(said);
    }
    read_usage(value, heard);
    let choice = &value["choices"][0];
    append_message(&choice["delta"], heard);
    read_finish(choice, heard);
    Ok(())
}

fn parse_reply(value: &Value, heard: &mut PartialAnswer) -> Result<(), String> {
    if let Some(said) = error_message(&value["error"]) {
        return Err(said);
    }
    let choice = &value["choices"][0];
    if !choice.is_object() {
        return Err("it is JSON, but holds no `choices`".into());
    }
    read_usage(value, heard);
    append_message(&choice["message"], heard);
    read_finish(choice, heard);
    Ok(())
}

fn append_message(message: &Value, heard: &mut PartialAnswer) {
    heard.text.push_str(message["content"].as_str().unwrap_or_default());
    // Thinking has two names, and some servers send both.
    let thought = message["reasoning_content"].as_str().or(message["reasoning"].as_str());
    heard.thought_bytes += thought.map_or(0, str::len);
}

fn read_finish(choice: &Value, heard: &mut PartialAnswer) {
    if let Some(word) = choice["finish_reason"].as_str() {
        heard.finish = Some(match word {
            "stop" | "eos" | "eos_token" | "" => FinishReason::Done,
            "length" => FinishReason::CutOff,
            other => FinishReason::Other(other.chars().take(40).collect()),
        });
    }
}

fn read_usage(value: &Value, heard: &mut PartialAnswer) {
    let usage = &value["usage"];
    if let Some(tokens_out) = usage["completion_tokens"].as_u64() {
        heard.tokens_out = Some(tokens_out);
        heard.tokens_in = usage["prompt_tokens"].as_u64();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_takes_away_what_it_is_about_and_nothing_twice() {
        let fullest = RequestDialect::WITH_ALL_FIELDS;
        let object = RequestDialect { schema_mode: SchemaMode::Object, ..fullest };
        let bare = RequestDialect { schema_mode: SchemaMode::PromptOnly, ..fullest };
        let new_length = RequestDialect { uses_max_tokens: false, ..fullest };
        for (dialect, complaint, has_schema, left) in [
            (fullest, "response_format.type must be text", true, Some(object)),
            (object, "response_format is not supported", true, Some(bare)),
            (bare, "response_format is not supported", true, None),
            (fullest, "response_format is not supported", false, None),
            (
                fullest,
                "use 'max_completion_tokens' instead of 'max_tokens'",
                false,
                Some(new_length),
            ),
            (new_length, "max_completion_tokens is too large", false, None),
            (
                fullest,
                "unknown field stream_options",
                true,
                Some(RequestDialect { counts_in_stream: false, ..fullest }),
            ),
            (fullest, "the context is too long", true, None),
        ] {
            assert_eq!(dialect.without(complaint, has_schema), left, "{complaint}");
        }
    }
}
