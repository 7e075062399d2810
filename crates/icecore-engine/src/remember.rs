//! Writes to the ledger: new statements, and acts on earlier ones (L2, L3, L9).
//!
//! Invariant: an event is planned from the ledger's state at the position it is appended to; if the
//! ledger moves meanwhile, it is planned again.

use icecore_domain::event::{
    Act, Effect, EntityKind, Event, EventDraft, EventType, Origin, Priority, Scope,
    guess_event_type,
};
use icecore_domain::id::EventId;
use icecore_domain::ledger::conflict::{self, Conflict};
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::revise::RevisionError;
use icecore_domain::ledger::{Ledger, LedgerEntry, revise};
use icecore_store::{Error as StoreError, ErrorKind as StoreErrorKind, EventSelection, Position};
use jiff::civil::Date;
use serde::Serialize;

use crate::{Error, MAX_ATTEMPTS, Memory, Result, SecretCounts};

/// A statement to remember.
#[derive(Debug, Clone, Default)]
pub struct RememberRequest {
    pub text: String,
    /// Guessed from the text if not given.
    pub kind: Option<EventType>,
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
pub struct RememberReport {
    /// The event as appended.
    pub event: Event,
    pub type_guessed: bool,
    /// The number of control characters that were removed.
    pub characters_removed: usize,
    /// Secrets that were replaced, by kind.
    pub secrets: SecretCounts,
    /// Statements that contradict it.
    pub conflicts: Vec<Conflict>,
}

/// An act, and its target.
#[derive(Debug, Serialize)]
pub struct ActReport {
    /// The act as appended.
    pub event: Event,
    /// The target before the act.
    pub target: LedgerEntry,
    /// Secrets that were replaced in its note, by kind.
    pub secrets: SecretCounts,
}

impl Memory {
    /// Appends a statement to the ledger.
    pub async fn remember(&self, request: RememberRequest) -> Result<RememberReport> {
        self.refresh_tombstones().await?;
        let names =
            [request.entity.as_deref(), request.waiting_on.as_deref(), request.session.as_deref()]
                .into_iter()
                .flatten();
        for text in
            names.chain(request.tags.iter().map(String::as_str)).chain([request.text.as_str()])
        {
            self.refuse_forgotten(&self.scrub_text(text.to_owned()))?;
        }
        let request = RememberRequest { text: self.scrub_text(request.text), ..request };
        // An event inherits from the one it supersedes what is not given.
        let model = match request.supersedes.first() {
            Some(&id) => {
                self.load_events_with_archives(&[id]).await?.pop().map(|entry| entry.event)
            }
            None => None,
        };
        let kind = request.kind.or(model.as_ref().map(|model| model.kind)).unwrap_or_else(|| {
            if request.due.is_some() || request.waiting_on.is_some() {
                EventType::Commitment
            } else {
                guess_event_type(&request.text)
            }
        });
        let priority = request
            .priority
            .or(model.as_ref().map(|model| model.priority))
            .map_or_else(|| self.policy.default_priority(), Ok)?;
        let draft = EventDraft {
            entity: request.entity,
            entity_kind: request.entity_kind,
            tags: request.tags,
            supersedes: without_duplicates(request.supersedes),
            related: without_duplicates(request.related),
            due: request.due,
            waiting_on: request.waiting_on,
            source: request
                .source
                .filter(|source| !source.trim().is_empty())
                .unwrap_or_else(|| "live".into()),
            session: request.session,
            scope: request.scope.clone().unwrap_or_default(),
            origin: request.origin.unwrap_or(Origin::User),
            ..EventDraft::new(self.now(), kind, priority, request.text)
        };
        let draft = match model {
            None => draft,
            Some(model) => {
                let owed = draft.kind == EventType::Commitment;
                EventDraft {
                    entity: draft.entity.or(model.draft.entity),
                    entity_kind: draft.entity_kind.or(model.draft.entity_kind),
                    tags: if draft.tags.is_empty() { model.draft.tags } else { draft.tags },
                    scope: request.scope.unwrap_or(model.draft.scope),
                    due: draft.due.or(model.draft.due).filter(|_| owed),
                    waiting_on: draft.waiting_on.or(model.draft.waiting_on).filter(|_| owed),
                    ..draft
                }
            }
        };
        let mut secrets = SecretCounts::new();
        let (draft, characters_removed) = self.filter_draft(draft, &mut secrets).sanitize()?;
        let targets =
            without_duplicates(draft.supersedes.iter().chain(&draft.related).copied().collect());
        let event = self
            .append_planned(&targets, |found| {
                for &id in &draft.supersedes {
                    revise::check_revision_by(
                        draft.origin,
                        id,
                        find_entry(found, id),
                        Effect::Supersede,
                    )?;
                }
                for &id in &draft.related {
                    find_entry(found, id).ok_or(RevisionError::Unknown(id))?;
                }
                Ok(vec![draft.clone()])
            })
            .await?
            .swap_remove(0);
        let conflicts = self.find_conflicts_with(&event).await.unwrap_or_default();
        Ok(RememberReport {
            event,
            type_guessed: request.kind.is_none(),
            characters_removed,
            secrets,
            conflicts,
        })
    }

