//! The ledger of a space and its archives. The domain computes the states from their bytes; the
//! result is cached while the bytes are unchanged.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use icecore_domain::event::{Draft, Event};
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::conflict::Claim;
use icecore_domain::ledger::integrity;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::{Entry, Ledger, LineFault};
use jiff::civil::Date;

use super::cache::Reading;
use super::documents::{Look, moved, unsigned};
use super::{Space, Tx};
use crate::{Count, Found, LedgerText, Position, Result, folded};

/// The approximate memory per event besides its text: position, claims and sameness hash.
const BESIDES_BYTES: usize = 160;

/// The highest event number of each local day.
#[derive(Debug, Clone, Default)]
struct Numbers(HashMap<Date, u32>);

impl Numbers {
    fn take(&mut self, entries: &[Entry]) {
        for entry in entries {
            let highest = self.0.entry(entry.event.id.day()).or_default();
            *highest = entry.event.id.number().max(*highest);
        }
    }

    /// The last id of each of these days.
    fn last(&self, days: &[Date]) -> impl Iterator<Item = EventId> {
        days.iter().filter_map(|day| Some(EventId::new(*day, *self.0.get(day)?)))
    }
}

/// The ledger with states.
#[derive(Debug, Default)]
pub(super) struct Folded {
    ledger: Ledger,
    numbers: Numbers,
    /// Built on first use and then updated: both cost more than the ledger itself.
    claims: Mutex<folded::Claims>,
    sayings: Mutex<folded::Sayings>,
}

fn open<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clone for Folded {
    fn clone(&self) -> Self {
        let (claims, sayings) = (open(&self.claims).clone(), open(&self.sayings).clone());
        Self {
            ledger: self.ledger.clone(),
            numbers: self.numbers.clone(),
            claims: Mutex::new(claims),
            sayings: Mutex::new(sayings),
        }
    }
}

impl Deref for Folded {
    type Target = Ledger;

    fn deref(&self) -> &Ledger {
        &self.ledger
    }
}

impl Reading for Folded {
    fn read_on(&mut self, bytes: &[u8]) {
        let known = self.ledger.entries().len();
        self.ledger.read_on(bytes);
        self.numbers.take(&self.ledger.entries()[known..]);
    }

    fn weight(&self) -> usize {
        self.entries().len() * (size_of::<Entry>() + BESIDES_BYTES)
    }
}

impl Folded {
    fn chosen(&self, which: &EventQuery) -> Vec<Entry> {
        match &which.saying {
            // Few events have the same text. With `after`, the position in the whole ledger
            // matters.
            Some(text) if which.after.is_none() => {
                let few: Vec<Entry> =
                    open(&self.sayings).like(self, text).into_iter().cloned().collect();
                which.choose(&few).into_iter().cloned().collect()
            }
            _ => which.choose(self.entries()).into_iter().cloned().collect(),
        }
    }
}

/// The events of an archive.
#[derive(Debug, Clone, Default)]
struct Archive {
    entries: Vec<Entry>,
    numbers: Numbers,
}

impl Reading for Archive {
    fn read_on(&mut self, bytes: &[u8]) {
        let known = self.entries.len();
        self.entries.extend(folded::archive(bytes));
        self.numbers.take(&self.entries[known..]);
    }

    fn weight(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
    }
}

/// Ids of lost events, which must not be assigned again.
#[derive(Debug, Clone, Default)]
struct Spent {
    report: Vec<u8>,
    ids: Vec<EventId>,
}

impl Reading for Spent {
    fn read_on(&mut self, bytes: &[u8]) {
        self.report.extend_from_slice(bytes);
        self.ids = integrity::known_gaps(&self.report).into_iter().collect();
    }

    fn weight(&self) -> usize {
        self.ids.len() * size_of::<EventId>()
    }
}

pub(super) fn position(look: Option<Look>) -> Position {
    Position(look.map_or(0, |look| unsigned(look.version)))
}

impl Space {
    pub(super) fn ledger_path() -> Result<DocPath> {
        Ok(layout::LEDGER.parse()?)
    }

    /// The ledger with states, and its position.
    pub(super) async fn folded(&self, tx: &Tx) -> Result<(Arc<Folded>, Position)> {
        let (ledger, look) = self.reading::<Folded>(tx, &Self::ledger_path()?).await?;
        Ok((ledger, position(look)))
    }

    async fn fold(&self) -> Result<(Arc<Folded>, Position)> {
        let tx = self.begin_reading().await?;
        let folded = self.folded(&tx).await?;
        tx.commit().await?;
        Ok(folded)
    }

    /// Metadata of the archives and of the last result of `verify`, by path.
    async fn beside(&self, tx: &Tx) -> Result<Vec<(DocPath, Look)>> {
        const SQL: &str = "SELECT path, length, version, ended, changed FROM icecore.document WHERE space_id = $1 \
            AND (path >= $2 AND path < $2 || U&'\\+10FFFF' OR path >= $3 AND path < $3 || U&'\\+10FFFF' OR path = $4) ORDER BY path";
        let rows = tx
            .rows(SQL, &[&self.id, &layout::LEDGER_ARCHIVE, &layout::PRUNED, &layout::INTEGRITY])
            .await?;
        rows.iter().map(|row| Ok((row.get::<_, String>(0).parse()?, Look::of(row, 1)))).collect()
    }

    /// The events of archives. A caller that also needs the ledger reads the ledger first: lines
    /// move from it to an archive, so that none is missed.
    async fn archives(&self, tx: &Tx, beside: &[(DocPath, Look)]) -> Result<Vec<Arc<Archive>>> {
        let mut archives = Vec::new();
        for (path, look) in beside.iter().filter(|(path, _)| path.is_archive()) {
            archives.push(self.reading_at(tx, path, *look).await?);
        }
        Ok(archives)
    }

