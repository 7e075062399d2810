//! Conversation facts, the base truth: the facts that hold in a conversation, and how a diff
//! changes them (C1, C5, C9, C10, C14).
//!
//! The base truth is a view over the ledger, never a file of its own: a fact is an active statement
//! whose scope is the conversation. A diff is a proposal. It is parsed leniently and applied in the
//! order remove, update, add; every deviation from the diff is reported. A hard exception is
//! removed only if the diff names it.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::branch::Turns;
use super::key::{self, Meant, Sure, Way, alike, meant, meant_surely};
use super::reading::{Class, Reading, continued};
use super::support;
use crate::budget;
use crate::calendar::Moment;
use crate::distil::markers;
use crate::distil::same::{Sameness, same};
use crate::distil::speech::{flat, has};
use crate::event::{Act, Draft, Event, Kind, Origin, Priority, Scope, guess_kind};
use crate::id::EventId;
use crate::ledger::Ledger;
use crate::plain;

/// Maximum number of entries of a diff that are applied, over all three lists.
pub const MAX_ENTRIES: usize = 40;
/// Maximum length of an entry, in bytes.
pub const MAX_ENTRY_BYTES: usize = 400;
/// The tag of a hard exception.
pub const HARD: &str = "hard";
/// The field that holds the turn in which a fact was learned.
pub const TURN: &str = "turn";
/// Maximum share of the facts that a consolidation may drop without a trace, in percent.
pub const MAX_DROPPED_PERCENT: usize = 40;
/// Minimum share of a fact's content words that its merged line must contain, in percent.
const MERGED_PERCENT: usize = 60;

/// A fact that holds in a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// The event that states it.
    pub id: EventId,
    pub text: String,
    /// Whether it is a hard exception: never pruned, shown first.
    pub hard: bool,
    /// When it got its current wording.
    pub since: Moment,
    /// The turn in which it was learned.
    pub turn: Option<u64>,
}

impl AsRef<str> for Fact {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

/// The facts of a conversation: hard exceptions first, then in the order in which they were first
/// established. A replacement keeps the position of the fact it replaces.
pub fn facts(ledger: &Ledger, conversation: &str) -> Vec<Fact> {
    let mut places: HashMap<EventId, usize> = HashMap::new();
    let mut found: Vec<(usize, Fact)> = Vec::new();
    for (at, entry) in ledger.entries().iter().enumerate() {
        let event = &entry.event;
        let own = matches!(&event.scope, Scope::Conversation(id) if id == conversation);
        if !own || !event.is_statement() || event.content == crate::forget::FORGOTTEN {
            continue;
        }
        let place =
            event.supersedes.iter().filter_map(|id| places.get(id)).min().copied().unwrap_or(at);
        places.insert(event.id, place);
        // Content from an untrusted speaker is not shown before it is confirmed.
        if entry.standing.is_active() && !entry.is_quarantined() {
            let hard = event.tags.iter().any(|tag| tag == HARD) || is_hard(&event.content);
            let fact = Fact {
                id: event.id,
                text: event.content.clone(),
                hard,
                since: event.ts,
                turn: event.field(TURN),
            };
            found.push((place, fact));
        }
    }
    found.sort_by_key(|(place, fact)| (!fact.hard, *place, fact.id));
    found.into_iter().map(|(_, fact)| fact).collect()
}

/// The field that lists the turns whose facts were merged into one.
pub const MERGED: &str = "merged_turns";

/// The facts of a conversation as the turns of `path` established them. Additions, changes and
/// removals by other turns do not count.
pub fn facts_of(ledger: &Ledger, conversation: &str, path: &Turns) -> Vec<Fact> {
    let is_shown = |event: &Event| {
        let merged: Vec<u64> = event.field(MERGED).unwrap_or_default();
        event.field(TURN).is_none_or(|turn| path.contains(turn))
            && merged.into_iter().all(|turn| path.contains(turn))
    };
    let shown = ledger.entries().iter().map(|entry| &entry.event).filter(|event| is_shown(event));
    facts(&Ledger::of(shown.cloned()), conversation)
}

/// Hard words in languages that the extraction rules do not cover.
#[rustfmt::skip]
const HARD_ELSEWHERE: &[&str] = &[
    "must not", "may not", "shall not", "mustn't", "prohibited", "not permitted", "no exceptions", "darf kein", "darf keine", "dürfen keine",
    "darf nie", "zwingend", "untersagt", "doit", "doivent", "ne doit pas", "jamais", "toujours", "interdit", "interdite", "au maximum",
    "en aucun cas", "obligatoire", "ne peut pas", "debe", "deben", "nunca", "jamás", "siempre", "prohibido", "prohibida", "como máximo",
    "en ningún caso", "obligatorio", "no puede", "no se puede", "il ne faut", "il faut toujours",
];
/// Idioms that contain a hard word but do not bind.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    "never mind", "never say never", "as always", "like always", "better late than never", "now or never", "cannot wait", "cannot believe",
    "cannot complain", "must say", "must admit", "must confess", "must be kidding", "must be joking", "you never know", "wie immer",
    "immer noch", "immer wieder", "was auch immer", "do not worry", "do not know", "do not mind", "do not think", "comme toujours",
    "como siempre",
];

