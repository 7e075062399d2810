//! Packs: text assembled for a model. Pure functions of the input data, a day and a budget: the
//! same input gives the same bytes.
//!
//! Every pack states what was omitted and why, and the source of each part.

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

use crate::budget::{self, Omission};
use crate::capture_filter;
use crate::summary::Summary;

/// One section of a pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PackSection {
    pub title: String,
    /// The number of words.
    pub words: usize,
    /// The number of lines.
    pub lines: usize,
}

/// The assembled text with its measurements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pack {
    /// The kind of pack.
    pub kind: &'static str,
    /// The day it was made for.
    #[serde(serialize_with = "as_text")]
    pub date: Date,
    pub text: String,
    pub bytes: usize,
    pub words: usize,
    /// The estimated number of tokens.
    pub tokens: usize,
    /// The sections.
    pub sections: Vec<PackSection>,
    /// What was omitted, and why.
    pub left_out: Vec<Omission>,
    /// The sources of the text.
    pub sources: Vec<String>,
}

fn serialize_day<S: serde::Serializer>(day: &Date, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(day)
}

/// A section before assembly.
#[derive(Debug, Clone, Default)]
struct PackPart {
    title: String,
    text: String,
}

impl PackPart {
    fn new(title: impl Into<String>, text: impl Into<String>) -> Self {
        Self { title: title.into(), text: text.into() }
    }

    fn to_markdown(&self) -> String {
        format!("## {}\n\n{}\n\n---\n\n", self.title, self.text.trim_end())
    }
}

/// Assembles the sections and marks the text as icecore's own, so that capture can recognize it.
fn assemble_pack(
    kind: &'static str,
    date: Date,
    intro: &str,
    parts: &[PackPart],
    left_out: Vec<Omission>,
    sources: Vec<String>,
) -> Pack {
    let mut text = format!("{}\n\n", intro.trim_end());
    parts.iter().for_each(|part| text.push_str(&part.to_markdown()));
    let text = capture_filter::wrap_block(kind, date, text.trim_end()) + "\n";
    let sections = parts.iter().map(|part| PackSection {
        title: part.title.clone(),
        words: budget::count_words(&part.text),
        lines: part.text.lines().count(),
    });
    Pack {
        kind,
        date,
        bytes: text.len(),
        words: budget::count_words(&text),
        tokens: budget::estimate_tokens(&text),
        sections: sections.collect(),
        left_out,
        sources,
        text,
    }
}

/// The citation of a summary version as a source.
fn summary_citation(summary: &Summary) -> String {
    format!("{}#{}", summary.period, summary.version)
}

/// A summary's text; marks a provisional one.
fn summary_text(summary: &Summary) -> String {
    let mark = if summary.provisional { " (provisional)" } else { "" };
    let mut text = format!("{}{mark}\n", summary.headline);
    if !summary.body.is_empty() {
        text.push('\n');
        text.push_str(summary.body.trim_end());
        text.push('\n');
    }
    text
}
