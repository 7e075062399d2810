//! Documents in a database: a row with metadata, and consecutive chunks of bytes.

use std::collections::HashSet;

use async_trait::async_trait;
use icecore_domain::hash::Hash;
use icecore_domain::layout::{self, DocPath, FileKind};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::{Space, Tx};
use crate::{ContentVersion, DocumentStore, Error, Replacement, Result, Stamp};

/// The limit of a chunk, so that no row becomes too large.
const MAX_CHUNK_BYTES: usize = 1 << 20;

/// The metadata of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DocumentMeta {
    pub length: u64,
    /// Changes with every write.
    pub version: i64,
    /// Whether it is empty or ends with a line break.
    pub is_terminated: bool,
    pub changed: Timestamp,
}

impl DocumentMeta {
    /// The stamp of this version.
    pub fn stamp(&self) -> Stamp {
        Stamp(self.version.to_string())
    }

    /// Reads the columns length, version, ended and changed from `at` on.
    pub fn from_row(row: &Row, at: usize) -> Self {
        Self {
            length: to_unsigned(row.get(at)),
            version: row.get(at + 1),
            is_terminated: row.get(at + 2),
            changed: row.get(at + 3),
        }
    }
}

/// How a document changed since a known version.
pub(super) enum DocumentChange {
    Unchanged,
    /// With the appended bytes.
    Appended(Vec<u8>),
    /// With the new bytes.
    Replaced(Vec<u8>),
}

/// Checks that the chunks of a document have the recorded length.
fn check_length(path: &DocPath, found: u64, length: u64) -> Result<()> {
    if found == length {
        return Ok(());
    }
    Err(Error::database(format!("{path} has {found} bytes in its chunks instead of {length}")))
}

pub(super) fn to_unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(super) fn to_signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn conflict_error(path: &DocPath) -> Error {
    Error::conflict(path.to_string())
}

/// The prefix of every path below a folder; everything is below `""`. The folder itself lacks the
/// final `/`.
pub(super) fn path_prefix(under: &str) -> String {
    match under.trim_end_matches('/') {
        "" => String::new(),
        under => format!("{under}/"),
    }
}

/// The smallest text after all texts with this prefix.
pub(super) fn prefix_end(beginning: &str) -> String {
    let mut bytes = beginning.to_owned();
    bytes.push(char::MAX);
    bytes
}

/// The chunks of bytes that start at an offset, each with its own offset.
pub(super) fn split_chunks(at: u64, bytes: &[u8]) -> impl Iterator<Item = (i64, &[u8])> {
    bytes
        .chunks(MAX_CHUNK_BYTES)
        .enumerate()
        .map(move |(nth, piece)| (to_signed(at + (nth * MAX_CHUNK_BYTES) as u64), piece))
}

impl Space {
    /// The metadata of a document; `None` if it does not exist.
    pub(super) async fn document_meta(
        &self,
        tx: &Tx,
        path: &DocPath,
    ) -> Result<Option<DocumentMeta>> {
        const SQL: &str = "SELECT length, version, ended, changed FROM icecore.document WHERE space_id = $1 AND path = $2";
        Ok(tx
            .query_opt(SQL, &[&self.id, &path.as_str()])
            .await?
            .map(|row| DocumentMeta::from_row(&row, 0)))
    }

    /// Locks a document until the transaction ends and returns its metadata. Creates a missing one,
    /// empty and with version 0, to have something to lock; a transaction that does not want it
    /// rolls back.
    pub(super) async fn lock_document(&self, tx: &Tx, path: &DocPath) -> Result<DocumentMeta> {
        const HELD: &str = "SELECT length, version, ended, changed FROM icecore.document WHERE space_id = $1 AND path = $2 FOR UPDATE";
        const MADE: &str = "INSERT INTO icecore.document (space_id, path, length, ended) VALUES ($1, $2, 0, true) ON CONFLICT DO NOTHING";
        if let Some(row) = tx.query_opt(HELD, &[&self.id, &path.as_str()]).await? {
            return Ok(DocumentMeta::from_row(&row, 0));
        }
        let made = tx.execute(MADE, &[&self.id, &path.as_str()]).await? > 0;
        match tx.query_opt(HELD, &[&self.id, &path.as_str()]).await? {
            Some(row) if made => Ok(DocumentMeta { version: 0, ..DocumentMeta::from_row(&row, 0) }),
            Some(row) => Ok(DocumentMeta::from_row(&row, 0)),
            // Another transaction created and removed it just now.
            None => Err(conflict_error(path)),
        }
    }

