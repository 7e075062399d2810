//! Selects the content of a recall pack, section by section and in order, before any limit applies.
//!
//! Superseded, retracted, expired and quarantined statements are excluded. Every item is exactly
//! one line: foreign text cannot start a line of its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use icecore_text::normalize::collapse_spaces;
use jiff::Timestamp;
use jiff::civil::Date;

use super::{RecallInput, SectionWords};
use crate::budget::{self, Omission};
use crate::calendar::days_between;
use crate::capture_filter;
use crate::event::{EventType, Priority};
use crate::id::EventId;
use crate::ledger::LedgerEntry;
use crate::ledger::decay::{self, DecayLimits, Freshness};
use crate::sanitize;
use crate::trigger::{IndexedText, TriggerPhrase};

/// The number of oldest open commitments that are always included (L7).
pub const ALWAYS_SHOWN_COMMITMENTS: usize = 3;
/// The most words of one statement; only P0 is never shortened.
const MAX_CONTENT_WORDS: usize = 60;
/// The most bytes of one, for very long words and scripts without spaces.
const MAX_CONTENT_BYTES: usize = 1_200;
/// The most words of a statement that is repeated in short.
const MAX_REPEATED_WORDS: usize = 15;
/// The most words quoted of one side of a conflict.
const MAX_QUOTE_WORDS: usize = 30;
/// The most words of a name.
const MAX_NAME_WORDS: usize = 8;
/// The fewest words of an old commitment when space is short.
const MIN_COMMITMENT_WORDS: usize = 6;
/// The approximate number of words around the content of a commitment.
const COMMITMENT_FRAME_WORDS: usize = 16;
/// The most words of a sentence about a problem.
const MAX_TROUBLE_WORDS: usize = 40;
/// The most problems that are listed.
const MAX_TROUBLES: usize = 10;
/// The most events of one conflict that are quoted.
const MAX_CONFLICT_QUOTES: usize = 4;
/// The most items in focus.
const MAX_FOCUS_ITEMS: usize = 5;
/// A commitment due within this many days is in focus.
const DUE_SOON_DAYS: i64 = 7;
/// The most ids that a line lists as references.
const MAX_LISTED_IDS: usize = 10;

const MANTRA_TAG: &str = "mantra";
const ACCOUNT_TAG: &str = "account";

/// The headings, in order.
pub(super) const SECTION_HEADINGS: [&str; 8] = [
    "🔴 P0 CONSTRAINTS",
    "🎯 THE MANTRA",
    "📋 OPEN COMMITMENTS",
    "⏳ WAITING ON",
    "🎯 TODAY'S FOCUS",
    "🧠 CONTEXT",
    "📚 PROCEDURES",
    "🔑 ACCOUNTS",
];
pub(super) const P0_SECTION: usize = 0;
pub(super) const MANTRA_SECTION: usize = 1;
pub(super) const OPEN_SECTION: usize = 2;
pub(super) const WAITING_SECTION: usize = 3;
pub(super) const FOCUS_SECTION: usize = 4;
pub(super) const CONTEXT_SECTION: usize = 5;
pub(super) const PROCEDURES_SECTION: usize = 6;
pub(super) const ACCOUNTS_SECTION: usize = 7;

/// A line of a pack.
#[derive(Debug, Clone)]
pub(super) struct PackLine {
    pub text: String,
    /// The events it mentions.
    pub ids: Vec<EventId>,
    /// The events it states, which later lines need not repeat.
    pub tells: Vec<EventId>,
    /// Whether it is omitted once those events were stated.
    pub once: bool,
    /// Whether it is always included.
    pub always: bool,
    /// Whether its content was shortened.
    pub cut: bool,
}

impl PackLine {
    /// A line that only refers to events. Marks in it are disarmed before its words are counted.
    pub(super) fn new(text: &str, ids: Vec<EventId>) -> Self {
        Self {
            text: capture_filter::escape_markers(text).into_owned(),
            ids,
            tells: Vec::new(),
            once: false,
            always: false,
            cut: false,
        }
    }

    fn for_entry(entry: &LedgerEntry, content: &OneLineText, text: &str) -> Self {
        Self {
            tells: vec![entry.event.id],
            once: true,
            cut: content.cut,
            ..Self::new(text, vec![entry.event.id])
        }
    }

    fn always_shown(self) -> Self {
        Self { always: true, ..self }
    }

    pub(super) fn word_count(&self) -> usize {
        budget::count_words(&self.text)
    }
}

