//! Snapshots of a space: the content of every document, each content stored once. Everything is
//! read, hashed and stored inside the database; documents are not transferred, and those unchanged
//! since the last snapshot are not read.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use async_trait::async_trait;
use icecore_domain::forget::Scrub;
use icecore_domain::hash::Hash;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::sanitize;
use jiff::Timestamp;
use tokio_postgres::Row;

use super::{Space, Tx};
use crate::{Error, Result, RewriteReport, Snapshot, SnapshotStore, snapshot_redaction};

/// The number of hex digits of an id.
const ID_DIGITS: usize = 40;
/// The shortest accepted prefix of an id.
const MIN_ID_DIGITS: usize = 4;
/// The limit of a note.
const MAX_NOTE_CHARS: usize = 200;
/// The number of content bytes to read at once, unless one content is larger.
const BATCH_BYTES: i64 = 8 << 20;

/// The current documents of a snapshot as `now`: path and version. `$2` lists the top-level names
/// to include, `$3` the path prefixes to exclude.
const CURRENT_DOCUMENTS: &str = "now AS (SELECT path, version FROM icecore.document WHERE space_id = $1 AND split_part(path, '/', 1) = ANY($2) \
    AND NOT EXISTS (SELECT FROM unnest($3::text[]) AS beginning WHERE starts_with(path, beginning)))";
/// The bytes of the document at `path`.
const DOCUMENT_BYTES: &str = "coalesce((SELECT string_agg(c.bytes, ''::bytea ORDER BY c.at) FROM icecore.chunk c WHERE c.space_id = $1 AND c.path = now.path), ''::bytea)";

/// The files that a vault's repository ignores.
fn excluded_paths() -> Vec<&'static str> {
    let rules = include_str!("../vault/gitignore").lines().filter(|line| !line.starts_with('#'));
    rules.filter_map(|rule| rule.strip_prefix('/')).collect()
}

/// The changes of one snapshot: each path with its new content.
type SnapshotChanges = Vec<(String, Option<Vec<u8>>)>;

/// The id of a snapshot, a hash of itself and all earlier ones.
fn snapshot_id(before: &str, at: Timestamp, note: &str, changes: &SnapshotChanges) -> String {
    let mut text = format!("{before}\n{}\n{note}\n", at.as_microsecond()).into_bytes();
    for (path, hash) in changes {
        text.extend_from_slice(path.as_bytes());
        text.push(0);
        text.extend_from_slice(hash.as_deref().unwrap_or_default());
        text.push(b'\n');
    }
    Hash::of(&text).to_string().chars().take(ID_DIGITS).collect()
}

fn read_snapshot(row: &Row) -> Snapshot {
    Snapshot { id: row.get(0), at: row.get(1), note: row.get(2) }
}

/// Every snapshot with its changes, oldest first.
struct SnapshotLog {
    snapshots: Vec<(i64, Snapshot)>,
    changes: HashMap<i64, SnapshotChanges>,
}

impl SnapshotLog {
    /// Each content with all its paths.
    fn paths_by_content(&self) -> HashMap<&[u8], BTreeSet<String>> {
        let mut paths: HashMap<&[u8], BTreeSet<String>> = HashMap::new();
        for (path, hash) in self.changes.values().flatten() {
            if let Some(hash) = hash {
                paths.entry(hash).or_default().insert(path.clone());
            }
        }
        paths
    }
}

