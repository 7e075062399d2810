//! Transcripts: conversations from a person or a program, parsed into messages (P1).
//!
//! A transcript is JSON lines, Markdown or plain text, from programs that change their formats
//! without notice. Nothing here is an error: an unreadable line is a complaint with its number,
//! skipped content is counted by kind, and a text without a recognizable speaker is one turn of the
//! person who supplied it. Turns keep the order and the words of the file. Parsing time is linear
//! in the length of the text.

mod queue;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::LazyLock;

use icecore_text::markdown;
use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::Offset;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::calendar::Moment;
use crate::json;
use crate::record::{DELIVERED_JSON, IncomingMessage, QUEUED_FIELD, Role, UNDELIVERED_JSON};
use crate::sanitize::one_line;
use crate::string_enum::string_enum;

use self::queue::PromptQueue;

/// The longest line, or message of a list, that is read.
pub const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;
/// How deep the JSON of a line may nest; the stored form adds one level and must stay readable.
pub const MAX_DEPTH: usize = 100;
/// The most complaints that are listed; the rest is counted as skipped.
pub const MAX_COMPLAINTS: usize = 1_000;
/// The most kinds of skipped content that are counted separately.
const MAX_KINDS: usize = 64;
/// A picture or file inside a message is kept in `parts` up to this size; a larger one keeps only
/// its description.
const MAX_EMBEDDED_BYTES: usize = 2_048;
/// A longer name is a sentence.
const MAX_SPEAKER_BYTES: usize = 64;

string_enum! {
    /// The format of a transcript.
    TranscriptFormat: "a shape of transcript" {
        /// One JSON object per line, or one JSON list of them.
        Jsonl = "jsonl",
        /// Markdown, with turns under headings or after names in bold.
        Markdown = "markdown",
        /// Plain text, with turns after names at the start of a line.
        Text = "text",
    }
}

/// A parsed transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    pub shape: TranscriptFormat,
    pub title: Option<String>,
    /// The session that the transcript names; the first one if there are several.
    pub session: Option<String>,
    /// The messages, in file order.
    pub turns: Vec<IncomingMessage>,
    /// Unreadable lines by number, from 1, with the end of the sentence "this line …".
    pub complaints: Vec<(usize, String)>,
    /// Skipped content by kind, with counts.
    pub skipped: Vec<(String, usize)>,
}

impl Transcript {
    fn new(shape: TranscriptFormat) -> Self {
        Self {
            shape,
            title: None,
            session: None,
            turns: Vec::new(),
            complaints: Vec::new(),
            skipped: Vec::new(),
        }
    }

    fn count_skipped(&mut self, what: &str, count: usize) {
        if count == 0 {
            return;
        }
        let what = one_line(&what.chars().take(40).collect::<String>());
        let known = self.skipped.iter().position(|(name, _)| *name == what);
        let full = self.skipped.len() >= MAX_KINDS;
        match known.or_else(|| full.then_some(MAX_KINDS - 1)) {
            Some(place) => self.skipped[place].1 += count,
            None if self.skipped.len() == MAX_KINDS - 1 => {
                self.skipped.push(("other kinds".into(), count))
            }
            None => self.skipped.push((what, count)),
        }
    }

    fn add_complaint(&mut self, line: usize, what: impl Into<String>) {
        if self.complaints.len() < MAX_COMPLAINTS {
            self.complaints.push((line, what.into()));
        } else {
            self.count_skipped("further complaints", 1);
        }
    }
}

/// Parses a transcript. Without a `shape` the format is detected. `day` is the date of clock times
/// without a date, `offset` applies to times without one.
pub fn parse_transcript(
    text: &str,
    shape: Option<TranscriptFormat>,
    day: Date,
    offset: Offset,
) -> Transcript {
    match shape.unwrap_or_else(|| detect_format(text)) {
        TranscriptFormat::Jsonl => LineReader::read_all(strip_bom(text), offset),
        shape => {
            let text = normalize_line_breaks(strip_bom(text));
            parse_text(&text, shape, day, offset)
        }
    }
}

/// Detects the format of a text.
pub fn detect_format(text: &str) -> TranscriptFormat {
    let text = strip_bom(text);
    let start = text.trim_start();
    let opens = start.strip_prefix('{').or_else(|| start.strip_prefix('['));
    if let Some(inner) = opens {
        let listed = start.starts_with('[') && inner.trim_start().starts_with('{');
        let named = start.starts_with('{') && inner.trim_start().starts_with('"');
        let mut first = start.lines().filter(|line| !line.trim().is_empty()).take(16);
        if listed
            || named
            || first.any(|line| {
                line.trim_start().starts_with('{') && JsonObject::parse(line.trim()).is_ok()
            })
        {
            return TranscriptFormat::Jsonl;
        }
    }
    let text = normalize_line_breaks(text);
    let front = FrontMatter::parse(&text);
    let body = &text[front.bytes..];
    let (marked, plain) = (
        TextBody::parse(body, SpeakerStyle::Marked).marks.len(),
        TextBody::parse(body, SpeakerStyle::Plain).marks.len(),
    );
    let dressed = front.bytes > 0
        || body
            .lines()
            .any(|line| markdown::fence_line(line).is_some() || parse_heading(line).is_some());
    if if marked.max(plain) > 0 { marked >= plain } else { dressed } {
        TranscriptFormat::Markdown
    } else {
        TranscriptFormat::Text
    }
}

fn strip_bom(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

fn normalize_line_breaks(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") { text.replace("\r\n", "\n").into() } else { text.into() }
}

fn moment_at(date: Date, clock: Option<Time>, offset: Offset) -> Option<Moment> {
    let at = offset.to_timestamp(date.to_datetime(clock.unwrap_or_default())).ok()?;
    Some(Moment::new(at, offset))
}

// ── JSON
// ────────────────────────────────────────────────────────────────────────────────────────────────────────────

/// A JSON object: its fields in order, with raw values.
pub(crate) struct JsonObject<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

#[derive(Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for JsonObject<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = JsonObject<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((BorrowedText(name), value)) = map.next_entry()? {
                    fields.push((name, value));
                }
                Ok(JsonObject(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl<'a> JsonObject<'a> {
    pub(crate) fn parse(json: &'a str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }

    pub(crate) fn raw(&self, name: &str) -> Option<&'a str> {
        self.0
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, raw)| raw.get())
            .filter(|json| *json != "null")
    }

    pub(crate) fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        self.raw(name).and_then(text_value)
    }

    /// The first of these fields that has a text.
    pub(crate) fn first_text(&self, names: &[&str]) -> Option<String> {
        names
            .iter()
            .find_map(|name| self.text(name).filter(|text| !text.trim().is_empty()))
            .map(Cow::into_owned)
    }

    pub(crate) fn object(&self, name: &str) -> Option<JsonObject<'a>> {
        self.raw(name).filter(|json| json.starts_with('{')).and_then(|json| Self::parse(json).ok())
    }

    pub(crate) fn list(&self, name: &str) -> Option<Vec<&'a RawValue>> {
        self.raw(name).and_then(list_value)
    }

    /// The fields with their raw values.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(name, raw)| (name.as_ref(), raw.get()))
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.raw(name) == Some("true")
    }
}

/// A string, or a number as written.
pub(crate) fn text_value(json: &str) -> Option<Cow<'_, str>> {
    match json.as_bytes().first()? {
        b'"' => match serde_json::from_str(json) {
            Ok(BorrowedText(text)) => Some(text),
            Err(_) => json::parse(json).ok().map(Cow::Owned),
        },
        b'-' | b'0'..=b'9' => Some(json.into()),
        _ => None,
    }
}

pub(crate) fn list_value(json: &str) -> Option<Vec<&RawValue>> {
    json.starts_with('[').then(|| serde_json::from_str(json).ok()).flatten()
}

/// JSON on one line, as a record needs it. Line breaks occur only between tokens, never inside a
/// string.
pub(crate) fn compact_json(json: &str) -> String {
    if json.contains(['\n', '\r']) {
        json.split(['\n', '\r']).map(str::trim).collect()
    } else {
        json.to_owned()
    }
}

pub(crate) fn is_too_deep(json: &str) -> bool {
    let bytes = json.as_bytes();
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            // Most of a line is a string, of which only the end matters.
            b'"' => loop {
                match memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
                    None => return false,
                    Some(found) if bytes[at + found] == b'"' => {
                        at += found + 1;
                        break;
                    }
                    Some(found) => at += found + 2,
                }
            },
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

pub(crate) fn json_error_reason(error: &serde_json::Error) -> String {
    error.to_string().split(" at line ").next().unwrap_or_default().to_owned()
}

/// The strand of a transcript that a turn belongs to; some strands repeat others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnStrand {
    /// Always part of the transcript.
    Main,
    /// Messages of a Codex rollout.
    Item,
    /// Display events of Codex: they repeat the messages, unless those are missing.
    Echo,
    /// The main conversation of Claude Code.
    Talk,
    /// A subagent's conversation, used only if the file contains nothing else.
    Side,
}

/// The text and parts of a message, collected block by block.
#[derive(Default)]
struct MessageText {
    text: String,
    parts: Vec<String>,
    /// Raw parts from outside the content.
    given: Option<String>,
    ends_in_words: bool,
}

impl MessageText {
    fn add_text(&mut self, text: &str, words: bool) {
        if text.trim().is_empty() {
            return;
        }
        if !self.text.is_empty() {
            self.text.push_str(if self.ends_in_words && words { "\n\n" } else { "\n" });
        }
        self.text.push_str(text);
        self.ends_in_words = words;
    }

    fn parts_json(&self) -> Option<String> {
        match &self.given {
            given if self.parts.is_empty() => given.clone(),
            given => Some(format!(
                "[{}]",
                given.iter().chain(&self.parts).map(String::as_str).collect::<Vec<_>>().join(",")
            )),
        }
    }

    fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.parts.is_empty() && self.given.is_none()
    }
}

/// A message's content: the author's words, and tool results in the same message.
#[derive(Default)]
struct MessageContent {
    said: MessageText,
    results: MessageText,
    /// Kinds of skipped content.
    left_out: Vec<String>,
    /// The program that wrote it adds text of its own in the user's name.
    mixed: bool,
    /// Tool calls and results are skipped.
    words_only: bool,
}

impl MessageContent {
    fn parse(json: Option<&str>, mixed: bool, words_only: bool) -> Self {
        let mut content = Self { mixed, words_only, ..Self::default() };
        if let Some(json) = json {
            match list_value(json) {
                Some(parts) => parts.into_iter().for_each(|part| content.add_block(part.get())),
                None => content.add_block(json),
            }
        }
        content
    }

    fn add_block(&mut self, json: &str) {
        if let Some(text) = text_value(json) {
            if self.mixed && is_injected(&text) {
                self.left_out.push("injected context".into());
            } else if self.mixed
                && let Some(rest) = strip_injected(&text)
            {
                self.left_out.push("injected context".into());
                self.said.add_text(&rest, true);
            } else {
                self.said.add_text(&text, true);
            }
            return;
        }
        let Ok(part) = JsonObject::parse(json) else {
            return self.left_out.push("unknown content".into());
        };
        let kind = part.text("type").unwrap_or_default();
        match kind.as_ref() {
            "" | "text" | "input_text" | "output_text" if part.raw("text").is_some() => {
                self.add_block(part.raw("text").unwrap_or_default())
            }
            "thinking" | "redacted_thinking" | "reasoning" => self.left_out.push("thinking".into()),
            _ if self.words_only && kind.ends_with("tool_result") => {
                self.left_out.push("tool output".into())
            }
            _ if self.words_only && (kind.ends_with("tool_use") || kind.ends_with("_call")) => {
                self.left_out.push("tool call".into())
            }
            _ if self.words_only => {
                // A placeholder marks the position; the content is not kept.
                self.said.add_text(
                    &format!(
                        "[{}]",
                        short_name(if kind.is_empty() { "part" } else { kind.as_ref() })
                    ),
                    false,
                );
                self.left_out.push(format!("{kind} data"));
            }
            _ if kind.ends_with("tool_result") => {
                let said =
                    tool_output_text(part.raw("content").unwrap_or_default(), &mut self.left_out);
                self.results.add_text(&said, true);
                // The tool's words are the text; the part only says which call they answer.
                let described = part
                    .0
                    .iter()
                    .filter(|(name, _)| name != "content")
                    .map(|(name, raw)| (name.as_ref(), raw.get()));
                self.results.parts.push(description_fields(described));
            }
            _ if kind.ends_with("tool_use") || kind.ends_with("_call") => {
                self.add_tool_call(&part, json)
            }
            _ => {
                let kind = if kind.is_empty() { "part" } else { kind.as_ref() };
                self.said.add_text(&format!("[{}]", short_name(kind)), false);
                let part = self.embed_part(kind, &part, json);
                self.said.parts.push(part);
            }
        }
    }

    fn add_tool_call(&mut self, part: &JsonObject<'_>, json: &str) {
        let name = part.first_text(&["name"]).or_else(|| {
            part.object("function").and_then(|function| function.first_text(&["name"]))
        });
        let name = name.or_else(|| part.first_text(&["type"])).unwrap_or_else(|| "unnamed".into());
        self.said.add_text(&format!("[tool: {}]", short_name(&name)), false);
        self.said.parts.push(compact_json(json));
    }

