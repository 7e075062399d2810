//! The index: a SQLite file derived from the ledger, so that queries need not read all of it.
//!
//! It may be deleted at any time, may lag behind, and may have another version: then it is rebuilt
//! from the files. It identifies the covered part of the ledger by length and a running hash, so
//! that an append is indexed without reading the rest, and a manual edit anywhere is noticed.

mod files;

pub(super) use self::files::CurrentFile;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use icecore_domain::event::{Act, Effect, Event, EventType, Priority};
use icecore_domain::format::line::{self, ParseFault, Severity};
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::DocPath;
use icecore_domain::ledger::conflict::{self, Claim};
use icecore_domain::ledger::query::{EventQuery, EventStateFilter};
use icecore_domain::ledger::{self, EventState, Ledger, LedgerEntry, LineFault};
use icecore_domain::record::Trust;
use icecore_domain::sanitize;
use jiff::civil::Date;
use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params,
    params_from_iter,
};

use super::vault_fs::{FileStat, VaultFs};
use crate::{Error, Progress, Result, Stamp, StatementCount};

/// Increment whenever the tables or their content change; an index of another version is rebuilt.
const SCHEMA_VERSION: i64 = 13;
/// The first SQLite without the WAL-reset defect.
const MIN_SQLITE_VERSION: i32 = 3_051_003;
/// From this many new lines on, a rebuild is faster than single steps.
const MIN_REBUILD_LINES: usize = 2_000;

/// How long to wait for another process that writes to the index.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

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

/// A row of the index: the place of an event's line, and its state.
pub(super) struct EventRow {
    pub seq: i64,
    pub id: EventId,
    pub line: usize,
    pub offset: u64,
    pub length: usize,
    pub standing: EventState,
    pub verified: String,
    pub confirmed: bool,
}

/// Linked events and the places of their lines.
pub(super) struct LinkedPlaces {
    /// All ids, unknown ones included.
    pub ids: Vec<EventId>,
    /// Lines of the ledger, in order: offset and length.
    pub in_ledger: Vec<(u64, usize)>,
    /// Lines of archives, file by file: file, offset and length.
    pub in_archives: Vec<(String, u64, usize)>,
}

/// The place of a line: its number in the ledger or the number of its file, its offset and its
/// length.
type LinePlace = (i64, u64, usize);

