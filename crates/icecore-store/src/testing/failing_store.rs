//! A store that fails after a number of writes, as if the process had died there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
use icecore_domain::rank::corpus::Corpus;
use icecore_domain::rank::posting::Posting;
use icecore_domain::rank::vector::{PackedVector, SignVector};
use icecore_domain::record::{BadRecordLine, Record, RecordKey, RecordSetDigest, SessionStats};
use icecore_domain::secrets::MarkerKey;
use icecore_domain::summary::{Summary, SummaryHead, SummaryQuery};
use jiff::civil::Date;

use crate::{
    AddReport, ContentVersion, DiskUsage, DocumentCatalog, DocumentStat, DocumentStore,
    EmbeddingCoverage, Error, EventQueries, EventSelection, IndexReport, Lease, LeaseStore,
    LedgerStore, LedgerText, LocatedPassage, Maintenance, NoteStore, Position, Progress,
    RecordStore, Replacement, RestoreTarget, Result, ScrubbedFile, SearchIndex, Stamp,
    StatementCount, Store, SummaryStore, VectorIndex,
};

/// Lets the first `n` writes through and fails every later one. An operation that is stopped at
/// each of its writes in turn and run again must have the same result as one that was never
/// stopped.
pub struct FailingStore<S> {
    inner: S,
    left: AtomicUsize,
    allowed: usize,
    denied: Option<DocPath>,
}

impl<S> FailingStore<S> {
    /// Stops after `writes` writes.
    pub fn new(inner: S, writes: usize) -> Self {
        Self { inner, left: AtomicUsize::new(writes), allowed: writes, denied: None }
    }

    /// Denies writes to this document, like missing permissions.
    #[must_use]
    pub fn with_denied(self, path: DocPath) -> Self {
        Self { denied: Some(path), ..self }
    }

    fn write(&self) -> Result<()> {
        let taken =
            self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        taken.map(|_| ()).map_err(|_| Error::test_stop(self.allowed + 1))
    }
}

#[async_trait]
impl<S: Store> LedgerStore for FailingStore<S> {
    async fn append(&self, drafts: Vec<EventDraft>, after: Option<Position>) -> Result<Vec<Event>> {
        self.write()?;
        self.inner.append(drafts, after).await
    }

    async fn append_lines(&self, lines: &[u8]) -> Result<()> {
        self.write()?;
        self.inner.append_lines(lines).await
    }

    async fn ledger(&self) -> Result<LedgerText> {
        self.inner.ledger().await
    }

    async fn position(&self) -> Result<Position> {
        self.inner.position().await
    }

    async fn replace_ledger(&self, text: &[u8], at: Position) -> Result<()> {
        self.write()?;
        self.inner.replace_ledger(text, at).await
    }

    async fn archive(
        &self,
        archives: &[(DocPath, Vec<u8>)],
        ledger: &[u8],
        at: Position,
    ) -> Result<()> {
        self.write()?;
        self.inner.archive(archives, ledger, at).await
    }

    async fn line_faults(&self) -> Result<Vec<LineFault>> {
        self.inner.line_faults().await
    }

    async fn lost_events(&self) -> Result<Vec<EventId>> {
        self.inner.lost_events().await
    }

    async fn quarantine(&self, from: &DocPath, at: u64, bytes: &[u8]) -> Result<String> {
        self.write()?;
        self.inner.quarantine(from, at, bytes).await
    }
}

#[async_trait]
impl<S: Store> EventQueries for FailingStore<S> {
    async fn events(&self, which: &EventQuery) -> Result<EventSelection> {
        self.inner.events(which).await
    }

    async fn archived_events(&self, which: &EventQuery) -> Result<Vec<Event>> {
        self.inner.archived_events(which).await
    }

    async fn linked_events(&self, ids: &[EventId], about: &[&str]) -> Result<Vec<Event>> {
        self.inner.linked_events(ids, about).await
    }

    async fn entities(&self) -> Result<Vec<String>> {
        self.inner.entities().await
    }

    async fn event_days(&self) -> Result<Vec<(Date, usize)>> {
        self.inner.event_days().await
    }

    async fn count_statements(&self) -> Result<Vec<StatementCount>> {
        self.inner.count_statements().await
    }

    async fn contested_claims(&self) -> Result<Vec<(EventId, Claim)>> {
        self.inner.contested_claims().await
    }
}

#[async_trait]
impl<S: Store> DocumentStore for FailingStore<S> {
    async fn document(&self, path: &DocPath) -> Result<Option<Vec<u8>>> {
        self.inner.document(path).await
    }

    async fn read_tail(&self, path: &DocPath, bytes: u64) -> Result<(Vec<u8>, bool)> {
        self.inner.read_tail(path, bytes).await
    }

    async fn put(&self, path: &DocPath, bytes: &[u8]) -> Result<()> {
        self.write()?;
        self.inner.put(path, bytes).await
    }

    async fn put_many(&self, documents: &[(DocPath, Vec<u8>)]) -> Result<()> {
        // One by one, so that a stop can fall between any two.
        for (path, bytes) in documents {
            self.put(path, bytes).await?;
        }
        Ok(())
    }