/// Whether a statement binds: it says must, never, always, cannot or the like.
pub fn is_hard(text: &str) -> bool {
    let mut words = flat(text);
    for idiom in HARMLESS {
        while let Some(at) = crate::distil::speech::find(&words, idiom) {
            words.replace_range(at..at + idiom.len(), "");
        }
    }
    has(&words, markers::HARD) || has(&words, HARD_ELSEWHERE)
}

/// The changes of the facts that a summarizer proposes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Diff {
    /// New facts.
    pub add: Vec<String>,
    /// Changed facts, each with its full new text.
    pub update: Vec<String>,
    /// Facts that no longer hold.
    pub remove: Vec<String>,
    /// What could not be parsed, and why.
    #[serde(skip)]
    pub notes: Vec<String>,
}

impl Diff {
    /// Parses a model's answer leniently: unknown fields are ignored, `null` is an empty list, a
    /// single string is a list of one, and entries that are not text are skipped with a note.
    pub fn read(value: &Value) -> Self {
        let mut diff = Self::default();
        let mut notes = Vec::new();
        let mut list = |name: &str| -> Vec<String> {
            match value.get(name) {
                None | Some(Value::Null) => Vec::new(),
                Some(Value::String(text)) => vec![text.clone()],
                Some(Value::Array(all)) => {
                    all.iter().filter_map(|one| entry(name, one, &mut notes)).collect()
                }
                Some(_) => {
                    notes.push(format!("`{name}` is not a list; skipped"));
                    Vec::new()
                }
            }
        };
        (diff.add, diff.update, diff.remove) = (list("add"), list("update"), list("remove"));
        if !value.is_object() && !value.is_null() {
            notes.push("the diff is not an object; skipped".into());
        }
        diff.notes = notes;
        diff
    }

    /// Whether the diff changes nothing.
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.update.is_empty() && self.remove.is_empty()
    }
}

fn entry(name: &str, value: &Value, notes: &mut Vec<String>) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => {
            notes.push(format!("a number in `{name}` was read as text"));
            Some(number.to_string())
        }
        other => {
            // Some models write {"fact": "..."}; the meaning is clear.
            if let Some(text) = ["fact", "text", "value", "content"]
                .iter()
                .find_map(|field| other.get(field)?.as_str())
            {
                notes.push(format!("an object in `{name}` was read as its text"));
                return Some(text.to_owned());
            }
            notes.push(format!("an entry of `{name}` is not a string and was left out"));
            None
        }
    }
}

impl<'de> Deserialize<'de> for Diff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self::read(&value))
    }
}

