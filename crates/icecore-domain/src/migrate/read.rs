//! Parsing of old files: statements in Markdown, lines of an older ledger, an index of topic files,
//! summaries of days.
//!
//! Parsing never fails. What is not a statement stays text, and every old text is stored whole
//! elsewhere.

use std::collections::BTreeSet;

use icecore_text::language::Language;
use icecore_text::lexicon::WordList;
use icecore_text::markdown::{self, CodeFence, FrontMatter};
use jiff::civil::Date;
use jiff::tz::Offset;
use serde_json::Value;

use crate::calendar::{Moment, Zone};
use crate::event::{Act, EventDraft, EventType, LoopStatus, Priority, guess_event_type};
use crate::format::line;
use crate::hash::Hash;
use crate::sanitize;

/// The longest paragraph that is one statement; a longer one is prose.
pub const MAX_PARAGRAPH_BYTES: usize = 600;
/// The longest list item that is one statement.
pub const MAX_ITEM_BYTES: usize = 2_000;
/// The most statements of one file.
pub const MAX_STATEMENTS: usize = 20_000;
/// The most tags that headings give a statement.
const MAX_TAGS: usize = 8;
/// The longest heading or label that names an entity.
const MAX_NAME_BYTES: usize = 60;

/// Which statements of a text are extracted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum StatementSelection {
    /// Every item, `key: value` line and short paragraph of a curated text.
    #[default]
    All,
    /// Only what is marked as important: `[P1]`, or a decision.
    Marked,
}

/// A statement of an old text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Statement {
    pub line: usize,
    /// The number of lines it takes up.
    pub lines: usize,
    pub text: String,
    pub kind: EventType,
    pub priority: Priority,
    pub entity: Option<String>,
    pub tags: Vec<String>,
    pub status: Option<LoopStatus>,
}

/// The statements of a text.
#[derive(Debug, Default)]
pub(crate) struct ParsedStatements {
    pub statements: Vec<Statement>,
    /// The number of statements beyond [`MAX_STATEMENTS`].
    pub beyond: usize,
}

/// Parses the statements of a Markdown text.
pub(crate) fn parse_statements(text: &str, which: StatementSelection) -> ParsedStatements {
    let mut reader = StatementParser { which, ..StatementParser::default() };
    let text = text.trim_start_matches('\u{feff}');
    let skip = markdown::front_matter(text).map_or(0, |front| front.lines.len() + 2);
    let mut fence = CodeFence::default();
    let mut commented = false;
    for (at, raw) in text.lines().enumerate().skip(skip) {
        let line = raw.trim_end();
        let bare = line.trim_start();
        if fence.covers_indented_line(bare) {
            reader.flush();
        } else if commented || bare.starts_with("<!--") {
            reader.flush();
            commented = !bare.contains("-->");
        } else if let Some((level, title)) = markdown::heading(line) {
            reader.flush();
            reader.enter_heading(level, title);
        } else if bare.is_empty() || bare.starts_with('|') || markdown::is_rule(bare) {
            reader.flush();
        } else if let Some(item) = markdown::bullet(bare) {
            reader.flush();
            let indent = line.len() - bare.len();
            reader.labels.retain(|(outer, _)| *outer < indent);
            reader.open = Some(OpenItem {
                item: Some(indent),
                first: at + 1,
                lines: vec![item.text.to_owned()],
            });
        } else if let Some(open) = &mut reader.open {
            open.lines.push(bare.to_owned());
        } else {
            reader.labels.clear();
            reader.open =
                Some(OpenItem { item: None, first: at + 1, lines: vec![bare.to_owned()] });
        }
    }
    reader.flush();
    reader.found
}

struct OpenItem {
    /// The indentation of the item; `None` for a paragraph.
    item: Option<usize>,
    first: usize,
    lines: Vec<String>,
}

#[derive(Default)]
struct StatementParser {
    which: StatementSelection,
    /// The headings above the current line, outermost first. The document title is not a context of a
    /// line.
    headings: Vec<(usize, String, bool)>,
    titled: bool,
    /// Items that only introduce the items below them, by indentation.
    labels: Vec<(usize, String)>,
    open: Option<OpenItem>,
    found: ParsedStatements,
}