    fn embed_part(&mut self, kind: &str, part: &JsonObject<'_>, json: &str) -> String {
        if json.len() <= MAX_EMBEDDED_BYTES {
            return compact_json(json);
        }
        self.left_out.push(format!("{kind} data"));
        let bytes = json.len().to_string();
        let small = part
            .0
            .iter()
            .map(|(name, raw)| (name.as_ref(), raw.get()))
            .filter(|(_, raw)| raw.len() <= 256);
        description_fields(small.chain([("left_out_bytes", bytes.as_str())]))
    }
}

fn description_fields<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let fields: Vec<String> = fields
        .map(|(name, raw)| format!("{}:{}", serde_json::Value::from(name), compact_json(raw)))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// A tool's output as text: a string, or the texts of a list of blocks.
fn tool_output_text(json: &str, left_out: &mut Vec<String>) -> String {
    if let Some(text) = text_value(json) {
        return text.into_owned();
    }
    let mut block = MessageText::default();
    let parts = list_value(json)
        .map_or_else(|| vec![json], |parts| parts.iter().map(|part| part.get()).collect());
    for part in parts {
        let object = JsonObject::parse(part);
        let known =
            object.as_ref().ok().and_then(|part| part.first_text(&["text", "content", "output"]));
        match (known.or_else(|| text_value(part).map(Cow::into_owned)), object) {
            (Some(text), _) => block.add_text(&text, true),
            (None, Ok(part)) => {
                let kind = part.first_text(&["type"]).unwrap_or_else(|| "part".into());
                block.add_text(&format!("[{}]", short_name(&kind)), false);
                left_out.push(format!("{kind} data"));
            }
            // A tool may answer `null` or `true`.
            (None, Err(_)) => block.add_text(part, true),
        }
    }
    block.text
}

fn short_name(name: &str) -> String {
    one_line(&name.chars().take(80).collect::<String>())
}

/// Tags of notices and instructions that Codex and Claude Code send in the user's name, each alone
/// in a message.
const INJECTED_TAGS: [&str; 18] = [
    "environment_context",
    "user_instructions",
    "INSTRUCTIONS",
    "system-reminder",
    "skill",
    "skills_instructions",
    "apps_instructions",
    "plugins_instructions",
    "permissions instructions",
    "collaboration_mode",
    "multi_agent_mode",
    "recommended_plugins",
    "app-context",
    "model_switch",
    "personality_spec",
    "turn_aborted",
    "subagent_notification",
    "hook_prompt",
];
/// Tags that they insert between the user's words.
const INLINE_INJECTED_TAGS: [(&str, &str); 3] = [
    ("<system-reminder>", "</system-reminder>"),
    ("<ide_opened_file>", "</ide_opened_file>"),
    ("<ide_selection>", "</ide_selection>"),
];
/// What Claude Code writes about its commands in the user's name.
const COMMAND_CAVEATS: [&str; 2] = [
    "<local-command-caveat>",
    "Caveat: The messages below were generated by the user while running local commands",
];

/// Whether a program put this text before the user's words.
fn is_injected(text: &str) -> bool {
    let start = text.trim();
    let alone = |tag: &&str| {
        let inner = start.strip_prefix('<').and_then(|rest| rest.strip_prefix(*tag));
        // The tag may have attributes.
        let opens = inner.is_some_and(|inner| {
            inner.starts_with('>')
                || inner.split('>').next().is_some_and(|rest| rest.starts_with(' '))
        });
        opens && start.ends_with(&format!("</{tag}>"))
    };
    start.starts_with("# AGENTS.md instructions") || INJECTED_TAGS.iter().any(alone)
}

/// The text without what a program inserted; `None` if nothing is left. A tag that is never closed
/// is the user's own, unless an icecore block follows it.
fn strip_injected(text: &str) -> Option<String> {
    let mut ours = memchr::memmem::find_iter(text.as_bytes(), "icecore:begin").peekable();
    let (mut kept, mut from) = (String::new(), 0);
    let mut is_closed = [true; INLINE_INJECTED_TAGS.len()];
    for at in memchr::memchr_iter(b'<', text.as_bytes()) {
        if at < from {
            continue;
        }
        let Some(tag) =
            INLINE_INJECTED_TAGS.iter().position(|(open, _)| text[at..].starts_with(open))
        else {
            continue;
        };
        let close = |from: usize| {
            text[from..]
                .find(INLINE_INJECTED_TAGS[tag].1)
                .map(|found| from + found + INLINE_INJECTED_TAGS[tag].1.len())
        };
        while ours.next_if(|&begin| begin < at).is_some() {}
        let end = if is_closed[tag] { close(at) } else { None };
        is_closed[tag] = end.is_some();
        let end = match ours.peek() {
            // An icecore block may mention such tags; it ends before its enclosing tag does.
            Some(&begin) if end.is_none_or(|end| begin < end) => Some(
                close(text[begin..].find("icecore:end").map_or(begin, |found| begin + found))
                    .unwrap_or(text.len()),
            ),
            _ => end,
        };
        if let Some(end) = end {
            kept.push_str(&text[from..at]);
            from = end;
        }
    }
    (from > 0).then(|| kept + &text[from..])
}

/// Whether this is a program's note about its commands, in the user's name.
fn is_caveat(text: &str) -> bool {
    COMMAND_CAVEATS.iter().any(|mark| text.trim_start().starts_with(mark))
}

/// Whether this is the output of a command that the user ran in the program, recorded in the user's
/// name.
fn is_command_output(text: &str) -> bool {
    [
        "<local-command-stdout>",
        "<local-command-stderr>",
        "<bash-stdout>",
        "<bash-stderr>",
        "<task-notification>",
    ]
    .into_iter()
    .any(|tag| text.trim_start().starts_with(tag))
}

/// The fields of a record line; a foreign field of the same name must not be taken for one.
const RECORD_FIELDS: [&str; 14] = [
    "ts",
    "conversation",
    "session",
    "id",
    "role",
    "name",
    "speaker",
    "kind",
    "title",
    "text",
    "origin",
    "captured",
    "parts",
    "trust",
];
const TIME_FIELDS: [&str; 8] =
    ["ts", "timestamp", "created_at", "createdAt", "create_time", "time", "sent_at", "date"];
const ROLE_FIELDS: [&str; 6] = ["role", "sender", "author", "from", "speaker", "type"];
const CONTENT_FIELDS: [&str; 5] = ["text", "content", "message", "value", "parts"];
const ID_FIELDS: [&str; 3] = ["id", "uuid", "message_id"];
const SESSION_FIELDS: [&str; 3] = ["session", "sessionId", "session_id"];
const MESSAGE_LIST_FIELDS: [&str; 5] =
    ["messages", "chat_messages", "turns", "conversation", "history"];

/// The context of a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LineContext {
    /// The id of the message that the line is a part of.
    pub(crate) message: Option<String>,
    /// The subagent that wrote the line.
    pub(crate) agent: Option<String>,
    /// The working directory.
    pub(crate) folder: Option<String>,
}

/// Reads JSON lines.
pub(crate) struct LineReader {
    pub(crate) out: Transcript,
    strands: Vec<TurnStrand>,
    offset: Offset,
    /// The priority of the title found so far.
    title_weight: u8,
    /// The session of lines without one.
    pub(crate) within: Option<String>,
    /// The context of the last line; the folder persists until a line names another.
    pub(crate) about: LineContext,
    /// Tool calls and results are skipped.
    words_only: bool,
    /// Prompts that were typed while the assistant worked and are not delivered yet.
    queue: PromptQueue,
}

impl LineReader {
    pub(crate) fn new(offset: Offset, words_only: bool) -> Self {
        Self {
            out: Transcript::new(TranscriptFormat::Jsonl),
            strands: Vec::new(),
            offset,
            title_weight: 0,
            within: None,
            about: LineContext::default(),
            words_only,
            queue: PromptQueue::default(),
        }
    }

    /// The number of the first line that must be read again to resolve a prompt that is still
    /// queued.
    pub(crate) fn queued_since(&self) -> Option<usize> {
        self.queue.oldest_line()
    }

    /// Takes the turns read so far, each with its strand.
    pub(crate) fn drain_turns(&mut self) -> impl Iterator<Item = (IncomingMessage, TurnStrand)> {
        std::mem::take(&mut self.out.turns).into_iter().zip(std::mem::take(&mut self.strands))
    }

    fn read_all(text: &str, offset: Offset) -> Transcript {
        let mut lines = Self::new(offset, false);
        let start = text.trim();
        let whole = match start.as_bytes().first() {
            Some(b'[') => lines.read_list(text, start),
            Some(b'{') => lines.read_object(text, start),
            _ => false,
        };
        if !whole {
            for (at, line) in text.lines().enumerate() {
                let line = line.trim();
                if !line.is_empty() {
                    lines.read_line(at + 1, line);
                }
            }
        }
        lines.finish()
    }

