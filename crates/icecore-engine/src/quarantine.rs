//! The quarantine: events that only a tool or another speaker stated wait there until the user
//! confirms or drops them.
//!
//! Invariant: they are in the ledger, but in no pack, page or summary. They are shown only here, as
//! untrusted text with its source.

use icecore_domain::distil::judge::UNCONFIRMED;
use icecore_domain::event::{Act, Kind, Origin, Priority, QUOTE, SAID, SPEAKER};
use icecore_domain::id::EventId;
use icecore_domain::ledger::Entry;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::record::Trust;
use jiff::civil::Date;
use serde::Serialize;

use crate::{Acted, Error, Memory, Result};

/// A filter for quarantined events.
#[derive(Debug, Clone, Default)]
pub struct Held {
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
pub struct Waiting {
    pub id: EventId,
    #[serde(rename = "type")]
    pub kind: Kind,
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
    pub said: String,
    /// Where the original is.
    pub source: String,
    /// The session it was said in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// It claims to be a rule or a preference, which only the owner can state.
    pub as_a_rule: bool,
}

impl Waiting {
    fn of(entry: &Entry) -> Self {
        let event = &entry.event;
        Self {
            id: event.id,
            kind: event.kind,
            priority: event.priority,
            origin: event.origin,
            speaker: event.field::<String>(SPEAKER),
            trust: Trust::of(event.origin),
            content: event.content.clone(),
            quote: event.field::<String>(QUOTE),
            said: event.field::<String>(SAID).unwrap_or_else(|| event.ts.to_string()),
            source: event.source.clone(),
            session: event.session.clone(),
            as_a_rule: event.tags.iter().any(|tag| tag == UNCONFIRMED),
        }
    }
}

impl Memory {
    /// The quarantined events, in the order they were recorded.
    pub async fn quarantine(&self, which: &Held) -> Result<Vec<Waiting>> {
        let query = EventQuery {
            quarantined: Some(true),
            session: which.session.clone(),
            since: which.since,
            ..EventQuery::default()
        };
        let mut waiting: Vec<Waiting> = self
            .events(&query)
            .await?
            .iter()
            .filter(|entry| entry.event.is_statement())
            .map(Waiting::of)
            .collect();
        waiting.retain(|one| which.origin.is_none_or(|origin| one.origin == origin));
        let surplus = which.limit.map_or(0, |limit| waiting.len().saturating_sub(limit));
        waiting.drain(..surplus);
        Ok(waiting)
    }

    /// Confirms quarantined events: from now on they are ordinary memory.
    pub async fn confirm_held(
        &self,
        ids: Vec<EventId>,
        note: Option<String>,
    ) -> Result<Vec<Acted>> {
        self.all_wait(&ids).await?;
        let note = note
            .filter(|note| !note.trim().is_empty())
            .unwrap_or_else(|| "Confirmed from the quarantine".into());
        self.act(Act::Confirm, ids, Some(note), Origin::User, None).await
    }

    /// Drops quarantined events. They are not extracted again from the same text.
    pub async fn drop_held(&self, ids: Vec<EventId>, note: Option<String>) -> Result<Vec<Acted>> {
        self.all_wait(&ids).await?;
        let note = note
            .filter(|note| !note.trim().is_empty())
            .unwrap_or_else(|| "Dropped from the quarantine".into());
        self.act(Act::Retract, ids, Some(note), Origin::User, None).await
    }

    async fn all_wait(&self, ids: &[EventId]) -> Result<()> {
        let found = self.anywhere(ids).await?;
        let waits = |id: &EventId| {
            let entry = found.iter().find(|entry| entry.event.id == *id);
            entry.is_none_or(|entry| {
                !entry.standing.is_active()
                    || (entry.is_quarantined() && entry.event.is_statement())
            })
        };
        // Unknown and retracted ids are reported by the act itself.
        match ids.iter().find(|id| !waits(id)) {
            None => Ok(()),
            Some(id) => Err(Error::Nothing(format!(
                "{id} is not in quarantine; run `icecore quarantine list` to list what is"
            ))),
        }
    }
}
