//! Selects the content of a recall pack, section by section and in order, before any limit applies.
//!
//! Superseded, retracted, expired and quarantined statements are excluded. Every item is exactly
//! one line: foreign text cannot start a line of its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use jiff::civil::Date;

use super::{Known, Words};
use crate::budget::{self, LeftOut};
use crate::calendar::days_between;
use crate::event::{Kind, Priority};
use crate::gate;
use crate::id::EventId;
use crate::ledger::Entry;
use crate::ledger::decay::{self, Ages, Freshness};
use crate::plain;
use crate::trigger::{Phrase, Spoken};

/// The number of oldest open commitments that are always included (L7).
pub const OLDEST: usize = 3;
/// The most words of one statement; only P0 is never shortened.
const LONGEST_CONTENT_WORDS: usize = 60;
/// The most bytes of one, for very long words and scripts without spaces.
const LONGEST_CONTENT_BYTES: usize = 1_200;
/// The most words of a statement that is repeated in short.
const SHORT_WORDS: usize = 15;
/// The most words quoted of one side of a conflict.
const QUOTE_WORDS: usize = 30;
/// The most words of a name.
const NAME_WORDS: usize = 8;
/// The fewest words of an old commitment when space is short.
const LEAST_WORDS: usize = 6;
/// The approximate number of words around the content of a commitment.
const COMMITMENT_FRAME: usize = 16;
/// The most words of a sentence about a problem.
const TROUBLE_WORDS: usize = 40;
/// The most problems that are listed.
const MOST_TROUBLES: usize = 10;
/// The most events of one conflict that are quoted.
const MOST_AT_ODDS: usize = 4;
/// The most items in focus.
const MOST_FOCUS: usize = 5;
/// A commitment due within this many days is in focus.
const SOON_DAYS: i64 = 7;
/// The most ids that a line lists as references.
const MOST_POINTERS: usize = 10;

const MANTRA: &str = "mantra";
const ACCOUNT: &str = "account";

/// The headings, in order.
pub(super) const HEADINGS: [&str; 8] = [
    "🔴 P0 CONSTRAINTS",
    "🎯 THE MANTRA",
    "📋 OPEN COMMITMENTS",
    "⏳ WAITING ON",
    "🎯 TODAY'S FOCUS",
    "🧠 CONTEXT",
    "📚 PROCEDURES",
    "🔑 ACCOUNTS",
];
pub(super) const P0: usize = 0;
pub(super) const THE_MANTRA: usize = 1;
pub(super) const OPEN: usize = 2;
pub(super) const WAITING: usize = 3;
pub(super) const FOCUS: usize = 4;
pub(super) const CONTEXT: usize = 5;
pub(super) const PROCEDURES: usize = 6;
pub(super) const ACCOUNTS: usize = 7;

/// A line of a pack.
#[derive(Debug, Clone)]
pub(super) struct Line {
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

impl Line {
    /// A line that only refers to events. Marks in it are disarmed before its words are counted.
    pub(super) fn new(text: &str, ids: Vec<EventId>) -> Self {
        Self {
            text: gate::disarm(text).into_owned(),
            ids,
            tells: Vec::new(),
            once: false,
            always: false,
            cut: false,
        }
    }

    fn telling(entry: &Entry, content: &Content, text: &str) -> Self {
        Self {
            tells: vec![entry.event.id],
            once: true,
            cut: content.cut,
            ..Self::new(text, vec![entry.event.id])
        }
    }

    fn always(self) -> Self {
        Self { always: true, ..self }
    }

