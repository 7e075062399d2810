//! Records in a database: append-only documents with one record per line, as in a vault, and the
//! rows derived from them.
//!
//! The line, the row of its key and the sums of its session are written together. A unique key
//! makes each record stored once: of two writers of the same record one conflicts, and tries again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use icecore_domain::calendar::{Days, Moment};
use icecore_domain::layout::{self, DocPath};
use icecore_domain::record::{
    self, BadRecordLine, Record, RecordKey, RecordKind, RecordSetDigest, SessionKey, SessionStats,
};
use jiff::civil::Date;
use tokio_postgres::Row;

use super::documents::{DocumentMeta, split_chunks, to_signed, to_unsigned};
use super::{Space, Tx};
use crate::record_dedup::{self, RecordBatch};
use crate::{AddReport, Error, ErrorKind, RecordStore, Result};

/// The limits of a batch; longer lists are split.
const MAX_BATCH_RECORDS: usize = 20_000;
const MAX_BATCH_BYTES: usize = 32 << 20;
/// Up to this many days are listed in a query; for more, the existing days are read first.
const MAX_LISTED_DAYS: usize = 400;
/// How often a writer tries again after a conflict.
const MAX_TRIES: usize = 16;

/// The columns of a session, in the order of [`session_stat`].
pub(super) const SESSION_COLUMNS: &str = "session.day, session.conversation, session.session, session.records, session.states, session.bytes, session.sum, \
    session.first, session.last, session.captured, session.turn";