impl StatementParser {
    fn enter_heading(&mut self, level: usize, title: &str) {
        self.headings.retain(|(outer, ..)| *outer < level);
        self.labels.clear();
        let of_all = level == 1 && !self.titled;
        self.titled = true;
        self.headings.push((
            level,
            sanitize::clean(title).text.replace(['*', '_', '`'], ""),
            of_all,
        ));
    }

    fn flush(&mut self) {
        let Some(open) = self.open.take() else { return };
        let marked = |text: &str| parse_priority_mark(text).is_some();
        if let Some(indent) = open.item {
            let text = open.lines.join(" ");
            let decided = ["decided", "decision:"].iter().any(|word| {
                text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
            });
            if self.which == StatementSelection::Marked && !marked(&text) && !decided {
                return;
            }
            let label = text.trim_matches('*').trim_end_matches('*');
            if label.ends_with(':') && label.len() <= MAX_NAME_BYTES {
                self.labels.push((indent, label.trim_end_matches([':', '*']).to_owned()));
                return;
            }
            self.add_statement(&text, open.first, open.lines.len(), MAX_ITEM_BYTES, None);
        } else if self.which == StatementSelection::Marked
            || open.lines.iter().all(|line| marked(line) || parse_key_value(line).is_some())
        {
            for (at, line) in open.lines.iter().enumerate() {
                if self.which == StatementSelection::All || marked(line) {
                    self.add_statement(line, open.first + at, 1, MAX_ITEM_BYTES, None);
                }
            }
        } else {
            let lines: Vec<&str> =
                open.lines.iter().map(|line| line.trim_start_matches(['>', ' '])).collect();
            let text = lines.join(" ");
            if !is_italic_note(&text) {
                self.add_statement(
                    &text,
                    open.first,
                    open.lines.len(),
                    MAX_PARAGRAPH_BYTES,
                    Some(Priority::P2),
                );
            }
        }
    }

    /// Adds a statement, unless it is too long.
    fn add_statement(
        &mut self,
        text: &str,
        line: usize,
        lines: usize,
        room: usize,
        priority: Option<Priority>,
    ) {
        if text.len() > room {
            return;
        }
        if self.found.statements.len() >= MAX_STATEMENTS {
            self.found.beyond += 1;
            return;
        }
        let (status, text) = match markdown::check_box(text) {
            Some((rest, false)) => (Some(LoopStatus::Open), rest),
            Some((rest, true)) => (Some(LoopStatus::Closed), rest),
            None => (None, text),
        };
        let marked = parse_priority_mark(text);
        let text = marked.as_ref().map_or(text, |(.., rest)| rest);
        let (label, said) = bold_label(text).map_or((None, text.to_owned()), |(name, rest)| {
            (Some(name), format!("{name}: {rest}"))
        });
        let said = sanitize::clean(&said).text;
        if !said.contains(char::is_alphanumeric) {
            return;
        }
        let category = self
            .headings
            .iter()
            .rev()
            .find_map(|(_, title, _)| HeadingCategory::from_heading(title));
        let named = self
            .headings
            .last()
            .filter(|(level, title, _)| *level >= 3 && is_entity_name(title))
            .map(|(_, title, _)| title.as_str());
        // The statement needs its labels: "lives in Hamburg" alone is about no one.
        let mut content = said;
        let above = named.into_iter().chain(self.labels.iter().map(|(_, label)| label.as_str()));
        for name in above.collect::<Vec<_>>().into_iter().rev() {
            if !sanitize::sameness_key(&content).contains(&sanitize::sameness_key(name)) {
                content = format!("{name}: {content}");
            }
        }
        let guess = guess_event_type(&content);
        let kind = marked.as_ref().and_then(|(_, kind, _)| *kind).unwrap_or(match category {
            _ if status.is_some() => EventType::Commitment,
            Some(category) => category.kind(guess),
            None => guess,
        });
        let strict = category == Some(HeadingCategory::Rule) && {
            let words = format!(
                " {} ",
                sanitize::sameness_key(&content).replace(|c: char| !c.is_alphanumeric(), " ")
            );
            [" must ", " never ", " always "].iter().any(|word| words.contains(word))
        };
        let usual = priority.unwrap_or(if strict { Priority::P0 } else { Priority::P1 });
        let mut tags: BTreeSet<String> = self
            .headings
            .iter()
            .filter(|(.., of_all)| !of_all)
            .flat_map(|(_, title, _)| heading_words(title))
            .take(MAX_TAGS)
            .collect();
        tags.extend(category.and_then(HeadingCategory::tag).map(str::to_owned));
        self.found.statements.push(Statement {
            line,
            lines,
            kind,
            priority: marked.as_ref().map_or(usual, |(priority, ..)| *priority),
            entity: named
                .or(label)
                .or(self.labels.last().map(|(_, label)| label.as_str()))
                .map(str::to_owned),
            tags: tags.into_iter().collect(),
            status: if kind == EventType::Commitment {
                status.or(Some(LoopStatus::Open))
            } else {
                None
            },
            text: content,
        });
    }
}

