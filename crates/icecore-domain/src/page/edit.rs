//! Detects a person's edits of a page and turns them into event drafts (L4).
//!
//! The edits are computed from the current file and the current events; no other state is stored. A
//! file that was rendered some events ago is not an edit, a missing line is not a retraction, and
//! new text is recorded once.

use std::collections::{HashMap, HashSet};

use jiff::civil::Date;

use super::items::{
    self, ItemLocation, ItemMarks, PageItem, ParsedPage, frame_value, split_bullet, split_ids,
    split_marks,
};
use super::render::{
    PageContent, derived_summary, history_prefix, is_change_line, item_text, parse_aliases,
    parse_commitment, render,
};
use super::{
    ALIASES_TAG, NOTES_SECTION, PAGE_FIELD, PageKey, PageKind, SECTION_TAG, TITLE_TAG, TYPE_TAG,
    collapse_whitespace, is_about_page, section_of,
};
use crate::calendar::Moment;
use crate::event::{
    Act, EntityKind, Event, EventDraft, EventType, MAX_CONTENT_BYTES, Origin, Priority,
    SECTION_FIELD, guess_event_type,
};
use crate::id::EventId;
use crate::ledger::LedgerEntry;
use crate::sanitize;

/// Maximum size of a page file, in bytes.
pub const MAX_PAGE_BYTES: usize = 1024 * 1024;
/// Minimum similarity of a text to an event it names by id for it to count as an edit of the event.
const MIN_EDIT_SIMILARITY: f64 = 0.45;
/// Maximum number of characters compared for that.
const MAX_COMPARED_CHARS: usize = 1_000;
/// Maximum number of statements with a common line that are searched for the source of a fragment.
const MAX_SPLIT_CANDIDATES: usize = 32;

/// A person's edits of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageEdits {
    /// The edits in the order of the file.
    pub drafts: Vec<PageEdit>,
    /// Messages for the user.
    pub complaints: Vec<String>,
    /// Whether the file contains text that could not be read. Then it must not be overwritten.
    pub has_rejected_text: bool,
}

/// One edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageEdit {
    /// New or changed text.
    Assert {
        content: String,
        /// By the section, or guessed.
        kind: EventType,
        section: Option<String>,
        tags: Vec<String>,
        /// The kind of the page's entity, if the edit sets it.
        entity_kind: Option<EntityKind>,
        /// Events it replaces.
        supersedes: Vec<EventId>,
        /// Events it is related to.
        related: Vec<EventId>,
    },
    /// A statement still holds.
    Confirm(EventId),
    /// A statement was struck through.
    Retract(EventId),
    /// A commitment was checked off.
    Close(EventId),
}

impl PageEdit {
    /// The event that this edit acts on, if any.
    pub fn target(&self) -> Option<EventId> {
        match self {
            Self::Assert { supersedes, .. } => supersedes.first().copied(),
            Self::Confirm(id) | Self::Retract(id) | Self::Close(id) => Some(*id),
        }
    }

    /// The event draft. `entity` is the page's, `target` the event that [`Self::target`] names.
    pub fn draft(
        &self,
        key: &PageKey,
        entity: Option<&str>,
        target: Option<&Event>,
        now: Moment,
    ) -> EventDraft {
        let source = key.path().as_str().to_owned();
        let act = |act: Act, id: EventId, words: &str| match target {
            Some(target) => EventDraft::new_act(target, act, now, words),
            None => EventDraft {
                act,
                related: vec![id],
                ..EventDraft::new(now, EventType::Fact, Priority::P2, words)
            },
        };
        let draft = match self {
            Self::Confirm(id) => act(Act::Confirm, *id, "Verified on the page"),
            Self::Retract(id) => act(Act::Retract, *id, "Struck through on the page"),
            Self::Close(id) => act(Act::Close, *id, "Ticked off on the page"),
            Self::Assert { content, kind, section, tags, entity_kind, supersedes, related } => {
                let (content, due, waiting_on) = if *kind == EventType::Commitment {
                    parse_commitment(content)
                } else {
                    (content.clone(), None, None)
                };
                let entity = entity
                    .map(str::to_owned)
                    .or_else(|| target.and_then(|target| target.entity.clone()));
                let priority = target.map_or(default_priority(*kind), |target| target.priority);
                let mut draft = EventDraft {
                    entity_kind: entity_kind
                        .or_else(|| target.and_then(|target| target.entity_kind)),
                    tags: tags.clone(),
                    scope: target.map(|target| target.scope.clone()).unwrap_or_default(),
                    supersedes: supersedes.clone(),
                    related: related.clone(),
                    due,
                    waiting_on,
                    ..EventDraft::new(now, *kind, priority, content)
                };
                if let Some(section) = section {
                    draft = draft.with_extra_field(SECTION_FIELD, section);
                }
                // A page whose name differs from its entity's would not find events written into
                // it.
                if key.kind != PageKind::Entity
                    || entity
                        .as_deref()
                        .is_none_or(|entity| PageKey::new(PageKind::Entity, entity) != *key)
                {
                    draft = draft.with_extra_field(PAGE_FIELD, &source);
                }
                EventDraft { entity, ..draft }
            }
        };
        EventDraft { origin: Origin::File, source, ..draft }
    }
}

/// The default priority of a statement that a person wrote into a page.
fn default_priority(kind: EventType) -> Priority {
    match kind {
        EventType::Constraint | EventType::Decision | EventType::Relationship => Priority::P1,
        EventType::Fact | EventType::Preference | EventType::Commitment | EventType::Procedure => {
            Priority::P2
        }
    }
}

/// Detects a person's edits in `file`, the page of `key`. `entries` is everything known that
/// belongs to it, as for `render`.
pub fn detect_edits(key: &PageKey, file: &str, entries: &[LedgerEntry], today: Date) -> PageEdits {
    let refuse = |why: String| {
        let complaint =
            format!("{}: {why}; no edits were read and the file stays unchanged", key.path());
        PageEdits { drafts: Vec::new(), complaints: vec![complaint], has_rejected_text: true }
    };
    if file.len() > MAX_PAGE_BYTES {
        return refuse(format!("has {} bytes, the limit is {MAX_PAGE_BYTES}", file.len()));
    }
    // Event text never begins a line, so conflict markers there come from an unfinished merge.
    if let Some(at) =
        file.lines().position(|line| line.starts_with("<<<<<<<") || line.starts_with(">>>>>>>"))
    {
        return refuse(format!("has a merge conflict on line {}", at + 1));
    }
    // If an event contains a replacement character, a file may contain it too.
    let is_lossy = |text: &str| text.contains('\u{fffd}');
    if is_lossy(file)
        && !entries
            .iter()
            .any(|entry| is_lossy(&entry.event.content) || is_lossy(&entry.event.source))
    {
        return refuse("is not valid UTF-8".into());
    }
    let file = strip_torn_end(key, file, entries);
    let known = PageContent::new(key, entries);
    let titles: HashSet<String> = known.all_titles().into_iter().collect();
    let by_id: HashMap<EventId, &LedgerEntry> =
        entries.iter().map(|entry| (entry.event.id, entry)).collect();
    let sheet = items::parse_page(
        key.kind,
        file,
        |title| titles.contains(title),
        |id| by_id.contains_key(&id),
    );
    let mut reading = EditDetector::new(&known, by_id, today);
    reading.read_frame(&sheet, file, &titles);
    let pieces: Vec<ItemPiece> =
        sheet.items.iter().flat_map(|item| reading.split_item(item)).collect();
    let pieces = reading.regroup_steps(pieces);
    reading.torn = pieces
        .iter()
        .filter(|piece| piece.marks.is_none())
        .flat_map(|piece| reading.statements_containing(&piece.text))
        .collect();
    reading.untouched = pieces
        .iter()
        .filter_map(|piece| piece.marks.filter(|marks| reading.is_text_of(piece, marks.id)))
        .map(|marks| marks.id)
        .collect();
    for piece in &pieces {
        reading.read_piece(piece);
    }
    reading.read_headings(&sheet);
    PageEdits {
        drafts: reading.drafts,
        complaints: reading.complaints,
        has_rejected_text: reading.untaken,
    }
}

