//! Checks and rebuilds what is derived from the documents of a space.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use icecore_domain::forget::Scrub;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::Ledger;
use icecore_domain::ledger::integrity::{IntegrityCheck, IntegrityFinding};
use icecore_domain::record::{RecordKey, SessionStats};

use super::Space;
use super::records::{
    PendingWrite, SESSION_COLUMNS, key_from_bytes, session_stat, text_hashes_and_sessions,
};
use super::restore::RESTORE_LEASE;
use crate::{Error, Maintenance, Progress, RestoreTarget, Result, ScrubbedFile};

#[async_trait]
impl Maintenance for Space {
    async fn scrub(&self, scrub: &Scrub, dry: bool) -> Result<Vec<ScrubbedFile>> {
        self.scrub_documents(scrub, dry).await
    }

    async fn inspect(&self) -> Result<Vec<IntegrityFinding>> {
        const PIECES: &str = "SELECT coalesce(document.path, laid.path), document.path IS NULL, \
            coalesce(laid.bytes, 0) IS DISTINCT FROM document.length, coalesce(laid.whole, true), \
            coalesce(laid.last = '\\x0a', true) IS DISTINCT FROM document.ended \
            FROM (SELECT path, sum(octet_length(bytes))::bigint AS bytes, bool_and(at = before) AS whole, \
                (array_agg(substr(bytes, octet_length(bytes)) ORDER BY at DESC))[1] AS last \
                FROM (SELECT path, at, bytes, coalesce(sum(octet_length(bytes)) OVER (PARTITION BY path ORDER BY at \
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before FROM icecore.chunk WHERE space_id = $1) AS chunk GROUP BY path) AS laid \
            FULL JOIN (SELECT * FROM icecore.document WHERE space_id = $1) AS document USING (path) ORDER BY 1";
        let tx = self.begin_snapshot_read().await?;
        let mut found = Vec::new();
        let mut say =
            |what: String| found.push(IntegrityFinding::failure(IntegrityCheck::Index, what));
        for row in tx.query(PIECES, &[&self.id]).await? {
            let path: &str = row.get(0);
            let wrong = match (row.get(1), row.get(2), row.get(3), row.get(4)) {
                (true, ..) => "has chunks but no document",
                (_, true, ..) => "is not as long as its chunks",
                (_, _, false, _) => "has chunks that are not consecutive",
                (_, _, _, true) => "has a wrong flag for its final line break",
                _ => continue,
            };
            say(format!("{path} {wrong}. Restore it from a backup, or write it again"));
        }
        let rows = tx
            .query("SELECT key, wording, path FROM icecore.record WHERE space_id = $1", &[&self.id])
            .await?;
        let mut kept: HashMap<RecordKey, (RecordKey, String)> = HashMap::with_capacity(rows.len());
        for row in &rows {
            kept.insert(key_from_bytes(row.get(0))?, (key_from_bytes(row.get(1))?, row.get(2)));
        }
        let mut sessions: HashMap<String, Vec<SessionStats>> = HashMap::new();
        for row in tx
            .query(
                &format!("SELECT {SESSION_COLUMNS}, path FROM icecore.session WHERE space_id = $1"),
                &[&self.id],
            )
            .await?
        {
            sessions.entry(row.get(11)).or_default().push(session_stat(&row, 0)?);
        }
        // Found in the document they belong to.
        let mut agreeing: HashSet<RecordKey> = HashSet::new();
        let mut all: HashSet<RecordKey> = HashSet::new();
        for path in self.list_record_documents(&tx).await? {
            let (words, stats) = text_hashes_and_sessions(&self.read_from(&tx, &path, 0).await?);
            let mut noted = sessions.remove(path.as_str()).unwrap_or_default();
            noted.sort_by(|a, b| a.key.cmp(&b.key));
            if noted != stats {
                say(format!(
                    "the sessions of {path} do not match its records. Rebuild them with `icecore vault reindex`"
                ));
            }
            for (key, wording) in words {
                all.insert(key);
                if kept
                    .get(&key)
                    .is_some_and(|(noted, place)| *noted == wording && place == path.as_str())
                {
                    agreeing.insert(key);
                }
            }
        }
        tx.commit().await?;
        let unknown = all.iter().filter(|key| !kept.contains_key(*key)).count();
        let wrong = kept.keys().filter(|key| !agreeing.contains(*key)).count();
        let strays = sessions.len();
        for (many, what) in [
            (unknown, "records have no row"),
            (wrong, "records have a wrong row"),
            (strays, "documents have sessions but no records"),
        ] {
            if many > 0 {
                say(format!("{many} {what}. Rebuild the rows with `icecore vault reindex`"));
            }
        }
        Ok(found)
    }

