//! Implements [`Store`] for a space by delegating to the modules of this backend.

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
use icecore_domain::record::{BadLine, Digest, Key, Record, SessionStat};
use icecore_domain::secrets::MarkerKey;
use icecore_domain::summary::{Head, Summary, SummaryQuery};
use jiff::civil::Date;

use super::Space;
use crate::{
    Added, Claimed, ContentVersion, Count, Found, Ground, LedgerText, Looked, MARKER_KEY, Position,
    Progress, Replacement, Result, Scrubbed, Stamp, Store, Weight,
};

#[async_trait]
impl Store for Space {
    async fn append(&self, drafts: Vec<Draft>, after: Option<Position>) -> Result<Vec<Event>> {
        self.append_events(drafts, after).await
    }

    async fn append_lines(&self, lines: &[u8]) -> Result<()> {
        self.append_text(lines).await
    }

    async fn ledger(&self) -> Result<LedgerText> {
        self.ledger_text().await
    }

    async fn replace_ledger(&self, text: &[u8], at: Position) -> Result<()> {
        self.exchange_ledger(text, at).await
    }

    async fn archive(
        &self,
        archives: &[(DocPath, Vec<u8>)],
        ledger: &[u8],
        at: Position,
    ) -> Result<()> {
        self.move_to_archives(archives, ledger, at).await
    }

    async fn archived(&self, which: &EventQuery) -> Result<Vec<Event>> {
        self.archived_events(which).await
    }

    async fn tied(&self, ids: &[EventId], about: &[&str]) -> Result<Vec<Event>> {
        self.tied_events(ids, about).await
    }

    async fn entities(&self) -> Result<Vec<String>> {
        self.things().await
    }

    async fn events(&self, which: &EventQuery) -> Result<Found> {
        self.found(which).await
    }

    async fn position(&self) -> Result<Position> {
        self.ledger_position().await
    }

    async fn tally(&self) -> Result<Vec<Count>> {
        self.counts().await
    }

    async fn contested(&self) -> Result<Vec<(EventId, Claim)>> {
        self.contested_claims().await
    }

    async fn faults(&self) -> Result<Vec<LineFault>> {
        self.ledger_faults().await
    }

    async fn lost(&self) -> Result<Vec<EventId>> {
        // No other program can change the ledger, so nothing is ever lost.
        Ok(Vec::new())
    }

    async fn set_aside(&self, from: &DocPath, at: u64, bytes: &[u8]) -> Result<String> {
        self.put_aside(from, at, bytes).await
    }

    async fn document(&self, path: &DocPath) -> Result<Option<Vec<u8>>> {
        let tx = self.begin_reading().await?;
        let found = self.read(&tx, path).await?;
        tx.commit().await?;
        Ok(found.map(|(bytes, _)| bytes))
    }

    async fn length(&self, path: &DocPath) -> Result<u64> {
        let tx = self.begin_reading().await?;
        let found = self.look(&tx, path).await?;
        tx.commit().await?;
        Ok(found.map_or(0, |look| look.length))
    }

    async fn put(&self, path: &DocPath, bytes: &[u8]) -> Result<()> {
        let tx = self.begin().await?;
        self.replace(&tx, path, bytes).await?;
        self.derive(&tx, path, bytes).await?;
        tx.commit().await
    }

    async fn put_many(&self, documents: &[(DocPath, Vec<u8>)]) -> Result<()> {
        let tx = self.begin().await?;
        // In one order, to prevent deadlocks between writers of the same documents.
        let mut sorted: Vec<&(DocPath, Vec<u8>)> = documents.iter().collect();
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        for (path, bytes) in sorted {
            self.replace(&tx, path, bytes).await?;
            self.derive(&tx, path, bytes).await?;
        }
        tx.commit().await
    }