/// Whether another writer created the file of a page: it has none of our marks, and it contains
/// text that the rendered page does not. Such a file is read but never overwritten.
pub fn is_foreign(file: &str, rendered: &str) -> bool {
    if !super::referenced_ids(file).is_empty() {
        return false;
    }
    let ours: HashSet<&str> = rendered.lines().map(str::trim_end).collect();
    let mut lines = file.lines().map(str::trim_end).filter(|line| !line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        let is_torn = lines.peek().is_none() && ours.iter().any(|known| known.starts_with(line));
        if !ours.contains(line) && !is_torn {
            return true;
        }
    }
    false
}

/// Adds supersedes links for a foreign file, whose lines do not name events. A new statement
/// replaces the most similar statement of this file that is no longer in it.
pub fn supersede_changed_lines(
    edits: &mut PageEdits,
    file: &str,
    path: &str,
    entries: &[LedgerEntry],
) {
    let file = collapse_whitespace(file);
    let is_gone = |entry: &&LedgerEntry| {
        let event = &entry.event;
        entry.state.is_active()
            && event.is_statement()
            && event.source == path
            && !file.contains(&collapse_whitespace(&event.content))
    };
    let mut gone: Vec<&LedgerEntry> = entries.iter().filter(is_gone).collect();
    for edit in &mut edits.drafts {
        let PageEdit::Assert { content, supersedes, tags, .. } = edit else { continue };
        if !supersedes.is_empty() || !tags.is_empty() || content.len() > MAX_COMPARED_CHARS {
            continue;
        }
        let likeness =
            |entry: &LedgerEntry| strsim::normalized_levenshtein(content, &entry.event.content);
        let best = gone
            .iter()
            .enumerate()
            .map(|(at, entry)| (likeness(entry), at))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((_, at)) = best.filter(|(likeness, _)| *likeness >= MIN_EDIT_SIMILARITY) {
            supersedes.push(gone.remove(at).event.id);
        }
    }
}

/// The file without a torn last line: the beginning of a generated line whose rest is missing.
fn strip_torn_end<'a>(key: &PageKey, file: &'a str, entries: &[LedgerEntry]) -> &'a str {
    let start = file.rfind('\n').map_or(0, |at| at + 1);
    let last = &file[start..];
    if last.trim().is_empty() {
        return file;
    }
    let whole = render(key, entries).text;
    let torn_from = whole.lines().filter(|line| line.len() > last.len() && line.starts_with(last));
    let present: HashSet<&str> = file.lines().collect();
    if torn_from.into_iter().any(|line| !present.contains(line)) { &file[..start] } else { file }
}

/// Whether the file was rendered after that event: its list of changes names it. Elsewhere any text
/// may name it.
fn was_rendered_after(file: &str, id: EventId) -> bool {
    let id = id.to_string();
    let mut named = false;
    for line in file.lines().rev() {
        if line.trim_end() == "## Changes" {
            return named;
        }
        named |= line.starts_with("- ") && line.contains(&id);
    }
    false
}

/// A part of an item that belongs together: text and the marks at its end.
#[derive(Clone)]
struct ItemPiece {
    place: ItemLocation,
    text: String,
    marks: Option<ItemMarks>,
    /// The marks were on a line of their own.
    apart: bool,
    numbered: bool,
    adjacent: bool,
}

struct EditDetector<'a> {
    known: &'a PageContent<'a>,
    by_id: HashMap<EventId, &'a LedgerEntry>,
    today: Date,
    /// Which events were confirmed when, in any state.
    confirmations: HashSet<(EventId, Date)>,
    /// The texts already on the page.
    said: HashSet<String>,
    /// The lines of multi-line statements, and the statements that contain them.
    lines: HashMap<String, Vec<usize>>,
    /// The same lines without bullets.
    inner_lines: HashSet<String>,
    blocks: Vec<(EventId, Vec<String>)>,
    /// Statements of which lines are in the file without their marks.
    torn: HashSet<EventId>,
    /// Events whose text is unchanged in the file.
    untouched: HashSet<EventId>,
    taken: HashSet<String>,
    acted: HashSet<EventId>,
    drafts: Vec<PageEdit>,
    complaints: Vec<String>,
    untaken: bool,
}

/// A key that is equal for texts that say the same; for a text of marks only, the marks.
fn comparison_key(text: &str) -> String {
    let key = sanitize::sameness_key(text);
    if key.is_empty() { collapse_whitespace(text) } else { key }
}

/// The non-empty lines of a text, with single spaces.
fn content_lines(text: &str) -> Vec<String> {
    text.lines().map(collapse_whitespace).filter(|line| !line.is_empty()).collect()
}

