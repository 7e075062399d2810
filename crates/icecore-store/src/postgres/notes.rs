//! Private data of a space: notes, cached model answers and the marker key.

use async_trait::async_trait;
use icecore_domain::hash::Hash;
use icecore_domain::layout::DocPath;
use icecore_domain::secrets::MarkerKey;

use super::Space;
use crate::{Error, MARKER_KEY, NoteStore, Result};

/// The number of answers to keep.
const MAX_ANSWERS: i64 = 512;

impl Space {
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
}

#[async_trait]
impl NoteStore for Space {
    async fn note(&self, name: &DocPath) -> Result<Option<Vec<u8>>> {
        self.read_note(name).await
    }

    async fn put_note(&self, name: &DocPath, bytes: &[u8]) -> Result<()> {
        let tx = self.begin().await?;
        let sql = "INSERT INTO icecore.note (space_id, name, bytes) VALUES ($1, $2, $3) \
            ON CONFLICT (space_id, name) DO UPDATE SET bytes = excluded.bytes, changed = now()";
        tx.execute(sql, &[&self.id, &name.as_str(), &bytes]).await?;
        tx.commit().await
    }

    async fn append_note(
        &self,
        name: &DocPath,
        line: &str,
        most_bytes: u64,
        _flush: bool,
    ) -> Result<()> {
        let tx = self.begin().await?;
        let sql = "INSERT INTO icecore.note (space_id, name, bytes) VALUES ($1, $2, $3) \
            ON CONFLICT (space_id, name) DO UPDATE SET bytes = note.bytes || excluded.bytes, changed = now() RETURNING bytes";
        let row = tx
            .query_one(sql, &[&self.id, &name.as_str(), &format!("{line}\n").into_bytes()])
            .await?;
        let bytes: Vec<u8> = row.get(0);
        if bytes.len() as u64 > most_bytes {
            let half = bytes.len()
                - bytes.len().min(usize::try_from(most_bytes / 2).unwrap_or(usize::MAX));
            let kept = memchr::memchr(b'\n', &bytes[half.saturating_sub(1)..])
                .map_or(&bytes[..], |at| &bytes[half.saturating_sub(1) + at + 1..]);
            let sql = "UPDATE icecore.note SET bytes = $3 WHERE space_id = $1 AND name = $2";
            tx.execute(sql, &[&self.id, &name.as_str(), &kept]).await?;
        }
        tx.commit().await
    }

    async fn notes(&self, folder: &DocPath) -> Result<Vec<(DocPath, i64)>> {
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

    async fn remove_note(&self, name: &DocPath) -> Result<()> {
        let tx = self.begin().await?;
        tx.execute(
            "DELETE FROM icecore.note WHERE space_id = $1 AND name = $2",
            &[&self.id, &name.as_str()],
        )
        .await?;
        tx.commit().await
    }

    async fn cached_answer(&self, question: Hash) -> Result<Option<Vec<u8>>> {
        let tx = self.begin_reading().await?;
        let sql = "SELECT answer FROM icecore.answer WHERE space_id = $1 AND question = $2";
        let found = tx.query_opt(sql, &[&self.id, &question.as_bytes().as_slice()]).await?;
        tx.commit().await?;
        Ok(found.map(|row| row.get(0)))
    }

    async fn cache_answer(&self, question: Hash, answer: &[u8]) -> Result<()> {
        let tx = self.begin().await?;
        let sql = "INSERT INTO icecore.answer (space_id, question, answer) VALUES ($1, $2, $3) \
            ON CONFLICT (space_id, question) DO UPDATE SET answer = excluded.answer, kept = now()";
        tx.execute(sql, &[&self.id, &question.as_bytes().as_slice(), &answer]).await?;
        let sql = "DELETE FROM icecore.answer WHERE space_id = $1 AND question IN \
            (SELECT question FROM icecore.answer WHERE space_id = $1 ORDER BY kept DESC OFFSET $2)";
        tx.execute(sql, &[&self.id, &MAX_ANSWERS]).await?;
        tx.commit().await
    }

    async fn marker_key(&self) -> Result<Option<MarkerKey>> {
        let kept = self.read_note(&MARKER_KEY.parse()?).await?;
        Ok(kept.and_then(|text| MarkerKey::from_hex(&text)))
    }

    async fn set_marker_key(&self, key: &MarkerKey, replace: bool) -> Result<MarkerKey> {
        let (tx, text) = (self.begin().await?, key.to_hex().into_bytes());
        let sql = "INSERT INTO icecore.note AS kept (space_id, name, bytes) VALUES ($1, $2, $3) ON CONFLICT (space_id, name) \
            DO UPDATE SET bytes = CASE WHEN $4 THEN excluded.bytes ELSE kept.bytes END RETURNING bytes";
        let row = tx.query_one(sql, &[&self.id, &MARKER_KEY, &text, &replace]).await?;
        let kept: Vec<u8> = row.get(0);
        tx.commit().await?;
        MarkerKey::from_hex(&kept).ok_or_else(|| {
            Error::database(format!(
                "the note `{MARKER_KEY}` of this space is not a key; delete it"
            ))
        })
    }
}
