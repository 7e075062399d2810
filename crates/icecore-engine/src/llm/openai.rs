//! A client of the OpenAI chat completions API, which nearly every server supports, each a little
//! differently.
//!
//! One server refuses a request field that another needs. So the first request has all fields. A
//! field that a server complains about is left out, and the client remembers the accepted form.

use std::sync::Mutex;

use async_trait::async_trait;
use reqwest::header::AUTHORIZATION;
use serde_json::{Map, Value, json};

use super::wire::{Heard, Tongue, Tries, Wire, said_in};
use super::{Answer, Ask, Finish, Llm, Probe, Trouble, probe_by_asking, with_schema};
use crate::settings::{Mistake, Model};

/// A client of an OpenAI-compatible server.
pub(super) struct OpenAi {
    wire: Wire,
    model: String,
    extra: Map<String, Value>,
    dialect: Mutex<Dialect>,
}

/// The request form that a server accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Dialect {
    form: Form,
    counts_in_stream: bool,
    old_length: bool,
}

/// How the server gets the schema of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Schema,
    Object,
    PromptOnly,
}

impl Dialect {
    const FULLEST: Self = Self { form: Form::Schema, counts_in_stream: true, old_length: true };

    /// The dialect without the field that a complaint is about; `None` if there is no such field.
    fn without(self, complaint: &str, has_schema: bool) -> Option<Self> {
        let speaks_of = |words: &[&str]| words.iter().any(|word| complaint.contains(word));
        if self.counts_in_stream && speaks_of(&["stream_options", "include_usage"]) {
            Some(Self { counts_in_stream: false, ..self })
        } else if self.old_length && speaks_of(&["max_tokens", "max_completion_tokens"]) {
            Some(Self { old_length: false, ..self })
        } else if has_schema
            && speaks_of(&["response_format", "json_schema", "json_object", "schema", "grammar"])
        {
            match self.form {
                Form::Schema => Some(Self { form: Form::Object, ..self }),
                Form::Object => Some(Self { form: Form::PromptOnly, ..self }),
                Form::PromptOnly => None,
            }
        } else {
            None
        }
    }
}

impl OpenAi {
    pub fn open(settings: &Model) -> Result<Self, Mistake> {
        let wire = Wire::open(settings, &[], |key| (AUTHORIZATION, format!("Bearer {key}")))?;
        let dialect = Mutex::new(Dialect::FULLEST);
        Ok(Self { wire, model: settings.model.clone(), extra: settings.extra.clone(), dialect })
    }

    fn body(&self, ask: &Ask, dialect: Dialect) -> Value {
        let told = dialect.form != Form::Schema;
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
            if dialect.old_length { "max_tokens" } else { "max_completion_tokens" }.into(),
            json!(ask.max_tokens),
        );
        match (&ask.schema, dialect.form) {
            (Some(schema), Form::Schema) => {
                let form = json!({"name": schema.name, "strict": true, "schema": schema.json});
                body.insert(
                    "response_format".into(),
                    json!({"type": "json_schema", "json_schema": form}),
                );
            }
            (Some(_), Form::Object) => {
                body.insert("response_format".into(), json!({"type": "json_object"}));
            }
            _ => {}
        }
        body.extend(self.extra.clone());
        Value::Object(body)
    }

    fn known_dialect(&self) -> Dialect {
        *self.dialect.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[async_trait]
impl Llm for OpenAi {
    fn name(&self) -> String {
        format!("openai:{}", self.model)
    }

    async fn complete(
        &self,
        ask: &Ask,
        heard: &(dyn Fn(usize) + Send + Sync),
    ) -> Result<Answer, Trouble> {
        let url = format!("{}/chat/completions", self.wire.place());
        let tongue = Tongue { event, whole };
        let mut tries = Tries::default();
        let mut dialect = self.known_dialect();
        // Every round leaves out one field, so there are at most five.
        loop {
            let trouble = match self
                .wire
                .ask(&url, &self.body(ask, dialect), ask, &tongue, &mut tries, heard)
                .await
            {
                Ok(answer) => {
                    *self.dialect.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = dialect;
                    return Ok(answer);
                }
                Err(trouble) => trouble,
            };
            dialect = match &trouble {
                Trouble::Refused { status: 400 | 422, said, .. } => {
                    match dialect.without(said, ask.schema.is_some()) {
                        Some(plainer) => plainer,
                        None => return Err(trouble),
                    }
                }
                _ => return Err(trouble),
            };
        }
    }

    async fn check(&self) -> Vec<Probe> {
        let mut probes =
            self.wire.probe(&format!("{}/models", self.wire.place()), &self.model).await;
        if probes.len() > 1 {
            probes.extend(probe_by_asking(self).await);
        }
        probes
    }
}

fn event(value: &Value, heard: &mut Heard) -> Result<(), String> {
    if let Some(said) = said_in(&value["error"]) {
        return Err(said);
    }
    usage(value, heard);
    let choice = &value["choices"][0];
    take(&choice["delta"], heard);
    finish(choice, heard);
    Ok(())
}

fn whole(value: &Value, heard: &mut Heard) -> Result<(), String> {
    if let Some(said) = said_in(&value["error"]) {
        return Err(said);
    }
    let choice = &value["choices"][0];
    if !choice.is_object() {
        return Err("it is JSON, but holds no `choices`".into());
    }
    usage(value, heard);
    take(&choice["message"], heard);
    finish(choice, heard);
    Ok(())
}

fn take(message: &Value, heard: &mut Heard) {
    heard.text.push_str(message["content"].as_str().unwrap_or_default());
    // Thinking has two names, and some servers send both.
    let thought = message["reasoning_content"].as_str().or(message["reasoning"].as_str());
    heard.thought_bytes += thought.map_or(0, str::len);
}

fn finish(choice: &Value, heard: &mut Heard) {
    if let Some(word) = choice["finish_reason"].as_str() {
        heard.finish = Some(match word {
            "stop" | "eos" | "eos_token" | "" => Finish::Done,
            "length" => Finish::CutOff,
            other => Finish::Other(other.chars().take(40).collect()),
        });
    }
}

fn usage(value: &Value, heard: &mut Heard) {
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
        let fullest = Dialect::FULLEST;
        let object = Dialect { form: Form::Object, ..fullest };
        let bare = Dialect { form: Form::PromptOnly, ..fullest };
        let new_length = Dialect { old_length: false, ..fullest };
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
                Some(Dialect { counts_in_stream: false, ..fullest }),
            ),
            (fullest, "the context is too long", true, None),
        ] {
            assert_eq!(dialect.without(complaint, has_schema), left, "{complaint}");
        }
    }
}
