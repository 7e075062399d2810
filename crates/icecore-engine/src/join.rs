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
use icecore_domain::ledger::integrity::{self, Prefix};
use icecore_domain::merge::{self, Renumbering};
use icecore_domain::plain;
use icecore_store::{
    ContentVersion, Error as StoreError, Fork, Joined, LedgerText, MERGED, SETTLED,
};
use serde::Serialize;

use crate::config::{Mistake, Policy};
use crate::curate::Curated;
use crate::forget::Forget;
use crate::rollup::{Asking, Watch};
use crate::tend::Verdict;
use crate::{ATTEMPTS, Error, Memory, Result, Secrets};

/// The note with the tombstones that were applied on this machine, and the last foreign merge that
/// was settled.
const HERE: &str = "machine.json";

/// The note of a renumbering in progress.
const RENUMBERING: &str = "renumbering.json";

/// The note that ids were renumbered for an unfinished merge, and what is being merged.
const MERGING: &str = "merging.txt";

/// The warning while that note exists.
pub(crate) const CUT_SHORT: &str =
    "a merge of two machines was interrupted; run `icecore merge` to finish it";

/// A renumbering in progress, with the original content of the files that name the ids.
#[derive(serde::Serialize, serde::Deserialize)]
struct Begun {
    ids: BTreeMap<String, String>,
    files: BTreeMap<String, (usize, String)>,
}

/// The result of a merge.
#[derive(Debug, Serialize)]
pub struct Merged {
    pub from: String,
    /// Whether there was anything to merge.
    pub new: bool,
    /// Our ids that were replaced, and their new ids.
    pub renumbered: Vec<(EventId, EventId)>,
    /// Files from which text was removed that the other machine forgot.
    pub forgotten: Vec<String>,
    /// The verification after the merge, if both sides had changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
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
pub(crate) struct Here {
    /// Tombstones that were applied here.
    #[serde(default)]
    pub carried_out: BTreeSet<String>,
    /// The last merge by git alone that was settled here.
    #[serde(default)]
    pub settled: Option<String>,
}

fn path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::Path)?)
}

