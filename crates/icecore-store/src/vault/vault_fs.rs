//! The file-system layer of the vault: the only code that changes its files.
//!
//! Everything above relies on this contract. When a call returns `Ok`, the change is durable, file
//! and folder. When it returns an error or the process dies, the file is unchanged; only a death
//! during an append can leave one torn last line, which the next opening moves to quarantine. A
//! failed flush is never tried again on the same data: the write fails and the appended bytes are
//! cut off.
//!
//! Programs that do not know our locks write to the same files. An append never cuts off what they
//! appended. A conditional replacement or removal never destroys what they saved since the file was
//! read.
#![expect(clippy::disallowed_methods, reason = "this module is the file-system layer")]

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{DefaultHasher, Hash as _, Hasher};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use icecore_domain::hash::Hash;
use icecore_domain::layout::{CONFIG, DocPath, PRIVATE};
use icecore_domain::secrets::MarkerKey;
use rustix::fs::{AtFlags, FileType, OFlags};

use super::CALL_COST_BYTES;
use crate::{ContentVersion, DiskUsage, Error, MARKER_KEY, Result};

/// The number of attempts to get a lock, a few milliseconds apart: about half a minute.
const MAX_LOCK_ATTEMPTS: u32 = 3_000;
/// The same for a caller that cannot wait: about a second.
const SHORT_LOCK_ATTEMPTS: u32 = 100;
/// The longest pause between two attempts to get a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(11);

/// Up to this many files are flushed one by one; more are flushed together.
const MAX_SINGLE_FLUSHES: usize = 4;
/// How often a lock that seems to be held is tried again, and the pause between.
const RELEASE_ATTEMPTS: u32 = 10;
const RELEASE_PAUSE: Duration = Duration::from_millis(10);
/// The number of files open at once.
const MAX_OPEN_FILES: usize = 200;
/// The most bytes to read at once for several pieces.
const MAX_READ_SPAN_BYTES: u64 = 1024 * 1024;
/// The folder of cached model answers.
const ANSWERS_DIR: &str = "answers";
/// The folder of notes.
const NOTES_DIR: &str = "notes";
/// The name prefix of a note that is being written.
const PARTIAL_NOTE_PREFIX: &str = ".unfinished-";
/// How often a write is tried again when another program's write interferes.
pub(super) const MAX_WRITE_ATTEMPTS: usize = 5;

/// How many names are tried for a temporary file.
const MAX_NAME_ATTEMPTS: usize = 1_000;

/// Numbers temporary files, so that no two threads of this process share a name.
static TEMPORARY_FILES: AtomicU32 = AtomicU32::new(0);
/// The suffix of a repository that is being replaced.
const OLD_REPOSITORY_SUFFIX: &str = "old";

/// The offset of appended bytes, and the file's metadata if no other program wrote to it meanwhile.
type AppendedBytes = (u64, Option<FileStat>);

/// File access to one vault.
#[derive(Debug, Clone)]
pub(super) struct VaultFs {
    root: PathBuf,
    /// Folders that this process knows to be durable.
    flushed_folders: Arc<Mutex<HashSet<PathBuf>>>,
    /// By name of the lock.
    queues: Arc<Mutex<HashMap<String, Arc<LockQueue>>>>,
    /// How often a writer tries to get a lock.
    lock_attempts: u32,
}

/// Proof of the exclusive right to write. The lock belongs to the operating system and ends with
/// the process.
#[derive(Debug)]
pub(super) struct WriteLock {
    lock: File,
    /// Kept until the file lock is released: fields are dropped in order.
    _turn: Option<QueueTurn>,
}

/// The queue of this process's threads for one lock. Only the first asks the operating system,
/// which can only be polled.
#[derive(Debug, Default)]
struct LockQueue {
    is_taken: Mutex<bool>,
    given_back: Condvar,
}

/// The first place in a [`LockQueue`].
#[derive(Debug)]
struct QueueTurn(Arc<LockQueue>);

impl LockQueue {
    /// Waits for the first place, at most that long.
    fn wait_turn(self: &Arc<Self>, most: Duration) -> Option<QueueTurn> {
        let is_taken = self.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut is_taken, _) = self
            .given_back
            .wait_timeout_while(is_taken, most, |is_taken| *is_taken)
            .unwrap_or_else(PoisonError::into_inner);
        if *is_taken {
            return None;
        }
        *is_taken = true;
        Some(QueueTurn(self.clone()))
    }
}

impl Drop for QueueTurn {
    fn drop(&mut self) {
        *self.0.is_taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.given_back.notify_one();
    }
}

/// The file system's metadata of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileStat {
    pub len: u64,
    mtime: (i64, i64),
    inode: u64,
}

impl WriteLock {
    /// The lock as standard input of a child process: the lock is held while the child lives,
    /// whatever happens to this process.
    pub fn as_stdin(&self) -> Result<Stdio> {
        self.lock
            .try_clone()
            .map(Stdio::from)
            .map_err(|error| io_error("duplicating", Path::new("the lock"), error))
    }

    /// The current time by the file system's clock, which also stamps the files.
    fn file_system_time(&self) -> Option<(i64, i64)> {
        self.lock.write_at(b".", 0).ok()?;
        self.lock.metadata().ok().map(|found| (found.mtime(), found.mtime_nsec()))
    }
}

impl FileStat {
    /// A text that changes whenever the file changes.
    pub fn stamp(&self) -> String {
        format!("{}:{}.{:09}:{}", self.len, self.mtime.0, self.mtime.1, self.inode)
    }

    /// The time of the last write.
    pub fn modified_at(&self) -> jiff::Timestamp {
        jiff::Timestamp::new(self.mtime.0, i32::try_from(self.mtime.1).unwrap_or(0))
            .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
    }

    /// [`FileStat::stamp`] as a number.
    pub fn as_number(&self) -> u64 {
        let hash = Hash::of(self.stamp().as_bytes());
        hash.as_bytes()[..8].iter().fold(0, |mark, &byte| mark << 8 | u64::from(byte))
    }
}

