//! Memory files: one Markdown file per extracted event, `memory/memories/20260203-0930-slug.md`
//! (K4, K8).
//!
//! A memory file is a view of its event, and other programs write such files too. The parser
//! therefore accepts any file and preserves foreign front matter line by line. A changed body is
//! the person's correction.

use std::fmt::Write as _;

use icecore_text::markdown;
use serde::de::DeserializeOwned;

use crate::calendar::Moment;
use crate::event::{Event, EventType, Priority, QUOTE_FIELD, SAID_AT_FIELD};
use crate::id::EventId;
use crate::ledger::LedgerEntry;
use crate::page;
use crate::sanitize;

/// The directory of all memory files.
pub const MEMORIES_DIR: &str = "memory/memories";
/// Maximum length of the slug in a file name, in bytes.
const MAX_SLUG_BYTES: usize = 40;
/// Maximum number of suffixes tried to make a file name unique.
const MAX_TRIES: u32 = 9_999;
/// Maximum length of a name in a reference, in bytes.
const MAX_REFERENCE_BYTES: usize = 100;
/// Our own front matter keys.
const FRONT_MATTER_KEYS: &[&str] =
    &["event", "date", "type", "priority", "entity", "tags", "source", "status", "superseded_by"];
/// Prefix of one of our keys whose value another program wrote and we cannot use.
const ORIGIN_PREFIX: &str = "origin_";

/// The front matter of a memory file, as far as it could be parsed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoFields {
    /// Types of other programs are mapped to ours.
    pub kind: Option<EventType>,
    pub priority: Option<Priority>,
    /// The thing it is about.
    pub entity: Option<String>,
    pub tags: Vec<String>,
    pub source: Option<String>,
    /// When it was recorded.
    pub date: Option<Moment>,
}

/// A parsed memory file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedMemo {
    /// The event it is a view of.
    pub event: Option<EventId>,
    pub content: String,
    /// The words it was extracted from.
    pub quote: String,
    /// The fields we know.
    pub fields: MemoFields,
    /// Front matter lines of other programs, unchanged.
    pub foreign: Vec<String>,
    /// What could not be parsed, and why.
    pub complaints: Vec<String>,
}

/// An edit of a memory file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoEdit {
    None,
    /// A new file, or a changed one whose event is no longer active; `memo.event` then names the
    /// event.
    New {
        memo: Box<ParsedMemo>,
    },
    /// A new body.
    Changed {
        /// The event it replaces.
        supersedes: EventId,
        content: String,
    },
}

/// The event's status, as written to its file.
fn status_word(entry: &LedgerEntry) -> &'static str {
    if entry.state.is_active() && entry.is_quarantined() {
        "unconfirmed"
    } else {
        entry.state.word()
    }
}

/// The name of an event's memory file without `.md`: its local date and time, and its first words.
pub fn file_name(event: &Event, taken: impl Fn(&str) -> bool) -> String {
    // When the words were said, so that the file is listed next to the log of that time.
    let said = event
        .extra_field::<String>(SAID_AT_FIELD)
        .and_then(|text| Moment::parse(&text))
        .map_or(event.ts, |read| read.moment);
    let day = said.day();
    let slug = page::slug(&page::derive_title(&event.content));
    let slug = page::truncate_at_word(&slug, MAX_SLUG_BYTES);
    let clock = said.clock_time().replace(':', "");
    let first = format!("{:04}{:02}{:02}-{clock}-{slug}", day.year(), day.month(), day.day());
    if !taken(&first) {
        return first;
    }
    let free = (2..=MAX_TRIES).map(|number| format!("{first}-{number}")).find(|name| !taken(name));
    free.unwrap_or_else(|| format!("{first}-{}", event.id.to_string().to_lowercase()))
}

/// Formats a reference to a memory file.
pub fn format_reference(name: &str) -> String {
    format!("[mem:{name}]")
}

