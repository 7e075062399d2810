//! Documents: notes, and memory files of assistants.
//!
//! A note is stored unchanged as a message of its day. The day comes from its front matter or its
//! name; the modification time often is that of the last copy, so it does not count. Memory files
//! of assistants are imported statement by statement.

use icecore_text::markdown;
use jiff::civil::{Date, Time};
use jiff::tz::Offset;

use super::{ImportBatch, ImportFormat, ImportedFact};
use crate::calendar::Moment;
use crate::event::{EventType, Origin};
use crate::hash::Hash;
use crate::migrate::read::{self, StatementSelection};
use crate::record::{IncomingMessage, MAX_NAME_BYTES, MAX_TEXT_BYTES, Role};
use crate::sanitize;
use crate::transcript::trim_blank_lines;

/// A document that is read at once.
#[derive(Debug, Clone, Copy)]
pub struct ImportDocument<'a> {
    /// Its path below the imported folder, parts separated by `/`.
    pub path: &'a str,
    pub text: &'a str,
    /// The project of an assistant's memory file.
    pub project: Option<&'a str>,
}

impl ImportDocument<'_> {
    /// Reads a note.
    pub fn read_note(&self, into: &mut ImportBatch) {
        let front = markdown::front_matter(self.text);
        let field = |names: &[&str]| {
            front.as_ref().and_then(|front| {
                names.iter().find_map(|name| read::front_matter_field(front, name))
            })
        };
        let body = self.text.trim_start_matches('\u{feff}');
        let skip = front.as_ref().map_or(0, |front| front.lines.len() + 2);
        let start: usize = body.split_inclusive('\n').take(skip).map(str::len).sum();
        let body = trim_blank_lines(&body[start..]);
        if body.trim().is_empty() {
            return into.count_skipped("empty file", 1);
        }
        let when = field(&["date", "created", "created_at", "day"])
            .and_then(parse_day_or_moment)
            .or_else(|| noon(day_in_path(self.path)?));
        if when.is_none() {
            into.count_skipped("no date found; the current day is used", 1);
        }
        let heading = body.lines().find_map(|line| line.strip_prefix("# ")).map(str::trim);
        let title = field(&["title"]).or(heading).map(sanitize::one_line);
        let id = short_path(self.path);
        for (at, part) in split_parts(body).into_iter().enumerate() {
            let (ts, offset_assumed) =
                when.map_or((None, false), |(moment, assumed)| (Some(moment), assumed));
            into.add_message(
                at + 1,
                IncomingMessage {
                    ts,
                    offset_assumed,
                    conversation: ImportFormat::Markdown.default_conversation().map(str::to_owned),
                    session: Some(id.clone()),
                    id: Some(if at == 0 { id.clone() } else { format!("{id}#{}", at + 1) }),
                    role: Some(Role::User),
                    title: title.clone().filter(|_| at == 0),
                    text: part.to_owned(),
                    // A file does not say whose words they are: a saved web page looks like one's
                    // own note.
                    origin: Some(Origin::Import),
                    ..IncomingMessage::default()
                },
            );
        }
    }

    /// Reads an assistant's memory: the memory folder of Claude Code, or the list that Claude.ai
    /// exports.
    pub fn read_memory(&self, into: &mut ImportBatch) {
        if read::listed_topics(self.text).is_some() {
            return into.count_skipped("index of memories", 1);
        }
        let front = markdown::front_matter(self.text);
        let field =
            |name: &str| front.as_ref().and_then(|front| read::front_matter_field(front, name));
        let said = field("modified").and_then(parse_day_or_moment).map(|(moment, _)| moment);
        let tag = field("type").map(str::to_lowercase);
        let facts = parse_dated_list(self.path, self.text)
            .unwrap_or_else(|| memory_statements(self.path, self.text, said));
        if facts.is_empty() {
            into.count_skipped("memory without a statement", 1);
        }
        for mut fact in facts {
            fact.tags.extend(tag.clone());
            // Feedback to an assistant holds until the user changes it.
            if tag.as_deref() == Some("feedback") && fact.kind == Some(EventType::Fact) {
                fact.kind = Some(EventType::Preference);
            }
            into.facts.push(ImportedFact { project: self.project.map(str::to_owned), ..fact });
        }
    }
}