impl Space {
    /// Locks the snapshots until the transaction ends. A statement of its own, so that the next one
    /// sees what the previous holder did.
    async fn lock_snapshots(&self, tx: &Tx) -> Result<()> {
        tx.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 2))", &[&self.id.to_string()])
            .await
            .map(|_| ())
    }

    /// The number of the snapshot with this id or prefix.
    async fn resolve_snapshot(&self, tx: &Tx, id: &str) -> Result<i64> {
        const SQL: &str = "SELECT number FROM icecore.snapshot WHERE space_id = $1 AND starts_with(id, $2) LIMIT 2";
        let is_name = id.len() >= MIN_ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let found = if is_name {
            tx.query(SQL, &[&self.id, &id.to_ascii_lowercase()]).await?
        } else {
            Vec::new()
        };
        match found.as_slice() {
            [row] => Ok(row.get(0)),
            _ => Err(Error::no_snapshots(format!(
                "there is no snapshot `{}`; `icecore snapshot --list` shows them",
                sanitize::one_line(id)
            ))),
        }
    }

    async fn read_snapshot_log(&self, tx: &Tx) -> Result<SnapshotLog> {
        let rows = tx.query("SELECT id, at, note, number FROM icecore.snapshot WHERE space_id = $1 ORDER BY number", &[&self.id]).await?;
        let snapshots = rows.iter().map(|row| (row.get(3), read_snapshot(row))).collect();
        let mut changes: HashMap<i64, SnapshotChanges> = HashMap::new();
        for row in tx.query("SELECT number, path, hash FROM icecore.kept WHERE space_id = $1 ORDER BY number, path", &[&self.id]).await? {
            changes.entry(row.get(0)).or_default().push((row.get(1), row.get(2)));
        }
        Ok(SnapshotLog { snapshots, changes })
    }

    /// The hashes of all contents in batches to read at once.
    async fn content_batches(&self, tx: &Tx) -> Result<Vec<Vec<Vec<u8>>>> {
        const SQL: &str = "SELECT hash, octet_length(bytes)::bigint FROM icecore.blob WHERE space_id = $1 ORDER BY hash";
        let (mut batches, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
        for row in tx.query(SQL, &[&self.id]).await? {
            let length: i64 = row.get(1);
            if bytes + length > BATCH_BYTES && !batch.is_empty() {
                batches.push(std::mem::take(&mut batch));
                bytes = 0;
            }
            bytes += length;
            batch.push(row.get(0));
        }
        batches.push(batch);
        Ok(batches)
    }

    /// Contents by their hashes.
    async fn read_contents(&self, tx: &Tx, hashes: &[Vec<u8>]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let rows = tx
            .query(
                "SELECT hash, bytes FROM icecore.blob WHERE space_id = $1 AND hash = ANY($2)",
                &[&self.id, &hashes],
            )
            .await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Stores new contents and returns the changes since the last snapshot.
    async fn store_changes(&self, tx: &Tx, number: i64) -> Result<SnapshotChanges> {
        // One statement sees one state, so that a snapshot shows one moment.
        let sql = format!(
            "WITH {CURRENT_DOCUMENTS}, \
            other AS MATERIALIZED (SELECT now.path, now.version, newest.hash AS before, {DOCUMENT_BYTES} AS bytes FROM now \
                LEFT JOIN icecore.newest ON newest.space_id = $1 AND newest.path = now.path WHERE newest.version IS DISTINCT FROM now.version), \
            hashed AS MATERIALIZED (SELECT path, version, before, sha256(bytes) AS hash, bytes FROM other), \
            gone AS (DELETE FROM icecore.newest WHERE space_id = $1 AND NOT EXISTS (SELECT FROM now WHERE now.path = newest.path) RETURNING path), \
            noted AS (INSERT INTO icecore.newest (space_id, path, version, hash) SELECT $1, path, version, hash FROM hashed \
                ON CONFLICT (space_id, path) DO UPDATE SET version = excluded.version, hash = excluded.hash), \
            contents AS (INSERT INTO icecore.blob (space_id, hash, bytes) SELECT DISTINCT ON (hash) $1, hash, bytes FROM hashed \
                WHERE before IS DISTINCT FROM hash ON CONFLICT DO NOTHING), \
            changed AS (SELECT path, hash FROM hashed WHERE before IS DISTINCT FROM hash UNION ALL SELECT path, NULL::bytea FROM gone), \
            kept AS (INSERT INTO icecore.kept (space_id, path, number, hash) SELECT $1, path, $4, hash FROM changed) \
            SELECT path, hash FROM changed ORDER BY path"
        );
        let rows =
            tx.query(&sql, &[&self.id, &layout::VAULT_ENTRIES, &excluded_paths(), &number]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Replaces the snapshot log. The contents it refers to exist already.
    async fn replace_snapshot_log(&self, tx: &Tx, past: &SnapshotLog) -> Result<()> {
        tx.execute("SELECT set_config('icecore.replacing', 'snapshots', true)", &[]).await?;
        tx.execute("SELECT icecore.clear_snapshots()", &[]).await?;
        let numbers: Vec<i64> = past.snapshots.iter().map(|(number, _)| *number).collect();
        let ids: Vec<&str> =
            past.snapshots.iter().map(|(_, snapshot)| snapshot.id.as_str()).collect();
        let ats: Vec<Timestamp> = past.snapshots.iter().map(|(_, snapshot)| snapshot.at).collect();
        let notes: Vec<&str> =
            past.snapshots.iter().map(|(_, snapshot)| snapshot.note.as_str()).collect();
        let sql = "INSERT INTO icecore.snapshot (space_id, number, id, at, note) \
            SELECT $1, * FROM unnest($2::bigint[], $3::text[], $4::timestamptz[], $5::text[])";
        tx.execute(sql, &[&self.id, &numbers, &ids, &ats, &notes]).await?;
        let changes = || {
            past.changes
                .iter()
                .flat_map(|(number, changes)| changes.iter().map(move |change| (*number, change)))
        };
        let numbers: Vec<i64> = changes().map(|(number, _)| number).collect();
        let paths: Vec<&str> = changes().map(|(_, (path, _))| path.as_str()).collect();
        let hashes: Vec<Option<&[u8]>> = changes().map(|(_, (_, hash))| hash.as_deref()).collect();
        let sql = "INSERT INTO icecore.kept (space_id, number, path, hash) SELECT $1, * FROM unnest($2::bigint[], $3::text[], $4::bytea[])";
        tx.execute(sql, &[&self.id, &numbers, &paths, &hashes]).await?;
        tx.execute("SELECT icecore.clear_blobs()", &[]).await?;
        // The contents of the newest snapshot changed or are gone, so the next snapshot must check
        // these documents again.
        let sql = "WITH last AS (SELECT DISTINCT ON (path) path, hash FROM icecore.kept WHERE space_id = $1 ORDER BY path, number DESC), \
            gone AS (DELETE FROM icecore.newest WHERE space_id = $1 \
                AND NOT EXISTS (SELECT FROM last WHERE last.path = newest.path AND last.hash IS NOT NULL)) \
            UPDATE icecore.newest SET hash = last.hash, version = 0 FROM last \
            WHERE newest.space_id = $1 AND newest.path = last.path AND newest.hash <> last.hash";
        tx.execute(sql, &[&self.id]).await.map(|_| ())
    }
}

#[async_trait]
impl SnapshotStore for Space {
    async fn check_available(&self) -> Result<()> {
        Ok(())
    }

    async fn create_snapshot(&self, note: &str, at: Timestamp) -> Result<Option<Snapshot>> {
        let tx = self.begin().await?;
        self.lock_snapshots(&tx).await?;
        let last =
            tx.query_opt("SELECT number, id FROM icecore.snapshot WHERE space_id = $1 ORDER BY number DESC LIMIT 1", &[&self.id]).await?;
        let number = last.as_ref().map_or(0, |row| row.get::<_, i64>(0)) + 1;
        let changes = self.store_changes(&tx, number).await?;
        if changes.is_empty() && last.is_some() {
            // Commit the note that these documents were checked.
            tx.commit().await?;
            return Ok(None);
        }
        let note: String = sanitize::one_line(note).chars().take(MAX_NOTE_CHARS).collect();
        // The precision of the database is a microsecond.
        let at = Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at);
        let before = last.map_or(String::new(), |row| row.get(1));
        let snapshot = Snapshot { id: snapshot_id(&before, at, &note, &changes), at, note };
        let sql = "INSERT INTO icecore.snapshot (space_id, number, id, at, note) VALUES ($1, $2, $3, $4, $5)";
        tx.execute(sql, &[&self.id, &number, &snapshot.id, &snapshot.at, &snapshot.note]).await?;
        tx.commit().await?;
        Ok(Some(snapshot))
    }

    async fn snapshots(&self, most: usize) -> Result<Vec<Snapshot>> {
        let tx = self.begin_reading().await?;
        let sql = "SELECT id, at, note FROM icecore.snapshot WHERE space_id = $1 ORDER BY number DESC LIMIT $2";
        let rows = tx.query(sql, &[&self.id, &i64::try_from(most).unwrap_or(i64::MAX)]).await?;
        tx.commit().await?;
        Ok(rows.iter().map(read_snapshot).collect())
    }

    async fn changes_since(&self, id: &str) -> Result<Vec<(DocPath, Option<Vec<u8>>)>> {
        let sql = format!(
            "WITH {CURRENT_DOCUMENTS}, \
            here AS (SELECT now.path, CASE WHEN newest.version = now.version THEN newest.hash ELSE sha256({DOCUMENT_BYTES}) END AS hash FROM now \
                LEFT JOIN icecore.newest ON newest.space_id = $1 AND newest.path = now.path), \
            past AS (SELECT DISTINCT ON (path) path, hash FROM icecore.kept WHERE space_id = $1 AND number <= $4 ORDER BY path, number DESC) \
            SELECT coalesce(here.path, there.path) AS path, blob.bytes FROM here \
                FULL JOIN (SELECT path, hash FROM past WHERE hash IS NOT NULL) AS there ON there.path = here.path \
                LEFT JOIN icecore.blob ON blob.space_id = $1 AND blob.hash = there.hash \
            WHERE here.hash IS DISTINCT FROM there.hash ORDER BY 1"
        );
        let tx = self.begin_reading().await?;
        let number = self.resolve_snapshot(&tx, id).await?;
        let rows =
            tx.query(&sql, &[&self.id, &layout::VAULT_ENTRIES, &excluded_paths(), &number]).await?;
        tx.commit().await?;
        rows.iter().map(|row| Ok((row.get::<_, String>(0).parse()?, row.get(1)))).collect()
    }

    async fn document_versions(&self, path: &DocPath, most: usize) -> Result<Vec<Snapshot>> {
        let tx = self.begin_reading().await?;
        let sql = "SELECT id, at, note FROM icecore.kept JOIN icecore.snapshot USING (space_id, number) \
            WHERE space_id = $1 AND path = $2 ORDER BY number DESC LIMIT $3";
        let rows = tx
            .query(sql, &[&self.id, &path.as_str(), &i64::try_from(most).unwrap_or(i64::MAX)])
            .await?;
        tx.commit().await?;
        Ok(rows.iter().map(read_snapshot).collect())
    }

    async fn document_at(&self, id: &str, path: &DocPath) -> Result<Option<Vec<u8>>> {
        let tx = self.begin_reading().await?;
        let number = self.resolve_snapshot(&tx, id).await?;
        let sql = "SELECT bytes FROM (SELECT hash FROM icecore.kept WHERE space_id = $1 AND path = $2 AND number <= $3 \
            ORDER BY number DESC LIMIT 1) AS last JOIN icecore.blob ON blob.space_id = $1 AND blob.hash = last.hash";
        let found = tx.query_opt(sql, &[&self.id, &path.as_str(), &number]).await?;
        tx.commit().await?;
        Ok(found.map(|row| row.get(0)))
    }

    async fn count_containing(&self, scrub: &Scrub) -> Result<(usize, usize)> {
        let tx = self.begin_reading().await?;
        self.lock_snapshots(&tx).await?;
        let past = self.read_snapshot_log(&tx).await?;
        let paths = past.paths_by_content();
        let mut guilty: HashSet<Vec<u8>> = HashSet::new();
        for batch in self.content_batches(&tx).await? {
            let found = self.read_contents(&tx, &batch).await?.into_iter();
            let is_in = |hash: &[u8], bytes: &[u8]| {
                paths.get(hash).into_iter().flatten().any(|path| scrub.affects_file(path, bytes))
            };
            guilty.extend(found.filter(|(hash, bytes)| is_in(hash, bytes)).map(|(hash, _)| hash));
        }
        tx.commit().await?;
        // The matching paths in each snapshot.
        let (mut standing, mut many) = (BTreeSet::new(), 0);
        for (number, _) in &past.snapshots {
            for (path, hash) in past.changes.get(number).into_iter().flatten() {
                match hash {
                    Some(hash) if guilty.contains(hash) || scrub.has_forgotten_name(path) => {
                        standing.insert(path)
                    }
                    _ => standing.remove(path),
                };
            }
            many += usize::from(!standing.is_empty());
        }
        Ok((many, past.snapshots.len()))
    }

    async fn rewrite_snapshots(&self, scrub: &Scrub) -> Result<RewriteReport> {
        let tx = self.begin().await?;
        self.lock_snapshots(&tx).await?;
        let mut past = self.read_snapshot_log(&tx).await?;
        let mut files = 0;
        let mut becomes: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        let paths = past.paths_by_content();
        for batch in self.content_batches(&tx).await? {
            for (hash, bytes) in self.read_contents(&tx, &batch).await? {
                let Some(new) = paths
                    .get(hash.as_slice())
                    .and_then(|paths| snapshot_redaction::redact_content(&bytes, paths, scrub))
                else {
                    continue;
                };
                let now = Hash::of(&new).as_bytes().to_vec();
                let sql = "INSERT INTO icecore.blob (space_id, hash, bytes) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
                tx.execute(sql, &[&self.id, &now, &new]).await?;
                becomes.insert(hash, now);
                files += 1;
            }
        }
        let mut before = String::new();
        let mut standing: BTreeMap<String, Option<Vec<u8>>> = BTreeMap::new();
        for (number, snapshot) in &mut past.snapshots {
            let changes = past.changes.entry(*number).or_default();
            changes.retain(|(path, _)| !scrub.has_forgotten_name(path));
            for (_, hash) in changes.iter_mut() {
                *hash = hash.take().map(|hash| becomes.get(&hash).cloned().unwrap_or(hash));
            }
            // Two versions may be equal after the redaction.
            changes.retain(|(path, hash)| {
                standing.insert(path.clone(), hash.clone()).as_ref() != Some(hash)
            });
            if let Some(note) = snapshot_redaction::redact_note(&snapshot.note, scrub) {
                snapshot.note = note;
                files += 1;
            }
            snapshot.id = snapshot_id(&before, snapshot.at, &snapshot.note, changes);
            before.clone_from(&snapshot.id);
        }
        self.replace_snapshot_log(&tx, &past).await?;
        tx.commit().await?;
        Ok(RewriteReport { snapshots: past.snapshots.len(), files })
    }

    async fn repair(&self) -> Result<Vec<String>> {
        // Snapshots are stored with everything else in the database.
        Ok(Vec::new())
    }
}
