//! Forgetting: computes what a file is without the forgotten content.
//!
//! One function serves the files of a vault and every file of every snapshot: a [`Scrub`] says what
//! to forget, and [`Scrub::fate`] what becomes of a file.
//!
//! Invariants:
//! - Words are found regardless of case, spacing and escaping, and are removed with their line.
//! - Events, records, summaries and turns derived from them lose their text and keep their times.
//! - A file that could be parsed before can be parsed afterwards, and unrelated content keeps every
//!   byte.

mod json;
mod tombstone;
mod words;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use memchr::memmem;
use serde_json::{Value, json};

pub use self::tombstone::{Tombstone, Tombstones, done_line};
pub use self::words::count_words;
use self::words::{FoldedText, HashedPhrases, fold_phrase, fold_text};
use crate::event::{COMPACTS_FIELD, Event, EventDraft, SAID_AT_FIELD, Scope};
use crate::format::line;
use crate::hash::Hash;
use crate::id::EventId;
use crate::layout::{self, DocPath};
use crate::packs::states::{self, PeriodBlock};
use crate::record::{self, Record, RecordKey};
use crate::summary::{Period, Summary, SummaryAuthor, SummaryFileState, classify_summary_file};

/// Replaces forgotten words.
pub const FORGOTTEN_MARK: &str = "[forgotten]";
/// The fewest words of an event that are searched for everywhere; fewer occur by chance.
pub const MIN_WORDS: usize = 4;
/// The fewest letters and digits that can be searched for.
pub const MIN_CHARS: usize = 3;
/// The field with the turn that an event of a conversation comes from.
const TURN_FIELD: &str = "turn";

/// Words to forget: in plain text, or only as hashes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needles {
    phrases: BTreeSet<String>,
    hashed: HashedPhrases,
}

/// A text without the forgotten words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactedLines {
    /// The remaining text, with marks.
    pub text: String,
    /// The number of removed lines.
    pub lines: usize,
}

impl Needles {
    /// Creates needles from these texts.
    pub fn from_texts(texts: &[&str]) -> Self {
        let mut needles = Self::default();
        for text in texts {
            needles.add(text);
        }
        needles
    }

    /// Adds a text; returns whether it is new and has any words.
    pub fn add(&mut self, text: &str) -> bool {
        let phrase = fold_phrase(text);
        !phrase.is_empty() && self.phrases.insert(phrase)
    }

    /// Adds the needles of another set.
    pub fn merge(&mut self, others: &Self) {
        self.phrases.extend(others.phrases.iter().cloned());
        self.hashed.merge(&others.hashed);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.phrases.is_empty() && self.hashed.is_empty()
    }

    /// The phrases known in plain text.
    pub fn phrases(&self) -> impl Iterator<Item = &str> {
        self.phrases.iter().map(String::as_str)
    }

    /// A cheap pre-check: false if the bytes are plain ASCII without escapes or tags and lack the
    /// longest word of every phrase.
    fn may_be_in(&self, bytes: &[u8]) -> bool {
        let escaped = || {
            memmem::find(bytes, b"\\u").is_some()
                || memchr::memchr3(b'%', b'&', b'<', bytes).is_some()
        };
        if !self.hashed.is_empty() || !bytes.is_ascii() || escaped() {
            return !self.is_empty();
        }
        let lower = bytes.to_ascii_lowercase();
        self.phrases.iter().any(|phrase| {
            let longest = phrase.split(' ').max_by_key(|word| word.len()).unwrap_or_default();
            memmem::find(&lower, longest.as_bytes()).is_some()
        })
    }

    fn spans(&self, folded: &FoldedText) -> Vec<(usize, usize)> {
        let mut found: Vec<(usize, usize)> =
            self.phrases.iter().flat_map(|phrase| folded.find_phrase(phrase)).collect();
        if !self.hashed.is_empty() {
            found.extend(folded.find_hashed(&self.hashed));
        }
        found.sort_unstable();
        found
    }

    /// Whether the text contains any of them.
    pub fn is_contained_in(&self, text: &str) -> bool {
        self.may_be_in(text.as_bytes()) && !self.spans(&fold_text(text)).is_empty()
    }