    pub(super) fn words(&self) -> usize {
        budget::words(&self.text)
    }
}

/// The lines of a section, most important first, and the number of further lines that never fit.
#[derive(Debug, Clone, Default)]
pub(super) struct Lines {
    pub lines: Vec<Line>,
    pub beyond: Vec<EventId>,
}

/// The complete selection.
pub(super) struct Told {
    pub sections: [Lines; 8],
    pub left_out: Vec<LeftOut>,
}

/// Foreign text on one line.
pub(in crate::packs) struct Content {
    pub(in crate::packs) text: String,
    pub(in crate::packs) cut: bool,
}

/// The first `words` words of a text.
pub(in crate::packs) fn brief(text: &str, words: usize) -> Content {
    let mut rest = text.split_whitespace();
    // One of them is the ellipsis.
    let words = words.max(2);
    let mut kept = rest.by_ref().take(words).collect::<Vec<_>>().join(" ");
    let mut cut = rest.next().is_some();
    if cut && let Some(blank) = kept.rfind(' ') {
        kept.truncate(blank);
    }
    if kept.len() > LONGEST_CONTENT_BYTES {
        let end = kept.floor_char_boundary(LONGEST_CONTENT_BYTES);
        let blank =
            kept.get(..end).and_then(|kept| kept.rfind(' ')).filter(|blank| blank * 2 > end);
        kept.truncate(blank.unwrap_or(end));
        cut = true;
    }
    let mut text = plain::one_line(&kept);
    if cut {
        text.push_str(" ...");
    }
    Content { text, cut }
}

/// A whole text on one line.
fn whole(text: &str) -> Content {
    Content {
        text: plain::one_line(&text.split_whitespace().collect::<Vec<_>>().join(" ")),
        cut: false,
    }
}

/// The content of an event; P0 is never shortened.
fn content(entry: &Entry, words: usize) -> Content {
    if entry.event.priority == Priority::P0 {
        whole(&entry.event.content)
    } else {
        brief(&entry.event.content, words)
    }
}

/// The due date of a commitment, relative to `day`.
fn due(entry: &Entry, day: Date) -> Option<String> {
    let due = entry.event.due?;
    Some(match days_between(day, due) {
        0 => format!("due {due} (today)"),
        days if days < 0 => format!("due {due} (overdue {} d)", -days),
        days => format!("due {due} (in {days} d)"),
    })
}

fn age(entry: &Entry, day: Date) -> i64 {
    days_between(entry.event.ts.day(), day).max(0)
}

/// An open commitment with its age, its due date and whom it waits for.
pub(in crate::packs) fn commitment(entry: &Entry, content: &Content, day: Date) -> String {
    let event = &entry.event;
    let mut text = format!("- {} [{}] open {} d", content.text, event.priority, age(entry, day));
    if let Some(due) = due(entry, day) {
        text.push_str(", ");
        text.push_str(&due);
    }
    if let Some(whom) = &event.waiting_on {
        text.push_str(", waiting on ");
        text.push_str(&brief(whom, NAME_WORDS).text);
    }
    format!("{text} ({})", event.id)
}

/// The sort key by age, oldest first.
pub(in crate::packs) fn by_age(entry: &Entry) -> (Timestamp, EventId) {
    (entry.event.ts.at(), entry.event.id)
}

/// The sort key by recency, newest first.
fn by_recency(entry: &Entry) -> (Reverse<Timestamp>, EventId) {
    (Reverse(entry.verified.at()), entry.event.id)
}

/// The recency class: last confirmed within 48 hours, a week, a month, or earlier.
fn recency(entry: &Entry, day: Date) -> u8 {
    match days_between(entry.verified.day(), day) {
        ..=1 => 0,
        2..=7 => 1,
        8..=30 => 2,
        _ => 3,
    }
}

fn tagged(entry: &Entry, tag: &str) -> bool {
    entry.event.tags.iter().any(|known| known == tag)
}

/// The current topics: the entities of the focus, the open commitments and the log.
#[derive(Default)]
struct Today<'a> {
    entities: HashSet<&'a str>,
    tags: HashSet<&'a str>,
}

impl<'a> Today<'a> {
    fn add(&mut self, entry: &'a Entry) {
        self.entities.extend(entry.event.entity.as_deref());
        self.tags.extend(entry.event.tags.iter().map(String::as_str));
    }

