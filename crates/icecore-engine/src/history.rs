//! Snapshots and undo (L16).
//!
//! Invariant: an undo stores the current state as a snapshot first, so that nothing is lost and a
//! second undo reverts it.

use std::collections::HashSet;

use icecore_domain::event::{Act, EventDraft, Origin};
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::Ledger;
use icecore_domain::undo::{self, UndoStep};
use icecore_store::{
    ContentVersion, Error as StoreError, ErrorKind as StoreErrorKind, Position, Snapshot,
};
use serde::Serialize;

use crate::{Error, MAX_ATTEMPTS, Memory, Result, SecretCounts};

/// The result of an undo.
#[derive(Debug, Serialize)]
pub struct UndoReport {
    /// The snapshot that was restored.
    pub to: String,
    /// Its note.
    pub note: String,
    /// The snapshot of the state before the undo.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Files that were restored, removed or merged.
    pub files: Vec<UndoneFile>,
    /// Events that were retracted.
    pub retracted: Vec<EventId>,
}

/// What happened to one file.
#[derive(Debug, Serialize)]
pub struct UndoneFile {
    pub path: String,
    pub what: &'static str,
}

/// The prefix of the notes of an undo's own snapshots. From them a second undo, or one after a
/// crash, knows what the last one did.
const BEFORE_UNDO_PREFIX: &str = "before undo to ";
/// The prefix of the text of events by which an undo retracts others.
pub(crate) const UNDONE_PREFIX: &str = "Undone:";
/// How many times an undo reads files again that were saved meanwhile; each time takes a snapshot.
const MAX_UNDO_ATTEMPTS: usize = 3;
/// The result for a file that was saved again and again during the undo.
const NOT_CHANGED: &str = "not changed: it was saved meanwhile";
const UNDO_PREFIX: &str = "undo to ";
const FROM_INFIX: &str = ", from ";

/// What an undo is going to do.
struct UndoPlan {
    /// What happens to which file, and the content that this was decided for.
    files: Vec<(DocPath, UndoStep, ContentVersion)>,
    position: Position,
    ledger_then: Option<Vec<u8>>,
    retracts: bool,
}

impl UndoPlan {
    fn is_empty(&self) -> bool {
        self.files.is_empty() && !self.retracts
    }
}

