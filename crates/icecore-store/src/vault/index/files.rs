//! The index of records, archives and summaries: which there are, and the sums of sessions.
//!
//! Each file is indexed as a whole unless this process just appended to it; a file with another
//! stat is indexed again. So the content of the index does not depend on how it was built.

use std::collections::{BTreeMap, HashMap};

use icecore_domain::calendar::{Days, Moment};
use icecore_domain::format::line;
use icecore_domain::hash::Hash;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger;
use icecore_domain::ledger::query::EventQuery;
use icecore_domain::record::{self, Record, RecordKey, RecordSetDigest, SessionKey, SessionStats};
use icecore_domain::summary::{Summary, SummaryHead, SummaryQuery};
use jiff::civil::Date;
use rusqlite::types::Value;
use rusqlite::{
    Connection, OptionalExtension, Row as SqlRow, Transaction, TransactionBehavior, params,
    params_from_iter,
};

use super::connection::damage_error;
use super::event_queries::id_list;
use super::event_rows::{put_effects, sameness_hash};
use super::{FileStat, Index, SqlResult};
use crate::Progress;

/// A file as it is now: its stat and its bytes.
pub(in crate::vault) struct CurrentFile {
    pub look: Option<FileStat>,
    pub text: Vec<u8>,
}

/// The place of a summary version.
pub(in crate::vault) struct SummaryLocation {
    pub head: SummaryHead,
    pub offset: u64,
    pub length: usize,
}

impl Index {
    /// The files whose index entries are out of date, removed files included.
    pub fn stale_files(&self, files: &[(DocPath, Option<FileStat>)]) -> SqlResult<Vec<DocPath>> {
        let state = self.connection.unchecked_transaction()?;
        let mut query = state.prepare_cached("SELECT stamp FROM taken WHERE path = ?1")?;
        let mut stale = Vec::new();
        for (path, look) in files {
            let known: Option<String> =
                query.query_row([path.as_str()], |row| row.get(0)).optional()?;
            if known != look.map(|look| look.stamp()) {
                stale.push(path.clone());
            }
        }
        Ok(stale)
    }

