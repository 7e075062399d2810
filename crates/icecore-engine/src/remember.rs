//! Writes to the ledger: new statements, and acts on earlier ones (L2, L3, L9).
//!
//! Invariant: an event is planned from the ledger's state at the position it is appended to; if the
//! ledger moves meanwhile, it is planned again.

use icecore_domain::event::{
    Act, Draft, Effect, EntityKind, Event, Kind, Origin, Priority, Scope, guess_kind,
};
use icecore_domain::id::EventId;
use icecore_domain::ledger::conflict::{self, Conflict};
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::revise::Refusal;
use icecore_domain::ledger::{Entry, Ledger, revise};
use icecore_store::{Error as StoreError, Found, Position};
use jiff::civil::Date;
use serde::Serialize;

use crate::{ATTEMPTS, Error, Memory, Result, Secrets};

/// A statement to remember.
#[derive(Debug, Clone, Default)]
pub struct Remember {
    pub text: String,
    /// Guessed from the text if not given.
    pub kind: Option<Kind>,
    /// The vault's default if not given.
    pub priority: Option<Priority>,
    /// The subject.
    pub entity: Option<String>,
    /// The kind of subject.
    pub entity_kind: Option<EntityKind>,
    pub tags: Vec<String>,
    pub supersedes: Vec<EventId>,
    pub related: Vec<EventId>,
    pub due: Option<Date>,
    /// The person or thing it waits for.
    pub waiting_on: Option<String>,
    /// `live` if not given.
    pub source: Option<String>,
    pub session: Option<String>,
    /// Everywhere if not given.
    pub scope: Option<Scope>,
    /// The owner if not given.
    pub origin: Option<Origin>,
}

/// The result of `remember`.
#[derive(Debug, Serialize)]
pub struct Remembered {
    /// The event as appended.
    pub event: Event,
    pub type_guessed: bool,
    /// The number of control characters that were removed.
    pub characters_removed: usize,
    /// Secrets that were replaced, by kind.
    pub secrets: Secrets,
    /// Statements that contradict it.
    pub conflicts: Vec<Conflict>,
}

/// An act, and its target.
#[derive(Debug, Serialize)]
pub struct Acted {
    /// The act as appended.
    pub event: Event,
    /// The target before the act.
    pub target: Entry,
    /// Secrets that were replaced in its note, by kind.
    pub secrets: Secrets,
}