/// Refuses a SQLite with a known defect.
pub(super) fn check_sqlite() -> Result<()> {
    if rusqlite::version_number() < MIN_SQLITE_VERSION {
        return Err(Error::OldSqlite(rusqlite::version().into()));
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
    pub fn is_current(&self, stat: Option<FileStat>) -> SqlResult<bool> {
        let covered = read_covered(&self.connection)?;
        Ok(match stat {
            None => covered.bytes == 0,
            Some(stat) => covered.bytes == stat.len && covered.stamp == stat.stamp(),
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
    pub fn add_own_events(&mut self, start: u64, lines: &[u8], stat: FileStat) -> SqlResult<()> {
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
        covered.stamp = if stat.len == covered.bytes { stat.stamp() } else { String::new() };
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

    /// The highest number of an event of that day.
    pub fn highest_number(&self, day: Date) -> SqlResult<u32> {
        let mut query = self.connection.prepare_cached(
            "SELECT max((SELECT ifnull(max(number), 0) FROM event WHERE day = ?1),
                        (SELECT ifnull(max(number), 0) FROM lost WHERE day = ?1),
                        (SELECT ifnull(max(number), 0) FROM spent WHERE day = ?1),
                        (SELECT ifnull(max(number), 0) FROM archive WHERE day = ?1))",
        )?;
        query.query_row([day.to_string()], |row| row.get(0))
    }

    /// Rows that may match, newest first: a superset of the result, which the domain filters. With
    /// `page`, at most that many of the rows before that one.
    pub fn candidates(
        &self,
        which: &EventQuery,
        page: Option<(i64, usize)>,
    ) -> SqlResult<Vec<EventRow>> {
        // An entity, a source or a label has few events: find these first and filter them.
        let few = which.entity.is_some()
            || which.source.is_some()
            || which.saying.is_some()
            || !which.ids.is_empty()
            || !which.tags.is_empty()
            || which.quarantined == Some(true);
        // A time range has few events: find them by it and sort. Otherwise walk each type and
        // priority from its end.
        let many = which.weightiest && !few && which.state == EventStateFilter::Active;
        let weighed = many && which.verified_since.is_none();
        let by = match (many, weighed) {
            (true, true) => " INDEXED BY event_standing",
            (true, false) => " INDEXED BY event_verified",
            (false, _) => "",
        };
        let mut sql = format!(
            "SELECT id, line, line_offset, line_length, standing, ended_by, verified, seq, confirmed FROM event{by} WHERE 1"
        );
        // For a page of the newest, walking the rows backwards is faster than collecting and
        // sorting all matches.
        let passing = if page.is_some() || few { "+" } else { "" };
        let mut values: Vec<Value> = Vec::new();
        let mut among = |by: &str, column: &str, list: Vec<String>| {
            if !list.is_empty() {
                let marks = vec!["?"; list.len()].join(",");
                sql.push_str(&format!(" AND {by}{column} IN ({marks})"));
                values.extend(list.into_iter().map(Value::from));
            }
        };
        if which.state == EventStateFilter::Active {
            among(passing, "act", vec![Act::Assert.word().into()]);
            among(passing, "standing", vec![EventState::Active.word().into()]);
        }
        if !weighed {
            // Naming every type lets SQLite find a priority by the same index as a type.
            let any = if which.priorities.is_empty() { &[] } else { EventType::ALL };
            let kinds = if which.kinds.is_empty() { any } else { &which.kinds };
            among(passing, "kind", kinds.iter().map(|kind| kind.word().into()).collect());
            among(
                passing,
                "priority",
                which.priorities.iter().map(|priority| priority.word().into()).collect(),
            );
        }
        for (column, value) in [("entity", &which.entity), ("source", &which.source)] {
            if let Some(value) = value {
                sql.push_str(&format!(" AND {column} = ?"));
                values.push(Value::from(value.clone()));
            }
        }
        // The source `live` has no index of its own, and SQLite must be kept from choosing one for
        // it.
        if which.source.as_deref().is_some_and(|source| source != "live") {
            sql.push_str(" AND source <> 'live'");
        }
        for tag in &which.tags {
            sql.push_str(" AND seq IN (SELECT seq FROM tag WHERE tag = ?)");
            values.push(Value::from(tag.clone()));
        }
        if !which.ids.is_empty() {
            sql.push_str(" AND id IN (SELECT value FROM json_each(?))");
            values.push(Value::from(id_list(&which.ids)));
        }
        if let Some(text) = &which.saying {
            sql.push_str(" AND saying = ?");
            values.push(Value::from(sameness_hash(text)));
        }
        if let Some(after) = which.after {
            sql.push_str(" AND seq > ifnull((SELECT seq FROM event WHERE id = ?), 0)");
            values.push(Value::from(after.to_string()));
        }
        match which.quarantined {
            Some(true) => sql.push_str(" AND low_trust AND NOT confirmed"),
            Some(false) => sql.push_str(" AND NOT (low_trust AND NOT confirmed)"),
            None => {}
        }
        let bounds = [
            ("told >= ?", which.since),
            ("told <= ?", which.until),
            ("verified_on >= ?", which.verified_since),
            ("verified_on <= ?", which.verified_until),
        ];
        for (bound, day) in bounds {
            if let Some(day) = day {
                sql.push_str(&format!(" AND {bound}"));
                values.push(Value::from(day.to_string()));
            }
        }
        if let (true, Some(limit)) = (which.weightiest, which.limit) {
            // Rows that the domain filters out must not displace others.
            let enough = limit.saturating_mul(2);
            if weighed {
                return self.heaviest_rows(&sql, &values, which, enough);
            }
            sql.push_str(" ORDER BY priority, seq DESC LIMIT ?");
            values.push(Value::from(i64::try_from(enough).unwrap_or(i64::MAX)));
        } else if let Some((before, many)) = page {
            sql.push_str(" AND seq < ? ORDER BY seq DESC LIMIT ?");
            values.extend([
                Value::from(before),
                Value::from(i64::try_from(many).unwrap_or(i64::MAX)),
            ]);
        } else {
            sql.push_str(" ORDER BY seq DESC");
        }
        let mut query = self.connection.prepare_cached(&sql)?;
        query.query_map(params_from_iter(values), event_row)?.collect()
    }

    /// The rows of a query by priority, newest first, until there are enough.
    fn heaviest_rows(
        &self,
        sql: &str,
        values: &[Value],
        which: &EventQuery,
        enough: usize,
    ) -> SqlResult<Vec<EventRow>> {
        let sql = format!("{sql} AND kind = ? AND priority = ? ORDER BY seq DESC LIMIT ?");
        let mut query = self.connection.prepare_cached(&sql)?;
        let mut found: Vec<EventRow> = Vec::new();
        let kinds = if which.kinds.is_empty() { EventType::ALL } else { &which.kinds };
        let priorities =
            if which.priorities.is_empty() { Priority::ALL } else { &which.priorities };
        for priority in Priority::ALL.iter().filter(|priority| priorities.contains(priority)) {
            let room = enough.saturating_sub(found.len());
            let mut of_weight: Vec<EventRow> = Vec::new();
            for kind in kinds.iter().filter(|_| room > 0) {
                let limit = Value::from(i64::try_from(room).unwrap_or(i64::MAX));
                let more = [
                    Value::from(kind.word().to_owned()),
                    Value::from(priority.word().to_owned()),
                    limit,
                ];
                let rows = query
                    .query_map(params_from_iter(values.iter().cloned().chain(more)), event_row)?;
                of_weight.extend(rows.collect::<SqlResult<Vec<EventRow>>>()?);
            }
            of_weight.sort_by_key(|row| std::cmp::Reverse(row.seq));
            of_weight.truncate(room);
            found.extend(of_weight);
        }
        Ok(found)
    }

    /// The number of statements by type, priority and state.
    pub fn count_statements(&self) -> SqlResult<Vec<StatementCount>> {
        // Counting along the index for each combination is several times faster than one query with
        // GROUP BY.
        let state = self.connection.unchecked_transaction()?;
        let mut query =
            state.prepare("SELECT count(*) FROM event WHERE act = 'assert' AND standing = ?1 AND kind = ?2 AND priority = ?3")?;
        let mut counts = Vec::new();
        for standing in ["active", "superseded", "closed", "retracted"] {
            for &kind in EventType::ALL {
                for &priority in Priority::ALL {
                    let events: usize = query
                        .query_row([standing, kind.word(), priority.word()], |row| row.get(0))?;
                    if events > 0 {
                        counts.push(StatementCount { kind, priority, state: standing, events });
                    }
                }
            }
        }
        Ok(counts)
    }

    /// Claims of active events about attributes with more than one value.
    pub fn contested_claims(&self) -> SqlResult<Vec<(EventId, Claim)>> {
        let mut query = self.connection.prepare(
            // Fix this join order for the planner: contested attributes are few, events are many.
            "SELECT e.id, c.attribute, c.value FROM contested CROSS JOIN claim c USING (attribute) CROSS JOIN event e USING (seq)
             WHERE e.standing = 'active' ORDER BY e.seq",
        )?;
        query
            .query_map([], |row| {
                let id = row.get::<_, String>(0)?.parse().map_err(|_| damage_error())?;
                Ok((id, Claim { attribute: row.get(1)?, value: row.get(2)? }))
            })?
            .collect()
    }

    /// All events linked to these or to events about these entities, by any chain of effects.
    pub fn linked_places(&self, ids: &[EventId], about: &[&str]) -> SqlResult<LinkedPlaces> {
        const LEDGER_PLACES: &str = "SELECT id, seq, line_offset, line_length FROM event";
        const ARCHIVE_PLACES: &str = "SELECT id, file, line_offset, line_length FROM archive";
        const BY_ID: &str = "WHERE id IN (SELECT value FROM json_each(?1))";
        const BY_ENTITY: &str = "WHERE entity = ?1";
        let state = self.connection.unchecked_transaction()?;
        let (mut here, mut gone): (Vec<LinePlace>, Vec<LinePlace>) = Default::default();
        let mut met = Vec::new();
        for (from, lines) in [(LEDGER_PLACES, &mut here), (ARCHIVE_PLACES, &mut gone)] {
            let mut query = state.prepare_cached(&format!("{from} {BY_ENTITY}"))?;
            for thing in about {
                for line in query.query_map([thing], line_row)? {
                    let (id, line) = line?;
                    met.push(id);
                    lines.push(line);
                }
            }
        }
        met.sort_unstable();
        let mut known: BTreeSet<EventId> = met.iter().chain(ids).copied().collect();
        let mut beside = state.prepare_cached(
            "SELECT target FROM json_each(?1) CROSS JOIN effect ON source = value
             UNION SELECT source FROM json_each(?1) CROSS JOIN effect ON target = value",
        )?;
        let mut next: Vec<EventId> = known.iter().copied().collect();
        while !next.is_empty() {
            let from = id_list(&std::mem::take(&mut next));
            for found in beside.query_map([from], |row| row.get::<_, String>(0))? {
                let found: EventId = found?.parse().map_err(|_| damage_error())?;
                if known.insert(found) {
                    next.push(found);
                }
            }
        }
        let rest: Vec<EventId> =
            known.iter().copied().filter(|id| met.binary_search(id).is_err()).collect();
        let rest = id_list(&rest);
        for (from, lines) in [(LEDGER_PLACES, &mut here), (ARCHIVE_PLACES, &mut gone)] {
            let mut query = state.prepare_cached(&format!("{from} {BY_ID}"))?;
            for line in query.query_map([&rest], line_row)? {
                lines.push(line?.1);
            }
            lines.sort_unstable();
        }
        let mut files = state.prepare_cached("SELECT path FROM taken WHERE file = ?1")?;
        let mut placed = Vec::with_capacity(gone.len());
        for file in gone.chunk_by(|a, b| a.0 == b.0) {
            let path: String = files.query_row([file[0].0], |row| row.get(0))?;
            placed.extend(file.iter().map(|&(_, offset, length)| (path.clone(), offset, length)));
        }
        let here = here.into_iter().map(|(_, offset, length)| (offset, length)).collect();
        Ok(LinkedPlaces { ids: known.into_iter().collect(), in_ledger: here, in_archives: placed })
    }

    /// Names of all entities, archives included.
    pub fn entities(&self) -> SqlResult<Vec<String>> {
        let mut query = self.connection.prepare(
            "SELECT DISTINCT entity FROM event WHERE entity IS NOT NULL
             UNION SELECT DISTINCT entity FROM archive WHERE entity IS NOT NULL ORDER BY 1",
        )?;
        query.query_map([], |row| row.get(0))?.collect()
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

    /// Lines that are not, or not completely, valid events.
    pub fn line_faults(&self) -> SqlResult<Vec<LineFault>> {
        let mut query = self.connection.prepare("SELECT line, what FROM fault ORDER BY line")?;
        query
            .query_map([], |row| {
                Ok(LineFault {
                    line: row.get(0)?,
                    fault: ParseFault { severity: Severity::Bad, what: row.get(1)? },
                })
            })?
            .collect()
    }

    /// Ids of events that are missing in the ledger.
    pub fn lost_ids(&self) -> SqlResult<Vec<EventId>> {
        let mut query =
            self.connection.prepare_cached("SELECT id FROM lost ORDER BY day, number")?;
        query
            .query_map([], |row| row.get::<_, String>(0)?.parse().map_err(|_| damage_error()))?
            .collect()
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

fn event_row(row: &rusqlite::Row<'_>) -> SqlResult<EventRow> {
    let ended_by: Option<String> = row.get(5)?;
    let standing =
        EventState::from_parts(&row.get::<_, String>(4)?, ended_by.and_then(|id| id.parse().ok()));
    Ok(EventRow {
        id: row.get::<_, String>(0)?.parse().map_err(|_| damage_error())?,
        line: row.get(1)?,
        offset: row.get(2)?,
        length: row.get(3)?,
        standing: standing.ok_or_else(damage_error)?,
        verified: row.get(6)?,
        seq: row.get(7)?,
        confirmed: row.get(8)?,
    })
}

fn line_row(row: &rusqlite::Row<'_>) -> SqlResult<(EventId, LinePlace)> {
    let id = row.get_ref(0)?.as_str()?.parse().map_err(|_| damage_error())?;
    Ok((id, (row.get(1)?, row.get(2)?, row.get(3)?)))
}

fn dump_rows(connection: &Connection, sql: &str) -> SqlResult<Vec<Vec<Value>>> {
    let mut query = connection.prepare(sql)?;
    let columns = query.column_count();
    query.query_map([], |row| (0..columns).map(|at| row.get(at)).collect())?.collect()
}

fn damage_error() -> rusqlite::Error {
    rusqlite::Error::InvalidQuery
}

/// Whether the file is damaged, so that a rebuild helps.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, SchemaChanged, Unknown};
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => {
            matches!(failure.code, DatabaseCorrupt | NotADatabase | SchemaChanged | Unknown)
        }
        rusqlite::Error::InvalidQuery
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::FromSqlConversionFailure(..) => true,
        // A SQLite file of another program.
        rusqlite::Error::QueryReturnedNoRows | rusqlite::Error::SqlInputError { .. } => true,
        _ => false,
    }
}

/// Whether another process may have replaced the file: opening it again may help.
pub(super) fn is_replaced(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, ReadOnly, SystemIoFailure};
    matches!(error.sqlite_error_code(), Some(SystemIoFailure | ReadOnly | CannotOpen))
}

/// Write-ahead logging needs shared memory, which a network file system does not have.
fn journal_mode(path: &Path) -> &'static str {
    if is_on_network(path) { "TRUNCATE" } else { "WAL" }
}

/// Truncates a long write-ahead log, which slows the next opening. SQLite's own checkpoints happen
/// at the last close, which for short-lived processes is every close.
pub(super) fn truncate_log(connection: &Connection, path: &Path) -> SqlResult<()> {
    const MAX_LOG_BYTES: u64 = 256 * 1024;
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if std::fs::metadata(log).is_ok_and(|found| found.len() > MAX_LOG_BYTES) {
        // Without waiting for readers; the next writer tries again.
        connection.busy_timeout(Duration::ZERO)?;
        let emptied = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        connection.busy_timeout(BUSY_TIMEOUT)?;
        if !matches!(&emptied, Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy))
        {
            emptied?;
        }
    }
    Ok(())
}

/// Opens a private SQLite file, without following links.
pub(super) fn connect(path: &Path) -> SqlResult<Connection> {
    connect_with(path, journal_mode(path), "NORMAL")
}

fn connect_with(path: &Path, journal: &str, synchronous: &str) -> SqlResult<Connection> {
    // The folder's path may contain links, the file must not be one.
    let place = path
        .parent()
        .and_then(|folder| folder.canonicalize().ok())
        .map_or(path.to_owned(), |folder| folder.join(path.file_name().unwrap_or_default()));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(place, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // Flushing at every close would double the cost of `remember`; [`truncate_log`] flushes a long
    // log.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = {journal}; PRAGMA synchronous = {synchronous}; PRAGMA mmap_size = 0; PRAGMA wal_autocheckpoint = 0;"
    ))?;
    Ok(connection)
}

fn is_on_network(path: &Path) -> bool {
    #[cfg(target_os = "linux")]
    {
        const NETWORK_FILE_SYSTEMS: &[u64] = &[0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42];
        let folder = path.parent().unwrap_or(path);
        rustix::fs::statfs(folder).is_ok_and(|found| {
            u64::try_from(found.f_type).is_ok_and(|kind| NETWORK_FILE_SYSTEMS.contains(&kind))
        })
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        false
    }
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

fn bring_up_to_date(transaction: Transaction<'_>, current: &CurrentLedger) -> SqlResult<()> {
    let (text, look) = (current.text.as_slice(), current.look);
    let mut covered = read_covered(&transaction)?;
    for (path, now) in &current.archives {
        files::fill_file(&transaction, path, now)?;
    }
    let known = usize::try_from(covered.bytes).unwrap_or(usize::MAX);
    let unchanged = is_covered_unchanged(&covered, text);
    let tail = if unchanged { &text[known..] } else { text };
    if !unchanged {
        // The ledger was replaced: everything seen against it must be checked again.
        transaction.execute_batch("DELETE FROM document;")?;
    }
    if !unchanged || memchr::memchr_iter(b'\n', tail).count() > MIN_REBUILD_LINES {
        covered = fill_tables(&transaction, text, &|_, _| {})?;
    } else {
        add_lines(&transaction, text, &mut covered)?;
    }
    covered.stamp =
        look.filter(|look| look.len == covered.bytes).map_or(String::new(), |look| look.stamp());
    put_spent(&transaction, &current.spent)?;
    put_covered(&transaction, &covered)?;
    transaction.commit()
}

/// Indexes the lines beyond the covered part, one by one.
fn add_lines(
    transaction: &Transaction<'_>,
    text: &[u8],
    covered: &mut CoveredPart,
) -> SqlResult<()> {
    let text = complete_lines(text);
    let start = usize::try_from(covered.bytes).unwrap_or(0).min(text.len());
    let mut retracts = false;
    for raw in ledger::raw_lines(&text[start..], covered.lines + 1) {
        retracts |= add_line(transaction, raw, (start + raw.offset) as u64)?;
        covered.running = covered.running.chain(raw.bytes);
        covered.lines += 1;
    }
    covered.bytes = text.len() as u64;
    if retracts {
        recompute_states(transaction, text)?;
    }
    Ok(())
}

/// Indexes one line; true if it is a retraction, whose effect only the whole ledger tells.
fn add_line(
    transaction: &Transaction<'_>,
    raw: ledger::RawLine<'_>,
    offset: u64,
) -> SqlResult<bool> {
    let mut retracts = false;
    let parsed = line::parse_line(raw.bytes);
    for fault in parsed.faults.iter().filter(|fault| fault.severity == Severity::Bad) {
        put_fault(transaction, raw.number, &fault.what)?;
    }
    for event in parsed.events {
        let entry = LedgerEntry::from_event(event, raw.number);
        let Some(seq) = put_event(transaction, &entry, offset, raw.bytes.len())? else {
            put_fault(transaction, raw.number, &ledger::duplicate_id_fault(entry.event.id).what)?;
            continue;
        };
        let id = entry.event.id.to_string();
        transaction.prepare_cached("DELETE FROM lost WHERE id = ?1")?.execute([&id])?;
        transaction
            .prepare_cached("INSERT OR IGNORE INTO twice SELECT id FROM archive WHERE id = ?1")?
            .execute([&id])?;
        for claim in conflict::claims(&entry.event) {
            let mut other = transaction.prepare_cached(
                "SELECT 1 FROM claim WHERE attribute = ?1 AND value <> ?2 LIMIT 1",
            )?;
            if other.exists(params![claim.attribute, claim.value])? {
                transaction
                    .prepare_cached("INSERT OR IGNORE INTO contested VALUES (?1)")?
                    .execute([&claim.attribute])?;
            }
            put_claim(transaction, seq, &claim)?;
        }
        for (target, effect) in entry.event.effects() {
            retracts |= effect == Effect::Retract;
            apply_effect(transaction, &entry.event, target, effect)?;
        }
    }
    Ok(retracts)
}

/// Inserts an event's row; `None` if the id is in use.
fn put_event(
    transaction: &Transaction<'_>,
    entry: &LedgerEntry,
    offset: u64,
    length: usize,
) -> SqlResult<Option<i64>> {
    let event = &entry.event;
    let mut put = transaction.prepare_cached(
        "INSERT OR IGNORE INTO event (id, day, number, told, line, line_offset, line_length, kind, priority, act, entity, source, standing, ended_by, verified, confirmed,
         verified_on, low_trust, saying)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
    )?;
    let added = put.execute(params![
        event.id.to_string(),
        event.id.day().to_string(),
        event.id.number(),
        event.ts.day().to_string(),
        entry.line,
        offset,
        length,
        event.kind.word(),
        event.priority.word(),
        event.act.word(),
        event.entity,
        event.source,
        entry.state.word(),
        entry.state.ended_by().map(|by| by.to_string()),
        entry.verified.to_string(),
        entry.confirmed,
        entry.verified.day().to_string(),
        Trust::from_origin(event.origin) == Trust::Low,
        sameness_hash(&event.content),
    ])?;
    if added == 0 {
        return Ok(None);
    }
    let seq = transaction.last_insert_rowid();
    put_effects(transaction, event)?;
    for tag in &event.tags {
        transaction
            .prepare_cached("INSERT OR IGNORE INTO tag VALUES (?1, ?2)")?
            .execute(params![tag, seq])?;
    }
    Ok(Some(seq))
}

/// Ids as one JSON list, because SQLite limits the number of parameters.
fn id_list(ids: &[EventId]) -> String {
    let mut list = String::with_capacity(2 + 20 * ids.len());
    for id in ids {
        list.push(if list.is_empty() { '[' } else { ',' });
        list.push_str(&format!("\"{id}\""));
    }
    if list.is_empty() { "[]".into() } else { list + "]" }
}

/// A short hash of a text, equal for texts that say the same.
fn sameness_hash(text: &str) -> Vec<u8> {
    Hash::of(sanitize::sameness_key(text).as_bytes()).as_bytes()[..8].to_vec()
}

/// Stores the effects of an event on others.
fn put_effects(transaction: &Transaction<'_>, event: &Event) -> SqlResult<()> {
    for (target, _) in event.effects() {
        let mut put = transaction.prepare_cached("INSERT OR IGNORE INTO effect VALUES (?1, ?2)")?;
        put.execute([event.id.to_string(), target.to_string()])?;
    }
    Ok(())
}

fn put_fault(transaction: &Transaction<'_>, line: usize, what: &str) -> SqlResult<()> {
    transaction
        .prepare_cached("INSERT INTO fault VALUES (?1, ?2)")?
        .execute(params![line, what])?;
    Ok(())
}

fn put_claim(transaction: &Transaction<'_>, seq: i64, claim: &Claim) -> SqlResult<()> {
    transaction.prepare_cached("INSERT INTO claim VALUES (?1, ?2, ?3)")?.execute(params![
        seq,
        claim.attribute,
        claim.value
    ])?;
    Ok(())
}

/// Applies the effect of an event to an earlier one, by the domain's rules.
fn apply_effect(
    transaction: &Transaction<'_>,
    event: &Event,
    target: EventId,
    effect: Effect,
) -> SqlResult<()> {
    if target == event.id || matches!(effect, Effect::Retract | Effect::None) {
        return Ok(());
    }
    let mut query = transaction.prepare_cached(
        "SELECT standing, ended_by, verified, confirmed FROM event WHERE id = ?1",
    )?;
    let row = query
        .query_row([target.to_string()], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, Option<String>>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, bool>(3)?,
            ))
        })
        .optional()?;
    let Some((word, by, verified, confirmed)) = row else { return Ok(()) };
    let before = EventState::from_parts(&word, by.and_then(|id| id.parse().ok()))
        .ok_or_else(damage_error)?;
    let after = before.apply(effect, event.id);
    let mut renewed =
        icecore_domain::calendar::Moment::parse(&verified).ok_or_else(damage_error)?.moment;
    if effect == Effect::Confirm {
        renewed = renewed.max(event.ts);
    }
    let trusted = effect == Effect::Confirm && Trust::from_origin(event.origin) != Trust::Low;
    put_state(transaction, target, after, renewed, confirmed || trusted)
}