fn is_same_text(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

/// Whether `some` are lines of `all`, in order. The first line of a fragment may have lost its
/// bullet.
fn is_part_of(some: &[String], all: &[String]) -> bool {
    let mut rest = all.iter();
    some.iter().enumerate().all(|(at, line)| {
        rest.any(|known| {
            known == line
                || (at == 0 && split_bullet(known).is_some_and(|(inner, ..)| inner == line))
        })
    })
}

/// Whether one text has exactly the lines of the other in a different order.
fn is_reordered(one: &[String], other: &[String]) -> bool {
    let sorted = |lines: &[String]| {
        let mut lines = lines.to_vec();
        lines.sort();
        lines
    };
    one.len() == other.len() && sorted(one) == sorted(other)
}

impl<'a> EditDetector<'a> {
    fn new(
        known: &'a PageContent<'a>,
        by_id: HashMap<EventId, &'a LedgerEntry>,
        today: Date,
    ) -> Self {
        let (mut said, mut inner_lines) = (HashSet::new(), HashSet::new());
        let (mut lines, mut blocks) = (HashMap::<String, Vec<usize>>::new(), Vec::new());
        for entry in known.listed_statements() {
            let shown = item_text(&entry.event);
            said.insert(comparison_key(&entry.event.content));
            if shown.contains('\n') {
                let block = content_lines(&shown);
                for line in &block {
                    inner_lines.extend(split_bullet(line).map(|(inner, ..)| inner.to_owned()));
                    lines.entry(line.clone()).or_default().push(blocks.len());
                }
                blocks.push((entry.event.id, block));
            }
            said.insert(comparison_key(&shown));
        }
        Self {
            known,
            by_id,
            today,
            confirmations: known.confirmations(),
            said,
            lines,
            inner_lines,
            blocks,
            torn: HashSet::new(),
            untouched: HashSet::new(),
            taken: HashSet::new(),
            acted: HashSet::new(),
            drafts: Vec::new(),
            complaints: Vec::new(),
            untaken: false,
        }
    }

    fn complain(&mut self, what: &str) {
        self.complaints.push(format!("{}: {what}", self.known.key.path()));
    }

    /// Reads the title, type and aliases. An earlier value is an edit only in a file rendered after
    /// the newest event; otherwise the file is merely older.
    fn read_frame(&mut self, sheet: &ParsedPage, file: &str, titles: &HashSet<String>) {
        let is_current = self
            .known
            .reported_changes()
            .next_back()
            .is_none_or(|newest| was_rendered_after(file, newest.event.id));
        let replaced = |tag: &str| {
            self.known
                .newest_tagged(tag)
                .map(|entry| entry.event.id)
                .into_iter()
                .collect::<Vec<_>>()
        };
        let mut title = self.known.title();
        let mut found: Vec<(String, &str, Option<EntityKind>, Vec<EventId>)> = Vec::new();
        if let Some(new) = sheet.title.as_ref().filter(|new| {
            !new.is_empty() && **new != title && (is_current || !titles.contains(*new))
        }) {
            found.push((new.clone(), TITLE_TAG, None, replaced(TITLE_TAG)));
            title.clone_from(new);
        }
        let value =
            |name: &str| sheet.frame.iter().rev().find_map(|line| frame_value(line, &[name]));
        if self.known.key.kind == PageKind::Entity {
            match value("Type")
                .filter(|value| !value.eq_ignore_ascii_case("unknown") && !value.is_empty())
                .map(str::parse::<EntityKind>)
            {
                Some(Ok(kind))
                    if Some(kind) != self.known.entity_kind()
                        && (is_current || !self.known.all_entity_kinds().contains(&kind)) =>
                {
                    let article = if kind == EntityKind::Account { "an" } else { "a" };
                    found.push((
                        format!("{title} is {article} {kind}"),
                        TYPE_TAG,
                        Some(kind),
                        replaced(TYPE_TAG),
                    ));
                }
                Some(Err(error)) => self.complain(&error.to_string()),
                _ => {}
            }
            let aliases = value("Aliases").map(parse_aliases).unwrap_or_default();
            if !aliases.is_empty()
                && aliases != self.known.aliases()
                && (is_current || !self.known.all_alias_lists().contains(&aliases))
            {
                found.push((aliases.join(", "), ALIASES_TAG, None, replaced(ALIASES_TAG)));
            }
        }
        for (content, tag, entity_kind, supersedes) in found {
            let content = sanitize::clean(&content).text;
            let (kind, section, tags) = (EventType::Fact, None, vec![tag.to_owned()]);
            self.drafts.push(PageEdit::Assert {
                content,
                kind,
                section,
                tags,
                entity_kind,
                supersedes,
                related: Vec::new(),
            });
        }
    }

    /// Splits an item at the marks in it. An event's text may look like marks; comparing with the
    /// known texts finds where it ends.
    fn split_item(&self, item: &PageItem) -> Vec<ItemPiece> {
        let weight = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
        let marked: Vec<Option<(String, ItemMarks)>> =
            item.lines.iter().map(|line| split_marks(line)).collect();
        let wanted: Vec<(usize, Option<usize>)> = item
            .lines
            .iter()
            .zip(&marked)
            .map(|(line, marked)| match marked {
                Some((text, marks)) => (
                    weight(text),
                    self.by_id.get(&marks.id).map(|entry| weight(&item_text(&entry.event))),
                ),
                None => (weight(line), None),
            })
            .collect();
        // The length of the text before each line, including marks.
        let mut before: Vec<usize> = vec![0];
        for line in &item.lines {
            before.push(before.last().copied().unwrap_or_default() + weight(line));
        }
        let text_of = |start: usize, end: usize| {
            let last =
                marked.get(end).and_then(Option::as_ref).map_or("", |(text, _)| text.as_str());
            let lines = item
                .lines
                .get(start..end)
                .unwrap_or_default()
                .iter()
                .map(String::as_str)
                .chain([last]);
            lines.collect::<Vec<_>>().join("\n")
        };
        let mut pieces = Vec::new();
        let mut start = 0;
        while start < item.lines.len() {
            let ends = || {
                (start..item.lines.len())
                    .filter(|end| marked.get(*end).is_some_and(Option::is_some))
            };
            let is_whole = |end: &usize| {
                let Some((own, Some(wanted))) = wanted.get(*end) else { return false };
                let weighs =
                    before.get(*end).zip(before.get(start)).map(|(to, from)| to - from + own);
                let id = marked.get(*end).and_then(Option::as_ref).map(|(_, marks)| marks.id);
                *wanted > 0
                    && weighs == Some(*wanted)
                    && id.and_then(|id| self.by_id.get(&id)).is_some_and(|entry| {
                        is_same_text(&text_of(start, *end), &item_text(&entry.event))
                    })
            };
            // Otherwise split at the first marks that are not part of an event's text. An id alone
            // within a text only mentions an event.
            let is_mark = |end: &usize| {
                let Some((_, marks)) = marked.get(*end).and_then(Option::as_ref) else {
                    return false;
                };
                let ours = self.by_id.contains_key(&marks.id) && (!marks.bare || *end == start);
                (ours || *end + 1 == item.lines.len())
                    && item
                        .lines
                        .get(*end)
                        .is_some_and(|line| !self.is_statement_line(&collapse_whitespace(line)))
            };
            let end = ends().rev().find(is_whole).or_else(|| ends().find(is_mark));
            let (text, marks, next) = match end {
                Some(end) => (
                    text_of(start, end),
                    marked.get(end).and_then(Option::as_ref).map(|(_, marks)| *marks),
                    end + 1,
                ),
                None => {
                    (item.lines.get(start..).unwrap_or_default().join("\n"), None, item.lines.len())
                }
            };
            let text = text.trim().to_owned();
            let inner = (start > 0 && marks.is_none() && !text.contains('\n'))
                .then(|| split_bullet(&text).map(|(inner, ..)| inner.to_owned()))
                .flatten();
            let apart = end.is_some_and(|end| {
                end > start
                    && marked
                        .get(end)
                        .and_then(Option::as_ref)
                        .is_some_and(|(own, _)| own.is_empty())
            });
            let (numbered, adjacent) = (item.numbered && start == 0, item.adjacent || start > 0);
            pieces.push(ItemPiece {
                place: item.place.clone(),
                text: inner.unwrap_or(text),
                marks,
                apart,
                numbered,
                adjacent,
            });
            start = next;
        }
        pieces
    }

    /// Regroups the steps of a procedure that were one statement: its marks are below the last
    /// step.
    fn regroup_steps(&self, pieces: Vec<ItemPiece>) -> Vec<ItemPiece> {
        let mut out: Vec<ItemPiece> = Vec::with_capacity(pieces.len());
        for mut piece in pieces {
            let is_step = |piece: &ItemPiece| {
                piece.numbered
                    && matches!(&piece.place, ItemLocation::Section(name) if name == "Steps")
            };
            let entry = piece.marks.and_then(|marks| self.by_id.get(&marks.id));
            if let Some(entry) = entry.filter(|_| {
                self.known.key.kind == PageKind::Procedure && piece.apart && is_step(&piece)
            }) {
                let wanted: HashSet<String> =
                    content_lines(&item_text(&entry.event)).into_iter().collect();
                let mut steps = vec![std::mem::take(&mut piece.text)];
                while piece.adjacent
                    && let Some(above) = out.last().filter(|above| is_step(above) && above.marks.is_none() && !above.text.contains('\n'))
                    // Another statement's text stays with that statement, even if its marks are
                    // misplaced.
                    && (wanted.contains(&collapse_whitespace(&above.text)) || !self.is_known(&above.text))
                {
                    steps.push(above.text.clone());
                    piece.adjacent = above.adjacent;
                    out.pop();
                }
                steps.reverse();
                piece.text = steps.join("\n");
            }
            out.push(piece);
        }
        out
    }

    /// Whether the page already has this text, as a whole or as consecutive lines of a longer one.
    fn is_known(&self, text: &str) -> bool {
        if self.said.contains(&comparison_key(text)) {
            return true;
        }
        text.trim().is_empty() || !self.statements_containing(text).is_empty()
    }

    /// The statements that contain the lines of this text consecutively.
    fn statements_containing(&self, text: &str) -> Vec<EventId> {
        let spoken = content_lines(text);
        let Some(first) = spoken.first() else { return Vec::new() };
        let blocks = self.lines.get(first).map(Vec::as_slice).unwrap_or_default();
        let blocks = blocks.iter().take(MAX_SPLIT_CANDIDATES).filter_map(|at| self.blocks.get(*at));
        let follow = |block: &[String]| block.windows(spoken.len()).any(|run| run == spoken);
        blocks.filter(|(_, block)| follow(block)).map(|(id, _)| *id).collect()
    }

    /// Whether this is a line of a multi-line statement, possibly without its bullet.
    fn is_statement_line(&self, line: &str) -> bool {
        self.lines.contains_key(line) || self.inner_lines.contains(line)
    }

    /// Whether every line belongs to some multi-line statement: fragments with nothing new in them.
    fn has_only_known_lines(&self, spoken: &[String]) -> bool {
        let mut spoken = spoken.iter();
        spoken.next().is_some_and(|line| self.is_statement_line(line))
            && spoken.all(|line| self.lines.contains_key(line))
    }

    fn is_text_of(&self, piece: &ItemPiece, id: EventId) -> bool {
        self.by_id.get(&id).is_some_and(|entry| is_same_text(&piece.text, &item_text(&entry.event)))
    }

    fn read_piece(&mut self, piece: &ItemPiece) {
        match (&piece.place, piece.marks) {
            (_, marks) if self.read_derived(piece, marks) => {}
            (_, Some(marks)) if self.read_summary(piece, marks) => {}
            (_, Some(marks)) => self.read_marked(piece, marks),
            (_, None) if self.is_known(&piece.text) => {}
            (_, None) => match self.find_inner_marks(&piece.text) {
                Some((text, marks)) => {
                    self.read_marked(&ItemPiece { text, ..piece.clone() }, marks)
                }
                None => self.add_statement(&piece.text, &piece.place, Vec::new()),
            },
        }
    }

    /// Skips a derived line, wherever it is. A person's text among derived lines is a note.
    fn read_derived(&mut self, piece: &ItemPiece, marks: Option<ItemMarks>) -> bool {
        // Derived lines have no source and no date; a moved item has both.
        if marks.is_some_and(|marks| !marks.bare && self.by_id.contains_key(&marks.id)) {
            return false;
        }
        let (first, rest) = piece.text.split_once('\n').unwrap_or((&piece.text, ""));
        let is_history = marks.and_then(|marks| self.by_id.get(&marks.id)).is_some_and(|entry| {
            let head = history_prefix(entry);
            first.starts_with(&head) && rest.is_empty()
        });
        let notes = ItemLocation::Section(NOTES_SECTION.to_owned());
        let related: Vec<EventId> = marks.map(|marks| marks.id).into_iter().collect();
        match (is_history, is_change_line(first)) {
            (true, _) => {}
            (false, true) => self.add_statement(rest, &notes, Vec::new()),
            (false, false) if piece.place == ItemLocation::Derived => {
                self.add_statement(&piece.text, &notes, related)
            }
            (false, false) => return false,
        }
        true
    }

    /// Reads a derived summary, if this is one: an unchanged one is skipped, a changed one is the
    /// person's.
    fn read_summary(&mut self, piece: &ItemPiece, marks: ItemMarks) -> bool {
        if !marks.bare || self.known.key.kind != PageKind::Entity {
            return false;
        }
        let whole = format!("{} [{}]", piece.text, marks.id);
        let (text, ids) = split_ids(&whole);
        let entries: Vec<&LedgerEntry> =
            ids.iter().filter_map(|id| self.by_id.get(id).copied()).collect();
        let in_summary =
            |entry: &&LedgerEntry| section_of(self.known.key, &entry.event) == "Summary";
        if entries.is_empty() || entries.iter().any(in_summary) {
            return false;
        }
        let ours = entries.len() == ids.len() && is_same_text(text, &derived_summary(&entries));
        if !ours && piece.place == ItemLocation::Section("Summary".into()) {
            self.add_statement(text, &piece.place, ids);
            return true;
        }
        ours
    }

    /// Marks in the middle of a text: a person continued writing after them.
    fn find_inner_marks(&self, text: &str) -> Option<(String, ItemMarks)> {
        let at = text.rfind("[EVT-")?;
        let end = at + text[at..].find(']')? + 1;
        let line = text[..at].rfind('\n').map_or(0, |at| at + 1);
        let line = text[line..].lines().next().unwrap_or_default();
        if self.is_statement_line(&collapse_whitespace(line)) {
            return None;
        }
        let (before, marks) = split_marks(&text[..end])?;
        let after = text[end..].trim_start_matches([' ', '\t']);
        let joint = if after.starts_with('\n') { "" } else { " " };
        (!marks.bare && self.by_id.contains_key(&marks.id))
            .then(|| (format!("{before}{joint}{after}"), marks))
    }

    fn read_marked(&mut self, piece: &ItemPiece, marks: ItemMarks) {
        // Marks without text mean nothing. A person's text may end with an event id or consist of
        // one.
        if piece.text.is_empty() && !marks.bare {
            return;
        }
        let named =
            if marks.bare { format!("{} [{}]", piece.text, marks.id) } else { piece.text.clone() };
        let is_item = |entry: &&LedgerEntry| {
            entry.event.is_statement()
                && !is_about_page(&entry.event)
                && !item_text(&entry.event).is_empty()
        };
        let Some(entry) = self.by_id.get(&marks.id).copied().filter(is_item) else {
            return self.add_statement(&named, &piece.place, vec![marks.id]);
        };
        let (id, shown) = (marks.id, item_text(&entry.event));
        let holds = entry.state.is_active();
        if is_same_text(&piece.text, &shown) {
            let later =
                marks.verified.is_some_and(|day| day > entry.verified.day() && day <= self.today);
            let known = marks.verified.is_some_and(|day| self.confirmations.contains(&(id, day)));
            if later && !known && holds && self.acted.insert(id) {
                self.drafts.push(PageEdit::Confirm(id));
            }
            return;
        }
        let ticked = ["[x] ", "[X] "].iter().any(|tick| {
            piece.text.strip_prefix(tick).is_some_and(|rest| is_same_text(rest, &shown))
        });
        if ticked && entry.is_open_loop() && self.acted.insert(id) {
            self.drafts.push(PageEdit::Close(id));
            return;
        }
        let struck =
            piece.text.len() > 4 && piece.text.starts_with("~~") && piece.text.ends_with("~~");
        let (spoken, said) = (content_lines(&piece.text), content_lines(&shown));
        if spoken.is_empty() {
            self.add_statement(&named, &piece.place, vec![id]);
        } else if is_part_of(&spoken, &said)
            || (self.has_only_known_lines(&spoken) && !is_reordered(&spoken, &said))
        {
            // A missing line is not a retraction, within a statement as elsewhere.
            self.complain(&format!("lines of {id} are missing and will be restored; strike the statement through or reword it to change it"));
        } else if struck {
            if holds && self.acted.insert(id) {
                self.drafts.push(PageEdit::Retract(id));
            }
        } else if marks.bare && !is_similar(&piece.text, &shown) {
            self.add_statement(&named, &piece.place, vec![id]);
        } else if holds
            && !self.untouched.contains(&id)
            && !self.torn.contains(&id)
            && !self.acted.contains(&id)
        {
            let Some(content) = self.sanitize_text(&piece.text) else { return };
            self.acted.insert(id);
            self.taken.insert(comparison_key(&content));
            let stood = section_of(self.known.key, &entry.event);
            let moved = match &piece.place {
                ItemLocation::Section(name) if *name != stood => Some(name.clone()),
                _ => None,
            };
            let kind =
                moved.as_ref().map_or(entry.event.kind, |name| event_type_in(Some(name), &content));
            let section = moved.or_else(|| super::explicit_section(self.known.key, &entry.event));
            let tags = entry.event.tags.clone();
            self.drafts.push(PageEdit::Assert {
                content,
                kind,
                section,
                tags,
                entity_kind: None,
                supersedes: vec![id],
                related: Vec::new(),
            });
        } else {
            self.add_statement(&piece.text, &piece.place, vec![id]);
        }
    }

    /// The text, sanitized and limited to an event's maximum length.
    fn sanitize_text(&mut self, text: &str) -> Option<String> {
        let cleaned = sanitize::clean(text);
        if cleaned.text.len() > MAX_CONTENT_BYTES {
            let begin: String = cleaned.text.chars().take(40).collect();
            let bytes = cleaned.text.len();
            self.complain(&format!(
                "`{}…` has {bytes} bytes, the limit is {MAX_CONTENT_BYTES}; the page is not rewritten until it is shorter",
                sanitize::one_line(&begin)
            ));
            self.untaken = true;
            return None;
        }
        if cleaned.removed > 0 {
            self.complain(&format!("{} control characters removed", cleaned.removed));
        }
        (!cleaned.text.is_empty()).then_some(cleaned.text)
    }

    /// Records a person's text, unless the page already has it.
    fn add_statement(&mut self, text: &str, place: &ItemLocation, related: Vec<EventId>) {
        if self.is_known(&sanitize::clean(text).text) {
            return;
        }
        let Some(content) = self.sanitize_text(text) else { return };
        if !self.taken.insert(comparison_key(&content)) {
            return;
        }
        let section = match place {
            ItemLocation::Section(name) => Some(name.clone()),
            ItemLocation::Head => None,
            ItemLocation::Derived => Some(NOTES_SECTION.to_owned()),
        };
        let kind = event_type_in(section.as_deref(), &content);
        self.drafts.push(PageEdit::Assert {
            content,
            kind,
            section,
            tags: Vec::new(),
            entity_kind: None,
            supersedes: Vec::new(),
            related,
        });
    }

    /// Records sections that a person created and left empty.
    fn read_headings(&mut self, sheet: &ParsedPage) {
        let known: HashSet<String> = self.known.custom_sections(true).into_iter().collect();
        let filled: HashSet<String> = self.drafts.iter().filter_map(section_of_edit).collect();
        for name in
            sheet.headings.iter().filter(|name| !known.contains(*name) && !filled.contains(*name))
        {
            self.drafts.push(PageEdit::Assert {
                content: name.clone(),
                kind: EventType::Fact,
                section: Some(name.clone()),
                tags: vec![SECTION_TAG.to_owned()],
                entity_kind: None,
                supersedes: Vec::new(),
                related: Vec::new(),
            });
        }
    }
}

fn section_of_edit(edit: &PageEdit) -> Option<String> {
    match edit {
        PageEdit::Assert { section, .. } => section.clone(),
        PageEdit::Confirm(_) | PageEdit::Retract(_) | PageEdit::Close(_) => None,
    }
}

/// The event type for text that a person wrote into a section.
fn event_type_in(section: Option<&str>, text: &str) -> EventType {
    match (section, guess_event_type(text)) {
        (Some("Relationships"), _) => EventType::Relationship,
        (Some("Steps"), _) => EventType::Procedure,
        (Some("Rule"), _) => EventType::Constraint,
        (Some("Active Context"), EventType::Commitment) => EventType::Commitment,
        (Some("Active Context"), _) | (_, EventType::Commitment) => EventType::Fact,
        (_, guessed) => guessed,
    }
}

fn is_similar(one: &str, other: &str) -> bool {
    if one.len().max(other.len()) > MAX_COMPARED_CHARS {
        return true;
    }
    one.starts_with(other) || strsim::normalized_levenshtein(one, other) >= MIN_EDIT_SIMILARITY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::LoopStatus;
    use crate::ledger::Ledger;
    use jiff::civil::date;
    use proptest::prelude::*;

    const TODAY: Date = date(2026, 6, 1);

    fn moment(day: usize, minute: usize) -> Moment {
        let (month, day) = (2 + day / 28, 1 + day % 28);
        Moment::parse(&format!("2026-{month:02}-{day:02}T09:{:02}:00+01:00", minute % 60))
            .unwrap()
            .moment
    }

    fn now() -> Moment {
        Moment::parse("2026-06-01T12:00:00+02:00").unwrap().moment
    }

    fn fact(number: u32, content: &str) -> Event {
        let ts = moment(0, number as usize);
        let draft = EventDraft {
            entity: Some("apollo".into()),
            ..EventDraft::new(ts, EventType::Fact, Priority::P2, content)
        };
        draft.with_id(EventId::new(ts.day(), number))
    }

    fn apollo() -> PageKey {
        PageKey::new(PageKind::Entity, "apollo")
    }

    fn entries(events: &[Event]) -> Vec<LedgerEntry> {
        Ledger::from_events(events.iter().cloned()).entries().to_vec()
    }

    fn entity(key: &PageKey) -> Option<&'static str> {
        (key.kind == PageKind::Entity).then_some("apollo")
    }

    /// The events after the edits were recorded.
    fn apply_edits(key: &PageKey, events: &[Event], edits: &PageEdits) -> Vec<Event> {
        let mut all = events.to_vec();
        for (at, edit) in edits.drafts.iter().enumerate() {
            let target = edit.target().and_then(|id| events.iter().find(|event| event.id == id));
            let draft = edit.draft(key, entity(key), target, now()).sanitize().unwrap().0;
            let root =
                target.cloned().unwrap_or_else(|| draft.clone().with_id(EventId::new(TODAY, 1)));
            let event = draft.with_id(EventId::new(TODAY, u32::try_from(at).unwrap() + 1));
            assert!(
                super::super::page_keys(&event, &root).contains(key),
                "{event:?} is not on {key}"
            );
            all.push(event);
        }
        all
    }

    fn describe_edits(edits: &PageEdits) -> Vec<String> {
        let ids =
            |ids: &[EventId]| ids.iter().map(|id| format!(" {}", id.number())).collect::<String>();
        let tell = |edit: &PageEdit| match edit {
            PageEdit::Assert { content, kind, section, tags, supersedes, related, .. } => {
                let section = section.as_deref().unwrap_or("-");
                format!(
                    "{kind} {section} {tags:?}{}{}: {content}",
                    ids(supersedes),
                    if related.is_empty() { "".into() } else { format!(" ~{}", ids(related)) }
                )
            }
            PageEdit::Confirm(id) => format!("confirm {}", id.number()),
            PageEdit::Retract(id) => format!("retract {}", id.number()),
            PageEdit::Close(id) => format!("close {}", id.number()),
        };
        edits.drafts.iter().map(tell).collect()
    }

    /// Renders the page of these facts, replaces `old` with `new` and checks the detected edits.
    fn check(facts: &[&str], old: &str, new: &str, expected: &[&str]) {
        let events: Vec<Event> =
            facts.iter().zip(1..).map(|(content, number)| fact(number, content)).collect();
        let text = render(&apollo(), &entries(&events)).text;
        assert!(text.contains(old), "{old} is not in {text}");
        let file = text.replacen(old, new, 1);
        let found = detect_edits(&apollo(), &file, &entries(&events), TODAY);
        assert_eq!(describe_edits(&found), expected, "{file}");
        let after = apply_edits(&apollo(), &events, &found);
        let again = detect_edits(&apollo(), &file, &entries(&after), TODAY);
        assert_eq!(describe_edits(&again), [""; 0], "a second time: {file}");
        let rendered = render(&apollo(), &entries(&after)).text;
        assert_eq!(
            describe_edits(&detect_edits(&apollo(), &rendered, &entries(&after), TODAY)),
            [""; 0],
            "{rendered}"
        );
    }

    // L4
    #[test]
    fn what_a_person_writes_becomes_events() {
        let end = "## Key Facts\n";
        let with = |line: &str| format!("{end}{line}\n");
        check(&["one"], end, &with("- two"), &["fact Key Facts []: two"]);
        check(
            &["one"],
            end,
            &with("a paragraph\nof two lines"),
            &["fact Key Facts []: a paragraph\nof two lines"],
        );
        check(
            &["one"],
            end,
            &with("```sh\n# no heading\n\nmake\n```"),
            &["fact Key Facts []: ```sh\n# no heading\n\nmake\n```"],
        );
        check(
            &["one"],
            end,
            &with("<!-- mind\n\n## this -->"),
            &["fact Key Facts []: <!-- mind\n\n## this -->"],
        );
        check(
            &["one"],
            end,
            &with("- two\n  with more\n\n  and more"),
            &["fact Key Facts []: two\nwith more\n\nand more"],
        );
        check(&["one"], end, &with("- two\n- two.\n* Two"), &["fact Key Facts []: two"]);
        check(&["one"], end, &with("- One."), &[]);
        check(&["one"], end, &with("---\n\n***"), &[]);
        check(&["one"], end, &with("- send the offer"), &["fact Key Facts []: send the offer"]);
        check(
            &["one"],
            "## Relationships\n",
            "## Relationships\n- knows Mira\n",
            &["relationship Relationships []: knows Mira"],
        );
        check(
            &["one"],
            "## Summary\n",
            "## Summary\nA moon shot.\n",
            &["fact Summary []: A moon shot."],
        );
        check(
            &["one"],
            "## History\n",
            "## Risks\n- fire\n## Empty\n\n## History\n",
            &["fact Risks []: fire", "fact Empty [\"section\"]: Empty"],
        );
        check(
            &["one"],
            "## History\n",
            "## History\n- it began in spring\n",
            &["fact Notes []: it began in spring"],
        );
    }

    // L4
    #[test]
    fn a_promise_is_one_only_where_promises_stand() {
        let end = "## Active Context\n";
        check(
            &["one"],
            end,
            &format!("{end}- send the offer (due 2026-07-01, waiting on Mira)\n- it is late\n"),
            &[
                "commitment Active Context []: send the offer (due 2026-07-01, waiting on Mira)",
                "fact Active Context []: it is late",
            ],
        );
        let promise = PageEdit::Assert {
            content: "send it (due 2026-07-01)".into(),
            kind: EventType::Commitment,
            section: None,
            tags: Vec::new(),
            entity_kind: None,
            supersedes: Vec::new(),
            related: Vec::new(),
        };
        let draft = promise.draft(&apollo(), Some("apollo"), None, now());
        assert_eq!(
            (draft.content.as_str(), draft.due, draft.status),
            ("send it", Some(date(2026, 7, 1)), Some(LoopStatus::Open))
        );
        assert_eq!(
            (draft.origin, draft.source.as_str()),
            (Origin::File, "knowledge/entities/apollo.md")
        );
    }

    // L4
    #[test]
    fn a_changed_line_replaces_its_event() {
        check(
            &["starts in May", "two"],
            "- starts in May",
            "- starts in June",
            &["fact - [] 1: starts in June"],
        );
        check(
            &["one"],
            "one [source: live] [verified: 2026-02-01] ",
            "one or more ",
            &["fact - [] 1: one or more"],
        );
        check(&["one"], "- one [", "- ~~one~~ [", &["retract 1"]);
        check(
            &["one"],
            "[EVT-20260201-001]\n\n",
            "[EVT-20260201-001] and more\n\n",
            &["fact - [] 1: one and more"],
        );
        check(&["one"], "[verified: 2026-02-01]", "[verified: 2026-05-01]", &["confirm 1"]);
        check(&["one"], "[verified: 2026-02-01]", "[verified: 2026-08-01]", &[]);
        check(&["one"], "[verified: 2026-02-01]", "[verified: 2025-08-01]", &[]);
    }

    // L4
    #[test]
    fn naming_an_event_is_not_changing_it() {
        let end = "## Key Facts\n";
        let (line, told) = (
            "because of what was said in [EVT-20260201-001]",
            "fact Key Facts [] ~ 1: because of what was said in [EVT-20260201-001]",
        );
        check(&["one"], end, &format!("{end}- {line}\n"), &[told]);
        // A copy of a line is a new statement next to it.
        let copy = "- one more [source: live] [verified: 2026-02-01] [EVT-20260201-001]";
        check(&["one"], end, &format!("{end}{copy}\n"), &["fact Key Facts [] ~ 1: one more"]);
        let elsewhere = "- from elsewhere [source: live] [verified: 2026-02-01] [EVT-20250101-001]";
        check(
            &["one"],
            end,
            &format!("{end}{elsewhere}\n"),
            &["fact Key Facts [] ~ 1: from elsewhere"],
        );
    }

    // L4
    #[test]
    fn what_stands_above_the_sections_can_be_changed() {
        check(&["one"], "# Apollo", "# Apollo Eleven", &["fact - [\"title\"]: Apollo Eleven"]);
        check(
            &["one"],
            "*Type: unknown*",
            "*Type: project*",
            &["fact - [\"type\"]: Apollo is a project"],
        );
        check(&["one"], "*Type: unknown*", "*Type: rocket*", &[]);
        check(
            &["one"],
            "*Last",
            "*Aliases: AP, Eleven,, AP*\n*Last",
            &["fact - [\"aliases\"]: AP, Eleven"],
        );
        check(&["one"], "*Last updated: 2026-02-01*", "*Last updated: 2030-01-01*", &[]);
        let found = detect_edits(&apollo(), "*Type: rocket*\n", &entries(&[fact(1, "one")]), TODAY);
        assert!(found.drafts.is_empty() && found.complaints.len() == 1);
    }

    // L4
    #[test]
    fn a_title_is_reverted_only_from_a_page_with_the_newest_title() {
        let titled = |number, content: &str, supersedes: Vec<EventId>| {
            let event = fact(number, content);
            EventDraft {
                tags: vec!["title".into()],
                supersedes,
                source: apollo().path().to_string(),
                ..event.draft
            }
            .with_id(event.id)
        };
        let first = titled(1, "First", Vec::new());
        let second = titled(2, "Second", vec![first.id]);
        let (old, new) = (entries(std::slice::from_ref(&first)), entries(&[first, second]));
        assert_eq!(
            describe_edits(&detect_edits(&apollo(), &render(&apollo(), &old).text, &new, TODAY)),
            [""; 0]
        );
        let back = render(&apollo(), &new).text.replace("# Second", "# First");
        assert_eq!(
            describe_edits(&detect_edits(&apollo(), &back, &new, TODAY)),
            ["fact - [\"title\"] 2: First"]
        );
    }

    // L4, L12
    #[test]
    fn a_damaged_file_gives_nothing_but_a_complaint() {
        let known = entries(&[fact(1, "one")]);
        let text = render(&apollo(), &known).text;
        let large = "- x\n".repeat(MAX_PAGE_BYTES / 4 + 1);
        for file in [
            format!("{text}<<<<<<< HEAD\n- two\n"),
            format!("{text}- tw\u{fffd}o\n"),
            format!("# \u{fffd}\n{text}"),
            large,
        ] {
            let found = detect_edits(&apollo(), &file, &known, TODAY);
            assert!(found.drafts.is_empty() && found.complaints.len() == 1, "{found:?}");
        }
        let long =
            format!("{text}\n## Key Facts\n- {}\n- two\n", "x".repeat(MAX_CONTENT_BYTES + 1));
        let found = detect_edits(&apollo(), &long, &known, TODAY);
        assert_eq!(
            (describe_edits(&found), found.complaints.len()),
            (vec!["fact Key Facts []: two".to_owned()], 1)
        );
        assert_eq!(detect_edits(&apollo(), "", &known, TODAY), PageEdits::default());
        assert_eq!(
            describe_edits(&detect_edits(
                &apollo(),
                &format!("\u{feff}{}", text.replace('\n', "\r\n")),
                &known,
                TODAY
            )),
            [""; 0]
        );
    }

    // L4
    #[test]
    fn steps_are_edited_together() {
        let key = PageKey::new(PageKind::Procedure, "deploy");
        let mut event = fact(1, "run make\npush\ntell Mira");
        event.draft.kind = EventType::Procedure;
        let known = entries(&[event]);
        let text = render(&key, &known).text;
        assert!(text.contains("1. run make\n2. push\n3. tell Mira\n   [source: live]"), "{text}");
        let check = |old: &str, new: &str, expected: &[&str]| {
            let file = text.replacen(old, new, 1);
            assert_eq!(
                describe_edits(&detect_edits(&key, &file, &known, TODAY)),
                expected,
                "{file}"
            );
        };
        check(
            "2. push\n",
            "2. test\n3. push\n",
            &["procedure - [] 1: run make\ntest\npush\ntell Mira"],
        );
        check("2. push\n", "", &[]);
        check(
            "1. run make\n2. push",
            "1. push\n2. run make",
            &["procedure - [] 1: push\nrun make\ntell Mira"],
        );
        check(
            "   [source",
            "4. rest\n   [source",
            &["procedure - [] 1: run make\npush\ntell Mira\nrest"],
        );
        check("## Notes", "- rest a while\n## Notes", &["procedure Steps []: rest a while"]);
    }

    /// Texts that look like parts of a page, and ordinary ones.
    const PIECES: &[&str] = &[
        "alpha",
        "beta",
        "Γάμμα",
        "東京",
        " ",
        " ",
        "\n",
        "\n",
        "\n\n",
        "  ",
        "\t",
        "# ",
        "## Key Facts",
        "## Changes",
        "---",
        "```",
        "```sh",
        "~~",
        "- ",
        "* ",
        "1. ",
        "> ",
        "<!--",
        "-->",
        "[EVT-20260201-001]",
        "[EVT-20260202-005]",
        "[source: live]",
        "[verified: 2026-02-01]",
        " [source: live] [verified: 2026-02-01] [EVT-20260201-001]",
        "[source: x",
        "]",
        "[",
        "(due 2026-03-01)",
        "*Type: person*",
        "Steps",
        ": ",
        "2026-02-01: added EVT-20260201-001",
        "<<<<<<< HEAD",
        "\u{fffd}",
        "\u{1b}",
        ".",
        "!",
        "…",
        "\\",
        "\u{a0}",
        "send",
    ];

    fn hostile() -> impl Strategy<Value = String> {
        let piece = prop_oneof![9 => prop::sample::select(PIECES.to_vec()).prop_map(str::to_owned), 1 => any::<char>().prop_map(String::from)];
        prop::collection::vec(piece, 1..9).prop_map(|pieces| pieces.concat())
    }

    /// An event in short: its text, its type, and its act on an earlier event.
    type Plan = (
        String,
        (usize, usize, usize),
        Option<usize>,
        Option<usize>,
        (usize, usize),
        Option<String>,
    );

    fn plans() -> impl Strategy<Value = Vec<Plan>> {
        let tag = prop::option::weighted(0.2, 0_usize..5);
        let section = prop::option::weighted(0.3, 0_usize..12);
        let plan = (
            hostile(),
            (0_usize..7, 0_usize..4, 0_usize..5),
            section,
            tag,
            (0_usize..9, 0_usize..20),
            prop::option::of(hostile()),
        );
        prop::collection::vec(plan, 0..9)
    }

    fn page_key(kind: usize) -> PageKey {
        PageKey::new(PageKind::ALL[kind % PageKind::ALL.len()], "apollo")
    }

    fn events(key: &PageKey, plans: &[Plan]) -> Vec<Event> {
        const SECTIONS: &[&str] = &[
            "Summary",
            "key facts",
            "Own",
            "Other",
            "Notes",
            "History",
            "Changes",
            "Steps",
            "Rule",
            " # x\n",
            "\u{1b}[31m",
            "Relationships",
        ];
        let mut events: Vec<Event> = Vec::new();
        for (at, (content, (kind, priority, origin), section, tag, (act, target), source)) in
            plans.iter().enumerate()
        {
            let ts = moment(at / 3, at);
            let mut draft = EventDraft::new(
                ts,
                EventType::ALL[*kind],
                Priority::ALL[*priority],
                content.clone(),
            );
            draft.entity = entity(key).map(Into::into);
            draft.origin = Origin::ALL[*origin];
            draft.tags = tag
                .map(|tag| ["title", "aliases", "type", "section", "other"][tag].to_owned())
                .into_iter()
                .collect();
            draft.entity_kind = (*target % 3 == 0).then(|| EntityKind::ALL[*target % 5]);
            if let Some(source) = source {
                draft.source = source.clone();
            }
            if tag.is_some_and(|tag| tag < 4) && *target % 4 != 0 {
                draft.source = key.path().to_string();
            }
            if draft.kind == EventType::Commitment && *target % 2 == 0 {
                draft.due = Some(date(2026, 3, 1));
                draft.waiting_on = source.clone();
            }
            if let Some(section) = section {
                draft = draft.with_extra_field(SECTION_FIELD, &SECTIONS[*section]);
            }
            if key.kind != PageKind::Entity {
                draft = draft.with_extra_field(PAGE_FIELD, &key.path().as_str());
            }
            if let Some(target) = events.get(*target).map(|event| event.id) {
                match act {
                    0 | 1 => draft.supersedes = vec![target],
                    2 => (draft.act, draft.related) = (Act::Retract, vec![target]),
                    3 => (draft.act, draft.related) = (Act::Close, vec![target]),
                    4 | 5 => (draft.act, draft.related) = (Act::Confirm, vec![target]),
                    _ => {}
                }
            }
            events.push(draft.with_id(EventId::new(ts.day(), u32::try_from(at).unwrap() + 1)));
        }
        events
    }

    /// Lines a person might write; `{}` is a unique word.
    const LINES: &[&str] = &[
        "- {}",
        "* {} and more",
        "1. {}",
        "{}",
        "{} must be sent",
        "  {}",
        "    {}",
        "## {}",
        "### {}",
        "# {}",
        "> {}",
        "<!-- {} -->",
        "<!-- {}",
        "```",
        "```{}",
        "~~{}~~",
        "| {} | x |",
        "- [ ] {}",
        "- send {} (due 2026-07-01)",
        "---",
        "",
        "- {} [EVT-20260201-001]",
        "\t{}",
        "~~~",
        "**{}**",
        "- {}:",
        "#{}",
    ];

    fn seed() -> proptest::test_runner::RngSeed {
        match ProptestConfig::default().rng_seed {
            proptest::test_runner::RngSeed::Random => {
                proptest::test_runner::RngSeed::Fixed(20_260_213)
            }
            chosen => chosen,
        }
    }

    proptest! {
        // A fixed seed makes runs reproducible; set PROPTEST_RNG_SEED to try other cases.
        #![proptest_config(ProptestConfig { cases: 400, rng_seed: seed(), ..ProptestConfig::default() })]

        // L4: our own rendering, current or older, is not an edit.
        #[test]
        fn our_own_words_are_no_edits(kind in 0_usize..4, plans in plans(), seen in 0_usize..10) {
            let key = page_key(kind);
            let events = events(&key, &plans);
            let text = render(&key, &entries(&events)).text;
            prop_assert_eq!(detect_edits(&key, &text, &entries(&events), TODAY), PageEdits::default(), "{}", text);
            let older = render(&key, &entries(&events[..seen.min(events.len())])).text;
            prop_assert_eq!(detect_edits(&key, &older, &entries(&events), TODAY).drafts, [], "{}", older);
        }

        // L4: a person's text is recorded once and is on the page afterwards.
        #[test]
        fn nothing_a_person_writes_is_lost(
            kind in 0_usize..4,
            plans in plans(),
            written in prop::collection::vec((0_usize..100, 0_usize..LINES.len()), 1..6),
        ) {
            // If multi-line statements share a line, it is ambiguous which one a person wrote into;
            // and text that looks like a heading is parsed as one.
            let mut said = HashSet::new();
            let all = plans.iter().flat_map(|plan| plan.0.lines()).map(str::trim).filter(|line| !line.is_empty());
            prop_assume!(all.into_iter().all(|line| said.insert(line.to_owned())));
            let heads = |text: &str| text.lines().count() > 1 && text.lines().any(|line| line.trim_start().starts_with('#'));
            prop_assume!(!plans.iter().any(|plan| heads(&plan.0)));
            let key = page_key(kind);
            let events = events(&key, &plans);
            let before = entries(&events);
            let text = render(&key, &before).text;
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            for (n, (at, line)) in written.iter().enumerate() {
                lines.insert(at % (lines.len() + 1), LINES[*line].replace("{}", &format!("novel{n}")));
            }
            let file = lines.join("\n") + "\n";
            let found = detect_edits(&key, &file, &before, TODAY);
            let after = apply_edits(&key, &events, &found);
            let rendered = render(&key, &entries(&after)).text;
            for (n, (_, line)) in written.iter().enumerate() {
                let word = format!("novel{n}");
                prop_assert!(!LINES[*line].contains("{}") || rendered.contains(&word), "{} is not in\n{}\nof\n{}", word, rendered, file);
            }
            prop_assert_eq!(detect_edits(&key, &file, &entries(&after), TODAY).drafts, [], "again\n{}", file);
            prop_assert_eq!(detect_edits(&key, &rendered, &entries(&after), TODAY).drafts, [], "{}", rendered);
        }

        // L4: missing lines retract nothing.
        #[test]
        fn lines_that_are_missing_lose_nothing(
            kind in 0_usize..4,
            plans in plans(),
            gone in prop::collection::vec(any::<bool>(), 80),
            cut in prop::option::of(0_usize..2_000),
        ) {
            let key = page_key(kind);
            let events = events(&key, &plans);
            let before = entries(&events);
            let text = render(&key, &before).text;
            let file: String = match cut {
                Some(cut) => text[..text.floor_char_boundary(cut)].to_owned(),
                None => text.lines().zip(gone.iter().chain(std::iter::repeat(&false))).filter(|(_, gone)| !**gone).map(|(line, _)| format!("{line}\n")).collect(),
            };
            let found = detect_edits(&key, &file, &before, TODAY);
            for edit in &found.drafts {
                prop_assert!(matches!(edit, PageEdit::Assert { supersedes, .. } if supersedes.is_empty()), "{:?}\nof\n{}\nfrom\n{}", edit, file, text);
            }
            let after = entries(&apply_edits(&key, &events, &found));
            let rendered = collapse_whitespace(&render(&key, &after).text);
            for entry in PageContent::new(&key, &before).listed_statements() {
                for line in content_lines(&item_text(&entry.event)) {
                    prop_assert!(rendered.contains(&line), "{} is not in {}", line, rendered);
                }
            }
        }

        // L4
        #[test]
        fn the_order_of_events_does_not_matter(kind in 0_usize..4, plans in plans(), turn in 0_usize..9) {
            let key = page_key(kind);
            let sorted = entries(&events(&key, &plans));
            let mut turned = sorted.clone();
            turned.rotate_left(turn.min(sorted.len()));
            prop_assert_eq!(render(&key, &turned), render(&key, &sorted));
            turned.reverse();
            prop_assert_eq!(render(&key, &turned), render(&key, &sorted));
        }

        #[test]
        fn any_file_is_read(file in hostile(), more in ".{0,200}", plans in plans()) {
            let key = page_key(0);
            let events = events(&key, &plans);
            let file = format!("{file}{more}");
            let found = detect_edits(&key, &file, &entries(&events), TODAY);
            let after = apply_edits(&key, &events, &found);
            let rendered = render(&key, &entries(&after)).text;
            prop_assert_eq!(detect_edits(&key, &rendered, &entries(&after), TODAY).drafts, [], "{}", rendered);
        }
    }
}
