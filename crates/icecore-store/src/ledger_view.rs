//! Queries over a ledger and its archives in memory, for a store without a usable index; and the
//! assignment of ids to drafts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

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

/// The local days of drafts, each once, in order.
pub(crate) fn draft_days(drafts: &[EventDraft]) -> Vec<Date> {
    drafts.iter().map(|draft| draft.ts.day()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The highest event number in use on each of these sorted days.
pub(crate) fn highest_numbers(days: &[Date], taken: impl Iterator<Item = EventId>) -> Vec<u32> {
    let mut highest = vec![0; days.len()];
    for id in taken {
        if let Ok(at) = days.binary_search(&id.day()) {
            highest[at] = id.number().max(highest[at]);
        }
    }
    highest
}

/// Assigns ids to drafts: the numbers that follow the highest one of each day.
pub(crate) fn assign_ids(
    drafts: Vec<EventDraft>,
    days: &[Date],
    mut highest: Vec<u32>,
) -> Result<Vec<Event>> {
    let mut events = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let day = draft.ts.day();
        let at = days.binary_search(&day).unwrap_or(0);
        if highest[at] >= MAX_EVENT_NUMBER {
            return Err(Error::NoIdLeft(day));
        }
        highest[at] += 1;
        events.push(draft.with_id(EventId::new(day, highest[at])));
    }
    Ok(events)
}

/// The lines of events. Fails for an event that could not be read back.
pub(crate) fn event_lines(events: &[Event]) -> Result<String> {
    let mut lines = String::new();
    for event in events {
        let written = line::format_line(event);
        if line::parse_line(written.trim_end().as_bytes()).events.as_slice()
            != std::slice::from_ref(event)
        {
            return Err(Error::Unreadable(event.id));
        }
        lines.push_str(&written);
    }
    Ok(lines)
}

/// The events of an archive. Their states are not known there.
pub(crate) fn archive_entries(text: &[u8]) -> impl Iterator<Item = LedgerEntry> + '_ {
    ledger::raw_lines(text, 1).flat_map(|raw| {
        line::parse_line(raw.bytes)
            .events
            .into_iter()
            .map(move |event| LedgerEntry::from_event(event, raw.number))
    })
}

/// The archived events that match a query, each once, by id.
pub(crate) fn archived_events<'a>(
    archived: impl Iterator<Item = &'a LedgerEntry>,
    which: &EventQuery,
) -> Vec<Event> {
    let which = EventQuery { state: EventStateFilter::Any, ..which.clone() };
    let mut events: Vec<Event> =
        archived.filter(|entry| which.matches(entry)).map(|entry| entry.event.clone()).collect();
    events.sort_by_key(|event| event.id);
    events.dedup_by_key(|event| event.id);
    events
}

/// All events linked to these events or to events about these entities, in ledger order.
pub(crate) fn linked_events<'a>(
    ledger: &'a Ledger,
    archived: impl Iterator<Item = &'a LedgerEntry>,
    ids: &[EventId],
    about: &[&str],
) -> Vec<Event> {
    let gone = archived.map(|entry| &entry.event).filter(|event| ledger.get(event.id).is_none());
    let all: Vec<&Event> = ledger.entries().iter().map(|entry| &entry.event).chain(gone).collect();
    let own = all
        .iter()
        .filter(|event| event.entity.as_deref().is_some_and(|thing| about.contains(&thing)))
        .map(|event| event.id);
    let ids: Vec<EventId> = ids.iter().copied().chain(own).collect();
    let (here, gone) = ledger::linked_events(all, &ids)
        .into_iter()
        .cloned()
        .partition(|event| ledger.get(event.id).is_some());
    merge_in_order(here, gone)
}

/// Merges archived events into those of the ledger at their old positions. Effects reach only
/// backwards.
pub(crate) fn merge_in_order(here: Vec<Event>, gone: Vec<Event>) -> Vec<Event> {
    let lined = |events: Vec<Event>| events.into_iter().map(|event| (event, 0)).collect();
    ledger::merge_by_id(lined(here), lined(gone)).into_iter().map(|(event, _)| event).collect()
}

/// The names of all entities that events are about.
pub(crate) fn entities<'a>(
    ledger: &'a Ledger,
    archived: impl Iterator<Item = &'a LedgerEntry>,
) -> Vec<String> {
    let named: BTreeSet<&String> = ledger
        .entries()
        .iter()
        .chain(archived)
        .filter_map(|entry| entry.event.entity.as_ref())
        .collect();
    named.into_iter().cloned().collect()
}

/// The local days with recorded events, and the number of events of each.
pub(crate) fn event_days<'a>(
    ledger: &'a Ledger,
    archived: impl Iterator<Item = &'a LedgerEntry>,
) -> Vec<(Date, usize)> {
    let gone: BTreeMap<EventId, &LedgerEntry> = archived
        .filter(|entry| ledger.get(entry.event.id).is_none())
        .map(|entry| (entry.event.id, entry))
        .collect();
    let mut days = BTreeMap::new();
    for entry in ledger.entries().iter().chain(gone.into_values()) {
        *days.entry(entry.event.ts.day()).or_insert(0) += 1;
    }
    days.into_iter().collect()
}

/// The number of statements by type, priority and state, sorted.
pub(crate) fn count_statements(ledger: &Ledger) -> Vec<StatementCount> {
    let mut counts: Vec<StatementCount> = Vec::new();
    for entry in ledger.entries().iter().filter(|entry| entry.event.is_statement()) {
        let key = (entry.event.kind, entry.event.priority, entry.state.word());
        match counts.iter_mut().find(|count| (count.kind, count.priority, count.state) == key) {
            Some(count) => count.events += 1,
            None => counts.push(StatementCount {
                kind: key.0,
                priority: key.1,
                state: key.2,
                events: 1,
            }),
        }
    }
    counts.sort_by_key(|count| (count.kind, count.priority, count.state));
    counts
}

/// The attribute claims of the events of a ledger. Events never change, so the index only grows
/// with the ledger.
#[derive(Debug, Clone, Default)]
pub(crate) struct AttributeClaims {
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
    pub fn contested_claims(&mut self, ledger: &Ledger) -> Vec<(EventId, Claim)> {
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
pub(crate) struct SamenessIndex {
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
    pub fn entries_like<'a>(&mut self, ledger: &'a Ledger, text: &str) -> Vec<&'a LedgerEntry> {
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
