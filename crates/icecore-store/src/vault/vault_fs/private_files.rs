//! The private folder of a vault: notes, cached answers, the marker key, the merge journal.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use icecore_domain::hash::Hash;
use icecore_domain::layout::{DocPath, PRIVATE};
use icecore_domain::secrets::MarkerKey;

use super::MAX_WRITE_ATTEMPTS;
use super::append::write_whole;
use super::lock::{WriteLock, lock_soon};
use super::replace::{CheckedPath, Expected, Placement, temporary_name};
use super::{VaultFs, flush_folder, io_error, nofollow, nonblock, refuse_link};
use crate::{Error, MARKER_KEY, Result};

/// The folder of cached model answers.
const ANSWERS_DIR: &str = "answers";
/// The folder of notes.
const NOTES_DIR: &str = "notes";
/// The name prefix of a note that is being written.
const PARTIAL_NOTE_PREFIX: &str = ".unfinished-";

impl VaultFs {
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

    pub(super) fn write_private_file(
        &self,
        _held: &WriteLock,
        place: &Path,
        bytes: &[u8],
    ) -> Result<()> {
        let (temporary, _locked) = self.write_temporary(place, bytes)?;
        if let Err(error) = fs::rename(&temporary, place) {
            let _ = fs::remove_file(&temporary);
            return Err(io_error("writing", place, error));
        }
        flush_folder(place.parent().unwrap_or(&self.root))
    }

    pub(super) fn write_private_file_if(
        &self,
        _held: &WriteLock,
        place: &Path,
        bytes: &[u8],
        expected: &Expected,
    ) -> Result<()> {
        let moved = || {
            Error::conflict(place.strip_prefix(&self.root).unwrap_or(place).display().to_string())
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
                    return Err(Error::not_a_file(place));
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
                return Err(Error::not_a_file(place));
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
        Err(Error::conflict(name.to_string()))
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
                MarkerKey::from_hex(&text).map(Some).ok_or(Error::invalid_marker_key(place))
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
            Err(Error { kind: crate::ErrorKind::InvalidMarkerKey, .. }) if replace => {}
            Err(error) => return Err(error),
        }
        self.write_private_file(
            &held,
            &self.private(MARKER_KEY),
            format!("{}\n", key.to_hex()).as_bytes(),
        )?;
        Ok(key.clone())
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
}
