//! Transfers a whole memory: from one store to another, into a backup file, and back.
//!
//! Every document is copied byte for byte, then read back and compared before success is reported.
//! Derived data (indexes, vectors) and private data (notes, models' answers) is not copied; it is
//! rebuilt. The key for the markers of hidden secrets is copied, so that a secret keeps its marker.
//!
//! Invariant: other processes may write during the copy. Documents that changed are copied again
//! until all of them are consistent.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};

use icecore_domain::hash::{Hash, Hasher};
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::Ledger;
use icecore_domain::secrets::MarkerKey;
use icecore_store::{Error as StoreError, Progress, RestoreTarget, Stamp, Store};
use serde::{Deserialize, Serialize};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::{Error, Result};

/// How many times changed documents are copied again before the copy fails.
const MAX_COPY_ROUNDS: usize = 20;
/// How many bytes are written to a store at once.
const BATCH_BYTES: usize = 8 << 20;
/// The last entry of a backup, which lists its documents.
const MANIFEST_ENTRY: &str = "manifest.json";
const BACKUP_FORMAT: &str = "icecore-backup";
const BACKUP_VERSION: u32 = 1;
/// The folder of end users' own memories in a store; they are not part of it.
const SPACES_PREFIX: &str = "spaces/";
/// The folder of documents in a backup, so that no document's name collides with other entries.
const DOCUMENTS_PREFIX: &str = "documents/";
/// The maximum size of an unpacked manifest. A larger one is not a backup of ours.
const MAX_MANIFEST_BYTES: u64 = 256 << 20;
/// The maximum size of a document; no store has larger ones.
const MAX_DOCUMENT_BYTES: u64 = 1 << 30;
/// The maximum compression ratio of a backup, against zip bombs. It applies only beyond
/// `UNASKED_BYTES`.
const MAX_COMPRESSION_RATIO: u64 = 400;
const UNCHECKED_RATIO_BYTES: u64 = 256 << 20;
/// How many bytes of a document are unpacked at once.
const CHUNK_BYTES: usize = 256 << 10;

/// What was copied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TransferReport {
    /// The number of documents, the ledger included.
    pub documents: usize,
    /// The sum of their sizes.
    pub bytes: u64,
    /// The number of events in the ledger.
    pub events: usize,
}

/// The list of what a backup contains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupManifest {
    format: String,
    version: u32,
    /// When the backup was made.
    pub made: String,
    /// What it is a backup of, for people.
    pub of: String,
    /// Every document, by path.
    pub documents: Vec<BackupEntry>,
    /// The key for the markers of hidden secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    marker_key: Option<String>,
}

/// A document in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupEntry {
    /// Its path in the memory.
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
    /// The zip entry with its content; in the first format its name is the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
}

/// The result of checking a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackupCheck {
    pub made: String,
    pub of: String,
    pub holds: TransferReport,
    /// Lines of the ledger that are not events; they were in the memory itself.
    pub odd_lines: usize,
}

async fn read_document(store: &dyn Store, path: &DocPath) -> Result<Option<Vec<u8>>> {
    if path.as_str() == layout::LEDGER {
        return Ok(Some(store.ledger().await?.bytes));
    }
    Ok(store.document(path).await?)
}

/// Passes every document to `take`, and those that change meanwhile again, until none does. `None`
/// as bytes means that it was deleted.
async fn for_each_document(
    from: &dyn Store,
    progress: Progress<'_>,
    mut take: impl AsyncFnMut(&DocPath, Option<Vec<u8>>) -> Result<()>,
) -> Result<()> {
    let mut taken: BTreeMap<DocPath, Stamp> = BTreeMap::new();
    for _ in 0..MAX_COPY_ROUNDS {
        let mut looks = from.list("").await?;
        looks.retain(|look| !look.path.as_str().starts_with(SPACES_PREFIX));
        let there: std::collections::BTreeSet<&DocPath> =
            looks.iter().map(|look| &look.path).collect();
        let gone: Vec<DocPath> =
            taken.keys().filter(|path| !there.contains(path)).cloned().collect();
        let changed: Vec<_> =
            looks.iter().filter(|look| taken.get(&look.path) != Some(&look.stamp)).collect();
        if gone.is_empty() && changed.is_empty() {
            return Ok(());
        }
        for path in gone {
            take(&path, None).await?;
            taken.remove(&path);
        }
        let all = looks.len() as u64;
        for (nth, look) in changed.iter().enumerate() {
            // A document that is deleted after the listing is missing from the next listing.
            if let Some(bytes) = read_document(from, &look.path).await? {
                take(&look.path, Some(bytes)).await?;
                taken.insert(look.path.clone(), look.stamp.clone());
            }
            progress(all - (changed.len() - nth - 1) as u64, all);
        }
    }
    Err(Error::Busy(
        "the memory is being changed all the time, so no consistent copy could be made; stop other programs that use it and try again".into(),
    ))
}