    /// The text without every line that contains any of them; `None` if there is none.
    pub fn redact(&self, text: &str) -> Option<RedactedLines> {
        if !self.may_be_in(text.as_bytes()) {
            return None;
        }
        let spans = self.spans(&fold_text(text));
        (!spans.is_empty()).then(|| redact_lines(text, &spans, |_, _| false))
    }
}

/// Removes lines from a text: those that a span touches, and those for which `also` is true.
/// Consecutive removed lines leave one mark.
fn redact_lines(
    text: &str,
    spans: &[(usize, usize)],
    also: impl Fn(usize, &str) -> bool,
) -> RedactedLines {
    let (mut out, mut lines, mut start) = (String::with_capacity(text.len()), 0, 0);
    let mut marked = false;
    let mut header = text.starts_with("---\n");
    let mut spans = spans.iter().peekable();
    for (at, line) in text.split_inclusive('\n').enumerate() {
        let end = start + line.len();
        let bare = line.trim_end_matches(['\n', '\r']);
        while spans.next_if(|(_, to)| *to <= start).is_some() {}
        // Spans may be nested, so all that begin before the end count.
        let touched = spans.clone().take_while(|(from, _)| *from < end).any(|(_, to)| *to > start);
        if header && at > 0 && bare.trim_end() == "---" {
            header = false;
        }
        if (touched || also(at, bare)) && bare.trim() != FORGOTTEN_MARK {
            lines += 1;
            let kept = kept_prefix(bare, header);
            if !marked || !kept.is_empty() {
                out.push_str(kept);
                out.push_str(if header { "forgotten" } else { FORGOTTEN_MARK });
                out.push_str(&line[bare.len()..]);
            }
            marked = kept.is_empty();
        } else {
            marked = bare.trim() == FORGOTTEN_MARK;
            out.push_str(line);
        }
        start = end;
    }
    RedactedLines { text: out, lines }
}

/// The part of a line that stays: the marks of a heading, which keeps the text below it in place,
/// or a field name.
fn kept_prefix(line: &str, header: bool) -> &str {
    if header {
        return line.find(": ").map_or("", |colon| &line[..colon + 2]);
    }
    let hashes = line.bytes().take_while(|byte| *byte == b'#').count();
    if hashes > 0 && line[hashes..].starts_with(' ') { &line[..=hashes] } else { "" }
}

/// What becomes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileFate {
    /// Unchanged.
    Same,
    /// Rewritten.
    Changed {
        /// The new content.
        bytes: Vec<u8>,
        /// The number of changed lines.
        lines: usize,
    },
    /// Deleted.
    Gone,
}

/// Everything to forget.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scrub {
    /// Words, wherever they occur.
    pub needles: Needles,
    /// Events of the ledger and its archives.
    pub events: BTreeSet<EventId>,
    /// Records, by their keys.
    pub records: HashSet<RecordKey>,
    /// Summaries up to a version; later ones were made without the forgotten content.
    pub periods: BTreeMap<Period, u32>,
    /// Turns of conversations, by the folder of the conversation.
    pub turns: BTreeMap<String, BTreeSet<u64>>,
    /// Conversations whose records are all forgotten.
    pub conversations: BTreeSet<String>,
    /// Folders to delete with everything in them.
    pub folders: BTreeSet<String>,
    /// The content of foreign entries in the cascade files. They keep everything but forgotten
    /// words.
    pub foreign_entries: BTreeSet<(Period, String)>,
}

/// What becomes of one line of a file.
enum LineFate {
    Same,
    Becomes(String),
    Dropped,
}

impl Scrub {
    /// Whether there is nothing to forget.
    pub fn is_empty(&self) -> bool {
        self.needles.is_empty()
            && self.events.is_empty()
            && self.records.is_empty()
            && self.periods.is_empty()
            && self.turns.is_empty()
            && self.folders.is_empty()
    }

