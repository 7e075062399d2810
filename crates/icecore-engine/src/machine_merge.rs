//! Merges the memories of two machines.
//!
//! The order matters: manual page edits are imported first, so that pages contain nothing but
//! views. Ids that both machines assigned are renumbered before the files are merged, because only
//! here every file that names one is visible. Then files are merged one by one, text that was
//! forgotten on either machine is forgotten here too, and derived data is rebuilt.
//!
//! Invariant: an interrupted merge is finished before anything else.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::forget::Tombstones;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::integrity::{self, LedgerPrefix};
use icecore_domain::merge::{self, Renumbering};
use icecore_domain::sanitize;
use icecore_store::{
    ContentVersion, Divergence, Error as StoreError, ErrorKind as StoreErrorKind, LedgerText,
    MERGE_NOTE_PREFIX, MergeOutcome, RESOLVED_MERGE_NOTE,
};
use serde::Serialize;

use crate::config::{Policy, PolicyError};
use crate::forget::ForgetRequest;
use crate::maintenance::VerifyReport;
use crate::page_sync::PageSyncReport;
use crate::rollup::{ModelBudget, ProgressFn};
use crate::{Error, MAX_ATTEMPTS, Memory, Result, SecretCounts};

/// The note with the tombstones that were applied on this machine, and the last foreign merge that
/// was settled.
const MACHINE_STATE_NOTE: &str = "machine.json";

/// The note of a renumbering in progress.
const RENUMBERING_NOTE: &str = "renumbering.json";

/// The note that ids were renumbered for an unfinished merge, and what is being merged.
const MERGING_NOTE: &str = "merging.txt";

/// The warning while that note exists.
pub(crate) const MERGE_UNFINISHED_WARNING: &str =
    "a merge of two machines was interrupted; run `icecore merge` to finish it";

/// A renumbering in progress, with the original content of the files that name the ids.
#[derive(serde::Serialize, serde::Deserialize)]
struct RenumberingNote {
    ids: BTreeMap<String, String>,
    files: BTreeMap<String, (usize, String)>,
}

/// The result of a merge.
#[derive(Debug, Serialize)]
pub struct MergeReport {
    pub from: String,
    /// Whether there was anything to merge.
    pub new: bool,
    /// Our ids that were replaced, and their new ids.
    pub renumbered: Vec<(EventId, EventId)>,
    /// Files from which text was removed that the other machine forgot.
    pub forgotten: Vec<String>,
    /// The verification after the merge, if both sides had changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerifyReport>,
}

/// The state of merging with other machines.
#[derive(Debug, Serialize)]
pub struct MergeStatus {
    /// Whether other machines may have this memory too.
    pub shared: bool,
    /// Whether a merge is unfinished.
    pub unfinished: bool,
    /// Files with conflicts that the user has to resolve.
    pub open: Vec<String>,
    /// What the user has to set up before several machines can share this memory.
    pub wants: Vec<String>,
}

/// State of this machine that is not shared.
#[derive(Debug, Default, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct MachineState {
    /// Tombstones that were applied here.
    #[serde(default)]
    pub carried_out: BTreeSet<String>,
    /// The last merge by git alone that was settled here.
    #[serde(default)]
    pub settled: Option<String>,
}

fn doc_path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::from)?)
}

