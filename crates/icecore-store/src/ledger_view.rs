//! The ledger and its archives in memory: the one view that both backends answer queries from. The
//! vault has an index besides, and uses the view where the index cannot answer.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use icecore_domain::event::{Event, EventDraft};
use icecore_domain::format::line;
use icecore_domain::hash::Hash;
use icecore_domain::id::{EventId, MAX_EVENT_NUMBER};
use icecore_domain::ledger::conflict::{self, Claim};
use icecore_domain::ledger::query::{EventQuery, EventStateFilter};
use icecore_domain::ledger::{self, Ledger, LedgerEntry};
use icecore_domain::sanitize;
use jiff::civil::Date;

use crate::{Error, Result, StatementCount};

/// The highest event number of each local day.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventNumbers(HashMap<Date, u32>);

impl EventNumbers {
    fn add_entries(&mut self, entries: &[LedgerEntry]) {
        self.extend(entries.iter().map(|entry| (entry.event.id.day(), entry.event.id.number())));
    }

    /// Assigns ids to drafts: the numbers that follow the highest one of each day in any of `used`.
    pub fn assign_ids(drafts: Vec<EventDraft>, used: &[&Self]) -> Result<Vec<Event>> {
        let mut assigned = Self::default();
        drafts
            .into_iter()
            .map(|draft| {
                let day = draft.ts.day();
                let numbers = used.iter().copied().chain([&assigned]);
                let highest = numbers.filter_map(|used| used.0.get(&day)).max().map_or(0, |n| *n);
                if highest >= MAX_EVENT_NUMBER {
                    return Err(Error::no_id_left(day));
                }
                let id = EventId::new(day, highest + 1);
                assigned.extend([(day, highest + 1)]);
                Ok(draft.with_id(id))
            })
            .collect()
    }
}

impl Extend<(Date, u32)> for EventNumbers {
    fn extend<I: IntoIterator<Item = (Date, u32)>>(&mut self, used: I) {
        for (day, number) in used {
            let highest = self.0.entry(day).or_default();
            *highest = number.max(*highest);
        }
    }
}

impl FromIterator<(Date, u32)> for EventNumbers {
    fn from_iter<I: IntoIterator<Item = (Date, u32)>>(used: I) -> Self {
        let mut numbers = Self::default();
        numbers.extend(used);
        numbers
    }
}

/// Locks a mutex, also after a thread panicked while it held it.
pub(crate) fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ledger with the state of every event, and what queries need besides.
#[derive(Debug, Default)]
pub(crate) struct LedgerView {
    ledger: Ledger,
    pub numbers: EventNumbers,
    /// Built on first use and then updated: both cost more than the ledger itself.
    claims: Mutex<AttributeClaims>,
    sameness: Mutex<SamenessIndex>,
}

impl Clone for LedgerView {
    fn clone(&self) -> Self {
        Self {
            ledger: self.ledger.clone(),
            numbers: self.numbers.clone(),
            claims: Mutex::new(lock_mutex(&self.claims).clone()),
            sameness: Mutex::new(lock_mutex(&self.sameness).clone()),
        }
    }
}

impl Deref for LedgerView {
    type Target = Ledger;

    fn deref(&self) -> &Ledger {
        &self.ledger
    }
}

