//! The ledger of a space and its archives. The domain computes the states from their bytes; the
//! result is cached while the bytes are unchanged.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use icecore_domain::event::{Event, EventDraft};
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::conflict::Claim;
use icecore_domain::ledger::integrity;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::{Ledger, LedgerEntry, LineFault};
use jiff::civil::Date;

use super::cache::ParsedDocument;
use super::documents::{DocumentMeta, conflict_error, to_unsigned};
use super::{Space, Tx};
use crate::{EventSelection, LedgerText, Position, Result, StatementCount, ledger_view};

/// The approximate memory per event besides its text: position, claims and sameness hash.
const EVENT_OVERHEAD_BYTES: usize = 160;

/// The highest event number of each local day.
#[derive(Debug, Clone, Default)]
struct HighestNumbers(HashMap<Date, u32>);

impl HighestNumbers {
    fn add_entries(&mut self, entries: &[LedgerEntry]) {
        for entry in entries {
            let highest = self.0.entry(entry.event.id.day()).or_default();
            *highest = entry.event.id.number().max(*highest);
        }
    }

    /// The last id of each of these days.
    fn last_ids(&self, days: &[Date]) -> impl Iterator<Item = EventId> {
        days.iter().filter_map(|day| Some(EventId::new(*day, *self.0.get(day)?)))
    }
}

/// The ledger with states.
#[derive(Debug, Default)]
pub(super) struct CachedLedger {
    ledger: Ledger,
    numbers: HighestNumbers,
    /// Built on first use and then updated: both cost more than the ledger itself.
    claims: Mutex<ledger_view::AttributeClaims>,
    sayings: Mutex<ledger_view::SamenessIndex>,
}

fn lock_mutex<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clone for CachedLedger {
    fn clone(&self) -> Self {
        let (claims, sayings) =
            (lock_mutex(&self.claims).clone(), lock_mutex(&self.sayings).clone());
        Self {
            ledger: self.ledger.clone(),
            numbers: self.numbers.clone(),
            claims: Mutex::new(claims),
            sayings: Mutex::new(sayings),
        }
    }
}

impl Deref for CachedLedger {
    type Target = Ledger;

    fn deref(&self) -> &Ledger {
        &self.ledger
    }
}

impl ParsedDocument for CachedLedger {
    fn parse_more(&mut self, bytes: &[u8]) {
        let known = self.ledger.entries().len();
        self.ledger.parse_appended(bytes);
        self.numbers.add_entries(&self.ledger.entries()[known..]);
    }

    fn memory_bytes(&self) -> usize {
        self.entries().len() * (size_of::<LedgerEntry>() + EVENT_OVERHEAD_BYTES)
    }
}

impl CachedLedger {
    fn select(&self, which: &EventQuery) -> Vec<LedgerEntry> {
        match &which.saying {
            // Few events have the same text. With `after`, the position in the whole ledger
            // matters.
            Some(text) if which.after.is_none() => {
                let few: Vec<LedgerEntry> = lock_mutex(&self.sayings)
                    .entries_like(self, text)
                    .into_iter()
                    .cloned()
                    .collect();
                which.select(&few).into_iter().cloned().collect()
            }
            _ => which.select(self.entries()).into_iter().cloned().collect(),
        }
    }
}

/// The events of an archive.
#[derive(Debug, Clone, Default)]
struct CachedArchive {
    entries: Vec<LedgerEntry>,
    numbers: HighestNumbers,
}

impl ParsedDocument for CachedArchive {
    fn parse_more(&mut self, bytes: &[u8]) {
        let known = self.entries.len();
        self.entries.extend(ledger_view::archive_entries(bytes));
        self.numbers.add_entries(&self.entries[known..]);
    }

    fn memory_bytes(&self) -> usize {
        self.entries.len() * size_of::<LedgerEntry>()
    }
}

/// Ids of lost events, which must not be assigned again.
#[derive(Debug, Clone, Default)]
struct SpentIds {
    report: Vec<u8>,
    ids: Vec<EventId>,
}

impl ParsedDocument for SpentIds {
    fn parse_more(&mut self, bytes: &[u8]) {
        self.report.extend_from_slice(bytes);
        self.ids = integrity::parse_known_gaps(&self.report).into_iter().collect();
    }

    fn memory_bytes(&self) -> usize {
        self.ids.len() * size_of::<EventId>()
    }
}

pub(super) fn ledger_position(meta: Option<DocumentMeta>) -> Position {
    Position(meta.map_or(0, |meta| to_unsigned(meta.version)))
}