    /// Reads a file that is one JSON list, as far as it is valid. Returns whether it is a list.
    fn read_list(&mut self, text: &str, start: &str) -> bool {
        struct ElementCollector<'a, 'b>(&'b mut Vec<&'a RawValue>);
        impl<'de> Visitor<'de> for ElementCollector<'de, '_> {
            type Value = ();

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
                while let Some(element) = list.next_element()? {
                    self.0.push(element);
                }
                Ok(())
            }
        }
        let mut elements = Vec::new();
        let mut json = serde_json::Deserializer::from_str(start);
        let outcome =
            json.deserialize_seq(ElementCollector(&mut elements)).and_then(|()| json.end());
        if outcome.is_err() && !elements.iter().any(|element| element.get().starts_with('{')) {
            return false;
        }
        self.read_elements(text, &elements);
        if let Err(error) = outcome {
            let before = text[..text.len() - text.trim_start().len()].matches('\n').count();
            self.out.add_complaint(
                before + error.line().max(1),
                format!("ends the list early: {}", json_error_reason(&error)),
            );
        }
        true
    }

    /// Reads a file that is one JSON object with messages inside. Returns whether it is one.
    fn read_object(&mut self, text: &str, start: &str) -> bool {
        let Ok(object) = JsonObject::parse(start) else { return false };
        match message_list(&object) {
            Some(elements) => {
                self.read_header(&object);
                self.read_elements(text, &elements);
            }
            None => self.read_line(
                text[..text.len() - text.trim_start().len()].matches('\n').count() + 1,
                start,
            ),
        }
        true
    }

    fn read_elements(&mut self, text: &str, elements: &[&RawValue]) {
        let (mut number, mut counted) = (1, 0);
        for element in elements {
            let json = element.get();
            let at = json.as_ptr().addr().saturating_sub(text.as_ptr().addr());
            number +=
                memchr::memchr_iter(b'\n', text.as_bytes().get(counted..at).unwrap_or_default())
                    .count();
            counted = at;
            self.read_line(number, json);
        }
    }

    /// Takes title and session from the object around the messages.
    fn read_header(&mut self, object: &JsonObject<'_>) {
        self.set_title(object.first_text(&["title", "name"]), 1);
        self.within = object.first_text(&[
            "session",
            "sessionId",
            "session_id",
            "conversation_id",
            "uuid",
            "id",
        ]);
        self.set_session(self.within.clone());
    }

    pub(crate) fn read_line(&mut self, number: usize, json: &str) {
        if json.len() > MAX_LINE_BYTES {
            return self.out.add_complaint(
                number,
                format!("has {} bytes; at most {MAX_LINE_BYTES} are read", json.len()),
            );
        }
        if is_too_deep(json) {
            return self.out.add_complaint(number, format!("nests deeper than {MAX_DEPTH} levels"));
        }
        match JsonObject::parse(json) {
            Ok(object) => self.read_line_object(number, &object),
            Err(error) => self.out.add_complaint(
                number,
                format!("is not a JSON object: {}", json_error_reason(&error)),
            ),
        }
    }

    fn read_line_object(&mut self, number: usize, object: &JsonObject<'_>) {
        let kind = object.text("type").unwrap_or_default();
        if let Some(payload) = object.object("payload") {
            return self.read_rollout_line(number, &kind, object, &payload);
        }
        let speaks = has_speaker(object);
        let spoken = CONTENT_FIELDS.iter().any(|name| object.raw(name).is_some())
            || object.raw("tool_calls").is_some();
        // Program notices may have a type that looks like a role, and something that looks like
        // content.
        let program = ["subtype", "parentUuid", "sessionId", "operation"]
            .iter()
            .any(|name| object.raw(name).is_some());
        match kind.as_ref() {
            "user" | "assistant" if object.raw("message").is_some() => {
                self.read_claude_message(number, object)
            }
            "custom-title" => self.set_title(object.first_text(&["customTitle", "title"]), 4),
            "ai-title" => self.set_title(object.first_text(&["aiTitle", "title"]), 3),
            "summary" if object.raw("summary").is_some() => {
                self.set_title(object.first_text(&["summary"]), 2)
            }
            "queue-operation" if object.raw("operation").is_some() => {
                self.apply_queue_operation(number, object)
            }
            "attachment"
                if object.object("attachment").is_some_and(|inner| {
                    inner.text("type").is_some_and(|kind| kind == "queued_command")
                }) =>
            {
                self.read_queued_command(number, object);
            }
            _ if object.raw("mapping").is_some() => {
                self.out.add_complaint(
                    number,
                    "is a ChatGPT export, not a transcript; use `icecore import` for it",
                );
            }
            _ if message_list(object).is_some() => {
                let outer = self.within.take();
                self.read_header(object);
                for element in message_list(object).unwrap_or_default() {
                    match JsonObject::parse(element.get()) {
                        // Messages are not nested further; deeper ones are read as plain
                        // fields.
                        Ok(message) => self.read_chat_message(number, &message),
                        Err(error) => self.out.add_complaint(
                            number,
                            format!(
                                "has a message that is not a JSON object: {}",
                                json_error_reason(&error)
                            ),
                        ),
                    }
                }
                self.within = outer;
            }
            _ if !speaks && (kind.ends_with("_call") || kind.ends_with("_call_output")) => {
                self.read_rollout_item(number, object, object)
            }
            _ if spoken
                && (speaks
                    || kind.is_empty()
                    || (!program && Role::from_alias(&kind).is_some())) =>
            {
                self.read_chat_message(number, object);
            }
            "" => self
                .out
                .add_complaint(number, "has neither text nor content; a message needs one of them"),
            kind => self.out.count_skipped(kind, 1),
        }
    }

    /// Reads a line of a generic chat or of an import.
    fn read_chat_message(&mut self, number: usize, object: &JsonObject<'_>) {
        let mut used = Vec::new();
        let mut pick = |names: &[&'static str]| -> Option<&str> {
            let name =
                names.iter().find(|name| object.raw(name).is_some_and(|json| json != "\"\""))?;
            used.push(*name);
            object.raw(name)
        };
        let time = pick(&TIME_FIELDS);
        let author = pick(&ROLE_FIELDS);
        // If both exist, the text is a shortened form of the blocks.
        let content =
            pick(if object.list("content").is_some() { &["content"] } else { &CONTENT_FIELDS });
        let id = pick(&ID_FIELDS)
            .and_then(text_value)
            .filter(|id| !id.trim().is_empty())
            .map(Cow::into_owned);
        let session = pick(&SESSION_FIELDS)
            .and_then(text_value)
            .filter(|name| !name.trim().is_empty())
            .map(Cow::into_owned);
        let conversation = object
            .first_text(&["conversation"])
            .or_else(|| pick(&["conversation_id"]).and_then(text_value).map(Cow::into_owned));
        let calls = pick(&["tool_calls"]).and_then(list_value).unwrap_or_default();
        let author_object = author
            .filter(|json| json.starts_with('{'))
            .and_then(|json| JsonObject::parse(json).ok());
        let word = match &author_object {
            Some(author) => author.first_text(&["role", "name"]),
            None => author.and_then(text_value).map(Cow::into_owned),
        };
        // The type of a Responses item is not a speaker.
        let word = word.filter(|word| word != "message" && !word.trim().is_empty());
        let role = word.as_deref().and_then(Role::from_alias);
        let named = object
            .first_text(&["name"])
            .or_else(|| author_object.and_then(|author| author.first_text(&["name"])));
        let name = named.or_else(|| if role.is_none() { word } else { None });
        let role = role.or_else(|| name.is_none().then_some(Role::User));
        let mut content = MessageContent::parse(
            content,
            role == Some(Role::User) && object.text("type").is_some_and(|kind| kind == "message"),
            self.words_only,
        );
        for call in calls {
            if let Ok(part) = JsonObject::parse(call.get()) {
                content.add_tool_call(&part, call.get());
            }
        }
        if !used.contains(&"parts") {
            content.said.given = object.raw("parts").map(compact_json);
        }
        let extra = object.0.iter().filter(|(name, _)| {
            !RECORD_FIELDS.contains(&name.as_ref()) && !used.contains(&name.as_ref())
        });
        let extra: Vec<_> =
            extra.map(|(name, raw)| (name.as_ref().to_owned(), compact_json(raw.get()))).collect();
        let ts = self.parse_time(number, time);
        self.set_session(session.clone());
        let said = IncomingMessage {
            ts,
            conversation,
            session: session.or_else(|| self.within.clone()),
            id,
            role,
            name,
            extra,
            ..IncomingMessage::default()
        };
        self.add_turn(said, content, TurnStrand::Main);
    }

    /// Reads a message of a Claude Code transcript.
    fn read_claude_message(&mut self, number: usize, object: &JsonObject<'_>) {
        for (flag, what) in [("isMeta", "meta"), ("isCompactSummary", "compact summary")] {
            if object.is_true(flag) {
                return self.out.count_skipped(what, 1);
            }
        }
        let Some(message) = object.object("message") else {
            return self.out.add_complaint(number, "has a `message` that is not a JSON object");
        };
        if self.words_only
            && (object.is_true("isApiErrorMessage")
                || message.text("model").is_some_and(|model| model == "<synthetic>"))
        {
            return self.out.count_skipped("service error", 1);
        }
        self.about = LineContext {
            message: message.first_text(&["id"]),
            agent: object.first_text(&["agentId"]),
            folder: object.first_text(&["cwd"]),
        };
        if message.raw("content").is_none() {
            return self.out.add_complaint(number, "has a `message` without `content`");
        }
        let ts = self.parse_time(number, object.raw("timestamp"));
        let session = object.first_text(&SESSION_FIELDS);
        self.set_session(session.clone());
        let word = message.first_text(&["role"]).or_else(|| object.first_text(&["type"]));
        let role = Role::from_client(word.as_deref());
        let content =
            MessageContent::parse(message.raw("content"), role == Role::User, self.words_only);
        let is_side = object.is_true("isSidechain");
        if role == Role::User && !is_side && !content.said.is_empty() {
            self.queue.deliver(&content.said.text);
        }
        let role = match role {
            Role::User if is_caveat(&content.said.text) => {
                return self.out.count_skipped("meta", 1);
            }
            Role::User if is_command_output(&content.said.text) => Role::Tool,
            // A subagent's prompt comes from the assistant.
            Role::User if is_side => Role::Assistant,
            Role::System => return self.out.count_skipped("instructions", 1),
            role => role,
        };
        let said = IncomingMessage {
            ts,
            session,
            id: object.first_text(&["uuid"]),
            role: Some(role),
            folder: object.first_text(&["cwd"]),
            ..IncomingMessage::default()
        };
        self.add_turn(said, content, if is_side { TurnStrand::Side } else { TurnStrand::Talk });
    }

    /// Applies an operation on the queue of prompts typed while the assistant works.
    fn apply_queue_operation(&mut self, number: usize, object: &JsonObject<'_>) {
        let text = prompt_text(object.raw("content"));
        let delivered = match object.text("operation").unwrap_or_default().as_ref() {
            "enqueue" => {
                let session = object.first_text(&SESSION_FIELDS).or_else(|| self.within.clone());
                self.set_session(session.clone());
                let ts = self.parse_time(number, object.raw("timestamp"));
                self.queue.enqueue(
                    number,
                    delivered_prompt(IncomingMessage {
                        ts,
                        session,
                        folder: self.about.folder.clone(),
                        text,
                        ..IncomingMessage::default()
                    }),
                )
            }
            "remove" => self.queue.remove(&text),
            "dequeue" => {
                self.queue.dequeue();
                None
            }
            "popAll" => {
                let taken_back = self.queue.pop_all();
                self.out.count_skipped("prompt taken back", taken_back);
                None
            }
            _ => None,
        };
        match delivered {
            Some(said) => self.add_queued_turn(said),
            None => self.out.count_skipped("queue-operation", 1),
        }
    }

    /// Reads a queued prompt that was delivered within a running turn.
    fn read_queued_command(&mut self, number: usize, object: &JsonObject<'_>) {
        let Some(attachment) = object.object("attachment") else { return };
        let text = prompt_text(attachment.raw("prompt"));
        let is_first = self.queue.attach(&text);
        let is =
            |field: Option<Cow<'_, str>>, wanted: &str| field.is_none_or(|word| word == wanted);
        let origin =
            attachment.object("origin").and_then(|origin| origin.text("kind").map(Cow::into_owned));
        let is_persons = is(attachment.text("commandMode"), "prompt")
            && is(origin.map(Cow::Owned), "human")
            && !attachment.is_true("isMeta")
            && !object.is_true("isMeta")
            && !object.is_true("isSidechain");
        if !is_first || !is_persons || !queue::is_typed(&text) {
            return self.out.count_skipped("attachment", 1);
        }
        let ts = self
            .parse_time(number, attachment.raw("timestamp").or_else(|| object.raw("timestamp")));
        let session = object.first_text(&SESSION_FIELDS);
        self.set_session(session.clone());
        let folder = object.first_text(&["cwd"]).or_else(|| self.about.folder.clone());
        self.add_queued_turn(delivered_prompt(IncomingMessage {
            ts,
            session,
            id: object.first_text(&["uuid"]),
            folder,
            text,
            ..IncomingMessage::default()
        }));
    }

    fn add_queued_turn(&mut self, message: IncomingMessage) {
        // It belongs to no message, whatever the previous line was a part of.
        self.about = LineContext { folder: message.folder.clone(), ..LineContext::default() };
        self.push_turn(message, TurnStrand::Talk);
    }

    /// Ends the file: adds the prompts that were queued and never delivered.
    pub(crate) fn finish_queue(&mut self) {
        let left: Vec<IncomingMessage> = self.queue.finish().collect();
        for said in left {
            self.add_queued_turn(IncomingMessage {
                extra: vec![(QUEUED_FIELD.into(), UNDELIVERED_JSON.into())],
                ..said
            });
        }
    }

    /// Reads a line of a Codex rollout.
    fn read_rollout_line(
        &mut self,
        number: usize,
        kind: &str,
        line: &JsonObject<'_>,
        payload: &JsonObject<'_>,
    ) {
        let inner = payload.text("type").unwrap_or_default();
        if matches!(kind, "session_meta" | "turn_context") {
            self.about.folder = payload.first_text(&["cwd"]).or_else(|| self.about.folder.take());
        }
        match (kind, inner.as_ref()) {
            ("session_meta", _) => {
                self.within = payload.first_text(&["session_id", "id"]);
                self.set_session(self.within.clone());
            }
            ("response_item", _) => self.read_rollout_item(number, line, payload),
            ("event_msg", "user_message" | "agent_message") => {
                let role = if inner == "user_message" { Role::User } else { Role::Assistant };
                let said = IncomingMessage {
                    ts: self.parse_time(number, line.raw("timestamp")),
                    session: self.within.clone(),
                    role: Some(role),
                    folder: self.about.folder.clone(),
                    ..IncomingMessage::default()
                };
                self.add_turn(
                    said,
                    MessageContent::parse(
                        payload.raw("message"),
                        role == Role::User,
                        self.words_only,
                    ),
                    TurnStrand::Echo,
                );
            }
            ("event_msg", inner) if !inner.is_empty() => self.out.count_skipped(inner, 1),
            (kind, _) => self
                .out
                .count_skipped(if kind.is_empty() { "payload without a type" } else { kind }, 1),
        }
    }

    /// Reads a message, a tool call or a tool output.
    fn read_rollout_item(&mut self, number: usize, line: &JsonObject<'_>, item: &JsonObject<'_>) {
        let kind = item.text("type").unwrap_or_default();
        let call = item.first_text(&["call_id"]);
        let mut said = IncomingMessage {
            session: self.within.clone(),
            folder: self.about.folder.clone(),
            ..IncomingMessage::default()
        };
        let (content, strand) = match kind.as_ref() {
            "message" => {
                let role = Role::from_client(item.first_text(&["role"]).as_deref());
                if role == Role::System {
                    return self.out.count_skipped("instructions", 1);
                }
                (said.role, said.id) = (Some(role), item.first_text(&["id"]));
                let strand = if matches!(role, Role::User | Role::Assistant) {
                    TurnStrand::Item
                } else {
                    TurnStrand::Main
                };
                (
                    MessageContent::parse(item.raw("content"), role == Role::User, self.words_only),
                    strand,
                )
            }
            kind if self.words_only && kind.ends_with("_call") => {
                return self.out.count_skipped("tool call", 1);
            }
            kind if self.words_only && kind.ends_with("_output") => {
                return self.out.count_skipped("tool output", 1);
            }
            kind if kind.ends_with("_call") => {
                (said.role, said.id) = (Some(Role::Assistant), call);
                let mut content = MessageContent::default();
                let fields = item.0.iter().map(|(name, raw)| (name.as_ref(), raw.get()));
                content.add_tool_call(item, &description_fields(fields));
                (content, TurnStrand::Main)
            }
            kind if kind.ends_with("_output") => {
                (said.role, said.id) =
                    (Some(Role::Tool), call.map(|call| format!("{call}.output")));
                let mut content = MessageContent::default();
                let output =
                    tool_output_text(item.raw("output").unwrap_or_default(), &mut content.left_out);
                content.said.add_text(&output, true);
                let described = item
                    .0
                    .iter()
                    .filter(|(name, _)| name != "output")
                    .map(|(name, raw)| (name.as_ref(), raw.get()));
                content.said.parts.push(description_fields(described));
                (content, TurnStrand::Main)
            }
            "" => return self.out.count_skipped("item without a type", 1),
            kind => return self.out.count_skipped(kind, 1),
        };
        said.ts = self.parse_time(number, line.raw("timestamp"));
        self.add_turn(said, content, strand);
    }

    /// Adds a message. Tool results within it become a turn of their own, so that they do not count
    /// as the user's words.
    fn add_turn(&mut self, message: IncomingMessage, content: MessageContent, strand: TurnStrand) {
        let MessageContent { said: own, results, left_out, .. } = content;
        if own.is_empty() && results.is_empty() && left_out.is_empty() {
            return self.out.count_skipped("empty", 1);
        }
        left_out.iter().for_each(|what| self.out.count_skipped(what, 1));
        if !results.is_empty() {
            let id = if own.is_empty() {
                message.id.clone()
            } else {
                message.id.as_ref().map(|id| format!("{id}.tool"))
            };
            let text = trim_blank_lines(&results.text).to_owned();
            self.push_turn(
                IncomingMessage {
                    id,
                    role: Some(Role::Tool),
                    parts: results.parts_json(),
                    text,
                    ..message.clone()
                },
                strand,
            );
        }
        if !own.is_empty() {
            self.push_turn(
                IncomingMessage {
                    parts: own.parts_json(),
                    text: trim_blank_lines(&own.text).to_owned(),
                    ..message
                },
                strand,
            );
        }
    }

    fn push_turn(&mut self, message: IncomingMessage, strand: TurnStrand) {
        self.out.turns.push(message);
        self.strands.push(strand);
    }

    /// The time in that field: RFC 3339, or seconds or milliseconds since 1970.
    fn parse_time(&mut self, number: usize, json: Option<&str>) -> Option<Moment> {
        let json = json?;
        let found = text_value(json).and_then(|text| {
            let read = Moment::parse(&text).and_then(|read| match read.offset_assumed {
                true => {
                    let civil = Offset::UTC.to_datetime(read.moment.timestamp());
                    moment_at(civil.date(), Some(civil.time()), self.offset)
                }
                false => Some(read.moment),
            });
            read.or_else(|| parse_unix_time(&text, self.offset))
        });
        if found.is_none() && json != "\"\"" {
            let shown: String = json.chars().take(40).collect();
            self.out.add_complaint(number, format!("has an invalid time: {}", one_line(&shown)));
        }
        found
    }

    fn set_session(&mut self, session: Option<String>) {
        if self.out.session.is_none() {
            self.out.session = session;
        }
    }

    fn set_title(&mut self, title: Option<String>, weight: u8) {
        if let Some(title) = title.filter(|_| weight >= self.title_weight) {
            self.out.title = Some(one_line(title.trim()));
            self.title_weight = weight;
        }
    }

    fn finish(mut self) -> Transcript {
        self.finish_queue();
        let has = |strand| self.strands.contains(&strand);
        let (no_echo, no_side) = (has(TurnStrand::Item), has(TurnStrand::Talk));
        let (mut echoes, mut sides) = (0, 0);
        let mut strands = self.strands.iter();
        self.out.turns.retain(|_| match strands.next() {
            Some(TurnStrand::Echo) if no_echo => {
                echoes += 1;
                false
            }
            Some(TurnStrand::Side) if no_side => {
                sides += 1;
                false
            }
            _ => true,
        });
        self.out.count_skipped("event_msg", echoes);
        self.out.count_skipped("sidechain", sides);
        self.out
    }
}

