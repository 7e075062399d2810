//! The vault: memory as a folder of Markdown and JSONL files for people, agents and git.
//!
//! The files are the source of truth. The index beside them is derived: every query works without
//! it, only slower, so a broken or missing index never stops a read or a write.

pub(crate) mod door;
mod git;
mod index;
mod keep;
mod scrub;
mod search;

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use icecore_domain::calendar::{Days, Moment};
use icecore_domain::event::{Draft, Event};
use icecore_domain::forget::Scrub;
use icecore_domain::format::line;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath, Nature};
use icecore_domain::ledger::conflict::Claim;
use icecore_domain::ledger::integrity::{self, Check, Finding};
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::ledger::{Entry, Ledger, LineFault, torn_tail};
use icecore_domain::record::{BadLine, Digest, Key, Record, SessionStat};
use icecore_domain::secrets::MarkerKey;
use icecore_domain::summary::{Head, Summary, SummaryQuery};

pub use self::git::merge_lines;

use self::door::{Door, Expected, Held};
use self::index::{Current, Index, Outcome, Row};
use crate::folded;
use crate::{
    Added, Claimed, ContentVersion, Count, Error, Found, Ground, Hold, LedgerText, Looked,
    Position, Progress, Replacement, Result, Scrubbed, Stamp, Store, Weight,
};

/// The number of rows per page when only the newest events are wanted.
const PIECES: usize = 200;
/// The note that marks an unfinished restore.
const FILLING: &str = "filling";
/// The number of locks that all conversations share.
const CONVERSATION_LOCKS: u8 = 16;
/// The number of bytes that can be read in the time of one more call.
const BYTES_PER_CALL: u64 = 4 * 1024;

/// An open vault.
pub struct Vault {
    door: Door,
    ledger: DocPath,
    index: Mutex<Handle>,
    mended: Mutex<Vec<String>>,
    /// Record files that this process is appending to.
    appending: Mutex<BTreeSet<DocPath>>,
    shelf: search::Shelf,
}

/// The index, opened on first use.
enum Handle {
    Unopened,
    Open(Box<Index>),
    /// It cannot be opened, such as on a full or read-only disk. Queries use the files.
    Unusable(String),
}

impl Vault {
    /// Creates a vault in `root`, which may exist but must not be a vault, with `config` as its
    /// `icecore.toml`. Makes it a git repository if git is installed.
    pub fn create(root: &Path, config: &str) -> Result<Self> {
        let vault = Self::at(root)?;
        vault.door.make_root()?;
        vault.door.guard_private()?;
        let held = vault.door.lock()?;
        let config_path: DocPath = layout::CONFIG.parse()?;
        if vault.door.look(&config_path)?.is_some() {
            return Err(Error::AlreadyAVault(root.to_owned()));
        }
        let ignore: DocPath = ".gitignore".parse()?;
        if vault.door.look(&ignore)?.is_none() {
            vault.door.replace(&held, &ignore, include_bytes!("gitignore"))?;
        }
        let attributes: DocPath = ".gitattributes".parse()?;
        if vault.door.look(&attributes)?.is_none() {
            vault.door.replace(&held, &attributes, include_bytes!("gitattributes"))?;
        }
        vault.door.make_folder(&vault.door.root().join("memory"))?;
        if vault.door.look(&vault.ledger)?.is_none() {
            vault.door.replace(&held, &vault.ledger, b"")?;
        }
        // Last, because this file makes the folder a vault: a crash before it leaves no half-made
        // vault.
        vault.door.replace(&held, &config_path, config.as_bytes())?;
        drop(held);
        if let Err(error) = git::make_repository(&vault.door) {
            vault.tell(format!("no git repository was created: {error}"));
        }
        Ok(vault)
    }

    /// Opens the vault at `root` and repairs what a crash may have left.
    pub fn open(root: &Path) -> Result<Self> {
        Self::at(root)?.opened(root)
    }

    /// Like [`Vault::open`] for a caller that cannot wait: what takes longer than about a second
    /// fails as busy.
    pub fn open_hurried(root: &Path) -> Result<Self> {
        let mut vault = Self::at(root)?;
        vault.door = vault.door.hurried();
        vault.opened(root)
    }

    fn opened(self, root: &Path) -> Result<Self> {
        let vault = self;
        if vault.door.look(&layout::CONFIG.parse()?)?.is_none() {
            return Err(Error::NotAVault(root.to_owned()));
        }
        vault.door.guard_private()?;
        vault.mend()?;
        Ok(vault)
    }

