//! Checks and rebuilds the index of a vault, and marks an unfinished restore.

use std::collections::HashMap;
use std::path::Path;
use std::sync::PoisonError;

use async_trait::async_trait;
use icecore_domain::forget::Scrub;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::integrity::{IntegrityCheck, IntegrityFinding};

use super::documents::CONVERSATION_LOCK_COUNT;
use super::index::{self, CurrentLedger, Index, SqlResult};
use super::vault_fs::MAX_WRITE_ATTEMPTS;
use super::{IndexHandle, Vault};
use crate::{
    DocumentCatalog, Error, ErrorKind, Maintenance, NoteStore, Progress, RestoreTarget, Result,
    ScrubbedFile,
};

/// The note that marks an unfinished restore.
const RESTORE_NOTE: &str = "filling";

#[async_trait]
impl Maintenance for Vault {
    async fn scrub(&self, scrub: &Scrub, dry: bool) -> Result<Vec<ScrubbedFile>> {
        let held = if dry { None } else { Some(self.lock_and_repair()?) };
        // Writers to a conversation hold only its own lock.
        let mut rooms = Vec::new();
        for share in (0..CONVERSATION_LOCK_COUNT).filter(|_| !dry) {
            rooms.push(self.fs.lock_named(&format!("conversations-{share}.lock"))?);
        }
        let mut found = Vec::new();
        for (path, place) in self.fs.all_files()? {
            let mut scrubbed = self.scrub_file(&path, &place, scrub, held.as_ref());
            for _ in 1..MAX_WRITE_ATTEMPTS {
                // A person or another program saved the file meanwhile: read it again.
                if !matches!(scrubbed, Err(Error { kind: ErrorKind::Conflict, .. })) {
                    break;
                }
                scrubbed = self.scrub_file(&path, &place, scrub, held.as_ref());
            }
            found.extend(scrubbed?);
        }
        if held.is_some() {
            self.delete_databases();
        }
        Ok(found)
    }

    async fn inspect(&self) -> Result<Vec<IntegrityFinding>> {
        let mut found = Vec::new();
        let say = |what: String| IntegrityFinding::failure(IntegrityCheck::Index, what);
        let path = self.index_path();
        let existed = path.exists();
        let current = self.query_index(|index| index.find_damage())?;
        match current {
            _ if !existed => found.push(IntegrityFinding::warning(
                IntegrityCheck::Index,
                "there was no index; it was built from the files",
            )),
            None => {
                let why = match &*self.index_handle() {
                    IndexHandle::Unusable(why) => why.clone(),
                    _ => "rebuilding it failed".into(),
                };
                found.push(say(format!(
                    "the index cannot be used: {why}. Everything works without it, only slower"
                )));
            }
            Some(Some(wrong)) => found.push(say(format!(
                "the index is damaged: {wrong}. Rebuild it with `icecore vault reindex`"
            ))),
            Some(None) => {}
        }
        if let Some(wrong) = self.check_search_index()? {
            found.push(say(format!(
                "the search index is damaged: {wrong}. Rebuild it with `icecore vault reindex`"
            )));
        }
        // Builds an index from the files in a temporary file and compares row by row. The lock
        // allows one comparison at a time, so that the file of a dead one can be overwritten;
        // writers go on meanwhile.
        let _alone = self.fs.lock_named("check.lock")?;
        let temporary = self.fs.private("check.db");
        let compared = match &*self.index_handle() {
            IndexHandle::Open(index) => self.compare_index(index, &temporary)?,
            IndexHandle::Unopened | IndexHandle::Unusable(_) => Ok(None),
        };
        self.fs.remove_index(&temporary);
        match compared {
            Ok(None) => {}
            Ok(Some(difference)) => found.push(say(format!("the index differs from the files ({difference}). Rebuild it with `icecore vault reindex`"))),
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => return Err(Error::disk_full(temporary)),
            Err(error) => {
                found.push(say(format!("the index could not be compared with the files: {error}. Rebuild it with `icecore vault reindex`")))
            }
        }
        Ok(found)
    }