impl LedgerView {
    /// Reads a whole ledger.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut view = Self { ledger: Ledger::parse(bytes, None), ..Self::default() };
        view.numbers.add_entries(view.ledger.entries());
        view
    }

    /// Reads what follows the part that was read, which ended with a line break.
    pub fn parse_more(&mut self, bytes: &[u8]) {
        let known = self.ledger.entries().len();
        self.ledger.parse_appended(bytes);
        self.numbers.add_entries(&self.ledger.entries()[known..]);
    }

    /// The events that match a query, in ledger order.
    pub fn select(&self, which: &EventQuery) -> Vec<LedgerEntry> {
        match &which.saying {
            // Few events have the same text. With `after`, the position in the whole ledger
            // matters.
            Some(text) if which.after.is_none() => {
                let few: Vec<LedgerEntry> = lock_mutex(&self.sameness)
                    .entries_like(self, text)
                    .into_iter()
                    .cloned()
                    .collect();
                which.select(&few).into_iter().cloned().collect()
            }
            _ => which.select(self.entries()).into_iter().cloned().collect(),
        }
    }

    /// Claims of active events for whose attribute another event has a different value.
    pub fn contested_claims(&self) -> Vec<(EventId, Claim)> {
        lock_mutex(&self.claims).contested_claims(&self.ledger)
    }

    /// All events linked to these events or to events about these entities, in ledger order.
    pub fn linked_events(
        &self,
        archives: &[impl Borrow<ArchiveView>],
        ids: &[EventId],
        about: &[&str],
    ) -> Vec<Event> {
        let gone = self.only_archived(archives).map(|entry| &entry.event);
        let all: Vec<&Event> =
            self.entries().iter().map(|entry| &entry.event).chain(gone).collect();
        let own = all
            .iter()
            .filter(|event| event.entity.as_deref().is_some_and(|thing| about.contains(&thing)))
            .map(|event| event.id);
        let ids: Vec<EventId> = ids.iter().copied().chain(own).collect();
        let (here, gone) = ledger::linked_events(all, &ids)
            .into_iter()
            .cloned()
            .partition(|event| self.get(event.id).is_some());
        merge_in_order(here, gone)
    }

    /// The names of all entities that events are about.
    pub fn entities(&self, archives: &[impl Borrow<ArchiveView>]) -> Vec<String> {
        let named: BTreeSet<&String> = self
            .entries()
            .iter()
            .chain(archived_entries(archives))
            .filter_map(|entry| entry.event.entity.as_ref())
            .collect();
        named.into_iter().cloned().collect()
    }

    /// The local days with recorded events, and the number of events of each.
    pub fn event_days(&self, archives: &[impl Borrow<ArchiveView>]) -> Vec<(Date, usize)> {
        let gone: BTreeMap<EventId, &LedgerEntry> =
            self.only_archived(archives).map(|entry| (entry.event.id, entry)).collect();
        let mut days = BTreeMap::new();
        for entry in self.entries().iter().chain(gone.into_values()) {
            *days.entry(entry.event.ts.day()).or_insert(0) += 1;
        }
        days.into_iter().collect()
    }

    /// The number of statements by type, priority and state, sorted.
    pub fn count_statements(&self) -> Vec<StatementCount> {
        let mut counts = BTreeMap::new();
        for entry in self.entries().iter().filter(|entry| entry.event.is_statement()) {
            let key = (entry.event.kind, entry.event.priority, entry.state.word());
            *counts.entry(key).or_insert(0) += 1;
        }
        counts
            .into_iter()
            .map(|((kind, priority, state), events)| StatementCount {
                kind,
                priority,
                state,
                events,
            })
            .collect()
    }

    fn only_archived<'a>(
        &'a self,
        archives: &'a [impl Borrow<ArchiveView>],
    ) -> impl Iterator<Item = &'a LedgerEntry> {
        archived_entries(archives).filter(|entry| self.get(entry.event.id).is_none())
    }
}

/// The events of an archive. Their states are not known there.
#[derive(Debug, Clone, Default)]
pub(crate) struct ArchiveView {
    pub entries: Vec<LedgerEntry>,
    pub numbers: EventNumbers,
}

impl ArchiveView {
    /// Reads a whole archive, or some of its lines.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut view = Self::default();
        view.parse_more(bytes);
        view
    }

    /// Reads what follows the part that was read.
    pub fn parse_more(&mut self, bytes: &[u8]) {
        let known = self.entries.len();
        self.entries.extend(ledger::raw_lines(bytes, 1).flat_map(|raw| {
            line::parse_line(raw.bytes)
                .events
                .into_iter()
                .map(move |event| LedgerEntry::from_event(event, raw.number))
        }));
        self.numbers.add_entries(&self.entries[known..]);
    }
}

fn archived_entries(archives: &[impl Borrow<ArchiveView>]) -> impl Iterator<Item = &LedgerEntry> {
    archives.iter().flat_map(|archive| &archive.borrow().entries)
}

/// The archived events that match a query, each once, by id.
pub(crate) fn archived_events(
    archives: &[impl Borrow<ArchiveView>],
    which: &EventQuery,
) -> Vec<Event> {
    let which = EventQuery { state: EventStateFilter::Any, ..which.clone() };
    let mut events: Vec<Event> = archived_entries(archives)
        .filter(|entry| which.matches(entry))
        .map(|entry| entry.event.clone())
        .collect();
    events.sort_by_key(|event| event.id);
    events.dedup_by_key(|event| event.id);
    events
}

