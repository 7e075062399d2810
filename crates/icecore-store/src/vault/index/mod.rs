//! The index: a SQLite file derived from the ledger, so that queries need not read all of it.
//!
//! It may be deleted at any time, may lag behind, and may have another version: then it is rebuilt
//! from the files. It identifies the covered part of the ledger by length and a running hash, so
//! that an append is indexed without reading the rest, and a manual edit anywhere is noticed.

mod connection;
mod event_queries;
mod event_rows;
mod files;

use rusqlite::OptionalExtension;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::DocPath;
use icecore_domain::ledger;
use rusqlite::types::Value;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

pub(super) use self::connection::{connect, damage_error, is_damage, is_replaced, truncate_log};
pub(super) use self::event_queries::{EventRow, LinkedPlaces};
pub(super) use self::files::CurrentFile;

use self::connection::{connect_with, journal_mode};
use self::event_rows::{add_line, bring_up_to_date, fill_tables};
use super::vault_fs::{FileStat, VaultFs};
use crate::{Error, Progress, Result, Stamp};

/// Increment whenever the tables or their content change; an index of another version is rebuilt.
const SCHEMA_VERSION: i64 = 13;
/// The first SQLite without the WAL-reset defect.
const MIN_SQLITE_VERSION: i32 = 3_051_003;

/// The result of an index operation. On failure the caller reads the files.
pub(super) type SqlResult<T> = std::result::Result<T, rusqlite::Error>;

/// An open index.
pub(super) struct Index {
    connection: Connection,
    path: PathBuf,
}

/// The ledger as it is now.
pub(super) struct CurrentLedger {
    pub text: Vec<u8>,
    pub look: Option<FileStat>,
    /// Ids of lost events, which must not be assigned again.
    pub spent: Vec<EventId>,
    /// The archives, needed only to fill the index.
    pub archives: Vec<(DocPath, CurrentFile)>,
}

/// The part of the ledger that the index covers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CoveredPart {
    bytes: u64,
    lines: usize,
    running: Hash,
    stamp: String,
}

impl CoveredPart {
    fn empty() -> Self {
        Self { bytes: 0, lines: 0, running: Hash::of(b""), stamp: String::new() }
    }
}

/// Refuses a SQLite with a known defect.
pub(super) fn check_sqlite() -> Result<()> {
    if rusqlite::version_number() < MIN_SQLITE_VERSION {
        return Err(Error::old_sqlite(rusqlite::version().into()));
    }
    Ok(())
}

impl Index {
    /// Opens the index at `path`; creates an empty one if there is none of this version.
    pub fn open(vault_fs: &VaultFs, path: &Path) -> SqlResult<Self> {
        vault_fs.make_private_file(path);
        match Self::try_open(path) {
            Ok(Some(index)) => Ok(index),
            // Another version, or not a SQLite file: it is derived, so replace it.
            Ok(None) => Self::recreate(vault_fs, path),
            Err(error) if is_damage(&error) => Self::recreate(vault_fs, path),
            Err(error) => Err(error),
        }
    }

    /// Creates an empty index at `path`, replacing whatever is there.
    pub fn recreate(vault_fs: &VaultFs, path: &Path) -> SqlResult<Self> {
        vault_fs.remove_index(path);
        vault_fs.make_private_file(path);
        Self::try_open(path)?.ok_or(rusqlite::Error::InvalidQuery)
    }

    /// Creates an index for a comparison: no journal, nothing flushed.
    pub fn temporary(vault_fs: &VaultFs, path: &Path, text: &[u8]) -> SqlResult<Self> {
        vault_fs.remove_index(path);
        vault_fs.make_private_file(path);
        let mut index =
            Self::open_with(path, "OFF", "OFF")?.ok_or(rusqlite::Error::InvalidQuery)?;
        index.rebuild(
            &CurrentLedger {
                text: text.to_vec(),
                look: None,
                spent: Vec::new(),
                archives: Vec::new(),
            },
            &|_, _| {},
        )?;
        Ok(index)
    }

    fn try_open(path: &Path) -> SqlResult<Option<Self>> {
        Self::open_with(path, journal_mode(path), "NORMAL")
    }