/// A change of one fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Change {
    /// A fact no longer holds.
    Remove { id: EventId },
    /// A fact gets new wording.
    Replace {
        id: EventId,
        text: String,
        /// Whether it is a hard exception.
        hard: bool,
    },
    /// A new fact.
    Add {
        text: String,
        /// Whether it is a hard exception.
        hard: bool,
    },
}

/// The result of applying a diff.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Applied {
    /// Removals first, then replacements, then additions.
    pub changes: Vec<Change>,
    /// Deviations from the diff, and why.
    pub notes: Vec<String>,
}

impl Applied {
    /// Drops changes that later turns have overtaken: a turn that is processed late does not
    /// override newer facts.
    pub fn as_of(mut self, facts: &[Fact], turn: u64) -> Self {
        let later = |change: &Change| match change {
            Change::Add { .. } => None,
            Change::Remove { id } | Change::Replace { id, .. } => facts
                .iter()
                .find(|fact| fact.id == *id && fact.turn.is_some_and(|said| said > turn)),
        };
        for fact in self.changes.iter().filter_map(later) {
            self.notes.push(format!(
                "overtaken by a later turn, so not applied: {}",
                budget::shortened(&fact.text, 120)
            ));
        }
        self.changes.retain(|change| later(change).is_none());
        self
    }
}

impl Applied {
    /// Drops removals that the exchange does not support, and rewordings of hard exceptions that
    /// the person's own words do not support. Returns each one with the reason.
    pub fn refuse_removals(&mut self, facts: &[Fact], asked: &str, replied: &str) -> Vec<String> {
        let mut refused = Vec::new();
        let shown = |text: &str| budget::shortened(&plain::one_line(text), 120);
        self.changes.retain(|change| {
            let (Change::Remove { id } | Change::Replace { id, .. }) = change else { return true };
            let Some(fact) = facts.iter().find(|fact| fact.id == *id) else { return true };
            let (why, what) = match change {
                Change::Replace { text, .. } if fact.hard => (
                    support::unsupported_replacement(&fact.text, text, asked),
                    format!("replace \"{}\" with \"{}\"", shown(&fact.text), shown(text)),
                ),
                Change::Remove { .. } => (
                    support::unsupported_removal(&fact.text, fact.hard, asked, replied),
                    format!("remove \"{}\"", shown(&fact.text)),
                ),
                _ => return true,
            };
            refused.extend(why.as_ref().map(|why| format!("{what}: {why}")));
            why.is_none()
        });
        refused
    }
}

/// A fact while a diff is being applied.
struct Slot {
    /// The fact's event; `None` for a fact that this diff adds.
    id: Option<EventId>,
    was: String,
    text: String,
    hard: bool,
    gone: bool,
}

struct Work {
    slots: Vec<Slot>,
    notes: Vec<String>,
}

/// Applies a diff to the facts: remove, then update, then add.
pub fn apply(facts: &[Fact], diff: &Diff) -> Applied {
    let slot = |fact: &Fact| Slot {
        id: Some(fact.id),
        was: fact.text.clone(),
        text: fact.text.clone(),
        hard: fact.hard,
        gone: false,
    };
    let mut work = Work { slots: facts.iter().map(slot).collect(), notes: diff.notes.clone() };
    let mut room = MAX_ENTRIES;
    let removals = bounded("remove", &diff.remove, &mut room, &mut work.notes);
    let updates = bounded("update", &diff.update, &mut room, &mut work.notes);
    let additions = bounded("add", &diff.add, &mut room, &mut work.notes);
    for text in &removals {
        work.remove(text);
    }
    for text in updates {
        work.update(text);
    }
    for text in additions {
        work.add(text);
    }
    work.done()
}