    /// The version of a locked document. The database computes the hash, so that the content is not
    /// transferred.
    pub(super) async fn content_version(
        &self,
        tx: &Tx,
        path: &DocPath,
        meta: DocumentMeta,
    ) -> Result<ContentVersion> {
        const SQL: &str = "SELECT sha256(coalesce(string_agg(bytes, ''::bytea ORDER BY at), ''::bytea)) FROM icecore.chunk \
            WHERE space_id = $1 AND path = $2";
        if meta.version == 0 {
            return Ok(ContentVersion::ABSENT);
        }
        let row = tx.query_one(SQL, &[&self.id, &path.as_str()]).await?;
        Ok(ContentVersion(Hash::from_bytes(row.get(0))))
    }

    /// Locks a document that is still at version `from`.
    pub(super) async fn lock_unchanged(
        &self,
        tx: &Tx,
        path: &DocPath,
        from: ContentVersion,
    ) -> Result<DocumentMeta> {
        let look = self.lock_document(tx, path).await?;
        if self.content_version(tx, path, look).await? == from {
            Ok(look)
        } else {
            Err(conflict_error(path))
        }
    }

    /// Locks many documents, given sorted and without duplicates: everyone locks in this order,
    /// which prevents deadlocks. Returns the metadata of each, and whether it was created for the
    /// lock.
    pub(super) async fn lock_documents(
        &self,
        tx: &Tx,
        paths: &[DocPath],
    ) -> Result<Vec<(DocumentMeta, bool)>> {
        const HELD: &str = "SELECT path, length, version, ended, changed FROM icecore.document \
            WHERE space_id = $1 AND path = ANY($2) ORDER BY path FOR UPDATE";
        // Existing rows are locked and stay as they are; only created ones are returned.
        const MADE: &str = "INSERT INTO icecore.document (space_id, path, length, ended) SELECT $1, path, 0, true FROM unnest($2::text[]) AS path \
            ON CONFLICT (space_id, path) DO UPDATE SET length = document.length WHERE false RETURNING path";
        let names: Vec<&str> = paths.iter().map(DocPath::as_str).collect();
        let mut made: HashSet<String> = HashSet::new();
        let mut held = Vec::new();
        // A single lock cannot deadlock; otherwise missing documents have their place in the order
        // too.
        if paths.len() == 1 {
            held = tx.query(HELD, &[&self.id, &names]).await?;
        }
        if held.len() < paths.len() {
            made.extend(
                tx.query(MADE, &[&self.id, &names])
                    .await?
                    .iter()
                    .map(|row| row.get::<_, String>(0)),
            );
            held = tx.query(HELD, &[&self.id, &names]).await?;
        }
        match paths.iter().zip(&held).find(|(path, row)| path.as_str() != row.get::<_, &str>(0)) {
            None if held.len() == paths.len() => Ok(held
                .iter()
                .map(|row| (DocumentMeta::from_row(row, 1), made.contains(row.get::<_, &str>(0))))
                .collect()),
            // Another transaction created and removed it just now.
            _ => Err(Error::conflict("the memory".into())),
        }
    }