    async fn compare_and_swap(
        &self,
        path: &DocPath,
        bytes: &[u8],
        from: ContentVersion,
    ) -> Result<()> {
        self.write()?;
        self.inner.compare_and_swap(path, bytes, from).await
    }

    async fn compare_and_swap_many(&self, replacements: &[Replacement]) -> Result<Vec<DocPath>> {
        // One by one, so that a stop can fall between any two.
        let mut changed = Vec::new();
        for one in replacements {
            self.write()?;
            if self.denied.as_ref() == Some(&one.path) {
                return Err(Error::permission_denied("writing", one.path.as_str().into()));
            }
            changed.extend(self.inner.compare_and_swap_many(std::slice::from_ref(one)).await?);
        }
        Ok(changed)
    }

    async fn append_to_document(&self, path: &DocPath, bytes: &[u8]) -> Result<()> {
        self.write()?;
        self.inner.append_to_document(path, bytes).await
    }

    async fn append_if_unchanged(
        &self,
        path: &DocPath,
        bytes: &[u8],
        from: ContentVersion,
    ) -> Result<()> {
        self.write()?;
        self.inner.append_if_unchanged(path, bytes, from).await
    }

    async fn remove(&self, path: &DocPath) -> Result<()> {
        self.write()?;
        self.inner.remove(path).await
    }

    async fn remove_unchanged(&self, path: &DocPath, from: ContentVersion) -> Result<()> {
        self.write()?;
        self.inner.remove_unchanged(path, from).await
    }

    async fn remove_empty_folder(&self, path: &DocPath) -> Result<()> {
        self.write()?;
        self.inner.remove_empty_folder(path).await
    }
}

#[async_trait]
impl<S: Store> DocumentCatalog for FailingStore<S> {
    async fn documents(&self, under: &str) -> Result<Vec<DocPath>> {
        self.inner.documents(under).await
    }

    async fn document_sizes(&self, under: &str) -> Result<Vec<(DocPath, u64)>> {
        self.inner.document_sizes(under).await
    }

    async fn list(&self, under: &str) -> Result<Vec<DocumentStat>> {
        self.inner.list(under).await
    }

    async fn document_len(&self, path: &DocPath) -> Result<u64> {
        self.inner.document_len(path).await
    }

    async fn stamps(&self, paths: &[DocPath]) -> Result<Vec<Option<Stamp>>> {
        self.inner.stamps(paths).await
    }

    async fn disk_usage(&self) -> Result<Vec<DiskUsage>> {
        self.inner.disk_usage().await
    }

    async fn changed_since_seen(&self, paths: &[DocPath]) -> Result<Vec<(DocPath, Stamp)>> {
        self.inner.changed_since_seen(paths).await
    }

    async fn removed_since_seen(&self, under: &str) -> Result<Vec<DocPath>> {
        self.inner.removed_since_seen(under).await
    }

    async fn mark_seen(&self, seen: &[(DocPath, Stamp)]) -> Result<()> {
        self.write()?;
        self.inner.mark_seen(seen).await
    }
}

#[async_trait]
impl<S: Store> RecordStore for FailingStore<S> {
    async fn add_records(&self, records: Vec<Record>) -> Result<AddReport> {
        self.write()?;
        self.inner.add_records(records).await
    }

    async fn contains_records(&self, keys: &[RecordKey]) -> Result<Vec<bool>> {
        self.inner.contains_records(keys).await
    }

    async fn records(&self, days: Days) -> Result<Vec<Record>> {
        self.inner.records(days).await
    }

    async fn recent_records(&self, conversation: &str, most: usize) -> Result<Vec<Record>> {
        self.inner.recent_records(conversation, most).await
    }

    async fn conversation_digest(&self, conversation: &str, days: Days) -> Result<RecordSetDigest> {
        self.inner.conversation_digest(conversation, days).await
    }

    async fn sessions(&self, days: Option<Days>) -> Result<Vec<SessionStats>> {
        self.inner.sessions(days).await
    }

    async fn record_days(&self) -> Result<Vec<Date>> {
        self.inner.record_days().await
    }

    async fn bad_records(&self) -> Result<Vec<(DocPath, BadRecordLine)>> {
        self.inner.bad_records().await
    }

    async fn forget_records(&self, days: Days, conversation: &str) -> Result<usize> {
        self.write()?;
        self.inner.forget_records(days, conversation).await
    }
}

#[async_trait]
impl<S: Store> SummaryStore for FailingStore<S> {
    async fn add_summaries(
        &self,
        summaries: &[Summary],
        after: Option<Position>,
    ) -> Result<Position> {
        self.write()?;
        self.inner.add_summaries(summaries, after).await
    }

    async fn summary_heads(&self, which: &SummaryQuery) -> Result<(Vec<SummaryHead>, Position)> {
        self.inner.summary_heads(which).await
    }

    async fn summaries(&self, which: &SummaryQuery) -> Result<Vec<Summary>> {
        self.inner.summaries(which).await
    }
}