/// The names of all memory files that a text refers to, in order and without duplicates.
pub fn find_references(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for (at, open) in text.match_indices("[mem:") {
        let rest = &text[at + open.len()..];
        let rest = &rest[..rest.floor_char_boundary(MAX_REFERENCE_BYTES + 1)];
        let Some((name, _)) = rest.split_once(']') else { continue };
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if plain && !name.is_empty() && seen.insert(name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Whether an event has a memory file: it was extracted from captured text or read from such a
/// file. Commitments have none; they are listed elsewhere.
pub fn has_file(event: &Event) -> bool {
    let read = event.source.strip_prefix(MEMORIES_DIR).is_some_and(|rest| rest.starts_with('/'));
    event.is_statement()
        && event.kind != EventType::Commitment
        && (read || quote_of(event).is_some())
}

fn quote_of(event: &Event) -> Option<String> {
    event
        .extra_field::<String>(QUOTE_FIELD)
        .map(|quote| sanitize::clean(&quote).text)
        .filter(|quote| !quote.is_empty())
}

/// Renders the memory file of an event. `foreign` are front matter lines of other programs.
pub fn render(entry: &LedgerEntry, foreign: &[String]) -> String {
    let event = &entry.event;
    let mut text = format!(
        "---\nevent: {}\ndate: {}\ntype: {}\npriority: {}\n",
        event.id, event.ts, event.kind, event.priority
    );
    if let Some(entity) = &event.entity {
        let _ = writeln!(text, "entity: {}", format_scalar(entity));
    }
    if !event.tags.is_empty() {
        let tags: Vec<String> = event.tags.iter().map(|tag| format_scalar(tag)).collect();
        let _ = writeln!(text, "tags: [{}]", tags.join(", "));
    }
    let _ =
        writeln!(text, "source: {}\nstatus: {}", format_scalar(&event.source), status_word(entry));
    if let Some(by) = entry.state.ended_by() {
        let _ = writeln!(text, "superseded_by: {by}");
    }
    for line in foreign.iter().flat_map(|line| line.split('\n')) {
        // A line that would end the front matter can only come from another program.
        let _ = if markdown::is_front_matter_end(line) {
            writeln!(text, " {line}")
        } else {
            writeln!(text, "{line}")
        };
    }
    let content = sanitize::clean(&event.content).text;
    let _ = writeln!(text, "---\n{content}");
    match quote_of(event) {
        Some(quote) => {
            text.push('\n');
            for line in quote.lines() {
                text.push_str(format!("> {line}").trim_end());
                text.push('\n');
            }
        }
        // An empty quote separates content whose own last lines would be parsed as one.
        None if content.lines().next_back().is_some_and(|line| line.starts_with('>')) => {
            text.push_str("\n>\n")
        }
        None => {}
    }
    text
}

/// A front matter value: bare if it is unambiguous, otherwise quoted.
fn format_scalar(value: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./ @+()#".contains(c);
    let safe = value.starts_with(|c: char| c.is_alphanumeric() || c == '_')
        && value.chars().all(plain)
        && !value.contains(" #")
        && !value.ends_with(' ')
        && !matches!(
            value.to_ascii_lowercase().as_str(),
            "true" | "false" | "null" | "yes" | "no" | "on" | "off"
        );
    if safe { value.to_owned() } else { serde_json::to_string(value).unwrap_or_default() }
}

/// Parses a front matter value, quoted or not.
fn parse_scalar(text: &str) -> String {
    let text = text.trim();
    if let Some(inner) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        return inner.replace("''", "'");
    }
    parse_json(text).filter(|_| text.starts_with('"')).unwrap_or_else(|| text.to_owned())
}

fn parse_json<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// Parses a list like `[a, "b, c"]`, or a bare `a, b`.
fn parse_list(text: &str) -> Vec<String> {
    let text = text.trim();
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let mut values: Vec<String> = Vec::new();
    let (mut value, mut quoted, mut escaped) = (String::new(), None, false);
    for c in inner.chars() {
        if c == ',' && quoted.is_none() {
            values.push(std::mem::take(&mut value));
            continue;
        }
        match quoted {
            Some(mark) if c == mark && !escaped => quoted = None,
            None if matches!(c, '"' | '\'') && value.trim().is_empty() => quoted = Some(c),
            _ => {}
        }
        escaped = c == '\\' && !escaped && quoted == Some('"');
        value.push(c);
    }
    values.push(value);
    values.iter().map(|value| parse_scalar(value)).filter(|value| !value.is_empty()).collect()
}

/// A front matter key with the lines that belong to it.
struct FrontMatterBlock<'a> {
    key: &'a str,
    value: &'a str,
    lines: Vec<&'a str>,
}

/// Splits front matter by its top-level keys. Lines without a key belong to the key above.
fn split_blocks<'a>(lines: &[&'a str]) -> Vec<FrontMatterBlock<'a>> {
    let mut blocks: Vec<FrontMatterBlock<'a>> = Vec::new();
    for &line in lines {
        let own = line.split_once(':').filter(|(key, value)| {
            let name = !key.is_empty()
                && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
            name && !key.starts_with('-') && (value.is_empty() || value.starts_with([' ', '\t']))
        });
        let inside = line.starts_with([' ', '\t', '-']) || line.trim().is_empty();
        match (own, blocks.last_mut()) {
            (Some((key, value)), _) => {
                blocks.push(FrontMatterBlock { key, value: value.trim(), lines: vec![line] })
            }
            (None, Some(last)) if inside => last.lines.push(line),
            (None, _) => blocks.push(FrontMatterBlock { key: "", value: "", lines: vec![line] }),
        }
    }
    blocks
}

