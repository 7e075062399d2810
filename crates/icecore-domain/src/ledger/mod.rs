//! The ledger: all lines read, and the state of every event (L2, L3).
//!
//! Events are never edited. The state of an event follows only from the events after it: **an act
//! affects only earlier events**. Therefore supersession has no cycles, whatever a foreign line
//! claims; a reference forwards or to itself has no effect and is reported.

pub mod archive;
mod claim;
pub mod compact;
pub mod conflict;
pub mod decay;
pub mod integrity;
pub mod query;
pub mod revise;

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::calendar::Moment;
use crate::event::{Effect, Event, EventType, LoopStatus};
use crate::format::line::{self, ParseFault, Severity};
use crate::id::EventId;
use crate::record::Trust;

/// The state of an event after all later events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventState {
    /// Valid; for a commitment, open.
    Active,
    /// A later event replaced it.
    Superseded { by: EventId },
    /// A fulfilled or ended commitment.
    Closed { by: EventId },
    /// Retracted.
    Retracted { by: EventId },
}

impl EventState {
    /// The state of an event before any later event.
    pub fn initial(event: &Event) -> Self {
        if event.is_statement()
            && event.kind == EventType::Commitment
            && event.status == Some(LoopStatus::Closed)
        {
            Self::Closed { by: event.id }
        } else {
            Self::Active
        }
    }

    /// The state after one more effect. The first event that ends this one stays responsible; only
    /// a retraction overrides it.
    #[must_use]
    pub fn apply(self, effect: Effect, by: EventId) -> Self {
        match (self, effect) {
            (_, Effect::Retract) => Self::Retracted { by },
            (Self::Active, Effect::Supersede) => Self::Superseded { by },
            (Self::Active, Effect::Close) => Self::Closed { by },
            (standing, _) => standing,
        }
    }

    /// Whether the event still holds.
    pub fn is_active(self) -> bool {
        self == Self::Active
    }

    /// The written form.
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Superseded { .. } => "superseded",
            Self::Closed { .. } => "closed",
            Self::Retracted { .. } => "retracted",
        }
    }

    /// The event that ended it.
    pub fn ended_by(self) -> Option<EventId> {
        match self {
            Self::Active => None,
            Self::Superseded { by } | Self::Closed { by } | Self::Retracted { by } => Some(by),
        }
    }

    /// Rebuilds a state from its word and the event that caused it.
    pub fn from_parts(word: &str, by: Option<EventId>) -> Option<Self> {
        match (word, by) {
            ("active", None) => Some(Self::Active),
            ("superseded", Some(by)) => Some(Self::Superseded { by }),
            ("closed", Some(by)) => Some(Self::Closed { by }),
            ("retracted", Some(by)) => Some(Self::Retracted { by }),
            _ => None,
        }
    }
}

/// An event with its line and state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    pub event: Event,
    /// The line number, from 1.
    pub line: usize,
    pub state: EventState,
    /// When it was last recorded or confirmed.
    pub verified: Moment,
    /// Whether a trusted later event confirmed it.
    pub confirmed: bool,
}

impl LedgerEntry {
    /// Whether this is an open commitment.
    pub fn is_open_loop(&self) -> bool {
        self.state.is_active()
            && self.event.is_statement()
            && self.event.kind == EventType::Commitment
    }

    /// An entry without later events.
    pub fn from_event(event: Event, line: usize) -> Self {
        Self {
            state: EventState::initial(&event),
            verified: event.ts,
            confirmed: false,
            line,
            event,
        }
    }

    /// Whether it comes from a tool or another person and is unconfirmed. No pack shows such an
    /// entry.
    pub fn is_quarantined(&self) -> bool {
        Trust::from_origin(self.event.origin) == Trust::Low && !self.confirmed
    }
}