    /// Adds the names of entries that occur in the log.
    fn hear(&mut self, log: &str, entries: &[&'a Entry]) {
        let spoken = Spoken::of(log);
        let said = |names: HashSet<&'a str>| {
            names
                .into_iter()
                .filter(|name| Phrase::read(name).is_some_and(|name| spoken.says(&name)))
        };
        self.entities.extend(said(
            entries.iter().filter_map(|entry| entry.event.entity.as_deref()).collect(),
        ));
        self.tags.extend(said(
            entries.iter().flat_map(|entry| &entry.event.tags).map(String::as_str).collect(),
        ));
    }

    fn concerns(&self, entry: &Entry) -> bool {
        entry.event.entity.as_deref().is_some_and(|name| self.entities.contains(name))
            || entry.event.tags.iter().any(|tag| self.tags.contains(tag.as_str()))
    }
}

/// The day of the pack and the decay limits.
struct Choice<'a> {
    day: Date,
    ages: Ages,
    shown: HashMap<EventId, &'a Entry>,
    withheld: HashSet<EventId>,
    today: Today<'a>,
    most: usize,
}

/// Selects the content.
pub(super) fn choose(day: Date, known: &Known<'_>, words: Words, ages: Ages) -> Told {
    let mut left_out = Vec::new();
    let mut all: BTreeMap<EventId, &Entry> = BTreeMap::new();
    for entry in known.statements.iter().chain(known.open) {
        // Of duplicate ids one is kept; which one must not depend on the input order.
        let first = all.entry(entry.event.id).or_insert(entry);
        if (entry.line, &entry.event.content) < (first.line, &first.event.content) {
            *first = entry;
        }
    }
    let mut choice = Choice {
        day,
        ages,
        shown: HashMap::new(),
        withheld: HashSet::new(),
        today: Today::default(),
        most: words.most().max(OLDEST),
    };
    let mut expired = 0;
    let mut entries: Vec<&Entry> = Vec::new();
    for (id, entry) in all {
        let over = decay::has_expired(entry, day, ages);
        if !entry.standing.is_active()
            || !entry.event.is_statement()
            || entry.is_quarantined()
            || over
        {
            expired += usize::from(over && entry.standing.is_active());
            choice.withheld.insert(id);
        } else {
            choice.shown.insert(id, entry);
            entries.push(entry);
        }
    }
    if expired > 0 {
        left_out.push(LeftOut::new(counted(expired, "statement"), "they have expired"));
    }

    let (mut open, statements): (Vec<&Entry>, Vec<&Entry>) =
        entries.into_iter().partition(|entry| entry.is_open_loop());
    open.sort_by_key(|entry| by_age(entry));
    open.iter().for_each(|entry| choice.today.add(entry));
    let fading: Vec<&Entry> = statements
        .iter()
        .copied()
        .filter(|entry| choice.freshness(entry) == Freshness::Dropped)
        .collect();
    choice.today.hear(known.log, &fading);

    let mantra = statements
        .iter()
        .copied()
        .filter(|entry| tagged(entry, MANTRA))
        .max_by_key(|entry| by_age(entry));
    let [mut rules, mut accounts, mut procedures, mut others]: [Vec<&Entry>; 4] =
        Default::default();
    let mut older_mantras = 0;
    for entry in statements
        .iter()
        .copied()
        .filter(|entry| mantra.is_none_or(|mantra| mantra.event.id != entry.event.id))
    {
        if tagged(entry, ACCOUNT) {
            accounts.push(entry);
        } else if entry.event.priority == Priority::P0 {
            rules.push(entry);
        } else if tagged(entry, MANTRA) {
            older_mantras += 1;
        } else if entry.event.kind == Kind::Procedure {
            procedures.push(entry);
        } else {
            others.push(entry);
        }
    }
    if older_mantras > 0 {
        left_out.push(LeftOut::new(
            counted(older_mantras, "older mantra"),
            "only the newest one is shown",
        ));
    }

    let (focus, soon) = choice.focus(&open, &others);
    if soon > MOST_FOCUS {
        left_out.push(LeftOut::new(
            format!("{} of {soon} commitments that are due soon", soon - MOST_FOCUS),
            format!("at most {MOST_FOCUS} in {}", HEADINGS[FOCUS]),
        ));
    }
    focus.iter().for_each(|entry| choice.today.add(entry));
    let before = others.len() + accounts.len();
    for aging in [&mut others, &mut accounts] {
        aging.retain(|entry| {
            choice.freshness(entry) != Freshness::Dropped || choice.today.concerns(entry)
        });
    }
    let faded = before - others.len() - accounts.len();
    if faded > 0 {
        let why = format!("unconfirmed for {} days and not related to today", ages.dropped_days);
        left_out.push(LeftOut::new(counted(faded, "statement"), why));
    }
    if known.not_looked_at > 0 {
        left_out.push(LeftOut::new(counted(known.not_looked_at, "older statement"), "not loaded"));
    }

    rules.sort_by_key(|entry| (entry.event.kind != Kind::Constraint, by_age(entry)));
    accounts.sort_by_key(|entry| (entry.event.entity.clone(), entry.event.id));
    let room = (words.open / OLDEST)
        .saturating_sub(COMMITMENT_FRAME)
        .clamp(LEAST_WORDS, LONGEST_CONTENT_WORDS);
    let sections = [
        Lines {
            lines: rules.iter().map(|entry| choice.plainly(entry).always()).collect(),
            beyond: Vec::new(),
        },
        Lines {
            lines: mantra.map(|entry| one_mantra(entry, words.mantra)).into_iter().collect(),
            beyond: Vec::new(),
        },
        choice.commitments(&open, room),
        choice.waiting(&open),
        Lines {
            lines: focus.iter().map(|entry| choice.focused(entry)).collect(),
            beyond: Vec::new(),
        },
        choice.context(known, &focus, &open, others),
        choice.procedures(procedures, &rules),
        choice.listed(&accounts, |entry| {
            let line = choice.plainly(entry);
            if entry.event.priority == Priority::P0 { line.always() } else { line }
        }),
    ];
    Told { sections, left_out }
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The mantra, in at most `words` words.
fn one_mantra(entry: &Entry, words: usize) -> Line {
    let line = |most| {
        let content = brief(&entry.event.content, most);
        Line::telling(entry, &content, &format!("- {} ({})", content.text, entry.event.id)).always()
    };
    let most = words.min(LONGEST_CONTENT_WORDS);
    (2..=most).rev().map(line).find(|line| line.words() <= words).unwrap_or_else(|| line(2))
}

impl<'a> Choice<'a> {
    fn freshness(&self, entry: &Entry) -> Freshness {
        decay::freshness(entry, self.day, self.ages)
    }

    /// The staleness mark of a statement.
    fn mark(&self, entry: &Entry) -> String {
        match self.freshness(entry) {
            Freshness::Fresh => String::new(),
            Freshness::Stale | Freshness::Dropped => {
                format!(" ⚠️ STALE {} d", days_between(entry.verified.day(), self.day))
            }
        }
    }

    fn plainly(&self, entry: &Entry) -> Line {
        let content = content(entry, LONGEST_CONTENT_WORDS);
        Line::telling(
            entry,
            &content,
            &format!("- {}{} ({})", content.text, self.mark(entry), entry.event.id),
        )
    }

    /// One line per entry, up to the number that could fit: a line has more than one word.
    fn listed(&self, entries: &[&Entry], line: impl Fn(&Entry) -> Line) -> Lines {
        let mut listed = Lines::default();
        for (at, entry) in entries.iter().enumerate() {
            if at < self.most || entry.event.priority == Priority::P0 {
                listed.lines.push(line(entry));
            } else {
                listed.beyond.push(entry.event.id);
            }
        }
        listed
    }

    fn commitments(&self, open: &[&Entry], room: usize) -> Lines {
        let oldest: Vec<EventId> = open.iter().take(OLDEST).map(|entry| entry.event.id).collect();
        self.listed(open, |entry| {
            let among = oldest.contains(&entry.event.id);
            let content = content(entry, if among { room } else { LONGEST_CONTENT_WORDS });
            let line = Line::telling(entry, &content, &commitment(entry, &content, self.day));
            if among || entry.event.priority == Priority::P0 { line.always() } else { line }
        })
    }

    fn waiting(&self, open: &[&Entry]) -> Lines {
        let waiting: Vec<&Entry> =
            open.iter().copied().filter(|entry| entry.event.waiting_on.is_some()).collect();
        self.listed(&waiting, |entry| {
            let whom = brief(entry.event.waiting_on.as_deref().unwrap_or_default(), NAME_WORDS);
            let what = brief(&entry.event.content, SHORT_WORDS);
            let text = format!(
                "- {}: {}, {} d ({})",
                whom.text,
                what.text,
                age(entry, self.day),
                entry.event.id
            );
            Line::new(&text, vec![entry.event.id])
        })
    }

    /// The entries in focus, and the number of commitments due soon.
    fn focus(&self, open: &[&'a Entry], others: &[&'a Entry]) -> (Vec<&'a Entry>, usize) {
        let is_soon = |entry: &Entry| {
            entry.event.due.is_some_and(|due| days_between(self.day, due) <= SOON_DAYS)
        };
        let matters = |entry: &Entry| entry.event.priority <= Priority::P1;
        let (mut soon, later): (Vec<&Entry>, Vec<&Entry>) =
            open.iter().copied().partition(|entry| is_soon(entry));
        soon.sort_by_key(|entry| (entry.event.due, by_age(entry)));
        let holds = |entry: &Entry| {
            self.freshness(entry) != Freshness::Dropped || self.today.concerns(entry)
        };
        let mut rest: Vec<&Entry> =
            later.into_iter().chain(others.iter().copied().filter(|entry| holds(entry))).collect();
        rest.retain(|entry| matters(entry));
        rest.sort_by_key(|entry| by_recency(entry));
        let count = soon.len();
        (soon.into_iter().chain(rest).take(MOST_FOCUS).collect(), count)
    }

    fn focused(&self, entry: &Entry) -> Line {
        let id = entry.event.id;
        if entry.is_open_loop() {
            let due = due(entry, self.day).map_or(String::new(), |due| format!(", {due}"));
            let told = brief(&entry.event.content, SHORT_WORDS).text;
            let told =
                if due.is_empty() { told.as_str() } else { told.trim_end_matches(['.', ' ']) };
            return Line::new(&format!("- {told}{due} ({id})"), vec![id]);
        }
        let content = content(entry, LONGEST_CONTENT_WORDS);
        let (priority, kind) = (entry.event.priority, entry.event.kind);
        Line::telling(
            entry,
            &content,
            &format!("- {} [{priority} {kind}]{} ({id})", content.text, self.mark(entry)),
        )
    }

    fn context(
        &self,
        known: &Known<'_>,
        focus: &[&Entry],
        open: &[&Entry],
        mut others: Vec<&Entry>,
    ) -> Lines {
        let mut lines = troubles(known.troubles);
        lines.extend(self.conflicts(known));
        let mut seen = HashSet::new();
        for entity in focus
            .iter()
            .chain(open.iter().take(OLDEST))
            .filter_map(|entry| entry.event.entity.as_deref())
        {
            if let Some(summary) = known
                .about
                .get(entity)
                .filter(|summary| !summary.trim().is_empty() && seen.insert(entity))
            {
                let name = brief(&entity.replace('_', " "), NAME_WORDS).text;
                let summary = brief(summary, LONGEST_CONTENT_WORDS);
                lines.push(Line {
                    cut: summary.cut,
                    ..Line::new(&format!("- {name}: {}", summary.text), Vec::new())
                });
            }
        }
        others.sort_by_key(|entry| {
            (recency(entry, self.day), entry.event.priority, by_recency(entry))
        });
        let listed = self.listed(&others, |entry| {
            let content = content(entry, LONGEST_CONTENT_WORDS);
            let event = &entry.event;
            let (said, priority, kind) = (event.ts.day(), event.priority, event.kind);
            let text = format!(
                "- {said} {} [{priority} {kind}]{} ({})",
                content.text,
                self.mark(entry),
                event.id
            );
            Line::telling(entry, &content, &text)
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
            lines.push(Line::new(&text, Vec::new()).always());
        }
        Lines { lines, beyond: listed.beyond }
    }

    fn conflicts(&self, known: &Known<'_>) -> Vec<Line> {
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
            for id in ids.iter().take(MOST_AT_ODDS) {
                let Some(entry) = self.shown.get(id) else {
                    says.push(id.to_string());
                    continue;
                };
                let quote = brief(&entry.event.content, QUOTE_WORDS);
                says.push(format!("{id} says \"{}\"", quote.text.replace('"', "'")));
                tells.extend((!quote.cut).then_some(*id));
            }
            let more = if ids.len() > MOST_AT_ODDS {
                format!(" and {} more", ids.len() - MOST_AT_ODDS)
            } else {
                String::new()
            };
            let about = brief(about, SHORT_WORDS).text;
            let text = format!(
                "- ⚠️ CONFLICT: {}{more}: about {about}. Needs resolution",
                says.join(", ")
            );
            Line { tells, ..Line::new(&text, ids.into_iter().take(MOST_AT_ODDS).collect()) }
        };
        conflicts.into_iter().map(line).collect()
    }

    fn procedures(&self, mut procedures: Vec<&Entry>, rules: &[&Entry]) -> Lines {
        procedures.sort_by_key(|entry| (entry.event.priority, by_recency(entry)));
        let mut listed = self.listed(&procedures, |entry| self.plainly(entry));
        let above: Vec<EventId> = rules
            .iter()
            .filter(|entry| entry.event.kind == Kind::Procedure)
            .map(|entry| entry.event.id)
            .collect();
        if !above.is_empty() {
            let ids: Vec<EventId> = above.iter().copied().take(MOST_POINTERS).collect();
            let more = if above.len() > MOST_POINTERS {
                format!(" and {} more", above.len() - MOST_POINTERS)
            } else {
                String::new()
            };
            let text = ids.iter().map(EventId::to_string).collect::<Vec<_>>().join(", ");
            listed.lines.insert(0, Line::new(&format!("- under P0 above: {text}{more}"), ids));
        }
        listed
    }
}

/// One line per problem.
fn troubles(troubles: &[String]) -> Vec<Line> {
    let mut told: Vec<&str> = troubles
        .iter()
        .map(|trouble| trouble.trim())
        .filter(|trouble| !trouble.is_empty())
        .collect();
    told.sort_unstable();
    told.dedup();
    let line = |trouble: &&str| {
        let sentence = brief(trouble, TROUBLE_WORDS);
        Line {
            cut: sentence.cut,
            ..Line::new(&format!("- ⚠️ {}", sentence.text), Vec::new()).always()
        }
    };
    let mut lines: Vec<Line> = told.iter().take(MOST_TROUBLES).map(line).collect();
    if told.len() > MOST_TROUBLES {
        lines.push(
            Line::new(
                &format!("- ⚠️ and {} more problems: icecore verify", told.len() - MOST_TROUBLES),
                Vec::new(),
            )
            .always(),
        );
    }
    lines
}
