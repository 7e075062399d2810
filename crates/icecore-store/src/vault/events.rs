//! Queries about events: by the index, or from the files where there is none.

use std::collections::HashSet;

use async_trait::async_trait;
use icecore_domain::calendar::Moment;
use icecore_domain::event::Event;
use icecore_domain::format::line;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::LedgerEntry;
use icecore_domain::ledger::conflict::Claim;
use icecore_domain::ledger::query::EventQuery;

use super::Vault;
use super::index::{CurrentFile, EventRow, LinkedPlaces};
use super::vault_fs::FileStat;
use crate::ledger_view::{self, ArchiveView};
use crate::{EventQueries, EventSelection, Result, StatementCount};

/// The number of bytes that can be read in the time of one more call.
pub(super) const CALL_COST_BYTES: u64 = 4 * 1024;

/// The number of rows per page when only the newest events are wanted.
const PAGE_ROWS: usize = 200;

#[async_trait]
impl EventQueries for Vault {
    async fn events(&self, which: &EventQuery) -> Result<EventSelection> {
        let position = self.ledger_position()?;
        if let Some(entries) = self.indexed_entries(which)? {
            return Ok(EventSelection { entries, position });
        }
        let (ledger, position) = self.read_ledger()?;
        Ok(EventSelection { entries: ledger.select(which), position })
    }

    async fn archived_events(&self, which: &EventQuery) -> Result<Vec<Event>> {
        let places = if self.refresh_archives()? {
            self.query_index(|index| index.archived_places(which))?
        } else {
            None
        };
        let archives = match places {
            Some(places) => self.archived_events_at(&places)?.map(|events| vec![events]),
            None => None,
        };
        let archives = match archives {
            Some(archives) => archives,
            // The files changed a moment ago; read them.
            None => self.read_archives()?,
        };
        Ok(ledger_view::archived_events(&archives, which))
    }

    async fn linked_events(&self, ids: &[EventId], about: &[&str]) -> Result<Vec<Event>> {
        let tied = if self.refresh_archives()? {
            self.query_index(|index| index.linked_places(ids, about))?
        } else {
            None
        };
        let (here, gone) = match tied {
            Some(LinkedPlaces { ids, .. }) if ids.is_empty() => (Vec::new(), Vec::new()),
            Some(LinkedPlaces { ids, in_ledger: here, in_archives: gone }) => {
                match (self.ledger_events_at(&here, &ids)?, self.archived_events_at(&gone)?) {
                    (Some(here), Some(gone)) => {
                        let events = gone.entries.into_iter().map(|entry| entry.event);
                        (
                            here,
                            events.filter(|event| ids.binary_search(&event.id).is_ok()).collect(),
                        )
                    }
                    // The files changed a moment ago; read them.
                    _ => {
                        let these = EventQuery::for_ids(&ids);
                        let here = self.read_ledger()?.0.select(&these);
                        let here = here.into_iter().map(|entry| entry.event).collect();
                        (here, self.archived_events(&these).await?)
                    }
                }
            }
            None => {
                let archives = self.read_archives()?;
                return Ok(self.read_ledger()?.0.linked_events(&archives, ids, about));
            }
        };
        Ok(ledger_view::merge_in_order(here, gone))
    }

    async fn entities(&self) -> Result<Vec<String>> {
        if let Some(entities) = self.query_index(|index| index.entities())? {
            return Ok(entities);
        }
        Ok(self.read_ledger()?.0.entities(&self.read_archives()?))
    }

    async fn event_days(&self) -> Result<Vec<(jiff::civil::Date, usize)>> {
        if let Some(days) = self.query_index(|index| index.event_days())? {
            return Ok(days);
        }
        Ok(self.read_ledger()?.0.event_days(&self.read_archives()?))
    }

    async fn count_statements(&self) -> Result<Vec<StatementCount>> {
        let mut counts = match self.query_index(|index| index.count_statements())? {
            Some(counts) => counts,
            None => self.read_ledger()?.0.count_statements(),
        };
        counts.sort_by_key(|count| (count.kind, count.priority, count.state));
        Ok(counts)
    }

    async fn contested_claims(&self) -> Result<Vec<(EventId, Claim)>> {
        match self.query_index(|index| index.contested_claims())? {
            Some(claims) => Ok(claims),
            None => Ok(self.read_ledger()?.0.contested_claims()),
        }
    }
}

/// The entry for a row of the index, if the line still has that event.
fn entry_from_row(row: &EventRow, line: &[u8]) -> Option<LedgerEntry> {
    let event = line::parse_line(line).events.into_iter().find(|event| event.id == row.id)?;
    let verified = Moment::parse(&row.verified)?.moment;
    Some(LedgerEntry {
        event,
        line: row.line,
        state: row.standing,
        verified,
        confirmed: row.confirmed,
    })
}

