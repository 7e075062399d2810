//! Queries about the events of the ledger and of its archives.

use async_trait::async_trait;
use icecore_domain::event::{Event, EventType, Priority};
use icecore_domain::id::EventId;
use icecore_domain::ledger::LedgerEntry;
use icecore_domain::ledger::conflict::Claim;
use icecore_domain::ledger::query::EventQuery;
use jiff::civil::Date;

use crate::{Position, Result};

/// The events that match a query, and the position of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSelection {
    /// In ledger order.
    pub entries: Vec<LedgerEntry>,
    pub position: Position,
}

/// The number of statements with one type, priority and state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StatementCount {
    pub kind: EventType,
    pub priority: Priority,
    pub state: &'static str,
    pub events: usize,
}

/// Queries about events. They never change the store.
#[async_trait]
pub trait EventQueries: Send + Sync {
    /// The events that match a query, each with its state.
    async fn events(&self, which: &EventQuery) -> Result<EventSelection>;

    /// Archived events by id. Archives do not know states, so the query's state filter is ignored.
    async fn archived_events(&self, which: &EventQuery) -> Result<Vec<Event>>;

    /// All events linked to these events, or to events about these entities, by any chain of
    /// effects, archives included, in ledger order.
    async fn linked_events(&self, ids: &[EventId], about: &[&str]) -> Result<Vec<Event>>;

    /// Names of all entities that events are about, archives included.
    async fn entities(&self) -> Result<Vec<String>>;

    /// The local days with recorded events, and the number of events of each.
    async fn event_days(&self) -> Result<Vec<(Date, usize)>>;

    /// Counts the statements by type, priority and state.
    async fn count_statements(&self) -> Result<Vec<StatementCount>>;

    /// Claims of active events for whose attribute another event has a different value.
    async fn contested_claims(&self) -> Result<Vec<(EventId, Claim)>>;
}