    fn open_with(path: &Path, journal: &str, synchronous: &str) -> SqlResult<Option<Self>> {
        let connection = connect_with(path, journal, synchronous)?;
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let mut index = Self { connection, path: path.to_owned() };
        match version {
            SCHEMA_VERSION => Ok(Some(index)),
            0 => {
                let transaction =
                    index.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                // Another process may have created the tables meanwhile.
                if transaction.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))?
                    == 0
                {
                    transaction.execute_batch(include_str!("../schema.sql"))?;
                    put_covered(&transaction, &CoveredPart::empty())?;
                    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
                }
                transaction.commit()?;
                Ok(Some(index))
            }
            _ => Ok(None),
        }
    }

    /// Whether the index covers the ledger with exactly this stat.
    pub fn is_current(&self, look: Option<FileStat>) -> SqlResult<bool> {
        let covered = read_covered(&self.connection)?;
        Ok(match look {
            None => covered.bytes == 0,
            Some(look) => covered.bytes == look.len && covered.stamp == look.stamp(),
        })
    }

    /// Indexes the new lines of the ledger; rebuilds if the covered part was changed by hand.
    ///
    /// `read` returns the ledger's text. It is called under the index's write lock: a line is in
    /// the ledger before it is in the index, so the text has at least the covered part, unless
    /// another program removed it.
    ///
    /// `archives` returns the archives. It is called where lines are missing or nothing is known
    /// yet: archived events are not lost, and their ids are spent.
    pub fn catch_up(
        &mut self,
        read: impl FnOnce() -> Result<CurrentLedger>,
        archives: impl FnOnce() -> Result<Vec<(DocPath, CurrentFile)>>,
    ) -> Result<SqlResult<()>> {
        let transaction =
            match self.connection.transaction_with_behavior(TransactionBehavior::Immediate) {
                Ok(transaction) => transaction,
                Err(error) => return Ok(Err(error)),
            };
        let mut current = read()?;
        match read_covered(&transaction) {
            Ok(covered) if covered.bytes > 0 && is_covered_unchanged(&covered, &current.text) => {}
            Ok(_) => current.archives = archives()?,
            Err(error) => return Ok(Err(error)),
        }
        Ok(bring_up_to_date(transaction, &current).and_then(|()| self.truncate_own_log()))
    }

    fn truncate_own_log(&self) -> SqlResult<()> {
        truncate_log(&self.connection, &self.path)
    }

    /// Indexes events that this process just appended at `start`, under the lock, to a covered
    /// ledger.
    pub fn add_own_events(&mut self, start: u64, lines: &[u8], look: FileStat) -> SqlResult<()> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut covered = read_covered(&transaction)?;
        if covered.bytes != start {
            return Ok(());
        }
        let mut retracts = false;
        for raw in ledger::raw_lines(lines, covered.lines + 1) {
            retracts |= add_line(&transaction, raw, start + raw.offset as u64)?;
            covered.running = covered.running.chain(raw.bytes);
            covered.lines += 1;
        }
        if retracts {
            // The effect of a retraction depends on the whole ledger; the next query computes it.
            return Ok(());
        }
        covered.bytes = start + lines.len() as u64;
        covered.stamp = if look.len == covered.bytes { look.stamp() } else { String::new() };
        put_covered(&transaction, &covered)?;
        transaction.commit()?;
        self.truncate_own_log()
    }

    /// Rebuilds everything from the ledger; the list of seen documents stays.
    pub fn rebuild(&mut self, current: &CurrentLedger, progress: Progress<'_>) -> SqlResult<usize> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (path, now) in &current.archives {
            files::fill_file(&transaction, path, now)?;
        }
        let mut covered = fill_tables(&transaction, &current.text, progress)?;
        covered.stamp = current
            .look
            .filter(|look| look.len == covered.bytes)
            .map_or(String::new(), |look| look.stamp());
        put_spent(&transaction, &current.spent)?;
        put_covered(&transaction, &covered)?;
        let count = transaction.query_row("SELECT count(*) FROM event", [], |row| row.get(0))?;
        transaction.commit()?;
        self.truncate_own_log()?;
        Ok(count)
    }

    /// Documents below a folder that were seen.
    pub fn seen_documents(&self, under: &str) -> SqlResult<Vec<String>> {
        let mut query = self.connection.prepare(
            "SELECT path FROM document WHERE path >= ?1 AND path < ?1 || '~' ORDER BY path",
        )?;
        query.query_map([under], |row| row.get(0))?.collect()
    }

    /// Forgets that a document was seen.
    pub fn forget_seen(&self, path: &DocPath) -> SqlResult<()> {
        self.connection.execute("DELETE FROM document WHERE path = ?1", [path.as_str()]).map(|_| ())
    }

    /// Accepts the ledger as complete; lost ids stay spent.
    pub fn clear_lost(&self) -> SqlResult<()> {
        self.connection.execute_batch("BEGIN IMMEDIATE; INSERT OR IGNORE INTO spent SELECT * FROM lost; DELETE FROM lost; COMMIT;")
    }

    /// The stamp of each document when it was last seen.
    pub fn seen_stamps(&self, paths: &[&DocPath]) -> SqlResult<Vec<Option<Stamp>>> {
        let state = self.connection.unchecked_transaction()?;
        let mut query = state.prepare("SELECT stamp FROM document WHERE path = ?1")?;
        paths
            .iter()
            .map(|path| query.query_row([path.as_str()], |row| row.get(0).map(Stamp)).optional())
            .collect()
    }

    /// Stores the stamps of seen documents.
    pub fn put_seen(&mut self, seen: &[(DocPath, Stamp)]) -> SqlResult<()> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (path, stamp) in seen {
            transaction.execute(
                "INSERT OR REPLACE INTO document VALUES (?1, ?2)",
                params![path.as_str(), stamp.0],
            )?;
        }
        transaction.commit()
    }

    /// SQLite's own integrity check of the file.
    pub fn find_damage(&self) -> SqlResult<Option<String>> {
        let found: String =
            self.connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
        Ok((found != "ok").then_some(found))
    }

    /// Reads the index in one transaction, whatever others write meanwhile. `look` gets the number
    /// of ledger bytes that this state covers.
    pub fn in_snapshot<T>(&self, look: impl FnOnce(u64) -> SqlResult<T>) -> SqlResult<T> {
        let state = self.connection.unchecked_transaction()?;
        let covered = read_covered(&state)?;
        let seen = look(covered.bytes);
        state.finish()?;
        seen
    }

    /// The indexed files with their stamps.
    pub fn indexed_files(&self) -> SqlResult<HashMap<String, String>> {
        files::indexed_files(&self.connection)
    }

    /// The first difference between this index and `other` about the ledger and, with `files`,
    /// about the other files.
    pub fn first_difference(&self, other: &Self, files: bool) -> SqlResult<Option<String>> {
        let ledger = [
            ("events", "SELECT * FROM event ORDER BY seq"),
            ("claims", "SELECT seq, attribute, value FROM claim ORDER BY 1, 2, 3"),
            ("tags", "SELECT seq, tag FROM tag ORDER BY 1, 2"),
            ("contested attributes", "SELECT attribute FROM contested ORDER BY 1"),
            ("faults", "SELECT line, what FROM fault ORDER BY 1, 2"),
            ("coverage", "SELECT bytes, lines, running FROM covered"),
        ];
        for &(what, sql) in ledger.iter().chain(files::FILE_DUMPS.iter().filter(|_| files)) {
            let (mine, theirs) =
                (dump_rows(&self.connection, sql)?, dump_rows(&other.connection, sql)?);
            if mine != theirs {
                let at = mine
                    .iter()
                    .zip(&theirs)
                    .position(|(mine, theirs)| mine != theirs)
                    .unwrap_or(mine.len().min(theirs.len()));
                return Ok(Some(format!(
                    "{what}: {} in the index, {} in the files, the first difference at {}",
                    mine.len(),
                    theirs.len(),
                    at + 1
                )));
            }
        }
        Ok(None)
    }

    /// The path of the index.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn dump_rows(connection: &Connection, sql: &str) -> SqlResult<Vec<Vec<Value>>> {
    let mut query = connection.prepare(sql)?;
    let columns = query.column_count();
    query.query_map([], |row| (0..columns).map(|at| row.get(at)).collect())?.collect()
}

