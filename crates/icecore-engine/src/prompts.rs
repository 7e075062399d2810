//! The prompts: YAML, one a tier, built in and overridable in a vault. Rust only fills them in
//! (P4).

use std::collections::BTreeMap;

use icecore_domain::hash::Hash;
use icecore_domain::layout::DocPath;
use icecore_domain::packs::chat::{Line, Material};
use icecore_domain::summary::Tier;
use icecore_store::{Error as StoreError, Store};
use minijinja::{Environment, Value, context};
use serde::Deserialize;

use crate::{Error, Result};

const BUILT_IN: &[(&str, &str)] = &[
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

/// What a prompt's file says.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    system: String,
    #[serde(default)]
    user: String,
    #[serde(default)]
    text: String,
}

/// The longest prompt file, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// One source as a prompt shows it.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// What is filled in.
#[derive(Debug, Clone)]
pub struct Filling<'a> {
    /// Which tier.
    pub tier: Tier,
    /// What it is called.
    pub title: String,
    /// The days it covers.
    pub span: String,
    /// How many tokens are wanted.
    pub tokens: usize,
    /// How many sentences the headline has.
    pub sentences: &'static str,
    /// What must be kept.
    pub must: Vec<String>,
    /// What it is made from.
    pub sources: &'a [Shown],
    /// Which attempt this is.
    pub attempt: u32,
    /// What was wrong with the last one.
    pub complaints: String,
}

/// An exchange that is to be summarised.
#[derive(Debug, Clone, Copy)]
pub struct Exchanged<'a> {
    /// Which turn it is.
    pub turn: u64,
    /// What the user said.
    pub user: &'a str,
    /// What the assistant said.
    pub assistant: &'a str,
    /// What is established so far.
    pub facts: &'a [String],
    /// Whether facts are to be looked for.
    pub wants_diff: bool,
}

/// The prompts in force.
pub struct Prompts {
    files: BTreeMap<&'static str, File>,
}

fn wrong(name: &str, why: impl std::fmt::Display) -> Error {
    Error::Prompt(format!(
        "prompts/{name}.yaml: {}",
        why.to_string().lines().next().unwrap_or_default()
    ))
}

impl Prompts {
    /// The built-in ones, with a vault's own in their place.
    pub async fn load(store: &dyn Store) -> Result<Self> {
        let mut files = BTreeMap::new();
        for &(name, built_in) in BUILT_IN {
            let path: DocPath = format!("prompts/{name}.yaml").parse().map_err(StoreError::Path)?;
            let own = store.document(&path).await?;
            let text = match &own {
                Some(bytes) if bytes.len() > MAX_BYTES => {
                    return Err(wrong(
                        name,
                        format!("it has {} bytes, at most {MAX_BYTES} are read", bytes.len()),
                    ));
                }
                Some(bytes) => std::str::from_utf8(bytes).map_err(|error| wrong(name, error))?,
                None => built_in,
            };
            let file: File = serde_saphyr::from_str(text).map_err(|error| wrong(name, error))?;
            let complete = if ["rules", "task", "chat"].contains(&name) {
                !file.text.is_empty()
            } else {
                !file.system.is_empty() && !file.user.is_empty()
            };
            if !complete {
                return Err(wrong(name, "it needs `system` and `user`, and a shared one `text`"));
            }
            files.insert(name, file);
        }
        let prompts = Self { files };
        // A prompt that cannot be filled in is better found now than at night.
        prompts.fill_distil(
            "x",
            &[Shown { name: "x".into(), text: "x".into() }],
            &["x".into()],
            1,
            "x",
        )?;
        prompts.fill_turn(
            &Exchanged {
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
        prompts.fill_chat(&Material::default(), &[("x".into(), "x".into(), "x".into())])?;
        for &tier in Tier::ALL {
            let sources = [Shown { name: "x".into(), text: "x".into() }];
            for attempt in 0..3 {
                prompts.fill(&Filling {
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

    /// The prompt that asks for what is to be remembered of these sources; `known` is what is
    /// remembered already.
    pub fn fill_distil(
        &self,
        title: &str,
        sources: &[Shown],
        known: &[String],
        attempt: u32,
        complaints: &str,
    ) -> Result<(String, String)> {
        let values = context! {
            title => title,
            sources => shown(sources),
            count => sources.len(),
            known => known.to_vec(),
            attempt => attempt,
            complaints => complaints,
            fence => fence(sources),
        };
        self.fill_both("distil", &values)
    }

    /// The prompt that asks for a line of the turn log and a change of the facts.
    pub fn fill_turn(
        &self,
        exchanged: &Exchanged<'_>,
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
            fence => fence_of(shown.into_iter().chain(exchanged.facts.iter().map(String::as_str))),
        };
        self.fill_both("turn", &values)
    }

    /// The prompt that asks for fewer facts.
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
            fence => fence_of(facts.iter().map(String::as_str)),
        };
        self.fill_both("facts", &values)
    }

    /// What a chat model is told; `recalled` are artifacts that were asked for: name, version,
    /// text.
    pub fn fill_chat(
        &self,
        told: &Material,
        recalled: &[(String, String, String)],
    ) -> Result<String> {
        let texts = |lines: &[Line]| lines.iter().map(|line| line.text.clone()).collect::<Vec<_>>();
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
            .map_err(|error| wrong("chat", error))
    }

    fn fill_both(&self, name: &'static str, values: &Value) -> Result<(String, String)> {
        let file = &self.files[name];
        let environment = Environment::empty();
        let render =
            |text: &str| environment.render_str(text, values).map_err(|error| wrong(name, error));
        Ok((render(&file.system)?, render(&file.user)?))
    }

    /// The prompt: what the model is, and what it is to do.
    pub fn fill(&self, filling: &Filling<'_>) -> Result<(String, String)> {
        let name = filling.tier.word();
        let mut environment = Environment::empty();
        for part in ["rules", "task"] {
            let text = &self.files[part].text;
            environment.add_template(part, text).map_err(|error| wrong(part, error))?;
        }
        let values = context! {
            title => filling.title.as_str(),
            span => filling.span.as_str(),
            tokens => filling.tokens,
            tighter => filling.tokens * (10 - 3 * filling.attempt.min(2) as usize) / 10,
            sentences => filling.sentences,
            must => filling.must.clone(),
            sources => shown(filling.sources),
            count => filling.sources.len(),
            attempt => filling.attempt,
            complaints => filling.complaints.as_str(),
            fence => fence(filling.sources),
        };
        let file = &self.files[name];
        let render =
            |text: &str| environment.render_str(text, &values).map_err(|error| wrong(name, error));
        Ok((render(&file.system)?, render(&file.user)?))
    }
}

fn shown(sources: &[Shown]) -> Vec<Value> {
    sources
        .iter()
        .map(|source| context! { name => source.name.as_str(), text => source.text.as_str() })
        .collect()
}

/// The mark between sources. Nobody can write text that contains a hash of itself, so nobody can
/// end the fence from within.
fn fence(sources: &[Shown]) -> String {
    fence_of(sources.iter().map(|source| source.text.as_str()))
}

fn fence_of<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let hash = texts.fold(Hash::of(b"fence"), |hash, text| hash.then(text.as_bytes()));
    format!("=== {} ===", hash.short())
}