/// A copy into an empty store.
struct TargetWriter<'a> {
    to: &'a dyn Store,
    batch: Vec<(DocPath, Vec<u8>)>,
    bytes: usize,
    hashes: BTreeMap<DocPath, (Hash, u64)>,
}

impl<'a> TargetWriter<'a> {
    /// Begins a copy. What an interrupted attempt left is removed first.
    async fn begin(to: &'a dyn Store) -> Result<Self> {
        match to.begin_restore().await? {
            RestoreTarget::New => {}
            RestoreTarget::Unfinished => {
                for look in to.list("").await?.iter().filter(|look| !look.is_initial()) {
                    if look.path.as_str() == layout::LEDGER {
                        let known = to.ledger().await?;
                        to.replace_ledger(b"", known.position).await?;
                    } else {
                        to.remove(&look.path).await?;
                    }
                }
            }
            RestoreTarget::Occupied { documents, such_as } => {
                return Err(Error::AlreadyExists(format!(
                    "there is a memory already ({documents} documents, such as {such_as}); choose an empty target"
                )));
            }
        }
        Ok(Self { to, batch: Vec::new(), bytes: 0, hashes: BTreeMap::new() })
    }

    async fn write_document(&mut self, path: &DocPath, bytes: Option<Vec<u8>>) -> Result<()> {
        let Some(bytes) = bytes else {
            self.flush().await?;
            self.hashes.remove(path);
            return Ok(self.to.remove(path).await?);
        };
        self.hashes.insert(path.clone(), (Hash::of(&bytes), bytes.len() as u64));
        if path.as_str() == layout::LEDGER {
            let known = self.to.ledger().await?;
            return Ok(self.to.replace_ledger(&bytes, known.position).await?);
        }
        self.bytes += bytes.len();
        self.batch.push((path.clone(), bytes));
        if self.bytes >= BATCH_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<()> {
        self.to.put_many(&self.batch).await?;
        self.batch.clear();
        self.bytes = 0;
        Ok(())
    }

    /// Reads everything back and compares it.
    async fn finish(mut self) -> Result<TransferReport> {
        self.flush().await?;
        let mut carried = TransferReport::default();
        for (path, (hash, length)) in &self.hashes {
            let back = read_document(self.to, path).await?.unwrap_or_default();
            if Hash::of(&back) != *hash {
                return Err(Error::Damaged(format!(
                    "{path} differs after the copy; run the command again"
                )));
            }
            carried.documents += 1;
            carried.bytes += length;
            if path.as_str() == layout::LEDGER {
                carried.events = Ledger::parse(&back, None).entries().len();
            }
        }
        // Created by `init`, and not in the source.
        for path in [".gitignore", ".gitattributes"] {
            let path: DocPath = path.parse().map_err(StoreError::from)?;
            if !self.hashes.contains_key(&path) && self.to.document_len(&path).await? > 0 {
                self.to.remove(&path).await?;
            }
        }
        self.to.finish_restore().await?;
        Ok(carried)
    }
}

/// Copies a whole memory into an empty store. After an interruption, the same call starts again.
pub async fn transfer(
    from: &dyn Store,
    to: &dyn Store,
    progress: Progress<'_>,
) -> Result<TransferReport> {
    let filled = async {
        let mut filling = TargetWriter::begin(to).await?;
        for_each_document(from, progress, async |path, bytes| {
            filling.write_document(path, bytes).await
        })
        .await?;
        if let Some(key) = from.marker_key().await? {
            to.set_marker_key(&key, true).await?;
        }
        filling.finish().await
    };
    abort_on_error(to, filled.await).await
}

/// Passes on the result of a copy. A failed copy is aborted, so that the next try need not wait.
async fn abort_on_error(to: &dyn Store, filled: Result<TransferReport>) -> Result<TransferReport> {
    if filled.is_err() {
        // The first error is reported, not one of the cleanup.
        let _ = to.abort_restore().await;
    }
    filled
}

fn backup_write_error(error: impl std::fmt::Display) -> Error {
    Error::Damaged(format!("the backup cannot be written: {error}"))
}

fn backup_read_error(error: impl std::fmt::Display) -> Error {
    Error::Damaged(format!(
        "this is not a complete backup: {error}. Nothing was changed; use another backup"
    ))
}

/// Writes a whole memory into a zip file.
pub async fn back_up(
    from: &dyn Store,
    of: &str,
    made: &str,
    into: impl Write + Seek,
    progress: Progress<'_>,
) -> Result<TransferReport> {
    let mut zip = ZipWriter::new(into);
    let mut kept: BTreeMap<DocPath, BackupEntry> = BTreeMap::new();
    let mut carried = TransferReport::default();
    let mut again = 0;
    for_each_document(from, progress, async |path, bytes| {
        let Some(bytes) = bytes else {
            kept.remove(path);
            return Ok(());
        };
        let entry = if kept.contains_key(path) {
            // It changed meanwhile. The earlier version stays in the file.
            again += 1;
            format!("later/{again}/{path}")
        } else {
            format!("{DOCUMENTS_PREFIX}{path}")
        };
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .large_file(bytes.len() as u64 >= u64::from(u32::MAX))
            .unix_permissions(0o600);
        zip.start_file(&entry, options).map_err(backup_write_error)?;
        zip.write_all(&bytes).map_err(backup_write_error)?;
        if path.as_str() == layout::LEDGER {
            carried.events = Ledger::parse(&bytes, None).entries().len();
        }
        let line = BackupEntry {
            path: path.to_string(),
            bytes: bytes.len() as u64,
            sha256: Hash::of(&bytes).to_string(),
            entry: Some(entry),
        };
        kept.insert(path.clone(), line);
        Ok(())
    })
    .await?;
    carried.documents = kept.len();
    carried.bytes = kept.values().map(|kept| kept.bytes).sum();
    let marker_key = from.marker_key().await?.map(|key| key.to_hex());
    let documents = kept.into_values().collect();
    let manifest = BackupManifest {
        format: BACKUP_FORMAT.into(),
        version: BACKUP_VERSION,
        made: made.into(),
        of: of.into(),
        documents,
        marker_key,
    };
    zip.start_file(MANIFEST_ENTRY, SimpleFileOptions::default().unix_permissions(0o600))
        .map_err(backup_write_error)?;
    zip.write_all(&serde_json::to_vec_pretty(&manifest).map_err(backup_write_error)?)
        .map_err(backup_write_error)?;
    zip.finish().map_err(backup_write_error)?.flush().map_err(backup_write_error)?;
    Ok(carried)
}

/// An open backup.
struct BackupReader<R: Read + Seek> {
    zip: ZipArchive<R>,
    manifest: BackupManifest,
}

impl<R: Read + Seek> BackupReader<R> {
    fn open(mut file: R) -> Result<Self> {
        let length = file.seek(SeekFrom::End(0)).map_err(backup_read_error)?;
        let mut zip = ZipArchive::new(file).map_err(backup_read_error)?;
        let text = {
            let entry = zip
                .by_name(MANIFEST_ENTRY)
                .map_err(|_| backup_read_error("it has no manifest.json"))?;
            let mut text = Vec::new();
            entry.take(MAX_MANIFEST_BYTES).read_to_end(&mut text).map_err(backup_read_error)?;
            text
        };
        let manifest: BackupManifest = serde_json::from_slice(&text)
            .map_err(|error| backup_read_error(format!("its manifest cannot be read: {error}")))?;
        if manifest.format != BACKUP_FORMAT || manifest.version > BACKUP_VERSION {
            return Err(backup_read_error(format!(
                "its format is {} {}, and this program reads {BACKUP_FORMAT} {BACKUP_VERSION}",
                manifest.format, manifest.version
            )));
        }
        // Checked before anything is unpacked: unpacking never exceeds the sizes of the manifest.
        if let Some(kept) = manifest.documents.iter().find(|kept| kept.bytes > MAX_DOCUMENT_BYTES) {
            return Err(backup_read_error(format!(
                "{} has {} bytes; the maximum is {MAX_DOCUMENT_BYTES}",
                kept.path, kept.bytes
            )));
        }
        let whole =
            manifest.documents.iter().fold(0_u64, |whole, kept| whole.saturating_add(kept.bytes));
        if whole > UNCHECKED_RATIO_BYTES && whole / MAX_COMPRESSION_RATIO > length {
            return Err(backup_read_error(format!(
                "it has {length} bytes and would unpack to {whole}, more than {MAX_COMPRESSION_RATIO} times as many"
            )));
        }
        Ok(Self { zip, manifest })
    }

