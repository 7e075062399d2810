//! Private, dispensable data of a space: notes, cached model answers and the list of seen
//! documents.

use icecore_domain::hash::Hash;
use icecore_domain::layout::DocPath;
use icecore_domain::secrets::MarkerKey;
use tokio_postgres::types::ToSql;

use super::Space;
use crate::{Error, MARKER_KEY, Result, Stamp};

/// The number of answers to keep.
const MAX_ANSWERS: i64 = 512;

impl Space {
    pub(super) async fn read_answer(&self, question: Hash) -> Result<Option<Vec<u8>>> {
        let tx = self.begin_reading().await?;
        let sql = "SELECT answer FROM icecore.answer WHERE space_id = $1 AND question = $2";
        let found = tx.query_opt(sql, &[&self.id, &question.as_bytes().as_slice()]).await?;
        tx.commit().await?;
        Ok(found.map(|row| row.get(0)))
    }

    pub(super) async fn write_answer(&self, question: Hash, answer: &[u8]) -> Result<()> {
        let tx = self.begin().await?;
        let sql = "INSERT INTO icecore.answer (space_id, question, answer) VALUES ($1, $2, $3) \
            ON CONFLICT (space_id, question) DO UPDATE SET answer = excluded.answer, kept = now()";
        tx.execute(sql, &[&self.id, &question.as_bytes().as_slice(), &answer]).await?;
        let sql = "DELETE FROM icecore.answer WHERE space_id = $1 AND question IN \
            (SELECT question FROM icecore.answer WHERE space_id = $1 ORDER BY kept DESC OFFSET $2)";
        tx.execute(sql, &[&self.id, &MAX_ANSWERS]).await?;
        tx.commit().await
    }

    pub(super) async fn read_note(&self, name: &DocPath) -> Result<Option<Vec<u8>>> {
        let tx = self.begin_reading().await?;
        let found = tx
            .query_opt(
                "SELECT bytes FROM icecore.note WHERE space_id = $1 AND name = $2",
                &[&self.id, &name.as_str()],
            )
            .await?;
        tx.commit().await?;
        Ok(found.map(|row| row.get(0)))
    }

    pub(super) async fn write_note(&self, name: &DocPath, bytes: &[u8]) -> Result<()> {
        let tx = self.begin().await?;
        let sql = "INSERT INTO icecore.note (space_id, name, bytes) VALUES ($1, $2, $3) \
            ON CONFLICT (space_id, name) DO UPDATE SET bytes = excluded.bytes, changed = now()";
        tx.execute(sql, &[&self.id, &name.as_str(), &bytes]).await?;
        tx.commit().await
    }

    /// Stores the marker key; without `replace`, the first one that was set stays.
    pub(super) async fn write_marker_key(
        &self,
        key: &MarkerKey,
        replace: bool,
    ) -> Result<MarkerKey> {
        let (tx, text) = (self.begin().await?, key.to_hex().into_bytes());
        let sql = "INSERT INTO icecore.note AS kept (space_id, name, bytes) VALUES ($1, $2, $3) ON CONFLICT (space_id, name) \
            DO UPDATE SET bytes = CASE WHEN $4 THEN excluded.bytes ELSE kept.bytes END RETURNING bytes";
        let row = tx.query_one(sql, &[&self.id, &MARKER_KEY, &text, &replace]).await?;
        let kept: Vec<u8> = row.get(0);
        tx.commit().await?;
        MarkerKey::from_hex(&kept).ok_or_else(|| {
            Error::Database(format!(
                "the note `{MARKER_KEY}` of this space is not a key; delete it"
            ))
        })
    }

    /// Appends a line to a note; beyond `most` bytes the older half of its lines is dropped.
    pub(super) async fn append_note_line(
        &self,
        name: &DocPath,
        line: &str,
        most: u64,
    ) -> Result<()> {
        let tx = self.begin().await?;
        let sql = "INSERT INTO icecore.note (space_id, name, bytes) VALUES ($1, $2, $3) \
            ON CONFLICT (space_id, name) DO UPDATE SET bytes = note.bytes || excluded.bytes, changed = now() RETURNING bytes";
        let row = tx
            .query_one(sql, &[&self.id, &name.as_str(), &format!("{line}\n").into_bytes()])
            .await?;
        let bytes: Vec<u8> = row.get(0);
        if bytes.len() as u64 > most {
            let half =
                bytes.len() - bytes.len().min(usize::try_from(most / 2).unwrap_or(usize::MAX));
            let kept = memchr::memchr(b'\n', &bytes[half.saturating_sub(1)..])
                .map_or(&bytes[..], |at| &bytes[half.saturating_sub(1) + at + 1..]);
            let sql = "UPDATE icecore.note SET bytes = $3 WHERE space_id = $1 AND name = $2";
            tx.execute(sql, &[&self.id, &name.as_str(), &kept]).await?;
        }
        tx.commit().await
    }