impl VaultFs {
    /// The files of the vault in this folder.
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            flushed_folders: Arc::default(),
            queues: Arc::default(),
            lock_attempts: MAX_LOCK_ATTEMPTS,
        }
    }

    /// Makes every lock wait at most about a second.
    pub fn with_short_wait(self) -> Self {
        Self { lock_attempts: SHORT_LOCK_ATTEMPTS, ..self }
    }

    /// The folder of the vault.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path of a private file.
    pub fn private(&self, name: &str) -> PathBuf {
        self.root.join(PRIVATE).join(name)
    }

    /// Checks that nothing in the private folder is a link: what is removed, rebuilt or written
    /// there must belong to the vault.
    pub fn guard_private(&self) -> Result<()> {
        let names = [
            "tmp",
            "quarantine",
            ANSWERS_DIR,
            NOTES_DIR,
            MARKER_KEY,
            "lock",
            "check.lock",
            "index.db",
            "index.db-wal",
            "index.db-shm",
            "check.db",
        ];
        let places = names.map(|name| self.private(name));
        std::iter::once(&self.root.join(PRIVATE))
            .chain(&places)
            .try_for_each(|place| refuse_link(place))
    }

    /// Waits for the vault's write lock.
    pub fn lock(&self) -> Result<WriteLock> {
        self.lock_named("lock")
    }

    /// Waits for the lock of that name.
    pub fn lock_named(&self, name: &str) -> Result<WriteLock> {
        let queue = self
            .queues
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(name.to_owned())
            .or_default()
            .clone();
        // Threads of this process wait for each other as long as processes do.
        let Some(turn) = queue.wait_turn(LOCK_PAUSE * self.lock_attempts) else {
            return Err(Error::Busy { vault: self.root.clone() });
        };
        let (file, path) = self.lock_file(name)?;
        for wait in 0..self.lock_attempts {
            match file.try_lock() {
                Ok(()) => return Ok(WriteLock { lock: file, _turn: Some(turn) }),
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(Duration::from_millis(u64::from(wait.min(10)) + 1))
                }
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => return Err(io_error("locking", &path, error)),
            }
        }
        Err(Error::Busy { vault: self.root.clone() })
    }

    /// Acquires the lock of that name; `None` if it is held.
    pub fn try_lock_named(&self, name: &str) -> Result<Option<WriteLock>> {
        let (file, path) = self.lock_file(name)?;
        // A lock that was just released can still be held for a moment by a program that is
        // starting: it inherits our descriptors until it begins.
        for _ in 0..RELEASE_ATTEMPTS {
            match file.try_lock() {
                Ok(()) => return Ok(Some(WriteLock { lock: file, _turn: None })),
                Err(TryLockError::WouldBlock) => std::thread::sleep(RELEASE_PAUSE),
                Err(TryLockError::Error(error)) => return Err(io_error("locking", &path, error)),
            }
        }
        Ok(None)
    }

    fn lock_file(&self, name: &str) -> Result<(File, PathBuf)> {
        // Opening the vault checked everything; this finds links that were added since.
        refuse_link(&self.root.join(PRIVATE))?;
        let path = self.private(name);
        let open = || {
            OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .custom_flags(nonblock())
                .open(&path)
        };
        let file = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.make_folder(&self.root.join(PRIVATE))?;
                open()
            }
            other => other,
        };
        let file = file.map_err(|error| match error.raw_os_error() {
            // A pipe or a socket.
            Some(code) if code == rustix::io::Errno::NXIO.raw_os_error() => {
                Error::NotAFile(path.clone())
            }
            _ => io_error("opening", &path, error),
        })?;
        Ok((file, path))
    }

    /// The path of a document, after checking that no component is a link.
    fn checked_path(&self, path: &DocPath) -> Result<PathBuf> {
        for folder in path.folders() {
            let folder = self.root.join(folder);
            match fs::symlink_metadata(&folder) {
                Ok(found) if found.file_type().is_symlink() => return Err(Error::Link(folder)),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                Err(error) => return Err(io_error("reading the metadata of", &folder, error)),
            }
        }
        Ok(self.root.join(path.as_str()))
    }

    /// Opens a document for reading; `None` if it does not exist.
    fn open(&self, path: &DocPath) -> Result<Option<File>> {
        let place = self.checked_path(path)?;
        match OpenOptions::new().read(true).custom_flags(nonblock()).open(&place) {
            Ok(file) if file.metadata().is_ok_and(|found| !found.is_file()) => {
                Err(Error::NotAFile(place))
            }
            Ok(file) => Ok(Some(file)),
            Err(error)
                if error.kind() == ErrorKind::NotFound
                    || error.kind() == ErrorKind::NotADirectory =>
            {
                Ok(None)
            }
            Err(error) => Err(io_error("reading", &place, error)),
        }
    }

    /// Reads a document.
    pub fn read(&self, path: &DocPath) -> Result<Option<Vec<u8>>> {
        let Some(mut file) = self.open(path)? else { return Ok(None) };
        let mut bytes = Vec::with_capacity(
            file.metadata().map_or(0, |found| usize::try_from(found.len()).unwrap_or(0) + 1),
        );
        file.read_to_end(&mut bytes)
            .map_err(|error| io_error("reading", &self.root.join(path.as_str()), error))?;
        Ok(Some(bytes))
    }

    /// The metadata of a document.
    pub fn stat(&self, path: &DocPath) -> Result<Option<FileStat>> {
        stat_path(self.checked_path(path)?)
    }

    /// The metadata of many documents. Opens the folder of consecutive ones only once.
    pub fn stat_all(&self, paths: &[DocPath]) -> Result<Vec<Option<FileStat>>> {
        let mut looks = Vec::with_capacity(paths.len());
        for beside in paths.chunk_by(|a, b| a.folders().last() == b.folders().last()) {
            let place = self.checked_path(&beside[0])?;
            // Relative to the open folder, which avoids resolving the whole path for each file.
            let folder = place.parent().and_then(|folder| File::open(folder).ok());
            for path in beside {
                looks.push(match &folder {
                    Some(folder) => {
                        stat_within(folder, path.name()).map_err(|error| match error {
                            Some(error) => io_error(
                                "reading the metadata of",
                                &self.root.join(path.as_str()),
                                error,
                            ),
                            None => Error::Link(self.root.join(path.as_str())),
                        })?
                    }
                    None => stat_path(self.root.join(path.as_str()))?,
                });
            }
        }
        Ok(looks)
    }

    /// The documents directly in a folder, with their metadata.
    pub fn list_folder(&self, folder: &str) -> Result<Vec<(DocPath, FileStat)>> {
        let place = self.root.join(folder);
        refuse_link(&place)?;
        let entries = match fs::read_dir(&place) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_error("reading", &place, error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| io_error("reading", &place, error))?;
            let Some(path) = entry
                .file_name()
                .to_str()
                .and_then(|name| format!("{folder}/{name}").parse::<DocPath>().ok())
            else {
                continue;
            };
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => found.push((path, file_stat(&metadata))),
                _ => {}
            }
        }
        Ok(found)
    }

    /// A number that changes whenever a file in these folders is changed, added or removed; with
    /// `true`, also below them.
    pub fn fingerprint(&self, folders: &[(&str, bool)]) -> Result<u64> {
        let mut seen = DefaultHasher::new();
        let mut open: Vec<(PathBuf, bool)> =
            folders.iter().map(|(folder, deep)| (self.root.join(folder), *deep)).collect();
        while let Some((place, deep)) = open.pop() {
            let entries = match fs::read_dir(&place) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(io_error("reading", &place, error)),
            };
            place.hash(&mut seen);
            for entry in entries {
                let entry = entry.map_err(|error| io_error("reading", &place, error))?;
                entry.file_name().hash(&mut seen);
                match entry.metadata() {
                    Ok(found) if found.is_file() => file_stat(&found).hash(&mut seen),
                    Ok(found) if found.is_dir() && deep => open.push((entry.path(), true)),
                    _ => {}
                }
            }
        }
        Ok(seen.finish())
    }

    /// Disk usage by part. Links are counted themselves, not followed.
    pub fn disk_usage(&self) -> Result<Vec<DiskUsage>> {
        let mut parts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let mut folders: Vec<(PathBuf, String)> = vec![(self.root.clone(), String::new())];
        while let Some((folder, part)) = folders.pop() {
            // A folder that disappears meanwhile counts as empty.
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let Ok(found) = entry.metadata() else { continue };
                // Parts of `memory` are listed one by one, because most of a vault is there. The
                // logs, one per day, are one part.
                let part = match part.as_str() {
                    "" if found.is_dir() => name,
                    "" => "settings".to_owned(),
                    "memory" if name.ends_with(".md") => "memory/logs".to_owned(),
                    "memory" => format!("memory/{name}"),
                    known => known.to_owned(),
                };
                match found.is_dir() {
                    true => folders.push((entry.path(), part)),
                    false => {
                        let (files, bytes) = parts.entry(part).or_default();
                        (*files, *bytes) = (*files + 1, *bytes + found.len());
                    }
                }
            }
        }
        Ok(parts
            .into_iter()
            .map(|(part, (files, bytes))| DiskUsage { part, files, bytes })
            .collect())
    }

    /// The pieces of a document at these offsets, in their order. Reads neighboring pieces at once.
    pub fn read_pieces(&self, path: &DocPath, pieces: &[(u64, usize)]) -> Result<Vec<Vec<u8>>> {
        let place = self.root.join(path.as_str());
        let Some(file) = self.open(path)? else {
            return Err(io_error("reading", &place, ErrorKind::NotFound.into()));
        };
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        order.sort_by_key(|&at| pieces[at].0);
        let mut found = vec![Vec::new(); pieces.len()];
        let mut stretch = Vec::new();
        let mut rest = order.as_slice();
        while let Some(&first) = rest.first() {
            let start = pieces[first].0;
            let (many, end) = read_span(rest.iter().map(|&at| pieces[at]));
            stretch.resize(usize::try_from(end - start).unwrap_or(usize::MAX), 0);
            file.read_exact_at(&mut stretch, start)
                .map_err(|error| io_error("reading", &place, error))?;
            let (near, further) = rest.split_at(many);
            if let [only] = near {
                found[*only] = std::mem::take(&mut stretch);
            } else {
                for &at in near {
                    let (offset, len) = pieces[at];
                    let from = usize::try_from(offset - start).unwrap_or(usize::MAX);
                    found[at].extend_from_slice(&stretch[from..from + len]);
                }
            }
            rest = further;
        }
        Ok(found)
    }

    /// The bytes after the last line break, and their offset. The last line must not be longer than
    /// a few megabytes.
    pub fn unterminated_line(&self, path: &DocPath) -> Result<Option<(u64, Vec<u8>)>> {
        let Some(mut file) = self.open(path)? else { return Ok(None) };
        let place = self.root.join(path.as_str());
        let failed = |error| io_error("reading", &place, error);
        let len = file.metadata().map_err(failed)?.len();
        if len == 0 || last_byte(&file, len).map_err(failed)? == b'\n' {
            return Ok(None);
        }
        let mut span = 64 * 1024;
        loop {
            let from = len.saturating_sub(span);
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(from)).map_err(failed)?;
            (&file).take(len - from).read_to_end(&mut bytes).map_err(failed)?;
            match memchr::memrchr(b'\n', &bytes) {
                Some(at) => return Ok(Some((from + at as u64 + 1, bytes.split_off(at + 1)))),
                None if from == 0 => return Ok(Some((0, bytes))),
                None => span *= 8,
            }
        }
    }

    /// The unterminated last line, once no program writes it any more: a program that appends in
    /// pieces, without our lock, gets half a second before its line counts as torn.
    pub fn torn_line(&self, lock: &WriteLock, path: &DocPath) -> Result<Option<(u64, Vec<u8>)>> {
        const MAX_WAITS: u32 = 5;
        for _ in 0..MAX_WAITS {
            let rested = match (self.stat(path)?, lock.file_system_time()) {
                (Some(look), Some(now)) => now.0 - look.mtime.0 > 1,
                _ => false,
            };
            if rested {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        self.unterminated_line(path)
    }

    /// Appends `bytes` in one write and flushes. Ends an incomplete last line first. Returns the
    /// offset of `bytes` and the file's metadata; no metadata if another program, which does not
    /// know our lock, appended at the same time. Then the index reads the file again instead of
    /// trusting this write.
    pub fn append(&self, lock: &WriteLock, path: &DocPath, bytes: &[u8]) -> Result<AppendedBytes> {
        for _ in 0..MAX_WRITE_ATTEMPTS {
            if let Some(placed) = self.try_append(lock, path, bytes)? {
                return Ok(placed);
            }
        }
        Err(Error::Conflict { what: path.to_string() })
    }

    /// One attempt to append; `None` if another program's write interfered. Then nothing remains of
    /// it.
    pub fn try_append(
        &self,
        lock: &WriteLock,
        path: &DocPath,
        bytes: &[u8],
    ) -> Result<Option<AppendedBytes>> {
        Ok(self.try_append_all(lock, &[(path, bytes)], true)?.pop().flatten())
    }

    /// Appends to many documents and flushes them together. On failure nothing remains of any
    /// append, with two exceptions: after a crash in the middle, or when one text must be written
    /// again because of another program's write and that fails, some documents have their text and
    /// others do not. Returns the same as [`Self::append`] for each text.
    pub fn append_many(
        &self,
        lock: &WriteLock,
        texts: &[(DocPath, Vec<u8>)],
    ) -> Result<Vec<AppendedBytes>> {
        let borrowed: Vec<(&DocPath, &[u8])> =
            texts.iter().map(|(path, text)| (path, text.as_slice())).collect();
        let placed = self.try_append_all(lock, &borrowed, texts.len() <= MAX_SINGLE_FLUSHES)?;
        let again = |((path, text), placed): (&(DocPath, Vec<u8>), Option<_>)| {
            placed.map_or_else(|| self.append(lock, path, text), Ok)
        };
        texts.iter().zip(placed).map(again).collect()
    }

    fn try_append_all(
        &self,
        _held: &WriteLock,
        texts: &[(&DocPath, &[u8])],
        one_by_one: bool,
    ) -> Result<Vec<Option<AppendedBytes>>> {
        let mut appends: Vec<PendingAppend<'_>> = Vec::with_capacity(texts.len());
        let mut placed = Vec::with_capacity(texts.len());
        let mut write_all = || -> Result<()> {
            // There may be more files than a process may have open.
            for some in texts.chunks(MAX_OPEN_FILES) {
                let mut files = Vec::with_capacity(some.len());
                for (path, text) in some {
                    let (file, append) = self.open_to_append(path, text, one_by_one)?;
                    appends.push(append);
                    files.push(file);
                    let (Some(append), Some(file)) = (appends.last_mut(), files.last_mut()) else {
                        continue;
                    };
                    append
                        .write(file)
                        .map_err(|error| io_error("writing", &append.place, error))?;
                }
                let own = &appends[appends.len() - files.len()..];
                if one_by_one {
                    own.iter().zip(&files).try_for_each(|(append, file)| {
                        file.sync_data().map_err(|error| io_error("writing", &append.place, error))
                    })?;
                } else {
                    self.flush_all(own, &files)?;
                }
                for (append, file) in own.iter().zip(&files) {
                    placed.push(
                        append
                            .locate(file)
                            .map_err(|error| io_error("writing", &append.place, error))?,
                    );
                }
            }
            Ok(())
        };
        let outcome = write_all();
        for (at, append) in appends.iter().enumerate() {
            // A failed append must not appear later.
            if outcome.is_err() || placed.get(at).is_some_and(Option::is_none) {
                self.roll_back(append);
            }
        }
        outcome.map(|()| placed)
    }

    /// Opens a document for an append. Flushes the folders of a new one first, unless everything is
    /// flushed together.
    fn open_to_append<'a>(
        &self,
        path: &DocPath,
        bytes: &'a [u8],
        with_folders: bool,
    ) -> Result<(File, PendingAppend<'a>)> {
        let place = self.checked_path(path)?;
        let mut options = OpenOptions::new();
        options.read(true).append(true).mode(0o600).custom_flags(nonblock());
        let mut is_new = false;
        let opened = match options.open(&place) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                is_new = true;
                self.make_folders(path)?;
                options.create(true).open(&place)
            }
            other => other,
        };
        let file = opened.map_err(|error| io_error("opening", &place, error))?;
        let failed = |error| io_error("writing", &place, error);
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(Error::NotAFile(place));
        }
        let before = found.len();
        if before == 0 {
            // New, or created by a process that died before it flushed the folders. Nothing is
            // written to the file before that, so a file with content has durable folders.
            if let Err(error) = if with_folders { self.flush_folders(path) } else { Ok(()) } {
                if is_new {
                    self.remove_empty_file(&place);
                }
                return Err(error);
            }
        }
        let is_unended = before > 0 && last_byte(&file, before).map_err(failed)? != b'\n';
        let whole =
            if is_unended { Cow::Owned([b"\n", bytes].concat()) } else { Cow::Borrowed(bytes) };
        Ok((
            file,
            PendingAppend {
                place,
                is_new,
                before,
                is_unended,
                bytes: whole,
                written: 0,
                parts: Vec::new(),
            },
        ))
    }

    /// Removes the bytes of a failed append. If that fails too, they remain as a torn tail, which
    /// the next opening moves to quarantine.
    fn roll_back(&self, append: &PendingAppend<'_>) {
        let opened =
            OpenOptions::new().read(true).write(true).custom_flags(nonblock()).open(&append.place);
        if let Ok(file) = opened {
            append.erase(&file);
        }
        if append.is_new {
            self.remove_empty_file(&append.place);
        }
    }

    /// Removes a file that this process created and left empty, unless another program wrote to it.
    fn remove_empty_file(&self, place: &Path) {
        let _ = self.remove_path_if(place, &Expected::Content(ContentVersion::of(Some(b""))));
    }

    /// Flushes files and their folders, with one call for the whole file system where one exists.
    fn flush_all(&self, appends: &[PendingAppend<'_>], files: &[File]) -> Result<()> {
        #[cfg(target_os = "linux")]
        {
            let _ = (appends, files);
            self.flush_file_system()
        }
        #[cfg(not(target_os = "linux"))]
        {
            for (append, file) in appends.iter().zip(files) {
                file.sync_all().map_err(|error| io_error("writing", &append.place, error))?;
                flush_folder(append.place.parent().unwrap_or(&self.root))?;
            }
            Ok(())
        }
    }

    #[cfg(target_os = "linux")]
    fn flush_file_system(&self) -> Result<()> {
        let root =
            File::open(&self.root).map_err(|error| io_error("flushing", &self.root, error))?;
        rustix::fs::syncfs(&root).map_err(|error| io_error("flushing", &self.root, error.into()))
    }

    #[cfg(not(target_os = "linux"))]
    fn flush_file_system(&self) -> Result<()> {
        Ok(())
    }

    /// Cuts off the end of a document, if it is still `tail` at offset `at`; false if another
    /// program wrote meanwhile.
    pub fn cut_tail(
        &self,
        _held: &WriteLock,
        path: &DocPath,
        at: u64,
        tail: &[u8],
    ) -> Result<bool> {
        let place = self.checked_path(path)?;
        let cut = || {
            let file =
                OpenOptions::new().read(true).write(true).custom_flags(nonblock()).open(&place)?;
            if !ends_with(&file, at, tail)? {
                return Ok(false);
            }
            file.set_len(at)?;
            file.sync_all()?;
            Ok(true)
        };
        cut().map_err(|error| io_error("mending", &place, error))
    }

    /// Replaces a document: writes a temporary file, flushes, renames, and flushes the folder.
    /// Unconditional, so only for files that people do not edit.
    pub fn replace(&self, lock: &WriteLock, path: &DocPath, bytes: &[u8]) -> Result<()> {
        let place = self.path_to_replace(path)?;
        self.write_private_file(lock, &place, bytes)
    }

    /// Replaces a document if its current state is `expected`; otherwise leaves it and fails with
    /// [`Error::Conflict`].
    pub fn replace_if(
        &self,
        lock: &WriteLock,
        path: &DocPath,
        bytes: &[u8],
        expected: &Expected,
    ) -> Result<()> {
        let place = self.path_to_replace(path)?;
        self.write_private_file_if(lock, &place, bytes, expected)
    }

    fn path_to_replace(&self, path: &DocPath) -> Result<PathBuf> {
        let place = self.checked_path(path)?;
        refuse_link(&place)?;
        self.make_folders(path)?;
        if !place.exists() {
            self.flush_folders(path)?;
        }
        Ok(place)
    }

    /// Replaces many documents with one flush. When this returns, all are replaced; after a crash
    /// each has its old or its new content.
    pub fn replace_many(&self, lock: &WriteLock, documents: &[(DocPath, Vec<u8>)]) -> Result<()> {
        if documents.len() <= MAX_SINGLE_FLUSHES {
            return documents.iter().try_for_each(|(path, bytes)| self.replace(lock, path, bytes));
        }
        let documents: Vec<(&DocPath, &[u8])> =
            documents.iter().map(|(path, bytes)| (path, bytes.as_slice())).collect();
        self.replace_with_temporaries(&documents, |temporary, place, _| {
            fs::rename(temporary, place)
                .map(|()| Placement::New)
                .map_err(|error| io_error("writing", place, error))
        })
        .map(|_| ())
    }

    /// Replaces each document whose state is as expected. Returns the positions of the others,
    /// which stay unchanged.
    pub fn replace_many_if(
        &self,
        lock: &WriteLock,
        documents: &[(&DocPath, &[u8], Expected)],
    ) -> Result<Vec<usize>> {
        if documents.len() <= MAX_SINGLE_FLUSHES {
            let mut changed = Vec::new();
            for (at, (path, bytes, expected)) in documents.iter().enumerate() {
                match self.replace_if(lock, path, bytes, expected) {
                    Err(Error::Conflict { .. }) => changed.push(at),
                    other => other?,
                }
            }
            return Ok(changed);
        }
        let texts: Vec<(&DocPath, &[u8])> =
            documents.iter().map(|(path, bytes, _)| (*path, *bytes)).collect();
        self.replace_with_temporaries(&texts, |temporary, place, at| {
            self.replace_path_if(temporary, place, &documents[at].2)
        })
    }

    /// Writes temporary files, flushes them together, moves each into place with `place_one`, and
    /// flushes the folders.
    fn replace_with_temporaries(
        &self,
        documents: &[(&DocPath, &[u8])],
        place_one: impl Fn(&Path, &Path, usize) -> Result<Placement>,
    ) -> Result<Vec<usize>> {
        let folder = self.private("tmp");
        self.make_folder(&folder)?;
        let stem = temporary_name();
        let mut made: Vec<(PathBuf, PathBuf)> = Vec::with_capacity(documents.len());
        let mut placed: Vec<Placement> = Vec::with_capacity(documents.len());
        let written = documents.iter().enumerate().try_for_each(|(at, (path, bytes))| {
            let place = self.checked_path(path)?;
            refuse_link(&place)?;
            self.make_folders(path)?;
            let temporary = folder.join(format!("{stem}.{at:08x}"));
            let _ = fs::remove_file(&temporary);
            made.push((temporary.clone(), place.clone()));
            // Closed again at once: there may be more files than a process may have open.
            let written = (|| {
                let mut file = create_new(&temporary)?;
                write_whole(&mut file, bytes)?;
                if !cfg!(target_os = "linux") {
                    file.sync_all()?;
                }
                if file.metadata()?.len() != bytes.len() as u64 {
                    return Err(io::Error::new(
                        ErrorKind::WriteZero,
                        "only a part of the data reached the file",
                    ));
                }
                Ok(())
            })();
            written.map_err(|error| io_error("writing", &place, error))
        });
        let outcome = written.and_then(|()| self.flush_file_system()).and_then(|()| {
            made.iter().enumerate().try_for_each(|(at, (temporary, place))| {
                placed.push(place_one(temporary, place, at)?);
                Ok(())
            })
        });
        if outcome.is_err() {
            made.iter()
                .skip(placed.len())
                .for_each(|(temporary, _)| drop(fs::remove_file(temporary)));
        }
        let outcome = outcome.and_then(|()| {
            self.flush_file_system()?;
            if cfg!(target_os = "linux") {
                return Ok(());
            }
            let folders: HashSet<&Path> =
                made.iter().filter_map(|(_, place)| place.parent()).collect();
            folders.into_iter().try_for_each(flush_folder)
        });
        let mut changed = Vec::new();
        for (at, (placed, (_, place))) in placed.into_iter().zip(&made).enumerate() {
            if !self.finish_replacement(placed, place)? {
                changed.push(at);
            }
        }
        outcome.map(|()| changed)
    }

    /// Creates a flushed temporary file. It is locked while it is open, which shows others that its
    /// writer lives.
    fn write_temporary(&self, place: &Path, bytes: &[u8]) -> Result<(PathBuf, File)> {
        let folder = self.private("tmp");
        self.make_folder(&folder)?;
        let failed = |error| io_error("writing", place, error);
        for _ in 0..MAX_NAME_ATTEMPTS {
            let temporary = folder.join(temporary_name());
            let mut file = match create_new(&temporary) {
                // Left by a process that died, or a process of another container has the same pid.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                other => other.map_err(failed)?,
            };
            // A cleanup holds it for a moment at most; if it was faster than our lock, the file is
            // gone.
            let _ = file.lock();
            if file.metadata().map_err(failed)?.nlink() == 0 {
                continue;
            }
            let written = write_whole(&mut file, bytes)
                .and_then(|()| file.sync_all())
                .and_then(|()| file.metadata());
            match written {
                Ok(found) if found.len() == bytes.len() as u64 => return Ok((temporary, file)),
                other => {
                    let _ = fs::remove_file(&temporary);
                    let short = || {
                        io::Error::new(
                            ErrorKind::WriteZero,
                            "only a part of the data reached the file",
                        )
                    };
                    return Err(failed(other.err().unwrap_or_else(short)));
                }
            }
        }
        Err(failed(ErrorKind::AlreadyExists.into()))
    }

    /// Moves a flushed temporary file into place, if the current file is as expected. The two files
    /// are swapped atomically and the old one is checked afterwards, so that what another program
    /// saved at the last moment can be put back.
    fn replace_path_if(
        &self,
        temporary: &Path,
        place: &Path,
        expected: &Expected,
    ) -> Result<Placement> {
        let failed = |error| io_error("writing", place, error);
        let known = match expected.check(place)? {
            CheckedPath::Other => {
                let _ = fs::remove_file(temporary);
                return Ok(Placement::Refused);
            }
            CheckedPath::Absent => {
                let is_placed = rename_new(temporary, place).map_err(failed)?;
                if !is_placed {
                    let _ = fs::remove_file(temporary);
                }
                return Ok(if is_placed { Placement::New } else { Placement::Refused });
            }
            CheckedPath::Present(_, look) => look,
        };
        let Some(own) = stat_path(temporary.to_owned())? else {
            return Err(failed(ErrorKind::NotFound.into()));
        };
        // From this name the next opening learns, if this process dies now, which of the two files
        // may be deleted.
        let aside = exchange_name(temporary, known, own);
        fs::rename(temporary, &aside).map_err(failed)?;
        match swap_paths(&aside, place) {
            Ok(()) => {}
            // The file was removed.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let _ = fs::remove_file(&aside);
                return Ok(Placement::Refused);
            }
            // The file system has no atomic swap; the file was checked a moment ago.
            Err(_) => return fs::rename(&aside, place).map(|()| Placement::New).map_err(failed),
        }
        match expected.check(&aside)? {
            CheckedPath::Present(file, look) => {
                Ok(Placement::Exchanged { aside, old: (file, look), own })
            }
            CheckedPath::Absent | CheckedPath::Other => {
                self.put_back(&aside, place, own)?;
                Ok(Placement::Refused)
            }
        }
    }

    /// Completes a replacement after its folder was flushed: deletes the old file, unless a program
    /// that had it open wrote to it meanwhile; then it is put back. False if the path keeps, or
    /// gets back, what another program wrote.
    fn finish_replacement(&self, placed: Placement, place: &Path) -> Result<bool> {
        match placed {
            Placement::New => Ok(true),
            Placement::Refused => Ok(false),
            Placement::Exchanged { aside, old: (file, known), own } => {
                if file.metadata().is_ok_and(|found| file_stat(&found) == known) {
                    let _ = fs::remove_file(&aside);
                    return Ok(true);
                }
                self.put_back(&aside, place, own)?;
                Ok(false)
            }
        }
    }

    /// Puts another program's file back to its path, where ours (`own`) is now. Another program may
    /// have read ours and save over what is put back, so that file keeps a second name in
    /// quarantine.
    fn put_back(&self, aside: &Path, place: &Path, own: FileStat) -> Result<()> {
        let failed = |error| io_error("writing", place, error);
        let second_name = self.quarantine_name(place)?;
        // Not every file system has links.
        let has_second_name = fs::hard_link(aside, &second_name).is_ok();
        match swap_paths(aside, place) {
            Ok(()) if stat_path(aside.to_owned())? == Some(own) => {
                let _ = fs::remove_file(aside);
            }
            Ok(()) => {
                // It was saved once more: the newest version stays, and the earlier one is not
                // lost.
                swap_paths(aside, place).map_err(failed)?;
                if has_second_name && is_same_file(aside, &second_name) {
                    let _ = fs::remove_file(aside);
                } else {
                    self.quarantine_file(aside, place)?;
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if !rename_new(aside, place).map_err(failed)? {
                    self.quarantine_file(aside, place)?;
                }
            }
            Err(error) => return Err(failed(error)),
        }
        if has_second_name {
            flush_folder(&self.private("quarantine"))?;
        }
        flush_folder(place.parent().unwrap_or(&self.root))
    }

    /// Moves a file that was saved at `place` to quarantine.
    fn quarantine_file(&self, file: &Path, place: &Path) -> Result<PathBuf> {
        let to = self.quarantine_name(place)?;
        fs::rename(file, &to).map_err(|error| io_error("moving", file, error))?;
        flush_folder(&self.private("quarantine"))?;
        Ok(to)
    }

    /// A new name in quarantine for what was saved at `place`.
    fn quarantine_name(&self, place: &Path) -> Result<PathBuf> {
        let folder = self.private("quarantine");
        self.make_folder(&folder)?;
        let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(folder.join(format!("{name}.saved.{}", temporary_name())))
    }

    /// Flushes every folder from the vault down to that of the document. The upper ones need it
    /// only once.
    fn flush_folders(&self, path: &DocPath) -> Result<()> {
        let places: Vec<PathBuf> = std::iter::once(self.root.clone())
            .chain(path.folders().map(|folder| self.root.join(folder)))
            .collect();
        let own = places.len() - 1;
        for (at, place) in places.iter().enumerate() {
            // The entry of a folder is durable once its parent was flushed with it.
            let below_is_safe = at < own
                && self
                    .flushed_folders
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .contains(&places[at + 1]);
            if !below_is_safe {
                flush_folder(place)?;
            }
            if at < own {
                self.flushed_folders
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(places[at + 1].clone());
            }
        }
        Ok(())
    }

    fn write_private_file(&self, _held: &WriteLock, place: &Path, bytes: &[u8]) -> Result<()> {
        let (temporary, _locked) = self.write_temporary(place, bytes)?;
        if let Err(error) = fs::rename(&temporary, place) {
            let _ = fs::remove_file(&temporary);
            return Err(io_error("writing", place, error));
        }
        flush_folder(place.parent().unwrap_or(&self.root))
    }

    fn write_private_file_if(
        &self,
        _held: &WriteLock,
        place: &Path,
        bytes: &[u8],
        expected: &Expected,
    ) -> Result<()> {
        let moved = || Error::Conflict {
            what: place.strip_prefix(&self.root).unwrap_or(place).display().to_string(),
        };
        if let CheckedPath::Other = expected.check(place)? {
            return Err(moved());
        }
        let (temporary, _locked) = self.write_temporary(place, bytes)?;
        let placed = self
            .replace_path_if(&temporary, place, expected)
            .inspect_err(|_| drop(fs::remove_file(&temporary)))?;
        if !matches!(placed, Placement::Refused) {
            flush_folder(place.parent().unwrap_or(&self.root))?;
        }
        if self.finish_replacement(placed, place)? { Ok(()) } else { Err(moved()) }
    }

    /// Saves damaged bytes under a name that tells their origin.
    pub fn quarantine_bytes(
        &self,
        lock: &WriteLock,
        path: &DocPath,
        at: u64,
        bytes: &[u8],
    ) -> Result<PathBuf> {
        let folder = self.private("quarantine");
        self.make_folder(&folder)?;
        let name = format!("{}.{at}.{}", path.name(), Hash::of(bytes).short_hex());
        let place = folder.join(name);
        self.write_private_file(lock, &place, bytes)?;
        Ok(place)
    }

    /// A cached model answer.
    pub fn read_answer(&self, question: Hash) -> Result<Option<Vec<u8>>> {
        let place = self.private(ANSWERS_DIR).join(question.to_string());
        match OpenOptions::new().read(true).custom_flags(nofollow()).open(&place) {
            Ok(mut file) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).map_err(|error| io_error("reading", &place, error))?;
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("reading", &place, error)),
        }
    }

    /// Caches a model answer. Drops the older half when there are very many.
    pub fn write_answer(&self, lock: &WriteLock, question: Hash, answer: &[u8]) -> Result<()> {
        const MAX_ANSWERS: usize = 2_000;
        let folder = self.private(ANSWERS_DIR);
        self.make_folder(&folder)?;
        let mut kept: Vec<(i64, PathBuf)> = fs::read_dir(&folder)
            .map_err(|error| io_error("reading", &folder, error))?
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.mtime(), entry.path())))
            .collect();
        if kept.len() >= MAX_ANSWERS {
            kept.sort();
            kept.iter().take(MAX_ANSWERS / 2).for_each(|(_, old)| drop(fs::remove_file(old)));
        }
        self.write_private_file(lock, &folder.join(question.to_string()), answer)
    }

    /// The path of a note, after checking that no component is a link.
    fn note_path(&self, name: &DocPath) -> Result<PathBuf> {
        let mut place = self.private(NOTES_DIR);
        refuse_link(&place)?;
        for folder in name.folders() {
            refuse_link(&place.join(folder))?;
        }
        place.push(name.as_str());
        Ok(place)
    }

    fn note_options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.mode(0o600).custom_flags(nonblock());
        options
    }

    /// Reads a note.
    pub fn read_note(&self, name: &DocPath) -> Result<Option<Vec<u8>>> {
        let place = self.note_path(name)?;
        match self.note_options().read(true).open(&place) {
            Ok(mut file) => {
                if file.metadata().is_ok_and(|found| !found.is_file()) {
                    return Err(Error::NotAFile(place));
                }
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).map_err(|error| io_error("reading", &place, error))?;
                Ok(Some(bytes))
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(None)
            }
            Err(error) => Err(io_error("reading", &place, error)),
        }
    }

    /// Replaces a note atomically, without a flush.
    pub fn put_note(&self, name: &DocPath, bytes: &[u8]) -> Result<()> {
        let place = self.note_path(name)?;
        let folder = place.parent().unwrap_or(&self.root).to_owned();
        let temporary = folder.join(format!("{PARTIAL_NOTE_PREFIX}{}", temporary_name()));
        let write = || {
            let mut file =
                self.note_options().write(true).create(true).truncate(true).open(&temporary)?;
            write_whole(&mut file, bytes)
        };
        let written = match write() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.make_folder(&folder)?;
                write()
            }
            other => other,
        };
        written.and_then(|()| fs::rename(&temporary, &place)).map_err(|error| {
            let _ = fs::remove_file(&temporary);
            io_error("writing", &place, error)
        })
    }

    /// Appends a line to a note in one write, without the vault's lock; flushes it if `flush`. A
    /// note longer than `most` bytes loses the older half of its lines, but none that is added
    /// meanwhile.
    pub fn append_note(&self, name: &DocPath, line: &[u8], most: u64, flush: bool) -> Result<()> {
        let length = self.append_to_note(name, &[line, b"\n"].concat(), flush)?;
        if length > most
            && let Some(_alone) = self.try_lock_named("notes.lock")?
        {
            self.trim_note(name, usize::try_from(most / 2).unwrap_or(usize::MAX))?;
        }
        Ok(())
    }

    /// Appends to a note and returns its length.
    fn append_to_note(&self, name: &DocPath, bytes: &[u8], flush: bool) -> Result<u64> {
        let place = self.note_path(name)?;
        let failed = |error| io_error("writing", &place, error);
        let open = || self.note_options().append(true).create(true).open(&place);
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let mut file = match open() {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.make_folder(place.parent().unwrap_or(&self.root))?;
                    open()
                }
                other => other,
            }
            .map_err(failed)?;
            if !file.metadata().is_ok_and(|found| found.is_file()) {
                return Err(Error::NotAFile(place));
            }
            // The shared lock keeps others from replacing the note meanwhile. Where files cannot be
            // locked, the check below finds a replacement.
            let is_locked = lock_soon(|| file.try_lock_shared()) == Some(true);
            if is_locked && file.metadata().map_err(failed)?.nlink() == 0 {
                continue;
            }
            write_whole(&mut file, bytes).map_err(failed)?;
            let found = file.metadata().map_err(failed)?;
            if flush {
                file.sync_data().map_err(failed)?;
                // The folders, if the note is new.
                if found.len() == bytes.len() as u64 {
                    flush_folder(place.parent().unwrap_or(&self.root))?;
                }
            }
            if found.nlink() > 0 {
                return Ok(found.len());
            }
        }
        Err(Error::Conflict { what: name.to_string() })
    }

    /// Drops the oldest lines of a note and keeps about `bytes`.
    fn trim_note(&self, name: &DocPath, bytes: usize) -> Result<()> {
        let place = self.note_path(name)?;
        let failed = |error| io_error("reading", &place, error);
        let mut file = self.note_options().read(true).open(&place).map_err(failed)?;
        // The process that appends now will trim it.
        if lock_soon(|| file.try_lock()) == Some(false) {
            return Ok(());
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let from = text.len().saturating_sub(bytes);
        let from = memchr::memchr(b'\n', &text[from..]).map_or(text.len(), |at| from + at + 1);
        self.put_note(name, &text[from..])?;
        // Lines appended without a lock until the file was replaced. Later writers notice the
        // replacement.
        let mut late = Vec::new();
        file.read_to_end(&mut late).map_err(failed)?;
        if !late.is_empty() {
            self.append_to_note(name, &late, true)?;
        }
        Ok(())
    }

    /// The notes of a folder with the time of the last write of each, in seconds since 1970.
    /// Removes what writers that died more than an hour ago left.
    pub fn notes(&self, folder: &DocPath) -> Result<Vec<(DocPath, i64)>> {
        let place = self.note_path(folder)?;
        let entries = match fs::read_dir(&place) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_error("reading", &place, error)),
        };
        let (mut found, mut newest, mut unfinished) = (Vec::new(), 0, Vec::new());
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            newest = newest.max(metadata.mtime());
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            if name.starts_with(PARTIAL_NOTE_PREFIX) {
                unfinished.push((entry.path(), metadata.mtime()));
            } else if metadata.is_file()
                && let Ok(path) = format!("{folder}/{name}").parse()
            {
                found.push((path, metadata.mtime()));
            }
        }
        for (old, _) in unfinished.into_iter().filter(|(_, at)| newest - at > 3_600) {
            let _ = fs::remove_file(old);
        }
        found.sort();
        Ok(found)
    }

    /// Removes a note.
    pub fn remove_note(&self, name: &DocPath) -> Result<()> {
        let place = self.note_path(name)?;
        match fs::remove_file(&place) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(io_error("removing", &place, error))
            }
            _ => Ok(()),
        }
    }

    /// Reads the marker key.
    pub fn read_marker_key(&self) -> Result<Option<MarkerKey>> {
        let place = self.private(MARKER_KEY);
        match self.note_options().read(true).open(&place) {
            Ok(mut file) => {
                let mut text = Vec::new();
                file.read_to_end(&mut text).map_err(|error| io_error("reading", &place, error))?;
                MarkerKey::from_hex(&text).map(Some).ok_or(Error::InvalidMarkerKey(place))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("reading", &place, error)),
        }
    }

    /// Sets the marker key; without `replace`, the first one that was set stays. Only the owner can
    /// read the file.
    pub fn set_marker_key(&self, key: &MarkerKey, replace: bool) -> Result<MarkerKey> {
        // A lock of its own: opening the vault must not wait for a writer.
        let held = self.lock_named("key.lock")?;
        match self.read_marker_key() {
            Ok(Some(known)) if !replace => return Ok(known),
            Ok(_) => {}
            Err(Error::InvalidMarkerKey(_)) if replace => {}
            Err(error) => return Err(error),
        }
        self.write_private_file(
            &held,
            &self.private(MARKER_KEY),
            format!("{}\n", key.to_hex()).as_bytes(),
        )?;
        Ok(key.clone())
    }

    /// Removes a document.
    pub fn remove(&self, _held: &WriteLock, path: &DocPath) -> Result<()> {
        let place = self.checked_path(path)?;
        match fs::remove_file(&place) {
            Ok(()) => {
                flush_folder(place.parent().unwrap_or(&self.root))?;
                self.remove_empty_folders(path);
                Ok(())
            }
            Err(error)
                if error.kind() == ErrorKind::NotFound
                    || error.kind() == ErrorKind::NotADirectory =>
            {
                Ok(())
            }
            Err(error) => Err(io_error("removing", &place, error)),
        }
    }

    /// Removes a document if its state is as expected; otherwise leaves it and fails with
    /// [`Error::Conflict`].
    pub fn remove_if(&self, _held: &WriteLock, path: &DocPath, expected: &Expected) -> Result<()> {
        let place = self.checked_path(path)?;
        if !self.remove_path_if(&place, expected)? {
            return Err(Error::Conflict { what: path.to_string() });
        }
        self.remove_empty_folders(path);
        Ok(())
    }

    /// Removes folders that are now empty, except the top-level ones.
    fn remove_empty_folders(&self, path: &DocPath) {
        let folders: Vec<&str> = path.folders().skip(1).collect();
        for folder in folders.iter().rev() {
            let place = self.root.join(folder);
            self.flushed_folders.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
            if fs::remove_dir(&place).is_err() {
                break;
            }
        }
    }

    /// Removes a file if its state is as expected: moves it away, checks it, and puts it back if it
    /// differs.
    fn remove_path_if(&self, place: &Path, expected: &Expected) -> Result<bool> {
        let known = match expected.check(place)? {
            CheckedPath::Other => return Ok(false),
            CheckedPath::Absent => return Ok(true),
            CheckedPath::Present(_, look) => look,
        };
        let folder = self.private("tmp");
        self.make_folder(&folder)?;
        let aside = exchange_name(&folder.join(temporary_name()), known, known);
        let failed = |error| io_error("removing", place, error);
        match fs::rename(place, &aside) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            other => other.map_err(failed)?,
        }
        let is_expected = match expected.check(&aside)? {
            CheckedPath::Present(file, look_then) => {
                flush_folder(place.parent().unwrap_or(&self.root))?;
                file.metadata().is_ok_and(|found| file_stat(&found) == look_then)
            }
            CheckedPath::Absent | CheckedPath::Other => false,
        };
        if is_expected {
            let _ = fs::remove_file(&aside);
            return Ok(true);
        }
        if !rename_new(&aside, place).map_err(failed)? {
            self.quarantine_file(&aside, place)?;
        }
        flush_folder(place.parent().unwrap_or(&self.root))?;
        Ok(false)
    }

    /// Removes an empty folder.
    pub fn remove_folder(&self, _held: &WriteLock, path: &DocPath) -> Result<()> {
        let place = self.checked_path(path)?;
        refuse_link(&place)?;
        match fs::remove_dir(&place) {
            Ok(()) => flush_folder(place.parent().unwrap_or(&self.root)),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(io_error("removing", &place, error)),
        }
    }

    /// Removes temporary files of dead writers. Returns the new locations of files that another
    /// program had saved just when the writer died.
    pub fn remove_stale_files(&self, _held: &WriteLock) -> Vec<PathBuf> {
        let mut rescued = Vec::new();
        // What `put_back` gave a second name is still at its path.
        for entry in fs::read_dir(self.private("quarantine")).into_iter().flatten().flatten() {
            let is_saved = entry.file_name().to_string_lossy().contains(".saved.");
            if is_saved && entry.metadata().is_ok_and(|found| found.is_file() && found.nlink() > 1)
            {
                let _ = fs::remove_file(entry.path());
            }
        }
        for file in self.temporary_files() {
            // Keep the lock until the file is gone, so that no writer reuses it.
            let Some(_locked) = lock_if_stale(&file) else { continue };
            let marks = file.extension().and_then(|marks| marks.to_str()?.split_once('-'));
            let is_known = match (marks, stat_path(file.clone())) {
                (Some((known, own)), Ok(Some(look))) => {
                    [known, own].contains(&format!("{:016x}", look.as_number()).as_str())
                }
                _ => true,
            };
            if is_known {
                let _ = fs::remove_file(file);
            } else {
                rescued.extend(self.quarantine_file(&file, &file));
            }
        }
        rescued
    }

    /// Whether there are temporary files without a living writer. Files of a multi-file write and
    /// of a swap belong to the process with the vault's lock; only its holder may count them as
    /// stale.
    pub fn has_stale_files(&self) -> bool {
        self.temporary_files().iter().any(|file| lock_if_stale(file).is_some())
    }

    /// The existing temporary files: regular files with names that this module gives.
    fn temporary_files(&self) -> Vec<PathBuf> {
        let Ok(found) = fs::read_dir(self.private("tmp")) else { return Vec::new() };
        let is_hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
        let ours = |name: &str| {
            let (stem, rest) = name.split_once('.').unwrap_or((name, ""));
            let (process, number) = stem.split_once('-').unwrap_or_default();
            let is_numbered = !process.is_empty() && process.bytes().all(|b| b.is_ascii_digit());
            is_numbered && number.len() == 8 && is_hex(number) && rest.split('-').all(is_hex)
        };
        found
            .flatten()
            .filter(|entry| {
                entry.file_type().is_ok_and(|kind| kind.is_file())
                    && entry.file_name().to_str().is_some_and(ours)
            })
            .map(|entry| entry.path())
            .collect()
    }

    /// Removes the index and its companions, which can be rebuilt. Companions first: a process that
    /// opens the index in between finds an older state, never a new index with an old log.
    pub fn remove_index(&self, path: &Path) {
        for suffix in ["-wal", "-shm", "-journal", ""] {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            let name = PathBuf::from(name);
            let _ = if name.is_dir() { fs::remove_dir_all(&name) } else { fs::remove_file(&name) };
        }
    }

    /// Moves a complete new repository into place.
    pub fn install_repository(&self, made: &Path) -> Result<()> {
        let place = self.root.join(".git");
        fs::rename(made, &place).map_err(|error| io_error("making", &place, error))?;
        flush_folder(&self.root)
    }

    /// Replaces a small file of the repository, flushed.
    pub fn write_git_file(&self, place: &Path, bytes: &[u8]) -> Result<()> {
        let folder = place.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder).map_err(|error| io_error("making", folder, error))?;
        refuse_link(place)?;
        let temporary = folder.join(temporary_name());
        let written = (|| {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .custom_flags(nofollow())
                .open(&temporary)?;
            write_whole(&mut file, bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, place)
        })();
        if let Err(error) = written {
            let _ = fs::remove_file(&temporary);
            return Err(io_error("writing", place, error));
        }
        flush_folder(folder)
    }

    /// Removes a file of the repository, if it exists.
    pub fn remove_git_file(&self, place: &Path) -> Result<()> {
        match fs::remove_file(place) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(io_error("removing", place, error))
            }
            _ => Ok(()),
        }
    }

    /// Reads a journal, a private file that records the progress of a change to several files;
    /// `None` if there is none.
    pub fn read_journal(&self, name: &str) -> Result<Option<String>> {
        let place = self.private(name);
        refuse_link(&place)?;
        match fs::read_to_string(&place) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("reading", &place, error)),
        }
    }

    /// Writes a journal, flushed.
    pub fn write_journal(&self, lock: &WriteLock, name: &str, text: &str) -> Result<()> {
        self.make_folder(&self.root.join(PRIVATE))?;
        let place = self.private(name);
        refuse_link(&place)?;
        self.write_private_file(lock, &place, text.as_bytes())
    }

    /// Removes a journal, flushed.
    pub fn remove_journal(&self, lock: &WriteLock, name: &str) -> Result<()> {
        self.remove_path(lock, &self.private(name))
    }

    /// Creates a temporary file for another program to read.
    pub fn create_temporary(&self, _held: &WriteLock, bytes: &[u8]) -> Result<PathBuf> {
        let folder = self.private("tmp");
        self.make_folder(&folder)?;
        let place = folder.join(temporary_name());
        let written = create_new(&place).and_then(|mut file| write_whole(&mut file, bytes));
        written.map_err(|error| io_error("writing", &place, error))?;
        Ok(place)
    }

    /// Removes a folder that icecore created. Tries again, because a program that is ending may
    /// still write to it.
    pub fn remove_own_folder(&self, folder: &Path) -> Result<()> {
        const MAX_TRIES: u32 = 20;
        refuse_link(folder)?;
        for _ in 0..MAX_TRIES {
            match fs::remove_dir_all(folder) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                    std::thread::sleep(RELEASE_PAUSE * 5)
                }
                Err(error) => return Err(io_error("removing", folder, error)),
            }
        }
        Err(io_error("removing", folder, ErrorKind::DirectoryNotEmpty.into()))
    }

    /// Creates an empty file that only its owner can read, if there is none; SQLite would make it
    /// readable for all.
    pub fn make_private_file(&self, path: &Path) {
        let _ = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(nofollow())
            .open(path);
    }

    /// Removes lock files of a git that died. No git of ours runs: each holds the vault's lock
    /// while it lives, and we hold that lock. A person's own git is waited for. Where a running git
    /// may be invisible, only a repair removes its lock, once it is old.
    pub fn remove_stale_git_locks(
        &self,
        write_lock: &WriteLock,
        is_repair: bool,
    ) -> Result<Vec<PathBuf>> {
        const MAX_WAITS: u32 = 40;
        let mut removed = Vec::new();
        for lock in self.git_locks() {
            let mut waits = 0;
            while let Some(found) = stat_path(lock.clone())? {
                let age = write_lock
                    .file_system_time()
                    .map(|now| now.0 - found.mtime.0)
                    .filter(|age| *age >= 0);
                if age.is_some_and(|age| is_lock_stale(age, is_git_at_work(&self.root), is_repair))
                {
                    self.remove_git_file(&lock)?;
                    removed.push(lock);
                    break;
                }
                if waits == MAX_WAITS {
                    return Err(Error::GitAtWork { lock });
                }
                waits += 1;
                std::thread::sleep(RELEASE_PAUSE * 10);
            }
        }
        Ok(removed)
    }

    /// The lock files beside the repository's own files and those of its branches.
    fn git_locks(&self) -> Vec<PathBuf> {
        let git = self.root.join(".git");
        let mut found = Vec::new();
        let mut folders = vec![git.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() && (folder != git || name == "refs") => {
                        folders.push(entry.path())
                    }
                    Ok(kind) if kind.is_file() && name.ends_with(".lock") => {
                        found.push(entry.path())
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// The documents below a folder, sorted. Skips hidden files and folders and names that no
    /// document path can have.
    pub fn documents(&self, under: &str) -> Result<Vec<DocPath>> {
        let mut found = Vec::new();
        if let Ok(folder) = under.trim_end_matches('/').parse::<DocPath>() {
            refuse_link(&self.checked_path(&folder)?)?;
        }
        let mut folders = vec![under.trim_end_matches('/').to_owned()];
        while let Some(folder) = folders.pop() {
            let place = self.root.join(&folder);
            let entries = match fs::read_dir(&place) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(io_error("reading", &place, error)),
            };
            for entry in entries {
                let entry = entry.map_err(|error| io_error("reading", &place, error))?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                let Ok(document) = path.parse::<DocPath>() else { continue };
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(path),
                    Ok(kind) if kind.is_file() => found.push(document),
                    _ => {}
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// All files of the vault with their paths, hidden and private ones included, sorted. Does not
    /// follow links and skips nested vaults and repositories.
    pub fn all_files(&self) -> Result<Vec<(String, PathBuf)>> {
        let mut found = Vec::new();
        let mut folders = vec![(String::new(), self.root.clone())];
        while let Some((name, place)) = folders.pop() {
            let entries = match fs::read_dir(&place) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(io_error("reading", &place, error)),
            };
            for entry in entries {
                let entry = entry.map_err(|error| io_error("reading", &place, error))?;
                let file = entry.file_name().to_string_lossy().into_owned();
                let path = if name.is_empty() { file.clone() } else { format!("{name}/{file}") };
                match entry.file_type() {
                    Ok(kind)
                        if kind.is_dir()
                            && file != ".git"
                            && !entry.path().join(CONFIG).exists() =>
                    {
                        folders.push((path, entry.path()))
                    }
                    Ok(kind) if kind.is_file() => found.push((path, entry.path())),
                    _ => {}
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// The bytes of a file from `all_files`; `None` if it is gone.
    pub fn read_path(&self, place: &Path) -> Result<Option<Vec<u8>>> {
        match fs::read(place) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => read.map(Some).map_err(|error| io_error("reading", place, error)),
        }
    }

    /// Replaces a file atomically, if its content is still `known`.
    pub fn replace_path(
        &self,
        lock: &WriteLock,
        place: &Path,
        bytes: &[u8],
        known: &[u8],
    ) -> Result<()> {
        refuse_link(place)?;
        self.write_private_file_if(
            lock,
            place,
            bytes,
            &Expected::Content(ContentVersion::of(Some(known))),
        )
    }

    /// Removes a file, if its content is still `known`.
    pub fn remove_path_with(&self, _held: &WriteLock, place: &Path, known: &[u8]) -> Result<()> {
        if !self.remove_path_if(place, &Expected::Content(ContentVersion::of(Some(known))))? {
            return Err(Error::Conflict {
                what: place.strip_prefix(&self.root).unwrap_or(place).display().to_string(),
            });
        }
        self.remove_empty_folders_above(place)
    }

    /// Removes a file, and its folders if they are empty then; top-level folders stay.
    pub fn remove_path(&self, _held: &WriteLock, place: &Path) -> Result<()> {
        match fs::remove_file(place) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(io_error("removing", place, error))
            }
            _ => self.remove_empty_folders_above(place),
        }
    }

    fn remove_empty_folders_above(&self, place: &Path) -> Result<()> {
        let above = place.ancestors().skip(1).take_while(|folder| {
            folder.parent().is_some_and(|parent| parent != self.root && *folder != self.root)
        });
        let mut last = place.parent().unwrap_or(&self.root);
        for folder in above {
            self.flushed_folders.lock().unwrap_or_else(PoisonError::into_inner).remove(folder);
            if fs::remove_dir(folder).is_err() {
                break;
            }
            last = folder.parent().unwrap_or(&self.root);
        }
        flush_folder(last)
    }

    /// Replaces the repository by a new one, atomically where the system can; the old one then has
    /// the new one's path. Files that a person added are copied first, so that the old repository
    /// is complete until then.
    pub fn swap_repository(&self, made: &Path) -> Result<()> {
        let place = self.root.join(".git");
        for name in ["config", "description", "hooks", "info"] {
            copy_over(&place.join(name), &made.join(name))?;
        }
        flush_folder(made)?;
        if swap_paths(made, &place).is_err() {
            let aside = made.with_extension(OLD_REPOSITORY_SUFFIX);
            fs::rename(&place, &aside)
                .and_then(|()| fs::rename(made, &place))
                .map_err(|error| io_error("making", &place, error))?;
        }
        flush_folder(&self.root)
    }

    /// Whether a process died between the two steps of a repository swap.
    pub fn has_lost_repository(&self, made: &Path) -> bool {
        self.root.join(".git").symlink_metadata().is_err()
            && made.with_extension(OLD_REPOSITORY_SUFFIX).is_dir()
    }

    /// Restores the old repository.
    pub fn restore_repository(&self, _held: &WriteLock, made: &Path) -> Result<()> {
        if !self.has_lost_repository(made) {
            return Ok(());
        }
        let place = self.root.join(".git");
        fs::rename(made.with_extension(OLD_REPOSITORY_SUFFIX), &place)
            .map_err(|error| io_error("making", &place, error))?;
        flush_folder(&self.root)
    }

    /// Creates the folder of a new vault.
    pub fn make_root(&self) -> Result<()> {
        self.make_folder(&self.root)
    }

    fn make_folders(&self, path: &DocPath) -> Result<()> {
        path.folders().try_for_each(|folder| self.make_folder(&self.root.join(folder)))
    }

    /// Creates a folder with its missing parents, and flushes the parent of each new folder.
    pub fn make_folder(&self, folder: &Path) -> Result<()> {
        match DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => flush_folder(folder.parent().unwrap_or(folder)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // The vault itself may be reached through a link; nothing inside it may.
                let link = folder != self.root
                    && fs::symlink_metadata(folder)
                        .is_ok_and(|found| found.file_type().is_symlink());
                if link { Err(Error::Link(folder.to_owned())) } else { Ok(()) }
            }
            Err(error) => match folder.parent() {
                // A parent is missing too; if none is, the system has another reason.
                Some(above)
                    if error.kind() == ErrorKind::NotFound
                        && !above.as_os_str().is_empty()
                        && !above.exists() =>
                {
                    self.make_folder(above)?;
                    self.make_folder(folder)
                }
                _ => Err(io_error("creating the folder", folder, error)),
            },
        }
    }
}

/// Copies a file, a link or a folder with its content, flushed. Replaces what was there.
fn copy_over(from: &Path, to: &Path) -> Result<()> {
    let failed = |error| io_error("copying", from, error);
    let found = match fs::symlink_metadata(from) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if found.is_dir() {
        fs::create_dir_all(to).map_err(failed)?;
        for entry in fs::read_dir(from).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            copy_over(&from.join(&name), &to.join(&name))?;
        }
        return flush_folder(to);
    }
    match fs::remove_file(to) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    if found.file_type().is_symlink() {
        return fs::read_link(from)
            .and_then(|target| std::os::unix::fs::symlink(target, to))
            .map_err(failed);
    }
    fs::copy(from, to).and_then(|_| File::open(to)?.sync_all()).map_err(failed)
}

/// Whether the git that created a lock is dead. `is_at_work` is `None` if some processes are
/// invisible.
fn is_lock_stale(age_secs: i64, is_at_work: Option<bool>, is_repair: bool) -> bool {
    /// A git with a younger lock may not be visible yet.
    const SEEN_SECS: i64 = 2;
    const UNSEEN_REPAIR_SECS: i64 = 60;
    /// For containers and the like: no git of a person waits in an editor that long unnoticed.
    const UNSEEN_SECS: i64 = 3_600;
    match is_at_work {
        Some(is_at_work) => !is_at_work && age_secs >= SEEN_SECS,
        None => age_secs >= if is_repair { UNSEEN_REPAIR_SECS } else { UNSEEN_SECS },
    }
}

/// Whether a git runs in this folder or below, of any process; `None` if that is unknown,
/// because processes of other users or outside of a container are invisible.
fn is_git_at_work(root: &Path) -> Option<bool> {
    /// The namespace that contains all processes.
    const ALL_PROCESSES: &str = "pid:[4026531836]";
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let is_denied = |error: &io::Error| error.kind() == ErrorKind::PermissionDenied;
    let mut sees_all = fs::read_link("/proc/self/ns/pid")
        .is_ok_and(|name| name == Path::new(ALL_PROCESSES))
        && Path::new("/proc/1").exists();
    for process in fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path()) {
        match fs::read_to_string(process.join("comm")) {
            Ok(name) if name.starts_with("git") => match fs::read_link(process.join("cwd")) {
                Ok(folder) if folder.starts_with(&root) => return Some(true),
                Err(error) if is_denied(&error) => sees_all = false,
                _ => {}
            },
            Err(error) if is_denied(&error) => sees_all = false,
            _ => {}
        }
    }
    sees_all.then_some(false)
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::symlink_metadata(path).ok().map(|of| (of.dev(), of.ino()));
    identity(one).is_some_and(|found| identity(other) == Some(found))
}

/// Swaps two files or folders atomically.
fn swap_paths(one: &Path, other: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
    }
    #[cfg(not(any(target_os = "linux", target_os = "macos")))]
    {
        let _ = (one, other);
        Err(ErrorKind::Unsupported.into())
    }
}