impl Serialize for LedgerEntry {
    /// Writes the event's own fields, then its state in the ledger.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Flat<'a> {
            #[serde(flatten)]
            event: &'a Event,
            line: usize,
            standing: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            ended_by: Option<EventId>,
            verified: Moment,
        }
        // A foreign field of the same name stays in the ledger; JSON must not repeat a name.
        let known = ["line", "standing", "ended_by", "verified"];
        let mut told = self.event.clone();
        told.draft.extra.retain(|(name, _)| !known.contains(&name.as_str()));
        let (line, verified) = (self.line, self.verified);
        Flat {
            event: &told,
            line,
            standing: self.state.word(),
            ended_by: self.state.ended_by(),
            verified,
        }
        .serialize(serializer)
    }
}

/// A fault with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineFault {
    /// The line number, from 1.
    pub line: usize,
    pub fault: ParseFault,
}

/// The fault of a line whose id another line already uses.
pub fn duplicate_id_fault(id: EventId) -> ParseFault {
    ParseFault { severity: Severity::Bad, what: format!("uses {id} again and is ignored") }
}

/// One raw line of a file with its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawLine<'a> {
    /// The line number, from 1.
    pub number: usize,
    /// The byte offset of its start.
    pub offset: usize,
    /// The content, without the line break.
    pub bytes: &'a [u8],
    /// Whether it ends with a line break; only the last line may lack one.
    pub ended: bool,
}

/// The lines of `bytes`, the first one numbered `first`.
pub fn raw_lines(bytes: &[u8], first: usize) -> impl Iterator<Item = RawLine<'_>> {
    let mut offset = 0;
    let mut number = first;
    std::iter::from_fn(move || {
        if offset >= bytes.len() {
            return None;
        }
        let rest = &bytes[offset..];
        let end = memchr::memchr(b'\n', rest);
        let line = RawLine {
            number,
            offset,
            bytes: &rest[..end.unwrap_or(rest.len())],
            ended: end.is_some(),
        };
        offset += line.bytes.len() + 1;
        number += 1;
        Some(line)
    })
}

/// The byte offset of a torn last line, if any: bytes after the last line break that are not a
/// complete event. A complete event without a line break is not torn.
pub fn find_torn_tail(bytes: &[u8]) -> Option<usize> {
    let start = memchr::memrchr(b'\n', bytes).map_or(0, |at| at + 1);
    let tail = &bytes[start..];
    if tail.is_empty() {
        return None;
    }
    let parsed = line::parse_line(tail);
    (parsed.events.is_empty() || !parsed.is_sound()).then_some(start)
}

/// The events that are linked to `ids` by their effects, directly or indirectly.
pub fn linked_events<E: Borrow<Event>>(events: Vec<E>, ids: &[EventId]) -> Vec<E> {
    let mut neighbours: HashMap<EventId, Vec<EventId>> = HashMap::new();
    for event in events.iter().map(E::borrow) {
        for (target, _) in event.effects() {
            neighbours.entry(event.id).or_default().push(target);
            neighbours.entry(target).or_default().push(event.id);
        }
    }
    let mut known: HashSet<EventId> = ids.iter().copied().collect();
    let mut next: Vec<EventId> = ids.to_vec();
    while let Some(id) = next.pop() {
        next.extend(
            neighbours.get(&id).into_iter().flatten().copied().filter(|&found| known.insert(found)),
        );
    }
    events.into_iter().filter(|event| known.contains(&event.borrow().id)).collect()
}

/// The parsed ledger with the state of every event.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    entries: Vec<LedgerEntry>,
    by_id: HashMap<EventId, usize>,
    duplicates: Vec<(usize, EventId, bool)>,
    faults: Vec<LineFault>,
    torn: Option<usize>,
    /// Numbers of lines and bytes read.
    lines: usize,
    bytes: usize,
}

/// Merges archived events into the ledger's events. Each archived event goes before the first event
/// with a greater id, because ids grow with the file. An archived event whose id is in the ledger
/// is dropped. The numbers are the line numbers.
pub fn merge_by_id(
    own: Vec<(Event, usize)>,
    mut older: Vec<(Event, usize)>,
) -> Vec<(Event, usize)> {
    let known: HashSet<EventId> = own.iter().map(|(event, _)| event.id).collect();
    older.retain(|(event, _)| !known.contains(&event.id));
    if older.is_empty() {
        return own;
    }
    older.sort_by_key(|(event, _)| event.id);
    older.dedup_by_key(|(event, _)| event.id);
    let mut woven = Vec::with_capacity(own.len() + older.len());
    let mut older = older.into_iter().peekable();
    for (event, line) in own {
        while let Some(before) = older.next_if(|(before, _)| before.id < event.id) {
            woven.push(before);
        }
        woven.push((event, line));
    }
    woven.extend(older);
    woven
}