    pub(super) async fn list_notes(&self, folder: &DocPath) -> Result<Vec<(DocPath, i64)>> {
        let tx = self.begin_reading().await?;
        let sql = "SELECT name, extract(epoch FROM changed)::bigint FROM icecore.note WHERE space_id = $1 AND starts_with(name, $2) ORDER BY name";
        let beginning = format!("{folder}/");
        let rows = tx.query(sql, &[&self.id, &beginning]).await?;
        tx.commit().await?;
        let direct = |name: &String| !name[beginning.len()..].contains('/');
        let rows = rows
            .iter()
            .map(|row| (row.get::<_, String>(0), row.get(1)))
            .filter(|(name, _)| direct(name));
        rows.map(|(name, changed)| Ok((name.parse()?, changed))).collect()
    }

    pub(super) async fn delete_note(&self, name: &DocPath) -> Result<()> {
        let tx = self.begin().await?;
        tx.execute(
            "DELETE FROM icecore.note WHERE space_id = $1 AND name = $2",
            &[&self.id, &name.as_str()],
        )
        .await?;
        tx.commit().await
    }

    pub(super) async fn write_quarantine(
        &self,
        from: &DocPath,
        at: u64,
        bytes: &[u8],
    ) -> Result<String> {
        let place =
            format!("{}-{at}-{}", from.as_str().replace('/', "-"), Hash::of(bytes).short_hex());
        let tx = self.begin().await?;
        let sql = "INSERT INTO icecore.aside (space_id, place, bytes) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        tx.execute(sql, &[&self.id, &place, &bytes]).await?;
        tx.commit().await?;
        Ok(format!("quarantine/{place}"))
    }

    pub(super) async fn query_unseen(&self, paths: &[DocPath]) -> Result<Vec<(DocPath, Stamp)>> {
        let tx = self.begin_reading().await?;
        let sql = "SELECT path, version::text FROM icecore.document LEFT JOIN icecore.seen USING (space_id, path) \
            WHERE space_id = $1 AND path = ANY($2) AND stamp IS DISTINCT FROM version::text";
        let names: Vec<&str> = paths.iter().map(DocPath::as_str).collect();
        let rows = tx.query(sql, &[&self.id, &names]).await?;
        tx.commit().await?;
        let found: std::collections::HashMap<String, String> =
            rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let unseen = paths.iter().filter_map(|path| {
            found.get(path.as_str()).map(|stamp| (path.clone(), Stamp(stamp.clone())))
        });
        Ok(unseen.collect())
    }

    pub(super) async fn query_stamps(&self, paths: &[DocPath]) -> Result<Vec<Option<Stamp>>> {
        let tx = self.begin_reading().await?;
        let names: Vec<&str> = paths.iter().map(DocPath::as_str).collect();
        let sql = "SELECT path, version::text FROM icecore.document WHERE space_id = $1 AND path = ANY($2)";
        let rows = tx.query(sql, &[&self.id, &names]).await?;
        tx.commit().await?;
        let found: std::collections::HashMap<String, String> =
            rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        Ok(paths.iter().map(|path| found.get(path.as_str()).cloned().map(Stamp)).collect())
    }

    pub(super) async fn take_removed(&self, under: &str) -> Result<Vec<DocPath>> {
        let tx = self.begin().await?;
        let sql = "DELETE FROM icecore.seen WHERE space_id = $1 AND starts_with(path, $2) AND NOT EXISTS \
            (SELECT FROM icecore.document WHERE document.space_id = $1 AND document.path = seen.path) RETURNING path";
        let rows = tx.query(sql, &[&self.id, &under]).await?;
        tx.commit().await?;
        let mut gone = rows
            .iter()
            .map(|row| Ok(row.get::<_, String>(0).parse()?))
            .collect::<Result<Vec<DocPath>>>()?;
        gone.sort();
        Ok(gone)
    }

    pub(super) async fn write_seen(&self, seen: &[(DocPath, Stamp)]) -> Result<()> {
        if seen.is_empty() {
            return Ok(());
        }
        let tx = self.begin().await?;
        let (paths, stamps): (Vec<&str>, Vec<&str>) =
            seen.iter().map(|(path, stamp)| (path.as_str(), stamp.0.as_str())).unzip();
        let sql = "INSERT INTO icecore.seen (space_id, path, stamp) SELECT $1, * FROM unnest($2::text[], $3::text[]) \
            ON CONFLICT (space_id, path) DO UPDATE SET stamp = excluded.stamp";
        let params: [&(dyn ToSql + Sync); 3] = [&self.id, &paths, &stamps];
        tx.execute(sql, &params).await?;
        tx.commit().await
    }
}