impl Vault {
    /// The matching entries by way of the index; `None` if it cannot tell.
    pub(super) fn indexed_entries(&self, which: &EventQuery) -> Result<Option<Vec<LedgerEntry>>> {
        let mut found = Vec::new();
        // With a limit, read page by page from the newest; without one, everything at once.
        let size =
            which.limit.map_or(PAGE_ROWS, |limit| limit.saturating_mul(4).clamp(8, PAGE_ROWS));
        let mut page = which.limit.filter(|_| !which.weightiest).map(|_| (i64::MAX, size));
        let mut looked_at = 0;
        loop {
            let Some(rows) = self.query_index(|index| index.candidates(which, page))? else {
                return Ok(None);
            };
            looked_at += rows.len();
            let mut rest = rows.as_slice();
            // The rows are in the requested order, so reading stops after enough of them.
            while !rest.is_empty() && which.limit.is_none_or(|limit| found.len() < limit) {
                let wanted = which.limit.map_or(rest.len(), |limit| limit - found.len());
                let (first, later) = rest.split_at(wanted.min(rest.len()));
                let places: Vec<(u64, usize)> =
                    first.iter().map(|row| (row.offset, row.length)).collect();
                let Some(lines) = self.ledger_lines_at(&places)? else { return Ok(None) };
                for (row, line) in first.iter().zip(lines) {
                    // The line changed meanwhile; use the files.
                    let Some(entry) = entry_from_row(row, &line) else { return Ok(None) };
                    if which.matches(&entry) {
                        found.push(entry);
                    }
                }
                rest = later;
            }
            let enough = which.limit.is_none_or(|limit| found.len() >= limit);
            match rows.last() {
                Some(last) if !enough && page.is_some_and(|(_, many)| rows.len() == many) => {
                    page = Some((last.seq, PAGE_ROWS))
                }
                _ => break,
            }
        }
        if which.weightiest {
            found.sort_by_key(|entry| entry.line);
            let chosen: Vec<LedgerEntry> = which.select(&found).into_iter().cloned().collect();
            // The domain may have rejected more than was read; then use the files.
            let short = which
                .limit
                .is_some_and(|limit| chosen.len() < limit && looked_at >= limit.saturating_mul(2));
            return Ok((!short).then_some(chosen));
        }
        found.truncate(which.limit.unwrap_or(usize::MAX));
        found.reverse();
        Ok(Some(found))
    }

    /// Those of these events, given by id, whose lines are at these places of the ledger; `None` if
    /// only the files can tell.
    pub(super) fn ledger_events_at(
        &self,
        places: &[(u64, usize)],
        ids: &[EventId],
    ) -> Result<Option<Vec<Event>>> {
        let Some(lines) = self.ledger_lines_at(places)? else { return Ok(None) };
        let mut wanted: HashSet<EventId> = ids.iter().copied().collect();
        let mut events = Vec::with_capacity(lines.len());
        for line in &lines {
            let parsed = line::parse_line(line).events;
            // The line changed meanwhile.
            if !parsed.iter().any(|event| ids.binary_search(&event.id).is_ok()) {
                return Ok(None);
            }
            events.extend(parsed.into_iter().filter(|event| wanted.remove(&event.id)));
        }
        Ok(Some(events))
    }

    /// The lines of the ledger at these places; `None` if they moved.
    pub(super) fn ledger_lines_at(&self, places: &[(u64, usize)]) -> Result<Option<Vec<Vec<u8>>>> {
        // Reading single lines costs a call each, reading the whole ledger costs its length.
        let length = self.fs.stat(&self.ledger)?.map_or(0, |look| look.len);
        if places.len() <= PAGE_ROWS || places.len() as u64 * CALL_COST_BYTES < length {
            return Ok(self.fs.read_pieces(&self.ledger, places).ok());
        }
        let text = self.fs.read(&self.ledger)?.unwrap_or_default();
        let piece = |&(offset, length): &(u64, usize)| {
            let offset = usize::try_from(offset).unwrap_or(usize::MAX);
            text.get(offset..offset.saturating_add(length)).map(<[u8]>::to_vec)
        };
        Ok(places.iter().map(piece).collect())
    }

    /// The archive files of the ledger.
    pub(super) fn archive_files(&self) -> Result<Vec<(DocPath, FileStat)>> {
        let mut found = self.fs.list_folder("memory")?;
        found.extend(self.fs.list_folder(layout::PRUNED.trim_end_matches('/'))?);
        found.retain(|(path, _)| path.is_archive());
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }

    /// The archive files with their content.
    pub(super) fn current_archives(&self) -> Result<Vec<(DocPath, CurrentFile)>> {
        self.archive_files()?
            .into_iter()
            .map(|(path, _)| {
                let now = self.current_file(&path)?;
                Ok((path, now))
            })
            .collect()
    }

    /// Updates the index for all archives, removed ones included; false if there is no usable
    /// index.
    pub(super) fn refresh_archives(&self) -> Result<bool> {
        let Some(known) = self.query_index(|index| index.indexed_files())? else {
            return Ok(false);
        };
        let mut paths: Vec<DocPath> =
            known.keys().filter_map(|path| path.parse().ok()).filter(DocPath::is_archive).collect();
        paths.extend(self.archive_files()?.into_iter().map(|(path, _)| path));
        paths.sort();
        paths.dedup();
        // Removed files first: an event that moved to another file is indexed from there.
        paths.sort_by_key(|path| self.fs.stat(path).is_ok_and(|look| look.is_some()));
        self.refresh_files(&paths)
    }

    /// The archives, read from the files.
    pub(super) fn read_archives(&self) -> Result<Vec<ArchiveView>> {
        Ok(self.current_archives()?.iter().map(|(_, now)| ArchiveView::parse(&now.text)).collect())
    }

    /// The events at these places of the archives, given file by file; `None` if they moved.
    pub(super) fn archived_events_at(
        &self,
        places: &[(String, u64, usize)],
    ) -> Result<Option<ArchiveView>> {
        let mut events = ArchiveView::default();
        for file in places.chunk_by(|a, b| a.0 == b.0) {
            let pieces: Vec<(u64, usize)> =
                file.iter().map(|&(_, offset, length)| (offset, length)).collect();
            let Ok(pieces) = self.fs.read_pieces(&file[0].0.parse()?, &pieces) else {
                return Ok(None);
            };
            pieces.iter().for_each(|piece| events.parse_more(piece));
        }
        Ok(Some(events))
    }
}