/// The lines of a section, most important first, and the number of further lines that never fit.
#[derive(Debug, Clone, Default)]
pub(super) struct SectionLines {
    pub lines: Vec<PackLine>,
    pub beyond: Vec<EventId>,
}

/// The complete selection.
pub(super) struct RecallSelection {
    pub sections: [SectionLines; 8],
    pub left_out: Vec<Omission>,
}

/// Foreign text on one line.
pub(in crate::packs) struct OneLineText {
    pub(in crate::packs) text: String,
    pub(in crate::packs) cut: bool,
}

/// The first `words` words of a text.
pub(in crate::packs) fn first_words(text: &str, words: usize) -> OneLineText {
    let mut rest = text.split_whitespace();
    // One of them is the ellipsis.
    let words = words.max(2);
    let mut kept = rest.by_ref().take(words).collect::<Vec<_>>().join(" ");
    let mut cut = rest.next().is_some();
    if cut && let Some(blank) = kept.rfind(' ') {
        kept.truncate(blank);
    }
    if kept.len() > MAX_CONTENT_BYTES {
        let end = kept.floor_char_boundary(MAX_CONTENT_BYTES);
        let blank =
            kept.get(..end).and_then(|kept| kept.rfind(' ')).filter(|blank| blank * 2 > end);
        kept.truncate(blank.unwrap_or(end));
        cut = true;
    }
    let mut text = sanitize::one_line(&kept);
    if cut {
        text.push_str(" ...");
    }
    OneLineText { text, cut }
}

/// A whole text on one line.
fn full_text(text: &str) -> OneLineText {
    OneLineText { text: sanitize::one_line(&collapse_spaces(text)), cut: false }
}

/// The content of an event; P0 is never shortened.
fn event_text(entry: &LedgerEntry, words: usize) -> OneLineText {
    if entry.event.priority == Priority::P0 {
        full_text(&entry.event.content)
    } else {
        first_words(&entry.event.content, words)
    }
}

/// The due date of a commitment, relative to `day`.
fn due_note(entry: &LedgerEntry, day: Date) -> Option<String> {
    let due = entry.event.due?;
    Some(match days_between(day, due) {
        0 => format!("due {due} (today)"),
        days if days < 0 => format!("due {due} (overdue {} d)", -days),
        days => format!("due {due} (in {days} d)"),
    })
}

fn age_days(entry: &LedgerEntry, day: Date) -> i64 {
    days_between(entry.event.ts.day(), day).max(0)
}

/// An open commitment with its age, its due date and whom it waits for.
pub(in crate::packs) fn format_commitment(
    entry: &LedgerEntry,
    content: &OneLineText,
    day: Date,
) -> String {
    let event = &entry.event;
    let mut text =
        format!("- {} [{}] open {} d", content.text, event.priority, age_days(entry, day));
    if let Some(due) = due_note(entry, day) {
        text.push_str(", ");
        text.push_str(&due);
    }
    if let Some(whom) = &event.waiting_on {
        text.push_str(", waiting on ");
        text.push_str(&first_words(whom, MAX_NAME_WORDS).text);
    }
    format!("{text} ({})", event.id)
}

/// The sort key by age, oldest first.
pub(in crate::packs) fn by_age(entry: &LedgerEntry) -> (Timestamp, EventId) {
    (entry.event.ts.timestamp(), entry.event.id)
}

/// The sort key by recency, newest first.
fn by_recency(entry: &LedgerEntry) -> (Reverse<Timestamp>, EventId) {
    (Reverse(entry.verified.timestamp()), entry.event.id)
}

/// The recency class: last confirmed within 48 hours, a week, a month, or earlier.
fn recency(entry: &LedgerEntry, day: Date) -> u8 {
    match days_between(entry.verified.day(), day) {
        ..=1 => 0,
        2..=7 => 1,
        8..=30 => 2,
        _ => 3,
    }
}

fn has_tag(entry: &LedgerEntry, tag: &str) -> bool {
    entry.event.tags.iter().any(|known| known == tag)
}

/// The current topics: the entities of the focus, the open commitments and the log.
#[derive(Default)]
struct TodayTopics<'a> {
    entities: HashSet<&'a str>,
    tags: HashSet<&'a str>,
}

impl<'a> TodayTopics<'a> {
    fn add(&mut self, entry: &'a LedgerEntry) {
        self.entities.extend(entry.event.entity.as_deref());
        self.tags.extend(entry.event.tags.iter().map(String::as_str));
    }