/// What a heading says about the lines below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadingCategory {
    Preference,
    Rule,
    People,
    Project,
    Decision,
    Procedure,
    Owed,
    Account,
    Mission,
}

impl HeadingCategory {
    fn from_heading(title: &str) -> Option<Self> {
        const WORDS: [(HeadingCategory, &[&str]); 9] = [
            (
                HeadingCategory::Preference,
                &["preference", "preferences", "likes", "dislikes", "style"],
            ),
            (
                HeadingCategory::Rule,
                &[
                    "rule",
                    "rules",
                    "constraint",
                    "constraints",
                    "never",
                    "always",
                    "principles",
                    "boundaries",
                    "limits",
                    "security",
                ],
            ),
            (HeadingCategory::Decision, &["decision", "decisions", "decided"]),
            (
                HeadingCategory::Owed,
                &[
                    "todo",
                    "todos",
                    "to-do",
                    "open",
                    "commitments",
                    "commitment",
                    "tasks",
                    "pending",
                    "promises",
                    "owed",
                ],
            ),
            (
                HeadingCategory::Procedure,
                &[
                    "procedure",
                    "procedures",
                    "how",
                    "howto",
                    "workflow",
                    "workflows",
                    "playbook",
                    "runbook",
                ],
            ),
            (
                HeadingCategory::Account,
                &["account", "accounts", "id", "ids", "credentials", "logins"],
            ),
            (HeadingCategory::Mission, &["mantra", "mission", "purpose", "vision"]),
            (
                HeadingCategory::People,
                &[
                    "people",
                    "person",
                    "contact",
                    "contacts",
                    "family",
                    "team",
                    "relationships",
                    "friends",
                ],
            ),
            (HeadingCategory::Project, &["project", "projects"]),
        ];
        let title = title.to_lowercase();
        let said: Vec<&str> = title.split(|c: char| !c.is_alphanumeric() && c != '-').collect();
        WORDS
            .iter()
            .find(|(_, words)| said.iter().any(|word| words.contains(word)))
            .map(|(category, _)| *category)
    }

    fn kind(self, guess: EventType) -> EventType {
        match self {
            HeadingCategory::Preference => EventType::Preference,
            HeadingCategory::Rule => EventType::Constraint,
            HeadingCategory::Decision => EventType::Decision,
            HeadingCategory::Procedure => EventType::Procedure,
            HeadingCategory::Owed => EventType::Commitment,
            HeadingCategory::People if guess == EventType::Relationship => guess,
            HeadingCategory::People | HeadingCategory::Account | HeadingCategory::Mission => {
                EventType::Fact
            }
            HeadingCategory::Project => guess,
        }
    }

    /// The label under which packs look for such lines.
    fn tag(self) -> Option<&'static str> {
        match self {
            HeadingCategory::Account => Some("account"),
            HeadingCategory::Mission => Some("mantra"),
            _ => None,
        }
    }
}

fn is_stop_word(word: &str) -> bool {
    [WordList::StatementStop, WordList::Negation]
        .iter()
        .any(|list| list.has(&[Language::English], word))
}

fn heading_words(title: &str) -> Vec<String> {
    let words = title.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
    words.filter(|word| (3..=40).contains(&word.len()) && !is_stop_word(word)).collect()
}