impl Space {
    pub(super) fn ledger_path() -> Result<DocPath> {
        Ok(layout::LEDGER.parse()?)
    }

    /// The ledger with states, and its position.
    pub(super) async fn read_ledger(&self, tx: &Tx) -> Result<(Arc<CachedLedger>, Position)> {
        let (ledger, look) = self.read_parsed::<CachedLedger>(tx, &Self::ledger_path()?).await?;
        Ok((ledger, ledger_position(look)))
    }

    async fn cached_ledger(&self) -> Result<(Arc<CachedLedger>, Position)> {
        let tx = self.begin_reading().await?;
        let folded = self.read_ledger(&tx).await?;
        tx.commit().await?;
        Ok(folded)
    }

    /// Metadata of the archives and of the last result of `verify`, by path.
    async fn archive_metas(&self, tx: &Tx) -> Result<Vec<(DocPath, DocumentMeta)>> {
        const SQL: &str = "SELECT path, length, version, ended, changed FROM icecore.document WHERE space_id = $1 \
            AND (path >= $2 AND path < $2 || U&'\\+10FFFF' OR path >= $3 AND path < $3 || U&'\\+10FFFF' OR path = $4) ORDER BY path";
        let rows = tx
            .query(SQL, &[&self.id, &layout::LEDGER_ARCHIVE, &layout::PRUNED, &layout::INTEGRITY])
            .await?;
        rows.iter()
            .map(|row| Ok((row.get::<_, String>(0).parse()?, DocumentMeta::from_row(row, 1))))
            .collect()
    }

    /// The events of archives. A caller that also needs the ledger reads the ledger first: lines
    /// move from it to an archive, so that none is missed.
    async fn read_archives(
        &self,
        tx: &Tx,
        beside: &[(DocPath, DocumentMeta)],
    ) -> Result<Vec<Arc<CachedArchive>>> {
        let mut archives = Vec::new();
        for (path, look) in beside.iter().filter(|(path, _)| path.is_archive()) {
            archives.push(self.read_parsed_at(tx, path, *look).await?);
        }
        Ok(archives)
    }

    /// The ledger and the archives.
    async fn cached_ledger_and_archives(
        &self,
    ) -> Result<(Arc<CachedLedger>, Vec<Arc<CachedArchive>>)> {
        let tx = self.begin_reading().await?;
        let (ledger, _) = self.read_ledger(&tx).await?;
        let archives = self.read_archives(&tx, &self.archive_metas(&tx).await?).await?;
        tx.commit().await?;
        Ok((ledger, archives))
    }

    pub(super) async fn append_drafts(
        &self,
        drafts: Vec<EventDraft>,
        after: Option<Position>,
    ) -> Result<Vec<Event>> {
        let path = Self::ledger_path()?;
        let tx = self.begin().await?;
        let before = self.lock_document(&tx, &path).await?;
        if after.is_some_and(|after| after != ledger_position(Some(before))) {
            return Err(conflict_error(&path));
        }
        if drafts.is_empty() {
            return Ok(Vec::new());
        }
        let days = ledger_view::draft_days(&drafts);
        let highest = {
            let ledger: Arc<CachedLedger> = self.read_parsed_at(&tx, &path, before).await?;
            let beside = self.archive_metas(&tx).await?;
            let archives = self.read_archives(&tx, &beside).await?;
            let spent: Arc<SpentIds> =
                match beside.iter().find(|(path, _)| path.as_str() == layout::INTEGRITY) {
                    Some((path, look)) => self.read_parsed_at(&tx, path, *look).await?,
                    None => Arc::default(),
                };
            let archived = archives.iter().flat_map(|archive| archive.numbers.last_ids(&days));
            ledger_view::highest_numbers(
                &days,
                ledger.numbers.last_ids(&days).chain(archived).chain(spent.ids.iter().copied()),
            )
        };
        let events = ledger_view::assign_ids(drafts, &days, highest)?;
        let lines = ledger_view::event_lines(&events)?;
        let (_, now) = self.append_locked(&tx, &path, before, lines.as_bytes()).await?;
        self.derive_appended(&tx, &path, lines.as_bytes()).await?;
        tx.commit().await?;
        self.parse_own::<CachedLedger>(&path, before, now, lines.as_bytes());
        Ok(events)
    }

