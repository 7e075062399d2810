//! Conversation facts, the base truth: the facts that hold in a conversation, and how a diff
//! changes them (C1, C5, C9, C10, C14).
//!
//! The base truth is a view over the ledger, never a file of its own: a fact is an active statement
//! whose scope is the conversation. A diff is a proposal. It is parsed leniently and applied in the
//! order remove, update, add; every deviation from the diff is reported. A hard exception is
//! removed only if the diff names it.

use std::collections::{BTreeSet, HashMap};

use icecore_text::lexicon::WordList;
use icecore_text::normalize::collapse_spaces;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::branch::TurnSet;
use super::fact_matching::{
    self, DiffOp, FactMatch, MatchConfidence, have_same_content, match_fact,
    match_fact_with_confidence,
};
use super::grounding;
use super::statement::{ParsedStatement, WordClass, extended_list};
use crate::budget;
use crate::calendar::Moment;
use crate::event::{Act, Event, EventDraft, EventType, Origin, Priority, Scope, guess_event_type};
use crate::extraction::equivalence::{Equivalence, compare_statements};
use crate::id::EventId;
use crate::ledger::Ledger;
use crate::sanitize;
use icecore_text::phrase::{has_listed_phrase, normalize_sentence};

/// Maximum number of entries of a diff that are applied, over all three lists.
pub const MAX_DIFF_ENTRIES: usize = 40;
/// Maximum length of an entry, in bytes.
pub const MAX_ENTRY_BYTES: usize = 400;
/// The tag of a hard exception.
pub const HARD_TAG: &str = "hard";
/// The field that holds the turn in which a fact was learned.
pub const TURN_FIELD: &str = "turn";
/// Maximum share of the facts that a consolidation may drop without a trace, in percent.
pub const MAX_DROPPED_PERCENT: usize = 40;
/// Minimum share of a fact's content words that its merged line must contain, in percent.
const MIN_MERGED_PERCENT: usize = 60;

/// A fact that holds in a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConversationFact {
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