/// Whether a deep heading names an entity, rather than a category of lines.
fn is_entity_name(title: &str) -> bool {
    let words = title.split_whitespace().count();
    let name = title.contains(char::is_alphabetic)
        && title.len() <= MAX_NAME_BYTES
        && (1..=5).contains(&words);
    name && HeadingCategory::from_heading(title).is_none()
}

/// `[P1] text`, `**[P1 decision]** text`, `P1: text`: the priority, the type if stated, and the
/// rest.
fn parse_priority_mark(text: &str) -> Option<(Priority, Option<EventType>, &str)> {
    let item = markdown::check_box(text).map_or(text, |(rest, _)| rest);
    let item = item.trim_start_matches("**");
    let (label, rest) = match item.strip_prefix('[') {
        Some(rest) => rest.split_once(']'),
        None => item.split_once(':').filter(|(label, _)| label.len() == 2),
    }?;
    let mut words = label.split([' ', ':', ',', '/']).filter(|word| !word.is_empty());
    let priority = words.next()?.parse().ok()?;
    Some((
        priority,
        words.next().and_then(|word| word.parse().ok()),
        rest.trim_start_matches("**").trim_start_matches(':').trim(),
    ))
}

/// `**Name**: text`, `**Name:** text`, `**Name** - text`.
fn bold_label(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.strip_prefix("**")?.split_once("**")?;
    let inner = name.strip_suffix(':');
    let rest = rest.trim_start();
    let said = if inner.is_some() {
        Some(rest)
    } else {
        [":", "- ", "\u{2013} ", "\u{2014} "].iter().find_map(|sign| rest.strip_prefix(sign))
    };
    let (name, said) = (inner.unwrap_or(name).trim(), said?.trim());
    (!said.is_empty() && name.len() <= MAX_NAME_BYTES && name.contains(char::is_alphanumeric))
        .then_some((name, said))
}

/// A text entirely in italics is a note about the file: when it was made, and by whom.
fn is_italic_note(text: &str) -> bool {
    text.starts_with('*') && !text.starts_with("**") && text.ends_with('*')
}

/// `key: value`, where the key is a name and not half a sentence.
fn parse_key_value(line: &str) -> Option<(&str, &str)> {
    let line = (!is_italic_note(line)).then_some(line)?;
    let (key, value) = line.split_once(": ").or_else(|| line.split_once(":** "))?;
    (key.len() <= 40 && key.split_whitespace().count() <= 4 && !value.trim().is_empty())
        .then_some((key, value))
}

/// The value of a front matter field, at any nesting.
pub(crate) fn front_matter_field<'a>(front: &FrontMatter<'a>, name: &str) -> Option<&'a str> {
    let value = |line: &&'a str| {
        line.trim_start()
            .strip_prefix(name)?
            .strip_prefix(':')
            .map(|value| value.trim().trim_matches(['"', '\'']))
    };
    front.lines.iter().find_map(value).filter(|value| !value.is_empty())
}

/// The topic files that a `MEMORY.md` lists, if it contains nothing else.
pub(crate) fn listed_topics(text: &str) -> Option<BTreeSet<&str>> {
    let body = text.trim_start_matches('\u{feff}');
    let skip = markdown::front_matter(body).map_or(0, |front| front.lines.len() + 2);
    let mut found = BTreeSet::new();
    for line in body.lines().skip(skip).map(str::trim) {
        if line.is_empty()
            || markdown::heading(line).is_some()
            || line.starts_with("<!--")
            || markdown::is_rule(line)
        {
            continue;
        }
        let target = line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'))
            .map(|(target, _)| target.trim_start_matches("./"));
        let listed: Vec<&str> =
            target.filter(|target| target.ends_with(".md") && !target.contains('/')).collect();
        if listed.is_empty() {
            return None;
        }
        found.extend(listed);
    }
    (!found.is_empty()).then_some(found)
}

/// The lines of one day in `30day.md`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DaySummary<'a> {
    pub day: Date,
    pub lines: Vec<&'a str>,
}