    /// The ledger and the archives.
    async fn fold_all(&self) -> Result<(Arc<Folded>, Vec<Arc<Archive>>)> {
        let tx = self.begin_reading().await?;
        let (ledger, _) = self.folded(&tx).await?;
        let archives = self.archives(&tx, &self.beside(&tx).await?).await?;
        tx.commit().await?;
        Ok((ledger, archives))
    }

    pub(super) async fn append_events(
        &self,
        drafts: Vec<Draft>,
        after: Option<Position>,
    ) -> Result<Vec<Event>> {
        let path = Self::ledger_path()?;
        let tx = self.begin().await?;
        let before = self.hold(&tx, &path).await?;
        if after.is_some_and(|after| after != position(Some(before))) {
            return Err(moved(&path));
        }
        if drafts.is_empty() {
            return Ok(Vec::new());
        }
        let days = folded::days_of(&drafts);
        let highest = {
            let ledger: Arc<Folded> = self.reading_at(&tx, &path, before).await?;
            let beside = self.beside(&tx).await?;
            let archives = self.archives(&tx, &beside).await?;
            let spent: Arc<Spent> =
                match beside.iter().find(|(path, _)| path.as_str() == layout::INTEGRITY) {
                    Some((path, look)) => self.reading_at(&tx, path, *look).await?,
                    None => Arc::default(),
                };
            let archived = archives.iter().flat_map(|archive| archive.numbers.last(&days));
            folded::highest(
                &days,
                ledger.numbers.last(&days).chain(archived).chain(spent.ids.iter().copied()),
            )
        };
        let events = folded::numbered(drafts, &days, highest)?;
        let lines = folded::lines(&events)?;
        let (_, now) = self.append_held(&tx, &path, before, lines.as_bytes()).await?;
        self.derive_more(&tx, &path, lines.as_bytes()).await?;
        tx.commit().await?;
        self.read_own::<Folded>(&path, before, now, lines.as_bytes());
        Ok(events)
    }

    pub(super) async fn append_text(&self, lines: &[u8]) -> Result<()> {
        let path = Self::ledger_path()?;
        let ended = if lines.ends_with(b"\n") { lines.to_vec() } else { [lines, b"\n"].concat() };
        let tx = self.begin().await?;
        let before = self.hold(&tx, &path).await?;
        self.append_held(&tx, &path, before, &ended).await?;
        self.derive_more(&tx, &path, &ended).await?;
        tx.commit().await
    }

    pub(super) async fn ledger_text(&self) -> Result<LedgerText> {
        let tx = self.begin_reading().await?;
        let found = self.read(&tx, &Self::ledger_path()?).await?;
        tx.commit().await?;
        let (bytes, look) = found.map_or((Vec::new(), None), |(bytes, look)| (bytes, Some(look)));
        Ok(LedgerText { bytes, position: position(look) })
    }

    pub(super) async fn exchange_ledger(&self, text: &[u8], at: Position) -> Result<()> {
        self.move_to_archives(&[], text, at).await
    }

    /// Moves lines from the ledger to archives in one transaction.
    pub(super) async fn move_to_archives(
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
            let before = self.hold(&tx, archive).await?;
            self.append_held(&tx, archive, before, lines).await?;
            self.derive_more(&tx, archive, lines).await?;
        }
        if position(Some(self.hold(&tx, &path).await?)) != at {
            return Err(moved(&path));
        }
        self.replace(&tx, &path, ledger).await?;
        self.derive(&tx, &path, ledger).await?;
        tx.commit().await
    }

    pub(super) async fn archived_events(&self, which: &EventQuery) -> Result<Vec<Event>> {
        let tx = self.begin_reading().await?;
        let archives = self.archives(&tx, &self.beside(&tx).await?).await?;
        tx.commit().await?;
        Ok(folded::archived(entries(&archives), which))
    }

    pub(super) async fn tied_events(&self, ids: &[EventId], about: &[&str]) -> Result<Vec<Event>> {
        let (ledger, archives) = self.fold_all().await?;
        Ok(folded::tied(&ledger, entries(&archives), ids, about))
    }

    pub(super) async fn things(&self) -> Result<Vec<String>> {
        let (ledger, archives) = self.fold_all().await?;
        Ok(folded::entities(&ledger, entries(&archives)))
    }

    pub(super) async fn found(&self, which: &EventQuery) -> Result<Found> {
        let (ledger, position) = self.fold().await?;
        Ok(Found { entries: ledger.chosen(which), position })
    }

    pub(super) async fn ledger_position(&self) -> Result<Position> {
        let tx = self.begin_reading().await?;
        let look = self.look(&tx, &Self::ledger_path()?).await?;
        tx.commit().await?;
        Ok(position(look))
    }

    pub(super) async fn counts(&self) -> Result<Vec<Count>> {
        Ok(folded::tally(&self.fold().await?.0))
    }

    pub(super) async fn contested_claims(&self) -> Result<Vec<(EventId, Claim)>> {
        let (ledger, _) = self.fold().await?;
        Ok(open(&ledger.claims).contested(&ledger))
    }

    pub(super) async fn ledger_faults(&self) -> Result<Vec<LineFault>> {
        Ok(self.fold().await?.0.unread())
    }

    pub(super) async fn days_with_events(&self) -> Result<Vec<(Date, usize)>> {
        let (ledger, archives) = self.fold_all().await?;
        Ok(folded::event_days(&ledger, entries(&archives)))
    }
}

fn entries(archives: &[Arc<Archive>]) -> impl Iterator<Item = &Entry> {
    archives.iter().flat_map(|archive| &archive.entries)
}