/// Rows and texts to write together.
#[derive(Default)]
pub(super) struct PendingWrite<'a> {
    /// Appended text and the resulting length of each document.
    pub(super) texts: Vec<(&'a DocPath, u64, &'a [u8])>,
    /// The sums of sessions.
    pub(super) stats: Vec<(&'a DocPath, SessionStats)>,
    /// Records and their text hashes, by key.
    pub(super) rows: BTreeMap<RecordKey, (&'a DocPath, RecordKey)>,
}

/// The sums of sessions by document.
type SessionsByDocument = HashMap<(DocPath, SessionKey), SessionStats>;

fn damage_error() -> Error {
    Error::database(
        "a row of a record or a session is damaged; rebuild it with `icecore vault reindex`".into(),
    )
}

pub(super) fn key_from_bytes(bytes: &[u8]) -> Result<RecordKey> {
    bytes.try_into().map_err(|_| damage_error())
}

fn session_column(key: &SessionKey) -> &[u8] {
    key.session.as_deref().unwrap_or_default().as_bytes()
}

/// Reads the columns of [`SESSION_COLUMNS`] from `at` on.
pub(super) fn session_stat(row: &Row, at: usize) -> Result<SessionStats> {
    let moment =
        |at: usize| Moment::parse(row.get(at)).map(|read| read.moment).ok_or_else(damage_error);
    let text = |at: usize| String::from_utf8(row.get(at)).map_err(|_| damage_error());
    let number = |at: usize| to_unsigned(row.get(at));
    let day = row.get::<_, &str>(at).parse().map_err(|_| damage_error())?;
    Ok(SessionStats {
        key: SessionKey {
            day,
            conversation: text(at + 1)?,
            session: Some(text(at + 2)?).filter(|session| !session.is_empty()),
        },
        digest: RecordSetDigest::from_parts(number(at + 3), key_from_bytes(row.get(at + 6))?),
        states: number(at + 4),
        bytes: number(at + 5),
        first: moment(at + 7)?,
        last: moment(at + 8)?,
        captured: moment(at + 9)?,
        turn: number(at + 10),
    })
}

/// Splits off the records of the next batch.
fn split_batch(records: &[Record]) -> (&[Record], &[Record]) {
    let mut room = MAX_BATCH_BYTES;
    let fits = |record: &&Record| {
        let was = room;
        room =
            room.saturating_sub(record.text.len() + record.parts.as_ref().map_or(0, String::len));
        was > 0
    };
    records.split_at(records.iter().take(MAX_BATCH_RECORDS).take_while(fits).count())
}

/// The text hashes and the sessions of a document's records.
pub(super) fn text_hashes_and_sessions(
    text: &[u8],
) -> (BTreeMap<RecordKey, RecordKey>, Vec<SessionStats>) {
    let (records, _) = record::parse_file(text);
    (
        records.iter().map(|record| (record.key(), record.wording_hash())).collect(),
        record::session_stats(&records),
    )
}

/// The document and the text hash of a record, if it is stored.
type KnownRecord = Option<(DocPath, RecordKey)>;

impl Space {
    /// Begins a read transaction with one consistent snapshot.
    pub(super) async fn begin_snapshot_read(&self) -> Result<Tx> {
        self.database
            .begin_with(Some(self.id), "ISOLATION LEVEL REPEATABLE READ, READ ONLY", "")
            .await
    }

    /// Updates the derived rows of a replaced or removed document.
    pub(super) async fn derive_replaced(
        &self,
        tx: &Tx,
        path: &DocPath,
        bytes: &[u8],
    ) -> Result<()> {
        if path.record_day().is_none() {
            return Ok(());
        }
        const GONE: &str = "WITH told AS (DELETE FROM icecore.session WHERE space_id = $1 AND path = $2) \
            DELETE FROM icecore.record WHERE space_id = $1 AND path = $2 RETURNING key";
        let before = tx.query(GONE, &[&self.id, &path.as_str()]).await?;
        let (rows, stats) = text_hashes_and_sessions(bytes);
        let is_gone =
            |row: &Row| !key_from_bytes(row.get(0)).is_ok_and(|key| rows.contains_key(&key));
        let lost = before.iter().any(is_gone);
        let writing = PendingWrite {
            stats: stats.into_iter().map(|stat| (path, stat)).collect(),
            rows: rows.into_iter().map(|(key, wording)| (key, (path, wording))).collect(),
            ..PendingWrite::default()
        };
        self.write_derived(tx, &writing).await?;
        if lost {
            self.reassign_keys(tx).await?;
        }
        Ok(())
    }

    /// Updates the derived rows of a document after an append.
    pub(super) async fn derive_appended(
        &self,
        tx: &Tx,
        path: &DocPath,
        _bytes: &[u8],
    ) -> Result<()> {
        if path.record_day().is_none() {
            return Ok(());
        }
        let whole = self.read_document(tx, path).await?;
        self.derive_replaced(tx, path, &whole.map_or_else(Vec::new, |(bytes, _)| bytes)).await
    }

    /// A record in two documents belongs to one of them. When it leaves that one, it is assigned to
    /// the other.
    async fn reassign_keys(&self, tx: &Tx) -> Result<()> {
        const SHORT: &str = "SELECT path FROM (SELECT path, sum(records) AS records FROM icecore.session WHERE space_id = $1 GROUP BY path) AS told \
            LEFT JOIN (SELECT path, count(*) AS rows FROM icecore.record WHERE space_id = $1 GROUP BY path) AS kept USING (path) \
            WHERE records > coalesce(rows, 0)";
        const HELD: &str =
            "SELECT FROM icecore.document WHERE space_id = $1 AND path = $2 FOR UPDATE";
        for row in tx.query(SHORT, &[&self.id]).await? {
            let path: DocPath = row.get::<_, String>(0).parse()?;
            if tx.query_opt(HELD, &[&self.id, &path.as_str()]).await?.is_none() {
                continue;
            }
            let Some((bytes, _)) = self.read_document(tx, &path).await? else { continue };
            let rows = text_hashes_and_sessions(&bytes)
                .0
                .into_iter()
                .map(|(key, wording)| (key, (&path, wording)))
                .collect();
            self.write_derived(tx, &PendingWrite { rows, ..PendingWrite::default() }).await?;
        }
        Ok(())
    }

    /// Writes everything with one statement. Returns how many record rows exist now; the others
    /// belong to another document.
    pub(super) async fn write_derived(&self, tx: &Tx, writing: &PendingWrite<'_>) -> Result<usize> {
        const SQL: &str = "WITH \
            grown AS (UPDATE icecore.document SET length = grown.length, ended = true, version = icecore.version_after(document.version), changed = clock_timestamp() \
                FROM unnest($2::text[], $3::bigint[]) AS grown (path, length) WHERE document.space_id = $1 AND document.path = grown.path \
                RETURNING document.path, document.version), \
            pieces AS (INSERT INTO icecore.chunk (space_id, path, at, version, bytes) SELECT $1, path, piece.at, grown.version, piece.bytes \
                FROM unnest($4::text[], $5::bigint[], $6::bytea[]) AS piece (path, at, bytes) JOIN grown USING (path)), \
            told AS (INSERT INTO icecore.session (space_id, path, day, conversation, session, records, states, bytes, sum, first, last, captured, turn) \
                SELECT $1, * FROM unnest($7::text[], $8::text[], $9::bytea[], $10::bytea[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bytea[], \
                $15::text[], $16::text[], $17::text[], $18::bigint[]) ON CONFLICT (space_id, day, conversation, session, path) DO UPDATE SET \
                records = excluded.records, states = excluded.states, bytes = excluded.bytes, sum = excluded.sum, first = excluded.first, \
                last = excluded.last, captured = excluded.captured, turn = excluded.turn), \
            kept AS (INSERT INTO icecore.record (space_id, key, wording, path) SELECT $1, * FROM unnest($19::bytea[], $20::bytea[], $21::text[]) \
                ON CONFLICT (space_id, key) DO UPDATE SET wording = excluded.wording WHERE record.path = excluded.path RETURNING 1) \
            SELECT count(*) FROM kept";
        let PendingWrite { texts, stats, rows } = writing;
        if texts.is_empty() && stats.is_empty() && rows.is_empty() {
            return Ok(0);
        }
        let pieces: Vec<(&DocPath, i64, &[u8])> = (texts.iter())
            .flat_map(|&(path, length, text)| {
                split_chunks(length - text.len() as u64, text)
                    .map(move |(at, piece)| (path, at, piece))
            })
            .collect();
        let numbers = |number: fn(&SessionStats) -> u64| {
            stats.iter().map(|(_, stat)| to_signed(number(stat))).collect::<Vec<i64>>()
        };
        let moments = |moment: fn(&SessionStats) -> Moment| {
            stats.iter().map(|(_, stat)| moment(stat).to_string()).collect::<Vec<_>>()
        };
        let sums: Vec<[u8; 16]> = stats.iter().map(|(_, stat)| stat.digest.to_bytes()).collect();
        let row = tx
            .query_one(
                SQL,
                &[
                    &self.id,
                    &texts.iter().map(|text| text.0.as_str()).collect::<Vec<_>>(),
                    &texts.iter().map(|text| to_signed(text.1)).collect::<Vec<_>>(),
                    &pieces.iter().map(|piece| piece.0.as_str()).collect::<Vec<_>>(),
                    &pieces.iter().map(|piece| piece.1).collect::<Vec<_>>(),
                    &pieces.iter().map(|piece| piece.2).collect::<Vec<_>>(),
                    &stats.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(),
                    &stats.iter().map(|(_, stat)| stat.key.day.to_string()).collect::<Vec<_>>(),
                    &stats
                        .iter()
                        .map(|(_, stat)| stat.key.conversation.as_bytes())
                        .collect::<Vec<_>>(),
                    &stats.iter().map(|(_, stat)| session_column(&stat.key)).collect::<Vec<_>>(),
                    &numbers(|stat| stat.digest.records),
                    &numbers(|stat| stat.states),
                    &numbers(|stat| stat.bytes),
                    &sums.iter().map(<[u8; 16]>::as_slice).collect::<Vec<_>>(),
                    &moments(|stat| stat.first),
                    &moments(|stat| stat.last),
                    &moments(|stat| stat.captured),
                    &numbers(|stat| stat.turn),
                    &rows.keys().map(RecordKey::as_slice).collect::<Vec<_>>(),
                    &rows.values().map(|(_, wording)| wording.as_slice()).collect::<Vec<_>>(),
                    &rows.values().map(|(path, _)| path.as_str()).collect::<Vec<_>>(),
                ],
            )
            .await?;
        Ok(usize::try_from(row.get::<_, i64>(0)).unwrap_or(0))
    }

    /// Stores records; with a lease, as pending exchanges.
    pub(super) async fn write_records(
        &self,
        records: Vec<Record>,
        awaited: Option<Duration>,
    ) -> Result<AddReport> {
        let mut added = AddReport::default();
        let mut rest = records.as_slice();
        while !rest.is_empty() {
            let (some, later) = split_batch(rest);
            let more = self.write_record_batch(some, awaited).await?;
            (added.new, added.same) = (added.new + more.new, added.same + more.same);
            added.revised.extend(more.revised);
            rest = later;
        }
        Ok(added)
    }

    async fn write_record_batch(
        &self,
        records: &[Record],
        awaited: Option<Duration>,
    ) -> Result<AddReport> {
        let keys: Vec<RecordKey> = records.iter().map(Record::key).collect();
        let mut paths: BTreeSet<DocPath> = records.iter().map(Record::path).collect();
        for _ in 0..MAX_TRIES {
            match self.try_write_record_batch(records, &keys, &mut paths, awaited).await {
                Ok(Some(added)) => return Ok(added),
                // A conflict, or more documents to lock.
                Ok(None) | Err(Error { kind: ErrorKind::Conflict, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::conflict("the memory".into()))
    }

    /// Stores records under locks on these documents; `None` if more documents need a lock, or
    /// another writer was faster.
    async fn try_write_record_batch(
        &self,
        records: &[Record],
        keys: &[RecordKey],
        paths: &mut BTreeSet<DocPath>,
        awaited: Option<Duration>,
    ) -> Result<Option<AddReport>> {
        let tx = self.begin().await?;
        let names: Vec<DocPath> = paths.iter().cloned().collect();
        let held: BTreeMap<&DocPath, (DocumentMeta, bool)> =
            names.iter().zip(self.lock_documents(&tx, &names).await?).collect();
        let (known, so_far) = self.look_up_records(&tx, records, keys).await?;
        let mut added = AddReport::default();
        let RecordBatch { new_records: fresh, revisions } =
            RecordBatch::classify(records, keys, known, &mut added);
        if revisions.keys().any(|path| !held.contains_key(path)) {
            paths.extend(revisions.into_keys());
            return Ok(None);
        }
        let mut writing = PendingWrite::default();
        let mut texts: Vec<(&DocPath, Vec<u8>)> = Vec::new();
        for (&path, (look, _)) in &held {
            let new = fresh.get(path).map(Vec::as_slice).unwrap_or_default();
            let mut text = if look.is_terminated { String::new() } else { "\n".to_owned() };
            text.push_str(&record_dedup::record_lines(new.iter().copied()));
            writing
                .rows
                .extend(new.iter().map(|record| (record.key(), (path, record.wording_hash()))));
            let stats: Vec<SessionStats> = match revisions.get(path) {
                None if new.is_empty() => continue,
                None => {
                    let stats = record::session_stats(new.iter().copied()).into_iter();
                    stats
                        .map(|stat| {
                            so_far
                                .get(&(path.clone(), stat.key.clone()))
                                .cloned()
                                .map_or(stat.clone(), |so_far| so_far.merge(&stat))
                        })
                        .collect()
                }
                Some(others) => {
                    let mut whole = self.read_from(&tx, path, 0).await?;
                    whole.extend_from_slice(text.as_bytes());
                    let others = record_dedup::pending_revisions(
                        &record::parse_file(&whole).0,
                        others,
                        &mut added,
                    );
                    let lines = record_dedup::record_lines(&others);
                    whole.extend_from_slice(lines.as_bytes());
                    text.push_str(&lines);
                    writing.rows.extend(
                        others.iter().map(|record| (record.key(), (path, record.wording_hash()))),
                    );
                    let touched: HashSet<SessionKey> =
                        new.iter().copied().chain(&others).map(Record::session_key).collect();
                    let mut stats = record::session_stats(&record::parse_file(&whole).0);
                    stats.retain(|stat| touched.contains(&stat.key));
                    stats
                }
            };
            writing.stats.extend(stats.into_iter().map(|stat| (path, stat)));
            texts.push((path, text.into_bytes()));
        }
        for (path, text) in &texts {
            let before = held.get(path).map_or(0, |(look, _)| look.length);
            writing.texts.push((path, before + text.len() as u64, text));
        }
        let grown: HashSet<&DocPath> = texts.iter().map(|(path, _)| *path).collect();
        let unused: Vec<&str> = held
            .iter()
            .filter(|(path, (_, made))| *made && !grown.contains(*path))
            .map(|(path, _)| path.as_str())
            .collect();
        if !unused.is_empty() {
            tx.execute(
                "DELETE FROM icecore.document WHERE space_id = $1 AND path = ANY($2)",
                &[&self.id, &unused],
            )
            .await?;
        }
        if self.write_derived(&tx, &writing).await? < writing.rows.len() {
            return Ok(None);
        }
        self.count_messages(&tx, added.new).await?;
        if let Some(lease) = awaited {
            self.set_pending(
                &tx,
                &records.iter().map(|record| record.conversation.as_str()).collect(),
                lease,
            )
            .await?;
        }
        tx.commit().await?;
        Ok(Some(added))
    }

    /// Counts new messages against the daily quota.
    async fn count_messages(&self, tx: &Tx, new: usize) -> Result<()> {
        const SQL: &str = "INSERT INTO icecore.used AS kept (space_id, messages) VALUES ($1, $2) \
            ON CONFLICT (space_id, day) DO UPDATE SET messages = kept.messages + excluded.messages";
        if new > 0 {
            tx.execute(SQL, &[&self.id, &i64::try_from(new).unwrap_or(i64::MAX)]).await?;
        }
        Ok(())
    }

    /// What is stored of each record, and the sums of the sessions they belong to.
    async fn look_up_records(
        &self,
        tx: &Tx,
        records: &[Record],
        keys: &[RecordKey],
    ) -> Result<(Vec<KnownRecord>, SessionsByDocument)> {
        // Lists instead of a join, so that every query plan reads each row once.
        let sql = format!(
            "SELECT path, key, wording, {} FROM icecore.record WHERE space_id = $1 AND key = ANY($2) \
             UNION ALL SELECT path, NULL, NULL, {SESSION_COLUMNS} FROM icecore.session \
             WHERE space_id = $1 AND path = ANY($3) AND conversation = ANY($4) AND session = ANY($5)",
            "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"
        );
        let sessions: HashSet<(DocPath, SessionKey)> =
            records.iter().map(|record| (record.path(), record.session_key())).collect();
        let paths: BTreeSet<&str> = sessions.iter().map(|(path, _)| path.as_str()).collect();
        let conversations: BTreeSet<&[u8]> =
            sessions.iter().map(|(_, key)| key.conversation.as_bytes()).collect();
        let names: BTreeSet<&[u8]> = sessions.iter().map(|(_, key)| session_column(key)).collect();
        let rows = tx
            .query(
                &sql,
                &[
                    &self.id,
                    &keys.iter().map(RecordKey::as_slice).collect::<Vec<_>>(),
                    &paths.into_iter().collect::<Vec<_>>(),
                    &conversations.into_iter().collect::<Vec<_>>(),
                    &names.into_iter().collect::<Vec<_>>(),
                ],
            )
            .await?;
        let (mut known, mut so_far) = (HashMap::new(), SessionsByDocument::new());
        for row in &rows {
            let path: DocPath = row.get::<_, &str>(0).parse()?;
            match row.get::<_, Option<&[u8]>>(1) {
                Some(key) => {
                    known.insert(key_from_bytes(key)?, (path, key_from_bytes(row.get(2))?));
                }
                None => {
                    let stat = session_stat(row, 3)?;
                    so_far.insert((path, stat.key.clone()), stat);
                }
            }
        }
        Ok((keys.iter().map(|key| known.get(key).cloned()).collect(), so_far))
    }

    /// The texts of these documents, by day and kind.
    async fn read_texts(&self, tx: &Tx, paths: &[DocPath]) -> Result<Vec<(DocPath, Vec<u8>)>> {
        const SQL: &str = "SELECT path, string_agg(bytes, ''::bytea ORDER BY at) FROM icecore.chunk WHERE space_id = $1 AND path = ANY($2) GROUP BY path";
        let paths: Vec<&str> = paths.iter().map(DocPath::as_str).collect();
        let rows = tx.query(SQL, &[&self.id, &paths]).await?;
        let mut found = rows
            .iter()
            .map(|row| Ok((row.get::<_, String>(0).parse()?, row.get(1))))
            .collect::<Result<Vec<(DocPath, Vec<u8>)>>>()?;
        found.sort_by(|(a, _), (b, _)| (a.record_day(), a).cmp(&(b.record_day(), b)));
        Ok(found)
    }

    /// The documents with records, by path.
    pub(super) async fn list_record_documents(&self, tx: &Tx) -> Result<Vec<DocPath>> {
        let mut found = Vec::new();
        for folder in [layout::MESSAGES, layout::SNAPSHOTS] {
            found.extend(self.list_documents(tx, folder).await?.into_iter().map(|(path, _)| path));
        }
        found.retain(|path| path.record_day().is_some());
        Ok(found)
    }
}

#[async_trait]
impl RecordStore for Space {
    async fn add_records(&self, records: Vec<Record>) -> Result<AddReport> {
        self.write_records(records, None).await
    }

    async fn contains_records(&self, keys: &[RecordKey]) -> Result<Vec<bool>> {
        let tx = self.begin_reading().await?;
        let names: Vec<&[u8]> = keys.iter().map(RecordKey::as_slice).collect();
        let rows = tx
            .query(
                "SELECT key FROM icecore.record WHERE space_id = $1 AND key = ANY($2)",
                &[&self.id, &names],
            )
            .await?;
        let known: HashSet<Vec<u8>> = rows.iter().map(|row| row.get(0)).collect();
        tx.commit().await?;
        Ok(keys.iter().map(|key| known.contains(key.as_slice())).collect())
    }

    async fn records(&self, days: Days) -> Result<Vec<Record>> {
        let tx = self.begin_reading().await?;
        let paths: Vec<DocPath> = match days.len() {
            0..=MAX_LISTED_DAYS => days
                .iter()
                .flat_map(|day| {
                    RecordKind::ALL.iter().map(move |&kind| DocPath::records(kind, day))
                })
                .collect(),
            _ => {
                let mut all = self.list_record_documents(&tx).await?;
                all.retain(|path| path.record_day().is_some_and(|day| days.contains(day)));
                all
            }
        };
        let texts = self.read_texts(&tx, &paths).await?;
        tx.commit().await?;
        let mut found: Vec<Record> =
            texts.iter().flat_map(|(_, text)| record::parse_file(text).0).collect();
        found.sort_by_key(|record| record.ts.timestamp());
        Ok(found)
    }

    async fn recent_records(&self, conversation: &str, most: usize) -> Result<Vec<Record>> {
        let tx = self.begin_reading().await?;
        let sql = "SELECT path, sum(records)::bigint FROM icecore.session WHERE space_id = $1 AND conversation = $2 GROUP BY path";
        let mut days: BTreeMap<Option<Date>, (u64, Vec<DocPath>)> = BTreeMap::new();
        for row in tx.query(sql, &[&self.id, &conversation.as_bytes()]).await? {
            let path: DocPath = row.get::<_, String>(0).parse()?;
            let (records, paths) = days.entry(path.record_day()).or_default();
            *records += to_unsigned(row.get(1));
            paths.push(path);
        }
        let (mut missing, mut paths) = (most as u64, Vec::new());
        for (records, own) in days.into_values().rev() {
            if missing == 0 {
                break;
            }
            missing = missing.saturating_sub(records);
            paths.extend(own);
        }
        let texts =
            if paths.is_empty() { Vec::new() } else { self.read_texts(&tx, &paths).await? };
        tx.commit().await?;
        let mut found = Vec::new();
        for day in texts.chunk_by(|(a, _), (b, _)| a.record_day() == b.record_day()) {
            let mut told: Vec<Record> = day
                .iter()
                .flat_map(|(_, text)| record_dedup::conversation_records(text, conversation))
                .collect();
            told.sort_by_key(|record| record.ts.timestamp());
            found.extend(told);
        }
        Ok(found.split_off(found.len().saturating_sub(most)))
    }

    async fn conversation_digest(&self, conversation: &str, days: Days) -> Result<RecordSetDigest> {
        let tx = self.begin_reading().await?;
        let sql = "SELECT records, sum FROM icecore.session WHERE space_id = $1 AND conversation = $2 AND day BETWEEN $3 AND $4";
        let params = (days.first.to_string(), days.last.to_string());
        let rows =
            tx.query(sql, &[&self.id, &conversation.as_bytes(), &params.0, &params.1]).await?;
        tx.commit().await?;
        let mut digest = RecordSetDigest::default();
        for row in &rows {
            digest = digest.combine(RecordSetDigest::from_parts(
                to_unsigned(row.get(0)),
                key_from_bytes(row.get(1))?,
            ));
        }
        Ok(digest)
    }

    async fn sessions(&self, days: Option<Days>) -> Result<Vec<SessionStats>> {
        let (first, last) = days.map_or((String::new(), "~".to_owned()), |days| {
            (days.first.to_string(), days.last.to_string())
        });
        let tx = self.begin_reading().await?;
        let sql = format!(
            "SELECT {SESSION_COLUMNS} FROM icecore.session WHERE space_id = $1 AND day BETWEEN $2 AND $3"
        );
        let rows = tx.query(&sql, &[&self.id, &first, &last]).await?;
        tx.commit().await?;
        let mut found: BTreeMap<SessionKey, SessionStats> = BTreeMap::new();
        for row in &rows {
            let stat = session_stat(row, 0)?;
            let both = match found.remove(&stat.key) {
                Some(before) => before.merge(&stat),
                None => stat,
            };
            found.insert(both.key.clone(), both);
        }
        Ok(found.into_values().collect())
    }

    async fn record_days(&self) -> Result<Vec<Date>> {
        let tx = self.begin_reading().await?;
        let paths = self.list_record_documents(&tx).await?;
        tx.commit().await?;
        let days: BTreeSet<Date> = paths.iter().filter_map(DocPath::record_day).collect();
        Ok(days.into_iter().collect())
    }

    async fn bad_records(&self) -> Result<Vec<(DocPath, BadRecordLine)>> {
        let tx = self.begin_reading().await?;
        let mut found = Vec::new();
        for path in self.list_record_documents(&tx).await? {
            let text = self.read_from(&tx, &path, 0).await?;
            found.extend(record::parse_file(&text).1.into_iter().map(|bad| (path.clone(), bad)));
        }
        tx.commit().await?;
        Ok(found)
    }

    async fn forget_records(&self, days: Days, conversation: &str) -> Result<usize> {
        let tx = self.begin().await?;
        let sql = "SELECT DISTINCT path FROM icecore.session WHERE space_id = $1 AND conversation = $2 ORDER BY path";
        let mut paths = Vec::new();
        for row in tx.query(sql, &[&self.id, &conversation.as_bytes()]).await? {
            let path: DocPath = row.get::<_, String>(0).parse()?;
            if path.record_day().is_some_and(|day| days.contains(day)) {
                paths.push(path);
            }
        }
        if paths.is_empty() {
            return Ok(0);
        }
        self.lock_documents(&tx, &paths).await?;
        let mut gone = 0;
        for path in &paths {
            let (keys, kept) = record_dedup::without_conversation(
                &self.read_from(&tx, path, 0).await?,
                conversation,
            );
            gone += keys.len();
            match kept.is_empty() {
                true => self.delete_document(&tx, path).await?,
                false if keys.is_empty() => continue,
                false => {
                    self.write_document(&tx, path, &kept).await?;
                }
            }
            self.derive_replaced(&tx, path, &kept).await?;
        }
        tx.commit().await?;
        Ok(gone)
    }
}