impl Memory {
    /// This machine's own state; `None` if it was never stored.
    pub(crate) async fn load_machine_state(&self) -> Result<Option<MachineState>> {
        Ok(self
            .store
            .note(&doc_path(MACHINE_STATE_NOTE)?)
            .await?
            .and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    pub(crate) async fn save_machine_state(&self, here: &MachineState) -> Result<()> {
        Ok(self
            .store
            .put_note(&doc_path(MACHINE_STATE_NOTE)?, &serde_json::to_vec(here).unwrap_or_default())
            .await?)
    }

    /// Records that all tombstones are applied here.
    pub(crate) async fn mark_tombstones_applied(&self) -> Result<()> {
        let mut here = self.load_machine_state().await?.unwrap_or_default();
        here.carried_out = self.tombstones().all().iter().map(|stone| stone.id.clone()).collect();
        self.save_machine_state(&here).await
    }

    /// Tombstones of another machine that are not applied here yet.
    pub(crate) async fn list_unapplied_tombstones(&self) -> Result<BTreeSet<String>> {
        let stones = self.tombstones();
        if stones.is_empty() || !self.history.is_shared().await {
            return Ok(BTreeSet::new());
        }
        let here = self.load_machine_state().await?.unwrap_or_default();
        Ok(stones
            .all()
            .iter()
            .map(|stone| stone.id.clone())
            .filter(|id| !here.carried_out.contains(id))
            .collect())
    }

    /// The state of merging with other machines.
    pub async fn load_merge_status(&self) -> Result<MergeStatus> {
        let unfinished = self.history.unfinished_merge().await?;
        Ok(MergeStatus {
            shared: self.history.is_shared().await,
            unfinished: unfinished.is_some(),
            open: unfinished.map_or_else(Vec::new, |unfinished| unfinished.conflicts),
            wants: self.history.setup_hints().await,
        })
    }

    /// Merges the changes of another machine: those of `name`, or of the upstream branch.
    pub async fn merge_from(
        &self,
        other: Option<&str>,
        budget: Option<&ModelBudget<'_>>,
        progress: ProgressFn<'_>,
    ) -> Result<MergeReport> {
        if self.is_looking_back().await? {
            return Err(Error::NotFound(
                "the ledger has events after that moment; merge works only in the present, without --now".into(),
            ));
        }
        let unfinished = self.history.unfinished_merge().await?;
        if let Some(unfinished) =
            unfinished.as_ref().filter(|unfinished| !unfinished.conflicts.is_empty())
        {
            let files: Vec<&str> =
                unfinished.conflicts.iter().map(String::as_str).take(5).collect();
            return Err(StoreError::unresolved_merge(format!(
                "a merge has conflicts in {}; resolve them, run `git add` on the files, then `icecore merge` to continue, or `git merge --abort` to cancel",
                files.join(", ")
            ))
            .into());
        }
        // An interrupted merge continues with its own source, unless another one is named.
        let noted = self
            .store
            .note(&doc_path(MERGING_NOTE)?)
            .await?
            .map(|name| String::from_utf8_lossy(&name).trim().to_owned());
        let begun = unfinished
            .as_ref()
            .map(|unfinished| unfinished.name.clone())
            .or(noted.filter(|name| !name.is_empty()));
        let other = other.or(begun.as_deref());
        let (fork, renumbered) = {
            let _alone = self.acquire_consolidation_lease().await?;
            self.finish_renumbering().await?;
            if unfinished.is_some() {
                // Before pages are read: the other side's versions are not manual edits.
                self.finish_interrupted_merge(begun.as_deref().unwrap_or_default()).await?;
            }
            self.refresh_tombstones().await?;
            self.scan_all_logs().await?;
            let mut curated = PageSyncReport::default();
            self.import_edits(&mut curated).await?;
            self.rebuild_pages(&mut curated).await?;
            self.refresh_open_loops().await?;
            progress("reading the other machine", 0, 0);
            // This also ends a merge that was interrupted.
            self.snapshot_without_secrets("before a merge", &mut SecretCounts::new()).await?;
            let fork = self.history.find_divergence(other).await?;
            // Other errors in the settings are reported after the merge.
            let settings = String::from_utf8_lossy(fork.settings.as_deref().unwrap_or_default());
            if let Err(newer @ PolicyError::Newer { .. }) =
                Policy::read(settings.trim_start_matches('\u{feff}'))
            {
                return Err(newer.into());
            }
            let renumbered = if fork.is_up_to_date || fork.is_fast_forward {
                Renumbering::new()
            } else {
                self.renumber_conflicting_ids(&fork).await?
            };
            if !fork.is_up_to_date {
                progress("merging", 0, 0);
                match self.history.merge(&fork).await {
                    Ok(MergeOutcome::Complete) => {}
                    Ok(MergeOutcome::Conflicted { files, left: true }) => {
                        return Err(conflict_error(&fork.name, &files, true));
                    }
                    // Files were being moved into place; the next call continues with that.
                    Err(error) if self.history.unfinished_merge().await?.is_some() => {
                        return Err(error.into());
                    }
                    other => {
                        // Undo the renumbering, so that nothing has changed.
                        let back: Renumbering =
                            renumbered.iter().map(|(old, new)| (*new, *old)).collect();
                        self.renumber_events(&back, &fork.name).await?;
                        self.store.remove_note(&doc_path(MERGING_NOTE)?).await?;
                        return Err(match other {
                            Ok(MergeOutcome::Conflicted { files, .. }) => {
                                conflict_error(&fork.name, &files, false)
                            }
                            Err(error) => error.into(),
                            Ok(MergeOutcome::Complete) => {
                                Error::NotFound("nothing was merged".into())
                            }
                        });
                    }
                }
                self.settle_merge(!fork.is_fast_forward).await?;
            }
            self.store.remove_note(&doc_path(MERGING_NOTE)?).await?;
            self.unify_marker_key(&fork).await?;
            (fork, renumbered)
        };
        progress("forgetting what the other machine forgot", 0, 0);
        self.reload_tombstones().await?;
        let wish = ForgetRequest { by: "merge".into(), ..ForgetRequest::default() };
        let forgot = self.forget(&wish, budget, progress).await?;
        let forgotten: Vec<String> =
            forgot.gone.places.into_iter().map(|place| place.path).collect();
        let mut verdict = None;
        // A fast-forward was verified where it was made; a new report would only be another change
        // to merge.
        if !(fork.is_up_to_date || fork.is_fast_forward)
            || unfinished.is_some()
            || !forgotten.is_empty()
        {
            let note = format!("{MERGE_NOTE_PREFIX}{}", sanitize::one_line(&fork.name));
            self.snapshot_without_secrets(&note, &mut SecretCounts::new()).await?;
            verdict = Some(self.verify().await?);
            // The report is part of the snapshot, so that only new changes are left to merge.
            self.snapshot_without_secrets(&note, &mut SecretCounts::new()).await?;
        }
        Ok(MergeReport {
            from: fork.name,
            new: !fork.is_up_to_date,
            renumbered: renumbered.into_iter().collect(),
            forgotten,
            verdict,
        })
    }

    /// Moves the files of an interrupted merge into place, and settles it.
    async fn finish_interrupted_merge(&self, name: &str) -> Result<()> {
        match self.history.resume_merge().await {
            Ok(Some(MergeOutcome::Conflicted { files, left })) => {
                return Err(conflict_error(name, &files, left));
            }
            Ok(_) => {}
            // No file was in place yet; the merge starts again.
            Err(StoreError { kind: StoreErrorKind::Conflict, .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.reload_tombstones().await?;
        self.settle_merge(true).await?;
        Ok(())
    }

    /// If the other machine's key for the markers of hidden secrets is visible, both machines use
    /// the smaller key from now on. Each machine comes to the same result on its own.
    async fn unify_marker_key(&self, fork: &Divergence) -> Result<()> {
        if let Some(theirs) = self.history.other_marker_key(fork).await
            && self.store.marker_key().await?.is_none_or(|ours| theirs < ours)
        {
            self.store.set_marker_key(&theirs, true).await?;
        }
        Ok(())
    }

    /// Renumbers our ids that the other machine assigned too: ours get the next free numbers, in
    /// every file that names them.
    async fn renumber_conflicting_ids(&self, fork: &Divergence) -> Result<Renumbering> {
        let bytes = self.store.ledger().await?.bytes;
        let archives = self.read_archives().await?;
        let (base, theirs) = (event_files(&fork.base), event_files(&fork.theirs));
        let mut spent: BTreeSet<EventId> = integrity::parse_known_gaps(
            &self.store.document(&doc_path(layout::INTEGRITY)?).await?.unwrap_or_default(),
        )
        .into_iter()
        .collect();
        for (_, report) in fork.theirs.iter().filter(|(path, _)| path.as_str() == layout::INTEGRITY)
        {
            spent.extend(integrity::parse_known_gaps(report));
        }
        let ours: Vec<&[u8]> =
            std::iter::once(bytes.as_slice()).chain(archives.iter().map(Vec::as_slice)).collect();
        let renumbering =
            merge::renumbering(&base, &ours, &theirs, &spent).ok_or_else(no_free_ids)?;
        self.renumber_events(&renumbering, &fork.name).await?;
        Ok(renumbering)
    }

    /// Whether ids were renumbered for a merge that was interrupted. Until it is finished, the ids
    /// of the other machine are gaps, and the events with the old ids look lost although they are
    /// not.
    pub(crate) async fn is_merging(&self) -> Result<bool> {
        let is_waiting =
            |unfinished: icecore_store::UnfinishedMerge| unfinished.conflicts.is_empty();
        Ok(self.store.note(&doc_path(MERGING_NOTE)?).await?.is_some()
            || self.history.unfinished_merge().await?.is_some_and(is_waiting))
    }

    /// Changes the ids of events, in every file that names them.
    async fn renumber_events(&self, renumbering: &Renumbering, other: &str) -> Result<()> {
        if renumbering.is_empty() {
            return Ok(());
        }
        let bytes = self.store.ledger().await?.bytes;
        let mut files =
            BTreeMap::from([(layout::LEDGER.to_owned(), LedgerPrefix::from_text(&bytes))]);
        for document in self.store.documents("").await?.into_iter().filter(DocPath::is_vault_file) {
            let bytes = self.store.document(&document).await?.unwrap_or_default();
            if merge::renumber_file(document.as_str(), &bytes, renumbering).is_some() {
                files.insert(document.to_string(), LedgerPrefix::from_text(&bytes));
            }
        }
        self.write_durable_note(MERGING_NOTE, other).await?;
        // Recorded first: a run that dies has renamed some files and not others.
        let files = files
            .into_iter()
            .map(|(file, prefix)| (file, (prefix.bytes, prefix.hash.to_string())))
            .collect();
        let ids = renumbering.iter().map(|(old, new)| (old.to_string(), new.to_string())).collect();
        self.write_durable_note(
            RENUMBERING_NOTE,
            &serde_json::to_string(&RenumberingNote { ids, files }).unwrap_or_default(),
        )
        .await?;
        self.finish_renumbering().await?;
        self.snapshot_without_secrets(
            "before a merge: ids that both machines assigned",
            &mut SecretCounts::new(),
        )
        .await?;
        Ok(())
    }

    /// Writes a note that survives a loss of power.
    async fn write_durable_note(&self, name: &str, text: &str) -> Result<()> {
        self.store.remove_note(&doc_path(name)?).await?;
        Ok(self.store.append_note(&doc_path(name)?, text, u64::MAX, true).await?)
    }

    /// Finishes a renumbering: changes the ids in every file that still has its recorded content.
    async fn finish_renumbering(&self) -> Result<()> {
        let note = doc_path(RENUMBERING_NOTE)?;
        let Some(begun) = self
            .store
            .note(&note)
            .await?
            .and_then(|bytes| serde_json::from_slice::<RenumberingNote>(&bytes).ok())
        else {
            return Ok(());
        };
        let mut ids: Renumbering = begun
            .ids
            .iter()
            .filter_map(|(old, new)| Some((old.parse().ok()?, new.parse().ok()?)))
            .collect();
        let is_as_it_was = |file: &str, bytes: &[u8]| {
            let prefix = begun.files.get(file).and_then(|(bytes, hash)| {
                Some(LedgerPrefix { bytes: *bytes, hash: hash.parse().ok()? })
            });
            prefix.is_some_and(|prefix| prefix.is_prefix_of(bytes))
        };
        // The ledger first: until its ids are changed, new events could get ids that belong to the
        // other machine.
        let LedgerText { bytes, position } = self.store.ledger().await?;
        if is_as_it_was(layout::LEDGER, &bytes) {
            let extended = merge::extend_renumbering(&ids, &[&bytes]).ok_or_else(no_free_ids)?;
            if extended != ids {
                ids = extended;
                let text = |ids: &Renumbering| {
                    ids.iter().map(|(old, new)| (old.to_string(), new.to_string())).collect()
                };
                let begun = RenumberingNote { ids: text(&ids), files: begun.files.clone() };
                self.store.put_note(&note, &serde_json::to_vec(&begun).unwrap_or_default()).await?;
            }
            if let Some(renamed) = merge::renumber_file(layout::LEDGER, &bytes, &ids) {
                self.store.replace_ledger(&renamed, position).await?;
                self.accept_ledger().await?;
            }
        }
        for file in begun.files.keys() {
            if file != layout::LEDGER {
                let place = doc_path(file)?;
                let mut renamed = Ok(());
                for _ in 0..MAX_ATTEMPTS {
                    let bytes = self.store.document(&place).await?.unwrap_or_default();
                    let Some(text) = merge::renumber_file(file, &bytes, &ids)
                        .filter(|_| is_as_it_was(file, &bytes))
                    else {
                        break;
                    };
                    renamed = self
                        .store
                        .compare_and_swap(&place, &text, ContentVersion::of(Some(&bytes)))
                        .await;
                    // The file was saved or appended to meanwhile: it is read again.
                    if !matches!(renamed, Err(StoreError { kind: StoreErrorKind::Conflict, .. })) {
                        break;
                    }
                }
                renamed?;
            }
        }
        Ok(self.store.remove_note(&note).await?)
    }

    /// Establishes the invariants after a merge: every archived line exists once, pages are
    /// complete, and the ledger counts as verified.
    pub(crate) async fn settle_merge(&self, both: bool) -> Result<Vec<String>> {
        let mut done = Vec::new();
        let mut archives = Vec::new();
        for document in
            self.store.documents("memory").await?.into_iter().filter(DocPath::is_archive)
        {
            archives.push((
                document.clone(),
                self.store.document(&document).await?.unwrap_or_default(),
            ));
        }
        for (document, bytes) in merge::dedup_archives(&archives) {
            let known = archives
                .iter()
                .find(|(path, _)| *path == document)
                .map(|(_, bytes)| bytes.as_slice());
            self.store.compare_and_swap(&document, &bytes, ContentVersion::of(known)).await?;
            done.push(format!("removed lines from {document} that are also in another archive"));
        }
        if both {
            let mut checkpoint = self.load_checkpoint().await?;
            // The other machine's pages may lag behind our checkpoint.
            checkpoint.last_processed_event_id = None;
            checkpoint.events_processed = 0;
            self.save_checkpoint(&checkpoint).await?;
        }
        self.store.rebuild(&|_, _| {}).await?;
        self.accept_ledger().await?;
        self.refresh_open_loops().await?;
        let mut curated = PageSyncReport::default();
        self.import_edits(&mut curated).await?;
        self.rebuild_pages(&mut curated).await?;
        self.refresh_open_loops().await?;
        Ok(done)
    }

    /// Settles a merge that was made by git alone.
    pub(crate) async fn settle_foreign_merge(&self) -> Result<Vec<String>> {
        let Some(merge) = self.find_unsettled_merge().await? else { return Ok(Vec::new()) };
        let mut done = self.settle_merge(true).await?;
        let here = MachineState {
            settled: Some(merge),
            ..self.load_machine_state().await?.unwrap_or_default()
        };
        self.save_machine_state(&here).await?;
        self.snapshot_without_secrets(
            &format!("{RESOLVED_MERGE_NOTE} that git made alone"),
            &mut SecretCounts::new(),
        )
        .await?;
        done.push("settled a merge that was made with git alone".into());
        Ok(done)
    }

    /// The last merge that was made by git alone and is not settled here.
    pub(crate) async fn find_unsettled_merge(&self) -> Result<Option<String>> {
        let merge = self.history.foreign_merge().await.unwrap_or_default();
        let settled = self.load_machine_state().await?.and_then(|here| here.settled);
        Ok(merge.filter(|merge| settled.as_ref() != Some(merge)))
    }

    /// Reads the tombstones again, even if the file seems unchanged.
    async fn reload_tombstones(&self) -> Result<()> {
        let text = self.store.document(&doc_path(layout::FORGOTTEN)?).await?;
        let stones = Tombstones::parse(text.as_deref().unwrap_or_default());
        let read = (ContentVersion::of(text.as_deref()), std::sync::Arc::new(stones));
        *self.tombstones.write().unwrap_or_else(std::sync::PoisonError::into_inner) = read;
        Ok(())
    }
}

fn no_free_ids() -> Error {
    Error::LimitExceeded(
        "one day has more events on both machines together than there are ids".into(),
    )
}

/// The contents of the files that hold events.
fn event_files(files: &[(DocPath, Vec<u8>)]) -> Vec<&[u8]> {
    files
        .iter()
        .filter(|(path, _)| path.as_str() != layout::INTEGRITY)
        .map(|(_, bytes)| bytes.as_slice())
        .collect()
}

fn conflict_error(name: &str, files: &[(String, Option<String>)], left: bool) -> Error {
    let told = |(file, why): &(String, Option<String>)| {
        let why = why.as_deref().unwrap_or("was changed on both machines");
        format!("{file}: {why}")
    };
    let told: Vec<String> = files.iter().take(10).map(told).collect();
    let (count, name) = (
        if files.len() == 1 { "a file is".into() } else { format!("{} files are", files.len()) },
        sanitize::one_line(name),
    );
    let next = if left {
        format!(
            "Each file still has this machine's version; `git show {name}:FILE` prints the other one. Merge them, run `git add FILE`, then `icecore merge` to continue, or `git merge --abort` to cancel"
        )
    } else {
        "Nothing was changed".into()
    };
    StoreError::unresolved_merge(format!("{count} in conflict:\n  {}\n{next}", told.join("\n  ")))
        .into()
}