/// The entries to apply, sanitized, truncated and limited in number.
fn bounded(
    list: &str,
    entries: &[String],
    room: &mut usize,
    notes: &mut Vec<String>,
) -> Vec<String> {
    let mut kept = Vec::new();
    for (at, raw) in entries.iter().enumerate() {
        if *room == 0 {
            notes.push(format!(
                "{} entries of `{list}` are more than {MAX_ENTRIES} and were left out",
                entries.len() - at
            ));
            break;
        }
        *room -= 1;
        let cleaned = plain::clean(raw).text;
        let line = cleaned.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = line.trim_start_matches(['-', '*', '•', ' ']).trim();
        if !line.contains(char::is_alphanumeric) {
            notes.push(format!("an entry of `{list}` is empty; skipped"));
            continue;
        }
        if line.len() > MAX_ENTRY_BYTES {
            notes.push(format!(
                "an entry of `{list}` has {} bytes; truncated to {MAX_ENTRY_BYTES}",
                line.len()
            ));
        }
        kept.push(budget::shortened(line, MAX_ENTRY_BYTES));
    }
    kept
}

impl Work {
    /// Finds the slot that a text refers to, among the removed slots or among the others.
    fn find(&self, text: &str, way: Way, gone: bool) -> (Meant, Option<Sure>) {
        let of: Vec<usize> = (0..self.slots.len())
            .filter(|at| self.slots.get(*at).is_some_and(|slot| slot.gone == gone))
            .collect();
        let texts: Vec<&str> =
            of.iter().filter_map(|at| self.slots.get(*at)).map(|slot| slot.text.as_str()).collect();
        let own = |at: usize| of.get(at).copied().unwrap_or(usize::MAX);
        match meant_surely(&texts, text, way) {
            (Meant::One(at), sure) => (Meant::One(own(at)), sure),
            (Meant::Ambiguous(all), sure) => {
                (Meant::Ambiguous(all.into_iter().map(own).collect()), sure)
            }
            none => none,
        }
    }

    fn note(&mut self, what: &str, text: &str) {
        self.notes.push(format!("{what}: {}", budget::shortened(text, 120)));
    }

    fn remove(&mut self, text: &str) {
        match self.find(text, Way::Remove, false) {
            (Meant::One(at), sure) => {
                let Some(slot) = self.slots.get_mut(at) else { return };
                if slot.hard && sure < Some(Sure::Clearly) {
                    self.note("only naming a hard exception removes it; nothing removed", text);
                } else {
                    slot.gone = true;
                }
            }
            (Meant::None, _) => self.note("matches no fact; nothing removed", text),
            (Meant::Ambiguous(all), _) => {
                self.note(&format!("matches {} facts; nothing removed", all.len()), text)
            }
        }
    }

    fn update(&mut self, text: String) {
        match self.find(&text, Way::Update, false) {
            (Meant::One(at), sure) => self.replace(at, sure, text),
            (Meant::Ambiguous(all), sure) if sure >= Some(Sure::Key) => {
                self.note("several facts have this key; the last one was replaced", &text);
                if let Some(at) = all.last() {
                    self.replace(*at, sure, text);
                }
            }
            (found, _) => {
                if self.revive(&text) {
                    return;
                }
                let many = matches!(found, Meant::Ambiguous(_));
                let why = if many {
                    "the update matches several facts; added instead"
                } else {
                    "the update matches no fact; added instead"
                };
                self.note(why, &text);
                self.add(text);
            }
        }
    }

    /// Gives a fact new wording, if its confidence allows it.
    fn replace(&mut self, at: usize, sure: Option<Sure>, text: String) {
        let Some(slot) = self.slots.get_mut(at) else { return };
        if plain::sameness_key(&slot.text) == plain::sameness_key(&text) {
            return self.note("already known", &text);
        }
        if slot.hard && sure < Some(Sure::Clearly) {
            self.note("only naming a hard exception replaces it; added next to it", &text);
            return self.push(text);
        }
        slot.hard = is_hard(&text);
        slot.text = text;
    }

    /// Restores a fact that this diff removed and now adds again.
    fn revive(&mut self, text: &str) -> bool {
        let (Meant::One(at), sure) = self.find(text, Way::Add, true) else { return false };
        let Some(slot) = self.slots.get_mut(at) else { return false };
        if slot.hard && sure < Some(Sure::Clearly) {
            return false;
        }
        slot.gone = false;
        slot.text = text.to_owned();
        slot.hard = is_hard(text);
        self.note("removed and added again; treated as a replacement", text);
        true
    }

