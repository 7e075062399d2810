//! The vault's one door: the only code that changes files.
//!
//! Its promise, which everything above relies on: when a call returns `Ok`, the change is on the disk, file
//! and folder; when it returns an error or the process dies, the file is what it was, or (after a death in
//! the middle of an append) has one torn last line that the next opening sets aside. A failed flush is never
//! tried again on the same data: the write is refused and what was appended is cut off.
#![expect(clippy::disallowed_methods, reason = "this is the door")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{DefaultHasher, Hash as _, Hasher};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use icecore_domain::hash::Hash;
use icecore_domain::layout::{CONFIG, DocPath, PRIVATE};
use icecore_domain::secrets::MarkerKey;
use rustix::fs::{AtFlags, FileType, OFlags};

use super::BYTES_PER_CALL;
use crate::{Error, MARKER_KEY, Result, Weight};

/// How long a writer waits for others, as a number of waits of a few milliseconds: about half a minute.
const LOCK_WAITS: u32 = 3_000;
/// Likewise for somebody who cannot wait.
const HURRIED_WAITS: u32 = 100;
/// Threads of this process wait as long for each other as processes do.
const MOST_WAIT: Duration = Duration::from_secs(33);

/// Up to so many files are flushed one by one; more are flushed together.
const FEW: usize = 4;
/// So often it is looked whether a lock that somebody seems to have is free, and how long it is waited between.
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

/// Proof that this process alone may write. The lock is the operating system's, so it ends with the process.
#[derive(Debug)]
pub(super) struct Held {
    lock: File,
    /// Kept until the file's lock is given back: fields are dropped in their order.
    _turn: Option<Turn>,
}

