//! The passage: the unit that search finds. A message, a saved state, an event, a summary, or a
//! section of a page, log or artifact.
//!
//! Passages depend only on the bytes of the memory files. A passage can be read again from the
//! bytes it came from, and the search index can always be rebuilt.

use std::ops::Range;

use jiff::civil::Date;

use super::question;
use crate::calendar::Moment;
use crate::event::Origin;
use crate::format::line;
use crate::hash::Hash;
use crate::layout::{self, DocPath};
use crate::record::{self, RecordKind, Role, Trust};
use crate::string_enum::string_enum;
use crate::summary::Summary;

string_enum! {
    /// The kind of a passage.
    PassageKind: "a kind of passage" {
        Message = "message",
        /// A state that an assistant saved.
        State = "state",
        /// A statement of the ledger.
        Event = "event",
        /// The summary of a period.
        Summary = "summary",
        /// A section of a knowledge page.
        Page = "page",
        /// A memory file.
        Memory = "memory",
        /// A section of a daily log.
        Log = "log",
        /// A section of a document or artifact of a conversation.
        Artifact = "artifact",
    }
}

/// A section of prose is split when it exceeds this size.
const MAX_SECTION_BYTES: usize = 1_500;
/// Text beyond this size is not indexed: it is not written by hand.
const MAX_TEXT_BYTES: usize = 256 * 1024;

/// The unit of search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    pub kind: PassageKind,
    /// A message's or event's id, a period, or a path.
    pub id: String,
    /// When it was said or written, if known.
    pub ts: Option<Moment>,
    /// The day it is about.
    pub day: Option<Date>,
    pub conversation: Option<String>,
    /// The session within the conversation.
    pub session: Option<String>,
    /// The speaker's role, in a message.
    pub role: Option<Role>,
    /// The speaker's name, or the entity of an event.
    pub name: Option<String>,
    /// Where the words come from, if the line records it.
    pub origin: Option<Origin>,
    pub text: String,
}

/// A passage and its location in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedPassage {
    /// The bytes of the file it was read from.
    pub bytes: Range<usize>,
    /// Its index among the passages of those bytes.
    pub nth: u8,
    pub passage: Passage,
}

impl Passage {
    /// A number that identifies the passage. A later passage with the same key replaces it.
    pub fn key(&self) -> u64 {
        let conversation = self.conversation.as_deref().unwrap_or_default();
        let hash = Hash::of([self.kind.word(), conversation, &self.id].join("\0").as_bytes());
        hash.as_bytes().iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// The key of its session, page or log; `None` for a passage without context.
    pub fn group(&self) -> Option<String> {
        match self.kind {
            PassageKind::Message | PassageKind::State => {
                let conversation = self.conversation.as_deref().unwrap_or_default();
                let day = self.day.map(|day| day.to_string()).unwrap_or_default();
                Some(format!("{conversation}\0{}", self.session.as_deref().unwrap_or(&day)))
            }
            PassageKind::Page | PassageKind::Log | PassageKind::Artifact => {
                Some(self.id.split('#').next().unwrap_or_default().to_owned())
            }
            PassageKind::Event | PassageKind::Summary | PassageKind::Memory => None,
        }
    }

    /// The name of the person who speaks; `None` if there is none or it is not a person's.
    pub fn voice(&self) -> Option<&str> {
        self.name.as_deref().filter(|name| self.role.is_some() && question::is_person_name(name))
    }

    /// Whether the words come only from a tool, a stranger or another person: such passages are
    /// quoted, not believed. For an event the ledger knows more: it may have been confirmed.
    pub fn is_of_low_trust(&self) -> bool {
        self.role == Some(Role::Tool)
            || self.origin.is_some_and(|origin| Trust::from_origin(origin) == Trust::Low)
    }

    /// A hash of the text, to detect changes.
    pub fn text_hash(&self) -> i64 {
        Hash::of(self.text.as_bytes())
            .as_bytes()
            .iter()
            .take(8)
            .fold(0, |number, &byte| number << 8 | i64::from(byte))
    }
}

/// Whether a file of that name contains passages.
pub fn has_passages(path: &DocPath) -> bool {
    source_form(path).is_some()
}

/// How a file is split into passages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceForm {
    Records,
    Events,
    Summaries,
    Prose(PassageKind),
}

fn source_form(path: &DocPath) -> Option<SourceForm> {
    let text = path.as_str();
    let is_text = |text: &str| [".md", ".txt"].iter().any(|ending| text.ends_with(ending));
    if path.record_day().is_some() {
        Some(SourceForm::Records)
    } else if text == layout::LEDGER || path.is_archive() {
        Some(SourceForm::Events)
    } else if text == layout::SUMMARIES {
        Some(SourceForm::Summaries)
    } else if path.log_day().is_some() {
        Some(SourceForm::Prose(PassageKind::Log))
    } else if text.starts_with(layout::MEMORIES) && is_text(text) || path.is_tool_file() {
        Some(SourceForm::Prose(PassageKind::Memory))
    } else if text.starts_with("knowledge/") && !text.starts_with(layout::REPORTS) && is_text(text)
    {
        Some(SourceForm::Prose(PassageKind::Page))
    } else if text.starts_with("conversations/")
        && (text.contains("/artifacts/") || text.contains("/documents/"))
    {
        Some(SourceForm::Prose(PassageKind::Artifact))
    } else {
        None
    }
}