    /// Adds what another scrub forgets.
    pub fn merge(&mut self, other: &Self) {
        self.needles.merge(&other.needles);
        self.events.extend(&other.events);
        self.records.extend(&other.records);
        for (period, version) in &other.periods {
            let upto = self.periods.entry(*period).or_default();
            *upto = (*version).max(*upto);
        }
        for (folder, turns) in &other.turns {
            self.turns.entry(folder.clone()).or_default().extend(turns);
        }
        self.conversations.extend(other.conversations.iter().cloned());
        self.folders.extend(other.folders.iter().cloned());
        self.foreign_entries.extend(other.foreign_entries.iter().cloned());
    }

    /// What becomes of the file at `path`.
    pub fn fate(&self, path: &str, bytes: &[u8]) -> FileFate {
        if self.is_empty() || is_exempt(path) {
            return FileFate::Same;
        }
        let below = |folder: &String| {
            path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
        };
        if self.folders.iter().any(below)
            || self.has_forgotten_name(path)
            || is_view_of_many(path)
            || self.is_stale_view(path, bytes)
        {
            return FileFate::Gone;
        }
        if is_cascade_file(path) {
            return self.cascade_fate(path, bytes);
        }
        let conversation = conversation_folder(path);
        let turns = conversation.and_then(|folder| self.turns.get(folder));
        if turns.is_some() && (path.ends_with("/base-truth.json") || path.contains("/snapshots/")) {
            return FileFate::Gone;
        }
        let document = path.parse::<DocPath>().ok();
        if path == layout::LEDGER || document.as_ref().is_some_and(DocPath::is_archive) {
            return map_lines(bytes, |line| {
                self.scrub_event_line(line, |event| self.events.contains(&event.id))
            });
        }
        if conversation.is_some() && path.ends_with("/events.jsonl") {
            let of_turn = |event: &Event| {
                event
                    .extra_field::<u64>(TURN_FIELD)
                    .is_some_and(|turn| turns.is_some_and(|turns| turns.contains(&turn)))
            };
            return map_lines(bytes, |line| self.scrub_event_line(line, of_turn));
        }
        if conversation.is_some() && path.ends_with("/turn-log.jsonl") {
            return map_lines(bytes, |line| self.scrub_turn_line(line, turns));
        }
        if document.as_ref().and_then(DocPath::record_day).is_some() {
            return map_lines(bytes, |line| self.scrub_record_line(line));
        }
        match path {
            layout::SUMMARIES => return map_lines(bytes, |line| self.scrub_summary_line(line)),
            layout::REVIEW => return map_lines(bytes, |line| self.scrub_review_line(line)),
            _ => {}
        }
        let fate = self.text_fate(path, bytes);
        // Quarantined content is not part of the memory; if it is affected, it is deleted.
        if fate != FileFate::Same && path.starts_with(".icecore/quarantine/") {
            FileFate::Gone
        } else {
            fate
        }
    }

    /// Whether a file contains what is to be forgotten, regardless of its fate.
    pub fn affects_file(&self, path: &str, bytes: &[u8]) -> bool {
        let fate = if is_view_of_many(path) || is_cascade_file(path) || is_exempt(path) {
            self.text_fate(path, bytes)
        } else {
            self.fate(path, bytes)
        };
        path != layout::FORGOTTEN && fate != FileFate::Same
    }

    /// icecore's entries are deleted if their period is forgotten or they contain forgotten words;
    /// they are rendered again. Everything else loses forgotten words only.
    fn cascade_fate(&self, path: &str, bytes: &[u8]) -> FileFate {
        let text = String::from_utf8_lossy(bytes);
        let is_touched = |entry: &str| self.text_fate(path, entry.as_bytes()) != FileFate::Same;
        let is_foreign = |entry: &PeriodBlock| {
            // If an interrupted run already erased the version, the period alone identifies it.
            [entry.one_line_text(), FORGOTTEN_MARK.into()]
                .into_iter()
                .any(|said| self.foreign_entries.contains(&(entry.period, said)))
        };
        let is_kept = |entry: &PeriodBlock| {
            is_foreign(entry)
                || !(self.periods.contains_key(&entry.period) || is_touched(&entry.render()))
        };
        let kept = states::retain_blocks(&text, is_kept);
        if kept == text {
            return self.text_fate(path, bytes);
        }
        let gone = text.lines().count().saturating_sub(kept.lines().count());
        match self.text_fate(path, kept.as_bytes()) {
            FileFate::Changed { bytes, lines } => FileFate::Changed { bytes, lines: lines + gone },
            _ if kept.is_empty() => FileFate::Gone,
            _ => FileFate::Changed { bytes: kept.into_bytes(), lines: gone },
        }
    }