/// Where the threads of this process wait for each other. Only one of them then asks the operating system, which can only be
/// asked again and again.
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
        let (mut is_taken, _) =
            self.given_back.wait_timeout_while(is_taken, most, |is_taken| *is_taken).unwrap_or_else(PoisonError::into_inner);
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
        jiff::Timestamp::new(self.mtime.0, i32::try_from(self.mtime.1).unwrap_or(0)).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
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

    /// Makes sure that nothing private is a link: what is swept, made anew or written there must be the vault's own.
    pub fn guard_private(&self) -> Result<()> {
        let names =
            ["tmp", "quarantine", ANSWERS, NOTES, MARKER_KEY, "lock", "check.lock", "index.db", "index.db-wal", "index.db-shm", "check.db"];
        let places = names.map(|name| self.private(name));
        std::iter::once(&self.root.join(PRIVATE)).chain(&places).try_for_each(|place| refuse_link(place))
    }

    /// Waits until nobody else writes.
    pub fn lock(&self) -> Result<Held> {
        self.lock_by("lock")
    }

    /// Waits until nobody else holds the lock of that name.
    pub fn lock_by(&self, name: &str) -> Result<Held> {
        let queue = self.queues.lock().unwrap_or_else(PoisonError::into_inner).entry(name.to_owned()).or_default().clone();
        let Some(turn) = queue.enter(MOST_WAIT) else { return Err(Error::Busy { vault: self.root.clone() }) };
        let (file, path) = self.lock_file(name)?;
        for wait in 0..self.waits {
            match file.try_lock() {
                Ok(()) => return Ok(Held { lock: file, _turn: Some(turn) }),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(u64::from(wait.min(10)) + 1)),
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => return Err(fault("locking", &path, error)),
            }
        }
        Err(Error::Busy { vault: self.root.clone() })
    }

    /// Takes the lock of that name; `None` if somebody has it.
    pub fn try_lock_by(&self, name: &str) -> Result<Option<Held>> {
        let (file, path) = self.lock_file(name)?;
        // One that was just let go may be held for a moment by a program that is being started: it has what we had until it begins.
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
        // Opening has looked at everything; this is for what somebody put there since.
        refuse_link(&self.root.join(PRIVATE))?;
        refuse_link(&self.private("tmp"))?;
        let path = self.private(name);
        let open = || OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).custom_flags(nofollow()).open(&path);
        let file = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.make_folder(&self.root.join(PRIVATE))?;
                open()
            }
            other => other,
        };
        let file = file.map_err(|error| fault("opening", &path, error))?;
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
        // Not to wait for the other end of a pipe that somebody put there.
        let flags = nofollow() | i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        match OpenOptions::new().read(true).custom_flags(flags).open(&place) {
            Ok(file) if file.metadata().is_ok_and(|found| !found.is_file()) => Err(Error::NotAFile(place)),
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound || error.kind() == ErrorKind::NotADirectory => Ok(None),
            Err(error) => Err(fault("reading", &place, error)),
        }
    }

    /// A document's bytes.
    pub fn read(&self, path: &DocPath) -> Result<Option<Vec<u8>>> {
        let Some(mut file) = self.open(path)? else { return Ok(None) };
        let mut bytes = Vec::with_capacity(file.metadata().map_or(0, |found| usize::try_from(found.len()).unwrap_or(0) + 1));
        file.read_to_end(&mut bytes).map_err(|error| fault("reading", &self.root.join(path.as_str()), error))?;
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
                    Some(folder) => look_within(folder, path.name()).map_err(|error| match error {
                        Some(error) => fault("looking at", &self.root.join(path.as_str()), error),
                        None => Error::Link(self.root.join(path.as_str())),
                    })?,
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
            let Some(path) = entry.file_name().to_str().and_then(|name| format!("{folder}/{name}").parse::<DocPath>().ok()) else {
                continue;
            };
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => found.push((path, look(&metadata))),
                _ => {}
            }
        }
        Ok(found)
    }

    /// A number that is another one whenever a file in these folders is, or is new, or is gone; with `true`, also below them.
    pub fn glance(&self, folders: &[(&str, bool)]) -> Result<u64> {
        let mut seen = DefaultHasher::new();
        let mut open: Vec<(PathBuf, bool)> = folders.iter().map(|(folder, deep)| (self.root.join(folder), *deep)).collect();
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
                // What is in `memory` is told one by one: most of a vault is there. Its logs are one a day, and one part.
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

    /// The pieces of a document at these places, in their order. Those that stand close together are read in one go.
    pub fn read_pieces(&self, path: &DocPath, pieces: &[(u64, usize)]) -> Result<Vec<Vec<u8>>> {
        let place = self.root.join(path.as_str());
        let Some(file) = self.open(path)? else { return Err(fault("reading", &place, ErrorKind::NotFound.into())) };
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        order.sort_by_key(|&at| pieces[at].0);
        let mut found = vec![Vec::new(); pieces.len()];
        let mut stretch = Vec::new();
        let mut rest = order.as_slice();
        while let Some(&first) = rest.first() {
            let start = pieces[first].0;
            let (many, end) = close_together(rest.iter().map(|&at| pieces[at]));
            stretch.resize(usize::try_from(end - start).unwrap_or(usize::MAX), 0);
            file.read_exact_at(&mut stretch, start).map_err(|error| fault("reading", &place, error))?;
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

    /// The bytes after the last line break, with where they start; the last line must not be longer than a few megabytes.
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

    /// Likewise, once nobody goes on writing it: a program that appends piece by piece, without our lock, gets half a
    /// second before its line counts as torn.
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

    /// Appends `bytes` in one write and flushes them. If the file's last line has no end, it gets one first.
    /// Returns where `bytes` starts and the file's metadata, or `None` for the metadata if another program, which does not know
    /// our lock, appended at the same time: the index then reads the file again instead of trusting this write.
    pub fn append(&self, _held: &Held, path: &DocPath, bytes: &[u8]) -> Result<(u64, Option<Look>)> {
        let place = self.place(path)?;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600).custom_flags(nofollow());
        let opened = match options.open(&place) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.make_folders(path)?;
                options.open(&place)
            }
            other => other,
        };
        let mut file = opened.map_err(|error| fault("opening", &place, error))?;
        let failed = |error| fault("writing", &place, error);
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(Error::NotAFile(place));
        }
        let before = found.len();
        if before == 0 {
            // New, or made by somebody who died before its folders were flushed. Nothing is written into it before
            // they are, so a file with something in it has them flushed.
            self.flush_folders(path)?;
        }
        let unended = before > 0 && last_byte(&file, before).map_err(failed)? != b'\n';
        let whole = if unended { [b"\n", bytes].concat() } else { bytes.to_vec() };
        let mut append = Append { before, written: 0 };
        let outcome = append.write(&mut file, &whole).and_then(|()| file.sync_data()).and_then(|()| append.locate(&file, &whole));
        match outcome {
            Ok((start, look)) => Ok((start + u64::from(unended), look)),
            Err(error) => {
                append.roll_back(&file, &whole);
                Err(failed(error))
            }
        }
    }

    /// Appends to many documents and flushes them together: all of it is there when this returns, or none of it. Each must end
    /// with a line break, if it has anything. Returns the same as [`Self::append`] for each text.
    pub fn append_many(&self, held: &Held, texts: &[(DocPath, Vec<u8>)]) -> Result<Vec<(u64, Option<Look>)>> {
        if texts.len() <= FEW {
            return texts.iter().map(|(path, text)| self.append(held, path, text)).collect();
        }
        // There may be more files than a process may have open.
        if texts.len() > MOST_OPEN {
            return texts
                .chunks(MOST_OPEN)
                .map(|some| self.append_many(held, some))
                .collect::<Result<Vec<_>>>()
                .map(|looks| looks.concat());
        }
        let mut written: Vec<(File, PathBuf, Append)> = Vec::with_capacity(texts.len());
        let outcome = texts.iter().try_for_each(|(path, text)| {
            let place = self.place(path)?;
            self.make_folders(path)?;
            let mut options = OpenOptions::new();
            options.read(true).append(true).create(true).mode(0o600).custom_flags(nofollow());
            let mut file = options.open(&place).map_err(|error| fault("opening", &place, error))?;
            let before = file.metadata().map_err(|error| fault("writing", &place, error))?.len();
            let mut append = Append { before, written: 0 };
            let done = append.write(&mut file, text).map_err(|error| fault("writing", &place, error));
            written.push((file, place, append));
            done
        });
        let outcome = outcome.and_then(|()| self.flush_all(&written));
        let looks = outcome.and_then(|()| {
            written
                .iter()
                .zip(texts)
                .map(|((file, place, append), (_, text))| append.locate(file, text).map_err(|error| fault("writing", place, error)))
                .collect()
        });
        if looks.is_err() {
            // As with a single line: what was refused must not turn up later.
            for ((file, _, append), (_, text)) in written.iter().zip(texts) {
                append.roll_back(file, text);
            }
        }
        looks
    }

    /// Flushes files and the folders they stand in: with one call for the whole file system, where there is one.
    fn flush_all(&self, written: &[(File, PathBuf, Append)]) -> Result<()> {
        #[cfg(target_os = "linux")]
        {
            let _ = written;
            let root = File::open(&self.root).map_err(|error| fault("flushing", &self.root, error))?;
            rustix::fs::syncfs(&root).map_err(|error| fault("flushing", &self.root, error.into()))
        }
        #[cfg(not(target_os = "linux"))]
        {
            for (file, place, _) in written {
                file.sync_all().map_err(|error| fault("writing", place, error))?;
                flushed(place.parent().unwrap_or(&self.root))?;
            }
            Ok(())
        }
    }

    /// Cuts a document back to `len` bytes.
    pub fn cut(&self, _held: &Held, path: &DocPath, len: u64) -> Result<()> {
        let place = self.place(path)?;
        let cut = || {
            let file = OpenOptions::new().write(true).custom_flags(nofollow()).open(&place)?;
            file.set_len(len)?;
            file.sync_all()
        };
        cut().map_err(|error| fault("mending", &place, error))
    }

    /// Puts a document in place whole: a temporary file, flushed, renamed, and the folder flushed.
    pub fn replace(&self, held: &Held, path: &DocPath, bytes: &[u8]) -> Result<()> {
        let place = self.place(path)?;
        if fs::symlink_metadata(&place).is_ok_and(|found| found.file_type().is_symlink()) {
            return Err(Error::Link(place));
        }
        self.make_folders(path)?;
        if !place.exists() {
            self.flush_folders(path)?;
        }
        self.put_file(held, &place, bytes)
    }

    /// Likewise for many documents, flushed together: when this returns all of them are in place; after a crash each is what
    /// it was or what it is to be.
    pub fn replace_many(&self, held: &Held, documents: &[(DocPath, Vec<u8>)]) -> Result<()> {
        if documents.len() <= FEW {
            return documents.iter().try_for_each(|(path, bytes)| self.replace(held, path, bytes));
        }
        let folder = self.private("tmp");
        self.make_folder(&folder)?;
        let mut made: Vec<(PathBuf, PathBuf)> = Vec::with_capacity(documents.len());
        let outcome = documents.iter().enumerate().try_for_each(|(at, (path, bytes))| {
            let place = self.place(path)?;
            refuse_link(&place)?;
            self.make_folders(path)?;
            // By number: the names of very many files may share their hashes.
            let temporary = folder.join(format!("{}-{at:08x}", std::process::id()));
            let _ = fs::remove_file(&temporary);
            made.push((temporary.clone(), place.clone()));
            // Each is closed again: there may be more of them than a process may have open.
            let written = (|| {
                let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(nofollow()).open(&temporary)?;
                write_whole(&mut file, bytes)?;
                if !cfg!(target_os = "linux") {
                    file.sync_all()?;
                }
                if file.metadata()?.len() != bytes.len() as u64 {
                    return Err(io::Error::new(ErrorKind::WriteZero, "not all of it arrived in the file"));
                }
                Ok(())
            })();
            written.map_err(|error| fault("writing", &place, error))
        });
        let outcome = outcome.and_then(|()| self.flush_all(&[])).and_then(|()| {
            made.iter().try_for_each(|(temporary, place)| fs::rename(temporary, place).map_err(|error| fault("writing", place, error)))
        });
        if outcome.is_err() {
            made.iter().for_each(|(temporary, _)| drop(fs::remove_file(temporary)));
        }
        outcome.and_then(|()| self.flush_all(&[]))?;
        if !cfg!(target_os = "linux") {
            let folders: HashSet<&Path> = made.iter().filter_map(|(_, place)| place.parent()).collect();
            folders.into_iter().try_for_each(flushed)?;
        }
        Ok(())
    }

    fn temporary(&self, folder: &Path, place: &Path) -> PathBuf {
        folder.join(format!("{}-{}", std::process::id(), Hash::of(place.as_os_str().as_encoded_bytes()).short()))
    }

    /// Flushes every folder from the vault down to the document's own. Those above it need it once.
    fn flush_folders(&self, path: &DocPath) -> Result<()> {
        let places: Vec<PathBuf> = std::iter::once(self.root.clone()).chain(path.folders().map(|folder| self.root.join(folder))).collect();
        let own = places.len() - 1;
        for (at, place) in places.iter().enumerate() {
            // That a folder is in the one above it is known once the one above was flushed with it there.
            let below_is_safe = at < own && self.safe.lock().unwrap_or_else(PoisonError::into_inner).contains(&places[at + 1]);
            if !below_is_safe {
                flushed(place)?;
            }
            if at < own {
                self.safe.lock().unwrap_or_else(PoisonError::into_inner).insert(places[at + 1].clone());
            }
        }
        Ok(())
    }

    fn put_file(&self, _held: &Held, place: &Path, bytes: &[u8]) -> Result<()> {
        let folder = self.private("tmp");
        self.make_folder(&folder)?;
        let temporary = self.temporary(&folder, place);
        let _ = fs::remove_file(&temporary);
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(nofollow()).open(&temporary)?;
            write_whole(&mut file, bytes)?;
            file.sync_all()?;
            if file.metadata()?.len() != bytes.len() as u64 {
                return Err(io::Error::new(ErrorKind::WriteZero, "not all of it arrived in the file"));
            }
            fs::rename(&temporary, place)
        })();
        if let Err(error) = written {
            let _ = fs::remove_file(&temporary);
            return Err(fault("writing", place, error));
        }
        flushed(place.parent().unwrap_or(&self.root))
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
        options.mode(0o600).custom_flags(nofollow() | i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0));
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
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(fault("reading", &place, error)),
        }
    }

    /// Puts a note in place. Whoever reads meanwhile sees the old one or the new one; it is not flushed.
    pub fn put_note(&self, name: &DocPath, bytes: &[u8]) -> Result<()> {
        let place = self.note_place(name)?;
        let folder = place.parent().unwrap_or(&self.root).to_owned();
        let temporary = folder.join(format!("{UNFINISHED}{}-{}", std::process::id(), Hash::of(name.as_str().as_bytes()).short()));
        let write = || {
            let mut file = self.note_options().write(true).create(true).truncate(true).open(&temporary)?;
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

    /// Appends a line to a note in one write, without any lock, and flushes it if that is wanted. A note that has grown past `most`
    /// bytes loses the older half of its lines.
    pub fn add_note(&self, name: &DocPath, line: &[u8], most: u64, flush: bool) -> Result<()> {
        let place = self.note_place(name)?;
        let failed = |error| fault("writing", &place, error);
        let open = || self.note_options().append(true).create(true).open(&place);
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
        write_whole(&mut file, &[line, b"\n"].concat()).map_err(failed)?;
        if flush {
            file.sync_data().map_err(failed)?;
        }
        if file.metadata().is_ok_and(|found| found.len() > most)
            && let Some(_alone) = self.try_lock_by("notes.lock")?
            && let Some(bytes) = self.read_note(name)?
        {
            let half = usize::try_from(most / 2).unwrap_or(usize::MAX);
            let from = bytes.len().saturating_sub(half);
            let from = memchr::memchr(b'\n', &bytes[from..]).map_or(bytes.len(), |at| from + at + 1);
            self.put_note(name, &bytes[from..])?;
        }
        Ok(())
    }

    /// The notes in a folder, with when each was last written, in seconds since 1970. What writers that died an hour ago left is
    /// taken away.
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
            Err(error) if error.kind() != ErrorKind::NotFound => Err(fault("removing", &place, error)),
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

    /// Sets the key for the marks of hidden secrets; without `replace` the first one that was set stays. The file is readable
    /// by its owner alone.
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
                // A folder that has nothing left in it goes too; those at the top of the vault stay.
                let folders: Vec<&str> = path.folders().skip(1).collect();
                for folder in folders.iter().rev() {
                    let place = self.root.join(folder);
                    self.safe.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
                    if fs::remove_dir(&place).is_err() {
                        break;
                    }
                }
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::NotFound || error.kind() == ErrorKind::NotADirectory => Ok(()),
            Err(error) => Err(fault("removing", &place, error)),
        }
    }

    /// Takes an empty folder away.
    pub fn remove_folder(&self, _held: &Held, path: &DocPath) -> Result<()> {
        let place = self.place(path)?;
        refuse_link(&place)?;
        match fs::remove_dir(&place) {
            Ok(()) => flushed(place.parent().unwrap_or(&self.root)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory) => Ok(()),
            Err(error) => Err(fault("removing", &place, error)),
        }
    }

    /// Removes temporary files of writers that died. Whoever holds the lock is the only writer, so every one is stale.
    pub fn sweep(&self, _held: &Held) {
        for stale in self.temporary_files() {
            let _ = fs::remove_file(stale);
        }
    }

    /// Temporary files that are there now: plain files of the names that `put_file` gives, and nothing else.
    pub fn temporary_files(&self) -> Vec<PathBuf> {
        let Ok(found) = fs::read_dir(self.private("tmp")) else { return Vec::new() };
        let ours = |name: &str| {
            let (process, hash) = name.split_once('-').unwrap_or_default();
            let numbered = !process.is_empty() && process.bytes().all(|b| b.is_ascii_digit());
            numbered && hash.len() == 8 && hash.bytes().all(|b| b.is_ascii_hexdigit())
        };
        found
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()) && entry.file_name().to_str().is_some_and(ours))
            .map(|entry| entry.path())
            .collect()
    }

    /// Removes the index and its companions, which can be made again. The companions first: what opens the index in
    /// between finds an older state of it, never a new index with an old log.
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

    /// Puts a small file of the repository in place.
    pub fn put_git_file(&self, place: &Path, bytes: &[u8]) -> Result<()> {
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder).map_err(|error| fault("making", folder, error))?;
        }
        if place.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
            return Err(Error::Link(place.to_owned()));
        }
        fs::write(place, bytes).map_err(|error| fault("writing", place, error))
    }

    /// Removes a folder of our own making.
    pub fn discard(&self, folder: &Path) {
        let _ = fs::remove_dir_all(folder);
    }

    /// Makes an empty file that is the owner's alone, if there is none; SQLite would let everybody read it.
    pub fn make_private_file(&self, path: &Path) {
        let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(nofollow()).open(path);
    }

    /// Removes git's lock files that are older than a minute, which no git at work here ever is.
    pub fn remove_old_git_locks(&self, now: jiff::Timestamp) -> Result<Vec<PathBuf>> {
        let git = self.root.join(".git");
        let mut removed = Vec::new();
        for name in ["index.lock", "HEAD.lock", "refs/heads/main.lock", "config.lock"] {
            let lock = git.join(name);
            let Ok(found) = fs::symlink_metadata(&lock) else { continue };
            if now.as_second() - found.mtime() > 60 {
                fs::remove_file(&lock).map_err(|error| fault("removing", &lock, error))?;
                removed.push(lock);
            }
        }
        Ok(removed)
    }

    /// Every document below a folder, sorted. Hidden files and folders, and names no path can have, are passed over.
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

    /// Every file of the vault, hidden and private ones included, with its bytes' place; sorted. Links are not followed, and
    /// another vault or repository within is not ours.
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
                    Ok(kind) if kind.is_dir() && file != ".git" && !entry.path().join(CONFIG).exists() => {
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

    /// The bytes of a file that `everything` named.
    pub fn read_place(&self, place: &Path) -> Result<Vec<u8>> {
        fs::read(place).map_err(|error| fault("reading", place, error))
    }

    /// Puts other bytes in its place, whole.
    pub fn replace_place(&self, held: &Held, place: &Path, bytes: &[u8]) -> Result<()> {
        refuse_link(place)?;
        self.put_file(held, place, bytes)
    }

    /// Takes it away, with its folder if nothing is left there; folders at the top stay.
    pub fn remove_place(&self, _held: &Held, place: &Path) -> Result<()> {
        match fs::remove_file(place) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(fault("removing", place, error)),
            _ => {}
        }
        let above = place
            .ancestors()
            .skip(1)
            .take_while(|folder| folder.parent().is_some_and(|parent| parent != self.root && *folder != self.root));
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

    /// Puts a repository that was made apart in place of the one that is there, at once where the system can; the old one is
    /// then where the new one was. What a person put beside it goes along.
    pub fn exchange_repository(&self, made: &Path) -> Result<()> {
        let place = self.root.join(".git");
        for name in ["config", "description"] {
            let _ = fs::copy(place.join(name), made.join(name));
        }
        for name in ["hooks", "info"] {
            let own = place.join(name);
            if own.is_dir() {
                let _ = fs::remove_dir_all(made.join(name));
                let _ = fs::rename(&own, made.join(name));
            }
        }
        if !exchange(made, &place) {
            let aside = made.with_extension("old");
            fs::rename(&place, &aside).and_then(|()| fs::rename(made, &place)).map_err(|error| fault("making", &place, error))?;
        }
        flushed(&self.root)
    }

    /// Makes the folder of a vault that does not exist yet.
    pub fn make_root(&self) -> Result<()> {
        self.make_folder(&self.root)
    }

    fn make_folders(&self, path: &DocPath) -> Result<()> {
        path.folders().try_for_each(|folder| self.make_folder(&self.root.join(folder)))
    }

    /// Makes a folder and every missing one above it, and flushes the one each new folder stands in.
    pub fn make_folder(&self, folder: &Path) -> Result<()> {
        match DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => flushed(folder.parent().unwrap_or(folder)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // The vault itself may be reached by a link; nothing inside it is.
                let link = folder != self.root && fs::symlink_metadata(folder).is_ok_and(|found| found.file_type().is_symlink());
                if link { Err(Error::Link(folder.to_owned())) } else { Ok(()) }
            }
            Err(error) => match folder.parent() {
                // A folder above it is missing too; if they are all there, the system has another reason.
                Some(above) if error.kind() == ErrorKind::NotFound && !above.as_os_str().is_empty() && !above.exists() => {
                    self.make_folder(above)?;
                    self.make_folder(folder)
                }
                _ => Err(fault("making the folder", folder, error)),
            },
        }
    }
}

