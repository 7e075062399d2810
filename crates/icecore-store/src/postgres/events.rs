//! Queries about the events of a space, answered from the cached ledger and archives.

use std::sync::Arc;

use async_trait::async_trait;
use icecore_domain::event::Event;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::conflict::Claim;
use icecore_domain::ledger::query::EventQuery;
use jiff::civil::Date;

use super::documents::DocumentMeta;
use super::{Space, Tx};
use crate::ledger_view::{self, ArchiveView, LedgerView};
use crate::{EventQueries, EventSelection, Position, Result, StatementCount};

#[async_trait]
impl EventQueries for Space {
    async fn events(&self, which: &EventQuery) -> Result<EventSelection> {
        let (ledger, position) = self.cached_ledger().await?;
        Ok(EventSelection { entries: ledger.select(which), position })
    }

    async fn archived_events(&self, which: &EventQuery) -> Result<Vec<Event>> {
        let tx = self.begin_reading().await?;
        let archives = self.read_archives(&tx, &self.archive_metas(&tx).await?).await?;
        tx.commit().await?;
        Ok(ledger_view::archived_events(&archives, which))
    }

    async fn linked_events(&self, ids: &[EventId], about: &[&str]) -> Result<Vec<Event>> {
        let (ledger, archives) = self.cached_ledger_and_archives().await?;
        Ok(ledger.linked_events(&archives, ids, about))
    }

    async fn entities(&self) -> Result<Vec<String>> {
        let (ledger, archives) = self.cached_ledger_and_archives().await?;
        Ok(ledger.entities(&archives))
    }

    async fn event_days(&self) -> Result<Vec<(Date, usize)>> {
        let (ledger, archives) = self.cached_ledger_and_archives().await?;
        Ok(ledger.event_days(&archives))
    }

    async fn count_statements(&self) -> Result<Vec<StatementCount>> {
        Ok(self.cached_ledger().await?.0.count_statements())
    }

    async fn contested_claims(&self) -> Result<Vec<(EventId, Claim)>> {
        Ok(self.cached_ledger().await?.0.contested_claims())
    }
}

impl Space {
    /// Metadata of the archives and of the last result of `verify`, by path.
    pub(super) async fn archive_metas(&self, tx: &Tx) -> Result<Vec<(DocPath, DocumentMeta)>> {
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
    pub(super) async fn read_archives(
        &self,
        tx: &Tx,
        beside: &[(DocPath, DocumentMeta)],
    ) -> Result<Vec<Arc<ArchiveView>>> {
        let mut archives = Vec::new();
        for (path, look) in beside.iter().filter(|(path, _)| path.is_archive()) {
            archives.push(self.read_parsed_at(tx, path, *look).await?);
        }
        Ok(archives)
    }

    pub(super) async fn cached_ledger(&self) -> Result<(Arc<LedgerView>, Position)> {
        let tx = self.begin_reading().await?;
        let folded = self.read_ledger(&tx).await?;
        tx.commit().await?;
        Ok(folded)
    }

    /// The ledger and the archives.
    pub(super) async fn cached_ledger_and_archives(
        &self,
    ) -> Result<(Arc<LedgerView>, Vec<Arc<ArchiveView>>)> {
        let tx = self.begin_reading().await?;
        let (ledger, _) = self.read_ledger(&tx).await?;
        let archives = self.read_archives(&tx, &self.archive_metas(&tx).await?).await?;
        tx.commit().await?;
        Ok((ledger, archives))
    }
}