/// The statements of a text that an assistant maintains.
pub(super) fn memory_statements(path: &str, text: &str, said: Option<Moment>) -> Vec<ImportedFact> {
    let path = short_path(path);
    let facts = read::parse_statements(text, StatementSelection::All).statements.into_iter().map(
        |stated| ImportedFact {
            external_id: format!(
                "{path}:{}",
                Hash::of(sanitize::sameness_key(&stated.text).as_bytes()).short_hex()
            ),
            kind: Some(stated.kind),
            entity: stated.entity,
            entity_kind: None,
            tags: stated.tags,
            learned_at: said,
            source: format!("{path}:{}", stated.line),
            project: None,
            origin: Origin::Assistant,
            text: stated.text,
        },
    );
    facts.collect()
}

/// Lines such as `[2026-01-05] - likes tea`, if most of the text consists of them.
fn parse_dated_list(path: &str, text: &str) -> Option<Vec<ImportedFact>> {
    let line = |line: &str| -> Option<(Moment, String)> {
        let (date, rest) =
            line.trim().trim_start_matches(['-', '*', ' ']).strip_prefix('[')?.split_once(']')?;
        let words = rest.trim_start_matches([' ', '-', '–', '—', ':']).trim();
        let (moment, _) = parse_day_or_moment(date)?;
        (!words.is_empty()).then(|| (moment, words.to_owned()))
    };
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let read: Vec<(Moment, String)> = lines.iter().filter_map(|text| line(text)).collect();
    let path = short_path(path);
    (!read.is_empty() && read.len() * 2 > lines.len()).then(|| {
        let facts = read.into_iter().map(|(moment, words)| ImportedFact {
            external_id: format!(
                "{path}:{}",
                Hash::of(sanitize::sameness_key(&words).as_bytes()).short_hex()
            ),
            kind: None,
            entity: None,
            entity_kind: None,
            tags: Vec::new(),
            learned_at: Some(moment),
            source: path.clone(),
            project: None,
            origin: Origin::Assistant,
            text: words,
        });
        facts.collect()
    })
}

/// A path shortened to the length of a name.
fn short_path(path: &str) -> String {
    let name = sanitize::one_line(path);
    let most = MAX_NAME_BYTES / 2;
    if name.len() <= most {
        name
    } else {
        format!(
            "{}…{}",
            &name[..name.floor_char_boundary(most)],
            Hash::of(path.as_bytes()).short_hex()
        )
    }
}