/// Renames a file, unless the new name exists; then false.
fn rename_new(from: &Path, to: &Path) -> io::Result<bool> {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::EXIST) => return Ok(false),
            // Not every file system supports this.
            Err(
                rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP,
            ) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if to.symlink_metadata().is_ok() {
        return Ok(false);
    }
    fs::rename(from, to).map(|()| true)
}

/// A temporary name that no other thread or living process uses.
fn temporary_name() -> String {
    format!("{}-{:08x}", std::process::id(), TEMPORARY_FILES.fetch_add(1, Ordering::Relaxed))
}

/// The name of a temporary file that is swapped with another. It carries the stats of the two,
/// either of which may be deleted.
fn exchange_name(temporary: &Path, known: FileStat, own: FileStat) -> PathBuf {
    temporary.with_extension(format!("{:016x}-{:016x}", known.as_number(), own.as_number()))
}

/// Locks a file that others hold for a moment at most; whether that succeeded. `None` if files
/// cannot be locked here.
fn lock_soon(lock: impl Fn() -> std::result::Result<(), TryLockError>) -> Option<bool> {
    for _ in 0..RELEASE_ATTEMPTS {
        match lock() {
            Ok(()) => return Some(true),
            Err(TryLockError::WouldBlock) => std::thread::sleep(RELEASE_PAUSE),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    Some(false)
}

/// Locks a temporary file, unless a living process has it open.
fn lock_if_stale(file: &Path) -> Option<File> {
    let file = OpenOptions::new().read(true).custom_flags(nonblock()).open(file).ok()?;
    file.try_lock().is_ok().then_some(file)
}

fn create_new(place: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(nofollow()).open(place)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

fn flush_folder(folder: &Path) -> Result<()> {
    sync_folder(folder).map_err(|error| io_error("flushing", folder, error))
}

fn refuse_link(place: &Path) -> Result<()> {
    match fs::symlink_metadata(place) {
        Ok(found) if found.file_type().is_symlink() => Err(Error::Link(place.to_owned())),
        _ => Ok(()),
    }
}

fn nofollow() -> i32 {
    i32::try_from((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits()).unwrap_or(0)
}

/// `nofollow`, and without waiting for the other end of a pipe.
fn nonblock() -> i32 {
    nofollow() | i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0)
}

/// How many of these sorted pieces to read at once, and where the last of them ends.
fn read_span(pieces: impl Iterator<Item = (u64, usize)>) -> (usize, u64) {
    let (mut many, mut start, mut end) = (0, 0_u64, 0_u64);
    for (offset, len) in pieces {
        let last = offset.saturating_add(len as u64);
        if many == 0 {
            start = offset;
        } else if offset > end.saturating_add(CALL_COST_BYTES)
            || last.saturating_sub(start) > MAX_READ_SPAN_BYTES
        {
            break;
        }
        (many, end) = (many + 1, last.max(end));
    }
    (many, end)
}

fn stat_path(place: PathBuf) -> Result<Option<FileStat>> {
    match fs::symlink_metadata(&place) {
        Ok(found) if found.file_type().is_symlink() => Err(Error::Link(place)),
        Ok(found) => Ok(Some(file_stat(&found))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("reading the metadata of", &place, error)),
    }
}

/// The stat of a file in an open folder; the error is `None` for a link.
fn stat_within(
    folder: &File,
    name: &str,
) -> std::result::Result<Option<FileStat>, Option<io::Error>> {
    // The fields have other types on other systems.
    fn number<T: TryInto<i64>>(field: T) -> i64 {
        field.try_into().unwrap_or(0)
    }
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Symlink => Err(None),
        Ok(found) => Ok(Some(FileStat {
            len: u64::try_from(number(found.st_size)).unwrap_or(0),
            mtime: (number(found.st_mtime), number(found.st_mtime_nsec)),
            inode: found.st_ino,
        })),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(Some(error.into())),
    }
}

fn file_stat(found: &fs::Metadata) -> FileStat {
    FileStat { len: found.len(), mtime: (found.mtime(), found.mtime_nsec()), inode: found.ino() }
}

fn last_byte(file: &File, len: u64) -> io::Result<u8> {
    let mut byte = [0];
    file.read_exact_at(&mut byte, len - 1)?;
    Ok(byte[0])
}

/// Whether a file ends with these bytes, from `at` on.
fn ends_with(file: &File, at: u64, bytes: &[u8]) -> io::Result<bool> {
    Ok(has_bytes_at(file, at, bytes)? && file.metadata()?.len() == at + bytes.len() as u64)
}

/// Whether the file has these bytes at `at`.
fn has_bytes_at(file: &File, at: u64, bytes: &[u8]) -> io::Result<bool> {
    let mut found = vec![0; bytes.len()];
    match file.read_exact_at(&mut found, at) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        other => other.map(|()| found == bytes),
    }
}

/// The state that a path must still have to be replaced or removed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expected {
    /// This content, or no file.
    Content(ContentVersion),
    /// A file with this metadata.
    Stat(FileStat),
}

