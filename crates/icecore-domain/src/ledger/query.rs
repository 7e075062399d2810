//! Event queries.

use jiff::civil::Date;

use crate::event::{EventType, Priority, Scope};
use crate::id::EventId;
use crate::ledger::LedgerEntry;
use crate::sanitize;

/// A filter by event state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EventStateFilter {
    /// All events in any state, acts included.
    Any,
    /// Active statements.
    #[default]
    Active,
}

/// A query on the ledger. Empty lists and `None` match everything.
#[derive(Debug, Clone, Default)]
pub struct EventQuery {
    pub state: EventStateFilter,
    /// Only these ids, sorted.
    pub ids: Vec<EventId>,
    /// Only these types.
    pub kinds: Vec<EventType>,
    /// Only these priorities.
    pub priorities: Vec<Priority>,
    /// Only about this entity.
    pub entity: Option<String>,
    /// Only with all of these tags.
    pub tags: Vec<String>,
    /// Only from this source.
    pub source: Option<String>,
    /// Only from this session.
    pub session: Option<String>,
    /// Only with exactly this scope.
    pub scope: Option<Scope>,
    /// Only recorded on this day or later.
    pub since: Option<Date>,
    /// Only recorded on this day or earlier.
    pub until: Option<Date>,
    /// Only last recorded or confirmed on this day or later.
    pub verified_since: Option<Date>,
    /// Only last recorded or confirmed on this day or earlier.
    pub verified_until: Option<Date>,
    /// Only quarantined statements, or only others.
    pub quarantined: Option<bool>,
    /// Only events after this one in the ledger; if it is missing, all events.
    pub after: Option<EventId>,
    /// Only with this content, ignoring case, blanks and closing marks.
    pub saying: Option<String>,
    /// Only with this text in the content, ignoring case.
    pub text: Option<String>,
    /// At most this many, the newest ones.
    pub limit: Option<usize>,
    /// With a limit: the highest priority first, then the newest.
    pub weightiest: bool,
}

impl EventQuery {
    /// All events.
    pub fn all() -> Self {
        Self { state: EventStateFilter::Any, ..Self::default() }
    }

    /// Exactly these events, in any state.
    pub fn for_ids(ids: &[EventId]) -> Self {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        Self { ids, ..Self::all() }
    }

    /// Open commitments.
    pub fn open_loops() -> Self {
        Self { kinds: vec![EventType::Commitment], ..Self::default() }
    }

    /// Whether this entry matches; `limit` and `after` are not considered.
    pub fn matches(&self, entry: &LedgerEntry) -> bool {
        let event = &entry.event;
        let any_of = |list: &[EventType]| list.is_empty() || list.contains(&event.kind);
        (self.state == EventStateFilter::Any || (entry.state.is_active() && event.is_statement()))
            && (self.ids.is_empty() || self.ids.binary_search(&event.id).is_ok())
            && any_of(&self.kinds)
            && (self.priorities.is_empty() || self.priorities.contains(&event.priority))
            && self.entity.as_ref().is_none_or(|entity| event.entity.as_ref() == Some(entity))
            && self.tags.iter().all(|tag| event.tags.contains(tag))
            && self.source.as_ref().is_none_or(|source| event.source == *source)
            && self.session.as_ref().is_none_or(|session| event.session.as_ref() == Some(session))
            && self.scope.as_ref().is_none_or(|scope| event.scope == *scope)
            && self.since.is_none_or(|day| event.ts.day() >= day)
            && self.until.is_none_or(|day| event.ts.day() <= day)
            && self.verified_since.is_none_or(|day| entry.verified.day() >= day)
            && self.verified_until.is_none_or(|day| entry.verified.day() <= day)
            && self.quarantined.is_none_or(|wanted| entry.is_quarantined() == wanted)
            && self.saying.as_ref().is_none_or(|saying| {
                sanitize::sameness_key(&event.content) == sanitize::sameness_key(saying)
            })
            && self.text.as_ref().is_none_or(|text| {
                sanitize::sameness_key(&event.content).contains(&sanitize::sameness_key(text))
            })
    }

    /// The matching entries in their order; with a limit, the newest.
    pub fn select<'a>(&self, entries: &'a [LedgerEntry]) -> Vec<&'a LedgerEntry> {
        let limit = self.limit.unwrap_or(usize::MAX);
        let from = self
            .after
            .and_then(|after| entries.iter().position(|entry| entry.event.id == after))
            .map_or(0, |at| at + 1);
        let newest_first = entries[from..].iter().rev().filter(|entry| self.matches(entry));
        let mut chosen: Vec<&LedgerEntry> = if self.weightiest {
            let mut all: Vec<&LedgerEntry> = newest_first.collect();
            all.sort_by_key(|entry| entry.event.priority);
            all.truncate(limit);
            all.sort_by_key(|entry| std::cmp::Reverse(entry.line));
            all
        } else {
            newest_first.take(limit).collect()
        };
        chosen.reverse();
        chosen
    }
}
