//! The quarantine: events that only a tool or another speaker stated wait there until the user
//! confirms or drops them.
//!
//! Invariant: they are in the ledger, but in no pack, page or summary. They are shown only here, as
//! untrusted text with its source.

use icecore_domain::event::{
    Act, EventType, Origin, Priority, QUOTE_FIELD, SAID_AT_FIELD, SPEAKER_FIELD,
};
use icecore_domain::extraction::validation::UNCONFIRMED_TAG;
use icecore_domain::id::EventId;
use icecore_domain::ledger::LedgerEntry;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::record::Trust;
use jiff::civil::Date;
use serde::Serialize;

use crate::{ActReport, Error, Memory, Result};

/// A filter for quarantined events.
#[derive(Debug, Clone, Default)]
pub struct QuarantineFilter {
    /// Only of this origin.
    pub origin: Option<Origin>,
    pub session: Option<String>,
    /// Only recorded on this day or later.
    pub since: Option<Date>,
    /// Only the newest ones, at most this many.
    pub limit: Option<usize>,
}

/// A quarantined event, with what is known of its source.
#[derive(Debug, Clone, Serialize)]
pub struct QuarantinedEvent {
    pub id: EventId,
    #[serde(rename = "type")]
    pub kind: EventType,
    pub priority: Priority,
    pub origin: Origin,
    /// The speaker, if it was not the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    pub trust: Trust,
    pub content: String,
    /// The original text, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// When it was said, else when it was recorded.
    #[serde(rename = "said")]
    pub said_at: String,
    /// Where the original is.
    pub source: String,
    /// The session it was said in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// It claims to be a rule or a preference, which only the owner can state.
    pub as_a_rule: bool,
}

impl QuarantinedEvent {
    fn from_entry(entry: &LedgerEntry) -> Self {
        let event = &entry.event;
        Self {
            id: event.id,
            kind: event.kind,
            priority: event.priority,
            origin: event.origin,
            speaker: event.extra_field::<String>(SPEAKER_FIELD),
            trust: Trust::from_origin(event.origin),
            content: event.content.clone(),
            quote: event.extra_field::<String>(QUOTE_FIELD),
            said_at: event
                .extra_field::<String>(SAID_AT_FIELD)
                .unwrap_or_else(|| event.ts.to_string()),
            source: event.source.clone(),
            session: event.session.clone(),
            as_a_rule: event.tags.iter().any(|tag| tag == UNCONFIRMED_TAG),
        }
    }
}

impl Memory {
    /// The quarantined events, in the order they were recorded.
    pub async fn list_quarantined(
        &self,
        which: &QuarantineFilter,
    ) -> Result<Vec<QuarantinedEvent>> {
        let query = EventQuery {
            quarantined: Some(true),
            session: which.session.clone(),
            since: which.since,
            ..EventQuery::default()
        };
        let mut waiting: Vec<QuarantinedEvent> = self
            .query_events(&query)
            .await?
            .iter()
            .filter(|entry| entry.event.is_statement())
            .map(QuarantinedEvent::from_entry)
            .collect();
        waiting.retain(|one| which.origin.is_none_or(|origin| one.origin == origin));
        let surplus = which.limit.map_or(0, |limit| waiting.len().saturating_sub(limit));
        waiting.drain(..surplus);
        Ok(waiting)
    }

    /// Confirms quarantined events: from now on they are ordinary memory.
    pub async fn confirm_quarantined(
        &self,
        ids: Vec<EventId>,
        note: Option<String>,
    ) -> Result<Vec<ActReport>> {
        self.ensure_quarantined(&ids).await?;
        let note = note
            .filter(|note| !note.trim().is_empty())
            .unwrap_or_else(|| "Confirmed from the quarantine".into());
        self.append_act(Act::Confirm, ids, Some(note), Origin::User, None).await
    }

    /// Drops quarantined events. They are not extracted again from the same text.
    pub async fn drop_quarantined(
        &self,
        ids: Vec<EventId>,
        note: Option<String>,
    ) -> Result<Vec<ActReport>> {
        self.ensure_quarantined(&ids).await?;
        let note = note
            .filter(|note| !note.trim().is_empty())
            .unwrap_or_else(|| "Dropped from the quarantine".into());
        self.append_act(Act::Retract, ids, Some(note), Origin::User, None).await
    }

    async fn ensure_quarantined(&self, ids: &[EventId]) -> Result<()> {
        let found = self.load_events_with_archives(ids).await?;
        let waits = |id: &EventId| {
            let entry = found.iter().find(|entry| entry.event.id == *id);
            entry.is_none_or(|entry| {
                !entry.state.is_active() || (entry.is_quarantined() && entry.event.is_statement())
            })
        };
        // Unknown and retracted ids are reported by the act itself.
        match ids.iter().find(|id| !waits(id)) {
            None => Ok(()),
            Some(id) => Err(Error::NotFound(format!(
                "{id} is not in quarantine; run `icecore quarantine list` to list what is"
            ))),
        }
    }
}