    fn text_fate(&self, path: &str, bytes: &[u8]) -> FileFate {
        let text = String::from_utf8_lossy(bytes);
        if path.ends_with(".jsonl") || path.ends_with(".ndjson") {
            return map_lines(bytes, |line| {
                self.scrub_unknown_line(&String::from_utf8_lossy(line))
            });
        }
        if json::is_json(&text) {
            return match json::scrub_json(&text, &self.needles) {
                Some((text, lines)) => FileFate::Changed { bytes: text.into_bytes(), lines },
                None => FileFate::Same,
            };
        }
        let names = |line: &str| {
            !self.events.is_empty() && event_ids_in(line).any(|id| self.events.contains(&id))
        };
        if path.starts_with(layout::MEMORIES)
            && text
                .lines()
                .take_while(|line| !line.starts_with("# "))
                .any(|line| line.starts_with("event: ") && names(line))
        {
            return FileFate::Gone;
        }
        let spans = if self.needles.may_be_in(bytes) {
            self.needles.spans(&fold_text(&text))
        } else {
            Vec::new()
        };
        if spans.is_empty() && !text.lines().any(names) {
            return FileFate::Same;
        }
        let redacted = redact_lines(&text, &spans, |_, line| names(line));
        match redacted.lines {
            0 => FileFate::Same,
            lines => FileFate::Changed { bytes: redacted.text.into_bytes(), lines },
        }
    }

    /// Whether a file's name is derived from forgotten content. Only for generated names.
    pub fn has_forgotten_name(&self, path: &str) -> bool {
        let made = ["knowledge/", layout::MEMORIES, "memory/tool/"]
            .iter()
            .find_map(|folder| path.strip_prefix(folder));
        let Some(names) = made.or_else(|| path.split_once("/artifacts/").map(|(_, rest)| rest))
        else {
            return false;
        };
        names.split('/').any(|name| {
            self.needles.is_contained_in(name.rsplit_once('.').map_or(name, |(stem, _)| stem))
        })
    }

    /// Whether a file shows a summary in a forgotten version.
    fn is_stale_view(&self, path: &str, bytes: &[u8]) -> bool {
        let name = path
            .strip_prefix("primers/")
            .and_then(|rest| rest.rsplit('/').next()?.strip_suffix(".md"));
        let Some(upto) = name
            .and_then(|name| name.parse().ok())
            .and_then(|period: Period| self.periods.get(&period))
        else {
            return false;
        };
        let text = String::from_utf8_lossy(bytes);
        // A file that icecore did not write is its author's; only forgotten words are removed from
        // it.
        if matches!(classify_summary_file(&text), SummaryFileState::Foreign { .. }) {
            return false;
        }
        let version = text
            .lines()
            .take(40)
            .find_map(|line| line.strip_prefix("version: ")?.trim().parse::<u32>().ok());
        version.is_none_or(|version| version <= *upto)
    }

    fn scrub_unknown_line(&self, line: &str) -> LineFate {
        if let Some((scrubbed, _)) = json::scrub_json(line, &self.needles) {
            return LineFate::Becomes(scrubbed);
        }
        // An incomplete line may have been anything.
        if !json::is_json(line) && self.needles.is_contained_in(line) {
            LineFate::Becomes(FORGOTTEN_MARK.into())
        } else {
            LineFate::Same
        }
    }

    fn scrub_event_line(&self, line: &[u8], wanted: impl Fn(&Event) -> bool) -> LineFate {
        let parsed = line::parse_line(line);
        let goes = |event: &Event| {
            event.content != FORGOTTEN_MARK && (wanted(event) || self.affects_event(event))
        };
        if !parsed.events.iter().any(goes) {
            // A line without an event is foreign, or the head of a batch.
            return if parsed.events.is_empty() {
                self.scrub_unknown_line(&String::from_utf8_lossy(line))
            } else {
                LineFate::Same
            };
        }
        let told = |event: &Event| {
            line::format_line(&if goes(event) { self.erase_event(event) } else { event.clone() })
        };
        LineFate::Becomes(parsed.events.iter().map(told).collect::<String>().trim_end().to_owned())
    }