fn short_id(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

impl Memory {
    /// Takes a snapshot; `None` if nothing changed since the last one.
    pub async fn take_snapshot(&self, note: &str) -> Result<Option<Snapshot>> {
        // Notes that cannot be imported now stay pending, and the status shows them.
        let _ = self.flush_all_pending().await;
        self.refresh_open_loops().await?;
        self.snapshot_without_secrets(note, &mut SecretCounts::new()).await
    }

    /// The snapshots, newest first.
    pub async fn list_snapshots(&self, most: usize) -> Result<Vec<Snapshot>> {
        Ok(self.history.snapshots(most).await?)
    }

    /// Restores the last snapshot, or `to`. The current state is stored as a snapshot first, so
    /// that a second undo reverts this one. `None` if nothing has changed since.
    pub async fn undo(&self, to: Option<&str>) -> Result<Option<UndoReport>> {
        let _alone = self.acquire_consolidation_lease().await?;
        self.refresh_tombstones().await?;
        let snapshots = self.history.snapshots(1_000).await?;
        let named = |id: &str| {
            snapshots
                .iter()
                .find(|snapshot| id.len() >= 4 && snapshot.id.starts_with(&id.to_ascii_lowercase()))
                .cloned()
        };
        let target = match to {
            None => snapshots.first().cloned(),
            Some(id) => named(id),
        };
        let Some(mut target) = target else {
            return Err(Error::NotFound(match to {
                None => {
                    "there is no snapshot to restore; run `icecore snapshot` to make one".into()
                }
                Some(id) => {
                    format!(
                        "there is no snapshot `{id}`; run `icecore snapshot --list` to list them"
                    )
                }
            }));
        };
        // An interrupted undo left the snapshot of the state before it as the last one: continue
        // with its target.
        let unfinished =
            target.note.strip_prefix(BEFORE_UNDO_PREFIX).filter(|_| to.is_none()).and_then(named);
        target = unfinished.unwrap_or(target);
        let before = self
            .snapshot_without_secrets(
                &format!("{BEFORE_UNDO_PREFIX}{}", short_id(&target.id)),
                &mut SecretCounts::new(),
            )
            .await?;
        let from = before
            .as_ref()
            .or(snapshots.first())
            .map_or(String::new(), |snapshot| snapshot.id.clone());
        let mut plan = self.plan_undo(&target).await?;
        if plan.is_empty() && to.is_none() {
            // Nothing to undo. If the last change was an undo, it is reverted.
            match target
                .note
                .strip_prefix(UNDO_PREFIX)
                .and_then(|note| note.split_once(FROM_INFIX))
                .and_then(|(_, from)| named(from))
            {
                Some(from) => target = from,
                None => return Ok(None),
            }
            plan = self.plan_undo(&target).await?;
        }
        let mut files: Vec<UndoneFile> = Vec::new();
        let mut kept = from.clone();
        let mut left = self.apply_undo(&plan, &kept, &mut files).await?;
        for _ in 1..MAX_UNDO_ATTEMPTS {
            if left.is_empty() {
                break;
            }
            // A file that was saved meanwhile is stored in a snapshot, and then planned again.
            let again = self
                .snapshot_without_secrets(
                    &format!("{BEFORE_UNDO_PREFIX}{}", short_id(&target.id)),
                    &mut SecretCounts::new(),
                )
                .await?;
            kept = again.map_or(kept, |snapshot| snapshot.id);
            let next = self.plan_undo(&target).await?;
            plan = UndoPlan { ledger_then: plan.ledger_then.or(next.ledger_then), ..next };
            left = self.apply_undo(&plan, &kept, &mut files).await?;
        }
        files.extend(
            left.iter().map(|path| UndoneFile { path: path.to_string(), what: NOT_CHANGED }),
        );
        let ledger_then = plan.ledger_then;
        if files.iter().any(|file| file.path == layout::LEDGER && file.what != NOT_CHANGED) {
            // Events that were added while lines were missing may have taken their ids.
            self.quarantine_broken_lines(&undo::events_by_id(
                ledger_then.as_deref().unwrap_or_default(),
            ))
            .await?;
            self.accept_gaps().await?;
        }
        let retracted = match ledger_then {
            None => Vec::new(),
            Some(then) => self.retract_since(&Ledger::parse(&then, None), &target).await?,
        };
        self.refresh_open_loops().await?;
        // This note marks the undo as complete; the next undo starts from it.
        self.snapshot_without_secrets(
            &format!("{UNDO_PREFIX}{}{FROM_INFIX}{}", short_id(&target.id), short_id(&from)),
            &mut SecretCounts::new(),
        )
        .await?;
        Ok(Some(UndoReport {
            to: target.id,
            note: target.note,
            before: Some(from).filter(|from| !from.is_empty()),
            files,
            retracted,
        }))
    }

    /// Applies the plan to the files. Returns those that were not changed because they were saved
    /// meanwhile: since the plan was made, or since the snapshot `kept` of the state before.
    async fn apply_undo(
        &self,
        plan: &UndoPlan,
        kept: &str,
        files: &mut Vec<UndoneFile>,
    ) -> Result<Vec<DocPath>> {
        let is_lost = |step: &UndoStep| matches!(step, UndoStep::Restore(_) | UndoStep::Remove);
        // Files that are removed or overwritten must be in that snapshot.
        let saved: HashSet<DocPath> =
            if kept.is_empty() || !plan.files.iter().any(|(_, step, _)| is_lost(step)) {
                HashSet::new()
            } else {
                self.history.changes_since(kept).await?.into_iter().map(|(path, _)| path).collect()
            };
        let mut left = Vec::new();
        for (path, step, from) in &plan.files {
            if is_lost(step) && saved.contains(path) && *from != ContentVersion::ABSENT {
                left.push(path.clone());
                continue;
            }
            let (done, what) = match step {
                UndoStep::Leave => continue,
                UndoStep::Remove => (self.store.remove_unchanged(path, *from).await, "removed"),
                UndoStep::Restore(bytes) | UndoStep::Merge(bytes)
                    if path.as_str() == layout::LEDGER =>
                {
                    (self.store.replace_ledger(bytes, plan.position).await, "lost lines restored")
                }
                UndoStep::Restore(bytes) => {
                    (self.store.compare_and_swap(path, bytes, *from).await, "restored")
                }
                UndoStep::Merge(bytes) => {
                    (self.store.compare_and_swap(path, bytes, *from).await, "lost lines restored")
                }
            };
            match done {
                Err(StoreError { kind: StoreErrorKind::Conflict, .. }) => left.push(path.clone()),
                other => {
                    other?;
                    files.retain(|file| file.path != path.as_str());
                    files.push(UndoneFile { path: path.to_string(), what });
                }
            }
        }
        Ok(left)
    }

    /// Plans what restoring `target` would change.
    async fn plan_undo(&self, target: &Snapshot) -> Result<UndoPlan> {
        let text = self.store.ledger().await?;
        let mut plan = UndoPlan {
            files: Vec::new(),
            position: text.position,
            ledger_then: None,
            retracts: false,
        };
        for (path, then) in self.history.changes_since(&target.id).await? {
            let Some(then) = self.scrub_snapshot_file(&path, then) else { continue };
            let is_ledger = path.as_str() == layout::LEDGER;
            let now = if is_ledger {
                Some(text.bytes.clone())
            } else {
                self.read_document_if_any(&path).await?
            };
            let step = undo::undo_step(path.file_kind(), then.as_deref(), now.as_deref());
            if is_ledger {
                let ledger_then = then.unwrap_or_default();
                let merged = if let UndoStep::Merge(merged) | UndoStep::Restore(merged) = &step {
                    merged
                } else {
                    &text.bytes
                };
                plan.retracts = !undo::retractions(
                    &Ledger::parse(&ledger_then, None),
                    &Ledger::parse(merged, None),
                )
                .is_empty();
                plan.ledger_then = Some(ledger_then);
            }
            if step != UndoStep::Leave {
                plan.files.push((path, step, ContentVersion::of(now.as_deref())));
            }
        }
        // Removals first: a file may be in the place of a folder.
        plan.files.sort_by_key(|(_, step, _)| *step != UndoStep::Remove);
        Ok(plan)
    }

    /// A document's bytes; `None` if something other than a file is there.
    async fn read_document_if_any(&self, path: &DocPath) -> Result<Option<Vec<u8>>> {
        match self.store.document(path).await {
            Err(icecore_store::Error { kind: icecore_store::ErrorKind::NotAFile, .. }) => Ok(None),
            other => Ok(other?),
        }
    }

    async fn retract_since(&self, then: &Ledger, target: &Snapshot) -> Result<Vec<EventId>> {
        let mut last = StoreError::conflict(layout::LEDGER.into());
        for _ in 0..MAX_ATTEMPTS {
            let text = self.store.ledger().await?;
            let now = Ledger::parse(&text.bytes, None);
            let moment = self.now();
            let gone = undo::retractions(then, &now);
            let drafts: Vec<EventDraft> = gone
                .iter()
                .map(|entry| {
                    let content =
                        format!("{UNDONE_PREFIX} back to snapshot {}", short_id(&target.id));
                    EventDraft {
                        origin: Origin::User,
                        ..EventDraft::new_act(&entry.event, Act::Retract, moment, content)
                    }
                })
                .collect();
            let retracted = gone.iter().map(|entry| entry.event.id).collect();
            if drafts.is_empty() {
                return Ok(retracted);
            }
            match self.store.append(drafts, Some(text.position)).await {
                // An event was added meanwhile.
                Err(moved @ StoreError { kind: StoreErrorKind::Conflict, .. }) => last = moved,
                other => return Ok(other.map(|_| retracted)?),
            }
        }
        Err(last.into())
    }
}
