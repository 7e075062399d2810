//! Import of other programs' histories: messages and learned facts (P1).
//!
//! A history is read piece by piece: a line, an element of a long JSON list, or a document. Nothing
//! in an untrusted file is an error: an unreadable piece is a complaint with its number, and
//! skipped content is counted by kind. The result is not stored yet; it still has to pass the
//! capture filter.

mod chatgpt;
mod claude_ai;
mod claude_code;
mod codex;
mod document;
mod elements;
mod facts;
mod recognise;

use std::collections::BTreeMap;

use jiff::tz::Offset;

use crate::calendar::Moment;
use crate::event::{EntityKind, Kind, Origin};
use crate::plain;
use crate::record::{self, Said};
use crate::transcript::{self, Lines, Object};
use crate::words::words;

pub use document::Document;
pub use elements::{Elements, Piece, Unreadable};
pub use recognise::{HEAD_BYTES, inside, recognise};

/// The longest piece that is read: a whole chat conversation.
pub const MAX_PIECE_BYTES: usize = 64 * 1024 * 1024;
/// The longest line that is read.
pub const MAX_LINE_BYTES: usize = transcript::MAX_LINE_BYTES;
/// How deep the JSON of a piece may nest.
pub const MAX_DEPTH: usize = transcript::MAX_DEPTH;
/// The most complaints of one file that are listed; the rest is counted.
pub const MAX_COMPLAINTS: usize = transcript::MAX_COMPLAINTS;
/// The most kinds of skipped content that are counted separately.
const MAX_KINDS: usize = 64;

words! {
    /// The program whose history is imported.
    Format: "an import format" {
        /// Transcripts of Claude Code, and its memory folder.
        ClaudeCode = "claude-code",
        /// Rollouts of Codex.
        Codex = "codex",
        /// The export of ChatGPT.
        ChatGpt = "chatgpt",
        /// The export of Claude.ai.
        ClaudeAi = "claude-ai",
        /// Memories of mem0.
        Mem0 = "mem0",
        /// The file of the MCP memory server.
        McpMemory = "mcp-memory",
        /// Notes.
        Markdown = "markdown",
        /// One message per line.
        Jsonl = "jsonl",
    }
}

impl Format {
    /// Whether the file consists of lines and only grows, so that an import can continue where the
    /// last one ended.
    pub fn is_lines(self) -> bool {
        matches!(self, Self::ClaudeCode | Self::Codex | Self::McpMemory | Self::Jsonl)
    }

    /// The conversation of the messages; `None` if the pieces name it.
    pub fn conversation(self) -> Option<&'static str> {
        match self {
            // All sessions of coding assistants go into one conversation, whether they come from
            // hooks or from imports.
            Self::ClaudeCode | Self::Codex => Some("sessions"),
            Self::ChatGpt | Self::ClaudeAi | Self::Markdown => Some(self.word()),
            Self::Mem0 | Self::McpMemory | Self::Jsonl => None,
        }
    }
}

/// A fact that another program has learned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Its id at the source; a fact with the same id and other words replaces the earlier one.
    pub was: String,
    pub text: String,
    /// Its type, if the source states it.
    pub kind: Option<Kind>,
    pub entity: Option<String>,
    /// The kind of the entity.
    pub entity_kind: Option<EntityKind>,
    pub tags: Vec<String>,
    /// When it was learned, if known.
    pub said: Option<Moment>,
    /// The source, for a person to read.
    pub source: String,
    pub project: Option<String>,
    pub origin: Origin,
}

/// The position of a piece in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The number of the line or element, from 1.
    pub number: usize,
    /// The byte offset.
    pub at: u64,
}

/// What was read from a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Harvest {
    /// Messages, each with the number of its piece.
    pub said: Vec<(usize, Said)>,
    pub facts: Vec<Fact>,
    /// Skipped content by kind, with counts.
    pub skipped: BTreeMap<String, usize>,
    /// Unreadable pieces by number, with the end of the sentence "this line …".
    pub complaints: Vec<(usize, String)>,
    /// The number of complaints that are not listed.
    pub beyond: usize,
}

impl Harvest {
    /// Counts skipped content.
    pub fn skip(&mut self, what: &str, count: usize) {
        if count == 0 {
            return;
        }
        let what = plain::one_line(&what.chars().take(40).collect::<String>());
        let what = if self.skipped.len() >= MAX_KINDS && !self.skipped.contains_key(&what) {
            "other kinds".into()
        } else {
            what
        };
        *self.skipped.entry(what).or_default() += count;
    }

    /// Reports an unreadable piece.
    pub fn complain(&mut self, number: usize, what: impl Into<String>) {
        if self.complaints.len() < MAX_COMPLAINTS {
            self.complaints.push((number, what.into()));
        } else {
            self.beyond += 1;
        }
    }

    fn say(&mut self, number: usize, said: Said) {
        self.said.push((number, said));
    }

