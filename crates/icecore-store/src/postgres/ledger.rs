//! The ledger of a space. The domain computes the states from its bytes; the result is cached while
//! the bytes are unchanged.

use std::sync::Arc;

use async_trait::async_trait;
use icecore_domain::event::{Event, EventDraft};
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::{LedgerEntry, LineFault, integrity};

use super::cache::ParsedDocument;
use super::documents::{DocumentMeta, conflict_error, to_unsigned};
use super::{Space, Tx};
use crate::ledger_view::{self, ArchiveView, EventNumbers, LedgerView};
use crate::{LedgerStore, LedgerText, Position, Result};

/// The approximate memory per event besides its text: position, claims and sameness hash.
const EVENT_OVERHEAD_BYTES: usize = 160;

impl ParsedDocument for LedgerView {
    fn parse_more(&mut self, bytes: &[u8]) {
        self.parse_more(bytes);
    }

    fn memory_bytes(&self) -> usize {
        self.entries().len() * (size_of::<LedgerEntry>() + EVENT_OVERHEAD_BYTES)
    }
}

impl ParsedDocument for ArchiveView {
    fn parse_more(&mut self, bytes: &[u8]) {
        self.parse_more(bytes);
    }

    fn memory_bytes(&self) -> usize {
        self.entries.len() * size_of::<LedgerEntry>()
    }
}

/// Ids of lost events, which must not be assigned again.
#[derive(Debug, Clone, Default)]
struct SpentIds {
    report: Vec<u8>,
    numbers: EventNumbers,
}

impl ParsedDocument for SpentIds {
    fn parse_more(&mut self, bytes: &[u8]) {
        self.report.extend_from_slice(bytes);
        let ids = integrity::parse_known_gaps(&self.report).into_iter();
        self.numbers = ids.map(|id| (id.day(), id.number())).collect();
    }

    fn memory_bytes(&self) -> usize {
        self.report.len()
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
    pub(super) async fn read_ledger(&self, tx: &Tx) -> Result<(Arc<LedgerView>, Position)> {
        let (ledger, look) = self.read_parsed::<LedgerView>(tx, &Self::ledger_path()?).await?;
        Ok((ledger, ledger_position(look)))
    }
}

#[async_trait]
impl LedgerStore for Space {
    async fn append(&self, drafts: Vec<EventDraft>, after: Option<Position>) -> Result<Vec<Event>> {
        let path = Self::ledger_path()?;
        let tx = self.begin().await?;
        let before = self.lock_document(&tx, &path).await?;
        if after.is_some_and(|after| after != ledger_position(Some(before))) {
            return Err(conflict_error(&path));
        }
        if drafts.is_empty() {
            return Ok(Vec::new());
        }
        let events = {
            let ledger: Arc<LedgerView> = self.read_parsed_at(&tx, &path, before).await?;
            let beside = self.archive_metas(&tx).await?;
            let archives = self.read_archives(&tx, &beside).await?;
            let spent: Arc<SpentIds> =
                match beside.iter().find(|(path, _)| path.as_str() == layout::INTEGRITY) {
                    Some((path, look)) => self.read_parsed_at(&tx, path, *look).await?,
                    None => Arc::default(),
                };
            let mut used = vec![&ledger.numbers, &spent.numbers];
            used.extend(archives.iter().map(|archive| &archive.numbers));
            EventNumbers::assign_ids(drafts, &used)?
        };
        let lines = ledger_view::event_lines(&events)?;
        let (_, now) = self.append_locked(&tx, &path, before, lines.as_bytes()).await?;
        self.derive_appended(&tx, &path, lines.as_bytes()).await?;
        tx.commit().await?;
        self.parse_own::<LedgerView>(&path, before, now, lines.as_bytes());
        Ok(events)
    }

    async fn append_lines(&self, lines: &[u8]) -> Result<()> {
        let path = Self::ledger_path()?;
        let ended = if lines.ends_with(b"\n") { lines.to_vec() } else { [lines, b"\n"].concat() };
        let tx = self.begin().await?;
        let before = self.lock_document(&tx, &path).await?;
        self.append_locked(&tx, &path, before, &ended).await?;
        self.derive_appended(&tx, &path, &ended).await?;
        tx.commit().await
    }

    async fn ledger(&self) -> Result<LedgerText> {
        let tx = self.begin_reading().await?;
        let found = self.read_document(&tx, &Self::ledger_path()?).await?;
        tx.commit().await?;
        let (bytes, look) = found.map_or((Vec::new(), None), |(bytes, look)| (bytes, Some(look)));
        Ok(LedgerText { bytes, position: ledger_position(look) })
    }

    async fn position(&self) -> Result<Position> {
        let tx = self.begin_reading().await?;
        let look = self.document_meta(&tx, &Self::ledger_path()?).await?;
        tx.commit().await?;
        Ok(ledger_position(look))
    }

    async fn replace_ledger(&self, text: &[u8], at: Position) -> Result<()> {
        self.archive(&[], text, at).await
    }

    async fn archive(
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

    async fn line_faults(&self) -> Result<Vec<LineFault>> {
        Ok(self.cached_ledger().await?.0.unreadable_lines())
    }

    async fn lost_events(&self) -> Result<Vec<EventId>> {
        // No other program can change the ledger, so nothing is ever lost.
        Ok(Vec::new())
    }

    async fn quarantine(&self, from: &DocPath, at: u64, bytes: &[u8]) -> Result<String> {
        let place =
            format!("{}-{at}-{}", from.as_str().replace('/', "-"), Hash::of(bytes).short_hex());
        let tx = self.begin().await?;
        let sql = "INSERT INTO icecore.aside (space_id, place, bytes) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        tx.execute(sql, &[&self.id, &place, &bytes]).await?;
        tx.commit().await?;
        Ok(format!("quarantine/{place}"))
    }
}
