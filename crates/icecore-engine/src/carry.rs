//! Moving a whole memory: from one home to another, into a backup, and out of one again.
//!
//! Every document goes over byte for byte, and is read back and compared before anybody is told
//! that it is done. What is derived (indexes, vectors) and what is private to a home (notes,
//! answers of models) stays; it is made again. Only the key for the marks of hidden secrets goes
//! along, so that the same secret keeps its mark. While it is copied others may write: what changed
//! meanwhile is copied again, until everything was there together at one moment.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};

use icecore_domain::hash::{Hash, Hashing};
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::Ledger;
use icecore_domain::secrets::MarkerKey;
use icecore_store::{Error as StoreError, Ground, Progress, Stamp, Store};
use serde::{Deserialize, Serialize};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::{Error, Result};

/// How often what changed meanwhile is copied again before it is given up.
const ROUNDS: usize = 20;
/// So many bytes are written to a home at once.
const BATCH_BYTES: usize = 8 << 20;
/// What says what a backup holds, the last entry of it.
const MANIFEST: &str = "manifest.json";
const FORMAT: &str = "icecore-backup";
const VERSION: u32 = 1;
/// Where end users' own memories are, beneath a home; they are memories of their own.
const SPACES: &str = "spaces/";
/// Where documents are in a backup, so that none of them is taken for something else of it,
/// whatever it is called.
const DOCUMENTS: &str = "documents/";
/// The most that a manifest of a backup may come to, unpacked: what says it is more is no backup of
/// ours.
const MOST_MANIFEST_BYTES: u64 = 256 << 20;
/// Likewise a document: no home keeps a larger one.
const MOST_DOCUMENT_BYTES: u64 = 1 << 30;
/// Likewise all of them together, as many times as large as the file: words can be packed, but not
/// without end. What a small file says does no harm, so it is asked only beyond so many bytes.
const MOST_PACKED: u64 = 400;
const UNASKED_BYTES: u64 = 256 << 20;
/// So many bytes of a document are unpacked at once.
const PIECE_BYTES: usize = 256 << 10;

/// What was carried over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Carried {
    /// So many documents, the ledger included.
    pub documents: usize,
    /// So many bytes in them.
    pub bytes: u64,
    /// So many events in the ledger.
    pub events: usize,
}

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: String,
    version: u32,
    /// When it was made.
    pub made: String,
    /// What it was made of, for people.
    pub of: String,
    /// Every document, by path.
    pub documents: Vec<Kept>,
    /// The key for the marks of hidden secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    marker_key: Option<String>,
}

/// A document in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its path in the memory.
    pub path: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// The SHA-256 of them.
    pub sha256: String,
    /// The entry of the file that has them; in the first backups it was called like the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
}

/// A look at a backup, after everything in it was read and compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// When it was made.
    pub made: String,
    /// What it was made of.
    pub of: String,
    /// What is in it.
    pub holds: Carried,
    /// Lines of the ledger that are no events; they were so in the memory itself.
    pub odd_lines: usize,
}

async fn bytes_of(store: &dyn Store, path: &DocPath) -> Result<Option<Vec<u8>>> {
    if path.as_str() == layout::LEDGER {
        return Ok(Some(store.ledger().await?.bytes));
    }
    Ok(store.document(path).await?)
}

/// Hands over every document as it is, those that change meanwhile again, until none does. `None`
/// as bytes: it is not there any more.
async fn each(
    from: &dyn Store,
    progress: Progress<'_>,
    mut take: impl AsyncFnMut(&DocPath, Option<Vec<u8>>) -> Result<()>,
) -> Result<()> {
    let mut taken: BTreeMap<DocPath, Stamp> = BTreeMap::new();
    for _ in 0..ROUNDS {
        let mut looks = from.looks("").await?;
        looks.retain(|look| !look.path.as_str().starts_with(SPACES));
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
            // One that went between the look and now is missed by the next look.
            if let Some(bytes) = bytes_of(from, &look.path).await? {
                take(&look.path, Some(bytes)).await?;
                taken.insert(look.path.clone(), look.stamp.clone());
            }
            progress(all - (changed.len() - nth - 1) as u64, all);
        }
    }
    Err(Error::Busy(
        "somebody writes all the time, so no moment was found at which everything was there together; try again when it is quiet".into(),
    ))
}

/// Fills an empty home.
struct Filling<'a> {
    to: &'a dyn Store,
    batch: Vec<(DocPath, Vec<u8>)>,
    bytes: usize,
    hashes: BTreeMap<DocPath, (Hash, u64)>,
}

