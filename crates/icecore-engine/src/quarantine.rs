//! The quarantine: what only a tool or a stranger said waits there until a person confirms or drops
//! it.
//!
//! It is in the ledger like everything else, but no pack, page or summary tells it. Here it is
//! shown as what it is: somebody else's words, with where they come from.

use icecore_domain::distil::judge::UNCONFIRMED;
use icecore_domain::event::{Act, Kind, Origin, Priority, QUOTE, SAID, SPEAKER};
use icecore_domain::id::EventId;
use icecore_domain::ledger::Entry;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::record::Trust;
use jiff::civil::Date;
use serde::Serialize;

use crate::{Acted, Error, Memory, Result};

/// Which of what waits is meant.
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// Only these words' origin.
    pub origin: Option<Origin>,
    /// Only from this session.
    pub session: Option<String>,
    /// Only recorded on this day or later.
    pub since: Option<Date>,
    /// At most so many, the newest ones.
    pub limit: Option<usize>,
}

/// Something that waits: a stranger's words, and what is known of where they come from.
#[derive(Debug, Clone, Serialize)]
pub struct Waiting {
    /// The event.
    pub id: EventId,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// How long it would matter.
    pub priority: Priority,
    /// Whose words they are.
    pub origin: Origin,
    /// The person who said them, if another one than the owner did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    /// How far they may be followed.
    pub trust: Trust,
    /// What they are said to come to.
    pub content: String,
    /// The very words, if they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// When they were said, else when it was recorded.
    pub said: String,
    /// Where they stand.
    pub source: String,
    /// The session they were said in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// It came as a rule or a wish, and a stranger has none to give.
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
    /// What waits for a person, in the order it was recorded.
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

    /// A person says that these hold: from now on they are memory like any other.
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

    /// A person says that these are not to be remembered. They are not learnt again from the same
    /// words.
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
        // One that is unknown or done with is told by the act itself.
        match ids.iter().find(|id| !waits(id)) {
            None => Ok(()),
            Some(id) => Err(Error::Nothing(format!(
                "{id} does not wait for confirmation; `icecore quarantine list` shows what does"
            ))),
        }
    }
}