/// The state of a path compared with an [`Expected`] one.
enum CheckedPath {
    /// No file, as expected.
    Absent,
    /// The expected file, with the stat it had before it was read.
    Present(File, FileStat),
    /// Something else.
    Other,
}

/// The result of moving a temporary file into place.
enum Placement {
    /// Done, nothing left to check.
    New,
    /// Done; the old file is at `aside`.
    Exchanged { aside: PathBuf, old: (File, FileStat), own: FileStat },
    /// The path has an unexpected state and stays as it is.
    Refused,
}

impl Expected {
    fn check(&self, place: &Path) -> Result<CheckedPath> {
        let failed = |error| io_error("reading", place, error);
        let mut file = match OpenOptions::new().read(true).custom_flags(nonblock()).open(place) {
            Ok(file) => file,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                let is_expected =
                    matches!(self, Self::Content(version) if *version == ContentVersion::ABSENT);
                return Ok(if is_expected { CheckedPath::Absent } else { CheckedPath::Other });
            }
            Err(error) => return Err(failed(error)),
        };
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(Error::NotAFile(place.to_owned()));
        }
        let look = file_stat(&found);
        let is_expected = match self {
            Self::Stat(expected) => look == *expected,
            Self::Content(version) => {
                let mut bytes = Vec::with_capacity(usize::try_from(look.len).unwrap_or(0) + 1);
                file.read_to_end(&mut bytes).map_err(failed)?;
                *version == ContentVersion::of(Some(&bytes))
            }
        };
        Ok(if is_expected { CheckedPath::Present(file, look) } else { CheckedPath::Other })
    }
}