/// The days of a `30day.md`, and the number of lines that belong to none.
pub(super) fn parse_day_summaries(text: &str) -> (usize, Vec<DaySummary<'_>>) {
    let mut found: Vec<DaySummary<'_>> = Vec::new();
    let mut before = 0;
    for line in text.trim_start_matches('\u{feff}').lines().map(str::trim_end) {
        let begun = markdown::heading(line)
            .filter(|(level, _)| (2..=3).contains(level))
            .and_then(|(_, title)| title.get(..10)?.parse().ok());
        match (begun, found.last_mut()) {
            (Some(day), _) => found.push(DaySummary { day, lines: Vec::new() }),
            _ if line == "---" => {}
            (None, Some(told)) => told.lines.push(line),
            (None, None) => before += usize::from(!line.trim().is_empty()),
        }
    }
    (before, found)
}

/// An event of an older ledger.
#[derive(Debug)]
pub(super) struct OldEvent {
    pub draft: EventDraft,
    /// Its old id, or one computed from its line.
    pub was: String,
    /// The old ids of the events it replaces.
    pub replaces: Vec<String>,
    /// The old ids of related events.
    pub related: Vec<String>,
    /// The assumptions made in parsing it.
    pub assumptions: Vec<String>,
}

impl OldEvent {
    /// Whether it only states something, so that the same statement elsewhere is a duplicate.
    pub fn is_plain_statement(&self) -> bool {
        self.draft.act == Act::Assert
            && self.draft.status != Some(LoopStatus::Closed)
            && self.replaces.is_empty()
    }
}

/// Parses a line of an older ledger: in icecore's format, else by the usual names of such fields.
pub(super) fn parse_old_events(
    bytes: &[u8],
    now: Moment,
    zone: &Zone,
) -> Result<Vec<OldEvent>, String> {
    let parsed = line::parse_line(bytes);
    if !parsed.events.is_empty() && parsed.is_sound() {
        let assumed = parsed.faults.iter().any(|fault| fault.what.contains("without an offset"));
        let odd: Vec<String> = parsed.faults.into_iter().map(|fault| fault.what).collect();
        return Ok(parsed
            .events
            .into_iter()
            .map(|event| from_own_event(event.id.to_string(), event.draft, assumed, &odd, zone))
            .collect());
    }
    let why =
        parsed.faults.first().map_or_else(|| "is empty".to_owned(), |fault| fault.what.clone());
    if bytes.len() > line::MAX_LINE_BYTES {
        return Err(why);
    }
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let Ok(Value::Object(fields)) = serde_json::from_slice::<Value>(text) else { return Err(why) };
    // A line without an id must be recognized by the next run, too.
    let made = || format!("line-{}", Hash::of(text.trim_ascii()).short_hex());
    let was =
        fields.get("id").and_then(|id| text_values(id).into_iter().next()).unwrap_or_else(made);
    from_foreign_object(&fields, was, now, zone).map(|event| vec![event]).ok_or(why)
}

fn from_own_event(
    was: String,
    mut draft: EventDraft,
    assumed: bool,
    odd: &[String],
    zone: &Zone,
) -> OldEvent {
    if assumed {
        draft.ts = to_zone(draft.ts, zone);
    }
    let mut names = |field: &str, ids: Vec<crate::id::EventId>| {
        // Ids in a foreign format are among the unknown fields.
        let foreign = draft
            .extra
            .iter()
            .position(|(name, _)| name == field)
            .map(|at| draft.extra.remove(at).1);
        let foreign = foreign
            .and_then(|raw| serde_json::from_str::<Value>(&raw).ok())
            .map_or(Vec::new(), |value| text_values(&value));
        ids.iter().map(ToString::to_string).chain(foreign).collect::<Vec<_>>()
    };
    let (replaced, with) =
        (std::mem::take(&mut draft.supersedes), std::mem::take(&mut draft.related));
    let (replaces, related) = (names("supersedes", replaced), names("related", with));
    OldEvent { draft, was, replaces, related, assumptions: odd.to_vec() }
}