    /// Indexes a whole file. `read` is called under the index's write lock: what is in the index
    /// was in the file before.
    pub fn index_file(
        &mut self,
        path: &DocPath,
        read: impl FnOnce() -> SqlResult<CurrentFile>,
    ) -> SqlResult<()> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let now = read()?;
        fill_file(&transaction, path, &now)?;
        transaction.commit()?;
        self.truncate_own_log()
    }

    /// Replaces the index of all files by these in one transaction: others see the old or the new
    /// state.
    pub fn reindex_files(
        &mut self,
        files: &[DocPath],
        read: impl Fn(&DocPath) -> SqlResult<CurrentFile>,
        progress: Progress<'_>,
    ) -> SqlResult<()> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(
            "DELETE FROM record; DELETE FROM session; DELETE FROM summary; DELETE FROM archive; DELETE FROM archived_on;
                 DELETE FROM twice; DELETE FROM taken;",
        )?;
        for (done, path) in files.iter().enumerate() {
            fill_file(&transaction, path, &read(path)?)?;
            progress(done as u64 + 1, files.len() as u64);
        }
        transaction.commit()?;
        self.truncate_own_log()
    }

    /// The file and the text hash of each of these keys that is indexed.
    pub fn find_records(&self, keys: &[RecordKey]) -> SqlResult<Vec<Option<(String, RecordKey)>>> {
        let state = self.connection.unchecked_transaction()?;
        let mut query = state.prepare_cached(
            "SELECT path, wording FROM record JOIN taken USING (file) WHERE key = ?1",
        )?;
        keys.iter()
            .map(|key| {
                query
                    .query_row([key.as_slice()], |row| Ok((row.get(0)?, key_of(row, 1)?)))
                    .optional()
            })
            .collect()
    }

    /// Indexes records that this process just appended under the lock: for each file its new
    /// records, its earlier length and its current stat.
    pub fn add_own_records(
        &mut self,
        own: &[(DocPath, Vec<&Record>, u64, FileStat)],
    ) -> SqlResult<()> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut rows: Vec<(RecordKey, RecordKey, i64)> = Vec::new();
        for (path, records, start, look) in own {
            let known = transaction
                .prepare_cached("SELECT file, bytes FROM taken WHERE path = ?1")?
                .query_row([path.as_str()], |row| {
                    Ok((row.get::<_, i64>(0)?, row.get::<_, u64>(1)?))
                })
                .optional()?;
            let (file, bytes) = match known {
                Some(known) => known,
                None => (put_file_stamp(&transaction, path, Some(*look))?, 0),
            };
            if bytes != *start {
                // The file has other changes too; dropping its stamp makes the next query index all
                // of it.
                put_file_stamp(&transaction, path, None)?;
                continue;
            }
            let mut stats: BTreeMap<SessionKey, SessionStats> = BTreeMap::new();
            for record in records {
                rows.push((record.key(), record.wording_hash(), file));
                let key = record.session_key();
                stats
                    .entry(key.clone())
                    .or_insert_with(|| SessionStats::new(key, record))
                    .add(record);
            }
            for stat in stats.into_values() {
                let so_far = transaction
                    .prepare_cached("SELECT * FROM session WHERE day = ?1 AND conversation = ?2 AND session = ?3 AND file = ?4")?
                    .query_row(params![stat.key.day.to_string(), stat.key.conversation, session_column(&stat.key), file], session_stat)
                    .optional()?;
                put_session(
                    &transaction,
                    file,
                    &so_far.map_or(stat.clone(), |so_far| so_far.merge(&stat)),
                )?;
            }
            put_file_stamp(&transaction, path, Some(*look))?;
        }
        // In table order, so that each page is visited once.
        rows.sort_unstable();
        {
            let mut put =
                transaction.prepare_cached("INSERT OR IGNORE INTO record VALUES (?1, ?2, ?3)")?;
            for (key, wording, file) in &rows {
                put.execute(params![key.as_slice(), wording.as_slice(), file])?;
            }
        }
        transaction.commit()?;
        self.truncate_own_log()
    }

    /// The sessions of these days, or all.
    pub fn sessions(&self, days: Option<Days>) -> SqlResult<Vec<SessionStats>> {
        let (first, last) = days.map_or((String::new(), "~".to_owned()), |days| {
            (days.first.to_string(), days.last.to_string())
        });
        let mut query = self.connection.prepare_cached(
            "SELECT * FROM session WHERE day BETWEEN ?1 AND ?2 ORDER BY day, conversation, session",
        )?;
        let rows = query.query_map([first, last], session_stat)?;
        let mut found: Vec<SessionStats> = Vec::new();
        for stat in rows {
            let stat = stat?;
            match found.last_mut() {
                Some(before) if before.key == stat.key => *before = before.clone().merge(&stat),
                _ => found.push(stat),
            }
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    /// The digest of a conversation's records on these days.
    pub fn digest(&self, conversation: &str, days: Days) -> SqlResult<RecordSetDigest> {
        let mut query = self.connection.prepare_cached(
            "SELECT records, sum FROM session WHERE conversation = ?1 AND day BETWEEN ?2 AND ?3",
        )?;
        let among = params![conversation, days.first.to_string(), days.last.to_string()];
        let mut digest = RecordSetDigest::default();
        for part in query
            .query_map(among, |row| Ok(RecordSetDigest::from_parts(row.get(0)?, key_of(row, 1)?)))?
        {
            digest = digest.combine(part?);
        }
        Ok(digest)
    }

    /// The days with records of a conversation, in order.
    pub fn conversation_days(&self, conversation: &str) -> SqlResult<Vec<Date>> {
        let mut query = self.connection.prepare_cached(
            "SELECT DISTINCT day FROM session WHERE conversation = ?1 ORDER BY day",
        )?;
        query
            .query_map([conversation], |row| {
                row.get::<_, String>(0)?.parse().map_err(|_| damage_error())
            })?
            .collect()
    }

    /// The days with events, and the number of events of each.
    pub fn event_days(&self) -> SqlResult<Vec<(Date, usize)>> {
        // Archived events count on their day too.
        let mut query = self.connection.prepare_cached(
            "SELECT told, sum(many) FROM (SELECT told, count(*) AS many FROM event GROUP BY told
             UNION ALL SELECT told, events FROM archived_on
             UNION ALL SELECT archive.told, -1 FROM twice CROSS JOIN archive USING (id))
             GROUP BY told HAVING sum(many) > 0",
        )?;
        query
            .query_map([], |row| {
                Ok((row.get::<_, String>(0)?.parse().map_err(|_| damage_error())?, row.get(1)?))
            })?
            .collect()
    }

    /// The places of archived events: file, offset and length. A superset of the result; the domain
    /// filters it.
    pub fn archived_places(&self, which: &EventQuery) -> SqlResult<Vec<(String, u64, usize)>> {
        let state = self.connection.unchecked_transaction()?;
        let place = |row: &SqlRow<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        const PLACE_COLUMNS: &str =
            "SELECT path, line_offset, line_length FROM archive JOIN taken USING (file)";
        let mut found: Vec<(String, u64, usize)> = Vec::new();
        if which.ids.is_empty() {
            let mut rules = vec!["1"];
            let mut values: Vec<Value> = Vec::new();
            let mut rule = |sql: &'static str, value: Option<Value>| {
                if let Some(value) = value {
                    rules.push(sql);
                    values.push(value);
                }
            };
            rule("entity = ?", which.entity.clone().map(Value::from));
            rule(
                if which.source.as_deref() == Some("live") {
                    "source = ?"
                } else {
                    "source <> 'live' AND source = ?"
                },
                which.source.clone().map(Value::from),
            );
            rule(
                "saying = ?",
                which.saying.as_deref().map(|text| Value::from(sameness_hash(text))),
            );
            let mut query =
                state.prepare(&format!("{PLACE_COLUMNS} WHERE {}", rules.join(" AND ")))?;
            found = query.query_map(params_from_iter(values), place)?.collect::<SqlResult<_>>()?;
        }
        let mut query = state
            .prepare(&format!("{PLACE_COLUMNS} WHERE id IN (SELECT value FROM json_each(?1))"))?;
        for one in query.query_map([id_list(&which.ids)], place)? {
            found.push(one?);
        }
        found.sort();
        Ok(found)
    }

    /// Indexes summaries that this process just appended at `start`.
    pub fn add_own_summaries(
        &mut self,
        path: &DocPath,
        start: u64,
        summaries: &[Summary],
        stat: FileStat,
    ) -> SqlResult<()> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let bytes: u64 = transaction
            .prepare_cached("SELECT bytes FROM taken WHERE path = ?1")?
            .query_row([path.as_str()], |row| row.get(0))
            .optional()?
            .unwrap_or(0);
        if bytes != start {
            return Ok(());
        }
        let mut offset = start;
        for summary in summaries {
            let length = summary.to_line().len();
            put_summary(&transaction, &summary.head(), offset, length - 1)?;
            offset += length as u64;
        }
        put_file_stamp(&transaction, path, Some(stat))?;
        transaction.commit()?;
        self.truncate_own_log()
    }

    /// The newest matching versions, by first day and period.
    pub fn summary_locations(&self, which: &SummaryQuery) -> SqlResult<Vec<SummaryLocation>> {
        let mut sql = String::from(
            "SELECT period, version, conversation, session, recorded, source, log, content, messages, states, by_hand, provisional,
             importance, headline_bytes, body_bytes, line_offset, line_length FROM summary WHERE 1",
        );
        let mut values: Vec<Value> = Vec::new();
        if !which.tiers.is_empty() {
            sql.push_str(&format!(" AND tier IN ({})", vec!["?"; which.tiers.len()].join(",")));
            values.extend(which.tiers.iter().map(|tier| Value::from(tier.word().to_owned())));
        }
        if let Some(days) = which.days {
            sql.push_str(" AND first BETWEEN ? AND ?");
            values
                .extend([Value::from(days.first.to_string()), Value::from(days.last.to_string())]);
        }
        sql.push_str(" ORDER BY seq");
        let mut query = self.connection.prepare_cached(&sql)?;
        let all: Vec<SummaryLocation> = query
            .query_map(params_from_iter(values), summary_location)?
            .collect::<SqlResult<_>>()?;
        Ok(which.select_newest(all, |place| (place.head.period, place.head.recorded)))
    }
}