    /// Whether an event contains forgotten words or refers to forgotten content.
    pub fn affects_event(&self, event: &Event) -> bool {
        let names = [
            event.entity.as_deref(),
            event.session.as_deref(),
            event.waiting_on.as_deref(),
            scope_name(&event.scope),
            source_id(&event.source),
        ];
        let raws = || {
            event.extra.iter().any(|(name, raw)| {
                self.needles.is_contained_in(name) || self.needles.is_contained_in(raw)
            })
        };
        self.needles.is_contained_in(&event.content)
            || names
                .into_iter()
                .flatten()
                .chain(event.tags.iter().map(String::as_str))
                .any(|text| self.needles.is_contained_in(text))
            || raws()
    }

    /// The event without its text; its time, type and effects stay.
    fn erase_event(&self, event: &Event) -> Event {
        let draft = &event.draft;
        let fit = |text: &str| !self.needles.is_contained_in(text);
        let draft = EventDraft {
            content: FORGOTTEN_MARK.into(),
            entity: None,
            entity_kind: None,
            tags: Vec::new(),
            source: Some(draft.source.clone())
                .filter(|source| source_id(source).is_none_or(fit))
                .unwrap_or_else(|| "live".into()),
            session: draft.session.clone().filter(|session| fit(session)),
            scope: if scope_name(&draft.scope).is_none_or(fit) {
                draft.scope.clone()
            } else {
                Scope::Everywhere
            },
            due: None,
            waiting_on: None,
            extra: draft
                .extra
                .iter()
                .filter(|(name, _)| {
                    [SAID_AT_FIELD, COMPACTS_FIELD, TURN_FIELD].contains(&name.as_str())
                })
                .cloned()
                .collect(),
            ..draft.clone()
        };
        draft.with_id(event.id)
    }

    fn scrub_record_line(&self, line: &[u8]) -> LineFate {
        let Ok(record) = record::parse_line(line.trim_ascii()) else {
            return self.scrub_unknown_line(&String::from_utf8_lossy(line));
        };
        let known = self.records.contains(&record.key());
        if known && self.conversations.contains(&record.conversation) {
            return LineFate::Dropped;
        }
        let scrubbed =
            if known { self.erase_record(&record) } else { self.needles.scrub_record(&record) };
        match scrubbed {
            Some(scrubbed) if scrubbed != record => {
                LineFate::Becomes(scrubbed.to_line().trim_end().to_owned())
            }
            _ => LineFate::Same,
        }
    }

    fn erase_record(&self, record: &Record) -> Option<Record> {
        let plain = |raw: &str| !raw.starts_with(['"', '{', '[']);
        let named = self.needles.scrub_record(record).unwrap_or_else(|| record.clone());
        Some(Record {
            text: FORGOTTEN_MARK.into(),
            title: None,
            parts: None,
            extra: named.extra.iter().filter(|(_, raw)| plain(raw)).cloned().collect(),
            ..named
        })
    }

    fn scrub_summary_line(&self, line: &[u8]) -> LineFate {
        let Ok(summary) = Summary::parse_line(line) else {
            return self.scrub_unknown_line(&String::from_utf8_lossy(line));
        };
        let is_foreign = summary.maker == SummaryAuthor::File;
        let stale = !is_foreign
            && self.periods.get(&summary.period).is_some_and(|upto| summary.version <= *upto);
        let touched = stale || self.needles.is_contained_in(&String::from_utf8_lossy(line));
        if !touched || summary.headline == FORGOTTEN_MARK {
            return LineFate::Same;
        }
        let mut session = summary.session.clone();
        if let Some(key) = &mut session {
            key.session = key.session.as_deref().map(|name| self.needles.scrub_name(name));
        }
        if is_foreign {
            let fit = |text: &str| {
                self.needles.redact(text).map_or_else(|| text.to_owned(), |redacted| redacted.text)
            };
            let scrubbed = Summary {
                session,
                headline: fit(&summary.headline),
                body: fit(&summary.body),
                ..summary
            };
            return LineFate::Becomes(scrubbed.to_line().trim_end().to_owned());
        }
        let erased = Summary {
            session,
            headline: FORGOTTEN_MARK.into(),
            body: String::new(),
            // Its sources are gone, so it is due again.
            source: Hash::of(FORGOTTEN_MARK.as_bytes()),
            maker: SummaryAuthor::Extract,
            provisional: true,
            left_out: Vec::new(),
            similar: None,
            ..summary
        };
        LineFate::Becomes(erased.to_line().trim_end().to_owned())
    }