impl Ledger {
    /// Reads a whole ledger; with `until`, as it was at that moment.
    pub fn parse(bytes: &[u8], until: Option<Timestamp>) -> Self {
        let mut ledger = Self::default();
        ledger.push_lines(bytes, until);
        ledger.compute_states();
        ledger
    }

    /// Reads appended lines. All earlier lines must have been read without `until` and must end
    /// with a line break. The result equals that of reading the whole file again. It costs only the
    /// new lines, unless they contain a retraction.
    pub fn parse_appended(&mut self, bytes: &[u8]) {
        let known = self.entries.len();
        self.push_lines(bytes, None);
        let takes_back = (known..self.entries.len())
            .any(|at| !self.earlier_targets(at, |effect| effect == Effect::Retract).is_empty());
        if takes_back {
            for entry in &mut self.entries {
                (entry.state, entry.verified, entry.confirmed) =
                    (EventState::initial(&entry.event), entry.event.ts, false);
            }
            self.compute_states();
        } else {
            (known..self.entries.len()).for_each(|at| self.apply_effects(at));
        }
    }

    /// Parses and adds the following lines.
    fn push_lines(&mut self, bytes: &[u8], until: Option<Timestamp>) {
        let torn = find_torn_tail(bytes);
        let most = memchr::memchr_iter(b'\n', bytes).count() + 1;
        self.entries.reserve(most);
        self.by_id.reserve(most);
        for raw in raw_lines(&bytes[..torn.unwrap_or(bytes.len())], self.lines + 1) {
            let parsed = line::parse_line(raw.bytes);
            self.faults.extend(
                parsed.faults.into_iter().map(|fault| LineFault { line: raw.number, fault }),
            );
            for event in parsed.events {
                if until.is_none_or(|until| event.ts.timestamp() <= until) {
                    self.push(event, raw.number);
                }
            }
            self.lines = raw.number;
        }
        self.torn = torn.map(|at| self.bytes + at);
        self.bytes += bytes.len();
    }

    /// Builds a ledger from these events, in this order.
    pub fn from_events(events: impl IntoIterator<Item = Event>) -> Self {
        let mut ledger = Self::default();
        for (at, event) in events.into_iter().enumerate() {
            ledger.push(event, at + 1);
        }
        ledger.compute_states();
        ledger
    }

    /// Merges archived events into the ledger. Each goes before the first event with a greater id,
    /// because ids grow with the file. Each comes with its line number in the archive; an event
    /// whose id is in the ledger is dropped.
    #[must_use]
    pub fn with_archived(mut self, older: Vec<(Event, usize)>) -> Self {
        if older.is_empty() {
            return self;
        }
        let own = std::mem::take(&mut self.entries);
        self.by_id.clear();
        for (event, line) in
            merge_by_id(own.into_iter().map(|entry| (entry.event, entry.line)).collect(), older)
        {
            self.push(event, line);
        }
        self.compute_states();
        self
    }

    fn push(&mut self, event: Event, line: usize) {
        if let Some(&first) = self.by_id.get(&event.id) {
            // The first event with an id wins. An identical copy, from merging two clones, is no
            // fault.
            let same = self.entries[first].event == event;
            self.duplicates.push((line, event.id, same));
            return;
        }
        self.by_id.insert(event.id, self.entries.len());
        self.entries.push(LedgerEntry::from_event(event, line));
    }