impl Memory {
    /// Appends a statement to the ledger.
    pub async fn remember(&self, said: Remember) -> Result<Remembered> {
        self.renew_tombstones().await?;
        let names = [said.entity.as_deref(), said.waiting_on.as_deref(), said.session.as_deref()]
            .into_iter()
            .flatten();
        for text in names.chain(said.tags.iter().map(String::as_str)).chain([said.text.as_str()]) {
            self.refuse_forgotten(&self.unless_forgotten(text.to_owned()))?;
        }
        let said = Remember { text: self.unless_forgotten(said.text), ..said };
        // An event inherits from the one it supersedes what is not given.
        let model = match said.supersedes.first() {
            Some(&id) => self.anywhere(&[id]).await?.pop().map(|entry| entry.event),
            None => None,
        };
        let kind = said.kind.or(model.as_ref().map(|model| model.kind)).unwrap_or_else(|| {
            if said.due.is_some() || said.waiting_on.is_some() {
                Kind::Commitment
            } else {
                guess_kind(&said.text)
            }
        });
        let priority = said
            .priority
            .or(model.as_ref().map(|model| model.priority))
            .map_or_else(|| self.policy.default_priority(), Ok)?;
        let draft = Draft {
            entity: said.entity,
            entity_kind: said.entity_kind,
            tags: said.tags,
            supersedes: unique(said.supersedes),
            related: unique(said.related),
            due: said.due,
            waiting_on: said.waiting_on,
            source: said
                .source
                .filter(|source| !source.trim().is_empty())
                .unwrap_or_else(|| "live".into()),
            session: said.session,
            scope: said.scope.clone().unwrap_or_default(),
            origin: said.origin.unwrap_or(Origin::User),
            ..Draft::new(self.now(), kind, priority, said.text)
        };
        let draft = match model {
            None => draft,
            Some(model) => {
                let owed = draft.kind == Kind::Commitment;
                Draft {
                    entity: draft.entity.or(model.draft.entity),
                    entity_kind: draft.entity_kind.or(model.draft.entity_kind),
                    tags: if draft.tags.is_empty() { model.draft.tags } else { draft.tags },
                    scope: said.scope.unwrap_or(model.draft.scope),
                    due: draft.due.or(model.draft.due).filter(|_| owed),
                    waiting_on: draft.waiting_on.or(model.draft.waiting_on).filter(|_| owed),
                    ..draft
                }
            }
        };
        let mut secrets = Secrets::new();
        let (draft, characters_removed) = self.gate_draft(draft, &mut secrets).cleaned()?;
        let targets = unique(draft.supersedes.iter().chain(&draft.related).copied().collect());
        let event = self
            .against(&targets, |found| {
                for &id in &draft.supersedes {
                    revise::may_by(draft.origin, id, entry(found, id), Effect::Supersede)?;
                }
                for &id in &draft.related {
                    entry(found, id).ok_or(Refusal::Unknown(id))?;
                }
                Ok(vec![draft.clone()])
            })
            .await?
            .swap_remove(0);
        let conflicts = self.conflicts_of(&event).await.unwrap_or_default();
        Ok(Remembered {
            event,
            type_guessed: said.kind.is_none(),
            characters_removed,
            secrets,
            conflicts,
        })
    }

    /// Closes, confirms or retracts events: all of them or none.
    pub async fn act(
        &self,
        act: Act,
        ids: Vec<EventId>,
        note: Option<String>,
        origin: Origin,
        session: Option<String>,
    ) -> Result<Vec<Acted>> {
        let (ids, now, mut secrets) = (unique(ids), self.now(), Secrets::new());
        let note = note.map(|note| self.gate_told(&note, &mut secrets));
        let session = session.map(|session| self.gate_told(&session, &mut secrets));
        let mut targets: Vec<Entry> = Vec::new();
        let events = self
            .against(&ids, |found| {
                targets = found.entries.clone();
                let mut drafts = Vec::new();
                for &id in &ids {
                    let target = entry(found, id);
                    revise::may_by(origin, id, target, effect(act))?;
                    // Only events in the ledger are recalled, so confirming an archived one is
                    // refused.
                    if act == Act::Confirm && target.is_some_and(|target| target.line == 0) {
                        return Err(Refusal::Archived(id).into());
                    }
                    let Some(target) = target else { continue };
                    let content = note
                        .clone()
                        .filter(|note| !note.trim().is_empty())
                        .unwrap_or_else(|| default_note(act, target));
                    let draft = Draft {
                        origin,
                        session: session.clone(),
                        ..Draft::upon(&target.event, act, now, content)
                    };
                    drafts.push(draft.cleaned()?.0);
                }
                Ok(drafts)
            })
            .await?;
        let pairs = events.into_iter().filter_map(|event| {
            let target =
                targets.iter().find(|target| event.related.contains(&target.event.id))?.clone();
            Some(Acted { event, target, secrets: secrets.clone() })
        });
        Ok(pairs.collect())
    }

    /// Appends what `plan` makes of `targets`. If the ledger moves meanwhile, plans again.
    pub(crate) async fn against(
        &self,
        targets: &[EventId],
        plan: impl FnMut(&Found) -> Result<Vec<Draft>>,
    ) -> Result<Vec<Event>> {
        match self.against_ledger(targets, plan).await {
            // The target may have moved to an archive.
            Err(Error::Refused(Refusal::Unknown(id)))
                if !self.store.archived(&EventQuery::these(&[id])).await?.is_empty() =>
            {
                Err(Refusal::Archived(id).into())
            }
            other => other,
        }
    }