fn from_foreign_object(
    fields: &serde_json::Map<String, Value>,
    was: String,
    now: Moment,
    zone: &Zone,
) -> Option<OldEvent> {
    const CONTENT: &[&str] =
        &["content", "text", "memory", "fact", "note", "summary", "description"];
    const KIND: &[&str] = &["type", "kind", "category"];
    const TS: &[&str] = &["ts", "timestamp", "time", "date", "created_at", "created"];
    const REPLACES: &[&str] = &["supersedes", "replaces"];
    const KNOWN_FIELDS: &[&str] =
        &["id", "priority", "entity", "tags", "source", "session", "status", "related"];
    let field = |names: &[&str]| {
        names.iter().find_map(|name| fields.get(*name).map(|value| ((*name).to_owned(), value)))
    };
    let text = |names: &[&str]| {
        field(names).and_then(|(name, value)| Some((name, value.as_str()?.to_owned())))
    };
    let (content_field, content) =
        text(CONTENT).filter(|(_, content)| !content.trim().is_empty())?;
    let mut odd = Vec::new();
    let (ts_field, ts) = match text(TS).and_then(|(name, ts)| Some((name, Moment::parse(&ts)?))) {
        Some((name, read)) => {
            (Some(name), if read.offset_assumed { to_zone(read.moment, zone) } else { read.moment })
        }
        None => {
            odd.push("has no time; the current time is used".to_owned());
            (None, now)
        }
    };
    let said = text(KIND).and_then(|(name, kind)| Some((name, kind.parse::<EventType>().ok()?)));
    let kind = said.as_ref().map_or_else(|| guess_event_type(&content), |(_, kind)| *kind);
    let priority = text(&["priority"]).and_then(|(_, priority)| priority.parse().ok());
    if said.is_none() || priority.is_none() {
        odd.push(format!(
            "has no type or priority of ours; read as {kind}, {}",
            priority.unwrap_or(Priority::P2)
        ));
    }
    let mut draft = EventDraft::new(ts, kind, priority.unwrap_or(Priority::P2), content);
    draft.origin = crate::event::Origin::File;
    draft.source = text(&["source"]).map_or_else(|| "unknown".into(), |(_, source)| source);
    draft.entity = text(&["entity"]).map(|(_, entity)| entity);
    draft.session = text(&["session"]).map(|(_, session)| session);
    draft.tags = field(&["tags"]).map_or(Vec::new(), |(_, tags)| text_values(tags));
    if let Some(status) = text(&["status"]).and_then(|(_, status)| status.parse().ok()) {
        draft.status = Some(status);
    }
    let taken = [
        Some(content_field),
        ts_field,
        said.map(|(name, _)| name),
        field(REPLACES).map(|(name, _)| name),
    ];
    for (name, value) in fields {
        let known = KNOWN_FIELDS.contains(&name.as_str())
            || taken.iter().flatten().any(|taken| taken == name);
        if !known {
            draft.extra.push((name.clone(), value.to_string()));
        }
    }
    let ids = |names: &[&str]| field(names).map_or(Vec::new(), |(_, value)| text_values(value));
    Some(OldEvent {
        draft,
        was,
        replaces: ids(REPLACES),
        related: ids(&["related"]),
        assumptions: odd,
    })
}

/// A text or number, or a list of them, as texts.
fn text_values(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Number(number) => vec![number.to_string()],
        Value::Array(items) => items
            .iter()
            .filter(|item| item.is_string() || item.is_number())
            .flat_map(text_values)
            .take(crate::event::MAX_ITEMS)
            .collect(),
        _ => Vec::new(),
    }
}