/// The words of a prompt, without what the program inserted.
fn prompt_text(json: Option<&str>) -> String {
    trim_blank_lines(&MessageContent::parse(json, true, true).said.text).to_owned()
}

fn delivered_prompt(message: IncomingMessage) -> IncomingMessage {
    IncomingMessage {
        role: Some(Role::User),
        extra: vec![(QUEUED_FIELD.into(), DELIVERED_JSON.into())],
        ..message
    }
}

/// The messages inside an object that holds a conversation and is not itself a message.
fn message_list<'a>(object: &JsonObject<'a>) -> Option<Vec<&'a RawValue>> {
    if has_speaker(object) {
        None
    } else {
        MESSAGE_LIST_FIELDS.iter().find_map(|name| object.list(name))
    }
}

fn has_speaker(object: &JsonObject<'_>) -> bool {
    ["role", "sender", "author", "from", "speaker"].iter().any(|name| object.raw(name).is_some())
}

pub(crate) fn parse_unix_time(text: &str, offset: Offset) -> Option<Moment> {
    let number: f64 = text.trim().parse().ok()?;
    let seconds = if number.abs() > 1e11 { number / 1_000.0 } else { number };
    if !(0.0..=253_402_300_799.0).contains(&seconds) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "in the range that was just checked")]
    let at = Timestamp::from_second(seconds as i64).ok()?;
    Some(Moment::new(at, offset))
}

// ── Markdown and text
// ───────────────────────────────────────────────────────────────────────────────────────────────

/// Which forms of speaker marks are recognized.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SpeakerStyle {
    /// Headings and names in bold.
    Marked,
    /// Names at the start of a line.
    Plain,
}

fn parse_text(text: &str, shape: TranscriptFormat, day: Date, offset: Offset) -> Transcript {
    let mut out = Transcript::new(shape);
    let mut day = day;
    let mut front = FrontMatter::default();
    if shape == TranscriptFormat::Markdown {
        front = FrontMatter::parse(text);
        out.count_skipped("front matter", usize::from(front.bytes > 0));
        day = front.date.unwrap_or(day);
        (out.title, out.session) = (front.title, front.session);
    }
    let text = &text[front.bytes..];
    let body = match shape {
        TranscriptFormat::Markdown => {
            let marked = TextBody::parse(text, SpeakerStyle::Marked);
            // Plain names occur in Markdown files as well.
            if marked.marks.is_empty() {
                TextBody::parse(text, SpeakerStyle::Plain)
            } else {
                marked
            }
        }
        _ => TextBody::parse(text, SpeakerStyle::Plain),
    };
    let markdown = shape == TranscriptFormat::Markdown;
    // If the front matter has a title, the heading stays in the text.
    let title = body.title.clone().filter(|_| markdown && out.title.is_none());
    if let Some(title) = &title {
        out.title = parse_heading(&text[title.clone()]).map(|(_, title)| one_line(title.trim()));
    }
    let Some(first) = body.marks.first() else {
        let whole = trim_blank_lines(text);
        if !whole.is_empty() {
            out.turns.push(IncomingMessage {
                role: Some(Role::User),
                text: whole.to_owned(),
                ..IncomingMessage::default()
            });
        }
        return out;
    };
    let from = title.map_or(0, |title| title.end).min(first.start);
    let before = trim_turn(&text[from..first.start], markdown);
    if !before.is_empty() {
        out.turns.push(IncomingMessage { text: before.to_owned(), ..IncomingMessage::default() });
    }
    let month_first = month_comes_first(&body.marks);
    for (at, mark) in body.marks.iter().enumerate() {
        let end = body.marks.get(at + 1).map_or(text.len(), |next| next.start);
        let said = trim_turn(&text[mark.end..end], markdown);
        if said.is_empty() {
            out.count_skipped("empty", 1);
            continue;
        }
        let (role, name) = match mark.who {
            SpeakerLabel::Role { role, name, .. } => (Some(role), name),
            SpeakerLabel::Name(name) => (None, Some(name)),
            SpeakerLabel::Unattributed => (Some(Role::System), None),
        };
        let ts = mark.stamp.as_ref().and_then(|stamp| stamp.to_moment(day, offset, month_first));
        out.turns.push(IncomingMessage {
            ts,
            role,
            name: name.map(str::to_owned),
            text: said.to_owned(),
            ..IncomingMessage::default()
        });
    }
    out
}

/// The lines between two `---` at the beginning of a document.
#[derive(Default)]
struct FrontMatter {
    bytes: usize,
    title: Option<String>,
    session: Option<String>,
    date: Option<Date>,
}

impl FrontMatter {
    fn parse(text: &str) -> Self {
        let mut front = Self::default();
        let Some(found) = markdown::front_matter(text) else { return front };
        let mut keys = 0;
        for content in found.lines.iter().map(|line| line.trim_end()) {
            if content.is_empty() || content.starts_with([' ', '\t', '#', '-']) {
                continue;
            }
            // Two rules with a sentence between them are not front matter.
            let Some((key, value)) = content
                .split_once(':')
                .filter(|(key, _)| !key.trim().contains(char::is_whitespace))
            else {
                return Self::default();
            };
            keys += 1;
            let value = value.trim().trim_matches(['"', '\'']).trim();
            let filled = (!value.is_empty()).then(|| value.to_owned());
            match key.trim().to_ascii_lowercase().as_str() {
                "title" => front.title = filled.map(|title| one_line(&title)),
                "session" | "session_id" | "sessionid" => front.session = filled,
                "date" => front.date = value.get(..10).and_then(|day| day.parse().ok()),
                _ => {}
            }
        }
        if keys == 0 {
            return Self::default();
        }
        front.bytes = text.len() - found.body.len();
        front
    }
}

pub(crate) fn trim_blank_lines(text: &str) -> &str {
    trim_blank_end(trim_blank_start(text))
}

fn trim_blank_start(mut text: &str) -> &str {
    while let Some((first, rest)) = text.split_once('\n')
        && first.trim().is_empty()
    {
        text = rest;
    }
    text
}

fn trim_blank_end(mut text: &str) -> &str {
    loop {
        let (rest, last) = text.rsplit_once('\n').unwrap_or(("", text));
        if !last.trim().is_empty() {
            return text;
        }
        if rest.is_empty() {
            return "";
        }
        text = rest;
    }
}

/// A turn's text without surrounding blank lines and, in Markdown, without the thematic breaks that
/// separate turns.
fn trim_turn(text: &str, markdown: bool) -> &str {
    let mut text = trim_blank_lines(text);
    while markdown
        && let (rest, last) = text.rsplit_once('\n').unwrap_or(("", text))
        && markdown::is_rule(last)
    {
        text = trim_blank_end(rest);
    }
    while markdown
        && let Some((first, rest)) = text.split_once('\n')
        && markdown::is_rule(first)
    {
        text = trim_blank_start(rest);
    }
    text
}

/// A heading's level and text; a heading without text says nothing.
fn parse_heading(line: &str) -> Option<(u8, &str)> {
    let (level, title) = markdown::heading(line).filter(|(_, title)| !title.is_empty())?;
    Some((u8::try_from(level).unwrap_or(6), title))
}

/// The speaker after a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpeakerLabel<'a> {
    /// A word for a role; `plain` if it can hardly mean anything else.
    Role { role: Role, plain: bool, name: Option<&'a str> },
    /// A person's name.
    Name(&'a str),
    /// A dated line without a speaker among dated lines of speakers.
    Unattributed,
}

/// The form of a mark; marks of one form are judged together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MarkForm {
    Heading(u8),
    Bold,
    /// `Anna: …` or `anna> …`
    Name,
    /// `<anna> …`
    Angle,
}

impl MarkForm {
    fn group(self) -> usize {
        match self {
            Self::Heading(level) => usize::from(level),
            Self::Bold => 0,
            Self::Name | Self::Angle => 7,
        }
    }
}

/// A position where a speaker may begin.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SpeakerMark<'a> {
    /// Where its line begins.
    start: usize,
    /// Where the words begin.
    end: usize,
    who: SpeakerLabel<'a>,
    stamp: Option<WrittenTime>,
    make: MarkForm,
}

/// A document without its front matter.
struct TextBody<'a> {
    marks: Vec<SpeakerMark<'a>>,
    /// The leading heading that names the document.
    title: Option<std::ops::Range<usize>>,
}

