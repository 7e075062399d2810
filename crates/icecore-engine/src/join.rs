//! Two machines on one memory: what the other one has done comes in, and everything holds
//! afterwards that held before.
//!
//! What people wrote by hand is taken in first, so that pages are views and nothing else. Ids that
//! both machines gave are settled before the files are merged, because only here every file that
//! names one can be seen. Then the files are merged one by one; what was forgotten on either
//! machine is forgotten here too; what is derived is made anew. A merge that was cut short is
//! finished first.

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

/// The note with the tombstones that were carried out on this machine, and the last merge that was
/// settled.
const HERE: &str = "machine.json";

/// The note of ids that are being given anew.
const RENUMBERING: &str = "renumbering.json";

/// The note that says that ids were given anew for a merge that has not ended, and what is being
/// merged.
const MERGING: &str = "merging.txt";

/// What is said of that.
pub(crate) const CUT_SHORT: &str =
    "two machines were being merged, and that was cut short. `icecore merge` finishes it";

/// Ids that are being given anew, and the files that name them as they were.
#[derive(serde::Serialize, serde::Deserialize)]
struct Begun {
    ids: BTreeMap<String, String>,
    files: BTreeMap<String, (usize, String)>,
}

/// What a merge came to.
#[derive(Debug, Serialize)]
pub struct Merged {
    /// What was merged.
    pub from: String,
    /// Whether there was anything.
    pub new: bool,
    /// Ids of ours that gave way to theirs, and what they are now.
    pub renumbered: Vec<(EventId, EventId)>,
    /// Files in which something was forgotten that was forgotten on the other machine.
    pub forgotten: Vec<String>,
    /// How things stand now, if both sides had something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// How this memory stands to those of other machines.
#[derive(Debug, Serialize)]
pub struct MergeStatus {
    /// Whether other machines may have it too.
    pub shared: bool,
    /// Whether a merge was begun and not ended.
    pub unfinished: bool,
    /// Files of it that wait for a person.
    pub open: Vec<String>,
    /// What a person has to do so that several machines can use this memory.
    pub wants: Vec<String>,
}

/// What this machine alone knows.
#[derive(Debug, Default, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Here {
    /// Tombstones that were carried out here.
    #[serde(default)]
    pub carried_out: BTreeSet<String>,
    /// The last merge of somebody else's that was settled here.
    #[serde(default)]
    pub settled: Option<String>,
}

fn path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::Path)?)
}

impl Memory {
    /// What this machine knows for itself; `None` if it never wrote it down.
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

    /// Notes that everything that was forgotten anywhere is forgotten here.
    pub(crate) async fn note_carried_out(&self) -> Result<()> {
        let mut here = self.here().await?.unwrap_or_default();
        here.carried_out = self.tombstones().all().iter().map(|stone| stone.id.clone()).collect();
        self.keep_here(&here).await
    }

    /// Tombstones that another machine has set and that were not carried out here.
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

    /// How this memory stands to those of other machines.
    pub async fn merge_status(&self) -> Result<MergeStatus> {
        let unfinished = self.history.unfinished().await?;
        Ok(MergeStatus {
            shared: self.history.is_shared().await,
            unfinished: unfinished.is_some(),
            open: unfinished.map_or_else(Vec::new, |unfinished| unfinished.open),
            wants: self.history.wants().await,
        })
    }

