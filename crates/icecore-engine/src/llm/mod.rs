//! The models' room: an [`Ask`] goes out, an [`Answer`] or a [`Trouble`] comes back.
//!
//! A model is a stranger at the end of a wire. Whatever it does – hang, flood, break off, lie about
//! its format – an ask ends in bounded time and memory, is never repeated once the answer has
//! begun, and leaves no key in any text. What the answer is worth is for others to judge.

pub mod reply;

mod anthropic;
mod command;
mod openai;
mod retry;
mod wire;

pub(crate) use self::wire::causes;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;

use crate::settings::{Mistake, Model, Provider};

/// What a model is asked.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Who it is and what it is to do.
    pub system: String,
    /// What it is to do it with.
    pub user: String,
    /// The form of the answer, if it is to be JSON.
    pub schema: Option<Schema>,
    /// How long the answer may be.
    pub max_tokens: u32,
    /// Which attempt at the same thing this is, from 0; later ones may take longer.
    pub attempt: u32,
}

/// The form of an answer.
#[derive(Debug, Clone)]
pub struct Schema {
    /// Its name.
    pub name: &'static str,
    /// The JSON Schema of it.
    pub json: serde_json::Value,
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its text as it came.
    pub text: String,
    /// What it read.
    pub tokens_in: u64,
    /// What it wrote, thoughts included.
    pub tokens_out: u64,
    /// Whether the provider counted the tokens; else they are estimated from the bytes.
    pub measured: bool,
    /// How it ended.
    pub finish: Finish,
    /// How many more requests than one it took.
    pub retries: u32,
    /// Whether it came piece by piece.
    pub streamed: bool,
}

/// How an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// The model was done.
    Done,
    /// It ran into the limit on its length.
    CutOff,
    /// Something else, in the provider's word.
    Other(String),
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// No connection.
    #[error("{place} cannot be reached: {said}. Is it running, and is base_url right?")]
    Unreachable {
        /// The endpoint.
        place: String,
        /// What failed.
        said: String,
    },
    /// It took too long.
    #[error("{place} gave {what} within {:.1} s; raise timeout_secs or take a smaller model", after.as_secs_f64())]
    TimedOut {
        /// The endpoint or program.
        place: String,
        /// What was waited for in vain.
        what: &'static str,
        /// For how long.
        after: Duration,
    },
    /// It said no.
    #[error("{place} answered {status}: {said}. {}", advice(*status))]
    Refused {
        /// The endpoint.
        place: String,
        /// The HTTP status.
        status: u16,
        /// What it said.
        said: String,
    },
    /// It said "later".
    #[error("{place} answered {status}: {said}. It asks to wait {}; the work is kept for then", wait_in_words(*retry_after))]
    RateLimited {
        /// The endpoint.
        place: String,
        /// The HTTP status.
        status: u16,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
        /// What it said.
        said: String,
    },
    /// What came is not an answer, or only a part of one.
    #[error(
        "the answer of {place} is broken: {said}. Run `icecore model check` to see what it can do"
    )]
    Broken {
        /// The endpoint.
        place: String,
        /// What is wrong with it.
        said: String,
    },
    /// It sent more than is ever kept.
    #[error("{place} sent more than {limit_bytes} bytes at once, so it was not read to the end")]
    TooLong {
        /// The endpoint.
        place: String,
        /// The limit.
        limit_bytes: usize,
    },
    /// The answer holds no text.
    #[error(
        "{place} answered with no text ({said}); a model that thinks long needs more room for its answer"
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
    NoCommand {
        /// The program.
        program: String,
        /// What the system says.
        said: String,
    },
    /// The program failed.
    #[error(
        "`{program}` ended with {exit}: {said}. Try it by hand with a prompt on its standard input"
    )]
    Command {
        /// The program.
        program: String,
        /// Its exit code or signal.
        exit: String,
        /// The last it said.
        said: String,
    },
}

impl Trouble {
    /// Whether the same ask may work later, so that the work is put off rather than given up.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Refused { status, .. } => retry::says_later(*status) || *status >= 500,
            Self::TooLong { .. } | Self::Empty { .. } | Self::NoCommand { .. } => false,
            Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::RateLimited { .. }
            | Self::Broken { .. }
            | Self::Command { .. } => true,
        }
    }

    /// Whether the model may have worked, and be paid, for nothing.
    pub fn may_have_cost(&self) -> bool {
        match self {
            Self::Refused { status, .. } => *status >= 500 || *status == 408,
            Self::Unreachable { .. } | Self::RateLimited { .. } | Self::NoCommand { .. } => false,
            Self::TimedOut { .. }
            | Self::Broken { .. }
            | Self::TooLong { .. }
            | Self::Empty { .. }
            | Self::Command { .. } => true,
        }
    }
}

fn advice(status: u16) -> &'static str {
    match status {
        300..=399 => {
            "Redirects are not followed, so that no key goes astray; set base_url to where it leads"
        }
        401 | 403 => "Check api_key",
        404 => "Check base_url and model",
        413 => "Lower max_input_tokens",
        408 | 429 | 500.. => "It may work later",
        _ => "`icecore model check` shows what the endpoint can do",
    }
}

fn wait_in_words(wait: Option<Duration>) -> String {
    wait.map_or_else(|| "for a while".into(), |wait| format!("{} s", wait.as_secs()))
}

/// One thing that was tried on a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// What was tried.
    pub what: &'static str,
    /// Whether it works.
    pub ok: bool,
    /// What was seen.
    pub said: String,
}

