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
mod detection;
mod document;
mod elements;
mod facts;

use std::collections::BTreeMap;

use jiff::tz::Offset;

use crate::calendar::Moment;
use crate::event::{EntityKind, EventType, Origin};
use crate::record::{self, IncomingMessage};
use crate::sanitize;
use crate::string_enum::string_enum;
use crate::transcript::{self, JsonObject, LineReader};

pub use detection::{HEAD_BYTES, detect_format, list_fields};
pub use document::ImportDocument;
pub use elements::{ElementError, ElementScanner, ListElement};

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

string_enum! {
    /// The program whose history is imported.
    ImportFormat: "an import format" {
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

impl ImportFormat {
    /// Whether the file consists of lines and only grows, so that an import can continue where the
    /// last one ended.
    pub fn is_line_based(self) -> bool {
        matches!(self, Self::ClaudeCode | Self::Codex | Self::McpMemory | Self::Jsonl)
    }

    /// The conversation of the messages; `None` if the pieces name it.
    pub fn default_conversation(self) -> Option<&'static str> {
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
pub struct ImportedFact {
    /// Its id at the source; a fact with the same id and other words replaces the earlier one.
    pub external_id: String,
    pub text: String,
    /// Its type, if the source states it.
    pub kind: Option<EventType>,
    pub entity: Option<String>,
    /// The kind of the entity.
    pub entity_kind: Option<EntityKind>,
    pub tags: Vec<String>,
    /// When it was learned, if known.
    pub learned_at: Option<Moment>,
    /// The source, for a person to read.
    pub source: String,
    pub project: Option<String>,
    pub origin: Origin,
}

/// The position of a piece in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportPosition {
    /// The number of the line or element, from 1.
    pub number: usize,
    /// The byte offset.
    pub at: u64,
}

/// What was read from a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportBatch {
    /// Messages, each with the number of its piece.
    pub messages: Vec<(usize, IncomingMessage)>,
    pub facts: Vec<ImportedFact>,
    /// Skipped content by kind, with counts.
    pub skipped: BTreeMap<String, usize>,
    /// Unreadable pieces by number, with the end of the sentence "this line …".
    pub complaints: Vec<(usize, String)>,
    /// The number of complaints that are not listed.
    pub more_complaints: usize,
}

impl ImportBatch {
    /// Counts skipped content.
    pub fn count_skipped(&mut self, what: &str, count: usize) {
        if count == 0 {
            return;
        }
        let what = sanitize::one_line(&what.chars().take(40).collect::<String>());
        let what = if self.skipped.len() >= MAX_KINDS && !self.skipped.contains_key(&what) {
            "other kinds".into()
        } else {
            what
        };
        *self.skipped.entry(what).or_default() += count;
    }

    /// Reports an unreadable piece.
    pub fn add_complaint(&mut self, number: usize, what: impl Into<String>) {
        if self.complaints.len() < MAX_COMPLAINTS {
            self.complaints.push((number, what.into()));
        } else {
            self.more_complaints += 1;
        }
    }

    fn add_message(&mut self, number: usize, message: IncomingMessage) {
        self.messages.push((number, message));
    }

    /// Adds the messages and complaints of a line reader.
    fn add_lines(&mut self, lines: &mut LineReader) {
        for (what, count) in lines.out.skipped.drain(..) {
            self.count_skipped(&what, count);
        }
        for (number, what) in lines.out.complaints.drain(..) {
            self.add_complaint(number, what);
        }
    }
}

/// Looks up the project of a folder.
pub type ProjectLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads one file.
pub struct ImportReader {
    form: FormatReader,
    offset: Offset,
}

enum FormatReader {
    ClaudeCode(Box<claude_code::ClaudeCodeReader>),
    Codex(Box<codex::CodexReader>),
    ChatGpt,
    ClaudeAi,
    Mem0,
    McpMemory,
    Jsonl(Box<LineReader>),
    Documents,
}

impl ImportReader {
    /// Starts a file. `offset` applies to times without one.
    pub fn new(format: ImportFormat, offset: Offset) -> Self {
        let form = match format {
            ImportFormat::ClaudeCode => {
                FormatReader::ClaudeCode(Box::new(claude_code::ClaudeCodeReader::new(offset)))
            }
            ImportFormat::Codex => FormatReader::Codex(Box::new(codex::CodexReader::new(offset))),
            ImportFormat::ChatGpt => FormatReader::ChatGpt,
            ImportFormat::ClaudeAi => FormatReader::ClaudeAi,
            ImportFormat::Mem0 => FormatReader::Mem0,
            ImportFormat::McpMemory => FormatReader::McpMemory,
            ImportFormat::Markdown => FormatReader::Documents,
            ImportFormat::Jsonl => FormatReader::Jsonl(Box::new(LineReader::new(offset, false))),
        };
        Self { form, offset }
    }

    /// Continues from a checkpoint of an earlier run.
    pub fn resume(&mut self, left: &str) {
        if let FormatReader::Codex(reading) = &mut self.form {
            reading.resume(left);
        }
    }

    /// The checkpoint for continuing after the pieces so far.
    pub fn checkpoint(&self) -> Option<String> {
        match &self.form {
            FormatReader::Codex(reading) => reading.checkpoint(),
            _ => None,
        }
    }

    /// The first piece that must be read again because its result is incomplete.
    pub fn resume_position(&self) -> Option<ImportPosition> {
        match &self.form {
            FormatReader::ClaudeCode(reading) => reading.resume_position(),
            FormatReader::Codex(reading) => reading.resume_position(),
            _ => None,
        }
    }

    /// Reads a piece.
    pub fn read_piece(
        &mut self,
        place: ImportPosition,
        json: &str,
        projects: ProjectLookup<'_>,
        into: &mut ImportBatch,
    ) {
        let ImportPosition { number, .. } = place;
        match &mut self.form {
            FormatReader::ClaudeCode(reading) => {
                return reading.read_line(place, json, projects, into);
            }
            FormatReader::Codex(reading) => return reading.read_line(place, json, projects, into),
            FormatReader::Jsonl(lines) => return read_chat_line(lines, number, json, into),
            _ => {}
        }
        if transcript::is_too_deep(json) {
            return into.add_complaint(number, format!("nests deeper than {MAX_DEPTH} levels"));
        }
        let object = match JsonObject::parse(json) {
            Ok(object) => object,
            Err(error) => {
                return into.add_complaint(
                    number,
                    format!("is not a JSON object: {}", transcript::json_error_reason(&error)),
                );
            }
        };
        match &self.form {
            FormatReader::ChatGpt => chatgpt::read_conversation(number, &object, self.offset, into),
            FormatReader::ClaudeAi => {
                claude_ai::read_conversation(number, &object, self.offset, into)
            }
            FormatReader::Mem0 => facts::read_mem0(number, &object, self.offset, into),
            FormatReader::McpMemory => facts::read_mcp_memory(number, &object, self.offset, into),
            _ => into.count_skipped("JSON", 1),
        }
    }

    /// Ends the file.
    pub fn finish(&mut self, into: &mut ImportBatch) {
        match &mut self.form {
            FormatReader::ClaudeCode(reading) => reading.finish(into),
            FormatReader::Codex(reading) => reading.finish(into),
            _ => {}
        }
    }
}

/// Reads a line of any program: icecore's own format, or any object with a speaker, words and a
/// time.
fn read_chat_line(lines: &mut LineReader, number: usize, json: &str, into: &mut ImportBatch) {
    let wrong = match record::parse_import_line(json) {
        Ok(said) => return into.add_message(number, said),
        Err(wrong) => wrong,
    };
    lines.read_line(number, json);
    let turns: Vec<IncomingMessage> = lines.drain_turns().map(|(said, _)| said).collect();
    let told = turns.iter().any(|said| said.ts.is_some());
    // A message without a time cannot be stored. Complain about missing fields as for icecore's own
    // lines.
    if !told {
        lines.out.complaints.clear();
        lines.out.skipped.clear();
        return into.add_complaint(number, wrong.0);
    }
    let mut last = turns.iter().find_map(|said| said.ts);
    for mut said in turns {
        last = said.ts.or(last);
        said.ts = last;
        into.add_message(number, said);
    }
    into.add_lines(lines);
}

/// A time in an export: RFC 3339, or seconds since 1970.
fn parse_time(object: &JsonObject<'_>, names: &[&str], offset: Offset) -> Option<Moment> {
    names.iter().find_map(|name| {
        let text = object.text(name)?;
        let read = Moment::parse(&text).map(|read| read.moment);
        read.or_else(|| transcript::parse_unix_time(&text, offset))
    })
}

/// A text as raw JSON.
fn to_json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