    fn scrub_review_line(&self, line: &[u8]) -> LineFate {
        let Ok(Value::Object(mut fields)) = serde_json::from_slice(line) else {
            return self.scrub_unknown_line(&String::from_utf8_lossy(line));
        };
        let period = fields
            .get("period")
            .and_then(Value::as_str)
            .and_then(|name| name.parse::<Period>().ok());
        let stale = period.is_some_and(|period| self.periods.contains_key(&period));
        let is_empty = |fields: &serde_json::Map<String, Value>, name: &str| {
            fields.get(name).and_then(Value::as_str).is_none_or(str::is_empty)
        };
        let erased = is_empty(&fields, "headline") && is_empty(&fields, "body");
        if erased || !(stale || self.needles.is_contained_in(&String::from_utf8_lossy(line))) {
            return LineFate::Same;
        }
        for (name, text) in [("headline", ""), ("body", ""), ("complaint", FORGOTTEN_MARK)] {
            fields.insert(name.into(), text.into());
        }
        if fields.get("state").and_then(Value::as_str) == Some("open") {
            fields.insert("state".into(), "retry".into());
        }
        LineFate::Becomes(Value::Object(fields).to_string())
    }

    fn scrub_turn_line(&self, line: &[u8], turns: Option<&BTreeSet<u64>>) -> LineFate {
        let Ok(Value::Object(mut fields)) = serde_json::from_slice(line) else {
            return self.scrub_unknown_line(&String::from_utf8_lossy(line));
        };
        let turn = fields.get("turn").and_then(Value::as_u64);
        let stale = turn.is_some_and(|turn| turns.is_some_and(|turns| turns.contains(&turn)));
        let erased = fields.get("user_summary").and_then(Value::as_str) == Some(FORGOTTEN_MARK);
        if erased || !(stale || self.needles.is_contained_in(&String::from_utf8_lossy(line))) {
            return LineFate::Same;
        }
        fields.retain(|name, value| {
            name == "ts"
                || name == "depth"
                || !matches!(value, Value::String(_) | Value::Array(_) | Value::Object(_))
        });
        // To be summarized again, from what is left.
        for (name, value) in [
            ("user_summary", FORGOTTEN_MARK),
            ("assistant_summary", FORGOTTEN_MARK),
            ("state", "raw"),
            ("why", "forgotten"),
        ] {
            fields.insert(name.into(), json!(value));
        }
        LineFate::Becomes(Value::Object(fields).to_string())
    }
}

impl Needles {
    /// A record without the forgotten words; `None` if it does not contain them.
    pub fn scrub_record(&self, record: &Record) -> Option<Record> {
        let raw = |raw: &String| {
            json::scrub_json(&format!("[{raw}]"), self)
                .and_then(|(text, _)| Some(text.strip_prefix('[')?.strip_suffix(']')?.to_owned()))
        };
        let scrubbed = Record {
            text: self
                .redact(&record.text)
                .map_or_else(|| record.text.clone(), |redacted| redacted.text),
            title: record.title.clone().filter(|title| !self.is_contained_in(title)),
            name: record.name.clone().filter(|name| !self.is_contained_in(name)),
            // That another person speaks stays known.
            other_speaker: record.other_speaker.as_deref().map(|name| self.scrub_name(name)),
            session: record.session.as_deref().map(|name| self.scrub_name(name)),
            id: self.scrub_name(&record.id),
            parts: record.parts.as_ref().map(|parts| raw(parts).unwrap_or_else(|| parts.clone())),
            extra: (record.extra.iter())
                .filter(|(name, _)| !self.is_contained_in(name))
                .map(|(name, value)| (name.clone(), raw(value).unwrap_or_else(|| value.clone())))
                .collect(),
            ..record.clone()
        };
        (scrubbed != *record).then_some(scrubbed)
    }