    /// The bytes and the metadata of a document.
    pub(super) async fn read_document(
        &self,
        tx: &Tx,
        path: &DocPath,
    ) -> Result<Option<(Vec<u8>, DocumentMeta)>> {
        // One statement sees one state.
        const SQL: &str = "SELECT length, version, ended, changed, \
            (SELECT string_agg(bytes, ''::bytea ORDER BY at) FROM icecore.chunk WHERE space_id = $1 AND path = $2) \
            FROM icecore.document WHERE space_id = $1 AND path = $2";
        let Some(row) = tx.query_opt(SQL, &[&self.id, &path.as_str()]).await? else {
            return Ok(None);
        };
        let look = DocumentMeta::from_row(&row, 0);
        let bytes: Vec<u8> = row.get::<_, Option<Vec<u8>>>(4).unwrap_or_default();
        check_length(path, bytes.len() as u64, look.length)?;
        Ok(Some((bytes, look)))
    }

    /// The bytes of a document from an offset on. Chunks that start before it are read whole.
    pub(super) async fn read_from(&self, tx: &Tx, path: &DocPath, from: u64) -> Result<Vec<u8>> {
        const SQL: &str = "SELECT at, bytes FROM icecore.chunk WHERE space_id = $1 AND path = $2 AND at >= coalesce( \
            (SELECT max(at) FROM icecore.chunk WHERE space_id = $1 AND path = $2 AND at <= $3), 0) ORDER BY at";
        let mut bytes = Vec::new();
        for row in tx.query(SQL, &[&self.id, &path.as_str(), &to_signed(from)]).await? {
            let (at, piece): (i64, Vec<u8>) = (row.get(0), row.get(1));
            let skipped = usize::try_from(from.saturating_sub(to_unsigned(at)))
                .unwrap_or(usize::MAX)
                .min(piece.len());
            bytes.extend_from_slice(&piece[skipped..]);
        }
        Ok(bytes)
    }

    /// How a document changed since a version with that length; `None` if it does not exist.
    /// Version 0 stands for unknown.
    pub(super) async fn read_changes(
        &self,
        tx: &Tx,
        path: &DocPath,
        version: i64,
        length: u64,
    ) -> Result<Option<(DocumentMeta, DocumentChange)>> {
        // One statement sees one state. The known part is still the beginning if its last chunk
        // exists unchanged.
        const SQL: &str = "SELECT d.length, d.version, d.ended, d.changed, known.length, CASE WHEN d.version <> $3 THEN \
            (SELECT string_agg(c.bytes, ''::bytea ORDER BY c.at) FROM icecore.chunk c \
                WHERE c.space_id = $1 AND c.path = $2 AND c.at >= known.length) END \
            FROM icecore.document d, LATERAL (SELECT CASE WHEN \
                (SELECT c.version FROM icecore.chunk c WHERE c.space_id = $1 AND c.path = $2 AND c.at < $4 ORDER BY c.at DESC LIMIT 1) = $3 \
                THEN $4::bigint ELSE 0 END AS length) known \
            WHERE d.space_id = $1 AND d.path = $2";
        let Some(row) =
            tx.query_opt(SQL, &[&self.id, &path.as_str(), &version, &to_signed(length)]).await?
        else {
            return Ok(None);
        };
        let look = DocumentMeta::from_row(&row, 0);
        if look.version == version {
            return Ok(Some((look, DocumentChange::Unchanged)));
        }
        let known = to_unsigned(row.get(4));
        let bytes: Vec<u8> = row.get::<_, Option<Vec<u8>>>(5).unwrap_or_default();
        check_length(path, known + bytes.len() as u64, look.length)?;
        Ok(Some((
            look,
            if known > 0 {
                DocumentChange::Appended(bytes)
            } else {
                DocumentChange::Replaced(bytes)
            },
        )))
    }

    async fn insert_chunks(
        &self,
        tx: &Tx,
        path: &DocPath,
        at: u64,
        version: i64,
        bytes: &[u8],
    ) -> Result<()> {
        const SQL: &str = "INSERT INTO icecore.chunk (space_id, path, at, version, bytes) VALUES ($1, $2, $3, $4, $5)";
        for (at, piece) in split_chunks(at, bytes) {
            tx.execute(SQL, &[&self.id, &path.as_str(), &at, &version, &piece]).await?;
        }
        Ok(())
    }