fn read_covered(connection: &Connection) -> SqlResult<CoveredPart> {
    let mut query =
        connection.prepare_cached("SELECT bytes, lines, running, stamp FROM covered")?;
    query.query_row([], |row| {
        let running = Hash::from_bytes(&row.get::<_, Vec<u8>>(2)?).ok_or_else(damage_error)?;
        Ok(CoveredPart { bytes: row.get(0)?, lines: row.get(1)?, running, stamp: row.get(3)? })
    })
}

fn put_spent(transaction: &Transaction<'_>, spent: &[EventId]) -> SqlResult<()> {
    for id in spent {
        let mut put =
            transaction.prepare_cached("INSERT OR IGNORE INTO spent VALUES (?1, ?2, ?3)")?;
        put.execute(params![id.to_string(), id.day().to_string(), id.number()])?;
    }
    Ok(())
}

fn put_covered(transaction: &Transaction<'_>, covered: &CoveredPart) -> SqlResult<()> {
    let mut put =
        transaction.prepare_cached("INSERT OR REPLACE INTO covered VALUES (0, ?1, ?2, ?3, ?4)")?;
    put.execute(params![
        covered.bytes,
        covered.lines,
        covered.running.as_bytes().as_slice(),
        covered.stamp
    ])?;
    Ok(())
}

fn running_hash(start: Hash, text: &[u8]) -> Hash {
    ledger::raw_lines(text, 1).fold(start, |hash, line| hash.chain(line.bytes))
}

/// The part of the text that ends with a line break; the rest is a line still being written.
fn complete_lines(text: &[u8]) -> &[u8] {
    &text[..memchr::memrchr(b'\n', text).map_or(0, |at| at + 1)]
}

/// Whether the covered part is unchanged.
fn is_covered_unchanged(covered: &CoveredPart, text: &[u8]) -> bool {
    let known = usize::try_from(covered.bytes).unwrap_or(usize::MAX);
    text.get(..known).is_some_and(|prefix| running_hash(Hash::of(b""), prefix) == covered.running)
}