/// The front matter lines and the text below, if the file begins with front matter.
fn split_front_matter(text: &str) -> Option<(Vec<&str>, &str)> {
    let front = markdown::front_matter(text)?;
    // A text that begins with a horizontal rule and has another one further down is not front
    // matter.
    let is_aside = |block: &&FrontMatterBlock<'_>| {
        block.lines.iter().all(|line| line.starts_with('#') || line.trim().is_empty())
    };
    let keyed = split_blocks(&front.lines)
        .iter()
        .find(|block| !is_aside(block))
        .is_none_or(|block| !block.key.is_empty());
    keyed.then_some((front.lines, front.body))
}

/// Parses a memory file from any program. Nothing is rejected: without front matter, the whole file
/// is content.
pub fn parse(text: &str) -> ParsedMemo {
    let text = text.trim_start_matches('\u{feff}');
    let (front, body) = split_front_matter(text).unwrap_or((Vec::new(), text));
    let mut memo = ParsedMemo::default();
    (memo.content, memo.quote) = split_quote(body);
    let blocks = split_blocks(&front);
    memo.event = blocks
        .iter()
        .find(|block| block.key == "event")
        .and_then(|block| parse_scalar(block.value).parse().ok());
    let mut seen: Vec<&str> = Vec::new();
    for block in &blocks {
        let first = FRONT_MATTER_KEYS.contains(&block.key) && !seen.contains(&block.key);
        if first {
            seen.push(block.key);
        }
        if !first {
            // A duplicate of one of our keys would make ours unreadable for other programs.
            let known = FRONT_MATTER_KEYS.contains(&block.key);
            memo.foreign.extend(block_lines(block, known));
        } else if let Some(why) = memo.read_key(block) {
            memo.complaints.extend(why);
            memo.foreign.extend(block_lines(block, true));
        }
    }
    memo
}

/// The lines of a block, with a prefixed key if `rename` is set.
fn block_lines(block: &FrontMatterBlock<'_>, rename: bool) -> Vec<String> {
    let mut lines: Vec<String> = block.lines.iter().map(|line| (*line).to_owned()).collect();
    if let Some(first) = lines.first_mut().filter(|_| rename) {
        first.insert_str(0, ORIGIN_PREFIX);
    }
    lines
}

impl ParsedMemo {
    /// Reads the value of one of our keys. Returns `Some` if the lines must be preserved as
    /// foreign, with a complaint if there is one.
    fn read_key(&mut self, block: &FrontMatterBlock<'_>) -> Option<Option<String>> {
        let below: Vec<&str> =
            block.lines.iter().skip(1).copied().filter(|line| !line.trim().is_empty()).collect();
        if block.key == "tags" {
            let items: Vec<String> = below
                .iter()
                .filter_map(|line| line.trim().strip_prefix("- "))
                .map(parse_scalar)
                .collect();
            let whole = items.len() == below.len() && (block.value.is_empty() || below.is_empty());
            self.fields.tags = if below.is_empty() { parse_list(block.value) } else { items };
            return (!whole).then(|| Some("only some of its tags could be parsed".into()));
        }
        if !below.is_empty() {
            return Some(Some(format!("`{}` has several lines; ignored", block.key)));
        }
        let value = parse_scalar(block.value);
        if value.is_empty() {
            return None;
        }
        let not = |what: &str| {
            Some(Some(format!(
                "`{}` is not {what}",
                sanitize::one_line(&value).chars().take(80).collect::<String>()
            )))
        };
        match block.key {
            "event" if self.event.is_none() => return not("an event id"),
            "date" => match Moment::parse(&value) {
                Some(read) => self.fields.date = Some(read.moment),
                None => return not("a date"),
            },
            "type" => {
                let told = match value.as_str() {
                    "user" | "project" | "reference" => Some(EventType::Fact),
                    "feedback" => Some(EventType::Preference),
                    _ => None,
                };
                self.fields.kind = value.parse().ok().or(told);
                return match (told, self.fields.kind) {
                    // Another program's type: mapped to ours, and preserved.
                    (Some(_), _) => Some(None),
                    (None, None) => not("an event type"),
                    (None, Some(_)) => None,
                };
            }
            "priority" => match value.parse() {
                Ok(priority) => self.fields.priority = Some(priority),
                Err(_) => return not("a priority"),
            },
            "entity" => self.fields.entity = Some(value),
            "source" => self.fields.source = Some(value),
            // Ours only in a view of one of our events; there the ledger determines it.
            "status" | "superseded_by" if self.event.is_none() => return Some(None),
            _ => {}
        }
        None
    }
}