    async fn swap(&self, path: &DocPath, bytes: &[u8], from: ContentVersion) -> Result<()> {
        let tx = self.begin().await?;
        self.hold_unchanged(&tx, path, from).await?;
        self.replace(&tx, path, bytes).await?;
        self.derive(&tx, path, bytes).await?;
        tx.commit().await
    }

    async fn swap_many(&self, replacements: &[Replacement]) -> Result<Vec<DocPath>> {
        let tx = self.begin().await?;
        // In one order, to prevent deadlocks between writers of the same documents.
        let mut sorted: Vec<&Replacement> = replacements.iter().collect();
        sorted.sort_by(|a, b| a.path.cmp(&b.path));
        let mut changed = Vec::new();
        for Replacement { path, bytes, from } in sorted {
            let look = self.hold(&tx, path).await?;
            if self.content_version(&tx, path, look).await? != *from {
                if look.version == 0 {
                    // It was created only for the lock.
                    self.discard(&tx, path).await?;
                }
                changed.push(path.clone());
                continue;
            }
            self.replace(&tx, path, bytes).await?;
            self.derive(&tx, path, bytes).await?;
        }
        tx.commit().await?;
        Ok(changed)
    }

    async fn grow(&self, path: &DocPath, bytes: &[u8], from: ContentVersion) -> Result<()> {
        let tx = self.begin().await?;
        let before = self.hold_unchanged(&tx, path, from).await?;
        self.append_held(&tx, path, before, bytes).await?;
        self.derive_more(&tx, path, bytes).await?;
        tx.commit().await
    }

    async fn extend(&self, path: &DocPath, bytes: &[u8]) -> Result<()> {
        let tx = self.begin().await?;
        let before = self.hold(&tx, path).await?;
        self.append_held(&tx, path, before, bytes).await?;
        self.derive_more(&tx, path, bytes).await?;
        tx.commit().await
    }

    async fn remove_unchanged(&self, path: &DocPath, from: ContentVersion) -> Result<()> {
        let tx = self.begin().await?;
        self.hold_unchanged(&tx, path, from).await?;
        self.discard(&tx, path).await?;
        self.derive(&tx, path, b"").await?;
        tx.commit().await
    }

    async fn remove(&self, path: &DocPath) -> Result<()> {
        let tx = self.begin().await?;
        self.discard(&tx, path).await?;
        self.derive(&tx, path, b"").await?;
        tx.commit().await
    }

    async fn remove_folder(&self, _path: &DocPath) -> Result<()> {
        // Folders exist only as prefixes of paths.
        Ok(())
    }

    async fn documents(&self, under: &str) -> Result<Vec<DocPath>> {
        Ok(self.documents_below(under).await?.into_iter().map(|(path, _)| path).collect())
    }

    async fn sizes(&self, under: &str) -> Result<Vec<(DocPath, u64)>> {
        self.documents_below(under).await
    }

    async fn looks(&self, under: &str) -> Result<Vec<Looked>> {
        self.looks_below(under).await
    }

    async fn stamps(&self, paths: &[DocPath]) -> Result<Vec<Option<Stamp>>> {
        self.stamps_of(paths).await
    }

    async fn weights(&self) -> Result<Vec<Weight>> {
        self.weighed().await
    }