impl<'a> Filling<'a> {
    /// Begins; what an earlier attempt left in the middle is taken away first.
    async fn begin(to: &'a dyn Store) -> Result<Self> {
        match to.begin_filling().await? {
            Ground::New => {}
            Ground::Unfinished => {
                for look in to.looks("").await?.iter().filter(|look| !look.is_from_the_start()) {
                    if look.path.as_str() == layout::LEDGER {
                        let known = to.ledger().await?;
                        to.replace_ledger(b"", known.position).await?;
                    } else {
                        to.remove(&look.path).await?;
                    }
                }
            }
            Ground::Occupied { documents, such_as } => {
                return Err(Error::Occupied(format!(
                    "there is a memory already ({documents} documents, such as {such_as}); a whole memory goes only where none is. Name another place"
                )));
            }
        }
        Ok(Self { to, batch: Vec::new(), bytes: 0, hashes: BTreeMap::new() })
    }

    async fn take(&mut self, path: &DocPath, bytes: Option<Vec<u8>>) -> Result<()> {
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
    async fn end(mut self) -> Result<Carried> {
        self.flush().await?;
        let mut carried = Carried::default();
        for (path, (hash, length)) in &self.hashes {
            let back = bytes_of(self.to, path).await?.unwrap_or_default();
            if Hash::of(&back) != *hash {
                return Err(Error::Damaged(format!(
                    "{path} did not arrive as it was; do it again"
                )));
            }
            carried.documents += 1;
            carried.bytes += length;
            if path.as_str() == layout::LEDGER {
                carried.events = Ledger::read(&back, None).entries().len();
            }
        }
        // Left by `init`, and not in what was carried.
        for path in [".gitignore", ".gitattributes"] {
            let path: DocPath = path.parse().map_err(StoreError::Path)?;
            if !self.hashes.contains_key(&path) && self.to.length(&path).await? > 0 {
                self.to.remove(&path).await?;
            }
        }
        self.to.end_filling().await?;
        Ok(carried)
    }
}

/// Copies a whole memory into an empty home. Cut short, the same call begins anew and finishes it.
pub async fn carry(from: &dyn Store, to: &dyn Store, progress: Progress<'_>) -> Result<Carried> {
    let filled = async {
        let mut filling = Filling::begin(to).await?;
        each(from, progress, async |path, bytes| filling.take(path, bytes).await).await?;
        if let Some(key) = from.marker_key().await? {
            to.set_marker_key(&key, true).await?;
        }
        filling.end().await
    };
    or_stop(to, filled.await).await
}

/// What came of filling a home. If it failed, whoever tries again need not wait.
async fn or_stop(to: &dyn Store, filled: Result<Carried>) -> Result<Carried> {
    if filled.is_err() {
        // What went wrong is told, not that this did as well.
        let _ = to.stop_filling().await;
    }
    filled
}

fn unwritable(error: impl std::fmt::Display) -> Error {
    Error::Damaged(format!("the backup cannot be written: {error}"))
}

fn unreadable(error: impl std::fmt::Display) -> Error {
    Error::Damaged(format!(
        "this is no whole backup: {error}. Nothing was changed; take another one"
    ))
}

/// Writes a whole memory into a file, which is a zip that any tool can open.
pub async fn back_up(
    from: &dyn Store,
    of: &str,
    made: &str,
    into: impl Write + Seek,
    progress: Progress<'_>,
) -> Result<Carried> {
    let mut zip = ZipWriter::new(into);
    let mut kept: BTreeMap<DocPath, Kept> = BTreeMap::new();
    let mut carried = Carried::default();
    let mut again = 0;
    each(from, progress, async |path, bytes| {
        let Some(bytes) = bytes else {
            kept.remove(path);
            return Ok(());
        };
        let entry = if kept.contains_key(path) {
            // It changed meanwhile, and what was written stays in the file.
            again += 1;
            format!("later/{again}/{path}")
        } else {
            format!("{DOCUMENTS}{path}")
        };
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .large_file(bytes.len() as u64 >= u64::from(u32::MAX))
            .unix_permissions(0o600);
        zip.start_file(&entry, options).map_err(unwritable)?;
        zip.write_all(&bytes).map_err(unwritable)?;
        if path.as_str() == layout::LEDGER {
            carried.events = Ledger::read(&bytes, None).entries().len();
        }
        let line = Kept {
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
    let manifest = Manifest {
        format: FORMAT.into(),
        version: VERSION,
        made: made.into(),
        of: of.into(),
        documents,
        marker_key,
    };
    zip.start_file(MANIFEST, SimpleFileOptions::default().unix_permissions(0o600))
        .map_err(unwritable)?;
    zip.write_all(&serde_json::to_vec_pretty(&manifest).map_err(unwritable)?)
        .map_err(unwritable)?;
    zip.finish().map_err(unwritable)?.flush().map_err(unwritable)?;
    Ok(carried)
}

/// A backup that was opened.
struct Backup<R: Read + Seek> {
    zip: ZipArchive<R>,
    manifest: Manifest,
}

impl<R: Read + Seek> Backup<R> {
    fn open(mut file: R) -> Result<Self> {
        let length = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
        let mut zip = ZipArchive::new(file).map_err(unreadable)?;
        let text = {
            let entry = zip.by_name(MANIFEST).map_err(|_| unreadable("it has no manifest.json"))?;
            let mut text = Vec::new();
            entry.take(MOST_MANIFEST_BYTES).read_to_end(&mut text).map_err(unreadable)?;
            text
        };
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|error| unreadable(format!("its manifest cannot be read: {error}")))?;
        if manifest.format != FORMAT || manifest.version > VERSION {
            return Err(unreadable(format!(
                "it is of the form {} {}, and this program knows {FORMAT} {VERSION}",
                manifest.format, manifest.version
            )));
        }
        // Before anything is unpacked: what it says of itself is what it is unpacked to at most.
        if let Some(kept) = manifest.documents.iter().find(|kept| kept.bytes > MOST_DOCUMENT_BYTES)
        {
            return Err(unreadable(format!(
                "{} has {} bytes, and no document has more than {MOST_DOCUMENT_BYTES}",
                kept.path, kept.bytes
            )));
        }
        let whole =
            manifest.documents.iter().fold(0_u64, |whole, kept| whole.saturating_add(kept.bytes));
        if whole > UNASKED_BYTES && whole / MOST_PACKED > length {
            return Err(unreadable(format!(
                "it has {length} bytes and would come to {whole}, which is more than {MOST_PACKED} times as many"
            )));
        }
        Ok(Self { zip, manifest })
    }

    fn document(&mut self, kept: &Kept) -> Result<(DocPath, Vec<u8>)> {
        let mut bytes = Vec::new();
        let path = self.read(kept, &mut |piece| bytes.extend_from_slice(piece))?;
        Ok((path, bytes))
    }

    /// Unpacks a document piece by piece, no more than it should be, and compares it with its hash.
    fn read(&mut self, kept: &Kept, take: &mut dyn FnMut(&[u8])) -> Result<DocPath> {
        let path: DocPath = kept.path.parse().map_err(unreadable)?;
        let entry = self.zip.by_name(kept.entry.as_deref().unwrap_or(&kept.path));
        let mut entry = entry
            .map_err(|_| unreadable(format!("{path} is not in it")))?
            .take(kept.bytes.saturating_add(1));
        let (mut hashing, mut piece, mut length) = (Hashing::default(), vec![0; PIECE_BYTES], 0);
        loop {
            let many = match entry.read(&mut piece) {
                Ok(0) => break,
                Ok(many) => many,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(unreadable(format!("{path}: {error}"))),
            };
            hashing.take(&piece[..many]);
            take(&piece[..many]);
            length += many as u64;
        }
        if length != kept.bytes || hashing.finish().to_string() != kept.sha256 {
            return Err(unreadable(format!("{path} is not what it was when the backup was made")));
        }
        Ok(path)
    }
}

/// Reads a backup through and compares everything in it with its hashes.
pub fn check_backup(file: impl Read + Seek, progress: Progress<'_>) -> Result<Checked> {
    let mut backup = Backup::open(file)?;
    let mut holds = Carried::default();
    let mut odd_lines = 0;
    let documents = std::mem::take(&mut backup.manifest.documents);
    for (nth, kept) in documents.iter().enumerate() {
        holds.documents += 1;
        holds.bytes += kept.bytes;
        if kept.path == layout::LEDGER {
            let ledger = Ledger::read(&backup.document(kept)?.1, None);
            (holds.events, odd_lines) = (ledger.entries().len(), ledger.unread().len());
        } else {
            backup.read(kept, &mut |_| {})?;
        }
        progress(nth as u64 + 1, documents.len() as u64);
    }
    for needed in [layout::CONFIG, layout::LEDGER] {
        if !documents.iter().any(|kept| kept.path == needed) {
            return Err(unreadable(format!("{needed} is not in it")));
        }
    }
    Ok(Checked { made: backup.manifest.made, of: backup.manifest.of, holds, odd_lines })
}

/// Fills an empty home from a backup, which is checked as a whole before anything is written.
pub async fn restore(
    mut file: impl Read + Seek,
    to: &dyn Store,
    progress: Progress<'_>,
) -> Result<Carried> {
    check_backup(&mut file, &|_, _| {})?;
    file.rewind().map_err(unreadable)?;
    let mut backup = Backup::open(file)?;
    let documents = std::mem::take(&mut backup.manifest.documents);
    let marker_key =
        backup.manifest.marker_key.as_ref().and_then(|text| MarkerKey::from_hex(text.as_bytes()));
    let filled = async {
        let mut filling = Filling::begin(to).await?;
        for (nth, kept) in documents.iter().enumerate() {
            let (path, bytes) = backup.document(kept)?;
            filling.take(&path, Some(bytes)).await?;
            progress(nth as u64 + 1, documents.len() as u64);
        }
        if let Some(key) = marker_key {
            to.set_marker_key(&key, true).await?;
        }
        filling.end().await
    };
    or_stop(to, filled.await).await
}
