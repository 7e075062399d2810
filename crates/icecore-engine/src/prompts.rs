//! The prompt templates: YAML files, one per tier and job, built in and replaceable per vault. The
//! code only fills them in (P4).
//!
//! [`Prompts::load`] renders every template once, so that a broken one is reported at load time.

use std::collections::BTreeMap;

use icecore_domain::hash::Hash;
use icecore_domain::layout::DocPath;
use icecore_domain::packs::chat::{ChatMaterial, ChatPackLine};
use icecore_domain::summary::Tier;
use icecore_store::{Error as StoreError, Store};
use minijinja::{Environment, Value, context};
use serde::Deserialize;

use crate::{Error, Result};

const BUILT_IN_PROMPTS: &[(&str, &str)] = &[
    ("session", include_str!("../prompts/session.yaml")),
    ("day", include_str!("../prompts/day.yaml")),
    ("week", include_str!("../prompts/week.yaml")),
    ("month", include_str!("../prompts/month.yaml")),
    ("year", include_str!("../prompts/year.yaml")),
    ("distil", include_str!("../prompts/distil.yaml")),
    ("chat", include_str!("../prompts/chat.yaml")),
    ("turn", include_str!("../prompts/turn.yaml")),
    ("facts", include_str!("../prompts/facts.yaml")),
    ("rules", include_str!("../prompts/rules.yaml")),
    ("task", include_str!("../prompts/task.yaml")),
];

/// The content of a prompt file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct PromptFile {
    #[serde(default)]
    system: String,
    #[serde(default)]
    user: String,
    #[serde(default)]
    text: String,
}

/// The size limit of a prompt file.
const MAX_PROMPT_FILE_BYTES: usize = 64 * 1024;

/// A source text of a prompt.
#[derive(Debug, Clone)]
pub struct PromptSource {
    pub name: String,
    pub text: String,
}

/// The values of a rollup prompt.
#[derive(Debug, Clone)]
pub struct RollupPrompt<'a> {
    pub tier: Tier,
    pub title: String,
    /// The days it covers.
    pub span: String,
    /// The target length.
    pub tokens: usize,
    /// The number of sentences of the headline, as text.
    pub sentences: &'static str,
    /// Statements that the summary must keep.
    pub must: Vec<String>,
    pub sources: &'a [PromptSource],
    pub attempt: u32,
    /// The judge's complaints about the last attempt.
    pub complaints: String,
}

/// An exchange that is to be summarized.
#[derive(Debug, Clone, Copy)]
pub struct PromptExchange<'a> {
    pub turn: u64,
    /// The user's message.
    pub user: &'a str,
    /// The assistant's answer.
    pub assistant: &'a str,
    /// The facts so far.
    pub facts: &'a [String],
    /// Whether the model should propose changes of the facts.
    pub wants_diff: bool,
}

/// The prompt templates in force.
pub struct Prompts {
    files: BTreeMap<&'static str, PromptFile>,
}

fn prompt_error(name: &str, why: impl std::fmt::Display) -> Error {
    Error::Prompt(format!(
        "prompts/{name}.yaml: {}",
        why.to_string().lines().next().unwrap_or_default()
    ))
}

impl Prompts {
    /// Loads the built-in templates, and a vault's own in their place.
    pub async fn load(store: &dyn Store) -> Result<Self> {
        let mut files = BTreeMap::new();
        for &(name, built_in) in BUILT_IN_PROMPTS {
            let path: DocPath = format!("prompts/{name}.yaml").parse().map_err(StoreError::from)?;
            let own = store.document(&path).await?;
            let text = match &own {
                Some(bytes) if bytes.len() > MAX_PROMPT_FILE_BYTES => {
                    return Err(prompt_error(
                        name,
                        format!(
                            "it has {} bytes, the limit is {MAX_PROMPT_FILE_BYTES}",
                            bytes.len()
                        ),
                    ));
                }
                Some(bytes) => {
                    std::str::from_utf8(bytes).map_err(|error| prompt_error(name, error))?
                }
                None => built_in,
            };
            let file: PromptFile =
                serde_saphyr::from_str(text).map_err(|error| prompt_error(name, error))?;
            let complete = if ["rules", "task", "chat"].contains(&name) {
                !file.text.is_empty()
            } else {
                !file.system.is_empty() && !file.user.is_empty()
            };
            if !complete {
                return Err(prompt_error(
                    name,
                    "it needs `system` and `user`; a shared prompt needs `text`",
                ));
            }
            files.insert(name, file);
        }
        let prompts = Self { files };
        // A broken template is better found now than at night.
        prompts.fill_extraction(
            "x",
            &[PromptSource { name: "x".into(), text: "x".into() }],
            &["x".into()],
            1,
            "x",
        )?;
        prompts.fill_turn(
            &PromptExchange {
                turn: 1,
                user: "x",
                assistant: "x",
                facts: &["x".into()],
                wants_diff: true,
            },
            1,
            "x",
        )?;
        prompts.fill_facts(&["x".into()], 1, "x")?;
        prompts.fill_chat(&ChatMaterial::default(), &[("x".into(), "x".into(), "x".into())])?;
        for &tier in Tier::ALL {
            let sources = [PromptSource { name: "x".into(), text: "x".into() }];
            for attempt in 0..3 {
                prompts.fill_rollup(&RollupPrompt {
                    tier,
                    title: "x".into(),
                    span: "x".into(),
                    tokens: 1,
                    sentences: "2 to 4",
                    must: vec!["x".into()],
                    sources: &sources,
                    attempt,
                    complaints: "x".into(),
                })?;
            }
        }
        Ok(prompts)
    }