impl<'a> TextBody<'a> {
    fn parse(text: &'a str, style: SpeakerStyle) -> Self {
        let mut places = Vec::new();
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            places.push((start, line.trim_end_matches('\n')));
            start += line.len();
        }
        // The longest fence of each kind that a later line could still close: an unclosed fence
        // must not swallow the rest of the conversation.
        let mut ahead = vec![(0, 0); places.len() + 1];
        for (at, (_, line)) in places.iter().enumerate().rev() {
            let (ticks, tildes) = ahead[at + 1];
            ahead[at] = match markdown::fence_line(line).filter(|fence| fence.info.is_empty()) {
                Some(fence) if fence.mark == '`' => (fence.width.max(ticks), tildes),
                Some(fence) => (ticks, fence.width.max(tildes)),
                None => (ticks, tildes),
            };
        }
        let mut marks: Vec<SpeakerMark<'a>> = Vec::new();
        let mut open = None;
        let mut opening: Option<usize> = None;
        let mut title = None;
        for (at, &(start, line)) in places.iter().enumerate() {
            if let Some((mark, width)) = open {
                if markdown::fence_line(line).is_some_and(|fence| fence.closes(mark, width)) {
                    open = None;
                }
                continue;
            }
            let mark = match style {
                SpeakerStyle::Marked => parse_markdown_mark(line),
                SpeakerStyle::Plain => parse_plain_mark(line),
            };
            let words = mark.as_ref().map_or(line, |mark| &line[mark.end..]);
            let (ticks, tildes) = ahead[at + 1];
            open = markdown::fence_line(words)
                .filter(|fence| fence.opens())
                .map(|fence| (fence.mark, fence.width))
                .filter(|&(mark, width)| width <= if mark == '`' { ticks } else { tildes });
            let speaks = mark.as_ref().is_some_and(|mark| {
                mark.stamp.is_some() || matches!(mark.who, SpeakerLabel::Role { .. })
            });
            if opening.is_none() && !line.trim().is_empty() && !markdown::is_rule(line) {
                if title.is_none()
                    && !speaks
                    && parse_heading(line).is_some_and(|(level, _)| level == 1)
                {
                    title = Some(start..start + line.len());
                    continue;
                }
                opening = Some(start);
            }
            marks.extend(mark.map(|mark| SpeakerMark {
                start: start + mark.start,
                end: start + mark.end,
                ..mark
            }));
        }
        if style == SpeakerStyle::Plain {
            let tags = closed_tags(text);
            marks.retain(|mark| !matches!((mark.make, mark.who), (MarkForm::Angle, SpeakerLabel::Name(name)) if tags.contains(name)));
        }
        let opening = opening.unwrap_or_default();
        let marks = choose_speaker_marks(marks, |mark| mark.start == opening);
        let speakers = marks.iter().filter(|mark| mark.who != SpeakerLabel::Unattributed).count();
        let alone = style == SpeakerStyle::Marked
            && marks.first().is_some_and(|mark| mark.start == opening || mark.stamp.is_some());
        let marks = if speakers >= 2 || (speakers == 1 && alone) { marks } else { Vec::new() };
        Self { marks, title }
    }
}

/// The names in closing tags: such a name is a tag, not a speaker.
fn closed_tags(text: &str) -> HashSet<&str> {
    let ends = memchr::memmem::find_iter(text.as_bytes(), "</").map(|at| &text[at + 2..]);
    ends.filter_map(|rest| {
        let length = rest.bytes().take(MAX_SPEAKER_BYTES).position(|byte| byte == b'>')?;
        rest.get(..length)
    })
    .collect()
}

/// Selects the marks where a speaker really begins. Answers are full of lines such as `Budget: 5`,
/// so a name that is not a word for a role needs evidence: a time, opening the conversation, or
/// occurring again.
fn choose_speaker_marks<'a>(
    marks: Vec<SpeakerMark<'a>>,
    opens: impl Fn(&SpeakerMark<'a>) -> bool,
) -> Vec<SpeakerMark<'a>> {
    let opener = marks.first().filter(|mark| opens(mark)).cloned();
    let is_name = |mark: &SpeakerMark<'_>| matches!(mark.who, SpeakerLabel::Name(_));
    let lines = |mark: &SpeakerMark<'_>| matches!(mark.make, MarkForm::Name | MarkForm::Angle);
    let timed = marks
        .iter()
        .filter(|mark| {
            lines(mark) && mark.who != SpeakerLabel::Unattributed && mark.stamp.is_some()
        })
        .count()
        >= 2;
    let only_timed =
        timed && opener.as_ref().is_some_and(|mark| lines(mark) && mark.stamp.is_some());
    let angled = opener.as_ref().is_some_and(|mark| mark.make == MarkForm::Angle);
    let bit = |role: Role| 1_u8 << (role as u8);
    let both = bit(Role::User) | bit(Role::Assistant);
    let (mut plain, mut any) = ([0_u8; 8], [0_u8; 8]);
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for mark in &marks {
        match mark.who {
            SpeakerLabel::Role { role, plain: sure, .. } => {
                any[mark.make.group()] |= bit(role);
                plain[mark.make.group()] |= if sure { bit(role) } else { 0 };
            }
            SpeakerLabel::Name(name) => *counts.entry(name).or_default() += 1,
            SpeakerLabel::Unattributed => {}
        }
    }
    let roles =
        plain.iter().any(|roles| *roles != 0) || any.iter().any(|roles| roles & both == both);
    let repeated = counts.values().any(|count| *count >= 2);
    let opened_by_name = opener.as_ref().is_some_and(is_name);
    let first_role = marks
        .iter()
        .position(|mark| matches!(mark.who, SpeakerLabel::Role { .. }))
        .unwrap_or(marks.len());
    let early: HashSet<&str> = marks[..first_role]
        .iter()
        .filter_map(|mark| if let SpeakerLabel::Name(name) = mark.who { Some(name) } else { None })
        .filter(|_| opened_by_name)
        .collect();
    let speaks = |mark: &SpeakerMark<'a>| {
        if only_timed && lines(mark) && mark.stamp.is_none() {
            return false;
        }
        if mark.make == MarkForm::Angle && !angled && mark.stamp.is_none() {
            return false;
        }
        match mark.who {
            SpeakerLabel::Role { plain: true, .. } => true,
            _ if mark.stamp.is_some() && mark.who != SpeakerLabel::Unattributed => true,
            SpeakerLabel::Role { role, .. } => {
                let group = mark.make.group();
                let talked = plain[group] != 0 || any[group] & both == both;
                talked && (plain[group] & bit(role) == 0 || opens(mark))
            }
            SpeakerLabel::Name(name) => {
                let again = counts.get(name).is_some_and(|count| *count >= 2);
                let small = name.starts_with(char::is_lowercase);
                match mark.make {
                    MarkForm::Heading(_) => false,
                    MarkForm::Angle => true,
                    _ if small && !again => false,
                    MarkForm::Bold if roles => early.contains(name),
                    MarkForm::Bold => opened_by_name,
                    MarkForm::Name if roles => again || early.contains(name),
                    MarkForm::Name => opened_by_name || repeated,
                }
            }
            SpeakerLabel::Unattributed => timed,
        }
    };
    let chosen: Vec<bool> = marks.iter().map(speaks).collect();
    marks.into_iter().zip(chosen).filter_map(|(mark, speaks)| speaks.then_some(mark)).collect()
}

/// The mark of a Markdown line: a heading that names a speaker, or a name in bold.
fn parse_markdown_mark(line: &str) -> Option<SpeakerMark<'_>> {
    if let Some((level, says)) = parse_heading(line) {
        let (label, end) = match parse_label(says.trim_end_matches([':', '：'])) {
            Some(found) => (Some(found), line.len()),
            None => {
                let (label, _) = says.split_once(": ")?;
                let end = label.as_ptr().addr() - line.as_ptr().addr() + label.len() + 2;
                (parse_label(label), end)
            }
        };
        let (who, stamp) = label?;
        return Some(SpeakerMark { start: 0, end, who, stamp, make: MarkForm::Heading(level) });
    }
    let (before, rest) = match leading_stamp(line) {
        Some((stamp, rest)) => (Some(stamp), rest),
        None => (None, line),
    };
    let marker = ["**", "__"].into_iter().find(|marker| rest.starts_with(marker))?;
    let (inner, after) = rest[2..].split_once(marker)?;
    if inner.len() > MAX_SPEAKER_BYTES {
        return None;
    }
    let label = inner.trim().trim_end_matches([':', '：']);
    let mut ended = label.len() < inner.trim().len();
    let (who, within) = parse_label(label)?;
    let mut after = after;
    let mut stamp = before.or(within);
    if let Some((found, rest)) = bracketed_stamp(after.trim_start()) {
        stamp = stamp.or(Some(found));
        after = rest;
        ended = true;
    }
    if let Some(rest) =
        after.trim_start().strip_prefix([':', '：']).filter(|_| !ended || stamp.is_some())
    {
        after = rest;
        ended = true;
    }
    // A role in bold alone on its line introduces the words that follow.
    let alone = after.trim().is_empty() && matches!(who, SpeakerLabel::Role { plain: true, .. });
    if !(ended || alone) {
        return None;
    }
    Some(SpeakerMark {
        start: 0,
        end: line.len() - after.trim_start_matches([' ', '\t']).len(),
        who,
        stamp,
        make: MarkForm::Bold,
    })
}

/// The mark of a plain line: `Anna: …`, `[09:31] Anna: …`, `<anna> …` and the like.
fn parse_plain_mark(line: &str) -> Option<SpeakerMark<'_>> {
    // Messengers put marks of writing direction before a line.
    let indented = line.trim_start_matches(['\u{200e}', '\u{200f}', '\u{feff}']);
    let text = indented.trim_start_matches(' ');
    if indented.len() - text.len() > 3 {
        return None;
    }
    let (before, rest) = match leading_stamp(text) {
        Some((stamp, rest)) => (Some(stamp), rest),
        None => (None, text),
    };
    let found = parse_name(rest, before.is_some());
    let Some((who, after, words, make)) = found else {
        let stamp =
            before.filter(|stamp| stamp.date.is_some() && stamp.clock.is_some() && stamp.parted)?;
        return Some(SpeakerMark {
            start: 0,
            end: line.len() - rest.len(),
            who: SpeakerLabel::Unattributed,
            stamp: Some(stamp),
            make: MarkForm::Name,
        });
    };
    let end = line.len() - words.trim_start_matches([' ', '\t']).len();
    Some(SpeakerMark { start: 0, end, who, stamp: before.or(after), make })
}

/// A name and its delimiter at the start of a text, and the words after it.
fn parse_name(
    text: &str,
    timed: bool,
) -> Option<(SpeakerLabel<'_>, Option<WrittenTime>, &str, MarkForm)> {
    let free = |words: &str| words.is_empty() || words.starts_with(char::is_whitespace);
    if let Some(inner) = text.strip_prefix('<') {
        let (name, words) = inner.split_at_checked(
            inner.bytes().take(MAX_SPEAKER_BYTES).position(|byte| byte == b'>')?,
        )?;
        let words = &words[1..];
        let nick = name.trim_start_matches([' ', '@', '+', '%', '&', '~']);
        let fits = !nick.is_empty()
            && nick.starts_with(|c: char| c.is_alphabetic() || "_[]\\`^{}|".contains(c))
            && !nick.contains(|c: char| {
                c.is_whitespace() || c.is_control() || matches!(c, '<' | '/' | '=' | '"' | '!')
            })
            && !["br", "hr", "p", "li", "img", "input", "td", "tr", "th"]
                .iter()
                .any(|tag| nick.eq_ignore_ascii_case(tag));
        let who = parse_role(nick).unwrap_or(SpeakerLabel::Name(nick));
        return (fits && free(words)).then_some((who, None, words, MarkForm::Angle));
    }
    let near = &text[..text
        .char_indices()
        .map(|(at, _)| at)
        .find(|at| *at > MAX_SPEAKER_BYTES)
        .unwrap_or(text.len())];
    let at = near.find([':', '：', '>', '(', '['])?;
    let label = text[..at].trim_end();
    // A bullet makes a list of what follows it.
    if label.starts_with(|c: char| c.is_ascii_punctuation() && !matches!(c, '@' | '~' | '+')) {
        return None;
    }
    let (stamp, rest) = match bracketed_stamp(&text[at..]) {
        Some((stamp, rest)) => (Some(stamp), rest),
        None => (None, &text[at..]),
    };
    let (words, arrow) = match rest.strip_prefix([':', '：']) {
        Some(words) => (words, false),
        None => (rest.strip_prefix('>')?, true),
    };
    if !free(words) && !rest.starts_with('：') {
        return None;
    }
    if arrow && label.contains(char::is_whitespace) {
        return None;
    }
    let who = parse_speaker(label).or_else(|| {
        let number = timed
            && label.starts_with('+')
            && label.chars().all(|c| c.is_ascii_digit() || " +-()".contains(c));
        number.then_some(SpeakerLabel::Name(label))
    })?;
    Some((who, stamp, words, MarkForm::Name))
}

/// A label with or without a time: `Anna`, `[10:31] Anna`, `Anna (10:31)`, `Anna — 10:31`,
/// `Assistant (gpt-x)`.
fn parse_label(label: &str) -> Option<(SpeakerLabel<'_>, Option<WrittenTime>)> {
    let label = label.trim().trim_matches(['*', '_', '`']).trim();
    if label.len() > 2 * MAX_SPEAKER_BYTES {
        return None;
    }
    if let Some((stamp, rest)) = leading_stamp(label) {
        return Some((parse_speaker(rest)?, Some(stamp)));
    }
    if let Some(open) = label.rfind(['(', '[']).filter(|open| *open > 0) {
        let (name, tail) = (label[..open].trim(), &label[open..]);
        if let Some((stamp, "")) = bracketed_stamp(tail) {
            return Some((parse_speaker(name)?, Some(stamp)));
        }
        let inner = tail.strip_prefix('(')?.strip_suffix(')')?.trim();
        return match parse_speaker(name)? {
            SpeakerLabel::Role { role, plain, .. } if !inner.is_empty() => {
                Some((SpeakerLabel::Role { role, plain, name: Some(inner) }, None))
            }
            _ => None,
        };
    }
    for separator in [" — ", " – ", " - ", " | ", ", ", " @ ", " at "] {
        if let Some((name, tail)) = label.split_once(separator)
            && let Some((stamp, rest)) = WrittenTime::parse(tail.trim())
            && rest.trim().is_empty()
        {
            return Some((parse_speaker(name)?, Some(stamp)));
        }
    }
    Some((parse_speaker(label)?, None))
}