    pub(super) async fn append_ledger_lines(&self, lines: &[u8]) -> Result<()> {
        let path = Self::ledger_path()?;
        let ended = if lines.ends_with(b"\n") { lines.to_vec() } else { [lines, b"\n"].concat() };
        let tx = self.begin().await?;
        let before = self.lock_document(&tx, &path).await?;
        self.append_locked(&tx, &path, before, &ended).await?;
        self.derive_appended(&tx, &path, &ended).await?;
        tx.commit().await
    }

    pub(super) async fn read_ledger_text(&self) -> Result<LedgerText> {
        let tx = self.begin_reading().await?;
        let found = self.read_document(&tx, &Self::ledger_path()?).await?;
        tx.commit().await?;
        let (bytes, look) = found.map_or((Vec::new(), None), |(bytes, look)| (bytes, Some(look)));
        Ok(LedgerText { bytes, position: ledger_position(look) })
    }

    pub(super) async fn swap_ledger(&self, text: &[u8], at: Position) -> Result<()> {
        self.archive_lines(&[], text, at).await
    }

    /// Moves lines from the ledger to archives in one transaction.
    pub(super) async fn archive_lines(
        &self,
        archives: &[(DocPath, Vec<u8>)],
        ledger: &[u8],
        at: Position,
    ) -> Result<()> {
        let path = Self::ledger_path()?;
        let tx = self.begin().await?;
        // Everyone locks in the order of paths.
        let mut growing: Vec<&(DocPath, Vec<u8>)> =
            archives.iter().filter(|(_, lines)| !lines.is_empty()).collect();
        growing.sort_by(|a, b| a.0.cmp(&b.0));
        for (archive, lines) in growing {
            let before = self.lock_document(&tx, archive).await?;
            self.append_locked(&tx, archive, before, lines).await?;
            self.derive_appended(&tx, archive, lines).await?;
        }
        if ledger_position(Some(self.lock_document(&tx, &path).await?)) != at {
            return Err(conflict_error(&path));
        }
        self.write_document(&tx, &path, ledger).await?;
        self.derive_replaced(&tx, &path, ledger).await?;
        tx.commit().await
    }

    pub(super) async fn query_archived_events(&self, which: &EventQuery) -> Result<Vec<Event>> {
        let tx = self.begin_reading().await?;
        let archives = self.read_archives(&tx, &self.archive_metas(&tx).await?).await?;
        tx.commit().await?;
        Ok(ledger_view::archived_events(archive_entries(&archives), which))
    }

    pub(super) async fn query_linked_events(
        &self,
        ids: &[EventId],
        about: &[&str],
    ) -> Result<Vec<Event>> {
        let (ledger, archives) = self.cached_ledger_and_archives().await?;
        Ok(ledger_view::linked_events(&ledger, archive_entries(&archives), ids, about))
    }

    pub(super) async fn list_entities(&self) -> Result<Vec<String>> {
        let (ledger, archives) = self.cached_ledger_and_archives().await?;
        Ok(ledger_view::entities(&ledger, archive_entries(&archives)))
    }

    pub(super) async fn query_events(&self, which: &EventQuery) -> Result<EventSelection> {
        let (ledger, position) = self.cached_ledger().await?;
        Ok(EventSelection { entries: ledger.select(which), position })
    }

    pub(super) async fn read_position(&self) -> Result<Position> {
        let tx = self.begin_reading().await?;
        let look = self.document_meta(&tx, &Self::ledger_path()?).await?;
        tx.commit().await?;
        Ok(ledger_position(look))
    }

    pub(super) async fn query_counts(&self) -> Result<Vec<StatementCount>> {
        Ok(ledger_view::count_statements(&self.cached_ledger().await?.0))
    }

    pub(super) async fn query_contested_claims(&self) -> Result<Vec<(EventId, Claim)>> {
        let (ledger, _) = self.cached_ledger().await?;
        Ok(lock_mutex(&ledger.claims).contested_claims(&ledger))
    }

    pub(super) async fn query_faults(&self) -> Result<Vec<LineFault>> {
        Ok(self.cached_ledger().await?.0.unreadable_lines())
    }

    pub(super) async fn list_event_days(&self) -> Result<Vec<(Date, usize)>> {
        let (ledger, archives) = self.cached_ledger_and_archives().await?;
        Ok(ledger_view::event_days(&ledger, archive_entries(&archives)))
    }
}

fn archive_entries(archives: &[Arc<CachedArchive>]) -> impl Iterator<Item = &LedgerEntry> {
    archives.iter().flat_map(|archive| &archive.entries)
}