/// Whether appending lines to the file leaves its existing passages unchanged.
pub fn is_append_only(path: &DocPath) -> bool {
    matches!(
        source_form(path),
        Some(SourceForm::Records | SourceForm::Events | SourceForm::Summaries)
    )
}

/// The passages of a file, or of whole lines of an append-only file, in order.
pub fn split_into_passages(path: &DocPath, text: &[u8]) -> Vec<LocatedPassage> {
    match source_form(path) {
        None => Vec::new(),
        Some(SourceForm::Prose(kind)) => split_prose(path, kind, text),
        Some(form) => {
            let mut found = Vec::new();
            let mut at = 0;
            for line in text.split_inclusive(|&byte| byte == b'\n') {
                let bytes = at..at + line.trim_ascii_end().len();
                at += line.len();
                let passages = line_passages(form, line.trim_ascii());
                found.extend(
                    passages.into_iter().zip(0..=u8::MAX).map(|(passage, nth)| LocatedPassage {
                        bytes: bytes.clone(),
                        nth,
                        passage,
                    }),
                );
            }
            found
        }
    }
}

/// The passage at these bytes of a file.
pub fn read_passage(path: &DocPath, bytes: &[u8], nth: u8) -> Option<Passage> {
    match source_form(path)? {
        SourceForm::Prose(kind) => {
            Some(prose_passage(path, kind, &String::from_utf8_lossy(bytes), nth))
        }
        form => line_passages(form, bytes.trim_ascii()).into_iter().nth(usize::from(nth)),
    }
}

fn line_passages(form: SourceForm, line: &[u8]) -> Vec<Passage> {
    match form {
        SourceForm::Records => record::parse_file(line).0.into_iter().map(record_passage).collect(),
        SourceForm::Events => line::parse_line(line)
            .events
            .into_iter()
            .filter(|event| event.is_statement())
            .map(|event| event_passage(&event))
            .collect(),
        SourceForm::Summaries => {
            Summary::parse_line(line).map(|summary| summary_passage(&summary)).into_iter().collect()
        }
        SourceForm::Prose(_) => Vec::new(),
    }
}

fn record_passage(record: record::Record) -> Passage {
    let kind = match record.kind {
        RecordKind::Message => PassageKind::Message,
        RecordKind::State => PassageKind::State,
    };
    let text = match record.title {
        Some(title) if kind == PassageKind::State => format!("{title}\n{}", record.text),
        _ => record.text,
    };
    Passage {
        kind,
        id: record.id,
        day: Some(record.ts.day()),
        ts: Some(record.ts),
        conversation: Some(record.conversation),
        session: record.session,
        role: Some(record.role),
        name: record.name,
        origin: Some(record.origin),
        text,
    }
}

fn event_passage(event: &crate::event::Event) -> Passage {
    Passage {
        kind: PassageKind::Event,
        id: event.id.to_string(),
        ts: Some(event.ts),
        day: Some(event.ts.day()),
        conversation: None,
        session: event.session.clone(),
        role: None,
        name: event.entity.clone(),
        origin: Some(event.origin),
        text: event.content.clone(),
    }
}

fn summary_passage(summary: &Summary) -> Passage {
    let session = summary.session.as_ref();
    Passage {
        kind: PassageKind::Summary,
        id: summary.period.to_string(),
        ts: Some(summary.end),
        day: Some(summary.period.days().first),
        conversation: session.map(|key| key.conversation.clone()),
        session: session.and_then(|key| key.session.clone()),
        role: None,
        name: None,
        origin: None,
        text: format!("{}\n{}", summary.headline, summary.body),
    }
}

/// Splits prose at headings, and long sections at paragraphs and bullets.
fn split_prose(path: &DocPath, kind: PassageKind, text: &[u8]) -> Vec<LocatedPassage> {
    let text = &text[..text.len().min(MAX_TEXT_BYTES)];
    if text.contains(&0) {
        // Binary content.
        return Vec::new();
    }
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let (mut from, mut at) = (0, 0);
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let is_heading = line.starts_with(b"#") && kind != PassageKind::Memory;
        let is_block = line.trim_ascii().is_empty()
            || line.trim_ascii_start().starts_with(b"- ")
            || line.starts_with(b"* ");
        if at > from
            && (is_heading
                || is_block && at - from + line.len() > MAX_SECTION_BYTES
                || at - from > 4 * MAX_SECTION_BYTES)
        {
            ranges.push(from..at);
            from = at;
        }
        at += line.len();
    }
    ranges.push(from..at);
    let says_something = |range: &Range<usize>| {
        text[range.clone()]
            .split(|&byte| byte == b'\n')
            .any(|line| !line.starts_with(b"#") && line.iter().any(u8::is_ascii_graphic))
            || !text[range.clone()].is_ascii()
    };
    let ranges = ranges.into_iter().filter(says_something).zip(0..=u8::MAX);
    ranges
        .map(|(range, nth)| {
            let passage =
                prose_passage(path, kind, &String::from_utf8_lossy(&text[range.clone()]), nth);
            LocatedPassage { bytes: range, nth, passage }
        })
        .collect()
}