    async fn rebuild(&self, progress: Progress<'_>) -> Result<usize> {
        const HELD: &str = "SELECT path FROM icecore.document WHERE space_id = $1 AND (path >= $2 AND path < $3 OR path >= $4 AND path < $5) \
            ORDER BY path FOR UPDATE";
        // Documents created meanwhile are derived by their writers.
        const GONE: &str = "DELETE FROM icecore.session WHERE space_id = $1 AND (path = ANY($2) OR NOT EXISTS \
            (SELECT FROM icecore.document WHERE document.space_id = $1 AND document.path = session.path))";
        const GONE_TOO: &str = "DELETE FROM icecore.record WHERE space_id = $1 AND (path = ANY($2) OR NOT EXISTS \
            (SELECT FROM icecore.document WHERE document.space_id = $1 AND document.path = record.path))";
        let tx = self.begin().await?;
        let bounds = [layout::MESSAGES, layout::SNAPSHOTS]
            .map(|folder| (format!("{folder}/"), format!("{folder}0")));
        let held = tx
            .query(HELD, &[&self.id, &bounds[0].0, &bounds[0].1, &bounds[1].0, &bounds[1].1])
            .await?;
        let mut paths = held
            .iter()
            .map(|row| Ok(row.get::<_, String>(0).parse()?))
            .collect::<Result<Vec<DocPath>>>()?;
        paths.retain(|path| path.record_day().is_some());
        let names: Vec<&str> = paths.iter().map(DocPath::as_str).collect();
        for sql in [GONE, GONE_TOO] {
            tx.execute(sql, &[&self.id, &names]).await?;
        }
        for (done, path) in paths.iter().enumerate() {
            let (rows, stats) = text_hashes_and_sessions(&self.read_from(&tx, path, 0).await?);
            let writing = PendingWrite {
                stats: stats.into_iter().map(|stat| (path, stat)).collect(),
                rows: rows.into_iter().map(|(key, wording)| (key, (path, wording))).collect(),
                ..PendingWrite::default()
            };
            self.write_derived(&tx, &writing).await?;
            progress(done as u64 + 1, paths.len() as u64);
        }
        let ledger = self.read_from(&tx, &layout::LEDGER.parse()?, 0).await?;
        tx.commit().await?;
        Ok(Ledger::parse(&ledger, None).entries().len())
    }

    async fn opening_repairs(&self) -> Vec<String> {
        Vec::new()
    }

    async fn begin_restore(&self) -> Result<RestoreTarget> {
        const FOUND: &str = "SELECT filling IS NOT NULL, filled_until > now() FROM icecore.space WHERE space_id = $1 AND life = $2";
        const TAKEN: &str = "UPDATE icecore.space SET filling = gen_random_uuid(), filled_until = now() + make_interval(secs => $2) \
            WHERE space_id = $1 RETURNING filling";
        if self.filling.holder().is_some() {
            return Ok(RestoreTarget::New);
        }
        let tx = self.database.begin(Some(self.id)).await?;
        // Running writers finish first, and later ones see the restore.
        tx.execute("SELECT icecore.enter_alone()", &[]).await?;
        let found =
            tx.query_opt(FOUND, &[&self.id, &self.life]).await?.ok_or(Error::space_erased())?;
        let is_unfinished = match (found.get(0), found.get(1)) {
            (true, Some(true)) => return Err(Error::restore_in_progress()),
            (is_unfinished, _) => is_unfinished,
        };
        let ground = if is_unfinished {
            RestoreTarget::Unfinished
        } else {
            RestoreTarget::from_documents(&self.query_stats(&tx, "").await?)
        };
        if !matches!(ground, RestoreTarget::Occupied { .. }) {
            let row = tx.query_one(TAKEN, &[&self.id, &RESTORE_LEASE.as_secs_f64()]).await?;
            tx.commit().await?;
            self.start_heartbeat(row.get(0))?;
        }
        Ok(ground)
    }

    async fn finish_restore(&self) -> Result<()> {
        let Some(filler) = self.filling.holder() else { return Ok(()) };
        let tx = self.database.begin(Some(self.id)).await?;
        let sql = "UPDATE icecore.space SET filling = NULL, filled_until = NULL WHERE space_id = $1 AND filling = $2";
        if tx.execute(sql, &[&self.id, &filler]).await? == 0 {
            return Err(Error::restore_in_progress());
        }
        // The space has work for the scheduler now.
        tx.execute("NOTIFY icecore_jobs", &[]).await?;
        tx.commit().await?;
        *self.filling.lock() = None;
        Ok(())
    }

    async fn abort_restore(&self) -> Result<()> {
        let Some(filler) = self.filling.lock().take() else { return Ok(()) };
        let tx = self.database.begin(Some(self.id)).await?;
        let sql =
            "UPDATE icecore.space SET filled_until = now() WHERE space_id = $1 AND filling = $2";
        tx.execute(sql, &[&self.id, &filler.id]).await?;
        tx.commit().await
    }
}
