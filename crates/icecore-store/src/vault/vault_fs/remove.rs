//! Removes files and folders, and what dead processes left.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use icecore_domain::layout::DocPath;

use super::lock::{RELEASE_PAUSE, WriteLock, lock_if_stale};
use super::read::{file_stat, stat_path};
use super::replace::{CheckedPath, Expected, exchange_name, rename_new, temporary_name};
use super::{VaultFs, flush_folder, io_error, refuse_link};
use crate::{ContentVersion, Error, Result};

impl VaultFs {
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
    /// [`ErrorKind::Conflict`].
    pub fn remove_if(&self, _held: &WriteLock, path: &DocPath, expected: &Expected) -> Result<()> {
        let place = self.checked_path(path)?;
        if !self.remove_path_if(&place, expected)? {
            return Err(Error::conflict(path.to_string()));
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
    pub(super) fn remove_path_if(&self, place: &Path, expected: &Expected) -> Result<bool> {
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

    /// Removes a file, if its content is still `known`.
    pub fn remove_path_with(&self, _held: &WriteLock, place: &Path, known: &[u8]) -> Result<()> {
        if !self.remove_path_if(place, &Expected::Content(ContentVersion::of(Some(known))))? {
            return Err(Error::conflict(
                place.strip_prefix(&self.root).unwrap_or(place).display().to_string(),
            ));
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
}