/// A body split at line breaks into parts that fit a record each.
fn split_parts(body: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = body;
    while rest.len() > MAX_TEXT_BYTES {
        let most = rest.floor_char_boundary(MAX_TEXT_BYTES);
        let cut = rest[..most].rfind('\n').map_or(most, |at| at + 1);
        let (part, after) = rest.split_at(cut.max(1));
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

/// Noon of a day, local time.
fn noon(day: Date) -> Option<(Moment, bool)> {
    let at = Offset::UTC.to_timestamp(day.to_datetime(Time::constant(12, 0, 0, 0))).ok()?;
    Some((Moment::new(at, Offset::UTC), true))
}

fn parse_day_or_moment(text: &str) -> Option<(Moment, bool)> {
    let text = text.trim();
    if text.len() > 10
        && let Some(read) = Moment::parse(text)
    {
        return Some((read.moment, read.offset_assumed));
    }
    noon(text.get(..10)?.parse().ok()?)
}

/// The last day in a path: `2026-02-13`, `2026_02_13`, `2026.02.13` or `20260213`.
fn day_in_path(path: &str) -> Option<Date> {
    let bytes = path.as_bytes();
    let digits = |from: usize, count: usize| {
        bytes.get(from..from + count).filter(|part| part.iter().all(u8::is_ascii_digit))
    };
    (0..bytes.len()).rev().find_map(|at| {
        if at > 0 && bytes[at - 1].is_ascii_digit() {
            return None;
        }
        digits(at, 4)?;
        let sign = bytes.get(at + 4).copied()?;
        let (month, day, end) = if matches!(sign, b'-' | b'_' | b'.') {
            (bytes.get(at + 7) == Some(&sign)).then_some(())?;
            (digits(at + 5, 2)?, digits(at + 8, 2)?, at + 10)
        } else {
            (digits(at + 4, 2)?, digits(at + 6, 2)?, at + 8)
        };
        if bytes.get(end).is_some_and(u8::is_ascii_digit) {
            return None;
        }
        let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        format!("{}-{}-{}", text(&bytes[at..at + 4]), text(month), text(day)).parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // P1
    #[test]
    fn a_path_names_its_day() {
        for (path, day) in [
            ("2026-02-13.md", Some("2026-02-13")),
            ("daily/2026/2026-02-13 standup.md", Some("2026-02-13")),
            ("notes/20260213-0915-port.md", Some("2026-02-13")),
            ("2025-01-01/2026_02_13.md", Some("2026-02-13")),
            ("ports.md", None),
            ("2026-13-40.md", None),
            ("120260213.md", None),
            ("call 202602134.md", None),
            ("é2026-02-13é", Some("2026-02-13")),
        ] {
            assert_eq!(day_in_path(path).map(|day| day.to_string()).as_deref(), day, "{path}");
        }
    }

    // P1
    #[test]
    fn a_note_has_its_own_day_and_title() {
        let read = |path: &str, text: &str| {
            let mut harvest = ImportBatch::default();
            ImportDocument { path, text, project: None }.read_note(&mut harvest);
            let said = harvest.messages.into_iter().map(|(_, said)| {
                format!(
                    "{:?} {:?} {:?} {}",
                    said.ts.map(|ts| ts.to_string()),
                    said.id.unwrap(),
                    said.title,
                    said.text.replace('\n', "⏎")
                )
            });
            said.collect::<Vec<_>>()
        };
        assert_eq!(
            read("a/ports.md", "---\ntitle: Ports\ndate: 2026-02-13\n---\n\nWe use 7431.\n"),
            [r#"Some("2026-02-13T12:00:00+00:00") "a/ports.md" Some("Ports") We use 7431."#]
        );
        assert_eq!(
            read("2026-02-14.md", "# Day\nwords\n"),
            [r#"Some("2026-02-14T12:00:00+00:00") "2026-02-14.md" Some("Day") # Day⏎words"#]
        );
        assert_eq!(read("x.md", "words"), [r#"None "x.md" None words"#]);
        assert!(read("x.md", "---\ntitle: x\n---\n \n").is_empty());
    }

    // P1
    #[test]
    fn what_an_assistant_noted_is_learnt_statement_by_statement() {
        let read = |path: &str, text: &str| {
            let mut harvest = ImportBatch::default();
            ImportDocument { path, text, project: Some("/home/u/app") }.read_memory(&mut harvest);
            let facts: Vec<String> = harvest
                .facts
                .into_iter()
                .map(|fact| {
                    format!(
                        "{} {:?} {} {:?} {}",
                        fact.kind.map_or("-", EventType::word),
                        fact.learned_at.map(|ts| ts.day().to_string()),
                        fact.source,
                        fact.tags,
                        fact.text
                    )
                })
                .collect();
            (facts, harvest.skipped.into_keys().collect::<Vec<_>>())
        };
        assert_eq!(
            read("app/memory/ports.md", "---\nname: ports\ntype: feedback\nmodified: 2026-02-13T09:00:00Z\n---\n- The port is 7431\n"),
            (vec![r#"preference Some("2026-02-13") app/memory/ports.md:6 ["feedback"] The port is 7431"#.to_owned()], vec![])
        );
        assert_eq!(
            read("memories.txt", "[2026-01-05] - likes tea\n[2026-01-06] - lives in Bern\n").0,
            [
                r#"- Some("2026-01-05") memories.txt [] likes tea"#,
                r#"- Some("2026-01-06") memories.txt [] lives in Bern"#
            ]
        );
        assert_eq!(read("MEMORY.md", "- [Ports](ports.md): which\n").1, ["index of memories"]);
    }

    proptest! {
        #[test]
        fn no_document_makes_the_reader_fall(path in "\\PC{0,40}|[0-9._-]{0,30}", text in "(---\n|date: |[-a-z0-9: \n\\[\\]é#]){0,60}") {
            let mut harvest = ImportBatch::default();
            let document = ImportDocument { path: &path, text: &text, project: None };
            document.read_note(&mut harvest);
            document.read_memory(&mut harvest);
            prop_assert!(harvest.complaints.is_empty());
        }

        #[test]
        fn parts_make_the_whole(text in "[a-z\n]{0,200}") {
            prop_assert_eq!(split_parts(&text).concat(), text);
        }
    }
}