    /// The prompt that extracts events from these sources; `known` are the known statements.
    pub fn fill_extraction(
        &self,
        title: &str,
        sources: &[PromptSource],
        known: &[String],
        attempt: u32,
        complaints: &str,
    ) -> Result<(String, String)> {
        let values = context! {
            title => title,
            sources => source_values(sources),
            count => sources.len(),
            known => known.to_vec(),
            attempt => attempt,
            complaints => complaints,
            fence => source_fence(sources),
        };
        self.fill_system_and_user("distil", &values)
    }

    /// The prompt for a line of the turn log and a change of the facts.
    pub fn fill_turn(
        &self,
        exchanged: &PromptExchange<'_>,
        attempt: u32,
        complaints: &str,
    ) -> Result<(String, String)> {
        let shown = [exchanged.user, exchanged.assistant];
        let values = context! {
            turn => exchanged.turn,
            user => exchanged.user,
            assistant => exchanged.assistant,
            facts => exchanged.facts.to_vec(),
            wants_diff => exchanged.wants_diff,
            attempt => attempt,
            complaints => complaints,
            fence => fence_for(shown.into_iter().chain(exchanged.facts.iter().map(String::as_str))),
        };
        self.fill_system_and_user("turn", &values)
    }

    /// The prompt that reduces the facts.
    pub fn fill_facts(
        &self,
        facts: &[String],
        attempt: u32,
        complaints: &str,
    ) -> Result<(String, String)> {
        let values = context! {
            facts => facts.to_vec(),
            count => facts.len(),
            attempt => attempt,
            complaints => complaints,
            fence => fence_for(facts.iter().map(String::as_str)),
        };
        self.fill_system_and_user("facts", &values)
    }

    /// The context of a chat model; `recalled` are requested artifacts: name, version, text.
    pub fn fill_chat(
        &self,
        told: &ChatMaterial,
        recalled: &[(String, String, String)],
    ) -> Result<String> {
        let texts =
            |lines: &[ChatPackLine]| lines.iter().map(|line| line.text.clone()).collect::<Vec<_>>();
        let turns: Vec<Value> = told
            .turns
            .iter()
            .map(|told| context! { turn => told.turn, user => told.user.as_str(), assistant => told.assistant.as_str() })
            .collect();
        let recalled: Vec<Value> = recalled
            .iter()
            .map(|(name, version, text)| context! { name => name.as_str(), version => version.as_str(), text => text.as_str() })
            .collect();
        let values = context! {
            hard => texts(&told.hard),
            everywhere => texts(&told.everywhere),
            facts => texts(&told.facts),
            older => texts(&told.older),
            artifacts => texts(&told.artifacts),
            turns => turns,
            recalled => recalled,
        };
        Environment::empty()
            .render_str(&self.files["chat"].text, &values)
            .map_err(|error| prompt_error("chat", error))
    }

    fn fill_system_and_user(&self, name: &'static str, values: &Value) -> Result<(String, String)> {
        let file = &self.files[name];
        let environment = Environment::empty();
        let render = |text: &str| {
            environment.render_str(text, values).map_err(|error| prompt_error(name, error))
        };
        Ok((render(&file.system)?, render(&file.user)?))
    }

    /// The rollup prompt: system text and user text.
    pub fn fill_rollup(&self, filling: &RollupPrompt<'_>) -> Result<(String, String)> {
        let name = filling.tier.word();
        let mut environment = Environment::empty();
        for part in ["rules", "task"] {
            let text = &self.files[part].text;
            environment.add_template(part, text).map_err(|error| prompt_error(part, error))?;
        }
        let values = context! {
            title => filling.title.as_str(),
            span => filling.span.as_str(),
            tokens => filling.tokens,
            tighter => filling.tokens * (10 - 3 * filling.attempt.min(2) as usize) / 10,
            sentences => filling.sentences,
            must => filling.must.clone(),
            sources => source_values(filling.sources),
            count => filling.sources.len(),
            attempt => filling.attempt,
            complaints => filling.complaints.as_str(),
            fence => source_fence(filling.sources),
        };
        let file = &self.files[name];
        let render = |text: &str| {
            environment.render_str(text, &values).map_err(|error| prompt_error(name, error))
        };
        Ok((render(&file.system)?, render(&file.user)?))
    }
}

fn source_values(sources: &[PromptSource]) -> Vec<Value> {
    sources
        .iter()
        .map(|source| context! { name => source.name.as_str(), text => source.text.as_str() })
        .collect()
}

/// The separator between sources. A text cannot contain a hash of itself, so no source can end the
/// fence from within.
fn source_fence(sources: &[PromptSource]) -> String {
    fence_for(sources.iter().map(|source| source.text.as_str()))
}

fn fence_for<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let hash = texts.fold(Hash::of(b"fence"), |hash, text| hash.chain(text.as_bytes()));
    format!("=== {} ===", hash.short_hex())
}