fn parse_role(label: &str) -> Option<SpeakerLabel<'_>> {
    let word = label.trim_matches(|c: char| !c.is_alphanumeric());
    let word = word.strip_suffix(" said").unwrap_or(word);
    let role = Role::from_alias(word).filter(|_| word.len() <= 16)?;
    let sure = ["user", "human", "me", "you", "assistant", "ai", "claude", "chatgpt", "codex"];
    Some(SpeakerLabel::Role {
        role,
        plain: sure.iter().any(|sure| word.eq_ignore_ascii_case(sure)),
        name: None,
    })
}

/// Words that come before a colon and are not speakers.
static NON_SPEAKER_LABELS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    "note notes nb ps todo todos fixme decision decisions error errors warning warn info debug trace fatal exception \
    traceback hint tip tips example examples summary tldr question questions answer answers result results output input \
    step steps option options phase part chapter section figure table item items reason reasons date time day week month \
    year title subject cc bcc re fwd fw status state goal goals context background conclusion update updated edit edited \
    attendees participants present agenda action actions next project topic topics location place where when what why how \
    who deadline due owner priority tag tags link links url source sources reference references version author file files \
    path line name description usage pro pros con cons important caution danger attention success failure http https ftp \
    mailto host port key value type id budget timeline plan problem solution cause fix total cost price email phone \
    address language ingredients instructions expected actual before after default optional required the this here there \
    and or but if then for in on at a an my our your to from notiz notizen hinweis frage fragen antwort entscheidung \
    fehler warnung datum uhrzeit thema ziel beispiel zusammenfassung ergebnis wichtig achtung aufgabe aufgaben betreff \
    teilnehmer ort schritt grund"
        .split(' ')
        .collect()
});

/// Particles inside names of people.
const NAME_PARTICLES: [&str; 19] = [
    "van", "von", "der", "den", "de", "da", "di", "del", "du", "dos", "la", "le", "el", "al",
    "bin", "zu", "zur", "und", "and",
];

/// The speaker a label names: a word for a role, or a name of at most four words.
fn parse_speaker(label: &str) -> Option<SpeakerLabel<'_>> {
    let label = label.trim();
    if label.is_empty() || label.len() > MAX_SPEAKER_BYTES {
        return None;
    }
    if let Some(role) = parse_role(label) {
        return Some(role);
    }
    let name = label.trim_start_matches(['@', '~', ' ', '\u{202f}', '\u{a0}']);
    let fits = |c: char| {
        c.is_alphanumeric()
            || matches!(c, ' ' | '\'' | '’' | '.' | '-' | '_' | '\u{a0}')
            || !(c.is_ascii() || c.is_control())
    };
    if !name.starts_with(char::is_alphabetic) || !name.chars().all(fits) || name.contains("  ") {
        return None;
    }
    let mut words = 0;
    for word in name.split_whitespace() {
        let lower = word.to_lowercase();
        let bare = lower.trim_matches(|c: char| !c.is_alphanumeric());
        if words == 0 && NON_SPEAKER_LABELS.contains(bare) {
            return None;
        }
        let small =
            words > 0 && word.starts_with(char::is_lowercase) && !NAME_PARTICLES.contains(&bare);
        words += 1;
        if small || words > 4 {
            return None;
        }
    }
    let particle = |word: &str| NAME_PARTICLES.contains(&word);
    let small_sentence = words > 1
        && name.starts_with(char::is_lowercase)
        && !name.split_whitespace().next().is_some_and(particle);
    (!small_sentence).then_some(SpeakerLabel::Name(name))
}

/// A written time, possibly partial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WrittenTime {
    date: Option<WrittenDate>,
    clock: Option<Time>,
    offset: Option<Offset>,
    /// Written with am or pm.
    halves: bool,
    /// Separated from what follows by brackets or a dash.
    parted: bool,
}

/// A written date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WrittenDate {
    Day(Date),
    /// `1/2/2026`, where either number may be the day.
    Slashed(i8, i8, i16),
}

