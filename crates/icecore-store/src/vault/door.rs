//! The vault's one door: the only code that changes files.
//!
//! Its promise, which everything above relies on: when a call returns `Ok`, the change is on the
//! disk, file and folder; when it returns an error or the process dies, the file is what it was, or
//! (after a death in the middle of an append) has one torn last line that the next opening sets
//! aside. A failed flush is never tried again on the same data: the write is refused and what was
//! appended is cut off.
//!
//! Programs that do not know our locks write to the same files. An append never cuts off what they
//! appended, and a conditional replacement or removal never destroys what they saved since the file
//! was read.
#![expect(clippy::disallowed_methods, reason = "this is the door")]

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

use super::BYTES_PER_CALL;
use crate::{ContentVersion, Error, MARKER_KEY, Result, Weight};

/// How long a writer waits for others, as a number of waits of a few milliseconds: about half a
/// minute.
const LOCK_WAITS: u32 = 3_000;
/// Likewise for somebody who cannot wait.
const HURRIED_WAITS: u32 = 100;
/// The longest pause between two attempts to get a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(11);

/// Up to so many files are flushed one by one; more are flushed together.
const FEW: usize = 4;
/// So often it is looked whether a lock that somebody seems to have is free, and how long it is
/// waited between.
const LET_GO: u32 = 10;
const LET_GO_PAUSE: Duration = Duration::from_millis(10);
/// So many files are open at once.
const MOST_OPEN: usize = 200;
/// The most bytes that are read in one go for the sake of several pieces.
const STRETCH_BYTES: u64 = 1024 * 1024;
/// Where models' answers are kept.
const ANSWERS: &str = "answers";
/// Where notes are kept.
const NOTES: &str = "notes";
/// What the name of a note that is being written begins with.
const UNFINISHED: &str = ".unfinished-";
/// So often a write is tried again that another program's write came in the way of.
pub(super) const ATTEMPTS: usize = 5;

/// So many names are tried for a temporary file.
const MAX_NAMES: usize = 1_000;

/// Numbers temporary files, so that no two threads of this process share one.
static TEMPORARY_FILES: AtomicU32 = AtomicU32::new(0);
/// The ending of a repository that another one is replacing.
const REPLACED: &str = "old";

/// Where appended bytes start, and the file's metadata if no other program wrote to it meanwhile.
type PlacedBytes = (u64, Option<Look>);

/// The door of one vault.
#[derive(Debug, Clone)]
pub(super) struct Door {
    root: PathBuf,
    /// Folders of which this process knows that they are there for good.
    safe: Arc<Mutex<HashSet<PathBuf>>>,
    /// One for each lock.
    queues: Arc<Mutex<HashMap<String, Arc<Queue>>>>,
    /// How often a writer looks again whether others are done.
    waits: u32,
}

/// Proof that this process alone may write. The lock is the operating system's, so it ends with the
/// process.
#[derive(Debug)]
pub(super) struct Held {
    lock: File,
    /// Kept until the file's lock is given back: fields are dropped in their order.
    _turn: Option<Turn>,
}

/// Where the threads of this process wait for each other. Only one of them then asks the operating
/// system, which can only be asked again and again.
#[derive(Debug, Default)]
struct Queue {
    is_taken: Mutex<bool>,
    given_back: Condvar,
}

/// The right to ask for a lock, among the threads of this process.
#[derive(Debug)]
struct Turn(Arc<Queue>);

impl Queue {
    /// Waits for its turn, at most so long.
    fn enter(self: &Arc<Self>, most: Duration) -> Option<Turn> {
        let is_taken = self.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut is_taken, _) = self
            .given_back
            .wait_timeout_while(is_taken, most, |is_taken| *is_taken)
            .unwrap_or_else(PoisonError::into_inner);
        if *is_taken {
            return None;
        }
        *is_taken = true;
        Some(Turn(self.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.is_taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.given_back.notify_one();
    }
}

/// What the file system says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Look {
    /// Its length in bytes.
    pub len: u64,
    mtime: (i64, i64),
    inode: u64,
}

impl Held {
    /// The lock as a program's standard input: while the program lives, the lock is held, whatever
    /// becomes of this process.
    pub fn as_input(&self) -> Result<Stdio> {
        self.lock
            .try_clone()
            .map(Stdio::from)
            .map_err(|error| fault("passing on", Path::new("the lock"), error))
    }

    /// The time by the file system's own clock, which is the one that files are stamped with.
    fn time(&self) -> Option<(i64, i64)> {
        self.lock.write_at(b".", 0).ok()?;
        self.lock.metadata().ok().map(|found| (found.mtime(), found.mtime_nsec()))
    }
}

impl Look {
    /// One text that differs whenever the file does.
    pub fn stamp(&self) -> String {
        format!("{}:{}.{:09}:{}", self.len, self.mtime.0, self.mtime.1, self.inode)
    }

    /// When the file was last written.
    pub fn changed(&self) -> jiff::Timestamp {
        jiff::Timestamp::new(self.mtime.0, i32::try_from(self.mtime.1).unwrap_or(0))
            .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
    }

    /// The same as a number.
    pub fn mark(&self) -> u64 {
        let hash = Hash::of(self.stamp().as_bytes());
        hash.bytes()[..8].iter().fold(0, |mark, &byte| mark << 8 | u64::from(byte))
    }
}

impl Door {
    pub fn new(root: PathBuf) -> Self {
        Self { root, safe: Arc::default(), queues: Arc::default(), waits: LOCK_WAITS }
    }

