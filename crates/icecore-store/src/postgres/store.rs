//! Implements [`Store`] for a space by delegating to the modules of this backend.

use async_trait::async_trait;
use icecore_domain::calendar::Days;
use icecore_domain::event::{Event, EventDraft};
use icecore_domain::forget::Scrub;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::LineFault;
use icecore_domain::ledger::conflict::Claim;
use icecore_domain::ledger::integrity::IntegrityFinding;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::record::{BadRecordLine, Record, RecordKey, RecordSetDigest, SessionStats};
use icecore_domain::secrets::MarkerKey;
use icecore_domain::summary::{Summary, SummaryHead, SummaryQuery};
use jiff::civil::Date;

use super::Space;
use crate::{
    AddReport, ContentVersion, DiskUsage, DocumentStat, EventSelection, Lease, LedgerText,
    MARKER_KEY, Position, Progress, Replacement, RestoreTarget, Result, ScrubbedFile, Stamp,
    StatementCount, Store,
};

#[async_trait]
impl Store for Space {
    async fn append(&self, drafts: Vec<EventDraft>, after: Option<Position>) -> Result<Vec<Event>> {
        self.append_drafts(drafts, after).await
    }

    async fn append_lines(&self, lines: &[u8]) -> Result<()> {
        self.append_ledger_lines(lines).await
    }

    async fn ledger(&self) -> Result<LedgerText> {
        self.read_ledger_text().await
    }

    async fn replace_ledger(&self, text: &[u8], at: Position) -> Result<()> {
        self.swap_ledger(text, at).await
    }

    async fn archive(
        &self,
        archives: &[(DocPath, Vec<u8>)],
        ledger: &[u8],
        at: Position,
    ) -> Result<()> {
        self.archive_lines(archives, ledger, at).await
    }

    async fn archived_events(&self, which: &EventQuery) -> Result<Vec<Event>> {
        self.query_archived_events(which).await
    }

    async fn linked_events(&self, ids: &[EventId], about: &[&str]) -> Result<Vec<Event>> {
        self.query_linked_events(ids, about).await
    }

    async fn entities(&self) -> Result<Vec<String>> {
        self.list_entities().await
    }

    async fn events(&self, which: &EventQuery) -> Result<EventSelection> {
        self.query_events(which).await
    }

    async fn position(&self) -> Result<Position> {
        self.read_position().await
    }

    async fn count_statements(&self) -> Result<Vec<StatementCount>> {
        self.query_counts().await
    }

    async fn contested_claims(&self) -> Result<Vec<(EventId, Claim)>> {
        self.query_contested_claims().await
    }

    async fn line_faults(&self) -> Result<Vec<LineFault>> {
        self.query_faults().await
    }

    async fn lost_events(&self) -> Result<Vec<EventId>> {
        // No other program can change the ledger, so nothing is ever lost.
        Ok(Vec::new())
    }

    async fn quarantine(&self, from: &DocPath, at: u64, bytes: &[u8]) -> Result<String> {
        self.write_quarantine(from, at, bytes).await
    }

    async fn document(&self, path: &DocPath) -> Result<Option<Vec<u8>>> {
        let tx = self.begin_reading().await?;
        let found = self.read_document(&tx, path).await?;
        tx.commit().await?;
        Ok(found.map(|(bytes, _)| bytes))
    }

    async fn document_len(&self, path: &DocPath) -> Result<u64> {
        let tx = self.begin_reading().await?;
        let found = self.document_meta(&tx, path).await?;
        tx.commit().await?;
        Ok(found.map_or(0, |look| look.length))
    }

    async fn put(&self, path: &DocPath, bytes: &[u8]) -> Result<()> {
        let tx = self.begin().await?;
        self.write_document(&tx, path, bytes).await?;
        self.derive_replaced(&tx, path, bytes).await?;
        tx.commit().await
    }

    async fn put_many(&self, documents: &[(DocPath, Vec<u8>)]) -> Result<()> {
        let tx = self.begin().await?;
        // In one order, to prevent deadlocks between writers of the same documents.
        let mut sorted: Vec<&(DocPath, Vec<u8>)> = documents.iter().collect();
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        for (path, bytes) in sorted {
            self.write_document(&tx, path, bytes).await?;
            self.derive_replaced(&tx, path, bytes).await?;
        }
        tx.commit().await
    }