/// The lines of events. Fails for an event that could not be read back.
pub(crate) fn event_lines(events: &[Event]) -> Result<String> {
    let mut lines = String::new();
    for event in events {
        let written = line::format_line(event);
        if line::parse_line(written.trim_end().as_bytes()).events.as_slice()
            != std::slice::from_ref(event)
        {
            return Err(Error::unreadable(event.id));
        }
        lines.push_str(&written);
    }
    Ok(lines)
}

/// Merges archived events into those of the ledger at their old positions. Effects reach only
/// backwards.
pub(crate) fn merge_in_order(here: Vec<Event>, gone: Vec<Event>) -> Vec<Event> {
    let lined = |events: Vec<Event>| events.into_iter().map(|event| (event, 0)).collect();
    ledger::merge_by_id(lined(here), lined(gone)).into_iter().map(|(event, _)| event).collect()
}

/// The attribute claims of the events of a ledger. Events never change, so the index only grows
/// with the ledger.
#[derive(Debug, Clone, Default)]
struct AttributeClaims {
    events: usize,
    attributes: HashMap<String, AttributeValues>,
    /// Attributes with several values.
    contested: Vec<String>,
}

/// The values of an attribute: the position of the event, the number of the claim in it, and the
/// value.
#[derive(Debug, Clone, Default)]
struct AttributeValues {
    values: Vec<(usize, usize, String)>,
    is_contested: bool,
}

impl AttributeClaims {
    fn add_entries(&mut self, entries: &[LedgerEntry]) {
        for (at, entry) in entries.iter().enumerate().skip(self.events) {
            for (nth, claim) in conflict::claims(&entry.event).into_iter().enumerate() {
                let attribute = self.attributes.entry(claim.attribute.clone()).or_default();
                if !attribute.is_contested
                    && attribute.values.first().is_some_and(|(.., first)| *first != claim.value)
                {
                    attribute.is_contested = true;
                    self.contested.push(claim.attribute);
                }
                attribute.values.push((at, nth, claim.value));
            }
        }
        self.events = entries.len();
    }

    /// Claims of active events for whose attribute another event has a different value. `ledger`
    /// must be the ledger of the last call or a longer one.
    fn contested_claims(&mut self, ledger: &Ledger) -> Vec<(EventId, Claim)> {
        let entries = ledger.entries();
        self.add_entries(entries);
        let mut held = Vec::new();
        for name in &self.contested {
            for (at, nth, value) in
                self.attributes.get(name).into_iter().flat_map(|attribute| &attribute.values)
            {
                if entries[*at].state.is_active() {
                    held.push((*at, *nth, Claim { attribute: name.clone(), value: value.clone() }));
                }
            }
        }
        held.sort_by_key(|(at, nth, _)| (*at, *nth));
        held.into_iter().map(|(at, _, claim)| (entries[at].event.id, claim)).collect()
    }
}

/// Finds events with the same text, apart from case, blanks and closing punctuation. The index only
/// grows with the ledger.
#[derive(Debug, Clone, Default)]
struct SamenessIndex {
    events: usize,
    by_key: HashMap<u64, Vec<usize>>,
}

impl SamenessIndex {
    fn sameness_hash(text: &str) -> u64 {
        Hash::of(sanitize::sameness_key(text).as_bytes())
            .as_bytes()
            .iter()
            .take(8)
            .fold(0, |key, byte| (key << 8) | u64::from(*byte))
    }

    /// The events that may have the same text, in ledger order. Hashes may collide.
    fn entries_like<'a>(&mut self, ledger: &'a Ledger, text: &str) -> Vec<&'a LedgerEntry> {
        let entries = ledger.entries();
        for (at, entry) in entries.iter().enumerate().skip(self.events) {
            self.by_key.entry(Self::sameness_hash(&entry.event.content)).or_default().push(at);
        }
        self.events = entries.len();
        self.by_key
            .get(&Self::sameness_hash(text))
            .into_iter()
            .flatten()
            .map(|&at| &entries[at])
            .collect()
    }
}