/// Whether dates with slashes begin with the month: decided by a number above 12, else by clocks
/// with am and pm.
fn month_comes_first(marks: &[SpeakerMark<'_>]) -> bool {
    let slashed = || {
        marks.iter().filter_map(|mark| mark.stamp).filter_map(|stamp| match stamp.date {
            Some(WrittenDate::Slashed(first, second, _)) => Some((first, second, stamp.halves)),
            _ => None,
        })
    };
    slashed().any(|(_, second, _)| second > 12)
        || (!slashed().any(|(first, ..)| first > 12) && slashed().any(|(.., halves)| halves))
}

/// A number of at most `most` digits, the number of its digits, and what follows.
fn parse_number(text: &str, most: usize) -> Option<(i16, usize, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    ((1..=most).contains(&digits))
        .then(|| text[..digits].parse().ok().map(|number| (number, digits, &text[digits..])))
        .flatten()
}

impl WrittenTime {
    fn to_moment(self, day: Date, offset: Offset, month_first: bool) -> Option<Moment> {
        let date = match self.date {
            None => day,
            Some(WrittenDate::Day(date)) => date,
            Some(WrittenDate::Slashed(first, second, year)) => {
                let (month, day) = if month_first { (first, second) } else { (second, first) };
                Date::new(year, month, day).or_else(|_| Date::new(year, day, month)).ok()?
            }
        };
        moment_at(date, self.clock, self.offset.unwrap_or(offset))
    }

    /// A date, a clock time or both at the start of a text, and what follows.
    fn parse(text: &str) -> Option<(Self, &str)> {
        let none = Self { date: None, clock: None, offset: None, halves: false, parted: false };
        let Some((date, rest)) = read_date(text) else {
            return read_clock(text, none);
        };
        let dated = Self { date: Some(date), ..none };
        let after = rest
            .strip_prefix(['T', 't'])
            .unwrap_or_else(|| rest.trim_start_matches([',', ' ', '\u{202f}', '\u{a0}']));
        read_clock(after, dated)
            .or_else(|| (!rest.starts_with(|c: char| c.is_alphanumeric())).then_some((dated, rest)))
    }
}

fn read_date(text: &str) -> Option<(WrittenDate, &str)> {
    let (first, digits, rest) = parse_number(text, 4)?;
    let separator = rest.chars().next().filter(|c| matches!(c, '-' | '/' | '.'))?;
    let (second, _, rest) = parse_number(&rest[1..], 2)?;
    let (third, last, rest) = parse_number(rest.strip_prefix(separator)?, 4)?;
    let small = |number: i16| i8::try_from(number).ok();
    let year = |number: i16, digits: usize| match digits {
        4 => Some(number),
        2 => Some(2_000 + number),
        _ => None,
    };
    let date = match (digits, separator) {
        (4, _) => WrittenDate::Day(
            Date::new(first, small(second)?, small(third).filter(|_| last <= 2)?).ok()?,
        ),
        (1 | 2, '/') => {
            let (first, second, year) = (small(first)?, small(second)?, year(third, last)?);
            // One of the two orders must be a valid date.
            Date::new(year, second, first).or_else(|_| Date::new(year, first, second)).ok()?;
            WrittenDate::Slashed(first, second, year)
        }
        (1 | 2, _) => {
            WrittenDate::Day(Date::new(year(third, last)?, small(second)?, small(first)?).ok()?)
        }
        _ => return None,
    };
    Some((date, rest))
}

fn read_clock(text: &str, stamp: WrittenTime) -> Option<(WrittenTime, &str)> {
    let (hour, _, rest) = parse_number(text, 2)?;
    let (minute, _, rest) =
        parse_number(rest.strip_prefix(':')?, 2).filter(|(_, digits, _)| *digits == 2)?;
    let (mut second, mut rest) = (0, rest);
    if let Some((found, 2, after)) = rest.strip_prefix(':').and_then(|after| parse_number(after, 2))
    {
        (second, rest) = (found.min(59), after);
        if let Some(fraction) = rest
            .strip_prefix(['.', ','])
            .filter(|after| after.starts_with(|c: char| c.is_ascii_digit()))
        {
            rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        }
    }
    let mut hour = hour;
    let mut halves = false;
    let after = rest.trim_start_matches([' ', '\u{202f}', '\u{a0}']);
    for (word, afternoon) in [("am", false), ("a.m.", false), ("pm", true), ("p.m.", true)] {
        let found = after.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
        let ends = || !after[word.len()..].starts_with(char::is_alphanumeric);
        if found && ends() && (1..=12).contains(&hour) {
            hour = hour % 12 + if afternoon { 12 } else { 0 };
            halves = true;
            rest = &after[word.len()..];
            break;
        }
    }
    let mut offset = None;
    if let Some(after) = rest.strip_prefix(['Z', 'z']).or_else(|| rest.strip_prefix(" UTC")) {
        (offset, rest) = (Some(Offset::UTC), after);
    } else if let Some(sign) = rest.bytes().next().filter(|byte| matches!(byte, b'+' | b'-'))
        && let Some((hours, 2, after)) = parse_number(rest[1..].get(..2).unwrap_or_default(), 2)
            .map(|(hours, digits, _)| (hours, digits, &rest[3..]))
        && let Some((minutes, 2, after)) = parse_number(after.strip_prefix(':').unwrap_or(after), 2)
    {
        let seconds = i32::from(hours) * 3_600 + i32::from(minutes) * 60;
        offset = Some(Offset::from_seconds(if sign == b'-' { -seconds } else { seconds }).ok()?);
        rest = after;
    }
    if rest.starts_with(|c: char| c.is_alphanumeric()) {
        return None;
    }
    let narrow = |number: i16| i8::try_from(number).ok();
    let clock = Time::new(narrow(hour)?, narrow(minute)?, narrow(second)?, 0).ok()?;
    Some((WrittenTime { clock: Some(clock), offset, halves, ..stamp }, rest))
}

/// A time in brackets, and what follows.
fn bracketed_stamp(text: &str) -> Option<(WrittenTime, &str)> {
    let close = match text.chars().next()? {
        '[' => ']',
        '(' => ')',
        _ => return None,
    };
    let (stamp, rest) = WrittenTime::parse(text[1..].trim_start())?;
    Some((WrittenTime { parted: true, ..stamp }, rest.trim_start().strip_prefix(close)?))
}

/// A time at the start of a line and what follows it, past a dash.
fn leading_stamp(text: &str) -> Option<(WrittenTime, &str)> {
    let (mut stamp, rest) = bracketed_stamp(text).or_else(|| WrittenTime::parse(text))?;
    let after = rest.trim_start();
    if !stamp.parted && after.len() == rest.len() {
        return None;
    }
    let past = after.strip_prefix(['-', '–', '—', '|']).filter(|past| past.starts_with(' '));
    stamp.parted |= past.is_some();
    Some((stamp, past.map_or(after, str::trim_start)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;
    use proptest::prelude::*;

    const DAY: Date = date(2026, 2, 13);

    fn berlin() -> Offset {
        Offset::from_seconds(3_600).unwrap()
    }

    fn reading(text: &str, shape: Option<TranscriptFormat>) -> Transcript {
        parse_transcript(text, shape, DAY, berlin())
    }

    /// A turn on one line: time, role, name, id, text, parts; missing values are omitted. `?` is an
    /// unknown role.
    fn format_message(message: &IncomingMessage) -> String {
        let mut line = message.ts.map_or(String::new(), |ts| format!("{ts} "));
        line.push_str(message.role.map_or("?", Role::word));
        message.name.iter().for_each(|name| line.push_str(&format!(" {name}")));
        message.id.iter().for_each(|id| line.push_str(&format!(" #{id}")));
        line.push_str(&format!(": {}", message.text.replace('\n', "⏎")));
        message.parts.iter().for_each(|parts| line.push_str(&format!(" {parts}")));
        line
    }

    fn check_as(shape: TranscriptFormat, text: &str, turns: &[&str]) -> Transcript {
        let read = reading(text, Some(shape));
        assert_eq!(read.turns.iter().map(format_message).collect::<Vec<_>>(), turns, "{text}");
        // The same with another system's line breaks and byte order mark.
        let foreign = reading(&format!("\u{feff}{}", text.replace('\n', "\r\n")), Some(shape));
        assert_eq!(foreign.turns, read.turns, "{text}");
        read
    }

    /// Parses as that format, which must also be the detected one.
    fn check(shape: TranscriptFormat, text: &str, turns: &[&str]) -> Transcript {
        assert_eq!(detect_format(text), shape, "{text}");
        check_as(shape, text, turns)
    }

    fn skipped_counts(read: &Transcript) -> Vec<(&str, usize)> {
        read.skipped.iter().map(|(what, count)| (what.as_str(), *count)).collect()
    }

    // P1
    #[test]
    fn what_a_client_puts_among_a_persons_words_is_left_out() {
        let ours = "<!-- icecore:begin delta 2026-02-13 -->\nabout </system-reminder> tags\n<!-- icecore:end -->";
        for (text, rest) in [
            (format!("a<system-reminder>hook: {ours}</system-reminder>b"), Some("ab")),
            (
                format!(
                    "a<system-reminder>x</system-reminder>b<system-reminder>{ours}\n</system-reminder>c"
                ),
                Some("abc"),
            ),
            (format!("{ours} stands alone"), None),
            ("<system-reminder>x</system-reminder> a".into(), Some(" a")),
            ("look\n<ide_selection>x</ide_selection>\nhere".into(), Some("look\n\nhere")),
            ("why is there a <system-reminder> in my log?".into(), None),
            (format!("a<system-reminder>{ours}"), Some("a")),
        ] {
            assert_eq!(strip_injected(&text).as_deref(), rest, "{text}");
        }
        let many = "<system-reminder>".repeat(20_000) + " icecore:begin";
        assert_eq!(strip_injected(&many).as_deref(), Some(""));
    }

    #[test]
    fn lines_of_a_chat_become_turns() {
        let read = check(
            TranscriptFormat::Jsonl,
            concat!(
                r#"{"ts":"2026-02-13T09:30:00+01:00","role":"human","id":"m1","session":"s1","text":"which port?","mood":"calm","trust":"high"}"#,
                "\n\n",
                r#"{"role":"assistant","content":"7431","timestamp":1770975000}"#,
                "\n",
                r#"{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"text","text":"Now."},{"type":"tool_use","id":"t1","name":"Read","input":{"path":"a"}},{"type":"image","source":{"type":"url","url":"u"}}],"created_at":"2026-02-13T09:31:00"}"#,
                "\n",
                r#"{"role":"user","id":7,"content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"port = 7431"},{"type":"image","source":{}}]},{"type":"text","text":"thanks"}]}"#,
                "\n",
                r#"{"role":"Caroline","content":"half a pair \ud83d here","time":1770975000123}"#,
                "\n",
                r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1","function":{"name":"search","arguments":"{}"}}]}"#,
                "\n",
                r#"{"text":"bare","parts":{"file": 1},"ts":"soon"}"#,
            ),
            &[
                "2026-02-13T09:30:00+01:00 user #m1: which port?",
                "2026-02-13T10:30:00+01:00 assistant: 7431",
                r#"2026-02-13T09:31:00+01:00 assistant: I look.⏎⏎Now.⏎[tool: Read]⏎[image] [{"type":"tool_use","id":"t1","name":"Read","input":{"path":"a"}},{"type":"image","source":{"type":"url","url":"u"}}]"#,
                r#"tool #7.tool: port = 7431⏎[image] [{"type":"tool_result","tool_use_id":"t1"}]"#,
                "user #7: thanks",
                "2026-02-13T10:30:00+01:00 ? Caroline: half a pair \u{fffd} here",
                r#"assistant: [tool: search] [{"id":"c1","function":{"name":"search","arguments":"{}"}}]"#,
                r#"user: bare {"file": 1}"#,
            ],
        );
        assert_eq!(read.session.as_deref(), Some("s1"));
        assert_eq!(read.turns[0].extra, [("mood".to_owned(), "\"calm\"".to_owned())]);
        assert_eq!(read.complaints, [(8, "has an invalid time: \"soon\"".to_owned())]);
        assert_eq!(skipped_counts(&read), [("image data", 1)]);
    }

    // P1
    #[test]
    fn a_claude_code_transcript_becomes_turns() {
        let line = |kind: &str, uuid: &str, rest: &str| {
            format!(
                r#"{{"type":"{kind}","uuid":"{uuid}","sessionId":"s1","timestamp":"2026-11-02T09:00:00.000Z",{rest}}}"#
            ) + "\n"
        };
        let text = [
            r#"{"type":"summary","summary":"Ports","leafUuid":"a9"}"#.to_owned() + "\n",
            line("user", "a1", r#""isSidechain":false,"message":{"role":"user","content":"use port 7431"}"#),
            line("assistant", "a2", r#""message":{"id":"m","role":"assistant","content":[{"type":"thinking","thinking":"hm"}]}"#),
            line("assistant", "a3", r#""message":{"id":"m","role":"assistant","content":[{"type":"text","text":"\n\nI edit it.\n"}]}"#),
            line(
                "assistant",
                "a4",
                r#""message":{"id":"m","role":"assistant","content":[{"type":"tool_use","id":"t","name":"Edit","input":{}}]}"#,
            ),
            line(
                "user",
                "a5",
                r#""message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"ok"}]},"toolUseResult":{"x":1}"#,
            ),
            line("user", "a6", r#""isMeta":true,"message":{"role":"user","content":"Caveat"}"#),
            line("user", "a7", r#""isSidechain":true,"message":{"role":"user","content":"to a helper"}"#),
            line("user", "a8", r#""isCompactSummary":true,"message":{"role":"user","content":"so far"}"#),
            line("user", "a9", r#""message":{"role":"user","content":"<local-command-stdout>done</local-command-stdout>"}"#),
            line("system", "b1", r#""subtype":"informational","content":"noise""#),
            line("user", "b2", r#""message":"error""#),
            "{\"type\":\"progress\",\"data\":{}}\n{\"type\":\"progress\"}\n{\"type\":\"custom-title\",\"customTitle\":\"My ports\"}\n"
                .into(),
            "{\"type\":\"ai-title\",\"aiTitle\":\"Other\"}\n{broken\n42\n{\"silly\":1}\n".into(),
        ]
        .concat();
        let read = check(
            TranscriptFormat::Jsonl,
            &text,
            &[
                "2026-11-02T09:00:00+00:00 user #a1: use port 7431",
                "2026-11-02T09:00:00+00:00 assistant #a3: I edit it.",
                r#"2026-11-02T09:00:00+00:00 assistant #a4: [tool: Edit] [{"type":"tool_use","id":"t","name":"Edit","input":{}}]"#,
                r#"2026-11-02T09:00:00+00:00 tool #a5: ok [{"type":"tool_result","tool_use_id":"t"}]"#,
                "2026-11-02T09:00:00+00:00 tool #a9: <local-command-stdout>done</local-command-stdout>",
            ],
        );
        assert_eq!(
            (read.title.as_deref(), read.session.as_deref()),
            (Some("My ports"), Some("s1"))
        );
        assert!(
            read.turns
                .iter()
                .all(|said| said.session.as_deref() == Some("s1") && said.extra.is_empty())
        );
        assert_eq!(
            skipped_counts(&read),
            [
                ("thinking", 1),
                ("meta", 1),
                ("compact summary", 1),
                ("system", 1),
                ("progress", 2),
                ("sidechain", 1)
            ]
        );
        assert_eq!(
            read.complaints.iter().map(|(line, _)| *line).collect::<Vec<_>>(),
            [12, 17, 18, 19]
        );
        // A subagent's own file is read, though all of it is beside the main conversation.
        let helper = line(
            "user",
            "a7",
            r#""isSidechain":true,"message":{"role":"user","content":"to a helper"}"#,
        );
        check(
            TranscriptFormat::Jsonl,
            &helper,
            &["2026-11-02T09:00:00+00:00 assistant #a7: to a helper"],
        );
    }

    // P1
    #[test]
    fn a_codex_rollout_becomes_turns() {
        let line = |kind: &str, payload: &str| {
            format!(
                r#"{{"timestamp":"2026-11-02T09:00:00.000Z","type":"{kind}","payload":{payload}}}"#
            ) + "\n"
        };
        let said = |role: &str, text: &str| {
            format!(
                r#"{{"type":"message","role":"{role}","content":[{{"type":"input_text","text":"{text}"}}]}}"#
            )
        };
        let meta = line("session_meta", r#"{"id":"t1","cwd":"/home/u/app"}"#);
        let events = line("event_msg", r#"{"type":"user_message","message":"use port 7431"}"#)
            + &line("event_msg", r#"{"type":"token_count"}"#)
            + &line("event_msg", r#"{"type":"agent_message","message":"Done."}"#);
        let items = [
            line(
                "response_item",
                &said(
                    "user",
                    "# AGENTS.md instructions for /home/u/app\\n\\n<INSTRUCTIONS>x</INSTRUCTIONS>",
                ),
            ),
            line(
                "response_item",
                &said(
                    "developer",
                    "<skills_instructions>\\nWe decided to obey.\\n</skills_instructions>",
                ),
            ),
            line("response_item", &said("developer", "Never provide the sandbox permissions.")),
            line("response_item", &said("user", "<environment_context>x</environment_context>")),
            line("response_item", &said("user", "<skill name='x'>Always lint.</skill>")),
            line(
                "response_item",
                &said("user", "<user_instructions>Always lint.</user_instructions>"),
            ),
            line("response_item", &said("user", "use port 7431")),
            line("response_item", r#"{"type":"reasoning","summary":[]}"#),
            line(
                "response_item",
                r#"{"type":"function_call","name":"shell","arguments":"{}","call_id":"c1"}"#,
            ),
            line(
                "response_item",
                r#"{"type":"function_call_output","call_id":"c1","output":"a\nb"}"#,
            ),
            line("response_item", &said("assistant", "Done.")),
            line("turn_context", "{}"),
        ]
        .concat();
        let read = check(
            TranscriptFormat::Jsonl,
            &(meta.clone() + &items + &events),
            &[
                "2026-11-02T09:00:00+00:00 user: use port 7431",
                r#"2026-11-02T09:00:00+00:00 assistant #c1: [tool: shell] [{"type":"function_call","name":"shell","arguments":"{}","call_id":"c1"}]"#,
                r#"2026-11-02T09:00:00+00:00 tool #c1.output: a⏎b [{"type":"function_call_output","call_id":"c1"}]"#,
                "2026-11-02T09:00:00+00:00 assistant: Done.",
            ],
        );
        assert_eq!(read.session.as_deref(), Some("t1"));
        let passed_over = [
            ("injected context", 4),
            ("instructions", 2),
            ("reasoning", 1),
            ("turn_context", 1),
            ("token_count", 1),
            ("event_msg", 2),
        ];
        assert_eq!(skipped_counts(&read), passed_over);
        check(
            TranscriptFormat::Jsonl,
            &(meta + &events),
            &[
                "2026-11-02T09:00:00+00:00 user: use port 7431",
                "2026-11-02T09:00:00+00:00 assistant: Done.",
            ],
        );
    }

    // P1
    #[test]
    fn a_file_may_be_one_list_or_one_object() {
        let turns =
            ["user: hi", r#"assistant: [tool: Read] [{"type": "tool_use","name": "Read"}]"#];
        let list = "[\n  {\"role\": \"user\", \"content\": \"hi\"},\n  {\"role\": \"assistant\", \"content\": [{\"type\": \"tool_use\",\n    \"name\": \"Read\"}]}";
        check(TranscriptFormat::Jsonl, &format!("{list}\n]\n"), &turns);
        let read = check(
            TranscriptFormat::Jsonl,
            &format!("{{\"title\": \"T\", \"id\": \"s9\", \"messages\": {list}\n,\n7]\n}}"),
            &turns,
        );
        assert_eq!((read.title.as_deref(), read.session.as_deref()), (Some("T"), Some("s9")));
        assert_eq!(read.complaints.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [6]);
        // An incomplete list is read as far as it is valid.
        let read = check(TranscriptFormat::Jsonl, &format!("\n{list},\n {{\"role\":"), &turns);
        assert_eq!(read.complaints.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [6]);
        let export = r#"[{"uuid":"c1","name":"N","chat_messages":[{"uuid":"m1","sender":"human","text":"hi","content":[{"type":"text","text":"hi there"}],"created_at":"2026-10-02T09:00:00.000000Z"}]},{"mapping":{}}]"#;
        let read = check(
            TranscriptFormat::Jsonl,
            export,
            &["2026-10-02T09:00:00+00:00 user #m1: hi there"],
        );
        assert_eq!(read.turns[0].session.as_deref(), Some("c1"));
        assert!(read.complaints[0].1.contains("icecore import"));
    }

    #[test]
    fn lines_that_are_too_long_or_too_deep_are_skipped_and_reported() {
        let long = format!("{{\"role\":\"user\",\"content\":\"{}\"}}", "x".repeat(MAX_LINE_BYTES));
        let deep = format!(
            "{{\"role\":\"user\",\"content\":{}{}}}",
            "[".repeat(200_000),
            "]".repeat(200_000)
        );
        let read = check(
            TranscriptFormat::Jsonl,
            &format!("{{\"text\":\"a\"}}\n{long}\n{deep}\n{{\"text\":\"b\"}}"),
            &["user: a", "user: b"],
        );
        let complaints: Vec<_> =
            read.complaints.iter().map(|(line, what)| format!("{line} {what}")).collect();
        assert!(complaints[0].starts_with("2 has 4194"), "{complaints:?}");
        assert!(complaints[1].starts_with("3 nests deeper"), "{complaints:?}");
        let read = reading(&"{\n".repeat(MAX_COMPLAINTS + 5), Some(TranscriptFormat::Jsonl));
        assert_eq!(
            (read.complaints.len(), skipped_counts(&read)),
            (MAX_COMPLAINTS, vec![("further complaints", 5)])
        );
        let kinds: String = (0..200).map(|kind| format!("{{\"type\":\"k{kind}\"}}\n")).collect();
        let read = reading(&kinds, None);
        assert_eq!(
            (read.skipped.len(), read.skipped.iter().map(|(_, count)| count).sum::<usize>()),
            (MAX_KINDS, 200)
        );
        // The bytes of a picture are not kept; that they were dropped is counted.
        let picture = format!(
            r#"{{"role":"user","content":[{{"type":"image","data":"{}","name":"a.png"}}]}}"#,
            "A".repeat(9_000)
        );
        let read = check(
            TranscriptFormat::Jsonl,
            &picture,
            &[r#"user: [image] [{"type":"image","name":"a.png","left_out_bytes":9041}]"#],
        );
        assert_eq!(skipped_counts(&read), [("image data", 1)]);
    }

    // P1
    #[test]
    fn markdown_with_headings_becomes_turns() {
        let read = check(
            TranscriptFormat::Markdown,
            "---\ntitle: \"Ports\"\nsession: s7\ndate: 2026-03-01\ntags: [a]\n---\n\n# Export\n\nSome words before.\n\n---\n\n## User\n\nwhich port?\n\n---\n\n\
             ### Assistant (10:31)\n\n  7431, see:\n\n```\n## User\nnot a turn\n```\n\n### Model\n\nmore\n\n---\n## 🧑 You said:\nok\n\n## Tool\n## Anna — 10:32\nhi\n",
            &[
                "?: # Export⏎⏎Some words before.",
                "user: which port?",
                "2026-03-01T10:31:00+01:00 assistant:   7431, see:⏎⏎```⏎## User⏎not a turn⏎```⏎⏎### Model⏎⏎more",
                "user: ok",
                "2026-03-01T10:32:00+01:00 ? Anna: hi",
            ],
        );
        assert_eq!((read.title.as_deref(), read.session.as_deref()), (Some("Ports"), Some("s7")));
        assert_eq!(skipped_counts(&read), [("front matter", 1), ("empty", 1)]);
        check(
            TranscriptFormat::Markdown,
            "# Human\nhi\n\n# Assistant (gpt-x)\nhello\n",
            &["user: hi", "assistant gpt-x: hello"],
        );
        check(
            TranscriptFormat::Markdown,
            "## User: hi there\n## Assistant\nhello",
            &["user: hi there", "assistant: hello"],
        );
        check(TranscriptFormat::Markdown, "# Talk\n## User\nalone", &["user: alone"]);
    }

    // P1
    #[test]
    fn markdown_with_names_in_bold_becomes_turns() {
        let read = check(
            TranscriptFormat::Markdown,
            "# Talk\n\n**User:** what now?\n\nmore\n\n**Assistant:** ```\n**User:** quoted\n```\n**Note:** keep\n\n**Budget:** 5\n\n**Budget:** 6\n\n***\n\n\
             **Anna** (2026-02-13 09:31): hi\n> **User:** cited\n\n[10:00] **Ben:** ho\n",
            &[
                "user: what now?⏎⏎more",
                "assistant: ```⏎**User:** quoted⏎```⏎**Note:** keep⏎⏎**Budget:** 5⏎⏎**Budget:** 6",
                "2026-02-13T09:31:00+01:00 ? Anna: hi⏎> **User:** cited",
                "2026-02-13T10:00:00+01:00 ? Ben: ho",
            ],
        );
        assert_eq!(read.title.as_deref(), Some("Talk"));
        check(
            TranscriptFormat::Markdown,
            "**Anna:** hi\n\n**Ben**: ho\n\n**Assistant:** so\n\n**Ben**: ok",
            &["? Anna: hi", "? Ben: ho", "assistant: so", "? Ben: ok"],
        );
        // An unclosed fence swallows nothing.
        check(
            TranscriptFormat::Markdown,
            "**User:** a\n```\n\n**Assistant:** b",
            &["user: a⏎```", "assistant: b"],
        );
    }

    // P1
    #[test]
    fn a_document_in_which_nobody_speaks_is_one_turn() {
        let notes = "# Notes\n\n**Note:** a\n\n## Model\n\nb: c\n\n---\n";
        let read = check(
            TranscriptFormat::Markdown,
            notes,
            &["user: # Notes⏎⏎**Note:** a⏎⏎## Model⏎⏎b: c⏎⏎---"],
        );
        assert_eq!(read.title.as_deref(), Some("Notes"));
        for text in [
            "Just words.\n\nNote: a\nTODO: b\nDecision: c\nError: d",
            "https://example.org: see\nhttp://example.org",
            "2026-02-13 09:31:05 ERROR: a\n2026-02-13 09:31:06 INFO: b",
            "Anna: only one",
            "Here is the plan: go\nThen we rest: home",
            "<div> a\n</div>\n<div> b\n</div>",
            "- User: a\n- Assistant: b",
        ] {
            check(TranscriptFormat::Text, text, &[&format!("user: {}", text.replace('\n', "⏎"))]);
        }
        for shape in TranscriptFormat::ALL {
            check_as(*shape, " \n\n", &[]);
        }
    }

    // P1
    #[test]
    fn plain_text_becomes_turns() {
        let cases: &[(&str, &[&str])] = &[
            (
                "User: hi\n\n  indented\nNote: this\nAssistant: ho\nBudget: 5",
                &["user: hi⏎⏎  indented⏎Note: this", "assistant: ho⏎Budget: 5"],
            ),
            (
                "Before.\n\nUser:\nhi\nASSISTANT: ho\nTool: out",
                &["?: Before.", "user: hi", "assistant: ho", "tool: out"],
            ),
            (
                "Anna: hi\nBen van Dyk: ho\nAnna: so",
                &["? Anna: hi", "? Ben van Dyk: ho", "? Anna: so"],
            ),
            (
                "anna: hi\nben: ho\nanna: so\nben: go",
                &["? anna: hi", "? ben: ho", "? anna: so", "? ben: go"],
            ),
            ("Customer: hi\nAgent: ho", &["user: hi", "assistant: ho"]),
            (
                "User: see\n```\nUser: code\n```\nAssistant: ok",
                &["user: see⏎```⏎User: code⏎```", "assistant: ok"],
            ),
            (
                "[09:31] Anna: hi\nUser: quoted\n[09:30] Assistant: ho",
                &[
                    "2026-02-13T09:31:00+01:00 ? Anna: hi⏎User: quoted",
                    "2026-02-13T09:30:00+01:00 assistant: ho",
                ],
            ),
            (
                "2026-02-14 09:31 Anna: hi\n2026-02-14 09:32:10 Ben: see https://a.b/c: d",
                &[
                    "2026-02-14T09:31:00+01:00 ? Anna: hi",
                    "2026-02-14T09:32:10+01:00 ? Ben: see https://a.b/c: d",
                ],
            ),
            (
                "[2026-02-13T09:31:00Z] user> hi\n[2026-02-13T09:31:00.5-05:00] assistant> ho",
                &["2026-02-13T09:31:00+00:00 user: hi", "2026-02-13T09:31:00-05:00 assistant: ho"],
            ),
            ("<anna> hi\n<@ben_> ho: yes", &["? anna: hi", "? ben_: ho: yes"]),
            (
                "09:31 <anna> hi\n09:32 <ben> ho",
                &["2026-02-13T09:31:00+01:00 ? anna: hi", "2026-02-13T09:32:00+01:00 ? ben: ho"],
            ),
            (
                "13.02.26, 09:30 - Messages are private.\n13.02.26, 09:31 - Anna: hi\nmore: yes\n13.02.26, 09:32 - +49 170 1234: ho",
                &[
                    "2026-02-13T09:30:00+01:00 system: Messages are private.",
                    "2026-02-13T09:31:00+01:00 ? Anna: hi⏎more: yes",
                    "2026-02-13T09:32:00+01:00 ? +49 170 1234: ho",
                ],
            ),
            (
                "[13/02/2026, 09:31:05] Anna: hi\n\u{200e}[01/03/2026, 09:32:05] Ben: ho",
                &["2026-02-13T09:31:05+01:00 ? Anna: hi", "2026-03-01T09:32:05+01:00 ? Ben: ho"],
            ),
            (
                "1/3/26, 9:31\u{202f}PM - Anna: hi\n1/4/26, 12:05 AM - Ben: ho",
                &["2026-01-03T21:31:00+01:00 ? Anna: hi", "2026-01-04T00:05:00+01:00 ? Ben: ho"],
            ),
            (
                "Anna (10:31): hi\nBen (10:32): ho",
                &["2026-02-13T10:31:00+01:00 ? Anna: hi", "2026-02-13T10:32:00+01:00 ? Ben: ho"],
            ),
        ];
        for (text, turns) in cases {
            check(TranscriptFormat::Text, text, turns);
        }
        // A Markdown file may have plain names as well.
        check_as(
            TranscriptFormat::Markdown,
            "# Talk\n\nUser: hi\n\n---\n\nAssistant: ho",
            &["user: hi", "assistant: ho"],
        );
    }

    #[test]
    fn times_that_are_none_are_no_times() {
        for text in [
            "[25:00] Anna: a",
            "[09:61] Anna: a",
            "2026-13-40 09:31 Anna: a",
            "99/99/2026, 09:31 - Anna: a",
            "09:3 Anna: a",
            "[09:31 Anna: a",
        ] {
            assert!(
                parse_plain_mark(text).is_none_or(|mark| mark
                    .stamp
                    .is_none_or(|stamp| stamp.date.is_none() && text.starts_with('2'))),
                "{text}"
            );
        }
    }

    /// A conversation: who speaks, at which minute, in which words.
    fn talk() -> impl Strategy<Value = Vec<(usize, u8, Vec<String>)>> {
        let lines =
            proptest::collection::vec("[a-zäß日]{1,6}( [a-z0-9é.,!?*_`~#\\-]{1,6}){0,4}", 1..4);
        proptest::collection::vec((0..4_usize, 0..60_u8, lines), 2..12)
    }

    proptest! {
        // P1
        #[test]
        fn of_a_written_conversation_nothing_is_lost(talk in talk(), form in 0..8_usize, gap in "\n{1,3}") {
            let names = ["User", "Assistant", "Anna", "Jan van Dyk"];
            let mut text = String::new();
            for (who, minute, lines) in &talk {
                let (name, clock) = (names[*who], format!("09:{minute:02}"));
                text += &match form {
                    0 => format!("## {name} ({clock})\n\n"),
                    1 => format!("**{name}** ({clock}): "),
                    2 => format!("---\n\n**{name} ({clock}):**\n"),
                    3 => format!("[{clock}] {name}: "),
                    4 => format!("2026-02-13 {clock} {name}: "),
                    5 => format!("13.02.26, {clock} - {name}: "),
                    6 => format!("[13/02/2026, {clock}:00] {name}:\n"),
                    _ => format!("{name} ({clock}): "),
                };
                text += &lines.join("\n");
                text += &gap;
            }
            let shape = if form < 3 { TranscriptFormat::Markdown } else { TranscriptFormat::Text };
            prop_assert_eq!(detect_format(&text), shape);
            let read = reading(&text, None);
            prop_assert_eq!(read.turns.len(), talk.len(), "{}", text);
            for (said, (who, minute, lines)) in read.turns.iter().zip(&talk) {
                prop_assert_eq!(&said.text, &lines.join("\n"));
                prop_assert_eq!(said.ts.unwrap().clock_time(), format!("09:{minute:02}"));
                prop_assert_eq!(said.name.as_deref(), [None, None, Some("Anna"), Some("Jan van Dyk")][*who]);
                prop_assert_eq!(said.role, [Some(Role::User), Some(Role::Assistant), None, None][*who]);
            }
        }

        // P1
        #[test]
        fn of_any_text_every_word_is_kept(
            lines in proptest::collection::vec(
                "(User: |Assistant: |Anna: |\\*\\*User:\\*\\* |## Assistant\n|\\[09:31\\] Ben: |Note: |<eve> |```\n|# |- |    |---\n|)[a-z]{2,8}x( [a-z]{2,8}x){0,3}\n{1,2}",
                0..20,
            ),
            shape in proptest::option::of(prop_oneof![Just(TranscriptFormat::Markdown), Just(TranscriptFormat::Text)]),
        ) {
            let text = lines.concat();
            let read = reading(&text, shape);
            let words = |text: &str| -> Vec<String> {
                text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.ends_with('x')).map(str::to_owned).collect()
            };
            let mut kept: Vec<String> = read.turns.iter().flat_map(|said| words(&said.text)).collect();
            // A heading that names the document becomes the title, unless the document is one turn.
            let mut expected = words(&text);
            if kept.len() < expected.len() {
                kept.splice(0..0, words(read.title.as_deref().unwrap_or_default()));
            }
            expected.sort();
            kept.sort();
            prop_assert_eq!(kept, expected, "{}", text);
        }

        #[test]
        fn no_text_makes_the_reader_fall(text in any::<String>(), odd in "([-\\[\\](){}<>:#*_`~\"\\\\0-9/., \n\ta-cA-CTZ日é\u{202f}]|User|null|\"role\":|\"content\":){0,60}", shape in 0..4_usize) {
            let shape = TranscriptFormat::ALL.get(shape).copied();
            for text in [&text, &odd, &format!("{{\"role\":\"user\",\"content\":{odd}}}"), &format!("[{{{odd}")] {
                detect_format(text);
                for said in reading(text, shape).turns {
                    prop_assert!(said.role.is_some());
                    prop_assert!(said.parts.is_none_or(|parts| !parts.contains('\n')));
                }
            }
        }
    }
}