    async fn tail(&self, path: &DocPath, bytes: u64) -> Result<(Vec<u8>, bool)> {
        // Both answers come from one state of the document, whatever is written meanwhile.
        let tx = self.begin_steady().await?;
        let length = match self.look(&tx, path).await? {
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

    async fn add_records(&self, records: Vec<Record>) -> Result<Added> {
        self.keep_records(records, None).await
    }

    async fn known(&self, keys: &[Key]) -> Result<Vec<bool>> {
        self.known_records(keys).await
    }

    async fn records(&self, days: Days) -> Result<Vec<Record>> {
        self.records_of(days).await
    }

    async fn last_said(&self, conversation: &str, most: usize) -> Result<Vec<Record>> {
        self.last_records_of(conversation, most).await
    }

    async fn said_in(&self, conversation: &str, days: Days) -> Result<Digest> {
        self.digest_of(conversation, days).await
    }

    async fn forget_records(&self, days: Days, conversation: &str) -> Result<usize> {
        self.take_records_away(days, conversation).await
    }

    async fn scrub(&self, scrub: &Scrub, dry: bool) -> Result<Vec<Scrubbed>> {
        self.scrub_documents(scrub, dry).await
    }

    async fn sessions(&self, days: Option<Days>) -> Result<Vec<SessionStat>> {
        self.sessions_of(days).await
    }

    async fn record_days(&self) -> Result<Vec<Date>> {
        self.days_with_records().await
    }

    async fn bad_records(&self) -> Result<Vec<(DocPath, BadLine)>> {
        self.lines_that_are_no_records().await
    }

    async fn add_summaries(
        &self,
        summaries: &[Summary],
        after: Option<Position>,
    ) -> Result<Position> {
        self.keep_summaries(summaries, after).await
    }

    async fn heads(&self, which: &SummaryQuery) -> Result<(Vec<Head>, Position)> {
        self.heads_of(which).await
    }

    async fn summaries(&self, which: &SummaryQuery) -> Result<Vec<Summary>> {
        self.summaries_of(which).await
    }

    async fn event_days(&self) -> Result<Vec<(Date, usize)>> {
        self.days_with_events().await
    }

    async fn answer(&self, question: Hash) -> Result<Option<Vec<u8>>> {
        self.kept_answer(question).await
    }

    async fn keep_answer(&self, question: Hash, answer: &[u8]) -> Result<()> {
        self.put_answer(question, answer).await
    }

    async fn note(&self, name: &DocPath) -> Result<Option<Vec<u8>>> {
        self.kept_note(name).await
    }

    async fn put_note(&self, name: &DocPath, bytes: &[u8]) -> Result<()> {
        self.keep_note(name, bytes).await
    }

    async fn add_note(
        &self,
        name: &DocPath,
        line: &str,
        most_bytes: u64,
        _flush: bool,
    ) -> Result<()> {
        self.lengthen_note(name, line, most_bytes).await
    }

    async fn notes(&self, folder: &DocPath) -> Result<Vec<(DocPath, i64)>> {
        self.notes_in(folder).await
    }

    async fn remove_note(&self, name: &DocPath) -> Result<()> {
        self.drop_note(name).await
    }

    async fn marker_key(&self) -> Result<Option<MarkerKey>> {
        let kept = self.kept_note(&MARKER_KEY.parse()?).await?;
        Ok(kept.and_then(|text| MarkerKey::from_hex(&text)))
    }

    async fn set_marker_key(&self, key: &MarkerKey, replace: bool) -> Result<MarkerKey> {
        self.keep_marker_key(key, replace).await
    }

    async fn begin_filling(&self) -> Result<Ground> {
        self.take_to_fill().await
    }

    async fn end_filling(&self) -> Result<()> {
        self.filled().await
    }

    async fn stop_filling(&self) -> Result<()> {
        self.let_go_of_filling().await
    }

    async fn claim(&self, work: &str) -> Result<Option<Claimed>> {
        self.claimed(work).await
    }

    async fn unseen(&self, paths: &[DocPath]) -> Result<Vec<(DocPath, Stamp)>> {
        self.unseen_of(paths).await
    }

    async fn gone(&self, under: &str) -> Result<Vec<DocPath>> {
        self.gone_below(under).await
    }

    async fn see(&self, seen: &[(DocPath, Stamp)]) -> Result<()> {
        self.note_seen(seen).await
    }

    async fn inspect(&self) -> Result<Vec<Finding>> {
        self.inspected().await
    }

    async fn rebuild(&self, progress: Progress<'_>) -> Result<usize> {
        self.made_anew(progress).await
    }

    async fn mended(&self) -> Vec<String> {
        Vec::new()
    }

    fn order(&self) -> Option<&dyn crate::Order> {
        Some(self)
    }
}