fn prose_passage(path: &DocPath, kind: PassageKind, text: &str, nth: u8) -> Passage {
    let day = path.log_day().or_else(|| latest_date(text));
    let id = if nth == 0 { path.to_string() } else { format!("{path}#{}", nth + 1) };
    Passage {
        kind,
        id,
        ts: None,
        day,
        conversation: None,
        session: None,
        role: None,
        name: None,
        origin: None,
        text: text.trim().to_owned(),
    }
}

/// The latest ISO date in a text.
fn latest_date(text: &str) -> Option<Date> {
    let bytes = text.as_bytes();
    let dates =
        bytes.windows(10).enumerate().filter(|(_, window)| window[4] == b'-' && window[7] == b'-');
    dates.filter_map(|(at, _)| text.get(at..at + 10)?.parse().ok()).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> DocPath {
        text.parse().unwrap()
    }

    // Y9
    #[test]
    fn prose_is_cut_at_headings_and_every_piece_can_be_cut_again() {
        let page = path("knowledge/entities/harbour.md");
        let long =
            "- a line about the harbour office and its opening hours [verified: 2026-02-03]\n"
                .repeat(60);
        let text = format!(
            "# Harbour\n\n*Type*: place\n\n## Facts\n\n{long}\n## Empty\n\n## Notes\n\nWeißer Kai [verified: 2026-02-04]\n"
        );
        let pieces = split_into_passages(&page, text.as_bytes());
        assert!(pieces.len() > 4, "{}", pieces.len());
        assert_eq!(pieces[0].passage.id, "knowledge/entities/harbour.md");
        assert!(pieces.iter().all(|piece| piece.bytes.len() <= MAX_SECTION_BYTES + 100));
        assert!(pieces.iter().all(|piece| !piece.passage.text.starts_with("## Empty")));
        let last = &pieces.last().unwrap().passage;
        assert_eq!(
            (last.day, last.text.as_str()),
            (Some(jiff::civil::date(2026, 2, 4)), "## Notes\n\nWeißer Kai [verified: 2026-02-04]")
        );
        for piece in &pieces {
            assert_eq!(
                read_passage(&page, &text.as_bytes()[piece.bytes.clone()], piece.nth).as_ref(),
                Some(&piece.passage)
            );
        }
    }

    // Y9
    #[test]
    fn lines_are_passages_and_what_is_none_is_passed_over() {
        let file = path("memory/messages/2026-02-13.jsonl");
        let good = r#"{"ts":"2026-02-13T10:00:00+00:00","conversation":"c","session":"s","id":"m1","role":"user","text":"the key is under the mat"}"#;
        let text = format!("{good}\nnot a line\n{}\n", good.replace("m1", "m2"));
        let pieces = split_into_passages(&file, text.as_bytes());
        let ids: Vec<&str> = pieces.iter().map(|piece| piece.passage.id.as_str()).collect();
        assert_eq!(ids, ["m1", "m2"]);
        assert_ne!(pieces[0].passage.key(), pieces[1].passage.key());
        assert_eq!(pieces[0].passage.group(), Some("c\0s".into()));
        for piece in &pieces {
            assert_eq!(
                read_passage(&file, &text.as_bytes()[piece.bytes.clone()], piece.nth).as_ref(),
                Some(&piece.passage)
            );
        }
    }

    #[test]
    fn only_files_of_memory_are_searched() {
        for (name, is) in [
            ("memory/ledger.jsonl", true),
            ("memory/ledger-archive-2026.jsonl", true),
            ("memory/2026-02-13.md", true),
            ("memory/messages/2026-02-13.jsonl", true),
            ("memory/summaries.jsonl", true),
            ("knowledge/entities/harbour.md", true),
            ("knowledge/consolidation-reports/2026-02-13.md", false),
            ("memory/memories/20260203-0930-key.md", true),
            ("memory/tool/plans/port.xml", true),
            ("memory/tool-versions/2026-02.jsonl", false),
            ("recall/pack.md", false),
            ("primers/daily/2026-02-13.md", false),
            ("icecore.toml", false),
        ] {
            assert_eq!(has_passages(&path(name)), is, "{name}");
        }
    }

    proptest::proptest! {
        // Y9
        #[test]
        fn any_bytes_are_cut_without_a_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
            for name in ["memory/messages/2026-02-13.jsonl", "memory/2026-02-13.md", "memory/ledger.jsonl", "memory/summaries.jsonl"] {
                for piece in split_into_passages(&path(name), &bytes) {
                    proptest::prop_assert!(piece.bytes.end <= bytes.len());
                }
            }
        }
    }
}