    /// Adds the names of entries that occur in the log.
    fn add_from_log(&mut self, log: &str, entries: &[&'a LedgerEntry]) {
        let spoken = IndexedText::new(log);
        let said = |names: HashSet<&'a str>| {
            names.into_iter().filter(|name| {
                TriggerPhrase::parse(name).is_some_and(|name| spoken.contains(&name))
            })
        };
        self.entities.extend(said(
            entries.iter().filter_map(|entry| entry.event.entity.as_deref()).collect(),
        ));
        self.tags.extend(said(
            entries.iter().flat_map(|entry| &entry.event.tags).map(String::as_str).collect(),
        ));
    }

    fn is_relevant(&self, entry: &LedgerEntry) -> bool {
        entry.event.entity.as_deref().is_some_and(|name| self.entities.contains(name))
            || entry.event.tags.iter().any(|tag| self.tags.contains(tag.as_str()))
    }
}

/// The day of the pack and the decay limits.
struct SelectionContext<'a> {
    day: Date,
    ages: DecayLimits,
    shown: HashMap<EventId, &'a LedgerEntry>,
    withheld: HashSet<EventId>,
    today: TodayTopics<'a>,
    most: usize,
}

/// Selects the content.
pub(super) fn select_content(
    day: Date,
    known: &RecallInput<'_>,
    words: SectionWords,
    ages: DecayLimits,
) -> RecallSelection {
    let mut left_out = Vec::new();
    let mut all: BTreeMap<EventId, &LedgerEntry> = BTreeMap::new();
    for entry in known.statements.iter().chain(known.open) {
        // Of duplicate ids one is kept; which one must not depend on the input order.
        let first = all.entry(entry.event.id).or_insert(entry);
        if (entry.line, &entry.event.content) < (first.line, &first.event.content) {
            *first = entry;
        }
    }
    let mut choice = SelectionContext {
        day,
        ages,
        shown: HashMap::new(),
        withheld: HashSet::new(),
        today: TodayTopics::default(),
        most: words.total().max(ALWAYS_SHOWN_COMMITMENTS),
    };
    let mut expired = 0;
    let mut entries: Vec<&LedgerEntry> = Vec::new();
    for (id, entry) in all {
        let over = decay::has_expired(entry, day, ages);
        if !entry.state.is_active() || !entry.event.is_statement() || entry.is_quarantined() || over
        {
            expired += usize::from(over && entry.state.is_active());
            choice.withheld.insert(id);
        } else {
            choice.shown.insert(id, entry);
            entries.push(entry);
        }
    }
    if expired > 0 {
        left_out.push(Omission::new(count_noun(expired, "statement"), "they have expired"));
    }

    let (mut open, statements): (Vec<&LedgerEntry>, Vec<&LedgerEntry>) =
        entries.into_iter().partition(|entry| entry.is_open_loop());
    open.sort_by_key(|entry| by_age(entry));
    open.iter().for_each(|entry| choice.today.add(entry));
    let fading: Vec<&LedgerEntry> = statements
        .iter()
        .copied()
        .filter(|entry| choice.freshness(entry) == Freshness::Dropped)
        .collect();
    choice.today.add_from_log(known.log, &fading);

    let mantra = statements
        .iter()
        .copied()
        .filter(|entry| has_tag(entry, MANTRA_TAG))
        .max_by_key(|entry| by_age(entry));
    let [mut rules, mut accounts, mut procedures, mut others]: [Vec<&LedgerEntry>; 4] =
        Default::default();
    let mut older_mantras = 0;
    for entry in statements
        .iter()
        .copied()
        .filter(|entry| mantra.is_none_or(|mantra| mantra.event.id != entry.event.id))
    {
        if has_tag(entry, ACCOUNT_TAG) {
            accounts.push(entry);
        } else if entry.event.priority == Priority::P0 {
            rules.push(entry);
        } else if has_tag(entry, MANTRA_TAG) {
            older_mantras += 1;
        } else if entry.event.kind == EventType::Procedure {
            procedures.push(entry);
        } else {
            others.push(entry);
        }
    }
    if older_mantras > 0 {
        left_out.push(Omission::new(
            count_noun(older_mantras, "older mantra"),
            "only the newest one is shown",
        ));
    }

    let (focus, soon) = choice.focus_entries(&open, &others);
    if soon > MAX_FOCUS_ITEMS {
        left_out.push(Omission::new(
            format!("{} of {soon} commitments that are due soon", soon - MAX_FOCUS_ITEMS),
            format!("at most {MAX_FOCUS_ITEMS} in {}", SECTION_HEADINGS[FOCUS_SECTION]),
        ));
    }
    focus.iter().for_each(|entry| choice.today.add(entry));
    let before = others.len() + accounts.len();
    for aging in [&mut others, &mut accounts] {
        aging.retain(|entry| {
            choice.freshness(entry) != Freshness::Dropped || choice.today.is_relevant(entry)
        });
    }
    let faded = before - others.len() - accounts.len();
    if faded > 0 {
        let why = format!("unconfirmed for {} days and not related to today", ages.dropped_days);
        left_out.push(Omission::new(count_noun(faded, "statement"), why));
    }
    if known.not_loaded > 0 {
        left_out.push(Omission::new(count_noun(known.not_loaded, "older statement"), "not loaded"));
    }

    rules.sort_by_key(|entry| (entry.event.kind != EventType::Constraint, by_age(entry)));
    accounts.sort_by_key(|entry| (entry.event.entity.clone(), entry.event.id));
    let room = (words.open / ALWAYS_SHOWN_COMMITMENTS)
        .saturating_sub(COMMITMENT_FRAME_WORDS)
        .clamp(MIN_COMMITMENT_WORDS, MAX_CONTENT_WORDS);
    let sections = [
        SectionLines {
            lines: rules.iter().map(|entry| choice.statement_line(entry).always_shown()).collect(),
            beyond: Vec::new(),
        },
        SectionLines {
            lines: mantra.map(|entry| mantra_line(entry, words.mantra)).into_iter().collect(),
            beyond: Vec::new(),
        },
        choice.commitment_lines(&open, room),
        choice.waiting_lines(&open),
        SectionLines {
            lines: focus.iter().map(|entry| choice.focus_line(entry)).collect(),
            beyond: Vec::new(),
        },
        choice.context_lines(known, &focus, &open, others),
        choice.procedure_lines(procedures, &rules),
        choice.section_lines(&accounts, |entry| {
            let line = choice.statement_line(entry);
            if entry.event.priority == Priority::P0 { line.always_shown() } else { line }
        }),
    ];
    RecallSelection { sections, left_out }
}