    /// A name used as an identifier; if it contains forgotten words, it is replaced by a hash of
    /// it, so that references stay valid.
    pub fn scrub_name(&self, name: &str) -> String {
        if self.is_contained_in(name) {
            format!("h{}", &Hash::of(name.as_bytes()).to_string()[..16])
        } else {
            name.to_owned()
        }
    }
}

/// Whether a text consists only of forgotten marks.
pub fn is_forgotten(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    lines.peek().is_some() && lines.all(|line| line == FORGOTTEN_MARK)
}

/// A text without the forgotten marks.
pub fn strip_marks(text: &str) -> String {
    let kept: Vec<&str> = text.lines().filter(|line| line.trim() != FORGOTTEN_MARK).collect();
    kept.join("\n")
}

/// Files that are never scrubbed: settings, which a person must change, and the tombstones.
fn is_exempt(path: &str) -> bool {
    matches!(path, layout::CONFIG | layout::FORGOTTEN | ".gitignore" | ".gitattributes")
        || path.starts_with("prompts/")
}

/// Whether a file is a setting that may contain words, and is left to a person.
pub fn is_setting(path: &str) -> bool {
    path == layout::CONFIG || path.starts_with("prompts/")
}

/// Views of many sources; they are rendered again from what is left.
pub fn is_view_of_many(path: &str) -> bool {
    path == layout::RECALL || path.starts_with("primers/upload/")
}

/// Files with an entry for each day or month, to which other programs add entries too.
pub fn is_cascade_file(path: &str) -> bool {
    let year = |name: &str| {
        name.len() == 7
            && name.ends_with(".md")
            && name.bytes().take(4).all(|byte| byte.is_ascii_digit())
    };
    path == layout::LAST_MONTH || path.strip_prefix("memory/summaries/").is_some_and(year)
}

/// `conversations/NAME`, for a file below it.
pub fn conversation_folder(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("conversations/")?;
    let end = rest.find('/')?;
    Some(&path[.."conversations/".len() + end])
}

fn scope_name(scope: &Scope) -> Option<&str> {
    match scope {
        // The title of a conversation identifies it, like its folder.
        Scope::Everywhere | Scope::Conversation(_) => None,
        Scope::Project(name) => Some(name),
    }
}

/// The part of a source that is an identifier: all of it, or the id after the path.
fn source_id(source: &str) -> Option<&str> {
    match source.split_once('#') {
        Some((_, id)) => Some(id),
        None if source.starts_with("memory/") && !source.starts_with(layout::MEMORIES) => None,
        None => Some(source),
    }
}

/// The event ids in a text.
pub fn event_ids_in(text: &str) -> impl Iterator<Item = EventId> + '_ {
    text.match_indices("EVT-").filter_map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
        rest[..end].trim_end_matches('-').parse().ok()
    })
}

fn map_lines(bytes: &[u8], fate: impl Fn(&[u8]) -> LineFate) -> FileFate {
    let (mut out, mut lines) = (Vec::with_capacity(bytes.len()), 0);
    for whole in bytes.split_inclusive(|byte| *byte == b'\n') {
        let line = whole.strip_suffix(b"\n").unwrap_or(whole);
        match if line.trim_ascii().is_empty() { LineFate::Same } else { fate(line) } {
            LineFate::Same => out.extend_from_slice(whole),
            LineFate::Becomes(text) => {
                lines += 1;
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(&whole[line.len()..]);
            }
            LineFate::Dropped => lines += 1,
        }
    }
    match lines {
        0 => FileFate::Same,
        _ if out.is_empty() => FileFate::Gone,
        lines => FileFate::Changed { bytes: out, lines },
    }
}

#[cfg(test)]
mod tests;