    async fn update_meta(
        &self,
        tx: &Tx,
        path: &DocPath,
        length: u64,
        ended: bool,
    ) -> Result<DocumentMeta> {
        const SQL: &str = "UPDATE icecore.document SET length = $3, ended = $4, version = icecore.version_after(version), changed = clock_timestamp() \
            WHERE space_id = $1 AND path = $2 RETURNING length, version, ended, changed";
        let row =
            tx.query_one(SQL, &[&self.id, &path.as_str(), &to_signed(length), &ended]).await?;
        Ok(DocumentMeta::from_row(&row, 0))
    }

    /// Appends to a locked document with this metadata. Ends an incomplete last line first. Returns
    /// the offset of the text and the new metadata.
    pub(super) async fn append_locked(
        &self,
        tx: &Tx,
        path: &DocPath,
        before: DocumentMeta,
        bytes: &[u8],
    ) -> Result<(u64, DocumentMeta)> {
        let whole = if before.is_terminated { bytes.to_vec() } else { [b"\n", bytes].concat() };
        let start = before.length + u64::from(!before.is_terminated);
        let ended = whole.last().map_or(before.is_terminated, |&last| last == b'\n');
        let look = self.update_meta(tx, path, before.length + whole.len() as u64, ended).await?;
        self.insert_chunks(tx, path, before.length, look.version, &whole).await?;
        Ok((start, look))
    }

    /// Replaces a document.
    pub(super) async fn write_document(
        &self,
        tx: &Tx,
        path: &DocPath,
        bytes: &[u8],
    ) -> Result<DocumentMeta> {
        let before = self.lock_document(tx, path).await?;
        if before.length > 0 {
            self.delete_chunks(tx, path).await?;
        }
        let look = self
            .update_meta(
                tx,
                path,
                bytes.len() as u64,
                bytes.last().is_none_or(|&last| last == b'\n'),
            )
            .await?;
        self.insert_chunks(tx, path, 0, look.version, bytes).await?;
        Ok(look)
    }

    async fn delete_chunks(&self, tx: &Tx, path: &DocPath) -> Result<()> {
        // Declares the intention, which the tables require for append-only documents.
        tx.execute("SELECT set_config('icecore.replacing', $1, true)", &[&path.as_str()]).await?;
        tx.execute("SELECT icecore.clear($1)", &[&path.as_str()]).await?;
        Ok(())
    }

    /// Removes a document.
    pub(super) async fn delete_document(&self, tx: &Tx, path: &DocPath) -> Result<()> {
        const HELD: &str =
            "SELECT FROM icecore.document WHERE space_id = $1 AND path = $2 FOR UPDATE";
        if tx.query_opt(HELD, &[&self.id, &path.as_str()]).await?.is_some() {
            self.delete_chunks(tx, path).await?;
            tx.execute(
                "DELETE FROM icecore.document WHERE space_id = $1 AND path = $2",
                &[&self.id, &path.as_str()],
            )
            .await?;
        }
        Ok(())
    }

    /// Creates the documents of a new space.
    pub(super) async fn create_initial_documents(&self, tx: &Tx, config: &str) -> Result<()> {
        self.write_document(tx, &layout::LEDGER.parse()?, b"").await?;
        self.write_document(tx, &layout::CONFIG.parse()?, config.as_bytes()).await?;
        Ok(())
    }

    pub(super) async fn paths_below(&self, under: &str) -> Result<Vec<(DocPath, u64)>> {
        let found = self.stats_below(under).await?;
        Ok(found
            .into_iter()
            .filter(|look| look.path.file_kind() != FileKind::Ledger)
            .map(|look| (look.path, look.bytes))
            .collect())
    }
}

#[async_trait]
impl DocumentStore for Space {
    async fn document(&self, path: &DocPath) -> Result<Option<Vec<u8>>> {
        let tx = self.begin_reading().await?;
        let found = self.read_document(&tx, path).await?;
        tx.commit().await?;
        Ok(found.map(|(bytes, _)| bytes))
    }