impl Memory {
    /// This machine's own state; `None` if it was never stored.
    pub(crate) async fn here(&self) -> Result<Option<Here>> {
        Ok(self
            .store
            .note(&path(HERE)?)
            .await?
            .and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    pub(crate) async fn keep_here(&self, here: &Here) -> Result<()> {
        Ok(self.store.put_note(&path(HERE)?, &serde_json::to_vec(here).unwrap_or_default()).await?)
    }

    /// Records that all tombstones are applied here.
    pub(crate) async fn note_carried_out(&self) -> Result<()> {
        let mut here = self.here().await?.unwrap_or_default();
        here.carried_out = self.tombstones().all().iter().map(|stone| stone.id.clone()).collect();
        self.keep_here(&here).await
    }

    /// Tombstones of another machine that are not applied here yet.
    pub(crate) async fn carried_in(&self) -> Result<BTreeSet<String>> {
        let stones = self.tombstones();
        if stones.is_empty() || !self.history.is_shared().await {
            return Ok(BTreeSet::new());
        }
        let here = self.here().await?.unwrap_or_default();
        Ok(stones
            .all()
            .iter()
            .map(|stone| stone.id.clone())
            .filter(|id| !here.carried_out.contains(id))
            .collect())
    }

    /// The state of merging with other machines.
    pub async fn merge_status(&self) -> Result<MergeStatus> {
        let unfinished = self.history.unfinished().await?;
        Ok(MergeStatus {
            shared: self.history.is_shared().await,
            unfinished: unfinished.is_some(),
            open: unfinished.map_or_else(Vec::new, |unfinished| unfinished.open),
            wants: self.history.wants().await,
        })
    }

    /// Merges the changes of another machine: those of `name`, or of the upstream branch.
    pub async fn merge_in(
        &self,
        other: Option<&str>,
        asking: Option<&Asking<'_>>,
        watch: Watch<'_>,
    ) -> Result<Merged> {
        if self.looks_back().await? {
            return Err(Error::Nothing(
                "the ledger has events after that moment; merge works only in the present, without --now".into(),
            ));
        }
        let unfinished = self.history.unfinished().await?;
        if let Some(unfinished) =
            unfinished.as_ref().filter(|unfinished| !unfinished.open.is_empty())
        {
            let files: Vec<&str> = unfinished.open.iter().map(String::as_str).take(5).collect();
            return Err(StoreError::Unsettled(format!(
                "a merge has conflicts in {}; resolve them, run `git add` on the files, then `icecore merge` to continue, or `git merge --abort` to cancel",
                files.join(", ")
            ))
            .into());
        }
        // An interrupted merge continues with its own source, unless another one is named.
        let noted = self
            .store
            .note(&path(MERGING)?)
            .await?
            .map(|name| String::from_utf8_lossy(&name).trim().to_owned());
        let begun = unfinished
            .as_ref()
            .map(|unfinished| unfinished.name.clone())
            .or(noted.filter(|name| !name.is_empty()));
        let other = other.or(begun.as_deref());
        let (fork, renumbered) = {
            let _alone = self.claim_night().await?;
            self.finish_renumbering().await?;
            if unfinished.is_some() {
                // Before pages are read: the other side's versions are not manual edits.
                self.finish_join(begun.as_deref().unwrap_or_default()).await?;
            }
            self.renew_tombstones().await?;
            self.notice_all().await?;
            let mut curated = Curated::default();
            self.adopt_edits(&mut curated).await?;
            self.rebuild_views(&mut curated).await?;
            self.refresh_loops().await?;
            watch("reading the other machine", 0, 0);
            // This also ends a merge that was interrupted.
            self.keep_state("before a merge", &mut Secrets::new()).await?;
            let fork = self.history.fork(other).await?;
            // Other errors in the settings are reported after the merge.
            let settings = String::from_utf8_lossy(fork.settings.as_deref().unwrap_or_default());
            if let Err(newer @ Mistake::Newer { .. }) =
                Policy::read(settings.trim_start_matches('\u{feff}'))
            {
                return Err(newer.into());
            }
            let renumbered = if fork.nothing || fork.forward {
                Renumbering::new()
            } else {
                self.make_way(&fork).await?
            };
            if !fork.nothing {
                watch("merging", 0, 0);
                match self.history.join(&fork).await {
                    Ok(Joined::Whole) => {}
                    Ok(Joined::Open { files, left: true }) => {
                        return Err(open(&fork.name, &files, true));
                    }
                    // Files were being moved into place; the next call continues with that.
                    Err(error) if self.history.unfinished().await?.is_some() => {
                        return Err(error.into());
                    }
                    other => {
                        // Undo the renumbering, so that nothing has changed.
                        let back: Renumbering =
                            renumbered.iter().map(|(old, new)| (*new, *old)).collect();
                        self.renumber(&back, &fork.name).await?;
                        self.store.remove_note(&path(MERGING)?).await?;
                        return Err(match other {
                            Ok(Joined::Open { files, .. }) => open(&fork.name, &files, false),
                            Err(error) => error.into(),
                            Ok(Joined::Whole) => Error::Nothing("nothing was merged".into()),
                        });
                    }
                }
                self.settle_merge(!fork.forward).await?;
            }
            self.store.remove_note(&path(MERGING)?).await?;
            self.share_marker_key(&fork).await?;
            (fork, renumbered)
        };
        watch("forgetting what the other machine forgot", 0, 0);
        self.reload_tombstones().await?;
        let wish = Forget { by: "merge".into(), ..Forget::default() };
        let forgot = self.forget(&wish, asking, watch).await?;
        let forgotten: Vec<String> =
            forgot.gone.places.into_iter().map(|place| place.path).collect();
        let mut verdict = None;
        // A fast-forward was verified where it was made; a new report would only be another change
        // to merge.
        if !(fork.nothing || fork.forward) || unfinished.is_some() || !forgotten.is_empty() {
            let note = format!("{MERGED}{}", plain::one_line(&fork.name));
            self.keep_state(&note, &mut Secrets::new()).await?;
            verdict = Some(self.verify().await?);
            // The report is part of the snapshot, so that only new changes are left to merge.
            self.keep_state(&note, &mut Secrets::new()).await?;
        }
        Ok(Merged {
            from: fork.name,
            new: !fork.nothing,
            renumbered: renumbered.into_iter().collect(),
            forgotten,
            verdict,
        })
    }

    /// Moves the files of an interrupted merge into place, and settles it.
    async fn finish_join(&self, name: &str) -> Result<()> {
        match self.history.resume_join().await {
            Ok(Some(Joined::Open { files, left })) => return Err(open(name, &files, left)),
            Ok(_) => {}
            // No file was in place yet; the merge starts again.
            Err(StoreError::Moved { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.reload_tombstones().await?;
        self.settle_merge(true).await?;
        Ok(())
    }

    /// If the other machine's key for the markers of hidden secrets is visible, both machines use
    /// the smaller key from now on. Each machine comes to the same result on its own.
    async fn share_marker_key(&self, fork: &Fork) -> Result<()> {
        if let Some(theirs) = self.history.other_marker_key(fork).await
            && self.store.marker_key().await?.is_none_or(|ours| theirs < ours)
        {
            self.store.set_marker_key(&theirs, true).await?;
        }
        Ok(())
    }

    /// Renumbers our ids that the other machine assigned too: ours get the next free numbers, in
    /// every file that names them.
    async fn make_way(&self, fork: &Fork) -> Result<Renumbering> {
        let bytes = self.store.ledger().await?.bytes;
        let archives = self.archive_texts().await?;
        let (base, theirs) = (events_of(&fork.base), events_of(&fork.theirs));
        let mut spent: BTreeSet<EventId> = integrity::known_gaps(
            &self.store.document(&path(layout::INTEGRITY)?).await?.unwrap_or_default(),
        )
        .into_iter()
        .collect();
        for (_, report) in fork.theirs.iter().filter(|(path, _)| path.as_str() == layout::INTEGRITY)
        {
            spent.extend(integrity::known_gaps(report));
        }
        let ours: Vec<&[u8]> =
            std::iter::once(bytes.as_slice()).chain(archives.iter().map(Vec::as_slice)).collect();
        let renumbering =
            merge::renumbering(&base, &ours, &theirs, &spent).ok_or_else(no_numbers_left)?;
        self.renumber(&renumbering, &fork.name).await?;
        Ok(renumbering)
    }

    /// Whether ids were renumbered for a merge that was interrupted. Until it is finished, the ids
    /// of the other machine are gaps, and the events with the old ids look lost although they are
    /// not.
    pub(crate) async fn is_merging(&self) -> Result<bool> {
        let is_waiting = |unfinished: icecore_store::Unfinished| unfinished.open.is_empty();
        Ok(self.store.note(&path(MERGING)?).await?.is_some()
            || self.history.unfinished().await?.is_some_and(is_waiting))
    }

    /// Changes the ids of events, in every file that names them.
    async fn renumber(&self, renumbering: &Renumbering, other: &str) -> Result<()> {
        if renumbering.is_empty() {
            return Ok(());
        }
        let bytes = self.store.ledger().await?.bytes;
        let mut files = BTreeMap::from([(layout::LEDGER.to_owned(), Prefix::of(&bytes))]);
        for document in self.store.documents("").await?.into_iter().filter(DocPath::is_kept) {
            let bytes = self.store.document(&document).await?.unwrap_or_default();
            if merge::rename(document.as_str(), &bytes, renumbering).is_some() {
                files.insert(document.to_string(), Prefix::of(&bytes));
            }
        }
        self.put_flushed_note(MERGING, other).await?;
        // Recorded first: a run that dies has renamed some files and not others.
        let files = files
            .into_iter()
            .map(|(file, prefix)| (file, (prefix.bytes, prefix.hash.to_string())))
            .collect();
        let ids = renumbering.iter().map(|(old, new)| (old.to_string(), new.to_string())).collect();
        self.put_flushed_note(
            RENUMBERING,
            &serde_json::to_string(&Begun { ids, files }).unwrap_or_default(),
        )
        .await?;
        self.finish_renumbering().await?;
        self.keep_state("before a merge: ids that both machines gave", &mut Secrets::new()).await?;
        Ok(())
    }

    /// Writes a note that survives a loss of power.
    async fn put_flushed_note(&self, name: &str, text: &str) -> Result<()> {
        self.store.remove_note(&path(name)?).await?;
        Ok(self.store.add_note(&path(name)?, text, u64::MAX, true).await?)
    }

    /// Finishes a renumbering: changes the ids in every file that still has its recorded content.
    async fn finish_renumbering(&self) -> Result<()> {
        let note = path(RENUMBERING)?;
        let Some(begun) = self
            .store
            .note(&note)
            .await?
            .and_then(|bytes| serde_json::from_slice::<Begun>(&bytes).ok())
        else {
            return Ok(());
        };
        let mut ids: Renumbering = begun
            .ids
            .iter()
            .filter_map(|(old, new)| Some((old.parse().ok()?, new.parse().ok()?)))
            .collect();
        let is_as_it_was = |file: &str, bytes: &[u8]| {
            let prefix = begun
                .files
                .get(file)
                .and_then(|(bytes, hash)| Some(Prefix { bytes: *bytes, hash: hash.parse().ok()? }));
            prefix.is_some_and(|prefix| prefix.holds(bytes))
        };
        // The ledger first: until its ids are changed, new events could get ids that belong to the
        // other machine.
        let LedgerText { bytes, position } = self.store.ledger().await?;
        if is_as_it_was(layout::LEDGER, &bytes) {
            let extended =
                merge::extend_renumbering(&ids, &[&bytes]).ok_or_else(no_numbers_left)?;
            if extended != ids {
                ids = extended;
                let text = |ids: &Renumbering| {
                    ids.iter().map(|(old, new)| (old.to_string(), new.to_string())).collect()
                };
                let begun = Begun { ids: text(&ids), files: begun.files.clone() };
                self.store.put_note(&note, &serde_json::to_vec(&begun).unwrap_or_default()).await?;
            }
            if let Some(renamed) = merge::rename(layout::LEDGER, &bytes, &ids) {
                self.store.replace_ledger(&renamed, position).await?;
                self.accept_ledger().await?;
            }
        }
        for file in begun.files.keys() {
            if file != layout::LEDGER {
                let place = path(file)?;
                let mut renamed = Ok(());
                for _ in 0..ATTEMPTS {
                    let bytes = self.store.document(&place).await?.unwrap_or_default();
                    let Some(text) =
                        merge::rename(file, &bytes, &ids).filter(|_| is_as_it_was(file, &bytes))
                    else {
                        break;
                    };
                    renamed =
                        self.store.swap(&place, &text, ContentVersion::of(Some(&bytes))).await;
                    // The file was saved or appended to meanwhile: it is read again.
                    if !matches!(renamed, Err(StoreError::Moved { .. })) {
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
        for (document, bytes) in merge::once(&archives) {
            let known = archives
                .iter()
                .find(|(path, _)| *path == document)
                .map(|(_, bytes)| bytes.as_slice());
            self.store.swap(&document, &bytes, ContentVersion::of(known)).await?;
            done.push(format!("removed lines from {document} that are also in another archive"));
        }
        if both {
            let mut checkpoint = self.checkpoint().await?;
            // The other machine's pages may lag behind our checkpoint.
            checkpoint.last_processed_event_id = None;
            checkpoint.events_processed = 0;
            self.keep_checkpoint(&checkpoint).await?;
        }
        self.store.rebuild(&|_, _| {}).await?;
        self.accept_ledger().await?;
        self.refresh_loops().await?;
        let mut curated = Curated::default();
        self.adopt_edits(&mut curated).await?;
        self.rebuild_views(&mut curated).await?;
        self.refresh_loops().await?;
        Ok(done)
    }

    /// Settles a merge that was made by git alone.
    pub(crate) async fn settle_foreign_merge(&self) -> Result<Vec<String>> {
        let Some(merge) = self.foreign_merge().await? else { return Ok(Vec::new()) };
        let mut done = self.settle_merge(true).await?;
        let here = Here { settled: Some(merge), ..self.here().await?.unwrap_or_default() };
        self.keep_here(&here).await?;
        self.keep_state(&format!("{SETTLED} that git made alone"), &mut Secrets::new()).await?;
        done.push("settled a merge that was made with git alone".into());
        Ok(done)
    }

    /// The last merge that was made by git alone and is not settled here.
    pub(crate) async fn foreign_merge(&self) -> Result<Option<String>> {
        let merge = self.history.foreign_merge().await.unwrap_or_default();
        let settled = self.here().await?.and_then(|here| here.settled);
        Ok(merge.filter(|merge| settled.as_ref() != Some(merge)))
    }

    /// Reads the tombstones again, even if the file seems unchanged.
    async fn reload_tombstones(&self) -> Result<()> {
        let text = self.store.document(&path(layout::FORGOTTEN)?).await?;
        let stones = Tombstones::read(text.as_deref().unwrap_or_default());
        let read = (ContentVersion::of(text.as_deref()), std::sync::Arc::new(stones));
        *self.stones.write().unwrap_or_else(std::sync::PoisonError::into_inner) = read;
        Ok(())
    }
}

fn no_numbers_left() -> Error {
    Error::TooMuch("one day has more events on both machines together than there are ids".into())
}

/// The contents of the files that hold events.
fn events_of(files: &[(DocPath, Vec<u8>)]) -> Vec<&[u8]> {
    files
        .iter()
        .filter(|(path, _)| path.as_str() != layout::INTEGRITY)
        .map(|(_, bytes)| bytes.as_slice())
        .collect()
}

fn open(name: &str, files: &[(String, Option<String>)], left: bool) -> Error {
    let told = |(file, why): &(String, Option<String>)| {
        let why = why.as_deref().unwrap_or("was changed on both machines");
        format!("{file}: {why}")
    };
    let told: Vec<String> = files.iter().take(10).map(told).collect();
    let (count, name) = (
        if files.len() == 1 { "a file is".into() } else { format!("{} files are", files.len()) },
        plain::one_line(name),
    );
    let next = if left {
        format!(
            "Each file still has this machine's version; `git show {name}:FILE` prints the other one. Merge them, run `git add FILE`, then `icecore merge` to continue, or `git merge --abort` to cancel"
        )
    } else {
        "Nothing was changed".into()
    };
    StoreError::Unsettled(format!("{count} in conflict:\n  {}\n{next}", told.join("\n  "))).into()
}