    /// Adds the messages and complaints of a line reader.
    fn hear(&mut self, lines: &mut Lines) {
        for (what, count) in lines.out.skipped.drain(..) {
            self.skip(&what, count);
        }
        for (number, what) in lines.out.complaints.drain(..) {
            self.complain(number, what);
        }
    }
}

/// Looks up the project of a folder.
pub type Projects<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads one file.
pub struct Reader {
    form: Form,
    offset: Offset,
}

enum Form {
    ClaudeCode(Box<claude_code::Reading>),
    Codex(Box<codex::Reading>),
    ChatGpt,
    ClaudeAi,
    Mem0,
    McpMemory,
    Jsonl(Box<Lines>),
    Documents,
}

impl Reader {
    /// Starts a file. `offset` applies to times without one.
    pub fn new(format: Format, offset: Offset) -> Self {
        let form = match format {
            Format::ClaudeCode => Form::ClaudeCode(Box::new(claude_code::Reading::new(offset))),
            Format::Codex => Form::Codex(Box::new(codex::Reading::new(offset))),
            Format::ChatGpt => Form::ChatGpt,
            Format::ClaudeAi => Form::ClaudeAi,
            Format::Mem0 => Form::Mem0,
            Format::McpMemory => Form::McpMemory,
            Format::Markdown => Form::Documents,
            Format::Jsonl => Form::Jsonl(Box::new(Lines::new(offset, false))),
        };
        Self { form, offset }
    }

    /// Continues from a checkpoint of an earlier run.
    pub fn resume(&mut self, left: &str) {
        if let Form::Codex(reading) = &mut self.form {
            reading.resume(left);
        }
    }

    /// The checkpoint for continuing after the pieces so far.
    pub fn leaves(&self) -> Option<String> {
        match &self.form {
            Form::Codex(reading) => reading.leaves(),
            _ => None,
        }
    }

    /// The first piece that must be read again because its result is incomplete.
    pub fn waits_for(&self) -> Option<Place> {
        match &self.form {
            Form::ClaudeCode(reading) => reading.waits_for(),
            Form::Codex(reading) => reading.waits_for(),
            _ => None,
        }
    }

    /// Reads a piece.
    pub fn piece(&mut self, place: Place, json: &str, projects: Projects<'_>, into: &mut Harvest) {
        let Place { number, .. } = place;
        match &mut self.form {
            Form::ClaudeCode(reading) => return reading.line(place, json, projects, into),
            Form::Codex(reading) => return reading.line(place, json, projects, into),
            Form::Jsonl(lines) => return chat_line(lines, number, json, into),
            _ => {}
        }
        if transcript::is_too_deep(json) {
            return into.complain(number, format!("nests deeper than {MAX_DEPTH} levels"));
        }
        let object = match Object::read(json) {
            Ok(object) => object,
            Err(error) => {
                return into.complain(
                    number,
                    format!("is not a JSON object: {}", transcript::reason(&error)),
                );
            }
        };
        match &self.form {
            Form::ChatGpt => chatgpt::conversation(number, &object, self.offset, into),
            Form::ClaudeAi => claude_ai::conversation(number, &object, self.offset, into),
            Form::Mem0 => facts::mem0(number, &object, self.offset, into),
            Form::McpMemory => facts::mcp_memory(number, &object, self.offset, into),
            _ => into.skip("JSON", 1),
        }
    }

    /// Ends the file.
    pub fn finish(&mut self, into: &mut Harvest) {
        match &mut self.form {
            Form::ClaudeCode(reading) => reading.finish(into),
            Form::Codex(reading) => reading.finish(into),
            _ => {}
        }
    }
}

/// Reads a line of any program: icecore's own format, or any object with a speaker, words and a
/// time.
fn chat_line(lines: &mut Lines, number: usize, json: &str, into: &mut Harvest) {
    let wrong = match record::read_import(json) {
        Ok(said) => return into.say(number, said),
        Err(wrong) => wrong,
    };
    lines.line(number, json);
    let turns: Vec<Said> = lines.take().map(|(said, _)| said).collect();
    let told = turns.iter().any(|said| said.ts.is_some());
    // A message without a time cannot be stored. Complain about missing fields as for icecore's own
    // lines.
    if !told {
        lines.out.complaints.clear();
        lines.out.skipped.clear();
        return into.complain(number, wrong.0);
    }
    let mut last = turns.iter().find_map(|said| said.ts);
    for mut said in turns {
        last = said.ts.or(last);
        said.ts = last;
        into.say(number, said);
    }
    into.hear(lines);
}

/// A time in an export: RFC 3339, or seconds since 1970.
fn time(object: &Object<'_>, names: &[&str], offset: Offset) -> Option<Moment> {
    names.iter().find_map(|name| {
        let text = object.text(name)?;
        let read = Moment::read(&text).map(|read| read.moment);
        read.or_else(|| transcript::since_1970(&text, offset))
    })
}

/// A text as raw JSON.
fn raw(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
