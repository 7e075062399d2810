//! Packs: text for a model. Pure functions of what is known, a day and a budget: same input, same
//! bytes.
//!
//! Every pack says what was left out and why, and where each part came from.

pub mod chat;
pub mod delta;
pub mod pyramid;
pub mod recall;
pub mod session;
pub mod states;
pub mod upload;
pub mod working;

use jiff::civil::Date;
use serde::Serialize;

use crate::budget::{self, LeftOut};
use crate::gate;
use crate::summary::Summary;

/// A part of a pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// How many words it has.
    pub words: usize,
    /// How many lines.
    pub lines: usize,
}

/// Text for a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pack {
    /// Which kind of pack.
    pub kind: &'static str,
    /// The day it is for.
    #[serde(serialize_with = "as_text")]
    pub date: Date,
    /// The text.
    pub text: String,
    /// Its bytes.
    pub bytes: usize,
    /// Its words.
    pub words: usize,
    /// About how many tokens it has.
    pub tokens: usize,
    /// Its parts.
    pub sections: Vec<Section>,
    /// What is not in it, and why.
    pub left_out: Vec<LeftOut>,
    /// What it was made from.
    pub sources: Vec<String>,
}

fn as_text<S: serde::Serializer>(day: &Date, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(day)
}

/// A part that is to be put into a pack.
#[derive(Debug, Clone, Default)]
struct Part {
    title: String,
    text: String,
}

impl Part {
    fn new(title: impl Into<String>, text: impl Into<String>) -> Self {
        Self { title: title.into(), text: text.into() }
    }

    fn shown(&self) -> String {
        format!("## {}\n\n{}\n\n---\n\n", self.title, self.text.trim_end())
    }
}

/// Puts the parts together, as text that is known for ours when it comes back.
fn assemble(
    kind: &'static str,
    date: Date,
    intro: &str,
    parts: &[Part],
    left_out: Vec<LeftOut>,
    sources: Vec<String>,
) -> Pack {
    let mut text = format!("{}\n\n", intro.trim_end());
    parts.iter().for_each(|part| text.push_str(&part.shown()));
    let text = gate::wrap(kind, date, text.trim_end()) + "\n";
    let sections = parts.iter().map(|part| Section {
        title: part.title.clone(),
        words: budget::words(&part.text),
        lines: part.text.lines().count(),
    });
    Pack {
        kind,
        date,
        bytes: text.len(),
        words: budget::words(&text),
        tokens: budget::tokens(&text),
        sections: sections.collect(),
        left_out,
        sources,
        text,
    }
}

/// Which version of which summary, as a source.
fn cited(summary: &Summary) -> String {
    format!("{}#{}", summary.period, summary.version)
}

/// A summary's text; one that was made without a model says so.
fn whole(summary: &Summary) -> String {
    let mark = if summary.provisional { " (provisional)" } else { "" };
    let mut text = format!("{}{mark}\n", summary.headline);
    if !summary.body.is_empty() {
        text.push('\n');
        text.push_str(summary.body.trim_end());
        text.push('\n');
    }
    text
}