    fn add(&mut self, text: String) {
        if self.slots.iter().any(|slot| !slot.gone && says(&slot.text, &text)) {
            return self.note("already known", &text);
        }
        if self.revive(&text) {
            return;
        }
        match self.find(&text, Way::Add, false) {
            (Meant::One(at), sure) => {
                // Adding to a list does not replace it.
                let list = self.slots.get(at).and_then(|slot| continued(&slot.text, &text));
                if let Some(list) =
                    list.filter(|list| sure >= Some(Sure::Key) && list.len() <= MAX_ENTRY_BYTES)
                {
                    self.note("appended to the list of that key", &text);
                    return self.replace(at, Some(Sure::Exactly), list);
                }
                self.note("the key is known already; its fact was replaced", &text);
                self.replace(at, sure, text);
            }
            (Meant::Ambiguous(all), sure) if sure >= Some(Sure::Key) => {
                self.note("several facts have this key; the last one was replaced", &text);
                if let Some(at) = all.last() {
                    self.replace(*at, sure, text);
                }
            }
            _ => self.push(text),
        }
    }

    fn push(&mut self, text: String) {
        if self.slots.iter().any(|slot| !slot.gone && says(&slot.text, &text)) {
            return self.note("already known", &text);
        }
        let hard = is_hard(&text);
        self.slots.push(Slot { id: None, was: String::new(), text, hard, gone: false });
    }

    fn done(self) -> Applied {
        let (mut removed, mut replaced, mut added) = (Vec::new(), Vec::new(), Vec::new());
        for slot in self.slots {
            match slot.id {
                Some(id) if slot.gone => removed.push(Change::Remove { id }),
                Some(id) if slot.text != slot.was => {
                    replaced.push(Change::Replace { id, text: slot.text, hard: slot.hard })
                }
                None if !slot.gone => added.push(Change::Add { text: slot.text, hard: slot.hard }),
                _ => {}
            }
        }
        Applied {
            changes: removed.into_iter().chain(replaced).chain(added).collect(),
            notes: self.notes,
        }
    }
}

/// Whether a known statement already implies a new one.
pub fn says(known: &str, new: &str) -> bool {
    if plain::sameness_key(known) == plain::sameness_key(new) {
        return true;
    }
    let (one, other) = (Reading::of(known), Reading::of(new));
    if alike(&one, &other) {
        return true;
    }
    // Synonyms count only if the new statement has no number, name or limit of its own.
    let told = one.telling();
    let nothing_new = other.tokens.iter().all(|token| {
        let telling = matches!(token.class, Class::Number | Class::Day) || token.name;
        !telling || told.contains(token.stem.as_str())
    });
    nothing_new
        && one.denies() == other.denies()
        && is_hard(known) == is_hard(new)
        && same(known, new) == Sameness::Same
}

/// The fact texts after the changes, hard exceptions first.
pub fn after(facts: &[Fact], changes: &[Change]) -> Vec<String> {
    let mut kept: Vec<(bool, String)> = Vec::new();
    for fact in facts {
        let change =
            changes.iter().rev().find(|change| matches!(change, Change::Remove { id } | Change::Replace { id, .. } if *id == fact.id));
        match change {
            Some(Change::Remove { .. }) => {}
            Some(Change::Replace { text, hard, .. }) => kept.push((*hard, text.clone())),
            _ => kept.push((fact.hard, fact.text.clone())),
        }
    }
    for change in changes {
        if let Change::Add { text, hard } = change {
            kept.push((*hard, text.clone()));
        }
    }
    kept.sort_by_key(|(hard, _)| !hard);
    kept.into_iter().map(|(_, text)| text).collect()
}

/// The origin of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whence {
    /// When they are recorded.
    pub ts: Moment,
    /// The conversation in which they hold.
    pub conversation: String,
    /// The turn in which they were learned.
    pub turn: u64,
    pub session: Option<String>,
    /// Where the exchange is stored.
    pub source: String,
}

