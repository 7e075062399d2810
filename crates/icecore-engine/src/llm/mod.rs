//! Language models: a [`ModelRequest`] goes out, a [`ModelAnswer`] or a [`ModelError`] comes back.
//!
//! - A model is not trusted. It may hang, flood, disconnect or ignore the format; a request still
//!   ends in bounded time and memory.
//! - A request is never repeated once the answer has begun, because that would be paid for twice.
//! - No API key appears in any text.
//! - This module does not judge the answer.

pub mod reply;

mod anthropic;
mod command;
mod http_client;
mod openai;
mod retry;

pub(crate) use self::http_client::error_chain;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;

use crate::settings::{ModelSettings, Provider, SettingsError};

/// A request to a model.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The system prompt.
    pub system: String,
    /// The user prompt.
    pub user: String,
    /// The schema of the answer, if it should be JSON.
    pub schema: Option<AnswerSchema>,
    pub max_tokens: u32,
    /// The attempt at the same task, from 0; later attempts get more time.
    pub attempt: u32,
}

/// The schema of a structured answer.
#[derive(Debug, Clone)]
pub struct AnswerSchema {
    pub name: &'static str,
    /// As JSON Schema.
    pub json: serde_json::Value,
}

/// An answer of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelAnswer {
    /// The text as received.
    pub text: String,
    pub tokens_in: u64,
    /// Includes thinking.
    pub tokens_out: u64,
    /// Whether the provider counted the tokens; otherwise they are estimated from the bytes.
    pub measured: bool,
    pub finish: FinishReason,
    /// The number of repeated requests.
    pub retries: u32,
    pub streamed: bool,
}

/// How an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishReason {
    /// The model finished.
    Done,
    /// At the length limit.
    CutOff,
    /// As the provider reported it.
    Other(String),
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// No connection.
    #[error("{place} cannot be reached: {said}. Is it running, and is base_url right?")]
    Unreachable { place: String, said: String },
    /// A timeout.
    #[error("{place} gave {what} within {:.1} s; raise timeout_secs or take a smaller model", after.as_secs_f64())]
    TimedOut {
        /// The endpoint or program.
        place: String,
        /// What did not come in time.
        what: &'static str,
        after: Duration,
    },
    /// The server refused the request.
    #[error("{place} answered {status}: {said}. {}", advice(*status))]
    Refused { place: String, status: u16, said: String },
    /// The server asked to try again later.
    #[error("{place} answered {status}: {said}. It asks to wait {}; the work is deferred until then", wait_text(*retry_after))]
    RateLimited {
        place: String,
        status: u16,
        /// The requested delay.
        retry_after: Option<Duration>,
        said: String,
    },
    /// An invalid or incomplete answer.
    #[error(
        "the answer of {place} is broken: {said}. Run `icecore model check` to see what it can do"
    )]
    InvalidAnswer { place: String, said: String },
    /// An answer beyond the size limit.
    #[error("{place} sent more than {limit_bytes} bytes at once, so it was not read to the end")]
    TooLong { place: String, limit_bytes: usize },
    /// An answer without text.
    #[error(
        "{place} answered with no text ({said}); a reasoning model may have used up its output tokens"
    )]
    Empty {
        /// The endpoint or program.
        place: String,
        /// How the answer ended.
        said: String,
    },
    /// The program cannot be started.
    #[error(
        "the program `{program}` cannot be started: {said}. Is it installed, and its name right in `command`?"
    )]
    CommandNotStarted {
        program: String,
        /// The system's reason.
        said: String,
    },
    /// The program failed.
    #[error(
        "`{program}` ended with {exit}: {said}. Try it by hand with a prompt on its standard input"
    )]
    CommandFailed {
        program: String,
        /// The exit code or signal.
        exit: String,
        /// The end of its error output.
        said: String,
    },
}