/// Splits the body into the content and the quote at its end.
fn split_quote(body: &str) -> (String, String) {
    let body = sanitize::clean(body).text;
    let lines: Vec<&str> = body.lines().collect();
    let quoted = lines.iter().rev().take_while(|line| line.starts_with('>')).count();
    let start = lines.len() - quoted;
    let apart = start > 0 && lines.get(start - 1).is_some_and(|line| line.trim().is_empty());
    if quoted == 0 || !apart {
        return (body, String::new());
    }
    let strip = |line: &&str| {
        line.strip_prefix("> ").or_else(|| line.strip_prefix('>')).unwrap_or(line).to_owned()
    };
    let quote =
        lines.get(start..).unwrap_or_default().iter().map(strip).collect::<Vec<_>>().join("\n");
    let content = lines.get(..start).unwrap_or_default().join("\n");
    (content.trim().to_owned(), quote.trim().to_owned())
}

/// Detects a person's edit of a memory file. `entry` is the event it names, if that is known.
pub fn detect_edit(file: &str, entry: Option<&LedgerEntry>) -> (MemoEdit, Vec<String>) {
    let memo = parse(file);
    let mut complaints = memo.complaints.clone();
    if file.contains('\u{fffd}')
        && !entry.is_some_and(|entry| entry.event.content.contains('\u{fffd}'))
    {
        complaints.push("is not valid UTF-8; no edits were read".into());
        return (MemoEdit::None, complaints);
    }
    let known = entry.filter(|entry| memo.event == Some(entry.event.id));
    if let Some(id) = memo.event.filter(|_| known.is_none()) {
        complaints.push(format!("names {id}, which is not in this ledger"));
    }
    let is_quote_alone = |entry: &LedgerEntry| {
        let quote = quote_of(&entry.event).unwrap_or_default();
        let body = memo.content.lines().map(|line| line.strip_prefix('>').unwrap_or(line));
        memo.quote.is_empty()
            && !quote.is_empty()
            && body.flat_map(str::split_whitespace).eq(quote.split_whitespace())
    };
    if memo.content.is_empty() || known.is_some_and(is_quote_alone) {
        complaints.push("is empty; its previous content stays".into());
        return (MemoEdit::None, complaints);
    }
    if memo.content.len() > crate::event::MAX_CONTENT_BYTES {
        complaints.push(format!(
            "has {} bytes, an event at most {}",
            memo.content.len(),
            crate::event::MAX_CONTENT_BYTES
        ));
        return (MemoEdit::None, complaints);
    }
    let Some(entry) = known else { return (MemoEdit::New { memo: Box::new(memo) }, complaints) };
    let same = memo
        .content
        .split_whitespace()
        .eq(sanitize::clean(&entry.event.content).text.split_whitespace());
    if same {
        (MemoEdit::None, complaints)
    } else if entry.state.is_active() {
        (MemoEdit::Changed { supersedes: entry.event.id, content: memo.content }, complaints)
    } else {
        complaints.push(format!(
            "changes {}, which is {}; its text becomes a new event",
            entry.event.id,
            entry.state.word()
        ));
        (MemoEdit::New { memo: Box::new(memo) }, complaints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Act, EventDraft};
    use crate::ledger::EventState;
    use proptest::prelude::*;

    fn entry(content: &str, quote: Option<&str>) -> LedgerEntry {
        let ts = Moment::parse("2026-02-03T09:30:00+01:00").unwrap().moment;
        let mut draft = EventDraft::new(ts, EventType::Decision, Priority::P1, content);
        draft.source = "memory/messages/2026-02-03.jsonl#m17".into();
        if let Some(quote) = quote {
            draft = draft.with_extra_field(QUOTE_FIELD, &quote);
        }
        LedgerEntry::from_event(draft.with_id(EventId::new(ts.day(), 1)), 1)
    }

    // K4
    #[test]
    fn a_memory_file_is_a_view_of_its_event() {
        let mut told = entry("R2 is the contact", Some("ask R2\n\nabout it"));
        told.event.draft.entity = Some("r2".into());
        told.event.draft.tags = vec!["a".into(), "b, c".into()];
        told.state = EventState::Superseded { by: EventId::new(told.event.ts.day(), 2) };
        let file = "---\nevent: EVT-20260203-001\ndate: 2026-02-03T09:30:00+01:00\ntype: decision\npriority: P1\nentity: r2\n\
            tags: [a, \"b, c\"]\nsource: memory/messages/2026-02-03.jsonl#m17\nstatus: superseded\nsuperseded_by: EVT-20260203-002\n\
            name: x\n---\nR2 is the contact\n\n> ask R2\n>\n> about it\n";
        assert_eq!(render(&told, &["name: x".into()]), file);
        let memo = parse(file);
        let fields = MemoFields {
            kind: Some(EventType::Decision),
            priority: Some(Priority::P1),
            entity: Some("r2".into()),
            tags: vec!["a".into(), "b, c".into()],
            source: Some("memory/messages/2026-02-03.jsonl#m17".into()),
            date: Some(told.event.ts),
        };
        let expected = ParsedMemo {
            event: Some(told.event.id),
            content: "R2 is the contact".into(),
            quote: "ask R2\n\nabout it".into(),
            fields,
            foreign: vec!["name: x".into()],
            complaints: Vec::new(),
        };
        assert_eq!(memo, expected);
        assert_eq!(parse(&format!("\u{feff}{}", file.replace('\n', "\r\n"))), expected);
    }

    fn check_read(file: &str, content: &str, foreign: &[&str], complaints: usize) -> ParsedMemo {
        let memo = parse(file);
        assert_eq!(memo.content, content, "{file}");
        assert_eq!(memo.foreign, foreign, "{file}");
        assert_eq!(memo.complaints.len(), complaints, "{file}: {:?}", memo.complaints);
        memo
    }

    // K8
    #[test]
    fn the_files_of_other_programs_are_read_and_kept() {
        check_read("just text", "just text", &[], 0);
        check_read("", "", &[], 0);
        check_read("---\nno end", "---\nno end", &[], 0);
        check_read("---\nsome text\n---\nmore", "---\nsome text\n---\nmore", &[], 0);
        check_read("---\n---\nmore", "more", &[], 0);
        let foreign = "---\nname: tabs\ndescription: \"likes: tabs\"\ntype: feedback\nmetadata:\n  node: x\n  list:\n    - a\n# note\n---\nLikes tabs\n";
        let lines = &[
            "name: tabs",
            "description: \"likes: tabs\"",
            "origin_type: feedback",
            "metadata:",
            "  node: x",
            "  list:",
            "    - a",
            "# note",
        ];
        let memo = check_read(foreign, "Likes tabs", lines, 0);
        assert_eq!(memo.fields.kind, Some(EventType::Preference));
        let again =
            check_read(&render(&entry("Likes tabs", None), &memo.foreign), "Likes tabs", lines, 0);
        assert_eq!(again.fields.kind, Some(EventType::Decision));
        let memo = check_read(
            "---\ntags:\n  - a\n  - 'it''s'\ntype: user\nstatus: done\n---\nx",
            "x",
            &["origin_type: user", "origin_status: done"],
            0,
        );
        assert_eq!(
            (memo.fields.tags, memo.fields.kind),
            (vec!["a".to_owned(), "it's".to_owned()], Some(EventType::Fact))
        );
        check_read(
            "---\ntype: banana\npriority: 9\ndate: soon\nevent: x\n---\nx",
            "x",
            &["origin_type: banana", "origin_priority: 9", "origin_date: soon", "origin_event: x"],
            4,
        );
        check_read(
            "---\nsource: |\n  two\n  lines\n---\nx",
            "x",
            &["origin_source: |", "  two", "  lines"],
            1,
        );
    }

    // K4
    #[test]
    fn names_are_of_the_local_minute_and_refer_back() {
        let event = entry("R2 contact info", None).event;
        assert_eq!(file_name(&event, |_| false), "20260203-0930-r2-contact-info");
        assert_eq!(
            file_name(&event, |name| !name.ends_with("-3")),
            "20260203-0930-r2-contact-info-3"
        );
        assert_eq!(file_name(&event, |_| true), "20260203-0930-r2-contact-info-evt-20260203-001");
        let long = file_name(&entry(&"abcdefgh ".repeat(20), None).event, |_| false);
        assert_eq!(long, "20260203-0930-abcdefgh-abcdefgh-abcdefgh-abcdefgh");
        let text = format!(
            "see {} and {} [mem:] [mem:../x] [mem:a b] [mem:東",
            format_reference("20260203-0930-a"),
            format_reference("b")
        );
        assert_eq!(find_references(&format!("{text}{text}]")), ["20260203-0930-a", "b"]);
    }

    // K4
    #[test]
    fn what_was_distilled_has_a_file() {
        let of = |change: &dyn Fn(&mut EventDraft)| {
            let mut event = entry("x", Some("y")).event;
            change(&mut event.draft);
            has_file(&event)
        };
        assert!(of(&|_| {}));
        assert!(!of(&|draft| draft.extra.clear()));
        assert!(of(
            &|draft| (draft.extra, draft.source) = (Vec::new(), "memory/memories/a.md".into())
        ));
        assert!(!of(
            &|draft| (draft.extra, draft.source) = (Vec::new(), "memory/memories2/a.md".into())
        ));
        assert!(!of(&|draft| draft.kind = EventType::Commitment));
        assert!(!of(&|draft| draft.act = Act::Confirm));
    }

    // K8
    #[test]
    fn other_words_replace_the_event() {
        let known = entry("one", Some("q"));
        let file = render(&known, &[]);
        assert_eq!(detect_edit(&file, Some(&known)), (MemoEdit::None, Vec::new()));
        let changed = MemoEdit::Changed { supersedes: known.event.id, content: "two".into() };
        assert_eq!(detect_edit(&file.replace("one", "two"), Some(&known)).0, changed);
        assert!(
            matches!(detect_edit("new", None).0, MemoEdit::New { memo } if memo.content == "new")
        );
        assert!(
            matches!(detect_edit(&file, None), (MemoEdit::New { .. }, complaints) if complaints.len() == 1)
        );
        assert!(
            matches!(detect_edit(&file.replace("one", ""), Some(&known)), (MemoEdit::None, complaints) if complaints.len() == 1)
        );
        assert!(
            matches!(detect_edit(&file.replace("one", "\u{fffd}"), Some(&known)), (MemoEdit::None, complaints) if complaints.len() == 1)
        );
        let ended = LedgerEntry { state: EventState::Retracted { by: known.event.id }, ..known };
        assert!(
            matches!(detect_edit(&file.replace("one", "two"), Some(&ended)), (MemoEdit::New { memo }, complaints) if memo.event.is_some() && complaints.len() == 1)
        );
    }

    fn body() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "---",
            "\n",
            "\n\n",
            "> ",
            ">",
            "a",
            "type: fact",
            "...",
            " ",
            "\t",
            "東",
            "\u{1b}",
            "event: EVT-20260203-001",
            "```",
        ]);
        prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        // K4, K8
        #[test]
        fn what_is_rendered_is_read_back(content in body(), quote in prop::option::of(body()), tags in prop::collection::vec(".{0,8}", 0..4), source in ".{0,20}") {
            let content = sanitize::clean(&content).text;
            let mut told = entry(&content, quote.as_deref());
            told.event.draft.tags = tags;
            told.event.draft.source = source;
            // The values as they are stored.
            let Ok((draft, _)) = told.event.draft.clone().sanitize() else { return Ok(()) };
            told.event.draft = draft;
            let foreign = vec!["name: x".to_owned(), "metadata:".into(), "  a: b".into(), "".into(), "# c".into()];
            let memo = parse(&render(&told, &foreign));
            prop_assert_eq!(&memo.content, &content);
            prop_assert_eq!(&memo.foreign, &foreign);
            prop_assert_eq!(memo.event, Some(told.event.id));
            prop_assert_eq!(&memo.fields.tags, &told.event.tags);
            prop_assert_eq!(memo.fields.source.unwrap_or_default(), told.event.source.clone());
            prop_assert_eq!(detect_edit(&render(&told, &foreign), Some(&told)).0, MemoEdit::None);
        }

        // K8
        #[test]
        fn any_file_is_read(file in body(), more in ".{0,100}") {
            let memo = parse(&format!("---\n{file}\n---\n{more}"));
            prop_assert_eq!(sanitize::clean(&memo.content).text, memo.content);
            find_references(&format!("[mem:{file}{more}"));
        }
    }
}