#[async_trait]
impl<S: Store> NoteStore for FailingStore<S> {
    async fn note(&self, name: &DocPath) -> Result<Option<Vec<u8>>> {
        self.inner.note(name).await
    }

    async fn put_note(&self, name: &DocPath, bytes: &[u8]) -> Result<()> {
        self.write()?;
        self.inner.put_note(name, bytes).await
    }

    async fn append_note(
        &self,
        name: &DocPath,
        line: &str,
        most_bytes: u64,
        flush: bool,
    ) -> Result<()> {
        self.write()?;
        self.inner.append_note(name, line, most_bytes, flush).await
    }

    async fn notes(&self, folder: &DocPath) -> Result<Vec<(DocPath, i64)>> {
        self.inner.notes(folder).await
    }

    async fn remove_note(&self, name: &DocPath) -> Result<()> {
        self.write()?;
        self.inner.remove_note(name).await
    }

    async fn cached_answer(&self, question: Hash) -> Result<Option<Vec<u8>>> {
        self.inner.cached_answer(question).await
    }

    async fn cache_answer(&self, question: Hash, answer: &[u8]) -> Result<()> {
        self.write()?;
        self.inner.cache_answer(question, answer).await
    }

    async fn marker_key(&self) -> Result<Option<MarkerKey>> {
        self.inner.marker_key().await
    }

    async fn set_marker_key(&self, key: &MarkerKey, replace: bool) -> Result<MarkerKey> {
        self.write()?;
        self.inner.set_marker_key(key, replace).await
    }
}

#[async_trait]
impl<S: Store> LeaseStore for FailingStore<S> {
    async fn acquire_lease(&self, work: &str) -> Result<Option<Lease>> {
        self.inner.acquire_lease(work).await
    }

    fn turn_lease(&self) -> Option<&dyn crate::TurnLeases> {
        self.inner.turn_lease()
    }
}

#[async_trait]
impl<S: Store> Maintenance for FailingStore<S> {
    async fn scrub(&self, scrub: &Scrub, dry: bool) -> Result<Vec<ScrubbedFile>> {
        if !dry {
            self.write()?;
        }
        self.inner.scrub(scrub, dry).await
    }

    async fn inspect(&self) -> Result<Vec<IntegrityFinding>> {
        self.inner.inspect().await
    }

    async fn rebuild(&self, progress: Progress<'_>) -> Result<usize> {
        self.write()?;
        self.inner.rebuild(progress).await
    }

    async fn opening_repairs(&self) -> Vec<String> {
        self.inner.opening_repairs().await
    }

    async fn begin_restore(&self) -> Result<RestoreTarget> {
        self.write()?;
        self.inner.begin_restore().await
    }

    async fn finish_restore(&self) -> Result<()> {
        self.write()?;
        self.inner.finish_restore().await
    }

    async fn abort_restore(&self) -> Result<()> {
        self.inner.abort_restore().await
    }
}

/// Writes of derived data are not counted.
#[async_trait]
impl<S: Store> SearchIndex for FailingStore<S> {
    async fn update_index(&self, anew: bool, progress: Progress<'_>) -> Result<IndexReport> {
        self.inner.update_index(anew, progress).await
    }

    async fn corpus(&self) -> Result<Arc<Corpus>> {
        self.inner.corpus().await
    }

    async fn postings(&self, terms: &[String]) -> Result<Vec<Vec<Posting>>> {
        self.inner.postings(terms).await
    }

    async fn terms_containing(&self, part: &str, most: usize) -> Result<Vec<String>> {
        self.inner.terms_containing(part, most).await
    }

    async fn locate_passages(&self, numbers: &[u32]) -> Result<Vec<Option<LocatedPassage>>> {
        self.inner.locate_passages(numbers).await
    }

    async fn passage_number(&self, key: u64) -> Result<Option<u32>> {
        self.inner.passage_number(key).await
    }

    async fn conversation_groups(&self, conversation: &str) -> Result<Vec<u32>> {
        self.inner.conversation_groups(conversation).await
    }

    async fn speakers(&self) -> Result<Vec<(u16, String)>> {
        self.inner.speakers().await
    }
}

/// Writes of derived data are not counted.
#[async_trait]
impl<S: Store> VectorIndex for FailingStore<S> {
    async fn vectors(&self, numbers: &[u32]) -> Result<Vec<Option<PackedVector>>> {
        self.inner.vectors(numbers).await
    }

    async fn vector_signs(&self) -> Result<Arc<Vec<SignVector>>> {
        self.inner.vector_signs().await
    }

    async fn store_vectors(&self, vectors: &[(u32, PackedVector)]) -> Result<()> {
        self.inner.store_vectors(vectors).await
    }

    async fn passages_without_vector(&self, most: usize) -> Result<Vec<u32>> {
        self.inner.passages_without_vector(most).await
    }

    async fn embedding_coverage(&self) -> Result<EmbeddingCoverage> {
        self.inner.embedding_coverage().await
    }
}