/// Replaces the index entries of one file.
pub(super) fn fill_file(
    transaction: &Transaction<'_>,
    path: &DocPath,
    now: &CurrentFile,
) -> SqlResult<()> {
    if path.as_str() == layout::SUMMARIES {
        transaction.execute("DELETE FROM summary", [])?;
        let mut offset = 0;
        for line in now.text.split_inclusive(|&byte| byte == b'\n') {
            if let Ok(summary) = Summary::parse_line(line.trim_ascii()) {
                put_summary(transaction, &summary.head(), offset, line.trim_ascii_end().len())?;
            }
            offset += line.len() as u64;
        }
        put_file_stamp(transaction, path, now.look)?;
        return Ok(());
    }
    if path.is_archive() {
        return fill_archive(transaction, path, now);
    }
    let file: Option<i64> = transaction
        .prepare_cached("SELECT file FROM taken WHERE path = ?1")?
        .query_row([path.as_str()], |row| row.get(0))
        .optional()?;
    if let Some(file) = file {
        transaction.prepare_cached("DELETE FROM record WHERE file = ?1")?.execute([file])?;
        transaction.prepare_cached("DELETE FROM session WHERE file = ?1")?.execute([file])?;
    }
    let file = put_file_stamp(transaction, path, now.look)?;
    let (records, _) = record::parse_file(&now.text);
    let mut put = transaction.prepare_cached("INSERT OR IGNORE INTO record VALUES (?1, ?2, ?3)")?;
    for record in &records {
        put.execute(params![record.key().as_slice(), record.wording_hash().as_slice(), file])?;
    }
    record::session_stats(&records).iter().try_for_each(|stat| put_session(transaction, file, stat))
}