    fn read_document(&mut self, kept: &BackupEntry) -> Result<(DocPath, Vec<u8>)> {
        let mut bytes = Vec::new();
        let path = self.read_chunks(kept, &mut |piece| bytes.extend_from_slice(piece))?;
        Ok((path, bytes))
    }

    /// Unpacks a document in pieces, never more than its size, and compares its hash.
    fn read_chunks(&mut self, kept: &BackupEntry, take: &mut dyn FnMut(&[u8])) -> Result<DocPath> {
        let path: DocPath = kept.path.parse().map_err(backup_read_error)?;
        let entry = self.zip.by_name(kept.entry.as_deref().unwrap_or(&kept.path));
        let mut entry = entry
            .map_err(|_| backup_read_error(format!("{path} is not in it")))?
            .take(kept.bytes.saturating_add(1));
        let (mut hashing, mut piece, mut length) = (Hasher::default(), vec![0; CHUNK_BYTES], 0);
        loop {
            let many = match entry.read(&mut piece) {
                Ok(0) => break,
                Ok(many) => many,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(backup_read_error(format!("{path}: {error}"))),
            };
            hashing.update(&piece[..many]);
            take(&piece[..many]);
            length += many as u64;
        }
        if length != kept.bytes || hashing.finish().to_string() != kept.sha256 {
            return Err(backup_read_error(format!("{path} has changed since the backup was made")));
        }
        Ok(path)
    }
}

/// Reads a whole backup and compares every document with its hash.
pub fn check_backup(file: impl Read + Seek, progress: Progress<'_>) -> Result<BackupCheck> {
    let mut backup = BackupReader::open(file)?;
    let mut holds = TransferReport::default();
    let mut odd_lines = 0;
    let documents = std::mem::take(&mut backup.manifest.documents);
    for (nth, kept) in documents.iter().enumerate() {
        holds.documents += 1;
        holds.bytes += kept.bytes;
        if kept.path == layout::LEDGER {
            let ledger = Ledger::parse(&backup.read_document(kept)?.1, None);
            (holds.events, odd_lines) = (ledger.entries().len(), ledger.unreadable_lines().len());
        } else {
            backup.read_chunks(kept, &mut |_| {})?;
        }
        progress(nth as u64 + 1, documents.len() as u64);
    }
    for needed in [layout::CONFIG, layout::LEDGER] {
        if !documents.iter().any(|kept| kept.path == needed) {
            return Err(backup_read_error(format!("{needed} is not in it")));
        }
    }
    Ok(BackupCheck { made: backup.manifest.made, of: backup.manifest.of, holds, odd_lines })
}

/// Restores a backup into an empty store. The backup is checked as a whole before anything is
/// written.
pub async fn restore_backup(
    mut file: impl Read + Seek,
    to: &dyn Store,
    progress: Progress<'_>,
) -> Result<TransferReport> {
    check_backup(&mut file, &|_, _| {})?;
    file.rewind().map_err(backup_read_error)?;
    let mut backup = BackupReader::open(file)?;
    let documents = std::mem::take(&mut backup.manifest.documents);
    let marker_key =
        backup.manifest.marker_key.as_ref().and_then(|text| MarkerKey::from_hex(text.as_bytes()));
    let filled = async {
        let mut filling = TargetWriter::begin(to).await?;
        for (nth, kept) in documents.iter().enumerate() {
            let (path, bytes) = backup.read_document(kept)?;
            filling.write_document(&path, Some(bytes)).await?;
            progress(nth as u64 + 1, documents.len() as u64);
        }
        if let Some(key) = marker_key {
            to.set_marker_key(&key, true).await?;
        }
        filling.finish().await
    };
    abort_on_error(to, filled.await).await
}
