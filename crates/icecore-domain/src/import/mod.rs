//! Other programs' histories, read into what was said and what was learnt (P1).
//!
//! A history comes in pieces, one at a time: a line, an element of a long JSON list, a document.
//! Whatever a stranger's file holds, nothing here is an error: a piece that cannot be read is a
//! complaint with its number, and what is passed over is counted by what it is. What is read is
//! kept by nobody yet; the gate is still before it.

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

/// The longest piece that is read, in bytes: a whole conversation of a chat.
pub const MAX_PIECE_BYTES: usize = 64 * 1024 * 1024;
/// The longest line that is read, in bytes.
pub const MAX_LINE_BYTES: usize = transcript::MAX_LINE_BYTES;
/// How deep the JSON of a piece may nest.
pub const MAX_DEPTH: usize = transcript::MAX_DEPTH;
/// How many complaints of one file are told one by one; the rest is counted.
pub const MAX_COMPLAINTS: usize = transcript::MAX_COMPLAINTS;
/// How many kinds of passed over things are told apart.
const MAX_KINDS: usize = 64;

words! {
    /// Whose history it is.
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
        /// A message a line.
        Jsonl = "jsonl",
    }
}

impl Format {
    /// Whether it comes as lines that are only ever added to, so that reading can go on where it
    /// ended.
    pub fn is_lines(self) -> bool {
        matches!(self, Self::ClaudeCode | Self::Codex | Self::McpMemory | Self::Jsonl)
    }

    /// The conversation that what was said belongs to; none where the pieces name it.
    pub fn conversation(self) -> Option<&'static str> {
        match self {
            // Where everything stands that assistants' programs tell of their sessions, whichever
            // way it came.
            Self::ClaudeCode | Self::Codex => Some("sessions"),
            Self::ChatGpt | Self::ClaudeAi | Self::Markdown => Some(self.word()),
            Self::Mem0 | Self::McpMemory | Self::Jsonl => None,
        }
    }
}

/// Something that another program had learnt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// What it is known by where it comes from; the same one with other words replaces what was
    /// known.
    pub was: String,
    /// What was learnt.
    pub text: String,
    /// Its type, if it says so.
    pub kind: Option<Kind>,
    /// The thing it is about.
    pub entity: Option<String>,
    /// What kind of thing that is.
    pub entity_kind: Option<EntityKind>,
    /// Labels.
    pub tags: Vec<String>,
    /// When it was learnt, if that is known.
    pub said: Option<Moment>,
    /// Where it comes from, for a person.
    pub source: String,
    /// The project it belongs to.
    pub project: Option<String>,
    /// Whose words it goes back to.
    pub origin: Origin,
}

/// Where a piece stands: its number from 1 on, and the byte it begins at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Its number: of the line, or of the element.
    pub number: usize,
    /// How many bytes stand before it.
    pub at: u64,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Harvest {
    /// What was said, each with the number of its piece.
    pub said: Vec<(usize, Said)>,
    /// What was learnt.
    pub facts: Vec<Fact>,
    /// What was passed over on purpose, and how often.
    pub skipped: BTreeMap<String, usize>,
    /// Pieces that could not be read, by number, as the end of the sentence "this line …".
    pub complaints: Vec<(usize, String)>,
    /// How many more there were.
    pub beyond: usize,
}

impl Harvest {
    /// Counts what is passed over.
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

    /// Says that a piece could not be read.
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

    /// Takes over what a reading of lines has to tell.
    fn hear(&mut self, lines: &mut Lines) {
        for (what, count) in lines.out.skipped.drain(..) {
            self.skip(&what, count);
        }
        for (number, what) in lines.out.complaints.drain(..) {
            self.complain(number, what);
        }
    }
}

/// The name of the project that a folder belongs to, if it does to any.
pub type Projects<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A reading of one file that is under way.
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
    /// Begins to read. `offset` is that of times without one.
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

    /// Goes on where a reading ended that left this behind.
    pub fn resume(&mut self, left: &str) {
        if let Form::Codex(reading) = &mut self.form {
            reading.resume(left);
        }
    }

    /// What a reading that goes on after the pieces so far has to know.
    pub fn leaves(&self) -> Option<String> {
        match &self.form {
            Form::Codex(reading) => reading.leaves(),
            _ => None,
        }
    }

    /// The first piece that would have to be read again, because not all of it has been told.
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

    /// There are no more pieces.
    pub fn finish(&mut self, into: &mut Harvest) {
        match &mut self.form {
            Form::ClaudeCode(reading) => reading.finish(into),
            Form::Codex(reading) => reading.finish(into),
            _ => {}
        }
    }
}

/// A line of somebody's own program: ours, or anything in which somebody says something at some
/// time.
fn chat_line(lines: &mut Lines, number: usize, json: &str, into: &mut Harvest) {
    let wrong = match record::read_import(json) {
        Ok(said) => return into.say(number, said),
        Err(wrong) => wrong,
    };
    lines.line(number, json);
    let turns: Vec<Said> = lines.take().map(|(said, _)| said).collect();
    let told = turns.iter().any(|said| said.ts.is_some());
    // What has no time cannot be put anywhere; then what is missing is told as it is for our own
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

/// A time as exports have it: RFC 3339, or seconds since 1970.
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