    async fn compare_and_swap(
        &self,
        path: &DocPath,
        bytes: &[u8],
        from: ContentVersion,
    ) -> Result<()> {
        let tx = self.begin().await?;
        self.lock_unchanged(&tx, path, from).await?;
        self.write_document(&tx, path, bytes).await?;
        self.derive_replaced(&tx, path, bytes).await?;
        tx.commit().await
    }

    async fn compare_and_swap_many(&self, replacements: &[Replacement]) -> Result<Vec<DocPath>> {
        let tx = self.begin().await?;
        // In one order, to prevent deadlocks between writers of the same documents.
        let mut sorted: Vec<&Replacement> = replacements.iter().collect();
        sorted.sort_by(|a, b| a.path.cmp(&b.path));
        let mut changed = Vec::new();
        for Replacement { path, bytes, from } in sorted {
            let look = self.lock_document(&tx, path).await?;
            if self.content_version(&tx, path, look).await? != *from {
                if look.version == 0 {
                    // It was created only for the lock.
                    self.delete_document(&tx, path).await?;
                }
                changed.push(path.clone());
                continue;
            }
            self.write_document(&tx, path, bytes).await?;
            self.derive_replaced(&tx, path, bytes).await?;
        }
        tx.commit().await?;
        Ok(changed)
    }

    async fn append_if_unchanged(
        &self,
        path: &DocPath,
        bytes: &[u8],
        from: ContentVersion,
    ) -> Result<()> {
        let tx = self.begin().await?;
        let before = self.lock_unchanged(&tx, path, from).await?;
        self.append_locked(&tx, path, before, bytes).await?;
        self.derive_appended(&tx, path, bytes).await?;
        tx.commit().await
    }

    async fn append_to_document(&self, path: &DocPath, bytes: &[u8]) -> Result<()> {
        let tx = self.begin().await?;
        let before = self.lock_document(&tx, path).await?;
        self.append_locked(&tx, path, before, bytes).await?;
        self.derive_appended(&tx, path, bytes).await?;
        tx.commit().await
    }

    async fn remove_unchanged(&self, path: &DocPath, from: ContentVersion) -> Result<()> {
        let tx = self.begin().await?;
        self.lock_unchanged(&tx, path, from).await?;
        self.delete_document(&tx, path).await?;
        self.derive_replaced(&tx, path, b"").await?;
        tx.commit().await
    }

    async fn remove(&self, path: &DocPath) -> Result<()> {
        let tx = self.begin().await?;
        self.delete_document(&tx, path).await?;
        self.derive_replaced(&tx, path, b"").await?;
        tx.commit().await
    }

    async fn remove_empty_folder(&self, _path: &DocPath) -> Result<()> {
        // Folders exist only as prefixes of paths.
        Ok(())
    }

    async fn documents(&self, under: &str) -> Result<Vec<DocPath>> {
        Ok(self.paths_below(under).await?.into_iter().map(|(path, _)| path).collect())
    }

    async fn document_sizes(&self, under: &str) -> Result<Vec<(DocPath, u64)>> {
        self.paths_below(under).await
    }

    async fn list(&self, under: &str) -> Result<Vec<DocumentStat>> {
        self.stats_below(under).await
    }

    async fn stamps(&self, paths: &[DocPath]) -> Result<Vec<Option<Stamp>>> {
        self.query_stamps(paths).await
    }

    async fn disk_usage(&self) -> Result<Vec<DiskUsage>> {
        self.query_disk_usage().await
    }

    async fn read_tail(&self, path: &DocPath, bytes: u64) -> Result<(Vec<u8>, bool)> {
        // Both answers come from one state of the document, whatever is written meanwhile.
        let tx = self.begin_snapshot_read().await?;
        let length = match self.document_meta(&tx, path).await? {
            Some(look) => look.length,
            None => 0,
        };
        let from = length.saturating_sub(bytes);
        let mut text = self.read_from(&tx, path, from).await?;
        tx.commit().await?;
        if from == 0 {
            return Ok((text, true));
        }
        let whole = memchr::memchr(b'\n', &text).map_or(text.len(), |at| at + 1);
        Ok((text.split_off(whole), false))
    }

    async fn add_records(&self, records: Vec<Record>) -> Result<AddReport> {
        self.write_records(records, None).await
    }

    async fn contains_records(&self, keys: &[RecordKey]) -> Result<Vec<bool>> {
        self.query_known_records(keys).await
    }