/// The event drafts that carry out the changes. A change's target must be in the ledger; without
/// it, a replacement becomes a new statement and a removal is dropped.
pub fn drafts(applied: &Applied, ledger: &Ledger, whence: &Whence) -> Vec<Draft> {
    let own = |draft: Draft| {
        // The words come from the summarizer, so they have an assistant's origin.
        let draft = Draft {
            session: whence.session.clone(),
            source: whence.source.clone(),
            origin: Origin::Assistant,
            ..draft
        };
        draft.with_field(TURN, &whence.turn)
    };
    let statement = |text: &str, hard: bool, replaced: Option<EventId>| {
        let kind = match guess_kind(text) {
            _ if hard => Kind::Constraint,
            kind @ (Kind::Decision | Kind::Preference) => kind,
            _ => Kind::Fact,
        };
        let priority = if hard { Priority::P0 } else { Priority::P2 };
        own(Draft {
            tags: if hard { vec![HARD.into()] } else { Vec::new() },
            scope: Scope::Conversation(whence.conversation.clone()),
            supersedes: replaced.into_iter().collect(),
            ..Draft::new(whence.ts, kind, priority, text)
        })
    };
    applied
        .changes
        .iter()
        .filter_map(|change| match change {
            Change::Remove { id } => {
                let target = &ledger.get(*id)?.event;
                let why = budget::shortened(
                    &format!("no longer holds: {}", plain::one_line(&target.content)),
                    MAX_ENTRY_BYTES,
                );
                Some(own(Draft::upon(target, Act::Retract, whence.ts, why)))
            }
            Change::Replace { id, text, hard } => {
                Some(statement(text, *hard, ledger.get(*id).map(|entry| entry.event.id)))
            }
            Change::Add { text, hard } => Some(statement(text, *hard, None)),
        })
        .collect()
}

/// Checks the shorter list of facts that a model proposes (C9). Returns the changes with notes on
/// dropped facts, or the reasons for rejection.
pub fn consolidated(facts: &[Fact], proposed: &[String]) -> Result<Applied, Vec<String>> {
    let mut notes = Vec::new();
    let mut room = facts.len().max(MAX_ENTRIES).saturating_add(1);
    let mut lines = bounded("the proposal", proposed, &mut room, &mut notes);
    let mut seen = BTreeSet::new();
    lines.retain(|line| seen.insert(plain::sameness_key(line)));
    let mut reasons = Vec::new();
    if lines.is_empty() && !facts.is_empty() {
        return Err(vec!["the list is empty".into()]);
    }
    if lines.len() > facts.len() {
        reasons.push(format!("it has {} lines for {} facts", lines.len(), facts.len()));
    }
    let known: Vec<Reading> = facts.iter().map(|fact| Reading::of(&fact.text)).collect();
    // For each fact, the line that keeps it and whether it keeps it unchanged.
    let mut homes: Vec<Option<(usize, bool)>> = vec![None; facts.len()];
    for ((fact, reading), place) in facts.iter().zip(&known).zip(&mut homes) {
        let verbatim =
            |line: &&String| plain::sameness_key(line) == plain::sameness_key(&fact.text);
        let same_line = |line: &String| {
            alike(&Reading::of(line), reading)
                || (!fact.hard && says(&fact.text, line) && says(line, &fact.text))
        };
        let home = lines
            .iter()
            .position(|line| verbatim(&line))
            .or_else(|| lines.iter().position(same_line));
        *place = home.map(|home| (home, true));
    }
    for (home, line) in lines.iter().enumerate() {
        if homes.iter().flatten().any(|(kept, _)| *kept == home) {
            continue;
        }
        let reading = Reading::of(line);
        let sources: Vec<usize> = (0..facts.len())
            .filter(|at| known.get(*at).is_some_and(|fact| merges(fact, &reading)))
            .collect();
        let texts: Vec<&str> =
            sources.iter().filter_map(|at| facts.get(*at)).map(|fact| fact.text.as_str()).collect();
        if let Some(why) = new_claim(line, &reading, &texts) {
            reasons.push(format!("`{}`: {why}", budget::shortened(line, 120)));
            continue;
        }
        for at in sources {
            if let Some(place @ None) = homes.get_mut(at) {
                *place = Some((home, false));
            }
        }
    }
    let mut dropped = 0;
    for ((fact, reading), home) in facts.iter().zip(&known).zip(&homes) {
        let shown = budget::shortened(&fact.text, 120);
        match home {
            Some((_, true)) => {}
            _ if fact.hard => reasons.push(format!("a hard exception is missing: {shown}")),
            Some(_) => {}
            None if reading.tokens.iter().any(|token| {
                token.name || matches!(token.class, Class::Number | Class::Day | Class::Not)
            }) =>
            {
                reasons.push(format!("dropped although it has numbers, names or limits: {shown}"));
            }
            None => {
                dropped += 1;
                notes.push(format!("dropped: {shown}"));
            }
        }
    }
    if dropped * 100 > facts.len() * MAX_DROPPED_PERCENT {
        reasons.push(format!("{dropped} of {} facts would be dropped", facts.len()));
    }
    if !reasons.is_empty() {
        return Err(reasons);
    }
    Ok(Applied { changes: merged(facts, &lines, &homes), notes })
}