fn fill_archive(transaction: &Transaction<'_>, path: &DocPath, now: &CurrentFile) -> SqlResult<()> {
    put_file_stamp(transaction, path, None)?;
    if now.look.is_none() {
        return Ok(());
    }
    let file = put_file_stamp(transaction, path, now.look)?;
    let mut put = transaction.prepare_cached(
        "INSERT OR IGNORE INTO archive VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    for raw in ledger::raw_lines(&now.text, 1) {
        for event in line::parse_line(raw.bytes).events {
            put.execute(params![
                event.id.to_string(),
                event.id.day().to_string(),
                event.id.number(),
                event.ts.day().to_string(),
                event.entity,
                event.source,
                sameness_hash(&event.content),
                file,
                raw.offset as u64,
                raw.bytes.len(),
            ])?;
            put_effects(transaction, &event)?;
        }
    }
    for sql in [
        "INSERT INTO archived_on SELECT file, told, count(*) FROM archive WHERE file = ?1 GROUP BY told",
        "INSERT OR IGNORE INTO twice SELECT id FROM archive CROSS JOIN event USING (id) WHERE file = ?1",
    ] {
        transaction.prepare_cached(sql)?.execute([file])?;
    }
    Ok(())
}

/// Stores the stat of a file and returns its number in the index; `None` removes the file.
fn put_file_stamp(
    transaction: &Transaction<'_>,
    path: &DocPath,
    stat: Option<FileStat>,
) -> SqlResult<i64> {
    let Some(stat) = stat else {
        for sql in [
            "DELETE FROM record WHERE file IN (SELECT file FROM taken WHERE path = ?1)",
            "DELETE FROM session WHERE file IN (SELECT file FROM taken WHERE path = ?1)",
            "DELETE FROM effect WHERE source IN (SELECT id FROM archive JOIN taken USING (file) WHERE path = ?1)",
            "DELETE FROM twice WHERE id IN (SELECT id FROM archive JOIN taken USING (file) WHERE path = ?1)",
            "DELETE FROM archived_on WHERE file IN (SELECT file FROM taken WHERE path = ?1)",
            "DELETE FROM archive WHERE file IN (SELECT file FROM taken WHERE path = ?1)",
            "DELETE FROM taken WHERE path = ?1",
        ] {
            transaction.prepare_cached(sql)?.execute([path.as_str()])?;
        }
        return Ok(0);
    };
    let mut put = transaction.prepare_cached(
        "INSERT INTO taken (path, bytes, stamp) VALUES (?1, ?2, ?3)
         ON CONFLICT (path) DO UPDATE SET bytes = excluded.bytes, stamp = excluded.stamp RETURNING file",
    )?;
    put.query_row(params![path.as_str(), stat.len, stat.stamp()], |row| row.get(0))
}

fn session_column(key: &SessionKey) -> &str {
    key.session.as_deref().unwrap_or_default()
}

fn put_session(transaction: &Transaction<'_>, file: i64, stat: &SessionStats) -> SqlResult<()> {
    let mut put = transaction.prepare_cached(
        "INSERT OR REPLACE INTO session VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    put.execute(params![
        stat.key.day.to_string(),
        stat.key.conversation,
        session_column(&stat.key),
        file,
        stat.digest.records,
        stat.states,
        stat.bytes,
        stat.digest.to_bytes().as_slice(),
        stat.first.to_string(),
        stat.last.to_string(),
        stat.captured.to_string(),
        stat.turn,
    ])?;
    Ok(())
}

