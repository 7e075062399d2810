//! A store that fails after a number of writes, as if the process had died there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use icecore_domain::calendar::Days;
use icecore_domain::event::{Draft, Event};
use icecore_domain::forget::Scrub;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::LineFault;
use icecore_domain::ledger::conflict::Claim;
use icecore_domain::ledger::integrity::Finding;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::rank::corpus::Corpus;
use icecore_domain::rank::posting::Posting;
use icecore_domain::rank::vector::{Packed, Signs};
use icecore_domain::record::{BadLine, Digest, Key, Record, SessionStat};
use icecore_domain::secrets::MarkerKey;
use icecore_domain::summary::{Head, Summary, SummaryQuery};
use jiff::civil::Date;

use crate::passages::{Embedded, Passages, Placed, TakenIn};
use crate::{
    Added, Claimed, ContentVersion, Count, Error, Found, Ground, LedgerText, Looked, Position,
    Progress, Replacement, Result, Scrubbed, Stamp, Store, Weight,
};

/// Lets the first `n` writes through and fails every later one. An operation that is stopped at
/// each of its writes in turn and run again must have the same result as one that was never
/// stopped.
pub struct StopAfter<S> {
    inner: S,
    left: AtomicUsize,
    allowed: usize,
    denied: Option<DocPath>,
}

impl<S> StopAfter<S> {
    /// Stops after `writes` writes.
    pub fn new(inner: S, writes: usize) -> Self {
        Self { inner, left: AtomicUsize::new(writes), allowed: writes, denied: None }
    }

    /// Denies writes to this document, like missing permissions.
    #[must_use]
    pub fn denying(self, path: DocPath) -> Self {
        Self { denied: Some(path), ..self }
    }

    fn write(&self) -> Result<()> {
        let taken =
            self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        taken.map(|_| ()).map_err(|_| Error::Stopped(self.allowed + 1))
    }
}

/// Writes of derived data are not counted.
#[async_trait]
impl<S: Store> Passages for StopAfter<S> {
    async fn take_in(&self, anew: bool, progress: Progress<'_>) -> Result<TakenIn> {
        self.inner.take_in(anew, progress).await
    }

    async fn corpus(&self) -> Result<Arc<Corpus>> {
        self.inner.corpus().await
    }

    async fn postings(&self, terms: &[String]) -> Result<Vec<Vec<Posting>>> {
        self.inner.postings(terms).await
    }

    async fn terms_with(&self, part: &str, most: usize) -> Result<Vec<String>> {
        self.inner.terms_with(part, most).await
    }

    async fn passages(&self, numbers: &[u32]) -> Result<Vec<Option<Placed>>> {
        self.inner.passages(numbers).await
    }

    async fn passage(&self, key: u64) -> Result<Option<u32>> {
        self.inner.passage(key).await
    }

    async fn groups_of(&self, conversation: &str) -> Result<Vec<u32>> {
        self.inner.groups_of(conversation).await
    }

    async fn voices(&self) -> Result<Vec<(u16, String)>> {
        self.inner.voices().await
    }

    async fn vectors(&self, numbers: &[u32]) -> Result<Vec<Option<Packed>>> {
        self.inner.vectors(numbers).await
    }

    async fn signs(&self) -> Result<Arc<Vec<Signs>>> {
        self.inner.signs().await
    }

    async fn keep_vectors(&self, vectors: &[(u32, Packed)]) -> Result<()> {
        self.inner.keep_vectors(vectors).await
    }

    async fn without_vector(&self, most: usize) -> Result<Vec<u32>> {
        self.inner.without_vector(most).await
    }

    async fn embedded(&self) -> Result<Embedded> {
        self.inner.embedded().await
    }
}