/// The changes that turn the facts into the lines.
fn merged(facts: &[Fact], lines: &[String], homes: &[Option<(usize, bool)>]) -> Vec<Change> {
    let (mut removed, mut replaced) = (Vec::new(), Vec::new());
    let mut filled: BTreeSet<usize> = BTreeSet::new();
    for (fact, home) in facts.iter().zip(homes) {
        match home {
            // Of two equal facts the first stays; a hard one always stays.
            Some((home, true)) => {
                if !filled.insert(*home) && !fact.hard {
                    removed.push(Change::Remove { id: fact.id });
                }
            }
            Some((home, false)) if filled.insert(*home) => {
                let text = lines.get(*home).cloned().unwrap_or_default();
                let hard = is_hard(&text);
                replaced.push(Change::Replace { id: fact.id, text, hard });
            }
            _ => removed.push(Change::Remove { id: fact.id }),
        }
    }
    removed.into_iter().chain(replaced).collect()
}

/// Whether a line contains a fact, possibly as one of several merged facts.
fn merges(fact: &Reading, line: &Reading) -> bool {
    let (mine, theirs) = (fact.telling(), line.telling());
    let shared = mine.intersection(&theirs).count();
    let strict = fact.tokens.iter().filter(|token| {
        token.name || matches!(token.class, Class::Number | Class::Day | Class::Not)
    });
    !mine.is_empty()
        && shared * 100 >= mine.len() * MERGED_PERCENT
        && strict.into_iter().all(|token| theirs.contains(token.stem.as_str()))
}