    /// Computes the state of every event. Retractions are resolved from the end backwards, because
    /// a retraction counts only if no later event retracted it. The remaining effects apply in
    /// order.
    fn compute_states(&mut self) {
        let mut retracted: Vec<Option<EventId>> = vec![None; self.entries.len()];
        for at in (0..self.entries.len()).rev() {
            if retracted[at].is_some() {
                continue;
            }
            for target in self.earlier_targets(at, |effect| effect == Effect::Retract) {
                retracted[target.0].get_or_insert(self.entries[at].event.id);
            }
        }
        for (at, gone) in retracted.iter().enumerate() {
            if gone.is_none() {
                self.apply_effects(at);
            }
        }
        for (entry, by) in self.entries.iter_mut().zip(retracted) {
            if let Some(by) = by {
                entry.state = entry.state.apply(Effect::Retract, by);
            }
        }
    }

    /// Applies the effects of the entry at `at` to earlier entries, except retractions.
    fn apply_effects(&mut self, at: usize) {
        let (by, ts) = (self.entries[at].event.id, self.entries[at].event.ts);
        // A confirmation by an untrusted origin does not lift the quarantine.
        let trusted = Trust::from_origin(self.entries[at].event.origin) != Trust::Low;
        for (target, effect) in self.earlier_targets(at, |effect| effect != Effect::Retract) {
            let entry = &mut self.entries[target];
            entry.state = entry.state.apply(effect, by);
            if effect == Effect::Confirm {
                entry.verified = entry.verified.max(ts);
                entry.confirmed |= trusted;
            }
        }
    }

    /// The earlier entries on which the entry at `at` has such an effect.
    fn earlier_targets(&self, at: usize, wanted: impl Fn(Effect) -> bool) -> Vec<(usize, Effect)> {
        let event = &self.entries[at].event;
        if event.is_statement() && event.supersedes.is_empty() {
            return Vec::new();
        }
        event
            .effects()
            .filter(|&(_, effect)| wanted(effect))
            .filter_map(|(id, effect)| self.by_id.get(&id).map(|&target| (target, effect)))
            .filter(|&(target, _)| target < at)
            .collect()
    }

    /// All entries, in file order.
    pub fn entries(&self) -> &[LedgerEntry] {
        &self.entries
    }

    /// All entries, in file order, by value.
    pub fn into_entries(self) -> Vec<LedgerEntry> {
        self.entries
    }

    /// The entry with this id.
    pub fn get(&self, id: EventId) -> Option<&LedgerEntry> {
        self.by_id.get(&id).map(|&at| &self.entries[at])
    }

    /// The faults of all lines.
    pub fn faults(&self) -> &[LineFault] {
        &self.faults
    }

    /// The faults of lines that were read only in part or not at all.
    pub fn bad_lines(&self) -> impl Iterator<Item = &LineFault> {
        self.faults.iter().filter(|found| found.fault.severity == Severity::Bad)
    }

    /// The lines that no command shows: lines that are not events, and repeated ids.
    pub fn unreadable_lines(&self) -> Vec<LineFault> {
        let mut unread: Vec<LineFault> = self.bad_lines().cloned().collect();
        unread.extend(
            self.duplicates
                .iter()
                .map(|&(line, id, _)| LineFault { line, fault: duplicate_id_fault(id) }),
        );
        unread.sort_by_key(|found| found.line);
        unread
    }

    /// The byte offset of a torn last line.
    pub fn torn_tail_offset(&self) -> Option<usize> {
        self.torn
    }

    /// Open commitments, oldest first (L10).
    pub fn open_loops(&self) -> Vec<&LedgerEntry> {
        let mut open: Vec<&LedgerEntry> =
            self.entries.iter().filter(|entry| entry.is_open_loop()).collect();
        open.sort_by_key(|entry| (entry.event.ts, entry.event.id));
        open
    }