impl ModelError {
    /// Whether the same request may succeed later. Then the work is deferred, not given up.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused { status, .. } => retry::is_retryable_status(*status) || *status >= 500,
            Self::TooLong { .. } | Self::Empty { .. } | Self::CommandNotStarted { .. } => false,
            Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::RateLimited { .. }
            | Self::InvalidAnswer { .. }
            | Self::CommandFailed { .. } => true,
        }
    }

    /// Whether the model may have charged for a lost answer.
    pub fn may_have_cost(&self) -> bool {
        match self {
            Self::Refused { status, .. } => *status >= 500 || *status == 408,
            Self::Unreachable { .. }
            | Self::RateLimited { .. }
            | Self::CommandNotStarted { .. } => false,
            Self::TimedOut { .. }
            | Self::InvalidAnswer { .. }
            | Self::TooLong { .. }
            | Self::Empty { .. }
            | Self::CommandFailed { .. } => true,
        }
    }
}

fn advice(status: u16) -> &'static str {
    match status {
        300..=399 => {
            "Redirects are not followed, to protect the key; set base_url to the new address"
        }
        401 | 403 => "Check api_key",
        404 => "Check base_url and model",
        413 => "Lower max_input_tokens",
        408 | 429 | 500.. => "Try again later",
        _ => "`icecore model check` shows what the endpoint can do",
    }
}

fn wait_text(wait: Option<Duration>) -> String {
    wait.map_or_else(|| "for a while".into(), |wait| format!("{} s", wait.as_secs()))
}

/// The result of one check of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelCheck {
    /// What was checked.
    pub what: &'static str,
    pub ok: bool,
    /// What was observed.
    pub observation: String,
}

impl ModelCheck {
    fn new(what: &'static str, ok: bool, said: impl Into<String>) -> Self {
        Self { what, ok, observation: said.into() }
    }
}

/// A language model.
#[async_trait]
pub trait Llm: Send + Sync {
    /// Provider and model, like `openai:qwen3:14b`.
    fn name(&self) -> String;

    /// Sends a request. `heard` receives the bytes of the answer so far.
    async fn complete(
        &self,
        ask: &ModelRequest,
        heard: &(dyn Fn(usize) + Send + Sync),
    ) -> Result<ModelAnswer, ModelError>;

    /// Checks the abilities that icecore needs, one after the other; costs two short answers.
    async fn check_abilities(&self) -> Vec<ModelCheck>;
}

/// Creates the model of these settings; `None` if there is none.
pub fn open(settings: &ModelSettings) -> Result<Option<Box<dyn Llm>>, SettingsError> {
    Ok(match settings.provider {
        Provider::None => None,
        Provider::OpenAi => Some(Box::new(openai::OpenAiClient::open(settings)?)),
        Provider::Anthropic => Some(Box::new(anthropic::AnthropicClient::open(settings)?)),
        Provider::Command => Some(Box::new(command::CommandModel::open(settings)?)),
    })
}

/// Installs the TLS cryptography provider of this process, unless there is one already.
pub fn install_crypto() {
    // An error means that another thread was faster, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Estimates the tokens of a text as a quarter of its bytes.
pub fn estimate_tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(4)
}

/// The size limit of an answer: no tokenizer has more than eight bytes per token on average.
fn max_answer_bytes(ask: &ModelRequest) -> usize {
    ask.max_tokens as usize * 8 + 4096
}

/// The timeouts of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RequestTimeouts {
    /// From the first byte sent to the last byte received.
    whole: Duration,
    /// Until the first byte arrives; most of the whole, because a local model may read for minutes.
    first: Duration,
    /// Between two chunks.
    idle: Duration,
}

impl RequestTimeouts {
    // A later attempt has stricter rules, so it gets more time (P5).
    fn new(base: Duration, attempt: u32) -> Self {
        let whole = base.saturating_mul(attempt.saturating_add(2)) / 2;
        Self { whole, first: whole * 3 / 4, idle: whole / 2 }
    }
}