    async fn rebuild(&self, progress: Progress<'_>) -> Result<usize> {
        let held = self.lock_and_repair()?;
        let mut handle = self.index_handle();
        *handle = IndexHandle::Unopened;
        self.fs.make_folder(&self.fs.private(""))?;
        let unusable = |error: rusqlite::Error| Error::index(error);
        // A sound file is refilled in one transaction, so that other processes never see half of
        // it; only a broken one is deleted.
        let path = self.index_path();
        let sound = Index::open(&self.fs, &path)
            .ok()
            .filter(|index| index.find_damage().is_ok_and(|wrong| wrong.is_none()));
        let mut index = match sound {
            Some(index) => index,
            None => Index::recreate(&self.fs, &path).map_err(unusable)?,
        };
        let look = self.fs.stat(&self.ledger)?;
        let text = self.fs.read(&self.ledger)?.unwrap_or_default();
        let current = CurrentLedger {
            text,
            look,
            spent: self.spent_ids()?,
            archives: self.current_archives()?,
        };
        let events = index.rebuild(&current, progress).map_err(unusable)?;
        let mut files = self.record_files()?;
        files.push(layout::SUMMARIES.parse()?);
        files.extend(current.archives.iter().map(|(path, _)| path.clone()));
        let unread = std::cell::RefCell::new(None);
        let read = |path: &DocPath| {
            self.current_file(path).map_err(|error| {
                *unread.borrow_mut() = Some(error);
                rusqlite::Error::ExecuteReturnedResults
            })
        };
        let taken = index.reindex_files(&files, read, progress);
        if let Some(error) = unread.into_inner() {
            return Err(error);
        }
        // If another process rebuilt the index meanwhile, the next query indexes what is missing.
        if let Err(error) = taken
            && !index::is_replaced(&error)
        {
            return Err(unusable(error));
        }
        *handle = IndexHandle::Open(Box::new(index));
        drop(held);
        Ok(events)
    }

    async fn opening_repairs(&self) -> Vec<String> {
        self.mended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn begin_restore(&self) -> Result<RestoreTarget> {
        let note: DocPath = RESTORE_NOTE.parse()?;
        let ground = match self.note(&note).await? {
            Some(_) => RestoreTarget::Unfinished,
            None => RestoreTarget::from_documents(&self.list("").await?),
        };
        if ground == RestoreTarget::New {
            self.put_note(&note, b"begun\n").await?;
        }
        Ok(ground)
    }

    async fn finish_restore(&self) -> Result<()> {
        self.remove_note(&RESTORE_NOTE.parse()?).await
    }

    async fn abort_restore(&self) -> Result<()> {
        // The note stays: it marks the memory as incomplete.
        Ok(())
    }
}

impl Vault {
    /// Compares the index with one built from the part of the ledger that it covers.
    pub(super) fn compare_index(
        &self,
        index: &Index,
        temporary: &Path,
    ) -> Result<SqlResult<Option<String>>> {
        let mut unread = None;
        let compared = index.in_snapshot(|covered_bytes| {
            // Read after the state of the index was fixed: the ledger has at least what the index
            // covers.
            let text = match self.fs.read(&self.ledger) {
                Ok(text) => text.unwrap_or_default(),
                Err(error) => {
                    unread = Some(error);
                    return Ok(None);
                }
            };
            let covered = usize::try_from(covered_bytes).unwrap_or(usize::MAX).min(text.len());
            let mut fresh = Index::temporary(&self.fs, temporary, &text[..covered])?;
            match self.fill_for_comparison(&index.indexed_files()?, &mut fresh) {
                Ok(filled) => index.first_difference(&fresh, filled?),
                Err(error) => {
                    unread = Some(error);
                    Ok(None)
                }
            }
        });
        unread.map_or(Ok(compared), Err)
    }

    /// Fills an index for a comparison from the same files as the vault's own; false if one of them
    /// changed since.
    pub(super) fn fill_for_comparison(
        &self,
        taken: &HashMap<String, String>,
        fresh: &mut Index,
    ) -> Result<SqlResult<bool>> {
        let mut paths: Vec<DocPath> = taken.keys().filter_map(|path| path.parse().ok()).collect();
        paths.sort();
        for path in paths {
            let now = self.current_file(&path)?;
            if now.look.map(|look| look.stamp()).as_ref() != taken.get(path.as_str()) {
                return Ok(Ok(false));
            }
            if let Err(error) = fresh.index_file(&path, || Ok(now)) {
                return Ok(Err(error));
            }
        }
        Ok(Ok(true))
    }
}