/// Lets two folders change places at once; false if the system cannot.
fn exchange(one: &Path, other: &Path) -> bool {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).is_ok()
    }
    #[cfg(not(any(target_os = "linux", target_os = "macos")))]
    {
        let _ = (one, other);
        false
    }
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

/// How many of these pieces, which are in order, are read in one go, and where the last of them ends.
fn close_together(pieces: impl Iterator<Item = (u64, usize)>) -> (usize, u64) {
    let (mut many, mut start, mut end) = (0, 0_u64, 0_u64);
    for (offset, len) in pieces {
        let last = offset.saturating_add(len as u64);
        if many == 0 {
            start = offset;
        } else if offset > end.saturating_add(BYTES_PER_CALL) || last.saturating_sub(start) > STRETCH_BYTES {
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

/// One append to a file that programs without our lock may append to as well.
struct Append {
    /// The file's length before the write.
    before: u64,
    /// How many bytes the system accepted.
    written: usize,
}

impl Append {
    /// One write, unless the system takes only a part of it: then the rest follows. Only an interruption is tried again.
    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        while self.written < bytes.len() {
            match file.write(&bytes[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.written = (self.written + written).min(bytes.len()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Where the bytes are in the file, and its metadata if nothing else was written meanwhile. A file that is longer than
    /// expected is not a failed write: another program appended too, before or behind our bytes.
    fn locate(&self, file: &File, bytes: &[u8]) -> io::Result<(u64, Option<Look>)> {
        let after = file.metadata()?;
        if after.len() == self.before + bytes.len() as u64 {
            return Ok((self.before, Some(look(&after))));
        }
        match self.find(file, bytes, after.len())? {
            Some(start) => Ok((start, None)),
            None => Err(io::Error::new(ErrorKind::WriteZero, "not all of the line arrived in the file")),
        }
    }

    fn find(&self, file: &File, bytes: &[u8], len: u64) -> io::Result<Option<u64>> {
        let mut added = vec![0; len.saturating_sub(self.before) as usize];
        file.read_exact_at(&mut added, self.before)?;
        Ok(memchr::memmem::find(&added, bytes).map(|at| self.before + at as u64))
    }

    /// Cuts a refused write off, so that it does not turn up later, but only if our bytes are all that was added. Otherwise,
    /// and if cutting fails, they remain as a torn tail, which the next opening moves to the quarantine.
    fn roll_back(&self, file: &File, bytes: &[u8]) {
        let Ok(found) = file.metadata() else { return };
        let added = found.len().saturating_sub(self.before);
        if added == 0 || added > bytes.len() as u64 {
            return;
        }
        let mut tail = vec![0; added as usize];
        if file.read_exact_at(&mut tail, self.before).is_ok() && bytes.starts_with(&tail) {
            let _ = file.set_len(self.before);
        }
    }
}

/// The system's error as ours.
pub(crate) fn fault(what: &'static str, path: &Path, source: io::Error) -> Error {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::Full { path },
        // What the system says when it was told not to follow a link.
        _ if source.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => Error::Link(path),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Error::Denied { what, path },
        ErrorKind::IsADirectory => Error::NotAFile(path),
        _ => Error::Io { what, path, reason: source },
    }
}

/// Writes all of it to a file that no other program appends to.
fn write_whole(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    Append { before: 0, written: 0 }.write(file, bytes)
}