fn session_stat(row: &SqlRow<'_>) -> SqlResult<SessionStats> {
    let moment = |at: usize| {
        Moment::parse(&row.get::<_, String>(at)?).map(|read| read.moment).ok_or_else(damage_error)
    };
    let session: String = row.get(2)?;
    Ok(SessionStats {
        key: SessionKey {
            day: row.get::<_, String>(0)?.parse().map_err(|_| damage_error())?,
            conversation: row.get(1)?,
            session: Some(session).filter(|session| !session.is_empty()),
        },
        digest: RecordSetDigest::from_parts(row.get(4)?, key_of(row, 7)?),
        states: row.get(5)?,
        bytes: row.get(6)?,
        first: moment(8)?,
        last: moment(9)?,
        captured: moment(10)?,
        turn: row.get(11)?,
    })
}

fn key_of(row: &SqlRow<'_>, at: usize) -> SqlResult<RecordKey> {
    row.get::<_, Vec<u8>>(at)?.try_into().map_err(|_| damage_error())
}

fn put_summary(
    transaction: &Transaction<'_>,
    head: &SummaryHead,
    offset: u64,
    length: usize,
) -> SqlResult<()> {
    let mut put = transaction.prepare_cached(
        "INSERT INTO summary (tier, first, period, version, conversation, session, recorded, source, log, content, messages, states,
         by_hand, provisional, importance, headline_bytes, body_bytes, line_offset, line_length)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
    )?;
    put.execute(params![
        head.period.tier().word(),
        head.period.days().first.to_string(),
        head.period.to_string(),
        head.version,
        head.session.as_ref().map(|key| key.conversation.as_str()),
        head.session.as_ref().and_then(|key| key.session.as_deref()),
        head.recorded.to_string(),
        head.source.as_bytes().as_slice(),
        head.log.as_ref().map(|hash| hash.as_bytes().as_slice()),
        head.content.as_bytes().as_slice(),
        head.messages,
        head.states,
        head.by_hand,
        head.provisional,
        head.importance.word(),
        head.headline_bytes,
        head.body_bytes,
        offset,
        length,
    ])?;
    Ok(())
}

fn summary_location(row: &SqlRow<'_>) -> SqlResult<SummaryLocation> {
    let hash = |at: usize| Hash::from_bytes(&row.get::<_, Vec<u8>>(at)?).ok_or_else(damage_error);
    let period: icecore_domain::summary::Period =
        row.get::<_, String>(0)?.parse().map_err(|_| damage_error())?;
    let conversation: Option<String> = row.get(2)?;
    let log: Option<Vec<u8>> = row.get(6)?;
    let session = match conversation {
        Some(conversation) => {
            Some(SessionKey { day: period.days().first, conversation, session: row.get(3)? })
        }
        None => None,
    };
    Ok(SummaryLocation {
        head: SummaryHead {
            period,
            version: row.get(1)?,
            session,
            recorded: Moment::parse(&row.get::<_, String>(4)?).ok_or_else(damage_error)?.moment,
            source: hash(5)?,
            log: log.as_deref().and_then(Hash::from_bytes),
            content: hash(7)?,
            messages: row.get(8)?,
            states: row.get(9)?,
            by_hand: row.get(10)?,
            provisional: row.get(11)?,
            importance: row.get::<_, String>(12)?.parse().map_err(|_| damage_error())?,
            headline_bytes: row.get(13)?,
            body_bytes: row.get(14)?,
        },
        offset: row.get(15)?,
        length: row.get(16)?,
    })
}

/// The content to compare, without what depends on how the index was built.
pub(super) const FILE_DUMPS: &[(&str, &str)] = &[
    ("records", "SELECT key, wording, path FROM record JOIN taken USING (file) ORDER BY key"),
    (
        "sessions",
        "SELECT day, conversation, session, path, records, states, session.bytes, sum, first, last, captured
         FROM session JOIN taken USING (file) ORDER BY 1, 2, 3, 4",
    ),
    ("summaries", "SELECT * FROM summary ORDER BY seq"),
    ("effects", "SELECT source, target FROM effect ORDER BY 1, 2"),
    ("days of archives", "SELECT path, told, events FROM archived_on JOIN taken USING (file) ORDER BY 1, 2"),
    ("events that are archived and not gone", "SELECT id FROM twice ORDER BY 1"),
    ("archived events", "SELECT id, told, entity, path, line_offset, line_length FROM archive JOIN taken USING (file) ORDER BY id"),
];

/// Files that the index takes for current, with their stamps: the basis of a comparison.
pub(super) fn indexed_files(connection: &Connection) -> SqlResult<HashMap<String, String>> {
    let mut query = connection.prepare("SELECT path, stamp FROM taken")?;
    query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