fn put_state(
    transaction: &Transaction<'_>,
    id: EventId,
    standing: EventState,
    verified: icecore_domain::calendar::Moment,
    confirmed: bool,
) -> SqlResult<()> {
    let mut put = transaction
        .prepare_cached("UPDATE event SET standing = ?2, ended_by = ?3, verified = ?4, confirmed = ?5, verified_on = ?6 WHERE id = ?1")?;
    let ended_by = standing.ended_by().map(|by| by.to_string());
    put.execute(params![
        id.to_string(),
        standing.word(),
        ended_by,
        verified.to_string(),
        confirmed,
        verified.day().to_string()
    ])?;
    Ok(())
}

/// Computes the state of every event from the whole ledger.
fn recompute_states(transaction: &Transaction<'_>, text: &[u8]) -> SqlResult<()> {
    let mut query =
        transaction.prepare("SELECT id, standing, ended_by, verified, confirmed FROM event")?;
    let known: HashMap<String, (String, Option<String>, String, bool)> = query
        .query_map([], |row| {
            Ok((row.get(0)?, (row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))
        })?
        .collect::<SqlResult<_>>()?;
    for entry in Ledger::parse(text, None).entries() {
        let (standing, verified) = (entry.state, entry.verified);
        let now = (
            standing.word().to_owned(),
            standing.ended_by().map(|by| by.to_string()),
            verified.to_string(),
            entry.confirmed,
        );
        if known.get(&entry.event.id.to_string()) != Some(&now) {
            put_state(transaction, entry.event.id, standing, verified, entry.confirmed)?;
        }
    }
    Ok(())
}

/// Empties the tables and fills them from the whole ledger.
fn fill_tables(
    transaction: &Transaction<'_>,
    text: &[u8],
    progress: Progress<'_>,
) -> SqlResult<CoveredPart> {
    let text = complete_lines(text);
    transaction.execute_batch(
        "CREATE TEMP TABLE before AS SELECT id, day, number FROM event;
         DELETE FROM event; DELETE FROM tag; DELETE FROM twice;
         DELETE FROM effect WHERE source NOT IN (SELECT id FROM archive); DELETE FROM claim; DELETE FROM contested; DELETE FROM fault;",
    )?;
    let ledger = Ledger::parse(text, None);
    for found in ledger.unreadable_lines() {
        put_fault(transaction, found.line, &found.fault.what)?;
    }
    let mut entries = ledger.entries().iter().peekable();
    let mut covered = CoveredPart::empty();
    for raw in ledger::raw_lines(text, 1) {
        while let Some(entry) = entries.next_if(|entry| entry.line == raw.number) {
            let Some(seq) = put_event(transaction, entry, raw.offset as u64, raw.bytes.len())?
            else {
                continue;
            };
            for claim in conflict::claims(&entry.event) {
                put_claim(transaction, seq, &claim)?;
            }
        }
        covered.running = covered.running.chain(raw.bytes);
        covered.lines += 1;
        if covered.lines.is_multiple_of(1_000) {
            progress(raw.offset as u64, text.len() as u64);
        }
    }
    transaction.execute_batch(
        "INSERT OR IGNORE INTO twice SELECT id FROM event CROSS JOIN archive USING (id);
         INSERT INTO contested SELECT attribute FROM claim GROUP BY attribute HAVING min(value) <> max(value);
         INSERT OR IGNORE INTO lost SELECT id, day, number FROM before WHERE id NOT IN (SELECT id FROM event);
         DELETE FROM lost WHERE id IN (SELECT id FROM event) OR id IN (SELECT id FROM archive);
         DROP TABLE before;",
    )?;
    covered.bytes = text.len() as u64;
    progress(covered.bytes, covered.bytes);
    Ok(covered)
}