/// A moment that was written without an offset, interpreted in the zone's local time.
pub(super) fn to_zone(moment: Moment, zone: &Zone) -> Moment {
    let civil = Offset::UTC.to_datetime(moment.timestamp());
    zone.moment(zone.instant_at(civil.date(), civil.time()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn describe_statements(text: &str, which: StatementSelection) -> Vec<String> {
        let show = |said: &Statement| {
            let entity =
                said.entity.as_deref().map_or(String::new(), |entity| format!(" @{entity}"));
            let status = said.status.map_or(String::new(), |status| format!(" {status}"));
            format!(
                "{}:{} {}{status}{entity} {:?} {}",
                said.line, said.priority, said.kind, said.tags, said.text
            )
        };
        parse_statements(text, which).statements.iter().map(show).collect()
    }

    fn check(text: &str, expected: &[&str]) {
        assert_eq!(describe_statements(text, StatementSelection::All), expected, "{text}");
        assert_eq!(
            describe_statements(&text.replace('\n', "\r\n"), StatementSelection::All),
            expected,
            "with CRLF: {text}"
        );
        assert_eq!(
            describe_statements(&format!("\u{feff}{text}"), StatementSelection::All),
            expected,
            "with BOM: {text}"
        );
    }

    // L18
    #[test]
    fn headings_say_what_the_lines_under_them_are() {
        check(
            "# Memory\n## Preferences\n- Short answers\n",
            &["3:P1 preference [\"preferences\"] Short answers"],
        );
        check(
            "## Rules\n- Never deploy on Fridays\n- Budget is small\n- [P2] Must be polite\n",
            &[
                "2:P0 constraint [\"rules\"] Never deploy on Fridays",
                "3:P1 constraint [\"rules\"] Budget is small",
                "4:P2 constraint [\"rules\"] Must be polite",
            ],
        );
        check(
            "## Decisions\n1. One price for all\n",
            &["2:P1 decision [\"decisions\"] One price for all"],
        );
        check(
            "## How to release\n* tag, then push\n",
            &["2:P1 procedure [\"how\", \"release\"] tag, then push"],
        );
        check(
            "## TODO\n- [ ] call Mira\n- [x] pay rent\n- write to Jo\n",
            &[
                "2:P1 commitment open [\"todo\"] call Mira",
                "3:P1 commitment closed [\"todo\"] pay rent",
                "4:P1 commitment open [\"todo\"] write to Jo",
            ],
        );
        check(
            "## Accounts\nShop: 4711\nMail: a@b.example\n",
            &[
                "2:P1 fact [\"account\", \"accounts\"] Shop: 4711",
                "3:P1 fact [\"account\", \"accounts\"] Mail: a@b.example",
            ],
        );
        check(
            "## Mission\n> Make it\n> last.\n",
            &["2:P2 fact [\"mantra\", \"mission\"] Make it last."],
        );
        check("- [P0 decision] Use Rust\n", &["1:P0 decision [] Use Rust"]);
    }

    // L18
    #[test]
    fn a_line_takes_along_what_it_is_about() {
        check(
            "## People\n### Mira Voss\n- lives in Hamburg\n- Mira Voss works for Northwind\n\n### Projects\n- **Apollo**: ships in May\n",
            &[
                "3:P1 fact @Mira Voss [\"mira\", \"people\", \"voss\"] Mira Voss: lives in Hamburg",
                "4:P1 relationship @Mira Voss [\"mira\", \"people\", \"voss\"] Mira Voss works for Northwind",
                "7:P1 fact @Apollo [\"people\", \"projects\"] Apollo: ships in May",
            ],
        );
        check(
            "- Northwind:\n  - pays late\n    and never says so\n- else\n",
            &[
                "2:P1 constraint @Northwind [] Northwind: pays late and never says so",
                "4:P1 fact [] else",
            ],
        );
        check(
            "- **Port:** 7431\n- **Zed** \u{2014} an editor\n- **bold** words\n",
            &[
                "1:P1 fact @Port [] Port: 7431",
                "2:P1 fact @Zed [] Zed: an editor",
                "3:P1 fact [] **bold** words",
            ],
        );
    }

    // L18
    #[test]
    fn code_comments_tables_and_prose_stay_text() {
        let prose = "x".repeat(MAX_PARAGRAPH_BYTES + 1);
        for text in [
            "```\n- in a fence\n```\n",
            "~~~sh\n## Rules\n- in a fence\n",
            "<!-- - a\n- b\n-->\n",
            "| a | b |\n|---|---|\n| 1 | 2 |\n",
            "---\nname: x\n---\n",
            "*Last updated: 2026-01-01*\n",
            "---\n***\n",
            "## Only\n### headings\n",
            "- ...\n- \u{1b}\n",
            "- \n-\n",
            &prose,
            &format!("- {}\n", "y".repeat(5_000_000)),
        ] {
            check(text, &[]);
        }
        check(&prose[1..], &[&format!("1:P2 fact [] {}", &prose[1..])]);
    }

    // L18
    #[test]
    fn of_loose_notes_only_marked_lines_are_taken() {
        let text = "## Rules\n- never mind\n- [P1] keep this\nand this\n\n[P2] and a line\nnot this\n\n- Decided on oak\n- undecided on ash\n";
        assert_eq!(
            describe_statements(text, StatementSelection::Marked),
            [
                "3:P1 constraint [\"rules\"] keep this and this",
                "6:P2 constraint [\"rules\"] and a line",
                "9:P1 constraint [\"rules\"] Decided on oak"
            ]
        );
    }

    // L18
    #[test]
    fn an_index_does_nothing_but_list_files() {
        let index = "# Memory\n\n- [Role](role.md) \u{2014} who they are\n- [Tests](./tests.md)\n";
        assert_eq!(
            listed_topics(index).unwrap().into_iter().collect::<Vec<_>>(),
            ["role.md", "tests.md"]
        );
        for other in [
            "",
            "# Memory\n",
            "- [Role](role.md)\n- likes tea\n",
            "- [x](a/role.md)\n",
            "- [x](https://e.example)\n",
        ] {
            assert_eq!(listed_topics(other), None, "{other}");
        }
    }

    fn old(line: &str) -> Result<String, String> {
        let zone = Zone::from_name("Europe/Berlin").unwrap();
        let now = Moment::parse("2026-03-01T12:00:00+01:00").unwrap().moment;
        let events = parse_old_events(line.as_bytes(), now, &zone)?;
        let show = |event: &OldEvent| {
            let d = &event.draft;
            format!(
                "{} {} {} {:?} {:?} {:?} {:?} {}",
                d.ts,
                d.kind,
                d.priority,
                event.was,
                event.replaces,
                event.related,
                d.extra,
                d.content
            )
        };
        Ok(events.iter().map(show).collect::<Vec<_>>().join(" / "))
    }

    // L18
    #[test]
    fn older_ledgers_are_read_as_far_as_they_go() {
        let ours = r#"{"ts":"2026-01-28T14:03:11-05:00","id":"EVT-20260128-002","type":"fact","priority":"P1","content":"a","source":"live","supersedes":"EVT-20260128-001","related":["E-1"],"mood":"x"}"#;
        assert_eq!(
            old(ours).unwrap(),
            r#"2026-01-28T14:03:11-05:00 fact P1 "EVT-20260128-002" ["EVT-20260128-001"] ["E-1"] [("mood", "\"x\"")] a"#
        );
        let theirs = r#"{"timestamp":"2026-01-28 14:03","id":7,"category":"todo","text":"Send the offer","replaces":[3,"x"],"n":{"a":1}}"#;
        assert_eq!(
            old(theirs).unwrap(),
            r#"2026-01-28T14:03:00+01:00 commitment P2 "7" ["3", "x"] [] [("category", "\"todo\""), ("n", "{\"a\":1}")] Send the offer"#
        );
        assert!(
            old(r#"{"content":"no time"}"#)
                .unwrap()
                .starts_with("2026-03-01T12:00:00+01:00 fact P2 \"line-")
        );
        for bad in
            ["", "x", "[1]", "{}", r#"{"content":"  "}"#, r#"{"content":7}"#, "{\"content\":\"torn"]
        {
            assert!(old(bad).is_err(), "{bad}");
        }
    }

    // L18
    #[test]
    fn the_days_of_a_summary_are_found() {
        let (before, found) = parse_day_summaries(
            "intro\n---\n### 2026-02-03 (from 2 snapshots)\n\nBuilt it.\n\n---\n## 2026-02-04\nx\n### February 2026\n",
        );
        assert_eq!(before, 1);
        assert_eq!(
            found.iter().map(|told| format!("{} {:?}", told.day, told.lines)).collect::<Vec<_>>(),
            ["2026-02-03 [\"\", \"Built it.\", \"\"]", "2026-02-04 [\"x\", \"### February 2026\"]"]
        );
    }

    proptest! {
        // L18
        #[test]
        fn any_text_can_be_read(text in "([-*#>|`~: \\[\\]P0-9a-zäß\t]{0,12}\r?\n){0,20}|.{0,80}") {
            for which in [StatementSelection::All, StatementSelection::Marked] {
                let reading = parse_statements(&text, which);
                let used: usize = reading.statements.iter().map(|said| said.lines).sum();
                prop_assert!(used <= text.lines().filter(|line| !line.trim().is_empty()).count());
                prop_assert!(reading.statements.windows(2).all(|pair| pair[0].line < pair[1].line));
            }
            let _ = (listed_topics(&text), parse_day_summaries(&text), markdown::front_matter(&text));
        }
    }
}