    fn at(root: &Path) -> Result<Self> {
        index::check_sqlite()?;
        let root =
            std::path::absolute(root).map_err(|error| door::fault("finding", root, error))?;
        Ok(Self {
            door: Door::new(root),
            ledger: layout::LEDGER.parse()?,
            index: Mutex::new(Handle::Unopened),
            mended: Mutex::default(),
            appending: Mutex::default(),
            shelf: search::Shelf::default(),
        })
    }

    /// The folder of the vault.
    pub fn root(&self) -> &Path {
        self.door.root()
    }

    fn tell(&self, what: String) {
        self.mended.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// Repairs a torn last line of the ledger and removes stale temporary files. A vault that
    /// another process writes to, or that is read-only, stays as it is: readers skip the torn line,
    /// and every writer repairs it once it has the lock. So opening a vault never waits for its
    /// lock.
    fn mend(&self) -> Result<()> {
        let torn = self.door.unfinished_line(&self.ledger)?.is_some();
        let lost = git::is_lost(&self.door);
        if !torn && !lost && !self.door.has_stale_files() {
            return Ok(());
        }
        let mended = match self.door.try_lock_by("lock") {
            Ok(Some(held)) => {
                for place in self.door.sweep(&held) {
                    self.tell(format!(
                        "a file that another program saved while icecore was interrupted is in {}",
                        place.display()
                    ));
                }
                git::bring_back(&self.door, &held).and_then(|()| self.mend_under(&held))
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        match mended {
            Err(
                Error::Io { .. } | Error::Full { .. } | Error::Denied { .. } | Error::NotAFile(_),
            ) => Ok(()),
            other => other,
        }
    }

    fn mend_under(&self, held: &Held) -> Result<()> {
        self.mend_file(held, &self.ledger)
    }

    /// Moves a torn last line of a file to quarantine; a complete line without a line break gets
    /// one.
    fn mend_file(&self, held: &Held, path: &DocPath) -> Result<()> {
        let Some((mut at, mut tail)) = self.door.unfinished_line(path)? else { return Ok(()) };
        if torn_tail(&tail).is_some() {
            let Some(settled) = self.door.settled_line(held, path)? else { return Ok(()) };
            (at, tail) = settled;
        }
        if torn_tail(&tail).is_none() {
            self.door.append(held, path, b"")?;
            self.tell(format!("the last line of {path} had no line break; added one"));
            return Ok(());
        }
        let place = self.door.set_aside(held, path, at, &tail)?;
        if !self.door.cut_tail(held, path, at, &tail)? {
            // Another program is still writing it.
            return Ok(());
        }
        self.tell(format!(
            "a torn last line of {path} ({} bytes) was moved to quarantine: {}",
            tail.len(),
            place.display()
        ));
        Ok(())
    }

    fn handle(&self) -> MutexGuard<'_, Handle> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index_path(&self) -> PathBuf {
        self.door.private("index.db")
    }

    /// Queries the index after it has caught up with the ledger; `None` if it cannot be used. A
    /// damaged index is rebuilt and queried again.
    fn ask<T>(&self, question: impl Fn(&mut Index) -> Outcome<T>) -> Result<Option<T>> {
        let mut handle = self.handle();
        for _ in 0..2 {
            if let Handle::Unopened = *handle {
                let opened = self
                    .door
                    .make_folder(&self.root().join(layout::PRIVATE))
                    .ok()
                    .map(|()| Index::open(&self.door, &self.index_path()));
                *handle = match opened {
                    Some(Ok(index)) => Handle::Open(Box::new(index)),
                    Some(Err(error)) => Handle::Unusable(error.to_string()),
                    None => Handle::Unusable("its folder cannot be created".into()),
                };
            }
            let Handle::Open(index) = &mut *handle else { return Ok(None) };
            let answer = match self.catch_up(index)? {
                Ok(()) => question(index),
                Err(error) => Err(error),
            };
            match answer {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) if index::is_damage(&error) => {
                    let path = index.path().to_owned();
                    *handle = match Index::anew(&self.door, &path) {
                        Ok(index) => Handle::Open(Box::new(index)),
                        Err(error) => Handle::Unusable(error.to_string()),
                    };
                }
                Err(error) => {
                    *handle = Handle::Unusable(error.to_string());
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    fn catch_up(&self, index: &mut Index) -> Result<Outcome<()>> {
        let look = self.door.look(&self.ledger)?;
        match index.is_current(look) {
            Ok(true) => Ok(Ok(())),
            Ok(false) => index.catch_up(
                || {
                    let look = self.door.look(&self.ledger)?;
                    let text = self.door.read(&self.ledger)?.unwrap_or_default();
                    Ok(Current { text, look, spent: self.spent()?, archives: Vec::new() })
                },
                || self.archives_now(),
            ),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Compares the index with one built from the part of the ledger that it covers.
    fn compare(&self, index: &Index, temporary: &Path) -> Result<Outcome<Option<String>>> {
        let mut unread = None;
        let compared = index.as_of_now(|covered_bytes| {
            // Read after the state of the index was fixed: the ledger has at least what the index
            // covers.
            let text = match self.door.read(&self.ledger) {
                Ok(text) => text.unwrap_or_default(),
                Err(error) => {
                    unread = Some(error);
                    return Ok(None);
                }
            };
            let covered = usize::try_from(covered_bytes).unwrap_or(usize::MAX).min(text.len());
            let mut fresh = Index::temporary(&self.door, temporary, &text[..covered])?;
            match self.fill_like(&index.taken()?, &mut fresh) {
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
        Ok(Position(self.door.look(&self.ledger)?.map_or(0, |look| look.mark())))
    }

    /// The ledger with its position. The position is read first: a line that arrives during the
    /// read makes a write against that position fail, never pass.
    fn ledger_text(&self) -> Result<LedgerText> {
        let position = self.ledger_position()?;
        Ok(LedgerText { bytes: self.door.read(&self.ledger)?.unwrap_or_default(), position })
    }

    fn whole_ledger(&self) -> Result<(Ledger, Position)> {
        let LedgerText { bytes, position } = self.ledger_text()?;
        Ok((Ledger::read(&bytes, None), position))
    }

    /// Assigns ids to drafts: the next numbers of their days. Needs the lock, so that no other
    /// process assigns the same.
    fn number(&self, drafts: Vec<Draft>) -> Result<Vec<Event>> {
        let days = folded::days_of(&drafts);
        let known = self.ask(|index| {
            days.iter().map(|&day| index.highest(day)).collect::<Outcome<Vec<u32>>>()
        })?;
        let highest = match known {
            Some(highest) => highest,
            None => {
                let (ledger, _) = self.whole_ledger()?;
                let archived = self.events_in_archives()?;
                let events = ledger.entries().iter().chain(&archived).map(|entry| entry.event.id);
                folded::highest(&days, events.chain(self.spent()?))
            }
        };
        folded::numbered(drafts, &days, highest)
    }

    /// Ids of lost events, which must not be assigned again.
    fn spent(&self) -> Result<Vec<EventId>> {
        let report = self.door.read(&layout::INTEGRITY.parse()?)?.unwrap_or_default();
        Ok(integrity::known_gaps(&report).into_iter().collect())
    }

    fn append_text(&self, held: &Held, text: &[u8]) -> Result<()> {
        let (start, look) = self.door.append(held, &self.ledger, text)?;
        // The lines are safe. If the index cannot cover them now, it does at its next opening.
        if let (Some(look), Handle::Open(index)) = (look, &mut *self.handle()) {
            let _ = index.take_in_own(start, text, look);
        }
        Ok(())
    }

    /// The lock for a document. Conversations have their own locks, so that they wait neither for
    /// each other nor for the ledger; nothing written under the vault's lock touches them.
    fn locked_for(&self, path: &DocPath) -> Result<Held> {
        let mut parts = path.as_str().split('/');
        match (parts.next(), parts.next()) {
            (Some("conversations"), Some(folder)) => {
                let share = Hash::of(folder.as_bytes()).bytes()[0] % CONVERSATION_LOCKS;
                self.door.lock_by(&format!("conversations-{share}.lock"))
            }
            _ => self.locked(),
        }
    }

    /// The vault's lock and that of the document: a file that is being swapped must not be removed
    /// as stale.
    fn locked_to_swap(&self, path: &DocPath) -> Result<(Held, Option<Held>)> {
        let held = self.locked()?;
        let conversation = if path.as_str().starts_with("conversations/") {
            Some(self.locked_for(path)?)
        } else {
            None
        };
        Ok((held, conversation))
    }

    /// Replaces the ledger if it is still at `at`. A line that another program appends at the last
    /// moment is not lost.
    fn replace_ledger_at(&self, held: &Held, text: &[u8], at: Position) -> Result<()> {
        let look = self.door.look(&self.ledger)?;
        if Position(look.map_or(0, |look| look.mark())) != at {
            return Err(Error::Moved { what: self.ledger.to_string() });
        }
        let expected = look.map_or(Expected::Content(ContentVersion::ABSENT), Expected::Look);
        self.door.replace_if(held, &self.ledger, text, &expected)
    }

    fn locked(&self) -> Result<Held> {
        let held = self.door.lock()?;
        self.mend_under(&held)?;
        Ok(held)
    }

    /// The matching entries by way of the index; `None` if it cannot tell.
    fn entries(&self, which: &EventQuery) -> Result<Option<Vec<Entry>>> {
        let mut found = Vec::new();
        // With a limit, read page by page from the newest; without one, everything at once.
        let size = which.limit.map_or(PIECES, |limit| limit.saturating_mul(4).clamp(8, PIECES));
        let mut page = which.limit.filter(|_| !which.weightiest).map(|_| (i64::MAX, size));
        let mut looked_at = 0;
        loop {
            let Some(rows) = self.ask(|index| index.candidates(which, page))? else {
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
                let Some(lines) = self.lines_at(&places)? else { return Ok(None) };
                for (row, line) in first.iter().zip(lines) {
                    // The line changed meanwhile; use the files.
                    let Some(entry) = entry_of(row, &line) else { return Ok(None) };
                    if which.admits(&entry) {
                        found.push(entry);
                    }
                }
                rest = later;
            }
            let enough = which.limit.is_none_or(|limit| found.len() >= limit);
            match rows.last() {
                Some(last) if !enough && page.is_some_and(|(_, many)| rows.len() == many) => {
                    page = Some((last.seq, PIECES))
                }
                _ => break,
            }
        }
        if which.weightiest {
            found.sort_by_key(|entry| entry.line);
            let chosen: Vec<Entry> = which.choose(&found).into_iter().cloned().collect();
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
    fn events_at(&self, places: &[(u64, usize)], ids: &[EventId]) -> Result<Option<Vec<Event>>> {
        let Some(lines) = self.lines_at(places)? else { return Ok(None) };
        let mut wanted: HashSet<EventId> = ids.iter().copied().collect();
        let mut events = Vec::with_capacity(lines.len());
        for line in &lines {
            let parsed = line::parse(line).events;
            // The line changed meanwhile.
            if !parsed.iter().any(|event| ids.binary_search(&event.id).is_ok()) {
                return Ok(None);
            }
            events.extend(parsed.into_iter().filter(|event| wanted.remove(&event.id)));
        }
        Ok(Some(events))
    }

    /// The lines of the ledger at these places; `None` if they moved.
    fn lines_at(&self, places: &[(u64, usize)]) -> Result<Option<Vec<Vec<u8>>>> {
        // Reading single lines costs a call each, reading the whole ledger costs its length.
        let length = self.door.look(&self.ledger)?.map_or(0, |look| look.len);
        if places.len() <= PIECES || places.len() as u64 * BYTES_PER_CALL < length {
            return Ok(self.door.read_pieces(&self.ledger, places).ok());
        }
        let text = self.door.read(&self.ledger)?.unwrap_or_default();
        let piece = |&(offset, length): &(u64, usize)| {
            let offset = usize::try_from(offset).unwrap_or(usize::MAX);
            text.get(offset..offset.saturating_add(length)).map(<[u8]>::to_vec)
        };
        Ok(places.iter().map(piece).collect())
    }
}

#[async_trait]
impl Hold for Held {
    async fn is_held(&self) -> Result<bool> {
        // The system ends the lock only together with its holder.
        Ok(true)
    }
}

#[async_trait]
impl Store for Vault {
    async fn append(&self, drafts: Vec<Draft>, after: Option<Position>) -> Result<Vec<Event>> {
        let held = self.locked()?;
        if let Some(after) = after
            && self.ledger_position()? != after
        {
            return Err(Error::Moved { what: self.ledger.to_string() });
        }
        let events = self.number(drafts)?;
        let lines = folded::lines(&events)?;
        self.append_text(&held, lines.as_bytes())?;
        Ok(events)
    }

    async fn append_lines(&self, lines: &[u8]) -> Result<()> {
        let held = self.locked()?;
        let ended = if lines.ends_with(b"\n") { lines.to_vec() } else { [lines, b"\n"].concat() };
        self.append_text(&held, &ended)
    }

    async fn ledger(&self) -> Result<LedgerText> {
        self.ledger_text()
    }

    async fn replace_ledger(&self, text: &[u8], at: Position) -> Result<()> {
        let held = self.locked()?;
        self.replace_ledger_at(&held, text, at)?;
        // The caller decided what the ledger contains. Lost ids stay spent.
        self.ask(|index| index.settle_lost())?;
        Ok(())
    }

    async fn archive(
        &self,
        archives: &[(DocPath, Vec<u8>)],
        ledger: &[u8],
        at: Position,
    ) -> Result<()> {
        self.move_out(archives, ledger, at)
    }

    async fn archived(&self, which: &EventQuery) -> Result<Vec<Event>> {
        self.archived_events(which)
    }

    async fn tied(&self, ids: &[EventId], about: &[&str]) -> Result<Vec<Event>> {
        self.tied_events(ids, about)
    }

    async fn entities(&self) -> Result<Vec<String>> {
        if let Some(entities) = self.ask(|index| index.entities())? {
            return Ok(entities);
        }
        Ok(folded::entities(&self.whole_ledger()?.0, self.events_in_archives()?.iter()))
    }

    async fn events(&self, which: &EventQuery) -> Result<Found> {
        let position = self.ledger_position()?;
        if let Some(entries) = self.entries(which)? {
            return Ok(Found { entries, position });
        }
        let (ledger, position) = self.whole_ledger()?;
        Ok(Found {
            entries: which.choose(ledger.entries()).into_iter().cloned().collect(),
            position,
        })
    }

    async fn position(&self) -> Result<Position> {
        self.ledger_position()
    }

    async fn tally(&self) -> Result<Vec<Count>> {
        let mut counts = match self.ask(|index| index.tally())? {
            Some(counts) => counts,
            None => folded::tally(&self.whole_ledger()?.0),
        };
        counts.sort_by_key(|count| (count.kind, count.priority, count.standing));
        Ok(counts)
    }

    async fn contested(&self) -> Result<Vec<(EventId, Claim)>> {
        match self.ask(|index| index.contested())? {
            Some(claims) => Ok(claims),
            None => Ok(folded::Claims::default().contested(&self.whole_ledger()?.0)),
        }
    }

    async fn faults(&self) -> Result<Vec<LineFault>> {
        match self.ask(|index| index.faults())? {
            Some(faults) => Ok(faults),
            None => Ok(self.whole_ledger()?.0.unread()),
        }
    }

    async fn lost(&self) -> Result<Vec<EventId>> {
        Ok(self.ask(|index| index.lost())?.unwrap_or_default())
    }

    async fn set_aside(&self, from: &DocPath, at: u64, bytes: &[u8]) -> Result<String> {
        let held = self.locked()?;
        let place = self.door.set_aside(&held, from, at, bytes)?;
        Ok(place.strip_prefix(self.root()).unwrap_or(&place).display().to_string())
    }

    async fn document(&self, path: &DocPath) -> Result<Option<Vec<u8>>> {
        self.door.read(path)
    }

    async fn length(&self, path: &DocPath) -> Result<u64> {
        Ok(self.door.look(path)?.map_or(0, |look| look.len))
    }

    async fn put(&self, path: &DocPath, bytes: &[u8]) -> Result<()> {
        let held = self.locked_for(path)?;
        self.door.replace(&held, path, bytes)
    }

    async fn put_many(&self, documents: &[(DocPath, Vec<u8>)]) -> Result<()> {
        let held = self.locked()?;
        self.door.replace_many(&held, documents)
    }

    async fn swap(&self, path: &DocPath, bytes: &[u8], from: ContentVersion) -> Result<()> {
        let (held, _conversation) = self.locked_to_swap(path)?;
        self.door.replace_if(&held, path, bytes, &Expected::Content(from))
    }

    async fn swap_many(&self, replacements: &[Replacement]) -> Result<Vec<DocPath>> {
        let held = self.locked()?;
        let expected = |one: &Replacement| Expected::Content(one.from);
        let documents: Vec<_> = replacements
            .iter()
            .map(|one| (&one.path, one.bytes.as_slice(), expected(one)))
            .collect();
        let changed = self.door.replace_many_if(&held, &documents)?;
        Ok(changed.into_iter().map(|at| replacements[at].path.clone()).collect())
    }

    async fn grow(&self, path: &DocPath, bytes: &[u8], from: ContentVersion) -> Result<()> {
        let held = self.locked_for(path)?;
        let moved = || Error::Moved { what: path.to_string() };
        if ContentVersion::of(self.door.read(path)?.as_deref()) != from {
            return Err(moved());
        }
        self.door.try_append(&held, path, bytes)?.map(|_| ()).ok_or_else(moved)
    }

    async fn extend(&self, path: &DocPath, bytes: &[u8]) -> Result<()> {
        let held = self.locked_for(path)?;
        self.door.append(&held, path, bytes).map(|_| ())
    }

    async fn remove_unchanged(&self, path: &DocPath, from: ContentVersion) -> Result<()> {
        let (held, _conversation) = self.locked_to_swap(path)?;
        self.door.remove_if(&held, path, &Expected::Content(from))
    }

    async fn remove(&self, path: &DocPath) -> Result<()> {
        let held = self.locked_for(path)?;
        self.door.remove(&held, path)
    }

    async fn remove_folder(&self, path: &DocPath) -> Result<()> {
        let held = self.locked()?;
        self.door.remove_folder(&held, path)
    }

    async fn documents(&self, under: &str) -> Result<Vec<DocPath>> {
        let mut found = self.door.documents(under)?;
        found.retain(|path| path.nature() != Nature::Ledger);
        Ok(found)
    }

    async fn sizes(&self, under: &str) -> Result<Vec<(DocPath, u64)>> {
        let size = |path: DocPath| Ok(self.door.look(&path)?.map(|look| (path, look.len)));
        self.documents(under).await?.into_iter().filter_map(|path| size(path).transpose()).collect()
    }

    async fn looks(&self, under: &str) -> Result<Vec<Looked>> {
        let mut found = Vec::new();
        for path in self.door.documents(under)? {
            if let Some(look) = self.door.look(&path)? {
                found.push(Looked {
                    bytes: look.len,
                    changed: look.changed(),
                    stamp: Stamp(look.stamp()),
                    path,
                });
            }
        }
        Ok(found)
    }

    async fn stamps(&self, paths: &[DocPath]) -> Result<Vec<Option<Stamp>>> {
        paths.iter().map(|path| Ok(self.door.look(path)?.map(|look| Stamp(look.stamp())))).collect()
    }

    async fn weights(&self) -> Result<Vec<Weight>> {
        self.door.weights()
    }

    async fn tail(&self, path: &DocPath, bytes: u64) -> Result<(Vec<u8>, bool)> {
        let length = self.door.look(path)?.map_or(0, |look| look.len);
        if length <= bytes {
            return Ok((self.door.read(path)?.unwrap_or_default(), true));
        }
        let piece = (length - bytes, usize::try_from(bytes).unwrap_or(usize::MAX));
        let mut text = self.door.read_pieces(path, &[piece])?.pop().unwrap_or_default();
        let whole = memchr::memchr(b'\n', &text).map_or(text.len(), |at| at + 1);
        Ok((text.split_off(whole), false))
    }

    async fn add_records(&self, records: Vec<Record>) -> Result<Added> {
        self.keep_records(records)
    }

    async fn known(&self, keys: &[Key]) -> Result<Vec<bool>> {
        self.known_records(keys)
    }

    async fn records(&self, days: Days) -> Result<Vec<Record>> {
        self.records_of(days)
    }

    async fn last_said(&self, conversation: &str, most: usize) -> Result<Vec<Record>> {
        self.last_records_of(conversation, most)
    }

    async fn said_in(&self, conversation: &str, days: Days) -> Result<Digest> {
        self.digest_of(conversation, days)
    }

    async fn forget_records(&self, days: Days, conversation: &str) -> Result<usize> {
        self.take_records_away(days, conversation)
    }

    async fn scrub(&self, scrub: &Scrub, dry: bool) -> Result<Vec<Scrubbed>> {
        self.scrub_files(scrub, dry)
    }

    async fn sessions(&self, days: Option<Days>) -> Result<Vec<SessionStat>> {
        self.sessions_of(days)
    }

    async fn record_days(&self) -> Result<Vec<jiff::civil::Date>> {
        self.days_with_records()
    }

    async fn bad_records(&self) -> Result<Vec<(DocPath, BadLine)>> {
        self.lines_that_are_no_records()
    }

    async fn add_summaries(
        &self,
        summaries: &[Summary],
        after: Option<Position>,
    ) -> Result<Position> {
        self.keep_summaries(summaries, after)
    }

    async fn heads(&self, which: &SummaryQuery) -> Result<(Vec<Head>, Position)> {
        self.heads_of(which)
    }

    async fn summaries(&self, which: &SummaryQuery) -> Result<Vec<Summary>> {
        self.summaries_of(which)
    }

    async fn event_days(&self) -> Result<Vec<(jiff::civil::Date, usize)>> {
        if let Some(days) = self.ask(|index| index.event_days())? {
            return Ok(days);
        }
        Ok(folded::event_days(&self.whole_ledger()?.0, self.events_in_archives()?.iter()))
    }

    async fn answer(&self, question: Hash) -> Result<Option<Vec<u8>>> {
        self.door.read_answer(question)
    }

    async fn keep_answer(&self, question: Hash, answer: &[u8]) -> Result<()> {
        let held = self.locked()?;
        self.door.keep_answer(&held, question, answer)
    }

    async fn note(&self, name: &DocPath) -> Result<Option<Vec<u8>>> {
        self.door.read_note(name)
    }

    async fn put_note(&self, name: &DocPath, bytes: &[u8]) -> Result<()> {
        self.door.put_note(name, bytes)
    }

    async fn add_note(
        &self,
        name: &DocPath,
        line: &str,
        most_bytes: u64,
        flush: bool,
    ) -> Result<()> {
        self.door.add_note(name, line.as_bytes(), most_bytes, flush)
    }

    async fn notes(&self, folder: &DocPath) -> Result<Vec<(DocPath, i64)>> {
        self.door.notes(folder)
    }

    async fn remove_note(&self, name: &DocPath) -> Result<()> {
        self.door.remove_note(name)
    }

    async fn marker_key(&self) -> Result<Option<MarkerKey>> {
        self.door.read_marker_key()
    }

    async fn set_marker_key(&self, key: &MarkerKey, replace: bool) -> Result<MarkerKey> {
        self.door.set_marker_key(key, replace)
    }

    async fn begin_filling(&self) -> Result<Ground> {
        let note: DocPath = FILLING.parse()?;
        let ground = match self.note(&note).await? {
            Some(_) => Ground::Unfinished,
            None => Ground::of(&self.looks("").await?),
        };
        if ground == Ground::New {
            self.put_note(&note, b"begun\n").await?;
        }
        Ok(ground)
    }

    async fn end_filling(&self) -> Result<()> {
        self.remove_note(&FILLING.parse()?).await
    }

    async fn stop_filling(&self) -> Result<()> {
        // The note stays: it marks the memory as incomplete.
        Ok(())
    }

    async fn claim(&self, work: &str) -> Result<Option<Claimed>> {
        Ok(self.door.try_lock_by(&format!("{work}.lock"))?.map(|held| Claimed(Box::new(held))))
    }

    async fn unseen(&self, paths: &[DocPath]) -> Result<Vec<(DocPath, Stamp)>> {
        let looks = self.door.look_at_all(paths)?;
        let there = paths
            .iter()
            .zip(looks)
            .filter_map(|(path, look)| Some((path.clone(), Stamp(look?.stamp()))));
        let mut found: Vec<(DocPath, Stamp)> = there.collect();
        if found.is_empty() {
            return Ok(found);
        }
        let paths: Vec<&DocPath> = found.iter().map(|(path, _)| path).collect();
        let seen = self.ask(|index| index.seen(&paths))?;
        if let Some(seen) = seen {
            let mut seen = seen.into_iter();
            found.retain(|(_, stamp)| seen.next().flatten().as_ref() != Some(stamp));
        }
        Ok(found)
    }

    async fn gone(&self, under: &str) -> Result<Vec<DocPath>> {
        let mut gone = Vec::new();
        let looked_at = self.ask(|index| index.looked_at(under))?.unwrap_or_default();
        // Listing a folder is cheaper than a stat of each file; only files missing in the list are
        // checked.
        let listed: HashSet<String> =
            self.door.documents(under)?.into_iter().map(|path| path.to_string()).collect();
        for path in looked_at.iter().filter(|path| !listed.contains(*path)) {
            let path: DocPath = path.parse()?;
            if self.door.look(&path)?.is_none() {
                self.ask(|index| index.forget(&path))?;
                gone.push(path);
            }
        }
        Ok(gone)
    }

    async fn see(&self, seen: &[(DocPath, Stamp)]) -> Result<()> {
        if !seen.is_empty() {
            self.ask(|index| index.see(seen))?;
        }
        Ok(())
    }

    async fn inspect(&self) -> Result<Vec<Finding>> {
        let mut found = Vec::new();
        let say = |what: String| Finding::failure(Check::Index, what);
        let path = self.index_path();
        let existed = path.exists();
        let current = self.ask(|index| index.self_check())?;
        match current {
            _ if !existed => found.push(Finding::oddity(
                Check::Index,
                "there was no index; it was built from the files",
            )),
            None => {
                let why = match &*self.handle() {
                    Handle::Unusable(why) => why.clone(),
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
        if let Some(wrong) = self.inspect_search()? {
            found.push(say(format!(
                "the search index is damaged: {wrong}. Rebuild it with `icecore vault reindex`"
            )));
        }
        // Builds an index from the files in a temporary file and compares row by row. The lock
        // allows one comparison at a time, so that the file of a dead one can be overwritten;
        // writers go on meanwhile.
        let _alone = self.door.lock_by("check.lock")?;
        let temporary = self.door.private("check.db");
        let compared = match &*self.handle() {
            Handle::Open(index) => self.compare(index, &temporary)?,
            Handle::Unopened | Handle::Unusable(_) => Ok(None),
        };
        self.door.remove_index(&temporary);
        match compared {
            Ok(None) => {}
            Ok(Some(difference)) => found.push(say(format!("the index differs from the files ({difference}). Rebuild it with `icecore vault reindex`"))),
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => return Err(Error::Full { path: temporary }),
            Err(error) => {
                found.push(say(format!("the index could not be compared with the files: {error}. Rebuild it with `icecore vault reindex`")))
            }
        }
        Ok(found)
    }

    async fn rebuild(&self, progress: Progress<'_>) -> Result<usize> {
        let held = self.locked()?;
        let mut handle = self.handle();
        *handle = Handle::Unopened;
        self.door.make_folder(&self.door.private(""))?;
        let unusable = |error: rusqlite::Error| Error::Index(error.to_string());
        // A sound file is refilled in one transaction, so that other processes never see half of
        // it; only a broken one is deleted.
        let path = self.index_path();
        let sound = Index::open(&self.door, &path)
            .ok()
            .filter(|index| index.self_check().is_ok_and(|wrong| wrong.is_none()));
        let mut index = match sound {
            Some(index) => index,
            None => Index::anew(&self.door, &path).map_err(unusable)?,
        };
        let look = self.door.look(&self.ledger)?;
        let text = self.door.read(&self.ledger)?.unwrap_or_default();
        let current = Current { text, look, spent: self.spent()?, archives: self.archives_now()? };
        let events = index.rebuild(&current, progress).map_err(unusable)?;
        let mut files = self.record_files()?;
        files.push(layout::SUMMARIES.parse()?);
        files.extend(current.archives.iter().map(|(path, _)| path.clone()));
        let unread = std::cell::RefCell::new(None);
        let read = |path: &DocPath| {
            self.file_now(path).map_err(|error| {
                *unread.borrow_mut() = Some(error);
                rusqlite::Error::ExecuteReturnedResults
            })
        };
        let taken = index.take_all(&files, read, progress);
        if let Some(error) = unread.into_inner() {
            return Err(error);
        }
        // If another process rebuilt the index meanwhile, the next query indexes what is missing.
        if taken.is_err() && !index::is_overtaken(&taken) {
            return taken.map(|()| 0).map_err(unusable);
        }
        *handle = Handle::Open(Box::new(index));
        drop(held);
        Ok(events)
    }

    async fn mended(&self) -> Vec<String> {
        self.mended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The entry for a row of the index, if the line still has that event.
fn entry_of(row: &Row, line: &[u8]) -> Option<Entry> {
    let event = line::parse(line).events.into_iter().find(|event| event.id == row.id)?;
    let verified = Moment::read(&row.verified)?.moment;
    Some(Entry {
        event,
        line: row.line,
        standing: row.standing,
        verified,
        confirmed: row.confirmed,
    })
}