impl Probe {
    fn new(what: &'static str, ok: bool, said: impl Into<String>) -> Self {
        Self { what, ok, said: said.into() }
    }
}

/// Whoever answers.
#[async_trait]
pub trait Llm: Send + Sync {
    /// Provider and model, like `openai:qwen3:14b`.
    fn name(&self) -> String;

    /// Asks, and tells `heard` how many bytes of the answer have come so far.
    async fn complete(
        &self,
        ask: &Ask,
        heard: &(dyn Fn(usize) + Send + Sync),
    ) -> Result<Answer, Trouble>;

    /// Tries what is needed of a model, one thing after the other; costs two short answers.
    async fn check(&self) -> Vec<Probe>;
}

/// The model of these settings; `None` if there is none.
pub fn open(settings: &Model) -> Result<Option<Box<dyn Llm>>, Mistake> {
    Ok(match settings.provider {
        Provider::None => None,
        Provider::OpenAi => Some(Box::new(openai::OpenAi::open(settings)?)),
        Provider::Anthropic => Some(Box::new(anthropic::Anthropic::open(settings)?)),
        Provider::Command => Some(Box::new(command::Program::open(settings)?)),
    })
}

/// Chooses the cryptography for every TLS connection of this process, unless that is done already.
pub fn install_crypto() {
    // An error says that somebody was faster, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Tokens of a text whose tokenizer nobody knows here: a quarter of its bytes.
pub fn estimated_tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(4)
}

/// The longest answer that is kept: no tokenizer's words are eight bytes long on average.
fn most_bytes(ask: &Ask) -> usize {
    ask.max_tokens as usize * 8 + 4096
}

/// How long one try may take, and its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Patience {
    /// From the first byte sent to the last received.
    whole: Duration,
    /// Until the first byte comes; most of the whole, because a local model may read for minutes.
    first: Duration,
    /// Between one piece and the next.
    idle: Duration,
}

impl Patience {
    // P5: a tighter ask is a harder one.
    fn new(base: Duration, attempt: u32) -> Self {
        let whole = base.saturating_mul(attempt.saturating_add(2)) / 2;
        Self { whole, first: whole * 3 / 4, idle: whole / 2 }
    }
}

/// The part of the prompt that says the form, for those who cannot be told in another way.
fn with_schema(system: &str, schema: Option<&Schema>) -> String {
    match schema {
        Some(schema) if system.is_empty() => format!("JSON Schema of the answer:\n{}", schema.json),
        Some(schema) => format!("{system}\n\nJSON Schema of the answer:\n{}", schema.json),
        None => system.to_owned(),
    }
}

/// Cuts `text` at the last character that fits.
fn clip(text: &mut String, most_bytes: usize) -> bool {
    let long = text.len() > most_bytes;
    text.truncate(text.floor_char_boundary(most_bytes));
    long
}

const ANSWERS: &str = "it answers";
const STREAMS: &str = "it streams";
const COUNTS: &str = "it counts its tokens";
const OBEYS: &str = "it keeps to a schema";

/// What can be tried on any model by asking it.
async fn probe_by_asking(llm: &dyn Llm) -> Vec<Probe> {
    let mut ask = Ask {
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
            probes.push(Probe::new(ANSWERS, true, format!("{} bytes{retries}", answer.text.len())));
            probes.push(Probe::new(
                STREAMS,
                answer.streamed,
                if answer.streamed { "piece by piece" } else { "all at once, at the end" },
            ));
            let counted = format!("{} in, {} out", answer.tokens_in, answer.tokens_out);
            probes.push(Probe::new(
                COUNTS,
                answer.measured,
                if answer.measured {
                    counted
                } else {
                    "no usage is reported, so it is estimated from the bytes".into()
                },
            ));
        }
        Err(trouble) => {
            probes.push(Probe::new(ANSWERS, false, trouble.to_string()));
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
    ask.schema = Some(Schema { name: "probe", json: form });
    probes.push(match llm.complete(&ask, &|_| {}).await {
        Ok(answer) => match reply::json_object(&answer.text) {
            Some(read) if read.value["word"].is_string() && !read.repaired => {
                Probe::new(OBEYS, true, "valid JSON in the form asked for")
            }
            Some(read) if read.repaired => Probe::new(OBEYS, false, "its JSON had to be mended"),
            Some(_) => Probe::new(OBEYS, false, "JSON, but not in the form asked for"),
            None => Probe::new(OBEYS, false, "no JSON object in the answer"),
        },
        Err(trouble) => Probe::new(OBEYS, false, trouble.to_string()),
    });
    probes
}

#[cfg(test)]
mod tests {
    use super::*;

    // P5
    #[test]
    fn every_attempt_may_take_half_as_long_again() {
        let secs = |attempt| Patience::new(Duration::from_secs(120), attempt).whole.as_secs();
        assert_eq!([secs(0), secs(1), secs(2)], [120, 180, 240]);
        let patience = Patience::new(Duration::from_secs(120), 0);
        assert_eq!((patience.first.as_secs(), patience.idle.as_secs()), (90, 60));
        let _ = Patience::new(Duration::from_secs(86_400), u32::MAX);
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        for (most, left, cut) in [(0, "", true), (2, "h", true), (3, "hé", true), (5, "héé", false)]
        {
            let mut text = "héé".to_owned();
            assert_eq!((clip(&mut text, most), text.as_str()), (cut, left));
        }
    }
}