/// The system prompt with the schema, for models that have no other way to get it.
fn with_schema(system: &str, schema: Option<&AnswerSchema>) -> String {
    match schema {
        Some(schema) if system.is_empty() => format!("JSON Schema of the answer:\n{}", schema.json),
        Some(schema) => format!("{system}\n\nJSON Schema of the answer:\n{}", schema.json),
        None => system.to_owned(),
    }
}

/// Cuts `text` at the last character that fits.
fn truncate(text: &mut String, most_bytes: usize) -> bool {
    let long = text.len() > most_bytes;
    text.truncate(text.floor_char_boundary(most_bytes));
    long
}

const ANSWERS_CHECK: &str = "answers";
const STREAMS_CHECK: &str = "streams";
const USAGE_CHECK: &str = "reports token usage";
const SCHEMA_CHECK: &str = "follows a schema";

/// The checks that work for every model: they send requests.
async fn check_by_requests(llm: &dyn Llm) -> Vec<ModelCheck> {
    let mut ask = ModelRequest {
        system: String::new(),
        user: "Answer with the one word: ready".into(),
        schema: None,
        max_tokens: 1024,
        attempt: 0,
    };
    let mut probes = Vec::new();
    match llm.complete(&ask, &|_| {}).await {
        Ok(answer) => {
            let retries = if answer.retries > 0 {
                format!(", after {} more requests", answer.retries)
            } else {
                String::new()
            };
            probes.push(ModelCheck::new(
                ANSWERS_CHECK,
                true,
                format!("{} bytes{retries}", answer.text.len()),
            ));
            probes.push(ModelCheck::new(
                STREAMS_CHECK,
                answer.streamed,
                if answer.streamed { "piece by piece" } else { "all at once, at the end" },
            ));
            let counted = format!("{} in, {} out", answer.tokens_in, answer.tokens_out);
            probes.push(ModelCheck::new(
                USAGE_CHECK,
                answer.measured,
                if answer.measured {
                    counted
                } else {
                    "no usage is reported, so it is estimated from the bytes".into()
                },
            ));
        }
        Err(trouble) => {
            probes.push(ModelCheck::new(ANSWERS_CHECK, false, trouble.to_string()));
            return probes;
        }
    }
    ask.user = "Answer with a JSON object whose field `word` is: ready".into();
    let form = json!({
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": false,
    });
    ask.schema = Some(AnswerSchema { name: "probe", json: form });
    probes.push(match llm.complete(&ask, &|_| {}).await {
        Ok(answer) => match reply::json_object(&answer.text) {
            Some(read) if read.value["word"].is_string() && !read.repaired => {
                ModelCheck::new(SCHEMA_CHECK, true, "valid JSON with the requested schema")
            }
            Some(read) if read.repaired => {
                ModelCheck::new(SCHEMA_CHECK, false, "its JSON had to be repaired")
            }
            Some(_) => {
                ModelCheck::new(SCHEMA_CHECK, false, "JSON, but not with the requested schema")
            }
            None => ModelCheck::new(SCHEMA_CHECK, false, "no JSON object in the answer"),
        },
        Err(trouble) => ModelCheck::new(SCHEMA_CHECK, false, trouble.to_string()),
    });
    probes
}

#[cfg(test)]
mod tests {
    use super::*;

    // P5
    #[test]
    fn every_attempt_may_take_half_as_long_again() {
        let secs =
            |attempt| RequestTimeouts::new(Duration::from_secs(120), attempt).whole.as_secs();
        assert_eq!([secs(0), secs(1), secs(2)], [120, 180, 240]);
        let patience = RequestTimeouts::new(Duration::from_secs(120), 0);
        assert_eq!((patience.first.as_secs(), patience.idle.as_secs()), (90, 60));
        let _ = RequestTimeouts::new(Duration::from_secs(86_400), u32::MAX);
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        for (most, left, cut) in [(0, "", true), (2, "h", true), (3, "hé", true), (5, "héé", false)]
        {
            let mut text = "héé".to_owned();
            assert_eq!((truncate(&mut text, most), text.as_str()), (cut, left));
        }
    }
}
