//! The vault: memory as a folder of Markdown and JSONL files for people, agents and git.
//!
//! The files are the source of truth. The index beside them is derived: every query works without
//! it, only slower, so a broken or missing index never stops a read or a write.

mod git;
mod index;
mod records;
mod scrub;
mod search;
pub(crate) mod vault_fs;

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use icecore_domain::calendar::{Days, Moment};
use icecore_domain::event::{Event, EventDraft};
use icecore_domain::forget::Scrub;
use icecore_domain::format::line;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath, FileKind};
use icecore_domain::ledger::conflict::Claim;
use icecore_domain::ledger::integrity::{self, IntegrityCheck, IntegrityFinding};
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::{Ledger, LedgerEntry, LineFault, find_torn_tail};
use icecore_domain::record::{BadRecordLine, Record, RecordKey, RecordSetDigest, SessionStats};
use icecore_domain::secrets::MarkerKey;
use icecore_domain::summary::{Summary, SummaryHead, SummaryQuery};

pub use self::git::merge_lines;

use self::index::{CurrentLedger, EventRow, Index, SqlResult};
use self::vault_fs::{Expected, VaultFs, WriteLock};
use crate::ledger_view;
use crate::{
    AddReport, ContentVersion, DiskUsage, DocumentStat, Error, EventSelection, Lease, LeaseHandle,
    LedgerText, Position, Progress, Replacement, RestoreTarget, Result, ScrubbedFile, Stamp,
    StatementCount, Store,
};

/// The number of rows per page when only the newest events are wanted.
const PAGE_ROWS: usize = 200;
/// The note that marks an unfinished restore.
const RESTORE_NOTE: &str = "filling";
/// The number of locks that all conversations share.
const CONVERSATION_LOCK_COUNT: u8 = 16;
/// The number of bytes that can be read in the time of one more call.
const CALL_COST_BYTES: u64 = 4 * 1024;

/// An open vault.
pub struct Vault {
    fs: VaultFs,
    ledger: DocPath,
    index: Mutex<IndexHandle>,
    mended: Mutex<Vec<String>>,
    /// Record files that this process is appending to.
    appending: Mutex<BTreeSet<DocPath>>,
    search_slot: search::SearchSlot,
}

/// The index, opened on first use.
enum IndexHandle {
    Unopened,
    Open(Box<Index>),
    /// It cannot be opened, such as on a full or read-only disk. Queries use the files.
    Unusable(String),
}

impl Vault {
    /// Creates a vault in `root`, which may exist but must not be a vault, with `config` as its
    /// `icecore.toml`. Makes it a git repository if git is installed.
    pub fn create(root: &Path, config: &str) -> Result<Self> {
        let vault = Self::with_root(root)?;
        vault.fs.make_root()?;
        vault.fs.guard_private()?;
        let held = vault.fs.lock()?;
        let config_path: DocPath = layout::CONFIG.parse()?;
        if vault.fs.stat(&config_path)?.is_some() {
            return Err(Error::AlreadyAVault(root.to_owned()));
        }
        let ignore: DocPath = ".gitignore".parse()?;
        if vault.fs.stat(&ignore)?.is_none() {
            vault.fs.replace(&held, &ignore, include_bytes!("gitignore"))?;
        }
        let attributes: DocPath = ".gitattributes".parse()?;
        if vault.fs.stat(&attributes)?.is_none() {
            vault.fs.replace(&held, &attributes, include_bytes!("gitattributes"))?;
        }
        vault.fs.make_folder(&vault.fs.root().join("memory"))?;
        if vault.fs.stat(&vault.ledger)?.is_none() {
            vault.fs.replace(&held, &vault.ledger, b"")?;
        }
        // Last, because this file makes the folder a vault: a crash before it leaves no half-made
        // vault.
        vault.fs.replace(&held, &config_path, config.as_bytes())?;
        drop(held);
        if let Err(error) = git::make_repository(&vault.fs) {
            vault.note_repair(format!("no git repository was created: {error}"));
        }
        Ok(vault)
    }

    /// Opens the vault at `root` and repairs what a crash may have left.
    pub fn open(root: &Path) -> Result<Self> {
        Self::with_root(root)?.finish_open(root)
    }