    /// The same door for somebody who cannot wait: about a second at most.
    pub fn hurried(self) -> Self {
        Self { waits: HURRIED_WAITS, ..self }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn private(&self, name: &str) -> PathBuf {
        self.root.join(PRIVATE).join(name)
    }

    /// Makes sure that nothing private is a link: what is swept, made anew or written there must be
    /// the vault's own.
    pub fn guard_private(&self) -> Result<()> {
        let names = [
            "tmp",
            "quarantine",
            ANSWERS,
            NOTES,
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

    /// Waits until nobody else writes.
    pub fn lock(&self) -> Result<Held> {
        self.lock_by("lock")
    }

    /// Waits until nobody else holds the lock of that name.
    pub fn lock_by(&self, name: &str) -> Result<Held> {
        let queue = self
            .queues
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(name.to_owned())
            .or_default()
            .clone();
        // Threads of this process wait as long for each other as processes do.
        let Some(turn) = queue.enter(LOCK_PAUSE * self.waits) else {
            return Err(Error::Busy { vault: self.root.clone() });
        };
        let (file, path) = self.lock_file(name)?;
        for wait in 0..self.waits {
            match file.try_lock() {
                Ok(()) => return Ok(Held { lock: file, _turn: Some(turn) }),
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(Duration::from_millis(u64::from(wait.min(10)) + 1))
                }
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => return Err(fault("locking", &path, error)),
            }
        }
        Err(Error::Busy { vault: self.root.clone() })
    }

    /// Takes the lock of that name; `None` if somebody has it.
    pub fn try_lock_by(&self, name: &str) -> Result<Option<Held>> {
        let (file, path) = self.lock_file(name)?;
        // One that was just let go may be held for a moment by a program that is being started: it
        // has what we had until it begins.
        for _ in 0..LET_GO {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Held { lock: file, _turn: None })),
                Err(TryLockError::WouldBlock) => std::thread::sleep(LET_GO_PAUSE),
                Err(TryLockError::Error(error)) => return Err(fault("locking", &path, error)),
            }
        }
        Ok(None)
    }

    fn lock_file(&self, name: &str) -> Result<(File, PathBuf)> {
        // Opening has looked at everything; this is for what was put there since.
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
            _ => fault("opening", &path, error),
        })?;
        Ok((file, path))
    }

    /// The place of a document, after making sure that no link stands in the way.
    fn place(&self, path: &DocPath) -> Result<PathBuf> {
        for folder in path.folders() {
            let folder = self.root.join(folder);
            match fs::symlink_metadata(&folder) {
                Ok(found) if found.file_type().is_symlink() => return Err(Error::Link(folder)),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                Err(error) => return Err(fault("looking at", &folder, error)),
            }
        }
        Ok(self.root.join(path.as_str()))
    }

    /// Opens a document for reading; `None` if there is none.
    fn open(&self, path: &DocPath) -> Result<Option<File>> {
        let place = self.place(path)?;
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
            Err(error) => Err(fault("reading", &place, error)),
        }
    }

    /// A document's bytes.
    pub fn read(&self, path: &DocPath) -> Result<Option<Vec<u8>>> {
        let Some(mut file) = self.open(path)? else { return Ok(None) };
        let mut bytes = Vec::with_capacity(
            file.metadata().map_or(0, |found| usize::try_from(found.len()).unwrap_or(0) + 1),
        );
        file.read_to_end(&mut bytes)
            .map_err(|error| fault("reading", &self.root.join(path.as_str()), error))?;
        Ok(Some(bytes))
    }

    /// What the file system says of a document.
    pub fn look(&self, path: &DocPath) -> Result<Option<Look>> {
        look_at(self.place(path)?)
    }

    /// Likewise of many; the folder of those that follow each other is looked at once.
    pub fn look_at_all(&self, paths: &[DocPath]) -> Result<Vec<Option<Look>>> {
        let mut looks = Vec::with_capacity(paths.len());
        for beside in paths.chunk_by(|a, b| a.folders().last() == b.folders().last()) {
            let place = self.place(&beside[0])?;
            // From the folder on, and not from the root of all for each of them.
            let folder = place.parent().and_then(|folder| File::open(folder).ok());
            for path in beside {
                looks.push(match &folder {
                    Some(folder) => {
                        look_within(folder, path.name()).map_err(|error| match error {
                            Some(error) => {
                                fault("looking at", &self.root.join(path.as_str()), error)
                            }
                            None => Error::Link(self.root.join(path.as_str())),
                        })?
                    }
                    None => look_at(self.root.join(path.as_str()))?,
                });
            }
        }
        Ok(looks)
    }

    /// Every document right in a folder, with what the file system says of it.
    pub fn looks(&self, folder: &str) -> Result<Vec<(DocPath, Look)>> {
        let place = self.root.join(folder);
        refuse_link(&place)?;
        let entries = match fs::read_dir(&place) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fault("reading", &place, error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| fault("reading", &place, error))?;
            let Some(path) = entry
                .file_name()
                .to_str()
                .and_then(|name| format!("{folder}/{name}").parse::<DocPath>().ok())
            else {
                continue;
            };
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => found.push((path, look(&metadata))),
                _ => {}
            }
        }
        Ok(found)
    }

    /// A number that is another one whenever a file in these folders is, or is new, or is gone;
    /// with `true`, also below them.
    pub fn glance(&self, folders: &[(&str, bool)]) -> Result<u64> {
        let mut seen = DefaultHasher::new();
        let mut open: Vec<(PathBuf, bool)> =
            folders.iter().map(|(folder, deep)| (self.root.join(folder), *deep)).collect();
        while let Some((place, deep)) = open.pop() {
            let entries = match fs::read_dir(&place) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(fault("reading", &place, error)),
            };
            place.hash(&mut seen);
            for entry in entries {
                let entry = entry.map_err(|error| fault("reading", &place, error))?;
                entry.file_name().hash(&mut seen);
                match entry.metadata() {
                    Ok(found) if found.is_file() => look(&found).hash(&mut seen),
                    Ok(found) if found.is_dir() && deep => open.push((entry.path(), true)),
                    _ => {}
                }
            }
        }
        Ok(seen.finish())
    }

    /// How much room each part takes. Links are counted as what they are, not followed.
    pub fn weights(&self) -> Result<Vec<Weight>> {
        let mut parts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let mut folders: Vec<(PathBuf, String)> = vec![(self.root.clone(), String::new())];
        while let Some((folder, part)) = folders.pop() {
            // A folder that goes while it is looked at weighs nothing.
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let Ok(found) = entry.metadata() else { continue };
                // What is in `memory` is told one by one: most of a vault is there. Its logs are
                // one a day, and one part.
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
        Ok(parts.into_iter().map(|(part, (files, bytes))| Weight { part, files, bytes }).collect())
    }

    /// The pieces of a document at these places, in their order. Those that stand close together
    /// are read in one go.
    pub fn read_pieces(&self, path: &DocPath, pieces: &[(u64, usize)]) -> Result<Vec<Vec<u8>>> {
        let place = self.root.join(path.as_str());
        let Some(file) = self.open(path)? else {
            return Err(fault("reading", &place, ErrorKind::NotFound.into()));
        };
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        order.sort_by_key(|&at| pieces[at].0);
        let mut found = vec![Vec::new(); pieces.len()];
        let mut stretch = Vec::new();
        let mut rest = order.as_slice();
        while let Some(&first) = rest.first() {
            let start = pieces[first].0;
            let (many, end) = close_together(rest.iter().map(|&at| pieces[at]));
            stretch.resize(usize::try_from(end - start).unwrap_or(usize::MAX), 0);
            file.read_exact_at(&mut stretch, start)
                .map_err(|error| fault("reading", &place, error))?;
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

    /// The bytes after the last line break, with where they start; the last line must not be longer
    /// than a few megabytes.
    pub fn unfinished_line(&self, path: &DocPath) -> Result<Option<(u64, Vec<u8>)>> {
        let Some(mut file) = self.open(path)? else { return Ok(None) };
        let place = self.root.join(path.as_str());
        let failed = |error| fault("reading", &place, error);
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

    /// Likewise, once nobody goes on writing it: a program that appends piece by piece, without our
    /// lock, gets half a second before its line counts as torn.
    pub fn settled_line(&self, held: &Held, path: &DocPath) -> Result<Option<(u64, Vec<u8>)>> {
        const WAITS: u32 = 5;
        for _ in 0..WAITS {
            let rested = match (self.look(path)?, held.time()) {
                (Some(look), Some(now)) => now.0 - look.mtime.0 > 1,
                _ => false,
            };
            if rested {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        self.unfinished_line(path)
    }

    /// Appends `bytes` in one write and flushes them. If the file's last line has no end, it gets
    /// one first. Returns where `bytes` starts and the file's metadata, or `None` for the metadata
    /// if another program, which does not know our lock, appended at the same time: the index then
    /// reads the file again instead of trusting this write.
    pub fn append(&self, held: &Held, path: &DocPath, bytes: &[u8]) -> Result<PlacedBytes> {
        for _ in 0..ATTEMPTS {
            if let Some(placed) = self.try_append(held, path, bytes)? {
                return Ok(placed);
            }
        }
        Err(Error::Moved { what: path.to_string() })
    }

    /// One attempt at it; `None`, and nothing of it is left, if another program's write came in its
    /// way.
    pub fn try_append(
        &self,
        held: &Held,
        path: &DocPath,
        bytes: &[u8],
    ) -> Result<Option<PlacedBytes>> {
        Ok(self.append_all(held, &[(path, bytes)], true)?.pop().flatten())
    }

    /// Appends to many documents and flushes them together: all of it is there when this returns,
    /// or none of it if it fails. That does not hold after a crash in the middle, nor if a text has
    /// to be written again because of another program's write and that fails: then some of the
    /// documents have their text and others do not. Returns the same as [`Self::append`] for each
    /// text.
    pub fn append_many(
        &self,
        held: &Held,
        texts: &[(DocPath, Vec<u8>)],
    ) -> Result<Vec<PlacedBytes>> {
        let borrowed: Vec<(&DocPath, &[u8])> =
            texts.iter().map(|(path, text)| (path, text.as_slice())).collect();
        let placed = self.append_all(held, &borrowed, texts.len() <= FEW)?;
        let again = |((path, text), placed): (&(DocPath, Vec<u8>), Option<_>)| {
            placed.map_or_else(|| self.append(held, path, text), Ok)
        };
        texts.iter().zip(placed).map(again).collect()
    }

    fn append_all(
        &self,
        _held: &Held,
        texts: &[(&DocPath, &[u8])],
        one_by_one: bool,
    ) -> Result<Vec<Option<PlacedBytes>>> {
        let mut appends: Vec<Append<'_>> = Vec::with_capacity(texts.len());
        let mut placed = Vec::with_capacity(texts.len());
        let mut write_all = || -> Result<()> {
            // There may be more files than a process may have open.
            for some in texts.chunks(MOST_OPEN) {
                let mut files = Vec::with_capacity(some.len());
                for (path, text) in some {
                    let (file, append) = self.open_to_append(path, text, one_by_one)?;
                    appends.push(append);
                    files.push(file);
                    let (Some(append), Some(file)) = (appends.last_mut(), files.last_mut()) else {
                        continue;
                    };
                    append.write(file).map_err(|error| fault("writing", &append.place, error))?;
                }
                let own = &appends[appends.len() - files.len()..];
                if one_by_one {
                    own.iter().zip(&files).try_for_each(|(append, file)| {
                        file.sync_data().map_err(|error| fault("writing", &append.place, error))
                    })?;
                } else {
                    self.flush_all(own, &files)?;
                }
                for (append, file) in own.iter().zip(&files) {
                    placed.push(
                        append
                            .locate(file)
                            .map_err(|error| fault("writing", &append.place, error))?,
                    );
                }
            }
            Ok(())
        };
        let outcome = write_all();
        for (at, append) in appends.iter().enumerate() {
            // What was refused must not turn up later.
            if outcome.is_err() || placed.get(at).is_some_and(Option::is_none) {
                self.roll_back(append);
            }
        }
        outcome.map(|()| placed)
    }

    /// Opens a document and prepares an append to it. The folders of a new one are flushed first,
    /// unless all is flushed together.
    fn open_to_append<'a>(
        &self,
        path: &DocPath,
        bytes: &'a [u8],
        with_folders: bool,
    ) -> Result<(File, Append<'a>)> {
        let place = self.place(path)?;
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
        let file = opened.map_err(|error| fault("opening", &place, error))?;
        let failed = |error| fault("writing", &place, error);
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(Error::NotAFile(place));
        }
        let before = found.len();
        if before == 0 {
            // New, or made by a process that died before its folders were flushed. Nothing is
            // written into it before they are, so a file with something in it has them flushed.
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
            Append {
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

    /// Takes the bytes of a refused append out of its file again. If this fails, they remain as a
    /// torn tail, which the next opening moves to the quarantine.
    fn roll_back(&self, append: &Append<'_>) {
        let opened =
            OpenOptions::new().read(true).write(true).custom_flags(nonblock()).open(&append.place);
        if let Ok(file) = opened {
            append.erase(&file);
        }
        if append.is_new {
            self.remove_empty_file(&append.place);
        }
    }

    /// Removes a file that this process made and wrote nothing into, unless another program did.
    fn remove_empty_file(&self, place: &Path) {
        let _ = self.remove_place_if(place, &Expected::Content(ContentVersion::of(Some(b""))));
    }

    /// Flushes files and the folders they stand in: with one call for the whole file system, where
    /// there is one.
    fn flush_all(&self, appends: &[Append<'_>], files: &[File]) -> Result<()> {
        #[cfg(target_os = "linux")]
        {
            let _ = (appends, files);
            self.flush_file_system()
        }
        #[cfg(not(target_os = "linux"))]
        {
            for (append, file) in appends.iter().zip(files) {
                file.sync_all().map_err(|error| fault("writing", &append.place, error))?;
                flushed(append.place.parent().unwrap_or(&self.root))?;
            }
            Ok(())
        }
    }

    #[cfg(target_os = "linux")]
    fn flush_file_system(&self) -> Result<()> {
        let root = File::open(&self.root).map_err(|error| fault("flushing", &self.root, error))?;
        rustix::fs::syncfs(&root).map_err(|error| fault("flushing", &self.root, error.into()))
    }

    #[cfg(not(target_os = "linux"))]
    fn flush_file_system(&self) -> Result<()> {
        Ok(())
    }

    /// Cuts the last bytes of a document off, if they still are `tail` from `at` on; false if
    /// another program wrote meanwhile.
    pub fn cut_tail(&self, _held: &Held, path: &DocPath, at: u64, tail: &[u8]) -> Result<bool> {
        let place = self.place(path)?;
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
        cut().map_err(|error| fault("mending", &place, error))
    }

    /// Puts a document in place whole: a temporary file, flushed, renamed, and the folder flushed.
    /// Whatever stands there is replaced, so this is only for files that no person edits.
    pub fn replace(&self, held: &Held, path: &DocPath, bytes: &[u8]) -> Result<()> {
        let place = self.place_to_replace(path)?;
        self.put_file(held, &place, bytes)
    }

    /// Likewise, if what stands there is what is expected; otherwise it stays and the call fails
    /// with [`Error::Moved`].
    pub fn replace_if(
        &self,
        held: &Held,
        path: &DocPath,
        bytes: &[u8],
        expected: &Expected,
    ) -> Result<()> {
        let place = self.place_to_replace(path)?;
        self.put_file_if(held, &place, bytes, expected)
    }

    fn place_to_replace(&self, path: &DocPath) -> Result<PathBuf> {
        let place = self.place(path)?;
        refuse_link(&place)?;
        self.make_folders(path)?;
        if !place.exists() {
            self.flush_folders(path)?;
        }
        Ok(place)
    }

    /// Puts many documents in place, flushed together: when this returns all of them are there;
    /// after a crash each is what it was or what it is to be.
    pub fn replace_many(&self, held: &Held, documents: &[(DocPath, Vec<u8>)]) -> Result<()> {
        if documents.len() <= FEW {
            return documents.iter().try_for_each(|(path, bytes)| self.replace(held, path, bytes));
        }
        let documents: Vec<(&DocPath, &[u8])> =
            documents.iter().map(|(path, bytes)| (path, bytes.as_slice())).collect();
        self.place_many(&documents, |temporary, place, _| {
            fs::rename(temporary, place)
                .map(|()| Placed::New)
                .map_err(|error| fault("writing", place, error))
        })
        .map(|_| ())
    }

    /// Likewise, each only if what stands there is what is expected. Returns which of them, by
    /// their order, stay as they are because they are not.
    pub fn replace_many_if(
        &self,
        held: &Held,
        documents: &[(&DocPath, &[u8], Expected)],
    ) -> Result<Vec<usize>> {
        if documents.len() <= FEW {
            let mut changed = Vec::new();
            for (at, (path, bytes, expected)) in documents.iter().enumerate() {
                match self.replace_if(held, path, bytes, expected) {
                    Err(Error::Moved { .. }) => changed.push(at),
                    other => other?,
                }
            }
            return Ok(changed);
        }
        let texts: Vec<(&DocPath, &[u8])> =
            documents.iter().map(|(path, bytes, _)| (*path, *bytes)).collect();
        self.place_many(&texts, |temporary, place, at| {
            self.place_if(temporary, place, &documents[at].2)
        })
    }

    /// Writes temporary files, flushes them together, has each put in place by `place_one`, and
    /// flushes that.
    fn place_many(
        &self,
        documents: &[(&DocPath, &[u8])],
        place_one: impl Fn(&Path, &Path, usize) -> Result<Placed>,
    ) -> Result<Vec<usize>> {
        let folder = self.private("tmp");
        self.make_folder(&folder)?;
        let stem = temporary_name();
        let mut made: Vec<(PathBuf, PathBuf)> = Vec::with_capacity(documents.len());
        let mut placed: Vec<Placed> = Vec::with_capacity(documents.len());
        let written = documents.iter().enumerate().try_for_each(|(at, (path, bytes))| {
            let place = self.place(path)?;
            refuse_link(&place)?;
            self.make_folders(path)?;
            let temporary = folder.join(format!("{stem}.{at:08x}"));
            let _ = fs::remove_file(&temporary);
            made.push((temporary.clone(), place.clone()));
            // Each is closed again: there may be more of them than a process may have open.
            let written = (|| {
                let mut file = create_new(&temporary)?;
                write_whole(&mut file, bytes)?;
                if !cfg!(target_os = "linux") {
                    file.sync_all()?;
                }
                if file.metadata()?.len() != bytes.len() as u64 {
                    return Err(io::Error::new(
                        ErrorKind::WriteZero,
                        "not all of it arrived in the file",
                    ));
                }
                Ok(())
            })();
            written.map_err(|error| fault("writing", &place, error))
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
            folders.into_iter().try_for_each(flushed)
        });
        let mut changed = Vec::new();
        for (at, (placed, (_, place))) in placed.into_iter().zip(&made).enumerate() {
            if !self.settle(placed, place)? {
                changed.push(at);
            }
        }
        outcome.map(|()| changed)
    }

    /// A new temporary file with these bytes, flushed. It is locked as long as it is open, which is
    /// how others know that its writer lives.
    fn write_temporary(&self, place: &Path, bytes: &[u8]) -> Result<(PathBuf, File)> {
        let folder = self.private("tmp");
        self.make_folder(&folder)?;
        let failed = |error| fault("writing", place, error);
        for _ in 0..MAX_NAMES {
            let temporary = folder.join(temporary_name());
            let mut file = match create_new(&temporary) {
                // A process that died left it, or one of another container has the same number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                other => other.map_err(failed)?,
            };
            // A sweep has it for a moment at most; if it came before the lock, the file is gone.
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
                        io::Error::new(ErrorKind::WriteZero, "not all of it arrived in the file")
                    };
                    return Err(failed(other.err().unwrap_or_else(short)));
                }
            }
        }
        Err(failed(ErrorKind::AlreadyExists.into()))
    }

    /// Puts a flushed temporary file in place, if what stands there is what is expected. The two
    /// change places at once, and what came out is looked at: what another program saved in the
    /// last moment goes back.
    fn place_if(&self, temporary: &Path, place: &Path, expected: &Expected) -> Result<Placed> {
        let failed = |error| fault("writing", place, error);
        let known = match expected.check(place)? {
            Found::Other => {
                let _ = fs::remove_file(temporary);
                return Ok(Placed::Refused);
            }
            Found::Absent => {
                let is_placed = rename_new(temporary, place).map_err(failed)?;
                if !is_placed {
                    let _ = fs::remove_file(temporary);
                }
                return Ok(if is_placed { Placed::New } else { Placed::Refused });
            }
            Found::Present(_, look) => look,
        };
        let Some(own) = look_at(temporary.to_owned())? else {
            return Err(failed(ErrorKind::NotFound.into()));
        };
        // Under this name the next opening knows, if this process dies now, which of the two files
        // may go.
        let aside = exchange_name(temporary, known, own);
        fs::rename(temporary, &aside).map_err(failed)?;
        match exchange(&aside, place) {
            Ok(()) => {}
            // It is gone.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let _ = fs::remove_file(&aside);
                return Ok(Placed::Refused);
            }
            // The file system cannot do that; it was looked at a moment ago.
            Err(_) => return fs::rename(&aside, place).map(|()| Placed::New).map_err(failed),
        }
        match expected.check(&aside)? {
            Found::Present(file, look) => Ok(Placed::Exchanged { aside, old: (file, look), own }),
            Found::Absent | Found::Other => {
                self.give_back(&aside, place, own)?;
                Ok(Placed::Refused)
            }
        }
    }

    /// Ends a replacement after its folder was flushed: what was replaced goes, unless a program
    /// that had it open wrote to it until now; then it goes back. False if the file stays, or is
    /// again, what another program wrote.
    fn settle(&self, placed: Placed, place: &Path) -> Result<bool> {
        match placed {
            Placed::New => Ok(true),
            Placed::Refused => Ok(false),
            Placed::Exchanged { aside, old: (file, known), own } => {
                if file.metadata().is_ok_and(|found| look(&found) == known) {
                    let _ = fs::remove_file(&aside);
                    return Ok(true);
                }
                self.give_back(&aside, place, own)?;
                Ok(false)
            }
        }
    }

    /// Puts a file that another program wrote back in its place, where ours (`own`) stands now.
    fn give_back(&self, aside: &Path, place: &Path, own: Look) -> Result<()> {
        let failed = |error| fault("writing", place, error);
        match exchange(aside, place) {
            Ok(()) if look_at(aside.to_owned())? == Some(own) => {
                let _ = fs::remove_file(aside);
            }
            Ok(()) => {
                // Saved once more meanwhile: the newest stays, and the one before it is not thrown
                // away.
                exchange(aside, place).map_err(failed)?;
                self.quarantine(aside, place)?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if !rename_new(aside, place).map_err(failed)? {
                    self.quarantine(aside, place)?;
                }
            }
            Err(error) => return Err(failed(error)),
        }
        flushed(place.parent().unwrap_or(&self.root))
    }

    /// Moves a file that was saved at `place` to the quarantine.
    fn quarantine(&self, file: &Path, place: &Path) -> Result<PathBuf> {
        let folder = self.private("quarantine");
        self.make_folder(&folder)?;
        let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let to = folder.join(format!("{name}.saved.{}", temporary_name()));
        fs::rename(file, &to).map_err(|error| fault("moving", file, error))?;
        flushed(&folder)?;
        Ok(to)
    }

    /// Flushes every folder from the vault down to the document's own. Those above it need it once.
    fn flush_folders(&self, path: &DocPath) -> Result<()> {
        let places: Vec<PathBuf> = std::iter::once(self.root.clone())
            .chain(path.folders().map(|folder| self.root.join(folder)))
            .collect();
        let own = places.len() - 1;
        for (at, place) in places.iter().enumerate() {
            // That a folder is in the one above it is known once the one above was flushed with it
            // there.
            let below_is_safe = at < own
                && self
                    .safe
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .contains(&places[at + 1]);
            if !below_is_safe {
                flushed(place)?;
            }
            if at < own {
                self.safe
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(places[at + 1].clone());
            }
        }
        Ok(())
    }

    fn put_file(&self, _held: &Held, place: &Path, bytes: &[u8]) -> Result<()> {
        let (temporary, _locked) = self.write_temporary(place, bytes)?;
        if let Err(error) = fs::rename(&temporary, place) {
            let _ = fs::remove_file(&temporary);
            return Err(fault("writing", place, error));
        }
        flushed(place.parent().unwrap_or(&self.root))
    }

    fn put_file_if(
        &self,
        _held: &Held,
        place: &Path,
        bytes: &[u8],
        expected: &Expected,
    ) -> Result<()> {
        let moved = || Error::Moved {
            what: place.strip_prefix(&self.root).unwrap_or(place).display().to_string(),
        };
        if let Found::Other = expected.check(place)? {
            return Err(moved());
        }
        let (temporary, _locked) = self.write_temporary(place, bytes)?;
        let placed = self
            .place_if(&temporary, place, expected)
            .inspect_err(|_| drop(fs::remove_file(&temporary)))?;
        if !matches!(placed, Placed::Refused) {
            flushed(place.parent().unwrap_or(&self.root))?;
        }
        if self.settle(placed, place)? { Ok(()) } else { Err(moved()) }
    }

    /// Keeps bytes that were found broken, under a name that says where they come from.
    pub fn set_aside(&self, held: &Held, path: &DocPath, at: u64, bytes: &[u8]) -> Result<PathBuf> {
        let folder = self.private("quarantine");
        self.make_folder(&folder)?;
        let name = format!("{}.{at}.{}", path.name(), Hash::of(bytes).short());
        let place = folder.join(name);
        self.put_file(held, &place, bytes)?;
        Ok(place)
    }

    /// A model's answer that was kept.
    pub fn read_answer(&self, question: Hash) -> Result<Option<Vec<u8>>> {
        let place = self.private(ANSWERS).join(question.to_string());
        match OpenOptions::new().read(true).custom_flags(nofollow()).open(&place) {
            Ok(mut file) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).map_err(|error| fault("reading", &place, error))?;
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(fault("reading", &place, error)),
        }
    }

    /// Keeps a model's answer; when there are very many, the oldest half goes.
    pub fn keep_answer(&self, held: &Held, question: Hash, answer: &[u8]) -> Result<()> {
        const MOST: usize = 2_000;
        let folder = self.private(ANSWERS);
        self.make_folder(&folder)?;
        let mut kept: Vec<(i64, PathBuf)> = fs::read_dir(&folder)
            .map_err(|error| fault("reading", &folder, error))?
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.mtime(), entry.path())))
            .collect();
        if kept.len() >= MOST {
            kept.sort();
            kept.iter().take(MOST / 2).for_each(|(_, old)| drop(fs::remove_file(old)));
        }
        self.put_file(held, &folder.join(question.to_string()), answer)
    }

    /// The place of a note, after making sure that no link stands in the way.
    fn note_place(&self, name: &DocPath) -> Result<PathBuf> {
        let mut place = self.private(NOTES);
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

    /// A note's bytes.
    pub fn read_note(&self, name: &DocPath) -> Result<Option<Vec<u8>>> {
        let place = self.note_place(name)?;
        match self.note_options().read(true).open(&place) {
            Ok(mut file) => {
                if file.metadata().is_ok_and(|found| !found.is_file()) {
                    return Err(Error::NotAFile(place));
                }
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).map_err(|error| fault("reading", &place, error))?;
                Ok(Some(bytes))
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(None)
            }
            Err(error) => Err(fault("reading", &place, error)),
        }
    }

    /// Puts a note in place. Who reads it meanwhile sees the old one or the new one; it is not
    /// flushed.
    pub fn put_note(&self, name: &DocPath, bytes: &[u8]) -> Result<()> {
        let place = self.note_place(name)?;
        let folder = place.parent().unwrap_or(&self.root).to_owned();
        let temporary = folder.join(format!("{UNFINISHED}{}", temporary_name()));
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
            fault("writing", &place, error)
        })
    }

    /// Appends a line to a note in one write, without any lock, and flushes it if that is wanted. A
    /// note that has grown past `most` bytes loses the older half of its lines, and none that is
    /// added meanwhile.
    pub fn add_note(&self, name: &DocPath, line: &[u8], most: u64, flush: bool) -> Result<()> {
        let length = self.append_to_note(name, &[line, b"\n"].concat(), flush)?;
        if length > most
            && let Some(_alone) = self.try_lock_by("notes.lock")?
        {
            self.trim_note(name, usize::try_from(most / 2).unwrap_or(usize::MAX))?;
        }
        Ok(())
    }

    /// Appends to a note and returns its length.
    fn append_to_note(&self, name: &DocPath, bytes: &[u8], flush: bool) -> Result<u64> {
        let place = self.note_place(name)?;
        let failed = |error| fault("writing", &place, error);
        let open = || self.note_options().append(true).create(true).open(&place);
        for _ in 0..ATTEMPTS {
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
            // Nobody puts a shorter note in its place meanwhile. Where files cannot be locked, that
            // is seen afterwards.
            let is_locked = lock_soon(|| file.try_lock_shared()) == Some(true);
            if is_locked && file.metadata().map_err(failed)?.nlink() == 0 {
                continue;
            }
            write_whole(&mut file, bytes).map_err(failed)?;
            let found = file.metadata().map_err(failed)?;
            if flush {
                file.sync_data().map_err(failed)?;
                // What it stands in, if it is new.
                if found.len() == bytes.len() as u64 {
                    flushed(place.parent().unwrap_or(&self.root))?;
                }
            }
            if found.nlink() > 0 {
                return Ok(found.len());
            }
        }
        Err(Error::Moved { what: name.to_string() })
    }

    /// Takes the older lines of a note away, so that about `bytes` are left.
    fn trim_note(&self, name: &DocPath, bytes: usize) -> Result<()> {
        let place = self.note_place(name)?;
        let failed = |error| fault("reading", &place, error);
        let mut file = self.note_options().read(true).open(&place).map_err(failed)?;
        // Whoever is adding to it now sees to it that it is trimmed.
        if lock_soon(|| file.try_lock()) == Some(false) {
            return Ok(());
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let from = text.len().saturating_sub(bytes);
        let from = memchr::memchr(b'\n', &text[from..]).map_or(text.len(), |at| from + at + 1);
        self.put_note(name, &text[from..])?;
        // What was added without a lock until the file was replaced; later writers see that it is
        // gone.
        let mut late = Vec::new();
        file.read_to_end(&mut late).map_err(failed)?;
        if !late.is_empty() {
            self.append_to_note(name, &late, true)?;
        }
        Ok(())
    }

    /// The notes in a folder, with when each was last written, in seconds since 1970. What writers
    /// that died an hour ago left is taken away.
    pub fn notes(&self, folder: &DocPath) -> Result<Vec<(DocPath, i64)>> {
        let place = self.note_place(folder)?;
        let entries = match fs::read_dir(&place) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fault("reading", &place, error)),
        };
        let (mut found, mut newest, mut unfinished) = (Vec::new(), 0, Vec::new());
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            newest = newest.max(metadata.mtime());
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            if name.starts_with(UNFINISHED) {
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

    /// Takes a note away.
    pub fn remove_note(&self, name: &DocPath) -> Result<()> {
        let place = self.note_place(name)?;
        match fs::remove_file(&place) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(fault("removing", &place, error))
            }
            _ => Ok(()),
        }
    }

    /// The key for the marks of hidden secrets.
    pub fn read_marker_key(&self) -> Result<Option<MarkerKey>> {
        let place = self.private(MARKER_KEY);
        match self.note_options().read(true).open(&place) {
            Ok(mut file) => {
                let mut text = Vec::new();
                file.read_to_end(&mut text).map_err(|error| fault("reading", &place, error))?;
                MarkerKey::from_hex(&text).map(Some).ok_or(Error::NotAKey(place))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(fault("reading", &place, error)),
        }
    }

    /// Sets the key for the marks of hidden secrets; without `replace` the first one that was set
    /// stays. The file is readable by its owner alone.
    pub fn set_marker_key(&self, key: &MarkerKey, replace: bool) -> Result<MarkerKey> {
        // A lock of its own: whoever opens the vault must not wait for somebody who writes into it.
        let held = self.lock_by("key.lock")?;
        match self.read_marker_key() {
            Ok(Some(known)) if !replace => return Ok(known),
            Ok(_) => {}
            Err(Error::NotAKey(_)) if replace => {}
            Err(error) => return Err(error),
        }
        self.put_file(&held, &self.private(MARKER_KEY), format!("{}\n", key.to_hex()).as_bytes())?;
        Ok(key.clone())
    }

    /// Takes a document away.
    pub fn remove(&self, _held: &Held, path: &DocPath) -> Result<()> {
        let place = self.place(path)?;
        match fs::remove_file(&place) {
            Ok(()) => {
                flushed(place.parent().unwrap_or(&self.root))?;
                self.remove_empty_folders(path);
                Ok(())
            }
            Err(error)
                if error.kind() == ErrorKind::NotFound
                    || error.kind() == ErrorKind::NotADirectory =>
            {
                Ok(())
            }
            Err(error) => Err(fault("removing", &place, error)),
        }
    }

    /// Likewise, if it is what is expected; otherwise it stays and the call fails with
    /// [`Error::Moved`].
    pub fn remove_if(&self, _held: &Held, path: &DocPath, expected: &Expected) -> Result<()> {
        let place = self.place(path)?;
        if !self.remove_place_if(&place, expected)? {
            return Err(Error::Moved { what: path.to_string() });
        }
        self.remove_empty_folders(path);
        Ok(())
    }

    /// A folder that has nothing left in it goes too; those at the top of the vault stay.
    fn remove_empty_folders(&self, path: &DocPath) {
        let folders: Vec<&str> = path.folders().skip(1).collect();
        for folder in folders.iter().rev() {
            let place = self.root.join(folder);
            self.safe.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
            if fs::remove_dir(&place).is_err() {
                break;
            }
        }
    }

    /// Removes a file, if it is what is expected: it is moved away, looked at, and put back if it
    /// is not.
    fn remove_place_if(&self, place: &Path, expected: &Expected) -> Result<bool> {
        let known = match expected.check(place)? {
            Found::Other => return Ok(false),
            Found::Absent => return Ok(true),
            Found::Present(_, look) => look,
        };
        let folder = self.private("tmp");
        self.make_folder(&folder)?;
        let aside = exchange_name(&folder.join(temporary_name()), known, known);
        let failed = |error| fault("removing", place, error);
        match fs::rename(place, &aside) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            other => other.map_err(failed)?,
        }
        let is_expected = match expected.check(&aside)? {
            Found::Present(file, look_then) => {
                flushed(place.parent().unwrap_or(&self.root))?;
                file.metadata().is_ok_and(|found| look(&found) == look_then)
            }
            Found::Absent | Found::Other => false,
        };
        if is_expected {
            let _ = fs::remove_file(&aside);
            return Ok(true);
        }
        if !rename_new(&aside, place).map_err(failed)? {
            self.quarantine(&aside, place)?;
        }
        flushed(place.parent().unwrap_or(&self.root))?;
        Ok(false)
    }

    /// Takes an empty folder away.
    pub fn remove_folder(&self, _held: &Held, path: &DocPath) -> Result<()> {
        let place = self.place(path)?;
        refuse_link(&place)?;
        match fs::remove_dir(&place) {
            Ok(()) => flushed(place.parent().unwrap_or(&self.root)),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(fault("removing", &place, error)),
        }
    }

    /// Removes temporary files of writers that died, and returns where files were moved that
    /// another program had saved in the moment in which their writer died.
    pub fn sweep(&self, _held: &Held) -> Vec<PathBuf> {
        let mut rescued = Vec::new();
        for file in self.temporary_files() {
            // Locked until it is gone, so that no writer takes it for its own meanwhile.
            let Some(_locked) = lock_stale(&file) else { continue };
            let marks = file.extension().and_then(|marks| marks.to_str()?.split_once('-'));
            let is_known = match (marks, look_at(file.clone())) {
                (Some((known, own)), Ok(Some(look))) => {
                    [known, own].contains(&format!("{:016x}", look.mark()).as_str())
                }
                _ => true,
            };
            if is_known {
                let _ = fs::remove_file(file);
            } else {
                rescued.extend(self.quarantine(&file, &file));
            }
        }
        rescued
    }

    /// Whether there are temporary files that no living process is writing. Those of several files
    /// at once, and those that change places with a file, belong to a process that has the vault's
    /// lock; only who has it may count them as stale.
    pub fn has_stale_files(&self) -> bool {
        self.temporary_files().iter().any(|file| lock_stale(file).is_some())
    }

    /// Temporary files that are there now: plain files of the names that are given here, and
    /// nothing else.
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

    /// Removes the index and its companions, which can be made again. The companions first: what
    /// opens the index in between finds an older state of it, never a new index with an old log.
    pub fn remove_index(&self, path: &Path) {
        for suffix in ["-wal", "-shm", "-journal", ""] {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            let name = PathBuf::from(name);
            let _ = if name.is_dir() { fs::remove_dir_all(&name) } else { fs::remove_file(&name) };
        }
    }

    /// Puts a repository that was made apart into its place, whole.
    pub fn install_repository(&self, made: &Path) -> Result<()> {
        let place = self.root.join(".git");
        fs::rename(made, &place).map_err(|error| fault("making", &place, error))?;
        flushed(&self.root)
    }

    /// Puts a small file of the repository in place, whole and flushed.
    pub fn put_git_file(&self, place: &Path, bytes: &[u8]) -> Result<()> {
        let folder = place.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder).map_err(|error| fault("making", folder, error))?;
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
            return Err(fault("writing", place, error));
        }
        flushed(folder)
    }

    /// Removes a file of the repository, if it is there.
    pub fn remove_git_file(&self, place: &Path) -> Result<()> {
        match fs::remove_file(place) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(fault("removing", place, error))
            }
            _ => Ok(()),
        }
    }

    /// The private file of that name that says how far a change of several files is; `None` if
    /// there is none.
    pub fn read_journal(&self, name: &str) -> Result<Option<String>> {
        let place = self.private(name);
        refuse_link(&place)?;
        match fs::read_to_string(&place) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(fault("reading", &place, error)),
        }
    }

    /// Puts it in place, flushed.
    pub fn put_journal(&self, held: &Held, name: &str, text: &str) -> Result<()> {
        self.make_folder(&self.root.join(PRIVATE))?;
        let place = self.private(name);
        refuse_link(&place)?;
        self.put_file(held, &place, text.as_bytes())
    }

    /// Takes it away, flushed.
    pub fn remove_journal(&self, held: &Held, name: &str) -> Result<()> {
        self.remove_place(held, &self.private(name))
    }

    /// Puts bytes into a temporary file that another program is to read.
    pub fn put_temporary(&self, _held: &Held, bytes: &[u8]) -> Result<PathBuf> {
        let folder = self.private("tmp");
        self.make_folder(&folder)?;
        let place = folder.join(temporary_name());
        let written = create_new(&place).and_then(|mut file| write_whole(&mut file, bytes));
        written.map_err(|error| fault("writing", &place, error))?;
        Ok(place)
    }

    /// Removes a folder of our own making. A program that is just ending may still write into it,
    /// so it is tried again.
    pub fn discard(&self, folder: &Path) -> Result<()> {
        const TRIES: u32 = 20;
        refuse_link(folder)?;
        for _ in 0..TRIES {
            match fs::remove_dir_all(folder) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                    std::thread::sleep(LET_GO_PAUSE * 5)
                }
                Err(error) => return Err(fault("removing", folder, error)),
            }
        }
        Err(fault("removing", folder, ErrorKind::DirectoryNotEmpty.into()))
    }

    /// Makes an empty file that is the owner's alone, if there is none; SQLite would let everybody
    /// read it.
    pub fn make_private_file(&self, path: &Path) {
        let _ = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(nofollow())
            .open(path);
    }

    /// Removes lock files that a git left when it died. No git of ours is at work: each holds the
    /// vault's lock as long as it lives, and that lock is ours now. A person's own git is waited
    /// for. Where one could be at work that is not seen, only a repair removes its lock, once it is
    /// old.
    pub fn remove_stale_git_locks(&self, held: &Held, is_repair: bool) -> Result<Vec<PathBuf>> {
        const WAITS: u32 = 40;
        let mut removed = Vec::new();
        for lock in self.git_locks() {
            let mut waits = 0;
            while let Some(found) = look_at(lock.clone())? {
                let age = held.time().map(|now| now.0 - found.mtime.0).filter(|age| *age >= 0);
                if age.is_some_and(|age| is_lock_stale(age, is_git_at_work(&self.root), is_repair))
                {
                    self.remove_git_file(&lock)?;
                    removed.push(lock);
                    break;
                }
                if waits == WAITS {
                    return Err(Error::GitAtWork { lock });
                }
                waits += 1;
                std::thread::sleep(LET_GO_PAUSE * 10);
            }
        }
        Ok(removed)
    }

    /// The lock files of the repository: those beside its own files and those of its branches.
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

    /// Every document below a folder, sorted. Hidden files and folders, and names no path can have,
    /// are passed over.
    pub fn documents(&self, under: &str) -> Result<Vec<DocPath>> {
        let mut found = Vec::new();
        if let Ok(folder) = under.trim_end_matches('/').parse::<DocPath>() {
            refuse_link(&self.place(&folder)?)?;
        }
        let mut folders = vec![under.trim_end_matches('/').to_owned()];
        while let Some(folder) = folders.pop() {
            let place = self.root.join(&folder);
            let entries = match fs::read_dir(&place) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(fault("reading", &place, error)),
            };
            for entry in entries {
                let entry = entry.map_err(|error| fault("reading", &place, error))?;
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

    /// Every file of the vault, hidden and private ones included, with its bytes' place; sorted.
    /// Links are not followed, and another vault or repository within is not ours.
    pub fn everything(&self) -> Result<Vec<(String, PathBuf)>> {
        let mut found = Vec::new();
        let mut folders = vec![(String::new(), self.root.clone())];
        while let Some((name, place)) = folders.pop() {
            let entries = match fs::read_dir(&place) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(fault("reading", &place, error)),
            };
            for entry in entries {
                let entry = entry.map_err(|error| fault("reading", &place, error))?;
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

    /// The bytes of a file that `everything` named; `None` if it is gone since.
    pub fn read_place(&self, place: &Path) -> Result<Option<Vec<u8>>> {
        match fs::read(place) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => read.map(Some).map_err(|error| fault("reading", place, error)),
        }
    }

    /// Puts other bytes in its place, whole, if it still holds these.
    pub fn replace_place(
        &self,
        held: &Held,
        place: &Path,
        bytes: &[u8],
        known: &[u8],
    ) -> Result<()> {
        refuse_link(place)?;
        self.put_file_if(held, place, bytes, &Expected::Content(ContentVersion::of(Some(known))))
    }

    /// Takes it away, if it still holds these bytes.
    pub fn remove_place_with(&self, _held: &Held, place: &Path, known: &[u8]) -> Result<()> {
        if !self.remove_place_if(place, &Expected::Content(ContentVersion::of(Some(known))))? {
            return Err(Error::Moved {
                what: place.strip_prefix(&self.root).unwrap_or(place).display().to_string(),
            });
        }
        self.remove_empty_folders_above(place)
    }

    /// Takes it away, with its folder if nothing is left there; folders at the top stay.
    pub fn remove_place(&self, _held: &Held, place: &Path) -> Result<()> {
        match fs::remove_file(place) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(fault("removing", place, error))
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
            self.safe.lock().unwrap_or_else(PoisonError::into_inner).remove(folder);
            if fs::remove_dir(folder).is_err() {
                break;
            }
            last = folder.parent().unwrap_or(&self.root);
        }
        flushed(last)
    }

    /// Puts a repository that was made apart in place of the one that is there, at once where the
    /// system can; the old one is then where the new one was. What a person put beside it is copied
    /// first, so that the old one is whole until then.
    pub fn exchange_repository(&self, made: &Path) -> Result<()> {
        let place = self.root.join(".git");
        for name in ["config", "description", "hooks", "info"] {
            copy_over(&place.join(name), &made.join(name))?;
        }
        flushed(made)?;
        if exchange(made, &place).is_err() {
            let aside = made.with_extension(REPLACED);
            fs::rename(&place, &aside)
                .and_then(|()| fs::rename(made, &place))
                .map_err(|error| fault("making", &place, error))?;
        }
        flushed(&self.root)
    }

    /// Whether the repository was being exchanged, in two steps, by a run that died between them.
    pub fn has_lost_repository(&self, made: &Path) -> bool {
        self.root.join(".git").symlink_metadata().is_err() && made.with_extension(REPLACED).is_dir()
    }

    /// Puts the old one back.
    pub fn bring_repository_back(&self, _held: &Held, made: &Path) -> Result<()> {
        if !self.has_lost_repository(made) {
            return Ok(());
        }
        let place = self.root.join(".git");
        fs::rename(made.with_extension(REPLACED), &place)
            .map_err(|error| fault("making", &place, error))?;
        flushed(&self.root)
    }

    /// Makes the folder of a vault that does not exist yet.
    pub fn make_root(&self) -> Result<()> {
        self.make_folder(&self.root)
    }

    fn make_folders(&self, path: &DocPath) -> Result<()> {
        path.folders().try_for_each(|folder| self.make_folder(&self.root.join(folder)))
    }

    /// Makes a folder and every missing one above it, and flushes the one each new folder stands
    /// in.
    pub fn make_folder(&self, folder: &Path) -> Result<()> {
        match DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => flushed(folder.parent().unwrap_or(folder)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // The vault itself may be reached by a link; nothing inside it is.
                let link = folder != self.root
                    && fs::symlink_metadata(folder)
                        .is_ok_and(|found| found.file_type().is_symlink());
                if link { Err(Error::Link(folder.to_owned())) } else { Ok(()) }
            }
            Err(error) => match folder.parent() {
                // A folder above it is missing too; if they are all there, the system has another
                // reason.
                Some(above)
                    if error.kind() == ErrorKind::NotFound
                        && !above.as_os_str().is_empty()
                        && !above.exists() =>
                {
                    self.make_folder(above)?;
                    self.make_folder(folder)
                }
                _ => Err(fault("making the folder", folder, error)),
            },
        }
    }
}