    async fn records(&self, days: Days) -> Result<Vec<Record>> {
        self.read_days(days).await
    }

    async fn recent_records(&self, conversation: &str, most: usize) -> Result<Vec<Record>> {
        self.read_recent_records(conversation, most).await
    }

    async fn conversation_digest(&self, conversation: &str, days: Days) -> Result<RecordSetDigest> {
        self.read_digest(conversation, days).await
    }

    async fn forget_records(&self, days: Days, conversation: &str) -> Result<usize> {
        self.remove_records(days, conversation).await
    }

    async fn scrub(&self, scrub: &Scrub, dry: bool) -> Result<Vec<ScrubbedFile>> {
        self.scrub_documents(scrub, dry).await
    }

    async fn sessions(&self, days: Option<Days>) -> Result<Vec<SessionStats>> {
        self.query_sessions(days).await
    }

    async fn record_days(&self) -> Result<Vec<Date>> {
        self.list_record_days().await
    }

    async fn bad_records(&self) -> Result<Vec<(DocPath, BadRecordLine)>> {
        self.invalid_record_lines().await
    }

    async fn add_summaries(
        &self,
        summaries: &[Summary],
        after: Option<Position>,
    ) -> Result<Position> {
        self.write_summaries(summaries, after).await
    }

    async fn summary_heads(&self, which: &SummaryQuery) -> Result<(Vec<SummaryHead>, Position)> {
        self.query_heads(which).await
    }

    async fn summaries(&self, which: &SummaryQuery) -> Result<Vec<Summary>> {
        self.query_summaries(which).await
    }

    async fn event_days(&self) -> Result<Vec<(Date, usize)>> {
        self.list_event_days().await
    }

    async fn cached_answer(&self, question: Hash) -> Result<Option<Vec<u8>>> {
        self.read_answer(question).await
    }

    async fn cache_answer(&self, question: Hash, answer: &[u8]) -> Result<()> {
        self.write_answer(question, answer).await
    }

    async fn note(&self, name: &DocPath) -> Result<Option<Vec<u8>>> {
        self.read_note(name).await
    }

    async fn put_note(&self, name: &DocPath, bytes: &[u8]) -> Result<()> {
        self.write_note(name, bytes).await
    }

    async fn append_note(
        &self,
        name: &DocPath,
        line: &str,
        most_bytes: u64,
        _flush: bool,
    ) -> Result<()> {
        self.append_note_line(name, line, most_bytes).await
    }

    async fn notes(&self, folder: &DocPath) -> Result<Vec<(DocPath, i64)>> {
        self.list_notes(folder).await
    }

    async fn remove_note(&self, name: &DocPath) -> Result<()> {
        self.delete_note(name).await
    }

    async fn marker_key(&self) -> Result<Option<MarkerKey>> {
        let kept = self.read_note(&MARKER_KEY.parse()?).await?;
        Ok(kept.and_then(|text| MarkerKey::from_hex(&text)))
    }

    async fn set_marker_key(&self, key: &MarkerKey, replace: bool) -> Result<MarkerKey> {
        self.write_marker_key(key, replace).await
    }

    async fn begin_restore(&self) -> Result<RestoreTarget> {
        self.claim_for_restore().await
    }

    async fn finish_restore(&self) -> Result<()> {
        self.complete_restore().await
    }

    async fn abort_restore(&self) -> Result<()> {
        self.release_restore().await
    }

    async fn acquire_lease(&self, work: &str) -> Result<Option<Lease>> {
        self.acquire_job_lease(work).await
    }

    async fn changed_since_seen(&self, paths: &[DocPath]) -> Result<Vec<(DocPath, Stamp)>> {
        self.query_unseen(paths).await
    }

    async fn removed_since_seen(&self, under: &str) -> Result<Vec<DocPath>> {
        self.take_removed(under).await
    }

    async fn mark_seen(&self, seen: &[(DocPath, Stamp)]) -> Result<()> {
        self.write_seen(seen).await
    }

    async fn inspect(&self) -> Result<Vec<IntegrityFinding>> {
        self.check_consistency().await
    }

    async fn rebuild(&self, progress: Progress<'_>) -> Result<usize> {
        self.rebuild_derived(progress).await
    }

    async fn opening_repairs(&self) -> Vec<String> {
        Vec::new()
    }

    fn turn_lease(&self) -> Option<&dyn crate::TurnLease> {
        Some(self)
    }
}