/// One append to a file that programs without our lock may append to as well.
struct PendingAppend<'a> {
    place: PathBuf,
    /// Whether this append created the file.
    is_new: bool,
    /// The length of the file before the write.
    before: u64,
    /// Whether the last line was incomplete, so that the bytes start with a line break.
    is_unended: bool,
    bytes: Cow<'a, [u8]>,
    /// The number of bytes that the system accepted.
    written: usize,
    /// Offset and length of each accepted part.
    parts: Vec<(u64, usize)>,
}

impl PendingAppend<'_> {
    /// Writes with one call, unless the system accepts only a part; then the rest follows. Only an
    /// interrupted call is tried again.
    fn write(&mut self, file: &mut File) -> io::Result<()> {
        while self.written < self.bytes.len() {
            match file.write(&self.bytes[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    let written = written.min(self.bytes.len() - self.written);
                    self.written += written;
                    // After an appending write the position is right behind the written bytes,
                    // whatever others append.
                    let end = file.stream_position()?;
                    self.parts.push((end.saturating_sub(written as u64), written));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The offset of the text, and the file's metadata if nothing else was written meanwhile. A
    /// longer file is not a failed write: another program appended too, before or behind our bytes.
    /// `None` if the write must be undone and tried again: another program's line is in the middle
    /// of it or lies unterminated before it, or the file was replaced since it was opened.
    fn locate(&self, file: &File) -> io::Result<Option<AppendedBytes>> {
        let after = file.metadata()?;
        if after.nlink() == 0 {
            return Ok(None);
        }
        let text = |start: u64| start + u64::from(self.is_unended);
        if after.len() == self.before + self.bytes.len() as u64 {
            return Ok(Some((text(self.before), Some(file_stat(&after)))));
        }
        let Some(&(start, _)) = self.parts.first() else { return Ok(Some((after.len(), None))) };
        let mut at = 0;
        for &(part, length) in &self.parts {
            if self.is_before(file, part, length)?
                || !has_bytes_at(file, part, &self.bytes[at..at + length])?
            {
                return Err(io::Error::new(
                    ErrorKind::WriteZero,
                    "only a part of the line reached the file",
                ));
            }
            if part != start + at as u64 {
                return Ok(None);
            }
            at += length;
        }
        let is_glued =
            start > 0 && !self.bytes.starts_with(b"\n") && last_byte(file, start)? != b'\n';
        Ok((!is_glued).then_some((text(start), None)))
    }

    /// Whether these bytes were in the file before the write: the system accepted bytes and wrote
    /// none. Not so if the file was truncated since: then it is shorter, or ends with what was
    /// written.
    fn is_before(&self, file: &File, start: u64, length: usize) -> io::Result<bool> {
        let len = file.metadata()?.len();
        let is_cut_short = len < self.before || len > self.before && start + length as u64 == len;
        Ok(start < self.before && !is_cut_short)
    }

    /// Removes the bytes of the append. Truncates where they are the end of the file, and blanks
    /// them where another program's lines follow.
    fn erase(&self, file: &File) {
        let mut at = self.written;
        for &(start, length) in self.parts.iter().rev() {
            at -= length;
            let own = &self.bytes[at..at + length];
            if self.is_before(file, start, length).unwrap_or(true) {
                continue;
            }
            if ends_with(file, start, own).unwrap_or(false) {
                let _ = file.set_len(start);
            } else if has_bytes_at(file, start, own).unwrap_or(false) {
                let mut blank = vec![b' '; length];
                // The text before and behind stays separate lines.
                blank[0] = b'\n';
                blank[length - 1] = b'\n';
                let _ = file.write_all_at(&blank, start);
            }
        }
    }
}

/// Converts an operating system error.
pub(crate) fn io_error(what: &'static str, path: &Path, source: io::Error) -> Error {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::DiskFull { path },
        // The error for a link that must not be followed.
        _ if source.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            Error::Link(path)
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Error::PermissionDenied { what, path }
        }
        ErrorKind::IsADirectory => Error::NotAFile(path),
        _ => Error::Io { what, path, reason: source },
    }
}

/// Writes all bytes. Only an interrupted call is tried again.
fn write_whole(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written.min(bytes.len())..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with this text, and a pending append of these bytes.
    fn prepare<'a>(folder: &Path, text: &str, bytes: &'a [u8]) -> (File, PendingAppend<'a>) {
        let place = folder.join("file");
        fs::write(&place, text).unwrap();
        let file = OpenOptions::new().read(true).append(true).open(&place).unwrap();
        let append = PendingAppend {
            place,
            is_new: false,
            before: text.len() as u64,
            is_unended: false,
            bytes: Cow::Borrowed(bytes),
            written: 0,
            parts: Vec::new(),
        };
        (file, append)
    }

    /// Writes only the next `length` bytes, like a system that accepts a part of a write.
    fn write_part(append: &mut PendingAppend<'_>, file: &mut File, length: usize) {
        let part = append.bytes[..append.written + length].to_vec();
        let whole = std::mem::replace(&mut append.bytes, Cow::Owned(part));
        append.write(file).unwrap();
        append.bytes = whole;
    }

    fn foreign(folder: &Path, text: &str) {
        OpenOptions::new()
            .append(true)
            .open(folder.join("file"))
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    #[test]
    fn a_refused_append_is_erased_and_nothing_else() {
        // What another program appends before, in the middle of and behind our bytes, and what is
        // left when these are erased.
        for (before, middle, behind, left) in [
            ("", "", "", "old\n"),
            ("before\n", "", "", "old\nbefore\n"),
            ("", "middle\n", "", "old\n\n  \nmiddle\n"),
            ("", "", "behind\n", "old\n\n  \n\n  \nbehind\n"),
            ("unended", "", "behind\n", "old\nunended\n  \n\n  \nbehind\n"),
        ] {
            let folder = tempfile::TempDir::new().unwrap();
            let (mut file, mut append) = prepare(folder.path(), "old\n", b"own-own\n");
            foreign(folder.path(), before);
            write_part(&mut append, &mut file, 4);
            foreign(folder.path(), middle);
            write_part(&mut append, &mut file, 4);
            foreign(folder.path(), behind);
            let file =
                OpenOptions::new().read(true).write(true).open(folder.path().join("file")).unwrap();
            append.erase(&file);
            assert_eq!(
                fs::read_to_string(folder.path().join("file")).unwrap(),
                left,
                "{before:?} {middle:?} {behind:?}"
            );
        }
        // An editor truncated the file between the check and the write: the bytes count if they are
        // in the file, or are erased.
        for (left, after) in [("", ""), ("ol", "ol"), ("old\nxxxx", "old\nxxxx")] {
            let folder = tempfile::TempDir::new().unwrap();
            let (mut file, mut append) =
                prepare(folder.path(), &format!("old\n{}", "x".repeat(9)), b"own-own\n");
            fs::write(folder.path().join("file"), left).unwrap();
            append.write(&mut file).unwrap();
            let located = append.locate(&file);
            assert_eq!(
                located.unwrap().map(|(start, _)| start),
                left.is_empty().then_some(0),
                "{left}"
            );
            append.erase(
                &OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(folder.path().join("file"))
                    .unwrap(),
            );
            assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), after);
        }
        // A system that accepts bytes and writes none: the beginning of the file looks like our
        // bytes.
        let folder = tempfile::TempDir::new().unwrap();
        let (file, mut append) = prepare(folder.path(), "own-old\n", b"own-own\n");
        (append.written, append.parts) = (4, vec![(0, 4)]);
        assert!(append.locate(&file).is_err());
        append.erase(
            &OpenOptions::new().read(true).write(true).open(folder.path().join("file")).unwrap(),
        );
        assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "own-old\n");
    }

    #[test]
    fn an_append_finds_its_own_bytes() {
        // What another program appends before, in the middle of and behind our bytes, and the
        // resulting offset of ours.
        for (before, middle, behind, start) in [
            ("", "", "", Some(4)),
            ("before\n", "", "", Some(11)),
            ("", "", "behind\n", Some(4)),
            ("own-own\n", "", "own-own\n", Some(12)),
            ("", "middle\n", "", None),
            ("unended", "", "", None),
        ] {
            let folder = tempfile::TempDir::new().unwrap();
            let (mut file, mut append) = prepare(folder.path(), "old\n", b"own-own\n");
            foreign(folder.path(), before);
            write_part(&mut append, &mut file, 4);
            foreign(folder.path(), middle);
            write_part(&mut append, &mut file, 4);
            foreign(folder.path(), behind);
            let located = append.locate(&file).unwrap();
            assert_eq!(located.map(|(start, _)| start), start, "{before:?} {middle:?} {behind:?}");
            // Only a file that nothing else was written to is known without reading it again.
            let is_alone = before.is_empty() && middle.is_empty() && behind.is_empty();
            assert_eq!(located.is_some_and(|(_, look)| look.is_some()), is_alone);
            // A file that was replaced since it was opened.
            fs::write(folder.path().join("new"), "saved\n").unwrap();
            fs::rename(folder.path().join("new"), folder.path().join("file")).unwrap();
            assert_eq!(append.locate(&file).unwrap().map(|(start, _)| start), None);
        }
    }

    #[test]
    fn a_lock_is_stale_if_its_git_is_seen_to_be_gone_or_a_repair_says_so() {
        for (age, is_at_work, is_repair, is_stale) in [
            (1, Some(false), true, false),
            (2, Some(false), false, true),
            (9_999, Some(true), true, false),
            (3_599, None, false, false),
            (3_600, None, false, true),
            (59, None, true, false),
            (60, None, true, true),
        ] {
            assert_eq!(
                is_lock_stale(age, is_at_work, is_repair),
                is_stale,
                "{age} {is_at_work:?} {is_repair}"
            );
        }
    }

    // A failed write to several files leaves nothing in any of them and no empty file, for few and
    // many files.
    #[test]
    fn a_refused_write_to_many_files_leaves_none_of_it() {
        for many in [3, 15, MAX_OPEN_FILES + 5] {
            let folder = tempfile::TempDir::new().unwrap();
            let vault_fs = VaultFs::new(folder.path().join("vault"));
            vault_fs.make_root().unwrap();
            let held = vault_fs.lock().unwrap();
            let texts: Vec<(DocPath, Vec<u8>)> = (0..many)
                .map(|n| {
                    (format!("memory/messages/{n:04}.jsonl").parse().unwrap(), b"line\n".to_vec())
                })
                .collect();
            vault_fs.append(&held, &texts[0].0, b"known\n").unwrap();
            // The last file cannot be written.
            fs::create_dir(vault_fs.root().join(texts[many - 1].0.as_str())).unwrap();
            assert!(matches!(vault_fs.append_many(&held, &texts), Err(Error::NotAFile(_))));
            let files = vault_fs.list_folder("memory/messages").unwrap();
            assert_eq!(
                files.iter().map(|(path, _)| path).collect::<Vec<_>>(),
                [&texts[0].0],
                "{many}"
            );
            assert_eq!(vault_fs.read(&texts[0].0).unwrap().unwrap(), b"known\n");
        }
    }
}