/// Copies a file, a link, or a folder with everything in it, and flushes it; what stands there
/// before goes.
fn copy_over(from: &Path, to: &Path) -> Result<()> {
    let failed = |error| fault("copying", from, error);
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
        return flushed(to);
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

/// Whether the git that made a lock is dead. `is_at_work` is `None` if not every process can be
/// seen.
fn is_lock_stale(age_secs: i64, is_at_work: Option<bool>, is_repair: bool) -> bool {
    /// A git whose lock is younger may not have been seen yet.
    const SEEN_SECS: i64 = 2;
    const UNSEEN_REPAIR_SECS: i64 = 60;
    /// In a container, say: no git of a person's waits that long in an editor without being
    /// noticed.
    const UNSEEN_SECS: i64 = 3_600;
    match is_at_work {
        Some(is_at_work) => !is_at_work && age_secs >= SEEN_SECS,
        None => age_secs >= if is_repair { UNSEEN_REPAIR_SECS } else { UNSEEN_SECS },
    }
}

/// Whether a git is running in this folder or below it, whoever started it; `None` if that cannot
/// be known, because processes of another user, or those outside of a container, cannot be looked
/// at.
fn is_git_at_work(root: &Path) -> Option<bool> {
    /// The name of the namespace that has every process in it.
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

/// Lets two files or folders change places at once.
fn exchange(one: &Path, other: &Path) -> io::Result<()> {
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

/// Gives a file another name, unless something has it; then false.
fn rename_new(from: &Path, to: &Path) -> io::Result<bool> {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::EXIST) => return Ok(false),
            // Not every file system can do that.
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

/// A name that no other thread or living process has for a temporary file.
fn temporary_name() -> String {
    format!("{}-{:08x}", std::process::id(), TEMPORARY_FILES.fetch_add(1, Ordering::Relaxed))
}

/// The name of a temporary file that changes places with another: either of the two looks, as
/// numbers, is of a file that may go.
fn exchange_name(temporary: &Path, known: Look, own: Look) -> PathBuf {
    temporary.with_extension(format!("{:016x}-{:016x}", known.mark(), own.mark()))
}

/// Locks a file that others have for a moment at most; whether that succeeds. `None` if files
/// cannot be locked here.
fn lock_soon(lock: impl Fn() -> std::result::Result<(), TryLockError>) -> Option<bool> {
    for _ in 0..LET_GO {
        match lock() {
            Ok(()) => return Some(true),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LET_GO_PAUSE),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    Some(false)
}

/// Locks a temporary file, if no living process has it open.
fn lock_stale(file: &Path) -> Option<File> {
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

fn flushed(folder: &Path) -> Result<()> {
    sync_folder(folder).map_err(|error| fault("flushing", folder, error))
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

/// Likewise, and without waiting for the other end of a pipe that stands there.
fn nonblock() -> i32 {
    nofollow() | i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0)
}

/// How many of these pieces, which are in order, are read in one go, and where the last of them
/// ends.
fn close_together(pieces: impl Iterator<Item = (u64, usize)>) -> (usize, u64) {
    let (mut many, mut start, mut end) = (0, 0_u64, 0_u64);
    for (offset, len) in pieces {
        let last = offset.saturating_add(len as u64);
        if many == 0 {
            start = offset;
        } else if offset > end.saturating_add(BYTES_PER_CALL)
            || last.saturating_sub(start) > STRETCH_BYTES
        {
            break;
        }
        (many, end) = (many + 1, last.max(end));
    }
    (many, end)
}

fn look_at(place: PathBuf) -> Result<Option<Look>> {
    match fs::symlink_metadata(&place) {
        Ok(found) if found.file_type().is_symlink() => Err(Error::Link(place)),
        Ok(found) => Ok(Some(look(&found))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fault("looking at", &place, error)),
    }
}

/// Likewise of a file in an open folder; the error is `None` for a link.
fn look_within(folder: &File, name: &str) -> std::result::Result<Option<Look>, Option<io::Error>> {
    // The fields have other types on other systems.
    fn number<T: TryInto<i64>>(field: T) -> i64 {
        field.try_into().unwrap_or(0)
    }
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Symlink => Err(None),
        Ok(found) => Ok(Some(Look {
            len: u64::try_from(number(found.st_size)).unwrap_or(0),
            mtime: (number(found.st_mtime), number(found.st_mtime_nsec)),
            inode: found.st_ino,
        })),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(Some(error.into())),
    }
}

fn look(found: &fs::Metadata) -> Look {
    Look { len: found.len(), mtime: (found.mtime(), found.mtime_nsec()), inode: found.ino() }
}

fn last_byte(file: &File, len: u64) -> io::Result<u8> {
    let mut byte = [0];
    file.read_exact_at(&mut byte, len - 1)?;
    Ok(byte[0])
}

/// Whether a file ends with these bytes, from `at` on.
fn ends_with(file: &File, at: u64, bytes: &[u8]) -> io::Result<bool> {
    Ok(holds(file, at, bytes)? && file.metadata()?.len() == at + bytes.len() as u64)
}

/// Whether these bytes stand at `at`.
fn holds(file: &File, at: u64, bytes: &[u8]) -> io::Result<bool> {
    let mut found = vec![0; bytes.len()];
    match file.read_exact_at(&mut found, at) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        other => other.map(|()| found == bytes),
    }
}

/// What must still stand at a place for it to be replaced or removed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expected {
    /// These bytes, or nothing.
    Content(ContentVersion),
    /// A file that looks like that.
    Look(Look),
}

/// What stands at a place.
enum Found {
    /// Nothing, as expected.
    Absent,
    /// What was expected; what it looked like before it was read.
    Present(File, Look),
    /// Something else.
    Other,
}

/// What became of a temporary file that was to be put in place.
enum Placed {
    /// It is in place, and nothing has to be looked at any more.
    New,
    /// It is in place; what stood there is at `aside`.
    Exchanged { aside: PathBuf, old: (File, Look), own: Look },
    /// Something else than expected stands there, and stays.
    Refused,
}

impl Expected {
    fn check(&self, place: &Path) -> Result<Found> {
        let failed = |error| fault("reading", place, error);
        let mut file = match OpenOptions::new().read(true).custom_flags(nonblock()).open(place) {
            Ok(file) => file,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                let is_expected =
                    matches!(self, Self::Content(version) if *version == ContentVersion::ABSENT);
                return Ok(if is_expected { Found::Absent } else { Found::Other });
            }
            Err(error) => return Err(failed(error)),
        };
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(Error::NotAFile(place.to_owned()));
        }
        let look = look(&found);
        let is_expected = match self {
            Self::Look(expected) => look == *expected,
            Self::Content(version) => {
                let mut bytes = Vec::with_capacity(usize::try_from(look.len).unwrap_or(0) + 1);
                file.read_to_end(&mut bytes).map_err(failed)?;
                *version == ContentVersion::of(Some(&bytes))
            }
        };
        Ok(if is_expected { Found::Present(file, look) } else { Found::Other })
    }
}