/// What a line of a consolidation claims that its source facts do not.
fn new_claim(line: &str, reading: &Reading, sources: &[&str]) -> Option<String> {
    if sources.is_empty() {
        return Some("no fact supports it".into());
    }
    if let Some(why) = support::unsupported(line, sources) {
        return Some(why.replace("the exchange", "the old facts"));
    }
    if is_hard(line) && !sources.iter().any(|text| is_hard(text)) {
        return Some("it is binding, but its facts are not".into());
    }
    let known: Vec<Reading> = sources.iter().map(|text| Reading::of(text)).collect();
    if reading.denies() != known.iter().any(Reading::denies) {
        return Some("it contradicts the facts".into());
    }
    let new: Vec<&str> = reading
        .tokens
        .iter()
        .filter(|token| token.class == Class::Telling && !JOINTS.contains(&token.lower.as_str()))
        .filter(|token| !known.iter().any(|fact| fact.telling().contains(token.stem.as_str())))
        .map(|token| token.lower.as_str())
        .collect();
    let telling = reading.telling().len();
    if new.len() * 5 > telling {
        return Some(format!("no fact contains: {}", new.join(", ")));
    }
    // A number belongs to the word next to it.
    let words: Vec<_> =
        reading.tokens.iter().filter(|token| token.class != Class::Filler).collect();
    for (at, token) in words.iter().enumerate().filter(|(_, token)| token.class == Class::Number) {
        let beside: Vec<&str> = [at.checked_sub(1), Some(at + 1)]
            .into_iter()
            .flatten()
            .filter_map(|at| words.get(at))
            .filter(|token| {
                token.class == Class::Telling && !JOINTS.contains(&token.lower.as_str())
            })
            .map(|token| token.stem.as_str())
            .collect();
        let told = |fact: &Reading| {
            let telling = fact.telling();
            telling.contains(token.stem.as_str())
                && (beside.is_empty() || beside.iter().all(|word| telling.contains(word)))
        };
        let partly = |fact: &Reading| {
            let telling = fact.telling();
            telling.contains(token.stem.as_str())
                && beside.first().is_some_and(|word| telling.contains(word))
        };
        if !known.iter().any(|fact| told(fact) || partly(fact)) {
            return Some(format!("{} belongs to another statement", token.lower));
        }
    }
    None
}

/// Words that only join merged facts.
#[rustfmt::skip]
const JOINTS: &[&str] = &[
    "and", "with", "for", "both", "including", "or", "to", "by", "as", "well", "und", "mit", "sowie", "für", "avec", "pour", "con", "para",
    "uses", "has", "have", "details", "about",
];

/// The difference between two states of the base truth.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Compared {
    pub added: Vec<String>,
    /// Pairs of older and newer text.
    pub changed: Vec<(String, String)>,
    pub removed: Vec<String>,
}

/// Compares two states: by event, then by text, then by key.
pub fn compare(older: &[Fact], newer: &[Fact]) -> Compared {
    let mut left: Vec<&Fact> = older.iter().collect();
    let mut compared = Compared::default();
    let mut rest: Vec<&Fact> = Vec::new();
    for fact in newer {
        let by_words =
            |known: &&Fact| plain::sameness_key(&known.text) == plain::sameness_key(&fact.text);
        let found = left
            .iter()
            .position(|known| known.id == fact.id)
            .or_else(|| left.iter().position(by_words));
        match found {
            Some(at) => {
                let known = left.remove(at);
                if known.text != fact.text {
                    compared.changed.push((known.text.clone(), fact.text.clone()));
                }
            }
            None => rest.push(fact),
        }
    }
    for fact in rest {
        match meant(&left, &fact.text, Way::Update) {
            Meant::One(at) if at < left.len() => {
                let known = left.remove(at);
                compared.changed.push((known.text.clone(), fact.text.clone()));
            }
            _ => compared.added.push(fact.text.clone()),
        }
    }
    compared.removed = left.into_iter().map(|fact| fact.text.clone()).collect();
    compared
}

/// A snapshot as JSON, one line per fact, so that two snapshots can be diffed.
pub fn snapshot(facts: &[Fact], turn: u64, ts: Moment) -> String {
    let lines: Vec<String> = facts
        .iter()
        .filter_map(|fact| serde_json::to_string(fact).ok())
        .map(|line| format!("    {line}"))
        .collect();
    let facts =
        if lines.is_empty() { "[]".to_owned() } else { format!("[\n{}\n  ]", lines.join(",\n")) };
    format!("{{\n  \"turn\": {turn},\n  \"ts\": \"{ts}\",\n  \"facts\": {facts}\n}}\n")
}

/// Two facts of one list that have the same key. A valid list has no such pair.
pub fn doubled(texts: &[String]) -> Option<(usize, usize)> {
    (0..texts.len()).flat_map(|one| (one + 1..texts.len()).map(move |other| (one, other))).find(|(one, other)| {
        matches!((texts.get(*one), texts.get(*other)), (Some(one), Some(other)) if key::same_key(one, other) || plain::sameness_key(one) == plain::sameness_key(other))
    })
}

#[cfg(test)]
mod tests;