fn count_noun(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The mantra, in at most `words` words.
fn mantra_line(entry: &LedgerEntry, words: usize) -> PackLine {
    let line = |most| {
        let content = first_words(&entry.event.content, most);
        PackLine::for_entry(entry, &content, &format!("- {} ({})", content.text, entry.event.id))
            .always_shown()
    };
    let most = words.min(MAX_CONTENT_WORDS);
    (2..=most).rev().map(line).find(|line| line.word_count() <= words).unwrap_or_else(|| line(2))
}

impl<'a> SelectionContext<'a> {
    fn freshness(&self, entry: &LedgerEntry) -> Freshness {
        decay::freshness(entry, self.day, self.ages)
    }

    /// The staleness mark of a statement.
    fn staleness_mark(&self, entry: &LedgerEntry) -> String {
        match self.freshness(entry) {
            Freshness::Fresh => String::new(),
            Freshness::Stale | Freshness::Dropped => {
                format!(" ⚠️ STALE {} d", days_between(entry.verified.day(), self.day))
            }
        }
    }

    fn statement_line(&self, entry: &LedgerEntry) -> PackLine {
        let content = event_text(entry, MAX_CONTENT_WORDS);
        PackLine::for_entry(
            entry,
            &content,
            &format!("- {}{} ({})", content.text, self.staleness_mark(entry), entry.event.id),
        )
    }

    /// One line per entry, up to the number that could fit: a line has more than one word.
    fn section_lines(
        &self,
        entries: &[&LedgerEntry],
        line: impl Fn(&LedgerEntry) -> PackLine,
    ) -> SectionLines {
        let mut listed = SectionLines::default();
        for (at, entry) in entries.iter().enumerate() {
            if at < self.most || entry.event.priority == Priority::P0 {
                listed.lines.push(line(entry));
            } else {
                listed.beyond.push(entry.event.id);
            }
        }
        listed
    }

    fn commitment_lines(&self, open: &[&LedgerEntry], room: usize) -> SectionLines {
        let oldest: Vec<EventId> =
            open.iter().take(ALWAYS_SHOWN_COMMITMENTS).map(|entry| entry.event.id).collect();
        self.section_lines(open, |entry| {
            let among = oldest.contains(&entry.event.id);
            let content = event_text(entry, if among { room } else { MAX_CONTENT_WORDS });
            let line =
                PackLine::for_entry(entry, &content, &format_commitment(entry, &content, self.day));
            if among || entry.event.priority == Priority::P0 { line.always_shown() } else { line }
        })
    }

    fn waiting_lines(&self, open: &[&LedgerEntry]) -> SectionLines {
        let waiting: Vec<&LedgerEntry> =
            open.iter().copied().filter(|entry| entry.event.waiting_on.is_some()).collect();
        self.section_lines(&waiting, |entry| {
            let whom =
                first_words(entry.event.waiting_on.as_deref().unwrap_or_default(), MAX_NAME_WORDS);
            let what = first_words(&entry.event.content, MAX_REPEATED_WORDS);
            let text = format!(
                "- {}: {}, {} d ({})",
                whom.text,
                what.text,
                age_days(entry, self.day),
                entry.event.id
            );
            PackLine::new(&text, vec![entry.event.id])
        })
    }

    /// The entries in focus, and the number of commitments due soon.
    fn focus_entries(
        &self,
        open: &[&'a LedgerEntry],
        others: &[&'a LedgerEntry],
    ) -> (Vec<&'a LedgerEntry>, usize) {
        let is_soon = |entry: &LedgerEntry| {
            entry.event.due.is_some_and(|due| days_between(self.day, due) <= DUE_SOON_DAYS)
        };
        let matters = |entry: &LedgerEntry| entry.event.priority <= Priority::P1;
        let (mut soon, later): (Vec<&LedgerEntry>, Vec<&LedgerEntry>) =
            open.iter().copied().partition(|entry| is_soon(entry));
        soon.sort_by_key(|entry| (entry.event.due, by_age(entry)));
        let holds = |entry: &LedgerEntry| {
            self.freshness(entry) != Freshness::Dropped || self.today.is_relevant(entry)
        };
        let mut rest: Vec<&LedgerEntry> =
            later.into_iter().chain(others.iter().copied().filter(|entry| holds(entry))).collect();
        rest.retain(|entry| matters(entry));
        rest.sort_by_key(|entry| by_recency(entry));
        let count = soon.len();
        (soon.into_iter().chain(rest).take(MAX_FOCUS_ITEMS).collect(), count)
    }

    fn focus_line(&self, entry: &LedgerEntry) -> PackLine {
        let id = entry.event.id;
        if entry.is_open_loop() {
            let due = due_note(entry, self.day).map_or(String::new(), |due| format!(", {due}"));
            let told = first_words(&entry.event.content, MAX_REPEATED_WORDS).text;
            let told =
                if due.is_empty() { told.as_str() } else { told.trim_end_matches(['.', ' ']) };
            return PackLine::new(&format!("- {told}{due} ({id})"), vec![id]);
        }
        let content = event_text(entry, MAX_CONTENT_WORDS);
        let (priority, kind) = (entry.event.priority, entry.event.kind);
        PackLine::for_entry(
            entry,
            &content,
            &format!("- {} [{priority} {kind}]{} ({id})", content.text, self.staleness_mark(entry)),
        )
    }

    fn context_lines(
        &self,
        known: &RecallInput<'_>,
        focus: &[&LedgerEntry],
        open: &[&LedgerEntry],
        mut others: Vec<&LedgerEntry>,
    ) -> SectionLines {
        let mut lines = trouble_lines(known.troubles);
        lines.extend(self.conflict_lines(known));
        let mut seen = HashSet::new();
        for entity in focus
            .iter()
            .chain(open.iter().take(ALWAYS_SHOWN_COMMITMENTS))
            .filter_map(|entry| entry.event.entity.as_deref())
        {
            if let Some(summary) = known
                .about
                .get(entity)
                .filter(|summary| !summary.trim().is_empty() && seen.insert(entity))
            {
                let name = first_words(&entity.replace('_', " "), MAX_NAME_WORDS).text;
                let summary = first_words(summary, MAX_CONTENT_WORDS);
                lines.push(PackLine {
                    cut: summary.cut,
                    ..PackLine::new(&format!("- {name}: {}", summary.text), Vec::new())
                });
            }
        }
        others.sort_by_key(|entry| {
            (recency(entry, self.day), entry.event.priority, by_recency(entry))
        });
        let listed = self.section_lines(&others, |entry| {
            let content = event_text(entry, MAX_CONTENT_WORDS);
            let event = &entry.event;
            let (said, priority, kind) = (event.ts.day(), event.priority, event.kind);
            let text = format!(
                "- {said} {} [{priority} {kind}]{} ({})",
                content.text,
                self.staleness_mark(entry),
                event.id
            );
            PackLine::for_entry(entry, &content, &text)
        });
        lines.extend(listed.lines);
        if known.quarantined > 0 {
            let waits = if known.quarantined == 1 {
                "statement from a tool or stranger waits"
            } else {
                "statements from tools or strangers wait"
            };
            let text = format!(
                "- {} {waits} for confirmation: icecore quarantine list",
                known.quarantined
            );
            lines.push(PackLine::new(&text, Vec::new()).always_shown());
        }
        SectionLines { lines, beyond: listed.beyond }
    }

    fn conflict_lines(&self, known: &RecallInput<'_>) -> Vec<PackLine> {
        let mut conflicts: Vec<(Vec<EventId>, &str)> = Vec::new();
        for conflict in known.conflicts {
            // Conflicts with events that are not shown are omitted.
            let mut ids: Vec<EventId> =
                conflict.events.iter().copied().filter(|id| !self.withheld.contains(id)).collect();
            ids.sort_unstable();
            ids.dedup();
            if ids.len() > 1 {
                conflicts.push((ids, &conflict.about));
            }
        }
        conflicts.sort_unstable();
        conflicts.dedup();
        let line = |(ids, about): (Vec<EventId>, &str)| {
            let (mut says, mut tells) = (Vec::new(), Vec::new());
            for id in ids.iter().take(MAX_CONFLICT_QUOTES) {
                let Some(entry) = self.shown.get(id) else {
                    says.push(id.to_string());
                    continue;
                };
                let quote = first_words(&entry.event.content, MAX_QUOTE_WORDS);
                says.push(format!("{id} says \"{}\"", quote.text.replace('"', "'")));
                tells.extend((!quote.cut).then_some(*id));
            }
            let more = if ids.len() > MAX_CONFLICT_QUOTES {
                format!(" and {} more", ids.len() - MAX_CONFLICT_QUOTES)
            } else {
                String::new()
            };
            let about = first_words(about, MAX_REPEATED_WORDS).text;
            let text = format!(
                "- ⚠️ CONFLICT: {}{more}: about {about}. Needs resolution",
                says.join(", ")
            );
            PackLine {
                tells,
                ..PackLine::new(&text, ids.into_iter().take(MAX_CONFLICT_QUOTES).collect())
            }
        };
        conflicts.into_iter().map(line).collect()
    }

    fn procedure_lines(
        &self,
        mut procedures: Vec<&LedgerEntry>,
        rules: &[&LedgerEntry],
    ) -> SectionLines {
        procedures.sort_by_key(|entry| (entry.event.priority, by_recency(entry)));
        let mut listed = self.section_lines(&procedures, |entry| self.statement_line(entry));
        let above: Vec<EventId> = rules
            .iter()
            .filter(|entry| entry.event.kind == EventType::Procedure)
            .map(|entry| entry.event.id)
            .collect();
        if !above.is_empty() {
            let ids: Vec<EventId> = above.iter().copied().take(MAX_LISTED_IDS).collect();
            let more = if above.len() > MAX_LISTED_IDS {
                format!(" and {} more", above.len() - MAX_LISTED_IDS)
            } else {
                String::new()
            };
            let text = ids.iter().map(EventId::to_string).collect::<Vec<_>>().join(", ");
            listed.lines.insert(0, PackLine::new(&format!("- under P0 above: {text}{more}"), ids));
        }
        listed
    }
}

/// One line per problem.
fn trouble_lines(troubles: &[String]) -> Vec<PackLine> {
    let mut told: Vec<&str> = troubles
        .iter()
        .map(|trouble| trouble.trim())
        .filter(|trouble| !trouble.is_empty())
        .collect();
    told.sort_unstable();
    told.dedup();
    let line = |trouble: &&str| {
        let sentence = first_words(trouble, MAX_TROUBLE_WORDS);
        PackLine {
            cut: sentence.cut,
            ..PackLine::new(&format!("- ⚠️ {}", sentence.text), Vec::new()).always_shown()
        }
    };
    let mut lines: Vec<PackLine> = told.iter().take(MAX_TROUBLES).map(line).collect();
    if told.len() > MAX_TROUBLES {
        lines.push(
            PackLine::new(
                &format!("- ⚠️ and {} more problems: icecore verify", told.len() - MAX_TROUBLES),
                Vec::new(),
            )
            .always_shown(),
        );
    }
    lines
}