#[async_trait]
impl<S: Store> Store for StopAfter<S> {
    async fn append(&self, drafts: Vec<Draft>, after: Option<Position>) -> Result<Vec<Event>> {
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

    async fn archived(&self, which: &EventQuery) -> Result<Vec<Event>> {
        self.inner.archived(which).await
    }

    async fn tied(&self, ids: &[EventId], about: &[&str]) -> Result<Vec<Event>> {
        self.inner.tied(ids, about).await
    }

    async fn entities(&self) -> Result<Vec<String>> {
        self.inner.entities().await
    }

    async fn events(&self, which: &EventQuery) -> Result<Found> {
        self.inner.events(which).await
    }

    async fn position(&self) -> Result<Position> {
        self.inner.position().await
    }

    async fn tally(&self) -> Result<Vec<Count>> {
        self.inner.tally().await
    }

    async fn contested(&self) -> Result<Vec<(EventId, Claim)>> {
        self.inner.contested().await
    }

    async fn faults(&self) -> Result<Vec<LineFault>> {
        self.inner.faults().await
    }

    async fn lost(&self) -> Result<Vec<EventId>> {
        self.inner.lost().await
    }

    async fn set_aside(&self, from: &DocPath, at: u64, bytes: &[u8]) -> Result<String> {
        self.write()?;
        self.inner.set_aside(from, at, bytes).await
    }

    async fn document(&self, path: &DocPath) -> Result<Option<Vec<u8>>> {
        self.inner.document(path).await
    }

    async fn length(&self, path: &DocPath) -> Result<u64> {
        self.inner.length(path).await
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

    async fn swap(&self, path: &DocPath, bytes: &[u8], from: ContentVersion) -> Result<()> {
        self.write()?;
        self.inner.swap(path, bytes, from).await
    }

    async fn swap_many(&self, replacements: &[Replacement]) -> Result<Vec<DocPath>> {
        // One by one, so that a stop can fall between any two.
        let mut changed = Vec::new();
        for one in replacements {
            self.write()?;
            if self.denied.as_ref() == Some(&one.path) {
                return Err(Error::Denied { what: "writing", path: one.path.as_str().into() });
            }
            changed.extend(self.inner.swap_many(std::slice::from_ref(one)).await?);
        }
        Ok(changed)
    }

    async fn grow(&self, path: &DocPath, bytes: &[u8], from: ContentVersion) -> Result<()> {
        self.write()?;
        self.inner.grow(path, bytes, from).await
    }

    async fn extend(&self, path: &DocPath, bytes: &[u8]) -> Result<()> {
        self.write()?;
        self.inner.extend(path, bytes).await
    }

    async fn remove_unchanged(&self, path: &DocPath, from: ContentVersion) -> Result<()> {
        self.write()?;
        self.inner.remove_unchanged(path, from).await
    }

    async fn remove(&self, path: &DocPath) -> Result<()> {
        self.write()?;
        self.inner.remove(path).await
    }

    async fn remove_folder(&self, path: &DocPath) -> Result<()> {
        self.write()?;
        self.inner.remove_folder(path).await
    }

    async fn documents(&self, under: &str) -> Result<Vec<DocPath>> {
        self.inner.documents(under).await
    }

    async fn sizes(&self, under: &str) -> Result<Vec<(DocPath, u64)>> {
        self.inner.sizes(under).await
    }

    async fn looks(&self, under: &str) -> Result<Vec<Looked>> {
        self.inner.looks(under).await
    }

    async fn stamps(&self, paths: &[DocPath]) -> Result<Vec<Option<Stamp>>> {
        self.inner.stamps(paths).await
    }

    async fn weights(&self) -> Result<Vec<Weight>> {
        self.inner.weights().await
    }

    async fn tail(&self, path: &DocPath, bytes: u64) -> Result<(Vec<u8>, bool)> {
        self.inner.tail(path, bytes).await
    }

    async fn add_records(&self, records: Vec<Record>) -> Result<Added> {
        self.write()?;
        self.inner.add_records(records).await
    }

    async fn records(&self, days: Days) -> Result<Vec<Record>> {
        self.inner.records(days).await
    }

    async fn last_said(&self, conversation: &str, most: usize) -> Result<Vec<Record>> {
        self.inner.last_said(conversation, most).await
    }

    async fn said_in(&self, conversation: &str, days: Days) -> Result<Digest> {
        self.inner.said_in(conversation, days).await
    }

    async fn forget_records(&self, days: Days, conversation: &str) -> Result<usize> {
        self.write()?;
        self.inner.forget_records(days, conversation).await
    }

    async fn scrub(&self, scrub: &Scrub, dry: bool) -> Result<Vec<Scrubbed>> {
        if !dry {
            self.write()?;
        }
        self.inner.scrub(scrub, dry).await
    }

    async fn sessions(&self, days: Option<Days>) -> Result<Vec<SessionStat>> {
        self.inner.sessions(days).await
    }

    async fn record_days(&self) -> Result<Vec<Date>> {
        self.inner.record_days().await
    }

    async fn bad_records(&self) -> Result<Vec<(DocPath, BadLine)>> {
        self.inner.bad_records().await
    }

    async fn add_summaries(
        &self,
        summaries: &[Summary],
        after: Option<Position>,
    ) -> Result<Position> {
        self.write()?;
        self.inner.add_summaries(summaries, after).await
    }

    async fn heads(&self, which: &SummaryQuery) -> Result<(Vec<Head>, Position)> {
        self.inner.heads(which).await
    }

    async fn summaries(&self, which: &SummaryQuery) -> Result<Vec<Summary>> {
        self.inner.summaries(which).await
    }

    async fn event_days(&self) -> Result<Vec<(Date, usize)>> {
        self.inner.event_days().await
    }

    async fn answer(&self, question: Hash) -> Result<Option<Vec<u8>>> {
        self.inner.answer(question).await
    }

    async fn keep_answer(&self, question: Hash, answer: &[u8]) -> Result<()> {
        self.write()?;
        self.inner.keep_answer(question, answer).await
    }

    async fn known(&self, keys: &[Key]) -> Result<Vec<bool>> {
        self.inner.known(keys).await
    }

    async fn note(&self, name: &DocPath) -> Result<Option<Vec<u8>>> {
        self.inner.note(name).await
    }

    async fn put_note(&self, name: &DocPath, bytes: &[u8]) -> Result<()> {
        self.write()?;
        self.inner.put_note(name, bytes).await
    }

    async fn add_note(
        &self,
        name: &DocPath,
        line: &str,
        most_bytes: u64,
        flush: bool,
    ) -> Result<()> {
        self.write()?;
        self.inner.add_note(name, line, most_bytes, flush).await
    }

    async fn notes(&self, folder: &DocPath) -> Result<Vec<(DocPath, i64)>> {
        self.inner.notes(folder).await
    }

    async fn remove_note(&self, name: &DocPath) -> Result<()> {
        self.write()?;
        self.inner.remove_note(name).await
    }

    async fn marker_key(&self) -> Result<Option<MarkerKey>> {
        self.inner.marker_key().await
    }

    async fn set_marker_key(&self, key: &MarkerKey, replace: bool) -> Result<MarkerKey> {
        self.write()?;
        self.inner.set_marker_key(key, replace).await
    }

    async fn begin_filling(&self) -> Result<Ground> {
        self.write()?;
        self.inner.begin_filling().await
    }

    async fn end_filling(&self) -> Result<()> {
        self.write()?;
        self.inner.end_filling().await
    }

    async fn stop_filling(&self) -> Result<()> {
        self.inner.stop_filling().await
    }

    async fn claim(&self, work: &str) -> Result<Option<Claimed>> {
        self.inner.claim(work).await
    }

    async fn unseen(&self, paths: &[DocPath]) -> Result<Vec<(DocPath, Stamp)>> {
        self.inner.unseen(paths).await
    }

    async fn gone(&self, under: &str) -> Result<Vec<DocPath>> {
        self.inner.gone(under).await
    }

    async fn see(&self, seen: &[(DocPath, Stamp)]) -> Result<()> {
        self.write()?;
        self.inner.see(seen).await
    }

    async fn inspect(&self) -> Result<Vec<Finding>> {
        self.inner.inspect().await
    }

    async fn rebuild(&self, progress: Progress<'_>) -> Result<usize> {
        self.write()?;
        self.inner.rebuild(progress).await
    }

    async fn mended(&self) -> Vec<String> {
        self.inner.mended().await
    }

    fn order(&self) -> Option<&dyn crate::Order> {
        self.inner.order()
    }
}