    /// Like [`Vault::open`] for a caller that cannot wait: what takes longer than about a second
    /// fails as busy.
    pub fn open_with_short_wait(root: &Path) -> Result<Self> {
        let mut vault = Self::with_root(root)?;
        vault.fs = vault.fs.with_short_wait();
        vault.finish_open(root)
    }

    fn finish_open(self, root: &Path) -> Result<Self> {
        let vault = self;
        if vault.fs.stat(&layout::CONFIG.parse()?)?.is_none() {
            return Err(Error::NotAVault(root.to_owned()));
        }
        vault.fs.guard_private()?;
        vault.repair_on_open()?;
        Ok(vault)
    }

    fn with_root(root: &Path) -> Result<Self> {
        index::check_sqlite()?;
        let root = std::path::absolute(root)
            .map_err(|error| vault_fs::io_error("finding", root, error))?;
        Ok(Self {
            fs: VaultFs::new(root),
            ledger: layout::LEDGER.parse()?,
            index: Mutex::new(IndexHandle::Unopened),
            mended: Mutex::default(),
            appending: Mutex::default(),
            search_slot: search::SearchSlot::default(),
        })
    }

    /// The folder of the vault.
    pub fn root(&self) -> &Path {
        self.fs.root()
    }

    fn note_repair(&self, what: String) {
        self.mended.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// Repairs a torn last line of the ledger and removes stale temporary files. A vault that
    /// another process writes to, or that is read-only, stays as it is: readers skip the torn line,
    /// and every writer repairs it once it has the lock. So opening a vault never waits for its
    /// lock.
    fn repair_on_open(&self) -> Result<()> {
        let torn = self.fs.unterminated_line(&self.ledger)?.is_some();
        let lost = git::is_swap_interrupted(&self.fs);
        if !torn && !lost && !self.fs.has_stale_files() {
            return Ok(());
        }
        let mended = match self.fs.try_lock_named("lock") {
            Ok(Some(held)) => {
                for place in self.fs.remove_stale_files(&held) {
                    self.note_repair(format!(
                        "a file that another program saved while icecore was interrupted is in {}",
                        place.display()
                    ));
                }
                git::restore_repository(&self.fs, &held).and_then(|()| self.repair_locked(&held))
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        match mended {
            Err(
                Error::Io { .. }
                | Error::DiskFull { .. }
                | Error::PermissionDenied { .. }
                | Error::NotAFile(_),
            ) => Ok(()),
            other => other,
        }
    }

    fn repair_locked(&self, lock: &WriteLock) -> Result<()> {
        self.repair_tail(lock, &self.ledger)
    }

    /// Moves a torn last line of a file to quarantine; a complete line without a line break gets
    /// one.
    fn repair_tail(&self, lock: &WriteLock, path: &DocPath) -> Result<()> {
        let Some((mut at, mut tail)) = self.fs.unterminated_line(path)? else { return Ok(()) };
        if find_torn_tail(&tail).is_some() {
            let Some(settled) = self.fs.torn_line(lock, path)? else { return Ok(()) };
            (at, tail) = settled;
        }
        if find_torn_tail(&tail).is_none() {
            self.fs.append(lock, path, b"")?;
            self.note_repair(format!("the last line of {path} had no line break; added one"));
            return Ok(());
        }
        let place = self.fs.quarantine_bytes(lock, path, at, &tail)?;
        if !self.fs.cut_tail(lock, path, at, &tail)? {
            // Another program is still writing it.
            return Ok(());
        }
        self.note_repair(format!(
            "a torn last line of {path} ({} bytes) was moved to quarantine: {}",
            tail.len(),
            place.display()
        ));
        Ok(())
    }

    fn index_handle(&self) -> MutexGuard<'_, IndexHandle> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index_path(&self) -> PathBuf {
        self.fs.private("index.db")
    }

    /// Queries the index after it has caught up with the ledger; `None` if it cannot be used. A
    /// damaged index is rebuilt and queried again; one that another process replaced meanwhile is
    /// opened again.
    fn query_index<T>(&self, question: impl Fn(&mut Index) -> SqlResult<T>) -> Result<Option<T>> {
        const ATTEMPTS: usize = 3;
        let mut handle = self.index_handle();
        for attempt in 1..=ATTEMPTS {
            if let IndexHandle::Unopened = *handle {
                let opened = self
                    .fs
                    .make_folder(&self.root().join(layout::PRIVATE))
                    .ok()
                    .map(|()| Index::open(&self.fs, &self.index_path()));
                *handle = match opened {
                    Some(Ok(index)) => IndexHandle::Open(Box::new(index)),
                    Some(Err(error)) if index::is_replaced(&error) && attempt < ATTEMPTS => {
                        continue;
                    }
                    Some(Err(error)) => IndexHandle::Unusable(error.to_string()),
                    None => IndexHandle::Unusable("its folder cannot be created".into()),
                };
            }
            let IndexHandle::Open(index) = &mut *handle else { return Ok(None) };
            let answer = match self.catch_up(index)? {
                Ok(()) => question(index),
                Err(error) => Err(error),
            };
            match answer {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) if index::is_damage(&error) => {
                    let path = index.path().to_owned();
                    *handle = match Index::recreate(&self.fs, &path) {
                        Ok(index) => IndexHandle::Open(Box::new(index)),
                        Err(error) => IndexHandle::Unusable(error.to_string()),
                    };
                }
                Err(error) if index::is_replaced(&error) && attempt < ATTEMPTS => {
                    *handle = IndexHandle::Unopened;
                }
                Err(error) => {
                    *handle = IndexHandle::Unusable(error.to_string());
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    fn catch_up(&self, index: &mut Index) -> Result<SqlResult<()>> {
        let look = self.fs.stat(&self.ledger)?;
        match index.is_current(look) {
            Ok(true) => Ok(Ok(())),
            Ok(false) => index.catch_up(
                || {
                    let look = self.fs.stat(&self.ledger)?;
                    let text = self.fs.read(&self.ledger)?.unwrap_or_default();
                    Ok(CurrentLedger { text, look, spent: self.spent_ids()?, archives: Vec::new() })
                },
                || self.current_archives(),
            ),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Compares the index with one built from the part of the ledger that it covers.
    fn compare_index(&self, index: &Index, temporary: &Path) -> Result<SqlResult<Option<String>>> {
        let mut unread = None;
        let compared = index.in_snapshot(|covered_bytes| {
            // Read after the state of the index was fixed: the ledger has at least what the index
            // covers.
            let text = match self.fs.read(&self.ledger) {
                Ok(text) => text.unwrap_or_default(),
                Err(error) => {
                    unread = Some(error);
                    return Ok(None);
                }
            };
            let covered = usize::try_from(covered_bytes).unwrap_or(usize::MAX).min(text.len());
            let mut fresh = Index::temporary(&self.fs, temporary, &text[..covered])?;
            match self.fill_for_comparison(&index.indexed_files()?, &mut fresh) {
                Ok(filled) => index.first_difference(&fresh, filled?),
                Err(error) => {
                    unread = Some(error);
                    Ok(None)
                }
            }
        });
        unread.map_or(Ok(compared), Err)
    }

    /// The position of the ledger. Changes with every append and with every edit by another
    /// program.
    fn ledger_position(&self) -> Result<Position> {
        Ok(Position(self.fs.stat(&self.ledger)?.map_or(0, |look| look.as_number())))
    }

    /// The ledger with its position. The position is read first: a line that arrives during the
    /// read makes a write against that position fail, never pass.
    fn ledger_text(&self) -> Result<LedgerText> {
        let position = self.ledger_position()?;
        Ok(LedgerText { bytes: self.fs.read(&self.ledger)?.unwrap_or_default(), position })
    }

    fn read_ledger(&self) -> Result<(Ledger, Position)> {
        let LedgerText { bytes, position } = self.ledger_text()?;
        Ok((Ledger::parse(&bytes, None), position))
    }

    /// Assigns ids to drafts: the next numbers of their days. Needs the lock, so that no other
    /// process assigns the same.
    fn assign_ids(&self, drafts: Vec<EventDraft>) -> Result<Vec<Event>> {
        let days = ledger_view::draft_days(&drafts);
        let known = self.query_index(|index| {
            days.iter().map(|&day| index.highest_number(day)).collect::<SqlResult<Vec<u32>>>()
        })?;
        let highest = match known {
            Some(highest) => highest,
            None => {
                let (ledger, _) = self.read_ledger()?;
                let archived = self.all_archived_events()?;
                let events = ledger.entries().iter().chain(&archived).map(|entry| entry.event.id);
                ledger_view::highest_numbers(&days, events.chain(self.spent_ids()?))
            }
        };
        ledger_view::assign_ids(drafts, &days, highest)
    }

    /// Ids of lost events, which must not be assigned again.
    fn spent_ids(&self) -> Result<Vec<EventId>> {
        let report = self.fs.read(&layout::INTEGRITY.parse()?)?.unwrap_or_default();
        Ok(integrity::parse_known_gaps(&report).into_iter().collect())
    }

    fn append_ledger_text(&self, lock: &WriteLock, text: &[u8]) -> Result<()> {
        let (start, look) = self.fs.append(lock, &self.ledger, text)?;
        // The lines are safe. If the index cannot cover them now, it does at its next opening.
        if let (Some(look), IndexHandle::Open(index)) = (look, &mut *self.index_handle()) {
            let _ = index.add_own_events(start, text, look);
        }
        Ok(())
    }

    /// The lock for a document. Conversations have their own locks, so that they wait neither for
    /// each other nor for the ledger; nothing written under the vault's lock touches them.
    fn lock_document(&self, path: &DocPath) -> Result<WriteLock> {
        let mut parts = path.as_str().split('/');
        match (parts.next(), parts.next()) {
            (Some("conversations"), Some(folder)) => {
                let share = Hash::of(folder.as_bytes()).as_bytes()[0] % CONVERSATION_LOCK_COUNT;
                self.fs.lock_named(&format!("conversations-{share}.lock"))
            }
            _ => self.lock_and_repair(),
        }
    }

    /// The vault's lock and that of the document: a file that is being swapped must not be removed
    /// as stale.
    fn lock_for_swap(&self, path: &DocPath) -> Result<(WriteLock, Option<WriteLock>)> {
        let held = self.lock_and_repair()?;
        let conversation = if path.as_str().starts_with("conversations/") {
            Some(self.lock_document(path)?)
        } else {
            None
        };
        Ok((held, conversation))
    }

    /// Replaces the ledger if it is still at `at`. A line that another program appends at the last
    /// moment is not lost.
    fn replace_ledger_at(&self, lock: &WriteLock, text: &[u8], at: Position) -> Result<()> {
        let look = self.fs.stat(&self.ledger)?;
        if Position(look.map_or(0, |look| look.as_number())) != at {
            return Err(Error::Conflict { what: self.ledger.to_string() });
        }
        let expected = look.map_or(Expected::Content(ContentVersion::ABSENT), Expected::Stat);
        self.fs.replace_if(lock, &self.ledger, text, &expected)
    }

    fn lock_and_repair(&self) -> Result<WriteLock> {
        let held = self.fs.lock()?;
        self.repair_locked(&held)?;
        Ok(held)
    }

    /// The matching entries by way of the index; `None` if it cannot tell.
    fn indexed_entries(&self, which: &EventQuery) -> Result<Option<Vec<LedgerEntry>>> {
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
    fn ledger_events_at(
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
    fn ledger_lines_at(&self, places: &[(u64, usize)]) -> Result<Option<Vec<Vec<u8>>>> {
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
}

#[async_trait]
impl LeaseHandle for WriteLock {
    async fn is_held(&self) -> Result<bool> {
        // The system ends the lock only together with its holder.
        Ok(true)
    }
}

#[async_trait]
impl Store for Vault {
    async fn append(&self, drafts: Vec<EventDraft>, after: Option<Position>) -> Result<Vec<Event>> {
        let held = self.lock_and_repair()?;
        if let Some(after) = after
            && self.ledger_position()? != after
        {
            return Err(Error::Conflict { what: self.ledger.to_string() });
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
        self.archive_lines(archives, ledger, at)
    }

    async fn archived_events(&self, which: &EventQuery) -> Result<Vec<Event>> {
        self.query_archived_events(which)
    }

    async fn linked_events(&self, ids: &[EventId], about: &[&str]) -> Result<Vec<Event>> {
        self.query_linked_events(ids, about)
    }

    async fn entities(&self) -> Result<Vec<String>> {
        if let Some(entities) = self.query_index(|index| index.entities())? {
            return Ok(entities);
        }
        Ok(ledger_view::entities(&self.read_ledger()?.0, self.all_archived_events()?.iter()))
    }

    async fn events(&self, which: &EventQuery) -> Result<EventSelection> {
        let position = self.ledger_position()?;
        if let Some(entries) = self.indexed_entries(which)? {
            return Ok(EventSelection { entries, position });
        }
        let (ledger, position) = self.read_ledger()?;
        Ok(EventSelection {
            entries: which.select(ledger.entries()).into_iter().cloned().collect(),
            position,
        })
    }

    async fn position(&self) -> Result<Position> {
        self.ledger_position()
    }

    async fn count_statements(&self) -> Result<Vec<StatementCount>> {
        let mut counts = match self.query_index(|index| index.count_statements())? {
            Some(counts) => counts,
            None => ledger_view::count_statements(&self.read_ledger()?.0),
        };
        counts.sort_by_key(|count| (count.kind, count.priority, count.state));
        Ok(counts)
    }

    async fn contested_claims(&self) -> Result<Vec<(EventId, Claim)>> {
        match self.query_index(|index| index.contested_claims())? {
            Some(claims) => Ok(claims),
            None => {
                Ok(ledger_view::AttributeClaims::default().contested_claims(&self.read_ledger()?.0))
            }
        }
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

    async fn document(&self, path: &DocPath) -> Result<Option<Vec<u8>>> {
        self.fs.read(path)
    }

    async fn document_len(&self, path: &DocPath) -> Result<u64> {
        Ok(self.fs.stat(path)?.map_or(0, |look| look.len))
    }

    async fn put(&self, path: &DocPath, bytes: &[u8]) -> Result<()> {
        let held = self.lock_document(path)?;
        self.fs.replace(&held, path, bytes)
    }

    async fn put_many(&self, documents: &[(DocPath, Vec<u8>)]) -> Result<()> {
        let held = self.lock_and_repair()?;
        self.fs.replace_many(&held, documents)
    }

    async fn compare_and_swap(
        &self,
        path: &DocPath,
        bytes: &[u8],
        from: ContentVersion,
    ) -> Result<()> {
        let (held, _conversation) = self.lock_for_swap(path)?;
        self.fs.replace_if(&held, path, bytes, &Expected::Content(from))
    }

    async fn compare_and_swap_many(&self, replacements: &[Replacement]) -> Result<Vec<DocPath>> {
        let held = self.lock_and_repair()?;
        let expected = |one: &Replacement| Expected::Content(one.from);
        let documents: Vec<_> = replacements
            .iter()
            .map(|one| (&one.path, one.bytes.as_slice(), expected(one)))
            .collect();
        let changed = self.fs.replace_many_if(&held, &documents)?;
        Ok(changed.into_iter().map(|at| replacements[at].path.clone()).collect())
    }

    async fn append_if_unchanged(
        &self,
        path: &DocPath,
        bytes: &[u8],
        from: ContentVersion,
    ) -> Result<()> {
        let held = self.lock_document(path)?;
        let moved = || Error::Conflict { what: path.to_string() };
        if ContentVersion::of(self.fs.read(path)?.as_deref()) != from {
            return Err(moved());
        }
        self.fs.try_append(&held, path, bytes)?.map(|_| ()).ok_or_else(moved)
    }

    async fn append_to_document(&self, path: &DocPath, bytes: &[u8]) -> Result<()> {
        let held = self.lock_document(path)?;
        self.fs.append(&held, path, bytes).map(|_| ())
    }

    async fn remove_unchanged(&self, path: &DocPath, from: ContentVersion) -> Result<()> {
        let (held, _conversation) = self.lock_for_swap(path)?;
        self.fs.remove_if(&held, path, &Expected::Content(from))
    }

    async fn remove(&self, path: &DocPath) -> Result<()> {
        let held = self.lock_document(path)?;
        self.fs.remove(&held, path)
    }

    async fn remove_empty_folder(&self, path: &DocPath) -> Result<()> {
        let held = self.lock_and_repair()?;
        self.fs.remove_folder(&held, path)
    }

    async fn documents(&self, under: &str) -> Result<Vec<DocPath>> {
        let mut found = self.fs.documents(under)?;
        found.retain(|path| path.file_kind() != FileKind::Ledger);
        Ok(found)
    }

    async fn document_sizes(&self, under: &str) -> Result<Vec<(DocPath, u64)>> {
        let size = |path: DocPath| Ok(self.fs.stat(&path)?.map(|look| (path, look.len)));
        self.documents(under).await?.into_iter().filter_map(|path| size(path).transpose()).collect()
    }

    async fn list(&self, under: &str) -> Result<Vec<DocumentStat>> {
        let mut found = Vec::new();
        for path in self.fs.documents(under)? {
            if let Some(look) = self.fs.stat(&path)? {
                found.push(DocumentStat {
                    bytes: look.len,
                    changed: look.modified_at(),
                    stamp: Stamp(look.stamp()),
                    path,
                });
            }
        }
        Ok(found)
    }

    async fn stamps(&self, paths: &[DocPath]) -> Result<Vec<Option<Stamp>>> {
        paths.iter().map(|path| Ok(self.fs.stat(path)?.map(|look| Stamp(look.stamp())))).collect()
    }

    async fn disk_usage(&self) -> Result<Vec<DiskUsage>> {
        self.fs.disk_usage()
    }

    async fn read_tail(&self, path: &DocPath, bytes: u64) -> Result<(Vec<u8>, bool)> {
        let length = self.fs.stat(path)?.map_or(0, |look| look.len);
        if length <= bytes {
            return Ok((self.fs.read(path)?.unwrap_or_default(), true));
        }
        let piece = (length - bytes, usize::try_from(bytes).unwrap_or(usize::MAX));
        let mut text = self.fs.read_pieces(path, &[piece])?.pop().unwrap_or_default();
        let whole = memchr::memchr(b'\n', &text).map_or(text.len(), |at| at + 1);
        Ok((text.split_off(whole), false))
    }

    async fn add_records(&self, records: Vec<Record>) -> Result<AddReport> {
        self.write_records(records)
    }

    async fn contains_records(&self, keys: &[RecordKey]) -> Result<Vec<bool>> {
        self.query_known_records(keys)
    }

    async fn records(&self, days: Days) -> Result<Vec<Record>> {
        self.read_days(days)
    }

    async fn recent_records(&self, conversation: &str, most: usize) -> Result<Vec<Record>> {
        self.read_recent_records(conversation, most)
    }

    async fn conversation_digest(&self, conversation: &str, days: Days) -> Result<RecordSetDigest> {
        self.read_digest(conversation, days)
    }

    async fn forget_records(&self, days: Days, conversation: &str) -> Result<usize> {
        self.remove_records(days, conversation)
    }

    async fn scrub(&self, scrub: &Scrub, dry: bool) -> Result<Vec<ScrubbedFile>> {
        self.scrub_files(scrub, dry)
    }

    async fn sessions(&self, days: Option<Days>) -> Result<Vec<SessionStats>> {
        self.query_sessions(days)
    }

    async fn record_days(&self) -> Result<Vec<jiff::civil::Date>> {
        self.list_record_days()
    }

    async fn bad_records(&self) -> Result<Vec<(DocPath, BadRecordLine)>> {
        self.invalid_record_lines()
    }

    async fn add_summaries(
        &self,
        summaries: &[Summary],
        after: Option<Position>,
    ) -> Result<Position> {
        self.write_summaries(summaries, after)
    }

    async fn summary_heads(&self, which: &SummaryQuery) -> Result<(Vec<SummaryHead>, Position)> {
        self.query_heads(which)
    }

    async fn summaries(&self, which: &SummaryQuery) -> Result<Vec<Summary>> {
        self.query_summaries(which)
    }

    async fn event_days(&self) -> Result<Vec<(jiff::civil::Date, usize)>> {
        if let Some(days) = self.query_index(|index| index.event_days())? {
            return Ok(days);
        }
        Ok(ledger_view::event_days(&self.read_ledger()?.0, self.all_archived_events()?.iter()))
    }

    async fn cached_answer(&self, question: Hash) -> Result<Option<Vec<u8>>> {
        self.fs.read_answer(question)
    }

    async fn cache_answer(&self, question: Hash, answer: &[u8]) -> Result<()> {
        let held = self.lock_and_repair()?;
        self.fs.write_answer(&held, question, answer)
    }

    async fn note(&self, name: &DocPath) -> Result<Option<Vec<u8>>> {
        self.fs.read_note(name)
    }

    async fn put_note(&self, name: &DocPath, bytes: &[u8]) -> Result<()> {
        self.fs.put_note(name, bytes)
    }

    async fn append_note(
        &self,
        name: &DocPath,
        line: &str,
        most_bytes: u64,
        flush: bool,
    ) -> Result<()> {
        self.fs.append_note(name, line.as_bytes(), most_bytes, flush)
    }

    async fn notes(&self, folder: &DocPath) -> Result<Vec<(DocPath, i64)>> {
        self.fs.notes(folder)
    }

    async fn remove_note(&self, name: &DocPath) -> Result<()> {
        self.fs.remove_note(name)
    }

    async fn marker_key(&self) -> Result<Option<MarkerKey>> {
        self.fs.read_marker_key()
    }

    async fn set_marker_key(&self, key: &MarkerKey, replace: bool) -> Result<MarkerKey> {
        self.fs.set_marker_key(key, replace)
    }

    async fn begin_restore(&self) -> Result<RestoreTarget> {
        let note: DocPath = RESTORE_NOTE.parse()?;
        let ground = match self.note(&note).await? {
            Some(_) => RestoreTarget::Unfinished,
            None => RestoreTarget::from_documents(&self.list("").await?),
        };
        if ground == RestoreTarget::New {
            self.put_note(&note, b"begun\n").await?;
        }
        Ok(ground)
    }

    async fn finish_restore(&self) -> Result<()> {
        self.remove_note(&RESTORE_NOTE.parse()?).await
    }

    async fn abort_restore(&self) -> Result<()> {
        // The note stays: it marks the memory as incomplete.
        Ok(())
    }

    async fn acquire_lease(&self, work: &str) -> Result<Option<Lease>> {
        Ok(self.fs.try_lock_named(&format!("{work}.lock"))?.map(|held| Lease(Box::new(held))))
    }

    async fn changed_since_seen(&self, paths: &[DocPath]) -> Result<Vec<(DocPath, Stamp)>> {
        let looks = self.fs.stat_all(paths)?;
        let there = paths
            .iter()
            .zip(looks)
            .filter_map(|(path, look)| Some((path.clone(), Stamp(look?.stamp()))));
        let mut found: Vec<(DocPath, Stamp)> = there.collect();
        if found.is_empty() {
            return Ok(found);
        }
        let paths: Vec<&DocPath> = found.iter().map(|(path, _)| path).collect();
        let seen = self.query_index(|index| index.seen_stamps(&paths))?;
        if let Some(seen) = seen {
            let mut seen = seen.into_iter();
            found.retain(|(_, stamp)| seen.next().flatten().as_ref() != Some(stamp));
        }
        Ok(found)
    }

    async fn removed_since_seen(&self, under: &str) -> Result<Vec<DocPath>> {
        let mut gone = Vec::new();
        let looked_at = self.query_index(|index| index.seen_documents(under))?.unwrap_or_default();
        // Listing a folder is cheaper than a stat of each file; only files missing in the list are
        // checked.
        let listed: HashSet<String> =
            self.fs.documents(under)?.into_iter().map(|path| path.to_string()).collect();
        for path in looked_at.iter().filter(|path| !listed.contains(*path)) {
            let path: DocPath = path.parse()?;
            if self.fs.stat(&path)?.is_none() {
                self.query_index(|index| index.forget_seen(&path))?;
                gone.push(path);
            }
        }
        Ok(gone)
    }

    async fn mark_seen(&self, seen: &[(DocPath, Stamp)]) -> Result<()> {
        if !seen.is_empty() {
            self.query_index(|index| index.put_seen(seen))?;
        }
        Ok(())
    }

    async fn inspect(&self) -> Result<Vec<IntegrityFinding>> {
        let mut found = Vec::new();
        let say = |what: String| IntegrityFinding::failure(IntegrityCheck::Index, what);
        let path = self.index_path();
        let existed = path.exists();
        let current = self.query_index(|index| index.find_damage())?;
        match current {
            _ if !existed => found.push(IntegrityFinding::warning(
                IntegrityCheck::Index,
                "there was no index; it was built from the files",
            )),
            None => {
                let why = match &*self.index_handle() {
                    IndexHandle::Unusable(why) => why.clone(),
                    _ => "rebuilding it failed".into(),
                };
                found.push(say(format!(
                    "the index cannot be used: {why}. Everything works without it, only slower"
                )));
            }
            Some(Some(wrong)) => found.push(say(format!(
                "the index is damaged: {wrong}. Rebuild it with `icecore vault reindex`"
            ))),
            Some(None) => {}
        }
        if let Some(wrong) = self.check_search_index()? {
            found.push(say(format!(
                "the search index is damaged: {wrong}. Rebuild it with `icecore vault reindex`"
            )));
        }
        // Builds an index from the files in a temporary file and compares row by row. The lock
        // allows one comparison at a time, so that the file of a dead one can be overwritten;
        // writers go on meanwhile.
        let _alone = self.fs.lock_named("check.lock")?;
        let temporary = self.fs.private("check.db");
        let compared = match &*self.index_handle() {
            IndexHandle::Open(index) => self.compare_index(index, &temporary)?,
            IndexHandle::Unopened | IndexHandle::Unusable(_) => Ok(None),
        };
        self.fs.remove_index(&temporary);
        match compared {
            Ok(None) => {}
            Ok(Some(difference)) => found.push(say(format!("the index differs from the files ({difference}). Rebuild it with `icecore vault reindex`"))),
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => return Err(Error::DiskFull { path: temporary }),
            Err(error) => {
                found.push(say(format!("the index could not be compared with the files: {error}. Rebuild it with `icecore vault reindex`")))
            }
        }
        Ok(found)
    }

    async fn rebuild(&self, progress: Progress<'_>) -> Result<usize> {
        let held = self.lock_and_repair()?;
        let mut handle = self.index_handle();
        *handle = IndexHandle::Unopened;
        self.fs.make_folder(&self.fs.private(""))?;
        let unusable = |error: rusqlite::Error| Error::Index(error.to_string());
        // A sound file is refilled in one transaction, so that other processes never see half of
        // it; only a broken one is deleted.
        let path = self.index_path();
        let sound = Index::open(&self.fs, &path)
            .ok()
            .filter(|index| index.find_damage().is_ok_and(|wrong| wrong.is_none()));
        let mut index = match sound {
            Some(index) => index,
            None => Index::recreate(&self.fs, &path).map_err(unusable)?,
        };
        let look = self.fs.stat(&self.ledger)?;
        let text = self.fs.read(&self.ledger)?.unwrap_or_default();
        let current = CurrentLedger {
            text,
            look,
            spent: self.spent_ids()?,
            archives: self.current_archives()?,
        };
        let events = index.rebuild(&current, progress).map_err(unusable)?;
        let mut files = self.record_files()?;
        files.push(layout::SUMMARIES.parse()?);
        files.extend(current.archives.iter().map(|(path, _)| path.clone()));
        let unread = std::cell::RefCell::new(None);
        let read = |path: &DocPath| {
            self.current_file(path).map_err(|error| {
                *unread.borrow_mut() = Some(error);
                rusqlite::Error::ExecuteReturnedResults
            })
        };
        let taken = index.reindex_files(&files, read, progress);
        if let Some(error) = unread.into_inner() {
            return Err(error);
        }
        // If another process rebuilt the index meanwhile, the next query indexes what is missing.
        if let Err(error) = taken
            && !index::is_replaced(&error)
        {
            return Err(unusable(error));
        }
        *handle = IndexHandle::Open(Box::new(index));
        drop(held);
        Ok(events)
    }

    async fn opening_repairs(&self) -> Vec<String> {
        self.mended.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