/// One append to a file that programs without our lock may append to as well.
struct Append<'a> {
    place: PathBuf,
    /// Whether the file was made for it.
    is_new: bool,
    /// The file's length before the write.
    before: u64,
    /// Whether the last line had no end, so that the bytes begin with one.
    is_unended: bool,
    bytes: Cow<'a, [u8]>,
    /// How many bytes the system accepted.
    written: usize,
    /// Where they are, as (start, length) of each accepted part.
    parts: Vec<(u64, usize)>,
}

impl Append<'_> {
    /// One write, unless the system takes only a part of it: then the rest follows. Only an
    /// interruption is tried again.
    fn write(&mut self, file: &mut File) -> io::Result<()> {
        while self.written < self.bytes.len() {
            match file.write(&self.bytes[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    let written = written.min(self.bytes.len() - self.written);
                    self.written += written;
                    // An appending write leaves the position right behind what it wrote, whatever
                    // others append.
                    let end = file.stream_position()?;
                    self.parts.push((end.saturating_sub(written as u64), written));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Where the text starts, and the file's metadata if nothing else was written meanwhile. A file
    /// that is longer than expected is not a failed write: another program appended too, before or
    /// behind our bytes. `None` if the write has to be taken back and tried again: another
    /// program's line got into the middle of it or has no end before it, or the file was replaced
    /// since it was opened.
    fn locate(&self, file: &File) -> io::Result<Option<PlacedBytes>> {
        let after = file.metadata()?;
        if after.nlink() == 0 {
            return Ok(None);
        }
        let text = |start: u64| start + u64::from(self.is_unended);
        if after.len() == self.before + self.bytes.len() as u64 {
            return Ok(Some((text(self.before), Some(look(&after)))));
        }
        let Some(&(start, _)) = self.parts.first() else { return Ok(Some((after.len(), None))) };
        let mut at = 0;
        for &(part, length) in &self.parts {
            if self.is_before(file, part, length)?
                || !holds(file, part, &self.bytes[at..at + length])?
            {
                return Err(io::Error::new(
                    ErrorKind::WriteZero,
                    "not all of the line arrived in the file",
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

    /// Whether what stands there stood there before the write, from a system that accepted bytes
    /// and wrote none. It did not if the file was cut short since: it is shorter, or ends with what
    /// was written.
    fn is_before(&self, file: &File, start: u64, length: usize) -> io::Result<bool> {
        let len = file.metadata()?.len();
        let is_cut_short = len < self.before || len > self.before && start + length as u64 == len;
        Ok(start < self.before && !is_cut_short)
    }

    /// Takes the bytes out of the file again. They are cut off where they are its end, and blanked
    /// where another program's lines follow them.
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
            } else if holds(file, start, own).unwrap_or(false) {
                let mut blank = vec![b' '; length];
                // What stands before and behind it are lines of their own.
                blank[0] = b'\n';
                blank[length - 1] = b'\n';
                let _ = file.write_all_at(&blank, start);
            }
        }
    }
}

/// The system's error as ours.
pub(crate) fn fault(what: &'static str, path: &Path, source: io::Error) -> Error {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::Full { path },
        // What the system says when it was told not to follow a link.
        _ if source.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            Error::Link(path)
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Error::Denied { what, path },
        ErrorKind::IsADirectory => Error::NotAFile(path),
        _ => Error::Io { what, path, reason: source },
    }
}

/// Writes all of it. Only an interruption is tried again.
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

    /// A file with this text, and an append of these bytes to it that is about to be written.
    fn prepare<'a>(folder: &Path, text: &str, bytes: &'a [u8]) -> (File, Append<'a>) {
        let place = folder.join("file");
        fs::write(&place, text).unwrap();
        let file = OpenOptions::new().read(true).append(true).open(&place).unwrap();
        let append = Append {
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

    /// Writes only the next `length` bytes, as a system does that accepts a part of a write.
    fn write_part(append: &mut Append<'_>, file: &mut File, length: usize) {
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
        // An editor cut the file short between the look at it and the write: the bytes are there
        // and count, or are erased.
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
        // A system that accepts bytes and writes none: what stands at the beginning of the file
        // looks like ours.
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
        // What another program appends before, in the middle of and behind our bytes, and where
        // these are then.
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

    // A write to several files that is refused leaves nothing of it in any of them, and no empty
    // file, few or many
    #[test]
    fn a_refused_write_to_many_files_leaves_none_of_it() {
        for many in [3, 15, MOST_OPEN + 5] {
            let folder = tempfile::TempDir::new().unwrap();
            let door = Door::new(folder.path().join("vault"));
            door.make_root().unwrap();
            let held = door.lock().unwrap();
            let texts: Vec<(DocPath, Vec<u8>)> = (0..many)
                .map(|n| {
                    (format!("memory/messages/{n:04}.jsonl").parse().unwrap(), b"line\n".to_vec())
                })
                .collect();
            door.append(&held, &texts[0].0, b"known\n").unwrap();
            // The last of them cannot be written.
            fs::create_dir(door.root().join(texts[many - 1].0.as_str())).unwrap();
            assert!(matches!(door.append_many(&held, &texts), Err(Error::NotAFile(_))));
            let files = door.looks("memory/messages").unwrap();
            assert_eq!(
                files.iter().map(|(path, _)| path).collect::<Vec<_>>(),
                [&texts[0].0],
                "{many}"
            );
            assert_eq!(door.read(&texts[0].0).unwrap().unwrap(), b"known\n");
        }
    }
}