    /// The supersession chain of `id` in file order: what it replaced, what replaced it, and the
    /// acts on any of these.
    pub fn chain(&self, id: EventId) -> Vec<&LedgerEntry> {
        let mut members: Vec<EventId> = vec![id];
        let mut next = 0;
        while next < members.len() {
            let member = members[next];
            next += 1;
            let Some(&at) = self.by_id.get(&member) else { continue };
            let backwards = self
                .earlier_targets(at, |_| true)
                .into_iter()
                .map(|(target, _)| self.entries[target].event.id);
            let forwards = self.entries[at + 1..]
                .iter()
                .filter(|entry| entry.event.effects().any(|(target, _)| target == member))
                .map(|entry| entry.event.id);
            for found in backwards.chain(forwards).collect::<Vec<_>>() {
                if !members.contains(&found) {
                    members.push(found);
                }
            }
        }
        let mut places: Vec<usize> =
            members.iter().filter_map(|member| self.by_id.get(member).copied()).collect();
        places.sort_unstable();
        places.into_iter().filter_map(|at| self.entries.get(at)).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::event::{Act, EventDraft, Priority};
    use proptest::prelude::*;

    /// A story in short form: each word is one event. `f` fact, `c` commitment, `s1` supersedes the
    /// first, `x1` closes, `k1` confirms, `r1` retracts it.
    pub(crate) fn story(words: &str) -> Vec<Event> {
        let ts = |n: usize| {
            Moment::parse(&format!("2026-02-13T09:{:02}:00+01:00", n % 60)).unwrap().moment
        };
        let mut events: Vec<Event> = Vec::new();
        for (n, word) in words.split_whitespace().enumerate() {
            let id = EventId::new(ts(n).day(), u32::try_from(n).unwrap() + 1);
            let target = word[1..].parse().ok().map(|n| EventId::new(ts(0).day(), n));
            let mut draft =
                EventDraft::new(ts(n), EventType::Fact, Priority::P2, format!("event {n}"));
            match &word[..1] {
                "c" => {
                    draft = EventDraft::new(
                        ts(n),
                        EventType::Commitment,
                        Priority::P2,
                        format!("event {n}"),
                    )
                }
                "s" => draft.supersedes = target.into_iter().collect(),
                "f" => {}
                act => {
                    draft.act = [("x", Act::Close), ("k", Act::Confirm), ("r", Act::Retract)]
                        .iter()
                        .find(|(w, _)| *w == act)
                        .unwrap()
                        .1;
                    draft.related = target.into_iter().collect();
                }
            }
            events.push(draft.with_id(id));
        }
        events
    }

    fn check(words: &str, standings: &str) {
        let found: Vec<String> = Ledger::from_events(story(words))
            .entries()
            .iter()
            .map(|entry| {
                format!(
                    "{}{}",
                    &entry.state.word()[..1],
                    entry.state.ended_by().map_or(String::new(), |by| by.number().to_string())
                )
            })
            .collect();
        assert_eq!(found.join(" "), standings, "{words}");
    }

    // L3
    #[test]
    fn later_events_decide_what_earlier_ones_are_worth() {
        check("f", "a");
        check("f s1", "s2 a");
        check("f s1 s2", "s2 s3 a");
        check("f s1 s1", "s2 a a"); // a fork: the first replacement counts; `conflicts` shows both
        check("c x1", "c2 a");
        check("c x1 x1", "c2 a a");
        check("c r1 x1", "r2 a a");
        check("f k1", "a a");
    }

    // L3
    #[test]
    fn taking_back_a_correction_brings_back_what_it_corrected() {
        check("f s1 r2", "a r3 a");
        check("c x1 r2", "a r3 a");
        check("f r1 r2", "a r3 a");
        check("f s1 r2 r3", "s2 a r4 a");
        check("f r1 r2 r3", "r2 a r4 a");
    }

    // L3
    #[test]
    fn cycles_and_forward_references_have_no_effect() {
        check("s2 s1", "s2 a");
        check("s1", "a");
        check("r2 f", "a a");
        check("x9 f", "a a");
    }

    // L2
    #[test]
    fn the_ledger_can_be_read_as_of_a_moment() {
        let text: String = story("f s1").iter().map(line::format_line).collect();
        let before = Ledger::parse(text.as_bytes(), "2026-02-13T08:00:30Z".parse().ok());
        assert_eq!(before.entries().len(), 1);
        assert!(before.entries()[0].state.is_active());
        assert!(!Ledger::parse(text.as_bytes(), None).entries()[0].state.is_active());
    }

    // L12: cut at every byte
    #[test]
    fn a_ledger_cut_anywhere_loses_at_most_its_last_event() {
        let events = story("f c s1 x2 f");
        let text: String = events.iter().map(line::format_line).collect();
        for cut in 0..=text.len() {
            let ledger = Ledger::parse(&text.as_bytes()[..cut], None);
            let whole = text[..cut].matches('\n').count();
            let found = ledger.entries().len();
            assert!(found == whole || found == whole + 1, "cut at {cut}: {found} of {whole}");
            assert_eq!(ledger.bad_lines().count(), 0, "cut at {cut}");
            assert!(
                ledger.entries().iter().zip(&events).all(|(entry, event)| entry.event == *event)
            );
        }
    }

    // L12
    #[test]
    fn nul_bytes_at_the_end_are_a_torn_tail() {
        let text: String = story("f f").iter().map(line::format_line).collect();
        let nul = [text.as_bytes(), &[0; 512]].concat();
        let ledger = Ledger::parse(&nul, None);
        assert_eq!((ledger.torn_tail_offset(), ledger.entries().len()), (Some(text.len()), 2));
    }

    #[test]
    fn a_chain_holds_everything_that_hangs_together() {
        let ledger = Ledger::from_events(story("f s1 f k2 s2 r5"));
        let chain = |n| {
            ledger
                .chain(EventId::new(ledger.entries()[0].event.id.day(), n))
                .iter()
                .map(|e| e.line)
                .collect::<Vec<_>>()
        };
        assert_eq!(chain(1), [1, 2, 4, 5, 6]);
        assert_eq!(chain(5), [1, 2, 4, 5, 6]);
        assert_eq!(chain(3), [3]);
    }

    proptest! {
        // L3: without retractions, the state kept step by step equals that of a full fold
        #[test]
        fn step_by_step_equals_the_fold(plan in proptest::collection::vec((0_usize..5, 1_usize..20), 1..20)) {
            let words: Vec<String> = plan.iter().map(|&(what, n)| format!("{}{n}", ["f", "c", "s", "x", "k"][what])).collect();
            let events = story(&words.join(" "));
            let mut stepwise: Vec<(EventId, EventState)> = Vec::new();
            for event in &events {
                for (target, effect) in event.effects() {
                    if let Some(known) = stepwise.iter_mut().find(|(id, _)| *id == target) {
                        known.1 = known.1.apply(effect, event.id);
                    }
                }
                stepwise.push((event.id, EventState::initial(event)));
            }
            let folded: Vec<_> = Ledger::from_events(events).entries().iter().map(|e| (e.event.id, e.state)).collect();
            prop_assert_eq!(stepwise, folded);
        }

        // L3: incremental reading equals reading everything, wherever the text is split
        #[test]
        fn reading_appended_lines_equals_reading_everything(plan in proptest::collection::vec((0_usize..7, 1_usize..20), 1..20), parts in proptest::collection::vec(0_usize..20, 0..3)) {
            let words: Vec<String> = plan.iter().map(|&(what, n)| format!("{}{n}", ["f", "c", "s", "x", "k", "r", "r"][what])).collect();
            let mut lines: Vec<String> = story(&words.join(" ")).iter().map(line::format_line).collect();
            lines.insert(lines.len() / 2, "not an event\n".into());
            lines.push(lines[0].clone());
            lines.push("torn".into());
            let mut cuts: Vec<usize> = parts.into_iter().map(|cut| cut.min(lines.len() - 1)).chain([0, lines.len()]).collect();
            cuts.sort_unstable();
            let mut grown = Ledger::default();
            for pair in cuts.windows(2) {
                grown.parse_appended(lines[pair[0]..pair[1]].concat().as_bytes());
            }
            let whole = Ledger::parse(lines.concat().as_bytes(), None);
            prop_assert_eq!(grown.entries(), whole.entries());
            prop_assert_eq!((grown.faults(), grown.unreadable_lines(), grown.torn_tail_offset()), (whole.faults(), whole.unreadable_lines(), whole.torn_tail_offset()));
        }
    }
}