    /// Closes, confirms or retracts events: all of them or none.
    pub async fn append_act(
        &self,
        act: Act,
        ids: Vec<EventId>,
        note: Option<String>,
        origin: Origin,
        session: Option<String>,
    ) -> Result<Vec<ActReport>> {
        let (ids, now, mut secrets) = (without_duplicates(ids), self.now(), SecretCounts::new());
        let note = note.map(|note| self.filter_and_count(&note, &mut secrets));
        let session = session.map(|session| self.filter_and_count(&session, &mut secrets));
        let mut targets: Vec<LedgerEntry> = Vec::new();
        let events = self
            .append_planned(&ids, |found| {
                targets = found.entries.clone();
                let mut drafts = Vec::new();
                for &id in &ids {
                    let target = find_entry(found, id);
                    revise::check_revision_by(origin, id, target, effect_of_act(act))?;
                    // Only events in the ledger are recalled, so confirming an archived one is
                    // refused.
                    if act == Act::Confirm && target.is_some_and(|target| target.line == 0) {
                        return Err(RevisionError::Archived(id).into());
                    }
                    let Some(target) = target else { continue };
                    let content = note
                        .clone()
                        .filter(|note| !note.trim().is_empty())
                        .unwrap_or_else(|| default_note(act, target));
                    let draft = EventDraft {
                        origin,
                        session: session.clone(),
                        ..EventDraft::new_act(&target.event, act, now, content)
                    };
                    drafts.push(draft.sanitize()?.0);
                }
                Ok(drafts)
            })
            .await?;
        let pairs = events.into_iter().filter_map(|event| {
            let target =
                targets.iter().find(|target| event.related.contains(&target.event.id))?.clone();
            Some(ActReport { event, target, secrets: secrets.clone() })
        });
        Ok(pairs.collect())
    }

    /// Appends what `plan` makes of `targets`. If the ledger moves meanwhile, plans again.
    pub(crate) async fn append_planned(
        &self,
        targets: &[EventId],
        plan: impl FnMut(&EventSelection) -> Result<Vec<EventDraft>>,
    ) -> Result<Vec<Event>> {
        match self.append_planned_in_ledger(targets, plan).await {
            // The target may have moved to an archive.
            Err(Error::Refused(RevisionError::Unknown(id)))
                if !self.store.archived_events(&EventQuery::for_ids(&[id])).await?.is_empty() =>
            {
                Err(RevisionError::Archived(id).into())
            }
            other => other,
        }
    }

    async fn append_planned_in_ledger(
        &self,
        targets: &[EventId],
        mut plan: impl FnMut(&EventSelection) -> Result<Vec<EventDraft>>,
    ) -> Result<Vec<Event>> {
        if targets.is_empty() {
            // The plan depends on no event, so it cannot be outdated.
            let drafts = plan(&EventSelection { entries: Vec::new(), position: Position(0) })?;
            return Ok(self.store.append(drafts, None).await?);
        }
        if self.view_horizon().is_none() {
            return self.append_planned_for_query(&EventQuery::for_ids(targets), plan).await;
        }
        // With a clock set by hand, the ledger of that moment.
        self.retry_until_unmoved(async || {
            let text = self.store.ledger().await?;
            let ledger = Ledger::parse(&text.bytes, self.view_horizon());
            let entries = EventQuery::for_ids(targets)
                .select(ledger.entries())
                .into_iter()
                .cloned()
                .collect();
            let found = EventSelection { entries, position: text.position };
            Ok((plan(&found)?, found.position))
        })
        .await
    }

    /// Appends what `plan` makes of the events that a query finds. If the ledger moves meanwhile,
    /// plans again.
    pub(crate) async fn append_planned_for_query(
        &self,
        query: &EventQuery,
        mut plan: impl FnMut(&EventSelection) -> Result<Vec<EventDraft>>,
    ) -> Result<Vec<Event>> {
        self.retry_until_unmoved(async || {
            let mut found = self.store.events(query).await?;
            // Archived events can still be superseded and retracted.
            let missing: Vec<EventId> =
                query.ids.iter().copied().filter(|id| find_entry(&found, *id).is_none()).collect();
            if !missing.is_empty() {
                found.entries.extend(
                    self.load_events_with_archives(&missing)
                        .await?
                        .into_iter()
                        .map(|entry| LedgerEntry { line: 0, ..entry }),
                );
            }
            Ok((plan(&found)?, found.position))
        })
        .await
    }

    /// Repeats reading, planning and appending until the ledger has not moved meanwhile.
    async fn retry_until_unmoved(
        &self,
        mut decide: impl AsyncFnMut() -> Result<(Vec<EventDraft>, Position)>,
    ) -> Result<Vec<Event>> {
        let mut last = StoreError::conflict("the ledger".into());
        for _ in 0..MAX_ATTEMPTS {
            let (drafts, position) = decide().await?;
            if drafts.is_empty() {
                return Ok(Vec::new());
            }
            match self.store.append(drafts, Some(position)).await {
                Err(moved @ StoreError { kind: StoreErrorKind::Conflict, .. }) => last = moved,
                other => return Ok(other?),
            }
        }
        Err(last.into())
    }

    async fn find_conflicts_with(&self, event: &Event) -> Result<Vec<Conflict>> {
        let attributes: Vec<String> =
            conflict::claims(event).into_iter().map(|claim| claim.attribute).collect();
        let mut held = self.store.contested_claims().await?;
        held.retain(|(_, claim)| attributes.contains(&claim.attribute));
        Ok(conflict::conflicting_claims(&held))
    }
}

fn find_entry(found: &EventSelection, id: EventId) -> Option<&LedgerEntry> {
    found.entries.iter().find(|entry| entry.event.id == id)
}

fn without_duplicates(mut ids: Vec<EventId>) -> Vec<EventId> {
    let mut seen = Vec::new();
    ids.retain(|id| {
        !seen.contains(id) && {
            seen.push(*id);
            true
        }
    });
    ids
}

fn effect_of_act(act: Act) -> Effect {
    match act {
        Act::Close => Effect::Close,
        Act::Confirm => Effect::Confirm,
        Act::Retract => Effect::Retract,
        Act::Assert | Act::Promote => Effect::None,
    }
}

fn default_note(act: Act, target: &LedgerEntry) -> String {
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