impl AsRef<str> for ConversationFact {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

/// The facts of a conversation: hard exceptions first, then in the order in which they were first
/// established. A replacement keeps the position of the fact it replaces.
pub fn facts(ledger: &Ledger, conversation: &str) -> Vec<ConversationFact> {
    let mut places: HashMap<EventId, usize> = HashMap::new();
    let mut found: Vec<(usize, ConversationFact)> = Vec::new();
    for (at, entry) in ledger.entries().iter().enumerate() {
        let event = &entry.event;
        let own = matches!(&event.scope, Scope::Conversation(id) if id == conversation);
        if !own || !event.is_statement() || event.content == crate::forget::FORGOTTEN_MARK {
            continue;
        }
        let place =
            event.supersedes.iter().filter_map(|id| places.get(id)).min().copied().unwrap_or(at);
        places.insert(event.id, place);
        // Content from an untrusted speaker is not shown before it is confirmed.
        if entry.state.is_active() && !entry.is_quarantined() {
            let hard = event.tags.iter().any(|tag| tag == HARD_TAG) || is_hard(&event.content);
            let fact = ConversationFact {
                id: event.id,
                text: event.content.clone(),
                hard,
                since: event.ts,
                turn: event.extra_field(TURN_FIELD),
            };
            found.push((place, fact));
        }
    }
    found.sort_by_key(|(place, fact)| (!fact.hard, *place, fact.id));
    found.into_iter().map(|(_, fact)| fact).collect()
}

/// The field that lists the turns whose facts were merged into one.
pub const MERGED_TURNS_FIELD: &str = "merged_turns";

/// The facts of a conversation as the turns of `path` established them. Additions, changes and
/// removals by other turns do not count.
pub fn facts_on_path(ledger: &Ledger, conversation: &str, path: &TurnSet) -> Vec<ConversationFact> {
    let is_shown = |event: &Event| {
        let merged: Vec<u64> = event.extra_field(MERGED_TURNS_FIELD).unwrap_or_default();
        event.extra_field(TURN_FIELD).is_none_or(|turn| path.contains(turn))
            && merged.into_iter().all(|turn| path.contains(turn))
    };
    let shown = ledger.entries().iter().map(|entry| &entry.event).filter(|event| is_shown(event));
    facts(&Ledger::from_events(shown.cloned()), conversation)
}

/// Idioms that contain a hard word but do not bind.
#[rustfmt::skip]
const HARMLESS_IDIOMS: &[&str] = &[
    "never mind", "never say never", "as always", "like always", "better late than never", "now or never", "cannot wait", "cannot believe",
    "cannot complain", "must say", "must admit", "must confess", "must be kidding", "must be joking", "you never know", "wie immer",
    "immer noch", "immer wieder", "was auch immer", "do not worry", "do not know", "do not mind", "do not think", "comme toujours",
    "como siempre",
];

/// Whether a statement binds: it says must, never, always, cannot or the like.
pub fn is_hard(text: &str) -> bool {
    let mut words = normalize_sentence(text);
    for idiom in HARMLESS_IDIOMS {
        while let Some(at) = icecore_text::phrase::find_phrase(&words, idiom) {
            words.replace_range(at..at + idiom.len(), "");
        }
    }
    has_listed_phrase(&words, WordList::ModalPhrase)
        || has_listed_phrase(&words, WordList::BindingPhrase)
}

/// The changes of the facts that a summarizer proposes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct FactDiff {
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

impl FactDiff {
    /// Parses a model's answer leniently: unknown fields are ignored, `null` is an empty list, a
    /// single string is a list of one, and entries that are not text are skipped with a note.
    pub fn from_json(value: &Value) -> Self {
        let mut diff = Self::default();
        let mut notes = Vec::new();
        let mut list = |name: &str| -> Vec<String> {
            match value.get(name) {
                None | Some(Value::Null) => Vec::new(),
                Some(Value::String(text)) => vec![text.clone()],
                Some(Value::Array(all)) => {
                    all.iter().filter_map(|one| entry_text(name, one, &mut notes)).collect()
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

fn entry_text(name: &str, value: &Value, notes: &mut Vec<String>) -> Option<String> {
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

impl<'de> Deserialize<'de> for FactDiff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self::from_json(&value))
    }
}

/// A change of one fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum FactChange {
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
pub struct AppliedDiff {
    /// Removals first, then replacements, then additions.
    pub changes: Vec<FactChange>,
    /// Deviations from the diff, and why.
    pub notes: Vec<String>,
}

impl AppliedDiff {
    /// Drops changes that later turns have overtaken: a turn that is processed late does not
    /// override newer facts.
    pub fn as_of(mut self, facts: &[ConversationFact], turn: u64) -> Self {
        let later = |change: &FactChange| match change {
            FactChange::Add { .. } => None,
            FactChange::Remove { id } | FactChange::Replace { id, .. } => facts
                .iter()
                .find(|fact| fact.id == *id && fact.turn.is_some_and(|said| said > turn)),
        };
        for fact in self.changes.iter().filter_map(later) {
            self.notes.push(format!(
                "overtaken by a later turn, so not applied: {}",
                budget::truncate_at_word(&fact.text, 120)
            ));
        }
        self.changes.retain(|change| later(change).is_none());
        self
    }
}

impl AppliedDiff {
    /// Drops removals that the exchange does not support, and rewordings of hard exceptions that
    /// the person's own words do not support. Returns each one with the reason.
    pub fn refuse_removals(
        &mut self,
        facts: &[ConversationFact],
        asked: &str,
        replied: &str,
    ) -> Vec<String> {
        let mut refused = Vec::new();
        let shown = |text: &str| budget::truncate_at_word(&sanitize::one_line(text), 120);
        self.changes.retain(|change| {
            let (FactChange::Remove { id } | FactChange::Replace { id, .. }) = change else {
                return true;
            };
            let Some(fact) = facts.iter().find(|fact| fact.id == *id) else { return true };
            let (why, what) = match change {
                FactChange::Replace { text, .. } if fact.hard => (
                    grounding::unsupported_replacement(&fact.text, text, asked),
                    format!("replace \"{}\" with \"{}\"", shown(&fact.text), shown(text)),
                ),
                FactChange::Remove { .. } => (
                    grounding::unsupported_removal(&fact.text, fact.hard, asked, replied),
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
struct FactSlot {
    /// The fact's event; `None` for a fact that this diff adds.
    id: Option<EventId>,
    was: String,
    text: String,
    hard: bool,
    gone: bool,
}

struct DiffApplication {
    slots: Vec<FactSlot>,
    notes: Vec<String>,
}

/// Applies a diff to the facts: remove, then update, then add.
pub fn apply_diff(facts: &[ConversationFact], diff: &FactDiff) -> AppliedDiff {
    let slot = |fact: &ConversationFact| FactSlot {
        id: Some(fact.id),
        was: fact.text.clone(),
        text: fact.text.clone(),
        hard: fact.hard,
        gone: false,
    };
    let mut work =
        DiffApplication { slots: facts.iter().map(slot).collect(), notes: diff.notes.clone() };
    let mut room = MAX_DIFF_ENTRIES;
    let removals = bounded_entries("remove", &diff.remove, &mut room, &mut work.notes);
    let updates = bounded_entries("update", &diff.update, &mut room, &mut work.notes);
    let additions = bounded_entries("add", &diff.add, &mut room, &mut work.notes);
    for text in &removals {
        work.remove(text);
    }
    for text in updates {
        work.update(text);
    }
    for text in additions {
        work.add(text);
    }
    work.finish()
}

/// The entries to apply, sanitized, truncated and limited in number.
fn bounded_entries(
    list: &str,
    entries: &[String],
    room: &mut usize,
    notes: &mut Vec<String>,
) -> Vec<String> {
    let mut kept = Vec::new();
    for (at, raw) in entries.iter().enumerate() {
        if *room == 0 {
            notes.push(format!(
                "{} entries of `{list}` are more than {MAX_DIFF_ENTRIES} and were left out",
                entries.len() - at
            ));
            break;
        }
        *room -= 1;
        let cleaned = sanitize::clean(raw).text;
        let line = collapse_spaces(&cleaned);
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
        kept.push(budget::truncate_at_word(line, MAX_ENTRY_BYTES));
    }
    kept
}

impl DiffApplication {
    /// Finds the slot that a text refers to, among the removed slots or among the others.
    fn match_slot(
        &self,
        text: &str,
        way: DiffOp,
        gone: bool,
    ) -> (FactMatch, Option<MatchConfidence>) {
        let of: Vec<usize> = (0..self.slots.len())
            .filter(|at| self.slots.get(*at).is_some_and(|slot| slot.gone == gone))
            .collect();
        let texts: Vec<&str> =
            of.iter().filter_map(|at| self.slots.get(*at)).map(|slot| slot.text.as_str()).collect();
        let own = |at: usize| of.get(at).copied().unwrap_or(usize::MAX);
        match match_fact_with_confidence(&texts, text, way) {
            (FactMatch::One(at), sure) => (FactMatch::One(own(at)), sure),
            (FactMatch::Ambiguous(all), sure) => {
                (FactMatch::Ambiguous(all.into_iter().map(own).collect()), sure)
            }
            none => none,
        }
    }

    fn note(&mut self, what: &str, text: &str) {
        self.notes.push(format!("{what}: {}", budget::truncate_at_word(text, 120)));
    }

    fn remove(&mut self, text: &str) {
        match self.match_slot(text, DiffOp::Remove, false) {
            (FactMatch::One(at), sure) => {
                let Some(slot) = self.slots.get_mut(at) else { return };
                if slot.hard && sure < Some(MatchConfidence::Clearly) {
                    self.note("only naming a hard exception removes it; nothing removed", text);
                } else {
                    slot.gone = true;
                }
            }
            (FactMatch::None, _) => self.note("matches no fact; nothing removed", text),
            (FactMatch::Ambiguous(all), _) => {
                self.note(&format!("matches {} facts; nothing removed", all.len()), text)
            }
        }
    }

    fn update(&mut self, text: String) {
        match self.match_slot(&text, DiffOp::Update, false) {
            (FactMatch::One(at), sure) => self.replace(at, sure, text),
            (FactMatch::Ambiguous(all), sure) if sure >= Some(MatchConfidence::Key) => {
                self.note("several facts have this key; the last one was replaced", &text);
                if let Some(at) = all.last() {
                    self.replace(*at, sure, text);
                }
            }
            (found, _) => {
                if self.revive(&text) {
                    return;
                }
                let many = matches!(found, FactMatch::Ambiguous(_));
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
    fn replace(&mut self, at: usize, sure: Option<MatchConfidence>, text: String) {
        let Some(slot) = self.slots.get_mut(at) else { return };
        if sanitize::sameness_key(&slot.text) == sanitize::sameness_key(&text) {
            return self.note("already known", &text);
        }
        if slot.hard && sure < Some(MatchConfidence::Clearly) {
            self.note("only naming a hard exception replaces it; added next to it", &text);
            return self.push(text);
        }
        slot.hard = is_hard(&text);
        slot.text = text;
    }

    /// Restores a fact that this diff removed and now adds again.
    fn revive(&mut self, text: &str) -> bool {
        let (FactMatch::One(at), sure) = self.match_slot(text, DiffOp::Add, true) else {
            return false;
        };
        let Some(slot) = self.slots.get_mut(at) else { return false };
        if slot.hard && sure < Some(MatchConfidence::Clearly) {
            return false;
        }
        slot.gone = false;
        slot.text = text.to_owned();
        slot.hard = is_hard(text);
        self.note("removed and added again; treated as a replacement", text);
        true
    }

    fn add(&mut self, text: String) {
        if self.slots.iter().any(|slot| !slot.gone && implies(&slot.text, &text)) {
            return self.note("already known", &text);
        }
        if self.revive(&text) {
            return;
        }
        match self.match_slot(&text, DiffOp::Add, false) {
            (FactMatch::One(at), sure) => {
                // Adding to a list does not replace it.
                let list = self.slots.get(at).and_then(|slot| extended_list(&slot.text, &text));
                if let Some(list) = list.filter(|list| {
                    sure >= Some(MatchConfidence::Key) && list.len() <= MAX_ENTRY_BYTES
                }) {
                    self.note("appended to the list of that key", &text);
                    return self.replace(at, Some(MatchConfidence::Exactly), list);
                }
                self.note("the key is known already; its fact was replaced", &text);
                self.replace(at, sure, text);
            }
            (FactMatch::Ambiguous(all), sure) if sure >= Some(MatchConfidence::Key) => {
                self.note("several facts have this key; the last one was replaced", &text);
                if let Some(at) = all.last() {
                    self.replace(*at, sure, text);
                }
            }
            _ => self.push(text),
        }
    }

    fn push(&mut self, text: String) {
        if self.slots.iter().any(|slot| !slot.gone && implies(&slot.text, &text)) {
            return self.note("already known", &text);
        }
        let hard = is_hard(&text);
        self.slots.push(FactSlot { id: None, was: String::new(), text, hard, gone: false });
    }

    fn finish(self) -> AppliedDiff {
        let (mut removed, mut replaced, mut added) = (Vec::new(), Vec::new(), Vec::new());
        for slot in self.slots {
            match slot.id {
                Some(id) if slot.gone => removed.push(FactChange::Remove { id }),
                Some(id) if slot.text != slot.was => {
                    replaced.push(FactChange::Replace { id, text: slot.text, hard: slot.hard })
                }
                None if !slot.gone => {
                    added.push(FactChange::Add { text: slot.text, hard: slot.hard })
                }
                _ => {}
            }
        }
        AppliedDiff {
            changes: removed.into_iter().chain(replaced).chain(added).collect(),
            notes: self.notes,
        }
    }
}

/// Whether a known statement already implies a new one.
pub fn implies(known: &str, new: &str) -> bool {
    if sanitize::sameness_key(known) == sanitize::sameness_key(new) {
        return true;
    }
    let (one, other) = (ParsedStatement::parse(known), ParsedStatement::parse(new));
    if have_same_content(&one, &other) {
        return true;
    }
    // Synonyms count only if the new statement has no number, name or limit of its own.
    let told = one.content_words();
    let nothing_new = other.tokens.iter().all(|token| {
        let telling = matches!(token.class, WordClass::Number | WordClass::Day) || token.name;
        !telling || told.contains(token.stem.as_str())
    });
    nothing_new
        && one.is_negated() == other.is_negated()
        && is_hard(known) == is_hard(new)
        && compare_statements(known, new) == Equivalence::Same
}

/// The fact texts after the changes, hard exceptions first.
pub fn facts_after(facts: &[ConversationFact], changes: &[FactChange]) -> Vec<String> {
    let mut kept: Vec<(bool, String)> = Vec::new();
    for fact in facts {
        let change =
            changes.iter().rev().find(|change| matches!(change, FactChange::Remove { id } | FactChange::Replace { id, .. } if *id == fact.id));
        match change {
            Some(FactChange::Remove { .. }) => {}
            Some(FactChange::Replace { text, hard, .. }) => kept.push((*hard, text.clone())),
            _ => kept.push((fact.hard, fact.text.clone())),
        }
    }
    for change in changes {
        if let FactChange::Add { text, hard } = change {
            kept.push((*hard, text.clone()));
        }
    }
    kept.sort_by_key(|(hard, _)| !hard);
    kept.into_iter().map(|(_, text)| text).collect()
}

/// The origin of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeSource {
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
pub fn event_drafts(
    applied: &AppliedDiff,
    ledger: &Ledger,
    whence: &ChangeSource,
) -> Vec<EventDraft> {
    let own = |draft: EventDraft| {
        // The words come from the summarizer, so they have an assistant's origin.
        let draft = EventDraft {
            session: whence.session.clone(),
            source: whence.source.clone(),
            origin: Origin::Assistant,
            ..draft
        };
        draft.with_extra_field(TURN_FIELD, &whence.turn)
    };
    let statement = |text: &str, hard: bool, replaced: Option<EventId>| {
        let kind = match guess_event_type(text) {
            _ if hard => EventType::Constraint,
            kind @ (EventType::Decision | EventType::Preference) => kind,
            _ => EventType::Fact,
        };
        let priority = if hard { Priority::P0 } else { Priority::P2 };
        own(EventDraft {
            tags: if hard { vec![HARD_TAG.into()] } else { Vec::new() },
            scope: Scope::Conversation(whence.conversation.clone()),
            supersedes: replaced.into_iter().collect(),
            ..EventDraft::new(whence.ts, kind, priority, text)
        })
    };
    applied
        .changes
        .iter()
        .filter_map(|change| match change {
            FactChange::Remove { id } => {
                let target = &ledger.get(*id)?.event;
                let why = budget::truncate_at_word(
                    &format!("no longer holds: {}", sanitize::one_line(&target.content)),
                    MAX_ENTRY_BYTES,
                );
                Some(own(EventDraft::new_act(target, Act::Retract, whence.ts, why)))
            }
            FactChange::Replace { id, text, hard } => {
                Some(statement(text, *hard, ledger.get(*id).map(|entry| entry.event.id)))
            }
            FactChange::Add { text, hard } => Some(statement(text, *hard, None)),
        })
        .collect()
}

/// Checks the shorter list of facts that a model proposes (C9). Returns the changes with notes on
/// dropped facts, or the reasons for rejection.
pub fn check_consolidation(
    facts: &[ConversationFact],
    proposed: &[String],
) -> Result<AppliedDiff, Vec<String>> {
    let mut notes = Vec::new();
    let mut room = facts.len().max(MAX_DIFF_ENTRIES).saturating_add(1);
    let mut lines = bounded_entries("the proposal", proposed, &mut room, &mut notes);
    let mut seen = BTreeSet::new();
    lines.retain(|line| seen.insert(sanitize::sameness_key(line)));
    let mut reasons = Vec::new();
    if lines.is_empty() && !facts.is_empty() {
        return Err(vec!["the list is empty".into()]);
    }
    if lines.len() > facts.len() {
        reasons.push(format!("it has {} lines for {} facts", lines.len(), facts.len()));
    }
    let known: Vec<ParsedStatement> =
        facts.iter().map(|fact| ParsedStatement::parse(&fact.text)).collect();
    // For each fact, the line that keeps it and whether it keeps it unchanged.
    let mut homes: Vec<Option<(usize, bool)>> = vec![None; facts.len()];
    for ((fact, reading), place) in facts.iter().zip(&known).zip(&mut homes) {
        let verbatim =
            |line: &&String| sanitize::sameness_key(line) == sanitize::sameness_key(&fact.text);
        let same_line = |line: &String| {
            have_same_content(&ParsedStatement::parse(line), reading)
                || (!fact.hard && implies(&fact.text, line) && implies(line, &fact.text))
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
        let reading = ParsedStatement::parse(line);
        let sources: Vec<usize> = (0..facts.len())
            .filter(|at| known.get(*at).is_some_and(|fact| is_merged_into(fact, &reading)))
            .collect();
        let texts: Vec<&str> =
            sources.iter().filter_map(|at| facts.get(*at)).map(|fact| fact.text.as_str()).collect();
        if let Some(why) = unsupported_claim(line, &reading, &texts) {
            reasons.push(format!("`{}`: {why}", budget::truncate_at_word(line, 120)));
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
        let shown = budget::truncate_at_word(&fact.text, 120);
        match home {
            Some((_, true)) => {}
            _ if fact.hard => reasons.push(format!("a hard exception is missing: {shown}")),
            Some(_) => {}
            None if reading.tokens.iter().any(|token| {
                token.name
                    || matches!(
                        token.class,
                        WordClass::Number | WordClass::Day | WordClass::Negation
                    )
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
    Ok(AppliedDiff { changes: merge_changes(facts, &lines, &homes), notes })
}

/// The changes that turn the facts into the lines.
fn merge_changes(
    facts: &[ConversationFact],
    lines: &[String],
    homes: &[Option<(usize, bool)>],
) -> Vec<FactChange> {
    let (mut removed, mut replaced) = (Vec::new(), Vec::new());
    let mut filled: BTreeSet<usize> = BTreeSet::new();
    for (fact, home) in facts.iter().zip(homes) {
        match home {
            // Of two equal facts the first stays; a hard one always stays.
            Some((home, true)) => {
                if !filled.insert(*home) && !fact.hard {
                    removed.push(FactChange::Remove { id: fact.id });
                }
            }
            Some((home, false)) if filled.insert(*home) => {
                let text = lines.get(*home).cloned().unwrap_or_default();
                let hard = is_hard(&text);
                replaced.push(FactChange::Replace { id: fact.id, text, hard });
            }
            _ => removed.push(FactChange::Remove { id: fact.id }),
        }
    }
    removed.into_iter().chain(replaced).collect()
}

/// Whether a line contains a fact, possibly as one of several merged facts.
fn is_merged_into(fact: &ParsedStatement, line: &ParsedStatement) -> bool {
    let (mine, theirs) = (fact.content_words(), line.content_words());
    let shared = mine.intersection(&theirs).count();
    let strict = fact.tokens.iter().filter(|token| {
        token.name
            || matches!(token.class, WordClass::Number | WordClass::Day | WordClass::Negation)
    });
    !mine.is_empty()
        && shared * 100 >= mine.len() * MIN_MERGED_PERCENT
        && strict.into_iter().all(|token| theirs.contains(token.stem.as_str()))
}

/// What a line of a consolidation claims that its source facts do not.
fn unsupported_claim(line: &str, reading: &ParsedStatement, sources: &[&str]) -> Option<String> {
    if sources.is_empty() {
        return Some("no fact supports it".into());
    }
    if let Some(why) = grounding::unsupported_entry(line, sources) {
        return Some(why.replace("the exchange", "the old facts"));
    }
    if is_hard(line) && !sources.iter().any(|text| is_hard(text)) {
        return Some("it is binding, but its facts are not".into());
    }
    let known: Vec<ParsedStatement> =
        sources.iter().map(|text| ParsedStatement::parse(text)).collect();
    if reading.is_negated() != known.iter().any(ParsedStatement::is_negated) {
        return Some("it contradicts the facts".into());
    }
    let new: Vec<&str> = reading
        .tokens
        .iter()
        .filter(|token| {
            token.class == WordClass::Content && !JOINING_WORDS.contains(&token.lower.as_str())
        })
        .filter(|token| {
            !known.iter().any(|fact| fact.content_words().contains(token.stem.as_str()))
        })
        .map(|token| token.lower.as_str())
        .collect();
    let telling = reading.content_words().len();
    if new.len() * 5 > telling {
        return Some(format!("no fact contains: {}", new.join(", ")));
    }
    // A number belongs to the word next to it.
    let words: Vec<_> =
        reading.tokens.iter().filter(|token| token.class != WordClass::StopWord).collect();
    for (at, token) in
        words.iter().enumerate().filter(|(_, token)| token.class == WordClass::Number)
    {
        let beside: Vec<&str> = [at.checked_sub(1), Some(at + 1)]
            .into_iter()
            .flatten()
            .filter_map(|at| words.get(at))
            .filter(|token| {
                token.class == WordClass::Content && !JOINING_WORDS.contains(&token.lower.as_str())
            })
            .map(|token| token.stem.as_str())
            .collect();
        let told = |fact: &ParsedStatement| {
            let telling = fact.content_words();
            telling.contains(token.stem.as_str())
                && (beside.is_empty() || beside.iter().all(|word| telling.contains(word)))
        };
        let partly = |fact: &ParsedStatement| {
            let telling = fact.content_words();
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
const JOINING_WORDS: &[&str] = &[
    "and", "with", "for", "both", "including", "or", "to", "by", "as", "well", "und", "mit", "sowie", "für", "avec", "pour", "con", "para",
    "uses", "has", "have", "details", "about",
];

/// The difference between two states of the base truth.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct FactComparison {
    pub added: Vec<String>,
    /// Pairs of older and newer text.
    pub changed: Vec<(String, String)>,
    pub removed: Vec<String>,
}

/// Compares two states: by event, then by text, then by key.
pub fn compare_facts(older: &[ConversationFact], newer: &[ConversationFact]) -> FactComparison {
    let mut left: Vec<&ConversationFact> = older.iter().collect();
    let mut compared = FactComparison::default();
    let mut rest: Vec<&ConversationFact> = Vec::new();
    for fact in newer {
        let by_words = |known: &&ConversationFact| {
            sanitize::sameness_key(&known.text) == sanitize::sameness_key(&fact.text)
        };
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
        match match_fact(&left, &fact.text, DiffOp::Update) {
            FactMatch::One(at) if at < left.len() => {
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
pub fn snapshot(facts: &[ConversationFact], turn: u64, ts: Moment) -> String {
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
pub fn find_duplicate_key(texts: &[String]) -> Option<(usize, usize)> {
    (0..texts.len()).flat_map(|one| (one + 1..texts.len()).map(move |other| (one, other))).find(|(one, other)| {
        matches!((texts.get(*one), texts.get(*other)), (Some(one), Some(other)) if fact_matching::have_same_key(one, other) || sanitize::sameness_key(one) == sanitize::sameness_key(other))
    })
}

#[cfg(test)]
mod tests;
