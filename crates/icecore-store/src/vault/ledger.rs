//! The ledger of a vault: a file that grows by whole lines.

use std::collections::BTreeSet;

use async_trait::async_trait;
use icecore_domain::event::{Event, EventDraft};
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::{LineFault, integrity};
use jiff::civil::Date;

use super::index::{CurrentLedger, SqlResult};
use super::vault_fs::{Expected, WriteLock};
use super::{IndexHandle, Vault};
use crate::ledger_view::{self, EventNumbers, LedgerView};
use crate::{ContentVersion, Error, LedgerStore, LedgerText, Position, Result};

#[async_trait]
impl LedgerStore for Vault {
    async fn append(&self, drafts: Vec<EventDraft>, after: Option<Position>) -> Result<Vec<Event>> {
        let held = self.lock_and_repair()?;
        if let Some(after) = after
            && self.ledger_position()? != after
        {
            return Err(Error::conflict(self.ledger.to_string()));
        }
        let events = self.assign_ids(drafts)?;
        let lines = ledger_view::event_lines(&events)?;
        self.append_ledger_text(&held, lines.as_bytes())?;
        Ok(events)
    }

    async fn append_lines(&self, lines: &[u8]) -> Result<()> {
        let held = self.lock_and_repair()?;
        let ended = if lines.ends_with(b"\n") { lines.to_vec() } else { [lines, b"\n"].concat() };
        self.append_ledger_text(&held, &ended)
    }

    async fn ledger(&self) -> Result<LedgerText> {
        self.ledger_text()
    }

    async fn position(&self) -> Result<Position> {
        self.ledger_position()
    }

    async fn replace_ledger(&self, text: &[u8], at: Position) -> Result<()> {
        let held = self.lock_and_repair()?;
        self.replace_ledger_at(&held, text, at)?;
        // The caller decided what the ledger contains. Lost ids stay spent.
        self.query_index(|index| index.clear_lost())?;
        Ok(())
    }

    async fn archive(
        &self,
        archives: &[(DocPath, Vec<u8>)],
        ledger: &[u8],
        at: Position,
    ) -> Result<()> {
        let held = self.lock_and_repair()?;
        if self.ledger_position()? != at {
            return Err(Error::conflict(layout::LEDGER.into()));
        }
        for (path, lines) in archives.iter().filter(|(_, lines)| !lines.is_empty()) {
            self.repair_tail(&held, path)?;
            self.fs.append(&held, path, lines)?;
        }
        // A person or another program may have appended a line without the lock.
        self.replace_ledger_at(&held, ledger, at)?;
        // The documents stay marked as seen, because no other program changed the ledger. If the
        // index cannot cover this now, the next query does, archives first, so that nothing in them
        // counts as lost.
        let current = CurrentLedger {
            text: ledger.to_vec(),
            look: self.fs.stat(&self.ledger)?,
            spent: self.spent_ids()?,
            archives: self.current_archives()?,
        };
        if let IndexHandle::Open(index) = &mut *self.index_handle() {
            let _ = index.rebuild(&current, &|_, _| {});
        }
        Ok(())
    }

    async fn line_faults(&self) -> Result<Vec<LineFault>> {
        match self.query_index(|index| index.line_faults())? {
            Some(faults) => Ok(faults),
            None => Ok(self.read_ledger()?.0.unreadable_lines()),
        }
    }

    async fn lost_events(&self) -> Result<Vec<EventId>> {
        Ok(self.query_index(|index| index.lost_ids())?.unwrap_or_default())
    }

    async fn quarantine(&self, from: &DocPath, at: u64, bytes: &[u8]) -> Result<String> {
        let held = self.lock_and_repair()?;
        let place = self.fs.quarantine_bytes(&held, from, at, bytes)?;
        Ok(place.strip_prefix(self.root()).unwrap_or(&place).display().to_string())
    }
}

impl Vault {
    /// The position of the ledger. Changes with every append and with every edit by another
    /// program.
    pub(super) fn ledger_position(&self) -> Result<Position> {
        Ok(Position(self.fs.stat(&self.ledger)?.map_or(0, |look| look.as_number())))
    }

    /// The ledger with its position. The position is read first: a line that arrives during the
    /// read makes a write against that position fail, never pass.
    pub(super) fn ledger_text(&self) -> Result<LedgerText> {
        let position = self.ledger_position()?;
        Ok(LedgerText { bytes: self.fs.read(&self.ledger)?.unwrap_or_default(), position })
    }

    pub(super) fn read_ledger(&self) -> Result<(LedgerView, Position)> {
        let LedgerText { bytes, position } = self.ledger_text()?;
        Ok((LedgerView::parse(&bytes), position))
    }

    /// Assigns ids to drafts: the next numbers of their days. Needs the lock, so that no other
    /// process assigns the same.
    pub(super) fn assign_ids(&self, drafts: Vec<EventDraft>) -> Result<Vec<Event>> {
        let days: BTreeSet<Date> = drafts.iter().map(|draft| draft.ts.day()).collect();
        let known = self.query_index(|index| {
            let highest = |&day| Ok((day, index.highest_number(day)?));
            days.iter().map(highest).collect::<SqlResult<EventNumbers>>()
        })?;
        if let Some(used) = known {
            return EventNumbers::assign_ids(drafts, &[&used]);
        }
        let ((ledger, _), archives) = (self.read_ledger()?, self.read_archives()?);
        let spent = self.spent_ids()?.into_iter().map(|id| (id.day(), id.number())).collect();
        let mut used = vec![&ledger.numbers, &spent];
        used.extend(archives.iter().map(|archive| &archive.numbers));
        EventNumbers::assign_ids(drafts, &used)
    }

    /// Ids of lost events, which must not be assigned again.
    pub(super) fn spent_ids(&self) -> Result<Vec<EventId>> {
        let report = self.fs.read(&layout::INTEGRITY.parse()?)?.unwrap_or_default();
        Ok(integrity::parse_known_gaps(&report).into_iter().collect())
    }

    pub(super) fn append_ledger_text(&self, lock: &WriteLock, text: &[u8]) -> Result<()> {
        let (start, look) = self.fs.append(lock, &self.ledger, text)?;
        // The lines are safe. If the index cannot cover them now, it does at its next opening.
        if let (Some(look), IndexHandle::Open(index)) = (look, &mut *self.index_handle()) {
            let _ = index.add_own_events(start, text, look);
        }
        Ok(())
    }

    /// Replaces the ledger if it is still at `at`. A line that another program appends at the last
    /// moment is not lost.
    pub(super) fn replace_ledger_at(
        &self,
        lock: &WriteLock,
        text: &[u8],
        at: Position,
    ) -> Result<()> {
        let look = self.fs.stat(&self.ledger)?;
        if Position(look.map_or(0, |look| look.as_number())) != at {
            return Err(Error::conflict(self.ledger.to_string()));
        }
        let expected = look.map_or(Expected::Content(ContentVersion::ABSENT), Expected::Stat);
        self.fs.replace_if(lock, &self.ledger, text, &expected)
    }
}