    async fn read_tail(&self, path: &DocPath, bytes: u64) -> Result<(Vec<u8>, bool)> {
        // Both answers come from one state of the document, whatever is written meanwhile.
        let tx = self.begin_snapshot_read().await?;
        let length = match self.document_meta(&tx, path).await? {
            Some(look) => look.length,
            None => 0,
        };
        let from = length.saturating_sub(bytes);
        let mut text = self.read_from(&tx, path, from).await?;
        tx.commit().await?;
        if from == 0 {
            return Ok((text, true));
        }
        let whole = memchr::memchr(b'\n', &text).map_or(text.len(), |at| at + 1);
        Ok((text.split_off(whole), false))
    }

    async fn put(&self, path: &DocPath, bytes: &[u8]) -> Result<()> {
        let tx = self.begin().await?;
        self.write_document(&tx, path, bytes).await?;
        self.derive_replaced(&tx, path, bytes).await?;
        tx.commit().await
    }

    async fn put_many(&self, documents: &[(DocPath, Vec<u8>)]) -> Result<()> {
        let tx = self.begin().await?;
        // In one order, to prevent deadlocks between writers of the same documents.
        let mut sorted: Vec<&(DocPath, Vec<u8>)> = documents.iter().collect();
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        for (path, bytes) in sorted {
            self.write_document(&tx, path, bytes).await?;
            self.derive_replaced(&tx, path, bytes).await?;
        }
        tx.commit().await
    }

    async fn compare_and_swap(
        &self,
        path: &DocPath,
        bytes: &[u8],
        from: ContentVersion,
    ) -> Result<()> {
        let tx = self.begin().await?;
        self.lock_unchanged(&tx, path, from).await?;
        self.write_document(&tx, path, bytes).await?;
        self.derive_replaced(&tx, path, bytes).await?;
        tx.commit().await
    }

    async fn compare_and_swap_many(&self, replacements: &[Replacement]) -> Result<Vec<DocPath>> {
        let tx = self.begin().await?;
        // In one order, to prevent deadlocks between writers of the same documents.
        let mut sorted: Vec<&Replacement> = replacements.iter().collect();
        sorted.sort_by(|a, b| a.path.cmp(&b.path));
        let mut changed = Vec::new();
        for Replacement { path, bytes, from } in sorted {
            let look = self.lock_document(&tx, path).await?;
            if self.content_version(&tx, path, look).await? != *from {
                if look.version == 0 {
                    // It was created only for the lock.
                    self.delete_document(&tx, path).await?;
                }
                changed.push(path.clone());
                continue;
            }
            self.write_document(&tx, path, bytes).await?;
            self.derive_replaced(&tx, path, bytes).await?;
        }
        tx.commit().await?;
        Ok(changed)
    }

    async fn append_to_document(&self, path: &DocPath, bytes: &[u8]) -> Result<()> {
        let tx = self.begin().await?;
        let before = self.lock_document(&tx, path).await?;
        self.append_locked(&tx, path, before, bytes).await?;
        self.derive_appended(&tx, path, bytes).await?;
        tx.commit().await
    }

    async fn append_if_unchanged(
        &self,
        path: &DocPath,
        bytes: &[u8],
        from: ContentVersion,
    ) -> Result<()> {
        let tx = self.begin().await?;
        let before = self.lock_unchanged(&tx, path, from).await?;
        self.append_locked(&tx, path, before, bytes).await?;
        self.derive_appended(&tx, path, bytes).await?;
        tx.commit().await
    }

    async fn remove(&self, path: &DocPath) -> Result<()> {
        let tx = self.begin().await?;
        self.delete_document(&tx, path).await?;
        self.derive_replaced(&tx, path, b"").await?;
        tx.commit().await
    }

    async fn remove_unchanged(&self, path: &DocPath, from: ContentVersion) -> Result<()> {
        let tx = self.begin().await?;
        self.lock_unchanged(&tx, path, from).await?;
        self.delete_document(&tx, path).await?;
        self.derive_replaced(&tx, path, b"").await?;
        tx.commit().await
    }

    async fn remove_empty_folder(&self, _path: &DocPath) -> Result<()> {
        // Folders exist only as prefixes of paths.
        Ok(())
    }
}