    async fn against_ledger(
        &self,
        targets: &[EventId],
        mut plan: impl FnMut(&Found) -> Result<Vec<Draft>>,
    ) -> Result<Vec<Event>> {
        if targets.is_empty() {
            // The plan depends on no event, so it cannot be outdated.
            let drafts = plan(&Found { entries: Vec::new(), position: Position(0) })?;
            return Ok(self.store.append(drafts, None).await?);
        }
        if self.horizon().is_none() {
            return self.against_query(&EventQuery::these(targets), plan).await;
        }
        // With a clock set by hand, the ledger of that moment.
        self.attempts(async || {
            let text = self.store.ledger().await?;
            let ledger = Ledger::read(&text.bytes, self.horizon());
            let entries =
                EventQuery::these(targets).choose(ledger.entries()).into_iter().cloned().collect();
            let found = Found { entries, position: text.position };
            Ok((plan(&found)?, found.position))
        })
        .await
    }

    /// Appends what `plan` makes of the events that a query finds. If the ledger moves meanwhile,
    /// plans again.
    pub(crate) async fn against_query(
        &self,
        query: &EventQuery,
        mut plan: impl FnMut(&Found) -> Result<Vec<Draft>>,
    ) -> Result<Vec<Event>> {
        self.attempts(async || {
            let mut found = self.store.events(query).await?;
            // Archived events can still be superseded and retracted.
            let missing: Vec<EventId> =
                query.ids.iter().copied().filter(|id| entry(&found, *id).is_none()).collect();
            if !missing.is_empty() {
                found.entries.extend(
                    self.anywhere(&missing)
                        .await?
                        .into_iter()
                        .map(|entry| Entry { line: 0, ..entry }),
                );
            }
            Ok((plan(&found)?, found.position))
        })
        .await
    }

    /// Repeats reading, planning and appending until the ledger has not moved meanwhile.
    async fn attempts(
        &self,
        mut decide: impl AsyncFnMut() -> Result<(Vec<Draft>, Position)>,
    ) -> Result<Vec<Event>> {
        let mut last = StoreError::Moved { what: "the ledger".into() };
        for _ in 0..ATTEMPTS {
            let (drafts, position) = decide().await?;
            if drafts.is_empty() {
                return Ok(Vec::new());
            }
            match self.store.append(drafts, Some(position)).await {
                Err(moved @ StoreError::Moved { .. }) => last = moved,
                other => return Ok(other?),
            }
        }
        Err(last.into())
    }

    async fn conflicts_of(&self, event: &Event) -> Result<Vec<Conflict>> {
        let attributes: Vec<String> =
            conflict::claims(event).into_iter().map(|claim| claim.attribute).collect();
        let mut held = self.store.contested().await?;
        held.retain(|(_, claim)| attributes.contains(&claim.attribute));
        Ok(conflict::between(&held))
    }
}

fn entry(found: &Found, id: EventId) -> Option<&Entry> {
    found.entries.iter().find(|entry| entry.event.id == id)
}

fn unique(mut ids: Vec<EventId>) -> Vec<EventId> {
    let mut seen = Vec::new();
    ids.retain(|id| {
        !seen.contains(id) && {
            seen.push(*id);
            true
        }
    });
    ids
}

fn effect(act: Act) -> Effect {
    match act {
        Act::Close => Effect::Close,
        Act::Confirm => Effect::Confirm,
        Act::Retract => Effect::Retract,
        Act::Assert | Act::Promote => Effect::None,
    }
}

fn default_note(act: Act, target: &Entry) -> String {
    let word = match act {
        Act::Close => "Closed",
        Act::Confirm => "Confirmed",
        Act::Retract => "Retracted",
        Act::Assert | Act::Promote => "Noted",
    };
    // `show` prints the whole text.
    let gist: String =
        target.event.content.lines().next().unwrap_or_default().chars().take(200).collect();
    format!("{word}: {gist}")
}