    /// Merges what another machine has done; without a name, what this one follows.
    pub async fn merge_in(
        &self,
        other: Option<&str>,
        asking: Option<&Asking<'_>>,
        watch: Watch<'_>,
    ) -> Result<Merged> {
        if self.looks_back().await? {
            return Err(Error::Nothing(
                "the ledger goes on after that moment; only the memory of now can be merged".into(),
            ));
        }
        let unfinished = self.history.unfinished().await?;
        if let Some(unfinished) =
            unfinished.as_ref().filter(|unfinished| !unfinished.open.is_empty())
        {
            let files: Vec<&str> = unfinished.open.iter().map(String::as_str).take(5).collect();
            return Err(StoreError::Unsettled(format!(
                "a merge waits for you in {}. Put the two together, `git add` it, and `icecore merge` goes on; `git merge --abort` takes it back",
                files.join(", ")
            ))
            .into());
        }
        // A merge that was cut short goes on with what it was about, unless something else is
        // named.
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
                // Before anything looks at pages: those of the other side are no edits of a person.
                self.finish_join(begun.as_deref().unwrap_or_default()).await?;
            }
            self.renew_tombstones().await?;
            self.notice_all().await?;
            let mut curated = Curated::default();
            self.adopt_edits(&mut curated).await?;
            self.rebuild_views(&mut curated).await?;
            self.refresh_loops().await?;
            watch("looking at the other machine", 0, 0);
            // A merge that died before its end is ended by this.
            self.keep_state("before a merge", &mut Secrets::new()).await?;
            let fork = self.history.fork(other).await?;
            // Whatever else is wrong in it is for this vault to say once it is here.
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
                    // Files were being put in place; the next call goes on with that.
                    Err(error) if self.history.unfinished().await?.is_some() => {
                        return Err(error.into());
                    }
                    other => {
                        // As if nothing had been tried.
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
        watch("forgetting what was forgotten there", 0, 0);
        self.reload_tombstones().await?;
        let wish = Forget { by: "merge".into(), ..Forget::default() };
        let forgot = self.forget(&wish, asking, watch).await?;
        let forgotten: Vec<String> =
            forgot.gone.places.into_iter().map(|place| place.path).collect();
        let mut verdict = None;
        // What is taken over as it is was verified where it was made; to say so again would be one
        // more thing to merge.
        if !(fork.nothing || fork.forward) || unfinished.is_some() || !forgotten.is_empty() {
            let note = format!("{MERGED}{}", plain::one_line(&fork.name));
            self.keep_state(&note, &mut Secrets::new()).await?;
            verdict = Some(self.verify().await?);
            // What was found goes along, so that nothing is left to merge but what is new.
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

    /// Puts the files of a merge in place that was cut short, and settles it.
    async fn finish_join(&self, name: &str) -> Result<()> {
        match self.history.resume_join().await {
            Ok(Some(Joined::Open { files, left })) => return Err(open(name, &files, left)),
            Ok(_) => {}
            // Nothing was in place yet, so that it begins again.
            Err(StoreError::Moved { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.reload_tombstones().await?;
        self.settle_merge(true).await?;
        Ok(())
    }

    /// Where the other machine's key for the marks of hidden secrets can be seen, both use the
    /// smaller one from now on: each machine comes to the same by itself.
    async fn share_marker_key(&self, fork: &Fork) -> Result<()> {
        if let Some(theirs) = self.history.other_marker_key(fork).await
            && self.store.marker_key().await?.is_none_or(|ours| theirs < ours)
        {
            self.store.set_marker_key(&theirs, true).await?;
        }
        Ok(())
    }

    /// Gives ids of ours that the other machine has given too to nobody: ours get the next ones,
    /// wherever they are named.
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

    /// Whether ids were given anew for a merge that was cut short. Until it has ended there are
    /// gaps where theirs are to stand, and what had the old ids looks lost and is not.
    pub(crate) async fn is_merging(&self) -> Result<bool> {
        let is_waiting = |unfinished: icecore_store::Unfinished| unfinished.open.is_empty();
        Ok(self.store.note(&path(MERGING)?).await?.is_some()
            || self.history.unfinished().await?.is_some_and(is_waiting))
    }

    /// Gives events other ids, wherever they are named.
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
        // Written down first: a run that dies has renamed some files and not others.
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

    /// Writes a note that is there after a loss of power too.
    async fn put_flushed_note(&self, name: &str, text: &str) -> Result<()> {
        self.store.remove_note(&path(name)?).await?;
        Ok(self.store.add_note(&path(name)?, text, u64::MAX, true).await?)
    }

    /// Renames in every file that has not been renamed yet: one that has begins with other bytes.
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
        // The ledger first: until it is renamed, events that are added get ids that are to be
        // others'.
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
                    // Saved by a person meanwhile, or appended to: it is read again.
                    if !matches!(renamed, Err(StoreError::Moved { .. })) {
                        break;
                    }
                }
                renamed?;
            }
        }
        Ok(self.store.remove_note(&note).await?)
    }

    /// What must hold after a merge: every archived line once, pages that take up everything, and a
    /// ledger that counts as whole.
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
            done.push(format!("took out of {document} what stands in another archive too"));
        }
        if both {
            let mut checkpoint = self.checkpoint().await?;
            // Theirs may stand before the last that our pages took up.
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

    /// Settles a merge that git alone has made.
    pub(crate) async fn settle_foreign_merge(&self) -> Result<Vec<String>> {
        let Some(merge) = self.foreign_merge().await? else { return Ok(Vec::new()) };
        let mut done = self.settle_merge(true).await?;
        let here = Here { settled: Some(merge), ..self.here().await?.unwrap_or_default() };
        self.keep_here(&here).await?;
        self.keep_state(&format!("{SETTLED} that git made alone"), &mut Secrets::new()).await?;
        done.push("settled a merge that git made alone".into());
        Ok(done)
    }

    /// The last merge that git alone has made and that nobody has settled here.
    pub(crate) async fn foreign_merge(&self) -> Result<Option<String>> {
        let merge = self.history.foreign_merge().await.unwrap_or_default();
        let settled = self.here().await?.and_then(|here| here.settled);
        Ok(merge.filter(|merge| settled.as_ref() != Some(merge)))
    }

    /// Reads the tombstones again, whatever is known of them.
    async fn reload_tombstones(&self) -> Result<()> {
        let text = self.store.document(&path(layout::FORGOTTEN)?).await?;
        let stones = Tombstones::read(text.as_deref().unwrap_or_default());
        let read = (ContentVersion::of(text.as_deref()), std::sync::Arc::new(stones));
        *self.stones.write().unwrap_or_else(std::sync::PoisonError::into_inner) = read;
        Ok(())
    }
}

fn no_numbers_left() -> Error {
    Error::TooMuch("a day has no numbers left for the events of both machines".into())
}

/// The texts that hold events.
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
            "Each is as it was here; `git show {name}:FILE` is theirs. Put them together, `git add FILE`, and `icecore merge` goes on; `git merge --abort` takes it back"
        )
    } else {
        "Nothing was changed".into()
    };
    StoreError::Unsettled(format!("{count} for you to settle:\n  {}\n{next}", told.join("\n  ")))
        .into()
}
